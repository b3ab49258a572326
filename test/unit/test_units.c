/* Durations and sizes of the registry file. */
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void expect_ms(const char *text, int64_t wanted)
{
    int64_t ms = -1;
    struct err err = {0};
    assert_int_equal(units_duration_ms(str_of(text), &ms, &err), ERR_NONE);
    assert_int_equal(ms, wanted);
}

static void test_durations(void **state)
{
    (void)state;
    expect_ms("0", 0);
    expect_ms("0s", 0);
    expect_ms("500ms", 500);
    expect_ms("10s", 10000);
    expect_ms("5m", 300000);
    expect_ms("24h", 86400000);
    expect_ms("3650d", UNITS_DURATION_MS_MAX);
    const char *const bad[] = {"",  "10", "s", "1.5s", "-1s", "1 s", "1S", "1s ", "3651d", "99999999999999999999ms",
                               "1w"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t ms = -1;
        struct err err = {0};
        assert_int_equal(units_duration_ms(str_of(bad[i]), &ms, &err), ERR_INVALID);
        assert_int_equal(ms, -1);
        assert_non_null(strstr(err.text, "expected a whole number with a unit"));
    }
    assert_int_equal(units_duration_ms(STR_NONE, &(int64_t){0}, NULL), ERR_INVALID);
}

static void expect_bytes(const char *text, size_t wanted)
{
    size_t bytes = 0;
    struct err err = {0};
    assert_int_equal(units_bytes(str_of(text), &bytes, &err), ERR_NONE);
    assert_int_equal(bytes, wanted);
}

static void test_sizes(void **state)
{
    (void)state;
    expect_bytes("0", 0);
    expect_bytes("17", 17);
    expect_bytes("17B", 17);
    expect_bytes("64KB", 65536);
    expect_bytes("1MB", 1048576);
    expect_bytes("2GB", 2147483648u);
    const char *const bad[] = {"", "MB", "1.5MB", "-1", "1 MB", "1mb", "1K", "9999999999999GB"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t bytes = 7;
        struct err err = {0};
        assert_int_equal(units_bytes(str_of(bad[i]), &bytes, &err), ERR_INVALID);
        assert_int_equal(bytes, 7);
        assert_non_null(strstr(err.text, "is not a size"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_durations), cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
