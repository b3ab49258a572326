/* People's steps: resolve, retry, cancel. */
#include "core/step_parts.h"

/* Guard mode: nobody sends it at once, it waits for the next begin, and has the total time for that. */
static void wait_for_executor(struct ctx *c)
{
    if (c->tool && c->tool->guard_lease_ms > 0)
        c->op->ready_ms = c->in->now_ms;
}

enum err_code step_resolve(struct ctx *c, struct err *err)
{
    struct operation *op = c->op;
    bool open_doubt = op->state == STATE_UNKNOWN_OUTCOME || op->state == STATE_ACKNOWLEDGED;
    if (step_is_parent(op))
        return step_resolve_parent(c, err);
    if (c->in->happened) {
        bool said_no_effect =
            op->state == STATE_FAILED_PERMANENT || op->state == STATE_FAILED_RETRYABLE || op->state == STATE_REJECTED;
        if (!open_doubt && !said_no_effect)
            return err_set(err, ERR_CONFLICT, "the operation is %s: there is nothing to resolve",
                           state_name(op->state));
        if (said_no_effect)
            step_incident(c, INCIDENT_LATE_LANDING, c->in->note);
        step_succeed(c, CAUSE_OPERATOR, said_no_effect ? REASON_LATE_LANDING : REASON_OPERATOR, c->in->note);
        return ERR_NONE;
    }
    if (!open_doubt)
        return err_set(err, ERR_CONFLICT,
                       "the operation is %s: only an unknown or acknowledged outcome can be declared absent",
                       state_name(op->state));
    step_start_watch(op);
    op->may_have_applied = false;
    if (op->state == STATE_ACKNOWLEDGED) { /* the table leads through unknown_outcome */
        if (op->unknown_since_ms == 0)
            op->unknown_since_ms = c->in->now_ms;
        step_move(c, CAUSE_OPERATOR, STATE_UNKNOWN_OUTCOME, REASON_OPERATOR, c->in->note);
    }
    op->unknown_since_ms = 0;
    if (c->in->allow_retry && c->tool) {
        op->retries = 0;
        op->absent_count = 0;
        wait_for_executor(c);
        step_move(c, CAUSE_OPERATOR, STATE_FAILED_RETRYABLE, REASON_OPERATOR, c->in->note);
        step_wake_at(op, c->in->now_ms);
    } else {
        step_fail(c, CAUSE_OPERATOR, REASON_OPERATOR, c->in->note);
    }
    return ERR_NONE;
}

enum err_code step_retry(struct ctx *c, struct err *err)
{
    struct operation *op = c->op;
    if (step_is_parent(op) && op->state != STATE_PENDING_DISPATCH)
        return step_retry_parent(c, err);
    switch (op->state) {
    case STATE_PENDING_DISPATCH:
    case STATE_FAILED_RETRYABLE: wait_for_executor(c); break;
    case STATE_ACKNOWLEDGED: break;
    case STATE_UNKNOWN_OUTCOME: /* looks and re-sends start over with all their time; re-sends stay bound to the
                                   contract */
        op->unknown_since_ms = c->in->now_ms;
        op->absent_count = 0;
        break;
    case STATE_PLANNED:
    case STATE_DISPATCHED:
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
    case STATE_COMPENSATING:
    case STATE_COMPENSATED:
        return err_set(err, ERR_CONFLICT, "the operation is %s: there is nothing to retry", state_name(op->state));
    }
    op->retries = 0;
    enum reason reason = op->reason == REASON_VERIFYING || op->reason == REASON_ACCEPTED ? op->reason : REASON_OPERATOR;
    step_move(c, CAUSE_OPERATOR, op->state, reason, c->in->note);
    step_wake_at(op, c->in->now_ms);
    return ERR_NONE;
}

enum err_code step_cancel(struct ctx *c, struct err *err)
{
    struct operation *op = c->op;
    if (step_is_parent(op) && (op->state == STATE_ACKNOWLEDGED || op->state == STATE_COMPENSATING))
        return step_cancel_parent(c, err);
    switch (op->state) {
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
        step_end(c, CAUSE_CANCEL, STATE_REJECTED, REASON_CANCELLED, c->in->note);
        return ERR_NONE;
    case STATE_FAILED_RETRYABLE:
        step_end(c, CAUSE_CANCEL, op->attempts == 0 ? STATE_REJECTED : STATE_FAILED_PERMANENT, REASON_CANCELLED,
                 c->in->note);
        return ERR_NONE;
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_UNKNOWN_OUTCOME:
        return err_set(err, ERR_CONFLICT, "the operation is %s: it may have happened and can not be cancelled",
                       state_name(op->state));
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
    case STATE_COMPENSATING:
    case STATE_COMPENSATED: break;
    }
    return err_set(err, ERR_CONFLICT, "the operation is %s already", state_name(op->state));
}
