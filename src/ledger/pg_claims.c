/* Entities, windows and budgets in PostgreSQL: rows of claim_store.h, and the commands about them. Whoever works on
 * them holds the tenant's advisory lock (pg_locks_of). */
#include "ledger/claim_store.h"
#include "ledger/pg_store.h"

struct pg_claims {
    struct claim_store base;
    struct pg *pg;
    const char *tenant;
};

static struct pg *pg_of(struct claim_store *base)
{
    return ((struct pg_claims *)base)->pg;
}

/* A statement whose first parameters are these texts. */
static void start(struct pg_query *query, struct pg *pg, enum pg_statement which, const char *const *texts, int count)
{
    pg_query(query, pg, which);
    for (int i = 0; i < count; i++)
        pg_put_text(query, texts[i]);
}

/* ---- entities ---- */

static void take_entity(struct pg_row *row, struct entity_row *out)
{
    out->holder = pg_take_text(row);
    out->held_ms = pg_take_int(row);
    out->rev = pg_take_int(row);
    out->attributes = pg_take_str(row);
    out->override = pg_take_str(row);
}

static enum err_code entity(struct claim_store *base, const char *tenant, const char *type, const char *id,
                            struct arena *arena, struct entity_row *out, struct err *err)
{
    const char *const key[] = {tenant, type, id};
    const PGresult *result;
    struct pg_query query;
    start(&query, pg_of(base), PG_ENTITY, key, 3);
    *out = (struct entity_row){0};
    if (pg_rows(&query, &result, err))
        return err->code;
    struct pg_row row = pg_row(pg_of(base), result, 0, arena);
    if (PQntuples(result) > 0)
        take_entity(&row, out);
    return ERR_NONE;
}

static enum err_code set_entity(struct claim_store *base, const char *tenant, const char *type, const char *id,
                                const struct entity_row *row, struct err *err)
{
    const char *const key[] = {tenant, type, id};
    bool keep = row->holder || row->rev > 0 || row->override.p;
    struct pg_query query;
    start(&query, pg_of(base), keep ? PG_SET_ENTITY : PG_DELETE_ENTITY, key, 3);
    if (keep) {
        pg_put_text(&query, row->holder);
        pg_put_int(&query, row->held_ms);
        pg_put_int(&query, row->rev);
        pg_put_str(&query, row->attributes);
        pg_put_str(&query, row->override);
    }
    return pg_write(&query, err);
}

/* ---- queues ---- */

static enum err_code waiting(struct claim_store *base, const char *tenant, const char *type, const char *id,
                             struct arena *arena, size_t *count, const char **first, struct err *err)
{
    const char *const key[] = {tenant, type, id};
    const PGresult *rows;
    struct pg_query query;
    start(&query, pg_of(base), PG_WAITING, key, 3);
    pg_put_int(&query, CLAIMS_WAITERS_MAX);
    *first = NULL;
    *count = 0;
    if (pg_rows(&query, &rows, err))
        return err->code;
    struct pg_row row = pg_row(pg_of(base), rows, 0, arena);
    *count = (size_t)PQntuples(rows);
    if (*count > 0)
        *first = pg_take_text(&row);
    return ERR_NONE;
}

static enum err_code wait_last(struct claim_store *base, int64_t *ticket, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    start(&query, pg_of(base), PG_WAIT_LAST, &((struct pg_claims *)base)->tenant, 1);
    *ticket = 0;
    if (pg_rows(&query, &result, err))
        return err->code;
    struct pg_row row = pg_row(pg_of(base), result, 0, NULL);
    if (!pg_take_null(&row))
        *ticket = pg_take_int(&row);
    return ERR_NONE;
}

static enum err_code wait_add(struct claim_store *base, const char *tenant, const char *type, const char *id,
                              const char *operation, int64_t ticket, struct err *err)
{
    const char *const texts[] = {tenant, type, id, operation};
    struct pg_query query;
    start(&query, pg_of(base), PG_WAIT_ADD, texts, 4);
    pg_put_int(&query, ticket);
    return pg_write(&query, err);
}

static enum err_code waits_of(struct claim_store *base, const char *operation, struct arena *arena, struct claims *out,
                              struct err *err)
{
    const PGresult *rows;
    struct pg_query query;
    start(&query, pg_of(base), PG_WAITS_OF, &operation, 1);
    out->entity_count = 0;
    if (pg_rows(&query, &rows, err))
        return err->code;
    for (int i = 0; i < PQntuples(rows) && out->entity_count < CLAIMS_ENTITIES_MAX; i++) {
        struct pg_row row = pg_row(pg_of(base), rows, i, arena);
        struct claim_entity *one = &out->entities[out->entity_count++];
        *one = (struct claim_entity){.queue = true, .seen_rev = -1};
        one->type = pg_take_text(&row);
        one->id = pg_take_text(&row);
    }
    return ERR_NONE;
}

