/* The checker can fail: for each rule a short history that breaks it, written by hand, and whole lives that break none.
 * Commands go to the checker alone, or with `kept` also to a memory ledger that the end is compared with. */
#include "sim/checker.h"
#include "support/test.h"
#include "support/world.h"

#include <stdio.h>

#define NOW INT64_C(1800000000000)
#define OPS 8

struct fix {
    struct sim sim;
    struct sim_options options;
    struct sim_result result;
    struct env env;
    struct provider provider, keyed_provider;
    struct tool weak, keyed, read;
    struct registry *registry;
    struct operation ops[OPS];
    size_t op_count;
    struct attempt tries[OPS]; /* the latest of each operation */
    struct arena arena;
    unsigned char random;
};

static const char *const incarnations[] = {"", "gw_one", "gw_two"};

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

static int setup(void **state)
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

static int teardown(void **state)
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

static void expect(struct fix *fix, const char *rule)
{
    if (!fix->result.violated)
        fail_msg("the checker saw nothing wrong, expected a breach of %s", rule);
    if (strncmp(fix->result.violation, rule, strlen(rule)) != 0)
        fail_msg("expected a breach of %s, got: %s", rule, fix->result.violation);
}

static void expect_nothing(struct fix *fix)
{
    if (fix->result.violated)
        fail_msg("%s", fix->result.violation);
}

static void tell(struct fix *fix, unsigned gateway, struct ledger_request *request, bool kept)
{
    request->arena = &fix->arena;
    if (kept)
        assert_int_equal(ledger_call(fix->sim.backing, request), 0);
    check_committed(fix->sim.checker, gateway, request);
}

/* A new operation of an intent, planned, not told to anybody yet. */
static struct operation *make(struct fix *fix, const char *tool, uint32_t intent, unsigned call)
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

static void admit_as(struct fix *fix, unsigned gateway, struct operation *op, bool kept)
{
    struct ledger_request request = {.command = LEDGER_ADMIT};
    request.admit.admission.op = op;
    request.admit.event = (struct event){.at_ms = NOW, .cause = CAUSE_ADMITTED, .from = op->state, .to = op->state};
    tell(fix, gateway, &request, kept);
}

static struct operation *admit(struct fix *fix, const char *tool, uint32_t intent, unsigned call)
{
    struct operation *op = make(fix, tool, intent, call);
    admit_as(fix, 1, op, true);
    return op;
}

static size_t index_of(struct fix *fix, const struct operation *op)
{
    return (size_t)(op - fix->ops);
}

/* The next version of the row as it would be written by a gateway; the caller changes what it likes before. */
struct change {
    struct ledger_request request;
    struct operation op;
};

static struct change change_to(struct operation *op, enum state to, enum cause cause)
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

static void write_change(struct fix *fix, unsigned gateway, struct operation *op, struct change *change, bool kept)
{
    change->request.transition.op = &change->op;
    if (op->owner && strcmp(op->owner, incarnations[gateway]) == 0)
        change->request.transition.fence = incarnations[gateway];
    tell(fix, gateway, &change->request, kept);
    *op = change->op;
}

static void move(struct fix *fix, struct operation *op, enum state to, enum cause cause)
{
    struct change change = change_to(op, to, cause);
    write_change(fix, 1, op, &change, true);
}

static struct attempt *begin_try(struct fix *fix, struct operation *op, struct change *change, enum attempt_kind kind)
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

static void end_try(struct fix *fix, struct operation *op, struct change *change, enum outcome outcome)
{
    struct attempt *try = &fix->tries[index_of(fix, op)];
    try->outcome = outcome;
    try->finished_ms = fix->sim.now_ms;
    change->request.transition.attempts[change->request.transition.attempt_count++] = *try;
}

static void dispatch(struct fix *fix, struct operation *op)
{
    struct change change = change_to(op, STATE_DISPATCHED, CAUSE_DISPATCH);
    begin_try(fix, op, &change, ATTEMPT_CALL);
    write_change(fix, 1, op, &change, true);
}

static struct operation *dispatched(struct fix *fix, const char *tool, uint32_t intent)
{
    struct operation *op = admit(fix, tool, intent, 1);
    dispatch(fix, op);
    return op;
}

static void answer(struct fix *fix, struct operation *op, enum outcome outcome, enum state to)
{
    struct change change = change_to(op, to, CAUSE_ANSWER);
    end_try(fix, op, &change, outcome);
    write_change(fix, 1, op, &change, true);
}

static struct operation *unknown(struct fix *fix, const char *tool, uint32_t intent)
{
    struct operation *op = dispatched(fix, tool, intent);
    answer(fix, op, OUTCOME_TIMEOUT, STATE_UNKNOWN_OUTCOME);
    return op;
}

static void look_up(struct fix *fix, struct operation *op, enum outcome outcome, enum state to)
{
    struct change begin = change_to(op, op->state, CAUSE_LOOKUP), end;
    begin.request.transition.event_count = 0;
    begin_try(fix, op, &begin, ATTEMPT_LOOKUP);
    write_change(fix, 1, op, &begin, true);
    end = change_to(op, to, CAUSE_LOOKUP);
    end_try(fix, op, &end, outcome);
    write_change(fix, 1, op, &end, true);
}

static struct message message_of(struct fix *fix, const struct operation *op)
{
    struct message message = {.tool = &fix->weak, .kind = ATTEMPT_CALL, .arguments = 7};
    snprintf(message.operation, sizeof message.operation, "%s", op->id);
    snprintf(message.attempt, sizeof message.attempt, "%s", fix->tries[index_of(fix, op)].id);
    snprintf(message.provider_key, sizeof message.provider_key, "%s", op->provider_key);
    return message;
}

/* checker_sending asks a gateway only for its number. */
static void send_by(struct fix *fix, unsigned gateway, const struct message *message, int64_t clock_ms)
{
    check_sending(&fix->sim, gateway, message, clock_ms);
}

