/* Which call is meant, from what MCP clients send (design 2.2, cases S16, S17, S59). */
#include "support/test.h"

#include "support/fake_forward.h"

#include <stdlib.h>

#define OP_1 "op_01J00000000000000000000001"
#define OP_2 "op_01J00000000000000000000002"
#define OP_3 "op_01J00000000000000000000003"

struct world {
    struct arena arena;
    struct provider provider;
    struct tool tool;
    struct mcp_facts facts;
    struct call call;
    struct mcp_fault fault;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    arena_init(&world->arena);
    world->provider = (struct provider){.name = "payments"};
    world->tool = (struct tool){.name = "refund", .class = CLASS_EXTERNAL_WEAK, .provider = &world->provider};
    fake_forward_reset();
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    arena_release(&world->arena);
    free(world);
    return 0;
}

/* params as JSON text. */
static bool reads(struct world *world, const char *params)
{
    struct json *tree;
    struct err err = {0};
    struct rpc_message message = {.kind = RPC_REQUEST, .method = "tools/call"};
    assert_int_equal(json_parse(&world->arena, str_of(params), NULL, &tree, &err), ERR_NONE);
    message.params = tree;
    world->call = (struct call){0};
    world->fault = (struct mcp_fault){0};
    return mcp_identity_read(&world->arena, &message, &world->facts, &world->tool, &world->call, &world->fault);
}

static bool reads_meta(struct world *world, const char *meta)
{
    return reads(world, arena_printf(&world->arena, "{\"name\":\"refund\",\"_meta\":{%s}}", meta));
}

static void assert_fault(struct world *world, const char *pointer, const char *part)
{
    assert_int_equal(world->fault.code, RPC_INVALID_PARAMS);
    assert_non_null(world->fault.text);
    if (!strstr(world->fault.text, part))
        fail_msg("\"%s\" does not hold \"%s\"", world->fault.text, part);
    if (pointer)
        assert_string_equal(world->fault.pointer, pointer);
    else
        assert_null(world->fault.pointer);
}

static void assert_arguments(struct world *world, const char *wanted)
{
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, world->call.arguments);
    assert_string_equal(text.p, wanted);
    buf_release(&text);
}

/* ---- keys ---- */

static void every_place_gives_the_key(void **state)
{
    struct world *world = *state;
    static const char *const names[] = {"dev.onced/idempotency-key", "idempotencyKey", "idempotency_key",
                                        "idempotency-key"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(reads_meta(world, arena_printf(&world->arena, "\"%s\":\"k-1\"", names[i])));
        assert_string_equal(world->call.idempotency_key, "k-1");
    }
    assert_true(reads(world, "{\"name\":\"refund\",\"idempotencyKey\":\"k-2\"}"));
    assert_string_equal(world->call.idempotency_key, "k-2");
    world->facts.idempotency_key = STR("\"k-3\"");
    assert_true(reads(world, "{\"name\":\"refund\"}"));
    assert_string_equal(world->call.idempotency_key, "k-3");
    world->facts.idempotency_key = STR("k-4");
    assert_true(reads_meta(world, "\"idempotencyKey\":\"k-4\",\"dev.onced/idempotency-key\":\"k-4\""));
    assert_string_equal(world->call.idempotency_key, "k-4");
}

static void no_place_gives_none(void **state)
{
    struct world *world = *state;
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"idempotency_key\":\"model-made\"}}"));
    assert_null(world->call.idempotency_key); /* 2.1: an argument, no more */
    assert_arguments(world, "{\"idempotency_key\":\"model-made\"}");
    assert_true(reads_meta(world, "\"progressToken\":1,\"someone.else/key\":\"x\""));
    assert_null(world->call.idempotency_key);
    assert_null(world->call.session);
    assert_null(world->call.call);
}

static void contradicting_keys_are_refused(void **state)
{
    struct world *world = *state;
    assert_false(reads_meta(world, "\"dev.onced/idempotency-key\":\"a\",\"idempotencyKey\":\"b\""));
    assert_fault(world, NULL, "differ");
    world->facts.idempotency_key = STR("h");
    assert_false(reads_meta(world, "\"idempotency_key\":\"m\""));
    assert_fault(world, NULL, "the header Idempotency-Key differ");
    world->facts.idempotency_key = STR("\"open");
    assert_false(reads_meta(world, ""));
    assert_fault(world, NULL, "closing quote");
}

