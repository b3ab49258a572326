/* Rules of identity and of what callers are told can fail. */
#include "checker_history.h"

/* ---- 2: identity ---- */

static void test_key_twice(void **state)
{
    struct fix *fix = *state;
    succeeded(fix, "mail", 1);
    struct operation *second = make(fix, "mail", 2, 1);
    second->key_hash = fix->ops[0].key_hash;
    second->key_version = 2;
    admit_as(fix, 1, second, false);
    expect(fix, "2, 15 a key is never forgotten");
}

static void test_tombstone_forgotten(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    drop(fix, op, op->retain_until_ms, true);
    admit_as(fix, 1, make(fix, "mail", 1, 2), false);
    expect(fix, "2, 15 a key is never forgotten");
}

static void test_version_without_reason(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    op->key_version = 2;
    admit_as(fix, 1, op, false);
    expect(fix, "2.7 versions count up");
}

static void test_same_intent_under_another_key(void **state)
{
    struct fix *fix = *state;
    succeeded(fix, "mail", 1);
    struct operation *second = make(fix, "mail", 1, 2);
    second->key_hash = digest_sha256(STR("another"));
    admit_as(fix, 1, second, false);
    expect(fix, "1, 2 one intent, one operation");
}

static void test_repeat_that_does_not_join(void **state)
{
    struct fix *fix = *state;
    fix->ops[0].key_source = KEY_SOURCE_REPEAT;
    struct operation *first = make(fix, "mail", 1, 1);
    first->key_source = KEY_SOURCE_REPEAT;
    admit_as(fix, 1, first, true);
    struct operation *second = make(fix, "mail", 1, 2);
    second->key_source = KEY_SOURCE_REPEAT;
    second->key_hash = digest_sha256(STR("random"));
    admit_as(fix, 1, second, false);
    expect(fix, "2.2.5 a repeat joins");
}

static void test_in_doubt_guard(void **state)
{
    struct fix *fix = *state;
    unknown(fix, "mail", 1);
    admit_as(fix, 1, make(fix, "mail", 2, 1), false);
    expect(fix, "2.9 in-doubt guard");
}

static void test_in_doubt_guard_and_distinct_from(void **state)
{
    struct fix *fix = *state;
    struct operation *doubt = unknown(fix, "mail", 1);
    struct operation *op = make(fix, "mail", 2, 1);
    struct ledger_request request = {.command = LEDGER_ADMIT};
    request.admit.admission.op = op;
    request.admit.admission.distinct_from[0] = doubt->id;
    request.admit.admission.distinct_count = 1;
    request.admit.event = (struct event){.cause = CAUSE_ADMITTED, .from = op->state, .to = op->state};
    tell(fix, 1, &request, false);
    expect_nothing(fix);
}

static void meet(struct fix *fix, struct operation *op, const struct operation *existing, enum verdict verdict)
{
    struct ledger_request request = {.command = LEDGER_ADMIT};
    request.admit.admission.op = op;
    request.admit.result.verdict = verdict;
    request.admit.result.existing = existing;
    tell(fix, 1, &request, false);
}

static void test_other_key_is_joined(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    meet(fix, make(fix, "mail", 2, 1), op, VERDICT_JOIN);
    expect(fix, "2 other intents are never merged");
}

static void test_conflict_is_replayed(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1), *other = make(fix, "mail", 1, 2);
    other->fingerprint = digest_sha256(STR("other arguments"));
    meet(fix, other, op, VERDICT_REPLAY);
    expect(fix, "2.7 same key, other arguments");
}

static void test_weaker_source_of_a_key(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    fix->weak.identity = IDENTITY_CALLER;
    op->key_source = KEY_SOURCE_REPEAT;
    admit_as(fix, 1, op, false);
    expect(fix, "2.2 the first source of a key wins");
}

static void test_held_in_spite_of_distinct_from(void **state)
{
    struct fix *fix = *state;
    struct operation *doubt = unknown(fix, "mail", 1);
    const char *distinct[] = {doubt->id};
    reply(fix, 2, 1, REPLY_HELD, doubt);
    expect_nothing(fix);
    reply_as(fix, (struct caller){.intent = 2, .call = 2, .distinct_from = distinct, .distinct_count = 1},
             (struct engine_reply){.kind = REPLY_HELD, .op = doubt});
    expect(fix, "2.9 distinct_from lets a call run");
}

static void test_read_leaves_a_row(void **state)
{
    struct fix *fix = *state;
    admit(fix, "look", 1, 1);
    expect(fix, "4 reads leave no row");
}

/* ---- 4, 12, 16: answers ---- */

