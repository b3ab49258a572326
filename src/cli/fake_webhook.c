#include "cli/fake_webhook.h"

#include "base/base64.h"
#include "base/env.h"
#include "base/mem.h"
#include "cli/fake_server.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MS    2
#define TIMEOUT_MS 10000L /* of one try */
#define HMAC_BYTES 32

/* One event of one object. */
struct fake_event {
    struct fake *fake;
    struct fake_event *next;
    struct fake_request *request; /* whose answer waits for the first try; NULL = none */
    struct fake_event *then;      /* waits until this one was taken */
    struct fake_timer timer;      /* next try */
    CURL *easy;                   /* on the wire */
    struct curl_slist *headers;
    char id[32], type[FAKE_COLLECTION_NAME_MAX + 16];
    char *body, *object, *reference; /* reference NULL = none */
    int64_t copies;                  /* taken */
    int64_t tries, posts;            /* of this copy, in all */
    long status;                     /* of the last try; 0 = no answer */
};

static const char *const scheme_names[] = {"stripe", "github", "standard_webhooks"};
static const char *const when_names[] = {"after_commit", "before_answer", "late", "never"};

/* ---- settings ---- */

void fake_webhooks_init(struct fake_webhooks *webhooks)
{
    *webhooks = (struct fake_webhooks){.copies = 1, .every_ms = 10, .retry_ms = 200, .tries = 100};
}

static enum err_code read_text(const struct json *value, char *out, size_t size, struct err *err)
{
    if (value->type != JSON_STRING || value->text.n >= size ||
        (value->text.n && memchr(value->text.p, 0, value->text.n)))
        return err_set(err, ERR_INVALID, "expected a text of at most %zu bytes", size - 1);
    memcpy(out, value->text.p ? value->text.p : "", value->text.n);
    out[value->text.n] = '\0';
    return ERR_NONE;
}

static enum err_code read_number(const struct json *value, int64_t min, int64_t max, int64_t *out, struct err *err)
{
    int64_t number = 0;
    if (value->type != JSON_NUMBER || !json_number_int64(value->text, &number) || number < min || number > max)
        return err_set(err, ERR_INVALID, "expected an integer from %lld to %lld", (long long)min, (long long)max);
    *out = number;
    return ERR_NONE;
}

static enum err_code read_choice(const struct json *value, const char *const *names, int count, int *out,
                                 struct err *err)
{
    for (int i = 0; i < count; i++) {
        if (value->type == JSON_STRING && str_is(value->text, names[i])) {
            *out = i;
            return ERR_NONE;
        }
    }
    return err_set(err, ERR_INVALID, "is not one of its values (docs/fake-provider.md)");
}

