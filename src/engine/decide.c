/* People's decisions (design 7.4): load the row, check the version that they looked at, step, commit, answer. */
#include "engine/internal.h"

#include "base/mark.h"

#include <stdlib.h>

static const struct err no_error;

struct decision {
    struct ledger_request request;
    struct arena arena;
    struct engine *engine;
    struct engine_decision what; /* texts in the arena */
    engine_reply_fn *reply;
    void *user;
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
    if (!op->arguments.p || json_parse(&decision->arena, op->arguments, &json_limits_default, &arguments, &err)) {
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
    engine_admit(engine, &call, op->id, op, decision->reply, decision->user);
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
    }
    return in;
}

static void move_text(struct flight *flight, struct step_input *in)
{
    struct arena *arena = &flight->arena;
    in->actor = arena_copy_text(arena, in->actor);
    in->note = arena_copy_text(arena, in->note);
    in->finding.external_id = arena_copy_text(arena, in->finding.external_id);
    in->finding.result = arena_str(arena, in->finding.result);
}

static void decide_on(struct decision *decision, struct flight *flight)
{
    struct step_input in = input_of(decision);
    struct err err = {0};
    MARK(decision_loaded);
    move_text(flight, &in);
    flight->decided = decision->reply;
    flight->decided_user = decision->user;
    if (flight_step(flight, &in, AFTER_GO_ON, &err) == ERR_NONE)
        return;
    flight->decided = NULL;
    answer(decision, REPLY_IMPOSSIBLE, &flight->durable, &err);
    flight_free(flight);
}

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
    decide_on(decision, flight);
}

static void loaded(struct ledger_request *request)
{
    struct decision *decision = request->user;
    engine_request_ended(decision->engine);
    if (request->code == ERR_NOT_FOUND)
        answer(decision, REPLY_NOT_FOUND, NULL, &request->err);
    else if (request->code)
        answer(decision, REPLY_UNAVAILABLE, NULL, &request->err);
    else if (!request->get.op) {
        struct engine_reply reply = {.kind = REPLY_EXPIRED, .tombstone = request->get.tombstone, .err = &no_error};
        decision->reply(decision->user, &reply);
    } else
        decide_loaded(decision, request->get.op);
    release(decision);
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
    decision->reply = reply;
    decision->user = user;
    decision->request.command = LEDGER_GET;
    decision->request.get.tenant = decision->what.tenant;
    decision->request.get.operation = decision->what.operation;
    decision->request.done = loaded;
    decision->request.user = decision;
    decision->arena = arena;
    decision->request.arena = &decision->arena;
    engine_submit(engine, &decision->request);
}
