/* Streamable HTTP at /mcp over real sockets: the dispatch is the real one, what tools do the test says. */
#include "support/test.h"

#include "door/http.h"
#include "support/fake_engine.h"
#include "support/fake_tools.h"
#include "support/http_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the stage ---- */

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct fake_tools mcp;
    struct registry *registry;
    struct provider provider;
    struct tool now, hold;
    struct json *schema;
    struct mcp_settings settings;
    struct mcp_door *mcp_door;
    struct http_door *door;
    struct arena arena;
    struct http_answer answer;
    char session[64]; /* of the last initialize */
};

static const char *const origins[] = {"https://app.example.com"};

/* A tool some of whose arguments have headers. */
static const char header_schema[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"region\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"},"
    "\"count\":{\"type\":\"integer\",\"x-mcp-header\":\"Count\"},"
    "\"debug\":{\"type\":\"boolean\",\"x-mcp-header\":\"Debug\"},"
    "\"where\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"x-mcp-header\":\"City\"}}},"
    "\"list\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"x-mcp-header\":\"Item\"}}}}";

static void make_tools(struct stage *stage)
{
    struct err err = {0};
    stage->provider = (struct provider){.name = "payments"};
    assert_int_equal(json_parse(&stage->arena, str_of(header_schema), NULL, &stage->schema, &err), 0);
    stage->now = (struct tool){
        .name = "now", .class = CLASS_READ, .provider = &stage->provider, .input_schema_json = stage->schema};
    stage->hold = stage->now;
    stage->hold.name = "hold";
    stage->hold.input_schema_json = NULL;
    const struct tool *tools[] = {&stage->now, &stage->hold};
    const struct provider *providers[] = {&stage->provider};
    assert_int_equal(registry_new(tools, 2, providers, 1, "abc", NULL, NULL, &stage->registry, &err), 0);
}

static void open_doors(struct stage *stage, bool tokens, bool mcp)
{
    struct err err = {0};
    stage->settings = mcp_settings_default;
    stage->settings.stream_bytes_max = 64 * 1024;
    stage->settings.origins = origins;
    stage->settings.origin_count = 1;
    stage->mcp_door = mcp_door_new(
        &(struct mcp_door_options){.loop = &stage->loop, .engine = &stage->engine, .settings = &stage->settings});
    const struct http_door_options options = {
        .loop = &stage->loop,
        .engine = &stage->engine,
        .address = "127.0.0.1",
        .auth_tokens = tokens,
        .body_bytes_max = 64 * 1024,
        .mcp = mcp ? stage->mcp_door : NULL,
    };
    assert_int_equal(http_door_new(&options, &stage->door, &err), 0);
}

static int set_up_with(void **state, bool tokens, bool mcp)
{
    struct stage *stage = calloc(1, sizeof *stage);
    uv_loop_init(&stage->loop);
    arena_init(&stage->arena);
    make_tools(stage);
    fake_engine_init(&stage->engine, stage->registry);
    stage->engine.recovered = true;
    fake_tools_init(&stage->mcp);
    open_doors(stage, tokens, mcp);
    *state = stage;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, false, true);
}

static int set_up_tokens(void **state)
{
    return set_up_with(state, true, true);
}

static int set_up_without(void **state)
{
    return set_up_with(state, false, false);
}

static void door_closed(void *user)
{
    *(bool *)user = true;
}

static void close_http(struct stage *stage)
{
    bool closed = false;
    http_door_close(stage->door, door_closed, &closed);
    for (int i = 0; i < 3000 && !closed; i++)
        http_spin(&stage->loop, 1);
    assert_true(closed);
    stage->door = NULL;
}

/* Whatever is still open is to come down by itself. */
static int tear_down(void **state)
{
    struct stage *stage = *state;
    if (stage->door)
        close_http(stage);
    mcp_door_free(stage->mcp_door);
    assert_int_equal(stage->mcp.held_count, 0);
    http_spin(&stage->loop, 5);
    assert_int_equal(uv_loop_close(&stage->loop), 0);
    http_answer_release(&stage->answer);
    fake_tools_release(&stage->mcp);
    fake_engine_release(&stage->engine);
    registry_unref(stage->registry);
    arena_release(&stage->arena);
    free(stage);
    return 0;
}

/* ---- asking ---- */

#define TYPES                                                                                                          \
    "Content-Type: application/json\r\n"                                                                               \
    "Accept: application/json, text/event-stream\r\n"

static int send_request(struct stage *stage, const char *method, const char *headers, const char *body)
{
    struct buf text;
    buf_init(&text, 0);
    buf_printf(&text, "%s /mcp HTTP/1.1\r\n%s%s", method, strstr(headers, "Host:") ? "" : "Host: 127.0.0.1\r\n",
               headers);
    if (body)
        buf_printf(&text, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    else
        buf_add_text(&text, "\r\n");
    int fd = http_connect(http_door_port(stage->door));
    assert_true(fd >= 0);
    http_send(&stage->loop, fd, text.p, text.n);
    buf_release(&text);
    return fd;
}

static int ask(struct stage *stage, const char *method, const char *headers, const char *body)
{
    int fd = send_request(stage, method, headers, body);
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 5000, &stage->answer);
    close(fd);
    http_spin(&stage->loop, 2);
    return stage->answer.status;
}

static const char *header(struct stage *stage, const char *name)
{
    return http_answer_header(&stage->answer, name);
}

static const char *session_headers(struct stage *stage)
{
    return arena_printf(&stage->arena, TYPES "Mcp-Session-Id: %s\r\n", stage->session);
}

static int post_legacy(struct stage *stage, const char *body)
{
    return ask(stage, "POST", session_headers(stage), body);
}

