/* Operations as MCP tasks, in both forms. */
#include "support/mcp_stage.h"

#define TASK(id) "\"taskId\":\"" id "\""

static int set_up_modern(void **state)
{
    stage_set_up(state);
    struct stage *stage = *state;
    mcp_session_end(stage->session);
    stage_session(stage, "local", ROLE_AGENT, "");
    return 0;
}

static void modern(struct stage *stage, const char *method, const char *params)
{
    ask(stage, method, arena_printf(&stage->arena, "%s%s\"_meta\":{" MODERN_TASKS "}", params, params[0] ? "," : ""));
}

static void assert_task(struct stage *stage, const struct json *task, const char *id, const char *status)
{
    assert_string_equal(text_of(stage, task, "taskId"), id);
    assert_string_equal(text_of(stage, task, "status"), status);
    assert_string_equal(text_of(stage, task, "createdAt"), "2026-09-21T14:13:15.000Z");
    assert_non_null(json_get(task, "lastUpdatedAt"));
}

/* ---- which tools ---- */

static void only_writes_can_be_tasks(void **state)
{
    struct stage *stage = *state;
    assert_true(mcp_task_possible(stage->door, &stage->refund));
    assert_false(mcp_task_possible(stage->door, &stage->look));
    assert_false(mcp_task_possible(stage->door, &stage->passed));
    call(stage, "\"name\":\"look\",\"task\":{}");
    assert_refused(stage, RPC_METHOD_NOT_FOUND, "cannot be tasks");
    assert_int_equal(stage->engine.calls, 0);
    stage->door->settings.tasks = false;
    assert_false(mcp_task_possible(stage->door, &stage->refund));
    call(stage, "\"name\":\"look\",\"task\":{}"); /* not offered: run as usual */
    assert_int_equal(stage->engine.calls, 1);
    call(stage, "\"name\":\"refund\",\"task\":{}");
    assert_status(stage, "completed_success");
    ask(stage, "tasks/get", TASK(OP_1));
    assert_refused(stage, RPC_METHOD_NOT_FOUND, "tasks/get");
}

static void older_revisions_know_no_tasks(void **state)
{
    struct stage *stage = *state;
    snprintf(stage->session->version, sizeof stage->session->version, "2025-06-18");
    call(stage, "\"name\":\"refund\",\"task\":{}");
    assert_status(stage, "completed_success");
    call(stage, "\"name\":\"look\",\"task\":{}");
    assert_int_equal(stage->engine.calls, 2);
}

/* ---- 2025-11-25 ---- */

static void a_legacy_call_becomes_a_task_at_once(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.op = &stage->other;
    call(stage, "\"name\":\"refund\",\"task\":{\"ttl\":60000}");
    assert_true(stage->engine.async); /* answered once it is durable */
    const struct json *task = json_get(result(stage), "task");
    assert_task(stage, task, OP_2, "working");
    assert_int_equal(json_get(task, "ttl")->type, JSON_NULL);
    assert_true(json_get_int(task, "pollInterval", 0) >= 500);
    assert_null(json_get(result(stage), "content"));
    assert_non_null(strstr(stage->heard.final, "model-immediate-response"));
    stage->engine.reply.op = &stage->op; /* a replay: tasks begin as working all the same */
    call(stage, "\"name\":\"refund\",\"task\":{}");
    assert_task(stage, json_get(result(stage), "task"), OP_1, "working");
}

/* A client that asked for a task reads nothing else. */
static void what_is_no_operation_is_no_task(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.kind = REPLY_HELD;
    stage->engine.reply.op = &stage->other;
    call(stage, "\"name\":\"refund\",\"task\":{}");
    assert_refused(stage, RPC_INVALID_PARAMS, "Nothing was run");
    const struct json *data = json_get(json_get(parse(stage, stage->heard.final), "error"), "data");
    assert_non_null(json_get(data, "structuredContent"));
}

