#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_init(struct buf *buf, size_t max)
{
    *buf = (struct buf){.max = max};
}

void buf_release(struct buf *buf)
{
    free(buf->p);
    buf_init(buf, buf->max);
}

void buf_reset(struct buf *buf)
{
    buf->n = 0;
    buf->over = false;
    if (buf->p)
        buf->p[0] = '\0';
}

static bool reserve(struct buf *buf, size_t extra)
{
    if (buf->over || (buf->max && (extra > buf->max || buf->n > buf->max - extra))) {
        buf->over = true;
        return false;
    }
    size_t need = buf->n + extra + 1;
    if (need > buf->cap) {
        size_t cap = buf->cap ? buf->cap * 2 : 512;
        if (cap < need)
            cap = need;
        if (buf->max && cap - 1 > buf->max)
            cap = buf->max + 1;
        buf->p = mem_grow(buf->p, cap);
        buf->cap = cap;
    }
    return true;
}

void buf_add_growing(struct buf *buf, const char *p, size_t n)
{
    if (!reserve(buf, n))
        return;
    if (n)
        memcpy(buf->p + buf->n, p, n);
    buf->n += n;
    buf->p[buf->n] = '\0';
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && reserve(buf, (size_t)n)) {
        vsnprintf(buf->p + buf->n, (size_t)n + 1, format, again);
        buf->n += (size_t)n;
    }
    va_end(again);
}

char *buf_detach(struct buf *buf, size_t *n)
{
    char *p = buf->p ? buf->p : mem_copy_text("");
    if (n)
        *n = buf->n;
    *buf = (struct buf){.max = buf->max};
    return p;
}
