/* Operations as tasks, in both forms: core of 2025-11-25 (the client asks for a task; tasks/result blocks) and the
 * extension of 2026-07-28 (the server decides; tasks/get holds the result). A task is an operation that its client was
 * told of, and its id the operation's: durable before it is told, the same after a restart, seen by its own principal
 * only.
 *
 *   state                                         2025-11-25   2026-07-28
 *   everything that has not ended                 working      working       unknown_outcome too, also when only an
 *   completed_*, compensating, compensated        completed    completed      operator can settle it: statusMessage
 *   failed_permanent, rejected                    failed       completed      says so. It is never completed before
 *   rejected because cancelled                    cancelled    cancelled      the outcome is known
 *
 * tasks/cancel cancels what has not left; else 2025-11-25 gets an error (its "cancelled" would not be true), and
 * 2026-07-28, where cancelling is a wish, an acknowledgement. */
#include "base/log.h"
#include "base/mem.h"
#include "door/mcp_work.h"

#include <stdlib.h>

#define POLL_MS          1000 /* what clients are told at least */
#define UNSETTLED_MS     2000 /* tasks/result looks again at what only an operator can settle */
#define TASKS_PAGE       100
#define TASK_WATCHES_MAX 1024 /* tasks whose end clients are told, of all sessions; more are told to nobody */

/* ---- whether ---- */

bool mcp_task_possible(const struct mcp_door *door, const struct tool *tool)
{
    return door->settings.tasks && tool_is_write(tool) && !tool->forwarded;
}

static bool extension_declared(const struct mcp_request *request)
{
    return mcp_client_can(request->capabilities, "extensions." MCP_EXTENSION_TASKS);
}

bool mcp_task_wanted(const struct mcp_request *request, const struct tool *tool)
{
    if (!mcp_task_possible(request->session->door, tool))
        return false;
    if (request->era == MCP_ERA_MODERN)
        return extension_declared(request);
    const struct json *task = json_get(request->message.params, "task");
    return task && task->type == JSON_OBJECT && strcmp(request->version, MCP_LEGACY_VERSION) == 0;
}

/* ---- the task object ---- */

static const char *status_of(const struct operation *op, enum mcp_era era)
{
    if (op->steps.p && op->state == STATE_COMPENSATING) /* its own rollback, not the undoing of a success */
        return "working";
    if (op->steps.p && op->state == STATE_COMPENSATED)
        return era == MCP_ERA_LEGACY ? "failed" : "completed";
    switch (op->state) {
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE:
    case STATE_UNKNOWN_OUTCOME: return "working";
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_COMPENSATING:
    case STATE_COMPENSATED: return "completed";
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED: break;
    }
    if (op->state == STATE_REJECTED && op->reason == REASON_CANCELLED)
        return "cancelled";
    return era == MCP_ERA_LEGACY ? "failed" : "completed";
}

static void member_time(struct json_out *json, const char *name, int64_t ms)
{
    char text[ENV_TIME_SIZE];
    env_time_text(ms, text);
    json_out_member_text(json, name, text);
}

/* Members of an open object. An operation that has not ended is kept for as long as that takes: no ttl. */
static void add_task(struct json_out *json, const struct operation *op, const struct tool *tool, enum mcp_era era,
                     const char *status, int64_t now_ms)
{
    bool legacy = era == MCP_ERA_LEGACY;
    bool ended = strcmp(status, "working") != 0;
    int64_t poll_ms = shape_retry_after_ms(op, now_ms);
    json_out_member_text(json, "taskId", op->id);
    json_out_member_text(json, "status", status);
    json_out_member_text(json, "statusMessage", shape_message(op, tool));
    member_time(json, "createdAt", op->created_ms);
    member_time(json, "lastUpdatedAt", op->updated_ms);
    json_out_name(json, legacy ? "ttl" : "ttlMs");
    if (ended && op->retain_until_ms > op->created_ms)
        json_out_int(json, op->retain_until_ms - op->created_ms);
    else
        json_out_null(json);
    if (!ended)
        json_out_member_int(json, legacy ? "pollInterval" : "pollIntervalMs", poll_ms > POLL_MS ? poll_ms : POLL_MS);
}

