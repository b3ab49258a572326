/* Compensation (design 10.1): playbooks, the step, and the engine around them. The ledgers' part is in test/contract.
 */
#include "adapter/jq.h"
#include "base/log.h"
#include "core/identity.h"
#include "core/playbook.h"
#include "core/step.h"
#include "support/test.h"
#include "support/world.h"

#include <string.h>

#define ARGUMENTS "{\"order\":\"o1\",\"amount\":9007199254740993}"
#define FORM      "{\"payment\":\"{$external_id}\",\"amount\":\"{amount}\",\"why\":[\"order {order}\"]}"

struct fix {
    struct world world;
    struct provider provider;
    struct tool tools[2];
    struct playbook playbooks[2];
    struct arena arena;
    struct world_reply paid, a, b, c;
};

static const struct json *parsed(struct arena *arena, const char *text)
{
    struct json *value;
    assert_int_equal(json_parse(arena, str_of(text), NULL, &value, NULL), 0);
    return value;
}

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    log_set_level(LOG_OFF);
    arena_init(&fix.arena);
    world_provider(&fix.provider);
    world_tool(&fix.tools[0], "pay", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    world_tool(&fix.tools[1], "refund", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    fix.playbooks[0] = (struct playbook){.name = "refund",
                                         .tool = "refund",
                                         .form = parsed(&fix.arena, FORM),
                                         .proposed = true,
                                         .escalate = "call them"};
    fix.playbooks[1] = (struct playbook){.name = "void", .tool = "refund", .form = parsed(&fix.arena, "{}")};
    fix.tools[0].playbooks = fix.playbooks;
    fix.tools[0].playbook_count = 2;
    *state = &fix;
    return 0;
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    if (fix->world.engine)
        world_release(&fix->world);
    world_reply_release(&fix->paid);
    world_reply_release(&fix->a);
    world_reply_release(&fix->b);
    world_reply_release(&fix->c);
    arena_release(&fix->arena);
    return 0;
}

static struct operation *row(struct fix *fix, const char *id)
{
    struct operation *op = world_row(&fix->world, &fix->arena, id);
    assert_non_null(op);
    return op;
}

static void assert_state(struct fix *fix, const char *id, enum state state)
{
    assert_string_equal(state_name(row(fix, id)->state), state_name(state));
}

static void pay(struct fix *fix)
{
    const struct tool *tools[] = {&fix->tools[0], &fix->tools[1]};
    world_init(&fix->world, tools, 2);
    world_call(&fix->world, "pay", ARGUMENTS, "k1", &fix->paid);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "ch_1");
    world_run(&fix->world);
    assert_int_equal(fix->paid.op.state, STATE_COMPLETED_SUCCESS);
}

static void ask_as(struct fix *fix, const char *who, const char *playbook, struct world_reply *reply)
{
    struct engine_compensation what = {
        .operation = fix->paid.op.id, .playbook = playbook, .actor = who, .own_only = strcmp(who, "boss") != 0};
    engine_compensate(fix->world.engine, &what, world_keep, reply);
}

static void ask(struct fix *fix, const char *playbook, struct world_reply *reply)
{
    ask_as(fix, "boss", playbook, reply);
}

static void ask_now(struct fix *fix, const char *playbook, struct world_reply *reply)
{
    ask(fix, playbook, reply);
    world_run(&fix->world);
    assert_int_equal(reply->count, 1);
}

/* ---- playbooks ---- */

