/* Event streams and lines in pieces: the pieces do not matter, the limit holds, and events that were read are the same
 * after writing. The first byte says how large the pieces are and what the limit is. */
#include "fuzz.h"

#include "base/lines.h"
#include "base/sse.h"

struct seen {
    struct buf out; /* all that was told, in one text */
    struct buf written;
    size_t max;
};

static void add_text(struct buf *out, struct str text)
{
    buf_printf(out, "%zu:", text.p ? text.n : SIZE_MAX);
    buf_add_str(out, text);
}

static void see_event(void *user, const struct sse_event *event)
{
    struct seen *seen = user;
    CHECK(event->data.n <= seen->max && event->id.n <= seen->max && event->retry_ms >= -1);
    CHECK(event->type.n > 0 && (event->type.n <= seen->max || str_is(event->type, "message")));
    add_text(&seen->out, event->type);
    add_text(&seen->out, event->data);
    add_text(&seen->out, event->id);
    buf_printf(&seen->out, "%lld;", (long long)event->retry_ms);
    sse_write(&seen->written, event->type, event->id, event->retry_ms, event->data);
}

static void see_line(void *user, struct str line, bool over)
{
    struct seen *seen = user;
    CHECK(line.n > 0 && line.n <= seen->max && !memchr(line.p, '\n', line.n));
    CHECK(!over || line.n == seen->max);
    add_text(&seen->out, line);
    buf_add_char(&seen->out, over ? '>' : ';');
}

static struct seen seen_new(size_t max)
{
    struct seen seen = {.max = max};
    buf_init(&seen.out, 0);
    buf_init(&seen.written, 0);
    return seen;
}

static void seen_release(struct seen *seen)
{
    buf_release(&seen->out);
    buf_release(&seen->written);
}

/* Returns whether all was read. */
static bool read_events(struct seen *seen, struct str input, size_t piece)
{
    struct sse_reader reader;
    bool fine = true;
    sse_reader_init(&reader, seen->max, see_event, seen);
    for (size_t at = 0; at < input.n; at += piece)
        fine = sse_reader_feed(&reader, input.p + at, piece < input.n - at ? piece : input.n - at);
    sse_reader_release(&reader);
    return fine;
}

static void read_lines(struct seen *seen, struct str input, size_t piece)
{
    struct lines lines;
    lines_init(&lines, seen->max, see_line, seen);
    for (size_t at = 0; at < input.n; at += piece)
        lines_feed(&lines, input.p + at, piece < input.n - at ? piece : input.n - at);
    lines_end(&lines);
    lines_release(&lines);
}

static void try_events(struct str input, size_t piece, size_t max)
{
    struct seen whole = seen_new(max), pieces = seen_new(max), again = seen_new(SIZE_MAX / 4);
    bool fine = read_events(&whole, input, input.n + 1);
    CHECK(read_events(&pieces, input, piece) == fine);
    CHECK(str_equal(buf_str(&whole.out), buf_str(&pieces.out)));
    CHECK(read_events(&again, buf_str(&whole.written), 7));
    CHECK(str_equal(buf_str(&whole.out), buf_str(&again.out)));
    seen_release(&whole);
    seen_release(&pieces);
    seen_release(&again);
}

static void try_lines(struct str input, size_t piece, size_t max)
{
    struct seen whole = seen_new(max), pieces = seen_new(max);
    read_lines(&whole, input, input.n + 1);
    read_lines(&pieces, input, piece);
    CHECK(str_equal(buf_str(&whole.out), buf_str(&pieces.out)));
    seen_release(&whole);
    seen_release(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct str input = {(const char *)data + 1, size - 1};
    size_t piece = 1 + (data[0] & 7), max = (size_t)4 << (data[0] >> 3 & 15);
    try_events(input, piece, max);
    try_lines(input, piece, max);
    return 0;
}