static void begin(struct json_out *json, struct buf *out, const struct mcp_request *request, const char *modern_type)
{
    json_out_init(json, out);
    json_out_object(json);
    if (request->era == MCP_ERA_MODERN)
        json_out_member_text(json, "resultType", modern_type);
}

static int64_t now_of(const struct mcp_door *door)
{
    struct env *env = engine_env(door->engine);
    return env->now_ms(env);
}

static const struct tool *tool_of(const struct mcp_door *door, const struct operation *op)
{
    return registry_find(engine_registry(door->engine), str_of(op->tool));
}

/* ---- the end of a task is told ---- */

struct mcp_task_watch {
    struct mcp_task_watch *next, **at; /* of the door */
    struct mcp_door *door;
    uint64_t session; /* 0: modern, told to listen streams */
    char operation[OPERATION_ID_SIZE];
    char *tenant, *principal;
    struct waiter *waiter;
};

static void watch_free(struct mcp_task_watch *watch)
{
    *watch->at = watch->next;
    if (watch->next)
        watch->next->at = watch->at;
    watch->door->task_count--;
    if (watch->waiter)
        engine_caller_left(watch->door->engine, watch->waiter);
    free(watch->tenant);
    free(watch->principal);
    free(watch);
}

static void add_detail(struct json_out *json, struct arena *arena, const struct operation *op, const struct tool *tool,
                       int64_t now_ms);

static void tell_status(struct mcp_task_watch *watch, const struct operation *op)
{
    struct mcp_door *door = watch->door;
    const struct tool *tool = tool_of(door, op);
    enum mcp_era era = watch->session ? MCP_ERA_LEGACY : MCP_ERA_MODERN;
    struct mcp_session *session = watch->session ? mcp_session_by_number(door, watch->session) : NULL;
    struct json_out json;
    struct buf params;
    struct arena arena;
    buf_init(&params, 0);
    arena_init(&arena);
    json_out_init(&json, &params);
    json_out_object(&json);
    add_task(&json, op, tool, era, status_of(op, era), now_of(door));
    if (era == MCP_ERA_MODERN)
        add_detail(&json, &arena, op, tool, now_of(door));
    json_out_end_object(&json);
    if (session)
        mcp_legacy_notify(session, "notifications/tasks/status", buf_str(&params));
    else if (!watch->session)
        mcp_forward_task_changed(door, watch->tenant, watch->principal, str_of(watch->operation), buf_str(&params));
    arena_release(&arena);
    buf_release(&params);
}

static void watch_again(struct mcp_task_watch *watch);

static void watched(void *user, const struct engine_reply *reply)
{
    struct mcp_task_watch *watch = user;
    watch->waiter = NULL;
    if (reply->kind == REPLY_OPERATION && !state_terminal(reply->op->state) && reply->waited_out &&
        !engine_stopping(watch->door->engine)) {
        watch_again(watch);
        return;
    }
    if (reply->kind == REPLY_OPERATION)
        tell_status(watch, reply->op);
    watch_free(watch);
}

static void watch_again(struct mcp_task_watch *watch)
{
    struct waiter *waiter =
        engine_wait(watch->door->engine, watch->tenant, watch->operation, ENGINE_WAIT_MS_MAX, watched, watch);
    if (waiter)
        watch->waiter = waiter; /* else it has been told and is gone */
}

static void watch_begin(struct mcp_request *request, const struct operation *op)
{
    struct mcp_door *door = request->session->door;
    if (door->task_count >= TASK_WATCHES_MAX || state_terminal(op->state))
        return;
    struct mcp_task_watch *watch = mem_zero(sizeof *watch);
    watch->door = door;
    watch->session = request->era == MCP_ERA_LEGACY ? request->session->number : 0;
    memcpy(watch->operation, op->id, OPERATION_ID_SIZE);
    watch->tenant = mem_copy_text(request->session->tenant);
    watch->principal = mem_copy_text(request->session->principal);
    watch->next = door->tasks;
    watch->at = &door->tasks;
    if (watch->next)
        watch->next->at = &watch->next;
    door->tasks = watch;
    door->task_count++;
    watch_again(watch);
}

void mcp_tasks_session_ended(struct mcp_session *session)
{
    struct mcp_task_watch *watch = session->door->tasks;
    while (watch) {
        struct mcp_task_watch *next = watch->next;
        if (watch->session == session->number)
            watch_free(watch);
        watch = next;
    }
}