/* S59: what a sender believes to have given is never dropped. */
static void unusable_keys_are_refused(void **state)
{
    struct world *world = *state;
    static const char *const values[] = {"7", "null", "true", "{}", "[\"k\"]", "\"\"", "\"a\\nb\"", "\"a\\u0000b\""};
    static const char *const names[] = {
        "dev.onced/idempotency-key", "idempotencyKey",    "idempotency_key",       "idempotency-key",
        "dev.onced/run-id",          "dev.onced/call-id", "dev.onced/session-id",  "dev.onced/workflow",
        "claudecode/toolUseId",      "threadId",          "vscode.conversationId", "agent-session-id",
        "ai.opencode/sessionID"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            assert_false(reads_meta(world, arena_printf(&world->arena, "\"%s\":%s", names[n], values[v])));
            assert_fault(world, NULL, names[n]);
        }
    }
    assert_false(reads(world, "{\"name\":\"refund\",\"idempotencyKey\":null}"));
    assert_fault(world, NULL, "params.idempotencyKey");
}

static void lengths_have_limits(void **state)
{
    struct world *world = *state;
    char text[600];
    memset(text, 'x', sizeof text);
    text[OPERATION_KEY_BYTES_MAX + 1] = '\0';
    assert_false(reads_meta(world, arena_printf(&world->arena, "\"idempotencyKey\":\"%s\"", text)));
    assert_fault(world, NULL, "512 bytes");
    text[OPERATION_KEY_BYTES_MAX] = '\0';
    assert_true(reads_meta(world, arena_printf(&world->arena, "\"idempotencyKey\":\"%s\"", text)));
    text[CALL_COORDINATE_BYTES_MAX] = '\0';
    assert_true(reads_meta(world, arena_printf(&world->arena, "\"threadId\":\"%s\"", text)));
    text[CALL_COORDINATE_BYTES_MAX] = 'x';
    text[CALL_COORDINATE_BYTES_MAX + 1] = '\0';
    assert_false(reads_meta(world, arena_printf(&world->arena, "\"threadId\":\"%s\"", text)));
    assert_fault(world, NULL, "256 bytes");
    world->facts.run_id = str_of(text);
    assert_false(reads_meta(world, ""));
    assert_fault(world, NULL, "Onced-Run-Id");
}

/* ---- coordinates ---- */

static void coordinates_come_from_meta_and_headers(void **state)
{
    struct world *world = *state;
    assert_true(reads_meta(world, "\"dev.onced/run-id\":\"r\",\"dev.onced/step-id\":\"s\",\"dev.onced/session-id\":"
                                  "\"c\",\"dev.onced/call-id\":\"t\",\"dev.onced/workflow\":\"w\""));
    assert_string_equal(world->call.run, "r");
    assert_string_equal(world->call.step, "s");
    assert_string_equal(world->call.session, "c");
    assert_string_equal(world->call.call, "t");
    assert_false(world->call.call_id_per_try); /* the caller says that it keeps it */
    assert_string_equal(world->call.workflow, "w");
    world->facts = (struct mcp_facts){.run_id = STR("hr"), .step_id = STR("hs")};
    assert_true(reads_meta(world, ""));
    assert_string_equal(world->call.run, "hr");
    assert_string_equal(world->call.step, "hs");
    assert_false(reads_meta(world, "\"dev.onced/run-id\":\"other\""));
    assert_fault(world, NULL, "differ");
}

static void clients_tell_their_conversation(void **state)
{
    struct world *world = *state;
    static const char *const metas[] = {
        "\"threadId\":\"c-1\"",
        "\"x-codex-turn-metadata\":{\"session_id\":\"c-1\",\"turn_id\":\"t-1\"}",
        "\"x-codex-turn-metadata\":\"{\\\"session_id\\\":\\\"c-1\\\"}\"",
        "\"vscode.conversationId\":\"c-1\",\"vscode.requestId\":\"q-1\"",
        "\"agent-session-id\":\"c-1\"",
        "\"ai.opencode/sessionID\":\"c-1\"",
        "\"threadId\":\"c-1\",\"x-codex-turn-metadata\":{\"session_id\":\"c-2\"}", /* the narrower one */
        "\"dev.onced/session-id\":\"c-1\",\"threadId\":\"c-9\"",                   /* the caller's own word first */
    };
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++) {
        assert_true(reads_meta(world, metas[i]));
        assert_string_equal(world->call.session, "c-1");
        assert_null(world->call.call);
    }
}

/* Several calls share a turn: its id must never be what identifies one. */
static void turns_are_no_calls(void **state)
{
    struct world *world = *state;
    assert_true(reads_meta(world, "\"vscode.requestId\":\"q-1\""));
    assert_null(world->call.call);
    assert_null(world->call.session);
    assert_null(world->call.run);
    assert_string_equal(world->call.workflow, "q-1");
    assert_true(reads_meta(world, "\"x-codex-turn-metadata\":{\"turn_id\":\"t-1\"}"));
    assert_null(world->call.call);
    assert_string_equal(world->call.workflow, "t-1");
}

