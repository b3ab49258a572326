#include "checker_history.h"
#include "support/world.h"

#include <stdio.h>

const char *const incarnations[] = {"", "gw_one", "gw_two"};

static int64_t fix_now(struct env *env)
{
    return ((struct fix *)((char *)env - offsetof(struct fix, env)))->sim.now_ms;
}

static void fix_random(struct env *env, void *out, size_t n)
{
    struct fix *fix = (struct fix *)((char *)env - offsetof(struct fix, env));
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = ++fix->random;
}

int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    struct err err = {0};
    world_provider(&fix.provider);
    world_provider(&fix.keyed_provider);
    fix.provider.key_honoured = false;
    world_tool(&fix.weak, "mail", CLASS_EXTERNAL_WEAK, &fix.provider);
    world_tool(&fix.keyed, "pay", CLASS_EXTERNAL_IDEMPOTENT, &fix.keyed_provider);
    world_tool(&fix.read, "look", CLASS_READ, &fix.provider);
    const struct tool *tools[] = {&fix.keyed, &fix.read, &fix.weak};
    assert_int_equal(registry_new(tools, 3, NULL, 0, "policy", NULL, NULL, &fix.registry, &err), 0);
    fix.options = (struct sim_options){.seed = 1, .gateways = 2, .intents = 20, .registry = fix.registry};
    fix.env = (struct env){fix_now, fix_random};
    fix.sim = (struct sim){.options = &fix.options, .result = &fix.result, .now_ms = NOW};
    fix.sim.tools = tools_new(&fix.sim);
    fix.sim.backing = ledger_memory_new(&fix.env);
    fix.options.registry = NULL; /* from here on as with the simulator's own tools */
    fix.sim.checker = checker_new(&fix.sim);
    arena_init(&fix.arena);
    *state = &fix;
    return 0;
}

int teardown(void **state)
{
    struct fix *fix = *state;
    checker_free(fix->sim.checker);
    ledger_close(fix->sim.backing);
    tools_free(fix->sim.tools);
    registry_unref(fix->registry);
    arena_release(&fix->arena);
    return 0;
}

/* ---- histories ---- */

void expect(struct fix *fix, const char *rule)
{
    if (!fix->result.violated)
        fail_msg("the checker saw nothing wrong, expected a breach of %s", rule);
    if (strncmp(fix->result.violation, rule, strlen(rule)) != 0)
        fail_msg("expected a breach of %s, got: %s", rule, fix->result.violation);
}

void expect_nothing(struct fix *fix)
{
    if (fix->result.violated)
        fail_msg("%s", fix->result.violation);
}

void tell(struct fix *fix, unsigned gateway, struct ledger_request *request, bool kept)
{
    request->arena = &fix->arena;
    if (kept)
        assert_int_equal(ledger_call(fix->sim.backing, request), 0);
    check_committed(fix->sim.checker, gateway, request);
}

struct operation *make(struct fix *fix, const char *tool, uint32_t intent, unsigned call)
{
    size_t n = fix->op_count++;
    struct operation *op = &fix->ops[n];
    *op = (struct operation){
        .tenant = "acme",
        .tool = tool,
        .principal = "agent",
        .key = arena_printf(&fix->arena, "k%u", intent),
        .key_source = KEY_SOURCE_CALLER,
        .key_version = 1,
        .policy_version = "policy",
        .trace = arena_printf(&fix->arena, "sim-%u-%u", intent, call),
        .provider_key = arena_printf(&fix->arena, "pk%zu", n),
        .arguments = STR("{}"),
        .created_ms = NOW,
        .updated_ms = NOW,
        .state = STATE_PENDING_DISPATCH,
        .rev = 1,
        .wake_at_ms = NOW,
    };
    snprintf(op->id, sizeof op->id, "op_01MCC5RM00D6J0D89EBFQAC%03zu", n);
    op->key_hash = op->base_hash = digest_sha256(str_of(op->key));
    op->fingerprint = digest_sha256(str_of(op->key));
    return op;
}

void admit_as(struct fix *fix, unsigned gateway, struct operation *op, bool kept)
{
    struct ledger_request request = {.command = LEDGER_ADMIT};
    request.admit.admission.op = op;
    request.admit.event = (struct event){.at_ms = NOW, .cause = CAUSE_ADMITTED, .from = op->state, .to = op->state};
    tell(fix, gateway, &request, kept);
}

struct operation *admit(struct fix *fix, const char *tool, uint32_t intent, unsigned call)
{
    struct operation *op = make(fix, tool, intent, call);
    admit_as(fix, 1, op, true);
    return op;
}

static size_t index_of(struct fix *fix, const struct operation *op)
{
    return (size_t)(op - fix->ops);
}

struct change change_to(struct operation *op, enum state to, enum cause cause)
{
    struct change change = {.op = *op, .request = {.command = LEDGER_TRANSITION}};
    change.op.state = to;
    change.op.rev++;
    bool ended = state_terminal(to);
    change.op.completed_ms = ended ? NOW : 0;
    change.op.retain_until_ms = ended ? NOW + 1000000000 : 0;
    change.op.owner = NULL;
    change.op.lease_until_ms = 0;
    change.op.wake_at_ms = ended ? NOW + 60000 : NOW;
    change.request.transition.events[0] = (struct event){.at_ms = NOW, .cause = cause, .from = op->state, .to = to};
    change.request.transition.events[0].actor = cause == CAUSE_OPERATOR ? "ann" : NULL;
    change.request.transition.event_count = 1;
    return change;
}

