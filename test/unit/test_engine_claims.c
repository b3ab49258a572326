/* What calls claim, as the engine runs it (design 9): queues, guards at admission and at a turn, crashes in between. */
#include "support/test.h"
#include "support/world.h"

#include "adapter/jq.h"
#include "base/log.h"
#include "core/claims.h"
#include "core/template.h"

#include <stdio.h>
#include <string.h>

#define ORDER "{\"order_id\":\"1\",\"amount\":10}"

struct fix {
    struct world world;
    struct provider provider;
    struct tool refund, credit;
    struct template *id, *message;
    struct jq_program *program;
    struct entity_rule entity;
    struct guard_rule guard;
    struct attribute_rule set;
    struct json refunded;
    struct tool_claims claims;
    struct world_reply a, b, c;
};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    log_set_level(LOG_OFF);
    world_provider(&fix.provider);
    world_tool(&fix.refund, "refund", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    world_tool(&fix.credit, "credit", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    fix.refund.in_doubt = fix.credit.in_doubt = IN_DOUBT_ALLOW;
    assert_int_equal(template_new("{order_id}", &fix.id, NULL), 0);
    assert_int_equal(template_new("order {order_id} is {order.state} by {order.by.state}", &fix.message, NULL), 0);
    assert_int_equal(jq_program_new(".order.state == \"refunded\"", false, &fix.program, NULL), 0);
    fix.entity = (struct entity_rule){"order", fix.id, true};
    fix.guard = (struct guard_rule){fix.program, fix.message};
    fix.refunded = json_string(STR("refunded"));
    fix.set = (struct attribute_rule){.type = "order", .name = "state", .value = &fix.refunded};
    fix.claims = (struct tool_claims){.entities = &fix.entity,
                                      .entity_count = 1,
                                      .guards = &fix.guard,
                                      .guard_count = 1,
                                      .sets = &fix.set,
                                      .set_count = 1};
    fix.refund.claims = fix.credit.claims = &fix.claims;
    *state = &fix;
    return 0;
}

static void open_world(struct fix *fix)
{
    const struct tool *tools[] = {&fix->refund, &fix->credit};
    world_init(&fix->world, tools, 2);
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    world_release(&fix->world);
    world_reply_release(&fix->a);
    world_reply_release(&fix->b);
    world_reply_release(&fix->c);
    template_free(fix->id);
    template_free(fix->message);
    jq_program_free(fix->program);
    return 0;
}

static void check_row(struct fix *fix, const char *id, enum state expected, enum reason reason)
{
    struct arena arena;
    arena_init(&arena);
    struct operation *op = world_row(&fix->world, &arena, id);
    assert_non_null(op);
    assert_string_equal(state_name(op->state), state_name(expected));
    assert_string_equal(reason_name(op->reason), reason_name(reason));
    arena_release(&arena);
}

static void submit(struct fix *fix, const char *tool, const char *key, int64_t not_before_ms, struct world_reply *reply)
{
    struct engine_call call = {.tool = tool, .async = true, .wait_ms = -1};
    call.call.idempotency_key = key;
    call.call.not_before_ms = not_before_ms;
    world_request(&fix->world, &call, ORDER, reply);
    world_run(&fix->world);
    assert_int_equal(reply->kind, REPLY_OPERATION);
}

static void a_guard_refuses_at_admission(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ORDER, "r", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    world_call(&fix->world, "credit", ORDER, "c", &fix->b);
    assert_int_equal(fix->b.kind, REPLY_POLICY);
    char wanted[128];
    snprintf(wanted, sizeof wanted, "order 1 is refunded by %s", fix->a.op.id);
    assert_string_equal(fix->b.text, wanted);
    assert_int_equal(fix->world.sent_count, 1);
    world_call(&fix->world, "refund", ORDER, "r", &fix->c); /* a known key is answered before any guard looks */
    assert_string_equal(fix->c.op.id, fix->a.op.id);
}

static void a_guard_refuses_at_its_turn(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    submit(fix, "refund", "r", 0, &fix->a);
    submit(fix, "credit", "c", 0, &fix->b);
    check_row(fix, fix->b.op.id, STATE_PLANNED, REASON_AWAITING_ENTITY);
    assert_int_equal(fix->world.sent_count, 1); /* nothing of the second one has left */
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    world_advance(&fix->world, 100);
    check_row(fix, fix->b.op.id, STATE_REJECTED, REASON_POLICY);
    assert_int_equal(fix->world.sent_count, 1);
}

static void the_next_in_line_is_sent(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    submit(fix, "refund", "r", 0, &fix->a);
    submit(fix, "credit", "c", 0, &fix->b);
    submit(fix, "credit", "d", 0, &fix->c);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL); /* without effect: nothing is set */
    world_advance(&fix->world, 100);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_equal(fix->world.sent[1].operation, fix->b.op.id);
    check_row(fix, fix->c.op.id, STATE_PLANNED, REASON_AWAITING_ENTITY);
    world_answer(&fix->world, 1, OUTCOME_REFUSED, NULL);
    world_advance(&fix->world, 100);
    assert_string_equal(fix->world.sent[2].operation, fix->c.op.id);
}

