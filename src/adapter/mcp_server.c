/* A server's life: started, asked for its tools, started again when it ends.
 *
 *   STARTING ──handshake──► READY ──lost──► DOWN ──delay──► STARTING       delays double from MCP_RESTART_MS on
 *      └───────lost──────────────────────────┘
 *
 * The list of tools is read when a server is ready and whenever it says that it changed: page by page into a draft,
 * which takes the former list's place once it is whole. A server's life has no caller to return an error to: what
 * happens to it is logged here. */
#include "adapter/mcp_parts.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

static void start(struct mcp_server *server);
static void list(struct mcp_server *server);

static int64_t now_of(const struct mcp_server *server)
{
    return (int64_t)uv_now(server->hub->options.loop);
}

static void set_error(struct mcp_server *server, const char *text)
{
    free(server->error);
    server->error = mem_copy_text(text);
}

static void log_life(enum log_level level, const char *event, const struct mcp_server *server, const char *text)
{
    if (!log_begin(level, event))
        return;
    log_text("server", server->name);
    log_text("version", server->version);
    log_text("text", text);
    log_end();
}

static void on_catalog_changed(void *user)
{
    struct mcp_hub *hub = user;
    hub->changed = false;
    if (!hub->closing && hub->options.catalog_changed)
        hub->options.catalog_changed(hub->options.user);
}

static void tell_changed(struct mcp_server *server)
{
    struct mcp_hub *hub = server->hub;
    if (hub->changed || hub->closing || server->retired)
        return;
    hub->changed = true;
    mcp_hub_defer(hub, on_catalog_changed, hub);
}

/* The first list is there, or it is known that there is none yet. */
static void settle_first(struct mcp_server *server)
{
    if (server->settled)
        return;
    server->settled = true;
    tell_changed(server);
}

/* ---- list of tools ---- */

#define LIST_TIMEOUT_MS 30000
#define RELIST_MS       500 /* between two lists at least, however often the server says that its list changed */
#define RETRY_MS        5000
#define LISTEN_ENDED_MS 60000 /* a server that ends the stream in good order is asked for another so much later */

static bool is_up(const struct mcp_server *server)
{
    return server->state == MCP_SERVER_READY && server->shared && server->shared->stage == MCP_STAGE_ESTABLISHED;
}

static void subscribe(struct mcp_server *server);

/* The list once more, and the stream of changes if there is none: what changed between two streams was not told. */
static void on_retry(uv_timer_t *timer)
{
    struct mcp_server *server = timer->data;
    server->retry_at_ms = 0;
    if (!is_up(server))
        return;
    if (server->verdict == MCP_ERA_MODERN && !server->listening)
        subscribe(server);
    mcp_server_relist(server);
}

/* Unless that is sooner already. */
static void retry_in(struct mcp_server *server, int64_t delay_ms)
{
    int64_t at_ms = now_of(server) + delay_ms;
    if (server->retired || (server->retry_at_ms != 0 && server->retry_at_ms <= at_ms))
        return;
    server->retry_at_ms = at_ms;
    uv_timer_start(&server->timer, on_retry, (uint64_t)delay_ms, 0);
}

static void drop_draft(struct mcp_server *server)
{
    arena_release(&server->draft);
    server->draft_tools = NULL;
    server->draft_pages = 0;
    server->draft_bytes = 0;
}

static void listing_failed(struct mcp_server *server, const char *text)
{
    char words[ERR_TEXT_MAX];
    snprintf(words, sizeof words, "tools/list: %s", text);
    set_error(server, words);
    log_life(LOG_WARN, "mcp_server_list_failed", server, words);
    drop_draft(server);
    retry_in(server, RETRY_MS);
    settle_first(server);
}

static const struct json *find_tool(const struct json *tools, struct str name)
{
    for (uint32_t i = 0; tools && i < tools->count; i++) {
        if (str_equal(json_get_text(&tools->items[i], "name"), name))
            return &tools->items[i];
    }
    return NULL;
}

