/* One connection to a server: what comes from it, deadlines, its end.
 *
 *   request ─► waits for the handshake ─► envelope ─► transport
 *                                                        │
 *   done ◄── pending ◄── by id ◄── message ◄─────────────┘── notification, question ─► mcp_route.c
 *
 * A pending is told once: by its answer, its time-out, its cancellation, or the end of stream, link or connection,
 * whatever comes first. Each of these may be the caller's own doing from within a callback, so everything here looks
 * again after it called out. */
#include "adapter/mcp_parts.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t now_of(const struct mcp_connection *connection)
{
    return (int64_t)uv_now(connection->hub->options.loop);
}

/* ---- time ---- */

static void on_timer(uv_timer_t *timer);

/* The timer fires at the earliest deadline at the latest; firing early costs a look at all. */
void mcp_connection_wake(struct mcp_connection *connection, int64_t deadline_ms)
{
    if (deadline_ms == 0 || (connection->due_ms != 0 && connection->due_ms <= deadline_ms))
        return;
    int64_t delay = deadline_ms - now_of(connection);
    connection->due_ms = deadline_ms;
    uv_timer_start(&connection->timer, on_timer, delay > 0 ? (uint64_t)delay : 0, 0);
}

/* ---- what the transport tells ---- */

static void count_garbage(struct mcp_connection *connection, const char *what, struct str text)
{
    struct buf begin;
    if (!log_begin(LOG_DEBUG, "mcp_message_ignored"))
        return;
    buf_init(&begin, 80);
    secrets_mask(&connection->server->provider->secrets, text, &begin);
    log_text("server", connection->server->name);
    log_text("reason", what);
    log_text("begin", begin.p);
    log_end();
    buf_release(&begin);
}

/* The one request that is under way, or NULL. */
static struct mcp_pending *only_pending(const struct mcp_connection *connection)
{
    struct mcp_pending *only = NULL;
    for (struct mcp_pending *pending = connection->first; pending; pending = pending->next) {
        if (!pending->sent || pending == connection->server->listening)
            continue;
        if (only)
            return NULL;
        only = pending;
    }
    return only;
}

static void take_answer(struct mcp_connection *connection, struct mcp_pending *stream,
                        const struct rpc_message *message, int http_status)
{
    struct mcp_pending *pending = message->id.p ? mcp_connection_find(connection, message->id) : stream;
    if (!pending || !pending->sent) {
        count_garbage(connection, "an answer to no request", message->id);
        return;
    }
    struct mcp_outcome outcome = {.end = MCP_ANSWERED, .message = message, .sent = true, .http_status = http_status};
    mcp_pending_end(pending, &outcome);
}

/* The request that a text without sense answers: by its id as far as that can be told, else that of its stream. Servers
 * print all sorts of things: where several wait, only what looks like a message ends one. */
static struct mcp_pending *garbled(struct mcp_connection *connection, struct mcp_pending *stream, struct arena *arena,
                                   struct str text)
{
    struct rpc_glance glance = rpc_glance(arena, text);
    struct mcp_pending *pending = stream;
    if (glance.id.p && (glance.result || glance.error) && !glance.method.p)
        pending = mcp_connection_find(connection, glance.id);
    else if (!pending && text.n > 0 && text.p[0] == '{' && memmem(text.p, text.n, "\"jsonrpc\"", 9))
        pending = only_pending(connection);
    return pending && pending->sent ? pending : NULL;
}

static void take_garbage(struct mcp_connection *connection, struct mcp_pending *stream, struct arena *arena,
                         struct str text, const char *fault, int http_status)
{
    struct mcp_pending *pending = garbled(connection, stream, arena, text);
    if (!pending) {
        count_garbage(connection, fault, text);
        return;
    }
    char words[ERR_TEXT_MAX];
    snprintf(words, sizeof words, "the server's answer cannot be read: %.400s", fault);
    struct mcp_outcome outcome = {.end = MCP_UNREADABLE, .sent = true, .http_status = http_status, .text = words};
    mcp_pending_end(pending, &outcome);
}

void mcp_connection_message(struct mcp_connection *connection, struct mcp_pending *pending, struct str text,
                            int http_status)
{
    struct rpc_message message;
    struct rpc_fault fault = {0};
    struct arena arena;
    if (connection->stage == MCP_STAGE_LOST)
        return;
    arena_init(&arena);
    if (!rpc_read(&arena, text, &mcp_message_limits, &message, &fault)) {
        take_garbage(connection, pending, &arena, text, fault.err.text, http_status);
        arena_release(&arena);
        return;
    }
    switch (message.kind) {
    case RPC_RESULT:
    case RPC_ERROR: take_answer(connection, pending, &message, http_status); break;
    case RPC_NOTIFICATION: mcp_route_notification(connection, pending, &arena, &message); break;
    case RPC_REQUEST: mcp_route_request(connection, pending, &message); break;
    }
    arena_release(&arena);
}

void mcp_connection_oversize(struct mcp_connection *connection, struct mcp_pending *pending, struct str begin)
{
    struct arena arena;
    if (connection->stage == MCP_STAGE_LOST)
        return;
    arena_init(&arena);
    take_garbage(connection, pending, &arena, begin, "it is over the limit", 0);
    arena_release(&arena);
}

