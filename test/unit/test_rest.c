/* The REST door over real sockets, with an engine whose replies the test gives. */
#include "support/test.h"

#include "core/identity.h"
#include "door/auth.h"
#include "door/http.h"
#include "door/links.h"
#include "door/rest.h"
#include "support/fake_engine.h"
#include "support/http_client.h"
#include "support/jwt_vectors.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define OP_1 "op_01J00000000000000000000001"
#define OP_2 "op_01J00000000000000000000002"
#define OP_3 "op_01J00000000000000000000003"
#define NOW  INT64_C(1790000000000)

/* ---- the stage ---- */

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct registry *registry;
    struct provider provider;
    struct tool tool, shared;
    struct http_door *door;
    struct operation op, other;
    struct http_answer answer;
    struct json *schemas; /* components of the document */
    struct arena arena;
};

static const char *const redact[] = {"/card/number"};
static const struct tool_message messages[] = {{STATE_UNKNOWN_OUTCOME, "Refund status is being confirmed."}};

static void make_tools(struct stage *stage)
{
    struct err err = {0};
    stage->provider = (struct provider){.name = "payments"};
    stage->tool = (struct tool){
        .name = "refund.create",
        .class = CLASS_EXTERNAL_IDEMPOTENT,
        .provider = &stage->provider,
        .redact_pointers = redact,
        .redact_count = 1,
        .messages = messages,
        .message_count = 1,
        .reconcile = {.strategies = {STRATEGY_LOOKUP, STRATEGY_MANUAL}, .strategy_count = 2},
    };
    stage->shared = stage->tool;
    stage->shared.name = "order.cancel";
    stage->shared.share = SHARE_TENANT;
    stage->shared.repeat = REPEAT_DENIED;
    const struct tool *tools[] = {&stage->tool, &stage->shared};
    const struct provider *providers[] = {&stage->provider};
    static const char *const orders[] = {"order.*"};
    static const struct registry_access access[] = {{"orders-only", orders, 1}};
    assert_int_equal(registry_new(tools, 2, providers, 1, "abcdef012345", NULL, NULL, &stage->registry, &err), 0);
    registry_restrict(stage->registry, access, 1);
}

static void make_operation(struct operation *op, const char *id, enum state state)
{
    *op = (struct operation){
        .tenant = "default",
        .tool = "refund.create",
        .principal = "local",
        .key = "refund:pay_1",
        .key_source = KEY_SOURCE_CALLER,
        .key_version = 1,
        .created_ms = NOW - 5000,
        .updated_ms = NOW - 4000,
        .completed_ms = state_terminal(state) ? NOW - 4000 : 0,
        .state = state,
        .rev = 2,
        .attempts = 1,
        .tries = 1,
        .http_status = 201,
        .run = "run_1",
        .arguments = STR("{\"payment_id\":\"pay_1\",\"card\":{\"number\":\"4242\"}}"),
        .result = STR("{\"id\":\"re_1\",\"card\":{\"number\":\"4242\"}}"),
        .external_id = "re_1",
    };
    snprintf(op->id, sizeof op->id, "%s", id);
    op->key_hash = identity_key_hash("default", "refund.create", "refund:pay_1", NULL);
}

static void open_door(struct stage *stage, bool tokens, size_t connections_max, unsigned timeout_s)
{
    struct err err = {0};
    const struct http_door_options options = {
        .loop = &stage->loop,
        .engine = &stage->engine,
        .address = "127.0.0.1",
        .auth_tokens = tokens,
        .links_base = "https://onced.example.com",
        .links_expires_ms = 3600000,
        .connections_max = connections_max,
        .body_bytes_max = 64 * 1024,
        .timeout_s = timeout_s,
    };
    assert_int_equal(http_door_new(&options, &stage->door, &err), 0);
}

static int set_up_with(void **state, bool tokens, size_t connections_max, unsigned timeout_s)
{
    struct stage *stage = calloc(1, sizeof *stage);
    uv_loop_init(&stage->loop);
    make_tools(stage);
    fake_engine_init(&stage->engine, stage->registry);
    stage->engine.now_ms = NOW;
    make_operation(&stage->op, OP_1, STATE_COMPLETED_SUCCESS);
    make_operation(&stage->other, OP_2, STATE_UNKNOWN_OUTCOME);
    stage->other.principal = "somebody";
    stage->engine.ops[0] = &stage->op;
    stage->engine.ops[1] = &stage->other;
    stage->engine.op_count = 2;
    stage->engine.reply.kind = REPLY_OPERATION;
    stage->engine.reply.op = &stage->op;
    stage->engine.reply.tool = &stage->tool;
    open_door(stage, tokens, connections_max, timeout_s);
    *state = stage;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, false, 0, 0);
}

static int set_up_tokens(void **state)
{
    return set_up_with(state, true, 0, 0);
}

static int set_up_small(void **state)
{
    return set_up_with(state, false, 2, 0);
}

static int set_up_hasty(void **state)
{
    return set_up_with(state, false, 0, 1);
}

static void door_closed(void *user)
{
    *(bool *)user = true;
}

static void close_door(struct stage *stage)
{
    bool closed = false;
    http_door_close(stage->door, door_closed, &closed);
    for (int i = 0; i < 3000 && !closed; i++)
        http_spin(&stage->loop, 1);
    assert_true(closed);
    stage->door = NULL;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    if (stage->door)
        close_door(stage);
    http_spin(&stage->loop, 5);
    assert_int_equal(uv_loop_close(&stage->loop), 0);
    http_answer_release(&stage->answer);
    arena_release(&stage->arena);
    fake_engine_release(&stage->engine);
    registry_unref(stage->registry);
    free(stage);
    return 0;
}

/* ---- asking ---- */

static void send_raw(struct stage *stage, int fd, const char *text)
{
    assert_true(http_send(&stage->loop, fd, text, strlen(text)));
}

