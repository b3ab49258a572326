/* Compensations (design 10.1), on every ledger: what is undone and what undoes it move in one transaction. */
#include "contract/world.h"

#include "core/step.h"

#include <stdio.h>

#define RETAIN_MS 1000

struct pair {
    struct operation *original, *by;
};

/* A succeeded operation. */
static struct operation *make_done(struct world *world, const char *key)
{
    struct operation *op = make_operation(world, "charge", key, 1);
    assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
    move(world, op, STATE_DISPATCHED);
    op->external_id = "ch_1";
    op->retain_until_ms = world->now_ms + RETAIN_MS;
    move(world, op, STATE_COMPLETED_SUCCESS);
    return op;
}

static struct operation *make_compensation(struct world *world, const struct operation *original)
{
    struct operation *op = make_operation(world, "refund", NULL, 1);
    op->key = arena_printf(&world->arena, "compensate:%s:refund", original->id);
    op->key_source = KEY_SOURCE_BUSINESS;
    op->compensates = arena_copy_text(&world->arena, original->id);
    op->playbook = "refund";
    op->escalation = "call the customer";
    set_key(op);
    return op;
}

/* The admission of `by` together with the move of *original, which becomes what it is to be. */
static struct ledger_request *make_undo(struct world *world, struct operation *by, struct operation *original)
{
    struct ledger_request *request = make_admit(world, by);
    struct step_effects effects;
    struct step_input in = {.kind = STEP_COMPENSATE,
                            .now_ms = world->now_ms,
                            .actor = "boss",
                            .compensation = by->id,
                            .arena = &world->arena};
    assert_int_equal(step(original, NULL, &in, &effects, NULL), 0);
    request->admit.admission.share_with_tenant = true;
    request->admit.undoes = arena_zero(&world->arena, sizeof *request->admit.undoes);
    *request->admit.undoes =
        (struct ledger_transition){.op = original, .events = {effects.events[0]}, .event_count = effects.event_count};
    return request;
}

static struct pair open_pair(struct world *world, const char *key)
{
    struct pair pair = {.original = make_done(world, key)};
    pair.by = make_compensation(world, pair.original);
    struct ledger_request *request = make_undo(world, pair.by, pair.original);
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_NEW);
    return pair;
}

static const struct ledger_undone *ends(struct world *world, struct operation *by, enum state to)
{
    struct ledger_request *request = make_transition(world, by, to);
    ulid_next(&world->ids, request->transition.incident_id + 3);
    memcpy(request->transition.incident_id, "in_", 3);
    assert_int_equal(call(world, request), 0);
    return request->transition.undone;
}

static size_t incidents_of(struct world *world, const char *id, enum incident_kind kind)
{
    struct ledger_request *request = make_request(world, LEDGER_GET);
    request->get.operation = id;
    assert_int_equal(call(world, request), 0);
    size_t count = 0;
    for (size_t i = 0; i < request->get.incident_count; i++)
        count += request->get.incidents[i].kind == kind;
    return count;
}

static void assert_event(struct world *world, const char *id, size_t from_end, enum state from, enum state to)
{
    struct ledger_request *request = make_request(world, LEDGER_EVENTS);
    request->events.operation = id;
    assert_int_equal(call(world, request), 0);
    assert_true(request->events.count > from_end);
    struct event *event = &request->events.events[request->events.count - 1 - from_end];
    assert_int_equal(event->cause, CAUSE_COMPENSATION);
    assert_int_equal(event->from, from);
    assert_int_equal(event->to, to);
}

/* ---- tests ---- */

static void both_rows_move_together(void **state)
{
    struct world *world = *state;
    struct pair pair = open_pair(world, "k");
    assert_same_operation(get(world, pair.original->id), pair.original);
    assert_same_operation(get(world, pair.by->id), pair.by);
    assert_int_equal(get(world, pair.original->id)->state, STATE_COMPENSATING);
    assert_string_equal(get(world, pair.original->id)->compensation, pair.by->id);
    assert_string_equal(get(world, pair.by->id)->compensates, pair.original->id);
    assert_event(world, pair.original->id, 0, STATE_COMPLETED_SUCCESS, STATE_COMPENSATING);
    assert_int_equal(expire(world, pair.original->id, pair.original->rev), ERR_CONFLICT); /* not while it is open */
}

