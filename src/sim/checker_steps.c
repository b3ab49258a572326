/* What must hold of multi-step tools (design 10.2), judged by the lives of the steps' own operations, as their commits
 * left them. Of the progress that a parent keeps only two things are believed, which no other row tells: that a step
 * was skipped, and what a person's word did about one that could not be undone.
 *
 *   forward    a step begins, and is sent, when all before it are done or skipped
 *   back       nothing begins any more; one at a time, the last one first; nothing of the parent is under way meanwhile
 *   the end    success: all done or skipped · failed: nothing happened · compensated: what was done is undone, or left
 *              by rule or by a person */
#include "sim/checker.h"

#include "base/mem.h"
#include "core/steps.h"

struct check_step {
    struct check_row *op;   /* NULL: not begun */
    struct check_row *undo; /* the latest; NULL: none */
    bool skipped;           /* as the progress says */
    bool by_person;         /* a person has decided on it */
};

struct check_steps { /* of a parent */
    struct check_step steps[STEPS_MAX];
    size_t count;
    bool back;     /* its rollback has begun */
    bool resolved; /* the latest move was a person's word */
};

/* ---- reading ---- */

static bool took_effect(enum state state)
{
    return state == STATE_COMPLETED_SUCCESS || state == STATE_COMPLETED_NOOP;
}

static bool without_effect(enum state state)
{
    return state == STATE_FAILED_PERMANENT || state == STATE_REJECTED;
}

/* Ended, and nothing of its own doing is there that anybody could know of: it failed, or things were so already. */
static bool left_nothing(const struct check_row *row)
{
    return without_effect(row->state) || (row->state == STATE_COMPLETED_NOOP && row->effects == row->excused_effects);
}

static const struct steps_item *item_of(const struct check_row *parent, size_t at)
{
    const struct steps_list *list = parent->tool ? parent->tool->steps : NULL;
    return list && at < list->count ? &list->items[at] : NULL;
}

/* The place of a step in its parent's list. */
static size_t place_of(const struct check_row *parent, const char *name)
{
    size_t at = 0;
    while (item_of(parent, at) && !text_equal(item_of(parent, at)->name, name))
        at++;
    return at;
}

static size_t place_of_row(const struct check_row *parent, const struct check_row *step)
{
    size_t at = 0;
    while (at < parent->steps->count && parent->steps->steps[at].op != step)
        at++;
    return at;
}

/* Stays as it is by rule. */
static bool is_left(const struct check_row *parent, size_t at)
{
    const struct steps_item *item = item_of(parent, at);
    return item && (item->undo == STEPS_UNDO_LEAVE || item->undo == STEPS_UNDO_NOTHING);
}

static bool is_write(const struct check_row *row)
{
    return !row->tool || tool_is_write(row->tool);
}

/* ---- intents ---- */

uint32_t check_intents(const struct sim *sim)
{
    uint32_t calls = sim->options->intents;
    return 2 * calls + calls * CHECK_VERSIONS * 2 * (uint32_t)sim->steps_max;
}

/* Each step of each version of a parent is an intent of its own, and what undoes it another one: none moves when
 * others are left out. 0, of none, beyond CHECK_VERSIONS. */
uint32_t check_step_intent(const struct sim *sim, const struct check_row *parent, size_t at, bool undo)
{
    uint32_t calls = sim->options->intents, wide = 2 * (uint32_t)sim->steps_max;
    uint32_t version = (uint32_t)(parent->key_version - 1);
    if (parent->intent == 0 || parent->intent > calls || at >= sim->steps_max || version >= CHECK_VERSIONS)
        return 0;
    return 2 * calls + ((parent->intent - 1) * CHECK_VERSIONS + version) * wide + 2 * (uint32_t)at + undo + 1;
}

/* ---- forward ---- */

/* All before it are done or skipped. */
static bool former_are_over(const struct check_row *parent, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        const struct check_step *step = &parent->steps->steps[i];
        if (step->op ? !took_effect(step->op->state) : !step->skipped)
            return false;
    }
    return true;
}

