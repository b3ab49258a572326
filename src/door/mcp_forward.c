/* Pass-through of requests that one server answers (mcp_forward.h): tools/call of forwarded tools, resources/read,
 * prompts/get, completion/complete. Lists are in mcp_forward_list.c, subscriptions in mcp_forward_listen.c.
 *
 *   begin ─► next candidate ─► errand ─► result ──► client
 *                 ▲                 ├──► "no such thing", others may know it ──► next candidate
 *                 └─────────────────┘
 *                                   └──► input_required of a modern server, legacy client: its questions become
 *                                        requests to the client, the answers a next round
 */
#include "door/mcp_forward.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* One question of input_required, put to a legacy client. */
struct round_question {
    struct passage *passage;
    struct str key; /* JSON text */
    char *id;       /* of our request to the client, NULL = answered */
};

/* A request on its way; lives in the request's arena and as long as the request. */
struct passage {
    struct mcp_request *request;
    struct errand *errand;
    const char *servers[FORWARD_SERVERS_MAX]; /* candidates, in order */
    size_t server_count, server_at;
    struct era_params change;
    struct rpc_message *refusal; /* first "no such thing" of several servers */
    enum route_kind learn;       /* what a success tells */
    struct str learn_name;       /* absent = nothing */
    /* legacy client, modern server */
    unsigned rounds;
    struct round_question *questions;
    size_t question_count, waiting;
    struct buf responses;
    bool failed; /* a question could not be answered */
};

static void passage_next(struct passage *passage);

/* ---- answers ---- */

void forward_reply_no_method(struct mcp_request *request)
{
    mcp_reply_error(request, RPC_METHOD_NOT_FOUND, STR_NONE, "Method not found: %s", request->message.method);
}

void forward_reply_error(struct mcp_request *request, const struct rpc_message *error)
{
    struct str data = json_to_text(&request->arena, error->data);
    int64_t code = era_error_code(request, error->code, error->data);
    const struct json *uri = json_get(request->message.params, "uri");
    if (code != error->code && !error->data && uri && uri->type == JSON_STRING) {
        struct buf buf;
        buf_init(&buf, 0);
        buf_add_text(&buf, "{\"uri\":");
        json_write(&buf, uri);
        buf_add_char(&buf, '}');
        data = arena_str(&request->arena, buf_str(&buf));
        buf_release(&buf);
    }
    mcp_reply_error(request, code, data, "%.*s", STR_ARG(error->message));
}

static bool is_tool_call(const struct mcp_request *request)
{
    return strcmp(request->message.method, "tools/call") == 0;
}

/* A model reads what a tool answers; what stops the protocol it often does not. */
static void reply_unreachable(struct mcp_request *request, const char *text)
{
    if (!is_tool_call(request)) {
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE, "%s", text);
        return;
    }
    struct buf buf;
    buf_init(&buf, 0);
    buf_add_text(&buf, "{\"content\":[{\"type\":\"text\",\"text\":");
    json_write_string(&buf, str_of(text));
    buf_add_text(&buf, request->era == MCP_ERA_LEGACY ? "}],\"isError\":true}"
                                                      : "}],\"isError\":true,\"resultType\":\"complete\"}");
    mcp_reply(request, buf_str(&buf));
    buf_release(&buf);
}

void forward_reply_lost(struct mcp_request *request, const char *server, const struct mcp_outcome *outcome)
{
    static const char *const words[] = {[MCP_ANSWERED] = "answered",
                                        [MCP_LOST] = "did not answer",
                                        [MCP_TIMED_OUT] = "did not answer in time",
                                        [MCP_CANCELLED] = "was told to stop",
                                        [MCP_UNREADABLE] = "gave an answer that cannot be read"};
    reply_unreachable(request, arena_printf(&request->arena, "The server \"%s\" %s%s%s", server, words[outcome->end],
                                            outcome->text ? ": " : ".", outcome->text ? outcome->text : ""));
}

/* ---- a modern server asks a legacy client ---- */

