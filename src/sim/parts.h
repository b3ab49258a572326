/* What the simulator's parts share. Not for others.
 *
 *   sim.c       the run: sets up, steps through events until all is quiet, asks the checker
 *   roll.c      decisions from (seed, stream, index): what a fault set or the shrinker leaves out does not move others
 *   schedule.c  events in simulated time
 *   gateway.c   an engine with its clock; crash, pause, stop, restart, reload
 *   store.c     the ledger as a gateway sees it: delays, losses, torn batches; tells the checker of every commit
 *   tools.c     tools and providers drawn from the seed
 *   wire.c      the adapter: requests and answers under way
 *   provider.c  what providers do with requests: keys, effects, look-ups, misbehaviour
 *   client.c    agents: calls, retries, rewrites, repeats, departures
 *   people.c    operators
 *   approvers.c people who approve and deny
 *   undoers.c   people who have things undone
 *   executors.c applications that perform effects themselves (guard mode)
 *   webhooks.c  providers that tell by events what they did
 *   shared.c    programs that runs share
 *   checker.c   a simpler model of what must hold (design 18), fed by what the world sees, never by the engine's memory
 */
#ifndef SIM_PARTS_H
#define SIM_PARTS_H

#include "base/map.h"
#include "engine/engine.h"
#include "sim/sim.h"

struct sim;
struct gateway;
struct checker_model;

/* Two clocks (gateways', or the true time) are never further apart than this: what onced assumes of the machines'
 * clocks. Times that gateways compare with one another's (settle, retention of keys) hold within it: a request that is
 * late "within settle" arrives at least this much before settle ends; a provider forgets a key this much later than it
 * says. */
#define SIM_CLOCK_SPREAD_MS 2000
#define SIM_START_MS        INT64_C(1800000000000) /* true time at the beginning of every run */

/* ---- time (schedule.c) ---- */

struct sim_place { /* in the heap: what its order needs lies side by side */
    int64_t at_ms;
    uint64_t order;
    struct sim_event *event;
};
struct sim_event {
    int64_t at_ms;
    uint64_t order;                                        /* of scheduling: equal times run in this order */
    void (*run)(struct sim *sim, struct sim_event *event); /* may free the event */
    size_t place;                                          /* in the heap; 0 = not scheduled */
};
/* The event is the caller's; it must not be scheduled already. */
void schedule_at(struct sim *sim, struct sim_event *event, int64_t at_ms);
void schedule_in(struct sim *sim, struct sim_event *event, int64_t ms);
void schedule_drop(struct sim *sim, struct sim_event *event); /* fine when it is not scheduled */

/* ---- decisions (roll.c) ---- */

/* Streams: one number space per kind of decider, so that leaving out an intent leaves all else as it was. */
enum stream_kind {
    STREAM_WORLD,
    STREAM_TOOL,
    STREAM_GATEWAY,
    STREAM_STORE,
    STREAM_INTENT,
    STREAM_REQUEST,
    STREAM_PEOPLE,
    STREAM_WEBHOOK
};
#define STREAM(kind, n) ((uint32_t)(kind) << 28 | ((uint32_t)(n)&0x0fffffff))

/* A decider's own position in its stream. Leaving out a fault must not move later decisions of the stream: roll the
 * same number of times whether the fault happens or not, or set index yourself (to n * 16 for the n-th thing decided).
 */
struct dice {
    struct sim *sim;
    uint32_t stream, index;
};
struct dice dice_of(struct sim *sim, uint32_t stream);
uint64_t roll(struct dice *dice, uint64_t n);                      /* 0 … n - 1; n > 0 */
int64_t roll_between(struct dice *dice, int64_t from, int64_t to); /* both included */
/* Whether this fault happens here, with the run's probability times weight / 100; false when the fault is not among the
 * options' or the decision is left out. A decision that is taken is remembered for the shrinker and counted. */
bool roll_fault(struct dice *dice, enum sim_fault fault, unsigned weight);

/* ---- the run ---- */

#define SIM_GATEWAYS_MAX 8

struct world_env { /* of the ledger behind all gateways: true time, randomness of its own */
    struct env env;
    struct sim *sim;
    uint32_t drawn;
};

