/* Agents. One client per intent: it calls until it is told how the effect ended, or gives up.
 *
 *   plan: tool · arguments · what makes its calls the same call (design 2.2) · relation to an earlier intent
 *
 *   call ─► told of the end ─────────────► done, or the same call once more, or corrected arguments after a refusal
 *     ├───► not yet (202, waited out) ───► asks for the operation, or calls again, elsewhere too
 *     ├───► conflict, held, … ───────────► goes back to its arguments, says distinct_from, or gives up
 *     └───► leaves, connection breaks ───► calls again
 *
 * Which calls are one intent follows design 2: every call of a client is meant as the same effect, and another client's
 * as another one: done again on purpose (repeat_of), another tenant's, or a keyless call that a model has rewritten,
 * which nothing but the in-doubt guard can tell from another intent. */
#include "base/mem.h"
#include "sim/outside.h"

#include <stdio.h>
#include <stdlib.h>

#define CALLS_MAX           24     /* then it gives up; the numbers in traces stay below 64 */
#define STARTS_MAX          400    /* looks for a gateway or for its partner */
#define PARTNER_WAIT_MS     250    /* until it has heard of its partner … */
#define GATEWAY_WAIT_MS     300    /* … or that a gateway is up */
#define LATE_RETURN_MS      300000 /* a client comes back after retention, if that is not longer */
#define ROLLS_PER_CALL      48
#define TENANTS             2
#define PRINCIPALS          3
#define REGISTRY_TOOLS_SEEN 32 /* of the simulator's own */

enum mode { /* what makes two calls of this client the same call */
            MODE_READ,
            MODE_CALLER,   /* the caller's key */
            MODE_BUSINESS, /* the tool's key over the arguments */
            MODE_STEP,     /* run and step */
            MODE_CALL,     /* session and call id */
            MODE_REPEAT    /* nothing: same principal, same arguments */
};

enum relation {
    RELATION_NONE,
    RELATION_AGAIN,        /* once more on purpose what the partner has done */
    RELATION_OTHER_TENANT, /* all the same, for somebody else */
    RELATION_REWRITE       /* the partner's keyless call in other words, while that is unresolved */
};

struct agent_call {
    struct agent_call *next, **at; /* all that are out */
    struct sim *sim;
    struct client *client;
    struct gateway *gateway;
    struct waiter *waiter; /* NULL: not given to the engine yet, or answered */
    struct arena arena;
    struct caller caller;
    struct engine_call request;
    struct sim_event deliver, leave;
    bool given, answered, left, dead;
    bool inside; /* engine_call has not returned yet */
    bool hears;  /* the answer reaches the client */
};

struct client {
    uint32_t n;
    const struct tool *tool;
    uint64_t arguments_n;
    enum mode mode;
    enum relation relation;
    struct client *partner;
    unsigned tenant, principal, rewrite;
    bool has_run, has_session, done, told, repeated_by_another, done_by_another, may_be_asked;
    unsigned out, starts, conflicts;
    uint32_t calls;
    int64_t not_before_ms;
    char key[24], run[24], step[24], session[24], call[24], repeat_of[OPERATION_ID_SIZE];
    char operation[OPERATION_ID_SIZE]; /* as told, "" = not known */
    enum state state;
    char distinct[ADMISSION_DISTINCT_MAX][OPERATION_ID_SIZE];
    size_t distinct_count;
    struct sim_event turn;
    struct client *waiting;      /* those that wait for news of it … */
    struct client *next_waiting; /* … or for a gateway */
    bool waits;
};

struct sim_clients {
    struct client *clients; /* 1 … count */
    uint32_t count, open;
    struct agent_call *calls, *spare;
    size_t out;
    struct client *without_gateway;
};

static const char *const tenants[TENANTS] = {"acme", "zeta"};
static const char *const principals[PRINCIPALS] = {"agent-a", "agent-b", "agent-c"};

