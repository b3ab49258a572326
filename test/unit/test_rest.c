/* The REST door over real sockets, with an engine whose replies the test gives: the document, calls and their refusals.
 */
#include "rest_stage.h"

#include "door/rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the document ---- */

static void test_document(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask_rest(stage, "GET", "/openapi.json", "", NULL), 200);
    expect(stage, "/openapi", "3.1.0");
    const struct json *paths = json_get(stage->answer.json, "paths");
    static const char *const names[] = {"get", "head", "post", "delete"};
    for (size_t i = 0; i < rest_route_count; i++) {
        const struct route *route = &rest_routes[i];
        const struct json *path = json_get(paths, route->path);
        assert_non_null(path);
        const struct json *operation = json_get(path, names[route->method]);
        assert_non_null(operation);
        assert_true(str_is(json_get_text(operation, "operationId"), route->id));
        assert_true(json_get(operation, "responses")->count > 0);
        const struct json *schemas = json_pointer_get(stage->answer.json, STR("/components/schemas"));
        assert_non_null(json_get(schemas, route->answer));
        if (route->body)
            assert_non_null(json_get(schemas, route->body));
    }
    /* Every schema compiles on its own: no reference leads nowhere. */
    load_schemas(stage);
    const struct json *schemas = json_get(stage->schemas, "schemas");
    for (uint32_t i = 0; i < schemas->count; i++) {
        struct json *wanted = json_object(&stage->arena);
        json_set(&stage->arena, wanted, STR("$ref"),
                 json_string(str_of(
                     arena_printf(&stage->arena, "#/components/schemas/%.*s", STR_ARG(schemas->members[i].name)))));
        json_set(&stage->arena, wanted, STR("components"), *stage->schemas);
        struct schema *schema;
        struct err err = {0};
        if (schema_new(wanted, NULL, 0, &schema, &err))
            fail_msg("%.*s: %s", STR_ARG(schemas->members[i].name), err.text);
        schema_free(schema);
    }
}

/* ---- calls ---- */

static void test_call_first_answer(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\",\"arguments\":{\"amount\":49.00}}"), 201);
    expect_shape(stage, "Operation");
    expect(stage, "/operation_id", OP_1);
    expect(stage, "/status", "completed_success");
    expect(stage, "/reason", "null");
    expect(stage, "/replayed", "false");
    expect(stage, "/next_action", "use_result");
    expect(stage, "/safe_user_message", "This was done.");
    expect(stage, "/result/card/number", "4242"); /* the caller's own answer is not masked */
    expect(stage, "/completed_at", "2026-09-21T14:13:16.000Z");
    assert_null(member(stage, "/key"));
    assert_null(member(stage, "/note"));
    assert_string_equal(http_answer_header(&stage->answer, "Onced-Operation-Id"), OP_1);
    assert_string_equal(http_answer_header(&stage->answer, "Location"), "/v1/operations/" OP_1);
    assert_null(http_answer_header(&stage->answer, "Idempotency-Replayed"));
    assert_string_equal(stage->engine.tool, "refund.create");
    assert_string_equal(stage->engine.tenant, "default");
    assert_string_equal(stage->engine.principal, "local");
    assert_string_equal(stage->engine.arguments, "{\"amount\":49.00}");
    assert_int_equal(stage->engine.wait_ms, -1);
    assert_false(stage->engine.async);
    assert_int_equal(stage->engine.delivered, 1);
    assert_string_equal(stage->engine.delivered_id, OP_1);
}

static void test_call_replay(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.replayed = true;
    stage->op.delivered = true;
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\"}"), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/replayed", "true");
    expect(stage, "/note",
           "already done at 2026-09-21T14:13:16.000Z as " OP_1
           "; to do it once more on purpose, call again with repeat_of");
    assert_string_equal(http_answer_header(&stage->answer, "Idempotency-Replayed"), "true");
    assert_null(http_answer_header(&stage->answer, "Location"));
    assert_int_equal(stage->engine.delivered, 0);
    stage->engine.reply.other_arguments = true;
    stage->engine.reply.tool = &stage->shared; /* repeat: denied */
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\"}"), 200);
    expect(stage, "/note",
           "already done at 2026-09-21T14:13:16.000Z as " OP_1
           "; the arguments differ from those of the first call; its result is returned");
}

