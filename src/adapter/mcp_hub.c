/* The hub: which servers there are, and the end of all of them. */
#include "adapter/child.h"
#include "adapter/mcp_parts.h"

#include "base/mem.h"

#include <stdlib.h>

const struct mcp_pace mcp_pace_default = {.queue_bytes_max = MCP_QUEUE_BYTES_MAX,
                                          .probe_ms = MCP_PROBE_MS,
                                          .restart_ms = MCP_RESTART_MS,
                                          .term_ms = MCP_CLOSE_TERM_MS,
                                          .kill_ms = MCP_CLOSE_KILL_MS};

/* ---- later ---- */

static void on_deferred(uv_timer_t *timer)
{
    struct mcp_hub *hub = timer->data;
    struct mcp_deferred *item = hub->deferred;
    hub->deferred = NULL; /* what is added from now on waits for the next turn */
    hub->deferred_end = &hub->deferred;
    while (item) {
        struct mcp_deferred *next = item->next;
        item->call(item->user);
        free(item);
        item = next;
    }
    mcp_hub_release(hub);
}

void mcp_hub_defer(struct mcp_hub *hub, void (*call)(void *user), void *user)
{
    struct mcp_deferred *item = mem_zero(sizeof *item);
    item->call = call;
    item->user = user;
    if (!hub->deferred) {
        mcp_hub_hold(hub);
        uv_timer_start(&hub->timer, on_deferred, 0, 0);
    }
    *hub->deferred_end = item;
    hub->deferred_end = &item->next;
}

/* ---- life ---- */

enum err_code mcp_hub_new(const struct mcp_hub_options *options, struct mcp_hub **out, struct err *err)
{
    struct mcp_hub *hub = mem_zero(sizeof *hub);
    hub->adapter.ops = &mcp_adapter_ops;
    hub->options = *options;
    hub->open = mcp_transport_open;
    hub->pace = mcp_pace_default;
    hub->deferred_end = &hub->deferred;
    hub->holds = 1; /* until it is closed */
    arena_init(&hub->arena);
    hub->can_nothing = json_object(&hub->arena);
    struct json *info = json_object(&hub->arena);
    json_set(&hub->arena, info, STR("name"), json_string(STR("onced")));
    json_set(&hub->arena, info, STR("version"), json_string(STR(ONCED_VERSION)));
    hub->client_info = info;
    if (uv_timer_init(options->loop, &hub->timer) != 0) {
        arena_release(&hub->arena);
        free(hub);
        return err_set(err, ERR_IO, "the event loop does not take the MCP client");
    }
    hub->timer.data = hub;
    *out = hub;
    return ERR_NONE;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct mcp_hub *hub = handle->data;
    void (*closed)(void *user) = hub->closed;
    void *user = hub->closed_user;
    registry_unref(hub->registry);
    free(hub->servers);
    arena_release(&hub->arena);
    free(hub);
    if (closed)
        closed(user);
}

void mcp_hub_hold(struct mcp_hub *hub)
{
    hub->holds++;
}

static void on_children_closed(void *user)
{
    mcp_hub_release(user);
}

static void close_children(struct mcp_hub *hub)
{
    struct children *children = hub->children;
    hub->children = NULL;
    if (!children)
        return;
    hub->holds++;
    children_close(children, on_children_closed, hub);
}

void mcp_hub_release(struct mcp_hub *hub)
{
    if (--hub->holds > 0)
        return;
    if (!hub->clients_closed) {
        hub->clients_closed = true;
        hub->holds++;
        mcp_http_client_close(hub);
        close_children(hub);
        mcp_hub_release(hub);
        return;
    }
    uv_close((uv_handle_t *)&hub->timer, on_timer_closed);
}

/* Links that their owners have not closed yet outlive the servers. */
static void leave_links(struct mcp_server *server)
{
    for (struct mcp_link *link = server->links; link; link = link->server_next)
        link->server = NULL;
    server->links = NULL;
    server->link_count = 0;
}

static void stop_server(struct mcp_server *server)
{
    if (!server->retired)
        mcp_server_retire(server);
    mcp_server_stop(server, "onced stops");
    leave_links(server);
    mcp_server_settle(server);
}

void mcp_hub_close(struct mcp_hub *hub, void (*closed)(void *user), void *user)
{
    hub->closing = true;
    hub->closed = closed;
    hub->closed_user = user;
    mcp_attempts_close(hub);
    for (size_t i = 0; i < hub->server_count; i++)
        stop_server(hub->servers[i]);
    while (hub->retired)
        stop_server(hub->retired);
    hub->server_count = 0;
    mcp_hub_release(hub);
}