static void round_reset(struct passage *passage)
{
    for (size_t i = 0; i < passage->question_count; i++) {
        struct round_question *question = &passage->questions[i];
        if (!question->id)
            continue;
        mcp_ask_withdraw(passage->request->session, str_of(question->id));
        free(question->id);
        question->id = NULL;
    }
    passage->question_count = passage->waiting = 0;
}

static void round_fail(struct passage *passage, int64_t code, struct str text)
{
    round_reset(passage);
    mcp_reply_error(passage->request, code, STR_NONE, "%.*s", STR_ARG(text));
}

static void round_send(struct passage *passage)
{
    bool any = passage->responses.n > 1;
    buf_add_char(&passage->responses, '}');
    passage->change.responses = any ? arena_str(&passage->request->arena, buf_str(&passage->responses)) : STR_NONE;
    passage_next(passage);
}

static void round_add(struct passage *passage, struct str key, struct str value)
{
    buf_add_char(&passage->responses, passage->responses.n > 1 ? ',' : ' ');
    buf_add_str(&passage->responses, key);
    buf_add_char(&passage->responses, ':');
    buf_add_str(&passage->responses, value);
}

static void round_answered(void *user, const struct rpc_message *message)
{
    struct round_question *question = user;
    struct passage *passage = question->passage;
    free(question->id);
    question->id = NULL;
    passage->waiting--;
    if (!message) {
        round_fail(passage, RPC_INTERNAL_ERROR, STR("The client did not answer a question of the server"));
        return;
    }
    if (message->kind == RPC_ERROR) {
        round_fail(passage, message->code, message->message);
        return;
    }
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, message->result);
    round_add(passage, question->key, buf_str(&text));
    buf_release(&text);
    if (passage->waiting == 0)
        round_send(passage);
}

/* Puts one of the server's questions to the client. */
static bool round_ask(struct passage *passage, const struct json_member *member)
{
    struct mcp_request *request = passage->request;
    struct round_question *question = &passage->questions[passage->question_count];
    struct str method = json_get_text(&member->value, "method");
    struct buf key;
    if (!method.p || !ask_is_possible(request->capabilities, method, json_get(&member->value, "params")))
        return false;
    buf_init(&key, 0);
    json_write_string(&key, member->name);
    *question = (struct round_question){.passage = passage, .key = arena_str(&request->arena, buf_str(&key))};
    buf_release(&key);
    struct str params = json_to_text(&request->arena, json_get(&member->value, "params"));
    struct str id;
    if (!mcp_ask(request->session, request, arena_copy_str(&request->arena, method), params, round_answered, question,
                 &id))
        return false;
    question->id = mem_copy_bytes(id.p, id.n);
    passage->question_count++;
    passage->waiting++;
    return true;
}

/* input_required for a client that knows nothing of it. */
static void round_begin(struct passage *passage, const struct json *result)
{
    struct mcp_request *request = passage->request;
    const struct json *requests = json_get(result, "inputRequests"), *state = json_get(result, "requestState");
    uint32_t count = requests && requests->type == JSON_OBJECT ? requests->count : 0;
    if (++passage->rounds > FORWARD_ROUNDS_MAX || count > FORWARD_ROUNDS_MAX) {
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE,
                        "The server asks again and again: given up after %d rounds", FORWARD_ROUNDS_MAX);
        return;
    }
    passage->change.state = json_to_text(&request->arena, state);
    passage->change.responses = STR_NONE;
    passage->server_at--; /* the same server again */
    buf_reset(&passage->responses);
    buf_add_char(&passage->responses, '{');
    passage->questions = arena_zero(&request->arena, (count + 1) * sizeof *passage->questions);
    passage->question_count = passage->waiting = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!round_ask(passage, &requests->members[i])) {
            round_fail(passage, RPC_INTERNAL_ERROR, STR("The server asks what this client cannot answer"));
            return;
        }
    if (passage->waiting == 0)
        round_send(passage);
}

/* ---- the way down ---- */

static void passage_release(struct mcp_request *request)
{
    struct passage *passage = request->user;
    round_reset(passage);
    if (passage->errand)
        errand_abandon(passage->errand, "the client does not want the answer any more");
    passage->errand = NULL;
    buf_release(&passage->responses);
}

