#include "sweep/life.h"

#include "base/log.h"
#include "engine/engine.h"

#include <semaphore.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_MS     1800000000000
#define DAY_MS       86400000LL
#define ANSWER_MS    20   /* between a request and its answer, and … */
#define ANSWER_EACH  13   /* … so much more for each intent: not all in one commit */
#define FIRST_EACH   30   /* between the first calls of two intents, likewise */
#define AGAIN_MS     500  /* a caller that was turned away asks again, … */
#define LATER_MS     5000 /* … and one that waits for the end of retention: claims of a dead owner last a minute */
#define STEPS_MAX    6000 /* of the clock in one phase; a settled life takes a few hundred */
#define CALLERS_EACH 2
#define PENDING_MAX  64

/* ---- the intents ---- */

enum tool_of { KEYED, LOOKUP, MANUAL, TOOLS };

/* What the provider does with the first attempt that reaches it; the later ones are carried out. */
enum first_answer {
    FIRST_GOOD,
    FIRST_LOST,      /* effect, no answer */
    FIRST_DROPPED,   /* no effect, no answer */
    FIRST_ERROR,     /* effect, 5xx */
    FIRST_BUSY,      /* no effect, proven */
    FIRST_UNREACHED, /* never left */
    EVERY_ONE_REFUSED
};

static const struct intent {
    enum tool_of tool;
    enum first_answer first;
    bool no_key, scheduled;
} intents[INTENTS] = {
    {KEYED, FIRST_GOOD, false, false},    {KEYED, FIRST_LOST, false, false},
    {KEYED, FIRST_DROPPED, false, false}, {KEYED, EVERY_ONE_REFUSED, false, false},
    {KEYED, FIRST_BUSY, false, false},    {KEYED, FIRST_UNREACHED, false, false},
    {KEYED, FIRST_ERROR, false, false},   {LOOKUP, FIRST_GOOD, false, false},
    {LOOKUP, FIRST_LOST, false, false},   {LOOKUP, FIRST_DROPPED, false, false},
    {MANUAL, FIRST_LOST, false, false},   {KEYED, FIRST_GOOD, true, false},
    {KEYED, FIRST_GOOD, false, true},
};

/* ---- the life ---- */

struct caller {
    struct life *life;
    int intent;
    bool open, asked; /* asked: in this phase at least once */
    int64_t again_at_ms;
    struct arena arena;
    struct engine_call call;
};

/* An answer on its way. Texts are static or in the life. */
struct pending {
    int64_t due_ms;
    adapter_done *done;
    void *user;
    struct adapter_answer answer;
    char external_id[32], result[64];
};

/* Before the real ledger: holds commands back until the life lets them through, all at once, so that batches are the
 * same in every run; and refuses the n-th one that writes. */
struct valve {
    struct ledger base;
    struct life *life;
    struct ledger *real;
    struct ledger_request *first, **last;
    sem_t go, done;
    atomic_bool open;
};

struct life {
    struct life_memory *memory;
    const struct life_plan *plan;
    const char *path;
    struct env env;
    struct adapter adapter;
    struct valve valve;
    struct registry *registry;
    struct engine *engine;
    struct caller callers[INTENTS][CALLERS_EACH];
    struct pending pending[PENDING_MAX];
    size_t pending_count;
    bool expired[INTENTS];
    char last[INTENTS][48]; /* what was answered last, for messages */
    bool stopped;
};

#define LIFE_OF(pointer, member) ((struct life *)((char *)(pointer)-offsetof(struct life, member)))

static _Noreturn void broken(struct life_memory *memory, const char *format, ...) __attribute__((format(printf, 2, 3)));
static _Noreturn void broken(struct life_memory *memory, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(memory->word, sizeof memory->word, format, args);
    va_end(args);
    _exit(LIFE_BROKEN);
}

static int64_t life_now(struct env *env)
{
    return LIFE_OF(env, env)->memory->now_ms;
}

