/* The door and its sessions: who is connected, what onced says of itself, and when a session ends. */
#include "base/mem.h"
#include "door/mcp_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

const struct mcp_settings mcp_settings_default = {
    .tool_status = true,
    .tool_wait = true,
    .tool_plan = true,
    .tool_run_report = true,
    .tool_compensate = true,
    .tasks = true,
    .task_after_ms = 10000,
    .wait_ms_max = 50000,
    .sessions_max = 1000,
    .session_idle_ms = 3600000,
    .calls_max = 256,
    .stream_bytes_max = (size_t)4 * 1024 * 1024,
    .stdio_principal = "local",
    .stdio_tenant = "default",
};

/* ---- sessions ---- */

static void put_id(struct mcp_session *session)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[(MCP_SESSION_ID_SIZE - 1) / 2];
    struct env *env = engine_env(session->door->engine);
    env->random(env, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        session->id[2 * i] = digits[bytes[i] >> 4];
        session->id[2 * i + 1] = digits[bytes[i] & 15];
    }
    session->id_key = arena_copy_text(&session->arena, session->id);
}

struct mcp_session *mcp_session_new(struct mcp_door *door, const char *tenant, const char *principal, enum role role)
{
    if (door->closing)
        return NULL;
    struct mcp_session *session = mem_zero(sizeof *session);
    session->door = door;
    session->number = ++door->next_number;
    snprintf(session->number_text, sizeof session->number_text, "%" PRIu64, session->number);
    arena_init(&session->arena);
    put_id(session);
    session->tenant = arena_copy_text(&session->arena, tenant);
    session->principal = arena_copy_text(&session->arena, principal);
    session->role = role;
    session->log_level = -1;
    session->used_ms = (int64_t)uv_now(door->loop);
    map_init(&session->by_id);
    session->seen = mcp_seen_new();
    map_put(&door->by_id, session->id_key, session);
    map_put(&door->by_number, session->number_text, session);
    session->next = door->sessions;
    session->at = &door->sessions;
    if (session->next)
        session->next->at = &session->next;
    door->sessions = session;
    return session;
}

void mcp_session_limit(struct mcp_session *session, const struct scope *scope)
{
    session->scope = scope_copy(&session->arena, scope);
}

struct mcp_session *mcp_session_find(struct mcp_door *door, const char *id)
{
    return map_get(&door->by_id, id);
}

struct mcp_session *mcp_session_by_number(struct mcp_door *door, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return map_get(&door->by_number, text);
}

void mcp_session_set_sender(struct mcp_session *session, mcp_send_fn *send, void *user)
{
    session->send = send;
    session->send_user = user;
}

void mcp_session_end(struct mcp_session *session)
{
    struct mcp_door *door = session->door;
    if (session->ending)
        return;
    session->ending = true;
    map_remove(&door->by_id, session->id_key);
    mcp_forward_session_ended(session);
    while (session->requests)
        mcp_request_drop(session->requests);
    mcp_asks_end(session);
    mcp_tasks_session_ended(session);
    mcp_calls_end(session);
    map_remove(&door->by_number, session->number_text);
    *session->at = session->next;
    if (session->next)
        session->next->at = session->at;
    if (session->counted)
        door->session_count--;
    if (session->ended)
        session->ended(session, session->send_user);
    mcp_seen_free(session->seen);
    map_release(&session->by_id);
    arena_release(&session->arena);
    free(session);
}

static bool same_caller(const struct mcp_session *a, const struct mcp_session *b)
{
    return text_equal(a->tenant, b->tenant) && text_equal(a->principal, b->principal);
}

/* The one that has had no request for the longest time and waits for none; of this caller, or of anybody. */
static struct mcp_session *idlest(struct mcp_door *door, const struct mcp_session *caller)
{
    struct mcp_session *found = NULL;
    for (struct mcp_session *session = door->sessions; session; session = session->next)
        if (session->counted && session->request_count == 0 && (!caller || same_caller(session, caller)) &&
            (!found || session->used_ms <= found->used_ms))
            found = session;
    return found;
}

