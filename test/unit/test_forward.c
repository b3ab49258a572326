/* Forwarding of inbound events (design 11.1): the real engine on both ledgers, an endpoint that the test plays. */
#include "support/test.h"
#include "support/world.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POSTS_MAX 64
#define HOUR      INT64_C(3600000)

struct post {
    char id[FORWARD_ID_SIZE], body[256];
    int64_t at_ms;
    webhook_done *done;
    void *user;
    bool open;
};

struct fix {
    struct webhooks webhooks; /* first: see fix_of */
    struct world world;
    struct provider provider;
    struct tool tool;
    struct forward_policy policy;
    struct inbox_source source;
    struct arena arena;
    struct post posts[POSTS_MAX];
    size_t post_count;
    char path[64];
};

static void keep_post(struct webhooks *webhooks, const struct webhook_endpoint *endpoint,
                      const struct webhook_message *message, webhook_done *done, void *user)
{
    struct fix *fix = (struct fix *)webhooks;
    struct post *post = &fix->posts[fix->post_count++];
    assert_true(fix->post_count <= POSTS_MAX);
    assert_string_equal(endpoint->url, fix->policy.url);
    assert_int_equal(message->now_ms, fix->world.now_ms);
    *post = (struct post){.at_ms = fix->world.now_ms, .done = done, .user = user, .open = true};
    snprintf(post->id, sizeof post->id, "%s", message->id);
    snprintf(post->body, sizeof post->body, "%.*s", STR_ARG(message->body));
}

static const struct webhooks_ops ops = {.post = keep_post};

static int setup(void **state)
{
    static struct fix fix;
    fix = (struct fix){.webhooks.ops = &ops};
    log_set_level(LOG_OFF);
    world_provider(&fix.provider);
    world_tool(&fix.tool, "refund", CLASS_EXTERNAL_WEAK, &fix.provider);
    fix.policy = (struct forward_policy){.url = "http://app.example/", .timeout_ms = 10000, .give_up_ms = 24 * HOUR};
    fix.source =
        (struct inbox_source){.name = "pay", .provider = "pay", .retain_ms = 30 * 24 * HOUR, .forward = &fix.policy};
    arena_init(&fix.arena);
    *state = &fix;
    return 0;
}

static void open_world(struct fix *fix, bool file)
{
    const struct tool *tools[] = {&fix->tool};
    snprintf(fix->path, sizeof fix->path, "/tmp/onced-forward-%d.db", (int)getpid());
    world_init_with(&fix->world, tools, 1, &fix->source, 1, file ? fix->path : NULL);
    fix->world.webhooks = &fix->webhooks;
    world_crash(&fix->world);
}

/* What is still on the wire of a dead engine ends nowhere; of the living one it has to end. */
static void end_posts(struct fix *fix)
{
    for (size_t i = 0; i < fix->post_count; i++) {
        struct webhook_report report = {.sent = true, .detail = "the end of the test"};
        if (fix->posts[i].open)
            fix->posts[i].done(fix->posts[i].user, &report);
        fix->posts[i].open = false;
    }
    world_run(&fix->world);
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    end_posts(fix);
    world_release(&fix->world);
    arena_release(&fix->arena);
    unlink(fix->path);
    return 0;
}

static void recorded(void *user, enum err_code code, const struct err *err, const struct inbound *event, bool duplicate)
{
    (void)user;
    (void)err;
    (void)event;
    (void)duplicate;
    assert_int_equal(code, 0);
}

static void tell(struct fix *fix, const char *name)
{
    struct inbound event = {.source = "pay",
                            .event = name,
                            .outcome = INBOUND_IGNORE,
                            .body = str_of(arena_printf(&fix->arena, "{%s}", name))};
    engine_inbound(fix->world.engine, &event, recorded, fix);
    world_run(&fix->world);
}

static void answer(struct fix *fix, size_t index, int status, int64_t retry_after_ms)
{
    struct post *post = &fix->posts[index];
    struct webhook_report report = {.sent = true,
                                    .delivered = status == 200,
                                    .status = status,
                                    .retry_after_ms = retry_after_ms,
                                    .detail = status == 200 ? "" : "the endpoint answered something else"};
    assert_true(index < fix->post_count && post->open);
    post->open = false;
    post->done(post->user, &report);
    world_run(&fix->world);
}