uint32_t intent_of_trace(const char *trace)
{
    if (!trace || strncmp(trace, "sim-", 4) != 0)
        return 0;
    return (uint32_t)strtoul(trace + 4, NULL, 10);
}

static void say(struct sim *sim, const struct client *client, const char *text)
{
    char who[24];
    if (!sim_traced(sim))
        return;
    snprintf(who, sizeof who, "client %u", client->n);
    sim_say(sim, who, "%s", text);
}

/* ---- plans ---- */

/* Numbers are written by hand: each call has some. */
static char *put_number(char *at, uint32_t n)
{
    char digits[10];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static void name(char *out, const char *before, uint32_t n)
{
    size_t length = strlen(before);
    memcpy(out, before, length);
    *put_number(out + length, n) = '\0';
}

static enum mode mode_of(const struct tool *tool, struct dice *dice)
{
    uint64_t how = roll(dice, 12);
    if (tool->class == CLASS_READ)
        return MODE_READ;
    if (tool->identity == IDENTITY_CALLER)
        return MODE_CALLER;
    if (tool->key)
        return how < 3 ? MODE_CALLER : MODE_BUSINESS;
    return how < 3 ? MODE_CALLER : how < 6 ? MODE_STEP : how < 8 ? MODE_CALL : MODE_REPEAT;
}

/* Tools of guard mode by dice of their own: leaving them out leaves all others' calls as they were. */
static const struct tool *choose_tool(struct sim *sim, uint32_t n, struct dice *dice)
{
    const struct tool *plain[REGISTRY_TOOLS_SEEN], *guarded[SIM_GUARDED_MAX];
    size_t plain_count = 0, guarded_count = 0, count = registry_tool_count(sim->registry);
    struct dice own = dice_of(sim, STREAM(STREAM_INTENT, 0x4000000 | n));
    if (sim->options->registry)
        return registry_tool_at(sim->registry, (size_t)roll(dice, count));
    for (size_t i = 0; i < count; i++) {
        const struct tool *tool = registry_tool_at(sim->registry, i);
        if (tool->guard_lease_ms > 0)
            guarded[guarded_count++] = tool;
        else
            plain[plain_count++] = tool;
    }
    size_t at = (size_t)roll(dice, plain_count);
    if (guarded_count > 0 && roll(&own, 8) == 0)
        return guarded[roll(&own, guarded_count)];
    return plain[at];
}

static void relate(struct client *client, struct client *partner, uint64_t how)
{
    bool writes = partner->mode != MODE_READ;
    if (how == 0 && writes && !partner->repeated_by_another) {
        client->relation = RELATION_AGAIN;
        partner->repeated_by_another = true;
    } else if (how == 1 && writes && partner->relation == RELATION_NONE && !partner->done_by_another) {
        client->relation = RELATION_OTHER_TENANT;
        partner->done_by_another = true;
    } else if (how == 2 && partner->mode == MODE_REPEAT && partner->relation == RELATION_NONE) {
        client->relation = RELATION_REWRITE;
    } else {
        return;
    }
    client->partner = partner;
    client->tool = partner->tool;
    client->mode = partner->mode;
    client->tenant = partner->tenant;
    client->principal = partner->principal;
    client->has_run = partner->has_run;
    client->has_session = partner->has_session;
    memcpy(client->key, partner->key, sizeof client->key);
    memcpy(client->run, partner->run, sizeof client->run);
    memcpy(client->step, partner->step, sizeof client->step);
    memcpy(client->session, partner->session, sizeof client->session);
    memcpy(client->call, partner->call, sizeof client->call);
    client->rewrite = partner->rewrite;
    if (client->relation != RELATION_REWRITE)
        client->arguments_n = partner->arguments_n;
    if (client->relation == RELATION_OTHER_TENANT)
        client->tenant = (client->tenant + 1) % TENANTS;
}

static void plan(struct sim *sim, struct client *client)
{
    struct dice roll_of = dice_of(sim, STREAM(STREAM_INTENT, client->n)), *dice = &roll_of;
    uint32_t n = client->n;
    client->tool = choose_tool(sim, n, dice);
    client->arguments_n = n;
    client->mode = mode_of(client->tool, dice);
    client->tenant = roll(dice, 4) == 0;
    client->principal = (unsigned)roll(dice, PRINCIPALS);
    client->has_run = client->mode == MODE_STEP || roll(dice, 2) == 0;
    client->has_session = roll(dice, 2) == 0;
    name(client->key, "k-", n);
    name(client->run, "run-", (n + 3) / 4); /* shared by neighbours: the scope of 2.9 */
    name(client->step, "step-", n);
    name(client->session, "s-", (n + 2) / 3);
    name(client->call, "c-", n);
    uint64_t how = roll(dice, 10), back = roll(dice, 6);
    if (n > back + 1)
        relate(client, &sim->clients->clients[n - 1 - back], how);
    client->not_before_ms = roll(dice, 15) == 0 ? sim->now_ms + roll_between(dice, 0, 60000) : 0;
}

/* ---- waiting ---- */

static void again_in(struct sim *sim, struct client *client, int64_t ms)
{
    if (!client->done && !client->turn.place)
        schedule_in(sim, &client->turn, ms);
}

static void wait_in(struct client **list, struct client *client)
{
    if (client->waits)
        return;
    client->waits = true;
    client->next_waiting = *list;
    *list = client;
}

/* Each at a moment of its own. */
static void wake_all(struct sim *sim, struct client **list, uint32_t within_ms)
{
    struct client *next;
    for (struct client *client = *list; client; client = next) {
        next = client->next_waiting;
        client->waits = false;
        again_in(sim, client, 1 + client->n * 37 % within_ms);
    }
    *list = NULL;
}

static void tell_the_related(struct sim *sim, struct client *client)
{
    wake_all(sim, &client->waiting, PARTNER_WAIT_MS);
}

void clients_gateway_up(struct sim *sim)
{
    if (sim->clients)
        wake_all(sim, &sim->clients->without_gateway, GATEWAY_WAIT_MS);
}

/* ---- ends ---- */

static void give_up(struct sim *sim, struct client *client, const char *why)
{
    if (client->done)
        return;
    say(sim, client, why);
    client->done = true;
    client->may_be_asked = true;
    schedule_drop(sim, &client->turn);
    sim->clients->open--;
    tell_the_related(sim, client);
}

static void call_free(struct agent_call *call)
{
    struct sim *sim = call->sim;
    schedule_drop(sim, &call->deliver);
    schedule_drop(sim, &call->leave);
    *call->at = call->next;
    if (call->next)
        call->next->at = call->at;
    call->client->out--;
    sim->clients->out--;
    call->next = sim->clients->spare;
    sim->clients->spare = call;
}

static struct agent_call *call_new(struct sim_clients *clients)
{
    struct agent_call *call = clients->spare;
    if (!call)
        return mem_zero(sizeof *call);
    struct arena arena = call->arena; /* what it has grown to is kept */
    clients->spare = call->next;
    arena_reset(&arena);
    *call = (struct agent_call){.arena = arena};
    return call;
}

/* ---- what an answer means to the client ---- */

static struct dice call_dice(struct sim *sim, const struct client *client, unsigned part)
{
    struct dice dice = dice_of(sim, STREAM(STREAM_INTENT, client->n));
    dice.index = (client->calls + 1) * ROLLS_PER_CALL + part;
    return dice;
}

/* Whether its calls stay the same call with other arguments. */
static bool can_be_rewritten(const struct client *client)
{
    bool per_arguments = client->mode == MODE_STEP && client->tool->step_identity == STEP_PER_ARGUMENTS;
    return client->mode != MODE_READ && client->mode != MODE_REPEAT && !per_arguments;
}

/* How long the row of what has ended now is kept at least (docs/registry-reference.md, `retain`). */
static int64_t kept_ms(const struct tool *tool)
{
    int64_t window = tool->repeat_window_ms, repeats = window + (window < 600000 ? window : 600000);
    return tool->retain_ms > repeats ? tool->retain_ms : repeats;
}

static void told_the_end(struct sim *sim, struct client *client, struct dice *dice)
{
    bool nothing = client->state == STATE_FAILED_PERMANENT || client->state == STATE_REJECTED;
    bool corrects = roll_fault(dice, SIM_CLIENT_REWRITE, 500), repeats = roll_fault(dice, SIM_CLIENT_RETRY, 30);
    bool returns = roll_fault(dice, SIM_RETENTION, 40); /* long after: what it did is a tombstone by then */
    int64_t later = roll_between(dice, 1, 20000), kept = kept_ms(client->tool);
    bool keyless = client->mode == MODE_REPEAT, once = keyless && client->tool->repeat_window_ms == 0;
    client->told = true;
    tell_the_related(sim, client);
    if (client->calls >= CALLS_MAX) {
        give_up(sim, client, "has heard enough");
    } else if (nothing && corrects && can_be_rewritten(client) && client->relation != RELATION_AGAIN) {
        client->rewrite = client->rewrite % 3 + 1; /* 2.7: a model that corrects a refused argument gets through */
        client->operation[0] = '\0';
        client->told = false;
        again_in(sim, client, later);
    } else if (returns && !keyless && kept <= LATE_RETURN_MS) {
        client->operation[0] = '\0'; /* it calls, it does not ask */
        again_in(sim, client, kept + later);
    } else if (repeats && !once) {
        again_in(sim, client, later);
    } else {
        give_up(sim, client, "is done");
    }
}

static void told_of_operation(struct sim *sim, struct client *client, const struct operation *op, struct dice *dice)
{
    int64_t later = roll_between(dice, 50, 8000);
    memcpy(client->operation, op->id, sizeof client->operation);
    client->state = op->state;
    if (state_terminal(op->state)) {
        told_the_end(sim, client, dice);
        return;
    }
    client->may_be_asked = true;
    tell_the_related(sim, client);
    if (client->calls >= CALLS_MAX)
        give_up(sim, client, "gives up");
    else
        again_in(sim, client, op->reason == REASON_NEEDS_OPERATOR ? later * 4 : later);
}

static void held(struct sim *sim, struct client *client, const struct engine_reply *reply, struct dice *dice)
{
    uint64_t how = roll(dice, 4);
    int64_t later = roll_between(dice, 100, 8000);
    if (client->relation == RELATION_REWRITE && how < 2) {
        give_up(sim, client, "was the held call in other words: leaves it at that");
        return;
    }
    if (how != 0 && reply->op && client->distinct_count < ADMISSION_DISTINCT_MAX)
        memcpy(client->distinct[client->distinct_count++], reply->op->id, OPERATION_ID_SIZE);
    again_in(sim, client, later);
}

/* 2.7: somebody (an earlier call of its own) has the key with other arguments: goes over to those. */
static void conflicting(struct sim *sim, struct client *client)
{
    if (client->conflicts++ > 4) {
        give_up(sim, client, "is at odds with itself");
        return;
    }
    client->rewrite = (client->rewrite + 1) % 4;
    again_in(sim, client, 500);
}

static void hear(struct sim *sim, struct client *client, const struct engine_reply *reply)
{
    struct dice dice = call_dice(sim, client, 24);
    int64_t later = roll_between(&dice, 200, 6000);
    if (client->done)
        return;
    switch (reply->kind) {
    case REPLY_OPERATION: told_of_operation(sim, client, reply->op, &dice); return;
    case REPLY_HELD: held(sim, client, reply, &dice); break;
    case REPLY_CONFLICT: conflicting(sim, client); break;
    case REPLY_REPEAT:
        if (!reply->op)
            give_up(sim, client, "may not do it again");
        break;
    case REPLY_PLAN:
    case REPLY_NO_TOOL:
    case REPLY_UNAVAILABLE: break;
    case REPLY_POLICY: break; /* it may pass later */
    case REPLY_READ:
    case REPLY_REFUSED:
    case REPLY_NOT_SHARED:
    case REPLY_EXPIRED:
    case REPLY_NOT_FOUND:
    case REPLY_STALE:
    case REPLY_IMPOSSIBLE: give_up(sim, client, "is answered for good"); return;
    }
    if (client->calls >= CALLS_MAX)
        give_up(sim, client, "gives up");
    else
        again_in(sim, client, later);
}

static void say_reply(struct sim *sim, const struct agent_call *call, const struct engine_reply *reply)
{
    static const char *const kinds[] = {"operation",      "read",       "plan",  "no tool",    "refused",
                                        "conflict",       "not shared", "held",  "expired",    "policy",
                                        "repeat refused", "not found",  "stale", "impossible", "unavailable"};
    _Static_assert(sizeof kinds / sizeof *kinds == REPLY_UNAVAILABLE + 1, "a name for each");
    char text[160];
    snprintf(text, sizeof text, "call %u is told: %s%s%s%s%s%s", call->caller.call, kinds[reply->kind],
             reply->op ? " " : "", reply->op ? reply->op->id : "", reply->op ? " " : "",
             reply->op ? state_name(reply->op->state) : "", call->hears && !call->left ? "" : " (nobody hears it)");
    say(sim, call->client, text);
}

/* Everything that the engine says is judged; what the client hears of it is another matter. */
static void answered(void *user, const struct engine_reply *reply)
{
    struct agent_call *call = user;
    struct sim *sim = call->sim;
    struct client *client = call->client;
    call->waiter = NULL;
    call->answered = true;
    if (!call->dead) {
        if (sim_traced(sim))
            say_reply(sim, call, reply);
        checker_reply(sim, &call->caller, reply);
        bool heard = call->hears && !call->left;
        bool written = heard && reply->kind == REPLY_OPERATION && state_terminal(reply->op->state);
        if (written)
            engine_delivered(gateway_engine(call->gateway), reply->op);
        if (heard && reply->lease)
            executors_told(sim, client->n, call->caller.tenant, call->caller.principal, reply);
        if (heard && call->caller.asked != ASKED_OTHER)
            hear(sim, client, reply);
        else
            again_in(sim, client, 300);
    }
    if (!call->inside)
        call_free(call);
}

/* ---- calls ---- */

/* "sim-<intent>-<call>" */
static const char *trace_of(struct agent_call *call)
{
    char *text = arena_alloc(&call->arena, sizeof "sim--" + 20);
    char *at = stpcpy(text, "sim-");
    at = put_number(at, call->client->n);
    *at++ = '-';
    at = put_number(at, call->caller.call);
    *at = '\0';
    return text;
}

/* One of its two processes, or one that can not tell itself apart. */
static void fill_begin(struct agent_call *call, uint64_t process)
{
    static const char *const processes[] = {"process 1", "process 2", NULL};
    call->request.begins = !call->request.dry_run;
    call->request.executor = processes[process];
    call->request.async = false;
    call->request.call.not_before_ms = 0;
}

static void fill_request(struct agent_call *call)
{
    struct sim *sim = call->sim;
    struct client *client = call->client;
    struct dice dice = call_dice(sim, client, 0);
    unsigned variant = (unsigned)roll(&dice, 6);
    uint64_t random = roll(&dice, UINT32_MAX);
    bool other_run = roll(&dice, 3) == 0, other_session = roll(&dice, 6) == 0, other_person = roll(&dice, 8) == 0;
    bool async = roll(&dice, 8) == 0, plans = roll(&dice, 16) == 0;
    uint64_t waits = roll(&dice, 4);
    int64_t some = roll_between(&dice, 1, 30000);
    uint64_t process = roll(&dice, 3);
    bool own_key = client->mode == MODE_CALLER, business = client->mode == MODE_BUSINESS;
    bool first = client->calls == 1;
    const struct json *arguments =
        tools_arguments(sim, client->tool, client->arguments_n, variant, client->rewrite, random, &call->arena);
    if (!arguments) /* this tool's calls can not be rewritten: as they were */
        arguments = tools_arguments(sim, client->tool, client->arguments_n, variant, 0, random, &call->arena);
    struct call *out = &call->request.call;
    call->request.tool = client->tool->name;
    call->request.async = async;
    call->request.dry_run = plans && client->mode != MODE_READ;
    call->request.wait_ms = waits == 0 ? 0 : waits == 1 ? some : -1;
    if (call->request.dry_run)
        call->caller.asked = ASKED_PLAN;
    out->tenant = tenants[client->tenant];
    /* A step or a key may go from hand to hand; call ids and keyless calls are one principal's own. */
    unsigned principal = client->principal + (other_person && (own_key || business || client->mode == MODE_STEP));
    out->principal = principals[principal % PRINCIPALS];
    out->arguments = arguments;
    out->trace = trace_of(call);
    out->not_before_ms = first ? client->not_before_ms : 0;
    if (client->tool->guard_lease_ms > 0)
        fill_begin(call, process);
    if (own_key)
        out->idempotency_key = client->key;
    if (client->has_run && !((own_key || business) && other_run))
        out->run = client->run;
    if (client->has_run && client->mode == MODE_STEP)
        out->step = client->step;
    if (client->has_session)
        out->session = other_session && client->mode != MODE_CALL ? "s-new" : client->session;
    if (client->mode == MODE_CALL)
        out->call = client->call;
    if (client->relation == RELATION_AGAIN)
        out->repeat_of = client->repeat_of;
    for (size_t i = 0; i < client->distinct_count; i++)
        out->distinct_from[i] = client->distinct[i];
    out->distinct_count = client->distinct_count;
    call->caller.tenant = out->tenant;
    call->caller.principal = out->principal;
    call->caller.distinct_from = out->distinct_from;
    call->caller.distinct_count = out->distinct_count;
}

static void fill_wait(struct agent_call *call, bool as_somebody_else)
{
    struct client *client = call->client;
    call->caller.asked = as_somebody_else ? ASKED_OTHER : ASKED_WAIT;
    call->caller.tenant = tenants[(client->tenant + as_somebody_else) % TENANTS];
    call->caller.principal = principals[client->principal];
    call->caller.waited_for = arena_copy_text(&call->arena, client->operation);
}

static void hand_over(struct agent_call *call)
{
    struct engine *engine = gateway_engine(call->gateway);
    struct gateway *gateway = call->gateway;
    struct waiter *waiter;
    call->given = call->inside = true;
    if (call->caller.asked == ASKED_WAIT || call->caller.asked == ASKED_OTHER)
        waiter =
            engine_wait(engine, call->caller.tenant, call->caller.waited_for, call->request.wait_ms, answered, call);
    else
        waiter = engine_call(engine, &call->request, answered, call);
    call->inside = false;
    if (call->answered) {
        call_free(call);
    } else {
        call->waiter = waiter;
        if (call->left) { /* it hung up while the gateway stood still */
            engine_caller_left(engine, waiter);
            call_free(call);
        }
    }
    gateway_moved(gateway);
}

static void run_deliver(struct sim *sim, struct sim_event *event)
{
    struct agent_call *call = (struct agent_call *)((char *)event - offsetof(struct agent_call, deliver));
    int64_t until = gateway_paused_until(call->gateway);
    if (sim->now_ms < until)
        schedule_at(sim, event, until);
    else
        hand_over(call);
}

static void run_leave(struct sim *sim, struct sim_event *event)
{
    struct agent_call *call = (struct agent_call *)((char *)event - offsetof(struct agent_call, leave));
    int64_t until = gateway_paused_until(call->gateway);
    if (!call->left) {
        call->left = true;
        call->client->may_be_asked = true;
        tell_the_related(sim, call->client);
        say(sim, call->client, "leaves");
        again_in(sim, call->client, 200);
    }
    if (sim->now_ms < until) { /* a gateway that stands still does not notice yet */
        schedule_at(sim, event, until);
        return;
    }
    if (!call->given)
        return; /* run_deliver ends it */
    struct gateway *gateway = call->gateway;
    engine_caller_left(gateway_engine(gateway), call->waiter);
    call_free(call);
    gateway_moved(gateway);
}

static struct gateway *some_gateway(struct sim *sim, uint64_t from)
{
    for (unsigned i = 0; i < sim->options->gateways; i++) {
        struct gateway *gateway = sim->gateways[(from + i) % sim->options->gateways];
        if (gateway_engine(gateway))
            return gateway;
    }
    return NULL;
}

static bool make_call(struct sim *sim, struct client *client, bool second)
{
    struct dice dice = call_dice(sim, client, 12);
    uint64_t from = roll(&dice, SIM_GATEWAYS_MAX);
    bool asks = roll(&dice, 2) == 0 && client->operation[0] && client->relation != RELATION_AGAIN;
    bool spies = roll(&dice, 12) == 0 && client->operation[0];
    int64_t way = roll_between(&dice, 0, 5), stays = roll_between(&dice, 1, 15000);
    bool leaves = roll_fault(&dice, SIM_CLIENT_RETRY, 60), unheard = roll_fault(&dice, SIM_CLIENT_RETRY, 30);
    struct gateway *gateway = some_gateway(sim, from);
    if (!gateway)
        return false;
    struct sim_clients *clients = sim->clients;
    struct agent_call *call = call_new(clients);
    call->sim = sim;
    call->client = client;
    call->gateway = gateway;
    call->hears = !unheard;
    call->deliver.run = run_deliver;
    call->leave.run = run_leave;
    call->next = clients->calls;
    call->at = &clients->calls;
    if (call->next)
        call->next->at = &call->next;
    clients->calls = call;
    client->calls++;
    client->out++;
    clients->out++;
    sim->result->calls++;
    call->caller = (struct caller){
        .intent = client->n,
        .call = client->calls,
        .asked = ASKED_CALL,
        .tool = client->tool->name,
        .gateway = gateway_number(gateway),
        .asked_ms = sim->now_ms,
        .is_read = client->mode == MODE_READ,
    };
    fill_request(call);
    if ((asks || spies) && !second)
        fill_wait(call, spies);
    if (sim_traced(sim)) {
        char text[200];
        static const char *const what[] = {"calls", "asks what would happen", "asks for its operation",
                                           "asks for another tenant's operation"};
        snprintf(text, sizeof text, "call %u to %s: %s%s%s%s%s", client->calls, gateway_name(gateway),
                 what[call->caller.asked], call->request.call.repeat_of ? ", again on purpose" : "",
                 client->rewrite ? ", rewritten" : "", call->request.async ? ", async" : "",
                 second ? ", twice at once" : "");
        say(sim, client, text);
    }
    if (leaves)
        schedule_in(sim, &call->leave, way + stays);
    schedule_in(sim, &call->deliver, way);
    return true;
}

/* ---- turns ---- */

/* Whether a related client has what it needs from its partner. */
static bool may_start(struct sim *sim, struct client *client)
{
    struct client *partner = client->partner;
    if (client->calls > 0)
        return true;
    switch (client->relation) {
    case RELATION_NONE:
    case RELATION_OTHER_TENANT: return true;
    case RELATION_AGAIN:
        if (partner->told && partner->operation[0] && state_terminal(partner->state)) {
            memcpy(client->repeat_of, partner->operation, sizeof client->repeat_of);
            client->rewrite = partner->rewrite;
            return true;
        }
        if (partner->done)
            give_up(sim, client, "has nothing to repeat");
        break;
    case RELATION_REWRITE:
        if (partner->may_be_asked && !partner->told)
            return true;
        if (partner->done)
            give_up(sim, client, "has nothing to rewrite");
        break;
    }
    if (!client->done)
        wait_in(&partner->waiting, client);
    return false;
}

static bool left_out(const struct sim_options *options, uint32_t n)
{
    size_t low = 0, high = options->intents_left_out_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (options->intents_left_out[middle] < n)
            low = middle + 1;
        else
            high = middle;
    }
    return low < options->intents_left_out_count && options->intents_left_out[low] == n;
}