/* One request on a connection of its own; headers are whole lines. Returns the status. */
static int ask(struct stage *stage, const char *method, const char *path, const char *headers, const char *body)
{
    struct buf text;
    buf_init(&text, 0);
    buf_printf(&text, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s", method, path, headers);
    if (body)
        buf_printf(&text, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    else
        buf_add_text(&text, "\r\n");
    int fd = http_connect(http_door_port(stage->door));
    assert_true(fd >= 0);
    http_send(&stage->loop, fd, text.p, text.n);
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, strcmp(method, "HEAD") == 0, 5000, &stage->answer);
    close(fd);
    http_spin(&stage->loop, 2);
    buf_release(&text);
    return stage->answer.status;
}

#define JSON_TYPE "Content-Type: application/json\r\n"

static int call(struct stage *stage, const char *headers, const char *body)
{
    char lines[1024];
    snprintf(lines, sizeof lines, JSON_TYPE "%s", headers);
    return ask(stage, "POST", "/v1/calls", lines, body);
}

static const char *member(struct stage *stage, const char *pointer)
{
    const struct json *value = stage->answer.json ? json_pointer_get(stage->answer.json, str_of(pointer)) : NULL;
    if (!value)
        return NULL;
    struct buf text;
    buf_init(&text, 0);
    if (value->type == JSON_STRING)
        buf_add_str(&text, value->text);
    else
        json_write(&text, value);
    const char *copy = arena_copy_str(&stage->answer.arena, buf_str(&text));
    buf_release(&text);
    return copy;
}

static void expect(struct stage *stage, const char *pointer, const char *value)
{
    const char *is = member(stage, pointer);
    if (!is)
        fail_msg("no %s in %.*s", pointer, STR_ARG(buf_str(&stage->answer.body)));
    assert_string_equal(is, value);
}

static void expect_problem(struct stage *stage, int status, const char *name)
{
    char type[100];
    snprintf(type, sizeof type, "urn:onced:problem:%s", name);
    if (stage->answer.status != status)
        fail_msg("status %d: %.*s", stage->answer.status, STR_ARG(buf_str(&stage->answer.body)));
    assert_string_equal(http_answer_header(&stage->answer, "Content-Type"), "application/problem+json");
    expect(stage, "/type", type);
    assert_non_null(member(stage, "/title"));
    assert_int_equal(atoi(member(stage, "/status")), status);
}

static void expect_detail(struct stage *stage, const char *part)
{
    const char *detail = member(stage, "/detail");
    if (!detail || !strstr(detail, part))
        fail_msg("\"%s\" is not in \"%s\"", part, detail ? detail : "(none)");
}

/* ---- the document, and answers against it ---- */

static void load_schemas(struct stage *stage)
{
    if (stage->schemas)
        return;
    struct http_answer kept = stage->answer;
    stage->answer = (struct http_answer){0};
    assert_int_equal(ask(stage, "GET", "/openapi.json", "", NULL), 200);
    stage->schemas = json_copy(&stage->arena, json_get(stage->answer.json, "components"));
    http_answer_release(&stage->answer);
    stage->answer = kept;
}

/* The last answer is valid by the named component schema. */
static void expect_shape(struct stage *stage, const char *name)
{
    load_schemas(stage);
    struct arena *arena = &stage->arena;
    struct json *wanted = json_object(arena);
    json_set(arena, wanted, STR("$ref"), json_string(str_of(arena_printf(arena, "#/components/schemas/%s", name))));
    json_set(arena, wanted, STR("components"), *stage->schemas);
    struct schema *schema;
    struct err err = {0};
    struct schema_error *errors;
    size_t count;
    if (schema_new(wanted, NULL, 0, &schema, &err))
        fail_msg("schema %s: %s", name, err.text);
    assert_non_null(stage->answer.json);
    if (schema_validate(schema, arena, stage->answer.json, &errors, &count, &err))
        fail_msg("%s: %s: %.*s", name, err.text, STR_ARG(buf_str(&stage->answer.body)));
    schema_free(schema);
}

static void test_document(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "GET", "/openapi.json", "", NULL), 200);
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
        ask(stage, "POST", "/v1/calls", types[i].type, "{\"tool\":\"t\"}");
        assert_int_equal(stage->answer.status, types[i].status);
        if (types[i].status == 415)
            expect_problem(stage, 415, "not_json");
    }
}

/* ---- large bodies ---- */

static char *large_call(size_t bytes)
{
    static const char head[] = "{\"tool\":\"t\",\"arguments\":{\"a\":\"", tail[] = "\"}}";
    char *body = malloc(bytes + 1);
    memset(body, 'x', bytes);
    memcpy(body, head, sizeof head - 1);
    memcpy(body + bytes - (sizeof tail - 1), tail, sizeof tail);
    return body;
}

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

/* ---- the wire ---- */

static void test_pipelined(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    int fd = http_connect(http_door_port(stage->door));
    struct buf text, rest;
    buf_init(&text, 0);
    buf_init(&rest, 0);
    for (int i = 0; i < 5; i++)
        buf_add_text(&text, "POST /v1/calls HTTP/1.1\r\nHost: [::1]:80\r\n" JSON_TYPE
                            "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    buf_add_text(&text, "GET /healthz HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
    http_send(&stage->loop, fd, text.p, text.n);
    for (int i = 0; i < 5; i++) {
        http_spin(&stage->loop, 5);
        assert_int_equal(stage->engine.calls, i + 1); /* one after the other */
        assert_true(fake_engine_reply(&stage->engine));
        http_answer_release(&stage->answer);
        http_receive(&stage->loop, fd, &rest, false, 2000, &stage->answer);
        assert_int_equal(stage->answer.status, 201);
    }
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, &rest, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    expect(stage, "/status", "ok");
    close(fd);
    buf_release(&text);
    buf_release(&rest);
}

static void test_methods(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "HEAD", "/v1/operations/" OP_1, "", NULL), 200);
    assert_true(atoi(http_answer_header(&stage->answer, "Content-Length")) > 500);
    assert_int_equal(ask(stage, "OPTIONS", "/v1/calls", "", NULL), 204);
    assert_string_equal(http_answer_header(&stage->answer, "Allow"), "POST, OPTIONS");
    assert_int_equal(ask(stage, "OPTIONS", "/v1/tokens", "", NULL), 204);
    assert_string_equal(http_answer_header(&stage->answer, "Allow"), "GET, HEAD, POST, OPTIONS");
    ask(stage, "GET", "/v1/calls", "", NULL);
    expect_problem(stage, 405, "method_not_allowed");
    assert_string_equal(http_answer_header(&stage->answer, "Allow"), "POST, OPTIONS");
    ask(stage, "PUT", "/v1/calls", JSON_TYPE, "{}");
    expect_problem(stage, 405, "method_not_allowed");
    ask(stage, "BREW", "/v1/operations", "", NULL);
    expect_problem(stage, 405, "method_not_allowed");
    ask(stage, "GET", "/v1/nothing", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask(stage, "GET", "/v1/operations/" OP_1 "/nothing", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask(stage, "GET", "/v1/operations/%00", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask(stage, "GET", "/v1/operations/%zz", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask(stage, "GET", "/v1/operations/op_01j00000000000000000000001", "", NULL);
    expect_problem(stage, 404, "not_found");
}

static void test_long_head(void **state)
{
    struct stage *stage = *state;
    char *headers = malloc(70000);
    size_t n = (size_t)sprintf(headers, "X-Long: ");
    memset(headers + n, 'a', 60000);
    memcpy(headers + n + 60000, "\r\n", 3);
    int status = ask(stage, "GET", "/healthz", headers, NULL);
    assert_true(status == 431 || status == 413);
    free(headers);
}

static void test_foreign_pages(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *host, *origin;
        int status;
    } from[] = {
        {"127.0.0.1:7070", NULL, 200},
        {"localhost", NULL, 200},
        {"[::1]:7070", NULL, 200},
        {"192.168.1.7", NULL, 200},
        {"evil.example", NULL, 403},
        {"localhost.evil.example", NULL, 403},
        {"127.0.0.1.evil.example:7070", NULL, 403},
        {"localhost", "http://localhost:3000", 200},
        {"localhost", "http://127.0.0.1", 200},
        {"localhost", "http://[::1]:1", 200},
        {"localhost", "https://evil.example", 403},
        {"localhost", "http://localhost.evil.example", 403},
        {"localhost", "null", 403},
    };
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        char text[300];
        snprintf(text, sizeof text, "GET /v1/tools HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", from[i].host,
                 from[i].origin ? "Origin: " : "", from[i].origin ? from[i].origin : "", from[i].origin ? "\r\n" : "");
        int fd = http_connect(http_door_port(stage->door));
        send_raw(stage, fd, text);
        http_answer_release(&stage->answer);
        http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
        if (stage->answer.status != from[i].status)
            fail_msg("%s %s: %d", from[i].host, from[i].origin ? from[i].origin : "-", stage->answer.status);
        close(fd);
    }
}

static void test_caller_leaves(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 150);
    assert_int_equal(stage->engine.calls, 1);
    assert_int_equal(stage->engine.left, 0);
    close(fd);
    http_spin(&stage->loop, 100);
    assert_int_equal(stage->engine.left, 1);
    assert_false(fake_engine_reply(&stage->engine));
    /* Gone before anybody looked: noticed by the sweep. */
    fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 5);
    close(fd);
    http_spin(&stage->loop, 200);
    assert_int_equal(stage->engine.left, 2);
    /* Gone at the very moment of the answer: not delivered. */
    fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 5);
    close(fd);
    assert_true(fake_engine_reply(&stage->engine));
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 0);
}

