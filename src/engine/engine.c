#include "engine/internal.h"

#include "base/log.h"
#include "base/mark.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- life ---- */

struct engine *engine_new(const struct engine_options *options)
{
    struct engine *engine = mem_zero(sizeof *engine);
    engine->env = options->env;
    engine->ledger = options->ledger;
    engine->adapter = options->adapter;
    engine->webhooks = options->webhooks;
    engine->registry = registry_ref(options->registry);
    engine->in_flight_max = options->in_flight_max ? options->in_flight_max : IN_FLIGHT_DEFAULT;
    engine->sole_owner = options->sole_owner;
    engine->lease_ms = options->lease_ms > 0 ? options->lease_ms : LEASE_DEFAULT_MS;
    engine->look_ms = options->sole_owner ? 0 : options->look_ms;
    ulid_source_init(&engine->ids, engine->env);
    memcpy(engine->incarnation, "gw_", 3);
    ulid_next(&engine->ids, engine->incarnation + 3);
    map_init(&engine->flights);
    map_init(&engine->lists);
    map_init(&engine->routes);
    heap_init(&engine->deadlines);
    heap_init(&engine->stalls);
    heap_init(&engine->looks);
    engine->reads = reads_new(engine);
    engine->inbox = inbox_new(engine);
    engine->forwarder = forwarder_new(engine);
    replay_init(&engine->replay, engine->sole_owner);
    return engine;
}

void engine_free(struct engine *engine)
{
    if (!engine)
        return;
    size_t at = 0;
    struct flight *flight;
    struct heap_node *node;
    engine->stopped = NULL;
    inbox_free(engine->inbox);
    engine->inbox = NULL;
    forwarder_free(engine->forwarder);
    while ((node = heap_first(&engine->deadlines)))
        waiter_free((struct waiter *)((char *)node - offsetof(struct waiter, deadline)));
    while ((flight = map_next(&engine->flights, &at))) { /* only what a late stop has cut off */
        if (flight->phase == PHASE_QUEUED)
            route_remove(flight->route, &flight->queued);
        flight->phase = PHASE_NEW;
        flight->has_slot = false; /* nobody may go on because of it */
        flight_free(flight);
        at = 0;
    }
    at = 0;
    struct route *route;
    while ((route = map_next(&engine->routes, &at))) {
        free(route->name);
        free(route);
    }
    flight_free_spares(engine);
    struct wait_list *list;
    for (at = 0; (list = map_next(&engine->lists, &at));)
        wait_list_free(list);
    reads_free(engine->reads);
    replay_release(&engine->replay);
    map_release(&engine->flights);
    map_release(&engine->lists);
    map_release(&engine->routes);
    heap_release(&engine->deadlines);
    heap_release(&engine->stalls);
    heap_release(&engine->looks);
    registry_unref(engine->registry);
    free(engine);
}

void engine_set_registry(struct engine *engine, struct registry *registry)
{
    registry_ref(registry);
    registry_unref(engine->registry);
    engine->registry = registry;
    if (engine->started)
        inbox_reloaded(engine->inbox);
    engine_plan(engine, engine_now(engine)); /* operations that waited for a missing tool are looked at in their time */
}

struct registry *engine_registry(struct engine *engine)
{
    return engine->registry;
}

struct ledger *engine_ledger(struct engine *engine)
{
    return engine->ledger;
}

struct env *engine_env(struct engine *engine)
{
    return engine->env;
}

struct adapter *engine_adapter(struct engine *engine)
{
    return engine->adapter;
}

bool engine_recovered(struct engine *engine)
{
    return engine->recovered;
}

/* Long enough for whoever asks now and then, short enough that nobody is kept away for long from one that works again:
 * where nothing is called nothing is written that could tell. */
#define LEDGER_REFUSAL_MS 5000

const char *engine_ledger_refusal(struct engine *engine)
{
    bool fresh = engine->ledger_failing_ms && engine_now(engine) - engine->ledger_refused_ms < LEDGER_REFUSAL_MS;
    return fresh ? engine->ledger_refusal : NULL;
}

bool engine_stopping(struct engine *engine)
{
    return engine->stopping;
}

