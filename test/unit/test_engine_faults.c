/* The engine when things around it fail: a ledger that cannot commit, a second gateway, a stop that comes too late. */
#include "support/test.h"
#include "support/world.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS "{\"payment_id\":\"p1\",\"amount\":10}"

/* A ledger whose disk can be full: commands that write then end with ERR_UNAVAILABLE. */
struct faulty {
    struct ledger base;
    struct ledger *inner;
    bool full;
    struct ledger_request *refused;
};

struct fix {
    struct world world;
    struct provider provider;
    struct tool keyed, weak;
    struct faulty ledger;
    struct engine *usual; /* the world's own, while another one is under test */
    struct world_reply a, b, c;
};

static bool writes(enum ledger_command command)
{
    return command == LEDGER_ADMIT || command == LEDGER_TRANSITION || command == LEDGER_CLAIM_DUE ||
           command == LEDGER_EXPIRE || command == LEDGER_MARK;
}

static void faulty_submit(struct ledger *base, struct ledger_request *request)
{
    struct faulty *faulty = (struct faulty *)base;
    if (!faulty->full || !writes(request->command)) {
        faulty->inner->ops->submit(faulty->inner, request);
        return;
    }
    request->code = err_set(&request->err, ERR_UNAVAILABLE, "the disk is full");
    request->next = faulty->refused;
    faulty->refused = request;
}

static void faulty_poll(struct ledger *base)
{
    struct faulty *faulty = (struct faulty *)base;
    struct ledger_request *list = faulty->refused, *next;
    faulty->refused = NULL;
    for (; list; list = next) {
        next = list->next;
        list->next = NULL;
        list->done(list);
    }
    faulty->inner->ops->poll(faulty->inner);
}

static const struct ledger_ops faulty_ops = {.submit = faulty_submit, .poll = faulty_poll};

static int setup(void **state)
{
    static struct fix fix;
    memset(&fix, 0, sizeof fix);
    log_set_level(LOG_OFF);
    world_provider(&fix.provider);
    world_tool(&fix.keyed, "refund", CLASS_EXTERNAL_IDEMPOTENT, &fix.provider);
    world_tool(&fix.weak, "mail", CLASS_EXTERNAL_WEAK, &fix.provider);
    *state = &fix;
    return 0;
}

static struct engine *gateway(struct fix *fix, struct ledger *ledger)
{
    struct engine_options options = {
        .env = &fix->world.env,
        .ledger = ledger,
        .adapter = &fix->world.adapter,
        .registry = fix->world.registry,
    };
    struct engine *engine = engine_new(&options);
    engine_start(engine);
    return engine;
}

/* The world's engine becomes one that works on the faulty ledger; the usual one never does anything. */
static void open_world(struct fix *fix)
{
    const struct tool *tools[] = {&fix->keyed, &fix->weak};
    world_init(&fix->world, tools, 2);
    fix->ledger = (struct faulty){.base.ops = &faulty_ops, .inner = fix->world.ledger};
    memcpy(fix->ledger.base.secret, fix->world.ledger->secret, LEDGER_SECRET_BYTES);
    fix->usual = fix->world.engine;
    fix->world.ledger = &fix->ledger.base;
    fix->world.engine = gateway(fix, &fix->ledger.base);
    world_run(&fix->world);
}

static int teardown(void **state)
{
    struct fix *fix = *state;
    fix->ledger.full = false;
    world_advance(&fix->world, 10000);
    fix->world.dead[fix->world.dead_count++] = fix->world.engine;
    fix->world.ledger = fix->ledger.inner;
    fix->world.engine = fix->usual;
    for (size_t i = 0; i < fix->world.sent_count; i++)
        fix->world.sent[i].open = false;
    world_release(&fix->world);
    world_reply_release(&fix->a);
    world_reply_release(&fix->b);
    world_reply_release(&fix->c);
    return 0;
}

static struct operation row(struct fix *fix, const char *id, struct arena *arena)
{
    struct operation *op = world_row(&fix->world, arena, id);
    assert_non_null(op);
    return *op;
}

/* ---- a ledger that cannot commit (5.1, case S72) ---- */

