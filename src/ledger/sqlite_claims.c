/* Entities, windows and budgets in SQLite: rows of claim_store.h, and the commands about them. */
#include "ledger/claim_store.h"
#include "ledger/sqlite_store.h"

#include <stddef.h>

struct sqlite_claims {
    struct claim_store base;
    struct store *store;
};

static struct store *store_of(struct claim_store *base)
{
    return ((struct sqlite_claims *)base)->store;
}

static const char *column_text(sqlite3_stmt *row, int column, struct arena *arena)
{
    return arena_copy_text(arena, (const char *)sqlite3_column_text(row, column));
}

static struct str column_str(sqlite3_stmt *row, int column, struct arena *arena)
{
    return str_of(column_text(row, column, arena));
}

static void bind_str(sqlite3_stmt *statement, int column, struct str text)
{
    sqlite3_bind_text64(statement, column, text.p, text.n, SQLITE_STATIC, SQLITE_UTF8);
}

/* A statement whose first parameters are these texts. */
static sqlite3_stmt *prepared(struct store *store, enum statement which, const char *const *texts, int count,
                              struct err *err)
{
    sqlite3_stmt *statement = store_prepare(store, which, err);
    for (int i = 0; statement && i < count; i++)
        bind_text(statement, i + 1, texts[i]);
    return statement;
}

/* ---- entities ---- */

static void read_entity(sqlite3_stmt *row, int column, struct arena *arena, struct entity_row *out)
{
    *out = (struct entity_row){
        .holder = column_text(row, column, arena),
        .held_ms = sqlite3_column_int64(row, column + 1),
        .rev = sqlite3_column_int64(row, column + 2),
        .attributes = column_str(row, column + 3, arena),
        .override = column_str(row, column + 4, arena),
    };
}

static enum err_code entity(struct claim_store *base, const char *tenant, const char *type, const char *id,
                            struct arena *arena, struct entity_row *out, struct err *err)
{
    struct store *store = store_of(base);
    const char *const key[] = {tenant, type, id};
    bool found;
    sqlite3_stmt *row = prepared(store, SQL_ENTITY, key, 3, err);
    *out = (struct entity_row){0};
    if (!row || store_step(store, row, &found, err) || !found)
        return err->code;
    read_entity(row, 0, arena, out);
    sqlite3_reset(row);
    return ERR_NONE;
}

static enum err_code set_entity(struct claim_store *base, const char *tenant, const char *type, const char *id,
                                const struct entity_row *row, struct err *err)
{
    struct store *store = store_of(base);
    const char *const key[] = {tenant, type, id};
    bool keep = row->holder || row->rev > 0 || row->override.p;
    sqlite3_stmt *write = prepared(store, keep ? SQL_SET_ENTITY : SQL_DELETE_ENTITY, key, 3, err);
    if (!write)
        return err->code;
    if (keep) {
        bind_text(write, 4, row->holder);
        sqlite3_bind_int64(write, 5, row->held_ms);
        sqlite3_bind_int64(write, 6, row->rev);
        bind_str(write, 7, row->attributes);
        bind_str(write, 8, row->override);
    }
    return store_run(store, write, err);
}

/* ---- queues ---- */

static enum err_code waiting(struct claim_store *base, const char *tenant, const char *type, const char *id,
                             struct arena *arena, size_t *count, const char **first, struct err *err)
{
    struct store *store = store_of(base);
    const char *const key[] = {tenant, type, id};
    bool found;
    sqlite3_stmt *rows = prepared(store, SQL_WAITING, key, 3, err);
    *count = 0;
    *first = NULL;
    if (!rows)
        return err->code;
    sqlite3_bind_int(rows, 4, CLAIMS_WAITERS_MAX);
    while (store_step(store, rows, &found, err) == 0 && found)
        if ((*count)++ == 0)
            *first = column_text(rows, 0, arena);
    return err->code;
}

static enum err_code wait_last(struct claim_store *base, int64_t *ticket, struct err *err)
{
    struct store *store = store_of(base);
    bool found;
    sqlite3_stmt *row = store_prepare(store, SQL_WAIT_LAST, err);
    *ticket = 0;
    if (!row || store_step(store, row, &found, err) || !found)
        return err->code;
    *ticket = sqlite3_column_int64(row, 0);
    sqlite3_reset(row);
    return ERR_NONE;
}