static void initialize(struct stage *stage, const char *version)
{
    const char *body = arena_printf(&stage->arena,
                                    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
                                    "\"protocolVersion\":\"%s\",\"capabilities\":{},"
                                    "\"clientInfo\":{\"name\":\"test\",\"version\":\"1\"}}}",
                                    version);
    assert_int_equal(ask(stage, "POST", TYPES, body), 200);
    const char *id = header(stage, "Mcp-Session-Id");
    assert_non_null(id);
    snprintf(stage->session, sizeof stage->session, "%s", id);
    assert_int_equal(post_legacy(stage, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"), 202);
}

static const char *call_body(struct stage *stage, int id, const char *tool)
{
    return arena_printf(&stage->arena,
                        "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\"}}", id,
                        tool);
}

static int64_t error_code(struct stage *stage)
{
    const struct json *error = json_get(stage->answer.json, "error");
    return json_get_int(error, "code", 0);
}

static void expect_error(struct stage *stage, int status, int64_t code)
{
    if (stage->answer.status != status || error_code(stage) != code)
        fail_msg("%d %.*s", stage->answer.status, STR_ARG(buf_str(&stage->answer.body)));
}

#define MODERN_META                                                                                                    \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                                           \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define MODERN_HEADERS TYPES "MCP-Protocol-Version: 2026-07-28\r\n"

static const char *modern_call(struct stage *stage, const char *tool, const char *arguments)
{
    return arena_printf(&stage->arena,
                        "{\"jsonrpc\":\"2.0\",\"id\":\"m\",\"method\":\"tools/call\",\"params\":{\"name\":\"%s\","
                        "\"arguments\":%s," MODERN_META "}}",
                        tool, arguments);
}

static const char *modern_headers(struct stage *stage, const char *tool)
{
    return arena_printf(&stage->arena, MODERN_HEADERS "Mcp-Method: tools/call\r\nMcp-Name: %s\r\n", tool);
}

/* ---- streams ---- */

/* What came on a connection so far. */
struct wire {
    int fd;
    struct buf text;
    bool closed;
};

static struct wire wire_open(struct stage *stage, const char *method, const char *headers, const char *body)
{
    struct wire wire = {.fd = send_request(stage, method, headers, body)};
    buf_init(&wire.text, 0);
    return wire;
}

static void wire_close(struct stage *stage, struct wire *wire)
{
    if (wire->fd >= 0)
        close(wire->fd);
    wire->fd = -1;
    buf_release(&wire->text);
    http_spin(&stage->loop, 20);
}

static void wire_read(struct wire *wire)
{
    char chunk[65536];
    ssize_t n;
    while ((n = recv(wire->fd, chunk, sizeof chunk, MSG_DONTWAIT)) > 0)
        buf_add(&wire->text, chunk, (size_t)n);
    wire->closed |= n == 0 || (n < 0 && errno != EAGAIN);
}

static bool wire_has(const struct wire *wire, const char *text)
{
    return wire->text.p && memmem(wire->text.p, wire->text.n, text, strlen(text));
}

static bool wire_waits(struct stage *stage, struct wire *wire, const char *text, int ms)
{
    for (int i = 0; i < ms && !wire_has(wire, text); i++) {
        http_spin(&stage->loop, 1);
        wire_read(wire);
    }
    return wire_has(wire, text);
}

static void wire_expect(struct stage *stage, struct wire *wire, const char *text)
{
    if (!wire_waits(stage, wire, text, 3000))
        fail_msg("no \"%s\" in \"%.*s\"", text, STR_ARG(buf_str(&wire->text)));
}

#define STREAM_END "\r\n0\r\n\r\n" /* the last chunk */

/* ---- tests: who may ----- */

static void test_none(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "POST", TYPES, "{}"), 404);
    assert_string_equal(header(stage, "Content-Type"), "application/problem+json");
}

static void test_origin(void **state)
{
    struct stage *stage = *state;
    const char *ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{" MODERN_META "}}";
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"Origin: http://evil.example.com\r\n", 403},
        {"Origin: null\r\n", 403},
        {"Origin: http://localhost.evil.example\r\n", 403},
        {"Origin: http://127.0.0.1:3000\r\n", 200},
        {"Origin: https://localhost\r\n", 200},
        {"Origin: https://app.example.com\r\n", 200},
        {"Origin: https://app.example.com.evil\r\n", 403},
        {"Host: evil.example.com\r\n", 403},
        {"Host: localhost:1234\r\n", 200},
        {"Origin: http://localhost\r\nOrigin: http://localhost\r\n", 403},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *lines =
            arena_printf(&stage->arena, MODERN_HEADERS "Mcp-Method: server/discover\r\n%s", cases[i].headers);
        if (ask(stage, "POST", lines, ping) != cases[i].status)
            fail_msg("%s: %d", cases[i].headers, stage->answer.status);
        assert_non_null(stage->answer.json);
        assert_non_null(json_get(stage->answer.json, cases[i].status == 200 ? "result" : "error"));
    }
    assert_int_equal(ask(stage, "GET", "Accept: text/event-stream\r\nOrigin: http://evil.example.com\r\n", NULL), 403);
    assert_int_equal(ask(stage, "OPTIONS", "Origin: http://evil.example.com\r\n", NULL), 403);
    assert_int_equal(ask(stage, "OPTIONS", "Origin: http://localhost\r\n", NULL), 204);
    assert_null(header(stage, "Access-Control-Allow-Origin"));
    assert_int_equal(ask(stage, "OPTIONS",
                         "Origin: https://app.example.com\r\nAccess-Control-Request-Method: POST\r\n"
                         "Access-Control-Request-Headers: mcp-param-x, content-type\r\n",
                         NULL),
                     204);
    assert_string_equal(header(stage, "Access-Control-Allow-Origin"), "https://app.example.com");
    assert_string_equal(header(stage, "Access-Control-Allow-Headers"), "mcp-param-x, content-type");
    assert_string_equal(header(stage, "Vary"), "Origin");
}

static void test_tokens(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "POST", TYPES, "{}"), 401);
    assert_string_equal(header(stage, "WWW-Authenticate"), "Bearer realm=\"onced\"");
    expect_error(stage, 401, RPC_INVALID_REQUEST);
    /* a foreign page is kept out before that */
    assert_int_equal(ask(stage, "POST", TYPES "Origin: http://evil.example.com\r\n", "{}"), 403);
}

static void test_shape(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "PUT", TYPES, "{}"), 405);
    assert_non_null(strstr(header(stage, "Allow"), "POST"));
    assert_int_equal(ask(stage, "POST", "Accept: */*\r\nContent-Type: text/plain\r\n", "{}"), 415);
    expect_error(stage, 415, RPC_INVALID_REQUEST);
    assert_int_equal(ask(stage, "POST", TYPES, "{\"jsonrpc\":"), 400);
    expect_error(stage, 400, RPC_PARSE_ERROR);
    assert_int_equal(ask(stage, "POST", TYPES, "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]"), 400);
    expect_error(stage, 400, RPC_INVALID_REQUEST);
    assert_int_equal(ask(stage, "POST", TYPES, "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}"), 400);
    expect_error(stage, 400, RPC_INVALID_REQUEST);
    assert_int_equal(ask(stage, "POST", TYPES, ""), 400);
    char *large = calloc(1, 70000);
    memset(large, ' ', 69999);
    assert_int_equal(ask(stage, "POST", TYPES, large), 413);
    expect_error(stage, 413, RPC_INVALID_REQUEST);
    free(large);
}

