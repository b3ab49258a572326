/* Deterministic simulation (design 18): several gateways with the real core and engine over one ledger, with simulated
 * network, clocks, providers, clients and people, in one thread. A run is a function of its options: the same options
 * give the same events, byte for byte. It is used by `onced simulate` (is the program right?), by `onced chaos` (what
 * would a user's registry do under faults?), and by the tests. No mutable globals: worlds can run side by side. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "base/buf.h"
#include "core/operation.h"
#include "core/registry.h"

/* What may go wrong. Those marked "breaks" violate what the tool's registry entry states of its provider (or what a
 * person states is untrue): no gateway can keep "one effect" then, but it must notice where it can and never claim
 * more than it knows. X(constant, name, breaks) */
#define SIM_FAULTS(X)                                                                                                  \
    X(SIM_CRASH, "crash", false)                   /* a gateway dies between any two events, restarts later */         \
    X(SIM_STOP, "stop", false)                     /* graceful stop, restart */                                        \
    X(SIM_PAUSE, "pause", false)                   /* a gateway stands still, also longer than a lease */              \
    X(SIM_CLOCK, "clock", false)                   /* skew between gateways, steps forwards and backwards */           \
    X(SIM_LEDGER_LOST, "ledger_lost", false)       /* a command is refused as unavailable, nothing of it happened */   \
    X(SIM_LEDGER_SLOW, "ledger_slow", false)       /* a commit takes long; its answer comes late */                    \
    X(SIM_LEDGER_UNKNOWN, "ledger_unknown", false) /* gateway dies, its last commands were committed or were not */    \
    X(SIM_LEDGER_TORN, "ledger_torn", false)       /* gateway dies with a prefix of its batch committed */             \
    X(SIM_NET_REFUSED, "net_refused", false)       /* no connection: not sent */                                       \
    X(SIM_NET_LOST, "net_lost", false)             /* request lost on its way */                                       \
    X(SIM_ANSWER_LOST, "answer_lost", false)       /* effect made, answer lost (reset or time-out) */                  \
    X(SIM_NET_LATE, "net_late", false)             /* request arrives after our time-out, within settle */             \
    X(SIM_NET_REORDER, "net_reorder", false)       /* messages overtake each other */                                  \
    X(SIM_THROTTLED, "throttled", false)           /* 429 with and without Retry-After */                              \
    X(SIM_ERROR_BEFORE, "error_before", false)     /* 5xx, nothing happened */                                         \
    X(SIM_ERROR_AFTER, "error_after", false)       /* 5xx, effect made */                                              \
    X(SIM_REFUSED, "refused", false)               /* definite 4xx */                                                  \
    X(SIM_UNREADABLE, "unreadable", false)         /* malformed or truncated answer, effect made */                    \
    X(SIM_SLOW, "slow", false)                     /* answer near or over the time-out */                              \
    X(SIM_ACCEPTED, "accepted", false)             /* 202 first, done later, or failed there */                        \
    X(SIM_LOOKUP_FAILS, "lookup_fails", false)     /* look-ups that error, time out, cannot tell, need pages */        \
    X(SIM_LOOKUP_LAGS, "lookup_lags", false)       /* propagation delay up to settle */                                \
    X(SIM_CLIENT_RETRY, "client_retry", false)     /* clients leave, repeat, run twice, go to another gateway */       \
    X(SIM_CLIENT_REWRITE, "client_rewrite", false) /* the model rewrites arguments on retry */                         \
    X(SIM_PEOPLE, "people", false)                 /* resolve, retry, cancel at any time, also on stale versions */    \
    X(SIM_APPROVALS, "approvals", false)           /* tools ask people, who agree and refuse, twice, at any time */    \
    X(SIM_COMPENSATIONS, "compensations", false)   /* people have done things undone, twice, by several playbooks */   \
    X(SIM_STEPS, "steps", false)                   /* multi-step tools: rollbacks, cancelled and retried by people */  \
    X(SIM_EXECUTORS, "executors", false)           /* guard mode: applications go silent, come late, say it twice */   \
    X(SIM_WEBHOOKS, "webhooks", false)             /* providers tell by events: early, late, twice, contradicting */   \
    X(SIM_RELOAD, "reload", false)                 /* registry reloads, a tool goes and comes back */                  \
    X(SIM_RETENTION, "retention", false)           /* time passes until payloads are dropped */                        \
    X(SIM_NET_TWICE, "net_twice", true)            /* the network delivers a request twice */                          \
    X(SIM_NET_VERY_LATE, "net_very_late", true)    /* request arrives later than settle */                             \
    X(SIM_KEY_IGNORED, "key_ignored", true)        /* the provider does not honour the key it says it honours */       \
    X(SIM_KEY_FORGOTTEN, "key_forgotten", true)    /* earlier than its retention */                                    \
    X(SIM_WRONG_OBJECT, "wrong_object", true)      /* another operation's object replayed */                           \
    X(SIM_LOOKUP_BLIND, "lookup_blind", true)      /* "absent" although it is there, longer than settle */             \
    X(SIM_PEOPLE_WRONG, "people_wrong", true)      /* a person states what is not so */