static void test_nothing_is_sent_without_admission(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    fix->ledger.full = true;
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    assert_int_equal(fix->a.kind, REPLY_UNAVAILABLE);
    assert_int_equal(fix->world.sent_count, 0);
    world_advance(&fix->world, 60000);
    assert_int_equal(fix->world.sent_count, 0);
    fix->ledger.full = false;
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b);
    assert_int_equal(fix->world.sent_count, 1);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_int_equal(fix->b.op.state, STATE_COMPLETED_SUCCESS);
    assert_false(fix->b.replayed);
}

static void test_nobody_is_told_what_is_not_durable(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    open_world(fix);
    arena_init(&arena);
    struct engine_call call = {.tool = "refund", .wait_ms = 3000, .call = {.idempotency_key = "k1"}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->a);
    world_run(&fix->world);
    fix->ledger.full = true;
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_int_equal(fix->a.count, 0);
    world_advance(&fix->world, 3100);
    assert_int_equal(fix->a.count, 1); /* waited long enough: what the ledger has */
    assert_int_equal(fix->a.op.state, STATE_DISPATCHED);
    assert_int_equal(row(fix, fix->a.op.id, &arena).state, STATE_DISPATCHED);
    fix->ledger.full = false;
    world_advance(&fix->world, 6000);
    assert_int_equal(row(fix, fix->a.op.id, &arena).state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(fix->world.sent_count, 1);
    arena_release(&arena);
}

static void test_no_resend_before_its_commit(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    fix->ledger.full = true;
    world_advance(&fix->world, 20000);
    assert_int_equal(fix->world.sent_count, 1);
    fix->ledger.full = false;
    world_advance(&fix->world, 20000);
    assert_int_equal(fix->world.sent_count, 2);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_CALL);
}

static void test_first_attempt_is_recorded_as_possible(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    open_world(fix);
    arena_init(&arena);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    struct operation op = row(fix, fix->world.sent[0].operation, &arena);
    assert_int_equal(op.state, STATE_DISPATCHED);
    assert_true(op.may_have_applied);
    assert_int_equal(op.attempts, 1);
    arena_release(&arena);
}

/* ---- a stop that comes too late ---- */

static void count_stopped(void *user)
{
    (*(int *)user)++;
}

static void test_a_late_stop_sends_nothing(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    int stopped = 0;
    open_world(fix);
    struct engine_call call = {.tool = "refund", .wait_ms = -1, .call = {.idempotency_key = "k1"}};
    world_request(&fix->world, &call, ARGUMENTS, &fix->a); /* its admission is on the way */
    engine_stop(fix->world.engine, fix->world.now_ms, count_stopped, &stopped);
    assert_int_equal(stopped, 1);
    world_run(&fix->world);
    assert_int_equal(fix->world.sent_count, 0);
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_LIST, .arena = &arena, .list = {.limit = 10}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    assert_int_equal(request.list.count, 1);
    assert_int_equal(request.list.ops[0]->state, STATE_DISPATCHED); /* the next start finds out */
    arena_release(&arena);
}

/* ---- two gateways on one ledger ---- */

static void run_only(struct fix *fix, struct engine *engine, int64_t ms)
{
    struct engine *asleep = fix->world.engine;
    fix->world.engine = engine;
    world_advance(&fix->world, ms);
    fix->world.engine = asleep;
}

static size_t incident_count(struct fix *fix, enum incident_kind kind)
{
    struct arena arena;
    size_t count = 0;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_INCIDENTS, .arena = &arena, .incidents = {.limit = 10}};
    assert_int_equal(ledger_call(fix->world.ledger, &request), 0);
    for (size_t i = 0; i < request.incidents.count; i++)
        count += request.incidents.incidents[i].kind == kind;
    arena_release(&arena);
    return count;
}

/* The first gateway is paused beyond its lease; the second takes over, finds nothing and closes; then the first one's
 * answer says that it happened. */
