/* The parent of a multi-step tool's steps (design 10.2), by itself: what is next, for every position of a failure and
 * every rule of undoing; what steps tell; what people decide. */
#include "core/admission.h"
#include "core/identity.h"
#include "core/step.h"
#include "core/steps.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#define COUNT 4 /* steps of most tests */

static const char *const names[COUNT] = {"one", "two", "three", "four"};

struct fix {
    struct arena arena;
    struct steps_item items[STEPS_MAX];
    struct steps_list list;
    struct tool tool;
    struct operation op;                 /* the parent */
    struct operation children[COUNT];    /* its steps' operations */
    struct operation undoers[2 * COUNT]; /* what undoes them */
    size_t undoer_count;
    struct step_effects fx; /* of the last step */
    int64_t now_ms;
    char order[256]; /* what was begun and undone, in its order */
};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    arena_init(&fix.arena);
    fix.now_ms = 1000;
    for (size_t i = 0; i < COUNT; i++)
        fix.items[i] =
            (struct steps_item){.name = names[i], .tool = "t", .undo = STEPS_UNDO_PLAYBOOK, .playbook = "back"};
    fix.list = (struct steps_list){.items = fix.items, .count = COUNT, .digest = "d1"};
    fix.tool = (struct tool){.name = "parent",
                             .class = CLASS_EXTERNAL_WEAK,
                             .provider = &steps_provider,
                             .steps = &fix.list,
                             .retry = {.attempts_max = 1, .total_ms = 100000, .backoff_ms = 1, .backoff_max_ms = 1},
                             .retain_ms = 1000};
    *state = &fix;
    return 0;
}

static int teardown(void **state)
{
    arena_release(&((struct fix *)*state)->arena);
    return 0;
}

static struct steps_progress progress_of(struct fix *fix)
{
    struct steps_progress progress;
    assert_int_equal(steps_read(&fix->arena, fix->op.steps, &progress, NULL), 0);
    return progress;
}

static enum err_code move_as(struct fix *fix, struct step_input in, struct err *err)
{
    in.now_ms = ++fix->now_ms;
    in.arena = &fix->arena;
    in.owner = "us";
    in.lease_ms = 1000;
    return step(&fix->op, &fix->tool, &in, &fix->fx, err);
}

static void move(struct fix *fix, struct step_input in)
{
    struct err err = {0};
    assert_int_equal(move_as(fix, in, &err), 0);
}

/* Admitted, its turn has come. */
static void start(struct fix *fix)
{
    struct steps_progress progress;
    fix->op = (struct operation){.id = "op_parent",
                                 .tenant = "t",
                                 .tool = "parent",
                                 .principal = "agent",
                                 .state = STATE_PENDING_DISPATCH,
                                 .rev = 1,
                                 .created_ms = fix->now_ms};
    steps_start(&fix->list, &progress);
    fix->op.steps = steps_write(&fix->arena, &progress);
    move(fix, (struct step_input){.kind = STEP_RUN_STEPS});
    assert_int_equal(fix->op.state, STATE_ACKNOWLEDGED);
    assert_false(fix->op.may_have_applied); /* nothing has begun */
    memset(fix->children, 0, sizeof fix->children);
    fix->undoer_count = 0;
    fix->order[0] = '\0';
}

static void wake(struct fix *fix)
{
    move(fix, (struct step_input){.kind = STEP_WAKE});
}

static void log_order(struct fix *fix, const char *what, size_t at)
{
    size_t n = strlen(fix->order);
    snprintf(fix->order + n, sizeof fix->order - n, "%s%s%s", n ? " " : "", what, names[at]);
}

static void begin(struct fix *fix, size_t at)
{
    struct operation *child = &fix->children[at];
    *child = (struct operation){.tool = "t", .state = STATE_DISPATCHED, .parent = fix->op.id};
    snprintf(child->id, sizeof child->id, "op_%zu", at);
    move(fix, (struct step_input){.kind = STEP_BEGIN_STEP, .at = at, .child = child->id});
    log_order(fix, "+", at);
}

static void tell(struct fix *fix, const struct operation *child)
{
    move(fix, (struct step_input){.kind = STEP_TOLD, .told = child});
}

static void ends(struct fix *fix, size_t at, enum state to)
{
    struct operation *child = &fix->children[at];
    child->state = to;
    child->reason = to == STATE_FAILED_PERMANENT ? REASON_PROVIDER_REFUSED : REASON_NONE;
    child->error = to == STATE_FAILED_PERMANENT ? STR("{\"message\":\"no stock\",\"code\":\"E1\"}") : STR_NONE;
    tell(fix, child);
}

static void undo_begins(struct fix *fix, size_t at)
{
    struct operation *undoer = &fix->undoers[fix->undoer_count++];
    snprintf(undoer->id, sizeof undoer->id, "op_undo%zu", fix->undoer_count);
    fix->children[at].state = STATE_COMPENSATING;
    fix->children[at].compensation = undoer->id;
    move(fix, (struct step_input){.kind = STEP_UNDO_STEP, .at = at, .compensation = undoer->id});
    log_order(fix, "-", at);
}

