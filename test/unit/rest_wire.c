/* The REST door on the wire: HTTP, TLS, callers that leave, stopping, listening. */
#include "rest_stage.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the wire ---- */

static void test_pipelined(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    int fd = http_connect(http_door_port(stage->door));
    struct buf text, rest;
    buf_init(&text, 0);
    buf_init(&rest, 0);
    for (int i = 0; i < 5; i++)
        buf_add_text(&text, "POST /v1/calls HTTP/1.1\r\nHost: [::1]:80\r\n" JSON_TYPE
                            "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    buf_add_text(&text, "GET /healthz HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
    http_send(&stage->loop, fd, text.p, text.n);
    for (int i = 0; i < 5; i++) {
        http_spin(&stage->loop, 5);
        assert_int_equal(stage->engine.calls, i + 1); /* one after the other */
        assert_true(fake_engine_reply(&stage->engine));
        http_answer_release(&stage->answer);
        http_receive(&stage->loop, fd, &rest, false, 2000, &stage->answer);
        assert_int_equal(stage->answer.status, 201);
    }
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, &rest, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    expect(stage, "/status", "ok");
    close(fd);
    buf_release(&text);
    buf_release(&rest);
}

static void test_methods(void **state)
{
    struct stage *stage = *state;
    assert_int_equal(ask_rest(stage, "HEAD", "/v1/operations/" OP_1, "", NULL), 200);
    assert_true(atoi(http_answer_header(&stage->answer, "Content-Length")) > 500);
    assert_int_equal(ask_rest(stage, "OPTIONS", "/v1/calls", "", NULL), 204);
    assert_string_equal(http_answer_header(&stage->answer, "Allow"), "POST, OPTIONS");
    assert_int_equal(ask_rest(stage, "OPTIONS", "/v1/tokens", "", NULL), 204);
    assert_string_equal(http_answer_header(&stage->answer, "Allow"), "GET, HEAD, POST, OPTIONS");
    ask_rest(stage, "GET", "/v1/calls", "", NULL);
    expect_problem(stage, 405, "method_not_allowed");
    assert_string_equal(http_answer_header(&stage->answer, "Allow"), "POST, OPTIONS");
    ask_rest(stage, "PUT", "/v1/calls", JSON_TYPE, "{}");
    expect_problem(stage, 405, "method_not_allowed");
    ask_rest(stage, "BREW", "/v1/operations", "", NULL);
    expect_problem(stage, 405, "method_not_allowed");
    ask_rest(stage, "GET", "/v1/nothing", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "GET", "/v1/operations/" OP_1 "/nothing", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "GET", "/v1/operations/%00", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "GET", "/v1/operations/%zz", "", NULL);
    expect_problem(stage, 404, "not_found");
    ask_rest(stage, "GET", "/v1/operations/op_01j00000000000000000000001", "", NULL);
    expect_problem(stage, 404, "not_found");
}

static void test_long_head(void **state)
{
    struct stage *stage = *state;
    char *headers = malloc(70000);
    size_t n = (size_t)sprintf(headers, "X-Long: ");
    memset(headers + n, 'a', 60000);
    memcpy(headers + n + 60000, "\r\n", 3);
    int status = ask_rest(stage, "GET", "/healthz", headers, NULL);
    assert_true(status == 431 || status == 413);
    free(headers);
}

static void test_foreign_pages(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *host, *origin;
        int status;
    } from[] = {
        {"127.0.0.1:7070", NULL, 200},
        {"localhost", NULL, 200},
        {"[::1]:7070", NULL, 200},
        {"192.168.1.7", NULL, 200},
        {"evil.example", NULL, 403},
        {"localhost.evil.example", NULL, 403},
        {"127.0.0.1.evil.example:7070", NULL, 403},
        {"localhost", "http://localhost:3000", 200},
        {"localhost", "http://127.0.0.1", 200},
        {"localhost", "http://[::1]:1", 200},
        {"localhost", "https://evil.example", 403},
        {"localhost", "http://localhost.evil.example", 403},
        {"localhost", "null", 403},
    };
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        char text[300];
        snprintf(text, sizeof text, "GET /v1/tools HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", from[i].host,
                 from[i].origin ? "Origin: " : "", from[i].origin ? from[i].origin : "", from[i].origin ? "\r\n" : "");
        int fd = http_connect(http_door_port(stage->door));
        send_raw(stage, fd, text);
        http_answer_release(&stage->answer);
        http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
        if (stage->answer.status != from[i].status)
            fail_msg("%s %s: %d", from[i].host, from[i].origin ? from[i].origin : "-", stage->answer.status);
        close(fd);
    }
}