void mcp_connection_pending_lost(struct mcp_connection *connection, struct mcp_pending *pending, enum mcp_end end,
                                 bool sent, int http_status, const char *text)
{
    (void)connection;
    struct mcp_outcome outcome = {.end = end, .sent = sent, .http_status = http_status, .text = text};
    mcp_pending_end(pending, &outcome);
}

void mcp_connection_lost(struct mcp_connection *connection, const char *why)
{
    if (connection->stage == MCP_STAGE_LOST || mcp_handshake_reopen(connection))
        return;
    mcp_connection_close(connection, why);
}

/* ---- life ---- */

static void time_out(struct mcp_pending *pending)
{
    mcp_pending_abandon(pending, "no answer in time");
    mcp_pending_end_as(pending, MCP_TIMED_OUT, "the server did not answer in time");
}

/* A request whose time is over, or NULL and when to look again (0 = never). */
static struct mcp_pending *overdue(const struct mcp_connection *connection, int64_t now, int64_t *next)
{
    *next = 0;
    for (struct mcp_pending *pending = connection->first; pending; pending = pending->next) {
        if (pending->deadline_ms == 0 || pending->deferred)
            continue;
        if (now >= pending->deadline_ms)
            return pending;
        if (*next == 0 || pending->deadline_ms < *next)
            *next = pending->deadline_ms;
    }
    return NULL;
}

static void on_timer(uv_timer_t *timer)
{
    struct mcp_connection *connection = timer->data;
    int64_t now = now_of(connection), next;
    struct mcp_pending *pending;
    connection->due_ms = 0;
    if (connection->start_deadline_ms != 0 && now >= connection->start_deadline_ms) {
        char why[80];
        snprintf(why, sizeof why, "the server did not answer within %" PRId64 " ms of its start",
                 connection->server->provider->start_timeout_ms);
        mcp_connection_close(connection, why);
        return;
    }
    if (connection->probe_deadline_ms != 0 && now >= connection->probe_deadline_ms)
        mcp_handshake_probe_overdue(connection);
    while ((pending = overdue(connection, now, &next)))
        time_out(pending);
    if (connection->stage == MCP_STAGE_LOST)
        return;
    mcp_connection_wake(connection, next);
    mcp_connection_wake(connection, connection->start_deadline_ms);
    mcp_connection_wake(connection, connection->probe_deadline_ms);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct mcp_connection *connection = handle->data;
    struct mcp_hub *hub = connection->hub;
    arena_release(&connection->facts);
    map_release(&connection->by_id);
    free(connection->capabilities);
    free(connection->client_info);
    free(connection->why);
    free(connection);
    mcp_hub_release(hub);
}

static char *copy_object(struct str text)
{
    return text.p ? mem_copy_bytes(text.p, text.n) : NULL;
}

struct mcp_connection *mcp_connection_open(struct mcp_server *server, const struct mcp_connect *connect,
                                           struct err *err)
{
    struct mcp_connection *connection = mem_zero(sizeof *connection);
    struct mcp_hub *hub = server->hub;
    connection->hub = hub;
    connection->server = server;
    connection->shared = connect->shared;
    connection->transport = hub->open(connection, err);
    if (!connection->transport) {
        free(connection);
        return NULL;
    }
    mcp_hub_hold(hub);
    uv_timer_init(hub->options.loop, &connection->timer);
    connection->timer.data = connection;
    arena_init(&connection->facts);
    map_init(&connection->by_id);
    connection->capabilities = copy_object(connect->capabilities);
    connection->client_info = copy_object(connect->client_info);
    connection->next = server->connections;
    connection->at = &server->connections;
    if (connection->next)
        connection->next->at = &connection->next;
    server->connections = connection;
    connection->start_deadline_ms = now_of(connection) + server->provider->start_timeout_ms;
    mcp_connection_wake(connection, connection->start_deadline_ms);
    mcp_handshake_begin(connection, connect);
    return connection;
}

static void lose_links(struct mcp_connection *connection)
{
    struct mcp_link *link;
    while ((link = connection->links)) {
        mcp_link_detach(link);
        if (link->listener && link->listener->lost)
            link->listener->lost(link->user, link, connection->why);
    }
}

void mcp_connection_close(struct mcp_connection *connection, const char *why)
{
    struct mcp_server *server = connection->server;
    struct mcp_transport *transport = connection->transport;
    if (connection->stage == MCP_STAGE_LOST)
        return;
    connection->stage = MCP_STAGE_LOST;
    connection->why = mem_copy_text(why);
    while (connection->first)
        mcp_pending_end_as(connection->first, MCP_LOST, connection->why);
    while (connection->questions)
        mcp_question_withdraw(connection->questions);
    connection->transport = NULL;
    if (transport) {
        transport->connection = NULL;
        transport->ops->close(transport);
    }
    *connection->at = connection->next;
    if (connection->next)
        connection->next->at = connection->at;
    if (connection->shared && server->shared == connection)
        mcp_server_lost(server, connection->why);
    lose_links(connection);
    uv_close((uv_handle_t *)&connection->timer, on_timer_closed);
    mcp_server_settle(server);
}

void mcp_connection_settle(struct mcp_connection *connection)
{
    size_t handshake = (connection->probe != NULL) + (connection->initialize != NULL);
    if (connection->draining && connection->stage != MCP_STAGE_LOST && connection->pending_count == handshake)
        mcp_connection_close(connection, "nobody uses the connection any more");
}