void mcp_tasks_close(struct mcp_door *door)
{
    while (door->tasks)
        watch_free(door->tasks);
}

/* ---- a new task ---- */

/* What a model may be told while the task goes on. */
static void add_immediate(struct json_out *json, struct mcp_request *request, const struct operation *op,
                          const struct tool *tool)
{
    const struct err none = {0};
    const struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op, .tool = tool, .err = &none};
    const struct mcp_result_view view = mcp_view(request, op, tool, true);
    struct buf text;
    buf_init(&text, 0);
    mcp_write_result_text(&text, &reply, &view);
    json_out_name(json, "_meta");
    json_out_object(json);
    json_out_name(json, "io.modelcontextprotocol/model-immediate-response"), json_out_str(json, buf_str(&text));
    json_out_end_object(json);
    buf_release(&text);
}

void mcp_task_created(struct mcp_request *request, const struct operation *op, const struct tool *tool)
{
    bool legacy = request->era == MCP_ERA_LEGACY;
    int64_t now_ms = now_of(request->session->door);
    struct json_out json;
    struct buf out;
    buf_init(&out, 0);
    begin(&json, &out, request, "task");
    if (legacy) {
        json_out_name(&json, "task");
        json_out_object(&json);
    }
    add_task(&json, op, tool, request->era, "working", now_ms); /* every task begins so */
    if (legacy) {
        json_out_end_object(&json);
        if (!state_terminal(op->state))
            add_immediate(&json, request, op, tool);
    }
    json_out_end_object(&json);
    watch_begin(request, op);
    mcp_reply(request, buf_str(&out));
    buf_release(&out);
}

/* ---- tasks/… ---- */

struct task_work {
    struct mcp_work work;
    const char *id;
    void (*known)(struct mcp_request *request, const struct operation *op);
};

static void no_task(struct mcp_request *request, const char *why)
{
    mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "no such task%s", why);
}

/* The tenant's and the principal's own, or nothing at all. */
static bool is_own(const struct mcp_request *request, const struct operation *op)
{
    return text_equal(op->principal, request->session->principal) && text_equal(op->tenant, request->session->tenant);
}

static void unavailable(struct mcp_request *request, const char *text)
{
    mcp_reply_error(request, RPC_INTERNAL_ERROR, STR("{\"retry_after_ms\":1000}"), "%s; ask again in a moment", text);
}

static void looked_up(struct mcp_request *request, struct ledger_request *answer)
{
    const struct task_work *work = request->user;
    if (answer->code == ERR_NOT_FOUND)
        no_task(request, "");
    else if (answer->code)
        unavailable(request, answer->err.text);
    else if (!answer->get.op)
        no_task(request, text_equal(answer->get.tombstone->principal, request->session->principal)
                             ? ": it has ended, and its time is over; only the fact is still kept (onced_status)"
                             : "");
    else if (!is_own(request, answer->get.op))
        no_task(request, "");
    else
        work->known(request, answer->get.op);
}

static void look_up(struct mcp_request *request, void (*known)(struct mcp_request *, const struct operation *))
{
    struct task_work *work = arena_zero(&request->arena, sizeof *work);
    const struct json *id = json_get(request->message.params, "taskId");
    struct arena *arena;
    if (!id || id->type != JSON_STRING) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.taskId must be a string");
        return;
    }
    work->id = arena_copy_str(&request->arena, id->text);
    if (id->text.n != OPERATION_ID_SIZE - 1 || !operation_id_valid(work->id)) {
        no_task(request, "");
        return;
    }
    work->known = known;
    mcp_work_begin(request, &work->work, NULL);
    struct ledger_request *ledger = mcp_work_query(request, LEDGER_GET, &arena);
    ledger->get.tenant = arena_copy_text(arena, request->session->tenant);
    ledger->get.operation = arena_copy_text(arena, work->id);
    mcp_work_ask(request, looked_up);
}

/* ---- tasks/get ---- */

