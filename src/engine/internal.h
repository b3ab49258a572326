/* What the engine's files share. Not for others. */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "base/map.h"
#include "core/playbook.h"
#include "core/step.h"
#include "engine/engine.h"
#include "engine/forward.h"
#include "engine/gate.h"
#include "engine/heap.h"
#include "engine/inbox.h"
#include "engine/replay.h"

#define LEASE_DEFAULT_MS    30000 /* beyond the attempt's own time-out … */
#define QUEUE_LEASES        2     /* … and so many for operations that wait in memory for a slot */
#define WATCH_MS            500   /* first and … */
#define WATCH_MAX_MS        8000  /* … longest time between looks at what others move, in case news were lost */
#define HOLD_MS             1000  /* wait in the ledger when the memory queue is full */
#define HERD_MS             25    /* gateways that wait for the same row come within that */
#define COMMIT_RETRY_MS     200   /* ledger not available: first and … */
#define COMMIT_RETRY_MAX_MS 5000  /* … longest wait before the same commit is tried again */
#define CLAIM_BATCH         64
#define GUARD_LOOKS_MAX     16 /* at an admission's entities, when they keep changing under its guards */
#define IN_FLIGHT_DEFAULT   10000

/* Something in a provider's queue for a connection slot. */
struct queued {
    struct queued *next;
    void (*go)(struct queued *queued); /* a slot may be free: try again */
};

/* A provider as the engine sees it; kept by name over registry reloads. */
struct route {
    char *name;
    struct gate gate;
    struct queued *head, **tail;
    unsigned count;
    unsigned connections_max; /* of the provider's latest definition */
    bool pumping;
};

struct waiter {
    struct engine *engine;
    struct waiter *next, **at; /* list of the operation's waiting callers */
    struct heap_node deadline;
    struct wait_list *list;   /* where it hangs; NULL while the admission is on its way */
    struct read *read;        /* or the read that it waits for */
    struct flight *admitting; /* its own admission, until the verdict */
    engine_reply_fn *reply;
    void *user;
    int64_t wait_ms;
    int64_t called_ms; /* of a call; 0: it waits for an operation that it knows */
    bool replayed, other_arguments, async;
    bool waits_for_people; /* as engine_call has it */
    bool opened;           /* its call opened the operation */
    bool away;             /* engine_caller_away */
};

/* Callers of one operation. Lives in a flight, or by itself while the operation sleeps in the ledger. */
struct wait_list {
    struct waiter *first;
    bool had_waiter; /* somebody waited: when all are gone, the operation is orphaned (2.9) */
    bool orphaned;
    char id[OPERATION_ID_SIZE];    /* of a list of its own, … */
    struct arena arena;            /* … which also keeps … */
    const struct operation *known; /* … the operation as it was last seen, for when the ledger can not be asked */
    /* other gateways may move it: */
    struct heap_node look; /* when it is looked at next, news or not */
    int64_t look_ms;       /* the time between looks */
    bool looking;          /* it is looked at just now … */
    bool again;            /* … and there have been news since */
};

enum phase {
    PHASE_NEW,
    PHASE_ADMIT,   /* ledger decides */
    PHASE_QUEUED,  /* waits for a slot */
    PHASE_COMMIT,  /* ledger writes */
    PHASE_STALLED, /* ledger could not write or read: the same request is tried again later */
    PHASE_WIRE,    /* request under way */
    PHASE_FETCH    /* reads attempts or the row */
};

enum after_commit { AFTER_GO_ON, AFTER_SEND, AFTER_CLOSE /* more attempts of a dead owner */ };

