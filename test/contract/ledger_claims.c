/* Entities, windows and budgets (design 9), on every ledger. */
#include "contract/world.h"

#include <stdio.h>

#define DAY_MS 86400000

/* What a call claims, built up by the tests. */
struct wish {
    const char *entities[4]; /* ids of type "order"; several are sorted */
    bool queue;
    const char *sets; /* JSON object for all of them */
    const char *window;
    bool overridable;
    const char *override;
    const char *amount, *limit; /* of budget "refunds" */
};

static struct claims *make_claims(struct world *world, const struct wish *wish)
{
    struct claims *claims = arena_zero(&world->arena, sizeof *claims);
    for (size_t i = 0; i < 4 && wish->entities[i]; i++) {
        struct json *sets = NULL;
        if (wish->sets)
            assert_int_equal(json_parse(&world->arena, str_of(wish->sets), NULL, &sets, NULL), 0);
        claims->entities[claims->entity_count++] = (struct claim_entity){
            .type = "order", .id = wish->entities[i], .queue = wish->queue, .sets = sets, .seen_rev = -1};
    }
    claims->window = wish->window;
    claims->window_per_ms = DAY_MS;
    claims->window_overridable = wish->overridable;
    claims->override_reason = wish->override;
    if (wish->amount) {
        struct claim_debit *debit = &claims->debits[claims->debit_count++];
        *debit = (struct claim_debit){.budget = "refunds", .subject = "", .key = "", .per_ms = DAY_MS};
        assert_int_equal(decimal_read(str_of(wish->amount), &debit->amount, NULL), 0);
        assert_int_equal(decimal_read(str_of(wish->limit), &debit->limit, NULL), 0);
    }
    claims->wait_until_ms = world->now_ms + 60000;
    return claims;
}

static struct ledger_request *make_claiming(struct world *world, struct operation *op, struct wish wish)
{
    struct ledger_request *request = make_admit(world, op);
    request->admit.admission.claims = make_claims(world, &wish);
    request->admit.admission.wants_entities = op->state != STATE_PLANNED;
    op->claims = claims_write(&world->arena, request->admit.admission.claims);
    return request;
}

/* A new operation of its own key. */
static struct operation *make_next(struct world *world)
{
    static const char *const keys[] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"};
    struct operation *op = make_operation(world, "refund", NULL, 1);
    op->key = arena_printf(&world->arena, "%s:%s", keys[0], op->id);
    set_key(op);
    world->now_ms++;
    return op;
}

static struct admission_result claims_admit(struct world *world, struct operation *op, struct wish wish)
{
    struct ledger_request *request = make_claiming(world, op, wish);
    assert_int_equal(call(world, request), 0);
    if (request->admit.result.waits) /* as the engine does */
        claims_await(op, request->admit.admission.claims->wait_until_ms);
    return request->admit.result;
}

static struct operation *open_one(struct world *world, struct wish wish)
{
    struct operation *op = make_next(world);
    assert_int_equal(claims_admit(world, op, wish).verdict, VERDICT_NEW);
    return op;
}

static enum claims_verdict refused(struct world *world, struct wish wish)
{
    struct operation *op = make_next(world);
    struct admission_result result = claims_admit(world, op, wish);
    assert_int_equal(result.verdict, VERDICT_POLICY);
    assert_null(get(world, op->id)); /* nothing of it is kept */
    return result.refusal.verdict;
}

static struct ledger_entity look(struct world *world, const char *id)
{
    struct ledger_request *request = make_request(world, LEDGER_ENTITIES);
    struct claims *of = arena_zero(&world->arena, sizeof *of);
    of->entity_count = 1;
    of->entities[0] = (struct claim_entity){.type = "order", .id = id};
    request->entities = (struct ledger_entities){.tenant = "acme", .of = of};
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->entities.count, 1);
    return request->entities.entities[0];
}

static void assert_held_by(struct world *world, const char *id, const struct operation *op)
{
    struct ledger_entity entity = look(world, id);
    if (op)
        assert_string_equal(entity.holder, op->id);
    else
        assert_null(entity.holder);
}

/* ---- entities ---- */

