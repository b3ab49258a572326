#include "core/inbox.h"
#include "core/playbook.h"
#include "core/step_parts.h"

#include <assert.h>

#define TOOL_MISSING_MS        60000 /* until it is looked again whether a reload has brought a missing tool back */
#define TOOL_MISSING_RETAIN_MS (30LL * 86400000) /* of what ends meanwhile: as `retain` is by default */
#define REPEAT_ON_ITS_WAY_MS   600000            /* a ledger may be slow for that long, or for the window */

/* ---- recording ---- */

void step_note(struct ctx *c, enum cause cause, enum state from, const char *text)
{
    assert(c->fx->event_count < STEP_EVENTS_MAX);
    c->fx->events[c->fx->event_count++] = (struct event){
        .at_ms = c->in->now_ms,
        .cause = cause,
        .from = from,
        .to = c->op->state,
        .reason = c->op->reason,
        .actor = c->in->actor ? c->in->actor : "onced",
        .attempt = c->in->attempt,
        .note = text,
    };
    c->fx->changed = true;
}

/* More than one effect: whoever is told of it is told, too, what would undo one. */
static const char *with_proposal(const struct ctx *c, const char *text)
{
    const struct playbook *playbook = c->tool ? playbook_proposed(c->tool) : NULL;
    if (!playbook || !c->in->arena)
        return text;
    return arena_printf(c->in->arena, "%s%splaybook %s (%s) would undo the recorded effect", text ? text : "",
                        text ? "; " : "", playbook->name, playbook->tool);
}

void step_incident(struct ctx *c, enum incident_kind kind, const char *text)
{
    assert(c->fx->incident_count < STEP_INCIDENTS_MAX);
    c->fx->incidents[c->fx->incident_count].kind = kind;
    c->fx->incidents[c->fx->incident_count++].note = kind == INCIDENT_DUPLICATE_EFFECT ? with_proposal(c, text) : text;
    if (kind == INCIDENT_DUPLICATE_EFFECT)
        c->op->duplicate_seen = true;
}

static void check(const struct operation *op)
{
    bool no_effect = op->state == STATE_FAILED_RETRYABLE || op->state == STATE_FAILED_PERMANENT ||
                     op->state == STATE_REJECTED || op->state == STATE_PLANNED || op->state == STATE_PENDING_DISPATCH;
    assert(!(no_effect && op->may_have_applied));               /* 3.2 */
    assert(!(op->state == STATE_REJECTED && op->attempts > 0)); /* nothing was ever sent */
    assert(state_terminal(op->state) == (op->completed_ms != 0));
    assert(!(op->state == STATE_UNKNOWN_OUTCOME && op->unknown_since_ms == 0));
}

/* Whoever sends something itself comes to these only by way of what was sent. */
static bool only_parents_move(enum state from, enum state to)
{
    bool unsent = from == STATE_PLANNED || from == STATE_PENDING_DISPATCH;
    return (unsent && to == STATE_ACKNOWLEDGED) ||
           (from == STATE_ACKNOWLEDGED && (to == STATE_FAILED_PERMANENT || to == STATE_COMPENSATING));
}

/* The one function that moves. */
void step_move(struct ctx *c, enum cause cause, enum state to, enum reason reason, const char *text)
{
    enum state from = c->op->state;
    bool evidence = cause == CAUSE_EVIDENCE || cause == CAUSE_LOOKUP || cause == CAUSE_OPERATOR;
    assert(from == to || state_may_move(from, to, evidence));
    assert(step_is_parent(c->op) || !only_parents_move(from, to));
    c->op->state = to;
    c->op->reason = reason;
    step_note(c, cause, from, text);
}

/* ---- helpers on time ---- */

static int64_t min_time(int64_t a, int64_t b) /* 0 = never */
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

static int64_t doubled(int64_t base_ms, int times, int64_t max_ms)
{
    int64_t value = base_ms > 0 ? base_ms : 1;
    while (times-- > 0 && value < max_ms)
        value *= 2;
    return value < max_ms ? value : max_ms;
}

/* Exponential backoff with full jitter. */
static int64_t backoff(const struct ctx *c)
{
    const struct retry_policy *retry = &c->tool->retry;
    int64_t cap = doubled(retry->backoff_ms, c->op->retries, retry->backoff_max_ms);
    return 1 + (int64_t)(c->in->random % (uint64_t)cap);
}

static void release_lease(struct operation *op)
{
    op->owner = NULL;
    op->lease_until_ms = 0;
}

static void take_lease(struct ctx *c)
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

static bool total_is_over(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    return now_ms >= step_total_end(op, tool);
}

static bool time_is_up(const struct ctx *c)
{
    return total_is_over(c->op, c->tool, c->in->now_ms);
}

static bool attempts_are_up(const struct ctx *c)
{
    return c->op->attempts >= (int)c->tool->retry.attempts_max;
}

/* ---- endings ---- */

static void start_watch(struct operation *op)
{
    if (op->watch_next == 0)
        op->watch_next = 1;
}

/* Terminal rows wake for the late-landing watch (design 7.3) and for the end of retention. */
static void schedule_closed(struct ctx *c)
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

static void keep(struct ctx *c)
{
    assert(state_terminal(c->op->state));
    c->op->retain_until_ms = c->in->now_ms + STEP_KEEP_MS;
    schedule_closed(c);
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
    schedule_closed(c);
}

static void take_result(struct operation *op, const struct finding *finding)
{
    if (finding->external_id)
        op->external_id = finding->external_id;
    if (finding->result.p) {
        op->result = finding->result;
        op->result_bytes = (int64_t)finding->result.n;
    }
}

