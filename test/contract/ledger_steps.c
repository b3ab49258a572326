/* Multi-step tools (design 10.2), on every ledger: a step and its parent move in one transaction, also where what moves
 * the step is the end of what undoes it. */
#include "contract/world.h"

#include "core/step.h"
#include "core/steps.h"

static struct steps_item items[] = {
    {.name = "one", .tool = "charge", .undo = STEPS_UNDO_PLAYBOOK, .playbook = "refund"},
    {.name = "two", .tool = "charge", .undo = STEPS_UNDO_PLAYBOOK, .playbook = "refund"},
};
static const struct steps_list steps = {.items = items, .count = 2, .digest = "d1"};
static const struct tool order = {.name = "order", .provider = &steps_provider, .steps = &steps};

static struct ledger_transition *change_of(struct world *world, struct operation *op, const struct tool *tool,
                                           struct step_input in)
{
    struct step_effects effects;
    struct ledger_transition *change = arena_zero(&world->arena, sizeof *change);
    in.now_ms = world->now_ms;
    in.arena = &world->arena;
    assert_int_equal(step(op, tool, &in, &effects, NULL), 0);
    *change = (struct ledger_transition){.op = op, .event_count = effects.event_count};
    memcpy(change->events, effects.events, effects.event_count * sizeof *effects.events);
    return change;
}

/* A parent whose turn has come. */
static struct operation *make_parent(struct world *world, const char *key)
{
    struct steps_progress progress;
    struct operation *op = make_operation(world, "order", key, 1);
    steps_start(&steps, &progress);
    op->steps = steps_write(&world->arena, &progress);
    assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
    struct ledger_request *request = make_request(world, LEDGER_TRANSITION);
    request->transition = *change_of(world, op, &order, (struct step_input){.kind = STEP_RUN_STEPS});
    assert_int_equal(call(world, request), 0);
    return op;
}

static struct ledger_request *make_step(struct world *world, struct operation *parent, size_t at,
                                        struct operation **out)
{
    struct operation *op = make_operation(world, "charge", NULL, 1);
    op->key = steps_key(&world->arena, parent->id, items[at].name);
    op->key_source = KEY_SOURCE_STEP;
    op->parent = arena_copy_text(&world->arena, parent->id);
    op->step = items[at].name;
    set_key(op);
    struct ledger_request *request = make_admit(world, op);
    request->admit.parent =
        change_of(world, parent, &order, (struct step_input){.kind = STEP_BEGIN_STEP, .at = at, .child = op->id});
    *out = op;
    return request;
}

static struct operation *begin(struct world *world, struct operation *parent, size_t at)
{
    struct operation *op;
    struct ledger_request *request = make_step(world, parent, at, &op);
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_NEW);
    move(world, op, STATE_DISPATCHED);
    return op;
}

/* Moves op and tells what came with it. */
static struct ledger_transition *ends(struct world *world, struct operation *op, enum state to)
{
    struct ledger_request *request = make_transition(world, op, to);
    ulid_next(&world->ids, request->transition.incident_id + 3);
    memcpy(request->transition.incident_id, "in_", 3);
    assert_int_equal(call(world, request), 0);
    return &request->transition;
}

static struct steps_entry entry(struct world *world, const struct operation *parent, size_t at)
{
    struct steps_progress progress;
    struct operation *row = get(world, parent->id);
    assert_int_equal(steps_read(&world->arena, row->steps, &progress, NULL), 0);
    return progress.entries[at];
}

