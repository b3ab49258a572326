#include "door/http_parts.h"

#include "base/digits.h"
#include "base/log.h"
#include "base/mem.h"
#include "door/auth.h"
#include "door/mcp_http.h"
#include "door/openapi.h"
#include "door/rest.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LISTEN_BACKLOG   1024
#define SURPLUS_MAX      64  /* connections beyond the limit that are told so */
#define SPARE_MAX        256 /* exchanges kept for use again */
#define SPARE_BUFFER_MAX (16 * 1024)
#define QUERY_MAX        32
#define TICK_MS          1000
#define SWEEP_MS         50 /* callers that wait longer than this are watched for leaving */
#define RUNS_MAX         16 /* of libmicrohttpd in one turn of the loop */
#define DISCARD_BODIES   8  /* a refused body is read to its end up to so many times the limit … */
#define CLOSE_MS         1000
#define HEADER_NAME_MAX  16
#define DOOR_HANDLES     6

const char *header_name(enum header header)
{
    static const char *const names[] = {
#define X(constant, name) name,
        HEADERS(X)
#undef X
    };
    return names[header];
}

struct door_parts *exchange_parts(struct exchange *exchange)
{
    return &exchange->door->parts;
}

/* ---- turns of the loop ----
 *
 * libmicrohttpd is run once per turn, after all events of the turn: many answers and requests share its system calls.
 */

static void idle_turn(uv_idle_t *idle)
{
    (void)idle; /* only keeps the loop from sleeping */
}

void http_want_run(struct http_door *door)
{
    door->run_needed = true;
    if (!door->idle_on) {
        door->idle_on = true;
        uv_idle_start(&door->idle, idle_turn);
    }
}

static void run(struct http_door *door)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms = 1;
    door->run_needed = false;
    for (unsigned i = 0; i < RUNS_MAX; i++) {
        MHD_run(door->mhd);
        if (MHD_get_timeout(door->mhd, &timeout_ms) != MHD_YES || timeout_ms > 0)
            break;
        timeout_ms = 0;
    }
    if (timeout_ms == 0)
        http_want_run(door);
    if (!door->run_needed && door->idle_on) {
        door->idle_on = false;
        uv_idle_stop(&door->idle);
    }
}

static void run_if_needed(struct http_door *door)
{
    if (door->run_needed && door->mhd)
        run(door);
}

static void turn(struct http_door *door)
{
    run_if_needed(door);
    streams_tell_lost(door);
}

static void prepared(uv_prepare_t *prepare)
{
    turn(prepare->data);
}

static void checked(uv_check_t *check)
{
    turn(check->data);
}

static void readable(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct http_door *door = poll->data;
    door->run_needed = true; /* the check phase of this turn does it */
}

/* ---- exchanges ---- */

static struct exchange *exchange_new(struct http_door *door)
{
    struct exchange *exchange = door->spare;
    if (exchange) {
        door->spare = exchange->next;
        door->spare_count--;
    } else {
        exchange = mem_zero(sizeof *exchange);
        arena_init(&exchange->arena);
        buf_init(&exchange->body, door->parts.body_bytes_max);
        buf_init(&exchange->answer, 0);
    }
    exchange->next = NULL;
    exchange->door = door;
    exchange->engine = door->engine;
    door->active++;
    return exchange;
}

static void exchange_free(struct exchange *exchange)
{
    arena_release(&exchange->arena);
    buf_release(&exchange->body);
    buf_release(&exchange->answer);
    free(exchange);
}

static void trim(struct buf *buf)
{
    if (buf->cap > SPARE_BUFFER_MAX)
        buf_release(buf);
    else
        buf_reset(buf);
}

void http_recycle(struct exchange *exchange)
{
    struct http_door *door = exchange->door;
    door->active--;
    stream_free(exchange->stream);
    exchange->stream = NULL;
    if (door->spare_count >= SPARE_MAX || door->closing) {
        exchange_free(exchange);
        return;
    }
    arena_reset(&exchange->arena);
    if (exchange->arena.bytes > SPARE_BUFFER_MAX)
        arena_release(&exchange->arena);
    trim(&exchange->body);
    trim(&exchange->answer);
    struct exchange clean = {.arena = exchange->arena, .body = exchange->body, .answer = exchange->answer};
    *exchange = clean;
    exchange->next = door->spare;
    door->spare = exchange;
    door->spare_count++;
}