static void an_entity_is_held_until_the_end(void **state)
{
    struct world *world = *state;
    struct operation *op = open_one(world, (struct wish){.entities = {"1"}});
    static const enum state open[] = {STATE_DISPATCHED, STATE_UNKNOWN_OUTCOME, STATE_FAILED_RETRYABLE, STATE_DISPATCHED,
                                      STATE_ACKNOWLEDGED};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        move(world, op, open[i]);
        assert_held_by(world, "1", op);
        struct operation *other = make_next(world);
        struct admission_result result = claims_admit(world, other, (struct wish){.entities = {"1"}});
        assert_int_equal(result.verdict, VERDICT_POLICY);
        assert_int_equal(result.refusal.verdict, CLAIMS_ENTITY);
        assert_string_equal(result.refusal.operation, op->id); /* names the holder */
    }
    assert_int_equal(claims_admit(world, make_next(world), (struct wish){.entities = {"2"}}).verdict, VERDICT_NEW);
    move(world, op, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "1", NULL);
    open_one(world, (struct wish){.entities = {"1"}});
}

static void tenants_have_entities_of_their_own(void **state)
{
    struct world *world = *state;
    open_one(world, (struct wish){.entities = {"1"}, .window = "w", .amount = "10", .limit = "10"});
    struct operation *other = make_next(world);
    other->tenant = "other";
    set_key(other);
    assert_int_equal(
        claims_admit(world, other, (struct wish){.entities = {"1"}, .window = "w", .amount = "10", .limit = "10"})
            .verdict,
        VERDICT_NEW);
}

static void a_known_key_is_answered_before_policy(void **state)
{
    struct world *world = *state;
    struct wish wish = {.entities = {"1"}, .window = "w", .amount = "10", .limit = "10"};
    struct operation *op = open_one(world, wish);
    struct operation *again = make_operation(world, "refund", op->key, 1);
    assert_int_equal(claims_admit(world, again, wish).verdict, VERDICT_JOIN);
    struct operation *conflict = make_operation(world, "refund", op->key, 2);
    assert_int_equal(claims_admit(world, conflict, wish).verdict, VERDICT_CONFLICT);
    op->result = STR("{}");
    move(world, op, STATE_COMPLETED_SUCCESS);
    assert_int_equal(claims_admit(world, make_operation(world, "refund", op->key, 1), wish).verdict, VERDICT_REPLAY);
}

static void queues_are_fair(void **state)
{
    struct world *world = *state;
    struct wish wish = {.entities = {"1"}, .queue = true};
    struct operation *ops[4];
    for (int i = 0; i < 4; i++)
        ops[i] = open_one(world, wish);
    for (int i = 1; i < 4; i++) {
        struct operation *stored = get(world, ops[i]->id);
        assert_int_equal(stored->state, STATE_PLANNED);
        assert_int_equal(stored->reason, REASON_AWAITING_ENTITY);
        assert_int_equal(stored->attempts, 0);
        assert_false(stored->may_have_applied);
    }
    assert_int_equal(look(world, "1").waiting, 3);
    assert_int_equal(refused(world, (struct wish){.entities = {"1"}}), CLAIMS_ENTITY); /* who does not wait */
    for (int i = 0; i < 4; i++) {
        assert_held_by(world, "1", ops[i]);
        world->now_ms += 5;
        struct ledger_request *end = make_transition(world, ops[i], STATE_FAILED_PERMANENT);
        if (ops[i]->reason == REASON_AWAITING_ENTITY)
            ops[i]->reason = REASON_NONE;
        assert_int_equal(call(world, end), 0);
        assert_int_equal(end->transition.wake_ms, i < 3 ? world->now_ms : 0);
        if (i < 3)
            assert_int_equal(get(world, ops[i + 1]->id)->wake_at_ms, world->now_ms); /* it is its turn */
    }
    assert_held_by(world, "1", NULL);
}

