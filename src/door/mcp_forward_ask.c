/* Questions of servers (sampling, elicitation, roots) on their way to clients, and the answers back.
 *
 * Legacy client: a request to it. Modern client: its request is answered with input_required and waits ("suspended");
 * the round that brings the answers takes its place:
 *
 *   request A ──► server asks ──► A's client: input_required, requestState ──► A waits, its answers go to a parked sink
 *   request B (inputResponses, requestState) ──► the server gets its answers; A gets B's client; B is gone
 *
 * requestState is a random name of what waits in memory: bound to principal, method and parameters, of use once, for
 * FORWARD_SUSPENDED_MS. Nothing of it can be forged; one that is not known is refused. */
#include "door/mcp_forward.h"

#include "base/digest.h"
#include "base/env.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STATE_PREFIX "onced:"

/* ---- one question ---- */

static void asking_unlist(struct asking *asking)
{
    *asking->at = asking->next;
    if (asking->next)
        asking->next->at = asking->at;
    asking->passing->asking_count--;
    if (asking->errand)
        asking->errand->asking_count--;
    asking->errand = NULL;
}

static void asking_free(struct asking *asking)
{
    asking_unlist(asking);
    free(asking->id);
    free(asking->key);
    free(asking->method);
    free(asking->params);
    free(asking->token);
    free(asking->server_token);
    free(asking);
}

static struct asking *asking_new(struct passing *passing, const struct ask_from *from)
{
    struct asking *asking = mem_zero(sizeof *asking);
    *asking = (struct asking){.next = passing->askings,
                              .at = &passing->askings,
                              .passing = passing,
                              .question = from->question,
                              .link = from->link,
                              .attempt = from->attempt,
                              .errand = from->errand};
    if (asking->next)
        asking->next->at = &asking->next;
    passing->askings = asking;
    passing->asking_count++;
    if (asking->errand)
        asking->errand->asking_count++;
    return asking;
}

static void answer_error(struct mcp_question *question, int64_t code, const char *text)
{
    mcp_answer(question, STR_NONE, code, str_of(text));
}

/* Nobody will answer it any more. A person who did not answer is what elicitation has a word for. */
static void asking_give_up(struct asking *asking)
{
    struct mcp_question *question = asking->question;
    bool person = asking->method && strcmp(asking->method, "elicitation/create") == 0;
    asking_free(asking);
    if (person)
        mcp_answer(question, STR("{\"action\":\"cancel\"}"), 0, STR_NONE);
    else
        answer_error(question, RPC_INTERNAL_ERROR, "The client did not answer");
}

static void asking_withdraw_from_client(struct asking *asking)
{
    struct mcp_session *session = asking->id ? mcp_session_by_number(asking->passing->door, asking->session) : NULL;
    if (session)
        mcp_ask_withdraw(session, str_of(asking->id));
}

void ask_withdrawn(struct passing *passing, struct mcp_question *question)
{
    struct asking *asking = passing->askings;
    while (asking && asking->question != question)
        asking = asking->next;
    if (!asking)
        return;
    asking_withdraw_from_client(asking);
    asking_free(asking);
}

void ask_link_gone(struct passing *passing, const struct mcp_link *link)
{
    for (struct asking *asking = passing->askings, *next; asking; asking = next) {
        next = asking->next;
        if (asking->link != link)
            continue;
        asking->link = NULL;
        if (asking->attempt)
            continue;
        asking_withdraw_from_client(asking);
        asking_give_up(asking);
    }
}

void ask_errand_ended(struct errand *errand)
{
    struct passing *passing = errand->lane ? errand->lane->passing : NULL;
    for (struct asking *asking = passing && errand->asking_count ? passing->askings : NULL, *next; asking;
         asking = next) {
        next = asking->next;
        if (asking->errand != errand)
            continue;
        asking_withdraw_from_client(asking);
        asking_give_up(asking);
    }
}

void askings_end_all(struct passing *passing)
{
    while (passing->askings) {
        asking_withdraw_from_client(passing->askings);
        asking_give_up(passing->askings);
    }
}

/* ---- who can be asked what ---- */