static void effect(struct fix *fix, const struct operation *op, const char *external_id, enum sim_fault excuse)
{
    struct message message = message_of(fix, op);
    checker_effect(&fix->sim, &message, external_id, excuse);
}

/* Sent, made there, answered: the ordinary way. */
static struct operation *succeeded(struct fix *fix, const char *tool, uint32_t intent)
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

static void reply_as(struct fix *fix, struct caller caller, struct engine_reply reply)
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

static void reply(struct fix *fix, uint32_t intent, unsigned call, enum reply_kind kind, const struct operation *op)
{
    reply_as(fix, (struct caller){.intent = intent, .call = call}, (struct engine_reply){.kind = kind, .op = op});
}

/* ---- what is right ---- */

static void test_good_lives(void **state)
{
    struct fix *fix = *state;
    struct operation *done = succeeded(fix, "mail", 1);
    reply(fix, 1, 1, REPLY_OPERATION, done);
    struct operation *absent = unknown(fix, "mail", 2);
    fix->sim.now_ms += 60000;
    look_up(fix, absent, OUTCOME_CANNOT_TELL, STATE_UNKNOWN_OUTCOME);
    look_up(fix, absent, OUTCOME_ABSENT, STATE_UNKNOWN_OUTCOME);
    look_up(fix, absent, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    struct operation *again = unknown(fix, "pay", 3);
    dispatch(fix, again);
    effect(fix, again, "ef_3", SIM_FAULT_COUNT);
    struct change change = change_to(again, STATE_COMPLETED_SUCCESS, CAUSE_ANSWER);
    end_try(fix, again, &change, OUTCOME_SUCCESS);
    change.op.external_id = "ef_3";
    write_change(fix, 1, again, &change, true);
    expect_nothing(fix);
    checker_end(&fix->sim);
    expect_nothing(fix);
    assert_int_equal(fix->result.effects, 2);
}

static void test_broken_promises_are_excused(void **state)
{
    struct fix *fix = *state;
    struct operation *twice = succeeded(fix, "pay", 1);
    effect(fix, twice, "ef_2", SIM_KEY_IGNORED);
    struct operation *late = unknown(fix, "mail", 2);
    fix->sim.now_ms += 60000;
    look_up(fix, late, OUTCOME_ABSENT, STATE_UNKNOWN_OUTCOME);
    look_up(fix, late, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    effect(fix, late, "ef_3", SIM_NET_VERY_LATE);
    struct operation *wrong = unknown(fix, "mail", 3);
    effect(fix, wrong, "ef_4", SIM_FAULT_COUNT);
    checker_excuse(&fix->sim, 3, SIM_PEOPLE_WRONG);
    move(fix, wrong, STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    checker_end(&fix->sim);
    expect_nothing(fix);
    assert_int_equal(fix->result.duplicates_excused, 1);
}

/* ---- 1, 2, 6: effects ---- */

static void test_two_effects_of_one_operation(void **state)
{
    struct fix *fix = *state;
    effect(fix, succeeded(fix, "mail", 1), "ef_2", SIM_FAULT_COUNT);
    expect(fix, "1, 2 one intent, one effect");
}

static void test_two_effects_of_one_intent(void **state)
{
    struct fix *fix = *state;
    struct operation *first = dispatched(fix, "mail", 1);
    answer(fix, first, OUTCOME_REFUSED, STATE_FAILED_PERMANENT);
    struct operation *second = make(fix, "mail", 1, 2);
    second->fingerprint = digest_sha256(STR("corrected arguments"));
    admit_as(fix, 1, second, true);
    dispatch(fix, second);
    expect_nothing(fix);
    effect(fix, second, "ef_1", SIM_FAULT_COUNT);
    effect(fix, second, "ef_2", SIM_FAULT_COUNT);
    expect(fix, "1, 2 one intent, one effect");
}

static void test_effect_of_what_failed(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    answer(fix, op, OUTCOME_REFUSED, STATE_FAILED_PERMANENT);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    expect(fix, "3.2 \"failed\" means it did not happen");
}

static void test_failed_although_it_happened(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    answer(fix, op, OUTCOME_NOT_PROCESSED, STATE_FAILED_RETRYABLE);
    expect(fix, "3.2 \"failed\" means it did not happen");
}

/* ---- 5: requests ---- */

static void test_sent_before_the_commit(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct message message = message_of(fix, op);
    snprintf(message.attempt, sizeof message.attempt, "at_1");
    send_by(fix, 1, &message, NOW);
    expect(fix, "5.1 persist, commit, then send");
}

static void test_sent_twice(void **state)
{
    struct fix *fix = *state;
    struct message message = message_of(fix, dispatched(fix, "mail", 1));
    send_by(fix, 1, &message, NOW);
    expect_nothing(fix);
    send_by(fix, 1, &message, NOW);
    expect(fix, "5.2 one request per attempt row");
}

static void test_sent_by_another(void **state)
{
    struct fix *fix = *state;
    struct message message = message_of(fix, dispatched(fix, "mail", 1));
    send_by(fix, 2, &message, NOW);
    expect(fix, "5.1, 15 leases are exclusive");
}

static void test_sent_after_the_lease(void **state)
{
    struct fix *fix = *state;
    struct message message = message_of(fix, dispatched(fix, "mail", 1));
    send_by(fix, 1, &message, NOW + 40000);
    expect(fix, "3.3, 15 a lease that has ended");
}

static void test_sent_after_its_end(void **state)
{
    struct fix *fix = *state;
    struct message message = message_of(fix, unknown(fix, "mail", 1));
    send_by(fix, 1, &message, NOW);
    expect(fix, "5.1 an attempt that has ended");
}

static void test_request_without_a_row(void **state)
{
    struct fix *fix = *state;
    struct message message = message_of(fix, dispatched(fix, "mail", 1));
    checker_request(&fix->sim, &message, false);
    expect(fix, "5.2 requests at the provider");
}

static void test_request_arrives_twice(void **state)
{
    struct fix *fix = *state;
    struct message message = message_of(fix, dispatched(fix, "mail", 1));
    send_by(fix, 1, &message, NOW);
    checker_request(&fix->sim, &message, false);
    checker_request(&fix->sim, &message, true); /* the network's doing */
    expect_nothing(fix);
    checker_request(&fix->sim, &message, false);
    expect(fix, "5.2 requests at the provider");
}

static void test_other_provider_key(void **state)
{
    struct fix *fix = *state;
    struct message message = message_of(fix, dispatched(fix, "pay", 1));
    snprintf(message.provider_key, sizeof message.provider_key, "other");
    send_by(fix, 1, &message, NOW);
    expect(fix, "1 provider key");
}

static void test_other_arguments_on_the_wire(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "pay", 1);
    struct message message = message_of(fix, op);
    send_by(fix, 1, &message, NOW);
    answer(fix, op, OUTCOME_TIMEOUT, STATE_UNKNOWN_OUTCOME);
    dispatch(fix, op);
    message = message_of(fix, op);
    message.arguments = 8;
    send_by(fix, 1, &message, NOW);
    expect(fix, "2.6 one operation, one set of arguments");
}

static void test_dispatched_without_an_attempt(void **state)
{
    struct fix *fix = *state;
    move(fix, admit(fix, "mail", 1, 1), STATE_DISPATCHED, CAUSE_DISPATCH);
    expect(fix, "5.1 dispatched with its attempt row");
}

static void test_attempts_are_numbered(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    fix->tries[0].number = 1;
    dispatch(fix, op);
    expect(fix, "5.1 attempts are numbered");
}

static void test_attempts_end_once(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    struct change change = change_to(op, STATE_UNKNOWN_OUTCOME, CAUSE_EVIDENCE);
    end_try(fix, op, &change, OUTCOME_REFUSED);
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.4 attempts end once");
}

static void test_success_without_confirmation(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    answer(fix, op, OUTCOME_UNREADABLE, STATE_COMPLETED_SUCCESS);
    expect(fix, "5.4 success only on the provider's confirmation");
}

static void test_success_without_an_effect(void **state)
{
    struct fix *fix = *state;
    answer(fix, dispatched(fix, "mail", 1), OUTCOME_SUCCESS, STATE_COMPLETED_SUCCESS);
    expect(fix, "5.4 success means an effect");
}

static void test_wrong_object_unnoticed(void **state)
{
    struct fix *fix = *state;
    answer(fix, dispatched(fix, "pay", 1), OUTCOME_WRONG_OBJECT, STATE_UNKNOWN_OUTCOME);
    expect(fix, "5.4 another operation's object");
}

/* ---- 3: states ---- */

static void test_version_is_skipped(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct change change = change_to(op, STATE_REJECTED, CAUSE_CANCEL);
    change.op.rev++;
    write_change(fix, 1, op, &change, false);
    expect(fix, "3.1, 15 compare-and-set");
}

static void test_version_is_written_twice(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1), stale = *op;
    look_up(fix, op, OUTCOME_CANNOT_TELL, STATE_UNKNOWN_OUTCOME);
    struct change change = change_to(&stale, STATE_UNKNOWN_OUTCOME, CAUSE_LOOKUP);
    write_change(fix, 1, &stale, &change, false);
    expect(fix, "3.1, 15 compare-and-set");
}

static void test_forbidden_moves(void **state)
{
    static const struct {
        enum state to;
        enum cause cause;
    } moves[] = {
        {STATE_PENDING_DISPATCH, CAUSE_OWNER_GONE}, /* 3.3: nothing leads back to "nothing has left" */
        {STATE_FAILED_RETRYABLE, CAUSE_OWNER_GONE}, {STATE_FAILED_PERMANENT, CAUSE_OWNER_GONE},
        {STATE_FAILED_PERMANENT, CAUSE_TIMER},      {STATE_REJECTED, CAUSE_CANCEL},
        {STATE_COMPLETED_SUCCESS, CAUSE_TIMER},
    };
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (i > 0) {
            teardown(state);
            setup(state);
        }
        struct fix *fix = *state;
        move(fix, dispatched(fix, "mail", 1), moves[i].to, moves[i].cause);
        expect(fix, "3 moves");
    }
}