static void check_begun(struct checker_model *model, struct check_row *parent, struct check_row *row, size_t at)
{
    struct check_steps *steps = parent->steps;
    if (at >= steps->count)
        sim_violated(model->sim, "10.2 steps are those of the list: %s begins a step of %s that it has not", row->id,
                     parent->id);
    else if (steps->steps[at].op)
        sim_violated(model->sim, "10.2 each step begins once: %s (intent %u) is step %zu of %s, as %s is", row->id,
                     row->intent, at + 1, parent->id, steps->steps[at].op->id);
    else if (steps->back || parent->state != STATE_ACKNOWLEDGED)
        sim_violated(model->sim,
                     "10.2 nothing begins in a rollback: %s (intent %u) begins as step %zu of %s, which is %s", row->id,
                     row->intent, at + 1, parent->id, state_name(parent->state));
    else if (!former_are_over(parent, at))
        sim_violated(model->sim,
                     "10.2 one step after the other: %s (intent %u) begins as step %zu of %s, a former one is "
                     "not done",
                     row->id, row->intent, at + 1, parent->id);
    else
        steps->steps[at].op = row;
}

/* A new attempt under the same key is accepted only after the rollback of the former. */
static void check_former_versions(struct checker_model *model, const struct check_row *parent)
{
    for (size_t i = model->row_count; i-- > 0;) {
        const struct check_row *other = model->rows[i];
        if (other != parent && other->steps && digest_equal(&other->key_hash, &parent->key_hash) &&
            !state_terminal(other->state))
            sim_violated(model->sim, "10.2 one attempt at a time: %s (intent %u) begins its steps while %s is %s",
                         parent->id, parent->intent, other->id, state_name(other->state));
    }
}

void check_step_sending(struct sim *sim, const struct check_row *row)
{
    const struct check_row *parent = row->parent;
    size_t at = parent && !row->undoes ? place_of_row(parent, row) : 0;
    if (parent && !row->undoes && !former_are_over(parent, at))
        sim_violated(sim, "10.2 no step is sent before the former is proven done: %s (intent %u) is step %zu of %s",
                     row->id, row->intent, at + 1, parent->id);
}

/* ---- back ---- */

/* Nothing of it is left to undo. */
static bool is_settled(const struct check_row *parent, size_t at)
{
    const struct check_step *step = &parent->steps->steps[at];
    if (!step->op || left_nothing(step->op) || step->by_person || is_left(parent, at))
        return !step->op || state_terminal(step->op->state);
    return step->op->state == STATE_COMPENSATED;
}

static void check_undo_begun(struct checker_model *model, struct check_row *parent, struct check_row *row)
{
    size_t at = place_of_row(parent, row->undoes);
    const struct steps_item *item = item_of(parent, at);
    if (at == parent->steps->count) {
        sim_violated(model->sim, "10.2 a rollback undoes its own steps: %s undoes %s for %s", row->id, row->undoes->id,
                     parent->id);
        return;
    }
    if (parent->state != STATE_COMPENSATING)
        sim_violated(model->sim, "10.2 only a rollback undoes steps: %s (intent %u) undoes step %zu of %s, which is %s",
                     row->id, row->intent, at + 1, parent->id, state_name(parent->state));
    if (item && item->undo != STEPS_UNDO_PLAYBOOK)
        sim_violated(model->sim, "10.2 what is to stay is not undone: %s (intent %u) undoes step %zu of %s", row->id,
                     row->intent, at + 1, parent->id);
    for (size_t i = at + 1; i < parent->steps->count; i++)
        if (!is_settled(parent, i))
            sim_violated(model->sim,
                         "10.2 undone in reverse order: %s (intent %u) undoes step %zu of %s before step %zu", row->id,
                         row->intent, at + 1, parent->id, i + 1);
    for (size_t i = 0; i < parent->steps->count; i++) {
        const struct check_row *undo = parent->steps->steps[i].undo;
        if (undo && undo != row && !state_terminal(undo->state))
            sim_violated(model->sim,
                         "10.2 one at a time: %s (intent %u) undoes step %zu of %s while %s undoes step %zu", row->id,
                         row->intent, at + 1, parent->id, undo->id, i + 1);
    }
    parent->steps->steps[at].undo = row;
}

/* ---- for the other files: admission ---- */

void check_steps_of_row(struct checker_model *model, struct check_row *row, const struct operation *op)
{
    const struct steps_list *list = row->tool ? row->tool->steps : NULL;
    if (op->steps.p) {
        row->steps = arena_zero(&model->arena, sizeof *row->steps);
        row->steps->count = list ? list->count : 0;
    }
    const struct check_row *original = op->compensates ? check_find(model, op->compensates) : NULL;
    row->parent = op->parent ? check_find(model, op->parent) : NULL;
    /* a person may have a step undone, too, when its parent has ended */
    const struct check_row *parent = row->parent ? row->parent : original ? original->parent : NULL;
    if (!parent || !parent->steps)
        return;
    size_t at = original ? place_of_row(parent, original) : place_of(parent, op->step);
    row->intent = check_step_intent(model->sim, parent, at, original != NULL);
    row->call = 0;
}

