#include "support/test.h"
#include "support/world.h"

#include "base/log.h"
#include "core/step.h"

#include <stdio.h>
#include <string.h>

#define ARGUMENTS "{\"payment_id\":\"p1\",\"amount\":10}"
#define CHANGED   "{\"payment_id\":\"p1\",\"amount\":12}"

struct fix {
    struct world world;
    struct provider provider;
    struct tool keyed, weak, read;
    struct world_reply a, b, c;
};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    log_set_level(LOG_OFF);
    world_provider(&fix.provider);
    world_tool(&fix.keyed, "refund", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    world_tool(&fix.weak, "mail", CLASS_EXTERNAL_WEAK, &fix.provider);
    world_tool(&fix.read, "look", CLASS_READ, &fix.provider);
    *state = &fix;
    return 0;
}

static void open_world(struct fix *fix)
{
    const struct tool *tools[] = {&fix->keyed, &fix->weak, &fix->read};
    world_init(&fix->world, tools, 3);
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    world_release(&fix->world);
    world_reply_release(&fix->a);
    world_reply_release(&fix->b);
    world_reply_release(&fix->c);
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

static void test_success_and_replay(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    assert_int_equal(fix->world.sent_count, 1);
    assert_int_equal(fix->a.count, 0);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_int_equal(fix->a.count, 1);
    assert_int_equal(fix->a.op.state, STATE_COMPLETED_SUCCESS);
    assert_false(fix->a.replayed);
    assert_string_equal(fix->a.op.external_id, "re_1");
    world_call(&fix->world, "refund", "{\"amount\":1.0e1,\"payment_id\":\"p1\"}", "k1", &fix->b);
    assert_int_equal(fix->b.count, 1);
    assert_true(fix->b.replayed);
    assert_string_equal(fix->b.result, "{\"ok\":true}");
    assert_string_equal(fix->b.op.id, fix->a.op.id);
    assert_int_equal(fix->world.sent_count, 1);
}

static void test_joiners_share_one_request(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->c);
    assert_int_equal(fix->world.sent_count, 1);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_int_equal(fix->a.count + fix->b.count + fix->c.count, 3);
    assert_false(fix->a.replayed);
    assert_true(fix->b.replayed);
    assert_string_equal(fix->c.op.external_id, "re_1");
}

static void test_conflict_names_fields_before_status(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_call(&fix->world, "refund", CHANGED, "k1", &fix->b);
    assert_int_equal(fix->b.kind, REPLY_CONFLICT);
    assert_string_equal(fix->b.differing, "/amount ");
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    world_call(&fix->world, "refund", CHANGED, "k1", &fix->c);
    assert_int_equal(fix->c.kind, REPLY_CONFLICT);
    assert_int_equal(fix->world.sent_count, 1);
}

static void test_keyed_timeout_is_resent_with_same_key(void **state)
{
    struct fix *fix = *state;
    fix->keyed.has_lookup = false;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    assert_int_equal(fix->a.count, 0); /* still waits */
    world_advance(&fix->world, 2000);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_equal(fix->world.sent[0].provider_key, fix->world.sent[1].provider_key);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_1");
    assert_int_equal(fix->a.count, 1);
    assert_int_equal(fix->a.op.state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(fix->a.op.attempts, 2);
}

static void test_success_after_resend_counts_effects(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_CONNECTION_LOST, NULL);
    world_advance(&fix->world, 2000);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_2");
    assert_int_equal(fix->world.sent_count, 3);
    assert_int_equal(fix->world.sent[2].kind, ATTEMPT_LOOKUP);
    assert_int_equal(fix->a.count, 0);
    struct adapter_answer two = {.outcome = OUTCOME_SEVERAL, .matches = 2, .detail = "2 refunds carry the reference"};
    world_answer_with(&fix->world, 2, &two);
    assert_int_equal(fix->a.count, 1);
    assert_int_equal(fix->a.op.state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(fix->a.op.reason, REASON_DUPLICATE_EFFECT);
    assert_true(fix->a.op.duplicate_seen);
}

static void test_clean_failure_after_doubt_is_not_believed(void **state)
{
    struct fix *fix = *state;
    fix->keyed.reconcile.strategies[1] = STRATEGY_MANUAL;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_PROVIDER_ERROR, NULL);
    world_advance(&fix->world, 2000);
    world_answer(&fix->world, 1, OUTCOME_REFUSED, NULL);
    assert_int_equal(fix->a.count, 1);
    assert_int_equal(fix->a.op.state, STATE_UNKNOWN_OUTCOME);
    assert_int_equal(fix->a.op.reason, REASON_NEEDS_OPERATOR);
    assert_true(fix->a.op.may_have_applied);
}

static void test_weak_is_never_resent(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    world_answer(&fix->world, 1, OUTCOME_ABSENT, NULL); /* before settle: counts nothing */
    for (size_t i = 2; fix->world.now_ms < 1800000000000 + 20000 && fix->a.count == 0;) {
        world_advance(&fix->world, 1000);
        if (i < fix->world.sent_count)
            world_answer(&fix->world, i++, OUTCOME_ABSENT, NULL);
    }
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_LOOKUP), 5); /* after 0 1 3 7 15 s; from 5 s on they count */
    check_row(fix, fix->world.sent[0].operation, STATE_FAILED_PERMANENT, REASON_ABSENT);
}

static void test_late_landing_is_seen(void **state)
{
    struct fix *fix = *state;
    test_weak_is_never_resent(state);
    size_t next = fix->world.sent_count;
    world_advance(&fix->world, 61000);
    assert_int_equal(fix->world.sent_count, next + 1);
    world_answer(&fix->world, next, OUTCOME_FOUND, "m_1");
    check_row(fix, fix->world.sent[0].operation, STATE_COMPLETED_SUCCESS, REASON_LATE_LANDING);
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_INCIDENTS, .arena = &arena, .incidents = {.limit = 10}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    assert_int_equal(request.incidents.count, 1);
    assert_int_equal(request.incidents.incidents[0].kind, INCIDENT_LATE_LANDING);
    arena_release(&arena);
}

