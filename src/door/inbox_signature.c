/* Signatures of webhooks: HMAC-SHA256 over the raw body, in three styles.
 *
 *     stripe              Stripe-Signature: t=TIME,v1=HEX[,v1=HEX…]          over "TIME.BODY"
 *     github              X-Hub-Signature-256: sha256=HEX                    over "BODY"
 *     standard_webhooks   webhook-signature: v1,BASE64[ v1,BASE64…]          over "ID.TIME.BODY" */
#include "adapter/webhook.h"
#include "base/base64.h"
#include "base/digest.h"
#include "base/digits.h"
#include "door/inbox_rules.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#define SIGNATURES_MAX 16 /* in one header: a sender that rotates its secrets sends several */

static const char no_fit[] = "no signature fits: the secret is another one, or the body was changed on its way";

/* ---- parts ---- */

static struct digest sign(struct str secret, const struct str *parts, size_t count)
{
    struct digest out = {{0}};
    struct buf text;
    buf_init(&text, 0);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buf_add_char(&text, '.');
        buf_add(&text, parts[i].p, parts[i].n);
    }
    unsigned n = 0;
    if (!HMAC(EVP_sha256(), secret.p, (int)secret.n, (const unsigned char *)text.p, text.n, out.b, &n))
        abort(); /* out of memory: nothing may be taken for verified */
    buf_release(&text);
    return out;
}

