/* What the implementations share of entities, windows and budgets.
 *
 *   admitted, may start ──► holds all its entities ──► terminal: released ──► the next in line of each is asked
 *   admitted, busy ───────► in all their queues ────────────────────────────────► all free and first everywhere: holds
 *
 * An operation takes all its entities at once or none, and a place in a queue is never overtaken: the one that has
 * waited longest is first in every queue it stands in, so it waits for holders only, and holders end. */
#include "ledger/claim_store.h"

#include <assert.h>

static void woken(struct claim_store *store, int64_t at_ms)
{
    if (store->woken_ms == 0 || at_ms < store->woken_ms)
        store->woken_ms = at_ms;
}

/* ---- budgets ---- */

/* A slice counts as long as any moment of it lies within the last period: hence never more than the limit within any
 * period, and up to one slice too long. */
static enum err_code sum_up(struct claim_store *store, const char *tenant, const struct claim_debit *debit,
                            int64_t now_ms, struct arena *arena, struct decimal *total, int64_t *room_at_ms,
                            struct err *err)
{
    struct budget_slice *slices;
    size_t count;
    enum err_code code = store->ops->slices(store, tenant, debit, now_ms - debit->per_ms, arena, &slices, &count, err);
    if (code)
        return code;
    *total = decimal_of(0);
    for (size_t i = 0; i < count; i++)
        *total = decimal_add(*total, slices[i].amount);
    struct decimal rest = decimal_add(*total, debit->amount);
    *room_at_ms = 0;
    for (size_t i = 0; i < count && decimal_compare(rest, debit->limit) > 0; i++) {
        rest = decimal_subtract(rest, slices[i].amount);
        *room_at_ms = slices[i].until_ms + debit->per_ms;
    }
    if (decimal_compare(rest, debit->limit) > 0)
        *room_at_ms = 0;
    return ERR_NONE;
}

/* Adds to the slice in which the operation counts, or takes away. What is long over is left alone: it may be forgotten
 * already. */
static enum err_code debit(struct claim_store *store, const struct operation *op, const struct claim_debit *debit,
                           bool add, int64_t now_ms, struct arena *arena, struct err *err)
{
    struct budget_slice slice = {.amount = decimal_of(0)}, *slices;
    size_t count;
    claims_slice(op->created_ms, debit->per_ms, &slice.start_ms, &slice.until_ms);
    if (slice.until_ms + debit->per_ms + CLAIM_SLACK_MS / 2 <= now_ms)
        return ERR_NONE;
    enum err_code code = store->ops->slices(store, op->tenant, debit, slice.until_ms - 1, arena, &slices, &count, err);
    if (code)
        return code;
    for (size_t i = 0; i < count; i++)
        if (slices[i].start_ms == slice.start_ms && slices[i].until_ms == slice.until_ms)
            slice.amount = slices[i].amount;
    slice.amount = add ? decimal_add(slice.amount, debit->amount) : decimal_subtract(slice.amount, debit->amount);
    if (slice.amount.units < 0)
        slice.amount = decimal_of(0);
    return store->ops->set_slice(store, op->tenant, debit, &slice, err);
}

/* ---- counting ---- */

static enum err_code count_in(struct claim_store *store, const struct operation *op, const struct claims *claims,
                              bool counts, int64_t now_ms, struct arena *arena, struct err *err)
{
    for (size_t i = 0; i < claims->debit_count; i++)
        if (debit(store, op, &claims->debits[i], counts, now_ms, arena, err))
            return err->code;
    if (!claims->window)
        return ERR_NONE;
    return counts ? store->ops->set_window(store, op->tenant, claims->window, op->id, op->created_ms,
                                           op->created_ms + claims->window_per_ms, err)
                  : store->ops->drop_window(store, op->tenant, claims->window, op->id, err);
}

/* ---- entities ---- */

/* Held for it by the operation that it is a step of: that one gives it back. */
static bool held_by_parent(const struct operation *op, const char *holder)
{
    return holder && text_equal(holder, op->parent);
}

