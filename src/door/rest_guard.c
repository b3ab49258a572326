/* Guard mode over HTTP (design 11.2): /v1/guard/{tool}/begin, heartbeat, complete and fail.
 *
 *   begin answers {"decision": …, "lease": {…} | null, "operation": {…}}; refusals are the problem documents of calls.
 */
#include "door/call_body.h"
#include "door/rest.h"

#include <string.h>

/* ---- begin ---- */

/* What the caller is to do, in one word. */
static const char *decision_of(const struct engine_reply *reply)
{
    const struct operation *op = reply->op;
    if (reply->lease)
        return "execute";
    switch (op->state) {
    case STATE_PLANNED:
        if (op->reason == REASON_AWAITING_APPROVAL)
            return "approval_required";
        return "wait";
    case STATE_REJECTED: return op->reason == REASON_DENIED ? "denied" : "replay";
    case STATE_UNKNOWN_OUTCOME: return "unknown";
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_FAILED_PERMANENT:
    case STATE_COMPENSATING:
    case STATE_COMPENSATED: return "replay";
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE: break;
    }
    return "wait";
}

static int status_of(const struct engine_reply *reply)
{
    if (reply->lease)
        return 201;
    return state_terminal(reply->op->state) ? 200 : 202;
}

static void write_lease(struct exchange *exchange, const struct engine_reply *reply)
{
    struct buf *out = &exchange->answer;
    struct json_out json;
    if (!reply->lease) {
        buf_add_text(out, "null");
        return;
    }
    json_out_init(&json, out);
    json_out_object(&json);
    json_out_member_text(&json, "token", reply->lease);
    json_out_member_text(&json, "idempotency_key", reply->op->provider_key);
    json_out_member_int(&json, "lease_ms", reply->tool ? reply->tool->guard_lease_ms : 0);
    json_out_end_object(&json);
    out->n--; /* one member more, which json_out cannot write */
    buf_add_text(out, ",\"expires_at\":");
    shape_time(out, reply->op->lease_until_ms);
    buf_add_char(out, '}');
}

static void send_guard(struct exchange *exchange, const struct engine_reply *reply, const char *decision)
{
    struct buf *out = &exchange->answer;
    struct shape_view view = rest_view(exchange, reply->op, reply->tool);
    view.own_call = true;
    view.replayed = reply->replayed;
    view.other_arguments = reply->other_arguments;
    view.withheld = false; /* the engine has decided (REPLY_NOT_SHARED) */
    buf_printf(out, "{\"decision\":\"%s\",\"lease\":", decision);
    write_lease(exchange, reply);
    buf_add_text(out, ",\"operation\":");
    shape_operation(out, reply->op, reply->tool, &view);
    buf_add_char(out, '}');
    memcpy(exchange->operation_id, reply->op->id, sizeof exchange->operation_id);
    exchange->location = true;
    exchange->replayed = reply->replayed && state_terminal(reply->op->state);
    int status = status_of(reply);
    if (status == 202) {
        int64_t ms = shape_retry_after_ms(reply->op, exchange_now_ms(exchange));
        exchange->retry_after_s = ms > 0 ? (int)((ms + 999) / 1000) : 1;
    }
    exchange_send(exchange, status);
}

static void begun(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    if (reply->kind != REPLY_OPERATION) {
        rest_reply(exchange, reply, true);
        return;
    }
    exchange->waiter = NULL;
    send_guard(exchange, reply, decision_of(reply));
}

void rest_guard_begin(struct exchange *exchange)
{
    struct call_headers given;
    struct problem_document problem;
    struct engine_call *call = arena_alloc(&exchange->arena, sizeof *call);
    if (!rest_call_headers(exchange, &given))
        return;
    if (!guard_body_read(&exchange->arena, buf_str(&exchange->body), &given, exchange->params[0], call, &problem)) {
        rest_problem(exchange, &problem);
        return;
    }
    rest_call_begin(exchange, call, begun);
}

