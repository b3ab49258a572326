/* The records that the ledger keeps: operation (one intended effect), attempt (one request on the wire), event (one
 * line of an operation's life), incident (what an operator must know), tombstone (what stays for ever). Plain data:
 * texts and JSON belong to whatever arena the record was made in. */
#ifndef CORE_OPERATION_H
#define CORE_OPERATION_H

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/ulid.h"
#include "core/state.h"
#include "core/tool.h"

#include <stdint.h>

/* "op_" + ULID, "at_" + ULID, "in_" + ULID, with the NUL. */
#define OPERATION_ID_SIZE       (3 + ULID_CHARS + 1)
#define OPERATION_KEY_BYTES_MAX 512 /* of an idempotency key after escaping; longer ones are refused */

/* Where the idempotency key came from (design 2.2). X(constant, text) */
#define KEY_SOURCES(X)                                                                                                 \
    X(KEY_SOURCE_CALLER, "caller")                                                                                     \
    X(KEY_SOURCE_BUSINESS, "business")                                                                                 \
    X(KEY_SOURCE_STEP, "step")                                                                                         \
    X(KEY_SOURCE_CALL, "call")                                                                                         \
    X(KEY_SOURCE_REPEAT, "repeat")

enum key_source {
#define X(constant, text) constant,
    KEY_SOURCES(X)
#undef X
};
const char *key_source_name(enum key_source source);

struct operation {
    char id[OPERATION_ID_SIZE];
    /* identity, fixed at admission */
    const char *tenant, *tool, *principal;
    const char *key;        /* full key; operators only (design 2.10) */
    struct digest key_hash; /* over (tenant, tool, key, repeat_of): unique together with key_version */
    struct digest
        base_hash; /* key_hash without repeat_of: what a plain call would have; equal to key_hash without one */
    enum key_source key_source;
    int key_version; /* 1, 2, … (design 2.7) */
    struct digest fingerprint;
    int canonical_version;                              /* JSON_CANONICAL_VERSION that made the fingerprint */
    const char *policy_version;                         /* digest of the registry in force, short hex */
    const char *workflow, *run, *step, *session, *call; /* caller's coordinates, NULL when not given */
    const char *trace;                                  /* traceparent, NULL when not given */
    const char *repeat_of, *distinct_from, *previous;   /* operation ids or NULL */
    const char *compensates,
        *playbook;            /* operation that this one undoes, and by which playbook (design 10.1); or NULL */
    const char *escalation;   /* of a compensation: what the operator is told when it fails for good; or NULL */
    const char *parent;       /* of a step, and of what undoes one in a rollback: the multi-step operation; or NULL */
    const char *provider_key; /* opaque, the same on every attempt */
    struct str arguments; /* effective arguments (JSON text as sent, volatile fields included); absent when dropped */
    int64_t created_ms, not_before_ms; /* not_before 0: at once */
    struct str claims;                 /* JSON text (core/claims.h); absent: it claims nothing */
    /* life */
    enum state state;
    enum reason reason;
    bool may_have_applied; /* an effect is possible and not disproved (design 3.2) */
    int64_t rev;           /* compare-and-set version; 1 at admission, +1 per transition */
    const char *owner;     /* incarnation that holds the lease, NULL when nobody does */
    int64_t lease_until_ms;
    int64_t wake_at_ms;                  /* when somebody must look at this row next; 0 = never by itself */
    int attempts;                        /* call requests that may have left */
    int lookups;                         /* look-up requests */
    int tries;                           /* attempt rows of every kind, not_sent ones too: the last attempt's number */
    int64_t first_sent_ms, last_sent_ms; /* when a call may first and last have left; 0 = none */
    int64_t unknown_since_ms;            /* 0 = not unknown */
    int64_t updated_ms, completed_ms;    /* completed 0 = not terminal */
    int retries;                         /* automatic waits so far in the present phase; drives the backoff */
    int absent_count;                    /* consecutive absent answers that counted */
    int watch_next;                      /* next index into the watch schedule + 1; 0 = no watch */
    int64_t retain_until_ms;             /* terminal: payload may be dropped then */
    int http_status;                     /* of the last answer, 0 = none */
    const char *external_id;             /* provider's id of the effect */
    struct str result;                   /* JSON text; absent when none or dropped */
    struct str error;                    /* JSON text {"message","code"?,"provider"?}; absent when none */
    int64_t result_bytes;                /* size of the full result, also when only the digest was kept */
    bool result_dropped;                 /* larger than result_bytes_max: delivered once, then digest only */
    bool duplicate_seen;                 /* an incident duplicate_effect belongs to it */
    struct str approval;                 /* JSON text (core/approval.h); absent: none was asked for */
    const char *compensation;            /* operation that undoes, undid or was to undo this one; NULL = none yet */
    struct str steps; /* of a parent: JSON text (core/steps.h), from admission on; absent with all else */
    int64_t ready_ms; /* when people and others had let it go: the total time counts from here; 0 = at once */
    /* set through LEDGER_MARK, never by a transition */
    bool delivered; /* a final answer reached a caller */
    bool orphaned;  /* every caller that waited left before the result was delivered */
};

