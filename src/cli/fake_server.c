#include "cli/fake_server.h"

#include "base/env.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SPARE_REQUESTS_MAX 1024
#define RAW_PIECES         20 /* a dripped answer comes in this many */

/* ---- requests ---- */

static void on_hold_over(struct fake_timer *timer);

static struct fake_request *request_new(struct fake *fake)
{
    struct fake_request *request = fake->spare;
    if (request) {
        fake->spare = request->older;
        fake->spare_count--;
        struct arena arena = request->arena;
        struct buf body = request->body, answer = request->answer, raw = request->raw;
        memset(request, 0, sizeof *request);
        request->arena = arena;
        request->body = body;
        request->answer = answer;
        request->raw = raw;
    } else {
        request = mem_zero(sizeof *request);
        arena_init(&request->arena);
        buf_init(&request->body, FAKE_BODY_MAX);
        buf_init(&request->answer, 0);
        buf_init(&request->raw, 0);
    }
    request->fake = fake;
    request->collection = -1;
    request->retry_after_s = -1;
    request->content_type = "application/json";
    request->hold_timer = (struct fake_timer){.fire = on_hold_over, .user = request};
    request->commit_timer.user = request;
    request->older = fake->newest;
    if (fake->newest)
        fake->newest->newer = request;
    fake->newest = request;
    return request;
}

static void request_destroy(struct fake_request *request)
{
    arena_release(&request->arena);
    buf_release(&request->body);
    buf_release(&request->answer);
    buf_release(&request->raw);
    free(request);
}

void fake_request_done(struct fake_request *request)
{
    struct fake *fake = request->fake;
    if (request->connection || request->commit_timer.place)
        return;
    fake_timer_stop(&fake->timers, &request->hold_timer);
    fake_webhooks_forget(request);
    *(request->newer ? &request->newer->older : &fake->newest) = request->older;
    if (request->older)
        request->older->newer = request->newer;
    if (fake->spare_count == SPARE_REQUESTS_MAX || request->answer.cap > 64 << 10 || request->body.cap > 64 << 10) {
        request_destroy(request);
        return;
    }
    arena_reset(&request->arena);
    buf_reset(&request->body);
    buf_reset(&request->answer);
    buf_reset(&request->raw);
    request->older = fake->spare;
    fake->spare = request;
    fake->spare_count++;
}

struct fake_entry *fake_request_entry(struct fake_request *request)
{
    return fake_log_find(&request->fake->log, request->n);
}

static void log_outcome(struct fake_request *request, enum fake_outcome outcome, int status)
{
    struct fake_entry *entry = fake_request_entry(request);
    if (!entry || entry->outcome != OUTCOME_OPEN)
        return;
    entry->outcome = outcome;
    entry->status = status;
    entry->answered_ms = env_system()->now_ms(env_system());
}

void fake_answer_error(struct fake_request *request, int status, const char *code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buf_reset(&request->answer);
    buf_add_text(&request->answer, "{\"error\":{\"code\":");
    json_write_string(&request->answer, str_of(code));
    buf_add_text(&request->answer, ",\"message\":");
    json_write_string(&request->answer, str_of(text));
    buf_add_text(&request->answer, "}}");
    request->status = status;
}

struct str fake_request_query(const struct fake_request *request, const char *name)
{
    return str_of(MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name));
}

struct str fake_request_header(const struct fake_request *request, const char *name)
{
    return str_of(MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name));
}

/* ---- holding and raw delivery ---- */

static int socket_of(const struct fake_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

/* The library forgets the socket while a connection is suspended; we watch it for the client's leaving. */
static void suspend(struct fake_request *request)
{
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = request};
    MHD_suspend_connection(request->connection);
    request->suspended = true;
    epoll_ctl(request->fake->epoll_fd, EPOLL_CTL_ADD, socket_of(request), &event);
}

void fake_request_ready(struct fake_request *request)
{
    request->phase = PHASE_READY;
    fake_timer_stop(&request->fake->timers, &request->hold_timer);
    fake_webhooks_forget(request);
    if (!request->connection) {
        fake_request_done(request);
        return;
    }
    if (!request->suspended)
        return;
    epoll_ctl(request->fake->epoll_fd, EPOLL_CTL_DEL, socket_of(request), NULL);
    request->suspended = false;
    MHD_resume_connection(request->connection);
}

