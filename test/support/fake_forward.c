#include "support/fake_forward.h"

#include "base/mem.h"

#include <stdlib.h>

struct fake_forward fake_forward;

void fake_forward_reset(void)
{
    free(fake_forward.task_told);
    fake_forward = (struct fake_forward){0};
}

/* ---- pass-through ---- */

bool mcp_forward_resume(struct mcp_request *request)
{
    if (!fake_forward.resume)
        return false;
    fake_forward.resumed++;
    mcp_reply(request, STR("{\"resumed\":true}"));
    return true;
}

void mcp_forward_tool(struct mcp_request *request, const struct tool *tool, const struct mcp_forward_target *target)
{
    (void)tool;
    snprintf(fake_forward.forwarded, sizeof fake_forward.forwarded, "%s", target->remote_name);
    mcp_reply(request, STR("{\"content\":[],\"forwarded\":true}"));
}

void mcp_forwarded(struct mcp_request *request)
{
    mcp_reply(request, STR("{}"));
}

void mcp_listen(struct mcp_request *request)
{
    mcp_reply(request, STR("{}"));
}

void mcp_set_level(struct mcp_request *request)
{
    mcp_reply(request, STR("{}"));
}

void mcp_forward_notice(struct mcp_session *session, const struct rpc_message *message)
{
    (void)session, (void)message;
}

bool mcp_forward_offers(struct mcp_door *door, const char *capability)
{
    (void)door, (void)capability;
    return false;
}

void mcp_forward_session_ended(struct mcp_session *session)
{
    (void)session;
}

void mcp_forward_close(struct mcp_door *door)
{
    (void)door;
}

void mcp_forward_configured(struct mcp_door *door)
{
    (void)door;
}

void mcp_forward_list_changed(struct mcp_door *door, const char *kind)
{
    (void)door, (void)kind;
}

void mcp_forward_task_changed(struct mcp_door *door, const char *tenant, const char *principal, struct str task_id,
                              struct str params)
{
    (void)door, (void)tenant, (void)principal;
    free(fake_forward.task_told);
    fake_forward.task_told = mem_copy_bytes(params.p, params.n);
    fake_forward.tasks_told++;
    snprintf(fake_forward.task, sizeof fake_forward.task, "%.*s", STR_ARG(task_id));
}

const struct mcp_listener *mcp_door_attempt_listener(void)
{
    return NULL;
}

/* ---- the hub ---- */

void mcp_hub_set_listener(struct mcp_hub *hub, const struct mcp_listener *listener, void *user)
{
    (void)hub, (void)listener, (void)user;
}

size_t mcp_hub_server_count(const struct mcp_hub *hub)
{
    (void)hub;
    return 0;
}

struct mcp_server *mcp_hub_server_at(const struct mcp_hub *hub, size_t index)
{
    (void)hub, (void)index;
    return NULL;
}

struct mcp_server *mcp_hub_find(const struct mcp_hub *hub, const char *name)
{
    (void)hub, (void)name;
    return fake_forward.has_server ? (struct mcp_server *)&fake_forward : NULL; /* never looked into */
}

struct mcp_server_info mcp_server_info(const struct mcp_server *server)
{
    (void)server;
    return (struct mcp_server_info){0};
}

const char *mcp_tool_key_argument(const struct mcp_tool *tool)
{
    (void)tool;
    return fake_forward.key_argument;
}

const char *mcp_tool_remote_name(const struct mcp_tool *tool)
{
    return (const char *)tool; /* tests hang a text there */
}

/* ---- a client's end ---- */

static void hear(struct mcp_sink *sink, struct str message, bool final, int http_status)
{
    struct heard *heard = (struct heard *)sink;
    char *copy = mem_copy_bytes(message.p, message.n);
    if (final) {
        free(heard->final);
        heard->final = copy;
        heard->final_count++;
        heard->http_status = http_status;
    } else if (heard->told_count < HEARD_MAX) {
        heard->told[heard->told_count++] = copy;
    } else {
        free(copy);
    }
}

static void drop(struct mcp_sink *sink)
{
    ((struct heard *)sink)->dropped++;
}

static void delivers(struct mcp_sink *sink, const struct operation *op)
{
    struct heard *heard = (struct heard *)sink;
    heard->delivers++;
    memcpy(heard->delivered, op->id, sizeof heard->delivered);
}

static const struct mcp_sink_ops heard_ops = {.message = hear, .drop = drop, .delivers = delivers};

void heard_init(struct heard *heard)
{
    *heard = (struct heard){.sink = {.ops = &heard_ops}};
}

void heard_release(struct heard *heard)
{
    for (size_t i = 0; i < heard->told_count; i++)
        free(heard->told[i]);
    free(heard->final);
    heard_init(heard);
}