static const char *elicitation_mode(const struct json *params)
{
    return str_is(json_get_text(params, "mode"), "url") ? "elicitation.url" : "elicitation.form";
}

bool ask_is_possible(const struct json *capabilities, struct str method, const struct json *params)
{
    if (str_is(method, "sampling/createMessage"))
        return mcp_client_can(capabilities, "sampling");
    if (str_is(method, "elicitation/create"))
        return mcp_client_can(capabilities, elicitation_mode(params));
    if (str_is(method, "roots/list"))
        return mcp_client_can(capabilities, "roots");
    return str_is(method, "tasks/get") || str_is(method, "tasks/result") || str_is(method, "tasks/list") ||
                   str_is(method, "tasks/cancel")
               ? mcp_client_can(capabilities, "tasks")
               : false;
}

static void refuse(struct mcp_question *question, const struct json *capabilities, const struct rpc_message *message)
{
    if (strcmp(message->method, "elicitation/create") == 0 && mcp_client_can(capabilities, "elicitation"))
        answer_error(question, RPC_INVALID_PARAMS, "The client does not support this mode of elicitation");
    else
        answer_error(question, RPC_METHOD_NOT_FOUND, "The client does not support this method");
}

/* ---- legacy clients ---- */

static void client_answered(void *user, const struct rpc_message *message)
{
    struct asking *asking = user;
    if (!message) {
        free(asking->id);
        asking->id = NULL;
        asking_give_up(asking);
        return;
    }
    struct mcp_question *question = asking->question;
    asking_free(asking);
    if (message->kind == RPC_ERROR) {
        mcp_answer(question, STR_NONE, message->code, message->message);
        return;
    }
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, message->result);
    mcp_answer(question, buf_str(&text), 0, STR_NONE);
    buf_release(&text);
}

static char *text_copy(const struct json *value)
{
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, value);
    return buf_detach(&text, NULL);
}

/* The server's progress token becomes one of ours: two servers may use the same. */
static void write_asked_params(struct buf *out, struct asking *asking, const struct json *params)
{
    const struct json *meta = json_get(params, "_meta"), *token = json_get(meta, "progressToken");
    if (!token || token->type == JSON_NULL) {
        json_write(out, params);
        return;
    }
    struct arena arena;
    arena_init(&arena);
    asking->server_token = text_copy(token);
    asking->token = mem_zero(40);
    snprintf(asking->token, 40, "\"onced-%" PRIu64 "\"", ++asking->passing->door->next_number);
    struct json *copy = json_copy(&arena, params), *own = json_copy(&arena, meta);
    json_set(&arena, own, STR("progressToken"),
             json_string((struct str){asking->token + 1, strlen(asking->token) - 2}));
    json_set(&arena, copy, STR("_meta"), *own);
    json_write(out, copy);
    arena_release(&arena);
}

static void ask_legacy(struct passing *passing, const struct ask_from *from, struct mcp_session *session,
                       struct mcp_request *request, const struct rpc_message *message)
{
    struct asking *asking = asking_new(passing, from);
    struct buf params;
    struct str id;
    buf_init(&params, 0);
    if (message->params)
        write_asked_params(&params, asking, message->params);
    asking->session = session->number;
    asking->method = mem_copy_text(message->method);
    bool asked = mcp_ask(session, request, message->method, message->params ? buf_str(&params) : STR_NONE,
                         client_answered, asking, &id);
    buf_release(&params);
    if (asked)
        asking->id = mem_copy_bytes(id.p, id.n);
    else
        asking_give_up(asking);
}

void ask_progress(struct mcp_session *session, const struct rpc_message *message)
{
    struct passing *passing = session->door->passing;
    const struct json *token = json_get(message->params, "progressToken");
    if (!passing || !token)
        return;
    char *text = text_copy(token);
    struct asking *asking = passing->askings;
    while (asking && (asking->session != session->number || !text_equal(asking->token, text)))
        asking = asking->next;
    free(text);
    if (!asking || !asking->link)
        return;
    struct buf params;
    bool first = true;
    buf_init(&params, 0);
    for (uint32_t i = 0; i < message->params->count; i++) {
        const struct json_member *member = &message->params->members[i];
        buf_add_char(&params, first ? '{' : ',');
        first = false;
        json_write_string(&params, member->name);
        buf_add_char(&params, ':');
        if (str_is(member->name, "progressToken"))
            buf_add_text(&params, asking->server_token);
        else
            json_write(&params, &member->value);
    }
    buf_add_char(&params, '}');
    mcp_link_notify(asking->link, message->method, buf_str(&params));
    buf_release(&params);
}