static enum err_code wait_remove(struct claim_store *base, const char *operation, struct err *err)
{
    struct pg_query query;
    start(&query, pg_of(base), PG_WAIT_REMOVE, &operation, 1);
    return pg_write(&query, err);
}

static enum err_code wake(struct claim_store *base, const char *operation, int64_t at_ms, struct err *err)
{
    const char *const texts[] = {((struct pg_claims *)base)->tenant, operation};
    struct pg_query query;
    start(&query, pg_of(base), PG_WAKE, texts, 2);
    pg_put_moment(&query, at_ms);
    return pg_write(&query, err);
}

/* ---- windows ---- */

static enum err_code window(struct claim_store *base, const char *tenant, const char *key, int64_t now_ms,
                            struct arena *arena, const char **operation, int64_t *at_ms, int64_t *until_ms,
                            struct err *err)
{
    const char *const texts[] = {tenant, key};
    const PGresult *result;
    struct pg_query query;
    start(&query, pg_of(base), PG_WINDOW, texts, 2);
    pg_put_int(&query, now_ms);
    *operation = NULL;
    if (pg_rows(&query, &result, err) || PQntuples(result) == 0)
        return err->code;
    struct pg_row row = pg_row(pg_of(base), result, 0, arena);
    *operation = pg_take_text(&row);
    *at_ms = pg_take_int(&row);
    *until_ms = pg_take_int(&row);
    return ERR_NONE;
}

static enum err_code set_window(struct claim_store *base, const char *tenant, const char *key, const char *operation,
                                int64_t at_ms, int64_t until_ms, struct err *err)
{
    const char *const texts[] = {tenant, key, operation};
    struct pg_query query;
    start(&query, pg_of(base), PG_SET_WINDOW, texts, 3);
    pg_put_int(&query, at_ms);
    pg_put_int(&query, until_ms);
    return pg_write(&query, err);
}

static enum err_code drop_window(struct claim_store *base, const char *tenant, const char *key, const char *operation,
                                 struct err *err)
{
    const char *const texts[] = {tenant, key, operation};
    struct pg_query query;
    start(&query, pg_of(base), PG_DROP_WINDOW, texts, 3);
    return pg_write(&query, err);
}

/* ---- budgets ---- */

static enum err_code take_amount(struct pg_row *row, struct decimal *out, struct err *err)
{
    return decimal_read(pg_take_str(row), out, NULL) ? pg_strange(row->pg, "sum of a budget", err) : ERR_NONE;
}

static enum err_code slices(struct claim_store *base, const char *tenant, const struct claim_debit *debit,
                            int64_t after_ms, struct arena *arena, struct budget_slice **out, size_t *count,
                            struct err *err)
{
    const char *const texts[] = {tenant, debit->budget, debit->subject, debit->key};
    const PGresult *rows;
    struct pg_query query;
    start(&query, pg_of(base), PG_SLICES, texts, 4);
    pg_put_int(&query, after_ms);
    *count = 0;
    if (pg_rows(&query, &rows, err))
        return err->code;
    size_t found = (size_t)PQntuples(rows);
    *out = arena_alloc(arena, (found + 1) * sizeof **out);
    for (; *count < found; ++*count) {
        struct pg_row row = pg_row(pg_of(base), rows, (int)*count, arena);
        struct budget_slice *slice = &(*out)[*count];
        slice->start_ms = pg_take_int(&row);
        slice->until_ms = pg_take_int(&row);
        if (take_amount(&row, &slice->amount, err))
            return err->code;
    }
    return ERR_NONE;
}

static enum err_code set_slice(struct claim_store *base, const char *tenant, const struct claim_debit *debit,
                               const struct budget_slice *slice, struct err *err)
{
    const char *const texts[] = {tenant, debit->budget, debit->subject, debit->key};
    char amount[DECIMAL_TEXT_BYTES];
    bool keep = slice->amount.units != 0;
    struct pg_query query;
    start(&query, pg_of(base), keep ? PG_SET_SLICE : PG_DELETE_SLICE, texts, 4);
    pg_put_int(&query, slice->start_ms);
    pg_put_int(&query, slice->until_ms);
    if (keep) {
        decimal_write(slice->amount, amount);
        pg_put_text(&query, amount);
        pg_put_int(&query, slice->until_ms + debit->per_ms);
    }
    return pg_write(&query, err);
}

