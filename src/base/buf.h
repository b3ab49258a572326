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
    size_t cap; /* bytes allocated; at most max + 1, so that what fits is allowed */
    size_t max; /* bytes allowed */
    bool over;  /* something did not fit: the content is incomplete */
};

/* max 0 means no limit of its own (for text whose parts are limited already). */
void buf_init(struct buf *buf, size_t max);
void buf_release(struct buf *buf);
void buf_reset(struct buf *buf); /* empties, keeps the memory */

/* The general case of buf_add, out of line. */
void buf_add_growing(struct buf *buf, const char *p, size_t n);

static inline void buf_add(struct buf *buf, const char *p, size_t n)
{
    if (buf->over || n >= buf->cap - buf->n) { /* n + NUL; with no memory yet both sides are 0 */
        buf_add_growing(buf, p, n);
        return;
    }
    if (n)
        memcpy(buf->p + buf->n, p, n);
    buf->n += n;
    buf->p[buf->n] = '\0';
}

static inline void buf_add_str(struct buf *buf, struct str s)
{
    buf_add(buf, s.p, s.n);
}

static inline void buf_add_text(struct buf *buf, const char *text)
{
    buf_add(buf, text, strlen(text));
}

static inline void buf_add_char(struct buf *buf, char c)
{
    buf_add(buf, &c, 1);
}

void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline struct str buf_str(const struct buf *buf)
{
    return (struct str){buf->p ? buf->p : "", buf->n};
}

/* Gives the memory away (never NULL, NUL-terminated, free() it); the buffer is empty afterwards. */
char *buf_detach(struct buf *buf, size_t *n);

#endif