static struct passage *passage_new(struct mcp_request *request)
{
    struct passage *passage = arena_zero(&request->arena, sizeof *passage);
    passage->request = request;
    buf_init(&passage->responses, MCP_MESSAGE_BYTES_MAX);
    request->user = passage;
    request->release = passage_release;
    return passage;
}

/* The server says that it has no such thing. */
static bool is_refusal(const struct rpc_message *error)
{
    return error->code == MCP_RESOURCE_NOT_FOUND || error->code == RPC_INVALID_PARAMS ||
           error->code == RPC_METHOD_NOT_FOUND;
}

static void keep_refusal(struct passage *passage, const struct rpc_message *error)
{
    struct arena *arena = &passage->request->arena;
    if (passage->refusal && passage->refusal->code != RPC_METHOD_NOT_FOUND)
        return;
    passage->refusal = arena_zero(arena, sizeof *passage->refusal);
    passage->refusal->code = error->code;
    passage->refusal->message = arena_str(arena, error->message);
    passage->refusal->data = error->data ? json_copy(arena, error->data) : NULL;
}

static void passage_error(struct passage *passage, const struct rpc_message *error)
{
    if (passage->server_count > 1 && is_refusal(error)) {
        keep_refusal(passage, error);
        passage_next(passage);
    } else if (error->code == FORWARD_URL_REQUIRED && passage->request->era != MCP_ERA_LEGACY) {
        ask_urls(passage->request, error);
    } else {
        forward_reply_error(passage->request, error);
    }
}

static void passage_done(struct errand *errand, const struct mcp_outcome *outcome)
{
    struct passage *passage = errand->user;
    struct mcp_request *request = passage->request;
    const char *server = passage->servers[passage->server_at - 1];
    passage->errand = NULL;
    if (outcome->end != MCP_ANSWERED) {
        forward_reply_lost(request, server, outcome);
        return;
    }
    if (outcome->message->kind == RPC_ERROR) {
        passage_error(passage, outcome->message);
        return;
    }
    const struct json *result = outcome->message->result;
    if (request->era == MCP_ERA_LEGACY && str_is(json_get_text(result, "resultType"), "input_required")) {
        round_begin(passage, result);
        return;
    }
    if (passage->learn_name.p)
        route_learn(passing_of(request->session->door), passage->learn, passage->learn_name, server);
    struct buf text;
    buf_init(&text, 0);
    era_write_result(&text, request, result);
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}

static bool has_later_round(const struct mcp_request *request)
{
    return json_get(request->message.params, "requestState") != NULL;
}

static void passage_next(struct passage *passage)
{
    struct mcp_request *request = passage->request;
    struct err err = {0};
    while (passage->server_at < passage->server_count) {
        const char *name = passage->servers[passage->server_at++];
        struct mcp_server *server =
            request->session->door->hub ? mcp_hub_find(request->session->door->hub, name) : NULL;
        struct lane *lane = server ? lane_for(request, server, &err) : NULL;
        if (!server)
            err_set(&err, ERR_UNAVAILABLE, "server \"%s\" is not configured any more", name);
        if (!lane)
            continue;
        bool modern = mcp_link_era(lane->link) != MCP_ERA_LEGACY;
        if (!modern && request->era != MCP_ERA_LEGACY && has_later_round(request)) {
            mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "requestState is unknown, used already or expired");
            return;
        }
        struct buf params;
        buf_init(&params, 0);
        era_write_params(&params, request, modern, &passage->change);
        passage->errand =
            errand_send(lane, request, request->message.method, buf_str(&params), passage_done, passage, &err);
        buf_release(&params);
        if (passage->errand)
            return;
    }
    if (passage->refusal)
        forward_reply_error(request, passage->refusal);
    else
        reply_unreachable(request, arena_copy_text(&request->arena, err.text));
}

