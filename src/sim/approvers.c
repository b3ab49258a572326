/* Approvers (design 8): they look at what waits for approval and decide, each in their own time: twice, against each
 * other at the same instant through different gateways, on what has long been decided, and on what they called
 * themselves.
 *
 * What the rules say of it is in checker_approvals.c. */
#include "base/mem.h"
#include "sim/outside.h"

#include <stdlib.h>

#define ROLLS_PER_LOOK 32

static const char *const names[] = {"ivy", "jon", "kim", "lee"};
#define NAME_COUNT (sizeof names / sizeof *names)

struct sim_approvers {
    struct sim_event look;
    uint32_t looks;
};

struct decision {
    struct sim *sim;
    char operation[OPERATION_ID_SIZE];
    char who[64];
    bool approve;
};

static void decided(void *user, const struct engine_reply *reply)
{
    struct decision *decision = user;
    sim_mix(decision->sim, (uint64_t)reply->kind << 48 | 0xa99);
    checker_decided(decision->sim, decision->operation, decision->who, decision->approve, reply);
    free(decision);
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

static void decide(struct sim *sim, uint64_t from, const struct row_seen *row, const char *who, bool approve,
                   int64_t rev)
{
    struct gateway *gateway = some_gateway(sim, from);
    if (!gateway)
        return;
    struct decision *decision = mem_zero(sizeof *decision);
    decision->sim = sim;
    decision->approve = approve;
    memcpy(decision->operation, row->id, strlen(row->id) + 1);
    strncpy(decision->who, who, sizeof decision->who - 1);
    const struct engine_decision what = {
        .kind = approve ? DECISION_APPROVE : DECISION_DENY,
        .operation = decision->operation,
        .tenant = row->tenant,
        .rev = rev,
        .actor = decision->who,
        .note = approve ? NULL : "not this one",
        .via = APPROVAL_VIA_REST,
    };
    if (sim_traced(sim))
        sim_say(sim, who, "%s %s at version %lld", approve ? "approves" : "denies", row->id, (long long)rev);
    engine_decide(gateway_engine(gateway), &what, decided, decision);
    gateway_moved(gateway);
}

/* What waits, or with `late` whatever needed approval; NULL id: nothing. */
static struct row_seen pick(const struct sim *sim, uint64_t which, bool late)
{
    size_t count = checker_row_count(sim);
    for (size_t i = 0; i < count; i++) {
        struct row_seen row = checker_row(sim, (size_t)((which + i) % count));
        if (!row.dropped && row.asked && (late || row.reason == REASON_AWAITING_APPROVAL))
            return row;
    }
    return (struct row_seen){0};
}

static void run_look(struct sim *sim, struct sim_event *event)
{
    struct sim_approvers *approvers = (struct sim_approvers *)event; /* its first member */
    struct dice roll_of = dice_of(sim, STREAM(STREAM_PEOPLE, 2)), *dice = &roll_of;
    dice->index = approvers->looks++ * ROLLS_PER_LOOK;
    int64_t gap = roll_between(dice, 20, 2500);
    uint64_t which = roll(dice, UINT32_MAX), from = roll(dice, SIM_GATEWAYS_MAX), who = roll(dice, NAME_COUNT + 1);
    bool approve = roll(dice, 8) != 0, stale = roll(dice, 10) == 0, states = roll(dice, 2) == 0;
    bool twice = roll(dice, 4) == 0, against = roll(dice, 5) == 0, late = roll(dice, 4) == 0;
    bool acts = roll_fault(dice, SIM_APPROVALS, 400);
    if (sim->over)
        return;
    schedule_in(sim, event, gap);
    if (!acts)
        return;
    struct row_seen row = pick(sim, which, late);
    if (!row.id)
        return;
    const char *name = who < NAME_COUNT ? names[who] : row.principal;
    int64_t rev = !states ? 0 : stale && row.rev > 1 ? row.rev - 1 : row.rev;
    decide(sim, from, &row, name, approve, rev);
    if (twice)
        decide(sim, from + 1, &row, name, approve, 0);
    if (against)
        decide(sim, from + 1, &row, names[(who + 1) % NAME_COUNT], !approve, 0);
}

struct sim_approvers *approvers_new(struct sim *sim)
{
    struct sim_approvers *approvers = mem_zero(sizeof *approvers);
    approvers->look.run = run_look;
    if (sim->options->faults & SIM_FAULT_BIT(SIM_APPROVALS))
        schedule_in(sim, &approvers->look, 700);
    return approvers;
}

void approvers_free(struct sim_approvers *approvers)
{
    free(approvers);
}