/* A place among the sessions_max: a caller that opens many loses its own before those of others. */
static bool find_place(struct mcp_session *session)
{
    struct mcp_door *door = session->door;
    if (session->counted || session->stdio || session->ephemeral)
        return true;
    if (door->session_count >= door->settings.sessions_max) {
        struct mcp_session *old = idlest(door, session);
        if (!old)
            old = idlest(door, NULL);
        if (!old)
            return false;
        mcp_session_end(old);
    }
    session->counted = true;
    door->session_count++;
    return true;
}

static void end_idle(uv_timer_t *timer)
{
    struct mcp_door *door = timer->data;
    int64_t before_ms = (int64_t)uv_now(door->loop) - door->settings.session_idle_ms;
    struct mcp_session *session = door->sessions;
    while (session) {
        bool idle = !session->stdio && !session->ephemeral && session->request_count == 0;
        struct mcp_session *next = session->next;
        if (idle && session->used_ms < before_ms)
            mcp_session_end(session);
        session = next;
    }
}

/* ---- the door ---- */

#define SWEEP_MS_MAX 30000

static void start_sweep(struct mcp_door *door)
{
    int64_t every_ms = door->settings.session_idle_ms / 4 + 1;
    if (every_ms > SWEEP_MS_MAX)
        every_ms = SWEEP_MS_MAX;
    uv_timer_start(door->timer, end_idle, (uint64_t)every_ms, (uint64_t)every_ms);
    uv_unref((uv_handle_t *)door->timer);
}

struct mcp_door *mcp_door_new(const struct mcp_door_options *options)
{
    struct mcp_door *door = mem_zero(sizeof *door);
    door->loop = options->loop;
    door->engine = options->engine;
    door->hub = options->hub;
    door->settings = *options->settings;
    /* A client outlives the process that it speaks with (onced mcp): its late answer to a question of the former one
     * must not fit one of ours. Stays a whole number that any client can hold. */
    struct env *env = engine_env(door->engine);
    door->next_number = (uint64_t)env->now_ms(env) * 1024;
    map_init(&door->by_id);
    map_init(&door->by_number);
    door->timer = mem_zero(sizeof *door->timer);
    uv_timer_init(door->loop, door->timer);
    door->timer->data = door;
    start_sweep(door);
    if (door->hub)
        mcp_hub_set_listener(door->hub, mcp_door_attempt_listener(), door);
    return door;
}

static bool lists_differ(const struct mcp_settings *a, const struct mcp_settings *b)
{
    return a->tool_status != b->tool_status || a->tool_wait != b->tool_wait || a->tool_plan != b->tool_plan ||
           a->tool_run_report != b->tool_run_report || a->tool_compensate != b->tool_compensate ||
           a->output_schema != b->output_schema || a->tasks != b->tasks;
}

void mcp_door_configure(struct mcp_door *door, const struct mcp_settings *settings)
{
    bool other_list = lists_differ(&door->settings, settings);
    door->settings = *settings;
    start_sweep(door);
    mcp_forward_configured(door);
    if (other_list)
        mcp_tell_list_changed(door, "tools");
}

void mcp_door_tools_changed(struct mcp_door *door)
{
    mcp_forward_configured(door); /* servers have come or gone */
    mcp_tell_list_changed(door, "tools");
}

static void free_timer(uv_handle_t *timer)
{
    free(timer);
}

void mcp_door_close(struct mcp_door *door)
{
    if (door->closing)
        return;
    door->closing = true;
    mcp_forward_close(door);
    while (door->sessions)
        mcp_session_end(door->sessions);
    mcp_tasks_close(door);
    if (door->hub)
        mcp_hub_set_listener(door->hub, NULL, NULL);
    uv_close((uv_handle_t *)door->timer, free_timer);
    door->timer = NULL;
}

void mcp_door_free(struct mcp_door *door)
{
    if (!door)
        return;
    mcp_door_close(door);
    map_release(&door->by_id);
    map_release(&door->by_number);
    free(door);
}

/* ---- what onced says of itself ---- */

#define TASKS_VERSION "2025-11-25" /* the first legacy revision that knows tasks */