static void test_cannot_tell_interrupts_absence(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_answer(&fix->world, 1, OUTCOME_CANNOT_TELL, NULL);
    world_advance(&fix->world, 8000);
    world_answer(&fix->world, 2, OUTCOME_ABSENT, NULL);
    world_advance(&fix->world, 9000);
    world_answer(&fix->world, 3, OUTCOME_CANNOT_TELL, NULL);
    world_advance(&fix->world, 9000);
    world_answer(&fix->world, 4, OUTCOME_ABSENT, NULL);
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
    world_advance(&fix->world, 9000);
    world_answer(&fix->world, 5, OUTCOME_FOUND, "m_1");
    check_row(fix, fix->world.sent[0].operation, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

static void test_give_up_leaves_unknown(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    for (size_t i = 1; i < 200 && fix->world.sent_count > i; i++) {
        world_answer(&fix->world, i, OUTCOME_CANNOT_TELL, NULL);
        world_advance(&fix->world, 10000);
    }
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
}

static void test_in_doubt_guard(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, NULL, &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_call(&fix->world, "mail", CHANGED, NULL, &fix->b);
    assert_int_equal(fix->b.kind, REPLY_HELD);
    assert_string_equal(fix->b.op.id, fix->world.sent[0].operation);
    struct engine_call call = {.tool = "mail", .wait_ms = -1};
    call.call.distinct_from[0] = fix->b.op.id;
    call.call.distinct_count = 1;
    world_request(&fix->world, &call, CHANGED, &fix->c);
    world_run(&fix->world);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 2);
}

static void test_guard_sees_orphans_not_waited_for(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "mail", .wait_ms = -1};
    struct waiter *waiter = world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    world_run(&fix->world);
    struct engine_call other = {.tool = "mail", .wait_ms = -1};
    world_request(&fix->world, &other, CHANGED, &fix->b); /* parallel, first caller still waits: runs */
    world_run(&fix->world);
    assert_int_equal(fix->world.sent_count, 2);
    engine_caller_left(fix->world.engine, waiter);
    world_run(&fix->world);
    world_call(&fix->world, "mail", "{\"payment_id\":\"p9\"}", NULL, &fix->c);
    assert_int_equal(fix->c.kind, REPLY_HELD);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "m_1");
    world_reply_release(&fix->c);
    world_call(&fix->world, "mail", "{\"payment_id\":\"p9\"}", NULL, &fix->c);
    assert_int_equal(fix->world.sent_count, 3);
}

/* A caller whose connection broke may come back for its answer; until it does, nobody is known to wait. */
static void test_guard_sees_callers_away(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "mail", .wait_ms = -1};
    struct waiter *waiter = world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    engine_caller_away(fix->world.engine, waiter, true); /* before its operation is there */
    world_run(&fix->world);
    world_call(&fix->world, "mail", CHANGED, NULL, &fix->b);
    assert_int_equal(fix->b.kind, REPLY_HELD);
    engine_caller_away(fix->world.engine, waiter, false);
    world_run(&fix->world);
    world_reply_release(&fix->b);
    struct engine_call other = {.tool = "mail", .wait_ms = -1};
    world_request(&fix->world, &other, CHANGED, &fix->b); /* it is back: parallel calls run */
    world_run(&fix->world);
    assert_int_equal(fix->world.sent_count, 2);
    engine_caller_away(fix->world.engine, waiter, true);
    world_run(&fix->world);
    world_call(&fix->world, "mail", "{\"payment_id\":\"p9\"}", NULL, &fix->c);
    assert_int_equal(fix->c.kind, REPLY_HELD);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "m_1"); /* the answer comes all the same */
    assert_int_equal(fix->a.kind, REPLY_OPERATION);
    assert_int_equal(fix->a.op.state, STATE_COMPLETED_SUCCESS);
}

/* Who cancels must know what would be cancelled, and whether anybody else wants it. */
static void test_a_waiter_tells_what_it_waits_for(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "mail", .wait_ms = -1}, same = call;
    struct waiter *first = world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    struct engine_waiting waiting = engine_waiting(first); /* the ledger has not decided yet */
    assert_true(operation_id_valid(waiting.operation));
    char id[OPERATION_ID_SIZE];
    memcpy(id, waiting.operation, sizeof id);
    assert_true(waiting.opened && waiting.alone);
    world_run(&fix->world);
    assert_string_equal(fix->world.sent[0].operation, id);
    waiting = engine_waiting(first);
    assert_string_equal(waiting.operation, id);
    assert_true(waiting.opened && waiting.alone);
    struct waiter *second = world_request(&fix->world, &same, ARGUMENTS, &fix->b);
    world_run(&fix->world);
    waiting = engine_waiting(second);
    assert_string_equal(waiting.operation, id);
    assert_false(waiting.opened); /* joined it */
    assert_false(waiting.alone);
    assert_true(engine_waiting(first).opened);
    assert_false(engine_waiting(first).alone);
    engine_caller_left(fix->world.engine, second);
    assert_true(engine_waiting(first).alone);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL); /* from now on it sleeps in the ledger */
    waiting = engine_waiting(first);
    assert_string_equal(waiting.operation, id);
    assert_true(waiting.opened && waiting.alone);
}

static void test_repeat_rule(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, NULL, &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    engine_delivered(fix->world.engine, &fix->a.op);
    world_run(&fix->world);
    world_call(&fix->world, "refund", ARGUMENTS, NULL, &fix->b);
    assert_true(fix->b.replayed);
    assert_string_equal(fix->b.op.id, fix->a.op.id);
    world_advance(&fix->world, 900001); /* beyond the window */
    world_call(&fix->world, "refund", ARGUMENTS, NULL, &fix->c);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 2);
}

static void call_in_session(struct fix *fix, const char *session, struct world_reply *reply)
{
    struct engine_call call = {.tool = "mail", .wait_ms = -1, .call = {.session = session}};
    world_request(&fix->world, &call, ARGUMENTS, reply);
    world_run(&fix->world);
}

/* Case S12: the session is lost with the answer, the client repeats in a new one. */
static void test_new_session_joins_what_is_open(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    call_in_session(fix, "s1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    call_in_session(fix, "s2", &fix->b);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
    world_answer(&fix->world, 1, OUTCOME_FOUND, "m_1");
    assert_string_equal(fix->b.op.id, fix->a.op.id);
    engine_delivered(fix->world.engine, &fix->a.op);
    world_run(&fix->world);
    call_in_session(fix, "s3", &fix->c); /* finished and told: another session's equal call is its own */
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 2);
}

static void test_undelivered_result_is_joined_for_ever(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, NULL, &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    world_advance(&fix->world, 2 * 900001);
    world_call(&fix->world, "refund", ARGUMENTS, NULL, &fix->b);
    assert_true(fix->b.replayed);
    assert_int_equal(fix->world.sent_count, 1);
}

