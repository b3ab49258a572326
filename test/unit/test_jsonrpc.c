/* JSON-RPC messages: what each kind needs, how a bad text is answered, and that a client which waits for an answer gets
 * its id back whatever else is wrong. */
#include "base/jsonrpc.h"
#include "support/test.h"

#include <stdio.h>

static void expect(const char *text, enum rpc_kind kind, const char *id, const char *method)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault;
    arena_init(&arena);
    if (!rpc_read(&arena, str_of(text), NULL, &message, &fault))
        fail_msg("%s: %s", text, fault.err.text);
    assert_int_equal(message.kind, kind);
    assert_true(id ? str_is(message.id, id) : !message.id.p);
    assert_true(text_equal(message.method, method));
    assert_non_null(message.tree);
    arena_release(&arena);
}

static void expect_fault(const char *text, int code, const char *id, const char *words)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault;
    arena_init(&arena);
    if (rpc_read(&arena, str_of(text), NULL, &message, &fault))
        fail_msg("read: %s", text);
    if (fault.code != code || !strstr(fault.err.text, words) || (id ? !str_is(fault.id, id) : fault.id.p != NULL))
        fail_msg("%s: %d, id %.*s, %s", text, fault.code, STR_ARG(fault.id), fault.err.text);
    arena_release(&arena);
}

static void test_kinds(void **state)
{
    (void)state;
    expect("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}", RPC_REQUEST, "7", "ping");
    expect("{\"method\":\"ping\",\"params\":{},\"jsonrpc\":\"2.0\",\"id\":\"a\\u0062\"}", RPC_REQUEST, "\"ab\"",
           "ping");
    expect("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\",\"params\":null}", RPC_NOTIFICATION, NULL,
           "notifications/initialized");
    expect("{\"jsonrpc\":\"2.0\",\"id\":7.0,\"result\":{}}", RPC_RESULT, "7", NULL);
    expect("{\"jsonrpc\":\"2.0\",\"id\":-1,\"result\":null}", RPC_RESULT, "-1", NULL);
    expect("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":null}", RPC_RESULT, "1", NULL);
    expect("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null,\"error\":{\"code\":-1,\"message\":\"\"}}", RPC_ERROR, "1",
           NULL);
    expect("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"x\"}}", RPC_ERROR, NULL, NULL);
    expect("{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"x\",\"data\":[]}}", RPC_ERROR, NULL, NULL);
    expect("{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"a\"}", RPC_REQUEST, "9007199254740993", "a");
}

static void test_members(void **state)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault;
    (void)state;
    arena_init(&arena);
    assert_true(rpc_read(
        &arena, STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32020,\"message\":\"no\",\"data\":{\"a\":1}}}"),
        NULL, &message, &fault));
    assert_int_equal(message.code, -32020);
    assert_true(str_is(message.message, "no"));
    assert_int_equal(json_get_int(message.data, "a", 0), 1);
    assert_null(message.result);
    assert_true(rpc_read(&arena, STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"b\":2}}"), NULL,
                         &message, &fault));
    assert_int_equal(json_get_int(message.params, "b", 0), 2);
    arena_release(&arena);
}

static void test_invalid(void **state)
{
    (void)state;
    const int invalid = RPC_INVALID_REQUEST;
    expect_fault("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]", invalid, NULL, "batches are not taken");
    expect_fault("7", invalid, NULL, "an object, not number");
    expect_fault("{\"id\":1,\"method\":\"a\"}", invalid, "1", "\"jsonrpc\"");
    expect_fault("{\"jsonrpc\":2.0,\"id\":1,\"method\":\"a\"}", invalid, "1", "\"jsonrpc\"");
    expect_fault("{\"jsonrpc\":\"1.0\",\"id\":\"x\",\"method\":\"a\"}", invalid, "\"x\"", "\"jsonrpc\"");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1}", invalid, "1", "\"method\", \"result\" or \"error\"");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":3}", invalid, "1", "not a string");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\\u0000b\"}", invalid, "1", "NUL");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":[1]}", invalid, "1",
                 "\"params\" is not an object");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"result\":1}", invalid, NULL, "not both");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", invalid, NULL, "not both");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1.5,\"message\":\"\"}}", invalid, NULL,
                 "whole number");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":[]}", invalid, NULL, "\"error\" is not an object");
    expect_fault("{\"jsonrpc\":\"2.0\",\"result\":1}", invalid, NULL, "a result has an \"id\"");
    static const char *const ids[] = {"null", "1.5", "true", "{}", "[1]"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"a\"}", ids[i]);
        expect_fault(text, invalid, NULL, "neither a string nor a whole number");
    }
}

static void test_long_names(void **state)
{
    char text[600], name[RPC_ID_BYTES_MAX + 1];
    (void)state;
    memset(name, 'x', sizeof name);
    snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":\"%.*s\",\"method\":\"a\"}", RPC_ID_BYTES_MAX - 1, name);
    expect_fault(text, RPC_INVALID_REQUEST, NULL, "\"id\" is longer");
    snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%.*s\"}", RPC_METHOD_BYTES_MAX + 1, name);
    expect_fault(text, RPC_INVALID_REQUEST, "1", "\"method\" is longer");
}

