/* What every ledger must do: lists, history, incidents, tokens, numbers. Run by ledger_contract.c. */
#include "contract/world.h"

#include <stdio.h>

/* ---- lists ---- */

static void lists_page_and_filter(void **state)
{
    struct world *world = *state;
    struct operation *ops[20];
    for (int i = 0; i < 20; i++) {
        world->now_ms += i % 3;
        ops[i] = make_operation(world, i % 2 ? "mail" : "refund", arena_printf(&world->arena, "k%d", i), i);
        ops[i]->run = i % 4 == 0 ? "run-1" : NULL;
        ops[i]->principal = i % 5 == 0 ? "bob" : "agent";
        admit(world, ops[i]);
    }
    move(world, ops[3], STATE_DISPATCHED);
    move(world, ops[3], STATE_UNKNOWN_OUTCOME);
    move(world, ops[7], STATE_REJECTED);
    struct ledger_list wanted = {.limit = 7};
    int at = 19;
    do {
        struct ledger_list *page = list(world, wanted);
        for (size_t i = 0; i < page->count; i++)
            assert_string_equal(page->ops[i]->id, ops[at--]->id);
        wanted.before = page->next;
    } while (wanted.before);
    assert_int_equal(at, -1);
    struct ledger_list *run = list(world, (struct ledger_list){.run = "run-1", .oldest_first = true, .limit = 3});
    assert_int_equal(run->count, 3);
    assert_string_equal(run->ops[0]->id, ops[0]->id);
    assert_string_equal(run->ops[2]->id, ops[8]->id);
    run = list(world, (struct ledger_list){.run = "run-1", .oldest_first = true, .limit = 3, .before = run->next});
    assert_int_equal(run->count, 2);
    assert_string_equal(run->ops[1]->id, ops[16]->id);
    assert_null(run->next);
    run = list(world, (struct ledger_list){.run = "run-1", .limit = 10});
    assert_int_equal(run->count, 5);
    assert_string_equal(run->ops[0]->id, ops[16]->id);
    struct ledger_list *some = list(world, (struct ledger_list){.tool = "mail", .principal = "bob", .limit = 10});
    assert_int_equal(some->count, 2);
    assert_string_equal(some->ops[0]->id, ops[15]->id);
    some = list(world, (struct ledger_list){.states = 1u << STATE_UNKNOWN_OUTCOME, .limit = 10});
    assert_int_equal(some->count, 1);
    assert_string_equal(some->ops[0]->id, ops[3]->id);
    some = list(world, (struct ledger_list){.states = 1u << STATE_UNKNOWN_OUTCOME | 1u << STATE_REJECTED,
                                            .oldest_first = true,
                                            .limit = 10});
    assert_int_equal(some->count, 2);
    assert_string_equal(some->ops[1]->id, ops[7]->id);
    assert_int_equal(list(world, (struct ledger_list){.tenant = "other", .limit = 10})->count, 0);
    assert_int_equal(list(world, (struct ledger_list){.run = "run-2", .limit = 10})->count, 0);
}