static void test_repeat_of_opens_once(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    struct engine_call again = {.tool = "refund", .wait_ms = -1, .call = {.idempotency_key = "k1"}};
    again.call.repeat_of = fix->world.sent[0].operation;
    world_request(&fix->world, &again, ARGUMENTS, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_REPEAT); /* not finished */
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    world_reply_release(&fix->b);
    world_request(&fix->world, &again, ARGUMENTS, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_not_equal(fix->world.sent[0].provider_key, fix->world.sent[1].provider_key);
    world_request(&fix->world, &again, ARGUMENTS, &fix->c); /* a retry of the repeat joins it */
    world_run(&fix->world);
    assert_int_equal(fix->world.sent_count, 2);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_2");
    assert_string_equal(fix->b.op.external_id, "re_2");
    assert_string_equal(fix->c.op.external_id, "re_2");
    assert_string_equal(fix->b.op.repeat_of, fix->a.op.id);
}

static void test_repeat_may_be_denied(void **state)
{
    struct fix *fix = *state;
    fix->keyed.repeat = REPEAT_DENIED;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    struct engine_call again = {.tool = "refund", .wait_ms = -1, .call = {.idempotency_key = "k1"}};
    again.call.repeat_of = fix->a.op.id;
    world_request(&fix->world, &again, ARGUMENTS, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_REPEAT);
    assert_int_equal(fix->world.sent_count, 1);
}

static void test_refused_argument_may_be_corrected(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL);
    assert_int_equal(fix->a.op.state, STATE_FAILED_PERMANENT);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b); /* the same again: the same answer */
    assert_true(fix->b.replayed);
    world_call(&fix->world, "refund", CHANGED, "k1", &fix->c);
    assert_int_equal(fix->world.sent_count, 2);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_2");
    assert_int_equal(fix->c.op.key_version, 2);
    assert_string_equal(fix->c.op.previous, fix->a.op.id);
}

static void test_not_sent_spends_no_attempts(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    for (size_t i = 0; i < 20; i++) {
        world_answer(&fix->world, i, OUTCOME_NOT_SENT, NULL);
        world_advance(&fix->world, 1500);
    }
    world_answer(&fix->world, 20, OUTCOME_SUCCESS, "re_1");
    struct arena arena;
    arena_init(&arena);
    struct operation *op = world_row(&fix->world, &arena, fix->world.sent[0].operation);
    assert_int_equal(op->state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(op->attempts, 1);
    arena_release(&arena);
}

static void test_crash_with_attempt_open(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_crash(&fix->world);
    assert_int_equal(fix->world.sent_count, 2);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->b);
    world_answer(&fix->world, 1, OUTCOME_FOUND, "m_1");
    assert_int_equal(fix->b.count, 1);
    assert_int_equal(fix->b.op.state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {
        .command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = fix->b.op.id}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    assert_int_equal(request.attempts.count, 2);
    assert_int_equal(request.attempts.attempts[0].outcome, OUTCOME_LOST);
    arena_release(&arena);
}

static void test_crash_before_send_is_sent(void **state)
{
    struct fix *fix = *state;
    fix->provider.connections_max = 1;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_call(&fix->world, "refund", ARGUMENTS, "k2", &fix->b); /* waits for the slot */
    assert_int_equal(fix->world.sent_count, 1);
    world_crash(&fix->world);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_CALL); /* what never left is sent */
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_1");
    check_row(fix, fix->world.sent[1].operation, STATE_COMPLETED_SUCCESS, REASON_NONE);
    assert_int_equal(fix->world.sent[2].kind, ATTEMPT_LOOKUP); /* what may have left is looked up */
    world_answer(&fix->world, 2, OUTCOME_FOUND, "m_1");
    check_row(fix, fix->world.sent[0].operation, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 2);
}

/* More than a text may have by default: an operator may allow more (server.body_bytes_max). */
static void test_large_arguments_outlive_a_crash(void **state)
{
    struct fix *fix = *state;
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(&text, "{\"payment_id\":\"p1\",\"amount\":10,\"list\":[1");
    for (int i = 0; i < 200000; i++)
        buf_add_text(&text, ",1234567");
    buf_add_text(&text, "]}");
    fix->provider.connections_max = 1;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_call(&fix->world, "refund", text.p, "k2", &fix->b); /* waits for the slot */
    world_crash(&fix->world);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_CALL);
    assert_int_equal(fix->world.sent[1].arguments_bytes, text.n);
    buf_release(&text);
}

static void test_queue_keeps_order_within_limit(void **state)
{
    struct fix *fix = *state;
    fix->provider.connections_max = 1;
    open_world(fix);
    struct world_reply replies[4] = {0};
    const char *keys[] = {"q0", "q1", "q2", "q3"};
    for (size_t i = 0; i < 4; i++)
        world_call(&fix->world, "refund", ARGUMENTS, keys[i], &replies[i]);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(fix->world.sent_count, i + 1);
        world_answer(&fix->world, i, OUTCOME_SUCCESS, keys[i]);
        assert_string_equal(replies[i].op.external_id, keys[i]);
        world_reply_release(&replies[i]);
    }
}

static void test_wait_ends_first(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "refund", .wait_ms = 1000, .call = {.idempotency_key = "k1"}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    world_run(&fix->world);
    world_advance(&fix->world, 1001);
    assert_int_equal(fix->a.count, 1);
    assert_true(fix->a.waited_out);
    assert_int_equal(fix->a.op.state, STATE_DISPATCHED);
    engine_wait(fix->world.engine, "acme", fix->a.op.id, 5000, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.count, 0);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_int_equal(fix->b.op.state, STATE_COMPLETED_SUCCESS);
}

static void test_scheduled(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "refund", .async = true, .call = {.idempotency_key = "k1"}};
    call.call.not_before_ms = fix->world.now_ms + 60000;
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    world_run(&fix->world);
    assert_int_equal(fix->a.op.state, STATE_PLANNED);
    world_advance(&fix->world, 59999);
    assert_int_equal(fix->world.sent_count, 0);
    world_advance(&fix->world, 2);
    assert_int_equal(fix->world.sent_count, 1);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    check_row(fix, fix->a.op.id, STATE_COMPLETED_SUCCESS, REASON_NONE);
}

