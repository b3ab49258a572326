/* Guard mode (design 11.2): the application performs the effect itself, the engine says who does, and when.
 *
 *   begin ─► admission ─┬─ new ───────────────────► dispatched, owner = the executor's lease ──► execute, token
 *                       ├─ awaits an executor ────► the same, by compare-and-set ──────────────► execute, token
 *                       └─ anything else ─────────► wait for it, or what there is to say
 *   heartbeat ─► the lease is renewed         complete, fail ─► the attempt's answer        silence ─► unknown_outcome
 *
 * The lease is the application's, not this process's: the row names its owner, so that it outlives a restart, and its
 * end is found like any other time that has come. The token is made from the row and the ledger's secret; nothing of it
 * is stored. */
#include "engine/internal.h"

#include "base/mark.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define EXECUTOR_HEX_BYTES 16 /* of the digest that tells executors apart */
#define MAC_HEX_BYTES      16
#define LOADS_MAX          8 /* the row moves under somebody's word: it is looked at again so often */

static const struct err no_error;

/* ---- tokens: "gl_" operation "_" attempt "_" executor "_" mac ---- */

struct lease {
    char operation[OPERATION_ID_SIZE];
    int attempt;
    char executor[2 * EXECUTOR_HEX_BYTES + 1];
};

static struct str secret_of(struct engine *engine)
{
    return (struct str){(const char *)engine->ledger->secret, LEDGER_SECRET_BYTES};
}

static struct digest lease_mac(struct engine *engine, const struct lease *lease)
{
    char number[16];
    snprintf(number, sizeof number, "%d", lease->attempt);
    const struct str parts[] = {STR("onced guard lease"), str_of(lease->operation), str_of(number),
                                str_of(lease->executor)};
    return digest_parts_keyed(secret_of(engine), parts, 4);
}

static const char *lease_token(struct engine *engine, struct arena *arena, const struct lease *lease)
{
    char hex[2 * MAC_HEX_BYTES + 1];
    struct digest mac = lease_mac(engine, lease);
    digest_hex(&mac, MAC_HEX_BYTES, hex);
    return arena_printf(arena, "gl_%s_%d_%s_%s", lease->operation + 3, lease->attempt, lease->executor, hex);
}

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n;
}

/* False: it is no token of this ledger. */
static bool lease_read(struct engine *engine, const char *token, struct lease *lease)
{
    size_t id = ULID_CHARS, executor = (size_t)2 * EXECUTOR_HEX_BYTES, mac_hex = (size_t)2 * MAC_HEX_BYTES;
    char hex[2 * MAC_HEX_BYTES + 1];
    *lease = (struct lease){.attempt = 0};
    if (!token || strncmp(token, "gl_", 3) != 0 || strlen(token) < 3 + id + 1)
        return false;
    memcpy(lease->operation, "op_", 3);
    memcpy(lease->operation + 3, token + 3, id);
    const char *at = token + 3 + id;
    size_t digits = at[0] == '_' ? strspn(at + 1, "0123456789") : 0;
    if (!operation_id_valid(lease->operation) || digits == 0 || digits > 6)
        return false;
    lease->attempt = (int)strtol(at + 1, NULL, 10);
    at += 1 + digits;
    if (at[0] != '_' || !is_hex(at + 1, executor) || at[1 + executor] != '_')
        return false;
    memcpy(lease->executor, at + 1, executor);
    at += 1 + executor + 1;
    struct digest mac = lease_mac(engine, lease);
    digest_hex(&mac, MAC_HEX_BYTES, hex);
    return strlen(at) == mac_hex && digest_same_secret((const unsigned char *)at, (const unsigned char *)hex, mac_hex);
}

static const char *owner_of(struct arena *arena, const struct lease *lease)
{
    return arena_printf(arena, OPERATION_EXECUTOR_PREFIX "%d.%s", lease->attempt, lease->executor);
}

/* Who begins: the same text, the same executor; without one, nobody else. */
void guard_name_executor(struct flight *flight, const struct engine_call *request)
{
    const struct str parts[] = {STR("onced guard executor"), str_of(request->call.principal),
                                str_of(request->executor ? request->executor : flight->op.id)};
    if (!request->begins)
        return;
    struct digest digest = digest_parts_keyed(secret_of(flight->engine), parts, 3);
    digest_hex(&digest, EXECUTOR_HEX_BYTES, flight->executor_hex);
}

static struct lease lease_of(const struct operation *op, const char *executor_hex)
{
    struct lease lease = {.attempt = op->tries};
    memcpy(lease.operation, op->id, sizeof lease.operation);
    snprintf(lease.executor, sizeof lease.executor, "%s", executor_hex);
    return lease;
}

/* ---- begin ---- */

