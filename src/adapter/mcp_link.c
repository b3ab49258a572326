/* Links: one client's view of a server. A link has a connection of its own (per_client) or shares the server's. */
#include "adapter/mcp_parts.h"

#include "base/mem.h"

#include <stdlib.h>

static struct mcp_link *link_new(struct mcp_server *server)
{
    struct mcp_link *link = mem_zero(sizeof *link);
    link->hub = server->hub;
    link->server = server;
    arena_init(&link->arena);
    link->capabilities = server->hub->can_nothing;
    link->client_info = server->hub->client_info;
    return link;
}

static void link_free(struct mcp_link *link)
{
    arena_release(&link->arena);
    free(link);
}

static void attach(struct mcp_link *link, struct mcp_connection *connection)
{
    link->connection = connection;
    link->next = connection->links;
    link->at = &connection->links;
    if (link->next)
        link->next->at = &link->next;
    connection->links = link;
}

/* Attempts go on without the link that they were sent over: who called has gone, not the effect. */
static void leave_attempts(struct mcp_link *link)
{
    for (struct mcp_pending *pending = link->connection->first; pending; pending = pending->next) {
        if (pending->link != link)
            continue;
        pending->link = NULL;
        link->pending_count--;
    }
}

void mcp_link_detach(struct mcp_link *link)
{
    struct mcp_connection *connection = link->connection;
    if (!connection)
        return;
    leave_attempts(link);
    if (connection->cursor == link)
        connection->cursor = link->next;
    *link->at = link->next;
    if (link->next)
        link->next->at = link->at;
    link->next = NULL;
    link->at = NULL;
    link->connection = NULL;
}

struct mcp_link *mcp_link_own(struct mcp_server *server)
{
    struct mcp_link *link = link_new(server);
    attach(link, server->shared);
    return link;
}

/* ---- opening ---- */

static enum err_code read_object(struct mcp_link *link, const char *what, struct str text, const struct json **out,
                                 struct err *err)
{
    struct json *tree;
    if (!text.p)
        return ERR_NONE;
    if (json_parse(&link->arena, text, NULL, &tree, err) != ERR_NONE) {
        err_prefix(err, "the client's %s: ", what);
        return err->code;
    }
    if (tree->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "the client's %s are no object", what);
    *out = tree;
    return ERR_NONE;
}

/* Modern servers over HTTP keep nothing between requests: a connection per client would be the same one. */
static bool needs_own(const struct mcp_server *server, const struct mcp_link_options *options)
{
    bool stateless = server->provider->url && server->verdict == MCP_ERA_MODERN && options->era != MCP_ERA_LEGACY;
    return server->provider->per_client && !stateless;
}

static enum err_code connect_link(struct mcp_link *link, const struct mcp_link_options *options, struct err *err)
{
    struct mcp_server *server = link->server;
    struct mcp_connection *connection = server->shared;
    struct mcp_connect connect = {.wanted = options->era,
                                  .version = options->version,
                                  .capabilities = options->capabilities,
                                  .client_info = options->client_info};
    if (needs_own(server, options))
        connection = mcp_connection_open(server, &connect, err);
    if (!connection)
        return err->code;
    attach(link, connection);
    return ERR_NONE;
}

static enum err_code check_open(const struct mcp_server *server, struct err *err)
{
    if (server->state == MCP_SERVER_DOWN || !server->shared)
        return err_set(err, ERR_UNAVAILABLE, "server %s is down: %s", server->name,
                       server->error ? server->error : "it is being stopped");
    if (server->link_count >= MCP_LINKS_MAX)
        return err_set(err, ERR_LIMIT, "server %s has %d clients already", server->name, MCP_LINKS_MAX);
    return ERR_NONE;
}

