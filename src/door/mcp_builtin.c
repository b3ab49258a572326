/* The tools that onced offers itself: reading what is recorded, waiting for it, planning, undoing.
 *
 *   onced_status      one operation: by id, by tool and key, or the last call of a tool
 *   onced_wait        the same operation once it has ended, or as it is when the wait is over
 *   onced_plan        what a tool call would do
 *   onced_run_report  every operation of a run, what is not settled first
 *   onced_compensate  undoes an operation by a playbook of its tool: the one that changes something, and is there only
 *                     where tools that the caller may use have playbooks
 *
 * Who may see what is as over REST: operations of the tenant, results of other principals only where they are shared.
 */
#include "base/mem.h"
#include "core/playbook.h"
#include "door/call_body.h"
#include "door/caller.h"
#include "door/mcp_work.h"
#include "door/run.h"

#include <stdlib.h>

#define WAIT_DEFAULT_MS 30000
#define SEARCH_MAX      50 /* newest operations of a tool looked through for one of this conversation */
#define REPORT_MAX      50 /* operations shown of a run's report, the ones that are not settled first */

struct builtin {
    const char *name, *title, *description, *input_schema;
    size_t enabled; /* offset of the setting */
    void (*handle)(struct mcp_request *request, const struct json *arguments);
    bool undoes; /* changes something, and is there only where there are playbooks */
};

/* ---- arguments ---- */

static void refuse(struct mcp_request *request, const struct builtin *tool, const struct problem_document *problem)
{
    struct buf out;
    struct mcp_result_view view = mcp_view(request, NULL, NULL, false);
    const struct mcp_fault fault = {
        .text = problem->detail ? problem->detail : problem_type_title(problem->type),
        .pointer = problem->pointer ? problem->pointer : "",
    };
    view.tool = tool->name;
    buf_init(&out, 0);
    mcp_write_refusal(&out, &fault, &view);
    mcp_reply(request, buf_str(&out));
    buf_release(&out);
}

static const struct builtin *builtin_of(const struct mcp_request *request);

/* What models leave empty is not given. */
static const struct json *without_blanks(struct arena *arena, const struct json *arguments)
{
    if (!arguments || arguments->type == JSON_NULL)
        return json_object(arena);
    if (arguments->type != JSON_OBJECT)
        return arguments;
    struct json *copy = json_object(arena);
    for (uint32_t i = 0; i < arguments->count; i++) {
        const struct json *value = &arguments->members[i].value;
        if (value->type != JSON_NULL && !(value->type == JSON_STRING && value->text.n == 0))
            json_set(arena, copy, arguments->members[i].name, *value);
    }
    return copy;
}

/* False: answered with what is wrong, as a result that the model can act on. */
static bool read_arguments(struct mcp_request *request, const struct json *arguments, const struct body_member *members,
                           size_t count)
{
    struct problem_document problem = {0};
    if (body_read(&request->arena, without_blanks(&request->arena, arguments), members, count, &problem))
        return true;
    refuse(request, builtin_of(request), &problem);
    return false;
}

static bool refuse_argument(struct mcp_request *request, const char *pointer, const char *detail)
{
    const struct problem_document problem = {.type = PROBLEM_MALFORMED, .pointer = pointer, .detail = detail};
    refuse(request, builtin_of(request), &problem);
    return false;
}

static bool check_id(struct mcp_request *request, const char *id)
{
    return !id || operation_id_valid(id) ||
           refuse_argument(request, "/operation_id",
                           "\"operation_id\" must be op_ and 26 characters, as a result gave it");
}

/* ---- one operation ---- */

static const struct tool *tool_of(struct mcp_request *request, const char *name)
{
    return registry_find(engine_registry(request->session->door->engine), str_of(name));
}

