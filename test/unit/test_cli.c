/* The pure parts of the command line: names, options, arguments of a call, times, tables, the timeline. */
#include "cli/call_body.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/timeline.h"
#include "cli/view.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* ---- commands and options ---- */

static void test_nearest(void **state)
{
    (void)state;
    assert_string_equal(cli_command_nearest("servr")->name, "serve");
    assert_string_equal(cli_command_nearest("lsit")->name, "list");
    assert_string_equal(cli_command_nearest("resolv")->name, "resolve");
    assert_string_equal(cli_command_nearest("inc")->name, "incidents");
    assert_string_equal(cli_command_nearest("fake")->name, "fake-provider");
    assert_string_equal(cli_command_nearest("trcae")->name, "trace");
    assert_null(cli_command_nearest("xylophone"));
    assert_null(cli_command_nearest("this-is-a-word-of-more-than-thirty-two-letters"));
    assert_null(cli_command_nearest(""));
}

static void test_tables_are_sound(void **state)
{
    (void)state;
    for (size_t c = 0; cli_commands[c]; c++) {
        const struct cli_command *command = cli_commands[c];
        const struct cli_option *option, *other;
        assert_ptr_equal(cli_command_find(command->name), command);
        assert_non_null(command->run);
        assert_non_null(command->summary);
        for (size_t i = 0; (option = cli_command_option(command, i)); i++) {
            assert_true(i < CLI_OPTIONS_MAX);
            assert_non_null(option->text);
            assert_true(option->text[strlen(option->text) - 1] != '.');
            for (size_t j = 0; j < i; j++) {
                other = cli_command_option(command, j);
                assert_int_not_equal(option->id, other->id);
                assert_string_not_equal(option->name, other->name);
            }
        }
    }
    assert_null(cli_command_find("nothing"));
}

static void test_options_and_operands_mix(void **state)
{
    (void)state;
    char words[][20] = {"call", "pay", "--key", "k 1", "-a", "x=1", "--server=http://h", "--json", "--arg", "y=2"};
    char *argv[11] = {NULL};
    for (size_t i = 0; i < 10; i++)
        argv[i] = words[i];
    struct cli_args args;
    cli_args_init(&args, &cli_call_command, 10, argv);
    assert_int_equal(cli_args_next(&args), 'k');
    assert_string_equal(args.value, "k 1");
    assert_int_equal(cli_args_next(&args), 'a');
    assert_string_equal(args.value, "x=1");
    assert_int_equal(cli_args_next(&args), 'a'); /* shared ones were taken on the way */
    assert_string_equal(args.value, "y=2");
    assert_int_equal(cli_args_next(&args), CLI_ARGS_END);
    assert_true(args.json);
    assert_string_equal(args.connection.server, "http://h");
    assert_int_equal(args.operand_count, 1);
    assert_string_equal(args.operands[0], "pay");
    assert_true(cli_args_operands(&args, 1, 1));
}

/* ---- arguments of a call ---- */

static void expect_body(const struct call_body *body, const char *expected)
{
    struct buf text;
    buf_init(&text, 0);
    call_body_write(body, &text);
    assert_string_equal(text.p, expected);
    buf_release(&text);
}

static void test_call_body(void **state)
{
    (void)state;
    struct arena arena;
    struct call_body body;
    struct err err = {0};
    arena_init(&arena);
    call_body_init(&body, &arena);
    body.tool = "refund.create";
    expect_body(&body, "{\"tool\":\"refund.create\",\"arguments\":{}}");
    assert_int_equal(call_body_args(&body, STR("{\"a\": 1.00, \"b\": [true]}"), &err), ERR_NONE);
    assert_int_equal(call_body_arg(&body, "a=9007199254740993", &err), ERR_NONE);
    assert_int_equal(call_body_arg(&body, "c=pay_1", &err), ERR_NONE);
    assert_int_equal(call_body_arg(&body, "d=\"5\"", &err), ERR_NONE);
    assert_int_equal(call_body_arg(&body, "e=", &err), ERR_NONE);
    assert_int_equal(call_body_arg(&body, "f=a=b", &err), ERR_NONE);
    assert_int_equal(call_body_arg(&body, "g=007", &err), ERR_NONE);
    body.key = "k\"1";
    body.wait_ms = 0;
    body.dry_run = true;
    assert_int_equal(call_body_distinct(&body, "op_1", &err), ERR_NONE);
    expect_body(&body, "{\"tool\":\"refund.create\",\"arguments\":{\"a\":9007199254740993,\"b\":[true],\"c\":\"pay_1\","
                       "\"d\":\"5\",\"e\":\"\",\"f\":\"a=b\",\"g\":\"007\"},\"idempotency_key\":\"k\\\"1\","
                       "\"distinct_from\":[\"op_1\"],\"wait_ms\":0,\"dry_run\":true}");
    arena_release(&arena);
}

