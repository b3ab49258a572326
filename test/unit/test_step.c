#include "core/step.h"
#include "support/life.h"
#include "support/test.h"
#include "support/world.h"

#include <string.h>

/* ---- random lives: whatever comes in whatever order, the model of support/life.h finds nothing ---- */

struct walk {
    struct life life;
    struct operation op;
    struct provider provider;
    struct tool tool;
    int64_t now;
    uint64_t seed, state;
    bool lookup_on_wire;
};

static uint64_t draw(struct walk *walk, uint64_t n)
{
    walk->state = walk->state * 6364136223846793005u + 1442695040888963407u;
    return (walk->state >> 33) % n;
}

static void choose_tool(struct walk *walk)
{
    struct tool *tool = &walk->tool;
    world_provider(&walk->provider);
    walk->provider.key_honoured = draw(walk, 2);
    walk->provider.key_retention_ms = draw(walk, 2) ? 86400000 : 30000;
    world_tool(tool, "t", (enum tool_class)(1 + draw(walk, 4)), &walk->provider);
    tool->idempotent_by = (enum idempotent_by)draw(walk, 3);
    tool->has_lookup = draw(walk, 3) > 0;
    tool->retry.attempts_max = (unsigned)draw(walk, 4) + 1;
    tool->retry.total_ms = draw(walk, 2) ? 3600000 : 60000;
    tool->retain_ms = draw(walk, 2) ? tool->retain_ms : 100000;
}

