/* The inbox in PostgreSQL: commands of their own, and an event's end within a transition. */
#include "base/buf.h"
#include "ledger/pg_store.h"

#define LAST_ID "~" /* sorts after every id */

/* ---- rows ---- */

/* Columns of INBOX in pg_statements.c, with body one more. */
static enum err_code take_inbound(struct pg_row *row, bool body, struct inbound *out, struct err *err)
{
    *out = (struct inbound){0};
    pg_take_id(row, out->id);
    out->source = pg_take_text(row);
    out->event = pg_take_text(row);
    out->type = pg_take_text(row);
    bool known = inbound_status_from_name(pg_take_str(row), &out->status);
    known &= inbound_outcome_from_name(pg_take_str(row), &out->outcome);
    known &= inbound_match_from_name(pg_take_str(row), &out->match);
    out->value = pg_take_text(row);
    out->external_id = pg_take_text(row);
    out->operation = pg_take_text(row);
    out->created_ms = pg_take_int(row);
    out->received_ms = pg_take_int(row);
    out->settled_ms = pg_take_int(row);
    out->duplicates = pg_take_int(row);
    out->duplicate_ms = pg_take_int(row);
    out->retain_until_ms = pg_take_int(row);
    out->result = pg_take_str(row);
    known &= forward_status_from_name(pg_take_str(row), &out->forward.status);
    out->forward.tries = pg_take_int(row);
    out->forward.at_ms = pg_take_int(row);
    out->forward.until_ms = pg_take_int(row);
    out->forward.detail = pg_take_text(row);
    if (body)
        out->body = pg_take_str(row);
    return known && !row->strange ? ERR_NONE : pg_strange(row->pg, "inbound event", err);
}

static enum err_code count(struct pg *pg, const char *source, const struct inbox_counts *more, struct err *err)
{
    struct pg_query query;
    pg_query(&query, pg, PG_INBOX_COUNT);
    pg_put_text(&query, pg->gateway);
    pg_put_text(&query, source);
    pg_put_int(&query, more->events);
    pg_put_int(&query, more->duplicates);
    pg_put_int(&query, more->applied);
    pg_put_int(&query, more->ignored);
    pg_put_int(&query, more->dropped);
    return pg_write(&query, err);
}

/* ---- which operations an event names ---- */

static enum err_code named(struct pg *pg, const struct inbound *event, struct arena *arena, struct ledger_named *out,
                           size_t *found, size_t max, struct err *err)
{
    *found = 0;
    if (event->status != INBOUND_WAITING || !event->value || event->match == INBOUND_BY_NOTHING)
        return ERR_NONE;
    /* A provider key that is the operation's id is found by that. */
    bool by_id = event->match == INBOUND_BY_REFERENCE ||
                 (event->match == INBOUND_BY_PROVIDER_KEY && operation_id_valid(event->value));
    enum pg_statement which =
        event->match == INBOUND_BY_EXTERNAL_ID ? PG_NAMED_BY_EXTERNAL_ID : PG_NAMED_BY_PROVIDER_KEY;
    const PGresult *rows;
    struct pg_query query;
    pg_query(&query, pg, by_id ? PG_NAMED_BY_ID : which);
    pg_put_text(&query, event->value);
    if (!by_id)
        pg_put_int(&query, (int64_t)max);
    if (pg_rows(&query, &rows, err))
        return err->code;
    for (int i = 0; i < PQntuples(rows) && *found < max; i++) {
        struct pg_row row = pg_row(pg, rows, i, arena);
        struct ledger_named *one = &out[*found];
        one->operation = pg_take_text(&row);
        one->tenant = pg_take_text(&row);
        one->tool = pg_take_text(&row);
        const char *provider_key = pg_take_text(&row);
        *found += event->match != INBOUND_BY_PROVIDER_KEY || text_equal(event->value, provider_key);
    }
    return ERR_NONE;
}

/* ---- recording ---- */

static enum err_code find_event(struct pg *pg, const struct inbound *event, struct arena *arena, bool *found,
                                struct inbound *known, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_INBOX_BY_EVENT);
    pg_put_text(&query, event->source);
    pg_put_text(&query, event->event);
    if (pg_rows(&query, &result, err))
        return err->code;
    *found = PQntuples(result) > 0;
    struct pg_row row = pg_row(pg, result, 0, arena);
    return *found ? take_inbound(&row, true, known, err) : ERR_NONE;
}

