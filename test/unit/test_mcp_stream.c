/* MCP over lines, on a pair of sockets, on files, and on the ledger's socket: the dispatch is the real one, what tools
 * do the test says. */
#include "support/test.h"

#include "base/local_socket.h"
#include "support/fake_engine.h"
#include "support/fake_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TURNS_MAX 20000

/* ---- the stage ---- */

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct fake_tools tools;
    struct registry *registry;
    struct mcp_settings settings;
    struct mcp_door *door;
    struct mcp_stream *stream;
    int client; /* our end; -1 = closed */
    int ended;
    struct buf in; /* what came and was not taken yet */
    struct buf line;
    bool eof;
};

static void on_ended(void *user)
{
    struct stage *stage = user;
    stage->ended++;
    stage->stream = NULL;
}

static void open_stream(struct stage *stage, int in, int out)
{
    struct err err = {0};
    if (mcp_stream_open(stage->door, in, out, on_ended, stage, &stage->stream, &err))
        fail_msg("%s", err.text);
}

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    struct err err = {0};
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&stage->loop);
    assert_int_equal(registry_new(NULL, 0, NULL, 0, "abc", NULL, NULL, &stage->registry, &err), 0);
    fake_engine_init(&stage->engine, stage->registry);
    stage->engine.recovered = true;
    fake_tools_init(&stage->tools);
    stage->settings = mcp_settings_default;
    stage->settings.stream_bytes_max = 64 * 1024;
    stage->door = mcp_door_new(
        &(struct mcp_door_options){.loop = &stage->loop, .engine = &stage->engine, .settings = &stage->settings});
    buf_init(&stage->in, 0);
    buf_init(&stage->line, 0);
    stage->client = -1;
    *state = stage;
    return 0;
}

static int set_up_pair(void **state)
{
    int pair[2];
    set_up(state);
    struct stage *stage = *state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    open_stream(stage, pair[0], pair[0]);
    close(pair[0]); /* it has its own */
    stage->client = pair[1];
    fcntl(stage->client, F_SETFL, O_NONBLOCK);
    return 0;
}

static void turn(struct stage *stage)
{
    uv_run(&stage->loop, UV_RUN_NOWAIT);
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    if (stage->client >= 0)
        close(stage->client);
    mcp_stream_close(stage->stream);
    mcp_door_close(stage->door);
    for (int i = 0; i < TURNS_MAX && uv_loop_alive(&stage->loop); i++)
        turn(stage);
    mcp_door_free(stage->door);
    for (int i = 0; i < TURNS_MAX && uv_loop_alive(&stage->loop); i++)
        turn(stage);
    assert_int_equal(stage->tools.held_count, 0); /* nothing waits for a client that is gone */
    assert_int_equal(uv_loop_close(&stage->loop), 0);
    buf_release(&stage->in);
    buf_release(&stage->line);
    fake_tools_release(&stage->tools);
    fake_engine_release(&stage->engine);
    registry_unref(stage->registry);
    free(stage);
    return 0;
}

/* ---- the client ---- */

static void read_some(struct stage *stage)
{
    char chunk[65536];
    ssize_t n = read(stage->client, chunk, sizeof chunk);
    if (n > 0)
        buf_add(&stage->in, chunk, (size_t)n);
    else if (n == 0)
        stage->eof = true;
}

static void say_bytes(struct stage *stage, const char *bytes, size_t n)
{
    for (int i = 0; n > 0; i++) {
        ssize_t sent = write(stage->client, bytes, n);
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
            continue;
        }
        if (errno != EAGAIN || i > TURNS_MAX)
            fail_msg("%zu bytes can not be said: %s", n, strerror(errno));
        turn(stage);
    }
}

static void say(struct stage *stage, const char *line)
{
    say_bytes(stage, line, strlen(line));
    say_bytes(stage, "\n", 1);
}

/* The next line that the client is told; valid until the next one. */
static const char *hear(struct stage *stage)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        const char *end = stage->in.n ? memchr(stage->in.p, '\n', stage->in.n) : NULL;
        if (end) {
            size_t n = (size_t)(end - stage->in.p);
            buf_reset(&stage->line);
            buf_add(&stage->line, stage->in.p, n);
            memmove(stage->in.p, end + 1, stage->in.n - n - 1);
            stage->in.n -= n + 1;
            return stage->line.p;
        }
        turn(stage);
        read_some(stage);
    }
    fail_msg("nothing is told");
    return "";
}

