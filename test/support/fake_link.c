#include "support/fake_link.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

struct mcp_hub *fake_hub;

void fake_hub_init(struct mcp_hub *hub)
{
    *hub = (struct mcp_hub){0};
    arena_init(&hub->arena);
    fake_hub = hub;
}

static void pending_free(struct mcp_pending *pending)
{
    free(pending->method);
    free(pending->params);
    free(pending);
}

void fake_hub_release(struct mcp_hub *hub)
{
    while (hub->pendings) {
        struct mcp_pending *pending = hub->pendings;
        hub->pendings = pending->next;
        pending_free(pending);
    }
    for (size_t i = 0; i < hub->server_count; i++) {
        assert(!hub->servers[i]->links);
        free(hub->servers[i]);
    }
    free(hub->last_notice);
    free(hub->last_notice_params);
    arena_release(&hub->arena);
}

struct mcp_server *fake_server(struct mcp_hub *hub, const char *name, enum mcp_era era, const char *capabilities)
{
    struct mcp_server *server = mem_zero(sizeof *server);
    *server = (struct mcp_server){.name = name,
                                  .prefix = "",
                                  .capabilities = capabilities,
                                  .state = MCP_SERVER_READY,
                                  .era = era,
                                  .forward = true,
                                  .per_client = true};
    enum err_code code = json_parse(&hub->arena, str_of(capabilities), NULL, &server->tree, NULL);
    assert(code == ERR_NONE);
    (void)code;
    hub->servers[hub->server_count++] = server;
    return server;
}

/* ---- adapter/mcp.h ---- */

void mcp_hub_set_listener(struct mcp_hub *hub, const struct mcp_listener *listener, void *user)
{
    hub->attempts = listener;
    hub->attempts_user = user;
}

size_t mcp_hub_server_count(const struct mcp_hub *hub)
{
    return hub->server_count;
}

struct mcp_server *mcp_hub_server_at(const struct mcp_hub *hub, size_t index)
{
    return hub->servers[index];
}

struct mcp_server *mcp_hub_find(const struct mcp_hub *hub, const char *name)
{
    for (size_t i = 0; i < hub->server_count; i++)
        if (strcmp(hub->servers[i]->name, name) == 0)
            return hub->servers[i];
    return NULL;
}

struct mcp_server_info mcp_server_info(const struct mcp_server *server)
{
    return (struct mcp_server_info){.name = server->name,
                                    .state = server->state,
                                    .era = server->era,
                                    .capabilities = server->state == MCP_SERVER_STARTING ? NULL : server->tree,
                                    .error = server->state == MCP_SERVER_DOWN ? "it died" : NULL,
                                    .per_client = server->per_client,
                                    .forward = server->forward,
                                    .prefix = server->prefix};
}

const char *mcp_tool_key_argument(const struct mcp_tool *tool)
{
    (void)tool;
    return NULL;
}

const char *mcp_tool_remote_name(const struct mcp_tool *tool)
{
    return (const char *)tool; /* tests hang a text there */
}

static char *copy(struct str text)
{
    return text.p ? mem_copy_bytes(text.p, text.n) : NULL;
}

struct mcp_link *mcp_link_open(struct mcp_server *server, const struct mcp_link_options *options, struct err *err)
{
    if (server->state == MCP_SERVER_DOWN) {
        err_set(err, ERR_UNAVAILABLE, "server %s is down", server->name);
        return NULL;
    }
    struct mcp_link *link = mem_zero(sizeof *link);
    *link = (struct mcp_link){.next = server->links,
                              .server = server,
                              .listener = options->listener,
                              .user = options->user,
                              .session = options->session,
                              .capabilities = copy(options->capabilities),
                              .client_info = copy(options->client_info),
                              .version = mem_copy_text(options->version)};
    server->links = link;
    server->link_count++;
    server->opened++;
    return link;
}

void fake_end(struct mcp_pending *pending, enum mcp_end end, const char *text)
{
    assert(!pending->told);
    pending->told = true;
    pending->done(pending->user, &(struct mcp_outcome){.end = end, .sent = true, .text = text});
}

static void lose_pendings(struct mcp_link *link)
{
    for (struct mcp_pending *pending = fake_hub->pendings; pending; pending = pending->next)
        if (pending->link == link && !pending->told)
            fake_end(pending, MCP_LOST, "the connection broke");
}

static void question_close(struct mcp_question *question)
{
    struct mcp_question **at = &fake_hub->questions;
    assert(question->open);
    question->open = false;
    while (*at != question)
        at = &(*at)->next;
    *at = question->next;
}

void mcp_link_close(struct mcp_link *link)
{
    link->listener = NULL;
    lose_pendings(link);
    for (const struct mcp_question *question = fake_hub->questions; question; question = question->next)
        assert(question->link != link); /* the adapter would answer it, and free it */
    struct mcp_link **at = &link->server->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    link->server->link_count--;
    for (struct mcp_pending *pending = fake_hub->pendings; pending; pending = pending->next)
        if (pending->link == link)
            pending->link = NULL;
    free(link->capabilities);
    free(link->client_info);
    free(link->version);
    free(link);
}