/* Another gateway may be recording the same event: then PG_AGAIN finds it. */
static enum err_code insert(struct pg *pg, const struct inbound *event, struct err *err)
{
    struct pg_query query;
    pg_query(&query, pg, PG_INSERT_INBOUND);
    pg_put_text(&query, event->id);
    pg_put_text(&query, event->source);
    pg_put_text(&query, event->event);
    pg_put_text(&query, event->type);
    pg_put_text(&query, inbound_status_name(event->status));
    pg_put_text(&query, inbound_outcome_name(event->outcome));
    pg_put_text(&query, inbound_match_name(event->match));
    pg_put_text(&query, event->value);
    pg_put_text(&query, event->external_id);
    pg_put_text(&query, event->operation);
    pg_put_int(&query, event->created_ms);
    pg_put_int(&query, event->received_ms);
    pg_put_int(&query, event->settled_ms);
    pg_put_int(&query, event->duplicates);
    pg_put_int(&query, event->duplicate_ms);
    pg_put_int(&query, event->retain_until_ms);
    pg_put_str(&query, event->result);
    pg_put_text(&query, forward_status_name(event->forward.status));
    pg_put_int(&query, event->forward.tries);
    pg_put_int(&query, event->forward.at_ms);
    pg_put_int(&query, event->forward.until_ms);
    pg_put_text(&query, event->forward.detail);
    pg_put_bytes(&query, event->body);
    struct inbox_counts one = {.events = 1, .ignored = event->status == INBOUND_IGNORED};
    return pg_write_one(&query, err) ? err->code : count(pg, event->source, &one, err);
}

static enum err_code count_delivery(struct pg *pg, struct inbound *known, int64_t now_ms, struct err *err)
{
    struct pg_query query;
    known->duplicates++;
    known->duplicate_ms = now_ms;
    pg_query(&query, pg, PG_INBOX_AGAIN);
    pg_put_text(&query, known->id);
    pg_put_int(&query, now_ms);
    struct inbox_counts one = {.duplicates = 1};
    return pg_write(&query, err) ? err->code : count(pg, known->source, &one, err);
}

enum err_code pg_record_inbound(struct pg *pg, struct ledger_request *request)
{
    struct ledger_record_inbound *record = &request->record_inbound;
    struct err *err = &request->err;
    struct inbound *known = arena_zero(request->arena, sizeof *known);
    if (find_event(pg, record->event, request->arena, &record->duplicate, known, err))
        return err->code;
    if (record->duplicate ? count_delivery(pg, known, record->now_ms, err) : insert(pg, record->event, err))
        return err->code;
    record->event = record->duplicate ? known : inbound_copy(request->arena, record->event);
    return named(pg, record->event, request->arena, record->named, &record->named_count, LEDGER_INBOX_OPS_MAX, err);
}

/* ---- events of an operation ---- */

static enum err_code read_standing(struct pg *pg, const struct inbound *event, const char *operation,
                                   struct inbound_standing *standing, struct err *err)
{
    const PGresult *rows;
    struct pg_query query;
    *standing = (struct inbound_standing){0};
    pg_query(&query, pg, PG_INBOX_STANDING);
    pg_put_text(&query, operation);
    pg_put_text(&query, event->source);
    if (pg_rows(&query, &rows, err))
        return err->code;
    for (int i = 0; i < PQntuples(rows); i++) {
        struct pg_row row = pg_row(pg, rows, i, &pg->scratch);
        struct inbound applied = {.created_ms = pg_take_int(&row)};
        if (inbound_outcome_from_name(pg_take_str(&row), &applied.outcome))
            inbound_note(standing, &applied);
    }
    return ERR_NONE;
}

/* Waiting events under one of the operation's names. */
static enum err_code add_events(struct pg *pg, struct ledger_request *request, enum inbound_match match,
                                const char *value)
{
    struct ledger_inbox_of *out = &request->inbox_of;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query query;
    if (!value)
        return ERR_NONE;
    pg_query(&query, pg, PG_INBOX_WAITING_FOR);
    pg_put_text(&query, value);
    pg_put_text(&query, inbound_match_name(match));
    pg_put_int(&query, LEDGER_INBOX_EVENTS_MAX + 1);
    if (pg_rows(&query, &rows, err))
        return err->code;
    for (int i = 0; i < PQntuples(rows); i++) {
        struct pg_row row = pg_row(pg, rows, i, request->arena);
        out->more |= out->count == LEDGER_INBOX_EVENTS_MAX;
        if (out->more || take_inbound(&row, false, &out->events[out->count], err))
            break;
        out->count++;
    }
    return err->code;
}

