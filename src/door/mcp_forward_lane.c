/* Lanes: the links to servers, who they belong to, and the requests on them. */
#include "door/mcp_forward.h"

#include "base/digest.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define LEVEL_ANSWER_MS 5000 /* a server that does not answer logging/setLevel holds nothing up for longer */

#define CAN_ALL "{\"roots\":{},\"sampling\":{},\"elicitation\":{\"form\":{},\"url\":{}}}"

static const struct mcp_listener lane_listener;
static void level_set(struct errand *errand, const struct mcp_outcome *outcome);

/* ---- what belongs to the door ---- */

struct passing *passing_of(struct mcp_door *door)
{
    if (!door->passing) {
        struct passing *passing = mem_zero(sizeof *passing);
        passing->door = door;
        passing->timer = mem_zero(sizeof *passing->timer);
        uv_timer_init(door->loop, passing->timer);
        uv_unref((uv_handle_t *)passing->timer);
        passing->timer->data = passing;
        map_init(&passing->states);
        map_init(&passing->routes);
        door->passing = passing;
    }
    return door->passing;
}

struct mcp_forward *forward_of(struct mcp_session *session)
{
    if (!session->forward)
        session->forward = mem_zero(sizeof *session->forward);
    return session->forward;
}

int64_t passing_now_ms(const struct passing *passing)
{
    return (int64_t)uv_now(passing->door->loop);
}

static bool has_work(const struct passing *passing)
{
    return passing->lanes || passing->errand_count || passing->suspended || passing->listens || passing->watches;
}

static void timer_fired(uv_timer_t *timer)
{
    struct passing *passing = timer->data;
    bool tick = passing->ticking && !passing->turn_pending;
    passing->turn_pending = passing->ticking = false;
    uv_unref((uv_handle_t *)timer);
    lanes_close_retired(passing);
    suspended_park_due(passing);
    if (passing->changed_prompts)
        listens_tell_changed(passing, "prompts");
    if (passing->changed_resources)
        listens_tell_changed(passing, "resources");
    passing->changed_prompts = passing->changed_resources = false;
    if (tick) {
        lanes_tick(passing);
        suspended_tick(passing);
        listens_tick(passing);
    }
    if (has_work(passing))
        passing_keep_ticking(passing);
}

void passing_next_turn(struct passing *passing)
{
    if (passing->turn_pending)
        return;
    passing->turn_pending = true;
    uv_ref((uv_handle_t *)passing->timer);
    uv_timer_start(passing->timer, timer_fired, 0, 0);
}

void passing_keep_ticking(struct passing *passing)
{
    if (passing->ticking)
        return;
    passing->ticking = true;
    if (!passing->turn_pending)
        uv_timer_start(passing->timer, timer_fired, FORWARD_TICK_MS, 0);
}

/* ---- lanes ---- */

static void list_lane(struct lane **head, struct lane *lane)
{
    lane->next = *head;
    lane->at = head;
    if (lane->next)
        lane->next->at = &lane->next;
    *head = lane;
}

static void unlist_lane(struct lane *lane)
{
    *lane->at = lane->next;
    if (lane->next)
        lane->next->at = lane->at;
}

/* How long the provider of this server may take to answer. */
static int64_t patience_of(const struct passing *passing, const char *server)
{
    const struct registry *registry = passing->door->engine ? engine_registry(passing->door->engine) : NULL;
    for (size_t i = 0; registry && i < registry_provider_count(registry); i++) {
        const struct provider *provider = registry_provider_at(registry, i);
        if (strcmp(provider->name, server) == 0 && provider->timeout_ms > 0)
            return provider->timeout_ms;
    }
    return FORWARD_PATIENCE_MS;
}

