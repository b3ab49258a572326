/* Inbound events meet operations (design 11.1, 3.4): the real engine on both ledgers. The enumeration at the end runs
 * every order of our request, the provider's commit, its event, the event again, our answer and crashes. */
#include "support/test.h"
#include "support/world.h"

#include "base/log.h"
#include "core/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS "{\"payment_id\":\"p1\",\"amount\":10}"

struct fix {
    struct world world;
    struct provider provider, other;
    struct tool keyed, weak, told, foreign;
    struct inbox_source source;
    struct world_reply reply;
    struct arena arena;
    int events; /* made so far */
    /* of the last event */
    enum err_code code;
    bool duplicate;
};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    log_set_level(LOG_OFF);
    world_provider(&fix.provider);
    world_provider(&fix.other);
    fix.other.name = "else";
    world_tool(&fix.keyed, "refund", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    world_tool(&fix.weak, "mail", CLASS_EXTERNAL_WEAK, &fix.provider);
    world_tool(&fix.told, "ship", CLASS_EXTERNAL_WEAK, &fix.provider);
    world_tool(&fix.foreign, "foreign", CLASS_EXTERNAL_WEAK, &fix.other);
    fix.told.has_lookup = false;
    fix.told.reconcile.strategies[0] = STRATEGY_WEBHOOK;
    fix.told.reconcile.strategies[1] = STRATEGY_MANUAL;
    fix.told.reconcile.webhook_ms = 60000;
    fix.source = (struct inbox_source){.name = "pay", .provider = "pay", .retain_ms = 30LL * 86400000};
    arena_init(&fix.arena);
    *state = &fix;
    return 0;
}

static void open_world(struct fix *fix, const char *path)
{
    const struct tool *tools[] = {&fix->keyed, &fix->weak, &fix->told, &fix->foreign};
    world_init_with(&fix->world, tools, 4, &fix->source, 1, path);
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    if (fix->world.engine)
        world_release(&fix->world);
    world_reply_release(&fix->reply);
    arena_release(&fix->arena);
    return 0;
}

static struct operation *row(struct fix *fix)
{
    return world_row(&fix->world, &fix->arena, fix->world.sent[0].operation);
}

static void check_row(struct fix *fix, enum state expected, enum reason reason)
{
    struct operation *op = row(fix);
    assert_non_null(op);
    assert_string_equal(state_name(op->state), state_name(expected));
    assert_string_equal(reason_name(op->reason), reason_name(reason));
}

static void keep_reply(void *user, enum err_code code, const struct err *err, const struct inbound *event,
                       bool duplicate)
{
    struct fix *fix = user;
    assert_true(code != 0 || event != NULL);
    assert_true((err->code != 0) == (code != 0));
    fix->code = code;
    fix->duplicate = duplicate;
}

static struct inbound make_event(enum inbound_outcome outcome, enum inbound_match match, const char *value)
{
    return (struct inbound){.source = "pay",
                            .event = "evt_1",
                            .type = "thing.changed",
                            .outcome = outcome,
                            .match = match,
                            .value = value,
                            .external_id = outcome == INBOUND_SUCCESS ? "ext-1" : NULL,
                            .body = STR("{}")};
}

static void tell(struct fix *fix, const struct inbound *event)
{
    engine_inbound(fix->world.engine, event, keep_reply, fix);
    world_run(&fix->world);
    assert_int_equal(fix->code, 0);
}

static void tell_once(struct fix *fix, enum inbound_outcome outcome, int64_t created_ms)
{
    struct inbound event = make_event(outcome, INBOUND_BY_REFERENCE, fix->world.sent[0].operation);
    event.event = arena_printf(&fix->arena, "evt_%d", ++fix->events);
    event.created_ms = created_ms;
    tell(fix, &event);
}

static struct ledger_inbox_list *events(struct fix *fix, uint32_t statuses)
{
    struct ledger_request *request = arena_zero(&fix->arena, sizeof *request);
    *request = (struct ledger_request){.command = LEDGER_INBOX_LIST, .arena = &fix->arena};
    request->inbox_list = (struct ledger_inbox_list){.limit = 100, .statuses = statuses};
    assert_int_equal(ledger_call(fix->world.ledger, request), 0);
    return &request->inbox_list;
}

