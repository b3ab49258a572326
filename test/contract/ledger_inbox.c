/* What every ledger must do with inbound events (design 11.1). Run by ledger_contract.c. */
#include "contract/world.h"

static struct inbound *make_event(struct world *world, const char *event, enum inbound_match match, const char *value)
{
    struct inbound *made = arena_zero(&world->arena, sizeof *made);
    char ulid[ULID_CHARS + 1];
    ulid_next(&world->ids, ulid);
    memcpy(made->id, "ev_", 3);
    memcpy(made->id + 3, ulid, sizeof ulid);
    made->source = "stripe";
    made->event = event;
    made->type = "charge.succeeded";
    made->created_ms = world->now_ms - 500;
    made->received_ms = world->now_ms;
    made->outcome = INBOUND_SUCCESS;
    made->match = match;
    made->value = value;
    made->external_id = "ch_1";
    made->result = STR("{\"amount\":49}");
    made->body = STR("{\"id\": \"evt\"}\n");
    made->retain_until_ms = world->now_ms + 1000;
    return made;
}

static struct ledger_record_inbound *record(struct world *world, struct inbound *event)
{
    struct ledger_request *request = make_request(world, LEDGER_RECORD_INBOUND);
    request->record_inbound = (struct ledger_record_inbound){.event = event, .now_ms = world->now_ms};
    assert_int_equal(call(world, request), 0);
    return &request->record_inbound;
}

static struct ledger_inbox_of *events_of(struct world *world, const char *operation)
{
    struct ledger_request *request = make_request(world, LEDGER_INBOX_OF);
    request->inbox_of.operation = operation;
    assert_int_equal(call(world, request), 0);
    return &request->inbox_of;
}

static struct ledger_inbox_list *list_events(struct world *world, struct ledger_inbox_list wanted)
{
    struct ledger_request *request = make_request(world, LEDGER_INBOX_LIST);
    request->inbox_list = wanted;
    assert_int_equal(call(world, request), 0);
    return &request->inbox_list;
}

static struct ledger_inbox_due *due(struct world *world, const char *after)
{
    struct ledger_request *request = make_request(world, LEDGER_INBOX_DUE);
    request->inbox_due.after = after;
    assert_int_equal(call(world, request), 0);
    return &request->inbox_due;
}

static struct inbox_counts counts(struct world *world)
{
    struct ledger_request *request = make_request(world, LEDGER_INBOX_COUNTS);
    assert_int_equal(call(world, request), 0);
    assert_int_equal(request->inbox_counts.count, 1);
    assert_string_equal(request->inbox_counts.sources[0].source, "stripe");
    return request->inbox_counts.sources[0];
}

static struct operation *admitted(struct world *world, const char *key, const char *provider_key)
{
    struct operation *op = make_operation(world, "refund", key, 1);
    op->provider_key = provider_key ? provider_key : op->id;
    admit(world, op);
    return op;
}

static void assert_same_event(const struct inbound *a, const struct inbound *b, bool body)
{
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->source, b->source);
    assert_string_equal(a->event, b->event);
    assert_true(text_equal(a->type, b->type));
    assert_int_equal(a->created_ms, b->created_ms);
    assert_int_equal(a->received_ms, b->received_ms);
    assert_int_equal(a->outcome, b->outcome);
    assert_int_equal(a->match, b->match);
    assert_true(text_equal(a->value, b->value));
    assert_true(text_equal(a->external_id, b->external_id));
    assert_true(str_equal(a->result, b->result));
    assert_int_equal(a->retain_until_ms, b->retain_until_ms);
    assert_int_equal(a->status, b->status);
    if (body)
        assert_true(str_equal(a->body, b->body));
    else
        assert_null(a->body.p);
}

