/* From a call to its verdict: identity, admission, and what each verdict means for the caller. */
#include "engine/internal.h"

#include "adapter/jq.h"
#include "base/log.h"
#include "base/mark.h"
#include "base/mem.h"
#include "core/steps.h"

#include <assert.h>
#include <stdlib.h>

static const struct err no_error;

#define DIFFERING_MAX 16

void reply_error(struct engine *engine, engine_reply_fn *reply, void *user, enum reply_kind kind, const struct err *err)
{
    if (kind == REPLY_UNAVAILABLE)
        engine->stats.unavailable++;
    struct engine_reply answer = {.kind = kind, .err = err ? err : &no_error};
    reply(user, &answer);
}

static struct str secret_of(struct engine *engine)
{
    return (struct str){(const char *)engine->ledger->secret, LEDGER_SECRET_BYTES};
}

static void new_operation_id(struct engine *engine, struct operation *op)
{
    memcpy(op->id, "op_", 3);
    ulid_next(&engine->ids, op->id + 3);
}

/* ---- the first state ---- */

static void plan_for_later(struct operation *op)
{
    op->state = STATE_PLANNED;
    op->reason = REASON_SCHEDULED;
    op->wake_at_ms = op->not_before_ms;
}

static void plan_for_approval(struct flight *flight, int64_t now)
{
    struct operation *op = &flight->op;
    const struct approval_policy *policy = &flight->tool->approval;
    op->state = STATE_PLANNED;
    op->reason = REASON_AWAITING_APPROVAL;
    op->approval = approval_request(&flight->arena, policy, now);
    op->wake_at_ms = now + policy->expires_ms;
}

static void lease(struct flight *flight, int64_t now, int64_t ms)
{
    flight->op.owner = flight->engine->incarnation;
    flight->op.lease_until_ms = now + ms;
    flight->op.wake_at_ms = flight->op.lease_until_ms;
}

/* 5.1: with a free slot the electing commit writes the operation as dispatched with attempt 1, so that a call costs two
 * commits; else it waits as pending_dispatch, in memory or in the ledger. */
static void plan_first_state(struct flight *flight, const struct engine_call *request, int64_t now)
{
    struct operation *op = &flight->op;
    const struct provider *provider = flight->tool->provider;
    int64_t until = now + HOLD_MS;
    if (flight->asks_approval) {
        plan_for_approval(flight, now);
        return;
    }
    if (op->not_before_ms > now) {
        plan_for_later(op);
        return;
    }
    if (flight->tool->guard_lease_ms > 0) {
        guard_first_state(flight, request, now);
        return;
    }
    if (flight->tool->steps) { /* no slot is needed: the steps take theirs */
        op->state = STATE_PENDING_DISPATCH;
        lease(flight, now, QUEUE_LEASES * flight->engine->lease_ms);
        return;
    }
    enum gate_answer answer = gate_take(&flight->route->gate, provider, false, now, &until);
    if (answer == GATE_PASS) {
        flight->has_slot = true;
        flight_begin_attempt(flight, ATTEMPT_CALL);
        op->state = STATE_DISPATCHED;
        op->may_have_applied = true;
        op->attempts = op->tries = 1;
        op->first_sent_ms = op->last_sent_ms = now;
        lease(flight, now, flight_lease_ms(flight->engine, flight->tool));
        return;
    }
    op->state = STATE_PENDING_DISPATCH;
    op->reason = gate_reason(answer);
    if (answer == GATE_FULL && flight->route->count < provider->queue_max)
        lease(flight, now, QUEUE_LEASES * flight->engine->lease_ms);
    else
        op->wake_at_ms = until;
}

/* ---- verdicts ---- */

