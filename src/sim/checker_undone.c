/* What must hold of compensations (design 10.1): an operation and what undoes it move in the same commit, one playbook
 * at a time, and what is told of it is so. Effects are counted as of any other intent (checker.c). */
#include "sim/checker.h"

static bool took_effect(enum state state)
{
    return state == STATE_COMPLETED_SUCCESS || state == STATE_COMPLETED_NOOP;
}

void check_undone_admitted(struct checker_model *model, struct check_row *row, const struct operation *op,
                           const struct ledger_admit *admit)
{
    struct check_row *original = op->compensates ? check_find(model, op->compensates) : NULL;
    const struct ledger_transition *moved = admit->undoes;
    if (!op->compensates && !moved)
        return;
    if (!original || !moved || strcmp(moved->op->id, original->id) != 0 || original->state != STATE_COMPLETED_SUCCESS ||
        moved->op->state != STATE_COMPENSATING) {
        sim_violated(model->sim, "10.1 only what succeeded is undone, in one commit: %s (intent %u) undoes %s, %s",
                     row->id, row->intent, op->compensates ? op->compensates : "nothing",
                     original ? state_name(original->state) : "which is not there");
        return;
    }
    bool first = true; /* of this original: its effect is one more that its intent's number allows */
    for (const struct check_row *other = row->older_of_intent; other; other = other->older_of_intent)
        first = first && other->undoes != original;
    if (first && row->older_of_intent)
        check_intent_of(model, row->intent)->allowed++;
    row->undoes = original;
    original->undone_by = row;
}

void check_undone_moved(struct checker_model *model, const struct check_row *row,
                        const struct ledger_transition *change)
{
    struct check_row *original = row->undoes;
    const struct operation *moved = change->undone ? change->undone->op : NULL;
    if (!original) {
        if (moved)
            sim_violated(model->sim, "10.1 only a compensation moves another operation: %s moves %s", row->id,
                         moved->id);
        return;
    }
    if (moved && strcmp(moved->id, original->id) != 0)
        sim_violated(model->sim, "10.1 a compensation moves what it undoes: %s moves %s, it undoes %s", row->id,
                     moved->id, original->id);
    if (took_effect(row->state) && original->state == STATE_COMPENSATED && !moved)
        return; /* undone before, or a note on what has ended */
    if (took_effect(row->state) && (!moved || moved->state != STATE_COMPENSATED))
        sim_violated(model->sim, "10.1 both end in one commit: %s (intent %u) is %s, %s is %s", row->id, row->intent,
                     state_name(row->state), original->id, state_name(moved ? moved->state : original->state));
    bool failed = row->state == STATE_FAILED_PERMANENT || row->state == STATE_REJECTED;
    bool stands = moved && moved->state == STATE_COMPLETED_SUCCESS;
    if (failed && original->undone_by == row && original->state == STATE_COMPENSATING && !stands)
        sim_violated(model->sim, "10.1 what could not be undone stands: %s (intent %u) is %s, %s is %s", row->id,
                     row->intent, state_name(row->state), original->id,
                     state_name(moved ? moved->state : original->state));
    if (moved && !failed && !took_effect(row->state))
        sim_violated(model->sim, "10.1 while it is open nothing is decided: %s (intent %u) is %s, %s becomes %s",
                     row->id, row->intent, state_name(row->state), original->id, state_name(moved->state));
}

/* What is compensating has an open compensation, what is compensated one that took effect; and the other way round. */
void check_undone_end(struct sim *sim, const struct check_row *row)
{
    const struct check_row *original = row->undoes;
    if (original && took_effect(row->state) && original->state != STATE_COMPENSATED)
        sim_violated(sim, "10.1 undone is undone: %s (intent %u) has undone %s, which is %s", row->id, row->intent,
                     original->id, state_name(original->state));
    if (row->steps || (row->state != STATE_COMPENSATING && row->state != STATE_COMPENSATED))
        return;
    bool effect = false, open = false;
    for (size_t i = 0; i < sim->checker->row_count; i++) {
        const struct check_row *by = sim->checker->rows[i];
        effect = effect || (by->undoes == row && took_effect(by->state));
        open = open || (by->undoes == row && !state_terminal(by->state));
    }
    if (row->state == STATE_COMPENSATED ? !effect : !open)
        sim_violated(sim, "10.1 undone by something: %s (intent %u) is %s, and no compensation of it is %s", row->id,
                     row->intent, state_name(row->state), row->state == STATE_COMPENSATED ? "done" : "open");
}

void checker_undone(struct sim *sim, const char *operation, const char *playbook, const struct engine_reply *reply)
{
    const struct check_row *original = check_find(sim->checker, operation);
    if (reply->kind != REPLY_OPERATION || !original)
        return;
    const struct check_row *by = check_find(sim->checker, reply->op->id);
    if (!by || by->undoes != original || !text_equal(reply->op->playbook, playbook))
        sim_violated(sim, "10.1, 12 who asks is told of what undoes it: %s by %s is answered with %s", operation,
                     playbook, reply->op->id);
}