static void places_survive_a_crash(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    submit(fix, "refund", "r", 0, &fix->a);
    submit(fix, "credit", "c", 0, &fix->b);
    world_crash(&fix->world);
    world_advance(&fix->world, 500);
    check_row(fix, fix->b.op.id, STATE_PLANNED, REASON_AWAITING_ENTITY);
    assert_true(fix->world.sent_count >= 2); /* asked or sent again */
    for (size_t i = 1; i < fix->world.sent_count; i++) {
        struct world_sent *sent = &fix->world.sent[i];
        assert_string_equal(sent->operation, fix->a.op.id);
        if (sent->open)
            world_answer(&fix->world, i, sent->kind == ATTEMPT_CALL ? OUTCOME_SUCCESS : OUTCOME_FOUND, "re_1");
        world_advance(&fix->world, 2000);
    }
    check_row(fix, fix->b.op.id, STATE_REJECTED, REASON_POLICY);
}

static void scheduled_operations_hold_nothing(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    submit(fix, "refund", "r", fix->world.now_ms + 5000, &fix->a);
    submit(fix, "credit", "c", 0, &fix->b);
    assert_string_equal(fix->world.sent[0].operation, fix->b.op.id);
    world_advance(&fix->world, 6000);
    check_row(fix, fix->a.op.id, STATE_PLANNED, REASON_AWAITING_ENTITY);
    assert_int_equal(fix->world.sent_count, 1);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL);
    world_advance(&fix->world, 100);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_equal(fix->world.sent[1].operation, fix->a.op.id);
}

/* Found with seed 300014335: the schedule was over by one gateway's clock and lay ahead by the next one's, which wrote
 * the row again and again. */
static void a_clock_that_is_behind_does_not_stop_who_has_its_entities(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    submit(fix, "refund", "r", fix->world.now_ms + 5000, &fix->a);
    submit(fix, "credit", "c", 0, &fix->b);
    world_advance(&fix->world, 6000);
    check_row(fix, fix->a.op.id, STATE_PLANNED, REASON_AWAITING_ENTITY);
    fix->world.now_ms -= 3000;
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL);
    world_advance(&fix->world, 100);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_equal(fix->world.sent[1].operation, fix->a.op.id);
}

static void waiting_ends_and_may_begin_again(void **state)
{
    struct fix *fix = *state;
    fix->credit.retry.total_ms = 2000;
    fix->refund.retry.total_ms = 600000;
    open_world(fix);
    submit(fix, "refund", "r", 0, &fix->a);
    submit(fix, "credit", "c", 0, &fix->b);
    world_advance(&fix->world, 2500);
    check_row(fix, fix->b.op.id, STATE_REJECTED, REASON_EXPIRED);
    submit(fix, "credit", "c", 0, &fix->c); /* the same call again: the next version */
    assert_int_equal(fix->c.op.key_version, 2);
    check_row(fix, fix->c.op.id, STATE_PLANNED, REASON_AWAITING_ENTITY);
}

static void who_cancels_leaves_the_queue(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    submit(fix, "refund", "r", 0, &fix->a);
    submit(fix, "credit", "c", 0, &fix->b);
    submit(fix, "credit", "d", 0, &fix->c);
    struct engine_decision cancel = {.kind = DECISION_CANCEL, .operation = fix->b.op.id, .actor = "olga", .note = "no"};
    struct world_reply reply = {0};
    engine_decide(fix->world.engine, &cancel, world_keep, &reply);
    world_run(&fix->world);
    assert_int_equal(reply.op.state, STATE_REJECTED);
    world_reply_release(&reply);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL);
    world_advance(&fix->world, 100);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_equal(fix->world.sent[1].operation, fix->c.op.id);
}

static void a_guard_that_can_not_be_judged_refuses(void **state)
{
    struct fix *fix = *state;
    struct jq_program *broken;
    assert_int_equal(jq_program_new(".order.state + 1 == 2 or error(\"no\")", false, &broken, NULL), 0);
    fix->guard.program = broken;
    open_world(fix);
    world_call(&fix->world, "refund", ORDER, "r", &fix->a);
    assert_int_equal(fix->a.kind, REPLY_POLICY);
    assert_non_null(strstr(fix->a.text, "can not be judged"));
    assert_int_equal(fix->world.sent_count, 0);
    jq_program_free(broken);
}

/* "order 1 is refunded": by an operation that people closed as not happened, and whose effect turns up after all. */
static void it_happened_after_all(struct fix *fix, const char *operation)
{
    struct arena arena;
    arena_init(&arena);
    struct operation *op = world_row(&fix->world, &arena, operation);
    struct engine_decision evidence = {.kind = DECISION_RESOLVE,
                                       .operation = operation,
                                       .actor = "olga",
                                       .note = "found at the provider",
                                       .rev = op->rev,
                                       .happened = true};
    struct world_reply reply = {0};
    engine_decide(fix->world.engine, &evidence, world_keep, &reply);
    world_run(&fix->world);
    assert_int_equal(reply.op.state, STATE_COMPLETED_SUCCESS);
    world_reply_release(&reply);
    arena_release(&arena);
}

