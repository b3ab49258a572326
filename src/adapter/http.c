/* The wire: exchanges over curl_loop, pools of handles per provider.
 *
 *   send ─► exchange (easy handle, buffers) of the provider's pool ─► curl_loop
 *   done ◄── http_judge ◄── struct http_reply ◄── finished transfer ◄──┘
 */
#include "adapter/curl_loop.h"
#include "adapter/http_parts.h"

#include "base/env.h"
#include "base/header.h"
#include "base/mem.h"

#include <stdlib.h>

#define KEEP_BYTES_MAX   (64 * 1024) /* buffers and arenas larger than this are given back after use */
#define IDLE_CONNECTIONS 8           /* kept at least, whatever the providers state */

struct http_adapter;

struct exchange {
    struct curl_transfer transfer; /* first: see exchange_of */
    struct http_adapter *adapter;
    struct pool *pool;
    /* of the request at hand */
    struct http_tool *tool; /* a reference */
    struct arena arena;
    struct http_message message;
    adapter_done *done;
    void *user;
    /* of its answer */
    struct buf body;
    size_t head_bytes;
    bool head_over;
    const char *content_type, *retry_after, *request_id;
    struct err refusal; /* the request could not be built or begun */
    /* what the easy handle is set to */
    char method[8];
    int64_t timeout_ms;
    bool has_body;
    struct exchange *next; /* in the pool's idle list */
};

/* Handles with a provider's options. */
struct pool {
    struct http_provider *provider; /* a reference */
    struct exchange *idle;
    unsigned idle_count, busy_count;
};

struct http_adapter {
    struct adapter base;
    struct curl_loop loop;
    struct pool **pools;
    size_t pool_count;
    void (*closed)(void *user);
    void *closed_user;
};

static struct http_adapter *http_adapter_of(struct adapter *adapter)
{
    return (struct http_adapter *)adapter;
}

static struct exchange *exchange_of(struct curl_transfer *transfer)
{
    return (struct exchange *)transfer;
}

/* ---- what libcurl gives ---- */

/* The value of the header if line is "name: value", in the arena. */
static const char *kept_value(struct exchange *exchange, const char *name, struct str line)
{
    struct str value = name ? header_value(line, name) : STR_NONE;
    if (!value.p)
        return NULL;
    if (value.n > 256)
        value.n = 256;
    return memchr(value.p, 0, value.n) ? NULL : arena_copy_str(&exchange->arena, value);
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    struct exchange *exchange = user;
    const struct http_provider *provider = exchange->tool->provider;
    size_t n = size * count;
    const char *value;
    exchange->head_bytes += n;
    if (exchange->head_bytes > HTTP_ANSWER_HEAD_MAX) {
        exchange->head_over = true;
        return 0;
    }
    if (n > 5 && memcmp(line, "HTTP/", 5) == 0)
        exchange->content_type = exchange->retry_after = exchange->request_id = NULL; /* after an interim answer */
    else if ((value = kept_value(exchange, "Content-Type", (struct str){line, n})))
        exchange->content_type = value;
    else if ((value = kept_value(exchange, provider->retry_after_header, (struct str){line, n})))
        exchange->retry_after = value;
    else if ((value = kept_value(exchange, provider->request_id_header, (struct str){line, n})))
        exchange->request_id = value;
    return n;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    struct exchange *exchange = user;
    buf_add(&exchange->body, bytes, size * count);
    return exchange->body.over ? 0 : size * count;
}

/* ---- exchanges ---- */

static const struct curl_transfer_ops exchange_ops;

static void preset(struct exchange *exchange, const struct http_provider *provider)
{
    CURL *easy = exchange->transfer.easy;
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)provider->wire.connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, provider->wire.keepalive ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, provider->wire.keepalive ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, provider->wire.verify ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, provider->wire.verify ? 2L : 0L);
    if (provider->wire.ca)
        curl_transfer_text(&exchange->transfer, CURLOPT_CAINFO, provider->wire.ca);
}

