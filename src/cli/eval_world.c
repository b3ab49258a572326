#include "cli/eval_world.h"

#include "adapter/command.h"
#include "adapter/http.h"
#include "adapter/mail.h"
#include "adapter/mcp.h"
#include "adapter/route.h"
#include "adapter/sql.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define START_MS       INT64_C(1800000000000)
#define IDLE_TURNS     6     /* turns of ledger and engine without a request after which nothing moves any more */
#define TURNS_MAX      10000 /* bound of one run; a tool that re-sends without end is cut here */
#define REACH_STEPS    5000  /* timers that may pass until an operation is where it is to be */
#define WORLD_OF(p, m) ((struct eval_world *)((char *)(p)-offsetof(struct eval_world, m)))

/* A request that the engine believes to be on the wire. */
struct wire {
    struct wire *next;
    char operation[OPERATION_ID_SIZE];
    enum attempt_kind kind;
    int64_t deadline_ms;
    adapter_done *done;
    void *user;
};

/* Where an operation is to be kept. */
struct aim {
    char operation[OPERATION_ID_SIZE];
    enum state state;
};

struct eval_world {
    struct env env;
    struct adapter adapter;
    struct registry *registry;
    uv_loop_t loop; /* the adapters'; they build requests and never send one */
    struct adapter *http;
    struct mcp_hub *hub; /* without servers */
    struct adapter *command, *mail, *sql;
    struct adapter_route route;
    /* of one group */
    int64_t now_ms;
    uint64_t seed;
    struct ledger *ledger;
    struct engine *engine;
    struct wire *wires, **last_wire;
    struct aim aims[EVAL_CALLS_MAX];
    size_t aim_count;
    bool stopped;
};

const char *answer_words(enum answer answer)
{
    switch (answer) {
#define X(constant, text)                                                                                              \
    case constant: return text;
        ANSWERS(X)
#undef X
    }
    return "?";
}

const char *answer_name(enum answer answer)
{
    switch (answer) {
    case ANSWER_OPENED: return "opened";
    case ANSWER_JOINED: return "joined";
    case ANSWER_CONFLICT: return "conflict";
    case ANSWER_HELD: return "held";
    case ANSWER_NOT_SHARED: return "not_shared";
    case ANSWER_REFUSED: return "refused";
    case ANSWER_READ: return "read";
    case ANSWER_BROKEN: return "broken";
    }
    return "?";
}

/* ---- clock and chance ---- */

static int64_t world_now(struct env *env)
{
    return WORLD_OF(env, env)->now_ms;
}

/* Not random on purpose: the same file gives the same report. */
static void world_random(struct env *env, void *out, size_t n)
{
    struct eval_world *world = WORLD_OF(env, env);
    unsigned char *p = out;
    for (size_t i = 0; i < n; i++) {
        world->seed = world->seed * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(world->seed >> 56);
    }
}

/* ---- the provider ---- */

static enum err_code world_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    struct eval_world *world = WORLD_OF(adapter, adapter);
    return world->route.adapter.ops->check(&world->route.adapter, call, err);
}

static enum err_code world_describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                                    struct err *err)
{
    struct eval_world *world = WORLD_OF(adapter, adapter);
    return world->route.adapter.ops->describe(&world->route.adapter, call, out, err);
}

static void world_send(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct eval_world *world = WORLD_OF(adapter, adapter);
    struct wire *wire = mem_zero(sizeof *wire);
    snprintf(wire->operation, sizeof wire->operation, "%s", call->operation);
    wire->kind = call->kind;
    wire->deadline_ms = world->now_ms + tool_timeout_ms(call->tool);
    wire->done = done;
    wire->user = user;
    *world->last_wire = wire;
    world->last_wire = &wire->next;
}

static const struct adapter_ops world_ops = {world_check, world_describe, world_send};

static struct aim *find_aim(struct eval_world *world, const char *operation)
{
    for (size_t i = 0; i < world->aim_count; i++)
        if (strcmp(world->aims[i].operation, operation) == 0)
            return &world->aims[i];
    return NULL;
}

static void set_aim(struct eval_world *world, const char *operation, enum state state)
{
    struct aim *aim = find_aim(world, operation);
    if (!aim) {
        assert(world->aim_count < EVAL_CALLS_MAX); /* at most one operation per call */
        aim = &world->aims[world->aim_count++];
        snprintf(aim->operation, sizeof aim->operation, "%s", operation);
    }
    aim->state = state;
}

