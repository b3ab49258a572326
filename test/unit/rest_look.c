/* The REST door: what people look at and decide. */
#include "rest_stage.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- looking ---- */

static void test_get_operation(void **state)
{
    struct stage *stage = *state;
    struct incident incident = {.id = "in_01J00000000000000000000001",
                                .tenant = "default",
                                .operation = OP_1,
                                .kind = INCIDENT_LATE_LANDING,
                                .at_ms = NOW};
    stage->engine.incidents = &incident;
    stage->engine.incident_count = 1;
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_1, "", NULL), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/key", "refund:pay_1");
    expect(stage, "/arguments/card/number", "***");
    expect(stage, "/result/card/number", "***");
    expect(stage, "/result/id", "re_1");
    expect(stage, "/incidents/0/kind", "late_landing");
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_2, "", NULL), 202);
    ask_rest(stage, "GET", "/v1/operations/" OP_3, "", NULL);
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "GET", "/v1/operations/" OP_1, "Onced-Tenant: other\r\n", NULL);
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "GET", "/v1/operations/" OP_1 "?wait=abc", "", NULL);
    expect_problem(stage, 400, "malformed");
    ask_rest(stage, "GET", "/v1/operations/" OP_1 "?wait=120001", "", NULL);
    expect_problem(stage, 400, "malformed");
    ask_rest(stage, "GET", "/v1/operations/" OP_1 "?wiat=1", "", NULL);
    expect_problem(stage, 400, "malformed");
    expect_detail(stage, "did you mean \"wait\"");
    ask_rest(stage, "GET", "/v1/operations/" OP_1 "?wait=%4", "", NULL);
    expect_problem(stage, 400, "malformed");
    assert_int_equal(stage->engine.waits, 0);
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_1 "?wait=250", "", NULL), 200);
    assert_int_equal(stage->engine.waits, 1);
    assert_int_equal(stage->engine.wait_ms, 250);
    stage->engine.ledger_code = ERR_IO;
    ask_rest(stage, "GET", "/v1/operations/" OP_1, "", NULL);
    expect_problem(stage, 503, "unavailable");
}

/* Without its tool nobody knows what to mask: nothing of the payload is shown. */
static void test_tool_gone(void **state)
{
    struct stage *stage = *state;
    stage->op.tool = "gone";
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_1, "", NULL), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/result", "null");
    expect(stage, "/arguments", "null");
    assert_non_null(strstr(member(stage, "/note"), "no longer registered"));
}

static void test_tombstone(void **state)
{
    struct stage *stage = *state;
    struct tombstone tombstone = {.operation = OP_3,
                                  .tenant = "default",
                                  .tool = "refund.create",
                                  .principal = "local",
                                  .key_version = 1,
                                  .state = STATE_COMPLETED_SUCCESS,
                                  .completed_ms = NOW - 9,
                                  .dropped_ms = NOW - 1,
                                  .external_id = "re_9"};
    tombstone.key_hash = identity_key_hash("default", "refund.create", "old/key", NULL);
    stage->engine.tombstone = &tombstone;
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_3, "", NULL), 200);
    expect_shape(stage, "Tombstone");
    expect(stage, "/external_id", "re_9");
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools/refund.create/operations/old%2Fkey", "", NULL), 200);
    expect_shape(stage, "Tombstone");
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_3 "/events", "", NULL), 200);
    expect(stage, "/events", "[]");
}

static void test_by_key(void **state)
{
    struct stage *stage = *state;
    stage->engine.op_count = 1;
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools/refund.create/operations/refund%3Apay_1", "", NULL), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/operation_id", OP_1);
    ask_rest(stage, "GET", "/v1/tools/refund.create/operations/nope", "", NULL);
    expect_problem(stage, 404, "not_found");
}

