/* Streamable HTTP, the client's side: one POST per message, answered with JSON or a stream of events.
 *
 *   request ─► POST ─► JSON ────────────────────────────► answer
 *                 └──► events ─► messages …, answer
 *                        │ cut short (legacy, an event had an id)
 *                        ▼
 *                      wait `retry` ─► GET, Last-Event-ID ─► the rest of that stream
 *
 *   legacy: session id of initialize on everything after it; a GET stream for what concerns no request; DELETE at the
 *   end. 404 ends the session: nothing more is sent in it, and nothing of it is sent again elsewhere, since a session
 *   may end after its calls did their work (case S12). The hub makes a new one.
 *   modern: no session, no GET; closing a request's stream cancels it.
 *
 * A message is sent once (design 5.2): no redirects, no second try of any kind. Only GET, which asks for what was
 * already done, is repeated. */
#include "adapter/mcp_headers.h"
#include "adapter/mcp_stream.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RETRY_MS        1000  /* before a stream is asked for again, unless the server stated it */
#define RETRY_MS_MAX    30000 /* after several failures in a row */
#define RESUMES_MAX     8     /* failures in a row after which an answer is given up */
#define LINGER_MS       5000  /* a stream whose answer came may take so long to end */
#define OVER_MS         5000  /* what was sent in a session that ended may be answered for so long */
#define HEAD_MS         250   /* requests wait so long for the GET stream */
#define DELETE_MS       1000
#define ERROR_WORDS_MAX 200

enum line_kind {
    LINE_REQUEST, /* a request and its answer, over one POST and any number of GETs */
    LINE_POST,    /* a notification, or an answer of ours */
    LINE_GET,     /* the stream for what concerns no request */
    LINE_DELETE
};

/* One thing that is said, and what comes back. */
struct line {
    struct http_transport *transport;
    enum line_kind kind;
    struct mcp_pending *pending; /* requests: NULL once it has ended */
    bool initialize, legacy;
    bool held;                 /* prepared; waits for the end of notifications/initialized */
    struct mcp_stream *stream; /* NULL between two */
    struct buf last_id;
    bool has_id;
    int64_t retry_ms;
    unsigned failures; /* in a row, without an event between */
    int64_t at_ms;     /* loop's time: when to go on without a stream, or to stop a lingering one; 0 = not */
    struct line *prev, *next;
};

struct http_transport {
    struct mcp_transport base; /* first */
    struct mcp_hub *hub;
    struct mcp_http_client *client;
    struct mcp_provider *provider; /* a reference */
    char *session;                 /* NULL = none */
    char version[16];              /* legacy: of the session */
    int64_t over_ms;               /* loop's time when the session ended, 0 = it has not */
    bool holding;                  /* the handshake's last steps are on the wire: others wait */
    struct line *announce, *get;   /* these steps: notifications/initialized, the GET stream; NULL = over */
    int64_t get_by_ms;             /* loop's time: when the GET stream is not waited for any more, 0 = not */
    bool closing;
    struct line *lines;
    uv_timer_t timer;
    int64_t due_ms;
};

static struct http_transport *http_of(struct mcp_transport *transport)
{
    return (struct http_transport *)transport;
}

static int64_t now_of(const struct http_transport *transport)
{
    return (int64_t)uv_now(transport->hub->options.loop);
}

static void on_timer(uv_timer_t *timer);

static void want_timer(struct http_transport *transport, int64_t at_ms)
{
    if (transport->closing || (transport->due_ms != 0 && transport->due_ms <= at_ms))
        return;
    int64_t delay_ms = at_ms - now_of(transport);
    transport->due_ms = at_ms;
    uv_timer_start(&transport->timer, on_timer, delay_ms > 0 ? (uint64_t)delay_ms : 0, 0);
}

/* It may have been the last request: what waits for that is done by the timer, since nothing may be told from here. */
static void look_later(struct http_transport *transport)
{
    if (transport->over_ms)
        want_timer(transport, now_of(transport));
}

/* ---- lines ---- */

static struct line *line_new(struct http_transport *transport, enum line_kind kind)
{
    struct line *line = mem_zero(sizeof *line);
    line->transport = transport;
    line->kind = kind;
    line->legacy = true;
    line->retry_ms = RETRY_MS;
    buf_init(&line->last_id, 0);
    line->next = transport->lines;
    if (line->next)
        line->next->prev = line;
    transport->lines = line;
    return line;
}