/* Drives it to its end. Step `failing` ends without effect; what undoes step `stuck` has none. COUNT: none does. */
static void drive(struct fix *fix, size_t failing, size_t stuck)
{
    for (int moves = 0; moves < 100 && !state_terminal(fix->op.state); moves++) {
        wake(fix);
        size_t at = fix->fx.at;
        switch (fix->fx.action) {
        case ACTION_BEGIN_STEP:
            begin(fix, at);
            ends(fix, at, at == failing ? STATE_FAILED_PERMANENT : STATE_COMPLETED_SUCCESS);
            break;
        case ACTION_UNDO_STEP:
            undo_begins(fix, at);
            fix->children[at].reason = at == stuck ? REASON_COMPENSATION_FAILED : REASON_NONE;
            ends(fix, at, at == stuck ? STATE_COMPLETED_SUCCESS : STATE_COMPENSATED);
            break;
        case ACTION_FINISH_STEPS:
            move(fix, (struct step_input){.kind = STEP_FINISH_STEPS, .finding = {.result = STR("{\"all\":1}")}});
            break;
        default:
            if (!fix->fx.changed)
                return;
        }
    }
}

static void assert_statuses(struct fix *fix, const char *expected)
{
    struct steps_progress progress = progress_of(fix);
    char text[256] = "";
    for (size_t i = 0; i < progress.count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, steps_status_name(progress.entries[i].status));
    }
    assert_string_equal(text, expected);
}

static void assert_op(struct fix *fix, enum state state, enum reason reason)
{
    assert_string_equal(state_name(fix->op.state), state_name(state));
    assert_string_equal(reason_name(fix->op.reason), reason_name(reason));
}

/* ---- the record ---- */

static void test_the_record_keeps_all(void **state)
{
    struct fix *fix = *state;
    struct steps_progress in = {.digest = "d", .rolling_back = "why \"so\"", .cancelled = true, .count = 2}, out;
    in.entries[0] = (struct steps_entry){.name = "a",
                                         .tool = "x",
                                         .status = STEPS_STUCK,
                                         .undo = STEPS_UNDO_PLAYBOOK,
                                         .playbook = "back",
                                         .operation = "op_1",
                                         .undo_operation = "op_2",
                                         .note = "n",
                                         .code = "c",
                                         .held_since_ms = 7};
    in.entries[1] = (struct steps_entry){.name = "b", .tool = "y", .undo = STEPS_UNDO_LEAVE};
    struct str text = steps_write(&fix->arena, &in);
    assert_int_equal(steps_read(&fix->arena, text, &out, NULL), 0);
    struct str again = steps_write(&fix->arena, &out);
    assert_true(str_equal(text, again));
    assert_string_equal(out.entries[0].undo_operation, "op_2");
    assert_int_equal(out.entries[0].held_since_ms, 7);
    assert_true(out.cancelled);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"digest\":\"d\",\"steps\":[]}",
                                      "{\"digest\":\"d\",\"steps\":[{\"name\":\"a\"}]}",
                                      ("{\"digest\":\"d\",\"steps\":[{\"name\":\"a\",\"tool\":\"x\",\"status\":\"odd\","
                                       "\"undo\":\"leave\"}]}")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(steps_read(&fix->arena, str_of(bad[i]), &out, NULL), 0);
}

/* ---- forward and back ---- */

static void test_every_position_of_a_failure(void **state)
{
    static const char *const orders[] = {"+one", "+one +two -one", "+one +two +three -two -one",
                                         "+one +two +three +four -three -two -one", "+one +two +three +four"};
    static const char *const ended[] = {"failed waiting waiting waiting", "undone failed waiting waiting",
                                        "undone undone failed waiting", "undone undone undone failed",
                                        "done done done done"};
    struct fix *fix = *state;
    for (size_t failing = 0; failing <= COUNT; failing++) {
        start(fix);
        drive(fix, failing, COUNT);
        assert_string_equal(fix->order, orders[failing]);
        assert_statuses(fix, ended[failing]);
        if (failing == COUNT) {
            assert_op(fix, STATE_COMPLETED_SUCCESS, REASON_NONE);
            assert_true(str_is(fix->op.result, "{\"all\":1}"));
            assert_true(fix->op.may_have_applied);
            continue;
        }
        assert_op(fix, failing ? STATE_COMPENSATED : STATE_FAILED_PERMANENT,
                  failing ? REASON_ROLLED_BACK : REASON_STEP_FAILED);
        assert_false(fix->op.may_have_applied);
        char message[64];
        snprintf(message, sizeof message, "step %s failed: failed_permanent, provider_refused: no stock",
                 names[failing]);
        assert_non_null(strstr(fix->op.error.p, message));
        assert_non_null(strstr(fix->op.error.p, "\"code\":\"E1\""));
    }
}