static void answer_tombstone(struct mcp_request *request, const struct tombstone *tombstone)
{
    const struct err none = {0};
    const struct engine_reply reply = {.kind = REPLY_EXPIRED, .tombstone = tombstone, .err = &none};
    const struct mcp_result_view view = mcp_view(request, NULL, NULL, false);
    mcp_answer_reply(request, &reply, &view);
}

static void got(struct mcp_request *request, struct ledger_request *answer)
{
    const struct operation *op = answer->get.op;
    if (answer->code) {
        mcp_answer_ledger(request, answer);
        return;
    }
    if (!op) {
        answer_tombstone(request, answer->get.tombstone);
        return;
    }
    const struct err none = {0};
    const struct tool *tool = tool_of(request, op->tool);
    const struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op, .tool = tool, .err = &none};
    struct mcp_result_view view = mcp_view(request, op, tool, false);
    view.shape.with_incidents = true;
    view.shape.incidents = answer->get.incidents;
    view.shape.incident_count = answer->get.incident_count;
    mcp_answer_reply(request, &reply, &view);
}

static void get(struct mcp_request *request, const char *id)
{
    struct arena *arena;
    struct ledger_request *ledger = mcp_work_query(request, LEDGER_GET, &arena);
    ledger->get.tenant = arena_copy_text(arena, request->session->tenant);
    ledger->get.operation = arena_copy_text(arena, id);
    mcp_work_ask(request, got);
}

/* ---- onced_status ---- */

struct status {
    struct mcp_work work;
    const char *operation, *tool, *key;
    const char *conversation; /* of _meta; NULL = not known */
};

static void got_by_key(struct mcp_request *request, struct ledger_request *answer)
{
    if (answer->code)
        mcp_answer_ledger(request, answer);
    else if (answer->get_by_key.op)
        get(request, arena_copy_text(&request->arena, answer->get_by_key.op->id));
    else
        answer_tombstone(request, answer->get_by_key.tombstone);
}

static void get_by_key(struct mcp_request *request, const struct status *status)
{
    struct arena *arena;
    const char *tenant = request->session->tenant;
    struct ledger_request *ledger = mcp_work_query(request, LEDGER_GET_BY_KEY, &arena);
    ledger->get_by_key.tenant = arena_copy_text(arena, tenant);
    ledger->get_by_key.tool = arena_copy_text(arena, status->tool);
    ledger->get_by_key.key_hash = identity_key_hash(tenant, status->tool, status->key, NULL);
    mcp_work_ask(request, got_by_key);
}

/* The newest one of this conversation, when the client tells which that is; else of this principal. */
static void got_newest(struct mcp_request *request, struct ledger_request *answer)
{
    const struct status *status = request->user;
    if (answer->code) {
        mcp_answer_ledger(request, answer);
        return;
    }
    for (size_t i = 0; i < answer->list.count; i++) {
        const struct operation *op = answer->list.ops[i];
        if (status->conversation && !text_equal(op->session, status->conversation))
            continue;
        get(request, arena_copy_text(&request->arena, op->id));
        return;
    }
    answer->code = ERR_NOT_FOUND;
    mcp_answer_ledger(request, answer);
}

static void get_newest(struct mcp_request *request, const struct status *status)
{
    struct arena *arena;
    struct ledger_request *ledger = mcp_work_query(request, LEDGER_LIST, &arena);
    ledger->list.tenant = arena_copy_text(arena, request->session->tenant);
    ledger->list.principal = arena_copy_text(arena, request->session->principal);
    ledger->list.tool = arena_copy_text(arena, status->tool);
    ledger->list.limit = status->conversation ? SEARCH_MAX : 1;
    mcp_work_ask(request, got_newest);
}

/* The session coordinate that a call of this client would have now. */
static const char *conversation_of(struct mcp_request *request)
{
    static const struct tool any = {.name = "", .class = CLASS_READ};
    struct call call = {0};
    struct mcp_fault fault;
    const struct rpc_message *message = &request->message;
    return mcp_identity_read(&request->arena, message, &request->facts, &any, &call, &fault) ? call.session : NULL;
}

