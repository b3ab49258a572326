#include "ledger/mem_claims.h"

#include "base/mem.h"

#include <stdlib.h>

struct mem_entity {
    char *tenant, *type, *id, *holder, *attributes, *override; /* the last three may be NULL */
    int64_t held_ms, rev;
};

struct mem_wait { /* in the order of tickets */
    char *tenant, *type, *id, *operation;
    int64_t ticket;
};

struct mem_window {
    char *tenant, *key, *operation;
    int64_t at_ms, until_ms;
};

struct mem_slice {
    char *tenant, *budget, *subject, *key;
    struct budget_slice slice;
    int64_t over_ms;
};

static struct mem_claims *claims_of(struct claim_store *base)
{
    return (struct mem_claims *)base; /* base comes first */
}

/* Opens a gap of one item at index `at`. */
static void *insert_at(void *items, size_t *count, size_t *room, size_t at, size_t bytes)
{
    if (*count == *room) {
        *room = *room ? *room * 2 : 16;
        items = mem_grow(items, *room * bytes);
    }
    char *gap = (char *)items + at * bytes;
    memmove(gap + bytes, gap, (*count - at) * bytes);
    memset(gap, 0, bytes);
    ++*count;
    return items;
}

static void remove_at(void *items, size_t *count, size_t at, size_t bytes)
{
    char *gone = (char *)items + at * bytes;
    --*count;
    memmove(gone, gone + bytes, (*count - at) * bytes);
}

static int compare_texts(const char *const *a, const char *const *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int order = strcmp(a[i], b[i]);
        if (order)
            return order;
    }
    return 0;
}

static char *copy_or_null(const char *text)
{
    return text ? mem_copy_text(text) : NULL;
}

static char *copy_str(struct str text)
{
    if (!text.p)
        return NULL;
    char *copy = mem_alloc(text.n + 1);
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    return copy;
}

/* ---- entities ---- */

static int compare_entity(const struct mem_entity *entity, const char *tenant, const char *type, const char *id)
{
    const char *const own[] = {entity->tenant, entity->type, entity->id}, *const other[] = {tenant, type, id};
    return compare_texts(own, other, 3);
}