static void test_waiting_caller_is_answered(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 200); /* long enough to be watched */
    assert_true(fake_engine_reply(&stage->engine));
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 201);
    http_spin(&stage->loop, 10);
    assert_int_equal(stage->engine.delivered, 1);
    send_raw(stage, fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* the connection lives on */
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    close(fd);
}

static void test_too_many_connections(void **state)
{
    struct stage *stage = *state;
    int first = http_connect(http_door_port(stage->door)), second = http_connect(http_door_port(stage->door));
    http_spin(&stage->loop, 10);
    ask(stage, "GET", "/healthz", "", NULL);
    expect_problem(stage, 503, "unavailable");
    assert_string_equal(http_answer_header(&stage->answer, "Connection"), "close");
    close(first);
    close(second);
    http_spin(&stage->loop, 10);
    assert_int_equal(ask(stage, "GET", "/healthz", "", NULL), 200);
}

static bool is_closed(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* One connection says nothing, one never gets its head together, one never its body; a waiting caller is none of them.
 */
static void test_slow(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    uint16_t port = http_door_port(stage->door);
    int silent = http_connect(port), head = http_connect(port), body = http_connect(port), waiting = http_connect(port);
    send_raw(stage, head, "GET /healthz HTTP/1.1\r\nX-Slow: ");
    send_raw(stage, body, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 1000\r\n\r\n");
    send_raw(stage, waiting,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    int seen = 0;
    for (int i = 0; i < 60 && seen != 7; i++) {
        http_spin(&stage->loop, 100);
        if (!is_closed(head))
            http_send(&stage->loop, head, "a", 1);
        if (!is_closed(body))
            http_send(&stage->loop, body, " ", 1);
        seen = is_closed(silent) | is_closed(head) << 1 | is_closed(body) << 2;
    }
    assert_int_equal(seen, 7);
    assert_false(is_closed(waiting));
    assert_true(fake_engine_reply(&stage->engine));
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, waiting, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 201);
    close(silent);
    close(head);
    close(body);
    close(waiting);
}

/* ---- TLS ---- */

static char *pem_text(BIO *bio)
{
    char *data;
    long n = BIO_get_mem_data(bio, &data);
    char *text = strndup(data, (size_t)n);
    BIO_free(bio);
    return text;
}

static void make_certificate(char **cert, char **key)
{
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *x509 = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), 0);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1,
                               -1, 0);
    X509_set_issuer_name(x509, X509_get_subject_name(x509));
    assert_true(X509_sign(x509, pair, EVP_sha256()) > 0);
    BIO *cert_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(cert_bio, x509);
    PEM_write_bio_PrivateKey(key_bio, pair, NULL, NULL, 0, NULL, NULL);
    *cert = pem_text(cert_bio);
    *key = pem_text(key_bio);
    X509_free(x509);
    EVP_PKEY_free(pair);
}

/* Sends one request over TLS and gives what came back, as text in the arena. */
static const char *ask_tls(struct stage *stage, struct http_door *door, const char *request)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    int fd = http_connect(http_door_port(door));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    SSL_set_fd(ssl, fd);
    int connected = 0, wrote = 0, n = 0;
    char text[8192] = "";
    for (int i = 0; i < 3000 && !strstr(text, "}"); i++) {
        http_spin(&stage->loop, 1);
        if (connected <= 0)
            connected = SSL_connect(ssl);
        else if (wrote <= 0)
            wrote = SSL_write(ssl, request, (int)strlen(request));
        else if (SSL_read(ssl, text + n, (int)(sizeof text - 1) - n) > 0)
            n = (int)strlen(text);
    }
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    return arena_copy_text(&stage->arena, text);
}

static void test_tls(void **state)
{
    struct stage *stage = *state;
    struct http_door *plain = stage->door;
    char *cert, *key;
    struct err err = {0};
    make_certificate(&cert, &key);
    const struct http_door_options options = {
        .loop = &stage->loop,
        .engine = &stage->engine,
        .address = "localhost",
        .tls_cert_pem = cert,
        .tls_key_pem = key,
    };
    assert_int_equal(http_door_new(&options, &stage->door, &err), 0);
    free(cert);
    free(key);
    const char *answer = ask_tls(stage, stage->door,
                                 "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                                 "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    assert_non_null(strstr(answer, "HTTP/1.1 201"));
    assert_non_null(strstr(answer, OP_1));
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 1);
    close_door(stage);
    stage->door = plain;
}

static void test_stop(void **state)
{
    struct stage *stage = *state;
    load_schemas(stage);
    stage->engine.later = true;
    int kept = http_connect(http_door_port(stage->door)), waiting = http_connect(http_door_port(stage->door));
    send_raw(stage, waiting,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 10);
    uint16_t port = http_door_port(stage->door);
    http_door_stop_accepting(stage->door);
    http_spin(&stage->loop, 5);
    assert_int_equal(http_connect(port), -1);
    send_raw(stage, kept, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, kept, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 503);
    expect_shape(stage, "Ready");
    expect(stage, "/reasons/0", "stopping");
    assert_string_equal(http_answer_header(&stage->answer, "Connection"), "close");
    close_door(stage);
    assert_int_equal(stage->engine.left, 1); /* the waiting caller was given up */
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, waiting, NULL, false, 100, &stage->answer);
    assert_int_equal(stage->answer.status, 0);
    close(kept);
    close(waiting);
}

