/* The life of an operation: event in, effects out (design 14.2). Pure: no clock, no I/O, no randomness of its own. The
 * engine, the simulator and the fuzzers run this one function; everything that ever changes an operation's state goes
 * through it.
 *
 *            admitted                       answer: success ───────────────────────────► completed_success
 *               │                          ┌─────────────────────────────► failed_permanent   ▲  (no effect proven)
 *    planned ─► pending_dispatch ─► dispatched ──► failed_retryable ──► dispatched …          │
 *                                          ├─► acknowledged ── look-ups ──────────────────────┤
 *                                          └─► unknown_outcome ── resend / look-up / operator ┘
 */
#ifndef CORE_STEP_H
#define CORE_STEP_H

#include "core/operation.h"

struct inbound; /* core/inbox.h */
struct inbound_standing;

enum step_kind {
    STEP_DISPATCH,      /* a connection slot is taken: the attempt begins with this transition */
    STEP_HOLD,          /* no slot, breaker open, tool missing: wait until hold_until_ms */
    STEP_ANSWER,        /* a call attempt ended with `finding` */
    STEP_AWAIT_ENTITY,  /* planned, its turn has come, but it does not hold its entities: it asks for them */
    STEP_REFUSE,        /* planned, its turn has come, and a guard says no: `note` tells why */
    STEP_LOOKUP_BEGIN,  /* a look-up attempt begins with this transition */
    STEP_LOOKUP_ANSWER, /* a look-up ended with `finding` (never OUTCOME_MORE) */
    STEP_RENEW,         /* guard mode: whoever holds the lease goes on */
    STEP_WAKE,          /* wake_at came: decide what to do next */
    STEP_KEEP,          /* its retention is over, and who needs it yet has not ended: it stays for STEP_KEEP_MS more */
    STEP_OWNER_GONE,    /* the owner is known to be dead or its lease ended */
    STEP_RESOLVE,       /* an operator states evidence */
    STEP_RETRY,         /* an operator wants it tried again now */
    STEP_CANCEL,
    STEP_APPROVAL, /* a person agrees or refuses (design 8); changes nothing where approval_stands() answers them */
    STEP_LINK,     /* `actor` makes links by which `approver` may decide: a note in the life of what waits for people */
    STEP_COMPENSATE, /* `compensation` is admitted with this transition: it is to undo the operation (design 10.1) */
    STEP_COMPENSATION_ENDED, /* `compensation` has ended as `ended` says; called by the ledger, in that transaction */
    STEP_INBOUND,            /* the provider told of it on its own (design 11.1); not while step_waits_for_answer() */
    STEP_EVIDENCE,           /* an answer came in after somebody else moved the operation */
    /* Of the parent of a multi-step tool's steps (design 10.2, core/steps.h); `at` says which step: */
    STEP_RUN_STEPS,    /* planned or pending_dispatch, its turn has come */
    STEP_BEGIN_STEP,   /* `child` is admitted with this transition: it performs the step */
    STEP_SKIP_STEP,    /* its condition does not hold */
    STEP_FAIL_STEP,    /* it can not be admitted, as `note` says: nothing was sent */
    STEP_HOLD_STEP,    /* not now: again at hold_until_ms */
    STEP_UNDO_STEP,    /* `compensation` is admitted with this transition: it is to undo the step */
    STEP_NOT_UNDONE,   /* its playbook can not be run, as `note` says */
    STEP_FINISH_STEPS, /* all are done: the result is in `finding` */
    STEP_TOLD          /* `told`, a step's operation, has moved; called by the ledger, in that transaction. `note`: what
                        * people are to do when its undoing has failed; may be NULL */
};

/* What an attempt told. Texts are borrowed and end up in the operation. */
struct finding {
    enum outcome outcome;
    int http_status;
    const char *detail;
    struct str result, error;
    const char *external_id;
    int64_t retry_after_ms;
    unsigned matches;
};