/* ---- tests: legacy ---- */

static void test_session_life(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-06-18");
    assert_int_equal(post_legacy(stage, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"), 200);
    assert_string_equal(stage->answer.body.p, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
    assert_string_equal(header(stage, "Mcp-Session-Id"), stage->session);
    assert_string_equal(header(stage, "Content-Type"), "application/json");
    /* without, with another, of somebody else */
    assert_int_equal(ask(stage, "POST", TYPES, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}"), 400);
    expect_error(stage, 400, RPC_INVALID_REQUEST);
    assert_true(str_is(json_get(stage->answer.json, "id")->text, "2"));
    const char *mine = session_headers(stage);
    assert_int_equal(ask(stage, "POST", TYPES "Mcp-Session-Id: 0123456789abcdef0123456789abcdef\r\n",
                         "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}"),
                     404);
    expect_error(stage, 404, -32001);
    const char *other = arena_printf(&stage->arena, "%sOnced-Principal: mallory\r\n", mine);
    assert_int_equal(ask(stage, "POST", other, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}"), 404);
    other = arena_printf(&stage->arena, "%sOnced-Tenant: elsewhere\r\n", mine);
    assert_int_equal(ask(stage, "DELETE", other, NULL), 404);
    other = arena_printf(&stage->arena, "%sMcp-Session-Id: %s\r\n", mine, stage->session);
    assert_int_equal(ask(stage, "POST", other, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}"), 400);
    /* responses and notifications have no answer */
    assert_int_equal(post_legacy(stage, "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}"), 202);
    assert_int_equal(stage->answer.body.n, 0);
    assert_null(header(stage, "Content-Type"));
    /* the end */
    assert_int_equal(ask(stage, "DELETE", TYPES, NULL), 400);
    assert_int_equal(ask(stage, "DELETE", mine, NULL), 204);
    assert_int_equal(ask(stage, "DELETE", mine, NULL), 404);
    assert_int_equal(post_legacy(stage, "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}"), 404);
    expect_error(stage, 404, -32001);
    assert_int_equal(ask(stage, "GET", mine, NULL), 404);
}

static void test_initialize_refused(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(
        ask(stage, "POST", TYPES, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}"), 200);
    expect_error(stage, 200, RPC_INVALID_PARAMS);
    assert_null(header(stage, "Mcp-Session-Id"));
    assert_null(stage->mcp_door->sessions); /* nothing is left of it */
}

static void test_versions(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *version;
        int status;
        int64_t code;
    } cases[] = {
        {"2025-03-26", 200, 0},
        {"2025-06-18", 200, 0},
        {"2025-11-25", 200, 0},
        {"1999-01-01", 400, RPC_INVALID_REQUEST},
        {"v999.0.0", 400, RPC_INVALID_REQUEST},
        {"", 400, RPC_INVALID_REQUEST},
        {"2026-07-28", 400, RPC_INVALID_PARAMS}, /* a modern request without its envelope */
    };
    initialize(stage, "2025-11-25");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *lines =
            arena_printf(&stage->arena, "%sMCP-Protocol-Version: %s\r\n", session_headers(stage), cases[i].version);
        int id = (int)i + 10;
        const char *body = arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}", id);
        if (ask(stage, "POST", lines, body) != cases[i].status || error_code(stage) != cases[i].code)
            fail_msg("%s: %d %.*s", cases[i].version, stage->answer.status, STR_ARG(buf_str(&stage->answer.body)));
    }
    assert_int_equal(ask(stage, "POST", MODERN_HEADERS, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}"),
                     400);
    expect_error(stage, 400, MCP_HEADER_MISMATCH);
}

static void test_accept(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *accept;
        int status;
    } cases[] = {
        {"Accept: application/json\r\n", 406},
        {"Accept: text/event-stream\r\n", 406},
        {"Accept: text/html\r\n", 406},
        {"Accept: application/json, text/event-stream;q=0\r\n", 406},
        {"Accept: application/json;q=0.5, TEXT/event-stream\r\n", 200},
        {"Accept: application/json\r\nAccept: text/event-stream\r\n", 200},
        {"Accept: */*\r\n", 200},
        {"Accept: application/*, text/*;q=0.1\r\n", 200},
        {"", 200},
    };
    initialize(stage, "2025-11-25");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *lines =
            arena_printf(&stage->arena, "Content-Type: application/json; charset=utf-8\r\nMcp-Session-Id: %s\r\n%s",
                         stage->session, cases[i].accept);
        const char *body =
            arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}", (int)i + 10);
        if (ask(stage, "POST", lines, body) != cases[i].status)
            fail_msg("%s: %d", cases[i].accept, stage->answer.status);
    }
    const char *lines =
        arena_printf(&stage->arena, "Accept: application/json\r\nMcp-Session-Id: %s\r\n", stage->session);
    assert_int_equal(ask(stage, "GET", lines, NULL), 406);
}

static void test_legacy_stream(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire wire = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    wire_expect(stage, &wire, "\"progress\":1}");
    assert_true(wire_has(&wire, "HTTP/1.1 200"));
    assert_true(wire_has(&wire, "Content-Type: text/event-stream\r\n"));
    assert_true(wire_has(&wire, "Cache-Control: no-cache"));
    assert_true(wire_has(&wire, "Mcp-Session-Id: "));
    assert_true(wire_has(&wire, "id: 1-0\nretry: 1000\ndata: \n\n"));
    assert_true(wire_has(&wire, "event: message\nid: 1-1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/prog"));
    assert_true(fake_tools_answer(&stage->mcp, STR("{\"content\":[]}"), true));
    wire_expect(stage, &wire, "id: 1-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"content\":[]}}\n\n");
    wire_expect(stage, &wire, STREAM_END);
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 1);
    assert_string_equal(stage->engine.delivered_id, stage->mcp.operation.id);
    wire_close(stage, &wire);
}

