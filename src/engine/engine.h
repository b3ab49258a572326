/* Runs effects and owns time (design 14): calls in flight, dispatch, retries, reconciliation, recovery.
 * Single-threaded; it knows neither sockets nor an event loop: the owner calls engine_tick() when engine_next_tick_ms()
 * has come and ledger_poll() when the ledger has news. All callbacks come from within these calls, from adapter
 * callbacks, or — where stated — at once.
 *
 *   engine_call ─► identity ─► ledger admit ─┬─ new ──► commit "dispatched" ─► adapter ─► step ─► commit ─► reply
 *                                            ├─ join ─► wait for the operation ─────────────────────────► reply
 *                                            └─ replay, conflict, held, … ──────────────────────────────► reply
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "adapter/adapter.h"
#include "adapter/webhook.h"
#include "base/env.h"
#include "core/identity.h"
#include "core/registry.h"
#include "core/scope.h"
#include "ledger/ledger.h"

struct engine;
struct waiter; /* one caller that waits; valid from engine_call / engine_wait until its reply is given */

struct engine_options {
    struct env *env;
    struct ledger *ledger;     /* borrowed; must outlive the engine */
    struct adapter *adapter;   /* borrowed; must outlive the engine */
    struct webhooks *webhooks; /* the same; what inbound events are forwarded with. NULL: none are */
    struct registry *registry; /* a reference is taken */
    size_t in_flight_max;      /* operations in memory plus waiting callers; 0 = 10,000 */
    bool sole_owner; /* no other gateway can be alive on this ledger (SQLite): recover at once, not by lease */
    /* How long what an operation's gateway holds outlasts what it does with it; with a third of that left it is renewed
     * while it waits in memory. 0 = 30 s */
    int64_t lease_ms;
    /* With other gateways: at most this long between looks for what they left or made due; 0 = only when something that
     * is known of comes due. About half of the looks come after three quarters of it: gateways do not look in step. */
    int64_t look_ms;
};

struct engine *engine_new(const struct engine_options *options);
/* Only after engine_stop's callback, or when nothing was ever called. */
void engine_free(struct engine *engine);

/* Takes over what former owners left and starts the timers. */
void engine_start(struct engine *engine);
void engine_set_registry(struct engine *engine,
                         struct registry *registry);     /* takes a reference; attempts keep theirs */
struct registry *engine_registry(struct engine *engine); /* borrowed */
struct ledger *engine_ledger(struct engine *engine);
struct env *engine_env(struct engine *engine);
struct adapter *engine_adapter(struct engine *engine);
bool engine_recovered(struct engine *engine); /* everything left by former owners has been taken over */
bool engine_stopping(struct engine *engine);
/* Why the ledger has refused to record something in the last seconds, and nothing of note since; NULL: it has not. It
 * may answer reads all the while (disk full). The engine's. */
const char *engine_ledger_refusal(struct engine *engine);

/* The ledger was changed past the engine so that an operation is due at that time; 0 = none. */
void engine_due(struct engine *engine, int64_t at_ms);

/* The time by which the engine goes, in which engine_next_tick_ms() and the deadline of engine_stop() are. */
int64_t engine_now_ms(struct engine *engine);
void engine_tick(struct engine *engine);
int64_t engine_next_tick_ms(struct engine *engine); /* 0 = nothing planned */
/* Told whenever engine_next_tick_ms() may have become earlier. */
void engine_on_schedule(struct engine *engine, void (*changed)(void *user), void *user);

/* Refuses new calls, answers waiting callers as soon as their operation ends, and calls stopped when no attempt is on
 * the wire and no commit is open, or at deadline_ms (what is still on the wire then is unknown_outcome for the next
 * start, or for other gateways when its lease has ended). What else it holds it lets go of: others need not wait for
 * the leases. stopped must not free the engine from within. */
void engine_stop(struct engine *engine, int64_t deadline_ms, void (*stopped)(void *user), void *user);

/* ---- calls ---- */

enum reply_kind {
    REPLY_OPERATION,  /* op: its state now; terminal or not (waited long enough, async) */
    REPLY_READ,       /* a read: op is not in the ledger (op->id is ""), result or error in it */
    REPLY_PLAN,       /* dry run: `plan` is one JSON object */
    REPLY_NO_TOOL,    /* the registry has no such tool */
    REPLY_REFUSED,    /* before admission; `why` says how, err the text: nothing recorded */
    REPLY_CONFLICT,   /* same key, other arguments; op or tombstone is the existing one; differing fields named */
    REPLY_NOT_SHARED, /* the effect exists and belongs to another principal */
    REPLY_HELD,       /* in-doubt guard; op is the unresolved operation */
    REPLY_EXPIRED,    /* tombstone: known, payload dropped */
    REPLY_POLICY,     /* new, but refused by a guard, an entity, a window or a budget; refusal says which, err why */
    REPLY_REPEAT,     /* repeat_of refused; err says why; op is the open operation when it is one */
    REPLY_NOT_FOUND,  /* no such operation for this tenant */
    REPLY_STALE,      /* decision on an older version; op is the present one */
    REPLY_IMPOSSIBLE, /* decision does not fit the state; err says why; op is the present one */
    REPLY_UNAVAILABLE /* ledger, overload, stopping: nothing was recorded or sent; err says which */
};

