/* What every ledger must do: decisions, transitions, claims, batches. These and those of ledger_records.c run on memory
 * and on SQLite. */
#include "contract/postgres.h"
#include "contract/world.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- admission ---- */

static void admits_once(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
    struct admission_result joined = admit(world, make_operation(world, "refund", "k", 1));
    assert_int_equal(joined.verdict, VERDICT_JOIN);
    assert_same_operation(joined.existing, op);
    op->result = STR("{\"ok\":true}");
    move(world, op, STATE_COMPLETED_SUCCESS);
    struct admission_result replayed = admit(world, make_operation(world, "refund", "k", 1));
    assert_int_equal(replayed.verdict, VERDICT_REPLAY);
    assert_same_operation(replayed.existing, op); /* whole, with arguments and result */
    assert_int_equal(list(world, (struct ledger_list){.limit = 10})->count, 1);
}

static void other_arguments_conflict(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    struct admission_result result = admit(world, make_operation(world, "refund", "k", 2));
    assert_int_equal(result.verdict, VERDICT_CONFLICT);
    assert_string_equal(result.existing->id, op->id);
    struct ledger_request *request = make_admit(world, make_operation(world, "refund", "k", 2));
    request->admit.admission.on_mismatch = MISMATCH_REPLAY;
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_JOIN);
    assert_true(request->admit.result.other_arguments);
}

static void corrected_arguments_open_a_version(void **state)
{
    struct world *world = *state;
    struct operation *first = make_operation(world, "refund", "k", 1);
    admit(world, first);
    move(world, first, STATE_FAILED_PERMANENT);
    struct operation *second = make_operation(world, "refund", "k", 2);
    assert_int_equal(admit(world, second).verdict, VERDICT_NEW);
    assert_int_equal(second->key_version, 2);
    struct operation *stored = get(world, second->id);
    assert_int_equal(stored->key_version, 2);
    assert_string_equal(stored->previous, first->id);
    /* From now on the highest version is what the key means. */
    assert_string_equal(admit(world, make_operation(world, "refund", "k", 2)).existing->id, second->id);
    struct ledger_request *request = make_request(world, LEDGER_GET_BY_KEY);
    request->get_by_key = (struct ledger_get_by_key){.tenant = "acme", .tool = "refund", .key_hash = first->key_hash};
    assert_int_equal(call(world, request), 0);
    assert_string_equal(request->get_by_key.op->id, second->id);
    assert_null(request->get_by_key.tombstone);
}

static void results_are_not_shared(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    struct operation *other = make_operation(world, "refund", "k", 1);
    other->principal = "another";
    assert_int_equal(admit(world, other).verdict, VERDICT_NOT_SHARED);
    struct ledger_request *request = make_admit(world, other);
    request->admit.admission.share_with_tenant = true;
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_JOIN);
}

/* S54: one key, two tenants. S45: ("a", "b:c") and ("a:b", "c"). */
static void s45_s54_tenants_are_apart(void **state)
{
    struct world *world = *state;
    struct operation *mine = make_operation(world, "refund", "1", 1);
    struct operation *theirs = make_operation(world, "refund", "1", 1);
    theirs->tenant = "other";
    set_key(theirs);
    assert_int_equal(admit(world, mine).verdict, VERDICT_NEW);
    assert_int_equal(admit(world, theirs).verdict, VERDICT_NEW);
    struct operation *a = make_operation(world, "b:c", "k", 1), *b = make_operation(world, "c", "k", 1);
    a->tenant = "a";
    b->tenant = "a:b";
    set_key(a);
    set_key(b);
    assert_int_equal(admit(world, a).verdict, VERDICT_NEW);
    assert_int_equal(admit(world, b).verdict, VERDICT_NEW);
    struct ledger_request *request = make_request(world, LEDGER_GET);
    request->get = (struct ledger_get){.tenant = "acme", .operation = theirs->id};
    assert_int_equal(call(world, request), ERR_NOT_FOUND);
    assert_null(request->get.op);
    request->get.tenant = "other";
    assert_int_equal(call(world, request), 0);
    /* Nor does repeat_of reach over. */
    struct operation *repeat = make_operation(world, "refund", "1", 1);
    repeat->repeat_of = theirs->id;
    set_key(repeat);
    assert_int_equal(admit(world, repeat).verdict, VERDICT_REPEAT_UNKNOWN);
}

/* S48: no folding of case or blanks, no cutting. */
static void s48_keys_are_exact(void **state)
{
    struct world *world = *state;
    char a[301], b[301];
    memset(a, 'x', 300);
    memset(b, 'x', 300);
    a[299] = 'a', b[299] = 'b', a[300] = b[300] = '\0';
    const char *keys[] = {"Run-A", "run-a", "run-a ", a, b};
    struct operation *ops[5];
    for (int i = 0; i < 5; i++) {
        ops[i] = make_operation(world, "refund", keys[i], 1);
        assert_int_equal(admit(world, ops[i]).verdict, VERDICT_NEW);
    }
    for (int i = 0; i < 5; i++) {
        struct admission_result again = admit(world, make_operation(world, "refund", keys[i], 1));
        assert_int_equal(again.verdict, VERDICT_JOIN);
        assert_string_equal(again.existing->id, ops[i]->id);
        assert_string_equal(again.existing->key, keys[i]);
    }
}

static enum verdict verdict_of(struct world *world, struct ledger_request *request)
{
    assert_int_equal(call(world, request), 0);
    return request->admit.result.verdict;
}

static void repeats_join(void **state)
{
    struct world *world = *state;
    struct ledger_request *first = make_repeat(world, "mail", 1, NULL);
    struct operation *op = first->admit.admission.op;
    assert_int_equal(verdict_of(world, first), VERDICT_NEW);
    struct ledger_request *again = make_repeat(world, "mail", 1, NULL);
    assert_int_equal(verdict_of(world, again), VERDICT_JOIN);
    assert_same_operation(again->admit.result.existing, op);
    assert_int_equal(verdict_of(world, make_repeat(world, "mail", 2, NULL)), VERDICT_NEW);
    assert_int_equal(verdict_of(world, make_repeat(world, "sms", 1, NULL)), VERDICT_NEW);
    op->result = STR("\"sent\"");
    move(world, op, STATE_COMPLETED_SUCCESS);
    world->now_ms += 5000; /* outside the window, but nobody got the answer */
    again = make_repeat(world, "mail", 1, NULL);
    assert_int_equal(verdict_of(world, again), VERDICT_REPLAY);
    assert_true(str_is(again->admit.result.existing->result, "\"sent\""));
    mark(world, (struct ledger_mark){.operation = op->id, .delivered = true});
    assert_int_equal(verdict_of(world, make_repeat(world, "mail", 1, NULL)), VERDICT_NEW);
}