static void status_tool(struct mcp_request *request, const struct json *arguments)
{
    struct status *status = arena_zero(&request->arena, sizeof *status);
    const struct body_member members[] = {
        {.name = "operation_id", .type = BODY_TEXT, .out = &status->operation},
        {.name = "tool", .type = BODY_TEXT, .out = &status->tool},
        {.name = "key", .type = BODY_TEXT, .out = &status->key},
    };
    if (!read_arguments(request, arguments, members, sizeof members / sizeof *members) ||
        !check_id(request, status->operation))
        return;
    if (status->operation && (status->tool || status->key)) {
        refuse_argument(request, "/operation_id", "give either \"operation_id\" or \"tool\", not both");
        return;
    }
    if (!status->operation && !status->tool) {
        const char *last = mcp_last_operation(request->session, NULL);
        if (status->key || !last[0]) {
            refuse_argument(request, "", "give \"operation_id\", or \"tool\" for the last call of that tool");
            return;
        }
        status->operation = last;
    }
    mcp_work_begin(request, &status->work, NULL);
    if (status->operation) {
        get(request, status->operation);
    } else if (status->key) {
        get_by_key(request, status);
    } else {
        const char *last = mcp_last_operation(request->session, status->tool);
        status->conversation = last[0] ? NULL : conversation_of(request);
        if (last[0])
            get(request, last);
        else
            get_newest(request, status);
    }
}

/* ---- onced_wait ---- */

static void waited(void *user, const struct engine_reply *reply)
{
    struct mcp_request *request = user;
    struct mcp_work *work = request->user;
    work->waiter = NULL;
    mcp_work_still(request);
    struct mcp_result_view view = mcp_view(request, reply->op, reply->tool, false);
    mcp_answer_reply(request, reply, &view);
}

static void wait_tool(struct mcp_request *request, const struct json *arguments)
{
    const struct mcp_settings *settings = &request->session->door->settings;
    int64_t max_ms = settings->wait_ms_max > 0 ? settings->wait_ms_max : ENGINE_WAIT_MS_MAX;
    int64_t wait_ms = WAIT_DEFAULT_MS;
    const char *operation = NULL;
    struct mcp_work *work = arena_alloc(&request->arena, sizeof *work);
    const struct body_member members[] = {
        {.name = "operation_id", .type = BODY_TEXT, .out = &operation, .required = true},
        {.name = "wait_ms", .type = BODY_INT, .out = &wait_ms, .min = 0, .max = ENGINE_WAIT_MS_MAX},
    };
    if (!read_arguments(request, arguments, members, sizeof members / sizeof *members) || !check_id(request, operation))
        return;
    struct mcp_session *session = request->session;
    mcp_work_begin(request, work, NULL);
    mcp_work_progress(request);
    struct waiter *waiter = engine_wait(session->door->engine, session->tenant, operation,
                                        wait_ms < max_ms ? wait_ms : max_ms, waited, request);
    if (waiter)
        work->waiter = waiter; /* else the reply has come and the request is gone */
}

/* ---- onced_plan ---- */

struct plan {
    struct mcp_work work;
    struct engine_call call;
};

static void planned(void *user, const struct engine_reply *reply)
{
    struct mcp_request *request = user;
    struct plan *plan = request->user;
    plan->work.waiter = NULL;
    struct mcp_result_view view = mcp_view(request, reply->op, reply->tool, false);
    view.tool = plan->call.tool;
    mcp_answer_reply(request, reply, &view);
}