static enum http_method method_of(const char *method)
{
    static const struct {
        const char *text;
        enum http_method method;
    } known[] = {{"POST", METHOD_POST},
                 {"GET", METHOD_GET},
                 {"HEAD", METHOD_HEAD},
                 {"DELETE", METHOD_DELETE},
                 {"OPTIONS", METHOD_OPTIONS}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(method, known[i].text) == 0)
            return known[i].method;
    }
    return METHOD_OTHER;
}

static void take_header(struct exchange *exchange, const char *name, size_t name_n, const char *value, size_t value_n)
{
    static const struct str names[] = {
#define X(constant, text) {text, sizeof(text) - 1},
        HEADERS(X)
#undef X
    };
    for (unsigned i = 0; i < HEADER_COUNT; i++) {
        if (names[i].n != name_n || strncasecmp(names[i].p, name, name_n) != 0)
            continue;
        if (exchange->headers[i].p)
            exchange->repeated |= (uint32_t)1 << i;
        else
            exchange->headers[i] = (struct str){value ? value : "", value_n};
        return;
    }
}

bool exchange_unescape(struct arena *arena, struct str text, struct str *out)
{
    char *p = arena_alloc(arena, text.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '%') {
            int high = text.n - i > 2 ? hex_value(text.p[i + 1]) : -1;
            int low = text.n - i > 2 ? hex_value(text.p[i + 2]) : -1;
            if (high < 0 || low < 0 || high + low == 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        p[n++] = c;
    }
    p[n] = '\0';
    *out = (struct str){p, n};
    return true;
}

static void take_parameter(struct exchange *exchange, struct str name, struct str value)
{
    struct query_pair **end = &exchange->query;
    unsigned count = 0;
    for (; *end; end = &(*end)->next)
        count++;
    struct query_pair *pair = arena_zero(&exchange->arena, sizeof *pair);
    if (count >= QUERY_MAX || !exchange_unescape(&exchange->arena, name, &pair->name) ||
        !exchange_unescape(&exchange->arena, value, &pair->value)) {
        exchange->bad_query = true;
        return;
    }
    *end = pair;
}

static enum MHD_Result take_value(void *user, enum MHD_ValueKind kind, const char *name, size_t name_n,
                                  const char *value, size_t value_n)
{
    if (kind == MHD_HEADER_KIND)
        take_header(user, name, name_n, value, value_n);
    else
        take_parameter(user, (struct str){name, name_n}, (struct str){value ? value : "", value_n});
    return MHD_YES;
}

struct header_search {
    struct exchange *exchange;
    struct str name, value;
};

static enum MHD_Result match_header(void *user, enum MHD_ValueKind kind, const char *name, size_t name_n,
                                    const char *value, size_t value_n)
{
    (void)kind;
    struct header_search *search = user;
    if (name_n != search->name.n || strncasecmp(name, search->name.p, name_n) != 0)
        return MHD_YES;
    struct str found = {value ? value : "", value_n};
    if (search->value.p)
        found = str_of(arena_printf(&search->exchange->arena, "%.*s, %.*s", STR_ARG(search->value), STR_ARG(found)));
    search->value = found;
    return MHD_YES;
}

struct str exchange_header(struct exchange *exchange, const char *name)
{
    struct header_search search = {exchange, str_of(name), STR_NONE};
    MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND, match_header, &search);
    return search.value;
}

/* Paths and parameters are unescaped by us: libmicrohttpd would cut at %00 and pass broken escapes on. */
static size_t keep_escaped(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user, (void)connection;
    return strlen(text);
}

/* ---- answering ---- */

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    MHD_add_response_header(response, name, value);
}

/* libmicrohttpd would print the date anew for every answer. */
static const char *date_now(struct http_door *door)
{
    int64_t now_s = (int64_t)time(NULL);
    if (now_s != door->date_s) {
        time_t at = (time_t)now_s;
        struct tm tm;
        gmtime_r(&at, &tm);
        strftime(door->date, sizeof door->date, "%a, %d %b %Y %H:%M:%S GMT", &tm); /* the program keeps the C locale */
        door->date_s = now_s;
    }
    return door->date;
}