static enum err_code hold_all(struct claim_store *store, const struct operation *op, const struct claims *claims,
                              int64_t now_ms, struct arena *arena, struct err *err)
{
    const char *tenant = op->tenant;
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct entity_row row;
        if (store->ops->entity(store, tenant, entity->type, entity->id, arena, &row, err))
            return err->code;
        if (held_by_parent(op, row.holder))
            continue;
        row.holder = op->id;
        row.held_ms = now_ms;
        if (store->ops->set_entity(store, tenant, entity->type, entity->id, &row, err))
            return err->code;
    }
    return ERR_NONE;
}

static enum err_code wait_for_all(struct claim_store *store, const struct operation *op, const struct claims *claims,
                                  struct arena *arena, struct err *err)
{
    int64_t ticket;
    if (store->ops->wait_last(store, &ticket, err))
        return err->code;
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct entity_row row;
        if (store->ops->entity(store, op->tenant, entity->type, entity->id, arena, &row, err))
            return err->code;
        if (!held_by_parent(op, row.holder) &&
            store->ops->wait_add(store, op->tenant, entity->type, entity->id, op->id, ticket + 1, err))
            return err->code;
    }
    return ERR_NONE;
}

/* Whether all are free for it: nobody holds them but its parent, and it is first in each queue or there is none. */
static enum err_code all_free(struct claim_store *store, const struct operation *op, const struct claims *claims,
                              struct arena *arena, bool *free, struct err *err)
{
    const char *tenant = op->tenant, *operation = op->id;
    *free = true;
    for (size_t i = 0; i < claims->entity_count && *free; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct entity_row row;
        size_t count;
        const char *first;
        if (store->ops->entity(store, tenant, entity->type, entity->id, arena, &row, err) ||
            store->ops->waiting(store, tenant, entity->type, entity->id, arena, &count, &first, err))
            return err->code;
        *free = held_by_parent(op, row.holder) || (!row.holder && (!first || strcmp(first, operation) == 0));
    }
    return ERR_NONE;
}

/* The first in line gets what it waits for if all of it is free. */
static enum err_code grant_first(struct claim_store *store, const char *tenant, const struct claim_entity *entity,
                                 int64_t now_ms, struct arena *arena, struct err *err)
{
    size_t count;
    const char *first;
    struct operation op = {.tenant = tenant};
    struct claims wanted = {0};
    bool free;
    if (store->ops->waiting(store, tenant, entity->type, entity->id, arena, &count, &first, err) || !first)
        return err->code;
    strncpy(op.id, first, sizeof op.id - 1); /* what its parent holds it does not wait for */
    if (store->ops->waits_of(store, first, arena, &wanted, err) || all_free(store, &op, &wanted, arena, &free, err) ||
        !free)
        return err->code;
    woken(store, now_ms);
    if (store->ops->wait_remove(store, first, err) || hold_all(store, &op, &wanted, now_ms, arena, err))
        return err->code;
    return store->ops->wake(store, first, now_ms, err);
}

/* Who leaves, with its entities or only its places in their queues, may let others in at each of them. */
static enum err_code grant_next(struct claim_store *store, const char *tenant, const struct claims *claims,
                                int64_t now_ms, struct arena *arena, struct err *err)
{
    for (size_t i = 0; i < claims->entity_count; i++)
        if (grant_first(store, tenant, &claims->entities[i], now_ms, arena, err))
            return err->code;
    return ERR_NONE;
}

static enum err_code leave(struct claim_store *store, const struct operation *op, const struct claims *claims,
                           int64_t now_ms, struct arena *arena, struct err *err)
{
    if (claims->entity_count == 0)
        return ERR_NONE;
    if (store->ops->wait_remove(store, op->id, err))
        return err->code;
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct entity_row row;
        if (store->ops->entity(store, op->tenant, entity->type, entity->id, arena, &row, err))
            return err->code;
        if (!text_equal(row.holder, op->id)) /* an operator took it away */
            continue;
        row.holder = NULL;
        row.held_ms = 0;
        if (store->ops->set_entity(store, op->tenant, entity->type, entity->id, &row, err))
            return err->code;
    }
    return grant_next(store, op->tenant, claims, now_ms, arena, err);
}

