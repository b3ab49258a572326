/* An operation in memory. One rule: what the ledger has not committed has not happened, so each step is
 *
 *     step (core) ─► commit ─► act: send │ look up │ wait for wake_at │ tell the callers
 */
#include "base/log.h"
#include "base/mark.h"
#include "base/mem.h"
#include "engine/internal.h"

#include <assert.h>
#include <stdlib.h>

static void commit(struct flight *flight, enum after_commit after);

/* ---- life of the record itself ---- */

/* Memory of flights that are over serves the next ones: each call has one. */
#define SPARE_ARENA_MAX (16 * 1024) /* a larger one is given back */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPARES_MAX 0
#endif
#elif defined(__SANITIZE_ADDRESS__) /* who uses one that is over is to be seen */
#define SPARES_MAX 0
#endif
#ifndef SPARES_MAX
#define SPARES_MAX 64
#endif

static struct flight *blank(struct engine *engine)
{
    struct flight *flight = engine->spare;
    if (!flight)
        return mem_zero(sizeof *flight);
    struct arena arena = flight->arena;
    engine->spare = flight->next_spare;
    engine->spare_count--;
    *flight = (struct flight){.arena = arena};
    return flight;
}

static void keep_or_free(struct engine *engine, struct flight *flight)
{
    if (engine->spare_count == SPARES_MAX || flight->arena.bytes > SPARE_ARENA_MAX) {
        arena_release(&flight->arena);
        free(flight);
        return;
    }
    arena_reset(&flight->arena);
    flight->next_spare = engine->spare;
    engine->spare = flight;
    engine->spare_count++;
}

void flight_free_spares(struct engine *engine)
{
    while (engine->spare) {
        struct flight *flight = engine->spare;
        engine->spare = flight->next_spare;
        arena_release(&flight->arena);
        free(flight);
    }
}

struct flight *flight_new(struct engine *engine)
{
    struct flight *flight = blank(engine);
    flight->engine = engine;
    flight->request.arena = &flight->arena;
    flight->request.user = flight;
    return flight;
}

void flight_set_tool(struct flight *flight, struct registry *registry, const struct tool *tool)
{
    registry_unref(flight->registry);
    flight->registry = registry_ref(registry);
    flight->tool = tool;
    flight->route = tool ? engine_route(flight->engine, tool->provider) : NULL;
}

void flight_register(struct flight *flight)
{
    map_put(&flight->engine->flights, flight->op.id, flight);
    flight->registered = true;
    callers_take_over(flight);
}

struct flight *flight_from(struct engine *engine, const struct operation *op, bool owned)
{
    struct flight *flight = flight_new(engine);
    struct operation *copy = operation_copy(&flight->arena, op);
    flight->op = *copy;
    flight->durable = *copy;
    flight->owned = owned;
    const struct tool *tool = registry_find(engine->registry, str_of(op->tool));
    bool fits = tool && (tool->steps != NULL) == step_is_parent(op); /* as step() has it */
    flight_set_tool(flight, engine->registry, fits ? tool : NULL);
    flight_register(flight);
    return flight;
}

static void release_slot(struct flight *flight)
{
    if (!flight->has_slot)
        return;
    flight->has_slot = false;
    gate_return(&flight->route->gate);
    route_pump(flight->route);
}

void flight_free(struct flight *flight)
{
    assert(flight->phase != PHASE_WIRE && flight->phase != PHASE_COMMIT);
    struct engine *engine = flight->engine;
    release_slot(flight);
    heap_remove(&engine->stalls, &flight->timer);
    if (flight->registered && map_get(&engine->flights, flight->op.id) == flight) {
        map_remove(&engine->flights, flight->op.id);
        callers_leave(flight);
        inbox_flight_gone(engine->inbox, flight->op.id);
    }
    registry_unref(flight->registry);
    keep_or_free(engine, flight);
    engine_check_stopped(engine);
}

/* Leaves memory; the ledger wakes it when its time comes. */
static void sleep_in_ledger(struct flight *flight)
{
    engine_plan(flight->engine, flight->durable.wake_at_ms);
    flight_free(flight);
}

/* ---- logs (design 17), and who listens ---- */

static void tell_listener(struct engine *engine, const struct engine_change *change)
{
    if (engine->changed)
        engine->changed(engine->changed_user, change);
}

