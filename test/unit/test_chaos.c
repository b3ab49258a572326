/* The figures of onced chaos: times in buckets, percentiles, sums. */
#include "support/test.h"

#include "cli/chaos_report.h"

#include "base/mem.h"

#include <stdlib.h>

struct fixture {
    struct histogram *times, *others;
    struct buf text;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.times = mem_zero(sizeof *f.times);
    f.others = mem_zero(sizeof *f.others);
    buf_init(&f.text, 0);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    free(f->times);
    free(f->others);
    buf_release(&f->text);
    return 0;
}

static void test_percentiles_are_nearest_ranks(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(histogram_percentile(f->times, 99), 0);
    for (int64_t ms = 1; ms <= 1000; ms++)
        histogram_add(f->times, ms);
    assert_int_equal(histogram_percentile(f->times, 50), 500);
    assert_int_equal(histogram_percentile(f->times, 99), 990);
    assert_int_equal(histogram_percentile(f->times, 100), 1000);
    assert_int_equal(f->times->sum / f->times->count, 500);
    assert_int_equal(f->times->max, 1000);
}

static void test_one_time_is_every_percentile(void **state)
{
    struct fixture *f = *state;
    histogram_add(f->times, 7);
    assert_int_equal(histogram_percentile(f->times, 1), 7);
    assert_int_equal(histogram_percentile(f->times, 99), 7);
    histogram_add(f->others, -5); /* a clock that went back is no negative time */
    assert_int_equal(histogram_percentile(f->others, 99), 0);
    assert_int_equal(f->others->sum, 0);
}

/* Never too low, and at most 1.6 % too high, up to a year and beyond. */
static void test_long_times_are_nearly_exact(void **state)
{
    struct fixture *f = *state;
    for (int64_t ms = 1; ms < INT64_C(400) * 86400000; ms += ms / 37 + 1) {
        memset(f->times, 0, sizeof *f->times);
        histogram_add(f->times, ms);
        histogram_add(f->times, INT64_C(1) << 43); /* so that the largest one does not help */
        int64_t told = histogram_percentile(f->times, 50);
        if (told < ms || (ms < HISTOGRAM_EXACT ? told != ms : (told - ms) * 1000 > ms * 16))
            fail_msg("%lld ms told as %lld", (long long)ms, (long long)told);
    }
}

static void test_bins_add_up(void **state)
{
    struct fixture *f = *state;
    for (int64_t ms = 0; ms < 100000; ms += 7)
        histogram_add(f->times, ms);
    assert_int_equal(histogram_between(f->times, -1, 6), 1);
    assert_int_equal(histogram_between(f->times, 6, 14), 2);
    assert_int_equal(histogram_between(f->times, 14, 14), 0);
    assert_int_equal(histogram_between(f->times, -1, 1000) + histogram_between(f->times, 1000, INT64_MAX),
                     f->times->count);
}

static void test_sums(void **state)
{
    struct fixture *f = *state;
    struct chaos_kpi *a = mem_zero(sizeof *a), *b = mem_zero(sizeof *b);
    a->operations = 3;
    a->doubts[DOUBT_RESEND] = 1;
    a->doubts[DOUBT_OPERATOR] = 5;
    b->operations = 4;
    b->doubts[DOUBT_LOOKUP] = 2;
    b->ends[END_OPEN] = 9;
    histogram_add(&a->added_ms, 10);
    histogram_add(&b->added_ms, 30);
    chaos_kpi_merge(a, b);
    assert_int_equal(a->operations, 7);
    assert_int_equal(chaos_kpi_resolved(a), 3); /* what people decided is not among them */
    assert_int_equal(a->ends[END_OPEN], 9);
    assert_int_equal(a->added_ms.count, 2);
    assert_int_equal(histogram_percentile(&a->added_ms, 99), 30);
    free(a);
    free(b);
    (void)f;
}

static const struct {
    int64_t n;
    const char *text;
} counts[] = {{0, "0"}, {999, "999"}, {1000, "1,000"}, {1234567, "1,234,567"}, {-123, "-123"}, {-1234, "-1,234"}};

static void test_counts_are_grouped(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        buf_reset(&f->text);
        chaos_count(&f->text, counts[i].n);
        assert_string_equal(buf_str(&f->text).p, counts[i].text);
    }
}

static void test_shares_of_nothing(void **state)
{
    (void)state;
    struct chaos_kpi *kpi = mem_zero(sizeof *kpi);
    assert_true(chaos_share(0, 0) == 0);
    assert_true(chaos_extra_requests(kpi) == 0);
    assert_true(chaos_contention(kpi) == 0);
    kpi->operations = 4;
    kpi->requests = 5;
    kpi->lookups = 1;
    assert_true(chaos_extra_requests(kpi) == 0.5);
    free(kpi);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_percentiles_are_nearest_ranks),
        TEST(test_one_time_is_every_percentile),
        TEST(test_long_times_are_nearly_exact),
        TEST(test_bins_add_up),
        TEST(test_sums),
        TEST(test_counts_are_grouped),
        TEST(test_shares_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