static void test_caller_leaves(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 150);
    assert_int_equal(stage->engine.calls, 1);
    assert_int_equal(stage->engine.left, 0);
    close(fd);
    http_spin(&stage->loop, 100);
    assert_int_equal(stage->engine.left, 1);
    assert_false(fake_engine_reply(&stage->engine));
    /* Gone before anybody looked: noticed by the sweep. */
    fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 5);
    close(fd);
    http_spin(&stage->loop, 200);
    assert_int_equal(stage->engine.left, 2);
    /* Gone at the very moment of the answer: not delivered. */
    fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 5);
    close(fd);
    assert_true(fake_engine_reply(&stage->engine));
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 0);
}

static void test_waiting_caller_is_answered(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 200); /* long enough to be watched */
    assert_true(fake_engine_reply(&stage->engine));
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 201);
    http_spin(&stage->loop, 10);
    assert_int_equal(stage->engine.delivered, 1);
    send_raw(stage, fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* the connection lives on */
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    close(fd);
}

static void test_too_many_connections(void **state)
{
    struct stage *stage = *state;
    int first = http_connect(http_door_port(stage->door)), second = http_connect(http_door_port(stage->door));
    http_spin(&stage->loop, 10);
    ask_rest(stage, "GET", "/healthz", "", NULL);
    expect_problem(stage, 503, "unavailable");
    assert_string_equal(http_answer_header(&stage->answer, "Connection"), "close");
    close(first);
    close(second);
    http_spin(&stage->loop, 10);
    assert_int_equal(ask_rest(stage, "GET", "/healthz", "", NULL), 200);
}

static bool is_closed(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* One connection says nothing, one never gets its head together, one never its body; a waiting caller is none of them.
 */
static void test_slow(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    uint16_t port = http_door_port(stage->door);
    int silent = http_connect(port), head = http_connect(port), body = http_connect(port), waiting = http_connect(port);
    send_raw(stage, head, "GET /healthz HTTP/1.1\r\nX-Slow: ");
    send_raw(stage, body, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 1000\r\n\r\n");
    send_raw(stage, waiting,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    int seen = 0;
    for (int i = 0; i < 60 && seen != 7; i++) {
        http_spin(&stage->loop, 100);
        if (!is_closed(head))
            http_send(&stage->loop, head, "a", 1);
        if (!is_closed(body))
            http_send(&stage->loop, body, " ", 1);
        seen = is_closed(silent) | is_closed(head) << 1 | is_closed(body) << 2;
    }
    assert_int_equal(seen, 7);
    assert_false(is_closed(waiting));
    assert_true(fake_engine_reply(&stage->engine));
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, waiting, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 201);
    close(silent);
    close(head);
    close(body);
    close(waiting);
}

/* ---- TLS ---- */

static char *pem_text(BIO *bio)
{
    char *data;
    long n = BIO_get_mem_data(bio, &data);
    char *text = strndup(data, (size_t)n);
    BIO_free(bio);
    return text;
}

static void make_certificate(char **cert, char **key)
{
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *x509 = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), 0);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1,
                               -1, 0);
    X509_set_issuer_name(x509, X509_get_subject_name(x509));
    assert_true(X509_sign(x509, pair, EVP_sha256()) > 0);
    BIO *cert_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(cert_bio, x509);
    PEM_write_bio_PrivateKey(key_bio, pair, NULL, NULL, 0, NULL, NULL);
    *cert = pem_text(cert_bio);
    *key = pem_text(key_bio);
    X509_free(x509);
    EVP_PKEY_free(pair);
}

/* Sends one request over TLS and gives what came back, as text in the arena. */
static const char *ask_tls(struct stage *stage, struct http_door *door, const char *request)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    int fd = http_connect(http_door_port(door));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    SSL_set_fd(ssl, fd);
    int connected = 0, wrote = 0, n = 0;
    char text[8192] = "";
    for (int i = 0; i < 3000 && !strstr(text, "}"); i++) {
        http_spin(&stage->loop, 1);
        if (connected <= 0)
            connected = SSL_connect(ssl);
        else if (wrote <= 0)
            wrote = SSL_write(ssl, request, (int)strlen(request));
        else if (SSL_read(ssl, text + n, (int)(sizeof text - 1) - n) > 0)
            n = (int)strlen(text);
    }
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    return arena_copy_text(&stage->arena, text);
}