/* Revisions before 2025-11-25 cannot take an event without data. */
static void test_older_stream(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-06-18");
    struct wire wire = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    wire_expect(stage, &wire, "\"progress\":1}");
    assert_false(wire_has(&wire, "data: \n"));
    assert_true(wire_has(&wire, "id: 1-0\ndata: {"));
    fake_tools_answer(&stage->mcp, STR("{}"), false);
    wire_expect(stage, &wire, STREAM_END);
    wire_close(stage, &wire);
}

/* A call that takes its time gets a stream by itself, so that proxies and clients see life. */
static void test_opened_stream(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire legacy = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "hold"));
    struct wire modern = wire_open(stage, "POST", modern_headers(stage, "hold"), modern_call(stage, "hold", "{}"));
    struct wire plain = wire_open(
        stage, "POST",
        arena_printf(
            &stage->arena,
            "Content-Type: application/json\r\nAccept: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            "Mcp-Method: tools/call\r\nMcp-Name: hold\r\n"),
        modern_call(stage, "hold", "{}"));
    http_spin(&stage->loop, 400);
    wire_read(&legacy);
    wire_read(&modern);
    assert_int_equal(legacy.text.n, 0);
    assert_int_equal(modern.text.n, 0);
    wire_expect(stage, &legacy, "id: 1-0\nretry: 1000\ndata: \n\n");
    wire_expect(stage, &modern, "text/event-stream");
    while (fake_tools_answer(&stage->mcp, STR("{\"done\":1}"), false))
        ;
    wire_expect(stage, &legacy, "\"done\":1");
    wire_expect(stage, &legacy, STREAM_END);
    wire_expect(stage, &modern, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"m\",\"result\":{\"done\":1}}\n\n");
    assert_false(wire_has(&modern, "\nid: "));
    wire_expect(stage, &plain, "application/json");
    wire_expect(stage, &plain, "\"done\":1");
    wire_close(stage, &legacy);
    wire_close(stage, &modern);
    wire_close(stage, &plain);
}

static const char *resume_headers(struct stage *stage, const char *event)
{
    return arena_printf(&stage->arena, "Accept: text/event-stream\r\nMcp-Session-Id: %s\r\nLast-Event-ID: %s\r\n",
                        stage->session, event);
}

static void test_resume(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire other = wire_open(stage, "POST", session_headers(stage), call_body(stage, 4, "progress"));
    struct wire wire = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "hold"));
    wire_expect(stage, &other, "id: 1-1\n");
    wire_expect(stage, &wire, "id: 2-0\n");
    /* the connection breaks: nothing is cancelled, what comes meanwhile is kept */
    wire_close(stage, &wire);
    assert_int_equal(stage->mcp.held_count, 2);
    assert_int_equal(stage->mcp.released, 0);
    assert_true(stage->mcp.away);
    struct mcp_request *first = stage->mcp.held[0];
    stage->mcp.held[0] = stage->mcp.held[1], stage->mcp.held[1] = first;
    fake_tools_tell(&stage->mcp, STR("{\"progress\":2}"));
    /* the client comes back: what it missed of this stream, and what follows */
    wire = wire_open(stage, "GET", resume_headers(stage, "2-0"), NULL);
    wire_expect(stage, &wire,
                "id: 2-1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":"
                "{\"progress\":2}}");
    assert_false(stage->mcp.away);
    fake_tools_tell(&stage->mcp, STR("{\"progress\":3}"));
    wire_expect(stage, &wire, "{\"progress\":3}");
    wire_close(stage, &wire);
    assert_true(fake_tools_answer(&stage->mcp, STR("{\"content\":[]}"), true));
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 0);
    wire = wire_open(stage, "GET", resume_headers(stage, "2-1"), NULL);
    wire_expect(stage, &wire, "id: 2-3\ndata: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"content\":[]}}\n\n");
    wire_expect(stage, &wire, STREAM_END);
    assert_false(wire_has(&wire, "id: 2-1\n"));
    assert_false(wire_has(&wire, "id: 1-"));
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 1);
    wire_close(stage, &wire);
    /* what was written may not have arrived: it can be had again for a while */
    wire = wire_open(stage, "GET", resume_headers(stage, "2-2"), NULL);
    wire_expect(stage, &wire, "id: 2-3\n");
    wire_close(stage, &wire);
    static const char *const wrong[] = {"9-0", "2-17", "2", "x", "-", "2-", "2-1x", "99999999999999999999999-1", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (ask(stage, "GET", resume_headers(stage, wrong[i]), NULL) != 400)
            fail_msg("Last-Event-ID %s: %d", wrong[i], stage->answer.status);
    }
    /* the other stream has noticed nothing */
    assert_true(fake_tools_answer(&stage->mcp, STR("{}"), false));
    wire_expect(stage, &other, "id: 1-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":4,");
    wire_close(stage, &other);
}

/* The old connection may look alive to us when the client comes back on a new one. */
static void test_take_over(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire old = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    wire_expect(stage, &old, "id: 1-1\n");
    struct wire new = wire_open(stage, "GET", resume_headers(stage, "1-0"), NULL);
    wire_expect(stage, &new, "id: 1-1\n");
    wire_expect(stage, &old, STREAM_END);
    assert_true(fake_tools_answer(&stage->mcp, STR("{\"one\":1}"), false));
    wire_expect(stage, &new, "\"one\":1");
    wire_expect(stage, &new, STREAM_END);
    assert_false(wire_has(&old, "\"one\":1"));
    wire_close(stage, &old);
    wire_close(stage, &new);
}

static void test_replay_bound(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire wire = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    wire_expect(stage, &wire, "id: 1-1\n");
    wire_close(stage, &wire);
    char text[10000];
    int n = snprintf(text, sizeof text, "{\"pad\":\"%08000d\"}", 0);
    for (int i = 0; i < 20; i++)
        fake_tools_tell(&stage->mcp, (struct str){text, (size_t)n});
    assert_int_equal(ask(stage, "GET", resume_headers(stage, "1-1"), NULL), 400);
    fake_tools_answer(&stage->mcp, STR("{\"two\":2}"), false);
    wire = wire_open(stage, "GET", resume_headers(stage, "1-20"), NULL); /* the newest are there */
    wire_expect(stage, &wire, "\"two\":2");
    assert_true(wire_has(&wire, "id: 1-21\n"));
    wire_close(stage, &wire);
}