const int64_t latency_bounds_ms[LATENCY_BOUNDS] = {1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 60000};

void latency_add(struct latency *latency, int64_t began_ms, int64_t now_ms)
{
    int64_t took_ms = now_ms > began_ms ? now_ms - began_ms : 0; /* a clock may have been set back */
    size_t at = 0;
    while (at < LATENCY_BOUNDS && took_ms > latency_bounds_ms[at])
        at++;
    latency->counts[at]++;
    latency->sum_ms += took_ms;
}

struct engine_stats engine_stats(const struct engine *engine)
{
    struct engine_stats stats = engine->stats;
    stats.flights = engine->flights.count;
    stats.waiters = engine->waiter_count;
    return stats;
}

int64_t engine_now_ms(struct engine *engine)
{
    return engine_now(engine);
}

int64_t engine_now(struct engine *engine)
{
    return engine->env->now_ms(engine->env);
}

void engine_submit(struct engine *engine, struct ledger_request *request)
{
    engine->ledger_open++;
    ledger_submit(engine->ledger, request);
}

void engine_request_ended(struct engine *engine)
{
    engine->ledger_open--;
    if (engine->stopping)
        engine_check_stopped(engine);
}

void engine_ledger_fails(struct engine *engine, const struct err *err)
{
    log_message(engine->ledger_failing_ms ? LOG_DEBUG : LOG_ERROR, "ledger", "%s", err->text);
    if (!engine->ledger_failing_ms)
        engine->ledger_failing_ms = engine_now(engine);
    engine->ledger_refused_ms = engine_now(engine);
    snprintf(engine->ledger_refusal, sizeof engine->ledger_refusal, "%s", err->text);
}

void engine_ledger_works(struct engine *engine)
{
    if (!engine->ledger_failing_ms)
        return;
    log_message(LOG_INFO, "ledger", "the ledger works again after %lld ms",
                (long long)(engine_now(engine) - engine->ledger_failing_ms));
    engine->ledger_failing_ms = 0;
}

/* ---- time ---- */

static int64_t earlier(int64_t a, int64_t b) /* 0 = never */
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

int64_t engine_next_tick_ms(struct engine *engine)
{
    int64_t next = engine->started && !engine->claiming && !engine->stopping ? engine->due_ms : 0;
    struct heap_node *node = heap_first(&engine->deadlines);
    if (node)
        next = earlier(next, node->at_ms);
    if ((node = heap_first(&engine->stalls)))
        next = earlier(next, node->at_ms);
    if ((node = heap_first(&engine->looks)))
        next = earlier(next, node->at_ms);
    next = earlier(next, reads_next_ms(engine->reads));
    next = earlier(next, inbox_next_ms(engine->inbox));
    next = earlier(next, forwarder_next_ms(engine->forwarder));
    return engine->stopped ? earlier(next, engine->stop_deadline_ms) : next; /* cut off: that time has been */
}

void engine_on_schedule(struct engine *engine, void (*changed)(void *user), void *user)
{
    engine->scheduled = changed;
    engine->scheduled_user = user;
}

void engine_on_change(struct engine *engine, engine_change_fn *changed, void *user)
{
    engine->changed = changed;
    engine->changed_user = user;
}

void engine_reschedule(struct engine *engine)
{
    int64_t next = engine_next_tick_ms(engine);
    if (next && engine->scheduled && (engine->told_ms == 0 || next < engine->told_ms)) {
        engine->told_ms = next;
        engine->scheduled(engine->scheduled_user);
    }
}

void engine_plan(struct engine *engine, int64_t at_ms)
{
    if (at_ms == 0)
        return;
    engine->due_ms = earlier(engine->due_ms, at_ms);
    engine_reschedule(engine);
}

void engine_due(struct engine *engine, int64_t at_ms)
{
    engine_plan(engine, at_ms);
}

/* ---- due rows and recovery ---- */

struct claim {
    struct ledger_request request;
    struct arena arena;
    struct engine *engine;
};

static void claim(struct engine *engine, bool foreign);

