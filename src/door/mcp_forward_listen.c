/* Subscriptions: listen streams of modern clients (subscriptions/listen), resources/subscribe of legacy ones, and what
 * is passed down for them: each resource once per connection, however many follow it.
 *
 *   listen stream ──┐                            ┌─ legacy server: resources/subscribe
 *   legacy session ─┴─► follower ─► watch (URI) ─┴─ modern server: a listen stream of ours
 */
#include "door/mcp_forward.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

#define RETRY_MS 2000 /* a lost subscription is made again */

/* A listen stream of a client. Lives in the request's arena. */
struct listen {
    struct listen *next, **at; /* of passing */
    struct passing *passing;
    struct mcp_request *request;
    bool tools, prompts, resources, updates; /* what is honoured */
    struct follower *followers;
    size_t follower_count;
    struct str *tasks;
    size_t task_count;
};

/* ---- watches ---- */

static void watch_start(struct watch_uri *watch);

static void watch_stop(struct watch_uri *watch)
{
    struct lane *lane = watch->lane;
    if (watch->listen) {
        struct errand *errand = watch->listen;
        watch->listen = NULL;
        errand_abandon(errand, "nobody listens any more");
    } else if (watch->subscribed && lane) {
        struct buf params;
        buf_init(&params, 0);
        buf_add_text(&params, "{\"uri\":");
        json_write_string(&params, str_of(watch->uri));
        buf_add_char(&params, '}');
        errand_send(lane, NULL, "resources/unsubscribe", buf_str(&params), NULL, NULL, NULL);
        buf_release(&params);
    }
    watch->subscribed = false;
}

static void watch_leave_lane(struct watch_uri *watch)
{
    if (watch->lane)
        watch->lane->watch_count--;
    watch->lane = NULL;
}

static void watch_free(struct watch_uri *watch)
{
    watch_stop(watch);
    watch_leave_lane(watch);
    *watch->at = watch->next;
    if (watch->next)
        watch->next->at = watch->at;
    watch->passing->watch_count--;
    free(watch->server);
    free(watch->uri);
    free(watch);
}

static struct watch_uri *watch_get(struct lane *lane, struct str uri)
{
    struct passing *passing = lane->passing;
    for (struct watch_uri *watch = passing->watches; watch; watch = watch->next)
        if (watch->lane == lane && str_is(uri, watch->uri))
            return watch;
    if (passing->watch_count >= FORWARD_WATCHES_MAX)
        return NULL;
    struct watch_uri *watch = mem_zero(sizeof *watch);
    *watch = (struct watch_uri){.passing = passing,
                                .lane = lane,
                                .server = mem_copy_text(lane->server),
                                .uri = mem_copy_bytes(uri.p, uri.n),
                                .next = passing->watches,
                                .at = &passing->watches};
    if (watch->next)
        watch->next->at = &watch->next;
    passing->watches = watch;
    passing->watch_count++;
    lane->watch_count++;
    passing_keep_ticking(passing);
    return watch;
}

static void unfollow(struct follower *follower)
{
    struct watch_uri *watch = follower->watch;
    *follower->at = follower->next;
    if (follower->next)
        follower->next->at = follower->at;
    *follower->own_at = follower->own_next;
    if (follower->own_next)
        follower->own_next->own_at = follower->own_at;
    if (follower->session)
        follower->session->forward->follower_count--;
    else
        follower->listen->follower_count--;
    free(follower);
    if (!watch->followers)
        watch_free(watch);
}

static void follow(struct watch_uri *watch, struct mcp_session *session, struct listen *listen)
{
    struct follower *follower = mem_zero(sizeof *follower);
    struct follower **own = session ? &forward_of(session)->followers : &listen->followers;
    *follower = (struct follower){.next = watch->followers,
                                  .at = &watch->followers,
                                  .own_next = *own,
                                  .own_at = own,
                                  .watch = watch,
                                  .session = session,
                                  .listen = listen};
    if (follower->next)
        follower->next->at = &follower->next;
    if (follower->own_next)
        follower->own_next->own_at = &follower->own_next;
    watch->followers = *own = follower;
    if (session)
        session->forward->follower_count++;
    else
        listen->follower_count++;
}