static size_t incidents(struct fix *fix, enum incident_kind kind)
{
    struct ledger_request *request = arena_zero(&fix->arena, sizeof *request);
    *request = (struct ledger_request){.command = LEDGER_INCIDENTS, .arena = &fix->arena};
    request->incidents.limit = 100;
    assert_int_equal(ledger_call(fix->world.ledger, request), 0);
    size_t count = 0;
    for (size_t i = 0; i < request->incidents.count; i++)
        count += request->incidents.incidents[i].kind == kind;
    return count;
}

static void call_told(struct fix *fix)
{
    world_call(&fix->world, "ship", ARGUMENTS, "k", &fix->reply);
    assert_int_equal(fix->world.sent_count, 1);
}

/* ---- one thing at a time ---- */

static void test_event_settles_unknown(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
    struct inbound event = make_event(INBOUND_SUCCESS, INBOUND_BY_PROVIDER_KEY, fix->world.sent[0].provider_key);
    event.result = STR("{\"from\":\"event\"}");
    tell(fix, &event);
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
    assert_string_equal(row(fix)->external_id, "ext-1");
    assert_int_equal(fix->reply.count, 1);
    assert_string_equal(fix->reply.result, "{\"from\":\"event\"}"); /* the caller who waits is told */
    assert_int_equal(fix->world.sent_count, 1);
    tell(fix, &event);
    assert_true(fix->duplicate);
    assert_int_equal(events(fix, 1u << INBOUND_APPLIED)->count, 1);
    assert_int_equal(events(fix, 0)->events[0].duplicates, 1);
}

static void test_waiting_is_a_strategy_with_an_end(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_advance(&fix->world, 59000);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT); /* not given to an operator yet */
    world_advance(&fix->world, 2000);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
    tell_once(fix, INBOUND_SUCCESS, 0); /* late is better than never */
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

static void test_after_waiting_comes_the_look_up(void **state)
{
    struct fix *fix = *state;
    fix->told.has_lookup = true;
    fix->told.reconcile.strategies[1] = STRATEGY_LOOKUP;
    fix->told.reconcile.strategies[2] = STRATEGY_MANUAL;
    fix->told.reconcile.strategy_count = 3;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    world_advance(&fix->world, 59000);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_LOOKUP), 0);
    world_advance(&fix->world, 2000);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_LOOKUP), 1);
    world_answer(&fix->world, 1, OUTCOME_FOUND, "ext-1");
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

static void test_accepted_waits_for_the_event(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_ACCEPTED, "ext-1");
    check_row(fix, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    world_advance(&fix->world, 500000);
    check_row(fix, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    assert_int_equal(fix->world.sent_count, 1);
    tell_once(fix, INBOUND_NO_EFFECT, 0);
    check_row(fix, STATE_FAILED_PERMANENT, REASON_PROVIDER_REFUSED);
    assert_true(row(fix)->error.p != NULL);
    assert_int_equal(incidents(fix, INCIDENT_LATE_LANDING), 0);
}

static void test_accepted_and_never_told_needs_an_operator(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_ACCEPTED, "ext-1");
    world_advance(&fix->world, 600001);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
}

/* The event's id is only known from our own answer. */
static void test_event_before_the_external_id_is_known(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    struct inbound event = make_event(INBOUND_SUCCESS, INBOUND_BY_EXTERNAL_ID, "ext-1");
    tell(fix, &event);
    assert_int_equal(events(fix, 1u << INBOUND_WAITING)->count, 1);
    check_row(fix, STATE_DISPATCHED, REASON_NONE);
    world_answer(&fix->world, 0, OUTCOME_ACCEPTED, "ext-1");
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
    assert_int_equal(events(fix, 1u << INBOUND_APPLIED)->count, 1);
}

static void test_events_of_others_stay_waiting(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    world_call(&fix->world, "foreign", ARGUMENTS, "k", &fix->reply);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    tell_once(fix, INBOUND_SUCCESS, 0); /* the source speaks of another provider's tools */
    struct inbound nobody = make_event(INBOUND_SUCCESS, INBOUND_BY_EXTERNAL_ID, "nobody's");
    tell(fix, &nobody);
    struct inbound nothing = make_event(INBOUND_SUCCESS, INBOUND_BY_NOTHING, NULL);
    nothing.event = "evt_nothing";
    tell(fix, &nothing);
    assert_int_equal(events(fix, 1u << INBOUND_WAITING)->count, 3 - (fix->events == 1 ? 1 : 0));
    assert_string_equal(state_name(row(fix)->state), "unknown_outcome");
}