static void succeed(struct ctx *c, enum cause cause, enum reason reason, const char *text)
{
    take_result(c->op, &c->in->finding);
    c->op->error = STR_NONE;
    step_end(c, cause, STATE_COMPLETED_SUCCESS, reason, text);
}

/* Proven no effect, and not to be tried again. */
static void fail(struct ctx *c, enum cause cause, enum reason reason, const char *text)
{
    step_end(c, cause, STATE_FAILED_PERMANENT, reason, text);
}

/* Proven no effect: try again after delay_ms unless time is up. */
static void fail_retryable(struct ctx *c, enum cause cause, enum reason reason, int64_t delay_ms, const char *text)
{
    struct operation *op = c->op;
    if (time_is_up(c)) {
        fail(c, cause, REASON_TIME_EXHAUSTED, text);
        return;
    }
    op->may_have_applied = false;
    op->unknown_since_ms = 0;
    op->absent_count = 0;
    op->retries++;
    step_move(c, cause, STATE_FAILED_RETRYABLE, reason, text);
    step_wake_at(op, c->in->now_ms + delay_ms);
}

/* ---- unknown outcome and its reconciliation (design 7) ---- */

static bool has_strategy(const struct tool *tool, enum strategy strategy)
{
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++)
        if (tool->reconcile.strategies[i] == strategy)
            return true;
    return false;
}

/* What leaves then arrives while the provider still knows the first request's key. */
static bool key_is_known(const struct operation *op, const struct tool *tool, int64_t sent_ms)
{
    int64_t leaves_ms = sent_ms > op->first_sent_ms ? sent_ms : op->first_sent_ms; /* a clock may have been set back */
    int64_t arrived_ms = leaves_ms + tool->provider->timeout_ms + tool->reconcile.settle_ms;
    return arrived_ms - op->first_sent_ms < tool->provider->key_retention_ms;
}

bool step_key_lasts(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    bool by_key = tool->class == CLASS_INTERNAL_WRITE || tool->idempotent_by == IDEMPOTENT_BY_KEY;
    return !by_key || key_is_known(op, tool, now_ms);
}

bool step_may_resend(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    if (!tool_may_resend(tool) || !has_strategy(tool, STRATEGY_RESEND) || tool->guard_lease_ms > 0)
        return false;
    if (total_is_over(op, tool, now_ms))
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
    return tool->has_lookup && has_strategy(tool, STRATEGY_LOOKUP) && op->reason != REASON_NEEDS_OPERATOR &&
           now_ms - op->unknown_since_ms < tool->reconcile.give_up_ms;
}

/* Waiting for the provider's event is a strategy of its own: for a while nothing is asked and nothing sent. */
static bool may_wait_for_event(const struct operation *op, const struct tool *tool, int64_t now_ms)
{
    return op->reason != REASON_NEEDS_OPERATOR && now_ms - op->unknown_since_ms < tool->reconcile.webhook_ms;
}

/* Which of the tool's strategies is next, in its order. */
static enum strategy next_strategy(const struct operation *op, const struct tool *tool, int64_t now_ms)
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

static void give_to_operator(struct ctx *c, enum cause cause, const char *text)
{
    step_move(c, cause, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR, text);
    step_wake_at(c->op, 0);
}

static int64_t lookup_delay(const struct ctx *c)
{
    const struct reconcile_policy *policy = &c->tool->reconcile;
    return doubled(policy->interval_ms, c->op->retries, policy->interval_max_ms);
}

/* Until when an accepted operation waits for the provider's event before it is looked up; `since` when it does not. */
static int64_t event_until(const struct tool *tool, int64_t since)
{
    bool may_look = tool->has_lookup && has_strategy(tool, STRATEGY_LOOKUP);
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++) {
        if (tool->reconcile.strategies[i] == STRATEGY_LOOKUP && may_look)
            break;
        if (tool->reconcile.strategies[i] == STRATEGY_WEBHOOK)
            return since + (may_look ? tool->reconcile.webhook_ms : tool->reconcile.give_up_ms);
    }
    return since;
}

/* The provider has accepted it and will finish later. */
static void wait_for_outcome(struct ctx *c)
{
    int64_t now_ms = c->in->now_ms, look_ms = now_ms + lookup_delay(c), event_ms = event_until(c->tool, now_ms);
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
    return c->in->now_ms + (c->tool ? c->tool->provider->timeout_ms : TOOL_MISSING_MS);
}

/* An answer to a later request says nothing of when an earlier one is over. */
static void sent_until(struct operation *op, int64_t at_ms)
{
    if (op->last_sent_ms < at_ms)
        op->last_sent_ms = at_ms;
}

/* Enters or stays in unknown_outcome and plans what comes next. */
static void become_unknown(struct ctx *c, enum cause cause, enum reason reason, const char *text)
{
    struct operation *op = c->op;
    op->may_have_applied = true;
    if (op->unknown_since_ms == 0) {
        op->unknown_since_ms = c->in->now_ms;
        op->retries = 0;
    }
    op->absent_count = 0;
    sent_until(op, last_moment(c, reason));
    step_move(c, cause, STATE_UNKNOWN_OUTCOME, reason, text);
    if (!c->tool) { /* a reload may bring it back, and with it the ways to find out */
        step_wake_at(op, c->in->now_ms + TOOL_MISSING_MS);
        return;
    }
    int64_t delay = 0;
    switch (next_strategy(op, c->tool, c->in->now_ms)) {
    case STRATEGY_RESEND:
        delay = c->in->finding.retry_after_ms > 0 ? c->in->finding.retry_after_ms : backoff(c);
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

/* ---- answers of call attempts (design 6) ---- */

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
        become_unknown(c, CAUSE_ANSWER, REASON_NOT_SENT, text);
        return;
    }
    op->may_have_applied = false;
    fail_retryable(c, CAUSE_ANSWER, REASON_NOT_SENT, backoff(c), text);
}