/* ---- what the holder of a lease says ---- */

static void told(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    if (reply->kind == REPLY_OPERATION)
        send_guard(exchange, reply, reply->lease ? "execute" : decision_of(reply));
    else if (reply->kind == REPLY_NOT_FOUND)
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such lease of this tool");
    else
        rest_reply(exchange, reply, false);
}

static struct engine_guard *word_new(struct exchange *exchange, enum guard_word word)
{
    struct engine_guard *guard = arena_zero(&exchange->arena, sizeof *guard);
    const struct tool *tool = rest_tool(exchange, exchange->params[0]);
    guard->word = word;
    guard->tenant = exchange->caller.tenant;
    guard->tool = exchange->params[0];
    guard->actor = exchange->caller.principal;
    return tool && !rest_may_use(exchange, tool) ? NULL : guard;
}

void rest_guard_heartbeat(struct exchange *exchange)
{
    struct engine_guard *guard = word_new(exchange, GUARD_HEARTBEAT);
    if (!guard)
        return;
    const struct body_member members[] = {
        {.name = "lease", .type = BODY_TEXT, .out = &guard->lease, .required = true},
    };
    if (rest_body(exchange, members, sizeof members / sizeof *members))
        engine_guard(exchange->engine, guard, told, exchange);
}

void rest_guard_complete(struct exchange *exchange)
{
    struct engine_guard *guard = word_new(exchange, GUARD_COMPLETE);
    const struct json *result = NULL;
    if (!guard)
        return;
    const struct body_member members[] = {
        {.name = "lease", .type = BODY_TEXT, .out = &guard->lease, .required = true},
        {.name = "result", .type = BODY_ANY, .out = &result},
        {.name = "external_id", .type = BODY_TEXT, .out = &guard->external_id},
        {.name = "noop", .type = BODY_BOOL, .out = &guard->noop},
    };
    if (!rest_body(exchange, members, sizeof members / sizeof *members))
        return;
    guard->result = json_to_text(&exchange->arena, result);
    engine_guard(exchange->engine, guard, told, exchange);
}

static bool check_failure(struct exchange *exchange, const struct engine_guard *guard, const char *effect,
                          const struct json *error)
{
    struct problem_document problem;
    bool ok = true;
    if (strcmp(effect, "none") != 0 && strcmp(effect, "unknown") != 0)
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/effect",
                         "\"effect\" must be \"none\" (it is proven that nothing happened) or \"unknown\"");
    else if (guard->retry && !guard->no_effect)
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/retry",
                         "what may have happened is not to be tried again: \"retry\" goes with \"effect\": \"none\"");
    else if (error && (error->type != JSON_OBJECT || !json_get_text(error, "message").p))
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/error", "\"error\" must be an object with a \"message\"");
    if (!ok)
        rest_problem(exchange, &problem);
    return ok;
}

void rest_guard_fail(struct exchange *exchange)
{
    struct engine_guard *guard = word_new(exchange, GUARD_FAIL);
    const char *effect = NULL;
    const struct json *error = NULL;
    if (!guard)
        return;
    const struct body_member members[] = {
        {.name = "lease", .type = BODY_TEXT, .out = &guard->lease, .required = true},
        {.name = "effect", .type = BODY_TEXT, .out = &effect, .required = true},
        {.name = "retry", .type = BODY_BOOL, .out = &guard->retry},
        {.name = "error", .type = BODY_ANY, .out = &error},
    };
    if (!rest_body(exchange, members, sizeof members / sizeof *members))
        return;
    guard->no_effect = strcmp(effect, "none") == 0;
    if (!check_failure(exchange, guard, effect, error))
        return;
    guard->error = json_to_text(&exchange->arena, error);
    guard->detail = error ? arena_copy_str(&exchange->arena, json_get_text(error, "message")) : NULL;
    engine_guard(exchange->engine, guard, told, exchange);
}
