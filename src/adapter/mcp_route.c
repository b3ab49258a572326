/* Whom a message of the server concerns. Over HTTP a message comes on the stream of a request. Over stdio nothing says
 * what it belongs to but a progress token or a subscription's id; then it goes
 *
 *   notifications   to the only request at work, else to every link
 *   questions       to the only request at work, else to the latest one whose client can answer,
 *                   else to the most recently active client that can
 *
 * What nobody can answer is answered here. */
#include "adapter/mcp_parts.h"

#include "base/mem.h"

#include <stdlib.h>

/* ---- who ---- */

/* A request in the course of which servers ask and tell. */
static bool works(const struct mcp_pending *pending)
{
    static const char *const methods[] = {"tools/call", "prompts/get", "resources/read", "completion/complete",
                                          "tasks/result"};
    if (!pending->sent || pending->cancelled)
        return false;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(pending->method, methods[i]) == 0)
            return true;
    }
    return false;
}

static struct mcp_pending *only_work(const struct mcp_connection *connection)
{
    struct mcp_pending *only = NULL;
    for (struct mcp_pending *pending = connection->first; pending; pending = pending->next) {
        if (!works(pending))
            continue;
        if (only)
            return NULL;
        only = pending;
    }
    return only;
}

/* The member of clientCapabilities that a question needs; NULL = none. */
static const char *needed(const char *method)
{
    if (strcmp(method, "sampling/createMessage") == 0)
        return "sampling";
    if (strcmp(method, "elicitation/create") == 0)
        return "elicitation";
    if (strcmp(method, "roots/list") == 0)
        return "roots";
    return NULL;
}

static bool link_can(const struct mcp_link *link, const char *capability)
{
    return link->listener && link->listener->asked && (!capability || json_get(link->capabilities, capability));
}

/* Attempts without a link of their client's: the door knows what it can. */
static bool pending_can(const struct mcp_pending *pending, const char *capability)
{
    const struct mcp_link *link = pending->link;
    if (pending->attempt)
        return pending->hub->listener && pending->hub->listener->asked &&
               (pending->origin.session != 0 || pending->origin.call != 0) &&
               (!link || link == link->server->own || link_can(link, capability));
    return link && link_can(link, capability);
}

static struct mcp_pending *latest_able(const struct mcp_connection *connection, const char *capability)
{
    for (struct mcp_pending *pending = connection->last; pending; pending = pending->prev) {
        if (works(pending) && pending_can(pending, capability))
            return pending;
    }
    return NULL;
}

static struct mcp_link *most_active(const struct mcp_connection *connection, const char *capability)
{
    struct mcp_link *best = NULL;
    for (struct mcp_link *link = connection->links; link; link = link->next) {
        if (link_can(link, capability) && (!best || link->used > best->used))
            best = link;
    }
    return best;
}

static struct mcp_related related_of(const struct mcp_pending *pending)
{
    struct mcp_related related = {0};
    if (pending && pending->done)
        related = (struct mcp_related){.user = pending->attempt ? NULL : pending->user, .origin = pending->origin};
    return related;
}

/* ---- notifications ---- */

static void tell_link(struct mcp_link *link, const struct mcp_pending *pending, const struct rpc_message *message)
{
    struct mcp_related related = related_of(pending);
    if (link && link->listener && link->listener->notified)
        link->listener->notified(link->user, link, &related, message);
}

/* To whoever sent the request. */
static void tell_requester(const struct mcp_pending *pending, const struct rpc_message *message)
{
    const struct mcp_hub *hub = pending->hub;
    struct mcp_related related = related_of(pending);
    if (!pending->attempt)
        tell_link(pending->link, pending, message);
    else if (pending->done && hub->listener && hub->listener->notified)
        hub->listener->notified(hub->listener_user, pending->link, &related, message);
}

/* To every link there is now. One that is told may close itself and others: mcp_link.c moves the cursor on. */
static void tell_all(struct mcp_connection *connection, const struct rpc_message *message)
{
    struct mcp_link *link;
    connection->cursor = connection->links;
    while ((link = connection->cursor)) {
        connection->cursor = link->next;
        tell_link(link, NULL, message);
    }
}

static struct mcp_pending *named(const struct mcp_connection *connection, const struct json *id)
{
    if (!id || (id->type != JSON_NUMBER && id->type != JSON_STRING))
        return NULL;
    return mcp_connection_find(connection, id->text);
}

static void progress(struct mcp_connection *connection, struct arena *arena, struct rpc_message *message)
{
    struct json *token = (struct json *)json_get(message->params, "progressToken"); /* of our own tree */
    struct mcp_pending *pending = token && token->type == JSON_NUMBER ? named(connection, token) : NULL;
    struct json *theirs = NULL;
    if (!pending || !pending->token)
        return;
    if (pending->renew && pending->timeout_ms > 0)
        pending->deadline_ms = (int64_t)uv_now(connection->hub->options.loop) + pending->timeout_ms;
    if (json_parse(arena, str_of(pending->token), NULL, &theirs, NULL) != ERR_NONE)
        return;
    *token = *theirs;
    tell_requester(pending, message);
}

