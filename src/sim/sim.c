/* A run:
 *
 *   set up ─► events, with faults, until all clients are done ─► calm: no new faults, everything is up, time passes
 *          ─► people resolve what waits for them ─► time passes again ─► the checker looks at the whole */
#include "sim/sim.h"

#include "base/mem.h"
#include "sim/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EVENTS_PER_INTENT 4000 /* more than this many: it does not settle */
#define EVENTS_AT_LEAST   100000
#define QUIET_LOOKS       20
#define CLEAR_UP_ROUNDS   24 /* each step of a multi-step tool may need a person of its own */

/* ---- what happened ---- */

bool sim_traced(const struct sim *sim)
{
    return sim->options->watch && sim->options->watch->line;
}

void sim_say(struct sim *sim, const char *who, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (!sim_traced(sim))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sim->options->watch->line(sim->options->watch->user, sim->now_ms, who, text);
}

void sim_mix(struct sim *sim, uint64_t value)
{
    uint64_t digest = sim->result->digest ^ value;
    digest *= UINT64_C(0x9fb21c651e98df25);
    sim->result->digest = digest ^ digest >> 28;
}

void sim_violated(struct sim *sim, const char *format, ...)
{
    struct sim_result *result = sim->result;
    va_list args;
    if (result->violated)
        return;
    result->violated = true;
    va_start(args, format);
    vsnprintf(result->violation, sizeof result->violation, format, args);
    va_end(args);
    sim_say(sim, "checker", "VIOLATION %s", result->violation);
}

/* ---- time ---- */

static int64_t event_budget(const struct sim *sim)
{
    return EVENTS_AT_LEAST + (int64_t)sim->options->intents * EVENTS_PER_INTENT;
}

/* The next event until then; false when there is none or the run is over. */
static bool step_event(struct sim *sim, int64_t until_ms)
{
    struct sim_event *event = sim->result->violated ? NULL : schedule_take(sim, until_ms);
    if (!event)
        return false;
    sim->now_ms = event->at_ms;
    sim_mix(sim, (uint64_t)event->at_ms << 20 ^ event->order);
    event->run(sim, event);
    if (++sim->events > event_budget(sim))
        sim_violated(sim, "14.5 bounded: %lld events and no end: it does not settle", (long long)sim->events);
    return true;
}

static void pass_time(struct sim *sim, int64_t ms)
{
    int64_t until = sim->now_ms + ms;
    while (step_event(sim, until))
        ;
    if (!sim->result->violated)
        sim->now_ms = until;
}

/* ---- rest ---- */

static void rest(struct sim *sim)
{
    for (unsigned i = 0; i < sim->options->gateways; i++)
        gateway_calm(sim->gateways[i]);
    pass_time(sim, tools_horizon_ms(sim));
}

static bool all_quiet(const struct sim *sim)
{
    for (unsigned i = 0; i < sim->options->gateways; i++)
        if (!gateway_quiet(sim->gateways[i]))
            return false;
    return true;
}

static void count_states(struct sim *sim)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_STATS, .arena = &arena};
    if (ledger_call(sim->backing, &request) == ERR_NONE)
        for (size_t i = 0; i < STATE_COUNT; i++)
            if (state_terminal((enum state)i))
                sim->result->settled += request.stats.by_state[i];
    arena_release(&arena);
}

static void settle(struct sim *sim)
{
    sim->over = true;
    sim_say(sim, "world", "faults are over");
    rest(sim);
    for (int round = 0; round < CLEAR_UP_ROUNDS && !sim->result->violated; round++) {
        int64_t changes = sim->changes;
        people_clear_up(sim);
        rest(sim);
        if (sim->changes == changes)
            break;
    }
    if (sim->result->violated)
        return;
    for (int i = 0; i < QUIET_LOOKS && !all_quiet(sim); i++) /* at a look at what waits, which comes by time */
        pass_time(sim, 7);
    if (!all_quiet(sim))
        sim_violated(sim, "14.5 bounded: a gateway still works when everything should have settled");
    checker_end(sim);
    checker_sound(sim);
    count_states(sim);
}

/* ---- the whole ---- */

static int64_t world_now(struct env *env)
{
    return ((struct world_env *)env)->sim->now_ms;
}

static void world_random(struct env *env, void *out, size_t n)
{
    struct world_env *world = (struct world_env *)env;
    unsigned char *p = out;
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)roll_hash(world->sim->options->seed, STREAM(STREAM_WORLD, 1), world->drawn++);
}

static void open_ledger(struct sim *sim)
{
    struct err err = {0};
    sim->env = (struct world_env){.env = {world_now, world_random}, .sim = sim};
    if (sim->options->ledger == SIM_LEDGER_MEMORY) {
        sim->backing = ledger_memory_new(&sim->env.env);
        return;
    }
    struct ledger_sqlite_options options = {.path = sim->options->ledger_path};
    if (ledger_sqlite_open(&options, &sim->env.env, &sim->backing, &err))
        sim_violated(sim, "the ledger can not be opened: %s", err.text);
}

static unsigned drawn_percent(struct sim *sim)
{
    static const unsigned char often[] = {0, 1, 1, 2, 2, 3, 4, 6, 9, 14, 25};
    struct dice dice = dice_of(sim, STREAM(STREAM_WORLD, 0));
    return sim->options->fault_percent ? sim->options->fault_percent : often[roll(&dice, sizeof often)];
}

static void set_up(struct sim *sim)
{
    map_init(&sim->watched);
    sim->fault_percent = drawn_percent(sim);
    sim->tools = tools_new(sim);
    sim->checker = checker_new(sim);
    sim->providers = providers_new(sim);
    for (unsigned i = 0; i < sim->options->gateways; i++)
        sim->gateways[i] = gateway_new(sim, i + 1);
    sim->clients = clients_new(sim);
    sim->people = sim_people_new(sim);
    sim->approvers = approvers_new(sim);
    sim->undoers = undoers_new(sim);
    sim->webhooks = sim_webhooks_new(sim);
    sim->executors = executors_new(sim);
}

static void tear_down(struct sim *sim)
{
    sim->over = true;
    for (unsigned i = 0; i < SIM_GATEWAYS_MAX; i++)
        gateway_free(sim->gateways[i]);
    sim_people_free(sim->people);
    approvers_free(sim->approvers);
    undoers_free(sim->undoers);
    sim_webhooks_free(sim->webhooks);
    executors_free(sim->executors);
    clients_free(sim->clients);
    providers_free(sim->providers);
    checker_free(sim->checker);
    tools_free(sim->tools);
    ledger_close(sim->backing);
    size_t at = 0;
    for (char *id; (id = map_next(&sim->watched, &at));)
        free(id);
    map_release(&sim->watched);
    free(sim->heap);
}

void sim_run(const struct sim_options *options, struct sim_result *result)
{
    struct sim sim = {.options = options, .result = result, .now_ms = SIM_START_MS};
    sim.mixed_seed = roll_mix_seed(options->seed);
    sim.shared = options->shared ? options->shared : sim_shared_new();
    *result = (struct sim_result){0};
    open_ledger(&sim);
    if (sim.backing) {
        set_up(&sim);
        while (!clients_done(&sim) && step_event(&sim, INT64_MAX))
            ;
        if (!result->violated)
            settle(&sim);
        result->simulated_ms = sim.now_ms - SIM_START_MS;
    }
    tear_down(&sim);
    if (!options->shared)
        sim_shared_free(sim.shared);
}

void sim_result_release(struct sim_result *result)
{
    free(result->taken);
    result->taken = NULL;
    result->taken_count = 0;
}