static void get_shows_the_state(void **state)
{
    struct stage *stage = *state;
    static const struct {
        enum state state;
        enum reason reason;
        const char *status;
    } cases[] = {
        {STATE_PLANNED, REASON_NONE, "working"},
        {STATE_PENDING_DISPATCH, REASON_NONE, "working"},
        {STATE_DISPATCHED, REASON_NONE, "working"},
        {STATE_ACKNOWLEDGED, REASON_NONE, "working"},
        {STATE_FAILED_RETRYABLE, REASON_NONE, "working"},
        {STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT, "working"},
        {STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR, "working"},
        {STATE_COMPLETED_SUCCESS, REASON_NONE, "completed"},
        {STATE_COMPLETED_NOOP, REASON_NONE, "completed"},
        {STATE_COMPENSATING, REASON_NONE, "completed"},
        {STATE_COMPENSATED, REASON_NONE, "completed"},
        {STATE_FAILED_PERMANENT, REASON_NONE, "failed"},
        {STATE_REJECTED, REASON_DENIED, "failed"},
        {STATE_REJECTED, REASON_CANCELLED, "cancelled"},
    };
    stage->op.retain_until_ms = NOW + 95000;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage->op.state = cases[i].state;
        stage->op.reason = cases[i].reason;
        ask(stage, "tasks/get", TASK(OP_1));
        assert_task(stage, result(stage), OP_1, cases[i].status);
        bool working = strcmp(cases[i].status, "working") == 0;
        assert_int_equal(json_get(result(stage), "pollInterval") != NULL, working);
        if (state_terminal(cases[i].state))
            assert_int_equal(json_get_int(result(stage), "ttl", 0), 100000);
        assert_null(json_get(result(stage), "result"));
    }
    stage->op.state = STATE_UNKNOWN_OUTCOME;
    stage->op.reason = REASON_NEEDS_OPERATOR;
    ask(stage, "tasks/get", TASK(OP_1));
    assert_non_null(strstr(text_of(stage, result(stage), "statusMessage"), "a person has to check"));
}

static void other_peoples_tasks_do_not_exist(void **state)
{
    struct stage *stage = *state;
    static const char *const methods[] = {"tasks/get", "tasks/result", "tasks/cancel"};
    struct tombstone stone = {.operation = OP_3, .tenant = "default", .principal = "somebody"};
    for (size_t i = 0; i < 3; i++) {
        ask(stage, methods[i], "");
        assert_refused(stage, RPC_INVALID_PARAMS, "params.taskId");
        ask(stage, methods[i], "\"taskId\":\"nonsense\"");
        assert_refused(stage, RPC_INVALID_PARAMS, "no such task");
        ask(stage, methods[i], TASK(OP_3));
        assert_refused(stage, RPC_INVALID_PARAMS, "no such task");
        stage->op.principal = "somebody";
        ask(stage, methods[i], TASK(OP_1));
        assert_refused(stage, RPC_INVALID_PARAMS, "no such task");
        stage->op.principal = "local";
        stage->op.tenant = "another";
        ask(stage, methods[i], TASK(OP_1));
        assert_refused(stage, RPC_INVALID_PARAMS, "no such task");
        stage->op.tenant = "default";
        stage->engine.tombstone = &stone;
        stone.principal = "somebody";
        ask(stage, methods[i], TASK(OP_3));
        assert_null(strstr(stage->heard.final, "only the fact"));
        stone.principal = "local";
        ask(stage, methods[i], TASK(OP_3));
        assert_refused(stage, RPC_INVALID_PARAMS, "only the fact is still kept");
        stage->engine.tombstone = NULL;
    }
    assert_int_equal(stage->engine.decisions + stage->engine.waits, 0);
}

static void result_blocks_until_the_end(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    ask(stage, "tasks/result", TASK(OP_2));
    assert_string_equal(stage->engine.waited, OP_2);
    stage->engine.reply.op = &stage->other;
    stage->engine.reply.waited_out = true;
    assert_true(fake_engine_reply(&stage->engine)); /* the engine's longest wait is over: it waits again */
    assert_int_equal(stage->heard.final_count, 0);
    assert_int_equal(stage->engine.waits, 2);
    stage->engine.reply.op = &stage->op;
    stage->engine.reply.waited_out = false;
    assert_true(fake_engine_reply(&stage->engine));
    assert_status(stage, "completed_success");
    assert_string_equal(text_of(stage, json_get(json_get(result(stage), "_meta"), MCP_META_RELATED_TASK), "taskId"),
                        OP_2);
    assert_int_equal(stage->heard.delivers, 1);
    assert_null(json_get(result(stage), "resultType"));
}

/* What only an operator can settle the engine answers at once: no spinning, and no answer before the end. */
static void result_waits_for_an_operator_too(void **state)
{
    struct stage *stage = *state;
    stage->other.reason = REASON_NEEDS_OPERATOR;
    stage->engine.reply.op = &stage->other;
    ask(stage, "tasks/result", TASK(OP_2));
    assert_int_equal(stage->engine.waits, 1);
    let_time_pass(stage);
    assert_int_equal(stage->heard.final_count, 0);
    assert_true(stage->engine.waits >= 2);
    stage->engine.reply.op = &stage->op;
    let_time_pass(stage);
    assert_status(stage, "completed_success");
}