/* ---- modern clients: suspending ---- */

static struct suspended *suspended_of(struct passing *passing, const struct mcp_request *request)
{
    struct suspended *suspended = passing->suspended;
    while (suspended && suspended->request != request)
        suspended = suspended->next;
    return suspended;
}

struct mcp_request *suspended_by_number(struct passing *passing, uint64_t number)
{
    for (struct suspended *at = passing->suspended; at; at = at->next)
        if (at->request && at->request->number == number)
            return at->request;
    return NULL;
}

/* What a next round has in common with the first: who calls, and what. */
static struct digest call_digest(const struct mcp_request *request)
{
    static const char *const names[] = {"name", "arguments", "uri"};
    struct buf parts[3];
    struct str all[6] = {str_of(request->session->tenant), str_of(request->session->principal),
                         str_of(request->message.method)};
    for (int i = 0; i < 3; i++) {
        const struct json *value = json_get(request->message.params, names[i]);
        buf_init(&parts[i], 0);
        if (value)
            json_canonical(&parts[i], value);
        all[3 + i] = value ? buf_str(&parts[i]) : STR_NONE;
    }
    struct digest digest = digest_parts(all, 6);
    for (int i = 0; i < 3; i++)
        buf_release(&parts[i]);
    return digest;
}

static void suspended_free(struct suspended *suspended)
{
    if (suspended->state[0])
        map_remove(&suspended->passing->states, suspended->state);
    *suspended->at = suspended->next;
    if (suspended->next)
        suspended->next->at = suspended->at;
    suspended->passing->suspended_count--;
    free(suspended->answer);
    free(suspended);
}

static void suspended_forget_askings(struct suspended *suspended)
{
    for (struct asking *asking = suspended->passing->askings, *next; asking; asking = next) {
        next = asking->next;
        if (asking->suspended == suspended)
            asking_give_up(asking);
    }
}

/* Ends it, whatever is still open. */
static void suspended_end(struct suspended *suspended)
{
    struct mcp_session *session = suspended->session;
    suspended_forget_askings(suspended);
    suspended->session = NULL;
    if (session)
        mcp_session_end(session); /* drops the request, if it is there */
    suspended_free(suspended);
}

/* The request has ended: with a client that waits there is nothing left to do. */
static void suspended_release(struct mcp_request *request)
{
    struct passing *passing = passing_of(request->session->door);
    struct suspended *suspended = suspended_of(passing, request);
    void (*release)(struct mcp_request *) = suspended->release;
    suspended->request = NULL;
    if (release)
        release(request);
    if (!suspended->state[0]) {
        suspended_forget_askings(suspended);
        suspended_free(suspended);
    }
}

static void parked_message(struct mcp_sink *sink, struct str message, bool final, int http_status)
{
    (void)http_status;
    struct suspended *suspended = (struct suspended *)sink;
    if (!final) /* nobody is there to be told */
        return;
    suspended->answer = mem_copy_bytes(message.p, message.n);
    suspended->answer_bytes = message.n;
}

static void parked_drop(struct mcp_sink *sink)
{
    (void)sink; /* its round will learn that nothing is known */
}

static const struct mcp_sink_ops parked_ops = {.message = parked_message, .drop = parked_drop};

static void request_unlist(struct mcp_request *request)
{
    struct mcp_session *session = request->session;
    *request->at = request->next;
    if (request->next)
        request->next->at = request->at;
    session->request_count--;
    if (request->key)
        map_remove(&session->by_id, request->key);
    request->key = NULL;
}

static void request_list(struct mcp_request *request, struct mcp_session *session)
{
    request->session = session;
    request->next = session->requests;
    request->at = &session->requests;
    if (request->next)
        request->next->at = &request->next;
    session->requests = request;
    session->request_count++;
}

