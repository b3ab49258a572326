#include "support/fake_engine.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static const struct err no_error;

/* ---- clock ---- */

static int64_t fake_now(struct env *env)
{
    struct engine *engine = (struct engine *)env;
    return engine->now_ms ? engine->now_ms : env_system()->now_ms(env_system());
}

static void fake_random(struct env *env, void *out, size_t n)
{
    (void)env;
    env_system()->random(env_system(), out, n);
}

/* ---- ledger ---- */

static struct engine *engine_of(struct ledger *ledger)
{
    return (struct engine *)((char *)ledger - offsetof(struct engine, ledger));
}

static bool matches(const char *wanted, const char *have)
{
    return !wanted || (have && strcmp(wanted, have) == 0);
}

static enum err_code fake_get(struct engine *engine, struct ledger_get *get)
{
    for (size_t i = 0; i < engine->op_count; i++) {
        struct operation *op = engine->ops[i];
        if (strcmp(op->id, get->operation) != 0 || !matches(get->tenant, op->tenant))
            continue;
        get->op = op;
        get->incidents = engine->incidents;
        get->incident_count = engine->incident_count;
        return ERR_NONE;
    }
    struct tombstone *tombstone = engine->tombstone;
    if (tombstone && strcmp(tombstone->operation, get->operation) == 0 && matches(get->tenant, tombstone->tenant)) {
        get->tombstone = tombstone;
        return ERR_NONE;
    }
    return ERR_NOT_FOUND;
}

static enum err_code fake_get_by_key(struct engine *engine, struct ledger_get_by_key *get)
{
    for (size_t i = engine->op_count; i-- > 0;) {
        struct operation *op = engine->ops[i];
        if (digest_equal(&op->key_hash, &get->key_hash) && matches(get->tenant, op->tenant)) {
            get->op = op;
            return ERR_NONE;
        }
    }
    if (engine->tombstone && digest_equal(&engine->tombstone->key_hash, &get->key_hash)) {
        get->tombstone = engine->tombstone;
        return ERR_NONE;
    }
    return ERR_NOT_FOUND;
}

static bool listed(const struct ledger_list *list, const struct operation *op)
{
    return matches(list->tenant, op->tenant) && matches(list->tool, op->tool) && matches(list->run, op->run) &&
           matches(list->principal, op->principal) && (!list->states || list->states & (uint32_t)1 << op->state);
}

static enum err_code fake_list(struct engine *engine, struct ledger_list *list, struct arena *arena)
{
    engine->last_list = *list;
    snprintf(engine->listed_tenant, sizeof engine->listed_tenant, "%s", list->tenant ? list->tenant : "");
    snprintf(engine->listed_principal, sizeof engine->listed_principal, "%s", list->principal ? list->principal : "");
    list->ops = arena_zero(arena, sizeof(struct operation *) * FAKE_OPS_MAX);
    for (size_t i = 0; i < engine->op_count; i++) {
        struct operation *op = engine->ops[list->oldest_first ? i : engine->op_count - 1 - i];
        int order = list->before ? strcmp(op->id, list->before) : 0;
        if (list->before && (list->oldest_first ? order <= 0 : order >= 0))
            continue;
        if (!listed(list, op))
            continue;
        if (list->count == list->limit) {
            list->next = list->ops[list->count - 1]->id;
            break;
        }
        list->ops[list->count++] = op;
    }
    return ERR_NONE;
}

static enum err_code fake_acknowledge(struct engine *engine, struct ledger_acknowledge *acknowledge,
                                      struct arena *arena)
{
    for (size_t i = 0; i < engine->incident_count; i++) {
        struct incident *incident = &engine->incidents[i];
        if (strcmp(incident->id, acknowledge->incident) != 0)
            continue;
        acknowledge->result = *incident;
        acknowledge->result.acknowledged_by = arena_copy_text(arena, acknowledge->by);
        acknowledge->result.acknowledged_ms = acknowledge->now_ms;
        return ERR_NONE;
    }
    return ERR_NOT_FOUND;
}

static enum err_code fake_token(struct engine *engine, struct ledger_request *request)
{
    struct token *token = &request->token.token;
    if (request->command == LEDGER_TOKEN_ADD) {
        struct token *kept = &engine->tokens[engine->token_count++];
        *kept = *token;
        kept->id = mem_copy_text(token->id);
        kept->tenant = mem_copy_text(token->tenant);
        kept->principal = mem_copy_text(token->principal);
        return ERR_NONE;
    }
    for (size_t i = 0; i < engine->token_count; i++) {
        struct token *kept = &engine->tokens[i];
        if (request->command == LEDGER_TOKEN_FIND && digest_equal(&kept->secret_hash, &token->secret_hash)) {
            *token = *kept;
            engine->token_looks++;
            return ERR_NONE;
        }
        if (request->command == LEDGER_TOKEN_REVOKE && strcmp(kept->id, token->id) == 0) {
            kept->revoked_ms = token->revoked_ms;
            return ERR_NONE;
        }
    }
    return ERR_NOT_FOUND;
}

