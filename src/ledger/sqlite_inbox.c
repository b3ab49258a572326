/* The inbox in SQLite: commands of their own, and an event's end within a transition. */
#include "ledger/sqlite_store.h"

#define LAST_ID "~" /* sorts after every id */

/* ---- rows ---- */

static const char *text_at(sqlite3_stmt *row, int column, struct arena *arena)
{
    return arena_copy_text(arena, (const char *)sqlite3_column_text(row, column));
}

static struct str bytes_at(sqlite3_stmt *row, int column, struct arena *arena)
{
    if (sqlite3_column_type(row, column) == SQLITE_NULL)
        return STR_NONE;
    const char *p = sqlite3_column_blob(row, column);
    return arena_str(arena, (struct str){p ? p : "", (size_t)sqlite3_column_bytes(row, column)});
}

static void bind_bytes(sqlite3_stmt *statement, int column, struct str bytes)
{
    sqlite3_bind_blob64(statement, column, bytes.p, bytes.n, SQLITE_STATIC); /* NULL binds NULL */
}

/* Columns of INBOX_COLUMNS. */
static enum err_code row_inbound(struct store *store, sqlite3_stmt *row, struct arena *arena, bool body,
                                 struct inbound *out, struct err *err)
{
    *out = (struct inbound){
        .source = text_at(row, 1, arena),
        .event = text_at(row, 2, arena),
        .type = text_at(row, 3, arena),
        .value = text_at(row, 7, arena),
        .external_id = text_at(row, 8, arena),
        .operation = text_at(row, 9, arena),
        .created_ms = sqlite3_column_int64(row, 10),
        .received_ms = sqlite3_column_int64(row, 11),
        .settled_ms = sqlite3_column_int64(row, 12),
        .duplicates = sqlite3_column_int64(row, 13),
        .duplicate_ms = sqlite3_column_int64(row, 14),
        .retain_until_ms = sqlite3_column_int64(row, 15),
        .result = bytes_at(row, 16, arena),
        .body = body ? bytes_at(row, 17, arena) : STR_NONE,
        .forward = {.tries = sqlite3_column_int64(row, 19),
                    .at_ms = sqlite3_column_int64(row, 20),
                    .until_ms = sqlite3_column_int64(row, 21),
                    .detail = text_at(row, 22, arena)},
    };
    const char *id = text_at(row, 0, arena);
    strncpy(out->id, id ? id : "", sizeof out->id - 1);
    bool known = out->source && out->event && inbound_status_from_name(str_of(text_at(row, 4, arena)), &out->status) &&
                 inbound_outcome_from_name(str_of(text_at(row, 5, arena)), &out->outcome) &&
                 inbound_match_from_name(str_of(text_at(row, 6, arena)), &out->match) &&
                 forward_status_from_name(str_of((const char *)sqlite3_column_text(row, 18)), &out->forward.status);
    return known ? ERR_NONE : store_strange(store, "inbound event", err);
}

static enum err_code count(struct store *store, const char *source, const struct inbox_counts *more, struct err *err)
{
    sqlite3_stmt *add = store_prepare(store, SQL_INBOX_COUNT, err);
    if (!add)
        return err->code;
    bind_text(add, 1, source);
    sqlite3_bind_int64(add, 2, more->events);
    sqlite3_bind_int64(add, 3, more->duplicates);
    sqlite3_bind_int64(add, 4, more->applied);
    sqlite3_bind_int64(add, 5, more->ignored);
    sqlite3_bind_int64(add, 6, more->dropped);
    return store_run(store, add, err);
}

/* ---- which operations an event names ---- */

