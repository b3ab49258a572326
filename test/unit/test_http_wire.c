/* The HTTP adapter against real servers on loopback that misbehave: what the server sees is exactly what was sent, and
 * every ending has its outcome (design 5.2, 5.3). */
#include "support/http_case.h"
#include "support/test.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 16
#define REQUEST_MAX     (1024 * 1024)

/* ---- a server that does as it is told ---- */

struct server;
/* What to do with the n-th request (from 1) that arrived whole on fd. False: close the connection. */
typedef bool act_fn(struct server *server, int fd, int n);

struct connection {
    int fd;
    SSL *ssl;
    char *text;
    size_t bytes;
};

struct server {
    int listener, port, stop[2];
    pthread_t thread;
    act_fn *act;
    SSL_CTX *tls;
    atomic_int heads;    /* requests whose head arrived */
    atomic_int requests; /* that arrived whole */
    atomic_int connections;
    char last[REQUEST_MAX]; /* the last whole request, NUL-terminated */
    bool at_head;           /* act as soon as the head is there */
    struct connection items[CONNECTIONS_MAX];
};

static const char ok_answer[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"id\":\"re\"}";

static void say(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        text += sent;
        n -= (size_t)sent;
    }
}

static bool answer_ok(struct server *server, int fd, int n)
{
    (void)server;
    (void)n;
    say(fd, ok_answer);
    return true;
}

static void drop(struct connection *connection)
{
    SSL_free(connection->ssl);
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection->text);
    *connection = (struct connection){.fd = -1};
}

static void take_connection(struct server *server)
{
    int fd = accept(server->listener, NULL, NULL), one = 1;
    server->connections++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &server->items[i];
        if (connection->fd >= 0)
            continue;
        connection->fd = fd;
        connection->text = malloc(REQUEST_MAX);
        connection->bytes = 0;
        if (!server->tls)
            return;
        connection->ssl = SSL_new(server->tls);
        SSL_set_fd(connection->ssl, fd);
        if (SSL_accept(connection->ssl) != 1) {
            ERR_clear_error();
            drop(connection);
        }
        return;
    }
    abort();
}

/* 0: the head is not whole. */
static size_t head_bytes(const struct connection *connection)
{
    char *end = strstr(connection->text, "\r\n\r\n");
    return end ? (size_t)(end - connection->text) + 4 : 0;
}

static size_t body_bytes(const struct connection *connection)
{
    const char *length = strcasestr(connection->text, "\r\nContent-Length:");
    return length ? strtoul(length + 17, NULL, 10) : 0;
}

static void take_bytes(struct server *server, struct connection *connection)
{
    char *at = connection->text + connection->bytes;
    size_t room = REQUEST_MAX - 1 - connection->bytes, had_head = connection->bytes ? head_bytes(connection) : 0;
    ssize_t n = connection->ssl ? SSL_read(connection->ssl, at, (int)room) : recv(connection->fd, at, room, 0);
    if (n <= 0) {
        drop(connection);
        return;
    }
    connection->bytes += (size_t)n;
    connection->text[connection->bytes] = '\0';
    size_t head = head_bytes(connection);
    if (head == 0)
        return;
    if (!had_head)
        server->heads++;
    if (!server->at_head && connection->bytes < head + body_bytes(connection))
        return;
    memcpy(server->last, connection->text, connection->bytes + 1);
    connection->bytes = 0;
    int number = ++server->requests;
    if (connection->ssl)
        SSL_write(connection->ssl, ok_answer, sizeof ok_answer - 1);
    else if (!server->act(server, connection->fd, number))
        drop(connection);
}

static void *serve(void *user)
{
    struct server *server = user;
    for (;;) {
        struct pollfd polls[CONNECTIONS_MAX + 2] = {{.fd = server->stop[0], .events = POLLIN},
                                                    {.fd = server->listener, .events = POLLIN}};
        for (int i = 0; i < CONNECTIONS_MAX; i++)
            polls[i + 2] = (struct pollfd){.fd = server->items[i].fd, .events = POLLIN};
        poll(polls, CONNECTIONS_MAX + 2, -1);
        if (polls[0].revents)
            return NULL;
        for (int i = 0; i < CONNECTIONS_MAX; i++) {
            if (polls[i + 2].revents)
                take_bytes(server, &server->items[i]);
        }
        if (polls[1].revents)
            take_connection(server);
    }
}