static void test_closed_by_the_clock(void **state)
{
    struct fix *fix = *state;
    move(fix, unknown(fix, "mail", 1), STATE_FAILED_PERMANENT, CAUSE_GAVE_UP);
    expect(fix, "3 moves");
}

static void test_move_without_an_event(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct change change = change_to(op, STATE_REJECTED, CAUSE_CANCEL);
    change.request.transition.event_count = 0;
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.1 every move has its event");
}

static void test_event_from_elsewhere(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct change change = change_to(op, STATE_REJECTED, CAUSE_CANCEL);
    change.request.transition.events[0].from = STATE_PLANNED;
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.1 events replay");
}

static void test_end_changes_its_result(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    struct change change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_EVIDENCE);
    change.op.external_id = "ef_2";
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.1 terminal states are write-once");
}

static void test_decision_without_a_name(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    struct change change = change_to(op, STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    change.request.transition.events[0].actor = NULL;
    write_change(fix, 1, op, &change, true);
    expect(fix, "7.4 a person's decision has a name");
}

static void test_clean_failure_ends_a_doubt(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "pay", 1);
    dispatch(fix, op);
    answer(fix, op, OUTCOME_REFUSED, STATE_FAILED_PERMANENT);
    expect(fix, "3.2 no clean failure ends a doubt");
}