static enum err_code apply_member(struct fake_webhooks *webhooks, struct str name, const struct json *value,
                                  struct err *err)
{
    const struct {
        const char *name;
        int64_t *out, min, max;
    } numbers[] = {
        {"delay_ms", &webhooks->delay_ms, 0, 86400000}, {"copies", &webhooks->copies, 1, FAKE_COPIES_MAX},
        {"every_ms", &webhooks->every_ms, 0, 86400000}, {"retry_ms", &webhooks->retry_ms, 1, 86400000},
        {"tries", &webhooks->tries, 1, 1000000},
    };
    int choice = 0;
    if (str_is(name, "url"))
        return read_text(value, webhooks->url, sizeof webhooks->url, err);
    if (str_is(name, "secret"))
        return read_text(value, webhooks->secret, sizeof webhooks->secret, err);
    if (str_is(name, "scheme")) {
        if (!read_choice(value, scheme_names, 3, &choice, err))
            webhooks->scheme = (enum fake_scheme)choice;
        return err->code;
    }
    if (str_is(name, "when")) {
        if (!read_choice(value, when_names, 4, &choice, err))
            webhooks->when = (enum fake_when)choice;
        return err->code;
    }
    if (str_is(name, "reversed")) {
        if (value->type != JSON_BOOL)
            return err_set(err, ERR_INVALID, "expected true or false");
        webhooks->reversed = value->boolean;
        return ERR_NONE;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (str_is(name, numbers[i].name))
            return read_number(value, numbers[i].min, numbers[i].max, numbers[i].out, err);
    return err_set(err, ERR_INVALID, "no such setting");
}

/* The bytes that sign; false when the secret is none of the scheme. */
static bool secret_bytes(const struct fake_webhooks *webhooks, unsigned char *out, size_t *n)
{
    const char *text = webhooks->secret;
    if (webhooks->scheme != SCHEME_STANDARD_WEBHOOKS) {
        *n = strlen(text);
        memcpy(out, text, *n);
        return *n > 0;
    }
    if (strncmp(text, "whsec_", 6) == 0)
        text += 6;
    return base64_decode(str_of(text), out, n) && *n > 0;
}

enum err_code fake_webhooks_apply(struct fake_webhooks *webhooks, const struct json *object, struct err *err)
{
    struct fake_webhooks changed = *webhooks;
    unsigned char bytes[BASE64_DECODED_MAX(FAKE_SECRET_MAX)];
    size_t n;
    if (object->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "expected an object of settings");
    for (uint32_t i = 0; i < object->count; i++) {
        const struct json_member *member = &object->members[i];
        if (apply_member(&changed, member->name, &member->value, err)) {
            err_prefix(err, "%.*s: ", STR_ARG(member->name));
            return ERR_INVALID;
        }
    }
    if (*changed.url && !secret_bytes(&changed, bytes, &n))
        return err_set(err, ERR_INVALID, "secret: expected one of the scheme %s", scheme_names[changed.scheme]);
    *webhooks = changed;
    return ERR_NONE;
}

static void write_event(struct json_out *out, const struct fake_event *event)
{
    json_out_object(out);
    json_out_member_text(out, "id", event->id);
    json_out_member_text(out, "type", event->type);
    json_out_member_text(out, "object", event->object);
    if (event->reference)
        json_out_member_text(out, "reference", event->reference);
    json_out_member_int(out, "posts", event->posts);
    json_out_member_int(out, "taken", event->copies);
    json_out_member_int(out, "status", event->status);
    json_out_end_object(out);
}

void fake_webhooks_write(struct json_out *out, const struct fake_webhooks *webhooks)
{
    json_out_object(out);
    json_out_member_text(out, "url", webhooks->url);
    json_out_member_text(out, "scheme", scheme_names[webhooks->scheme]);
    json_out_member_text(out, "when", when_names[webhooks->when]);
    json_out_member_int(out, "delay_ms", webhooks->delay_ms);
    json_out_member_int(out, "copies", webhooks->copies);
    json_out_member_int(out, "every_ms", webhooks->every_ms);
    json_out_member_bool(out, "reversed", webhooks->reversed);
    json_out_member_int(out, "retry_ms", webhooks->retry_ms);
    json_out_member_int(out, "tries", webhooks->tries);
    json_out_name(out, "events");
    json_out_array(out);
    for (const struct fake_event *event = webhooks->oldest; event; event = event->next)
        write_event(out, event);
    json_out_end_array(out);
    json_out_end_object(out);
}

/* ---- signing ---- */

static void sign(const struct fake_webhooks *webhooks, const char *prefix, const char *body, unsigned char *out)
{
    unsigned char key[BASE64_DECODED_MAX(FAKE_SECRET_MAX)];
    size_t key_bytes = 0;
    unsigned n = 0;
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(&text, prefix);
    buf_add_text(&text, body);
    secret_bytes(webhooks, key, &key_bytes);
    if (!HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text.p, text.n, out, &n))
        mem_exhausted("libcrypto");
    buf_release(&text);
}