/* What the provider says, so that the operation gets to and stays in that state. OUTCOME_OPEN: nothing yet. */
static enum outcome outcome_for(enum state aim, enum attempt_kind kind)
{
    bool call = kind == ATTEMPT_CALL;
    switch (aim) {
    case STATE_COMPLETED_SUCCESS: return call ? OUTCOME_SUCCESS : OUTCOME_FOUND;
    case STATE_COMPLETED_NOOP: return call ? OUTCOME_NOOP : OUTCOME_FOUND;
    case STATE_FAILED_PERMANENT: return call ? OUTCOME_REFUSED : OUTCOME_ABSENT;
    case STATE_FAILED_RETRYABLE: return call ? OUTCOME_NOT_PROCESSED : OUTCOME_ABSENT;
    case STATE_UNKNOWN_OUTCOME: return call ? OUTCOME_TIMEOUT : OUTCOME_CANNOT_TELL;
    case STATE_ACKNOWLEDGED: return call ? OUTCOME_ACCEPTED : OUTCOME_PENDING;
    case STATE_DISPATCHED: return call ? OUTCOME_OPEN : OUTCOME_CANNOT_TELL;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_REJECTED:
    case STATE_COMPENSATING:
    case STATE_COMPENSATED: break;
    }
    return OUTCOME_OPEN;
}

static void answer_wire(struct eval_world *world, struct wire **at, enum outcome outcome)
{
    struct wire *wire = *at;
    bool good = outcome == OUTCOME_SUCCESS || outcome == OUTCOME_FOUND || outcome == OUTCOME_NOOP;
    struct adapter_answer answer = {
        .outcome = outcome,
        .external_id = good ? "eval" : NULL,
        .result = good ? STR("{}") : STR_NONE,
        .error = good ? STR_NONE : STR("{\"message\":\"as the scenario says\"}"),
    };
    *at = wire->next;
    if (!wire->next)
        world->last_wire = at;
    wire->done(wire->user, &answer);
    free(wire);
}

static struct operation *row_of(struct eval_world *world, const char *operation, struct arena *arena)
{
    struct ledger_request request = {.command = LEDGER_GET, .arena = arena, .get = {.operation = operation}};
    return ledger_call(world->ledger, &request) ? NULL : request.get.op;
}

/* A scenario speaks of the calls that it makes: a step of a multi-step one is answered as its parent is to end. */
static struct aim *aim_of(struct eval_world *world, const char *operation)
{
    struct arena arena;
    struct aim *aim = find_aim(world, operation);
    if (aim)
        return aim;
    arena_init(&arena);
    const struct operation *op = row_of(world, operation, &arena);
    aim = op && op->parent ? find_aim(world, op->parent) : NULL;
    arena_release(&arena);
    return aim;
}

/* Answers one request that is to be answered by now. */
static bool answer_one(struct eval_world *world)
{
    for (struct wire **at = &world->wires; *at; at = &(*at)->next) {
        struct aim *aim = aim_of(world, (*at)->operation);
        enum outcome outcome = aim ? outcome_for(aim->state, (*at)->kind) : OUTCOME_OPEN;
        if (outcome == OUTCOME_OPEN && (*at)->deadline_ms <= world->now_ms)
            outcome = OUTCOME_TIMEOUT;
        if (outcome == OUTCOME_OPEN)
            continue;
        answer_wire(world, at, outcome);
        return true;
    }
    return false;
}

/* ---- turns ---- */

static void turn(struct eval_world *world)
{
    ledger_poll(world->ledger);
    int64_t next = engine_next_tick_ms(world->engine);
    if (next && next <= world->now_ms)
        engine_tick(world->engine);
}

/* Until nothing moves at this moment. */
static void run(struct eval_world *world, bool provider_answers)
{
    int idle = 0;
    for (int turns = 0; idle < IDLE_TURNS && turns < TURNS_MAX; turns++) {
        turn(world);
        idle = provider_answers && answer_one(world) ? 0 : idle + 1;
    }
}

/* The next moment at which something happens by itself; 0: none. */
static int64_t next_moment(struct eval_world *world)
{
    int64_t next = engine_next_tick_ms(world->engine);
    for (const struct wire *wire = world->wires; wire; wire = wire->next)
        if (!next || wire->deadline_ms < next)
            next = wire->deadline_ms;
    if (next && next <= world->now_ms)
        next = world->now_ms + 1;
    return next;
}

static void advance(struct eval_world *world, int64_t until_ms)
{
    while (world->now_ms < until_ms) {
        int64_t next = next_moment(world);
        world->now_ms = next && next < until_ms ? next : until_ms;
        run(world, true);
    }
}