static void a_tool_use_is_a_try(void **state)
{
    struct world *world = *state;
    assert_true(reads_meta(world, "\"claudecode/toolUseId\":\"toolu_1\""));
    assert_string_equal(world->call.call, "toolu_1");
    assert_true(world->call.call_id_per_try);
    assert_true(reads_meta(world, "\"claudecode/toolUseId\":\"toolu_1\",\"dev.onced/call-id\":\"mine\""));
    assert_string_equal(world->call.call, "mine");
    assert_false(world->call.call_id_per_try);
}

static void openai_ids_are_correlation(void **state)
{
    struct world *world = *state;
    assert_true(reads_meta(world, "\"openai/session\":\"v1/abc\",\"openai/subject\":\"v1/def\""));
    assert_null(world->call.session);
    assert_null(world->call.call);
    assert_null(world->call.run);
    assert_string_equal(world->call.workflow, "v1/abc");
    assert_true(reads_meta(world, "\"openai/session\":7")); /* nothing depends on it */
    assert_null(world->call.workflow);
}

static void broken_codex_metadata_is_refused(void **state)
{
    struct world *world = *state;
    assert_false(reads_meta(world, "\"x-codex-turn-metadata\":\"{\""));
    assert_fault(world, NULL, "is no JSON");
    assert_false(reads_meta(world, "\"x-codex-turn-metadata\":[]"));
    assert_fault(world, NULL, "must be an object");
    assert_false(reads_meta(world, "\"x-codex-turn-metadata\":{\"session_id\":5}"));
    assert_fault(world, NULL, "session_id must be a string");
}

static void traces_are_taken_or_ignored(void **state)
{
    struct world *world = *state;
    static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_true(reads_meta(world, arena_printf(&world->arena, "\"traceparent\":\"%s\"", good)));
    assert_string_equal(world->call.trace, good);
    assert_true(reads_meta(world, "\"traceparent\":\"nonsense\""));
    assert_null(world->call.trace);
    world->facts.traceparent = str_of(good);
    assert_true(reads_meta(world, "\"traceparent\":3"));
    assert_string_equal(world->call.trace, good);
}

/* ---- arguments ---- */

static void arguments_may_be_left_out(void **state)
{
    struct world *world = *state;
    assert_true(reads(world, "{\"name\":\"refund\"}"));
    assert_arguments(world, "{}");
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":null}"));
    assert_arguments(world, "{}");
    assert_false(reads(world, "{\"name\":\"refund\",\"arguments\":[1]}"));
    assert_fault(world, NULL, "params.arguments");
    assert_false(reads(world, "{\"name\":\"refund\",\"_meta\":7}"));
    assert_fault(world, NULL, "params._meta");
}

static void intent_is_taken_out_of_the_arguments(void **state)
{
    struct world *world = *state;
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"a\":1,\"repeat_of\":\"" OP_1
                             "\",\"b\":2,\"distinct_from\":[\"" OP_2 "\",\"" OP_3 "\",\"" OP_2 "\"]}}"));
    assert_arguments(world, "{\"a\":1,\"b\":2}");
    assert_string_equal(world->call.repeat_of, OP_1);
    assert_int_equal(world->call.distinct_count, 2);
    assert_string_equal(world->call.distinct_from[0], OP_2);
    assert_string_equal(world->call.distinct_from[1], OP_3);
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"distinct_from\":\"" OP_1 "\"}}"));
    assert_int_equal(world->call.distinct_count, 1);
    assert_true(reads_meta(world, "\"dev.onced/repeat-of\":\"" OP_1 "\",\"dev.onced/distinct-from\":\"" OP_2 "\""));
    assert_string_equal(world->call.repeat_of, OP_1);
    assert_string_equal(world->call.distinct_from[0], OP_2);
}

/* Models fill what they do not need: the safe reading is that nothing was given. */
static void blanks_are_not_given(void **state)
{
    struct world *world = *state;
    assert_true(
        reads(world, "{\"name\":\"refund\",\"arguments\":{\"repeat_of\":null,\"distinct_from\":\"\",\"a\":1}}"));
    assert_null(world->call.repeat_of);
    assert_int_equal(world->call.distinct_count, 0);
    assert_arguments(world, "{\"a\":1}");
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"repeat_of\":\"\",\"distinct_from\":[]}}"));
    assert_null(world->call.repeat_of);
    assert_arguments(world, "{}");
}

