/* The commands that only read. */
#include "ledger/sqlite_store.h"

#define GET_INCIDENTS_MAX 16
#define TOKENS_MAX        100000
/* Sorts after every id. */
#define LAST_ID "~"

/* ---- one operation ---- */

static enum err_code read_incidents_of(struct store *store, struct ledger_request *request)
{
    struct ledger_get *get = &request->get;
    struct err *err = &request->err;
    bool found;
    sqlite3_stmt *rows = store_prepare(store, SQL_INCIDENTS_OF, err);
    if (!rows)
        return err->code;
    bind_text(rows, 1, get->operation);
    sqlite3_bind_int(rows, 2, GET_INCIDENTS_MAX);
    while (store_step(store, rows, &found, err) == 0 && found) {
        if (!get->incidents)
            get->incidents = arena_alloc(request->arena, GET_INCIDENTS_MAX * sizeof *get->incidents);
        if (row_incident(store, rows, request->arena, &get->incidents[get->incident_count], err))
            break;
        get->incident_count++;
    }
    sqlite3_reset(rows);
    return err->code;
}

enum err_code store_get(struct store *store, struct ledger_request *request)
{
    struct ledger_get *get = &request->get;
    struct err *err = &request->err;
    get->op = NULL;
    get->tombstone = NULL;
    get->incidents = NULL;
    get->incident_count = 0;
    sqlite3_stmt *by_id = store_prepare(store, SQL_OPERATION_BY_ID, err);
    if (!by_id)
        return err->code;
    bind_id(by_id, get->operation);
    if (read_operation(store, by_id, request->arena, true, NULL, &get->op, err))
        return err->code;
    if (!get->op) {
        sqlite3_stmt *stone = store_prepare(store, SQL_TOMBSTONE_BY_ID, err);
        if (!stone)
            return err->code;
        bind_text(stone, 1, get->operation);
        if (read_tombstone(store, stone, request->arena, &get->tombstone, err))
            return err->code;
    }
    const char *tenant = get->op ? get->op->tenant : get->tombstone ? get->tombstone->tenant : NULL;
    if (!tenant || (get->tenant && !text_equal(get->tenant, tenant))) {
        get->op = NULL;
        get->tombstone = NULL;
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", get->operation);
    }
    return read_incidents_of(store, request);
}

enum err_code store_get_by_key(struct store *store, struct ledger_request *request)
{
    struct ledger_get_by_key *get = &request->get_by_key;
    struct err *err = &request->err;
    if (store_answers_by_key(store, request->arena, &get->key_hash, get->tenant, get->tool, &get->op, &get->tombstone,
                             err))
        return err->code;
    if (!get->op && !get->tombstone)
        return err_set(err, ERR_NOT_FOUND, "%s has no operation under this key", get->tool);
    return ERR_NONE;
}

/* ---- lists ---- */

/* Where the page begins: behind the row of `before`, or where that would be if it is gone. */
static enum err_code list_start(struct store *store, const struct ledger_list *list, int64_t *start, struct err *err)
{
    *start = list->oldest_first ? -1 : INT64_MAX;
    if (!list->before)
        return ERR_NONE;
    bool found;
    sqlite3_stmt *row = store_prepare(store, SQL_LIFE_BY_ID, err);
    if (!row)
        return err->code;
    bind_id(row, list->before);
    if (store_step(store, row, &found, err))
        return err->code;
    *start = found ? sqlite3_column_int64(row, 0) : operation_place(list->before);
    sqlite3_reset(row);
    return ERR_NONE;
}

static sqlite3_stmt *list_statement(struct store *store, const struct ledger_list *list, struct err *err)
{
    bool up = list->oldest_first;
    enum statement which = up ? SQL_LIST_UP : SQL_LIST_DOWN;
    if (list->run)
        which = up ? SQL_LIST_RUN_UP : SQL_LIST_RUN_DOWN;
    else if (list->states == 1u << STATE_UNKNOWN_OUTCOME)
        which = up ? SQL_LIST_IN_DOUBT_UP : SQL_LIST_IN_DOUBT_DOWN;
    else if (list->reason == REASON_AWAITING_APPROVAL)
        which = up ? SQL_LIST_APPROVAL_UP : SQL_LIST_APPROVAL_DOWN;
    int64_t start;
    sqlite3_stmt *rows = store_prepare(store, which, err);
    if (!rows || list_start(store, list, &start, err))
        return NULL;
    sqlite3_bind_int64(rows, 1, start);
    sqlite3_bind_int(rows, 2, LEDGER_SCAN_MAX + 1);
    if (list->run)
        bind_text(rows, 3, list->run);
    return rows;
}

