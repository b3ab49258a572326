/* Operators. They look at committed rows, take their time, and decide on the version that they looked at.
 *
 *   needs_operator ─► waits until nothing can still arrive ─► resolves by the provider's truth
 *   anything ───────► retry, cancel, resolve: at any time, also on stale versions and where it does not fit
 *
 * PEOPLE_WRONG: a person states what is not so; the checker is told before, since nothing can undo that. */
#include "base/mem.h"
#include "sim/outside.h"

#include <stdio.h>
#include <stdlib.h>

#define ROLLS_PER_LOOK 32
#define LOOKED_AT      20 /* rows, to find an open one */
#define AT_ONCE_MAX    64 /* decisions per look at the end */

static const char *const names[] = {"ann", "bob", "eve"};

struct sim_people {
    struct sim_event look, clear;
    uint32_t looks;
    size_t at; /* next row to clear up */
    size_t open;
};

struct decision {
    struct sim *sim;
    struct arena arena;
    char who[8];
};

static void decided(void *user, const struct engine_reply *reply)
{
    struct decision *decision = user;
    struct sim *sim = decision->sim;
    sim_mix(sim, (uint64_t)reply->kind << 48 | 0xdec);
    sim->people->open--;
    free(decision);
}

static void decide(struct sim *sim, struct gateway *gateway, const char *who, const struct engine_decision *what)
{
    static const char *const kinds[] = {"resolves", "retries", "cancels"};
    struct decision *decision = mem_zero(sizeof *decision);
    decision->sim = sim;
    if (sim_traced(sim))
        sim_say(sim, who, "%s %s at version %lld%s%s", kinds[what->kind], what->operation, (long long)what->rev,
                what->kind != DECISION_RESOLVE ? ""
                : what->happened               ? ": it happened, "
                                               : ": it did not happen",
                what->external_id ? what->external_id : "");
    sim->people->open++;
    engine_decide(gateway_engine(gateway), what, decided, decision);
    gateway_moved(gateway);
}

static struct gateway *some_gateway(struct sim *sim, uint64_t from)
{
    for (unsigned i = 0; i < sim->options->gateways; i++) {
        struct gateway *gateway = sim->gateways[(from + i) % sim->options->gateways];
        if (gateway_engine(gateway) && gateway_paused_until(gateway) == 0)
            return gateway;
    }
    return NULL;
}

static bool is_guarded(const struct row_seen *row)
{
    return row->tool && row->tool->guard_lease_ms > 0;
}

/* Nothing of it is under way, at work, or held by a gateway that might still send. */
static bool is_final(const struct sim *sim, const struct row_seen *row, const struct provider_truth *truth)
{
    bool told_just_now = is_guarded(row) && sim->now_ms - row->changed_ms <= SIM_CLOCK_SPREAD_MS; /* to execute it */
    return !truth->unfinished && !row->owned && wire_under_way(sim, row->id) == 0 && !told_just_now;
}

static bool resolve(struct sim *sim, struct gateway *gateway, const char *who, const struct row_seen *row,
                    bool allow_retry, bool wrong)
{
    struct provider_truth truth =
        is_guarded(row) ? executors_truth(sim, row->id) : provider_truth(sim, row->provider_key);
    if (!wrong && !is_final(sim, row, &truth))
        return false;
    bool happened = truth.effects > 0;
    if (wrong) {
        checker_excuse(sim, row->intent, SIM_PEOPLE_WRONG);
        happened = !happened;
    }
    const struct engine_decision what = {
        .kind = DECISION_RESOLVE,
        .operation = row->id,
        .tenant = row->tenant,
        .rev = row->rev,
        .happened = happened,
        .allow_retry = allow_retry,
        .external_id = happened ? (truth.external_id[0] ? truth.external_id : "ef_invented") : NULL,
        .actor = who,
        .note = happened ? "seen at the provider" : "not to be found at the provider",
    };
    decide(sim, gateway, who, &what);
    return true;
}

/* ---- multi-step tools ---- */

static bool is_stuck(const struct row_seen *row)
{
    bool stuck = row->state == STATE_COMPENSATING && row->reason == REASON_NEEDS_OPERATOR;
    return row->parent && (stuck || row->reason == REASON_STEPS_CHANGED);
}

/* A step that can not be undone: it is undone by hand, stands, or is tried once more. Another list of steps: no more
 * of them. */
static void decide_on_parent(struct sim *sim, struct gateway *gateway, const char *who, const struct row_seen *row,
                             uint64_t how)
{
    bool changed = row->reason == REASON_STEPS_CHANGED;
    const struct engine_decision what = {
        .kind = changed        ? DECISION_CANCEL
                : how % 3 == 0 ? DECISION_RETRY
                               : DECISION_RESOLVE,
        .operation = row->id,
        .tenant = row->tenant,
        .rev = row->rev,
        .happened = how % 2 == 0,
        .actor = who,
        .note = "seen to",
    };
    decide(sim, gateway, who, &what);
}

/* ---- at any time ---- */