/* Borrowed for the duration of the callback. */
struct engine_reply {
    enum reply_kind kind;
    const struct operation *op;        /* may be NULL */
    const struct tombstone *tombstone; /* may be NULL */
    const struct tool *tool;           /* may be NULL (registry no longer has it) */
    bool replayed;                     /* this call did not cause the execution it is told about */
    bool other_arguments;              /* replayed although the arguments differ (on_mismatch: replay) */
    bool waited_out;                   /* the caller's wait ended first */
    const char *lease;                 /* guard mode: the caller is to perform it now; the lease's token */
    const struct identity_error *why;  /* REPLY_REFUSED */
    const char *const *differing;      /* REPLY_CONFLICT: JSON Pointers; empty when the old arguments are gone */
    size_t differing_count;
    const struct claims_refusal *refusal; /* REPLY_POLICY */
    struct str plan;
    const struct err *err; /* never NULL; code 0 when there is no error */
};

typedef void engine_reply_fn(void *user, const struct engine_reply *reply);

struct engine_call {
    const char *tool;
    const struct scope *scope; /* what the caller may use; NULL = not limited. Beyond: REPLY_REFUSED, ERR_DENIED */
    struct call call;          /* call.arguments may be changed in place by defaults and normalisers */
    bool async;                /* answer after admission: 202 */
    bool begins;               /* guard mode: the caller performs the effect itself if it is elected */
    const char *executor;      /* begins: tells executors apart: its begin repeated gets the same lease; NULL = none */
    bool dry_run;
    int64_t wait_ms;              /* < 0: the tool's default */
    bool waits_for_people;        /* also while people decide; else a call that needs approval is answered at once */
    struct adapter_origin origin; /* handed to the adapter with the first attempt */
};

#define ENGINE_WAIT_MS_MAX 120000

/* Everything in request is borrowed until the reply (the caller keeps it alive in its own arena). The reply may come at
 * once, from within this call: then NULL is returned. */
struct waiter *engine_call(struct engine *engine, const struct engine_call *request, engine_reply_fn *reply,
                           void *user);

/* Waits for an operation to end (or to need an operator), up to wait_ms (0: answer now). tenant NULL = any. */
struct waiter *engine_wait(struct engine *engine, const char *tenant, const char *operation, int64_t wait_ms,
                           engine_reply_fn *reply, void *user);

/* The caller is gone: no reply will be given. The operation goes on (design 5.3). */
void engine_caller_left(struct engine *engine, struct waiter *waiter);

/* What a waiting caller waits for. */
struct engine_waiting {
    const char *operation; /* "" for reads; valid until the waiter or the operation's flight goes: copy it */
    bool opened;           /* its own call opened the operation (or will, while the ledger decides) */
    bool alone;            /* nobody else waits for it in this process */
};
struct engine_waiting engine_waiting(const struct waiter *waiter);

/* The caller cannot be reached now and may come back; or it is back. The reply is given all the same, but an operation
 * all of whose callers are away is orphaned (design 2.9) as if they had left. */
void engine_caller_away(struct engine *engine, struct waiter *waiter, bool away);

/* A final answer was written to the caller's connection in full. */
void engine_delivered(struct engine *engine, const struct operation *op);

/* ---- people's decisions ---- */

struct engine_decision {
    enum step_kind_decision {
        DECISION_RESOLVE,
        DECISION_RETRY,
        DECISION_CANCEL,
        DECISION_APPROVE,
        DECISION_DENY,
        DECISION_LINK
    } kind;
    const char *tenant; /* NULL = any */
    const char *operation;
    int64_t rev; /* version that the person looked at; 0 = not given (refused for RESOLVE) */
    bool happened, allow_retry;
    bool unsent_only; /* CANCEL: refused once a step of a multi-step tool may have begun (nothing is rolled back) */
    const char *external_id;  /* may be NULL */
    struct str result;        /* JSON text that the operator states as result; absent = none */
    const char *actor, *note; /* who and why; note is required for RESOLVE */
    enum approval_via via;    /* APPROVE, DENY */
    int64_t until_ms;    /* APPROVE, DENY: when the request that the person was shown ends, which tells it from one that
                          * was made anew since: that one is STALE; 0 = not given */
    const char *link_by; /* APPROVE, DENY by a link: who made it; may be NULL */
    const char *approver;      /* LINK: whom the actor makes links for: that is noted, no more */
    const struct scope *scope; /* what the person may decide on; NULL = not limited */
};

/* Reply: REPLY_OPERATION with the new state, NOT_FOUND, STALE, IMPOSSIBLE (with ERR_DENIED: this person may not),
 * UNAVAILABLE. Retry of failed_permanent or rejected opens the next version of the key with the same arguments and
 * replies with that operation. A person's second APPROVE or DENY, or one after the matter was settled, is answered with
 * the operation as it is now and `replayed`; its record tells which decision stands (approval_stands). Borrowed until
 * the reply. */
