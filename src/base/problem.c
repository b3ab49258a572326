#include "base/problem.h"

#include <stdarg.h>
#include <stdio.h>

void problems_init(struct problems *problems, struct arena *arena)
{
    *problems = (struct problems){.arena = arena};
}

__attribute__((format(printf, 4, 0))) static void add(struct problems *problems, const char *pointer, bool warning,
                                                      const char *format, va_list args)
{
    problems->errors += !warning;
    if (problems->count == PROBLEMS_MAX)
        return;
    if (problems->count == problems->cap) {
        size_t cap = problems->cap ? problems->cap * 2 : 8;
        struct problem *items = arena_alloc(problems->arena, cap * sizeof *items);
        if (problems->count)
            memcpy(items, problems->items, problems->count * sizeof *items);
        problems->items = items;
        problems->cap = cap;
    }
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    problems->items[problems->count++] = (struct problem){
        .pointer = arena_copy_text(problems->arena, pointer),
        .text = arena_copy_text(problems->arena, text),
        .warning = warning,
    };
}

void problems_add(struct problems *problems, const char *pointer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(problems, pointer, false, format, args);
    va_end(args);
}

void problems_warn(struct problems *problems, const char *pointer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(problems, pointer, true, format, args);
    va_end(args);
}
