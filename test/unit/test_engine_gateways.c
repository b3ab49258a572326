/* Two engines on one ledger, as two gateways: news, hand-over, renewal. */
#include "support/test.h"
#include "support/world.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define ARGUMENTS "{\"payment_id\":\"p1\",\"amount\":10}"
#define LEASE_MS  15000 /* the provider's time-out is 10 s */

/* The ledger as one gateway sees it. */
struct front {
    struct ledger base;
    struct world *world;
    struct engine *engine;
    bool deaf, stopped;
};

struct fix {
    struct world world;
    struct provider provider;
    struct tool tool;
    struct front a, b;
    struct world_reply replies[4];
};

/* ---- setting ---- */

static void submit(struct ledger *base, struct ledger_request *request)
{
    ledger_submit(((struct front *)base)->world->ledger, request);
}

static void poll_back(struct ledger *base)
{
    ledger_poll(((struct front *)base)->world->ledger);
}

static void bring_news(void *user, const char *operation)
{
    struct fix *fix = user;
    struct front *fronts[] = {&fix->a, &fix->b};
    for (size_t i = 0; i < 2; i++)
        if (fronts[i]->base.news && !fronts[i]->deaf)
            fronts[i]->base.news(fronts[i]->base.news_user, operation);
}

static void open_gateway(struct fix *fix, struct front *front)
{
    static const struct ledger_ops ops = {.submit = submit, .poll = poll_back};
    struct world *world = &fix->world;
    *front = (struct front){.base = {.ops = &ops}, .world = world};
    memcpy(front->base.secret, world->ledger->secret, sizeof front->base.secret);
    struct engine_options options = {.env = &world->env,
                                     .ledger = &front->base,
                                     .adapter = &world->adapter,
                                     .registry = world->registry,
                                     .lease_ms = LEASE_MS,
                                     .look_ms = 1000};
    front->engine = engine_new(&options);
    engine_start(front->engine);
}

static void run(struct fix *fix)
{
    struct front *fronts[] = {&fix->a, &fix->b};
    for (int i = 0; i < 50; i++) {
        ledger_poll(fix->world.ledger);
        for (size_t f = 0; f < 2; f++) {
            int64_t next = fronts[f]->engine ? engine_next_tick_ms(fronts[f]->engine) : 0;
            if (next && next <= fix->world.now_ms)
                engine_tick(fronts[f]->engine);
        }
    }
}

static void pass(struct fix *fix, int64_t ms)
{
    for (int64_t end = fix->world.now_ms + ms; fix->world.now_ms < end;) {
        fix->world.now_ms += end - fix->world.now_ms < 100 ? end - fix->world.now_ms : 100;
        run(fix);
    }
}

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    log_set_level(LOG_OFF);
    world_provider(&fix.provider);
    fix.provider.connections_max = 1; /* of each gateway: what comes second waits in its memory */
    world_tool(&fix.tool, "refund", CLASS_EXTERNAL_WEAK, &fix.provider);
    const struct tool *tools[] = {&fix.tool};
    world_init(&fix.world, tools, 1);
    ledger_on_news(fix.world.ledger, bring_news, &fix);
    open_gateway(&fix, &fix.a);
    open_gateway(&fix, &fix.b);
    run(&fix);
    *state = &fix;
    return 0;
}

static void note_stopped(void *user)
{
    ((struct front *)user)->stopped = true;
}

static void close_gateway(struct fix *fix, struct front *front)
{
    if (!front->engine)
        return;
    if (!front->stopped)
        engine_stop(front->engine, fix->world.now_ms, note_stopped, front);
    run(fix);
    fix->world.now_ms += 1;
    engine_tick(front->engine);
    for (size_t i = 0; i < fix->world.sent_count; i++)
        if (fix->world.sent[i].open)
            world_answer(&fix->world, i, OUTCOME_TIMEOUT, NULL);
    run(fix);
    assert_true(front->stopped);
    engine_free(front->engine);
    front->engine = NULL;
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    close_gateway(fix, &fix->a);
    close_gateway(fix, &fix->b);
    world_release(&fix->world);
    for (size_t i = 0; i < 4; i++)
        world_reply_release(&fix->replies[i]);
    return 0;
}