static void hear_is(struct stage *stage, const char *wanted)
{
    assert_string_equal(hear(stage), wanted);
}

static void hear_has(struct stage *stage, const char *part)
{
    const char *line = hear(stage);
    if (!strstr(line, part))
        fail_msg("%s\nis not in\n%s", part, line);
}

static void hear_nothing(struct stage *stage)
{
    for (int i = 0; i < 50; i++) {
        turn(stage);
        read_some(stage);
    }
    assert_int_equal(stage->in.n, 0);
}

static void wait_for_end(struct stage *stage)
{
    for (int i = 0; i < TURNS_MAX && !stage->ended; i++)
        turn(stage);
    assert_int_equal(stage->ended, 1);
}

static void hang_up(struct stage *stage)
{
    close(stage->client);
    stage->client = -1;
}

#define MODERN                                                                                                         \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                                           \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define CALL(id, tool)                                                                                                 \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"" tool                        \
    "\",\"arguments\":{}," MODERN "}}"

static void begin_legacy(struct stage *stage)
{
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","
               "\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}");
    hear_has(stage, "\"protocolVersion\":\"2025-11-25\"");
    say(stage, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
}

/* ---- messages ---- */

static void test_both_eras_on_one_connection(void **state)
{
    struct stage *stage = *state;
    begin_legacy(stage);
    say(stage, CALL("1", "now"));
    hear_has(stage, "\"id\":1,\"result\":{");
    assert_int_equal(stage->tools.era, MCP_ERA_MODERN);
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"now\"}}");
    hear_is(stage, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":[],\"echo\":null}}");
    assert_int_equal(stage->tools.era, MCP_ERA_LEGACY);
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}");
    hear_is(stage, "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"result\":{}}");
    assert_string_equal(stage->tools.principal, "local");
    assert_string_equal(stage->tools.tenant, "default");
    assert_false(stage->tools.facts.http);
}

static void test_pieces_and_bundles(void **state)
{
    struct stage *stage = *state;
    static const char one[] = CALL("1", "now") "\r\n\n";
    for (size_t i = 0; i < sizeof one - 1; i++) {
        say_bytes(stage, one + i, 1);
        turn(stage);
    }
    hear_has(stage, "\"id\":1,");
    say(stage, CALL("2", "now") "\n" CALL("3", "hold") "\n" CALL("4", "now"));
    hear_has(stage, "\"id\":2,");
    hear_has(stage, "\"id\":4,");
    fake_tools_answer(&stage->tools, STR("{\"content\":[\n]}"), false); /* a line end within must not end the line */
    hear_has(stage, "\"content\":[ ]");
}

static void test_cancelled(void **state)
{
    struct stage *stage = *state;
    begin_legacy(stage);
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"hold\"}}");
    say(stage, CALL("6", "hold"));
    say(stage, CALL("7", "now"));
    hear_has(stage, "\"id\":7,");
    say(stage, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":5}}");
    say(stage, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":6}}");
    say(stage, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":99}}");
    say(stage, CALL("8", "now"));
    hear_has(stage, "\"id\":8,");
    assert_int_equal(stage->tools.cancelled, 2);
    hear_nothing(stage);
}

static void test_progress_comes_before_the_answer(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "progress"));
    hear_has(stage, "\"method\":\"notifications/progress\",\"params\":{\"progress\":1}");
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    hear_has(stage, "\"id\":1,\"result\"");
}

/* ---- ends ---- */

static void test_half_closed_input(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "hold"));
    say(stage, CALL("2", "hold"));
    say_bytes(stage, CALL("3", "now"), strlen(CALL("3", "now"))); /* without its line end */
    shutdown(stage->client, SHUT_WR);
    hear_has(stage, "\"id\":3,");
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    hear_has(stage, "\"id\":1,\"result\"");
    hear_nothing(stage);
    assert_int_equal(stage->ended, 0);
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    hear_has(stage, "\"id\":2,\"result\"");
    wait_for_end(stage);
    read_some(stage);
    assert_true(stage->eof);
}

