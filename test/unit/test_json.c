#include "support/test.h"

#include "base/json.h"
#include "support/suites.h"

#include <stdio.h>
#include <stdlib.h>

struct fixture {
    struct arena arena;
    struct buf buf;
    struct err err;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena);
    buf_init(&f->buf, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    buf_release(&f->buf);
    free(f);
    return 0;
}

static struct json *parse_str(struct fixture *f, struct str text)
{
    struct json *value = NULL;
    err_clear(&f->err);
    if (json_parse(&f->arena, text, NULL, &value, &f->err) != ERR_NONE)
        fail_msg("%.*s: %s", STR_ARG(text), f->err.text);
    return value;
}

static struct json *parse(struct fixture *f, const char *text)
{
    return parse_str(f, str_of(text));
}

static const char *refused(struct fixture *f, const char *text, enum err_code expected)
{
    struct json *value = NULL;
    err_clear(&f->err);
    assert_int_equal(json_parse(&f->arena, str_of(text), NULL, &value, &f->err), expected);
    assert_null(value);
    assert_int_equal(f->err.code, expected);
    return f->err.text;
}

static const char *canonical(struct fixture *f, const char *text)
{
    buf_reset(&f->buf);
    json_canonical(&f->buf, parse(f, text));
    return f->buf.p;
}

static const char *written(struct fixture *f, const struct json *value)
{
    buf_reset(&f->buf);
    json_write(&f->buf, value);
    return f->buf.p;
}

/* ---- reading ---- */

static void test_reads_every_type(void **state)
{
    struct fixture *f = *state;
    struct json *v =
        parse(f, " { \"n\" : null , \"t\":true,\"f\":false,\"i\":-12.50e+3,\"s\":\"x\",\"a\":[1,[],{}],\"o\":{}}\n");
    assert_int_equal(v->type, JSON_OBJECT);
    assert_int_equal(v->count, 7);
    assert_int_equal(json_get(v, "n")->type, JSON_NULL);
    assert_true(json_get_bool(v, "t", false));
    assert_false(json_get_bool(v, "f", true));
    assert_true(str_is(json_get(v, "i")->text, "-12.50e+3"));
    assert_true(str_is(json_get_text(v, "s"), "x"));
    assert_int_equal(json_get(v, "a")->count, 3);
    assert_int_equal(json_get(v, "o")->count, 0);
    assert_null(json_get(v, "absent"));
    assert_null(json_get(json_get(v, "a"), "n"));
    assert_null(json_get(NULL, "n"));
}

static void test_typed_look_ups_fall_back(void **state)
{
    struct fixture *f = *state;
    struct json *v = parse(f, "{\"i\":4.9e1,\"big\":9223372036854775808,\"s\":\"7\"}");
    assert_int_equal(json_get_int(v, "i", -1), 49);
    assert_int_equal(json_get_int(v, "big", -1), -1);
    assert_int_equal(json_get_int(v, "s", -1), -1);
    assert_null(json_get_text(v, "i").p);
    assert_true(json_get_bool(v, "s", true));
}

static void test_decodes_strings(void **state)
{
    struct fixture *f = *state;
    struct json *v =
        parse(f, "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"a\\u00e9\\u20ac\\ud83d\\ude00z\",\"\\u0000x\",\"é€😀\",\"\"]");
    assert_true(str_is(v->items[0].text, "\"\\/\b\f\n\r\t"));
    assert_true(str_is(v->items[1].text, "aé€😀z"));
    assert_true(str_equal(v->items[2].text, STR("\0x")));
    assert_true(str_is(v->items[3].text, "é€😀"));
    assert_int_equal(v->items[4].text.n, 0);
}

static void test_does_not_point_into_the_text(void **state)
{
    struct fixture *f = *state;
    char text[] = "{\"name\":[\"value\",12.5]}";
    struct json *v = parse(f, text);
    memset(text, 'x', sizeof text);
    assert_string_equal(written(f, v), "{\"name\":[\"value\",12.5]}");
}