static void ignore(void *user, const struct engine_reply *reply)
{
    (void)user;
    (void)reply; /* the row is looked at again */
}

/* Reconciliation has given up: the operator says what the scenario says. */
static bool operator_resolves(struct eval_world *world, const struct operation *op, enum state state)
{
    bool asked = op->state == STATE_UNKNOWN_OUTCOME && op->reason == REASON_NEEDS_OPERATOR;
    if (!asked || (state != STATE_COMPLETED_SUCCESS && state != STATE_FAILED_PERMANENT))
        return false;
    struct engine_decision decision = {
        .kind = DECISION_RESOLVE,
        .operation = op->id,
        .rev = op->rev,
        .happened = state == STATE_COMPLETED_SUCCESS,
        .external_id = state == STATE_COMPLETED_SUCCESS ? "eval" : NULL,
        .actor = "operator",
        .note = "as the scenario says",
    };
    engine_decide(world->engine, &decision, ignore, NULL);
    return true;
}

/* Lets the provider answer, and time pass where it must, until the operation is in the state. */
static bool reach(struct eval_world *world, const char *operation, enum state state, struct arena *arena,
                  const char **text)
{
    enum state now = STATE_PLANNED;
    set_aim(world, operation, state);
    for (int i = 0; i < REACH_STEPS; i++) {
        run(world, true);
        const struct operation *op = row_of(world, operation, arena);
        if (op && op->state == state)
            return true;
        now = op ? op->state : now;
        if (op && operator_resolves(world, op, state))
            continue;
        int64_t next = next_moment(world);
        if (!op || state_terminal(now) || !next)
            break;
        world->now_ms = next;
    }
    *text =
        arena_printf(arena, "after: the operation is %s and does not become %s", state_name(now), state_name(state));
    return false;
}

/* ---- calls ---- */

static bool resolve(const struct eval_reference *reference, const struct eval_result *earlier, const char **id,
                    struct arena *arena, const char **text)
{
    *id = reference->id;
    if (reference->call == 0)
        return true;
    *id = earlier[reference->call - 1].operation;
    if (**id)
        return true;
    *text = arena_printf(arena, "call %zu has no operation that could be named", reference->call);
    return false;
}

/* The call as a door would hand it over. */
static bool make_call(const struct eval_call *from, const struct eval_result *earlier, struct arena *arena,
                      struct call *out, const char **text)
{
    *out = (struct call){
        .tenant = from->tenant,
        .principal = from->principal,
        .arguments = from->arguments,
        .idempotency_key = from->idempotency_key,
        .workflow = from->workflow,
        .run = from->run,
        .step = from->step,
        .session = from->session,
        .call = from->call,
    };
    if (!resolve(&from->repeat_of, earlier, &out->repeat_of, arena, text))
        return false;
    for (size_t i = 0; i < from->distinct_count; i++)
        if (!resolve(&from->distinct_from[i], earlier, &out->distinct_from[out->distinct_count++], arena, text))
            return false;
    return true;
}

/* Identity by the rules themselves, for the reasons: engine replies tell of operations, not of calls. */
static void identify(struct eval_world *world, const struct call *call, struct arena *arena, struct eval_result *out)
{
    struct admission admission;
    struct identity_error why;
    struct err err = {0};
    struct str secret = {(const char *)world->ledger->secret, LEDGER_SECRET_BYTES};
    snprintf(out->op.id, sizeof out->op.id, "op_");
    out->identified =
        identity_derive(call, out->tool, secret, arena, &out->op, &admission, &out->effective, &why, &err) == ERR_NONE;
}

static const char *refusal_text(const struct engine_reply *reply, struct arena *arena)
{
    struct buf text;
    buf_init(&text, 0);
    for (size_t i = 0; reply->why && i < reply->why->error_count; i++) {
        const struct schema_error *error = &reply->why->errors[i];
        buf_printf(&text, "%s%s%s%s", i ? "; " : "", error->pointer, *error->pointer ? ": " : "", error->message);
    }
    const char *copy = arena_copy_text(arena, text.n ? text.p : reply->err->text);
    buf_release(&text);
    return copy;
}

static const char *conflict_text(const struct engine_reply *reply, struct arena *arena)
{
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(&text, "same key, other arguments");
    for (size_t i = 0; i < reply->differing_count; i++)
        buf_printf(&text, "%s %s", i ? "," : ":", reply->differing[i]);
    const char *copy = arena_copy_str(arena, buf_str(&text));
    buf_release(&text);
    return copy;
}

struct asked {
    struct eval_world *world;
    struct arena *arena;
    struct eval_result *out;
    bool answered;
};

