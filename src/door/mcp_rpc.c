/* From a client's message to who works on it, and back.
 *
 *   message ─┬─ answer ────────► mcp_ask.c
 *            ├─ notification ──► cancelled: the request's cancel; others: mcp_forward.c
 *            └─ request ─► era, envelope ─► method ─► id: known? ─► handler … ─► mcp_reply ─► its sink
 *                             │              │           ├─ in flight, same message: joins it
 *                             └ refused ◄────┘           └─ answered, same message: the same answer (legacy)
 */
#include "base/log.h"
#include "base/mem.h"
#include "door/mcp_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

const struct json_limits mcp_door_limits = {
    .bytes_max = (size_t)4 * 1024 * 1024, .depth_max = 64, .values_max = 100000};

static const struct json no_capabilities = {.type = JSON_OBJECT};

/* ---- methods ---- */

#define IN(era)  (1u << (era))
#define IN_BOTH  (IN(MCP_ERA_LEGACY) | IN(MCP_ERA_MODERN))
#define NO_NEEDS NULL

static void ping(struct mcp_request *request)
{
    mcp_reply(request, STR("{}"));
}

struct method {
    const char *name;
    unsigned eras;
    const char *needs; /* a capability of the servers behind us without which the method does not exist */
    void (*handle)(struct mcp_request *request);
};

static const struct method methods[] = {
    {"initialize", IN(MCP_ERA_LEGACY), NO_NEEDS, mcp_initialize},
    {"ping", IN(MCP_ERA_LEGACY), NO_NEEDS, ping},
    {"server/discover", IN(MCP_ERA_MODERN), NO_NEEDS, mcp_discover},
    {"tools/call", IN_BOTH, NO_NEEDS, mcp_tools_call},
    {"tools/list", IN_BOTH, NO_NEEDS, mcp_tools_list},
    {"resources/list", IN_BOTH, "resources", mcp_forwarded},
    {"resources/templates/list", IN_BOTH, "resources", mcp_forwarded},
    {"resources/read", IN_BOTH, "resources", mcp_forwarded},
    {"resources/subscribe", IN(MCP_ERA_LEGACY), "resources.subscribe", mcp_forwarded},
    {"resources/unsubscribe", IN(MCP_ERA_LEGACY), "resources.subscribe", mcp_forwarded},
    {"prompts/list", IN_BOTH, "prompts", mcp_forwarded},
    {"prompts/get", IN_BOTH, "prompts", mcp_forwarded},
    {"completion/complete", IN_BOTH, "completions", mcp_forwarded},
    {"logging/setLevel", IN(MCP_ERA_LEGACY), NO_NEEDS, mcp_set_level},
    {"subscriptions/listen", IN(MCP_ERA_MODERN), NO_NEEDS, mcp_listen},
    {"tasks/get", IN_BOTH, NO_NEEDS, mcp_tasks},
    {"tasks/cancel", IN_BOTH, NO_NEEDS, mcp_tasks},
    {"tasks/list", IN(MCP_ERA_LEGACY), NO_NEEDS, mcp_tasks},
    {"tasks/result", IN(MCP_ERA_LEGACY), NO_NEEDS, mcp_tasks},
    {"tasks/update", IN(MCP_ERA_MODERN), NO_NEEDS, mcp_tasks},
};

static const struct method *find_method(const char *name, enum mcp_era era)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, name) == 0 && methods[i].eras & IN(era))
            return &methods[i];
    return NULL;
}

/* What is not offered does not exist. */
static bool offered(struct mcp_door *door, const struct method *method)
{
    if (method->handle == mcp_tasks)
        return door->settings.tasks;
    return !method->needs || mcp_forward_offers(door, method->needs);
}

/* ---- what a message says of itself ---- */

static const struct json *meta_of(const struct rpc_message *message)
{
    return message->params ? json_get(message->params, "_meta") : NULL;
}

bool mcp_is_modern(const struct rpc_message *message)
{
    if (message->kind != RPC_REQUEST)
        return false;
    return json_get(meta_of(message), MCP_META_VERSION) || strcmp(message->method, "server/discover") == 0 ||
           strcmp(message->method, "subscriptions/listen") == 0;
}

