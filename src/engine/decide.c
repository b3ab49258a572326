/* People's decisions (design 7.4, 8): load the row, check the version that they looked at, step, commit, answer.
 *
 * Approvals are answered whatever comes between: who loses the compare-and-set looks again, and is told then which
 * decision stands. */
#include "engine/internal.h"

#include "base/mark.h"

#include <stdlib.h>

static const struct err no_error;

#define LOOKS_MAX 32 /* at a row that others keep moving */

struct decision {
    struct ledger_request request;
    struct arena arena;
    struct engine *engine;
    struct engine_decision what; /* texts in the arena */
    engine_reply_fn *reply;
    void *user;
    unsigned looks;
};

static void answer(struct decision *decision, enum reply_kind kind, const struct operation *op, const struct err *err)
{
    struct engine_reply reply = {.kind = kind, .op = op, .err = err};
    if (op)
        reply.tool = registry_find(decision->engine->registry, str_of(op->tool));
    decision->reply(decision->user, &reply);
}

static void release(struct decision *decision)
{
    struct arena arena = decision->arena;
    arena_release(&arena);
}

/* Retry of a closed operation: the next version of its key, with the same arguments (terminal states are write-once).
 */
static void open_next_version(struct decision *decision, const struct operation *op)
{
    struct engine *engine = decision->engine;
    struct json *arguments;
    struct err err = {0};
    if (op->compensates) { /* what it undoes moves with it */
        const char *note = decision->what.note ? decision->what.note : "";
        engine_compensate_again(
            engine, op,
            arena_printf(&decision->arena, "tried again by %s%s%s", decision->what.actor, note[0] ? ": " : "", note),
            decision->reply, decision->user);
        return;
    }
    if (!op->arguments.p || json_parse(&decision->arena, op->arguments, &json_limits_kept, &arguments, &err)) {
        err_set(&err, ERR_CONFLICT, "the arguments of %s are no longer kept", op->id);
        answer(decision, REPLY_IMPOSSIBLE, op, &err);
        return;
    }
    struct engine_call call = {
        .tool = op->tool,
        .wait_ms = -1,
        .async = true,
        .call =
            {
                .tenant = op->tenant,
                .principal = op->principal,
                .arguments = arguments,
                .idempotency_key = op->key,
                .workflow = op->workflow,
                .run = op->run,
                .step = op->step,
                .session = op->session,
                .call = op->call,
                .repeat_of = op->repeat_of,
            },
    };
    const struct admit_as as = {.new_version_of = op->id, .old = op};
    engine_admit(engine, &call, &as, decision->reply, decision->user);
}

static struct step_input input_of(const struct decision *decision)
{
    const struct engine_decision *what = &decision->what;
    struct step_input in = {
        .actor = what->actor,
        .note = what->note,
        .happened = what->happened,
        .allow_retry = what->allow_retry,
        .finding = {.external_id = what->external_id, .result = what->result},
    };
    switch (what->kind) {
    case DECISION_RESOLVE: in.kind = STEP_RESOLVE; break;
    case DECISION_RETRY: in.kind = STEP_RETRY; break;
    case DECISION_CANCEL: in.kind = STEP_CANCEL; break;
    case DECISION_APPROVE:
    case DECISION_DENY:
        in.kind = STEP_APPROVAL;
        in.approve = what->kind == DECISION_APPROVE;
        in.via = what->via;
        in.link_by = what->link_by;
        break;
    case DECISION_LINK:
        in.kind = STEP_LINK;
        in.approver = what->approver;
        break;
    }
    return in;
}

static void move_text(struct flight *flight, struct step_input *in)
{
    struct arena *arena = &flight->arena;
    in->actor = arena_copy_text(arena, in->actor);
    in->note = arena_copy_text(arena, in->note);
    in->approver = arena_copy_text(arena, in->approver);
    in->link_by = arena_copy_text(arena, in->link_by);
    in->finding.external_id = arena_copy_text(arena, in->finding.external_id);
    in->finding.result = arena_str(arena, in->finding.result);
}

/* A client that gives up waiting does not want undone what is under way. */
static bool begun(const struct decision *decision, const struct operation *op)
{
    return decision->what.unsent_only && op->steps.p && op->state != STATE_PLANNED &&
           op->state != STATE_PENDING_DISPATCH;
}

