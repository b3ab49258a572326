#include "support/fake_tools.h"

static struct fake_tools *current;

void fake_tools_init(struct fake_tools *fake)
{
    *fake = (struct fake_tools){0};
    arena_init(&fake->arena);
    snprintf(fake->operation.id, sizeof fake->operation.id, "op_01J00000000000000000000001");
    fake->operation.key_source = KEY_SOURCE_REPEAT;
    fake->operation.state = STATE_COMPLETED_SUCCESS;
    current = fake;
}

void fake_tools_release(struct fake_tools *fake)
{
    arena_release(&fake->arena);
    current = NULL;
}

/* ---- tools ---- */

static void let_go(struct mcp_request *request)
{
    current->released++;
    for (size_t i = 0; i < current->held_count; i++) {
        if (current->held[i] != request)
            continue;
        current->held_count--;
        memmove(current->held + i, current->held + i + 1, (current->held_count - i) * sizeof *current->held);
        return;
    }
}

static void cancel(struct mcp_request *request)
{
    (void)request;
    current->cancelled++;
}

static void note_away(struct mcp_request *request, bool away)
{
    (void)request;
    current->away = away;
}

static void hold(struct mcp_request *request)
{
    if (current->held_count == FAKE_HELD_MAX) {
        mcp_reply_error(request, MCP_BUSY, STR_NONE, "too many for the test");
        return;
    }
    request->release = let_go;
    request->cancel = cancel;
    request->away = note_away;
    current->held[current->held_count++] = request;
}

static void note(struct mcp_request *request)
{
    const struct mcp_facts *facts = &request->facts;
    current->calls++;
    arena_reset(&current->arena);
    current->facts = (struct mcp_facts){.http = facts->http,
                                        .idempotency_key = arena_str(&current->arena, facts->idempotency_key),
                                        .run_id = arena_str(&current->arena, facts->run_id),
                                        .step_id = arena_str(&current->arena, facts->step_id),
                                        .traceparent = arena_str(&current->arena, facts->traceparent)};
    snprintf(current->principal, sizeof current->principal, "%s", request->session->principal);
    snprintf(current->tenant, sizeof current->tenant, "%s", request->session->tenant);
    current->era = request->era;
}

static void echo(struct mcp_request *request)
{
    struct buf text;
    const struct json *arguments = json_get(request->message.params, "arguments");
    buf_init(&text, 0);
    buf_add_text(&text, "{\"content\":[],\"echo\":");
    if (arguments)
        json_write(&text, arguments);
    else
        buf_add_text(&text, "null");
    buf_add_text(&text, "}");
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}

void mcp_tools_call(struct mcp_request *request)
{
    struct str name = json_get_text(request->message.params, "name");
    note(request);
    if (str_is(name, "now")) {
        echo(request);
    } else if (str_is(name, "hold")) {
        hold(request);
    } else if (str_is(name, "progress")) {
        hold(request);
        mcp_notify(request, "notifications/progress", STR("{\"progress\":1}"));
    } else if (str_is(name, "deliver")) {
        mcp_request_set_delivery(request, &current->operation);
        mcp_reply(request, STR("{\"content\":[]}"));
    } else if (str_is(name, "incapable")) {
        mcp_reply_error(request, MCP_MISSING_CAPABILITY, STR("{\"requiredCapabilities\":{\"sampling\":{}}}"),
                        "needs sampling");
    } else {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "no such tool");
    }
}

bool fake_tools_answer(struct fake_tools *fake, struct str result, bool delivers)
{
    if (fake->held_count == 0)
        return false;
    struct mcp_request *request = fake->held[0];
    if (delivers)
        mcp_request_set_delivery(request, &fake->operation);
    mcp_reply(request, result);
    return true;
}

bool fake_tools_tell(struct fake_tools *fake, struct str params)
{
    if (fake->held_count == 0)
        return false;
    mcp_notify(fake->held[0], "notifications/progress", params);
    return true;
}

void mcp_calls_end(struct mcp_session *session)
{
    (void)session;
}

/* ---- tasks, built-in tools ---- */

void mcp_tasks(struct mcp_request *request)
{
    mcp_reply(request, STR("{}"));
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
    (void)door, (void)tool;
    return false;
}

void mcp_builtin_list(struct mcp_request *request, struct json_out *out)
{
    (void)request, (void)out;
}

/* ---- downstream servers: none, but every capability is there ---- */

bool mcp_forward_offers(struct mcp_door *door, const char *capability)
{
    (void)door, (void)capability;
    return true;
}

void mcp_forwarded(struct mcp_request *request)
{
    mcp_reply(request, STR("{\"contents\":[]}"));
}

void mcp_listen(struct mcp_request *request)
{
    mcp_notify(request, "notifications/subscriptions/acknowledged", STR("{\"notifications\":{}}"));
    hold(request);
}

void mcp_set_level(struct mcp_request *request)
{
    mcp_reply(request, STR("{}"));
}

void mcp_forward_notice(struct mcp_session *session, const struct rpc_message *message)
{
    (void)session, (void)message;
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

const struct mcp_listener *mcp_door_attempt_listener(void)
{
    return NULL;
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

void mcp_hub_set_listener(struct mcp_hub *hub, const struct mcp_listener *listener, void *user)
{
    (void)hub, (void)listener, (void)user;
}

struct mcp_server_info mcp_server_info(const struct mcp_server *server)
{
    (void)server;
    return (struct mcp_server_info){.name = ""};
}

const char *mcp_tool_key_argument(const struct mcp_tool *tool)
{
    (void)tool;
    return NULL;
}