static void listen_ended(struct errand *errand, const struct mcp_outcome *outcome)
{
    (void)outcome;
    struct watch_uri *watch = errand->watch;
    if (!watch)
        return;
    watch->listen = NULL;
    watch->retry_ms = passing_now_ms(watch->passing) + RETRY_MS;
}

static void write_uri_params(struct buf *out, const struct watch_uri *watch, bool modern)
{
    buf_init(out, 0);
    buf_add_text(out, modern ? "{\"notifications\":{\"resourceSubscriptions\":[" : "{\"uri\":");
    json_write_string(out, str_of(watch->uri));
    buf_add_text(out, modern ? "]}}" : "}");
}

/* Our own stream at a modern server. */
static bool watch_listen(struct watch_uri *watch)
{
    struct buf params;
    write_uri_params(&params, watch, true);
    watch->listen = errand_send(watch->lane, NULL, "subscriptions/listen", buf_str(&params), listen_ended, NULL, NULL);
    if (watch->listen)
        watch->listen->watch = watch;
    buf_release(&params);
    return watch->listen != NULL;
}

static void subscribed(struct errand *errand, const struct mcp_outcome *outcome)
{
    struct watch_uri *watch = errand->watch;
    if (!watch)
        return;
    watch->listen = NULL;
    watch->subscribed = outcome->end == MCP_ANSWERED && outcome->message->kind == RPC_RESULT;
    if (watch->subscribed)
        return;
    bool refused = outcome->end == MCP_ANSWERED && !(watch->lane && lane_modern(watch->lane));
    watch->retry_ms = refused ? INT64_MAX : passing_now_ms(watch->passing) + RETRY_MS;
    if (refused)
        log_message(LOG_INFO, "mcp_subscription_refused", "server \"%s\", resource \"%s\": %.*s", watch->server,
                    watch->uri, STR_ARG(outcome->message->message));
}

static void watch_start(struct watch_uri *watch)
{
    if (watch->subscribed || watch->listen || !watch->lane)
        return;
    bool sent;
    if (lane_modern(watch->lane)) {
        sent = watch_listen(watch);
    } else {
        struct buf params;
        write_uri_params(&params, watch, false);
        watch->listen = errand_send(watch->lane, NULL, "resources/subscribe", buf_str(&params), subscribed, NULL, NULL);
        if (watch->listen)
            watch->listen->watch = watch;
        buf_release(&params);
        sent = watch->listen != NULL;
    }
    if (!sent)
        watch->retry_ms = passing_now_ms(watch->passing) + RETRY_MS;
}

void watch_lane_gone(struct lane *lane)
{
    for (struct watch_uri *watch = lane->passing->watches; watch && lane->watch_count > 0; watch = watch->next) {
        if (watch->lane != lane)
            continue;
        if (watch->listen) {
            watch->listen->watch = NULL;
            watch->listen->done = NULL;
            watch->listen = NULL;
        }
        watch->subscribed = false;
        watch->retry_ms = passing_now_ms(lane->passing) + RETRY_MS;
        watch_leave_lane(watch);
    }
}

void watch_session_ended(struct mcp_session *session)
{
    while (session->forward->followers)
        unfollow(session->forward->followers);
}

/* The lane on which a client subscribes: where the connection is shared, the subscription is, too. */
static struct lane *subscription_lane(struct mcp_session *session, struct mcp_request *request,
                                      struct mcp_server *server, struct err *err)
{
    if (!mcp_server_info(server).per_client)
        return lane_common(passing_of(session->door), server, err);
    return session->ephemeral || request ? lane_for(request, server, err) : lane_of_session(session, server, err);
}

/* A watch whose connection was lost gets another. */
static void watch_again(struct watch_uri *watch, int64_t now_ms)
{
    watch->retry_ms = now_ms + RETRY_MS;
    struct follower *follower = watch->followers;
    struct mcp_hub *hub = watch->passing->door->hub;
    struct mcp_server *server = hub ? mcp_hub_find(hub, watch->server) : NULL;
    if (!watch->lane && server && follower && mcp_server_info(server).state == MCP_SERVER_READY) {
        struct mcp_request *request = follower->listen ? follower->listen->request : NULL;
        struct mcp_session *session = request ? request->session : follower->session;
        watch->lane = subscription_lane(session, request, server, NULL);
        if (watch->lane)
            watch->lane->watch_count++;
    }
    watch_start(watch);
}