/* What each rule makes of a step that is done, in every combination. */
static void test_every_rule_of_undoing(void **state)
{
    struct fix *fix = *state;
    for (unsigned mix = 0; mix < 4 * 4 * 4; mix++) {
        bool stands = false, stuck = false;
        for (size_t i = 0; i < 3; i++) {
            fix->items[i].undo = (enum steps_undo)(mix >> (2 * i) & 3);
            stands |= fix->items[i].undo != STEPS_UNDO_NOTHING;
        }
        start(fix);
        drive(fix, 3, COUNT);
        for (size_t i = 3; i-- > 0;) {
            enum steps_status status = progress_of(fix).entries[i].status;
            switch (fix->items[i].undo) {
            case STEPS_UNDO_NOTHING:
            case STEPS_UNDO_LEAVE: assert_int_equal(status, stuck ? STEPS_DONE : STEPS_LEFT); break;
            case STEPS_UNDO_PLAYBOOK: assert_int_equal(status, stuck ? STEPS_DONE : STEPS_UNDONE); break;
            case STEPS_UNDO_ESCALATE:
                assert_int_equal(status, stuck ? STEPS_DONE : STEPS_STUCK);
                stuck = true;
                break;
            }
        }
        if (stuck)
            assert_op(fix, STATE_COMPENSATING, REASON_NEEDS_OPERATOR);
        else if (stands)
            assert_op(fix, STATE_COMPENSATED, REASON_ROLLED_BACK);
        else
            assert_op(fix, STATE_FAILED_PERMANENT, REASON_STEP_FAILED);
    }
}

static void test_skipped_steps_and_those_that_were_so(void **state)
{
    struct fix *fix = *state;
    start(fix);
    wake(fix);
    move(fix, (struct step_input){.kind = STEP_SKIP_STEP, .at = 0});
    wake(fix);
    begin(fix, 1);
    ends(fix, 1, STATE_COMPLETED_NOOP);
    wake(fix);
    move(fix, (struct step_input){.kind = STEP_FAIL_STEP, .at = 2, .note = "refused by its guard"});
    drive(fix, COUNT, COUNT);
    assert_statuses(fix, "skipped left failed waiting"); /* nothing of it was ours */
    assert_op(fix, STATE_FAILED_PERMANENT, REASON_STEP_FAILED);
    assert_non_null(strstr(fix->op.error.p, "refused by its guard"));
}

/* "It was so already", after a request that nobody answered: perhaps that one made it so. */
static void test_what_may_have_been_ours_is_a_persons(void **state)
{
    struct fix *fix = *state;
    fix->items[0].undo = STEPS_UNDO_LEAVE;
    start(fix);
    for (size_t i = 0; i < 2; i++) {
        wake(fix);
        begin(fix, i);
        fix->children[i].attempts = 2;
        ends(fix, i, STATE_COMPLETED_NOOP);
    }
    wake(fix);
    begin(fix, 2);
    ends(fix, 2, STATE_FAILED_PERMANENT);
    drive(fix, COUNT, COUNT);
    assert_statuses(fix, "done stuck failed waiting");
    assert_op(fix, STATE_COMPENSATING, REASON_NEEDS_OPERATOR);
    move(fix, (struct step_input){.kind = STEP_RESOLVE, .actor = "boss", .note = "n"});
    drive(fix, COUNT, COUNT);
    assert_statuses(fix, "left undone failed waiting");
    assert_op(fix, STATE_COMPENSATED, REASON_ROLLED_BACK);
}

/* A held step is tried again; nothing else moves meanwhile. */
static void test_a_held_step(void **state)
{
    struct fix *fix = *state;
    start(fix);
    wake(fix);
    move(fix,
         (struct step_input){.kind = STEP_HOLD_STEP, .hold_reason = REASON_AWAITING_BUDGET, .hold_until_ms = 5000});
    assert_op(fix, STATE_ACKNOWLEDGED, REASON_AWAITING_BUDGET);
    assert_int_equal(fix->op.wake_at_ms, 5000);
    int64_t since_ms = progress_of(fix).entries[0].held_since_ms;
    assert_true(since_ms > 0);
    move(fix,
         (struct step_input){.kind = STEP_HOLD_STEP, .hold_reason = REASON_AWAITING_BUDGET, .hold_until_ms = 9000});
    assert_int_equal(progress_of(fix).entries[0].held_since_ms, since_ms); /* since the first time */
    wake(fix);
    assert_int_equal(fix->fx.action, ACTION_BEGIN_STEP);
    begin(fix, 0);
    assert_op(fix, STATE_ACKNOWLEDGED, REASON_RUNNING_STEPS);
    assert_int_equal(progress_of(fix).entries[0].held_since_ms, 0);
    assert_int_equal(fix->op.wake_at_ms, 0); /* the step's end wakes it */
    assert_true(fix->op.may_have_applied);
    wake(fix);
    assert_int_equal(fix->fx.action, ACTION_NONE);
}

/* ---- what steps tell ---- */

static void test_only_ends_are_told(void **state)
{
    (void)state;
    for (int from = 0; from < STATE_COUNT; from++)
        for (int to = 0; to < STATE_COUNT; to++) {
            struct operation op = {.state = (enum state)to, .parent = "op_p"};
            bool news = from != to && state_terminal(op.state);
            assert_int_equal(steps_tell((enum state)from, &op), news);
            op.compensates = "op_c"; /* what it undoes tells */
            assert_false(steps_tell((enum state)from, &op));
            op.compensates = op.parent = NULL;
            assert_false(steps_tell((enum state)from, &op));
        }
}

static void test_evidence_before_the_rollback_begins(void **state)
{
    struct fix *fix = *state;
    start(fix);
    wake(fix);
    begin(fix, 0);
    ends(fix, 0, STATE_FAILED_PERMANENT);
    ends(fix, 0, STATE_COMPLETED_SUCCESS); /* it had happened */
    drive(fix, COUNT, COUNT);
    assert_op(fix, STATE_COMPLETED_SUCCESS, REASON_NONE);
}