static void life_random(struct env *env, void *out, size_t n)
{
    struct life_memory *memory = LIFE_OF(env, env)->memory;
    unsigned char *p = out;
    for (size_t i = 0; i < n; i++) {
        memory->random = memory->random * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(memory->random >> 56);
    }
}

/* ---- the provider ---- */

static enum err_code provider_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    (void)adapter;
    (void)call;
    (void)err;
    return ERR_NONE;
}

static enum err_code provider_describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                                       struct err *err)
{
    (void)adapter;
    (void)call;
    (void)err;
    json_out_object(out);
    json_out_end_object(out);
    return ERR_NONE;
}

static int intent_of(const struct json *arguments)
{
    return (int)json_get_int(arguments, "intent", -1);
}

/* A provider with keys makes the effect once per key. */
static void make_effect(struct counted *counted, const struct intent *intent, const char *key)
{
    if (intent->tool == KEYED && counted->effects && strcmp(counted->key, key) == 0)
        return;
    snprintf(counted->key, sizeof counted->key, "%s", key);
    counted->effects++;
}

static enum outcome answer_call(struct counted *counted, const struct intent *intent, const char *key)
{
    bool first = counted->tries++ == 0;
    if (first && intent->first == FIRST_UNREACHED)
        return OUTCOME_NOT_SENT;
    counted->calls++;
    if (intent->first == EVERY_ONE_REFUSED)
        return OUTCOME_REFUSED;
    if (first && intent->first == FIRST_BUSY)
        return OUTCOME_NOT_PROCESSED;
    if (first && intent->first == FIRST_DROPPED)
        return OUTCOME_TIMEOUT;
    make_effect(counted, intent, key);
    if (first && intent->first == FIRST_LOST)
        return OUTCOME_CONNECTION_LOST;
    return first && intent->first == FIRST_ERROR ? OUTCOME_PROVIDER_ERROR : OUTCOME_SUCCESS;
}

static void provider_send(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct life *life = LIFE_OF(adapter, adapter);
    int index = intent_of(call->arguments);
    struct counted *counted = &life->memory->counted[index];
    enum outcome outcome;
    if (call->kind == ATTEMPT_CALL) {
        outcome = answer_call(counted, &intents[index], call->provider_key);
    } else {
        counted->lookups++;
        outcome = counted->effects ? OUTCOME_FOUND : OUTCOME_ABSENT;
    }
    if (life->pending_count == PENDING_MAX)
        broken(life->memory, "more than %d requests on the wire", PENDING_MAX);
    struct pending *pending = &life->pending[life->pending_count++];
    *pending =
        (struct pending){.due_ms = life->memory->now_ms + ANSWER_MS + index * ANSWER_EACH, .done = done, .user = user};
    pending->answer.outcome = outcome;
    bool good = outcome == OUTCOME_SUCCESS || outcome == OUTCOME_FOUND;
    snprintf(pending->external_id, sizeof pending->external_id, "ext_%d", index);
    snprintf(pending->result, sizeof pending->result, good ? "{\"id\":\"ext_%d\"}" : "{\"message\":\"told by %d\"}",
             index);
}

static void deliver(struct life *life)
{
    for (size_t i = 0; i < life->pending_count;) {
        if (life->pending[i].due_ms > life->memory->now_ms) {
            i++;
            continue;
        }
        struct pending pending = life->pending[i];
        life->pending[i] = life->pending[--life->pending_count];
        bool good = pending.answer.outcome == OUTCOME_SUCCESS || pending.answer.outcome == OUTCOME_FOUND;
        if (good) {
            pending.answer.external_id = pending.external_id;
            pending.answer.http_status = 200;
        }
        *(good ? &pending.answer.result : &pending.answer.error) = str_of(pending.result);
        pending.done(pending.user, &pending.answer);
    }
}

static const struct adapter_ops provider_ops = {provider_check, provider_describe, provider_send};

/* ---- the valve ---- */

