/* YAML into JSON trees, with places: what is accepted, what is refused and where. */
#include "daemon/yaml.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

/* The tree as compact JSON, or the problems as "line:column: text\n". */
static char *parse(struct arena *arena, struct str text)
{
    struct yaml yaml;
    struct buf buf;
    buf_init(&buf, 0);
    enum err_code code = yaml_parse(arena, text, &yaml);
    if (code == ERR_NONE) {
        assert_non_null(yaml.root);
        assert_int_equal(yaml.problem_count, 0);
        json_write(&buf, yaml.root);
    } else {
        assert_null(yaml.root);
        assert_true(yaml.problem_count > 0);
    }
    for (size_t i = 0; i < yaml.problem_count; i++)
        buf_printf(&buf, "%u:%u: %s\n", yaml.problems[i].line, yaml.problems[i].column, yaml.problems[i].text);
    char *result = arena_copy_str(arena, buf_str(&buf));
    buf_release(&buf);
    return result;
}

static void expect(const char *text, const char *wanted)
{
    struct arena arena;
    arena_init(&arena);
    assert_string_equal(parse(&arena, str_of(text)), wanted);
    arena_release(&arena);
}

static void expect_problem(const char *text, const char *part)
{
    struct arena arena;
    arena_init(&arena);
    const char *got = parse(&arena, str_of(text));
    if (!strstr(got, part))
        fail_msg("wanted \"%s\" in \"%s\"", part, got);
    arena_release(&arena);
}

static void test_scalars(void **state)
{
    (void)state;
    expect("a: 1\nb: -2.50\nc: 1e3\nd: 9007199254740993\n", "{\"a\":1,\"b\":-2.50,\"c\":1e3,\"d\":9007199254740993}");
    expect("[true, False, null, ~, ]", "[true,false,null,null]");
    expect("a:\nb: ''\n", "{\"a\":null,\"b\":\"\"}");
    expect("[10s, v1, 1:30, 127.0.0.1:7070, 1.2.3, 2026-01-01, 1_000, y, n]",
           "[\"10s\",\"v1\",\"1:30\",\"127.0.0.1:7070\",\"1.2.3\",\"2026-01-01\",\"1_000\",\"y\",\"n\"]");
    expect("['1', \"true\", 'null', \"yes\", \"0x10\"]", "[\"1\",\"true\",\"null\",\"yes\",\"0x10\"]");
    expect("a: |\n  1\nb: >\n  x\n  y\n", "{\"a\":\"1\\n\",\"b\":\"x y\\n\"}");
    expect("\"\\u00e9\": \"caf\\u00e9\"", "{\"é\":\"café\"}");
    expect("just text", "\"just text\"");
    expect("{}", "{}");
    expect("{yes: 1, on: 2}", "{\"yes\":1,\"on\":2}"); /* as names they mean one thing */
}

static void test_doubtful_scalars(void **state)
{
    (void)state;
    expect("a: yes\nb: Off\n",
           "1:4: yes is a boolean to some YAML readers and text to others: write true, or \"yes\" in "
           "quotes\n2:4: Off is a boolean to some YAML readers and text to others: write false, or "
           "\"Off\" in quotes\n");
    static const char *const numbers[] = {"0x10", "0o17",  "0b1",  "007",   "+1",   "1.",     ".5",  "1.e3",
                                          ".inf", "-.Inf", ".nan", "+.INF", "-0x1", "-.5e-3", "00.5"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[64], wanted[160];
        snprintf(text, sizeof text, "a:  %s\n", numbers[i]);
        snprintf(wanted, sizeof wanted,
                 "1:5: %s is not a number as JSON writes it: write a decimal number, or \"%s\" in quotes\n", numbers[i],
                 numbers[i]);
        expect(text, wanted);
    }
}

static void test_keys(void **state)
{
    (void)state;
    expect("a: 1\nb: 2\n'a': 3\n", "3:1: \"a\" is given twice, first in line 1\n");
    expect("a: {b: 1, b: 2}\nc: [{d: 1, d: 2}]\n",
           "1:11: \"b\" is given twice, first in line 1\n2:12: \"d\" is given twice, first in line 2\n");
    expect("1: x\n", "1:1: a key must be text: put \"1\" in quotes\n");
    expect("true: x\nnull: y\n1.5: z\n",
           "1:1: a key must be text: put \"true\" in quotes\n2:1: a key must be text: put "
           "\"null\" in quotes\n3:1: a key must be text: put \"1.5\" in quotes\n");
    expect("? [a]\n: x\n", "1:3: a key must be text, this one is a list or mapping\n");
    expect("a: &x y\n*x : 1\n", "2:1: a key must be text, this one is an alias\n");
    expect("a: &x {b: 1}\nc:\n  <<: *x\n", "3:3: merge keys (<<) are not supported: repeat the members\n");
}

static void test_refused_syntax(void **state)
{
    (void)state;
    expect("", "1:1: the file is empty\n");
    expect("# only a comment\n", "1:1: the file is empty\n");
    expect("a: 1\n---\nb: 2\n", "2:1: a second document starts here, the file must hold exactly one\n");
    expect("%YAML 1.1\n---\na: 1\n", "1:1: directives (%YAML, %TAG) are not supported\n");
    expect_problem("a: !!str 1\n", "1:10: tags are not supported");
    expect_problem("a: !x {}\n", "tags are not supported");
    expect_problem("a: [1\nb: \"x", "2:5: ");
    expect_problem("a: 1\n b: 2\n", "1:4: ");
    expect_problem("a:\n\tb: 1\n", "2:1: ");
    expect_problem("a: b: c\n", "1:");
    expect_problem("a: \"\\ud800\"\n", "1:");
    expect("a: \"x\\0y\"\n", "1:4: NUL characters are not allowed\n");
    expect("a: b\001\n", "1:5: control character U+0001 is not allowed\n");
    expect("a: b\nc: \xc3\x28\n", "2:4: the text is not valid UTF-8\n");
    struct arena arena;
    arena_init(&arena);
    assert_string_equal(parse(&arena, (struct str){"a: b\0c", 6}), "1:5: control character U+0000 is not allowed\n");
    arena_release(&arena);
}

