#include "support/fake_work.h"

#include "base/mem.h"

#include <stdlib.h>

struct fake_work fake_work;

void fake_work_reset(void)
{
    fake_work = (struct fake_work){0};
}

struct mcp_request *fake_work_oldest(void)
{
    for (size_t i = 0; i < fake_work.held_count; i++)
        if (fake_work.held[i])
            return fake_work.held[i];
    return NULL;
}

/* ---- who works on requests ---- */

static void let_go(struct mcp_request *request)
{
    fake_work.released++;
    for (size_t i = 0; i < fake_work.held_count; i++)
        if (fake_work.held[i] == request)
            fake_work.held[i] = NULL;
    while (fake_work.held_count > 0 && !fake_work.held[fake_work.held_count - 1])
        fake_work.held_count--;
}

static void cancelled(struct mcp_request *request)
{
    fake_work.cancels++;
    if (fake_work.cancel_answers)
        mcp_reply(request, STR("{\"content\":[],\"late\":true}"));
}

static void work(struct mcp_request *request)
{
    fake_work.handled++;
    snprintf(fake_work.last_method, sizeof fake_work.last_method, "%s", request->message.method);
    if (fake_work.fail) {
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE, "this fails");
        return;
    }
    if (!fake_work.hold || fake_work.held_count == FAKE_HELD_MAX) {
        mcp_reply(request, STR("{\"content\":[]}"));
        return;
    }
    fake_work.held[fake_work.held_count++] = request;
    fake_work.held_ever++;
    request->release = let_go;
    request->cancel = cancelled;
}

void mcp_tools_call(struct mcp_request *request)
{
    work(request);
}

void mcp_forwarded(struct mcp_request *request)
{
    work(request);
}

void mcp_listen(struct mcp_request *request)
{
    work(request);
}

void mcp_set_level(struct mcp_request *request)
{
    request->session->log_level = mcp_log_level(json_get_text(request->message.params, "level"));
    work(request);
}

void mcp_tasks(struct mcp_request *request)
{
    work(request);
}

void mcp_forward_notice(struct mcp_session *session, const struct rpc_message *message)
{
    (void)session;
    fake_work.notices++;
    snprintf(fake_work.last_notice, sizeof fake_work.last_notice, "%s", message->method);
}

bool mcp_forward_offers(struct mcp_door *door, const char *capability)
{
    (void)door;
    for (size_t i = 0; i < sizeof fake_work.offers / sizeof *fake_work.offers && fake_work.offers[i]; i++)
        if (strcmp(fake_work.offers[i], capability) == 0)
            return true;
    return false;
}

void mcp_forward_session_ended(struct mcp_session *session)
{
    (void)session;
    fake_work.sessions_ended++;
}

void mcp_forward_close(struct mcp_door *door)
{
    (void)door;
    fake_work.closed++;
}

void mcp_forward_configured(struct mcp_door *door)
{
    (void)door;
    fake_work.configured++;
}

void mcp_forward_list_changed(struct mcp_door *door, const char *kind)
{
    (void)door;
    fake_work.lists_changed++;
    snprintf(fake_work.last_changed, sizeof fake_work.last_changed, "%s", kind);
}

void mcp_builtin_list(struct mcp_request *request, struct json_out *out)
{
    if (request->session->door->settings.tool_status)
        json_out_raw(out, STR("{\"name\":\"onced_status\",\"inputSchema\":{\"type\":\"object\"}}"));
}

void mcp_calls_end(struct mcp_session *session)
{
    (void)session;
    fake_work.calls_ended++;
}

void mcp_tasks_session_ended(struct mcp_session *session)
{
    (void)session;
}

void mcp_tasks_close(struct mcp_door *door)
{
    (void)door;
}

bool mcp_task_possible(const struct mcp_door *door, const struct tool *tool)
{
    (void)tool;
    return door->settings.tasks && fake_work.tasks_possible;
}

/* ---- the hub ---- */

const struct mcp_listener *mcp_door_attempt_listener(void)
{
    return NULL;
}

void mcp_hub_set_listener(struct mcp_hub *hub, const struct mcp_listener *listener, void *user)
{
    (void)hub, (void)listener, (void)user;
}

size_t mcp_hub_server_count(const struct mcp_hub *hub)
{
    (void)hub;
    return fake_work.has_server ? 1 : 0;
}

struct mcp_server *mcp_hub_server_at(const struct mcp_hub *hub, size_t index)
{
    (void)hub, (void)index;
    return NULL;
}

struct mcp_server_info mcp_server_info(const struct mcp_server *server)
{
    (void)server;
    return (struct mcp_server_info){.name = "files", .forward = true, .instructions = "Paths are absolute."};
}

const char *mcp_tool_key_argument(const struct mcp_tool *tool)
{
    (void)tool;
    return fake_work.hidden;
}

/* ---- a client's end ---- */

static void client_message(struct mcp_sink *sink, struct str message, bool final, int http_status)
{
    struct play_client *client = (struct play_client *)sink;
    char *copy = mem_copy_bytes(message.p, message.n);
    client->after_final += play_client_over(client);
    if (!final) {
        if (client->message_count < sizeof client->messages / sizeof *client->messages)
            client->messages[client->message_count] = copy;
        else
            free(copy);
        client->message_count++;
        return;
    }
    free(client->final);
    client->final = copy;
    client->final_count++;
    client->http_status = http_status;
    if (client->ends)
        mcp_session_end(client->ends);
}

static void client_drop(struct mcp_sink *sink)
{
    struct play_client *client = (struct play_client *)sink;
    client->after_final += play_client_over(client);
    client->drop_count++;
    if (client->ends)
        mcp_session_end(client->ends);
}

static void client_delivers(struct mcp_sink *sink, const struct operation *op)
{
    struct play_client *client = (struct play_client *)sink;
    client->delivers_count++;
    memcpy(client->delivered, op->id, sizeof op->id);
}

static const struct mcp_sink_ops client_ops = {client_message, client_drop, client_delivers};

void play_client_init(struct play_client *client)
{
    *client = (struct play_client){.sink = {.ops = &client_ops}};
}

void play_client_release(struct play_client *client)
{
    for (size_t i = 0; i < sizeof client->messages / sizeof *client->messages; i++)
        free(client->messages[i]);
    free(client->final);
    play_client_init(client);
}

bool play_client_over(const struct play_client *client)
{
    return client->final_count + client->drop_count > 0;
}
