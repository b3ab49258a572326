#include "support/test.h"

#include "base/json.h"

static void check_canonical(const char *number, const char *expected)
{
    struct buf buf;
    buf_init(&buf, 0);
    json_canonical_number(&buf, str_of(number));
    assert_string_equal(buf.p, expected);
    buf_release(&buf);
}

static void test_canonical_layout(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"0", "0"},
        {"-0", "0"},
        {"-0.000", "0"},
        {"0e999999999999999999999999", "0"},
        {"49", "49"},
        {"49.0", "49"},
        {"49.00", "49"},
        {"4.9e1", "49"},
        {"4900e-2", "49"},
        {"0.049E+3", "49"},
        {"-1.50", "-1.5"},
        {"100", "100"},
        {"1e2", "100"},
        {"123456789012345678901", "123456789012345678901"},
        {"1e20", "100000000000000000000"},
        {"1e21", "1e+21"},
        {"1000000000000000000000", "1e+21"},
        {"123456789012345678901234", "1.23456789012345678901234e+23"},
        {"-1000000000000000000000", "-1e+21"},
        {"0.000001", "0.000001"},
        {"0.0000001", "1e-7"},
        {"1.25e-7", "1.25e-7"},
        {"0.00001230", "0.0000123"},
        {"12.5", "12.5"},
        {"1234567890123456789.0123456789", "1234567890123456789.0123456789"},
        {"1e400", "1e+400"},
        {"10e399", "1e+400"},
        {"-123e-400", "-1.23e-398"},
        {"9007199254740993", "9007199254740993"},
        {"333333333.33333329", "333333333.33333329"},
        {"4.50", "4.5"},
        {"2e-3", "0.002"},
        {"0.000000000000000000000000001", "1e-27"},
        /* ECMAScript's own border cases, RFC 8785 appendix B, as far as the text is exact */
        {"5e-324", "5e-324"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"295147905179352830000", "295147905179352830000"},
        {"999999999999999900000", "999999999999999900000"},
        {"0.0000010", "0.000001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_canonical(cases[i][0], cases[i][1]);
}

static void test_canonical_long_exponents(void **state)
{
    (void)state;
    check_canonical("1e99999999999999999", "1e+99999999999999999");
    check_canonical("10e99999999999999999", "1e+100000000000000000");
    check_canonical("1e100000000000000000", "1e+100000000000000000");
    check_canonical("0.1e100000000000000000", "1e+99999999999999999");
    check_canonical("100e999999999999999999999", "1e+1000000000000000000001");
    check_canonical("0.001e1000000000000000000000", "1e+999999999999999999997");
    check_canonical("12.5e-1000000000000000000000", "1.25e-999999999999999999999");
    check_canonical("0.5e-999999999999999999999", "5e-1000000000000000000000");
    check_canonical("1e+0000000000000000000000000000005", "100000");
    check_canonical("1e-00000000000000000000000000000000", "1");
}

static int sign(int value)
{
    return (value > 0) - (value < 0);
}

static void test_compare(void **state)
{
    (void)state;
    /* in rising order; all pairs are compared */
    static const char *const rising[] = {"-1e1000000000000000000001",
                                         "-1e1000000000000000000000",
                                         "-1e400",
                                         "-9007199254740993",
                                         "-9007199254740992",
                                         "-1.5",
                                         "-1",
                                         "-0.1",
                                         "-1e-400",
                                         "-1e-1000000000000000000000",
                                         "0",
                                         "1e-1000000000000000000001",
                                         "1e-1000000000000000000000",
                                         "12e-1000000000000000000000",
                                         "1e-400",
                                         "0.0000000000000000000000000000000001",
                                         "0.1",
                                         "0.10000000000000000000000001",
                                         "0.11",
                                         "1",
                                         "1.00000000000000000000000000000001",
                                         "2",
                                         "10",
                                         "11",
                                         "99.9999",
                                         "100",
                                         "9007199254740992",
                                         "9007199254740993",
                                         "1e100",
                                         "1e400",
                                         "1.1e400",
                                         "1e99999999999999999",
                                         "1e999999999999999999999",
                                         "5e999999999999999999999",
                                         "1e1000000000000000000000",
                                         "20e1000000000000000000000"};
    size_t count = sizeof rising / sizeof *rising;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++)
            assert_int_equal(sign(json_number_compare(str_of(rising[i]), str_of(rising[k]))), sign((int)i - (int)k));
}