/* What failed and shows up while the others are undone is undone, too. */
static void test_evidence_while_rolling_back(void **state)
{
    struct fix *fix = *state;
    start(fix);
    for (size_t i = 0; i < 2; i++) {
        wake(fix);
        begin(fix, i);
        ends(fix, i, i == 1 ? STATE_FAILED_PERMANENT : STATE_COMPLETED_SUCCESS);
    }
    wake(fix);
    assert_op(fix, STATE_COMPENSATING, REASON_ROLLING_BACK);
    wake(fix);
    undo_begins(fix, 0);
    ends(fix, 1, STATE_COMPLETED_SUCCESS);
    assert_statuses(fix, "undoing done waiting waiting");
    wake(fix);
    assert_int_equal(fix->fx.action, ACTION_NONE); /* one at a time */
    ends(fix, 0, STATE_COMPENSATED);
    drive(fix, COUNT, COUNT);
    assert_string_equal(fix->order, "+one +two -one -two");
    assert_op(fix, STATE_COMPENSATED, REASON_ROLLED_BACK);
}

static void test_evidence_after_the_end(void **state)
{
    struct fix *fix = *state;
    for (size_t failing = 0; failing < 2; failing++) {
        start(fix);
        drive(fix, failing, COUNT);
        enum state ended = fix->op.state;
        int64_t wake_at_ms = fix->op.wake_at_ms;
        ends(fix, failing, STATE_COMPLETED_SUCCESS);
        assert_int_equal(fix->op.state, ended);
        assert_int_equal(fix->op.wake_at_ms, wake_at_ms);
        assert_int_equal(fix->fx.incident_count, 1);
        assert_int_equal(fix->fx.incidents[0].kind, INCIDENT_CONTRADICTION);
        assert_int_equal(progress_of(fix).entries[failing].status, STEPS_DONE);
    }
    start(fix); /* a single step of a finished one is undone by people: that is no contradiction */
    drive(fix, COUNT, COUNT);
    ends(fix, 2, STATE_COMPENSATED);
    assert_op(fix, STATE_COMPLETED_SUCCESS, REASON_NONE);
    assert_int_equal(fix->fx.incident_count, 0);
    assert_statuses(fix, "done done undone done");
}

/* Others' operations, and its own compensations, tell it nothing by themselves. */
static void test_strangers_tell_nothing(void **state)
{
    struct fix *fix = *state;
    start(fix);
    wake(fix);
    begin(fix, 0);
    struct operation stranger = {.id = "op_x", .state = STATE_COMPLETED_SUCCESS};
    tell(fix, &stranger);
    assert_false(fix->fx.changed);
    fix->children[0].state = STATE_UNKNOWN_OUTCOME; /* open: nothing is known */
    tell(fix, &fix->children[0]);
    assert_false(fix->fx.changed);
    assert_statuses(fix, "running waiting waiting waiting");
}

static void test_requests_of_its_own_it_has_none(void **state)
{
    static const enum step_kind kinds[] = {STEP_ANSWER, STEP_LOOKUP_ANSWER, STEP_EVIDENCE};
    struct fix *fix = *state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        start(fix);
        move(fix, (struct step_input){.kind = kinds[i], .finding = {.outcome = OUTCOME_SUCCESS, .detail = "told"}});
        assert_op(fix, STATE_ACKNOWLEDGED, REASON_RUNNING_STEPS);
        assert_int_equal(fix->fx.event_count, 1);
    }
}

/* ---- the registry ---- */

static void test_nothing_begins_by_another_list(void **state)
{
    struct fix *fix = *state;
    start(fix);
    wake(fix);
    begin(fix, 0);
    fix->list.digest = "d2";
    ends(fix, 0, STATE_COMPLETED_SUCCESS);
    wake(fix);
    assert_int_equal(fix->fx.action, ACTION_NONE);
    assert_op(fix, STATE_ACKNOWLEDGED, REASON_STEPS_CHANGED);
    assert_true(fix->op.wake_at_ms > fix->now_ms);
    struct step_input gone = {.kind = STEP_WAKE, .now_ms = ++fix->now_ms, .arena = &fix->arena};
    assert_int_equal(step(&fix->op, NULL, &gone, &fix->fx, NULL), 0);
    assert_op(fix, STATE_ACKNOWLEDGED, REASON_TOOL_MISSING);
    struct tool plain = fix->tool; /* of the same name, and no multi-step tool any more */
    plain.steps = NULL;
    assert_int_equal(step(&fix->op, &plain, &gone, &fix->fx, NULL), 0);
    assert_op(fix, STATE_ACKNOWLEDGED, REASON_TOOL_MISSING);
    move(fix, (struct step_input){.kind = STEP_CANCEL, .actor = "boss"}); /* what was done can be undone all the same */
    drive(fix, COUNT, COUNT);
    assert_string_equal(fix->order, "+one -one");
    assert_op(fix, STATE_COMPENSATED, REASON_CANCELLED);
}