static void test_call_everything(void **state)
{
    struct stage *stage = *state;
    call(stage, "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
         "{\"tool\":\"t\",\"idempotency_key\":\"k\",\"run_id\":\"r\",\"step_id\":\"s\",\"session_id\":\"se\",\"call_"
         "id\":"
         "\"c\",\"workflow\":\"w\",\"repeat_of\":\"" OP_1 "\",\"distinct_from\":[\"" OP_2 "\",\"" OP_3
         "\"],\"wait_ms\":1500,\"not_before\":\"2026-12-01T01:00:00.25+01:00\",\"dry_run\":true}");
    struct engine *engine = &stage->engine;
    assert_string_equal(engine->key, "k");
    assert_string_equal(engine->run, "r");
    assert_string_equal(engine->step, "s");
    assert_string_equal(engine->session, "se");
    assert_string_equal(engine->call, "c");
    assert_string_equal(engine->workflow, "w");
    assert_string_equal(engine->repeat_of, OP_1);
    assert_string_equal(engine->distinct, OP_2);
    assert_int_equal(engine->distinct_count, 2);
    assert_int_equal(engine->wait_ms, 1500);
    assert_int_equal(engine->not_before_ms, INT64_C(1796083200250));
    assert_true(engine->dry_run);
    assert_string_equal(engine->trace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    call(stage,
         "Idempotency-Key: \"a \\\"b\\\"\"\r\nOnced-Run-Id: r2\r\nOnced-Step-Id: s2\r\nOnced-Session-Id: se2\r\n"
         "Onced-Call-Id: c2\r\nPrefer: respond-async\r\ntraceparent: nonsense\r\n",
         "{\"tool\":\"t\",\"run_id\":\"r2\",\"workflow\":null}");
    assert_string_equal(engine->key, "a \"b\"");
    assert_string_equal(engine->run, "r2");
    assert_string_equal(engine->step, "s2");
    assert_string_equal(engine->session, "se2");
    assert_string_equal(engine->call, "c2");
    assert_string_equal(engine->trace, "");
    assert_true(engine->async);
    call(stage, "Prefer: foo, wait=\"7\"; x=y\r\n", "{\"tool\":\"t\"}");
    assert_int_equal(engine->wait_ms, 7000);
    assert_false(engine->async);
    call(stage, "Prefer: respond-async, wait=3\r\n", "{\"tool\":\"t\"}");
    assert_int_equal(engine->wait_ms, 3000);
    assert_false(engine->async);
}

static void test_call_not_ended(void **state)
{
    struct stage *stage = *state;
    make_operation(&stage->op, OP_1, STATE_UNKNOWN_OUTCOME);
    stage->op.reason = REASON_TIMEOUT;
    stage->op.result = STR_NONE;
    stage->op.wake_at_ms = NOW + 2400;
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\"}"), 202);
    expect_shape(stage, "Operation");
    expect(stage, "/status", "unknown_outcome");
    expect(stage, "/reason", "timeout");
    expect(stage, "/next_action", "wait");
    expect(stage, "/retry_after_ms", "2400");
    expect(stage, "/safe_user_message", "Refund status is being confirmed.");
    assert_string_equal(http_answer_header(&stage->answer, "Location"), "/v1/operations/" OP_1);
    assert_string_equal(http_answer_header(&stage->answer, "Retry-After"), "3");
    assert_int_equal(stage->engine.delivered, 0);
    stage->op.reason = REASON_NEEDS_OPERATOR;
    stage->engine.reply.tool = NULL;
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\"}"), 202);
    expect(stage, "/next_action", "ask_human");
    expect(stage, "/retry_after_ms", "null");
    expect(stage, "/safe_user_message", "It is not known whether this was done; a person has to check.");
}

static void test_call_failed(void **state)
{
    struct stage *stage = *state;
    make_operation(&stage->op, OP_1, STATE_FAILED_PERMANENT);
    stage->op.reason = REASON_PROVIDER_REFUSED;
    stage->op.result = STR_NONE;
    stage->op.error = STR("{\"message\":\"no funds\",\"code\":\"insufficient\"}");
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\"}"), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/error/code", "insufficient");
    expect(stage, "/next_action", "fix_arguments");
    expect(stage, "/safe_user_message", "This was not done.");
    make_operation(&stage->op, OP_1, STATE_REJECTED);
    stage->op.reason = REASON_CANCELLED;
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\"}"), 200);
    expect(stage, "/next_action", "do_not_retry");
}

