/* Answers of call attempts (design 6). */
#include "core/step_parts.h"

static enum reason reason_of(enum outcome outcome)
{
    switch (outcome) {
    case OUTCOME_NOT_SENT: return REASON_NOT_SENT;
    case OUTCOME_ACCEPTED: return REASON_ACCEPTED;
    case OUTCOME_REFUSED: return REASON_PROVIDER_REFUSED;
    case OUTCOME_NOT_PROCESSED: return REASON_THROTTLED;
    case OUTCOME_KEY_IN_USE: return REASON_KEY_IN_USE;
    case OUTCOME_PROVIDER_ERROR: return REASON_PROVIDER_ERROR;
    case OUTCOME_TIMEOUT: return REASON_TIMEOUT;
    case OUTCOME_CONNECTION_LOST: return REASON_CONNECTION_LOST;
    case OUTCOME_UNREADABLE: return REASON_UNREADABLE_ANSWER;
    case OUTCOME_WRONG_OBJECT: return REASON_WRONG_OBJECT;
    case OUTCOME_LOST: return REASON_LEASE_LOST;
    case OUTCOME_OPEN:
    case OUTCOME_SUCCESS:
    case OUTCOME_NOOP:
    case OUTCOME_FOUND:
    case OUTCOME_SEVERAL:
    case OUTCOME_ABSENT:
    case OUTCOME_CANNOT_TELL:
    case OUTCOME_PENDING:
    case OUTCOME_FAILED_THERE:
    case OUTCOME_MORE:
    case OUTCOME_COUNT: break;
    }
    return REASON_NONE;
}

static void not_sent(struct ctx *c, bool doubt)
{
    struct operation *op = c->op;
    const char *text = c->in->finding.detail;
    op->attempts--; /* nothing left: spends time, not attempts (design 6) */
    if (op->attempts == 0)
        op->first_sent_ms = op->last_sent_ms = 0;
    if (doubt) {
        step_become_unknown(c, CAUSE_ANSWER, REASON_NOT_SENT, text);
        return;
    }
    op->may_have_applied = false;
    step_fail_retryable(c, CAUSE_ANSWER, REASON_NOT_SENT, step_backoff(c), text);
}

static void not_processed(struct ctx *c, bool doubt)
{
    const struct finding *finding = &c->in->finding;
    if (doubt) {
        step_become_unknown(c, CAUSE_ANSWER, REASON_THROTTLED, finding->detail);
        return;
    }
    c->op->may_have_applied = false;
    if (step_attempts_are_up(c)) {
        step_fail(c, CAUSE_ANSWER, REASON_ATTEMPTS_EXHAUSTED, finding->detail);
        return;
    }
    int64_t delay = step_backoff(c);
    if (delay < finding->retry_after_ms)
        delay = finding->retry_after_ms;
    step_fail_retryable(c, CAUSE_ANSWER, REASON_THROTTLED, delay, finding->detail);
}

/* A success after a re-send proves at least one effect. Where a look-up exists it counts them (case S65): a provider
 * may have ignored its own key. */
static void success_after_doubt(struct ctx *c)
{
    struct operation *op = c->op;
    step_take_result(op, &c->in->finding);
    op->error = STR_NONE;
    op->retries = 0;
    step_move(c, CAUSE_ANSWER, STATE_ACKNOWLEDGED, REASON_VERIFYING,
              "success after a re-send: counting effects by look-up");
    step_wake_at(op, c->in->now_ms);
}

void step_answer(struct ctx *c)
{
    struct operation *op = c->op;
    const struct finding *finding = &c->in->finding;
    bool doubt = op->unknown_since_ms != 0; /* an earlier attempt is not disproved: no clean failure counts (3.2) */
    if (finding->http_status)
        op->http_status = finding->http_status;
    if (finding->error.p)
        op->error = finding->error;
    enum reason reason = reason_of(finding->outcome);
    switch (finding->outcome) {
    case OUTCOME_SUCCESS:
        if (doubt && c->tool->has_lookup && step_has_strategy(c->tool, STRATEGY_LOOKUP))
            success_after_doubt(c);
        else
            step_succeed(c, CAUSE_ANSWER, REASON_NONE, finding->detail);
        break;
    case OUTCOME_NOOP:
        step_take_result(op, finding);
        op->error = STR_NONE;
        step_end(c, CAUSE_ANSWER, STATE_COMPLETED_NOOP, REASON_NONE, finding->detail);
        break;
    case OUTCOME_ACCEPTED: /* the id is kept at once (case S81) */
        step_take_result(op, finding);
        op->retries = 0;
        step_sent_until(op, c->in->now_ms); /* as in step_become_unknown(): settle and give_up count from here */
        step_move(c, CAUSE_ANSWER, STATE_ACKNOWLEDGED, REASON_ACCEPTED, finding->detail);
        step_wait_for_outcome(c);
        break;
    case OUTCOME_NOT_SENT: not_sent(c, doubt); break;
    case OUTCOME_NOT_PROCESSED: not_processed(c, doubt); break;
    case OUTCOME_REFUSED:
        if (doubt)
            step_become_unknown(c, CAUSE_ANSWER, reason, finding->detail);
        else
            step_fail(c, CAUSE_ANSWER, reason, finding->detail);
        break;
    case OUTCOME_WRONG_OBJECT:
        step_incident(c, INCIDENT_WRONG_OBJECT, finding->detail);
        step_become_unknown(c, CAUSE_ANSWER, reason, finding->detail);
        break;
    case OUTCOME_KEY_IN_USE:
    case OUTCOME_PROVIDER_ERROR:
    case OUTCOME_TIMEOUT:
    case OUTCOME_CONNECTION_LOST:
    case OUTCOME_UNREADABLE:
    case OUTCOME_LOST: step_become_unknown(c, CAUSE_ANSWER, reason, finding->detail); break;
    case OUTCOME_OPEN: /* the rest belongs to look-ups: a broken adapter must not close anything */
    case OUTCOME_FOUND:
    case OUTCOME_SEVERAL:
    case OUTCOME_ABSENT:
    case OUTCOME_CANNOT_TELL:
    case OUTCOME_PENDING:
    case OUTCOME_FAILED_THERE:
    case OUTCOME_MORE:
    case OUTCOME_COUNT:
        step_become_unknown(c, CAUSE_ANSWER, REASON_UNREADABLE_ANSWER, "the adapter gave no outcome");
        break;
    }
}
