/* The ledger as one gateway sees it: its commands wait for a commit, are executed on the ledger behind all gateways in
 * one batch, and are answered later still.
 *
 *   submit ──► waiting ──(commit time)──► executed, or refused ──(way back)──► done
 *                  │                          │
 *                  └── the gateway dies: what was executed of the batch is the dice's choice, nobody is told ──┘
 *
 * News of watched operations are made here, whatever the ledger behind; some are lost.
 *
 * Kept of ledger.h: done comes in the order of submission, and a command that ends with an error had no effect. */
#include "base/mem.h"
#include "sim/run.h"

#include <assert.h>
#include <stdlib.h>

#define BATCH_MAX 512 /* as the SQLite ledger's */
/* What befalls a batch is decided by when it is, not by how many came before: leaving out an intent leaves the ledger's
 * behaviour towards the others as it was. Faults happen to the first batch of a window at most. */
#define WINDOW_MS        50
#define ROLLS_PER_WINDOW 16

struct entry {
    struct ledger_request *request;
    int64_t submitted_ms;
    void (*done)(struct ledger_request *request); /* the engine's, while the backing ledger works on it */
    void *user;
};

struct entries {
    struct entry *items;
    size_t count, room;
};

struct store {
    struct ledger base;
    struct sim *sim;
    struct gateway *gateway;
    struct dice dice;
    uint32_t slow_window, fault_window; /* the last ones in which faults were rolled for, + 1 */
    struct entries waiting, batch, finished;
    struct sim_event commit, answer, tell;
    char **news; /* ids to be told */
    size_t news_count, news_room;
    int64_t answer_at_ms, outage_until_ms;
    bool cut;
    size_t executing; /* given to the backing ledger, not back yet */
};

static void add(struct entries *list, struct entry entry)
{
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 16;
        list->items = mem_grow(list->items, list->room * sizeof *list->items);
    }
    list->items[list->count++] = entry;
}

static void remove_first(struct entries *list, size_t n)
{
    list->count -= n;
    memmove(list->items, list->items + n, list->count * sizeof *list->items);
}

/* ---- execution ---- */

static const struct operation *operation_of(const struct ledger_request *request)
{
    if (request->command == LEDGER_ADMIT)
        return request->admit.admission.op;
    return request->command == LEDGER_TRANSITION ? request->transition.op : NULL;
}

static void watch_change(struct store *store, const struct entry *entry)
{
    struct sim *sim = store->sim;
    const struct ledger_request *request = entry->request;
    const struct sim_watch *watch = sim->options->watch;
    const struct operation *op = operation_of(request);
    if (!op || !watch || (!watch->change && !watch->stale))
        return;
    const struct tool *tool = registry_find(sim->registry, str_of(op->tool));
    uint32_t intent = intent_of_trace(op->trace);
    unsigned gateway = gateway_number(store->gateway);
    bool admits = request->command == LEDGER_ADMIT;
    if (request->code == ERR_STALE && watch->stale)
        watch->stale(watch->user,
                     &(struct sim_stale_seen){
                         .now_ms = sim->now_ms, .intent = intent, .gateway = gateway, .tool = tool, .op = op});
    if (request->code == 0 && watch->change)
        watch->change(watch->user, &(struct sim_change_seen){
                                       .now_ms = sim->now_ms,
                                       .intent = intent,
                                       .gateway = gateway,
                                       .tool = tool,
                                       .op = op,
                                       .events = admits ? &request->admit.event : request->transition.events,
                                       .event_count = admits ? 1 : request->transition.event_count,
                                       .commit_ms = sim->now_ms - entry->submitted_ms,
                                   });
}

static void say_change(struct store *store, const struct ledger_request *request)
{
    struct sim *sim = store->sim;
    const struct operation *op = operation_of(request);
    const char *who = gateway_name(store->gateway);
    if (request->command == LEDGER_ADMIT) {
        sim_say(sim, who, "admits %s of intent %u as %s%s%s", op->id, intent_of_trace(op->trace), state_name(op->state),
                op->reason ? ", " : "", reason_name(op->reason));
        return;
    }
    for (size_t i = 0; i < request->transition.event_count; i++) {
        const struct event *event = &request->transition.events[i];
        sim_say(sim, who, "%s: %s → %s%s%s by %s (%s%s%s)", op->id, state_name(event->from), state_name(event->to),
                event->reason ? ", " : "", reason_name(event->reason), event->actor, cause_name(event->cause),
                event->note ? ": " : "", event->note ? event->note : "");
    }
    if (request->transition.event_count == 0)
        sim_say(sim, who, "%s: %s, version %lld, held until +%lld ms", op->id, state_name(op->state),
                (long long)op->rev, (long long)(op->lease_until_ms - SIM_START_MS));
    for (size_t i = 0; i < request->transition.incident_count; i++)
        sim_say(sim, who, "%s: incident %s", op->id, incident_kind_name(request->transition.incidents[i].kind));
}