/* What people and entities did to an operation. */
static void count_policy(struct engine_stats *stats, const struct event *event)
{
    bool planned = event->to == STATE_PLANNED, rejected = event->to == STATE_REJECTED;
    bool fresh = event->cause == CAUSE_ADMITTED || event->cause == CAUSE_HELD;
    stats->approvals_asked += planned && fresh && event->reason == REASON_AWAITING_APPROVAL;
    stats->approvals_granted += planned && event->cause == CAUSE_APPROVAL && event->reason != REASON_AWAITING_APPROVAL;
    stats->approvals_denied += rejected && event->reason == REASON_DENIED;
    stats->approvals_expired += rejected && event->reason == REASON_EXPIRED;
    stats->entity_waits += planned && event->reason == REASON_AWAITING_ENTITY;
    stats->guards += rejected && event->cause == CAUSE_POLICY;
}

void log_transitions(struct engine *engine, const struct operation *op, const struct event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &events[i];
        bool quiet = event->from == event->to || event->to == STATE_COMPLETED_SUCCESS || event->to == STATE_DISPATCHED;
        if (!log_begin(quiet ? LOG_DEBUG : LOG_INFO, "transition"))
            continue;
        char key[9];
        identity_key_short((struct str){(const char *)engine->ledger->secret, LEDGER_SECRET_BYTES}, op->key, key);
        log_text("operation", op->id);
        log_text("tool", op->tool);
        log_text("tenant", op->tenant);
        log_text("run", op->run);
        log_text("key", key);
        log_text("from", state_name(event->from));
        log_text("to", state_name(event->to));
        log_text("reason", event->reason ? reason_name(event->reason) : NULL);
        log_text("cause", cause_name(event->cause));
        log_text("actor", event->actor);
        log_int("attempt", event->attempt);
        log_text("note", event->note);
        log_end();
    }
    for (size_t i = 0; i < count; i++)
        count_policy(&engine->stats, &events[i]);
    tell_listener(engine, &(struct engine_change){.op = op, .events = events, .event_count = count});
}

static void log_incidents(const struct ledger_transition *change)
{
    for (size_t i = 0; i < change->incident_count; i++) {
        const struct incident *incident = &change->incidents[i];
        if (!log_begin(LOG_WARN, "incident"))
            return;
        log_text("incident", incident->id);
        log_text("operation", incident->operation);
        log_text("kind", incident_kind_name(incident->kind));
        log_text("note", incident->note);
        log_end();
    }
}

static void tell_incidents(struct engine *engine, const struct operation *op, const struct ledger_transition *change)
{
    const struct ledger_undone *others[] = {change->undone, change->parent};
    log_incidents(change);
    if (change->incident_count > 0)
        tell_listener(engine, &(struct engine_change){
                                  .op = op, .incidents = change->incidents, .incident_count = change->incident_count});
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!others[i] || !others[i]->incident)
            continue;
        struct incident raised = {.tenant = others[i]->op->tenant, .operation = others[i]->op->id};
        memcpy(raised.id, change->incident_id, sizeof raised.id);
        raised.kind = INCIDENT_COMPENSATION_FAILED;
        tell_listener(engine, &(struct engine_change){.op = others[i]->op, .incidents = &raised, .incident_count = 1});
    }
}

static void log_attempt(const struct flight *flight, const struct attempt *attempt)
{
    bool quiet = attempt->outcome == OUTCOME_SUCCESS;
    if (!log_begin(quiet ? LOG_DEBUG : LOG_INFO, "attempt"))
        return;
    log_text("operation", flight->op.id);
    log_text("attempt", attempt->id);
    log_text("tool", flight->op.tool);
    log_text("kind", attempt_kind_name(attempt->kind));
    log_int("number", attempt->number);
    log_text("outcome", outcome_name(attempt->outcome));
    log_int("http_status", attempt->http_status);
    log_text("provider_request", attempt->provider_request_id);
    log_int("latency_ms", attempt->finished_ms - attempt->started_ms);
    log_text("detail", attempt->detail);
    log_end();
}

/* ---- step and commit ---- */

void flight_add_row(struct flight *flight, const struct attempt *attempt)
{
    assert(flight->row_count < LEDGER_CHANGE_ATTEMPTS_MAX);
    flight->rows[flight->row_count++] = *attempt;
}

/* People's decisions and late evidence go over a lease: whoever holds it loses its compare-and-set then. All else moves
 * what is ours, or what nobody holds. */