static enum err_code named(struct store *store, const struct inbound *event, struct arena *arena,
                           struct ledger_named *out, size_t *found, size_t max, struct err *err)
{
    *found = 0;
    if (event->status != INBOUND_WAITING || !event->value || event->match == INBOUND_BY_NOTHING)
        return ERR_NONE;
    /* A provider key that is the operation's id is found by that. */
    bool by_id = event->match == INBOUND_BY_REFERENCE ||
                 (event->match == INBOUND_BY_PROVIDER_KEY && operation_id_valid(event->value));
    enum statement which =
        event->match == INBOUND_BY_EXTERNAL_ID ? SQL_OPERATIONS_BY_EXTERNAL_ID : SQL_OPERATIONS_BY_PROVIDER_KEY;
    sqlite3_stmt *rows = store_prepare(store, by_id ? SQL_INBOX_OPERATION_BY_ID : which, err);
    if (!rows)
        return err->code;
    if (by_id) {
        bind_id(rows, event->value);
    } else {
        bind_text(rows, 1, event->value);
        sqlite3_bind_int64(rows, 2, (int64_t)max);
    }
    bool row;
    while (*found < max && store_step(store, rows, &row, err) == 0 && row) {
        bool fits = event->match != INBOUND_BY_PROVIDER_KEY ||
                    text_equal(event->value, (const char *)sqlite3_column_text(rows, 1));
        if (fits)
            out[(*found)++] =
                (struct ledger_named){text_at(rows, 0, arena), text_at(rows, 2, arena), text_at(rows, 3, arena)};
    }
    sqlite3_reset(rows);
    return err->code;
}

/* ---- recording ---- */

static enum err_code find_event(struct store *store, const struct inbound *event, struct arena *arena, bool *found,
                                struct inbound *known, struct err *err)
{
    sqlite3_stmt *row = store_prepare(store, SQL_INBOX_BY_EVENT, err);
    if (!row)
        return err->code;
    bind_text(row, 1, event->source);
    bind_text(row, 2, event->event);
    if (store_step(store, row, found, err) || !*found)
        return err->code;
    row_inbound(store, row, arena, true, known, err);
    sqlite3_reset(row);
    return err->code;
}

static enum err_code insert(struct store *store, const struct inbound *event, struct err *err)
{
    sqlite3_stmt *add = store_prepare(store, SQL_INSERT_INBOUND, err);
    if (!add)
        return err->code;
    bind_text(add, 1, event->id);
    bind_text(add, 2, event->source);
    bind_text(add, 3, event->event);
    bind_text(add, 4, event->type);
    bind_text(add, 5, inbound_status_name(event->status));
    bind_text(add, 6, inbound_outcome_name(event->outcome));
    bind_text(add, 7, inbound_match_name(event->match));
    bind_text(add, 8, event->value);
    bind_text(add, 9, event->external_id);
    bind_text(add, 10, event->operation);
    sqlite3_bind_int64(add, 11, event->created_ms);
    sqlite3_bind_int64(add, 12, event->received_ms);
    sqlite3_bind_int64(add, 13, event->settled_ms);
    sqlite3_bind_int64(add, 14, event->duplicates);
    sqlite3_bind_int64(add, 15, event->duplicate_ms);
    sqlite3_bind_int64(add, 16, event->retain_until_ms);
    sqlite3_bind_text64(add, 17, event->result.p, event->result.n, SQLITE_STATIC, SQLITE_UTF8);
    bind_bytes(add, 18, event->body);
    bind_text(add, 19, forward_status_name(event->forward.status));
    sqlite3_bind_int64(add, 20, event->forward.tries);
    sqlite3_bind_int64(add, 21, event->forward.at_ms);
    sqlite3_bind_int64(add, 22, event->forward.until_ms);
    bind_text(add, 23, event->forward.detail);
    struct inbox_counts one = {.events = 1, .ignored = event->status == INBOUND_IGNORED};
    return store_run(store, add, err) ? err->code : count(store, event->source, &one, err);
}