/* A gateway is told of a success, somebody else had given the operation up: its answer is not thrown away. */
static void thrown_away(struct fix *fix, bool dies)
{
    struct operation *op = dispatched(fix, "mail", 1);
    struct message message = message_of(fix, op);
    message.gateway = 1;
    send_by(fix, 1, &message, NOW);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    checker_answered(&fix->sim, &message, OUTCOME_SUCCESS);
    struct change change = change_to(op, STATE_UNKNOWN_OUTCOME, CAUSE_OWNER_GONE);
    end_try(fix, op, &change, OUTCOME_LOST);
    write_change(fix, 1, op, &change, true);
    if (dies)
        checker_gateway_died(&fix->sim, 1);
    change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_OPERATOR);
    change.op.external_id = "ef_1";
    write_change(fix, 1, op, &change, true);
    checker_end(&fix->sim);
}

static void test_evidence_thrown_away(void **state)
{
    thrown_away(*state, false);
    expect(*state, "3.4 late evidence is kept");
}

static void test_evidence_lost_with_its_gateway(void **state)
{
    thrown_away(*state, true);
    expect_nothing(*state);
}

static void test_rejected_although_sent(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    answer(fix, op, OUTCOME_NOT_PROCESSED, STATE_FAILED_RETRYABLE);
    move(fix, op, STATE_REJECTED, CAUSE_CANCEL);
    expect(fix, "3 rejected: nothing was ever sent");
}

static void test_correction_without_an_incident(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    checker_excuse(&fix->sim, 1, SIM_LOOKUP_BLIND);
    move(fix, op, STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    move(fix, op, STATE_COMPLETED_SUCCESS, CAUSE_OPERATOR);
    expect(fix, "3.4 a corrected \"no effect\" is an incident");
}

/* ---- 6, 7: re-sends and look-ups ---- */

static void test_resend_without_a_key(void **state)
{
    struct fix *fix = *state;
    dispatch(fix, unknown(fix, "mail", 1));
    expect(fix, "6 a re-send");
}

static void test_resend_after_the_keys_retention(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "pay", 1);
    fix->sim.now_ms += fix->keyed_provider.key_retention_ms;
    dispatch(fix, op);
    expect(fix, "6 a re-send");
}