/* ---- news ---- */

static bool concerns(const struct watch_uri *watch, struct str uri)
{
    size_t n = strlen(watch->uri);
    if (uri.n < n || memcmp(uri.p, watch->uri, n) != 0)
        return false;
    /* the same, or a part of it: servers may tell of those */
    return uri.n == n || (n > 0 && watch->uri[n - 1] == '/') || strchr("/#?", uri.p[n]);
}

static void write_subscription(struct buf *out, const struct listen *listen)
{
    buf_add_text(out, "{\"_meta\":{\"" MCP_META_SUBSCRIPTION "\":");
    buf_add_str(out, listen->request->message.id);
    buf_add_char(out, '}');
}

static void tell_listen(struct listen *listen, const struct rpc_message *message)
{
    struct buf params;
    buf_init(&params, 0);
    write_subscription(&params, listen);
    for (uint32_t i = 0; i < message->params->count; i++) {
        const struct json_member *member = &message->params->members[i];
        if (str_is(member->name, "_meta"))
            continue;
        buf_add_char(&params, ',');
        json_write_string(&params, member->name);
        buf_add_char(&params, ':');
        json_write(&params, &member->value);
    }
    buf_add_char(&params, '}');
    mcp_notify(listen->request, message->method, buf_str(&params));
    buf_release(&params);
}

static void tell_session(struct mcp_session *session, const struct rpc_message *message)
{
    struct buf params;
    bool first = true;
    buf_init(&params, 0);
    for (uint32_t i = 0; i < message->params->count; i++) {
        const struct json_member *member = &message->params->members[i];
        if (str_is(member->name, "_meta") && json_get(&member->value, MCP_META_SUBSCRIPTION))
            continue; /* of our own stream */
        buf_add_char(&params, first ? '{' : ',');
        first = false;
        json_write_string(&params, member->name);
        buf_add_char(&params, ':');
        json_write(&params, &member->value);
    }
    buf_add_text(&params, first ? "{}" : "}");
    mcp_legacy_notify(session, message->method, buf_str(&params));
    buf_release(&params);
}

void watch_updated(struct lane *lane, struct errand *errand, const struct rpc_message *message)
{
    struct str uri = json_get_text(message->params, "uri");
    if (!uri.p)
        return;
    for (struct watch_uri *watch = lane->passing->watches; watch; watch = watch->next) {
        if (watch->lane != lane || !(errand && errand->watch ? errand->watch == watch : concerns(watch, uri)))
            continue;
        for (struct follower *follower = watch->followers, *next; follower; follower = next) {
            next = follower->next;
            if (follower->session)
                tell_session(follower->session, message);
            else
                tell_listen(follower->listen, message);
        }
    }
}

void listens_tell_changed(struct passing *passing, const char *kind)
{
    for (struct listen *listen = passing->listens, *next; listen; listen = next) {
        next = listen->next;
        bool wanted = strcmp(kind, "tools") == 0     ? listen->tools
                      : strcmp(kind, "prompts") == 0 ? listen->prompts
                                                     : listen->resources;
        if (!wanted)
            continue;
        char method[64];
        struct buf params;
        snprintf(method, sizeof method, "notifications/%s/list_changed", kind);
        buf_init(&params, 0);
        write_subscription(&params, listen);
        buf_add_char(&params, '}');
        mcp_notify(listen->request, method, buf_str(&params));
        buf_release(&params);
    }
}

void mcp_forward_list_changed(struct mcp_door *door, const char *kind)
{
    if (door->passing)
        listens_tell_changed(door->passing, kind);
}