static void test_an_id_of_two_operations_is_taken_by_none(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    world_call(&fix->world, "ship", ARGUMENTS, "k1", &fix->reply);
    world_answer(&fix->world, 0, OUTCOME_ACCEPTED, "7");
    world_reply_release(&fix->reply);
    world_call(&fix->world, "mail", ARGUMENTS, "k2", &fix->reply);
    world_answer(&fix->world, 1, OUTCOME_ACCEPTED, "7");
    struct inbound event = make_event(INBOUND_SUCCESS, INBOUND_BY_EXTERNAL_ID, "7");
    tell(fix, &event);
    assert_int_equal(events(fix, 1u << INBOUND_WAITING)->count, 1);
    check_row(fix, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
}

static void test_ignored_events_do_nothing(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    tell_once(fix, INBOUND_IGNORE, 0);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
    assert_int_equal(events(fix, 1u << INBOUND_IGNORED)->count, 1);
}

static void test_failed_is_for_a_person(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_ACCEPTED, "ext-1");
    tell_once(fix, INBOUND_FAILED, 0);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
}

/* One of two requests without effect says nothing of the other, unless the provider takes both for one. */
static void test_no_effect_of_one_request_of_two(void **state)
{
    struct fix *fix = *state;
    fix->keyed.reconcile.strategies[1] = STRATEGY_WEBHOOK;
    fix->keyed.reconcile.webhook_ms = 60000;
    fix->keyed.retry.attempts_max = 2;
    for (int honoured = 0; honoured < 2; honoured++) {
        fix->provider.key_honoured = true;
        open_world(fix, NULL);
        world_call(&fix->world, "refund", ARGUMENTS, "k", &fix->reply);
        world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
        world_advance(&fix->world, 5000);
        assert_int_equal(fix->world.sent_count, 2); /* sent again */
        world_answer(&fix->world, 1, OUTCOME_TIMEOUT, NULL);
        fix->provider.key_honoured = honoured;
        tell_once(fix, INBOUND_NO_EFFECT, 0);
        if (honoured)
            check_row(fix, STATE_FAILED_PERMANENT, REASON_PROVIDER_REFUSED);
        else
            check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_TIMEOUT);
        assert_int_equal(events(fix, 1u << INBOUND_APPLIED)->count, 1);
        world_release(&fix->world);
        fix->world.engine = NULL;
        world_reply_release(&fix->reply);
    }
}

/* A restored backup does not know that it was sent: what has happened is not sent. */
static void test_what_has_happened_is_not_sent(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    struct engine_call call = {
        .tool = "ship", .async = true, .call = {.idempotency_key = "k", .not_before_ms = fix->world.now_ms + 60000}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->reply);
    world_run(&fix->world);
    struct inbound event = make_event(INBOUND_SUCCESS, INBOUND_BY_REFERENCE, fix->reply.op.id);
    tell(fix, &event);
    world_advance(&fix->world, 120000);
    assert_int_equal(fix->world.sent_count, 0);
    struct operation *op = world_row(&fix->world, &fix->arena, fix->reply.op.id);
    assert_string_equal(state_name(op->state), "completed_success");
    assert_int_equal(incidents(fix, INCIDENT_CONTRADICTION), 1);
}

/* What is durable when the process dies between the commit of the event and whatever follows. */
static void record_and_crash(struct fix *fix, struct inbound event)
{
    memcpy(event.id, "ev_00000000000000000000000000", sizeof "ev_00000000000000000000000000");
    event.created_ms = event.received_ms = fix->world.now_ms;
    event.retain_until_ms = fix->world.now_ms + fix->source.retain_ms;
    struct ledger_request request = {.command = LEDGER_RECORD_INBOUND, .arena = &fix->arena};
    request.record_inbound.event = &event;
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    world_crash(&fix->world);
}

static void test_what_was_told_before_a_crash_is_not_sent_again(void **state)
{
    struct fix *fix = *state;
    fix->provider.key_honoured = true;
    open_world(fix, NULL);
    world_call(&fix->world, "refund", ARGUMENTS, "k", &fix->reply);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL); /* to be sent again */
    record_and_crash(fix, make_event(INBOUND_SUCCESS, INBOUND_BY_REFERENCE, fix->world.sent[0].operation));
    world_advance(&fix->world, 5000);
    assert_int_equal(fix->world.sent_count, 1);
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