static enum err_code count_delivery(struct store *store, struct inbound *known, int64_t now_ms, struct err *err)
{
    sqlite3_stmt *again = store_prepare(store, SQL_INBOX_AGAIN, err);
    if (!again)
        return err->code;
    known->duplicates++;
    known->duplicate_ms = now_ms;
    bind_text(again, 1, known->id);
    sqlite3_bind_int64(again, 2, now_ms);
    struct inbox_counts one = {.duplicates = 1};
    return store_run(store, again, err) ? err->code : count(store, known->source, &one, err);
}

enum err_code store_record_inbound(struct store *store, struct ledger_request *request)
{
    struct ledger_record_inbound *record = &request->record_inbound;
    struct err *err = &request->err;
    struct inbound *known = arena_zero(request->arena, sizeof *known);
    if (store_may_write(store, err) || find_event(store, record->event, request->arena, &record->duplicate, known, err))
        return err->code;
    if (record->duplicate ? count_delivery(store, known, record->now_ms, err) : insert(store, record->event, err))
        return err->code;
    record->event = record->duplicate ? known : inbound_copy(request->arena, record->event);
    return named(store, record->event, request->arena, record->named, &record->named_count, LEDGER_INBOX_OPS_MAX, err);
}

/* ---- events of an operation ---- */

static enum err_code read_standing(struct store *store, const struct inbound *event, const char *operation,
                                   struct inbound_standing *standing, struct err *err)
{
    *standing = (struct inbound_standing){0};
    sqlite3_stmt *rows = store_prepare(store, SQL_INBOX_STANDING, err);
    if (!rows)
        return err->code;
    bind_text(rows, 1, operation);
    bind_text(rows, 2, event->source);
    bool found;
    while (store_step(store, rows, &found, err) == 0 && found) {
        struct inbound applied = {.created_ms = sqlite3_column_int64(rows, 0)};
        if (inbound_outcome_from_name(str_of((const char *)sqlite3_column_text(rows, 1)), &applied.outcome))
            inbound_note(standing, &applied);
    }
    sqlite3_reset(rows);
    return err->code;
}

/* Waiting events under one of the operation's names. */
static enum err_code add_events(struct store *store, struct ledger_request *request, enum inbound_match match,
                                const char *value)
{
    struct ledger_inbox_of *out = &request->inbox_of;
    struct err *err = &request->err;
    if (!value)
        return ERR_NONE;
    sqlite3_stmt *rows = store_prepare(store, SQL_INBOX_WAITING_FOR, err);
    if (!rows)
        return err->code;
    bind_text(rows, 1, value);
    bind_text(rows, 2, inbound_match_name(match));
    sqlite3_bind_int(rows, 3, LEDGER_INBOX_EVENTS_MAX + 1);
    bool found;
    while (store_step(store, rows, &found, err) == 0 && found) {
        out->more |= out->count == LEDGER_INBOX_EVENTS_MAX;
        if (out->more || row_inbound(store, rows, request->arena, false, &out->events[out->count], err))
            break;
        out->count++;
    }
    sqlite3_reset(rows);
    return err->code;
}

enum err_code store_inbox_of(struct store *store, struct ledger_request *request)
{
    struct ledger_inbox_of *out = &request->inbox_of;
    struct err *err = &request->err;
    out->op = NULL;
    out->count = 0;
    out->more = false;
    out->events = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->events);
    out->standing = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->standing);
    out->named = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->named);
    out->named_count = arena_alloc(request->arena, LEDGER_INBOX_EVENTS_MAX * sizeof *out->named_count);
    sqlite3_stmt *by_id = store_prepare(store, SQL_OPERATION_BY_ID, err);
    if (!by_id)
        return err->code;
    bind_id(by_id, out->operation);
    if (read_operation(store, by_id, request->arena, true, NULL, &out->op, err))
        return err->code;
    if (!out->op)
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", out->operation);
    if (add_events(store, request, INBOUND_BY_REFERENCE, out->op->id) ||
        add_events(store, request, INBOUND_BY_PROVIDER_KEY, out->op->provider_key) ||
        add_events(store, request, INBOUND_BY_EXTERNAL_ID, out->op->external_id))
        return err->code;
    inbound_sort(out->events, out->count);
    for (size_t i = 0; i < out->count; i++)
        if (read_standing(store, &out->events[i], out->op->id, &out->standing[i], err) ||
            named(store, &out->events[i], request->arena, out->named[i], &out->named_count[i], LEDGER_INBOX_OPS_MAX,
                  err))
            break;
    return err->code;
}

