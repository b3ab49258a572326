#include "support/mcp_case.h"

#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void on_changed(void *user)
{
    struct mcp_case *mcp = user;
    mcp->catalog_changes++;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

void mcp_case_begin(struct mcp_case *mcp)
{
    *mcp = (struct mcp_case){0};
    signal(SIGPIPE, SIG_IGN);
    arena_init(&mcp->arena);
    assert_int_equal(uv_loop_init(&mcp->loop), 0);
    struct mcp_hub_options options = {
        .loop = &mcp->loop, .env = env_system(), .catalog_changed = on_changed, .user = mcp};
    assert_int_equal(mcp_hub_new(&options, &mcp->hub, NULL), ERR_NONE);
    mcp->hub->pace.term_ms = 300;
    mcp->hub->pace.kill_ms = 300;
    uv_timer_init(&mcp->loop, &mcp->ticker);
    uv_timer_start(&mcp->ticker, on_tick, 5, 5);
}

static void on_closed(void *user)
{
    struct mcp_case *mcp = user;
    mcp->closed = true;
}

static bool is_closed(void *user)
{
    const struct mcp_case *mcp = user;
    return mcp->closed;
}

void mcp_case_end(struct mcp_case *mcp)
{
    mcp_hub_close(mcp->hub, on_closed, mcp);
    assert_true(mcp_case_wait(mcp, is_closed, mcp));
    uv_close((uv_handle_t *)&mcp->ticker, NULL);
    uv_run(&mcp->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&mcp->loop), 0); /* nothing left a handle behind */
    registry_unref(mcp->registry);
    arena_release(&mcp->arena);
}

/* ---- the registry ---- */

/* The tests lie in test/unit of the build folder, the server in test/support. */
static const char *server_path(struct arena *arena)
{
    char own[4096];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(n > 0);
    own[n] = '\0';
    *strrchr(own, '/') = '\0';
    return arena_printf(arena, "%s/../support/scripted-mcp-server", own);
}

static char *quoted_text(struct arena *arena, const char *section)
{
    const char *server = server_path(arena);
    struct buf text;
    buf_init(&text, 0);
    for (const char *at = section; *at;) {
        if (strncmp(at, "SERVER", 6) == 0) {
            buf_add_text(&text, server);
            at += 6;
        } else {
            buf_add_char(&text, *at == '\'' ? '"' : *at);
            at++;
        }
    }
    char *out = arena_copy_text(arena, text.p);
    buf_release(&text);
    return out;
}

struct owned {
    struct arena arena;
    struct mcp_provider *sections[8];
    size_t count;
};

static void destroy(void *owner)
{
    struct owned *owned = owner;
    for (size_t i = 0; i < owned->count; i++)
        mcp_provider_free(owned->sections[i]);
    arena_release(&owned->arena);
    free(owned);
}

static const struct provider *compile(struct owned *owned, const char *name, const char *section)
{
    struct provider *provider = arena_zero(&owned->arena, sizeof *provider);
    struct problems problems;
    struct json *tree;
    struct err err = {0};
    problems_init(&problems, &owned->arena);
    if (json_parse(&owned->arena, str_of(quoted_text(&owned->arena, section)), NULL, &tree, &err) != ERR_NONE)
        fail_msg("%s", err.text);
    provider->name = name;
    provider->kind = PROVIDER_MCP;
    struct mcp_provider *compiled = mcp_provider_new(tree, "", provider, &problems);
    if (!compiled)
        fail_msg("%s: %s", problems.items[0].pointer, problems.items[0].text);
    provider->adapter_provider = compiled;
    owned->sections[owned->count++] = compiled;
    return provider;
}

void mcp_case_apply(struct mcp_case *mcp, ...)
{
    struct owned *owned = calloc(1, sizeof *owned);
    const struct provider *providers[8];
    struct registry *registry;
    const char *name;
    va_list args;
    arena_init(&owned->arena);
    va_start(args, mcp);
    while ((name = va_arg(args, const char *))) {
        const char *section = va_arg(args, const char *);
        providers[owned->count] = NULL;
        size_t at = owned->count;
        providers[at] = compile(owned, name, section);
    }
    va_end(args);
    assert_int_equal(registry_new(NULL, 0, providers, owned->count, "1", destroy, owned, &registry, NULL), ERR_NONE);
    mcp_hub_apply(mcp->hub, registry);
    registry_unref(mcp->registry);
    mcp->registry = registry;
}

struct mcp_server *mcp_case_server(struct mcp_case *mcp, const char *name)
{
    struct mcp_server *server = mcp_hub_find(mcp->hub, name);
    assert_non_null(server);
    return server;
}

/* ---- time ---- */

bool mcp_case_wait(struct mcp_case *mcp, bool (*holds)(void *user), void *user)
{
    uint64_t end = uv_hrtime() + UINT64_C(10000000000);
    while (!holds(user)) {
        if (uv_hrtime() > end)
            return false;
        uv_run(&mcp->loop, UV_RUN_ONCE);
    }
    return true;
}

struct state_of {
    struct mcp_case *mcp;
    const char *name;
    enum mcp_server_state state;
};

static bool has_state(void *user)
{
    const struct state_of *wanted = user;
    return mcp_server_info(mcp_case_server(wanted->mcp, wanted->name)).state == wanted->state;
}