/* A rollback needs neither the tool nor its list. */
static void test_a_rollback_without_the_tool(void **state)
{
    struct fix *fix = *state;
    start(fix);
    for (size_t i = 0; i < 2; i++) {
        wake(fix);
        begin(fix, i);
        ends(fix, i, i == 1 ? STATE_FAILED_PERMANENT : STATE_COMPLETED_SUCCESS);
    }
    fix->list.digest = "d2";
    struct step_input in = {.kind = STEP_WAKE, .now_ms = ++fix->now_ms, .arena = &fix->arena};
    assert_int_equal(step(&fix->op, NULL, &in, &fix->fx, NULL), 0);
    assert_op(fix, STATE_COMPENSATING, REASON_ROLLING_BACK);
    assert_int_equal(step(&fix->op, NULL, &in, &fix->fx, NULL), 0);
    assert_int_equal(fix->fx.action, ACTION_UNDO_STEP);
    assert_int_equal(fix->fx.at, 0);
}

/* Until its turn comes it is as the registry says then. */
static void test_the_list_is_the_one_of_its_turn(void **state)
{
    struct fix *fix = *state;
    struct steps_progress progress;
    fix->op = (struct operation){.id = "op_p", .tool = "parent", .state = STATE_PLANNED, .rev = 1};
    steps_start(&fix->list, &progress);
    fix->op.steps = steps_write(&fix->arena, &progress);
    fix->list.digest = "d2";
    fix->list.count = 2;
    move(fix, (struct step_input){.kind = STEP_RUN_STEPS});
    progress = progress_of(fix);
    assert_string_equal(progress.digest, "d2");
    assert_int_equal(progress.count, 2);
}

/* ---- people ---- */

static void test_cancel(void **state)
{
    struct fix *fix = *state;
    struct err err = {0};
    start(fix);
    wake(fix);
    begin(fix, 0);
    move(fix, (struct step_input){.kind = STEP_CANCEL, .actor = "boss", .note = "wrong order"});
    assert_op(fix, STATE_ACKNOWLEDGED, REASON_CANCELLED);
    wake(fix);
    assert_int_equal(fix->fx.action, ACTION_CANCEL_STEP); /* what runs settles first */
    assert_int_equal(fix->fx.at, 0);
    assert_int_equal(move_as(fix, (struct step_input){.kind = STEP_CANCEL, .actor = "boss"}, &err), ERR_CONFLICT);
    ends(fix, 0, STATE_COMPLETED_SUCCESS);
    drive(fix, COUNT, COUNT);
    assert_string_equal(fix->order, "+one -one"); /* nothing begins any more */
    assert_op(fix, STATE_COMPENSATED, REASON_CANCELLED);
    assert_non_null(strstr(fix->op.error.p, "cancelled by boss: wrong order"));
    start(fix); /* before anything was done */
    move(fix, (struct step_input){.kind = STEP_CANCEL, .actor = "boss"});
    drive(fix, COUNT, COUNT);
    assert_op(fix, STATE_FAILED_PERMANENT, REASON_CANCELLED);
    assert_string_equal(fix->order, "");
}

static void test_stuck_until_people_decide(void **state)
{
    struct fix *fix = *state;
    struct err err = {0};
    for (int way = 0; way < 3; way++) {
        start(fix);
        drive(fix, 3, 1);
        assert_string_equal(fix->order, "+one +two +three +four -three -two");
        assert_statuses(fix, "done stuck undone failed");
        assert_op(fix, STATE_COMPENSATING, REASON_NEEDS_OPERATOR);
        assert_int_equal(fix->op.wake_at_ms, 0);
        wake(fix);
        assert_int_equal(fix->fx.action, ACTION_NONE);
        assert_int_equal(fix->fx.incident_count, 0); /* told once */
        assert_int_equal(move_as(fix, (struct step_input){.kind = STEP_CANCEL, .actor = "boss"}, &err), ERR_CONFLICT);
        if (way == 2)
            move(fix, (struct step_input){.kind = STEP_RETRY, .actor = "boss"});
        else
            move(fix, (struct step_input){.kind = STEP_RESOLVE, .actor = "boss", .note = "n", .happened = way == 1});
        assert_op(fix, STATE_COMPENSATING, REASON_ROLLING_BACK);
        drive(fix, COUNT, COUNT);
        assert_op(fix, STATE_COMPENSATED, REASON_ROLLED_BACK);
        assert_statuses(fix, way == 1 ? "undone left undone failed" : "undone undone undone failed");
        assert_string_equal(fix->order, way == 2 ? "+one +two +three +four -three -two -two -one"
                                                 : "+one +two +three +four -three -two -one");
    }
}

/* The compensation had happened after all: nobody need decide any more. */
static void test_evidence_frees_what_was_stuck(void **state)
{
    struct fix *fix = *state;
    start(fix);
    drive(fix, 3, 1);
    assert_op(fix, STATE_COMPENSATING, REASON_NEEDS_OPERATOR);
    ends(fix, 1, STATE_COMPENSATED);
    assert_op(fix, STATE_COMPENSATING, REASON_ROLLING_BACK);
    drive(fix, COUNT, COUNT);
    assert_statuses(fix, "undone undone undone failed");
}

static void test_people_decide_on_nothing_else(void **state)
{
    static const enum step_kind kinds[] = {STEP_RESOLVE, STEP_RETRY};
    struct fix *fix = *state;
    struct err err = {0};
    for (size_t i = 0; i < 2; i++) {
        start(fix);
        wake(fix);
        begin(fix, 0);
        assert_int_equal(move_as(fix, (struct step_input){.kind = kinds[i], .note = "n"}, &err), ERR_CONFLICT);
        ends(fix, 0, STATE_COMPLETED_SUCCESS);
        drive(fix, 1, COUNT);
        assert_op(fix, STATE_COMPENSATED, REASON_ROLLED_BACK);
        assert_int_equal(move_as(fix, (struct step_input){.kind = kinds[i], .note = "n", .happened = true}, &err),
                         ERR_CONFLICT);
    }
}

