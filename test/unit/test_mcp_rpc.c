/* The core of the MCP door: sessions, which call a message is, who works on it, and that each request is answered once.
 * Those who work on requests are played (support/fake_work.h). */
#include "support/fake_work.h"
#include "support/test.h"

#include "support/fake_engine.h"

#include <stdio.h>
#include <stdlib.h>

#define MODERN_META                                                                                                    \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                                           \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define OP_1 "op_01J00000000000000000000001"

/* ---- the stage ---- */

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct registry *registry;
    struct mcp_settings settings;
    struct mcp_door *door;
    struct arena arena;
};

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    fake_work_reset();
    assert_int_equal(uv_loop_init(&stage->loop), 0);
    assert_int_equal(registry_new(NULL, 0, NULL, 0, "abc", NULL, NULL, &stage->registry, NULL), 0);
    fake_engine_init(&stage->engine, stage->registry);
    stage->settings = mcp_settings_default;
    stage->door = mcp_door_new(
        &(struct mcp_door_options){.loop = &stage->loop, .engine = &stage->engine, .settings = &stage->settings});
    arena_init(&stage->arena);
    *state = stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    mcp_door_free(stage->door);
    uv_run(&stage->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&stage->loop), 0);
    fake_engine_release(&stage->engine);
    registry_unref(stage->registry);
    arena_release(&stage->arena);
    free(stage);
    return 0;
}

static void configure(struct stage *stage)
{
    mcp_door_configure(stage->door, &stage->settings);
}

static struct mcp_session *session_for(struct stage *stage, const char *principal)
{
    struct mcp_session *session = mcp_session_new(stage->door, "default", principal, ROLE_AGENT);
    assert_non_null(session);
    return session;
}

static enum mcp_received say(struct mcp_session *session, struct play_client *client, const char *text)
{
    play_client_init(client);
    return mcp_receive(session, &client->sink, str_of(text), NULL);
}

/* Sends a request that is answered at once; the answer's tree. */
static const struct json *answer_of(struct stage *stage, struct mcp_session *session, const char *text, int *status)
{
    struct play_client client;
    struct json *tree;
    assert_int_equal(say(session, &client, text), MCP_RECEIVED_REQUEST);
    assert_int_equal(client.final_count, 1);
    assert_int_equal(client.drop_count, 0);
    assert_int_equal(json_parse(&stage->arena, str_of(client.final), NULL, &tree, NULL), 0);
    if (status)
        *status = client.http_status;
    play_client_release(&client);
    return tree;
}

static const struct json *result_of(struct stage *stage, struct mcp_session *session, const char *text)
{
    const struct json *result = json_get(answer_of(stage, session, text, NULL), "result");
    assert_non_null(result);
    return result;
}

/* Code of the error; *status and *error may be NULL. */
static int64_t error_of(struct stage *stage, struct mcp_session *session, const char *text, int *status,
                        const struct json **error)
{
    const struct json *found = json_get(answer_of(stage, session, text, status), "error");
    assert_non_null(found);
    assert_true(json_get_text(found, "message").n > 0);
    if (error)
        *error = found;
    return json_get_int(found, "code", 0);
}

#define INITIALIZE(version)                                                                                            \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"" version "\","         \
    "\"capabilities\":{\"elicitation\":{}},\"clientInfo\":{\"name\":\"x\",\"version\":\"1\"}}}"

static struct mcp_session *initialized_for(struct stage *stage, const char *principal)
{
    struct mcp_session *session = session_for(stage, principal);
    result_of(stage, session, INITIALIZE("2025-11-25"));
    return session;
}

static struct mcp_session *initialized(struct stage *stage)
{
    return initialized_for(stage, "agent");
}

static struct mcp_session *ephemeral(struct stage *stage)
{
    struct mcp_session *session = session_for(stage, "agent");
    session->ephemeral = true;
    return session;
}

static void assert_text(const struct json *object, const char *name, const char *wanted)
{
    struct str text = json_get_text(object, name);
    if (!str_is(text, wanted))
        fail_msg("%s is \"%.*s\", not \"%s\"", name, STR_ARG(text), wanted);
}

/* ---- what is no message ---- */

static void test_faults(void **state)
{
    struct mcp_session *session = initialized(*state);
    static const struct {
        const char *text, *answer;
    } cases[] = {
        {"{", "\"code\":-32700"},
        {"nonsense", "\"code\":-32700"},
        {"[]", "\"code\":-32600"},
        {"{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"ping\"}", "\"code\":-32600"},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", "\"code\":-32600"},
        {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":[1]}", "\"id\":5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct play_client client;
        assert_int_equal(say(session, &client, cases[i].text), MCP_RECEIVED_FAULT);
        assert_int_equal(client.final_count, 1);
        assert_int_equal(client.http_status, 400);
        if (!strstr(client.final, cases[i].answer))
            fail_msg("%s: %s", cases[i].text, client.final);
        play_client_release(&client);
    }
    assert_int_equal(mcp_receive(session, NULL, STR("{"), NULL), MCP_RECEIVED_FAULT);
}

/* ---- initialize ---- */

static void test_versions(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *text, *version;
    } cases[] = {
        {INITIALIZE("2025-11-25"), "2025-11-25"}, {INITIALIZE("2025-06-18"), "2025-06-18"},
        {INITIALIZE("2025-03-26"), "2025-03-26"}, {INITIALIZE("2024-11-05"), "2025-11-25"},
        {INITIALIZE("2026-07-28"), "2025-11-25"}, {INITIALIZE("soon"), "2025-11-25"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mcp_session *session = session_for(stage, "agent");
        const struct json *result = result_of(stage, session, cases[i].text);
        assert_text(result, "protocolVersion", cases[i].version);
        assert_string_equal(session->version, cases[i].version);
        assert_true(session->initialized);
        assert_text(json_get(result, "serverInfo"), "name", "onced");
        assert_text(json_get(result, "serverInfo"), "version", ONCED_VERSION);
        assert_non_null(strstr(json_get_text(result, "instructions").p, "repeat_of"));
        assert_text(session->client_info, "name", "x");
        assert_true(mcp_client_can(session->capabilities, "elicitation"));
        bool tasks = json_get(json_get(result, "capabilities"), "tasks") != NULL;
        assert_int_equal(tasks, strcmp(cases[i].version, "2025-11-25") == 0);
    }
}