enum sim_fault {
#define X(constant, name, breaks) constant,
    SIM_FAULTS(X)
#undef X
        SIM_FAULT_COUNT
};
#define SIM_FAULT_BIT(fault) (UINT64_C(1) << (fault))
#define SIM_FAULTS_ALL       (SIM_FAULT_BIT(SIM_FAULT_COUNT) - 1)
const char *sim_fault_name(enum sim_fault fault);
bool sim_fault_from_name(struct str text, enum sim_fault *out);
bool sim_fault_breaks(enum sim_fault fault);
uint64_t sim_faults_within_contract(void); /* mask of those that break nothing */

enum sim_ledger { SIM_LEDGER_MEMORY, SIM_LEDGER_SQLITE };

/* One decision that a run can be told not to take, so that a failing run can be made small: decisions have names of
 * their own (what, of whom, the how-manieth) that do not move when others are left out. */
struct sim_decision {
    uint32_t stream; /* whose decisions: an intent, a gateway, a request … (parts.h) */
    uint32_t index;  /* n-th of that stream */
};

/* Gives arguments for the n-th intended effect of a tool, for worlds made of a user's registry (NULL: made by the
 * simulator's own tools). Equal (tool, n) must give equal values; different n different intents where the schema lets
 * them. variant > 0: the same intent as an agent would write it again (order, number form, spaces), where possible. */
typedef const struct json *sim_arguments(void *user, const struct tool *tool, uint64_t n, unsigned variant,
                                         uint64_t random, struct arena *arena);

struct sim_reply_seen { /* a call of a client was answered */
    int64_t now_ms, asked_ms;
    uint32_t intent;           /* of the call */
    unsigned call;             /* n-th call for that intent */
    unsigned gateway;          /* number */
    uint32_t of_intent;        /* of the operation that the answer is about; 0 = none */
    bool same_intent_expected; /* the client means it as the same effect: a new operation would be a missed repeat */
    const struct engine_reply *reply;
};
struct sim_effect_seen { /* a provider made an effect */
    int64_t now_ms;
    uint32_t intent;
    unsigned nth; /* effect of this intent, from 1 */
    const struct tool *tool;
    const char *operation, *external_id;
    enum sim_fault excuse; /* the contract-breaking fault that made it a further one, SIM_FAULT_COUNT = none */
    bool excused;          /* a promise was broken for this intent, now or before */
    unsigned allowed;      /* effects that the rules allow for this intent: more than 1 where its calls had no key that
                              tells them from another intent's (design 2.2.5) */
};
/* Where a request is. A request that is lost never arrives, one whose gateway died is never answered. */
enum sim_wire_step {
    SIM_WIRE_SENT,    /* leaves the gateway */
    SIM_WIRE_ARRIVED, /* the provider counts it */
    SIM_WIRE_ANSWERED /* the gateway is told */
};
struct sim_wire_seen {
    int64_t now_ms;
    uint32_t intent;
    unsigned gateway;
    const struct tool *tool;
    enum attempt_kind kind;
    const char *operation;
    enum sim_wire_step what;
    enum outcome outcome; /* SIM_WIRE_ANSWERED: what the gateway is told */
};
struct sim_stale_seen { /* a commit lost its compare-and-set: somebody else was first */
    int64_t now_ms;
    uint32_t intent;
    unsigned gateway;
    const struct tool *tool;    /* NULL when the registry has none */
    const struct operation *op; /* as it was to be written */
};
struct sim_change_seen { /* a row was inserted or moved, durably */
    int64_t now_ms;
    uint32_t intent;
    unsigned gateway;
    const struct tool *tool;    /* NULL when the registry has none */
    const struct operation *op; /* as it is now */
    const struct event *events; /* that came with it */
    size_t event_count;
    int64_t commit_ms; /* from submission to durable, simulated */
};

