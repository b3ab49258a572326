/* A door, a session and an engine that the test plays, for programs that test MCP calls. Header only: each program has
 * its own. */
#ifndef SUPPORT_MCP_STAGE_H
#define SUPPORT_MCP_STAGE_H

#include "support/test.h"

#include "support/fake_forward.h"

#include <stdlib.h>

#define OP_1 "op_01J00000000000000000000001"
#define OP_2 "op_01J00000000000000000000002"
#define OP_3 "op_01J00000000000000000000003"
#define NOW  INT64_C(1790000000000)

static const struct err no_error;

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct registry *registry;
    struct provider provider, server;
    struct tool refund, look, passed;
    struct operation op, other;
    struct mcp_settings settings;
    struct mcp_door *door;
    struct mcp_session *session;
    struct heard heard;
    struct arena arena;
    int next_id;
    char *sent[16]; /* outside of requests */
    size_t sent_count;
};

static bool stage_send(struct mcp_session *session, void *user, struct str message)
{
    struct stage *stage = user;
    (void)session;
    stage->sent[stage->sent_count++ % 16] = arena_copy_str(&stage->arena, message);
    return true;
}

static void make_operation(struct operation *op, const char *id, enum state state)
{
    *op = (struct operation){
        .tenant = "default",
        .tool = "refund",
        .principal = "local",
        .key = "k",
        .key_source = KEY_SOURCE_REPEAT,
        .key_version = 1,
        .created_ms = NOW - 5000,
        .updated_ms = NOW - 4000,
        .completed_ms = state_terminal(state) ? NOW - 4000 : 0,
        .state = state,
        .rev = 2,
        .attempts = 1,
        .run = "run_1",
        .result = state_terminal(state) ? STR("{\"id\":\"re_1\"}") : STR_NONE,
    };
    snprintf(op->id, sizeof op->id, "%s", id);
    op->key_hash = identity_key_hash("default", "refund", "k", NULL);
}

static void stage_tools(struct stage *stage)
{
    struct err err = {0};
    stage->provider = (struct provider){.name = "payments"};
    stage->server = (struct provider){.name = "files", .kind = PROVIDER_MCP};
    stage->refund =
        (struct tool){.name = "refund", .class = CLASS_EXTERNAL_WEAK, .provider = &stage->provider, .wait_ms = 30000};
    stage->look = (struct tool){.name = "look", .class = CLASS_READ, .provider = &stage->provider, .wait_ms = 30000};
    stage->passed = (struct tool){.name = "files_list",
                                  .class = CLASS_READ,
                                  .provider = &stage->server,
                                  .adapter_tool = "list",
                                  .forwarded = true};
    const struct tool *tools[] = {&stage->refund, &stage->look, &stage->passed};
    const struct provider *providers[] = {&stage->provider, &stage->server};
    static const char *const few[] = {"look"};
    static const struct registry_access access = {"reader", few, 1};
    assert_int_equal(registry_new(tools, 3, providers, 2, "abcdef", NULL, NULL, &stage->registry, &err), 0);
    registry_restrict(stage->registry, &access, 1);
}

/* The session's first messages have gone. version "": a modern client, one session per request is not needed here. */
static void stage_session(struct stage *stage, const char *principal, enum role role, const char *version)
{
    stage->session = mcp_session_new(stage->door, "default", principal, role);
    stage->session->ephemeral = version[0] == '\0';
    stage->session->initialized = version[0] != '\0';
    snprintf(stage->session->version, sizeof stage->session->version, "%s", version);
    mcp_session_set_sender(stage->session, stage_send, stage);
}

static int stage_set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    uv_loop_init(&stage->loop);
    arena_init(&stage->arena);
    fake_forward_reset();
    stage_tools(stage);
    fake_engine_init(&stage->engine, stage->registry);
    stage->engine.now_ms = NOW;
    make_operation(&stage->op, OP_1, STATE_COMPLETED_SUCCESS);
    make_operation(&stage->other, OP_2, STATE_UNKNOWN_OUTCOME);
    stage->engine.ops[0] = &stage->op;
    stage->engine.ops[1] = &stage->other;
    stage->engine.op_count = 2;
    stage->engine.reply =
        (struct engine_reply){.kind = REPLY_OPERATION, .op = &stage->op, .tool = &stage->refund, .err = &no_error};
    stage->settings = mcp_settings_default;
    const struct mcp_door_options options = {
        .loop = &stage->loop, .engine = &stage->engine, .settings = &stage->settings};
    stage->door = mcp_door_new(&options);
    stage_session(stage, "local", ROLE_AGENT, MCP_LEGACY_VERSION);
    heard_init(&stage->heard);
    *state = stage;
    return 0;
}