void mcp_forward_tool(struct mcp_request *request, const struct tool *tool, const struct mcp_forward_target *target)
{
    (void)tool;
    struct passage *passage = passage_new(request);
    passage->change.name = arena_copy_text(&request->arena, target->remote_name);
    passage->servers[passage->server_count++] = arena_copy_text(&request->arena, mcp_server_info(target->server).name);
    passage_next(passage);
}

/* ---- servers ---- */

static bool offers(const struct mcp_server_info *info, const char *path)
{
    const struct json *at = info->capabilities;
    if (!at)
        return info->state == MCP_SERVER_STARTING;
    char name[64];
    for (const char *dot; at && (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        at = json_get(at, name);
    }
    at = json_get(at, path);
    return at && (at->type != JSON_BOOL || at->boolean);
}

size_t forward_servers(struct mcp_door *door, const char *capability, struct mcp_server **out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; door->hub && i < mcp_hub_server_count(door->hub) && n < max; i++) {
        struct mcp_server *server = mcp_hub_server_at(door->hub, i);
        struct mcp_server_info info = mcp_server_info(server);
        if (info.forward && (!capability || offers(&info, capability)))
            out[n++] = server;
    }
    return n;
}

bool mcp_forward_offers(struct mcp_door *door, const char *capability)
{
    struct mcp_server *one;
    return forward_servers(door, capability, &one, 1) > 0;
}

/* ---- requests that name something ---- */

static void add_candidate(struct passage *passage, const char *server)
{
    for (size_t i = 0; i < passage->server_count; i++)
        if (strcmp(passage->servers[i], server) == 0)
            return;
    if (passage->server_count < FORWARD_SERVERS_MAX)
        passage->servers[passage->server_count++] = arena_copy_text(&passage->request->arena, server);
}

/* The server that is known to have it, or all that may, in the order of their names. */
static void passage_by_route(struct mcp_request *request, const char *capability, enum route_kind kind, struct str name)
{
    struct mcp_door *door = request->session->door;
    struct mcp_server *servers[FORWARD_SERVERS_MAX];
    size_t count = forward_servers(door, capability, servers, FORWARD_SERVERS_MAX);
    if (count == 0) {
        forward_reply_no_method(request);
        return;
    }
    struct passage *passage = passage_new(request);
    const char *known = count > 1 ? route_find(passing_of(door), kind, name) : NULL;
    for (size_t i = 0; i < count; i++) {
        const char *server = mcp_server_info(servers[i]).name;
        if (!known || strcmp(server, known) == 0)
            add_candidate(passage, server);
    }
    for (size_t i = 0; passage->server_count == 0 && i < count; i++) /* what was known is no longer so */
        add_candidate(passage, mcp_server_info(servers[i]).name);
    if (count > 1 && kind == ROUTE_URI) {
        passage->learn = kind;
        passage->learn_name = name;
    }
    passage_next(passage);
}

static bool has_prefix(struct str name, const char *prefix)
{
    size_t n = strlen(prefix);
    return name.n >= n && memcmp(name.p, prefix, n) == 0;
}

/* Prompts carry the prefix of their server. Several servers with the same one: whoever listed it, else all in order. */
static void passage_by_prompt(struct mcp_request *request, const char *capability, struct str name, bool in_ref)
{
    struct mcp_door *door = request->session->door;
    struct mcp_server *servers[FORWARD_SERVERS_MAX];
    size_t count = forward_servers(door, capability, servers, FORWARD_SERVERS_MAX);
    if (count == 0) {
        forward_reply_no_method(request);
        return;
    }
    const char *known = count > 1 ? route_find(passing_of(door), ROUTE_PROMPT, name) : NULL;
    const char *prefix = NULL;
    for (size_t i = 0; i < count; i++) {
        struct mcp_server_info info = mcp_server_info(servers[i]);
        if (known ? strcmp(info.name, known) == 0
                  : has_prefix(name, info.prefix) && (!prefix || strlen(info.prefix) > strlen(prefix)))
            prefix = info.prefix;
    }
    struct passage *passage = passage_new(request);
    for (size_t i = 0; prefix && i < count; i++) {
        struct mcp_server_info info = mcp_server_info(servers[i]);
        if (known ? strcmp(info.name, known) == 0 : strcmp(info.prefix, prefix) == 0)
            add_candidate(passage, info.name);
    }
    if (!prefix || passage->server_count == 0) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "Unknown prompt: %.*s", STR_ARG(name));
        return;
    }
    struct str rest = {name.p + strlen(prefix), name.n - strlen(prefix)};
    if (in_ref)
        passage->change.prompt = arena_str(&request->arena, rest);
    else
        passage->change.name = arena_copy_str(&request->arena, rest);
    passage_next(passage);
}