static enum err_code execute(struct engine *engine, struct ledger_request *request)
{
    if (engine->ledger_code)
        return err_set(&request->err, engine->ledger_code, "the ledger was told to fail");
    switch (request->command) {
    case LEDGER_GET: return fake_get(engine, &request->get);
    case LEDGER_GET_BY_KEY: return fake_get_by_key(engine, &request->get_by_key);
    case LEDGER_LIST: return fake_list(engine, &request->list, request->arena);
    case LEDGER_EVENTS:
        request->events.events = engine->events;
        request->events.count = engine->event_count;
        return ERR_NONE;
    case LEDGER_ATTEMPTS:
        request->attempts.attempts = engine->attempts;
        request->attempts.count = engine->attempt_count;
        return ERR_NONE;
    case LEDGER_INCIDENTS:
        request->incidents.incidents = engine->incidents;
        request->incidents.count = engine->incident_count;
        return ERR_NONE;
    case LEDGER_ACKNOWLEDGE: return fake_acknowledge(engine, &request->acknowledge, request->arena);
    case LEDGER_TOKEN_ADD:
    case LEDGER_TOKEN_FIND:
    case LEDGER_TOKEN_REVOKE: return fake_token(engine, request);
    case LEDGER_TOKEN_LIST:
        request->token_list.tokens = engine->tokens;
        request->token_list.count = engine->token_count;
        return ERR_NONE;
    case LEDGER_ENTITIES:
    case LEDGER_ENTITY_RELEASE:
    case LEDGER_BUDGETS:
    case LEDGER_STATS: request->stats.by_state[STATE_COMPLETED_SUCCESS] = 7; return ERR_NONE;
    case LEDGER_RECORD_INBOUND:
    case LEDGER_INBOX_OF:
    case LEDGER_INBOX_DUE:
    case LEDGER_INBOX_LIST:
    case LEDGER_INBOX_COUNTS:
    case LEDGER_INBOX_PRUNE:
    case LEDGER_FORWARD_DUE:
    case LEDGER_FORWARD_MOVE:
    case LEDGER_ADMIT:
    case LEDGER_TRANSITION:
    case LEDGER_CLAIM_DUE:
    case LEDGER_MARK:
    case LEDGER_WATCH:
    case LEDGER_RELEASE:
    case LEDGER_EXPIRE: break;
    }
    return err_set(&request->err, ERR_INTERNAL, "the door has no business with this command");
}

static void fake_submit(struct ledger *ledger, struct ledger_request *request)
{
    struct engine *engine = engine_of(ledger);
    if (engine->ledger_later) {
        struct ledger_request **end = &engine->queue;
        while (*end)
            end = &(*end)->next;
        *end = request;
        return;
    }
    request->code = execute(engine, request);
    request->done(request);
}

void fake_ledger_poll(struct engine *engine)
{
    while (engine->queue) {
        struct ledger_request *request = engine->queue;
        engine->queue = request->next;
        request->next = NULL;
        request->code = execute(engine, request);
        request->done(request);
    }
}

static void fake_poll(struct ledger *ledger)
{
    fake_ledger_poll(engine_of(ledger));
}

static void fake_close(struct ledger *ledger)
{
    (void)ledger;
}

static const struct ledger_ops fake_ops = {.submit = fake_submit, .poll = fake_poll, .close = fake_close};

void fake_engine_init(struct engine *engine, struct registry *registry)
{
    *engine = (struct engine){
        .env = {fake_now, fake_random},
        .ledger = {.ops = &fake_ops},
        .registry = registry,
        .recovered = true,
        .reply = {.err = &no_error},
    };
}

void fake_engine_release(struct engine *engine)
{
    for (size_t i = 0; i < engine->token_count; i++) {
        free((void *)(uintptr_t)engine->tokens[i].id);
        free((void *)(uintptr_t)engine->tokens[i].tenant);
        free((void *)(uintptr_t)engine->tokens[i].principal);
    }
}

/* ---- engine.h ---- */

struct registry *engine_registry(struct engine *engine)
{
    return engine->registry;
}

struct ledger *engine_ledger(struct engine *engine)
{
    return &engine->ledger;
}

struct env *engine_env(struct engine *engine)
{
    return &engine->env;
}

void engine_on_change(struct engine *engine, engine_change_fn *changed, void *user)
{
    (void)engine, (void)changed, (void)user;
}

bool engine_recovered(struct engine *engine)
{
    return engine->recovered;
}

const char *engine_ledger_refusal(struct engine *engine)
{
    return engine->refusal;
}

bool engine_stopping(struct engine *engine)
{
    return engine->stopping;
}

const int64_t latency_bounds_ms[LATENCY_BOUNDS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};

struct engine_stats engine_stats(const struct engine *engine)
{
    return (struct engine_stats){.calls = engine->calls};
}

