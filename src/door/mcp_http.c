/* Requests to /mcp: which era, which session, and whether they may.
 *
 *   POST ─► message ─┬─ _meta names a version ──► modern: headers agree? ─► a session of its own ─► answer
 *                    ├─ initialize ─────────────► legacy: a new session
 *                    └─ all else ───────────────► legacy: the session that MCP-Session-Id names
 *   GET, DELETE ─► legacy only
 */
#include "base/mem.h"
#include "door/mcp_http_parts.h"

#include <stdlib.h>
#include <strings.h>

#define SESSION_NOT_FOUND (-32001) /* what legacy clients know it by */

static const char *const legacy_versions[] = {"2025-03-26", "2025-06-18", MCP_LEGACY_VERSION};

/* ---- refusals ---- */

void mcp_http_refuse(struct exchange *exchange, int status, int64_t code, struct str id, struct str data,
                     const char *text)
{
    buf_reset(&exchange->answer);
    rpc_write_error(&exchange->answer, id, code, str_of(text), data);
    exchange->content_type = NULL;
    exchange_send(exchange, status);
}

static void refuse(struct exchange *exchange, int status, int64_t code, struct str id, const char *text)
{
    mcp_http_refuse(exchange, status, code, id, STR_NONE, text);
}

static void refuse_method(struct exchange *exchange)
{
    exchange->allow = "GET, POST, DELETE, OPTIONS";
    refuse(exchange, 405, RPC_INVALID_REQUEST, STR_NONE,
           "the 2026-07-28 revision has POST only; GET and DELETE are for sessions of earlier ones");
}

/* ---- what a request says about itself ---- */

static struct str trim(struct str text)
{
    while (text.n > 0 && (text.p[0] == ' ' || text.p[0] == '\t'))
        text.p++, text.n--;
    while (text.n > 0 && (text.p[text.n - 1] == ' ' || text.p[text.n - 1] == '\t'))
        text.n--;
    return text;
}

static bool is_word(struct str text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.p, word, text.n) == 0;
}

/* Cuts the part before the separator off. */
static struct str cut(struct str *text, char separator)
{
    const char *end = text->n > 0 ? memchr(text->p, separator, text->n) : NULL;
    struct str part = {text->p, end ? (size_t)(end - text->p) : text->n};
    size_t used = end ? part.n + 1 : part.n;
    text->p += used;
    text->n -= used;
    return trim(part);
}

/* q=0, q=0.0, … */
static bool is_refused(struct str parameters)
{
    while (parameters.n > 0) {
        struct str parameter = cut(&parameters, ';');
        if (parameter.n < 3 || strncasecmp(parameter.p, "q=0", 3) != 0)
            continue;
        size_t i = 3;
        while (i < parameter.n && (parameter.p[i] == '0' || parameter.p[i] == '.'))
            i++;
        return i == parameter.n;
    }
    return false;
}

static struct accepts read_accept(struct exchange *exchange)
{
    struct str header = exchange->headers[HEADER_ACCEPT];
    struct accepts accepts = {.json = !header.p, .stream = !header.p};
    if (exchange->repeated & (uint32_t)1 << HEADER_ACCEPT)
        header = exchange_header(exchange, header_name(HEADER_ACCEPT));
    while (header.n > 0) {
        struct str range = cut(&header, ','), media = cut(&range, ';');
        bool all = is_word(media, "*/*"), wanted = !is_refused(range);
        if (all || is_word(media, "application/json") || is_word(media, "application/*"))
            accepts.json |= wanted;
        if (all || is_word(media, "text/event-stream") || is_word(media, "text/*"))
            accepts.stream |= wanted;
    }
    return accepts;
}

static struct str version_header(struct exchange *exchange)
{
    struct str version = exchange->headers[HEADER_MCP_VERSION];
    return version.p ? trim(version) : version;
}

static bool names_modern(struct exchange *exchange)
{
    return str_is(version_header(exchange), MCP_MODERN_VERSION);
}

/* Absent: 2025-03-26, which had no such header; what holds is what the session agreed on. */
static bool check_legacy_version(struct exchange *exchange, struct str id)
{
    struct str version = version_header(exchange);
    bool known = !version.p;
    for (size_t i = 0; i < sizeof legacy_versions / sizeof *legacy_versions; i++)
        known |= str_is(version, legacy_versions[i]);
    if (known && !(exchange->repeated & (uint32_t)1 << HEADER_MCP_VERSION))
        return true;
    refuse(exchange, 400, RPC_INVALID_REQUEST, id,
           "unsupported protocol version in MCP-Protocol-Version; supported: 2025-03-26, 2025-06-18, 2025-11-25, "
           "2026-07-28");
    return false;
}

static bool check_once(struct exchange *exchange, struct str id)
{
    static const enum header single[] = {HEADER_IDEMPOTENCY_KEY, HEADER_RUN_ID, HEADER_STEP_ID, HEADER_MCP_SESSION};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        if (!(exchange->repeated & (uint32_t)1 << single[i]))
            continue;
        refuse(exchange, 400, RPC_INVALID_REQUEST, id,
               arena_printf(&exchange->arena, "the header %s came more than once", header_name(single[i])));
        return false;
    }
    return true;
}