static void repeat_window_ends_on_the_millisecond(void **state)
{
    struct world *world = *state;
    struct ledger_request *first = make_repeat(world, "mail", 1, NULL);
    verdict_of(world, first);
    move(world, first->admit.admission.op, STATE_COMPLETED_SUCCESS);
    mark(world, (struct ledger_mark){.operation = first->admit.admission.op->id, .delivered = true});
    world->now_ms += 999;
    assert_int_equal(verdict_of(world, make_repeat(world, "mail", 1, NULL)), VERDICT_REPLAY);
    world->now_ms += 1;
    assert_int_equal(verdict_of(world, make_repeat(world, "mail", 1, NULL)), VERDICT_NEW);
}

/* The same call in many other runs never hides the one in ours. */
static void repeats_are_found_in_a_crowd(void **state)
{
    struct world *world = *state;
    struct ledger_request *mine = make_repeat(world, "mail", 1, "run-mine");
    assert_int_equal(verdict_of(world, mine), VERDICT_NEW);
    for (int i = 0; i < 300; i++) {
        world->now_ms++;
        const char *run = arena_printf(&world->arena, "run-%d", i);
        assert_int_equal(verdict_of(world, make_repeat(world, "mail", 1, run)), VERDICT_NEW);
    }
    struct ledger_request *again = make_repeat(world, "mail", 1, "run-mine");
    assert_int_equal(verdict_of(world, again), VERDICT_JOIN);
    assert_string_equal(again->admit.result.existing->id, mine->admit.admission.op->id);
}

static struct ledger_request *make_guarded(struct world *world, const char *key, int number)
{
    struct ledger_request *request = make_admit(world, make_operation(world, "refund", key, number));
    request->admit.admission.hold_in_doubt = true;
    return request;
}

static void unknown_outcomes_hold(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    assert_int_equal(verdict_of(world, make_guarded(world, "k2", 2)), VERDICT_NEW);
    move(world, op, STATE_DISPATCHED);
    assert_int_equal(verdict_of(world, make_guarded(world, "k3", 3)), VERDICT_NEW);
    op->reason = REASON_TIMEOUT;
    move(world, op, STATE_UNKNOWN_OUTCOME);
    struct ledger_request *held = make_guarded(world, "k4", 4);
    assert_int_equal(verdict_of(world, held), VERDICT_HELD);
    assert_same_operation(held->admit.result.existing, op);
    assert_null(get(world, held->admit.admission.op->id));
    struct ledger_request *declared = make_guarded(world, "k4", 4);
    declared->admit.admission.distinct_from[0] = op->id;
    declared->admit.admission.distinct_count = 1;
    assert_int_equal(verdict_of(world, declared), VERDICT_NEW);
    /* another tool, another principal: not concerned */
    struct ledger_request *other = make_guarded(world, "k5", 5);
    other->admit.admission.op->principal = "another";
    assert_int_equal(verdict_of(world, other), VERDICT_NEW);
    move(world, op, STATE_COMPLETED_SUCCESS);
    assert_int_equal(verdict_of(world, make_guarded(world, "k6", 6)), VERDICT_NEW);
}

static void what_is_sent_again_holds(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    move(world, op, STATE_DISPATCHED);
    move(world, op, STATE_UNKNOWN_OUTCOME);
    assert_int_equal(verdict_of(world, make_guarded(world, "k2", 2)), VERDICT_HELD);
    move(world, op, STATE_DISPATCHED); /* with the same key: the first attempt may still have happened */
    assert_int_equal(verdict_of(world, make_guarded(world, "k2", 2)), VERDICT_HELD);
    move(world, op, STATE_FAILED_RETRYABLE); /* disproved */
    move(world, op, STATE_DISPATCHED);
    assert_int_equal(verdict_of(world, make_guarded(world, "k2", 2)), VERDICT_NEW);
}