void mcp_forward_task_changed(struct mcp_door *door, const char *tenant, const char *principal, struct str task_id,
                              struct str params)
{
    for (struct listen *listen = door->passing ? door->passing->listens : NULL, *next; listen; listen = next) {
        next = listen->next;
        const struct mcp_session *session = listen->request->session;
        bool named = false;
        for (size_t i = 0; i < listen->task_count; i++)
            named = named || str_equal(listen->tasks[i], task_id);
        if (!named || !text_equal(session->tenant, tenant) || !text_equal(session->principal, principal))
            continue;
        struct buf text;
        buf_init(&text, 0);
        write_subscription(&text, listen);
        buf_add_char(&text, ',');
        buf_add(&text, params.p + 1, params.n - 1);
        mcp_notify(listen->request, "notifications/tasks", buf_str(&text));
        buf_release(&text);
    }
}

/* ---- listen streams ---- */

static void listen_release(struct mcp_request *request)
{
    struct listen *listen = request->user;
    while (listen->followers)
        unfollow(listen->followers);
    *listen->at = listen->next;
    if (listen->next)
        listen->next->at = listen->at;
    listen->passing->listen_count--;
}

/* The graceful end: the client is to come again if it wants to. */
static void listen_end(struct listen *listen)
{
    struct buf text;
    buf_init(&text, 0);
    write_subscription(&text, listen);
    buf_add_text(&text, ",\"resultType\":\"complete\"}");
    mcp_reply(listen->request, buf_str(&text));
    buf_release(&text);
}

void listens_end_all(struct passing *passing)
{
    while (passing->listens)
        listen_end(passing->listens);
}

static bool wants(const struct json *wanted, const char *name, bool offered)
{
    return offered && json_get_bool(wanted, name, false);
}

/* What of the client's wish is honoured, now. */
static void listen_judge(struct listen *listen, const struct json *wanted)
{
    struct mcp_door *door = listen->request->session->door;
    const struct json *uris = json_get(wanted, "resourceSubscriptions");
    listen->tools = wants(wanted, "toolsListChanged", true);
    listen->prompts = wants(wanted, "promptsListChanged", mcp_forward_offers(door, "prompts"));
    listen->resources = wants(wanted, "resourcesListChanged", mcp_forward_offers(door, "resources"));
    listen->updates =
        uris && uris->type == JSON_ARRAY && uris->count > 0 && mcp_forward_offers(door, "resources.subscribe");
}

/* The resource at every server that may have it. */
static void listen_follow(struct listen *listen, struct str uri)
{
    struct mcp_request *request = listen->request;
    struct mcp_server *servers[FORWARD_SERVERS_MAX];
    size_t count = forward_servers(request->session->door, "resources.subscribe", servers, FORWARD_SERVERS_MAX);
    const char *known = count > 1 ? route_find(listen->passing, ROUTE_URI, uri) : NULL;
    for (size_t i = 0; i < count && listen->follower_count < FORWARD_URIS_MAX; i++) {
        if (known && strcmp(mcp_server_info(servers[i]).name, known) != 0)
            continue;
        struct lane *lane = subscription_lane(request->session, request, servers[i], NULL);
        struct watch_uri *watch = lane ? watch_get(lane, uri) : NULL;
        if (!watch)
            continue;
        follow(watch, NULL, listen);
        watch_start(watch);
    }
}

static void listen_acknowledge(struct listen *listen, const struct json *wanted)
{
    struct buf text;
    struct json_out out;
    const struct json *uris = json_get(wanted, "resourceSubscriptions");
    buf_init(&text, 0);
    write_subscription(&text, listen);
    buf_add_text(&text, ",\"notifications\":");
    json_out_init(&out, &text);
    json_out_object(&out);
    if (listen->tools)
        json_out_member_bool(&out, "toolsListChanged", true);
    if (listen->prompts)
        json_out_member_bool(&out, "promptsListChanged", true);
    if (listen->resources)
        json_out_member_bool(&out, "resourcesListChanged", true);
    if (listen->updates) {
        json_out_name(&out, "resourceSubscriptions");
        json_out_value(&out, uris);
    }
    if (listen->task_count) {
        json_out_name(&out, "taskIds");
        json_out_array(&out);
        for (size_t i = 0; i < listen->task_count; i++)
            json_out_str(&out, listen->tasks[i]);
        json_out_end_array(&out);
    }
    json_out_end_object(&out);
    buf_add_char(&text, '}');
    mcp_notify(listen->request, "notifications/subscriptions/acknowledged", buf_str(&text));
    buf_release(&text);
}