/* What waits for people is found among any number of others, in both directions and by pages. */
static void lists_what_waits_for_approval(void **state)
{
    struct world *world = *state;
    struct operation *ops[12];
    for (int i = 0; i < 12; i++) {
        world->now_ms++;
        ops[i] = make_operation(world, i % 2 ? "mail" : "refund", arena_printf(&world->arena, "k%d", i), i);
        if (i % 3 == 0) {
            ops[i]->state = STATE_PLANNED, ops[i]->reason = REASON_AWAITING_APPROVAL;
            ops[i]->approval = STR("{\"needed\":1}"), ops[i]->wake_at_ms = world->now_ms + 1000;
        }
        admit(world, ops[i]);
    }
    struct ledger_list wanted = {.reason = REASON_AWAITING_APPROVAL, .limit = 3};
    struct ledger_list *page = list(world, wanted);
    assert_int_equal(page->count, 3);
    assert_string_equal(page->ops[0]->id, ops[9]->id);
    assert_string_equal(page->ops[0]->approval.p, "{\"needed\":1}");
    wanted.before = page->next;
    page = list(world, wanted);
    assert_int_equal(page->count, 1);
    assert_string_equal(page->ops[0]->id, ops[0]->id);
    page = list(world, (struct ledger_list){.reason = REASON_AWAITING_APPROVAL, .oldest_first = true, .limit = 9});
    assert_int_equal(page->count, 4);
    assert_string_equal(page->ops[3]->id, ops[9]->id);
    page = list(world, (struct ledger_list){.reason = REASON_AWAITING_APPROVAL, .tool = "mail", .limit = 9});
    assert_int_equal(page->count, 2);
    struct ledger_request *stats = make_request(world, LEDGER_STATS);
    assert_int_equal(call(world, stats), 0);
    assert_int_equal(stats->stats.approvals_waiting, 4);
    assert_int_equal(stats->stats.oldest_approval_ms, ops[0]->created_ms);
    ops[9]->reason = REASON_DENIED;
    move(world, ops[9], STATE_REJECTED);
    page = list(world, (struct ledger_list){.reason = REASON_AWAITING_APPROVAL, .limit = 9});
    assert_int_equal(page->count, 3);
    assert_int_equal(call(world, stats), 0);
    assert_int_equal(stats->stats.approvals_waiting, 3);
}

static void lists_carry_payload_on_request(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    assert_null(list(world, (struct ledger_list){.limit = 1})->ops[0]->arguments.p);
    struct ledger_list *with = list(world, (struct ledger_list){.limit = 1, .with_payload = true});
    assert_same_operation(with->ops[0], op);
    /* A cursor keeps its place when its operation is dropped. */
    struct operation *second = make_operation(world, "refund", "k2", 1);
    admit(world, second);
    move(world, second, STATE_REJECTED);
    assert_int_equal(expire(world, second->id, second->rev), 0);
    assert_int_equal(list(world, (struct ledger_list){.limit = 9, .before = second->id})->count, 1);
}

/* ---- history ---- */

static void events_come_in_order(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    struct ledger_request *first = make_admit(world, op);
    first->admit.event.note = "first";
    assert_int_equal(call(world, first), 0);
    struct ledger_request *request = make_transition(world, op, STATE_DISPATCHED);
    request->transition.events[1] = (struct event){.at_ms = 5,
                                                   .cause = CAUSE_HELD,
                                                   .from = STATE_DISPATCHED,
                                                   .to = STATE_DISPATCHED,
                                                   .reason = REASON_QUEUED,
                                                   .actor = "onced",
                                                   .attempt = 3,
                                                   .note = "a note"};
    request->transition.event_count = 2;
    assert_int_equal(call(world, request), 0);
    for (int i = 0; i < LEDGER_HISTORY_MAX; i++) {
        struct ledger_request *more = make_transition(world, op, STATE_DISPATCHED);
        more->transition.events[0].attempt = i;
        assert_int_equal(call(world, more), 0);
        if (i != 9)
            continue;
        struct ledger_request *few = make_request(world, LEDGER_EVENTS);
        few->events.operation = op->id;
        assert_int_equal(call(world, few), 0);
        assert_int_equal(few->events.count, 13);
        assert_string_equal(few->events.events[0].note, "first");
        const struct event *second = &few->events.events[2];
        assert_int_equal(second->at_ms, 5);
        assert_int_equal(second->cause, CAUSE_HELD);
        assert_int_equal(second->reason, REASON_QUEUED);
        assert_int_equal(second->attempt, 3);
        assert_string_equal(second->actor, "onced");
        assert_string_equal(second->note, "a note");
        assert_int_equal(few->events.events[12].attempt, 9);
    }
    struct ledger_request *all = make_request(world, LEDGER_EVENTS);
    all->events.operation = op->id;
    assert_int_equal(call(world, all), 0);
    assert_int_equal(all->events.count, LEDGER_HISTORY_MAX); /* the newest ones */
    assert_int_equal(all->events.events[0].attempt, 0);
    assert_int_equal(all->events.events[LEDGER_HISTORY_MAX - 1].attempt, LEDGER_HISTORY_MAX - 1);
}

