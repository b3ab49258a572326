/* What the provider tells on its own (design 11.1, 3.4).
 *
 *      event says      open (unknown, acknowledged)      closed as success            closed as no effect
 *      success         completed_success                 kept; other id: incident     late landing → completed_success
 *      no_effect       failed_permanent, if it is proof  kept; if later: incident     kept
 *      failed          a person must judge               kept; if later: incident     kept
 *      pending         acknowledged                      kept                         kept
 *
 * What is older than what former events said is only kept. A success has the last word whenever it comes: no order of
 * events, answers and crashes ends otherwise. */
#include "core/inbox.h"
#include "core/step_parts.h"

#include <assert.h>

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
    step_succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, c->in->finding.detail);
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
            step_start_watch(op);
        step_succeed(c, CAUSE_EVIDENCE, REASON_RECONCILED, finding->detail);
        break;
    case STATE_FAILED_RETRYABLE:
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED:
        step_incident(c, INCIDENT_LATE_LANDING, "the provider told of the effect after the operation was closed");
        step_succeed(c, CAUSE_EVIDENCE, REASON_LATE_LANDING, finding->detail);
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
           step_key_is_known(c->op, c->tool, c->op->last_sent_ms);
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
    step_take_result(op, &c->in->finding);
    if (c->in->finding.error.p)
        op->error = c->in->finding.error;
    if (op->attempts > 1)
        step_start_watch(op);
    step_fail(c, CAUSE_EVIDENCE, REASON_PROVIDER_REFUSED, c->in->finding.detail);
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
    step_take_result(op, &c->in->finding);
    step_give_to_operator(c, CAUSE_EVIDENCE, c->in->finding.detail);
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
    step_take_result(op, &c->in->finding);
    op->retries = 0;
    step_move(c, CAUSE_EVIDENCE, STATE_ACKNOWLEDGED, REASON_ACCEPTED, c->in->finding.detail);
    step_wait_for_outcome(c);
}

void step_inbound(struct ctx *c)
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
