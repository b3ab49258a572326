/* Rules of states, re-sends, look-ups and approvals can fail. */
#include "checker_history.h"

/* ---- 3: states ---- */

static void test_version_is_skipped(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct change change = change_to(op, STATE_REJECTED, CAUSE_CANCEL);
    change.op.rev++;
    write_change(fix, 1, op, &change, false);
    expect(fix, "3.1, 15 compare-and-set");
}

static void test_version_is_written_twice(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1), stale = *op;
    look_up(fix, op, OUTCOME_CANNOT_TELL, STATE_UNKNOWN_OUTCOME);
    struct change change = change_to(&stale, STATE_UNKNOWN_OUTCOME, CAUSE_LOOKUP);
    write_change(fix, 1, &stale, &change, false);
    expect(fix, "3.1, 15 compare-and-set");
}

static void test_forbidden_moves(void **state)
{
    static const struct {
        enum state to;
        enum cause cause;
    } moves[] = {
        {STATE_PENDING_DISPATCH, CAUSE_OWNER_GONE}, /* 3.3: nothing leads back to "nothing has left" */
        {STATE_FAILED_RETRYABLE, CAUSE_OWNER_GONE}, {STATE_FAILED_PERMANENT, CAUSE_OWNER_GONE},
        {STATE_FAILED_PERMANENT, CAUSE_TIMER},      {STATE_REJECTED, CAUSE_CANCEL},
        {STATE_COMPLETED_SUCCESS, CAUSE_TIMER},
    };
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (i > 0) {
            teardown(state);
            setup(state);
        }
        struct fix *fix = *state;
        move(fix, dispatched(fix, "mail", 1), moves[i].to, moves[i].cause);
        expect(fix, "3 moves");
    }
}

static void test_closed_by_the_clock(void **state)
{
    struct fix *fix = *state;
    move(fix, unknown(fix, "mail", 1), STATE_FAILED_PERMANENT, CAUSE_GAVE_UP);
    expect(fix, "3 moves");
}

static void test_move_without_an_event(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct change change = change_to(op, STATE_REJECTED, CAUSE_CANCEL);
    change.request.transition.event_count = 0;
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.1 every move has its event");
}

static void test_event_from_elsewhere(void **state)
{
    struct fix *fix = *state;
    struct operation *op = admit(fix, "mail", 1, 1);
    struct change change = change_to(op, STATE_REJECTED, CAUSE_CANCEL);
    change.request.transition.events[0].from = STATE_PLANNED;
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.1 events replay");
}

static void test_end_changes_its_result(void **state)
{
    struct fix *fix = *state;
    struct operation *op = succeeded(fix, "mail", 1);
    struct change change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_EVIDENCE);
    change.op.external_id = "ef_2";
    write_change(fix, 1, op, &change, true);
    expect(fix, "3.1 terminal states are write-once");
}

static void test_decision_without_a_name(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    struct change change = change_to(op, STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    change.request.transition.events[0].actor = NULL;
    write_change(fix, 1, op, &change, true);
    expect(fix, "7.4 a person's decision has a name");
}

static void test_clean_failure_ends_a_doubt(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "pay", 1);
    dispatch(fix, op);
    answer(fix, op, OUTCOME_REFUSED, STATE_FAILED_PERMANENT);
    expect(fix, "3.2 no clean failure ends a doubt");
}

/* A gateway is told of a success, somebody else had given the operation up: its answer is not thrown away. */
static void thrown_away(struct fix *fix, bool dies)
{
    struct operation *op = dispatched(fix, "mail", 1);
    struct message message = message_of(fix, op);
    message.gateway = 1;
    send_by(fix, 1, &message, NOW);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    checker_answered(&fix->sim, &message, OUTCOME_SUCCESS);
    struct change change = change_to(op, STATE_UNKNOWN_OUTCOME, CAUSE_OWNER_GONE);
    end_try(fix, op, &change, OUTCOME_LOST);
    write_change(fix, 1, op, &change, true);
    if (dies)
        checker_gateway_died(&fix->sim, 1);
    change = change_to(op, STATE_COMPLETED_SUCCESS, CAUSE_OPERATOR);
    change.op.external_id = "ef_1";
    write_change(fix, 1, op, &change, true);
    checker_end(&fix->sim);
}