static void orphans_hold(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    move(world, op, STATE_DISPATCHED);
    mark(world, (struct ledger_mark){.operation = op->id, .orphaned = true});
    assert_true(get(world, op->id)->orphaned);
    assert_int_equal(verdict_of(world, make_guarded(world, "k2", 2)), VERDICT_HELD);
    mark(world, (struct ledger_mark){.operation = op->id, .not_orphaned = true});
    assert_int_equal(verdict_of(world, make_guarded(world, "k2", 2)), VERDICT_NEW);
    mark(world, (struct ledger_mark){.operation = op->id, .orphaned = true});
    assert_int_equal(verdict_of(world, make_guarded(world, "k3", 3)), VERDICT_HELD);
    move(world, op, STATE_ACKNOWLEDGED); /* a transition that is not an end leaves the flag */
    assert_int_equal(verdict_of(world, make_guarded(world, "k3", 3)), VERDICT_HELD);
    move(world, op, STATE_COMPLETED_SUCCESS);
    assert_false(get(world, op->id)->orphaned);
    assert_int_equal(verdict_of(world, make_guarded(world, "k3", 3)), VERDICT_NEW);
    mark(world, (struct ledger_mark){.operation = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV", .delivered = true}); /* ignored */
}

static void repeat_of_is_checked(void **state)
{
    struct world *world = *state;
    struct operation *first = make_operation(world, "refund", "k", 1);
    admit(world, first);
    struct operation *again = make_operation(world, "refund", "k", 1);
    again->repeat_of = first->id;
    set_key(again);
    struct admission_result open = admit(world, again);
    assert_int_equal(open.verdict, VERDICT_REPEAT_OPEN);
    assert_string_equal(open.existing->id, first->id);
    move(world, first, STATE_COMPLETED_SUCCESS);
    assert_int_equal(admit(world, again).verdict, VERDICT_NEW);
    struct operation *third = make_operation(world, "refund", "k", 1);
    third->repeat_of = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    set_key(third);
    assert_int_equal(admit(world, third).verdict, VERDICT_REPEAT_UNKNOWN);
}

/* 2.8: the one that the call would have joined, of its own tenant; nothing else. */
static void repeat_of_names_its_own(void **state)
{
    struct world *world = *state;
    struct operation *named = make_operation(world, "refund", "k", 1);
    admit(world, named);
    move(world, named, STATE_COMPLETED_SUCCESS);
    struct operation *other_key = make_operation(world, "refund", "k2", 1);
    other_key->base_hash = other_key->key_hash;
    other_key->repeat_of = named->id;
    other_key->key_hash = identity_key_hash("acme", "refund", "k2", named->id);
    assert_int_equal(admit(world, other_key).verdict, VERDICT_REPEAT_UNKNOWN);
    /* without a key: the same caller's same call */
    struct ledger_request *plain = make_repeat(world, "mail", 1, NULL);
    struct operation *op = plain->admit.admission.op;
    op->tenant = "other";
    set_key(op);
    assert_int_equal(verdict_of(world, plain), VERDICT_NEW);
    move(world, op, STATE_COMPLETED_SUCCESS);
    struct ledger_request *foreign = make_repeat(world, "mail", 1, NULL);
    foreign->admit.admission.op->repeat_of = op->id;
    set_key(foreign->admit.admission.op);
    assert_int_equal(verdict_of(world, foreign), VERDICT_REPEAT_UNKNOWN);
    struct ledger_request *own = make_repeat(world, "mail", 1, NULL);
    own->admit.admission.op->tenant = "other";
    own->admit.admission.op->repeat_of = op->id;
    set_key(own->admit.admission.op);
    assert_int_equal(verdict_of(world, own), VERDICT_NEW);
    struct ledger_request *changed = make_repeat(world, "mail", 2, NULL);
    changed->admit.admission.op->tenant = "other";
    changed->admit.admission.op->repeat_of = op->id;
    set_key(changed->admit.admission.op);
    assert_int_equal(verdict_of(world, changed), VERDICT_REPEAT_UNKNOWN);
}

/* Also when retention has left only the tombstone: the plain call is told "known, dropped", and to repeat on purpose.
 */
static void repeat_of_reaches_a_tombstone(void **state)
{
    struct world *world = *state;
    struct operation *first = make_operation(world, "refund", "k", 1);
    admit(world, first);
    move(world, first, STATE_COMPLETED_SUCCESS);
    assert_int_equal(expire(world, first->id, first->rev), 0);
    struct operation *again = make_operation(world, "refund", "k", 1);
    again->repeat_of = first->id;
    set_key(again);
    struct operation *other_key = make_operation(world, "refund", "k2", 2);
    other_key->repeat_of = first->id;
    set_key(other_key);
    struct operation *other_tool = make_operation(world, "charge", "k", 1);
    other_tool->repeat_of = first->id;
    set_key(other_tool);
    struct operation *colleague = make_operation(world, "refund", "k", 1);
    colleague->principal = "another";
    colleague->repeat_of = first->id;
    set_key(colleague);
    struct operation *foreign = make_operation(world, "refund", "k", 1);
    foreign->tenant = "other";
    foreign->repeat_of = first->id;
    set_key(foreign);
    assert_int_equal(admit(world, other_key).verdict, VERDICT_REPEAT_UNKNOWN);
    assert_int_equal(admit(world, other_tool).verdict, VERDICT_REPEAT_UNKNOWN);
    assert_int_equal(admit(world, colleague).verdict, VERDICT_REPEAT_UNKNOWN);
    assert_int_equal(admit(world, foreign).verdict, VERDICT_REPEAT_UNKNOWN);
    assert_int_equal(admit(world, again).verdict, VERDICT_NEW);
    /* along a chain of repeats */
    move(world, again, STATE_COMPLETED_SUCCESS);
    assert_int_equal(expire(world, again->id, again->rev), 0);
    struct operation *third = make_operation(world, "refund", "k", 1);
    third->repeat_of = again->id;
    set_key(third);
    assert_int_equal(admit(world, third).verdict, VERDICT_NEW);
    /* without a key: the same caller's same call */
    struct ledger_request *plain = make_repeat(world, "mail", 1, NULL);
    struct operation *mail = plain->admit.admission.op;
    assert_int_equal(verdict_of(world, plain), VERDICT_NEW);
    move(world, mail, STATE_COMPLETED_SUCCESS);
    assert_int_equal(expire(world, mail->id, mail->rev), 0);
    struct ledger_request *changed = make_repeat(world, "mail", 2, NULL), *own = make_repeat(world, "mail", 1, NULL);
    changed->admit.admission.op->repeat_of = own->admit.admission.op->repeat_of = mail->id;
    set_key(changed->admit.admission.op);
    set_key(own->admit.admission.op);
    assert_int_equal(verdict_of(world, changed), VERDICT_REPEAT_UNKNOWN);
    assert_int_equal(verdict_of(world, own), VERDICT_NEW);
}

static void dry_runs_insert_nothing(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    struct ledger_request *request = make_admit(world, op);
    request->admit.dry_run = true;
    assert_int_equal(verdict_of(world, request), VERDICT_NEW);
    assert_null(get(world, op->id));
    assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
    request = make_admit(world, make_operation(world, "refund", "k", 1));
    request->admit.dry_run = true;
    assert_int_equal(verdict_of(world, request), VERDICT_JOIN);
}

/* ---- transition ---- */

static void transitions_compare_and_set(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    struct operation late = *op;
    move(world, op, STATE_DISPATCHED);
    struct ledger_request *stale = make_transition(world, &late, STATE_REJECTED);
    stale->transition.incidents[0] = (struct incident){.id = "in_1", .tenant = "acme", .operation = op->id};
    stale->transition.incident_count = 1;
    assert_int_equal(call(world, stale), ERR_STALE);
    assert_same_operation(get(world, op->id), op);
    struct operation *missing = make_operation(world, "refund", "none", 1);
    assert_int_equal(call(world, make_transition(world, missing, STATE_REJECTED)), ERR_NOT_FOUND);
    /* nothing of the refused ones happened */
    struct ledger_request *events = make_request(world, LEDGER_EVENTS);
    events->events.operation = op->id;
    assert_int_equal(call(world, events), 0);
    assert_int_equal(events->events.count, 2);
    struct ledger_request *incidents = make_request(world, LEDGER_INCIDENTS);
    incidents->incidents.limit = 10;
    assert_int_equal(call(world, incidents), 0);
    assert_int_equal(incidents->incidents.count, 0);
}

static void fences_hold(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->owner = OWNER;
    admit(world, op);
    struct operation copy = *op;
    struct ledger_request *request = make_transition(world, &copy, STATE_DISPATCHED);
    request->transition.fence = OTHER_OWNER;
    assert_int_equal(call(world, request), ERR_STALE);
    request->transition.fence = OWNER;
    copy.owner = NULL;
    assert_int_equal(call(world, request), 0);
    request = make_transition(world, &copy, STATE_COMPLETED_SUCCESS);
    request->transition.fence = OWNER; /* nobody holds it now */
    assert_int_equal(call(world, request), ERR_STALE);
}

/* A claim does not raise the version: what moves a row that nobody held must not move one that was claimed since. */
static void claimed_rows_are_not_free(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->wake_at_ms = world->now_ms;
    admit(world, op);
    struct ledger_request *claim = make_request(world, LEDGER_CLAIM_DUE);
    claim->claim = (struct ledger_claim){
        .owner = OTHER_OWNER, .now_ms = world->now_ms + 1, .lease_ms = 1000, .limit = LEDGER_CLAIM_MAX};
    assert_int_equal(call(world, claim), 0);
    assert_int_equal(claim->claim.count, 1);
    struct operation free_one = *op;
    struct ledger_request *request = make_transition(world, &free_one, STATE_DISPATCHED);
    request->transition.unheld = true;
    assert_int_equal(call(world, request), ERR_STALE);
    request->transition.unheld = false;
    assert_int_equal(call(world, request), 0);
    request = make_transition(world, &free_one, STATE_COMPLETED_SUCCESS);
    request->transition.unheld = true; /* it was given back */
    assert_int_equal(call(world, request), 0);
}

static struct operation *full_operation(struct world *world)
{
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->workflow = "wf", op->run = "run", op->step = "step", op->session = "session", op->call = "call";
    op->trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    op->distinct_from = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    op->provider_key = "pk";
    op->approval = STR("{\"needed\":1}");
    op->not_before_ms = world->now_ms + 5;
    op->state = STATE_PLANNED, op->reason = REASON_SCHEDULED;
    op->wake_at_ms = op->not_before_ms;
    return op;
}

static void every_field_is_kept(void **state)
{
    struct world *world = *state;
    struct operation *op = full_operation(world);
    admit(world, op);
    assert_same_operation(get(world, op->id), op);
    struct operation next = *op;
    next.owner = OWNER, next.lease_until_ms = 11, next.wake_at_ms = 12, next.attempts = 13, next.lookups = 14;
    next.tries = 15, next.first_sent_ms = 16, next.last_sent_ms = 17, next.retries = 18, next.absent_count = 19;
    next.watch_next = 20, next.retain_until_ms = 21, next.http_status = 502, next.external_id = "ext";
    next.result = STR("{\"a\":\"\\u0000\"}"), next.error = STR("{\"message\":\"ü\"}"), next.result_bytes = 22;
    next.result_dropped = true, next.duplicate_seen = true, next.reason = REASON_PROVIDER_ERROR;
    next.approval = STR("{\"needed\":2}"), next.ready_ms = 23;
    struct operation kept = next;
    next.delivered = next.orphaned = true; /* not a transition's to set */
    next.tool = "tampered", next.arguments = STR("{}"), next.created_ms = 1, next.key_version = 9; /* nor identity */
    struct ledger_request *request = make_transition(world, &next, STATE_UNKNOWN_OUTCOME);
    assert_int_equal(call(world, request), 0);
    kept.rev = next.rev, kept.state = next.state, kept.may_have_applied = next.may_have_applied;
    kept.updated_ms = next.updated_ms, kept.unknown_since_ms = next.unknown_since_ms;
    assert_same_operation(get(world, op->id), &kept);
}

/* ---- claims ---- */

static struct operation *admit_due(struct world *world, const char *key, int64_t wake_at_ms)
{
    struct operation *op = make_operation(world, "refund", key, 1);
    op->wake_at_ms = wake_at_ms;
    assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
    return op;
}

static void claims_open_rows_first_and_oldest(void **state)
{
    struct world *world = *state;
    int64_t now = world->now_ms;
    struct operation *ended = admit_due(world, "ended", now);
    ended->wake_at_ms = now - 500;
    move(world, ended, STATE_COMPLETED_SUCCESS);
    struct operation *third = admit_due(world, "c", now);
    struct operation *first = admit_due(world, "a", now - 20), *second = admit_due(world, "b", now - 10);
    admit_due(world, "later", now + 1);
    admit_due(world, "never", 0);
    struct ledger_claim *got = claim(world, OWNER, 2000, 2);
    assert_int_equal(got->count, 2);
    assert_string_equal(got->ops[0]->id, first->id);
    assert_string_equal(got->ops[1]->id, second->id);
    assert_null(got->former_owners[0]);
    assert_true(got->next_wake_ms <= now); /* more are due */
    first->owner = OWNER;
    first->lease_until_ms = now + 2000;
    first->wake_at_ms = ledger_renewal_ms(got);
    assert_same_operation(got->ops[0], first);
    assert_same_operation(get(world, first->id), first); /* rev as before */
    got = claim(world, OWNER, 2000, 10);
    assert_int_equal(got->count, 2);
    assert_string_equal(got->ops[0]->id, third->id);
    assert_string_equal(got->ops[1]->id, ended->id);
    assert_int_equal(got->next_wake_ms, now + 1);
    assert_int_equal(claim(world, OWNER, 2000, 10)->count, 0);
}

/* S69: one unit, both sides of the boundary. */
static void s69_lease_ends_on_the_millisecond(void **state)
{
    struct world *world = *state;
    struct operation *op = admit_due(world, "k", world->now_ms);
    int64_t start = world->now_ms;
    assert_int_equal(claim(world, OWNER, 2000, 10)->count, 1);
    world->now_ms = start + 1999;
    struct ledger_claim *early = claim(world, OTHER_OWNER, 2000, 10);
    assert_int_equal(early->count, 0);
    assert_int_equal(early->next_wake_ms, start + 2000);
    world->now_ms = start + 2000;
    struct ledger_claim *late = claim(world, OTHER_OWNER, 2000, 10);
    assert_int_equal(late->count, 1);
    assert_string_equal(late->ops[0]->id, op->id);
    assert_string_equal(late->former_owners[0], OWNER);
    assert_string_equal(late->ops[0]->owner, OTHER_OWNER);
    assert_int_equal(late->ops[0]->lease_until_ms, start + 4000);
}

/* A due row whose lease runs is left to its owner, and does not make others look at once again. */
static void leases_protect_due_rows(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->owner = OWNER;
    op->wake_at_ms = world->now_ms - 1;
    op->lease_until_ms = world->now_ms + 1;
    admit(world, op);
    struct ledger_claim *got = claim(world, OTHER_OWNER, 2000, 10);
    assert_int_equal(got->count, 0);
    assert_int_equal(got->next_wake_ms, world->now_ms + 1);
    got = claim(world, OWNER, 2000, 10);
    assert_int_equal(got->count, 1);
    assert_string_equal(got->former_owners[0], OWNER);
}

/* With a third of the lease left the owner renews it; others may not have the row before it has ended. */
static void the_last_third_of_a_lease_is_for_its_renewal(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    int64_t start = op->wake_at_ms = world->now_ms;
    admit(world, op);
    assert_int_equal(claim(world, OWNER, 3000, 10)->ops[0]->wake_at_ms, start + 2000);
    assert_int_equal(get(world, op->id)->lease_until_ms, start + 3000);
    world->now_ms = start + 2000;
    struct ledger_claim *got = claim(world, OTHER_OWNER, 3000, 10);
    assert_int_equal(got->count, 0);
    assert_int_equal(got->next_wake_ms, start + 3000);
    got = claim(world, OWNER, 3000, 10);
    assert_int_equal(got->count, 1);
    assert_int_equal(got->ops[0]->lease_until_ms, start + 5000);
    world->now_ms = start + 4999;
    assert_int_equal(claim(world, OTHER_OWNER, 3000, 10)->count, 0);
}

/* A gateway that stops lets go of its own rows only, and of none that it has sent something for. */
static void released_rows_are_free(void **state)
{
    struct world *world = *state;
    static const enum state states[] = {STATE_PENDING_DISPATCH, STATE_PENDING_DISPATCH, STATE_DISPATCHED,
                                        STATE_COMPLETED_SUCCESS};
    static const char *const owners[] = {OWNER, OTHER_OWNER, OWNER, OWNER};
    struct operation *ops[4];
    for (int i = 0; i < 4; i++) {
        ops[i] = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        ops[i]->state = states[i];
        ops[i]->owner = owners[i];
        ops[i]->lease_until_ms = ops[i]->wake_at_ms = world->now_ms + 60000;
        admit(world, ops[i]);
    }
    struct ledger_request *request = make_request(world, LEDGER_RELEASE);
    request->release = (struct ledger_release){.owner = OWNER, .now_ms = world->now_ms};
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->release.count, 1);
    struct ledger_claim *got = claim(world, OTHER_OWNER, 2000, 10);
    assert_int_equal(got->count, 1);
    assert_string_equal(got->ops[0]->id, ops[0]->id);
    assert_null(got->former_owners[0]);
    assert_int_equal(got->ops[0]->rev, ops[0]->rev);
    for (int i = 1; i < 4; i++)
        assert_string_equal(get(world, ops[i]->id)->owner, owners[i]);
}

/* To watch is to look, too. */
static void a_watch_answers_like_a_look(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    struct ledger_request *request = make_request(world, LEDGER_WATCH);
    request->get = (struct ledger_get){.tenant = op->tenant, .operation = op->id};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(call(world, request), 0);
        assert_same_operation(request->get.op, get(world, op->id));
        if (i == 0)
            move(world, op, STATE_DISPATCHED);
    }
    assert_int_equal(request->get.op->state, STATE_DISPATCHED);
    request->get.operation = "op_00000000000000000000000000";
    assert_int_equal(call(world, request), ERR_NOT_FOUND);
    assert_null(request->get.op);
}