static void not_processed(struct ctx *c, bool doubt)
{
    const struct finding *finding = &c->in->finding;
    if (doubt) {
        become_unknown(c, CAUSE_ANSWER, REASON_THROTTLED, finding->detail);
        return;
    }
    c->op->may_have_applied = false;
    if (attempts_are_up(c)) {
        fail(c, CAUSE_ANSWER, REASON_ATTEMPTS_EXHAUSTED, finding->detail);
        return;
    }
    int64_t delay = backoff(c);
    if (delay < finding->retry_after_ms)
        delay = finding->retry_after_ms;
    fail_retryable(c, CAUSE_ANSWER, REASON_THROTTLED, delay, finding->detail);
}

/* A success after a re-send proves at least one effect. Where a look-up exists it counts them (case S65): a provider
 * may have ignored its own key. */
static void success_after_doubt(struct ctx *c)
{
    struct operation *op = c->op;
    take_result(op, &c->in->finding);
    op->error = STR_NONE;
    op->retries = 0;
    step_move(c, CAUSE_ANSWER, STATE_ACKNOWLEDGED, REASON_VERIFYING,
              "success after a re-send: counting effects by look-up");
    step_wake_at(op, c->in->now_ms);
}

static void call_answer(struct ctx *c)
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
        if (doubt && c->tool->has_lookup && has_strategy(c->tool, STRATEGY_LOOKUP))
            success_after_doubt(c);
        else
            succeed(c, CAUSE_ANSWER, REASON_NONE, finding->detail);
        break;
    case OUTCOME_NOOP:
        take_result(op, finding);
        op->error = STR_NONE;
        step_end(c, CAUSE_ANSWER, STATE_COMPLETED_NOOP, REASON_NONE, finding->detail);
        break;
    case OUTCOME_ACCEPTED: /* the id is kept at once (case S81) */
        take_result(op, finding);
        op->retries = 0;
        sent_until(op, c->in->now_ms); /* as in become_unknown(): settle and give_up count from here */
        step_move(c, CAUSE_ANSWER, STATE_ACKNOWLEDGED, REASON_ACCEPTED, finding->detail);
        wait_for_outcome(c);
        break;
    case OUTCOME_NOT_SENT: not_sent(c, doubt); break;
    case OUTCOME_NOT_PROCESSED: not_processed(c, doubt); break;
    case OUTCOME_REFUSED:
        if (doubt)
            become_unknown(c, CAUSE_ANSWER, reason, finding->detail);
        else
            fail(c, CAUSE_ANSWER, reason, finding->detail);
        break;
    case OUTCOME_WRONG_OBJECT:
        step_incident(c, INCIDENT_WRONG_OBJECT, finding->detail);
        become_unknown(c, CAUSE_ANSWER, reason, finding->detail);
        break;
    case OUTCOME_KEY_IN_USE:
    case OUTCOME_PROVIDER_ERROR:
    case OUTCOME_TIMEOUT:
    case OUTCOME_CONNECTION_LOST:
    case OUTCOME_UNREADABLE:
    case OUTCOME_LOST: become_unknown(c, CAUSE_ANSWER, reason, finding->detail); break;
    case OUTCOME_OPEN: /* the rest belongs to look-ups: a broken adapter must not close anything */
    case OUTCOME_FOUND:
    case OUTCOME_SEVERAL:
    case OUTCOME_ABSENT:
    case OUTCOME_CANNOT_TELL:
    case OUTCOME_PENDING:
    case OUTCOME_FAILED_THERE:
    case OUTCOME_MORE:
    case OUTCOME_COUNT: become_unknown(c, CAUSE_ANSWER, REASON_UNREADABLE_ANSWER, "the adapter gave no outcome"); break;
    }
}

/* ---- answers of look-ups (design 7) ---- */

static void look_again(struct ctx *c, const char *text)
{
    int64_t delay = lookup_delay(c);
    c->op->retries++;
    step_note(c, CAUSE_LOOKUP, c->op->state, text);
    step_wake_at(c->op, c->in->now_ms + delay);
}

static void several(struct ctx *c)
{
    step_incident(c, INCIDENT_DUPLICATE_EFFECT, c->in->finding.detail);
    succeed(c, CAUSE_LOOKUP, REASON_DUPLICATE_EFFECT, c->in->finding.detail);
}

