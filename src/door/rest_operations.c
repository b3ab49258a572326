/* Looking at operations. */
#include "core/identity.h"
#include "door/ask.h"
#include "door/rest.h"

#include <string.h>

#define LIST_DEFAULT      50
#define LIST_ANSWER_BYTES (4 * 1024 * 1024) /* a page ends early when its answer gets larger than this */

static const char no_such[] = "no such operation";

bool rest_names_operation(struct exchange *exchange)
{
    if (operation_id_valid(exchange->params[0]))
        return true;
    rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such operation: an id is op_ and 26 characters");
    return false;
}

static void get_operation(struct exchange *exchange, const char *id, ask_done *done)
{
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = exchange->caller.tenant;
    request->get.operation = id;
    ask(exchange, request, done);
}

static void send_tombstone(struct exchange *exchange, const struct tombstone *tombstone)
{
    shape_tombstone(&exchange->answer, tombstone);
    memcpy(exchange->operation_id, tombstone->operation, sizeof exchange->operation_id);
    exchange_send(exchange, 200);
}

/* ---- one operation ---- */

static void show(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, no_such);
        return;
    }
    if (!request->get.op) {
        send_tombstone(exchange, request->get.tombstone);
        return;
    }
    const struct operation *op = request->get.op;
    const struct tool *tool = rest_tool(exchange, op->tool);
    struct shape_view view = rest_view(exchange, op, tool);
    view.with_incidents = true;
    view.incidents = request->get.incidents;
    view.incident_count = request->get.incident_count;
    rest_send_operation(exchange, op, tool, &view);
}

/* The wait is over, whatever came of it: what is shown comes from the ledger, with its incidents. */
static void waited(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    exchange->waiter = NULL;
    if (reply->kind == REPLY_UNAVAILABLE)
        rest_reply(exchange, reply, false);
    else
        get_operation(exchange, exchange->params[0], show);
}

void rest_operation(struct exchange *exchange)
{
    int64_t wait_ms;
    if (!rest_names_operation(exchange) || !rest_query_int(exchange, "wait", 0, ENGINE_WAIT_MS_MAX, 0, &wait_ms))
        return;
    if (wait_ms == 0) {
        get_operation(exchange, exchange->params[0], show);
        return;
    }
    struct waiter *waiter =
        engine_wait(exchange->engine, exchange->caller.tenant, exchange->params[0], wait_ms, waited, exchange);
    if (waiter)
        exchange->waiter = waiter;
}

static void found_by_key(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code)
        rest_ledger_problem(exchange, request, "no operation of this tool has that key");
    else if (request->get_by_key.op)
        get_operation(exchange, request->get_by_key.op->id, show);
    else
        send_tombstone(exchange, request->get_by_key.tombstone);
}

void rest_operation_by_key(struct exchange *exchange)
{
    struct ledger_request *request = ask_new(exchange, LEDGER_GET_BY_KEY);
    request->get_by_key.tenant = exchange->caller.tenant;
    request->get_by_key.tool = exchange->params[0];
    request->get_by_key.key_hash =
        identity_key_hash(exchange->caller.tenant, exchange->params[0], exchange->params[1], NULL);
    ask(exchange, request, found_by_key);
}

/* ---- its history ---- */

static void begin_list(struct exchange *exchange, const char *name)
{
    struct buf *out = &exchange->answer;
    buf_add_text(out, "{\"operation_id\":\"");
    buf_add_text(out, exchange->operation_id);
    buf_add_text(out, "\",\"");
    buf_add_text(out, name);
    buf_add_text(out, "\":[");
}

static void end_list(struct exchange *exchange)
{
    buf_add_text(&exchange->answer, "]}");
    exchange_send(exchange, 200);
}

static void show_events(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, no_such);
        return;
    }
    begin_list(exchange, "events");
    for (size_t i = 0; i < request->events.count; i++) {
        if (i > 0)
            buf_add_char(&exchange->answer, ',');
        shape_event(&exchange->answer, &request->events.events[i]);
    }
    end_list(exchange);
}

static void show_attempts(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, no_such);
        return;
    }
    begin_list(exchange, "attempts");
    for (size_t i = 0; i < request->attempts.count; i++) {
        if (i > 0)
            buf_add_char(&exchange->answer, ',');
        shape_attempt(&exchange->answer, &request->attempts.attempts[i]);
    }
    end_list(exchange);
}

/* Events and attempts are stored by operation alone: that the operation is this tenant's is checked first. */
static bool is_ours(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, no_such);
        return false;
    }
    const char *id = request->get.op ? request->get.op->id : request->get.tombstone->operation;
    memcpy(exchange->operation_id, id, sizeof exchange->operation_id);
    return true;
}