static void test_initialize_refused(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = session_for(stage, "agent");
    static const char *const bad[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"initialize\",\"params\":{\"protocolVersion\":7}}",
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","
        "\"capabilities\":[]}}",
        "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","
        "\"clientInfo\":\"x\"}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(error_of(stage, session, bad[i], NULL, NULL), RPC_INVALID_PARAMS);
        assert_false(session->initialized);
    }
    char *long_name = malloc(80000);
    memset(long_name, 'n', 79999), long_name[79999] = 0;
    assert_int_equal(error_of(stage, session,
                              arena_printf(&stage->arena,
                                           "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"initialize\",\"params\":{"
                                           "\"protocolVersion\":\"2025-11-25\",\"clientInfo\":{\"name\":\"%s\"}}}",
                                           long_name),
                              NULL, NULL),
                     RPC_INVALID_PARAMS);
    free(long_name);
    result_of(stage, session, INITIALIZE("2025-11-25"));
    int status;
    assert_int_equal(error_of(stage, session,
                              "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"initialize\",\"params\":{"
                              "\"protocolVersion\":\"2025-11-25\"}}",
                              &status, NULL),
                     RPC_INVALID_REQUEST);
    assert_int_equal(status, 400);
}

static void test_before_initialize(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = session_for(stage, "agent");
    int status;
    assert_int_equal(
        error_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", &status, NULL),
        RPC_INVALID_REQUEST);
    assert_int_equal(status, 400);
    assert_int_equal(error_of(stage, session,
                              "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"}}",
                              NULL, NULL),
                     RPC_INVALID_REQUEST);
    assert_int_equal(fake_work.handled, 0);
    /* what does not exist is said first: clients look for an era like that */
    assert_int_equal(error_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"what/ever\"}", NULL, NULL),
                     RPC_METHOD_NOT_FOUND);
    assert_int_equal(result_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}")->count, 0);
    result_of(stage, session, INITIALIZE("2025-11-25"));
    result_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}");
}

static void test_capabilities(void **state)
{
    struct stage *stage = *state;
    const struct json *can =
        json_get(result_of(stage, session_for(stage, "a"), INITIALIZE("2025-11-25")), "capabilities");
    assert_true(json_get_bool(json_get(can, "tools"), "listChanged", false));
    assert_non_null(json_get(can, "logging"));
    assert_null(json_get(can, "resources"));
    assert_null(json_get(can, "prompts"));
    assert_null(json_get(can, "completions"));
    assert_null(json_get(can, "extensions"));
    assert_non_null(json_get(json_get(json_get(json_get(can, "tasks"), "requests"), "tools"), "call"));
    static const char *const all[] = {"resources", "resources.subscribe", "prompts", "completions"};
    memcpy(fake_work.offers, all, sizeof all);
    stage->settings.tasks = false;
    configure(stage);
    can = json_get(result_of(stage, session_for(stage, "a"), INITIALIZE("2025-11-25")), "capabilities");
    assert_true(json_get_bool(json_get(can, "resources"), "subscribe", false));
    assert_non_null(json_get(can, "prompts"));
    assert_non_null(json_get(can, "completions"));
    assert_null(json_get(can, "tasks"));
}

static void test_offered(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    static const char *const asked[] = {"resources/list", "resources/read", "prompts/get", "completion/complete"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            error_of(stage, session,
                     arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"%s\"}", i + 1, asked[i]),
                     NULL, NULL),
            RPC_METHOD_NOT_FOUND);
    static const char *const all[] = {"resources", "prompts", "completions"};
    memcpy(fake_work.offers, all, sizeof all);
    for (size_t i = 0; i < 4; i++) {
        result_of(stage, session,
                  arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"%s\"}", i + 10, asked[i]));
        assert_string_equal(fake_work.last_method, asked[i]);
    }
    assert_int_equal(
        error_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":20,\"method\":\"resources/subscribe\"}", NULL, NULL),
        RPC_METHOD_NOT_FOUND);
    result_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":21,\"method\":\"tasks/list\"}");
    stage->settings.tasks = false;
    configure(stage);
    assert_int_equal(error_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":22,\"method\":\"tasks/list\"}", NULL, NULL),
                     RPC_METHOD_NOT_FOUND);
}

/* ---- the modern era ---- */

static void test_envelope(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *params, *missing[3];
    } cases[] = {
        {"", {MCP_META_VERSION, MCP_META_CAPABILITIES}},
        {",\"params\":{}", {MCP_META_VERSION, MCP_META_CAPABILITIES}},
        {",\"params\":{\"_meta\":{}}", {MCP_META_VERSION, MCP_META_CAPABILITIES}},
        {",\"params\":{\"_meta\":{\"" MCP_META_VERSION "\":\"2026-07-28\"}}", {MCP_META_CAPABILITIES}},
        {",\"params\":{\"_meta\":{\"" MCP_META_VERSION "\":\"2026-07-28\",\"" MCP_META_CAPABILITIES "\":[]}}",
         {MCP_META_CAPABILITIES}},
        {",\"params\":{\"_meta\":{\"" MCP_META_CAPABILITIES "\":{}}}", {MCP_META_VERSION}},
        {",\"params\":{\"_meta\":{\"" MCP_META_VERSION "\":1,\"" MCP_META_CAPABILITIES "\":{}}}", {MCP_META_VERSION}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct json *error;
        int status;
        const char *text = arena_printf(
            &stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":\"d\",\"method\":\"server/discover\"%s}", cases[i].params);
        assert_int_equal(error_of(stage, ephemeral(stage), text, &status, &error), RPC_INVALID_PARAMS);
        assert_int_equal(status, 400);
        const struct json *missing = json_get(json_get(json_get(error, "data"), "envelope"), "missing");
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(k < missing->count, cases[i].missing[k] != NULL);
            if (cases[i].missing[k])
                assert_true(str_is(missing->items[k].text, cases[i].missing[k]));
        }
    }
}

