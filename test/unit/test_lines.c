/* Lines from pieces: every cut of the input gives the same lines; long ones are told once and cost no memory. */
#include "base/lines.h"
#include "support/test.h"

struct told {
    struct lines lines;
    struct buf out; /* one "[line]" or "<beginning of a long one>" per line */
    bool release;
};

static void take(void *user, struct str line, bool over)
{
    struct told *told = user;
    buf_add_char(&told->out, over ? '<' : '[');
    buf_add_str(&told->out, line);
    buf_add_char(&told->out, over ? '>' : ']');
    if (told->release)
        lines_release(&told->lines);
}

static void begin(struct told *told, size_t bytes_max)
{
    *told = (struct told){0};
    lines_init(&told->lines, bytes_max, take, told);
    buf_init(&told->out, 0);
}

static void finish(struct told *told, const char *wanted)
{
    assert_string_equal(buf_str(&told->out).p, wanted);
    lines_release(&told->lines);
    buf_release(&told->out);
}

/* Feeds the text in two pieces, cut at each place, and in single bytes. */
static void expect(size_t bytes_max, const char *text, const char *wanted)
{
    struct told told;
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n; cut++) {
        begin(&told, bytes_max);
        lines_feed(&told.lines, text, cut);
        lines_feed(&told.lines, text + cut, n - cut);
        lines_end(&told.lines);
        finish(&told, wanted);
    }
    begin(&told, bytes_max);
    for (size_t i = 0; i < n; i++)
        lines_feed(&told.lines, text + i, 1);
    lines_end(&told.lines);
    finish(&told, wanted);
}

static void test_lines(void **state)
{
    (void)state;
    expect(100, "", "");
    expect(100, "a\nb\n", "[a][b]");
    expect(100, "a\r\nb\r\n\r\n\n", "[a][b]");
    expect(100, "a\rb\n", "[a\rb]");
    expect(100, "whole\nhalf", "[whole][half]");
}

static void test_long_lines(void **state)
{
    (void)state;
    expect(4, "abcd\nx\n", "[abcd][x]");
    expect(4, "abcde\nx\n", "<abcd>[x]");
    expect(4, "abcdefghijklmnop\nx\nabcdefgh\ny", "<abcd>[x]<abcd>[y]");
    expect(4, "abcdefgh", "<abcd>");
}

/* An endless line is told once, at its maximum, and the memory is given back. */
static void test_endless_line(void **state)
{
    struct told told;
    char piece[4096];
    (void)state;
    memset(piece, 'x', sizeof piece);
    begin(&told, 1 << 20);
    for (size_t fed = 0; fed < 8 << 20; fed += sizeof piece)
        lines_feed(&told.lines, piece, sizeof piece);
    assert_int_equal(told.out.n, (1 << 20) + 2);
    assert_int_equal(told.lines.buf.cap, 0);
    lines_feed(&told.lines, "\nok\n", 4);
    assert_string_equal(told.out.p + told.out.n - 4, "[ok]");
    lines_release(&told.lines);
    buf_release(&told.out);
}

static void test_release_within_callback(void **state)
{
    struct told told;
    (void)state;
    begin(&told, 4);
    told.release = true;
    lines_feed(&told.lines, "a\nb\n", 4);
    finish(&told, "[a]");
    begin(&told, 4);
    told.release = true;
    lines_feed(&told.lines, "a", 1);
    lines_feed(&told.lines, "\nb\n", 3);
    finish(&told, "[a]");
    begin(&told, 4);
    told.release = true;
    lines_feed(&told.lines, "abcdef\nb\n", 9);
    finish(&told, "<abcd>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_endless_line),
        cmocka_unit_test(test_release_within_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