void guard_first_state(struct flight *flight, const struct engine_call *request, int64_t now_ms)
{
    struct operation *op = &flight->op;
    if (!request->begins) { /* an operator's retry: the next begin performs it */
        op->state = STATE_PENDING_DISPATCH;
        op->reason = REASON_AWAITING_EXECUTOR;
        op->wake_at_ms = step_total_end(op, flight->tool);
        return;
    }
    flight_begin_attempt(flight, ATTEMPT_CALL);
    op->state = STATE_DISPATCHED;
    op->may_have_applied = true;
    op->attempts = op->tries = 1;
    op->first_sent_ms = op->last_sent_ms = now_ms;
    struct lease lease = lease_of(op, flight->executor_hex);
    flight->executor = op->owner = owner_of(&flight->arena, &lease);
    op->lease_until_ms = op->wake_at_ms = now_ms + flight->tool->guard_lease_ms;
}

/* A commit that took longer than the lease, or a gateway that stood still behind it, gives nothing any more: others may
 * have been told that the outcome is unknown. */
static void tell_to_execute(struct waiter *waiter, struct flight *flight, const struct operation *op)
{
    struct lease lease = lease_of(op, flight->executor_hex);
    bool lives = engine_now(flight->engine) < op->lease_until_ms;
    struct engine_reply reply = {
        .kind = REPLY_OPERATION,
        .op = op,
        .tool = flight->tool,
        .replayed = !lives,
        .lease = lives ? lease_token(flight->engine, &flight->arena, &lease) : NULL,
        .err = &no_error,
    };
    flight->engine->stats.attempts += lives;
    waiter_reply(waiter, &reply);
}

void guard_begun(struct flight *flight, struct waiter *waiter)
{
    MARK(guard_begun);
    if (waiter->reply)
        tell_to_execute(waiter, flight, &flight->durable);
    else
        waiter_free(waiter); /* it left: its begin repeated gets the same lease, else the lease ends */
    engine_plan(flight->engine, flight->durable.wake_at_ms);
    flight_free(flight);
}

/* Somebody else was elected, or it has moved otherwise: wait for that. */
static void wait_for_it(struct waiter *waiter, const struct operation *op, const struct tool *tool)
{
    struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op, .tool = tool, .replayed = true, .err = &no_error};
    waiter->replayed = true;
    if (!waiter->reply)
        waiter_free(waiter);
    else if (waiter->wait_ms == 0 || operation_settled(op) || waiter->engine->stopping)
        waiter_reply(waiter, &reply);
    else
        waiter_attach(waiter, op);
}

static void taken(void *user, const struct engine_reply *reply)
{
    struct flight *flight = user;
    struct waiter *waiter = flight->taker;
    flight->taker = NULL;
    waiter->admitting = NULL;
    if (reply->kind == REPLY_OPERATION && reply->op->state != STATE_DISPATCHED) { /* its guards said no, or it waits */
        wait_for_it(waiter, reply->op, flight->tool);
    } else if (reply->kind == REPLY_OPERATION && waiter->reply) {
        MARK(guard_taken);
        tell_to_execute(waiter, flight, reply->op);
    } else if (reply->kind == REPLY_OPERATION) {
        waiter_free(waiter);
    } else if (reply->kind == REPLY_STALE) {
        wait_for_it(waiter, reply->op, flight->tool);
    } else if (waiter->reply) {
        waiter_reply(waiter, reply);
    } else {
        waiter_free(waiter);
    }
}