static void test_forms(void **state)
{
    struct fix *fix = *state;
    struct operation op = {.external_id = "ch_1",
                           .tool = "pay",
                           .arguments = STR("{\"amount\":9007199254740993,\"a\":{\"b\":true},\"$result\":1}"),
                           .result = STR("{\"id\":\"r\",\"list\":[1]}")};
    strcpy(op.id, "op_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    static const struct {
        const char *form, *filled; /* NULL: refused */
    } cases[] = {
        {"{\"x\":\"{amount}\"}", "{\"x\":9007199254740993}"}, /* digits are kept */
        {"{\"x\":\"{a.b}\",\"y\":\"no {amount}\"}", "{\"x\":true,\"y\":\"no 9007199254740993\"}"},
        {"{\"x\":[{\"y\":\"{$external_id}\"},1,null]}", "{\"x\":[{\"y\":\"ch_1\"},1,null]}"},
        {"{\"x\":\"{$result.id}\",\"y\":\"{$result.list}\"}", "{\"x\":\"r\",\"y\":[1]}"},
        {"{\"x\":\"{$operation}\"}", "{\"x\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"}"},
        {"{\"x\":\"{missing}\"}", NULL},
        {"{\"x\":\"{$run}\"}", NULL}, /* null never becomes a text */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct json *filled = NULL;
        enum err_code code = playbook_fill(&fix->arena, parsed(&fix->arena, cases[i].form), &op, &filled, &err);
        assert_int_equal(code == ERR_NONE, cases[i].filled != NULL);
        if (cases[i].filled)
            assert_string_equal(json_to_text(&fix->arena, filled).p, cases[i].filled);
        else
            assert_true(strncmp(err.text, "x: ", 3) == 0);
    }
}

/* ---- keys ---- */