static enum err_code prune(struct claim_store *base, int64_t before_ms, struct err *err)
{
    static const enum pg_statement which[] = {PG_PRUNE_WINDOWS, PG_PRUNE_SLICES};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        struct pg_query query;
        pg_query(&query, pg_of(base), which[i]);
        pg_put_int(&query, before_ms);
        if (pg_write(&query, err))
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
static enum err_code undone(struct pg *pg, enum err_code code)
{
    if (code && pg->fault == PG_FINE)
        pg->fault = PG_COMMAND;
    return code;
}

enum err_code pg_claim_facts(struct pg *pg, const struct admission *admission, struct claims_facts *out,
                             struct err *err)
{
    struct pg_claims claims = {{&ops, 0}, pg, admission->op->tenant};
    return claim_facts(&claims.base, admission, &pg->scratch, out, err);
}

enum err_code pg_claim_admitted(struct pg *pg, const struct admission *admission, bool waits, struct err *err)
{
    struct pg_claims claims = {{&ops, 0}, pg, admission->op->tenant};
    return undone(pg, claim_admitted(&claims.base, admission, waits, &pg->scratch, err));
}

enum err_code pg_claim_unchanged(struct pg *pg, const struct ledger_transition *change, struct err *err)
{
    struct pg_claims claims = {{&ops, 0}, pg, change->op->tenant};
    return claim_unchanged(&claims.base, change->op, change->seen, &pg->scratch, err);
}

enum err_code pg_claim_moved(struct pg *pg, enum state from, struct ledger_transition *change, struct err *err)
{
    struct pg_claims claims = {{&ops, 0}, pg, change->op->tenant};
    enum err_code code = undone(pg, claim_moved(&claims.base, from, change->op, &pg->scratch, err));
    change->wake_ms = claims.base.woken_ms;
    return code;
}

/* ---- commands of their own ---- */

static enum err_code list_entities(struct pg *pg, struct ledger_request *request)
{
    struct ledger_entities *query = &request->entities;
    struct err *err = &request->err;
    size_t limit = query->limit < LEDGER_LIST_MAX ? query->limit : LEDGER_LIST_MAX;
    const char *const texts[] = {query->tenant, query->type, query->after_type ? query->after_type : "",
                                 query->after_id ? query->after_id : ""};
    const PGresult *rows;
    struct pg_query ask;
    start(&ask, pg, PG_ENTITIES, texts, 4);
    pg_put_int(&ask, (int64_t)limit);
    pg_put_int(&ask, query->all);
    query->count = 0;
    if (pg_rows(&ask, &rows, err))
        return err->code;
    size_t found = (size_t)PQntuples(rows);
    query->entities = arena_zero(request->arena, (found + 1) * sizeof *query->entities);
    for (; query->count < found; query->count++) {
        struct pg_row row = pg_row(pg, rows, (int)query->count, request->arena);
        struct ledger_entity *out = &query->entities[query->count];
        struct entity_row stored;
        out->type = pg_take_text(&row);
        out->id = pg_take_text(&row);
        take_entity(&row, &stored);
        out->holder = stored.holder;
        out->held_ms = stored.held_ms;
        out->rev = stored.rev;
        out->attributes = stored.attributes;
        out->override = stored.override;
        out->waiting = (size_t)pg_take_int(&row);
    }
    return ERR_NONE;
}

enum err_code pg_entities(struct pg *pg, struct ledger_request *request)
{
    struct pg_claims claims = {{&ops, 0}, pg, request->entities.tenant};
    if (request->entities.of)
        return claim_entities_named(&claims.base, &request->entities, request->arena, &request->err);
    return list_entities(pg, request);
}

enum err_code pg_entity_release(struct pg *pg, struct ledger_request *request)
{
    struct pg_claims claims = {{&ops, 0}, pg, request->entity_release.tenant};
    return claim_release(&claims.base, &request->entity_release, request->arena, &request->err);
}

enum err_code pg_budgets(struct pg *pg, struct ledger_request *request)
{
    struct ledger_budgets *query = &request->budgets;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query ask;
    start(&ask, pg, PG_ALL_SLICES, &query->tenant, 1);
    pg_put_int(&ask, LEDGER_SCAN_MAX);
    query->count = 0;
    if (pg_rows(&ask, &rows, err))
        return err->code;
    size_t found = (size_t)PQntuples(rows);
    query->slices = arena_alloc(request->arena, (found + 1) * sizeof *query->slices);
    for (; query->count < found; query->count++) {
        struct pg_row row = pg_row(pg, rows, (int)query->count, request->arena);
        struct ledger_budget_slice *slice = &query->slices[query->count];
        slice->budget = pg_take_text(&row);
        slice->subject = pg_take_text(&row);
        slice->key = pg_take_text(&row);
        slice->start_ms = pg_take_int(&row);
        slice->until_ms = pg_take_int(&row);
        if (take_amount(&row, &slice->amount, err))
            return err->code;
    }
    return ERR_NONE;
}
