/* Approvals (design 8): what an approver looks at, and what they decide. */
#include "adapter/adapter.h"
#include "core/claims.h"
#include "door/approvals.h"
#include "door/ask.h"
#include "door/call_body.h"
#include "door/rest.h"

#include <string.h>

static const char no_such[] = "no such operation";

/* ---- decisions ---- */

void approvals_decided(struct exchange *exchange, const struct engine_reply *reply, const char *person)
{
    struct approval approval;
    if (reply->kind != REPLY_OPERATION ||
        approval_read(&exchange->arena, reply->op->approval, &approval, NULL) != ERR_NONE) {
        rest_reply(exchange, reply, false);
        return;
    }
    struct shape_view view = rest_view(exchange, reply->op, reply->tool);
    view.decision = approval_stands(&approval, person);
    view.decision_counted = !reply->replayed;
    view.approver = true;
    rest_send_operation(exchange, reply->op, reply->tool, &view);
}

static void decided(void *user, const struct engine_reply *reply)
{
    struct exchange *exchange = user;
    approvals_decided(exchange, reply, exchange->caller.principal);
}

static void decide(struct exchange *exchange, bool approve)
{
    struct engine_decision *decision = arena_zero(&exchange->arena, sizeof *decision);
    const char *via = NULL;
    const struct body_member members[] = {
        {.name = "version", .type = BODY_INT, .out = &decision->rev, .min = 1, .max = INT64_MAX},
        {.name = "note", .type = BODY_TEXT, .out = &decision->note},
        {.name = "via", .type = BODY_TEXT, .out = &via},
    };
    decision->kind = approve ? DECISION_APPROVE : DECISION_DENY;
    decision->tenant = exchange->caller.tenant;
    decision->operation = exchange->params[0];
    decision->actor = exchange->caller.principal;
    decision->scope = exchange->caller.scope;
    if (!rest_names_operation(exchange) || !rest_body(exchange, members, sizeof members / sizeof *members))
        return;
    struct problem_document problem = {.type = PROBLEM_MALFORMED};
    if (via && strcmp(via, "cli") != 0)
        body_refuse(&problem, PROBLEM_MALFORMED, "/via", "\"via\" is what onced's own command line says: \"cli\"");
    else if (!approve && (!decision->note || !decision->note[0]))
        body_refuse(&problem, PROBLEM_MALFORMED, "/note", "\"note\" must say why: the caller is told");
    else if (decision->note && strlen(decision->note) > APPROVAL_NOTE_BYTES_MAX)
        body_refuse(&problem, PROBLEM_MALFORMED, "/note", "\"note\" has more than 2000 bytes");
    if (problem.detail) {
        rest_problem(exchange, &problem);
        return;
    }
    decision->via = via ? APPROVAL_VIA_CLI : APPROVAL_VIA_REST;
    engine_decide(exchange->engine, decision, decided, exchange);
}

void rest_approve(struct exchange *exchange)
{
    decide(exchange, true);
}

void rest_deny(struct exchange *exchange)
{
    decide(exchange, false);
}

/* ---- what an approver looks at ---- */

static const struct json *arguments_of(struct exchange *exchange, const struct operation *op)
{
    struct json *value;
    if (!op->arguments.p || json_parse(&exchange->arena, op->arguments, &json_limits_kept, &value, NULL) != ERR_NONE)
        return json_object(&exchange->arena);
    return value;
}

void approvals_write_request(struct exchange *exchange, const struct operation *op, const struct tool *tool,
                             struct json_out *out)
{
    struct adapter *adapter = engine_adapter(exchange->engine);
    struct err err = {0};
    if (!tool) {
        json_out_null(out);
        return;
    }
    struct adapter_call call = {
        .tool = tool,
        .kind = ATTEMPT_CALL,
        .operation = op->id,
        .provider_key = op->provider_key,
        .tenant = op->tenant,
        .run = op->run,
        .trace = op->trace,
        .arguments = arguments_of(exchange, op),
    };
    if (adapter->ops->describe(adapter, &call, out, &err))
        json_out_text(out, err.text);
}

