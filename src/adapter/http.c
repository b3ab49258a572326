/* The wire: libcurl's multi interface on a libuv loop.
 *
 *   send ─► exchange (easy handle, buffers) of the provider's pool ─► curl_multi
 *                                                                      │ sockets: an epoll set under one uv_poll
 *                                                                      │ timers: one uv_timer
 *   done ◄── http_judge ◄── struct http_reply ◄── finished transfer ◄──┘
 *
 * Exactly one request per send (design 5.2). libcurl sends again on its own when a reused connection dies before the
 * first answer byte, on another idle connection or a new one. Both ways are shut by locks of their own:
 *   1. the callback before each request (PREREQ) lets one request pass per send; every request goes through it;
 *   2. no socket is opened any more once the request was let pass.
 * A body that is not sent together with its head is also given through a callback that refuses to rewind. Small bodies
 * are handed over in one piece: libcurl then sends head and body with one system call, which saves a third of the CPU.
 *
 * Sockets live in an epoll set of our own inside the loop's: libuv would remove and add a socket for every request
 * (four system calls), while here a kept-alive connection stays registered between requests. */
#include "adapter/http_parts.h"

#include "base/env.h"
#include "base/mark.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_AT_ONCE_MAX (32 * 1024) /* libcurl joins head and body up to 64 KiB */
#define EVENTS_PER_WAIT  64
#define BUFFER_BYTES     16384L      /* libcurl's, per transfer */
#define KEEP_BYTES_MAX   (64 * 1024) /* buffers and arenas larger than this are given back after use */
#define IDLE_CONNECTIONS 8           /* kept at least, whatever the providers state */

struct http_adapter;

struct exchange {
    struct http_adapter *adapter;
    struct pool *pool;
    CURL *easy;
    /* of the request at hand */
    struct http_tool *tool; /* a reference */
    struct arena arena;
    struct http_message message;
    size_t body_sent;
    adapter_done *done;
    void *user;
    unsigned let_pass; /* requests that were let pass: 0 or 1 */
    /* of its answer */
    struct buf body;
    size_t head_bytes;
    bool head_over;
    const char *content_type, *retry_after, *request_id;
    char error[CURL_ERROR_SIZE];
    struct err refusal; /* the request could not be built or begun */
    /* what the easy handle is set to */
    char method[8];
    int64_t timeout_ms;
    bool has_body;
    struct exchange *prev, *next; /* in the adapter's busy list, or (next) the pool's idle list or the unsent list */
};

/* Handles with a provider's options. */
struct pool {
    struct http_provider *provider; /* a reference */
    struct exchange *idle;
    unsigned idle_count, busy_count;
};

/* Per file descriptor. */
struct watch {
    bool ours;       /* opened by us: stays registered between requests until it is closed */
    bool registered; /* in the epoll set, with mask */
    bool wanted;     /* libcurl waits for it */
    uint32_t mask;
};

struct http_adapter {
    struct adapter base;
    uv_loop_t *loop;
    CURLM *multi;
    int epoll;
    uv_poll_t poll;
    uv_timer_t timer;    /* libcurl's */
    uv_timer_t deferred; /* answers that must not be given from within send */
    struct watch *watches;
    size_t watch_count;
    struct pool **pools;
    size_t pool_count;
    struct exchange *busy;   /* on the wire */
    struct exchange *unsent; /* could not be built; waiting for deferred */
    bool finishing, closing;
    bool let_out; /* a request was let pass since mark_written looked */
    unsigned open_handles;
    void (*closed)(void *user);
    void *closed_user;
};

static struct http_adapter *http_adapter_of(struct adapter *adapter)
{
    return (struct http_adapter *)adapter;
}

/* ---- sockets ---- */

static struct watch *watch_of(struct http_adapter *adapter, int fd)
{
    size_t index = (size_t)fd;
    if (index >= adapter->watch_count) {
        size_t count = (index + 64) & ~(size_t)63;
        adapter->watches = mem_grow(adapter->watches, count * sizeof *adapter->watches);
        memset(adapter->watches + adapter->watch_count, 0, (count - adapter->watch_count) * sizeof *adapter->watches);
        adapter->watch_count = count;
    }
    return &adapter->watches[index];
}