static void client_left(struct fake_request *request)
{
    request->delivery = DELIVER_CLOSE;
    log_outcome(request, OUTCOME_LEFT, 0);
    fake_request_ready(request);
}

static void compose_raw(struct fake_request *request)
{
    buf_reset(&request->raw);
    buf_printf(&request->raw,
               "HTTP/1.1 %d Fake\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
               request->status, request->content_type, request->answer.n);
    buf_add_str(&request->raw, buf_str(&request->answer));
}

/* The rest is sent as far as the socket takes it; false when it takes no more. */
static bool send_raw(struct fake_request *request, size_t until)
{
    while (request->raw_sent < until) {
        ssize_t sent = send(socket_of(request), request->raw.p + request->raw_sent, until - request->raw_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0)
            return false;
        request->raw_sent += (size_t)sent;
    }
    return true;
}

/* One more piece; true when there are more to come. */
static bool drip(struct fake_request *request)
{
    size_t piece = (request->raw.n + RAW_PIECES - 1) / RAW_PIECES;
    size_t until = request->raw_sent + piece < request->raw.n ? request->raw_sent + piece : request->raw.n;
    if (!send_raw(request, until) && errno != EAGAIN) {
        log_outcome(request, OUTCOME_LEFT, 0);
        return false;
    }
    if (request->raw_sent < request->raw.n)
        return true;
    log_outcome(request, OUTCOME_ANSWERED, request->status);
    return false;
}

static void start_drip(struct fake_request *request)
{
    int on = 1;
    setsockopt(socket_of(request), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    compose_raw(request);
    request->phase = PHASE_HELD;
    suspend(request);
    fake_timer_start(&request->fake->timers, &request->hold_timer, request->fake->now_ms);
}

static void on_hold_over(struct fake_timer *timer)
{
    struct fake_request *request = timer->user;
    if (request->delivery == DELIVER_DRIP && request->raw.n) {
        if (drip(request)) {
            fake_timer_start(&request->fake->timers, timer, request->fake->now_ms + request->drip_ms / RAW_PIECES);
            return;
        }
        request->delivery = DELIVER_CLOSE;
    }
    fake_request_ready(request);
}

/* Leaves the connection to itself (TCP disconnect), which sends RST at once. */
static void reset_socket(struct fake_request *request)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_of(request), SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    (void)connect(socket_of(request), &none, sizeof none);
}

static void add_headers(struct fake_request *request, struct MHD_Response *response)
{
    char number[32];
    if (request->answer.n)
        MHD_add_response_header(response, "Content-Type", request->content_type);
    if (request->location)
        MHD_add_response_header(response, "Location", request->location);
    if (request->challenge)
        MHD_add_response_header(response, "WWW-Authenticate", request->challenge);
    if (request->replayed)
        MHD_add_response_header(response, "Idempotent-Replayed", "true");
    if (request->retry_after_s >= 0) {
        fake_number_text(number, (uint64_t)request->retry_after_s);
        MHD_add_response_header(response, "Retry-After", number);
    }
    if (request->etag) {
        number[0] = '"';
        strcpy(number + 1 + fake_number_text(number + 1, request->etag), "\"");
        MHD_add_response_header(response, "ETag", number);
    }
    if (request->n) {
        memcpy(number, "fake_", 6);
        fake_number_text(number + 5, request->n);
        MHD_add_response_header(response, "Request-Id", number);
    }
}

static enum MHD_Result send_answer(struct fake_request *request)
{
    /* Persistent: the answer lives in the request, which the library reports as completed before it is freed. */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(request->answer.n, request->answer.p, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    add_headers(request, response);
    enum MHD_Result result = MHD_queue_response(request->connection, (unsigned)request->status, response);
    MHD_destroy_response(response);
    log_outcome(request, OUTCOME_ANSWERED, request->status);
    return result;
}

/* MHD_NO makes the library close the connection. */
static enum MHD_Result deliver(struct fake_request *request)
{
    switch (request->delivery) {
    case DELIVER_ANSWER: return send_answer(request);
    case DELIVER_CLOSE: log_outcome(request, OUTCOME_CLOSED, 0); return MHD_NO;
    case DELIVER_NEVER: log_outcome(request, OUTCOME_CLOSED, 0); return MHD_NO;
    case DELIVER_RESET:
        reset_socket(request);
        log_outcome(request, OUTCOME_RESET, 0);
        return MHD_NO;
    case DELIVER_TRUNCATE:
        compose_raw(request);
        send_raw(request, request->raw.n - request->answer.n / 2);
        log_outcome(request, OUTCOME_BROKEN, request->status);
        return MHD_NO;
    case DELIVER_DRIP: start_drip(request); return MHD_YES;
    }
    return MHD_NO;
}

/* ---- the library's callbacks ---- */

static void *on_uri(void *user, const char *uri, struct MHD_Connection *connection)
{
    struct fake_request *request = request_new(user);
    request->connection = connection;
    request->uri = arena_str(&request->arena, str_of(uri));
    return request;
}

static enum fake_method method_of(const char *method)
{
    static const char *const names[] = {"GET", "POST", "PUT", "DELETE"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(method, names[i]) == 0)
            return (enum fake_method)i;
    }
    return METHOD_OTHER;
}

