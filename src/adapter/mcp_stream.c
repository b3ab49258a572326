#include "adapter/mcp_stream.h"

#include "base/header.h"
#include "base/mem.h"

#include <stdlib.h>
#include <strings.h>

#define IDLE_MAX         64
#define IDLE_CONNECTIONS 128L
#define KEEP_BYTES_MAX   (64 * 1024)               /* buffers and arenas larger than this are given back after use */
#define UNREAD_BYTES_MAX ((size_t)4 * 1024 * 1024) /* events: libcurl hands over that much at most at a time */
#define HEADER_VALUE_MAX 1024                      /* of an answer's header that is of interest */
/* Node's and uvicorn's servers close a connection that was idle for 5 s. A call that meets that is lost, and a lost
 * write is an unknown outcome. */
#define REUSE_SECONDS     4L
#define KEEPALIVE_SECONDS 30L /* silence after which the system asks whether the peer is there */

static struct mcp_stream *stream_of(struct curl_transfer *transfer)
{
    return (struct mcp_stream *)transfer;
}

/* ---- what libcurl gives ---- */

static int status_of(const struct mcp_stream *stream)
{
    long status = 0;
    curl_easy_getinfo(stream->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

/* The value of the header if line is "name: value", in the arena. */
static const char *kept_value(struct mcp_stream *stream, const char *name, struct str line)
{
    struct str value = header_value(line, name);
    if (!value.p || value.n > HEADER_VALUE_MAX || memchr(value.p, 0, value.n))
        return NULL;
    return arena_copy_str(&stream->arena, value);
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    struct mcp_stream *stream = user;
    size_t n = size * count;
    const char *value;
    stream->head_bytes += n;
    if (stream->head_bytes > HTTP_ANSWER_HEAD_MAX) {
        stream->head_over = true;
        return 0;
    }
    if (n > 5 && memcmp(line, "HTTP/", 5) == 0)
        stream->content_type = stream->session = NULL; /* after an interim answer */
    else if ((value = kept_value(stream, "Content-Type", (struct str){line, n})))
        stream->content_type = value;
    else if ((value = kept_value(stream, "Mcp-Session-Id", (struct str){line, n})))
        stream->session = value;
    else if (stream->want_head && n <= 2 && status_of(stream) >= 200)
        curl_transfer_received(&stream->transfer);
    return n;
}

static bool is_type(const char *type, const char *wanted)
{
    size_t n = type ? strcspn(type, "; \t") : 0;
    return n == strlen(wanted) && strncasecmp(type, wanted, n) == 0;
}

static void settle_form(struct mcp_stream *stream)
{
    if (stream->has_form)
        return;
    stream->has_form = true;
    stream->form = is_type(stream->content_type, "text/event-stream")  ? MCP_FORM_EVENTS
                   : is_type(stream->content_type, "application/json") ? MCP_FORM_JSON
                                                                       : MCP_FORM_OTHER;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    struct mcp_stream *stream = user;
    settle_form(stream);
    size_t slack = stream->form == MCP_FORM_EVENTS ? UNREAD_BYTES_MAX : 0;
    if (stream->body.n + size * count > stream->provider->answer_bytes_max + slack) {
        stream->over = true;
        return 0;
    }
    buf_add(&stream->body, bytes, size * count);
    if (stream->form == MCP_FORM_EVENTS)
        curl_transfer_received(&stream->transfer);
    return size * count;
}

/* ---- events ---- */

static void on_event(void *user, const struct sse_event *event)
{
    struct mcp_stream *stream = user;
    if (!stream->owner)
        return;
    stream->has_event = true;
    if (event->id.p) {
        buf_reset(&stream->last_id);
        buf_add_str(&stream->last_id, event->id);
        stream->has_id = event->id.n > 0 && !stream->last_id.over;
    }
    if (event->retry_ms >= 0)
        stream->retry_ms = event->retry_ms;
    if (str_is(event->type, "message") && event->data.n > 0)
        stream->ops->message(stream, event->data, status_of(stream));
}

static void give_back(struct mcp_stream *stream);

static void finish(struct mcp_stream *stream, CURLcode code);

static void received(struct curl_transfer *transfer)
{
    struct mcp_stream *stream = stream_of(transfer);
    stream->inside = true;
    if (stream->want_head) {
        stream->want_head = false;
        stream->ops->head(stream);
    }
    if (stream->owner && !sse_reader_feed(&stream->reader, stream->body.p, stream->body.n))
        stream->over = true;
    stream->inside = false;
    buf_reset(&stream->body);
    if (!stream->owner) {
        give_back(stream);
    } else if (stream->over) { /* where the next event begins cannot be told */
        curl_transfer_stop(&stream->transfer);
        finish(stream, CURLE_WRITE_ERROR);
    }
}

/* ---- ends ---- */

static const char *why(const struct mcp_stream *stream, CURLcode code, bool sent)
{
    if (code == CURLE_OK)
        return NULL;
    if (stream->over)
        return "the server's answer is over the limit";
    if (stream->head_over)
        return "the answer's headers are too long";
    if (code == CURLE_PARTIAL_FILE)
        return "the answer was cut short";
    /* these are libcurl's words for the second request that it was refused */
    if (sent && (code == CURLE_ABORTED_BY_CALLBACK || code == CURLE_SEND_FAIL_REWIND || code == CURLE_COULDNT_CONNECT))
        return "the connection was closed before the answer";
    return stream->transfer.error[0] ? stream->transfer.error : curl_easy_strerror(code);
}

static void finish(struct mcp_stream *stream, CURLcode code)
{
    bool sent = stream->transfer.let_pass > 0;
    settle_form(stream);
    struct mcp_stream_end end = {
        .sent = sent,
        .complete = code == CURLE_OK,
        .over = stream->over,
        .status = status_of(stream),
        .form = stream->form,
        .body = stream->form == MCP_FORM_EVENTS ? STR("") : buf_str(&stream->body),
        .session = stream->session,
        .text = why(stream, code, sent),
    };
    stream->inside = true;
    stream->ops->ended(stream, &end);
    stream->inside = false;
    give_back(stream);
}

static void finished(struct curl_transfer *transfer, CURLcode code)
{
    finish(stream_of(transfer), code);
}

static const struct curl_transfer_ops transfer_ops = {.finished = finished, .received = received};

void mcp_stream_stop(struct mcp_stream *stream)
{
    curl_transfer_stop(&stream->transfer);
    stream->owner = NULL;
    if (!stream->inside)
        give_back(stream);
}

/* ---- handles ---- */

static struct mcp_stream *stream_new(struct mcp_http_client *client)
{
    struct mcp_stream *stream = mem_zero(sizeof *stream);
    stream->client = client;
    curl_transfer_init(&stream->transfer, &client->loop, &transfer_ops);
    arena_init(&stream->arena);
    buf_init(&stream->request, 0);
    buf_init(&stream->body, 0);
    buf_init(&stream->last_id, HEADER_VALUE_MAX);
    CURL *easy = stream->transfer.easy;
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, stream);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, stream);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, REUSE_SECONDS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_SECONDS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_SECONDS / 2);
    return stream;
}