static int listen_on(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static struct server *server_new(act_fn *act, SSL_CTX *tls)
{
    struct server *server = calloc(1, sizeof *server);
    server->act = act;
    server->tls = tls;
    server->listener = listen_on(&server->port);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        server->items[i].fd = -1;
    assert_int_equal(pipe(server->stop), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
    return server;
}

static void server_free(struct server *server)
{
    close(server->stop[1]);
    pthread_join(server->thread, NULL);
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        drop(&server->items[i]);
    close(server->listener);
    close(server->stop[0]);
    free(server);
}

/* ---- the client ---- */

struct client {
    uv_loop_t loop;
    struct adapter *adapter;
    struct http_case c;
    struct server *server;
    bool closed;
};

struct told {
    int count;
    enum outcome outcome;
    int status;
    char detail[256], request_id[64], external_id[64];
    bool sending; /* within send: done must not come */
    uv_loop_t *loop;
};

static void on_done(void *user, const struct adapter_answer *answer)
{
    struct told *told = user;
    assert_false(told->sending);
    told->count++;
    uv_stop(told->loop);
    told->outcome = answer->outcome;
    told->status = answer->http_status;
    snprintf(told->detail, sizeof told->detail, "%s", answer->detail ? answer->detail : "");
    snprintf(told->request_id, sizeof told->request_id, "%s",
             answer->provider_request_id ? answer->provider_request_id : "");
    snprintf(told->external_id, sizeof told->external_id, "%s", answer->external_id ? answer->external_id : "");
}

#define USUAL_TOOL "{\"request\":{\"path\":\"/r\"},\"response\":{\"external_id\":\"/id\"}}"

/* members: more of the provider's section, beginning with a comma. */
static struct client *client_new(struct server *server, const char *url, const char *members, const char *tool,
                                 enum tool_class class)
{
    struct client *client = calloc(1, sizeof *client);
    struct err err = {0};
    char provider[1024], usual[64];
    snprintf(usual, sizeof usual, "http://127.0.0.1:%d", server ? server->port : 1);
    snprintf(
        provider, sizeof provider,
        "{\"base_url\":\"%s\",\"timeout\":\"3s\",\"key\":{\"header\":\"Idempotency-Key\"},\"request_id\":{\"header\":"
        "\"X-Request-Id\"}%s}",
        url ? url : usual, members ? members : "");
    client->server = server;
    http_case_init(&client->c, provider, tool ? tool : USUAL_TOOL, class);
    if (!client->c.tool)
        fail_msg("%s", http_case_problems(&client->c));
    client->c.call.arguments = http_case_json(&client->c, "{\"amount\":1}");
    uv_loop_init(&client->loop);
    assert_int_equal(http_adapter_new(&client->loop, &client->adapter, &err), ERR_NONE);
    return client;
}

static struct client *client_usual(struct server *server)
{
    return client_new(server, NULL, NULL, NULL, CLASS_EXTERNAL_IDEMPOTENT);
}

static void on_closed(void *user)
{
    ((struct client *)user)->closed = true;
}

static void client_free(struct client *client)
{
    http_adapter_close(client->adapter, on_closed, client);
    while (!client->closed)
        uv_run(&client->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&client->loop), 0);
    http_case_release(&client->c);
    free(client);
}

static void begin(struct client *client, struct told *told)
{
    *told = (struct told){.loop = &client->loop};
    told->sending = true;
    client->adapter->ops->send(client->adapter, &client->c.call, on_done, told);
    told->sending = false;
}

static void await(struct client *client, const struct told *told)
{
    while (told->count == 0)
        uv_run(&client->loop, UV_RUN_DEFAULT);
    assert_int_equal(told->count, 1);
}

static struct told call(struct client *client)
{
    struct told told;
    begin(client, &told);
    await(client, &told);
    return told;
}

static void expect(struct client *client, enum outcome outcome)
{
    struct told told = call(client);
    if (told.outcome != outcome)
        fail_msg("expected %s, got %s (%s)", outcome_name(outcome), outcome_name(told.outcome), told.detail);
}

static void expect_requests(const struct server *server, int requests)
{
    for (int i = 0; i < 500 && server->heads < requests; i++)
        usleep(10 * 1000);
    usleep(50 * 1000); /* time for a request too many to show up */
    assert_int_equal(server->heads, requests);
}

/* ---- a connection that dies ---- */

static bool close_from_second(struct server *server, int fd, int n)
{
    return n == 1 ? answer_ok(server, fd, n) : false;
}

static bool reset_second(struct server *server, int fd, int n)
{
    if (n == 2) {
        struct linger now = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        return false;
    }
    return answer_ok(server, fd, n);
}

static bool close_second(struct server *server, int fd, int n)
{
    return n == 2 ? false : answer_ok(server, fd, n);
}

/* The kept-alive connection is closed after the request was read: one request, not known, and the next one works. */
static void dies_after_reading(act_fn *act, const char *tool, enum tool_class class, enum attempt_kind kind,
                               size_t argument_bytes)
{
    struct server *server = server_new(act, NULL);
    struct client *client = client_new(server, NULL, NULL, tool, class);
    enum outcome lost = kind == ATTEMPT_LOOKUP ? OUTCOME_CANNOT_TELL : OUTCOME_CONNECTION_LOST;
    enum outcome good = kind == ATTEMPT_LOOKUP ? OUTCOME_FOUND : OUTCOME_SUCCESS;
    client->c.call.kind = kind;
    if (argument_bytes) {
        char *text = malloc(argument_bytes + 32);
        size_t n = (size_t)sprintf(text, "{\"a\":\"");
        memset(text + n, 'x', argument_bytes);
        memcpy(text + n + argument_bytes, "\"}", 3);
        client->c.call.arguments = http_case_json(&client->c, text);
        free(text);
    }
    expect(client, good);
    assert_int_equal(server->connections, 1);
    expect(client, lost);
    expect_requests(server, 2);
    assert_int_equal(server->connections, 1); /* not even a connection for a second try */
    if (act != close_from_second) {
        expect(client, good);
        expect_requests(server, 3);
        expect(client, good);
        assert_int_equal(server->connections, 2); /* reused again */
    }
    client_free(client);
    server_free(server);
}

#define TOOL_WITH(method) "{\"request\":{\"path\":\"/r\",\"method\":\"" method "\"}}"
#define LOOKUP_TOOL       "{\"request\":{\"path\":\"/r\"},\"lookup\":{\"request\":{\"path\":\"/l\"},\"external_id\":\"/id\"}}"
#define LOOKUP_POST_TOOL                                                                                               \
    "{\"request\":{\"path\":\"/r\"},\"lookup\":{\"request\":{\"path\":\"/l\",\"method\":\"POST\"},\"external_id\":\"/" \
    "id\"}}"

static void test_warm_post(void **state)
{
    (void)state;
    dies_after_reading(close_second, USUAL_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 0);
    dies_after_reading(reset_second, USUAL_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 0);
    dies_after_reading(close_from_second, USUAL_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 0);
}

static void test_warm_large_post(void **state)
{
    (void)state;
    dies_after_reading(close_second, USUAL_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 30000);
    dies_after_reading(close_second, USUAL_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 100000);
    dies_after_reading(reset_second, USUAL_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 500000);
}

static void test_warm_other_methods(void **state)
{
    (void)state;
    dies_after_reading(close_second, TOOL_WITH("PUT"), CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 0);
    dies_after_reading(close_second, TOOL_WITH("DELETE"), CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 0);
    dies_after_reading(reset_second, TOOL_WITH("DELETE"), CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 0);
    dies_after_reading(close_second, TOOL_WITH("GET"), CLASS_EXTERNAL_WEAK, ATTEMPT_CALL, 0);
    dies_after_reading(close_second, TOOL_WITH("GET"), CLASS_READ, ATTEMPT_CALL, 0);
    dies_after_reading(close_second, LOOKUP_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_LOOKUP, 0);
    dies_after_reading(reset_second, LOOKUP_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_LOOKUP, 0);
    dies_after_reading(close_second, LOOKUP_POST_TOOL, CLASS_EXTERNAL_WEAK, ATTEMPT_LOOKUP, 0);
}

/* The server reads the head of a large request only. */
static void test_warm_half_read(void **state)
{
    (void)state;
    struct server *server = server_new(close_second, NULL);
    struct client *client = client_usual(server);
    char *text = malloc(600000);
    memset(text, 'x', 600000);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + 590000, "\"}", 3);
    expect(client, OUTCOME_SUCCESS);
    server->at_head = true;
    client->c.call.arguments = http_case_json(&client->c, text);
    expect(client, OUTCOME_CONNECTION_LOST);
    expect_requests(server, 2);
    free(text);
    client_free(client);
    server_free(server);
}