static void test_anchors(void **state)
{
    (void)state;
    expect("a: &x {b: 1}\nc: *x\nd: [*x, *x]\n", "{\"a\":{\"b\":1},\"c\":{\"b\":1},\"d\":[{\"b\":1},{\"b\":1}]}");
    expect("a: &x 1\nb: *x\nc: &x 2\nd: *x\n", "{\"a\":1,\"b\":1,\"c\":2,\"d\":2}");
    expect("a: *x\n", "1:4: alias *x names no anchor that was completed before it\n");
    expect("a: &x [*x]\n", "1:8: alias *x names no anchor that was completed before it\n");
}

static void expect_limit(const struct buf *text, const char *part)
{
    struct arena arena;
    struct yaml yaml;
    arena_init(&arena);
    assert_int_equal(yaml_parse(&arena, buf_str(text), &yaml), ERR_LIMIT);
    assert_true(yaml.problem_count > 0);
    if (!strstr(yaml.problems[yaml.problem_count - 1].text, part))
        fail_msg("wanted \"%s\" in \"%s\"", part, yaml.problems[yaml.problem_count - 1].text);
    assert_true(arena.bytes < 64 * 1024 * 1024);
    arena_release(&arena);
}

static void test_limits(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 0);
    /* a billion laughs: each level is ten of the former */
    buf_add_text(&text, "a0: &a0 x\n");
    for (int i = 1; i <= 10; i++) {
        buf_printf(&text, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            buf_printf(&text, "*a%d,", i - 1);
        buf_add_text(&text, "]\n");
    }
    expect_limit(&text, "more than 100000 values (aliases expanded) are not allowed");
    buf_reset(&text);
    /* depth by aliases */
    buf_add_text(&text, "a0: &a0 [x]\n");
    for (int i = 1; i <= 60; i++)
        buf_printf(&text, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    expect_limit(&text, "nested deeper than 48 levels");
    buf_reset(&text);
    for (int i = 0; i < 60; i++)
        buf_add_char(&text, '[');
    expect_limit(&text, "nested deeper than 48 levels");
    buf_reset(&text);
    for (int i = 0; i < 300; i++)
        buf_printf(&text, "- &a%d x\n", i);
    expect_limit(&text, "more than 256 anchors are not allowed");
    buf_reset(&text);
    for (int i = 0; i < 200000; i++)
        buf_add_text(&text, "- \n");
    expect_limit(&text, "more than 100000 values");
    buf_reset(&text);
    for (int i = 0; i < 300000; i++)
        buf_add_text(&text, "# x\n");
    expect_limit(&text, "bytes, at most 1048576 are allowed");
    buf_release(&text);
}

static void expect_place(const struct yaml *yaml, const char *pointer, unsigned line, unsigned column)
{
    struct yaml_place place = yaml_find(yaml, str_of(pointer));
    if (place.line != line || place.column != column)
        fail_msg("%s: wanted %u:%u, got %u:%u", pointer, line, column, place.line, place.column);
}

static void test_places(void **state)
{
    (void)state;
    struct arena arena;
    struct yaml yaml;
    arena_init(&arena);
    const char *text = "# comment\n"
                       "a: 1\n"
                       "b:\n"
                       "  - x\n"
                       "  - {c: 1, \"d/e~\": [1, 2]}\n"
                       "é: {f: &g {h: 1}, i: *g}\n"
                       "j: |\n"
                       "  text\n"
                       "k: 2\n";
    assert_int_equal(yaml_parse(&arena, str_of(text), &yaml), ERR_NONE);
    expect_place(&yaml, "", 2, 1);
    expect_place(&yaml, "/a", 2, 1);
    expect_place(&yaml, "/a/deeper", 2, 1);
    expect_place(&yaml, "/b", 3, 1);
    expect_place(&yaml, "/b/0", 4, 5);
    expect_place(&yaml, "/b/1", 5, 5);
    expect_place(&yaml, "/b/7", 3, 1);
    expect_place(&yaml, "/b/1/c", 5, 6);
    expect_place(&yaml, "/b/1/d~1e~0", 5, 12);
    expect_place(&yaml, "/b/1/d~1e~0/1", 5, 24);
    expect_place(&yaml, "/é/f/h", 6, 12);
    expect_place(&yaml, "/é/i", 6, 19);
    expect_place(&yaml, "/é/i/h", 6, 12); /* where the anchored text stands */
    expect_place(&yaml, "/k", 9, 1);
    expect_place(&yaml, "/missing/x", 2, 1);
    arena_release(&arena);
}

static void test_several_problems(void **state)
{
    (void)state;
    expect("a: yes\na: 0x1\n1: !x y\n",
           "1:4: yes is a boolean to some YAML readers and text to others: write true, or \"yes\" in quotes\n"
           "2:4: 0x1 is not a number as JSON writes it: write a decimal number, or \"0x1\" in quotes\n"
           "3:1: a key must be text: put \"1\" in quotes\n"
           "3:7: tags are not supported: put text in quotes instead\n"
           "2:1: \"a\" is given twice, first in line 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),        cmocka_unit_test(test_doubtful_scalars), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_refused_syntax), cmocka_unit_test(test_anchors),          cmocka_unit_test(test_limits),
        cmocka_unit_test(test_places),         cmocka_unit_test(test_several_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