static size_t entity_at(const struct mem_claims *claims, const char *tenant, const char *type, const char *id,
                        bool *found)
{
    size_t low = 0, high = claims->entity_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_entity(&claims->entities[middle], tenant, type, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < claims->entity_count && compare_entity(&claims->entities[low], tenant, type, id) == 0;
    return low;
}

static void release_state(struct mem_entity *entity)
{
    free(entity->holder);
    free(entity->attributes);
    free(entity->override);
}

static void release_entity(struct mem_entity *entity)
{
    free(entity->tenant);
    free(entity->type);
    free(entity->id);
    release_state(entity);
}

static enum err_code entity(struct claim_store *base, const char *tenant, const char *type, const char *id,
                            struct arena *arena, struct entity_row *out, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    bool found;
    (void)err;
    size_t at = entity_at(claims, tenant, type, id, &found);
    *out = (struct entity_row){0};
    if (!found)
        return ERR_NONE;
    const struct mem_entity *row = &claims->entities[at];
    out->holder = arena_copy_text(arena, row->holder);
    out->held_ms = row->held_ms;
    out->rev = row->rev;
    out->attributes = arena_str(arena, str_of(row->attributes));
    out->override = arena_str(arena, str_of(row->override));
    return ERR_NONE;
}

static enum err_code set_entity(struct claim_store *base, const char *tenant, const char *type, const char *id,
                                const struct entity_row *row, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    bool found, keep = row->holder || row->rev > 0 || row->override.p;
    (void)err;
    size_t at = entity_at(claims, tenant, type, id, &found);
    if (!keep && found) {
        release_entity(&claims->entities[at]);
        remove_at(claims->entities, &claims->entity_count, at, sizeof *claims->entities);
    }
    if (!keep)
        return ERR_NONE;
    if (!found) {
        claims->entities =
            insert_at(claims->entities, &claims->entity_count, &claims->entity_room, at, sizeof *claims->entities);
        claims->entities[at].tenant = mem_copy_text(tenant);
        claims->entities[at].type = mem_copy_text(type);
        claims->entities[at].id = mem_copy_text(id);
    }
    struct mem_entity *kept = &claims->entities[at], old = *kept;
    kept->holder = copy_or_null(row->holder);
    kept->attributes = copy_str(row->attributes);
    kept->override = copy_str(row->override);
    kept->held_ms = row->held_ms;
    kept->rev = row->rev;
    release_state(&old);
    return ERR_NONE;
}

/* ---- queues ---- */

static enum err_code waiting(struct claim_store *base, const char *tenant, const char *type, const char *id,
                             struct arena *arena, size_t *count, const char **first, struct err *err)
{
    const struct mem_claims *claims = claims_of(base);
    (void)err;
    *count = 0;
    *first = NULL;
    for (size_t i = 0; i < claims->wait_count && *count < CLAIMS_WAITERS_MAX; i++) {
        const struct mem_wait *wait = &claims->waits[i];
        if (strcmp(wait->tenant, tenant) != 0 || strcmp(wait->type, type) != 0 || strcmp(wait->id, id) != 0)
            continue;
        if ((*count)++ == 0)
            *first = arena_copy_text(arena, wait->operation);
    }
    return ERR_NONE;
}

static enum err_code wait_last(struct claim_store *base, int64_t *ticket, struct err *err)
{
    const struct mem_claims *claims = claims_of(base);
    (void)err;
    *ticket = claims->wait_count ? claims->waits[claims->wait_count - 1].ticket : 0;
    return ERR_NONE;
}

static enum err_code wait_add(struct claim_store *base, const char *tenant, const char *type, const char *id,
                              const char *operation, int64_t ticket, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    (void)err;
    size_t at = claims->wait_count;
    claims->waits = insert_at(claims->waits, &claims->wait_count, &claims->wait_room, at, sizeof *claims->waits);
    claims->waits[at] = (struct mem_wait){mem_copy_text(tenant), mem_copy_text(type), mem_copy_text(id),
                                          mem_copy_text(operation), ticket};
    return ERR_NONE;
}

static enum err_code waits_of(struct claim_store *base, const char *operation, struct arena *arena, struct claims *out,
                              struct err *err)
{
    const struct mem_claims *claims = claims_of(base);
    (void)err;
    out->entity_count = 0; /* added in the order of type and id */
    for (size_t i = 0; i < claims->wait_count && out->entity_count < CLAIMS_ENTITIES_MAX; i++)
        if (strcmp(claims->waits[i].operation, operation) == 0)
            out->entities[out->entity_count++] = (struct claim_entity){
                .type = arena_copy_text(arena, claims->waits[i].type),
                .id = arena_copy_text(arena, claims->waits[i].id),
                .queue = true,
                .seen_rev = -1,
            };
    return ERR_NONE;
}

static void release_wait(struct mem_wait *wait)
{
    free(wait->tenant);
    free(wait->type);
    free(wait->id);
    free(wait->operation);
}

static enum err_code wait_remove(struct claim_store *base, const char *operation, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    size_t kept = 0;
    (void)err;
    for (size_t i = 0; i < claims->wait_count; i++) {
        struct mem_wait wait = claims->waits[i];
        if (strcmp(wait.operation, operation) == 0)
            release_wait(&wait);
        else
            claims->waits[kept++] = wait;
    }
    claims->wait_count = kept;
    return ERR_NONE;
}

static enum err_code wake(struct claim_store *base, const char *operation, int64_t at_ms, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    (void)err;
    claims->wake(claims->user, operation, at_ms);
    return ERR_NONE;
}

/* ---- windows ---- */

static enum err_code window(struct claim_store *base, const char *tenant, const char *key, int64_t now_ms,
                            struct arena *arena, const char **operation, int64_t *at_ms, int64_t *until_ms,
                            struct err *err)
{
    const struct mem_claims *claims = claims_of(base);
    const struct mem_window *newest = NULL;
    (void)err;
    for (size_t i = 0; i < claims->window_count; i++) {
        const struct mem_window *row = &claims->windows[i];
        if (strcmp(row->tenant, tenant) != 0 || strcmp(row->key, key) != 0 || row->until_ms <= now_ms)
            continue;
        if (!newest || row->at_ms > newest->at_ms ||
            (row->at_ms == newest->at_ms && strcmp(row->operation, newest->operation) > 0))
            newest = row;
    }
    *operation = newest ? arena_copy_text(arena, newest->operation) : NULL;
    *at_ms = newest ? newest->at_ms : 0;
    *until_ms = newest ? newest->until_ms : 0;
    return ERR_NONE;
}

static void remove_window(struct mem_claims *claims, size_t at)
{
    struct mem_window *row = &claims->windows[at];
    free(row->tenant);
    free(row->key);
    free(row->operation);
    remove_at(claims->windows, &claims->window_count, at, sizeof *claims->windows);
}

static enum err_code drop_window(struct claim_store *base, const char *tenant, const char *key, const char *operation,
                                 struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    (void)err;
    for (size_t i = 0; i < claims->window_count; i++) {
        const struct mem_window *row = &claims->windows[i];
        if (strcmp(row->tenant, tenant) == 0 && strcmp(row->key, key) == 0 && strcmp(row->operation, operation) == 0) {
            remove_window(claims, i);
            break;
        }
    }
    return ERR_NONE;
}

static enum err_code set_window(struct claim_store *base, const char *tenant, const char *key, const char *operation,
                                int64_t at_ms, int64_t until_ms, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    drop_window(base, tenant, key, operation, err);
    size_t at = claims->window_count;
    claims->windows =
        insert_at(claims->windows, &claims->window_count, &claims->window_room, at, sizeof *claims->windows);
    claims->windows[at] =
        (struct mem_window){mem_copy_text(tenant), mem_copy_text(key), mem_copy_text(operation), at_ms, until_ms};
    return ERR_NONE;
}

/* ---- budgets ---- */

static int compare_slice(const struct mem_slice *row, const char *tenant, const struct claim_debit *debit)
{
    const char *const own[] = {row->tenant, row->budget, row->subject, row->key};
    const char *const other[] = {tenant, debit->budget, debit->subject, debit->key};
    return compare_texts(own, other, 4);
}

/* Where a slice lies, or belongs. */
static size_t slice_at(const struct mem_claims *claims, const char *tenant, const struct claim_debit *debit,
                       const struct budget_slice *slice, bool *found)
{
    size_t at = 0;
    for (; at < claims->slice_count; at++) {
        const struct mem_slice *row = &claims->slices[at];
        int order = compare_slice(row, tenant, debit);
        if (order == 0)
            order = row->slice.until_ms < slice->until_ms ? -1 : row->slice.until_ms > slice->until_ms;
        if (order == 0)
            order = row->slice.start_ms < slice->start_ms ? -1 : row->slice.start_ms > slice->start_ms;
        if (order >= 0) {
            *found = order == 0;
            return at;
        }
    }
    *found = false;
    return at;
}

static enum err_code slices(struct claim_store *base, const char *tenant, const struct claim_debit *debit,
                            int64_t after_ms, struct arena *arena, struct budget_slice **out, size_t *count,
                            struct err *err)
{
    const struct mem_claims *claims = claims_of(base);
    (void)err;
    *out = arena_alloc(arena, (claims->slice_count + 1) * sizeof **out);
    *count = 0;
    for (size_t i = 0; i < claims->slice_count; i++)
        if (claims->slices[i].slice.until_ms > after_ms && compare_slice(&claims->slices[i], tenant, debit) == 0)
            (*out)[(*count)++] = claims->slices[i].slice;
    return ERR_NONE;
}

static void remove_slice(struct mem_claims *claims, size_t at)
{
    struct mem_slice *row = &claims->slices[at];
    free(row->tenant);
    free(row->budget);
    free(row->subject);
    free(row->key);
    remove_at(claims->slices, &claims->slice_count, at, sizeof *claims->slices);
}

static enum err_code set_slice(struct claim_store *base, const char *tenant, const struct claim_debit *debit,
                               const struct budget_slice *slice, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    bool found;
    (void)err;
    size_t at = slice_at(claims, tenant, debit, slice, &found);
    if (slice->amount.units == 0) {
        if (found)
            remove_slice(claims, at);
        return ERR_NONE;
    }
    if (!found) {
        claims->slices =
            insert_at(claims->slices, &claims->slice_count, &claims->slice_room, at, sizeof *claims->slices);
        struct mem_slice *row = &claims->slices[at];
        row->tenant = mem_copy_text(tenant);
        row->budget = mem_copy_text(debit->budget);
        row->subject = mem_copy_text(debit->subject);
        row->key = mem_copy_text(debit->key);
    }
    claims->slices[at].slice = *slice;
    claims->slices[at].over_ms = slice->until_ms + debit->per_ms;
    return ERR_NONE;
}

static enum err_code prune(struct claim_store *base, int64_t before_ms, struct err *err)
{
    struct mem_claims *claims = claims_of(base);
    (void)err;
    for (size_t i = claims->window_count; i-- > 0;)
        if (claims->windows[i].until_ms < before_ms)
            remove_window(claims, i);
    for (size_t i = claims->slice_count; i-- > 0;)
        if (claims->slices[i].over_ms < before_ms)
            remove_slice(claims, i);
    return ERR_NONE;
}

/* ---- life, commands ---- */

void mem_claims_init(struct mem_claims *claims, void (*wake_operation)(void *, const char *, int64_t), void *user)
{
    static const struct claim_store_ops ops = {
        entity, set_entity, waiting,    wait_last,   wait_add, waits_of,  wait_remove,
        wake,   window,     set_window, drop_window, slices,   set_slice, prune,
    };
    *claims = (struct mem_claims){.base = {.ops = &ops}, .wake = wake_operation, .user = user};
}

void mem_claims_release(struct mem_claims *claims)
{
    for (size_t i = 0; i < claims->entity_count; i++)
        release_entity(&claims->entities[i]);
    for (size_t i = 0; i < claims->wait_count; i++)
        release_wait(&claims->waits[i]);
    while (claims->window_count > 0)
        remove_window(claims, claims->window_count - 1);
    while (claims->slice_count > 0)
        remove_slice(claims, claims->slice_count - 1);
    free(claims->entities);
    free(claims->waits);
    free(claims->windows);
    free(claims->slices);
}

static bool listed(const struct ledger_entities *query, const struct mem_entity *row)
{
    const char *const own[] = {row->type, row->id};
    const char *const after[] = {query->after_type ? query->after_type : "", query->after_id ? query->after_id : ""};
    return strcmp(row->tenant, query->tenant) == 0 && (!query->type || strcmp(row->type, query->type) == 0) &&
           (query->all || row->holder) && compare_texts(own, after, 2) > 0;
}

enum err_code mem_entities(struct mem_claims *claims, struct ledger_request *request)
{
    struct ledger_entities *query = &request->entities;
    struct arena *arena = request->arena;
    if (query->of)
        return claim_entities_named(&claims->base, query, arena, &request->err);
    size_t limit = query->limit < LEDGER_LIST_MAX ? query->limit : LEDGER_LIST_MAX;
    query->entities = arena_zero(arena, (limit + 1) * sizeof *query->entities);
    query->count = 0;
    for (size_t i = 0; i < claims->entity_count && query->count < limit; i++) {
        const struct mem_entity *row = &claims->entities[i];
        const char *first;
        if (!listed(query, row))
            continue;
        struct ledger_entity *out = &query->entities[query->count++];
        *out = (struct ledger_entity){
            .type = arena_copy_text(arena, row->type),
            .id = arena_copy_text(arena, row->id),
            .holder = arena_copy_text(arena, row->holder),
            .held_ms = row->held_ms,
            .rev = row->rev,
            .attributes = arena_str(arena, str_of(row->attributes)),
            .override = arena_str(arena, str_of(row->override)),
        };
        waiting(&claims->base, row->tenant, row->type, row->id, arena, &out->waiting, &first, &request->err);
    }
    return ERR_NONE;
}

void mem_claims_count(const struct mem_claims *claims, struct ledger_stats *out)
{
    for (size_t i = 0; i < claims->entity_count; i++)
        out->entities_held += claims->entities[i].holder != NULL;
    out->entities_waiting = (int64_t)claims->wait_count;
}

enum err_code mem_budgets(struct mem_claims *claims, struct ledger_request *request)
{
    struct ledger_budgets *query = &request->budgets;
    struct arena *arena = request->arena;
    query->slices = arena_zero(arena, (claims->slice_count + 1) * sizeof *query->slices);
    query->count = 0;
    for (size_t i = 0; i < claims->slice_count && query->count < LEDGER_SCAN_MAX; i++) {
        const struct mem_slice *row = &claims->slices[i];
        if (strcmp(row->tenant, query->tenant) != 0)
            continue;
        query->slices[query->count++] = (struct ledger_budget_slice){
            .budget = arena_copy_text(arena, row->budget),
            .subject = arena_copy_text(arena, row->subject),
            .key = arena_copy_text(arena, row->key),
            .start_ms = row->slice.start_ms,
            .until_ms = row->slice.until_ms,
            .amount = row->slice.amount,
        };
    }
    return ERR_NONE;
}