/* ---- sessions ---- */

/* A session belongs to who opened it; to all others there is none. */
static struct mcp_client *find_client(struct mcp_http *http, struct exchange *exchange)
{
    struct str id = trim(exchange->headers[HEADER_MCP_SESSION]);
    char text[MCP_SESSION_ID_SIZE];
    if (id.n != sizeof text - 1 || memchr(id.p, '\0', id.n))
        return NULL;
    memcpy(text, id.p, id.n);
    text[id.n] = '\0';
    struct mcp_session *session = mcp_session_find(http->door, text);
    const struct caller *caller = &exchange->caller;
    if (!session || strcmp(session->tenant, caller->tenant) != 0 ||
        strcmp(session->principal, caller->principal) != 0 || session->role != caller->role ||
        !scope_equal(session->scope, caller->scope))
        return NULL;
    return mcp_client_of(session);
}

static struct mcp_client *require_client(struct mcp_http *http, struct exchange *exchange, struct str id)
{
    if (!exchange->headers[HEADER_MCP_SESSION].p) {
        refuse(exchange, 400, RPC_INVALID_REQUEST, id, "Mcp-Session-Id header is required; initialize gives it");
        return NULL;
    }
    struct mcp_client *client = find_client(http, exchange);
    if (!client)
        refuse(exchange, 404, SESSION_NOT_FOUND, id, "Session not found");
    return client;
}

/* ---- POST ---- */

static struct mcp_facts facts_of(const struct exchange *exchange)
{
    return (struct mcp_facts){
        .http = true,
        .idempotency_key = exchange->headers[HEADER_IDEMPOTENCY_KEY],
        .run_id = exchange->headers[HEADER_RUN_ID],
        .step_id = exchange->headers[HEADER_STEP_ID],
        .traceparent = exchange->headers[HEADER_TRACEPARENT],
    };
}

/* One message on its way in. */
struct post {
    struct mcp_http *http;
    struct exchange *exchange;
    struct accepts accepts;
    struct arena arena;
    struct rpc_message message;
};

static void receive(struct post *post, struct mcp_session *session, struct channel *channel)
{
    struct mcp_facts facts = facts_of(post->exchange);
    mcp_receive_message(session, &channel->sink, &post->arena, &post->message, &facts);
}

/* Own sessions: of a modern request, and of initialize until it is answered. */
static void receive_alone(struct post *post, enum channel_kind kind)
{
    const struct caller *caller = &post->exchange->caller;
    struct mcp_session *session = mcp_session_new(post->http->door, caller->tenant, caller->principal, caller->role);
    if (!session) {
        post->exchange->retry_after_s = 1;
        refuse(post->exchange, 503, RPC_INTERNAL_ERROR, post->message.id, "onced is stopping");
        return;
    }
    mcp_session_limit(session, caller->scope);
    session->ephemeral = kind == CHANNEL_MODERN;
    struct channel *channel = channel_new(post->http, kind, post->exchange, &post->accepts);
    channel_own_session(channel, session);
    receive(post, session, channel);
}

static void modern(struct post *post)
{
    struct header_fault fault;
    if (!post->accepts.json && !post->accepts.stream)
        refuse(post->exchange, 406, RPC_INVALID_REQUEST, post->message.id,
               "Accept must list application/json and text/event-stream");
    else if (mcp_headers_check(post->http, post->exchange, &post->message, &fault))
        receive_alone(post, CHANNEL_MODERN);
    else
        mcp_http_refuse(post->exchange, 400, fault.code, post->message.id, fault.data, fault.text);
}

static void legacy(struct post *post)
{
    struct exchange *exchange = post->exchange;
    bool request = post->message.kind == RPC_REQUEST;
    if (!post->accepts.json || !post->accepts.stream) {
        refuse(exchange, 406, RPC_INVALID_REQUEST, post->message.id,
               "Accept must list application/json and text/event-stream");
        return;
    }
    if (request && strcmp(post->message.method, "initialize") == 0) {
        receive_alone(post, CHANNEL_INITIALIZE);
        return;
    }
    if (!check_legacy_version(exchange, post->message.id))
        return;
    struct mcp_client *client = require_client(post->http, exchange, post->message.id);
    if (!client)
        return;
    if (request) {
        struct channel *channel = channel_new(post->http, CHANNEL_LEGACY, exchange, &post->accepts);
        channel_join(channel, client);
        receive(post, client->session, channel);
        return;
    }
    struct mcp_facts facts = facts_of(exchange);
    exchange_add_header(exchange, "Mcp-Session-Id", arena_copy_text(&exchange->arena, client->session->id));
    if (mcp_receive_message(client->session, NULL, &post->arena, &post->message, &facts) == MCP_RECEIVED_FAULT)
        refuse(exchange, 400, RPC_INVALID_REQUEST, STR_NONE, "this session does not take such a message");
    else
        exchange_send(exchange, 202);
}

