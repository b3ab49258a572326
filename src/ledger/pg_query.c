/* The commands that only read. */
#include "base/buf.h"
#include "ledger/pg_store.h"

#define GET_INCIDENTS_MAX 16
#define TOKENS_MAX        100000
/* Sorts after every id. */
#define LAST_ID "~"

/* ---- one operation ---- */

static enum err_code read_incidents_of(struct pg *pg, struct ledger_request *request)
{
    struct ledger_get *get = &request->get;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query query;
    pg_query(&query, pg, PG_INCIDENTS_OF);
    pg_put_text(&query, get->operation);
    pg_put_int(&query, GET_INCIDENTS_MAX);
    if (pg_rows(&query, &rows, err))
        return err->code;
    size_t count = (size_t)PQntuples(rows);
    get->incidents = count ? arena_alloc(request->arena, count * sizeof *get->incidents) : NULL;
    for (size_t i = 0; i < count; i++) {
        struct pg_row row = pg_row(pg, rows, (int)i, request->arena);
        if (pg_take_record(&row, RECORD_INCIDENT, true, &get->incidents[i], sizeof *get->incidents, err))
            return err->code;
    }
    get->incident_count = count;
    return ERR_NONE;
}

/* tenant: whose, NULL = anybody's. */
static enum err_code read_operation(struct pg *pg, const char *tenant, const char *id, struct arena *arena,
                                    struct operation **out, struct err *err)
{
    const PGresult *rows;
    struct pg_query query;
    pg_query_in(&query, pg, PG_OPERATION_BY_ID, tenant);
    pg_put_text(&query, id);
    return pg_rows(&query, &rows, err) ? err->code : pg_take_operation(pg, rows, 0, arena, true, out, err);
}

enum err_code pg_get(struct pg *pg, struct ledger_request *request)
{
    struct ledger_get *get = &request->get;
    struct err *err = &request->err;
    const PGresult *stones;
    struct pg_query query;
    get->op = NULL;
    get->tombstone = NULL;
    get->incidents = NULL;
    get->incident_count = 0;
    if (read_operation(pg, get->tenant, get->operation, request->arena, &get->op, err))
        return err->code;
    if (!get->op) {
        pg_query(&query, pg, PG_TOMBSTONE_BY_ID);
        pg_put_text(&query, get->operation);
        if (pg_rows(&query, &stones, err) || pg_take_tombstone(pg, stones, request->arena, &get->tombstone, err))
            return err->code;
    }
    const char *tenant = get->op ? get->op->tenant : get->tombstone ? get->tombstone->tenant : NULL;
    if (!tenant || (get->tenant && !text_equal(get->tenant, tenant))) {
        get->op = NULL;
        get->tombstone = NULL;
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", get->operation);
    }
    return read_incidents_of(pg, request);
}

enum err_code pg_get_by_key(struct pg *pg, struct ledger_request *request)
{
    struct ledger_get_by_key *get = &request->get_by_key;
    struct err *err = &request->err;
    if (pg_answers_by_key(pg, request->arena, &get->key_hash, get->tenant, get->tool, &get->op, &get->tombstone, err))
        return err->code;
    if (!get->op && !get->tombstone)
        return err_set(err, ERR_NOT_FOUND, "%s has no operation under this key", get->tool);
    return ERR_NONE;
}

/* ---- lists ---- */

enum list_kind { LIST_ALL, LIST_RUN, LIST_DOUBT, LIST_APPROVAL };

static enum list_kind kind_of(const struct ledger_list *list)
{
    if (list->run)
        return LIST_RUN;
    if (list->states == 1u << STATE_UNKNOWN_OUTCOME)
        return LIST_DOUBT;
    return list->reason == REASON_AWAITING_APPROVAL ? LIST_APPROVAL : LIST_ALL;
}

static enum pg_statement list_statement(enum pg_statement first, const struct ledger_list *list)
{
    return (enum pg_statement)((int)first + 2 * (int)kind_of(list) + list->oldest_first);
}

static const char *list_start(const struct ledger_list *list)
{
    return list->before ? list->before : list->oldest_first ? "" : LAST_ID;
}

