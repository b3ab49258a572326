#include "ledger/compensation.h"

#include "core/step.h"

bool compensation_settles(const struct ledger_transition *change, const struct operation *original, struct arena *arena,
                          struct settlement *out)
{
    const struct operation *by = change->op;
    struct step_effects effects;
    struct step_input in = {
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
    out->op = *original;
    step(&out->op, NULL, &in, &effects, NULL);
    if (!effects.changed)
        return false;
    out->change = (struct ledger_transition){.op = &out->op, .event_count = effects.event_count};
    memcpy(out->change.events, effects.events, effects.event_count * sizeof *effects.events);
    for (size_t i = 0; i < effects.incident_count; i++) {
        struct incident *incident = &out->change.incidents[out->change.incident_count++];
        *incident = (struct incident){
            .tenant = original->tenant,
            .operation = out->op.id,
            .kind = effects.incidents[i].kind,
            .at_ms = in.now_ms,
            .note = effects.incidents[i].note,
        };
        memcpy(incident->id, change->incident_id, sizeof incident->id);
    }
    return true;
}

void compensation_settled(const struct settlement *settlement, struct arena *arena, struct ledger_transition *change)
{
    struct ledger_undone *undone = arena_zero(arena, sizeof *undone);
    undone->op = operation_copy(arena, &settlement->op);
    undone->event_count = settlement->change.event_count;
    memcpy(undone->events, settlement->change.events, sizeof undone->events);
    for (size_t i = 0; i < undone->event_count; i++)
        undone->events[i].note = arena_copy_text(arena, undone->events[i].note);
    undone->incident = settlement->change.incident_count > 0;
    change->undone = undone;
}

enum err_code compensation_check(const struct ledger_admit *admit, struct err *err)
{
    const struct operation *op = admit->admission.op;
    bool fits =
        !op->compensates == !admit->undoes && (!admit->undoes || strcmp(admit->undoes->op->id, op->compensates) == 0);
    return fits ? ERR_NONE : err_set(err, ERR_INTERNAL, "operation %s does not come with what it undoes", op->id);
}
