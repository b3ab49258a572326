#include "support/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLD_OF(pointer, member) ((struct world *)((char *)(pointer)-offsetof(struct world, member)))

static int64_t world_now(struct env *env)
{
    return WORLD_OF(env, env)->now_ms;
}

static void world_random(struct env *env, void *out, size_t n)
{
    struct world *world = WORLD_OF(env, env);
    unsigned char *p = out;
    for (size_t i = 0; i < n; i++) {
        world->seed = world->seed * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(world->seed >> 56);
    }
}

static enum err_code check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    (void)call;
    if (WORLD_OF(adapter, adapter)->unbuildable)
        return err_set(err, ERR_INVALID, "payment_id is missing");
    return ERR_NONE;
}

static enum err_code describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                              struct err *err)
{
    (void)adapter;
    (void)err;
    json_out_object(out);
    json_out_member_text(out, "key", call->provider_key);
    json_out_end_object(out);
    return ERR_NONE;
}

static void send(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct world *world = WORLD_OF(adapter, adapter);
    if (world->sent_count == WORLD_WIRE_MAX)
        abort();
    struct world_sent *sent = &world->sent[world->sent_count++];
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, call->arguments);
    snprintf(sent->operation, sizeof sent->operation, "%s", call->operation);
    snprintf(sent->provider_key, sizeof sent->provider_key, "%s", call->provider_key);
    snprintf(sent->arguments, sizeof sent->arguments, "%s", text.p);
    sent->arguments_bytes = text.n;
    snprintf(sent->progress, sizeof sent->progress, "%.*s", STR_ARG(call->progress));
    buf_release(&text);
    sent->kind = call->kind;
    sent->done = done;
    sent->user = user;
    sent->open = true;
}

static const struct adapter_ops ops = {check, describe, send};

static void start_engine(struct world *world)
{
    struct engine_options options = {
        .env = &world->env,
        .ledger = world->ledger,
        .adapter = &world->adapter,
        .webhooks = world->webhooks,
        .registry = world->registry,
        .in_flight_max = world->in_flight_max,
        .sole_owner = true,
    };
    world->engine = engine_new(&options);
    engine_start(world->engine);
    world_run(world);
}