static struct suspended *suspended_new(struct passing *passing, struct mcp_request *request)
{
    struct suspended *suspended = mem_zero(sizeof *suspended);
    suspended->sink.ops = &parked_ops;
    suspended->passing = passing;
    suspended->request = request;
    suspended->call = call_digest(request);
    suspended->release = request->release;
    request->release = suspended_release;
    suspended->next = passing->suspended;
    suspended->at = &passing->suspended;
    if (suspended->next)
        suspended->next->at = &suspended->next;
    passing->suspended = suspended;
    passing->suspended_count++;
    passing_keep_ticking(passing);
    return suspended;
}

/* How many requests of this principal wait. */
static size_t suspended_by(const struct passing *passing, const struct mcp_session *session)
{
    size_t count = 0;
    for (const struct suspended *at = passing->suspended; at; at = at->next)
        count += at->request && strcmp(at->request->session->principal, session->principal) == 0 &&
                 strcmp(at->request->session->tenant, session->tenant) == 0;
    return count;
}

/* A fresh name for the client to come back with. */
static void suspended_name(struct suspended *suspended)
{
    struct passing *passing = suspended->passing;
    struct env *env = passing->door->engine ? engine_env(passing->door->engine) : env_system();
    unsigned char random[FORWARD_STATE_BYTES];
    env->random(env, random, sizeof random);
    char *out = suspended->state + sprintf(suspended->state, STATE_PREFIX);
    for (size_t i = 0; i < sizeof random; i++)
        out += sprintf(out, "%02x", random[i]);
    suspended->expires_ms = passing_now_ms(passing) + FORWARD_SUSPENDED_MS;
    map_put(&passing->states, suspended->state, suspended);
}

static void suspended_unname(struct suspended *suspended)
{
    map_remove(&suspended->passing->states, suspended->state);
    suspended->state[0] = '\0';
}

/* The input_required result with every question that is open. */
static void write_input_required(struct buf *out, struct suspended *suspended)
{
    buf_add_text(out, "{\"resultType\":\"input_required\",\"inputRequests\":{");
    bool first = true;
    for (struct asking *asking = suspended->passing->askings; asking; asking = asking->next) {
        if (asking->suspended != suspended)
            continue;
        asking->told = true;
        buf_printf(out, "%s\"%s\":{\"method\":\"%s\",\"params\":%s}", first ? "" : ",", asking->key, asking->method,
                   asking->params);
        first = false;
    }
    buf_printf(out, "},\"requestState\":\"%s\"}", suspended->state);
}

/* Takes the request out of its client's hands and answers it. false: the door is closing. */
static bool suspended_park(struct suspended *suspended)
{
    struct mcp_request *request = suspended->request;
    struct mcp_session *from = request->session;
    struct mcp_session *session = mcp_session_new(from->door, from->tenant, from->principal, from->role);
    if (!session)
        return false;
    mcp_session_limit(session, from->scope);
    session->ephemeral = true;
    suspended->session = session;
    struct mcp_sink *sink = request->sink;
    struct str id = request->message.id;
    request_unlist(request);
    request_list(request, session);
    request->sink = &suspended->sink;
    suspended->sink.request = request;
    suspended->sink.older = NULL;
    suspended_name(suspended);
    struct buf result, text;
    buf_init(&result, 0);
    buf_init(&text, 0);
    write_input_required(&result, suspended);
    rpc_write_result(&text, id, buf_str(&result));
    if (sink) {
        sink->request = NULL;
        sink->older = NULL;
        sink->ops->message(sink, buf_str(&text), true, 200);
    }
    buf_release(&result);
    buf_release(&text);
    return true;
}

/* Without what means something between the server and us only. */
static char *question_params(const struct rpc_message *message)
{
    struct buf out;
    bool first = true;
    buf_init(&out, 0);
    for (uint32_t i = 0; message->params && i < message->params->count; i++) {
        const struct json_member *member = &message->params->members[i];
        if (str_is(member->name, "_meta") || str_is(member->name, "elicitationId") || str_is(member->name, "task"))
            continue;
        buf_add_char(&out, first ? '{' : ',');
        first = false;
        json_write_string(&out, member->name);
        buf_add_char(&out, ':');
        json_write(&out, &member->value);
    }
    buf_add_text(&out, first ? "{}" : "}");
    return buf_detach(&out, NULL);
}

