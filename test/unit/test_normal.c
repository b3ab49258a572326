#include "support/test.h"

#include "core/currency.h"
#include "core/normal.h"

struct fixture {
    struct arena arena;
    struct buf buf;
    struct err err;
};

static int set_up(void **state)
{
    static struct fixture f;
    arena_init(&f.arena);
    buf_init(&f.buf, 0);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    buf_release(&f->buf);
    return 0;
}

static struct json *parse(struct fixture *f, const char *text)
{
    struct json *value = NULL;
    err_clear(&f->err);
    if (json_parse(&f->arena, str_of(text), NULL, &value, &f->err) != ERR_NONE)
        fail_msg("%s: %s", text, f->err.text);
    return value;
}

static enum err_code apply(struct fixture *f, const char *rules, const char *value)
{
    struct normal *normal = NULL;
    struct json *changed = parse(f, value);
    if (normal_new(parse(f, rules), &normal, &f->err) != ERR_NONE)
        fail_msg("%s: %s", rules, f->err.text);
    enum err_code code = normal_apply(normal, &f->arena, changed, &f->err);
    normal_free(normal); /* before writing: the result must not depend on the rules */
    buf_reset(&f->buf);
    json_write(&f->buf, changed);
    return code;
}

static void check(struct fixture *f, const char *rules, const char *value, const char *expected)
{
    if (apply(f, rules, value) != ERR_NONE)
        fail_msg("%s: %s", value, f->err.text);
    assert_string_equal(f->buf.p, expected);
}

static void check_refused(struct fixture *f, const char *rules, const char *value, const char *message)
{
    assert_int_equal(apply(f, rules, value), ERR_INVALID);
    assert_string_equal(f->err.text, message);
}

static void test_text(void **state)
{
    struct fixture *f = *state;
    check(f, "{\"a\":\"trim\"}", "{\"a\":\" \\t\\u00a0\\u3000x  y\\n\\u2028\"}", "{\"a\":\"x  y\"}");
    check(f, "{\"a\":\"trim\"}", "{\"a\":\" \\n \"}", "{\"a\":\"\"}");
    check(f, "{\"a\":\"collapse_space\"}", "{\"a\":\"  x \\t\\u00a0 y\\n\"}", "{\"a\":\" x y \"}");
    check(f, "{\"a\":[\"trim\",\"collapse_space\",\"lower\"]}", "{\"a\":\"  Zoë  ÄÖ \"}", "{\"a\":\"zoë äö\"}");
    check(f, "{\"a\":\"upper\"}", "{\"a\":\"eur é жя\"}", "{\"a\":\"EUR É ЖЯ\"}");
    check(f, "{\"a\":\"lower\"}", "{\"a\":\"A\\u0000B\"}", "{\"a\":\"a\\u0000b\"}");
    check_refused(f, "{\"a\":\"trim\"}", "{\"a\":5}", "/a: trim needs text, got number");
}

/* cases.md S43: NFC only where it is asked for; there NFC and NFD spellings are one value. */
static void test_s43_nfc(void **state)
{
    struct fixture *f = *state;
    check(f, "{\"title\":\"nfc\"}", "{\"title\":\"Cafe\xcc\x81\"}", "{\"title\":\"Caf\xc3\xa9\"}");
    check(f, "{\"title\":\"nfc\"}", "{\"title\":\"Caf\xc3\xa9\"}", "{\"title\":\"Caf\xc3\xa9\"}");
    check(f, "{\"title\":\"nfc\"}", "{\"title\":\"\\u212b\\u0000 plain\"}", "{\"title\":\"\xc3\x85\\u0000 plain\"}");
    check(f, "{\"title\":\"nfc\"}", "{\"id\":\"Cafe\xcc\x81\"}", "{\"id\":\"Cafe\xcc\x81\"}");
    check(f, "{\"title\":\"nfc\"}", "{\"title\":\"\\u1100\\u1161\\u11a8\"}", "{\"title\":\"\xea\xb0\x81\"}");
}