void mcp_write_server_info(struct json_out *out)
{
    json_out_object(out);
    json_out_member_text(out, "name", "onced");
    json_out_member_text(out, "title", "onced: tool calls that are safe to repeat");
    json_out_member_text(out, "version", ONCED_VERSION);
    json_out_end_object(out);
}

static void write_empty(struct json_out *out, const char *name)
{
    json_out_name(out, name), json_out_object(out);
    json_out_end_object(out);
}

static void write_legacy_tasks(struct json_out *out)
{
    json_out_name(out, "tasks"), json_out_object(out);
    write_empty(out, "list");
    write_empty(out, "cancel");
    json_out_name(out, "requests"), json_out_object(out);
    json_out_name(out, "tools"), json_out_object(out);
    write_empty(out, "call");
    json_out_end_object(out);
    json_out_end_object(out);
    json_out_end_object(out);
}

static void write_capabilities(struct mcp_door *door, enum mcp_era era, const char *version, struct json_out *out)
{
    json_out_object(out);
    json_out_name(out, "tools"), json_out_object(out);
    json_out_member_bool(out, "listChanged", true);
    json_out_end_object(out);
    write_empty(out, "logging");
    if (mcp_forward_offers(door, "resources")) {
        json_out_name(out, "resources"), json_out_object(out);
        if (mcp_forward_offers(door, "resources.subscribe"))
            json_out_member_bool(out, "subscribe", true);
        json_out_member_bool(out, "listChanged", true);
        json_out_end_object(out);
    }
    if (mcp_forward_offers(door, "prompts")) {
        json_out_name(out, "prompts"), json_out_object(out);
        json_out_member_bool(out, "listChanged", true);
        json_out_end_object(out);
    }
    if (mcp_forward_offers(door, "completions"))
        write_empty(out, "completions");
    if (door->settings.tasks && era == MCP_ERA_MODERN) {
        json_out_name(out, "extensions"), json_out_object(out);
        write_empty(out, MCP_EXTENSION_TASKS);
        json_out_end_object(out);
    } else if (door->settings.tasks && strcmp(version, TASKS_VERSION) >= 0) {
        write_legacy_tasks(out);
    }
    json_out_end_object(out);
}

void mcp_write_capabilities(struct mcp_door *door, enum mcp_era era, struct json_out *out)
{
    write_capabilities(door, era, MCP_LEGACY_VERSION, out);
}

#define SERVER_INSTRUCTIONS_BYTES_MAX 4096
#define INSTRUCTIONS_BYTES_MAX        ((size_t)64 * 1024)

static void add_own_instructions(const struct mcp_settings *settings, struct buf *text)
{
    buf_add_text(text,
                 "Each tool call that changes something runs at most once per intent. If you are not sure that a "
                 "call went through, make the same call again with the same arguments: you get the outcome of the "
                 "first one, and nothing runs twice. Read next_action in the result: use_result, wait, "
                 "do_not_retry, fix_arguments or ask_human. While it says wait, do not send the call in other "
                 "words");
    if (settings->tool_status || settings->tool_wait)
        buf_printf(text, "; ask %s%s%s with its operation_id", settings->tool_status ? "onced_status" : "",
                   settings->tool_status && settings->tool_wait ? " or " : "", settings->tool_wait ? "onced_wait" : "");
    buf_add_text(text, ". Set repeat_of (the operation_id that a result named) only to do the same thing once more on "
                       "purpose, never for a retry. Set distinct_from only when a call was held back because of an "
                       "unresolved one and yours is another intent.");
}

/* Cut at a whole character. */
static struct str clipped(const char *text, size_t bytes_max)
{
    struct str s = str_of(text);
    if (s.n <= bytes_max)
        return s;
    for (s.n = bytes_max; s.n > 0 && ((unsigned char)s.p[s.n] & 0xC0) == 0x80;)
        s.n--;
    return s;
}