static void test_history(void **state)
{
    struct stage *stage = *state;
    struct event events[] = {
        {.at_ms = NOW,
         .cause = CAUSE_ADMITTED,
         .from = STATE_DISPATCHED,
         .to = STATE_DISPATCHED,
         .actor = "local",
         .attempt = 1},
        {.at_ms = NOW,
         .cause = CAUSE_ANSWER,
         .from = STATE_DISPATCHED,
         .to = STATE_UNKNOWN_OUTCOME,
         .reason = REASON_TIMEOUT,
         .actor = "onced",
         .note = "no answer"},
    };
    struct attempt attempt = {.id = "at_01J00000000000000000000001",
                              .number = 1,
                              .kind = ATTEMPT_CALL,
                              .outcome = OUTCOME_TIMEOUT,
                              .started_ms = NOW,
                              .detail = "no answer within 10 s"};
    stage->engine.events = events;
    stage->engine.event_count = 2;
    stage->engine.attempts = &attempt;
    stage->engine.attempt_count = 1;
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_1 "/events", "", NULL), 200);
    expect_shape(stage, "EventList");
    expect(stage, "/events/1/reason", "timeout");
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_1 "/attempts", "", NULL), 200);
    expect_shape(stage, "AttemptList");
    expect(stage, "/attempts/0/outcome", "timeout");
    ask_rest(stage, "GET", "/v1/operations/" OP_1 "/events", "Onced-Tenant: other\r\n", NULL);
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "GET", "/v1/operations/" OP_1 "/attempts", "Onced-Tenant: other\r\n", NULL);
    expect_problem(stage, 404, "not_found");
}

static void test_list(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations?limit=1", "", NULL), 200);
    expect_shape(stage, "OperationList");
    expect(stage, "/operations/0/operation_id", OP_2);
    expect(stage, "/operations/0/arguments/card/number", "***");
    expect(stage, "/next", OP_2);
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations?limit=1&cursor=" OP_2, "", NULL), 200);
    expect(stage, "/operations/0/operation_id", OP_1);
    expect(stage, "/next", "null");
    assert_int_equal(ask_rest(stage, "GET",
                              "/v1/operations?status=unknown_outcome,planned&status=rejected&tool=refund.create"
                              "&run_id=run%5F1&principal=somebody",
                              "", NULL),
                     200);
    assert_int_equal(stage->engine.last_list.states,
                     1u << STATE_UNKNOWN_OUTCOME | 1u << STATE_PLANNED | 1u << STATE_REJECTED);
    assert_non_null(member(stage, "/operations/0"));
    assert_null(member(stage, "/operations/1"));
    static const char *const bad[] = {"status=done", "status=",       "limit=0",    "limit=501",
                                      "limit=x",     "cursor=banana", "tol=refund", "status=,done"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[100];
        snprintf(path, sizeof path, "/v1/operations?%s", bad[i]);
        ask_rest(stage, "GET", path, "", NULL);
        expect_problem(stage, 400, "malformed");
    }
}

/* A page whose answer gets too large ends early, with the cursor that goes on from there. */
static void test_list_large(void **state)
{
    struct stage *stage = *state;
    char *large = malloc(3 * 1024 * 1024);
    memset(large, 'x', 3 * 1024 * 1024);
    large[0] = large[3 * 1024 * 1024 - 1] = '"';
    struct operation third;
    make_operation(&third, OP_3, STATE_COMPLETED_SUCCESS);
    third.tool = stage->op.tool = stage->other.tool = "order.cancel";
    stage->shared.redact_count = 0;
    third.result = stage->op.result = stage->other.result = (struct str){large, 3 * 1024 * 1024};
    stage->engine.ops[2] = &third;
    stage->engine.op_count = 3;
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations", "", NULL), 200);
    assert_non_null(member(stage, "/operations/1"));
    assert_null(member(stage, "/operations/2"));
    expect(stage, "/next", OP_2);
    free(large);
}

static void test_run(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask_rest(stage, "GET", "/v1/runs/run_1", "", NULL), 200);
    expect_shape(stage, "Run");
    expect(stage, "/operations/0/operation_id", OP_1);
    expect(stage, "/summary", "{\"total\":2,\"succeeded\":1,\"failed\":0,\"open\":0,\"unknown\":1}");
    expect(stage, "/complete", "false");
    expect(stage, "/safe_user_message", "For a part of this it is not known whether it was done.");
    assert_int_equal(ask_rest(stage, "GET", "/v1/runs/run_1?limit=1", "", NULL), 200);
    expect_shape(stage, "Run");
    expect(stage, "/summary/total", "2"); /* the whole run, whatever page */
    expect(stage, "/next", OP_1);
    assert_int_equal(ask_rest(stage, "GET", "/v1/runs/run_1?limit=1&cursor=" OP_1, "", NULL), 200);
    expect(stage, "/operations/0/operation_id", OP_2);
    expect(stage, "/summary/total", "2");
    stage->other.state = STATE_FAILED_PERMANENT;
    ask_rest(stage, "GET", "/v1/runs/run_1", "", NULL);
    expect(stage, "/complete", "true");
    expect(stage, "/safe_user_message", "A part of this was done, a part was not.");
    assert_int_equal(ask_rest(stage, "GET", "/v1/runs/nothing", "", NULL), 200);
    expect(stage, "/summary/total", "0");
    expect(stage, "/safe_user_message", "Nothing is recorded for this run.");
}