/* Without the envelope that modern requests have, although the header names the modern revision. */
static void modern_without_envelope(struct post *post)
{
    struct exchange *exchange = post->exchange;
    switch (post->message.kind) {
    case RPC_REQUEST:
        if (strcmp(post->message.method, "initialize") == 0)
            refuse(exchange, 400, MCP_HEADER_MISMATCH, post->message.id,
                   "MCP-Protocol-Version names a revision that has no initialize");
        else
            modern(post);
        return;
    case RPC_NOTIFICATION: exchange_send(exchange, 202); return; /* there is none that means anything over HTTP */
    case RPC_RESULT:
    case RPC_ERROR:
        refuse(exchange, 400, RPC_INVALID_REQUEST, STR_NONE, "the server asks nothing in this revision");
        return;
    }
}

static void handle_post(struct mcp_http *http, struct exchange *exchange)
{
    struct post post = {.http = http, .exchange = exchange, .accepts = read_accept(exchange)};
    struct rpc_fault fault = {0};
    arena_init(&post.arena);
    if (!rpc_read(&post.arena, buf_str(&exchange->body), &mcp_door_limits, &post.message, &fault))
        refuse(exchange, 400, fault.code, fault.id, fault.err.text);
    else if (!check_once(exchange, post.message.id))
        ;
    else if (mcp_is_modern(&post.message))
        modern(&post);
    else if (names_modern(exchange))
        modern_without_envelope(&post);
    else
        legacy(&post);
    arena_release(&post.arena);
}

/* ---- GET, DELETE ---- */

static void handle_get(struct mcp_http *http, struct exchange *exchange)
{
    struct str event = exchange->headers[HEADER_LAST_EVENT_ID];
    if (!read_accept(exchange).stream) {
        refuse(exchange, 406, RPC_INVALID_REQUEST, STR_NONE, "Accept must list text/event-stream");
        return;
    }
    struct mcp_client *client = require_client(http, exchange, STR_NONE);
    if (!client)
        return;
    if (!event.p) {
        channel_listen(client, exchange);
        return;
    }
    const char *why = channel_resume(client, exchange, trim(event));
    if (why)
        refuse(exchange, 400, RPC_INVALID_REQUEST, STR_NONE, why);
}

static void handle_delete(struct mcp_http *http, struct exchange *exchange)
{
    struct mcp_client *client = require_client(http, exchange, STR_NONE);
    if (!client)
        return;
    mcp_session_end(client->session);
    exchange_send(exchange, 204);
}

void mcp_http_handle(struct exchange *exchange)
{
    struct mcp_http *http = exchange_parts(exchange)->mcp;
    if (exchange->method == METHOD_POST)
        handle_post(http, exchange);
    else if (names_modern(exchange) || (exchange->method != METHOD_GET && exchange->method != METHOD_DELETE))
        refuse_method(exchange);
    else if (!check_once(exchange, STR_NONE) || !check_legacy_version(exchange, STR_NONE))
        return;
    else if (exchange->method == METHOD_GET)
        handle_get(http, exchange);
    else
        handle_delete(http, exchange);
}

/* ---- the door's side ---- */

struct mcp_http *mcp_http_new(struct mcp_door *door)
{
    struct mcp_http *http = mem_zero(sizeof *http);
    http->door = door;
    http->waiting_end = &http->waiting;
    buf_init(&http->scratch, 0);
    map_init(&http->plans);
    return http;
}

#define SCRATCH_KEEP_BYTES (64 * 1024)

void mcp_http_tick(struct mcp_http *http)
{
    channels_tick(http);
    if (http->scratch.cap > SCRATCH_KEEP_BYTES)
        buf_release(&http->scratch);
}

void mcp_http_free(struct mcp_http *http)
{
    if (!http)
        return;
    while (http->clients)
        mcp_client_free(http->clients);
    while (http->parked)
        channel_forget(http->parked);
    mcp_headers_forget(http);
    map_release(&http->plans);
    buf_release(&http->scratch);
    free(http);
}

/* ---- web pages ---- */

bool mcp_http_origin_allowed(const struct mcp_http *http, struct str origin)
{
    const struct mcp_settings *settings = &http->door->settings;
    for (size_t i = 0; i < settings->origin_count; i++) {
        if (is_word(origin, settings->origins[i]))
            return true;
    }
    return false;
}

void mcp_http_allow_origin(struct exchange *exchange)
{
    struct str origin = exchange->headers[HEADER_ORIGIN];
    exchange_add_header(exchange, "Access-Control-Allow-Origin", arena_copy_str(&exchange->arena, origin));
    exchange_add_header(exchange, "Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After");
    exchange_add_header(exchange, "Vary", "Origin");
    if (exchange->method != METHOD_OPTIONS)
        return;
    struct str headers = exchange_header(exchange, "access-control-request-headers");
    exchange_add_header(exchange, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    exchange_add_header(exchange, "Access-Control-Max-Age", "600");
    if (headers.p)
        exchange_add_header(exchange, "Access-Control-Allow-Headers", arena_copy_str(&exchange->arena, headers));
}
