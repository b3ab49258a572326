/* Streamable HTTP of the MCP door over real sockets. An input is up to eight requests to /mcp, separated by a line
 * "---": method, headers, an empty line, body; length and host are added, "@S" is the id of a session that is open. A
 * method that ends with "&" stays connected while the next ones come, one that ends with "!" leaves without reading.
 * Dispatch is the real one, tools are played (support/fake_tools.h). Whatever comes in: each answer is HTTP with a
 * JSON-RPC message or an event stream of such, never a 500; a session of somebody else lives on; nothing stays behind.
 */
#include "fuzz.h"

#include "base/jsonrpc.h"
#include "base/sse.h"
#include "door/http.h"
#include "support/fake_engine.h"
#include "support/fake_tools.h"
#include "support/http_client.h"

#include <errno.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUESTS_MAX 8
#define SESSIONS_MAX 8
#define WAIT_TURNS   4000

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct fake_tools tools;
    struct registry *registry;
    struct provider provider;
    struct tool now;
    struct arena arena;
    struct mcp_settings settings;
    struct mcp_door *mcp_door;
    struct http_door *door;
    struct mcp_session *bystander; /* nobody touches it */
    char session[MCP_SESSION_ID_SIZE];
};

struct client {
    int fd;
    struct buf text;
    bool closed, head; /* an answer to HEAD has no body */
};

/* ---- the stage ---- */

static const char schema_text[] = "{\"type\":\"object\",\"properties\":{"
                                  "\"region\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"},"
                                  "\"count\":{\"type\":\"integer\",\"x-mcp-header\":\"Count\"}}}";

static struct stage *open_stage(void)
{
    static struct stage *stage;
    struct err err = {0};
    struct json *schema;
    if (stage)
        return stage;
    stage = calloc(1, sizeof *stage);
    CHECK(stage && uv_loop_init(&stage->loop) == 0);
    arena_init(&stage->arena);
    CHECK(!json_parse(&stage->arena, str_of(schema_text), NULL, &schema, &err));
    stage->provider = (struct provider){.name = "payments"};
    stage->now =
        (struct tool){.name = "now", .class = CLASS_READ, .provider = &stage->provider, .input_schema_json = schema};
    const struct tool *tools[] = {&stage->now};
    const struct provider *providers[] = {&stage->provider};
    CHECK(registry_new(tools, 1, providers, 1, "abc", NULL, NULL, &stage->registry, &err) == 0);
    fake_engine_init(&stage->engine, stage->registry);
    stage->engine.recovered = true;
    fake_tools_init(&stage->tools);
    stage->settings = mcp_settings_default;
    stage->settings.stream_bytes_max = 16 * 1024;
    stage->settings.sessions_max = SESSIONS_MAX;
    stage->mcp_door = mcp_door_new(
        &(struct mcp_door_options){.loop = &stage->loop, .engine = &stage->engine, .settings = &stage->settings});
    const struct http_door_options options = {.loop = &stage->loop,
                                              .engine = &stage->engine,
                                              .address = "127.0.0.1",
                                              .body_bytes_max = 64 * 1024,
                                              .mcp = stage->mcp_door};
    CHECK(http_door_new(&options, &stage->door, &err) == 0);
    stage->bystander = mcp_session_new(stage->mcp_door, "other", "somebody", ROLE_AGENT);
    stage->bystander->stdio = true; /* does not count, is not ended for others */
    return stage;
}

/* ---- one connection ---- */

static void read_more(struct client *client)
{
    char chunk[65536];
    ssize_t n;
    while ((n = recv(client->fd, chunk, sizeof chunk, MSG_DONTWAIT)) > 0)
        buf_add(&client->text, chunk, (size_t)n);
    client->closed |= n == 0 || (n < 0 && errno != EAGAIN);
}

static const char *find(struct str text, const char *part)
{
    return text.n > 0 ? memmem(text.p, text.n, part, strlen(part)) : NULL;
}

static const char *find_header(struct str head, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i + n < head.n; i++) {
        if (head.p[i] == '\n' && strncasecmp(head.p + i + 1, name, n) == 0)
            return head.p + i + 1 + n;
    }
    return NULL;
}