/* Words for every state: the shape holds, and nothing open is called done. */
static void test_every_state(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.tool = &stage->shared;
    for (int i = 0; i < STATE_COUNT; i++) {
        make_operation(&stage->op, OP_1, (enum state)i);
        int status = call(stage, "", "{\"tool\":\"refund.create\"}");
        assert_int_equal(status, !state_terminal((enum state)i) ? 202 : i == STATE_COMPLETED_SUCCESS ? 201 : 200);
        expect_shape(stage, "Operation");
        const char *words = member(stage, "/safe_user_message");
        assert_true(strlen(words) > 10);
        if (i != STATE_COMPLETED_SUCCESS)
            assert_string_not_equal(words, "This was done.");
    }
}

static void test_read(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.kind = REPLY_READ;
    stage->op.id[0] = '\0';
    assert_int_equal(call(stage, "", "{\"tool\":\"order.get\"}"), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/operation_id", "null");
    expect(stage, "/links", "null");
    expect(stage, "/safe_user_message", "The information was read.");
    assert_null(http_answer_header(&stage->answer, "Onced-Operation-Id"));
    assert_int_equal(stage->engine.delivered, 0);
    stage->op.state = STATE_FAILED_PERMANENT;
    stage->op.reason = REASON_TIMEOUT;
    assert_int_equal(call(stage, "", "{\"tool\":\"order.get\"}"), 200);
    expect(stage, "/next_action", "wait");
    expect(stage, "/safe_user_message", "The information could not be read.");
}

static void test_plan(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply = (struct engine_reply){
        .kind = REPLY_PLAN, .plan = STR("{\"decision\":\"execute\"}"), .err = stage->engine.reply.err};
    assert_int_equal(call(stage, "", "{\"tool\":\"t\",\"dry_run\":true}"), 200);
    expect(stage, "/decision", "execute");
}

static void test_dropped_result(void **state)
{
    struct stage *stage = *state;
    stage->op.result_dropped = true;
    stage->op.result_bytes = 99999;
    call(stage, "", "{\"tool\":\"refund.create\"}");
    expect(stage, "/result/id", "re_1");
    expect(stage, "/note", "the result has 99999 bytes and is delivered this once; it is not kept");
    stage->op.result = STR_NONE;
    stage->engine.reply.replayed = true;
    call(stage, "", "{\"tool\":\"refund.create\"}");
    expect(stage, "/result", "null");
    expect(stage, "/result_dropped", "true");
    expect_shape(stage, "Operation");
    assert_non_null(strstr(member(stage, "/note"), "was delivered once and is not kept"));
}

static void test_incident_in_answer(void **state)
{
    struct stage *stage = *state;
    struct incident incident = {.id = "in_01J00000000000000000000001",
                                .tenant = "default",
                                .operation = OP_1,
                                .kind = INCIDENT_DUPLICATE_EFFECT,
                                .at_ms = NOW,
                                .note = "two matches"};
    stage->engine.incidents = &incident;
    stage->engine.incident_count = 1;
    stage->op.duplicate_seen = true;
    stage->engine.ledger_later = stage->engine.later = false;
    assert_int_equal(call(stage, "", "{\"tool\":\"refund.create\"}"), 201);
    expect_shape(stage, "Operation");
    expect(stage, "/incidents/0/kind", "duplicate_effect");
    expect(stage, "/safe_user_message", "This was done, possibly more than once; a person has to check.");
}

/* ---- refusals of calls ---- */

static void refuse_with(struct stage *stage, enum reply_kind kind, const char *text)
{
    static struct err err;
    err_clear(&err);
    if (text)
        err_set(&err, ERR_CONFLICT, "%s", text);
    stage->engine.reply.kind = kind;
    stage->engine.reply.err = &err;
    call(stage, "", "{\"tool\":\"refund.creat\"}");
    if (stage->answer.json)
        expect_shape(stage, "Problem");
}

static void test_call_problems(void **state)
{
    struct stage *stage = *state;
    struct engine_reply *reply = &stage->engine.reply;
    refuse_with(stage, REPLY_NO_TOOL, NULL);
    expect_problem(stage, 404, "no_such_tool");
    expect_detail(stage, "did you mean \"refund.create\"");
    struct identity_error why = {.refusal = REFUSAL_KEY_MISSING};
    reply->why = &why;
    refuse_with(stage, REPLY_REFUSED, "this tool wants an idempotency key");
    expect_problem(stage, 400, "key_missing");
    why.refusal = REFUSAL_KEY_INVALID;
    refuse_with(stage, REPLY_REFUSED, "the key is too long");
    expect_problem(stage, 400, "key_invalid");
    struct schema_error errors[] = {{"/amount", "expected integer, got string", "type"},
                                    {"", "x is missing", "required"}};
    why = (struct identity_error){REFUSAL_ARGUMENTS, errors, 2};
    refuse_with(stage, REPLY_REFUSED, "/amount: expected integer, got string");
    expect_problem(stage, 422, "invalid_arguments");
    expect(stage, "/errors/0/pointer", "/amount");
    expect(stage, "/errors/0/keyword", "type");
    expect(stage, "/errors/1/pointer", "");
    why = (struct identity_error){.refusal = REFUSAL_KEY_COMPONENT};
    refuse_with(stage, REPLY_REFUSED, "order_id is missing");
    expect_problem(stage, 422, "invalid_arguments");
    expect_detail(stage, "order_id is missing");
    const char *differing[] = {"/amount"};
    reply->differing = differing;
    reply->differing_count = 1;
    refuse_with(stage, REPLY_CONFLICT, NULL);
    expect_problem(stage, 422, "key_reused");
    expect(stage, "/differing/0", "/amount");
    expect(stage, "/operation_id", OP_1);
    expect(stage, "/operation_status", "completed_success");
    expect(stage, "/operation", "/v1/operations/" OP_1);
    reply->differing_count = 0;
    refuse_with(stage, REPLY_CONFLICT, NULL);
    expect(stage, "/differing", "[]");
    refuse_with(stage, REPLY_NOT_SHARED, NULL);
    expect_problem(stage, 409, "result_not_shared");
    expect(stage, "/principal", "local");
    refuse_with(stage, REPLY_REPEAT, "it is not finished: wait for it first");
    expect_problem(stage, 409, "repeat_refused");
    expect_detail(stage, "wait for it first");
    make_operation(&stage->op, OP_1, STATE_UNKNOWN_OUTCOME);
    stage->op.wake_at_ms = NOW + 3000;
    refuse_with(stage, REPLY_HELD, NULL);
    expect_problem(stage, 409, "in_doubt");
    expect_detail(stage, "distinct_from");
    expect(stage, "/retry_after_ms", "3000");
    assert_string_equal(http_answer_header(&stage->answer, "Retry-After"), "3");
    struct tombstone tombstone = {.operation = OP_3,
                                  .tenant = "default",
                                  .tool = "refund.create",
                                  .state = STATE_COMPLETED_SUCCESS,
                                  .completed_ms = NOW - 9,
                                  .dropped_ms = NOW - 1};
    reply->op = NULL;
    reply->tombstone = &tombstone;
    refuse_with(stage, REPLY_EXPIRED, NULL);
    expect_problem(stage, 409, "result_expired");
    expect(stage, "/operation_id", OP_3);
    refuse_with(stage, REPLY_UNAVAILABLE, "the disk is full");
    expect_problem(stage, 503, "unavailable");
    expect_detail(stage, "the disk is full");
    assert_string_equal(http_answer_header(&stage->answer, "Retry-After"), "1");
}

struct bad_body {
    const char *body, *name, *detail, *pointer;
    int status;
};

static void test_bad_bodies(void **state)
{
    struct stage *stage = *state;
    static const struct bad_body bad[] = {
        {"", "malformed", "empty", NULL, 400},
        {"{\"tool\":", "malformed", "line 1, column 9", NULL, 400},
        {"[]", "malformed", "must be an object, got array", "", 400},
        {"{}", "malformed", "\"tool\" is missing", "/tool", 400},
        {"{\"tool\":7}", "malformed", "must be a string, got number", "/tool", 400},
        {"{\"tool\":\"\"}", "malformed", "empty", "/tool", 400},
        {"{\"tool\":\"a\\u0000b\"}", "malformed", "NUL", "/tool", 400},
        {"{\"tool\":\"t\",\"tool\":\"t\"}", "malformed", "tool", NULL, 400},
        {"{\"tool\":\"\xff\"}", "malformed", "UTF-8", NULL, 400},
        {"{\"tool\":\"t\",\"argumets\":{}}", "malformed", "did you mean \"arguments\"", "/argumets", 400},
        {"{\"tool\":\"t\",\"zzzzzzzzz/\":{}}", "malformed", "unknown member", "/zzzzzzzzz~1", 400},
        {"{\"tool\":\"t\",\"arguments\":[]}", "malformed", "must be an object, got array", "/arguments", 400},
        {"{\"tool\":\"t\",\"wait_ms\":-1}", "malformed", "from 0 to 120000", "/wait_ms", 400},
        {"{\"tool\":\"t\",\"wait_ms\":120001}", "malformed", "from 0 to 120000", "/wait_ms", 400},
        {"{\"tool\":\"t\",\"wait_ms\":1.5}", "malformed", "from 0 to 120000", "/wait_ms", 400},
        {"{\"tool\":\"t\",\"wait_ms\":\"1\"}", "malformed", "got string", "/wait_ms", 400},
        {"{\"tool\":\"t\",\"wait_ms\":99999999999999999999}", "malformed", "from 0", "/wait_ms", 400},
        {"{\"tool\":\"t\",\"not_before\":\"tomorrow\"}", "malformed", "RFC 3339", "/not_before", 400},
        {"{\"tool\":\"t\",\"not_before\":\"2026-02-30T00:00:00Z\"}", "malformed", "RFC 3339", "/not_before", 400},
        {"{\"tool\":\"t\",\"not_before\":\"9999-01-01T00:00:00Z\"}", "malformed", "ten years", "/not_before", 400},
        {"{\"tool\":\"t\",\"dry_run\":1}", "malformed", "true or false", "/dry_run", 400},
        {"{\"tool\":\"t\",\"repeat_of\":\"op_1\"}", "malformed", "operation id", "/repeat_of", 400},
        {"{\"tool\":\"t\",\"distinct_from\":[\"x\"]}", "malformed", "operation id", "/distinct_from/0", 400},
        {"{\"tool\":\"t\",\"distinct_from\":7}", "malformed", "operation id", "/distinct_from", 400},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        call(stage, "", bad[i].body);
        expect_problem(stage, bad[i].status, bad[i].name);
        expect_detail(stage, bad[i].detail);
        if (bad[i].pointer)
            expect(stage, "/pointer", bad[i].pointer);
    }
    assert_int_equal(stage->engine.calls, 0);
}

static void test_too_deep(void **state)
{
    struct stage *stage = *state;
    struct buf body;
    buf_init(&body, 0);
    buf_add_text(&body, "{\"tool\":\"t\",\"arguments\":");
    for (int i = 0; i < 100; i++)
        buf_add_text(&body, "{\"a\":");
    buf_add_text(&body, "1");
    for (int i = 0; i < 101; i++)
        buf_add_text(&body, "}");
    call(stage, "", body.p);
    expect_problem(stage, 413, "too_large");
    buf_release(&body);
}

static void test_bad_headers(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *headers, *body, *name;
        int status;
    } bad[] = {
        {"Idempotency-Key: a\r\n", "{\"tool\":\"t\",\"idempotency_key\":\"b\"}", "malformed", 400},
        {"Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "{\"tool\":\"t\"}", "malformed", 400},
        {"Idempotency-Key: \"a\r\n", "{\"tool\":\"t\"}", "key_invalid", 400},
        {"Onced-Run-Id: a\r\n", "{\"tool\":\"t\",\"run_id\":\"b\"}", "malformed", 400},
        {"Onced-Run-Id: \xc3\xa4\r\n", "{\"tool\":\"t\"}", "malformed", 400},
        {"Onced-Step-Id: \r\n", "{\"tool\":\"t\"}", "malformed", 400},
        {"Prefer: wait=soon\r\n", "{\"tool\":\"t\"}", "malformed", 400},
        {"Prefer: wait=121\r\n", "{\"tool\":\"t\"}", "malformed", 400},
        {"Prefer: wait\r\n", "{\"tool\":\"t\"}", "malformed", 400},
        {"Prefer: wait=2\r\n", "{\"tool\":\"t\",\"wait_ms\":3000}", "malformed", 400},
        {"Onced-Tenant: a b\r\n", "{\"tool\":\"t\"}", "malformed", 400},
        {"Onced-Principal: \r\n", "{\"tool\":\"t\"}", "malformed", 400},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        call(stage, bad[i].headers, bad[i].body);
        expect_problem(stage, bad[i].status, bad[i].name);
    }
    assert_int_equal(stage->engine.calls, 0);
    call(stage, "Onced-Tenant: acme\r\nOnced-Principal: agent-7\r\n", "{\"tool\":\"t\"}");
    assert_string_equal(stage->engine.tenant, "acme");
    assert_string_equal(stage->engine.principal, "agent-7");
}

static void test_content_type(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *type;
        int status;
    } types[] = {
        {"", 415},
        {"Content-Type: text/plain\r\n", 415},
        {"Content-Type: application/x-www-form-urlencoded\r\n", 415},
        {"Content-Type: application/json; charset=latin1\r\n", 415},
        {"Content-Type: application/jsonx\r\n", 415},
        {"Content-Type: application/json; charset=UTF-8\r\n", 201},
        {"Content-Type: Application/Vnd.x+JSON\r\n", 201},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ask_rest(stage, "POST", "/v1/calls", types[i].type, "{\"tool\":\"t\"}");
        assert_int_equal(stage->answer.status, types[i].status);
        if (types[i].status == 415)
            expect_problem(stage, 415, "not_json");
    }
}

