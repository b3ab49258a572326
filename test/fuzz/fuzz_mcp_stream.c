/* A client on lines that says anything: whatever comes back is one JSON-RPC message a line, no request is answered
 * twice, and when it has said all the stream ends. The dispatch is the real one; what tools do is played
 * (fake_tools.h). The first byte says how large the pieces are, and whether a session is begun before. */
#include "fuzz.h"

#include "base/jsonrpc.h"
#include "base/lines.h"
#include "base/log.h"
#include "support/fake_engine.h"
#include "support/fake_tools.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static const char hello[] =
    "{\"jsonrpc\":\"2.0\",\"id\":\"hello\",\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","
    "\"capabilities\":{},\"clientInfo\":{\"name\":\"f\",\"version\":\"1\"}}}\n"
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct fake_tools tools;
    struct registry *registry;
    struct mcp_settings settings;
    struct mcp_door *door;
    struct lines lines;
    size_t said, answers; /* lines in, answers out */
    bool ended;
};

static struct stage *stage; /* one for all runs */

static void count_line(void *user, struct str line, bool over)
{
    (void)line, (void)over;
    (*(size_t *)user)++;
}

static void on_line(void *user, struct str line, bool over)
{
    struct arena arena;
    struct rpc_message message;
    struct rpc_fault fault;
    (void)user;
    arena_init(&arena);
    CHECK(!over);
    if (!rpc_read(&arena, line, NULL, &message, &fault)) {
        fprintf(stderr, "%.*s: %s\n", STR_ARG(line), fault.err.text);
        abort();
    }
    stage->answers += message.kind == RPC_RESULT || message.kind == RPC_ERROR;
    arena_release(&arena);
}

static void on_ended(void *user)
{
    (void)user;
    stage->ended = true;
}

static void set_up(void)
{
    struct err err = {0};
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_OFF);
    stage = calloc(1, sizeof *stage);
    CHECK(stage && uv_loop_init(&stage->loop) == 0);
    CHECK(registry_new(NULL, 0, NULL, 0, "abc", NULL, NULL, &stage->registry, &err) == ERR_NONE);
    fake_engine_init(&stage->engine, stage->registry);
    fake_tools_init(&stage->tools);
    stage->settings = mcp_settings_default;
    stage->settings.calls_max = 8;
    stage->door = mcp_door_new(
        &(struct mcp_door_options){.loop = &stage->loop, .engine = &stage->engine, .settings = &stage->settings});
}

static void turn(int fd)
{
    char chunk[65536];
    ssize_t n;
    uv_run(&stage->loop, UV_RUN_NOWAIT);
    while ((n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT)) > 0)
        lines_feed(&stage->lines, chunk, (size_t)n);
}

static void say(int fd, struct str text, size_t piece)
{
    while (text.n > 0) {
        size_t n = piece < text.n ? piece : text.n;
        ssize_t sent = send(fd, text.p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0)
            text = (struct str){text.p + sent, text.n - (size_t)sent};
        turn(fd);
        if (stage->tools.held_count > 4)
            fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), true);
    }
}

static size_t lines_in(struct str text)
{
    struct lines lines;
    size_t count = 0;
    lines_init(&lines, SIZE_MAX / 4, count_line, &count);
    lines_feed(&lines, text.p, text.n);
    lines_end(&lines);
    lines_release(&lines);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_stream *stream;
    struct err err = {0};
    int pair[2];
    if (size == 0)
        return 0;
    if (!stage)
        set_up();
    struct str text = {(const char *)data + 1, size - 1};
    bool session = data[0] & 1;
    stage->said = lines_in(text) + session;
    stage->answers = 0;
    stage->ended = false;
    lines_init(&stage->lines, SIZE_MAX / 4, on_line, NULL);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(mcp_stream_open(stage->door, pair[0], pair[0], on_ended, NULL, &stream, &err) == ERR_NONE);
    close(pair[0]);
    if (session)
        say(pair[1], STR(hello), sizeof hello);
    say(pair[1], text, 1 + (size_t)(data[0] >> 1) * 8);
    shutdown(pair[1], SHUT_WR);
    for (int i = 0; i < 1000 && !stage->ended; i++) {
        turn(pair[1]);
        fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    }
    turn(pair[1]);
    CHECK(stage->ended && stage->lines.buf.n == 0 && stage->tools.held_count == 0);
    CHECK(stage->answers <= stage->said);
    CHECK(!session || stage->answers >= 1);
    lines_release(&stage->lines);
    close(pair[1]);
    return 0;
}