static void line_free(struct line *line)
{
    struct http_transport *transport = line->transport;
    if (line->stream)
        mcp_stream_stop(line->stream);
    if (line->pending)
        line->pending->transport_data = NULL;
    *(line->prev ? &line->prev->next : &transport->lines) = line->next;
    if (line->next)
        line->next->prev = line->prev;
    if (transport->announce == line)
        transport->announce = NULL;
    if (transport->get == line)
        transport->get = NULL;
    buf_release(&line->last_id);
    free(line);
    look_later(transport);
}

/* ---- sending ---- */

static const struct mcp_stream_ops line_stream_ops;

static void set_header(void *user, const char *name, struct str value)
{
    mcp_stream_header(user, name, value);
}

static struct mcp_stream *take_stream(struct line *line)
{
    struct http_transport *transport = line->transport;
    struct mcp_stream *stream = mcp_stream_take(transport->client, transport->provider, &line_stream_ops, line);
    if (line->legacy && transport->session && !line->initialize)
        mcp_stream_header(stream, "Mcp-Session-Id", str_of(transport->session));
    line->stream = stream;
    return stream;
}

static void open_get(struct line *line)
{
    struct mcp_stream *stream = take_stream(line);
    mcp_stream_header(stream, "Accept", STR("text/event-stream"));
    mcp_stream_header(stream, "MCP-Protocol-Version", str_of(line->transport->version));
    if (line->has_id)
        mcp_stream_header(stream, "Last-Event-ID", buf_str(&line->last_id));
    mcp_stream_prepare(stream, "GET", STR_NONE, 0);
    stream->want_head = line == line->transport->get && line->transport->holding;
    line->at_ms = 0;
    mcp_stream_start(stream);
}

static void add_modern_headers(struct line *line, const struct mcp_outgoing *message)
{
    const struct mcp_connection *connection = line->transport->base.connection;
    const struct json *tool = NULL;
    if (strcmp(message->method, "tools/call") == 0)
        tool = mcp_server_tool(connection->server, json_get_text(message->params, "name"));
    mcp_request_headers(message->method, message->params, tool, set_header, line->stream);
}

static void open_post(struct line *line, const struct mcp_outgoing *message)
{
    struct http_transport *transport = line->transport;
    struct mcp_stream *stream = take_stream(line);
    mcp_stream_header(stream, "Accept", STR("application/json, text/event-stream"));
    if (message->version)
        mcp_stream_header(stream, "MCP-Protocol-Version", str_of(message->version));
    if (message->era == MCP_ERA_MODERN && message->method)
        add_modern_headers(line, message);
    /* a request has as long as its requester waits */
    mcp_stream_prepare(stream, "POST", message->text, line->pending ? 0 : transport->provider->timeout_ms);
    if (transport->holding)
        line->held = true;
    else
        mcp_stream_start(stream);
}

static bool http_send(struct mcp_transport *base, const struct mcp_outgoing *message, struct err *err)
{
    struct http_transport *transport = http_of(base);
    if (transport->over_ms) {
        err_set(err, ERR_UNAVAILABLE, "the server ended the session");
        return false;
    }
    bool request = message->kind == RPC_REQUEST;
    struct line *line = line_new(transport, request ? LINE_REQUEST : LINE_POST);
    line->legacy = message->era == MCP_ERA_LEGACY;
    line->initialize = request && strcmp(message->method, "initialize") == 0;
    if (request) {
        line->pending = message->pending;
        message->pending->transport_data = line;
    }
    open_post(line, message);
    if (message->kind == RPC_NOTIFICATION && strcmp(message->method, "notifications/initialized") == 0) {
        transport->holding = true;
        transport->announce = line;
    }
    return true;
}

/* Servers need not take requests before they have heard that the handshake is over; and what one of them asks in the
 * course of a request may go to the GET stream, and be lost when that is not open yet:
 *
 *   notifications/initialized ─► its answer ─► GET ─► its head ─► requests */
static void release_held(struct http_transport *transport)
{
    struct line *line = transport->lines;
    transport->holding = false;
    transport->get_by_ms = 0;
    while (line && line->next)
        line = line->next;
    for (; line; line = line->prev) { /* in the order of sending; starting calls nobody back */
        if (line->held)
            mcp_stream_start(line->stream);
        line->held = false;
    }
}

static void announced(struct http_transport *transport)
{
    transport->get = line_new(transport, LINE_GET);
    transport->get_by_ms = now_of(transport) + HEAD_MS;
    want_timer(transport, transport->get_by_ms);
    open_get(transport->get);
}