/* The request is complete: what is to happen? */
static void start(struct fake_request *request, const char *method, const char *path)
{
    struct fake *fake = request->fake;
    request->path = arena_str(&request->arena, str_of(path));
    request->method = method_of(method);
    request->phase = PHASE_READY;
    if (request->path.n >= 6 && memcmp(path, "/_fake", 6) == 0) {
        fake_control_start(request);
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    request->connection_number = info && info->socket_context ? *(uint64_t *)info->socket_context : 0;
    fake->store.totals.requests++;
    request->n =
        fake_log_add(&fake->log, request->connection_number, env_system()->now_ms(env_system()), method, request->uri);
    if (request->body.over)
        fake_answer_error(request, 413, "too_large", "the body is larger than %d bytes", FAKE_BODY_MAX);
    else
        fake_api_start(request);
    if (request->delivery == DELIVER_NEVER)
        request->hold_ms = -1;
    bool waits = fake_webhooks_hold(request); /* then the hold begins when the webhook is over */
    if (request->hold_ms || request->phase == PHASE_HELD || waits)
        request->phase = PHASE_HELD;
    if (request->hold_ms > 0 && !waits)
        fake_timer_start(&fake->timers, &request->hold_timer, fake->now_ms + request->hold_ms);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *data, size_t *size, void **con_cls)
{
    (void)user;
    (void)connection;
    (void)version;
    struct fake_request *request = *con_cls;
    if (request->fake->stopping)
        return MHD_NO;
    if (*size) {
        buf_add(&request->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (request->phase == PHASE_RECEIVING && !request->headers_seen) {
        request->headers_seen = true;
        return MHD_YES;
    }
    if (request->phase == PHASE_RECEIVING)
        start(request, method, path);
    if (request->phase == PHASE_HELD) {
        suspend(request);
        return MHD_YES;
    }
    return deliver(request);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    (void)user;
    (void)connection;
    struct fake_request *request = *con_cls;
    *con_cls = NULL;
    if (!request)
        return;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        log_outcome(request, OUTCOME_LEFT, 0);
    request->connection = NULL;
    fake_request_done(request);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)connection;
    struct fake *fake = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        uint64_t *number = mem_alloc(sizeof *number);
        *number = ++fake->connections;
        *context = number;
    } else {
        free(*context);
        *context = NULL;
    }
}

/* ---- server ---- */

static void cancel(struct fake_request *request)
{
    fake_timer_stop(&request->fake->timers, &request->commit_timer);
    request->key = NULL;
    if (!request->connection) {
        fake_request_done(request);
    } else if (request->suspended) {
        request->delivery = DELIVER_CLOSE;
        fake_request_ready(request);
    }
}

static void cancel_all(struct fake *fake)
{
    struct fake_request *older;
    for (struct fake_request *request = fake->newest; request; request = older) {
        older = request->older;
        cancel(request);
    }
}

void fake_server_reset(struct fake *fake)
{
    cancel_all(fake);
    fake_store_reset(&fake->store);
    fake_log_reset(&fake->log);
    fake_counts_release(&fake->lookups);
    fake_script_release(&fake->script);
    fake_webhooks_reset(fake);
    memset(fake->fault_used, 0, sizeof fake->fault_used);
    fake->config = fake->options.config;
}

void fake_server_release(struct fake *fake)
{
    for (struct fake_request *request = fake->newest; request; request = request->older) {
        bool commits = request->commit_timer.place;
        if (commits)
            fake_timer_start(&fake->timers, &request->commit_timer, fake->now_ms);
        if (fake_webhooks_hold(request))
            request->hold_ms = 0;
        else if (request->phase == PHASE_HELD &&
                 (!commits || request->hold_ms < 0)) /* a slow one waits for its commit */
            fake_timer_start(&fake->timers, &request->hold_timer, fake->now_ms);
    }
}

static enum err_code listen_on(const struct fake_options *options, int *out, unsigned *port, struct err *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    socklen_t size = sizeof address;
    int on = 1;
    if (inet_pton(AF_INET, options->listen, &address.sin_addr) != 1)
        return err_set(err, ERR_INVALID, "\"%s\" is not an IPv4 address", options->listen);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, ERR_IO, "socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096) ||
        getsockname(fd, (struct sockaddr *)&address, &size)) {
        err_set(err, ERR_IO, "cannot listen on %s:%u: %s", options->listen, options->port, strerror(errno));
        close(fd);
        return ERR_IO;
    }
    *out = fd;
    *port = ntohs(address.sin_port);
    return ERR_NONE;
}

