/* Guard mode: who is elected, how long a lease lasts, and what its holder's words change. */
#include "support/test.h"
#include "support/world.h"

#include <stdio.h>
#include <string.h>

#define LEASE_MS 60000

struct stage {
    struct world world;
    struct provider provider;
    struct tool tool;
};

/* What a begin or a word was answered; texts are copies. */
struct got {
    int count;
    enum reply_kind kind;
    enum state state;
    enum reason reason;
    int attempts;
    char lease[160], operation[OPERATION_ID_SIZE], result[64];
};

static void setup(struct stage *stage)
{
    memset(stage, 0, sizeof *stage);
    stage->provider = (struct provider){.name = "(application)",
                                        .kind = PROVIDER_APPLICATION,
                                        .timeout_ms = LEASE_MS,
                                        .connections_max = 9,
                                        .queue_max = 9};
    world_tool(&stage->tool, "pay", CLASS_EXTERNAL_WEAK, &stage->provider);
    stage->tool.identity = IDENTITY_CALLER;
    stage->tool.guard_lease_ms = LEASE_MS;
    stage->tool.has_lookup = false;
    stage->tool.reconcile.strategies[0] = STRATEGY_MANUAL;
    stage->tool.reconcile.strategy_count = 1;
    stage->tool.retry.attempts_max = 3;
    const struct tool *tools[] = {&stage->tool};
    world_init(&stage->world, tools, 1);
}

static void keep(void *user, const struct engine_reply *reply)
{
    struct got *got = user;
    got->count++;
    got->kind = reply->kind;
    got->lease[0] = got->result[0] = '\0';
    if (reply->lease)
        snprintf(got->lease, sizeof got->lease, "%s", reply->lease);
    if (!reply->op)
        return;
    got->state = reply->op->state;
    got->reason = reply->op->reason;
    got->attempts = reply->op->attempts;
    memcpy(got->operation, reply->op->id, sizeof got->operation);
    snprintf(got->result, sizeof got->result, "%.*s", STR_ARG(reply->op->result));
}

/* Its arguments and texts must live until the reply. */
static void begin(struct stage *stage, struct got *got, const char *executor, int64_t wait_ms)
{
    static const struct json no_arguments = {.type = JSON_OBJECT};
    struct json arguments = no_arguments;
    struct engine_call call = {
        .tool = "pay",
        .begins = true,
        .executor = executor,
        .wait_ms = wait_ms,
        .call = {.tenant = "acme", .principal = "agent", .idempotency_key = "k", .arguments = &arguments},
    };
    *got = (struct got){.count = 0};
    engine_call(stage->world.engine, &call, keep, got);
    world_run(&stage->world);
}

static struct got word(struct stage *stage, const struct engine_guard *what)
{
    struct got got = {0};
    struct engine_guard guard = *what;
    guard.tenant = "acme";
    guard.tool = "pay";
    guard.actor = "agent";
    engine_guard(stage->world.engine, &guard, keep, &got);
    world_run(&stage->world);
    assert_int_equal(got.count, 1);
    return got;
}

static struct got complete(struct stage *stage, const char *lease)
{
    return word(stage, &(struct engine_guard){.word = GUARD_COMPLETE, .lease = lease, .result = STR("{\"ok\":1}")});
}

static struct got fail_with(struct stage *stage, const char *lease, bool no_effect, bool retry)
{
    return word(stage,
                &(struct engine_guard){.word = GUARD_FAIL, .lease = lease, .no_effect = no_effect, .retry = retry});
}

static struct got heartbeat(struct stage *stage, const char *lease)
{
    return word(stage, &(struct engine_guard){.word = GUARD_HEARTBEAT, .lease = lease});
}