static void test_tools(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools", "", NULL), 200);
    expect_shape(stage, "ToolList");
    expect(stage, "/policy_version", "abcdef012345");
    expect(stage, "/tools/0/name", "order.cancel");
    expect(stage, "/tools/1/policy/reconcile/strategies", "[\"lookup\",\"manual\"]");
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools/refund.create", "", NULL), 200);
    expect_shape(stage, "Tool");
    expect(stage, "/class", "external_idempotent");
    ask_rest(stage, "GET", "/v1/tools/refund.crate", "", NULL);
    expect_problem(stage, 404, "no_such_tool");
    expect_detail(stage, "refund.create");
}

/* What the registry does not let a principal use is neither listed nor hinted at nor run. */
static void test_principal_tools(void **state)
{
    struct stage *stage = *state;
    static const char *const who = "Onced-Principal: orders-only\r\n";
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools", who, NULL), 200);
    expect(stage, "/tools/0/name", "order.cancel");
    assert_null(member(stage, "/tools/1/name"));
    ask_rest(stage, "GET", "/v1/tools/refund.create", who, NULL);
    expect_problem(stage, 403, "forbidden");
    ask_rest(stage, "GET", "/v1/tools/refund.creat", who, NULL);
    expect_problem(stage, 404, "no_such_tool");
    expect(stage, "/detail", "no tool \"refund.creat\"");
    call(stage, who, "{\"tool\": \"refund.create\", \"arguments\": {}}");
    expect_problem(stage, 403, "forbidden");
    expect_detail(stage, "orders-only");
    assert_int_equal(stage->engine.calls, 0);
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools/order.cancel", who, NULL), 200);
    static const struct err none;
    stage->engine.reply = (struct engine_reply){.kind = REPLY_NO_TOOL, .err = &none};
    call(stage, who, "{\"tool\": \"order.cancel\", \"arguments\": {}}");
    assert_int_equal(stage->engine.calls, 1);
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools/refund.create", "Onced-Principal: somebody\r\n", NULL), 200);
}

static void test_incidents(void **state)
{
    struct stage *stage = *state;
    struct incident incident = {.id = "in_01J00000000000000000000001",
                                .tenant = "default",
                                .operation = OP_1,
                                .kind = INCIDENT_WRONG_OBJECT,
                                .at_ms = NOW,
                                .note = "amount differs"};
    stage->engine.incidents = &incident;
    stage->engine.incident_count = 1;
    assert_int_equal(ask_rest(stage, "GET", "/v1/incidents?open=true&limit=5", "", NULL), 200);
    expect_shape(stage, "IncidentList");
    expect(stage, "/incidents/0/kind", "wrong_object");
    ask_rest(stage, "GET", "/v1/incidents?open=maybe", "", NULL);
    expect_problem(stage, 400, "malformed");
    assert_int_equal(ask_rest(stage, "POST", "/v1/incidents/in_01J00000000000000000000001/acknowledge", "", ""), 200);
    expect_shape(stage, "Incident");
    expect(stage, "/acknowledged_by", "local");
    ask_rest(stage, "POST", "/v1/incidents/in_01J00000000000000000000002/acknowledge", "", "");
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "POST", "/v1/incidents/7/acknowledge", "", "");
    expect_problem(stage, 404, "not_found");
}

static void test_system(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask_rest(stage, "GET", "/v1/stats", "", NULL), 200);
    expect_shape(stage, "Stats");
    expect(stage, "/ledger/operations/completed_success", "7");
    assert_int_equal(ask_rest(stage, "GET", "/healthz", "", NULL), 200);
    expect_shape(stage, "Health");
    assert_int_equal(ask_rest(stage, "GET", "/readyz", "", NULL), 200);
    expect_shape(stage, "Ready");
    stage->engine.recovered = false;
    assert_int_equal(ask_rest(stage, "GET", "/readyz", "", NULL), 503);
    expect_shape(stage, "Ready");
    assert_int_equal(ask_rest(stage, "GET", "/healthz", "", NULL), 200);
    stage->engine.recovered = true;
    stage->engine.refusal = "the disk is full"; /* it can be read */
    assert_int_equal(ask_rest(stage, "GET", "/readyz", "", NULL), 503);
    assert_string_equal(member(stage, "/reasons/0"), "the ledger does not work: the disk is full");
    stage->engine.refusal = NULL;
    stage->engine.ledger_code = ERR_CORRUPT;
    assert_int_equal(ask_rest(stage, "GET", "/readyz", "", NULL), 200); /* asked at most once a second */
    stage->engine.now_ms += 1000;
    assert_int_equal(ask_rest(stage, "GET", "/readyz", "", NULL), 503);
    assert_non_null(strstr(member(stage, "/reasons/0"), "told to fail"));
}