static bool writes(const struct ledger_request *request)
{
    switch (request->command) {
    case LEDGER_ADMIT:
    case LEDGER_TRANSITION:
    case LEDGER_CLAIM_DUE:
    case LEDGER_MARK:
    case LEDGER_EXPIRE: return true;
    default: return false;
    }
}

static void valve_submit(struct ledger *base, struct ledger_request *request)
{
    struct valve *valve = (struct valve *)base;
    *valve->last = request;
    valve->last = &request->next;
}

static bool refused(struct life *life, struct ledger_request *request)
{
    const struct life_plan *plan = life->plan;
    if (!writes(request))
        return false;
    uint64_t n = ++life->memory->commands;
    if (plan->command_nth == 0 || n < plan->command_nth || n >= plan->command_nth + plan->command_times)
        return false;
    request->code = err_set(&request->err, ERR_UNAVAILABLE, "the test refuses command %llu", (unsigned long long)n);
    return true;
}

/* One batch; what the answers submit waits for the next one. */
static void valve_poll(struct ledger *base)
{
    struct valve *valve = (struct valve *)base;
    struct ledger_request *request = valve->first, *next, *turned_away = NULL, **end = &turned_away;
    bool some = false;
    valve->first = NULL;
    valve->last = &valve->first;
    for (; request; request = next) {
        next = request->next;
        request->next = NULL;
        if (refused(valve->life, request)) {
            *end = request;
            end = &request->next;
        } else {
            ledger_submit(valve->real, request);
            some = true;
        }
    }
    if (some) {
        sem_post(&valve->go);
        sem_wait(&valve->done);
        ledger_poll(valve->real);
    }
    for (; turned_away; turned_away = next) {
        next = turned_away->next;
        turned_away->done(turned_away);
    }
}

static const struct ledger_ops valve_ops = {.submit = valve_submit, .poll = valve_poll};

/* On the ledger thread, after each batch. */
static void batch_done(void *user)
{
    struct valve *valve = user;
    sem_post(&valve->done);
    if (!atomic_load(&valve->open))
        sem_wait(&valve->go);
}

static void nothing(struct ledger_request *request)
{
    (void)request;
}

/* Brings the ledger thread to the place where it waits for the word to go. */
static void prime(struct valve *valve)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_STATS, .arena = &arena, .done = nothing};
    ledger_submit(valve->real, &request);
    sem_wait(&valve->done);
    ledger_poll(valve->real);
    arena_release(&arena);
}

static bool valve_open(struct life *life, struct err *err)
{
    struct valve *valve = &life->valve;
    *valve = (struct valve){.base.ops = &valve_ops, .life = life, .last = &valve->first};
    sem_init(&valve->go, 0, 0);
    sem_init(&valve->done, 0, 0);
    struct ledger_sqlite_options options = {.path = life->path, .notify = batch_done, .user = valve};
    if (ledger_sqlite_open(&options, &life->env, &valve->real, err))
        return false;
    memcpy(valve->base.secret, valve->real->secret, sizeof valve->base.secret);
    prime(valve);
    return true;
}

static void valve_close(struct valve *valve)
{
    atomic_store(&valve->open, true);
    sem_post(&valve->go);
    ledger_close(valve->real);
}

/* ---- callers ---- */

static void remember(struct life *life, int index, const struct operation *op)
{
    struct life_memory *memory = life->memory;
    struct told *told = &memory->told[index], now = {.told = true, .state = op->state};
    struct counted *counted = &memory->counted[index];
    snprintf(now.operation, sizeof now.operation, "%s", op->id);
    snprintf(now.external_id, sizeof now.external_id, "%s", op->external_id ? op->external_id : "");
    snprintf(now.payload, sizeof now.payload, "%.*s %.*s", STR_ARG(op->result), STR_ARG(op->error));
    bool success = op->state == STATE_COMPLETED_SUCCESS;
    if (counted->effects != (success ? 1u : 0u))
        broken(memory, "intent %d: told %s with %u effects", index, state_name(op->state), counted->effects);
    if (!told->told)
        *told = now;
    else if (strcmp(told->operation, now.operation) != 0 || told->state != now.state ||
             strcmp(told->external_id, now.external_id) != 0 || strcmp(told->payload, now.payload) != 0)
        broken(memory, "intent %d: told %s %s %s %s, then %s %s %s %s", index, told->operation, state_name(told->state),
               told->external_id, told->payload, now.operation, state_name(now.state), now.external_id, now.payload);
}