static void begin_life(struct walk *walk, uint64_t seed)
{
    memset(walk, 0, sizeof *walk);
    walk->seed = walk->state = seed;
    draw(walk, 2);
    choose_tool(walk);
    walk->now = 1800000000000;
    walk->op = (struct operation){.tenant = "a", .tool = "t", .principal = "p", .key = "k", .rev = 1, .key_version = 1};
    memcpy(walk->op.id, "op_01MCC5RM00D6J0D89EBFQAC9QQ", OPERATION_ID_SIZE);
    walk->op.created_ms = walk->op.wake_at_ms = walk->now;
    walk->op.state = STATE_PENDING_DISPATCH;
    uint64_t first = draw(walk, 4);
    if (first == 0) {
        walk->op.state = STATE_PLANNED;
        walk->op.not_before_ms = walk->op.wake_at_ms = walk->now + (int64_t)draw(walk, 100000);
    } else if (first == 1) {
        walk->op.state = STATE_DISPATCHED;
        walk->op.may_have_applied = true;
        walk->op.attempts = walk->op.tries = 1;
        walk->op.first_sent_ms = walk->op.last_sent_ms = walk->now;
    }
    life_begin(&walk->life, &walk->op);
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

static void choose_finding(struct walk *walk, struct finding *finding, bool look_up)
{
    static const char *const ids[] = {"x", "y", NULL};
    finding->outcome = look_up ? lookup_outcomes[draw(walk, sizeof lookup_outcomes / sizeof *lookup_outcomes)]
                               : call_outcomes[draw(walk, sizeof call_outcomes / sizeof *call_outcomes)];
    finding->external_id = ids[draw(walk, 3)];
    finding->retry_after_ms = draw(walk, 3) ? 0 : (int64_t)draw(walk, 50000);
    finding->http_status = 200 + (int)draw(walk, 400);
}

static struct step_input choose(struct walk *walk)
{
    struct step_input in = {.now_ms = walk->now, .random = draw(walk, 1000000), .owner = "gw_1", .lease_ms = 40000};
    bool on_wire = walk->op.state == STATE_DISPATCHED;
    static const enum step_kind idle[] = {STEP_RESOLVE,  STEP_RETRY,  STEP_CANCEL,       STEP_EVIDENCE,
                                          STEP_EVIDENCE, STEP_ANSWER, STEP_LOOKUP_ANSWER};
    if (on_wire && draw(walk, 8)) {
        in.kind = STEP_ANSWER;
    } else if (on_wire) {
        static const enum step_kind meanwhile[] = {STEP_OWNER_GONE, STEP_OWNER_GONE, STEP_EVIDENCE, STEP_CANCEL,
                                                   STEP_RESOLVE};
        in.kind = meanwhile[draw(walk, 5)];
    } else if (walk->lookup_on_wire && draw(walk, 8)) {
        in.kind = STEP_LOOKUP_ANSWER;
    } else {
        in.kind = draw(walk, 20) < 16 ? STEP_WAKE : idle[draw(walk, sizeof idle / sizeof *idle)];
    }
    choose_finding(walk, &in.finding, in.kind == STEP_LOOKUP_ANSWER || (in.kind == STEP_EVIDENCE && draw(walk, 2)));
    in.happened = draw(walk, 2);
    in.allow_retry = draw(walk, 2);
    if (in.kind == STEP_RESOLVE || in.kind == STEP_RETRY || in.kind == STEP_CANCEL)
        in.actor = "ann", in.note = "because";
    return in;
}

static enum step_action take(struct walk *walk, const struct step_input *in)
{
    const struct tool *tool = draw(walk, 50) ? &walk->tool : NULL; /* a reload took it away */
    struct operation before = walk->op;
    struct step_effects fx;
    struct err err = {0};
    enum err_code code = step(&walk->op, tool, in, &fx, &err);
    if (!life_check(&walk->life, tool, in, &before, &walk->op, &fx, code))
        fail_msg("seed %llu, step kind %d, outcome %s, from %s to %s: %s", (unsigned long long)walk->seed,
                 (int)in->kind, outcome_name(in->finding.outcome), state_name(before.state), state_name(walk->op.state),
                 walk->life.broken);
    return fx.action;
}

static void live(uint64_t seed)
{
    struct walk walk;
    begin_life(&walk, seed);
    for (int i = 0; i < 60; i++) {
        bool idle = walk.op.state != STATE_DISPATCHED && !walk.lookup_on_wire;
        walk.now += (int64_t)draw(&walk, 20000);
        if (walk.op.wake_at_ms > walk.now && idle && draw(&walk, 4))
            walk.now = walk.op.wake_at_ms;
        struct step_input in = choose(&walk);
        enum step_action action = take(&walk, &in);
        walk.lookup_on_wire = false;
        if (action == ACTION_EXPIRE)
            return;
        if (action == ACTION_NONE)
            continue;
        struct step_input begin = {
            .now_ms = walk.now, .owner = "gw_1", .lease_ms = 40000, .attempt = walk.op.tries + 1, .kind = STEP_HOLD};
        begin.hold_reason = draw(&walk, 2) ? REASON_QUEUED : REASON_CIRCUIT_OPEN;
        begin.hold_until_ms = walk.now + 1000;
        if (draw(&walk, 5))
            begin.kind = action == ACTION_SEND ? STEP_DISPATCH : STEP_LOOKUP_BEGIN;
        take(&walk, &begin);
        walk.lookup_on_wire = begin.kind == STEP_LOOKUP_BEGIN;
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

/* ---- found by the simulator ---- */

static void begin_closed(struct walk *walk)
{
    memset(walk, 0, sizeof *walk);
    world_provider(&walk->provider);
    world_tool(&walk->tool, "t", CLASS_EXTERNAL_WEAK, &walk->provider);
    walk->now = 1800000000000;
    walk->op = (struct operation){.tenant = "a", .tool = "t", .principal = "p", .key = "k", .rev = 1, .key_version = 1};
    walk->op.state = STATE_DISPATCHED;
    walk->op.may_have_applied = true;
    walk->op.attempts = walk->op.tries = 1;
    walk->op.created_ms = walk->op.first_sent_ms = walk->op.last_sent_ms = walk->now;
}

static struct step_effects do_step(struct walk *walk, const struct tool *tool, struct step_input in)
{
    struct step_effects fx;
    struct err err = {0};
    in.now_ms = walk->now;
    in.owner = "gw_1";
    in.lease_ms = 40000;
    assert_int_equal(step(&walk->op, tool, &in, &fx, &err), ERR_NONE);
    return fx;
}

/* A watch (7.3) whose time comes while a reload has taken the tool away is late, not lost (simulator, seed 156). */
static void test_watch_outlasts_a_missing_tool(void **state)
{
    struct walk walk;
    (void)state;
    begin_closed(&walk);
    do_step(&walk, &walk.tool, (struct step_input){.kind = STEP_ANSWER, .finding = {.outcome = OUTCOME_TIMEOUT}});
    for (unsigned i = 0; i < walk.tool.reconcile.absent_times; i++) {
        walk.now += walk.tool.reconcile.settle_ms;
        do_step(&walk, &walk.tool, (struct step_input){.kind = STEP_LOOKUP_ANSWER, .finding.outcome = OUTCOME_ABSENT});
    }
    assert_int_equal(walk.op.state, STATE_FAILED_PERMANENT);
    walk.now = walk.op.wake_at_ms;
    do_step(&walk, NULL, (struct step_input){.kind = STEP_WAKE});
    assert_true(walk.op.wake_at_ms > walk.now && walk.op.wake_at_ms < walk.now + 600000);
    walk.now = walk.op.wake_at_ms;
    assert_int_equal(do_step(&walk, &walk.tool, (struct step_input){.kind = STEP_WAKE}).action, ACTION_LOOKUP);
}

/* What ends while its tool is missing is not kept for ever (simulator, seed 130). */
static void test_end_without_a_tool_has_a_retention(void **state)
{
    struct walk walk;
    (void)state;
    begin_closed(&walk);
    do_step(&walk, NULL, (struct step_input){.kind = STEP_ANSWER, .finding = {.outcome = OUTCOME_SUCCESS}});
    assert_int_equal(walk.op.state, STATE_COMPLETED_SUCCESS);
    assert_true(walk.op.retain_until_ms > walk.now);
    assert_int_equal(walk.op.wake_at_ms, walk.op.retain_until_ms);
}

/* A repeat without a key finds the row or nothing: it is kept for the whole window and a call made within it may be
 * on its way for a while (2.2.5; simulator, seeds 136, 1060). */
static void test_row_is_kept_for_the_repeat_window(void **state)
{
    struct walk walk;
    (void)state;
    begin_closed(&walk);
    walk.tool.retain_ms = 60000;
    walk.tool.repeat_window_ms = 600000;
    do_step(&walk, &walk.tool, (struct step_input){.kind = STEP_ANSWER, .finding = {.outcome = OUTCOME_SUCCESS}});
    assert_true(walk.op.retain_until_ms > walk.now + 600000 + ENGINE_WAIT_MS_MAX);
}

/* A provider may still be at work when the connection has broken or the gateway has died: as long as an attempt may
 * last, absence proves nothing (7.1; simulator, seed 4384). */
static void test_absence_waits_for_a_provider_at_work(void **state)
{
    static const enum step_kind ends[] = {STEP_ANSWER, STEP_OWNER_GONE};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct walk walk;
        begin_closed(&walk);
        walk.tool.reconcile.absent_times = 1;
        do_step(&walk, &walk.tool, (struct step_input){.kind = ends[i], .finding.outcome = OUTCOME_CONNECTION_LOST});
        walk.now += walk.provider.timeout_ms + walk.tool.reconcile.settle_ms - 1;
        do_step(&walk, &walk.tool, (struct step_input){.kind = STEP_LOOKUP_ANSWER, .finding.outcome = OUTCOME_ABSENT});
        assert_int_equal(walk.op.state, STATE_UNKNOWN_OUTCOME);
        walk.now++;
        do_step(&walk, &walk.tool, (struct step_input){.kind = STEP_LOOKUP_ANSWER, .finding.outcome = OUTCOME_ABSENT});
        assert_int_equal(walk.op.state, STATE_FAILED_PERMANENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_random_lives),
        cmocka_unit_test(test_watch_outlasts_a_missing_tool),
        cmocka_unit_test(test_end_without_a_tool_has_a_retention),
        cmocka_unit_test(test_row_is_kept_for_the_repeat_window),
        cmocka_unit_test(test_absence_waits_for_a_provider_at_work),
    };
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
