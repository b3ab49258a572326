/* Compensation (design 10.1): the operation that is undone. */
#include "core/step_parts.h"

#include <assert.h>

enum err_code step_compensate(struct ctx *c, struct err *err)
{
    struct operation *op = c->op;
    assert(c->in->compensation);
    if (op->compensates)
        return err_set(err, ERR_CONFLICT, "the operation undoes %s: that can not be undone in turn", op->compensates);
    if (op->state != STATE_COMPLETED_SUCCESS)
        return err_set(err, ERR_CONFLICT, "the operation is %s: only what has succeeded can be compensated",
                       state_name(op->state));
    op->completed_ms = 0;
    op->compensation = c->in->compensation;
    step_move(c, CAUSE_COMPENSATION, STATE_COMPENSATING, REASON_NONE, c->in->note);
    step_wake_at(op, 0); /* the end of the compensation moves it on, in the same transaction */
    return ERR_NONE;
}

static void close_again(struct ctx *c, enum state to, enum reason reason, const char *text)
{
    struct operation *op = c->op;
    op->completed_ms = c->in->now_ms;
    if (op->retain_until_ms < c->in->retain_until_ms)
        op->retain_until_ms = c->in->retain_until_ms;
    step_move(c, CAUSE_COMPENSATION, to, reason, text);
    step_wake_at(op, op->watch_next > 0 ? c->in->now_ms : op->retain_until_ms);
}

static void compensated(struct ctx *c)
{
    c->op->compensation = c->in->compensation;
    c->op->watch_next = 0; /* what a look-up would show now is no evidence of the call */
    close_again(c, STATE_COMPENSATED, REASON_NONE, c->in->compensation);
}

/* It still stands. People who said no need not be told of it by an incident. */
static void not_compensated(struct ctx *c)
{
    bool by_people = c->in->ended_reason == REASON_DENIED || c->in->ended_reason == REASON_CANCELLED;
    close_again(c, STATE_COMPLETED_SUCCESS, REASON_COMPENSATION_FAILED, c->in->compensation);
    if (!by_people)
        step_incident(c, INCIDENT_COMPENSATION_FAILED, c->in->note);
}

/* A compensation that was closed as without effect may turn out to have happened (3.4), also while a later version of
 * it is under way, or has undone the operation already. */
void step_compensation_ended(struct ctx *c)
{
    struct operation *op = c->op;
    bool effect = c->in->ended == STATE_COMPLETED_SUCCESS || c->in->ended == STATE_COMPLETED_NOOP;
    bool latest = text_equal(op->compensation, c->in->compensation);
    switch (op->state) {
    case STATE_COMPENSATING:
        if (effect)
            compensated(c);
        else if (latest)
            not_compensated(c);
        break;
    case STATE_COMPLETED_SUCCESS:
        if (!effect)
            break;
        op->completed_ms = 0;
        step_move(c, CAUSE_COMPENSATION, STATE_COMPENSATING, REASON_NONE, c->in->compensation);
        compensated(c);
        break;
    case STATE_COMPENSATED:
        if (!effect || latest)
            break;
        step_incident(c, INCIDENT_DUPLICATE_EFFECT, "it was undone more than once");
        step_note(c, CAUSE_COMPENSATION, op->state, c->in->compensation);
        break;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_COMPLETED_NOOP:
    case STATE_FAILED_RETRYABLE:
    case STATE_FAILED_PERMANENT:
    case STATE_UNKNOWN_OUTCOME:
    case STATE_REJECTED: break; /* never undone: the table leads nowhere near */
    }
}