static bool column_is(sqlite3_stmt *row, int column, const char *wanted)
{
    return !wanted || text_equal(wanted, (const char *)sqlite3_column_text(row, column));
}

/* Looks at the columns themselves: most rows that a filter passes over are never decoded. Positions of OPERATION_HEAD.
 */
static bool list_wants(struct store *store, const struct ledger_list *list, sqlite3_stmt *row)
{
    if (list->states) {
        int number = sqlite3_column_int(row, 6);
        int state = number >= 0 && number < NAME_VALUES_MAX ? store->names.value[NAME_STATE][number] : -1;
        if (state < 0 || !(list->states & 1u << state))
            return false;
    }
    if (list->reason != REASON_NONE && sqlite3_column_int(row, 7) != store->names.number[NAME_REASON][list->reason])
        return false;
    if (list->sharing && !claims_share_entity(str_of((const char *)sqlite3_column_text(row, 53)), list->sharing))
        return false;
    return column_is(row, 2, list->tenant) && column_is(row, 3, list->tool) && column_is(row, 4, list->principal);
}

enum err_code store_list(struct store *store, struct ledger_request *request)
{
    struct ledger_list *list = &request->list;
    struct err *err = &request->err;
    list->count = 0;
    list->next = NULL;
    if (list->limit > LEDGER_LIST_MAX)
        list->limit = LEDGER_LIST_MAX;
    list->ops = arena_alloc(request->arena, (list->limit + 1) * sizeof *list->ops);
    sqlite3_stmt *rows = list_statement(store, list, err);
    if (!rows)
        return err->code;
    char last[OPERATION_ID_SIZE] = "";
    bool found;
    for (size_t seen = 0; store_step(store, rows, &found, err) == 0 && found; seen++) {
        if (seen == LEDGER_SCAN_MAX || list->count == list->limit) { /* there is more behind what we looked at */
            list->next = arena_copy_text(request->arena, last);
            break;
        }
        const char *id = (const char *)sqlite3_column_text(rows, 1);
        strncpy(last, id ? id : "", sizeof last - 1);
        if (!list_wants(store, list, rows))
            continue;
        if (row_operation(store, rows, request->arena, list->with_payload, NULL, &list->ops[list->count], err))
            break;
        list->count++;
    }
    sqlite3_reset(rows);
    return err->code;
}

/* ---- history ---- */

/* What the operation's own row says about its beginning. */
struct beginning {
    int64_t n;
    bool has_event, has_attempt;
    struct event event;
    struct attempt attempt;
};

static int stored_value(struct store *store, enum name_kind kind, int number)
{
    int value = number >= 0 && number < NAME_VALUES_MAX ? store->names.value[kind][number] : -1;
    return value < 0 ? 0 : value;
}

static enum err_code read_beginning(struct store *store, const char *operation, struct arena *arena,
                                    struct beginning *out, struct err *err)
{
    bool found;
    sqlite3_stmt *row = store_prepare(store, SQL_ADMITTED_BY_ID, err);
    if (!row)
        return err->code;
    bind_id(row, operation);
    if (store_step(store, row, &found, err))
        return err->code;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", operation);
    *out = (struct beginning){.n = sqlite3_column_int64(row, 0)};
    out->has_event = sqlite3_column_type(row, 1) != SQLITE_NULL;
    out->has_attempt = sqlite3_column_type(row, 5) != SQLITE_NULL;
    int64_t created_ms = sqlite3_column_int64(row, 4);
    enum state state = (enum state)stored_value(store, NAME_STATE, sqlite3_column_int(row, 1));
    out->event = (struct event){
        .at_ms = created_ms,
        .cause = CAUSE_ADMITTED,
        .from = state,
        .to = state,
        .reason = (enum reason)stored_value(store, NAME_REASON, sqlite3_column_int(row, 2)),
        .actor = arena_copy_text(arena, (const char *)sqlite3_column_text(row, 3)),
        .attempt = out->has_attempt,
    };
    out->attempt =
        (struct attempt){.number = 1, .kind = ATTEMPT_CALL, .outcome = OUTCOME_OPEN, .started_ms = created_ms};
    const char *id = (const char *)sqlite3_column_text(row, 5);
    strncpy(out->attempt.id, id ? id : "", sizeof out->attempt.id - 1);
    sqlite3_reset(row);
    return ERR_NONE;
}