static bool goes_over_leases(enum step_kind kind)
{
    switch (kind) {
    case STEP_RESOLVE:
    case STEP_RETRY:
    case STEP_CANCEL:
    case STEP_APPROVAL:
    case STEP_LINK:
    case STEP_INBOUND:
    case STEP_COMPENSATE:         /* with its admission … */
    case STEP_COMPENSATION_ENDED: /* … and by the ledger: neither comes through here, … */
    case STEP_TOLD:               /* … nor does this */
    case STEP_EVIDENCE: return true;
    case STEP_DISPATCH:
    case STEP_HOLD:
    case STEP_ANSWER:
    case STEP_AWAIT_ENTITY:
    case STEP_REFUSE:
    case STEP_LOOKUP_BEGIN:
    case STEP_LOOKUP_ANSWER:
    case STEP_RENEW:
    case STEP_WAKE:
    case STEP_KEEP:
    case STEP_OWNER_GONE:
    case STEP_RUN_STEPS:
    case STEP_BEGIN_STEP:
    case STEP_SKIP_STEP:
    case STEP_FAIL_STEP:
    case STEP_HOLD_STEP:
    case STEP_UNDO_STEP:
    case STEP_NOT_UNDONE:
    case STEP_FINISH_STEPS: break;
    }
    return false;
}

/* Who must hold the row for this change to be right. Evidence goes over leases, but not over a claim that it did not
 * see (a claim does not raise rev): it would give the row back to whom it had seen there. */
static const char *holder(const struct flight *flight, enum step_kind kind)
{
    if (flight->owned)
        return flight->engine->incarnation;
    if (flight->executor && (kind == STEP_ANSWER || kind == STEP_RENEW)) /* as long as its lease lasts */
        return flight->executor;
    return kind == STEP_EVIDENCE || kind == STEP_INBOUND ? flight->durable.owner : NULL;
}

static void new_incident_id(struct engine *engine, char id[OPERATION_ID_SIZE])
{
    ulid_next(&engine->ids, stpcpy(id, "in_"));
}

static void prepare_change(struct flight *flight, enum step_kind kind, const struct step_effects *effects)
{
    struct engine *engine = flight->engine;
    struct ledger_transition *change = &flight->request.transition;
    *change = (struct ledger_transition){
        .op = &flight->op,
        .fence = holder(flight, kind),
    };
    change->unheld = !change->fence && (kind == STEP_EVIDENCE || kind == STEP_INBOUND || !goes_over_leases(kind));
    change->inbound = kind == STEP_INBOUND ? flight->inbound : NULL;
    bool first = (kind == STEP_DISPATCH && flight->durable.attempts == 0) || kind == STEP_RUN_STEPS;
    change->seen = first ? flight->seen : NULL;
    for (size_t i = 0; i < effects->event_count; i++) {
        struct event *event = &change->events[change->event_count++];
        *event = effects->events[i];
        event->note = arena_copy_text(&flight->arena, event->note);
        event->actor = arena_copy_text(&flight->arena, event->actor);
    }
    for (size_t i = 0; i < effects->incident_count; i++) {
        struct incident *incident = &change->incidents[change->incident_count++];
        new_incident_id(engine, incident->id);
        incident->tenant = flight->op.tenant;
        incident->operation = flight->op.id;
        incident->kind = effects->incidents[i].kind;
        incident->at_ms = engine_now(engine);
        incident->note = arena_copy_text(&flight->arena, effects->incidents[i].note);
    }
    for (size_t i = 0; i < flight->row_count; i++)
        change->attempts[change->attempt_count++] = flight->rows[i];
    if (flight->op.compensates || flight->op.parent)
        new_incident_id(engine, change->incident_id);
}

/* A result over the tool's limit is delivered once and kept as its size only (design 12). */
static void drop_large_result(struct flight *flight)
{
    struct operation *op = &flight->op;
    if (flight->tool && op->result.n > flight->tool->result_bytes_max) {
        flight->full_result = op->result;
        op->result = STR_NONE;
        op->result_dropped = true;
    }
}

static void own_texts(struct flight *flight)
{
    struct operation *op = &flight->op;
    op->external_id = arena_copy_text(&flight->arena, op->external_id);
}