/* Lists change at servers that nobody has asked anything yet: a connection is needed to hear of it. */
static bool listen_connect(struct listen *listen)
{
    struct mcp_server *servers[FORWARD_SERVERS_MAX];
    size_t before = listen->passing->lane_count;
    if (!listen->prompts && !listen->resources)
        return false;
    size_t count = forward_servers(listen->passing->door, NULL, servers, FORWARD_SERVERS_MAX);
    for (size_t i = 0; i < count; i++)
        if (mcp_server_info(servers[i]).state == MCP_SERVER_READY)
            lane_for(listen->request, servers[i], NULL);
    return listen->passing->lane_count > before;
}

static bool are_texts(const struct json *list)
{
    if (!list)
        return true;
    if (list->type != JSON_ARRAY || list->count > FORWARD_URIS_MAX)
        return false;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].type != JSON_STRING || list->items[i].text.n > FORWARD_URI_BYTES_MAX ||
            memchr(list->items[i].text.p, '\0', list->items[i].text.n))
            return false;
    return true;
}

static void listen_take_tasks(struct listen *listen, const struct json *ids)
{
    if (!listen->request->session->door->settings.tasks || !ids)
        return;
    listen->tasks = arena_alloc(&listen->request->arena, (ids->count + 1) * sizeof *listen->tasks);
    for (uint32_t i = 0; i < ids->count; i++)
        listen->tasks[listen->task_count++] = ids->items[i].text;
}

/* How many streams this principal has. */
static size_t listens_by(const struct passing *passing, const struct mcp_session *session)
{
    size_t count = 0;
    for (const struct listen *at = passing->listens; at; at = at->next)
        count += strcmp(at->request->session->principal, session->principal) == 0 &&
                 strcmp(at->request->session->tenant, session->tenant) == 0;
    return count;
}

static bool listen_is_valid(struct mcp_request *request, const struct json *wanted)
{
    const struct json *tasks = json_get(wanted, "taskIds"), *uris = json_get(wanted, "resourceSubscriptions");
    struct passing *passing = passing_of(request->session->door);
    if (!wanted || wanted->type != JSON_OBJECT || !are_texts(tasks) || !are_texts(uris)) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE,
                        "params.notifications: an object was expected, its lists of at most %d texts each",
                        FORWARD_URIS_MAX);
        return false;
    }
    if (tasks && tasks->count && !mcp_client_can(request->capabilities, "extensions." MCP_EXTENSION_TASKS)) {
        mcp_reply_error(request, MCP_MISSING_CAPABILITY,
                        STR("{\"requiredCapabilities\":{\"extensions\":{\"" MCP_EXTENSION_TASKS "\":{}}}}"),
                        "taskIds need the extension " MCP_EXTENSION_TASKS);
        return false;
    }
    if (passing->listen_count >= FORWARD_LISTENS_MAX ||
        listens_by(passing, request->session) >= FORWARD_LISTENS_MAX / FORWARD_OWN_DIVISOR) {
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE,
                        "too many listen streams are open already (%d, a principal's at most %d)", FORWARD_LISTENS_MAX,
                        FORWARD_LISTENS_MAX / FORWARD_OWN_DIVISOR);
        return false;
    }
    return true;
}

void mcp_listen(struct mcp_request *request)
{
    const struct json *wanted = json_get(request->message.params, "notifications");
    if (!listen_is_valid(request, wanted))
        return;
    struct passing *passing = passing_of(request->session->door);
    struct listen *listen = arena_zero(&request->arena, sizeof *listen);
    listen->passing = passing;
    listen->request = request;
    listen->next = passing->listens;
    listen->at = &passing->listens;
    if (listen->next)
        listen->next->at = &listen->next;
    passing->listens = listen;
    passing->listen_count++;
    request->user = listen;
    request->release = listen_release;
    listen_judge(listen, wanted);
    listen_take_tasks(listen, json_get(wanted, "taskIds"));
    listen_acknowledge(listen, wanted);
    if (!listen->tools && !listen->prompts && !listen->resources && !listen->updates && !listen->task_count) {
        listen_end(listen);
        return;
    }
    passing_keep_ticking(passing);
    listen_connect(listen);
    const struct json *uris = json_get(wanted, "resourceSubscriptions");
    for (uint32_t i = 0; listen->updates && i < uris->count; i++)
        listen_follow(listen, uris->items[i].text);
}