void engine_decide(struct engine *engine, const struct engine_decision *decision, engine_reply_fn *reply, void *user);

/* ---- what providers tell of their own accord (design 11.1) ---- */

/* code 0: the event is durable and may be acknowledged; event is the stored one, borrowed for the call. Else nothing
 * was recorded. */
typedef void engine_inbound_fn(void *user, enum err_code code, const struct err *err, const struct inbound *event,
                               bool duplicate);

/* Records an event whose signature was checked, then has it applied. Of event the source's part is read (source, event,
 * type, created_ms or 0, outcome, match, value, external_id, result, body); copied. The reply may come at once. */
void engine_inbound(struct engine *engine, const struct inbound *event, engine_inbound_fn *reply, void *user);

/* An event is to be forwarded, and the engine was not there when that was written down. */
void engine_forward_due(struct engine *engine);

/* ---- undoing (design 10.1) ---- */

struct engine_compensation {
    const char *tenant; /* NULL = any */
    const char *operation;
    int64_t rev; /* version that was looked at; 0 = not given */
    const char *playbook;
    const char *actor;  /* who asks: the principal of the compensation */
    const char *reason; /* may be NULL */
    const char *trace;  /* traceparent, may be NULL */
    bool own_only;      /* the actor may have undone only what it called itself */
    bool dry_run;
    const struct scope *scope; /* what the actor may use; NULL = not limited */
};

/* Runs a playbook of an operation's tool. Reply: REPLY_OPERATION with the compensation, as it was admitted or
 * (`replayed`) as it is already, never waiting for its end; REPLY_PLAN; REPLY_IMPOSSIBLE with the operation that is not
 * undone, and why (ERR_DENIED: this actor may not); STALE, NOT_FOUND, EXPIRED, POLICY, UNAVAILABLE. Borrowed until the
 * reply. */
void engine_compensate(struct engine *engine, const struct engine_compensation *compensation, engine_reply_fn *reply,
                       void *user);

/* ---- guard mode (design 11.2) ---- */

enum guard_word { GUARD_HEARTBEAT, GUARD_COMPLETE, GUARD_FAIL };

/* What the holder of a lease says. Borrowed until the reply. */
struct engine_guard {
    enum guard_word word;
    const char *tenant, *tool; /* tenant NULL = any */
    const char *lease;         /* token */
    const char *actor;
    struct str result;       /* COMPLETE: JSON text; absent = none */
    const char *external_id; /* COMPLETE: may be NULL */
    bool noop;               /* COMPLETE: it was already so */
    bool no_effect;          /* FAIL: it is proven that nothing happened, else it may have */
    bool retry;              /* FAIL with no_effect: the next begin may try again */
    struct str error;        /* FAIL: JSON text {"message", …}; absent = none */
    const char *detail;      /* FAIL: in words, may be NULL */
};

/* Reply: REPLY_OPERATION with the new state (lease set while it goes on), NOT_FOUND (no such lease), IMPOSSIBLE (a
 * heartbeat after the lease has ended), UNAVAILABLE. What an executor says after its lease has ended is late evidence:
 * kept and applied, never thrown away. The same word said again is answered with the operation. */
void engine_guard(struct engine *engine, const struct engine_guard *word, engine_reply_fn *reply, void *user);

/* ---- what has changed ---- */

/* What is durable now of an operation. Borrowed for the call. */
struct engine_change {
    const struct operation *op; /* as it is now */
    const struct event *events;
    size_t event_count;
    const struct incident *incidents; /* that were raised with it */
    size_t incident_count;
};
typedef void engine_change_fn(void *user, const struct engine_change *change);

/* Told of every change that this engine has committed, admissions included, from within whatever brought the news: it
 * must not call the engine back. One listener; NULL = none. */
void engine_on_change(struct engine *engine, engine_change_fn *changed, void *user);

/* ---- figures ---- */

/* How long something took, of all times that it happened since start. */
#define LATENCY_BOUNDS 14
extern const int64_t latency_bounds_ms[LATENCY_BOUNDS]; /* rising */
struct latency {
    int64_t counts[LATENCY_BOUNDS + 1]; /* longer than the bound before, at most that long; the last: longer than all */
    int64_t sum_ms;
};

struct engine_stats {
    size_t flights, waiters;
    int64_t calls, admitted, joined, replayed, conflicts, held, refused, policy, compensations, attempts, lookups,
        reads, unavailable;
    int64_t inbound, inbound_duplicates;                    /* events recorded, further deliveries */
    int64_t forwarded, forward_failures, forwards_given_up; /* events taken by the application; tries in vain; events */
    struct latency call_took;                               /* from a call until its reply, waiting included */
    struct latency request_took;                            /* attempts that left, look-ups included */
    struct latency commit_took;                             /* until a change of an operation was durable */
    /* what policies did */
    int64_t guards, entities_busy, windows, budgets; /* refused by them, at admission or at their turn */
    int64_t entity_waits;                            /* operations that had to wait for their entities */
    int64_t approvals_asked, approvals_granted, approvals_denied, approvals_expired;
};
struct engine_stats engine_stats(const struct engine *engine);

#endif