bool mcp_envelope_complete(const struct rpc_message *message, struct buf *missing)
{
    const struct json *meta = meta_of(message);
    const struct json *version = json_get(meta, MCP_META_VERSION), *can = json_get(meta, MCP_META_CAPABILITIES);
    bool has_version = version && version->type == JSON_STRING, has_can = can && can->type == JSON_OBJECT;
    if (has_version && has_can)
        return true;
    struct json_out out;
    json_out_init(&out, missing);
    json_out_object(&out);
    json_out_name(&out, "envelope"), json_out_object(&out);
    json_out_name(&out, "missing"), json_out_array(&out);
    if (!has_version)
        json_out_text(&out, MCP_META_VERSION);
    if (!has_can)
        json_out_text(&out, MCP_META_CAPABILITIES);
    json_out_end_array(&out);
    json_out_end_object(&out);
    json_out_end_object(&out);
    return false;
}

static bool can_at(const struct json *at, struct str path)
{
    if (at->type == JSON_OBJECT && path.n) {
        const struct json *whole = json_get_str(at, path);
        if (whole && can_at(whole, STR("")))
            return true;
        for (size_t i = 0; i < path.n; i++) {
            const struct json *next = path.p[i] == '.' ? json_get_str(at, (struct str){path.p, i}) : NULL;
            if (next && can_at(next, (struct str){path.p + i + 1, path.n - i - 1}))
                return true;
        }
        return false;
    }
    return path.n == 0 && (at->type == JSON_OBJECT || (at->type == JSON_BOOL && at->boolean));
}

bool mcp_client_can(const struct json *capabilities, const char *path)
{
    if (!capabilities)
        return false;
    if (can_at(capabilities, str_of(path)))
        return true;
    const struct json *elicitation =
        strcmp(path, "elicitation.form") == 0 ? json_get(capabilities, "elicitation") : NULL;
    return elicitation && elicitation->type == JSON_OBJECT && !json_get(elicitation, "url");
}

/* ---- requests ---- */

static struct str copy_fact(struct mcp_request *request, struct str fact)
{
    return arena_str(&request->arena, fact);
}

static void take_facts(struct mcp_request *request, const struct mcp_facts *facts)
{
    if (!facts)
        return;
    request->facts = (struct mcp_facts){
        .http = facts->http,
        .idempotency_key = copy_fact(request, facts->idempotency_key),
        .run_id = copy_fact(request, facts->run_id),
        .step_id = copy_fact(request, facts->step_id),
        .traceparent = copy_fact(request, facts->traceparent),
    };
}

static struct mcp_request *request_new(struct mcp_session *session, struct mcp_sink *sink, struct arena *arena,
                                       const struct rpc_message *message, const struct mcp_facts *facts)
{
    struct mcp_request *request = mem_zero(sizeof *request);
    request->session = session;
    request->sink = sink;
    request->arena = *arena;
    arena_init(arena);
    request->message = *message;
    take_facts(request, facts);
    request->capabilities = &no_capabilities;
    request->log_level = -1;
    request->era = session->ephemeral || mcp_is_modern(message) ? MCP_ERA_MODERN : MCP_ERA_LEGACY;
    request->version = request->era == MCP_ERA_MODERN ? MCP_MODERN_VERSION : session->version;
    request->number = ++session->door->next_number;
    return request;
}

static void request_free(struct mcp_request *request)
{
    arena_release(&request->arena);
    free(request);
}

/* Out of the session; who worked on it lets go. */
static void retire(struct mcp_request *request)
{
    if (request->listed) {
        struct mcp_session *session = request->session;
        *request->at = request->next;
        if (request->next)
            request->next->at = request->at;
        session->request_count--;
        request->listed = false;
        if (request->key)
            map_remove(&session->by_id, request->key);
    }
    void (*release)(struct mcp_request * request) = request->release;
    request->release = NULL;
    if (release)
        release(request);
}

/* The next of the request's sinks, let go before it is told: it may go away within, and the others with it. */
static struct mcp_sink *next_sink(struct mcp_request *request)
{
    struct mcp_sink *sink = request->sink;
    if (sink) {
        request->sink = sink->older;
        sink->older = NULL;
        sink->request = NULL;
    }
    return sink;
}

static void finish(struct mcp_request *request, struct str text, int http_status)
{
    retire(request);
    for (struct mcp_sink *sink = next_sink(request); sink; sink = next_sink(request))
        sink->ops->message(sink, text, true, http_status);
    request_free(request);
}

void mcp_request_drop(struct mcp_request *request)
{
    retire(request);
    for (struct mcp_sink *sink = next_sink(request); sink; sink = next_sink(request))
        sink->ops->drop(sink);
    request_free(request);
}