static void test_evidence_thrown_away(void **state)
{
    thrown_away(*state, false);
    expect(*state, "3.4 late evidence is kept");
}

static void test_evidence_lost_with_its_gateway(void **state)
{
    thrown_away(*state, true);
    expect_nothing(*state);
}

static void test_rejected_although_sent(void **state)
{
    struct fix *fix = *state;
    struct operation *op = dispatched(fix, "mail", 1);
    answer(fix, op, OUTCOME_NOT_PROCESSED, STATE_FAILED_RETRYABLE);
    move(fix, op, STATE_REJECTED, CAUSE_CANCEL);
    expect(fix, "3 rejected: nothing was ever sent");
}

static void test_correction_without_an_incident(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    checker_excuse(&fix->sim, 1, SIM_LOOKUP_BLIND);
    move(fix, op, STATE_FAILED_PERMANENT, CAUSE_OPERATOR);
    move(fix, op, STATE_COMPLETED_SUCCESS, CAUSE_OPERATOR);
    expect(fix, "3.4 a corrected \"no effect\" is an incident");
}

/* ---- 6, 7: re-sends and look-ups ---- */

static void test_resend_without_a_key(void **state)
{
    struct fix *fix = *state;
    dispatch(fix, unknown(fix, "mail", 1));
    expect(fix, "6 a re-send");
}

static void test_resend_after_the_keys_retention(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "pay", 1);
    fix->sim.now_ms += fix->keyed_provider.key_retention_ms;
    dispatch(fix, op);
    expect(fix, "6 a re-send");
}