static void ask_modern(struct passing *passing, const struct ask_from *from, struct mcp_request *request,
                       const struct rpc_message *message)
{
    struct mcp_question *question = from->question;
    struct suspended *suspended = suspended_of(passing, request);
    if (suspended && suspended->keys >= FORWARD_QUESTIONS_MAX) {
        answer_error(question, RPC_INTERNAL_ERROR, "The client was asked too often");
        return;
    }
    if (!suspended && (passing->suspended_count >= FORWARD_SUSPENDED_MAX ||
                       suspended_by(passing, request->session) >= FORWARD_SUSPENDED_MAX / FORWARD_OWN_DIVISOR)) {
        answer_error(question, RPC_INTERNAL_ERROR, "Too many requests wait for their clients");
        return;
    }
    if (!suspended)
        suspended = suspended_new(passing, request);
    struct asking *asking = asking_new(passing, from);
    asking->suspended = suspended;
    asking->method = mem_copy_text(message->method);
    asking->params = question_params(message);
    asking->key = mem_zero(16);
    snprintf(asking->key, 16, "q%u", ++suspended->keys);
    if (suspended->state[0]) /* it waits already: these come with the next round */
        return;
    suspended->due = true;
    passing_next_turn(passing);
}

void suspended_park_due(struct passing *passing)
{
    struct suspended *at = passing->suspended;
    while (at) {
        bool park = at->due && at->request;
        at->due = false;
        if (park && !suspended_park(at))
            suspended_forget_askings(at);
        at = park ? passing->suspended : at->next; /* whoever was told may have ended others */
    }
}

void ask_client(struct passing *passing, const struct ask_from *from, struct mcp_session *session,
                struct mcp_request *request, const struct rpc_message *message)
{
    struct mcp_question *question = from->question;
    if (request && !session)
        session = request->session;
    if (strcmp(message->method, "ping") == 0) {
        mcp_answer(question, STR("{}"), 0, STR_NONE);
        return;
    }
    bool modern = request && request->era != MCP_ERA_LEGACY;
    const struct json *capabilities = request ? request->capabilities : session ? session->capabilities : NULL;
    if (!session || (!modern && session->ending)) {
        answer_error(question, RPC_INTERNAL_ERROR, "No client is there to be asked");
    } else if (!ask_is_possible(capabilities, str_of(message->method), message->params)) {
        refuse(question, capabilities, message);
    } else if (passing->asking_count >= FORWARD_ASKINGS_MAX) {
        answer_error(question, RPC_INTERNAL_ERROR, "Too many questions are open");
    } else if (modern) {
        ask_modern(passing, from, request, message);
    } else {
        ask_legacy(passing, from, session, request, message);
    }
}

/* ---- the next round ---- */

static bool is_answer(const struct asking *asking, const struct json *value)
{
    if (!value || value->type != JSON_OBJECT)
        return false;
    return strcmp(asking->method, "elicitation/create") != 0 || json_get_text(value, "action").p;
}

/* Open questions that this round does not answer. */
static size_t count_unanswered(const struct suspended *suspended, const struct json *responses)
{
    size_t open = 0;
    for (const struct asking *asking = suspended->passing->askings; asking; asking = asking->next)
        if (asking->suspended == suspended && !(asking->told && is_answer(asking, json_get(responses, asking->key))))
            open++;
    return open;
}

static void hand_down(struct suspended *suspended, const struct json *responses)
{
    struct passing *passing = suspended->passing;
    for (struct asking *asking = passing->askings, *next; asking; asking = next) {
        next = asking->next;
        const struct json *value =
            asking->suspended == suspended && asking->told ? json_get(responses, asking->key) : NULL;
        if (!is_answer(asking, value))
            continue;
        struct mcp_question *question = asking->question;
        asking_free(asking);
        struct buf text;
        buf_init(&text, 0);
        json_write(&text, value);
        mcp_answer(question, buf_str(&text), 0, STR_NONE);
        buf_release(&text);
    }
}