static void add_headers(const struct exchange *exchange, struct MHD_Response *response)
{
    char text[64];
    add_header(response, "Date", date_now(exchange->door));
    if (exchange->stream) {
        add_header(response, "Cache-Control", "no-cache, no-transform");
        add_header(response, "X-Accel-Buffering", "no"); /* or proxies hold small pieces back */
    }
    if (exchange->stream || exchange->answer.n > 0 || exchange->fixed.n > 0)
        add_header(response, "Content-Type", exchange->content_type ? exchange->content_type : "application/json");
    for (unsigned i = 0; i < exchange->extra_count; i++)
        add_header(response, exchange->extra[i].name, exchange->extra[i].value);
    if (exchange->operation_id[0])
        add_header(response, "Onced-Operation-Id", exchange->operation_id);
    if (exchange->location) {
        snprintf(text, sizeof text, "/v1/operations/%s", exchange->operation_id);
        add_header(response, "Location", text);
    }
    if (exchange->replayed)
        add_header(response, "Idempotency-Replayed", "true");
    if (exchange->retry_after_s > 0) {
        snprintf(text, sizeof text, "%d", exchange->retry_after_s);
        add_header(response, "Retry-After", text);
    }
    if (exchange->allow)
        add_header(response, "Allow", exchange->allow);
    if (exchange->challenge)
        add_header(response, "WWW-Authenticate",
                   exchange->bad_token ? "Bearer realm=\"onced\", error=\"invalid_token\"" : "Bearer realm=\"onced\"");
    if (exchange->close || exchange->door->parts.stopping)
        add_header(response, "Connection", "close");
}