static struct lane *lane_open(struct passing *passing, struct mcp_server *server, struct mcp_session *session,
                              const char *key, const struct mcp_link_options *options, struct err *err)
{
    struct lane *lane = mem_zero(sizeof *lane);
    struct mcp_link_options all = *options;
    all.listener = &lane_listener;
    all.user = lane;
    lane->passing = passing;
    lane->level = -1;
    lane->link = mcp_link_open(server, &all, err);
    if (!lane->link) {
        free(lane);
        return NULL;
    }
    struct mcp_server_info info = mcp_server_info(server);
    lane->server = mem_copy_text(info.name);
    lane->key = mem_copy_text(key);
    lane->per_client = info.per_client;
    lane->patience_ms = patience_of(passing, info.name);
    lane->session = session;
    lane->used_ms = passing_now_ms(passing);
    list_lane(session ? &forward_of(session)->lanes : &passing->lanes, lane);
    if (!session)
        passing->lane_count++;
    passing_keep_ticking(passing);
    return lane;
}

void lane_retire(struct lane *lane)
{
    struct passing *passing = lane->passing;
    if (lane->at == &passing->closing || !lane->server)
        return;
    unlist_lane(lane);
    if (!lane->session)
        passing->lane_count--;
    lane->session = NULL;
    watch_lane_gone(lane);
    free(lane->server);
    lane->server = NULL; /* the mark of a retired one */
    list_lane(&passing->closing, lane);
    passing_next_turn(passing);
}

static void errand_detach(struct errand *errand)
{
    if (!errand->lane)
        return;
    *errand->at = errand->next;
    if (errand->next)
        errand->next->at = errand->at;
    errand->lane->errand_count--;
    errand->lane->passing->errand_count--;
    errand->lane = NULL;
}

static void errand_end(struct errand *errand, const struct mcp_outcome *outcome)
{
    ask_errand_ended(errand);
    errand_detach(errand);
    if (errand->done)
        errand->done(errand, outcome);
    free(errand->method);
    free(errand->params);
    free(errand);
}

/* What is on the wire is told by the link; what was held back has to be told here. */
static void lane_free(struct lane *lane)
{
    unlist_lane(lane);
    while (lane->errands) {
        struct errand *errand = lane->errands;
        ask_errand_ended(errand);
        errand_detach(errand);
        if (errand->done == level_set)
            errand->done = NULL;
        struct mcp_outcome outcome = {.end = MCP_LOST, .text = "the connection to the server ended"};
        if (!errand->pending)
            errand_end(errand, &outcome);
    }
    if (lane->link) {
        ask_link_gone(lane->passing, lane->link);
        mcp_link_close(lane->link);
    }
    free(lane->server);
    free(lane->key);
    free(lane);
}

void lanes_close_retired(struct passing *passing)
{
    while (passing->closing)
        lane_free(passing->closing);
}

void lanes_close_all(struct passing *passing)
{
    while (passing->lanes)
        lane_retire(passing->lanes);
    lanes_close_retired(passing);
}

static struct lane *find_lane(struct lane *lane, const char *server, const char *key)
{
    while (lane && (strcmp(lane->server, server) != 0 || strcmp(lane->key, key) != 0))
        lane = lane->next;
    return lane;
}

struct lane *lane_of_session(struct mcp_session *session, struct mcp_server *server, struct err *err)
{
    struct mcp_server_info info = mcp_server_info(server);
    struct lane *lane = find_lane(forward_of(session)->lanes, info.name, "");
    if (lane)
        return lane;
    struct arena arena;
    arena_init(&arena);
    struct mcp_link_options options = {
        .session = session->number,
        .era = MCP_ERA_ANY,
        .version = session->version[0] ? session->version : NULL,
        .capabilities = json_to_text(&arena, session->capabilities),
        .client_info = json_to_text(&arena, session->client_info),
    };
    lane = lane_open(passing_of(session->door), server, session, "", &options, err);
    arena_release(&arena);
    if (lane && session->log_level >= 0)
        lane_want_level(lane, session->log_level);
    /* a shared server asked for roots when it began, and nobody was there */
    if (lane && !lane->per_client && !lane_modern(lane) && mcp_client_can(session->capabilities, "roots"))
        mcp_link_notify(lane->link, "notifications/roots/list_changed", STR_NONE);
    return lane;
}

struct lane *lane_common(struct passing *passing, struct mcp_server *server, struct err *err)
{
    struct mcp_server_info info = mcp_server_info(server);
    struct lane *lane = find_lane(passing->lanes, info.name, "");
    if (lane)
        return lane;
    /* what the client behind a request can do is looked at when it is asked */
    struct mcp_link_options options = {.era = MCP_ERA_ANY, .capabilities = STR(CAN_ALL)};
    return lane_open(passing, server, NULL, "", &options, err);
}