struct mcp_link *mcp_link_open(struct mcp_server *server, const struct mcp_link_options *options, struct err *err)
{
    struct err own = {0};
    if (!err)
        err = &own;
    if (check_open(server, err) != ERR_NONE)
        return NULL;
    struct mcp_link *link = link_new(server);
    link->session = options->session;
    link->listener = options->listener;
    link->user = options->user;
    if (read_object(link, "capabilities", options->capabilities, &link->capabilities, err) != ERR_NONE ||
        read_object(link, "client info", options->client_info, &link->client_info, err) != ERR_NONE ||
        connect_link(link, options, err) != ERR_NONE) {
        link_free(link);
        return NULL;
    }
    link->server_next = server->links;
    link->server_at = &server->links;
    if (link->server_next)
        link->server_next->server_at = &link->server_next;
    server->links = link;
    server->link_count++;
    return link;
}

/* ---- closing ---- */

static void end_requests(struct mcp_link *link)
{
    struct mcp_connection *connection = link->connection;
    struct mcp_pending *pending = connection->first;
    while (pending) {
        if (pending->link != link || pending->attempt) {
            pending = pending->next;
            continue;
        }
        struct mcp_outcome outcome = {.end = MCP_LOST, .sent = pending->sent, .text = "the link was closed"};
        mcp_pending_abandon(pending, "the client is gone");
        mcp_pending_end(pending, &outcome);
        pending = connection->first; /* whoever was told may have done anything */
    }
}

static void end_questions(struct mcp_link *link)
{
    struct mcp_connection *connection = link->connection;
    struct mcp_question *question = connection->questions;
    while (question) {
        struct mcp_question *next = question->next;
        if (question->link == link && !question->by_hub)
            mcp_answer(question, STR_NONE, RPC_INTERNAL_ERROR, STR("the client is gone"));
        else if (question->link == link)
            question->link = NULL;
        question = next;
    }
}

void mcp_link_close(struct mcp_link *link)
{
    struct mcp_connection *connection = link->connection;
    struct mcp_server *server = link->server;
    link->listener = NULL;
    if (connection)
        end_requests(link);
    if (link->connection) {
        end_questions(link);
        mcp_link_detach(link);
        if (!connection->shared && !connection->links)
            connection->draining = true;
        mcp_connection_settle(connection);
    }
    if (server && link != server->own) {
        *link->server_at = link->server_next;
        if (link->server_next)
            link->server_next->server_at = link->server_at;
        server->link_count--;
        mcp_server_settle(server);
    }
    link_free(link);
}

/* ---- use ---- */

enum mcp_era mcp_link_era(const struct mcp_link *link)
{
    const struct mcp_connection *connection = link->connection;
    if (connection && (connection->stage == MCP_STAGE_ESTABLISHED || connection->stage == MCP_STAGE_INITIALIZE))
        return connection->era;
    return link->server ? link->server->verdict : MCP_ERA_ANY;
}

struct mcp_server *mcp_link_server(const struct mcp_link *link)
{
    return link->server;
}

struct mcp_pending *mcp_link_request(struct mcp_link *link, const struct mcp_request_options *options)
{
    return mcp_connection_request(link->connection, link, link->hub, options, NULL);
}

struct mcp_pending *mcp_link_attempt(struct mcp_link *link, const struct mcp_request_options *options,
                                     struct adapter_origin origin)
{
    return mcp_connection_request(link->connection, link, link->hub, options, &origin);
}

void mcp_link_notify(struct mcp_link *link, const char *method, struct str params)
{
    if (!link->connection)
        return;
    link->used = link->connection->last_id + 1; /* what the server asks about it is this client's to answer */
    mcp_connection_notify(link->connection, method, params, NULL);
}

struct mcp_link *mcp_server_attempt_link(struct mcp_server *server, struct adapter_origin origin, struct err *err)
{
    for (struct mcp_link *link = server->links; link && origin.session != 0; link = link->server_next) {
        if (link->session == origin.session && link->connection)
            return link;
    }
    if (!server->own)
        err_set(err, ERR_UNAVAILABLE, "server %s is down: %s", server->name,
                server->error ? server->error : "it is being stopped");
    return server->own;
}