/* ---- what waits and could be applied ---- */

enum err_code store_inbox_due(struct store *store, struct ledger_request *request)
{
    struct ledger_inbox_due *due = &request->inbox_due;
    struct err *err = &request->err;
    due->operations = arena_alloc(request->arena, LEDGER_INBOX_PAGE_MAX * sizeof *due->operations);
    due->count = 0;
    due->next = NULL;
    due->any_waiting = due->after != NULL;
    sqlite3_stmt *rows = store_prepare(store, SQL_INBOX_WAITING, err);
    if (!rows)
        return err->code;
    bind_text(rows, 1, due->after ? due->after : "");
    sqlite3_bind_int(rows, 2, LEDGER_SCAN_MAX + 1);
    char last[OPERATION_ID_SIZE] = "";
    bool found;
    for (size_t seen = 0; store_step(store, rows, &found, err) == 0 && found; seen++) {
        due->any_waiting = true;
        if (seen == LEDGER_SCAN_MAX || due->count == LEDGER_INBOX_PAGE_MAX) {
            due->next = arena_copy_text(request->arena, last);
            break;
        }
        struct inbound event;
        struct ledger_named first;
        size_t names = 0;
        if (row_inbound(store, rows, &store->scratch, false, &event, err) ||
            named(store, &event, request->arena, &first, &names, 1, err))
            break;
        if (names)
            due->operations[due->count++] = first.operation;
        memcpy(last, event.id, sizeof last);
    }
    sqlite3_reset(rows);
    return err->code;
}

/* ---- for people ---- */

static enum err_code read_one(struct store *store, struct ledger_request *request)
{
    struct ledger_inbox_list *list = &request->inbox_list;
    struct err *err = &request->err;
    bool found;
    sqlite3_stmt *row = store_prepare(store, SQL_INBOX_BY_ID, err);
    if (!row)
        return err->code;
    bind_text(row, 1, list->id);
    if (store_step(store, row, &found, err))
        return err->code;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no inbound event %s", list->id);
    list->count = row_inbound(store, row, request->arena, true, list->events, err) == 0;
    sqlite3_reset(row);
    return err->code;
}

static bool list_wants(const struct ledger_inbox_list *list, const struct inbound *event)
{
    return (!list->source || text_equal(list->source, event->source)) &&
           (!list->operation || text_equal(list->operation, event->operation)) &&
           (!list->statuses || (list->statuses & 1u << event->status)) &&
           (!list->forwards || (list->forwards & 1u << event->forward.status));
}

static sqlite3_stmt *list_statement(struct store *store, const struct ledger_inbox_list *list, struct err *err)
{
    enum statement which = SQL_INBOX_LIST;
    if (list->operation)
        which = SQL_INBOX_LIST_OF;
    else if (list->statuses == 1u << INBOUND_WAITING)
        which = SQL_INBOX_LIST_WAITING;
    else if (list->forwards == 1u << FORWARD_UNDELIVERED)
        which = SQL_INBOX_LIST_UNDELIVERED;
    sqlite3_stmt *rows = store_prepare(store, which, err);
    if (!rows)
        return NULL;
    bind_text(rows, 1, list->before ? list->before : LAST_ID);
    sqlite3_bind_int(rows, 2, LEDGER_SCAN_MAX + 1);
    if (list->operation)
        bind_text(rows, 3, list->operation);
    return rows;
}

