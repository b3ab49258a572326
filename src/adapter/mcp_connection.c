/* One connection to a server: the handshake, requests under way, what comes and goes.
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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t now_of(const struct mcp_connection *connection)
{
    return (int64_t)uv_now(connection->hub->options.loop);
}

/* ---- time ---- */

static void on_timer(uv_timer_t *timer);

/* The timer fires at the earliest deadline at the latest; firing early costs a look at all. */
static void want_timer(struct mcp_connection *connection, int64_t deadline_ms)
{
    if (deadline_ms == 0 || (connection->due_ms != 0 && connection->due_ms <= deadline_ms))
        return;
    int64_t delay = deadline_ms - now_of(connection);
    connection->due_ms = deadline_ms;
    uv_timer_start(&connection->timer, on_timer, delay > 0 ? (uint64_t)delay : 0, 0);
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

static void pending_send(struct mcp_pending *pending)
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
        want_timer(connection, pending->deadline_ms);
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

static void end_with(struct mcp_pending *pending, enum mcp_end end, const char *text)
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
    end_with(pending, pending->end, text);
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
            pending_send(pending);
    }
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

static void time_out(struct mcp_pending *pending)
{
    mcp_pending_abandon(pending, "no answer in time");
    end_with(pending, MCP_TIMED_OUT, "the server did not answer in time");
}

/* ---- handshake ---- */

static void discover(struct mcp_connection *connection);
static void initialize(struct mcp_connection *connection);

