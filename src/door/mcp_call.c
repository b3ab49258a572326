/* tools/call: from the request to the engine and back.
 *
 *   built-in ──► mcp_builtin.c
 *   later round of a server's question, forwarded tool ──► mcp_forward.c
 *   later round of a question about an approval ──► decision ─► as below (mcp_approve.c)
 *   all else ─► identity ─► engine_call ─┬─ reply in time ──────────► result
 *                                        ├─ waits for people, and the client's user is one ─► a form, decision ─►
 * result ├─ client wants a task ────► task (mcp_task.c) └─ wait over ──────────────► result that says "wait"
 *
 * A client that cancels or goes gives up waiting, no more: what may have left goes on and is recorded. Only what
 * certainly has not left yet is cancelled with the call. */
#include "base/log.h"
#include "base/mem.h"
#include "door/mcp_approve.h"
#include "door/mcp_work.h"

#include <stdlib.h>

/* ---- what a session called last ---- */

#define LAST_CALLS_MAX 64 /* tools remembered per session; the oldest one gives way */

struct mcp_calls {
    struct last_call {
        char tool[MCP_TOOL_NAME_MAX + 1], operation[OPERATION_ID_SIZE];
        uint64_t order; /* 0 = free */
    } last[LAST_CALLS_MAX];
    uint64_t order;
};

static void remember(struct mcp_session *session, const char *tool, const char *operation)
{
    if (session->ephemeral || !operation[0] || strlen(tool) > MCP_TOOL_NAME_MAX)
        return;
    if (!session->calls)
        session->calls = arena_zero(&session->arena, sizeof *session->calls);
    struct mcp_calls *calls = session->calls;
    struct last_call *place = &calls->last[0];
    for (size_t i = 0; i < LAST_CALLS_MAX; i++) {
        struct last_call *candidate = &calls->last[i];
        if (candidate->order && strcmp(candidate->tool, tool) == 0) {
            place = candidate;
            break;
        }
        if (candidate->order < place->order)
            place = candidate;
    }
    snprintf(place->tool, sizeof place->tool, "%s", tool);
    memcpy(place->operation, operation, OPERATION_ID_SIZE);
    place->order = ++calls->order;
}

const char *mcp_last_operation(const struct mcp_session *session, const char *tool)
{
    const struct last_call *found = NULL;
    for (size_t i = 0; session->calls && i < LAST_CALLS_MAX; i++) {
        const struct last_call *call = &session->calls->last[i];
        if (call->order && (!tool || strcmp(call->tool, tool) == 0) && (!found || call->order > found->order))
            found = call;
    }
    return found ? found->operation : "";
}

void mcp_calls_end(struct mcp_session *session)
{
    session->calls = NULL; /* of the session's arena */
    mcp_tasks_session_ended(session);
}

/* ---- a call ---- */

struct tool_call {
    struct mcp_work work;
    struct engine_call call; /* the engine borrows it */
    bool task;               /* answered as a task unless it has ended */
    struct mcp_approve approve;
};

static void let_go(struct mcp_request *request)
{
    struct tool_call *call = request->user;
    mcp_approve_let_go(request, &call->approve);
    mcp_work_release(request);
}

/* ---- cancelling ---- */

struct cancelled {
    char operation[OPERATION_ID_SIZE];
    uint64_t session;
};

static void log_cancel(uint64_t session, const char *operation, const char *what)
{
    if (log_begin(LOG_INFO, "mcp_call_cancelled")) {
        log_text("operation", operation[0] ? operation : NULL);
        log_int("session", (int64_t)session);
        log_text("detail", what);
        log_end();
    }
}

static void cancel_decided(void *user, const struct engine_reply *reply)
{
    struct cancelled *cancelled = user;
    bool done = reply->kind == REPLY_OPERATION && reply->op->state == STATE_REJECTED;
    log_cancel(cancelled->session, cancelled->operation,
               done ? "nothing had left: it will not be done" : "it may have left already: it goes on and is recorded");
    free(cancelled);
}