/* S81, S85: an older failure never downgrades, a newer one is for a person. */
static void test_failures_after_success(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    int64_t now_ms = fix->world.now_ms;
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "ext-1");
    tell_once(fix, INBOUND_FAILED, now_ms - 5000); /* of an earlier try */
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_NONE);
    assert_int_equal(incidents(fix, INCIDENT_CONTRADICTION), 0);
    tell_once(fix, INBOUND_SUCCESS, now_ms - 1000);
    tell_once(fix, INBOUND_NO_EFFECT, now_ms - 2000);
    assert_int_equal(incidents(fix, INCIDENT_CONTRADICTION), 0);
    tell_once(fix, INBOUND_NO_EFFECT, now_ms - 500);
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_NONE);
    assert_int_equal(incidents(fix, INCIDENT_CONTRADICTION), 1);
    assert_int_equal(events(fix, 1u << INBOUND_APPLIED)->count, 4);
}

static void test_another_external_id_is_a_duplicate_effect(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "ext-0");
    tell_once(fix, INBOUND_SUCCESS, 0);
    assert_int_equal(incidents(fix, INCIDENT_DUPLICATE_EFFECT), 1);
    assert_string_equal(row(fix)->external_id, "ext-0");
}

static void test_older_news_change_nothing(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    tell_once(fix, INBOUND_FAILED, 2000);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
    tell_once(fix, INBOUND_PENDING, 1000);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
    tell_once(fix, INBOUND_NO_EFFECT, 1500);
    check_row(fix, STATE_UNKNOWN_OUTCOME, REASON_NEEDS_OPERATOR);
    tell_once(fix, INBOUND_PENDING, 3000);
    check_row(fix, STATE_ACKNOWLEDGED, REASON_ACCEPTED);
    tell_once(fix, INBOUND_SUCCESS, 500); /* has the last word */
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
}

/* It waits for a slot: the event makes the request needless. */
static void test_event_takes_a_queued_operation(void **state)
{
    struct fix *fix = *state;
    fix->provider.connections_max = 1;
    open_world(fix, NULL);
    world_call(&fix->world, "refund", ARGUMENTS, "k", &fix->reply);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    struct world_reply busy = {0};
    world_call(&fix->world, "mail", ARGUMENTS, "other", &busy); /* takes the slot */
    world_advance(&fix->world, 5000);
    assert_int_equal(fix->world.sent_count, 2);
    tell_once(fix, INBOUND_SUCCESS, 0);
    check_row(fix, STATE_COMPLETED_SUCCESS, REASON_RECONCILED);
    world_answer(&fix->world, 1, OUTCOME_SUCCESS, "mail-1");
    world_advance(&fix->world, 5000);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 2);
    world_reply_release(&busy);
}

static void test_stopping_takes_no_events(void **state)
{
    struct fix *fix = *state;
    open_world(fix, NULL);
    call_told(fix);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    struct inbound event = make_event(INBOUND_SUCCESS, INBOUND_BY_REFERENCE, fix->world.sent[0].operation);
    struct engine *engine = fix->world.engine;
    engine_stop(engine, fix->world.now_ms + 1000, (void (*)(void *))free, NULL);
    fix->code = ERR_NONE;
    engine_inbound(engine, &event, keep_reply, fix);
    assert_int_equal(fix->code, ERR_UNAVAILABLE);
    assert_int_equal(events(fix, 0)->count, 0);
}

/* ---- events among themselves ---- */

static void permute(int *places, int count, int at, void (*each)(struct fix *fix, const int *places), struct fix *fix)
{
    if (at == count) {
        each(fix, places);
        return;
    }
    for (int i = at; i < count; i++) {
        int first = places[at];
        places[at] = places[i];
        places[i] = first;
        permute(places, count, at + 1, each, fix);
        places[i] = places[at];
        places[at] = first;
    }
}

/* 0..3: events by the time the provider gave them; 4: our answer. */
static void run_events(struct fix *fix, const int *places)
{
    static const enum inbound_outcome outcomes[] = {INBOUND_FAILED, INBOUND_PENDING, INBOUND_SUCCESS,
                                                    INBOUND_NO_EFFECT};
    open_world(fix, NULL);
    call_told(fix);
    int64_t first_ms = fix->world.now_ms - 100000;
    for (int i = 0; i < 5; i++) {
        if (places[i] == 4)
            world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
        else
            tell_once(fix, outcomes[places[i]], first_ms + 1000 * places[i]);
    }
    assert_string_equal(state_name(row(fix)->state), "completed_success");
    assert_string_equal(row(fix)->external_id, "ext-1");
    assert_int_equal(events(fix, 1u << INBOUND_APPLIED)->count, 4);
    world_release(&fix->world);
    fix->world.engine = NULL;
    world_reply_release(&fix->reply);
    arena_reset(&fix->arena);
}