/* ---- identity ---- */

static void test_keys_of_steps(void **state)
{
    struct fix *fix = *state;
    struct tool tool = {.name = "reserve",
                        .class = CLASS_EXTERNAL_WEAK,
                        .provider = &steps_provider,
                        .in_doubt = IN_DOUBT_HOLD,
                        .identity = IDENTITY_CALLER};
    struct call call = {.tenant = "t", .principal = "p", .parent = "op_p", .step = "one", .run = "r"};
    struct operation op = {.id = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"};
    struct admission admission;
    struct identity_error why;
    struct err err = {0};
    const struct json *effective;
    assert_int_equal(identity_derive(&call, &tool, STR("s"), &fix->arena, &op, &admission, &effective, &why, &err), 0);
    assert_string_equal(op.key, "step:op_p:one");
    assert_int_equal(op.key_source, KEY_SOURCE_STEP);
    assert_string_equal(op.parent, "op_p");
    assert_false(admission.hold_in_doubt); /* it repeats nothing */
    call = (struct call){.tenant = "t", .principal = "p", .idempotency_key = "step:op_p:one"};
    assert_int_equal(identity_derive(&call, &tool, STR("s"), &fix->arena, &op, &admission, &effective, &why, &err),
                     ERR_INVALID); /* nobody else has such keys */
    assert_int_equal(why.refusal, REFUSAL_KEY_INVALID);
}

static enum verdict verdict_on(struct operation *existing, bool same)
{
    struct operation op = {.tenant = "t",
                           .tool = "parent",
                           .principal = "p",
                           .key_version = 1,
                           .canonical_version = JSON_CANONICAL_VERSION};
    struct admission admission = {.op = &op, .share_with_tenant = true};
    struct admission_facts facts = {.by_key = existing};
    existing->tenant = "t", existing->tool = "parent", existing->principal = "p";
    existing->key_version = 1;
    existing->canonical_version = JSON_CANONICAL_VERSION;
    existing->fingerprint.b[0] = same ? 0 : 1;
    return admission_decide(&admission, &facts, 1).verdict;
}

static void test_the_same_key_again(void **state)
{
    struct fix *fix = *state;
    start(fix);
    assert_int_equal(verdict_on(&fix->op, true), VERDICT_JOIN);
    drive(fix, 1, COUNT);
    assert_int_equal(verdict_on(&fix->op, true), VERDICT_NEW); /* rolled back: another attempt */
    assert_int_equal(verdict_on(&fix->op, false), VERDICT_NEW);
    start(fix);
    drive(fix, 0, COUNT);
    assert_int_equal(verdict_on(&fix->op, true), VERDICT_NEW);
    start(fix);
    drive(fix, 3, 1);
    assert_int_equal(verdict_on(&fix->op, true), VERDICT_JOIN); /* stuck: it has not ended */
    start(fix);
    drive(fix, COUNT, COUNT);
    assert_int_equal(verdict_on(&fix->op, true), VERDICT_REPLAY);
    assert_int_equal(verdict_on(&fix->op, false), VERDICT_CONFLICT);
    fix->op.state = STATE_COMPENSATED; /* undone as a whole by people, with a playbook: that stays the answer */
    assert_int_equal(verdict_on(&fix->op, true), VERDICT_REPLAY);
    struct operation rejected = {.steps = fix->op.steps, .state = STATE_REJECTED, .reason = REASON_DENIED};
    assert_int_equal(verdict_on(&rejected, true), VERDICT_REPLAY); /* a person's no is one */
    struct operation rolled_back = {.state = STATE_COMPENSATED, .key_version = 1};
    struct operation later = {.state = STATE_FAILED_PERMANENT, .key_version = 2};
    assert_true(admission_answers(&later, &rolled_back));
    assert_false(admission_answers(&rolled_back, &later));
}

/* ---- passing results on ---- */

static void test_input_and_forms(void **state)
{
    struct fix *fix = *state;
    start(fix);
    wake(fix);
    begin(fix, 0);
    ends(fix, 0, STATE_COMPLETED_SUCCESS);
    wake(fix);
    move(fix, (struct step_input){.kind = STEP_SKIP_STEP, .at = 1});
    wake(fix);
    begin(fix, 2);
    struct steps_progress progress = progress_of(fix);
    const struct operation *steps[STEPS_MAX] = {&fix->children[0], NULL, &fix->children[2]};
    fix->op.arguments = STR("{\"sku\":\"s\",\"n\":9007199254740993,\"$steps\":1}");
    fix->op.run = "r1";
    fix->children[0].external_id = "x1";
    fix->children[0].result = STR("{\"a\":{\"b\":[1,2]}}");
    fix->children[0].arguments = STR("{\"q\":7}");
    const struct json *input = steps_input(&fix->arena, &fix->op, &progress, steps);
    assert_string_equal(
        json_to_text(&fix->arena, input).p,
        "{\"arguments\":{\"sku\":\"s\",\"n\":9007199254740993,\"$steps\":1},\"steps\":{\"one\":{\"status\":\"done\","
        "\"result\":{\"a\":{\"b\":[1,2]}},\"external_id\":\"x1\",\"operation_id\":\"op_0\",\"arguments\":{\"q\":7}},"
        "\"two\":{\"status\":\"skipped\"}},\"operation_id\":\"op_parent\",\"run_id\":\"r1\"}");
    static const struct {
        const char *form, *filled; /* NULL: refused */
    } cases[] = {
        {"{\"x\":\"{n}\"}", "{\"x\":9007199254740993}"}, /* digits are kept */
        {"{\"x\":\"{$steps.one.result.a.b}\"}", "{\"x\":[1,2]}"},
        {"{\"x\":\"id {$steps.one.external_id} of {$operation}, {$run}\"}", "{\"x\":\"id x1 of op_parent, r1\"}"},
        {"{\"x\":\"{$steps.one.arguments.q}\"}", "{\"x\":7}"},
        {"{\"x\":\"{$steps.two.result}\"}", NULL},   /* skipped */
        {"{\"x\":\"{$steps.three.status}\"}", NULL}, /* not over */
        {"{\"x\":\"{missing}\"}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct json *form, *filled = NULL;
        assert_int_equal(json_parse(&fix->arena, str_of(cases[i].form), NULL, &form, NULL), 0);
        enum err_code code = steps_fill(&fix->arena, form, input, &filled, &err);
        assert_int_equal(code == ERR_NONE, cases[i].filled != NULL);
        if (cases[i].filled)
            assert_string_equal(json_to_text(&fix->arena, filled).p, cases[i].filled);
    }
    assert_string_equal(json_to_text(&fix->arena, steps_result(&fix->arena, input)).p,
                        "{\"steps\":{\"one\":{\"operation_id\":\"op_0\",\"status\":\"done\",\"external_id\":\"x1\","
                        "\"result\":{\"a\":{\"b\":[1,2]}}},\"two\":{\"status\":\"skipped\"}}}");
}

/* ---- random lives ---- */

/* Anything may happen in any order: ends, late evidence, people, lists that change and come back. What must hold is
 * said here once more, by what the entries were before each move. */

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

static bool stands(const struct steps_entry *entry)
{
    return entry->status == STEPS_RUNNING || entry->status == STEPS_DONE || entry->status == STEPS_UNDOING ||
           entry->status == STEPS_STUCK;
}

static void check_action(struct fix *fix)
{
    struct steps_progress progress = progress_of(fix);
    size_t at = fix->fx.at;
    if (fix->fx.action == ACTION_BEGIN_STEP) {
        assert_null(progress.rolling_back);
        for (size_t i = 0; i < progress.count; i++) {
            enum steps_status status = progress.entries[i].status;
            assert_true(i < at ? status == STEPS_DONE || status == STEPS_SKIPPED : status == STEPS_WAITING);
        }
    } else if (fix->fx.action == ACTION_UNDO_STEP) {
        assert_non_null(progress.rolling_back);
        assert_int_equal(progress.entries[at].status, STEPS_DONE);
        assert_int_equal(progress.entries[at].undo, STEPS_UNDO_PLAYBOOK);
        for (size_t i = 0; i < progress.count; i++)
            assert_false(i != at &&
                         (i > at ? stands(&progress.entries[i]) : progress.entries[i].status == STEPS_STUCK));
    } else if (fix->fx.action == ACTION_FINISH_STEPS) {
        assert_null(progress.rolling_back);
        assert_int_equal(steps_count(&progress, STEPS_DONE) + steps_count(&progress, STEPS_SKIPPED), progress.count);
    }
}

static void check_row(struct fix *fix, bool was_turned)
{
    struct steps_progress progress = progress_of(fix);
    size_t open = steps_count(&progress, STEPS_RUNNING) + steps_count(&progress, STEPS_UNDOING);
    assert_true(open <= 1);
    assert_true(!was_turned || progress.rolling_back); /* never forward again */
    if (!state_terminal(fix->op.state))
        return;
    assert_int_equal(open + steps_count(&progress, STEPS_STUCK), 0);
    for (size_t i = 0; i < progress.count; i++) {
        const struct steps_entry *entry = &progress.entries[i];
        bool ours = entry->undo != STEPS_UNDO_NOTHING;
        if (fix->op.state == STATE_COMPLETED_SUCCESS)
            assert_true(entry->status == STEPS_DONE || entry->status == STEPS_SKIPPED);
        else
            assert_int_not_equal(entry->status, STEPS_DONE);
        if (fix->op.state == STATE_FAILED_PERMANENT && ours)
            assert_true(entry->status != STEPS_UNDONE && entry->status != STEPS_LEFT);
    }
}

static void drive_once(struct fix *fix, uint64_t *seed)
{
    static const enum step_kind begins[] = {STEP_BEGIN_STEP, STEP_BEGIN_STEP, STEP_BEGIN_STEP,
                                            STEP_SKIP_STEP,  STEP_FAIL_STEP,  STEP_HOLD_STEP};
    wake(fix);
    check_action(fix);
    size_t at = fix->fx.at;
    enum step_kind kind = begins[draw(seed, sizeof begins / sizeof *begins)];
    switch (fix->fx.action) {
    case ACTION_BEGIN_STEP:
        if (kind == STEP_BEGIN_STEP)
            begin(fix, at);
        else
            move(fix, (struct step_input){.kind = kind, .at = at, .note = "n", .hold_reason = REASON_AWAITING_BUDGET});
        break;
    case ACTION_CANCEL_STEP:
        move(fix, (struct step_input){.kind = STEP_HOLD_STEP, .at = at, .hold_reason = REASON_CANCELLED});
        break;
    case ACTION_UNDO_STEP:
        if (fix->undoer_count == sizeof fix->undoers / sizeof *fix->undoers || draw(seed, 5) == 0)
            move(fix, (struct step_input){.kind = STEP_NOT_UNDONE, .at = at, .note = "n"});
        else
            undo_begins(fix, at);
        break;
    case ACTION_FINISH_STEPS: move(fix, (struct step_input){.kind = STEP_FINISH_STEPS}); break;
    case ACTION_NONE:
    case ACTION_SEND:
    case ACTION_LOOKUP:
    case ACTION_EXPIRE: break;
    }
}

/* What is under way ends somehow; what had failed shows up. */
static void something_ends(struct fix *fix, uint64_t *seed)
{
    static const enum state to[] = {STATE_COMPLETED_SUCCESS, STATE_COMPLETED_SUCCESS, STATE_COMPLETED_NOOP,
                                    STATE_FAILED_PERMANENT, STATE_UNKNOWN_OUTCOME};
    struct steps_progress progress = progress_of(fix);
    for (size_t i = 0; i < progress.count; i++) {
        switch (progress.entries[i].status) {
        case STEPS_RUNNING: ends(fix, i, to[draw(seed, sizeof to / sizeof *to)]); return;
        case STEPS_UNDOING: ends(fix, i, draw(seed, 3) ? STATE_COMPENSATED : STATE_COMPLETED_SUCCESS); return;
        case STEPS_FAILED:
            if (progress.entries[i].operation && draw(seed, 4) == 0) {
                ends(fix, i, STATE_COMPLETED_SUCCESS);
                return;
            }
            break;
        case STEPS_STUCK:
            if (progress.entries[i].undo_operation && draw(seed, 4) == 0) {
                ends(fix, i, STATE_COMPENSATED);
                return;
            }
            break;
        case STEPS_WAITING:
        case STEPS_DONE:
        case STEPS_SKIPPED:
        case STEPS_UNDONE:
        case STEPS_LEFT: break;
        }
    }
}

static void people(struct fix *fix, uint64_t *seed)
{
    static const enum step_kind kinds[] = {STEP_CANCEL, STEP_RESOLVE, STEP_RESOLVE, STEP_RETRY};
    struct operation before = fix->op;
    struct err err = {0};
    enum step_kind kind = kinds[draw(seed, sizeof kinds / sizeof *kinds)];
    if (move_as(fix, (struct step_input){.kind = kind, .actor = "boss", .note = "n", .happened = draw(seed, 2)},
                &err)) {
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_memory_equal(&before, &fix->op, sizeof before); /* refused: nothing has changed */
    }
}

static void test_random_lives(void **state)
{
    struct fix *fix = *state;
    size_t ended[STATE_COUNT] = {0};
    for (uint64_t life = 1; life <= 3000; life++) {
        uint64_t seed = life;
        for (size_t i = 0; i < COUNT; i++)
            fix->items[i].undo = (enum steps_undo)draw(&seed, 4);
        start(fix);
        for (int moves = 0; moves < 400 && !state_terminal(fix->op.state); moves++) {
            bool turned = progress_of(fix).rolling_back;
            uint64_t what = draw(&seed, 20);
            fix->list.digest = draw(&seed, 10) == 0 ? "d2" : "d1";
            if (what < 9)
                drive_once(fix, &seed);
            else if (what < 18)
                something_ends(fix, &seed);
            else if (what == 18 || moves > 100)
                people(fix, &seed);
            check_row(fix, turned);
        }
        assert_true(state_terminal(fix->op.state)); /* all come to an end */
        ended[fix->op.state]++;
        arena_reset(&fix->arena);
    }
    assert_true(ended[STATE_COMPLETED_SUCCESS] > 50);
    assert_true(ended[STATE_FAILED_PERMANENT] > 50);
    assert_true(ended[STATE_COMPENSATED] > 50);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_the_record_keeps_all),
        T(test_every_position_of_a_failure),
        T(test_every_rule_of_undoing),
        T(test_skipped_steps_and_those_that_were_so),
        T(test_what_may_have_been_ours_is_a_persons),
        T(test_a_held_step),
        T(test_only_ends_are_told),
        T(test_evidence_before_the_rollback_begins),
        T(test_evidence_while_rolling_back),
        T(test_evidence_after_the_end),
        T(test_strangers_tell_nothing),
        T(test_requests_of_its_own_it_has_none),
        T(test_nothing_begins_by_another_list),
        T(test_a_rollback_without_the_tool),
        T(test_the_list_is_the_one_of_its_turn),
        T(test_cancel),
        T(test_stuck_until_people_decide),
        T(test_evidence_frees_what_was_stuck),
        T(test_people_decide_on_nothing_else),
        T(test_keys_of_steps),
        T(test_the_same_key_again),
        T(test_input_and_forms),
        T(test_random_lives),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