static void one_is_elected(void **state)
{
    (void)state;
    struct stage stage;
    struct got first, second, waiting;
    setup(&stage);
    begin(&stage, &first, "a", 0);
    assert_true(first.lease[0] && first.state == STATE_DISPATCHED);
    begin(&stage, &second, "b", 0);
    assert_true(second.count == 1 && !second.lease[0]);
    assert_string_equal(second.operation, first.operation);
    begin(&stage, &waiting, "c", 30000);
    assert_int_equal(waiting.count, 0);
    assert_int_equal(complete(&stage, first.lease).state, STATE_COMPLETED_SUCCESS);
    assert_true(waiting.count == 1 && !waiting.lease[0] && waiting.state == STATE_COMPLETED_SUCCESS);
    assert_string_equal(waiting.result, "{\"ok\":1}");
    begin(&stage, &second, "b", 0);
    assert_true(!second.lease[0] && second.state == STATE_COMPLETED_SUCCESS);
    assert_int_equal(stage.world.sent_count, 0); /* nothing is ever sent */
    world_release(&stage.world);
}

static void a_lease_outlives_the_gateway(void **state)
{
    (void)state;
    struct stage stage;
    struct got got, again;
    setup(&stage);
    begin(&stage, &got, "a", 0);
    world_crash(&stage.world);
    world_run(&stage.world);
    begin(&stage, &again, "b", 0);
    assert_true(!again.lease[0] && again.state == STATE_DISPATCHED);
    begin(&stage, &again, "a", 0); /* its answer was lost: the same lease */
    assert_string_equal(again.lease, got.lease);
    world_advance(&stage.world, LEASE_MS / 2);
    assert_string_equal(heartbeat(&stage, got.lease).lease, got.lease);
    world_crash(&stage.world);
    world_advance(&stage.world, LEASE_MS / 2 + 1000);
    struct got done = complete(&stage, got.lease);
    assert_int_equal(done.state, STATE_COMPLETED_SUCCESS);
    assert_int_equal(done.reason, REASON_NONE); /* within the lease: no late evidence */
    world_release(&stage.world);
}

static void silence_is_unknown(void **state)
{
    (void)state;
    struct stage stage;
    struct got got, again;
    setup(&stage);
    begin(&stage, &got, "a", 0);
    world_advance(&stage.world, LEASE_MS + 1000);
    begin(&stage, &again, "a", 0);
    assert_true(!again.lease[0] && again.state == STATE_UNKNOWN_OUTCOME);
    assert_int_equal(heartbeat(&stage, got.lease).kind, REPLY_IMPOSSIBLE);
    world_advance(&stage.world, INT64_C(24) * 3600 * 1000); /* never closed, never tried again by the clock */
    begin(&stage, &again, "b", 0);
    assert_true(!again.lease[0] && again.state == STATE_UNKNOWN_OUTCOME);
    assert_int_equal(complete(&stage, got.lease).state, STATE_COMPLETED_SUCCESS);
    world_release(&stage.world);
}

static void proven_absence(void **state)
{
    (void)state;
    struct stage stage;
    struct got first, second, late;
    setup(&stage);
    begin(&stage, &first, "a", 0);
    assert_int_equal(fail_with(&stage, first.lease, true, true).state, STATE_FAILED_RETRYABLE);
    assert_int_equal(fail_with(&stage, first.lease, true, true).state, STATE_FAILED_RETRYABLE); /* said again */
    begin(&stage, &second, "b", 0);
    assert_true(second.lease[0] && second.attempts == 2 && strcmp(second.lease, first.lease) != 0);
    world_advance(&stage.world, LEASE_MS + 1000);
    begin(&stage, &late, "c", 0);
    assert_int_equal(late.state, STATE_UNKNOWN_OUTCOME);
    /* the first executor's word says nothing about the second one's attempt */
    assert_int_equal(fail_with(&stage, first.lease, true, false).state, STATE_UNKNOWN_OUTCOME);
    assert_int_equal(fail_with(&stage, second.lease, true, false).state, STATE_FAILED_PERMANENT);
    /* who said "none" and then "complete" is believed the worse, and somebody is told */
    assert_int_equal(complete(&stage, second.lease).state, STATE_COMPLETED_SUCCESS);
    world_release(&stage.world);
}