static void pass_read(struct mcp_request *request)
{
    struct str uri = json_get_text(request->message.params, "uri");
    if (!uri.p)
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.uri is missing: a text was expected");
    else
        passage_by_route(request, "resources", ROUTE_URI, uri);
}

static void pass_prompt(struct mcp_request *request)
{
    struct str name = json_get_text(request->message.params, "name");
    if (!name.p || memchr(name.p, '\0', name.n))
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.name is missing: a text was expected");
    else
        passage_by_prompt(request, "prompts", name, false);
}

static void pass_completion(struct mcp_request *request)
{
    const struct json *ref = json_get(request->message.params, "ref");
    struct str type = json_get_text(ref, "type"), name = json_get_text(ref, "name"), uri = json_get_text(ref, "uri");
    if (str_is(type, "ref/prompt") && name.p && !memchr(name.p, '\0', name.n))
        passage_by_prompt(request, "completions", name, true);
    else if (str_is(type, "ref/resource") && uri.p)
        passage_by_route(request, "completions", ROUTE_URI, uri);
    else
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE,
                        "params.ref is neither a prompt (ref/prompt, name) nor a resource (ref/resource, uri)");
}

void mcp_forwarded(struct mcp_request *request)
{
    static const struct {
        const char *method;
        void (*pass)(struct mcp_request *request);
        bool rounds;
    } table[] = {
        {"resources/list", listing_begin, false},
        {"resources/templates/list", listing_begin, false},
        {"prompts/list", listing_begin, false},
        {"resources/read", pass_read, true},
        {"prompts/get", pass_prompt, true},
        {"completion/complete", pass_completion, false},
        {"resources/subscribe", subscription_request, false},
        {"resources/unsubscribe", subscription_request, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(request->message.method, table[i].method) != 0)
            continue;
        if (!table[i].rounds || !mcp_forward_resume(request))
            table[i].pass(request);
        return;
    }
    forward_reply_no_method(request);
}

void mcp_set_level(struct mcp_request *request)
{
    struct mcp_session *session = request->session;
    int level = mcp_log_level(json_get_text(request->message.params, "level"));
    if (level < 0) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE,
                        "params.level is none of debug, info, notice, warning, error, critical, alert, emergency");
        return;
    }
    session->log_level = level;
    for (struct lane *lane = session->forward ? session->forward->lanes : NULL; lane; lane = lane->next)
        lane_want_level(lane, level);
    mcp_reply(request, STR("{}"));
}

/* Servers that are there without this client hear of it, too. */
static void connect_shared(struct mcp_session *session)
{
    struct mcp_server *servers[FORWARD_SERVERS_MAX];
    size_t count = forward_servers(session->door, NULL, servers, FORWARD_SERVERS_MAX);
    for (size_t i = 0; i < count && session->initialized; i++)
        if (!mcp_server_info(servers[i]).per_client && mcp_server_info(servers[i]).state == MCP_SERVER_READY)
            lane_of_session(session, servers[i], NULL);
}

void mcp_forward_notice(struct mcp_session *session, const struct rpc_message *message)
{
    if (strcmp(message->method, "notifications/progress") == 0) {
        ask_progress(session, message);
        return;
    }
    connect_shared(session);
    struct buf params;
    buf_init(&params, 0);
    if (message->params)
        json_write(&params, message->params);
    for (struct lane *lane = session->forward ? session->forward->lanes : NULL; lane; lane = lane->next)
        if (lane->link && !lane_modern(lane))
            mcp_link_notify(lane->link, message->method, message->params ? buf_str(&params) : STR_NONE);
    buf_release(&params);
}
