/* A list of everything that is wrong with a configuration, each with the place: all problems are told at once (design
 * 13). */
#ifndef BASE_PROBLEM_H
#define BASE_PROBLEM_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

struct problem {
    const char *pointer; /* JSON Pointer into the configuration, "" for the whole */
    const char *text;    /* what is wrong and what was expected */
    bool warning;        /* dangerous or pointless, but not refused */
};

#define PROBLEMS_MAX 200 /* further ones are counted, not kept */

struct problems {
    struct arena *arena; /* borrowed; holds the texts */
    struct problem *items;
    size_t count, cap;
    size_t errors; /* without warnings, kept or not */
};

void problems_init(struct problems *problems, struct arena *arena);
void problems_add(struct problems *problems, const char *pointer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void problems_warn(struct problems *problems, const char *pointer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
