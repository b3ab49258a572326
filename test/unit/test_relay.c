/* What the outbox relay makes of answers, arguments and names. The rest of it needs a database: test/e2e/test_relay.py.
 */
#include "relay/answer.h"
#include "relay/row.h"
#include "relay/table.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

static struct relay_verdict judged(long status, const char *body)
{
    struct relay_verdict verdict;
    const struct relay_answer answer = {.status = status, .body = str_of(body)};
    relay_judge(&answer, &verdict);
    return verdict;
}

static struct relay_verdict problem(long status, const char *name, const char *more)
{
    char body[500];
    snprintf(body, sizeof body, "{\"type\": \"urn:onced:problem:%s\", \"status\": %ld, \"detail\": \"why\"%s}", name,
             status, more);
    return judged(status, body);
}

/* ---- answers ---- */

static void test_states(void **state)
{
    (void)state;
    static const char *const open[] = {"planned",          "pending_dispatch", "dispatched",  "acknowledged",
                                       "failed_retryable", "unknown_outcome",  "compensating"};
    static const char *const ended[] = {"completed_success", "completed_noop", "failed_permanent", "rejected",
                                        "compensated"};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"operation_id\": \"op_1\", \"status\": \"%s\"}", open[i]);
        struct relay_verdict verdict = judged(202, body);
        assert_int_equal(verdict.outcome, RELAY_ADMITTED);
        assert_string_equal(verdict.operation, "op_1");
        assert_false(verdict.failed || verdict.suspect);
    }
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++) {
        char body[200];
        snprintf(body, sizeof body,
                 "{\"operation_id\": \"op_1\", \"status\": \"%s\", \"error\": {\"message\": \"no\\u0000pe\"}}",
                 ended[i]);
        struct relay_verdict verdict = judged(200, body);
        assert_int_equal(verdict.outcome, RELAY_ENDED);
        assert_string_equal(verdict.status, ended[i]);
        assert_int_equal(verdict.failed, i == 2 || i == 3);
        assert_string_equal(verdict.problem, verdict.failed ? "no pe" : "");
    }
}

static void test_problems(void **state)
{
    (void)state;
    static const char *const refused[] = {"malformed",    "key_missing", "key_invalid",       "forbidden",
                                          "no_such_tool", "key_reused",  "invalid_arguments", "too_large",
                                          "guard",        "window",      "repeat_refused"};
    static const char *const later[] = {"entity_busy", "in_doubt", "budget", "internal"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct relay_verdict verdict = problem(422, refused[i], "");
        assert_int_equal(verdict.outcome, RELAY_REFUSED);
        assert_string_equal(verdict.operation, "");
        assert_non_null(strstr(verdict.problem, ": why"));
    }
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        struct relay_verdict verdict = problem(409, later[i], ", \"retry_after_ms\": 700");
        assert_int_equal(verdict.outcome, RELAY_LATER);
        assert_int_equal(verdict.retry_after_ms, 700);
        assert_false(verdict.suspect);
    }
    assert_int_equal(problem(503, "unavailable", "").outcome, RELAY_AWAY);
    assert_int_equal(problem(401, "unauthorized", "").outcome, RELAY_UNAUTHORIZED);
    struct relay_verdict named =
        problem(422, "invalid_arguments", ", \"errors\": [{\"pointer\": \"/a\", \"message\": \"is bad\"}]");
    assert_string_equal(named.problem, "invalid_arguments: why (/a: is bad)");
}

/* It was executed: the row is done, whoever may see the result. */
static void test_known_operation(void **state)
{
    (void)state;
    struct relay_verdict verdict =
        problem(409, "result_expired", ", \"operation_id\": \"op_1\", \"operation_status\": \"completed_success\"");
    assert_int_equal(verdict.outcome, RELAY_ENDED);
    assert_string_equal(verdict.status, "completed_success");
    verdict = problem(409, "result_not_shared", ", \"operation_id\": \"op_1\", \"operation_status\": \"dispatched\"");
    assert_int_equal(verdict.outcome, RELAY_ADMITTED);
    assert_string_equal(verdict.operation, "op_1");
}