struct sim {
    const struct sim_options *options;
    struct sim_result *result;
    int64_t now_ms; /* true time; gateways see theirs */
    uint64_t mixed_seed;
    struct sim_shared *shared;
    unsigned fault_percent;
    struct sim_place *heap;
    size_t heap_count, heap_room;
    uint64_t order;
    int64_t events, changes; /* run; rows that were inserted or moved */
    struct world_env env;
    bool over;              /* no new faults, no new calls: everything is to settle */
    struct ledger *backing; /* the one ledger behind all gateways */
    struct map watched;     /* operation id → itself: gateways are told of its moves (store.c) */
    struct registry *registry;
    struct gateway *gateways[SIM_GATEWAYS_MAX];
    struct sim_tools *tools;
    size_t steps_max; /* of any tool; 0 = there are no multi-step tools */
    struct sim_providers *providers;
    struct sim_clients *clients;
    struct sim_people *people;
    struct sim_approvers *approvers;
    struct sim_undoers *undoers;
    struct sim_webhooks *webhooks;
    struct sim_executors *executors;
    struct checker_model *checker;
};

/* One line of the trace. who: "gw1", "client 3", "provider", "ann" */
void sim_say(struct sim *sim, const char *who, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool sim_traced(const struct sim *sim); /* somebody reads the lines: else spare the work of making them */
/* A number that tells what happened, for the digest: traced or not, the same. The times and the order of all events are
 * in it anyway. */
void sim_mix(struct sim *sim, uint64_t value);
/* The first one is kept; the run ends. */
void sim_violated(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- gateways (gateway.c, store.c) ---- */

struct gateway *gateway_new(struct sim *sim, unsigned number);
void gateway_free(struct gateway *gateway);
/* NULL while it is down. */
struct engine *gateway_engine(struct gateway *gateway);
const char *gateway_name(const struct gateway *gateway); /* "gw1" */
unsigned gateway_number(const struct gateway *gateway);  /* from 1 */
/* Changes at each start and at each death: who holds something of a dead one sees it. While a gateway dies,
 * gateway_engine is NULL already, and each reply that the engine still owes is given (to be ignored): every
 * engine_reply_fn is called exactly once, unless engine_caller_left came first. */
unsigned gateway_life(const struct gateway *gateway);
/* Standing still (pause): callers of the engine wait until this time; 0 = it runs. */
int64_t gateway_paused_until(const struct gateway *gateway);
void gateway_moved(struct gateway *gateway); /* after anything that called into its engine: plans its next tick */
void gateway_kill(struct gateway *gateway);  /* as by kill -9, now */

/* The ledger as this gateway sees it, over sim->backing. A dead gateway's requests end unanswered: what of them was
 * executed is the dice's choice. */
struct ledger *store_new(struct sim *sim, struct gateway *gateway);
void store_cut(struct ledger *store);   /* the gateway died: from now on every request ends as unavailable, in … */
bool store_drain(struct ledger *store); /* … this: answers all that wait; false when there were none */

/* ---- tools and providers (tools.c, provider.c, wire.c) ---- */

struct sim_tools *tools_new(struct sim *sim); /* sets sim->registry: the options' or one drawn from the seed */
void tools_free(struct sim_tools *tools);
/* Arguments of the n-th intended effect of a tool: options->arguments' or, for the simulator's own tools, their own.
 * variant as in sim_arguments. rewrite > 0: other values outside of the business key, as a model makes them when it
 * writes the call anew (equal rewrite, equal values); NULL where the tool has no such member or cannot tell.
 * sim->registry always has every tool: what gateways are given while a tool is "gone" is a registry of their own. */
const struct json *tools_arguments(struct sim *sim, const struct tool *tool, uint64_t n, unsigned variant,
                                   unsigned rewrite, uint64_t random, struct arena *arena);
/* Some of the simulator's own tools are of guard mode (sim->faults has SIM_EXECUTORS): tool->guard_lease_ms > 0. A
 * client that is to call one begins, and executors.c performs it. */
#define SIM_GUARDED_MAX 2
/* Some of the simulator's own tools are multi-step tools (sim->faults has SIM_STEPS), whose steps others of them
 * perform. The simulator's own tools (options->registry NULL) take {"order": text, "amount_cents": integer, "currency":
 * text, "note"?: text}. Order and amount tell which effect is meant. Where tool->normal is set, order is trimmed and
 * currency put into upper case before identity; where volatile_count > 0, note is left out of the fingerprint. A tool
 * with identity: caller needs a key of the caller; tool->key is over order and amount_cents. */

/* Registries for reloads: 0 is sim->registry; others lack a tool or have other policies (retry, intervals, in_doubt,
 * never the provider's contract). Borrowed. */
size_t tools_variant_count(const struct sim *sim);
struct registry *tools_variant(const struct sim *sim, size_t index);
/* The longest that something may take to settle by itself once nothing goes wrong any more. */
int64_t tools_horizon_ms(const struct sim *sim);

struct sim_providers *providers_new(struct sim *sim);
void providers_free(struct sim_providers *providers);

/* An adapter per life of a gateway: wire_new at each start; at its end wire_cut, engine_free, wire_free. Requests that
 * have left a gateway that dies stay under way (they belong to the sim, not to the adapter), their answers go nowhere.
 */
struct adapter *wire_new(struct sim *sim, struct gateway *gateway);
void wire_free(struct adapter *adapter);
/* The gateway died: pending done callbacks are called with OUTCOME_TIMEOUT (the engine is being thrown away), and so
 * are those of what they send from within; sends after the first cut never leave. May be called again. */
void wire_cut(struct adapter *adapter);

/* ---- clients and people ---- */

/* Intents are numbered 1 … options->intents. Every call of intent n carries trace "sim-<n>-<call>": the operation and
 * all its requests carry it on, so the provider's effects and the replies tell which intent they belong to, whatever
 * the registry is. */
struct sim_clients *clients_new(struct sim *sim); /* plans all intents */
void clients_free(struct sim_clients *clients);
bool clients_done(const struct sim *sim); /* all intents have been called for and answered or given up */
void clients_gateway_died(struct sim *sim, struct gateway *gateway); /* connections break */
void clients_gateway_up(struct sim *sim);                            /* who found none may call again */
uint32_t intent_of_trace(const char *trace);                         /* 0 = none */

struct sim_approvers *approvers_new(struct sim *sim);
void approvers_free(struct sim_approvers *approvers);

/* Compensations of intent n are of intent options->intents + n; steps and what undoes them have intents of their own
 * above those (check_step_intent). */
struct sim_undoers *undoers_new(struct sim *sim);
void undoers_free(struct sim_undoers *undoers);

struct sim_executors *executors_new(struct sim *sim);
void executors_free(struct sim_executors *executors);

/* After the tools; events go on until a gateway has recorded them. */
struct sim_webhooks *sim_webhooks_new(struct sim *sim);
void sim_webhooks_free(struct sim_webhooks *webhooks); /* after the gateways */

struct sim_people *sim_people_new(struct sim *sim);
void sim_people_free(struct sim_people *people);
/* At the end of the run: resolves, by the provider's truth, what waits for a person. */
void people_clear_up(struct sim *sim);

/* ---- checker (checker.c) ---- */

struct checker_model *checker_new(struct sim *sim);
void checker_free(struct checker_model *checker);
/* From store.c, for every command executed by the backing ledger with code 0, in order of execution: what changed is
 * in the request (its inputs and outputs). */
void checker_committed(struct sim *sim, struct gateway *gateway, const struct ledger_request *request);
/* From provider.c and people.c: the world broke its promises for this intent (a fault that breaks): further effects, a
 * missing one or an untrue "failed" of it are nobody's fault but the fault's. */
void checker_excuse(struct sim *sim, uint32_t intent, enum sim_fault excuse);
/* What only the outside world's parts tell each other and the checker is in outside.h. */
/* At the end, after people_clear_up and settling: everything that must hold of the whole. Reads the backing ledger. */
void checker_end(struct sim *sim);
/* Each row that is left, by the rules of core/audit.h, which `onced ledger verify` judges by, too. */
void checker_sound(struct sim *sim);

#endif