/* A planned operation asks: it may hold them already, or wait for them already. */
static enum err_code acquire(struct claim_store *store, const struct operation *op, const struct claims *claims,
                             int64_t now_ms, struct arena *arena, struct err *err)
{
    struct claims waits = {0};
    bool holds = true, free;
    for (size_t i = 0; i < claims->entity_count && holds; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct entity_row row;
        if (store->ops->entity(store, op->tenant, entity->type, entity->id, arena, &row, err))
            return err->code;
        holds = claims_holds(op, row.holder);
    }
    if (!holds) {
        if (store->ops->waits_of(store, op->id, arena, &waits, err) || all_free(store, op, claims, arena, &free, err))
            return err->code;
        if (!free)
            return waits.entity_count > 0 ? ERR_NONE : wait_for_all(store, op, claims, arena, err);
        if (store->ops->wait_remove(store, op->id, err) || hold_all(store, op, claims, now_ms, arena, err))
            return err->code;
    }
    woken(store, now_ms);
    return store->ops->wake(store, op->id, now_ms, err);
}

static enum err_code set_attributes(struct claim_store *store, const struct operation *op, const struct claims *claims,
                                    int64_t now_ms, struct arena *arena, struct err *err)
{
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct entity_row row;
        if (!entity->sets)
            continue;
        if (store->ops->entity(store, op->tenant, entity->type, entity->id, arena, &row, err))
            return err->code;
        row.attributes = claims_set(arena, row.attributes, entity->sets, op->id, now_ms);
        row.rev++;
        if (store->ops->set_entity(store, op->tenant, entity->type, entity->id, &row, err))
            return err->code;
    }
    return ERR_NONE;
}

/* ---- commands ---- */

enum err_code claim_facts(struct claim_store *store, const struct admission *admission, struct arena *arena,
                          struct claims_facts *out, struct err *err)
{
    const struct claims *claims = admission->claims;
    const char *tenant = admission->op->tenant;
    int64_t now_ms = admission->op->created_ms;
    *out = (struct claims_facts){0};
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct entity_row row;
        const char *first;
        if (store->ops->entity(store, tenant, entity->type, entity->id, arena, &row, err) ||
            store->ops->waiting(store, tenant, entity->type, entity->id, arena, &out->entities[i].waiting, &first, err))
            return err->code;
        if (held_by_parent(admission->op, row.holder))
            out->entities[i].waiting = 0;
        else
            out->entities[i].holder = row.holder;
        out->entities[i].rev = row.rev;
    }
    if (claims->window && store->ops->window(store, tenant, claims->window, now_ms, arena, &out->window_operation,
                                             &out->window_at_ms, &out->window_until_ms, err))
        return err->code;
    for (size_t i = 0; i < claims->debit_count; i++)
        if (sum_up(store, tenant, &claims->debits[i], now_ms, arena, &out->totals[i], &out->room_at_ms[i], err))
            return err->code;
    return ERR_NONE;
}

void claim_waiting(const struct ledger_admit *admit, struct ledger_admit *waiting, struct operation *op)
{
    *waiting = *admit;
    *op = *admit->admission.op;
    claims_await(op, admit->admission.claims->wait_until_ms);
    waiting->admission.op = op;
    waiting->attempt = NULL;
    waiting->event.from = waiting->event.to = op->state;
    waiting->event.reason = op->reason;
    waiting->event.attempt = 0;
}

enum err_code claim_admitted(struct claim_store *store, const struct admission *admission, bool waits,
                             struct arena *arena, struct err *err)
{
    const struct operation *op = admission->op;
    const struct claims *claims = admission->claims;
    store->woken_ms = 0;
    if (store->ops->prune(store, op->created_ms - CLAIM_SLACK_MS, err) ||
        count_in(store, op, claims, true, op->created_ms, arena, err))
        return err->code;
    if (claims->entity_count == 0 || !admission->wants_entities)
        return ERR_NONE;
    if (waits)
        return wait_for_all(store, op, claims, arena, err);
    return hold_all(store, op, claims, op->created_ms, arena, err);
}