static void test_absent_before_settle(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    look_up(fix, op, OUTCOME_ABSENT, STATE_UNKNOWN_OUTCOME);
    look_up(fix, op, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    expect(fix, "7.1 absent counts after settle");
}

static void test_absent_too_few_times(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    fix->sim.now_ms += 60000;
    look_up(fix, op, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    expect(fix, "7.1 absent counts after settle");
}

static void test_absent_not_in_a_row(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    fix->sim.now_ms += 60000;
    look_up(fix, op, OUTCOME_ABSENT, STATE_UNKNOWN_OUTCOME);
    look_up(fix, op, OUTCOME_CANNOT_TELL, STATE_UNKNOWN_OUTCOME);
    look_up(fix, op, OUTCOME_ABSENT, STATE_FAILED_PERMANENT);
    expect(fix, "7.1 absent counts after settle");
}

static void test_two_matches_unnoticed(void **state)
{
    struct fix *fix = *state;
    struct operation *op = unknown(fix, "mail", 1);
    effect(fix, op, "ef_1", SIM_FAULT_COUNT);
    look_up(fix, op, OUTCOME_SEVERAL, STATE_UNKNOWN_OUTCOME);
    expect(fix, "7.1 two matches are an incident");
}

/* ---- approvals (8) ---- */

static const char *const record = "{\"needed\":2,\"expires_ms\":9000000000000,\"policy\":\"p\",\"decisions\":[]}";

static struct operation *asked(struct fix *fix, const char *tool)
{
    struct operation *op = make(fix, tool, 1, 1);
    op->state = STATE_PLANNED;
    op->reason = REASON_AWAITING_APPROVAL;
    op->approval = str_of(record);
    admit_as(fix, 1, op, true);
    return op;
}

static void decides(struct fix *fix, struct operation *op, const char *who, bool approve)
{
    struct change change = change_to(op, approve ? STATE_PLANNED : STATE_REJECTED, CAUSE_APPROVAL);
    change.request.transition.events[0].actor = who;
    write_change(fix, 1, op, &change, true);
}

static void asks_anew(struct fix *fix, struct operation *op)
{
    struct change change = change_to(op, STATE_PLANNED, CAUSE_APPROVAL);
    change.request.transition.events[0].note = "the tool's approval policy or its request has changed: asked anew";
    write_change(fix, 1, op, &change, true);
}

/* of the version that they are shown */
static void is_told(struct fix *fix, const struct operation *op, const char *who, bool approve)
{
    struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op};
    checker_decided(&fix->sim, op->id, who, approve, &reply);
}

static void leaves(struct fix *fix, struct operation *op)
{
    struct change change = change_to(op, STATE_DISPATCHED, CAUSE_DISPATCH);
    begin_try(fix, op, &change, ATTEMPT_CALL);
    write_change(fix, 1, op, &change, true);
}

static void test_two_people_agree(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    decides(fix, op, "jon", true);
    leaves(fix, op);
    expect_nothing(fix);
}

static void test_leaves_with_one_of_two(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    leaves(fix, op);
    expect(fix, "8 nothing leaves without a complete approval");
}

static void test_a_person_twice(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    decides(fix, op, "ivy", true);
    expect(fix, "8 distinct people");
}

static void test_the_caller_decides(void **state)
{
    struct fix *fix = *state;
    decides(fix, asked(fix, "mail"), "agent", true);
    expect(fix, "8 never the one who calls");
}

static void test_a_decision_after_the_last_one(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    decides(fix, op, "jon", true);
    decides(fix, op, "kim", false);
    expect(fix, "8 the first decision stands");
}

static void test_a_decision_on_what_was_not_asked(void **state)
{
    struct fix *fix = *state;
    struct operation *op = make(fix, "mail", 1, 1);
    op->state = STATE_PLANNED;
    admit_as(fix, 1, op, true);
    decides(fix, op, "ivy", true);
    expect(fix, "8 an approval is for what waits");
}

static void test_what_people_said_is_lost(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    struct change change = change_to(op, STATE_PLANNED, CAUSE_APPROVAL);
    change.request.transition.events[0].actor = "ivy";
    change.op.approval = STR_NONE;
    write_change(fix, 1, op, &change, true);
    expect(fix, "8 what people said is kept");
}

static void test_told_late_what_counted(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    struct operation seen = *op;
    asks_anew(fix, op);
    is_told(fix, &seen, "ivy", true);
    decides(fix, op, "jon", true); /* somebody else is faster */
    is_told(fix, &seen, "ivy", true);
    is_told(fix, op, "jon", true);
    decides(fix, op, "kim", false);
    is_told(fix, &seen, "ivy", true);
    is_told(fix, op, "kim", false);
    expect_nothing(fix);
}

static void test_told_of_what_nobody_counted(void **state)
{
    struct fix *fix = *state;
    is_told(fix, asked(fix, "mail"), "ivy", true);
    expect(fix, "8 told that it counts");
}

static void test_told_of_what_counted_before_it_was_asked_anew(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    asks_anew(fix, op);
    is_told(fix, op, "ivy", true);
    expect(fix, "8 told that it counts");
}

static void test_told_of_somebody_elses_decision(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    is_told(fix, op, "jon", true);
    expect(fix, "8 told that it counts");
}

static void test_told_of_the_opposite_decision(void **state)
{
    struct fix *fix = *state;
    struct operation *op = asked(fix, "mail");
    decides(fix, op, "ivy", true);
    is_told(fix, op, "ivy", false);
    expect(fix, "8 told that it counts");
}

static const struct CMUnitTest tests[] = {
    TEST(test_version_is_skipped),
    TEST(test_version_is_written_twice),
    TEST(test_forbidden_moves),
    TEST(test_closed_by_the_clock),
    TEST(test_move_without_an_event),
    TEST(test_event_from_elsewhere),
    TEST(test_end_changes_its_result),
    TEST(test_decision_without_a_name),
    TEST(test_clean_failure_ends_a_doubt),
    TEST(test_evidence_thrown_away),
    TEST(test_evidence_lost_with_its_gateway),
    TEST(test_rejected_although_sent),
    TEST(test_correction_without_an_incident),
    TEST(test_resend_without_a_key),
    TEST(test_resend_after_the_keys_retention),
    TEST(test_absent_before_settle),
    TEST(test_absent_too_few_times),
    TEST(test_absent_not_in_a_row),
    TEST(test_two_matches_unnoticed),
    TEST(test_two_people_agree),
    TEST(test_leaves_with_one_of_two),
    TEST(test_a_person_twice),
    TEST(test_the_caller_decides),
    TEST(test_a_decision_after_the_last_one),
    TEST(test_a_decision_on_what_was_not_asked),
    TEST(test_what_people_said_is_lost),
    TEST(test_told_late_what_counted),
    TEST(test_told_of_what_nobody_counted),
    TEST(test_told_of_what_counted_before_it_was_asked_anew),
    TEST(test_told_of_somebody_elses_decision),
    TEST(test_told_of_the_opposite_decision),
};
const struct test_part checker_states = {"checker states", tests, sizeof tests / sizeof *tests};