static void on_decision(void *user, const struct engine_reply *reply)
{
    struct caller *caller = user;
    if (reply->kind == REPLY_OPERATION && state_terminal(reply->op->state))
        remember(caller->life, caller->intent, reply->op);
    else if (reply->kind != REPLY_UNAVAILABLE && reply->kind != REPLY_STALE && reply->kind != REPLY_IMPOSSIBLE)
        broken(caller->life->memory, "intent %d: a decision was answered with kind %d: %s", caller->intent,
               (int)reply->kind, reply->err->text);
}

/* The person looks at the provider and says what is there. */
static void decide(struct caller *caller, const struct operation *op)
{
    struct life *life = caller->life;
    struct engine_decision decision = {
        .kind = DECISION_RESOLVE,
        .operation = op->id,
        .rev = op->rev,
        .happened = life->memory->counted[caller->intent].effects > 0,
        .external_id = "ext_seen",
        .actor = "erin",
        .note = "looked at the provider",
    };
    if (!decision.happened)
        decision.external_id = NULL;
    engine_decide(life->engine, &decision, on_decision, caller);
}

static void on_expired(struct caller *caller, const struct tombstone *tombstone)
{
    struct life *life = caller->life;
    const struct told *told = &life->memory->told[caller->intent];
    if (!life->memory->retention_began)
        broken(life->memory, "intent %d: its result is gone before its time", caller->intent);
    if (told->told && (strcmp(told->operation, tombstone->operation) != 0 || told->state != tombstone->state))
        broken(life->memory, "intent %d: told %s %s, kept as %s %s", caller->intent, told->operation,
               state_name(told->state), tombstone->operation, state_name(tombstone->state));
    life->expired[caller->intent] = true;
}

static void on_reply(void *user, const struct engine_reply *reply)
{
    struct caller *caller = user;
    struct life *life = caller->life;
    caller->open = false;
    caller->again_at_ms = life->memory->now_ms + (life->memory->retention_began ? LATER_MS : AGAIN_MS);
    snprintf(life->last[caller->intent], sizeof life->last[0], "kind %d, %s", (int)reply->kind,
             reply->op ? state_name(reply->op->state) : "no operation");
    switch (reply->kind) {
    case REPLY_OPERATION:
        if (state_terminal(reply->op->state)) {
            remember(life, caller->intent, reply->op);
            engine_delivered(life->engine, reply->op);
        } else if (reply->op->reason == REASON_NEEDS_OPERATOR) {
            decide(caller, reply->op);
        }
        return;
    case REPLY_EXPIRED: on_expired(caller, reply->tombstone); return;
    case REPLY_UNAVAILABLE: return;
    default: break;
    }
    broken(life->memory, "intent %d was answered with kind %d: %s", caller->intent, (int)reply->kind, reply->err->text);
}

static const char *const tool_names[TOOLS] = {"keyed", "lookup", "manual"};

static void call(struct caller *caller)
{
    const struct intent *intent = &intents[caller->intent];
    char text[64];
    struct json *arguments;
    arena_reset(&caller->arena);
    snprintf(text, sizeof text, "{\"intent\":%d,\"note\":\"%.20s\"}", caller->intent, "aaaaaaaaaaaaaaaaaaaaaaaa");
    if (json_parse(&caller->arena, str_of(text), &json_limits_default, &arguments, NULL))
        abort();
    caller->call = (struct engine_call){
        .tool = tool_names[intent->tool],
        .wait_ms = -1,
        .async = intent->scheduled,
        .call = {.tenant = "acme",
                 .principal = "agent",
                 .arguments = arguments,
                 .idempotency_key = intent->no_key ? NULL : arena_printf(&caller->arena, "k%d", caller->intent),
                 .not_before_ms = intent->scheduled ? START_MS + 5000 : 0},
    };
    caller->open = caller->asked = true;
    engine_call(caller->life->engine, &caller->call, on_reply, caller);
}

