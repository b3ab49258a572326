/* Approvals: the record, the step, and the engine around them (design 8). */
#include "core/approval.h"
#include "support/test.h"
#include "support/world.h"

#include "base/log.h"
#include "core/step.h"

#include <string.h>

#define ARGUMENTS "{\"payment_id\":\"p1\",\"amount\":10}"
#define CHANGED   "{\"payment_id\":\"p1\",\"amount\":12}"
#define DAY_MS    86400000

struct fix {
    struct world world;
    struct provider provider;
    struct tool tool, other;
    struct world_reply a, b, c;
};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    log_set_level(LOG_OFF);
    world_provider(&fix.provider);
    world_tool(&fix.tool, "refund", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    fix.tool.approval =
        (struct approval_policy){.required = true, .approvers = 1, .expires_ms = DAY_MS, .policy = "policy-1"};
    *state = &fix;
    return 0;
}

static void open_world(struct fix *fix)
{
    const struct tool *tools[] = {&fix->tool};
    world_init(&fix->world, tools, 1);
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    if (fix->world.engine)
        world_release(&fix->world);
    world_reply_release(&fix->a);
    world_reply_release(&fix->b);
    world_reply_release(&fix->c);
    return 0;
}

static void decide(struct fix *fix, const char *who, bool approve, struct world_reply *reply)
{
    struct engine_decision decision = {
        .kind = approve ? DECISION_APPROVE : DECISION_DENY,
        .operation = fix->a.op.id,
        .actor = who,
        .note = approve ? NULL : "no",
    };
    engine_decide(fix->world.engine, &decision, world_keep, reply);
}

static void decide_now(struct fix *fix, const char *who, bool approve, struct world_reply *reply)
{
    decide(fix, who, approve, reply);
    world_run(&fix->world);
}

static void check_row(struct fix *fix, enum state state, enum reason reason, unsigned given)
{
    struct arena arena;
    struct approval approval;
    arena_init(&arena);
    struct operation *op = world_row(&fix->world, &arena, fix->a.op.id);
    assert_non_null(op);
    assert_string_equal(state_name(op->state), state_name(state));
    assert_string_equal(reason_name(op->reason), reason_name(reason));
    assert_int_equal(approval_read(&arena, op->approval, &approval, NULL), ERR_NONE);
    assert_int_equal(approval_given(&approval), given);
    arena_release(&arena);
}

static void ask(struct fix *fix)
{
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    assert_int_equal(fix->a.count, 1); /* at once: nobody knows how long people take */
    assert_int_equal(fix->a.op.state, STATE_PLANNED);
    assert_int_equal(fix->a.op.reason, REASON_AWAITING_APPROVAL);
    assert_int_equal(fix->world.sent_count, 0);
}

/* ---- the record ---- */

static void test_record_round_trip(void **state)
{
    (void)state;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    struct approval approval = {.needed = 2, .expires_ms = 1790000000000, .policy = "6f1c", .count = 2};
    approval.decisions[0] = (struct approval_decision){
        .by = "al\"ice", .at_ms = 5, .approve = true, .via = APPROVAL_VIA_LINK, .link_by = "op\n"};
    approval.decisions[1] = (struct approval_decision){.by = "bob", .at_ms = 6, .note = "n\n", .via = APPROVAL_VIA_MCP};
    struct approval back;
    assert_int_equal(approval_read(&arena, approval_write(&arena, &approval), &back, &err), ERR_NONE);
    assert_int_equal(back.needed, 2);
    assert_int_equal(back.expires_ms, approval.expires_ms);
    assert_string_equal(back.policy, "6f1c");
    assert_int_equal(back.count, 2);
    assert_string_equal(back.decisions[0].by, "al\"ice");
    assert_true(back.decisions[0].approve && back.decisions[0].via == APPROVAL_VIA_LINK && !back.decisions[0].note);
    assert_string_equal(back.decisions[0].link_by, "op\n");
    assert_string_equal(back.decisions[1].note, "n\n");
    assert_null(back.decisions[1].link_by);
    assert_ptr_equal(approval_denial(&back), &back.decisions[1]);
    assert_ptr_equal(approval_stands(&back, "al\"ice"), &back.decisions[0]);
    assert_ptr_equal(approval_stands(&back, "carol"), &back.decisions[1]);
    arena_release(&arena);
}