static void test_refuses_with_position(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(refused(f, "{\"a\":1,\n  \"é\":[1,]}", ERR_INVALID),
                        "line 2, column 10 (byte 18): ']' where a value was expected");
    assert_string_equal(refused(f, "", ERR_INVALID),
                        "line 1, column 1 (byte 0): the text ends where a value was expected");
    assert_non_null(strstr(refused(f, "\"abc", ERR_INVALID), "(byte 4): the text ends within a string"));
    assert_non_null(strstr(refused(f, "\"a\nb\"", ERR_INVALID), "(byte 2): control byte 0x0a"));
    assert_non_null(strstr(refused(f, "[1 2]", ERR_INVALID), "(byte 3): '2' where ',' or ']' was expected"));
    assert_non_null(strstr(refused(f, "{1:2}", ERR_INVALID), "(byte 1): '1' where a member name"));
    assert_non_null(strstr(refused(f, "{\"a\":1,}", ERR_INVALID), "(byte 7): '}' where a member name"));
    assert_non_null(strstr(refused(f, "1 x", ERR_INVALID), "(byte 2): 'x' where the end of the text"));
    assert_non_null(strstr(refused(f, "01", ERR_INVALID), "(byte 1): '1' where the end of the text"));
    assert_non_null(strstr(refused(f, "-", ERR_INVALID), "the text ends where a digit was expected"));
    assert_non_null(strstr(refused(f, "1.e5", ERR_INVALID), "(byte 2): 'e' where a digit was expected"));
    assert_non_null(strstr(refused(f, "[NaN]", ERR_INVALID), "(byte 1): 'N' where a value"));
    assert_non_null(strstr(refused(f, "[Infinity]", ERR_INVALID), "'I' where a value"));
    assert_non_null(strstr(refused(f, "\xef\xbb\xbf{}", ERR_INVALID), "byte order mark"));
}

static void test_refuses_broken_text(void **state)
{
    struct fixture *f = *state;
    assert_non_null(strstr(refused(f, "\"\\ud83d\"", ERR_INVALID), "high surrogate without a low one"));
    assert_non_null(strstr(refused(f, "\"\\ude00\"", ERR_INVALID), "low surrogate without a high one"));
    assert_non_null(strstr(refused(f, "\"\\ud83d\\u0041\"", ERR_INVALID), "high surrogate"));
    assert_non_null(strstr(refused(f, "\"\\u12\"", ERR_INVALID), "four hexadecimal digits"));
    assert_non_null(strstr(refused(f, "\"\\x\"", ERR_INVALID), "unknown escape"));
    static const char *const broken[] = {
        "\xc0\x80",         "\xc1\xbf",         "\xe0\x80\x80",     "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80",         "\xe2\x82",     "\xff"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char text[16];
        snprintf(text, sizeof text, "\"%s\"", broken[i]);
        assert_non_null(strstr(refused(f, text, ERR_INVALID), "(byte 1)"));
        assert_non_null(strstr(f->err.text, "not valid UTF-8"));
    }
}

static void test_accepts_the_edges_of_utf8(void **state)
{
    struct fixture *f = *state;
    parse(f, "[\"\xc2\x80\",\"\xdf\xbf\",\"\xe0\xa0\x80\",\"\xed\x9f\xbf\",\"\xee\x80\x80\",\"\xef\xbf\xbf\","
             "\"\xf0\x90\x80\x80\","
             "\"\xf4\x8f\xbf\xbf\"]");
}