/* B waits for 1 and 2; C, which only wants 2, does not go before it although 2 is free. */
static void nobody_is_overtaken(void **state)
{
    struct world *world = *state;
    struct operation *a = open_one(world, (struct wish){.entities = {"1"}, .queue = true});
    struct operation *b = open_one(world, (struct wish){.entities = {"1", "2"}, .queue = true});
    struct operation *c = open_one(world, (struct wish){.entities = {"2"}, .queue = true});
    assert_held_by(world, "2", NULL); /* all or nothing */
    assert_int_equal(c->state, STATE_PLANNED);
    assert_int_equal(refused(world, (struct wish){.entities = {"2"}}), CLAIMS_ENTITY);
    move(world, a, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "1", b);
    assert_held_by(world, "2", b);
    move(world, b, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "1", NULL);
    assert_held_by(world, "2", c);
}

/* Who gives up its place lets in those behind it, also at entities that nobody held. */
static void who_leaves_a_queue_lets_others_in(void **state)
{
    struct world *world = *state;
    struct operation *a = open_one(world, (struct wish){.entities = {"1"}, .queue = true});
    struct operation *b = open_one(world, (struct wish){.entities = {"1", "2"}, .queue = true});
    struct operation *c = open_one(world, (struct wish){.entities = {"2", "3"}, .queue = true});
    assert_held_by(world, "2", NULL);
    b->reason = REASON_CANCELLED;
    move(world, b, STATE_REJECTED);
    assert_held_by(world, "1", a);
    assert_held_by(world, "2", c);
    assert_held_by(world, "3", c);
    assert_int_equal(look(world, "1").waiting, 0);
    assert_int_equal(look(world, "2").waiting, 0);
}

/* First in one queue is not enough: C waits for 2 and 3, D behind it for 1 and 2. That 1 becomes free is not D's turn.
 */
static void first_in_every_queue(void **state)
{
    struct world *world = *state;
    struct operation *a = open_one(world, (struct wish){.entities = {"1"}, .queue = true});
    struct operation *b = open_one(world, (struct wish){.entities = {"3"}, .queue = true});
    struct operation *c = open_one(world, (struct wish){.entities = {"2", "3"}, .queue = true});
    struct operation *d = open_one(world, (struct wish){.entities = {"1", "2"}, .queue = true});
    move(world, a, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "1", NULL);
    assert_held_by(world, "2", NULL);
    move(world, b, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "2", c);
    assert_held_by(world, "3", c);
    assert_held_by(world, "1", NULL);
    move(world, c, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "1", d);
    assert_held_by(world, "2", d);
}

/* A planned operation holds nothing until its turn; then it asks, and keeps its place when it asks again. */
static void planned_operations_ask_when_their_turn_has_come(void **state)
{
    struct world *world = *state;
    struct operation *later = make_next(world);
    later->state = STATE_PLANNED;
    later->reason = REASON_SCHEDULED;
    assert_int_equal(claims_admit(world, later, (struct wish){.entities = {"1"}, .queue = true}).verdict, VERDICT_NEW);
    assert_held_by(world, "1", NULL);
    struct operation *a = open_one(world, (struct wish){.entities = {"1"}, .queue = true});
    later->reason = REASON_AWAITING_ENTITY;
    later->wake_at_ms = world->now_ms + 1000;
    move(world, later, STATE_PLANNED);
    struct operation *b = open_one(world, (struct wish){.entities = {"1"}, .queue = true});
    move(world, later, STATE_PLANNED); /* once more: still before b */
    assert_int_equal(look(world, "1").waiting, 2);
    assert_int_equal(get(world, later->id)->wake_at_ms, later->wake_at_ms);
    move(world, a, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "1", later);
    assert_int_equal(get(world, later->id)->wake_at_ms, world->now_ms);
    /* Asking with the entity in hand is no waiting: it is due at once. */
    later->wake_at_ms = world->now_ms + 1000;
    struct ledger_request *again = make_transition(world, later, STATE_PLANNED);
    assert_int_equal(call(world, again), 0);
    assert_int_equal(get(world, later->id)->wake_at_ms, world->now_ms);
    assert_int_equal(again->transition.wake_ms, world->now_ms);
    later->reason = REASON_NONE;
    move(world, later, STATE_DISPATCHED);
    move(world, later, STATE_COMPLETED_SUCCESS);
    assert_held_by(world, "1", b);
}