static void test_client_gone(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "hold"));
    say(stage, CALL("2", "now"));
    hear(stage);
    hang_up(stage);
    wait_for_end(stage);
    assert_int_equal(stage->tools.held_count, 0);
    assert_int_equal(stage->tools.released, 1);
}

static void test_listen_does_not_hold_the_end(void **state)
{
    struct stage *stage = *state;
    say(stage,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":{}," MODERN
        "}}");
    hear_has(stage, "acknowledged");
    say(stage, CALL("2", "hold"));
    say(stage, CALL("3", "now"));
    hear_has(stage, "\"id\":3,");
    shutdown(stage->client, SHUT_WR);
    for (int i = 0; i < 100 && stage->tools.held_count == 2; i++)
        turn(stage);
    assert_int_equal(stage->tools.held_count, 1); /* the listen is over, the call is not */
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    hear_has(stage, "\"id\":2,\"result\"");
    wait_for_end(stage);
}

static void test_finish_answers_what_was_asked(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "hold"));
    say(stage, CALL("2", "now"));
    hear(stage);
    mcp_stream_finish(stage->stream);
    say(stage, CALL("3", "now"));
    hear_nothing(stage);
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    hear_has(stage, "\"id\":1,\"result\"");
    wait_for_end(stage);
    assert_int_equal(stage->tools.calls, 2);
}

static void test_door_closes(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "hold"));
    say(stage, CALL("2", "now"));
    hear(stage);
    mcp_door_close(stage->door);
    wait_for_end(stage);
}

/* ---- delivery ---- */

static void test_delivered_once_written(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "deliver"));
    hear_has(stage, "\"id\":1,");
    assert_int_equal(stage->engine.delivered, 1);
    assert_string_equal(stage->engine.delivered_id, stage->tools.operation.id);
    say(stage, CALL("2", "hold"));
    say(stage, CALL("3", "now"));
    hear(stage);
    hang_up(stage);
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), true);
    wait_for_end(stage);
    assert_int_equal(stage->engine.delivered, 1); /* nobody was there to be told */
}

/* An answer that is only half written was not delivered. */
static void test_not_delivered_while_unread(void **state)
{
    struct stage *stage = *state;
    struct buf big;
    int room = 4096;
    setsockopt(stage->client, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    buf_init(&big, 0);
    buf_add_text(&big, "{\"content\":[],\"text\":\"");
    for (int i = 0; i < 1000000; i++)
        buf_add_char(&big, 'x');
    buf_add_text(&big, "\"}");
    say(stage, CALL("1", "hold"));
    for (int i = 0; i < 100; i++)
        turn(stage);
    assert_true(fake_tools_answer(&stage->tools, buf_str(&big), true));
    for (int i = 0; i < 100; i++)
        turn(stage);
    assert_int_equal(stage->engine.delivered, 0);
    assert_true(strlen(hear(stage)) > 1000000);
    assert_int_equal(stage->engine.delivered, 1);
    buf_release(&big);
}

/* ---- clients that do not read ---- */

static void test_notifications_find_no_room(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "hold"));
    for (int i = 0; i < 100; i++)
        turn(stage);
    for (int i = 0; i < 20000; i++) {
        fake_tools_tell(&stage->tools, STR("{\"progress\":1,\"message\":\"a hundred bytes or so are in this line\"}"));
        turn(stage);
    }
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    size_t told = 0;
    while (strstr(hear(stage), "notifications/progress"))
        told++;
    assert_non_null(strstr(stage->line.p, "\"id\":1,\"result\"")); /* the answer is never dropped */
    assert_true(told > 100 && told < 10000);
}

static void say_echo(struct stage *stage, int id, const char *text)
{
    struct buf line;
    buf_init(&line, 0);
    buf_printf(&line,
               "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/"
               "call\",\"params\":{\"name\":\"now\",\"arguments\":{\"t\":\"%s\"},"
               "%s}}\n",
               id, text, MODERN);
    for (size_t at = 0; at < line.n;) { /* as far as it goes: the other side may have stopped reading */
        ssize_t n = write(stage->client, line.p + at, line.n - at);
        if (n > 0)
            at += (size_t)n;
        else if (at == 0)
            break;
        turn(stage);
        if (n <= 0)
            read_some(stage);
    }
    buf_release(&line);
}