/* No event was seen, so that nobody can come back: the request's caller has left. */
static void test_legacy_left_early(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire wire = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "hold"));
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->mcp.held_count, 1);
    wire_close(stage, &wire);
    http_spin(&stage->loop, 100);
    assert_int_equal(stage->mcp.held_count, 0);
    assert_int_equal(stage->mcp.cancelled, 0);
    assert_int_equal(post_legacy(stage, "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"ping\"}"), 200);
}

static void test_cancelled(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire plain = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "hold"));
    struct wire stream = wire_open(stage, "POST", session_headers(stage), call_body(stage, 6, "progress"));
    wire_expect(stage, &stream, "\"progress\":1");
    for (int id = 5; id <= 6; id++)
        assert_int_equal(post_legacy(stage, arena_printf(&stage->arena,
                                                         "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
                                                         "\"params\":{\"requestId\":%d}}",
                                                         id)),
                         202);
    assert_int_equal(stage->mcp.cancelled, 2);
    wire_expect(stage, &plain, "0\r\n\r\n");
    wire_expect(stage, &stream, STREAM_END);
    assert_true(wire_has(&plain, "text/event-stream"));
    assert_false(wire_has(&plain, "jsonrpc"));
    assert_false(wire_has(&stream, "\"id\":6"));
    wire_close(stage, &plain);
    wire_close(stage, &stream);
}

static const char *listen_headers(struct stage *stage)
{
    return arena_printf(&stage->arena, "Accept: text/event-stream\r\nMcp-Session-Id: %s\r\n", stage->session);
}

static void test_listen(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    assert_int_equal(ask(stage, "GET", "Accept: text/event-stream\r\n", NULL), 400);
    assert_int_equal(ask(stage, "GET", "Accept: text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n", NULL), 405);
    struct wire wire = wire_open(stage, "GET", listen_headers(stage), NULL);
    wire_expect(stage, &wire, "id: 1-0\nretry: 1000\ndata: \n\n");
    mcp_door_tools_changed(stage->mcp_door);
    wire_expect(stage, &wire, "id: 1-1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}");
    /* several streams: each message on one of them only */
    struct wire second = wire_open(stage, "GET", listen_headers(stage), NULL);
    wire_expect(stage, &second, "id: 2-0\n");
    mcp_door_tools_changed(stage->mcp_door);
    wire_expect(stage, &second, "id: 2-1\n");
    wire_read(&wire);
    assert_false(wire_has(&wire, "id: 1-2\n"));
    /* the newest leaves: the other is there; it comes back: what it missed */
    wire_close(stage, &second);
    mcp_door_tools_changed(stage->mcp_door);
    wire_expect(stage, &wire, "id: 1-2\n");
    wire_close(stage, &wire);
    mcp_door_tools_changed(stage->mcp_door);
    wire = wire_open(stage, "GET", resume_headers(stage, "2-1"), NULL);
    wire_expect(stage, &wire, "id: 2-2\n");
    /* too many replace the oldest */
    struct wire more[4];
    for (int i = 0; i < 4; i++) {
        more[i] = wire_open(stage, "GET", listen_headers(stage), NULL);
        wire_expect(stage, &more[i], "id: ");
    }
    wire_expect(stage, &wire, STREAM_END);
    wire_close(stage, &wire);
    /* the end of the session is the end of its streams */
    assert_int_equal(ask(stage, "DELETE", session_headers(stage), NULL), 204);
    for (int i = 0; i < 4; i++) {
        wire_expect(stage, &more[i], "0\r\n\r\n");
        wire_close(stage, &more[i]);
    }
}

static void test_session_ends(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire stream = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    struct wire gone = wire_open(stage, "POST", session_headers(stage), call_body(stage, 6, "progress"));
    struct wire plain = wire_open(stage, "POST", session_headers(stage), call_body(stage, 7, "hold"));
    wire_expect(stage, &stream, "\"progress\":1");
    wire_expect(stage, &gone, "\"progress\":1");
    wire_close(stage, &gone);
    assert_int_equal(ask(stage, "DELETE", session_headers(stage), NULL), 204);
    assert_int_equal(stage->mcp.held_count, 0);
    wire_expect(stage, &stream, STREAM_END);
    wire_expect(stage, &plain, "0\r\n\r\n");
    wire_close(stage, &stream);
    wire_close(stage, &plain);
}

static void test_facts(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    const char *lines = arena_printf(&stage->arena,
                                     "%sIdempotency-Key: \"k-1\"\r\nOnced-Run-Id: run_1\r\nOnced-Step-Id: s1\r\n"
                                     "traceparent: 00-1-2-01\r\nOnced-Principal: local\r\n",
                                     session_headers(stage));
    assert_int_equal(ask(stage, "POST", lines, call_body(stage, 5, "now")), 200);
    assert_true(stage->mcp.facts.http);
    assert_true(str_is(stage->mcp.facts.idempotency_key, "\"k-1\""));
    assert_true(str_is(stage->mcp.facts.run_id, "run_1"));
    assert_true(str_is(stage->mcp.facts.step_id, "s1"));
    assert_true(str_is(stage->mcp.facts.traceparent, "00-1-2-01"));
    assert_string_equal(stage->mcp.principal, "local");
    assert_int_equal(stage->mcp.era, MCP_ERA_LEGACY);
    assert_int_equal(ask(stage, "POST", session_headers(stage), call_body(stage, 6, "now")), 200);
    assert_null(stage->mcp.facts.idempotency_key.p);
    lines = arena_printf(&stage->arena, "%sIdempotency-Key: a\r\nIdempotency-Key: b\r\n", session_headers(stage));
    assert_int_equal(ask(stage, "POST", lines, call_body(stage, 7, "now")), 400);
}

/* ---- tests: modern ---- */

