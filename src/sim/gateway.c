/* One gateway: the real engine with a clock of its own, and what befalls it. */
#include "base/mem.h"
#include "sim/run.h"

#include <stdio.h>
#include <stdlib.h>

#define ROLLS_PER_TROUBLE 32

struct gateway {
    struct sim *sim;
    unsigned number, life;
    char name[16];
    struct env env;
    int64_t skew_ms;         /* its clock against the true time */
    struct dice dice, draws; /* what befalls it; its source of randomness */
    uint32_t troubles;
    struct ledger *store; /* this and the next two: NULL while it is down */
    struct adapter *wire;
    struct engine *engine;
    int64_t paused_until_ms;
    size_t variant; /* of the registry */
    bool stopping;
    struct sim_event tick, trouble, start, gone;
};

/* ---- its surroundings ---- */

static int64_t env_now(struct env *env)
{
    struct gateway *gateway = (struct gateway *)((char *)env - offsetof(struct gateway, env));
    return gateway->sim->now_ms + gateway->skew_ms;
}

static void env_fill(struct env *env, void *out, size_t n)
{
    struct gateway *gateway = (struct gateway *)((char *)env - offsetof(struct gateway, env));
    struct dice *draws = &gateway->draws;
    unsigned char *p = out;
    while (n > 0) {
        uint64_t value = roll_hash(gateway->sim->options->seed, draws->stream, draws->index++);
        for (size_t i = 0; i < 8 && n > 0; i++, n--) /* byte by byte: the same on every machine */
            *p++ = (unsigned char)(value >> 8 * i);
    }
}

struct engine *gateway_engine(struct gateway *gateway)
{
    return gateway->engine;
}

struct ledger *gateway_ledger(struct gateway *gateway)
{
    return gateway->store;
}

const char *gateway_name(const struct gateway *gateway)
{
    return gateway->name;
}

unsigned gateway_number(const struct gateway *gateway)
{
    return gateway->number;
}

unsigned gateway_life(const struct gateway *gateway)
{
    return gateway->life;
}

int64_t gateway_paused_until(const struct gateway *gateway)
{
    return gateway->paused_until_ms > gateway->sim->now_ms ? gateway->paused_until_ms : 0;
}

/* ---- time ---- */

void gateway_moved(struct gateway *gateway)
{
    struct sim *sim = gateway->sim;
    int64_t next = gateway->engine ? engine_next_tick_ms(gateway->engine) : 0;
    if (next == 0) {
        schedule_drop(sim, &gateway->tick);
        return;
    }
    int64_t at = next - gateway->skew_ms;
    if (at < gateway->paused_until_ms)
        at = gateway->paused_until_ms;
    if (at < sim->now_ms)
        at = sim->now_ms;
    if (gateway->tick.place && gateway->tick.at_ms == at)
        return;
    schedule_drop(sim, &gateway->tick);
    schedule_at(sim, &gateway->tick, at);
}

static void on_schedule(void *user)
{
    gateway_moved(user);
}

static void run_tick(struct sim *sim, struct sim_event *event)
{
    struct gateway *gateway = (struct gateway *)((char *)event - offsetof(struct gateway, tick));
    if (sim->now_ms >= gateway->paused_until_ms)
        engine_tick(gateway->engine);
    gateway_moved(gateway);
}

/* ---- life and death ---- */

static void run_start(struct sim *sim, struct sim_event *event)
{
    struct gateway *gateway = (struct gateway *)((char *)event - offsetof(struct gateway, start));
    gateway->life++;
    gateway->store = store_new(sim, gateway);
    gateway->wire = wire_new(sim, gateway);
    struct dice dice = dice_of(sim, STREAM(STREAM_GATEWAY, gateway->number | 0x100));
    struct engine_options options = {
        .env = &gateway->env,
        .ledger = gateway->store,
        .adapter = gateway->wire,
        .registry = tools_variant(sim, gateway->variant),
        .sole_owner = sim->options->gateways == 1 && roll(&dice, 2) == 0,
        .in_flight_max = roll(&dice, 4) == 0 ? (size_t)roll_between(&dice, 4, 60) : 0,
    };
    gateway->engine = engine_new(&options);
    gateway->paused_until_ms = 0;
    gateway->stopping = false;
    sim_say(sim, gateway->name, "starts%s", options.sole_owner ? " as the only one" : "");
    engine_on_schedule(gateway->engine, on_schedule, gateway);
    engine_start(gateway->engine);
    gateway_moved(gateway);
    clients_gateway_up(sim);
}

static void ignore(void *user)
{
    (void)user;
}

/* From here on the engine is cut off from everything; what it still has to give back, it gives back now. */
static void end_life(struct gateway *gateway)
{
    struct sim *sim = gateway->sim;
    struct engine *engine = gateway->engine;
    gateway->engine = NULL;
    gateway->life++;
    schedule_drop(sim, &gateway->tick);
    schedule_drop(sim, &gateway->gone);
    clients_gateway_died(sim, gateway);
    store_cut(gateway->store);
    engine_on_schedule(engine, ignore, NULL);
    engine_stop(engine, env_now(&gateway->env) - 1, ignore, NULL);
    do {
        wire_cut(gateway->wire);
    } while (store_drain(gateway->store));
    engine_free(engine);
    wire_free(gateway->wire);
    ledger_close(gateway->store);
    gateway->wire = NULL;
    gateway->store = NULL;
}