static struct exchange *exchange_new(struct http_adapter *adapter, struct pool *pool)
{
    struct exchange *exchange = mem_zero(sizeof *exchange);
    exchange->adapter = adapter;
    exchange->pool = pool;
    curl_transfer_init(&exchange->transfer, &adapter->loop, &exchange_ops);
    arena_init(&exchange->arena);
    http_message_init(&exchange->message, &exchange->arena);
    buf_init(&exchange->body, pool->provider->answer_bytes_max);
    preset(exchange, pool->provider);
    return exchange;
}

static void exchange_free(struct exchange *exchange)
{
    curl_transfer_release(&exchange->transfer);
    http_message_release(&exchange->message);
    buf_release(&exchange->body);
    arena_release(&exchange->arena);
    free(exchange);
}

static void shrink(struct buf *buf)
{
    if (buf->cap > KEEP_BYTES_MAX)
        buf_release(buf);
    else
        buf_reset(buf);
}

/* Ready for the next request. */
static void exchange_clear(struct exchange *exchange)
{
    shrink(&exchange->message.url);
    shrink(&exchange->message.body);
    shrink(&exchange->message.scratch);
    shrink(&exchange->message.value);
    shrink(&exchange->body);
    if (exchange->arena.bytes > KEEP_BYTES_MAX)
        arena_release(&exchange->arena);
    else
        arena_reset(&exchange->arena);
    exchange->tool = NULL;
    exchange->done = NULL;
    exchange->user = NULL;
    curl_transfer_clear(&exchange->transfer);
    exchange->head_bytes = 0;
    exchange->head_over = false;
    exchange->content_type = exchange->retry_after = exchange->request_id = NULL;
    err_clear(&exchange->refusal);
}

/* ---- pools ---- */

static void set_idle_connections(struct http_adapter *adapter)
{
    long connections = IDLE_CONNECTIONS;
    for (size_t i = 0; i < adapter->pool_count; i++)
        connections += adapter->pools[i]->provider->wire.connections;
    curl_multi_setopt(adapter->loop.multi, CURLMOPT_MAXCONNECTS, connections);
}

static void pool_free(struct pool *pool)
{
    while (pool->idle) {
        struct exchange *exchange = pool->idle;
        pool->idle = exchange->next;
        exchange_free(exchange);
    }
    http_provider_unref(pool->provider);
    free(pool);
}

/* Providers of a former registry file go once their last answer is in. */
static void sweep_pools(struct http_adapter *adapter)
{
    size_t kept = 0;
    for (size_t i = 0; i < adapter->pool_count; i++) {
        struct pool *pool = adapter->pools[i];
        if (pool->provider->closed && pool->busy_count == 0)
            pool_free(pool);
        else
            adapter->pools[kept++] = pool;
    }
    adapter->pool_count = kept;
}

static struct pool *pool_of(struct http_adapter *adapter, struct http_provider *provider)
{
    for (size_t i = 0; i < adapter->pool_count; i++) {
        if (adapter->pools[i]->provider == provider)
            return adapter->pools[i];
    }
    sweep_pools(adapter);
    struct pool *pool = mem_zero(sizeof *pool);
    pool->provider = provider;
    http_provider_ref(provider);
    adapter->pools = mem_grow(adapter->pools, (adapter->pool_count + 1) * sizeof *adapter->pools);
    adapter->pools[adapter->pool_count++] = pool;
    set_idle_connections(adapter);
    return pool;
}

static struct exchange *exchange_take(struct http_adapter *adapter, struct http_tool *tool)
{
    struct pool *pool = pool_of(adapter, tool->provider);
    struct exchange *exchange = pool->idle;
    if (exchange) {
        pool->idle = exchange->next;
        pool->idle_count--;
    } else {
        exchange = exchange_new(adapter, pool);
    }
    exchange->tool = tool;
    http_tool_ref(tool);
    pool->busy_count++;
    return exchange;
}