static void test_told_before_it_is_durable(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1), ahead = *op;
    ahead.rev++;
    reply(fix, 1, 1, REPLY_OPERATION, &ahead);
    expect(fix, "4, 5.1 told before it is durable");
}

static void test_told_of_what_does_not_exist(void **state)
{
    struct fix *fix = *state;
    reply(fix, 1, 1, REPLY_OPERATION, make(fix, "mail", 1, 1));
    expect(fix, "4, 5.1 told before it is durable");
}

static void test_told_another_state(void **state)
{
    struct fix *fix = *state;
    struct operation op = *dispatched(fix, "mail", 1);
    op.state = STATE_COMPLETED_SUCCESS;
    reply(fix, 1, 1, REPLY_OPERATION, &op);
    expect(fix, "4 told what was not committed");
}

static void test_told_of_another_intent(void **state)
{
    struct fix *fix = *state;
    reply(fix, 2, 1, REPLY_OPERATION, succeeded(fix, "mail", 1));
    expect(fix, "2 other intents are never merged");
}

static void test_told_to_another_principal(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    reply_as(fix, (struct caller){.intent = 1, .call = 2, .principal = "other"},
             (struct engine_reply){.kind = REPLY_OPERATION, .op = op, .replayed = true});
    expect(fix, "2.4 results are not shared");
}

static void test_told_to_another_tenant(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    reply_as(fix, (struct caller){.intent = 2, .call = 1, .tenant = "zeta", .asked = ASKED_OTHER, .waited_for = op->id},
             (struct engine_reply){.kind = REPLY_OPERATION, .op = op});
    expect(fix, "16 tenants see nothing of each other");
}

static void test_told_as_its_own_doing(void **state)
{
    struct fix *fix = *state;
    reply(fix, 1, 2, REPLY_OPERATION, succeeded(fix, "mail", 1));
    expect(fix, "12 replayed");
}

static void test_result_changes_between_answers(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1), other = *op;
    reply(fix, 1, 1, REPLY_OPERATION, op);
    other.external_id = "ef_9";
    reply(fix, 1, 1, REPLY_OPERATION, &other);
    expect(fix, "3.1, 12 an acknowledged result is never lost");
}

static void test_nothing_recorded_yet_it_was(void **state)
{
    static const enum reply_kind kinds[] = {REPLY_CONFLICT, REPLY_HELD,    REPLY_PLAN,   REPLY_UNAVAILABLE,
                                            REPLY_EXPIRED,  REPLY_REFUSED, REPLY_NO_TOOL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (i > 0) {
            teardown(state);
            setup(state);
        }
        struct fix *fix = *state;
        admit(fix, "mail", 1, 1);
        reply(fix, 1, 1, kinds[i], NULL);
        expect(fix, "4, 12 told that nothing was recorded");
    }
}

static void test_nothing_recorded_then_it_is(void **state)
{
    struct fix *fix = *state;
    reply(fix, 1, 1, REPLY_CONFLICT, NULL);
    admit(fix, "mail", 1, 1);
    expect(fix, "4, 12 told that nothing was recorded");
}

static void test_acknowledged_operation_is_not_found(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    reply_as(fix, (struct caller){.intent = 1, .call = 2, .asked = ASKED_WAIT, .waited_for = op->id},
             (struct engine_reply){.kind = REPLY_NOT_FOUND});
    expect(fix, "4, 15 an acknowledged operation is never lost");
}

static const struct CMUnitTest tests[] = {
    TEST(test_key_twice),
    TEST(test_tombstone_forgotten),
    TEST(test_version_without_reason),
    TEST(test_same_intent_under_another_key),
    TEST(test_repeat_that_does_not_join),
    TEST(test_in_doubt_guard),
    TEST(test_in_doubt_guard_and_distinct_from),
    TEST(test_other_key_is_joined),
    TEST(test_conflict_is_replayed),
    TEST(test_weaker_source_of_a_key),
    TEST(test_held_in_spite_of_distinct_from),
    TEST(test_read_leaves_a_row),
    TEST(test_told_before_it_is_durable),
    TEST(test_told_of_what_does_not_exist),
    TEST(test_told_another_state),
    TEST(test_told_of_another_intent),
    TEST(test_told_to_another_principal),
    TEST(test_told_to_another_tenant),
    TEST(test_told_as_its_own_doing),
    TEST(test_result_changes_between_answers),
    TEST(test_nothing_recorded_yet_it_was),
    TEST(test_nothing_recorded_then_it_is),
    TEST(test_acknowledged_operation_is_not_found),
};
const struct test_part checker_answers = {"checker answers", tests, sizeof tests / sizeof *tests};