static enum err_code run_step(struct flight *flight, struct step_input *in, struct step_effects *effects,
                              struct err *err)
{
    struct engine *engine = flight->engine;
    in->now_ms = engine_now(engine);
    in->random = env_random64(engine->env);
    in->owner = flight->executor ? flight->executor : engine->incarnation;
    in->arena = &flight->arena;
    if (in->lease_ms == 0)
        in->lease_ms = flight_lease_ms(engine, flight->tool);
    return step(&flight->op, flight->tool, in, effects, err);
}

/* It covers the whole attempt: adapters give up at the provider's time-out by the steady clock, so that nothing leaves
 * once the lease has ended, however long this process stood still. */
int64_t flight_lease_ms(const struct engine *engine, const struct tool *tool)
{
    if (tool && tool->guard_lease_ms > 0)
        return tool->guard_lease_ms;
    return (tool ? tool_timeout_ms(tool) : 0) + engine->lease_ms;
}

enum err_code flight_step(struct flight *flight, struct step_input *in, enum after_commit after, struct err *err)
{
    struct step_effects effects;
    enum err_code code = run_step(flight, in, &effects, err);
    if (code)
        return code;
    assert(effects.changed);
    drop_large_result(flight);
    own_texts(flight);
    prepare_change(flight, in->kind, &effects);
    commit(flight, after);
    return ERR_NONE;
}

static void reload(struct flight *flight);

void flight_decided(struct flight *flight, enum reply_kind kind, const struct err *err)
{
    engine_reply_fn *fn = flight->decided;
    if (!fn)
        return;
    flight->decided = NULL;
    MARK_IF(kind == REPLY_OPERATION, decision_answered);
    struct engine_reply reply = {.kind = kind, .op = &flight->durable, .tool = flight->tool, .err = err};
    fn(flight->decided_user, &reply);
}

static void after_commit(struct flight *flight)
{
    struct err none = {0};
    struct ledger_transition *change = &flight->request.transition;
    bool named = !text_equal(flight->op.external_id, flight->durable.external_id);
    flight->durable = flight->op;
    flight->owned = text_equal(flight->op.owner, flight->engine->incarnation);
    flight->row_count = 0;
    replay_forget(&flight->engine->replay, &flight->op.key_hash);
    log_transitions(flight->engine, &flight->op, change->events, change->event_count);
    tell_incidents(flight->engine, &flight->op, change);
    if (change->undone)
        engine_undone(flight->engine, change->undone->op, change->undone->events, change->undone->event_count);
    if (change->parent)
        engine_undone(flight->engine, change->parent->op, change->parent->events, change->parent->event_count);
    flight_decided(flight, REPLY_OPERATION, &none);
    engine_plan(flight->engine, change->wake_ms);
    if (named)
        inbox_named(flight);
    switch (flight->after) {
    case AFTER_SEND: flight_send(flight); break;
    case AFTER_GO_ON: flight_go_on(flight); break;
    case AFTER_CLOSE: flight_owner_gone(flight); break;
    }
}

/* The ledger did not take the request: it is tried again. */
static void stall(struct flight *flight)
{
    struct engine *engine = flight->engine;
    flight->stall_ms = flight->stall_ms ? flight->stall_ms * 2 : COMMIT_RETRY_MS;
    if (flight->stall_ms > COMMIT_RETRY_MAX_MS)
        flight->stall_ms = COMMIT_RETRY_MAX_MS;
    engine_ledger_fails(engine, &flight->request.err);
    flight->phase = PHASE_STALLED;
    flight->timer.at_ms = engine_now(engine) + flight->stall_ms;
    heap_add(&engine->stalls, &flight->timer);
    engine_reschedule(engine);
    engine_check_stopped(engine);
}

static void commit_done(struct ledger_request *request)
{
    struct flight *flight = request->user;
    struct engine *engine = flight->engine;
    engine_request_ended(engine);
    flight->phase = PHASE_NEW;
    if (!request->code) {
        flight->stall_ms = 0;
        latency_add(&engine->stats.commit_took, flight->submitted_ms, engine_now(engine));
        engine_ledger_works(engine);
        MARK(commit_done);
        after_commit(flight);
        return;
    }
    if (request->code == ERR_STALE || request->code == ERR_NOT_FOUND) {
        reload(flight);
        return;
    }
    /* The ledger can not write now. What is known stays in memory and the same commit is tried until it can (case S72):
     * nothing more is sent for this operation, and nobody is told what is not durable. */
    if (flight->decided) {
        flight_decided(flight, REPLY_UNAVAILABLE, &request->err);
        flight->op = flight->durable;
        flight->row_count = 0;
        flight_free(flight);
        return;
    }
    stall(flight);
}

