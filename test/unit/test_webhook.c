/* Outgoing webhooks against a server on loopback that does as it is told: what arrives is what was signed, exactly once
 * per post, and every ending is told for what it is. */
#include "support/test.h"

#include "adapter/webhook.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define PEERS_MAX 80

struct server;
struct peer {
    uv_tcp_t tcp;
    struct server *server;
    struct buf text;
    uv_write_t write;
    bool open;
};

struct server {
    uv_tcp_t tcp;
    int port;
    const char *answer; /* NULL: none, and the connection stays open; "": it is closed */
    struct buf large;   /* follows answer */
    int heads, connections;
    char last[8192];
    struct peer peers[PEERS_MAX];
};

struct fix {
    uv_loop_t loop;
    struct server server;
    struct webhooks *webhooks;
    struct arena arena;
    struct webhook_endpoint endpoint;
    struct webhook_message message;
    bool closed;
};

/* ---- the server ---- */

static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    (void)handle;
    *out = uv_buf_init(mem_alloc(wanted), (unsigned)wanted);
}

static void close_peer(struct peer *peer)
{
    if (peer->open && !uv_is_closing((uv_handle_t *)&peer->tcp))
        uv_close((uv_handle_t *)&peer->tcp, NULL);
    peer->open = false;
}

static void on_written(uv_write_t *write, int status)
{
    (void)write;
    (void)status;
}

static void act(struct peer *peer)
{
    struct server *server = peer->server;
    snprintf(server->last, sizeof server->last, "%s", peer->text.p);
    server->heads++;
    uv_stop(peer->tcp.loop);
    buf_reset(&peer->text);
    if (!server->answer)
        return;
    if (!*server->answer) {
        close_peer(peer);
        return;
    }
    uv_buf_t parts[2] = {uv_buf_init((char *)server->answer, (unsigned)strlen(server->answer)),
                         uv_buf_init(server->large.p, (unsigned)server->large.n)};
    uv_write(&peer->write, (uv_stream_t *)&peer->tcp, parts, server->large.n ? 2 : 1, on_written);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct peer *peer = stream->data;
    if (n > 0)
        buf_add(&peer->text, bytes->base, (size_t)n);
    free(bytes->base);
    if (n < 0) {
        close_peer(peer);
        return;
    }
    const char *end = peer->text.p ? strstr(peer->text.p, "\r\n\r\n") : NULL;
    const char *length = end ? strstr(peer->text.p, "Content-Length: ") : NULL;
    if (length && peer->text.n >= (size_t)(end + 4 - peer->text.p) + strtoul(length + 16, NULL, 10))
        act(peer);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct server *server = stream->data;
    assert_int_equal(status, 0);
    assert_true(server->connections < PEERS_MAX);
    struct peer *peer = &server->peers[server->connections++];
    *peer = (struct peer){.server = server, .open = true};
    buf_init(&peer->text, 0);
    uv_tcp_init(stream->loop, &peer->tcp);
    peer->tcp.data = peer;
    assert_int_equal(uv_accept(stream, (uv_stream_t *)&peer->tcp), 0);
    uv_read_start((uv_stream_t *)&peer->tcp, give_room, on_read);
}

static int setup(void **state)
{
    static struct fix fix;
    struct sockaddr_in address;
    struct err err = {0};
    int size = sizeof address;
    log_set_level(LOG_OFF);
    fix = (struct fix){0};
    uv_loop_init(&fix.loop);
    uv_tcp_init(&fix.loop, &fix.server.tcp);
    fix.server.tcp.data = &fix.server;
    buf_init(&fix.server.large, 0);
    uv_ip4_addr("127.0.0.1", 0, &address);
    assert_int_equal(uv_tcp_bind(&fix.server.tcp, (struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&fix.server.tcp, 8, on_connection), 0);
    uv_tcp_getsockname(&fix.server.tcp, (struct sockaddr *)&address, &size);
    fix.server.port = ntohs(address.sin_port);
    fix.server.answer = "HTTP/1.1 204 No Content\r\n\r\n";
    arena_init(&fix.arena);
    assert_int_equal(webhooks_new(&fix.loop, &fix.webhooks, &err), 0);
    fix.endpoint = (struct webhook_endpoint){
        .url = arena_printf(&fix.arena, "http://127.0.0.1:%d/hooks?from=onced", fix.server.port), .timeout_ms = 10000};
    assert_int_equal(webhook_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &fix.arena, &fix.endpoint.secret, &err),
                     0);
    fix.message = (struct webhook_message){.id = "evt_1", .now_ms = 1795968000123, .body = STR("{\"id\": 1}")};
    *state = &fix;
    return 0;
}