void listens_tick(struct passing *passing)
{
    int64_t now_ms = passing_now_ms(passing);
    bool reconnected = false;
    for (struct listen *listen = passing->listens; listen; listen = listen->next)
        reconnected = listen_connect(listen) || reconnected;
    if (reconnected) { /* a server is back, maybe with other lists */
        listens_tell_changed(passing, "prompts");
        listens_tell_changed(passing, "resources");
    }
    for (struct watch_uri *watch = passing->watches; watch; watch = watch->next)
        if (!watch->subscribed && !watch->listen && now_ms >= watch->retry_ms)
            watch_again(watch, now_ms);
}

static unsigned offered_now(struct mcp_door *door)
{
    static const char *const kinds[] = {"prompts", "resources", "resources.subscribe"};
    unsigned bits = 0;
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        bits |= mcp_forward_offers(door, kinds[i]) ? 1u << i : 0;
    return bits;
}

/* Streams that would be acknowledged otherwise now are ended: their clients come again. Sessions are told to look. */
void mcp_forward_configured(struct mcp_door *door)
{
    if (door->closing)
        return;
    struct passing *passing = passing_of(door);
    for (struct listen *listen = passing->listens, *next; listen; listen = next) {
        next = listen->next;
        struct listen now = *listen;
        listen_judge(&now, json_get(listen->request->message.params, "notifications"));
        if (now.prompts != listen->prompts || now.resources != listen->resources || now.updates != listen->updates)
            listen_end(listen);
    }
    unsigned changed = passing->offered ^ offered_now(door);
    passing->offered ^= changed;
    for (struct mcp_session *session = door->sessions; session && changed; session = session->next) {
        if (changed & 1)
            mcp_legacy_notify(session, "notifications/prompts/list_changed", STR_NONE);
        if (changed & 6)
            mcp_legacy_notify(session, "notifications/resources/list_changed", STR_NONE);
    }
}

/* ---- resources/subscribe and unsubscribe of legacy clients ---- */

/* Lives in the request's arena. */
struct subscribing {
    struct mcp_request *request;
    struct str uri;
    const char *servers[FORWARD_SERVERS_MAX];
    size_t count, at;
    struct errand *errand;
    struct rpc_message *refusal;
};

static void subscribing_next(struct subscribing *subscribing);

static struct follower *find_follower(struct mcp_session *session, struct str uri)
{
    struct follower *follower = session->forward ? session->forward->followers : NULL;
    while (follower && !str_is(uri, follower->watch->uri))
        follower = follower->own_next;
    return follower;
}

static void subscribing_release(struct mcp_request *request)
{
    struct subscribing *subscribing = request->user;
    if (subscribing->errand)
        errand_abandon(subscribing->errand, "the client does not want the answer any more");
    subscribing->errand = NULL;
}

static void subscribing_follow(struct subscribing *subscribing, struct lane *lane, bool active)
{
    struct mcp_request *request = subscribing->request;
    struct watch_uri *watch = watch_get(lane, subscribing->uri);
    if (!watch) {
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE, "%d resources are subscribed to already",
                        FORWARD_WATCHES_MAX);
        return;
    }
    watch->subscribed = watch->subscribed || active;
    if (!find_follower(request->session, subscribing->uri))
        follow(watch, request->session, NULL);
    if (watch->followers)
        watch_start(watch);
    else /* the session has come to follow it at another server meanwhile */
        watch_free(watch);
    mcp_reply(request, STR("{}"));
}