static void test_refuses_nul_bytes(void **state)
{
    struct fixture *f = *state;
    struct json *v;
    static const struct str texts[] = {{"\0", 1}, {"1\0", 2}, {"[1,\0]", 5}, {"\"\0\"", 3}, {"tru\0", 4}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(json_parse(&f->arena, texts[i], NULL, &v, NULL), ERR_INVALID);
}

static void test_refuses_duplicate_names(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(refused(f, "{\"a\":1,\"b\":{},\"a\":1}", ERR_INVALID),
                        "line 1, column 15 (byte 14): member name \"a\" is given twice");
    refused(f, "{\"caf\\u00e9\":1,\"café\":2}", ERR_INVALID);
    refused(f, "[{\"\":1,\"\":2}]", ERR_INVALID);
    parse(f, "{\"a\":{\"a\":{\"a\":1}},\"A\":2,\"\":3,\"\\u0000\":4}");
    /* NFC and NFD are two names: no normalisation that nobody asked for */
    parse(f, "{\"caf\xc3\xa9\":1,\"cafe\xcc\x81\":2}");
}

static void test_finds_duplicates_in_large_objects(void **state)
{
    struct fixture *f = *state;
    struct json *v;
    struct buf text;
    buf_init(&text, 0);
    buf_add_char(&text, '{');
    for (int i = 0; i < 50000; i++)
        buf_printf(&text, "\"n%d\":1,", i);
    size_t length = text.n;
    buf_add_text(&text, "\"last\":1}");
    assert_int_equal(json_parse(&f->arena, buf_str(&text), NULL, &v, &f->err), ERR_NONE);
    assert_int_equal(v->count, 50001);
    text.n = length;
    buf_add_text(&text, "\"n40000\":1,\"n3\":1}");
    assert_int_equal(json_parse(&f->arena, buf_str(&text), NULL, &v, &f->err), ERR_INVALID);
    assert_non_null(strstr(f->err.text, "member name \"n40000\" is given twice"));
    buf_release(&text);
}

static void test_shows_long_names_cut(void **state)
{
    struct fixture *f = *state;
    struct buf text;
    buf_init(&text, 0);
    buf_add_char(&text, '{');
    for (int i = 0; i < 2; i++) {
        buf_add_text(&text, i ? ",\"" : "\"");
        for (int k = 0; k < 100; k++)
            buf_add_text(&text, "\\n€");
        buf_add_text(&text, "\":1");
    }
    buf_add_char(&text, '}');
    assert_non_null(strstr(refused(f, text.p, ERR_INVALID), "€\" is given twice"));
    buf_release(&text);
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    struct json *v;
    struct json_limits limits = {.bytes_max = 12, .depth_max = 2, .values_max = 4};
    assert_int_equal(json_parse(&f->arena, str_of("[[1,2]]"), &limits, &v, NULL), ERR_NONE);
    assert_int_equal(json_parse(&f->arena, str_of("[[1,2,3]]"), &limits, &v, &f->err), ERR_LIMIT);
    assert_non_null(strstr(f->err.text, "(byte 6): there are too many values"));
    err_clear(&f->err);
    assert_int_equal(json_parse(&f->arena, str_of("[[[]]]"), &limits, &v, &f->err), ERR_LIMIT);
    assert_non_null(strstr(f->err.text, "(byte 2): arrays and objects are nested too deeply"));
    err_clear(&f->err);
    assert_int_equal(json_parse(&f->arena, str_of("[1,2]        "), &limits, &v, &f->err), ERR_LIMIT);
    assert_string_equal(f->err.text, "the text has 13 bytes, at most 12 are allowed");
    /* siblings do not add up to depth */
    assert_int_equal(json_parse(&f->arena, str_of("[[],[],[]]"), &limits, &v, NULL), ERR_NONE);
    /* nobody can ask for a recursion that overflows the stack */
    limits = (struct json_limits){1 << 20, 1000000, 1000000};
    char *deep = malloc(200001);
    memset(deep, '[', 200000);
    deep[200000] = '\0';
    assert_int_equal(json_parse(&f->arena, str_of(deep), &limits, &v, NULL), ERR_LIMIT);
    free(deep);
}

/* ---- the public parsing suite ---- */

/* RFC 8259 leaves duplicate names to the reader ("SHOULD be unique"); design 2.5 refuses them, since two readers of one
 * text would see two intents. */
static bool is_duplicate_by_design(const char *name)
{
    return strcmp(name, "y_object_duplicated_key.json") == 0 ||
           strcmp(name, "y_object_duplicated_key_and_value.json") == 0;
}

static void check_suite_file(struct fixture *f, const char *name, const char *path, int counts[3])
{
    struct json *value = NULL;
    err_clear(&f->err);
    struct str text = suites_read(&f->arena, path);
    assert_non_null(text.p);
    enum err_code code = json_parse(&f->arena, text, NULL, &value, &f->err);
    if (code != ERR_NONE)
        assert_non_null(strstr(f->err.text, "line "));
    if (name[0] == 'y' && is_duplicate_by_design(name)) {
        assert_int_equal(code, ERR_INVALID);
        assert_non_null(strstr(f->err.text, "member name \"a\" is given twice"));
        struct json_limits grammar = json_limits_default; /* the grammar alone accepts it */
        grammar.duplicates_accepted = true;
        assert_int_equal(json_parse(&f->arena, text, &grammar, &value, NULL), ERR_NONE);
        assert_int_equal(value->count, 2);
        counts[0]++;
    } else if (name[0] == 'y') {
        if (code != ERR_NONE)
            fail_msg("%s: %s", name, f->err.text);
        counts[0]++;
    } else if (name[0] == 'n') {
        if (code == ERR_NONE)
            fail_msg("%s was accepted", name);
        counts[1]++;
    } else {
        counts[2]++;
    }
    if (code != ERR_NONE)
        return;
    /* nothing is lost: what is written reads as the same value */
    struct buf out;
    buf_init(&out, 0);
    json_write(&out, value);
    assert_true(json_equal(value, parse_str(f, buf_str(&out))));
    buf_reset(&out);
    json_canonical(&out, value);
    assert_true(json_equal(value, parse_str(f, buf_str(&out))));
    buf_release(&out);
}

static void test_parsing_suite(void **state)
{
    struct fixture *f = *state;
    const char *folder = suites_path(&f->arena, "json-parsing");
    if (!folder)
        skip();
    const char **names;
    size_t count = suites_list(&f->arena, folder, ".json", &names);
    int counts[3] = {0};
    for (size_t i = 0; i < count; i++)
        check_suite_file(f, names[i], arena_printf(&f->arena, "%s/%s", folder, names[i]), counts);
    assert_int_equal(counts[0], 95);
    assert_int_equal(counts[1], 188);
    assert_int_equal(counts[2], 35);
}

/* ---- canonical form ---- */

/* The one value of the RFC 8785 files that differs: values.json's 333333333.33333329 is not a double; RFC 8785 rounds
 * it to 333333333.3333333, the exact decimal (design 2.5) keeps its digits. */
static const char jcs_rounded[] = "333333333.3333333,";
static const char jcs_exact[] = "333333333.33333329,";

static const char *jcs_expected(struct fixture *f, const char *name, struct str output)
{
    if (strcmp(name, "values.json") != 0)
        return output.p;
    const char *at = strstr(output.p, jcs_rounded);
    assert_non_null(at);
    return arena_printf(&f->arena, "%.*s%s%s", (int)(at - output.p), output.p, jcs_exact, at + strlen(jcs_rounded));
}

static void test_rfc8785_files(void **state)
{
    struct fixture *f = *state;
    const char *folder = suites_path(&f->arena, "jcs");
    if (!folder)
        skip();
    const char **names;
    size_t count = suites_list(&f->arena, arena_printf(&f->arena, "%s/input", folder), ".json", &names);
    assert_int_equal(count, 6);
    for (size_t i = 0; i < count; i++) {
        struct str input = suites_read(&f->arena, arena_printf(&f->arena, "%s/input/%s", folder, names[i]));
        struct str output = suites_read(&f->arena, arena_printf(&f->arena, "%s/output/%s", folder, names[i]));
        assert_string_equal(canonical(f, input.p), jcs_expected(f, names[i], output));
    }
}

static void test_canonical_sorts_by_utf16(void **state)
{
    struct fixture *f = *state;
    /* U+FB33 sorts behind U+1F600 by UTF-16 code units, before it by code points */
    assert_string_equal(
        canonical(f,
                  "{\"\\ufb33\":1,\"\\ud83d\\ude00\":2,\"\\u00f6\":3,\"\\r\":4,\"1\":5,\"\\u0080\":6,\"\\u20ac\":7}"),
        "{\"\\r\":4,\"1\":5,\"\xc2\x80\":6,\"ö\":3,\"€\":7,\"😀\":2,\"\xef\xac\xb3\":1}");
    assert_string_equal(canonical(f, "{\"ab\":1,\"a\":2,\"\":3,\"\\ue000\":4,\"\\ud7ff\":5,\"\\udbff\\udfff\":6}"),
                        "{\"\":3,\"a\":2,\"ab\":1,\"\xed\x9f\xbf\":5,\"\xf4\x8f\xbf\xbf\":6,\"\xee\x80\x80\":4}");
}

static void test_canonical_sorts_large_objects(void **state)
{
    struct fixture *f = *state;
    struct json *object = json_object(&f->arena);
    for (int i = 999; i >= 0; i--)
        json_set(&f->arena, object, str_of(arena_printf(&f->arena, "%03d", i)), json_int(&f->arena, i));
    buf_reset(&f->buf);
    json_canonical(&f->buf, object);
    struct json *sorted = parse_str(f, buf_str(&f->buf));
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(str_is(sorted->members[i].name, arena_printf(&f->arena, "%03u", i)));
}

/* cases.md S40: key order does not matter at any depth, array order does. */
static void test_s40_order(void **state)
{
    struct fixture *f = *state;
    const char *a = "{\"x\":{\"y\":{\"a\":1,\"b\":[1,2]},\"z\":0},\"k\":true}";
    const char *b = " {\"k\":true, \"x\":{\"z\":0, \"y\":{\"b\":[1,2],\"a\":1}}}";
    char *first = arena_copy_text(&f->arena, canonical(f, a));
    assert_string_equal(first, canonical(f, b));
    assert_true(json_equal(parse(f, a), parse(f, b)));
    first = arena_copy_text(&f->arena, canonical(f, "[\"charge\",\"ship\"]"));
    assert_string_not_equal(first, canonical(f, "[\"ship\",\"charge\"]"));
    assert_false(json_equal(parse(f, "[\"charge\",\"ship\"]"), parse(f, "[\"ship\",\"charge\"]")));
}

/* cases.md S42: big integers stay what they are, in the fingerprint and on the wire. */
static void test_s42_big_integers(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(canonical(f, "9007199254740993"), "9007199254740993");
    assert_string_equal(canonical(f, "9007199254740992"), "9007199254740992");
    assert_false(json_equal(parse(f, "{\"order_id\":9007199254740993}"), parse(f, "{\"order_id\":9007199254740992}")));
    assert_string_equal(canonical(f, "1e-400"), "1e-400");
    assert_string_equal(canonical(f, "1e400"), "1e+400");
    assert_false(json_equal(parse(f, "1e-400"), parse(f, "0")));
    assert_string_equal(written(f, parse(f, "[9007199254740993,49.00]")), "[9007199254740993,49.00]");
}

/* cases.md S43: composed and decomposed text are two values unless a normaliser says otherwise. */
static void test_s43_no_silent_normalisation(void **state)
{
    struct fixture *f = *state;
    assert_false(json_equal(parse(f, "\"Caf\xc3\xa9\""), parse(f, "\"Cafe\xcc\x81\"")));
    assert_false(json_equal(parse(f, "\"\\u00c5\""), parse(f, "\"\\u212b\"")));
    assert_true(json_equal(parse(f, "\"Caf\xc3\xa9\""), parse(f, "\"Caf\\u00E9\"")));
    assert_int_equal(JSON_CANONICAL_VERSION, 1);
}

static void test_absent_and_null_differ(void **state)
{
    struct fixture *f = *state;
    assert_false(json_equal(parse(f, "{\"a\":null}"), parse(f, "{}")));
    assert_string_equal(canonical(f, "{\"a\":null}"), "{\"a\":null}");
}

static void test_canonical_is_stable(void **state)
{
    struct fixture *f = *state;
    char *once =
        arena_copy_text(&f->arena, canonical(f, "{\"b\":[1.50,-0.0,1E5,\"\\u001f\\u007f\\/\"],\"a\":{\"\":[]}}"));
    assert_string_equal(once, "{\"a\":{\"\":[]},\"b\":[1.5,0,100000,\"\\u001f\x7f/\"]}");
    assert_string_equal(canonical(f, once), once);
}

/* ---- equality ---- */

static void test_equality(void **state)
{
    struct fixture *f = *state;
    assert_true(json_equal(parse(f, "[49,49.0,\"x\",null,true]"), parse(f, "[4.9e1,49.00,\"x\",null,true]")));
    assert_false(json_equal(parse(f, "1"), parse(f, "\"1\"")));
    assert_false(json_equal(parse(f, "true"), parse(f, "false")));
    assert_false(json_equal(parse(f, "[1]"), parse(f, "[1,1]")));
    assert_false(json_equal(parse(f, "{\"a\":1}"), parse(f, "{\"b\":1}")));
    assert_false(json_equal(parse(f, "{\"a\":1,\"b\":2}"), parse(f, "{\"b\":1,\"a\":2}")));
    assert_true(json_equal(parse(f, "{\"a\":1,\"b\":2}"), parse(f, "{\"b\":2.0,\"a\":1}")));
}

/* ---- building ---- */

static void test_builds(void **state)
{
    struct fixture *f = *state;
    struct arena *a = &f->arena;
    struct json *object = json_object(a);
    json_set(a, object, STR("b"), json_bool(true));
    json_set(a, object, STR("n"), json_null());
    json_set(a, object, STR("i"), json_int(a, INT64_MIN));
    json_set(a, object, STR("j"), json_int(a, 0));
    json_set(a, object, STR("s"), json_string(STR("x\ny")));
    json_set(a, object, STR("absent"), json_string(STR_NONE));
    json_set(a, object, STR("d"), json_number(STR("1.50")));
    json_set(a, object, STR("b"), json_bool(false));
    assert_string_equal(written(f, object),
                        "{\"b\":false,\"n\":null,\"i\":-9223372036854775808,\"j\":0,\"s\":\"x\\ny\","
                        "\"absent\":null,\"d\":1.50}");
    json_remove(object, STR("n"));
    json_remove(object, STR("none"));
    json_remove(object, STR("d"));
    json_set(a, object, STR("z"), json_int(a, 7));
    assert_string_equal(written(f, object),
                        "{\"b\":false,\"i\":-9223372036854775808,\"j\":0,\"s\":\"x\\ny\",\"absent\":null,\"z\":7}");
}

static void test_grows_without_harm_to_what_was_parsed(void **state)
{
    struct fixture *f = *state;
    struct arena *a = &f->arena;
    struct json *parsed = parse(f, "{\"a\":1,\"l\":[1],\"z\":{\"q\":1}}");
    struct json one = *parsed, two = *parsed;
    json_set(a, &one, STR("one"), json_int(a, 1));
    json_set(a, &two, STR("two"), json_int(a, 2));
    assert_string_equal(written(f, &one), "{\"a\":1,\"l\":[1],\"z\":{\"q\":1},\"one\":1}");
    assert_string_equal(written(f, &two), "{\"a\":1,\"l\":[1],\"z\":{\"q\":1},\"two\":2}");
    assert_string_equal(written(f, parsed), "{\"a\":1,\"l\":[1],\"z\":{\"q\":1}}");
    struct json by_hand[1] = {json_bool(true)};
    struct json list = {.type = JSON_ARRAY, .count = 1, .items = by_hand};
    json_append(a, &list, json_null());
    assert_string_equal(written(f, &list), "[true,null]");
}

static void test_appends_many(void **state)
{
    struct fixture *f = *state;
    struct json *array = json_array(&f->arena);
    for (int i = 0; i < 10000; i++)
        json_append(&f->arena, array, json_int(&f->arena, i));
    assert_int_equal(array->count, 10000);
    for (uint32_t i = 0; i < array->count; i++) {
        int64_t value;
        assert_true(json_number_int64(array->items[i].text, &value));
        assert_int_equal(value, i);
    }
    assert_true(f->arena.bytes < 2 * 1024 * 1024);
}

static void test_copies_deeply(void **state)
{
    struct fixture *f = *state;
    struct arena other;
    arena_init(&other);
    const char *text = "{\"a\":[1.0,\"x\",{\"b\":null}],\"c\":true,\"d\":[],\"e\":{}}";
    struct json *value = NULL;
    assert_int_equal(json_parse(&other, str_of(text), NULL, &value, &f->err), ERR_NONE);
    struct json *copy = json_copy(&f->arena, value);
    arena_release(&other);
    assert_string_equal(written(f, copy), text);
}

static void test_copies_can_grow(void **state)
{
    struct fixture *f = *state;
    struct json *built = json_array(&f->arena);
    json_append(&f->arena, built, json_null());
    struct json *copy = json_copy(&f->arena, built);
    char *behind = arena_copy_text(&f->arena, "what lies behind the copy in the arena must stay as it is");
    json_append(&f->arena, copy, json_bool(true));
    json_append(&f->arena, built, json_bool(false));
    assert_string_equal(behind, "what lies behind the copy in the arena must stay as it is");
    assert_string_equal(written(f, copy), "[null,true]");
    assert_string_equal(written(f, built), "[null,false]");
}

/* ---- writing ---- */

static void test_writes_pretty(void **state)
{
    struct fixture *f = *state;
    buf_reset(&f->buf);
    json_write_pretty(&f->buf, parse(f, "{\"a\":[1,{\"b\":[]}],\"c\":{}}"));
    assert_string_equal(f->buf.p, "{\n  \"a\": [\n    1,\n    {\n      \"b\": []\n    }\n  ],\n  \"c\": {}\n}");
    buf_reset(&f->buf);
    json_write_pretty(&f->buf, parse(f, "[]"));
    assert_string_equal(f->buf.p, "[]");
}

static void test_writes_strings(void **state)
{
    struct fixture *f = *state;
    buf_reset(&f->buf);
    json_write_string(&f->buf, STR("\b\t\n\f\r\"\\/\x01\x1f\x7f\0é😀"));
    assert_string_equal(f->buf.p, "\"\\b\\t\\n\\f\\r\\\"\\\\/\\u0001\\u001f\x7f\\u0000é😀\"");
    /* bytes that are not UTF-8 (a provider's answer in a message) must not make our own text unreadable */
    buf_reset(&f->buf);
    json_write_string(&f->buf, STR("a\xff\xe2\x82z\xc3"));
    assert_string_equal(f->buf.p, "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\"");
}

/* Strings are looked through eight bytes at a time: each byte in each place among plain ones, and two of them. */
static void test_writes_each_byte_in_each_place(void **state)
{
    struct fixture *f = *state;
    for (unsigned place = 0; place < 20; place++) {
        for (unsigned c = 1; c < 0x80; c++) {
            char text[21] = "~~~~~~~~~~~~~~~~~~~~";
            text[place] = (char)c;
            text[(place * 7 + c) % 20] = (char)c;
            buf_reset(&f->buf);
            json_write_string(&f->buf, (struct str){text, 20});
            const struct json *value = parse_str(f, buf_str(&f->buf));
            assert_true(str_is(value->text, text));
        }
    }
}

static void test_respects_the_maximum(void **state)
{
    struct fixture *f = *state;
    struct buf small;
    buf_init(&small, 10);
    json_write(&small, parse(f, "[\"0123456789\",1]"));
    assert_true(small.over);
    assert_true(small.n <= 10);
    buf_reset(&small);
    json_canonical(&small, parse(f, "{\"b\":1e99999999999999999999,\"a\":2}"));
    assert_true(small.over);
    buf_release(&small);
}

static void test_composes(void **state)
{
    struct fixture *f = *state;
    struct json_out out;
    buf_reset(&f->buf);
    json_out_init(&out, &f->buf);
    json_out_object(&out);
    json_out_member_text(&out, "text", "a\"b");
    json_out_member_text(&out, "left_out", NULL);
    json_out_member_int(&out, "int", INT64_MIN);
    json_out_member_bool(&out, "bool", true);
    json_out_name(&out, "list");
    json_out_array(&out);
    json_out_int(&out, 0);
    json_out_object(&out);
    json_out_end_object(&out);
    json_out_array(&out);
    json_out_end_array(&out);
    json_out_text(&out, NULL);
    json_out_str(&out, STR_NONE);
    json_out_str(&out, STR("s"));
    json_out_raw(&out, STR("{\"raw\":1}"));
    json_out_raw(&out, STR_NONE);
    json_out_null(&out);
    json_out_value(&out, parse(f, "[1.0]"));
    json_out_end_array(&out);
    json_out_name(&out, "end");
    json_out_bool(&out, false);
    json_out_end_object(&out);
    const char *expected =
        "{\"text\":\"a\\\"b\",\"int\":-9223372036854775808,\"bool\":true,\"list\":[0,{},[],null,null,\"s\","
        "{\"raw\":1},null,null,[1.0]],\"end\":false}";
    assert_string_equal(f->buf.p, expected);
    parse(f, expected);
}

static void test_composes_siblings(void **state)
{
    struct fixture *f = *state;
    struct json_out out;
    buf_reset(&f->buf);
    json_out_init(&out, &f->buf);
    json_out_array(&out);
    for (int i = 0; i < 2; i++) {
        json_out_array(&out);
        json_out_int(&out, i);
        json_out_end_array(&out);
    }
    json_out_end_array(&out);
    assert_string_equal(f->buf.p, "[[0],[1]]");
}

static void test_composes_deeply(void **state)
{
    struct fixture *f = *state;
    struct json_out out;
    buf_reset(&f->buf);
    json_out_init(&out, &f->buf);
    for (int i = 0; i < 64; i++) {
        json_out_array(&out);
        json_out_int(&out, i);
    }
    for (int i = 0; i < 64; i++)
        json_out_end_array(&out);
    struct json *v = parse(f, f->buf.p);
    assert_int_equal(v->count, 2);
}

/* ---- JSON Pointer ---- */

static void test_pointer_rfc6901(void **state)
{
    struct fixture *f = *state;
    struct json *v = parse(f, "{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,\"g|h\":4,\"i\\\\j\":5,"
                              "\"k\\\"l\":6,\" \":7,\"m~n\":8}");
    static const struct {
        const char *pointer, *value;
    } cases[] = {{"/foo", "[\"bar\",\"baz\"]"},
                 {"/foo/0", "\"bar\""},
                 {"/", "0"},
                 {"/a~1b", "1"},
                 {"/c%d", "2"},
                 {"/e^f", "3"},
                 {"/g|h", "4"},
                 {"/i\\j", "5"},
                 {"/k\"l", "6"},
                 {"/ ", "7"},
                 {"/m~0n", "8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(written(f, json_pointer_get(v, str_of(cases[i].pointer))), cases[i].value);
    assert_ptr_equal(json_pointer_get(v, STR("")), v);
    static const char *const nothing[] = {"foo",     "/foo/2",  "/foo/-",   "/foo/00",
                                          "/foo/01", "/foo/ 0", "/foo/0/x", "/foo/",
                                          "/bar",    "/m~2n",   "/m~",      "/foo/18446744073709551616",
                                          "/m~0",    "/m~0nn"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        assert_null(json_pointer_get(v, str_of(nothing[i])));
}

static void test_pointer_valid_and_add(void **state)
{
    struct fixture *f = *state;
    assert_true(json_pointer_valid(STR("")));
    assert_true(json_pointer_valid(STR("/")));
    assert_true(json_pointer_valid(STR("/a~0b~1c/")));
    assert_false(json_pointer_valid(STR("a")));
    assert_false(json_pointer_valid(STR("/~")));
    assert_false(json_pointer_valid(STR("/~2")));
    buf_reset(&f->buf);
    json_pointer_add(&f->buf, STR("a/b~c"));
    json_pointer_add(&f->buf, STR(""));
    assert_string_equal(f->buf.p, "/a~1b~0c/");
}

static void test_pointer_remove(void **state)
{
    struct fixture *f = *state;
    struct json *v = parse(f, "{\"a/b\":1,\"m~n\":2,\"o\":{\"p\":3,\"q\":4},\"l\":[5,{\"r\":6,\"s\":7}],\"\":8}");
    static const char *const nothing[] = {"", "/x", "/o/x", "/o/p/x", "/l/0", "/l/2/r", "a", "/m~n"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        json_pointer_remove(v, nothing[i]);
    assert_string_equal(written(f, v),
                        "{\"a/b\":1,\"m~n\":2,\"o\":{\"p\":3,\"q\":4},\"l\":[5,{\"r\":6,\"s\":7}],\"\":8}");
    static const char *const members[] = {"/a~1b", "/m~0n", "/o/p", "/l/1/r", "/"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_pointer_remove(v, members[i]);
    assert_string_equal(written(f, v), "{\"o\":{\"q\":4},\"l\":[5,{\"s\":7}]}");
}

static const char *differences(struct fixture *f, const char *a, const char *b, size_t max)
{
    const char **pointers;
    size_t count = json_diff(&f->arena, parse(f, a), parse(f, b), max, &pointers);
    const char *joined = "";
    for (size_t i = 0; i < count; i++)
        joined = arena_printf(&f->arena, "%s%s%s", joined, i ? " " : "", *pointers[i] ? pointers[i] : "(whole)");
    return joined;
}

static void test_differences(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(differences(f, "{\"a\":49,\"b\":[1,2]}", "{\"b\":[1,2.0],\"a\":49.0}", 9), "");
    assert_string_equal(differences(f, "{\"z\":1,\"b\":{\"c\":1,\"d\":2},\"l\":[1,{\"x\":1}],\"m\":[1]}",
                                    "{\"b\":{\"c\":2,\"e/f\":2},\"l\":[1,{\"x\":null}],\"m\":[1,2],\"z\":1}", 9),
                        "/b/c /b/d /b/e~1f /l/1/x /m");
    assert_string_equal(differences(f, "1", "\"1\"", 9), "(whole)");
    assert_string_equal(differences(f, "[]", "{}", 9), "(whole)");
    assert_string_equal(differences(f, "[1,2,3]", "[4,5,6]", 2), "/0 /1");
    assert_string_equal(differences(f, "{\"a\":1,\"b\":1}", "{}", 1), "/a");
    assert_string_equal(differences(f, "[1]", "[2]", 0), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_reads_every_type),
        TEST(test_typed_look_ups_fall_back),
        TEST(test_decodes_strings),
        TEST(test_does_not_point_into_the_text),
        TEST(test_refuses_with_position),
        TEST(test_refuses_broken_text),
        TEST(test_accepts_the_edges_of_utf8),
        TEST(test_refuses_nul_bytes),
        TEST(test_refuses_duplicate_names),
        TEST(test_finds_duplicates_in_large_objects),
        TEST(test_shows_long_names_cut),
        TEST(test_limits),
        TEST(test_parsing_suite),
        TEST(test_rfc8785_files),
        TEST(test_canonical_sorts_by_utf16),
        TEST(test_canonical_sorts_large_objects),
        TEST(test_s40_order),
        TEST(test_s42_big_integers),
        TEST(test_s43_no_silent_normalisation),
        TEST(test_absent_and_null_differ),
        TEST(test_canonical_is_stable),
        TEST(test_equality),
        TEST(test_builds),
        TEST(test_grows_without_harm_to_what_was_parsed),
        TEST(test_appends_many),
        TEST(test_copies_deeply),
        TEST(test_copies_can_grow),
        TEST(test_writes_pretty),
        TEST(test_writes_strings),
        TEST(test_writes_each_byte_in_each_place),
        TEST(test_respects_the_maximum),
        TEST(test_composes),
        TEST(test_composes_siblings),
        TEST(test_composes_deeply),
        TEST(test_pointer_rfc6901),
        TEST(test_pointer_valid_and_add),
        TEST(test_pointer_remove),
        TEST(test_differences),
#undef TEST
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
