#include "adapter/webhook.h"

#include "adapter/curl_loop.h"
#include "adapter/http_parts.h"
#include "base/base64.h"
#include "base/env.h"
#include "base/mem.h"

#include <assert.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define DAY_MS           86400000
#define HEAD_BYTES_MAX   (64 * 1024)
#define DETAIL_BYTES_MAX 300

struct sender {
    struct webhooks base;
    struct curl_loop loop;
    size_t busy;
    void (*closed)(void *user);
    void *closed_user;
};

/* One request. */
struct post {
    struct curl_transfer transfer; /* first: see post_of */
    struct sender *sender;
    struct curl_slist *headers;
    char *body; /* a copy */
    size_t head_bytes, answer_bytes;
    char retry_after[64]; /* the header's value */
    const char *refusal;  /* why it was not begun, or NULL */
    struct err err;
    webhook_done *done;
    void *user;
};

static struct post *post_of(struct curl_transfer *transfer)
{
    return (struct post *)transfer;
}

/* ---- signing ---- */

enum err_code webhook_secret(const char *text, struct arena *arena, struct str *out, struct err *err)
{
    static const char prefix[] = "whsec_";
    struct str value = str_of(text);
    size_t n = 0;
    if (value.n >= sizeof prefix - 1 && memcmp(value.p, prefix, sizeof prefix - 1) == 0)
        value = (struct str){value.p + sizeof prefix - 1, value.n - (sizeof prefix - 1)};
    unsigned char *bytes = arena_alloc(arena, BASE64_DECODED_MAX(value.n));
    if (!base64_decode(value, bytes, &n) || n < WEBHOOK_SECRET_BYTES_MIN)
        return err_set(err, ERR_INVALID, "expected whsec_ and at least %d bytes in base 64", WEBHOOK_SECRET_BYTES_MIN);
    *out = (struct str){(const char *)bytes, n};
    return ERR_NONE;
}

void webhook_sign(struct str secret, const char *id, int64_t seconds, struct str body, char *out)
{
    struct buf text;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    buf_init(&text, 0);
    buf_printf(&text, "%s.%lld.", id, (long long)seconds);
    buf_add_str(&text, body);
    if (!HMAC(EVP_sha256(), secret.p, (int)secret.n, (const unsigned char *)text.p, text.n, digest, &n))
        mem_exhausted("libcrypto");
    buf_release(&text);
    strcpy(out, "v1,");
    assert(3 + BASE64_ENCODED_SIZE(n) <= WEBHOOK_SIGNATURE_SIZE);
    base64_encode(digest, n, out + 3);
}

const char *webhook_url_fault(const char *url, bool *plain)
{
    *plain = false;
    return strstr(url, "://") ? http_url_fault(url, true, plain) : "is no URL, expected http:// or https://";
}

/* ---- what libcurl gives ---- */

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    static const char name[] = "Retry-After:";
    struct post *post = user;
    size_t n = size * count;
    post->head_bytes += n;
    if (post->head_bytes > HEAD_BYTES_MAX)
        return 0;
    if (n >= sizeof name - 1 && strncasecmp(line, name, sizeof name - 1) == 0)
        snprintf(post->retry_after, sizeof post->retry_after, "%.*s", (int)(n - (sizeof name - 1)),
                 line + sizeof name - 1);
    return n;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    struct post *post = user;
    (void)bytes;
    post->answer_bytes += size * count;
    return post->answer_bytes > WEBHOOK_ANSWER_BYTES_MAX ? 0 : size * count;
}

/* Seconds or an HTTP date. */
static int64_t asked_for_ms(const char *text, int64_t now_ms)
{
    char *end;
    while (*text == ' ' || *text == '\t')
        text++;
    long long seconds = strtoll(text, &end, 10);
    if (end == text || (*end && *end != '\r' && *end != '\n' && *end != ' ')) {
        time_t at = curl_getdate(text, NULL);
        seconds = at < 0 ? 0 : (long long)at - (long long)(now_ms / 1000);
    }
    if (seconds <= 0)
        return 0;
    return seconds > DAY_MS / 1000 ? DAY_MS : (int64_t)seconds * 1000;
}

/* ---- the end ---- */

static void post_free(struct post *post)
{
    curl_transfer_release(&post->transfer);
    curl_slist_free_all(post->headers);
    free(post->body);
    free(post);
}

static void say_why(const struct post *post, CURLcode code, int status, char *out, size_t size)
{
    if (post->refusal)
        snprintf(out, size, "%s", post->refusal);
    else if (status >= 300 && status < 400)
        snprintf(out, size, "the endpoint answered %d: redirects are not followed", status);
    else if (status)
        snprintf(out, size, "the endpoint answered %d", status);
    else
        snprintf(out, size, "%s", post->transfer.error[0] ? post->transfer.error : curl_easy_strerror(code));
}