/* What cannot be read never lets anything through. */
static void test_unreadable_records_are_incomplete(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "",
        "[]",
        "{}",
        "{\"needed\":0,\"expires_ms\":1,\"policy\":\"p\",\"decisions\":[]}",
        "{\"needed\":99,\"expires_ms\":1,\"policy\":\"p\",\"decisions\":[]}",
        "{\"needed\":1,\"expires_ms\":1,\"policy\":\"p\"}",
        "{\"needed\":1,\"expires_ms\":1,\"policy\":\"p\",\"decisions\":[{}]}",
        "{\"needed\":1,\"expires_ms\":1,\"policy\":\"p\",\"decisions\":[{\"by\":\"a\",\"decision\":\"yes\",\"via\":"
        "\"rest\"}]}",
        "{\"needed\":1,\"expires_ms\":1,\"policy\":\"p\",\"decisions\":[{\"by\":\"a\",\"decision\":\"approve\",\"via\":"
        "\"?\"}]}",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct operation op = {.approval = str_of(broken[i])};
        assert_false(approval_complete(&op));
        assert_int_equal(approval_open_until(&op), 0);
    }
    struct operation none = {0};
    assert_true(approval_complete(&none));
}

/* ---- links: who made them stands in the record ---- */

static void test_links_are_noted(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    struct operation op = {.tenant = "a", .tool = "refund", .principal = "p", .key = "k", .rev = 1, .key_version = 1};
    op.state = STATE_PLANNED;
    op.reason = REASON_AWAITING_APPROVAL;
    op.approval = approval_request(&arena, &fix->tool.approval, 1000);
    op.wake_at_ms = 1000 + DAY_MS;
    struct step_input in = {.kind = STEP_LINK, .now_ms = 2000, .arena = &arena, .actor = "ops", .approver = "ann"};
    struct step_effects effects;
    struct str before = op.approval;
    assert_int_equal(step(&op, &fix->tool, &in, &effects, &err), ERR_NONE);
    assert_int_equal(effects.event_count, 1);
    assert_string_equal(effects.events[0].actor, "ops");
    assert_string_equal(effects.events[0].note, "made links for ann");
    assert_true(op.state == STATE_PLANNED && op.rev == 2 && op.wake_at_ms == 1000 + DAY_MS);
    assert_true(str_equal(op.approval, before)); /* it decides nothing */
    in.approver = "p";
    assert_int_equal(step(&op, &fix->tool, &in, &effects, &err), ERR_DENIED);
    in.approver = "ann";
    in.now_ms = 1000 + DAY_MS; /* over */
    err_clear(&err);
    assert_int_equal(step(&op, &fix->tool, &in, &effects, &err), ERR_CONFLICT);
    assert_int_equal(op.rev, 2);
    struct step_input yes = {.kind = STEP_APPROVAL,
                             .now_ms = 3000,
                             .arena = &arena,
                             .actor = "ann",
                             .approve = true,
                             .via = APPROVAL_VIA_LINK,
                             .link_by = "ops"};
    assert_int_equal(step(&op, &fix->tool, &yes, &effects, &err), ERR_NONE);
    assert_string_equal(effects.events[0].note, "approved, 1 of 1, by a link that ops made");
    struct approval approval;
    assert_int_equal(approval_read(&arena, op.approval, &approval, NULL), ERR_NONE);
    assert_string_equal(approval.decisions[0].link_by, "ops");
    in.now_ms = 4000;
    err_clear(&err);
    assert_int_equal(step(&op, &fix->tool, &in, &effects, &err), ERR_CONFLICT); /* complete: nobody is waited for */
    arena_release(&arena);
}

/* A decision names the request that the person was shown: after people were asked anew it is another one. */
static void test_decisions_on_what_was_shown(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    arena_init(&arena);
    ask(fix);
    struct operation *op = world_row(&fix->world, &arena, fix->a.op.id);
    struct engine_decision decision = {
        .kind = DECISION_APPROVE, .operation = fix->a.op.id, .actor = "ann", .until_ms = approval_open_until(op) + 1};
    engine_decide(fix->world.engine, &decision, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_STALE);
    check_row(fix, STATE_PLANNED, REASON_AWAITING_APPROVAL, 0);
    decision.until_ms--;
    engine_decide(fix->world.engine, &decision, world_keep, &fix->c);
    world_run(&fix->world);
    assert_int_equal(fix->c.kind, REPLY_OPERATION);
    assert_int_equal(fix->world.sent_count, 1);
    arena_release(&arena);
}