static void events_are_recorded_once(void **state)
{
    struct world *world = *state;
    struct inbound *first = make_event(world, "evt_1", INBOUND_BY_EXTERNAL_ID, "ch_1");
    struct ledger_record_inbound *out = record(world, first);
    assert_false(out->duplicate);
    assert_int_equal(out->named_count, 0);
    assert_same_event(out->event, first, true);
    world->now_ms += 10;
    struct inbound *again = make_event(world, "evt_1", INBOUND_BY_NOTHING, NULL);
    again->outcome = INBOUND_PENDING;
    out = record(world, again);
    assert_true(out->duplicate);
    assert_same_event(out->event, first, true); /* what came first stands */
    assert_int_equal(out->event->duplicates, 1);
    assert_int_equal(out->event->duplicate_ms, world->now_ms);
    struct inbound *other = make_event(world, "evt_1", INBOUND_BY_NOTHING, NULL);
    other->source = "github"; /* ids are the source's own */
    assert_false(record(world, other)->duplicate);
    struct ledger_inbox_list *all = list_events(world, (struct ledger_inbox_list){.limit = 10});
    assert_int_equal(all->count, 2);
    assert_string_equal(all->events[0].source, "github");
    assert_same_event(&all->events[1], first, false);
    struct ledger_inbox_list *one = list_events(world, (struct ledger_inbox_list){.id = first->id, .limit = 1});
    assert_same_event(&one->events[0], first, true);
    struct ledger_request *none = make_request(world, LEDGER_INBOX_LIST);
    none->inbox_list = (struct ledger_inbox_list){.id = "ev_none", .limit = 1};
    assert_int_equal(call(world, none), ERR_NOT_FOUND);
}

static void events_name_operations(void **state)
{
    struct world *world = *state;
    struct operation *by_id = admitted(world, "a", NULL), *by_key = admitted(world, "b", "key-of-b");
    struct operation *by_external = admitted(world, "c", "key-of-c");
    by_external->external_id = "ch_c";
    move(world, by_external, STATE_DISPATCHED);
    const struct {
        enum inbound_match match;
        const char *value;
        const struct operation *op;
    } cases[] = {
        {INBOUND_BY_REFERENCE, by_key->id, by_key},
        {INBOUND_BY_PROVIDER_KEY, by_id->id, by_id},
        {INBOUND_BY_PROVIDER_KEY, "key-of-b", by_key},
        {INBOUND_BY_EXTERNAL_ID, "ch_c", by_external},
        {INBOUND_BY_PROVIDER_KEY, by_key->id, NULL},
        {INBOUND_BY_EXTERNAL_ID, "key-of-b", NULL},
        {INBOUND_BY_REFERENCE, "key-of-b", NULL},
        {INBOUND_BY_REFERENCE, "op_none", NULL},
        {INBOUND_BY_NOTHING, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ledger_record_inbound *out =
            record(world, make_event(world, arena_printf(&world->arena, "evt_%zu", i), cases[i].match, cases[i].value));
        assert_int_equal(out->named_count, cases[i].op != NULL);
        if (cases[i].op)
            assert_string_equal(out->named[0].operation, cases[i].op->id);
    }
    assert_int_equal(due(world, NULL)->count, 4);
    assert_true(due(world, NULL)->any_waiting);
    assert_int_equal(events_of(world, by_key->id)->count, 2);
    assert_string_equal(events_of(world, by_key->id)->events[0].event, "evt_0"); /* in order of arrival */
    assert_string_equal(events_of(world, by_key->id)->events[1].event, "evt_2");
    struct ledger_inbox_of *of_id = events_of(world, by_id->id);
    assert_same_operation(of_id->op, by_id);
    assert_int_equal(of_id->named_count[0], 1);
    assert_string_equal(of_id->named[0][0].operation, by_id->id);
    assert_string_equal(of_id->named[0][0].tenant, "acme");
    assert_string_equal(of_id->named[0][0].tool, "refund");
    struct ledger_request *none = make_request(world, LEDGER_INBOX_OF);
    none->inbox_of.operation = "op_none";
    assert_int_equal(call(world, none), ERR_NOT_FOUND);
}

/* The event comes before the operation knows the id that it is named by. */
static void waiting_events_are_found_later(void **state)
{
    struct world *world = *state;
    struct operation *op = admitted(world, "a", NULL);
    record(world, make_event(world, "evt_1", INBOUND_BY_EXTERNAL_ID, "ch_9"));
    assert_int_equal(events_of(world, op->id)->count, 0);
    assert_int_equal(due(world, NULL)->count, 0);
    assert_true(due(world, NULL)->any_waiting);
    op->external_id = "ch_9";
    move(world, op, STATE_DISPATCHED);
    assert_int_equal(events_of(world, op->id)->count, 1);
    assert_int_equal(due(world, NULL)->count, 1);
    assert_string_equal(due(world, NULL)->operations[0], op->id);
}

static void ambiguous_events_name_several(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < LEDGER_INBOX_OPS_MAX + 2; i++) {
        struct operation *op = admitted(world, arena_printf(&world->arena, "k%d", i), NULL);
        op->external_id = "same";
        move(world, op, STATE_DISPATCHED);
    }
    struct ledger_record_inbound *out = record(world, make_event(world, "evt_1", INBOUND_BY_EXTERNAL_ID, "same"));
    assert_int_equal(out->named_count, LEDGER_INBOX_OPS_MAX);
}