/* ---- running ---- */

/* Ledger, answers and timers, until nothing is left to do at this moment. */
static void run(struct life *life)
{
    bool busy = true;
    for (int i = 0; busy && i < 1000; i++) {
        busy = life->valve.first != NULL;
        ledger_poll(&life->valve.base);
        size_t before = life->pending_count;
        deliver(life);
        busy |= before != life->pending_count;
        int64_t next = engine_next_tick_ms(life->engine);
        if (next && next <= life->memory->now_ms) {
            engine_tick(life->engine);
            busy = true;
        }
    }
}

static bool is_over(const struct life *life, int index)
{
    return life->memory->retention_began ? life->expired[index] : life->memory->told[index].told;
}

/* Asks for what is not over; *next becomes the time of the next question. False when all is over. */
static bool ask(struct life *life, int64_t *next)
{
    bool some = false;
    for (int i = 0; i < INTENTS; i++) {
        if (life->memory->retention_began && intents[i].no_key)
            continue; /* without a key it would be a new intent by now */
        for (int c = 0; c < CALLERS_EACH; c++) {
            struct caller *caller = &life->callers[i][c];
            if (is_over(life, i) && caller->asked)
                continue;
            some = true;
            if (caller->open)
                continue;
            if (caller->again_at_ms <= life->memory->now_ms)
                call(caller);
            else if (caller->again_at_ms < *next)
                *next = caller->again_at_ms;
        }
    }
    return some;
}

static bool any_open(const struct life *life)
{
    for (int i = 0; i < INTENTS; i++)
        for (int c = 0; c < CALLERS_EACH; c++)
            if (life->callers[i][c].open)
                return true;
    return false;
}

static void advance(struct life *life, int64_t until_ms)
{
    int64_t next = engine_next_tick_ms(life->engine);
    for (size_t i = 0; i < life->pending_count; i++)
        if (!next || life->pending[i].due_ms < next)
            next = life->pending[i].due_ms;
    if (next && next < until_ms)
        until_ms = next;
    if (until_ms > life->memory->now_ms)
        life->memory->now_ms = until_ms;
}

static void say_what_is_left(struct life *life)
{
    char *word = life->memory->word;
    size_t n = 0, size = sizeof life->memory->word;
    for (int i = 0; i < INTENTS && n < size; i++)
        if (!is_over(life, i))
            n += (size_t)snprintf(word + n, size - n, "intent %d was last answered with %s; ", i, life->last[i]);
}

/* Every intent is asked for by both callers and comes to its end. False: not within the time that a life has. */
static bool go_through(struct life *life)
{
    for (int i = 0; i < INTENTS; i++)
        for (int c = 0; c < CALLERS_EACH; c++) {
            life->callers[i][c].asked = false;
            life->callers[i][c].again_at_ms = life->memory->now_ms + i * FIRST_EACH + c;
        }
    for (int step = 0; step < STEPS_MAX; step++) {
        int64_t next = life->memory->now_ms + 1000;
        bool some = ask(life, &next);
        run(life);
        if (!some && !any_open(life))
            return true;
        advance(life, next);
    }
    say_what_is_left(life);
    return false;
}

/* ---- what must hold ---- */

/* A fault may hit the question, too: it is asked again. While the fault lasts, that is the end of the life. */
static void ask_ledger(struct life *life, struct ledger_request *request)
{
    request->done = nothing;
    for (int i = 0; i < 10; i++)
        if (ledger_call(&life->valve.base, request) == ERR_NONE)
            return;
    snprintf(life->memory->word, sizeof life->memory->word, "no answer: %s", request->err.text);
    _exit(LIFE_TIRED);
}