static void on_closed(void *user)
{
    struct fix *fix = user;
    fix->closed = true;
    uv_stop(&fix->loop);
}

static void close_webhooks(struct fix *fix)
{
    if (fix->webhooks)
        webhooks_close(fix->webhooks, on_closed, fix);
    fix->webhooks = NULL;
    while (!fix->closed)
        uv_run(&fix->loop, UV_RUN_DEFAULT);
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    close_webhooks(fix);
    for (int i = 0; i < fix->server.connections; i++) {
        close_peer(&fix->server.peers[i]);
        buf_release(&fix->server.peers[i].text);
    }
    uv_close((uv_handle_t *)&fix->server.tcp, NULL);
    uv_run(&fix->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fix->loop), 0);
    buf_release(&fix->server.large);
    arena_release(&fix->arena);
    return 0;
}

/* ---- the client ---- */

struct seen {
    uv_loop_t *loop;
    int times;
    struct webhook_report report;
    char detail[512];
};

static void done(void *user, const struct webhook_report *report)
{
    struct seen *seen = user;
    seen->times++;
    seen->report = *report;
    snprintf(seen->detail, sizeof seen->detail, "%s", report->detail);
    uv_stop(seen->loop);
}

static struct seen post(struct fix *fix)
{
    struct seen seen = {.loop = &fix->loop};
    webhook_post(fix->webhooks, &fix->endpoint, &fix->message, done, &seen);
    assert_int_equal(seen.times, 0); /* never from within */
    while (!seen.times)
        uv_run(&fix->loop, UV_RUN_DEFAULT);
    assert_int_equal(seen.times, 1);
    return seen;
}

static void has(const struct fix *fix, const char *text)
{
    if (!strstr(fix->server.last, text))
        fail_msg("no \"%s\" in:\n%s", text, fix->server.last);
}

/* ---- the tests ---- */

static void test_what_arrives(void **state)
{
    struct fix *fix = *state;
    struct seen seen = post(fix);
    char signature[WEBHOOK_SIGNATURE_SIZE];
    webhook_sign(fix->endpoint.secret, "evt_1", 1795968000, fix->message.body, signature);
    assert_true(seen.report.delivered && seen.report.sent);
    assert_int_equal(seen.report.status, 204);
    assert_string_equal(seen.detail, "");
    has(fix, "POST /hooks?from=onced HTTP/1.1\r\n");
    has(fix, "Content-Type: application/json\r\n");
    has(fix, "webhook-id: evt_1\r\n");
    has(fix, "webhook-timestamp: 1795968000\r\n");
    has(fix, arena_printf(&fix->arena, "webhook-signature: %s\r\n", signature));
    has(fix, "\r\n\r\n{\"id\": 1}");
    assert_null(strstr(fix->server.last, "Expect"));
    fix->endpoint.secret = STR_NONE;
    fix->message.content_type = "text/plain";
    post(fix);
    has(fix, "Content-Type: text/plain\r\n");
    assert_null(strstr(fix->server.last, "webhook-signature"));
    assert_int_equal(fix->server.heads, 2);
}