static void test_every_order_of_events_ends_the_same(void **state)
{
    int places[] = {0, 1, 2, 3, 4};
    permute(places, 5, 0, run_events, *state);
}

/* ---- the enumeration ---- */

enum thing { REQUEST, COMMIT, EVENT, AGAIN, ANSWER, CRASH, CRASH_TWO, THINGS };
static const char letters[] = "RCEDAXX";

struct scenario {
    const char *tool;
    enum inbound_match match;
    enum outcome answer;          /* what the provider says in time */
    enum inbound_outcome outcome; /* what the event tells */
    int64_t pause_ms;             /* between two things */
    bool cut;                     /* EVENT: recorded, and the process dies before it does anything with it */
};

struct trial {
    struct fix *fix;
    const struct scenario *scenario;
    const char *path; /* of the SQLite ledger, NULL = memory */
    int effects;      /* at the provider */
    bool asked, told;
    size_t served; /* requests that the provider has dealt with by itself */
};

/* The provider takes every request under our key for one. */
static void commit_effect(struct trial *trial)
{
    trial->effects = trial->scenario->outcome == INBOUND_SUCCESS;
}

/* Whatever was sent after the first request is answered at once. */
static void serve(struct trial *trial)
{
    struct world *world = &trial->fix->world;
    for (; trial->served < world->sent_count; trial->served++) {
        struct world_sent *sent = &world->sent[trial->served];
        if (trial->served == 0 || !sent->open)
            continue;
        size_t at = trial->served;
        if (sent->kind == ATTEMPT_LOOKUP) {
            world_answer(world, at, trial->effects ? OUTCOME_FOUND : OUTCOME_ABSENT, trial->effects ? "ext-1" : NULL);
            continue;
        }
        commit_effect(trial);
        world_answer(world, at, trial->scenario->answer == OUTCOME_TIMEOUT ? OUTCOME_SUCCESS : trial->scenario->answer,
                     "ext-1");
    }
}

static void pass_time(struct trial *trial, int64_t ms)
{
    for (int64_t passed = 0; passed < ms; passed += 1000) {
        world_advance(&trial->fix->world, 1000);
        serve(trial);
    }
    world_run(&trial->fix->world);
    serve(trial);
}

static struct inbound trial_event(struct trial *trial)
{
    const struct world_sent *sent = &trial->fix->world.sent[0];
    const struct scenario *scenario = trial->scenario;
    const char *value = scenario->match == INBOUND_BY_REFERENCE      ? sent->operation
                        : scenario->match == INBOUND_BY_PROVIDER_KEY ? sent->provider_key
                                                                     : "ext-1";
    return make_event(scenario->outcome, scenario->match, value);
}

static void record_only(struct trial *trial)
{
    record_and_crash(trial->fix, trial_event(trial));
}

static void happen(struct trial *trial, enum thing thing)
{
    struct world *world = &trial->fix->world;
    struct inbound event;
    switch (thing) {
    case REQUEST:
        world_call(world, trial->scenario->tool, ARGUMENTS, "k", &trial->fix->reply);
        trial->asked = true;
        break;
    case COMMIT: commit_effect(trial); break;
    case EVENT:
    case AGAIN:
        if (thing == EVENT && trial->scenario->cut) {
            record_only(trial);
            break;
        }
        event = trial_event(trial);
        tell(trial->fix, &event);
        assert_int_equal(trial->fix->duplicate, thing == AGAIN);
        break;
    case ANSWER:
        if (world->sent[0].open) /* else a crash has cut the connection */
            world_answer(world, 0, trial->scenario->answer,
                         trial->scenario->answer == OUTCOME_TIMEOUT ? NULL : "ext-1");
        break;
    case CRASH:
    case CRASH_TWO: world_crash(world); break;
    case THINGS: break;
    }
}