static struct waiter *answer(struct engine *engine, engine_reply_fn *reply, void *user)
{
    if (!engine->later) {
        reply(user, &engine->reply);
        return NULL;
    }
    struct fake_pending *pending = &engine->pending[engine->pending_count++ % FAKE_PENDING_MAX];
    *pending = (struct fake_pending){engine, reply, user, true};
    return (struct waiter *)pending;
}

bool fake_engine_reply(struct engine *engine)
{
    size_t first = engine->pending_count > FAKE_PENDING_MAX ? engine->pending_count - FAKE_PENDING_MAX : 0;
    for (size_t i = first; i < engine->pending_count; i++) {
        struct fake_pending *pending = &engine->pending[i % FAKE_PENDING_MAX];
        if (!pending->open)
            continue;
        pending->open = false;
        pending->reply(pending->user, &engine->reply);
        return true;
    }
    return false;
}

#define KEEP(field, text) snprintf(engine->field, sizeof engine->field, "%s", (text) ? (text) : "")

struct waiter *engine_call(struct engine *engine, const struct engine_call *request, engine_reply_fn *reply, void *user)
{
    const struct call *call = &request->call;
    engine->calls++;
    KEEP(tool, request->tool);
    KEEP(tenant, call->tenant);
    KEEP(principal, call->principal);
    KEEP(key, call->idempotency_key);
    KEEP(run, call->run);
    KEEP(step, call->step);
    KEEP(session, call->session);
    KEEP(call, call->call);
    KEEP(workflow, call->workflow);
    KEEP(trace, call->trace);
    KEEP(repeat_of, call->repeat_of);
    KEEP(distinct, call->distinct_count ? call->distinct_from[0] : NULL);
    struct buf text;
    buf_init(&text, sizeof engine->arguments - 1);
    if (call->arguments)
        json_write(&text, call->arguments);
    KEEP(arguments, text.p);
    buf_release(&text);
    engine->distinct_count = call->distinct_count;
    engine->wait_ms = request->wait_ms;
    engine->not_before_ms = call->not_before_ms;
    engine->origin = request->origin;
    engine->call_id_per_try = call->call_id_per_try;
    engine->async = request->async;
    engine->dry_run = request->dry_run;
    engine->limited = request->scope != NULL;
    return answer(engine, reply, user);
}

struct waiter *engine_wait(struct engine *engine, const char *tenant, const char *operation, int64_t wait_ms,
                           engine_reply_fn *reply, void *user)
{
    engine->waits++;
    KEEP(waited, operation);
    engine->wait_ms = wait_ms;
    KEEP(tenant, tenant);
    return answer(engine, reply, user);
}

struct engine_waiting engine_waiting(const struct waiter *waiter)
{
    struct engine_waiting waiting = ((const struct fake_pending *)waiter)->engine->waiting;
    if (!waiting.operation)
        waiting.operation = "";
    return waiting;
}

void engine_caller_left(struct engine *engine, struct waiter *waiter)
{
    ((struct fake_pending *)waiter)->open = false;
    engine->left++;
}

void engine_caller_away(struct engine *engine, struct waiter *waiter, bool away)
{
    (void)waiter;
    engine->away += away ? 1 : -1;
}

void engine_due(struct engine *engine, int64_t at_ms)
{
    (void)engine;
    (void)at_ms;
}

void engine_delivered(struct engine *engine, const struct operation *op)
{
    engine->delivered++;
    memcpy(engine->delivered_id, op->id, sizeof engine->delivered_id);
}

void engine_forward_due(struct engine *engine)
{
    (void)engine;
}

void engine_inbound(struct engine *engine, const struct inbound *event, engine_inbound_fn *reply, void *user)
{
    struct err err = {0};
    enum err_code code = engine->ledger_code;
    if (code)
        err_set(&err, code, "the ledger was told to fail");
    reply(user, code, &err, code ? NULL : event, false);
}

void engine_decide(struct engine *engine, const struct engine_decision *decision, engine_reply_fn *reply, void *user)
{
    engine->decisions++;
    engine->decision = *decision;
    KEEP(tenant, decision->tenant);
    KEEP(decided, decision->operation);
    KEEP(actor, decision->actor);
    KEEP(note, decision->note);
    KEEP(link_by, decision->link_by);
    KEEP(external_id, decision->external_id);
    snprintf(engine->stated, sizeof engine->stated, "%.*s", STR_ARG(decision->result));
    answer(engine, reply, user);
}

void engine_compensate(struct engine *engine, const struct engine_compensation *compensation, engine_reply_fn *reply,
                       void *user)
{
    (void)compensation;
    answer(engine, reply, user);
}

void engine_guard(struct engine *engine, const struct engine_guard *word, engine_reply_fn *reply, void *user)
{
    (void)word;
    answer(engine, reply, user);
}

static enum err_code describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                              struct err *err)
{
    (void)adapter;
    (void)call;
    (void)err;
    json_out_null(out);
    return ERR_NONE;
}

struct adapter *engine_adapter(struct engine *engine)
{
    static const struct adapter_ops ops = {.describe = describe};
    static struct adapter adapter = {.ops = &ops};
    (void)engine;
    return &adapter;
}