static void a_transition_applies_an_event_once(void **state)
{
    struct world *world = *state;
    struct operation *op = admitted(world, "a", NULL);
    struct inbound *event = make_event(world, "evt_1", INBOUND_BY_REFERENCE, op->id);
    struct inbound *second = make_event(world, "evt_2", INBOUND_BY_REFERENCE, op->id);
    second->created_ms += 7;
    second->outcome = INBOUND_PENDING;
    record(world, event);
    record(world, second);
    move(world, op, STATE_DISPATCHED);
    struct ledger_request *apply = make_transition(world, op, STATE_COMPLETED_SUCCESS);
    apply->transition.inbound = event->id;
    assert_int_equal(call(world, apply), 0);
    struct inbound stored = list_events(world, (struct ledger_inbox_list){.id = event->id, .limit = 1})->events[0];
    assert_int_equal(stored.status, INBOUND_APPLIED);
    assert_string_equal(stored.operation, op->id);
    assert_int_equal(stored.settled_ms, op->updated_ms);
    struct ledger_inbox_of *left = events_of(world, op->id);
    assert_int_equal(left->count, 1);
    assert_string_equal(left->events[0].event, "evt_2");
    assert_true(left->standing[0].any);
    assert_int_equal(left->standing[0].created_ms, event->created_ms);
    assert_int_equal(left->standing[0].outcome, INBOUND_SUCCESS);
    /* Not a second time, and nothing of such a change happens. */
    struct operation before = *get(world, op->id);
    struct ledger_request *again = make_transition(world, op, STATE_COMPLETED_SUCCESS);
    again->transition.inbound = event->id;
    assert_int_equal(call(world, again), ERR_STALE);
    assert_int_equal(get(world, op->id)->rev, before.rev);
    op->rev = before.rev;
    /* A stale change leaves the event waiting. */
    struct ledger_request *stale = make_transition(world, op, STATE_COMPLETED_SUCCESS);
    op->rev += 5;
    stale->transition.inbound = second->id;
    assert_int_equal(call(world, stale), ERR_STALE);
    assert_int_equal(events_of(world, op->id)->count, 1);
    struct ledger_inbox_list *of_op = list_events(world, (struct ledger_inbox_list){.operation = op->id, .limit = 5});
    assert_int_equal(of_op->count, 1);
    assert_string_equal(of_op->events[0].id, event->id);
}

static void lists_filter_and_page(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 9; i++) {
        world->now_ms++;
        struct inbound *event =
            make_event(world, arena_printf(&world->arena, "evt_%d", i), INBOUND_BY_EXTERNAL_ID, "nobody");
        event->source = i % 3 == 0 ? "github" : "stripe";
        if (i % 2) {
            event->status = INBOUND_IGNORED;
            event->settled_ms = world->now_ms;
        }
        record(world, event);
    }
    struct ledger_inbox_list wanted = {.limit = 2, .statuses = 1u << INBOUND_WAITING};
    size_t seen = 0;
    do {
        struct ledger_inbox_list *page = list_events(world, wanted);
        for (size_t i = 0; i < page->count; i++, seen++)
            assert_string_equal(page->events[i].event, arena_printf(&world->arena, "evt_%zu", 8 - 2 * seen));
        wanted.before = page->next;
    } while (wanted.before);
    assert_int_equal(seen, 5);
    wanted = (struct ledger_inbox_list){.limit = 10, .source = "github"};
    assert_int_equal(list_events(world, wanted)->count, 3);
    wanted.statuses = 1u << INBOUND_IGNORED;
    assert_int_equal(list_events(world, wanted)->count, 1);
}