/* Only what this call opened and nobody else waits for; the engine refuses what may have left. */
static void cancel(struct mcp_request *request)
{
    struct mcp_work *work = request->user;
    struct mcp_session *session = request->session;
    struct engine *engine = session->door->engine;
    if (!work->waiter)
        return;
    struct engine_waiting waiting = engine_waiting(work->waiter);
    struct cancelled *cancelled = mem_zero(sizeof *cancelled);
    cancelled->session = session->number;
    snprintf(cancelled->operation, sizeof cancelled->operation, "%s", waiting.operation);
    engine_caller_left(engine, work->waiter);
    work->waiter = NULL;
    if (!waiting.opened || !waiting.alone || !cancelled->operation[0]) {
        log_cancel(cancelled->session, cancelled->operation,
                   cancelled->operation[0] ? "others asked for it too: it goes on" : "the read goes on");
        free(cancelled);
        return;
    }
    const struct engine_decision decision = {
        .kind = DECISION_CANCEL,
        .tenant = session->tenant,
        .operation = cancelled->operation,
        .actor = session->principal,
        .note = "the client cancelled its call",
        .unsent_only = true,
    };
    engine_decide(engine, &decision, cancel_decided, cancelled);
}

/* ---- the reply ---- */

/* A task-augmented call has one kind of result only: what did not become an operation is an error of the request. */
static void refuse_task(struct mcp_request *request, const struct engine_reply *reply,
                        const struct mcp_result_view *view)
{
    struct buf text, data;
    buf_init(&text, 0);
    buf_init(&data, 0);
    mcp_write_result_text(&text, reply, view);
    mcp_write_result(&data, reply, view);
    mcp_reply_error(request, RPC_INVALID_PARAMS, buf_str(&data), "%s", text.p);
    buf_release(&text);
    buf_release(&data);
}

/* For the people at a client that asked for logs: which operation the call is, and how it stands. */
static void log_call(struct mcp_request *request, const struct engine_reply *reply)
{
    const struct operation *op = reply->op;
    if (request->log_level < 0 || reply->kind != REPLY_OPERATION || !op->id[0])
        return;
    struct buf data;
    struct json_out out;
    buf_init(&data, 0);
    json_out_init(&out, &data);
    json_out_object(&out);
    json_out_member_text(&out, "operation_id", op->id);
    json_out_member_text(&out, "tool", op->tool);
    json_out_member_text(&out, "status", state_name(op->state));
    json_out_member_bool(&out, "replayed", reply->replayed);
    json_out_end_object(&out);
    bool doubt = op->state == STATE_UNKNOWN_OUTCOME;
    mcp_log(request, mcp_log_level(doubt ? STR("warning") : STR("info")), "onced", buf_str(&data));
    buf_release(&data);
}

static void answer(struct mcp_request *request, const struct tool_call *call, const struct engine_reply *reply)
{
    struct mcp_fault fault;
    struct mcp_result_view view = mcp_view(request, reply->op, reply->tool, true);
    bool ended = reply->kind == REPLY_OPERATION && state_terminal(reply->op->state);
    bool must = call->task && request->era == MCP_ERA_LEGACY; /* the client asked for a task */
    view.tool = call->call.tool;
    view.shape.replayed = reply->replayed;
    view.shape.other_arguments = reply->other_arguments;
    log_call(request, reply);
    if (call->task && reply->kind == REPLY_OPERATION && (must || !ended))
        mcp_task_created(request, reply->op, reply->tool);
    else if (must && !mcp_reply_is_error(&request->arena, reply, view.tool, &fault))
        refuse_task(request, reply, &view);
    else
        mcp_answer_reply(request, reply, &view);
}

/* ---- the client's user decides ---- */

static void meanwhile(void *user, const struct engine_reply *reply);