/* The call as tools/call would read it: same _meta and headers, the tool's own name and arguments. */
static bool read_planned(struct mcp_request *request, const struct tool *tool, const struct json *arguments,
                         struct call *call)
{
    struct arena *arena = &request->arena;
    struct mcp_fault fault = {0};
    struct rpc_message message = request->message;
    struct json *params = json_object(arena);
    for (uint32_t i = 0; i < message.params->count; i++)
        json_set(arena, params, message.params->members[i].name, message.params->members[i].value);
    json_set(arena, params, STR("arguments"), arguments ? *arguments : *json_object(arena));
    message.params = params;
    if (mcp_identity_read(arena, &message, &request->facts, tool, call, &fault))
        return true;
    if (fault.pointer)
        refuse_argument(request, arena_printf(arena, "/arguments%s", fault.pointer), fault.text);
    else
        mcp_reply_error(request, fault.code, STR_NONE, "%s", fault.text);
    return false;
}

static void plan_tool(struct mcp_request *request, const struct json *arguments)
{
    struct mcp_session *session = request->session;
    struct plan *plan = arena_zero(&request->arena, sizeof *plan);
    const struct json *given = NULL;
    const struct body_member members[] = {
        {.name = "tool", .type = BODY_TEXT, .out = &plan->call.tool, .required = true},
        {.name = "arguments", .type = BODY_ANY, .out = &given},
    };
    if (!read_arguments(request, arguments, members, sizeof members / sizeof *members))
        return;
    if (given && given->type != JSON_OBJECT) {
        refuse_argument(request, "/arguments", "\"arguments\" must be an object: the arguments of the planned call");
        return;
    }
    const struct tool *tool = mcp_find_tool(request, str_of(plan->call.tool));
    if (!tool)
        return;
    if (tool->forwarded) {
        refuse_argument(request, "/tool",
                        "this tool is handed through to its server as it is: there is nothing to plan");
        return;
    }
    if (!read_planned(request, tool, given, &plan->call.call))
        return;
    plan->call.call.tenant = session->tenant;
    plan->call.call.principal = session->principal;
    plan->call.scope = session->scope;
    plan->call.dry_run = true;
    plan->call.wait_ms = -1;
    mcp_work_begin(request, &plan->work, NULL);
    struct waiter *waiter = engine_call(session->door->engine, &plan->call, planned, request);
    if (waiter)
        plan->work.waiter = waiter;
}

/* ---- onced_run_report ---- */

struct report {
    struct mcp_work work;
    const char *run;
    struct run_summary summary;
    struct buf open, ended; /* operations as JSON, without the brackets */
    size_t open_count, ended_count;
};

static void report_release(struct report *report)
{
    buf_release(&report->open);
    buf_release(&report->ended);
}

/* Short: what a model needs in order to say what was done. */
static void add_operation(struct mcp_request *request, struct buf *out, const struct operation *op)
{
    const struct tool *tool = tool_of(request, op->tool);
    struct json_out json;
    if (out->n > 0)
        buf_add_char(out, ',');
    json_out_init(&json, out);
    json_out_object(&json);
    json_out_member_text(&json, "operation_id", op->id);
    json_out_member_text(&json, "tool", op->tool);
    json_out_member_text(&json, "status", state_name(op->state));
    json_out_member_text(&json, "reason", op->reason != REASON_NONE ? reason_name(op->reason) : NULL);
    json_out_member_text(&json, "step_id", op->step);
    json_out_member_text(&json, "principal", op->principal);
    json_out_member_text(&json, "external_id", op->external_id);
    json_out_member_text(&json, "next_action", next_action_name(shape_next_action(op)));
    json_out_member_text(&json, "safe_user_message", shape_message(op, tool));
    json_out_end_object(&json);
}

static bool settled_well(const struct operation *op)
{
    return state_terminal(op->state) && !op->duplicate_seen;
}

static void report_count(struct mcp_request *request, struct report *report, const struct operation *op)
{
    run_count(&report->summary, op);
    if (!settled_well(op) && report->open_count < REPORT_MAX) {
        report->open_count++;
        add_operation(request, &report->open, op);
    } else if (settled_well(op) && report->ended_count < REPORT_MAX) {
        report->ended_count++;
        add_operation(request, &report->ended, op);
    }
}