static bool tool_valid(const struct mcp_server *server, const struct json *tool, struct err *err)
{
    struct str name = json_get_text(tool, "name");
    if (!name.p || name.n == 0)
        return err_set(err, ERR_INVALID, "a tool without a name"), false;
    if (find_tool(server->draft_tools, name))
        return err_set(err, ERR_INVALID, "a second tool named %.*s", (int)(name.n < 128 ? name.n : 128), name.p), false;
    if (server->provider->url && server->verdict == MCP_ERA_MODERN)
        return mcp_http_tool_valid(tool, err);
    return true;
}

static enum err_code take_tools(struct mcp_server *server, const struct json *tools, struct err *err)
{
    if (!tools || tools->type != JSON_ARRAY)
        return err_set(err, ERR_INVALID, "the answer has no array \"tools\"");
    for (uint32_t i = 0; i < tools->count; i++) {
        struct err why = {0};
        if (!tool_valid(server, &tools->items[i], &why)) {
            log_life(LOG_WARN, "mcp_tool_left_out", server, why.text);
            continue;
        }
        if (server->draft_tools->count >= MCP_TOOLS_MAX)
            return err_set(err, ERR_LIMIT, "more than %d tools", MCP_TOOLS_MAX);
        json_append(&server->draft, server->draft_tools, *json_copy(&server->draft, &tools->items[i]));
        if (server->draft.bytes > MCP_LIST_BYTES_MAX)
            return err_set(err, ERR_LIMIT, "the list is larger than %zu bytes", MCP_LIST_BYTES_MAX);
    }
    return ERR_NONE;
}

static void list_complete(struct mcp_server *server)
{
    bool same = server->tools && json_equal(server->tools, server->draft_tools);
    if (!same) {
        arena_release(&server->list);
        server->list = server->draft;
        server->tools = server->draft_tools;
        arena_init(&server->draft);
    }
    drop_draft(server);
    set_error(server, NULL);
    server->settled = true;
    if (!same)
        tell_changed(server);
    if (server->list_again)
        mcp_server_relist(server);
}

static void list_page(struct mcp_server *server, struct str cursor);

static void take_page(struct mcp_server *server, const struct json *result)
{
    struct err err = {0};
    struct str cursor = json_get_text(result, "nextCursor");
    if (take_tools(server, json_get(result, "tools"), &err) != ERR_NONE)
        listing_failed(server, err.text);
    else if (!cursor.p)
        list_complete(server);
    else if (++server->draft_pages >= MCP_LIST_PAGES_MAX)
        listing_failed(server, "too many pages");
    else
        list_page(server, cursor);
}

static void on_list(void *user, const struct mcp_outcome *outcome)
{
    struct mcp_server *server = user;
    const struct rpc_message *message = outcome->message;
    server->listing = NULL;
    if (!is_up(server))
        return;
    if (outcome->end == MCP_ANSWERED && message->kind == RPC_RESULT)
        take_page(server, message->result);
    else if (outcome->end == MCP_ANSWERED)
        listing_failed(server, message->message.p ? message->message.p : "refused");
    else
        listing_failed(server, outcome->text);
}

static void list_page(struct mcp_server *server, struct str cursor)
{
    struct buf params;
    struct json_out out;
    buf_init(&params, 0);
    json_out_init(&out, &params);
    json_out_object(&out);
    if (cursor.p) {
        json_out_name(&out, "cursor");
        json_out_str(&out, cursor);
    }
    json_out_end_object(&out);
    server->listing = mcp_link_request(server->own, &(struct mcp_request_options){.method = "tools/list",
                                                                                  .params = buf_str(&params),
                                                                                  .timeout_ms = LIST_TIMEOUT_MS,
                                                                                  .done = on_list,
                                                                                  .user = server});
    buf_release(&params);
}