static void expect_the_end(struct trial *trial, const char *order)
{
    struct fix *fix = trial->fix;
    const struct scenario *scenario = trial->scenario;
    const char *wanted = scenario->outcome == INBOUND_SUCCESS ? "completed_success" : "failed_permanent";
    struct operation *op = row(fix);
    size_t calls = world_sent_of(&fix->world, ATTEMPT_CALL);
    bool weak = strcmp(scenario->tool, "refund") != 0;
    struct ledger_inbox_list *all = events(fix, 0);
    const char *wrong = NULL;
    if (strcmp(state_name(op->state), wanted) != 0)
        wrong = state_name(op->state);
    else if (weak && calls != 1)
        wrong = "sent again";
    else if (op->may_have_applied != (trial->effects > 0))
        wrong = "not what the provider has";
    else if (all->count != 1 || all->events[0].status != INBOUND_APPLIED || all->events[0].duplicates != 1)
        wrong = "the event is not applied, once, with one more delivery";
    else if (incidents(fix, INCIDENT_DUPLICATE_EFFECT) + incidents(fix, INCIDENT_CONTRADICTION) > 0)
        wrong = "an incident";
    if (wrong)
        fail_msg("order %s, tool %s, by %s, answer %s, event %s, pause %lld, cut %d, %s: %s", order, scenario->tool,
                 inbound_match_name(scenario->match), outcome_name(scenario->answer),
                 inbound_outcome_name(scenario->outcome), (long long)scenario->pause_ms, scenario->cut,
                 trial->path ? "SQLite" : "memory", wrong);
}

static void run_order(struct trial *trial, const enum thing *order, int count)
{
    struct fix *fix = trial->fix;
    char text[THINGS + 1] = "";
    trial->effects = 0;
    trial->served = 0;
    open_world(fix, trial->path);
    for (int i = 0; i < count; i++) {
        text[i] = letters[order[i]];
        happen(trial, order[i]);
        pass_time(trial, trial->scenario->pause_ms);
    }
    pass_time(trial, 30000);
    /* An answer that was lost with its external id, and nobody to ask: a person tells it, and the event is found. */
    if (trial->scenario->match == INBOUND_BY_EXTERNAL_ID && row(fix)->state == STATE_UNKNOWN_OUTCOME) {
        struct engine_decision decision = {.kind = DECISION_RESOLVE,
                                           .operation = fix->world.sent[0].operation,
                                           .rev = row(fix)->rev,
                                           .happened = true,
                                           .external_id = "ext-1",
                                           .actor = "ann",
                                           .note = "seen at the provider"};
        engine_decide(fix->world.engine, &decision, world_keep, &fix->reply);
        pass_time(trial, 1000);
    }
    expect_the_end(trial, text);
    world_release(&fix->world);
    fix->world.engine = NULL;
    world_reply_release(&fix->reply);
    arena_reset(&fix->arena);
    if (trial->path)
        for (size_t i = 0; i < 3; i++) {
            static const char *const parts[] = {"", "-wal", "-shm"};
            unlink(arena_printf(&fix->arena, "%s%s", trial->path, parts[i]));
        }
}

/* The request comes first of its kind, the event and the answer tell of what is there, a repetition follows. A crash of
 * the second kind stands for two in a row. */
static bool possible(const enum thing *order, int count)
{
    int at[THINGS];
    for (int i = 0; i < THINGS; i++)
        at[i] = -1;
    for (int i = 0; i < count; i++)
        at[order[i]] = i;
    if (at[REQUEST] != 0 || at[EVENT] < at[COMMIT] || at[AGAIN] < at[EVENT] || at[ANSWER] < at[COMMIT])
        return false;
    return at[CRASH_TWO] < 0 || at[CRASH_TWO] > at[CRASH];
}

struct enumeration {
    struct trial *trial;
    int orders;
};

static void enumerate(struct enumeration *all, enum thing *order, int count, int at)
{
    if (at == count) {
        if (possible(order, count)) {
            run_order(all->trial, order, count);
            all->orders++;
        }
        return;
    }
    for (int i = at; i < count; i++) {
        enum thing first = order[at];
        order[at] = order[i];
        order[i] = first;
        enumerate(all, order, count, at + 1);
        order[i] = order[at];
        order[at] = first;
    }
}

static int every_order(struct trial *trial, int crashes)
{
    enum thing order[] = {REQUEST, COMMIT, EVENT, AGAIN, ANSWER, CRASH, CRASH_TWO};
    struct enumeration all = {trial, 0};
    enumerate(&all, order, 5 + crashes, 0);
    return all.orders;
}