static void report_words(struct buf *out, const struct report *report)
{
    const struct run_summary *run = &report->summary;
    buf_printf(out,
               "%s Run %s: %lld calls that change something; done %lld, proven not done %lld, not ended %lld, "
               "unknown %lld.",
               run_message(run), report->run, (long long)run->total, (long long)run->succeeded, (long long)run->failed,
               (long long)run->open, (long long)run->unknown);
    if (run->total > 0 && !run_complete(run))
        buf_add_text(out, "\nDo not tell the user that everything is done. What is not settled:");
    else if (run->failed > 0)
        buf_add_text(out, "\nDo not tell the user that everything is done: see what was not done.");
}

static void report_finish(struct mcp_request *request, struct report *report)
{
    struct buf shape, text, out;
    struct json_out json;
    buf_init(&shape, 0);
    buf_init(&text, 0);
    buf_init(&out, 0);
    json_out_init(&json, &shape);
    json_out_object(&json);
    json_out_member_text(&json, "run_id", report->run);
    run_write(&report->summary, &json);
    bool all = report->summary.total == (int64_t)(report->open_count + report->ended_count);
    json_out_member_bool(&json, "all_shown", all && !report->summary.cut);
    json_out_name(&json, "unresolved"), json_out_raw(&json, STR("["));
    buf_add_str(&shape, buf_str(&report->open));
    buf_add_text(&shape, "],\"ended\":[");
    buf_add_str(&shape, buf_str(&report->ended));
    buf_add_text(&shape, "]}");
    report_words(&text, report);
    buf_add_text(&text, "\n");
    buf_add_str(&text, buf_str(&shape));

    json_out_init(&json, &out);
    json_out_object(&json);
    if (request->era == MCP_ERA_MODERN)
        json_out_member_text(&json, "resultType", "complete");
    json_out_name(&json, "content");
    json_out_array(&json);
    json_out_object(&json);
    json_out_member_text(&json, "type", "text");
    json_out_name(&json, "text"), json_out_str(&json, buf_str(&text));
    json_out_end_object(&json);
    json_out_end_array(&json);
    json_out_name(&json, "structuredContent"), json_out_raw(&json, buf_str(&shape));
    json_out_member_bool(&json, "isError", false);
    json_out_end_object(&json);
    mcp_reply(request, buf_str(&out));
    buf_release(&shape);
    buf_release(&text);
    buf_release(&out);
}

static void report_walk(struct mcp_request *request, const char *after);

static void report_page(struct mcp_request *request, struct ledger_request *answer)
{
    struct report *report = request->user;
    const struct ledger_list *list = &answer->list;
    if (answer->code) {
        mcp_answer_ledger(request, answer);
        return;
    }
    for (size_t i = 0; i < list->count; i++)
        report_count(request, report, list->ops[i]);
    report->summary.cut = list->next && report->summary.total >= RUN_OPERATIONS_MAX;
    if (list->next && !report->summary.cut)
        report_walk(request, arena_copy_text(&request->arena, list->next));
    else
        report_finish(request, report);
}

static void report_walk(struct mcp_request *request, const char *after)
{
    const struct report *report = request->user;
    struct arena *arena;
    struct ledger_request *ledger = mcp_work_query(request, LEDGER_LIST, &arena);
    ledger->list.tenant = arena_copy_text(arena, request->session->tenant);
    ledger->list.run = arena_copy_text(arena, report->run);
    ledger->list.oldest_first = true;
    ledger->list.before = arena_copy_text(arena, after);
    ledger->list.limit = LEDGER_LIST_MAX;
    mcp_work_ask(request, report_page);
}

static void report_let_go(struct mcp_request *request)
{
    report_release(request->user);
    mcp_work_release(request);
}

