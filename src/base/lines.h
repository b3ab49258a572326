/* Newline-delimited texts (MCP over stdio) from pieces as they come. */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include "base/buf.h"

/* line without its end ("\n" or "\r\n"); empty lines are not told. over: the line was longer than the maximum; line
 * holds its beginning, the rest was thrown away. */
typedef void lines_fn(void *user, struct str line, bool over);

struct lines {
    struct buf buf;
    bool skipping;
    lines_fn *line;
    void *user;
};

void lines_init(struct lines *lines, size_t bytes_max, lines_fn *line, void *user);
void lines_release(struct lines *lines);
/* The callback may release lines: then feed returns at once. */
void lines_feed(struct lines *lines, const char *bytes, size_t n);

#endif