/* As the library standardwebhooks signs. */
static void test_signatures(void **state)
{
    struct fix *fix = *state;
    struct json *file;
    static char text[65536];
    const char *path = arena_printf(&fix->arena, "%s/test/webhooks/vectors.json", getenv("ONCED_SOURCE"));
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    size_t n = fread(text, 1, sizeof text, in), judged = 0;
    fclose(in);
    assert_int_equal(json_parse(&fix->arena, (struct str){text, n}, &json_limits_default, &file, NULL), 0);
    const struct json *vectors = json_get(file, "vectors");
    for (uint32_t i = 0; i < vectors->count; i++) {
        const struct json *vector = &vectors->items[i];
        struct str secret;
        struct err err = {0};
        char signature[WEBHOOK_SIGNATURE_SIZE];
        if (!str_is(json_get(vector, "scheme")->text, "standard_webhooks"))
            continue;
        judged++;
        assert_int_equal(
            webhook_secret(arena_copy_str(&fix->arena, json_get(vector, "secret")->text), &fix->arena, &secret, &err),
            0);
        webhook_sign(secret, arena_copy_str(&fix->arena, json_get(vector, "id")->text),
                     strtoll(arena_copy_str(&fix->arena, json_get(vector, "time")->text), NULL, 10),
                     json_get(vector, "body")->text, signature);
        assert_true(str_is(json_get(json_get(vector, "headers"), "webhook-signature")->text, signature));
    }
    assert_true(judged > 1);
}

static void test_secrets(void **state)
{
    struct fix *fix = *state;
    struct str secret;
    struct err err = {0};
    assert_int_equal(webhook_secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &fix->arena, &secret, &err), 0);
    assert_int_equal(secret.n, 24);
    assert_int_equal(webhook_secret("whsec_c2hvcnQ=", &fix->arena, &secret, &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(webhook_secret("whsec_not base 64, whatever it may be", &fix->arena, &secret, &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(webhook_secret("", &fix->arena, &secret, &err), ERR_INVALID);
}

static void test_base64(void **state)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"},
                                           {"\xff\xfe\xfd", "//79"}}; /* RFC 4648, 10 */
    static const char *const wrong[] = {"Z", "Zh==", "Zm9=", "Zm 9v", "Zm-v", "Zm9v=Zm9v"};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[32];
        unsigned char bytes[32];
        size_t n = strlen(pairs[i][0]), decoded;
        base64_encode((const unsigned char *)pairs[i][0], n, text);
        assert_string_equal(text, pairs[i][1]);
        assert_true(base64_decode(str_of(text), bytes, &decoded));
        assert_int_equal(decoded, n);
        assert_memory_equal(bytes, pairs[i][0], n);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        unsigned char bytes[32];
        size_t decoded;
        assert_false(base64_decode(str_of(wrong[i]), bytes, &decoded));
    }
}

static void test_base64url(void **state)
{
    static const char *const wrong[] = {"Z", "Zh", "Zm9", "__79=", "Zg==", "//79", "Zm+v"};
    unsigned char bytes[32];
    size_t decoded;
    (void)state;
    assert_true(base64url_decode(STR("__79Zg"), bytes, &decoded));
    assert_int_equal(decoded, 4);
    assert_memory_equal(bytes, "\xff\xfe\xfd\x66", 4);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(base64url_decode(str_of(wrong[i]), bytes, &decoded));
}

static void test_refusals(void **state)
{
    struct fix *fix = *state;
    fix->server.answer = "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\nRetry-After: 9\r\n\r\nno";
    struct seen seen = post(fix);
    assert_false(seen.report.delivered);
    assert_int_equal(seen.report.status, 500);
    assert_int_equal(seen.report.retry_after_ms, 0);
    assert_string_equal(seen.detail, "the endpoint answered 500");
    fix->server.answer = "HTTP/1.1 429 Later\r\nContent-Length: 0\r\nretry-after: 7\r\n\r\n";
    assert_int_equal(post(fix).report.retry_after_ms, 7000);
    fix->server.answer = "HTTP/1.1 503 Later\r\nContent-Length: 0\r\nRetry-After: 999999999\r\n\r\n";
    assert_int_equal(post(fix).report.retry_after_ms, 86400000);
    fix->server.answer = "HTTP/1.1 503 Later\r\nContent-Length: 0\r\nRetry-After: soon\r\n\r\n";
    assert_int_equal(post(fix).report.retry_after_ms, 0);
    assert_int_equal(fix->server.heads, 4);
}

static void test_redirects_are_not_followed(void **state)
{
    struct fix *fix = *state;
    fix->server.answer = arena_printf(
        &fix->arena, "HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:%d/other\r\nContent-Length: 0\r\n\r\n",
        fix->server.port);
    struct seen seen = post(fix);
    assert_false(seen.report.delivered);
    assert_string_equal(seen.detail, "the endpoint answered 307: redirects are not followed");
    assert_int_equal(fix->server.heads, 1);
}