static void commit(struct flight *flight, enum after_commit after)
{
    struct ledger_request *request = &flight->request;
    flight->phase = PHASE_COMMIT;
    flight->after = after;
    request->command = LEDGER_TRANSITION;
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->done = commit_done;
    flight->submitted_ms = engine_now(flight->engine);
    MARK(before_commit);
    engine_submit(flight->engine, request);
}

/* ---- somebody else moved the row ---- */

static void reload_done(struct ledger_request *request)
{
    struct flight *flight = request->user;
    struct engine *engine = flight->engine;
    engine_request_ended(engine);
    flight->phase = PHASE_NEW;
    bool gone = request->code == ERR_NOT_FOUND || (!request->code && !request->get.op);
    if (request->code && !gone && flight->has_finding) { /* late evidence is never thrown away (3.4) */
        stall(flight);
        return;
    }
    if (request->code || gone) {
        flight_decided(flight, gone ? REPLY_NOT_FOUND : REPLY_UNAVAILABLE, &request->err);
        flight_free(flight);
        return;
    }
    flight->stall_ms = 0;
    struct operation *now = request->get.op;
    flight->op = flight->durable = *now;
    flight->owned = text_equal(now->owner, engine->incarnation);
    struct err stale = {.code = ERR_STALE};
    flight_decided(flight, REPLY_STALE, &stale);
    if (!flight->has_finding && flight->owned && now->state != STATE_DISPATCHED) {
        flight->row_count = 0; /* our own claim came in between and left the row to this flight: nobody else goes on */
        callers_tell(flight);
        flight_wake(flight);
        return;
    }
    if (!flight->has_finding) {
        callers_tell(flight);
        sleep_in_ledger(flight);
        return;
    }
    /* has_finding stays until the commit: when somebody moves the row once more, the evidence is tried again. */
    struct step_input in = {.kind = STEP_EVIDENCE, .attempt = flight->attempt.number, .finding = flight->finding};
    flight->row_count = 0;
    flight_add_row(flight, &flight->attempt);
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

static void fetch_row(struct flight *flight)
{
    struct ledger_request *request = &flight->request;
    flight->phase = PHASE_FETCH;
    request->command = LEDGER_GET;
    request->get = (struct ledger_get){.operation = arena_copy_text(&flight->arena, flight->op.id)};
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->done = reload_done;
    engine_submit(flight->engine, request);
}

static void reload(struct flight *flight)
{
    if (flight->seen)
        log_message(LOG_INFO, "stale", "%s: %s", flight->op.id, flight->request.err.text);
    else
        log_message(LOG_WARN, "stale", "%s was moved by somebody else", flight->op.id);
    flight->seen = NULL;
    release_slot(flight);
    fetch_row(flight);
}

void flight_reload(struct flight *flight)
{
    flight->has_finding = false;
    fetch_row(flight);
}

/* ---- on the wire ---- */

void flight_begin_attempt(struct flight *flight, enum attempt_kind kind)
{
    char ulid[ULID_CHARS + 1];
    ulid_next(&flight->engine->ids, ulid);
    struct attempt *attempt = &flight->attempt;
    *attempt = (struct attempt){
        .number = flight->op.tries + 1,
        .kind = kind,
        .outcome = OUTCOME_OPEN,
        .started_ms = engine_now(flight->engine),
    };
    memcpy(attempt->id, "at_", 3);
    memcpy(attempt->id + 3, ulid, sizeof ulid);
}

const struct json *flight_arguments(struct flight *flight)
{
    if (!flight->arguments) {
        struct json *value = NULL;
        struct str text = flight->op.arguments;
        flight->unreadable = text.p && json_parse(&flight->arena, text, &json_limits_kept, &value, NULL);
        flight->arguments = value ? value : json_object(&flight->arena);
    }
    return flight->arguments;
}

static void answered(void *user, const struct adapter_answer *answer);

static void keep_answer(struct flight *flight, const struct adapter_answer *answer);

/* The commit took long, or this process was stopped meanwhile. What would leave now could outlive the lease, whose end
 * tells others that nothing more will leave (settle counts from there), or the provider's memory of our key. */
static bool too_late_to_send(const struct flight *flight)
{
    const struct operation *op = &flight->op;
    int64_t now_ms = engine_now(flight->engine);
    bool resend = op->unknown_since_ms != 0;
    return now_ms + tool_timeout_ms(flight->tool) > op->lease_until_ms ||
           (resend && !step_key_lasts(op, flight->tool, now_ms));
}

static void not_sent(struct flight *flight, const char *why)
{
    struct adapter_answer answer = {.outcome = OUTCOME_NOT_SENT, .detail = why};
    release_slot(flight);
    keep_answer(flight, &answer);
    struct step_input in = {
        .kind = flight->attempt.kind == ATTEMPT_CALL ? STEP_ANSWER : STEP_LOOKUP_ANSWER,
        .attempt = flight->attempt.number,
        .began_ms = flight->lookup_began_ms,
        .finding = flight->finding,
    };
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

void flight_send(struct flight *flight)
{
    struct engine *engine = flight->engine;
    const struct operation *op = &flight->op;
    if (engine->cut) { /* the row says dispatched: the next start finds out */
        flight_free(flight);
        return;
    }
    if (flight->attempt.kind == ATTEMPT_CALL && too_late_to_send(flight)) {
        not_sent(flight, "the lease or the key would have ended first");
        return;
    }
    const struct json *arguments = flight_arguments(flight);
    if (flight->unreadable) { /* without them it would be another request */
        not_sent(flight, "the recorded arguments can not be read");
        return;
    }
    struct adapter_call call = {
        .tool = flight->tool,
        .kind = flight->attempt.kind,
        .operation = op->id,
        .attempt = flight->attempt.id,
        .provider_key = op->provider_key,
        .external_id = op->external_id,
        .tenant = op->tenant,
        .run = op->run,
        .trace = op->trace,
        .arguments = arguments,
        .progress = flight->progress,
        .origin = flight->origin,
    };
    flight->phase = PHASE_WIRE;
    MARK_IF(call.kind == ATTEMPT_CALL, before_send);
    MARK_IF(call.kind == ATTEMPT_LOOKUP, before_lookup);
    if (flight->attempt.kind == ATTEMPT_CALL)
        engine->stats.attempts++;
    else
        engine->stats.lookups++;
    engine->adapter->ops->send(engine->adapter, &call, answered, flight);
}

static void keep_answer(struct flight *flight, const struct adapter_answer *answer)
{
    struct arena *arena = &flight->arena;
    flight->finding = (struct finding){
        .outcome = answer->outcome,
        .http_status = answer->http_status,
        .detail = arena_copy_text(arena, answer->detail),
        .result = arena_str(arena, answer->result),
        .error = arena_str(arena, answer->error),
        .external_id = arena_copy_text(arena, answer->external_id),
        .retry_after_ms = answer->retry_after_ms,
        .matches = answer->matches,
    };
    flight->has_finding = true;
    struct attempt *attempt = &flight->attempt;
    attempt->outcome = answer->outcome;
    attempt->finished_ms = engine_now(flight->engine);
    if (attempt->outcome != OUTCOME_NOT_SENT)
        latency_add(&flight->engine->stats.request_took, attempt->started_ms, attempt->finished_ms);
    attempt->http_status = answer->http_status;
    attempt->provider_request_id = arena_copy_text(arena, answer->provider_request_id);
    attempt->detail = flight->finding.detail;
    log_attempt(flight, attempt);
    flight_add_row(flight, attempt);
}

/* The look-up goes on with the next page: a request of its own, with a row of its own. */
static void next_page(struct flight *flight, const struct adapter_answer *answer)
{
    flight->progress = arena_str(&flight->arena, answer->progress);
    flight->has_finding = false;
    flight_begin_attempt(flight, ATTEMPT_LOOKUP);
    flight_add_row(flight, &flight->attempt);
    struct step_input in = {.kind = STEP_LOOKUP_BEGIN};
    flight_step(flight, &in, AFTER_SEND, NULL);
}

static void answered(void *user, const struct adapter_answer *answer)
{
    struct flight *flight = user;
    struct engine *engine = flight->engine;
    flight->phase = PHASE_NEW;
    MARK_IF(flight->attempt.kind == ATTEMPT_CALL, answer_received);
    MARK_IF(flight->attempt.kind == ATTEMPT_LOOKUP, lookup_answered);
    keep_answer(flight, answer);
    if (answer->outcome == OUTCOME_MORE) {
        next_page(flight, answer);
        return;
    }
    flight->has_slot = false;
    gate_done(&flight->route->gate, flight->tool->provider, answer->outcome, engine_now(engine));
    flight->progress = STR_NONE;
    struct step_input in = {
        .kind = flight->attempt.kind == ATTEMPT_CALL ? STEP_ANSWER : STEP_LOOKUP_ANSWER,
        .attempt = flight->attempt.number,
        .began_ms = flight->lookup_began_ms,
        .finding = flight->finding,
    };
    struct route *route = flight->route;
    flight_step(flight, &in, AFTER_GO_ON, NULL);
    route_pump(route);
}

/* ---- what next ---- */

void flight_go_on(struct flight *flight)
{
    flight->has_finding = false;
    callers_tell(flight);
    if (inbox_takes(flight))
        return;
    const struct operation *op = &flight->op;
    if (state_terminal(op->state) || op->wake_at_ms == 0 || op->wake_at_ms > engine_now(flight->engine)) {
        sleep_in_ledger(flight);
        return;
    }
    flight_wake(flight);
}

static void hold(struct flight *flight, enum reason reason, int64_t until_ms)
{
    struct step_input in = {.kind = STEP_HOLD, .hold_reason = reason, .hold_until_ms = until_ms};
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

static bool queue_has_room(const struct flight *flight)
{
    return flight->route->count < flight->tool->provider->queue_max && !flight->engine->stopping;
}

static void queue_go(struct queued *queued)
{
    struct flight *flight = (struct flight *)((char *)queued - offsetof(struct flight, queued));
    flight->phase = PHASE_NEW;
    flight_wake(flight);
}

void flight_enqueue(struct flight *flight)
{
    flight->phase = PHASE_QUEUED;
    flight->queued.go = queue_go;
    route_push(flight->route, &flight->queued);
}

/* Takes a slot for a request of this kind, or arranges to be called again. */
static bool take_slot(struct flight *flight, bool resend)
{
    struct engine *engine = flight->engine;
    int64_t now = engine_now(engine), until = now + HOLD_MS;
    enum gate_answer answer =
        engine->stopping ? GATE_OPEN : gate_take(&flight->route->gate, flight->tool->provider, resend, now, &until);
    if (answer == GATE_PASS) {
        flight->has_slot = true;
        return true;
    }
    if (answer == GATE_FULL && queue_has_room(flight)) /* first come, first served: no starving by newer calls */
        flight_enqueue(flight);
    else
        hold(flight, gate_reason(answer), until);
    return false;
}

void flight_want_send(struct flight *flight)
{
    if (flight->tool->guard_lease_ms > 0) {
        guard_await_executor(flight);
        return;
    }
    if (step_is_parent(&flight->op)) {
        struct step_input begin = {.kind = STEP_RUN_STEPS};
        flight_step(flight, &begin, AFTER_GO_ON, NULL);
        return;
    }
    if (!take_slot(flight, flight->op.attempts > 0))
        return;
    flight_begin_attempt(flight, ATTEMPT_CALL);
    flight_add_row(flight, &flight->attempt);
    struct step_input in = {.kind = STEP_DISPATCH, .attempt = flight->attempt.number};
    flight_step(flight, &in, AFTER_SEND, NULL);
}

static void want_lookup(struct flight *flight)
{
    if (!take_slot(flight, false))
        return;
    flight_begin_attempt(flight, ATTEMPT_LOOKUP);
    flight->lookup_began_ms = flight->attempt.started_ms;
    flight_add_row(flight, &flight->attempt);
    struct step_input in = {.kind = STEP_LOOKUP_BEGIN, .attempt = flight->attempt.number};
    flight_step(flight, &in, AFTER_SEND, NULL);
}

static void expire_done(struct ledger_request *request)
{
    struct flight *flight = request->user;
    engine_request_ended(flight->engine);
    MARK(expire_done);
    replay_forget(&flight->engine->replay, &flight->op.key_hash);
    flight->phase = PHASE_NEW;
    if (request->code == ERR_CONFLICT && !flight->engine->stopping) { /* its parent is open */
        struct step_input in = {.kind = STEP_KEEP};
        flight_step(flight, &in, AFTER_GO_ON, NULL);
        return;
    }
    if (request->code && request->code != ERR_STALE && request->code != ERR_NOT_FOUND)
        engine_plan(flight->engine, engine_now(flight->engine) + COMMIT_RETRY_MAX_MS);
    flight_free(flight);
}

static void expire(struct flight *flight)
{
    struct ledger_request *request = &flight->request;
    flight->phase = PHASE_FETCH;
    request->command = LEDGER_EXPIRE;
    request->expire =
        (struct ledger_expire){.operation = flight->op.id, .rev = flight->op.rev, .now_ms = engine_now(flight->engine)};
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->done = expire_done;
    MARK(before_expire);
    engine_submit(flight->engine, request);
}

void flight_ready(struct flight *flight)
{
    flight_take_turn(flight);
}

/* Rows of a dead owner's attempts are written, and nothing else moves. */
static void close_attempts(struct flight *flight, enum after_commit after)
{
    static const struct step_effects none;
    flight->op.rev++;
    flight->op.updated_ms = flight->op.wake_at_ms = engine_now(flight->engine);
    prepare_change(flight, STEP_WAKE, &none);
    commit(flight, after);
}

void flight_wake(struct flight *flight)
{
    if (inbox_takes(flight))
        return;
    struct step_input in = {.kind = STEP_WAKE};
    struct step_effects effects;
    run_step(flight, &in, &effects, NULL);
    if (!effects.changed && flight->row_count > 0) {
        close_attempts(flight, AFTER_GO_ON);
        return;
    }
    if (effects.changed) {
        prepare_change(flight, STEP_WAKE, &effects);
        commit(flight, AFTER_GO_ON);
        return;
    }
    switch (effects.action) {
    case ACTION_SEND:
        if (flight->op.state == STATE_PLANNED)
            flight_ready(flight);
        else if (flight_must_look(flight))
            flight_take_turn(flight);
        else
            flight_want_send(flight);
        break;
    case ACTION_LOOKUP: want_lookup(flight); break;
    case ACTION_EXPIRE: expire(flight); break;
    case ACTION_NONE: sleep_in_ledger(flight); break;
    case ACTION_BEGIN_STEP:
    case ACTION_CANCEL_STEP:
    case ACTION_UNDO_STEP:
    case ACTION_FINISH_STEPS: flight_drive(flight, effects.action, effects.at); break;
    }
}

/* ---- a former owner is gone ---- */

static void former_attempts(struct ledger_request *request)
{
    struct flight *flight = request->user;
    struct engine *engine = flight->engine;
    engine_request_ended(engine);
    flight->phase = PHASE_NEW;
    if (request->code && request->code != ERR_NOT_FOUND) { /* without them, open attempts would stay open for ever */
        stall(flight);
        return;
    }
    flight->stall_ms = 0;
    struct ledger_attempts *found = &request->attempts;
    bool more = false; /* than one change has room for: look-ups that nobody heard the end of add up */
    for (size_t i = 0; !request->code && i < found->count; i++) {
        struct attempt *attempt = &found->attempts[i];
        if (attempt->outcome != OUTCOME_OPEN)
            continue;
        more = flight->row_count == LEDGER_CHANGE_ATTEMPTS_MAX;
        if (more)
            break;
        attempt->outcome = OUTCOME_LOST;
        attempt->finished_ms = engine_now(engine);
        attempt->detail = "the gateway that sent it is gone";
        flight_add_row(flight, attempt);
    }
    if (more) {
        close_attempts(flight, AFTER_CLOSE);
        return;
    }
    if (flight->op.state != STATE_DISPATCHED) {
        flight_wake(flight);
        return;
    }
    MARK(before_owner_gone);
    struct step_input in = {.kind = STEP_OWNER_GONE, .attempt = flight->op.tries};
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

void flight_owner_gone(struct flight *flight)
{
    struct ledger_request *request = &flight->request;
    flight->phase = PHASE_FETCH;
    request->command = LEDGER_ATTEMPTS;
    request->attempts = (struct ledger_attempts){.operation = arena_copy_text(&flight->arena, flight->op.id)};
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->done = former_attempts;
    engine_submit(flight->engine, request);
}

void flight_retry(struct flight *flight)
{
    switch (flight->request.command) {
    case LEDGER_GET: fetch_row(flight); break;
    case LEDGER_ATTEMPTS: flight_owner_gone(flight); break;
    default: commit(flight, flight->after); break;
    }
}