/* The text of a plain answer stays ours and is kept until the exchange is recycled. */
enum MHD_Result http_queue(struct exchange *exchange)
{
    struct str text = exchange->fixed.p ? exchange->fixed : buf_str(&exchange->answer);
    struct MHD_Response *response =
        exchange->stream ? stream_response(exchange)
                         : MHD_create_response_from_buffer(text.n, (void *)(uintptr_t)text.p, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    add_headers(exchange, response);
    enum MHD_Result result = MHD_queue_response(exchange->connection, (unsigned)exchange->status, response);
    MHD_destroy_response(response);
    return result;
}

static void waiting_add(struct exchange *exchange)
{
    struct http_door *door = exchange->door;
    exchange->next = NULL;
    exchange->at = door->waiting_end;
    *door->waiting_end = exchange;
    door->waiting_end = &exchange->next;
}

static void waiting_remove(struct exchange *exchange)
{
    struct http_door *door = exchange->door;
    *exchange->at = exchange->next;
    if (exchange->next)
        exchange->next->at = exchange->at;
    else
        door->waiting_end = exchange->at;
    exchange->next = NULL;
    exchange->at = NULL;
}

void http_resume(struct exchange *exchange)
{
    waiting_remove(exchange);
    watch_end(exchange->watch);
    exchange->watch = NULL;
    exchange->suspended = false;
    MHD_resume_connection(exchange->connection);
    http_want_run(exchange->door);
}

void http_check_present(struct exchange *exchange)
{
    char c;
    if (exchange->tell_delivered && recv(exchange->peer->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        exchange->tell_delivered = false;
}

void exchange_send(struct exchange *exchange, int status)
{
    assert(!exchange->answered);
    exchange->answered = true;
    exchange->waiter = NULL;
    exchange->on_gone = NULL;
    exchange->status = status;
    if (exchange->in_handler)
        return;
    http_check_present(exchange);
    if (http_queue(exchange) != MHD_YES)
        exchange->gone = true;
    http_resume(exchange);
}

void exchange_add_header(struct exchange *exchange, const char *name, const char *value)
{
    assert(exchange->extra_count < EXCHANGE_EXTRA_MAX);
    exchange->extra[exchange->extra_count].name = name;
    exchange->extra[exchange->extra_count++].value = value;
}

void exchange_hold(struct exchange *exchange, int by)
{
    exchange->door->holds = (size_t)((long)exchange->door->holds + by);
}

/* ---- callers that leave ---- */

static void caller_left(void *user)
{
    struct exchange *exchange = user;
    if (exchange->waiter) {
        engine_caller_left(exchange->engine, exchange->waiter);
        exchange->waiter = NULL;
    }
    void (*on_gone)(struct exchange * exchange) = exchange->on_gone;
    exchange->on_gone = NULL;
    exchange->gone = true;
    http_resume(exchange);
    if (on_gone)
        on_gone(exchange);
}

void exchange_on_gone(struct exchange *exchange, void (*gone)(struct exchange *exchange))
{
    exchange->on_gone = gone;
}

static void swept(uv_timer_t *timer)
{
    struct http_door *door = timer->data;
    int64_t now = (int64_t)uv_now(door->loop);
    for (struct exchange *exchange = door->waiting; exchange; exchange = exchange->next) {
        if (now - exchange->since_ms < SWEEP_MS)
            break;
        if ((exchange->waiter || exchange->on_gone) && !exchange->watch)
            exchange->watch = watch_begin(door->loop, exchange->peer->fd, caller_left, exchange);
    }
    if (!door->waiting) {
        door->sweep_on = false;
        uv_timer_stop(timer);
    }
}

static void wait_for_route(struct exchange *exchange)
{
    struct http_door *door = exchange->door;
    exchange->suspended = true;
    exchange->since_ms = (int64_t)uv_now(door->loop);
    MHD_suspend_connection(exchange->connection);
    waiting_add(exchange);
    if (!door->sweep_on) {
        door->sweep_on = true;
        uv_timer_start(&door->sweep, swept, SWEEP_MS, SWEEP_MS);
    }
}

/* ---- libmicrohttpd's callbacks ---- */

static void connection_changed(void *user, struct MHD_Connection *connection, void **socket_context,
                               enum MHD_ConnectionNotificationCode code)
{
    struct http_door *door = user;
    struct peer *peer = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        *peer->at = peer->next;
        if (peer->next)
            peer->next->at = peer->at;
        door->connections--;
        free(peer);
        *socket_context = NULL;
        return;
    }
    peer = mem_zero(sizeof *peer);
    peer->door = door;
    peer->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    peer->idle_since_ms = uv_now(door->loop);
    peer->surplus = ++door->connections > door->connections_max;
    peer->next = door->peers;
    peer->at = &door->peers;
    if (door->peers)
        door->peers->at = &peer->next;
    door->peers = peer;
    *socket_context = peer;
}

static struct exchange *begin(struct http_door *door, struct MHD_Connection *connection, const char *path,
                              const char *method)
{
    struct exchange *exchange = exchange_new(door);
    exchange->connection = connection;
    exchange->peer = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    exchange->peer->exchange = exchange;
    exchange->method = method_of(method);
    exchange->path = path;
    exchange->since_ms = (int64_t)uv_now(door->loop);
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND, take_value, exchange);
    return exchange;
}

/* The length that a client announces; 0 when it announces none. */
static uint64_t announced_bytes(const struct exchange *exchange)
{
    struct str text = exchange->headers[HEADER_CONTENT_LENGTH];
    uint64_t bytes = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || bytes > UINT64_MAX / 10 - 1)
            return 0; /* libmicrohttpd has refused it */
        bytes = bytes * 10 + (uint64_t)(text.p[i] - '0');
    }
    return bytes;
}

/* A body that is too large is refused before it is read when it is far too large or the client asks first; that refusal
 * comes at once, so that nothing is under way when the connection ends. */
static enum MHD_Result head_complete(struct exchange *exchange)
{
    struct http_door *door = exchange->door;
    uint64_t bytes = announced_bytes(exchange);
    if (bytes <= door->parts.body_bytes_max)
        return MHD_YES;
    exchange->too_large = true;
    if (bytes / DISCARD_BODIES <= door->parts.body_bytes_max && !exchange->headers[HEADER_EXPECT].p)
        return MHD_YES;
    exchange->in_handler = exchange->handled = true;
    exchange->close = true;
    rest_handle(exchange);
    exchange->in_handler = false;
    if (!exchange->answered)
        return MHD_NO;
    linger_begin(&door->lingers, exchange->peer->fd);
    return http_queue(exchange);
}