static void finished(struct curl_transfer *transfer, CURLcode code)
{
    struct post *post = post_of(transfer);
    struct sender *sender = post->sender;
    char detail[DETAIL_BYTES_MAX] = "";
    long status = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    struct webhook_report report = {.sent = transfer->let_pass > 0, .status = (int)status, .detail = detail};
    report.delivered = !post->refusal && status >= 200 && status < 300; /* whatever becomes of the answer's body */
    if (status == 429 || status == 503)
        report.retry_after_ms = asked_for_ms(post->retry_after, env_system()->now_ms(env_system()));
    if (!report.delivered)
        say_why(post, code, report.status, detail, sizeof detail);
    sender->busy--;
    post->done(post->user, &report);
    post_free(post);
}

static const struct curl_transfer_ops post_ops = {.finished = finished};

/* ---- sending ---- */

static void add_line(struct post *post, const char *line)
{
    struct curl_slist *longer = curl_slist_append(post->headers, line);
    if (!longer)
        mem_exhausted("libcurl");
    post->headers = longer;
}

static void add_header(struct post *post, const char *name, const char *value)
{
    struct buf line;
    buf_init(&line, 0);
    buf_printf(&line, "%s: %s", name, value);
    add_line(post, line.p);
    buf_release(&line);
}

static void add_headers(struct post *post, const struct webhook_endpoint *endpoint,
                        const struct webhook_message *message)
{
    char text[WEBHOOK_SIGNATURE_SIZE];
    int64_t seconds = message->now_ms / 1000;
    add_header(post, "Content-Type", message->content_type ? message->content_type : "application/json");
    add_header(post, "User-Agent", "onced");
    add_line(post, "Expect:"); /* libcurl would wait for a 100 of its own accord */
    add_header(post, "webhook-id", message->id);
    snprintf(text, sizeof text, "%lld", (long long)seconds);
    add_header(post, "webhook-timestamp", text);
    if (!endpoint->secret.p)
        return;
    webhook_sign(endpoint->secret, message->id, seconds, message->body, text);
    add_header(post, "webhook-signature", text);
}

static bool is_visible(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return n > 0 && n <= WEBHOOK_ID_BYTES_MAX;
}

static const char *fault_of(const struct sender *sender, const struct webhook_message *message)
{
    if (sender->loop.closing)
        return "onced is stopping";
    if (sender->busy > WEBHOOK_POSTS_MAX)
        return "too many webhooks are on the wire";
    if (!is_visible(message->id))
        return "the webhook's id can not be sent in a header";
    return message->body.n > WEBHOOK_BODY_BYTES_MAX ? "the webhook's body is too long" : NULL;
}

static enum err_code begin(struct post *post, const struct webhook_endpoint *endpoint,
                           const struct webhook_message *message)
{
    CURL *easy = post->transfer.easy;
    add_headers(post, endpoint, message);
    post->body = mem_copy_bytes(message->body.p ? message->body.p : "", message->body.n);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, post);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, post);
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)endpoint->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, post->headers);
    if (endpoint->ca)
        curl_transfer_text(&post->transfer, CURLOPT_CAINFO, endpoint->ca);
    curl_transfer_body(&post->transfer, (struct str){post->body, message->body.n});
    curl_transfer_text(&post->transfer, CURLOPT_URL, endpoint->url);
    return curl_transfer_start(&post->transfer, &post->err);
}

static void send_post(struct webhooks *base, const struct webhook_endpoint *endpoint,
                      const struct webhook_message *message, webhook_done *done, void *user)
{
    struct sender *sender = (struct sender *)base;
    struct post *post = mem_zero(sizeof *post);
    curl_transfer_init(&post->transfer, &sender->loop, &post_ops);
    post->sender = sender;
    post->done = done;
    post->user = user;
    sender->busy++;
    post->refusal = fault_of(sender, message);
    if (!post->refusal && begin(post, endpoint, message))
        post->refusal = post->err.text;
    if (post->refusal)
        curl_transfer_refuse(&post->transfer);
}

/* ---- life ---- */

static const struct webhooks_ops sender_ops = {.post = send_post};

enum err_code webhooks_new(struct uv_loop_s *loop, struct webhooks **out, struct err *err)
{
    struct sender *sender = mem_zero(sizeof *sender);
    sender->base.ops = &sender_ops;
    enum err_code code = curl_loop_init(&sender->loop, loop, err);
    if (code == ERR_NONE)
        *out = &sender->base;
    else
        free(sender);
    return code;
}

/* Every post has ended by now: each frees itself. */
static void release_sender(void *user)
{
    (void)user;
}

static void on_closed(void *user)
{
    struct sender *sender = user;
    void (*closed)(void *user) = sender->closed;
    void *closed_user = sender->closed_user;
    free(sender);
    closed(closed_user);
}

void webhooks_close(struct webhooks *base, void (*closed)(void *user), void *user)
{
    struct sender *sender = (struct sender *)base;
    sender->closed = closed;
    sender->closed_user = user;
    curl_loop_close(&sender->loop, release_sender, on_closed, sender);
}