static void exchange_give_back(struct exchange *exchange)
{
    struct pool *pool = exchange->pool;
    struct http_tool *tool = exchange->tool;
    exchange_clear(exchange);
    pool->busy_count--;
    if (pool->idle_count >= pool->provider->wire.connections) {
        exchange_free(exchange);
    } else {
        exchange->next = pool->idle;
        pool->idle = exchange;
        pool->idle_count++;
    }
    http_tool_unref(tool);
}

/* ---- sending ---- */

static void set_method(struct exchange *exchange, const char *method, bool has_body)
{
    CURL *easy = exchange->transfer.easy;
    if (strcmp(exchange->method, method) == 0 && exchange->has_body == has_body)
        return;
    bool head = strcmp(method, "HEAD") == 0, usual = strcmp(method, has_body ? "POST" : "GET") == 0;
    curl_easy_setopt(easy, CURLOPT_NOBODY, head ? 1L : 0L);
    if (!head)
        curl_easy_setopt(easy, has_body ? CURLOPT_POST : CURLOPT_HTTPGET, 1L);
    curl_transfer_text(&exchange->transfer, CURLOPT_CUSTOMREQUEST, head || usual ? NULL : method);
    snprintf(exchange->method, sizeof exchange->method, "%s", method);
    exchange->has_body = has_body;
}

static enum err_code begin(struct exchange *exchange)
{
    const struct http_message *message = &exchange->message;
    CURL *easy = exchange->transfer.easy;
    set_method(exchange, message->request->method, message->request->has_body);
    if (exchange->timeout_ms != exchange->tool->timeout_ms) {
        exchange->timeout_ms = exchange->tool->timeout_ms;
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)exchange->timeout_ms);
    }
    if (message->request->has_body)
        curl_transfer_body(&exchange->transfer, buf_str(&message->body));
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, message->headers);
    if (curl_easy_setopt(easy, CURLOPT_URL, message->url.p) != CURLE_OK)
        return err_set(&exchange->refusal, ERR_INTERNAL, "libcurl refuses the URL");
    return curl_transfer_start(&exchange->transfer, &exchange->refusal);
}

static void http_send(struct adapter *base, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct http_adapter *adapter = http_adapter_of(base);
    struct exchange *exchange = exchange_take(adapter, (struct http_tool *)call->tool->adapter_tool);
    exchange->done = done;
    exchange->user = user;
    enum err_code code = adapter->loop.closing
                             ? err_set(&exchange->refusal, ERR_UNAVAILABLE, "onced is stopping")
                             : http_message_build(&exchange->message, exchange->tool, call, &exchange->refusal);
    if (code == ERR_NONE)
        code = begin(exchange);
    if (code != ERR_NONE)
        curl_transfer_refuse(&exchange->transfer);
}

/* ---- finishing ---- */

static enum http_end end_of(const struct exchange *exchange, CURLcode code)
{
    if (code == CURLE_OK)
        return HTTP_END_COMPLETE;
    if (exchange->body.over)
        return HTTP_END_OVERSIZE;
    switch ((int)code) {
    case CURLE_OPERATION_TIMEDOUT: return HTTP_END_TIMEOUT;
    case CURLE_PARTIAL_FILE:
    case CURLE_WRITE_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9 or no HTTP at all */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_FILESIZE_EXCEEDED:
    case CURLE_OUT_OF_MEMORY: /* what libcurl calls a header line that it finds too long */ return HTTP_END_UNREADABLE;
    default: return HTTP_END_LOST;
    }
}