static void write_instructions(struct mcp_door *door, struct json_out *out)
{
    struct buf text;
    buf_init(&text, 0);
    if (door->settings.instructions)
        buf_add_text(&text, door->settings.instructions);
    else
        add_own_instructions(&door->settings, &text);
    for (size_t i = 0; door->hub && i < mcp_hub_server_count(door->hub) && text.n < INSTRUCTIONS_BYTES_MAX; i++) {
        struct mcp_server_info info = mcp_server_info(mcp_hub_server_at(door->hub, i));
        if (!info.forward || !info.instructions || !*info.instructions)
            continue;
        buf_printf(&text, "\n\n%s: ", info.name);
        buf_add_str(&text, clipped(info.instructions, SERVER_INSTRUCTIONS_BYTES_MAX));
    }
    json_out_name(out, "instructions"), json_out_str(out, buf_str(&text));
    buf_release(&text);
}

static const char *negotiated(struct str wanted)
{
    static const char *const known[] = {MCP_LEGACY_VERSION, "2025-06-18", "2025-03-26"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_is(wanted, known[i]))
            return known[i];
    return MCP_LEGACY_VERSION;
}

#define CLIENT_BYTES_MAX ((size_t)64 * 1024) /* of what a client says of itself */

/* A member of initialize's params that is kept; *out NULL when absent. False: refused. */
static bool keep_object(struct mcp_request *request, const char *name, const struct json **out)
{
    const struct json *value = json_get(request->message.params, name);
    *out = NULL;
    if (!value)
        return true;
    if (value->type != JSON_OBJECT) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.%s is not an object", name);
        return false;
    }
    struct buf text;
    buf_init(&text, CLIENT_BYTES_MAX);
    json_write(&text, value);
    bool over = text.over;
    buf_release(&text);
    if (over) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.%s is longer than %zu bytes", name,
                        CLIENT_BYTES_MAX);
        return false;
    }
    *out = value;
    return true;
}

/* False: refused. */
static bool begin(struct mcp_request *request)
{
    struct mcp_session *session = request->session;
    struct str wanted = json_get_text(request->message.params, "protocolVersion");
    const struct json *capabilities, *client;
    if (session->initialized) {
        mcp_reply_error_status(request, 400, RPC_INVALID_REQUEST, STR_NONE, "this session is initialized already");
        return false;
    }
    if (!wanted.p) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.protocolVersion must be a string");
        return false;
    }
    if (!keep_object(request, "capabilities", &capabilities) || !keep_object(request, "clientInfo", &client))
        return false;
    if (!find_place(session)) {
        mcp_reply_error_status(request, 503, MCP_BUSY, STR_NONE,
                               "%zu sessions are open and all have requests under way; nothing was done, try later",
                               session->door->session_count);
        return false;
    }
    session->capabilities = capabilities ? json_copy(&session->arena, capabilities) : json_object(&session->arena);
    session->client_info = client ? json_copy(&session->arena, client) : NULL;
    snprintf(session->version, sizeof session->version, "%s", negotiated(wanted));
    session->initialized = true;
    return true;
}

void mcp_initialize(struct mcp_request *request)
{
    if (!begin(request))
        return;
    struct mcp_session *session = request->session;
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "protocolVersion", session->version);
    json_out_name(&out, "capabilities");
    write_capabilities(session->door, MCP_ERA_LEGACY, session->version, &out);
    json_out_name(&out, "serverInfo");
    mcp_write_server_info(&out);
    write_instructions(session->door, &out);
    json_out_end_object(&out);
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}

void mcp_discover(struct mcp_request *request)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "resultType", "complete");
    json_out_name(&out, "supportedVersions"), json_out_array(&out);
    json_out_text(&out, MCP_MODERN_VERSION);
    json_out_end_array(&out);
    json_out_name(&out, "capabilities");
    mcp_write_capabilities(request->session->door, MCP_ERA_MODERN, &out);
    write_instructions(request->session->door, &out);
    json_out_member_int(&out, "ttlMs", 0);
    json_out_member_text(&out, "cacheScope", "private");
    json_out_name(&out, "_meta"), json_out_object(&out);
    json_out_name(&out, MCP_META_SERVER);
    mcp_write_server_info(&out);
    json_out_end_object(&out);
    json_out_end_object(&out);
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}