static bool close_third(struct server *server, int fd, int n)
{
    return n == 3 ? false : answer_ok(server, fd, n);
}

/* Another idle connection is at hand: a hidden re-send would not even need to connect. */
static void test_warm_two(void **state)
{
    (void)state;
    struct server *server = server_new(close_third, NULL);
    struct client *client = client_usual(server);
    struct told a, b;
    begin(client, &a);
    begin(client, &b);
    await(client, &a);
    await(client, &b);
    assert_int_equal(server->connections, 2);
    expect(client, OUTCOME_CONNECTION_LOST);
    expect_requests(server, 3);
    expect(client, OUTCOME_SUCCESS);
    expect_requests(server, 4);
    client_free(client);
    server_free(server);
}

static bool answer_then_close(struct server *server, int fd, int n)
{
    answer_ok(server, fd, n);
    return false;
}

/* Closed while idle: seen before anything is sent, a new connection is made, nothing is lost. */
static void test_closed_before(void **state)
{
    (void)state;
    struct server *server = server_new(answer_then_close, NULL);
    struct client *client = client_usual(server);
    for (int i = 1; i <= 3; i++) {
        expect(client, OUTCOME_SUCCESS);
        expect_requests(server, i);
        uv_run(&client->loop, UV_RUN_NOWAIT);
        assert_int_equal(server->connections, i);
    }
    client_free(client);
    server_free(server);
}