static void execute(struct flight *flight)
{
    flight_begin_attempt(flight, ATTEMPT_CALL);
    flight_add_row(flight, &flight->attempt);
    struct lease lease = lease_of(&flight->op, flight->executor_hex);
    lease.attempt = flight->attempt.number;
    flight->executor = owner_of(&flight->arena, &lease);
    struct step_input in = {.kind = STEP_DISPATCH, .attempt = flight->attempt.number};
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

static void take(struct engine *engine, struct waiter *waiter, const struct operation *existing,
                 const char *executor_hex)
{
    struct flight *flight = flight_from(engine, existing, false);
    memcpy(flight->executor_hex, executor_hex, sizeof flight->executor_hex);
    flight->taker = waiter;
    flight->decided = taken;
    flight->decided_user = flight;
    if (flight_must_look(flight))
        flight_take_turn(flight);
    else
        execute(flight);
}

/* Whether the registry has it now, as a tool of guard mode: without its rules nothing begins, and no absence is judged.
 */
static bool is_known(struct engine *engine, const struct operation *op)
{
    const struct tool *tool = registry_find(engine->registry, str_of(op->tool));
    return tool && tool->guard_lease_ms > 0;
}

bool guard_joins(struct flight *flight, struct waiter *waiter, const struct operation *existing)
{
    struct engine *engine = flight->engine;
    if (!flight->executor && flight->tool->guard_lease_ms == 0)
        return false;
    bool awaits = existing->state == STATE_PENDING_DISPATCH || existing->state == STATE_FAILED_RETRYABLE;
    if (!flight->executor_hex[0] || !waiter->reply || engine->stopping)
        return false;
    struct lease lease = lease_of(existing, flight->executor_hex);
    if (existing->state == STATE_DISPATCHED &&
        text_equal(existing->owner, owner_of(&flight->arena, &lease))) { /* its begin, said again */
        tell_to_execute(waiter, flight, existing);
        return true;
    }
    if (!awaits || existing->owner || !is_known(engine, existing) || map_get(&engine->flights, existing->id))
        return false;
    engine->stats.joined++;
    take(engine, waiter, existing, flight->executor_hex);
    return true;
}

void guard_await_executor(struct flight *flight)
{
    if (flight->taker) {
        execute(flight);
        return;
    }
    struct step_input in = {
        .kind = STEP_HOLD,
        .hold_reason = REASON_AWAITING_EXECUTOR,
        .hold_until_ms = step_total_end(&flight->op, flight->tool),
    };
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

/* ---- what the executor says ---- */

struct saying {
    struct ledger_request request;
    struct arena arena;
    struct engine *engine;
    struct engine_guard word; /* texts in the arena */
    struct lease lease;
    unsigned loads;
    const struct operation *op;
    engine_reply_fn *reply;
    void *user;
};

static void release(struct saying *saying)
{
    struct arena arena = saying->arena;
    arena_release(&arena);
}

static void answer(struct saying *saying, enum reply_kind kind, const struct operation *op, const struct err *err)
{
    struct engine_reply reply = {.kind = kind, .op = op, .err = err ? err : &no_error};
    if (op)
        reply.tool = registry_find(saying->engine->registry, str_of(op->tool));
    if (kind == REPLY_OPERATION && saying->word.word == GUARD_HEARTBEAT)
        reply.lease = saying->word.lease;
    saying->reply(saying->user, &reply);
}

static void load(struct saying *saying);

static void said(void *user, const struct engine_reply *reply)
{
    struct saying *saying = user;
    struct err err = {0};
    if (reply->kind == REPLY_STALE && ++saying->loads < LOADS_MAX) {
        load(saying);
        return;
    }
    if (reply->kind == REPLY_STALE) {
        err_set(&err, ERR_UNAVAILABLE, "the operation keeps moving: say it again");
        answer(saying, REPLY_UNAVAILABLE, NULL, &err);
    } else {
        answer(saying, reply->kind, reply->op, reply->err);
    }
    release(saying);
}

static enum outcome outcome_of(const struct engine_guard *word)
{
    switch (word->word) {
    case GUARD_HEARTBEAT: break;
    case GUARD_COMPLETE: return word->noop ? OUTCOME_NOOP : OUTCOME_SUCCESS;
    case GUARD_FAIL:
        return !word->no_effect ? OUTCOME_PROVIDER_ERROR : word->retry ? OUTCOME_NOT_PROCESSED : OUTCOME_REFUSED;
    }
    return OUTCOME_OPEN;
}

static struct finding finding_of(const struct engine_guard *word, struct arena *arena)
{
    return (struct finding){
        .outcome = outcome_of(word),
        .result = arena_str(arena, word->result),
        .external_id = arena_copy_text(arena, word->external_id),
        .error = arena_str(arena, word->error),
        .detail = arena_copy_text(arena, word->detail),
    };
}

/* The row of its attempt with what was said. */
static void close_row(struct flight *flight, const struct attempt *row, const struct finding *finding)
{
    struct attempt *attempt = &flight->attempt;
    *attempt = *row;
    attempt->provider_request_id = arena_copy_text(&flight->arena, row->provider_request_id);
    attempt->outcome = finding->outcome;
    attempt->detail = finding->detail;
    attempt->finished_ms = engine_now(flight->engine);
    flight_add_row(flight, attempt);
}

static void step_on(struct saying *saying, const struct attempt *row, bool holds)
{
    struct engine *engine = saying->engine;
    struct flight *flight = flight_from(engine, saying->op, false);
    struct step_input in = {.kind = STEP_RENEW, .attempt = saying->lease.attempt};
    in.actor = arena_copy_text(&flight->arena, saying->word.actor);
    flight->decided = said;
    flight->decided_user = saying;
    if (holds)
        flight->executor = owner_of(&flight->arena, &saying->lease);
    if (saying->word.word != GUARD_HEARTBEAT) {
        in.kind = holds ? STEP_ANSWER : STEP_EVIDENCE;
        in.finding = finding_of(&saying->word, &flight->arena);
        close_row(flight, row, &in.finding);
    }
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

static const struct attempt *row_of(const struct saying *saying)
{
    const struct ledger_attempts *rows = &saying->request.attempts;
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->attempts[i].number == saying->lease.attempt)
            return &rows->attempts[i];
    }
    return NULL;
}

static void attempts_loaded(struct ledger_request *request)
{
    struct saying *saying = request->user;
    struct engine *engine = saying->engine;
    struct err err = {0};
    engine_request_ended(engine);
    const struct attempt *row = request->code ? NULL : row_of(saying);
    bool dispatched = saying->op->state == STATE_DISPATCHED;
    bool holds = dispatched && text_equal(saying->op->owner, owner_of(&saying->arena, &saying->lease));
    bool done = saying->word.word == GUARD_COMPLETE && !saying->word.noop;
    bool ending = dispatched && !holds && saying->lease.attempt == saying->op->tries; /* a gateway is about to say so */
    if (request->code && request->code != ERR_NOT_FOUND) {
        answer(saying, REPLY_UNAVAILABLE, NULL, &request->err);
    } else if (!row) {
        answer(saying, REPLY_NOT_FOUND, NULL, &request->err);
    } else if (row->outcome != OUTCOME_OPEN && row->outcome == outcome_of(&saying->word)) { /* said before */
        answer(saying, REPLY_OPERATION, saying->op, NULL);
    } else if (saying->word.word == GUARD_HEARTBEAT && !holds) {
        err_set(&err, ERR_CONFLICT, "the lease has ended: the operation is %s", state_name(saying->op->state));
        answer(saying, REPLY_IMPOSSIBLE, saying->op, &err);
    } else if (saying->word.word != GUARD_HEARTBEAT && !done && !is_known(engine, saying->op)) {
        err_set(&err, ERR_UNAVAILABLE, "the registry has no tool %s of guard mode now: say it again", saying->op->tool);
        answer(saying, REPLY_UNAVAILABLE, NULL, &err);
    } else if (map_get(&engine->flights, saying->op->id) || (ending && !done)) {
        err_set(&err, ERR_UNAVAILABLE, "the operation is just being moved: say it again");
        answer(saying, REPLY_UNAVAILABLE, NULL, &err);
    } else {
        step_on(saying, row, holds);
        return;
    }
    release(saying);
}

static void operation_loaded(struct ledger_request *request)
{
    struct saying *saying = request->user;
    engine_request_ended(saying->engine);
    const struct operation *op = request->code ? NULL : request->get.op;
    if (request->code && request->code != ERR_NOT_FOUND) {
        answer(saying, REPLY_UNAVAILABLE, NULL, &request->err);
    } else if (!op && !request->code) {
        struct engine_reply reply = {.kind = REPLY_EXPIRED, .tombstone = request->get.tombstone, .err = &no_error};
        saying->reply(saying->user, &reply);
    } else if (!op || !text_equal(op->tool, saying->word.tool)) {
        answer(saying, REPLY_NOT_FOUND, NULL, &request->err);
    } else {
        saying->op = op;
        request->command = LEDGER_ATTEMPTS;
        request->attempts = (struct ledger_attempts){.operation = saying->lease.operation};
        request->done = attempts_loaded;
        engine_submit(saying->engine, request);
        return;
    }
    release(saying);
}

static void load(struct saying *saying)
{
    struct ledger_request *request = &saying->request;
    request->command = LEDGER_GET;
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->get = (struct ledger_get){.tenant = saying->word.tenant, .operation = saying->lease.operation};
    request->done = operation_loaded;
    engine_submit(saying->engine, request);
}

void engine_guard(struct engine *engine, const struct engine_guard *word, engine_reply_fn *reply, void *user)
{
    struct lease lease;
    struct err err = {0};
    if (engine->stopping) {
        err_set(&err, ERR_UNAVAILABLE, "onced is stopping");
        reply_error(engine, reply, user, REPLY_UNAVAILABLE, &err);
        return;
    }
    if (!lease_read(engine, word->lease, &lease)) {
        reply_error(engine, reply, user, REPLY_NOT_FOUND, NULL);
        return;
    }
    struct arena arena;
    arena_init(&arena);
    struct saying *saying = arena_zero(&arena, sizeof *saying);
    saying->engine = engine;
    saying->word = *word;
    saying->word.tenant = arena_copy_text(&arena, word->tenant);
    saying->word.tool = arena_copy_text(&arena, word->tool);
    saying->word.lease = arena_copy_text(&arena, word->lease);
    saying->word.actor = arena_copy_text(&arena, word->actor);
    saying->word.result = arena_str(&arena, word->result);
    saying->word.external_id = arena_copy_text(&arena, word->external_id);
    saying->word.error = arena_str(&arena, word->error);
    saying->word.detail = arena_copy_text(&arena, word->detail);
    saying->lease = lease;
    saying->reply = reply;
    saying->user = user;
    saying->arena = arena;
    saying->request.arena = &saying->arena;
    saying->request.user = saying;
    load(saying);
}
