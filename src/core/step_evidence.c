/* Evidence that comes late: answers to attempts after somebody else moved the operation (design 3.4). */
#include "core/step_parts.h"

/* Guard mode: the executor whose lease ended says, late, that it had no effect, and nobody else ever began. It is the
 * one who would have had it: that is proof (design 11.2). */
static bool executor_takes_back(struct ctx *c)
{
    struct operation *op = c->op;
    const struct finding *finding = &c->in->finding;
    bool proof = finding->outcome == OUTCOME_REFUSED || finding->outcome == OUTCOME_NOT_PROCESSED;
    if (!c->tool || c->tool->guard_lease_ms == 0 || !proof || op->state != STATE_UNKNOWN_OUTCOME ||
        c->in->attempt != op->tries)
        return false;
    op->error = finding->error;
    op->may_have_applied = false;
    if (finding->outcome == OUTCOME_NOT_PROCESSED && !step_attempts_are_up(c))
        step_fail_retryable(c, CAUSE_EVIDENCE, REASON_THROTTLED, 0, finding->detail);
    else
        step_fail(c, CAUSE_EVIDENCE, REASON_PROVIDER_REFUSED, finding->detail);
    return true;
}

/* An answer arrived after somebody else moved the operation (design 3.4): never thrown away. */
void step_evidence(struct ctx *c)
{
    struct operation *op = c->op;
    const struct finding *finding = &c->in->finding;
    bool effect =
        finding->outcome == OUTCOME_SUCCESS || finding->outcome == OUTCOME_FOUND || finding->outcome == OUTCOME_SEVERAL;
    if (finding->outcome == OUTCOME_SEVERAL && !op->duplicate_seen)
        step_incident(c, INCIDENT_DUPLICATE_EFFECT, finding->detail);
    if (finding->outcome == OUTCOME_WRONG_OBJECT) /* told late, it is no less strange (5.4) */
        step_incident(c, INCIDENT_WRONG_OBJECT, finding->detail);
    if (!effect && executor_takes_back(c))
        return;
    if (!effect) {
        if (finding->outcome != OUTCOME_ABSENT)
            op->absent_count = 0; /* absent answers before and after this one are not consecutive (7.1) */
        step_note(c, CAUSE_EVIDENCE, op->state, finding->detail ? finding->detail : outcome_name(finding->outcome));
        return;
    }
    switch (op->state) {
    case STATE_DISPATCHED: /* claimed and not yet moved, or sent again: then effects are counted later */
        if (op->attempts > 1)
            step_start_watch(op);
        step_succeed(c, CAUSE_EVIDENCE, REASON_RECONCILED, finding->detail);
        break;
    case STATE_UNKNOWN_OUTCOME:
    case STATE_ACKNOWLEDGED: step_succeed(c, CAUSE_EVIDENCE, REASON_RECONCILED, finding->detail); break;
    case STATE_FAILED_RETRYABLE:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
        step_incident(c, INCIDENT_LATE_LANDING,
                      "an answer that proves the effect arrived after the operation was closed");
        step_succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, finding->detail);
        break;
    case STATE_COMPLETED_SUCCESS:
        if (op->external_id && finding->external_id && !text_equal(op->external_id, finding->external_id))
            step_incident(c, INCIDENT_DUPLICATE_EFFECT, "a late answer names another external id");
        else if (c->tool && c->tool->guard_lease_ms > 0 && op->attempts > 1)
            step_incident(c, INCIDENT_DUPLICATE_EFFECT, "two executors say that they performed it");
        step_note(c, CAUSE_EVIDENCE, op->state, finding->external_id ? finding->external_id : finding->detail);
        break;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_COMPLETED_NOOP:
    case STATE_COMPENSATING:
    case STATE_COMPENSATED:
        step_note(c, CAUSE_EVIDENCE, op->state, finding->external_id ? finding->external_id : finding->detail);
        break;
    }
}