/* "{planned,dispatched}", or NULL for all. */
static const char *states_text(struct arena *arena, uint32_t states)
{
    struct buf text;
    if (!states)
        return NULL;
    buf_init(&text, 0);
    for (int state = 0; state < STATE_COUNT; state++)
        if (states & 1u << state)
            buf_printf(&text, "%c%s", text.n ? ',' : '{', state_name((enum state)state));
    buf_add_char(&text, '}');
    const char *kept = arena_copy_text(arena, text.p);
    buf_release(&text);
    return kept;
}

/* Fewer than asked for were among the rows that were looked at: whether there are rows behind those. */
static enum err_code list_end(struct pg *pg, const struct ledger_list *list, struct arena *arena, const char **next,
                              struct err *err)
{
    const PGresult *rows;
    struct pg_query query;
    pg_query(&query, pg, list_statement(PG_LIST_END_DOWN, list));
    pg_put_text(&query, list_start(list));
    pg_put_int(&query, LEDGER_SCAN_MAX);
    for (int unused = 3; unused <= 6; unused++)
        pg_put_text(&query, NULL);
    pg_put_text(&query, list->run);
    if (pg_rows(&query, &rows, err))
        return err->code;
    struct pg_row row = pg_row(pg, rows, 0, arena);
    if (PQntuples(rows) == 2)
        *next = pg_take_text(&row);
    return ERR_NONE;
}

static enum err_code list_rows(struct pg *pg, const struct ledger_list *list, const PGresult **rows, struct err *err)
{
    struct pg_query query;
    pg_query(&query, pg, list_statement(PG_LIST_DOWN, list));
    pg_put_text(&query, list_start(list));
    pg_put_int(&query, LEDGER_SCAN_MAX);
    pg_put_int(&query, list->sharing ? LEDGER_SCAN_MAX : (int64_t)list->limit + 1); /* the rest is looked at here */
    pg_put_text(&query, list->tenant);
    pg_put_text(&query, list->tool);
    pg_put_text(&query, list->principal);
    pg_put_text(&query, list->run);
    pg_put_text(&query, states_text(&pg->scratch, list->states));
    pg_put_text(&query, list->reason == REASON_NONE ? NULL : reason_name(list->reason));
    pg_put_int(&query, list->with_payload);
    pg_put_int(&query, list->sharing != NULL);
    return pg_rows(&query, rows, err);
}

enum err_code pg_list(struct pg *pg, struct ledger_request *request)
{
    struct ledger_list *list = &request->list;
    struct err *err = &request->err;
    const PGresult *rows;
    list->count = 0;
    list->next = NULL;
    if (list->limit > LEDGER_LIST_MAX)
        list->limit = LEDGER_LIST_MAX;
    list->ops = arena_alloc(request->arena, (list->limit + 1) * sizeof *list->ops);
    if (list_rows(pg, list, &rows, err))
        return err->code;
    int found = PQntuples(rows), seen = 0;
    while (seen < found && list->count < list->limit) {
        struct operation *op;
        if (pg_take_operation(pg, rows, seen++, request->arena, true, &op, err))
            return err->code;
        if (!list->sharing || claims_share_entity(op->claims, list->sharing))
            list->ops[list->count++] = op;
    }
    if (seen < found) /* there is more behind what we looked at */
        list->next = list->count ? list->ops[list->count - 1]->id : list_start(list);
    else if (list_end(pg, list, request->arena, &list->next, err))
        return err->code;
    return ERR_NONE;
}

/* ---- history ---- */

/* What the operation's own row says about its beginning. */
struct beginning {
    const char *tenant;
    bool has_event, has_attempt;
    struct event event;
    struct attempt attempt;
};

