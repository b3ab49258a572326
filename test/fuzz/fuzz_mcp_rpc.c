/* The core of the MCP door: messages of two legacy sessions, one of them on stdio, and of stateless clients in between,
 * answered at once or later, cancelled, lost, asked back. Who works on requests is played (support/fake_work.h).
 *
 *   A… B…   the rest of the line is a message in session A, B (stdio)     m…  the same in a session of its own
 *   h H     requests are held, answered at once                           r e  the oldest held one is answered, fails
 *   n p l   notification, progress, log on its stream                     g c  its client is gone; that cancels
 *   a w     asks A's client; takes the last question back                 X Y  A, B end, new ones come
 *   t f     tools changed; workers answer when cancelled from now on
 *
 * Every request gets one final message or is dropped, never both, and nothing after; ids come back as they went; what
 * is no request is told nothing, what is no message is told once; every question of ours ends once. */
#include "fuzz.h"

#include "base/log.h"
#include "support/fake_engine.h"
#include "support/fake_work.h"

#define LINES_MAX 400

struct line_client {
    struct play_client client; /* first */
    enum mcp_received received;
    bool gone;
    char id[RPC_ID_BYTES_MAX + 8]; /* JSON text; "" = none */
};

struct question {
    bool open;
    int done;
};

struct world {
    struct engine engine;
    struct registry *registry;
    struct mcp_door *door;
    struct mcp_session *sessions[2];
    struct line_client *clients[LINES_MAX];
    size_t count;
    struct question questions[LINES_MAX];
    size_t question_count;
    char question_id[32]; /* of the last one */
    struct question *question;
};

static uv_loop_t loop;

/* ---- what a client gets is JSON-RPC ---- */

static void check_message(const char *text, enum rpc_kind kind, const char *id)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault = {0};
    struct json_limits wide = {.bytes_max = SIZE_MAX, .depth_max = 1000, .values_max = SIZE_MAX};
    arena_init(&arena);
    bool null_id = id && !*id && strstr(text, "\"id\":null");
    if (!null_id) {
        CHECK(rpc_read(&arena, str_of(text), &wide, &message, &fault));
        if (id) {
            CHECK(message.kind == RPC_RESULT || message.kind == RPC_ERROR);
            CHECK(!*id || str_is(message.id, id));
        } else {
            CHECK(message.kind == kind || message.kind == RPC_REQUEST);
        }
    }
    arena_release(&arena);
}

static void check_client(const struct line_client *line, bool over)
{
    const struct play_client *client = &line->client;
    CHECK(client->after_final == 0);
    CHECK(client->final_count + client->drop_count <= 1);
    switch (line->received) {
    case MCP_RECEIVED_REQUEST:
        if (over)
            CHECK(line->gone || client->final_count + client->drop_count == 1);
        break;
    case MCP_RECEIVED_NOTICE: CHECK(client->final_count + client->drop_count + client->message_count == 0); break;
    case MCP_RECEIVED_FAULT: CHECK(client->final_count == 1 && client->http_status == 400); break;
    }
    if (client->final)
        check_message(client->final, RPC_RESULT, line->id);
    for (size_t i = 0; i < client->message_count && i < PLAY_MESSAGES_MAX; i++)
        check_message(client->messages[i], RPC_NOTIFICATION, NULL);
}

/* ---- what happens ---- */

static bool deliver(struct mcp_session *session, void *user, struct str message)
{
    (void)session, (void)user;
    char *text = strndup(message.p, message.n);
    CHECK(text);
    check_message(text, RPC_NOTIFICATION, NULL);
    free(text);
    return true;
}

static void begin_session(struct world *world, size_t which)
{
    struct mcp_session *session = mcp_session_new(world->door, "default", which ? "local" : "agent", ROLE_AGENT);
    session->stdio = which == 1;
    mcp_session_set_sender(session, deliver, world);
    world->sessions[which] = session;
}

static void receive(struct world *world, struct mcp_session *session, struct str text, bool own)
{
    struct line_client *line = calloc(1, sizeof *line);
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault = {0};
    CHECK(line);
    world->clients[world->count++] = line;
    arena_init(&arena);
    bool good = rpc_read(&arena, text, &mcp_door_limits, &message, &fault);
    struct str id = good ? message.id : fault.id;
    if ((!good || message.kind == RPC_REQUEST) && id.p)
        snprintf(line->id, sizeof line->id, "%.*s", STR_ARG(id));
    play_client_init(&line->client);
    if (own)
        line->client.ends = session;
    line->received = mcp_receive(session, &line->client.sink, text, NULL);
    CHECK(good || line->received == MCP_RECEIVED_FAULT);
    if (good && message.kind == RPC_REQUEST)
        CHECK(line->received == MCP_RECEIVED_REQUEST);
    if (good && message.kind == RPC_NOTIFICATION)
        CHECK(line->received == MCP_RECEIVED_NOTICE);
    if (own && line->received == MCP_RECEIVED_NOTICE)
        mcp_session_end(session);
    arena_release(&arena);
}

