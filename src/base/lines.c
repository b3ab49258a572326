#include "base/lines.h"

#define KEEP_BYTES 65536 /* memory of a longer line is given back after it */

void lines_init(struct lines *lines, size_t bytes_max, lines_fn *line, void *user)
{
    *lines = (struct lines){.line = line, .user = user};
    buf_init(&lines->buf, bytes_max);
}

void lines_release(struct lines *lines)
{
    if (lines->gone)
        *lines->gone = true;
    lines->gone = NULL;
    buf_release(&lines->buf);
}

static void tell(struct lines *lines, struct str line, bool over)
{
    if (!over && line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    if (line.n > 0)
        lines->line(lines->user, line, over);
}

/* A line that came in pieces, or one that is too long. False: lines are gone. */
static bool tell_kept(struct lines *lines, bool over, const bool *gone)
{
    tell(lines, buf_str(&lines->buf), over);
    if (*gone)
        return false;
    if (lines->buf.cap > KEEP_BYTES)
        buf_release(&lines->buf);
    else
        buf_reset(&lines->buf);
    return true;
}

/* Adds a piece of a line as far as it fits; over once it does not. */
static bool keep(struct lines *lines, struct str piece, const bool *gone)
{
    size_t room = lines->buf.max - lines->buf.n;
    buf_add(&lines->buf, piece.p, piece.n < room ? piece.n : room);
    if (piece.n <= room)
        return true;
    lines->skipping = true;
    return tell_kept(lines, true, gone);
}

/* One line with its end in these bytes. */
static bool take_line(struct lines *lines, struct str piece, const bool *gone)
{
    if (lines->skipping) {
        lines->skipping = false;
        return true;
    }
    if (lines->buf.n == 0 && piece.n <= lines->buf.max) { /* whole: nothing need be copied */
        tell(lines, piece, false);
        return !*gone;
    }
    if (!keep(lines, piece, gone))
        return false;
    if (lines->skipping) {
        lines->skipping = false;
        return true;
    }
    return tell_kept(lines, false, gone);
}

void lines_feed(struct lines *lines, const char *bytes, size_t n)
{
    bool gone = false;
    lines->gone = &gone;
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        struct str piece = {bytes, end ? (size_t)(end - bytes) : n};
        if (end) {
            if (!take_line(lines, piece, &gone))
                return;
            piece.n++;
        } else if (!lines->skipping && !keep(lines, piece, &gone)) {
            return;
        }
        bytes += piece.n;
        n -= piece.n;
    }
    lines->gone = NULL;
}

void lines_end(struct lines *lines)
{
    bool gone = false;
    lines->gone = &gone;
    if (!tell_kept(lines, false, &gone))
        return;
    lines->gone = NULL;
    lines->skipping = false;
}
