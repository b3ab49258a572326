#include "daemon/catalog.h"

#include "adapter/mcp.h"

#include <uv.h>

#define LOOK_MS 10

struct fetch {
    uv_loop_t loop;
    uv_timer_t timer;
    struct mcp_hub *hub;
    struct registry *registry;
    int64_t until_ms; /* of the loop's clock */
    struct arena *arena;
    struct catalog *out;
};

static void changed(void *user)
{
    (void)user; /* the timer looks */
}

static void set_text(struct arena *arena, struct json *object, const char *name, struct str text)
{
    if (text.p)
        json_set(arena, object, str_of(name), json_string(arena_str(arena, text)));
}

static const struct json *server_facts(struct arena *arena, const struct mcp_server_info *info)
{
    struct json *facts = json_object(arena);
    set_text(arena, facts, "version", str_of(info->version));
    set_text(arena, facts, "name", json_get_text(info->server_info, "name"));
    set_text(arena, facts, "release", json_get_text(info->server_info, "version"));
    set_text(arena, facts, "instructions", str_of(info->instructions));
    return facts;
}

static void take(struct fetch *fetch)
{
    struct arena *arena = fetch->arena;
    struct json *failures = json_object(arena), *servers = json_object(arena);
    const struct json *tools = mcp_hub_catalog(fetch->hub, arena);
    for (size_t i = 0; i < mcp_hub_server_count(fetch->hub); i++) {
        struct mcp_server_info info = mcp_server_info(mcp_hub_server_at(fetch->hub, i));
        struct str name = str_of(arena_copy_text(arena, info.name));
        const char *why = info.error ? info.error : "it did not answer in time";
        if (json_get_str(tools, name))
            json_set(arena, servers, name, *server_facts(arena, &info));
        else
            json_set(arena, failures, name, json_string(str_of(arena_copy_text(arena, why))));
    }
    *fetch->out = (struct catalog){.tools = tools, .failures = failures, .servers = servers};
}

static void look(uv_timer_t *timer)
{
    struct fetch *fetch = timer->data;
    bool late = (int64_t)uv_now(&fetch->loop) >= fetch->until_ms;
    if (!late && !mcp_hub_settled(fetch->hub))
        return;
    take(fetch);
    uv_close((uv_handle_t *)timer, NULL);
    mcp_hub_close(fetch->hub, NULL, NULL);
}

enum err_code catalog_fetch(struct registry *registry, int64_t timeout_ms, struct arena *arena, struct catalog *out,
                            struct err *err)
{
    struct fetch fetch = {.registry = registry, .arena = arena, .out = out};
    struct mcp_hub_options options = {.loop = &fetch.loop, .env = env_system(), .catalog_changed = changed};
    if (uv_loop_init(&fetch.loop) != 0)
        return err_set(err, ERR_IO, "no event loop: no memory or no file descriptors are left");
    enum err_code code = mcp_hub_new(&options, &fetch.hub, err);
    if (!code) {
        uv_timer_init(&fetch.loop, &fetch.timer);
        fetch.timer.data = &fetch;
        fetch.until_ms = (int64_t)uv_now(&fetch.loop) + timeout_ms;
        mcp_hub_apply(fetch.hub, registry);
        uv_timer_start(&fetch.timer, look, 0, LOOK_MS);
    }
    uv_run(&fetch.loop, UV_RUN_DEFAULT);
    uv_loop_close(&fetch.loop);
    return code;
}
