/* Undoing what an operation did, by a playbook of its tool (design 10.1). */
#include "core/playbook.h"
#include "door/call_body.h"
#include "door/rest.h"

#include <string.h>

#define REASON_BYTES_MAX 2000

struct wish {
    struct engine_compensation what;
    int64_t wait_ms;
    bool replayed;
};

static void show(struct exchange *exchange, const struct engine_reply *reply)
{
    const struct wish *wish = exchange->user;
    struct shape_view view = rest_view(exchange, reply->op, reply->tool);
    view.replayed = wish->replayed;
    view.with_incidents = false;
    rest_send_operation(exchange, reply->op, reply->tool, &view);
}

static void waited(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    exchange->waiter = NULL;
    if (reply->kind == REPLY_OPERATION)
        show(exchange, reply);
    else
        rest_reply(exchange, reply, false);
}

static void undone(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    struct wish *wish = exchange->user;
    if (reply->kind != REPLY_OPERATION) {
        rest_reply(exchange, reply, false);
        return;
    }
    wish->replayed = reply->replayed;
    if (wish->wait_ms == 0 || state_terminal(reply->op->state)) {
        show(exchange, reply);
        return;
    }
    const char *id = arena_copy_text(&exchange->arena, reply->op->id);
    struct waiter *waiter = engine_wait(exchange->engine, exchange->caller.tenant, id, wish->wait_ms, waited, exchange);
    if (waiter)
        exchange->waiter = waiter; /* else the reply has come, and the exchange may be another one's already */
}

void rest_compensate(struct exchange *exchange)
{
    struct wish *wish = arena_zero(&exchange->arena, sizeof *wish);
    struct engine_compensation *what = &wish->what;
    struct problem_document problem = {.type = PROBLEM_MALFORMED};
    const struct body_member members[] = {
        {.name = "playbook", .type = BODY_TEXT, .out = &what->playbook, .required = true},
        {.name = "version", .type = BODY_INT, .out = &what->rev, .min = 1, .max = INT64_MAX},
        {.name = "reason", .type = BODY_TEXT, .out = &what->reason},
        {.name = "wait_ms", .type = BODY_INT, .out = &wish->wait_ms, .min = 0, .max = ENGINE_WAIT_MS_MAX},
        {.name = "dry_run", .type = BODY_BOOL, .out = &what->dry_run},
    };
    if (!rest_names_operation(exchange) || !rest_body(exchange, members, sizeof members / sizeof *members))
        return;
    if (what->reason && strlen(what->reason) > REASON_BYTES_MAX) {
        body_refuse(&problem, PROBLEM_MALFORMED, "/reason", "\"reason\" has more than 2000 bytes");
        rest_problem(exchange, &problem);
        return;
    }
    what->tenant = exchange->caller.tenant;
    what->operation = exchange->params[0];
    what->actor = exchange->caller.principal;
    what->own_only = !rest_privileged(exchange);
    what->scope = exchange->caller.scope;
    if (exchange->headers[HEADER_TRACEPARENT].p)
        what->trace = arena_copy_str(&exchange->arena, exchange->headers[HEADER_TRACEPARENT]);
    exchange->user = wish;
    engine_compensate(exchange->engine, what, undone, exchange);
}

void rest_write_playbooks(struct json_out *out, const struct tool *tool)
{
    json_out_name(out, "playbooks");
    json_out_array(out);
    for (size_t i = 0; i < tool->playbook_count; i++) {
        const struct playbook *playbook = &tool->playbooks[i];
        json_out_object(out);
        json_out_member_text(out, "name", playbook->name);
        json_out_member_text(out, "tool", playbook->tool);
        json_out_name(out, "title");
        json_out_text(out, playbook->title);
        json_out_member_bool(out, "needs_approval", playbook->needs_approval);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}