/* The model can mend these: it is told where. */
static void wrong_intent_names_its_place(void **state)
{
    struct world *world = *state;
    assert_false(reads(world, "{\"name\":\"refund\",\"arguments\":{\"repeat_of\":\"yes\"}}"));
    assert_fault(world, "/repeat_of", "operation id");
    assert_false(reads(world, "{\"name\":\"refund\",\"arguments\":{\"repeat_of\":7}}"));
    assert_fault(world, "/repeat_of", "operation id");
    assert_false(reads(world, "{\"name\":\"refund\",\"arguments\":{\"distinct_from\":[7]}}"));
    assert_fault(world, "/distinct_from", "operation id");
    assert_false(reads(world, "{\"name\":\"refund\",\"arguments\":{\"distinct_from\":{}}}"));
    assert_fault(world, "/distinct_from", "operation id");
    struct buf many;
    buf_init(&many, 0);
    buf_add_text(&many, "{\"name\":\"refund\",\"arguments\":{\"distinct_from\":[");
    for (int i = 0; i < ADMISSION_DISTINCT_MAX + 1; i++)
        buf_printf(&many, "%s\"op_01J0000000000000000000000%d\"", i ? "," : "", i);
    buf_add_text(&many, "]}}");
    assert_false(reads(world, many.p));
    assert_fault(world, "/distinct_from", "at most 8");
    buf_release(&many);
}

/* In _meta it is the client's mistake. */
static void wrong_intent_of_a_client_is_an_error(void **state)
{
    struct world *world = *state;
    assert_false(reads_meta(world, "\"dev.onced/repeat-of\":null"));
    assert_fault(world, NULL, "dev.onced/repeat-of");
    assert_false(reads_meta(world, "\"dev.onced/distinct-from\":\"x\""));
    assert_fault(world, NULL, "dev.onced/distinct-from");
    assert_false(reads(world, "{\"name\":\"refund\",\"_meta\":{\"dev.onced/repeat-of\":\"" OP_1
                              "\"},\"arguments\":{\"repeat_of\":\"" OP_2 "\"}}"));
    assert_fault(world, NULL, "differ");
}

static void a_tool_keeps_its_own_arguments(void **state)
{
    struct world *world = *state;
    struct json *schema;
    assert_int_equal(
        json_parse(&world->arena, STR("{\"properties\":{\"repeat_of\":{\"type\":\"integer\"}}}"), NULL, &schema, NULL),
        ERR_NONE);
    world->tool.input_schema_json = schema;
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"repeat_of\":7,\"distinct_from\":\"" OP_1 "\"}}"));
    assert_null(world->call.repeat_of);
    assert_arguments(world, "{\"repeat_of\":7}");
    assert_int_equal(world->call.distinct_count, 1);
    world->tool.class = CLASS_READ;
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"distinct_from\":\"x\"}}"));
    assert_arguments(world, "{\"distinct_from\":\"x\"}");
}

/* S16, S17: the argument that takes the provider key is not the model's. */
static void the_hidden_key_argument_is_taken_out(void **state)
{
    struct world *world = *state;
    world->provider.kind = PROVIDER_MCP;
    world->tool.adapter_tool = "remote";
    fake_forward.key_argument = "request_id";
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"a\":1,\"request_id\":\"model-made\"}}"));
    assert_arguments(world, "{\"a\":1}");
    assert_null(world->call.idempotency_key);
    world->provider.kind = PROVIDER_HTTP; /* then it is an argument like any other */
    assert_true(reads(world, "{\"name\":\"refund\",\"arguments\":{\"request_id\":\"x\"}}"));
    assert_arguments(world, "{\"request_id\":\"x\"}");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_place_gives_the_key),
        TEST(no_place_gives_none),
        TEST(contradicting_keys_are_refused),
        TEST(unusable_keys_are_refused),
        TEST(lengths_have_limits),
        TEST(coordinates_come_from_meta_and_headers),
        TEST(clients_tell_their_conversation),
        TEST(turns_are_no_calls),
        TEST(a_tool_use_is_a_try),
        TEST(openai_ids_are_correlation),
        TEST(broken_codex_metadata_is_refused),
        TEST(traces_are_taken_or_ignored),
        TEST(arguments_may_be_left_out),
        TEST(intent_is_taken_out_of_the_arguments),
        TEST(blanks_are_not_given),
        TEST(wrong_intent_names_its_place),
        TEST(wrong_intent_of_a_client_is_an_error),
        TEST(a_tool_keeps_its_own_arguments),
        TEST(the_hidden_key_argument_is_taken_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