static void foreign_rows_are_taken_over(void **state)
{
    struct world *world = *state;
    struct operation *ops[4];
    const char *owners[4] = {OWNER, OTHER_OWNER, NULL, OTHER_OWNER};
    for (int i = 0; i < 4; i++) {
        ops[i] = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        ops[i]->owner = owners[i];
        ops[i]->lease_until_ms = world->now_ms + 60000;
        ops[i]->wake_at_ms = i == 1 ? 0 : world->now_ms + 60000;
        admit(world, ops[i]);
    }
    move(world, ops[3], STATE_COMPLETED_SUCCESS); /* ended: nobody's business */
    struct ledger_request *request = make_request(world, LEDGER_CLAIM_DUE);
    request->claim =
        (struct ledger_claim){.owner = OWNER, .now_ms = world->now_ms, .lease_ms = 2000, .limit = 10, .foreign = true};
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->claim.count, 1);
    assert_string_equal(request->claim.ops[0]->id, ops[1]->id);
    assert_string_equal(request->claim.former_owners[0], OTHER_OWNER);
    assert_string_equal(get(world, ops[1]->id)->owner, OWNER);
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->claim.count, 0);
}

/* Guard mode: an application holds the lease, so that the end of a process of ours says nothing about it; its own end
 * does. */