/* While the user thinks others may decide, or the time end: then the question is withdrawn. */
static void watch(struct mcp_request *request)
{
    struct tool_call *call = request->user;
    struct waiter *waiter = engine_wait(request->session->door->engine, call->call.call.tenant, call->approve.operation,
                                        ENGINE_WAIT_MS_MAX, meanwhile, request);
    if (waiter)
        call->work.waiter = waiter; /* else the reply has come and the request may be gone */
}

static void meanwhile(void *user, const struct engine_reply *reply)
{
    struct mcp_request *request = user;
    struct tool_call *call = request->user;
    call->work.waiter = NULL;
    if (reply->kind == REPLY_OPERATION && reply->op->state == STATE_PLANNED && reply->waited_out &&
        !engine_stopping(request->session->door->engine)) {
        watch(request);
        return;
    }
    mcp_approve_let_go(request, &call->approve);
    mcp_work_still(request);
    answer(request, call, reply);
}

/* Whether the client's user was asked; then the request goes on by itself, or is gone. */
static bool ask_user(struct mcp_request *request, struct tool_call *call, const struct engine_reply *reply)
{
    bool must = call->task && request->era == MCP_ERA_LEGACY;
    bool legacy = request->era == MCP_ERA_LEGACY;
    if (must || reply->kind != REPLY_OPERATION ||
        !mcp_approve_wanted(request, reply->op, reply->tool, &call->approve) ||
        !mcp_approve_ask(request, &call->approve, reply->op, reply->tool))
        return false;
    if (legacy) {
        mcp_work_progress(request);
        watch(request);
    }
    return true;
}

static void called(void *user, const struct engine_reply *reply)
{
    struct mcp_request *request = user;
    struct tool_call *call = request->user;
    call->work.waiter = NULL;
    mcp_work_still(request);
    if (reply->op)
        remember(request->session, call->call.tool, reply->op->id);
    if (!ask_user(request, call, reply))
        answer(request, call, reply);
}

static void looked_again(void *user, const struct engine_reply *reply)
{
    struct mcp_request *request = user;
    struct tool_call *call = request->user;
    call->work.waiter = NULL;
    mcp_work_still(request);
    if (!call->approve.again || !ask_user(request, call, reply))
        answer(request, call, reply);
}

/* With a decision the call waits for its end like any other; without one it is answered as it stands. */
static void user_answered(struct mcp_request *request)
{
    struct tool_call *call = request->user;
    struct engine *engine = request->session->door->engine;
    if (call->work.waiter)
        engine_caller_left(engine, call->work.waiter);
    call->work.waiter = NULL;
    struct waiter *waiter = engine_wait(engine, call->call.call.tenant, call->approve.operation,
                                        call->approve.decided ? call->call.wait_ms : 0, looked_again, request);
    if (waiter)
        call->work.waiter = waiter;
}

/* ---- the way in ---- */

static int64_t wait_of(const struct mcp_request *request, const struct tool *tool, bool task)
{
    const struct mcp_settings *settings = &request->session->door->settings;
    int64_t wait_ms = tool->wait_ms;
    if (settings->wait_ms_max > 0 && wait_ms > settings->wait_ms_max)
        wait_ms = settings->wait_ms_max;
    if (task && wait_ms > settings->task_after_ms)
        wait_ms = settings->task_after_ms;
    return wait_ms;
}

static void answer_refusal(struct mcp_request *request, const char *tool, const struct mcp_fault *fault)
{
    struct buf out;
    struct mcp_result_view view = mcp_view(request, NULL, NULL, true);
    view.tool = tool;
    buf_init(&out, 0);
    mcp_write_refusal(&out, fault, &view);
    mcp_reply(request, buf_str(&out));
    buf_release(&out);
}