static bool from_hex(struct str text, struct digest *out)
{
    if (text.n != 2 * DIGEST_BYTES)
        return false;
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int high = hex_value(text.p[2 * i]), low = hex_value(text.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out->b[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* The next part of text up to the separator; text becomes the rest. */
static struct str cut(struct str *text, char separator)
{
    const char *at = text->n ? memchr(text->p, separator, text->n) : NULL;
    struct str part = {text->p, at ? (size_t)(at - text->p) : text->n};
    size_t used = part.n + (at != NULL);
    *text = (struct str){text->p + used, text->n - used};
    return part;
}

static bool starts(struct str text, const char *with, struct str *rest)
{
    size_t n = strlen(with);
    if (text.n < n || memcmp(text.p, with, n) != 0)
        return false;
    *rest = (struct str){text.p + n, text.n - n};
    return true;
}

static struct str trim(struct str text)
{
    while (text.n > 0 && text.p[0] == ' ')
        text.p++, text.n--;
    while (text.n > 0 && text.p[text.n - 1] == ' ')
        text.n--;
    return text;
}

/* Whole seconds since 1970. */
static bool read_seconds(struct str text, int64_t *out)
{
    int64_t value = 0;
    if (text.n == 0 || text.n > 12)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        value = value * 10 + (text.p[i] - '0');
    }
    *out = value;
    return true;
}

static enum err_code check_time(const struct inbox_rules *rules, int64_t seconds, int64_t now_ms, struct err *err)
{
    int64_t away_ms = now_ms - seconds * 1000;
    if (away_ms > rules->tolerance_ms)
        return err_set(err, ERR_DENIED, "the signature is %lld s old, at most %lld s are allowed",
                       (long long)(away_ms / 1000), (long long)(rules->tolerance_ms / 1000));
    if (-away_ms > rules->tolerance_ms)
        return err_set(err, ERR_DENIED, "the signature's time lies %lld s ahead: one of the two clocks is wrong",
                       (long long)(-away_ms / 1000));
    return ERR_NONE;
}

/* Looks at every secret and every signature, whichever fits first. */
static bool any_fits(const struct inbox_rules *rules, const struct str *parts, size_t count, const struct digest *given,
                     size_t given_count)
{
    bool fits = false;
    for (size_t i = 0; i < rules->secret_count; i++) {
        struct digest wanted = sign(rules->secrets[i], parts, count);
        for (size_t k = 0; k < given_count; k++)
            fits |= digest_same_secret(wanted.b, given[k].b, DIGEST_BYTES);
    }
    return fits;
}

/* ---- the schemes ---- */

static enum err_code verify_stripe(const struct inbox_rules *rules, const struct inbox_message *message, int64_t now_ms,
                                   struct err *err)
{
    struct digest given[SIGNATURES_MAX];
    struct str rest = message->stripe, time = STR_NONE, value;
    size_t count = 0;
    int64_t seconds;
    if (!rest.p)
        return err_set(err, ERR_DENIED, "the header Stripe-Signature is missing");
    while (rest.n > 0) {
        struct str part = trim(cut(&rest, ','));
        if (starts(part, "t=", &value) && !time.p)
            time = value;
        else if (starts(part, "v1=", &value) && count < SIGNATURES_MAX && from_hex(value, &given[count]))
            count++;
    }
    if (!time.p || !read_seconds(time, &seconds) || count == 0)
        return err_set(err, ERR_DENIED, "Stripe-Signature must be t=SECONDS,v1=HEX");
    const struct str parts[] = {time, message->body};
    if (!any_fits(rules, parts, 2, given, count))
        return err_set(err, ERR_DENIED, "%s", no_fit);
    return check_time(rules, seconds, now_ms, err);
}

static enum err_code verify_github(const struct inbox_rules *rules, const struct inbox_message *message,
                                   struct err *err)
{
    struct digest given;
    struct str hex;
    if (!message->hub.p)
        return err_set(err, ERR_DENIED, "the header X-Hub-Signature-256 is missing");
    if (!starts(message->hub, "sha256=", &hex) || !from_hex(hex, &given))
        return err_set(err, ERR_DENIED, "X-Hub-Signature-256 must be sha256=HEX");
    if (!any_fits(rules, &message->body, 1, &given, 1))
        return err_set(err, ERR_DENIED, "%s", no_fit);
    return ERR_NONE;
}

static enum err_code verify_standard(const struct inbox_rules *rules, const struct inbox_message *message,
                                     int64_t now_ms, struct err *err)
{
    struct digest given[SIGNATURES_MAX];
    struct str rest = message->webhook_sign, value;
    unsigned char bytes[BASE64_DECODED_MAX(256)];
    size_t count = 0, n;
    int64_t seconds;
    if (!message->webhook_id.p || !message->webhook_time.p || !rest.p)
        return err_set(err, ERR_DENIED, "webhook-id, webhook-timestamp and webhook-signature are wanted, all three");
    while (rest.n > 0) {
        struct str part = cut(&rest, ' ');
        bool v1 = starts(part, "v1,", &value) && value.n <= 256 && base64_decode(value, bytes, &n);
        if (v1 && n == DIGEST_BYTES && count < SIGNATURES_MAX)
            memcpy(given[count++].b, bytes, DIGEST_BYTES);
    }
    if (!read_seconds(message->webhook_time, &seconds) || count == 0 || message->webhook_id.n == 0)
        return err_set(err, ERR_DENIED, "webhook-timestamp must be seconds, webhook-signature v1,BASE64");
    const struct str parts[] = {message->webhook_id, message->webhook_time, message->body};
    if (!any_fits(rules, parts, 3, given, count))
        return err_set(err, ERR_DENIED, "%s", no_fit);
    return check_time(rules, seconds, now_ms, err);
}

enum err_code inbox_verify(const struct inbox_rules *rules, const struct inbox_message *message, int64_t now_ms,
                           struct err *err)
{
    switch (rules->scheme) {
    case INBOX_STRIPE: return verify_stripe(rules, message, now_ms, err);
    case INBOX_GITHUB: return verify_github(rules, message, err);
    case INBOX_STANDARD_WEBHOOKS: return verify_standard(rules, message, now_ms, err);
    }
    return err_set(err, ERR_DENIED, "no such scheme");
}

enum err_code inbox_secret(enum inbox_scheme scheme, const char *text, struct arena *arena, struct str *out,
                           struct err *err)
{
    struct str value = str_of(text);
    if (value.n == 0)
        return err_set(err, ERR_INVALID, "the secret is empty");
    if (scheme != INBOX_STANDARD_WEBHOOKS) {
        *out = arena_str(arena, value);
        return ERR_NONE;
    }
    return webhook_secret(text, arena, out, err);
}