/* A place for one more lane: the one that nobody has used for longest goes. */
static bool make_room(struct passing *passing)
{
    if (passing->lane_count < FORWARD_LANES_MAX)
        return true;
    struct lane *idlest = NULL;
    for (struct lane *lane = passing->lanes; lane; lane = lane->next)
        if (!lane->errands && !lane->watch_count && (!idlest || lane->used_ms < idlest->used_ms))
            idlest = lane;
    if (idlest)
        lane_retire(idlest);
    return idlest != NULL;
}

/* A legacy server with a connection per client: its capabilities are fixed when it is initialized. */
static struct lane *principal_lane(struct mcp_request *request, struct mcp_server *server, struct err *err)
{
    struct passing *passing = passing_of(request->session->door);
    const struct json *client = json_get(request->meta, MCP_META_CLIENT);
    struct mcp_link_options options = {
        .era = MCP_ERA_ANY,
        .capabilities = json_to_text(&request->arena, request->capabilities),
        .client_info = json_to_text(&request->arena, client),
    };
    struct str parts[] = {str_of(request->session->tenant), str_of(request->session->principal), options.capabilities,
                          options.client_info};
    struct digest digest = digest_parts(parts, sizeof parts / sizeof parts[0]);
    char key[2 * 16 + 1];
    digest_hex(&digest, 16, key);
    struct lane *lane = find_lane(passing->lanes, mcp_server_info(server).name, key);
    if (lane)
        return lane;
    if (!make_room(passing)) {
        err_set(err, ERR_LIMIT, "%d connections to servers are in use for clients without a session",
                FORWARD_LANES_MAX);
        return NULL;
    }
    return lane_open(passing, server, NULL, key, &options, err);
}

struct lane *lane_for(struct mcp_request *request, struct mcp_server *server, struct err *err)
{
    struct mcp_server_info info = mcp_server_info(server);
    if (info.state == MCP_SERVER_DOWN) {
        err_set(err, ERR_UNAVAILABLE, "server \"%s\" is down: %s", info.name, info.error ? info.error : "not started");
        return NULL;
    }
    struct lane *lane;
    if (request->era == MCP_ERA_LEGACY)
        lane = lane_of_session(request->session, server, err);
    else if (!info.per_client || (info.state == MCP_SERVER_READY && info.era == MCP_ERA_MODERN))
        lane = lane_common(passing_of(request->session->door), server, err);
    else
        lane = principal_lane(request, server, err);
    if (lane) {
        lane->used_ms = passing_now_ms(lane->passing);
        if (request->era != MCP_ERA_LEGACY && request->log_level >= 0 && !lane_modern(lane))
            lane_want_level(lane, request->log_level);
    }
    return lane;
}

static struct mcp_server *lane_server(const struct lane *lane)
{
    return lane->link ? mcp_link_server(lane->link) : NULL;
}

bool lane_modern(const struct lane *lane)
{
    enum mcp_era era = lane->link ? mcp_link_era(lane->link) : MCP_ERA_LEGACY;
    const struct mcp_server *server = era == MCP_ERA_ANY ? lane_server(lane) : NULL;
    return era == MCP_ERA_MODERN || (server && mcp_server_info(server).era == MCP_ERA_MODERN);
}

/* ---- errands ---- */

static void errand_answered(void *user, const struct mcp_outcome *outcome)
{
    struct errand *errand = user;
    errand->pending = NULL;
    if (errand->lane)
        errand->lane->used_ms = passing_now_ms(errand->lane->passing);
    errand_end(errand, outcome);
}

static void errand_go(struct errand *errand, const char *method, struct str params)
{
    struct mcp_request_options options = {.method = method, .params = params, .done = errand_answered, .user = errand};
    errand->pending = mcp_link_request(errand->lane->link, &options);
}