enum err_code pg_inbox_of(struct pg *pg, struct ledger_request *request)
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
    if (pg_operation(pg, NULL, out->operation, request->arena, &out->op, err))
        return err->code;
    if (!out->op)
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", out->operation);
    if (add_events(pg, request, INBOUND_BY_REFERENCE, out->op->id) ||
        add_events(pg, request, INBOUND_BY_PROVIDER_KEY, out->op->provider_key) ||
        add_events(pg, request, INBOUND_BY_EXTERNAL_ID, out->op->external_id))
        return err->code;
    inbound_sort(out->events, out->count);
    for (size_t i = 0; i < out->count; i++)
        if (read_standing(pg, &out->events[i], out->op->id, &out->standing[i], err) ||
            named(pg, &out->events[i], request->arena, out->named[i], &out->named_count[i], LEDGER_INBOX_OPS_MAX, err))
            break;
    return err->code;
}

/* ---- what waits and could be applied ---- */

enum err_code pg_inbox_due(struct pg *pg, struct ledger_request *request)
{
    struct ledger_inbox_due *due = &request->inbox_due;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query query;
    due->operations = arena_alloc(request->arena, LEDGER_INBOX_PAGE_MAX * sizeof *due->operations);
    due->count = 0;
    due->next = NULL;
    due->any_waiting = due->after != NULL;
    pg_query(&query, pg, PG_INBOX_WAITING);
    pg_put_text(&query, due->after ? due->after : "");
    pg_put_int(&query, LEDGER_INBOX_PAGE_MAX + 1);
    if (pg_rows(&query, &rows, err))
        return err->code;
    char last[OPERATION_ID_SIZE] = "";
    for (int i = 0; i < PQntuples(rows); i++) {
        struct pg_row row = pg_row(pg, rows, i, &pg->scratch);
        struct inbound event;
        struct ledger_named first;
        size_t names = 0;
        due->any_waiting = true;
        if (i == LEDGER_INBOX_PAGE_MAX) { /* a journey for each: no more than a page of them at once */
            due->next = arena_copy_text(request->arena, last);
            break;
        }
        if (take_inbound(&row, false, &event, err) || named(pg, &event, request->arena, &first, &names, 1, err))
            return err->code;
        if (names)
            due->operations[due->count++] = first.operation;
        memcpy(last, event.id, sizeof last);
    }
    return ERR_NONE;
}

/* ---- for people ---- */