static void test_integer(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"49", "49"},
        {"49.0", "49"},
        {"4.9e1", "49"},
        {"\"49\"", "49"},
        {"\"+0049\"", "49"},
        {"\"-49.00\"", "-49"},
        {"\"0\"", "0"},
        {"-0", "0"},
        {"\"000\"", "0"},
        {"\"1e3\"", "1000"},
        {"9007199254740993", "9007199254740993"},
        {"\"123456789012345678901234567890\"", "123456789012345678901234567890"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(f, "{\"n\":\"integer\"}", arena_printf(&f->arena, "{\"n\":%s}", cases[i][0]),
              arena_printf(&f->arena, "{\"n\":%s}", cases[i][1]));
    static const char *const words[] = {"\"\"",         "\"-\"",   "\"4,900\"", "\"12 \"", "\"0x10\"",
                                        "\"five\"",     "\"1.\"",  "\".5\"",    "\"1e\"",  "\"1e+\"",
                                        "\"1\\u0000\"", "\"NaN\"", "\"--1\""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        check_refused(f, "{\"n\":\"integer\"}", arena_printf(&f->arena, "{\"n\":%s}", words[i]),
                      "/n: is not a decimal number");
    check_refused(f, "{\"n\":\"integer\"}", "{\"n\":49.5}", "/n: is not a whole number");
    check_refused(f, "{\"n\":\"integer\"}", "{\"n\":1e400}", "/n: has more than 21 digits");
    check_refused(f, "{\"n\":\"integer\"}", "{\"n\":true}", "/n: integer needs a number or decimal text, got boolean");
}

static void test_decimal(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"49.00", "49"},
        {"\"49.00\"", "49"},
        {"\"12.50\"", "12.5"},
        {"\"-0012.340\"", "-12.34"},
        {"\"0.1000000000000000000000000000001\"", "0.1000000000000000000000000000001"},
        {"\"-0.00\"", "0"},
        {"1e-3", "0.001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(f, "{\"n\":\"decimal\"}", arena_printf(&f->arena, "{\"n\":%s}", cases[i][0]),
              arena_printf(&f->arena, "{\"n\":%s}", cases[i][1]));
    check_refused(f, "{\"n\":\"decimal\"}", "{\"n\":\"12,50\"}", "/n: is not a decimal number");
}

static void test_minor_units(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][3] = {
        {"12.50", "EUR", "1250"},       {"\"12.5\"", "usd", "1250"},
        {"49", "EUR", "4900"},          {"1250", "JPY", "1250"},
        {"\"1250.00\"", "JPY", "1250"}, {"1.234", "KWD", "1234"},
        {"1", "BHD", "1000"},           {"0.001", "OMR", "1"},
        {"-0.01", "GBP", "-1"},         {"0", "CHF", "0"},
        {"1.2345", "CLF", "12345"},     {"0.10", "ISK", NULL},
        {"12.505", "EUR", NULL},        {"0.5", "JPY", NULL},
        {"1.2345", "KWD", NULL},        {"90071992547409.93", "USD", "9007199254740993"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *value = arena_printf(&f->arena, "{\"amount\":%s,\"currency\":\"%s\"}", cases[i][0], cases[i][1]);
        if (cases[i][2])
            check(f, "{\"amount\":\"minor_units(currency)\"}", value,
                  arena_printf(&f->arena, "{\"amount\":%s,\"currency\":\"%s\"}", cases[i][2], cases[i][1]));
        else
            check_refused(f, "{\"amount\":\"minor_units(currency)\"}", value,
                          "/amount: has more decimals than its currency");
    }
    check(f, "{\"amount\":\"minor_units(\\\"EUR\\\")\"}", "{\"amount\":\"1.5\"}", "{\"amount\":150}");
    check(f, "{\"amount\":\"minor_units('JPY')\"}", "{\"amount\":15}", "{\"amount\":15}");
}

static void test_minor_units_refusals(void **state)
{
    struct fixture *f = *state;
    const char *rules = "{\"amount\":\"minor_units(currency)\"}";
    check_refused(f, rules, "{\"amount\":1}", "/amount: the currency in currency is missing");
    check_refused(f, rules, "{\"amount\":1,\"currency\":null}", "/amount: the currency in currency is null");
    check_refused(f, rules, "{\"amount\":1,\"currency\":978}", "/amount: the currency in currency is not text");
    check_refused(f, rules, "{\"amount\":1,\"currency\":\"XYZ\"}",
                  "/amount: the currency in currency is not a code of ISO 4217");
    check_refused(f, rules, "{\"amount\":\"ten\",\"currency\":\"EUR\"}", "/amount: is not a decimal number");
    check_refused(f, rules, "{\"amount\":1e30,\"currency\":\"EUR\"}",
                  "/amount: is too large or too small for an amount of money");
    check_refused(f, rules, "{\"amount\":900000000000000000000,\"currency\":\"EUR\"}",
                  "/amount: is too large or too small for an amount of money");
}

static void test_minor_units_sees_the_normal_currency(void **state)
{
    struct fixture *f = *state;
    check(f, "{\"items.*.amount\":\"minor_units(cur)\",\"items.*.cur\":[\"trim\",{\"enum\":{\"€\":\"EUR\"}}]}",
          "{\"items\":[{\"amount\":1.5,\"cur\":\" €\"},{\"amount\":15,\"cur\":\"JPY\"}]}",
          "{\"items\":[{\"amount\":150,\"cur\":\"EUR\"},{\"amount\":15,\"cur\":\"JPY\"}]}");
}

static void test_currencies(void **state)
{
    (void)state;
    assert_int_equal(currency_digits(STR("EUR")), 2);
    assert_int_equal(currency_digits(STR("eur")), 2);
    assert_int_equal(currency_digits(STR("AED")), 2);
    assert_int_equal(currency_digits(STR("ZWG")), 2);
    assert_int_equal(currency_digits(STR("JPY")), 0);
    assert_int_equal(currency_digits(STR("XPF")), 0);
    assert_int_equal(currency_digits(STR("BHD")), 3);
    assert_int_equal(currency_digits(STR("KWD")), 3);
    assert_int_equal(currency_digits(STR("OMR")), 3);
    assert_int_equal(currency_digits(STR("TND")), 3);
    assert_int_equal(currency_digits(STR("UYW")), 4);
    static const char *const unknown[] = {"", "EU", "EURO", "XAU", "XXX", "AAA", "E R", "UR ", "R U"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_int_equal(currency_digits(str_of(unknown[i])), -1);
}

static void test_timestamp(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"2026-11-29T16:23:28Z", "2026-11-29T16:23:28Z"},
        {"2026-11-29t16:23:28z", "2026-11-29T16:23:28Z"},
        {"2026-11-29 16:23:28+00:00", "2026-11-29T16:23:28Z"},
        {"2026-11-29T16:23:28-00:00", "2026-11-29T16:23:28Z"},
        {"2026-11-29T16:23:28.500+01:00", "2026-11-29T15:23:28.5Z"},
        {"2026-11-29T16:23:28.000Z", "2026-11-29T16:23:28Z"},
        {"2026-11-29T16:23:28.1234567890123Z", "2026-11-29T16:23:28.1234567890123Z"},
        {"2026-01-01T00:30:00+05:30", "2025-12-31T19:00:00Z"},
        {"2026-12-31T23:30:00-01:00", "2027-01-01T00:30:00Z"},
        {"2024-02-28T23:59:59-00:01", "2024-02-29T00:00:59Z"},
        {"2023-02-28T23:59:59-00:01", "2023-03-01T00:00:59Z"},
        {"2024-03-01T00:00:00+00:01", "2024-02-29T23:59:00Z"},
        {"2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"},
        {"1990-12-31T15:59:60-08:00", "1990-12-31T23:59:60Z"},
        {"0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"},
        {"9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(f, "{\"at\":\"timestamp\"}", arena_printf(&f->arena, "{\"at\":\"%s\"}", cases[i][0]),
              arena_printf(&f->arena, "{\"at\":\"%s\"}", cases[i][1]));
    static const char *const broken[] = {"",
                                         "tomorrow",
                                         "2026-11-29",
                                         "2026-11-29T16:23:28",
                                         "2026-11-29T16:23Z",
                                         "2026-11-29T16:23:28.Z",
                                         "2026-11-29T16:23:28ZZ",
                                         "2026-11-29T16:23:28+01",
                                         "2026-11-29T16:23:28+24:00",
                                         "2026-11-29T16:23:28+01:60",
                                         "2026-11-29T24:00:00Z",
                                         "2026-11-29T16:60:00Z",
                                         "2026-11-29T16:23:61Z",
                                         "2026-11-29T16:23:60Z",
                                         "2026-11-29T16:59:60Z",
                                         "2026-02-30T00:00:00Z",
                                         "2026-02-29T00:00:00Z",
                                         "1900-02-29T00:00:00Z",
                                         "2026-13-01T00:00:00Z",
                                         "2026-00-01T00:00:00Z",
                                         "2026-01-00T00:00:00Z",
                                         "0000-01-01T00:00:00+00:01",
                                         "9999-12-31T23:59:59-00:01",
                                         "26-11-29T16:23:28Z",
                                         "2026-11-29T16:23:28Z\\u0000",
                                         " 2026-11-29T16:23:28Z"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        check_refused(f, "{\"at\":\"timestamp\"}", arena_printf(&f->arena, "{\"at\":\"%s\"}", broken[i]),
                      "/at: is not a date and time of RFC 3339 (2026-11-29T16:23:28Z)");
    check_refused(f, "{\"at\":\"timestamp\"}", "{\"at\":1764433408}", "/at: timestamp needs text, got number");
}

static void test_enum(void **state)
{
    struct fixture *f = *state;
    const char *rules = "{\"s\":[\"lower\",{\"enum\":{\"y\":true,\"yes\":true,\"urgent\":\"high\",\"one\":1.0}}]}";
    check(f, rules, "{\"s\":\"YES\"}", "{\"s\":true}");
    check(f, rules, "{\"s\":\"Urgent\"}", "{\"s\":\"high\"}");
    check(f, rules, "{\"s\":\"one\"}", "{\"s\":1.0}");
    check(f, rules, "{\"s\":\"Low\"}", "{\"s\":\"low\"}");
    check(f, "{\"s\":{\"enum\":{\"1\":\"one\"}}}", "{\"s\":1}", "{\"s\":1}");
}

static void test_sort(void **state)
{
    struct fixture *f = *state;
    check(f, "{\"t\":\"sort\"}", "{\"t\":[\"b\",\"a\",\"b\",\"ab\"]}", "{\"t\":[\"a\",\"ab\",\"b\"]}");
    check(f, "{\"t\":\"sort\"}", "{\"t\":[49.0,49,1,{\"b\":1,\"a\":2},{\"a\":2,\"b\":1.0},null]}",
          "{\"t\":[1,49.0,null,{\"b\":1,\"a\":2}]}");
    check(f, "{\"t\":\"sort\"}", "{\"t\":[]}", "{\"t\":[]}");
    check(f, "{\"t.*\":[\"trim\",\"lower\"],\"t\":\"sort\"}", "{\"t\":[\" B\",\"a\",\"b\"]}", "{\"t\":[\"a\",\"b\"]}");
    check_refused(f, "{\"t\":\"sort\"}", "{\"t\":\"b,a\"}", "/t: sort needs an array, got string");
}

static void test_fields(void **state)
{
    struct fixture *f = *state;
    check(f, "{\"a.b\":\"upper\"}", "{\"a\":{\"b\":\"x\"},\"b\":\"x\"}", "{\"a\":{\"b\":\"X\"},\"b\":\"x\"}");
    check(f, "{\"/a~1b/c.d\":\"upper\"}", "{\"a/b\":{\"c.d\":\"x\"}}", "{\"a/b\":{\"c.d\":\"X\"}}");
    check(f, "{\"/l/*/n/*\":\"upper\"}", "{\"l\":[{\"n\":[\"x\",\"y\"]},{\"n\":\"z\"},5,{\"m\":1}]}",
          "{\"l\":[{\"n\":[\"X\",\"Y\"]},{\"n\":\"z\"},5,{\"m\":1}]}");
    check(f, "{\"l.1\":\"upper\",\"l.01\":\"upper\",\"l.9\":\"upper\",\"l.-\":\"upper\"}",
          "{\"l\":[\"x\",\"y\",\"z\"]}", "{\"l\":[\"x\",\"Y\",\"z\"]}");
    check(f, "{\"/*\":\"upper\"}", "[\"x\",\"y\"]", "[\"X\",\"Y\"]");
    check(f, "{\"a.*\":\"upper\"}", "{\"a\":{\"*\":\"x\",\"b\":\"x\"}}", "{\"a\":{\"*\":\"X\",\"b\":\"x\"}}");
    check(f, "{\"a\":\"upper\",\"n\":\"integer\",\"m.x\":\"trim\"}", "{\"n\":null,\"m\":null}",
          "{\"n\":null,\"m\":null}");
    check(f, "{}", "{\"a\":1}", "{\"a\":1}");
    check(f, "{\"a\":\"trim\"}", "5", "5");
    check_refused(f, "{\"/l/*/a~1b\":\"timestamp\"}", "{\"l\":[{},{\"a/b\":\"soon\"}]}",
                  "/l/1/a~1b: is not a date and time of RFC 3339 (2026-11-29T16:23:28Z)");
}

/* Defaults belong to the schema and are shared with every call. */
static void test_shared_values_stay(void **state)
{
    struct fixture *f = *state;
    struct json *shared = parse(f, "{\"list\":[{\"x\":\"a\"}],\"y\":\"b\"}");
    struct json *value = json_object(&f->arena);
    json_set(&f->arena, value, STR("s"), *shared);
    struct normal *normal = NULL;
    assert_int_equal(
        normal_new(parse(f, "{\"s.list.*.x\":\"upper\",\"s.y\":\"upper\",\"s.list\":\"sort\"}"), &normal, &f->err), 0);
    assert_int_equal(normal_apply(normal, &f->arena, value, &f->err), 0);
    normal_free(normal);
    buf_reset(&f->buf);
    json_write(&f->buf, value);
    assert_string_equal(f->buf.p, "{\"s\":{\"list\":[{\"x\":\"A\"}],\"y\":\"B\"}}");
    buf_reset(&f->buf);
    json_write(&f->buf, shared);
    assert_string_equal(f->buf.p, "{\"list\":[{\"x\":\"a\"}],\"y\":\"b\"}");
}

static void test_refuses_broken_rules(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"[]", "expected an object of field and normaliser, got array"},
        {"{\"a\":\"uper\"}", "a: \"uper\" is not a normaliser; expected trim, collapse_space,"},
        {"{\"a\":[\"trim\",5]}", "a: number is not a normaliser;"},
        {"{\"a\":\"minor_units\"}", "a: \"minor_units\" is not a normaliser;"},
        {"{\"a\":\"minor_units()\"}", "a: expected minor_units(currency)"},
        {"{\"a\":\"minor_units(x\"}", "a: expected minor_units(currency)"},
        {"{\"a\":\"minor_units(\\\"EURO\\\")\"}", "a: \"EURO\" is not a currency code of ISO 4217 in quotes"},
        {"{\"a\":\"minor_units(\\\"EUR)\"}", "a: \"EUR is not a currency code"},
        {"{\"a\":\"minor_units(\\\")\"}", "a: \" is not a currency code"},
        {"{\"l.*\":\"minor_units(currency)\"}", "l.*: items of an array have no sibling"},
        {"{\"a\":{\"enum\":[]}}", "a: expected trim,"},
        {"{\"a\":{\"enum\":{\"x\":null}}}", "a: enum maps to null;"},
        {"{\"a\":{\"sort\":true}}", "a: expected trim,"},
        {"{\"a\":{}}", "a: object is not a normaliser;"},
        {"{\"\":\"trim\"}", ": not a field;"},
        {"{\"a..b\":\"trim\"}", "a..b: not a field;"},
        {"{\"/a~\":\"trim\"}", "/a~: not a field;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct normal *normal = NULL;
        assert_int_equal(normal_new(parse(f, cases[i][0]), &normal, &f->err), ERR_INVALID);
        assert_null(normal);
        if (strncmp(f->err.text, cases[i][1], strlen(cases[i][1])) != 0)
            fail_msg("%s: %s", cases[i][0], f->err.text);
    }
    normal_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_text),
        TEST(test_s43_nfc),
        TEST(test_integer),
        TEST(test_decimal),
        TEST(test_minor_units),
        TEST(test_minor_units_refusals),
        TEST(test_minor_units_sees_the_normal_currency),
        TEST(test_currencies),
        TEST(test_timestamp),
        TEST(test_enum),
        TEST(test_sort),
        TEST(test_fields),
        TEST(test_shared_values_stay),
        TEST(test_refuses_broken_rules),
#undef TEST
    };
    return cmocka_run_group_tests_name("normal", tests, NULL, NULL);
}
