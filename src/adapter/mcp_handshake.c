/* The handshake of a connection, both eras: which one the server speaks, what it can and who it is.
 *
 *   DISCOVER     server/discover. A valid answer: modern. Whatever else comes, nothing in time, or the end of the
 * process lead to INITIALIZE; but over HTTP a server that cannot be reached, or lets nobody in, has failed INITIALIZE
 * initialize. A revision that we speak: legacy. Else DISCOVER, if the server names the modern era or has answered the
 * probe after all
 *
 * A revision that the registry names is the only one that is tried. */
#include "adapter/mcp_parts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

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
        mcp_pending_end_as(late, MCP_CANCELLED, NULL);
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
            mcp_pending_send(pending);
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

static void discover(struct mcp_connection *connection)
{
    connection->may_modern = false;
    connection->probed = true;
    connection->stage = MCP_STAGE_DISCOVER;
    connection->era = MCP_ERA_MODERN;
    snprintf(connection->version, sizeof connection->version, "%s", MCP_MODERN_VERSION);
    if (connection->may_legacy && !connection->transport->ops->streams) {
        connection->probe_deadline_ms = (int64_t)uv_now(connection->hub->options.loop) + connection->hub->pace.probe_ms;
        mcp_connection_wake(connection, connection->probe_deadline_ms);
    }
    connection->probe = mcp_connection_request_now(
        connection,
        &(struct mcp_request_options){.method = "server/discover", .done = on_discover, .user = connection});
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
    connection->initialize = mcp_connection_request_now(
        connection, &(struct mcp_request_options){
                        .method = "initialize", .params = buf_str(&params), .done = on_initialize, .user = connection});
    buf_release(&params);
}

/* Ends what the handshake waits for without a word. */
static void drop_handshake(struct mcp_connection *connection)
{
    struct mcp_pending *pending;
    while ((pending = connection->probe ? connection->probe : connection->initialize)) {
        pending->done = NULL;
        mcp_pending_end_as(pending, MCP_LOST, NULL);
    }
}

/* Some servers end at the first request that is not initialize: started again, that is the first thing they hear. */
bool mcp_handshake_reopen(struct mcp_connection *connection)
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

/* ---- beginning ---- */

static void plan(struct mcp_connection *connection, const struct mcp_connect *connect)
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

void mcp_handshake_begin(struct mcp_connection *connection, const struct mcp_connect *connect)
{
    enum mcp_era wanted = connect->wanted;
    plan(connection, connect);
    enum mcp_era era = wanted == MCP_ERA_ANY ? connection->server->verdict : wanted;
    if (connection->may_legacy && (era == MCP_ERA_LEGACY || !connection->may_modern))
        initialize(connection);
    else
        discover(connection);
}

void mcp_handshake_probe_overdue(struct mcp_connection *connection)
{
    initialize(connection); /* the probe stays: its answer may still tell */
}