static void proven_absent(struct ctx *c)
{
    struct operation *op = c->op;
    start_watch(op);
    op->may_have_applied = false;
    op->retries = 0;
    bool by_nature = c->tool->class == CLASS_EXTERNAL_IDEMPOTENT && c->tool->idempotent_by == IDEMPOTENT_BY_NATURE;
    bool harmless = tool_may_resend(c->tool) && (!by_nature || has_strategy(c->tool, STRATEGY_RESEND));
    if (harmless && !attempts_are_up(c))
        fail_retryable(c, CAUSE_LOOKUP, REASON_ABSENT, backoff(c), "no effect at the provider");
    else
        fail(c, CAUSE_LOOKUP, REASON_ABSENT, "no effect at the provider");
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
    case OUTCOME_FOUND: succeed(c, CAUSE_LOOKUP, REASON_RECONCILED, finding->detail); break;
    case OUTCOME_SEVERAL: several(c); break;
    case OUTCOME_PENDING:
        take_result(op, finding);
        step_move(c, CAUSE_LOOKUP, STATE_ACKNOWLEDGED, REASON_ACCEPTED, finding->detail);
        wait_for_outcome(c);
        break;
    case OUTCOME_FAILED_THERE: /* something exists and ended badly: a person must judge (case S81) */
        take_result(op, finding);
        give_to_operator(c, CAUSE_LOOKUP, finding->detail);
        break;
    case OUTCOME_WRONG_OBJECT:
        step_incident(c, INCIDENT_WRONG_OBJECT, finding->detail);
        give_to_operator(c, CAUSE_LOOKUP, finding->detail);
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
    case OUTCOME_FOUND: succeed(c, CAUSE_LOOKUP, verifying ? REASON_NONE : REASON_RECONCILED, finding->detail); break;
    case OUTCOME_SEVERAL: several(c); break;
    case OUTCOME_FAILED_THERE:
    case OUTCOME_WRONG_OBJECT:
        if (finding->outcome == OUTCOME_WRONG_OBJECT)
            step_incident(c, INCIDENT_WRONG_OBJECT, finding->detail);
        op->may_have_applied = true;
        if (op->unknown_since_ms == 0)
            op->unknown_since_ms = c->in->now_ms;
        give_to_operator(c, CAUSE_LOOKUP, finding->detail);
        break;
    default:
        if (verifying) { /* the provider's own confirmation stands; look again later for a second effect */
            start_watch(op);
            succeed(c, CAUSE_LOOKUP, REASON_NONE, "confirmed by the provider, effects not counted yet");
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
    schedule_closed(c);
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
        succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, finding->detail);
        return;
    }
    next_watch(c, outcome_name(finding->outcome));
}

static void lookup_answer(struct ctx *c)
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

/* ---- beginnings ---- */

/* What others took is not the provider's time. */
static void leave_queue(struct ctx *c)
{
    if (c->op->state == STATE_PLANNED && c->op->reason == REASON_AWAITING_ENTITY)
        c->op->ready_ms = c->in->now_ms;
}

/* The ledger lets it into the queues, or gives it the entities and wakes it, with this very transition. */
static void await_entity(struct ctx *c)
{
    struct operation *op = c->op;
    assert(op->state == STATE_PLANNED && c->tool);
    if (time_is_up(c)) {
        step_end(c, CAUSE_TIMER, STATE_REJECTED, REASON_EXPIRED,
                 "what it works on was not free within the tool's total time");
        return;
    }
    if (op->reason != REASON_AWAITING_ENTITY)
        step_move(c, CAUSE_HELD, STATE_PLANNED, REASON_AWAITING_ENTITY, NULL);
    c->fx->changed = true;
    step_wake_at(op, step_total_end(op, c->tool));
}

static void dispatch(struct ctx *c)
{
    struct operation *op = c->op;
    assert(approval_complete(op)); /* wake() lets nothing else come here */
    leave_queue(c);
    op->tries++;
    op->attempts++;
    op->may_have_applied = true;
    if (op->first_sent_ms == 0)
        op->first_sent_ms = c->in->now_ms;
    sent_until(op, c->in->now_ms);
    step_move(c, CAUSE_DISPATCH, STATE_DISPATCHED, REASON_NONE, NULL);
    c->fx->events[c->fx->event_count - 1].attempt = op->tries;
    take_lease(c);
}

static void hold(struct ctx *c)
{
    struct operation *op = c->op;
    bool waits_for_first = op->state == STATE_PLANNED || op->state == STATE_PENDING_DISPATCH;
    assert(!waits_for_first || approval_complete(op)); /* else a look-up waits */
    leave_queue(c);
    if (op->state == STATE_PLANNED)
        step_move(c, CAUSE_HELD, STATE_PENDING_DISPATCH, c->in->hold_reason, NULL);
    else if (waits_for_first && op->reason != c->in->hold_reason)
        step_move(c, CAUSE_HELD, op->state, c->in->hold_reason, NULL);
    c->fx->changed = true;
    step_wake_at(op, c->in->hold_until_ms);
}

/* No event: the lease's end tells of it. */
static void renew(struct ctx *c)
{
    assert(c->op->state == STATE_DISPATCHED);
    take_lease(c);
    c->fx->changed = true;
}

static void lookup_begin(struct ctx *c)
{
    struct operation *op = c->op;
    op->tries++;
    op->lookups++;
    c->fx->changed = true; /* the attempt row tells of it: no event of its own */
    take_lease(c);
}

/* ---- time and owners ---- */

static void wake_unknown(struct ctx *c)
{
    switch (next_strategy(c->op, c->tool, c->in->now_ms)) {
    case STRATEGY_RESEND: c->fx->action = ACTION_SEND; break;
    case STRATEGY_LOOKUP: c->fx->action = ACTION_LOOKUP; break;
    case STRATEGY_WEBHOOK:
        step_wake_at(c->op, c->op->unknown_since_ms + c->tool->reconcile.webhook_ms), c->fx->changed = true;
        break;
    case STRATEGY_MANUAL:
        if (c->op->reason == REASON_NEEDS_OPERATOR)
            step_wake_at(c->op, 0), c->fx->changed = true;
        else
            give_to_operator(c, CAUSE_GAVE_UP, "no automatic way to find out is left");
        break;
    }
}

static void wake_acknowledged(struct ctx *c)
{
    struct operation *op = c->op;
    int64_t since = op->unknown_since_ms ? op->unknown_since_ms : op->last_sent_ms;
    int64_t event_ms = event_until(c->tool, since);
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
    give_to_operator(c, CAUSE_GAVE_UP, "the provider accepted it and never said how it ended");
}