static void test_modern(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "POST", modern_headers(stage, "now"), modern_call(stage, "now", "{\"a\":1}")), 200);
    assert_string_equal(stage->answer.body.p,
                        "{\"jsonrpc\":\"2.0\",\"id\":\"m\",\"result\":{\"content\":[],\"echo\":{\"a\":1}}}");
    assert_string_equal(header(stage, "Content-Type"), "application/json");
    assert_null(header(stage, "Mcp-Session-Id"));
    assert_int_equal(stage->mcp.era, MCP_ERA_MODERN);
    assert_null(stage->mcp_door->sessions);
    /* a session header means nothing here */
    const char *lines = arena_printf(&stage->arena, "%sMcp-Session-Id: nonsense\r\nLast-Event-ID: 1-1\r\n",
                                     modern_headers(stage, "now"));
    assert_int_equal(ask(stage, "POST", lines, modern_call(stage, "now", "{}")), 200);
    assert_null(header(stage, "Mcp-Session-Id"));
    /* statuses that the request's end has */
    assert_int_equal(ask(stage, "POST", modern_headers(stage, "incapable"), modern_call(stage, "incapable", "{}")),
                     400);
    expect_error(stage, 400, MCP_MISSING_CAPABILITY);
    assert_int_equal(ask(stage, "POST", MODERN_HEADERS "Mcp-Method: initialize\r\n",
                         "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{" MODERN_META "}}"),
                     404);
    expect_error(stage, 404, RPC_METHOD_NOT_FOUND);
    assert_int_equal(ask(stage, "POST", MODERN_HEADERS "Mcp-Method: nothing\r\n",
                         "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing\",\"params\":{" MODERN_META "}}"),
                     404);
    /* notifications are taken, answers are not */
    assert_int_equal(ask(stage, "POST", MODERN_HEADERS, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}"),
                     202);
    assert_int_equal(ask(stage, "POST", MODERN_HEADERS, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"), 400);
    expect_error(stage, 400, RPC_INVALID_REQUEST);
    assert_int_equal(ask(stage, "DELETE", MODERN_HEADERS, NULL), 405);
    assert_null(stage->mcp_door->sessions);
}

static void test_modern_headers(void **state)
{
    struct stage *stage = *state;
#define V      "MCP-Protocol-Version: 2026-07-28\r\n"
#define METHOD "Mcp-Method: tools/call\r\n"
    static const struct {
        const char *headers;
        const char *version; /* of the body */
        int64_t code;        /* 0: 200 */
    } cases[] = {
        {V METHOD "Mcp-Name: now\r\n", "2026-07-28", 0},
        {"mCP-pROTOCOL-vERSION: 2026-07-28\r\nMCP-METHOD:   tools/call  \r\nmcp-name:   now  \r\n", "2026-07-28", 0},
        {V METHOD "Mcp-Name: =?base64?bm93?=\r\n", "2026-07-28", 0},
        {METHOD "Mcp-Name: now\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {V "Mcp-Name: now\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {V METHOD, "2026-07-28", MCP_HEADER_MISMATCH},
        {V "Mcp-Method: TOOLS/CALL\r\nMcp-Name: now\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {V "Mcp-Method: tools/list\r\nMcp-Name: now\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {V METHOD "Mcp-Name: Now\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {V METHOD "Mcp-Name: now\r\nMcp-Name: now\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {V METHOD "Mcp-Name: =?base64?bm9?=\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {V METHOD "Mcp-Name: n\xc3\xb6w\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {"MCP-Protocol-Version: v999\r\n" METHOD "Mcp-Name: now\r\n", "v999", MCP_UNSUPPORTED_VERSION},
        {"MCP-Protocol-Version: 2025-11-25\r\n" METHOD "Mcp-Name: now\r\n", "2025-11-25", MCP_UNSUPPORTED_VERSION},
        {V METHOD "Mcp-Name: now\r\n", "v999", MCP_HEADER_MISMATCH},
        {"MCP-Protocol-Version: v999\r\n" METHOD "Mcp-Name: now\r\n", "2026-07-28", MCP_HEADER_MISMATCH},
        {"MCP-Protocol-Version: v999\r\n", "v999", MCP_UNSUPPORTED_VERSION},
        {"MCP-Protocol-Version: v999\r\nMcp-Method: other\r\n", "v999", MCP_HEADER_MISMATCH},
        {METHOD "Mcp-Name: now\r\n", "v999", MCP_UNSUPPORTED_VERSION},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *body = arena_printf(
            &stage->arena,
            "{\"jsonrpc\":\"2.0\",\"id\":\"m\",\"method\":\"tools/call\",\"params\":{\"name\":\"now\",\"_meta\":{"
            "\"io.modelcontextprotocol/protocolVersion\":\"%s\",\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
            cases[i].version);
        const char *lines = arena_printf(&stage->arena, TYPES "%s", cases[i].headers);
        int status = cases[i].code ? 400 : 200;
        if (ask(stage, "POST", lines, body) != status || error_code(stage) != cases[i].code)
            fail_msg("%zu: %s: %d %.*s", i, lines, stage->answer.status, STR_ARG(buf_str(&stage->answer.body)));
        assert_true(str_is(json_get_text(stage->answer.json, "id"), "m"));
    }
}

static void test_envelope(void **state)
{
    struct stage *stage = *state;
    static const char *const params[] = {
        "{}",
        "{\"_meta\":{}}",
        "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}",
        "{\"_meta\":{\"io.modelcontextprotocol/clientCapabilities\":{}}}",
        "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":7,\"io.modelcontextprotocol/clientCapabilities\":{}}}",
        "{\"_meta\":7}",
    };
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        for (int wrong = 0; wrong < 2; wrong++) { /* it outranks headers */
            const char *lines = wrong ? TYPES V "Mcp-Method: other\r\n" : TYPES V "Mcp-Method: tools/list\r\n";
            const char *body = arena_printf(
                &stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/list\",\"params\":%s}", params[i]);
            assert_int_equal(ask(stage, "POST", lines, body), 400);
            expect_error(stage, 400, RPC_INVALID_PARAMS);
        }
    }
    assert_int_equal(ask(stage, "POST", TYPES, "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"server/discover\"}"), 400);
    expect_error(stage, 400, RPC_INVALID_PARAMS);
}

static void test_parameters(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *arguments, *headers;
        bool good;
    } cases[] = {
        {"{\"region\":\"eu\"}", "Mcp-Param-Region: eu\r\n", true},
        {"{\"region\":\"eu\"}", "mcp-param-REGION: eu\r\n", true},
        {"{\"region\":\"eu\"}", "", false},
        {"{\"region\":\"eu\"}", "Mcp-Param-Region: us\r\n", false},
        {"{\"region\":\"eu\"}", "Mcp-Param-Region: EU\r\n", false},
        {"{\"region\":\"Hello\"}", "Mcp-Param-Region: =?base64?SGVsbG8=?=\r\n", true},
        {"{\"region\":\"Hello\"}", "Mcp-Param-Region: =?base64?SGVsbG8?=\r\n", false},
        {"{\"region\":\"Hello\"}", "Mcp-Param-Region: =?base64?SGVs!!!bG8=?=\r\n", false},
        {"{\"region\":\"Hello\"}", "Mcp-Param-Region: =?base64?SGVsbG9=?=\r\n", false},
        {"{\"region\":\"SGVsbG8=?=\"}", "Mcp-Param-Region: SGVsbG8=?=\r\n", true},
        {"{\"region\":\"=?base64?SGVsbG8=\"}", "Mcp-Param-Region: =?base64?SGVsbG8=\r\n", true},
        {"{\"region\":\"=?base64?literal?=\"}", "Mcp-Param-Region: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=\r\n", true},
        {"{\"region\":\" padded \"}", "Mcp-Param-Region: =?base64?IHBhZGRlZCA=?=\r\n", true},
        {"{\"region\":\"\"}", "Mcp-Param-Region:\r\n", true},
        {"{\"region\":\"\"}", "Mcp-Param-Region: =?base64?\?=\r\n", true},
        {"{\"region\":null}", "", true},
        {"{\"region\":null}", "Mcp-Param-Region: eu\r\n", true},
        {"{}", "Mcp-Param-Other: eu\r\n", true},
        {"{\"count\":42}", "Mcp-Param-Count: 42\r\n", true},
        {"{\"count\":42}", "Mcp-Param-Count: 42.0\r\n", true},
        {"{\"count\":42}", "Mcp-Param-Count: 4.2e1\r\n", true},
        {"{\"count\":9007199254740993}", "Mcp-Param-Count: 9007199254740992\r\n", false},
        {"{\"count\":42}", "Mcp-Param-Count: forty-two\r\n", false},
        {"{\"count\":42}", "", false},
        {"{\"debug\":true}", "Mcp-Param-Debug: true\r\n", true},
        {"{\"debug\":false}", "Mcp-Param-Debug: true\r\n", false},
        {"{\"debug\":true}", "Mcp-Param-Debug: True\r\n", false},
        {"{\"where\":{\"city\":\"Bonn\"}}", "Mcp-Param-City: Bonn\r\n", true},
        {"{\"where\":{\"city\":\"Bonn\"}}", "Mcp-Param-City: Rome\r\n", false},
        {"{\"where\":7}", "", true},
        {"{\"list\":[\"a\"]}", "", true}, /* no header is reached through items */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *lines = arena_printf(&stage->arena, "%s%s", modern_headers(stage, "now"), cases[i].headers);
        int before = stage->mcp.calls;
        int status = ask(stage, "POST", lines, modern_call(stage, "now", cases[i].arguments));
        if (status != (cases[i].good ? 200 : 400) || error_code(stage) != (cases[i].good ? 0 : MCP_HEADER_MISMATCH))
            fail_msg("%s %s: %d %.*s", cases[i].arguments, cases[i].headers, status,
                     STR_ARG(buf_str(&stage->answer.body)));
        assert_int_equal(stage->mcp.calls - before, cases[i].good ? 1 : 0);
    }
}

static void test_modern_stream(void **state)
{
    struct stage *stage = *state;
    struct wire wire =
        wire_open(stage, "POST", modern_headers(stage, "progress"), modern_call(stage, "progress", "{}"));
    wire_expect(stage, &wire, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"");
    assert_false(wire_has(&wire, "data: \n"));
    assert_false(wire_has(&wire, "Mcp-Session-Id"));
    fake_tools_answer(&stage->mcp, STR("{}"), true);
    wire_expect(stage, &wire, "\"result\":{}}\n\n");
    wire_expect(stage, &wire, STREAM_END);
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 1);
    assert_null(stage->mcp_door->sessions);
    wire_close(stage, &wire);
}

/* Leaving is cancelling, with a stream or without. */
static void test_modern_leaves(void **state)
{
    struct stage *stage = *state;
    struct wire stream =
        wire_open(stage, "POST", modern_headers(stage, "progress"), modern_call(stage, "progress", "{}"));
    struct wire plain = wire_open(stage, "POST", modern_headers(stage, "hold"), modern_call(stage, "hold", "{}"));
    wire_expect(stage, &stream, "\"progress\":1");
    http_spin(&stage->loop, 10);
    assert_int_equal(stage->mcp.held_count, 2);
    wire_close(stage, &stream);
    assert_int_equal(stage->mcp.cancelled, 1);
    wire_close(stage, &plain);
    http_spin(&stage->loop, 100);
    assert_int_equal(stage->mcp.cancelled, 2);
    assert_int_equal(stage->mcp.held_count, 0);
    assert_null(stage->mcp_door->sessions);
}

static void test_delivered(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask(stage, "POST", modern_headers(stage, "deliver"), modern_call(stage, "deliver", "{}")), 200);
    http_spin(&stage->loop, 10);
    assert_int_equal(stage->engine.delivered, 1);
    /* the client has gone before the answer: it is not told as delivered */
    initialize(stage, "2025-11-25");
    struct wire wire = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "hold"));
    http_spin(&stage->loop, 5);
    close(wire.fd);
    wire.fd = -1;
    fake_tools_answer(&stage->mcp, STR("{}"), true); /* before the loop can notice */
    http_spin(&stage->loop, 50);
    assert_int_equal(stage->engine.delivered, 1);
    wire_close(stage, &wire);
}