static bool say_nothing(struct server *server, int fd, int n)
{
    (void)server;
    (void)fd;
    (void)n;
    return false;
}

static void test_empty_reply(void **state)
{
    (void)state;
    struct server *server = server_new(say_nothing, NULL);
    struct client *client = client_usual(server);
    struct told told = call(client);
    assert_int_equal(told.outcome, OUTCOME_CONNECTION_LOST);
    assert_int_equal(told.status, 0);
    expect_requests(server, 1);
    client_free(client);
    server_free(server);
}

/* ---- answers that would have other clients send again ---- */

static int other_port;

static bool redirect(struct server *server, int fd, int n)
{
    char text[256];
    (void)server;
    snprintf(text, sizeof text,
             "HTTP/1.1 %d Redirect\r\nLocation: http://127.0.0.1:%d/elsewhere\r\nContent-Length: 0\r\n\r\n",
             n == 1   ? 307
             : n == 2 ? 308
                      : 302,
             other_port);
    say(fd, text);
    return true;
}

static void test_redirects(void **state)
{
    (void)state;
    struct server *other = server_new(answer_ok, NULL), *server = server_new(redirect, NULL);
    struct client *client = client_usual(server);
    other_port = other->port;
    for (int i = 1; i <= 3; i++) {
        expect(client, OUTCOME_PROVIDER_ERROR);
        expect_requests(server, i);
    }
    assert_int_equal(other->connections, 0);
    client_free(client);
    server_free(server);
    server_free(other);
}

