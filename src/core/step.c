/* One step: what it is told, handed to the part that it concerns; notes, incidents and the one function that moves. */
#include "core/playbook.h"
#include "core/step_parts.h"

#include <assert.h>

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

/* ---- the step ---- */

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
    case STEP_DISPATCH: step_dispatch(&c); break;
    case STEP_HOLD: step_hold(&c); break;
    case STEP_ANSWER:
        if (op->state != STATE_DISPATCHED)
            step_evidence(&c);
        else if (tool)
            step_answer(&c);
        else if (in->finding.outcome == OUTCOME_SUCCESS)
            step_succeed(&c, CAUSE_ANSWER, REASON_NONE, in->finding.detail);
        else
            step_become_unknown(&c, CAUSE_ANSWER, REASON_TOOL_MISSING, in->finding.detail);
        break;
    case STEP_AWAIT_ENTITY: step_await_entity(&c); break;
    case STEP_REFUSE: step_end(&c, CAUSE_POLICY, STATE_REJECTED, REASON_POLICY, in->note); break;
    case STEP_LOOKUP_BEGIN: step_lookup_begin(&c); break;
    case STEP_LOOKUP_ANSWER:
        if (tool)
            step_lookup_answer(&c);
        else
            step_note(&c, CAUSE_LOOKUP, op->state, "the registry no longer has the tool");
        break;
    case STEP_WAKE:
        if (tool)
            step_wake(&c);
        else
            step_wake_without_tool(&c);
        break;
    case STEP_KEEP: step_keep(&c); break;
    case STEP_RENEW: step_renew(&c); break;
    case STEP_OWNER_GONE: step_owner_gone(&c); break;
    case STEP_RESOLVE: code = step_resolve(&c, err); break;
    case STEP_RETRY: code = step_retry(&c, err); break;
    case STEP_CANCEL: code = step_cancel(&c, err); break;
    case STEP_APPROVAL: code = step_decide(&c, err); break;
    case STEP_LINK: code = step_link_made(&c, err); break;
    case STEP_COMPENSATE: code = step_compensate(&c, err); break;
    case STEP_COMPENSATION_ENDED: step_compensation_ended(&c); break;
    case STEP_INBOUND: step_inbound(&c); break;
    case STEP_EVIDENCE: step_evidence(&c); break;
    case STEP_RUN_STEPS: step_leave_queue(&c), step_run_steps(&c); break;
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