/* ---- news ---- */

#define NEWS_STREAM 0x4000000 /* beside the numbers of gateways and their lives */

static void drop_news(struct store *store)
{
    schedule_drop(store->sim, &store->tell);
    for (size_t i = 0; i < store->news_count; i++)
        free(store->news[i]);
    free(store->news);
    store->news = NULL;
    store->news_count = store->news_room = 0;
}

static void run_tell(struct sim *sim, struct sim_event *event)
{
    struct store *store = (struct store *)((char *)event - offsetof(struct store, tell));
    char **news = store->news;
    size_t count = store->news_count;
    if (sim->now_ms < gateway_paused_until(store->gateway)) {
        schedule_at(sim, event, gateway_paused_until(store->gateway));
        return;
    }
    store->news = NULL;
    store->news_count = store->news_room = 0;
    for (size_t i = 0; i < count; i++) {
        if (store->base.news)
            store->base.news(store->base.news_user, news[i]);
        free(news[i]);
    }
    free(news);
    gateway_moved(store->gateway);
}

static void bring_news(struct store *store, const char *operation)
{
    struct sim *sim = store->sim;
    struct dice dice = store->dice;
    dice.stream |= NEWS_STREAM;
    dice.index = (uint32_t)(sim->now_ms - SIM_START_MS) * 2;
    int64_t way = roll_between(&dice, 0, 30);
    bool lost = roll(&dice, 6) == 0;
    if (store->cut || lost)
        return;
    if (store->news_count == store->news_room) {
        store->news_room = store->news_room ? 2 * store->news_room : 8;
        store->news = mem_grow(store->news, store->news_room * sizeof *store->news);
    }
    store->news[store->news_count++] = mem_copy_text(operation);
    if (!store->tell.place)
        schedule_in(sim, &store->tell, way);
}

static void tell_move(struct sim *sim, const struct operation *op)
{
    if (!op || !map_get(&sim->watched, op->id))
        return;
    for (unsigned i = 0; i < sim->options->gateways; i++) {
        struct ledger *ledger = sim->gateways[i] ? gateway_ledger(sim->gateways[i]) : NULL;
        if (ledger)
            bring_news((struct store *)ledger, op->id);
    }
}

static void tell_of(struct sim *sim, const struct ledger_request *request)
{
    if (request->command == LEDGER_WATCH && !map_get(&sim->watched, request->get.operation)) {
        char *id = mem_copy_text(request->get.operation);
        map_put(&sim->watched, id, id);
    } else if (request->command == LEDGER_TRANSITION) {
        const struct ledger_transition *change = &request->transition;
        tell_move(sim, change->op);
        tell_move(sim, change->undone ? change->undone->op : NULL);
        tell_move(sim, change->parent ? change->parent->op : NULL);
    } else if (request->command == LEDGER_ADMIT && request->admit.result.verdict == VERDICT_NEW) {
        tell_move(sim, request->admit.undoes ? request->admit.undoes->op : NULL);
        tell_move(sim, request->admit.parent ? request->admit.parent->op : NULL);
    }
}

static void executed(struct store *store, const struct entry *entry)
{
    struct sim *sim = store->sim;
    const struct ledger_request *request = entry->request;
    const struct operation *op = operation_of(request);
    sim_mix(sim, (uint64_t)request->command << 8 | (uint64_t)request->code);
    if (op)
        sim_mix(sim, (uint64_t)op->rev << 16 ^ (uint64_t)op->state << 8 ^ (uint64_t)op->reason ^
                         (uint64_t)op->wake_at_ms << 20);
    if (request->code == ERR_STALE && op)
        sim_say(sim, gateway_name(store->gateway), "%s was moved by somebody else", op->id);
    bool changed = op && request->code == 0;
    if (request->command == LEDGER_ADMIT) {
        sim_mix(sim, (uint64_t)request->admit.result.verdict);
        changed = changed && request->admit.result.verdict == VERDICT_NEW && !request->admit.dry_run;
        sim->result->operations += changed;
    } else if (changed) {
        sim->result->incidents += (int64_t)request->transition.incident_count;
    }
    sim->changes += changed;
    if (changed && sim_traced(sim))
        say_change(store, request);
    if (request->code == 0) {
        checker_committed(sim, store->gateway, request);
        tell_of(sim, request);
    }
    if (changed || request->code == ERR_STALE)
        watch_change(store, entry);
}