static struct ledger *open_ledger(struct world *world, const char *path)
{
    struct err err = {0};
    struct ledger *ledger = NULL;
    struct ledger_sqlite_options options = {.path = path};
    if (!path)
        return ledger_memory_new(&world->env);
    if (ledger_sqlite_open(&options, &world->env, &ledger, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return ledger;
}

void world_init_with(struct world *world, const struct tool *const *tools, size_t count,
                     const struct inbox_source *sources, size_t source_count, const char *path)
{
    struct err err = {0};
    memset(world, 0, sizeof *world);
    world->env = (struct env){world_now, world_random};
    world->now_ms = 1800000000000;
    world->seed = 42;
    world->adapter.ops = &ops;
    world->ledger = open_ledger(world, path);
    world->threaded = path != NULL;
    if (registry_new(tools, count, NULL, 0, "policy", NULL, NULL, &world->registry, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    registry_listen(world->registry, sources, source_count);
    start_engine(world);
}

void world_init(struct world *world, const struct tool *const *tools, size_t count)
{
    world_init_with(world, tools, count, NULL, 0, NULL);
}

static void stopped(void *user)
{
    *(bool *)user = true;
}

void world_release(struct world *world)
{
    bool done = false;
    engine_stop(world->engine, world->now_ms + 1000, stopped, &done);
    world_run(world);
    world->now_ms += 2000;
    engine_tick(world->engine);
    world_run(world);
    for (size_t i = 0; i < world->sent_count; i++)
        if (world->sent[i].open)
            world_answer(world, i, OUTCOME_TIMEOUT, NULL);
    ledger_poll(world->ledger);
    engine_free(world->engine);
    for (size_t i = 0; i < world->dead_count; i++)
        engine_free(world->dead[i]);
    ledger_close(world->ledger);
    registry_unref(world->registry);
    if (!done)
        abort();
}

/* Whatever was submitted to the ledger's thread is done. */
static void wait_for_ledger(struct world *world)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request last = {.command = LEDGER_INBOX_COUNTS, .arena = &arena};
    ledger_call(world->ledger, &last);
    arena_release(&arena);
}

void world_run(struct world *world)
{
    for (int i = 0; i < (world->threaded ? 16 : 50); i++) {
        if (world->threaded)
            wait_for_ledger(world);
        ledger_poll(world->ledger);
        int64_t next = engine_next_tick_ms(world->engine);
        if (next && next <= world->now_ms)
            engine_tick(world->engine);
    }
}

void world_advance(struct world *world, int64_t ms)
{
    int64_t end = world->now_ms + ms;
    while (world->now_ms < end) {
        int64_t next = engine_next_tick_ms(world->engine);
        world->now_ms = next && next > world->now_ms && next < end ? next : end;
        world_run(world);
    }
}

void world_crash(struct world *world)
{
    world->dead[world->dead_count++] = world->engine; /* its memory is freed at the end */
    for (size_t i = 0; i < world->sent_count; i++)
        world->sent[i].open = false;
    start_engine(world);
}

void world_provider(struct provider *provider)
{
    *provider = (struct provider){
        .name = "pay",
        .connections_max = 8,
        .queue_max = 8,
        .timeout_ms = 10000,
        .key_honoured = true,
        .key_retention_ms = 86400000,
        .retry_budget_per_s = 100,
        .retry_budget_burst = 1000,
        .breaker_failures = 0,
        .breaker_open_ms = 5000,
    };
}

void world_tool(struct tool *tool, const char *name, enum tool_class class, const struct provider *provider)
{
    bool weak = class == CLASS_EXTERNAL_WEAK || class == CLASS_EXTERNAL_IRREVERSIBLE;
    *tool = (struct tool){
        .name = name,
        .version = "1",
        .class = class,
        .provider = provider,
        .repeat_window_ms = weak ? 86400000 : 900000,
        .in_doubt = weak ? IN_DOUBT_HOLD : IN_DOUBT_ALLOW,
        .retry = {.attempts_max = 5, .total_ms = 3600000, .backoff_ms = 100, .backoff_max_ms = 1000},
        .reconcile = {.strategies = {STRATEGY_RESEND, STRATEGY_LOOKUP, STRATEGY_MANUAL},
                      .strategy_count = 3,
                      .settle_ms = 5000,
                      .absent_times = 2,
                      .interval_ms = 1000,
                      .interval_max_ms = 8000,
                      .give_up_ms = 600000,
                      .watch_ms = {60000, 600000},
                      .watch_count = 2},
        .has_lookup = true,
        .retain_ms = 30LL * 86400000,
        .wait_ms = 20000,
        .result_bytes_max = 65536,
    };
    if (weak) {
        tool->reconcile.strategies[0] = STRATEGY_LOOKUP;
        tool->reconcile.strategies[1] = STRATEGY_MANUAL;
        tool->reconcile.strategy_count = 2;
    }
}

void world_keep(void *user, const struct engine_reply *reply)
{
    struct world_reply *keep = user;
    keep->count++;
    keep->kind = reply->kind;
    keep->replayed = reply->replayed;
    keep->waited_out = reply->waited_out;
    keep->other_arguments = reply->other_arguments;
    keep->has_op = reply->op != NULL;
    if (reply->op) {
        keep->op = *operation_copy(&keep->arena, reply->op);
        snprintf(keep->result, sizeof keep->result, "%.*s", STR_ARG(reply->op->result));
        snprintf(keep->error, sizeof keep->error, "%.*s", STR_ARG(reply->op->error));
    }
    snprintf(keep->text, sizeof keep->text, "%s", reply->err->text);
    snprintf(keep->plan, sizeof keep->plan, "%.*s", STR_ARG(reply->plan));
    keep->refusal = reply->why ? reply->why->refusal : REFUSAL_NONE;
    keep->differing[0] = '\0';
    for (size_t i = 0; i < reply->differing_count; i++) {
        strncat(keep->differing, reply->differing[i], sizeof keep->differing - strlen(keep->differing) - 2);
        strcat(keep->differing, " ");
    }
}

struct waiter *world_request(struct world *world, struct engine_call *call, const char *arguments,
                             struct world_reply *reply)
{
    struct json *value;
    struct err err = {0};
    if (json_parse(&reply->arena, str_of(arguments), &json_limits_kept, &value, &err))
        abort();
    call->call.arguments = value;
    if (!call->call.tenant)
        call->call.tenant = "acme";
    if (!call->call.principal)
        call->call.principal = "agent";
    return engine_call(world->engine, call, world_keep, reply);
}

void world_call(struct world *world, const char *tool, const char *arguments, const char *key,
                struct world_reply *reply)
{
    struct engine_call call = {.tool = tool, .wait_ms = -1, .call = {.idempotency_key = key}};
    world_request(world, &call, arguments, reply);
    world_run(world);
}

void world_reply_release(struct world_reply *reply)
{
    arena_release(&reply->arena);
    memset(reply, 0, sizeof *reply);
}

void world_answer_with(struct world *world, size_t index, const struct adapter_answer *answer)
{
    struct world_sent *sent = &world->sent[index];
    if (index >= world->sent_count || !sent->open)
        abort();
    sent->open = false;
    sent->done(sent->user, answer);
    world_run(world);
}

void world_answer(struct world *world, size_t index, enum outcome outcome, const char *external_id)
{
    bool good = outcome == OUTCOME_SUCCESS || outcome == OUTCOME_FOUND;
    struct adapter_answer answer = {
        .outcome = outcome,
        .external_id = external_id,
        .result = good ? STR("{\"ok\":true}") : STR_NONE,
        .error = good ? STR_NONE : STR("{\"message\":\"told by the test\"}"),
        .http_status = good ? 200 : 0,
    };
    world_answer_with(world, index, &answer);
}

size_t world_sent_of(const struct world *world, enum attempt_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < world->sent_count; i++)
        n += world->sent[i].kind == kind;
    return n;
}

struct operation *world_row(struct world *world, struct arena *arena, const char *id)
{
    struct ledger_request request = {.command = LEDGER_GET, .arena = arena, .get = {.operation = id}};
    return ledger_call(world->ledger, &request) ? NULL : request.get.op;
}