static void count_rows(struct life *life, const struct operation *op, unsigned rows[2])
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = op->id}};
    ask_ledger(life, &request);
    for (size_t i = 0; i < request.attempts.count; i++)
        rows[request.attempts.attempts[i].kind] += request.attempts.attempts[i].outcome != OUTCOME_NOT_SENT;
    arena_release(&arena);
}

/* Every request that arrived has its row. */
static void check_rows(struct life *life)
{
    unsigned rows[INTENTS][2] = {0};
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {
        .command = LEDGER_LIST, .arena = &arena, .list = {.limit = LEDGER_LIST_MAX, .with_payload = true}};
    ask_ledger(life, &request);
    for (size_t i = 0; i < request.list.count; i++) {
        const struct operation *op = request.list.ops[i];
        struct json *arguments;
        if (json_parse(&arena, op->arguments, &json_limits_default, &arguments, NULL))
            broken(life->memory, "%s has no arguments", op->id);
        if (!state_terminal(op->state))
            broken(life->memory, "%s is %s at the end", op->id, state_name(op->state));
        count_rows(life, op, rows[intent_of(arguments)]);
    }
    for (int i = 0; i < INTENTS; i++) {
        const struct counted *counted = &life->memory->counted[i];
        if (counted->calls > rows[i][ATTEMPT_CALL] || counted->lookups > rows[i][ATTEMPT_LOOKUP])
            broken(life->memory, "intent %d: %u calls and %u look-ups arrived, %u and %u rows", i, counted->calls,
                   counted->lookups, rows[i][ATTEMPT_CALL], rows[i][ATTEMPT_LOOKUP]);
    }
    arena_release(&arena);
}

static void check_open_states(struct life *life)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_STATS, .arena = &arena};
    ask_ledger(life, &request);
    for (int state = 0; state < STATE_COUNT; state++)
        if (!state_terminal((enum state)state) && request.stats.by_state[state] != 0)
            broken(life->memory, "the ledger counts %lld operations as %s, there are none",
                   (long long)request.stats.by_state[state], state_name((enum state)state));
    arena_release(&arena);
}

/* ---- begin and end ---- */

static void define(struct tool *tool, struct provider *provider, const char *name, enum tool_of kind)
{
    *provider = (struct provider){
        .name = name,
        .connections_max = 8,
        .queue_max = 64,
        .timeout_ms = 10000,
        .key_honoured = kind == KEYED,
        .key_retention_ms = DAY_MS,
        .retry_budget_per_s = 100,
        .retry_budget_burst = 1000,
    };
    *tool = (struct tool){
        .name = name,
        .version = "1",
        .class = kind == KEYED ? CLASS_EXTERNAL_IDEMPOTENT : CLASS_EXTERNAL_WEAK,
        .provider = provider,
        .repeat_window_ms = DAY_MS,
        .in_doubt = IN_DOUBT_ALLOW,
        .retry = {.attempts_max = 8, .total_ms = DAY_MS, .backoff_ms = 100, .backoff_max_ms = 1000},
        .reconcile = {.strategies = {kind == KEYED    ? STRATEGY_RESEND
                                     : kind == LOOKUP ? STRATEGY_LOOKUP
                                                      : STRATEGY_MANUAL,
                                     STRATEGY_MANUAL},
                      .strategy_count = kind == MANUAL ? 1 : 2,
                      .settle_ms = 500,
                      .absent_times = 2,
                      .interval_ms = 200,
                      .interval_max_ms = 1000,
                      .give_up_ms = DAY_MS,
                      .watch_ms = {60000},
                      .watch_count = 1},
        .has_lookup = kind != MANUAL,
        .retain_ms = 30 * DAY_MS,
        .wait_ms = 20000,
        .result_bytes_max = 65536,
    };
}