/* Volatile members may differ and never are the reason. */
static void differing_fields(struct engine_reply *reply, struct arena *arena, const struct operation *op)
{
    const struct tool *tool = reply->tool;
    struct json *then, *now;
    const char **pointers;
    if (!reply->op || !reply->op->arguments.p || !op->arguments.p)
        return;
    if (json_parse(arena, reply->op->arguments, &json_limits_kept, &then, NULL) ||
        json_parse(arena, op->arguments, &json_limits_kept, &now, NULL))
        return;
    for (size_t i = 0; i < tool->volatile_count; i++) {
        json_pointer_remove(then, tool->volatile_pointers[i]);
        json_pointer_remove(now, tool->volatile_pointers[i]);
    }
    reply->differing_count = json_diff(arena, then, now, DIFFERING_MAX, &pointers);
    reply->differing = pointers;
}

static void tell(struct waiter *waiter, struct flight *flight, enum reply_kind kind, struct err *err)
{
    struct admission_result *result = &flight->request.admit.result;
    struct engine_reply reply = {
        .kind = kind,
        .op = result->existing,
        .tombstone = result->tombstone,
        .tool = flight->tool,
        .replayed = kind == REPLY_OPERATION,
        .other_arguments = result->other_arguments,
        .refusal = kind == REPLY_POLICY ? &result->refusal : NULL,
        .err = err ? err : &no_error,
    };
    if (kind == REPLY_CONFLICT)
        differing_fields(&reply, &flight->arena, &flight->op);
    waiter_reply(waiter, &reply);
}

/* Nobody knows how long people take: only callers that said how long they wait are kept waiting for them. */
static bool answered_at_once(const struct waiter *waiter, const struct operation *op)
{
    return waiter->async || (op->reason == REASON_AWAITING_APPROVAL && !waiter->waits_for_people);
}

/* The ledger has put it into the queues of its entities. */
static void wait_for_entities(struct flight *flight)
{
    struct event *event = &flight->request.admit.event;
    claims_await(&flight->op, flight->request.admit.admission.claims->wait_until_ms);
    event->from = event->to = flight->op.state;
    event->reason = flight->op.reason;
    event->attempt = 0;
}

static void begin(struct flight *flight, struct waiter *waiter)
{
    struct engine *engine = flight->engine;
    if (flight->request.admit.result.waits)
        wait_for_entities(flight);
    flight->durable = flight->op;
    flight->owned = flight->op.owner != NULL;
    flight_looked(flight);
    flight_register(flight);
    engine->stats.admitted++;
    if (flight->request.admit.undoes) {
        const struct ledger_transition *undone = flight->request.admit.undoes;
        engine->stats.compensations++;
        engine_undone(engine, undone->op, undone->events, undone->event_count);
    }
    if (flight->request.admit.parent) {
        const struct ledger_transition *parent = flight->request.admit.parent;
        engine_undone(engine, parent->op, parent->events, parent->event_count);
    }
    replay_forget(&engine->replay, &flight->op.key_hash); /* a new version of the key */
    log_transitions(engine, &flight->op, &flight->request.admit.event, 1);
    waiter->opened = true;
    if (flight->op.state == STATE_DISPATCHED && flight->executor) {
        guard_begun(flight, waiter);
        return;
    }
    if (!waiter->reply) { /* the caller left while the ledger decided */
        waiter_attach(waiter, &flight->durable);
        engine_caller_left(engine, waiter);
    } else if (answered_at_once(waiter, &flight->durable)) {
        struct engine_reply reply = {
            .kind = REPLY_OPERATION, .op = &flight->durable, .tool = flight->tool, .err = &no_error};
        waiter_reply(waiter, &reply);
    } else {
        waiter_attach(waiter, &flight->durable);
    }
    if (flight->op.state == STATE_DISPATCHED) {
        flight_send(flight);
    } else if (flight->owned && flight->tool->steps && !engine->stopping) {
        flight_wake(flight);
    } else if (flight->owned && !engine->stopping) {
        flight_enqueue(flight);
        MARK(queued);
        route_pump(flight->route);
    } else {
        engine_plan(engine, flight->op.wake_at_ms);
        flight_free(flight);
    }
}