static void result_of_a_failure_is_an_error(void **state)
{
    struct stage *stage = *state;
    stage->op.state = STATE_FAILED_PERMANENT;
    ask(stage, "tasks/result", TASK(OP_1));
    assert_true(is_error(stage));
    stage->engine.reply = (struct engine_reply){.kind = REPLY_EXPIRED, .err = &no_error};
    ask(stage, "tasks/result", TASK(OP_1));
    assert_refused(stage, RPC_INVALID_PARAMS, "its time is over");
}

static void list_pages_through_ones_own(void **state)
{
    struct stage *stage = *state;
    struct operation read;
    make_operation(&read, OP_3, STATE_COMPLETED_SUCCESS);
    read.tool = "look";
    stage->engine.ops[2] = &read;
    stage->engine.op_count = 3;
    ask(stage, "tasks/list", "");
    const struct json *tasks = json_get(result(stage), "tasks");
    assert_int_equal(tasks->count, 2); /* the audited read is none */
    assert_task(stage, &tasks->items[0], OP_2, "working");
    assert_string_equal(stage->engine.listed_principal, "local");
    assert_string_equal(stage->engine.listed_tenant, "default");
    ask(stage, "tasks/list", "\"cursor\":\"" OP_2 "\"");
    assert_int_equal(json_get(result(stage), "tasks")->count, 1);
    ask(stage, "tasks/list", "\"cursor\":\"x\"");
    assert_refused(stage, RPC_INVALID_PARAMS, "cursor");
    ask(stage, "tasks/list", "\"cursor\":7");
    assert_refused(stage, RPC_INVALID_PARAMS, "cursor");
}

static void cancel_tells_the_truth(void **state)
{
    struct stage *stage = *state;
    ask(stage, "tasks/cancel", TASK(OP_1));
    assert_refused(stage, RPC_INVALID_PARAMS, "has ended (completed)");
    assert_int_equal(stage->engine.decisions, 0);
    stage->engine.reply = (struct engine_reply){.kind = REPLY_IMPOSSIBLE, .op = &stage->other, .err = &no_error};
    ask(stage, "tasks/cancel", TASK(OP_2));
    assert_int_equal(stage->engine.decision.kind, DECISION_CANCEL);
    assert_string_equal(stage->engine.decided, OP_2);
    assert_refused(stage, RPC_INTERNAL_ERROR, "may have left already");
    struct operation gone = stage->other;
    gone.state = STATE_REJECTED;
    gone.reason = REASON_CANCELLED;
    stage->engine.reply = (struct engine_reply){.kind = REPLY_OPERATION, .op = &gone, .err = &no_error};
    ask(stage, "tasks/cancel", TASK(OP_2));
    assert_task(stage, result(stage), OP_2, "cancelled");
    stage->engine.reply = (struct engine_reply){.kind = REPLY_IMPOSSIBLE, .op = &stage->op, .err = &no_error};
    ask(stage, "tasks/cancel", TASK(OP_2)); /* it ended meanwhile */
    assert_refused(stage, RPC_INVALID_PARAMS, "has ended (completed)");
    stage->engine.reply = (struct engine_reply){.kind = REPLY_UNAVAILABLE, .err = &no_error};
    ask(stage, "tasks/cancel", TASK(OP_2));
    assert_refused(stage, RPC_INTERNAL_ERROR, "ask again");
}

static void cancel_survives_its_client(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    ask(stage, "tasks/cancel", TASK(OP_2));
    mcp_request_gone(&stage->heard.sink, false);
    assert_true(fake_engine_reply(&stage->engine));
    assert_int_equal(stage->heard.final_count, 0);
}

static void the_end_of_a_task_is_told(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.op = &stage->other;
    stage->engine.later = true;
    call(stage, "\"name\":\"refund\",\"task\":{}");
    assert_true(fake_engine_reply(&stage->engine));
    assert_int_equal(stage->engine.waits, 1);
    assert_int_equal(stage->sent_count, 0);
    stage->engine.reply.waited_out = true;
    assert_true(fake_engine_reply(&stage->engine)); /* watched on */
    assert_int_equal(stage->engine.waits, 2);
    stage->engine.reply.waited_out = false;
    stage->engine.reply.op = &stage->op;
    assert_true(fake_engine_reply(&stage->engine));
    assert_int_equal(stage->sent_count, 1);
    const struct json *message = parse(stage, stage->sent[0]);
    assert_string_equal(text_of(stage, message, "method"), "notifications/tasks/status");
    assert_task(stage, json_get(message, "params"), OP_1, "completed");
    assert_int_equal(stage->door->task_count, 0);
}

