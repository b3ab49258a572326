/* Requests under way, and the writing of messages: a request waits for the handshake, is put into the form of the era
 * (mcp_envelope.c), and is told its end once (mcp_connection.c). */
#include "adapter/mcp_parts.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t now_of(const struct mcp_connection *connection)
{
    return (int64_t)uv_now(connection->hub->options.loop);
}

/* ---- sending ---- */

static bool transport_send(struct mcp_connection *connection, const struct mcp_outgoing *message, struct err *err)
{
    if (message->text.n > MCP_MESSAGE_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the message is larger than %zu bytes", MCP_MESSAGE_BYTES_MAX), false;
    return connection->transport->ops->send(connection->transport, message, err);
}

/* A client's JSON may be spread over lines, a message may not: line ends between its values become spaces. */
static void make_one_line(struct buf *text)
{
    for (size_t i = 0; i < text->n; i++) {
        if (text->p[i] == '\n' || text->p[i] == '\r')
            text->p[i] = ' ';
    }
}

static enum err_code write_request(struct mcp_pending *pending, struct arena *arena, struct json **params,
                                   struct buf *text, struct err *err)
{
    const struct mcp_connection *connection = pending->connection;
    const struct mcp_link *link = pending->link;
    struct mcp_envelope envelope = {
        .era = connection->era,
        .capabilities = link ? link->capabilities : pending->hub->can_nothing,
        .client_info = link ? link->client_info : pending->hub->client_info,
        .token = str_of(pending->id),
    };
    struct str given = pending->params ? (struct str){pending->params, pending->params_bytes} : STR_NONE;
    enum err_code code = mcp_envelope_params(arena, given, &envelope, params, &pending->token, err);
    if (code)
        return code;
    struct buf written;
    buf_init(&written, 0);
    if (*params)
        json_write(&written, *params);
    rpc_write_request(text, str_of(pending->id), pending->method, *params ? buf_str(&written) : STR_NONE);
    buf_release(&written);
    return ERR_NONE;
}

static void pending_defer(struct mcp_pending *pending, enum mcp_end end, const char *text);

void mcp_pending_send(struct mcp_pending *pending)
{
    struct mcp_connection *connection = pending->connection;
    struct err err = {0};
    struct json *params = NULL;
    struct arena arena;
    struct buf text;
    arena_init(&arena);
    buf_init(&text, 0);
    if (write_request(pending, &arena, &params, &text, &err) == ERR_NONE) {
        struct mcp_outgoing message = {
            .kind = RPC_REQUEST,
            .method = pending->method,
            .params = params,
            .text = buf_str(&text),
            .era = connection->era,
            .version = connection->stage == MCP_STAGE_INITIALIZE ? NULL : connection->version,
            .pending = pending,
        };
        pending->sent = transport_send(connection, &message, &err);
    }
    if (!pending->sent)
        pending_defer(pending, MCP_LOST, err.text);
    free(pending->params);
    pending->params = NULL;
    buf_release(&text);
    arena_release(&arena);
}

void mcp_connection_notify(struct mcp_connection *connection, const char *method, struct str params,
                           struct mcp_pending *related)
{
    bool known = connection->era == MCP_ERA_LEGACY || strcmp(method, "notifications/cancelled") == 0;
    if (connection->stage != MCP_STAGE_ESTABLISHED || !known)
        return;
    struct arena arena;
    struct buf text;
    struct json *tree = NULL;
    struct err err = {0};
    arena_init(&arena);
    buf_init(&text, 0);
    if (params.p && json_parse(&arena, params, &mcp_message_limits, &tree, &err) != ERR_NONE)
        params = STR_NONE;
    rpc_write_notification(&text, method, params);
    make_one_line(&text);
    struct mcp_outgoing message = {
        .kind = RPC_NOTIFICATION,
        .method = method,
        .params = tree,
        .text = buf_str(&text),
        .era = connection->era,
        .version = connection->version,
        .pending = related,
    };
    transport_send(connection, &message, &err);
    buf_release(&text);
    arena_release(&arena);
}

void mcp_connection_answer(struct mcp_connection *connection, struct str id, struct mcp_pending *related,
                           struct str result, int64_t code, struct str message)
{
    if (!connection->transport)
        return;
    struct err err = {0};
    struct buf text;
    buf_init(&text, 0);
    if (result.p)
        rpc_write_result(&text, id, result);
    else
        rpc_write_error(&text, id, code, message, STR_NONE);
    make_one_line(&text);
    struct mcp_outgoing outgoing = {
        .kind = result.p ? RPC_RESULT : RPC_ERROR,
        .text = buf_str(&text),
        .era = connection->era,
        .version = connection->version,
        .pending = related,
    };
    transport_send(connection, &outgoing, &err);
    buf_release(&text);
}

/* ---- requests ---- */

static struct mcp_pending *pending_new(struct mcp_hub *hub, const struct mcp_request_options *options)
{
    struct mcp_pending *pending = mem_zero(sizeof *pending);
    pending->hub = hub;
    snprintf(pending->method, sizeof pending->method, "%s", options->method);
    if (options->params.p) {
        pending->params = mem_copy_bytes(options->params.p, options->params.n);
        pending->params_bytes = options->params.n;
    }
    pending->done = options->done;
    pending->user = options->user;
    pending->timeout_ms = options->timeout_ms;
    pending->renew = !options->no_timeout_renewal;
    return pending;
}

static void pending_free(struct mcp_pending *pending)
{
    free(pending->params);
    free(pending->token);
    free(pending->text);
    free(pending);
}

static void pending_add(struct mcp_connection *connection, struct mcp_pending *pending)
{
    pending->connection = connection;
    snprintf(pending->id, sizeof pending->id, "%" PRIu64, ++connection->last_id);
    pending->prev = connection->last;
    *(connection->last ? &connection->last->next : &connection->first) = pending;
    connection->last = pending;
    connection->pending_count++;
    map_put(&connection->by_id, pending->id, pending);
    if (pending->link) {
        pending->link->pending_count++;
        pending->link->used = connection->last_id;
    }
    if (pending->timeout_ms > 0) {
        pending->deadline_ms = now_of(connection) + pending->timeout_ms;
        mcp_connection_wake(connection, pending->deadline_ms);
    }
}

static void pending_remove(struct mcp_pending *pending)
{
    struct mcp_connection *connection = pending->connection;
    if (!connection)
        return;
    *(pending->prev ? &pending->prev->next : &connection->first) = pending->next;
    *(pending->next ? &pending->next->prev : &connection->last) = pending->prev;
    connection->pending_count--;
    map_remove(&connection->by_id, pending->id);
    if (connection->probe == pending)
        connection->probe = NULL;
    if (connection->initialize == pending)
        connection->initialize = NULL;
    for (struct mcp_question *question = connection->questions; question; question = question->next) {
        if (question->pending == pending)
            question->pending = NULL;
    }
    if (pending->link)
        pending->link->pending_count--;
    if (pending->sent && connection->transport)
        connection->transport->ops->drop(connection->transport, pending, pending->cancelled);
    pending->connection = NULL;
}

void mcp_pending_end(struct mcp_pending *pending, const struct mcp_outcome *outcome)
{
    struct mcp_connection *connection = pending->connection;
    mcp_done *done = pending->done;
    void *user = pending->user;
    pending_remove(pending);
    pending->done = NULL;
    pending->link = NULL;
    if (!pending->deferred)
        pending_free(pending);
    if (done)
        done(user, outcome);
    if (connection)
        mcp_connection_settle(connection);
}

void mcp_pending_end_as(struct mcp_pending *pending, enum mcp_end end, const char *text)
{
    struct mcp_outcome outcome = {.end = end, .sent = pending->sent, .text = text};
    mcp_pending_end(pending, &outcome);
}

static void on_deferred_end(void *user)
{
    struct mcp_pending *pending = user;
    pending->deferred = false; /* if it has ended meanwhile, nobody is told any more */
    char *text = pending->text;
    pending->text = NULL;
    mcp_pending_end_as(pending, pending->end, text);
    free(text);
}

/* Tells it in a later turn of the loop, unless something else does before. */
static void pending_defer(struct mcp_pending *pending, enum mcp_end end, const char *text)
{
    if (pending->deferred)
        return;
    pending->deferred = true;
    pending->end = end;
    pending->text = mem_copy_text(text);
    mcp_hub_defer(pending->hub, on_deferred_end, pending);
}

struct mcp_pending *mcp_connection_request(struct mcp_connection *connection, struct mcp_link *link,
                                           struct mcp_hub *hub, const struct mcp_request_options *options,
                                           const struct adapter_origin *origin)
{
    struct mcp_pending *pending = pending_new(hub, options);
    pending->attempt = origin != NULL;
    if (origin)
        pending->origin = *origin;
    if (!connection || connection->stage == MCP_STAGE_LOST) {
        pending_defer(pending, MCP_LOST, "the connection to the server is gone");
    } else if (connection->pending_count >= MCP_PENDING_MAX) {
        pending_defer(pending, MCP_LOST, "too many requests to the server are under way");
    } else if (strlen(options->method) > RPC_METHOD_BYTES_MAX) {
        pending_defer(pending, MCP_LOST, "the name of the method is too long");
    } else {
        pending->link = link;
        pending_add(connection, pending);
        if (connection->stage == MCP_STAGE_ESTABLISHED)
            mcp_pending_send(pending);
    }
    return pending;
}

struct mcp_pending *mcp_connection_request_now(struct mcp_connection *connection,
                                               const struct mcp_request_options *options)
{
    struct mcp_pending *pending = pending_new(connection->hub, options);
    pending_add(connection, pending);
    mcp_pending_send(pending);
    return pending;
}

struct mcp_pending *mcp_connection_find(const struct mcp_connection *connection, struct str id)
{
    char key[sizeof((struct mcp_pending *)0)->id];
    if (id.n == 0 || id.n >= sizeof key || memchr(id.p, 0, id.n))
        return NULL;
    memcpy(key, id.p, id.n);
    key[id.n] = '\0';
    return map_get(&connection->by_id, key);
}

/* Tells the server that nobody waits any more. Over HTTP in the modern era dropping the request does. */
static void tell_cancelled(struct mcp_pending *pending, const char *reason)
{
    struct mcp_connection *connection = pending->connection;
    pending->cancelled = true;
    if (connection->era == MCP_ERA_MODERN && connection->transport->ops->streams)
        return;
    struct buf params;
    struct json_out out;
    buf_init(&params, 0);
    json_out_init(&out, &params);
    json_out_object(&out);
    json_out_name(&out, "requestId");
    json_out_raw(&out, str_of(pending->id));
    json_out_member_text(&out, "reason", reason);
    json_out_end_object(&out);
    mcp_connection_notify(connection, "notifications/cancelled", buf_str(&params), pending);
    buf_release(&params);
}

void mcp_pending_abandon(struct mcp_pending *pending, const char *reason)
{
    struct mcp_connection *connection = pending->connection;
    if (connection && pending->sent && !pending->cancelled && connection->stage == MCP_STAGE_ESTABLISHED)
        tell_cancelled(pending, reason);
}

void mcp_pending_cancel(struct mcp_pending *pending, const char *reason)
{
    if (!pending->connection || pending->deferred)
        return;
    mcp_pending_abandon(pending, reason);
    pending_defer(pending, MCP_CANCELLED, reason ? reason : "cancelled");
}

void mcp_pending_forget(struct mcp_pending *pending)
{
    pending->done = NULL;
    pending->user = NULL;
}