static void a_plain_beginning_is_told(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->state = STATE_DISPATCHED;
    op->reason = REASON_NONE;
    struct attempt attempt = {.id = "at_1", .number = 1, .started_ms = op->created_ms};
    struct ledger_request *request = make_admit(world, op);
    request->admit.attempt = &attempt;
    request->admit.event.attempt = 1;
    assert_int_equal(call(world, request), 0);
    struct ledger_request *events = make_request(world, LEDGER_EVENTS);
    events->events.operation = op->id;
    assert_int_equal(call(world, events), 0);
    assert_int_equal(events->events.count, 1);
    const struct event *event = &events->events.events[0];
    assert_int_equal(event->cause, CAUSE_ADMITTED);
    assert_int_equal(event->from, STATE_DISPATCHED);
    assert_int_equal(event->to, STATE_DISPATCHED);
    assert_int_equal(event->at_ms, op->created_ms);
    assert_int_equal(event->attempt, 1);
    assert_string_equal(event->actor, "agent");
    assert_null(event->note);
    struct ledger_request *attempts = make_request(world, LEDGER_ATTEMPTS);
    attempts->attempts.operation = op->id;
    assert_int_equal(call(world, attempts), 0);
    assert_int_equal(attempts->attempts.count, 1);
    assert_string_equal(attempts->attempts.attempts[0].id, "at_1");
    assert_int_equal(attempts->attempts.attempts[0].number, 1);
    assert_int_equal(attempts->attempts.attempts[0].started_ms, op->created_ms);
    assert_int_equal(attempts->attempts.attempts[0].outcome, OUTCOME_OPEN);
}

static void attempts_are_inserted_and_updated(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->state = STATE_DISPATCHED;
    struct attempt attempt = {.id = "at_1", .number = 1, .started_ms = op->created_ms + 1}; /* not plain */
    struct ledger_request *request = make_admit(world, op);
    request->admit.attempt = &attempt;
    assert_int_equal(call(world, request), 0);
    request = make_transition(world, op, STATE_UNKNOWN_OUTCOME);
    request->transition.attempts[0] = (struct attempt){.id = "at_1",
                                                       .number = 1,
                                                       .outcome = OUTCOME_TIMEOUT,
                                                       .started_ms = 7,
                                                       .finished_ms = 9,
                                                       .http_status = 504,
                                                       .provider_request_id = "req",
                                                       .detail = "no answer"};
    request->transition.attempts[1] =
        (struct attempt){.id = "at_2", .number = 2, .kind = ATTEMPT_LOOKUP, .started_ms = 10};
    request->transition.attempt_count = 2;
    assert_int_equal(call(world, request), 0);
    struct ledger_request *attempts = make_request(world, LEDGER_ATTEMPTS);
    attempts->attempts.operation = op->id;
    assert_int_equal(call(world, attempts), 0);
    assert_int_equal(attempts->attempts.count, 2);
    const struct attempt *first = &attempts->attempts.attempts[0], *second = &attempts->attempts.attempts[1];
    assert_string_equal(first->id, "at_1");
    assert_int_equal(first->outcome, OUTCOME_TIMEOUT);
    assert_int_equal(first->finished_ms, 9);
    assert_int_equal(first->http_status, 504);
    assert_string_equal(first->provider_request_id, "req");
    assert_string_equal(first->detail, "no answer");
    assert_string_equal(second->id, "at_2");
    assert_int_equal(second->kind, ATTEMPT_LOOKUP);
    assert_int_equal(second->outcome, OUTCOME_OPEN);
    assert_null(second->detail);
    request = make_transition(world, op, STATE_COMPLETED_SUCCESS);
    request->transition.attempts[0] = (struct attempt){.id = "at_2",
                                                       .number = 2,
                                                       .kind = ATTEMPT_LOOKUP,
                                                       .outcome = OUTCOME_FOUND,
                                                       .started_ms = 10,
                                                       .finished_ms = 11};
    request->transition.attempt_count = 1;
    assert_int_equal(call(world, request), 0);
    assert_int_equal(call(world, attempts), 0);
    assert_int_equal(attempts->attempts.count, 2);
    assert_int_equal(attempts->attempts.attempts[1].outcome, OUTCOME_FOUND);
    assert_int_equal(attempts->attempts.attempts[0].outcome, OUTCOME_TIMEOUT);
}