static void test_unsupported_version(void **state)
{
    struct stage *stage = *state;
    static const char *const versions[] = {"v999.0.0", "2025-11-25", ""};
    for (size_t i = 0; i < 3; i++) {
        const struct json *error;
        int status;
        const char *text = arena_printf(
            &stage->arena,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"_meta\":{\"" MCP_META_VERSION
            "\":\"%s\",\"" MCP_META_CAPABILITIES "\":{}}}}",
            versions[i]);
        assert_int_equal(error_of(stage, session_for(stage, "a"), text, &status, &error), MCP_UNSUPPORTED_VERSION);
        assert_int_equal(status, 400);
        const struct json *supported = json_get(json_get(error, "data"), "supported");
        assert_int_equal(supported->count, 1);
        assert_true(str_is(supported->items[0].text, MCP_MODERN_VERSION));
        assert_text(json_get(error, "data"), "requested", versions[i]);
    }
}

static void test_discover(void **state)
{
    struct stage *stage = *state;
    const struct json *result =
        result_of(stage, ephemeral(stage),
                  "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"server/discover\",\"params\":{" MODERN_META "}}");
    assert_text(result, "resultType", "complete");
    assert_text(result, "cacheScope", "private");
    assert_int_equal(json_get_int(result, "ttlMs", -1), 0);
    assert_true(str_is(json_get(result, "supportedVersions")->items[0].text, MCP_MODERN_VERSION));
    assert_text(json_get(json_get(result, "_meta"), MCP_META_SERVER), "name", "onced");
    const struct json *can = json_get(result, "capabilities");
    assert_non_null(json_get(json_get(can, "extensions"), MCP_EXTENSION_TASKS));
    assert_null(json_get(can, "tasks"));
    assert_non_null(json_get(result, "instructions"));
}

/* What 2026-07-28 removed, and what it brought: the other era does not know it. */
static void test_methods_of_eras(void **state)
{
    struct stage *stage = *state;
    static const char *const legacy[] = {
        "initialize", "ping",         "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
        "tasks/list", "tasks/result", "unknown/method"};
    static const char *const all[] = {"resources", "resources.subscribe", "prompts", "completions"};
    memcpy(fake_work.offers, all, sizeof all);
    for (size_t i = 0; i < sizeof legacy / sizeof *legacy; i++) {
        int status;
        const char *text = arena_printf(
            &stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"%s\",\"params\":{" MODERN_META "}}", i,
            legacy[i]);
        assert_int_equal(error_of(stage, ephemeral(stage), text, &status, NULL), RPC_METHOD_NOT_FOUND);
        assert_int_equal(status, 404);
    }
    struct mcp_session *session = initialized(stage);
    int status;
    assert_int_equal(
        error_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/update\"}", &status, NULL),
        RPC_METHOD_NOT_FOUND);
    assert_int_equal(status, 200);
    static const char *const both[] = {"tools/call", "resources/read", "prompts/list", "completion/complete",
                                       "tasks/get"};
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        result_of(stage, ephemeral(stage),
                  arena_printf(&stage->arena,
                               "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"%s\",\"params\":{" MODERN_META "}}", i,
                               both[i]));
        result_of(stage, session,
                  arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"%s\"}", i + 100, both[i]));
    }
}

/* One process on stdio serves both, whatever comes. */
static void test_eras_on_one_stream(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = session_for(stage, "local");
    session->stdio = true;
    const char *list = "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/list\",\"params\":{" MODERN_META "}}";
    assert_text(result_of(stage, session, list), "resultType", "complete");
    result_of(stage, session, INITIALIZE("2025-06-18"));
    assert_text(result_of(stage, session, list), "resultType", "complete"); /* ids may be used again here */
    assert_null(
        json_get(result_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/list\"}"), "resultType"));
    assert_int_equal(
        error_of(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"server/discover\"}", NULL, NULL),
        RPC_INVALID_PARAMS);
}

/* ---- which call it is ---- */

#define CALL(id, arguments)                                                                                            \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"arguments\":" arguments \
    "}}"