static void ask_events(struct exchange *exchange, struct ledger_request *request)
{
    if (!is_ours(exchange, request))
        return;
    struct ledger_request *next = ask_new(exchange, LEDGER_EVENTS);
    next->events.operation = exchange->operation_id;
    ask(exchange, next, show_events);
}

static void ask_attempts(struct exchange *exchange, struct ledger_request *request)
{
    if (!is_ours(exchange, request))
        return;
    struct ledger_request *next = ask_new(exchange, LEDGER_ATTEMPTS);
    next->attempts.operation = exchange->operation_id;
    ask(exchange, next, show_attempts);
}

void rest_events(struct exchange *exchange)
{
    if (rest_names_operation(exchange))
        get_operation(exchange, exchange->params[0], ask_events);
}

void rest_attempts(struct exchange *exchange)
{
    if (rest_names_operation(exchange))
        get_operation(exchange, exchange->params[0], ask_attempts);
}

/* ---- lists ---- */

/* "a,b" → bits; the parameter may be repeated. */
static bool read_states(struct exchange *exchange, uint32_t *states)
{
    for (const struct query_pair *pair = exchange->query; pair; pair = pair->next) {
        if (!str_is(pair->name, "status"))
            continue;
        const char *p = pair->value.p, *end = p + pair->value.n;
        while (p <= end) {
            const char *comma = memchr(p, ',', (size_t)(end - p));
            size_t n = (size_t)((comma ? comma : end) - p);
            enum state state;
            if (!state_from_name((struct str){p, n}, &state)) {
                rest_refuse(exchange, PROBLEM_MALFORMED,
                            arena_printf(&exchange->arena, "\"%.*s\" is no status", (int)(n < 40 ? n : 40), p));
                return false;
            }
            *states |= (uint32_t)1 << state;
            p += n + 1;
        }
    }
    return true;
}

bool rest_page(struct exchange *exchange, bool (*valid)(const char *id), size_t *limit, const char **cursor)
{
    int64_t number;
    *cursor = rest_query(exchange, "cursor").p;
    if (!rest_query_int(exchange, "limit", 1, LEDGER_LIST_MAX, LIST_DEFAULT, &number))
        return false;
    *limit = (size_t)number;
    if (!*cursor || valid(*cursor))
        return true;
    rest_refuse(exchange, PROBLEM_MALFORMED, "the cursor is not one that a former page gave");
    return false;
}

const char *rest_write_operations(struct exchange *exchange, const struct ledger_list *list)
{
    struct buf *out = &exchange->answer;
    buf_add_text(out, "\"operations\":[");
    const char *next = list->next;
    for (size_t i = 0; i < list->count; i++) {
        const struct operation *op = list->ops[i];
        const struct tool *tool = rest_tool(exchange, op->tool);
        struct shape_view view = rest_view(exchange, op, tool);
        if (i > 0)
            buf_add_char(out, ',');
        shape_operation(out, op, tool, &view);
        if (out->n > LIST_ANSWER_BYTES && i + 1 < list->count) {
            next = op->id;
            break;
        }
    }
    buf_add_char(out, ']');
    return next;
}

void rest_write_next(struct exchange *exchange, const char *next)
{
    struct buf *out = &exchange->answer;
    buf_add_text(out, ",\"next\":");
    if (next)
        json_write_string(out, str_of(next));
    else
        buf_add_text(out, "null");
}

static void show_list(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, no_such);
        return;
    }
    buf_add_char(&exchange->answer, '{');
    rest_write_next(exchange, rest_write_operations(exchange, &request->list));
    buf_add_char(&exchange->answer, '}');
    exchange_send(exchange, 200);
}

void rest_operations(struct exchange *exchange)
{
    uint32_t states = 0;
    size_t limit;
    const char *cursor;
    enum reason reason = REASON_NONE;
    struct str wanted = rest_query(exchange, "reason");
    if (wanted.p && (!reason_from_name(wanted, &reason) || reason == REASON_NONE)) {
        rest_refuse(exchange, PROBLEM_MALFORMED, "the parameter \"reason\" is no reason that an operation can have");
        return;
    }
    if (!read_states(exchange, &states) || !rest_page(exchange, operation_id_valid, &limit, &cursor))
        return;
    struct ledger_request *request = ask_new(exchange, LEDGER_LIST);
    request->list.tenant = exchange->caller.tenant;
    request->list.tool = rest_query(exchange, "tool").p;
    request->list.run = rest_query(exchange, "run_id").p;
    request->list.principal = rest_query(exchange, "principal").p;
    request->list.states = states;
    request->list.reason = reason;
    request->list.before = cursor;
    request->list.limit = limit;
    request->list.with_payload = true;
    ask(exchange, request, show_list);
}
