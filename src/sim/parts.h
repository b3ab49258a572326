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

/* ---- time (schedule.c) ---- */

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
    STREAM_PEOPLE
};
#define STREAM(kind, n) ((uint32_t)(kind) << 28 | ((uint32_t)(n)&0x0fffffff))

/* A decider's own position in its stream. */
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

struct sim {
    const struct sim_options *options;
    struct sim_result *result;
    int64_t now_ms; /* true time; gateways see theirs */
    unsigned fault_percent;
    struct sim_event **heap;
    size_t heap_count, heap_room;
    uint64_t order;
    bool over;              /* no new faults, no new calls: everything is to settle */
    struct ledger *backing; /* the one ledger behind all gateways */
    struct registry *registry;
    struct gateway *gateways[SIM_GATEWAYS_MAX];
    struct sim_tools *tools;
    struct sim_providers *providers;
    struct sim_clients *clients;
    struct sim_people *people;
    struct checker_model *checker;
};

/* One line of the trace, and part of the digest. who: "gw1", "client 3", "provider", "ann" */
void sim_say(struct sim *sim, const char *who, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool sim_traced(const struct sim *sim); /* somebody reads the lines: else spare the work of making them */
/* The first one is kept; the run ends. */
void sim_violated(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- gateways (gateway.c, store.c) ---- */

struct gateway *gateway_new(struct sim *sim, unsigned number);
void gateway_free(struct gateway *gateway);
/* NULL while it is down. */
struct engine *gateway_engine(struct gateway *gateway);
const char *gateway_name(const struct gateway *gateway); /* "gw1" */
unsigned gateway_life(const struct gateway *gateway); /* +1 at each start: who holds something of a dead one sees it */
/* Standing still (pause): callers of the engine wait until this time; 0 = it runs. */
int64_t gateway_paused_until(const struct gateway *gateway);
void gateway_moved(struct gateway *gateway); /* after anything that called into its engine: plans its next tick */
void gateway_kill(struct gateway *gateway);  /* as by kill -9, now */

/* The ledger as this gateway sees it, over sim->backing. A dead gateway's requests end unanswered: what of them was
 * executed is the dice's choice. */
struct ledger *store_new(struct sim *sim, struct gateway *gateway);
void store_cut(struct ledger *store); /* the gateway died */

/* ---- tools and providers (tools.c, provider.c, wire.c) ---- */

struct sim_tools *tools_new(struct sim *sim); /* sets sim->registry: the options' or one drawn from the seed */
void tools_free(struct sim_tools *tools);

struct sim_providers *providers_new(struct sim *sim);
void providers_free(struct sim_providers *providers);

/* An adapter per gateway: requests of a gateway that dies stay under way, their answers go nowhere. */
struct adapter *wire_new(struct sim *sim, struct gateway *gateway);
void wire_free(struct adapter *adapter);
void wire_cut(struct adapter *adapter); /* the gateway died: pending done callbacks are called with OUTCOME_TIMEOUT
                                         * (the engine is being thrown away), later sends end as not_sent, no request
                                         * reaches a provider any more from it */

/* ---- clients and people ---- */

/* Intents are numbered 1 … options->intents. Every call of intent n carries trace "sim-<n>-<call>": the operation and
 * all its requests carry it on, so the provider's effects and the replies tell which intent they belong to, whatever
 * the registry is. */
struct sim_clients *clients_new(struct sim *sim); /* plans all intents */
void clients_free(struct sim_clients *clients);
bool clients_done(const struct sim *sim); /* all intents have been called for and answered or given up */
void clients_gateway_died(struct sim *sim, struct gateway *gateway); /* connections break */
uint32_t intent_of_trace(const char *trace);                         /* 0 = none */

struct sim_people *people_new(struct sim *sim);
void people_free(struct sim_people *people);
/* At the end of the run: resolves, by the provider's truth, what waits for a person. */
void people_clear_up(struct sim *sim);

/* ---- checker (checker.c) ---- */

struct checker_model *checker_new(struct sim *sim);
void checker_free(struct checker_model *checker);
/* From store.c, for every command executed by the backing ledger with code 0, in order of execution: what changed is
 * in the request (its inputs and outputs). */
void checker_committed(struct sim *sim, struct gateway *gateway, const struct ledger_request *request);
/* From provider.c: */
void checker_request(struct sim *sim, const struct adapter_call *call,
                     const char *gateway); /* arrived at the provider */
/* excuse: SIM_FAULT_COUNT, or the contract-breaking fault that allows a further effect / a missing one */
void checker_effect(struct sim *sim, uint32_t intent, const char *operation, const char *external_id,
                    enum sim_fault excuse);
void checker_excuse(struct sim *sim, uint32_t intent, enum sim_fault excuse);
/* From wire.c: an attempt is about to leave the gateway. */
void checker_sending(struct sim *sim, struct gateway *gateway, const struct adapter_call *call);
/* From client.c: a call was answered. expected: this call's own intent (it may join only an operation of it) */
void checker_reply(struct sim *sim, uint32_t intent, unsigned call, const struct engine_reply *reply);
/* At the end, after people_clear_up and settling: everything that must hold of the whole. Reads the backing ledger. */
void checker_end(struct sim *sim);

#endif