/* Who does not read gets no memory: more than the limit waits, and the stream is given up. */
static void test_slow_reader(void **state)
{
    struct stage *stage = *state;
    char *text = malloc(40000);
    int n = snprintf(text, 40000, "{\"pad\":\"%030000d\"}", 0);
    struct wire modern =
        wire_open(stage, "POST", modern_headers(stage, "progress"), modern_call(stage, "progress", "{}"));
    http_spin(&stage->loop, 20);
    int told = 0;
    while (told < 2000 && fake_tools_tell(&stage->mcp, (struct str){text, (size_t)n})) {
        told++;
        http_spin(&stage->loop, 1);
    }
    assert_int_equal(stage->mcp.cancelled, 1);
    assert_true(told < 2000);
    wire_close(stage, &modern);
    /* legacy: the connection ends, the request does not */
    initialize(stage, "2025-11-25");
    struct wire legacy = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    http_spin(&stage->loop, 20);
    for (int i = 0; i < told + 10; i++) {
        assert_true(fake_tools_tell(&stage->mcp, (struct str){text, (size_t)n}));
        http_spin(&stage->loop, 1);
    }
    assert_int_equal(stage->mcp.held_count, 1);
    for (int i = 0; i < 1000 && !legacy.closed; i++) {
        http_spin(&stage->loop, 1);
        wire_read(&legacy);
    }
    assert_true(legacy.closed);
    fake_tools_answer(&stage->mcp, STR("{\"end\":1}"), false);
    wire_close(stage, &legacy);
    /* its last events are there */
    legacy = wire_open(stage, "GET", resume_headers(stage, arena_printf(&stage->arena, "1-%d", told + 11)), NULL);
    wire_expect(stage, &legacy, "\"end\":1");
    wire_close(stage, &legacy);
    free(text);
}

