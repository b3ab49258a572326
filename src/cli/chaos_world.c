/* One world of `onced chaos`: what the simulator lets us see is counted here, per tool.
 *
 *   change ─► operations, doubts (unknown_outcome … known), ends      wire   ─► requests, time on the wire
 *   reply  ─► dedupe, joins, added latency                            effect ─► duplicates        stale ─► contention
 */
#include "base/map.h"
#include "base/mem.h"
#include "cli/chaos_kpi.h"
#include "engine/engine.h"

#include <stdlib.h>

/* What was seen of one operation. Times are true times, not those of a gateway's clock. */
struct track {
    char id[OPERATION_ID_SIZE];
    struct track *next, *next_of_intent; /* in order of admission; newest first */
    struct chaos_kpi *kpi;               /* NULL: of a tool that the plan does not have */
    uint32_t intent;
    enum state state;
    int64_t doubt_since_ms; /* 0 = not in doubt */
    int64_t ended_ms;       /* first became terminal; 0 = not */
    bool ever_unknown, to_operator;
    bool sent_again;              /* in doubt: a re-send was answered with success, a look-up is counting the effects */
    enum chaos_doubt how;         /* the last doubt ended */
    bool missed;                  /* counted as a missed repeat */
    struct track *repeats;        /* what its repeat_of names, or NULL */
    unsigned sent;                /* call requests */
    int64_t sent_ms, answered_ms; /* of the last one; 0 = not */
};

struct intent_track {
    struct track *newest;
    int64_t since_ms; /* of its first operation; 0 = none */
};

struct collector {
    struct chaos_world *world;
    const struct registry *registry;
    struct arena arena;
    struct map by_id;
    struct track *first, *last;
    struct intent_track *intents;
    uint32_t intent_count;
};