/* ---- random decisions against a second, simpler model ---- */

struct model {
    char approved[8];
    bool denied, expired;
};

static void test_random_decisions(void **state)
{
    struct fix *fix = *state;
    static const char *const people[] = {"ann", "bob", "cleo", "dan", "p"};
    uint64_t draw = 1;
    unsigned dispatched = 0, denied = 0, expired = 0;
    for (unsigned life = 0; life < 3000; life++) {
        struct arena arena;
        struct model model = {0};
        arena_init(&arena);
        fix->tool.approval.approvers = 1 + life % 3;
        struct operation op = {
            .tenant = "a", .tool = "refund", .principal = "p", .key = "k", .rev = 1, .key_version = 1};
        op.created_ms = 1000;
        op.state = STATE_PLANNED;
        op.reason = REASON_AWAITING_APPROVAL;
        op.approval = approval_request(&arena, &fix->tool.approval, 1000);
        op.wake_at_ms = 1000 + DAY_MS;
        int64_t now = 1000;
        bool sent = false;
        for (unsigned n = 0; n < 14 && !sent && op.state == STATE_PLANNED; n++) {
            struct step_effects effects;
            struct err err = {0};
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            unsigned who = (unsigned)(draw >> 33) % 5, what = (unsigned)(draw >> 40) % 16;
            now += (draw >> 50) % 12 == 0 ? DAY_MS : 1000; /* before wakes and before decisions */
            struct step_input in = {.kind = what < 10 ? STEP_APPROVAL : STEP_WAKE,
                                    .now_ms = now,
                                    .owner = "gw",
                                    .lease_ms = 40000,
                                    .arena = &arena,
                                    .actor = people[who],
                                    .approve = what != 0,
                                    .note = "n",
                                    .via = APPROVAL_VIA_REST};
            if (in.kind == STEP_WAKE)
                in.actor = in.note = NULL;
            unsigned given = 0;
            for (unsigned i = 0; i < 5; i++)
                given += model.approved[i];
            bool complete = given >= fix->tool.approval.approvers;
            bool late = now >= 1000 + DAY_MS && !complete;
            bool counts = in.kind == STEP_APPROVAL && who != 4 && !model.approved[who] && !complete;
            enum err_code code = step(&op, &fix->tool, &in, &effects, &err);
            if (in.kind == STEP_APPROVAL)
                assert_int_equal(code != ERR_NONE, !counts);
            if ((counts || in.kind == STEP_WAKE) && late)
                model.expired = true;
            else if (counts && in.approve)
                model.approved[who] = 1;
            else if (counts)
                model.denied = true;
            sent = effects.action == ACTION_SEND;
            if (sent)
                assert_true(complete && !model.denied && !model.expired);
        }
        if (model.denied)
            assert_int_equal(op.reason, REASON_DENIED), denied++;
        if (model.expired)
            assert_int_equal(op.reason, REASON_EXPIRED), expired++;
        dispatched += sent;
        arena_release(&arena);
    }
    assert_true(dispatched > 300 && denied > 300 && expired > 300);
}

/* ---- the engine ---- */

static void test_nothing_is_sent_before_the_approval(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    world_advance(&fix->world, 3600000);
    assert_int_equal(fix->world.sent_count, 0);
    decide_now(fix, "alice", true, &fix->b);
    assert_int_equal(fix->b.kind, REPLY_OPERATION);
    assert_false(fix->b.replayed);
    assert_int_equal(fix->world.sent_count, 1);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_NONE, 1);
}

static void test_a_person_counts_once(void **state)
{
    struct fix *fix = *state;
    fix->tool.approval.approvers = 2;
    ask(fix);
    decide_now(fix, "alice", true, &fix->b);
    decide_now(fix, "alice", true, &fix->c);
    assert_true(fix->c.replayed);
    decide_now(fix, "alice", false, &fix->c); /* contradictory: the first counts */
    assert_true(fix->c.replayed);
    assert_int_equal(fix->world.sent_count, 0);
    check_row(fix, STATE_PLANNED, REASON_AWAITING_APPROVAL, 1);
    decide_now(fix, "bob", true, &fix->c);
    assert_int_equal(fix->world.sent_count, 1);
    check_row(fix, STATE_DISPATCHED, REASON_NONE, 2);
}