static void handshake_failed(struct mcp_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void handshake_failed(struct mcp_connection *connection, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mcp_connection_close(connection, text);
}

static void keep_facts(struct mcp_connection *connection, const struct json *result)
{
    const struct json *capabilities = json_get(result, "capabilities");
    const struct json *info = json_get(json_get(result, "_meta"), MCP_META_SERVER);
    struct str instructions = json_get_text(result, "instructions");
    if (!info)
        info = json_get(result, "serverInfo");
    arena_release(&connection->facts);
    connection->server_capabilities = capabilities && capabilities->type == JSON_OBJECT
                                          ? json_copy(&connection->facts, capabilities)
                                          : json_object(&connection->facts);
    connection->server_info = info && info->type == JSON_OBJECT ? json_copy(&connection->facts, info) : NULL;
    connection->instructions = arena_copy_str(&connection->facts, instructions);
}

static void established(struct mcp_connection *connection)
{
    struct mcp_pending *late = connection->probe; /* its answer means nothing any more */
    connection->stage = MCP_STAGE_ESTABLISHED;
    connection->start_deadline_ms = connection->probe_deadline_ms = 0;
    if (late) {
        late->done = NULL;
        end_with(late, MCP_CANCELLED, NULL);
    }
    if (connection->era == MCP_ERA_LEGACY)
        mcp_connection_notify(connection, "notifications/initialized", STR_NONE, NULL);
    if (connection->transport->ops->established)
        connection->transport->ops->established(connection->transport);
    if (connection->shared)
        mcp_server_established(connection->server);
    /* Sending calls nobody back: the list stays as it is. */
    for (struct mcp_pending *pending = connection->first; pending && connection->transport; pending = pending->next) {
        if (!pending->sent && !pending->deferred)
            pending_send(pending);
    }
}

static bool array_has(const struct json *array, struct str text)
{
    for (uint32_t i = 0; array && array->type == JSON_ARRAY && i < array->count; i++) {
        if (array->items[i].type == JSON_STRING && str_equal(array->items[i].text, text))
            return true;
    }
    return false;
}

static bool is_version_list(const struct json *value)
{
    if (!value || value->type != JSON_ARRAY || value->count == 0)
        return false;
    for (uint32_t i = 0; i < value->count; i++) {
        if (value->items[i].type != JSON_STRING)
            return false;
    }
    return true;
}

/* The newest legacy revision of a list that we speak too; absent = none. */
static struct str legacy_of(const struct json *versions)
{
    struct str best = STR_NONE;
    for (uint32_t i = 0; versions && versions->type == JSON_ARRAY && i < versions->count; i++) {
        const struct json *item = &versions->items[i];
        if (item->type == JSON_STRING && mcp_version_is_legacy(item->text) &&
            (!best.p || memcmp(item->text.p, best.p, 10) > 0))
            best = item->text;
    }
    return best;
}

/* The words of an answer or of its absence. */
static void outcome_text(const struct mcp_outcome *outcome, char *out, size_t size)
{
    const struct rpc_message *message = outcome->message;
    if (outcome->end == MCP_ANSWERED && message->kind == RPC_ERROR)
        snprintf(out, size, "error %" PRId64 ": %.200s", message->code, message->message.p ? message->message.p : "");
    else if (outcome->end == MCP_ANSWERED)
        snprintf(out, size, "an answer that is none");
    else
        snprintf(out, size, "%s", outcome->text ? outcome->text : "no answer");
}

/* The modern era is out of the question; why in words. */
static void not_modern(struct mcp_connection *connection, const struct mcp_outcome *outcome)
{
    char text[ERR_TEXT_MAX / 2];
    outcome_text(outcome, text, sizeof text);
    if (connection->may_legacy)
        initialize(connection);
    else
        handshake_failed(connection, "server/discover: %s", text);
}

static void not_legacy(struct mcp_connection *connection, const struct mcp_outcome *outcome)
{
    char text[ERR_TEXT_MAX / 2];
    outcome_text(outcome, text, sizeof text);
    if (connection->may_modern)
        discover(connection);
    else
        handshake_failed(connection, "initialize: %s", text);
}

/* The server named the revisions that it speaks. */
static void choose_version(struct mcp_connection *connection, const struct json *versions,
                           const struct mcp_outcome *outcome)
{
    struct str legacy = legacy_of(versions);
    /* Some refuse the very revision that they then name: asked once more, not for ever. */
    if (array_has(versions, STR(MCP_MODERN_VERSION)) && !connection->discover_again) {
        connection->discover_again = true;
        discover(connection);
    } else if (legacy.p && connection->may_legacy) {
        snprintf(connection->offer, sizeof connection->offer, "%.*s", STR_ARG(legacy));
        initialize(connection);
    } else if (versions && versions->type == JSON_ARRAY) {
        handshake_failed(connection, "the server speaks none of the revisions that onced speaks");
    } else {
        not_modern(connection, outcome);
    }
}

/* Whether the answer's absence says something about the server's era: over HTTP only a refusal does. */
static bool probe_failed_hard(const struct mcp_connection *connection, const struct mcp_outcome *outcome)
{
    int status = outcome->http_status;
    if (outcome->end != MCP_LOST || !connection->transport || !connection->transport->ops->streams)
        return false;
    return status == 0 || status == 401 || status == 403 || status == 408 || status == 429 || status >= 500;
}

/* Nothing of it left: the process has ended or is about to, which is told with its reason. */
static bool was_not_taken(const struct mcp_connection *connection, const struct mcp_outcome *outcome)
{
    return outcome->end == MCP_LOST && !outcome->sent && !connection->transport->ops->streams;
}

static void on_discover(void *user, const struct mcp_outcome *outcome)
{
    struct mcp_connection *connection = user;
    const struct rpc_message *message = outcome->end == MCP_ANSWERED ? outcome->message : NULL;
    const struct json *versions = message ? json_get(message->result, "supportedVersions") : NULL;
    bool current = connection->stage == MCP_STAGE_DISCOVER;
    if ((!current && connection->stage != MCP_STAGE_INITIALIZE) || was_not_taken(connection, outcome))
        return;
    if (message && message->kind == RPC_RESULT && array_has(versions, STR(MCP_MODERN_VERSION))) {
        if (current) {
            keep_facts(connection, message->result);
            established(connection);
        } else {
            connection->may_modern = true; /* late: initialize is on its way, and its answer decides */
        }
        return;
    }
    if (!current)
        return;
    connection->probe_deadline_ms = 0;
    if (message && message->kind == RPC_RESULT && is_version_list(versions))
        connection->discover_again = true, choose_version(connection, versions, outcome);
    else if (message && message->kind == RPC_ERROR && message->code == MCP_UNSUPPORTED_VERSION)
        choose_version(connection, json_get(message->data, "supported"), outcome);
    else if (probe_failed_hard(connection, outcome))
        handshake_failed(connection, "%s", outcome->text ? outcome->text : "the server cannot be reached");
    else
        not_modern(connection, outcome);
}

static void on_initialize(void *user, const struct mcp_outcome *outcome)
{
    struct mcp_connection *connection = user;
    const struct rpc_message *message = outcome->end == MCP_ANSWERED ? outcome->message : NULL;
    if (connection->stage != MCP_STAGE_INITIALIZE || was_not_taken(connection, outcome))
        return;
    struct str version = message ? json_get_text(message->result, "protocolVersion") : STR_NONE;
    if (message && message->kind == RPC_RESULT && version.p && mcp_version_is_legacy(version)) {
        snprintf(connection->version, sizeof connection->version, "%.*s", STR_ARG(version));
        keep_facts(connection, message->result);
        established(connection);
    } else if (version.p && !connection->may_modern) {
        handshake_failed(connection, "the server speaks revision %.*s, which onced does not",
                         (int)(version.n < 32 ? version.n : 32), version.p);
    } else if (probe_failed_hard(connection, outcome)) {
        handshake_failed(connection, "%s", outcome->text ? outcome->text : "the server cannot be reached");
    } else {
        not_legacy(connection, outcome);
    }
}

static struct mcp_pending *handshake_request(struct mcp_connection *connection, const char *method, struct str params,
                                             mcp_done *done)
{
    struct mcp_request_options options = {.method = method, .params = params, .done = done, .user = connection};
    struct mcp_pending *pending = pending_new(connection->hub, &options);
    pending_add(connection, pending);
    pending_send(pending);
    return pending;
}

static void discover(struct mcp_connection *connection)
{
    connection->may_modern = false;
    connection->probed = true;
    connection->stage = MCP_STAGE_DISCOVER;
    connection->era = MCP_ERA_MODERN;
    snprintf(connection->version, sizeof connection->version, "%s", MCP_MODERN_VERSION);
    if (connection->may_legacy && !connection->transport->ops->streams) {
        connection->probe_deadline_ms = now_of(connection) + connection->hub->pace.probe_ms;
        want_timer(connection, connection->probe_deadline_ms);
    }
    connection->probe = handshake_request(connection, "server/discover", STR_NONE, on_discover);
}

/* Everything that a client can do, for a connection that is for all: what nobody can answer is refused then. */
#define CAN_ALL                                                                                                        \
    "{\"roots\":{\"listChanged\":true},\"sampling\":{\"context\":{},\"tools\":{}},\"elicitation\":{\"form\":{},"       \
    "\"url\":{}}}"

static void initialize(struct mcp_connection *connection)
{
    struct buf params;
    struct json_out out;
    connection->may_legacy = false;
    connection->stage = MCP_STAGE_INITIALIZE;
    connection->era = MCP_ERA_LEGACY;
    connection->probe_deadline_ms = 0;
    snprintf(connection->version, sizeof connection->version, "%s", connection->offer);
    buf_init(&params, 0);
    json_out_init(&out, &params);
    json_out_object(&out);
    json_out_member_text(&out, "protocolVersion", connection->offer);
    json_out_name(&out, "capabilities");
    json_out_raw(&out, connection->capabilities ? str_of(connection->capabilities) : STR(CAN_ALL));
    json_out_name(&out, "clientInfo");
    if (connection->client_info)
        json_out_raw(&out, str_of(connection->client_info));
    else
        json_out_value(&out, connection->hub->client_info);
    json_out_end_object(&out);
    connection->initialize = handshake_request(connection, "initialize", buf_str(&params), on_initialize);
    buf_release(&params);
}

/* Ends what the handshake waits for without a word. */
static void drop_handshake(struct mcp_connection *connection)
{
    struct mcp_pending *pending;
    while ((pending = connection->probe ? connection->probe : connection->initialize)) {
        pending->done = NULL;
        end_with(pending, MCP_LOST, NULL);
    }
}

/* Some servers end at the first request that is not initialize: started again, that is the first thing they hear. */
static bool reopen(struct mcp_connection *connection)
{
    struct mcp_transport *former = connection->transport;
    bool may = connection->stage == MCP_STAGE_INITIALIZE ||
               (connection->stage == MCP_STAGE_DISCOVER && connection->may_legacy);
    struct err err = {0};
    if (!may || !connection->probed || former->ops->streams)
        return false;
    connection->probed = false;
    drop_handshake(connection);
    if (connection->stage == MCP_STAGE_LOST) /* it was kept for the handshake only */
        return true;
    former->connection = NULL;
    former->ops->close(former);
    connection->transport = connection->hub->open(connection, &err);
    if (!connection->transport)
        handshake_failed(connection, "%s", err.text);
    else
        initialize(connection);
    return true;
}

/* ---- what the transport tells ---- */

static void count_garbage(struct mcp_connection *connection, const char *what, struct str text)
{
    struct buf begin;
    if (!log_begin(LOG_DEBUG, "mcp_message_ignored"))
        return;
    buf_init(&begin, 80);
    mcp_mask(connection->server->provider, text, &begin);
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
    if (connection->stage == MCP_STAGE_LOST || reopen(connection))
        return;
    mcp_connection_close(connection, why);
}

/* ---- life ---- */

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
        handshake_failed(connection, "the server did not answer within %" PRId64 " ms of its start",
                         connection->server->provider->start_timeout_ms);
        return;
    }
    if (connection->probe_deadline_ms != 0 && now >= connection->probe_deadline_ms)
        initialize(connection); /* the probe stays: its answer may still tell */
    while ((pending = overdue(connection, now, &next)))
        time_out(pending);
    if (connection->stage == MCP_STAGE_LOST)
        return;
    want_timer(connection, next);
    want_timer(connection, connection->start_deadline_ms);
    want_timer(connection, connection->probe_deadline_ms);
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

static void plan_handshake(struct mcp_connection *connection, const struct mcp_connect *connect)
{
    const char *fixed = connection->server->provider->version, *offer = connect->version;
    connection->may_modern = !fixed || strcmp(fixed, MCP_MODERN_VERSION) == 0;
    connection->may_legacy = !fixed || !connection->may_modern;
    if (fixed)
        offer = fixed;
    if (!offer || !mcp_version_is_legacy(str_of(offer)))
        offer = MCP_LEGACY_VERSION;
    snprintf(connection->offer, sizeof connection->offer, "%s", offer);
}

static void begin(struct mcp_connection *connection, enum mcp_era wanted)
{
    enum mcp_era era = wanted == MCP_ERA_ANY ? connection->server->verdict : wanted;
    if (connection->may_legacy && (era == MCP_ERA_LEGACY || !connection->may_modern))
        initialize(connection);
    else
        discover(connection);
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
    plan_handshake(connection, connect);
    connection->start_deadline_ms = now_of(connection) + server->provider->start_timeout_ms;
    want_timer(connection, connection->start_deadline_ms);
    begin(connection, connect->wanted);
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
        end_with(connection->first, MCP_LOST, connection->why);
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