static void report_tool(struct mcp_request *request, const struct json *arguments)
{
    struct report *report = arena_zero(&request->arena, sizeof *report);
    const struct body_member members[] = {{.name = "run_id", .type = BODY_TEXT, .out = &report->run}};
    if (!read_arguments(request, arguments, members, sizeof members / sizeof *members))
        return;
    if (!report->run)
        report->run = arena_copy_str(&request->arena, json_get_text(request->meta, MCP_META_RUN));
    if (!report->run && request->facts.run_id.p)
        report->run = arena_copy_str(&request->arena, request->facts.run_id);
    if (!report->run) {
        refuse_argument(request, "/run_id", "\"run_id\" is missing, and the client does not tell which run this is");
        return;
    }
    mcp_work_begin(request, &report->work, NULL);
    request->release = report_let_go;
    buf_init(&report->open, 0);
    buf_init(&report->ended, 0);
    report_walk(request, NULL);
}

/* ---- onced_compensate ---- */

#define PLAYBOOKS_SHOWN 40 /* in its description */

/* The engine has no way of taking a request back: whoever it answers may be gone by then. */
struct undo_call {
    struct mcp_request *request; /* NULL = gone */
};

struct undo {
    struct mcp_work work;
    struct undo_call *call; /* NULL = answered */
    bool replayed;
    int64_t wait_ms;
};

static void undo_answer(struct mcp_request *request, const struct engine_reply *reply, bool replayed)
{
    struct engine_reply told = *reply;
    struct mcp_result_view view = mcp_view(request, reply->op, reply->tool, false);
    told.replayed = replayed;
    view.shape.replayed = replayed && reply->kind == REPLY_OPERATION;
    mcp_answer_reply(request, &told, &view);
}

static void undo_waited(void *user, const struct engine_reply *reply)
{
    struct mcp_request *request = user;
    struct undo *undo = request->user;
    undo->work.waiter = NULL;
    mcp_work_still(request);
    undo_answer(request, reply, undo->replayed);
}

static void undo_admitted(void *user, const struct engine_reply *reply)
{
    struct undo_call *call = user;
    struct mcp_request *request = call->request;
    free(call);
    if (!request)
        return;
    struct undo *undo = request->user;
    undo->call = NULL;
    undo->replayed = reply->replayed;
    if (reply->kind != REPLY_OPERATION || state_terminal(reply->op->state) ||
        reply->op->reason == REASON_AWAITING_APPROVAL) {
        undo_answer(request, reply, undo->replayed);
        return;
    }
    mcp_work_progress(request);
    const char *id = arena_copy_text(&request->arena, reply->op->id);
    struct waiter *waiter =
        engine_wait(request->session->door->engine, request->session->tenant, id, undo->wait_ms, undo_waited, request);
    if (waiter)
        undo->work.waiter = waiter; /* else the reply has come and the request is gone */
}

static void undo_let_go(struct mcp_request *request)
{
    struct undo *undo = request->user;
    if (undo->call)
        undo->call->request = NULL;
    mcp_work_release(request);
}

static void compensate_tool(struct mcp_request *request, const struct json *arguments)
{
    const struct mcp_session *session = request->session;
    const struct mcp_settings *settings = &session->door->settings;
    int64_t max_ms = settings->wait_ms_max > 0 ? settings->wait_ms_max : ENGINE_WAIT_MS_MAX;
    struct undo *undo = arena_zero(&request->arena, sizeof *undo);
    struct engine_compensation what = {
        .tenant = session->tenant,
        .actor = session->principal,
        .own_only = session->role != ROLE_OPERATOR && session->role != ROLE_ADMIN,
        .scope = session->scope,
    };
    const struct body_member members[] = {
        {.name = "operation_id", .type = BODY_TEXT, .out = &what.operation, .required = true},
        {.name = "playbook", .type = BODY_TEXT, .out = &what.playbook, .required = true},
        {.name = "reason", .type = BODY_TEXT, .out = &what.reason},
    };
    if (!read_arguments(request, arguments, members, sizeof members / sizeof *members) ||
        !check_id(request, what.operation))
        return;
    mcp_work_begin(request, &undo->work, NULL);
    request->release = undo_let_go;
    undo->wait_ms = WAIT_DEFAULT_MS < max_ms ? WAIT_DEFAULT_MS : max_ms;
    undo->call = mem_zero(sizeof *undo->call);
    undo->call->request = request;
    engine_compensate(session->door->engine, &what, undo_admitted, undo->call);
}