static void test_call_body_refuses(void **state)
{
    (void)state;
    struct arena arena;
    struct call_body body;
    struct err err = {0};
    arena_init(&arena);
    call_body_init(&body, &arena);
    assert_int_equal(call_body_arg(&body, "novalue", &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "NAME=VALUE"));
    err_clear(&err);
    assert_int_equal(call_body_arg(&body, "=1", &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(call_body_args(&body, STR("[1]"), &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "object"));
    err_clear(&err);
    assert_int_equal(call_body_args(&body, STR("{\"a\":1,\"a\":2}"), &err), ERR_INVALID);
    err_clear(&err);
    assert_int_equal(call_body_args_file(&body, "/does/not/exist", &err), ERR_IO);
    for (int i = 0; i < CALL_DISTINCT_MAX; i++)
        assert_int_equal(call_body_distinct(&body, "op", NULL), ERR_NONE);
    assert_int_equal(call_body_distinct(&body, "op", NULL), ERR_LIMIT);
    arena_release(&arena);
}

/* ---- output ---- */

struct page {
    struct out out;
    char *text;
    size_t n;
};

static void page_init(struct page *page)
{
    page->out = (struct out){.file = open_memstream(&page->text, &page->n)};
    assert_non_null(page->out.file);
}

static void page_is(struct page *page, const char *expected)
{
    fclose(page->out.file);
    assert_string_equal(page->text, expected);
    free(page->text);
}

static void test_control_bytes_are_shown(void **state)
{
    (void)state;
    struct page page;
    page_init(&page);
    out_str(&page.out, OUT_RED,
            STR("a\033[2Jb\nc\x7f\xc2\x9b"
                "d \xc3\xa9"));
    page_is(&page, "a\\x1b[2Jb\\x0ac\\x7f\\x9bd \xc3\xa9");
    page_init(&page);
    page.out.colours = true;
    out_text(&page.out, OUT_RED, "x");
    out_text(&page.out, OUT_PLAIN, "y");
    page_is(&page, "\033[31mx\033[0my");
}

static void test_table(void **state)
{
    (void)state;
    static const char *const heads[] = {"A", "LONG", "C"};
    struct arena arena;
    struct out_table table;
    struct out_cell *cells;
    struct page page;
    arena_init(&arena);
    out_table_init(&table, &arena, heads, 3);
    for (int i = 0; i < 40; i++) /* grows */
        out_table_row(&table)[0].text = STR("x");
    table.rows = 0;
    cells = out_table_row(&table);
    cells[0].text = STR("\xc3\xa4\xc3\xa4\xc3\xa4");
    cells[1].text = STR("b");
    cells[2].text = STR("something long");
    cells = out_table_row(&table);
    cells[0].text = STR("1");
    page_init(&page);
    out_table_print(&page.out, &table);
    page_is(&page, "A    LONG  C\n\xc3\xa4\xc3\xa4\xc3\xa4  b     something long\n1\n");
    page_init(&page);
    page.out.columns = 20;
    out_table_print(&page.out, &table);
    page_is(&page, "A    LONG  C\n\xc3\xa4\xc3\xa4\xc3\xa4  b     somethin\xe2\x80\xa6\n1\n");
    arena_release(&arena);
}

static void span_is(int64_t ms, const char *expected)
{
    char text[OUT_SPAN_SIZE];
    out_span(ms, text);
    assert_string_equal(text, expected);
}

static void test_times(void **state)
{
    (void)state;
    int64_t ms = 0;
    assert_true(out_parse_time(STR("2026-11-29T16:23:28.123Z"), &ms));
    assert_int_equal(ms, INT64_C(1795969408123));
    assert_true(out_parse_time(STR("1970-01-01T01:00:00.5+01:00"), &ms));
    assert_int_equal(ms, 500);
    assert_false(out_parse_time(STR("yesterday"), &ms));
    assert_false(out_parse_time(STR_NONE, &ms));
    span_is(0, "0 ms");
    span_is(999, "999 ms");
    span_is(1250, "1.2 s");
    span_is(59999, "59.9 s");
    span_is(185000, "3 min 05 s");
    span_is(7800000, "2 h 10 min");
    span_is(INT64_C(273600000), "3 d 4 h");
    span_is(-1500, "-1.5 s");
}

/* ---- what states mean ---- */

static struct json *parsed(struct arena *arena, const char *text)
{
    struct json *value = NULL;
    assert_int_equal(json_parse(arena, str_of(text), NULL, &value, NULL), ERR_NONE);
    return value;
}

static void test_exit_codes(void **state)
{
    (void)state;
    static const struct {
        const char *status;
        int code;
    } cases[] = {
        {"completed_success", CLI_OK},  {"completed_noop", CLI_OK},    {"failed_permanent", CLI_FAILED},
        {"rejected", CLI_FAILED},       {"compensated", CLI_FAILED},   {"planned", CLI_OPEN},
        {"pending_dispatch", CLI_OPEN}, {"dispatched", CLI_OPEN},      {"acknowledged", CLI_OPEN},
        {"failed_retryable", CLI_OPEN}, {"unknown_outcome", CLI_OPEN}, {"compensating", CLI_OPEN},
        {"something_new", CLI_OPEN},
    };
    struct arena arena;
    arena_init(&arena);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = arena_printf(&arena, "{\"status\":\"%s\"}", cases[i].status);
        assert_int_equal(view_operation_exit(parsed(&arena, text)), cases[i].code);
    }
    struct client_answer answer = {.status = 409};
    answer.json =
        parsed(&arena, "{\"type\":\"urn:onced:problem:result_expired\",\"operation_status\":\"completed_success\"}");
    assert_int_equal(view_problem_exit(&answer), CLI_OK);
    answer.json = parsed(&arena, "{\"type\":\"urn:onced:problem:in_doubt\",\"operation_status\":\"unknown_outcome\"}");
    assert_int_equal(view_problem_exit(&answer), CLI_FAILED);
    arena_release(&arena);
}

/* ---- the timeline ---- */

static void test_timeline_merges(void **state)
{
    (void)state;
    struct arena arena;
    struct page page;
    arena_init(&arena);
    struct trace trace = {
        .operation =
            parsed(&arena, "{\"operation_id\":\"op_1\",\"tool\":\"pay\",\"status\":\"completed_success\","
                           "\"created_at\":\"2026-01-01T00:00:00.000Z\",\"version\":3,\"incidents\":[{\"id\":\"in_1\","
                           "\"kind\":\"late_landing\",\"at\":\"2026-01-01T00:01:00.000Z\",\"note\":\"n\"}]}"),
        .events = parsed(&arena, "[{\"at\":\"2026-01-01T00:00:00.000Z\",\"cause\":\"admitted\",\"from\":\"dispatched\","
                                 "\"to\":\"dispatched\",\"actor\":\"agent\"},"
                                 "{\"at\":\"2026-01-01T00:00:00.000Z\",\"cause\":\"answer\",\"from\":\"dispatched\","
                                 "\"to\":\"completed_success\",\"actor\":\"onced\"}]"),
        .attempts = parsed(
            &arena, "[{\"number\":1,\"kind\":\"call\",\"outcome\":\"success\",\"http_status\":201,"
                    "\"started_at\":\"2026-01-01T00:00:00.000Z\",\"finished_at\":\"2026-01-01T00:00:00.000Z\"}]"),
    };
    page_init(&page);
    trace_print(&page.out, &trace, INT64_C(1767225600000));
    page_is(&page, "pay  op_1  completed_success\n"
                   "  effect        proven: it happened\n"
                   "  created       2026-01-01 00:00:00 UTC (0 ms ago)\n"
                   "  version       3\n"
                   "\n"
                   "  +0 ms        admitted    dispatched  by agent\n"
                   "  +0 ms          #1 request to the provider\n"
                   "  +0 ms          #1 ended: success, HTTP 201, after 0 ms\n"
                   "  +0 ms        answer      dispatched \xe2\x86\x92 completed_success\n"
                   "  +1 min 00 s  incident    late_landing in_1  n\n"
                   "\n");
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_tables_are_sound),
        cmocka_unit_test(test_options_and_operands_mix),
        cmocka_unit_test(test_call_body),
        cmocka_unit_test(test_call_body_refuses),
        cmocka_unit_test(test_control_bytes_are_shown),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_timeline_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
