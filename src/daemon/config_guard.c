/* Guard mode in the registry file: tools whose effect the application performs itself (design 11.2). */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#define AT(type, member) (offsetof(struct type, member) + 1)

static const struct option guard_options[] = {
    {"lease", OPTION_DURATION, .fallback = "60s", .min = 1000, .max = INT64_C(24) * 60 * 60 * 1000,
     .at = AT(tool, guard_lease_ms),
     .text = "Who was told to perform it has so long to say how it ended, or that it goes on. Silence until then: the "
             "outcome is unknown."},
};
const struct option_section config_guard_mode_section = {
    .name = "tools.NAME.guard_mode",
    .text = "The application performs the effect itself, between `begin` and `complete`; see guard.md.",
    .options = guard_options,
    .count = sizeof guard_options / sizeof *guard_options,
};

/* What core asks of a provider, for tools that have none. */
static const struct provider *application(struct arena *arena, int64_t lease_ms)
{
    struct provider *provider = arena_zero(arena, sizeof *provider);
    provider->name = "(application)"; /* no provider of the file can be called so */
    provider->kind = PROVIDER_APPLICATION;
    provider->connections_max = provider->queue_max = 1000000;
    provider->timeout_ms = provider->connect_timeout_ms = lease_ms;
    return provider;
}

void config_guard_read(const struct loader *loader, const struct json *section, const char *pointer,
                       struct loaded_tool *out)
{
    struct tool *tool = &out->core;
    const struct json *reconcile = json_get(section, "reconcile");
    bool manual = reconcile && reconcile->type == JSON_ARRAY && reconcile->count == 1 &&
                  reconcile->items[0].type == JSON_STRING && str_is(reconcile->items[0].text, "manual");
    tool->provider = application(&loader->loaded->arena, tool->guard_lease_ms);
    if (tool->class == CLASS_READ)
        problems_add(
            loader->problems, pointer,
            "guard_mode keeps an effect from happening twice: class read has none, choose a class that writes");
    if (reconcile && !manual)
        problems_add(loader->problems, pointer,
                     "reconcile: only the application knows what happened, expected [manual] with guard_mode");
    tool->reconcile.strategies[0] = STRATEGY_MANUAL;
    tool->reconcile.strategy_count = 1;
}
