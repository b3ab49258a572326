/* Rules of the provider's events can fail. */
#include "checker_history.h"

#include <stdio.h>

/* A source of the simulator's own kind, for the tools of one provider. */
static void listen(struct fix *fix)
{
    static const char *const others[] = {"zz*"};
    const struct inbox_source sources[] = {
        {.name = "told", .provider = fix->provider.name, .retain_ms = 1000000},
        {.name = "others", .provider = fix->provider.name, .tools = others, .tool_count = 1, .retain_ms = 1000000},
    };
    registry_listen(fix->registry, sources, 2);
}

static const char *record_event(struct fix *fix, const char *source, const char *event, const struct operation *op,
                                enum inbound_outcome outcome, int64_t created_ms)
{
    struct inbound *inbound = arena_zero(&fix->arena, sizeof *inbound);
    *inbound = (struct inbound){
        .source = source,
        .event = event,
        .created_ms = created_ms,
        .received_ms = NOW,
        .outcome = outcome,
        .match = INBOUND_BY_PROVIDER_KEY,
        .value = op->provider_key,
        .retain_until_ms = NOW + 1000000,
    };
    snprintf(inbound->id, sizeof inbound->id, "ev_%s", event);
    struct ledger_request request = {.command = LEDGER_RECORD_INBOUND,
                                     .record_inbound = {.event = inbound, .now_ms = NOW}};
    tell(fix, 1, &request, true);
    return inbound->id;
}

static void apply(struct fix *fix, struct operation *op, const char *event, enum state to, enum reason reason)
{
    struct change change = change_to(op, to, CAUSE_EVIDENCE);
    change.op.reason = reason;
    change.request.transition.events[0].reason = reason;
    change.request.transition.inbound = event;
    write_change(fix, 1, op, &change, false);
}

static void test_events_that_are_right(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    struct change change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_EVIDENCE);
    change.op.external_id = "ef_1";
    change.request.transition.inbound = record_event(fix, "told", "2", op, INBOUND_SUCCESS, NOW - 5);
    write_change(fix, 1, op, &change, false);
    struct operation *none = unknown(fix, "mail", 2);
    apply(fix, none, record_event(fix, "told", "3", none, INBOUND_NO_EFFECT, NOW), STATE_FAILED_PERMANENT, REASON_NONE);
    checker_event_told(&fix->sim, "ev_2");
    expect_nothing(fix);
}

static void test_event_applied_twice(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    const char *event = record_event(fix, "told", "1", op, INBOUND_PENDING, NOW);
    apply(fix, op, event, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect_nothing(fix);
    apply(fix, op, event, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect(fix, "11.1 an event is applied once");
}

static void test_event_of_another_operation(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *other = succeeded(fix, "mail", 2), *op = unknown(fix, "mail", 1);
    apply(fix, other, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), other->state, REASON_NONE);
    expect(fix, "11.1, 16 an event is for the operation that it names");
}

static void test_event_of_another_source(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "others", "1", op, INBOUND_PENDING, NOW), STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect(fix, "11.1, 16 an event is for the operation that it names");
}

static void test_event_before_the_answer(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = dispatched(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), STATE_DISPATCHED, REASON_NONE);
    expect(fix, "11.1 an event waits for the answer");
}

static void test_older_event_downgrades(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_PENDING, NOW), STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    expect_nothing(fix);
    apply(fix, op, record_event(fix, "told", "2", op, INBOUND_FAILED, NOW - 1), STATE_UNKNOWN_OUTCOME,
          REASON_NEEDS_OPERATOR);
    expect(fix, "11.1 an older event never downgrades");
}

static void test_success_that_settles_nothing(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_SUCCESS, NOW), STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
    expect(fix, "3.4, 11.1 a success has the last word");
}

static void test_failed_event_as_a_proof(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = unknown(fix, "mail", 1);
    apply(fix, op, record_event(fix, "told", "1", op, INBOUND_FAILED, NOW), STATE_FAILED_PERMANENT,
          REASON_NEEDS_OPERATOR);
    expect(fix, "3.2 no clean failure ends a doubt");
}

static void test_failure_after_success_unnoticed(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    struct operation *op = succeeded(fix, "mail", 1);
    struct change change = change_to(op, op->state, CAUSE_EVIDENCE);
    change.request.transition.inbound = record_event(fix, "told", "1", op, INBOUND_SUCCESS, NOW);
    write_change(fix, 1, op, &change, false);
    expect_nothing(fix);
    struct change later = change_to(op, op->state, CAUSE_EVIDENCE);
    later.request.transition.inbound = record_event(fix, "told", "2", op, INBOUND_FAILED, NOW + 1);
    write_change(fix, 1, op, &later, false);
    expect(fix, "3.4 a failure told after the success is an incident");
}

static void test_event_recorded_twice(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    record_event(fix, "told", "1", op, INBOUND_SUCCESS, NOW);
    struct inbound again = {.id = "ev_9", .source = "told", .event = "1", .retain_until_ms = NOW + 1000000};
    struct ledger_request request = {.command = LEDGER_RECORD_INBOUND, .record_inbound = {.event = &again}};
    tell(fix, 1, &request, false);
    expect(fix, "11.1 an event is recorded once");
}

static void test_event_acknowledged_too_soon(void **state)
{
    struct fix *fix = *state;
    checker_event_told(&fix->sim, "ev_1");
    expect(fix, "11.1 an event is recorded before it is acknowledged");
}

static void test_event_that_nobody_took(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    record_event(fix, "told", "1", succeeded(fix, "mail", 1), INBOUND_SUCCESS, NOW);
    checker_end(&fix->sim);
    expect(fix, "11.1 an event finds its operation");
}

static void test_event_that_is_gone(void **state)
{
    struct fix *fix = *state;
    listen(fix);
    record_event(fix, "others", "1", succeeded(fix, "mail", 1), INBOUND_SUCCESS, NOW);
    struct ledger_request request = {.command = LEDGER_INBOX_PRUNE, .arena = &fix->arena};
    request.inbox_prune = (struct ledger_inbox_prune){.now_ms = NOW + 2000000, .limit = 9};
    assert_int_equal(ledger_call(fix->sim.backing, &request), 0); /* behind the checker's back */
    checker_end(&fix->sim);
    expect(fix, "11.1 a recorded event is never lost");
}

static const struct CMUnitTest tests[] = {
    TEST(test_events_that_are_right),
    TEST(test_event_applied_twice),
    TEST(test_event_of_another_operation),
    TEST(test_event_of_another_source),
    TEST(test_event_before_the_answer),
    TEST(test_older_event_downgrades),
    TEST(test_success_that_settles_nothing),
    TEST(test_failed_event_as_a_proof),
    TEST(test_failure_after_success_unnoticed),
    TEST(test_event_recorded_twice),
    TEST(test_event_acknowledged_too_soon),
    TEST(test_event_that_nobody_took),
    TEST(test_event_that_is_gone),
};
const struct test_part checker_inbound = {"checker inbound", tests, sizeof tests / sizeof *tests};