static void join(struct flight *flight, struct waiter *waiter)
{
    const struct operation *existing = flight->request.admit.result.existing;
    flight->engine->stats.joined++;
    waiter->replayed = true;
    waiter->other_arguments = flight->request.admit.result.other_arguments;
    if (!waiter->reply) {
        waiter_free(waiter);
    } else if (answered_at_once(waiter, existing) || waiter->wait_ms == 0 || operation_settled(existing) ||
               flight->engine->stopping) {
        tell(waiter, flight, REPLY_OPERATION, NULL);
    } else {
        waiter_attach(waiter, existing);
    }
}

static void count_verdict(struct engine_stats *stats, enum verdict verdict)
{
    stats->replayed += verdict == VERDICT_REPLAY;
    stats->conflicts += verdict == VERDICT_CONFLICT;
    stats->held += verdict == VERDICT_HELD;
    stats->policy += verdict == VERDICT_POLICY;
}

static void refuse_repeat(struct waiter *waiter, struct flight *flight, bool open)
{
    struct err err = {0};
    if (open)
        err_set(&err, ERR_CONFLICT, "repeat_of names %s, which is not finished: wait for it first",
                flight->op.repeat_of);
    else
        err_set(&err, ERR_CONFLICT,
                "repeat_of names %s, which is not an operation of this tool that this call would have joined",
                flight->op.repeat_of);
    tell(waiter, flight, REPLY_REPEAT, &err);
}

static void count_refusal(struct engine_stats *stats, enum claims_verdict verdict)
{
    stats->guards += verdict == CLAIMS_GUARD;
    stats->entities_busy += verdict == CLAIMS_ENTITY;
    stats->windows += verdict == CLAIMS_WINDOW;
    stats->budgets += verdict == CLAIMS_BUDGET;
}

static void refuse_by_policy(struct waiter *waiter, struct flight *flight)
{
    const struct ledger_admit *admit = &flight->request.admit;
    struct err err = {0};
    claims_explain(admit->admission.claims, &admit->result.refusal, &err);
    count_refusal(&flight->engine->stats, admit->result.refusal.verdict);
    tell(waiter, flight, REPLY_POLICY, &err);
}

static void tell_unavailable(struct waiter *waiter, struct flight *flight, const struct err *err)
{
    struct engine_reply reply = {.kind = REPLY_UNAVAILABLE, .tool = flight->tool, .err = err};
    flight->engine->stats.unavailable++;
    waiter_reply(waiter, &reply);
}

/* Its entities were changed between the guards' look and the ledger's. True: it looks again. */
static bool looks_again(struct flight *flight, struct waiter *waiter)
{
    flight->callers.first = waiter;
    waiter->admitting = flight;
    if (flight_look_again(flight))
        return true;
    flight->callers.first = NULL;
    flight->phase = PHASE_NEW;
    waiter->admitting = NULL;
    return false;
}