static void cancel(struct mcp_request *request)
{
    struct mcp_door *door = request->session->door;
    uint64_t session = request->session->number, number = request->number;
    request->cancelled = true;
    if (request->cancel)
        request->cancel(request);
    request = mcp_request_by_number(door, session, number);
    if (request)
        mcp_request_drop(request);
}

void mcp_request_gone(struct mcp_sink *sink, bool cancels)
{
    struct mcp_request *request = sink->request;
    if (!request)
        return;
    struct mcp_sink **at = &request->sink;
    while (*at != sink)
        at = &(*at)->older;
    *at = sink->older;
    sink->older = NULL;
    sink->request = NULL;
    if (request->sink || !request->listed) /* others wait, or it is being answered right now */
        return;
    if (cancels)
        cancel(request);
    else
        mcp_request_drop(request);
}

struct mcp_request *mcp_request_by_number(struct mcp_door *door, uint64_t session, uint64_t call)
{
    struct mcp_session *found = mcp_session_by_number(door, session);
    for (struct mcp_request *request = found ? found->requests : NULL; request; request = request->next)
        if (request->number == call)
            return request;
    return NULL;
}

/* ---- answers ---- */

static void tell_delivery(struct mcp_request *request)
{
    struct operation op = {.key_source = request->delivery.key_source, .state = request->delivery.state};
    memcpy(op.id, request->delivery.operation, sizeof op.id);
    for (struct mcp_sink *sink = request->sink; sink; sink = sink->older)
        if (sink->ops->delivers)
            sink->ops->delivers(sink, &op);
}

void mcp_request_set_delivery(struct mcp_request *request, const struct operation *op)
{
    if (op->delivered || !op->id[0])
        return;
    request->delivery.key_source = op->key_source;
    request->delivery.state = op->state;
    memcpy(request->delivery.operation, op->id, sizeof op->id);
    tell_delivery(request);
}

void mcp_reply(struct mcp_request *request, struct str result)
{
    struct buf text;
    buf_init(&text, 0);
    rpc_write_result(&text, request->message.id, result);
    if (request->remembered)
        mcp_seen_answered(request->session->seen, request->key, buf_str(&text), &request->delivery);
    finish(request, buf_str(&text), 200);
    buf_release(&text);
}

__attribute__((format(printf, 5, 0))) static void reply_error(struct mcp_request *request, int http_status,
                                                              int64_t code, struct str data, const char *format,
                                                              va_list arguments)
{
    /* whole, however long: what a server behind us says is passed on as it is */
    struct buf text;
    va_list again;
    va_copy(again, arguments);
    int bytes = vsnprintf(NULL, 0, format, arguments);
    char *words = arena_alloc(&request->arena, (size_t)(bytes > 0 ? bytes : 0) + 1);
    words[0] = '\0';
    vsnprintf(words, (size_t)(bytes > 0 ? bytes : 0) + 1, format, again);
    va_end(again);
    buf_init(&text, 0);
    rpc_write_error(&text, request->message.id, code, str_of(words), data);
    finish(request, buf_str(&text), http_status);
    buf_release(&text);
}

static int status_of(enum mcp_era era, int64_t code)
{
    if (era != MCP_ERA_MODERN)
        return 200;
    switch (code) {
    case RPC_METHOD_NOT_FOUND: return 404;
    case MCP_HEADER_MISMATCH:
    case MCP_MISSING_CAPABILITY:
    case MCP_UNSUPPORTED_VERSION: return 400;
    default: return 200;
    }
}

void mcp_reply_error(struct mcp_request *request, int64_t code, struct str data, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reply_error(request, status_of(request->era, code), code, data, format, arguments);
    va_end(arguments);
}

void mcp_reply_error_status(struct mcp_request *request, int http_status, int64_t code, struct str data,
                            const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reply_error(request, http_status, code, data, format, arguments);
    va_end(arguments);
}

/* ---- before the answer ---- */

void mcp_notify(struct mcp_request *request, const char *method, struct str params)
{
    if (!request->sink || request->cancelled)
        return;
    struct buf text;
    buf_init(&text, 0);
    rpc_write_notification(&text, method, params);
    request->sink->ops->message(request->sink, buf_str(&text), false, 200);
    buf_release(&text);
}