/* Also when it was refused: not every server has one. */
static void get_answered(struct http_transport *transport)
{
    if (transport->holding)
        release_held(transport);
}

static void on_head(struct mcp_stream *stream)
{
    struct line *line = stream->owner;
    get_answered(line->transport);
}

static void http_established(struct mcp_transport *base)
{
    struct http_transport *transport = http_of(base);
    if (base->connection->era != MCP_ERA_LEGACY)
        return;
    snprintf(transport->version, sizeof transport->version, "%s", base->connection->version);
}

/* ---- words for failures ---- */

/* What the server says beside a status. */
static void add_error_words(struct buf *out, struct str body)
{
    struct arena arena;
    struct json *value = NULL;
    struct json_limits limits = json_limits_default;
    limits.bytes_max = (size_t)64 * 1024;
    arena_init(&arena);
    if (json_parse(&arena, body, &limits, &value, NULL) == ERR_NONE) {
        const struct json *error = json_get(value, "error");
        struct str words = json_get_text(error, "message");
        if (!words.p && error && error->type == JSON_STRING)
            words = error->text;
        if (words.p && words.n > 0)
            buf_printf(out, ": %.*s", (int)(words.n > ERROR_WORDS_MAX ? ERROR_WORDS_MAX : words.n), words.p);
    }
    arena_release(&arena);
}

static void describe(const struct mcp_stream_end *end, struct buf *out)
{
    if (!end->complete) {
        buf_add_text(out, end->text);
        return;
    }
    buf_printf(out, "the server answered HTTP %d", end->status);
    if (end->status == 401)
        buf_add_text(out, ": it demands authorisation; onced does no OAuth, state a token in the server's headers");
    else if (end->status >= 300 && end->status < 400)
        buf_add_text(out, ": redirects are not followed, state the address that it leads to");
    else if (end->status >= 400)
        add_error_words(out, end->body);
    else if (end->form == MCP_FORM_EVENTS)
        buf_add_text(out, ", and its stream ended without the answer");
    else
        buf_add_text(out, " without a message");
}

/* ---- what comes ---- */

static struct line *line_of(struct mcp_stream *stream)
{
    return stream->owner;
}

/* The session begins with the answer to initialize. False: its id is none. */
static bool take_session(struct line *line, int status)
{
    struct http_transport *transport = line->transport;
    const char *session = line->stream->session;
    if (!line->initialize || !session || !*session || status < 200 || status > 299)
        return true;
    for (const char *p = session; *p; p++) {
        if (*p <= ' ' || *p > '~')
            return false;
    }
    free(transport->session);
    transport->session = mem_copy_text(session);
    return true;
}

/* The line may be gone afterwards. */
static void on_message(struct mcp_stream *stream, struct str text, int status)
{
    struct line *line = line_of(stream);
    struct http_transport *transport = line->transport;
    line->failures = 0;
    if (!take_session(line, status))
        return;
    if (transport->base.connection && (line->pending || line->kind == LINE_GET))
        mcp_connection_message(transport->base.connection, line->pending, text, status);
}

static void keep_place(struct line *line)
{
    const struct mcp_stream *stream = line->stream;
    if (stream->has_id) {
        buf_reset(&line->last_id);
        buf_add_str(&line->last_id, buf_str(&stream->last_id));
        line->has_id = true;
    }
    if (stream->retry_ms >= 0)
        line->retry_ms = stream->retry_ms;
    line->failures = stream->has_event ? 0 : line->failures + 1;
}

/* The stream is asked for again later: never earlier than the server wants, later after failures. */
static void go_on_later(struct line *line)
{
    struct http_transport *transport = line->transport;
    int64_t delay_ms = line->retry_ms;
    for (unsigned i = 1; i < line->failures && delay_ms < RETRY_MS_MAX; i++)
        delay_ms += delay_ms / 2 + 1;
    uv_update_time(transport->hub->options.loop); /* the loop's idea of now may be older than the stream's end */
    line->at_ms = now_of(transport) + delay_ms;
    want_timer(transport, line->at_ms);
}

static void session_over(struct http_transport *transport)
{
    if (transport->over_ms)
        return;
    transport->over_ms = now_of(transport) + 1;
    want_timer(transport, now_of(transport));
}

static bool ends_session(const struct line *line, const struct mcp_stream_end *end)
{
    return end->complete && end->status == 404 && line->legacy && line->transport->session && !line->initialize;
}

