/* The small modules of base: arena, buf, digest, err, env, ulid. */
#include "support/test.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"
#include "base/env.h"
#include "base/err.h"
#include "base/ulid.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- arena ---- */

static void test_arena_gives_aligned_distinct_memory(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    assert_int_equal(arena.bytes, 0);
    char *first = arena_alloc(&arena, 0);
    char *second = arena_alloc(&arena, 0);
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    for (size_t n = 1; n < 20000; n = n * 3 / 2 + 1) {
        unsigned char *p = arena_alloc(&arena, n);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, 0xee, n);
    }
    unsigned char *zero = arena_zero(&arena, 1000);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(zero[i], 0);
    unsigned char *large = arena_alloc(&arena, 3 * 1024 * 1024);
    memset(large, 1, 3 * 1024 * 1024);
    arena_release(&arena);
    assert_int_equal(arena.bytes, 0);
    arena_release(&arena);
}

static void test_arena_reset_keeps_the_first_block(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    arena_reset(&arena);
    char *first = arena_alloc(&arena, 10);
    size_t bytes = arena.bytes;
    for (int i = 0; i < 1000; i++)
        arena_alloc(&arena, 100);
    assert_true(arena.bytes > bytes);
    arena_reset(&arena);
    assert_int_equal(arena.bytes, bytes);
    assert_ptr_equal(arena_alloc(&arena, 10), first);
    arena_release(&arena);
}

static void test_arena_copies(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    assert_null(arena_copy_text(&arena, NULL));
    assert_null(arena_copy_str(&arena, STR_NONE));
    assert_null(arena_str(&arena, STR_NONE).p);
    assert_string_equal(arena_copy_text(&arena, ""), "");
    assert_string_equal(arena_copy_str(&arena, (struct str){"abcdef", 3}), "abc");
    struct str with_nul = arena_str(&arena, STR("a\0b"));
    assert_true(str_equal(with_nul, STR("a\0b")));
    assert_string_equal(arena_printf(&arena, "%s-%d", "x", 42), "x-42");
    char *long_text = arena_printf(&arena, "%5000d", 1);
    assert_int_equal(strlen(long_text), 5000);
    arena_release(&arena);
}

static void test_str(void **state)
{
    (void)state;
    assert_true(str_equal(STR_NONE, STR("")));
    assert_true(str_is(STR("abc"), "abc"));
    assert_false(str_is(STR("abc"), "abd"));
    assert_false(str_is(STR("ab"), "abc"));
    assert_null(str_of(NULL).p);
    assert_true(text_equal(NULL, NULL));
    assert_false(text_equal(NULL, ""));
    assert_true(text_equal("a", "a"));
}

/* ---- buf ---- */

static void test_buf_grows(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, 0);
    assert_true(str_is(buf_str(&buf), ""));
    for (int i = 0; i < 1000; i++)
        buf_printf(&buf, "%d,", i);
    buf_add_char(&buf, '\0');
    buf_add_str(&buf, STR("x"));
    buf_add(&buf, NULL, 0);
    buf_add_text(&buf, "end");
    assert_int_equal(buf.n, 10 * 2 + 90 * 3 + 900 * 4 + 1 + 1 + 3);
    assert_int_equal(buf.p[buf.n], '\0');
    assert_memory_equal(buf.p + buf.n - 5, "\0xend", 6);
    assert_false(buf.over);
    buf_reset(&buf);
    assert_string_equal(buf.p, "");
    buf_release(&buf);
    assert_null(buf.p);
}

static void test_buf_stops_at_its_maximum(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, 8);
    buf_add_text(&buf, "12345678");
    assert_false(buf.over);
    buf_add_text(&buf, "");
    assert_false(buf.over);
    buf_add_char(&buf, '9');
    assert_true(buf.over);
    assert_string_equal(buf.p, "12345678");
    buf_reset(&buf);
    assert_false(buf.over);
    buf_printf(&buf, "%s", "123456789");
    assert_true(buf.over);
    buf_add_char(&buf, '1'); /* what follows a gap is not added either */
    assert_string_equal(buf.p, "");
    buf_release(&buf);
    assert_int_equal(buf.max, 8);
}