static bool has_playbooks(const struct mcp_session *session, const struct registry *registry, const struct tool *tool)
{
    return tool->playbook_count > 0 && caller_may_use(registry, session->principal, session->scope, tool);
}

static bool any_playbooks(const struct mcp_session *session)
{
    const struct registry *registry = engine_registry(session->door->engine);
    for (size_t i = 0; i < registry_tool_count(registry); i++)
        if (has_playbooks(session, registry, registry_tool_at(registry, i)))
            return true;
    return false;
}

/* "payment.create: refund (Pay it back), void". */
static void write_playbooks(const struct mcp_session *session, struct buf *out)
{
    const struct registry *registry = engine_registry(session->door->engine);
    size_t shown = 0;
    for (size_t i = 0; i < registry_tool_count(registry) && shown < PLAYBOOKS_SHOWN; i++) {
        const struct tool *tool = registry_tool_at(registry, i);
        if (!has_playbooks(session, registry, tool))
            continue;
        buf_printf(out, "%s%s:", shown ? "; " : " Playbooks by tool: ", tool->name);
        for (size_t k = 0; k < tool->playbook_count && shown < PLAYBOOKS_SHOWN; k++, shown++) {
            const struct playbook *playbook = &tool->playbooks[k];
            buf_printf(out, "%s %s", k ? "," : "", playbook->name);
            if (playbook->title)
                buf_printf(out, " (%.100s)", playbook->title);
        }
    }
    buf_add_char(out, '.');
}

/* ---- the table ---- */

static const struct builtin builtins[] = {
    {"onced_status", "Status of a call",
     "What is known about an earlier tool call: whether it was done, and its result. Name the operation "
     "(operation_id), or the tool for its last call in this conversation. Changes nothing; ask here instead of calling "
     "a tool again.",
     "{\"type\":\"object\",\"properties\":{"
     "\"operation_id\":{\"type\":\"string\",\"pattern\":\"^op_[0-9A-HJKMNP-TV-Z]{26}$\","
     "\"description\":\"as an earlier result gave it\"},"
     "\"tool\":{\"type\":\"string\",\"description\":\"instead of operation_id: the last call of this tool\"},"
     "\"key\":{\"type\":\"string\",\"description\":\"with tool: the call with this idempotency key\"}},"
     "\"additionalProperties\":false}",
     offsetof(struct mcp_settings, tool_status), status_tool},
    {"onced_wait", "Wait for a call",
     "Waits until an earlier tool call has ended and gives its result, or says that it has not ended yet. Changes "
     "nothing; use it whenever a result says \"wait\".",
     "{\"type\":\"object\",\"properties\":{"
     "\"operation_id\":{\"type\":\"string\",\"pattern\":\"^op_[0-9A-HJKMNP-TV-Z]{26}$\","
     "\"description\":\"as the result gave it\"},"
     "\"wait_ms\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120000,"
     "\"description\":\"longest wait; default 30000\"}},"
     "\"required\":[\"operation_id\"],\"additionalProperties\":false}",
     offsetof(struct mcp_settings, tool_wait), wait_tool},
    {"onced_plan", "Plan a call",
     "Says what a tool call would do, without doing it: whether it would run or is known already, what identifies it, "
     "and the request that would be sent.",
     "{\"type\":\"object\",\"properties\":{"
     "\"tool\":{\"type\":\"string\"},"
     "\"arguments\":{\"type\":\"object\",\"description\":\"of the planned call\"}},"
     "\"required\":[\"tool\"],\"additionalProperties\":false}",
     offsetof(struct mcp_settings, tool_plan), plan_tool},
    {"onced_run_report", "Report of a run",
     "What really happened in a run: every call that changes something, what is not settled first. Read it before "
     "telling the user that everything is done.",
     "{\"type\":\"object\",\"properties\":{"
     "\"run_id\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":256,"
     "\"description\":\"default: the run that this client is in, when it tells\"}},"
     "\"additionalProperties\":false}",
     offsetof(struct mcp_settings, tool_run_report), report_tool},
    {"onced_compensate", "Undo a call",
     "Undoes what an earlier tool call did, by one of the playbooks that its tool has; nothing else can be undone. "
     "Asked for twice, it is done once.",
     "{\"type\":\"object\",\"properties\":{"
     "\"operation_id\":{\"type\":\"string\",\"pattern\":\"^op_[0-9A-HJKMNP-TV-Z]{26}$\","
     "\"description\":\"of the call that is to be undone, as its result gave it\"},"
     "\"playbook\":{\"type\":\"string\",\"description\":\"name of one of its tool's playbooks\"},"
     "\"reason\":{\"type\":\"string\",\"maxLength\":2000,\"description\":\"why; kept with both operations\"}},"
     "\"required\":[\"operation_id\",\"playbook\"],\"additionalProperties\":false}",
     offsetof(struct mcp_settings, tool_compensate), compensate_tool, true},
};
#define BUILTINS (sizeof builtins / sizeof *builtins)