/* The status line is the receiver's word; the rest of what it says is not read to its end. */
static void test_a_long_answer(void **state)
{
    struct fix *fix = *state;
    for (int i = 0; i < 100; i++)
        buf_printf(&fix->server.large, "%1000s", "");
    fix->server.answer = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    assert_true(post(fix).report.delivered);
    fix->server.answer = "HTTP/1.1 400 No\r\nContent-Length: 100000\r\n\r\n";
    assert_false(post(fix).report.delivered);
}

/* A kept connection that dies under the second post is no reason to send it twice. */
static void test_one_request_per_post(void **state)
{
    struct fix *fix = *state;
    assert_true(post(fix).report.delivered);
    fix->server.answer = "";
    struct seen seen = post(fix);
    assert_false(seen.report.delivered);
    assert_true(seen.report.sent);
    assert_int_equal(seen.report.status, 0);
    assert_int_equal(fix->server.heads, 2);
    assert_int_equal(fix->server.connections, 1);
}

static void test_nobody_there(void **state)
{
    struct fix *fix = *state;
    fix->endpoint.url = "http://127.0.0.1:1/";
    struct seen seen = post(fix);
    assert_false(seen.report.delivered || seen.report.sent);
    assert_true(*seen.detail);
}

static void test_what_can_not_be_sent(void **state)
{
    struct fix *fix = *state;
    static const char *const ids[] = {"", "a b", "a\r\nX-Evil: 1", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        fix->message.id = ids[i];
        struct seen seen = post(fix);
        assert_false(seen.report.delivered || seen.report.sent);
    }
    fix->message.id = "evt_1";
    fix->message.body.n = WEBHOOK_BODY_BYTES_MAX + 1; /* refused before anything of it is read */
    assert_string_equal(post(fix).detail, "the webhook's body is too long");
    assert_int_equal(fix->server.connections, 0);
}

static void test_at_most_so_many(void **state)
{
    struct fix *fix = *state;
    struct seen seen[WEBHOOK_POSTS_MAX + 1] = {0};
    fix->server.answer = NULL;
    for (int i = 0; i <= WEBHOOK_POSTS_MAX; i++) {
        seen[i].loop = &fix->loop;
        webhook_post(fix->webhooks, &fix->endpoint, &fix->message, done, &seen[i]);
    }
    while (!seen[WEBHOOK_POSTS_MAX].times || fix->server.heads < WEBHOOK_POSTS_MAX)
        uv_run(&fix->loop, UV_RUN_DEFAULT);
    assert_string_equal(seen[WEBHOOK_POSTS_MAX].detail, "too many webhooks are on the wire");
    close_webhooks(fix); /* the rest is told, too: they may have arrived */
    for (int i = 0; i < WEBHOOK_POSTS_MAX; i++) {
        assert_int_equal(seen[i].times, 1);
        assert_true(seen[i].report.sent && !seen[i].report.delivered);
    }
}

static void test_urls(void **state)
{
    bool plain;
    (void)state;
    assert_null(webhook_url_fault("https://app.example/hooks?x=1", &plain));
    assert_false(plain);
    assert_null(webhook_url_fault("http://app.example/hooks", &plain));
    assert_true(plain);
    assert_null(webhook_url_fault("http://127.0.0.1:9/", &plain));
    assert_false(plain);
    assert_non_null(webhook_url_fault("app.example/hooks", &plain));
    assert_non_null(webhook_url_fault("ftp://app.example/", &plain));
    assert_non_null(webhook_url_fault("https://user:word@app.example/", &plain));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_arrives),
        TEST(test_signatures),
        TEST(test_secrets),
        TEST(test_base64),
        TEST(test_base64url),
        TEST(test_refusals),
        TEST(test_redirects_are_not_followed),
        TEST(test_a_long_answer),
        TEST(test_one_request_per_post),
        TEST(test_nobody_there),
        TEST(test_what_can_not_be_sent),
        TEST(test_at_most_so_many),
        TEST(test_urls),
    };
    return cmocka_run_group_tests_name("webhook", tests, NULL, NULL);
}
