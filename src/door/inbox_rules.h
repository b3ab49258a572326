/* What one source of inbound events (registry: inbox.NAME) says about signatures and about reading events. Compiled by
 * the daemon from the registry file, hung into struct inbox_source; immutable, owned by the registry. */
#ifndef DOOR_INBOX_RULES_H
#define DOOR_INBOX_RULES_H

#include "adapter/jq.h"
#include "core/inbox.h"

#define INBOX_SECRETS_MAX  8 /* rotation: any of them fits */
#define INBOX_OUTCOMES_MAX 32

enum inbox_scheme { INBOX_STRIPE, INBOX_GITHUB, INBOX_STANDARD_WEBHOOKS };

/* A part of an event: by JSON Pointer or by jq; neither: not told. */
struct inbox_pick {
    const char *pointer;
    struct jq_program *jq;
};

struct inbox_rule {
    struct jq_program *when; /* NULL: always */
    enum inbound_outcome outcome;
    struct inbox_pick external_id, result;
};

struct inbox_rules {
    enum inbox_scheme scheme;
    struct str secrets[INBOX_SECRETS_MAX]; /* the bytes that sign */
    size_t secret_count;
    int64_t tolerance_ms; /* of the signed time, either way; github signs none */
    struct inbox_pick event_id, type, created;
    struct inbox_pick reference, provider_key, external_id; /* match */
    struct inbox_rule outcomes[INBOX_OUTCOMES_MAX];         /* the first that holds; none: ignore */
    size_t outcome_count;
};

/* ---- signatures (inbox_signature.c) ---- */

/* What a request carried; absent headers are absent. */
struct inbox_message {
    struct str body;
    struct str stripe;                                 /* Stripe-Signature */
    struct str hub, hub_event;                         /* X-Hub-Signature-256, X-GitHub-Event */
    struct str webhook_id, webhook_time, webhook_sign; /* webhook-id, -timestamp, -signature */
};

/* Whether one of the source's secrets made the signature over exactly these bytes, within tolerance of now. Compares in
 * constant time. ERR_DENIED: what is wrong, without a word of the expected value. */
enum err_code inbox_verify(const struct inbox_rules *rules, const struct inbox_message *message, int64_t now_ms,
                           struct err *err);
/* The bytes of a secret as the scheme writes it ("whsec_" + base64 for standard_webhooks), in arena. ERR_INVALID. */
enum err_code inbox_secret(enum inbox_scheme scheme, const char *text, struct arena *arena, struct str *out,
                           struct err *err);

/* ---- reading (inbox_read.c) ---- */

/* Fills event (source, event, type, created_ms, outcome, match, value, external_id, result, body) from a verified
 * message; texts in arena or of the message. ERR_INVALID: it is not JSON, or its id is missing or too long. */
enum err_code inbox_read(const struct inbox_rules *rules, const char *source, const struct inbox_message *message,
                         struct arena *arena, struct inbound *event, struct err *err);

#endif