/* The row is given back (unknown, to be looked up at once), and our own claim takes it before the look-up is begun. */
static void test_own_claim_between_two_moves(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "refund", .async = true, .call = {.idempotency_key = "later"}};
    call.call.not_before_ms = fix->world.now_ms + 5000; /* so that a claim is due then */
    world_request(&fix->world, &call, ARGUMENTS, &fix->b);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    assert_int_equal(fix->world.sent_count, 1);
    fix->world.now_ms += 5000;
    struct world_sent *sent = &fix->world.sent[0];
    sent->open = false;
    sent->done(sent->user, &(struct adapter_answer){.outcome = OUTCOME_TIMEOUT});
    engine_tick(fix->world.engine);
    world_run(&fix->world);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_LOOKUP), 1);
    for (size_t i = 1; i < fix->world.sent_count; i++)
        world_answer(&fix->world, i, fix->world.sent[i].kind == ATTEMPT_LOOKUP ? OUTCOME_FOUND : OUTCOME_SUCCESS,
                     "x_1");
    check_row(fix, sent->operation, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
    check_row(fix, fix->b.op.id, STATE_COMPLETED_SUCCESS, REASON_NONE);
}

static void test_key_retention_bounds_resends(void **state)
{
    struct fix *fix = *state;
    fix->provider.key_retention_ms = 10000;
    fix->keyed.retry.backoff_ms = fix->keyed.retry.backoff_max_ms = 60000;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_advance(&fix->world, 10001);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP); /* too old to be sent again */
    world_answer(&fix->world, 1, OUTCOME_FOUND, "re_1");
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
}