static void ten_entities_in_any_order_end(void **state)
{
    struct world *world = *state;
    static const char *const ids[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    enum { OPERATIONS = 60 };
    struct operation *ops[OPERATIONS];
    unsigned left = OPERATIONS;
    for (int i = 0; i < OPERATIONS; i++) {
        struct wish wish = {.queue = true};
        unsigned a = (unsigned)i * 7 % 10, b = (a + 1 + (unsigned)i % 9) % 10; /* two of ten, given in any order */
        wish.entities[0] = ids[a < b ? a : b];
        wish.entities[1] = ids[a < b ? b : a];
        ops[i] = open_one(world, wish);
    }
    for (unsigned round = 0; left > 0 && round < OPERATIONS; round++) { /* everyone that runs ends */
        struct operation *running[OPERATIONS];
        unsigned count = 0;
        for (int i = 0; i < OPERATIONS; i++) {
            struct claims claims;
            if (!ops[i])
                continue;
            assert_int_equal(claims_read(&world->arena, ops[i]->claims, &claims, NULL), 0);
            const char *holder = look(world, claims.entities[0].id).holder;
            const char *second = look(world, claims.entities[1].id).holder;
            bool holds = text_equal(holder, ops[i]->id);
            assert_true(holds == text_equal(second, ops[i]->id)); /* all or nothing */
            if (holds)
                running[count++] = ops[i], ops[i] = NULL;
        }
        assert_true(count > 0); /* no dead lock */
        for (unsigned i = 0; i < count; i++, left--) {
            running[i]->reason = REASON_NONE;
            move(world, running[i], STATE_COMPLETED_SUCCESS);
        }
    }
    assert_int_equal(left, 0);
}

static void operators_release(void **state)
{
    struct world *world = *state;
    struct operation *a = open_one(world, (struct wish){.entities = {"1"}, .queue = true});
    move(world, a, STATE_DISPATCHED);
    move(world, a, STATE_UNKNOWN_OUTCOME);
    struct operation *b = open_one(world, (struct wish){.entities = {"1"}, .queue = true});
    struct ledger_request *request = make_request(world, LEDGER_ENTITY_RELEASE);
    request->entity_release = (struct ledger_entity_release){
        .tenant = "acme", .type = "order", .id = "1", .by = "olga", .note = "checked by hand", .now_ms = world->now_ms};
    request->entity_release.operation = b->id;
    assert_int_equal(call(world, request), ERR_STALE);
    request->entity_release.operation = NULL;
    assert_int_equal(call(world, request), 0);
    assert_string_equal(request->entity_release.operation, a->id);
    assert_int_equal(request->entity_release.wake_ms, world->now_ms);
    struct ledger_entity entity = look(world, "1");
    assert_string_equal(entity.holder, b->id);
    assert_non_null(strstr(arena_copy_str(&world->arena, entity.override), "checked by hand"));
    move(world, a, STATE_COMPLETED_SUCCESS); /* not its entity any more */
    assert_held_by(world, "1", b);
    request->entity_release.id = "7";
    request->entity_release.operation = NULL;
    assert_int_equal(call(world, request), ERR_NOT_FOUND);
}

static void attributes_come_with_success(void **state)
{
    struct world *world = *state;
    struct wish wish = {.entities = {"1"}, .sets = "{\"state\":\"refunded\",\"amount\":12.50}"};
    struct operation *a = open_one(world, wish);
    move(world, a, STATE_DISPATCHED);
    assert_int_equal(look(world, "1").rev, 0);
    move(world, a, STATE_FAILED_PERMANENT);
    assert_int_equal(look(world, "1").rev, 0); /* without effect, nothing is set */
    struct operation *b = open_one(world, wish);
    move(world, b, STATE_COMPLETED_SUCCESS);
    struct ledger_entity entity = look(world, "1");
    assert_int_equal(entity.rev, 1);
    const char *text = arena_copy_str(&world->arena, entity.attributes);
    assert_non_null(strstr(text, "\"state\":{\"value\":\"refunded\",\"by\":\""));
    assert_non_null(strstr(text, b->id));
    assert_non_null(strstr(text, "12.50"));
    move(world, a, STATE_COMPLETED_SUCCESS); /* it had happened after all (3.4) */
    assert_int_equal(look(world, "1").rev, 2);
}

static void guards_that_saw_something_else_look_again(void **state)
{
    struct world *world = *state;
    struct wish wish = {.entities = {"1"}, .sets = "{\"state\":\"refunded\"}"};
    struct operation *op = make_next(world);
    struct ledger_request *request = make_claiming(world, op, (struct wish){.entities = {"1"}});
    request->admit.admission.claims->entities[0].seen_rev = look(world, "1").rev;
    move(world, open_one(world, wish), STATE_COMPLETED_SUCCESS);
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_LOOK);
    assert_null(get(world, op->id));
    request->admit.admission.claims->entities[0].seen_rev = look(world, "1").rev;
    request->admit.admission.claims->guard = "order 1 is refunded";
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_POLICY);
    assert_int_equal(request->admit.result.refusal.verdict, CLAIMS_GUARD);
    request->admit.admission.claims->guard = NULL;
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->admit.result.verdict, VERDICT_NEW);
}