/* The newest ones are read, newest first; the answer is oldest first. */
enum err_code store_events(struct store *store, struct ledger_request *request)
{
    struct ledger_events *out = &request->events;
    struct err *err = &request->err;
    struct beginning beginning;
    bool found;
    out->count = 0;
    out->events = NULL;
    sqlite3_stmt *rows = store_prepare(store, SQL_EVENTS, err);
    if (!rows || read_beginning(store, out->operation, request->arena, &beginning, err))
        return err->code;
    struct event *all = arena_alloc(&store->scratch, LEDGER_HISTORY_MAX * sizeof *all);
    size_t count = 0;
    sqlite3_bind_int64(rows, 1, beginning.n);
    sqlite3_bind_int(rows, 2, LEDGER_HISTORY_MAX);
    while (store_step(store, rows, &found, err) == 0 && found) {
        if (row_event(store, rows, request->arena, &all[count], err))
            break;
        count++;
    }
    sqlite3_reset(rows);
    if (err->code)
        return err->code;
    if (beginning.has_event && count < LEDGER_HISTORY_MAX)
        all[count++] = beginning.event;
    out->events = arena_alloc(request->arena, (count + 1) * sizeof *all);
    while (count > 0)
        out->events[out->count++] = all[--count];
    return ERR_NONE;
}

/* Of each attempt the newest line counts. */
enum err_code store_attempts(struct store *store, struct ledger_request *request)
{
    struct ledger_attempts *out = &request->attempts;
    struct err *err = &request->err;
    struct beginning beginning;
    bool found;
    out->count = 0;
    out->attempts = NULL;
    sqlite3_stmt *rows = store_prepare(store, SQL_ATTEMPTS, err);
    if (!rows || read_beginning(store, out->operation, request->arena, &beginning, err))
        return err->code;
    struct attempt *all = arena_alloc(&store->scratch, LEDGER_HISTORY_MAX * sizeof *all);
    size_t count = 0;
    sqlite3_bind_int64(rows, 1, beginning.n);
    sqlite3_bind_int(rows, 2, 2 * LEDGER_HISTORY_MAX); /* begun and ended */
    while (count < LEDGER_HISTORY_MAX && store_step(store, rows, &found, err) == 0 && found) {
        if (row_attempt(store, rows, request->arena, &all[count], err))
            break;
        count += !attempts_have(all, count, all[count].id);
    }
    sqlite3_reset(rows);
    if (err->code)
        return err->code;
    if (beginning.has_attempt && count < LEDGER_HISTORY_MAX && !attempts_have(all, count, beginning.attempt.id))
        all[count++] = beginning.attempt;
    attempts_sort(all, count);
    out->attempts = arena_alloc(request->arena, (count + 1) * sizeof *all);
    memcpy(out->attempts, all, count * sizeof *all);
    out->count = count;
    return ERR_NONE;
}

/* ---- incidents ---- */

enum err_code store_incidents(struct store *store, struct ledger_request *request)
{
    struct ledger_incidents *out = &request->incidents;
    struct err *err = &request->err;
    out->count = 0;
    out->next = NULL;
    if (out->limit > LEDGER_LIST_MAX)
        out->limit = LEDGER_LIST_MAX;
    out->incidents = arena_alloc(request->arena, (out->limit + 1) * sizeof *out->incidents);
    sqlite3_stmt *rows = store_prepare(store, out->open_only ? SQL_INCIDENTS_OPEN : SQL_INCIDENTS, err);
    if (!rows)
        return err->code;
    bind_text(rows, 1, out->before ? out->before : LAST_ID);
    sqlite3_bind_int(rows, 2, LEDGER_SCAN_MAX + 1);
    char last[OPERATION_ID_SIZE] = "";
    bool found;
    for (size_t seen = 0; store_step(store, rows, &found, err) == 0 && found; seen++) {
        if (seen == LEDGER_SCAN_MAX || out->count == out->limit) {
            out->next = arena_copy_text(request->arena, last);
            break;
        }
        const char *id = (const char *)sqlite3_column_text(rows, 0);
        strncpy(last, id ? id : "", sizeof last - 1);
        if (!column_is(rows, 1, out->tenant))
            continue;
        if (row_incident(store, rows, request->arena, &out->incidents[out->count], err))
            break;
        out->count++;
    }
    sqlite3_reset(rows);
    return err->code;
}