static void admitted(struct ledger_request *request)
{
    struct flight *flight = request->user;
    struct engine *engine = flight->engine;
    struct waiter *waiter = flight->callers.first; /* parked here until the verdict */
    flight->callers.first = NULL;
    flight->phase = PHASE_NEW;
    engine_request_ended(engine);
    waiter->admitting = NULL;
    if (request->code) {
        if (request->code == ERR_STALE) /* what it undoes, or is a step of, has moved */
            tell(waiter, flight, REPLY_STALE, &request->err);
        else if (request->code == ERR_CONFLICT) /* a step is undone by its parent only */
            tell(waiter, flight, REPLY_IMPOSSIBLE, &request->err);
        else
            tell_unavailable(waiter, flight, &request->err);
        if (request->code == ERR_UNAVAILABLE || request->code == ERR_IO || request->code == ERR_CORRUPT)
            engine_ledger_fails(engine, &request->err);
        flight_free(flight);
        return;
    }
    engine_ledger_works(engine);
    MARK(admission_committed);
    enum verdict verdict = request->admit.result.verdict;
    count_verdict(&engine->stats, verdict);
    switch (verdict) {
    case VERDICT_NEW: begin(flight, waiter); return;
    case VERDICT_JOIN:
        if (!guard_joins(flight, waiter, request->admit.result.existing))
            join(flight, waiter);
        break;
    case VERDICT_REPLAY:
        if (digest_equal(&request->admit.result.existing->key_hash, &flight->op.key_hash))
            replay_keep(&engine->replay, request->admit.result.existing);
        tell(waiter, flight, REPLY_OPERATION, NULL);
        break;
    case VERDICT_CONFLICT: tell(waiter, flight, REPLY_CONFLICT, NULL); break;
    case VERDICT_NOT_SHARED: tell(waiter, flight, REPLY_NOT_SHARED, NULL); break;
    case VERDICT_HELD: tell(waiter, flight, REPLY_HELD, NULL); break;
    case VERDICT_EXPIRED: tell(waiter, flight, REPLY_EXPIRED, NULL); break;
    case VERDICT_REPEAT_UNKNOWN: refuse_repeat(waiter, flight, false); break;
    case VERDICT_REPEAT_OPEN: refuse_repeat(waiter, flight, true); break;
    case VERDICT_POLICY: refuse_by_policy(waiter, flight); break;
    case VERDICT_LOOK:
        if (looks_again(flight, waiter))
            return;
        err_set(&request->err, ERR_UNAVAILABLE,
                "what tool %s works on keeps changing: nothing was recorded, nothing "
                "was sent",
                flight->tool->name);
        tell_unavailable(waiter, flight, &request->err);
        break;
    }
    flight_free(flight);
}

/* ---- dry run ---- */

static const char *plan_verdict(const struct admission_result *result)
{
    if (result->verdict == VERDICT_POLICY)
        return claims_verdict_name(result->refusal.verdict);
    return result->verdict == VERDICT_NEW ? "execute" : verdict_name(result->verdict);
}

static void write_plan_claims(struct flight *flight, struct json_out *out)
{
    const struct ledger_admit *admit = &flight->request.admit;
    struct err err = {0};
    if (!admit->admission.claims)
        return;
    json_out_name(out, "claims");
    json_out_raw(out, flight->op.claims);
    json_out_member_bool(out, "waits_for_entity", admit->result.waits);
    if (admit->result.verdict != VERDICT_POLICY)
        return;
    claims_explain(admit->admission.claims, &admit->result.refusal, &err);
    json_out_member_text(out, "refusal", err.text);
}

static void write_plan_approval(const struct flight *flight, struct json_out *out)
{
    const struct approval_policy *policy = &flight->tool->approval;
    json_out_object(out);
    json_out_member_int(out, "needed", policy->approvers);
    json_out_member_int(out, "expires_in_ms", policy->expires_ms);
    json_out_end_object(out);
}