void mcp_progress(struct mcp_request *request, struct str progress, struct str total, struct str message)
{
    if (!request->progress_token.p || !request->sink)
        return;
    request->progress_told++;
    struct buf params;
    struct json_out out;
    buf_init(&params, 0);
    json_out_init(&out, &params);
    json_out_object(&out);
    json_out_name(&out, "progressToken"), json_out_raw(&out, request->progress_token);
    json_out_name(&out, "progress"), json_out_raw(&out, progress);
    if (total.p)
        json_out_name(&out, "total"), json_out_raw(&out, total);
    if (message.p)
        json_out_name(&out, "message"), json_out_str(&out, message);
    json_out_end_object(&out);
    mcp_notify(request, "notifications/progress", buf_str(&params));
    buf_release(&params);
}

const char *const mcp_log_levels[8] = {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

int mcp_log_level(struct str name)
{
    for (int i = 0; i < 8; i++)
        if (str_is(name, mcp_log_levels[i]))
            return i;
    return -1;
}

void mcp_log(struct mcp_request *request, int level, const char *logger, struct str data)
{
    assert(level >= 0 && level < 8);
    if (request->log_level < 0 || level < request->log_level)
        return;
    struct buf params;
    struct json_out out;
    buf_init(&params, 0);
    json_out_init(&out, &params);
    json_out_object(&out);
    json_out_member_text(&out, "level", mcp_log_levels[level]);
    json_out_member_text(&out, "logger", logger);
    json_out_name(&out, "data"), json_out_raw(&out, data);
    json_out_end_object(&out);
    mcp_notify(request, "notifications/message", buf_str(&params));
    buf_release(&params);
}

bool mcp_legacy_notify(struct mcp_session *session, const char *method, struct str params)
{
    if (!session->initialized || !session->send)
        return false;
    struct buf text;
    buf_init(&text, 0);
    rpc_write_notification(&text, method, params);
    bool sent = session->send(session, session->send_user, buf_str(&text));
    buf_release(&text);
    return sent;
}

void mcp_tell_list_changed(struct mcp_door *door, const char *kind)
{
    char method[64];
    snprintf(method, sizeof method, "notifications/%s/list_changed", kind);
    for (struct mcp_session *session = door->sessions; session; session = session->next)
        mcp_legacy_notify(session, method, STR_NONE);
    mcp_forward_list_changed(door, kind);
}

/* ---- receiving ---- */

/* The request says which revision it is of, and what its client can. False: refused. */
static bool read_modern(struct mcp_request *request)
{
    struct buf data;
    buf_init(&data, 0);
    bool good = mcp_envelope_complete(&request->message, &data);
    const char *text = arena_copy_str(&request->arena, buf_str(&data));
    buf_release(&data);
    if (!good) {
        mcp_reply_error_status(request, 400, RPC_INVALID_PARAMS, str_of(text),
                               "params._meta must hold \"" MCP_META_VERSION "\" (a string) and \"" MCP_META_CAPABILITIES
                               "\" (an object)");
        return false;
    }
    struct str version = json_get_text(request->meta, MCP_META_VERSION);
    if (!str_is(version, MCP_MODERN_VERSION)) {
        buf_init(&data, 0);
        buf_add_text(&data, "{\"supported\":[\"" MCP_MODERN_VERSION "\"],\"requested\":");
        json_write_string(&data, version);
        buf_add_char(&data, '}');
        text = arena_copy_str(&request->arena, buf_str(&data));
        buf_release(&data);
        mcp_reply_error(request, MCP_UNSUPPORTED_VERSION, str_of(text),
                        "this protocol version is not supported here (stateless: " MCP_MODERN_VERSION
                        "; with initialize: 2025-11-25, 2025-06-18, 2025-03-26)");
        return false;
    }
    request->capabilities = json_get(request->meta, MCP_META_CAPABILITIES);
    request->log_level = mcp_log_level(json_get_text(request->meta, MCP_META_LOG_LEVEL));
    return true;
}

static void read_legacy(struct mcp_request *request)
{
    if (request->session->capabilities)
        request->capabilities = request->session->capabilities;
    request->log_level = request->session->log_level;
}

static void read_token(struct mcp_request *request)
{
    const struct json *token = json_get(request->meta, "progressToken");
    if (!token || (token->type != JSON_STRING && token->type != JSON_NUMBER))
        return;
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, token);
    request->progress_token = arena_str(&request->arena, buf_str(&text));
    buf_release(&text);
}