/* What guards saw goes with the first request: changed since, nothing of it happens. */
static void what_changed_since_the_guards_looked_is_not_sent(void **state)
{
    struct world *world = *state;
    struct operation *late = open_one(world, (struct wish){.entities = {"1"}, .sets = "{\"state\":\"refunded\"}"});
    move(world, late, STATE_FAILED_PERMANENT);
    struct operation *op = make_next(world);
    op->state = STATE_PENDING_DISPATCH;
    assert_int_equal(claims_admit(world, op, (struct wish){.entities = {"1", "2"}}).verdict, VERDICT_NEW);
    struct claims *seen = make_claims(world, &(struct wish){.entities = {"1", "2"}});
    for (size_t i = 0; i < seen->entity_count; i++)
        seen->entities[i].seen_rev = look(world, seen->entities[i].id).rev;
    move(world, late, STATE_COMPLETED_SUCCESS); /* it happened after all */
    struct ledger_request *first = make_transition(world, op, STATE_DISPATCHED);
    first->transition.seen = seen;
    assert_int_equal(call(world, first), ERR_STALE);
    assert_non_null(strstr(first->err.text, "order 1"));
    struct operation *row = get(world, op->id);
    assert_int_equal(row->state, STATE_PENDING_DISPATCH);
    assert_int_equal(row->rev, op->rev - 1);
    seen->entities[0].seen_rev = look(world, "1").rev; /* they have looked again */
    err_clear(&first->err);
    assert_int_equal(call(world, first), 0);
    assert_int_equal(get(world, op->id)->state, STATE_DISPATCHED);
}

static void entities_are_listed(void **state)
{
    struct world *world = *state;
    move(world, open_one(world, (struct wish){.entities = {"1"}, .sets = "{\"a\":1}"}), STATE_COMPLETED_SUCCESS);
    struct operation *b = open_one(world, (struct wish){.entities = {"2", "3"}, .queue = true});
    open_one(world, (struct wish){.entities = {"3"}, .queue = true});
    for (int all = 0; all < 2; all++) {
        struct ledger_request *request = make_request(world, LEDGER_ENTITIES);
        request->entities = (struct ledger_entities){.tenant = "acme", .all = all, .limit = 2};
        assert_int_equal(call(world, request), 0);
        assert_int_equal(request->entities.count, 2);
        assert_string_equal(request->entities.entities[0].id, all ? "1" : "2");
        assert_string_equal(request->entities.entities[1].id, all ? "2" : "3");
        assert_string_equal(request->entities.entities[1].holder, b->id);
        assert_int_equal(request->entities.entities[1].waiting, all ? 0 : 1);
        request->entities.after_type = "order";
        request->entities.after_id = "2";
        assert_int_equal(call(world, request), 0);
        assert_int_equal(request->entities.count, 1);
        assert_string_equal(request->entities.entities[0].id, "3");
        request->entities.tenant = "other";
        assert_int_equal(call(world, request), 0);
        assert_int_equal(request->entities.count, 0);
    }
}