static int stage_tear_down(void **state)
{
    struct stage *stage = *state;
    mcp_door_close(stage->door);
    uv_run(&stage->loop, UV_RUN_DEFAULT);
    mcp_door_free(stage->door);
    assert_int_equal(uv_loop_close(&stage->loop), 0);
    registry_unref(stage->registry);
    fake_engine_release(&stage->engine);
    heard_release(&stage->heard);
    arena_release(&stage->arena);
    fake_forward_reset();
    free(stage);
    return 0;
}

#define MODERN_META                                                                                                    \
    "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":"
#define MODERN_TASKS MODERN_META "{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}"

/* Sends a request; what its client hears is in stage->heard. params: members of the object. */
static void ask_facts(struct stage *stage, const char *method, const char *params, const struct mcp_facts *facts)
{
    struct buf text;
    heard_release(&stage->heard);
    buf_init(&text, 0);
    buf_printf(&text, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{%s}}", ++stage->next_id, method,
               params);
    mcp_receive(stage->session, &stage->heard.sink, buf_str(&text), facts);
    buf_release(&text);
}

static void ask(struct stage *stage, const char *method, const char *params)
{
    const struct mcp_facts none = {0};
    ask_facts(stage, method, params, &none);
}

static void call(struct stage *stage, const char *params)
{
    ask(stage, "tools/call", params);
}

static const struct json *parse(struct stage *stage, const char *text)
{
    struct json *tree;
    struct err err = {0};
    assert_non_null(text);
    if (json_parse(&stage->arena, str_of(text), NULL, &tree, &err))
        fail_msg("%s in %s", err.text, text);
    return tree;
}

static const struct json *result(struct stage *stage)
{
    const struct json *value = json_get(parse(stage, stage->heard.final), "result");
    if (!value)
        fail_msg("no result: %s", stage->heard.final);
    return value;
}

static const char *text_of(struct stage *stage, const struct json *value, const char *name)
{
    const char *text = arena_copy_str(&stage->arena, json_get_text(value, name));
    if (!text)
        fail_msg("no text %s: %s", name, stage->heard.final);
    return text;
}

/* The model's text of a tool result. */
static const char *words(struct stage *stage)
{
    const struct json *content = json_get(result(stage), "content");
    assert_true(content && content->count > 0);
    return text_of(stage, &content->items[content->count - 1], "text");
}

static void assert_words(struct stage *stage, const char *part)
{
    if (!strstr(words(stage), part))
        fail_msg("no \"%s\" in: %s", part, words(stage));
}

static void assert_refused(struct stage *stage, int64_t code, const char *part)
{
    const struct json *error = json_get(parse(stage, stage->heard.final), "error");
    if (!error)
        fail_msg("no error: %s", stage->heard.final);
    assert_int_equal(json_get_int(error, "code", 0), code);
    if (!strstr(text_of(stage, error, "message"), part))
        fail_msg("no \"%s\" in: %s", part, stage->heard.final);
}

static bool is_error(struct stage *stage)
{
    return json_get_bool(result(stage), "isError", false);
}

static void assert_status(struct stage *stage, const char *status)
{
    assert_string_equal(text_of(stage, json_get(result(stage), "structuredContent"), "status"), status);
}

/* Repeating timers come at once. */
static void hurry(uv_handle_t *handle, void *user)
{
    (void)user;
    if (handle->type == UV_TIMER && uv_is_active(handle) && uv_timer_get_repeat((uv_timer_t *)handle) <= 5000) {
        uv_timer_set_repeat((uv_timer_t *)handle, 1);
        uv_timer_again((uv_timer_t *)handle);
    }
}

static void let_time_pass(struct stage *stage)
{
    uv_walk(&stage->loop, hurry, NULL);
    uv_sleep(3);
    uv_run(&stage->loop, UV_RUN_NOWAIT);
}

#endif