/* The key must outlive the whole re-sent request, not only its beginning. */
static void test_no_resend_that_may_arrive_after_the_retention(void **state)
{
    struct fix *fix = *state;
    fix->provider.key_retention_ms = 20000; /* a request takes up to 10000, and lands within settle, 5000 */
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_advance(&fix->world, 6000);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_advance(&fix->world, 2000);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    world_answer(&fix->world, 1, OUTCOME_FOUND, "re_1");
    check_row(fix, fix->a.op.id, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

/* Nor may it leave late: the process stands still between the commit of the re-send and the request. */
static void test_no_resend_that_leaves_too_late(void **state)
{
    struct fix *fix = *state;
    fix->provider.key_retention_ms = 20000;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    fix->world.now_ms += 1000;
    engine_tick(fix->world.engine);
    ledger_poll(fix->world.ledger); /* claimed; the re-send is on its way to the ledger */
    fix->world.now_ms += 6000;      /* the lease would last, the key may not */
    world_run(&fix->world);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    world_answer(&fix->world, 1, OUTCOME_FOUND, "re_1");
    check_row(fix, fix->world.sent[0].operation, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

/* A clock that is set back makes no key younger than none at all (simulator, seed 10004974). */
static void test_no_resend_without_retention_when_the_clock_goes_back(void **state)
{
    struct fix *fix = *state;
    fix->provider.key_retention_ms = 0;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    fix->world.now_ms -= 60000;
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_advance(&fix->world, 2000);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    world_answer(&fix->world, 1, OUTCOME_FOUND, "re_1");
    check_row(fix, fix->a.op.id, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

/* ---- pauses and late answers (BUG_* of test/model) ---- */

/* The process stands still between the commit and the request: by then another gateway may have taken over. */
static void test_nothing_leaves_after_the_lease(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "mail", .wait_ms = -1, .call = {.idempotency_key = "k1"}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    fix->world.now_ms += 30001; /* of the lease of 40000 not the request's 10000 are left */
    for (int i = 0; i < 4; i++)
        ledger_poll(fix->world.ledger); /* without the engine's own timers */
    assert_int_equal(fix->world.sent_count, 0);
    world_advance(&fix->world, 5000);
    assert_int_equal(fix->world.sent_count, 1); /* proven not sent: tried again */
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "m_1");
    assert_int_equal(fix->a.op.state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(fix->a.op.attempts, 1);
}

/* settle is counted from the moment at which the request may last have left, not from when it was recorded. */
static void test_settle_counts_from_the_end_of_the_attempt(void **state)
{
    struct fix *fix = *state;
    fix->weak.reconcile.absent_times = 1;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_advance(&fix->world, 10000); /* longer than settle */
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_answer(&fix->world, 1, OUTCOME_ABSENT, NULL);
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
}

static void look_for(struct fix *fix, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        size_t last = fix->world.sent_count - 1;
        if (fix->world.sent[last].open)
            world_answer(&fix->world, last, OUTCOME_ABSENT, NULL);
        world_advance(&fix->world, 1000);
    }
}

/* A tool's attempts may take longer than its provider's time-out says: the lease covers them, and so does settle. */
static void test_a_tools_own_time_out_counts(void **state)
{
    struct fix *fix = *state;
    fix->weak.timeout_ms = 60000; /* the provider's: 10 s */
    fix->weak.reconcile.absent_times = 1;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_advance(&fix->world, 59000); /* it would have been claimed after 40 s */
    assert_int_equal(fix->world.sent_count, 1);
    world_crash(&fix->world);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    look_for(fix, 58);
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_LEASE_LOST);
    look_for(fix, 60);
    check_row(fix, fix->world.sent[0].operation, STATE_FAILED_PERMANENT, REASON_ABSENT);
}

/* The same when the provider said "later": giving up too soon would let a person's retry prove absence too soon. */
static void test_giving_up_counts_from_the_acceptance(void **state)
{
    struct fix *fix = *state;
    fix->weak.reconcile.give_up_ms = 5000;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_advance(&fix->world, 9000);
    world_answer(&fix->world, 0, OUTCOME_ACCEPTED, NULL);
    world_advance(&fix->world, 1000);
    check_row(fix, fix->world.sent[0].operation, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    world_answer(&fix->world, 1, OUTCOME_ABSENT, NULL);
    check_row(fix, fix->world.sent[0].operation, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    world_advance(&fix->world, 10000);
    world_answer(&fix->world, 2, OUTCOME_ABSENT, NULL);
    world_advance(&fix->world, 10000);
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
}

/* An answer is as old as its question: asked before settle was over, it proves nothing after. */
static void test_absence_is_judged_by_when_it_was_asked(void **state)
{
    struct fix *fix = *state;
    fix->weak.reconcile.absent_times = 1;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_advance(&fix->world, 6000);
    world_answer(&fix->world, 1, OUTCOME_ABSENT, NULL);
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
    world_advance(&fix->world, 1000);
    world_answer(&fix->world, 2, OUTCOME_ABSENT, NULL);
    check_row(fix, fix->world.sent[0].operation, STATE_FAILED_PERMANENT, REASON_ABSENT);
}

/* Another gateway claims the row whose lease has ended, as PostgreSQL ledgers will see it. */
static void claim_by_another(struct fix *fix)
{
    struct arena arena;
    arena_init(&arena);
    fix->world.now_ms += 60000;
    struct ledger_request claim = {
        .command = LEDGER_CLAIM_DUE,
        .arena = &arena,
        .claim = {.owner = "gw_2", .now_ms = fix->world.now_ms, .lease_ms = 60000, .limit = 10},
    };
    assert_int_equal(ledger_call(fix->world.ledger, &claim), 0);
    assert_int_equal(claim.claim.count, 1);
    arena_release(&arena);
}

static void answer_without_polling(struct fix *fix, size_t index)
{
    struct adapter_answer answer = {.outcome = OUTCOME_SUCCESS, .external_id = "m_1", .result = STR("{}")};
    fix->world.sent[index].open = false;
    fix->world.sent[index].done(fix->world.sent[index].user, &answer);
}

static void test_late_answer_ends_a_claimed_row(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    claim_by_another(fix); /* which has not yet moved it to unknown_outcome */
    answer_without_polling(fix, 0);
    for (int i = 0; i < 6; i++)
        ledger_poll(fix->world.ledger);
    check_row(fix, fix->world.sent[0].operation, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
    assert_int_equal(fix->a.count, 1);
}

static void nothing(struct ledger_request *request)
{
    (void)request;
}

static void test_evidence_survives_a_second_move(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    arena_init(&arena);
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    claim_by_another(fix);
    struct operation moved = *world_row(&fix->world, &arena, fix->world.sent[0].operation);
    answer_without_polling(fix, 0);
    ledger_poll(fix->world.ledger); /* the fence refuses the answer; the row is asked for … */
    moved.rev++;
    moved.state = STATE_UNKNOWN_OUTCOME;
    moved.reason = REASON_LEASE_LOST;
    moved.unknown_since_ms = fix->world.now_ms;
    moved.owner = NULL;
    moved.lease_until_ms = moved.wake_at_ms = 0;
    struct ledger_request request = {
        .command = LEDGER_TRANSITION, .arena = &arena, .done = nothing, .transition = {.op = &moved, .fence = "gw_2"}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0); /* … and moved before the evidence is committed */
    for (int i = 0; i < 6; i++)
        ledger_poll(fix->world.ledger);
    check_row(fix, fix->world.sent[0].operation, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
    arena_release(&arena);
}

static void test_decisions(void **state)
{
    struct fix *fix = *state;
    fix->weak.reconcile.strategies[0] = STRATEGY_MANUAL;
    fix->weak.reconcile.strategy_count = 1;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    assert_int_equal(fix->a.op.reason, REASON_NEEDS_OPERATOR);
    struct engine_decision stale = {.kind = DECISION_RESOLVE,
                                    .tenant = "acme",
                                    .operation = fix->a.op.id,
                                    .rev = 1,
                                    .happened = true,
                                    .actor = "ann",
                                    .note = "seen in the mailbox"};
    engine_decide(fix->world.engine, &stale, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_STALE);
    struct engine_decision cancel = {.kind = DECISION_CANCEL, .operation = fix->a.op.id, .actor = "ann"};
    engine_decide(fix->world.engine, &cancel, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_IMPOSSIBLE);
    struct engine_decision good = stale;
    good.rev = fix->a.op.rev;
    good.external_id = "m_7";
    engine_decide(fix->world.engine, &good, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_OPERATION);
    assert_int_equal(fix->b.op.state, STATE_COMPLETED_SUCCESS);
    assert_string_equal(fix->b.op.external_id, "m_7");
    engine_decide(fix->world.engine, &good, world_keep, &fix->c);
    world_run(&fix->world);
    assert_int_equal(fix->c.kind, REPLY_STALE);
}

static void test_operator_allows_retry(void **state)
{
    struct fix *fix = *state;
    fix->weak.reconcile.strategies[0] = STRATEGY_MANUAL;
    fix->weak.reconcile.strategy_count = 1;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    struct engine_decision retry = {.kind = DECISION_RESOLVE,
                                    .operation = fix->a.op.id,
                                    .rev = fix->a.op.rev,
                                    .allow_retry = true,
                                    .actor = "ann",
                                    .note = "not in the mailbox"};
    engine_decide(fix->world.engine, &retry, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.op.state, STATE_FAILED_RETRYABLE);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 2);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "m_2");
    check_row(fix, fix->a.op.id, STATE_COMPLETED_SUCCESS, REASON_NONE);
}

static void test_retry_of_closed_opens_version(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL);
    struct engine_decision retry = {.kind = DECISION_RETRY, .operation = fix->a.op.id, .actor = "ann"};
    engine_decide(fix->world.engine, &retry, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_OPERATION);
    assert_int_equal(fix->b.op.key_version, 2);
    assert_int_equal(fix->world.sent_count, 2);
    assert_string_equal(fix->world.sent[1].arguments, fix->world.sent[0].arguments);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "re_9");
    check_row(fix, fix->a.op.id, STATE_FAILED_PERMANENT, REASON_PROVIDER_REFUSED);
}

static void test_accepted_is_polled(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_ACCEPTED, "re_1");
    check_row(fix, fix->world.sent[0].operation, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    world_advance(&fix->world, 1001);
    world_answer(&fix->world, 1, OUTCOME_PENDING, "re_1");
    world_advance(&fix->world, 3000);
    world_answer(&fix->world, 2, OUTCOME_FOUND, "re_1");
    assert_int_equal(fix->a.count, 1);
    assert_int_equal(fix->a.op.state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
}

static void test_lookup_pages_are_attempts(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    struct adapter_answer more = {.outcome = OUTCOME_MORE, .progress = STR("{\"cursor\":\"c1\"}")};
    world_answer_with(&fix->world, 1, &more);
    assert_string_equal(fix->world.sent[2].progress, "{\"cursor\":\"c1\"}");
    world_answer(&fix->world, 2, OUTCOME_FOUND, "m_1");
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {
        .command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = fix->a.op.id}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    assert_int_equal(request.attempts.count, 3);
    assert_int_equal(request.attempts.attempts[1].outcome, OUTCOME_MORE);
    assert_int_equal(request.attempts.attempts[2].outcome, OUTCOME_FOUND);
    arena_release(&arena);
}

static void test_retention_leaves_a_tombstone(void **state)
{
    struct fix *fix = *state;
    fix->keyed.retain_ms = 10000;
    fix->keyed.repeat_window_ms = 0; /* payloads outlast it */
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    world_advance(&fix->world, 9900);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b);
    assert_true(fix->b.replayed);
    world_advance(&fix->world, 200);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->c);
    assert_int_equal(fix->c.kind, REPLY_EXPIRED);
    assert_int_equal(fix->world.sent_count, 1);
}

static void test_reads_share_and_retry(void **state)
{
    struct fix *fix = *state;
    fix->read.cache_ms = 5000;
    open_world(fix);
    world_call(&fix->world, "look", ARGUMENTS, NULL, &fix->a);
    world_call(&fix->world, "look", ARGUMENTS, NULL, &fix->b);
    assert_int_equal(fix->world.sent_count, 1);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_advance(&fix->world, 1500);
    assert_int_equal(fix->world.sent_count, 2);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, NULL);
    assert_int_equal(fix->a.kind, REPLY_READ);
    assert_int_equal(fix->a.count + fix->b.count, 2);
    world_call(&fix->world, "look", ARGUMENTS, NULL, &fix->c);
    assert_true(fix->c.replayed);
    world_advance(&fix->world, 5001);
    world_reply_release(&fix->c);
    world_call(&fix->world, "look", ARGUMENTS, NULL, &fix->c);
    assert_int_equal(fix->world.sent_count, 3);
    world_answer(&fix->world, 2, OUTCOME_REFUSED, NULL);
    assert_int_equal(fix->c.op.state, STATE_FAILED_PERMANENT);
}

static void test_dry_run_records_nothing(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    struct engine_call call = {.tool = "refund", .dry_run = true, .call = {.idempotency_key = "k1"}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    world_run(&fix->world);
    assert_int_equal(fix->a.kind, REPLY_PLAN);
    assert_non_null(strstr(fix->a.plan, "\"decision\":\"execute\""));
    assert_int_equal(fix->world.sent_count, 0);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_false(fix->b.replayed);
    world_request(&fix->world, &call, CHANGED, &fix->c);
    world_run(&fix->world);
    assert_non_null(strstr(fix->c.plan, "\"decision\":\"conflict\""));
}

static void test_breaker_holds(void **state)
{
    struct fix *fix = *state;
    fix->provider.breaker_failures = 2;
    open_world(fix);
    struct world_reply r[2] = {0};
    world_call(&fix->world, "mail", ARGUMENTS, "k0", &r[0]);
    world_answer(&fix->world, 0, OUTCOME_NOT_SENT, NULL);
    world_advance(&fix->world, 150);
    world_answer(&fix->world, 1, OUTCOME_NOT_SENT, NULL);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    assert_int_equal(fix->world.sent_count, 2);
    world_advance(&fix->world, 6000);
    assert_int_equal(fix->world.sent_count, 3); /* one probe */
    world_answer(&fix->world, 2, OUTCOME_SUCCESS, "x_1");
    world_advance(&fix->world, 6000);
    assert_int_equal(fix->world.sent_count, 4);
    world_answer(&fix->world, 3, OUTCOME_SUCCESS, "x_2");
    world_reply_release(&r[0]);
}

static void test_tenants_and_principals(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    struct engine_call foreign = {
        .tool = "refund", .wait_ms = -1, .call = {.tenant = "beta", .principal = "agent", .idempotency_key = "1"}};
    world_request(&fix->world, &foreign, ARGUMENTS, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->world.sent_count, 2);
    struct engine_call colleague = {
        .tool = "refund", .wait_ms = -1, .call = {.tenant = "acme", .principal = "other", .idempotency_key = "1"}};
    world_request(&fix->world, &colleague, ARGUMENTS, &fix->c);
    world_run(&fix->world);
    assert_int_equal(fix->c.kind, REPLY_NOT_SHARED);
    assert_int_equal(fix->world.sent_count, 2);
}

static void count_stopped(void *user)
{
    (*(int *)user)++;
}

/* Replays from memory are replays of what the ledger says now. */
static void test_replay_follows_every_change(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_REFUSED, NULL);
    for (int i = 0; i < 2; i++) { /* the first from the ledger, the second from memory */
        world_reply_release(&fix->b);
        world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b);
        assert_true(fix->b.replayed);
        assert_int_equal(fix->b.op.state, STATE_FAILED_PERMANENT);
        assert_string_equal(fix->b.error, "{\"message\":\"told by the test\"}");
    }
    assert_int_equal(engine_stats(fix->world.engine).replayed, 2);
    struct engine_decision happened = {.kind = DECISION_RESOLVE,
                                       .operation = fix->a.op.id,
                                       .rev = fix->a.op.rev,
                                       .happened = true,
                                       .actor = "ann",
                                       .note = "seen at the provider"};
    engine_decide(fix->world.engine, &happened, world_keep, &fix->c);
    world_run(&fix->world);
    for (int i = 0; i < 2; i++) {
        world_reply_release(&fix->b);
        world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b);
        assert_int_equal(fix->b.op.state, STATE_COMPLETED_SUCCESS);
    }
    world_reply_release(&fix->b);
    world_call(&fix->world, "refund", CHANGED, "k1", &fix->b); /* mismatch is seen with a kept operation too */
    assert_int_equal(fix->b.kind, REPLY_CONFLICT);
    assert_int_equal(fix->world.sent_count, 1);
}