static void test_absent_before_settle(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    look_up(fix, op, OUTCOME_ABSENT, STATE_UNKNOWN_OUTCOME);
    look_up(fix, op, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    expect(fix, "7.1 absent counts after settle");
}

static void test_absent_too_few_times(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    fix->sim.now_ms += 60000;
    look_up(fix, op, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    expect(fix, "7.1 absent counts after settle");
}

static void test_absent_not_in_a_row(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    fix->sim.now_ms += 60000;
    look_up(fix, op, OUTCOME_ABSENT, STATE_UNKNOWN_OUTCOME);
    look_up(fix, op, OUTCOME_CANNOT_TELL, STATE_UNKNOWN_OUTCOME);
    look_up(fix, op, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    expect(fix, "7.1 absent counts after settle");
}

static void test_two_matches_unnoticed(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    look_up(fix, op, OUTCOME_SEVERAL, STATE_UNKNOWN_OUTCOME);
    expect(fix, "7.1 two matches are an incident");
}

/* ---- approvals (8) ---- */

static const char *const record = "{\"needed\":2,\"expires_ms\":9000000000000,\"policy\":\"p\",\"decisions\":[]}";

static struct operation *asked(struct fix *fix, const char *tool)
{
    struct operation *op = make(fix, tool, 1, 1);
    op->state = STATE_PLANNED;
    op->reason = REASON_AWAITING_APPROVAL;
    op->approval = str_of(record);
    admit_as(fix, 1, op, true);
    return op;
}

static void decides(struct fix *fix, struct operation *op, const char *who, bool approve)
{
    struct change change = change_to(op, approve ? STATE_PLANNED : STATE_REJECTED, CAUSE_APPROVAL);
    change.request.transition.events[0].actor = who;
    write_change(fix, 1, op, &change, true);
}

static void leaves(struct fix *fix, struct operation *op)
{
    struct change change = change_to(op, STATE_DISPATCHED, CAUSE_DISPATCH);
    begin_try(fix, op, &change, ATTEMPT_CALL);
    write_change(fix, 1, op, &change, true);
}

static void test_two_people_agree(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    decides(fix, op, "jon", true);
    leaves(fix, op);
    expect_nothing(fix);
}

static void test_leaves_with_one_of_two(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    leaves(fix, op);
    expect(fix, "8 nothing leaves without a complete approval");
}

static void test_a_person_twice(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    decides(fix, op, "ivy", true);
    expect(fix, "8 distinct people");
}

static void test_the_caller_decides(void **state)
{
    struct fix *fix = *state;
    decides(fix, asked(fix, "mail"), "agent", true);
    expect(fix, "8 never the one who calls");
}

static void test_a_decision_after_the_last_one(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    decides(fix, op, "jon", true);
    decides(fix, op, "kim", false);
    expect(fix, "8 the first decision stands");
}

static void test_a_decision_on_what_was_not_asked(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    op->state = STATE_PLANNED;
    admit_as(fix, 1, op, true);
    decides(fix, op, "ivy", true);
    expect(fix, "8 an approval is for what waits");
}

static void test_what_people_said_is_lost(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    struct change change = change_to(op, STATE_PLANNED, CAUSE_APPROVAL);
    change.request.transition.events[0].actor = "ivy";
    change.op.approval = STR_NONE;
    write_change(fix, 1, op, &change, true);
    expect(fix, "8 what people said is kept");
}

static void test_no_watch_planned(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    struct change change = change_to(op, STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    change.op.wake_at_ms = change.op.retain_until_ms;
    write_change(fix, 1, op, &change, true);
    expect(fix, "7.3 late-landing watch");
}

static void test_watch_never_looked(void **state)
{
    struct fix *fix = *state;
    move(fix, unknown(fix, "mail", 1), STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    fix->sim.now_ms += 3600000;
    checker_end(&fix->sim);
    expect(fix, "7.3 late-landing watch");
}

static void test_open_without_a_time(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    struct change change = change_to(op, STATE_UNKNOWN_OUTCOME, CAUSE_ANSWER);
    end_try(fix, op, &change, OUTCOME_TIMEOUT);
    change.op.wake_at_ms = 0;
    write_change(fix, 1, op, &change, true);
    expect(fix, "7.2, 14 nothing open is forgotten");
}

static void test_lease_end_without_a_wake(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct change change = change_to(op, STATE_DISPATCHED, CAUSE_DISPATCH);
    begin_try(fix, op, &change, ATTEMPT_CALL);
    change.op.wake_at_ms = change.op.lease_until_ms + 1;
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.3 a lease that ends is noticed");
}

/* ---- 15: leases, claims, retention ---- */

static void test_moved_over_a_lease(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    struct change change = change_to(op, STATE_UNKNOWN_OUTCOME, CAUSE_OWNER_GONE);
    write_change(fix, 2, op, &change, true);
    expect(fix, "15 leases are exclusive");
}

static void test_people_go_over_a_lease(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    op->owner = incarnations[1];
    op->lease_until_ms = op->wake_at_ms = NOW + 60000;
    admit_as(fix, 1, op, true);
    struct change change = change_to(op, STATE_REJECTED, CAUSE_CANCEL);
    write_change(fix, 2, op, &change, true);
    expect_nothing(fix);
}

static void test_lease_given_away(void **state)
{
    struct fix *fix = *state;
    dispatched(fix, "mail", 1);
    struct operation *other = make(fix, "mail", 2, 1);
    other->owner = incarnations[1];
    other->lease_until_ms = other->wake_at_ms = NOW + 60000;
    admit_as(fix, 2, other, true);
    expect(fix, "15 leases are exclusive");
}

static void claim(struct fix *fix, unsigned gateway, struct operation *op, int64_t now_ms, bool foreign)
{
    struct operation *claimed[] = {op};
    const char *former[] = {NULL};
    struct ledger_request request = {
        .command = LEDGER_CLAIM_DUE,
        .claim = {.owner = incarnations[gateway],
                  .now_ms = now_ms,
                  .lease_ms = 60000,
                  .foreign = foreign,
                  .ops = claimed,
                  .former_owners = former,
                  .count = 1},
    };
    tell(fix, gateway, &request, false);
}

static void test_claim_of_a_live_lease(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    claim(fix, 2, op, NOW + 39999, false);
    expect(fix, "15 leases are exclusive");
}

static void test_claim_of_an_ended_lease(void **state)
{
    struct fix *fix = *state;
    claim(fix, 2, dispatched(fix, "mail", 1), NOW + 40000, false);
    expect_nothing(fix);
}

static void test_claim_as_if_alone(void **state)
{
    struct fix *fix = *state;
    claim(fix, 2, dispatched(fix, "mail", 1), NOW, true);
    expect(fix, "15 other gateways may live");
}

static void drop(struct fix *fix, const struct operation *op, int64_t now_ms, bool kept)
{
    struct ledger_request request = {.command = LEDGER_EXPIRE,
                                     .expire = {.operation = op->id, .rev = op->rev, .now_ms = now_ms}};
    tell(fix, 1, &request, kept);
}

static void test_dropped_too_early(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    drop(fix, op, op->retain_until_ms - 1, true);
    expect(fix, "15 retention");
}

static void test_dropped_in_its_time(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    drop(fix, op, op->retain_until_ms, true);
    checker_end(&fix->sim);
    expect_nothing(fix);
}

static void test_no_tombstone(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    drop(fix, op, op->retain_until_ms, false);
    checker_end(&fix->sim);
    expect(fix, "15 a tombstone stays for ever");
}

static void test_committed_row_is_lost(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    struct change change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_EVIDENCE);
    write_change(fix, 1, op, &change, false);
    checker_end(&fix->sim);
    expect(fix, "15 what was committed is kept");
}

static void test_row_that_nobody_admitted(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    struct ledger_request request = {.command = LEDGER_ADMIT, .arena = &fix->arena};
    request.admit.admission.op = op;
    request.admit.event = (struct event){.cause = CAUSE_ADMITTED, .from = op->state, .to = op->state};
    assert_int_equal(ledger_call(fix->sim.backing, &request), 0);
    checker_end(&fix->sim);
    expect(fix, "4 only what was admitted has a row");
}

static void test_unsettled_at_the_end(void **state)
{
    struct fix *fix = *state;
    unknown(fix, "mail", 1);
    checker_end(&fix->sim);
    expect(fix, "7.2, 18 every operation ends");
}

static void test_waits_for_a_person_at_the_end(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    struct change change = change_to(op, STATE_UNKNOWN_OUTCOME, CAUSE_GAVE_UP);
    change.op.reason = REASON_NEEDS_OPERATOR;
    change.op.wake_at_ms = 0;
    write_change(fix, 1, op, &change, true);
    checker_end(&fix->sim);
    expect_nothing(fix);
    assert_int_equal(fix->result.waiting_for_people, 1);
}

static void test_attempt_open_at_the_end(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    move(fix, op, STATE_UNKNOWN_OUTCOME, CAUSE_OWNER_GONE);
    move(fix, op, STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    checker_end(&fix->sim);
    expect(fix, "5.1 every attempt ends");
}

/* ---- 2: identity ---- */

static void test_key_twice(void **state)
{
    struct fix *fix = *state;
    succeeded(fix, "mail", 1);
    struct operation *second = make(fix, "mail", 2, 1);
    second->key_hash = fix->ops[0].key_hash;
    second->key_version = 2;
    admit_as(fix, 1, second, false);
    expect(fix, "2, 15 a key is never forgotten");
}

static void test_tombstone_forgotten(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    drop(fix, op, op->retain_until_ms, true);
    admit_as(fix, 1, make(fix, "mail", 1, 2), false);
    expect(fix, "2, 15 a key is never forgotten");
}

static void test_version_without_reason(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    op->key_version = 2;
    admit_as(fix, 1, op, false);
    expect(fix, "2.7 versions count up");
}

static void test_same_intent_under_another_key(void **state)
{
    struct fix *fix = *state;
    succeeded(fix, "mail", 1);
    struct operation *second = make(fix, "mail", 1, 2);
    second->key_hash = digest_sha256(STR("another"));
    admit_as(fix, 1, second, false);
    expect(fix, "1, 2 one intent, one operation");
}

static void test_repeat_that_does_not_join(void **state)
{
    struct fix *fix = *state;
    fix->ops[0].key_source = KEY_SOURCE_REPEAT;
    struct operation *first = make(fix, "mail", 1, 1);
    first->key_source = KEY_SOURCE_REPEAT;
    admit_as(fix, 1, first, true);
    struct operation *second = make(fix, "mail", 1, 2);
    second->key_source = KEY_SOURCE_REPEAT;
    second->key_hash = digest_sha256(STR("random"));
    admit_as(fix, 1, second, false);
    expect(fix, "2.2.5 a repeat joins");
}

static void test_in_doubt_guard(void **state)
{
    struct fix *fix = *state;
    unknown(fix, "mail", 1);
    admit_as(fix, 1, make(fix, "mail", 2, 1), false);
    expect(fix, "2.9 in-doubt guard");
}

static void test_in_doubt_guard_and_distinct_from(void **state)
{
    struct fix *fix = *state;
    struct operation *doubt = unknown(fix, "mail", 1);
    struct operation *op = make(fix, "mail", 2, 1);
    struct ledger_request request = {.command = LEDGER_ADMIT};
    request.admit.admission.op = op;
    request.admit.admission.distinct_from[0] = doubt->id;
    request.admit.admission.distinct_count = 1;
    request.admit.event = (struct event){.cause = CAUSE_ADMITTED, .from = op->state, .to = op->state};
    tell(fix, 1, &request, false);
    expect_nothing(fix);
}

static void meet(struct fix *fix, struct operation *op, const struct operation *existing, enum verdict verdict)
{
    struct ledger_request request = {.command = LEDGER_ADMIT};
    request.admit.admission.op = op;
    request.admit.result.verdict = verdict;
    request.admit.result.existing = existing;
    tell(fix, 1, &request, false);
}

static void test_other_key_is_joined(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    meet(fix, make(fix, "mail", 2, 1), op, VERDICT_JOIN);
    expect(fix, "2 other intents are never merged");
}

static void test_conflict_is_replayed(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1), *other = make(fix, "mail", 1, 2);
    other->fingerprint = digest_sha256(STR("other arguments"));
    meet(fix, other, op, VERDICT_REPLAY);
    expect(fix, "2.7 same key, other arguments");
}

static void test_weaker_source_of_a_key(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    fix->weak.identity = IDENTITY_CALLER;
    op->key_source = KEY_SOURCE_REPEAT;
    admit_as(fix, 1, op, false);
    expect(fix, "2.2 the first source of a key wins");
}

static void test_held_in_spite_of_distinct_from(void **state)
{
    struct fix *fix = *state;
    struct operation *doubt = unknown(fix, "mail", 1);
    const char *distinct[] = {doubt->id};
    reply(fix, 2, 1, REPLY_HELD, doubt);
    expect_nothing(fix);
    reply_as(fix, (struct caller){.intent = 2, .call = 2, .distinct_from = distinct, .distinct_count = 1},
             (struct engine_reply){.kind = REPLY_HELD, .op = doubt});
    expect(fix, "2.9 distinct_from lets a call run");
}

static void test_read_leaves_a_row(void **state)
{
    struct fix *fix = *state;
    admit(fix, "look", 1, 1);
    expect(fix, "4 reads leave no row");
}

/* ---- 4, 12, 16: answers ---- */

static void test_told_before_it_is_durable(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1), ahead = *op;
    ahead.rev++;
    reply(fix, 1, 1, REPLY_OPERATION, &ahead);
    expect(fix, "4, 5.1 told before it is durable");
}

static void test_told_of_what_does_not_exist(void **state)
{
    struct fix *fix = *state;
    reply(fix, 1, 1, REPLY_OPERATION, make(fix, "mail", 1, 1));
    expect(fix, "4, 5.1 told before it is durable");
}

static void test_told_another_state(void **state)
{
    struct fix *fix = *state;
    struct operation op = *dispatched(fix, "mail", 1);
    op.state = STATE_COMPLETED_SUCCESS;
    reply(fix, 1, 1, REPLY_OPERATION, &op);
    expect(fix, "4 told what was not committed");
}

static void test_told_of_another_intent(void **state)
{
    struct fix *fix = *state;
    reply(fix, 2, 1, REPLY_OPERATION, succeeded(fix, "mail", 1));
    expect(fix, "2 other intents are never merged");
}

static void test_told_to_another_principal(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    reply_as(fix, (struct caller){.intent = 1, .call = 2, .principal = "other"},
             (struct engine_reply){.kind = REPLY_OPERATION, .op = op, .replayed = true});
    expect(fix, "2.4 results are not shared");
}

static void test_told_to_another_tenant(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    reply_as(fix, (struct caller){.intent = 2, .call = 1, .tenant = "zeta", .asked = ASKED_OTHER, .waited_for = op->id},
             (struct engine_reply){.kind = REPLY_OPERATION, .op = op});
    expect(fix, "16 tenants see nothing of each other");
}

static void test_told_as_its_own_doing(void **state)
{
    struct fix *fix = *state;
    reply(fix, 1, 2, REPLY_OPERATION, succeeded(fix, "mail", 1));
    expect(fix, "12 replayed");
}

static void test_result_changes_between_answers(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1), other = *op;
    reply(fix, 1, 1, REPLY_OPERATION, op);
    other.external_id = "ef_9";
    reply(fix, 1, 1, REPLY_OPERATION, &other);
    expect(fix, "3.1, 12 an acknowledged result is never lost");
}

static void test_nothing_recorded_yet_it_was(void **state)
{
    static const enum reply_kind kinds[] = {REPLY_CONFLICT, REPLY_HELD,    REPLY_PLAN,   REPLY_UNAVAILABLE,
                                            REPLY_EXPIRED,  REPLY_REFUSED, REPLY_NO_TOOL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (i > 0) {
            teardown(state);
            setup(state);
        }
        struct fix *fix = *state;
        admit(fix, "mail", 1, 1);
        reply(fix, 1, 1, kinds[i], NULL);
        expect(fix, "4, 12 told that nothing was recorded");
    }
}

static void test_nothing_recorded_then_it_is(void **state)
{
    struct fix *fix = *state;
    reply(fix, 1, 1, REPLY_CONFLICT, NULL);
    admit(fix, "mail", 1, 1);
    expect(fix, "4, 12 told that nothing was recorded");
}

static void test_acknowledged_operation_is_not_found(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    reply_as(fix, (struct caller){.intent = 1, .call = 2, .asked = ASKED_WAIT, .waited_for = op->id},
             (struct engine_reply){.kind = REPLY_NOT_FOUND});
    expect(fix, "4, 15 an acknowledged operation is never lost");
}

/* ---- 11.1: inbound events ---- */

/* A source of the simulator's own kind, for the tools of one provider. */
static void listen(struct fix *fix)
{
    static const char *const others[] = {"zz*"};
    const struct inbox_source sources[] = {
        {.name = "told", .provider = fix->provider.name, .retain_ms = 1000000},
        {.name = "others", .provider = fix->provider.name, .tools = others, .tool_count = 1, .retain_ms = 1000000},
    };
    registry_listen(fix->registry, sources, 2);
}

static const char *record_event(struct fix *fix, const char *source, const char *event, const struct operation *op,
                                enum inbound_outcome outcome, int64_t created_ms)
{
    struct inbound *inbound = arena_zero(&fix->arena, sizeof *inbound);
    *inbound = (struct inbound){
        .source = source,
        .event = event,
        .created_ms = created_ms,
        .received_ms = NOW,
        .outcome = outcome,
        .match = INBOUND_BY_PROVIDER_KEY,
        .value = op->provider_key,
        .retain_until_ms = NOW + 1000000,
    };
    snprintf(inbound->id, sizeof inbound->id, "ev_%s", event);
    struct ledger_request request = {.command = LEDGER_RECORD_INBOUND,
                                     .record_inbound = {.event = inbound, .now_ms = NOW}};
    tell(fix, 1, &request, true);
    return inbound->id;
}

static void apply(struct fix *fix, struct operation *op, const char *event, enum state to, enum reason reason)
{
    struct change change = change_to(op, to, CAUSE_EVIDENCE);
    change.op.reason = reason;
    change.request.transition.events[0].reason = reason;
    change.request.transition.inbound = event;
    write_change(fix, 1, op, &change, false);
}

static void test_events_that_are_right(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    struct change change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_EVIDENCE);
    change.op.external_id = "ef_1";
    change.request.transition.inbound = record_event(fix, "told", "2", op, INBOUND_SUCCESS, NOW - 5);
    write_change(fix, 1, op, &change, false);
    struct operation *none = unknown(fix, "mail", 2);
    apply(fix, none, record_event(fix, "told", "3", none, INBOUND_NO_EFFECT, NOW), STATE_FAILED_PERMANENT, REASON_NONE);
    checker_event_told(&fix->sim, "ev_2");
    expect_nothing(fix);
}

static void test_event_applied_twice(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    const char *event = record_event(fix, "told", "1", op, INBOUND_PENDING, NOW);
    apply(fix, op, event, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect_nothing(fix);
    apply(fix, op, event, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect(fix, "11.1 an event is applied once");
}

static void test_event_of_another_operation(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *other = succeeded(fix, "mail", 2), *op = unknown(fix, "mail", 1);
    apply(fix, other, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), other->state, REASON_NONE);
    expect(fix, "11.1, 16 an event is for the operation that it names");
}

static void test_event_of_another_source(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "others", "1", op, INBOUND_PENDING, NOW), STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect(fix, "11.1, 16 an event is for the operation that it names");
}

static void test_event_before_the_answer(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = dispatched(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), STATE_DISPATCHED, REASON_NONE);
    expect(fix, "11.1 an event waits for the answer");
}

