/* An operation whose time has come: beginnings of attempts, what waits for its turn, leases that ended. */
#include "core/step_parts.h"

#include <assert.h>

/* ---- beginnings ---- */

/* What others took is not the provider's time. */
void step_leave_queue(struct ctx *c)
{
    if (c->op->state == STATE_PLANNED && c->op->reason == REASON_AWAITING_ENTITY)
        c->op->ready_ms = c->in->now_ms;
}

/* The ledger lets it into the queues, or gives it the entities and wakes it, with this very transition. */
void step_await_entity(struct ctx *c)
{
    struct operation *op = c->op;
    assert(op->state == STATE_PLANNED && c->tool);
    if (step_time_is_up(c)) {
        step_end(c, CAUSE_TIMER, STATE_REJECTED, REASON_EXPIRED,
                 "what it works on was not free within the tool's total time");
        return;
    }
    if (op->reason != REASON_AWAITING_ENTITY)
        step_move(c, CAUSE_HELD, STATE_PLANNED, REASON_AWAITING_ENTITY, NULL);
    c->fx->changed = true;
    step_wake_at(op, step_total_end(op, c->tool));
}

void step_dispatch(struct ctx *c)
{
    struct operation *op = c->op;
    assert(approval_complete(op)); /* step_wake() lets nothing else come here */
    step_leave_queue(c);
    op->tries++;
    op->attempts++;
    op->may_have_applied = true;
    if (op->first_sent_ms == 0)
        op->first_sent_ms = c->in->now_ms;
    step_sent_until(op, c->in->now_ms);
    step_move(c, CAUSE_DISPATCH, STATE_DISPATCHED, REASON_NONE, NULL);
    c->fx->events[c->fx->event_count - 1].attempt = op->tries;
    step_take_lease(c);
}

void step_hold(struct ctx *c)
{
    struct operation *op = c->op;
    bool waits_for_first = op->state == STATE_PLANNED || op->state == STATE_PENDING_DISPATCH;
    assert(!waits_for_first || approval_complete(op)); /* else a look-up waits */
    step_leave_queue(c);
    if (op->state == STATE_PLANNED)
        step_move(c, CAUSE_HELD, STATE_PENDING_DISPATCH, c->in->hold_reason, NULL);
    else if (waits_for_first && op->reason != c->in->hold_reason)
        step_move(c, CAUSE_HELD, op->state, c->in->hold_reason, NULL);
    c->fx->changed = true;
    step_wake_at(op, c->in->hold_until_ms);
}

/* No event: the lease's end tells of it. */
void step_renew(struct ctx *c)
{
    assert(c->op->state == STATE_DISPATCHED);
    step_take_lease(c);
    c->fx->changed = true;
}

void step_lookup_begin(struct ctx *c)
{
    struct operation *op = c->op;
    op->tries++;
    op->lookups++;
    c->fx->changed = true; /* the attempt row tells of it: no event of its own */
    step_take_lease(c);
}

/* ---- time and owners ---- */

static void wake_unknown(struct ctx *c)
{
    switch (step_next_strategy(c->op, c->tool, c->in->now_ms)) {
    case STRATEGY_RESEND: c->fx->action = ACTION_SEND; break;
    case STRATEGY_LOOKUP: c->fx->action = ACTION_LOOKUP; break;
    case STRATEGY_WEBHOOK:
        step_wake_at(c->op, c->op->unknown_since_ms + c->tool->reconcile.webhook_ms), c->fx->changed = true;
        break;
    case STRATEGY_MANUAL:
        if (c->op->reason == REASON_NEEDS_OPERATOR)
            step_wake_at(c->op, 0), c->fx->changed = true;
        else
            step_give_to_operator(c, CAUSE_GAVE_UP, "no automatic way to find out is left");
        break;
    }
}

static void wake_acknowledged(struct ctx *c)
{
    struct operation *op = c->op;
    int64_t since = op->unknown_since_ms ? op->unknown_since_ms : op->last_sent_ms;
    int64_t event_ms = step_event_until(c->tool, since);
    if (op->reason != REASON_VERIFYING && c->in->now_ms < event_ms) {
        step_wake_at(op, event_ms), c->fx->changed = true;
        return;
    }
    if (op->reason == REASON_VERIFYING || c->in->now_ms - since < c->tool->reconcile.give_up_ms) {
        c->fx->action = ACTION_LOOKUP;
        return;
    }
    if (op->unknown_since_ms == 0)
        op->unknown_since_ms = since;
    step_give_to_operator(c, CAUSE_GAVE_UP, "the provider accepted it and never said how it ended");
}

