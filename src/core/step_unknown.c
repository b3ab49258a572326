/* Unknown outcomes and their reconciliation (design 7): which strategy is next, and when. */
#include "core/step_parts.h"

bool step_has_strategy(const struct tool *tool, enum strategy strategy)
{
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++)
        if (tool->reconcile.strategies[i] == strategy)
            return true;
    return false;
}

/* What leaves then arrives while the provider still knows the first request's key. */
bool step_key_is_known(const struct operation *op, const struct tool *tool, int64_t sent_ms)
{
    int64_t leaves_ms = sent_ms > op->first_sent_ms ? sent_ms : op->first_sent_ms; /* a clock may have been set back */
    int64_t arrived_ms = leaves_ms + tool_timeout_ms(tool) + tool->reconcile.settle_ms;
    return arrived_ms - op->first_sent_ms < tool->provider->key_retention_ms;
}

bool step_key_lasts(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    bool by_key = tool->class == CLASS_INTERNAL_WRITE || tool->idempotent_by == IDEMPOTENT_BY_KEY;
    return !by_key || step_key_is_known(op, tool, now_ms);
}

bool step_may_resend(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    if (!tool_may_resend(tool) || !step_has_strategy(tool, STRATEGY_RESEND) || tool->guard_lease_ms > 0)
        return false;
    if (step_total_is_over(op, tool, now_ms))
        return false;
    if (op->attempts >= (int)tool->retry.attempts_max)
        return false;
    /* The provider's definite word under this key will be the same word again. */
    if (op->reason == REASON_PROVIDER_REFUSED || op->reason == REASON_WRONG_OBJECT ||
        op->reason == REASON_NEEDS_OPERATOR)
        return false;
    return step_key_lasts(op, tool, now_ms);
}

static bool may_look_up(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    return tool->has_lookup && step_has_strategy(tool, STRATEGY_LOOKUP) && op->reason != REASON_NEEDS_OPERATOR &&
           now_ms - op->unknown_since_ms < tool->reconcile.give_up_ms;
}

/* Waiting for the provider's event is a strategy of its own: for a while nothing is asked and nothing sent. */
static bool may_wait_for_event(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    return op->reason != REASON_NEEDS_OPERATOR && now_ms - op->unknown_since_ms < tool->reconcile.webhook_ms;
}

/* Which of the tool's strategies is next, in its order. */
enum strategy step_next_strategy(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++) {
        enum strategy strategy = tool->reconcile.strategies[i];
        if (strategy == STRATEGY_RESEND && step_may_resend(op, tool, now_ms))
            return strategy;
        if (strategy == STRATEGY_LOOKUP && may_look_up(op, tool, now_ms))
            return strategy;
        if (strategy == STRATEGY_WEBHOOK && may_wait_for_event(op, tool, now_ms))
            return strategy;
        if (strategy == STRATEGY_MANUAL)
            break;
    }
    return STRATEGY_MANUAL;
}

void step_give_to_operator(struct ctx *c, enum cause cause, const char *text)
{
    step_move(c, cause, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR, text);
    step_wake_at(c->op, 0);
}

int64_t step_lookup_delay(const struct ctx *c)
{
    const struct reconcile_policy *policy = &c->tool->reconcile;
    return step_doubled(policy->interval_ms, c->op->retries, policy->interval_max_ms);
}

/* Until when an accepted operation waits for the provider's event before it is looked up; `since` when it does not. */
int64_t step_event_until(const struct tool *tool, int64_t since)
{
    bool may_look = tool->has_lookup && step_has_strategy(tool, STRATEGY_LOOKUP);
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++) {
        if (tool->reconcile.strategies[i] == STRATEGY_LOOKUP && may_look)
            break;
        if (tool->reconcile.strategies[i] == STRATEGY_WEBHOOK)
            return since + (may_look ? tool->reconcile.webhook_ms : tool->reconcile.give_up_ms);
    }
    return since;
}

/* The provider has accepted it and will finish later. */
void step_wait_for_outcome(struct ctx *c)
{
    int64_t look_ms = c->in->now_ms + step_lookup_delay(c);
    int64_t event_ms = step_event_until(c->tool, c->in->now_ms);
    step_wake_at(c->op, look_ms > event_ms ? look_ms : event_ms);
}

/* From when on settle counts (7.1). A request may have left, and with a whole answer the provider was done with it, up
 * to now. Where no answer can come any more (the connection broke, the owner died), or the answer is that an earlier
 * request is still worked on, the provider may go on for as long as it may take to answer. */
static int64_t last_moment(const struct ctx *c, enum reason reason)
{
    bool still_working = reason == REASON_CONNECTION_LOST || reason == REASON_LEASE_LOST || reason == REASON_KEY_IN_USE;
    if (!still_working)
        return c->in->now_ms;
    return c->in->now_ms + (c->tool ? tool_timeout_ms(c->tool) : TOOL_MISSING_MS);
}

/* An answer to a later request says nothing of when an earlier one is over. */
void step_sent_until(struct operation *op, int64_t at_ms)
{
    if (op->last_sent_ms < at_ms)
        op->last_sent_ms = at_ms;
}

/* Enters or stays in unknown_outcome and plans what comes next. */
void step_become_unknown(struct ctx *c, enum cause cause, enum reason reason, const char *text)
{
    struct operation *op = c->op;
    op->may_have_applied = true;
    if (op->unknown_since_ms == 0) {
        op->unknown_since_ms = c->in->now_ms;
        op->retries = 0;
    }
    op->absent_count = 0;
    step_sent_until(op, last_moment(c, reason));
    step_move(c, cause, STATE_UNKNOWN_OUTCOME, reason, text);
    if (!c->tool) { /* a reload may bring it back, and with it the ways to find out */
        step_wake_at(op, c->in->now_ms + TOOL_MISSING_MS);
        return;
    }
    int64_t delay = 0;
    switch (step_next_strategy(op, c->tool, c->in->now_ms)) {
    case STRATEGY_RESEND:
        delay = c->in->finding.retry_after_ms > 0 ? c->in->finding.retry_after_ms : step_backoff(c);
        op->retries++;
        break;
    case STRATEGY_LOOKUP: /* presence is proof at once: the first look needs no delay; intervals start anew */
        op->retries = 0;
        break;
    case STRATEGY_WEBHOOK: delay = op->unknown_since_ms + c->tool->reconcile.webhook_ms - c->in->now_ms; break;
    case STRATEGY_MANUAL:
        op->reason = REASON_NEEDS_OPERATOR;
        c->fx->events[c->fx->event_count - 1].reason = reason; /* the event keeps what happened */
        step_wake_at(op, 0);
        return;
    }
    step_wake_at(op, c->in->now_ms + delay);
}