static void nobody_is_told_after_the_session(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.op = &stage->other;
    stage->engine.later = true;
    call(stage, "\"name\":\"refund\",\"task\":{}");
    assert_true(fake_engine_reply(&stage->engine));
    assert_int_equal(stage->door->task_count, 1);
    mcp_session_end(stage->session);
    assert_int_equal(stage->door->task_count, 0);
    assert_int_equal(stage->engine.left, 1);
    assert_int_equal(stage->sent_count, 0);
}

/* ---- 2026-07-28 ---- */

static void a_modern_call_becomes_a_task_when_it_takes_long(void **state)
{
    struct stage *stage = *state;
    stage->door->settings.task_after_ms = 4000;
    modern(stage, "tools/call", "\"name\":\"refund\"");
    assert_int_equal(stage->engine.wait_ms, 4000);
    assert_false(stage->engine.async);
    assert_status(stage, "completed_success"); /* in time: a result */
    stage->engine.reply.op = &stage->other;
    modern(stage, "tools/call", "\"name\":\"refund\"");
    assert_string_equal(text_of(stage, result(stage), "resultType"), "task");
    assert_task(stage, result(stage), OP_2, "working");
    assert_int_equal(json_get(result(stage), "ttlMs")->type, JSON_NULL);
    assert_true(json_get_int(result(stage), "pollIntervalMs", 0) > 0);
    assert_null(json_get(result(stage), "ttl"));
    assert_null(json_get(result(stage), "result"));
    stage->engine.reply.kind = REPLY_HELD;
    modern(stage, "tools/call", "\"name\":\"refund\"");
    assert_words(stage, "distinct_from"); /* no operation of its own: a result */
}

static void undeclared_clients_get_results(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.op = &stage->other;
    call(stage, "\"name\":\"refund\",\"task\":{},\"_meta\":{" MODERN_META "{}}");
    assert_status(stage, "unknown_outcome");
    assert_int_equal(stage->engine.wait_ms, 30000);
    ask(stage, "tasks/get", TASK(OP_2) ",\"_meta\":{" MODERN_META "{}}");
    assert_refused(stage, MCP_MISSING_CAPABILITY, "declare the extension");
    assert_int_equal(stage->heard.http_status, 400);
    const struct json *data = json_get(json_get(parse(stage, stage->heard.final), "error"), "data");
    assert_non_null(
        json_get(json_get(json_get(data, "requiredCapabilities"), "extensions"), "io.modelcontextprotocol/tasks"));
}

static void a_modern_get_holds_the_result(void **state)
{
    struct stage *stage = *state;
    modern(stage, "tasks/get", TASK(OP_2));
    assert_string_equal(text_of(stage, result(stage), "resultType"), "complete");
    assert_task(stage, result(stage), OP_2, "working");
    assert_null(json_get(result(stage), "result"));
    assert_int_equal(stage->heard.delivers, 0);
    modern(stage, "tasks/get", TASK(OP_1));
    assert_task(stage, result(stage), OP_1, "completed");
    const struct json *inner = json_get(result(stage), "result");
    assert_false(json_get_bool(inner, "isError", true));
    assert_null(json_get(inner, "resultType"));
    assert_null(json_get(inner, "_meta"));
    assert_int_equal(stage->heard.delivers, 1);
    stage->op.state = STATE_FAILED_PERMANENT; /* the tool failed, the task did not */
    modern(stage, "tasks/get", TASK(OP_1));
    assert_task(stage, result(stage), OP_1, "completed");
    assert_true(json_get_bool(json_get(result(stage), "result"), "isError", false));
    stage->op.state = STATE_REJECTED;
    stage->op.reason = REASON_CANCELLED;
    modern(stage, "tasks/get", TASK(OP_1));
    assert_task(stage, result(stage), OP_1, "cancelled");
    assert_null(json_get(result(stage), "result"));
}

