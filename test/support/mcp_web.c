#include "support/mcp_web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES_MAX ((size_t)8 * 1024 * 1024)

static int64_t steady_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the record ---- */

static char *copy(const char *p, size_t n)
{
    char *out = malloc(n + 1);
    memcpy(out, p, n);
    out[n] = '\0';
    return out;
}

static void read_rpc(struct mcp_web_request *request)
{
    struct arena arena;
    struct json *value = NULL;
    struct json_limits limits = json_limits_default;
    struct buf id;
    limits.bytes_max = REQUEST_BYTES_MAX;
    arena_init(&arena);
    buf_init(&id, 0);
    if (*request->body && json_parse(&arena, str_of(request->body), &limits, &value, NULL) == ERR_NONE) {
        struct str method = json_get_text(value, "method");
        if (method.p)
            request->rpc = copy(method.p, method.n);
        if (json_get(value, "id"))
            json_write(&id, json_get(value, "id"));
    }
    if (!request->rpc)
        request->rpc = copy("", 0);
    request->id = copy(buf_str(&id).p, id.n);
    buf_release(&id);
    arena_release(&arena);
}

static const struct mcp_web_request *record(struct mcp_web *web, int fd, const char *head, size_t head_bytes,
                                            const char *body, size_t body_bytes)
{
    struct mcp_web_request *request = calloc(1, sizeof *request);
    request->web = web;
    request->fd = fd;
    request->at_ms = steady_ms();
    request->head = copy(head, head_bytes);
    request->body = copy(body, body_bytes);
    snprintf(request->method, sizeof request->method, "%.*s", (int)strcspn(request->head, " "), request->head);
    read_rpc(request);
    pthread_mutex_lock(&web->lock);
    unsigned count = web->count;
    if (count >= MCP_WEB_REQUESTS_MAX)
        abort();
    request->number = count + 1;
    web->requests[count] = request;
    web->count = count + 1;
    pthread_mutex_unlock(&web->lock);
    return request;
}

static bool is(const struct mcp_web_request *request, const char *method)
{
    return strcmp(request->rpc, method) == 0 || (strcmp(request->method, method) == 0 && !*request->rpc);
}

const struct mcp_web_request *mcp_web_find(struct mcp_web *web, const char *method, unsigned n)
{
    const struct mcp_web_request *found = NULL;
    pthread_mutex_lock(&web->lock);
    for (unsigned i = 0; i < web->count && !found; i++) {
        if (is(web->requests[i], method) && n-- == 0)
            found = web->requests[i];
    }
    pthread_mutex_unlock(&web->lock);
    return found;
}

unsigned mcp_web_times(struct mcp_web *web, const char *method)
{
    unsigned times = 0;
    while (mcp_web_find(web, method, times))
        times++;
    return times;
}

const char *mcp_web_header(const struct mcp_web_request *request, const char *name)
{
    static _Thread_local char value[2048];
    size_t n = strlen(name);
    for (const char *line = strstr(request->head, "\r\n"); line && line[2] && line[2] != '\r';
         line = strstr(line + 2, "\r\n")) {
        const char *at = line + 2;
        if (strncasecmp(at, name, n) != 0 || at[n] != ':')
            continue;
        at += n + 1;
        at += strspn(at, " \t");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
        return value;
    }
    return NULL;
}

struct json *mcp_web_body(const struct mcp_web_request *request, struct arena *arena)
{
    struct json *value = NULL;
    json_parse(arena, str_of(request->body), NULL, &value, NULL);
    return value;
}

/* ---- connections ---- */

struct connection {
    struct mcp_web *web;
    int fd;
    unsigned slot;
};

static size_t body_bytes_of(const char *head)
{
    const char *length = strcasestr(head, "\r\nContent-Length:");
    return length ? strtoul(length + 17, NULL, 10) : 0;
}

/* Whole requests until the other side closes, or the handler wants it. */
static void serve(struct connection *connection, char *text)
{
    size_t n = 0;
    while (!connection->web->stopping) {
        char *end = n ? memmem(text, n, "\r\n\r\n", 4) : NULL;
        size_t head = end ? (size_t)(end - text) + 4 : 0;
        size_t whole = head ? head + body_bytes_of(text) : 0;
        if (head && n >= whole) {
            const struct mcp_web_request *request =
                record(connection->web, connection->fd, text, head, text + head, whole - head);
            if (!connection->web->handler(request))
                return;
            memmove(text, text + whole, n - whole);
            n -= whole;
            text[n] = '\0';
            continue;
        }
        ssize_t got = recv(connection->fd, text + n, REQUEST_BYTES_MAX - 1 - n, 0);
        if (got <= 0)
            return;
        n += (size_t)got;
        text[n] = '\0';
    }
}