/* One message may be larger than what is kept. */
static void test_large_answer(void **state)
{
    struct stage *stage = *state;
    size_t size = 1024 * 1024;
    char *text = malloc(size + 64);
    int head = snprintf(text, 64, "{\"pad\":\"");
    memset(text + head, 'x', size);
    strcpy(text + (size_t)head + size, "\"}");
    for (int streamed = 0; streamed < 2; streamed++) {
        const char *tool = streamed ? "progress" : "hold";
        struct wire wire = wire_open(stage, "POST", modern_headers(stage, tool), modern_call(stage, tool, "{}"));
        http_spin(&stage->loop, 20);
        fake_tools_answer(&stage->mcp, str_of(text), true);
        wire_expect(stage, &wire, "x\"}}");
        assert_true(wire.text.n > size);
        wire_close(stage, &wire);
    }
    assert_int_equal(stage->engine.delivered, 2);
    free(text);
}

/* Doors close around open streams: every one is ended, nothing leaks. */
static void test_closing(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire listen = wire_open(stage, "GET", listen_headers(stage), NULL);
    struct wire stream = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    struct wire parked = wire_open(stage, "POST", session_headers(stage), call_body(stage, 6, "progress"));
    struct wire modern =
        wire_open(stage, "POST", modern_headers(stage, "progress"), modern_call(stage, "progress", "{}"));
    struct wire plain = wire_open(stage, "POST", modern_headers(stage, "hold"), modern_call(stage, "hold", "{}"));
    wire_expect(stage, &listen, "id: ");
    wire_expect(stage, &stream, "progress");
    wire_expect(stage, &parked, "progress");
    wire_expect(stage, &modern, "progress");
    wire_close(stage, &parked);
    mcp_door_close(stage->mcp_door);
    wire_expect(stage, &listen, STREAM_END);
    wire_expect(stage, &stream, STREAM_END);
    wire_expect(stage, &modern, STREAM_END);
    wire_expect(stage, &plain, "503");
    wire_close(stage, &listen);
    wire_close(stage, &stream);
    wire_close(stage, &modern);
    wire_close(stage, &plain);
    assert_int_equal(ask(stage, "POST", modern_headers(stage, "now"), modern_call(stage, "now", "{}")), 503);
}

static void test_http_closes_first(void **state)
{
    struct stage *stage = *state;
    initialize(stage, "2025-11-25");
    struct wire listen = wire_open(stage, "GET", listen_headers(stage), NULL);
    struct wire stream = wire_open(stage, "POST", session_headers(stage), call_body(stage, 5, "progress"));
    struct wire plain = wire_open(stage, "POST", session_headers(stage), call_body(stage, 6, "hold"));
    struct wire modern =
        wire_open(stage, "POST", modern_headers(stage, "progress"), modern_call(stage, "progress", "{}"));
    wire_expect(stage, &listen, "id: ");
    wire_expect(stage, &stream, "progress");
    wire_expect(stage, &modern, "progress");
    close_http(stage);
    assert_int_equal(stage->mcp.held_count, 0);
    mcp_door_tools_changed(stage->mcp_door); /* the session is there and cannot be reached */
    assert_non_null(stage->mcp_door->sessions);
    wire_close(stage, &listen);
    wire_close(stage, &stream);
    wire_close(stage, &plain);
    wire_close(stage, &modern);
}

/* A thousand at once: all are answered, the door is as before. */
static void test_many(void **state)
{
    enum { MANY = 200 };
    struct stage *stage = *state;
    static struct wire wires[MANY];
    for (int i = 0; i < MANY; i++) {
        const char *tool = i % 3 == 0 ? "now" : i % 3 == 1 ? "hold" : "progress";
        wires[i] = wire_open(stage, "POST", modern_headers(stage, tool), modern_call(stage, tool, "{}"));
    }
    http_spin(&stage->loop, 50);
    for (int i = 0; i < MANY; i += 10)
        wire_close(stage, &wires[i]);
    while (fake_tools_answer(&stage->mcp, STR("{\"content\":[]}"), false))
        ;
    for (int i = 0; i < MANY; i++) {
        if (i % 10 == 0)
            continue;
        wire_expect(stage, &wires[i], "\"content\":[]");
        close(wires[i].fd);
        buf_release(&wires[i].text);
    }
    http_spin(&stage->loop, 50);
    assert_null(stage->mcp_door->sessions);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, set_up_without, tear_down),
        cmocka_unit_test_setup_teardown(test_tokens, set_up_tokens, tear_down),
        CASE(test_origin),
        CASE(test_shape),
        CASE(test_session_life),
        CASE(test_initialize_refused),
        CASE(test_versions),
        CASE(test_accept),
        CASE(test_legacy_stream),
        CASE(test_older_stream),
        CASE(test_opened_stream),
        CASE(test_resume),
        CASE(test_take_over),
        CASE(test_replay_bound),
        CASE(test_legacy_left_early),
        CASE(test_cancelled),
        CASE(test_listen),
        CASE(test_session_ends),
        CASE(test_facts),
        CASE(test_modern),
        CASE(test_modern_headers),
        CASE(test_envelope),
        CASE(test_parameters),
        CASE(test_modern_stream),
        CASE(test_modern_leaves),
        CASE(test_delivered),
        CASE(test_slow_reader),
        CASE(test_large_answer),
        CASE(test_closing),
        CASE(test_http_closes_first),
        CASE(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