static void test_older_event_downgrades(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect_nothing(fix);
    apply(fix, op, record_event(fix, "told", "2", op, INBOUND_FAILED, NOW - 1), STATE_UNKNOWN_OUTCOME,
          REASON_NEEDS_OPERATOR);
    expect(fix, "11.1 an older event never downgrades");
}

static void test_success_that_settles_nothing(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_SUCCESS, NOW), STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
    expect(fix, "3.4, 11.1 a success has the last word");
}

static void test_failed_event_as_a_proof(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_FAILED, NOW), STATE_FAILED_PERMANENT,
          REASON_NEEDS_OPERATOR);
    expect(fix, "3.2 no clean failure ends a doubt");
}

static void test_failure_after_success_unnoticed(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = succeeded(fix, "mail", 1);
    struct change change = change_to(op, op->state, CAUSE_EVIDENCE);
    change.request.transition.inbound = record_event(fix, "told", "1", op, INBOUND_SUCCESS, NOW);
    write_change(fix, 1, op, &change, false);
    expect_nothing(fix);
    struct change later = change_to(op, op->state, CAUSE_EVIDENCE);
    later.request.transition.inbound = record_event(fix, "told", "2", op, INBOUND_FAILED, NOW + 1);
    write_change(fix, 1, op, &later, false);
    expect(fix, "3.4 a failure told after the success is an incident");
}