static void stream_free(struct mcp_stream *stream)
{
    curl_transfer_release(&stream->transfer);
    curl_url_cleanup(stream->url);
    mcp_provider_unref(stream->provider);
    buf_release(&stream->request);
    buf_release(&stream->body);
    buf_release(&stream->last_id);
    arena_release(&stream->arena);
    free(stream);
}

/* Taken apart once: libcurl would do it for each request, and put the whole together again. One that it does not
 * understand stays with it, which says why. */
static void set_url(struct mcp_stream *stream, const char *text)
{
    curl_transfer_text(&stream->transfer, CURLOPT_URL, text);
    CURLU *url = curl_url();
    if (url && curl_url_set(url, CURLUPART_URL, text, CURLU_PATH_AS_IS) != CURLUE_OK) {
        curl_url_cleanup(url);
        url = NULL;
    }
    curl_easy_setopt(stream->transfer.easy, CURLOPT_CURLU, url);
    curl_url_cleanup(stream->url);
    stream->url = url;
}

static void set_provider(struct mcp_stream *stream, struct mcp_provider *provider)
{
    CURL *easy = stream->transfer.easy;
    if (stream->provider == provider)
        return;
    mcp_provider_unref(stream->provider);
    stream->provider = mcp_provider_ref(provider);
    set_url(stream, provider->url);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)provider->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, provider->tls_verify ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, provider->tls_verify ? 2L : 0L);
    curl_transfer_text(&stream->transfer, CURLOPT_CAINFO, provider->tls_ca);
}

static void shrink(struct buf *buf)
{
    if (buf->cap > KEEP_BYTES_MAX)
        buf_release(buf);
    else
        buf_reset(buf);
}