static bool enabled(const struct mcp_settings *settings, const struct builtin *tool)
{
    return *(const bool *)((const char *)settings + tool->enabled);
}

static const struct builtin *find(const struct mcp_session *session, struct str name)
{
    for (size_t i = 0; i < BUILTINS; i++) {
        if (str_is(name, builtins[i].name) && enabled(&session->door->settings, &builtins[i]))
            return builtins[i].undoes && !any_playbooks(session) ? NULL : &builtins[i];
    }
    return NULL;
}

static const struct builtin *builtin_of(const struct mcp_request *request)
{
    return find(request->session, json_get_text(request->message.params, "name"));
}

bool mcp_builtin_call(struct mcp_request *request, struct str name, const struct json *arguments)
{
    const struct builtin *tool = find(request->session, name);
    if (tool)
        tool->handle(request, arguments);
    return tool != NULL;
}

static void write_description(const struct mcp_session *session, const struct builtin *tool, struct json_out *out)
{
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(&text, tool->description);
    if (tool->undoes)
        write_playbooks(session, &text);
    json_out_name(out, "description");
    json_out_text(out, text.p);
    buf_release(&text);
}

void mcp_builtin_list(struct mcp_request *request, struct json_out *out)
{
    const struct mcp_session *session = request->session;
    for (size_t i = 0; i < BUILTINS; i++) {
        const struct builtin *tool = &builtins[i];
        if (!enabled(&session->door->settings, tool) || (tool->undoes && !any_playbooks(session)))
            continue;
        json_out_object(out);
        json_out_member_text(out, "name", tool->name);
        json_out_member_text(out, "title", tool->title);
        write_description(session, tool, out);
        json_out_name(out, "inputSchema"), json_out_raw(out, str_of(tool->input_schema));
        json_out_name(out, "annotations");
        json_out_object(out);
        json_out_member_text(out, "title", tool->title);
        json_out_member_bool(out, "readOnlyHint", !tool->undoes);
        json_out_member_bool(out, "destructiveHint", tool->undoes);
        json_out_member_bool(out, "idempotentHint", true);
        json_out_member_bool(out, "openWorldHint", tool->undoes);
        json_out_end_object(out);
        json_out_end_object(out);
    }
}