enum mcp_era mcp_link_era(const struct mcp_link *link)
{
    return link->server->era;
}

struct mcp_server *mcp_link_server(const struct mcp_link *link)
{
    return link->server;
}

struct mcp_pending *mcp_link_request(struct mcp_link *link, const struct mcp_request_options *options)
{
    struct mcp_pending *pending = mem_zero(sizeof *pending);
    assert(!link->lost);
    *pending = (struct mcp_pending){.next = fake_hub->pendings,
                                    .link = link,
                                    .method = mem_copy_text(options->method),
                                    .params = copy(options->params),
                                    .done = options->done,
                                    .user = options->user};
    fake_hub->pendings = pending;
    return pending;
}

void mcp_pending_cancel(struct mcp_pending *pending, const char *reason)
{
    (void)reason;
    assert(!pending->told);
    pending->cancelled = true;
}

void mcp_link_notify(struct mcp_link *link, const char *method, struct str params)
{
    assert(!link->lost);
    fake_hub->notified++;
    free(fake_hub->last_notice);
    free(fake_hub->last_notice_params);
    fake_hub->last_notice = mem_copy_text(method);
    fake_hub->last_notice_params = copy(params);
}

void mcp_answer(struct mcp_question *question, struct str result, int64_t code, struct str message)
{
    if (question->link || question->open)
        question_close(question);
    assert(question->answers == 0 && !question->withdrawn);
    question->answers++;
    question->result = copy(result);
    question->code = code;
    question->message = copy(message);
}

void fake_question_release(struct mcp_question *question)
{
    free(question->result);
    free(question->message);
    *question = (struct mcp_question){0};
}

/* ---- what servers do ---- */

struct mcp_pending *fake_find(struct mcp_server *server, const char *method)
{
    struct mcp_pending *found = NULL;
    for (struct mcp_pending *pending = fake_hub->pendings; pending; pending = pending->next)
        if (pending->link && pending->link->server == server && !pending->told && !pending->cancelled &&
            strcmp(pending->method, method) == 0)
            found = pending;
    return found;
}

size_t fake_waiting(const struct mcp_hub *hub)
{
    size_t count = 0;
    for (const struct mcp_pending *pending = hub->pendings; pending; pending = pending->next)
        count += !pending->told && !pending->cancelled;
    return count;
}

static void answer(struct mcp_pending *pending, struct rpc_message *message)
{
    assert(pending && !pending->told);
    pending->told = true;
    pending->done(pending->user, &(struct mcp_outcome){.end = MCP_ANSWERED, .message = message, .sent = true});
}

static struct json *parse(struct arena *arena, const char *text)
{
    struct json *tree = NULL;
    struct err err = {0};
    enum err_code code = text ? json_parse(arena, str_of(text), NULL, &tree, &err) : ERR_NONE;
    assert(code == ERR_NONE);
    (void)code;
    return tree;
}

void fake_result(struct mcp_pending *pending, const char *result)
{
    struct arena arena;
    arena_init(&arena);
    answer(pending, &(struct rpc_message){.kind = RPC_RESULT, .result = parse(&arena, result)});
    arena_release(&arena);
}

void fake_error(struct mcp_pending *pending, int64_t code, const char *message, const char *data)
{
    struct arena arena;
    arena_init(&arena);
    answer(pending, &(struct rpc_message){
                        .kind = RPC_ERROR, .code = code, .message = str_of(message), .data = parse(&arena, data)});
    arena_release(&arena);
}

static struct mcp_related related_of(const struct mcp_pending *pending)
{
    return (struct mcp_related){.user = pending ? pending->user : NULL};
}

void fake_notify(struct mcp_link *link, struct mcp_pending *pending, const char *method, const char *params)
{
    struct arena arena;
    struct mcp_related related = related_of(pending);
    arena_init(&arena);
    struct rpc_message message = {.kind = RPC_NOTIFICATION, .method = method, .params = parse(&arena, params)};
    link->listener->notified(link->user, link, &related, &message);
    arena_release(&arena);
}

void fake_ask(struct mcp_link *link, struct mcp_pending *pending, struct mcp_question *question, const char *method,
              const char *params)
{
    struct arena arena;
    struct mcp_related related = related_of(pending);
    *question = (struct mcp_question){.next = fake_hub->questions, .link = link, .open = true};
    fake_hub->questions = question;
    arena_init(&arena);
    struct rpc_message message = {
        .kind = RPC_REQUEST, .id = STR("7"), .method = method, .params = parse(&arena, params)};
    link->listener->asked(link->user, link, &related, &message, question);
    arena_release(&arena);
}

void fake_withdraw(struct mcp_link *link, struct mcp_question *question)
{
    question_close(question);
    question->withdrawn = true;
    link->listener->withdrawn(link->user, link, question);
}

void fake_lose(struct mcp_link *link)
{
    lose_pendings(link);
    struct mcp_question *question = fake_hub->questions, *next;
    for (; question; question = next) {
        next = question->next;
        if (question->link == link)
            fake_withdraw(link, question);
    }
    link->lost = true;
    link->listener->lost(link->user, link, "the connection broke");
}