static void lose(struct world *world, struct mcp_request *request, bool cancels)
{
    struct mcp_session *session = request->session;
    struct line_client *line = (struct line_client *)request->sink;
    struct play_client *client = &line->client;
    bool own = client->ends != NULL;
    line->gone = true;
    mcp_request_gone(request->sink, cancels);
    CHECK(client->final_count + client->drop_count == 0);
    if (own)
        mcp_session_end(session);
    (void)world;
}

static void answered(void *user, const struct rpc_message *message)
{
    struct question *question = user;
    (void)message;
    CHECK(question->open);
    question->open = false;
    question->done++;
}

static void ask(struct world *world, struct mcp_request *request)
{
    struct str id;
    struct question *question = &world->questions[world->question_count];
    struct mcp_session *session = world->sessions[0];
    if (world->question_count == LINES_MAX)
        return;
    if (request && request->session != session)
        request = NULL;
    question->open = true;
    if (!mcp_ask(session, request, "elicitation/create", STR("{\"message\":\"?\"}"), answered, question, &id)) {
        question->open = false;
        return;
    }
    world->question_count++;
    world->question = question;
    snprintf(world->question_id, sizeof world->question_id, "%.*s", STR_ARG(id));
}

static void withdraw(struct world *world)
{
    if (!world->question)
        return;
    mcp_ask_withdraw(world->sessions[0], str_of(world->question_id));
    world->question->open = false;
    world->question = NULL;
}

static void end_session(struct world *world, size_t which)
{
    if (which == 0)
        world->question = NULL;
    mcp_session_end(world->sessions[which]);
    begin_session(world, which);
}

static void with_oldest(struct world *world, struct mcp_request *request, char what)
{
    switch (what) {
    case 'r': mcp_reply(request, STR("{\"content\":[]}")); break;
    case 'e': mcp_reply_error(request, RPC_INTERNAL_ERROR, STR("{\"a\":1}"), "%s", "no"); break;
    case 'n': mcp_notify(request, "notifications/x", STR_NONE); break;
    case 'p': mcp_progress(request, STR("1"), STR_NONE, STR("\"\xC3\xA9\n")); break;
    case 'l': mcp_log(request, 4, "fuzz", STR("{\"b\":[]}")); break;
    case 'g': lose(world, request, false); break;
    case 'c': lose(world, request, true); break;
    }
}

static void step(struct world *world, struct str line)
{
    struct mcp_request *oldest = fake_work_oldest();
    char what = line.p[0];
    struct str rest = {line.p + 1, line.n - 1};
    switch (what) {
    case 'A': receive(world, world->sessions[0], rest, false); break;
    case 'B': receive(world, world->sessions[1], rest, false); break;
    case 'm': {
        struct mcp_session *own = mcp_session_new(world->door, "default", "agent", ROLE_AGENT);
        own->ephemeral = true;
        receive(world, own, rest, true);
        break;
    }
    case 'h': fake_work.hold = true; break;
    case 'H': fake_work.hold = false; break;
    case 'f': fake_work.cancel_answers = true; break;
    case 't': mcp_door_tools_changed(world->door); break;
    case 'a': ask(world, oldest); break;
    case 'w': withdraw(world); break;
    case 'X': end_session(world, 0); break;
    case 'Y': end_session(world, 1); break;
    default:
        if (oldest)
            with_oldest(world, oldest, what);
    }
}

/* ---- the stage ---- */

static void open_world(struct world *world)
{
    static bool started;
    static const char *const offers[] = {"resources", "resources.subscribe", "prompts"};
    struct mcp_settings settings = mcp_settings_default;
    if (!started) {
        CHECK(uv_loop_init(&loop) == 0);
        log_set_level(LOG_OFF);
    }
    started = true;
    fake_work_reset();
    memcpy(fake_work.offers, offers, sizeof offers);
    settings.calls_max = 8;
    CHECK(registry_new(NULL, 0, NULL, 0, "v1", NULL, NULL, &world->registry, NULL) == ERR_NONE);
    fake_engine_init(&world->engine, world->registry);
    world->door =
        mcp_door_new(&(struct mcp_door_options){.loop = &loop, .engine = &world->engine, .settings = &settings});
    begin_session(world, 0);
    begin_session(world, 1);
}

static void close_world(struct world *world)
{
    for (size_t i = 0; i < world->count; i++)
        check_client(world->clients[i], false);
    mcp_door_free(world->door);
    uv_run(&loop, UV_RUN_NOWAIT);
    for (size_t i = 0; i < world->count; i++) {
        check_client(world->clients[i], true);
        play_client_release(&world->clients[i]->client);
        free(world->clients[i]);
    }
    for (size_t i = 0; i < world->question_count; i++)
        CHECK(!world->questions[i].open && world->questions[i].done <= 1);
    CHECK(fake_work.held_count == 0);
    CHECK(fake_work.released == fake_work.held_ever);
    fake_engine_release(&world->engine);
    registry_unref(world->registry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world *world = calloc(1, sizeof *world);
    struct str rest = {(const char *)data, size}, line;
    CHECK(world);
    open_world(world);
    for (size_t i = 0; rest.n > 0 && i < LINES_MAX; i++) {
        fuzz_split(rest, &line, &rest);
        if (line.n > 0)
            step(world, line);
    }
    close_world(world);
    free(world);
    return 0;
}