static void keep_operation(struct asked *asked, const struct engine_reply *reply)
{
    struct eval_result *out = asked->out;
    const struct operation *op = reply->op;
    if (op) {
        memcpy(out->operation, op->id, sizeof out->operation);
        out->state = op->state;
        out->delivered = op->delivered;
        out->completed_ms = op->completed_ms ? op->completed_ms - START_MS : -1;
        out->key_version = op->key_version;
    } else if (reply->tombstone) {
        memcpy(out->operation, reply->tombstone->operation, sizeof out->operation);
        out->state = reply->tombstone->state;
        out->delivered = true;
        out->completed_ms = reply->tombstone->completed_ms - START_MS;
        out->key_version = reply->tombstone->key_version;
    }
}

static void keep_reply(void *user, const struct engine_reply *reply)
{
    struct asked *asked = user;
    struct eval_result *out = asked->out;
    asked->answered = true;
    if (reply->kind != REPLY_READ)
        keep_operation(asked, reply);
    switch (reply->kind) {
    case REPLY_OPERATION:
        out->answer = reply->replayed ? ANSWER_JOINED : ANSWER_OPENED;
        out->other_arguments = reply->other_arguments;
        break;
    case REPLY_EXPIRED: out->answer = ANSWER_JOINED; break;
    case REPLY_READ: out->answer = ANSWER_READ; break;
    case REPLY_CONFLICT:
        out->answer = ANSWER_CONFLICT;
        out->text = conflict_text(reply, asked->arena);
        break;
    case REPLY_NOT_SHARED:
        out->answer = ANSWER_NOT_SHARED;
        out->text = "the effect exists and belongs to another principal";
        break;
    case REPLY_HELD:
        out->answer = ANSWER_HELD;
        out->text = arena_printf(asked->arena, "an operation of this tool is %s: held until it is resolved",
                                 state_name(out->state));
        break;
    case REPLY_REFUSED:
        out->answer = ANSWER_REFUSED;
        out->text = refusal_text(reply, asked->arena);
        break;
    case REPLY_POLICY:
    case REPLY_REPEAT:
        out->answer = ANSWER_REFUSED;
        out->text = arena_copy_text(asked->arena, reply->err->text);
        break;
    case REPLY_NO_TOOL:
    case REPLY_PLAN:
    case REPLY_NOT_FOUND:
    case REPLY_STALE:
    case REPLY_IMPOSSIBLE:
    case REPLY_UNAVAILABLE:
        out->answer = ANSWER_BROKEN;
        out->text = arena_copy_text(asked->arena, reply->err->text);
        break;
    }
}

/* A caller that stays is modelled by an answer at admission, one that goes by an answer after no time: then the engine
 * marks the operation as orphaned. Either way the operation is known before the provider says a word. */
static void ask(struct eval_world *world, const struct eval_call *from, const struct call *call, struct asked *asked)
{
    bool read = !tool_is_write(asked->out->tool) && !asked->out->tool->audit;
    struct engine_call request = {.tool = from->tool,
                                  .call = *call,
                                  .async = !from->caller_gone && !read,
                                  .wait_ms = read ? ENGINE_WAIT_MS_MAX : 0};
    engine_call(world->engine, &request, keep_reply, asked);
    run(world, false);
    while (read && world->wires && !asked->answered) {
        answer_wire(world, &world->wires, OUTCOME_SUCCESS);
        run(world, false);
    }
    assert(asked->answered);
}

static void deliver(struct eval_world *world, const char *operation, struct arena *arena)
{
    const struct operation *op = row_of(world, operation, arena);
    if (!op || !state_terminal(op->state))
        return;
    engine_delivered(world->engine, op);
    run(world, true);
}

/* What the next call finds. */
static void leave_behind(struct eval_world *world, const struct eval_call *call, struct arena *arena,
                         struct eval_result *out)
{
    bool concerned = out->answer == ANSWER_OPENED || out->answer == ANSWER_JOINED;
    if (call->has_after && !concerned) {
        out->text = arena_printf(arena, "after: the call has no operation that could be %s: %s",
                                 state_name(call->after), out->text ? out->text : answer_words(out->answer));
        out->answer = ANSWER_BROKEN;
        return;
    }
    if ((call->has_after || out->answer == ANSWER_OPENED) &&
        !reach(world, out->operation, call->after, arena, &out->text)) {
        out->answer = ANSWER_BROKEN;
        return;
    }
    run(world, true);
    if (concerned && !call->caller_gone)
        deliver(world, out->operation, arena);
}