static struct world_reply *call(struct fix *fix, struct front *front, const char *key)
{
    struct world_reply *reply = fix->replies;
    while (reply->arena.bytes || reply->count)
        reply++;
    struct json *arguments;
    arena_init(&reply->arena);
    assert_int_equal(json_parse(&reply->arena, str_of(ARGUMENTS), &json_limits_default, &arguments, NULL), 0);
    struct engine_call request = {
        .tool = "refund",
        .wait_ms = 100000,
        .call = {.tenant = "t", .principal = "agent", .arguments = arguments, .idempotency_key = key},
    };
    engine_call(front->engine, &request, world_keep, reply);
    run(fix);
    return reply;
}

/* How many requests left for the operation of that index among all that were sent, and who holds it. */
static size_t sent_for(const struct fix *fix, const char *operation)
{
    size_t count = 0;
    for (size_t i = 0; i < fix->world.sent_count; i++)
        count += strcmp(fix->world.sent[i].operation, operation) == 0;
    return count;
}

static void row(struct fix *fix, const char *key, struct operation *out)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_LIST, .arena = &arena, .list = {.limit = 10}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    for (size_t i = 0; i < request.list.count; i++)
        if (strcmp(request.list.ops[i]->key, key) == 0)
            *out = *request.list.ops[i];
    static char owner[64];
    owner[0] = '\0';
    if (out->owner)
        strcpy(owner, out->owner);
    out->owner = out->owner ? owner : NULL;
    arena_release(&arena);
}

/* ---- news ---- */

static void test_who_waits_elsewhere_is_told_at_once(void **state)
{
    struct fix *fix = *state;
    struct world_reply *first = call(fix, &fix->a, "k"), *second = call(fix, &fix->b, "k");
    assert_int_equal(fix->world.sent_count, 1);
    assert_int_equal(second->count, 0);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    run(fix); /* no time passes */
    assert_int_equal(first->count, 1);
    assert_int_equal(second->count, 1);
    assert_int_equal(second->op.state, STATE_COMPLETED_SUCCESS);
    assert_string_equal(second->op.external_id, "re_1");
    assert_true(second->replayed);
}

static void test_lost_news_are_made_up_for(void **state)
{
    struct fix *fix = *state;
    call(fix, &fix->a, "k");
    struct world_reply *second = call(fix, &fix->b, "k");
    fix->b.deaf = true;
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    run(fix);
    assert_int_equal(second->count, 0);
    pass(fix, 600);
    assert_int_equal(second->count, 1);
    assert_int_equal(second->op.state, STATE_COMPLETED_SUCCESS);
    assert_false(second->waited_out);
}

/* What moved just before the watch began is in its answer. */
static void test_the_move_before_the_watch_is_seen(void **state)
{
    struct fix *fix = *state;
    call(fix, &fix->a, "k");
    fix->b.deaf = true;
    struct arena arena;
    struct json *arguments;
    struct world_reply *second = &fix->replies[2];
    arena_init(&arena);
    arena_init(&second->arena);
    assert_int_equal(json_parse(&arena, str_of(ARGUMENTS), &json_limits_default, &arguments, NULL), 0);
    struct engine_call request = {
        .tool = "refund",
        .wait_ms = 100000,
        .call = {.tenant = "t", .principal = "agent", .arguments = arguments, .idempotency_key = "k"},
    };
    engine_call(fix->b.engine, &request, world_keep, second);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1"); /* admitted, then the end, then the watch */
    run(fix);
    assert_int_equal(second->count, 1);
    assert_int_equal(second->op.state, STATE_COMPLETED_SUCCESS);
    arena_release(&arena);
}