/* A command that is under way in the ledger keeps the door open until it is back. */
static void test_stop_waits_for_ledger(void **state)
{
    struct stage *stage = *state;
    bool closed = false;
    stage->engine.ledger_later = true;
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd, "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
    http_spin(&stage->loop, 10);
    http_door_close(stage->door, door_closed, &closed);
    http_spin(&stage->loop, 1200); /* longer than answers under way are given */
    assert_false(closed);
    fake_ledger_poll(&stage->engine);
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    for (int i = 0; i < 2000 && !closed; i++)
        http_spin(&stage->loop, 1);
    assert_true(closed);
    stage->door = NULL;
    close(fd);
}

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
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_1, "", NULL), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/key", "refund:pay_1");
    expect(stage, "/arguments/card/number", "***");
    expect(stage, "/result/card/number", "***");
    expect(stage, "/result/id", "re_1");
    expect(stage, "/incidents/0/kind", "late_landing");
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_2, "", NULL), 202);
    ask(stage, "GET", "/v1/operations/" OP_3, "", NULL);
    expect_problem(stage, 404, "not_found");
    ask(stage, "GET", "/v1/operations/" OP_1, "Onced-Tenant: other\r\n", NULL);
    expect_problem(stage, 404, "not_found");
    ask(stage, "GET", "/v1/operations/" OP_1 "?wait=abc", "", NULL);
    expect_problem(stage, 400, "malformed");
    ask(stage, "GET", "/v1/operations/" OP_1 "?wait=120001", "", NULL);
    expect_problem(stage, 400, "malformed");
    ask(stage, "GET", "/v1/operations/" OP_1 "?wiat=1", "", NULL);
    expect_problem(stage, 400, "malformed");
    expect_detail(stage, "did you mean \"wait\"");
    ask(stage, "GET", "/v1/operations/" OP_1 "?wait=%4", "", NULL);
    expect_problem(stage, 400, "malformed");
    assert_int_equal(stage->engine.waits, 0);
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_1 "?wait=250", "", NULL), 200);
    assert_int_equal(stage->engine.waits, 1);
    assert_int_equal(stage->engine.wait_ms, 250);
    stage->engine.ledger_code = ERR_IO;
    ask(stage, "GET", "/v1/operations/" OP_1, "", NULL);
    expect_problem(stage, 503, "unavailable");
}

/* Without its tool nobody knows what to mask: nothing of the payload is shown. */
static void test_tool_gone(void **state)
{
    struct stage *stage = *state;
    stage->op.tool = "gone";
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_1, "", NULL), 200);
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
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_3, "", NULL), 200);
    expect_shape(stage, "Tombstone");
    expect(stage, "/external_id", "re_9");
    assert_int_equal(ask(stage, "GET", "/v1/tools/refund.create/operations/old%2Fkey", "", NULL), 200);
    expect_shape(stage, "Tombstone");
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_3 "/events", "", NULL), 200);
    expect(stage, "/events", "[]");
}

static void test_by_key(void **state)
{
    struct stage *stage = *state;
    stage->engine.op_count = 1;
    assert_int_equal(ask(stage, "GET", "/v1/tools/refund.create/operations/refund%3Apay_1", "", NULL), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/operation_id", OP_1);
    ask(stage, "GET", "/v1/tools/refund.create/operations/nope", "", NULL);
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
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_1 "/events", "", NULL), 200);
    expect_shape(stage, "EventList");
    expect(stage, "/events/1/reason", "timeout");
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_1 "/attempts", "", NULL), 200);
    expect_shape(stage, "AttemptList");
    expect(stage, "/attempts/0/outcome", "timeout");
    ask(stage, "GET", "/v1/operations/" OP_1 "/events", "Onced-Tenant: other\r\n", NULL);
    expect_problem(stage, 404, "not_found");
    ask(stage, "GET", "/v1/operations/" OP_1 "/attempts", "Onced-Tenant: other\r\n", NULL);
    expect_problem(stage, 404, "not_found");
}

static void test_list(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "GET", "/v1/operations?limit=1", "", NULL), 200);
    expect_shape(stage, "OperationList");
    expect(stage, "/operations/0/operation_id", OP_2);
    expect(stage, "/operations/0/arguments/card/number", "***");
    expect(stage, "/next", OP_2);
    assert_int_equal(ask(stage, "GET", "/v1/operations?limit=1&cursor=" OP_2, "", NULL), 200);
    expect(stage, "/operations/0/operation_id", OP_1);
    expect(stage, "/next", "null");
    assert_int_equal(ask(stage, "GET",
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
        ask(stage, "GET", path, "", NULL);
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
    assert_int_equal(ask(stage, "GET", "/v1/operations", "", NULL), 200);
    assert_non_null(member(stage, "/operations/1"));
    assert_null(member(stage, "/operations/2"));
    expect(stage, "/next", OP_2);
    free(large);
}

static void test_run(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "GET", "/v1/runs/run_1", "", NULL), 200);
    expect_shape(stage, "Run");
    expect(stage, "/operations/0/operation_id", OP_1);
    expect(stage, "/summary", "{\"total\":2,\"succeeded\":1,\"failed\":0,\"open\":0,\"unknown\":1}");
    expect(stage, "/complete", "false");
    expect(stage, "/safe_user_message", "For a part of this it is not known whether it was done.");
    assert_int_equal(ask(stage, "GET", "/v1/runs/run_1?limit=1", "", NULL), 200);
    expect_shape(stage, "Run");
    expect(stage, "/summary/total", "2"); /* the whole run, whatever page */
    expect(stage, "/next", OP_1);
    assert_int_equal(ask(stage, "GET", "/v1/runs/run_1?limit=1&cursor=" OP_1, "", NULL), 200);
    expect(stage, "/operations/0/operation_id", OP_2);
    expect(stage, "/summary/total", "2");
    stage->other.state = STATE_FAILED_PERMANENT;
    ask(stage, "GET", "/v1/runs/run_1", "", NULL);
    expect(stage, "/complete", "true");
    expect(stage, "/safe_user_message", "A part of this was done, a part was not.");
    assert_int_equal(ask(stage, "GET", "/v1/runs/nothing", "", NULL), 200);
    expect(stage, "/summary/total", "0");
    expect(stage, "/safe_user_message", "Nothing is recorded for this run.");
}

static void test_tools(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "GET", "/v1/tools", "", NULL), 200);
    expect_shape(stage, "ToolList");
    expect(stage, "/policy_version", "abcdef012345");
    expect(stage, "/tools/0/name", "order.cancel");
    expect(stage, "/tools/1/policy/reconcile/strategies", "[\"lookup\",\"manual\"]");
    assert_int_equal(ask(stage, "GET", "/v1/tools/refund.create", "", NULL), 200);
    expect_shape(stage, "Tool");
    expect(stage, "/class", "external_idempotent");
    ask(stage, "GET", "/v1/tools/refund.crate", "", NULL);
    expect_problem(stage, 404, "no_such_tool");
    expect_detail(stage, "refund.create");
}