static void hex_of(const unsigned char *bytes, char *out)
{
    for (size_t i = 0; i < HMAC_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void add_header(struct fake_event *event, const char *name, const char *value)
{
    char line[256];
    snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(event->headers, line);
    if (!longer)
        mem_exhausted("libcurl");
    event->headers = longer;
}

static void add_signature(struct fake_event *event)
{
    const struct fake_webhooks *webhooks = &event->fake->webhooks;
    unsigned char made[EVP_MAX_MD_SIZE];
    char prefix[96], value[160], hex[2 * HMAC_BYTES + 1], base64[BASE64_ENCODED_SIZE(HMAC_BYTES)];
    long long seconds = (long long)(env_system()->now_ms(env_system()) / 1000);
    switch (webhooks->scheme) {
    case SCHEME_STRIPE:
        snprintf(prefix, sizeof prefix, "%lld.", seconds);
        sign(webhooks, prefix, event->body, made);
        hex_of(made, hex);
        snprintf(value, sizeof value, "t=%lld,v1=%s", seconds, hex);
        add_header(event, "Stripe-Signature", value);
        break;
    case SCHEME_GITHUB:
        sign(webhooks, "", event->body, made);
        hex_of(made, hex);
        snprintf(value, sizeof value, "sha256=%s", hex);
        add_header(event, "X-Hub-Signature-256", value);
        add_header(event, "X-GitHub-Event", event->type);
        add_header(event, "X-GitHub-Delivery", event->id);
        break;
    case SCHEME_STANDARD_WEBHOOKS:
        snprintf(prefix, sizeof prefix, "%s.%lld.", event->id, seconds);
        sign(webhooks, prefix, event->body, made);
        base64_encode(made, HMAC_BYTES, base64);
        snprintf(value, sizeof value, "%lld", seconds);
        add_header(event, "webhook-id", event->id);
        add_header(event, "webhook-timestamp", value);
        snprintf(value, sizeof value, "v1,%s", base64);
        add_header(event, "webhook-signature", value);
        break;
    }
}

/* ---- sending ---- */

static size_t forget_answer(char *bytes, size_t size, size_t count, void *user)
{
    (void)bytes;
    (void)user;
    return size * count;
}

static void plan(struct fake_event *event, int64_t in_ms)
{
    fake_timer_start(&event->fake->timers, &event->timer, event->fake->now_ms + in_ms);
}

static void send_event(struct fake_timer *timer)
{
    struct fake_event *event = timer->user;
    struct fake_webhooks *webhooks = &event->fake->webhooks;
    if (!webhooks->multi)
        webhooks->multi = curl_multi_init();
    event->easy = curl_easy_init();
    if (!webhooks->multi || !event->easy)
        mem_exhausted("libcurl");
    add_header(event, "Content-Type", "application/json");
    add_header(event, "Expect", "");
    add_signature(event);
    curl_easy_setopt(event->easy, CURLOPT_URL, webhooks->url);
    curl_easy_setopt(event->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(event->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(event->easy, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
    curl_easy_setopt(event->easy, CURLOPT_POSTFIELDS, event->body);
    curl_easy_setopt(event->easy, CURLOPT_HTTPHEADER, event->headers);
    curl_easy_setopt(event->easy, CURLOPT_WRITEFUNCTION, forget_answer);
    curl_easy_setopt(event->easy, CURLOPT_PRIVATE, event);
    curl_multi_add_handle(webhooks->multi, event->easy);
    webhooks->on_wire++;
    event->posts++;
    event->tries++;
}

static void take_off_wire(struct fake_event *event)
{
    struct fake_webhooks *webhooks = &event->fake->webhooks;
    if (!event->easy)
        return;
    curl_multi_remove_handle(webhooks->multi, event->easy);
    curl_easy_cleanup(event->easy);
    curl_slist_free_all(event->headers);
    event->easy = NULL;
    event->headers = NULL;
    webhooks->on_wire--;
}

static void let_answer_go(struct fake_event *event)
{
    struct fake_request *request = event->request;
    event->request = NULL;
    if (!request || fake_webhooks_hold(request))
        return;
    if (request->hold_ms > 0)
        fake_timer_start(&event->fake->timers, &request->hold_timer, event->fake->now_ms + request->hold_ms);
    else if (request->hold_ms == 0)
        fake_request_ready(request);
}

static void ended(struct fake_event *event, CURLcode code)
{
    const struct fake_webhooks *webhooks = &event->fake->webhooks;
    event->status = 0;
    if (code == CURLE_OK)
        curl_easy_getinfo(event->easy, CURLINFO_RESPONSE_CODE, &event->status);
    take_off_wire(event);
    let_answer_go(event);
    if (event->status < 200 || event->status > 299) {
        if (event->tries < webhooks->tries)
            plan(event, webhooks->retry_ms);
        return;
    }
    event->copies++;
    event->tries = 0;
    if (event->then)
        plan(event->then, 0);
    event->then = NULL;
    if (event->copies < webhooks->copies)
        plan(event, webhooks->every_ms);
}

void fake_webhooks_run(struct fake *fake)
{
    struct fake_webhooks *webhooks = &fake->webhooks;
    int running, left;
    CURLMsg *message;
    if (webhooks->on_wire == 0)
        return;
    curl_multi_perform(webhooks->multi, &running);
    while ((message = curl_multi_info_read(webhooks->multi, &left))) {
        struct fake_event *event = NULL;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&event);
        if (message->msg == CURLMSG_DONE)
            ended(event, code);
    }
}

int fake_webhooks_wait(const struct fake *fake, int wait_ms)
{
    return fake->webhooks.on_wire > 0 && wait_ms > POLL_MS ? POLL_MS : wait_ms;
}

/* ---- events ---- */

/* at_ms: monotonic time as of which the object is told. */
static struct fake_event *event_new(struct fake *fake, const struct fake_object *object, int64_t at_ms)
{
    struct fake_webhooks *webhooks = &fake->webhooks;
    struct fake_event *event = mem_zero(sizeof *event);
    struct buf body;
    event->fake = fake;
    event->timer.fire = send_event;
    event->timer.user = event;
    event->object = mem_copy_bytes(object->id.p, object->id.n);
    event->reference = object->reference.p ? mem_copy_bytes(object->reference.p, object->reference.n) : NULL;
    snprintf(event->id, sizeof event->id, "evt_%llu", (unsigned long long)++webhooks->made);
    snprintf(event->type, sizeof event->type, "%s.%s", fake->store.collections[object->collection],
             fake_object_status(object, at_ms));
    buf_init(&body, 0);
    buf_printf(&body, "{\"id\":\"%s\",\"type\":\"%s\",\"created\":%lld,\"data\":{\"object\":", event->id, event->type,
               (long long)((object->created_ms + at_ms - fake->now_ms) / 1000));
    fake_object_write(&fake->store, object, at_ms, &body);
    buf_add_text(&body, "}}");
    event->body = buf_detach(&body, NULL);
    *(webhooks->newest ? &webhooks->newest->next : &webhooks->oldest) = event;
    webhooks->newest = event;
    webhooks->event_count++;
    return event;
}

void fake_webhooks_created(struct fake_request *request, const struct fake_object *object)
{
    struct fake *fake = request->fake;
    struct fake_webhooks *webhooks = &fake->webhooks;
    if (!*webhooks->url || webhooks->when == WHEN_NEVER || webhooks->event_count + 2 > FAKE_EVENTS_MAX)
        return;
    int64_t first_ms = webhooks->when == WHEN_LATE ? webhooks->delay_ms : 0;
    int64_t settled_ms = object->settles_at_ms > fake->now_ms ? object->settles_at_ms - fake->now_ms : 0;
    struct fake_event *event = event_new(fake, object, fake->now_ms);
    if (webhooks->when == WHEN_BEFORE_ANSWER)
        event->request = request;
    if (settled_ms == 0) {
        plan(event, first_ms);
        return;
    }
    struct fake_event *end = event_new(fake, object, object->settles_at_ms);
    plan(end, first_ms + settled_ms);
    if (webhooks->reversed)
        end->then = event;
    else
        plan(event, first_ms);
}

bool fake_webhooks_hold(const struct fake_request *request)
{
    for (const struct fake_event *event = request->fake->webhooks.oldest; event; event = event->next)
        if (event->request == request)
            return true;
    return false;
}

void fake_webhooks_forget(const struct fake_request *request)
{
    for (struct fake_event *event = request->fake->webhooks.oldest; event; event = event->next)
        if (event->request == request)
            event->request = NULL;
}

static void forget_events(struct fake *fake)
{
    struct fake_webhooks *webhooks = &fake->webhooks;
    while (webhooks->oldest) {
        struct fake_event *event = webhooks->oldest;
        webhooks->oldest = event->next;
        fake_timer_stop(&fake->timers, &event->timer);
        take_off_wire(event);
        free(event->body);
        free(event->object);
        free(event->reference);
        free(event);
    }
    webhooks->newest = NULL;
    webhooks->event_count = 0;
}

void fake_webhooks_reset(struct fake *fake)
{
    struct fake_webhooks *webhooks = &fake->webhooks;
    CURLM *multi = webhooks->multi;
    uint64_t made = webhooks->made;
    forget_events(fake);
    fake_webhooks_init(webhooks);
    webhooks->multi = multi;
    webhooks->made = made; /* ids are not given out again */
}

void fake_webhooks_release(struct fake *fake)
{
    forget_events(fake);
    if (fake->webhooks.multi)
        curl_multi_cleanup(fake->webhooks.multi);
    fake->webhooks.multi = NULL;
}
