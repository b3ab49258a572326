#include "base/sse.h"

#define RETRY_MS_MAX (INT64_C(1000) * 3600 * 24)

void sse_reader_init(struct sse_reader *reader, size_t bytes_max, sse_event_fn *event, void *user)
{
    *reader = (struct sse_reader){.retry_ms = -1, .event = event, .user = user};
    buf_init(&reader->line, bytes_max);
    buf_init(&reader->data, bytes_max);
    buf_init(&reader->type, bytes_max);
    buf_init(&reader->id, bytes_max);
}

void sse_reader_release(struct sse_reader *reader)
{
    if (reader->gone)
        *reader->gone = true;
    reader->gone = NULL;
    buf_release(&reader->line);
    buf_release(&reader->data);
    buf_release(&reader->type);
    buf_release(&reader->id);
}

/* Digits only, as the standard says; -1 = not given. */
static int64_t read_retry(struct str value, int64_t former)
{
    int64_t ms = 0;
    if (value.n == 0)
        return former;
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            return former;
        ms = ms * 10 + (value.p[i] - '0');
        if (ms > RETRY_MS_MAX)
            ms = RETRY_MS_MAX;
    }
    return ms;
}

static void take_field(struct sse_reader *reader, struct str name, struct str value)
{
    if (str_is(name, "data")) {
        if (reader->has_data)
            buf_add_char(&reader->data, '\n');
        buf_add_str(&reader->data, value);
        reader->has_data = true;
    } else if (str_is(name, "event")) {
        buf_reset(&reader->type);
        buf_add_str(&reader->type, value);
    } else if (str_is(name, "id")) {
        if (value.n > 0 && memchr(value.p, '\0', value.n))
            return;
        buf_reset(&reader->id);
        buf_add_str(&reader->id, value);
        reader->has_id = true;
    } else if (str_is(name, "retry")) {
        reader->retry_ms = read_retry(value, reader->retry_ms);
    }
}

/* An empty line ends the event. Without data it is told only when it says something else that holds (id, retry). */
static bool end_event(struct sse_reader *reader, const bool *gone)
{
    if (reader->has_data || reader->has_id || reader->retry_ms >= 0) {
        struct sse_event event = {
            .type = reader->type.n > 0 ? buf_str(&reader->type) : STR("message"),
            .data = buf_str(&reader->data),
            .id = reader->has_id ? buf_str(&reader->id) : STR_NONE,
            .retry_ms = reader->retry_ms,
        };
        reader->event(reader->user, &event);
        if (*gone)
            return false;
    }
    buf_reset(&reader->data);
    buf_reset(&reader->type);
    buf_reset(&reader->id);
    reader->has_id = reader->has_data = false;
    reader->retry_ms = -1;
    return true;
}

/* False: the reader is gone. */
static bool take_line(struct sse_reader *reader, struct str line, const bool *gone)
{
    static const char mark[] = "\xef\xbb\xbf"; /* a byte order mark at the start is no part of the stream */
    if (!reader->started && line.n >= 3 && memcmp(line.p, mark, 3) == 0)
        line = (struct str){line.p + 3, line.n - 3};
    reader->started = true;
    if (line.n == 0)
        return end_event(reader, gone);
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == line.p)
        return true; /* a comment */
    struct str name = {line.p, colon ? (size_t)(colon - line.p) : line.n}, value = STR("");
    if (colon) {
        value = (struct str){colon + 1, line.n - name.n - 1};
        if (value.n > 0 && value.p[0] == ' ')
            value = (struct str){value.p + 1, value.n - 1};
    }
    take_field(reader, name, value);
    reader->over = reader->data.over || reader->type.over || reader->id.over;
    return true;
}

/* A line is complete; its last part is piece. */
static bool end_line(struct sse_reader *reader, struct str piece, const bool *gone)
{
    bool whole = reader->line.n == 0 && piece.n <= reader->line.max;
    if (!whole) {
        buf_add_str(&reader->line, piece);
        reader->over = reader->line.over;
    }
    if (reader->over)
        return true;
    if (!take_line(reader, whole ? piece : buf_str(&reader->line), gone))
        return false;
    buf_reset(&reader->line);
    return true;
}

static const char *find_end(const char *bytes, size_t n)
{
    const char *end = memchr(bytes, '\n', n);
    const char *cr = memchr(bytes, '\r', end ? (size_t)(end - bytes) : n);
    return cr ? cr : end;
}

bool sse_reader_feed(struct sse_reader *reader, const char *bytes, size_t n)
{
    bool gone = false;
    reader->gone = &gone;
    while (n > 0 && !reader->over) {
        if (reader->cr && *bytes == '\n') { /* the other half of "\r\n" */
            reader->cr = false;
            bytes++;
            n--;
            continue;
        }
        const char *end = find_end(bytes, n);
        struct str piece = {bytes, end ? (size_t)(end - bytes) : n};
        reader->cr = end && *end == '\r';
        if (!end) {
            buf_add_str(&reader->line, piece);
            reader->over = reader->line.over;
            break;
        }
        if (!end_line(reader, piece, &gone))
            return true;
        bytes = end + 1;
        n -= piece.n + 1;
    }
    reader->gone = NULL;
    return !reader->over;
}

/* One line each: what follows a line end in a name would be a field of its own. */
static void write_field(struct buf *out, const char *name, struct str value)
{
    const char *end = value.n > 0 ? find_end(value.p, value.n) : NULL;
    buf_add_text(out, name);
    buf_add(out, value.p, end ? (size_t)(end - value.p) : value.n);
    buf_add_char(out, '\n');
}

void sse_write(struct buf *out, struct str type, struct str id, int64_t retry_ms, struct str data)
{
    if (type.p)
        write_field(out, "event: ", type);
    if (id.p)
        write_field(out, "id: ", id);
    if (retry_ms >= 0)
        buf_printf(out, "retry: %lld\n", (long long)retry_ms);
    while (data.p) {
        const char *end = data.n > 0 ? find_end(data.p, data.n) : NULL;
        write_field(out, "data: ", data);
        if (!end)
            break;
        size_t used = (size_t)(end - data.p) + 1;
        if (*end == '\r' && used < data.n && data.p[used] == '\n')
            used++;
        data = (struct str){data.p + used, data.n - used};
    }
    buf_add_char(out, '\n');
}