/* A stop that its deadline cut off has no more plans: an owner that ticks when told would spin on the past deadline. */
static void test_late_stop_plans_nothing(void **state)
{
    struct fix *fix = *state;
    int stopped = 0;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    engine_stop(fix->world.engine, fix->world.now_ms + 1000, count_stopped, &stopped);
    world_run(&fix->world);
    assert_int_equal(stopped, 0);
    assert_int_equal(engine_next_tick_ms(fix->world.engine), fix->world.now_ms + 1000);
    world_advance(&fix->world, 1000);
    assert_int_equal(stopped, 1);
    assert_int_equal(fix->a.count, 1);
    assert_true(fix->a.waited_out);
    assert_int_equal(engine_next_tick_ms(fix->world.engine), 0);
}

/* A caller of a sleeping operation is answered from the ledger; that may take until after its own deadline. */
static void test_stop_with_a_slow_ledger_answers_sleepers_once(void **state)
{
    struct fix *fix = *state;
    int stopped = 0;
    fix->keyed.retry.backoff_ms = fix->keyed.retry.backoff_max_ms = 600000;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_NOT_SENT, NULL);
    assert_int_equal(fix->a.count, 0);
    engine_stop(fix->world.engine, fix->world.now_ms + 60000, count_stopped, &stopped);
    fix->world.now_ms += fix->keyed.wait_ms + 1;
    engine_tick(fix->world.engine);
    assert_int_equal(fix->a.count, 0);
    world_run(&fix->world);
    assert_int_equal(fix->a.count, 1);
    assert_true(fix->a.waited_out);
    assert_int_equal(stopped, 1);
}

