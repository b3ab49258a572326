/* Server-sent events: the standard's examples, every cut of the input, limits, and what we write is what we read. */
#include "base/sse.h"
#include "support/test.h"

#include <stdio.h>

struct told {
    struct sse_reader reader;
    struct buf out; /* one "type|data|id|retry;" per event; an absent id is "-" */
    bool release;
};

static void take(void *user, const struct sse_event *event)
{
    struct told *told = user;
    buf_printf(&told->out, "%.*s|", STR_ARG(event->type));
    buf_add_str(&told->out, event->data);
    buf_printf(&told->out, "|%.*s|%lld;", event->id.p ? (int)event->id.n : 1, event->id.p ? event->id.p : "-",
               (long long)event->retry_ms);
    if (told->release)
        sse_reader_release(&told->reader);
}

static void begin(struct told *told, size_t bytes_max)
{
    *told = (struct told){0};
    sse_reader_init(&told->reader, bytes_max, take, told);
    buf_init(&told->out, 0);
}

static void finish(struct told *told, const char *wanted)
{
    assert_string_equal(buf_str(&told->out).p, wanted);
    sse_reader_release(&told->reader);
    buf_release(&told->out);
}

static void expect_bytes(const char *text, size_t n, const char *wanted)
{
    struct told told;
    for (size_t cut = 0; cut <= n; cut++) {
        begin(&told, 1000);
        assert_true(sse_reader_feed(&told.reader, text, cut));
        assert_true(sse_reader_feed(&told.reader, text + cut, n - cut));
        finish(&told, wanted);
    }
    begin(&told, 1000);
    for (size_t i = 0; i < n; i++)
        assert_true(sse_reader_feed(&told.reader, text + i, 1));
    finish(&told, wanted);
}

static void expect(const char *text, const char *wanted)
{
    expect_bytes(text, strlen(text), wanted);
}

static void test_standard_examples(void **state)
{
    (void)state;
    expect("data: YHOO\ndata: +2\ndata: 10\n\n", "message|YHOO\n+2\n10|-|-1;");
    expect(": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
           "message|first event|1|-1;message|second event||-1;message| third event|-|-1;");
    expect("data\n\ndata\ndata\n\ndata:", "message||-|-1;message|\n|-|-1;");
    expect("data:test\n\ndata: test\n\n", "message|test|-|-1;message|test|-|-1;");
    expect("event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n", "add|73857293|-|-1;remove|2153|-|-1;");
}

static void test_lines_and_fields(void **state)
{
    (void)state;
    expect("data: a\r\n\r\ndata: b\r\rdata: c\n\n", "message|a|-|-1;message|b|-|-1;message|c|-|-1;");
    expect("\xef\xbb\xbf"
           "data: a\n\n",
           "message|a|-|-1;");
    expect("id: 7\nretry: 500\ndata: \n\n", "message||7|500;");
    expect("id: 7\n\n", "message||7|-1;");
    expect("retry: 10\n\n", "message||-|10;");
    expect("retry: 1x\nretry: -1\nretry:\ndata: a\n\n", "message|a|-|-1;");
    expect("retry: 99999999999999999999\n\n", "message||-|86400000;");
    expect("event: only\n\ndata: a\n\n", "message|a|-|-1;");
    expect("unknown: x\nDATA: y\n data: z\ndata: a\n\n", "message|a|-|-1;");
    expect("data: never ended\n", "");
    expect_bytes("id: a\0b\ndata: c\n\n", 17, "message|c|-|-1;");
}

static void test_limits(void **state)
{
    struct told told;
    (void)state;
    begin(&told, 10);
    assert_true(sse_reader_feed(&told.reader, "data: 1234\n\n", 12));
    assert_false(sse_reader_feed(&told.reader, "data: 12345\n\n", 13));
    assert_false(sse_reader_feed(&told.reader, "data: a\n\n", 9));
    finish(&told, "message|1234|-|-1;");
    begin(&told, 10); /* of many lines */
    assert_false(sse_reader_feed(&told.reader, "data: 1234\ndata: 1234\ndata: 12\n\n", 32));
    finish(&told, "");
    begin(&told, 10); /* a line without an end, in pieces */
    assert_true(sse_reader_feed(&told.reader, "data: 1234", 10));
    assert_false(sse_reader_feed(&told.reader, "5", 1));
    finish(&told, "");
}

static void test_release_within_callback(void **state)
{
    struct told told;
    (void)state;
    begin(&told, 100);
    told.release = true;
    assert_true(sse_reader_feed(&told.reader, "data: a\n\ndata: b\n\n", 18));
    finish(&told, "message|a|-|-1;");
}

static void test_write(void **state)
{
    struct buf out;
    (void)state;
    buf_init(&out, 0);
    sse_write(&out, STR("message"), STR("s-1"), 500, STR(""));
    assert_string_equal(out.p, "event: message\nid: s-1\nretry: 500\ndata: \n\n");
    buf_reset(&out);
    sse_write(&out, STR_NONE, STR_NONE, -1, STR("{\"a\":\n 1}\r\nb\rc\n"));
    assert_string_equal(out.p, "data: {\"a\":\ndata:  1}\ndata: b\ndata: c\ndata: \n\n");
    expect(out.p, "message|{\"a\":\n 1}\nb\nc\n|-|-1;");
    buf_reset(&out);
    sse_write(&out, STR("a\ndata: forged"), STR("i\rd"), -1, STR_NONE);
    assert_string_equal(out.p, "event: a\nid: i\n\n");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standard_examples),
        cmocka_unit_test(test_lines_and_fields),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_release_within_callback),
        cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