/* What a call is whatever it leads to. */
static struct tool_call *begin_call(struct mcp_request *request, struct tool_call *call, const struct tool *tool)
{
    const struct mcp_session *session = request->session;
    mcp_work_begin(request, &call->work, cancel);
    request->release = let_go;
    call->approve.done = user_answered;
    call->task = mcp_task_wanted(request, tool);
    call->call.tool = arena_copy_text(&request->arena, tool->name); /* the registry may change meanwhile */
    /* the session may be another one by the reply (mcp_forward_resume) */
    call->call.call.tenant = arena_copy_text(&request->arena, session->tenant);
    call->call.call.principal = arena_copy_text(&request->arena, session->principal);
    call->call.wait_ms = wait_of(request, tool, call->task);
    mcp_work_progress(request);
    return call;
}

/* A later round: the user's answer to a question about the operation that the first one opened. */
static void run_round(struct mcp_request *request, const struct tool *tool)
{
    struct tool_call *call = begin_call(request, arena_zero(&request->arena, sizeof *call), tool);
    if (mcp_approve_read(request, &call->approve))
        mcp_approve_go_on(request, &call->approve);
}

static void run(struct mcp_request *request, const struct tool *tool)
{
    struct mcp_session *session = request->session;
    struct tool_call *call = arena_zero(&request->arena, sizeof *call);
    struct mcp_fault fault = {0};
    if (!mcp_identity_read(&request->arena, &request->message, &request->facts, tool, &call->call.call, &fault)) {
        if (fault.pointer)
            answer_refusal(request, tool->name, &fault);
        else
            mcp_reply_error(request, fault.code, STR_NONE, "%s", fault.text);
        return;
    }
    begin_call(request, call, tool);
    call->call.scope = scope_copy(&request->arena, session->scope);
    call->call.async = call->task && request->era == MCP_ERA_LEGACY;
    call->call.origin = (struct adapter_origin){session->number, request->number};
    struct waiter *waiter = engine_call(session->door->engine, &call->call, called, request);
    if (waiter)
        call->work.waiter = waiter; /* else the reply has come and the request is gone */
}

static void forward(struct mcp_request *request, const struct tool *tool)
{
    struct mcp_hub *hub = request->session->door->hub;
    struct err err = {0};
    if (scope_check(&request->arena, request->session->scope, tool->name, NULL, 0, &err)) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "%s; nothing was run", err.text);
        return;
    }
    struct mcp_forward_target target = {
        .server = hub ? mcp_hub_find(hub, tool->provider->name) : NULL,
        .remote_name = mcp_tool_remote_name(tool->adapter_tool),
    };
    if (target.server)
        mcp_forward_tool(request, tool, &target);
    else
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE,
                        "nothing was sent: the server \"%s\" of this tool is not running", tool->provider->name);
}

/* A tool whose calls cannot be tasks: 2025-11-25 wants that said. Later revisions, and clients that were not offered
 * tasks, are simply answered. */
static bool task_refused(struct mcp_request *request, const struct tool *tool)
{
    if (request->era != MCP_ERA_LEGACY || !request->session->door->settings.tasks ||
        strcmp(request->version, MCP_LEGACY_VERSION) != 0 || !json_get(request->message.params, "task") ||
        mcp_task_possible(request->session->door, tool))
        return false;
    mcp_reply_error(request, RPC_METHOD_NOT_FOUND, STR_NONE,
                    "calls of \"%s\" cannot be tasks; call it without \"task\"", tool->name);
    return true;
}

void mcp_tools_call(struct mcp_request *request)
{
    const struct json *name = json_get(request->message.params, "name");
    if (!name || name->type != JSON_STRING) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.name must be a string: the tool to call");
        return;
    }
    if (mcp_builtin_call(request, name->text, json_get(request->message.params, "arguments")))
        return;
    if (request->session->role == ROLE_APPROVER) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "the role approver may not call tools; nothing was run");
        return;
    }
    bool round = mcp_approve_is_round(request);
    if (!round && mcp_forward_resume(request))
        return;
    const struct tool *tool = mcp_find_tool(request, name->text);
    if (!tool || task_refused(request, tool))
        return;
    if (tool->forwarded)
        forward(request, tool);
    else if (round)
        run_round(request, tool);
    else
        run(request, tool);
}
