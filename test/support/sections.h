/* What tests of adapters' sections share: JSON as written in the test, and what was found fault with. */
#ifndef SUPPORT_SECTIONS_H
#define SUPPORT_SECTIONS_H

#include "support/test.h"

#include "base/json.h"
#include "base/problem.h"

static inline struct json *parse(struct arena *arena, const char *text)
{
    struct json *value = NULL;
    struct err err = {0};
    if (json_parse(arena, str_of(text), NULL, &value, &err))
        fail_msg("%s: %s", text, err.text);
    return value;
}

static inline void expect_in(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("expected \"%s\" in: %s", part, text ? text : "nothing");
}

/* There is a problem at pointer, and the words stand in what was found. */
static inline void expect_problem(const struct problems *problems, const char *pointer, const char *words)
{
    const char *told = "";
    for (size_t i = 0; i < problems->count; i++)
        told = arena_printf(problems->arena, "%s\n%s: %s", told, problems->items[i].pointer, problems->items[i].text);
    expect_in(told, arena_printf(problems->arena, "\n%s: ", pointer));
    expect_in(told, words);
}

#endif