static void asked_for_twice_it_is_done_once(void **state)
{
    struct world *world = *state;
    struct operation *done = make_done(world, "k"), second = *done;
    struct operation *by = make_compensation(world, done);
    assert_int_equal(call(world, make_undo(world, by, done)), 0);
    struct operation *again = make_compensation(world, &second);
    struct ledger_request *request = make_undo(world, again, &second); /* saw what the first one saw */
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_JOIN);
    assert_string_equal(request->admit.result.existing->id, by->id);
    assert_null(get(world, again->id));
    assert_int_equal(get(world, done->id)->rev, done->rev); /* moved once */
}

static void what_has_moved_meanwhile_is_not_undone(void **state)
{
    struct world *world = *state;
    struct operation *done = make_done(world, "k"), seen = *done;
    move(world, done, STATE_COMPLETED_SUCCESS); /* a note: its version rises */
    struct operation *by = make_compensation(world, &seen);
    assert_int_equal(call(world, make_undo(world, by, &seen)), ERR_STALE);
    assert_null(get(world, by->id));
    assert_int_equal(get(world, done->id)->state, STATE_COMPLETED_SUCCESS);
    /* Never one without the other, nor with another's. */
    struct operation *alone = make_compensation(world, done);
    assert_int_equal(call(world, make_admit(world, alone)), ERR_INTERNAL);
    assert_null(get(world, alone->id));
    struct operation *other = make_done(world, "k2");
    struct operation *wrong = make_compensation(world, done);
    assert_int_equal(call(world, make_undo(world, wrong, other)), ERR_INTERNAL);
    assert_null(get(world, wrong->id));
    assert_int_equal(get(world, other->id)->state, STATE_COMPLETED_SUCCESS);
}

static void a_plan_moves_nothing(void **state)
{
    struct world *world = *state;
    struct operation *done = make_done(world, "k"), planned = *done;
    struct ledger_request *request = make_undo(world, make_compensation(world, done), &planned);
    request->admit.dry_run = true;
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_NEW);
    assert_same_operation(get(world, done->id), done);
}

static void its_success_ends_what_it_undoes(void **state)
{
    struct world *world = *state;
    static const enum state proofs[] = {STATE_COMPLETED_SUCCESS, STATE_COMPLETED_NOOP};
    for (size_t i = 0; i < 2; i++) {
        struct pair pair = open_pair(world, i ? "b" : "a");
        world->now_ms += 10;
        assert_null(ends(world, pair.by, STATE_DISPATCHED));
        assert_null(ends(world, pair.by, STATE_UNKNOWN_OUTCOME));
        assert_int_equal(get(world, pair.original->id)->state, STATE_COMPENSATING); /* nobody knows yet */
        pair.by->retain_until_ms = world->now_ms + 5 * RETAIN_MS;
        const struct ledger_undone *undone = ends(world, pair.by, proofs[i]);
        struct operation *op = get(world, pair.original->id);
        assert_non_null(undone);
        assert_same_operation(undone->op, op);
        assert_false(undone->incident);
        assert_int_equal(op->state, STATE_COMPENSATED);
        assert_int_equal(op->rev, pair.original->rev + 1);
        assert_int_equal(op->completed_ms, world->now_ms);
        assert_int_equal(op->retain_until_ms, pair.by->retain_until_ms); /* kept at least as long */
        assert_int_equal(op->wake_at_ms, op->retain_until_ms);
        assert_event(world, op->id, 0, STATE_COMPENSATING, STATE_COMPENSATED);
        assert_int_equal(incidents_of(world, op->id, INCIDENT_COMPENSATION_FAILED), 0);
    }
}

