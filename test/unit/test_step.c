#include "core/step.h"
#include "support/test.h"
#include "support/world.h"

#include <string.h>

/* Random lives: whatever events come in whatever order, the rules of design 3 hold after each (step.c asserts its own
 * invariants; here stand those that need memory of the past). */

struct life {
    struct operation op;
    struct provider provider;
    struct tool tool;
    int64_t now;
    uint64_t seed;
    bool on_wire, lookup_on_wire;
    bool doubt; /* an ambiguous answer or a lost owner is not disproved */
};

static uint64_t draw(struct life *life, uint64_t n)
{
    life->seed = life->seed * 6364136223846793005u + 1442695040888963407u;
    return (life->seed >> 33) % n;
}

static void begin_life(struct life *life, uint64_t seed)
{
    memset(life, 0, sizeof *life);
    life->seed = seed;
    draw(life, 2);
    world_provider(&life->provider);
    life->provider.key_honoured = draw(life, 2);
    world_tool(&life->tool, "t", (enum tool_class)(1 + draw(life, 4)), &life->provider);
    life->tool.has_lookup = draw(life, 3) > 0;
    life->tool.retry.attempts_max = (unsigned)draw(life, 4) + 1;
    life->now = 1800000000000;
    life->op = (struct operation){.tenant = "a", .tool = "t", .principal = "p", .key = "k", .rev = 1, .key_version = 1};
    memcpy(life->op.id, "op_01MCC5RM00D6J0D89EBFQAC9QQ", OPERATION_ID_SIZE);
    life->op.created_ms = life->now;
    life->op.state = STATE_PENDING_DISPATCH;
    life->op.wake_at_ms = life->now;
}

static const enum outcome call_outcomes[] = {
    OUTCOME_NOT_SENT,       OUTCOME_SUCCESS,         OUTCOME_NOOP,       OUTCOME_ACCEPTED,
    OUTCOME_REFUSED,        OUTCOME_NOT_PROCESSED,   OUTCOME_KEY_IN_USE, OUTCOME_TIMEOUT,
    OUTCOME_PROVIDER_ERROR, OUTCOME_CONNECTION_LOST, OUTCOME_UNREADABLE, OUTCOME_WRONG_OBJECT,
};
static const enum outcome lookup_outcomes[] = {
    OUTCOME_FOUND,   OUTCOME_SEVERAL,      OUTCOME_ABSENT,       OUTCOME_ABSENT,      OUTCOME_ABSENT,
    OUTCOME_PENDING, OUTCOME_FAILED_THERE, OUTCOME_WRONG_OBJECT, OUTCOME_CANNOT_TELL, OUTCOME_TIMEOUT,
};

static bool ambiguous(enum outcome outcome)
{
    return outcome == OUTCOME_KEY_IN_USE || outcome == OUTCOME_TIMEOUT || outcome == OUTCOME_PROVIDER_ERROR ||
           outcome == OUTCOME_CONNECTION_LOST || outcome == OUTCOME_UNREADABLE || outcome == OUTCOME_WRONG_OBJECT ||
           outcome == OUTCOME_ACCEPTED;
}

static bool says_no_effect(enum state state)
{
    return state == STATE_FAILED_RETRYABLE || state == STATE_FAILED_PERMANENT || state == STATE_REJECTED;
}

static struct step_input choose(struct life *life)
{
    struct step_input in = {.now_ms = life->now, .random = draw(life, 1000000), .owner = "gw_1", .lease_ms = 40000};
    if (life->on_wire) {
        in.kind = draw(life, 8) ? STEP_ANSWER : STEP_OWNER_GONE;
        in.finding.outcome = call_outcomes[draw(life, sizeof call_outcomes / sizeof *call_outcomes)];
        in.finding.external_id = "x";
    } else if (life->lookup_on_wire) {
        in.kind = STEP_LOOKUP_ANSWER;
        in.finding.outcome = lookup_outcomes[draw(life, sizeof lookup_outcomes / sizeof *lookup_outcomes)];
    } else {
        static const enum step_kind idle[] = {STEP_WAKE,  STEP_WAKE,   STEP_WAKE,    STEP_RESOLVE,
                                              STEP_RETRY, STEP_CANCEL, STEP_EVIDENCE};
        in.kind = idle[draw(life, 20) < 16 ? 0 : draw(life, 7)];
        in.happened = draw(life, 2);
        in.allow_retry = draw(life, 2);
        in.actor = "ann";
        in.note = "because";
        in.finding.outcome = call_outcomes[draw(life, 4)];
    }
    return in;
}

