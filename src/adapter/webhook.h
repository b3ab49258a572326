/* Outgoing webhooks: one signed POST to an endpoint of the application's (Standard Webhooks: webhook-id,
 * webhook-timestamp, webhook-signature). It sends once and tells what came of it; whether and when to try again is the
 * caller's to decide, with the same id, so that receivers can tell a repetition.
 *
 *   webhook_post ─► curl_loop ─► endpoint        no redirects, no second request on a dead connection
 *   done ◄───────── status line ◄──┘              2xx: delivered; the answer's body is read and forgotten
 *
 * struct webhooks is an interface, so that the engine's tests and the simulator have senders of their own. */
#ifndef ADAPTER_WEBHOOK_H
#define ADAPTER_WEBHOOK_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define WEBHOOK_ID_BYTES_MAX     400
#define WEBHOOK_BODY_BYTES_MAX   (1024 * 1024)
#define WEBHOOK_ANSWER_BYTES_MAX 65536 /* of the answer's body; what is more is not read */
#define WEBHOOK_POSTS_MAX        64    /* on the wire at one time; beyond: answered "not sent" */
#define WEBHOOK_SECRET_BYTES_MIN 16

/* Where to. Borrowed for the call. */
struct webhook_endpoint {
    const char *url;    /* http or https; may carry a query, no user, no fragment (webhook_url_fault) */
    struct str secret;  /* the bytes that sign (webhook_secret); absent: unsigned */
    int64_t timeout_ms; /* of one try, connecting included */
    const char *ca;     /* file of certificates to trust instead of the system's, or NULL */
};

struct webhook_message {
    const char *id;           /* visible ASCII without spaces; the same on every try */
    int64_t now_ms;           /* signed with the rest: of this try */
    const char *content_type; /* NULL: application/json */
    struct str body;          /* sent byte for byte */
};

struct webhook_report {
    bool delivered;         /* the endpoint answered 2xx */
    bool sent;              /* a request may have left */
    int status;             /* 0 = no status line seen */
    int64_t retry_after_ms; /* what the endpoint asked for with 429 or 503, at most a day; 0 = nothing */
    const char *detail;     /* why it was not delivered, for people; never NULL, "" when it was; valid during done */
};
typedef void webhook_done(void *user, const struct webhook_report *report);

struct uv_loop_s;
struct webhooks;
struct webhooks_ops {
    void (*post)(struct webhooks *webhooks, const struct webhook_endpoint *endpoint,
                 const struct webhook_message *message, webhook_done *done, void *user);
};
struct webhooks {
    const struct webhooks_ops *ops;
};

/* Sends. message is copied. done is called exactly once, never from within; also when nothing could be sent. */
static inline void webhook_post(struct webhooks *webhooks, const struct webhook_endpoint *endpoint,
                                const struct webhook_message *message, webhook_done *done, void *user)
{
    webhooks->ops->post(webhooks, endpoint, message, done, user);
}

/* The one that has a wire, on the loop. */
enum err_code webhooks_new(struct uv_loop_s *loop, struct webhooks **out, struct err *err);
/* What is on the wire is ended (done is called: sent, not delivered), then it is freed, then closed is called. */
void webhooks_close(struct webhooks *webhooks, void (*closed)(void *user), void *user);

/* ---- the pieces ---- */

/* The bytes of "whsec_" + base 64 (the prefix may be left out), at least WEBHOOK_SECRET_BYTES_MIN, in arena.
 * ERR_INVALID. */
enum err_code webhook_secret(const char *text, struct arena *arena, struct str *out, struct err *err);

/* "v1," + base 64 of HMAC-SHA256 over "ID.SECONDS.BODY". */
#define WEBHOOK_SIGNATURE_SIZE 48
void webhook_sign(struct str secret, const char *id, int64_t seconds, struct str body, char *out);

/* What is wrong with an endpoint's URL, or NULL. *plain: http to another machine: what is sent can be read on the way.
 */
const char *webhook_url_fault(const char *url, bool *plain);

#endif