static const char *detail_of(struct exchange *exchange, CURLcode code, enum http_end end, bool sent)
{
    const char *why = exchange->transfer.error[0] ? exchange->transfer.error : curl_easy_strerror(code);
    switch (end) {
    case HTTP_END_COMPLETE: return NULL;
    case HTTP_END_OVERSIZE:
        return arena_printf(&exchange->arena, "the answer has more than %zu bytes",
                            exchange->tool->provider->answer_bytes_max);
    case HTTP_END_UNREADABLE:
        if (exchange->head_over)
            return "the answer's headers are too long";
        if (code == CURLE_PARTIAL_FILE)
            return "the answer was cut short";
        break;
    case HTTP_END_TIMEOUT:
    case HTTP_END_LOST:
        /* these are libcurl's words for the second request that it was refused */
        if (sent &&
            (code == CURLE_ABORTED_BY_CALLBACK || code == CURLE_SEND_FAIL_REWIND || code == CURLE_COULDNT_CONNECT))
            return "the connection was closed before the answer";
        break;
    }
    return why;
}

static void answer(struct exchange *exchange, const struct http_reply *reply)
{
    struct adapter_answer answer;
    http_judge(exchange->tool, &exchange->message, reply, &exchange->arena, env_system()->now_ms(env_system()),
               &answer);
    exchange->done(exchange->user, &answer);
}

/* Nothing of it left, nor will. */
static void answer_refused(struct exchange *exchange)
{
    struct http_reply reply = {.end = HTTP_END_LOST, .detail = exchange->refusal.text};
    answer(exchange, &reply);
}

static void answer_finished(struct exchange *exchange, CURLcode code)
{
    long status = 0;
    curl_easy_getinfo(exchange->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    struct http_reply reply = {.sent = exchange->transfer.let_pass > 0,
                               .end = end_of(exchange, code),
                               .status = (int)status,
                               .body = buf_str(&exchange->body),
                               .content_type = exchange->content_type,
                               .retry_after = exchange->retry_after,
                               .request_id = exchange->request_id};
    reply.detail = detail_of(exchange, code, reply.end, reply.sent);
    answer(exchange, &reply);
}

static void finished(struct curl_transfer *transfer, CURLcode code)
{
    struct exchange *exchange = exchange_of(transfer);
    if (exchange->refusal.code != ERR_NONE)
        answer_refused(exchange);
    else
        answer_finished(exchange, code);
    exchange_give_back(exchange);
}

static const struct curl_transfer_ops exchange_ops = {.finished = finished};

/* ---- dry runs ---- */

static enum err_code http_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    struct arena arena;
    struct http_message message;
    (void)adapter;
    arena_init(&arena);
    http_message_init(&message, &arena);
    enum err_code code = http_message_build(&message, call->tool->adapter_tool, call, err);
    http_message_release(&message);
    arena_release(&arena);
    return code;
}

static enum err_code http_describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                                   struct err *err)
{
    (void)adapter;
    return http_message_describe(call->tool->adapter_tool, call, out, err);
}

/* ---- life ---- */

static const struct adapter_ops http_ops = {.check = http_check, .describe = http_describe, .send = http_send};

enum err_code http_adapter_new(uv_loop_t *loop, struct adapter **out, struct err *err)
{
    struct http_adapter *adapter = mem_zero(sizeof *adapter);
    adapter->base.ops = &http_ops;
    enum err_code code = curl_loop_init(&adapter->loop, loop, err);
    if (code == ERR_NONE)
        *out = &adapter->base;
    else
        free(adapter);
    return code;
}

static void release_pools(void *user)
{
    struct http_adapter *adapter = user;
    for (size_t i = 0; i < adapter->pool_count; i++)
        pool_free(adapter->pools[i]);
    free(adapter->pools);
}

static void on_closed(void *user)
{
    struct http_adapter *adapter = user;
    void (*closed)(void *user) = adapter->closed;
    void *closed_user = adapter->closed_user;
    free(adapter);
    if (closed)
        closed(closed_user);
}

void http_adapter_close(struct adapter *base, void (*closed)(void *user), void *user)
{
    struct http_adapter *adapter = http_adapter_of(base);
    adapter->closed = closed;
    adapter->closed_user = user;
    curl_loop_close(&adapter->loop, release_pools, on_closed, adapter);
}
