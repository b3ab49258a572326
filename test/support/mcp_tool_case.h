/* An MCP server and a tool of it compiled from texts with ' for ", for tests of the MCP adapter. */
#ifndef SUPPORT_MCP_TOOL_CASE_H
#define SUPPORT_MCP_TOOL_CASE_H

#include "adapter/mcp_parts.h"

#include <stdio.h>
#include <stdlib.h>

struct mcp_tool_case {
    struct arena arena;
    struct problems problems;
    struct provider core_provider;
    struct tool core_tool;
    struct mcp_provider *provider;
    struct mcp_tool *tool;
};

/* text with " for '. */
static inline const char *mcp_tool_case_text(struct arena *arena, const char *text)
{
    char *copy = arena_copy_text(arena, text);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    return copy;
}

static inline struct json *mcp_tool_case_json(struct arena *arena, const char *text)
{
    struct json *value = NULL;
    struct err err = {0};
    if (json_parse(arena, str_of(mcp_tool_case_text(arena, text)), NULL, &value, &err) != ERR_NONE) {
        fprintf(stderr, "%s: %s\n", text, err.text);
        abort();
    }
    return value;
}

/* The provider is called p, the tool tool; tool NULL = none. Either is NULL after problems. */
static inline void mcp_tool_case_init(struct mcp_tool_case *c, const char *provider, const char *tool,
                                      enum tool_class class)
{
    memset(c, 0, sizeof *c);
    arena_init(&c->arena);
    problems_init(&c->problems, &c->arena);
    c->core_provider.name = "p";
    c->provider =
        mcp_provider_new(mcp_tool_case_json(&c->arena, provider), "/providers/p", &c->core_provider, &c->problems);
    c->core_provider.adapter_provider = c->provider;
    c->core_tool = (struct tool){.name = "tool", .class = class, .provider = &c->core_provider};
    if (c->provider && tool)
        c->tool =
            mcp_tool_new(mcp_tool_case_json(&c->arena, tool), "/tools/tool", c->provider, &c->core_tool, &c->problems);
    c->core_tool.adapter_tool = c->tool;
}

static inline void mcp_tool_case_release(struct mcp_tool_case *c)
{
    mcp_tool_free(c->tool);
    mcp_provider_free(c->provider);
    arena_release(&c->arena);
}

/* All problems as "pointer: text\n", in the arena. */
static inline const char *mcp_tool_case_problems(struct mcp_tool_case *c)
{
    const char *text = "";
    for (size_t i = 0; i < c->problems.count; i++)
        text = arena_printf(&c->arena, "%s%s: %s\n", text, c->problems.items[i].pointer, c->problems.items[i].text);
    return text;
}

#endif