static void modern_cancel_is_a_wish(void **state)
{
    struct stage *stage = *state;
    modern(stage, "tasks/cancel", TASK(OP_1)); /* has ended */
    assert_string_equal(strstr(stage->heard.final, "\"result\""), "\"result\":{\"resultType\":\"complete\"}}");
    stage->engine.reply = (struct engine_reply){.kind = REPLY_IMPOSSIBLE, .op = &stage->other, .err = &no_error};
    modern(stage, "tasks/cancel", TASK(OP_2));
    assert_int_equal(stage->engine.decisions, 1);
    assert_string_equal(strstr(stage->heard.final, "\"result\""), "\"result\":{\"resultType\":\"complete\"}}");
    modern(stage, "tasks/cancel", TASK(OP_3));
    assert_refused(stage, RPC_INVALID_PARAMS, "no such task");
}

static void modern_update_is_acknowledged(void **state)
{
    struct stage *stage = *state;
    modern(stage, "tasks/update", TASK(OP_2) ",\"inputResponses\":{\"x\":{}}");
    assert_string_equal(strstr(stage->heard.final, "\"result\""), "\"result\":{\"resultType\":\"complete\"}}");
    modern(stage, "tasks/update", TASK(OP_3) ",\"inputResponses\":{}");
    assert_refused(stage, RPC_INVALID_PARAMS, "no such task");
    modern(stage, "tasks/update", TASK(OP_2));
    assert_refused(stage, RPC_INVALID_PARAMS, "inputResponses");
}

static void modern_knows_no_legacy_methods(void **state)
{
    struct stage *stage = *state;
    modern(stage, "tasks/result", TASK(OP_1));
    assert_refused(stage, RPC_METHOD_NOT_FOUND, "tasks/result");
    assert_int_equal(stage->heard.http_status, 404);
    modern(stage, "tasks/list", "");
    assert_refused(stage, RPC_METHOD_NOT_FOUND, "tasks/list");
}

static void listen_streams_hear_of_the_end(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.op = &stage->other;
    stage->engine.later = true;
    modern(stage, "tools/call", "\"name\":\"refund\"");
    assert_true(fake_engine_reply(&stage->engine));
    mcp_session_end(stage->session); /* modern clients have none: the task is watched all the same */
    assert_int_equal(stage->door->task_count, 1);
    stage->engine.reply.op = &stage->op;
    assert_true(fake_engine_reply(&stage->engine));
    assert_int_equal(fake_forward.tasks_told, 1);
    assert_string_equal(fake_forward.task, OP_2);
    const struct json *told = parse(stage, fake_forward.task_told);
    assert_task(stage, told, OP_1, "completed");
    assert_non_null(json_get(told, "result"));
    assert_int_equal(stage->door->task_count, 0);
}

static void closing_forgets_watched_tasks(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.op = &stage->other;
    stage->engine.later = true;
    modern(stage, "tools/call", "\"name\":\"refund\"");
    assert_true(fake_engine_reply(&stage->engine));
    mcp_door_close(stage->door);
    assert_int_equal(stage->door->task_count, 0);
    assert_int_equal(stage->engine.left, 1);
}

int main(void)
{
#define LEGACY(name) cmocka_unit_test_setup_teardown(name, stage_set_up, stage_tear_down)
#define MODERN(name) cmocka_unit_test_setup_teardown(name, set_up_modern, stage_tear_down)
    const struct CMUnitTest tests[] = {
        LEGACY(only_writes_can_be_tasks),
        LEGACY(older_revisions_know_no_tasks),
        LEGACY(a_legacy_call_becomes_a_task_at_once),
        LEGACY(what_is_no_operation_is_no_task),
        LEGACY(get_shows_the_state),
        LEGACY(other_peoples_tasks_do_not_exist),
        LEGACY(result_blocks_until_the_end),
        LEGACY(result_waits_for_an_operator_too),
        LEGACY(result_of_a_failure_is_an_error),
        LEGACY(list_pages_through_ones_own),
        LEGACY(cancel_tells_the_truth),
        LEGACY(cancel_survives_its_client),
        LEGACY(the_end_of_a_task_is_told),
        LEGACY(nobody_is_told_after_the_session),
        MODERN(a_modern_call_becomes_a_task_when_it_takes_long),
        MODERN(undeclared_clients_get_results),
        MODERN(a_modern_get_holds_the_result),
        MODERN(modern_cancel_is_a_wish),
        MODERN(modern_update_is_acknowledged),
        MODERN(modern_knows_no_legacy_methods),
        MODERN(listen_streams_hear_of_the_end),
        MODERN(closing_forgets_watched_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