static struct chaos_kpi *kpi_of(const struct collector *collector, const char *tool)
{
    size_t low = 0, high = registry_tool_count(collector->registry);
    while (tool && low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(registry_tool_at(collector->registry, middle)->name, tool);
        if (order == 0)
            return &collector->world->tools[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct track *new_track(struct collector *collector, const struct sim_change_seen *seen)
{
    struct track *track = arena_zero(&collector->arena, sizeof *track);
    memcpy(track->id, seen->op->id, sizeof track->id);
    track->intent = seen->intent <= collector->intent_count ? seen->intent : 0;
    track->kpi = kpi_of(collector, seen->op->tool);
    track->how = DOUBT_OPEN;
    track->repeats = seen->op->repeat_of ? map_get(&collector->by_id, seen->op->repeat_of) : NULL;
    struct intent_track *intent = &collector->intents[track->intent];
    track->next_of_intent = intent->newest;
    intent->newest = track;
    if (!intent->since_ms)
        intent->since_ms = seen->now_ms;
    if (collector->last)
        collector->last->next = track;
    else
        collector->first = track;
    collector->last = track;
    map_put(&collector->by_id, track->id, track);
    return track;
}

/* ---- rows ---- */

static bool proven(enum state state)
{
    return state_terminal(state) || state == STATE_FAILED_RETRYABLE;
}

static bool by_person(const struct sim_change_seen *seen)
{
    for (size_t i = 0; i < seen->event_count; i++)
        if (seen->events[i].cause == CAUSE_OPERATOR || seen->events[i].cause == CAUSE_CANCEL)
            return true;
    return false;
}

static enum chaos_doubt what_ended_it(const struct track *track, const struct sim_change_seen *seen)
{
    enum chaos_doubt how = DOUBT_EVIDENCE;
    if (track->sent_again)
        return DOUBT_RESEND;
    for (size_t i = 0; i < seen->event_count; i++) {
        if (seen->events[i].cause == CAUSE_ANSWER)
            how = DOUBT_RESEND;
        if (seen->events[i].cause == CAUSE_LOOKUP)
            how = DOUBT_LOOKUP;
    }
    return how;
}

static void follow_doubt(struct track *track, const struct sim_change_seen *seen)
{
    const struct operation *op = seen->op;
    if (op->state == STATE_UNKNOWN_OUTCOME && !track->doubt_since_ms) {
        track->doubt_since_ms = seen->now_ms;
        track->ever_unknown = true;
    }
    if (!track->doubt_since_ms)
        return;
    track->to_operator = track->to_operator || op->reason == REASON_NEEDS_OPERATOR || by_person(seen);
    track->sent_again = track->sent_again || op->reason == REASON_VERIFYING;
    if (!proven(op->state))
        return;
    track->how = what_ended_it(track, seen);
    if (track->kpi && !track->to_operator)
        histogram_add(&track->kpi->reconcile_ms, seen->now_ms - track->doubt_since_ms);
    track->doubt_since_ms = 0;
    track->sent_again = false;
}

static void on_change(void *user, const struct sim_change_seen *seen)
{
    struct collector *collector = user;
    struct track *track = map_get(&collector->by_id, seen->op->id);
    if (!track)
        track = new_track(collector, seen);
    if (track->kpi)
        track->kpi->commits++;
    follow_doubt(track, seen);
    track->state = seen->op->state;
    if (state_terminal(track->state) && !track->ended_ms)
        track->ended_ms = seen->now_ms;
}

static void on_stale(void *user, const struct sim_stale_seen *seen)
{
    struct chaos_kpi *kpi = kpi_of(user, seen->op->tool);
    if (!kpi)
        return;
    kpi->commits++;
    kpi->stale++;
}

/* ---- the wire ---- */

static void on_wire(void *user, const struct sim_wire_seen *seen)
{
    struct collector *collector = user;
    struct track *track = seen->operation ? map_get(&collector->by_id, seen->operation) : NULL;
    if (!track || !track->kpi)
        return;
    bool call = seen->kind == ATTEMPT_CALL;
    switch (seen->what) {
    case SIM_WIRE_SENT:
        if (call) {
            track->sent++;
            track->sent_ms = seen->now_ms;
            track->answered_ms = 0;
        }
        break;
    case SIM_WIRE_ARRIVED:
        track->kpi->requests += call;
        track->kpi->lookups += !call;
        break;
    case SIM_WIRE_ANSWERED:
        if (call)
            track->answered_ms = seen->now_ms;
        break;
    }
}

static void on_effect(void *user, const struct sim_effect_seen *seen)
{
    struct collector *collector = user;
    const struct track *track = map_get(&collector->by_id, seen->operation);
    struct chaos_kpi *kpi = track ? track->kpi : kpi_of(collector, seen->tool->name);
    if (!kpi)
        return;
    kpi->effects++;
    if (seen->nth <= 1)
        return;
    if (seen->excused)
        kpi->duplicates_excused++;
    else if (seen->nth <= seen->allowed)
        kpi->duplicates_keyless++;
    else
        kpi->duplicates++;
}

/* ---- answers ---- */

/* An earlier operation of the intent may have had an effect, so this one should not have been opened. */
static bool had_another(const struct track *track)
{
    for (const struct track *other = track->next_of_intent; other; other = other->next_of_intent)
        if (other->state != STATE_FAILED_PERMANENT && other->state != STATE_REJECTED)
            return true;
    return false;
}

/* It does that intent's effect once more on purpose. Without a key nothing tells a plain call of the intent from one of
 * its repetition: it joins the newest of them. */
static bool repeats_intent(const struct track *track, uint32_t intent)
{
    for (const struct track *named = track->repeats; named; named = named->repeats)
        if (named->intent == intent)
            return true;
    return false;
}

static void count_dedupe(struct collector *collector, const struct sim_reply_seen *seen, struct track *track,
                         struct chaos_kpi *kpi)
{
    const struct intent_track *intent = &collector->intents[seen->intent <= collector->intent_count ? seen->intent : 0];
    kpi->answers++;
    if (seen->of_intent && seen->of_intent != seen->intent && !repeats_intent(track, seen->intent)) {
        kpi->false_dedupe++;
        return;
    }
    bool repeat = intent->since_ms && intent->since_ms < seen->asked_ms;
    kpi->repeats += repeat;
    if (repeat && !track->missed && !seen->reply->op->repeat_of && had_another(track)) {
        track->missed = true;
        kpi->missed_dedupe++;
    }
}

static void count_added(const struct sim_reply_seen *seen, const struct track *track, struct chaos_kpi *kpi)
{
    bool own = !seen->reply->replayed && track->sent == 1 && track->sent_ms >= seen->asked_ms;
    if (own && track->answered_ms && state_terminal(seen->reply->op->state))
        histogram_add(&kpi->added_ms, track->sent_ms - seen->asked_ms + (seen->now_ms - track->answered_ms));
}

static void on_reply(void *user, const struct sim_reply_seen *seen)
{
    struct collector *collector = user;
    const struct engine_reply *reply = seen->reply;
    struct track *track = reply->op ? map_get(&collector->by_id, reply->op->id) : NULL;
    if (!seen->same_intent_expected || !track || !track->kpi)
        return;
    struct chaos_kpi *kpi = track->kpi;
    kpi->calls++;
    kpi->held += reply->kind == REPLY_HELD;
    if (reply->kind != REPLY_OPERATION)
        return;
    kpi->joined += reply->replayed && (!track->ended_ms || track->ended_ms > seen->asked_ms);
    count_dedupe(collector, seen, track, kpi);
    count_added(seen, track, kpi);
}

/* ---- the end ---- */

static enum chaos_end end_of(const struct track *track)
{
    if (!state_terminal(track->state))
        return END_OPEN;
    if (track->to_operator)
        return END_OPERATOR;
    switch (track->state) {
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPENSATED: return END_SUCCESS;
    case STATE_COMPLETED_NOOP: return END_NOOP;
    case STATE_FAILED_PERMANENT: return END_FAILED;
    case STATE_REJECTED: return END_REJECTED;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE:
    case STATE_UNKNOWN_OUTCOME:
    case STATE_COMPENSATING: break;
    }
    return END_OPEN;
}

static void count_ends(const struct collector *collector)
{
    for (const struct track *track = collector->first; track; track = track->next) {
        struct chaos_kpi *kpi = track->kpi;
        if (!kpi)
            continue;
        kpi->operations++;
        kpi->ends[end_of(track)]++;
        kpi->unknown += track->ever_unknown;
        if (track->ever_unknown)
            kpi->doubts[track->to_operator ? DOUBT_OPERATOR : track->doubt_since_ms ? DOUBT_OPEN : track->how]++;
    }
}

void chaos_world_run(const struct sim_options *options, struct chaos_world *world)
{
    struct collector collector = {.world = world, .registry = options->registry, .intent_count = options->intents};
    const struct sim_watch watch = {
        .user = &collector,
        .reply = on_reply,
        .effect = on_effect,
        .change = on_change,
        .wire = on_wire,
        .stale = on_stale,
    };
    struct sim_options watched = *options;
    struct sim_result result;
    arena_init(&collector.arena);
    map_init(&collector.by_id);
    collector.intents = mem_zero(((size_t)options->intents + 1) * sizeof *collector.intents);
    watched.watch = &watch;
    sim_run(&watched, &result);
    count_ends(&collector);
    world->seed = options->seed;
    world->ran = true;
    world->violated = result.violated;
    memcpy(world->violation, result.violation, sizeof world->violation);
    for (size_t i = 0; i < registry_tool_count(options->registry); i++)
        world->operations += world->tools[i].operations;
    world->crashes = result.crashes;
    world->incidents = result.incidents;
    world->simulated_ms = result.simulated_ms;
    memcpy(world->faults, result.faults_by_kind, sizeof world->faults);
    sim_result_release(&result);
    free(collector.intents);
    map_release(&collector.by_id);
    arena_release(&collector.arena);
}