static enum MHD_Result take_body(struct exchange *exchange, const char *data, size_t n)
{
    struct http_door *door = exchange->door;
    size_t max = door->parts.body_bytes_max;
    if (exchange->body.n + n > max)
        exchange->too_large = true;
    if ((int64_t)uv_now(door->loop) - exchange->since_ms > door->request_ms)
        return MHD_NO;
    if (!exchange->too_large) {
        buf_add(&exchange->body, data, n);
        return MHD_YES;
    }
    exchange->discarded += n;
    return exchange->discarded / DISCARD_BODIES <= max ? MHD_YES : MHD_NO;
}

static enum MHD_Result request_complete(struct exchange *exchange)
{
    exchange->handled = exchange->in_handler = true;
    rest_handle(exchange);
    exchange->in_handler = false;
    if (exchange->answered) {
        http_check_present(exchange);
        return http_queue(exchange);
    }
    wait_for_route(exchange);
    return MHD_YES;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *data, size_t *data_n, void **context)
{
    (void)version;
    struct exchange *exchange = *context;
    if (!exchange) {
        *context = exchange = begin(user, connection, path, method);
        return head_complete(exchange);
    }
    if (exchange->gone)
        return MHD_NO;
    if (*data_n > 0) {
        size_t n = *data_n;
        *data_n = 0;
        return take_body(exchange, data, n);
    }
    return exchange->handled ? MHD_YES : request_complete(exchange);
}

static void request_ended(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_RequestTerminationCode code)
{
    (void)user, (void)connection;
    struct exchange *exchange = *context;
    *context = NULL;
    if (!exchange)
        return;
    if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK && exchange->tell_delivered && !exchange->gone)
        engine_delivered(exchange->engine, &exchange->delivered);
    exchange->peer->exchange = NULL;
    exchange->peer->idle_since_ms = uv_now(exchange->door->loop);
    if (!exchange->stream || stream_request_ended(exchange))
        http_recycle(exchange);
}

bool exchange_surplus(const struct exchange *exchange)
{
    return exchange->peer->surplus;
}

__attribute__((format(printf, 2, 0))) static void log_line(void *user, const char *format, va_list args)
{
    struct http_door *door = user;
    char text[ERR_TEXT_MAX];
    int n = vsnprintf(text, sizeof text, format, args);
    while (n > 0 && (size_t)n < sizeof text && (text[n - 1] == '\n' || text[n - 1] == ' '))
        text[--n] = '\0';
    if (door->starting)
        memcpy(door->start_text, text, sizeof text);
    else
        log_message(LOG_DEBUG, "http", "%s", text);
}

/* ---- clock ---- */

/* Connections that do not get a request together (a byte now and then keeps libmicrohttpd's own clock from ending
 * them). */
static void end_slow(struct http_door *door)
{
    uint64_t now = uv_now(door->loop);
    for (struct peer *peer = door->peers; peer; peer = peer->next) {
        bool receiving = !peer->exchange || !peer->exchange->handled;
        if (receiving && now - peer->idle_since_ms > (uint64_t)door->request_ms)
            shutdown(peer->fd, SHUT_RDWR);
    }
}

static void ticked(uv_timer_t *timer)
{
    struct http_door *door = timer->data;
    lingers_tick(&door->lingers);
    if (door->parts.mcp)
        mcp_http_tick(door->parts.mcp);
    if (door->parts.auth)
        auth_tick(door->parts.auth, engine_env(door->engine)->now_ms(engine_env(door->engine)));
    end_slow(door);
    http_want_run(door); /* libmicrohttpd ends idle connections */
}

/* ---- opening ---- */