static enum err_code wait_add(struct claim_store *base, const char *tenant, const char *type, const char *id,
                              const char *operation, int64_t ticket, struct err *err)
{
    struct store *store = store_of(base);
    const char *const texts[] = {tenant, type, id, operation};
    sqlite3_stmt *insert = prepared(store, SQL_WAIT_ADD, texts, 4, err);
    if (!insert)
        return err->code;
    sqlite3_bind_int64(insert, 5, ticket);
    return store_run(store, insert, err);
}

static enum err_code waits_of(struct claim_store *base, const char *operation, struct arena *arena, struct claims *out,
                              struct err *err)
{
    struct store *store = store_of(base);
    bool found;
    sqlite3_stmt *rows = prepared(store, SQL_WAITS_OF, &operation, 1, err);
    out->entity_count = 0;
    if (!rows)
        return err->code;
    while (out->entity_count < CLAIMS_ENTITIES_MAX && store_step(store, rows, &found, err) == 0 && found)
        out->entities[out->entity_count++] = (struct claim_entity){
            .type = column_text(rows, 0, arena), .id = column_text(rows, 1, arena), .queue = true, .seen_rev = -1};
    sqlite3_reset(rows);
    return err->code;
}

static enum err_code wait_remove(struct claim_store *base, const char *operation, struct err *err)
{
    struct store *store = store_of(base);
    sqlite3_stmt *statement = prepared(store, SQL_WAIT_REMOVE, &operation, 1, err);
    return statement ? store_run(store, statement, err) : err->code;
}

static enum err_code wake(struct claim_store *base, const char *operation, int64_t at_ms, struct err *err)
{
    struct store *store = store_of(base);
    sqlite3_stmt *update = store_prepare(store, SQL_WAKE, err);
    if (!update)
        return err->code;
    bind_id(update, operation);
    sqlite3_bind_int64(update, 3, at_ms);
    return store_run(store, update, err);
}

/* ---- windows ---- */

static enum err_code window(struct claim_store *base, const char *tenant, const char *key, int64_t now_ms,
                            struct arena *arena, const char **operation, int64_t *at_ms, int64_t *until_ms,
                            struct err *err)
{
    struct store *store = store_of(base);
    const char *const texts[] = {tenant, key};
    bool found;
    sqlite3_stmt *row = prepared(store, SQL_WINDOW, texts, 2, err);
    *operation = NULL;
    if (!row)
        return err->code;
    sqlite3_bind_int64(row, 3, now_ms);
    if (store_step(store, row, &found, err) || !found)
        return err->code;
    *operation = column_text(row, 0, arena);
    *at_ms = sqlite3_column_int64(row, 1);
    *until_ms = sqlite3_column_int64(row, 2);
    sqlite3_reset(row);
    return ERR_NONE;
}

static enum err_code set_window(struct claim_store *base, const char *tenant, const char *key, const char *operation,
                                int64_t at_ms, int64_t until_ms, struct err *err)
{
    struct store *store = store_of(base);
    const char *const texts[] = {tenant, key, operation};
    sqlite3_stmt *insert = prepared(store, SQL_SET_WINDOW, texts, 3, err);
    if (!insert)
        return err->code;
    sqlite3_bind_int64(insert, 4, at_ms);
    sqlite3_bind_int64(insert, 5, until_ms);
    return store_run(store, insert, err);
}

static enum err_code drop_window(struct claim_store *base, const char *tenant, const char *key, const char *operation,
                                 struct err *err)
{
    struct store *store = store_of(base);
    const char *const texts[] = {tenant, key, operation};
    sqlite3_stmt *statement = prepared(store, SQL_DROP_WINDOW, texts, 3, err);
    return statement ? store_run(store, statement, err) : err->code;
}

/* ---- budgets ---- */

