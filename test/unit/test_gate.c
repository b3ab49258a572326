/* What stands between an operation and a provider: slots, circuit breaker, retry budget (design 6). */
#include "engine/gate.h"
#include "support/test.h"

#define NOW 1800000000000

static const struct provider usual = {
    .connections_max = 2,
    .retry_budget_per_s = 2,
    .retry_budget_burst = 3,
    .breaker_failures = 2,
    .breaker_open_ms = 5000,
};

static enum gate_answer take(struct gate *gate, const struct provider *provider, bool resend, int64_t now_ms,
                             int64_t *until_ms)
{
    *until_ms = 0;
    return gate_take(gate, provider, resend, now_ms, until_ms);
}

static void test_slots(void **state)
{
    (void)state;
    struct gate gate = {0};
    int64_t until;
    assert_int_equal(take(&gate, &usual, false, NOW, &until), GATE_PASS);
    assert_int_equal(take(&gate, &usual, false, NOW, &until), GATE_PASS);
    assert_int_equal(take(&gate, &usual, false, NOW, &until), GATE_FULL);
    gate_return(&gate);
    assert_int_equal(take(&gate, &usual, false, NOW, &until), GATE_PASS);
    gate_done(&gate, &usual, OUTCOME_SUCCESS, NOW);
    assert_int_equal(gate.slots_used, 1);
}

/* First attempts cost nothing; re-sends spend a bucket that fills slowly. */
static void test_budget(void **state)
{
    (void)state;
    struct gate gate = {0};
    int64_t until;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(&gate, &usual, true, NOW, &until), GATE_PASS);
        gate_done(&gate, &usual, OUTCOME_SUCCESS, NOW);
    }
    assert_int_equal(take(&gate, &usual, true, NOW, &until), GATE_BUDGET);
    assert_int_equal(gate.slots_used, 0);
    assert_int_equal(until, NOW + 501); /* half a second per token */
    assert_int_equal(take(&gate, &usual, false, NOW, &until), GATE_PASS);
    gate_done(&gate, &usual, OUTCOME_SUCCESS, NOW);
    assert_int_equal(take(&gate, &usual, true, NOW + 499, &until), GATE_BUDGET);
    assert_int_equal(take(&gate, &usual, true, NOW + 501, &until), GATE_PASS);
    gate_done(&gate, &usual, OUTCOME_SUCCESS, NOW + 501);
    int passed = 0; /* after any rest no more than the burst */
    while (take(&gate, &usual, true, NOW + 3600000, &until) == GATE_PASS) {
        gate_done(&gate, &usual, OUTCOME_SUCCESS, NOW + 3600000);
        passed++;
    }
    assert_int_equal(passed, 3);
}

/* A clock that steps back fills nothing and breaks nothing. */
static void test_budget_and_a_backward_clock(void **state)
{
    (void)state;
    struct gate gate = {0};
    int64_t until;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(&gate, &usual, true, NOW - i * 1000, &until), GATE_PASS);
        gate_done(&gate, &usual, OUTCOME_SUCCESS, NOW);
    }
    assert_int_equal(take(&gate, &usual, true, NOW - 5000, &until), GATE_BUDGET);
}

static void fail_once(struct gate *gate, enum outcome outcome, int64_t now_ms)
{
    int64_t until;
    assert_int_equal(take(gate, &usual, false, now_ms, &until), GATE_PASS);
    gate_done(gate, &usual, outcome, now_ms);
}

static void test_breaker(void **state)
{
    (void)state;
    struct gate gate = {0};
    int64_t until;
    fail_once(&gate, OUTCOME_TIMEOUT, NOW);
    fail_once(&gate, OUTCOME_REFUSED, NOW); /* a living provider */
    fail_once(&gate, OUTCOME_NOT_SENT, NOW);
    fail_once(&gate, OUTCOME_PROVIDER_ERROR, NOW);
    assert_int_equal(take(&gate, &usual, false, NOW + 4999, &until), GATE_OPEN);
    assert_int_equal(until, NOW + 5000);
    assert_int_equal(take(&gate, &usual, false, NOW + 5000, &until), GATE_PASS); /* one may see */
    assert_int_equal(take(&gate, &usual, false, NOW + 5000, &until), GATE_OPEN);
    assert_int_equal(until, NOW + 10000);
    gate_done(&gate, &usual, OUTCOME_TIMEOUT, NOW + 5000); /* still down: open again after one */
    assert_int_equal(take(&gate, &usual, false, NOW + 9999, &until), GATE_OPEN);
    assert_int_equal(take(&gate, &usual, false, NOW + 10000, &until), GATE_PASS);
    gate_done(&gate, &usual, OUTCOME_SUCCESS, NOW + 10000);
    assert_int_equal(take(&gate, &usual, false, NOW + 10000, &until), GATE_PASS);
    assert_int_equal(take(&gate, &usual, false, NOW + 10000, &until), GATE_PASS);
}

/* A probe that was never sent leaves the question open for the next. */
static void test_returned_probe(void **state)
{
    (void)state;
    struct gate gate = {0};
    int64_t until;
    fail_once(&gate, OUTCOME_TIMEOUT, NOW);
    fail_once(&gate, OUTCOME_TIMEOUT, NOW);
    assert_int_equal(take(&gate, &usual, false, NOW + 5000, &until), GATE_PASS);
    gate_return(&gate);
    assert_int_equal(take(&gate, &usual, false, NOW + 5000, &until), GATE_PASS);
    assert_int_equal(take(&gate, &usual, false, NOW + 5000, &until), GATE_OPEN);
}

static void test_without_limits(void **state)
{
    (void)state;
    struct provider free_of_limits = {.connections_max = 1000};
    struct gate gate = {0};
    int64_t until;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(take(&gate, &free_of_limits, true, NOW, &until), GATE_PASS);
    for (int i = 0; i < 1000; i++)
        gate_done(&gate, &free_of_limits, OUTCOME_TIMEOUT, NOW);
    assert_int_equal(take(&gate, &free_of_limits, false, NOW, &until), GATE_PASS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_budget_and_a_backward_clock),
        cmocka_unit_test(test_breaker),
        cmocka_unit_test(test_returned_probe),
        cmocka_unit_test(test_without_limits),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