/* The waiting request gets this one's client and place; this one is gone. */
static void take_over(struct suspended *suspended, struct mcp_request *round)
{
    struct mcp_request *request = suspended->request;
    struct mcp_session *session = round->session, *parked = suspended->session;
    struct mcp_sink *sink = round->sink;
    struct arena *arena = &request->arena;
    request->message.id = arena_str(arena, round->message.id);
    request->progress_token = arena_str(arena, round->progress_token);
    request->capabilities = json_copy(arena, round->capabilities);
    request->log_level = round->log_level;
    request_unlist(request);
    round->sink = NULL;
    sink->request = NULL;
    mcp_request_drop(round);
    request_list(request, session);
    request->key = request->message.id.p;
    map_put(&session->by_id, request->key, request);
    request->sink = sink;
    sink->request = request;
    suspended->sink.request = NULL;
    suspended->session = NULL;
    mcp_session_end(parked);
}

/* The answer came while no client waited: this round's client gets it. */
static void give_answer(struct suspended *suspended, struct mcp_request *round)
{
    struct rpc_message message;
    struct rpc_fault fault;
    struct json_limits limits = {.bytes_max = MCP_MESSAGE_BYTES_MAX, .depth_max = 256, .values_max = 1000000};
    struct str text = {suspended->answer, suspended->answer_bytes};
    if (!text.p || !rpc_read(&round->arena, text, &limits, &message, &fault)) {
        mcp_reply_error(round, RPC_INTERNAL_ERROR, STR_NONE, "What waited for this round has ended without an answer");
    } else if (message.kind == RPC_ERROR) {
        forward_reply_error(round, &message);
    } else {
        struct buf result;
        buf_init(&result, 0);
        json_write(&result, message.result);
        mcp_reply(round, buf_str(&result));
        buf_release(&result);
    }
}

/* A tool that is run by onced itself keeps no states of others. */
static bool is_protected(const struct mcp_request *request)
{
    if (strcmp(request->message.method, "tools/call") != 0 || !request->session->door->engine)
        return false;
    const struct tool *tool =
        registry_find(engine_registry(request->session->door->engine), json_get_text(request->message.params, "name"));
    return tool && !tool->forwarded;
}

static void refuse_state(struct mcp_request *request)
{
    mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "requestState is unknown, used already or expired");
}

bool mcp_forward_resume(struct mcp_request *request)
{
    const struct json *state = json_get(request->message.params, "requestState");
    if (!state || request->era == MCP_ERA_LEGACY)
        return false;
    struct passing *passing = request->session->door->passing;
    char *name = state->type == JSON_STRING ? mem_copy_bytes(state->text.p, state->text.n) : NULL;
    struct suspended *suspended =
        passing && name && strlen(name) == state->text.n ? map_get(&passing->states, name) : NULL;
    free(name);
    struct digest digest = call_digest(request);
    if (!suspended || !digest_equal(&digest, &suspended->call)) {
        if (!suspended && !is_protected(request))
            return false; /* a server's own */
        refuse_state(request);
        return true;
    }
    const struct json *responses = json_get(request->message.params, "inputResponses");
    if (count_unanswered(suspended, responses) > 0) {
        struct buf text;
        hand_down(suspended, responses);
        suspended_unname(suspended);
        suspended_name(suspended);
        buf_init(&text, 0);
        write_input_required(&text, suspended);
        mcp_reply(request, buf_str(&text));
        buf_release(&text);
    } else if (suspended->request) {
        suspended_unname(suspended);
        responses = responses ? json_copy(&suspended->request->arena, responses) : NULL;
        take_over(suspended, request);
        hand_down(suspended, responses);
    } else {
        hand_down(suspended, responses);
        give_answer(suspended, request);
        suspended_end(suspended);
    }
    return true;
}

void suspended_tick(struct passing *passing)
{
    int64_t now_ms = passing_now_ms(passing);
    for (struct suspended *at = passing->suspended, *next; at; at = next) {
        next = at->next;
        if (at->state[0] && now_ms >= at->expires_ms)
            suspended_end(at);
    }
}