static void watch_set(struct http_adapter *adapter, int fd, uint32_t mask)
{
    struct watch *watch = watch_of(adapter, fd);
    struct epoll_event event = {.events = mask, .data.fd = fd};
    if (watch->registered && watch->mask == mask)
        return;
    int rc = epoll_ctl(adapter->epoll, watch->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    watch->registered = rc == 0;
    watch->mask = mask;
}

static void watch_remove(struct http_adapter *adapter, int fd)
{
    struct watch *watch = watch_of(adapter, fd);
    if (watch->registered)
        epoll_ctl(adapter->epoll, EPOLL_CTL_DEL, fd, NULL);
    watch->registered = false;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
    struct http_adapter *adapter = user;
    (void)easy;
    (void)socket_user;
    struct watch *watch = watch_of(adapter, fd);
    watch->wanted = what != CURL_POLL_REMOVE && what != CURL_POLL_NONE;
    if (watch->wanted)
        watch_set(adapter, fd, (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u));
    else if (!watch->ours || watch->mask != EPOLLIN)
        watch_remove(adapter, fd); /* libcurl's own descriptors are closed behind our back */
    return 0;
}

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct exchange *exchange = user;
    (void)purpose;
    if (exchange->let_pass > 0)
        return CURL_SOCKET_BAD;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    *watch_of(exchange->adapter, fd) = (struct watch){.ours = true};
    return fd;
}

static int close_socket(void *user, curl_socket_t fd)
{
    struct http_adapter *adapter = user;
    *watch_of(adapter, fd) = (struct watch){0}; /* the kernel takes it out of the set */
    return close(fd);
}

/* ---- what libcurl asks for and gives ---- */

static int before_request(void *user, char *remote, char *local, int remote_port, int local_port)
{
    struct exchange *exchange = user;
    (void)remote;
    (void)local;
    (void)remote_port;
    (void)local_port;
    if (exchange->let_pass > 0)
        return CURL_PREREQFUNC_ABORT;
    MARK(request_let_out);
    exchange->let_pass++;
    exchange->adapter->let_out = true;
    return CURL_PREREQFUNC_OK;
}

static size_t read_body(char *out, size_t size, size_t count, void *user)
{
    struct exchange *exchange = user;
    const struct buf *body = &exchange->message.body;
    size_t n = body->n - exchange->body_sent;
    if (n > size * count)
        n = size * count;
    if (n > 0)
        memcpy(out, body->p + exchange->body_sent, n);
    exchange->body_sent += n;
    return n;
}

/* libcurl winds a handle's body back before the first request after a failed one; once the request was let pass, never.
 */
static int rewind_body(void *user, curl_off_t offset, int origin)
{
    struct exchange *exchange = user;
    if (exchange->let_pass > 0 || offset != 0 || origin != SEEK_SET)
        return CURL_SEEKFUNC_FAIL;
    exchange->body_sent = 0;
    return CURL_SEEKFUNC_OK;
}

/* The value of the header if line is "name: value", in the arena. */
static const char *header_value(struct exchange *exchange, const char *name, const char *line, size_t n)
{
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || n <= length || line[length] != ':' || strncasecmp(line, name, length) != 0)
        return NULL;
    struct str value = {line + length + 1, n - length - 1};
    while (value.n > 0 && (value.p[0] == ' ' || value.p[0] == '\t')) {
        value.p++;
        value.n--;
    }
    while (value.n > 0 && (unsigned char)value.p[value.n - 1] <= ' ')
        value.n--;
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
    else if ((value = header_value(exchange, "Content-Type", line, n)))
        exchange->content_type = value;
    else if ((value = header_value(exchange, provider->retry_after_header, line, n)))
        exchange->retry_after = value;
    else if ((value = header_value(exchange, provider->request_id_header, line, n)))
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