static void owner_gone(struct ctx *c)
{
    if (c->op->state == STATE_DISPATCHED) /* "the owner is gone", never "nothing happened" (3.3) */
        become_unknown(c, CAUSE_OWNER_GONE, REASON_LEASE_LOST,
                       c->tool && c->tool->guard_lease_ms > 0 ? "the application's lease ended without a word"
                                                              : "the gateway that sent it is gone");
}

/* ---- approvals (design 8) ---- */

static void approval_expired(struct ctx *c)
{
    bool decided_late = c->in->kind == STEP_APPROVAL; /* and then over a lease, as people's steps go */
    step_end(c, decided_late ? CAUSE_APPROVAL : CAUSE_TIMER, STATE_REJECTED, REASON_EXPIRED,
             "nobody has decided in time: the same call, made again, asks for approval anew");
}

/* Whether what people were asked about is no longer what would be done. */
static bool policy_changed(const struct ctx *c, const struct approval *approval)
{
    return c->tool && c->tool->approval.policy && !text_equal(approval->policy, c->tool->approval.policy);
}

static void ask_anew(struct ctx *c)
{
    struct operation *op = c->op;
    assert(c->in->arena);
    op->approval = approval_request(c->in->arena, &c->tool->approval, c->in->now_ms);
    step_move(c, CAUSE_APPROVAL, STATE_PLANNED, REASON_AWAITING_APPROVAL,
              "the tool's approval policy or its request has changed: approval is asked for anew");
    step_wake_at(op, approval_open_until(op));
}

/* Still waits for people? True: this is dealt with. Judged by the record, whatever the reason says. */
static bool wait_for_approval(struct ctx *c)
{
    struct operation *op = c->op;
    if (approval_complete(op))
        return false;
    int64_t until_ms = approval_open_until(op);
    if (until_ms <= c->in->now_ms) {
        approval_expired(c);
        return true;
    }
    if (op->reason != REASON_AWAITING_APPROVAL)
        step_move(c, CAUSE_HELD, STATE_PLANNED, REASON_AWAITING_APPROVAL, NULL);
    step_wake_at(op, until_ms);
    c->fx->changed = true;
    return true;
}

/* An approval is for the policy and the request under which it was given. */
static bool approval_is_void(struct ctx *c)
{
    struct approval approval;
    struct arena arena;
    if (!c->op->approval.p)
        return false;
    arena_init(&arena);
    bool changed = approval_read(&arena, c->op->approval, &approval, NULL) == ERR_NONE && policy_changed(c, &approval);
    arena_release(&arena);
    return changed;
}

static void wake_planned(struct ctx *c)
{
    struct operation *op = c->op;
    if (wait_for_approval(c))
        return;
    /* Who awaits its entities had its time come, by the clock of a gateway that may be ahead of this one. */
    if (op->not_before_ms > c->in->now_ms && op->reason != REASON_AWAITING_ENTITY)
        step_wake_at(op, op->not_before_ms), c->fx->changed = true;
    else if (approval_is_void(c))
        ask_anew(c);
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

static void wake(struct ctx *c)
{
    struct operation *op = c->op;
    switch (op->state) {
    case STATE_PLANNED: wake_planned(c); break;
    case STATE_PENDING_DISPATCH:
        if (time_is_up(c))
            step_end(c, CAUSE_TIMER, STATE_REJECTED, REASON_EXPIRED, "not sent within the tool's total time");
        else
            want_send(c);
        break;
    case STATE_DISPATCHED: /* the lease ended */ owner_gone(c); break;
    case STATE_ACKNOWLEDGED:
        if (step_is_parent(op))
            step_wake_parent(c);
        else
            wake_acknowledged(c);
        break;
    case STATE_FAILED_RETRYABLE:
        if (time_is_up(c) && (op->reason != REASON_OPERATOR || c->tool->guard_lease_ms > 0))
            fail(c, CAUSE_TIMER, REASON_TIME_EXHAUSTED, "not done within the tool's total time");
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
            schedule_closed(c), c->fx->changed = true;
        break;
    case STATE_COMPENSATING:
        if (step_is_parent(op))
            step_wake_parent(c);
        break;
    }
}

/* The registry no longer has the tool: nothing is sent, nothing is judged, nothing is lost. */
static void wake_without_tool(struct ctx *c)
{
    struct operation *op = c->op;
    if (state_terminal(op->state)) {
        if (op->retain_until_ms && op->retain_until_ms <= c->in->now_ms)
            c->fx->action = ACTION_EXPIRE;
        else
            schedule_closed(c), c->fx->changed = true;
        return;
    }
    if (op->state == STATE_DISPATCHED) {
        owner_gone(c);
        return;
    }
    if (step_is_parent(op) && (op->state == STATE_ACKNOWLEDGED || op->state == STATE_COMPENSATING)) {
        step_wake_parent(c); /* what is to be undone is known without it */
        return;
    }
    if (op->state == STATE_PLANNED && wait_for_approval(c))
        return;
    if (op->reason != REASON_TOOL_MISSING)
        step_move(c, CAUSE_HELD, op->state, REASON_TOOL_MISSING, "the registry has no such tool");
    c->fx->changed = true;
    step_wake_at(op, c->in->now_ms + TOOL_MISSING_MS);
}

/* ---- people ---- */

/* Guard mode: nobody sends it at once, it waits for the next begin, and has the total time for that. */
static void wait_for_executor(struct ctx *c)
{
    if (c->tool && c->tool->guard_lease_ms > 0)
        c->op->ready_ms = c->in->now_ms;
}

static enum err_code resolve(struct ctx *c, struct err *err)
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
        succeed(c, CAUSE_OPERATOR, said_no_effect ? REASON_LATE_LANDING : REASON_OPERATOR, c->in->note);
        return ERR_NONE;
    }
    if (!open_doubt)
        return err_set(err, ERR_CONFLICT,
                       "the operation is %s: only an unknown or acknowledged outcome can be declared absent",
                       state_name(op->state));
    start_watch(op);
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
        fail(c, CAUSE_OPERATOR, REASON_OPERATOR, c->in->note);
    }
    return ERR_NONE;
}