struct errand *errand_send(struct lane *lane, struct mcp_request *request, const char *method, struct str params,
                           errand_done *done, void *user, struct err *err)
{
    struct passing *passing = lane->passing;
    if (!lane->link || !lane->server) {
        err_set(err, ERR_UNAVAILABLE, "the connection to the server ended");
        return NULL;
    }
    if (passing->errand_count >= FORWARD_ERRANDS_MAX) {
        err_set(err, ERR_LIMIT, "%d requests are on their way to servers already", FORWARD_ERRANDS_MAX);
        return NULL;
    }
    struct errand *errand = mem_zero(sizeof *errand);
    *errand = (struct errand){.next = lane->errands,
                              .at = &lane->errands,
                              .lane = lane,
                              .request = request,
                              .patience_ms = lane->patience_ms,
                              .deadline_ms = passing_now_ms(passing) + lane->patience_ms,
                              .done = done,
                              .user = user};
    if (errand->next)
        errand->next->at = &errand->next;
    lane->errands = errand;
    lane->errand_count++;
    passing->errand_count++;
    passing_keep_ticking(passing);
    if (lane->holding) {
        errand->method = mem_copy_text(method);
        errand->params = params.p ? mem_copy_bytes(params.p, params.n) : NULL;
        errand->params_bytes = params.n;
    } else {
        errand_go(errand, method, params);
    }
    return errand;
}

void errand_abandon(struct errand *errand, const char *why)
{
    errand->request = NULL;
    errand->done = NULL;
    errand->user = NULL;
    errand->watch = NULL;
    ask_errand_ended(errand);
    if (errand->pending) {
        mcp_pending_cancel(errand->pending, why);
        return;
    }
    struct mcp_outcome outcome = {.end = MCP_CANCELLED, .text = why};
    errand_end(errand, &outcome);
}

static void errand_time_out(struct errand *errand)
{
    errand_done *done = errand->done;
    errand->done = NULL;
    struct mcp_outcome outcome = {.end = MCP_TIMED_OUT, .sent = errand->pending != NULL, .text = "no answer in time"};
    if (done)
        done(errand, &outcome);
    errand_abandon(errand, "no answer in time");
}

static void lane_errands_tick(struct lane *lane, int64_t now_ms)
{
    for (struct errand *errand = lane->errands; errand;) {
        if (errand->asking_count > 0 || errand->watch)
            errand->deadline_ms = now_ms + errand->patience_ms;
        bool late = now_ms >= errand->deadline_ms && errand->done;
        if (late)
            errand_time_out(errand); /* may end others */
        errand = late ? lane->errands : errand->next;
    }
}

void lanes_tick(struct passing *passing)
{
    int64_t now_ms = passing_now_ms(passing);
    struct lane *lane, *next;
    for (lane = passing->lanes; lane; lane = next) {
        next = lane->next;
        lane_errands_tick(lane, now_ms);
        if (lane->key[0] && !lane->errands && !lane->watch_count && now_ms - lane->used_ms > FORWARD_LANE_IDLE_MS)
            lane_retire(lane);
    }
    for (struct mcp_session *session = passing->door->sessions; session; session = session->next)
        for (lane = session->forward ? session->forward->lanes : NULL; lane; lane = lane->next)
            lane_errands_tick(lane, now_ms);
}

/* ---- log level ---- */

static void level_set(struct errand *errand, const struct mcp_outcome *outcome)
{
    (void)outcome; /* a server that refuses has its own idea of what to log */
    struct lane *lane = errand->user;
    lane->holding = false;
    if (!lane->link)
        return;
    /* oldest first: the list has the newest in front */
    for (;;) {
        struct errand *oldest = NULL;
        for (struct errand *at = lane->errands; at; at = at->next)
            if (!at->pending && at != errand && at->method)
                oldest = at;
        if (!oldest)
            return;
        char *method = oldest->method;
        oldest->method = NULL;
        errand_go(oldest, method, oldest->params ? (struct str){oldest->params, oldest->params_bytes} : STR_NONE);
        free(method);
    }
}

/* Of a connection that several clients share: the finest level that any of them wants. */
static int finest_level(const struct lane *lane, int level)
{
    if (lane->session && lane->per_client)
        return level;
    struct passing *passing = lane->passing;
    if (lane->level >= 0 && lane->level < level && !lane->session)
        level = lane->level;
    if (lane->per_client)
        return level;
    for (const struct mcp_session *session = passing->door->sessions; session; session = session->next)
        for (const struct lane *other = session->forward ? session->forward->lanes : NULL; other; other = other->next)
            if (other != lane && strcmp(other->server, lane->server) == 0 && other->level >= 0 && other->level < level)
                level = other->level;
    return level;
}