void check_step_admitted(struct checker_model *model, struct check_row *row, const struct operation *op,
                         const struct ledger_admit *admit)
{
    const struct ledger_transition *moved = admit->parent;
    struct check_row *parent = row->parent;
    if (!op->parent && !moved)
        return;
    if (!parent || !parent->steps || !moved || strcmp(moved->op->id, parent->id) != 0) {
        sim_violated(model->sim, "10.2 a step comes with its parent's move: %s (intent %u) does not", row->id,
                     row->intent);
        return;
    }
    if (row->undoes) {
        check_undo_begun(model, parent, row);
        return;
    }
    check_begun(model, parent, row, place_of(parent, op->step));
    check_former_versions(model, parent);
}

/* ---- for the other files: moves ---- */

static const struct {
    enum state from, to;
    unsigned causes;
} moves[] = {
    {STATE_PLANNED, STATE_ACKNOWLEDGED, 1u << CAUSE_STEP},
    {STATE_PENDING_DISPATCH, STATE_ACKNOWLEDGED, 1u << CAUSE_STEP},
    {STATE_ACKNOWLEDGED, STATE_COMPLETED_SUCCESS, 1u << CAUSE_STEP},
    {STATE_ACKNOWLEDGED, STATE_FAILED_PERMANENT, 1u << CAUSE_STEP},
    {STATE_ACKNOWLEDGED, STATE_COMPENSATING, 1u << CAUSE_STEP},
    {STATE_COMPENSATING, STATE_COMPENSATED, 1u << CAUSE_STEP},
};

bool check_parent_may_move(enum state from, enum state to, enum cause cause)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (moves[i].from == from && moves[i].to == to)
            return (moves[i].causes & 1u << cause) != 0;
    /* before its steps it is like any other */
    return from == STATE_PLANNED || from == STATE_PENDING_DISPATCH;
}

/* What only the progress tells. */
static void read_progress(struct checker_model *model, struct check_row *parent, const struct ledger_transition *change)
{
    bool person = change->event_count > 0 && change->events[0].cause == CAUSE_OPERATOR;
    struct arena arena;
    struct json *text;
    arena_init(&arena);
    if (json_parse(&arena, change->op->steps, NULL, &text, NULL)) {
        sim_violated(model->sim, "10.2 the progress is kept: %s (intent %u) has none", parent->id, parent->intent);
        arena_release(&arena);
        return;
    }
    const struct json *list = json_get(text, "steps");
    parent->steps->back |= json_get(text, "rolling_back") != NULL;
    if (parent->steps->count == 0 || (list && list->count != parent->steps->count))
        parent->steps->count = list && list->count <= STEPS_MAX ? list->count : 0;
    for (size_t i = 0; i < parent->steps->count; i++) {
        struct check_step *step = &parent->steps->steps[i];
        struct str status = json_get_text(&list->items[i], "status");
        step->skipped |= str_is(status, "skipped") && !step->op;
        if (person && step->op && took_effect(step->op->state) && (str_is(status, "left") || str_is(status, "undone")))
            step->by_person = true;
    }
    arena_release(&arena);
}

static void check_success(struct checker_model *model, const struct check_row *parent)
{
    if (!former_are_over(parent, parent->steps->count))
        sim_violated(model->sim, "10.2 success: every step is done or skipped: %s (intent %u) succeeds", parent->id,
                     parent->intent);
}

/* "Failed" means that nothing happened, of no step. */
static void check_failed(struct checker_model *model, const struct check_row *parent)
{
    for (size_t i = 0; i < parent->steps->count; i++) {
        const struct check_row *op = parent->steps->steps[i].op;
        if (!op || !is_write(op))
            continue;
        if (!left_nothing(op))
            sim_violated(model->sim,
                         "3.2, 10.2 failed: no step has happened: %s (intent %u) fails, step %zu (%s) is %s",
                         parent->id, parent->intent, i + 1, op->id, state_name(op->state));
        else if (op->effects > 0 && !check_excused(model, op))
            sim_violated(model->sim,
                         "3.2, 10.2 failed: no step has happened: %s (intent %u) fails, step %zu (%s) had %s",
                         parent->id, parent->intent, i + 1, op->id, op->effect_ids[0]);
    }
}

