/* What providers tell on their own (design 11.1): an inbound event as it is recorded, which operation it belongs to,
 * and whether it is newer than what is known already. Pure; how events are signed and read is the door's part, what
 * they do to an operation is step()'s (STEP_INBOUND). */
#ifndef CORE_INBOX_H
#define CORE_INBOX_H

#include "core/operation.h"

#define INBOX_SOURCES_MAX     64
#define INBOX_TENANT_DEFAULT  "default"
#define INBOX_EVENT_BYTES_MAX 255    /* of an event's id as the source gives it */
#define INBOX_VALUE_BYTES_MAX 512    /* of what an event is matched by */
#define INBOX_BODY_BYTES_MAX  262144 /* of one event */

/* What the event says of the effect. Rising: of two events of the same time the later in this list counts.
 * X(constant, text) */
#define INBOUND_OUTCOMES(X)                                                                                            \
    X(INBOUND_IGNORE, "ignore")       /* nothing of interest */                                                        \
    X(INBOUND_PENDING, "pending")     /* accepted, the outcome comes later */                                          \
    X(INBOUND_FAILED, "failed")       /* something exists and ended badly: neither success nor proof of no effect */   \
    X(INBOUND_NO_EFFECT, "no_effect") /* the provider's word that nothing happened */                                  \
    X(INBOUND_SUCCESS, "success")

enum inbound_outcome {
#define X(constant, text) constant,
    INBOUND_OUTCOMES(X)
#undef X
        INBOUND_OUTCOME_COUNT
};
const char *inbound_outcome_name(enum inbound_outcome outcome);
bool inbound_outcome_from_name(struct str text, enum inbound_outcome *out);

/* By what an event names its operation: the first of these that it carries, and only by that. X(constant, text) */
#define INBOUND_MATCHES(X)                                                                                             \
    X(INBOUND_BY_NOTHING, "nothing")                                                                                   \
    X(INBOUND_BY_REFERENCE, "reference") /* our operation id, where the request carried it */                          \
    X(INBOUND_BY_PROVIDER_KEY, "provider_key")                                                                         \
    X(INBOUND_BY_EXTERNAL_ID, "external_id")

enum inbound_match {
#define X(constant, text) constant,
    INBOUND_MATCHES(X)
#undef X
        INBOUND_MATCH_COUNT
};
const char *inbound_match_name(enum inbound_match match);
bool inbound_match_from_name(struct str text, enum inbound_match *out);

/* X(constant, text) */
#define INBOUND_STATUSES(X)                                                                                            \
    X(INBOUND_WAITING, "waiting") /* no operation has taken it yet */                                                  \
    X(INBOUND_APPLIED, "applied") /* part of its operation's history */                                                \
    X(INBOUND_IGNORED, "ignored") /* the source's rules say that it is of no interest */

enum inbound_status {
#define X(constant, text) constant,
    INBOUND_STATUSES(X)
#undef X
        INBOUND_STATUS_COUNT
};
const char *inbound_status_name(enum inbound_status status);
bool inbound_status_from_name(struct str text, enum inbound_status *out);

/* Whether the application has it, too. X(constant, text) */
#define FORWARD_STATUSES(X)                                                                                            \
    X(FORWARD_NONE, "none")               /* the source forwards nothing */                                            \
    X(FORWARD_DUE, "due")                 /* to be sent, or sent again */                                              \
    X(FORWARD_DELIVERED, "delivered")     /* the endpoint answered 2xx: never sent again */                            \
    X(FORWARD_UNDELIVERED, "undelivered") /* given up; a person may have it sent again */

enum forward_status {
#define X(constant, text) constant,
    FORWARD_STATUSES(X)
#undef X
        FORWARD_STATUS_COUNT
};
const char *forward_status_name(enum forward_status status);
bool forward_status_from_name(struct str text, enum forward_status *out);

#define FORWARD_DETAIL_BYTES_MAX 300

/* How far forwarding is. */
struct forward {
    enum forward_status status;
    int64_t tries;      /* begun, since it came or a person asked for it */
    int64_t at_ms;      /* DUE: next try; else when it became so */
    int64_t until_ms;   /* no try is begun later */
    const char *detail; /* why the last one failed, or NULL */
};

