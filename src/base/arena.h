/* Memory that is released all at once: one arena per request or operation. Not for sharing between threads at one time;
 * it may be handed from one thread to another. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/str.h"

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *block; /* newest block, links to older ones */
    char *next;                /* first free byte of the newest block */
    char *end;
    size_t bytes; /* sum of block sizes */
};

/* No memory is taken before the first allocation. */
void arena_init(struct arena *arena);
void arena_release(struct arena *arena);

/* Forgets all allocations but keeps the oldest block for use again. */
void arena_reset(struct arena *arena);

/* Aligned for any type, uninitialised. Never NULL (see mem.h). */
void *arena_alloc(struct arena *arena, size_t bytes);
void *arena_zero(struct arena *arena, size_t bytes);

/* NUL-terminated copies; NULL or an absent string gives NULL. */
char *arena_copy_text(struct arena *arena, const char *text);
char *arena_copy_str(struct arena *arena, struct str s);
/* A copy as str; absent stays absent. */
struct str arena_str(struct arena *arena, struct str s);

char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