static void unproven_failure_is_unknown(void **state)
{
    (void)state;
    struct stage stage;
    struct got got;
    setup(&stage);
    begin(&stage, &got, NULL, 0);
    assert_int_equal(fail_with(&stage, got.lease, false, false).state, STATE_UNKNOWN_OUTCOME);
    struct got again;
    begin(&stage, &again, NULL, 0);
    assert_true(!again.lease[0] && again.state == STATE_UNKNOWN_OUTCOME);
    world_release(&stage.world);
}

/* An operator says that it did not happen. */
static struct got let_again(struct stage *stage, const struct got *of)
{
    struct arena arena;
    struct got got = {0};
    arena_init(&arena);
    const struct operation *op = world_row(&stage->world, &arena, of->operation);
    const struct engine_decision decision = {
        .kind = DECISION_RESOLVE,
        .operation = op->id,
        .tenant = "acme",
        .rev = op->rev,
        .allow_retry = true,
        .actor = "ann",
        .note = "looked",
    };
    engine_decide(stage->world.engine, &decision, keep, &got);
    world_run(&stage->world);
    arena_release(&arena);
    return got;
}

static int64_t version(struct stage *stage, const char *operation)
{
    struct arena arena;
    arena_init(&arena);
    int64_t rev = world_row(&stage->world, &arena, operation)->rev;
    arena_release(&arena);
    return rev;
}

/* Long after the total time, a person lets it be tried again: the next begin has that time anew, and nothing moves
 * until then. */
static void an_operators_leave_waits_for_a_begin(void **state)
{
    (void)state;
    struct stage stage;
    struct got first, next;
    setup(&stage);
    int64_t total_ms = stage.tool.retry.total_ms;
    begin(&stage, &first, "a", 0);
    world_advance(&stage.world, total_ms + LEASE_MS);
    assert_int_equal(let_again(&stage, &first).state, STATE_FAILED_RETRYABLE);
    world_advance(&stage.world, 10000);
    int64_t rev = version(&stage, first.operation);
    world_advance(&stage.world, total_ms / 2);
    assert_int_equal(version(&stage, first.operation), rev);
    begin(&stage, &next, "b", 0);
    assert_true(next.lease[0] && next.attempts == 2);
    world_advance(&stage.world, total_ms + LEASE_MS);
    assert_int_equal(let_again(&stage, &first).state, STATE_FAILED_RETRYABLE);
    world_advance(&stage.world, total_ms + 10000); /* nobody begins */
    begin(&stage, &next, "b", 0);
    assert_true(!next.lease[0] && next.state == STATE_FAILED_PERMANENT && next.reason == REASON_TIME_EXHAUSTED);
    world_release(&stage.world);
}

/* The commit took longer than the lease. */
static void nobody_is_told_without_a_lease(void **state)
{
    (void)state;
    static const struct json no_arguments = {.type = JSON_OBJECT};
    struct stage stage;
    struct got got = {0};
    struct json arguments = no_arguments;
    setup(&stage);
    const struct engine_call call = {
        .tool = "pay",
        .begins = true,
        .executor = "a",
        .call = {.tenant = "acme", .principal = "agent", .idempotency_key = "k", .arguments = &arguments},
    };
    engine_call(stage.world.engine, &call, keep, &got);
    stage.world.now_ms += LEASE_MS;
    world_run(&stage.world);
    assert_true(got.count == 1 && got.kind == REPLY_OPERATION && !got.lease[0]);
    begin(&stage, &got, "a", 0);
    assert_true(!got.lease[0] && got.state == STATE_UNKNOWN_OUTCOME);
    world_release(&stage.world);
}