static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static enum err_code start_library(struct fake *fake, int listen_fd, struct err *err)
{
    fake->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_TURBO | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_SUPPRESS_DATE_NO_CLOCK, 0,
                         NULL, NULL, on_request, fake, MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_LIMIT,
                         fake->options.connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)12 << 10,
                         MHD_OPTION_URI_LOG_CALLBACK, on_uri, fake, MHD_OPTION_NOTIFY_COMPLETED, on_completed, fake,
                         MHD_OPTION_NOTIFY_CONNECTION, on_connection, fake, MHD_OPTION_END);
    if (!fake->daemon)
        return err_set(err, ERR_IO, "the HTTP server library does not start: %s", strerror(errno));
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(fake->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (!info || epoll_ctl(fake->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &event))
        return err_set(err, ERR_IO, "epoll: %s", strerror(errno));
    return ERR_NONE;
}

enum err_code fake_server_new(const struct fake_options *options, struct fake **out, struct err *err)
{
    int listen_fd = -1;
    unsigned port = 0;
    enum err_code code = listen_on(options, &listen_fd, &port, err);
    if (code)
        return code;
    raise_file_limit();
    struct fake *fake = mem_zero(sizeof *fake);
    fake->options = *options;
    fake->config = options->config;
    fake->port = port;
    fake->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    fake->now_ms = fake_clock_ms();
    fake_store_init(&fake->store, options->objects_max);
    fake_log_init(&fake->log, options->requests_max);
    fake_script_init(&fake->script);
    fake_timers_init(&fake->timers);
    fake_webhooks_init(&fake->webhooks);
    code = start_library(fake, listen_fd, err);
    if (code) {
        if (!fake->daemon)
            close(listen_fd);
        fake_server_free(fake);
        return code;
    }
    *out = fake;
    return ERR_NONE;
}

void fake_server_free(struct fake *fake)
{
    if (!fake)
        return;
    fake->stopping = true;
    if (fake->daemon) {
        cancel_all(fake);
        MHD_run(fake->daemon); /* lets resumed connections close */
        MHD_stop_daemon(fake->daemon);
    }
    cancel_all(fake);
    while (fake->spare) {
        struct fake_request *request = fake->spare;
        fake->spare = request->older;
        request_destroy(request);
    }
    fake_store_release(&fake->store);
    fake_log_release(&fake->log);
    fake_counts_release(&fake->lookups);
    fake_script_release(&fake->script);
    fake_webhooks_release(fake);
    fake_timers_release(&fake->timers);
    if (fake->epoll_fd >= 0)
        close(fake->epoll_fd);
    free(fake);
}

void fake_server_round(struct fake *fake, int wait_ms)
{
    struct epoll_event events[64];
    MHD_UNSIGNED_LONG_LONG library_ms;
    int wait = fake_timers_wait(&fake->timers, fake_clock_ms(), wait_ms);
    if (MHD_get_timeout(fake->daemon, &library_ms) == MHD_YES && library_ms < (MHD_UNSIGNED_LONG_LONG)wait)
        wait = (int)library_ms;
    wait = fake_webhooks_wait(fake, wait);
    int count = epoll_wait(fake->epoll_fd, events, 64, wait);
    fake->now_ms = fake_clock_ms();
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr)
            client_left(events[i].data.ptr);
    }
    fake_timers_run(&fake->timers, fake->now_ms);
    fake_webhooks_run(fake);
    MHD_run(fake->daemon);
}