/* ---- windows ---- */

static void windows_refuse_a_second_time(void **state)
{
    struct world *world = *state;
    struct operation *first = open_one(world, (struct wish){.window = "followup:7"});
    int64_t at_ms = first->created_ms;
    struct operation *other = make_next(world);
    other->tool = "mail"; /* another tool, the same window */
    set_key(other);
    struct admission_result result = claims_admit(world, other, (struct wish){.window = "followup:7"});
    assert_int_equal(result.refusal.verdict, CLAIMS_WINDOW);
    assert_string_equal(result.refusal.operation, first->id);
    assert_int_equal(result.refusal.at_ms, at_ms);
    assert_int_equal(result.refusal.until_ms, at_ms + DAY_MS);
    open_one(world, (struct wish){.window = "followup:8"});
    world->now_ms = at_ms + DAY_MS - 1; /* both sides of the end, by one unit */
    assert_int_equal(refused(world, (struct wish){.window = "followup:7"}), CLAIMS_WINDOW);
    world->now_ms = at_ms + DAY_MS;
    open_one(world, (struct wish){.window = "followup:7"});
}

static void windows_count_what_may_have_happened(void **state)
{
    struct world *world = *state;
    struct wish wish = {.window = "w"};
    struct operation *a = open_one(world, wish);
    move(world, a, STATE_DISPATCHED);
    move(world, a, STATE_UNKNOWN_OUTCOME);
    assert_int_equal(refused(world, wish), CLAIMS_WINDOW);
    move(world, a, STATE_FAILED_PERMANENT);
    struct operation *b = open_one(world, wish);
    move(world, b, STATE_FAILED_PERMANENT);
    move(world, a, STATE_COMPLETED_SUCCESS); /* late evidence: it counts again, from when it was called */
    assert_int_equal(refused(world, wish), CLAIMS_WINDOW);
    world->now_ms = a->created_ms + DAY_MS;
    open_one(world, wish);
}

static void windows_are_overridden_with_a_reason(void **state)
{
    struct world *world = *state;
    open_one(world, (struct wish){.window = "w"});
    assert_int_equal(refused(world, (struct wish){.window = "w", .override = "again"}), CLAIMS_WINDOW);
    assert_int_equal(refused(world, (struct wish){.window = "w", .overridable = true}), CLAIMS_WINDOW);
    struct operation *b = open_one(world, (struct wish){.window = "w", .overridable = true, .override = "again"});
    move(world, b, STATE_FAILED_PERMANENT); /* without effect: the first one counts all the same */
    assert_int_equal(refused(world, (struct wish){.window = "w"}), CLAIMS_WINDOW);
}

/* ---- budgets ---- */

static struct decimal budget_total(struct world *world)
{
    struct ledger_request *request = make_request(world, LEDGER_BUDGETS);
    request->budgets.tenant = "acme";
    assert_int_equal(call(world, request), 0);
    struct decimal total = decimal_of(0);
    for (size_t i = 0; i < request->budgets.count; i++)
        total = decimal_add(total, request->budgets.slices[i].amount);
    return total;
}

static void budgets_are_exact(void **state)
{
    struct world *world = *state;
    struct wish wish = {.amount = "10.00", .limit = "500.00"};
    struct operation *ops[50];
    int passed = 0;
    for (int i = 0; i < 100; i++) {
        struct operation *op = make_next(world);
        struct admission_result result = claims_admit(world, op, wish);
        if (result.verdict == VERDICT_NEW)
            ops[passed++ % 50] = op;
        else
            assert_int_equal(result.refusal.verdict, CLAIMS_BUDGET);
    }
    assert_int_equal(passed, 50);
    assert_int_equal(decimal_compare(budget_total(world), decimal_of(500)), 0);
    move(world, ops[0], STATE_DISPATCHED);
    move(world, ops[0], STATE_UNKNOWN_OUTCOME);
    assert_int_equal(refused(world, wish), CLAIMS_BUDGET); /* unknown keeps it */
    for (int i = 0; i < 3; i++)
        move(world, ops[i], STATE_FAILED_PERMANENT);
    assert_int_equal(decimal_compare(budget_total(world), decimal_of(470)), 0);
    for (int i = 0; i < 3; i++)
        open_one(world, wish);
    assert_int_equal(refused(world, wish), CLAIMS_BUDGET);
    move(world, ops[0], STATE_COMPLETED_SUCCESS); /* late evidence counts, over the limit if need be */
    assert_int_equal(decimal_compare(budget_total(world), decimal_of(510)), 0);
}