static enum err_code listen_at(const char *host, uint16_t port, int *out, uint16_t *port_out, struct err *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at = {0};
    socklen_t size = sizeof at.v4;
    const char *address = strcasecmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (inet_pton(AF_INET, address, &at.v4.sin_addr) == 1) {
        at.v4.sin_family = AF_INET;
        at.v4.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, address, &at.v6.sin6_addr) == 1) {
        at.v6.sin6_family = AF_INET6;
        at.v6.sin6_port = htons(port);
        size = sizeof at.v6;
    } else {
        return err_set(err, ERR_INVALID, "cannot listen at \"%s\": expected an IP address or localhost", host);
    }
    int on = 1, fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_IO, "cannot open a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* inherited by the connections */
    if (bind(fd, &at.any, size) != 0 || listen(fd, LISTEN_BACKLOG) != 0 || getsockname(fd, &at.any, &size) != 0) {
        int why = errno;
        close(fd);
        return err_set(err, ERR_IO, "cannot listen at %s port %u: %s%s", host, port, strerror(why),
                       why == EADDRINUSE ? " (is another onced running?)" : "");
    }
    *out = fd;
    *port_out = ntohs(at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port);
    return ERR_NONE;
}

/* MHD_ALLOW_SUSPEND_RESUME without its eventfd: everything happens on the loop's thread, which is told by
 * http_want_run().
 */
#define SUSPEND_WITHOUT_EVENTFD ((unsigned)MHD_ALLOW_SUSPEND_RESUME & ~(unsigned)MHD_USE_ITC)

static enum err_code start_mhd(struct http_door *door, struct err *err)
{
    unsigned flags = MHD_USE_EPOLL | SUSPEND_WITHOUT_EVENTFD | MHD_USE_ERROR_LOG | MHD_USE_SUPPRESS_DATE_NO_CLOCK;
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, door->listen_fd, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)request_ended, door},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)connection_changed, door},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escaped, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_HEAD_BYTES_MAX, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)(door->connections_max + SURPLUS_MAX), NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)door->timeout_s, NULL},
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
        {door->tls_cert ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, door->tls_key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, door->tls_cert},
        {MHD_OPTION_END, 0, NULL},
    };
    if (door->tls_cert)
        flags |= MHD_USE_TLS;
    door->starting = true;
    door->mhd = MHD_start_daemon(flags, 0, NULL, NULL, on_request, door, MHD_OPTION_EXTERNAL_LOGGER, log_line, door,
                                 MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    door->starting = false;
    if (!door->mhd)
        return err_set(err, ERR_INVALID, "cannot start the HTTP server%s: %s", door->tls_cert ? " with TLS" : "",
                       door->start_text[0] ? door->start_text : strerror(errno));
    return ERR_NONE;
}

