/* A provider and a tool compiled from JSON texts, for tests and fuzzers of the HTTP adapter. */
#ifndef SUPPORT_HTTP_CASE_H
#define SUPPORT_HTTP_CASE_H

#include "adapter/http_parts.h"

#include <stdio.h>
#include <stdlib.h>

struct http_case {
    struct arena arena;
    struct problems problems;
    struct provider core_provider;
    struct tool core_tool;
    struct http_provider *provider;
    struct http_tool *tool;
    struct adapter_call call;
};

static inline struct json *http_case_json(struct http_case *c, const char *text)
{
    struct json *value = NULL;
    struct err err = {0};
    if (json_parse(&c->arena, str_of(text), NULL, &value, &err) != ERR_NONE) {
        fprintf(stderr, "%s: %s\n", text, err.text);
        abort();
    }
    return value;
}

/* provider and tool may be NULL after this: then problems say why. */
static inline void http_case_init(struct http_case *c, const char *provider, const char *tool, enum tool_class class)
{
    memset(c, 0, sizeof *c);
    arena_init(&c->arena);
    problems_init(&c->problems, &c->arena);
    c->core_provider.name = "p";
    c->provider = http_provider_new(http_case_json(c, provider), "/providers/p", &c->core_provider, &c->problems);
    c->core_tool = (struct tool){.name = "t", .class = class, .provider = &c->core_provider};
    if (c->provider)
        c->tool = http_tool_new(http_case_json(c, tool), "/tools/t", c->provider, &c->core_tool, &c->problems);
    c->core_tool.adapter_tool = c->tool;
    c->call = (struct adapter_call){.tool = &c->core_tool,
                                    .kind = ATTEMPT_CALL,
                                    .operation = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                    .attempt = "at_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                    .provider_key = "key-1",
                                    .tenant = "acme"};
}

static inline void http_case_release(struct http_case *c)
{
    http_tool_free(c->tool);
    http_provider_free(c->provider);
    arena_release(&c->arena);
}

/* All problems as "pointer: text\n", in the arena. */
static inline const char *http_case_problems(struct http_case *c)
{
    const char *text = "";
    for (size_t i = 0; i < c->problems.count; i++)
        text = arena_printf(&c->arena, "%s%s: %s\n", text, c->problems.items[i].pointer, c->problems.items[i].text);
    return text;
}

#endif
