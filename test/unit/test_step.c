#include "core/approval.h"
#include "core/inbox.h"
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
    bool claims; /* it works on entities that others may hold */
    int undoings;
    const char *undoing; /* the latest */
    struct inbound event;
    struct inbound_standing standing;
    struct arena arena;
    unsigned *seen; /* how often each kind of step changed something, over all lives */
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

/* What the tool asks of people, or that the application performs it itself. */
static void choose_policy(struct walk *walk)
{
    struct tool *tool = &walk->tool;
    tool->approval.approvers = (unsigned)draw(walk, 3) + 1;
    tool->approval.expires_ms = draw(walk, 3) ? 3600000 : 50000;
    tool->approval.policy = "one";
    walk->claims = draw(walk, 3) == 0;
    if (draw(walk, 5))
        return;
    tool->guard_lease_ms = 30000;
    tool->class = CLASS_EXTERNAL_WEAK;
    tool->has_lookup = false;
    tool->reconcile.strategies[0] = STRATEGY_MANUAL;
    tool->reconcile.strategy_count = 1;
}

static void begin_life(struct walk *walk, uint64_t seed)
{
    memset(walk, 0, sizeof *walk);
    arena_init(&walk->arena);
    walk->seed = walk->state = seed;
    draw(walk, 2);
    choose_tool(walk);
    choose_policy(walk);
    walk->now = 1800000000000;
    walk->op = (struct operation){.tenant = "a", .tool = "t", .principal = "p", .key = "k", .rev = 1, .key_version = 1};
    memcpy(walk->op.id, "op_01MCC5RM00D6J0D89EBFQAC9QQ", OPERATION_ID_SIZE);
    walk->op.created_ms = walk->op.wake_at_ms = walk->now;
    walk->op.state = STATE_PENDING_DISPATCH;
    uint64_t first = draw(walk, 6);
    if (first == 0) {
        walk->op.state = STATE_PLANNED;
        walk->op.not_before_ms = walk->op.wake_at_ms = walk->now + (int64_t)draw(walk, 100000);
    } else if (first < 3) {
        walk->op.state = STATE_PLANNED;
        walk->op.reason = REASON_AWAITING_APPROVAL;
        walk->op.approval = approval_request(&walk->arena, &walk->tool.approval, walk->now);
        walk->op.not_before_ms = draw(walk, 2) ? 0 : walk->now + (int64_t)draw(walk, 100000);
        walk->op.wake_at_ms = approval_open_until(&walk->op);
    } else if (first == 3) {
        walk->op.state = STATE_DISPATCHED;
        walk->op.may_have_applied = true;
        walk->op.attempts = walk->op.tries = 1;
        walk->op.first_sent_ms = walk->op.last_sent_ms = walk->now;
    }
    life_begin(&walk->life, &walk->op);
    walk->life.policy = walk->tool.approval.policy;
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

/* ---- what else may come, by what the operation is ---- */

static void choose_decision(struct walk *walk, struct step_input *in)
{
    static const char *const people[] = {"ann", "bob", "cid", "p"}; /* p calls the tool */
    in->kind = draw(walk, 8) ? STEP_APPROVAL : STEP_LINK;
    in->actor = people[draw(walk, 4)];
    in->approver = people[draw(walk, 4)];
    in->approve = draw(walk, 5) > 0;
    in->note = draw(walk, 2) ? "because" : NULL;
    if (draw(walk, 30) == 0)
        walk->tool.approval.policy = "another"; /* a reload */
}

static void choose_undoing(struct walk *walk, struct step_input *in)
{
    static const enum state ends[] = {STATE_COMPLETED_SUCCESS, STATE_COMPLETED_NOOP, STATE_FAILED_PERMANENT,
                                      STATE_REJECTED};
    static const enum reason reasons[] = {REASON_NONE, REASON_DENIED, REASON_CANCELLED};
    if (walk->undoing == NULL || (walk->op.state == STATE_COMPLETED_SUCCESS && draw(walk, 3))) {
        in->kind = STEP_COMPENSATE;
        in->compensation = arena_printf(&walk->arena, "op_undo_%d", walk->undoings + 1);
        return;
    }
    in->kind = STEP_COMPENSATION_ENDED;
    in->compensation = draw(walk, 8) ? walk->undoing : "op_undo_1"; /* an earlier one, late */
    in->ended = ends[draw(walk, 4)];
    in->ended_reason = reasons[draw(walk, 3)];
    if (walk->op.state == STATE_COMPENSATED && text_equal(walk->op.compensation, in->compensation))
        in->ended = STATE_FAILED_PERMANENT; /* told once only */
}

/* Events are signed at any time, and come in any order. */
static void choose_event(struct walk *walk, struct step_input *in)
{
    static const enum inbound_outcome outcomes[] = {INBOUND_PENDING, INBOUND_FAILED, INBOUND_NO_EFFECT,
                                                    INBOUND_NO_EFFECT, INBOUND_SUCCESS};
    in->kind = STEP_INBOUND;
    walk->event = (struct inbound){.source = "s", .event = "e", .received_ms = walk->now};
    walk->event.created_ms = walk->now - (int64_t)draw(walk, 60000);
    walk->event.outcome = outcomes[draw(walk, 5)];
    in->event = &walk->event;
    in->standing = &walk->standing;
}

/* False: nothing of the kind; then the usual. */
static bool choose_more(struct walk *walk, struct step_input *in)
{
    enum state state = walk->op.state;
    bool undone = state == STATE_COMPLETED_SUCCESS || state == STATE_COMPENSATING || state == STATE_COMPENSATED;
    bool performed = walk->tool.guard_lease_ms > 0 && !walk->op.owner && approval_complete(&walk->op) &&
                     (state == STATE_PENDING_DISPATCH || state == STATE_FAILED_RETRYABLE);
    if (performed && draw(walk, 2)) { /* an executor begins */
        in->kind = STEP_DISPATCH;
        in->owner = "guard:1";
        in->lease_ms = walk->tool.guard_lease_ms;
        in->attempt = walk->op.tries + 1;
    } else if (walk->tool.guard_lease_ms > 0 && state == STATE_DISPATCHED && draw(walk, 3) == 0) {
        in->kind = STEP_RENEW;
        in->owner = walk->op.owner ? walk->op.owner : "guard:1";
        in->lease_ms = walk->tool.guard_lease_ms;
    } else if (state == STATE_PLANNED && walk->op.approval.p && draw(walk, 3)) {
        choose_decision(walk, in);
    } else if (undone && draw(walk, 4) == 0) {
        choose_undoing(walk, in);
    } else if (!step_waits_for_answer(&walk->op) && draw(walk, 12) == 0) {
        choose_event(walk, in);
    } else {
        return false;
    }
    return true;
}

static struct step_input choose(struct walk *walk)
{
    struct step_input in = {.now_ms = walk->now,
                            .random = draw(walk, 1000000),
                            .owner = "gw_1",
                            .lease_ms = 40000,
                            .attempt = draw(walk, 4) ? walk->op.tries : 1,
                            .arena = &walk->arena};
    bool on_wire = walk->op.state == STATE_DISPATCHED;
    static const enum step_kind idle[] = {STEP_RESOLVE,  STEP_RETRY,  STEP_CANCEL,       STEP_EVIDENCE,
                                          STEP_EVIDENCE, STEP_ANSWER, STEP_LOOKUP_ANSWER};
    if (choose_more(walk, &in)) {
        choose_finding(walk, &in.finding, false);
        return in;
    }
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
    bool needs_tool = in->kind == STEP_AWAIT_ENTITY || in->kind == STEP_REFUSE || in->owner[0] != 'g';
    const struct tool *tool = needs_tool || draw(walk, 50) ? &walk->tool : NULL; /* a reload took it away */
    struct operation before = walk->op;
    struct step_effects fx;
    struct err err = {0};
    enum err_code code = step(&walk->op, tool, in, &fx, &err);
    if (!life_check(&walk->life, tool, in, &before, &walk->op, &fx, code))
        fail_msg("seed %llu, step kind %d, outcome %s, from %s to %s: %s", (unsigned long long)walk->seed,
                 (int)in->kind, outcome_name(in->finding.outcome), state_name(before.state), state_name(walk->op.state),
                 walk->life.broken);
    if (code == ERR_NONE && fx.changed) {
        walk->seen[in->kind]++;
        if (in->kind == STEP_COMPENSATE)
            walk->undoing = in->compensation, walk->undoings++;
        if (in->kind == STEP_INBOUND)
            inbound_note(&walk->standing, &walk->event);
    }
    return fx.action;
}

/* A planned operation whose turn has come and that works on entities: they are busy, or a guard says no. */
static bool choose_turn(struct walk *walk, struct step_input *begin)
{
    if (!walk->claims || walk->op.state != STATE_PLANNED || draw(walk, 2))
        return false;
    begin->kind = draw(walk, 4) ? STEP_AWAIT_ENTITY : STEP_REFUSE;
    begin->note = "a guard says no";
    return true;
}

/* The step that an action asks for, or its refusal by the gate. */
static void answer_action(struct walk *walk, enum step_action action)
{
    struct step_input begin = {.now_ms = walk->now,
                               .owner = "gw_1",
                               .lease_ms = 40000,
                               .attempt = walk->op.tries + 1,
                               .kind = STEP_HOLD,
                               .arena = &walk->arena};
    begin.hold_reason = draw(walk, 2) ? REASON_QUEUED : REASON_CIRCUIT_OPEN;
    begin.hold_until_ms = walk->now + 1000;
    if (action == ACTION_SEND && choose_turn(walk, &begin)) {
        take(walk, &begin);
        if (begin.kind == STEP_AWAIT_ENTITY && draw(walk, 2))
            walk->op.wake_at_ms = walk->now; /* the ledger lets it in, in the same transaction */
        return;
    }
    if (action == ACTION_SEND && walk->tool.guard_lease_ms > 0) {
        begin.hold_reason = REASON_AWAITING_EXECUTOR;
        begin.hold_until_ms = step_total_end(&walk->op, &walk->tool);
    } else if (draw(walk, 5)) {
        begin.kind = action == ACTION_SEND ? STEP_DISPATCH : STEP_LOOKUP_BEGIN;
    }
    take(walk, &begin);
    walk->lookup_on_wire = begin.kind == STEP_LOOKUP_BEGIN;
}

static void live(uint64_t seed, unsigned *seen)
{
    struct walk walk;
    begin_life(&walk, seed);
    walk.seen = seen;
    for (int i = 0; i < 60; i++) {
        bool idle = walk.op.state != STATE_DISPATCHED && !walk.lookup_on_wire;
        walk.now += (int64_t)draw(&walk, 20000);
        if (walk.op.wake_at_ms > walk.now && idle && draw(&walk, 4))
            walk.now = walk.op.wake_at_ms;
        struct step_input in = choose(&walk);
        enum step_action action = take(&walk, &in);
        walk.lookup_on_wire = false;
        if (action == ACTION_EXPIRE && draw(&walk, 2))
            break;
        if (action == ACTION_EXPIRE) { /* somebody needs it yet */
            struct step_input keeps = {.kind = STEP_KEEP, .now_ms = walk.now, .owner = "gw_1", .arena = &walk.arena};
            take(&walk, &keeps);
        } else if (action != ACTION_NONE) {
            answer_action(&walk, action);
        }
    }
    arena_release(&walk.arena);
}

static void test_random_lives(void **state)
{
    (void)state;
    unsigned seen[STEP_TOLD + 1] = {0};
    for (uint64_t seed = 1; seed <= 20000; seed++)
        live(seed * 7919, seen);
    for (int kind = 0; kind < STEP_RUN_STEPS; kind++) { /* parents of steps have lives of their own */
        if (seen[kind] == 0)
            fail_msg("step kind %d never changed anything", kind);
    }
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

/* The provider says "no effect" of one request of two. That ends the operation only where it takes both for one: one
 * key, and the second one came while it still knew the first. */
static void test_no_effect_of_two_requests(void **state)
{
    static const struct {
        enum idempotent_by by;
        bool honoured;
        int64_t apart_ms;
        enum state then;
    } cases[] = {
        {IDEMPOTENT_BY_KEY, true, 5000, STATE_FAILED_PERMANENT},
        {IDEMPOTENT_BY_NATURE, true, 5000, STATE_FAILED_PERMANENT},
        {IDEMPOTENT_BY_NATURE, false, 5000, STATE_UNKNOWN_OUTCOME},
        {IDEMPOTENT_BY_NATURE, true, 3600000, STATE_UNKNOWN_OUTCOME},
        {IDEMPOTENT_BY_PRECONDITION, true, 3600000, STATE_UNKNOWN_OUTCOME},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct walk walk;
        begin_closed(&walk);
        walk.tool.class = CLASS_EXTERNAL_IDEMPOTENT;
        walk.tool.idempotent_by = cases[i].by;
        walk.provider.key_honoured = cases[i].honoured;
        walk.provider.key_retention_ms = 60000;
        do_step(&walk, &walk.tool, (struct step_input){.kind = STEP_ANSWER, .finding = {.outcome = OUTCOME_TIMEOUT}});
        walk.op.attempts = walk.op.tries = 2; /* sent again */
        walk.op.last_sent_ms = walk.now = walk.op.first_sent_ms + cases[i].apart_ms;
        walk.now += 1000;
        struct step_input in = {.kind = STEP_INBOUND, .event = &walk.event, .standing = &walk.standing};
        walk.event = (struct inbound){
            .source = "s", .event = "e", .received_ms = walk.now, .created_ms = walk.now, .outcome = INBOUND_NO_EFFECT};
        in.finding.outcome = OUTCOME_REFUSED;
        do_step(&walk, &walk.tool, in);
        assert_string_equal(state_name(walk.op.state), state_name(cases[i].then));
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
        cmocka_unit_test(test_no_effect_of_two_requests),
    };
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