static void test_compare_equal(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"49", "49.0"},
        {"49", "4.9e1"},
        {"49.00", "4900e-2"},
        {"0", "-0"},
        {"0", "0e99999999999999"},
        {"-0.0", "0e-1"},
        {"1e400", "10e399"},
        {"0.1e1000000000000000000000", "1e999999999999999999999"},
        {"10e-1000000000000000000001", "1e-1000000000000000000000"},
        {"100000e99999999999999999", "1e100000000000000004"},
        {"1e0000000000000000000000000000000000001", "10"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(json_number_compare(str_of(cases[i][0]), str_of(cases[i][1])), 0);
}

static void check_int64(const char *number, bool fits, int64_t expected)
{
    int64_t value = 123;
    assert_int_equal(json_number_int64(str_of(number), &value), fits);
    assert_int_equal(value, fits ? expected : 123);
}

static void test_int64(void **state)
{
    (void)state;
    check_int64("0", true, 0);
    check_int64("-0.0e5", true, 0);
    check_int64("49", true, 49);
    check_int64("49.0", true, 49);
    check_int64("4.9e1", true, 49);
    check_int64("-4900e-2", true, -49);
    check_int64("1e18", true, 1000000000000000000);
    check_int64("9223372036854775807", true, INT64_MAX);
    check_int64("9223372036854775807.000", true, INT64_MAX);
    check_int64("-9223372036854775808", true, INT64_MIN);
    check_int64("9223372036854775808", false, 0);
    check_int64("-9223372036854775809", false, 0);
    check_int64("1e19", false, 0);
    check_int64("1e400", false, 0);
    check_int64("1e99999999999999999999", false, 0);
    check_int64("1e-99999999999999999999", false, 0);
    check_int64("0.5", false, 0);
    check_int64("49.01", false, 0);
    check_int64("99999999999999999999", false, 0);
}

static void test_is_integer(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "0",      "-0.0", "1", "1.0", "1.5e1", "1e400", "123456789012345678901234567890", "1e99999999999999999999",
        "100e-2", "0e-5"};
    static const char *const no[] = {
        "0.1", "1.5", "1e-1", "150e-2", "1e-400", "1e-99999999999999999999", "12345678901234567890.5"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(json_number_is_integer(str_of(yes[i])));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(json_number_is_integer(str_of(no[i])));
}

static void test_multiple_of(void **state)
{
    (void)state;
    static const char *const yes[][2] = {
        {"0", "3"},
        {"10", "2"},
        {"4.5", "1.5"},
        {"0.0075", "0.0001"},
        {"1e308", "0.5"},
        {"-6", "3"},
        {"12.30", "0.01"},
        {"1e4", "1e-5"},
        {"1e9000", "1"},
        {"1e20", "16"},
        {"1e400", "2.5e399"},
        {"246913578024691357802469135780", "123456789012345678901234567890"},
        {"1e60", "1000000000000000000000000000000"},
        {"9007199254740993", "3"},
    };
    static const char *const no[][2] = {
        {"7", "2"},
        {"35", "1.5"},
        {"0.00751", "0.0001"},
        {"1e-400", "1"},
        {"1", "1e1"},
        {"9007199254740992", "3"},
        {"1e20", "3"},
        {"246913578024691357802469135781", "123456789012345678901234567890"},
        {"1e20000", "3"},
        {"1e99999999999999999999", "1"},
        {"1", "1e-20000"},
        {"1", "0"},
    };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(json_number_multiple_of(str_of(yes[i][0]), str_of(yes[i][1])));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(json_number_multiple_of(str_of(no[i][0]), str_of(no[i][1])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical_layout),
        cmocka_unit_test(test_canonical_long_exponents),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_equal),
        cmocka_unit_test(test_int64),
        cmocka_unit_test(test_is_integer),
        cmocka_unit_test(test_multiple_of),
    };
    return cmocka_run_group_tests_name("json_number", tests, NULL, NULL);
}