static void test_a_fenced_answer_is_evidence(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    open_world(fix);
    arena_init(&arena);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    struct engine *second = gateway(fix, &fix->ledger.base);
    run_only(fix, second, 39000);
    assert_int_equal(fix->world.sent_count, 1); /* the lease is alive */
    run_only(fix, second, 2000);
    for (size_t i = 1; i < 20 && fix->world.sent_count > i; i++) {
        assert_int_equal(fix->world.sent[i].kind, ATTEMPT_LOOKUP);
        struct engine *asleep = fix->world.engine;
        fix->world.engine = second;
        world_answer(&fix->world, i, OUTCOME_ABSENT, NULL);
        world_advance(&fix->world, 10000);
        fix->world.engine = asleep;
    }
    assert_int_equal(row(fix, fix->world.sent[0].operation, &arena).state, STATE_FAILED_PERMANENT);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "m_1");
    struct operation op = row(fix, fix->world.sent[0].operation, &arena);
    assert_int_equal(op.state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(op.reason, REASON_LATE_LANDING);
    assert_string_equal(op.external_id, "m_1");
    assert_int_equal(incident_count(fix, INCIDENT_LATE_LANDING), 1);
    assert_int_equal(world_sent_of(&fix->world, ATTEMPT_CALL), 1);
    struct ledger_request attempts = {.command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = op.id}};
    assert_int_equal(ledger_call(fix->world.ledger, &attempts), 0);
    assert_int_equal(attempts.attempts.attempts[0].outcome, OUTCOME_SUCCESS);
    arena_release(&arena);
    fix->world.dead[fix->world.dead_count++] = second;
}

/* ---- people and requests under way ---- */

static void test_a_look_up_under_way_is_waited_for(void **state)
{
    struct fix *fix = *state;
    open_world(fix);
    world_call(&fix->world, "mail", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    assert_int_equal(fix->world.sent[1].kind, ATTEMPT_LOOKUP);
    struct arena arena;
    arena_init(&arena);
    struct engine_decision absent = {.kind = DECISION_RESOLVE,
                                     .operation = fix->world.sent[0].operation,
                                     .rev = row(fix, fix->world.sent[0].operation, &arena).rev,
                                     .actor = "ann",
                                     .note = "not in the mailbox"};
    engine_decide(fix->world.engine, &absent, world_keep, &fix->b);
    world_run(&fix->world);
    assert_int_equal(fix->b.kind, REPLY_IMPOSSIBLE);
    assert_non_null(strstr(fix->b.text, "under way"));
    world_answer(&fix->world, 1, OUTCOME_FOUND, "m_1");
    assert_int_equal(fix->a.op.state, STATE_COMPLETED_SUCCESS);
    arena_release(&arena);
}

/* ---- what is kept and shown ---- */

static void test_a_large_result_is_told_once(void **state)
{
    struct fix *fix = *state;
    struct arena arena;
    fix->keyed.result_bytes_max = 4;
    open_world(fix);
    arena_init(&arena);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_SUCCESS, "re_1");
    assert_string_equal(fix->a.result, "{\"ok\":true}");
    struct operation op = row(fix, fix->a.op.id, &arena);
    assert_null(op.result.p);
    assert_true(op.result_dropped);
    assert_int_equal(op.result_bytes, 11);
    world_call(&fix->world, "refund", ARGUMENTS, "k1", &fix->b);
    assert_true(fix->b.replayed);
    assert_string_equal(fix->b.result, "");
    assert_true(fix->b.op.result_dropped);
    assert_string_equal(fix->b.op.external_id, "re_1");
    arena_release(&arena);
}

static void test_logs_show_no_key(void **state)
{
    struct fix *fix = *state;
    char text[65536] = "";
    open_world(fix);
    int kept = dup(STDERR_FILENO), pipes[2];
    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    dup2(pipes[1], STDERR_FILENO);
    log_set_level(LOG_DEBUG);
    world_call(&fix->world, "refund", ARGUMENTS, "order-4711", &fix->a);
    world_answer(&fix->world, 0, OUTCOME_TIMEOUT, NULL);
    log_set_level(LOG_OFF);
    dup2(kept, STDERR_FILENO);
    ssize_t n = read(pipes[0], text, sizeof text - 1);
    close(kept);
    close(pipes[0]);
    close(pipes[1]);
    assert_true(n > 0);
    assert_non_null(strstr(text, "\"key\":\""));
    assert_null(strstr(text, "4711"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_is_sent_without_admission),
        TEST(test_nobody_is_told_what_is_not_durable),
        TEST(test_no_resend_before_its_commit),
        TEST(test_first_attempt_is_recorded_as_possible),
        TEST(test_a_late_stop_sends_nothing),
        TEST(test_a_fenced_answer_is_evidence),
        TEST(test_a_look_up_under_way_is_waited_for),
        TEST(test_a_large_result_is_told_once),
        TEST(test_logs_show_no_key),
    };
    return cmocka_run_group_tests_name("engine_faults", tests, NULL, NULL);
}