static void write_plan(struct flight *flight, struct json_out *out)
{
    struct operation *op = &flight->op;
    struct admission_result *result = &flight->request.admit.result;
    const struct operation *existing = result->existing;
    char hex[2 * DIGEST_BYTES + 1];
    digest_hex(&op->fingerprint, DIGEST_BYTES, hex);
    json_out_object(out);
    json_out_member_text(out, "tool", op->tool);
    json_out_member_text(out, "decision", plan_verdict(result));
    json_out_member_text(out, "key_source", key_source_name(op->key_source));
    json_out_member_text(out, "key", op->key_source == KEY_SOURCE_REPEAT && !op->repeat_of ? NULL : op->key);
    json_out_member_int(out, "key_version", op->key_version);
    json_out_member_text(out, "fingerprint", hex);
    json_out_member_text(out, "policy_version", op->policy_version);
    json_out_member_text(out, "class", tool_class_name(flight->tool->class));
    json_out_name(out, "approvals");
    json_out_array(out);
    if (flight->asks_approval && result->verdict == VERDICT_NEW)
        write_plan_approval(flight, out);
    json_out_end_array(out);
    write_plan_claims(flight, out);
    json_out_name(out, "operation");
    if (existing) {
        json_out_object(out);
        json_out_member_text(out, "operation_id", existing->id);
        json_out_member_text(out, "status", state_name(existing->state));
        json_out_member_bool(out, "same_arguments", digest_equal(&existing->fingerprint, &op->fingerprint));
        json_out_end_object(out);
    } else {
        json_out_null(out);
    }
    if (flight->tool->steps) {
        json_out_name(out, "steps");
        flight_describe_steps(flight, out);
        json_out_end_object(out);
        return;
    }
    json_out_name(out, "request");
    struct adapter_call call = {
        .tool = flight->tool,
        .kind = ATTEMPT_CALL,
        .operation = op->id,
        .provider_key = op->provider_key,
        .tenant = op->tenant,
        .run = op->run,
        .trace = op->trace,
        .arguments = flight->arguments,
    };
    struct err err = {0};
    struct adapter *adapter = flight->engine->adapter;
    if (adapter->ops->describe(adapter, &call, out, &err))
        json_out_text(out, err.text);
    json_out_end_object(out);
}

static void planned(struct ledger_request *request)
{
    struct flight *flight = request->user;
    struct waiter *waiter = flight->callers.first;
    flight->callers.first = NULL;
    flight->phase = PHASE_NEW;
    engine_request_ended(flight->engine);
    struct buf text;
    buf_init(&text, 0);
    struct engine_reply reply = {.kind = REPLY_UNAVAILABLE, .tool = flight->tool, .err = &request->err};
    if (!request->code && request->admit.result.verdict == VERDICT_LOOK && looks_again(flight, waiter)) {
        buf_release(&text);
        return;
    }
    if (!request->code) {
        struct json_out out;
        json_out_init(&out, &text);
        write_plan(flight, &out);
        reply.kind = REPLY_PLAN;
        reply.plan = buf_str(&text);
    }
    waiter_reply(waiter, &reply);
    buf_release(&text);
    flight_free(flight);
}

/* ---- the call ---- */

/* A step is let in beside its parent: parents that took all the room would wait for it for ever. */
static bool overloaded(struct engine *engine, const struct admit_as *as, struct err *err)
{
    if (engine->stopping)
        err_set(err, ERR_UNAVAILABLE, "onced is stopping: nothing was recorded, nothing was sent");
    else if (!as->parent && engine->flights.count + engine->waiter_count >= engine->in_flight_max * 2)
        err_set(err, ERR_UNAVAILABLE, "too many calls in flight: nothing was recorded, nothing was sent");
    return err->code != ERR_NONE;
}

static bool request_can_be_built(struct flight *flight, struct err *err)
{
    struct adapter *adapter = flight->engine->adapter;
    if (flight->tool->steps) /* its steps have requests of their own, and arguments that may not be known yet */
        return true;
    struct adapter_call call = {
        .tool = flight->tool,
        .kind = ATTEMPT_CALL,
        .operation = flight->op.id,
        .provider_key = flight->op.provider_key,
        .tenant = flight->op.tenant,
        .run = flight->op.run,
        .trace = flight->op.trace,
        .arguments = flight->arguments,
    };
    return adapter->ops->check(adapter, &call, err) == ERR_NONE;
}

/* A condition that cannot be judged holds: people are asked. */
static bool approval_wanted(const struct flight *flight)
{
    const struct tool *tool = flight->tool;
    const struct approval_policy *policy = &tool->approval;
    struct err err = {0};
    bool yes = true;
    if (flight->op.repeat_of && tool->repeat == REPEAT_WITH_APPROVAL)
        return true;
    if (!policy->required || !policy->condition)
        return policy->required;
    if (jq_program_test((struct jq_program *)policy->condition, flight->arguments, &yes, &err)) {
        log_message(LOG_WARN, "approval", "%s: the condition of %s can not be judged, so that people are asked: %s",
                    flight->op.id, tool->name, err.text);
        return true;
    }
    return yes;
}