static bool challenge(struct server *server, int fd, int n)
{
    static const char *const heads[] = {
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm=\"x\", nonce=\"n\"\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    };
    (void)server;
    say(fd, heads[n - 1]);
    return true;
}

static void test_challenges(void **state)
{
    (void)state;
    struct server *server = server_new(challenge, NULL);
    struct client *client = client_usual(server);
    for (int i = 1; i <= 5; i++) {
        expect(client, i <= 3 ? OUTCOME_REFUSED : OUTCOME_PROVIDER_ERROR);
        expect_requests(server, i);
    }
    client_free(client);
    server_free(server);
}

static bool interim(struct server *server, int fd, int n)
{
    (void)server;
    (void)n;
    say(fd, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-Request-Id: no\r\n\r\n");
    say(fd, "HTTP/1.1 200 OK\r\nX-Request-Id:  req-7 \r\nContent-Length: 11\r\n\r\n{\"id\":\"re\"}");
    return true;
}

/* No Expect, also with a body that curl would announce; what comes before the real answer does not count. */
static void test_interim(void **state)
{
    (void)state;
    struct server *server = server_new(interim, NULL);
    struct client *client = client_usual(server);
    client->c.call.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    struct told told = call(client);
    assert_int_equal(told.outcome, OUTCOME_SUCCESS);
    assert_int_equal(told.status, 200);
    assert_string_equal(told.request_id, "req-7");
    assert_string_equal(told.external_id, "re");
    assert_null(strcasestr(server->last, "Expect:"));
    assert_non_null(strstr(server->last, "POST /r HTTP/1.1\r\n"));
    assert_non_null(strstr(server->last, "\r\nIdempotency-Key: key-1\r\n"));
    assert_non_null(strstr(server->last, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(server->last, "\r\nContent-Length: 12\r\n"));
    assert_non_null(strstr(server->last, "\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-"));
    assert_non_null(strstr(server->last, "\r\n\r\n{\"amount\":1}"));
    expect_requests(server, 1);
    client_free(client);
    server_free(server);
}

/* ---- answers that are not whole ---- */

static bool drip(struct server *server, int fd, int n)
{
    (void)n;
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    for (int i = 0; i < 60; i++) {
        struct pollfd stop = {.fd = server->stop[0], .events = POLLIN};
        say(fd, "x");
        if (poll(&stop, 1, 50) != 0)
            break;
    }
    return false;
}

static void test_slow_drip(void **state)
{
    (void)state;
    struct server *server = server_new(drip, NULL);
    struct client *client =
        client_new(server, NULL, NULL, "{\"request\":{\"path\":\"/r\"},\"timeout\":\"300ms\"}", CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_TIMEOUT); /* not three seconds later, at the end of it, as a broken answer */
    expect_requests(server, 1);
    client_free(client);
    server_free(server);
}

static bool hang(struct server *server, int fd, int n)
{
    (void)server;
    (void)fd;
    (void)n;
    return true;
}

static void test_no_answer(void **state)
{
    (void)state;
    struct server *server = server_new(hang, NULL);
    struct client *client =
        client_new(server, NULL, NULL, "{\"request\":{\"path\":\"/r\"},\"timeout\":\"200ms\"}", CLASS_EXTERNAL_WEAK);
    struct told told = call(client);
    assert_int_equal(told.outcome, OUTCOME_TIMEOUT);
    assert_int_equal(told.status, 0);
    expect_requests(server, 1);
    client_free(client);
    server_free(server);
}

static const char *broken_answer;

static bool say_broken(struct server *server, int fd, int n)
{
    (void)server;
    (void)n;
    say(fd, broken_answer);
    return false;
}

static void broken(const char *answer, enum outcome outcome)
{
    broken_answer = answer;
    struct server *server = server_new(say_broken, NULL);
    struct client *client = client_new(server, NULL, ",\"answer_bytes_max\":\"1KB\"", NULL, CLASS_EXTERNAL_WEAK);
    expect(client, outcome);
    expect_requests(server, 1);
    client_free(client);
    server_free(server);
}

static void test_broken_answers(void **state)
{
    (void)state;
    char large[4096];
    int n = snprintf(large, sizeof large, "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n");
    memset(large + n, ' ', 3000);
    large[n + 3000] = '\0';
    broken("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\":", OUTCOME_UNREADABLE);
    broken("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n", OUTCOME_UNREADABLE);
    broken("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", OUTCOME_CONNECTION_LOST);
    broken("HTTP/1.1 200 OK\r\nContent-Le", OUTCOME_UNREADABLE);
    broken("HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\n{\"er", OUTCOME_UNREADABLE);
    broken("\x16\x03\xff garbage that is no HTTP\r\n\r\n", OUTCOME_UNREADABLE);
    broken("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html/>\r\n", OUTCOME_UNREADABLE);
    broken("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x08",
           OUTCOME_UNREADABLE);
    broken(large, OUTCOME_UNREADABLE);
    memcpy(large, "HTTP/1.1 400", 12);
    broken(large, OUTCOME_REFUSED); /* too large to keep, but said clearly */
    memcpy(large, "HTTP/1.1 500", 12);
    broken(large, OUTCOME_PROVIDER_ERROR);
    broken("HTTP/1.1 200 OK\r\n\r\n{\"id\":\"re\"}", OUTCOME_SUCCESS); /* ends with the connection */
}

static void test_endless_head(void **state)
{
    (void)state;
    size_t cap = 200 * 1024, n = 0;
    char *text = malloc(cap + 128);
    n += (size_t)sprintf(text, "HTTP/1.1 200 OK\r\n");
    while (n < cap)
        n += (size_t)sprintf(text + n, "X-Header: %060d\r\n", 1);
    sprintf(text + n, "Content-Length: 11\r\n\r\n{\"id\":\"re\"}");
    broken(text, OUTCOME_UNREADABLE);
    free(text);
}

/* ---- nothing left ---- */

static void test_refused_connection(void **state)
{
    (void)state;
    int port, fd = listen_on(&port);
    char url[64];
    close(fd);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    struct client *client = client_new(NULL, url, NULL, NULL, CLASS_EXTERNAL_WEAK);
    struct told told = call(client);
    assert_int_equal(told.outcome, OUTCOME_NOT_SENT);
    assert_non_null(strstr(told.detail, "onnect"));
    client_free(client);
    client = client_new(NULL, "http://onced-test.invalid", NULL, NULL, CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_NOT_SENT);
    client_free(client);
}

static void test_connect_timeout(void **state)
{
    (void)state;
    int port, fd = listen_on(&port), fill[200];
    char url[64];
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    listen(fd, 0); /* nobody accepts: once the backlog is full, connecting takes for ever */
    for (int i = 0; i < 200; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fill[i], (struct sockaddr *)&address, sizeof address);
    }
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    struct client *client = client_new(NULL, url, ",\"connect_timeout\":\"200ms\"", NULL, CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_NOT_SENT);
    client_free(client);
    for (int i = 0; i < 200; i++)
        close(fill[i]);
    close(fd);
}

static void test_unbuildable(void **state)
{
    (void)state;
    struct server *server = server_new(answer_ok, NULL);
    struct client *client = client_new(server, NULL, NULL, "{\"request\":{\"path\":\"/{id}\"}}", CLASS_EXTERNAL_WEAK);
    struct err err = {0};
    assert_int_equal(client->adapter->ops->check(client->adapter, &client->c.call, &err), ERR_INVALID);
    assert_string_equal(err.text, "path: id is missing");
    struct told told = call(client);
    assert_int_equal(told.outcome, OUTCOME_NOT_SENT);
    assert_string_equal(told.detail, "path: id is missing");
    expect_requests(server, 0);
    client_free(client);
    server_free(server);
}

/* ---- TLS ---- */

/* A self-signed certificate for 127.0.0.1; its PEM goes to ca_path (a template for mkstemp). */
static SSL_CTX *self_signed(char *ca_path)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"onced test", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(tls, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(tls, key), 1);
    int fd = mkstemp(ca_path);
    FILE *file = fdopen(fd, "w");
    PEM_write_X509(file, certificate);
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return tls;
}

static void test_tls(void **state)
{
    (void)state;
    char ca[] = "/tmp/onced-test-XXXXXX", url[64], members[128];
    SSL_CTX *tls = self_signed(ca);
    struct server *server = server_new(answer_ok, tls);
    snprintf(url, sizeof url, "https://127.0.0.1:%d", server->port);
    struct client *client = client_new(server, url, NULL, NULL, CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_NOT_SENT);
    expect_requests(server, 0);
    client_free(client);

    snprintf(members, sizeof members, ",\"tls\":{\"ca\":\"%s\"}", ca);
    client = client_new(server, url, members, NULL, CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_SUCCESS);
    expect(client, OUTCOME_SUCCESS);
    expect_requests(server, 2);
    client_free(client);

    snprintf(url, sizeof url, "https://localhost:%d", server->port); /* another name than the certificate's */
    client = client_new(server, url, members, NULL, CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_NOT_SENT);
    expect_requests(server, 2);
    client_free(client);

    client = client_new(server, url, ",\"tls\":{\"verify\":false}", NULL, CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_SUCCESS);
    expect_requests(server, 3);
    client_free(client);
    server_free(server);
    SSL_CTX_free(tls);
    unlink(ca);
}

/* Plain HTTP where TLS is expected, and the other way round. */
static void test_wrong_protocol(void **state)
{
    (void)state;
    char ca[] = "/tmp/onced-test-XXXXXX", url[64];
    struct server *server = server_new(answer_ok, NULL);
    snprintf(url, sizeof url, "https://127.0.0.1:%d", server->port);
    struct client *client = client_new(server, url, ",\"connect_timeout\":\"300ms\"", NULL, CLASS_EXTERNAL_WEAK);
    expect(client, OUTCOME_NOT_SENT);
    client_free(client);
    server_free(server);

    SSL_CTX *tls = self_signed(ca);
    server = server_new(answer_ok, tls);
    client = client_usual(server);
    struct told told = call(client);
    assert_true(told.outcome == OUTCOME_CONNECTION_LOST || told.outcome == OUTCOME_UNREADABLE);
    client_free(client);
    server_free(server);
    SSL_CTX_free(tls);
    unlink(ca);
}

/* ---- environment, connections, life ---- */

static void test_no_environment(void **state)
{
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("HTTPS_PROXY", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    struct server *server = server_new(answer_ok, NULL);
    struct client *client = client_usual(server);
    expect(client, OUTCOME_SUCCESS);
    assert_null(strcasestr(server->last, "Cookie"));
    assert_null(strcasestr(server->last, "Authorization"));
    expect_requests(server, 1);
    client_free(client);
    server_free(server);
    unsetenv("http_proxy");
    unsetenv("HTTPS_PROXY");
    unsetenv("ALL_PROXY");
}

static void test_connections(void **state)
{
    (void)state;
    struct server *server = server_new(answer_ok, NULL);
    struct client *client = client_usual(server);
    for (int i = 0; i < 20; i++)
        expect(client, OUTCOME_SUCCESS);
    assert_int_equal(server->connections, 1);
    client_free(client);
    client = client_new(server, NULL, ",\"keepalive\":false", NULL, CLASS_EXTERNAL_WEAK);
    for (int i = 0; i < 5; i++)
        expect(client, OUTCOME_SUCCESS);
    assert_int_equal(server->connections, 6);
    expect_requests(server, 25);
    client_free(client);
    server_free(server);
}

/* A body, none, a body again on the same handle: no length or text of a former request stays. */
static void test_methods_in_turn(void **state)
{
    (void)state;
    struct server *server = server_new(answer_ok, NULL);
    struct client *client = client_new(server, NULL, NULL, LOOKUP_TOOL, CLASS_EXTERNAL_WEAK);
    for (int i = 0; i < 3; i++) {
        client->c.call.kind = ATTEMPT_CALL;
        expect(client, OUTCOME_SUCCESS);
        assert_non_null(strstr(server->last, "POST /r HTTP/1.1\r\n"));
        assert_non_null(strstr(server->last, "\r\n\r\n{\"amount\":1}"));
        client->c.call.kind = ATTEMPT_LOOKUP;
        expect(client, OUTCOME_FOUND);
        assert_non_null(strstr(server->last, "GET /l HTTP/1.1\r\n"));
        assert_null(strcasestr(server->last, "Content-Length"));
        assert_null(strcasestr(server->last, "Idempotency-Key"));
    }
    assert_int_equal(server->connections, 1);
    client_free(client);
    server_free(server);
}

static void test_close_in_flight(void **state)
{
    (void)state;
    struct server *server = server_new(hang, NULL);
    struct client *client = client_usual(server);
    struct told sent, unsent;
    begin(client, &sent);
    while (server->requests == 0)
        uv_run(&client->loop, UV_RUN_NOWAIT);
    begin(client, &unsent);
    client_free(client);
    assert_int_equal(sent.count, 1);
    assert_int_equal(sent.outcome, OUTCOME_CONNECTION_LOST);
    assert_int_equal(unsent.count, 1);
    assert_int_equal(unsent.outcome, OUTCOME_NOT_SENT);
    expect_requests(server, 1);
    server_free(server);
}

/* The registry goes away while a request of its is on the wire. */
static void test_reload_in_flight(void **state)
{
    (void)state;
    struct server *server = server_new(answer_ok, NULL), *hung = server_new(hang, NULL);
    struct client *client =
        client_new(hung, NULL, NULL, "{\"request\":{\"path\":\"/r\"},\"timeout\":\"200ms\"}", CLASS_EXTERNAL_WEAK);
    struct told told;
    begin(client, &told);
    while (hung->requests == 0)
        uv_run(&client->loop, UV_RUN_NOWAIT);
    http_case_release(&client->c);
    await(client, &told);
    assert_int_equal(told.outcome, OUTCOME_TIMEOUT);
    char provider[128];
    snprintf(provider, sizeof provider, "{\"base_url\":\"http://127.0.0.1:%d\"}", server->port);
    http_case_init(&client->c, provider, USUAL_TOOL, CLASS_EXTERNAL_WEAK);
    client->c.call.arguments = http_case_json(&client->c, "{}");
    expect(client, OUTCOME_SUCCESS);
    client_free(client);
    server_free(server);
    server_free(hung);
}

struct chain {
    struct client *client;
    int left;
};

static void on_chain(void *user, const struct adapter_answer *answer)
{
    struct chain *chain = user;
    assert_int_equal(answer->outcome, OUTCOME_SUCCESS);
    uv_stop(&chain->client->loop);
    if (--chain->left > 0)
        chain->client->adapter->ops->send(chain->client->adapter, &chain->client->c.call, on_chain, chain);
}

/* Sending from within done, many at once. */
static void test_many(void **state)
{
    (void)state;
    struct server *server = server_new(answer_ok, NULL);
    struct client *client = client_usual(server);
    struct chain chains[10];
    for (int i = 0; i < 10; i++) {
        chains[i] = (struct chain){client, 100};
        client->adapter->ops->send(client->adapter, &client->c.call, on_chain, &chains[i]);
    }
    for (int i = 0; i < 10; i++) {
        while (chains[i].left > 0)
            uv_run(&client->loop, UV_RUN_DEFAULT);
    }
    assert_true(server->connections <= 10);
    expect_requests(server, 1000);
    client_free(client);
    server_free(server);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_post),
        cmocka_unit_test(test_warm_large_post),
        cmocka_unit_test(test_warm_other_methods),
        cmocka_unit_test(test_warm_half_read),
        cmocka_unit_test(test_warm_two),
        cmocka_unit_test(test_closed_before),
        cmocka_unit_test(test_empty_reply),
        cmocka_unit_test(test_redirects),
        cmocka_unit_test(test_challenges),
        cmocka_unit_test(test_interim),
        cmocka_unit_test(test_slow_drip),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_broken_answers),
        cmocka_unit_test(test_endless_head),
        cmocka_unit_test(test_refused_connection),
        cmocka_unit_test(test_connect_timeout),
        cmocka_unit_test(test_unbuildable),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_wrong_protocol),
        cmocka_unit_test(test_no_environment),
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_methods_in_turn),
        cmocka_unit_test(test_close_in_flight),
        cmocka_unit_test(test_reload_in_flight),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