/* One event, as its sender signed it. (source, event) is unique. Texts belong to whatever arena it was made in. */
struct inbound {
    char id[OPERATION_ID_SIZE]; /* "ev_" + ULID */
    const char *source;         /* of the registry */
    const char *event;          /* the source's id of it */
    const char *type;           /* NULL when it has none */
    int64_t created_ms;         /* the provider's time; when it tells none, that of arrival */
    int64_t received_ms;
    enum inbound_outcome outcome;
    enum inbound_match match;
    const char *value;       /* NULL: by nothing */
    const char *external_id; /* of the effect, NULL when not told */
    struct str result;       /* JSON text; absent when the source's rules make none */
    struct str body;         /* as it was received */
    int64_t retain_until_ms;
    /* life */
    enum inbound_status status;
    const char *operation; /* APPLIED: to which */
    int64_t settled_ms;    /* when it became applied or ignored, 0 = waiting */
    int64_t duplicates;    /* further deliveries */
    int64_t duplicate_ms;  /* of the last one, 0 = none */
    struct forward forward;
};

/* Where a source's events go on to, after they are durable. Owned by the registry. */
struct forward_policy {
    const char *url;
    struct str secret; /* the bytes that sign; absent: unsigned */
    const char *ca;    /* NULL = the system's */
    int64_t timeout_ms, give_up_ms;
};

#define FORWARD_FIRST_MS 1000    /* between tries: doubled each time, at most … */
#define FORWARD_MOST_MS  3600000 /* … this long, half of it at random */

/* The forwarding of an event that has just come; policy NULL = none. */
struct forward forward_begin(const struct forward_policy *policy, int64_t now_ms);
/* As it is to be written down before a try: what holds when nobody lives to tell how it went. */
struct forward forward_try(const struct forward *forward, const struct forward_policy *policy, int64_t now_ms);
/* After that try: delivered, to be tried again (after retry_after_ms at the earliest), or given up. random decides the
 * part of the delay that is up to chance. detail is borrowed. */
struct forward forward_tried(const struct forward *tried, bool delivered, int64_t retry_after_ms, const char *detail,
                             int64_t now_ms, uint64_t random);
/* Once more, because a person says so. Only from UNDELIVERED. */
struct forward forward_again(const struct forward *forward, const struct forward_policy *policy, int64_t now_ms);

/* The webhook-id that receivers tell repetitions by: "SOURCE:EVENT", or, when that can not stand in a header or is not
 * safe to sign (a full stop), "sha256:" and 64 hex digits of both. The same on every try and in every process. */
#define FORWARD_ID_SIZE 352
void forward_id(const struct inbound *event, char *out);

/* A source as far as the rules need it. Owned by the registry, immutable. */
struct inbox_source {
    const char *name;
    const char *provider;     /* only operations of its tools, NULL = of any */
    const char *tenant;       /* only this tenant's, NULL = any */
    const char *const *tools; /* shell patterns; none = all of the provider's */
    size_t tool_count;
    int64_t retain_ms;
    const struct forward_policy *forward; /* NULL = not forwarded */
    const void *rules;                    /* the door's: signature and reading */
};

/* Whether the source speaks of this tool's operations for this tenant. tool as the registry has it now: NULL when it
 * has none any more; then only a source without provider takes it. */
bool inbox_source_takes(const struct inbox_source *source, const char *tenant, const char *name,
                        const struct tool *tool);

/* What is known of an operation by former events: the newest that was applied. */
struct inbound_standing {
    bool any;
    int64_t created_ms;
    enum inbound_outcome outcome;
};
/* An older event never downgrades a newer state: whether this one has the last word. */
bool inbound_newer(const struct inbound *event, const struct inbound_standing *standing);
/* standing after the event was applied. */
void inbound_note(struct inbound_standing *standing, const struct inbound *event);

struct inbound *inbound_copy(struct arena *arena, const struct inbound *event);

#endif