static void subscribing_done(struct errand *errand, const struct mcp_outcome *outcome)
{
    struct subscribing *subscribing = errand->user;
    struct mcp_request *request = subscribing->request;
    subscribing->errand = NULL;
    if (outcome->end != MCP_ANSWERED) {
        forward_reply_lost(request, subscribing->servers[subscribing->at - 1], outcome);
        return;
    }
    if (outcome->message->kind == RPC_ERROR) {
        struct rpc_message *copy = arena_zero(&request->arena, sizeof *copy);
        copy->code = outcome->message->code;
        copy->message = arena_str(&request->arena, outcome->message->message);
        copy->data = outcome->message->data ? json_copy(&request->arena, outcome->message->data) : NULL;
        if (!subscribing->refusal)
            subscribing->refusal = copy;
        subscribing_next(subscribing);
        return;
    }
    struct mcp_server *server = mcp_hub_find(request->session->door->hub, subscribing->servers[subscribing->at - 1]);
    struct lane *lane = server ? subscription_lane(request->session, request, server, NULL) : NULL;
    if (lane)
        subscribing_follow(subscribing, lane, true);
    else
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE, "The connection to the server ended");
}

/* Whether the server has it is for the server to say; modern ones say it on the stream that we open there. */
static bool subscribing_try(struct subscribing *subscribing, struct mcp_server *server, struct err *err)
{
    struct mcp_request *request = subscribing->request;
    struct lane *lane = subscription_lane(request->session, request, server, err);
    if (!lane)
        return false;
    bool active = lane_modern(lane);
    for (const struct watch_uri *watch = lane->passing->watches; watch && !active; watch = watch->next)
        active = watch->lane == lane && watch->subscribed && str_is(subscribing->uri, watch->uri);
    if (active) {
        subscribing_follow(subscribing, lane, false);
        return true;
    }
    struct era_params change = {0};
    struct buf params;
    buf_init(&params, 0);
    era_write_params(&params, request, false, &change);
    subscribing->errand =
        errand_send(lane, request, "resources/subscribe", buf_str(&params), subscribing_done, subscribing, err);
    buf_release(&params);
    return subscribing->errand != NULL;
}

static void subscribing_next(struct subscribing *subscribing)
{
    struct mcp_request *request = subscribing->request;
    struct err err = {0};
    while (subscribing->at < subscribing->count) {
        struct mcp_server *server = mcp_hub_find(request->session->door->hub, subscribing->servers[subscribing->at++]);
        if (server && subscribing_try(subscribing, server, &err))
            return;
    }
    if (subscribing->refusal)
        forward_reply_error(request, subscribing->refusal);
    else
        mcp_reply_error(request, RPC_INTERNAL_ERROR, STR_NONE, "%s",
                        err.code ? err.text : "The server is not configured any more");
}

static void subscribe(struct mcp_request *request, struct str uri)
{
    struct mcp_server *servers[FORWARD_SERVERS_MAX];
    struct mcp_door *door = request->session->door;
    size_t count = forward_servers(door, "resources.subscribe", servers, FORWARD_SERVERS_MAX);
    if (count == 0) {
        forward_reply_no_method(request);
        return;
    }
    if (forward_of(request->session)->follower_count >= FORWARD_URIS_MAX) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "%d resources are subscribed to already",
                        FORWARD_URIS_MAX);
        return;
    }
    struct subscribing *subscribing = arena_zero(&request->arena, sizeof *subscribing);
    subscribing->request = request;
    subscribing->uri = uri;
    const char *known = count > 1 ? route_find(passing_of(door), ROUTE_URI, uri) : NULL;
    for (size_t i = 0; i < count; i++) {
        const char *name = mcp_server_info(servers[i]).name;
        if (!known || strcmp(known, name) == 0)
            subscribing->servers[subscribing->count++] = arena_copy_text(&request->arena, name);
    }
    request->user = subscribing;
    request->release = subscribing_release;
    subscribing_next(subscribing);
}

void subscription_request(struct mcp_request *request)
{
    struct str uri = json_get_text(request->message.params, "uri");
    if (!uri.p || uri.n > FORWARD_URI_BYTES_MAX || memchr(uri.p, '\0', uri.n)) {
        mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE, "params.uri: a text of at most %d bytes was expected",
                        FORWARD_URI_BYTES_MAX);
        return;
    }
    struct follower *follower = find_follower(request->session, uri);
    if (strcmp(request->message.method, "resources/subscribe") == 0 && !follower) {
        subscribe(request, uri);
        return;
    }
    if (strcmp(request->message.method, "resources/unsubscribe") == 0 && follower)
        unfollow(follower);
    mcp_reply(request, STR("{}"));
}
