/* Rules of leases, claims and retention can fail. */
#include "checker_history.h"

/* ---- 7, 14: nothing open is forgotten ---- */

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

/* By its own clock the sender still holds the row; by that of the one that has claimed it, no more. */
static void test_sent_when_another_clock_has_claimed(void **state)
{
    static const struct {
        int64_t by_its_clock, after_ms;
        unsigned sender;
        const char *violation;
    } cases[] = {
        {NOW + 39999, 2000, 1, NULL},
        {NOW + 40000, 2000, 1, "5.1, 15 leases are exclusive"},
        {NOW + 39999, 2001, 1, "5.1, 15 leases are exclusive"},
        {NOW + 39999, 2000, 3, "5.1, 15 leases are exclusive"},
    };
    struct fix *fix = *state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct operation *op = dispatched(fix, "mail", 1 + i);
        struct message message = message_of(fix, op);
        fix->sim.now_ms = NOW + 39000;
        claim(fix, 2, op, NOW + 40000, false);
        fix->sim.now_ms += cases[i].after_ms;
        send_by(fix, cases[i].sender, &message, cases[i].by_its_clock);
        if (cases[i].violation)
            expect(fix, cases[i].violation);
        else
            expect_nothing(fix);
        fix->result.violated = false;
        fix->sim.now_ms = NOW;
    }
}

static void test_claim_as_if_alone(void **state)
{
    struct fix *fix = *state;
    claim(fix, 2, dispatched(fix, "mail", 1), NOW, true);
    expect(fix, "15 other gateways may live");
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

static const struct CMUnitTest tests[] = {
    TEST(test_no_watch_planned),        TEST(test_watch_never_looked),
    TEST(test_open_without_a_time),     TEST(test_lease_end_without_a_wake),
    TEST(test_moved_over_a_lease),      TEST(test_people_go_over_a_lease),
    TEST(test_lease_given_away),        TEST(test_claim_of_a_live_lease),
    TEST(test_claim_of_an_ended_lease), TEST(test_sent_when_another_clock_has_claimed),
    TEST(test_claim_as_if_alone),       TEST(test_dropped_too_early),
    TEST(test_dropped_in_its_time),     TEST(test_no_tombstone),
    TEST(test_committed_row_is_lost),   TEST(test_row_that_nobody_admitted),
    TEST(test_unsettled_at_the_end),    TEST(test_waits_for_a_person_at_the_end),
    TEST(test_attempt_open_at_the_end),
};
const struct test_part checker_leases = {"checker leases", tests, sizeof tests / sizeof *tests};