static void test_event_recorded_twice(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    record_event(fix, "told", "1", op, INBOUND_SUCCESS, NOW);
    struct inbound again = {.id = "ev_9", .source = "told", .event = "1", .retain_until_ms = NOW + 1000000};
    struct ledger_request request = {.command = LEDGER_RECORD_INBOUND, .record_inbound = {.event = &again}};
    tell(fix, 1, &request, false);
    expect(fix, "11.1 an event is recorded once");
}

static void test_event_acknowledged_too_soon(void **state)
{
    struct fix *fix = *state;
    checker_event_told(&fix->sim, "ev_1");
    expect(fix, "11.1 an event is recorded before it is acknowledged");
}

static void test_event_that_nobody_took(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    record_event(fix, "told", "1", succeeded(fix, "mail", 1), INBOUND_SUCCESS, NOW);
    checker_end(&fix->sim);
    expect(fix, "11.1 an event finds its operation");
}

static void test_event_that_is_gone(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    record_event(fix, "others", "1", succeeded(fix, "mail", 1), INBOUND_SUCCESS, NOW);
    struct ledger_request request = {.command = LEDGER_INBOX_PRUNE, .arena = &fix->arena};
    request.inbox_prune = (struct ledger_inbox_prune){.now_ms = NOW + 2000000, .limit = 9};
    assert_int_equal(ledger_call(fix->sim.backing, &request), 0); /* behind the checker's back */
    checker_end(&fix->sim);
    expect(fix, "11.1 a recorded event is never lost");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_good_lives),
        TEST(test_broken_promises_are_excused),
        TEST(test_two_effects_of_one_operation),
        TEST(test_two_effects_of_one_intent),
        TEST(test_effect_of_what_failed),
        TEST(test_failed_although_it_happened),
        TEST(test_sent_before_the_commit),
        TEST(test_sent_twice),
        TEST(test_sent_by_another),
        TEST(test_sent_after_the_lease),
        TEST(test_sent_after_its_end),
        TEST(test_request_without_a_row),
        TEST(test_request_arrives_twice),
        TEST(test_other_provider_key),
        TEST(test_other_arguments_on_the_wire),
        TEST(test_dispatched_without_an_attempt),
        TEST(test_attempts_are_numbered),
        TEST(test_attempts_end_once),
        TEST(test_success_without_confirmation),
        TEST(test_success_without_an_effect),
        TEST(test_wrong_object_unnoticed),
        TEST(test_version_is_skipped),
        TEST(test_version_is_written_twice),
        TEST(test_forbidden_moves),
        TEST(test_closed_by_the_clock),
        TEST(test_move_without_an_event),
        TEST(test_event_from_elsewhere),
        TEST(test_end_changes_its_result),
        TEST(test_decision_without_a_name),
        TEST(test_clean_failure_ends_a_doubt),
        TEST(test_evidence_thrown_away),
        TEST(test_evidence_lost_with_its_gateway),
        TEST(test_rejected_although_sent),
        TEST(test_correction_without_an_incident),
        TEST(test_resend_without_a_key),
        TEST(test_resend_after_the_keys_retention),
        TEST(test_absent_before_settle),
        TEST(test_absent_too_few_times),
        TEST(test_absent_not_in_a_row),
        TEST(test_two_matches_unnoticed),
        TEST(test_two_people_agree),
        TEST(test_leaves_with_one_of_two),
        TEST(test_a_person_twice),
        TEST(test_the_caller_decides),
        TEST(test_a_decision_after_the_last_one),
        TEST(test_a_decision_on_what_was_not_asked),
        TEST(test_what_people_said_is_lost),
        TEST(test_no_watch_planned),
        TEST(test_watch_never_looked),
        TEST(test_open_without_a_time),
        TEST(test_lease_end_without_a_wake),
        TEST(test_moved_over_a_lease),
        TEST(test_people_go_over_a_lease),
        TEST(test_lease_given_away),
        TEST(test_claim_of_a_live_lease),
        TEST(test_claim_of_an_ended_lease),
        TEST(test_claim_as_if_alone),
        TEST(test_dropped_too_early),
        TEST(test_dropped_in_its_time),
        TEST(test_no_tombstone),
        TEST(test_committed_row_is_lost),
        TEST(test_row_that_nobody_admitted),
        TEST(test_unsettled_at_the_end),
        TEST(test_waits_for_a_person_at_the_end),
        TEST(test_attempt_open_at_the_end),
        TEST(test_key_twice),
        TEST(test_tombstone_forgotten),
        TEST(test_version_without_reason),
        TEST(test_same_intent_under_another_key),
        TEST(test_repeat_that_does_not_join),
        TEST(test_in_doubt_guard),
        TEST(test_in_doubt_guard_and_distinct_from),
        TEST(test_other_key_is_joined),
        TEST(test_conflict_is_replayed),
        TEST(test_weaker_source_of_a_key),
        TEST(test_held_in_spite_of_distinct_from),
        TEST(test_read_leaves_a_row),
        TEST(test_told_before_it_is_durable),
        TEST(test_told_of_what_does_not_exist),
        TEST(test_told_another_state),
        TEST(test_told_of_another_intent),
        TEST(test_told_to_another_principal),
        TEST(test_told_to_another_tenant),
        TEST(test_told_as_its_own_doing),
        TEST(test_result_changes_between_answers),
        TEST(test_nothing_recorded_yet_it_was),
        TEST(test_nothing_recorded_then_it_is),
        TEST(test_acknowledged_operation_is_not_found),
        TEST(test_events_that_are_right),
        TEST(test_event_applied_twice),
        TEST(test_event_of_another_operation),
        TEST(test_event_of_another_source),
        TEST(test_event_before_the_answer),
        TEST(test_older_event_downgrades),
        TEST(test_success_that_settles_nothing),
        TEST(test_failed_event_as_a_proof),
        TEST(test_failure_after_success_unnoticed),
        TEST(test_event_recorded_twice),
        TEST(test_event_acknowledged_too_soon),
        TEST(test_event_that_nobody_took),
        TEST(test_event_that_is_gone),
    };
    return cmocka_run_group_tests_name("checker", tests, NULL, NULL);
}