/* libcurl copies texts. One that it has no memory for would leave the option as it was: another method, a proxy from
 * the environment, another set of certificates. */
static void set_text(CURL *easy, CURLoption option, const char *text)
{
    if (curl_easy_setopt(easy, option, text) == CURLE_OUT_OF_MEMORY)
        mem_exhausted("libcurl");
}

static void preset(struct exchange *exchange, const struct http_provider *provider)
{
    CURL *easy = exchange->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    set_text(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    set_text(easy, CURLOPT_PROXY, "");
    set_text(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 0L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, exchange->adapter);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, read_body);
    curl_easy_setopt(easy, CURLOPT_READDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, rewind_body);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, exchange);
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
        set_text(easy, CURLOPT_CAINFO, provider->wire.ca);
}

static struct exchange *exchange_new(struct http_adapter *adapter, struct pool *pool)
{
    struct exchange *exchange = mem_zero(sizeof *exchange);
    exchange->adapter = adapter;
    exchange->pool = pool;
    exchange->easy = curl_easy_init();
    if (!exchange->easy)
        mem_exhausted("libcurl");
    arena_init(&exchange->arena);
    http_message_init(&exchange->message, &exchange->arena);
    buf_init(&exchange->body, pool->provider->answer_bytes_max);
    preset(exchange, pool->provider);
    return exchange;
}

static void exchange_free(struct exchange *exchange)
{
    curl_easy_cleanup(exchange->easy);
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
    exchange->let_pass = 0;
    exchange->body_sent = 0;
    exchange->head_bytes = 0;
    exchange->head_over = false;
    exchange->content_type = exchange->retry_after = exchange->request_id = NULL;
    exchange->error[0] = '\0';
    err_clear(&exchange->refusal);
}

/* ---- pools ---- */

static void set_idle_connections(struct http_adapter *adapter)
{
    long connections = IDLE_CONNECTIONS;
    for (size_t i = 0; i < adapter->pool_count; i++)
        connections += adapter->pools[i]->provider->wire.connections;
    curl_multi_setopt(adapter->multi, CURLMOPT_MAXCONNECTS, connections);
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
    CURL *easy = exchange->easy;
    if (strcmp(exchange->method, method) == 0 && exchange->has_body == has_body)
        return;
    bool head = strcmp(method, "HEAD") == 0, usual = strcmp(method, has_body ? "POST" : "GET") == 0;
    curl_easy_setopt(easy, CURLOPT_NOBODY, head ? 1L : 0L);
    if (!head)
        curl_easy_setopt(easy, has_body ? CURLOPT_POST : CURLOPT_HTTPGET, 1L);
    set_text(easy, CURLOPT_CUSTOMREQUEST, head || usual ? NULL : method);
    snprintf(exchange->method, sizeof exchange->method, "%s", method);
    exchange->has_body = has_body;
}

static void set_body(CURL *easy, const struct buf *body)
{
    bool at_once = body->n <= BODY_AT_ONCE_MAX;
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, at_once ? buf_str(body).p : NULL); /* NULL: from the read callback */
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->n);
}

static enum err_code begin(struct exchange *exchange)
{
    const struct http_message *message = &exchange->message;
    CURL *easy = exchange->easy;
    set_method(exchange, message->request->method, message->request->has_body);
    if (exchange->timeout_ms != exchange->tool->timeout_ms) {
        exchange->timeout_ms = exchange->tool->timeout_ms;
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)exchange->timeout_ms);
    }
    if (message->request->has_body)
        set_body(easy, &message->body);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, message->headers);
    if (curl_easy_setopt(easy, CURLOPT_URL, message->url.p) != CURLE_OK)
        return err_set(&exchange->refusal, ERR_INTERNAL, "libcurl refuses the URL");
    CURLMcode code = curl_multi_add_handle(exchange->adapter->multi, easy);
    if (code != CURLM_OK)
        return err_set(&exchange->refusal, ERR_INTERNAL, "libcurl: %s", curl_multi_strerror(code));
    return ERR_NONE;
}

