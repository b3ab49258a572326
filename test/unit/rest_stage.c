#include "rest_stage.h"

#include "core/identity.h"
#include "core/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the stage ---- */

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

void make_operation(struct operation *op, const char *id, enum state state)
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

int set_up(void **state)
{
    return set_up_with(state, false, 0, 0);
}

int set_up_tokens(void **state)
{
    return set_up_with(state, true, 0, 0);
}

int set_up_small(void **state)
{
    return set_up_with(state, false, 2, 0);
}

int set_up_hasty(void **state)
{
    return set_up_with(state, false, 0, 1);
}

void door_closed(void *user)
{
    *(bool *)user = true;
}

void close_door(struct stage *stage)
{
    bool closed = false;
    http_door_close(stage->door, door_closed, &closed);
    for (int i = 0; i < 3000 && !closed; i++)
        http_spin(&stage->loop, 1);
    assert_true(closed);
    stage->door = NULL;
}

int tear_down(void **state)
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

void send_raw(struct stage *stage, int fd, const char *text)
{
    assert_true(http_send(&stage->loop, fd, text, strlen(text)));
}

int ask_rest(struct stage *stage, const char *method, const char *path, const char *headers, const char *body)
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

int call(struct stage *stage, const char *headers, const char *body)
{
    char lines[1024];
    snprintf(lines, sizeof lines, JSON_TYPE "%s", headers);
    return ask_rest(stage, "POST", "/v1/calls", lines, body);
}

const char *member(struct stage *stage, const char *pointer)
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

void expect(struct stage *stage, const char *pointer, const char *value)
{
    const char *is = member(stage, pointer);
    if (!is)
        fail_msg("no %s in %.*s", pointer, STR_ARG(buf_str(&stage->answer.body)));
    assert_string_equal(is, value);
}

void expect_problem(struct stage *stage, int status, const char *name)
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

void expect_detail(struct stage *stage, const char *part)
{
    const char *detail = member(stage, "/detail");
    if (!detail || !strstr(detail, part))
        fail_msg("\"%s\" is not in \"%s\"", part, detail ? detail : "(none)");
}

void load_schemas(struct stage *stage)
{
    if (stage->schemas)
        return;
    struct http_answer kept = stage->answer;
    stage->answer = (struct http_answer){0};
    assert_int_equal(ask_rest(stage, "GET", "/openapi.json", "", NULL), 200);
    stage->schemas = json_copy(&stage->arena, json_get(stage->answer.json, "components"));
    http_answer_release(&stage->answer);
    stage->answer = kept;
}

void expect_shape(struct stage *stage, const char *name)
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

char *large_call(size_t bytes)
{
    static const char head[] = "{\"tool\":\"t\",\"arguments\":{\"a\":\"", tail[] = "\"}}";
    char *body = malloc(bytes + 1);
    memset(body, 'x', bytes);
    memcpy(body, head, sizeof head - 1);
    memcpy(body + bytes - (sizeof tail - 1), tail, sizeof tail);
    return body;
}