static void test_who_does_not_read_is_not_read(void **state)
{
    struct stage *stage = *state;
    char text[4001];
    memset(text, 'x', 4000);
    text[4000] = '\0';
    int said = 0, calls;
    for (int i = 0; i < 1000; i++) {
        struct buf none = stage->in;
        say_echo(stage, i, text);
        assert_ptr_equal(none.p, stage->in.p);
        turn(stage);
        said = i + 1;
        if (i > 0 && stage->tools.calls < i / 2)
            break;
    }
    calls = stage->tools.calls;
    assert_true(calls < said); /* it stopped */
    for (int i = 0; i < 200; i++)
        turn(stage);
    assert_int_equal(stage->tools.calls, calls);
    for (int i = 0; i < calls + 1; i++)
        hear_has(stage, "\"result\""); /* and goes on */
    assert_true(stage->tools.calls > calls);
}

/* ---- hostile input ---- */

static void test_garbage(void **state)
{
    struct stage *stage = *state;
    say(stage, "garbage");
    hear_has(stage, "\"id\":null,\"error\":{\"code\":-32700,");
    say_bytes(stage, "\0\xff\xfe\x80\n", 5);
    hear_has(stage, "\"id\":null,\"error\":{\"code\":-32700,");
    say(stage, "[]");
    hear_has(stage, "\"id\":null,\"error\":{\"code\":-32600,");
    say(stage, "[" CALL("1", "now") "]");
    hear_has(stage, "\"id\":null,\"error\":{\"code\":-32600,");
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no/such\"}");
    hear_has(stage, "\"id\":1,\"error\":{\"code\":-32601,");
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":2}");
    hear_has(stage, "\"id\":2,\"error\":{\"code\":-32600,");
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/"
               "call\",\"params\":{\"name\":\"now\",\"arguments\":{\"a\":\"\\ud800\"}}}");
    hear_has(stage, "\"id\":3,\"error\":{\"code\":-32700,");
    say(stage, "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}"); /* an answer to nothing */
    say(stage, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/nothing\"}");
    say(stage, CALL("4", "now"));
    hear_has(stage, "\"id\":4,\"result\"");
    hear_nothing(stage);
}

/* Also a depth of brackets that would exhaust a stack. */
static void test_deep_and_wide(void **state)
{
    struct stage *stage = *state;
    struct buf line;
    buf_init(&line, 0);
    buf_add_text(&line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"arguments\":");
    for (int i = 0; i < 1000000; i++)
        buf_add_char(&line, '[');
    say(stage, line.p);
    hear_has(stage, "\"id\":1,\"error\":{\"code\":-32600,");
    buf_reset(&line);
    buf_add_text(&line, "{\"method\":\"tools/call\",\"params\":{\"arguments\":{\"a\":[0");
    for (int i = 0; i < 200000; i++)
        buf_add_text(&line, ",0");
    buf_add_text(&line, "]}},\"jsonrpc\":\"2.0\",\"id\":\"w\"}");
    say(stage, line.p);
    hear_has(stage, "\"id\":\"w\",\"error\":{\"code\":-32600,");
    buf_release(&line);
}

static size_t peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss;
}

static void test_endless_line(void **state)
{
    struct stage *stage = *state;
    char piece[65536];
    memset(piece, 'x', sizeof piece);
    say_bytes(stage, "{\"id\":\"giant\",\"method\":\"tools/call\",\"params\":{\"a\":\"", 51);
    for (size_t said = 0; said < 5 << 20; said += sizeof piece)
        say_bytes(stage, piece, sizeof piece);
    hear_has(stage, "\"id\":\"giant\",\"error\":{\"code\":-32600,"); /* told while it still goes on */
    size_t before = peak_kib();
    for (size_t said = 0; said < 64 << 20; said += sizeof piece)
        say_bytes(stage, piece, sizeof piece);
    assert_true(peak_kib() < before + 16 * 1024);
    say(stage, "\"}}");
    say(stage, CALL("1", "now"));
    hear_has(stage, "\"id\":1,\"result\"");
    hear_nothing(stage);
}

