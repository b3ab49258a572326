/* How an operation ends, and what is still to come then: the watch for late landings, the end of retention. */
#include "core/step_parts.h"

#include <assert.h>

#define TOOL_MISSING_RETAIN_MS (30LL * 86400000) /* of what ends meanwhile: as `retain` is by default */
#define REPEAT_ON_ITS_WAY_MS   600000            /* a ledger may be slow for that long, or for the window */

static int64_t min_time(int64_t a, int64_t b) /* 0 = never */
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

void step_start_watch(struct operation *op)
{
    if (op->watch_next == 0)
        op->watch_next = 1;
}

/* Terminal rows wake for the late-landing watch (design 7.3) and for the end of retention. */
void step_schedule_closed(struct ctx *c)
{
    struct operation *op = c->op;
    int64_t watch = 0;
    if (op->watch_next > 0 && !c->tool) /* a reload may bring it back, and with it the watch */
        watch = c->in->now_ms + TOOL_MISSING_MS;
    else if (op->watch_next > 0 && c->tool->has_lookup && op->watch_next <= (int)c->tool->reconcile.watch_count)
        watch = op->completed_ms + c->tool->reconcile.watch_ms[op->watch_next - 1];
    else
        op->watch_next = 0;
    step_wake_at(op, min_time(watch, op->retain_until_ms));
}

void step_keep(struct ctx *c)
{
    assert(state_terminal(c->op->state));
    c->op->retain_until_ms = c->in->now_ms + STEP_KEEP_MS;
    step_schedule_closed(c);
    c->fx->changed = true;
}

/* A repeat without a key finds its operation by the row alone (2.2.5): it stays for the window, and as much longer as a
 * call may be on its way to the ledger that was made within it. */
static int64_t retain_ms(const struct tool *tool)
{
    if (!tool)
        return TOOL_MISSING_RETAIN_MS;
    int64_t window = tool->repeat_window_ms;
    int64_t repeats_ms = window + (window < REPEAT_ON_ITS_WAY_MS ? window : REPEAT_ON_ITS_WAY_MS);
    return tool->retain_ms > repeats_ms ? tool->retain_ms : repeats_ms;
}

void step_end(struct ctx *c, enum cause cause, enum state to, enum reason reason, const char *text)
{
    struct operation *op = c->op;
    op->completed_ms = c->in->now_ms;
    op->retain_until_ms = op->completed_ms + retain_ms(c->tool);
    bool effect = to == STATE_COMPLETED_SUCCESS || to == STATE_COMPLETED_NOOP;
    op->may_have_applied = effect;
    op->unknown_since_ms = 0;
    op->absent_count = 0;
    step_move(c, cause, to, reason, text);
    step_schedule_closed(c);
}

void step_take_result(struct operation *op, const struct finding *finding)
{
    if (finding->external_id)
        op->external_id = finding->external_id;
    if (finding->result.p) {
        op->result = finding->result;
        op->result_bytes = (int64_t)finding->result.n;
    }
}

void step_succeed(struct ctx *c, enum cause cause, enum reason reason, const char *text)
{
    step_take_result(c->op, &c->in->finding);
    c->op->error = STR_NONE;
    step_end(c, cause, STATE_COMPLETED_SUCCESS, reason, text);
}

/* Proven no effect, and not to be tried again. */
void step_fail(struct ctx *c, enum cause cause, enum reason reason, const char *text)
{
    step_end(c, cause, STATE_FAILED_PERMANENT, reason, text);
}

/* Proven no effect: try again after delay_ms unless time is up. */
void step_fail_retryable(struct ctx *c, enum cause cause, enum reason reason, int64_t delay_ms, const char *text)
{
    struct operation *op = c->op;
    if (step_time_is_up(c)) {
        step_fail(c, cause, REASON_TIME_EXHAUSTED, text);
        return;
    }
    op->may_have_applied = false;
    op->unknown_since_ms = 0;
    op->absent_count = 0;
    op->retries++;
    step_move(c, cause, STATE_FAILED_RETRYABLE, reason, text);
    step_wake_at(op, c->in->now_ms + delay_ms);
}
