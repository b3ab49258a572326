#include "base/arena.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BLOCK_BYTES 4000
#define BLOCK_BYTES_MAX   (256 * 1024)
#define ALIGN             16

struct arena_block {
    struct arena_block *older;
    size_t bytes;
    _Alignas(ALIGN) char data[];
};

void arena_init(struct arena *arena)
{
    *arena = (struct arena){0};
}

void arena_release(struct arena *arena)
{
    struct arena_block *block = arena->block;
    while (block) {
        struct arena_block *older = block->older;
        free(block);
        block = older;
    }
    arena_init(arena);
}

void arena_reset(struct arena *arena)
{
    struct arena_block *block = arena->block;
    if (!block)
        return;
    while (block->older) {
        struct arena_block *older = block->older;
        free(block);
        block = older;
    }
    arena->block = block;
    arena->next = block->data;
    arena->end = block->data + block->bytes;
    arena->bytes = block->bytes;
}

static void add_block(struct arena *arena, size_t need)
{
    size_t size = arena->block ? arena->block->bytes * 2 : FIRST_BLOCK_BYTES;
    if (size > BLOCK_BYTES_MAX)
        size = BLOCK_BYTES_MAX;
    if (size < need)
        size = need;
    struct arena_block *block = mem_alloc(sizeof *block + size);
    block->older = arena->block;
    block->bytes = size;
    arena->block = block;
    arena->next = block->data;
    arena->end = block->data + size;
    arena->bytes += size;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        abort();
    size_t rounded =
        ((bytes ? bytes : 1) + ALIGN - 1) & ~(size_t)(ALIGN - 1); /* never NULL, never the same place twice */
    if (rounded > (size_t)(arena->end - arena->next))
        add_block(arena, rounded);
    void *p = arena->next;
    arena->next += rounded;
    return p;
}

void *arena_zero(struct arena *arena, size_t bytes)
{
    return memset(arena_alloc(arena, bytes), 0, bytes);
}

struct str arena_str(struct arena *arena, struct str s)
{
    return s.p ? (struct str){arena_copy_str(arena, s), s.n} : STR_NONE;
}

char *arena_copy_str(struct arena *arena, struct str s)
{
    if (!s.p)
        return NULL;
    char *copy = arena_alloc(arena, s.n + 1);
    memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    return copy;
}

char *arena_copy_text(struct arena *arena, const char *text)
{
    return arena_copy_str(arena, str_of(text));
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    char *start = arena->next;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(start, (size_t)(arena->end - start), format, args); /* most fit, and are made once */
    va_end(args);
    if (n < 0)
        abort();
    char *text = arena_alloc(arena, (size_t)n + 1);
    if (text != start)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}