static void test_joins(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    struct play_client first, second, third;
    session->stdio = true; /* one stream for all answers */
    fake_work.hold = true;
    say(session, &first, CALL("7", "{\"a\":5,\"b\":1}"));
    say(session, &second,
        "{\"id\":7.0,\"jsonrpc\":\"2.0\",\"params\":{\"arguments\":{\"b\":1.0,\"a\":5},\"name\":\"t\"},"
        "\"method\":\"tools/call\"}");
    assert_int_equal(fake_work.handled, 1);
    assert_int_equal(session->request_count, 1);
    say(session, &third, CALL("7", "{\"a\":6,\"b\":1}"));
    assert_int_equal(third.final_count, 1);
    assert_non_null(strstr(third.final, "-32600"));
    play_client_release(&third);
    say(session, &third, CALL("\"7\"", "{\"a\":6,\"b\":1}")); /* another id */
    assert_int_equal(fake_work.handled, 2);
    mcp_notify(fake_work.held[0], "notifications/x", STR_NONE);
    assert_int_equal(first.message_count, 0); /* one message, one stream: the newest */
    assert_int_equal(second.message_count, 1);
    struct operation op = {.id = OP_1, .key_source = KEY_SOURCE_REPEAT, .state = STATE_COMPLETED_SUCCESS};
    mcp_request_set_delivery(fake_work.held[0], &op);
    mcp_reply(fake_work.held[0], STR("{\"n\":1}"));
    assert_int_equal(first.final_count, 1);
    assert_int_equal(second.final_count, 1);
    assert_string_equal(first.final, second.final);
    assert_int_equal(third.final_count, 0);
    /* answered: the same message gets the same answer, and its delivery counts again */
    struct play_client again;
    say(session, &again, CALL("7", "{\"a\":5,\"b\":1}"));
    assert_int_equal(fake_work.handled, 2);
    assert_string_equal(again.final, first.final);
    assert_int_equal(again.delivers_count, 1);
    assert_string_equal(again.delivered, OP_1);
    play_client_release(&again);
    say(session, &again, CALL("7", "{\"a\":6,\"b\":1}"));
    assert_non_null(strstr(again.final, "-32600"));
    assert_int_equal(again.http_status, 400);
    assert_int_equal(fake_work.handled, 2);
    /* another session knows nothing of it */
    struct play_client stranger;
    say(initialized(stage), &stranger, CALL("7", "{\"a\":6,\"b\":1}"));
    assert_int_equal(fake_work.handled, 3);
    mcp_door_close(stage->door);
    assert_int_equal(third.drop_count, 1);
    assert_int_equal(stranger.drop_count, 1);
    play_client_release(&first), play_client_release(&second), play_client_release(&third);
    play_client_release(&again), play_client_release(&stranger);
}

/* An error is not the outcome of a call: who asks again is tried again. */
static void test_errors_are_not_kept(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    fake_work.fail = true;
    assert_int_equal(error_of(stage, session, CALL("1", "{}"), NULL, NULL), RPC_INTERNAL_ERROR);
    fake_work.fail = false;
    result_of(stage, session, CALL("1", "{}"));
    result_of(stage, session, CALL("1", "{}"));
    assert_int_equal(fake_work.handled, 2);
}

/* A request whose client is gone runs anew when it comes again. */
static void test_dropped_are_not_kept(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    struct play_client client;
    fake_work.hold = true;
    say(session, &client, CALL("1", "{}"));
    mcp_request_gone(&client.sink, false);
    assert_int_equal(fake_work.released, 1);
    assert_int_equal(fake_work.cancels, 0);
    say(session, &client, CALL("1", "{}"));
    assert_int_equal(fake_work.handled, 2);
    mcp_reply(fake_work_oldest(), STR("{}"));
    play_client_release(&client);
}

/* Over HTTP each answer has a stream of its own: a client may give every call the id 1 (case S56). */
static void test_one_id_for_every_call_over_http(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    struct play_client five, seven, again;
    fake_work.hold = true;
    say(session, &five, CALL("1", "{\"a\":5}"));
    say(session, &seven, CALL("1", "{\"a\":7}"));
    assert_int_equal(fake_work.handled, 2);
    assert_int_equal(session->request_count, 2);
    mcp_reply(fake_work.held[1], STR("{\"n\":7}"));
    mcp_reply(fake_work.held[0], STR("{\"n\":5}"));
    assert_non_null(strstr(seven.final, "{\"n\":7}"));
    assert_non_null(strstr(five.final, "{\"n\":5}"));
    /* its ids say nothing any more: what is asked again is asked again */
    say(session, &again, CALL("1", "{\"a\":5}"));
    assert_int_equal(fake_work.handled, 3);
    assert_int_equal(again.final_count, 0);
    mcp_reply(fake_work_oldest(), STR("{\"n\":6}"));
    assert_non_null(strstr(again.final, "{\"n\":6}"));
    play_client_release(&five), play_client_release(&seven), play_client_release(&again);
}

static void test_memory_is_bounded(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    session->stdio = true;
    result_of(stage, session, CALL("1", "{\"first\":1}"));
    for (int i = 2; i < MCP_SEEN_IDS_MAX + 1; i++)
        result_of(stage, session, arena_printf(&stage->arena, CALL("%d", "{}"), i));
    size_t handled = fake_work.handled;
    /* the oldest id was initialize's; the next one goes with one more */
    assert_int_equal(error_of(stage, session, CALL("1", "{}"), NULL, NULL), RPC_INVALID_REQUEST);
    result_of(stage, session, arena_printf(&stage->arena, CALL("%d", "{}"), MCP_SEEN_IDS_MAX + 1));
    result_of(stage, session, CALL("1", "{}"));
    assert_int_equal(fake_work.handled, handled + 2);
}

/* Large answers are not kept, and many push the oldest out; the ids stay. */
static void test_seen_answers(void **state)
{
    (void)state;
    struct mcp_seen *seen = mcp_seen_new();
    struct digest digest = digest_sha256(STR("x"));
    struct mcp_delivery delivery = {0};
    struct str answer;
    char *large = malloc(MCP_SEEN_ANSWER_BYTES + 1), id[16];
    memset(large, 'x', MCP_SEEN_ANSWER_BYTES + 1);
    size_t fit = MCP_SEEN_BYTES_MAX / MCP_SEEN_ANSWER_BYTES;
    for (size_t i = 0; i < fit + 1; i++) {
        snprintf(id, sizeof id, "%zu", i);
        assert_int_equal(mcp_seen_note(seen, id, &digest, &answer, &delivery), MCP_SEEN_NEVER);
        mcp_seen_answered(seen, id, (struct str){large, MCP_SEEN_ANSWER_BYTES}, &delivery);
    }
    assert_int_equal(mcp_seen_note(seen, "0", &digest, &answer, &delivery), MCP_SEEN_SAME);
    assert_null(answer.p);
    assert_int_equal(mcp_seen_note(seen, "1", &digest, &answer, &delivery), MCP_SEEN_SAME);
    assert_int_equal(answer.n, MCP_SEEN_ANSWER_BYTES);
    assert_int_equal(mcp_seen_note(seen, "big", &digest, &answer, &delivery), MCP_SEEN_NEVER);
    mcp_seen_answered(seen, "big", (struct str){large, MCP_SEEN_ANSWER_BYTES + 1}, &delivery);
    assert_int_equal(mcp_seen_note(seen, "big", &digest, &answer, &delivery), MCP_SEEN_SAME);
    assert_null(answer.p);
    mcp_seen_answered(seen, "nobody", STR("x"), &delivery);
    assert_int_equal(mcp_seen_note(seen, "nobody", &digest, &answer, &delivery), MCP_SEEN_NEVER);
    digest = digest_sha256(STR("y"));
    assert_int_equal(mcp_seen_note(seen, "1", &digest, &answer, &delivery), MCP_SEEN_DIFFERENT);
    free(large);
    mcp_seen_free(seen);
    mcp_seen_free(NULL);
}

