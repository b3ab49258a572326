/* Answers of look-ups (design 7). */
#include "core/step_parts.h"

static void look_again(struct ctx *c, const char *text)
{
    int64_t delay = step_lookup_delay(c);
    c->op->retries++;
    step_note(c, CAUSE_LOOKUP, c->op->state, text);
    step_wake_at(c->op, c->in->now_ms + delay);
}

static void several(struct ctx *c)
{
    step_incident(c, INCIDENT_DUPLICATE_EFFECT, c->in->finding.detail);
    step_succeed(c, CAUSE_LOOKUP, REASON_DUPLICATE_EFFECT, c->in->finding.detail);
}

static void proven_absent(struct ctx *c)
{
    struct operation *op = c->op;
    step_start_watch(op);
    op->may_have_applied = false;
    op->retries = 0;
    bool by_nature = c->tool->class == CLASS_EXTERNAL_IDEMPOTENT && c->tool->idempotent_by == IDEMPOTENT_BY_NATURE;
    bool harmless = tool_may_resend(c->tool) && (!by_nature || step_has_strategy(c->tool, STRATEGY_RESEND));
    if (harmless && !step_attempts_are_up(c))
        step_fail_retryable(c, CAUSE_LOOKUP, REASON_ABSENT, step_backoff(c), "no effect at the provider");
    else
        step_fail(c, CAUSE_LOOKUP, REASON_ABSENT, "no effect at the provider");
}

static void absent_while_unknown(struct ctx *c)
{
    struct operation *op = c->op;
    const struct reconcile_policy *policy = &c->tool->reconcile;
    int64_t began_ms = c->in->began_ms ? c->in->began_ms : c->in->now_ms; /* the answer may be as old as the question */
    bool settled = began_ms - op->last_sent_ms >= policy->settle_ms;
    if (!settled) { /* the provider may still be working: presence would be proof, absence is not */
        look_again(c, "absent, but the provider's settle time is not over");
        return;
    }
    op->absent_count++;
    if (op->absent_count >= (int)policy->absent_times)
        proven_absent(c);
    else
        look_again(c, "absent");
}

static void lookup_while_unknown(struct ctx *c)
{
    struct operation *op = c->op;
    const struct finding *finding = &c->in->finding;
    if (finding->outcome != OUTCOME_ABSENT) /* absences count in a row only (7.1) */
        op->absent_count = 0;
    switch (finding->outcome) {
    case OUTCOME_FOUND: step_succeed(c, CAUSE_LOOKUP, REASON_RECONCILED, finding->detail); break;
    case OUTCOME_SEVERAL: several(c); break;
    case OUTCOME_PENDING:
        step_take_result(op, finding);
        step_move(c, CAUSE_LOOKUP, STATE_ACKNOWLEDGED, REASON_ACCEPTED, finding->detail);
        step_wait_for_outcome(c);
        break;
    case OUTCOME_FAILED_THERE: /* something exists and ended badly: a person must judge (case S81) */
        step_take_result(op, finding);
        step_give_to_operator(c, CAUSE_LOOKUP, finding->detail);
        break;
    case OUTCOME_WRONG_OBJECT:
        step_incident(c, INCIDENT_WRONG_OBJECT, finding->detail);
        step_give_to_operator(c, CAUSE_LOOKUP, finding->detail);
        break;
    case OUTCOME_ABSENT: absent_while_unknown(c); break;
    default: /* every other word is cannot_tell (7.1) */
        look_again(c, finding->detail ? finding->detail : "the look-up could not tell");
        break;
    }
}

static void lookup_while_acknowledged(struct ctx *c)
{
    struct operation *op = c->op;
    const struct finding *finding = &c->in->finding;
    bool verifying = op->reason == REASON_VERIFYING;
    switch (finding->outcome) {
    case OUTCOME_FOUND:
        step_succeed(c, CAUSE_LOOKUP, verifying ? REASON_NONE : REASON_RECONCILED, finding->detail);
        break;
    case OUTCOME_SEVERAL: several(c); break;
    case OUTCOME_FAILED_THERE:
    case OUTCOME_WRONG_OBJECT:
        if (finding->outcome == OUTCOME_WRONG_OBJECT)
            step_incident(c, INCIDENT_WRONG_OBJECT, finding->detail);
        op->may_have_applied = true;
        if (op->unknown_since_ms == 0)
            op->unknown_since_ms = c->in->now_ms;
        step_give_to_operator(c, CAUSE_LOOKUP, finding->detail);
        break;
    default:
        if (verifying) { /* the provider's own confirmation stands; look again later for a second effect */
            step_start_watch(op);
            step_succeed(c, CAUSE_LOOKUP, REASON_NONE, "confirmed by the provider, effects not counted yet");
        } else {
            look_again(c, finding->detail ? finding->detail : outcome_name(finding->outcome));
        }
        break;
    }
}

static void next_watch(struct ctx *c, const char *text)
{
    c->op->watch_next++;
    step_note(c, CAUSE_LOOKUP, c->op->state, text);
    step_schedule_closed(c);
}

/* Late-landing watch: the operation is closed. */
static void lookup_while_closed(struct ctx *c)
{
    struct operation *op = c->op;
    const struct finding *finding = &c->in->finding;
    bool said_no_effect = op->state == STATE_FAILED_PERMANENT || op->state == STATE_REJECTED;
    bool seen = finding->outcome == OUTCOME_FOUND || finding->outcome == OUTCOME_SEVERAL;
    if (finding->outcome == OUTCOME_SEVERAL && !op->duplicate_seen)
        step_incident(c, INCIDENT_DUPLICATE_EFFECT, finding->detail);
    if (seen && said_no_effect) {
        step_incident(c, INCIDENT_LATE_LANDING, "closed as absent, the effect showed up at the provider later");
        op->watch_next++;
        step_succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, finding->detail);
        return;
    }
    next_watch(c, outcome_name(finding->outcome));
}

void step_lookup_answer(struct ctx *c)
{
    switch (c->op->state) {
    case STATE_UNKNOWN_OUTCOME: lookup_while_unknown(c); break;
    case STATE_ACKNOWLEDGED: lookup_while_acknowledged(c); break;
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
    case STATE_COMPENSATED: lookup_while_closed(c); break;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_FAILED_RETRYABLE:
    case STATE_COMPENSATING:
        step_note(c, CAUSE_LOOKUP, c->op->state, "a look-up answered that nobody waits for");
        break;
    }
}