static void refuse(struct flight *flight, engine_reply_fn *reply, void *user, const struct identity_error *why,
                   const struct err *err)
{
    struct engine_reply answer = {.kind = REPLY_REFUSED, .tool = flight->tool, .why = why, .err = err};
    flight->engine->stats.refused++;
    reply(user, &answer);
    flight_free(flight);
}

static void own_call_texts(struct flight *flight)
{
    struct arena *arena = &flight->arena;
    struct operation *op = &flight->op;
    const char **texts[] = {&op->tenant,        &op->principal,   &op->key,      &op->workflow, &op->run,
                            &op->step,          &op->session,     &op->call,     &op->trace,    &op->repeat_of,
                            &op->distinct_from, &op->compensates, &op->playbook, &op->parent};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = arena_copy_text(arena, *texts[i]);
    op->tool = flight->tool->name;
    op->policy_version = registry_policy_version(flight->registry);
}

/* The same decision as the ledger's, on the same operation. Everything but a plain replay is left to the ledger. */
static bool replay_from_memory(struct flight *flight, const struct engine_call *request, engine_reply_fn *reply,
                               void *user)
{
    struct engine *engine = flight->engine;
    const struct operation *kept =
        request->dry_run || flight->op.repeat_of ? NULL : replay_find(&engine->replay, &flight->op.key_hash);
    if (!kept)
        return false;
    struct admission_facts facts = {.by_key = kept};
    struct admission_result result = admission_decide(&flight->request.admit.admission, &facts, engine_now(engine));
    if (result.verdict != VERDICT_REPLAY) {
        flight->op.key_version = 1; /* as identity left them */
        flight->op.previous = NULL;
        return false;
    }
    engine->stats.replayed++;
    struct engine_reply answer = {
        .kind = REPLY_OPERATION,
        .op = kept,
        .tool = flight->tool,
        .replayed = true,
        .other_arguments = result.other_arguments,
        .err = &no_error,
    };
    reply(user, &answer);
    flight_free(flight);
    return true;
}

static void complete_claims(struct flight *flight)
{
    struct ledger_admit *admit = &flight->request.admit;
    struct claims *claims = admit->admission.claims;
    bool later = flight->asks_approval || flight->op.not_before_ms > flight->op.created_ms;
    admit->admission.wants_entities = claims->entity_count > 0 && !later;
    claims->wait_until_ms = step_total_end(&flight->op, flight->tool);
    if (claims->window && claims->override_reason)
        admit->event.note = arena_printf(&flight->arena, "window overridden: %s", claims->override_reason);
}

static void submit_admission(struct flight *flight, const struct engine_call *request, struct waiter *waiter)
{
    struct ledger_admit *admit = &flight->request.admit;
    struct operation *op = &flight->op;
    admit->attempt = op->state == STATE_DISPATCHED ? &flight->attempt : NULL;
    admit->dry_run = request->dry_run;
    admit->event = (struct event){
        .at_ms = op->created_ms,
        .cause = CAUSE_ADMITTED,
        .from = op->state,
        .to = op->state,
        .reason = op->reason,
        .actor = op->principal,
        .attempt = op->tries,
        .note = flight->undoes,
    };
    if (admit->admission.claims)
        complete_claims(flight);
    for (size_t i = 0; i < admit->admission.distinct_count; i++)
        admit->admission.distinct_from[i] = arena_copy_text(&flight->arena, admit->admission.distinct_from[i]);
    waiter->admitting = flight;
    waiter->async = request->async;
    waiter->waits_for_people = request->waits_for_people;
    flight->callers.first = waiter;
    flight->phase = PHASE_ADMIT;
    flight->request.command = LEDGER_ADMIT;
    flight->request.done = request->dry_run ? planned : admitted;
    if (!flight_look_first(flight))
        engine_submit(flight->engine, &flight->request);
    MARK(admission_submitted);
}