static enum err_code retry(struct ctx *c, struct err *err)
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

static enum err_code cancel(struct ctx *c, struct err *err)
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

static const char *by_link(const struct ctx *c)
{
    return c->in->link_by ? arena_printf(c->in->arena, ", by a link that %s made", c->in->link_by) : "";
}

static const char *decision_text(const struct ctx *c, unsigned given, unsigned needed)
{
    const char *why = c->in->note && c->in->note[0] ? c->in->note : NULL;
    if (!c->in->approve)
        return arena_printf(c->in->arena, "denied%s%s%s", by_link(c), why ? ": " : "", why ? why : "");
    return arena_printf(c->in->arena, "approved, %u of %u%s%s%s", given, needed, by_link(c), why ? ": " : "",
                        why ? why : "");
}

static void count_decision(struct ctx *c, struct approval *approval)
{
    struct operation *op = c->op;
    assert(approval->count < APPROVAL_DECISIONS_MAX);
    approval->decisions[approval->count++] = (struct approval_decision){
        .by = c->in->actor,
        .at_ms = c->in->now_ms,
        .approve = c->in->approve,
        .note = c->in->note,
        .via = c->in->via,
        .link_by = c->in->link_by,
    };
    unsigned given = approval_given(approval);
    const char *text = decision_text(c, given, approval->needed);
    op->approval = approval_write(c->in->arena, approval);
    if (!c->in->approve) {
        step_end(c, CAUSE_APPROVAL, STATE_REJECTED, REASON_DENIED, text);
    } else if (given < approval->needed) {
        step_move(c, CAUSE_APPROVAL, STATE_PLANNED, REASON_AWAITING_APPROVAL, text);
        step_wake_at(op, approval->expires_ms);
    } else { /* its turn comes with the next wake */
        bool later = op->not_before_ms > c->in->now_ms;
        op->ready_ms = c->in->now_ms;
        step_move(c, CAUSE_APPROVAL, STATE_PLANNED, later ? REASON_SCHEDULED : REASON_NONE, text);
        step_wake_at(op, later ? op->not_before_ms : c->in->now_ms);
    }
}

static enum err_code decision(struct ctx *c, struct err *err)
{
    struct operation *op = c->op;
    struct approval approval;
    assert(c->in->arena && c->in->actor);
    if (!op->approval.p)
        return err_set(err, ERR_CONFLICT, "the operation needs no approval");
    if (text_equal(c->in->actor, op->principal))
        return err_set(err, ERR_DENIED, "who calls a tool does not decide on it: %s called it%s", op->principal,
                       c->in->approve ? "" : "; it can be cancelled");
    enum err_code code = approval_read(c->in->arena, op->approval, &approval, err);
    if (code)
        return code;
    if (op->state != STATE_PLANNED || approval_stands(&approval, c->in->actor))
        return err_set(err, ERR_CONFLICT, "the operation is %s%s%s: there is nothing left to decide",
                       state_name(op->state), op->reason ? ", " : "", reason_name(op->reason));
    if (approval.expires_ms <= c->in->now_ms) {
        approval_expired(c);
    } else if (!c->in->approve) { /* a no is a no under any policy */
        count_decision(c, &approval);
    } else if (!c->tool) {
        return err_set(err, ERR_CONFLICT, "the registry has no tool %s at present: what would run is not known",
                       op->tool);
    } else if (policy_changed(c, &approval)) {
        ask_anew(c);
    } else {
        count_decision(c, &approval);
    }
    return ERR_NONE;
}

/* Whoever made links by which another person decides stands in the record. */
static enum err_code link_made(struct ctx *c, struct err *err)
{
    struct operation *op = c->op;
    assert(c->in->arena && c->in->actor && c->in->approver);
    int64_t until_ms = op->state == STATE_PLANNED ? approval_open_until(op) : 0;
    if (until_ms <= c->in->now_ms)
        return err_set(err, ERR_CONFLICT, "the operation waits for nobody's approval");
    if (text_equal(c->in->approver, op->principal))
        return err_set(err, ERR_DENIED, "who calls a tool does not decide on it: %s called it", op->principal);
    step_note(c, CAUSE_APPROVAL, STATE_PLANNED, arena_printf(c->in->arena, "made links for %s", c->in->approver));
    step_wake_at(op, until_ms);
    return ERR_NONE;
}

/* ---- compensation (design 10.1): the operation that is undone ---- */

static enum err_code compensate(struct ctx *c, struct err *err)
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
static void compensation_ended(struct ctx *c)
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
    if (finding->outcome == OUTCOME_NOT_PROCESSED && !attempts_are_up(c))
        fail_retryable(c, CAUSE_EVIDENCE, REASON_THROTTLED, 0, finding->detail);
    else
        fail(c, CAUSE_EVIDENCE, REASON_PROVIDER_REFUSED, finding->detail);
    return true;
}