/* ---- tokens ---- */

enum err_code store_token_find(struct store *store, struct ledger_request *request)
{
    struct token *token = &request->token.token;
    struct err *err = &request->err;
    bool found;
    sqlite3_stmt *row = store_prepare(store, SQL_TOKEN_BY_HASH, err);
    if (!row)
        return err->code;
    sqlite3_bind_blob(row, 1, token->secret_hash.b, DIGEST_BYTES, SQLITE_STATIC);
    if (store_step(store, row, &found, err))
        return err->code;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no such token");
    row_token(store, row, request->arena, token, err);
    sqlite3_reset(row);
    return err->code;
}

enum err_code store_token_list(struct store *store, struct ledger_request *request)
{
    struct ledger_token_list *out = &request->token_list;
    struct err *err = &request->err;
    size_t room = 0;
    bool found;
    out->tokens = NULL;
    out->count = 0;
    sqlite3_stmt *rows = store_prepare(store, SQL_TOKENS, err);
    if (!rows)
        return err->code;
    while (out->count < TOKENS_MAX && store_step(store, rows, &found, err) == 0 && found) {
        if (out->count == room) {
            struct token *larger = arena_alloc(request->arena, (room ? room *= 2 : (room = 16)) * sizeof *larger);
            if (out->count)
                memcpy(larger, out->tokens, out->count * sizeof *larger);
            out->tokens = larger;
        }
        if (row_token(store, rows, request->arena, &out->tokens[out->count], err))
            break;
        out->count++;
    }
    sqlite3_reset(rows);
    return err->code;
}

/* ---- numbers ---- */

static enum err_code read_number(struct store *store, enum statement which, int64_t *out, struct err *err)
{
    bool found;
    sqlite3_stmt *row = store_prepare(store, which, err);
    if (!row || store_step(store, row, &found, err))
        return err->code;
    *out = found ? sqlite3_column_int64(row, 0) : 0;
    sqlite3_reset(row);
    return ERR_NONE;
}

/* Two numbers of one row. bound < 0: the statement has no parameter. */
static enum err_code read_pair(struct store *store, enum statement which, int bound, int64_t *first, int64_t *second,
                               struct err *err)
{
    bool found;
    sqlite3_stmt *row = store_prepare(store, which, err);
    if (row && bound >= 0)
        sqlite3_bind_int(row, 1, bound);
    if (!row || store_step(store, row, &found, err))
        return err->code;
    *first = found ? sqlite3_column_int64(row, 0) : 0;
    *second = found ? sqlite3_column_int64(row, 1) : 0;
    sqlite3_reset(row);
    return ERR_NONE;
}

static enum err_code read_waiting(struct store *store, struct ledger_stats *stats, struct err *err)
{
    if (read_pair(store, SQL_APPROVALS_WAITING, store->names.number[NAME_REASON][REASON_AWAITING_APPROVAL],
                  &stats->approvals_waiting, &stats->oldest_approval_ms, err))
        return err->code;
    return read_pair(store, SQL_CLAIMS_COUNT, -1, &stats->entities_held, &stats->entities_waiting, err);
}

/* commits and commands are added by sqlite.c, which counts them. */
enum err_code store_stats(struct store *store, struct ledger_request *request)
{
    struct ledger_stats *stats = &request->stats;
    struct err *err = &request->err;
    bool found;
    *stats = (struct ledger_stats){.file_bytes = store_file_bytes(store->path)};
    sqlite3_stmt *rows = store_prepare(store, SQL_COUNTERS, err);
    if (!rows)
        return err->code;
    while (store_step(store, rows, &found, err) == 0 && found) {
        int number = sqlite3_column_int(rows, 0);
        int state = number >= 0 && number < NAME_VALUES_MAX ? store->names.value[NAME_STATE][number] : -1;
        if (state >= 0)
            stats->by_state[state] = sqlite3_column_int64(rows, 1);
    }
    if (err->code)
        return err->code;
    for (int state = 0; state < STATE_COUNT; state++) /* what this batch has done so far */
        stats->by_state[state] += store->moved[state];
    if (read_number(store, SQL_OLDEST_UNKNOWN, &stats->oldest_unknown_ms, err))
        return err->code;
    if (read_waiting(store, stats, err))
        return err->code;
    return read_number(store, SQL_OPEN_INCIDENTS, &stats->open_incidents, err);
}
