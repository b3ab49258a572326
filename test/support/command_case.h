/* A provider and a tool of commands compiled from JSON texts, for tests and fuzzers. */
#ifndef SUPPORT_COMMAND_CASE_H
#define SUPPORT_COMMAND_CASE_H

#include "adapter/command_parts.h"

struct command_case {
    struct arena arena;
    struct problems problems;
    struct provider core_provider;
    struct tool core_tool;
    struct command_provider *provider;
    struct command_tool *tool;
    struct adapter_call call;
};

/* provider and tool may be NULL after this: then problems say why. */
static inline void command_case_init(struct command_case *c, const struct json *provider, const struct json *tool)
{
    static const char *const redact[] = {"/secret"};
    c->core_provider = (struct provider){.name = "p"};
    problems_init(&c->problems, &c->arena);
    c->provider = command_provider_new(provider, "/providers/p", &c->core_provider, &c->problems);
    c->core_tool = (struct tool){.name = "t",
                                 .class = CLASS_EXTERNAL_WEAK,
                                 .provider = &c->core_provider,
                                 .redact_pointers = redact,
                                 .redact_count = 1};
    c->tool = NULL;
    if (c->provider)
        c->tool = command_tool_new(tool, "/tools/t", c->provider, &c->core_tool, &c->problems);
    c->core_tool.adapter_tool = c->tool;
    c->call = (struct adapter_call){.tool = &c->core_tool,
                                    .kind = ATTEMPT_CALL,
                                    .operation = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                    .provider_key = "key-1",
                                    .tenant = "acme"};
}

static inline void command_case_release(struct command_case *c)
{
    command_tool_free(c->tool);
    command_provider_free(c->provider);
    arena_release(&c->arena);
}

#endif