void lane_want_level(struct lane *lane, int level)
{
    struct mcp_server *server = lane_server(lane);
    if (!server || lane_modern(lane))
        return;
    struct mcp_server_info info = mcp_server_info(server);
    if (info.capabilities && !json_get(info.capabilities, "logging"))
        return;
    level = finest_level(lane, level);
    if (level == lane->level)
        return;
    lane->level = level;
    char params[64];
    snprintf(params, sizeof params, "{\"level\":\"%s\"}", mcp_log_levels[level]);
    struct errand *errand = errand_send(lane, NULL, "logging/setLevel", str_of(params), level_set, lane, NULL);
    if (!errand)
        return;
    errand->deadline_ms = passing_now_ms(lane->passing) + LEVEL_ANSWER_MS;
    lane->holding = true;
}

/* ---- what servers send ---- */

static struct str params_text(struct buf *buf, const struct rpc_message *message)
{
    buf_init(buf, 0);
    if (!message->params)
        return STR("{}");
    json_write(buf, message->params);
    return buf_str(buf);
}

/* The request that a message without a relation most likely belongs to: the only one, or the newest. */
static struct errand *likely_errand(struct lane *lane)
{
    for (struct errand *errand = lane->errands; errand; errand = errand->next)
        if (errand->request)
            return errand;
    return NULL;
}

void forward_progress(struct mcp_request *request, const struct rpc_message *message)
{
    if (!request->progress_token.p)
        return;
    const struct json *token = json_get(message->params, "progressToken");
    struct buf buf;
    buf_init(&buf, 0);
    if (token)
        json_write(&buf, token);
    if (token && str_equal(buf_str(&buf), request->progress_token)) {
        buf_reset(&buf);
        json_write(&buf, message->params);
        mcp_notify(request, message->method, buf_str(&buf));
    } else { /* a later round of the client has another token */
        struct buf text[3];
        static const char *const names[] = {"progress", "total", "message"};
        struct str texts[3];
        for (int i = 0; i < 3; i++) {
            const struct json *value = json_get(message->params, names[i]);
            buf_init(&text[i], 0);
            if (value && value->type != JSON_STRING)
                json_write(&text[i], value);
            texts[i] = !value ? STR_NONE : value->type == JSON_STRING ? value->text : buf_str(&text[i]);
        }
        mcp_progress(request, texts[0], texts[1], texts[2]);
        for (int i = 0; i < 3; i++)
            buf_release(&text[i]);
    }
    buf_release(&buf);
}

void forward_log(struct mcp_request *request, const struct rpc_message *message)
{
    int level = mcp_log_level(json_get_text(message->params, "level"));
    if (level < 0)
        return;
    if (request->era == MCP_ERA_LEGACY ? request->log_level >= 0 && level < request->log_level
                                       : request->log_level < 0 || level < request->log_level)
        return;
    struct buf buf;
    mcp_notify(request, message->method, params_text(&buf, message));
    buf_release(&buf);
}

static bool tell_session(struct mcp_session *session, const struct rpc_message *message)
{
    struct buf buf;
    bool told = mcp_legacy_notify(session, message->method, params_text(&buf, message));
    buf_release(&buf);
    return told;
}

/* A log message of a server about nothing that it named. On a connection that clients share it goes to those that have
 * a request there now: what others do is none of their business. */
static void lane_log(struct lane *lane, const struct rpc_message *message)
{
    struct errand *errand = likely_errand(lane);
    int level = mcp_log_level(json_get_text(message->params, "level"));
    if (!lane->session || level < 0) {
        if (errand)
            forward_log(errand->request, message);
        return;
    }
    if (!errand && !lane->per_client)
        return;
    if (lane->session->log_level >= 0 && level < lane->session->log_level)
        return;
    if (errand)
        forward_log(errand->request, message);
    else
        tell_session(lane->session, message);
}