static void test_modern_ids(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = session_for(stage, "local");
    struct play_client first, second;
    session->stdio = true;
    fake_work.hold = true;
    const char *text =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"," MODERN_META "}}";
    say(session, &first, text);
    say(session, &second, text);
    assert_int_equal(second.final_count, 1);
    assert_non_null(strstr(second.final, "-32600"));
    assert_int_equal(first.final_count, 0);
    play_client_release(&second);
    mcp_reply(fake_work_oldest(), STR("{}"));
    assert_int_equal(first.final_count, 1);
    say(session, &second, text);
    assert_int_equal(fake_work.handled, 2);
    mcp_reply(fake_work_oldest(), STR("{}"));
    play_client_release(&first), play_client_release(&second);
}

static void test_calls_max(void **state)
{
    struct stage *stage = *state;
    stage->settings.calls_max = 3;
    configure(stage);
    struct mcp_session *session = initialized(stage);
    struct play_client clients[3], same;
    fake_work.hold = true;
    for (size_t i = 0; i < 3; i++)
        say(session, &clients[i], arena_printf(&stage->arena, CALL("%zu", "{}"), i + 1));
    int status;
    assert_int_equal(error_of(stage, session, CALL("9", "{}"), &status, NULL), MCP_BUSY);
    assert_int_equal(status, 200);
    say(session, &same, CALL("2", "{}")); /* joins: nothing more to be done */
    assert_int_equal(same.final_count, 0);
    struct mcp_session *other = initialized(stage);
    fake_work.hold = false;
    result_of(stage, other, CALL("1", "{}"));
    mcp_reply(fake_work_oldest(), STR("{}"));
    result_of(stage, session, CALL("9", "{}")); /* refused, so not seen */
    mcp_session_end(session);
    for (size_t i = 0; i < 3; i++)
        play_client_release(&clients[i]);
    play_client_release(&same);
}

/* ---- cancelling, leaving ---- */

static void test_cancelled(void **state)
{
    struct mcp_session *session = initialized(*state);
    struct play_client client, notice;
    fake_work.hold = true;
    say(session, &client, CALL("7", "{}"));
    static const char *const nothing[] = {
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":8}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"7\"}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":null}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
    };
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        assert_int_equal(say(session, &notice, nothing[i]), MCP_RECEIVED_NOTICE);
        assert_false(play_client_over(&notice));
    }
    assert_int_equal(fake_work.cancels, 0);
    say(session, &notice,
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":7.0,\"reason\":\"x\"}}");
    assert_int_equal(fake_work.cancels, 1);
    assert_int_equal(fake_work.released, 1);
    assert_int_equal(client.drop_count, 1);
    assert_int_equal(client.final_count, 0);
    assert_int_equal(session->request_count, 0);
    assert_int_equal(fake_work.notices, 0);
    say(session, &notice, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}");
    assert_int_equal(fake_work.notices, 1);
    assert_string_equal(fake_work.last_notice, "notifications/roots/list_changed");
    play_client_release(&client);
}

/* The one who works on it knows better: it has an answer. */
static void test_cancel_answers(void **state)
{
    struct mcp_session *session = initialized(*state);
    struct play_client client, notice;
    fake_work.hold = fake_work.cancel_answers = true;
    say(session, &client, CALL("7", "{}"));
    say(session, &notice, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":7}}");
    assert_int_equal(client.final_count, 1);
    assert_int_equal(client.drop_count, 0);
    assert_int_equal(fake_work.released, 1);
    play_client_release(&client);
}

static void test_gone(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    struct play_client first, second;
    fake_work.hold = true;
    say(session, &first, CALL("1", "{}"));
    say(session, &second, CALL("1", "{}"));
    mcp_request_gone(&second.sink, false); /* the other one waits on */
    assert_int_equal(fake_work.released, 0);
    mcp_notify(fake_work_oldest(), "notifications/x", STR_NONE);
    assert_int_equal(first.message_count, 1);
    mcp_reply(fake_work_oldest(), STR("{}"));
    assert_int_equal(first.final_count, 1);
    assert_false(play_client_over(&second));
    mcp_request_gone(&first.sink, false); /* too late: nothing happens */
    play_client_release(&first);
    /* closing a modern stream cancels */
    struct mcp_session *modern = ephemeral(stage);
    say(modern, &first,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"," MODERN_META "}}");
    mcp_request_gone(&first.sink, true);
    assert_int_equal(fake_work.cancels, 1);
    assert_false(play_client_over(&first));
    assert_int_equal(modern->request_count, 0);
    play_client_release(&first);
}

