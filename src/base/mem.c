#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p, size_t bytes)
{
    if (!p && bytes > 0) {
        fprintf(stderr, "onced: out of memory (%zu bytes)\n", bytes);
        abort();
    }
    return p;
}

_Noreturn void mem_exhausted(const char *what)
{
    fprintf(stderr, "onced: out of memory (%s)\n", what);
    abort();
}

void *mem_alloc(size_t bytes)
{
    return checked(malloc(bytes), bytes);
}

void *mem_zero(size_t bytes)
{
    return checked(calloc(1, bytes), bytes);
}

void *mem_grow(void *old, size_t bytes)
{
    return checked(realloc(old, bytes), bytes);
}

char *mem_copy_bytes(const char *p, size_t n)
{
    char *copy = mem_alloc(n + 1);
    if (n)
        memcpy(copy, p, n);
    copy[n] = '\0';
    return copy;
}

char *mem_copy_text(const char *text)
{
    return text ? mem_copy_bytes(text, strlen(text)) : NULL;
}