static enum err_code slices(struct claim_store *base, const char *tenant, const struct claim_debit *debit,
                            int64_t after_ms, struct arena *arena, struct budget_slice **out, size_t *count,
                            struct err *err)
{
    struct store *store = store_of(base);
    const char *const texts[] = {tenant, debit->budget, debit->subject, debit->key};
    size_t room = CLAIMS_SLICES + 4;
    bool found;
    sqlite3_stmt *rows = prepared(store, SQL_SLICES, texts, 4, err);
    *out = arena_alloc(arena, room * sizeof **out);
    *count = 0;
    if (!rows)
        return err->code;
    sqlite3_bind_int64(rows, 5, after_ms);
    while (store_step(store, rows, &found, err) == 0 && found) {
        if (*count == room) { /* the budget's period was changed, or clocks were set back */
            struct budget_slice *larger = arena_alloc(arena, 2 * room * sizeof *larger);
            memcpy(larger, *out, room * sizeof *larger);
            *out = larger;
            room *= 2;
        }
        struct budget_slice *slice = &(*out)[(*count)++];
        slice->start_ms = sqlite3_column_int64(rows, 0);
        slice->until_ms = sqlite3_column_int64(rows, 1);
        if (decimal_read(str_of((const char *)sqlite3_column_text(rows, 2)), &slice->amount, NULL)) {
            sqlite3_reset(rows);
            return store_strange(store, "sum of a budget", err);
        }
    }
    return err->code;
}

static enum err_code set_slice(struct claim_store *base, const char *tenant, const struct claim_debit *debit,
                               const struct budget_slice *slice, struct err *err)
{
    struct store *store = store_of(base);
    const char *const texts[] = {tenant, debit->budget, debit->subject, debit->key};
    char amount[DECIMAL_TEXT_BYTES];
    bool keep = slice->amount.units != 0;
    sqlite3_stmt *write = prepared(store, keep ? SQL_SET_SLICE : SQL_DELETE_SLICE, texts, 4, err);
    if (!write)
        return err->code;
    sqlite3_bind_int64(write, 5, slice->start_ms);
    sqlite3_bind_int64(write, 6, slice->until_ms);
    if (keep) {
        decimal_write(slice->amount, amount);
        bind_text(write, 7, amount);
        sqlite3_bind_int64(write, 8, slice->until_ms + debit->per_ms);
    }
    return store_run(store, write, err);
}

static enum err_code prune(struct claim_store *base, int64_t before_ms, struct err *err)
{
    struct store *store = store_of(base);
    static const enum statement which[] = {SQL_PRUNE_WINDOWS, SQL_PRUNE_SLICES};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        sqlite3_stmt *statement = store_prepare(store, which[i], err);
        if (!statement)
            return err->code;
        sqlite3_bind_int64(statement, 1, before_ms);
        if (store_run(store, statement, err))
            return err->code;
    }
    return ERR_NONE;
}

static const struct claim_store_ops ops = {
    entity, set_entity, waiting,    wait_last,   wait_add, waits_of,  wait_remove,
    wake,   window,     set_window, drop_window, slices,   set_slice, prune,
};

/* ---- for the other commands ---- */

/* What was written before must not stay. */
static enum err_code undone(struct store *store, enum err_code code)
{
    if (code && store->fault == FAULT_NONE)
        store->fault = FAULT_COMMAND;
    return code;
}

enum err_code store_claim_facts(struct store *store, const struct admission *admission, struct claims_facts *out,
                                struct err *err)
{
    struct sqlite_claims claims = {{&ops, 0}, store};
    return claim_facts(&claims.base, admission, &store->scratch, out, err);
}

enum err_code store_claim_admitted(struct store *store, const struct admission *admission, bool waits, struct err *err)
{
    struct sqlite_claims claims = {{&ops, 0}, store};
    return undone(store, claim_admitted(&claims.base, admission, waits, &store->scratch, err));
}

enum err_code store_claim_unchanged(struct store *store, const struct ledger_transition *change, struct err *err)
{
    struct sqlite_claims claims = {{&ops, 0}, store};
    return claim_unchanged(&claims.base, change->op, change->seen, &store->scratch, err);
}