/* ---- incidents, tokens, numbers ---- */

static void incidents_are_kept(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    for (int i = 0; i < 2; i++) {
        struct ledger_request *request = make_transition(world, op, STATE_DISPATCHED);
        for (int k = 0; k < 2; k++) {
            struct incident *incident = &request->transition.incidents[k];
            *incident = (struct incident){.tenant = k ? "other" : "acme",
                                          .operation = op->id,
                                          .kind = INCIDENT_LATE_LANDING,
                                          .at_ms = 10 * i + k,
                                          .note = "seen"};
            snprintf(incident->id, sizeof incident->id, "in_%d%d", i, k);
        }
        request->transition.incident_count = 2;
        assert_int_equal(call(world, request), 0);
    }
    struct ledger_request *get_it = make_request(world, LEDGER_GET);
    get_it->get.operation = op->id;
    assert_int_equal(call(world, get_it), 0);
    assert_int_equal(get_it->get.incident_count, 4);
    assert_string_equal(get_it->get.incidents[0].id, "in_00");
    assert_int_equal(get_it->get.incidents[0].kind, INCIDENT_LATE_LANDING);
    struct ledger_request *page = make_request(world, LEDGER_INCIDENTS);
    page->incidents = (struct ledger_incidents){.limit = 3};
    assert_int_equal(call(world, page), 0);
    assert_int_equal(page->incidents.count, 3);
    assert_string_equal(page->incidents.incidents[0].id, "in_11");
    page->incidents.before = page->incidents.next;
    assert_int_equal(call(world, page), 0);
    assert_int_equal(page->incidents.count, 1);
    assert_null(page->incidents.next);
    struct ledger_request *acknowledge = make_request(world, LEDGER_ACKNOWLEDGE);
    acknowledge->acknowledge =
        (struct ledger_acknowledge){.tenant = "other", .incident = "in_00", .by = "ann", .now_ms = 50};
    assert_int_equal(call(world, acknowledge), ERR_NOT_FOUND);
    acknowledge->acknowledge.tenant = "acme";
    assert_int_equal(call(world, acknowledge), 0);
    acknowledge->acknowledge.by = "bob";
    acknowledge->acknowledge.now_ms = 60;
    assert_int_equal(call(world, acknowledge), 0);
    assert_string_equal(acknowledge->acknowledge.result.acknowledged_by, "ann");
    assert_int_equal(acknowledge->acknowledge.result.acknowledged_ms, 50);
    page->incidents = (struct ledger_incidents){.tenant = "acme", .open_only = true, .limit = 10};
    assert_int_equal(call(world, page), 0);
    assert_int_equal(page->incidents.count, 1);
    assert_string_equal(page->incidents.incidents[0].id, "in_10");
}