static void test_tls(void **state)
{
    struct stage *stage = *state;
    struct http_door *plain = stage->door;
    char *cert, *key;
    struct err err = {0};
    make_certificate(&cert, &key);
    const struct http_door_options options = {
        .loop = &stage->loop,
        .engine = &stage->engine,
        .address = "localhost",
        .tls_cert_pem = cert,
        .tls_key_pem = key,
    };
    assert_int_equal(http_door_new(&options, &stage->door, &err), 0);
    free(cert);
    free(key);
    const char *answer = ask_tls(stage, stage->door,
                                 "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                                 "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    assert_non_null(strstr(answer, "HTTP/1.1 201"));
    assert_non_null(strstr(answer, OP_1));
    http_spin(&stage->loop, 20);
    assert_int_equal(stage->engine.delivered, 1);
    close_door(stage);
    stage->door = plain;
}

/* ---- stopping ---- */

static void test_stop(void **state)
{
    struct stage *stage = *state;
    load_schemas(stage);
    stage->engine.later = true;
    int kept = http_connect(http_door_port(stage->door)), waiting = http_connect(http_door_port(stage->door));
    send_raw(stage, waiting,
             "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE "Content-Length: 12\r\n\r\n{\"tool\":\"t\"}");
    http_spin(&stage->loop, 10);
    uint16_t port = http_door_port(stage->door);
    http_door_stop_accepting(stage->door);
    http_spin(&stage->loop, 5);
    assert_int_equal(http_connect(port), -1);
    send_raw(stage, kept, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, kept, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 503);
    expect_shape(stage, "Ready");
    expect(stage, "/reasons/0", "stopping");
    assert_string_equal(http_answer_header(&stage->answer, "Connection"), "close");
    close_door(stage);
    assert_int_equal(stage->engine.left, 1); /* the waiting caller was given up */
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, waiting, NULL, false, 100, &stage->answer);
    assert_int_equal(stage->answer.status, 0);
    close(kept);
    close(waiting);
}

/* A command that is under way in the ledger keeps the door open until it is back. */
static void test_stop_waits_for_ledger(void **state)
{
    struct stage *stage = *state;
    bool closed = false;
    stage->engine.ledger_later = true;
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd, "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
    http_spin(&stage->loop, 10);
    http_door_close(stage->door, door_closed, &closed);
    http_spin(&stage->loop, 1200); /* longer than answers under way are given */
    assert_false(closed);
    fake_ledger_poll(&stage->engine);
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    for (int i = 0; i < 2000 && !closed; i++)
        http_spin(&stage->loop, 1);
    assert_true(closed);
    stage->door = NULL;
    close(fd);
}

/* ---- listening ---- */

static void test_listen_errors(void **state)
{
    struct stage *stage = *state;
    struct http_door *door;
    struct http_door_options options = {.loop = &stage->loop, .engine = &stage->engine, .address = "example.com"};
    struct err err = {0};
    assert_int_equal(http_door_new(&options, &door, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "example.com"));
    err_clear(&err);
    options.address = "127.0.0.1";
    options.port = http_door_port(stage->door);
    assert_int_equal(http_door_new(&options, &door, &err), ERR_IO);
    assert_non_null(strstr(err.text, "in use"));
    err_clear(&err);
    options.port = 0;
    options.tls_cert_pem = options.tls_key_pem = "nonsense";
    assert_int_equal(http_door_new(&options, &door, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "TLS"));
}

static const struct CMUnitTest tests[] = {
    CASE(test_pipelined),
    CASE(test_methods),
    CASE(test_long_head),
    CASE(test_foreign_pages),
    CASE(test_caller_leaves),
    CASE(test_waiting_caller_is_answered),
    cmocka_unit_test_setup_teardown(test_too_many_connections, set_up_small, tear_down),
    cmocka_unit_test_setup_teardown(test_slow, set_up_hasty, tear_down),
    CASE(test_tls),
    CASE(test_stop),
    CASE(test_stop_waits_for_ledger),
    CASE(test_listen_errors),
};
const struct test_part wire_tests = {"rest wire", tests, sizeof tests / sizeof *tests};
