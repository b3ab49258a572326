#include "ledger/compensation.h"

#include "core/step.h"

static bool settle(const struct step_input *in, const struct operation *stored, const char *incident_id,
                   struct settlement *out)
{
    struct step_effects effects;
    out->op = *stored;
    step(&out->op, NULL, in, &effects, NULL);
    if (!effects.changed)
        return false;
    out->change = (struct ledger_transition){.op = &out->op, .event_count = effects.event_count};
    memcpy(out->change.events, effects.events, effects.event_count * sizeof *effects.events);
    for (size_t i = 0; i < effects.incident_count; i++) {
        struct incident *incident = &out->change.incidents[out->change.incident_count++];
        *incident = (struct incident){
            .tenant = stored->tenant,
            .operation = out->op.id,
            .kind = effects.incidents[i].kind,
            .at_ms = in->now_ms,
            .note = effects.incidents[i].note,
        };
        memcpy(incident->id, incident_id, sizeof incident->id);
    }
    return true;
}

bool compensation_settles(const struct ledger_transition *change, const struct operation *original, struct arena *arena,
                          struct settlement *out)
{
    const struct operation *by = change->op;
    const struct step_input in = {
        .kind = STEP_COMPENSATION_ENDED,
        .now_ms = by->updated_ms,
        .arena = arena,
        .note = arena_printf(arena, "playbook %s (%s) ended %s%s%s: it still stands%s%s", by->playbook, by->id,
                             state_name(by->state), by->reason ? ", " : "", by->reason ? reason_name(by->reason) : "",
                             by->escalation ? "; " : "", by->escalation ? by->escalation : ""),
        .compensation = by->id,
        .ended = by->state,
        .ended_reason = by->reason,
        .retain_until_ms = by->retain_until_ms,
    };
    return settle(&in, original, change->incident_id, out);
}

bool parent_told(const struct ledger_transition *change, const struct operation *step, const struct operation *parent,
                 struct arena *arena, struct settlement *out)
{
    const struct step_input in = {
        .kind = STEP_TOLD,
        .now_ms = step->updated_ms,
        .arena = arena,
        .told = step,
        .note = change->op->compensates ? change->op->escalation : NULL,
    };
    return settle(&in, parent, change->incident_id, out);
}

const struct ledger_undone *settlement_tell(const struct settlement *settlement, struct arena *arena)
{
    struct ledger_undone *undone = arena_zero(arena, sizeof *undone);
    undone->op = operation_copy(arena, &settlement->op);
    undone->event_count = settlement->change.event_count;
    memcpy(undone->events, settlement->change.events, sizeof undone->events);
    for (size_t i = 0; i < undone->event_count; i++)
        undone->events[i].note = arena_copy_text(arena, undone->events[i].note);
    undone->incident = settlement->change.incident_count > 0;
    return undone;
}

void settlement_wakes(const struct settlement *settlement, struct ledger_transition *change)
{
    int64_t wake_ms = settlement->change.wake_ms;
    if (wake_ms && (change->wake_ms == 0 || wake_ms < change->wake_ms))
        change->wake_ms = wake_ms;
}

static bool comes_with(const char *id, const struct ledger_transition *change)
{
    return !id == !change && (!change || strcmp(change->op->id, id) == 0);
}

enum err_code compensation_check(const struct ledger_admit *admit, struct err *err)
{
    const struct operation *op = admit->admission.op;
    if (!comes_with(op->compensates, admit->undoes))
        return err_set(err, ERR_INTERNAL, "operation %s does not come with what it undoes", op->id);
    if (!comes_with(op->parent, admit->parent))
        return err_set(err, ERR_INTERNAL, "operation %s does not come with what it is a step of", op->id);
    return ERR_NONE;
}

const char *compensation_asks(const struct ledger_admit *admit)
{
    return admit->undoes && !admit->parent ? admit->undoes->op->parent : NULL;
}

enum err_code compensation_allowed(const struct ledger_admit *admit, enum state parent, struct err *err)
{
    if (state_terminal(parent))
        return ERR_NONE;
    return err_set(
        err, ERR_CONFLICT,
        "the operation is a step of %s, which is %s: cancel that one, and its steps are undone in their order",
        admit->undoes->op->parent, state_name(parent));
}

enum err_code parent_lets_go(const struct operation *op, enum state parent, struct err *err)
{
    if (state_terminal(parent))
        return ERR_NONE;
    return err_set(err, ERR_CONFLICT, "%s belongs to the steps of %s, which is %s", op->id, op->parent,
                   state_name(parent));
}