static void list(struct mcp_server *server)
{
    server->list_again = false;
    server->listed_at_ms = now_of(server);
    drop_draft(server);
    server->draft_tools = json_array(&server->draft);
    if (json_get(server->capabilities, "tools"))
        list_page(server, STR_NONE);
    else
        list_complete(server); /* it says that it has none */
}

void mcp_server_relist(struct mcp_server *server)
{
    int64_t since_ms = now_of(server) - server->listed_at_ms;
    if (!is_up(server) || server->retired)
        return;
    if (server->listing)
        server->list_again = true;
    else if (since_ms < RELIST_MS)
        retry_in(server, RELIST_MS - since_ms);
    else
        list(server);
}

const struct json *mcp_server_tool(const struct mcp_server *server, struct str name)
{
    return find_tool(server->tools, name);
}

/* ---- the modern era's stream of changes ---- */

static void on_listen_ended(void *user, const struct mcp_outcome *outcome)
{
    struct mcp_server *server = user;
    server->listening = NULL;
    if (!is_up(server))
        return;
    if (outcome->end != MCP_ANSWERED)
        retry_in(server, RETRY_MS);
    else if (outcome->message->kind == RPC_RESULT)
        retry_in(server, LISTEN_ENDED_MS);
}

static bool has_list_changed(const struct mcp_server *server, const char *what)
{
    return json_get_bool(json_get(server->capabilities, what), "listChanged", false);
}

static void subscribe(struct mcp_server *server)
{
    static const char *const kinds[] = {"tools", "prompts", "resources"};
    struct buf params;
    struct json_out out;
    size_t count = 0;
    buf_init(&params, 0);
    json_out_init(&out, &params);
    json_out_object(&out);
    json_out_name(&out, "notifications");
    json_out_object(&out);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%sListChanged", kinds[i]);
        if (has_list_changed(server, kinds[i])) {
            json_out_member_bool(&out, name, true);
            count++;
        }
    }
    json_out_end_object(&out);
    json_out_end_object(&out);
    if (count > 0)
        server->listening = mcp_link_request(
            server->own,
            &(struct mcp_request_options){
                .method = "subscriptions/listen", .params = buf_str(&params), .done = on_listen_ended, .user = server});
    buf_release(&params);
}

/* ---- start and end ---- */

static void keep_facts(struct mcp_server *server)
{
    const struct mcp_connection *connection = server->shared;
    arena_release(&server->facts);
    server->verdict = connection->era;
    server->version = arena_copy_text(&server->facts, connection->version);
    server->capabilities = json_copy(&server->facts, connection->server_capabilities);
    server->server_info = connection->server_info ? json_copy(&server->facts, connection->server_info) : NULL;
    server->instructions = arena_copy_text(&server->facts, connection->instructions);
}

void mcp_server_established(struct mcp_server *server)
{
    keep_facts(server);
    server->state = MCP_SERVER_READY;
    server->ready_at_ms = now_of(server);
    set_error(server, NULL);
    log_life(LOG_INFO, "mcp_server_ready", server, NULL);
    if (server->verdict == MCP_ERA_MODERN)
        subscribe(server);
    list(server);
}

static int64_t restart_delay(const struct mcp_server *server)
{
    int64_t delay = server->hub->pace.restart_ms;
    for (unsigned i = 1; i < server->failures && delay < MCP_RESTART_MS_MAX; i++)
        delay *= 2;
    if (delay > MCP_RESTART_MS_MAX)
        delay = MCP_RESTART_MS_MAX;
    /* Servers that fell together rise one after the other. */
    return delay - delay / 4 + (int64_t)(env_random64(server->hub->options.env) % (uint64_t)(delay / 2));
}

static void on_restart(uv_timer_t *timer)
{
    struct mcp_server *server = timer->data;
    server->restarts++;
    start(server);
}