static void give_back(struct mcp_stream *stream)
{
    struct mcp_http_client *client = stream->client;
    sse_reader_release(&stream->reader);
    if (client->idle_count >= IDLE_MAX || client->loop.closing) {
        stream_free(stream);
        return;
    }
    shrink(&stream->request);
    shrink(&stream->body);
    shrink(&stream->last_id);
    if (stream->arena.bytes > KEEP_BYTES_MAX)
        arena_release(&stream->arena);
    else
        arena_reset(&stream->arena);
    stream->owner = NULL;
    stream->next = client->idle;
    client->idle = stream;
    client->idle_count++;
}

struct mcp_stream *mcp_stream_take(struct mcp_http_client *client, struct mcp_provider *provider,
                                   const struct mcp_stream_ops *ops, void *owner)
{
    struct mcp_stream *stream = client->idle;
    if (stream) {
        client->idle = stream->next;
        client->idle_count--;
    } else {
        stream = stream_new(client);
    }
    curl_transfer_clear(&stream->transfer);
    set_provider(stream, provider);
    sse_reader_init(&stream->reader, provider->answer_bytes_max, on_event, stream);
    stream->ops = ops;
    stream->owner = owner;
    stream->head_bytes = 0;
    stream->head_over = stream->over = stream->has_form = stream->has_id = stream->has_event = stream->want_head =
        false;
    stream->content_type = stream->session = NULL;
    stream->retry_ms = -1;
    stream->headers = provider->header_lines;
    return stream;
}

/* In the arena, in front of the provider's. */
void mcp_stream_header(struct mcp_stream *stream, const char *name, struct str value)
{
    size_t length = strlen(name);
    struct curl_slist *node = arena_alloc(&stream->arena, sizeof *node);
    char *line = arena_alloc(&stream->arena, length + value.n + 3);
    memcpy(line, name, length);
    memcpy(line + length, value.n ? ": " : ";", value.n ? 2 : 1); /* libcurl's way to write an empty value */
    if (value.n)
        memcpy(line + length + 2, value.p, value.n);
    line[length + (value.n ? 2 : 1) + value.n] = '\0';
    node->data = line;
    node->next = stream->headers;
    stream->headers = node;
}

void mcp_stream_prepare(struct mcp_stream *stream, const char *method, struct str body, int64_t timeout_ms)
{
    CURL *easy = stream->transfer.easy;
    if (strcmp(stream->method, method) != 0) {
        snprintf(stream->method, sizeof stream->method, "%s", method);
        curl_easy_setopt(easy, body.p ? CURLOPT_POST : CURLOPT_HTTPGET, 1L);
        bool usual = strcmp(method, body.p ? "POST" : "GET") == 0;
        curl_transfer_text(&stream->transfer, CURLOPT_CUSTOMREQUEST, usual ? NULL : method);
    }
    if (body.p) {
        mcp_stream_header(stream, "Content-Type", STR("application/json"));
        buf_add_str(&stream->request, body);
        curl_transfer_body(&stream->transfer, buf_str(&stream->request));
    }
    if (stream->timeout_ms != timeout_ms) {
        stream->timeout_ms = timeout_ms;
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    }
}

void mcp_stream_start(struct mcp_stream *stream)
{
    struct err err = {0};
    curl_easy_setopt(stream->transfer.easy, CURLOPT_HTTPHEADER, stream->headers);
    if (curl_transfer_start(&stream->transfer, &err) == ERR_NONE)
        return;
    snprintf(stream->transfer.error, sizeof stream->transfer.error, "%.200s", err.text);
    curl_transfer_refuse(&stream->transfer);
}

/* ---- client ---- */

enum err_code mcp_http_client_new(struct mcp_hub *hub, struct mcp_http_client **out, struct err *err)
{
    struct mcp_http_client *client = mem_zero(sizeof *client);
    client->hub = hub;
    enum err_code code = curl_loop_init(&client->loop, hub->options.loop, err);
    if (code != ERR_NONE) {
        free(client);
        return code;
    }
    curl_multi_setopt(client->loop.multi, CURLMOPT_MAXCONNECTS, IDLE_CONNECTIONS);
    *out = client;
    return ERR_NONE;
}

static void release_idle(void *user)
{
    struct mcp_http_client *client = user;
    while (client->idle) {
        struct mcp_stream *stream = client->idle;
        client->idle = stream->next;
        stream_free(stream);
    }
}

static void on_closed(void *user)
{
    struct mcp_http_client *client = user;
    struct mcp_hub *hub = client->hub;
    free(client);
    mcp_hub_release(hub);
}

void mcp_http_client_close(struct mcp_hub *hub)
{
    struct mcp_http_client *client = hub->http;
    if (!client)
        return;
    hub->http = NULL;
    mcp_hub_hold(hub);
    curl_loop_close(&client->loop, release_idle, on_closed, client);
}