static int64_t wait_of(const struct engine_call *request, const struct tool *tool)
{
    return request->wait_ms < 0 ? tool->wait_ms : request->wait_ms;
}

/* What the caller's token is limited to: the tool, and the entities that the call would touch. Asked before anything
 * else is answered, also a repetition's result. */
static enum err_code check_scope(struct flight *flight, const struct scope *scope, struct err *err)
{
    struct scope_entity entities[CLAIMS_ENTITIES_MAX];
    struct arena *arena = &flight->arena;
    size_t count = 0;
    if (!scope_is_limited(scope))
        return ERR_NONE;
    if (scope->entities.limited && flight->tool->claims) {
        struct claims *claims = arena_zero(arena, sizeof *claims);
        if (claims_of_call(flight->tool->claims, &flight->op, flight->arguments, NULL, arena, claims, err))
            return err->code;
        for (; count < claims->entity_count; count++)
            entities[count] = (struct scope_entity){claims->entities[count].type, claims->entities[count].id};
    }
    return scope_check(arena, scope, flight->tool->name, entities, count, err);
}

struct waiter *engine_admit(struct engine *engine, const struct engine_call *request, const struct admit_as *as,
                            engine_reply_fn *reply, void *user)
{
    static const struct admit_as plain;
    struct err err = {0};
    as = as ? as : &plain;
    engine->stats.calls++;
    if (overloaded(engine, as, &err)) {
        reply_error(engine, reply, user, REPLY_UNAVAILABLE, &err);
        return NULL;
    }
    const struct tool *tool = registry_find(engine->registry, str_of(request->tool));
    if (!tool) {
        reply_error(engine, reply, user, REPLY_NO_TOOL, NULL);
        return NULL;
    }
    if (request->call.repeat_of && tool->repeat == REPEAT_DENIED) {
        err_set(&err, ERR_DENIED, "tool %s may not be repeated on purpose (repeat: denied)", tool->name);
        reply_error(engine, reply, user, REPLY_REPEAT, &err);
        return NULL;
    }
    if (!as->old && !request->dry_run && (tool->guard_lease_ms > 0) != request->begins) {
        err_set(&err, ERR_CONFLICT,
                request->begins ? "tool %s is no tool of guard mode: call it at /v1/calls"
                                : "tool %s is performed by the application itself: begin it at /v1/guard/%s/begin",
                tool->name, tool->name);
        reply_error(engine, reply, user, REPLY_IMPOSSIBLE, &err);
        return NULL;
    }
    struct flight *flight = flight_new(engine);
    struct operation *op = &flight->op;
    struct ledger_admit *admit = &flight->request.admit;
    struct identity_error why;
    flight_set_tool(flight, engine->registry, tool);
    flight->origin = request->origin;
    new_operation_id(engine, op);
    guard_name_executor(flight, request);
    if (identity_derive(&request->call, tool, secret_of(engine), &flight->arena, op, &admit->admission,
                        &flight->arguments, &why, &err)) {
        refuse(flight, reply, user, &why, &err);
        return NULL;
    }
    if (check_scope(flight, request->scope, &err)) {
        why.refusal = err.code == ERR_DENIED ? REFUSAL_NONE : REFUSAL_ARGUMENTS;
        refuse(flight, reply, user, &why, &err);
        return NULL;
    }
    if (!as->old && replay_from_memory(flight, request, reply, user))
        return NULL;
    if (!request_can_be_built(flight, &err)) {
        why.refusal = REFUSAL_ARGUMENTS;
        refuse(flight, reply, user, &why, &err);
        return NULL;
    }
    if (as->old) { /* the key is the old operation's own, whatever it came from */
        op->key_source = as->old->key_source;
        admit->admission.share_with_tenant = true;
        admit->admission.new_version_of = arena_copy_text(&flight->arena, as->new_version_of);
    }
    if (!tool_is_write(tool) && !tool->audit && !tool->steps && !as->parent && !request->dry_run) {
        struct waiter *waiter = reads_call(engine->reads, request, tool, op, flight->arguments, reply, user);
        flight_free(flight);
        return waiter;
    }
    own_call_texts(flight);
    if (tool->claims && flight_claim(flight, request->call.override_reason, &err)) {
        why.refusal = REFUSAL_ARGUMENTS;
        refuse(flight, reply, user, &why, &err);
        return NULL;
    }
    if (as->undone && flight_undo(flight, as, &err)) {
        why.refusal = REFUSAL_NONE;
        refuse(flight, reply, user, &why, &err);
        return NULL;
    }
    if (as->parent && flight_move_parent(flight, as, &err)) {
        why.refusal = REFUSAL_NONE;
        refuse(flight, reply, user, &why, &err);
        return NULL;
    }
    if (tool->steps) {
        struct steps_progress progress;
        steps_start(tool->steps, &progress);
        op->steps = steps_write(&flight->arena, &progress);
    }
    flight->asks_approval = approval_wanted(flight) || (as->playbook && as->playbook->needs_approval);
    op->created_ms = op->updated_ms = engine_now(engine);
    op->rev = 1;
    if (request->dry_run)
        op->state = STATE_PLANNED;
    else
        plan_first_state(flight, request, op->created_ms);
    struct waiter *waiter = waiter_new(engine, reply, user, wait_of(request, tool));
    waiter->called_ms = op->created_ms;
    submit_admission(flight, request, waiter);
    return waiter;
}