static void test_half_message_at_the_end(void **state)
{
    struct stage *stage = *state;
    say_bytes(stage, "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/ca", 43);
    shutdown(stage->client, SHUT_WR);
    hear_has(stage, "\"error\":{\"code\":-32700,");
    wait_for_end(stage);
}

static void test_ten_thousand_calls_at_once(void **state)
{
    struct stage *stage = *state;
    struct buf bundle;
    buf_init(&bundle, 0);
    for (int i = 0; i < 10000; i++)
        buf_printf(
            &bundle,
            "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/call\",\"params\":{\"name\":\"hold\"," MODERN "}}\n", i);
    for (size_t at = 0; at < bundle.n;) {
        ssize_t n = write(stage->client, bundle.p + at, bundle.n - at);
        at += n > 0 ? (size_t)n : 0;
        turn(stage);
        read_some(stage);
    }
    buf_release(&bundle);
    for (size_t i = 0; i < 10000 - stage->settings.calls_max; i++)
        hear_has(stage, "\"error\":{\"code\":429,");
    assert_int_equal(stage->tools.held_count, stage->settings.calls_max);
    while (fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false))
        hear_has(stage, "\"result\"");
    say(stage, CALL("1", "now"));
    hear_has(stage, "\"id\":1,\"result\"");
}

static void test_same_id_twice(void **state)
{
    struct stage *stage = *state;
    say(stage, CALL("1", "hold"));
    say(stage, CALL("1", "now"));
    hear_has(stage, "\"id\":1,\"error\":{\"code\":-32600,");
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    hear_has(stage, "\"id\":1,\"result\"");
}

/* ---- files, pipes ---- */

static void test_files(void **state)
{
    struct stage *stage = *state;
    char in_name[] = "/tmp/onced-in-XXXXXX", text[4096] = "";
    int in = mkstemp(in_name), out[2];
    static const char said[] = CALL("1", "now") "\n" CALL("2", "now");
    assert_int_equal(write(in, said, sizeof said - 1), sizeof said - 1);
    lseek(in, 0, SEEK_SET);
    assert_int_equal(pipe(out), 0);
    int flags = fcntl(out[1], F_GETFL);
    open_stream(stage, in, out[1]);
    assert_true(fcntl(out[1], F_GETFL) & O_NONBLOCK);
    wait_for_end(stage);
    assert_int_equal(fcntl(out[1], F_GETFL), flags); /* as it was: others may have it, too */
    close(out[1]);
    ssize_t n = read(out[0], text, sizeof text - 1);
    assert_true(n > 0 && strstr(text, "\"id\":1,\"result\"") && strstr(text, "\"id\":2,\"result\""));
    close(out[0]);
    close(in);
    unlink(in_name);
}

static void test_devices(void **state)
{
    struct stage *stage = *state;
    int null = open("/dev/null", O_RDWR);
    open_stream(stage, null, null);
    wait_for_end(stage);
    close(null);
}

static void test_reader_of_a_pipe_is_gone(void **state)
{
    struct stage *stage = *state;
    int in[2], out[2];
    assert_int_equal(pipe(in) | pipe(out), 0);
    open_stream(stage, in[0], out[1]);
    close(out[0]);
    assert_int_equal(write(in[1], CALL("1", "now") "\n", sizeof CALL("1", "now")), sizeof CALL("1", "now"));
    wait_for_end(stage);
    close(in[0]), close(in[1]), close(out[1]);
}

static void test_bad_descriptor(void **state)
{
    struct stage *stage = *state;
    struct err err = {0};
    assert_int_equal(mcp_stream_open(stage->door, 999, 1, on_ended, stage, &stage->stream, &err), ERR_IO);
    assert_non_null(strstr(err.text, "999"));
    assert_null(stage->stream);
}

/* ---- the socket ---- */

struct spot {
    char folder[64], path[256];
};

static void spot_make(struct spot *spot)
{
    snprintf(spot->folder, sizeof spot->folder, "/tmp/onced-socket-XXXXXX");
    assert_non_null(mkdtemp(spot->folder));
    snprintf(spot->path, sizeof spot->path, "%s/ledger.db%s", spot->folder, MCP_SOCKET_SUFFIX);
}

static void spot_remove(struct spot *spot)
{
    unlink(spot->path);
    assert_int_equal(rmdir(spot->folder), 0);
}