static void take_up(struct engine *engine, const struct operation *op, const char *former_owner)
{
    if (map_get(&engine->flights, op->id))
        return; /* ours and in memory: the claim has renewed its lease */
    struct flight *flight = flight_from(engine, op, true);
    if (former_owner && !state_terminal(op->state))
        flight_owner_gone(flight);
    else
        flight_wake(flight);
}

/* Gateways that look in step find the same rows, and all but one for nothing: each comes a little later, at random. */
static int64_t next_look(struct engine *engine, int64_t wake_ms)
{
    if (engine->look_ms == 0)
        return wake_ms;
    uint64_t random = env_random64(engine->env);
    int64_t jitter = (int64_t)(random % (uint64_t)(engine->look_ms / 2 + 1));
    int64_t at_ms = engine_now(engine) + engine->look_ms - jitter;
    return earlier(wake_ms ? wake_ms + (int64_t)(random % HERD_MS) : 0, at_ms);
}

static void claimed(struct ledger_request *request)
{
    struct claim *box = request->user;
    struct engine *engine = box->engine;
    struct ledger_claim *claim_out = &request->claim;
    bool foreign = claim_out->foreign, full = !request->code && claim_out->count == claim_out->limit;
    engine_request_ended(engine);
    engine->claiming = false;
    if (request->code) {
        engine_ledger_fails(engine, &request->err);
        engine_plan(engine, engine_now(engine) + COMMIT_RETRY_MAX_MS);
    } else {
        /* One that found nothing due has written next to nothing: whether there is room (disk full) the results that
         * wait for it find out. */
        if (claim_out->count > 0 || !heap_first(&engine->stalls))
            engine_ledger_works(engine);
        MARK_IF(claim_out->count > 0, claim_done);
        for (size_t i = 0; i < claim_out->count && !engine->stopping; i++)
            take_up(engine, claim_out->ops[i], claim_out->former_owners[i]);
        engine_plan(engine, full ? engine_now(engine) : next_look(engine, claim_out->next_wake_ms));
    }
    bool again = foreign && (full || request->code);
    struct arena arena = box->arena;
    arena_release(&arena);
    if (foreign && !again) {
        engine->recovered = true;
        engine_plan(engine, engine_now(engine));
    }
    engine_reschedule(engine);
}

static void claim(struct engine *engine, bool foreign)
{
    struct arena arena;
    arena_init(&arena);
    struct claim *box = arena_zero(&arena, sizeof *box);
    box->engine = engine;
    box->request.command = LEDGER_CLAIM_DUE;
    box->request.claim = (struct ledger_claim){
        .owner = engine->incarnation,
        .now_ms = engine_now(engine),
        .lease_ms = QUEUE_LEASES * engine->lease_ms,
        .foreign = foreign,
        .limit = CLAIM_BATCH,
    };
    box->request.done = claimed;
    box->request.user = box;
    box->arena = arena;
    box->request.arena = &box->arena;
    engine->claiming = true;
    engine->due_ms = 0;
    engine_submit(engine, &box->request);
}

static void first_claim(struct engine *engine)
{
    engine->claiming = false;
    claim(engine, engine->sole_owner);
}

/* What providers told before the former end comes first: nothing is sent that is known to have happened. */
void engine_start(struct engine *engine)
{
    engine->started = true;
    engine->recovered = !engine->sole_owner;
    engine->claiming = true;
    if (!engine->sole_owner)
        ledger_on_news(engine->ledger, waiters_news, engine);
    inbox_start(engine->inbox, first_claim);
    forwarder_plan(engine->forwarder, engine_now(engine));
}

void engine_tick(struct engine *engine)
{
    int64_t now = engine_now(engine);
    engine->told_ms = 0;
    waiters_expire(engine, now);
    waiters_look(engine, now);
    struct heap_node *node;
    while ((node = heap_first(&engine->stalls)) && node->at_ms <= now) {
        heap_remove(&engine->stalls, node);
        flight_retry((struct flight *)((char *)node - offsetof(struct flight, timer)));
    }
    reads_tick(engine->reads, now);
    inbox_tick(engine->inbox, now);
    forwarder_tick(engine->forwarder, now);
    bool busy = engine->flights.count >= engine->in_flight_max;
    if (engine->started && !engine->claiming && !engine->stopping && engine->due_ms && engine->due_ms <= now) {
        if (busy)
            engine->due_ms = now + HOLD_MS;
        else
            claim(engine, !engine->recovered);
    }
    engine_check_stopped(engine);
    engine_reschedule(engine);
}