static enum err_code read_one(struct pg *pg, struct ledger_request *request)
{
    struct ledger_inbox_list *list = &request->inbox_list;
    struct err *err = &request->err;
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_INBOX_BY_ID);
    pg_put_text(&query, list->id);
    if (pg_rows(&query, &result, err))
        return err->code;
    if (PQntuples(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no inbound event %s", list->id);
    struct pg_row row = pg_row(pg, result, 0, request->arena);
    list->count = take_inbound(&row, true, list->events, err) == 0;
    return err->code;
}

/* "{waiting,applied}" of a set of bits, or NULL for all. */
static const char *names_text(struct arena *arena, uint32_t bits, int count, const char *(*name)(int value))
{
    struct buf text;
    if (!bits)
        return NULL;
    buf_init(&text, 0);
    for (int value = 0; value < count; value++)
        if (bits & 1u << value)
            buf_printf(&text, "%c%s", text.n ? ',' : '{', name(value));
    buf_add_char(&text, '}');
    const char *kept = arena_copy_text(arena, text.p);
    buf_release(&text);
    return kept;
}

static const char *status_name(int value)
{
    return inbound_status_name((enum inbound_status)value);
}

static const char *forward_name(int value)
{
    return forward_status_name((enum forward_status)value);
}

static enum pg_statement list_statement(enum pg_statement first, const struct ledger_inbox_list *list)
{
    int which = 0;
    if (list->operation)
        which = PG_INBOX_LIST_OF - PG_INBOX_LIST;
    else if (list->statuses == 1u << INBOUND_WAITING)
        which = PG_INBOX_LIST_WAITING - PG_INBOX_LIST;
    else if (list->forwards == 1u << FORWARD_UNDELIVERED)
        which = PG_INBOX_LIST_UNDELIVERED - PG_INBOX_LIST;
    return (enum pg_statement)((int)first + which);
}

/* Fewer than asked for were among the rows that were looked at: whether there are rows behind those. */
static enum err_code list_end(struct pg *pg, const char *start, const struct ledger_inbox_list *list,
                              struct arena *arena, const char **next, struct err *err)
{
    const PGresult *rows;
    struct pg_query query;
    pg_query(&query, pg, list_statement(PG_INBOX_LIST_END, list));
    pg_put_text(&query, start);
    pg_put_int(&query, LEDGER_SCAN_MAX);
    pg_put_text(&query, NULL);
    pg_put_text(&query, NULL);
    pg_put_text(&query, list->operation);
    if (pg_rows(&query, &rows, err))
        return err->code;
    struct pg_row row = pg_row(pg, rows, 0, arena);
    if (PQntuples(rows) == 2)
        *next = pg_take_text(&row);
    return ERR_NONE;
}

enum err_code pg_inbox_list(struct pg *pg, struct ledger_request *request)
{
    struct ledger_inbox_list *list = &request->inbox_list;
    struct err *err = &request->err;
    const char *start = list->before ? list->before : LAST_ID;
    const PGresult *rows;
    struct pg_query query;
    if (list->limit > LEDGER_LIST_MAX)
        list->limit = LEDGER_LIST_MAX;
    list->count = 0;
    list->next = NULL;
    list->events = arena_alloc(request->arena, (list->limit + 1) * sizeof *list->events);
    if (list->id)
        return read_one(pg, request);
    pg_query(&query, pg, list_statement(PG_INBOX_LIST, list));
    pg_put_text(&query, start);
    pg_put_int(&query, LEDGER_SCAN_MAX);
    pg_put_int(&query, (int64_t)list->limit + 1);
    pg_put_text(&query, list->source);
    pg_put_text(&query, list->operation);
    pg_put_text(&query, names_text(&pg->scratch, list->statuses, INBOUND_STATUS_COUNT, status_name));
    pg_put_text(&query, names_text(&pg->scratch, list->forwards, FORWARD_STATUS_COUNT, forward_name));
    if (pg_rows(&query, &rows, err))
        return err->code;
    size_t found = (size_t)PQntuples(rows);
    while (list->count < found && list->count < list->limit) {
        struct pg_row row = pg_row(pg, rows, (int)list->count, request->arena);
        if (take_inbound(&row, false, &list->events[list->count], err))
            return err->code;
        list->count++;
    }
    if (found > list->limit)
        list->next = list->count ? list->events[list->count - 1].id : start;
    else
        list_end(pg, start, list, request->arena, &list->next, err);
    return err->code;
}

enum err_code pg_inbox_counts(struct pg *pg, struct ledger_request *request)
{
    struct ledger_inbox_counts *out = &request->inbox_counts;
    struct err *err = &request->err;
    const PGresult *rows;
    struct pg_query query;
    out->sources = NULL;
    out->count = 0;
    pg_query(&query, pg, PG_INBOX_COUNTS);
    if (pg_rows(&query, &rows, err))
        return err->code;
    size_t found = (size_t)PQntuples(rows);
    out->sources = arena_alloc(request->arena, (found + 1) * sizeof *out->sources);
    for (; out->count < found; out->count++) {
        struct pg_row row = pg_row(pg, rows, (int)out->count, request->arena);
        struct inbox_counts *one = &out->sources[out->count];
        one->source = pg_take_text(&row);
        one->events = pg_take_int(&row);
        one->duplicates = pg_take_int(&row);
        one->applied = pg_take_int(&row);
        one->ignored = pg_take_int(&row);
        one->dropped = pg_take_int(&row);
    }
    return ERR_NONE;
}

/* ---- endings ---- */

enum err_code pg_inbox_prune(struct pg *pg, struct ledger_request *request)
{
    struct ledger_inbox_prune *prune = &request->inbox_prune;
    struct err *err = &request->err;
    const PGresult *rows, *next;
    struct pg_query query;
    prune->count = 0;
    prune->next_ms = 0;
    pg_query(&query, pg, PG_INBOX_OVER);
    pg_put_int(&query, prune->now_ms);
    pg_put_int(&query, (int64_t)prune->limit);
    if (pg_rows(&query, &rows, err))
        return err->code;
    for (int i = 0; i < PQntuples(rows); i++, prune->count++) {
        struct pg_row row = pg_row(pg, rows, i, &pg->scratch);
        const char *source = pg_take_text(&row);
        struct inbox_counts one = {.dropped = 1};
        if (str_is(pg_take_str(&row), inbound_status_name(INBOUND_WAITING)) && count(pg, source, &one, err))
            return err->code;
    }
    pg_query(&query, pg, PG_INBOX_NEXT);
    if (pg_rows(&query, &next, err))
        return err->code;
    struct pg_row row = pg_row(pg, next, 0, &pg->scratch);
    prune->next_ms = pg_take_null(&row) ? 0 : pg_take_int(&row);
    return ERR_NONE;
}

enum err_code pg_inbound_waits(struct pg *pg, const char *id, const char **source, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_INBOX_STATUS);
    pg_put_text(&query, id);
    if (pg_rows(&query, &result, err))
        return err->code;
    struct pg_row row = pg_row(pg, result, 0, &pg->scratch);
    bool waits = PQntuples(result) > 0 && str_is(pg_take_str(&row), inbound_status_name(INBOUND_WAITING));
    if (!waits)
        return err_set(err, ERR_STALE, "inbound event %s is no longer waiting", id);
    *source = pg_take_text(&row);
    return ERR_NONE;
}

