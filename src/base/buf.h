/* A growing byte buffer with a maximum. Past the maximum nothing is added and `over` is set: writers need no check at
 * every step, the one who uses the result looks once. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *p;    /* owned; NUL-terminated whenever not NULL */
    size_t n;   /* bytes used, without the NUL */
    size_t cap; /* bytes allocated */
    size_t max; /* bytes allowed */
    bool over;  /* something did not fit: the content is incomplete */
};

/* max 0 means no limit of its own (for text whose parts are limited already). */
void buf_init(struct buf *buf, size_t max);
void buf_release(struct buf *buf);
void buf_reset(struct buf *buf); /* empties, keeps the memory */

void buf_add(struct buf *buf, const char *p, size_t n);
void buf_add_str(struct buf *buf, struct str s);
void buf_add_text(struct buf *buf, const char *text);
void buf_add_char(struct buf *buf, char c);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline struct str buf_str(const struct buf *buf)
{
    return (struct str){buf->p ? buf->p : "", buf->n};
}

/* Gives the memory away (never NULL, NUL-terminated, free() it); the buffer is empty afterwards. */
char *buf_detach(struct buf *buf, size_t *n);

#endif