static void down(struct mcp_server *server, const char *why)
{
    if (server->state == MCP_SERVER_READY && now_of(server) - server->ready_at_ms >= MCP_STEADY_MS)
        server->failures = 0;
    else if (server->state != MCP_SERVER_READY)
        server->verdict = MCP_ERA_ANY; /* it may be another program by now */
    server->failures++;
    server->state = MCP_SERVER_DOWN;
    set_error(server, why);
    drop_draft(server);
    if (server->retired || server->hub->closing)
        return;
    log_life(LOG_WARN, "mcp_server_down", server, why);
    server->retry_at_ms = 0;
    uv_timer_start(&server->timer, on_restart, (uint64_t)restart_delay(server), 0);
    settle_first(server);
}

void mcp_server_lost(struct mcp_server *server, const char *why)
{
    struct mcp_link *own = server->own;
    server->shared = NULL;
    if (own) {
        mcp_link_detach(own);
        mcp_link_close(own);
    }
    server->own = NULL;
    down(server, why);
}

static void start(struct mcp_server *server)
{
    struct mcp_connect connect = {.shared = true, .wanted = MCP_ERA_ANY};
    struct err err = {0};
    server->state = MCP_SERVER_STARTING;
    server->shared = mcp_connection_open(server, &connect, &err);
    if (!server->shared) {
        down(server, err.text);
        return;
    }
    server->own = mcp_link_own(server);
}

struct mcp_server *mcp_server_new(struct mcp_hub *hub, const char *name, struct mcp_provider *provider)
{
    struct mcp_server *server = mem_zero(sizeof *server);
    server->hub = hub;
    server->name = mem_copy_text(name);
    server->provider = mcp_provider_ref(provider);
    server->verdict = MCP_ERA_ANY;
    mcp_hub_hold(hub);
    uv_timer_init(hub->options.loop, &server->timer);
    server->timer.data = server;
    arena_init(&server->facts);
    arena_init(&server->list);
    arena_init(&server->draft);
    start(server);
    return server;
}

/* ---- the end ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct mcp_server *server = handle->data;
    struct mcp_hub *hub = server->hub;
    arena_release(&server->facts);
    arena_release(&server->list);
    arena_release(&server->draft);
    mcp_provider_unref(server->provider);
    free(server->name);
    free(server->error);
    free(server);
    mcp_hub_release(hub);
}

void mcp_server_settle(struct mcp_server *server)
{
    if (!server->retired || server->closed || server->connections || server->links)
        return;
    server->closed = true;
    *server->at = server->next;
    if (server->next)
        server->next->at = server->at;
    uv_close((uv_handle_t *)&server->timer, on_timer_closed);
}

void mcp_server_stop(struct mcp_server *server, const char *why)
{
    while (server->connections)
        mcp_connection_close(server->connections, why);
}

static void on_drained(uv_timer_t *timer)
{
    mcp_server_stop(timer->data, "the registry does not name the server any more");
}

static void end_own_requests(struct mcp_server *server)
{
    struct mcp_pending *own[] = {server->listing, server->listening};
    server->listing = server->listening = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (!own[i])
            continue;
        mcp_pending_forget(own[i]);
        mcp_pending_cancel(own[i], "the server is not used any more");
    }
}

void mcp_server_retire(struct mcp_server *server)
{
    struct mcp_hub *hub = server->hub;
    server->retired = true;
    server->next = hub->retired;
    server->at = &hub->retired;
    if (server->next)
        server->next->at = &server->next;
    hub->retired = server;
    server->state = MCP_SERVER_DOWN;
    set_error(server, "the registry does not name it any more");
    uv_timer_start(&server->timer, on_drained, MCP_DRAIN_MS, 0);
    end_own_requests(server);
    for (struct mcp_connection *connection = server->connections, *next; connection; connection = next) {
        next = connection->next;
        connection->draining = true;
        mcp_connection_settle(connection);
    }
    mcp_server_settle(server);
}