/* How long it stays down: sometimes longer than any lease. */
static int64_t downtime(struct gateway *gateway)
{
    struct dice dice = dice_of(gateway->sim, STREAM(STREAM_GATEWAY, gateway->number | 0x200));
    dice.index = gateway->life * 4;
    bool lengthy = roll(&dice, 6) == 0;
    int64_t small = roll_between(&dice, 1, 4000), large = roll_between(&dice, 4000, 120000);
    return lengthy ? large : small;
}

void gateway_kill(struct gateway *gateway)
{
    if (!gateway->engine)
        return;
    gateway->sim->result->crashes++;
    end_life(gateway);
    int64_t down = downtime(gateway);
    sim_say(gateway->sim, gateway->name, "is killed, back in %lld ms", (long long)down);
    schedule_in(gateway->sim, &gateway->start, down);
}

static void run_gone(struct sim *sim, struct sim_event *event)
{
    struct gateway *gateway = (struct gateway *)((char *)event - offsetof(struct gateway, gone));
    end_life(gateway);
    int64_t down = downtime(gateway);
    sim_say(sim, gateway->name, "has stopped, back in %lld ms", (long long)down);
    schedule_in(sim, &gateway->start, down);
}

static void stopped(void *user)
{
    struct gateway *gateway = user;
    schedule_in(gateway->sim, &gateway->gone, 0); /* the engine must not be freed from within */
}

/* ---- what befalls it ---- */

static void stop(struct gateway *gateway, int64_t grace_ms)
{
    if (gateway->stopping)
        return;
    gateway->stopping = true;
    sim_say(gateway->sim, gateway->name, "is told to stop within %lld ms", (long long)grace_ms);
    engine_stop(gateway->engine, env_now(&gateway->env) + grace_ms, stopped, gateway);
}

static void set_clock(struct gateway *gateway, int64_t skew_ms)
{
    sim_say(gateway->sim, gateway->name, "its clock goes from %+lld to %+lld ms", (long long)gateway->skew_ms,
            (long long)skew_ms);
    gateway->skew_ms = skew_ms;
}

static void reload(struct gateway *gateway, size_t variant)
{
    gateway->variant = variant;
    sim_say(gateway->sim, gateway->name, "loads registry %zu", variant);
    if (gateway->engine)
        engine_set_registry(gateway->engine, tools_variant(gateway->sim, variant));
}

/* One point in time at which something may go wrong. All rolls are made, whatever comes of them. */
static void run_trouble(struct sim *sim, struct sim_event *event)
{
    struct gateway *gateway = (struct gateway *)((char *)event - offsetof(struct gateway, trouble));
    struct dice *dice = &gateway->dice;
    dice->index = gateway->troubles++ * ROLLS_PER_TROUBLE;
    int64_t gap = roll_between(dice, 20, 4000), grace = roll_between(dice, 0, 12000);
    int64_t skew = roll_between(dice, -SIM_CLOCK_SPREAD_MS / 2, SIM_CLOCK_SPREAD_MS / 2);
    bool lengthy = roll(dice, 5) == 0;
    int64_t small = roll_between(dice, 1, 3000), large = roll_between(dice, 3000, 150000);
    size_t variant = (size_t)roll(dice, tools_variant_count(sim));
    if (sim->over)
        return;
    bool crash = roll_fault(dice, SIM_CRASH, 40), stops = roll_fault(dice, SIM_STOP, 15);
    bool pauses = roll_fault(dice, SIM_PAUSE, 30), steps = roll_fault(dice, SIM_CLOCK, 30);
    bool reloads = roll_fault(dice, SIM_RELOAD, 30);
    if (steps)
        set_clock(gateway, skew);
    if (reloads)
        reload(gateway, variant);
    if (crash) {
        gateway_kill(gateway);
    } else if (gateway->engine && gateway_paused_until(gateway) == 0) {
        if (stops)
            stop(gateway, grace);
        if (pauses && gateway->engine) {
            gateway->paused_until_ms = sim->now_ms + (lengthy ? large : small);
            sim_say(sim, gateway->name, "stands still for %lld ms",
                    (long long)(gateway->paused_until_ms - sim->now_ms));
        }
    }
    gateway_moved(gateway);
    schedule_in(sim, event, gap);
}

void gateway_calm(struct gateway *gateway)
{
    if (gateway->variant != 0)
        reload(gateway, 0);
    gateway_moved(gateway);
}

bool gateway_quiet(const struct gateway *gateway)
{
    return gateway->engine && store_quiet(gateway->store);
}

/* ---- the record ---- */

struct gateway *gateway_new(struct sim *sim, unsigned number)
{
    struct gateway *gateway = mem_zero(sizeof *gateway);
    gateway->sim = sim;
    gateway->number = number;
    snprintf(gateway->name, sizeof gateway->name, "gw%u", number);
    gateway->env = (struct env){env_now, env_fill};
    gateway->dice = dice_of(sim, STREAM(STREAM_GATEWAY, number));
    gateway->draws = dice_of(sim, STREAM(STREAM_GATEWAY, number | 0x300));
    gateway->tick.run = run_tick;
    gateway->trouble.run = run_trouble;
    gateway->start.run = run_start;
    gateway->gone.run = run_gone;
    schedule_in(sim, &gateway->start, 0);
    schedule_in(sim, &gateway->trouble, 1);
    return gateway;
}

void gateway_free(struct gateway *gateway)
{
    if (!gateway)
        return;
    if (gateway->engine)
        end_life(gateway);
    schedule_drop(gateway->sim, &gateway->start);
    schedule_drop(gateway->sim, &gateway->trouble);
    free(gateway);
}