void eval_world_call(struct eval_world *world, const struct eval_call *from, const struct eval_result *earlier,
                     struct arena *arena, struct eval_result *out)
{
    struct call call;
    struct json *arguments = NULL;
    struct err err = {0};
    advance(world, START_MS + from->at_ms);
    *out = (struct eval_result){.call = from,
                                .tool = registry_find(world->registry, str_of(from->tool)),
                                .at_ms = world->now_ms - START_MS,
                                .completed_ms = -1,
                                .answer = ANSWER_BROKEN};
    if (!make_call(from, earlier, arena, &call, &out->text))
        return;
    if (from->arguments_text.p && json_parse(arena, from->arguments_text, &json_limits_default, &arguments, &err)) {
        out->answer = ANSWER_REFUSED; /* as a door would: nothing got as far as the engine */
        out->text = arena_printf(arena, "arguments: %s", err.text);
        return;
    }
    if (arguments)
        call.arguments = arguments;
    identify(world, &call, arena, out);
    struct asked asked = {world, arena, out, false};
    ask(world, from, &call, &asked);
    if (out->answer != ANSWER_BROKEN)
        leave_behind(world, from, arena, out);
}

/* ---- life ---- */

static void on_stopped(void *user)
{
    *(bool *)user = true;
}

void eval_world_begin(struct eval_world *world)
{
    world->now_ms = START_MS;
    world->seed = 42;
    world->wires = NULL;
    world->last_wire = &world->wires;
    world->aim_count = 0;
    world->stopped = false;
    world->ledger = ledger_memory_new(&world->env);
    struct engine_options options = {
        .env = &world->env,
        .ledger = world->ledger,
        .adapter = &world->adapter,
        .registry = world->registry,
        .sole_owner = true,
    };
    world->engine = engine_new(&options);
    engine_start(world->engine);
    run(world, false);
}

void eval_world_end(struct eval_world *world)
{
    engine_stop(world->engine, world->now_ms, on_stopped, &world->stopped);
    run(world, false);
    world->now_ms++;
    engine_tick(world->engine);
    while (world->wires)
        answer_wire(world, &world->wires, OUTCOME_TIMEOUT);
    run(world, false);
    assert(world->stopped);
    engine_free(world->engine);
    ledger_close(world->ledger);
    world->engine = NULL;
    world->ledger = NULL;
}

static void close_adapters(struct eval_world *world)
{
    if (world->http)
        http_adapter_close(world->http, NULL, NULL);
    if (world->hub)
        mcp_hub_close(world->hub, NULL, NULL);
    if (world->command)
        command_adapter_close(world->command, NULL, NULL);
    if (world->mail)
        mail_adapter_close(world->mail, NULL, NULL);
    if (world->sql)
        sql_adapter_close(world->sql, NULL, NULL);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    uv_loop_close(&world->loop);
}

static void never(void *user)
{
    (void)user;
}

static enum err_code open_adapters(struct eval_world *world, struct err *err)
{
    struct mcp_hub_options options = {.loop = &world->loop, .env = &world->env, .catalog_changed = never};
    enum err_code code = http_adapter_new(&world->loop, &world->http, err);
    if (!code)
        code = mcp_hub_new(&options, &world->hub, err);
    if (!code)
        code = mail_adapter_new(&world->loop, &world->mail, err);
    if (!code)
        code = sql_adapter_new(&world->loop, &world->sql, err);
    if (code)
        return code;
    adapter_route_init(&world->route);
    world->command = command_adapter_new(&world->loop);
    world->route.kinds[PROVIDER_HTTP] = world->http;
    world->route.kinds[PROVIDER_COMMAND] = world->command;
    world->route.kinds[PROVIDER_MAIL] = world->mail;
    world->route.kinds[PROVIDER_SQL] = world->sql;
    world->route.kinds[PROVIDER_MCP] = mcp_hub_adapter(world->hub);
    return ERR_NONE;
}

enum err_code eval_world_new(struct registry *registry, struct eval_world **out, struct err *err)
{
    struct eval_world *world = mem_zero(sizeof *world);
    if (uv_loop_init(&world->loop) != 0) {
        free(world);
        return err_set(err, ERR_IO, "no event loop for the adapters");
    }
    world->env = (struct env){world_now, world_random};
    enum err_code code = open_adapters(world, err);
    if (code) {
        close_adapters(world);
        free(world);
        return code;
    }
    world->adapter.ops = &world_ops;
    world->registry = registry_ref(registry);
    *out = world;
    return ERR_NONE;
}

void eval_world_free(struct eval_world *world)
{
    if (!world)
        return;
    close_adapters(world);
    registry_unref(world->registry);
    free(world);
}