static void write_earlier(struct exchange *exchange, const struct approvals_history *history, struct json_out *out)
{
    json_out_array(out);
    for (size_t i = 0; i < history->earlier_count; i++) {
        const struct operation *op = history->earlier[i];
        char at[ENV_TIME_SIZE];
        env_time_text(op->completed_ms ? op->completed_ms : op->created_ms, at);
        json_out_object(out);
        json_out_member_text(out, "operation_id", op->id);
        json_out_member_text(out, "status", state_name(op->state));
        json_out_member_text(out, "reason", op->reason ? reason_name(op->reason) : NULL);
        json_out_member_int(out, "key_version", op->key_version);
        json_out_member_text(out, "principal", op->principal);
        json_out_member_text(out, "at", at);
        json_out_name(out, "arguments");
        json_out_raw(out, shape_masked(&exchange->arena, op->arguments, rest_tool(exchange, op->tool)));
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

static void write_sharing(const struct operation *op, struct json_out *out)
{
    char at[ENV_TIME_SIZE];
    env_time_text(op->completed_ms ? op->completed_ms : op->created_ms, at);
    json_out_object(out);
    json_out_member_text(out, "operation_id", op->id);
    json_out_member_text(out, "tool", op->tool);
    json_out_member_text(out, "status", state_name(op->state));
    json_out_member_text(out, "reason", op->reason ? reason_name(op->reason) : NULL);
    json_out_member_text(out, "principal", op->principal);
    json_out_member_text(out, "at", at);
    json_out_end_object(out);
}

void approvals_write_entities(const struct approvals_history *history, struct json_out *out)
{
    json_out_array(out);
    for (size_t i = 0; history->claims && i < history->claims->entity_count; i++) {
        const struct claims one = {.entities = {history->claims->entities[i]}, .entity_count = 1};
        json_out_object(out);
        json_out_member_text(out, "type", one.entities[0].type);
        json_out_member_text(out, "id", one.entities[0].id);
        json_out_name(out, "operations");
        json_out_array(out);
        for (size_t k = 0; k < history->sharing_count; k++) {
            const struct operation *op = history->sharing[k];
            if (strcmp(op->id, history->op->id) != 0 && claims_share_entity(op->claims, &one))
                write_sharing(op, out);
        }
        json_out_end_array(out);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

static void show(struct exchange *exchange, const struct approvals_history *history)
{
    const struct operation *op = history->op;
    const struct tool *tool = rest_tool(exchange, op->tool);
    struct shape_view view = rest_view(exchange, op, tool);
    struct json_out out;
    view.approver = true;
    buf_add_text(&exchange->answer, "{\"operation\":");
    shape_operation(&exchange->answer, op, tool, &view);
    buf_add_text(&exchange->answer, ",\"title\":");
    json_out_init(&out, &exchange->answer);
    json_out_text(&out, tool ? tool->title : NULL);
    buf_add_text(&exchange->answer, ",\"description\":");
    json_out_init(&out, &exchange->answer);
    json_out_text(&out, tool ? tool->description : NULL);
    buf_add_text(&exchange->answer, ",\"class\":");
    json_out_init(&out, &exchange->answer);
    json_out_text(&out, tool ? tool_class_name(tool->class) : NULL);
    buf_add_text(&exchange->answer, ",\"request\":");
    json_out_init(&out, &exchange->answer);
    approvals_write_request(exchange, op, tool, &out);
    buf_add_text(&exchange->answer, ",\"earlier\":");
    json_out_init(&out, &exchange->answer);
    write_earlier(exchange, history, &out);
    buf_add_text(&exchange->answer, ",\"entities\":");
    json_out_init(&out, &exchange->answer);
    approvals_write_entities(history, &out);
    buf_add_char(&exchange->answer, '}');
    exchange_send(exchange, 200);
}

/* ---- what came before ---- */

static void all_known(struct exchange *exchange)
{
    const struct approvals_history *history = exchange->user;
    exchange->user = history->user;
    history->known(exchange, history);
}

static void sharing_known(struct exchange *exchange, struct ledger_request *request)
{
    struct approvals_history *history = exchange->user;
    if (!request->code) {
        history->sharing = request->list.ops;
        history->sharing_count = request->list.count;
    }
    all_known(exchange);
}

static void look_at_entities(struct exchange *exchange)
{
    struct approvals_history *history = exchange->user;
    struct claims *claims = arena_zero(&exchange->arena, sizeof *claims);
    if (!claims_want_entities(history->op->claims) ||
        claims_read(&exchange->arena, history->op->claims, claims, NULL)) {
        all_known(exchange);
        return;
    }
    history->claims = claims;
    struct ledger_request *request = ask_new(exchange, LEDGER_LIST);
    request->list.tenant = history->op->tenant;
    request->list.sharing = claims;
    request->list.limit = APPROVALS_SHARING_MAX + 1;
    ask(exchange, request, sharing_known);
}

static void look_back(struct exchange *exchange, const struct operation *from);

static void earlier_known(struct exchange *exchange, struct ledger_request *request)
{
    struct approvals_history *history = exchange->user;
    if (request->code || !request->get.op || history->earlier_count == APPROVALS_EARLIER_MAX) {
        look_at_entities(exchange); /* no longer kept: the rest is enough */
        return;
    }
    history->earlier[history->earlier_count++] = request->get.op;
    look_back(exchange, request->get.op);
}

/* The versions of the key before this one, and what this is a repetition of. */
static void look_back(struct exchange *exchange, const struct operation *from)
{
    const struct approvals_history *history = exchange->user;
    const char *id = from->previous ? from->previous : from->repeat_of;
    if (!id) {
        look_at_entities(exchange);
        return;
    }
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = history->op->tenant;
    request->get.operation = id;
    ask(exchange, request, earlier_known);
}

void approvals_look_back(struct exchange *exchange, const struct operation *op,
                         void (*known)(struct exchange *exchange, const struct approvals_history *history))
{
    struct approvals_history *history = arena_zero(&exchange->arena, sizeof *history);
    history->op = op;
    history->known = known;
    history->user = exchange->user;
    exchange->user = history;
    look_back(exchange, op);
}

static void looked_up(struct exchange *exchange, struct ledger_request *request)
{
    struct err err = {0};
    if (request->code) {
        rest_ledger_problem(exchange, request, no_such);
        return;
    }
    if (!request->get.op || !request->get.op->approval.p) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "nobody was asked to approve this operation");
        return;
    }
    if (scope_check_operation(exchange->caller.scope, request->get.op, &err)) {
        rest_refuse(exchange, PROBLEM_FORBIDDEN, arena_copy_text(&exchange->arena, err.text));
        return;
    }
    approvals_look_back(exchange, request->get.op, show);
}

void rest_approval(struct exchange *exchange)
{
    if (!rest_names_operation(exchange))
        return;
    struct ledger_request *request = ask_new(exchange, LEDGER_GET);
    request->get.tenant = exchange->caller.tenant;
    request->get.operation = exchange->params[0];
    ask(exchange, request, looked_up);
}