/* What the registry does not let a principal use is neither listed nor hinted at nor run. */
static void test_principal_tools(void **state)
{
    struct stage *stage = *state;
    static const char *const who = "Onced-Principal: orders-only\r\n";
    assert_int_equal(ask(stage, "GET", "/v1/tools", who, NULL), 200);
    expect(stage, "/tools/0/name", "order.cancel");
    assert_null(member(stage, "/tools/1/name"));
    ask(stage, "GET", "/v1/tools/refund.create", who, NULL);
    expect_problem(stage, 403, "forbidden");
    ask(stage, "GET", "/v1/tools/refund.creat", who, NULL);
    expect_problem(stage, 404, "no_such_tool");
    expect(stage, "/detail", "no tool \"refund.creat\"");
    call(stage, who, "{\"tool\": \"refund.create\", \"arguments\": {}}");
    expect_problem(stage, 403, "forbidden");
    expect_detail(stage, "orders-only");
    assert_int_equal(stage->engine.calls, 0);
    assert_int_equal(ask(stage, "GET", "/v1/tools/order.cancel", who, NULL), 200);
    static const struct err none;
    stage->engine.reply = (struct engine_reply){.kind = REPLY_NO_TOOL, .err = &none};
    call(stage, who, "{\"tool\": \"order.cancel\", \"arguments\": {}}");
    assert_int_equal(stage->engine.calls, 1);
    assert_int_equal(ask(stage, "GET", "/v1/tools/refund.create", "Onced-Principal: somebody\r\n", NULL), 200);
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
    assert_int_equal(ask(stage, "GET", "/v1/incidents?open=true&limit=5", "", NULL), 200);
    expect_shape(stage, "IncidentList");
    expect(stage, "/incidents/0/kind", "wrong_object");
    ask(stage, "GET", "/v1/incidents?open=maybe", "", NULL);
    expect_problem(stage, 400, "malformed");
    assert_int_equal(ask(stage, "POST", "/v1/incidents/in_01J00000000000000000000001/acknowledge", "", ""), 200);
    expect_shape(stage, "Incident");
    expect(stage, "/acknowledged_by", "local");
    ask(stage, "POST", "/v1/incidents/in_01J00000000000000000000002/acknowledge", "", "");
    expect_problem(stage, 404, "not_found");
    ask(stage, "POST", "/v1/incidents/7/acknowledge", "", "");
    expect_problem(stage, 404, "not_found");
}

static void test_system(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "GET", "/v1/stats", "", NULL), 200);
    expect_shape(stage, "Stats");
    expect(stage, "/ledger/operations/completed_success", "7");
    assert_int_equal(ask(stage, "GET", "/healthz", "", NULL), 200);
    expect_shape(stage, "Health");
    assert_int_equal(ask(stage, "GET", "/readyz", "", NULL), 200);
    expect_shape(stage, "Ready");
    stage->engine.recovered = false;
    assert_int_equal(ask(stage, "GET", "/readyz", "", NULL), 503);
    expect_shape(stage, "Ready");
    assert_int_equal(ask(stage, "GET", "/healthz", "", NULL), 200);
    stage->engine.recovered = true;
    stage->engine.ledger_code = ERR_CORRUPT;
    assert_int_equal(ask(stage, "GET", "/readyz", "", NULL), 200); /* asked at most once a second */
    stage->engine.now_ms += 1000;
    assert_int_equal(ask(stage, "GET", "/readyz", "", NULL), 503);
    assert_non_null(strstr(member(stage, "/reasons/0"), "told to fail"));
}

/* ---- deciding ---- */

static void test_resolve(void **state)
{
    struct stage *stage = *state;
    struct engine *engine = &stage->engine;
    static const char path[] = "/v1/operations/" OP_1 "/resolve";
    assert_int_equal(
        ask(stage, "POST", path, JSON_TYPE,
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
        ask(stage, "POST", path, JSON_TYPE, "{\"version\":3,\"happened\":false,\"retry\":true,\"note\":\"n\"}"), 200);
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
        ask(stage, "POST", path, JSON_TYPE, bad[i]);
        expect_problem(stage, 400, "malformed");
    }
    assert_int_equal(engine->decisions, 2);
    engine->reply.kind = REPLY_STALE;
    ask(stage, "POST", path, JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 409, "stale_version");
    expect(stage, "/version", "2");
    engine->reply.kind = REPLY_IMPOSSIBLE;
    ask(stage, "POST", path, JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 409, "not_possible");
    engine->reply.kind = REPLY_NOT_FOUND;
    ask(stage, "POST", path, JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 404, "not_found");
    ask(stage, "POST", "/v1/operations/x/resolve", JSON_TYPE, "{\"version\":1,\"happened\":true,\"note\":\"n\"}");
    expect_problem(stage, 404, "not_found");
}

static void test_retry_and_cancel(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "POST", "/v1/operations/" OP_1 "/retry", "", ""), 200);
    assert_int_equal(stage->engine.decision.kind, DECISION_RETRY);
    assert_int_equal(stage->engine.decision.rev, 0);
    assert_int_equal(ask(stage, "POST", "/v1/operations/" OP_1 "/cancel", JSON_TYPE, "{\"version\":2,\"note\":\"x\"}"),
                     200);
    assert_int_equal(stage->engine.decision.kind, DECISION_CANCEL);
    assert_int_equal(stage->engine.decision.rev, 2);
    ask(stage, "POST", "/v1/operations/" OP_1 "/cancel", "", "{}");
    expect_problem(stage, 415, "not_json");
}

/* ---- tokens ---- */

static const char *make_token(struct stage *stage, const char *tenant, const char *principal, enum role role)
{
    static char header[200];
    char secret[AUTH_TOKEN_SIZE];
    struct digest hash;
    auth_token_make(env_system(), secret, &hash);
    struct token *token = &stage->engine.tokens[stage->engine.token_count];
    *token = (struct token){.id = strdup(stage->engine.token_count ? "tok_2" : "tok_1"),
                            .tenant = strdup(tenant),
                            .principal = strdup(principal),
                            .role = role,
                            .secret_hash = hash,
                            .created_ms = NOW};
    stage->engine.token_count++;
    snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", secret);
    return header;
}

static void test_token_wanted(void **state)
{
    struct stage *stage = *state;
    ask(stage, "GET", "/v1/tools", "", NULL);
    expect_problem(stage, 401, "unauthorized");
    assert_string_equal(http_answer_header(&stage->answer, "WWW-Authenticate"), "Bearer realm=\"onced\"");
    static const char *const bad[] = {"Authorization: Basic abc\r\n", "Authorization: Bearer\r\n",
                                      "Authorization: Bearer nope\r\n",
                                      "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask(stage, "GET", "/v1/tools", bad[i], NULL);
        expect_problem(stage, 401, "unauthorized");
    }
    assert_int_equal(ask(stage, "GET", "/healthz", "", NULL), 200);
    assert_int_equal(ask(stage, "GET", "/openapi.json", "", NULL), 200);
    stage->engine.ledger_code = ERR_UNAVAILABLE;
    ask(stage, "GET", "/v1/tools", "Authorization: Bearer nope\r\n", NULL);
    expect_problem(stage, 503, "unavailable");
}

/* A large body is refused before anybody asks the ledger about the token: nothing is under way when the connection
 * ends. */
static void test_token_large(void **state)
{
    struct stage *stage = *state;
    char *far = large_call(5 * 1024 * 1024), headers[300];
    stage->engine.ledger_later = true;
    snprintf(headers, sizeof headers, "%s", make_token(stage, "default", "a", ROLE_AGENT));
    assert_int_equal(call(stage, headers, far), 413);
    assert_null(stage->engine.queue);
    free(far);
}