/* Taken apart; body is of the length that was announced, or whatever came in chunks. */
static bool split_answer(const struct client *client, struct str *head, struct str *body, bool *chunked)
{
    struct str text = buf_str(&client->text);
    const char *end = find(text, "\r\n\r\n");
    if (!end)
        return false;
    *head = (struct str){text.p, (size_t)(end - text.p) + 2};
    *body = (struct str){end + 4, text.n - head->n - 2};
    *chunked = find_header(*head, "Transfer-Encoding: chunked") != NULL;
    const char *length = find_header(*head, "Content-Length:");
    if (*chunked)
        return body->n >= 5 && memcmp(body->p + body->n - 5, "0\r\n\r\n", 5) == 0;
    size_t n = length ? strtoul(length, NULL, 10) : 0;
    bool whole = client->head || atoi(head->p + 9) == 204 || (length && body->n >= n);
    if (whole && body->n > n)
        body->n = n; /* a second answer, to what the first request did not take */
    return whole;
}

static bool is_whole(const struct client *client)
{
    struct str head, body;
    bool chunked;
    return split_answer(client, &head, &body, &chunked);
}

/* ---- judging ---- */

static void check_message(struct str text)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault = {0};
    struct json *json;
    struct err err = {0};
    arena_init(&arena);
    /* an error may have the id null, which a message from a client may not */
    if (json_parse(&arena, text, NULL, &json, &err) || json->type != JSON_OBJECT)
        fprintf(stderr, "%s in %.*s\n", err.text, STR_ARG(text));
    CHECK(err.code == ERR_NONE && json->type == JSON_OBJECT);
    if (!json_get(json, "id") || json_get(json, "id")->type != JSON_NULL)
        CHECK(rpc_read(&arena, text, NULL, &message, &fault));
    arena_release(&arena);
}

static void check_event(void *user, const struct sse_event *event)
{
    (void)user;
    if (event->data.n > 0)
        check_message(event->data);
}

static void check_stream(struct str body)
{
    struct sse_reader reader;
    sse_reader_init(&reader, 1024 * 1024, check_event, NULL);
    while (body.n > 0) {
        char *end;
        size_t n = strtoul(body.p, &end, 16), head = (size_t)(end - body.p) + 2;
        if (end == body.p || head + n + 2 > body.n)
            break; /* not all of it has come */
        CHECK(sse_reader_feed(&reader, body.p + head, n));
        body.p += head + n + 2;
        body.n -= head + n + 2;
    }
    sse_reader_release(&reader);
}

static void check_answer(const struct client *client)
{
    struct str head, body;
    bool chunked = false, whole = split_answer(client, &head, &body, &chunked);
    if (!whole && !chunked)
        return; /* the connection ended first */
    int status = atoi(head.p + 9);
    const char *type = find_header(head, "Content-Type: ");
    CHECK(strncmp(head.p, "HTTP/1.1 ", 9) == 0 && status >= 100 && status < 600 && status != 500);
    if (client->head || status == 100 || !type)
        return;
    if (strncmp(type, "application/json", 16) == 0)
        check_message(body);
    else if (strncmp(type, "text/event-stream", 17) == 0)
        check_stream(body);
}

/* ---- asking ---- */

static void add_line(struct stage *stage, struct buf *out, struct str line)
{
    const char *place = find(line, "@S");
    if (place) {
        buf_add(out, line.p, (size_t)(place - line.p));
        buf_add_text(out, stage->session);
        buf_add_str(out, (struct str){place + 2, line.n - (size_t)(place + 2 - line.p)});
    } else {
        buf_add_str(out, line);
    }
    buf_add_text(out, "\r\n");
}

static void assemble(struct stage *stage, struct str method, struct str rest, struct buf *out)
{
    const char *empty = rest.n ? memmem(rest.p, rest.n, "\n\n", 2) : NULL;
    struct str head = {rest.p, empty ? (size_t)(empty - rest.p) : rest.n}, line;
    struct str body = empty ? (struct str){empty + 2, rest.n - head.n - 2} : STR_NONE;
    buf_add_str(out, method);
    buf_add_text(out, " /mcp HTTP/1.1\r\nHost: localhost\r\n");
    if (body.n > 0)
        buf_printf(out, "Content-Length: %zu\r\n", body.n);
    while (head.n > 0) {
        struct str next;
        fuzz_split(head, &line, &next);
        head = next;
        if (line.n > 0)
            add_line(stage, out, line);
    }
    buf_add_text(out, "\r\n");
    buf_add_str(out, body);
}