static void start_handles(struct http_door *door)
{
    int epoll_fd = MHD_get_daemon_info(door->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    uv_poll_init(door->loop, &door->poll, epoll_fd);
    uv_prepare_init(door->loop, &door->prepare);
    uv_check_init(door->loop, &door->check);
    uv_idle_init(door->loop, &door->idle);
    uv_timer_init(door->loop, &door->tick);
    uv_timer_init(door->loop, &door->sweep);
    door->poll.data = door->prepare.data = door->check.data = door->idle.data = door;
    door->tick.data = door->sweep.data = door;
    door->handles_open = DOOR_HANDLES + 1; /* and auth */
    uv_poll_start(&door->poll, UV_READABLE, readable);
    uv_prepare_start(&door->prepare, prepared);
    uv_check_start(&door->check, checked);
    uv_timer_start(&door->tick, ticked, TICK_MS, TICK_MS);
    uv_update_time(door->loop);
}

static void door_free(struct http_door *door)
{
    while (door->spare) {
        struct exchange *exchange = door->spare;
        door->spare = exchange->next;
        exchange_free(exchange);
    }
    mcp_http_free(door->parts.mcp);
    buf_release(&door->openapi);
    free(door->tls_cert);
    if (door->tls_key)
        explicit_bzero(door->tls_key, strlen(door->tls_key));
    free(door->tls_key);
    free(door->links_base);
    free(door);
}

enum err_code http_door_new(const struct http_door_options *options, struct http_door **out, struct err *err)
{
    struct http_door *door = mem_zero(sizeof *door);
    door->loop = door->lingers.loop = options->loop;
    door->engine = options->engine;
    door->connections_max = options->connections_max ? options->connections_max : HTTP_CONNECTIONS_DEFAULT;
    door->links_base = options->links_base ? strdup(options->links_base) : NULL;
    door->parts.links = (struct link_settings){door->links_base, options->links_expires_ms};
    door->parts.notify = options->notify;
    door->parts.body_bytes_max = options->body_bytes_max ? options->body_bytes_max : HTTP_BODY_BYTES_DEFAULT;
    door->timeout_s = options->timeout_s ? options->timeout_s : HTTP_TIMEOUT_S;
    door->request_ms = 2000 * (int64_t)door->timeout_s;
    door->waiting_end = &door->waiting;
    door->listen_fd = -1;
    door->tls_cert = mem_copy_text(options->tls_cert_pem);
    door->tls_key = mem_copy_text(options->tls_key_pem);
    buf_init(&door->openapi, 0);
    openapi_write(&door->openapi);
    door->parts.openapi = buf_str(&door->openapi);
    struct issuers *issuers = NULL;
    enum err_code code = listen_at(options->address, options->port, &door->listen_fd, &door->port, err);
    if (!code)
        code = start_mhd(door, err);
    if (!code && options->issuer_count)
        code =
            issuers_new(door->loop, engine_env(door->engine), options->issuers, options->issuer_count, &issuers, err);
    if (code) {
        if (door->mhd) { /* closes the socket, too */
            MHD_stop_daemon(door->mhd);
            door->listen_fd = -1;
        }
        if (door->listen_fd >= 0)
            close(door->listen_fd);
        door_free(door);
        return code;
    }
    if (options->auth_tokens)
        door->parts.auth = auth_new(issuers);
    if (options->mcp)
        door->parts.mcp = mcp_http_new(options->mcp);
    start_handles(door);
    http_want_run(door);
    *out = door;
    return ERR_NONE;
}

const struct door_parts *http_door_parts(const struct http_door *door)
{
    return &door->parts;
}

uint16_t http_door_port(const struct http_door *door)
{
    return door->port;
}

/* ---- closing ---- */

void http_door_stop_accepting(struct http_door *door)
{
    if (door->parts.stopping)
        return;
    door->parts.stopping = true;
    MHD_quiesce_daemon(door->mhd);
    close(door->listen_fd);
    door->listen_fd = -1;
}

static void one_closed(struct http_door *door)
{
    if (--door->handles_open > 0)
        return;
    void (*closed)(void *user) = door->closed;
    void *user = door->closed_user;
    door_free(door);
    if (closed)
        closed(user);
}

static void handle_closed(uv_handle_t *handle)
{
    one_closed(handle->data);
}

static void auth_closed(void *user)
{
    one_closed(user);
}

/* Everybody who waits for the engine or for MCP is given up; those at the ledger come back by themselves. */
static void give_up_waiting(struct http_door *door)
{
    for (struct exchange *exchange = door->waiting, *next; exchange; exchange = next) {
        next = exchange->next;
        if (exchange->waiter || exchange->on_gone)
            caller_left(exchange);
    }
}

static void finish_close(struct http_door *door)
{
    if (door->waiting || door->streams || door->holds > 0)
        return;
    if (door->active > 0 && uv_now(door->loop) < door->close_deadline_ms)
        return;
    MHD_stop_daemon(door->mhd);
    door->mhd = NULL;
    lingers_end(&door->lingers);
    uv_close((uv_handle_t *)&door->poll, handle_closed);
    uv_close((uv_handle_t *)&door->prepare, handle_closed);
    uv_close((uv_handle_t *)&door->check, handle_closed);
    uv_close((uv_handle_t *)&door->idle, handle_closed);
    uv_close((uv_handle_t *)&door->tick, handle_closed);
    uv_close((uv_handle_t *)&door->sweep, handle_closed);
    auth_close(door->parts.auth, auth_closed, door);
}

static void close_ticked(uv_timer_t *timer)
{
    struct http_door *door = timer->data;
    run(door);
    give_up_waiting(door); /* requests that came in meanwhile on the connections there are */
    streams_give_up(door);
    finish_close(door);
}

void http_door_close(struct http_door *door, void (*closed)(void *user), void *user)
{
    http_door_stop_accepting(door);
    door->closing = true;
    door->closed = closed;
    door->closed_user = user;
    door->close_deadline_ms = uv_now(door->loop) + CLOSE_MS;
    give_up_waiting(door);
    streams_give_up(door);
    uv_timer_start(&door->tick, close_ticked, 0, 5);
}