/* False: refused and answered. */
static bool decide_on(struct decision *decision, struct flight *flight, engine_reply_fn *decided, void *user)
{
    struct step_input in = input_of(decision);
    struct err err = {0};
    MARK(decision_loaded);
    move_text(flight, &in);
    flight->decided = decided;
    flight->decided_user = user;
    if (begun(decision, &flight->durable))
        err_set(&err, ERR_CONFLICT, "its steps have begun: it goes on");
    else if (flight_step(flight, &in, AFTER_GO_ON, &err) == ERR_NONE)
        return true;
    flight->decided = NULL;
    answer(decision, REPLY_IMPOSSIBLE, &flight->durable, &err);
    flight_free(flight);
    return false;
}

/* ---- approvals ---- */

static void look(struct decision *decision);

/* What people wait for and others may change at the same time: it is looked at again until it can be said. */
static bool is_approval(const struct decision *decision)
{
    enum step_kind_decision kind = decision->what.kind;
    return kind == DECISION_APPROVE || kind == DECISION_DENY || kind == DECISION_LINK;
}

/* False: looked at so often that the person is told to try again. */
static bool look_again(struct decision *decision)
{
    if (++decision->looks >= LOOKS_MAX)
        return false;
    look(decision);
    return true;
}

/* The commit is done, or was lost to somebody else's. */
static void approval_committed(void *user, const struct engine_reply *reply)
{
    struct decision *decision = user;
    const struct operation *op = reply->op;
    struct approval approval;
    struct err err = {0};
    if (reply->kind == REPLY_STALE && look_again(decision))
        return;
    bool link = decision->what.kind == DECISION_LINK;
    bool counted = !link && reply->kind == REPLY_OPERATION &&
                   approval_read(&decision->arena, op->approval, &approval, NULL) == ERR_NONE &&
                   approval_by(&approval, decision->what.actor);
    if (reply->kind == REPLY_STALE) {
        err_set(&err, ERR_CONFLICT, "others keep changing the operation: look again");
        answer(decision, REPLY_IMPOSSIBLE, op, &err);
    } else if (reply->kind != REPLY_OPERATION || counted || link) {
        decision->reply(decision->user, reply);
    } else if (op->state == STATE_PLANNED) {
        err_set(
            &err, ERR_STALE,
            "the tool's approval policy or its request has changed since: look at what would be done now, and decide "
            "again");
        answer(decision, REPLY_STALE, op, &err);
    } else {
        err_set(&err, ERR_CONFLICT,
                "the time to decide is over, nothing was done: the same call, made again, asks for approval anew");
        answer(decision, REPLY_IMPOSSIBLE, op, &err);
    }
    release(decision);
}

/* Whether what is there answers the decision already. */
static bool approval_answered(struct decision *decision, const struct operation *op)
{
    const struct engine_decision *what = &decision->what;
    struct approval approval;
    struct err err = {0};
    if (!op->approval.p || what->kind == DECISION_LINK || text_equal(what->actor, op->principal))
        return false; /* step() has the words */
    if (approval_read(&decision->arena, op->approval, &approval, &err)) {
        answer(decision, REPLY_IMPOSSIBLE, op, &err);
        return true;
    }
    if (approval_stands(&approval, what->actor)) {
        struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op, .replayed = true, .err = &no_error};
        reply.tool = registry_find(decision->engine->registry, str_of(op->tool));
        decision->reply(decision->user, &reply);
        return true;
    }
    if (op->state == STATE_PLANNED)
        return false;
    err_set(&err, ERR_CONFLICT, "nobody's decision is wanted any more: the operation is %s%s%s", state_name(op->state),
            op->reason ? ", " : "", reason_name(op->reason));
    answer(decision, REPLY_IMPOSSIBLE, op, &err);
    return true;
}

/* True: goes on, and releases the decision when it is answered. */
static bool approval_loaded(struct decision *decision, const struct operation *op)
{
    struct engine *engine = decision->engine;
    const struct engine_decision *what = &decision->what;
    struct err err = {0};
    if (approval_answered(decision, op))
        return false;
    if (what->rev != 0 && what->rev != op->rev) {
        err_set(&err, ERR_STALE, "you looked at version %lld, it is at version %lld now: look again",
                (long long)what->rev, (long long)op->rev);
        answer(decision, REPLY_STALE, op, &err);
        return false;
    }
    if (what->until_ms != 0 && what->until_ms != approval_open_until(op)) {
        err_set(&err, ERR_STALE, "people have been asked anew since: look again");
        answer(decision, REPLY_STALE, op, &err);
        return false;
    }
    if (map_get(&engine->flights, op->id)) { /* another one's decision is being written, or time has come */
        if (look_again(decision))
            return true;
        err_set(&err, ERR_CONFLICT, "the operation is being changed: look again");
        answer(decision, REPLY_IMPOSSIBLE, op, &err);
        return false;
    }
    struct flight *flight = flight_from(engine, op, text_equal(op->owner, engine->incarnation));
    return decide_on(decision, flight, approval_committed, decision);
}