static void test_the_caller_does_not_decide(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    for (int approve = 0; approve < 2; approve++) {
        decide_now(fix, fix->a.op.principal, approve, &fix->b);
        assert_int_equal(fix->b.kind, REPLY_IMPOSSIBLE);
    }
    check_row(fix, STATE_PLANNED, REASON_AWAITING_APPROVAL, 0);
    assert_int_equal(fix->world.sent_count, 0);
}

/* Decisions that are on their way to the ledger together: one wins, the others are told which. */
static void test_decisions_at_the_same_instant(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    decide(fix, "alice", false, &fix->b);
    decide(fix, "bob", true, &fix->c);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_OPERATION);
    assert_int_equal(fix->c.kind, REPLY_OPERATION);
    assert_int_equal(fix->b.replayed + fix->c.replayed, 1);
    check_row(fix, STATE_REJECTED, REASON_DENIED, 0);
    assert_int_equal(fix->world.sent_count, 0);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b); /* final for the same call */
    assert_true(fix->b.replayed && fix->b.op.reason == REASON_DENIED);
}

static void test_changed_arguments_are_refused(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    world_call(&fix->world, "refund", CHANGED, "k1", &fix->b);
    assert_int_equal(fix->b.kind, REPLY_CONFLICT);
    decide_now(fix, "alice", true, &fix->c);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    world_call(&fix->world, "refund", CHANGED, "k1", &fix->b);
    assert_int_equal(fix->b.kind, REPLY_CONFLICT);
    assert_int_equal(fix->world.sent_count, 1);
    assert_string_equal(fix->world.sent[0].arguments, ARGUMENTS);
}

static void test_expiry_ends_it_and_the_same_call_asks_anew(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    world_advance(&fix->world, DAY_MS + 1000);
    check_row(fix, STATE_REJECTED, REASON_EXPIRED, 0);
    decide_now(fix, "alice", true, &fix->b);
    assert_int_equal(fix->b.kind, REPLY_IMPOSSIBLE);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->c);
    assert_int_equal(fix->c.op.key_version, 2);
    assert_int_equal(fix->c.op.reason, REASON_AWAITING_APPROVAL);
    assert_int_equal(fix->world.sent_count, 0);
}

/* The tool's total time is the provider's: what people take does not count. */
static void test_a_late_approval_has_the_whole_time(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    world_advance(&fix->world, 20 * 3600000LL);
    decide_now(fix, "alice", true, &fix->b);
    world_answer(&fix->world, 0, OUTCOME_NOT_SENT, NULL);
    check_row(fix, STATE_FAILED_RETRYABLE, REASON_NOT_SENT, 1);
    world_advance(&fix->world, 60000);
    assert_int_equal(fix->world.sent_count, 2);
}

static struct registry *registry_of(const struct tool *tool)
{
    struct registry *registry;
    struct err err = {0};
    const struct tool *tools[] = {tool};
    const struct provider *providers[] = {tool->provider};
    assert_int_equal(registry_new(tools, 1, providers, 1, "v2", NULL, NULL, &registry, &err), ERR_NONE);
    return registry;
}

static void test_another_policy_asks_anew(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    fix->other = fix->tool;
    fix->other.approval.policy = "policy-2";
    fix->other.approval.approvers = 2;
    struct registry *registry = registry_of(&fix->other);
    engine_set_registry(fix->world.engine, registry);
    decide_now(fix, "alice", true, &fix->b);
    assert_int_equal(fix->b.kind, REPLY_STALE);
    check_row(fix, STATE_PLANNED, REASON_AWAITING_APPROVAL, 0);
    decide_now(fix, "alice", true, &fix->b);
    decide_now(fix, "bob", true, &fix->c);
    assert_int_equal(fix->world.sent_count, 1);
    registry_unref(registry);
}