static void lose(struct line *line, enum mcp_end how, bool sent, int status, const struct mcp_stream_end *end)
{
    struct mcp_connection *connection = line->transport->base.connection;
    struct buf words;
    buf_init(&words, 0);
    describe(end, &words);
    mcp_connection_pending_lost(connection, line->pending, how, sent, status, words.p);
    buf_release(&words);
}

/* Errors of HTTP have bodies of all kinds. 401 has words of its own. */
static bool may_be_message(const struct mcp_stream_end *end)
{
    if (!end->complete || end->body.n == 0 || end->status == 401)
        return false;
    if (end->status >= 300)
        return end->form == MCP_FORM_JSON && memmem(end->body.p, end->body.n, "\"jsonrpc\"", 9);
    return end->form == MCP_FORM_JSON || end->body.p[0] == '{';
}

/* A JSON answer, or an error's body. False: there was no message in it that ended the request. */
static bool take_body(struct line *line, const struct mcp_stream_end *end)
{
    struct mcp_stream *stream = line->stream;
    if (!may_be_message(end))
        return false;
    mcp_connection_message(line->transport->base.connection, line->pending, end->body, end->status);
    return stream->owner == NULL || line->pending == NULL;
}

/* Whether the answer may still be had from the server's memory of the stream. */
static bool can_resume(struct line *line, const struct mcp_stream_end *end)
{
    bool broken = end->status == 0 || (end->status >= 200 && end->status <= 299 && end->form == MCP_FORM_EVENTS) ||
                  end->status >= 500;
    bool first = line->stream->transfer.let_pass > 0 && strcmp(line->stream->method, "POST") == 0;
    if (first && (end->status < 200 || end->status > 299))
        return false;
    return line->legacy && line->has_id && broken && !end->over && line->failures < RESUMES_MAX &&
           !line->transport->over_ms;
}

static void request_ended(struct line *line, const struct mcp_stream_end *end)
{
    struct http_transport *transport = line->transport;
    bool resumed = strcmp(line->stream->method, "GET") == 0;
    bool sent = end->sent || resumed;
    if (end->over) {
        mcp_connection_oversize(transport->base.connection, line->pending, STR(""));
        return;
    }
    if (!take_session(line, end->status)) {
        mcp_connection_pending_lost(transport->base.connection, line->pending, MCP_UNREADABLE, true, end->status,
                                    "the server's session id has characters that it may not have");
        return;
    }
    if (!resumed && take_body(line, end))
        return;
    keep_place(line);
    if (can_resume(line, end)) {
        line->stream = NULL;
        go_on_later(line);
        return;
    }
    bool error = end->complete && end->status >= 300;
    bool nothing = end->complete && end->status < 300 && end->form != MCP_FORM_EVENTS;
    /* what asks again for an answer says nothing about the request itself by its status */
    lose(line, nothing ? MCP_UNREADABLE : MCP_LOST, sent, (error || nothing) && !resumed ? end->status : 0, end);
}

static void get_ended(struct line *line, const struct mcp_stream_end *end)
{
    bool offered = end->status >= 200 && end->status <= 299 && end->form == MCP_FORM_EVENTS;
    bool again = (offered && !end->over) || end->status == 0 || end->status >= 500;
    get_answered(line->transport);
    if (!again || line->transport->over_ms) { /* 405: the server has none */
        line->stream = NULL;
        line_free(line);
        return;
    }
    keep_place(line);
    line->stream = NULL;
    go_on_later(line);
}

static void log_post(const struct line *line, const struct mcp_stream_end *end)
{
    struct buf words;
    const struct mcp_connection *connection = line->transport->base.connection;
    if (!connection || (end->complete && end->status >= 200 && end->status <= 299) ||
        !log_begin(LOG_WARN, "mcp_post_failed"))
        return;
    buf_init(&words, 0);
    describe(end, &words);
    log_text("server", connection->server->name);
    log_text("reason", words.p);
    log_end();
    buf_release(&words);
}

static void transport_finish(struct http_transport *transport);

/* The stream is gone after it; the line only if it is done. */
static void on_ended(struct mcp_stream *stream, const struct mcp_stream_end *end)
{
    struct line *line = line_of(stream);
    struct http_transport *transport = line->transport;
    bool initialized = line == transport->announce;
    if (line->kind != LINE_DELETE && ends_session(line, end))
        session_over(transport);
    switch (line->kind) {
    case LINE_REQUEST:
        if (line->pending)
            request_ended(line, end);
        if (stream->owner && line->stream == stream && !line->pending) { /* told, or nobody waited any more */
            line->stream = NULL;
            line_free(line);
        }
        return;
    case LINE_GET: get_ended(line, end); return;
    case LINE_POST:
        log_post(line, end);
        line->stream = NULL;
        line_free(line);
        if (initialized)
            announced(transport);
        return;
    case LINE_DELETE:
        line->stream = NULL;
        line_free(line);
        transport_finish(transport);
        return;
    }
}