enum err_code pg_inbound_apply(struct pg *pg, const struct ledger_transition *change, const char *source,
                               struct err *err)
{
    struct pg_query query;
    pg_query(&query, pg, PG_INBOX_APPLY);
    pg_put_text(&query, change->inbound);
    pg_put_text(&query, change->op->id);
    pg_put_int(&query, change->op->updated_ms);
    struct inbox_counts one = {.applied = 1};
    return pg_write(&query, err) ? err->code : count(pg, source, &one, err);
}

/* ---- forwarding ---- */

enum err_code pg_forward_due(struct pg *pg, struct ledger_request *request)
{
    struct ledger_forward_due *due = &request->forward_due;
    struct err *err = &request->err;
    size_t limit = due->limit < LEDGER_FORWARDS_MAX ? due->limit : LEDGER_FORWARDS_MAX;
    const PGresult *rows;
    struct pg_query query;
    due->events = arena_alloc(request->arena, (limit + 1) * sizeof *due->events);
    due->count = 0;
    due->next_ms = 0;
    pg_query(&query, pg, PG_FORWARD_DUE);
    pg_put_int(&query, (int64_t)limit + 1);
    pg_put_int(&query, due->now_ms);
    if (pg_rows(&query, &rows, err))
        return err->code;
    for (int i = 0; i < PQntuples(rows); i++) {
        struct pg_row row = pg_row(pg, rows, i, request->arena);
        struct inbound *event = &due->events[due->count];
        if (take_inbound(&row, true, event, err))
            return err->code;
        if (due->count == limit || event->forward.at_ms > due->now_ms) {
            due->next_ms = event->forward.at_ms;
            break;
        }
        due->count++;
    }
    return ERR_NONE;
}

enum err_code pg_forward_move(struct pg *pg, struct ledger_request *request)
{
    const struct ledger_forward_move *change = &request->forward_move;
    struct err *err = &request->err;
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_FORWARD_MOVE);
    pg_put_text(&query, change->id);
    pg_put_text(&query, forward_status_name(change->was.status));
    pg_put_int(&query, change->was.tries);
    pg_put_text(&query, forward_status_name(change->to.status));
    pg_put_int(&query, change->to.tries);
    pg_put_int(&query, change->to.at_ms);
    pg_put_int(&query, change->to.until_ms);
    pg_put_text(&query, change->to.detail);
    if (pg_rows(&query, &result, err))
        return err->code;
    if (pg_written(result) == 1)
        return ERR_NONE;
    pg_query(&query, pg, PG_INBOX_STATUS);
    pg_put_text(&query, change->id);
    if (pg_rows(&query, &result, err))
        return err->code;
    if (PQntuples(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no inbound event %s", change->id);
    return err_set(err, ERR_STALE, "the forwarding of %s has gone on meanwhile", change->id);
}