static void came_back(struct ledger_request *request)
{
    struct store *store = request->user;
    store->executing--;
}

/* The first n of the batch, on the ledger behind: one after the other in memory, as a group on disk. */
static void execute(struct store *store, size_t n)
{
    struct ledger *backing = store->sim->backing;
    for (size_t i = 0; i < n; i++) {
        struct entry *entry = &store->batch.items[i];
        entry->done = entry->request->done;
        entry->user = entry->request->user;
        entry->request->done = came_back;
        entry->request->user = store;
        store->executing++;
        ledger_submit(backing, entry->request);
    }
    while (store->executing > 0) {
        ledger_wait(backing, 1000);
        ledger_poll(backing);
    }
    for (size_t i = 0; i < n; i++) {
        struct entry *entry = &store->batch.items[i];
        entry->request->done = entry->done;
        entry->request->user = entry->user;
        executed(store, entry);
    }
}

static void refuse(struct ledger_request *request, const char *text)
{
    err_clear(&request->err);
    request->code = err_set(&request->err, ERR_UNAVAILABLE, "%s", text);
}

/* ---- a batch ---- */

static void take_batch(struct store *store)
{
    size_t n = store->waiting.count < BATCH_MAX ? store->waiting.count : BATCH_MAX;
    store->batch.count = 0;
    for (size_t i = 0; i < n; i++)
        add(&store->batch, store->waiting.items[i]);
    remove_first(&store->waiting, n);
}

static void give_back(struct store *store)
{
    for (size_t i = 0; i < store->batch.count; i++)
        add(&store->finished, store->batch.items[i]);
    store->batch.count = 0;
}

/* Dice at the window's place; true when it is the first time in this window. */
static bool window_dice(struct store *store, struct dice *dice, uint32_t *last)
{
    uint32_t window = (uint32_t)((store->sim->now_ms - SIM_START_MS) / WINDOW_MS);
    bool first = *last != window + 1;
    *last = window + 1;
    *dice = store->dice;
    dice->index = window * ROLLS_PER_WINDOW;
    return first;
}

static void plan_commit(struct store *store)
{
    if (store->commit.place || store->waiting.count == 0)
        return;
    struct dice dice;
    bool first = window_dice(store, &dice, &store->slow_window);
    int64_t takes = roll_between(&dice, 0, 3), slow = roll_between(&dice, 20, 3000),
            very = roll_between(&dice, 3000, 60000);
    bool long_one = roll(&dice, 8) == 0;
    if (first && roll_fault(&dice, SIM_LEDGER_SLOW, 10)) {
        takes = long_one ? very : slow;
        sim_say(store->sim, gateway_name(store->gateway), "the ledger takes %lld ms", (long long)takes);
    }
    schedule_in(store->sim, &store->commit, takes);
}

static void plan_answer(struct store *store, int64_t way_ms)
{
    int64_t at = store->sim->now_ms + way_ms, until = gateway_paused_until(store->gateway);
    if (at < until)
        at = until;
    schedule_drop(store->sim, &store->answer);
    schedule_at(store->sim, &store->answer, at);
}