/* Which role may what: one row per route. */
static void test_roles(void **state)
{
    struct stage *stage = *state;
    char headers[4][200];
    static const enum role roles[] = {ROLE_AGENT, ROLE_APPROVER, ROLE_OPERATOR, ROLE_ADMIN};
    for (int i = 0; i < 4; i++)
        snprintf(headers[i], sizeof headers[i], "%s" JSON_TYPE, make_token(stage, "default", "local", roles[i]));
    static const struct {
        const char *method, *path, *body;
        bool may[4];
    } rows[] = {
        {"POST", "/v1/calls", "{\"tool\":\"t\"}", {true, false, true, true}},
        {"GET", "/v1/operations", NULL, {true, true, true, true}},
        {"GET", "/v1/operations/" OP_1, NULL, {true, true, true, true}},
        {"POST",
         "/v1/operations/" OP_1 "/resolve",
         "{\"version\":1,\"happened\":true,\"note\":\"n\"}",
         {false, false, true, true}},
        {"POST", "/v1/operations/" OP_1 "/retry", "", {false, false, true, true}},
        {"POST", "/v1/operations/" OP_1 "/cancel", "", {true, false, true, true}},
        {"GET", "/v1/incidents", NULL, {false, false, true, true}},
        {"GET", "/v1/stats", NULL, {false, false, true, true}},
        {"GET", "/v1/tools", NULL, {true, true, true, true}},
        {"GET", "/v1/tokens", NULL, {false, false, false, true}},
        {"POST", "/v1/tokens", "{\"principal\":\"p\",\"role\":\"agent\"}", {false, false, false, true}},
        {"DELETE", "/v1/tokens/tok_9", NULL, {false, false, false, true}},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        for (int i = 0; i < 4; i++) {
            int status = ask(stage, rows[row].method, rows[row].path, headers[i], rows[row].body);
            if ((status != 403) != rows[row].may[i])
                fail_msg("%s %s as %s: %d", rows[row].method, rows[row].path, role_name(roles[i]), status);
        }
    }
}

static void test_agent_sees(void **state)
{
    struct stage *stage = *state;
    char agent[200];
    snprintf(agent, sizeof agent, "%s", make_token(stage, "default", "local", ROLE_AGENT));
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_1, agent, NULL), 200);
    expect_shape(stage, "Operation");
    assert_null(member(stage, "/key"));
    assert_null(member(stage, "/arguments"));
    expect(stage, "/result/id", "re_1");
    /* Another principal's: the state, not the result. */
    stage->other.state = STATE_COMPLETED_SUCCESS;
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_2, agent, NULL), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/status", "completed_success");
    expect(stage, "/result", "null");
    expect(stage, "/external_id", "null");
    expect(stage, "/note", "the result belongs to somebody and is not shown");
    stage->other.tool = "order.cancel"; /* share_result: tenant */
    ask(stage, "GET", "/v1/operations/" OP_2, agent, NULL);
    expect(stage, "/result/id", "re_1");
    stage->other.tool = "refund.create";
    stage->other.key_source = KEY_SOURCE_BUSINESS; /* shared by default */
    ask(stage, "GET", "/v1/operations/" OP_2, agent, NULL);
    expect(stage, "/result/id", "re_1");
    ask(stage, "POST", "/v1/operations/" OP_2 "/cancel", agent, "");
    expect_problem(stage, 403, "forbidden");
    assert_int_equal(ask(stage, "POST", "/v1/operations/" OP_1 "/cancel", agent, ""), 200);
    char lying[300];
    snprintf(lying, sizeof lying, "%sOnced-Tenant: other\r\n", agent);
    ask(stage, "GET", "/v1/operations", lying, NULL);
    expect_problem(stage, 403, "forbidden");
    snprintf(agent, sizeof agent, "%s", make_token(stage, "other", "local", ROLE_ADMIN));
    ask(stage, "GET", "/v1/operations/" OP_1, agent, NULL);
    expect_problem(stage, 404, "not_found");
}

static void test_token_cache(void **state)
{
    struct stage *stage = *state;
    char agent[200];
    snprintf(agent, sizeof agent, "%s", make_token(stage, "default", "local", ROLE_ADMIN));
    for (int i = 0; i < 5; i++)
        assert_int_equal(ask(stage, "GET", "/v1/tools", agent, NULL), 200);
    assert_int_equal(stage->engine.token_looks, 1);
    /* Revoked by another process: seen when the memory has faded. */
    stage->engine.tokens[0].revoked_ms = NOW;
    assert_int_equal(ask(stage, "GET", "/v1/tools", agent, NULL), 200);
    stage->engine.now_ms += AUTH_CACHE_MS;
    ask(stage, "GET", "/v1/tools", agent, NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "revoked");
    stage->engine.tokens[0].revoked_ms = 0;
    stage->engine.tokens[0].expires_ms = stage->engine.now_ms + 2000;
    assert_int_equal(ask(stage, "GET", "/v1/tools", agent, NULL), 200);
    stage->engine.now_ms += 2000; /* expires while it is remembered */
    ask(stage, "GET", "/v1/tools", agent, NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "expired");
}

/* Of an operation that waits for approval; the path. */
static const char *make_link(struct stage *stage, struct arena *arena, const char *ground)
{
    const struct approval_policy policy = {.approvers = 1, .expires_ms = 7200000, .policy = "p"};
    stage->op.state = STATE_PLANNED;
    stage->op.reason = REASON_AWAITING_APPROVAL;
    stage->op.completed_ms = 0;
    stage->op.result = STR_NONE;
    stage->op.approval = approval_request(arena, &policy, NOW);
    const struct link link = {"default", OP_1, "alice", true, NOW + 1000, "ops", ground};
    return arena_printf(arena, LINKS_PATH "%s", link_write(arena, stage->engine.ledger.secret, &link));
}

/* A link is as good as the token that it rests on. */
static void test_links_rest_on_tokens(void **state)
{
    struct stage *stage = *state;
    struct arena arena;
    arena_init(&arena);
    const char *link = make_link(stage, &arena, LINK_GROUND_TOKEN);
    assert_int_equal(ask(stage, "GET", link, "", NULL), 404); /* no such person */
    make_token(stage, "default", "alice", ROLE_APPROVER);
    assert_int_equal(ask(stage, "GET", link, "", NULL), 200);
    assert_int_equal(stage->engine.decisions, 0);
    assert_int_equal(ask(stage, "POST", link, "", "note=x"), 200);
    assert_int_equal(stage->engine.decisions, 1);
    assert_string_equal(stage->engine.actor, "alice");
    assert_string_equal(stage->engine.link_by, "ops");
    stage->engine.tokens[0].role = ROLE_AGENT;
    assert_int_equal(ask(stage, "POST", link, "", "note=x"), 404);
    stage->engine.tokens[0].role = ROLE_APPROVER;
    stage->engine.tokens[0].revoked_ms = NOW;
    assert_int_equal(ask(stage, "POST", link, "", "note=x"), 404);
    static const char *const grounds[] = {LINK_GROUND_OPEN, LINK_GROUND_ISSUER "https://gone.example"};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(ask(stage, "POST", make_link(stage, &arena, grounds[i]), "", "note=x"), 404);
    assert_int_equal(stage->engine.decisions, 1);
    arena_release(&arena);
}

/* Figures are of all tenants together. */
static void test_metrics_are_for_operators(void **state)
{
    struct stage *stage = *state;
    char agent[200], boss[200];
    snprintf(agent, sizeof agent, "%s", make_token(stage, "default", "local", ROLE_AGENT));
    snprintf(boss, sizeof boss, "%s", make_token(stage, "default", "boss", ROLE_OPERATOR));
    assert_int_equal(ask(stage, "GET", "/metrics", agent, NULL), 403);
    assert_int_equal(ask(stage, "GET", "/metrics", "", NULL), 401);
    assert_int_equal(ask(stage, "GET", "/metrics", boss, NULL), 200);
    assert_non_null(strstr(stage->answer.body.p, "# TYPE onced_approvals_waiting gauge\n"));
}