static const struct mcp_stream_ops line_stream_ops = {.head = on_head, .message = on_message, .ended = on_ended};

/* ---- ends of requests ---- */

/* A stream whose answer came ends by itself, and its connection is good for the next request. Cancelled, or of no use:
 * it is cut. */
static void http_drop(struct mcp_transport *base, struct mcp_pending *pending, bool cancelled)
{
    struct http_transport *transport = http_of(base);
    struct line *line = pending->transport_data;
    if (!line)
        return;
    pending->transport_data = NULL;
    line->pending = NULL;
    if (line->stream && line->stream->inside && !cancelled) {
        line->at_ms = now_of(transport) + LINGER_MS;
        want_timer(transport, line->at_ms);
        look_later(transport);
        return;
    }
    line_free(line);
}

/* ---- time ---- */

static bool request_waits(const struct http_transport *transport)
{
    for (const struct line *line = transport->lines; line; line = line->next) {
        if (line->pending)
            return true;
    }
    return false;
}

static void tick(struct line *line, int64_t now)
{
    if (line->at_ms == 0 || now < line->at_ms)
        return;
    if (line->stream) /* lingered long enough */
        line_free(line);
    else
        open_get(line);
}

static void on_timer(uv_timer_t *timer)
{
    struct http_transport *transport = timer->data;
    int64_t now = now_of(transport);
    transport->due_ms = 0;
    for (struct line *line = transport->lines, *next; line; line = next) {
        next = line->next;
        tick(line, now);
    }
    for (struct line *line = transport->lines; line; line = line->next) {
        if (line->at_ms != 0)
            want_timer(transport, line->at_ms);
    }
    if (transport->get_by_ms != 0 && now >= transport->get_by_ms)
        get_answered(transport); /* it answers when there is something to say */
    if (!transport->over_ms)
        return;
    if (!request_waits(transport) || now >= transport->over_ms + OVER_MS)
        mcp_connection_lost(transport->base.connection, "the server ended the session (HTTP 404)");
    else
        want_timer(transport, transport->over_ms + OVER_MS);
}

/* ---- life ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct http_transport *transport = handle->data;
    struct mcp_hub *hub = transport->hub;
    free(transport->session);
    mcp_provider_unref(transport->provider);
    free(transport);
    mcp_hub_release(hub);
}

static void transport_finish(struct http_transport *transport)
{
    uv_close((uv_handle_t *)&transport->timer, on_timer_closed);
}

static void end_session(struct http_transport *transport)
{
    struct line *line = line_new(transport, LINE_DELETE);
    struct mcp_stream *stream = take_stream(line);
    if (*transport->version)
        mcp_stream_header(stream, "MCP-Protocol-Version", str_of(transport->version));
    mcp_stream_prepare(stream, "DELETE", STR_NONE, DELETE_MS);
    mcp_stream_start(stream);
}

static void http_close(struct mcp_transport *base)
{
    struct http_transport *transport = http_of(base);
    transport->closing = true;
    base->connection = NULL;
    uv_timer_stop(&transport->timer);
    while (transport->lines)
        line_free(transport->lines);
    if (transport->session && !transport->over_ms)
        end_session(transport);
    else
        transport_finish(transport);
}

static const struct mcp_transport_ops http_ops = {
    .streams = true, .send = http_send, .drop = http_drop, .established = http_established, .close = http_close};

struct mcp_transport *mcp_http_open(struct mcp_connection *connection, struct err *err)
{
    struct mcp_hub *hub = connection->hub;
    if (!hub->http && mcp_http_client_new(hub, &hub->http, err) != ERR_NONE)
        return NULL;
    struct http_transport *transport = mem_zero(sizeof *transport);
    transport->base = (struct mcp_transport){.ops = &http_ops, .connection = connection};
    transport->hub = hub;
    transport->client = hub->http;
    transport->provider = mcp_provider_ref(connection->server->provider);
    uv_timer_init(hub->options.loop, &transport->timer);
    transport->timer.data = transport;
    mcp_hub_hold(hub);
    return &transport->base;
}

bool mcp_http_tool_valid(const struct json *tool, struct err *err)
{
    return mcp_tool_headers_check(tool, err) == ERR_NONE;
}