static void assert_status(struct world *world, const struct operation *parent, size_t at, enum steps_status status)
{
    assert_string_equal(steps_status_name(entry(world, parent, at).status), steps_status_name(status));
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

static const struct event *last_event(struct world *world, const char *id)
{
    struct ledger_request *request = make_request(world, LEDGER_EVENTS);
    request->events.operation = id;
    assert_int_equal(call(world, request), 0);
    return &request->events.events[request->events.count - 1];
}

/* ---- forward ---- */

static void a_step_and_its_parent_begin_together(void **state)
{
    struct world *world = *state;
    struct operation *parent = make_parent(world, "k");
    struct operation *child = begin(world, parent, 0);
    assert_same_operation(get(world, parent->id), parent);
    assert_same_operation(get(world, child->id), child);
    assert_string_equal(get(world, child->id)->parent, parent->id);
    assert_string_equal(entry(world, parent, 0).operation, child->id);
    assert_int_equal(last_event(world, parent->id)->cause, CAUSE_STEP);
}

static void an_old_parent_begins_nothing(void **state)
{
    struct world *world = *state;
    struct operation *parent = make_parent(world, "k"), seen = *parent;
    struct operation *first = begin(world, parent, 0), *second;
    assert_int_equal(call(world, make_step(world, &seen, 0, &second)), 0); /* both saw it waiting: the key joins */
    assert_null(get(world, second->id));
    ends(world, first, STATE_COMPLETED_SUCCESS);
    struct operation *now = get(world, parent->id), old = *now;
    struct ledger_request *late = make_step(world, &old, 1, &second);
    struct ledger_request *note = make_request(world, LEDGER_TRANSITION);
    note->transition = *change_of(world, now, &order, (struct step_input){.kind = STEP_CANCEL, .actor = "boss"});
    assert_int_equal(call(world, note), 0); /* cancelled meanwhile */
    assert_int_equal(call(world, late), ERR_STALE);
    assert_null(get(world, second->id));
    assert_status(world, parent, 1, STEPS_WAITING);
}

/* Who drives it has lost it to another one. */
static void a_lost_lease_begins_nothing(void **state)
{
    struct world *world = *state;
    struct operation *parent = make_parent(world, "k"), *child;
    assert_int_equal(claim(world, OTHER_OWNER, 1000, 10)->count, 1);
    struct operation ours = *parent, theirs = *get(world, parent->id);
    struct ledger_request *request = make_step(world, &ours, 0, &child);
    request->admit.parent->fence = OWNER;
    assert_int_equal(call(world, request), ERR_STALE);
    ours = *parent;
    request = make_step(world, &ours, 0, &child);
    request->admit.parent->unheld = true;
    assert_int_equal(call(world, request), ERR_STALE);
    assert_null(get(world, child->id));
    request = make_step(world, &theirs, 0, &child);
    request->admit.parent->fence = OTHER_OWNER;
    assert_int_equal(call(world, request), 0);
    assert_status(world, parent, 0, STEPS_RUNNING);
    assert_null(get(world, parent->id)->owner);
}

static void never_one_without_the_other(void **state)
{
    struct world *world = *state;
    struct operation *parent = make_parent(world, "a"), *other = make_parent(world, "b"), *child;
    struct ledger_request *request = make_step(world, parent, 0, &child);
    request->admit.parent = NULL;
    assert_int_equal(call(world, request), ERR_INTERNAL);
    assert_null(get(world, child->id));
    request = make_step(world, other, 0, &child);
    child->parent = parent->id;
    assert_int_equal(call(world, request), ERR_INTERNAL);
    assert_null(get(world, child->id));
    assert_status(world, other, 0, STEPS_WAITING);
}

static void its_end_is_told(void **state)
{
    struct world *world = *state;
    static const enum state proofs[] = {STATE_COMPLETED_SUCCESS, STATE_COMPLETED_NOOP, STATE_FAILED_PERMANENT};
    for (size_t i = 0; i < 3; i++) {
        struct operation *parent = make_parent(world, i == 0 ? "a" : i == 1 ? "b" : "c");
        struct operation *child = begin(world, parent, 0);
        assert_int_equal(get(world, parent->id)->wake_at_ms, 0);
        assert_null(ends(world, child, STATE_UNKNOWN_OUTCOME)->parent); /* nobody knows yet */
        world->now_ms += 10;
        const struct ledger_undone *told = ends(world, child, proofs[i])->parent;
        assert_non_null(told);
        assert_same_operation(told->op, get(world, parent->id));
        assert_int_equal(told->op->rev, parent->rev + 1);
        assert_int_equal(told->op->wake_at_ms, world->now_ms);
        assert_status(world, parent, 0, proofs[i] == STATE_FAILED_PERMANENT ? STEPS_FAILED : STEPS_DONE);
        assert_int_equal(last_event(world, parent->id)->cause, CAUSE_STEP);
    }
}

/* Its end takes the parent from whoever holds it: that one's look is an old one. */
static void its_end_goes_over_a_lease(void **state)
{
    struct world *world = *state;
    struct operation *parent = make_parent(world, "k");
    struct operation *child = begin(world, parent, 0);
    struct operation *row = get(world, parent->id);
    row->wake_at_ms = 0;
    ends(world, child, STATE_FAILED_PERMANENT);
    struct ledger_claim *claimed = claim(world, OWNER, 1000, 10);
    assert_int_equal(claimed->count, 1);
    assert_string_equal(claimed->ops[0]->id, parent->id);
    child->may_have_applied = true;
    ends(world, child, STATE_COMPLETED_SUCCESS); /* evidence */
    row = get(world, parent->id);
    assert_null(row->owner);
    assert_int_equal(row->rev, claimed->ops[0]->rev + 1);
    assert_status(world, parent, 0, STEPS_DONE);
}

/* ---- back ---- */

/* A parent that rolls back: its first step is done, the second has failed. */
static struct operation *make_rollback(struct world *world, const char *key, struct operation **first,
                                       struct operation **second)
{
    struct operation *parent = make_parent(world, key);
    *first = begin(world, parent, 0);
    ends(world, *first, STATE_COMPLETED_SUCCESS);
    parent = get(world, parent->id);
    *second = begin(world, parent, 1);
    ends(world, *second, STATE_FAILED_PERMANENT);
    parent = get(world, parent->id);
    struct ledger_request *request = make_request(world, LEDGER_TRANSITION);
    request->transition = *change_of(world, parent, &order, (struct step_input){.kind = STEP_WAKE});
    assert_int_equal(call(world, request), 0);
    assert_int_equal(parent->state, STATE_COMPENSATING);
    return parent;
}

/* What undoes done; by its parent unless NULL. */
static struct ledger_request *make_undo(struct world *world, struct operation *done, struct operation *parent,
                                        struct operation **out)
{
    struct operation *op = make_operation(world, "refund", NULL, 1);
    op->key = arena_printf(&world->arena, "compensate:%s:refund", done->id);
    op->compensates = arena_copy_text(&world->arena, done->id);
    op->playbook = "refund";
    op->parent = parent ? arena_copy_text(&world->arena, parent->id) : NULL;
    set_key(op);
    struct ledger_request *request = make_admit(world, op);
    request->admit.undoes =
        change_of(world, done, NULL, (struct step_input){.kind = STEP_COMPENSATE, .compensation = op->id});
    if (parent)
        request->admit.parent =
            change_of(world, parent, &order, (struct step_input){.kind = STEP_UNDO_STEP, .compensation = op->id});
    *out = op;
    return request;
}

static void undoing_moves_three_rows(void **state)
{
    struct world *world = *state;
    static const enum state ways[] = {STATE_COMPLETED_SUCCESS, STATE_FAILED_PERMANENT};
    for (size_t i = 0; i < 2; i++) {
        struct operation *first, *second, *undoer, *parent = make_rollback(world, i ? "b" : "a", &first, &second);
        assert_int_equal(call(world, make_undo(world, first, parent, &undoer)), 0);
        assert_same_operation(get(world, parent->id), parent);
        assert_int_equal(get(world, first->id)->state, STATE_COMPENSATING);
        assert_status(world, parent, 0, STEPS_UNDOING);
        assert_int_equal(get(world, parent->id)->wake_at_ms, 0);
        move(world, undoer, STATE_DISPATCHED);
        struct ledger_transition *change = ends(world, undoer, ways[i]);
        assert_non_null(change->undone);
        assert_non_null(change->parent);
        assert_same_operation(change->parent->op, get(world, parent->id));
        assert_int_equal(get(world, parent->id)->wake_at_ms, world->now_ms);
        assert_int_equal(get(world, first->id)->state, i ? STATE_COMPLETED_SUCCESS : STATE_COMPENSATED);
        assert_status(world, parent, 0, i ? STEPS_STUCK : STEPS_UNDONE);
        assert_int_equal(incidents_of(world, first->id, INCIDENT_COMPENSATION_FAILED), i);
    }
}

/* Undone past its parent, a step would be gone under those that build on it. */
static void nobody_else_undoes_a_step_of_an_open_parent(void **state)
{
    struct world *world = *state;
    struct operation *first, *second, *undoer, *parent = make_rollback(world, "k", &first, &second);
    struct operation done = *get(world, first->id);
    assert_int_equal(call(world, make_undo(world, &done, NULL, &undoer)), ERR_CONFLICT);
    assert_null(get(world, undoer->id));
    assert_int_equal(get(world, first->id)->state, STATE_COMPLETED_SUCCESS);
    /* The parent of another one is none of its. */
    struct operation old = *parent;
    struct ledger_request *note = make_request(world, LEDGER_TRANSITION);
    note->transition =
        *change_of(world, parent, &order,
                   (struct step_input){
                       .kind = STEP_HOLD_STEP, .hold_reason = REASON_ROLLING_BACK, .hold_until_ms = world->now_ms});
    assert_int_equal(call(world, note), 0);
    done = *get(world, first->id);
    assert_int_equal(call(world, make_undo(world, &done, &old, &undoer)), ERR_STALE); /* neither of the two moves */
    assert_int_equal(get(world, first->id)->state, STATE_COMPLETED_SUCCESS);
    assert_null(get(world, undoer->id));
}

/* ---- the end ---- */

static struct operation *roll_back(struct world *world, const char *key, struct operation **first,
                                   struct operation **second)
{
    struct operation *undoer, *parent = make_rollback(world, key, first, second);
    assert_int_equal(call(world, make_undo(world, *first, parent, &undoer)), 0);
    move(world, undoer, STATE_DISPATCHED);
    ends(world, undoer, STATE_COMPLETED_SUCCESS);
    parent = get(world, parent->id);
    struct ledger_request *request = make_request(world, LEDGER_TRANSITION);
    request->transition = *change_of(world, parent, &order, (struct step_input){.kind = STEP_WAKE});
    assert_int_equal(call(world, request), 0);
    assert_int_equal(parent->state, STATE_COMPENSATED);
    return parent;
}

static void late_evidence_is_told_and_changes_no_end(void **state)
{
    struct world *world = *state;
    struct operation *first, *second, *parent = roll_back(world, "k", &first, &second);
    const struct ledger_undone *told = ends(world, second, STATE_COMPLETED_SUCCESS)->parent;
    assert_true(told->incident);
    assert_int_equal(get(world, parent->id)->state, STATE_COMPENSATED);
    assert_status(world, parent, 1, STEPS_DONE);
    assert_int_equal(incidents_of(world, parent->id, INCIDENT_CONTRADICTION), 1);
}

static void a_new_attempt_after_the_rollback_only(void **state)
{
    struct world *world = *state;
    struct operation *first, *second;
    make_rollback(world, "open", &first, &second);
    assert_int_equal(admit(world, make_operation(world, "order", "open", 1)).verdict, VERDICT_JOIN);
    struct operation *parent = roll_back(world, "k", &first, &second);
    struct operation *again = make_operation(world, "order", "k", 1);
    assert_int_equal(admit(world, again).verdict, VERDICT_NEW);
    assert_int_equal(get(world, again->id)->key_version, 2);
    assert_string_equal(get(world, again->id)->previous, parent->id);
    move(world, again, STATE_DISPATCHED);
    move(world, again, STATE_FAILED_PERMANENT);
    /* Of two without effect the newest answers. */
    struct admission_result result = admit(world, make_operation(world, "order", "k", 1));
    assert_int_equal(result.verdict, VERDICT_REPLAY);
    assert_string_equal(result.existing->id, again->id);
}

/* What a step gave may be wanted yet, and it may have to be undone. */
static void a_step_is_kept_as_long_as_its_parent_is_open(void **state)
{
    struct world *world = *state;
    struct operation *first, *second, *parent = make_rollback(world, "k", &first, &second);
    assert_int_equal(expire(world, second->id, second->rev), ERR_CONFLICT);
    assert_non_null(get(world, second->id));
    parent = roll_back(world, "k2", &first, &second);
    first = get(world, first->id);
    assert_int_equal(expire(world, first->id, first->rev), 0);
    assert_int_equal(expire(world, parent->id, parent->rev), 0);
    assert_null(ends(world, second, STATE_COMPLETED_SUCCESS)->parent); /* no row, nobody to be told */
    assert_int_equal(expire(world, second->id, second->rev), 0);
}

/* ---- entities ---- */

static void claim_entity(struct world *world, struct ledger_request *request, const char *id, bool queue)
{
    struct claims *claims = arena_zero(&world->arena, sizeof *claims);
    claims->entities[0] = (struct claim_entity){.type = "order", .id = id, .queue = queue, .seen_rev = -1};
    claims->entity_count = 1;
    claims->wait_until_ms = world->now_ms + 100000;
    request->admit.admission.claims = claims;
    request->admit.admission.wants_entities = true;
    request->admit.admission.op->claims = claims_write(&world->arena, claims);
}

static const char *holder(struct world *world, const char *id)
{
    struct claims of = {.entity_count = 1};
    of.entities[0] = (struct claim_entity){.type = "order", .id = id};
    struct ledger_request *request = make_request(world, LEDGER_ENTITIES);
    request->entities = (struct ledger_entities){.tenant = "acme", .of = &of, .limit = 1};
    assert_int_equal(call(world, request), 0);
    return request->entities.entities[0].holder;
}

static void what_the_parent_holds_its_steps_need_not_take(void **state)
{
    struct world *world = *state;
    for (int queue = 0; queue < 2; queue++) {
        const char *id = queue ? "o2" : "o1";
        struct steps_progress progress;
        struct operation *parent = make_operation(world, "order", id, 1), *child, *stranger;
        steps_start(&steps, &progress);
        parent->steps = steps_write(&world->arena, &progress);
        struct ledger_request *request = make_admit(world, parent);
        claim_entity(world, request, id, queue);
        assert_int_equal(call(world, request), 0);
        assert_string_equal(holder(world, id), parent->id);
        stranger = make_operation(world, "other", id, 1); /* waits, or is refused */
        request = make_admit(world, stranger);
        claim_entity(world, request, id, queue);
        assert_int_equal(call(world, request), 0);
        assert_int_equal(request->admit.result.verdict, queue ? VERDICT_NEW : VERDICT_POLICY);
        request = make_request(world, LEDGER_TRANSITION);
        request->transition = *change_of(world, parent, &order, (struct step_input){.kind = STEP_RUN_STEPS});
        assert_int_equal(call(world, request), 0);
        request = make_step(world, parent, 0, &child);
        claim_entity(world, request, id, queue);
        assert_int_equal(call(world, request), 0);
        assert_int_equal(request->admit.result.verdict, VERDICT_NEW);
        assert_false(request->admit.result.waits); /* past all who wait for the parent's end */
        assert_string_equal(holder(world, id), parent->id);
        move(world, child, STATE_DISPATCHED);
        ends(world, child, STATE_COMPLETED_SUCCESS);
        assert_string_equal(holder(world, id), parent->id); /* not its to give back */
        parent = get(world, parent->id);
        request = make_request(world, LEDGER_TRANSITION);
        request->transition = *change_of(world, parent, &order, (struct step_input){.kind = STEP_SKIP_STEP, .at = 1});
        assert_int_equal(call(world, request), 0);
        request = make_request(world, LEDGER_TRANSITION);
        request->transition = *change_of(world, parent, &order, (struct step_input){.kind = STEP_FINISH_STEPS});
        assert_int_equal(call(world, request), 0);
        if (queue)
            assert_string_equal(holder(world, id), stranger->id);
        else
            assert_null(holder(world, id));
    }
}

const struct CMUnitTest contract_steps[] = {
    CONTRACT_TEST(a_step_and_its_parent_begin_together),
    CONTRACT_TEST(an_old_parent_begins_nothing),
    CONTRACT_TEST(a_lost_lease_begins_nothing),
    CONTRACT_TEST(never_one_without_the_other),
    CONTRACT_TEST(its_end_is_told),
    CONTRACT_TEST(its_end_goes_over_a_lease),
    CONTRACT_TEST(undoing_moves_three_rows),
    CONTRACT_TEST(nobody_else_undoes_a_step_of_an_open_parent),
    CONTRACT_TEST(late_evidence_is_told_and_changes_no_end),
    CONTRACT_TEST(a_new_attempt_after_the_rollback_only),
    CONTRACT_TEST(a_step_is_kept_as_long_as_its_parent_is_open),
    CONTRACT_TEST(what_the_parent_holds_its_steps_need_not_take),
};
const size_t contract_step_count = sizeof contract_steps / sizeof *contract_steps;