/* The transport ends the session of a modern request while it is told the answer. */
static void test_ephemeral_ends(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = ephemeral(stage);
    struct play_client client;
    play_client_init(&client);
    client.ends = session;
    mcp_receive(session, &client.sink,
                STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{" MODERN_META "}}"), NULL);
    assert_int_equal(client.final_count, 1);
    assert_null(stage->door->sessions);
    play_client_release(&client);
    session = ephemeral(stage);
    play_client_init(&client);
    client.ends = session;
    mcp_receive(session, &client.sink, STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}"), NULL);
    assert_null(stage->door->sessions);
    play_client_release(&client);
    struct mcp_session *answered = ephemeral(stage);
    assert_int_equal(say(answered, &client, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"), MCP_RECEIVED_FAULT);
    assert_int_equal(client.http_status, 400);
    play_client_release(&client);
}

/* ---- before the answer ---- */

static void test_progress(void **state)
{
    struct mcp_session *session = initialized(*state);
    static const struct {
        const char *meta, *wanted;
    } cases[] = {
        {"{\"progressToken\":\"a\\\"b\"}",
         "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{"
         "\"progressToken\":\"a\\\"b\",\"progress\":1,\"total\":3,\"message\":\"\\\"m\"}}"},
        {"{\"progressToken\":7}", "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{"
                                  "\"progressToken\":7,\"progress\":1,\"total\":3,\"message\":\"\\\"m\"}}"},
        {"{\"progressToken\":null}", NULL},
        {"{}", NULL},
    };
    fake_work.hold = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct play_client client;
        char text[300];
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"_meta\":%s}}",
                 i + 1, cases[i].meta);
        say(session, &client, text);
        mcp_progress(fake_work_oldest(), STR("1"), STR("3"), STR("\"m"));
        if (cases[i].wanted)
            assert_string_equal(client.messages[0], cases[i].wanted);
        else
            assert_int_equal(client.message_count, 0);
        mcp_reply(fake_work_oldest(), STR("{}"));
        play_client_release(&client);
    }
}

static void test_log(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    struct play_client client;
    assert_int_equal(mcp_log_level(STR("debug")), 0);
    assert_int_equal(mcp_log_level(STR("emergency")), 7);
    assert_int_equal(mcp_log_level(STR("loud")), -1);
    assert_int_equal(mcp_log_level(STR_NONE), -1);
    fake_work.hold = true;
    say(session, &client, CALL("1", "{}"));
    mcp_log(fake_work_oldest(), 7, "x", STR("\"a\"")); /* nobody asked */
    assert_int_equal(client.message_count, 0);
    mcp_reply(fake_work_oldest(), STR("{}"));
    play_client_release(&client);
    session->log_level = 3;
    say(session, &client, CALL("2", "{}"));
    mcp_log(fake_work_oldest(), 2, "x", STR("\"a\""));
    assert_int_equal(client.message_count, 0);
    mcp_log(fake_work_oldest(), 3, NULL, STR("{\"b\":1}"));
    assert_string_equal(client.messages[0], "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{"
                                            "\"level\":\"warning\",\"data\":{\"b\":1}}}");
    mcp_reply(fake_work_oldest(), STR("{}"));
    play_client_release(&client);
    struct mcp_session *modern = ephemeral(stage);
    say(modern, &client,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/"
        "call\",\"params\":{\"name\":\"t\",\"_meta\":{\"" MCP_META_VERSION "\":\"2026-07-28\",\"" MCP_META_CAPABILITIES
        "\":{},\"" MCP_META_LOG_LEVEL "\":\"error\"}}}");
    mcp_log(fake_work_oldest(), 3, "x", STR("1"));
    mcp_log(fake_work_oldest(), 4, "x", STR("2"));
    assert_int_equal(client.message_count, 1);
    assert_non_null(strstr(client.messages[0], "\"data\":2"));
    mcp_reply(fake_work_oldest(), STR("{}"));
    play_client_release(&client);
}

/* What came with a request stays as long as the request. */
static void test_facts(void **state)
{
    struct mcp_session *session = initialized(*state);
    struct play_client client;
    char key[] = "key-1", run[] = "run-1", text[] = CALL("1", "{\"a\":1}");
    struct mcp_facts facts = {.http = true, .idempotency_key = str_of(key), .run_id = str_of(run)};
    fake_work.hold = true;
    play_client_init(&client);
    mcp_receive(session, &client.sink, str_of(text), &facts);
    memset(key, 'x', sizeof key - 1), memset(run, 'x', sizeof run - 1), memset(text, 'x', sizeof text - 1);
    struct mcp_request *request = fake_work_oldest();
    assert_true(request->facts.http);
    assert_true(str_is(request->facts.idempotency_key, "key-1"));
    assert_true(str_is(request->facts.run_id, "run-1"));
    assert_null(request->facts.step_id.p);
    assert_int_equal(json_get_int(json_get(request->message.params, "arguments"), "a", 0), 1);
    assert_ptr_equal(mcp_request_by_number(session->door, session->number, request->number), request);
    assert_null(mcp_request_by_number(session->door, session->number, request->number + 1));
    assert_null(mcp_request_by_number(session->door, session->number + 7, request->number));
    mcp_reply(request, STR("{}"));
    play_client_release(&client);
}

/* ---- requests of ours ---- */

struct asked {
    int count;
    bool gone;
    enum rpc_kind kind;
    char value[64];
};

static void asked(void *user, const struct rpc_message *message)
{
    struct asked *asked = user;
    asked->count++;
    asked->gone = message == NULL;
    if (!message)
        return;
    asked->kind = message->kind;
    struct str text = message->kind == RPC_RESULT ? json_get_text(message->result, "action") : message->message;
    snprintf(asked->value, sizeof asked->value, "%.*s", STR_ARG(text));
}

struct outbox {
    int count;
    bool closed;
    char last[512];
};

static bool post(struct mcp_session *session, void *user, struct str message)
{
    struct outbox *outbox = user;
    (void)session;
    if (outbox->closed)
        return false;
    outbox->count++;
    snprintf(outbox->last, sizeof outbox->last, "%.*s", STR_ARG(message));
    return true;
}