static void begin_engine(struct life *life)
{
    struct engine_options options = {
        .env = &life->env,
        .ledger = &life->valve.base,
        .adapter = &life->adapter,
        .registry = life->registry,
        .sole_owner = true,
    };
    life->engine = engine_new(&options);
    engine_start(life->engine);
    run(life);
}

static void on_stopped(void *user)
{
    *(bool *)user = true;
}

/* A graceful stop; what is on the wire is answered first. */
static bool end_engine(struct life *life)
{
    life->stopped = false;
    engine_stop(life->engine, life->memory->now_ms + 30000, on_stopped, &life->stopped);
    for (int step = 0; step < 1000 && !life->stopped; step++) {
        run(life);
        advance(life, life->memory->now_ms + 1000);
    }
    valve_close(&life->valve);
    engine_free(life->engine);
    return life->stopped;
}

enum phase { PHASE_SETTLE, PHASE_RETAIN };

static enum life_end live(struct life *life, enum phase phase)
{
    struct err err = {0};
    if (!valve_open(life, &err)) {
        snprintf(life->memory->word, sizeof life->memory->word, "%s", err.text);
        return LIFE_REFUSED;
    }
    begin_engine(life);
    bool over = go_through(life);
    if (over && phase == PHASE_SETTLE) {
        check_rows(life);
        check_open_states(life);
    }
    return end_engine(life) && over ? LIFE_DONE : LIFE_TIRED;
}

enum life_end life_run(struct life_memory *memory, const struct life_plan *plan, const char *path)
{
    static struct life life;
    static struct tool tools[TOOLS];
    static struct provider providers[TOOLS];
    const struct tool *list[TOOLS];
    log_set_level(LOG_OFF);
    if (memory->now_ms == 0)
        memory->now_ms = START_MS;
    life = (struct life){.memory = memory, .plan = plan, .path = path, .env = {life_now, life_random}};
    life.adapter.ops = &provider_ops;
    for (int i = 0; i < TOOLS; i++) {
        define(&tools[i], &providers[i], tool_names[i], (enum tool_of)i);
        list[i] = &tools[i];
    }
    for (int i = 0; i < INTENTS; i++)
        for (int c = 0; c < CALLERS_EACH; c++) {
            life.callers[i][c] = (struct caller){.life = &life, .intent = i};
            arena_init(&life.callers[i][c].arena);
        }
    disk_start(&plan->disk, memory->disk_calls, &memory->disk_changes);
    if (registry_new(list, TOOLS, NULL, 0, "policy", NULL, NULL, &life.registry, NULL))
        abort();
    enum life_end end = memory->retention_began ? LIFE_DONE : live(&life, PHASE_SETTLE);
    if (end != LIFE_DONE)
        return end;
    if (!memory->retention_began)
        memory->now_ms += 31 * DAY_MS;
    memory->retention_began = true;
    return live(&life, PHASE_RETAIN);
}

/* ---- the file ---- */

static int one_row(void *user, int columns, char **values, char **names)
{
    struct life_memory *memory = user;
    (void)names;
    for (int i = 0; i < columns; i++)
        if (strcmp(values[i] ? values[i] : "", "ok") != 0)
            broken(memory, "the ledger file: %s", values[i] ? values[i] : "NULL");
    return 0;
}

enum life_end life_check_file(struct life_memory *memory, const char *path)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_exec(db, "PRAGMA integrity_check; PRAGMA foreign_key_check", one_row, memory, NULL) != SQLITE_OK)
        broken(memory, "the ledger file can not be read: %s", sqlite3_errmsg(db));
    sqlite3_close(db);
    for (int i = 0; i < INTENTS; i++) {
        const struct told *told = &memory->told[i];
        unsigned effects = memory->counted[i].effects;
        if (!told->told)
            broken(memory, "intent %d was never answered", i);
        if (effects != (told->state == STATE_COMPLETED_SUCCESS ? 1u : 0u))
            broken(memory, "intent %d: %u effects, told %s", i, effects, state_name(told->state));
    }
    return LIFE_DONE;
}