static void *connection_main(void *user)
{
    struct connection *connection = user;
    struct mcp_web *web = connection->web;
    char *text = malloc(REQUEST_BYTES_MAX);
    serve(connection, text);
    free(text);
    web->fds[connection->slot] = -1;
    shutdown(connection->fd, SHUT_RDWR);
    close(connection->fd);
    free(connection);
    web->open--;
    return NULL;
}

static void take(struct mcp_web *web, int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct connection *connection = calloc(1, sizeof *connection);
    *connection = (struct connection){web, fd, web->connections++};
    if (connection->slot >= MCP_WEB_REQUESTS_MAX)
        abort();
    web->fds[connection->slot] = fd;
    web->open++;
    pthread_t thread;
    if (pthread_create(&thread, NULL, connection_main, connection) != 0)
        abort();
    pthread_detach(thread);
}

static void *web_main(void *user)
{
    struct mcp_web *web = user;
    while (!web->stopping) {
        int fd = accept(web->listener, NULL, NULL);
        if (fd >= 0 && !web->stopping)
            take(web, fd);
        else if (fd >= 0)
            close(fd);
        else if (errno != EINTR)
            break;
    }
    return NULL;
}

void mcp_web_begin(struct mcp_web *web, mcp_web_fn *handler)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1;
    memset(web, 0, sizeof *web);
    web->handler = handler;
    for (unsigned i = 0; i < MCP_WEB_REQUESTS_MAX; i++)
        web->fds[i] = -1;
    pthread_mutex_init(&web->lock, NULL);
    snprintf(web->session, sizeof web->session, "session-1");
    web->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(web->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(web->listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(web->listener, 64) != 0)
        abort();
    getsockname(web->listener, (struct sockaddr *)&address, &size);
    web->port = ntohs(address.sin_port);
    if (pthread_create(&web->thread, NULL, web_main, web) != 0)
        abort();
}

void mcp_web_end(struct mcp_web *web)
{
    web->stopping = true;
    shutdown(web->listener, SHUT_RDWR);
    pthread_join(web->thread, NULL);
    close(web->listener);
    for (int i = 0; i < 1000 && web->open > 0; i++) {
        for (unsigned k = 0; k < MCP_WEB_REQUESTS_MAX; k++) {
            if (web->fds[k] >= 0)
                shutdown(web->fds[k], SHUT_RDWR);
        }
        mcp_web_sleep(5);
    }
    if (web->open > 0)
        abort();
    for (unsigned i = 0; i < web->count; i++) {
        struct mcp_web_request *request = web->requests[i];
        free((char *)request->head);
        free((char *)request->body);
        free((char *)request->rpc);
        free((char *)request->id);
        free(request);
    }
    pthread_mutex_destroy(&web->lock);
}

/* ---- for handlers ---- */

void mcp_web_sleep(int ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

void mcp_web_say(int fd, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        text += sent;
        n -= (size_t)sent;
    }
}

static void say_buf(int fd, struct buf *text)
{
    mcp_web_say(fd, text->p);
    buf_release(text);
}

void mcp_web_answer(const struct mcp_web_request *request, int status, const char *type, const char *more,
                    const char *body)
{
    struct buf text;
    buf_init(&text, 0);
    buf_printf(&text, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s", status, type ? strlen(body) : 0, more);
    if (type)
        buf_printf(&text, "Content-Type: %s\r\n", type);
    buf_add_text(&text, "\r\n");
    if (type)
        buf_add_text(&text, body);
    say_buf(request->fd, &text);
}

static void add_quoted(struct buf *out, const char *text)
{
    for (; *text; text++)
        buf_add_char(out, *text == '\'' ? '"' : *text);
}

static void member(struct buf *out, const struct mcp_web_request *request, const char *name, const char *value)
{
    buf_printf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"%s\":", *request->id ? request->id : "null", name);
    add_quoted(out, value);
    buf_add_char(out, '}');
}