static void leases_of_executors_outlive_processes(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->owner = OPERATION_EXECUTOR_PREFIX "1.abc";
    op->lease_until_ms = op->wake_at_ms = world->now_ms + 60000;
    admit(world, op);
    struct ledger_request *request = make_request(world, LEDGER_CLAIM_DUE);
    request->claim =
        (struct ledger_claim){.owner = OWNER, .now_ms = world->now_ms, .lease_ms = 2000, .limit = 10, .foreign = true};
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->claim.count, 0);
    request->claim = (struct ledger_claim){.owner = OWNER, .now_ms = world->now_ms, .lease_ms = 2000, .limit = 10};
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->claim.count, 0);
    assert_int_equal(request->claim.next_wake_ms, op->wake_at_ms);
    request->claim = (struct ledger_claim){.owner = OWNER, .now_ms = op->lease_until_ms, .lease_ms = 2000, .limit = 10};
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->claim.count, 1);
    assert_string_equal(request->claim.former_owners[0], OPERATION_EXECUTOR_PREFIX "1.abc");
}

/* ---- expiry ---- */

static void tombstones_stay(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    assert_int_equal(expire(world, op->id, 1), ERR_CONFLICT); /* not ended */
    op->external_id = "re_1";
    move(world, op, STATE_COMPLETED_SUCCESS);
    int64_t completed_ms = op->completed_ms;
    world->now_ms += 10000;
    assert_int_equal(expire(world, op->id, 1), ERR_STALE);
    assert_int_equal(expire(world, op->id, 2), 0);
    assert_int_equal(expire(world, op->id, 2), ERR_NOT_FOUND);
    struct ledger_request *request = make_request(world, LEDGER_GET);
    request->get = (struct ledger_get){.tenant = "acme", .operation = op->id};
    assert_int_equal(call(world, request), 0);
    assert_null(request->get.op);
    const struct tombstone *stone = request->get.tombstone;
    assert_string_equal(stone->operation, op->id);
    assert_string_equal(stone->external_id, "re_1");
    assert_int_equal(stone->state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(stone->completed_ms, completed_ms);
    assert_int_equal(stone->dropped_ms, world->now_ms);
    assert_memory_equal(&stone->fingerprint, &op->fingerprint, DIGEST_BYTES);
    request->get.tenant = "other";
    assert_int_equal(call(world, request), ERR_NOT_FOUND);
    assert_null(request->get.tombstone);
    struct operation *colleague = make_operation(world, "refund", "k", 1);
    colleague->principal = "another";
    assert_int_equal(admit(world, colleague).verdict, VERDICT_NOT_SHARED);
    struct admission_result late = admit(world, make_operation(world, "refund", "k", 1));
    assert_int_equal(late.verdict, VERDICT_EXPIRED);
    assert_string_equal(late.tombstone->operation, op->id);
    assert_int_equal(admit(world, make_operation(world, "refund", "k", 2)).verdict, VERDICT_CONFLICT);
    assert_int_equal(call(world, make_transition(world, op, STATE_COMPENSATING)), ERR_NOT_FOUND);
    struct ledger_request *events = make_request(world, LEDGER_EVENTS);
    events->events.operation = op->id;
    assert_int_equal(call(world, events), ERR_NOT_FOUND);
}

static void the_newest_version_counts_also_as_a_tombstone(void **state)
{
    struct world *world = *state;
    struct operation *first = make_operation(world, "refund", "k", 1),
                     *second = make_operation(world, "refund", "k", 2);
    admit(world, first);
    move(world, first, STATE_FAILED_PERMANENT);
    admit(world, second);
    move(world, second, STATE_COMPLETED_SUCCESS);
    assert_int_equal(expire(world, second->id, second->rev), 0);
    struct admission_result result = admit(world, make_operation(world, "refund", "k", 2));
    assert_int_equal(result.verdict, VERDICT_EXPIRED);
    assert_int_equal(result.tombstone->key_version, 2);
    assert_int_equal(expire(world, first->id, first->rev), 0);
    assert_int_equal(admit(world, make_operation(world, "refund", "k", 2)).tombstone->key_version, 2);
    struct ledger_request *request = make_request(world, LEDGER_GET);
    request->get.operation = first->id; /* both are still known by id */
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->get.tombstone->key_version, 1);
}