static void budgets_have_room_again(void **state)
{
    struct world *world = *state;
    struct wish wish = {.amount = "0.1", .limit = "0.3"};
    int64_t start_ms = world->now_ms;
    for (int i = 0; i < 3; i++)
        open_one(world, wish);
    struct operation *op = make_next(world);
    struct admission_result result = claims_admit(world, op, wish);
    assert_int_equal(result.refusal.verdict, CLAIMS_BUDGET);
    assert_string_equal(result.refusal.budget, "refunds");
    int64_t room_ms = result.refusal.until_ms;
    assert_true(room_ms >= start_ms + DAY_MS && room_ms <= start_ms + DAY_MS + DAY_MS / CLAIMS_SLICES);
    world->now_ms = room_ms - 1;
    assert_int_equal(refused(world, wish), CLAIMS_BUDGET);
    world->now_ms = room_ms;
    open_one(world, wish);
    struct operation *large = make_next(world); /* never */
    result = claims_admit(world, large, (struct wish){.amount = "0.31", .limit = "0.3"});
    assert_int_equal(result.refusal.verdict, CLAIMS_BUDGET);
    assert_int_equal(result.refusal.until_ms, 0);
}

/* ---- all of it ---- */

static void all_or_nothing(void **state)
{
    struct world *world = *state;
    struct operation *holder = open_one(world, (struct wish){.entities = {"1"}});
    struct wish wish = {.entities = {"1"}, .window = "w", .amount = "10", .limit = "10"};
    assert_int_equal(refused(world, wish), CLAIMS_ENTITY);
    move(world, holder, STATE_COMPLETED_SUCCESS);
    open_one(world, wish); /* neither window nor budget had been taken */
    struct ledger_request *dry = make_claiming(world, make_next(world), wish);
    dry->admit.dry_run = true;
    assert_int_equal(call(world, dry), 0);
    assert_int_equal(dry->admit.result.verdict, VERDICT_POLICY);
    dry = make_claiming(world, make_next(world),
                        (struct wish){.entities = {"2"}, .window = "v", .amount = "1", .limit = "90"});
    dry->admit.dry_run = true;
    assert_int_equal(call(world, dry), 0);
    assert_int_equal(dry->admit.result.verdict, VERDICT_NEW);
    assert_held_by(world, "2", NULL);
    assert_int_equal(decimal_compare(budget_total(world), decimal_of(10)), 0);
}

static void claims_are_kept(void **state)
{
    struct world *world = *state;
    struct operation *op = open_one(world, (struct wish){.entities = {"1", "2"},
                                                         .queue = true,
                                                         .sets = "{\"state\":\"paid\"}",
                                                         .window = "w",
                                                         .amount = "3.5",
                                                         .limit = "10"});
    struct claims claims;
    struct operation *stored = get(world, op->id);
    assert_true(str_equal(stored->claims, op->claims));
    assert_int_equal(claims_read(&world->arena, stored->claims, &claims, NULL), 0);
    assert_int_equal(claims.entity_count, 2);
    assert_true(claims.entities[1].queue && claims.entities[1].sets);
    assert_string_equal(claims.window, "w");
    assert_int_equal(claims.debit_count, 1);
    op->claims = STR_NONE; /* a transition does not change what was claimed */
    world->now_ms++;
    struct ledger_claim *due = claim(world, OWNER, 1000, 10);
    assert_int_equal(due->count, 0);
}