static void check_rolled_back(struct checker_model *model, const struct check_row *parent)
{
    for (size_t i = 0; i < parent->steps->count; i++) {
        const struct check_row *op = parent->steps->steps[i].op;
        if (!is_settled(parent, i))
            sim_violated(model->sim,
                         "10.2 rolled back: what was done is undone or left: %s (intent %u) ends, step %zu (%s) is %s",
                         parent->id, parent->intent, i + 1, op->id, state_name(op->state));
    }
}

/* Something of it is under way, and will move it. */
static bool waits_for_something(const struct check_row *parent)
{
    for (size_t i = 0; i < parent->steps->count; i++) {
        const struct check_step *step = &parent->steps->steps[i];
        if ((step->op && !state_terminal(step->op->state)) || (step->undo && !state_terminal(step->undo->state)))
            return true;
    }
    return false;
}

void check_parent_moved(struct checker_model *model, struct check_row *parent, enum state from,
                        const struct ledger_transition *change)
{
    read_progress(model, parent, change);
    if (parent->state == STATE_COMPENSATING)
        parent->steps->back = true;
    if (parent->state != from) {
        if (parent->state == STATE_COMPLETED_SUCCESS)
            check_success(model, parent);
        else if (parent->state == STATE_FAILED_PERMANENT)
            check_failed(model, parent);
        else if (parent->state == STATE_COMPENSATED)
            check_rolled_back(model, parent);
        if (state_terminal(parent->state) && waits_for_something(parent))
            sim_violated(model->sim, "10.2 nothing is under way at the end: %s (intent %u) is %s, a step is not over",
                         parent->id, parent->intent, state_name(parent->state));
    }
    bool rests = !state_terminal(parent->state) && parent->wake_at_ms == 0 && parent->reason != REASON_NEEDS_OPERATOR;
    if (rests && !waits_for_something(parent))
        sim_violated(model->sim, "10.2 nothing open is forgotten: %s (intent %u) is %s (%s) and waits for nothing",
                     parent->id, parent->intent, state_name(parent->state), reason_name(parent->reason));
}

/* A step, or what was undone of one, has ended, or its end was corrected: its parent learns it in the same commit. */
void check_parent_told(struct checker_model *model, const struct check_row *row, enum state from,
                       const struct ledger_undone *told)
{
    const struct check_row *parent = row->parent;
    bool news = row->state != from && state_terminal(row->state) && !row->undoes;
    if (news && parent && parent->steps && !parent->dropped && (!told || strcmp(told->op->id, parent->id) != 0))
        sim_violated(model->sim, "10.2 a step's end is told in one commit: %s (intent %u) is %s, %s does not learn it",
                     row->id, row->intent, state_name(row->state), parent->id);
}

/* ---- at the end ---- */

/* A parent is open for a person's sake only when a step of it is. */
bool check_parent_waits(const struct check_row *parent)
{
    for (size_t i = 0; i < parent->steps->count; i++) {
        const struct check_step *step = &parent->steps->steps[i];
        const struct check_row *open[] = {step->op, step->undo};
        for (size_t k = 0; k < 2; k++)
            if (open[k] && !state_terminal(open[k]->state) && open[k]->reason == REASON_NEEDS_OPERATOR)
                return true;
    }
    return false;
}

void check_steps_end(struct sim *sim, const struct check_row *parent)
{
    bool ended_badly = parent->state == STATE_FAILED_PERMANENT || parent->state == STATE_COMPENSATED;
    if (!ended_badly || (parent->incidents & 1u << INCIDENT_CONTRADICTION))
        return;
    if (parent->dropped) /* past its retention: the step's own incident is all that can be said */
        return;
    for (size_t i = 0; i < parent->steps->count; i++) {
        const struct check_step *step = &parent->steps->steps[i];
        bool stands = step->op && took_effect(step->op->state) && !left_nothing(step->op);
        if (stands && is_write(step->op) && !step->by_person && !is_left(parent, i))
            sim_violated(
                sim, "3.4, 10.2 what turned out to have happened is an incident: %s (intent %u) is %s, step %zu is %s",
                parent->id, parent->intent, state_name(parent->state), i + 1, state_name(step->op->state));
    }
}