/* What becomes of this batch. */
static void run_commit(struct sim *sim, struct sim_event *event)
{
    struct store *store = (struct store *)((char *)event - offsetof(struct store, commit));
    struct gateway *gateway = store->gateway;
    struct dice dice;
    bool first = window_dice(store, &dice, &store->fault_window);
    dice.index += ROLLS_PER_WINDOW / 2;
    int64_t way = roll_between(&dice, 0, 2), outage = roll_between(&dice, 1, 8000);
    bool written = roll(&dice, 2) == 0;
    uint64_t part = roll(&dice, BATCH_MAX);
    bool unknown = first && roll_fault(&dice, SIM_LEDGER_UNKNOWN, 3);
    bool torn = first && roll_fault(&dice, SIM_LEDGER_TORN, 3);
    bool lost = first && roll_fault(&dice, SIM_LEDGER_LOST, 6);
    take_batch(store);
    size_t count = store->batch.count;
    if (unknown || torn) {
        size_t n = unknown ? (written ? count : 0) : (size_t)(part % (count + 1));
        sim_say(sim, gateway_name(gateway), "dies in a commit: %zu of %zu commands are on disk", n, count);
        execute(store, n);
        give_back(store);
        store->cut = true;     /* nothing that was behind this batch got further than it did */
        gateway_kill(gateway); /* frees the store */
        return;
    }
    if (lost) {
        store->outage_until_ms = sim->now_ms + outage;
        sim_say(sim, gateway_name(gateway), "has no ledger for %lld ms", (long long)outage);
    }
    if (sim->now_ms < store->outage_until_ms && !sim->over) {
        for (size_t i = 0; i < count; i++)
            refuse(store->batch.items[i].request, "the ledger can not write now (simulated)");
    } else {
        execute(store, count);
    }
    give_back(store);
    plan_answer(store, way);
    plan_commit(store);
}

static void answer_all(struct store *store)
{
    struct entries told = store->finished;
    store->finished = (struct entries){0};
    for (size_t i = 0; i < told.count; i++)
        told.items[i].request->done(told.items[i].request);
    free(told.items);
}

static void run_answer(struct sim *sim, struct sim_event *event)
{
    struct store *store = (struct store *)((char *)event - offsetof(struct store, answer));
    if (sim->now_ms < gateway_paused_until(store->gateway)) {
        schedule_at(sim, event, gateway_paused_until(store->gateway));
        return;
    }
    answer_all(store);
    gateway_moved(store->gateway);
}

/* ---- the interface ---- */

static void submit(struct ledger *base, struct ledger_request *request)
{
    struct store *store = (struct store *)base;
    add(&store->waiting, (struct entry){.request = request, .submitted_ms = store->sim->now_ms});
    if (!store->cut)
        plan_commit(store);
}

static void poll(struct ledger *base)
{
    (void)base; /* answers come by themselves */
}

static void close_store(struct ledger *base)
{
    struct store *store = (struct store *)base;
    assert(store->cut && store->waiting.count == 0 && store->finished.count == 0);
    free(store->waiting.items);
    free(store->batch.items);
    free(store->finished.items);
    drop_news(store);
    free(store);
}

struct ledger *store_new(struct sim *sim, struct gateway *gateway)
{
    static const struct ledger_ops ops = {submit, poll, close_store, NULL};
    struct store *store = mem_zero(sizeof *store);
    store->base.ops = &ops;
    memcpy(store->base.secret, sim->backing->secret, sizeof store->base.secret);
    store->sim = sim;
    store->gateway = gateway;
    uint32_t place = (uint32_t)gateway_number(gateway) | (uint32_t)gateway_life(gateway) << 4;
    store->dice = dice_of(sim, STREAM(STREAM_STORE, place));
    store->commit.run = run_commit;
    store->answer.run = run_answer;
    store->tell.run = run_tell;
    return &store->base;
}

/* What waited for the commit at the moment of death has reached the ledger up to some command, or not at all. */
void store_cut(struct ledger *base)
{
    struct store *store = (struct store *)base;
    schedule_drop(store->sim, &store->commit);
    schedule_drop(store->sim, &store->answer);
    drop_news(store);
    if (store->cut)
        return;
    store->cut = true;
    struct dice dice = store->dice;
    dice.index = UINT32_MAX;
    uint64_t part = roll(&dice, BATCH_MAX + 1);
    take_batch(store);
    execute(store, (size_t)(part % (store->batch.count + 1)));
    give_back(store);
}

bool store_drain(struct ledger *base)
{
    struct store *store = (struct store *)base;
    assert(store->cut);
    if (store->waiting.count == 0 && store->finished.count == 0)
        return false;
    for (size_t i = 0; i < store->waiting.count; i++)
        add(&store->finished, store->waiting.items[i]);
    store->waiting.count = 0;
    for (size_t i = 0; i < store->finished.count; i++)
        refuse(store->finished.items[i].request, "the gateway is dead (simulated)");
    answer_all(store);
    return true;
}

bool store_quiet(const struct ledger *base)
{
    const struct store *store = (const struct store *)base;
    return store->waiting.count == 0 && store->finished.count == 0;
}