/* The read of a former registry goes on beside an identical one of the present registry. */
static void test_read_outlives_a_reload(void **state)
{
    struct fix *fix = *state;
    struct tool reloaded = fix->read;
    const struct tool *tools[] = {&reloaded};
    struct registry *registry;
    struct engine_call call = {.tool = "look", .wait_ms = 2000};
    open_world(fix);
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    assert_int_equal(registry_new(tools, 1, NULL, 0, "later", NULL, NULL, &registry, NULL), 0);
    engine_set_registry(fix->world.engine, registry);
    registry_unref(registry);
    world_request(&fix->world, &call, ARGUMENTS, &fix->b);
    assert_int_equal(fix->world.sent_count, 2);
    world_advance(&fix->world, 2000);
    assert_true(fix->a.waited_out);
    assert_true(fix->b.waited_out);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, NULL);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, NULL);
}

static void test_late_stop_answers_readers(void **state)
{
    struct fix *fix = *state;
    int stopped = 0;
    struct engine_call call = {.tool = "look", .wait_ms = 20000};
    open_world(fix);
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    engine_stop(fix->world.engine, fix->world.now_ms + 1000, count_stopped, &stopped);
    world_advance(&fix->world, 1000);
    assert_int_equal(stopped, 1);
    assert_int_equal(fix->a.count, 1);
    assert_true(fix->a.waited_out);
}

/* A memory ledger that can not answer one kind of question. */
static const struct ledger_ops *real_ops;
static enum ledger_command refused_command;
static struct ledger_request *refused[4];
static size_t refused_count;

static void submit_or_refuse(struct ledger *ledger, struct ledger_request *request)
{
    if (request->command == refused_command)
        refused[refused_count++] = request;
    else
        real_ops->submit(ledger, request);
}

static void poll_and_refuse(struct ledger *ledger)
{
    real_ops->poll(ledger);
    while (refused_count > 0) {
        struct ledger_request *request = refused[--refused_count];
        request->code = err_set(&request->err, ERR_UNAVAILABLE, "the disk is full");
        request->done(request);
    }
}

static void start_refusing(struct fix *fix, enum ledger_command command)
{
    static struct ledger_ops failing;
    real_ops = fix->world.ledger->ops;
    failing = *real_ops;
    failing.submit = submit_or_refuse;
    failing.poll = poll_and_refuse;
    refused_command = command;
    fix->world.ledger->ops = &failing;
}

static void stop_refusing(struct fix *fix)
{
    fix->world.ledger->ops = real_ops;
}

/* "Unavailable" says that nothing was recorded; this operation is. */
static void test_wait_ends_while_the_ledger_can_not_be_asked(void **state)
{
    struct fix *fix = *state;
    fix->keyed.retry.backoff_ms = fix->keyed.retry.backoff_max_ms = 600000;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_NOT_SENT, NULL);
    start_refusing(fix, LEDGER_GET);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b); /* joins it, without a record in this gateway */
    world_advance(&fix->world, fix->keyed.wait_ms);
    stop_refusing(fix);
    for (struct world_reply *reply = &fix->a; reply <= &fix->b; reply++) {
        assert_int_equal(reply->count, 1);
        assert_int_equal(reply->kind, REPLY_OPERATION);
        assert_int_equal(reply->op.state, STATE_FAILED_RETRYABLE);
        assert_true(reply->waited_out);
    }
}

/* What a dead gateway left open is closed as lost, also when the ledger can not be asked for it at once. */
static void test_open_attempts_are_closed_after_an_outage(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    start_refusing(fix, LEDGER_ATTEMPTS);
    world_crash(&fix->world);
    check_row(fix, fix->world.sent[0].operation, STATE_DISPATCHED, REASON_NONE);
    stop_refusing(fix);
    world_advance(&fix->world, 1000);
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_LEASE_LOST);
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {
        .command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = fix->world.sent[0].operation}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    assert_int_equal(request.attempts.attempts[0].outcome, OUTCOME_LOST);
    arena_release(&arena);
}

/* Two look-ups more whose end nobody heard: somebody moved the row while they were under way. */
static void leave_lookups_open(struct fix *fix)
{
    struct arena arena;
    arena_init(&arena);
    struct operation *op = world_row(&fix->world, &arena, fix->world.sent[0].operation);
    struct ledger_request request = {
        .command = LEDGER_TRANSITION, .arena = &arena, .done = nothing, .transition = {.op = op, .fence = op->owner}};
    op->rev++;
    for (int i = 0; i < 2; i++) {
        struct attempt *attempt = &request.transition.attempts[request.transition.attempt_count++];
        *attempt = (struct attempt){
            .number = ++op->tries, .kind = ATTEMPT_LOOKUP, .outcome = OUTCOME_OPEN, .started_ms = fix->world.now_ms};
        snprintf(attempt->id, sizeof attempt->id, "at_%d", attempt->number);
    }
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    arena_release(&arena);
}

static void check_closed(struct fix *fix, size_t count)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {
        .command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = fix->world.sent[0].operation}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    assert_int_equal(request.attempts.count, count + 1); /* the last one is the present gateway's look-up */
    for (size_t i = 0; i < count; i++)
        assert_string_equal(outcome_name(request.attempts.attempts[i].outcome), outcome_name(OUTCOME_LOST));
    arena_release(&arena);
}

/* One commit has no room for all of them. */
static void test_all_open_attempts_are_closed(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    leave_lookups_open(fix);
    leave_lookups_open(fix);
    world_crash(&fix->world); /* dispatched */
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_LEASE_LOST);
    check_closed(fix, 5);
    leave_lookups_open(fix);
    world_crash(&fix->world); /* unknown_outcome */
    check_row(fix, fix->world.sent[0].operation, STATE_UNKNOWN_OUTCOME, REASON_LEASE_LOST);
    check_closed(fix, 8);
}