static void leave(struct client *client)
{
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(client->fd);
    buf_release(&client->text);
}

/* Tools answer, streams are ended by their sessions' ends: every whole request comes to an end. */
static void await(struct stage *stage, struct client *client, bool odd)
{
    for (int i = 0; i < (odd ? 10 : WAIT_TURNS) && !client->closed && !is_whole(client); i++) {
        uv_run(&stage->loop, UV_RUN_NOWAIT);
        read_more(client);
        if (i == 3)
            fake_tools_tell(&stage->tools, STR("{\"progress\":2}"));
        while (i > 3 && fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), i & 1))
            continue;
        struct str head, body;
        bool chunked = false;
        split_answer(client, &head, &body, &chunked);
        if (chunked && i > 20)
            return; /* a stream of a session: open until somebody ends it */
        if (i > 50)
            usleep(1000);
    }
    CHECK(odd || client->closed || is_whole(client));
}

static void request(struct stage *stage, struct str input, struct client *kept, size_t *kept_count)
{
    struct client client = {.fd = http_connect(http_door_port(stage->door))};
    struct str method, rest;
    struct buf bytes;
    CHECK(client.fd >= 0);
    buf_init(&client.text, 0);
    buf_init(&bytes, 0);
    fuzz_split(input, &method, &rest);
    char mark = method.n > 0 ? method.p[method.n - 1] : 0;
    if (mark == '&' || mark == '!')
        method.n--;
    client.head = str_is(method, "HEAD");
    assemble(stage, method, rest, &bytes);
    /* what is no method, or has a length of its own, need not be answered */
    bool odd = method.n == 0 || find_header(buf_str(&bytes), "transfer-encoding") ||
               find_header(buf_str(&bytes), "expect") || memchr(bytes.p, '\0', bytes.n) || find(method, " ");
    const char *length = find_header(buf_str(&bytes), "content-length");
    odd |= length && find_header((struct str){length, bytes.n - (size_t)(length - bytes.p)}, "content-length");
    bool body = find(rest, "\n\n") != NULL;
    odd |= length && !body;
    if (http_send(&stage->loop, client.fd, bytes.p, bytes.n)) {
        if (mark == '!')
            uv_run(&stage->loop, UV_RUN_NOWAIT);
        else if (mark != '&')
            await(stage, &client, odd);
    }
    buf_release(&bytes);
    if (mark == '&') {
        kept[(*kept_count)++] = client;
        return;
    }
    check_answer(&client);
    leave(&client);
}

static void ensure_session(struct stage *stage)
{
    if (stage->session[0] && mcp_session_find(stage->mcp_door, stage->session))
        return;
    struct client *none = NULL;
    size_t count = 0;
    stage->session[0] = '\0';
    request(stage,
            STR("POST\nContent-Type: application/json\nAccept: */*\n\n{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":"
                "\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}"),
            none, &count);
    for (struct mcp_session *session = stage->mcp_door->sessions; session; session = session->next) {
        if (session != stage->bystander)
            memcpy(stage->session, session->id, sizeof stage->session);
    }
    CHECK(stage->session[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stage *stage = open_stage();
    struct str input = {(const char *)data, size};
    struct client kept[REQUESTS_MAX];
    size_t kept_count = 0;
    if (size == 0 || size > 60000)
        return 0;
    ensure_session(stage);
    for (int i = 0; i < REQUESTS_MAX && input.n > 0; i++) {
        const char *end = memmem(input.p, input.n, "\n---\n", 5);
        struct str one = {input.p, end ? (size_t)(end - input.p) : input.n};
        size_t used = one.n + (end ? 5 : 0);
        input.p += used;
        input.n -= used;
        request(stage, one, kept, &kept_count);
    }
    for (size_t i = 0; i < kept_count; i++) {
        read_more(&kept[i]);
        check_answer(&kept[i]);
        leave(&kept[i]);
    }
    uv_run(&stage->loop, UV_RUN_NOWAIT);
    while (fake_tools_answer(&stage->tools, STR("{}"), true))
        continue;
    for (int i = 0; i < 5; i++)
        uv_run(&stage->loop, UV_RUN_NOWAIT);
    CHECK(mcp_session_find(stage->mcp_door, stage->bystander->id) == stage->bystander);
    CHECK(stage->mcp_door->session_count <= SESSIONS_MAX);
    return 0;
}