static void test_ask(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = initialized(stage);
    struct outbox outbox = {0};
    struct asked first = {0}, second = {0}, third = {0};
    struct play_client client, notice;
    struct str id, other, last;
    fake_work.hold = true;
    say(session, &client, CALL("1", "{}"));
    assert_false(mcp_ask(session, NULL, "roots/list", STR_NONE, asked, &first, &id)); /* no way to the client */
    mcp_session_set_sender(session, post, &outbox);
    assert_true(mcp_ask(session, NULL, "roots/list", STR_NONE, asked, &first, &id));
    assert_true(
        mcp_ask(session, fake_work_oldest(), "elicitation/create", STR("{\"message\":\"?\"}"), asked, &second, &other));
    assert_true(mcp_ask(session, fake_work_oldest(), "roots/list", STR_NONE, asked, &third, &last));
    assert_false(str_equal(id, other));
    assert_int_equal(outbox.count, 1);
    assert_int_equal(client.message_count, 2);
    assert_non_null(strstr(client.messages[0], "\"method\":\"elicitation/create\",\"params\":{\"message\":\"?\"}"));
    char text[200];
    snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"action\":\"accept\"}}", STR_ARG(other));
    assert_int_equal(say(session, &notice, text), MCP_RECEIVED_NOTICE);
    assert_int_equal(second.count, 1);
    assert_string_equal(second.value, "accept");
    assert_int_equal(say(session, &notice, text), MCP_RECEIVED_NOTICE); /* to nothing */
    assert_int_equal(second.count, 1);
    snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"error\":{\"code\":-1,\"message\":\"no\"}}",
             STR_ARG(id));
    say(session, &notice, text);
    assert_int_equal(first.count, 1);
    assert_int_equal(first.kind, RPC_ERROR);
    assert_string_equal(first.value, "no");
    mcp_ask_withdraw(session, last);
    assert_int_equal(client.message_count, 3);
    assert_non_null(strstr(client.messages[2], "notifications/cancelled"));
    assert_int_equal(third.count, 0);
    assert_int_equal(session->request_count, 1); /* ids of ours and of the client have nothing to do with each other */
    for (size_t i = 0; i < MCP_ASKS_MAX; i++)
        assert_true(mcp_ask(session, NULL, "roots/list", STR_NONE, asked, &third, &id));
    assert_false(mcp_ask(session, NULL, "roots/list", STR_NONE, asked, &third, &id));
    mcp_session_end(session);
    assert_int_equal(third.count, MCP_ASKS_MAX);
    assert_true(third.gone);
    assert_int_equal(client.drop_count, 1);
    play_client_release(&client);
    struct mcp_session *fresh = session_for(stage, "a");
    mcp_session_set_sender(fresh, post, &outbox);
    assert_false(mcp_ask(fresh, NULL, "roots/list", STR_NONE, asked, &third, &id));
}