static void many_waiting_events_come_in_pages(void **state)
{
    struct world *world = *state;
    struct operation *op = admitted(world, "a", NULL);
    for (int i = 0; i < LEDGER_INBOX_PAGE_MAX + 3; i++)
        record(world, make_event(world, arena_printf(&world->arena, "evt_%d", i), INBOUND_BY_REFERENCE, op->id));
    struct ledger_inbox_of *some = events_of(world, op->id);
    assert_int_equal(some->count, LEDGER_INBOX_EVENTS_MAX);
    assert_true(some->more);
    struct ledger_inbox_due *page = due(world, NULL);
    assert_int_equal(page->count, LEDGER_INBOX_PAGE_MAX);
    assert_non_null(page->next);
    page = due(world, page->next);
    assert_int_equal(page->count, 3);
    assert_null(page->next);
}

static void events_are_counted_and_pruned(void **state)
{
    struct world *world = *state;
    struct operation *op = admitted(world, "a", NULL);
    struct inbound *applied = make_event(world, "evt_1", INBOUND_BY_REFERENCE, op->id);
    record(world, applied);
    record(world, make_event(world, "evt_1", INBOUND_BY_REFERENCE, op->id));
    struct inbound *ignored = make_event(world, "evt_2", INBOUND_BY_NOTHING, NULL);
    ignored->status = INBOUND_IGNORED;
    record(world, ignored);
    struct inbound *waiting = make_event(world, "evt_3", INBOUND_BY_EXTERNAL_ID, "x");
    record(world, waiting);
    struct inbound *later = make_event(world, "evt_4", INBOUND_BY_EXTERNAL_ID, "x");
    later->retain_until_ms += 50;
    record(world, later);
    struct ledger_request *apply = make_transition(world, op, STATE_DISPATCHED);
    apply->transition.inbound = applied->id;
    assert_int_equal(call(world, apply), 0);
    struct inbox_counts told = counts(world);
    assert_int_equal(told.events, 4);
    assert_int_equal(told.duplicates, 1);
    assert_int_equal(told.applied, 1);
    assert_int_equal(told.ignored, 1);
    assert_int_equal(told.dropped, 0);
    struct ledger_request *prune = make_request(world, LEDGER_INBOX_PRUNE);
    prune->inbox_prune = (struct ledger_inbox_prune){.now_ms = waiting->retain_until_ms - 1, .limit = 10};
    assert_int_equal(call(world, prune), 0);
    assert_int_equal(prune->inbox_prune.count, 0);
    assert_int_equal(prune->inbox_prune.next_ms, waiting->retain_until_ms);
    prune->inbox_prune = (struct ledger_inbox_prune){.now_ms = waiting->retain_until_ms, .limit = 2};
    assert_int_equal(call(world, prune), 0);
    assert_int_equal(prune->inbox_prune.count, 2);
    assert_int_equal(prune->inbox_prune.next_ms, waiting->retain_until_ms);
    assert_int_equal(call(world, prune), 0);
    assert_int_equal(prune->inbox_prune.count, 1);
    assert_int_equal(prune->inbox_prune.next_ms, later->retain_until_ms);
    assert_int_equal(list_events(world, (struct ledger_inbox_list){.limit = 10})->count, 1);
    told = counts(world);
    assert_int_equal(told.events, 4);
    assert_int_equal(told.dropped, 1);
}

static struct inbound *forwarded(struct world *world, const char *event, int64_t at_ms)
{
    struct inbound *made = make_event(world, event, INBOUND_BY_NOTHING, NULL);
    made->forward = (struct forward){.status = FORWARD_DUE, .at_ms = at_ms, .until_ms = at_ms + 1000};
    record(world, made);
    return made;
}

static struct ledger_forward_due *forwards(struct world *world, int64_t now_ms, size_t limit)
{
    struct ledger_request *request = make_request(world, LEDGER_FORWARD_DUE);
    request->forward_due = (struct ledger_forward_due){.now_ms = now_ms, .limit = limit};
    assert_int_equal(call(world, request), 0);
    return &request->forward_due;
}