/* Late evidence is never thrown away (3.4), also when the row can not be read at once. */
static void test_evidence_survives_an_outage(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    claim_by_another(fix);
    start_refusing(fix, LEDGER_GET);
    answer_without_polling(fix, 0);
    for (int i = 0; i < 6; i++)
        ledger_poll(fix->world.ledger);
    stop_refusing(fix);
    world_advance(&fix->world, 1000);
    check_row(fix, fix->world.sent[0].operation, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

/* absent, cannot tell (told late, after the look-up's lease), absent: not two in a row (7.1). */
static void test_late_doubt_parts_absent_answers(void **state)
{
    struct fix *fix = *state;
    struct step_effects effects;
    struct operation op = {.rev = 1, .state = STATE_UNKNOWN_OUTCOME, .unknown_since_ms = 1, .may_have_applied = true};
    struct step_input in = {.kind = STEP_EVIDENCE, .now_ms = 2, .finding = {.outcome = OUTCOME_ABSENT}};
    op.absent_count = 1;
    assert_int_equal(step(&op, &fix->weak, &in, &effects, NULL), 0);
    assert_int_equal(op.absent_count, 1);
    in.finding.outcome = OUTCOME_CANNOT_TELL;
    assert_int_equal(step(&op, &fix->weak, &in, &effects, NULL), 0);
    assert_int_equal(op.absent_count, 0);
    open_world(fix);
}

static void test_late_wrong_object_is_an_incident(void **state)
{
    struct fix *fix = *state;
    struct step_effects effects;
    struct operation op = {.rev = 1, .state = STATE_UNKNOWN_OUTCOME, .unknown_since_ms = 1, .may_have_applied = true};
    struct step_input in = {.kind = STEP_EVIDENCE, .now_ms = 2, .finding = {.outcome = OUTCOME_WRONG_OBJECT}};
    assert_int_equal(step(&op, &fix->weak, &in, &effects, NULL), 0);
    assert_int_equal(op.state, STATE_UNKNOWN_OUTCOME);
    assert_int_equal(effects.incident_count, 1);
    assert_int_equal(effects.incidents[0].kind, INCIDENT_WRONG_OBJECT);
    open_world(fix);
}

/* Absence counts when all requests are over: a later one's answer (key in use, an error) does not end an earlier one.
 */
static void test_settle_waits_for_every_request(void **state)
{
    struct fix *fix = *state;
    struct step_effects effects;
    struct operation op = {.rev = 1, .state = STATE_DISPATCHED, .may_have_applied = true, .attempts = 1, .tries = 1};
    struct step_input gone = {.kind = STEP_OWNER_GONE, .now_ms = 1000};
    struct step_input again = {.kind = STEP_DISPATCH, .now_ms = 1100, .owner = "gw"};
    struct step_input answer = {.kind = STEP_ANSWER, .now_ms = 1200, .finding = {.outcome = OUTCOME_PROVIDER_ERROR}};
    int64_t over_ms = 1000 + fix->provider.timeout_ms;
    assert_int_equal(step(&op, &fix->keyed, &gone, &effects, NULL), 0);
    assert_int_equal(op.last_sent_ms, over_ms);
    assert_int_equal(step(&op, &fix->keyed, &again, &effects, NULL), 0);
    assert_int_equal(op.last_sent_ms, over_ms);
    assert_int_equal(step(&op, &fix->keyed, &answer, &effects, NULL), 0);
    assert_int_equal(op.last_sent_ms, over_ms);
    again.now_ms = 1300;
    answer.now_ms = 1400;
    answer.finding.outcome = OUTCOME_KEY_IN_USE;
    assert_int_equal(step(&op, &fix->keyed, &again, &effects, NULL), 0);
    assert_int_equal(step(&op, &fix->keyed, &answer, &effects, NULL), 0);
    assert_int_equal(op.last_sent_ms, 1400 + fix->provider.timeout_ms);
    open_world(fix);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_success_and_replay),
        TEST(test_joiners_share_one_request),
        TEST(test_conflict_names_fields_before_status),
        TEST(test_keyed_timeout_is_resent_with_same_key),
        TEST(test_success_after_resend_counts_effects),
        TEST(test_clean_failure_after_doubt_is_not_believed),
        TEST(test_weak_is_never_resent),
        TEST(test_late_landing_is_seen),
        TEST(test_cannot_tell_interrupts_absence),
        TEST(test_give_up_leaves_unknown),
        TEST(test_in_doubt_guard),
        TEST(test_guard_sees_orphans_not_waited_for),
        TEST(test_guard_sees_callers_away),
        TEST(test_a_waiter_tells_what_it_waits_for),
        TEST(test_repeat_rule),
        TEST(test_new_session_joins_what_is_open),
        TEST(test_undelivered_result_is_joined_for_ever),
        TEST(test_repeat_of_opens_once),
        TEST(test_repeat_may_be_denied),
        TEST(test_refused_argument_may_be_corrected),
        TEST(test_not_sent_spends_no_attempts),
        TEST(test_crash_with_attempt_open),
        TEST(test_crash_before_send_is_sent),
        TEST(test_large_arguments_outlive_a_crash),
        TEST(test_queue_keeps_order_within_limit),
        TEST(test_wait_ends_first),
        TEST(test_scheduled),
        TEST(test_own_claim_between_two_moves),
        TEST(test_key_retention_bounds_resends),
        TEST(test_no_resend_that_may_arrive_after_the_retention),
        TEST(test_no_resend_without_retention_when_the_clock_goes_back),
        TEST(test_no_resend_that_leaves_too_late),
        TEST(test_nothing_leaves_after_the_lease),
        TEST(test_settle_counts_from_the_end_of_the_attempt),
        TEST(test_a_tools_own_time_out_counts),
        TEST(test_giving_up_counts_from_the_acceptance),
        TEST(test_absence_is_judged_by_when_it_was_asked),
        TEST(test_late_answer_ends_a_claimed_row),
        TEST(test_evidence_survives_a_second_move),
        TEST(test_decisions),
        TEST(test_operator_allows_retry),
        TEST(test_retry_of_closed_opens_version),
        TEST(test_accepted_is_polled),
        TEST(test_lookup_pages_are_attempts),
        TEST(test_retention_leaves_a_tombstone),
        TEST(test_reads_share_and_retry),
        TEST(test_dry_run_records_nothing),
        TEST(test_breaker_holds),
        TEST(test_tenants_and_principals),
        TEST(test_replay_follows_every_change),
        TEST(test_late_stop_plans_nothing),
        TEST(test_stop_with_a_slow_ledger_answers_sleepers_once),
        TEST(test_read_outlives_a_reload),
        TEST(test_late_stop_answers_readers),
        TEST(test_wait_ends_while_the_ledger_can_not_be_asked),
        TEST(test_open_attempts_are_closed_after_an_outage),
        TEST(test_all_open_attempts_are_closed),
        TEST(test_evidence_survives_an_outage),
        TEST(test_late_doubt_parts_absent_answers),
        TEST(test_late_wrong_object_is_an_incident),
        TEST(test_settle_waits_for_every_request),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