static int join(const char *path)
{
    struct err err = {0};
    int fd = -1;
    if (local_socket_connect(path, &fd, &err))
        fail_msg("%s", err.text);
    return fd;
}

static void count_left(void *user)
{
    (*(int *)user)++;
}

static void test_socket_clients(void **state)
{
    struct stage *stage = *state;
    struct spot spot;
    struct mcp_listener_socket *listener = NULL, *other = NULL;
    struct err err = {0};
    struct stat file;
    int left = 0;
    spot_make(&spot);
    umask(0);
    assert_int_equal(mcp_socket_listen(stage->door, spot.path, &listener, &err), ERR_NONE);
    assert_int_equal(stat(spot.path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    mcp_socket_on_left(listener, count_left, &left);
    assert_int_equal(mcp_socket_listen(stage->door, spot.path, &other, &err), ERR_CONFLICT);
    assert_non_null(strstr(err.text, "another process listens"));
    int second = join(spot.path);
    stage->client = join(spot.path);
    say(stage, CALL("1", "now"));
    hear_has(stage, "\"id\":1,\"result\"");
    assert_int_equal(mcp_socket_clients(listener), 2); /* the conflict's look left no trace */
    close(second);
    for (int i = 0; i < TURNS_MAX && mcp_socket_clients(listener) > 1; i++)
        turn(stage);
    assert_true(left >= 1);
    say(stage, CALL("2", "hold"));
    for (int i = 0; i < TURNS_MAX && stage->tools.held_count == 0; i++)
        turn(stage);
    mcp_socket_stop(listener);
    assert_int_not_equal(access(spot.path, F_OK), 0);
    fake_tools_answer(&stage->tools, STR("{\"content\":[]}"), false);
    hear_has(stage, "\"id\":2,\"result\"");
    for (int i = 0; i < TURNS_MAX && mcp_socket_clients(listener) > 0; i++)
        turn(stage);
    assert_int_equal(mcp_socket_clients(listener), 0);
    mcp_socket_close(listener);
    spot_remove(&spot);
}

static void test_socket_close_ends_connections(void **state)
{
    struct stage *stage = *state;
    struct spot spot;
    struct mcp_listener_socket *listener = NULL;
    spot_make(&spot);
    assert_int_equal(mcp_socket_listen(stage->door, spot.path, &listener, NULL), ERR_NONE);
    stage->client = join(spot.path);
    say(stage, CALL("1", "hold"));
    for (int i = 0; i < TURNS_MAX && stage->tools.held_count == 0; i++)
        turn(stage);
    mcp_socket_close(listener);
    for (int i = 0; i < 100 && !stage->eof; i++) {
        turn(stage);
        read_some(stage);
    }
    assert_true(stage->eof);
    assert_int_equal(stage->tools.held_count, 0);
    spot_remove(&spot);
}

static void test_dead_socket_file(void **state)
{
    struct stage *stage = *state;
    struct spot spot;
    struct mcp_listener_socket *listener = NULL;
    struct err err = {0};
    int fd = -1;
    spot_make(&spot);
    assert_int_equal(local_socket_listen(spot.path, &fd, &err), ERR_NONE);
    close(fd); /* as kill -9 leaves it */
    assert_int_equal(local_socket_connect(spot.path, &fd, NULL), ERR_NOT_FOUND);
    assert_int_equal(mcp_socket_listen(stage->door, spot.path, &listener, &err), ERR_NONE);
    stage->client = join(spot.path);
    say(stage, CALL("1", "now"));
    hear_has(stage, "\"id\":1,\"result\"");
    mcp_socket_close(listener);
    err_clear(&err);
    fd = open(spot.path, O_CREAT | O_WRONLY | O_EXCL, 0600); /* not ours to remove */
    close(fd);
    assert_int_equal(mcp_socket_listen(stage->door, spot.path, &listener, &err), ERR_CONFLICT);
    assert_int_equal(access(spot.path, F_OK), 0);
    spot_remove(&spot);
}

/* Another's file in the place of ours stays. */
static void test_file_of_another_stays(void **state)
{
    struct stage *stage = *state;
    struct spot spot;
    struct mcp_listener_socket *listener = NULL;
    int fd = -1;
    spot_make(&spot);
    assert_int_equal(mcp_socket_listen(stage->door, spot.path, &listener, NULL), ERR_NONE);
    unlink(spot.path);
    assert_int_equal(local_socket_listen(spot.path, &fd, NULL), ERR_NONE);
    mcp_socket_close(listener);
    assert_int_equal(access(spot.path, F_OK), 0);
    close(fd);
    spot_remove(&spot);
}

static void test_long_path(void **state)
{
    struct stage *stage = *state;
    struct spot spot;
    struct mcp_listener_socket *listener = NULL;
    struct err err = {0};
    char deep[300], path[400];
    int fd;
    spot_make(&spot);
    snprintf(deep, sizeof deep, "%s/%0*d", spot.folder, 150, 7);
    assert_int_equal(mkdir(deep, 0700), 0);
    snprintf(path, sizeof path, "%s/ledger.db%s", deep, MCP_SOCKET_SUFFIX);
    assert_int_equal(local_socket_connect(path, &fd, &err), ERR_NOT_FOUND);
    err_clear(&err);
    assert_int_equal(mcp_socket_listen(stage->door, path, &listener, &err), ERR_NONE);
    stage->client = join(path);
    say(stage, CALL("1", "now"));
    hear_has(stage, "\"id\":1,\"result\"");
    mcp_socket_close(listener);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/%0*d", deep, LOCAL_SOCKET_NAME_MAX + 1, 7);
    assert_int_equal(mcp_socket_listen(stage->door, path, &listener, &err), ERR_LIMIT);
    rmdir(deep);
    spot_remove(&spot);
}

static void test_too_many_clients(void **state)
{
    struct stage *stage = *state;
    struct spot spot;
    struct mcp_listener_socket *listener = NULL;
    int fds[MCP_SOCKET_CLIENTS_MAX];
    spot_make(&spot);
    assert_int_equal(mcp_socket_listen(stage->door, spot.path, &listener, NULL), ERR_NONE);
    for (size_t i = 0; i < MCP_SOCKET_CLIENTS_MAX; i++) {
        fds[i] = join(spot.path);
        turn(stage);
    }
    for (int i = 0; i < TURNS_MAX && mcp_socket_clients(listener) < MCP_SOCKET_CLIENTS_MAX; i++)
        turn(stage);
    stage->client = join(spot.path);
    hear_has(stage, "\"id\":null,\"error\":{\"code\":429,");
    assert_int_equal(mcp_socket_clients(listener), MCP_SOCKET_CLIENTS_MAX);
    for (size_t i = 0; i < MCP_SOCKET_CLIENTS_MAX; i++)
        close(fds[i]);
    mcp_socket_close(listener);
    spot_remove(&spot);
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, set_up_pair, tear_down)
#define ALONE(test)     cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PAIR(test_both_eras_on_one_connection),
        WITH_PAIR(test_pieces_and_bundles),
        WITH_PAIR(test_cancelled),
        WITH_PAIR(test_progress_comes_before_the_answer),
        WITH_PAIR(test_half_closed_input),
        WITH_PAIR(test_client_gone),
        WITH_PAIR(test_listen_does_not_hold_the_end),
        WITH_PAIR(test_finish_answers_what_was_asked),
        WITH_PAIR(test_door_closes),
        WITH_PAIR(test_delivered_once_written),
        WITH_PAIR(test_not_delivered_while_unread),
        WITH_PAIR(test_notifications_find_no_room),
        WITH_PAIR(test_who_does_not_read_is_not_read),
        WITH_PAIR(test_garbage),
        WITH_PAIR(test_deep_and_wide),
        WITH_PAIR(test_endless_line),
        WITH_PAIR(test_half_message_at_the_end),
        WITH_PAIR(test_ten_thousand_calls_at_once),
        WITH_PAIR(test_same_id_twice),
        ALONE(test_files),
        ALONE(test_devices),
        ALONE(test_reader_of_a_pipe_is_gone),
        ALONE(test_bad_descriptor),
        ALONE(test_socket_clients),
        ALONE(test_socket_close_ends_connections),
        ALONE(test_dead_socket_file),
        ALONE(test_file_of_another_stays),
        ALONE(test_long_path),
        ALONE(test_too_many_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