/* Owners of guard mode's leases: "guard:" and what tells one executor from another. An application holds them, not one
 * of our processes: that a process ended says nothing about them, only that their time has come (design 11.2). */
#define OPERATION_EXECUTOR_PREFIX "guard:"
bool operation_executor_holds(const struct operation *operation);

/* Deep copy into arena. */
struct operation *operation_copy(struct arena *arena, const struct operation *operation);
/* Exactly "op_" + a valid ULID. */
bool operation_id_valid(const char *text);

enum attempt_kind { ATTEMPT_CALL, ATTEMPT_LOOKUP };
const char *attempt_kind_name(enum attempt_kind kind); /* "call", "lookup" */

/* How an attempt ended. X(constant, text) */
#define OUTCOMES(X)                                                                                                    \
    X(OUTCOME_OPEN, "open")         /* not known (yet): bytes may have left */                                         \
    X(OUTCOME_NOT_SENT, "not_sent") /* no byte left: resolve, connect, TLS */                                          \
    X(OUTCOME_SUCCESS, "success")                                                                                      \
    X(OUTCOME_NOOP, "noop")                     /* provider says: was already so */                                    \
    X(OUTCOME_ACCEPTED, "accepted")             /* provider will finish later */                                       \
    X(OUTCOME_REFUSED, "refused")               /* definite, no effect, same request will not succeed */               \
    X(OUTCOME_NOT_PROCESSED, "not_processed")   /* definite, no effect, may be tried again (429, …) */               \
    X(OUTCOME_KEY_IN_USE, "key_in_use")         /* provider works on an earlier request with our key */                \
    X(OUTCOME_PROVIDER_ERROR, "provider_error") /* 5xx and the like: may have happened */                              \
    X(OUTCOME_TIMEOUT, "timeout")                                                                                      \
    X(OUTCOME_CONNECTION_LOST, "connection_lost")                                                                      \
    X(OUTCOME_UNREADABLE, "unreadable")     /* truncated, oversize, not the promised form */                           \
    X(OUTCOME_WRONG_OBJECT, "wrong_object") /* verify failed */                                                        \
    X(OUTCOME_LOST, "lost")                 /* the owner died with the attempt open */                                 \
    X(OUTCOME_FOUND, "found")               /* look-ups from here on */                                                \
    X(OUTCOME_SEVERAL, "several")           /* more than one match of our marker */                                    \
    X(OUTCOME_ABSENT, "absent")                                                                                        \
    X(OUTCOME_CANNOT_TELL, "cannot_tell")                                                                              \
    X(OUTCOME_PENDING, "pending")           /* found, provider is still working */                                     \
    X(OUTCOME_FAILED_THERE, "failed_there") /* found, ended badly: neither success nor no effect */                    \
    X(OUTCOME_MORE, "more")                 /* this page had no final answer, a next page exists */

enum outcome {
#define X(constant, text) constant,
    OUTCOMES(X)
#undef X
        OUTCOME_COUNT
};
const char *outcome_name(enum outcome outcome);
bool outcome_from_name(struct str text, enum outcome *out);