static void run_turn(struct sim *sim, struct sim_event *event)
{
    struct client *client = (struct client *)((char *)event - offsetof(struct client, turn));
    if (sim->over || client->starts++ > STARTS_MAX || client->calls >= CALLS_MAX) {
        give_up(sim, client, "gives up");
        return;
    }
    if (!may_start(sim, client))
        return;
    struct dice dice = call_dice(sim, client, 20);
    bool rewrites = roll_fault(&dice, SIM_CLIENT_REWRITE, 80), twice = roll_fault(&dice, SIM_CLIENT_RETRY, 25);
    if (client->calls > 0 && rewrites && can_be_rewritten(client))
        client->rewrite = (client->rewrite + 1) % 4; /* 2.7: the key stays, the arguments do not */
    bool made = make_call(sim, client, false);
    if (made && twice)
        make_call(sim, client, true);
    if (!made)
        wait_in(&sim->clients->without_gateway, client);
}

void clients_gateway_died(struct sim *sim, struct gateway *gateway)
{
    struct agent_call *next;
    checker_gateway_died(sim, gateway_number(gateway));
    for (struct agent_call *call = sim->clients->calls; call; call = next) {
        next = call->next;
        if (call->gateway != gateway || call->dead)
            continue;
        call->dead = true; /* the engine's last word on it is ignored */
        call->client->may_be_asked = true;
        tell_the_related(sim, call->client);
        schedule_drop(sim, &call->deliver);
        schedule_drop(sim, &call->leave);
        again_in(sim, call->client, 200);
        if (!call->given)
            call_free(call);
    }
}

