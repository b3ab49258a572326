/* jq programs: exact numbers or none, nothing but the input within reach. */
#include "support/sections.h"

#include "adapter/jq.h"

#include <stdlib.h>

/* Result as compact JSON text, or "!" + error. Heap. */
static char *run(const char *program_text, const char *input)
{
    struct arena arena;
    arena_init(&arena);
    struct err err = {0};
    struct jq_program *program = NULL;
    struct json *result = NULL;
    struct buf buf;
    buf_init(&buf, 0);
    struct jq_places places = {.operation = "op_1", .key = "k", .tenant = "t"};
    if (jq_program_new(program_text, true, &program, &err) == ERR_NONE &&
        jq_program_run(program, &arena, parse(&arena, input), &places, &result, &err) == ERR_NONE)
        json_write(&buf, result);
    else
        buf_printf(&buf, "!%s", err.text);
    jq_program_free(program);
    arena_release(&arena);
    return buf_detach(&buf, NULL);
}

static void expect(const char *program, const char *input, const char *wanted)
{
    char *got = run(program, input);
    assert_string_equal(got, wanted);
    free(got);
}

static void expect_error(const char *program, const char *input, const char *part)
{
    char *got = run(program, input);
    if (got[0] != '!' || !strstr(got, part))
        fail_msg("%s: expected an error with \"%s\", got %s", program, part, got);
    free(got);
}

static void test_values(void **state)
{
    (void)state;
    expect("{payment: .id, amount: .amount, operation: $operation, run: $run}", "{\"id\":\"p\",\"amount\":4900}",
           "{\"payment\":\"p\",\"amount\":4900,\"operation\":\"op_1\",\"run\":null}");
    expect(".a[1:] | map(. * 2)", "{\"a\":[1,2,3]}", "[4,6]");
    expect(". # a comment at the end", "true", "true");
    expect("def twice: . + .; twice", "\"ab\\u0000\\u00e9\"",
           "\"ab\\u0000\xc3\xa9"
           "ab\\u0000\xc3\xa9\"");
    expect("{}", "null", "{}");
}

static void test_numbers(void **state)
{
    (void)state;
    expect(".", "9007199254740992", "9007199254740992");
    expect(".", "0.1", "0.1");
    expect(".", "-0.30000000000000004", "-0.30000000000000004");
    expect(".", "1.50", "1.5");
    expect(".", "1e300", "1e+300");
    expect(".", "-0", "0");
    expect(". / 3", "1", "0.3333333333333333");
    expect_error(".", "{\"a\":[{\"b/c\":9007199254740993}]}", "/a/0/b~1c: jq would change the number 9007199254740993");
    expect_error(".", "1e400", "jq would change");
    expect_error(".", "0.1000000000000000055511151231257827", "jq would change");
    expect_error("infinite", "null", "infinity");
    expect_error("nan", "null", "nan");
}

static void test_one_value(void **state)
{
    (void)state;
    expect_error("empty", "null", "no value");
    expect_error("1, 2", "null", "more than one");
    expect_error("1, error(\"late\")", "null", "late");
    expect_error(".a.b", "{\"a\":1}", "Cannot index number");
    expect_error("error(\"no such thing\")", "null", "no such thing");
    expect_error("error({})", "null", "error value");
}

static void test_bounds(void **state)
{
    (void)state;
    expect_error("reduce range(100) as $i (null; [.])", "null", "nested deeper");
    expect_error("[range(1100000)]", "null", "over");
}

static void test_out_of_reach(void **state)
{
    (void)state;
    expect_error("env", "null", "\"env\" is not available");
    expect_error("$ENV.PATH", "null", "\"$ENV\" is not available");
    expect_error("\"a\\(env.PATH)\"", "null", "\"env\" is not available");
    expect_error("[input, 1]", "null", "\"input\"");
    expect_error("inputs", "null", "\"inputs\"");
    expect_error("import \"a\" as a; .", "null", "\"import\"");
    expect_error("include \"a\"; .", "null", "\"include\"");
    expect_error("now", "null", "\"now\"");
    expect_error("1) | (2", "null", "without");
    expect_error(".a | halt_error", "null", "\"halt_error\"");
    /* as names of members they are data */
    expect("{env: .env, \"now\": .input}", "{\"env\":1,\"input\":2}", "{\"env\":1,\"now\":2}");
    expect("{input}", "{\"input\":2}", "{\"input\":2}");
    expect("\"env now \\(.env)\" # input", "{\"env\":1}", "\"env now 1\"");
}

/* What the scanner takes for a member name cannot run either. */
static void test_hidden(void **state)
{
    (void)state;
    setenv("JQ_TEST_SECRET", "hunter2", 1);
    expect_error("{a: (1 | env)} | .a | .JQ_TEST_SECRET", "null", "env");
    expect_error("if true then env else null end", "null", "env");
    expect_error("{a: env}", "null", "env is not available");
    expect_error("{a: {b: now}}", "null", "now is not available");
    char *got = run("{(env|tojson): 1, b: $__loc__}", "null");
    assert_null(strstr(got, "hunter2"));
    free(got);
    expect_error("reduce env as $x (0; 1)", "null", "env");
}

static void test_syntax(void **state)
{
    (void)state;
    expect_error("{a: ", "null", "syntax error");
    expect_error("nonsense", "null", "nonsense/0 is not defined");
    expect_error(". | $nowhere", "null", "$nowhere is not defined");
}

static void test_conditions(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct err err = {0};
    struct jq_program *program = NULL;
    bool truth = false;
    assert_int_equal(jq_program_new(".ok == true", false, &program, &err), ERR_NONE);
    assert_int_equal(jq_program_test(program, parse(&arena, "{\"ok\":true,\"id\":9007199254740993}"), &truth, &err), 0);
    assert_true(truth);
    assert_int_equal(jq_program_test(program, parse(&arena, "{\"ok\":1}"), &truth, &err), ERR_NONE);
    assert_false(truth);
    assert_int_equal(jq_program_test(program, parse(&arena, "[]"), &truth, &err), ERR_INVALID);
    jq_program_free(program);
    err_clear(&err);
    assert_int_equal(jq_program_new(".errors", false, &program, &err), ERR_NONE);
    truth = true;
    assert_int_equal(jq_program_test(program, parse(&arena, "{}"), &truth, &err), ERR_NONE);
    assert_false(truth);
    jq_program_free(program);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_numbers),      cmocka_unit_test(test_one_value),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_out_of_reach), cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_syntax), cmocka_unit_test(test_conditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