/* Modern: what came of it is within the task. */
static void add_detail(struct json_out *json, struct arena *arena, const struct operation *op, const struct tool *tool,
                       int64_t now_ms)
{
    if (strcmp(status_of(op, MCP_ERA_MODERN), "completed") != 0)
        return;
    const struct err none = {0};
    const struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op, .tool = tool, .err = &none};
    const struct mcp_result_view view = {
        .shape = {.arena = arena, .now_ms = now_ms, .own_call = true},
        .era = MCP_ERA_MODERN,
        .inlined = true,
        .can_status = true,
    };
    struct buf result;
    buf_init(&result, 0);
    mcp_write_result(&result, &reply, &view);
    json_out_name(json, "result"), json_out_raw(json, buf_str(&result));
    buf_release(&result);
}

static void show(struct mcp_request *request, const struct operation *op)
{
    struct mcp_door *door = request->session->door;
    const struct tool *tool = tool_of(door, op);
    struct json_out json;
    struct buf out;
    buf_init(&out, 0);
    begin(&json, &out, request, "complete");
    add_task(&json, op, tool, request->era, status_of(op, request->era), now_of(door));
    if (request->era == MCP_ERA_MODERN)
        add_detail(&json, &request->arena, op, tool, now_of(door));
    json_out_end_object(&json);
    if (request->era == MCP_ERA_MODERN && state_terminal(op->state) && !op->delivered)
        mcp_request_set_delivery(request, op);
    mcp_reply(request, buf_str(&out));
    buf_release(&out);
}

/* ---- tasks/result: blocks until the task has ended ---- */

static void wait_for_end(struct mcp_request *request);

static void ended(void *user, const struct engine_reply *reply)
{
    struct mcp_request *request = user;
    struct task_work *work = request->user;
    work->work.waiter = NULL;
    if (reply->kind == REPLY_OPERATION && !state_terminal(reply->op->state)) {
        if (reply->waited_out && !engine_stopping(request->session->door->engine))
            wait_for_end(request);
        else if (!work->work.pulse) /* only an operator can go on: nothing tells when */
            mcp_work_every(request, UNSETTLED_MS, wait_for_end);
        return;
    }
    if (reply->kind == REPLY_EXPIRED || reply->kind == REPLY_NOT_FOUND) {
        no_task(request, ": its time is over");
        return;
    }
    struct mcp_result_view view = mcp_view(request, reply->op, reply->tool, true);
    view.task = work->id;
    mcp_answer_reply(request, reply, &view);
}

static void wait_for_end(struct mcp_request *request)
{
    struct task_work *work = request->user;
    struct mcp_session *session = request->session;
    if (work->work.waiter)
        return;
    struct waiter *waiter =
        engine_wait(session->door->engine, session->tenant, work->id, ENGINE_WAIT_MS_MAX, ended, request);
    if (waiter)
        work->work.waiter = waiter; /* else the reply has come, and the request may be gone */
}

static void wait_known(struct mcp_request *request, const struct operation *op)
{
    (void)op;
    wait_for_end(request);
}

/* ---- tasks/list ---- */

static void listed(struct mcp_request *request, struct ledger_request *answer)
{
    struct mcp_door *door = request->session->door;
    const struct ledger_list *list = &answer->list;
    struct json_out json;
    struct buf out;
    if (answer->code) {
        unavailable(request, answer->err.text);
        return;
    }
    buf_init(&out, 0);
    begin(&json, &out, request, "complete");
    json_out_name(&json, "tasks");
    json_out_array(&json);
    for (size_t i = 0; i < list->count; i++) {
        const struct operation *op = list->ops[i];
        const struct tool *tool = tool_of(door, op);
        if (tool && !tool_is_write(tool)) /* an audited read was never a task */
            continue;
        json_out_object(&json);
        add_task(&json, op, tool, request->era, status_of(op, request->era), now_of(door));
        json_out_end_object(&json);
    }
    json_out_end_array(&json);
    json_out_member_text(&json, "nextCursor", list->next);
    json_out_end_object(&json);
    mcp_reply(request, buf_str(&out));
    buf_release(&out);
}