static enum err_code forward_move(struct world *world, const char *id, struct forward was, struct forward to)
{
    struct ledger_request *request = make_request(world, LEDGER_FORWARD_MOVE);
    request->forward_move = (struct ledger_forward_move){.id = id, .was = was, .to = to};
    return call(world, request);
}

static void events_to_forward_come_by_time(void **state)
{
    struct world *world = *state;
    const int64_t now_ms = world->now_ms;
    record(world, make_event(world, "evt_0", INBOUND_BY_NOTHING, NULL)); /* of a source that forwards nothing */
    struct inbound *third = forwarded(world, "evt_3", now_ms + 30), *first = forwarded(world, "evt_1", now_ms + 10);
    struct inbound *second = forwarded(world, "evt_2", now_ms + 20);
    struct ledger_forward_due *due = forwards(world, now_ms + 9, 10);
    assert_int_equal(due->count, 0);
    assert_int_equal(due->next_ms, first->forward.at_ms);
    due = forwards(world, now_ms + 20, 10);
    assert_int_equal(due->count, 2);
    assert_string_equal(due->events[0].event, "evt_1");
    assert_true(str_equal(due->events[0].body, first->body));
    assert_string_equal(due->events[1].event, "evt_2");
    assert_int_equal(due->events[1].forward.until_ms, second->forward.until_ms);
    assert_int_equal(due->next_ms, third->forward.at_ms);
    due = forwards(world, now_ms + 99, 2);
    assert_int_equal(due->count, 2);
    assert_int_equal(due->next_ms, third->forward.at_ms);
    due = forwards(world, now_ms + 99, 10);
    assert_int_equal(due->count, 3);
    assert_int_equal(due->next_ms, 0);
}

static void forwarding_moves_once(void **state)
{
    struct world *world = *state;
    struct inbound *event = forwarded(world, "evt_1", world->now_ms);
    struct forward was = event->forward, begun = was, told, none = {0};
    begun.tries = 1;
    begun.at_ms += 500;
    assert_int_equal(forward_move(world, event->id, was, begun), 0);
    assert_int_equal(forward_move(world, event->id, was, begun), ERR_STALE); /* two gateways: one of them sends */
    assert_int_equal(forward_move(world, "ev_none", was, begun), ERR_NOT_FOUND);
    assert_int_equal(forwards(world, world->now_ms, 10)->next_ms, begun.at_ms);
    told = begun;
    told.status = FORWARD_UNDELIVERED;
    told.detail = "the endpoint answered 500";
    assert_int_equal(forward_move(world, event->id, begun, told), 0);
    assert_int_equal(forwards(world, begun.at_ms, 10)->count, 0);
    struct ledger_inbox_list wanted = {.limit = 10, .forwards = 1u << FORWARD_UNDELIVERED};
    record(world, make_event(world, "evt_2", INBOUND_BY_NOTHING, NULL));
    struct ledger_inbox_list *page = list_events(world, wanted);
    assert_int_equal(page->count, 1);
    assert_int_equal(page->events[0].forward.tries, 1);
    assert_string_equal(page->events[0].forward.detail, told.detail);
    told.status = FORWARD_DELIVERED;
    assert_int_equal(forward_move(world, event->id, begun, told), ERR_STALE);
    begun.status = FORWARD_UNDELIVERED;
    assert_int_equal(forward_move(world, event->id, begun, told), 0);
    wanted.forwards = 1u << FORWARD_DELIVERED;
    assert_int_equal(list_events(world, wanted)->count, 1);
    assert_int_equal(forward_move(world, event->id, none, begun), ERR_STALE);
}

const struct CMUnitTest contract_inbox[] = {
    CONTRACT_TEST(events_are_recorded_once),           CONTRACT_TEST(events_name_operations),
    CONTRACT_TEST(waiting_events_are_found_later),     CONTRACT_TEST(ambiguous_events_name_several),
    CONTRACT_TEST(a_transition_applies_an_event_once), CONTRACT_TEST(lists_filter_and_page),
    CONTRACT_TEST(many_waiting_events_come_in_pages),  CONTRACT_TEST(events_are_counted_and_pruned),
    CONTRACT_TEST(events_to_forward_come_by_time),     CONTRACT_TEST(forwarding_moves_once),
};
const size_t contract_inbox_count = sizeof contract_inbox / sizeof *contract_inbox;