/* An answer arrived after somebody else moved the operation (design 3.4): never thrown away. */
static void evidence(struct ctx *c)
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
            start_watch(op);
        succeed(c, CAUSE_EVIDENCE, REASON_RECONCILED, finding->detail);
        break;
    case STATE_UNKNOWN_OUTCOME:
    case STATE_ACKNOWLEDGED: succeed(c, CAUSE_EVIDENCE, REASON_RECONCILED, finding->detail); break;
    case STATE_FAILED_RETRYABLE:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
        step_incident(c, INCIDENT_LATE_LANDING,
                      "an answer that proves the effect arrived after the operation was closed");
        succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, finding->detail);
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

/* ---- what the provider tells on its own (design 11.1, 3.4) ---- */

/*      event says      open (unknown, acknowledged)      closed as success            closed as no effect
 *      success         completed_success                 kept; other id: incident     late landing → completed_success
 *      no_effect       failed_permanent, if it is proof  kept; if later: incident     kept
 *      failed          a person must judge               kept; if later: incident     kept
 *      pending         acknowledged                      kept                         kept
 *
 * What is older than what former events said is only kept. A success has the last word whenever it comes: no order of
 * events, answers and crashes ends otherwise. */

bool step_waits_for_answer(const struct operation *op)
{
    return op->state == STATE_DISPATCHED;
}

static void keep_event(struct ctx *c)
{
    step_note(c, CAUSE_EVIDENCE, c->op->state, c->in->finding.detail);
}

/* After what is known of a closed operation: than its last event, or, when an answer closed it, than that answer. */
static bool event_is_later(const struct ctx *c)
{
    const struct inbound *event = c->in->event;
    return inbound_newer(event, c->in->standing) && (c->in->standing->any || event->created_ms > c->op->completed_ms);
}

/* Nothing has left as far as this ledger knows (it may be an old backup's): what has happened must not be sent. */
static void success_before_dispatch(struct ctx *c)
{
    step_incident(c, INCIDENT_CONTRADICTION, "the provider tells of an effect that was not asked for yet");
    step_end(c, CAUSE_EVIDENCE, STATE_REJECTED, REASON_LATE_LANDING, "not sent: it has happened");
    succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, c->in->finding.detail);
}

static void inbound_success(struct ctx *c)
{
    struct operation *op = c->op;
    const struct finding *finding = &c->in->finding;
    switch (op->state) {
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH: success_before_dispatch(c); break;
    case STATE_ACKNOWLEDGED:
    case STATE_UNKNOWN_OUTCOME:
        if (op->reason == REASON_VERIFYING) { /* known to be a success: a look-up counts the effects */
            keep_event(c);
            break;
        }
        if (op->attempts > 1) /* as after a re-send: effects are counted later */
            start_watch(op);
        succeed(c, CAUSE_EVIDENCE, REASON_RECONCILED, finding->detail);
        break;
    case STATE_FAILED_RETRYABLE:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
        step_incident(c, INCIDENT_LATE_LANDING, "the provider told of the effect after the operation was closed");
        succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, finding->detail);
        break;
    case STATE_COMPLETED_SUCCESS:
        if (op->external_id && finding->external_id && !text_equal(op->external_id, finding->external_id))
            step_incident(c, INCIDENT_DUPLICATE_EFFECT, "an event of the provider names another external id");
        keep_event(c);
        break;
    case STATE_DISPATCHED:
    case STATE_COMPLETED_NOOP:
    case STATE_COMPENSATING:
    case STATE_COMPENSATED: keep_event(c); break;
    }
}

/* One request of several may have been without effect, and another not, unless the provider takes them for one: as long
 * as it knows their key. What is harmless by its nature is sent again also after that. */
static bool one_request(const struct ctx *c)
{
    if (c->op->attempts <= 1)
        return true;
    return c->tool && tool_may_resend(c->tool) && c->tool->provider->key_honoured &&
           key_is_known(c->op, c->tool, c->op->last_sent_ms);
}

static void become_doubtful(struct operation *op, int64_t now_ms)
{
    op->may_have_applied = true;
    if (op->unknown_since_ms == 0)
        op->unknown_since_ms = now_ms;
}

static void contradiction(struct ctx *c)
{
    if (event_is_later(c))
        step_incident(c, INCIDENT_CONTRADICTION, "the provider told of a failure after the success");
    keep_event(c);
}

static void inbound_no_effect(struct ctx *c)
{
    struct operation *op = c->op;
    bool open_doubt = op->state == STATE_UNKNOWN_OUTCOME || op->state == STATE_ACKNOWLEDGED;
    if (op->state == STATE_COMPLETED_SUCCESS) {
        contradiction(c);
        return;
    }
    if (!open_doubt || op->reason == REASON_VERIFYING || !inbound_newer(c->in->event, c->in->standing) ||
        !one_request(c)) {
        keep_event(c);
        return;
    }
    if (op->state == STATE_ACKNOWLEDGED) { /* the table leads through unknown_outcome */
        become_doubtful(op, c->in->now_ms);
        step_move(c, CAUSE_EVIDENCE, STATE_UNKNOWN_OUTCOME, REASON_ACCEPTED, NULL);
    }
    take_result(op, &c->in->finding);
    if (c->in->finding.error.p)
        op->error = c->in->finding.error;
    if (op->attempts > 1)
        start_watch(op);
    fail(c, CAUSE_EVIDENCE, REASON_PROVIDER_REFUSED, c->in->finding.detail);
}