static void lane_list_changed(struct lane *lane, const struct rpc_message *message, const char *kind)
{
    if (lane->session) {
        tell_session(lane->session, message);
        return;
    }
    if (strcmp(kind, "prompts") == 0)
        lane->passing->changed_prompts = true;
    else
        lane->passing->changed_resources = true;
    passing_next_turn(lane->passing);
}

/* Notifications that onced does not know: to whom they belong. */
static void lane_other(struct lane *lane, struct errand *errand, const struct rpc_message *message)
{
    struct buf buf;
    struct str params = params_text(&buf, message);
    if (errand && errand->request)
        mcp_notify(errand->request, message->method, params);
    else if (lane->session)
        mcp_legacy_notify(lane->session, message->method, params);
    buf_release(&buf);
}

static void lane_notified(void *user, struct mcp_link *link, const struct mcp_related *related,
                          const struct rpc_message *message)
{
    (void)link;
    struct lane *lane = user;
    struct errand *errand = related ? related->user : NULL;
    const char *method = message->method;
    if (!lane->server)
        return; /* on its way out */
    if (errand)
        errand->deadline_ms = passing_now_ms(lane->passing) + errand->patience_ms;
    if (strcmp(method, "notifications/progress") == 0) {
        if (errand && errand->request)
            forward_progress(errand->request, message);
    } else if (strcmp(method, "notifications/message") == 0) {
        if (errand && errand->request)
            forward_log(errand->request, message);
        else
            lane_log(lane, message);
    } else if (strcmp(method, "notifications/resources/updated") == 0) {
        watch_updated(lane, errand, message);
    } else if (strcmp(method, "notifications/prompts/list_changed") == 0) {
        lane_list_changed(lane, message, "prompts");
    } else if (strcmp(method, "notifications/resources/list_changed") == 0) {
        lane_list_changed(lane, message, "resources");
    } else if (strcmp(method, "notifications/tools/list_changed") != 0 && /* the hub lists them anew */
               strcmp(method, "notifications/subscriptions/acknowledged") != 0 &&
               strcmp(method, "notifications/cancelled") != 0) {
        lane_other(lane, errand, message);
    }
}

static void lane_asked(void *user, struct mcp_link *link, const struct mcp_related *related,
                       const struct rpc_message *message, struct mcp_question *question)
{
    struct lane *lane = user;
    struct errand *errand = related ? related->user : NULL;
    if (!errand || !errand->request)
        errand = likely_errand(lane);
    const struct ask_from from = {.link = link, .errand = errand, .question = question};
    ask_client(lane->passing, &from, lane->session, errand ? errand->request : NULL, message);
}

static void lane_withdrawn(void *user, struct mcp_link *link, struct mcp_question *question)
{
    (void)link;
    struct lane *lane = user;
    ask_withdrawn(lane->passing, question);
}

static void lane_lost(void *user, struct mcp_link *link, const char *why)
{
    struct lane *lane = user;
    (void)link;
    log_message(LOG_DEBUG, "mcp_lane_lost", "server \"%s\": %s", lane->server ? lane->server : "", why ? why : "");
    lane_retire(lane);
}

static const struct mcp_listener lane_listener = {
    .notified = lane_notified, .asked = lane_asked, .withdrawn = lane_withdrawn, .lost = lane_lost};

/* ---- ends ---- */

void mcp_forward_session_ended(struct mcp_session *session)
{
    struct mcp_forward *forward = session->forward;
    if (!forward)
        return;
    watch_session_ended(session);
    while (forward->lanes)
        lane_retire(forward->lanes);
    session->forward = NULL;
    free(forward);
}

static void timer_closed(uv_handle_t *timer)
{
    free(timer);
}

void mcp_forward_close(struct mcp_door *door)
{
    struct passing *passing = door->passing;
    if (!passing)
        return;
    listens_end_all(passing);
    suspended_end_all(passing);
    askings_end_all(passing);
    for (struct mcp_session *session = door->sessions; session; session = session->next)
        mcp_forward_session_ended(session);
    lanes_close_all(passing);
    routes_forget(passing);
    map_release(&passing->states);
    map_release(&passing->routes);
    uv_timer_stop(passing->timer);
    uv_close((uv_handle_t *)passing->timer, timer_closed);
    door->passing = NULL;
    free(passing);
}