/* 3.4: a version that was closed as "no effect" turns out to have happened after a later one was opened and failed, too
 * (found by simulation, seed 200099749). */
static void a_version_that_landed_late_answers_for_its_key(void **state)
{
    struct world *world = *state;
    struct operation *first = make_operation(world, "refund", "k", 1),
                     *second = make_operation(world, "refund", "k", 2);
    admit(world, first);
    move(world, first, STATE_FAILED_PERMANENT);
    admit(world, second);
    move(world, second, STATE_FAILED_PERMANENT);
    move(world, first, STATE_COMPLETED_SUCCESS);
    struct admission_result result = admit(world, make_operation(world, "refund", "k", 3));
    assert_int_equal(result.verdict, VERDICT_CONFLICT);
    assert_string_equal(result.existing->id, first->id);
    assert_int_equal(admit(world, make_operation(world, "refund", "k", 1)).verdict, VERDICT_REPLAY);
    struct ledger_request *request = make_request(world, LEDGER_GET_BY_KEY);
    request->get_by_key = (struct ledger_get_by_key){.tenant = "acme", .tool = "refund", .key_hash = first->key_hash};
    assert_int_equal(call(world, request), 0);
    assert_string_equal(request->get_by_key.op->id, first->id);
    assert_int_equal(expire(world, first->id, first->rev), 0); /* the second's row is still there */
    result = admit(world, make_operation(world, "refund", "k", 3));
    assert_int_equal(result.verdict, VERDICT_CONFLICT);
    assert_string_equal(result.tombstone->operation, first->id);
    assert_int_equal(expire(world, second->id, second->rev), 0);
    assert_string_equal(admit(world, make_operation(world, "refund", "k", 1)).tombstone->operation, first->id);
}