void step_owner_gone(struct ctx *c)
{
    if (c->op->state == STATE_DISPATCHED) /* "the owner is gone", never "nothing happened" (3.3) */
        step_become_unknown(c, CAUSE_OWNER_GONE, REASON_LEASE_LOST,
                            c->tool && c->tool->guard_lease_ms > 0 ? "the application's lease ended without a word"
                                                                   : "the gateway that sent it is gone");
}

static void wake_planned(struct ctx *c)
{
    struct operation *op = c->op;
    if (step_wait_for_approval(c))
        return;
    /* Who awaits its entities had its time come, by the clock of a gateway that may be ahead of this one. */
    if (op->not_before_ms > c->in->now_ms && op->reason != REASON_AWAITING_ENTITY)
        step_wake_at(op, op->not_before_ms), c->fx->changed = true;
    else if (step_approval_is_void(c))
        step_ask_anew(c);
    else
        c->fx->action = ACTION_SEND;
}

/* Guard mode: the application performs it, at its next begin. */
static void want_send(struct ctx *c)
{
    if (c->tool->guard_lease_ms == 0)
        c->fx->action = ACTION_SEND;
    else if (c->op->wake_at_ms != step_total_end(c->op, c->tool) || c->op->owner)
        step_wake_at(c->op, step_total_end(c->op, c->tool)), c->fx->changed = true;
}

void step_wake(struct ctx *c)
{
    struct operation *op = c->op;
    switch (op->state) {
    case STATE_PLANNED: wake_planned(c); break;
    case STATE_PENDING_DISPATCH:
        if (step_time_is_up(c))
            step_end(c, CAUSE_TIMER, STATE_REJECTED, REASON_EXPIRED, "not sent within the tool's total time");
        else
            want_send(c);
        break;
    case STATE_DISPATCHED: /* the lease ended */ step_owner_gone(c); break;
    case STATE_ACKNOWLEDGED:
        if (step_is_parent(op))
            step_wake_parent(c);
        else
            wake_acknowledged(c);
        break;
    case STATE_FAILED_RETRYABLE:
        if (step_time_is_up(c) && (op->reason != REASON_OPERATOR || c->tool->guard_lease_ms > 0))
            step_fail(c, CAUSE_TIMER, REASON_TIME_EXHAUSTED, "not done within the tool's total time");
        else
            want_send(c);
        break;
    case STATE_UNKNOWN_OUTCOME: wake_unknown(c); break;
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
    case STATE_COMPENSATED:
        if (op->retain_until_ms && op->retain_until_ms <= c->in->now_ms)
            c->fx->action = ACTION_EXPIRE;
        else if (op->watch_next > 0 && c->tool->has_lookup && op->watch_next <= (int)c->tool->reconcile.watch_count)
            c->fx->action = ACTION_LOOKUP;
        else
            step_schedule_closed(c), c->fx->changed = true;
        break;
    case STATE_COMPENSATING:
        if (step_is_parent(op))
            step_wake_parent(c);
        break;
    }
}

/* The registry no longer has the tool: nothing is sent, nothing is judged, nothing is lost. */
void step_wake_without_tool(struct ctx *c)
{
    struct operation *op = c->op;
    if (state_terminal(op->state)) {
        if (op->retain_until_ms && op->retain_until_ms <= c->in->now_ms)
            c->fx->action = ACTION_EXPIRE;
        else
            step_schedule_closed(c), c->fx->changed = true;
        return;
    }
    if (op->state == STATE_DISPATCHED) {
        step_owner_gone(c);
        return;
    }
    if (step_is_parent(op) && (op->state == STATE_ACKNOWLEDGED || op->state == STATE_COMPENSATING)) {
        step_wake_parent(c); /* what is to be undone is known without it */
        return;
    }
    if (op->state == STATE_PLANNED && step_wait_for_approval(c))
        return;
    if (op->reason != REASON_TOOL_MISSING)
        step_move(c, CAUSE_HELD, op->state, REASON_TOOL_MISSING, "the registry has no such tool");
    c->fx->changed = true;
    step_wake_at(op, c->in->now_ms + TOOL_MISSING_MS);
}