void mcp_web_result(const struct mcp_web_request *request, const char *result)
{
    struct buf body, more;
    buf_init(&body, 0);
    buf_init(&more, 0);
    member(&body, request, "result", result);
    buf_add_text(&more, "");
    if (strcmp(request->rpc, "initialize") == 0 && *request->web->session)
        buf_printf(&more, "Mcp-Session-Id: %s\r\n", request->web->session);
    mcp_web_answer(request, 200, "application/json", buf_str(&more).p, body.p);
    buf_release(&body);
    buf_release(&more);
}

void mcp_web_error(const struct mcp_web_request *request, int status, const char *error)
{
    struct buf body;
    buf_init(&body, 0);
    member(&body, request, "error", error);
    mcp_web_answer(request, status, "application/json", "", body.p);
    buf_release(&body);
}

void mcp_web_stream(const struct mcp_web_request *request)
{
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(&text, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n");
    if (strcmp(request->rpc, "initialize") == 0 && *request->web->session)
        buf_printf(&text, "Mcp-Session-Id: %s\r\n", request->web->session);
    buf_add_text(&text, "\r\n");
    say_buf(request->fd, &text);
}

void mcp_web_event(const struct mcp_web_request *request, const char *id, const char *retry, const char *data)
{
    struct buf text;
    buf_init(&text, 0);
    if (id)
        buf_printf(&text, "id: %s\n", id);
    if (retry)
        buf_printf(&text, "retry: %s\n", retry);
    buf_add_text(&text, "data: ");
    add_quoted(&text, data);
    buf_add_text(&text, "\n\n");
    say_buf(request->fd, &text);
}

void mcp_web_event_result(const struct mcp_web_request *request, const char *id, const char *result)
{
    struct buf body;
    buf_init(&body, 0);
    member(&body, request, "result", result);
    mcp_web_event(request, id, NULL, body.p);
    buf_release(&body);
}

bool mcp_web_closed(int fd, int ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&poll_fd, 1, ms) == 1 && recv(fd, &byte, 1, MSG_PEEK) <= 0;
}

#define TOOLS                                                                                                          \
    "{'resultType':'complete','ttlMs':0,'cacheScope':'private','tools':[{'name':'tool','inputSchema':"                 \
    "{'type':'object','properties':{'region':{'type':'string','x-mcp-header':'Region'},'deep':{'type':'object',"       \
    "'properties':{'n':{'type':'integer','x-mcp-header':'N'}}}}}},{'name':'broken','inputSchema':{'type':'object',"    \
    "'properties':{'n':{'type':'number','x-mcp-header':'N'}}}}]}"

bool mcp_web_legacy(const struct mcp_web_request *request, bool *done)
{
    *done = true;
    if (strcmp(request->method, "GET") == 0)
        mcp_web_answer(request, 405, NULL, "", "");
    else if (strcmp(request->method, "DELETE") == 0)
        mcp_web_answer(request, 200, NULL, "", "");
    else if (strcmp(request->rpc, "server/discover") == 0)
        mcp_web_error(request, 400, "{'code':-32000,'message':'Bad Request: no session'}");
    else if (strcmp(request->rpc, "initialize") == 0)
        mcp_web_result(request, "{'protocolVersion':'2025-11-25','capabilities':{'tools':{}},'serverInfo':{'name':'w',"
                                "'version':'1'}}");
    else if (strcmp(request->rpc, "tools/list") == 0)
        mcp_web_result(request, TOOLS);
    else if (!*request->rpc || strncmp(request->rpc, "notifications/", 14) == 0)
        mcp_web_answer(request, 202, NULL, "", "");
    else
        *done = false;
    return true;
}

bool mcp_web_modern(const struct mcp_web_request *request, bool *done)
{
    *done = true;
    if (strcmp(request->method, "POST") != 0)
        mcp_web_answer(request, 405, NULL, "", "");
    else if (strcmp(request->rpc, "server/discover") == 0)
        mcp_web_result(request, "{'resultType':'complete','supportedVersions':['2026-07-28'],'capabilities':{'tools':"
                                "{}},'ttlMs':0,'cacheScope':'private'}");
    else if (strcmp(request->rpc, "tools/list") == 0)
        mcp_web_result(request, TOOLS);
    else
        *done = false;
    return true;
}