/* ---- large bodies ---- */

static void test_large_bodies(void **state)
{
    struct stage *stage = *state;
    char *fits = large_call(64 * 1024), *over = large_call(64 * 1024 + 1), *far = large_call(5 * 1024 * 1024);
    assert_int_equal(call(stage, "", fits), 201);
    assert_int_equal(call(stage, "", over), 413);
    expect_problem(stage, 413, "too_large");
    assert_null(http_answer_header(&stage->answer, "Connection"));
    /* Far too large: answered before it is read. The connection is closed, the answer arrives all the same. */
    assert_int_equal(call(stage, "", far), 413);
    assert_string_equal(http_answer_header(&stage->answer, "Connection"), "close");
    /* A client that looks for the answer only after it has sent everything is not cut off meanwhile. */
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 5242880\r\n\r\n");
    send_raw(stage, fd, far);
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 413);
    close(fd);
    assert_int_equal(call(stage, "Expect: 100-continue\r\n", over), 413);
    assert_int_equal(stage->engine.calls, 1);
    free(fits);
    free(over);
    free(far);
}

static void test_chunked(void **state)
{
    struct stage *stage = *state;
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Transfer-Encoding: chunked\r\n\r\n"
             "8\r\n{\"tool\":\r\n4\r\n\"t\"}\r\n0\r\n\r\n");
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 201);
    /* Without a stated length the limit is found while reading; far beyond it the connection ends. */
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Transfer-Encoding: chunked\r\n\r\n");
    char chunk[4096 + 16];
    size_t n = (size_t)sprintf(chunk, "1000\r\n");
    memset(chunk + n, ' ', 4096);
    memcpy(chunk + n + 4096, "\r\n", 3);
    for (int i = 0; i < 20; i++)
        send_raw(stage, fd, chunk);
    send_raw(stage, fd, "0\r\n\r\n");
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    expect_problem(stage, 413, "too_large");
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Transfer-Encoding: chunked\r\n\r\n");
    bool open = true;
    for (int i = 0; i < 400 && open; i++)
        open = http_send(&stage->loop, fd, chunk, strlen(chunk));
    assert_false(open);
    close(fd);
}

static const struct CMUnitTest tests[] = {
    CASE(test_document),       CASE(test_call_first_answer), CASE(test_call_replay),        CASE(test_call_everything),
    CASE(test_call_not_ended), CASE(test_call_failed),       CASE(test_every_state),        CASE(test_read),
    CASE(test_plan),           CASE(test_dropped_result),    CASE(test_incident_in_answer), CASE(test_call_problems),
    CASE(test_bad_bodies),     CASE(test_too_deep),          CASE(test_bad_headers),        CASE(test_content_type),
    CASE(test_large_bodies),   CASE(test_chunked),
};
static const struct test_part call_tests = {"rest calls", tests, sizeof tests / sizeof *tests};

int main(void)
{
    const struct test_part *const parts[] = {&call_tests, &wire_tests, &look_tests, &token_tests};
    return test_parts_run(parts, sizeof parts / sizeof *parts);
}