static void test_keys_of_compensations_are_no_callers(void **state)
{
    struct fix *fix = *state;
    struct call call = {.tenant = "t", .principal = "p", .idempotency_key = "compensate:op_1:refund"};
    struct operation op = {.id = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"};
    struct admission admission;
    struct identity_error why;
    struct err err = {0};
    const struct json *effective;
    assert_int_equal(
        identity_derive(&call, &fix->tools[1], STR("s"), &fix->arena, &op, &admission, &effective, &why, &err),
        ERR_INVALID);
    assert_int_equal(why.refusal, REFUSAL_KEY_INVALID);
    call.idempotency_key = NULL;
    call.compensates = "op_1";
    call.playbook = "refund";
    assert_int_equal(
        identity_derive(&call, &fix->tools[1], STR("s"), &fix->arena, &op, &admission, &effective, &why, NULL),
        ERR_NONE);
    assert_string_equal(op.key, "compensate:op_1:refund");
    assert_int_equal(op.key_source, KEY_SOURCE_BUSINESS);
    assert_true(admission.share_with_tenant && !admission.hold_in_doubt);
}

/* ---- the step ---- */

static void test_incidents_propose_a_playbook(void **state)
{
    struct fix *fix = *state;
    struct operation op = {.state = STATE_UNKNOWN_OUTCOME, .may_have_applied = true, .unknown_since_ms = 1, .rev = 3};
    struct step_effects effects;
    struct step_input in = {.kind = STEP_EVIDENCE,
                            .now_ms = 5,
                            .arena = &fix->arena,
                            .finding = {.outcome = OUTCOME_SEVERAL, .detail = "2 matches", .external_id = "ch_1"}};
    assert_int_equal(step(&op, &fix->tools[0], &in, &effects, NULL), 0);
    assert_int_equal(effects.incident_count, 1);
    assert_string_equal(effects.incidents[0].note,
                        "2 matches; playbook refund (refund) would undo the recorded effect");
    assert_int_equal(effects.action, ACTION_NONE); /* nothing is undone by itself */
}

static void test_only_success_is_undone(void **state)
{
    (void)state;
    for (int i = 0; i < STATE_COUNT; i++) {
        struct operation op = {.state = (enum state)i, .rev = 1};
        struct step_effects effects;
        struct err err = {0};
        struct step_input in = {.kind = STEP_COMPENSATE, .now_ms = 5, .compensation = "op_2"};
        if (state_terminal(op.state))
            op.completed_ms = 1;
        enum err_code code = step(&op, NULL, &in, &effects, &err);
        assert_int_equal(code, i == STATE_COMPLETED_SUCCESS ? ERR_NONE : ERR_CONFLICT);
        assert_int_equal(op.state, i == STATE_COMPLETED_SUCCESS ? STATE_COMPENSATING : (enum state)i);
    }
    struct operation chained = {.state = STATE_COMPLETED_SUCCESS, .completed_ms = 1, .rev = 1, .compensates = "op_1"};
    struct step_input in = {.kind = STEP_COMPENSATE, .now_ms = 5, .compensation = "op_2"};
    struct step_effects effects;
    struct err err = {0};
    assert_int_equal(step(&chained, NULL, &in, &effects, &err), ERR_CONFLICT);
}

/* ---- the engine ---- */

static void test_it_is_undone_once(void **state)
{
    struct fix *fix = *state;
    pay(fix);
    ask(fix, "refund", &fix->a);
    ask(fix, "refund", &fix->b); /* both have looked before either is admitted */
    world_run(&fix->world);
    assert_int_equal(fix->a.kind, REPLY_OPERATION);
    assert_int_equal(fix->b.kind, REPLY_OPERATION);
    assert_string_equal(fix->a.op.id, fix->b.op.id);
    assert_int_equal(fix->a.replayed + fix->b.replayed, 1);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_equal(fix->world.sent[1].arguments,
                        "{\"payment\":\"ch_1\",\"amount\":9007199254740993,\"why\":[\"order o1\"]}");
    assert_state(fix, fix->paid.op.id, STATE_COMPENSATING);
    ask_now(fix, "void", &fix->c);
    assert_int_equal(fix->c.kind, REPLY_IMPOSSIBLE);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_1");
    world_run(&fix->world);
    assert_state(fix, fix->paid.op.id, STATE_COMPENSATED);
    world_reply_release(&fix->c);
    ask_now(fix, "refund", &fix->c);
    assert_string_equal(fix->c.op.id, fix->a.op.id);
    assert_true(fix->c.replayed);
    assert_int_equal(fix->world.sent_count, 2);
}

static void test_who_waits_for_the_original_is_told(void **state)
{
    struct fix *fix = *state;
    pay(fix);
    ask_now(fix, "refund", &fix->a);
    engine_wait(fix->world.engine, NULL, fix->paid.op.id, 60000, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.count, 0);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_1");
    world_run(&fix->world);
    assert_int_equal(fix->b.count, 1);
    assert_int_equal(fix->b.op.state, STATE_COMPENSATED);
    assert_false(fix->b.waited_out);
}

static void test_a_repeat_of_the_call_is_told_what_became_of_it(void **state)
{
    struct fix *fix = *state;
    pay(fix);
    world_call(&fix->world, "pay", ARGUMENTS, "k1", &fix->b); /* kept in memory as done */
    assert_int_equal(fix->b.op.state, STATE_COMPLETED_SUCCESS);
    ask_now(fix, "refund", &fix->a);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_1");
    world_run(&fix->world);
    world_call(&fix->world, "pay", ARGUMENTS, "k1", &fix->c);
    assert_int_equal(fix->c.op.state, STATE_COMPENSATED);
    assert_int_equal(fix->world.sent_count, 2);
}

static void test_a_crash_leaves_both(void **state)
{
    struct fix *fix = *state;
    pay(fix);
    ask_now(fix, "refund", &fix->a);
    world_crash(&fix->world);
    world_advance(&fix->world, 120000); /* the lease ends; the provider is asked again under the same key */
    assert_state(fix, fix->paid.op.id, STATE_COMPENSATING);
    assert_true(fix->world.sent_count > 2);
    size_t last = fix->world.sent_count - 1;
    assert_string_equal(fix->world.sent[last].operation, fix->a.op.id);
    assert_string_equal(fix->world.sent[last].provider_key, fix->world.sent[1].provider_key);
    world_answer(&fix->world, last, fix->world.sent[last].kind == ATTEMPT_CALL ? OUTCOME_SUCCESS : OUTCOME_FOUND,
                 "re_1");
    world_advance(&fix->world, 1000);
    for (size_t i = last + 1; i < fix->world.sent_count; i++) { /* effects are counted after a re-send */
        world_answer(&fix->world, i, OUTCOME_FOUND, "re_1");
        world_advance(&fix->world, 1000);
    }
    assert_state(fix, fix->a.op.id, STATE_COMPLETED_SUCCESS);
    assert_state(fix, fix->paid.op.id, STATE_COMPENSATED);
}

static void test_a_failure_gives_it_back_and_can_be_retried(void **state)
{
    struct fix *fix = *state;
    pay(fix);
    ask_now(fix, "refund", &fix->a);
    world_answer(&fix->world, 1, OUTCOME_REFUSED, NULL);
    world_run(&fix->world);
    struct operation *op = row(fix, fix->paid.op.id);
    assert_int_equal(op->state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(op->reason, REASON_COMPENSATION_FAILED);
    ask_now(fix, "refund", &fix->b); /* asked for again: the same answer */
    assert_string_equal(fix->b.op.id, fix->a.op.id);
    assert_int_equal(fix->world.sent_count, 2);
    struct engine_decision retry = {.kind = DECISION_RETRY, .operation = fix->a.op.id, .actor = "boss"};
    engine_decide(fix->world.engine, &retry, world_keep, &fix->c);
    world_run(&fix->world);
    assert_int_equal(fix->c.kind, REPLY_OPERATION);
    assert_int_equal(fix->c.op.key_version, 2);
    assert_string_equal(row(fix, fix->c.op.id)->compensates, fix->paid.op.id);
    assert_state(fix, fix->paid.op.id, STATE_COMPENSATING);
    world_answer(&fix->world, 2, OUTCOME_SUCCESS, "re_2");
    world_run(&fix->world);
    assert_state(fix, fix->paid.op.id, STATE_COMPENSATED);
}

static void test_refusals(void **state)
{
    struct fix *fix = *state;
    struct err err = {0};
    struct jq_program *when = NULL;
    assert_int_equal(jq_program_new(".arguments.amount < 5", false, &when, &err), 0);
    fix->playbooks[0].when = when;
    pay(fix);
    ask_now(fix, "refund", &fix->a);
    assert_int_equal(fix->a.kind, REPLY_IMPOSSIBLE);
    assert_non_null(strstr(fix->a.text, "does not hold"));
    ask_now(fix, "undo", &fix->b);
    assert_int_equal(fix->b.kind, REPLY_IMPOSSIBLE);
    assert_non_null(strstr(fix->b.text, "only refund, void"));
    ask_as(fix, "somebody", "void", &fix->c);
    world_run(&fix->world);
    assert_int_equal(fix->c.kind, REPLY_IMPOSSIBLE);
    assert_non_null(strstr(fix->c.text, "only the principal that called it"));
    assert_state(fix, fix->paid.op.id, STATE_COMPLETED_SUCCESS);
    assert_int_equal(fix->world.sent_count, 1);
    jq_program_free(when);
}

static void test_people_are_asked_where_the_playbook_says_so(void **state)
{
    struct fix *fix = *state;
    fix->playbooks[0].needs_approval = true;
    fix->tools[1].approval = (struct approval_policy){.approvers = 1, .expires_ms = 60000, .policy = "p"};
    pay(fix);
    ask_now(fix, "refund", &fix->a);
    assert_int_equal(fix->a.op.reason, REASON_AWAITING_APPROVAL);
    assert_int_equal(fix->world.sent_count, 1);
    world_advance(&fix->world, 61000); /* nobody decides: it still stands */
    assert_state(fix, fix->a.op.id, STATE_REJECTED);
    assert_state(fix, fix->paid.op.id, STATE_COMPLETED_SUCCESS);
    ask_now(fix, "refund", &fix->b); /* asks anew */
    assert_int_equal(fix->b.op.key_version, 2);
    assert_state(fix, fix->paid.op.id, STATE_COMPENSATING);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_forms),
        T(test_keys_of_compensations_are_no_callers),
        T(test_incidents_propose_a_playbook),
        T(test_only_success_is_undone),
        T(test_it_is_undone_once),
        T(test_who_waits_for_the_original_is_told),
        T(test_a_repeat_of_the_call_is_told_what_became_of_it),
        T(test_a_crash_leaves_both),
        T(test_a_failure_gives_it_back_and_can_be_retried),
        T(test_refusals),
        T(test_people_are_asked_where_the_playbook_says_so),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
