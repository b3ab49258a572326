/* The checker can fail: for each rule a short history that breaks it, and whole lives that break none. */
#include "checker_history.h"

#include <stdio.h>

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

static const struct CMUnitTest tests[] = {
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
};
static const struct test_part checker_effects = {"checker effects", tests, sizeof tests / sizeof *tests};

int main(void)
{
    const struct test_part *const parts[] = {&checker_effects, &checker_states, &checker_leases, &checker_answers,
                                             &checker_inbound};
    return test_parts_run(parts, sizeof parts / sizeof *parts);
}