static void busy_add(struct http_adapter *adapter, struct exchange *exchange)
{
    exchange->prev = NULL;
    exchange->next = adapter->busy;
    if (adapter->busy)
        adapter->busy->prev = exchange;
    adapter->busy = exchange;
}

static void busy_remove(struct http_adapter *adapter, struct exchange *exchange)
{
    if (exchange->prev)
        exchange->prev->next = exchange->next;
    else
        adapter->busy = exchange->next;
    if (exchange->next)
        exchange->next->prev = exchange->prev;
    exchange->prev = exchange->next = NULL;
}

static void on_deferred(uv_timer_t *timer);

static void http_send(struct adapter *base, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct http_adapter *adapter = http_adapter_of(base);
    struct exchange *exchange = exchange_take(adapter, (struct http_tool *)call->tool->adapter_tool);
    exchange->done = done;
    exchange->user = user;
    enum err_code code = adapter->closing
                             ? err_set(&exchange->refusal, ERR_UNAVAILABLE, "onced is stopping")
                             : http_message_build(&exchange->message, exchange->tool, call, &exchange->refusal);
    if (code == ERR_NONE)
        code = begin(exchange);
    if (code == ERR_NONE) {
        busy_add(adapter, exchange);
        return;
    }
    exchange->next = adapter->unsent;
    adapter->unsent = exchange;
    if (!adapter->closing)
        uv_timer_start(&adapter->deferred, on_deferred, 0, 0);
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
    const char *why = exchange->error[0] ? exchange->error : curl_easy_strerror(code);
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

static void finish(struct exchange *exchange, CURLcode code)
{
    struct http_adapter *adapter = exchange->adapter;
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(adapter->multi, exchange->easy);
    busy_remove(adapter, exchange);
    struct http_reply reply = {.sent = exchange->let_pass > 0,
                               .end = end_of(exchange, code),
                               .status = (int)status,
                               .body = buf_str(&exchange->body),
                               .content_type = exchange->content_type,
                               .retry_after = exchange->retry_after,
                               .request_id = exchange->request_id};
    reply.detail = detail_of(exchange, code, reply.end, reply.sent);
    answer(exchange, &reply);
    exchange_give_back(exchange);
}

static void release_curl(struct http_adapter *adapter);

static void finish_done(struct http_adapter *adapter)
{
    CURLMsg *message;
    int left;
    adapter->finishing = true;
    while (!adapter->closing && (message = curl_multi_info_read(adapter->multi, &left))) {
        struct exchange *exchange = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        finish(exchange, code);
    }
    adapter->finishing = false;
    if (adapter->closing)
        release_curl(adapter);
}

static void report_unsent(struct http_adapter *adapter)
{
    struct exchange *list = adapter->unsent;
    adapter->unsent = NULL; /* what callers send meanwhile waits for the next turn */
    while (list) {
        struct exchange *exchange = list;
        list = exchange->next;
        exchange->next = NULL;
        struct http_reply reply = {.end = HTTP_END_LOST, .detail = exchange->refusal.text};
        answer(exchange, &reply);
        exchange_give_back(exchange);
    }
}

static void on_deferred(uv_timer_t *timer)
{
    struct http_adapter *adapter = timer->data;
    adapter->finishing = true;
    report_unsent(adapter);
    adapter->finishing = false;
    if (adapter->closing)
        release_curl(adapter);
}

/* ---- the loop ---- */

/* libcurl writes a request, or its first part, in the same turn in which it asks whether it may. */
static void mark_written(struct http_adapter *adapter)
{
    MARK_IF(adapter->let_out, request_written);
    adapter->let_out = false;
}

static void on_ready(uv_poll_t *poll, int status, int uv_events)
{
    struct http_adapter *adapter = poll->data;
    struct epoll_event events[EVENTS_PER_WAIT];
    int running;
    (void)status;
    (void)uv_events;
    int count = epoll_wait(adapter->epoll, events, EVENTS_PER_WAIT, 0);
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd;
        uint32_t mask = events[i].events;
        if (!watch_of(adapter, fd)->wanted) {
            watch_remove(adapter,
                         fd); /* an idle connection was closed by the other side: libcurl sees it when it looks */
            continue;
        }
        int action = (mask & EPOLLIN ? CURL_CSELECT_IN : 0) | (mask & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                     (mask & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(adapter->multi, fd, action, &running);
    }
    mark_written(adapter);
    finish_done(adapter);
}

static void on_timer(uv_timer_t *timer)
{
    struct http_adapter *adapter = timer->data;
    int running;
    curl_multi_socket_action(adapter->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    mark_written(adapter);
    finish_done(adapter);
}

static int set_timer(CURLM *multi, long timeout_ms, void *user)
{
    struct http_adapter *adapter = user;
    (void)multi;
    if (timeout_ms < 0)
        uv_timer_stop(&adapter->timer);
    else
        uv_timer_start(&adapter->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

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

static enum err_code init_curl(struct http_adapter *adapter, struct err *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ERR_IO, "libcurl cannot be initialised");
    adapter->multi = curl_multi_init();
    adapter->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!adapter->multi || adapter->epoll < 0)
        return err_set(err, ERR_IO, "no event set for the HTTP client: %m");
    curl_multi_setopt(adapter->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(adapter->multi, CURLMOPT_SOCKETDATA, adapter);
    curl_multi_setopt(adapter->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(adapter->multi, CURLMOPT_TIMERDATA, adapter);
    curl_multi_setopt(adapter->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return ERR_NONE;
}

enum err_code http_adapter_new(uv_loop_t *loop, struct adapter **out, struct err *err)
{
    struct http_adapter *adapter = mem_zero(sizeof *adapter);
    adapter->base.ops = &http_ops;
    adapter->loop = loop;
    adapter->epoll = -1;
    enum err_code code = init_curl(adapter, err);
    if (code == ERR_NONE && uv_poll_init(loop, &adapter->poll, adapter->epoll) != 0)
        code = err_set(err, ERR_IO, "the event loop does not take the HTTP client");
    if (code != ERR_NONE) {
        curl_multi_cleanup(adapter->multi);
        if (adapter->epoll >= 0)
            close(adapter->epoll);
        free(adapter);
        return code;
    }
    uv_timer_init(loop, &adapter->timer);
    uv_timer_init(loop, &adapter->deferred);
    adapter->poll.data = adapter->timer.data = adapter->deferred.data = adapter;
    adapter->open_handles = 3;
    uv_poll_start(&adapter->poll, UV_READABLE, on_ready);
    *out = &adapter->base;
    return ERR_NONE;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_adapter *adapter = handle->data;
    if (--adapter->open_handles > 0)
        return;
    void (*closed)(void *user) = adapter->closed;
    void *user = adapter->closed_user;
    close(adapter->epoll);
    free(adapter->watches);
    free(adapter);
    if (closed)
        closed(user);
}

static void release_curl(struct http_adapter *adapter)
{
    while (adapter->busy) {
        snprintf(adapter->busy->error, sizeof adapter->busy->error, "onced stopped before the answer");
        finish(adapter->busy, CURLE_RECV_ERROR);
    }
    while (adapter->unsent)
        report_unsent(adapter);
    for (size_t i = 0; i < adapter->pool_count; i++)
        pool_free(adapter->pools[i]);
    free(adapter->pools);
    curl_multi_cleanup(adapter->multi);
    uv_close((uv_handle_t *)&adapter->poll, on_handle_closed);
    uv_close((uv_handle_t *)&adapter->timer, on_handle_closed);
    uv_close((uv_handle_t *)&adapter->deferred, on_handle_closed);
}

void http_adapter_close(struct adapter *base, void (*closed)(void *user), void *user)
{
    struct http_adapter *adapter = http_adapter_of(base);
    adapter->closing = true;
    adapter->closed = closed;
    adapter->closed_user = user;
    if (!adapter->finishing)
        release_curl(adapter);
}