bool mcp_case_wait_state(struct mcp_case *mcp, const char *name, enum mcp_server_state state)
{
    return mcp_case_wait(mcp, has_state, &(struct state_of){mcp, name, state});
}

static bool is_settled(void *user)
{
    const struct mcp_case *mcp = user;
    return mcp_hub_settled(mcp->hub);
}

bool mcp_case_wait_settled(struct mcp_case *mcp)
{
    return mcp_case_wait(mcp, is_settled, mcp);
}

static bool is_over(void *user)
{
    const uint64_t *end = user;
    return uv_hrtime() > *end;
}

void mcp_case_turn(struct mcp_case *mcp, int64_t ms)
{
    uint64_t end = uv_hrtime() + (uint64_t)ms * 1000000;
    mcp_case_wait(mcp, is_over, &end);
}

/* ---- requests ---- */

static const char *value_text(struct arena *arena, const struct json *value)
{
    struct buf text;
    if (!value)
        return NULL;
    buf_init(&text, 0);
    json_write(&text, value);
    const char *out = arena_copy_str(arena, buf_str(&text));
    buf_release(&text);
    return out;
}

static void on_done(void *user, const struct mcp_outcome *outcome)
{
    struct mcp_reply *reply = user;
    struct arena *arena = &reply->mcp->arena;
    const struct rpc_message *message = outcome->message;
    reply->count++;
    reply->end = outcome->end;
    reply->sent = outcome->sent;
    reply->text = arena_copy_text(arena, outcome->text ? outcome->text : "");
    if (outcome->end != MCP_ANSWERED)
        return;
    assert_non_null(message);
    if (message->kind == RPC_ERROR) {
        reply->code = message->code;
        return;
    }
    reply->result = value_text(arena, message->result);
    const struct json *content = json_get(message->result, "content");
    if (content && content->count > 0)
        reply->words = arena_copy_str(arena, json_get_text(&content->items[0], "text"));
}

struct mcp_pending *mcp_case_request(struct mcp_case *mcp, struct mcp_link *link, const char *method,
                                     const char *params, int64_t timeout_ms, struct mcp_reply *reply)
{
    *reply = (struct mcp_reply){.mcp = mcp};
    struct mcp_request_options options = {.method = method, .timeout_ms = timeout_ms, .done = on_done, .user = reply};
    if (params)
        options.params = str_of(quoted_text(&mcp->arena, params));
    struct mcp_pending *pending = mcp_link_request(link, &options);
    assert_int_equal(reply->count, 0); /* never from within */
    return pending;
}

static bool is_done(void *user)
{
    const struct mcp_reply *reply = user;
    return reply->count > 0;
}

bool mcp_case_wait_reply(struct mcp_case *mcp, struct mcp_reply *reply)
{
    return mcp_case_wait(mcp, is_done, reply);
}

void mcp_case_call(struct mcp_case *mcp, struct mcp_link *link, const char *tool, const char *arguments,
                   struct mcp_reply *reply)
{
    const char *params = arena_printf(&mcp->arena, "{'name':'%s','arguments':%s}", tool, arguments ? arguments : "{}");
    mcp_case_request(mcp, link, "tools/call", params, 9000, reply);
    assert_true(mcp_case_wait_reply(mcp, reply));
}

/* ---- listeners ---- */

static void hear(struct mcp_heard *heard, const struct mcp_related *related, const struct rpc_message *message)
{
    snprintf(heard->last_method, sizeof heard->last_method, "%s", message->method);
    heard->last_params = value_text(&heard->mcp->arena, message->params);
    heard->last_user = related->user;
    heard->last_origin = related->origin;
}

static void on_notified(void *user, struct mcp_link *link, const struct mcp_related *related,
                        const struct rpc_message *message)
{
    struct mcp_heard *heard = user;
    (void)link;
    heard->notified++;
    hear(heard, related, message);
}

static void on_asked(void *user, struct mcp_link *link, const struct mcp_related *related,
                     const struct rpc_message *message, struct mcp_question *question)
{
    struct mcp_heard *heard = user;
    (void)link;
    heard->asked++;
    hear(heard, related, message);
    if (heard->answer)
        mcp_answer(question, str_of(heard->answer), 0, STR_NONE);
    else
        heard->question = question;
}

static void on_withdrawn(void *user, struct mcp_link *link, struct mcp_question *question)
{
    struct mcp_heard *heard = user;
    (void)link;
    heard->withdrawn++;
    if (heard->question == question)
        heard->question = NULL;
}

static void on_lost(void *user, struct mcp_link *link, const char *why)
{
    struct mcp_heard *heard = user;
    (void)link;
    heard->lost++;
    heard->why = arena_copy_text(&heard->mcp->arena, why);
}

const struct mcp_listener mcp_case_listener = {on_notified, on_asked, on_withdrawn, on_lost};

struct mcp_link *mcp_case_open(struct mcp_case *mcp, const char *server, struct mcp_heard *heard,
                               const struct mcp_link_options *options)
{
    struct mcp_link_options all = options ? *options : (struct mcp_link_options){.era = MCP_ERA_ANY};
    struct err err = {0};
    *heard = (struct mcp_heard){.mcp = mcp, .answer = heard->answer};
    all.listener = &mcp_case_listener;
    all.user = heard;
    struct mcp_link *link = mcp_link_open(mcp_case_server(mcp, server), &all, &err);
    if (!link)
        fail_msg("%s", err.text);
    return link;
}
