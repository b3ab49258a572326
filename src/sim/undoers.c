/* People who have done things undone (design 10.1): several at the same instant through different gateways, by other
 * playbooks, on stale versions, and what is undone already.
 *
 * What the rules say of it is in checker_undone.c. */
#include "base/mem.h"
#include "sim/outside.h"

#include <stdio.h>
#include <stdlib.h>

#define ROLLS_PER_LOOK 32

static const char *const names[] = {"mia", "ned", "ola"};
#define NAME_COUNT (sizeof names / sizeof *names)

struct sim_undoers {
    struct sim_event look;
    uint32_t looks;
};

struct undo {
    struct sim *sim;
    char operation[OPERATION_ID_SIZE];
    char playbook[16];
};

static void undone(void *user, const struct engine_reply *reply)
{
    struct undo *undo = user;
    sim_mix(undo->sim, (uint64_t)reply->kind << 48 | 0xc0b);
    checker_undone(undo->sim, undo->operation, undo->playbook, reply);
    free(undo);
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

static void undo(struct sim *sim, uint64_t from, const struct row_seen *row, const char *who, const char *playbook,
                 int64_t rev)
{
    struct gateway *gateway = some_gateway(sim, from);
    char trace[48];
    if (!gateway)
        return;
    struct undo *undo = mem_zero(sizeof *undo);
    undo->sim = sim;
    memcpy(undo->operation, row->id, strlen(row->id) + 1);
    snprintf(undo->playbook, sizeof undo->playbook, "%s", playbook);
    snprintf(trace, sizeof trace, "sim-%u-1", row->intent + sim->options->intents);
    const struct engine_compensation what = {
        .tenant = row->tenant,
        .operation = undo->operation,
        .rev = rev,
        .playbook = undo->playbook,
        .actor = who,
        .trace = trace,
    };
    if (sim_traced(sim))
        sim_say(sim, who, "has %s (intent %u) undone by %s, version %lld", row->id, row->intent, playbook,
                (long long)rev);
    engine_compensate(gateway_engine(gateway), &what, undone, undo);
    gateway_moved(gateway);
}

/* What can be undone, or with `late` whatever there is; NULL id: nothing. */
static struct row_seen pick(const struct sim *sim, uint64_t which, bool late)
{
    size_t count = checker_row_count(sim);
    for (size_t i = 0; i < count; i++) {
        struct row_seen row = checker_row(sim, (size_t)((which + i) % count));
        bool fits = !row.undoes && row.intent && row.tool && row.tool->playbook_count > 0;
        if (!row.dropped && fits && (late || row.state == STATE_COMPLETED_SUCCESS))
            return row;
    }
    return (struct row_seen){0};
}

static void run_look(struct sim *sim, struct sim_event *event)
{
    struct sim_undoers *undoers = (struct sim_undoers *)event; /* its first member */
    struct dice roll_of = dice_of(sim, STREAM(STREAM_PEOPLE, 3)), *dice = &roll_of;
    dice->index = undoers->looks++ * ROLLS_PER_LOOK;
    int64_t gap = roll_between(dice, 50, 4000);
    uint64_t which = roll(dice, UINT32_MAX), from = roll(dice, SIM_GATEWAYS_MAX), who = roll(dice, NAME_COUNT);
    bool other = roll(dice, 4) == 0, stale = roll(dice, 10) == 0, states = roll(dice, 2) == 0;
    bool twice = roll(dice, 2) == 0, against = roll(dice, 4) == 0, late = roll(dice, 3) == 0;
    bool acts = roll_fault(dice, SIM_COMPENSATIONS, 300);
    if (sim->over)
        return;
    schedule_in(sim, event, gap);
    if (!acts)
        return;
    struct row_seen row = pick(sim, which, late);
    if (!row.id)
        return;
    const char *playbook = other ? "other" : "undo";
    int64_t rev = !states ? 0 : stale && row.rev > 1 ? row.rev - 1 : row.rev;
    undo(sim, from, &row, names[who], playbook, rev);
    if (twice)
        undo(sim, from + 1, &row, names[(who + 1) % NAME_COUNT], playbook, 0);
    if (against)
        undo(sim, from + 1, &row, names[(who + 2) % NAME_COUNT], other ? "undo" : "other", 0);
}

struct sim_undoers *undoers_new(struct sim *sim)
{
    struct sim_undoers *undoers = mem_zero(sizeof *undoers);
    undoers->look.run = run_look;
    /* Of a user's registry nothing is known of what its playbooks' effects mean. */
    if ((sim->options->faults & SIM_FAULT_BIT(SIM_COMPENSATIONS)) && !sim->options->registry)
        schedule_in(sim, &undoers->look, 900);
    return undoers;
}

void undoers_free(struct sim_undoers *undoers)
{
    free(undoers);
}