/* ---- the rest ---- */

static bool closed_for_good(const struct operation *op)
{
    return op->state == STATE_FAILED_PERMANENT || op->state == STATE_REJECTED;
}

static void decide_loaded(struct decision *decision, const struct operation *op)
{
    struct engine *engine = decision->engine;
    const struct engine_decision *what = &decision->what;
    struct err err = {0};
    if (what->rev != 0 && what->rev != op->rev) {
        err_set(&err, ERR_STALE, "you looked at version %lld, it is at version %lld now: look again",
                (long long)what->rev, (long long)op->rev);
        answer(decision, REPLY_STALE, op, &err);
        return;
    }
    if (what->kind == DECISION_RETRY && closed_for_good(op) && op->parent) {
        err_set(&err, ERR_CONFLICT, "the operation belongs to the steps of %s, which has gone on without it: %s",
                op->parent, op->compensates ? "retry that one" : "make the whole call again");
        answer(decision, REPLY_IMPOSSIBLE, op, &err);
        return;
    }
    if (what->kind == DECISION_RETRY && closed_for_good(op)) {
        open_next_version(decision, op);
        return;
    }
    struct flight *flight = map_get(&engine->flights, op->id);
    if (flight && flight->phase == PHASE_QUEUED) { /* waits for a slot: take it out of the queue */
        route_remove(flight->route, &flight->queued);
        flight->phase = PHASE_NEW;
    } else if (flight) {
        err_set(&err, ERR_CONFLICT, "a request for this operation is under way (%s): wait for it to end",
                state_name(op->state));
        answer(decision, REPLY_IMPOSSIBLE, op, &err);
        return;
    } else {
        flight = flight_from(engine, op, text_equal(op->owner, engine->incarnation));
    }
    decide_on(decision, flight, decision->reply, decision->user);
}

static void loaded(struct ledger_request *request)
{
    struct decision *decision = request->user;
    struct err outside = {0};
    engine_request_ended(decision->engine);
    if (request->code == ERR_NOT_FOUND)
        answer(decision, REPLY_NOT_FOUND, NULL, &request->err);
    else if (request->code)
        answer(decision, REPLY_UNAVAILABLE, NULL, &request->err);
    else if (!request->get.op) {
        struct engine_reply reply = {.kind = REPLY_EXPIRED, .tombstone = request->get.tombstone, .err = &no_error};
        decision->reply(decision->user, &reply);
    } else if (scope_check_operation(decision->what.scope, request->get.op, &outside)) {
        answer(decision, REPLY_IMPOSSIBLE, request->get.op, &outside);
    } else if (is_approval(decision)) {
        if (approval_loaded(decision, request->get.op))
            return;
    } else if (step_is_parent(request->get.op) && map_get(&decision->engine->flights, request->get.op->id) &&
               look_again(decision)) { /* it is about to begin or to undo a step: that takes a moment only */
        return;
    } else {
        decide_loaded(decision, request->get.op);
    }
    release(decision);
}

static void look(struct decision *decision)
{
    struct ledger_request *request = &decision->request;
    request->command = LEDGER_GET;
    request->get = (struct ledger_get){.tenant = decision->what.tenant, .operation = decision->what.operation};
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->done = loaded;
    request->user = decision;
    engine_submit(decision->engine, request);
}

void engine_decide(struct engine *engine, const struct engine_decision *what, engine_reply_fn *reply, void *user)
{
    struct err err = {0};
    if (engine->stopping) {
        err_set(&err, ERR_UNAVAILABLE, "onced is stopping");
        reply_error(engine, reply, user, REPLY_UNAVAILABLE, &err);
        return;
    }
    struct arena arena;
    arena_init(&arena);
    struct decision *decision = arena_zero(&arena, sizeof *decision);
    decision->engine = engine;
    decision->what = *what;
    decision->what.tenant = arena_copy_text(&arena, what->tenant);
    decision->what.operation = arena_copy_text(&arena, what->operation);
    decision->what.external_id = arena_copy_text(&arena, what->external_id);
    decision->what.result = arena_str(&arena, what->result);
    decision->what.actor = arena_copy_text(&arena, what->actor);
    decision->what.note = arena_copy_text(&arena, what->note);
    decision->what.link_by = arena_copy_text(&arena, what->link_by);
    decision->what.approver = arena_copy_text(&arena, what->approver);
    decision->what.scope = scope_copy(&arena, what->scope);
    decision->reply = reply;
    decision->user = user;
    decision->arena = arena;
    decision->request.arena = &decision->arena;
    look(decision);
}