/* An operation in memory: exactly one per operation id. */
struct flight {
    struct engine *engine;
    struct arena arena;
    struct operation op;      /* as it is to be; texts in the arena */
    struct operation durable; /* as the ledger has it: only this is told to callers */
    bool owned;               /* the stored row names us as owner: commits are fenced */
    const char *executor;     /* guard mode: owner that the application's lease has, or is to have; NULL = none */
    char executor_hex[33];    /* what tells the beginning executor from others; "" = none */
    struct waiter *taker;     /* the caller that tries to become the executor of what is there */
    enum phase phase;
    struct registry *registry;    /* a reference */
    const struct tool *tool;      /* NULL when the registry has none */
    const struct json *arguments; /* parsed */
    bool unreadable;              /* the recorded arguments */
    struct route *route;
    bool has_slot;
    bool registered; /* among the engine's flights */
    struct queued queued;
    struct wait_list callers;
    struct attempt attempt;                          /* the one on the wire or about to be */
    struct attempt rows[LEDGER_CHANGE_ATTEMPTS_MAX]; /* to be written with the next commit */
    size_t row_count;
    unsigned looks;               /* admission: at its entities (claims.c) */
    const struct claims *seen;    /* its entities as its guards let it pass; NULL: they have to look (again) */
    const char *undoes;           /* admission: what it undoes, in words; NULL = nothing (compensate.c) */
    bool asks_approval;           /* admission: people are to be asked first (design 8) */
    struct adapter_origin origin; /* of the caller that opened it; gone after a restart */
    struct str progress;          /* of a look-up over pages */
    int64_t lookup_began_ms;      /* when the first page was asked for */
    struct finding finding;       /* of the last answer, for the evidence path */
    bool has_finding;
    struct str full_result; /* delivered once when too large to be kept */
    const char *inbound;    /* id of the event that the open step applies */
    struct drive *drive;    /* of a parent: what it is about to do (steps.c) */
    enum after_commit after;
    int64_t stall_ms;
    int64_t submitted_ms;   /* the commit */
    struct heap_node timer; /* of a stalled commit */
    struct ledger_request request;
    struct flight *next_spare;
    /* a person's decision under way */
    engine_reply_fn *decided;
    void *decided_user;
};

struct engine {
    struct env *env;
    struct ledger *ledger;
    struct adapter *adapter;
    struct webhooks *webhooks; /* NULL: nothing is forwarded */
    struct registry *registry;
    struct ulid_source ids;
    char incarnation[ULID_CHARS + 4 + 1];
    size_t in_flight_max;
    int64_t lease_ms, look_ms; /* as in the options */
    bool handed_over;          /* stopping: what was held is nobody's */
    bool sole_owner, started, recovered, stopping;
    bool cut;                          /* stopped too late: nothing may be sent any more */
    int64_t ledger_failing_ms;         /* when the ledger began to refuse; 0 = it works */
    int64_t ledger_refused_ms;         /* when it did so last … */
    char ledger_refusal[ERR_TEXT_MAX]; /* … and why */
    int64_t stop_deadline_ms;
    void (*stopped)(void *user);
    void *stopped_user;
    struct map flights;   /* operation id → flight */
    struct flight *spare; /* memory for the next ones */
    size_t spare_count;
    struct map lists;      /* operation id → wait_list of its own */
    struct map routes;     /* provider name → route */
    struct heap deadlines; /* waiters */
    struct heap stalls;    /* flights */
    struct heap looks;     /* lists whose operations others may move */
    size_t waiter_count;
    size_t ledger_open; /* requests out, for the graceful stop */
    int64_t due_ms;     /* earliest wake_at that we know of; 0 = none */
    bool claiming;
    void (*scheduled)(void *user);
    void *scheduled_user;
    engine_change_fn *changed;
    void *changed_user;
    int64_t told_ms; /* tick time that the owner was last told */
    struct reads *reads;
    struct inbox *inbox;
    struct forwarder *forwarder;
    struct replay replay;
    struct engine_stats stats;
};