/* False: refused. */
static bool read_envelope(struct mcp_request *request)
{
    request->meta = meta_of(&request->message);
    if (request->meta && request->meta->type != JSON_OBJECT) {
        mcp_reply_error_status(request, 400, RPC_INVALID_PARAMS, STR_NONE, "params._meta is not an object");
        return false;
    }
    if (request->era == MCP_ERA_MODERN) {
        if (!read_modern(request))
            return false;
    } else {
        read_legacy(request);
    }
    read_token(request);
    return true;
}

/* NULL: refused. What does not exist is said first: clients that probe for an era go by that. */
static const struct method *choose_method(struct mcp_request *request)
{
    const struct method *method = find_method(request->message.method, request->era);
    if (!method || !offered(request->session->door, method)) {
        mcp_reply_error(request, RPC_METHOD_NOT_FOUND, STR_NONE, "there is no method \"%s\" here",
                        request->message.method);
        return NULL;
    }
    bool first = method->handle == mcp_initialize || method->handle == ping;
    if (request->era == MCP_ERA_LEGACY && !request->session->initialized && !first) {
        mcp_reply_error_status(request, 400, RPC_INVALID_REQUEST, STR_NONE,
                               "this session is not initialized: \"initialize\" must come before \"%s\"",
                               request->message.method);
        return NULL;
    }
    return method;
}

static void digest_request(struct mcp_request *request)
{
    struct buf text;
    buf_init(&text, 0);
    if (request->message.params)
        json_canonical(&text, request->message.params);
    struct str parts[] = {str_of(request->message.method), buf_str(&text)};
    request->digest = digest_parts(parts, 2);
    buf_release(&text);
}

static void refuse_id(struct mcp_request *request, const char *why)
{
    mcp_reply_error_status(request, 400, RPC_INVALID_REQUEST, STR_NONE, "the id %.*s %s", STR_ARG(request->message.id),
                           why);
}

/* Over HTTP every answer has a stream of its own, and a large client sends id 1 for every call (case S56): there an id
 * that was used for something else names nothing. On one stream nobody could tell the answers apart. */
static bool ids_must_differ(const struct mcp_request *request)
{
    return request->session->stdio;
}

/* The same id while its request is being worked on. False: it is another call after all, without a name. */
static bool meet(struct mcp_request *request, struct mcp_request *other)
{
    bool legacy = request->era == MCP_ERA_LEGACY && other->era == MCP_ERA_LEGACY;
    if (!legacy || !other->remembered || !digest_equal(&request->digest, &other->digest)) {
        if (legacy && !ids_must_differ(request)) {
            request->session->ids_reused = true;
            return false;
        }
        refuse_id(request, "belongs to a request that is still being worked on");
        return true;
    }
    struct mcp_sink *sink = request->sink;
    sink->request = other;
    sink->older = other->sink;
    other->sink = sink;
    request->sink = NULL;
    request_free(request);
    return true;
}

/* Legacy ids are never used again within a session, says MCP. True: it was answered from memory or refused. */
static bool seen_before(struct mcp_request *request)
{
    struct str answer;
    switch (mcp_seen_note(request->session->seen, request->key, &request->digest, &answer, &request->delivery)) {
    case MCP_SEEN_NEVER: return false;
    case MCP_SEEN_SAME:
        if (!answer.p)
            return false;
        answer = arena_str(&request->arena, answer);
        if (request->delivery.operation[0])
            tell_delivery(request);
        finish(request, answer, 200);
        return true;
    case MCP_SEEN_DIFFERENT:
        if (!ids_must_differ(request)) {
            request->session->ids_reused = true;
            return false;
        }
        refuse_id(request, "was used in this session for another request");
        return true;
    }
    return false;
}

/* Whether the session takes it: which call it is, and how many there are. False: it was answered, joined or refused. */
static bool admit(struct mcp_request *request, const struct method *method)
{
    struct mcp_session *session = request->session;
    bool remembered = request->era == MCP_ERA_LEGACY && method->handle != ping && !session->ids_reused;
    if (remembered)
        digest_request(request);
    request->key = session->ephemeral ? NULL : arena_copy_str(&request->arena, request->message.id);
    struct mcp_request *other = request->key ? map_get(&session->by_id, request->key) : NULL;
    if (other && meet(request, other))
        return false;
    if (other) {
        request->key = NULL;
        remembered = false;
    }
    if (session->request_count >= session->door->settings.calls_max) {
        mcp_reply_error(request, MCP_BUSY, STR_NONE,
                        "%zu requests of this session are being worked on, more are not taken; nothing was done",
                        session->request_count);
        return false;
    }
    if (remembered && seen_before(request))
        return false;
    request->remembered = remembered && !session->ids_reused;
    return true;
}