void suspended_end_all(struct passing *passing)
{
    while (passing->suspended) {
        struct suspended *at = passing->suspended;
        if (at->state[0]) {
            suspended_end(at);
            continue;
        }
        /* its client waits: the session ends it */
        suspended_forget_askings(at);
        if (at->request)
            at->request->release = at->release;
        suspended_free(at);
    }
}

/* ---- errors that ask ---- */

/* A legacy server wants its user to visit a page first (-32042): the modern way to say so is input_required. The next
 * round is a call like the first. */
void ask_urls(struct mcp_request *request, const struct rpc_message *error)
{
    const struct json *pages = json_get(error->data, "elicitations");
    if (!mcp_client_can(request->capabilities, "elicitation.url")) {
        mcp_reply_error(request, MCP_MISSING_CAPABILITY,
                        STR("{\"requiredCapabilities\":{\"elicitation\":{\"url\":{}}}}"), "%.*s",
                        STR_ARG(error->message));
        return;
    }
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "resultType", "input_required");
    json_out_name(&out, "inputRequests");
    json_out_object(&out);
    for (uint32_t i = 0; pages && pages->type == JSON_ARRAY && i < pages->count && i < FORWARD_ROUNDS_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "url%u", i + 1);
        json_out_name(&out, key);
        json_out_object(&out);
        json_out_member_text(&out, "method", "elicitation/create");
        json_out_name(&out, "params");
        json_out_object(&out);
        json_out_member_text(&out, "mode", "url");
        json_out_name(&out, "message");
        json_out_str(&out, json_get_text(&pages->items[i], "message"));
        json_out_name(&out, "url");
        json_out_str(&out, json_get_text(&pages->items[i], "url"));
        json_out_end_object(&out);
        json_out_end_object(&out);
    }
    json_out_end_object(&out);
    json_out_end_object(&out);
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}

/* ---- attempts: calls of protected tools ---- */

static struct mcp_request *origin_request(struct mcp_door *door, const struct mcp_related *related)
{
    if (!related || related->origin.call == 0)
        return NULL;
    struct mcp_request *request = door->passing ? suspended_by_number(door->passing, related->origin.call) : NULL;
    return request ? request : mcp_request_by_number(door, related->origin.session, related->origin.call);
}

static void attempt_notified(void *user, struct mcp_link *link, const struct mcp_related *related,
                             const struct rpc_message *message)
{
    (void)link;
    struct mcp_request *request = origin_request(user, related);
    if (!request)
        return;
    if (strcmp(message->method, "notifications/progress") == 0)
        forward_progress(request, message);
    else if (strcmp(message->method, "notifications/message") == 0)
        forward_log(request, message);
}

static void attempt_asked(void *user, struct mcp_link *link, const struct mcp_related *related,
                          const struct rpc_message *message, struct mcp_question *question)
{
    struct mcp_door *door = user;
    const struct ask_from from = {.link = link, .attempt = true, .question = question};
    ask_client(passing_of(door), &from, NULL, origin_request(door, related), message);
}

static void attempt_withdrawn(void *user, struct mcp_link *link, struct mcp_question *question)
{
    (void)link;
    struct mcp_door *door = user;
    if (door->passing)
        ask_withdrawn(door->passing, question);
}

static void attempt_introduced(void *user, const struct adapter_origin *origin, struct json_out *meta)
{
    const struct mcp_related related = {.origin = *origin};
    const struct mcp_request *request = origin_request(user, &related);
    if (!request)
        return;
    struct buf text;
    buf_init(&text, 0);
    era_write_capabilities(&text, request->capabilities);
    json_out_name(meta, MCP_META_CAPABILITIES);
    json_out_raw(meta, buf_str(&text));
    buf_release(&text);
    if (request->log_level >= 0)
        json_out_member_text(meta, MCP_META_LOG_LEVEL, mcp_log_levels[request->log_level]);
}

const struct mcp_listener *mcp_door_attempt_listener(void)
{
    static const struct mcp_listener listener = {.notified = attempt_notified,
                                                 .asked = attempt_asked,
                                                 .withdrawn = attempt_withdrawn,
                                                 .introduced = attempt_introduced};
    return &listener;
}