static void its_failure_is_told(void **state)
{
    struct world *world = *state;
    struct pair pair = open_pair(world, "k");
    move(world, pair.by, STATE_DISPATCHED);
    const struct ledger_undone *undone = ends(world, pair.by, STATE_FAILED_PERMANENT);
    struct operation *op = get(world, pair.original->id);
    assert_true(undone->incident);
    assert_int_equal(op->state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(op->reason, REASON_COMPENSATION_FAILED);
    assert_true(op->may_have_applied);
    assert_int_equal(incidents_of(world, op->id, INCIDENT_COMPENSATION_FAILED), 1);
    struct ledger_request *request = make_request(world, LEDGER_GET);
    request->get.operation = op->id;
    assert_int_equal(call(world, request), 0);
    assert_string_equal(request->get.incidents[0].note,
                        arena_printf(&world->arena,
                                     "playbook refund (%s) ended failed_permanent: it still stands; "
                                     "call the customer",
                                     pair.by->id));
    /* Denied by people: they know. */
    struct pair denied = open_pair(world, "k2");
    denied.by->reason = REASON_DENIED;
    assert_false(ends(world, denied.by, STATE_REJECTED)->incident);
    assert_int_equal(get(world, denied.original->id)->state, STATE_COMPLETED_SUCCESS);
}

/* Closed as without effect, it turns out to have happened (3.4). */
static void late_evidence_undoes_after_all(void **state)
{
    struct world *world = *state;
    struct pair pair = open_pair(world, "k");
    move(world, pair.by, STATE_DISPATCHED);
    ends(world, pair.by, STATE_FAILED_PERMANENT);
    ends(world, pair.by, STATE_COMPLETED_SUCCESS);
    struct operation *op = get(world, pair.original->id);
    assert_int_equal(op->state, STATE_COMPENSATED);
    assert_event(world, op->id, 1, STATE_COMPLETED_SUCCESS, STATE_COMPENSATING);
    assert_event(world, op->id, 0, STATE_COMPENSATING, STATE_COMPENSATED);
}

static void undone_twice_is_an_incident(void **state)
{
    struct world *world = *state;
    struct pair pair = open_pair(world, "k");
    move(world, pair.by, STATE_DISPATCHED);
    ends(world, pair.by, STATE_FAILED_PERMANENT);
    struct operation *original = get(world, pair.original->id);
    struct operation *next = make_compensation(world, original);
    set_arguments(world, next, 2); /* the playbook was corrected: the next version of the key */
    struct ledger_request *request = make_undo(world, next, original);
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_NEW);
    assert_int_equal(get(world, next->id)->key_version, 2);
    move(world, next, STATE_DISPATCHED);
    ends(world, pair.by, STATE_COMPLETED_SUCCESS); /* the first one landed late */
    assert_int_equal(get(world, original->id)->state, STATE_COMPENSATED);
    assert_string_equal(get(world, original->id)->compensation, pair.by->id);
    assert_int_equal(incidents_of(world, original->id, INCIDENT_DUPLICATE_EFFECT), 0);
    ends(world, next, STATE_COMPLETED_SUCCESS);
    assert_int_equal(get(world, original->id)->state, STATE_COMPENSATED);
    assert_int_equal(incidents_of(world, original->id, INCIDENT_DUPLICATE_EFFECT), 1);
}

const struct CMUnitTest contract_compensations[] = {
    CONTRACT_TEST(both_rows_move_together),
    CONTRACT_TEST(asked_for_twice_it_is_done_once),
    CONTRACT_TEST(what_has_moved_meanwhile_is_not_undone),
    CONTRACT_TEST(a_plan_moves_nothing),
    CONTRACT_TEST(its_success_ends_what_it_undoes),
    CONTRACT_TEST(its_failure_is_told),
    CONTRACT_TEST(late_evidence_undoes_after_all),
    CONTRACT_TEST(undone_twice_is_an_incident),
};
const size_t contract_compensation_count = sizeof contract_compensations / sizeof *contract_compensations;