/* The server withdraws a question, or ends one of our streams (stdio, modern). */
static void cancelled(struct mcp_connection *connection, struct arena *arena, const struct rpc_message *message)
{
    const struct json *id = json_get(message->params, "requestId");
    struct buf text;
    if (!id || (id->type != JSON_NUMBER && id->type != JSON_STRING))
        return;
    buf_init(&text, RPC_ID_BYTES_MAX);
    json_canonical(&text, id); /* as base/jsonrpc.h writes ids */
    const char *key = arena_copy_str(arena, buf_str(&text));
    buf_release(&text);
    for (struct mcp_question *question = connection->questions; question; question = question->next) {
        if (strcmp(question->id, key) == 0) {
            mcp_question_withdraw(question);
            return;
        }
    }
    struct mcp_pending *pending = mcp_connection_find(connection, str_of(key));
    if (!pending || strcmp(pending->method, "subscriptions/listen") != 0)
        return;
    struct mcp_outcome outcome = {.end = MCP_LOST, .sent = true, .text = "the server ended the subscription"};
    mcp_pending_end(pending, &outcome);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void list_changed(struct mcp_connection *connection, const struct rpc_message *message)
{
    if (connection->shared && strcmp(message->method, "notifications/tools/list_changed") == 0)
        mcp_server_relist(connection->server);
    tell_all(connection, message);
}

void mcp_route_notification(struct mcp_connection *connection, struct mcp_pending *pending, struct arena *arena,
                            struct rpc_message *message)
{
    const struct json *subscription = json_get(json_get(message->params, "_meta"), MCP_META_SUBSCRIPTION);
    if (subscription && !pending)
        pending = named(connection, subscription);
    if (strcmp(message->method, "notifications/progress") == 0)
        progress(connection, arena, message);
    else if (strcmp(message->method, "notifications/cancelled") == 0)
        cancelled(connection, arena, message);
    else if (ends_with(message->method, "/list_changed") && (!pending || pending == connection->server->listening))
        list_changed(connection, message);
    else if (pending)
        tell_requester(pending, message);
    else if (strcmp(message->method, "notifications/message") == 0 && (pending = only_work(connection)))
        tell_requester(pending, message);
    else
        tell_all(connection, message);
}

/* ---- questions ---- */

static struct mcp_question *question_new(struct mcp_connection *connection, struct mcp_pending *pending,
                                         struct mcp_link *link, struct str id)
{
    struct mcp_question *question = mem_zero(sizeof *question);
    question->connection = connection;
    question->pending = pending;
    question->link = link;
    question->id = mem_copy_bytes(id.p, id.n);
    question->next = connection->questions;
    question->at = &connection->questions;
    if (question->next)
        question->next->at = &question->next;
    connection->questions = question;
    connection->question_count++;
    return question;
}

static void question_remove(struct mcp_question *question)
{
    *question->at = question->next;
    if (question->next)
        question->next->at = question->at;
    question->connection->question_count--;
}

static void question_free(struct mcp_question *question)
{
    free(question->id);
    free(question);
}

void mcp_question_withdraw(struct mcp_question *question)
{
    const struct mcp_hub *hub = question->connection->hub;
    struct mcp_link *link = question->link;
    question_remove(question);
    const struct mcp_listener *listener = question->by_hub ? hub->listener : link ? link->listener : NULL;
    void *user = question->by_hub ? hub->listener_user : link ? link->user : NULL;
    if (listener && listener->withdrawn)
        listener->withdrawn(user, link, question);
    question_free(question);
}

void mcp_answer(struct mcp_question *question, struct str result, int64_t code, struct str message)
{
    if (question->answered) { /* of an attempt: it goes with the next round */
        question->answered(question, result, code, message);
        return;
    }
    question_remove(question);
    mcp_connection_answer(question->connection, str_of(question->id), question->pending, result, code, message);
    question_free(question);
}

static void refuse(struct mcp_connection *connection, struct mcp_pending *pending, const struct rpc_message *message,
                   int64_t code, const char *text)
{
    mcp_connection_answer(connection, message->id, pending, STR_NONE, code, str_of(text));
}

static void answer_default(struct mcp_connection *connection, struct mcp_pending *pending,
                           const struct rpc_message *message)
{
    if (strcmp(message->method, "roots/list") == 0)
        mcp_connection_answer(connection, message->id, pending, STR("{\"roots\":[]}"), 0, STR_NONE);
    else
        refuse(connection, pending, message, RPC_METHOD_NOT_FOUND, "no client is there that can answer this");
}

static void ask(struct mcp_connection *connection, struct mcp_pending *pending, struct mcp_link *link,
                const struct rpc_message *message)
{
    const struct mcp_hub *hub = connection->hub;
    struct mcp_related related = related_of(pending);
    struct mcp_question *question = question_new(connection, pending, link, message->id);
    question->by_hub = pending && pending->attempt;
    if (question->by_hub)
        hub->listener->asked(hub->listener_user, link, &related, message, question);
    else
        link->listener->asked(link->user, link, &related, message, question);
}

static bool is_open(const struct mcp_connection *connection, struct str id)
{
    for (const struct mcp_question *question = connection->questions; question; question = question->next) {
        if (str_equal(str_of(question->id), id))
            return true;
    }
    return false;
}

void mcp_route_request(struct mcp_connection *connection, struct mcp_pending *pending,
                       const struct rpc_message *message)
{
    const char *capability = needed(message->method);
    struct mcp_link *link = NULL;
    if (connection->era == MCP_ERA_MODERN || is_open(connection, message->id))
        return; /* modern servers ask nothing this way, and an answer has no place to go */
    if (strcmp(message->method, "ping") == 0) {
        mcp_connection_answer(connection, message->id, pending, STR("{}"), 0, STR_NONE);
        return;
    }
    if (connection->question_count >= MCP_QUESTIONS_MAX) {
        refuse(connection, pending, message, RPC_INTERNAL_ERROR, "too many questions wait for an answer");
        return;
    }
    struct mcp_pending *about = pending ? pending : only_work(connection);
    if (about && !pending_can(about, capability))
        about = NULL;
    if (!about && !pending && !only_work(connection))
        about = latest_able(connection, capability);
    if (about)
        link = about->link;
    else if (!pending && !only_work(connection))
        link = most_active(connection, capability);
    if (about || link)
        ask(connection, about, link, message);
    else
        answer_default(connection, pending, message);
}