/* What is open draws more attention than what has ended. */
static struct row_seen pick(const struct sim *sim, uint64_t which, size_t count)
{
    struct row_seen row = checker_row(sim, (size_t)(which % count));
    for (size_t i = 1; i < LOOKED_AT && (row.dropped || state_terminal(row.state)); i++)
        row = checker_row(sim, (size_t)((which + count - i % count) % count));
    return row;
}

static void meddle(struct sim *sim, struct dice *dice, struct gateway *gateway, const char *who,
                   const struct row_seen *row)
{
    uint64_t how = roll(dice, 4), stale = roll(dice, 4);
    struct engine_decision what = {
        .kind = how < 2 ? DECISION_RETRY : DECISION_CANCEL,
        .operation = row->id,
        .tenant = row->tenant,
        .rev = stale == 0 && row->rev > 1 ? row->rev - 1
               : stale == 1               ? 0
                                          : row->rev,
        .actor = who,
        .note = "somebody asked for it",
    };
    decide(sim, gateway, who, &what);
}

struct acknowledgement {
    struct ledger_request request;
    struct arena arena;
};

static void acknowledged(struct ledger_request *request)
{
    struct arena arena = *request->arena;
    arena_release(&arena);
}

static void acknowledge(struct sim *sim, struct gateway *gateway, const char *who, const struct row_seen *row)
{
    struct arena arena;
    arena_init(&arena);
    struct acknowledgement *box = arena_zero(&arena, sizeof *box);
    struct ledger_request *request = &box->request;
    request->command = LEDGER_ACKNOWLEDGE;
    request->acknowledge.tenant = arena_copy_text(&arena, row->tenant);
    request->acknowledge.incident = arena_copy_text(&arena, row->incident);
    request->acknowledge.by = who;
    request->acknowledge.now_ms = sim->now_ms;
    request->done = acknowledged;
    box->arena = arena;
    request->arena = &box->arena;
    ledger_submit(engine_ledger(gateway_engine(gateway)), request);
}

static void run_look(struct sim *sim, struct sim_event *event)
{
    struct sim_people *people = sim->people;
    struct dice roll_of = dice_of(sim, STREAM(STREAM_PEOPLE, 1)), *dice = &roll_of;
    dice->index = people->looks++ * ROLLS_PER_LOOK;
    int64_t gap = roll_between(dice, 100, 15000);
    uint64_t which = roll(dice, UINT32_MAX), from = roll(dice, SIM_GATEWAYS_MAX), who = roll(dice, 3);
    bool allow_retry = roll(dice, 2) == 0;
    bool meddles = roll_fault(dice, SIM_PEOPLE, 60), resolves = roll_fault(dice, SIM_PEOPLE, 100);
    bool wrong = roll_fault(dice, SIM_PEOPLE_WRONG, 20);
    size_t count = checker_row_count(sim);
    struct gateway *gateway = some_gateway(sim, from);
    if (sim->over)
        return;
    schedule_in(sim, event, gap);
    if (count == 0 || !gateway)
        return;
    struct row_seen row = pick(sim, which, count);
    if (meddles && row.incident[0])
        acknowledge(sim, gateway, names[who], &row);
    if (meddles && !row.dropped)
        meddle(sim, dice, gateway, names[who], &row);
    for (size_t i = 0; resolves && i < count; i++) { /* the next one that waits for a person */
        row = checker_row(sim, (size_t)((which + i) % count));
        if (is_stuck(&row) && gateway_engine(gateway)) {
            decide_on_parent(sim, gateway, names[who], &row, which);
            break;
        }
        bool waits = row.state == STATE_UNKNOWN_OUTCOME && (row.reason == REASON_NEEDS_OPERATOR || wrong);
        if (waits && gateway_engine(gateway) && resolve(sim, gateway, names[who], &row, allow_retry, wrong))
            break;
    }
}

/* ---- at the end ---- */

static void run_clear(struct sim *sim, struct sim_event *event)
{
    struct sim_people *people = sim->people;
    size_t count = checker_row_count(sim);
    for (size_t n = 0; people->at < count && n < AT_ONCE_MAX; people->at++, n++) {
        struct row_seen row = checker_row(sim, people->at);
        struct gateway *gateway = some_gateway(sim, people->at);
        if (!gateway)
            break;
        if (!row.dropped && is_stuck(&row))
            decide_on_parent(sim, gateway, names[people->at % 3], &row, 1 + 3 * people->at % 2);
        else if (!row.dropped && !state_terminal(row.state) && row.reason == REASON_NEEDS_OPERATOR)
            resolve(sim, gateway, names[people->at % 3], &row, false, false);
    }
    if (people->at < count)
        schedule_in(sim, event, 100);
}

void people_clear_up(struct sim *sim)
{
    struct sim_people *people = sim->people;
    people->at = 0;
    if (!people->clear.place)
        schedule_in(sim, &people->clear, 0);
}

struct sim_people *sim_people_new(struct sim *sim)
{
    struct sim_people *people = mem_zero(sizeof *people);
    people->look.run = run_look;
    people->clear.run = run_clear;
    schedule_in(sim, &people->look, 500);
    return people;
}

void sim_people_free(struct sim_people *people)
{
    free(people);
}