/* With ONCED_ORDERS=all in the environment every order of every scenario, else what a few seconds allow. */
static bool all_orders(void)
{
    const char *wanted = getenv("ONCED_ORDERS");
    return wanted && strcmp(wanted, "all") == 0;
}

static void every_scenario(struct fix *fix, const char *path, int64_t pause_ms, int crashes_max)
{
    static const struct {
        const char *tool;
        enum outcome answer;
        enum inbound_outcome outcome;
    } kinds[] = {
        {"ship", OUTCOME_SUCCESS, INBOUND_SUCCESS},   {"ship", OUTCOME_ACCEPTED, INBOUND_SUCCESS},
        {"ship", OUTCOME_TIMEOUT, INBOUND_SUCCESS},   {"ship", OUTCOME_ACCEPTED, INBOUND_NO_EFFECT},
        {"refund", OUTCOME_SUCCESS, INBOUND_SUCCESS}, {"refund", OUTCOME_ACCEPTED, INBOUND_SUCCESS},
        {"refund", OUTCOME_TIMEOUT, INBOUND_SUCCESS}, {"mail", OUTCOME_SUCCESS, INBOUND_SUCCESS},
        {"mail", OUTCOME_TIMEOUT, INBOUND_SUCCESS},
    };
    static const enum inbound_match matches[] = {INBOUND_BY_REFERENCE, INBOUND_BY_PROVIDER_KEY, INBOUND_BY_EXTERNAL_ID};
    int orders = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t m = 0; m < sizeof matches / sizeof *matches; m++)
            for (int cut = 0; cut < 2; cut++) {
                /* Told of a failure by an id that nobody ever learned: only a person can bring the two together. */
                if (kinds[i].outcome == INBOUND_NO_EFFECT && matches[m] == INBOUND_BY_EXTERNAL_ID)
                    continue;
                if (!all_orders() && (path || pause_ms > 0) && (size_t)(2 * m + (size_t)cut) % 6 != i % 6)
                    continue;
                struct scenario scenario = {kinds[i].tool,    matches[m], kinds[i].answer,
                                            kinds[i].outcome, pause_ms,   cut};
                struct trial trial = {.fix = fix, .scenario = &scenario, .path = path};
                for (int crashes = 0; crashes <= crashes_max; crashes++)
                    orders += every_order(&trial, crashes);
            }
    print_message("%d orders, pause %lld ms, %s\n", orders, (long long)pause_ms, path ? "SQLite" : "memory");
}

static void test_every_order_at_once(void **state)
{
    every_scenario(*state, NULL, 0, all_orders() ? 2 : 1);
}

static void test_every_order_with_time_between(void **state)
{
    every_scenario(*state, NULL, 12000, 1);
}

static void test_every_order_on_sqlite(void **state)
{
    char folder[] = "/dev/shm/onced-inbox-XXXXXX", elsewhere[] = "/tmp/onced-inbox-XXXXXX";
    char path[64];
    char *made = mkdtemp(folder);
    made = made ? made : mkdtemp(elsewhere);
    assert_non_null(made);
    snprintf(path, sizeof path, "%s/onced.db", made);
    every_scenario(*state, path, 0, 1);
    char lock[80];
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(lock);
    rmdir(made);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_event_settles_unknown),
        TEST(test_waiting_is_a_strategy_with_an_end),
        TEST(test_after_waiting_comes_the_look_up),
        TEST(test_accepted_waits_for_the_event),
        TEST(test_accepted_and_never_told_needs_an_operator),
        TEST(test_event_before_the_external_id_is_known),
        TEST(test_events_of_others_stay_waiting),
        TEST(test_an_id_of_two_operations_is_taken_by_none),
        TEST(test_ignored_events_do_nothing),
        TEST(test_failed_is_for_a_person),
        TEST(test_no_effect_of_one_request_of_two),
        TEST(test_what_has_happened_is_not_sent),
        TEST(test_what_was_told_before_a_crash_is_not_sent_again),
        TEST(test_failures_after_success),
        TEST(test_another_external_id_is_a_duplicate_effect),
        TEST(test_older_news_change_nothing),
        TEST(test_event_takes_a_queued_operation),
        TEST(test_stopping_takes_no_events),
        TEST(test_every_order_of_events_ends_the_same),
        TEST(test_every_order_at_once),
        TEST(test_every_order_with_time_between),
        TEST(test_every_order_on_sqlite),
    };
    return cmocka_run_group_tests_name("inbox", tests, NULL, NULL);
}