struct step_input {
    enum step_kind kind;
    int64_t now_ms;
    uint64_t random;                         /* for jitter */
    const char *owner;                       /* this incarnation */
    int64_t lease_ms;                        /* attempts get a lease of this length */
    int attempt;                             /* number of the attempt concerned; 0 = none */
    int64_t began_ms;                        /* LOOKUP_ANSWER: when its first page was asked for; 0 = now */
    struct finding finding;                  /* ANSWER, LOOKUP_ANSWER, EVIDENCE */
    const struct inbound *event;             /* INBOUND: what it says; its result, id and words are in `finding` */
    const struct inbound_standing *standing; /* INBOUND: what former events of its source said */
    enum reason hold_reason;                 /* HOLD */
    int64_t hold_until_ms;
    struct arena *arena; /* for texts that the step makes: must live as long as the operation's */
    /* RESOLVE, RETRY, CANCEL, APPROVAL, LINK */
    const char *actor, *note;
    const char *approver; /* LINK: for whom */
    const char *link_by;  /* APPROVAL by a link: who made it; NULL = none */
    bool approve;         /* APPROVAL: agrees, else refuses */
    enum approval_via via;
    const char *compensation; /* COMPENSATE, COMPENSATION_ENDED: operation id */
    enum state ended;         /* COMPENSATION_ENDED … */
    enum reason ended_reason;
    int64_t retain_until_ms; /* … of the compensation: what it undoes is kept at least as long */
    size_t at;               /* BEGIN_STEP … NOT_UNDONE */
    const char *child;       /* BEGIN_STEP: operation id */
    const struct operation *told;
    bool happened;    /* RESOLVE; of a parent with a stuck step: it is to stand, else it was undone by hand */
    bool allow_retry; /* RESOLVE with !happened: try again, else close */
};

#define STEP_KEEP_MS 3600000 /* a step of a multi-step call whose parent is open */

enum step_action {
    ACTION_NONE,   /* persist (if changed) and wait for wake_at */
    ACTION_SEND,   /* wants to be sent: answer with STEP_DISPATCH or STEP_HOLD */
    ACTION_LOOKUP, /* wants a look-up: answer with STEP_LOOKUP_BEGIN */
    ACTION_EXPIRE, /* payload may be dropped: replace by the tombstone */
    /* of parents; effects.at says which step */
    ACTION_BEGIN_STEP,  /* answer with STEP_BEGIN_STEP, STEP_SKIP_STEP, STEP_FAIL_STEP or STEP_HOLD_STEP */
    ACTION_CANCEL_STEP, /* cancel its operation if it can be; answer with STEP_HOLD_STEP */
    ACTION_UNDO_STEP,   /* answer with STEP_UNDO_STEP, STEP_NOT_UNDONE or STEP_HOLD_STEP */
    ACTION_FINISH_STEPS /* answer with STEP_FINISH_STEPS */
};

#define STEP_EVENTS_MAX    3
#define STEP_INCIDENTS_MAX 2

struct step_effects {
    bool changed; /* the operation was changed, rev is raised: persist with CAS */
    struct event events[STEP_EVENTS_MAX];
    size_t event_count;
    struct {
        enum incident_kind kind;
        const char *note; /* static or borrowed from the input */
    } incidents[STEP_INCIDENTS_MAX];
    size_t incident_count;
    enum step_action action;
    size_t at; /* of a parent's action */
};

/* Moves *op (whose texts stay borrowed). tool NULL: the registry no longer has it; then only human actions, owner-gone
 * and expiry do anything. Refusals (ERR_CONFLICT, ERR_DENIED with a text for people) come from people's steps only; *op
 * is unchanged then. An APPROVAL that comes too late, or after the tool's policy has changed, is not counted: it ends
 * the request, or makes it anew, and op->approval tells. The caller persists op when effects->changed and acts only
 * after the commit. */
enum err_code step(struct operation *op, const struct tool *tool, const struct step_input *in,
                   struct step_effects *effects, struct err *err);

/* The operation of a multi-step tool. */
bool step_is_parent(const struct operation *op);

/* Whether an attempt is on its way: an event about the operation is kept until its outcome is known, so that it does
 * not matter which of the two comes first. */
bool step_waits_for_answer(const struct operation *op);

/* Whether the provider will still know our key when a re-send that leaves now has arrived: the attempt's whole time-out
 * and settle, within which a request whose answer we no longer wait for may land, must lie within the key's retention.
 * True for tools that are not idempotent by key. */
bool step_key_lasts(const struct operation *op, const struct tool *tool, int64_t now_ms);
/* When the tool's total time is over for it. */
int64_t step_total_end(const struct operation *op, const struct tool *tool);
/* Whether an automatic re-send of this unknown operation is provably harmless now (design 6). */
bool step_may_resend(const struct operation *op, const struct tool *tool, int64_t now_ms);

#endif