static enum err_code read_beginning(struct pg *pg, const char *operation, struct arena *arena, struct beginning *out,
                                    struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_BEGINNING);
    pg_put_text(&query, operation);
    if (pg_rows(&query, &result, err))
        return err->code;
    if (PQntuples(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", operation);
    struct pg_row row = pg_row(pg, result, 0, arena);
    *out = (struct beginning){.tenant = pg_take_text(&row)};
    out->has_event = !pg_take_null(&row);
    if (out->has_event) {
        out->event.cause = CAUSE_ADMITTED;
        out->event.from = out->event.to = (enum state)pg_take_name(&row, NAME_STATE);
        out->event.reason = (enum reason)pg_take_name(&row, NAME_REASON);
    }
    if (row.strange)
        return pg_strange(pg, row.strange, err);
    row.column = 3;
    out->event.actor = pg_take_text(&row);
    int64_t created_ms = out->event.at_ms = pg_take_int(&row);
    out->attempt =
        (struct attempt){.number = 1, .kind = ATTEMPT_CALL, .outcome = OUTCOME_OPEN, .started_ms = created_ms};
    out->has_attempt = !pg_take_null(&row);
    if (out->has_attempt)
        pg_take_id(&row, out->attempt.id);
    out->event.attempt = out->has_attempt;
    return ERR_NONE;
}

static enum err_code read_lines(struct pg *pg, enum pg_statement which, const char *tenant, const char *operation,
                                int max, const PGresult **rows, struct err *err)
{
    struct pg_query query;
    pg_query(&query, pg, which);
    pg_put_text(&query, tenant);
    pg_put_text(&query, operation);
    pg_put_int(&query, max);
    return pg_rows(&query, rows, err);
}

/* The newest ones are read, newest first; the answer is oldest first. */
enum err_code pg_events(struct pg *pg, struct ledger_request *request)
{
    struct ledger_events *out = &request->events;
    struct err *err = &request->err;
    struct beginning beginning;
    const PGresult *rows;
    out->count = 0;
    out->events = NULL;
    if (read_beginning(pg, out->operation, request->arena, &beginning, err) ||
        read_lines(pg, PG_EVENTS, beginning.tenant, out->operation, LEDGER_HISTORY_MAX, &rows, err))
        return err->code;
    size_t lines = (size_t)PQntuples(rows);
    out->events = arena_alloc(request->arena, (lines + 1) * sizeof *out->events);
    if (beginning.has_event && lines < LEDGER_HISTORY_MAX)
        out->events[out->count++] = beginning.event;
    while (lines > 0) {
        struct pg_row row = pg_row(pg, rows, (int)--lines, request->arena);
        struct event *event = &out->events[out->count++];
        if (pg_take_record(&row, RECORD_EVENT, true, event, sizeof *event, err))
            return err->code;
    }
    return ERR_NONE;
}

/* Of each attempt the newest line counts. */
enum err_code pg_attempts(struct pg *pg, struct ledger_request *request)
{
    struct ledger_attempts *out = &request->attempts;
    struct err *err = &request->err;
    struct beginning beginning;
    const PGresult *rows;
    out->count = 0;
    out->attempts = NULL;
    if (read_beginning(pg, out->operation, request->arena, &beginning, err) ||
        read_lines(pg, PG_ATTEMPTS, beginning.tenant, out->operation, 2 * LEDGER_HISTORY_MAX, &rows, err))
        return err->code;
    struct attempt *all = arena_alloc(request->arena, (LEDGER_HISTORY_MAX + 1) * sizeof *all);
    size_t count = 0, lines = (size_t)PQntuples(rows);
    for (size_t i = 0; i < lines && count < LEDGER_HISTORY_MAX; i++) {
        struct pg_row row = pg_row(pg, rows, (int)i, request->arena);
        if (pg_take_record(&row, RECORD_ATTEMPT, true, &all[count], sizeof *all, err))
            return err->code;
        count += !attempts_have(all, count, all[count].id);
    }
    if (beginning.has_attempt && count < LEDGER_HISTORY_MAX && !attempts_have(all, count, beginning.attempt.id))
        all[count++] = beginning.attempt;
    attempts_sort(all, count);
    out->attempts = all;
    out->count = count;
    return ERR_NONE;
}

/* ---- incidents ---- */

enum err_code pg_incidents(struct pg *pg, struct ledger_request *request)
{
    struct ledger_incidents *out = &request->incidents;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query query;
    out->count = 0;
    out->next = NULL;
    if (out->limit > LEDGER_LIST_MAX)
        out->limit = LEDGER_LIST_MAX;
    out->incidents = arena_alloc(request->arena, (out->limit + 1) * sizeof *out->incidents);
    pg_query(&query, pg, PG_INCIDENTS);
    pg_put_text(&query, out->before ? out->before : LAST_ID);
    pg_put_int(&query, (int64_t)out->limit + 1);
    pg_put_text(&query, out->tenant);
    pg_put_int(&query, out->open_only);
    if (pg_rows(&query, &rows, err))
        return err->code;
    size_t found = (size_t)PQntuples(rows);
    while (out->count < found && out->count < out->limit) {
        struct pg_row row = pg_row(pg, rows, (int)out->count, request->arena);
        struct incident *incident = &out->incidents[out->count];
        if (pg_take_record(&row, RECORD_INCIDENT, true, incident, sizeof *incident, err))
            return err->code;
        out->count++;
    }
    if (found > out->limit && out->count > 0)
        out->next = out->incidents[out->count - 1].id;
    return ERR_NONE;
}

/* ---- tokens ---- */

enum err_code pg_token_find(struct pg *pg, struct ledger_request *request)
{
    struct token *token = &request->token.token;
    struct err *err = &request->err;
    struct token found;
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_TOKEN_BY_HASH);
    pg_put_digest(&query, &token->secret_hash);
    if (pg_rows(&query, &result, err))
        return err->code;
    if (PQntuples(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such token");
    struct pg_row row = pg_row(pg, result, 0, request->arena);
    if (pg_take_record(&row, RECORD_TOKEN, true, &found, sizeof found, err) == 0)
        *token = found;
    return err->code;
}

enum err_code pg_token_list(struct pg *pg, struct ledger_request *request)
{
    struct ledger_token_list *out = &request->token_list;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query query;
    out->tokens = NULL;
    out->count = 0;
    pg_query(&query, pg, PG_TOKENS);
    pg_put_int(&query, TOKENS_MAX);
    if (pg_rows(&query, &rows, err))
        return err->code;
    size_t count = (size_t)PQntuples(rows);
    out->tokens = arena_alloc(request->arena, (count + 1) * sizeof *out->tokens);
    for (; out->count < count; out->count++) {
        struct pg_row row = pg_row(pg, rows, (int)out->count, request->arena);
        if (pg_take_record(&row, RECORD_TOKEN, true, &out->tokens[out->count], sizeof *out->tokens, err))
            return err->code;
    }
    return ERR_NONE;
}

/* ---- numbers ---- */

static enum err_code read_number(struct pg *pg, enum pg_statement which, int64_t *out, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, which);
    if (pg_rows(&query, &result, err))
        return err->code;
    struct pg_row row = pg_row(pg, result, 0, &pg->scratch);
    *out = PQntuples(result) == 0 || pg_take_null(&row) ? 0 : pg_take_int(&row);
    return ERR_NONE;
}

static enum err_code read_pair(struct pg *pg, enum pg_statement which, int64_t *first, int64_t *second, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, which);
    if (pg_rows(&query, &result, err))
        return err->code;
    struct pg_row row = pg_row(pg, result, 0, &pg->scratch);
    *first = pg_take_int(&row);
    *second = pg_take_null(&row) ? 0 : pg_take_int(&row);
    return ERR_NONE;
}