/* ---- stopping ---- */

/* Operations that wait in memory stay as they are in the ledger: the next owner sends them. */
static void let_go_of_queues(struct engine *engine)
{
    size_t at = 0;
    struct flight *flight;
    while ((flight = map_next(&engine->flights, &at))) {
        if (flight->phase != PHASE_QUEUED)
            continue;
        route_remove(flight->route, &flight->queued);
        flight->phase = PHASE_NEW;
        flight_free(flight);
        at = 0; /* the map has changed */
    }
}

#define TOLD_OPEN_MAX 100

/* What is still open is found out by the next owner; who reads the log knows what is known already. */
static void log_open(struct engine *engine)
{
    size_t at = 0, told = 0;
    struct flight *flight;
    if (engine->flights.count == 0)
        return;
    log_message(LOG_WARN, "stopping", "the time is over: %zu operations are open, what came of them is found out later",
                engine->flights.count);
    while ((flight = map_next(&engine->flights, &at)) && told++ < TOLD_OPEN_MAX) {
        if (!log_begin(LOG_WARN, "open"))
            return;
        log_text("operation", flight->op.id);
        log_text("tool", flight->op.tool);
        log_text("recorded", state_name(flight->durable.state));
        log_text("attempt", flight->attempt.id[0] ? flight->attempt.id : NULL);
        log_text("outcome", flight->has_finding ? outcome_name(flight->finding.outcome) : NULL);
        log_text("external_id", flight->has_finding ? flight->finding.external_id : NULL);
        log_end();
    }
}

struct hand_over {
    struct ledger_request request;
    struct arena arena;
};

static void handed_over(struct ledger_request *request)
{
    struct hand_over *box = (struct hand_over *)((char *)request - offsetof(struct hand_over, request));
    struct engine *engine = request->user;
    struct arena arena = box->arena;
    if (request->code)
        log_message(LOG_WARN, "ledger", "others wait for the end of our leases: %s", request->err.text);
    engine_request_ended(engine);
    arena_release(&arena);
}

/* Other gateways go on at once with what this one still holds, but for what may be on the wire. */
static void hand_over(struct engine *engine)
{
    struct arena arena;
    arena_init(&arena);
    struct hand_over *box = arena_zero(&arena, sizeof *box);
    box->request.command = LEDGER_RELEASE;
    box->request.release = (struct ledger_release){.owner = engine->incarnation, .now_ms = engine_now(engine)};
    box->request.done = handed_over;
    box->request.user = engine;
    box->arena = arena;
    box->request.arena = &box->arena;
    engine->handed_over = true;
    MARK(before_hand_over);
    engine_submit(engine, &box->request);
}

void engine_check_stopped(struct engine *engine)
{
    if (!engine->stopping || !engine->stopped)
        return;
    bool late = engine_now(engine) >= engine->stop_deadline_ms;
    bool quiet = engine->ledger_open == 0 && engine->flights.count == 0 && reads_busy(engine->reads) == 0 &&
                 forwarder_busy(engine->forwarder) == 0;
    if (!quiet && !late)
        return;
    if (!engine->sole_owner && engine->started && !engine->handed_over) {
        hand_over(engine);
        if (!late)
            return; /* its end comes back here */
    }
    void (*stopped)(void *) = engine->stopped;
    engine->stopped = NULL;
    engine->cut = !quiet;
    if (engine->cut)
        log_open(engine);
    waiters_answer_all(engine);
    stopped(engine->stopped_user);
}

void engine_stop(struct engine *engine, int64_t deadline_ms, void (*stopped)(void *user), void *user)
{
    engine->stopping = true;
    MARK(stopping);
    ledger_on_news(engine->ledger, NULL, NULL);
    engine->stop_deadline_ms = deadline_ms;
    let_go_of_queues(engine);
    waiters_answer_sleeping(engine);
    engine->stopped = stopped;
    engine->stopped_user = user;
    engine_check_stopped(engine);
    engine_reschedule(engine);
}