static struct forward forward_of(struct fix *fix)
{
    struct ledger_request *request = arena_zero(&fix->arena, sizeof *request);
    *request = (struct ledger_request){.command = LEDGER_INBOX_LIST, .arena = &fix->arena};
    request->inbox_list.limit = 1;
    assert_int_equal(ledger_call(fix->world.ledger, request), 0);
    assert_int_equal(request->inbox_list.count, 1);
    return request->inbox_list.events[0].forward;
}

static void check_delivered_once(struct fix *fix)
{
    tell(fix, "evt_1");
    assert_int_equal(fix->post_count, 1);
    assert_string_equal(fix->posts[0].id, "pay:evt_1");
    assert_string_equal(fix->posts[0].body, "{evt_1}");
    assert_int_equal(forward_of(fix).tries, 1); /* written down before it was sent */
    tell(fix, "evt_1");
    answer(fix, 0, 200, 0);
    assert_int_equal(forward_of(fix).status, FORWARD_DELIVERED);
    world_advance(&fix->world, 2 * HOUR);
    world_crash(&fix->world);
    world_advance(&fix->world, 2 * HOUR);
    tell(fix, "evt_1");
    assert_int_equal(fix->post_count, 1);
}

static void test_delivered_once(void **state)
{
    open_world(*state, false);
    check_delivered_once(*state);
}

static void test_delivered_once_in_a_file(void **state)
{
    open_world(*state, true);
    check_delivered_once(*state);
}

/* Each wait is at least half of what it is at most, and doubles up to an hour; then it is given up. */
static void test_again_with_backoff(void **state)
{
    struct fix *fix = *state;
    open_world(fix, false);
    tell(fix, "evt_1");
    const int64_t began_ms = fix->posts[0].at_ms;
    int64_t most_ms = FORWARD_FIRST_MS;
    for (size_t i = 0; forward_of(fix).status == FORWARD_DUE; i++) {
        answer(fix, i, 500, 0);
        struct forward now = forward_of(fix);
        assert_int_equal(now.tries, i + 1);
        if (now.status != FORWARD_DUE)
            break;
        int64_t wait_ms = now.at_ms - fix->world.now_ms;
        assert_true(wait_ms >= most_ms / 2 && wait_ms <= most_ms);
        world_advance(&fix->world, wait_ms - 1);
        assert_int_equal(fix->post_count, i + 1);
        world_advance(&fix->world, 1);
        assert_int_equal(fix->post_count, i + 2);
        assert_string_equal(fix->posts[i + 1].id, "pay:evt_1");
        most_ms = most_ms * 2 < FORWARD_MOST_MS ? most_ms * 2 : FORWARD_MOST_MS;
    }
    assert_int_equal(forward_of(fix).status, FORWARD_UNDELIVERED);
    assert_true(fix->world.now_ms - began_ms > 22 * HOUR && fix->world.now_ms - began_ms <= 24 * HOUR);
    size_t count = fix->post_count;
    world_advance(&fix->world, 3 * HOUR);
    assert_int_equal(fix->post_count, count);
}

static void test_the_endpoints_own_time(void **state)
{
    struct fix *fix = *state;
    open_world(fix, false);
    tell(fix, "evt_1");
    answer(fix, 0, 429, 90000);
    assert_int_equal(forward_of(fix).at_ms, fix->world.now_ms + 90000);
    world_advance(&fix->world, 89999);
    assert_int_equal(fix->post_count, 1);
    world_advance(&fix->world, 1);
    assert_int_equal(fix->post_count, 2);
}

/* The process dies with the request on the wire: nobody knows, so it is sent again, when the first try is over. */
static void test_a_crash_costs_a_repetition(void **state)
{
    struct fix *fix = *state;
    open_world(fix, false);
    tell(fix, "evt_1");
    world_crash(&fix->world);
    world_run(&fix->world);
    assert_int_equal(fix->post_count, 1);
    world_advance(&fix->world, fix->policy.timeout_ms + FORWARD_FIRST_MS);
    assert_int_equal(fix->post_count, 2);
    assert_string_equal(fix->posts[1].id, fix->posts[0].id);
    answer(fix, 1, 200, 0);
    assert_int_equal(forward_of(fix).status, FORWARD_DELIVERED);
    assert_int_equal(forward_of(fix).tries, 2);
}