/* Approved, not sent yet, and what would be sent is another thing by now. */
static void test_an_approval_is_for_the_request_that_was_shown(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "refund",
                               .wait_ms = -1,
                               .async = true,
                               .call = {.tenant = "acme", .principal = "agent", .idempotency_key = "k1"}};
    call.call.not_before_ms = fix->world.now_ms + 60000;
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    world_run(&fix->world);
    decide_now(fix, "alice", true, &fix->b);
    check_row(fix, STATE_PLANNED, REASON_SCHEDULED, 1);
    fix->other = fix->tool;
    fix->other.approval.policy = "policy-2";
    struct registry *registry = registry_of(&fix->other);
    engine_set_registry(fix->world.engine, registry);
    world_advance(&fix->world, 70000);
    assert_int_equal(fix->world.sent_count, 0);
    check_row(fix, STATE_PLANNED, REASON_AWAITING_APPROVAL, 0);
    decide_now(fix, "bob", true, &fix->c);
    assert_int_equal(fix->world.sent_count, 1);
    registry_unref(registry);
}

/* A tool that went away takes no approval with it, and lets none through. */
static void test_without_the_tool_nothing_is_approved(void **state)
{
    struct fix *fix = *state;
    ask(fix);
    fix->other = fix->tool;
    fix->other.name = "other";
    struct registry *without = registry_of(&fix->other), *with = registry_of(&fix->tool);
    engine_set_registry(fix->world.engine, without);
    decide_now(fix, "alice", true, &fix->b);
    assert_int_equal(fix->b.kind, REPLY_IMPOSSIBLE);
    world_crash(&fix->world); /* taken over, looked at, left alone */
    engine_set_registry(fix->world.engine, without);
    world_advance(&fix->world, 600000);
    check_row(fix, STATE_PLANNED, REASON_AWAITING_APPROVAL, 0);
    engine_set_registry(fix->world.engine, with);
    world_advance(&fix->world, 600000);
    assert_int_equal(fix->world.sent_count, 0);
    decide_now(fix, "alice", true, &fix->b);
    assert_int_equal(fix->world.sent_count, 1);
    registry_unref(without);
    registry_unref(with);
}

static void test_repeats_with_approval(void **state)
{
    struct fix *fix = *state;
    fix->tool.approval.required = false;
    fix->tool.repeat = REPEAT_WITH_APPROVAL;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    struct engine_call call = {.tool = "refund",
                               .wait_ms = -1,
                               .async = true,
                               .call = {.tenant = "acme", .principal = "agent", .idempotency_key = "k1"}};
    call.call.repeat_of = arena_copy_text(&fix->a.arena, fix->a.op.id);
    world_request(&fix->world, &call, ARGUMENTS, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.op.reason, REASON_AWAITING_APPROVAL);
    assert_int_equal(fix->world.sent_count, 1);
    fix->a.op = fix->b.op;
    decide_now(fix, "alice", true, &fix->c);
    assert_int_equal(fix->world.sent_count, 2);
}

static void test_callers_that_wait_for_people(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "refund",
                               .wait_ms = 60000,
                               .waits_for_people = true,
                               .call = {.tenant = "acme", .principal = "agent", .idempotency_key = "k1"}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.count, 0);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a); /* a joiner that does not */
    assert_int_equal(fix->a.count, 1);
    decide_now(fix, "alice", true, &fix->c);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_int_equal(fix->b.count, 1);
    assert_int_equal(fix->b.op.state, STATE_COMPLETED_SUCCESS);
}

static void test_plans_tell_of_approvals(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "refund",
                               .wait_ms = -1,
                               .dry_run = true,
                               .call = {.tenant = "acme", .principal = "agent", .idempotency_key = "k1"}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    world_run(&fix->world);
    assert_non_null(strstr(fix->a.plan, "\"approvals\":[{\"needed\":1,\"expires_in_ms\":86400000}]"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_record_round_trip),
        TEST(test_unreadable_records_are_incomplete),
        TEST(test_links_are_noted),
        TEST(test_decisions_on_what_was_shown),
        TEST(test_random_decisions),
        TEST(test_nothing_is_sent_before_the_approval),
        TEST(test_a_person_counts_once),
        TEST(test_the_caller_does_not_decide),
        TEST(test_decisions_at_the_same_instant),
        TEST(test_changed_arguments_are_refused),
        TEST(test_expiry_ends_it_and_the_same_call_asks_anew),
        TEST(test_a_late_approval_has_the_whole_time),
        TEST(test_another_policy_asks_anew),
        TEST(test_an_approval_is_for_the_request_that_was_shown),
        TEST(test_without_the_tool_nothing_is_approved),
        TEST(test_repeats_with_approval),
        TEST(test_callers_that_wait_for_people),
        TEST(test_plans_tell_of_approvals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