/* engine.c */
int64_t engine_now(struct engine *engine);
void engine_submit(struct engine *engine, struct ledger_request *request);
void engine_request_ended(struct engine *engine);
void engine_plan(struct engine *engine, int64_t at_ms); /* something in the ledger is due at that time */
void engine_reschedule(struct engine *engine);
struct route *engine_route(struct engine *engine, const struct provider *provider);
void engine_check_stopped(struct engine *engine);
/* For the log: it has one line when the ledger stops working and one when it works again, not one per operation. */
void engine_ledger_fails(struct engine *engine, const struct err *err);
void engine_ledger_works(struct engine *engine);
void reply_error(struct engine *engine, engine_reply_fn *reply, void *user, enum reply_kind kind,
                 const struct err *err);

/* call.c */
struct admit_as {               /* more than a caller's call */
    const char *new_version_of; /* an operator's retry of a closed operation … */
    const struct operation *old;
    const struct operation *undone; /* a compensation of this operation, as it was seen, … */
    const struct playbook *playbook;
    const char *reason;
    const struct operation *parent; /* a step of this operation, as it was seen, or in its rollback what undoes one … */
    size_t at;                      /* … which */
};
/* as may be NULL. A compensation whose original, or a step whose parent, has moved since is answered with REPLY_STALE.
 */
struct waiter *engine_admit(struct engine *engine, const struct engine_call *request, const struct admit_as *as,
                            engine_reply_fn *reply, void *user);

/* compensate.c */
/* The original's move goes with the admission. ERR_CONFLICT: it can not be undone. */
enum err_code flight_undo(struct flight *flight, const struct admit_as *as, struct err *err);
/* The ledger has moved it on account of another operation. */
void engine_undone(struct engine *engine, const struct operation *op, const struct event *events, size_t count);
/* An operator's retry of a compensation that failed for good: the next version of its key. */
void engine_compensate_again(struct engine *engine, const struct operation *failed, const char *reason,
                             engine_reply_fn *reply, void *user);
/* The rollback of a parent, as it was seen: its step number `at`, done by `operation`, is undone by its playbook; also
 * once more, when a former try failed for good. REPLY_STALE: the parent has moved since, or the step. */
void engine_roll_back(struct engine *engine, const struct operation *parent, size_t at, const char *operation,
                      const char *playbook, const char *reason, engine_reply_fn *reply, void *user);

/* steps.c (design 10.2) */
/* The flight of a parent goes on with what step() wants next. */
void flight_drive(struct flight *flight, enum step_action action, size_t at);
/* The parent's move goes with the admission of a step, or of what undoes one. */
enum err_code flight_move_parent(struct flight *flight, const struct admit_as *as, struct err *err);
/* One JSON array: what a call of a multi-step tool would run, as far as that can be told before it has. */
void flight_describe_steps(struct flight *flight, struct json_out *out);

/* wait.c */
struct waiter *waiter_new(struct engine *engine, engine_reply_fn *reply, void *user, int64_t wait_ms);
/* Hangs it to the operation (as the ledger has it) and starts its clock. */
void waiter_attach(struct waiter *waiter, const struct operation *op);
void wait_list_free(struct wait_list *list); /* one of its own */
void waiter_free(struct waiter *waiter);
void latency_add(struct latency *latency, int64_t began_ms, int64_t now_ms);
void waiter_reply(struct waiter *waiter, const struct engine_reply *reply); /* frees it first */
/* Answers everybody when the operation is settled (terminal, or only an operator can go on). */
void callers_tell(struct flight *flight);
void callers_take_over(struct flight *flight); /* flight begins: callers that waited without one */
void callers_leave(struct flight *flight);     /* flight ends: the rest waits without one */
void waiters_expire(struct engine *engine, int64_t now_ms);
void waiters_answer_all(struct engine *engine);
/* A watched operation has moved; NULL: any may have. */
void waiters_news(void *engine, const char *operation);
void waiters_look(struct engine *engine, int64_t now_ms); /* at those whose time has come */
void waiters_answer_sleeping(struct engine *engine);      /* those whose operation is not in memory */
bool operation_settled(const struct operation *op);