struct waiter *engine_call(struct engine *engine, const struct engine_call *request, engine_reply_fn *reply, void *user)
{
    return engine_admit(engine, request, NULL, reply, user);
}

/* ---- waiting for a known operation ---- */

struct ask {
    struct ledger_request request;
    struct arena arena;
    struct waiter *waiter;
};

static void asked(struct ledger_request *request)
{
    struct ask *ask = request->user;
    struct waiter *waiter = ask->waiter;
    struct engine *engine = waiter->engine;
    engine_request_ended(engine);
    struct operation *op = request->code ? NULL : request->get.op;
    const struct tool *tool = op ? registry_find(engine->registry, str_of(op->tool)) : NULL;
    struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op, .tool = tool, .err = &no_error};
    if (request->code) {
        reply.kind = request->code == ERR_NOT_FOUND ? REPLY_NOT_FOUND : REPLY_UNAVAILABLE;
        reply.err = &request->err;
    } else if (!op) {
        reply.kind = REPLY_EXPIRED;
        reply.tombstone = request->get.tombstone;
    } else if (!operation_settled(op) && waiter->wait_ms > 0 && waiter->reply && !engine->stopping) {
        waiter_attach(waiter, op);
        waiter = NULL;
    }
    if (waiter)
        waiter_reply(waiter, &reply);
    struct arena arena = ask->arena;
    arena_release(&arena);
}

struct waiter *engine_wait(struct engine *engine, const char *tenant, const char *operation, int64_t wait_ms,
                           engine_reply_fn *reply, void *user)
{
    struct arena arena;
    arena_init(&arena);
    struct ask *ask = arena_zero(&arena, sizeof *ask);
    ask->waiter = waiter_new(engine, reply, user, wait_ms);
    struct waiter *waiter = ask->waiter;
    ask->request.command = LEDGER_GET;
    ask->request.get.tenant = arena_copy_text(&arena, tenant);
    ask->request.get.operation = arena_copy_text(&arena, operation);
    ask->request.done = asked;
    ask->request.user = ask;
    ask->arena = arena;
    ask->request.arena = &ask->arena;
    engine_submit(engine, &ask->request);
    return waiter;
}