/* Whatever is not onced's own word says nothing about the row. */
static void test_strangers(void **state)
{
    (void)state;
    static const struct {
        long status;
        const char *body;
    } answers[] = {
        {404, "<html>"},
        {404, "{\"type\": \"about:blank\"}"},
        {422, "{\"type\": \"urn:other:problem:key_reused\"}"},
        {200, "{}"},
        {200, "[1]"},
        {200, "{\"operation_id\": 7, \"status\": \"completed_success\"}"},
        {200, "{\"operation_id\": \"\", \"status\": \"completed_success\"}"},
        {201, "{\"operation_id\": \"op_1\", \"status\""},
        {401, ""},
        {500, "{\"operation_id\": \"op_1\", \"status\": \"completed_success\"}"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct relay_verdict verdict = judged(answers[i].status, answers[i].body);
        assert_int_equal(verdict.outcome, RELAY_LATER);
        assert_true(verdict.suspect);
        assert_string_equal(verdict.operation, "");
    }
}

/* The head alone: only 201 says how it ended. */
static void test_long_answers(void **state)
{
    (void)state;
    struct relay_verdict verdict;
    struct relay_answer answer = {.status = 201, .operation = STR("op_1"), .body = STR("{"), .over = true};
    relay_judge(&answer, &verdict);
    assert_int_equal(verdict.outcome, RELAY_ENDED);
    assert_string_equal(verdict.status, "completed_success");
    answer.status = 200;
    relay_judge(&answer, &verdict);
    assert_int_equal(verdict.outcome, RELAY_ADMITTED);
    assert_string_equal(verdict.operation, "op_1");
    answer.status = 500;
    relay_judge(&answer, &verdict);
    assert_true(verdict.outcome == RELAY_LATER && verdict.suspect);
}

/* ---- arguments ---- */

static bool fits(const char *text, const char *words)
{
    struct relay_verdict verdict = {0};
    bool fine = relay_arguments_fit(text, text ? strlen(text) : 0, 100, &verdict);
    if (!fine) {
        assert_int_equal(verdict.outcome, RELAY_REFUSED);
        assert_non_null(strstr(verdict.problem, words));
    }
    return fine;
}

static void test_arguments(void **state)
{
    (void)state;
    char deep[140];
    memset(deep, '[', 70);
    memset(deep + 70, ']', 69);
    deep[139] = '\0';
    assert_true(fits(NULL, ""));
    assert_true(fits("{}", ""));
    assert_true(fits(" {\"a\": 9007199254740993, \"b\": \"\\u0000\"} ", ""));
    assert_false(fits("null", "null"));
    assert_false(fits("[1]", "array"));
    assert_false(fits("", "cannot be sent"));
    assert_false(fits("{\"a\": 1}, \"tool\": \"other\"", "cannot be sent"));
    assert_false(fits("{\"a\": 1, \"a\": 2}", "cannot be sent"));
    assert_false(fits("{\"a\": \"\xff\"}", "cannot be sent"));
    assert_false(fits(deep, "the relay takes 100"));
    struct relay_verdict verdict;
    assert_false(relay_arguments_fit(deep, 139, 1000, &verdict));
    assert_false(relay_arguments_fit(NULL, 101, 100, &verdict)); /* too large to be read */
}

/* What a database could refuse in a text never reaches it. */
static void test_words(void **state)
{
    (void)state;
    char body[4000] = "{\"type\": \"urn:onced:problem:guard\", \"detail\": \"a\\u0000b\\n";
    size_t n = strlen(body);
    for (int i = 0; i < 800; i++, n += 3)
        memcpy(body + n, "\xe2\x82\xac", 3); /* cut between characters */
    strcpy(body + n, "\"}");
    struct relay_verdict verdict = judged(409, body);
    assert_int_equal(verdict.outcome, RELAY_REFUSED);
    n = strlen(verdict.problem);
    assert_true(n > RELAY_PROBLEM_BYTES - 4 && n < RELAY_PROBLEM_BYTES);
    assert_memory_equal(verdict.problem, "guard: a", 8);
    assert_memory_equal(verdict.problem + n - 3, "\xe2\x82\xac", 3);
    for (size_t i = 0; i < n; i++)
        assert_true((unsigned char)verdict.problem[i] >= ' ');
}

/* ---- rows ---- */

static const struct relay_settings shop = {.name = "shop", .wait_ms = 70, .arguments_bytes_max = 100};

static void expect_call(struct relay_row row, const char *wanted)
{
    struct buf body;
    buf_init(&body, 0);
    assert_true(relay_row_fits(&row, &shop));
    relay_row_write_call(&row, &shop, &body);
    assert_string_equal(body.p, wanted);
    buf_release(&body);
}

/* The key is the row's, whatever it asks for; the session is the row's own. */
static void test_call(void **state)
{
    (void)state;
    static const char arguments[] = "{\"a\": 1.0}";
    struct relay_row row = {.id = "7", .tool = "t\"x", .arguments = arguments, .arguments_bytes = sizeof arguments - 1};
    expect_call(row, "{\"tool\":\"t\\\"x\",\"arguments\":{\"a\": 1.0},\"idempotency_key\":\"outbox:shop:7\","
                     "\"session_id\":\"outbox:shop:7\",\"wait_ms\":70}");
    expect_call((struct relay_row){.id = "a\"b", .tool = "t", .run_id = "r", .entity = "e"},
                "{\"tool\":\"t\",\"arguments\":{},\"idempotency_key\":\"outbox:shop:a\\\"b\",\"session_id\":\"outbox:"
                "shop:a\\\"b\","
                "\"run_id\":\"r\",\"wait_ms\":70}");
}

static void test_unfit_rows(void **state)
{
    (void)state;
    struct relay_row none = {.id = "1"}, empty = {.id = "1", .tool = ""};
    struct relay_row tenant = {.id = "1", .tool = "t", .tenant = "a\r\nOnced-Principal: b"};
    struct relay_row path = {.id = "1", .tool = "t", .operation = "../tokens"};
    struct relay_row look = {.id = "1", .operation = "op_01ABC"};
    assert_false(relay_row_fits(&none, &shop) || relay_row_fits(&empty, &shop) || relay_row_fits(&tenant, &shop));
    assert_int_equal(tenant.verdict.outcome, RELAY_REFUSED);
    assert_false(relay_row_fits(&path, &shop));
    assert_int_equal(path.verdict.outcome, RELAY_LATER);
    assert_true(relay_row_fits(&look, &shop));
}

static bool next_goes(enum relay_outcome outcome, bool failed, enum relay_order order, enum relay_on_refusal on_refusal)
{
    const struct relay_settings settings = {.order = order, .on_refusal = on_refusal};
    const struct relay_row row = {.verdict = {.outcome = outcome, .failed = failed}};
    return relay_row_lets_next_go(&row, &settings);
}

static void test_order(void **state)
{
    (void)state;
    assert_false(next_goes(RELAY_ADMITTED, false, RELAY_AFTER_COMPLETION, RELAY_SKIP));
    assert_true(next_goes(RELAY_ADMITTED, false, RELAY_AFTER_ADMISSION, RELAY_HOLD));
    for (enum relay_order order = RELAY_AFTER_COMPLETION; order <= RELAY_AFTER_ADMISSION; order++) {
        assert_true(next_goes(RELAY_ENDED, false, order, RELAY_HOLD));
        assert_true(next_goes(RELAY_ENDED, true, order, RELAY_SKIP));
        assert_false(next_goes(RELAY_ENDED, true, order, RELAY_HOLD));
        assert_true(next_goes(RELAY_REFUSED, false, order, RELAY_SKIP));
        assert_false(next_goes(RELAY_REFUSED, false, order, RELAY_HOLD));
        assert_false(next_goes(RELAY_LATER, false, order, RELAY_SKIP));
        assert_false(next_goes(RELAY_AWAY, false, order, RELAY_SKIP));
        assert_false(next_goes(RELAY_UNAUTHORIZED, false, order, RELAY_SKIP));
    }
}

static void expect_marks(struct relay_row row, const char *status, int64_t attempts, int64_t delay_ms)
{
    assert_string_equal(relay_row_status(&row), status);
    assert_int_equal(relay_row_attempts(&row), attempts);
    assert_int_equal(relay_row_delay_ms(&row), delay_ms);
}

static void test_marks(void **state)
{
    (void)state;
    struct relay_row row = {.attempts = 3, .verdict = {.outcome = RELAY_LATER}};
    expect_marks(row, "new", 4, 1600);
    row.verdict.retry_after_ms = 5000;
    expect_marks(row, "new", 4, 5000);
    row.verdict.retry_after_ms = INT64_MAX;
    expect_marks(row, "new", 4, 300000);
    row.attempts = 1000;
    row.verdict.retry_after_ms = 0;
    expect_marks(row, "new", 1001, 300000);
    row.operation = "op_1"; /* of a look: it stays admitted, whatever was answered */
    expect_marks(row, "admitted", 1001, 30000);
    row.verdict.outcome = RELAY_ADMITTED;
    row.attempts = 2;
    expect_marks(row, "admitted", 3, 800);
    row.operation = NULL; /* the first time */
    expect_marks(row, "admitted", 0, 200);
}

/* ---- names, statements ---- */

static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = {"outbox", "o", "_x9", "a.b", "shop.outbox_2"};
    static const char *const bad[] = {"", ".", "a.", ".b", "a.b.c", "9a", "a b", "A", "a\"b", "a;b", "a.9", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(relay_name_valid(good[i], true));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(relay_name_valid(bad[i], true));
    assert_false(relay_name_valid("a.b", false));
    char name[70];
    memset(name, 'a', sizeof name);
    name[63] = '\0';
    assert_true(relay_name_valid(name, false));
    name[63] = 'a';
    name[64] = '\0';
    assert_false(relay_name_valid(name, false));
}

static const struct relay_columns columns = {
    "id",           "tool",    "arguments", "",        "entity",      "",        "", "status",
    "operation_id", "problem", "attempts",  "next_at", "admitted_at", "ended_at"};

static void expect_heads(enum relay_order order, enum relay_on_refusal on_refusal, const char *blocking)
{
    const struct relay_settings settings = {
        .table = "s.outbox", .columns = columns, .order = order, .on_refusal = on_refusal};
    char *text = relay_statement(&settings, STATEMENT_HEADS, NULL);
    assert_non_null(strstr(text, blocking));
    assert_non_null(strstr(text, "\"s\".\"outbox\""));
    assert_non_null(strstr(text, "FOR UPDATE OF o SKIP LOCKED"));
    free(text);
}

/* What keeps the next row of an entity from being taken. */
static void test_heads(void **state)
{
    (void)state;
    expect_heads(RELAY_AFTER_ADMISSION, RELAY_SKIP, "IN ('new')");
    expect_heads(RELAY_AFTER_COMPLETION, RELAY_SKIP, "IN ('new', 'admitted')");
    expect_heads(RELAY_AFTER_COMPLETION, RELAY_HOLD,
                 "IN ('new', 'admitted', 'refused', 'failed_permanent', 'rejected')");
    expect_heads(RELAY_AFTER_ADMISSION, RELAY_HOLD, "IN ('new', 'refused', 'failed_permanent', 'rejected')");
    struct relay_settings settings = {.table = "outbox", .columns = columns};
    settings.columns.entity = "";
    char *text = relay_statement(&settings, STATEMENT_HEADS, NULL);
    assert_null(strstr(text, "EXISTS"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),       cmocka_unit_test(test_problems),  cmocka_unit_test(test_known_operation),
        cmocka_unit_test(test_strangers),    cmocka_unit_test(test_arguments), cmocka_unit_test(test_words),
        cmocka_unit_test(test_long_answers), cmocka_unit_test(test_call),      cmocka_unit_test(test_unfit_rows),
        cmocka_unit_test(test_order),        cmocka_unit_test(test_marks),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