/* flight.c */
struct flight *flight_new(struct engine *engine);
struct flight *flight_from(struct engine *engine, const struct operation *op, bool owned); /* registered in the map */
void flight_register(struct flight *flight);
void flight_free(struct flight *flight);
void flight_free_spares(struct engine *engine);
void flight_set_tool(struct flight *flight, struct registry *registry, const struct tool *tool);
void flight_begin_attempt(struct flight *flight, enum attempt_kind kind);
void flight_send(struct flight *flight);
void flight_go_on(struct flight *flight);
void flight_wake(struct flight *flight);
void flight_reload(struct flight *flight); /* somebody else has moved the row: on with what is there, if it is ours */
/* A planned operation has what it waited for (its time has come, its approval is complete): on to its first request. */
void flight_ready(struct flight *flight);
void flight_owner_gone(struct flight *flight);
void flight_enqueue(struct flight *flight);
/* Answers the person or executor whose word is under way, if there is one. */
void flight_decided(struct flight *flight, enum reply_kind kind, const struct err *err);
/* Runs a step and commits what it changed. ERR_CONFLICT from people's steps leaves everything as it was. */
enum err_code flight_step(struct flight *flight, struct step_input *in, enum after_commit after, struct err *err);
void flight_want_send(struct flight *flight);
/* Parsed once; {} where they are not kept any more, or can not be read (unreadable: then nothing may be sent). */
const struct json *flight_arguments(struct flight *flight);
void flight_retry(struct flight *flight); /* what the ledger did not take */
int64_t flight_lease_ms(const struct engine *engine, const struct tool *tool);
/* Of what was committed; the engine's listener is told, too. */
void log_transitions(struct engine *engine, const struct operation *op, const struct event *events, size_t count);

/* claims.c: what the call claims goes into its admission. ERR_INVALID, ERR_LIMIT. Only for tools with claims. */
enum err_code flight_claim(struct flight *flight, const char *override_reason, struct err *err);
/* Whether guards look at its entities before it is admitted: then that is under way, and the admission follows. */
bool flight_look_first(struct flight *flight);
bool flight_look_again(struct flight *flight); /* false: often enough */
void flight_looked(struct flight *flight);     /* admitted as its guards saw it: that goes with its first request */
bool flight_must_look(const struct flight *flight); /* its guards have not seen what its first request would go by */
void flight_take_turn(struct flight *flight); /* planned: with its entities on to the request, or into their queues */

/* gate and queue */
void route_push(struct route *route, struct queued *queued);
bool route_remove(struct route *route, struct queued *queued);
void route_pump(struct route *route);

/* flight.c: an attempt's row goes with the next commit. */
void flight_add_row(struct flight *flight, const struct attempt *attempt);

/* guard.c (design 11.2) */
void guard_name_executor(struct flight *flight, const struct engine_call *request);
/* The first state of a call of guard mode. */
void guard_first_state(struct flight *flight, const struct engine_call *request, int64_t now_ms);
/* It was admitted with a lease: the caller is told to perform it. Frees the flight. */
void guard_begun(struct flight *flight, struct waiter *waiter);
/* It is there already. False: nothing in it is this caller's to perform. */
bool guard_joins(struct flight *flight, struct waiter *waiter, const struct operation *existing);
/* Its turn has come: it waits for a begin, or the one that looked first performs it. */
void guard_await_executor(struct flight *flight);

/* reads.c */
struct reads *reads_new(struct engine *engine);
void reads_free(struct reads *reads);
struct waiter *reads_call(struct reads *reads, const struct engine_call *request, const struct tool *tool,
                          const struct operation *op, const struct json *arguments, engine_reply_fn *reply, void *user);
bool reads_cancel(struct reads *reads, struct waiter *waiter);
void reads_tick(struct reads *reads, int64_t now_ms);
void reads_answer_all(struct reads *reads); /* the engine stops for good: nobody waits any longer */
int64_t reads_next_ms(const struct reads *reads);
size_t reads_busy(const struct reads *reads);

#endif