enum err_code claim_unchanged(struct claim_store *store, const struct operation *op, const struct claims *seen,
                              struct arena *arena, struct err *err)
{
    for (size_t i = 0; i < seen->entity_count; i++) {
        const struct claim_entity *entity = &seen->entities[i];
        struct entity_row row;
        if (store->ops->entity(store, op->tenant, entity->type, entity->id, arena, &row, err))
            return err->code;
        if (entity->seen_rev >= 0 && entity->seen_rev != row.rev)
            return err_set(err, ERR_STALE, "%s %s has changed since the guards looked at it", entity->type, entity->id);
    }
    return ERR_NONE;
}

enum err_code claim_moved(struct claim_store *store, enum state from, const struct operation *to, struct arena *arena,
                          struct err *err)
{
    struct claims_move move = claims_move(from, to);
    struct claims claims;
    int64_t now_ms = to->updated_ms;
    store->woken_ms = 0;
    if (!move.release && !move.acquire && !move.set && move.counts == move.counted)
        return ERR_NONE;
    if (claims_read(arena, to->claims, &claims, err))
        return err->code;
    if (move.counts != move.counted && count_in(store, to, &claims, move.counts, now_ms, arena, err))
        return err->code;
    if (move.set && set_attributes(store, to, &claims, now_ms, arena, err)) /* before others are let in */
        return err->code;
    if (move.release && leave(store, to, &claims, now_ms, arena, err))
        return err->code;
    return move.acquire ? acquire(store, to, &claims, now_ms, arena, err) : ERR_NONE;
}

static struct str override_text(struct arena *arena, const struct ledger_entity_release *release)
{
    struct json *object = json_object(arena);
    json_set(arena, object, STR("by"), json_string(str_of(release->by)));
    json_set(arena, object, STR("note"), json_string(str_of(release->note)));
    json_set(arena, object, STR("operation"), json_string(str_of(release->operation)));
    json_set(arena, object, STR("at_ms"), json_int(arena, release->now_ms));
    return json_to_text(arena, object);
}

enum err_code claim_release(struct claim_store *store, struct ledger_entity_release *release, struct arena *arena,
                            struct err *err)
{
    struct entity_row row;
    struct claim_entity entity = {.type = release->type, .id = release->id};
    store->woken_ms = 0;
    if (store->ops->entity(store, release->tenant, release->type, release->id, arena, &row, err))
        return err->code;
    if (!row.holder)
        return err_set(err, ERR_NOT_FOUND, "nobody holds %s %s", release->type, release->id);
    if (release->operation && strcmp(release->operation, row.holder) != 0)
        return err_set(err, ERR_STALE, "%s %s is held by %s now, not by %s", release->type, release->id, row.holder,
                       release->operation);
    release->operation = row.holder;
    row.override = override_text(arena, release);
    row.holder = NULL;
    row.held_ms = 0;
    if (store->ops->set_entity(store, release->tenant, release->type, release->id, &row, err) ||
        grant_first(store, release->tenant, &entity, release->now_ms, arena, err))
        return err->code;
    release->wake_ms = store->woken_ms;
    return ERR_NONE;
}

enum err_code claim_entities_named(struct claim_store *store, struct ledger_entities *query, struct arena *arena,
                                   struct err *err)
{
    const struct claims *claims = query->of;
    query->entities = arena_zero(arena, (claims->entity_count + 1) * sizeof *query->entities);
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        struct ledger_entity *out = &query->entities[i];
        struct entity_row row;
        const char *first;
        if (store->ops->entity(store, query->tenant, entity->type, entity->id, arena, &row, err) ||
            store->ops->waiting(store, query->tenant, entity->type, entity->id, arena, &out->waiting, &first, err))
            return err->code;
        out->type = entity->type;
        out->id = entity->id;
        out->holder = row.holder;
        out->held_ms = row.held_ms;
        out->rev = row.rev;
        out->attributes = row.attributes;
        out->override = row.override;
    }
    query->count = claims->entity_count;
    return ERR_NONE;
}