/* ---- which servers ---- */

struct mcp_server *mcp_hub_find(const struct mcp_hub *hub, const char *name)
{
    size_t low = 0, high = hub->server_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(hub->servers[middle]->name, name);
        if (order == 0)
            return hub->servers[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The running server if its section is the same, else a new one in its place. */
static struct mcp_server *keep_or_start(struct mcp_hub *hub, const struct provider *provider)
{
    struct mcp_provider *section = (struct mcp_provider *)provider->adapter_provider; /* counted, else immutable */
    struct mcp_server *former = mcp_hub_find(hub, provider->name);
    if (former && str_equal(mcp_provider_identity(former->provider), mcp_provider_identity(section)))
        return former;
    return mcp_server_new(hub, provider->name, section);
}

void mcp_hub_apply(struct mcp_hub *hub, struct registry *registry)
{
    if (hub->closing)
        return;
    size_t count = 0, former_count = hub->server_count, all = registry_provider_count(registry);
    struct mcp_server **former = hub->servers;
    struct mcp_server **servers = mem_zero((all + 1) * sizeof(struct mcp_server *));
    for (size_t i = 0; i < all; i++) {
        const struct provider *provider = registry_provider_at(registry, i); /* ordered by name */
        if (provider->kind == PROVIDER_MCP)
            servers[count++] = keep_or_start(hub, provider);
    }
    hub->servers = servers;
    hub->server_count = count;
    for (size_t i = 0; i < former_count; i++) {
        if (mcp_hub_find(hub, former[i]->name) != former[i])
            mcp_server_retire(former[i]);
    }
    free(former);
    struct registry *old = hub->registry;
    hub->registry = registry_ref(registry);
    registry_unref(old);
}

/* ---- what there is to know ---- */

struct adapter *mcp_hub_adapter(struct mcp_hub *hub)
{
    return &hub->adapter;
}

void mcp_hub_set_listener(struct mcp_hub *hub, const struct mcp_listener *listener, void *user)
{
    hub->listener = listener;
    hub->listener_user = user;
}

bool mcp_hub_settled(const struct mcp_hub *hub)
{
    if (hub->changed) /* the last list has come and was not told yet */
        return false;
    for (size_t i = 0; i < hub->server_count; i++) {
        if (!hub->servers[i]->settled)
            return false;
    }
    return true;
}

static struct json entry_of(const struct mcp_server *server, struct arena *arena)
{
    static const char *const offers[] = {"resources", "prompts", "completions", "logging"};
    struct json *entry = json_object(arena);
    json_set(arena, entry, STR("tools"), *json_copy(arena, server->tools));
    for (size_t i = 0; i < sizeof offers / sizeof offers[0]; i++)
        json_set(arena, entry, str_of(offers[i]), json_bool(json_get(server->capabilities, offers[i]) != NULL));
    return *entry;
}

struct json *mcp_hub_catalog(const struct mcp_hub *hub, struct arena *arena)
{
    struct json *catalog = json_object(arena);
    for (size_t i = 0; i < hub->server_count; i++) {
        const struct mcp_server *server = hub->servers[i];
        if (server->tools)
            json_set(arena, catalog, str_of(arena_copy_text(arena, server->name)), entry_of(server, arena));
    }
    return catalog;
}

size_t mcp_hub_server_count(const struct mcp_hub *hub)
{
    return hub->server_count;
}

struct mcp_server *mcp_hub_server_at(const struct mcp_hub *hub, size_t index)
{
    return hub->servers[index];
}

struct mcp_server_info mcp_server_info(const struct mcp_server *server)
{
    return (struct mcp_server_info){
        .name = server->name,
        .state = server->state,
        .era = server->verdict,
        .version = server->version,
        .capabilities = server->capabilities,
        .server_info = server->server_info,
        .instructions = server->instructions,
        .error = server->error,
        .restarts = server->restarts,
        .per_client = server->provider->per_client,
        .forward = server->provider->forward,
        .prefix = server->provider->prefix,
    };
}

struct mcp_transport *mcp_transport_open(struct mcp_connection *connection, struct err *err)
{
    return connection->server->provider->url ? mcp_http_open(connection, err) : mcp_stdio_open(connection, err);
}