void write_change(struct fix *fix, unsigned gateway, struct operation *op, struct change *change, bool kept)
{
    change->request.transition.op = &change->op;
    if (op->owner && strcmp(op->owner, incarnations[gateway]) == 0)
        change->request.transition.fence = incarnations[gateway];
    tell(fix, gateway, &change->request, kept);
    *op = change->op;
}

void move(struct fix *fix, struct operation *op, enum state to, enum cause cause)
{
    struct change change = change_to(op, to, cause);
    write_change(fix, 1, op, &change, true);
}

struct attempt *begin_try(struct fix *fix, struct operation *op, struct change *change, enum attempt_kind kind)
{
    struct attempt *try = &fix->tries[index_of(fix, op)];
    int number = try->number + 1;
    *try = (struct attempt){.number = number, .kind = kind, .outcome = OUTCOME_OPEN, .started_ms = fix->sim.now_ms};
    snprintf(try->id, sizeof try->id, "at_%zu_%d", index_of(fix, op), number);
    change->request.transition.attempts[change->request.transition.attempt_count++] = *try;
    change->op.owner = incarnations[1];
    change->op.lease_until_ms = change->op.wake_at_ms = fix->sim.now_ms + 40000;
    return try;
}

void end_try(struct fix *fix, struct operation *op, struct change *change, enum outcome outcome)
{
    struct attempt *try = &fix->tries[index_of(fix, op)];
    try->outcome = outcome;
    try->finished_ms = fix->sim.now_ms;
    change->request.transition.attempts[change->request.transition.attempt_count++] = *try;
}

void dispatch(struct fix *fix, struct operation *op)
{
    struct change change = change_to(op, STATE_DISPATCHED, CAUSE_DISPATCH);
    begin_try(fix, op, &change, ATTEMPT_CALL);
    write_change(fix, 1, op, &change, true);
}

struct operation *dispatched(struct fix *fix, const char *tool, uint32_t intent)
{
    struct operation *op = admit(fix, tool, intent, 1);
    dispatch(fix, op);
    return op;
}

void answer(struct fix *fix, struct operation *op, enum outcome outcome, enum state to)
{
    struct change change = change_to(op, to, CAUSE_ANSWER);
    end_try(fix, op, &change, outcome);
    write_change(fix, 1, op, &change, true);
}

struct operation *unknown(struct fix *fix, const char *tool, uint32_t intent)
{
    struct operation *op = dispatched(fix, tool, intent);
    answer(fix, op, OUTCOME_TIMEOUT, STATE_UNKNOWN_OUTCOME);
    return op;
}

void look_up(struct fix *fix, struct operation *op, enum outcome outcome, enum state to)
{
    struct change begin = change_to(op, op->state, CAUSE_LOOKUP), end;
    begin.request.transition.event_count = 0;
    begin_try(fix, op, &begin, ATTEMPT_LOOKUP);
    write_change(fix, 1, op, &begin, true);
    end = change_to(op, to, CAUSE_LOOKUP);
    end_try(fix, op, &end, outcome);
    write_change(fix, 1, op, &end, true);
}

struct message message_of(struct fix *fix, const struct operation *op)
{
    struct message message = {.tool = &fix->weak, .kind = ATTEMPT_CALL, .arguments = 7};
    snprintf(message.operation, sizeof message.operation, "%s", op->id);
    snprintf(message.attempt, sizeof message.attempt, "%s", fix->tries[index_of(fix, op)].id);
    snprintf(message.provider_key, sizeof message.provider_key, "%s", op->provider_key);
    return message;
}

void send_by(struct fix *fix, unsigned gateway, const struct message *message, int64_t clock_ms)
{
    check_sending(&fix->sim, gateway, message, clock_ms);
}

void effect(struct fix *fix, const struct operation *op, const char *external_id, enum sim_fault excuse)
{
    struct message message = message_of(fix, op);
    checker_effect(&fix->sim, &message, external_id, excuse);
}

struct operation *succeeded(struct fix *fix, const char *tool, uint32_t intent)
{
    struct operation *op = dispatched(fix, tool, intent);
    struct message message = message_of(fix, op);
    send_by(fix, 1, &message, NOW + 1);
    checker_request(&fix->sim, &message, false);
    checker_effect(&fix->sim, &message, "ef_1", SIM_FAULT_COUNT);
    struct change change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_ANSWER);
    end_try(fix, op, &change, OUTCOME_SUCCESS);
    change.op.external_id = "ef_1";
    change.op.result = STR("{\"id\":1}");
    write_change(fix, 1, op, &change, true);
    return op;
}

void reply_as(struct fix *fix, struct caller caller, struct engine_reply reply)
{
    static const struct err none;
    reply.err = &none;
    if (!caller.tenant)
        caller.tenant = "acme";
    if (!caller.principal)
        caller.principal = "agent";
    caller.tool = "mail";
    checker_reply(&fix->sim, &caller, &reply);
}

void reply(struct fix *fix, uint32_t intent, unsigned call, enum reply_kind kind, const struct operation *op)
{
    reply_as(fix, (struct caller){.intent = intent, .call = call}, (struct engine_reply){.kind = kind, .op = op});
}

void drop(struct fix *fix, const struct operation *op, int64_t now_ms, bool kept)
{
    struct ledger_request request = {.command = LEDGER_EXPIRE,
                                     .expire = {.operation = op->id, .rev = op->rev, .now_ms = now_ms}};
    tell(fix, 1, &request, kept);
}