static void track(struct life *life, const struct step_input *in, enum state before)
{
    bool lost = in->kind == STEP_OWNER_GONE && before == STATE_DISPATCHED;
    if (lost || (in->kind == STEP_ANSWER && before == STATE_DISPATCHED && ambiguous(in->finding.outcome)))
        life->doubt = true;
    bool proof = in->kind == STEP_RESOLVE || in->kind == STEP_LOOKUP_ANSWER || in->kind == STEP_EVIDENCE ||
                 life->op.state == STATE_COMPLETED_SUCCESS || life->op.state == STATE_COMPLETED_NOOP;
    if (life->doubt && says_no_effect(life->op.state) && !proof)
        fail_msg("doubt was closed by step %d with outcome %s", in->kind, outcome_name(in->finding.outcome));
    if (state_terminal(life->op.state) || life->op.state == STATE_FAILED_RETRYABLE)
        life->doubt = false;
}

static void live(uint64_t seed)
{
    struct life life;
    begin_life(&life, seed);
    for (int i = 0; i < 60; i++) {
        life.now += (int64_t)draw(&life, 20000);
        if (life.op.wake_at_ms > life.now && !life.on_wire && !life.lookup_on_wire && draw(&life, 4))
            life.now = life.op.wake_at_ms;
        struct step_input in = choose(&life);
        struct operation before = life.op;
        struct step_effects fx;
        struct err err = {0};
        enum err_code code = step(&life.op, &life.tool, &in, &fx, &err);
        life.on_wire = life.lookup_on_wire = false;
        if (code) {
            assert_memory_equal(&before, &life.op, sizeof before);
            continue;
        }
        assert_int_equal(life.op.rev, before.rev + (fx.changed ? 1 : 0));
        bool evidence = in.kind == STEP_EVIDENCE || in.kind == STEP_LOOKUP_ANSWER || in.kind == STEP_RESOLVE;
        if (state_terminal(before.state) && life.op.state != before.state)
            assert_true(evidence && says_no_effect(before.state) && life.op.state == STATE_COMPLETED_SUCCESS);
        track(&life, &in, before.state);
        if (life.tool.class == CLASS_EXTERNAL_WEAK || life.tool.class == CLASS_EXTERNAL_IRREVERSIBLE)
            if (fx.action == ACTION_SEND && before.state == STATE_UNKNOWN_OUTCOME)
                fail_msg("a weak tool was sent again from unknown_outcome (seed %llu)", (unsigned long long)seed);
        if (!state_terminal(life.op.state) && fx.action == ACTION_NONE && life.op.wake_at_ms == 0)
            assert_int_equal(life.op.reason, REASON_NEEDS_OPERATOR); /* every operation ends or waits for a person */
        if (fx.action == ACTION_SEND || fx.action == ACTION_LOOKUP) {
            struct step_input begin = in;
            begin.kind = fx.action == ACTION_SEND ? STEP_DISPATCH : STEP_LOOKUP_BEGIN;
            begin.actor = NULL;
            assert_int_equal(step(&life.op, &life.tool, &begin, &fx, &err), 0);
            life.on_wire = begin.kind == STEP_DISPATCH;
            life.lookup_on_wire = !life.on_wire;
        }
        if (fx.action == ACTION_EXPIRE)
            return;
    }
}

static void test_random_lives(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20000; seed++)
        live(seed * 7919);
}

static void test_table(void **state)
{
    (void)state;
    for (int from = 0; from < STATE_COUNT; from++) {
        assert_false(state_may_move((enum state)from, (enum state)from, false));
        for (int to = 0; to < STATE_COUNT; to++) {
            bool allowed = state_may_move((enum state)from, (enum state)to, false);
            if (state_terminal((enum state)from) && allowed)
                assert_true(from == STATE_COMPLETED_SUCCESS && to == STATE_COMPENSATING);
            if (to == STATE_PLANNED)
                assert_false(allowed);
        }
    }
    /* 3.3: nothing leads from dispatched back to "nothing has left" */
    assert_false(state_may_move(STATE_DISPATCHED, STATE_PENDING_DISPATCH, true));
    assert_false(state_may_move(STATE_UNKNOWN_OUTCOME, STATE_REJECTED, true));
    /* 3.4 */
    assert_false(state_may_move(STATE_FAILED_PERMANENT, STATE_COMPLETED_SUCCESS, false));
    assert_true(state_may_move(STATE_FAILED_PERMANENT, STATE_COMPLETED_SUCCESS, true));
    assert_false(state_may_move(STATE_COMPLETED_NOOP, STATE_COMPLETED_SUCCESS, true));
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < STATE_COUNT; i++) {
        enum state found;
        assert_true(state_from_name(str_of(state_name((enum state)i)), &found));
        assert_int_equal(found, i);
    }
    enum reason reason;
    assert_true(reason_from_name(STR("needs_operator"), &reason));
    assert_int_equal(reason, REASON_NEEDS_OPERATOR);
    assert_false(reason_from_name(STR("whatever"), &reason));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_random_lives),
    };
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