/* ---- hand-over ---- */

static void test_a_stopping_gateway_lets_go(void **state)
{
    struct fix *fix = *state;
    struct operation op = {0};
    call(fix, &fix->a, "k1");
    call(fix, &fix->a, "k2");
    row(fix, "k2", &op);
    assert_int_equal(op.state, STATE_PENDING_DISPATCH);
    assert_non_null(op.owner);
    engine_stop(fix->a.engine, fix->world.now_ms + 60000, note_stopped, &fix->a);
    run(fix);
    assert_false(fix->a.stopped); /* k1 is on the wire */
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    run(fix);
    assert_true(fix->a.stopped);
    row(fix, "k2", &op);
    assert_null(op.owner);
    pass(fix, 1100); /* the other looks each second; the lease was 30 s */
    assert_int_equal(sent_for(fix, op.id), 1);
}

static void test_what_may_be_on_the_wire_is_not_let_go(void **state)
{
    struct fix *fix = *state;
    struct operation op = {0};
    call(fix, &fix->a, "k1");
    engine_stop(fix->a.engine, fix->world.now_ms + 1000, note_stopped, &fix->a);
    pass(fix, 2000); /* too late: it is cut off */
    assert_true(fix->a.stopped);
    row(fix, "k1", &op);
    assert_int_equal(op.state, STATE_DISPATCHED);
    assert_non_null(op.owner);
    pass(fix, 10000 + LEASE_MS - 2000 - 200);
    row(fix, "k1", &op);
    assert_int_equal(op.state, STATE_DISPATCHED);
    pass(fix, 1500);
    row(fix, "k1", &op);
    assert_int_equal(op.state, STATE_UNKNOWN_OUTCOME);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
}

/* ---- leases ---- */

/* What waits in the memory of a gateway that lives stays its own, however long. */
static void test_leases_are_renewed(void **state)
{
    struct fix *fix = *state;
    struct operation op = {0};
    call(fix, &fix->a, "k1");
    call(fix, &fix->a, "k2");
    row(fix, "k2", &op);
    int64_t until_ms = op.lease_until_ms;
    char owner[64];
    snprintf(owner, sizeof owner, "%s", op.owner);
    pass(fix, 5 * LEASE_MS);
    row(fix, "k2", &op);
    assert_int_equal(op.state, STATE_PENDING_DISPATCH);
    assert_string_equal(op.owner, owner);
    assert_true(op.lease_until_ms > until_ms);
    assert_int_equal(sent_for(fix, op.id), 0);
}

/* A gateway that is gone: the other sends what it held, when its lease has ended and no earlier. */
static void test_the_end_of_a_lease_is_waited_for(void **state)
{
    struct fix *fix = *state;
    struct operation op = {0};
    call(fix, &fix->a, "k1");
    call(fix, &fix->a, "k2");
    row(fix, "k2", &op);
    struct engine *gone = fix->a.engine;
    fix->a.engine = NULL;
    pass(fix, 2 * LEASE_MS - 200);
    assert_int_equal(sent_for(fix, op.id), 0);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_LOOKUP), 1); /* of k1, whose lease was shorter: … */
    world_answer(&fix->world, 1, OUTCOME_FOUND, "re_1");             /* … it has the slot until then */
    pass(fix, 1300);
    assert_int_equal(sent_for(fix, op.id), 1);
    fix->a.engine = gone;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ENGINE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        ENGINE_TEST(test_who_waits_elsewhere_is_told_at_once),   ENGINE_TEST(test_lost_news_are_made_up_for),
        ENGINE_TEST(test_the_move_before_the_watch_is_seen),     ENGINE_TEST(test_a_stopping_gateway_lets_go),
        ENGINE_TEST(test_what_may_be_on_the_wire_is_not_let_go), ENGINE_TEST(test_leases_are_renewed),
        ENGINE_TEST(test_the_end_of_a_lease_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