static void a_dropped_failure_opens_the_next_version(void **state)
{
    struct world *world = *state;
    struct operation *first = make_operation(world, "refund", "k", 1),
                     *second = make_operation(world, "refund", "k", 2);
    admit(world, first);
    move(world, first, STATE_FAILED_PERMANENT);
    assert_int_equal(expire(world, first->id, first->rev), 0);
    assert_int_equal(admit(world, second).verdict, VERDICT_NEW);
    assert_int_equal(get(world, second->id)->key_version, 2);
    assert_string_equal(get(world, second->id)->previous, first->id);
}

/* ---- batches ---- */

struct order {
    int next;
    bool wrong;
};

/* A request that others may follow before it is done: it needs an arena of its own. */
struct numbered {
    struct ledger_request request;
    struct arena arena;
    struct order *order;
    int at;
};

static void note_order(struct ledger_request *request)
{
    struct numbered *numbered = request->user;
    numbered->order->wrong |= numbered->at != numbered->order->next++;
}

static struct ledger_request *numbered(struct world *world, struct ledger_request *request, struct order *order, int at)
{
    struct numbered *numbered = arena_zero(&world->arena, sizeof *numbered);
    *numbered = (struct numbered){.request = *request, .order = order, .at = at};
    numbered->request.arena = &numbered->arena;
    numbered->request.done = note_order;
    numbered->request.user = numbered;
    return &numbered->request;
}

static void finish(struct world *world, const struct order *order, int count)
{
    while (order->next < count) {
        ledger_wait(world->ledger, 1000);
        ledger_poll(world->ledger);
    }
}

static void requests_end_in_their_order(void **state)
{
    enum { COUNT = 2000 };
    struct world *world = *state;
    struct order order = {0};
    struct ledger_request *requests[COUNT];
    for (int i = 0; i < COUNT; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i / 2), 1);
        requests[i] = numbered(world, make_admit(world, op), &order, i);
        ledger_submit(world->ledger, requests[i]);
    }
    finish(world, &order, COUNT);
    assert_false(order.wrong);
    for (int i = 0; i < COUNT; i++) { /* the second of each pair met the first, maybe in the same transaction */
        assert_int_equal(requests[i]->code, 0);
        assert_int_equal(requests[i]->admit.result.verdict, i % 2 ? VERDICT_JOIN : VERDICT_NEW);
        arena_release(requests[i]->arena);
    }
}

/* A new version of a key is what the key means for whoever comes next, maybe in the same transaction. */
static void corrected_calls_follow_one_another(void **state)
{
    enum { ROUNDS = 40, EACH = 2 };
    struct world *world = *state;
    struct order order = {0};
    struct ledger_request *requests[ROUNDS][EACH];
    for (int i = 0; i < ROUNDS; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        admit(world, op);
        move(world, op, STATE_FAILED_PERMANENT);
    }
    for (int i = 0; i < ROUNDS * EACH; i++) {
        const char *key = arena_printf(&world->arena, "k%d", i / EACH);
        struct operation *op = make_operation(world, "refund", key, i % EACH ? 1 : 2);
        struct ledger_request *request = numbered(world, make_admit(world, op), &order, i);
        requests[i / EACH][i % EACH] = request;
        ledger_submit(world->ledger, request);
    }
    finish(world, &order, ROUNDS * EACH);
    assert_false(order.wrong);
    for (int i = 0; i < ROUNDS; i++) {
        const struct admission_result *first = &requests[i][0]->admit.result, *second = &requests[i][1]->admit.result;
        assert_int_equal(first->verdict, VERDICT_NEW);
        assert_int_equal(second->verdict, VERDICT_CONFLICT);
        assert_string_equal(second->existing->id, requests[i][0]->admit.admission.op->id);
        for (int j = 0; j < EACH; j++)
            arena_release(requests[i][j]->arena);
    }
}

static struct ledger_request *make_move_of_copy(struct world *world, struct operation **op, enum state to)
{
    struct operation *moved = arena_alloc(&world->arena, sizeof *moved);
    *moved = **op;
    *op = moved;
    return make_transition(world, moved, to);
}

/* Whatever of a batch is written together, each command finds what those before it have done. */
static void commands_of_a_batch_follow_one_another(void **state)
{
    enum { ROUNDS = 40, EACH = 7 };
    struct world *world = *state;
    struct order order = {0};
    struct ledger_request *requests[ROUNDS][EACH];
    struct operation *ops[ROUNDS], *left[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct ledger_request *first = make_repeat(world, "mail", i, NULL);
        assert_int_equal(verdict_of(world, first), VERDICT_NEW);
        ops[i] = first->admit.admission.op;
        move(world, ops[i], STATE_DISPATCHED);
        left[i] = make_operation(world, arena_printf(&world->arena, "pay%d", i), "k", 1);
        admit(world, left[i]);
        move(world, left[i], STATE_DISPATCHED);
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct ledger_request *mark = make_request(world, LEDGER_MARK);
        mark->mark = (struct ledger_mark){.operation = ops[i]->id, .tenant = ops[i]->tenant, .delivered = true};
        struct ledger_request *all[EACH] = {make_move_of_copy(world, &ops[i], STATE_UNKNOWN_OUTCOME),
                                            make_move_of_copy(world, &ops[i], STATE_COMPLETED_SUCCESS), mark};
        world->now_ms += 5000; /* outside the window: the mark decides */
        all[3] = make_repeat(world, "mail", i, NULL);
        all[4] = make_repeat(world, "mail", i, NULL);
        all[5] = make_request(world, LEDGER_MARK);
        all[5]->mark = (struct ledger_mark){.operation = left[i]->id, .tenant = left[i]->tenant, .orphaned = true};
        all[6] = make_admit(world, make_operation(world, left[i]->tool, "k2", 2));
        all[6]->admit.admission.hold_in_doubt = true;
        for (int j = 0; j < EACH; j++) {
            requests[i][j] = numbered(world, all[j], &order, i * EACH + j);
            ledger_submit(world->ledger, requests[i][j]);
        }
    }
    finish(world, &order, ROUNDS * EACH);
    assert_false(order.wrong);
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < EACH; j++)
            assert_int_equal(requests[i][j]->code, 0);
        assert_int_equal(requests[i][3]->admit.result.verdict, VERDICT_NEW);
        assert_int_equal(requests[i][4]->admit.result.verdict, VERDICT_JOIN);
        assert_string_equal(requests[i][4]->admit.result.existing->id, requests[i][3]->admit.admission.op->id);
        assert_int_equal(requests[i][6]->admit.result.verdict, VERDICT_HELD);
        ops[i]->delivered = true;
        assert_same_operation(get(world, ops[i]->id), ops[i]);
        for (int j = 0; j < EACH; j++)
            arena_release(requests[i][j]->arena);
    }
}