static void tokens_are_found_and_revoked(void **state)
{
    struct world *world = *state;
    const char *ids[] = {"tok_2", "tok_1"};
    for (int i = 0; i < 2; i++) {
        struct ledger_request *add = make_request(world, LEDGER_TOKEN_ADD);
        add->token.token = (struct token){.id = ids[i],
                                          .secret_hash = digest_sha256(str_of(ids[i])),
                                          .tenant = "acme",
                                          .principal = "ann",
                                          .role = ROLE_OPERATOR,
                                          .created_ms = 1,
                                          .expires_ms = 99,
                                          .tools = i ? "[\"refund.*\"]" : NULL,
                                          .entities = i ? "[]" : NULL};
        assert_int_equal(call(world, add), 0);
    }
    struct ledger_request *find = make_request(world, LEDGER_TOKEN_FIND);
    find->token.token.secret_hash = digest_sha256(STR("tok_1"));
    assert_int_equal(call(world, find), 0);
    assert_string_equal(find->token.token.id, "tok_1");
    assert_string_equal(find->token.token.principal, "ann");
    assert_int_equal(find->token.token.role, ROLE_OPERATOR);
    assert_int_equal(find->token.token.expires_ms, 99);
    assert_string_equal(find->token.token.tools, "[\"refund.*\"]");
    assert_string_equal(find->token.token.entities, "[]");
    assert_int_equal(find->token.token.revoked_ms, 0);
    struct ledger_request *revoke = make_request(world, LEDGER_TOKEN_REVOKE);
    revoke->token.token = (struct token){.id = "tok_1", .revoked_ms = 5};
    assert_int_equal(call(world, revoke), 0);
    revoke->token.token.revoked_ms = 6;
    assert_int_equal(call(world, revoke), 0);
    assert_int_equal(revoke->token.token.revoked_ms, 5);
    revoke->token.token.id = "tok_3";
    assert_int_equal(call(world, revoke), ERR_NOT_FOUND);
    assert_int_equal(call(world, find), 0);
    assert_int_equal(find->token.token.revoked_ms, 5);
    find->token.token.secret_hash = digest_sha256(STR("tok_3"));
    assert_int_equal(call(world, find), ERR_NOT_FOUND);
    struct ledger_request *all = make_request(world, LEDGER_TOKEN_LIST);
    assert_int_equal(call(world, all), 0);
    assert_int_equal(all->token_list.count, 2);
    assert_string_equal(all->token_list.tokens[0].id, "tok_1");
    assert_string_equal(all->token_list.tokens[0].entities, "[]");
    assert_true(!all->token_list.tokens[1].tools && !all->token_list.tokens[1].entities);
}

static void stats_count(void **state)
{
    struct world *world = *state;
    struct operation *ops[4];
    for (int i = 0; i < 4; i++) {
        ops[i] = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        admit(world, ops[i]);
    }
    move(world, ops[0], STATE_DISPATCHED);
    move(world, ops[1], STATE_REJECTED);
    move(world, ops[2], STATE_DISPATCHED);
    world->now_ms += 7;
    int64_t since = world->now_ms;
    move(world, ops[2], STATE_UNKNOWN_OUTCOME);
    world->now_ms += 7;
    move(world, ops[0], STATE_UNKNOWN_OUTCOME);
    assert_int_equal(expire(world, ops[1]->id, ops[1]->rev), 0);
    struct ledger_request *stats = make_request(world, LEDGER_STATS);
    assert_int_equal(call(world, stats), 0);
    assert_int_equal(stats->stats.by_state[STATE_PENDING_DISPATCH], 1);
    assert_int_equal(stats->stats.by_state[STATE_DISPATCHED], 0);
    assert_int_equal(stats->stats.by_state[STATE_UNKNOWN_OUTCOME], 2);
    assert_int_equal(stats->stats.by_state[STATE_REJECTED], 1); /* dropped ones stay counted */
    assert_int_equal(stats->stats.oldest_unknown_ms, since);
    assert_true(stats->stats.commands >= 11);
    move(world, ops[2], STATE_COMPLETED_SUCCESS);
    move(world, ops[0], STATE_COMPLETED_SUCCESS);
    assert_int_equal(call(world, stats), 0);
    assert_int_equal(stats->stats.oldest_unknown_ms, 0);
    assert_int_equal(stats->stats.by_state[STATE_COMPLETED_SUCCESS], 2);
}

const struct CMUnitTest contract_records[] = {
    CONTRACT_TEST(lists_page_and_filter),
    CONTRACT_TEST(lists_what_waits_for_approval),
    CONTRACT_TEST(lists_carry_payload_on_request),
    CONTRACT_TEST(events_come_in_order),
    CONTRACT_TEST(a_plain_beginning_is_told),
    CONTRACT_TEST(attempts_are_inserted_and_updated),
    CONTRACT_TEST(incidents_are_kept),
    CONTRACT_TEST(tokens_are_found_and_revoked),
    CONTRACT_TEST(stats_count),
};
const size_t contract_record_count = sizeof contract_records / sizeof *contract_records;