static void test_client_can(void **state)
{
    struct stage *stage = *state;
    struct json *can;
    assert_int_equal(
        json_parse(&stage->arena,
                   STR("{\"sampling\":{\"tools\":{}},\"elicitation\":{\"url\":{}},\"roots\":{\"listChanged\":"
                       "false},\"x\":null,\"y\":true,\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}"),
                   NULL, &can, NULL),
        0);
    static const struct {
        const char *path;
        bool can;
    } cases[] = {
        {"sampling", true},
        {"sampling.tools", true},
        {"sampling.context", false},
        {"elicitation.url", true},
        {"elicitation.form", false},
        {"roots", true},
        {"roots.listChanged", false},
        {"x", false},
        {"y", true},
        {"y.z", false},
        {"extensions.io.modelcontextprotocol/tasks", true},
        {"extensions.io.modelcontextprotocol/other", false},
        {"extensions.io", false},
        {"nothing", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (mcp_client_can(can, cases[i].path) != cases[i].can)
            fail_msg("%s", cases[i].path);
    assert_int_equal(json_parse(&stage->arena, STR("{\"elicitation\":{}}"), NULL, &can, NULL), 0);
    assert_true(mcp_client_can(can, "elicitation.form")); /* no mode named means this one */
    assert_false(mcp_client_can(can, "elicitation.url"));
    assert_false(mcp_client_can(NULL, "roots"));
}

/* ---- sessions ---- */

static void test_list_changed(void **state)
{
    struct stage *stage = *state;
    struct outbox told = {0}, not_told = {0};
    mcp_session_set_sender(initialized(stage), post, &told);
    mcp_session_set_sender(session_for(stage, "a"), post, &not_told);
    mcp_door_tools_changed(stage->door);
    assert_int_equal(told.count, 1);
    assert_int_equal(not_told.count, 0);
    assert_string_equal(told.last, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}");
    assert_string_equal(fake_work.last_changed, "tools");
    mcp_tell_list_changed(stage->door, "prompts");
    assert_non_null(strstr(told.last, "notifications/prompts/list_changed"));
    configure(stage); /* nothing that lists show */
    assert_int_equal(told.count, 2);
    stage->settings.tool_plan = false;
    configure(stage);
    assert_int_equal(told.count, 3);
    assert_int_equal(fake_work.configured, 3);
}

static void ended(struct mcp_session *session, void *user)
{
    (void)session;
    ++*(int *)user;
}

static void on_end(struct mcp_session *session, int *count)
{
    session->ended = ended;
    session->send_user = count;
}

static void test_sessions_max(void **state)
{
    struct stage *stage = *state;
    stage->settings.sessions_max = 3;
    configure(stage);
    int other_ended = 0, mine_ended = 0;
    char id[MCP_SESSION_ID_SIZE];
    struct mcp_session *other = initialized_for(stage, "other"), *mine = initialized_for(stage, "me");
    other->used_ms = 1, mine->used_ms = 2;
    on_end(other, &other_ended), on_end(mine, &mine_ended);
    memcpy(id, mine->id, sizeof id);
    assert_ptr_equal(mcp_session_find(stage->door, id), mine);
    initialized_for(stage, "me");
    for (int i = 0; i < 5; i++) {
        struct mcp_session *stdio = session_for(stage, "me");
        stdio->stdio = true; /* not counted */
        result_of(stage, stdio, INITIALIZE("2025-11-25"));
    }
    assert_int_equal(stage->door->session_count, 3);
    initialized_for(stage, "me"); /* one's own go first */
    assert_int_equal(mine_ended, 1);
    assert_int_equal(other_ended, 0);
    assert_null(mcp_session_find(stage->door, id));
    initialized_for(stage, "third"); /* has none itself */
    assert_int_equal(other_ended, 1);
    assert_int_equal(stage->door->session_count, 3);
    assert_int_equal(fake_work.sessions_ended, 2);
    assert_int_equal(fake_work.calls_ended, 2);
}

static void test_sessions_busy(void **state)
{
    struct stage *stage = *state;
    stage->settings.sessions_max = 1;
    configure(stage);
    struct play_client client;
    struct mcp_session *busy = initialized(stage);
    fake_work.hold = true;
    say(busy, &client, CALL("1", "{}"));
    int status;
    struct mcp_session *late = session_for(stage, "agent");
    assert_int_equal(error_of(stage, late, INITIALIZE("2025-11-25"), &status, NULL), MCP_BUSY);
    assert_int_equal(status, 503);
    assert_false(late->initialized);
    mcp_reply(fake_work_oldest(), STR("{}"));
    result_of(stage, late, INITIALIZE("2025-11-25"));
    play_client_release(&client);
}

static void wake(uv_timer_t *timer)
{
    (void)timer;
}

static void test_idle_sessions(void **state)
{
    struct stage *stage = *state;
    stage->settings.session_idle_ms = 20;
    configure(stage);
    int idle_ended = 0, busy_ended = 0, stdio_ended = 0;
    struct play_client client;
    struct mcp_session *busy = initialized(stage), *stdio = session_for(stage, "a");
    fake_work.hold = true;
    say(busy, &client, CALL("1", "{}"));
    stdio->stdio = true;
    on_end(initialized(stage), &idle_ended), on_end(busy, &busy_ended), on_end(stdio, &stdio_ended);
    uv_timer_t keeps;
    uv_timer_init(&stage->loop, &keeps);
    uv_timer_start(&keeps, wake, 200, 0);
    while (!idle_ended && uv_is_active((uv_handle_t *)&keeps))
        uv_run(&stage->loop, UV_RUN_ONCE);
    assert_int_equal(idle_ended, 1);
    assert_int_equal(busy_ended + stdio_ended, 0);
    uv_close((uv_handle_t *)&keeps, NULL);
    mcp_door_close(stage->door);
    assert_int_equal(busy_ended + stdio_ended, 2);
    assert_int_equal(client.drop_count, 1);
    assert_int_equal(fake_work.closed, 1);
    assert_null(mcp_session_new(stage->door, "default", "a", ROLE_AGENT));
    uv_run(&stage->loop, UV_RUN_DEFAULT);
    play_client_release(&client);
}

static void test_ids(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *a = session_for(stage, "a"), *b = session_for(stage, "a");
    assert_int_equal(strlen(a->id), MCP_SESSION_ID_SIZE - 1);
    assert_int_equal(strspn(a->id, "0123456789abcdef"), MCP_SESSION_ID_SIZE - 1);
    assert_string_not_equal(a->id, b->id);
    assert_ptr_equal(mcp_session_find(stage->door, a->id), a);
    assert_ptr_equal(mcp_session_by_number(stage->door, b->number), b);
    assert_null(mcp_session_find(stage->door, ""));
    assert_null(mcp_session_by_number(stage->door, 0));
    mcp_session_end(a);
    mcp_session_end(b);
    assert_null(stage->door->sessions);
}

static void test_instructions(void **state)
{
    struct stage *stage = *state;
    static const char *const discover =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{" MODERN_META "}}";
    struct str text = json_get_text(result_of(stage, ephemeral(stage), discover), "instructions");
    assert_non_null(strstr(text.p, "distinct_from"));
    assert_non_null(strstr(text.p, "onced_status or onced_wait"));
    assert_null(strstr(text.p, "Paths are absolute"));
    fake_work.has_server = true;
    stage->door->hub = (struct mcp_hub *)stage; /* never looked into */
    stage->settings.tool_status = false;
    configure(stage);
    text = json_get_text(result_of(stage, ephemeral(stage), discover), "instructions");
    assert_null(strstr(text.p, "onced_status"));
    assert_non_null(strstr(text.p, "\n\nfiles: Paths are absolute."));
    stage->settings.instructions = "Be kind.";
    configure(stage);
    text = json_get_text(result_of(stage, ephemeral(stage), discover), "instructions");
    assert_true(str_is(text, "Be kind.\n\nfiles: Paths are absolute."));
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_faults),
        TEST(test_versions),
        TEST(test_initialize_refused),
        TEST(test_before_initialize),
        TEST(test_capabilities),
        TEST(test_offered),
        TEST(test_envelope),
        TEST(test_unsupported_version),
        TEST(test_discover),
        TEST(test_methods_of_eras),
        TEST(test_eras_on_one_stream),
        TEST(test_joins),
        TEST(test_errors_are_not_kept),
        TEST(test_dropped_are_not_kept),
        TEST(test_one_id_for_every_call_over_http),
        TEST(test_memory_is_bounded),
        cmocka_unit_test(test_seen_answers),
        TEST(test_modern_ids),
        TEST(test_calls_max),
        TEST(test_cancelled),
        TEST(test_cancel_answers),
        TEST(test_gone),
        TEST(test_ephemeral_ends),
        TEST(test_progress),
        TEST(test_log),
        TEST(test_facts),
        TEST(test_ask),
        TEST(test_client_can),
        TEST(test_list_changed),
        TEST(test_sessions_max),
        TEST(test_sessions_busy),
        TEST(test_idle_sessions),
        TEST(test_ids),
        TEST(test_instructions),
    };
    return cmocka_run_group_tests_name("mcp_rpc", tests, NULL, NULL);
}