enum err_code store_inbox_list(struct store *store, struct ledger_request *request)
{
    struct ledger_inbox_list *list = &request->inbox_list;
    struct err *err = &request->err;
    if (list->limit > LEDGER_LIST_MAX)
        list->limit = LEDGER_LIST_MAX;
    list->count = 0;
    list->next = NULL;
    list->events = arena_alloc(request->arena, (list->limit + 1) * sizeof *list->events);
    if (list->id)
        return read_one(store, request);
    sqlite3_stmt *rows = list_statement(store, list, err);
    if (!rows)
        return err->code;
    char last[OPERATION_ID_SIZE] = "";
    bool found;
    for (size_t seen = 0; store_step(store, rows, &found, err) == 0 && found; seen++) {
        if (seen == LEDGER_SCAN_MAX || list->count == list->limit) {
            list->next = arena_copy_text(request->arena, last);
            break;
        }
        struct inbound *event = &list->events[list->count];
        if (row_inbound(store, rows, request->arena, false, event, err))
            break;
        memcpy(last, event->id, sizeof last);
        list->count += list_wants(list, event);
    }
    sqlite3_reset(rows);
    return err->code;
}

enum err_code store_inbox_counts(struct store *store, struct ledger_request *request)
{
    struct ledger_inbox_counts *out = &request->inbox_counts;
    struct err *err = &request->err;
    size_t room = 0;
    bool found;
    out->sources = NULL;
    out->count = 0;
    sqlite3_stmt *rows = store_prepare(store, SQL_INBOX_COUNTS, err);
    if (!rows)
        return err->code;
    while (store_step(store, rows, &found, err) == 0 && found) {
        if (out->count == room) {
            struct inbox_counts *larger =
                arena_alloc(request->arena, (room ? room *= 2 : (room = 16)) * sizeof *larger);
            if (out->count)
                memcpy(larger, out->sources, out->count * sizeof *larger);
            out->sources = larger;
        }
        out->sources[out->count++] = (struct inbox_counts){
            .source = text_at(rows, 0, request->arena),
            .events = sqlite3_column_int64(rows, 1),
            .duplicates = sqlite3_column_int64(rows, 2),
            .applied = sqlite3_column_int64(rows, 3),
            .ignored = sqlite3_column_int64(rows, 4),
            .dropped = sqlite3_column_int64(rows, 5),
        };
    }
    sqlite3_reset(rows);
    return err->code;
}

/* ---- endings ---- */

static enum err_code remove_event(struct store *store, const char *id, const char *source, bool waited, struct err *err)
{
    sqlite3_stmt *gone = store_prepare(store, SQL_DELETE_INBOUND, err);
    if (!gone)
        return err->code;
    bind_text(gone, 1, id);
    struct inbox_counts one = {.dropped = 1};
    if (store_run(store, gone, err) || !waited)
        return err->code;
    return count(store, source, &one, err);
}

enum err_code store_inbox_prune(struct store *store, struct ledger_request *request)
{
    struct ledger_inbox_prune *prune = &request->inbox_prune;
    struct err *err = &request->err;
    prune->count = 0;
    prune->next_ms = 0;
    sqlite3_stmt *rows = store_prepare(store, SQL_INBOX_OVER, err);
    if (store_may_write(store, err) || !rows)
        return err->code;
    for (bool found = true; found && prune->count <= prune->limit;) {
        if (store_step(store, rows, &found, err) || !found)
            break;
        int64_t until_ms = sqlite3_column_int64(rows, 1);
        if (until_ms > prune->now_ms || prune->count == prune->limit) {
            prune->next_ms = until_ms;
            break;
        }
        const char *id = text_at(rows, 0, &store->scratch), *source = text_at(rows, 2, &store->scratch);
        bool waited = str_is(str_of((const char *)sqlite3_column_text(rows, 3)), inbound_status_name(INBOUND_WAITING));
        sqlite3_reset(rows);
        if (remove_event(store, id, source, waited, err))
            return err->code;
        prune->count++;
    }
    sqlite3_reset(rows);
    return err->code;
}