static void list_tasks(struct mcp_request *request)
{
    const struct json *cursor = json_get(request->message.params, "cursor");
    struct task_work *work = arena_zero(&request->arena, sizeof *work);
    const char *before = NULL;
    struct arena *arena;
    if (cursor) {
        before = cursor->type == JSON_STRING && cursor->text.n == OPERATION_ID_SIZE - 1
                     ? arena_copy_str(&request->arena, cursor->text)
                     : "";
        if (!operation_id_valid(before)) {
            mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "the cursor is not one that a former page gave");
            return;
        }
    }
    mcp_work_begin(request, &work->work, NULL);
    struct ledger_request *ledger = mcp_work_query(request, LEDGER_LIST, &arena);
    ledger->list.tenant = arena_copy_text(arena, request->session->tenant);
    ledger->list.principal = arena_copy_text(arena, request->session->principal);
    ledger->list.before = arena_copy_text(arena, before);
    ledger->list.limit = TASKS_PAGE;
    mcp_work_ask(request, listed);
}

/* ---- tasks/cancel, tasks/update ---- */

static void acknowledge(struct mcp_request *request)
{
    mcp_reply(request, STR("{\"resultType\":\"complete\"}"));
}

/* The engine has no way to forget a decision: it finds the request again, or none. */
struct cancelling {
    struct mcp_door *door;
    uint64_t session, number;
};

static void cancel_told(void *user, const struct engine_reply *reply)
{
    struct cancelling *cancelling = user;
    struct mcp_request *request = mcp_request_by_number(cancelling->door, cancelling->session, cancelling->number);
    free(cancelling);
    if (!request)
        return;
    if (reply->kind == REPLY_UNAVAILABLE)
        unavailable(request, reply->err->text);
    else if (request->era == MCP_ERA_MODERN)
        acknowledge(request);
    else if (reply->kind == REPLY_OPERATION && reply->op->state == STATE_REJECTED)
        show(request, reply->op);
    else if (reply->op && state_terminal(reply->op->state))
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "the task has ended (%s): it cannot be cancelled",
                        status_of(reply->op, request->era));
    else
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE,
                        "the task cannot be cancelled any more: its request may have left already; it goes on, and "
                        "what comes of it is recorded");
}

static void cancel_known(struct mcp_request *request, const struct operation *op)
{
    struct mcp_session *session = request->session;
    if (state_terminal(op->state)) {
        if (request->era == MCP_ERA_MODERN)
            acknowledge(request);
        else
            mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "the task has ended (%s): it cannot be cancelled",
                            status_of(op, request->era));
        return;
    }
    struct cancelling *cancelling = mem_zero(sizeof *cancelling);
    *cancelling = (struct cancelling){session->door, session->number, request->number};
    const struct engine_decision decision = {
        .kind = DECISION_CANCEL,
        .tenant = session->tenant,
        .operation = op->id,
        .actor = session->principal,
        .note = "the client cancelled the task",
        .unsent_only = true,
    };
    engine_decide(session->door->engine, &decision, cancel_told, cancelling);
}

/* Nothing is ever asked for within a task: answers to questions that are not open are ignored, as the extension says.
 */
static void update_known(struct mcp_request *request, const struct operation *op)
{
    (void)op;
    acknowledge(request);
}

static void update(struct mcp_request *request)
{
    const struct json *responses = json_get(request->message.params, "inputResponses");
    if (!responses || responses->type != JSON_OBJECT)
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.inputResponses must be an object");
    else
        look_up(request, update_known);
}

void mcp_tasks(struct mcp_request *request)
{
    const char *method = request->message.method;
    bool modern = request->era == MCP_ERA_MODERN;
    if (modern && !extension_declared(request))
        mcp_reply_error(request, MCP_MISSING_CAPABILITY,
                        STR("{\"requiredCapabilities\":{\"extensions\":{\"" MCP_EXTENSION_TASKS "\":{}}}}"),
                        "tasks are for clients that declare the extension " MCP_EXTENSION_TASKS " in this request");
    else if (strcmp(method, "tasks/get") == 0)
        look_up(request, show);
    else if (strcmp(method, "tasks/cancel") == 0)
        look_up(request, cancel_known);
    else if (modern && strcmp(method, "tasks/update") == 0)
        update(request);
    else if (!modern && strcmp(method, "tasks/result") == 0)
        look_up(request, wait_known);
    else if (!modern && strcmp(method, "tasks/list") == 0)
        list_tasks(request);
    else
        mcp_reply_error(request, RPC_METHOD_NOT_FOUND, STR_NONE, "there is no method \"%s\" here", method);
}