static void test_buf_detach(void **state)
{
    (void)state;
    struct buf buf;
    size_t n = 99;
    buf_init(&buf, 4);
    char *empty = buf_detach(&buf, &n);
    assert_int_equal(n, 0);
    assert_string_equal(empty, "");
    free(empty);
    buf_add_text(&buf, "12345");
    char *over = buf_detach(&buf, NULL);
    assert_string_equal(over, "");
    free(over);
    buf_add_text(&buf, "1234");
    char *text = buf_detach(&buf, &n);
    assert_int_equal(n, 4);
    assert_string_equal(text, "1234");
    assert_null(buf.p);
    assert_int_equal(buf.max, 4);
    free(text);
}

/* ---- digest ---- */

static void check_hex(struct digest digest, const char *expected)
{
    char hex[2 * DIGEST_BYTES + 1];
    digest_hex(&digest, DIGEST_BYTES, hex);
    assert_string_equal(hex, expected);
}

static void test_digest_sha256(void **state)
{
    (void)state;
    check_hex(digest_sha256(STR("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_hex(digest_sha256(STR("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_hex(digest_sha256(STR_NONE), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    struct digest digest = digest_sha256(STR("abc"));
    char hex[9];
    digest_hex(&digest, 4, hex);
    assert_string_equal(hex, "ba7816bf");
    assert_int_equal(digest_int64(&digest), (int64_t)0xba7816bf8f01cfea);
}

static void check_parts_differ(const struct str *a, size_t a_count, const struct str *b, size_t b_count)
{
    struct digest left = digest_parts(a, a_count), right = digest_parts(b, b_count);
    assert_false(digest_equal(&left, &right));
    left = digest_parts_keyed(STR("k"), a, a_count);
    right = digest_parts_keyed(STR("k"), b, b_count);
    assert_false(digest_equal(&left, &right));
}

/* cases.md S45: tuples cannot be shifted into each other. */
static void test_s45_digest_parts_are_unambiguous(void **state)
{
    (void)state;
    struct str ab_c[] = {STR("ab"), STR("c")}, a_bc[] = {STR("a"), STR("bc")}, abc[] = {STR("abc")};
    struct str absent[] = {STR("a"), STR_NONE}, empty[] = {STR("a"), STR("")};
    check_parts_differ(ab_c, 2, a_bc, 2);
    check_parts_differ(ab_c, 2, abc, 1);
    check_parts_differ(absent, 2, empty, 2);
    check_parts_differ(absent, 2, absent, 1);
    struct digest once = digest_parts(ab_c, 2), again = digest_parts(ab_c, 2);
    assert_true(digest_equal(&once, &again));
    /* independently computed: sha256 of 01 + be64(2) + "ab" + 01 + be64(1) + "c" */
    struct digest direct = digest_sha256(STR("\1\0\0\0\0\0\0\0\2ab\1\0\0\0\0\0\0\0\1c"));
    assert_true(digest_equal(&once, &direct));
}

static void test_digest_keyed_is_hmac(void **state)
{
    (void)state;
    /* Computed with Python: hmac.new(key, b"\1" + struct.pack(">Q", 3) + b"abc", "sha256") */
    struct str parts[] = {STR("abc")};
    check_hex(digest_parts_keyed(STR("key"), parts, 1),
              "569488430b6a84bd464c90496bcd16dc274195ac7d7a9c5efbc05466270cd722");
    char key[100];
    memset(key, 'k', sizeof key);
    check_hex(digest_parts_keyed((struct str){key, sizeof key}, parts, 1),
              "e6c25f667b55e9424b5fedcd560a6171dd5c26b461fc696eafdccee606821a28");
}

static void test_digest_same_secret(void **state)
{
    (void)state;
    const unsigned char a[] = "token", b[] = "tokem";
    assert_true(digest_same_secret(a, a, 5));
    assert_true(digest_same_secret(a, b, 4));
    assert_false(digest_same_secret(a, b, 5));
}

/* ---- err ---- */

static void test_err_first_wins(void **state)
{
    (void)state;
    struct err err = {0};
    err_prefix(&err, "x: ");
    assert_string_equal(err.text, "");
    assert_int_equal(err_set(&err, ERR_LIMIT, "at most %d", 5), ERR_LIMIT);
    assert_int_equal(err_set(&err, ERR_IO, "later"), ERR_IO);
    assert_int_equal(err.code, ERR_LIMIT);
    err_prefix(&err, "tools.%s: ", "pay");
    assert_string_equal(err.text, "tools.pay: at most 5");
    err_clear(&err);
    assert_int_equal(err.code, ERR_NONE);
    assert_string_equal(err.text, "");
    assert_int_equal(err_set(NULL, ERR_IO, "nobody listens"), ERR_IO);
    err_prefix(NULL, "x");
}

static void test_err_cuts_long_texts(void **state)
{
    (void)state;
    struct err err = {0};
    err_set(&err, ERR_INVALID, "%600d", 1);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    err_prefix(&err, "%s", "front: ");
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    assert_int_equal(strncmp(err.text, "front:  ", 8), 0);
    err_prefix(&err, "%600d", 2);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
}

static void test_err_names(void **state)
{
    (void)state;
    for (int code = ERR_NONE; code <= ERR_INTERNAL; code++)
        for (int other = ERR_NONE; other < code; other++)
            assert_string_not_equal(err_name((enum err_code)code), err_name((enum err_code)other));
    assert_string_equal(err_name(ERR_NOT_FOUND), "not_found");
}

/* ---- env ---- */

static void check_time(int64_t ms, const char *expected)
{
    char text[ENV_TIME_SIZE];
    env_time_text(ms, text);
    assert_string_equal(text, expected);
}

static void test_env_time_text(void **state)
{
    (void)state;
    check_time(0, "1970-01-01T00:00:00.000Z");
    check_time(-1, "1969-12-31T23:59:59.999Z");
    check_time(1795969408123, "2026-11-29T16:23:28.123Z");
    check_time(951782400000, "2000-02-29T00:00:00.000Z");
    check_time(4107542400000, "2100-03-01T00:00:00.000Z");
    check_time(253402300799999, "9999-12-31T23:59:59.999Z");
    check_time(-62135596800000, "0001-01-01T00:00:00.000Z");
    check_time(INT64_MAX, "292278994-08-17T07:12:55.807Z");
    check_time(INT64_MIN, "-292275055-05-16T16:47:04.192Z");
}

static void test_env_time_text_agrees_with_the_c_library(void **state)
{
    (void)state;
    for (int64_t second = -62135596800; second < 253402300800; second += 7654321) {
        time_t t = (time_t)second;
        struct tm tm;
        char expected[64];
        gmtime_r(&t, &tm);
        snprintf(expected, sizeof expected, "%04d-%02d-%02dT%02d:%02d:%02d.007Z", tm.tm_year + 1900, tm.tm_mon + 1,
                 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
        check_time(second * 1000 + 7, expected);
    }
}

static void test_env_system(void **state)
{
    (void)state;
    struct env *env = env_system();
    int64_t now = env->now_ms(env);
    assert_true(now > 1700000000000);
    assert_true(env->now_ms(env) - now < 60000);
    assert_true(env_random64(env) != env_random64(env));
    unsigned char bytes[300] = {0};
    env->random(env, bytes, sizeof bytes);
    size_t zeros = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        zeros += bytes[i] == 0;
    assert_true(zeros < 30);
}

/* ---- ulid ---- */

struct fake_env {
    struct env env;
    int64_t now;
    unsigned char fill;
};

static int64_t fake_now(struct env *env)
{
    return ((struct fake_env *)env)->now;
}

static void fake_random(struct env *env, void *out, size_t n)
{
    memset(out, ((struct fake_env *)env)->fill, n);
}

static void test_ulid_text(void **state)
{
    (void)state;
    struct fake_env fake = {{fake_now, fake_random}, 1469918176385, 0};
    struct ulid_source source;
    char id[ULID_CHARS + 1];
    ulid_source_init(&source, &fake.env);
    ulid_next(&source, id);
    assert_string_equal(id, "01ARYZ6S410000000000000000"); /* the specification's own time */
    assert_int_equal(ulid_time_ms(id), 1469918176385);
    fake.now++;
    fake.fill = 0xff;
    ulid_next(&source, id);
    assert_string_equal(id, "01ARYZ6S42FZZZZZZZZZZZZZZZ");
    assert_true(ulid_valid(id));
}

static void test_ulid_rises_whatever_the_clock_does(void **state)
{
    (void)state;
    static const int64_t times[] = {-5, -5, 0, 0, 1000, 1000, 999, 500, 1000, 1001, 1, 2000};
    struct fake_env fake = {{fake_now, fake_random}, 0, 0xff};
    struct ulid_source source;
    ulid_source_init(&source, &fake.env);
    char last[ULID_CHARS + 1] = "", id[ULID_CHARS + 1];
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        fake.now = times[i];
        for (int k = 0; k < 300; k++) {
            ulid_next(&source, id);
            assert_true(ulid_valid(id));
            assert_true(strcmp(id, last) > 0);
            memcpy(last, id, sizeof id);
        }
    }
}

static void test_ulid_first_is_random_at_time_zero(void **state)
{
    (void)state;
    struct fake_env a = {{fake_now, fake_random}, 0, 1}, b = {{fake_now, fake_random}, 0, 2};
    struct ulid_source one, two;
    char left[ULID_CHARS + 1], right[ULID_CHARS + 1];
    ulid_source_init(&one, &a.env);
    ulid_source_init(&two, &b.env);
    ulid_next(&one, left);
    ulid_next(&two, right);
    assert_string_not_equal(left, right);
    assert_int_equal(ulid_time_ms(left), 0);
}

static void test_ulid_borrows_the_next_millisecond(void **state)
{
    (void)state;
    struct fake_env fake = {{fake_now, fake_random}, 5000, 0};
    struct ulid_source source;
    char before[ULID_CHARS + 1], after[ULID_CHARS + 1];
    ulid_source_init(&source, &fake.env);
    ulid_next(&source, before);
    memset(source.last, 0xff, sizeof source.last);
    ulid_next(&source, after);
    assert_int_equal(ulid_time_ms(after), 5001);
    assert_true(strcmp(after, before) > 0);
}

static void test_ulid_valid(void **state)
{
    (void)state;
    assert_true(ulid_valid("01ARYZ6S41TSV4RRFFQ69G5FAV"));
    assert_true(ulid_valid("7ZZZZZZZZZZZZZZZZZZZZZZZZZ"));
    static const char *const bad[] = {"",
                                      "01ARYZ6S41",
                                      "01ARYZ6S41TSV4RRFFQ69G5FAVX",
                                      "81ARYZ6S41TSV4RRFFQ69G5FAV",
                                      "01aryz6s41tsv4rrffq69g5fav",
                                      "01ARYZ6S41TSV4RRFFQ69G5FAU",
                                      "01ARYZ6S41TSV4RRFFQ69G5FA "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ulid_valid(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_gives_aligned_distinct_memory),
        cmocka_unit_test(test_arena_reset_keeps_the_first_block),
        cmocka_unit_test(test_arena_copies),
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_buf_grows),
        cmocka_unit_test(test_buf_stops_at_its_maximum),
        cmocka_unit_test(test_buf_detach),
        cmocka_unit_test(test_digest_sha256),
        cmocka_unit_test(test_s45_digest_parts_are_unambiguous),
        cmocka_unit_test(test_digest_keyed_is_hmac),
        cmocka_unit_test(test_digest_same_secret),
        cmocka_unit_test(test_err_first_wins),
        cmocka_unit_test(test_err_cuts_long_texts),
        cmocka_unit_test(test_err_names),
        cmocka_unit_test(test_env_time_text),
        cmocka_unit_test(test_env_time_text_agrees_with_the_c_library),
        cmocka_unit_test(test_env_system),
        cmocka_unit_test(test_ulid_text),
        cmocka_unit_test(test_ulid_rises_whatever_the_clock_does),
        cmocka_unit_test(test_ulid_first_is_random_at_time_zero),
        cmocka_unit_test(test_ulid_borrows_the_next_millisecond),
        cmocka_unit_test(test_ulid_valid),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