enum err_code store_inbound_waits(struct store *store, const char *id, const char **source, struct err *err)
{
    bool found, waits = false;
    sqlite3_stmt *row = store_prepare(store, SQL_INBOX_STATUS, err);
    if (!row)
        return err->code;
    bind_text(row, 1, id);
    if (store_step(store, row, &found, err))
        return err->code;
    if (found) {
        waits = str_is(str_of((const char *)sqlite3_column_text(row, 0)), inbound_status_name(INBOUND_WAITING));
        *source = text_at(row, 1, &store->scratch);
    }
    sqlite3_reset(row);
    return waits ? ERR_NONE : err_set(err, ERR_STALE, "inbound event %s is no longer waiting", id);
}

enum err_code store_inbound_apply(struct store *store, const struct ledger_transition *change, const char *source,
                                  struct err *err)
{
    sqlite3_stmt *apply = store_prepare(store, SQL_INBOX_APPLY, err);
    if (!apply)
        return err->code;
    bind_text(apply, 1, change->inbound);
    bind_text(apply, 2, change->op->id);
    sqlite3_bind_int64(apply, 3, change->op->updated_ms);
    struct inbox_counts one = {.applied = 1};
    return store_run(store, apply, err) ? err->code : count(store, source, &one, err);
}

/* ---- forwarding ---- */

enum err_code store_forward_due(struct store *store, struct ledger_request *request)
{
    struct ledger_forward_due *due = &request->forward_due;
    struct err *err = &request->err;
    size_t limit = due->limit < LEDGER_FORWARDS_MAX ? due->limit : LEDGER_FORWARDS_MAX;
    bool found;
    due->events = arena_alloc(request->arena, (limit + 1) * sizeof *due->events);
    due->count = 0;
    due->next_ms = 0;
    sqlite3_stmt *rows = store_prepare(store, SQL_FORWARD_DUE, err);
    if (!rows)
        return err->code;
    sqlite3_bind_int64(rows, 1, (int64_t)limit + 1);
    while (store_step(store, rows, &found, err) == 0 && found) {
        struct inbound *event = &due->events[due->count];
        bool now = due->count < limit && sqlite3_column_int64(rows, 20) <= due->now_ms;
        if (row_inbound(store, rows, request->arena, now, event, err))
            break;
        if (!now) {
            due->next_ms = event->forward.at_ms;
            break;
        }
        due->count++;
    }
    sqlite3_reset(rows);
    return err->code;
}

enum err_code store_forward_move(struct store *store, struct ledger_request *request)
{
    const struct ledger_forward_move *change = &request->forward_move;
    struct err *err = &request->err;
    bool found;
    if (store_may_write(store, err))
        return err->code;
    sqlite3_stmt *known = store_prepare(store, SQL_INBOX_STATUS, err);
    if (!known)
        return err->code;
    bind_text(known, 1, change->id);
    if (store_step(store, known, &found, err))
        return err->code;
    sqlite3_reset(known);
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no inbound event %s", change->id);
    sqlite3_stmt *move = store_prepare(store, SQL_FORWARD_MOVE, err);
    if (!move)
        return err->code;
    bind_text(move, 1, change->id);
    bind_text(move, 2, forward_status_name(change->was.status));
    sqlite3_bind_int64(move, 3, change->was.tries);
    bind_text(move, 4, forward_status_name(change->to.status));
    sqlite3_bind_int64(move, 5, change->to.tries);
    sqlite3_bind_int64(move, 6, change->to.at_ms);
    sqlite3_bind_int64(move, 7, change->to.until_ms);
    bind_text(move, 8, change->to.detail);
    if (store_run(store, move, err))
        return err->code;
    return sqlite3_changes(store->db) == 1
               ? ERR_NONE
               : err_set(err, ERR_STALE, "the forwarding of %s has gone on meanwhile", change->id);
}
