/* Newline-delimited texts (MCP over stdio) from pieces as they come. */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include "base/buf.h"

/* line without its end ("\n" or "\r\n"); empty lines are not told. over: the line was longer than the maximum; line
 * holds its beginning, the rest is thrown away as it comes (it is told at once: its end may never come). line is valid
 * during the callback. */
typedef void lines_fn(void *user, struct str line, bool over);

struct lines {
    struct buf buf;
    bool skipping;
    bool *gone; /* on the stack of lines_feed while it tells */
    lines_fn *line;
    void *user;
};

/* bytes_max > 0: of a line without its end. */
void lines_init(struct lines *lines, size_t bytes_max, lines_fn *line, void *user);
void lines_release(struct lines *lines);
/* The callback may release lines and free what they lie in: then feed returns at once. */
void lines_feed(struct lines *lines, const char *bytes, size_t n);
/* The input has ended: what came after the last line end is a line, too. */
void lines_end(struct lines *lines);

#endif