static void a_rejection_that_may_pass_opens_the_next_version(void **state)
{
    struct world *world = *state;
    static const struct {
        enum reason reason;
        enum verdict again;
    } cases[] = {
        {REASON_POLICY, VERDICT_NEW},
        {REASON_EXPIRED, VERDICT_NEW},
        {REASON_DENIED, VERDICT_REPLAY},
        {REASON_CANCELLED, VERDICT_REPLAY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct operation *op = make_next(world);
        assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
        op->reason = cases[i].reason;
        move(world, op, STATE_REJECTED);
        struct operation *again = make_operation(world, "refund", op->key, 1);
        assert_int_equal(admit(world, again).verdict, cases[i].again);
        assert_int_equal(again->key_version, cases[i].again == VERDICT_NEW ? 2 : 1);
    }
}

/* The history of an entity: what else claims it, whatever else it claims, in its tenant, newest first. */
static void operations_are_found_by_what_they_share(void **state)
{
    struct world *world = *state;
    struct operation *one = open_one(world, (struct wish){.entities = {"o1"}});
    move(world, one, STATE_COMPLETED_SUCCESS);
    struct operation *both = open_one(world, (struct wish){.entities = {"o1", "o\"2"}});
    struct operation *other = open_one(world, (struct wish){.entities = {"o10"}});
    open_one(world, (struct wish){.window = "o1"}); /* names it, but as no entity */
    open_one(world, (struct wish){0});
    struct ledger_request *stats = make_request(world, LEDGER_STATS);
    assert_int_equal(call(world, stats), 0);
    assert_int_equal(stats->stats.entities_held, 3);
    assert_int_equal(stats->stats.entities_waiting, 0);
    const struct claims *first = make_claims(world, &(struct wish){.entities = {"o1"}});
    struct ledger_list *found = list(world, (struct ledger_list){.sharing = first, .limit = 9});
    assert_int_equal(found->count, 2);
    assert_string_equal(found->ops[0]->id, both->id);
    assert_string_equal(found->ops[1]->id, one->id);
    found = list(world, (struct ledger_list){.sharing = first, .limit = 1});
    assert_int_equal(found->count, 1);
    assert_non_null(found->next);
    const struct claims *second = make_claims(world, &(struct wish){.entities = {"o\"2", "o10"}});
    found = list(world, (struct ledger_list){.sharing = second, .limit = 9});
    assert_int_equal(found->count, 2);
    assert_string_equal(found->ops[0]->id, other->id);
    assert_int_equal(list(world, (struct ledger_list){.sharing = second, .tenant = "other", .limit = 9})->count, 0);
    struct claims type = *first;
    type.entities[0].type = "customer";
    assert_int_equal(list(world, (struct ledger_list){.sharing = &type, .limit = 9})->count, 0);
}

const struct CMUnitTest contract_claims[] = {
    CONTRACT_TEST(an_entity_is_held_until_the_end),
    CONTRACT_TEST(tenants_have_entities_of_their_own),
    CONTRACT_TEST(a_known_key_is_answered_before_policy),
    CONTRACT_TEST(queues_are_fair),
    CONTRACT_TEST(nobody_is_overtaken),
    CONTRACT_TEST(who_leaves_a_queue_lets_others_in),
    CONTRACT_TEST(first_in_every_queue),
    CONTRACT_TEST(planned_operations_ask_when_their_turn_has_come),
    CONTRACT_TEST(ten_entities_in_any_order_end),
    CONTRACT_TEST(operators_release),
    CONTRACT_TEST(attributes_come_with_success),
    CONTRACT_TEST(guards_that_saw_something_else_look_again),
    CONTRACT_TEST(what_changed_since_the_guards_looked_is_not_sent),
    CONTRACT_TEST(entities_are_listed),
    CONTRACT_TEST(windows_refuse_a_second_time),
    CONTRACT_TEST(windows_count_what_may_have_happened),
    CONTRACT_TEST(windows_are_overridden_with_a_reason),
    CONTRACT_TEST(budgets_are_exact),
    CONTRACT_TEST(budgets_have_room_again),
    CONTRACT_TEST(all_or_nothing),
    CONTRACT_TEST(claims_are_kept),
    CONTRACT_TEST(operations_are_found_by_what_they_share),
    CONTRACT_TEST(a_rejection_that_may_pass_opens_the_next_version),
};
const size_t contract_claim_count = sizeof contract_claims / sizeof *contract_claims;