static void enlist(struct mcp_request *request)
{
    struct mcp_session *session = request->session;
    request->next = session->requests;
    request->at = &session->requests;
    if (request->next)
        request->next->at = &request->next;
    session->requests = request;
    session->request_count++;
    request->listed = true;
    request->sink->request = request;
    if (request->key)
        map_put(&session->by_id, request->key, request);
}

static void take_request(struct mcp_session *session, struct mcp_sink *sink, struct arena *arena,
                         const struct rpc_message *message, const struct mcp_facts *facts)
{
    struct mcp_request *request = request_new(session, sink, arena, message, facts);
    if (!read_envelope(request))
        return;
    const struct method *method = choose_method(request);
    if (!method || !admit(request, method))
        return;
    enlist(request);
    method->handle(request);
}

static void cancelled(struct mcp_session *session, const struct rpc_message *message)
{
    const struct json *id = message->params ? json_get(message->params, "requestId") : NULL;
    if (!id || (id->type != JSON_STRING && id->type != JSON_NUMBER))
        return;
    struct buf key;
    buf_init(&key, 0);
    if (id->type == JSON_NUMBER)
        json_canonical_number(&key, id->text);
    else
        json_write_string(&key, id->text);
    struct mcp_request *request = map_get(&session->by_id, buf_str(&key).p);
    buf_release(&key);
    if (request)
        cancel(request);
}

static void take_notification(struct mcp_session *session, const struct rpc_message *message)
{
    if (strcmp(message->method, "notifications/cancelled") == 0)
        cancelled(session, message);
    else if (strcmp(message->method, "notifications/initialized") != 0)
        mcp_forward_notice(session, message);
}

static enum mcp_received fault(struct mcp_sink *sink, int code, struct str id, const char *words)
{
    struct buf text;
    buf_init(&text, 0);
    rpc_write_error(&text, id, code, str_of(words), STR_NONE);
    if (sink)
        sink->ops->message(sink, buf_str(&text), true, 400);
    buf_release(&text);
    return MCP_RECEIVED_FAULT;
}

static enum mcp_received take_answer(struct mcp_session *session, struct mcp_sink *sink,
                                     const struct rpc_message *message)
{
    if (session->ephemeral)
        return fault(sink, RPC_INVALID_REQUEST, STR_NONE, "nothing was asked that this could answer");
    if (!mcp_ask_answered(session, message) && log_begin(LOG_DEBUG, "mcp_answer_to_nothing")) {
        log_int("session", (int64_t)session->number);
        log_end();
    }
    return MCP_RECEIVED_NOTICE;
}

enum mcp_received mcp_receive_message(struct mcp_session *session, struct mcp_sink *sink, struct arena *arena,
                                      const struct rpc_message *message, const struct mcp_facts *facts)
{
    struct arena taken = *arena;
    enum mcp_received received = MCP_RECEIVED_NOTICE;
    arena_init(arena);
    if (sink) {
        sink->request = NULL;
        sink->older = NULL;
    }
    session->used_ms = (int64_t)uv_now(session->door->loop);
    switch (message->kind) {
    case RPC_REQUEST:
        assert(sink);
        take_request(session, sink, &taken, message, facts);
        received = MCP_RECEIVED_REQUEST;
        break;
    case RPC_NOTIFICATION: take_notification(session, message); break;
    case RPC_RESULT:
    case RPC_ERROR: received = take_answer(session, sink, message); break;
    }
    arena_release(&taken);
    return received;
}

enum mcp_received mcp_receive(struct mcp_session *session, struct mcp_sink *sink, struct str text,
                              const struct mcp_facts *facts)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault what = {0};
    enum mcp_received received;
    arena_init(&arena);
    if (sink) {
        sink->request = NULL;
        sink->older = NULL;
    }
    if (rpc_read(&arena, text, &mcp_door_limits, &message, &what))
        received = mcp_receive_message(session, sink, &arena, &message, facts);
    else
        received = fault(sink, what.code, what.id, what.err.text);
    arena_release(&arena);
    return received;
}