static void inbound_failed(struct ctx *c)
{
    struct operation *op = c->op;
    bool open_doubt = op->state == STATE_UNKNOWN_OUTCOME || op->state == STATE_ACKNOWLEDGED;
    if (op->state == STATE_COMPLETED_SUCCESS) {
        contradiction(c);
        return;
    }
    if (!open_doubt || op->reason == REASON_VERIFYING || !inbound_newer(c->in->event, c->in->standing)) {
        keep_event(c);
        return;
    }
    become_doubtful(op, c->in->now_ms);
    take_result(op, &c->in->finding);
    give_to_operator(c, CAUSE_EVIDENCE, c->in->finding.detail);
}

static void inbound_pending(struct ctx *c)
{
    struct operation *op = c->op;
    bool news = op->state == STATE_UNKNOWN_OUTCOME && inbound_newer(c->in->event, c->in->standing);
    if (!news || !c->tool) {
        if (op->state == STATE_ACKNOWLEDGED && !op->external_id)
            op->external_id = c->in->finding.external_id;
        keep_event(c);
        return;
    }
    take_result(op, &c->in->finding);
    op->retries = 0;
    step_move(c, CAUSE_EVIDENCE, STATE_ACKNOWLEDGED, REASON_ACCEPTED, c->in->finding.detail);
    wait_for_outcome(c);
}

static void inbound(struct ctx *c)
{
    assert(!step_waits_for_answer(c->op));
    c->op->absent_count = 0; /* absent answers before and after it are not consecutive (7.1) */
    switch (c->in->event->outcome) {
    case INBOUND_SUCCESS: inbound_success(c); break;
    case INBOUND_NO_EFFECT: inbound_no_effect(c); break;
    case INBOUND_FAILED: inbound_failed(c); break;
    case INBOUND_PENDING: inbound_pending(c); break;
    case INBOUND_IGNORE:
    case INBOUND_OUTCOME_COUNT: keep_event(c); break;
    }
}

static enum err_code finish(struct ctx *c)
{
    if (c->fx->changed) {
        c->op->rev++;
        c->op->updated_ms = c->in->now_ms;
        check(c->op);
    }
    return ERR_NONE;
}

/* A parent has sent none: what names it all the same is only kept. */
static bool tells_of_a_request(enum step_kind kind)
{
    return kind == STEP_ANSWER || kind == STEP_LOOKUP_ANSWER || kind == STEP_INBOUND || kind == STEP_EVIDENCE;
}

enum err_code step(struct operation *op, const struct tool *tool, const struct step_input *in,
                   struct step_effects *effects, struct err *err)
{
    bool fits = tool && (tool->steps != NULL) == step_is_parent(op); /* a tool of another kind is not the one it was */
    struct ctx c = {op, fits ? tool : NULL, in, effects};
    enum err_code code = ERR_NONE;
    *effects = (struct step_effects){.action = ACTION_NONE};
    tool = c.tool;
    if (step_is_parent(op) && tells_of_a_request(in->kind)) {
        step_note(&c, CAUSE_EVIDENCE, op->state, in->finding.detail);
        return finish(&c);
    }
    switch (in->kind) {
    case STEP_DISPATCH: dispatch(&c); break;
    case STEP_HOLD: hold(&c); break;
    case STEP_ANSWER:
        if (op->state != STATE_DISPATCHED)
            evidence(&c);
        else if (tool)
            call_answer(&c);
        else if (in->finding.outcome == OUTCOME_SUCCESS)
            succeed(&c, CAUSE_ANSWER, REASON_NONE, in->finding.detail);
        else
            become_unknown(&c, CAUSE_ANSWER, REASON_TOOL_MISSING, in->finding.detail);
        break;
    case STEP_AWAIT_ENTITY: await_entity(&c); break;
    case STEP_REFUSE: step_end(&c, CAUSE_POLICY, STATE_REJECTED, REASON_POLICY, in->note); break;
    case STEP_LOOKUP_BEGIN: lookup_begin(&c); break;
    case STEP_LOOKUP_ANSWER:
        if (tool)
            lookup_answer(&c);
        else
            step_note(&c, CAUSE_LOOKUP, op->state, "the registry no longer has the tool");
        break;
    case STEP_WAKE:
        if (tool)
            wake(&c);
        else
            wake_without_tool(&c);
        break;
    case STEP_KEEP: keep(&c); break;
    case STEP_RENEW: renew(&c); break;
    case STEP_OWNER_GONE: owner_gone(&c); break;
    case STEP_RESOLVE: code = resolve(&c, err); break;
    case STEP_RETRY: code = retry(&c, err); break;
    case STEP_CANCEL: code = cancel(&c, err); break;
    case STEP_APPROVAL: code = decision(&c, err); break;
    case STEP_LINK: code = link_made(&c, err); break;
    case STEP_COMPENSATE: code = compensate(&c, err); break;
    case STEP_COMPENSATION_ENDED: compensation_ended(&c); break;
    case STEP_INBOUND: inbound(&c); break;
    case STEP_EVIDENCE: evidence(&c); break;
    case STEP_RUN_STEPS: leave_queue(&c), step_run_steps(&c); break;
    case STEP_BEGIN_STEP: step_begin(&c); break;
    case STEP_SKIP_STEP:
    case STEP_FAIL_STEP: step_pass_over(&c); break;
    case STEP_HOLD_STEP: step_hold_step(&c); break;
    case STEP_UNDO_STEP: step_undo(&c); break;
    case STEP_NOT_UNDONE: step_not_undone(&c); break;
    case STEP_FINISH_STEPS: step_finish(&c); break;
    case STEP_TOLD: step_told(&c); break;
    }
    return code ? code : finish(&c);
}
