/* Approvals (design 8): waiting for people, what they decide, links by which they may. */
#include "core/step_parts.h"

#include <assert.h>

/* ---- waiting ---- */

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

void step_ask_anew(struct ctx *c)
{
    struct operation *op = c->op;
    assert(c->in->arena);
    op->approval = approval_request(c->in->arena, &c->tool->approval, c->in->now_ms);
    step_move(c, CAUSE_APPROVAL, STATE_PLANNED, REASON_AWAITING_APPROVAL,
              "the tool's approval policy or its request has changed: approval is asked for anew");
    step_wake_at(op, approval_open_until(op));
}

/* Still waits for people? True: this is dealt with. Judged by the record, whatever the reason says. */
bool step_wait_for_approval(struct ctx *c)
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
bool step_approval_is_void(struct ctx *c)
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

/* ---- decisions and links ---- */

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

enum err_code step_decide(struct ctx *c, struct err *err)
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
        step_ask_anew(c);
    } else {
        count_decision(c, &approval);
    }
    return ERR_NONE;
}

/* Whoever made links by which another person decides stands in the record. */
enum err_code step_link_made(struct ctx *c, struct err *err)
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