static void test_token_life(void **state)
{
    struct stage *stage = *state;
    char admin[300], made[300], path[100];
    snprintf(admin, sizeof admin, "%s" JSON_TYPE, make_token(stage, "default", "boss", ROLE_ADMIN));
    assert_int_equal(ask(stage, "POST", "/v1/tokens", admin,
                         "{\"principal\":\"agent-1\",\"role\":\"agent\",\"expires_at\":\"2030-01-01T00:00:00Z\"}"),
                     201);
    expect_shape(stage, "IssuedToken");
    expect(stage, "/tenant", "default");
    assert_int_equal(strlen(member(stage, "/token")), AUTH_TOKEN_SIZE - 1);
    snprintf(made, sizeof made, "Authorization: bearer %s\r\n" JSON_TYPE, member(stage, "/token"));
    snprintf(path, sizeof path, "/v1/tokens/%s", member(stage, "/id"));
    assert_int_equal(ask(stage, "POST", "/v1/calls", made, "{\"tool\":\"t\"}"), 201);
    assert_string_equal(stage->engine.principal, "agent-1");
    assert_int_equal(ask(stage, "GET", "/v1/tokens", admin, NULL), 200);
    expect_shape(stage, "TokenList");
    assert_null(member(stage, "/tokens/0/token"));
    assert_int_equal(ask(stage, "DELETE", path, admin, NULL), 200);
    expect_shape(stage, "Token");
    ask(stage, "POST", "/v1/calls", made, "{\"tool\":\"t\"}"); /* at once */
    expect_problem(stage, 401, "unauthorized");
    assert_int_equal(ask(stage, "DELETE", path, admin, NULL), 200); /* repeated: the first one */
    ask(stage, "DELETE", "/v1/tokens/tok_none", admin, NULL);
    expect_problem(stage, 404, "not_found");
    static const char *const bad[] = {
        "{\"principal\":\"a\"}",
        "{\"principal\":\"a b\",\"role\":\"agent\"}",
        "{\"principal\":\"\",\"role\":\"agent\"}",
        "{\"principal\":\"a\",\"role\":\"king\"}",
        "{\"principal\":\"a\",\"role\":\"agent\",\"expires_at\":\"2001-01-01T00:00:00Z\"}",
        "{\"principal\":\"a\",\"role\":\"agent\",\"tenant\":\"other\"}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask(stage, "POST", "/v1/tokens", admin, bad[i]);
        expect_problem(stage, 400, "malformed");
    }
    /* Another tenant's admin sees and revokes nothing of it. */
    snprintf(admin, sizeof admin, "%s", make_token(stage, "other", "boss", ROLE_ADMIN));
    ask(stage, "DELETE", "/v1/tokens/tok_1", admin, NULL);
    expect_problem(stage, 404, "not_found");
}

/* What a token is limited to holds for what is listed, called, shown and decided, whatever the role. */
static void test_token_limits(void **state)
{
    struct stage *stage = *state;
    char limited[300];
    snprintf(limited, sizeof limited, "%s" JSON_TYPE, make_token(stage, "default", "local", ROLE_ADMIN));
    stage->engine.tokens[0].tools = "[\"order.*\"]";
    for (int i = 0; i < 2; i++) { /* looked up, and remembered */
        assert_int_equal(ask(stage, "GET", "/v1/tools", limited, NULL), 200);
        expect(stage, "/tools/0/name", "order.cancel");
        assert_null(member(stage, "/tools/1"));
    }
    ask(stage, "GET", "/v1/tools/refund.create", limited, NULL);
    expect_problem(stage, 403, "forbidden");
    ask(stage, "POST", "/v1/calls", limited, "{\"tool\":\"refund.create\"}");
    expect_problem(stage, 403, "forbidden");
    expect(stage, "/detail", "the token does not cover tool \"refund.create\"; its tools: order.*");
    assert_int_equal(stage->engine.calls, 0);
    assert_int_equal(ask(stage, "POST", "/v1/calls", limited, "{\"tool\":\"order.cancel\"}"), 201);
    assert_true(stage->engine.calls == 1 && stage->engine.limited);
    assert_int_equal(ask(stage, "GET", "/v1/operations/" OP_1, limited, NULL), 200);
    expect_shape(stage, "Operation");
    assert_null(member(stage, "/arguments"));
    expect(stage, "/result", "null");
    expect(stage, "/external_id", "null");
    expect(stage, "/note", "the token does not cover this operation: arguments and result are not shown");
    stage->op.tool = "order.cancel";
    ask(stage, "GET", "/v1/operations/" OP_1, limited, NULL);
    expect(stage, "/result/id", "re_1");
    assert_non_null(member(stage, "/arguments"));
    ask(stage, "POST", "/v1/operations/" OP_1 "/cancel", limited, "");
    assert_true(stage->engine.decisions == 1 && stage->engine.decision.scope);
    ask(stage, "POST", "/v1/tokens", limited, "{\"principal\":\"p\",\"role\":\"agent\"}");
    expect_problem(stage, 403, "forbidden");
    expect_detail(stage, "can make no tokens");
}

static void test_token_with_limits(void **state)
{
    struct stage *stage = *state;
    char admin[300];
    snprintf(admin, sizeof admin, "%s" JSON_TYPE, make_token(stage, "default", "boss", ROLE_ADMIN));
    assert_int_equal(ask(stage, "POST", "/v1/tokens", admin,
                         "{\"principal\":\"p\",\"role\":\"agent\",\"tools\":\"a b\",\"entities\":[\"order/*\"]}"),
                     201);
    expect_shape(stage, "IssuedToken");
    expect(stage, "/tools/1", "b");
    expect(stage, "/entities/0", "order/*");
    static const char *const bad[] = {
        "{\"principal\":\"p\",\"role\":\"agent\",\"tools\":7}",
        "{\"principal\":\"p\",\"role\":\"agent\",\"tools\":[\"\"]}",
        "{\"principal\":\"p\",\"role\":\"agent\",\"entities\":[\"order\"]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask(stage, "POST", "/v1/tokens", admin, bad[i]);
        expect_problem(stage, 400, "malformed");
    }
}

/* ---- signed tokens ---- */

static void reopen_for(struct stage *stage, const struct jwt_issuer *issuer)
{
    struct err err = {0};
    close_door(stage);
    const struct http_door_options options = {.loop = &stage->loop,
                                              .engine = &stage->engine,
                                              .address = "127.0.0.1",
                                              .auth_tokens = true,
                                              .issuers = issuer,
                                              .issuer_count = issuer != NULL};
    if (http_door_new(&options, &stage->door, &err))
        fail_msg("%s", err.text);
}

static const char *signed_header(struct stage *stage, const char *token)
{
    return arena_printf(&stage->arena, "Authorization: Bearer %s\r\n", token);
}

