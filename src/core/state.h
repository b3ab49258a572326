/* The states of an operation, the one table of allowed transitions, and the reasons that go with them (design 3). */
#ifndef CORE_STATE_H
#define CORE_STATE_H

#include "base/str.h"

#include <stdbool.h>

/* X(enum constant, text, terminal) */
#define STATES(X)                                                                                                      \
    X(STATE_PLANNED, "planned", false)                    /* recorded, may not be sent yet */                          \
    X(STATE_PENDING_DISPATCH, "pending_dispatch", false)  /* may be sent, nothing has left */                          \
    X(STATE_DISPATCHED, "dispatched", false)              /* an attempt row exists, bytes may have left */             \
    X(STATE_ACKNOWLEDGED, "acknowledged", false)          /* provider accepted, final outcome comes later */           \
    X(STATE_COMPLETED_SUCCESS, "completed_success", true) /* effect proven */                                          \
    X(STATE_COMPLETED_NOOP, "completed_noop", true)       /* proven to be already so */                                \
    X(STATE_FAILED_RETRYABLE, "failed_retryable", false)  /* proven no effect, another attempt is scheduled */         \
    X(STATE_FAILED_PERMANENT, "failed_permanent", true)   /* proven no effect, ended */                                \
    X(STATE_UNKNOWN_OUTCOME, "unknown_outcome", false)    /* may have happened */                                      \
    X(STATE_REJECTED, "rejected", true)                   /* refused, denied, expired, cancelled; never sent */        \
    X(STATE_COMPENSATING, "compensating", false)                                                                       \
    X(STATE_COMPENSATED, "compensated", true)

enum state {
#define X(constant, text, terminal) constant,
    STATES(X)
#undef X
};
#define STATE_COUNT 12

const char *state_name(enum state state);
/* False when text names no state. */
bool state_from_name(struct str text, enum state *out);
bool state_terminal(enum state state);
/* A request may be on the wire or its outcome is open: the states in which another effect must not start. */
bool state_in_flight(enum state state); /* dispatched, acknowledged */

/* Whether from → to is in the table. The evidence rule 3.4 (failed_permanent or rejected → completed_success) is
 * allowed only with `evidence`. */
bool state_may_move(enum state from, enum state to, bool evidence);

/* Why an operation is where it is; data, not more states (design 3.5). X(constant, text) */
#define REASONS(X)                                                                                                     \
    X(REASON_NONE, "")                                                                                                 \
    X(REASON_SCHEDULED, "scheduled") /* not_before lies ahead */                                                       \
    X(REASON_AWAITING_APPROVAL, "awaiting_approval")                                                                   \
    X(REASON_AWAITING_EXECUTOR, "awaiting_executor") /* guard mode: the next begin may perform it */                   \
    X(REASON_AWAITING_ENTITY, "awaiting_entity")                                                                       \
    X(REASON_AWAITING_BUDGET, "awaiting_budget")                                                                       \
    X(REASON_QUEUED, "queued")                     /* waits for a connection slot of the provider */                   \
    X(REASON_CIRCUIT_OPEN, "circuit_open")         /* provider is held off by the circuit breaker */                   \
    X(REASON_NOT_SENT, "not_sent")                 /* failed before the first byte left */                             \
    X(REASON_THROTTLED, "throttled")               /* 429 or the provider's "not processed" */                         \
    X(REASON_KEY_IN_USE, "key_in_use")             /* provider is still working under our key */                       \
    X(REASON_PROVIDER_REFUSED, "provider_refused") /* provider's definite refusal */                                   \
    X(REASON_PROVIDER_ERROR, "provider_error")     /* 5xx and the like: may have happened */                           \
    X(REASON_TIMEOUT, "timeout")                                                                                       \
    X(REASON_CONNECTION_LOST, "connection_lost") /* after the request left */                                          \
    X(REASON_UNREADABLE_ANSWER, "unreadable_answer")                                                                   \
    X(REASON_WRONG_OBJECT, "wrong_object") /* verify failed (design 5.4) */                                            \
    X(REASON_LEASE_LOST, "lease_lost")     /* the owner is gone with an attempt open */                                \
    X(REASON_ACCEPTED, "accepted")         /* provider said "later" */                                                 \
    X(REASON_VERIFYING, "verifying")       /* success after a re-send, look-up counts effects */                       \
    X(REASON_RECONCILED, "reconciled")     /* a look-up decided */                                                     \
    X(REASON_ABSENT, "absent")             /* a look-up proved no effect */                                            \
    X(REASON_NEEDS_OPERATOR, "needs_operator")                                                                         \
    X(REASON_OPERATOR, "operator") /* an operator decided */                                                           \
    X(REASON_ATTEMPTS_EXHAUSTED, "attempts_exhausted")                                                                 \
    X(REASON_TIME_EXHAUSTED, "time_exhausted")                                                                         \
    X(REASON_CANCELLED, "cancelled")                                                                                   \
    X(REASON_DENIED, "denied")                                                                                         \
    X(REASON_EXPIRED, "expired")                                                                                       \
    X(REASON_POLICY, "policy")                                                                                         \
    X(REASON_TOOL_MISSING, "tool_missing")               /* the registry no longer has the tool */                     \
    X(REASON_BAD_REQUEST, "bad_request")                 /* the request could not be built from the arguments */       \
    X(REASON_LATE_LANDING, "late_landing")               /* closed as absent, landed later (incident) */               \
    X(REASON_DUPLICATE_EFFECT, "duplicate_effect")       /* more than one effect seen (incident) */                    \
    X(REASON_COMPENSATION_FAILED, "compensation_failed") /* what was to undo it had no effect (incident) */            \
    X(REASON_RUNNING_STEPS, "running_steps")             /* multi-step: its steps run */                               \
    X(REASON_STEP_FAILED, "step_failed")                 /* multi-step: a step failed and nothing stands */            \
    X(REASON_ROLLING_BACK, "rolling_back")               /* multi-step: what was done is being undone */               \
    X(REASON_ROLLED_BACK, "rolled_back")                 /* multi-step: what was done is undone, or left */            \
    X(REASON_STEPS_CHANGED, "steps_changed")             /* the registry has another list of steps now */

enum reason {
#define X(constant, text) constant,
    REASONS(X)
#undef X
        REASON_COUNT
};

const char *reason_name(enum reason reason);
bool reason_from_name(struct str text, enum reason *out);

#endif