/* ---- deciding ---- */

static void test_resolve(void **state)
{
    struct stage *stage = *state;
    struct engine *engine = &stage->engine;
    static const char path[] = "/v1/operations/" OP_1 "/resolve";
    assert_int_equal(
        ask_rest(stage, "POST", path, JSON_TYPE,
                 "{\"version\":3,\"happened\":true,\"external_id\":\"re_7\",\"result\":{\"a\":1.0},\"note\":\"seen\"}"),
        200);
    expect_shape(stage, "Operation");
    assert_int_equal(engine->decision.kind, DECISION_RESOLVE);
    assert_true(engine->decision.happened);
    assert_int_equal(engine->decision.rev, 3);
    assert_string_equal(engine->decided, OP_1);
    assert_string_equal(engine->external_id, "re_7");
    assert_string_equal(engine->stated, "{\"a\":1.0}");
    assert_string_equal(engine->note, "seen");
    assert_string_equal(engine->actor, "local");
    assert_int_equal(
        ask_rest(stage, "POST", path, JSON_TYPE, "{\"version\":3,\"happened\":false,\"retry\":true,\"note\":\"n\"}"),
        200);
    assert_true(engine->decision.allow_retry);
    static const char *const bad[] = {
        "{}",
        "{\"version\":3,\"happened\":true}",
        "{\"version\":3,\"happened\":true,\"note\":\"\"}",
        "{\"version\":0,\"happened\":true,\"note\":\"n\"}",
        "{\"happened\":true,\"note\":\"n\"}",
        "{\"version\":3,\"happened\":\"yes\",\"note\":\"n\"}",
        "{\"version\":3,\"happened\":true,\"retry\":true,\"note\":\"n\"}",
        "{\"version\":3,\"happened\":false,\"external_id\":\"x\",\"note\":\"n\"}",
        "{\"version\":3,\"happened\":false,\"result\":1,\"note\":\"n\"}",
        "{\"version\":3,\"happend\":false,\"note\":\"n\"}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask_rest(stage, "POST", path, JSON_TYPE, bad[i]);
        expect_problem(stage, 400, "malformed");
    }
    assert_int_equal(engine->decisions, 2);
    engine->reply.kind = REPLY_STALE;
    ask_rest(stage, "POST", path, JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 409, "stale_version");
    expect(stage, "/version", "2");
    engine->reply.kind = REPLY_IMPOSSIBLE;
    ask_rest(stage, "POST", path, JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 409, "not_possible");
    engine->reply.kind = REPLY_NOT_FOUND;
    ask_rest(stage, "POST", path, JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "POST", "/v1/operations/x/resolve", JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 404, "not_found");
}

static void test_retry_and_cancel(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask_rest(stage, "POST", "/v1/operations/" OP_1 "/retry", "", ""), 200);
    assert_int_equal(stage->engine.decision.kind, DECISION_RETRY);
    assert_int_equal(stage->engine.decision.rev, 0);
    assert_int_equal(
        ask_rest(stage, "POST", "/v1/operations/" OP_1 "/cancel", JSON_TYPE, "{\"version\":2,\"note\":\"x\"}"), 200);
    assert_int_equal(stage->engine.decision.kind, DECISION_CANCEL);
    assert_int_equal(stage->engine.decision.rev, 2);
    ask_rest(stage, "POST", "/v1/operations/" OP_1 "/cancel", "", "{}");
    expect_problem(stage, 415, "not_json");
}

static const struct CMUnitTest tests[] = {
    CASE(test_get_operation), CASE(test_tool_gone),
    CASE(test_tombstone),     CASE(test_by_key),
    CASE(test_history),       CASE(test_list),
    CASE(test_list_large),    CASE(test_run),
    CASE(test_tools),         CASE(test_principal_tools),
    CASE(test_incidents),     CASE(test_system),
    CASE(test_resolve),       CASE(test_retry_and_cancel),
};
const struct test_part look_tests = {"rest look", tests, sizeof tests / sizeof *tests};