struct attempt {
    char id[OPERATION_ID_SIZE];
    int number; /* 1, 2, … per operation over both kinds */
    enum attempt_kind kind;
    enum outcome outcome;
    int64_t started_ms, finished_ms; /* finished 0 = open */
    int http_status;                 /* 0 = no status line seen */
    const char *provider_request_id; /* NULL = none */
    const char *detail;              /* what happened in words, NULL = nothing to add */
};

/* What moved an operation, or what was noted about it. X(constant, text) */
#define CAUSES(X)                                                                                                      \
    X(CAUSE_ADMITTED, "admitted")                                                                                      \
    X(CAUSE_DISPATCH, "dispatch") /* an attempt begins */                                                              \
    X(CAUSE_ANSWER, "answer")     /* an attempt ended */                                                               \
    X(CAUSE_LOOKUP, "lookup")     /* a look-up answered */                                                             \
    X(CAUSE_TIMER, "timer")                                                                                            \
    X(CAUSE_OWNER_GONE, "owner_gone")                                                                                  \
    X(CAUSE_HELD, "held")         /* circuit breaker, queue, missing tool */                                           \
    X(CAUSE_OPERATOR, "operator") /* resolve, retry */                                                                 \
    X(CAUSE_CANCEL, "cancel")                                                                                          \
    X(CAUSE_APPROVAL, "approval")         /* a person agreed or refused, or was asked anew */                          \
    X(CAUSE_POLICY, "policy")             /* a guard said no at its turn */                                            \
    X(CAUSE_EVIDENCE, "evidence")         /* late finding, kept (design 3.4) */                                        \
    X(CAUSE_GAVE_UP, "gave_up")           /* automatic reconciliation ended without an answer */                       \
    X(CAUSE_COMPENSATION, "compensation") /* another operation undoes it, or has ended (design 10.1) */                \
    X(CAUSE_STEP, "step")                 /* a step began, ended, is undone (design 10.2) */

enum cause {
#define X(constant, text) constant,
    CAUSES(X)
#undef X
        CAUSE_COUNT
};
const char *cause_name(enum cause cause);

struct event {
    int64_t at_ms;
    enum cause cause;
    enum state from, to; /* equal: a note, no move. First event of a life: from == to == its first state */
    enum reason reason;
    const char *actor; /* principal or "onced" */
    int attempt;       /* number, 0 = none */
    const char *note;  /* words, NULL = none */
};

/* X(constant, text) */
#define INCIDENTS(X)                                                                                                   \
    X(INCIDENT_DUPLICATE_EFFECT, "duplicate_effect") /* provider shows more than one effect for the operation */       \
    X(INCIDENT_LATE_LANDING, "late_landing")         /* closed as "no effect", the effect showed up */                 \
    X(INCIDENT_WRONG_OBJECT, "wrong_object")         /* provider answered with something else than was asked */        \
    X(INCIDENT_CONTRADICTION, "contradiction")       /* evidence against a closed operation that cannot be applied */  \
    X(INCIDENT_COMPENSATION_FAILED, "compensation_failed") /* it was to be undone, and still stands */

enum incident_kind {
#define X(constant, text) constant,
    INCIDENTS(X)
#undef X
};
const char *incident_kind_name(enum incident_kind kind);

struct incident {
    char id[OPERATION_ID_SIZE];
    const char *tenant, *operation; /* operation id */
    enum incident_kind kind;
    int64_t at_ms;
    const char *note;
    const char *acknowledged_by; /* NULL = open */
    int64_t acknowledged_ms;
};

struct tombstone {
    char operation[OPERATION_ID_SIZE];
    const char *tenant, *tool, *principal;
    struct digest key_hash;
    int key_version;
    struct digest fingerprint;
    int canonical_version;
    enum key_source key_source;
    enum state state;
    int64_t completed_ms, dropped_ms;
    const char *external_id;
};

/* What stays of an operation that has ended; texts are borrowed from it. */
struct tombstone operation_tombstone(const struct operation *operation, int64_t dropped_ms);

#endif