static void test_not_more_than_eight_at_once(void **state)
{
    struct fix *fix = *state;
    open_world(fix, false);
    for (int i = 0; i < 20; i++)
        tell(fix, arena_printf(&fix->arena, "evt_%d", i));
    assert_int_equal(fix->post_count, 8);
    for (size_t i = 0; i < 20; i++)
        answer(fix, i, 200, 0);
    assert_int_equal(fix->post_count, 20);
    for (size_t i = 0; i < 20; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(fix->posts[i].id, fix->posts[k].id);
}

static void stopped(void *user)
{
    *(bool *)user = true;
}

static void test_a_stop_waits_for_the_wire(void **state)
{
    struct fix *fix = *state;
    bool over = false;
    open_world(fix, false);
    tell(fix, "evt_1");
    engine_stop(fix->world.engine, fix->world.now_ms + 30000, stopped, &over);
    world_run(&fix->world);
    assert_false(over);
    answer(fix, 0, 200, 0);
    assert_true(over);
    assert_int_equal(forward_of(fix).status, FORWARD_DELIVERED);
}

static void test_a_stop_that_comes_too_late(void **state)
{
    struct fix *fix = *state;
    bool over = false;
    open_world(fix, false);
    tell(fix, "evt_1");
    engine_stop(fix->world.engine, fix->world.now_ms + 1000, stopped, &over);
    world_advance(&fix->world, 1000);
    assert_true(over);
    answer(fix, 0, 200, 0); /* nothing may be written any more */
    assert_int_equal(forward_of(fix).status, FORWARD_DUE);
}

static void test_a_person_has_it_sent_again(void **state)
{
    struct fix *fix = *state;
    fix->policy.give_up_ms = 1;
    open_world(fix, false);
    tell(fix, "evt_1");
    answer(fix, 0, 500, 0);
    struct forward given_up = forward_of(fix);
    assert_int_equal(given_up.status, FORWARD_UNDELIVERED);
    struct ledger_request *list = arena_zero(&fix->arena, sizeof *list), *move = arena_zero(&fix->arena, sizeof *move);
    *list = (struct ledger_request){.command = LEDGER_INBOX_LIST, .arena = &fix->arena, .inbox_list = {.limit = 1}};
    assert_int_equal(ledger_call(fix->world.ledger, list), 0);
    *move = (struct ledger_request){.command = LEDGER_FORWARD_MOVE, .arena = &fix->arena};
    move->forward_move = (struct ledger_forward_move){.id = list->inbox_list.events[0].id,
                                                      .was = given_up,
                                                      .to = forward_again(&given_up, &fix->policy, fix->world.now_ms)};
    assert_int_equal(ledger_call(fix->world.ledger, move), 0);
    engine_forward_due(fix->world.engine);
    world_run(&fix->world);
    assert_int_equal(fix->post_count, 2);
    assert_string_equal(fix->posts[1].id, "pay:evt_1");
    answer(fix, 1, 200, 0);
    assert_int_equal(forward_of(fix).status, FORWARD_DELIVERED);
}

static void test_ids(void **state)
{
    static const struct {
        const char *source, *event, *id; /* NULL: a digest */
    } cases[] = {
        {"pay", "evt_1", "pay:evt_1"}, {"pay", "a:b", "pay:a:b"},  {"pay", "a b", NULL},      {"pay", "a.b", NULL},
        {"p.ay", "a", NULL},           {"pay", "a\r\nX: 1", NULL}, {"pay", "\xc3\xa4", NULL},
    };
    char ids[sizeof cases / sizeof *cases][FORWARD_ID_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct inbound event = {.source = cases[i].source, .event = cases[i].event};
        forward_id(&event, ids[i]);
        if (cases[i].id)
            assert_string_equal(ids[i], cases[i].id);
        else
            assert_true(strncmp(ids[i], "sha256:", 7) == 0 && strlen(ids[i]) == 71);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ids[i], ids[k]);
    }
    char longest[INBOX_EVENT_BYTES_MAX + 1], source[65], id[FORWARD_ID_SIZE];
    memset(longest, 'e', sizeof longest - 1);
    memset(source, 's', sizeof source - 1);
    longest[sizeof longest - 1] = source[sizeof source - 1] = '\0';
    struct inbound event = {.source = source, .event = longest};
    forward_id(&event, id);
    assert_int_equal(strlen(id), 64 + 1 + 255);
    assert_true(strlen(id) <= WEBHOOK_ID_BYTES_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_delivered_once),
        TEST(test_delivered_once_in_a_file),
        TEST(test_again_with_backoff),
        TEST(test_the_endpoints_own_time),
        TEST(test_a_crash_costs_a_repetition),
        TEST(test_not_more_than_eight_at_once),
        TEST(test_a_stop_waits_for_the_wire),
        TEST(test_a_stop_that_comes_too_late),
        TEST(test_a_person_has_it_sent_again),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests_name("forward", tests, NULL, NULL);
}