static void without_its_tool_nothing_is_judged(void **state)
{
    (void)state;
    struct stage stage;
    struct registry *none;
    struct got got;
    setup(&stage);
    begin(&stage, &got, "a", 0);
    assert_int_equal(registry_new(NULL, 0, NULL, 0, "none", NULL, NULL, &none, NULL), 0);
    engine_set_registry(stage.world.engine, none);
    registry_unref(none);
    world_advance(&stage.world, LEASE_MS + 1000);
    assert_int_equal(fail_with(&stage, got.lease, true, false).kind, REPLY_UNAVAILABLE);
    engine_set_registry(stage.world.engine, stage.world.registry);
    assert_int_equal(fail_with(&stage, got.lease, true, false).state, STATE_FAILED_PERMANENT);
    world_release(&stage.world);
}

/* Another gateway has taken it over and not said so yet: what is said just then is proof all the same. */
static void proof_between_lease_and_claim(void **state)
{
    (void)state;
    struct stage stage;
    struct arena arena;
    struct got got;
    setup(&stage);
    begin(&stage, &got, "a", 0);
    arena_init(&arena);
    stage.world.now_ms += LEASE_MS;
    struct ledger_request claim = {
        .command = LEDGER_CLAIM_DUE,
        .arena = &arena,
        .claim = {.owner = "gw_2", .now_ms = stage.world.now_ms, .lease_ms = 5000, .limit = 10},
    };
    assert_int_equal(ledger_call(stage.world.ledger, &claim), 0);
    assert_int_equal(claim.claim.count, 1);
    assert_int_equal(fail_with(&stage, got.lease, true, false).kind, REPLY_UNAVAILABLE);
    world_advance(&stage.world, 6000); /* that gateway dies, too */
    assert_int_equal(fail_with(&stage, got.lease, true, false).state, STATE_FAILED_PERMANENT);
    arena_release(&arena);
    world_release(&stage.world);
}

static void tokens_are_checked(void **state)
{
    (void)state;
    struct stage stage;
    struct got got;
    setup(&stage);
    begin(&stage, &got, "a", 0);
    char forged[176];
    static const char *const garbage[] = {"", "gl_", "gl_01MCC5RM00D6J0D89EBFQAC9QQ_1_a_b",
                                          "op_01MCC5RM00D6J0D89EBFQAC9QQ"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
        assert_int_equal(complete(&stage, garbage[i]).kind, REPLY_NOT_FOUND);
    for (size_t i = 3; i < strlen(got.lease); i += 7) {
        snprintf(forged, sizeof forged, "%s", got.lease);
        forged[i] = forged[i] == '0' ? '1' : '0';
        assert_int_equal(complete(&stage, forged).kind, REPLY_NOT_FOUND);
    }
    snprintf(forged, sizeof forged, "%s0", got.lease);
    assert_int_equal(complete(&stage, forged).kind, REPLY_NOT_FOUND);
    assert_int_equal(complete(&stage, got.lease).state, STATE_COMPLETED_SUCCESS);
    world_release(&stage.world);
}

static void it_is_called_by_nobody(void **state)
{
    (void)state;
    struct stage stage;
    struct got got = {0};
    struct json arguments = {.type = JSON_OBJECT};
    setup(&stage);
    struct engine_call call = {
        .tool = "pay",
        .call = {.tenant = "acme", .principal = "agent", .idempotency_key = "k", .arguments = &arguments},
    };
    engine_call(stage.world.engine, &call, keep, &got);
    world_run(&stage.world);
    assert_int_equal(got.kind, REPLY_IMPOSSIBLE);
    world_release(&stage.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_elected),
        cmocka_unit_test(a_lease_outlives_the_gateway),
        cmocka_unit_test(silence_is_unknown),
        cmocka_unit_test(proven_absence),
        cmocka_unit_test(unproven_failure_is_unknown),
        cmocka_unit_test(an_operators_leave_waits_for_a_begin),
        cmocka_unit_test(nobody_is_told_without_a_lease),
        cmocka_unit_test(without_its_tool_nothing_is_judged),
        cmocka_unit_test(proof_between_lease_and_claim),
        cmocka_unit_test(tokens_are_checked),
        cmocka_unit_test(it_is_called_by_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
