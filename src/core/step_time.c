/* Time of an operation: backoff, leases, when it wakes, whether its time or its attempts are up. */
#include "core/step_parts.h"

int64_t step_doubled(int64_t base_ms, int times, int64_t max_ms)
{
    int64_t value = base_ms > 0 ? base_ms : 1;
    while (times-- > 0 && value < max_ms)
        value *= 2;
    return value < max_ms ? value : max_ms;
}

/* Exponential backoff with full jitter. */
int64_t step_backoff(const struct ctx *c)
{
    const struct retry_policy *retry = &c->tool->retry;
    int64_t cap = step_doubled(retry->backoff_ms, c->op->retries, retry->backoff_max_ms);
    return 1 + (int64_t)(c->in->random % (uint64_t)cap);
}

static void release_lease(struct operation *op)
{
    op->owner = NULL;
    op->lease_until_ms = 0;
}

void step_take_lease(struct ctx *c)
{
    c->op->owner = c->in->owner;
    c->op->lease_until_ms = c->in->now_ms + c->in->lease_ms;
    c->op->wake_at_ms = c->op->lease_until_ms;
}

void step_wake_at(struct operation *op, int64_t at_ms)
{
    release_lease(op);
    op->wake_at_ms = at_ms;
}

int64_t step_total_end(const struct operation *op, const struct tool *tool)
{
    int64_t since = op->not_before_ms > op->created_ms ? op->not_before_ms : op->created_ms;
    if (since < op->ready_ms) /* what people took to decide is not the provider's time */
        since = op->ready_ms;
    return since + tool->retry.total_ms;
}

bool step_total_is_over(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    return now_ms >= step_total_end(op, tool);
}

bool step_time_is_up(const struct ctx *c)
{
    return step_total_is_over(c->op, c->tool, c->in->now_ms);
}

bool step_attempts_are_up(const struct ctx *c)
{
    return c->op->attempts >= (int)c->tool->retry.attempts_max;
}