/* One connection: what is admitted while it is taken has been looked at by the guards, and leaves later. */
static void open_narrow_world(struct fix *fix)
{
    fix->provider.connections_max = 1;
    fix->refund.retry.attempts_max = 1;
    open_world(fix);
    submit(fix, "refund", "r", 0, &fix->a);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL); /* order 1 is free and not refunded */
    world_advance(&fix->world, 10);
    check_row(fix, fix->a.op.id, STATE_FAILED_PERMANENT, REASON_PROVIDER_REFUSED);
    struct engine_call call = {.tool = "credit", .async = true, .wait_ms = -1};
    call.call.idempotency_key = "other order";
    world_request(&fix->world, &call, "{\"order_id\":\"2\",\"amount\":10}", &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->world.sent_count, 2);
}

static void what_turns_up_while_it_waits_is_noticed(void **state)
{
    struct fix *fix = *state;
    open_narrow_world(fix);
    submit(fix, "credit", "c", 0, &fix->c);
    check_row(fix, fix->c.op.id, STATE_PENDING_DISPATCH, REASON_QUEUED);
    it_happened_after_all(fix, fix->a.op.id);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "cr_2");
    world_advance(&fix->world, 100);
    check_row(fix, fix->c.op.id, STATE_REJECTED, REASON_POLICY);
    assert_int_equal(fix->world.sent_count, 2);
}

static void what_turns_up_meanwhile_and_does_not_matter_stops_nothing(void **state)
{
    struct fix *fix = *state;
    fix->refunded = json_string(STR("shown"));
    open_narrow_world(fix);
    submit(fix, "credit", "c", 0, &fix->c);
    it_happened_after_all(fix, fix->a.op.id);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "cr_2");
    world_advance(&fix->world, 100);
    assert_int_equal(fix->world.sent_count, 3);
    assert_string_equal(fix->world.sent[2].operation, fix->c.op.id);
    check_row(fix, fix->c.op.id, STATE_DISPATCHED, REASON_NONE);
}

/* Another process takes over what waits: it has not seen what the guards saw. */
static void who_takes_it_over_looks_for_himself(void **state)
{
    struct fix *fix = *state;
    open_narrow_world(fix);
    submit(fix, "credit", "c", 0, &fix->c);
    it_happened_after_all(fix, fix->a.op.id);
    world_crash(&fix->world);
    world_advance(&fix->world, 1000);
    check_row(fix, fix->c.op.id, STATE_REJECTED, REASON_POLICY);
    for (size_t i = 0; i < fix->world.sent_count; i++)
        assert_string_not_equal(fix->world.sent[i].operation, fix->c.op.id);
}

/* Guard mode: between "it may be performed" and the executor that performs it lies any time. */
static void an_executor_is_not_told_to_perform_what_is_done(void **state)
{
    struct fix *fix = *state;
    fix->credit.guard_lease_ms = 30000;
    open_world(fix);
    submit(fix, "refund", "r", 0, &fix->a);
    struct engine_call begin = {.tool = "credit", .wait_ms = 0, .begins = true, .executor = "one"};
    begin.call.idempotency_key = "c";
    world_request(&fix->world, &begin, ORDER, &fix->b); /* waits for the order */
    world_run(&fix->world);
    check_row(fix, fix->b.op.id, STATE_PLANNED, REASON_AWAITING_ENTITY);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL);
    world_advance(&fix->world, 100);
    check_row(fix, fix->b.op.id, STATE_PENDING_DISPATCH, REASON_AWAITING_EXECUTOR);
    it_happened_after_all(fix, fix->a.op.id);
    world_request(&fix->world, &begin, ORDER, &fix->c);
    world_run(&fix->world);
    assert_int_equal(fix->c.kind, REPLY_OPERATION);
    assert_int_equal(fix->c.op.state, STATE_REJECTED);
    check_row(fix, fix->b.op.id, STATE_REJECTED, REASON_POLICY);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_guard_refuses_at_admission),
        TEST(a_guard_refuses_at_its_turn),
        TEST(the_next_in_line_is_sent),
        TEST(places_survive_a_crash),
        TEST(scheduled_operations_hold_nothing),
        TEST(a_clock_that_is_behind_does_not_stop_who_has_its_entities),
        TEST(waiting_ends_and_may_begin_again),
        TEST(who_cancels_leaves_the_queue),
        TEST(a_guard_that_can_not_be_judged_refuses),
        TEST(what_turns_up_while_it_waits_is_noticed),
        TEST(what_turns_up_meanwhile_and_does_not_matter_stops_nothing),
        TEST(who_takes_it_over_looks_for_himself),
        TEST(an_executor_is_not_told_to_perform_what_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