/* ---- the whole ---- */

struct sim_clients *clients_new(struct sim *sim)
{
    static const int64_t paces[] = {5, 40, 300};
    struct sim_clients *clients = mem_zero(sizeof *clients);
    struct dice dice = dice_of(sim, STREAM(STREAM_WORLD, 2));
    int64_t pace = paces[roll(&dice, 3)];
    sim->clients = clients;
    clients->count = sim->options->intents;
    clients->clients = mem_zero((clients->count + 1) * sizeof *clients->clients);
    for (uint32_t n = 1; n <= clients->count; n++) {
        struct client *client = &clients->clients[n];
        client->n = n;
        client->turn.run = run_turn;
        plan(sim, client);
        client->done = registry_tool_count(sim->registry) == 0 || left_out(sim->options, n);
        if (client->done)
            continue;
        clients->open++;
        schedule_in(sim, &client->turn, pace * n + roll_between(&dice, 0, 4 * pace));
    }
    return clients;
}

void clients_free(struct sim_clients *clients)
{
    if (!clients)
        return;
    while (clients->calls)
        call_free(clients->calls);
    while (clients->spare) {
        struct agent_call *call = clients->spare;
        clients->spare = call->next;
        arena_release(&call->arena);
        free(call);
    }
    free(clients->clients);
    free(clients);
}

bool clients_done(const struct sim *sim)
{
    return sim->clients->open == 0 && sim->clients->out == 0;
}