static void test_signed_token(void **state)
{
    struct stage *stage = *state;
    static const char *const audiences[] = {"onced"};
    static const struct jwt_role roles[] = {{"ops", ROLE_OPERATOR}};
    char path[] = "/tmp/onced-jwks-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, vector_keys, strlen(vector_keys)), strlen(vector_keys));
    close(fd);
    const struct jwt_issuer issuer = {
        .name = "idp",
        .issuer = "https://idp.example",
        .audiences = audiences,
        .audience_count = 1,
        .jwks = path,
        .jwks_is_file = true,
        .algorithms = {JWT_ES256},
        .algorithm_count = 1,
        .tenant = "/org/tenant",
        .principal = "/sub",
        .prefix = "idp:",
        .roles_from = "/roles",
        .roles = roles,
        .role_count = 1,
        .tools = "/scope",
        .refresh_ms = 600000,
    };
    ask(stage, "GET", "/v1/tools", signed_header(stage, vector_es256), NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "knows no issuer");
    reopen_for(stage, &issuer);
    assert_int_equal(ask(stage, "GET", "/v1/tools", signed_header(stage, vector_es256), NULL), 200);
    expect(stage, "/tools/0/name", "refund.create");
    assert_null(member(stage, "/tools/1"));
    char call[1000];
    snprintf(call, sizeof call, "%s" JSON_TYPE, signed_header(stage, vector_es256));
    ask(stage, "POST", "/v1/calls", call, "{\"tool\":\"refund.create\"}");
    assert_string_equal(stage->engine.tenant, "acme");
    assert_string_equal(stage->engine.principal, "idp:ann");
    ask(stage, "GET", "/v1/tools", signed_header(stage, vector_eddsa), NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "alg EdDSA is not among those");
    assert_string_equal(http_answer_header(&stage->answer, "WWW-Authenticate"),
                        "Bearer realm=\"onced\", error=\"invalid_token\"");
    stage->engine.now_ms = INT64_C(4102444801000);
    ask(stage, "GET", "/v1/tools", signed_header(stage, vector_es256), NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "has expired at 2100-01-01");
    unlink(path);
}

/* Keys that are not there are an error of the start. */
static void test_issuer_without_keys(void **state)
{
    struct stage *stage = *state;
    const struct jwt_issuer issuer = {.name = "idp", .issuer = "i", .jwks = "/none/jwks.json", .jwks_is_file = true};
    const struct http_door_options options = {.loop = &stage->loop,
                                              .engine = &stage->engine,
                                              .address = "127.0.0.1",
                                              .auth_tokens = true,
                                              .issuers = &issuer,
                                              .issuer_count = 1};
    struct http_door *door;
    struct err err = {0};
    assert_int_equal(http_door_new(&options, &door, &err), ERR_IO);
    assert_string_equal(err.text, "the keys of issuer idp: /none/jwks.json cannot be read: No such file or directory");
}

/* Tokens protect against foreign pages by themselves: a public name in Host is fine then. */
static void test_token_host(void **state)
{
    struct stage *stage = *state;
    char text[500];
    snprintf(text, sizeof text, "GET /v1/tools HTTP/1.1\r\nHost: onced.example\r\n%s\r\n",
             make_token(stage, "default", "a", ROLE_AGENT));
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd, text);
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    close(fd);
}

/* The ledger takes its time: the token look-up and the route's own command both suspend the connection. */
static void test_ledger_later(void **state)
{
    struct stage *stage = *state;
    char text[500];
    stage->engine.ledger_later = true;
    snprintf(text, sizeof text, "GET /v1/operations/" OP_1 " HTTP/1.1\r\nHost: x\r\n%s\r\n",
             make_token(stage, "default", "local", ROLE_OPERATOR));
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd, text);
    for (int i = 0; i < 3; i++) {
        http_spin(&stage->loop, 5);
        fake_ledger_poll(&stage->engine);
    }
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    expect(stage, "/operation_id", OP_1);
    /* A caller that leaves while the ledger works: the answer goes nowhere, and nothing breaks. */
    send_raw(stage, fd, text);
    http_spin(&stage->loop, 5);
    close(fd);
    http_spin(&stage->loop, 100);
    fake_ledger_poll(&stage->engine);
    fake_ledger_poll(&stage->engine);
    http_spin(&stage->loop, 10);
}

/* ---- listening ---- */

static void test_listen_errors(void **state)
{
    struct stage *stage = *state;
    struct http_door *door;
    struct http_door_options options = {.loop = &stage->loop, .engine = &stage->engine, .address = "example.com"};
    struct err err = {0};
    assert_int_equal(http_door_new(&options, &door, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "example.com"));
    err_clear(&err);
    options.address = "127.0.0.1";
    options.port = http_door_port(stage->door);
    assert_int_equal(http_door_new(&options, &door, &err), ERR_IO);
    assert_non_null(strstr(err.text, "in use"));
    err_clear(&err);
    options.port = 0;
    options.tls_cert_pem = options.tls_key_pem = "nonsense";
    assert_int_equal(http_door_new(&options, &door, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "TLS"));
}

#define CASE(test)       cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define TOKEN_CASE(test) cmocka_unit_test_setup_teardown(test, set_up_tokens, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_document),
        CASE(test_call_first_answer),
        CASE(test_call_replay),
        CASE(test_call_everything),
        CASE(test_call_not_ended),
        CASE(test_call_failed),
        CASE(test_every_state),
        CASE(test_read),
        CASE(test_plan),
        CASE(test_dropped_result),
        CASE(test_incident_in_answer),
        CASE(test_call_problems),
        CASE(test_bad_bodies),
        CASE(test_too_deep),
        CASE(test_bad_headers),
        CASE(test_content_type),
        CASE(test_large_bodies),
        CASE(test_chunked),
        CASE(test_pipelined),
        CASE(test_methods),
        CASE(test_long_head),
        CASE(test_foreign_pages),
        CASE(test_caller_leaves),
        CASE(test_waiting_caller_is_answered),
        cmocka_unit_test_setup_teardown(test_too_many_connections, set_up_small, tear_down),
        cmocka_unit_test_setup_teardown(test_slow, set_up_hasty, tear_down),
        CASE(test_tls),
        CASE(test_stop),
        CASE(test_stop_waits_for_ledger),
        CASE(test_get_operation),
        CASE(test_tool_gone),
        CASE(test_tombstone),
        CASE(test_by_key),
        CASE(test_history),
        CASE(test_list),
        CASE(test_list_large),
        CASE(test_run),
        CASE(test_tools),
        CASE(test_principal_tools),
        CASE(test_incidents),
        CASE(test_system),
        CASE(test_resolve),
        CASE(test_retry_and_cancel),
        TOKEN_CASE(test_token_wanted),
        TOKEN_CASE(test_token_large),
        TOKEN_CASE(test_roles),
        TOKEN_CASE(test_agent_sees),
        TOKEN_CASE(test_token_cache),
        TOKEN_CASE(test_links_rest_on_tokens),
        TOKEN_CASE(test_metrics_are_for_operators),
        TOKEN_CASE(test_token_life),
        TOKEN_CASE(test_token_limits),
        TOKEN_CASE(test_token_with_limits),
        TOKEN_CASE(test_signed_token),
        TOKEN_CASE(test_issuer_without_keys),
        TOKEN_CASE(test_token_host),
        TOKEN_CASE(test_ledger_later),
        CASE(test_listen_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