enum err_code store_claim_moved(struct store *store, enum state from, struct ledger_transition *change, struct err *err)
{
    struct sqlite_claims claims = {{&ops, 0}, store};
    enum err_code code = undone(store, claim_moved(&claims.base, from, change->op, &store->scratch, err));
    change->wake_ms = claims.base.woken_ms;
    return code;
}

/* ---- commands of their own ---- */

static enum err_code list_entities(struct store *store, struct ledger_request *request)
{
    struct ledger_entities *query = &request->entities;
    struct err *err = &request->err;
    struct sqlite_claims claims = {{&ops, 0}, store};
    size_t limit = query->limit < LEDGER_LIST_MAX ? query->limit : LEDGER_LIST_MAX;
    const char *const texts[] = {query->tenant, query->type, query->after_type ? query->after_type : "",
                                 query->after_id ? query->after_id : ""};
    bool found;
    sqlite3_stmt *rows = prepared(store, query->all ? SQL_ENTITIES : SQL_ENTITIES_BUSY, texts, 4, err);
    query->entities = arena_zero(request->arena, (limit + 1) * sizeof *query->entities);
    query->count = 0;
    if (!rows)
        return err->code;
    sqlite3_bind_int64(rows, 5, (int64_t)limit);
    while (query->count < limit && store_step(store, rows, &found, err) == 0 && found) {
        struct ledger_entity *out = &query->entities[query->count++];
        struct entity_row row;
        read_entity(rows, 2, request->arena, &row);
        *out = (struct ledger_entity){
            .type = column_text(rows, 0, request->arena),
            .id = column_text(rows, 1, request->arena),
            .holder = row.holder,
            .held_ms = row.held_ms,
            .rev = row.rev,
            .attributes = row.attributes,
            .override = row.override,
        };
    }
    sqlite3_reset(rows);
    for (size_t i = 0; err->code == 0 && i < query->count; i++) {
        const char *first;
        waiting(&claims.base, query->tenant, query->entities[i].type, query->entities[i].id, &store->scratch,
                &query->entities[i].waiting, &first, err);
    }
    return err->code;
}

enum err_code store_entities(struct store *store, struct ledger_request *request)
{
    struct sqlite_claims claims = {{&ops, 0}, store};
    if (request->entities.of)
        return claim_entities_named(&claims.base, &request->entities, request->arena, &request->err);
    return list_entities(store, request);
}

enum err_code store_entity_release(struct store *store, struct ledger_request *request)
{
    struct sqlite_claims claims = {{&ops, 0}, store};
    if (store_may_write(store, &request->err))
        return request->err.code;
    return claim_release(&claims.base, &request->entity_release, request->arena, &request->err);
}

enum err_code store_budgets(struct store *store, struct ledger_request *request)
{
    struct ledger_budgets *query = &request->budgets;
    struct err *err = &request->err;
    size_t room = 64;
    bool found;
    sqlite3_stmt *rows = prepared(store, SQL_ALL_SLICES, &query->tenant, 1, err);
    query->slices = arena_alloc(request->arena, room * sizeof *query->slices);
    query->count = 0;
    if (!rows)
        return err->code;
    sqlite3_bind_int(rows, 2, LEDGER_SCAN_MAX);
    while (store_step(store, rows, &found, err) == 0 && found) {
        if (query->count == room) {
            struct ledger_budget_slice *larger = arena_alloc(request->arena, 2 * room * sizeof *larger);
            memcpy(larger, query->slices, room * sizeof *larger);
            query->slices = larger;
            room *= 2;
        }
        struct ledger_budget_slice *slice = &query->slices[query->count++];
        slice->budget = column_text(rows, 0, request->arena);
        slice->subject = column_text(rows, 1, request->arena);
        slice->key = column_text(rows, 2, request->arena);
        slice->start_ms = sqlite3_column_int64(rows, 3);
        slice->until_ms = sqlite3_column_int64(rows, 4);
        if (decimal_read(str_of((const char *)sqlite3_column_text(rows, 5)), &slice->amount, NULL)) {
            sqlite3_reset(rows);
            return store_strange(store, "sum of a budget", err);
        }
    }
    return err->code;
}