/* One command that breaks our contract (an id twice) fails alone. */
static void only_the_guilty_fails(void **state)
{
    enum { COUNT = 9 };
    struct world *world = *state;
    struct order order = {0};
    struct ledger_request *requests[COUNT];
    struct operation *failed = make_operation(world, "refund", "v", 1);
    admit(world, failed);
    move(world, failed, STATE_FAILED_PERMANENT);
    for (int i = 0; i < COUNT; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        if (i == 1) { /* opens a version: must do so also when executed again */
            op->key = "v";
            set_key(op);
            set_arguments(world, op, 2);
        }
        if (i == 4)
            memcpy(op->id, failed->id, sizeof op->id);
        requests[i] = numbered(world, make_admit(world, op), &order, i);
        ledger_submit(world->ledger, requests[i]);
    }
    finish(world, &order, COUNT);
    assert_false(order.wrong);
    for (int i = 0; i < COUNT; i++) {
        const struct operation *op = requests[i]->admit.admission.op;
        assert_int_equal(requests[i]->code, i == 4 ? ERR_INTERNAL : ERR_NONE);
        assert_int_equal(op->key_version, i == 1 ? 2 : 1);
        if (i != 4)
            assert_same_operation(get(world, op->id), op);
    }
    for (int i = 0; i < COUNT; i++)
        arena_release(requests[i]->arena);
    assert_int_equal(list(world, (struct ledger_list){.limit = 50})->count, COUNT);
}

/* ---- both ---- */

static int open_memory(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    world_init(world);
    world->ledger = ledger_memory_new(&world->env);
    *state = world;
    return 0;
}

static int open_sqlite(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    world_init(world);
    world_folder(world);
    world_open(world);
    *state = world;
    return 0;
}

static int release(void **state)
{
    world_release(*state);
    free(*state);
    return 0;
}

static const struct CMUnitTest decisions[] = {
    CONTRACT_TEST(admits_once),
    CONTRACT_TEST(other_arguments_conflict),
    CONTRACT_TEST(corrected_arguments_open_a_version),
    CONTRACT_TEST(results_are_not_shared),
    CONTRACT_TEST(s45_s54_tenants_are_apart),
    CONTRACT_TEST(s48_keys_are_exact),
    CONTRACT_TEST(repeats_join),
    CONTRACT_TEST(repeat_window_ends_on_the_millisecond),
    CONTRACT_TEST(repeats_are_found_in_a_crowd),
    CONTRACT_TEST(unknown_outcomes_hold),
    CONTRACT_TEST(what_is_sent_again_holds),
    CONTRACT_TEST(orphans_hold),
    CONTRACT_TEST(repeat_of_is_checked),
    CONTRACT_TEST(repeat_of_names_its_own),
    CONTRACT_TEST(repeat_of_reaches_a_tombstone),
    CONTRACT_TEST(dry_runs_insert_nothing),
    CONTRACT_TEST(transitions_compare_and_set),
    CONTRACT_TEST(fences_hold),
    CONTRACT_TEST(claimed_rows_are_not_free),
    CONTRACT_TEST(every_field_is_kept),
    CONTRACT_TEST(claims_open_rows_first_and_oldest),
    CONTRACT_TEST(s69_lease_ends_on_the_millisecond),
    CONTRACT_TEST(leases_protect_due_rows),
    CONTRACT_TEST(the_last_third_of_a_lease_is_for_its_renewal),
    CONTRACT_TEST(released_rows_are_free),
    CONTRACT_TEST(a_watch_answers_like_a_look),
    CONTRACT_TEST(foreign_rows_are_taken_over),
    CONTRACT_TEST(leases_of_executors_outlive_processes),
    CONTRACT_TEST(tombstones_stay),
    CONTRACT_TEST(the_newest_version_counts_also_as_a_tombstone),
    CONTRACT_TEST(a_version_that_landed_late_answers_for_its_key),
    CONTRACT_TEST(a_dropped_failure_opens_the_next_version),
    CONTRACT_TEST(requests_end_in_their_order),
    CONTRACT_TEST(corrected_calls_follow_one_another),
    CONTRACT_TEST(commands_of_a_batch_follow_one_another),
    CONTRACT_TEST(only_the_guilty_fails),
};
#define DECISION_COUNT (sizeof decisions / sizeof *decisions)

#define TESTS_MAX 128
static int run_on(const char *name, CMFixtureFunction open, CMFixtureFunction close, CMFixtureFunction end)
{
    struct CMUnitTest tests[TESTS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < DECISION_COUNT; i++)
        tests[count++] = decisions[i];
    for (size_t i = 0; i < contract_record_count; i++)
        tests[count++] = contract_records[i];
    for (size_t i = 0; i < contract_inbox_count; i++)
        tests[count++] = contract_inbox[i];
    for (size_t i = 0; i < contract_compensation_count; i++)
        tests[count++] = contract_compensations[i];
    for (size_t i = 0; i < contract_claim_count; i++)
        tests[count++] = contract_claims[i];
    for (size_t i = 0; i < contract_step_count; i++)
        tests[count++] = contract_steps[i];
    for (size_t i = 0; i < count; i++) {
        tests[i].setup_func = open;
        tests[i].teardown_func = close;
    }
    return _cmocka_run_group_tests(name, tests, count, NULL, end);
}

/* Without an argument on the ledgers that need nothing else; "postgres": on the database of tools/with-postgres.sh. */
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "postgres") == 0) {
        int failures = run_on("ledger in PostgreSQL", open_postgres, release_postgres, NULL) + run_postgres_tests();
        close_postgres();
        return failures != 0;
    }
    int failed = run_on("ledger in memory", open_memory, release, NULL);
    return failed + run_on("ledger in SQLite", open_sqlite, release, NULL) != 0;
}