/* Arguments that are no JSON or too large: the caller waits for an answer under its id. */
static void test_id_of_broken_text(void **state)
{
    (void)state;
    const int parse = RPC_PARSE_ERROR;
    expect_fault("{\"method\":\"tools/call\",\"params\":{\"a\":\"\\ud800\"},\"jsonrpc\":\"2.0\",\"id\":7}", parse, "7",
                 "surrogate");
    expect_fault("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"tools/call\",\"params\":{\"a\":1,\"a\":2}}", parse,
                 "\"a\"", "a");
    expect_fault("{ \"id\" : 7 , \"method\" : \"x\" , \"params\" : {\"a\": [\"}\", \"\\\"\"", parse, "7",
                 "the text ends");
    expect_fault("{\"method\":\"x\",\"params\":nonsense,\"id\":7.0}", parse, "7", "");
    /* not told: another's, none, two, half of one, no request */
    expect_fault("{\"params\":{\"id\":7,\"method\":\"x\",\"a\":1,\"a\":1},\"method\":\"x\"}", parse, NULL, "");
    expect_fault("{\"id\":7,\"id\":8,\"method\":\"x\"}", parse, NULL, "");
    expect_fault("{\"method\":\"x\",\"id\":7", parse, NULL, "");
    expect_fault("{\"method\":\"x\",\"id\":\"7", parse, NULL, "");
    expect_fault("{\"id\":7,\"result\":{\"a\":1,\"a\":2},\"method\":\"x\"}", parse, NULL, "");
    expect_fault("{\"id\":7,\"result\":{\"a\":1,\"a\":2}}", parse, NULL, "");
    expect_fault("{\"method\":\"x\",\"id\":[7],\"a\":}", parse, NULL, "");
    expect_fault("{\"method\":\"x\",\"id\":\"\\ud800\"}", parse, NULL, "");
    expect_fault("", parse, NULL, "the text ends");
    expect_fault("\"\\", parse, NULL, "");
    expect_fault("{\"a\\", parse, NULL, "");
    expect_fault("garbage", parse, NULL, "'g'");
}

static void expect_glance(const char *text, const char *id, const char *method, bool result, bool error)
{
    struct arena arena;
    arena_init(&arena);
    struct rpc_glance glance = rpc_glance(&arena, str_of(text));
    assert_true(id ? str_is(glance.id, id) : !glance.id.p);
    assert_true(method ? str_is(glance.method, method) : !glance.method.p);
    assert_int_equal(glance.result, result);
    assert_int_equal(glance.error, error);
    arena_release(&arena);
}

static void test_glance(void **state)
{
    (void)state;
    expect_glance("{\"jsonrpc\":\"2.0\",\"id\":7.0,\"method\":\"tools\\/call\",\"params\":{\"id\":8}}", "7",
                  "tools/call", false, false);
    expect_glance("{\"result\":{\"error\":1,\"method\":2},\"id\":\"\\u0061\"}", "\"a\"", NULL, true, false);
    expect_glance("{\"id\":null,\"error\":{}}", NULL, NULL, false, true);
    expect_glance("{\"method\":\"x\"}", NULL, "x", false, false);
    expect_glance("{\"id\":1,\"method\":\"x\",\"params\":[[[", "1", "x", false, false);
    expect_glance("[{\"id\":1}]", NULL, NULL, false, false);
}

static void test_limits(void **state)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault;
    struct json_limits limits = {.bytes_max = 1000, .depth_max = 4, .values_max = 10};
    (void)state;
    arena_init(&arena);
    assert_false(rpc_read(&arena, STR("{\"method\":\"x\",\"params\":{\"a\":[[[[1]]]]},\"jsonrpc\":\"2.0\",\"id\":3}"),
                          &limits, &message, &fault));
    assert_int_equal(fault.code, RPC_INVALID_REQUEST);
    assert_int_equal(fault.err.code, ERR_LIMIT);
    assert_true(str_is(fault.id, "3"));
    arena_release(&arena);
}

static void test_write(void **state)
{
    struct buf out;
    (void)state;
    buf_init(&out, 0);
    rpc_write_request(&out, STR("7"), "ping", STR_NONE);
    assert_string_equal(out.p, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}");
    buf_reset(&out);
    rpc_write_notification(&out, "a\"b", STR("{\"x\":1}"));
    assert_string_equal(out.p, "{\"jsonrpc\":\"2.0\",\"method\":\"a\\\"b\",\"params\":{\"x\":1}}");
    buf_reset(&out);
    rpc_write_result(&out, STR("\"a\""), STR("{}"));
    assert_string_equal(out.p, "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}");
    buf_reset(&out);
    rpc_write_error(&out, STR_NONE, -32700, STR("a\nb"), STR_NONE);
    assert_string_equal(out.p, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"a\\nb\"}}");
    buf_reset(&out);
    rpc_write_error(&out, STR("1"), 5, STR("m"), STR("[1]"));
    assert_string_equal(out.p, "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":5,\"message\":\"m\",\"data\":[1]}}");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_id_of_broken_text),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_glance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
