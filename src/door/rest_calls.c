/* POST /v1/calls, and what people decide about operations. */
#include "door/ask.h"
#include "door/call_body.h"
#include "door/rest.h"

#include <string.h>

static void called(void *user, const struct engine_reply *reply)
{
    rest_reply(user, reply, true);
}

/* A fact that came twice in the headers cannot be trusted to be one. */
static bool headers_single(struct exchange *exchange)
{
    static const enum header single[] = {HEADER_IDEMPOTENCY_KEY, HEADER_RUN_ID,  HEADER_STEP_ID,
                                         HEADER_SESSION_ID,      HEADER_CALL_ID, HEADER_PREFER};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        if (!(exchange->repeated & (uint32_t)1 << single[i]))
            continue;
        rest_refuse(exchange, PROBLEM_MALFORMED,
                    arena_printf(&exchange->arena, "the header %s is there more than once", header_name(single[i])));
        return false;
    }
    return true;
}

bool rest_call_headers(struct exchange *exchange, struct call_headers *given)
{
    const struct str *headers = exchange->headers;
    *given = (struct call_headers){
        .idempotency_key = headers[HEADER_IDEMPOTENCY_KEY],
        .run_id = headers[HEADER_RUN_ID],
        .step_id = headers[HEADER_STEP_ID],
        .session_id = headers[HEADER_SESSION_ID],
        .call_id = headers[HEADER_CALL_ID],
        .traceparent = headers[HEADER_TRACEPARENT],
        .prefer = headers[HEADER_PREFER],
    };
    return headers_single(exchange);
}

void rest_call_begin(struct exchange *exchange, struct engine_call *call, engine_reply_fn *reply)
{
    const struct tool *tool = rest_tool(exchange, call->tool);
    if (tool && !rest_may_use(exchange, tool))
        return;
    call->call.tenant = exchange->caller.tenant;
    call->call.principal = exchange->caller.principal;
    call->scope = exchange->caller.scope;
    exchange->user = (void *)(uintptr_t)call->tool;
    struct waiter *waiter = engine_call(exchange->engine, call, reply, exchange);
    if (waiter)
        exchange->waiter = waiter; /* else the reply has come, and the exchange may be another one's already */
}

void rest_call(struct exchange *exchange)
{
    struct call_headers given;
    struct problem_document problem;
    struct engine_call *call = arena_alloc(&exchange->arena, sizeof *call);
    if (!rest_call_headers(exchange, &given))
        return;
    if (!call_body_read(&exchange->arena, buf_str(&exchange->body), &given, exchange_now_ms(exchange), call,
                        &problem)) {
        rest_problem(exchange, &problem);
        return;
    }
    rest_call_begin(exchange, call, called);
}

/* ---- decisions ---- */

static void decided(void *user, const struct engine_reply *reply)
{
    rest_reply(user, reply, false);
}

static struct engine_decision *decision_new(struct exchange *exchange)
{
    struct engine_decision *decision = arena_zero(&exchange->arena, sizeof *decision);
    decision->tenant = exchange->caller.tenant;
    decision->operation = exchange->params[0];
    decision->actor = exchange->caller.principal;
    decision->scope = exchange->caller.scope;
    return decision;
}

static bool check_resolution(struct exchange *exchange, const struct engine_decision *decision,
                             const struct json *result, bool retry_given)
{
    struct problem_document problem;
    bool ok = true;
    if (decision->happened && retry_given && decision->allow_retry)
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/retry",
                         "what happened is not to be tried again: \"retry\" goes "
                         "with \"happened\": false");
    else if (!decision->happened && decision->external_id)
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/external_id", "\"external_id\" goes with \"happened\": true");
    else if (!decision->happened && result)
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/result", "\"result\" goes with \"happened\": true");
    else if (!decision->note[0])
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/note", "\"note\" must say what the finding rests on");
    if (!ok)
        rest_problem(exchange, &problem);
    return ok;
}

void rest_resolve(struct exchange *exchange)
{
    struct engine_decision *decision = decision_new(exchange);
    const struct json *result = NULL;
    bool retry_given = false;
    const struct body_member members[] = {
        {.name = "version", .type = BODY_INT, .out = &decision->rev, .required = true, .min = 1, .max = INT64_MAX},
        {.name = "happened", .type = BODY_BOOL, .out = &decision->happened, .required = true},
        {.name = "note", .type = BODY_TEXT, .out = &decision->note, .required = true},
        {.name = "external_id", .type = BODY_TEXT, .out = &decision->external_id},
        {.name = "result", .type = BODY_ANY, .out = &result},
        {.name = "retry", .type = BODY_BOOL, .out = &decision->allow_retry, .given = &retry_given},
    };
    if (!rest_names_operation(exchange) || !rest_body(exchange, members, sizeof members / sizeof *members) ||
        !check_resolution(exchange, decision, result, retry_given))
        return;
    decision->kind = DECISION_RESOLVE;
    if (result)
        decision->result = json_to_text(&exchange->arena, result);
    engine_decide(exchange->engine, decision, decided, exchange);
}

static struct engine_decision *short_decision(struct exchange *exchange, enum step_kind_decision kind)
{
    struct engine_decision *decision = decision_new(exchange);
    const struct body_member members[] = {
        {.name = "version", .type = BODY_INT, .out = &decision->rev, .min = 1, .max = INT64_MAX},
        {.name = "note", .type = BODY_TEXT, .out = &decision->note},
    };
    if (!rest_names_operation(exchange) || !rest_body(exchange, members, sizeof members / sizeof *members))
        return NULL;
    decision->kind = kind;
    return decision;
}

void rest_retry(struct exchange *exchange)
{
    struct engine_decision *decision = short_decision(exchange, DECISION_RETRY);
    if (decision)
        engine_decide(exchange->engine, decision, decided, exchange);
}

/* An agent may cancel what it called itself. */
static void owner_known(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code)
        rest_ledger_problem(exchange, request, "no such operation");
    else if (!request->get.op)
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, "the operation has ended; only the fact is still kept");
    else if (!text_equal(request->get.op->principal, exchange->caller.principal))
        rest_refuse(exchange, PROBLEM_FORBIDDEN, "only the principal that called it, or an operator, may cancel it");
    else
        engine_decide(exchange->engine, exchange->user, decided, exchange);
}

void rest_cancel(struct exchange *exchange)
{
    struct engine_decision *decision = short_decision(exchange, DECISION_CANCEL);
    if (!decision)
        return;
    if (rest_privileged(exchange)) {
        engine_decide(exchange->engine, decision, decided, exchange);
        return;
    }
    exchange->user = decision;
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = exchange->caller.tenant;
    request->get.operation = decision->operation;
    ask(exchange, request, owner_known);
}