/* What happens, for those who collect figures (chaos) or print (trace). All optional, borrowed for the call. */
struct sim_watch {
    void *user;
    void (*line)(void *user, int64_t now_ms, const char *who, const char *what); /* one readable line */
    void (*reply)(void *user, const struct sim_reply_seen *seen);
    void (*effect)(void *user, const struct sim_effect_seen *seen);
    void (*change)(void *user, const struct sim_change_seen *seen);
    void (*wire)(void *user, const struct sim_wire_seen *seen);
    void (*stale)(void *user, const struct sim_stale_seen *seen);
};

/* What is costly to make and the same in all runs: runs after one another may share one. Nothing of a run stays in it.
 */
struct sim_shared;
struct sim_shared *sim_shared_new(void);
void sim_shared_free(struct sim_shared *shared); /* NULL is fine */

struct sim_options {
    uint64_t seed;
    unsigned gateways;      /* 1 … 8 */
    unsigned intents;       /* intended effects of this run */
    uint64_t faults;        /* mask of SIM_FAULT_BIT */
    unsigned fault_percent; /* how often, 0 … 100; 0 = the seed chooses */
    enum sim_ledger ledger;
    const char *ledger_path;   /* SIM_LEDGER_SQLITE: a file that does not exist */
    struct registry *registry; /* NULL: tools of every class and contract, drawn from the seed. Else a user's */
    sim_arguments *arguments;  /* with registry */
    void *arguments_user;
    const uint32_t *intents_left_out; /* sorted */
    size_t intents_left_out_count;
    const struct sim_decision *left_out; /* sorted by (stream, index) */
    size_t left_out_count;
    const struct sim_watch *watch; /* NULL = none */
    struct sim_shared *shared;     /* NULL = the run's own */
};

#define SIM_VIOLATION_MAX 512

struct sim_result {
    bool violated;
    char violation[SIM_VIOLATION_MAX]; /* rule (design number), intent, operation, what was expected, what was seen */
    int64_t operations;                /* admitted by a ledger */
    int64_t calls, attempts, lookups, effects, duplicates_excused, incidents, crashes, faults;
    int64_t faults_by_kind[SIM_FAULT_COUNT]; /* decisions of each kind that were taken */
    int64_t settled, waiting_for_people, simulated_ms;
    uint64_t digest; /* over all events: equal for equal options */
    /* decisions that were taken, for the shrinker: malloc'd, sim_result_release frees them */
    struct sim_decision *taken;
    size_t taken_count;
};

void sim_run(const struct sim_options *options, struct sim_result *result);
void sim_result_release(struct sim_result *result);

/* Finds a small set of intents and faults that still breaks the same rule; writes the readable trace of that run.
 * runs_max bounds the work. */
void sim_shrink(const struct sim_options *options, unsigned runs_max, struct buf *trace);

#endif