/* commits and commands are added by pg.c, which counts them. */
enum err_code pg_stats(struct pg *pg, struct ledger_request *request)
{
    struct ledger_stats *stats = &request->stats;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query query;
    *stats = (struct ledger_stats){0};
    pg_query(&query, pg, PG_COUNTERS);
    if (pg_rows(&query, &rows, err))
        return err->code;
    for (int i = 0; i < PQntuples(rows); i++) {
        struct pg_row row = pg_row(pg, rows, i, &pg->scratch);
        int state = pg_take_name(&row, NAME_STATE);
        if (state >= 0)
            stats->by_state[state] = pg_take_int(&row);
    }
    for (int state = 0; state < STATE_COUNT; state++) /* what this batch has done so far */
        stats->by_state[state] += pg->moved[state];
    if (read_number(pg, PG_OLDEST_UNKNOWN, &stats->oldest_unknown_ms, err) ||
        read_number(pg, PG_OPEN_INCIDENTS, &stats->open_incidents, err) ||
        read_pair(pg, PG_APPROVALS_WAITING, &stats->approvals_waiting, &stats->oldest_approval_ms, err) ||
        read_pair(pg, PG_CLAIMS_COUNT, &stats->entities_held, &stats->entities_waiting, err))
        return err->code;
    return read_number(pg, PG_BYTES, &stats->file_bytes, err);
}
