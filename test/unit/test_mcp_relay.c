/* The relay of `onced mcp` between a client and owners of the ledger that come and go; the test plays both. */
#include "support/test.h"

#include "base/buf.h"
#include "base/local_socket.h"
#include "cli/mcp_relay.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 10000

/* One end of a conversation. */
struct side {
    int fd;
    struct buf in, line;
};

struct stage {
    char folder[64], path[128];
    int listening; /* -1 = nobody */
    struct side client, owner;
    struct relay_options options;
    pthread_t thread;
    enum err_code code;
    struct err err;
    atomic_int orphaned;
    bool joined;
};

static void on_orphaned(void *user)
{
    struct stage *stage = user;
    atomic_fetch_add(&stage->orphaned, 1);
}

static void *run_relay(void *user)
{
    struct stage *stage = user;
    stage->code = relay_run(&stage->options, &stage->err);
    close(stage->options.in);
    return NULL;
}

static void side_init(struct side *side, int fd)
{
    *side = (struct side){.fd = fd};
    buf_init(&side->in, 0);
    buf_init(&side->line, 0);
}

static void side_close(struct side *side)
{
    if (side->fd >= 0)
        close(side->fd);
    buf_release(&side->in);
    buf_release(&side->line);
    side->fd = -1;
}

static void owner_listens(struct stage *stage)
{
    assert_int_equal(local_socket_listen(stage->path, &stage->listening, NULL), ERR_NONE);
}

static void owner_takes(struct stage *stage)
{
    struct pollfd ready = {.fd = stage->listening, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
    side_init(&stage->owner, accept(stage->listening, NULL, NULL));
    assert_true(stage->owner.fd >= 0);
}

/* As kill -9 does it: the file stays. */
static void owner_dies(struct stage *stage)
{
    close(stage->listening);
    stage->listening = -1;
    side_close(&stage->owner);
}

static void next_owner(struct stage *stage)
{
    owner_dies(stage);
    owner_listens(stage);
    owner_takes(stage);
}

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    int pair[2];
    signal(SIGPIPE, SIG_IGN);
    snprintf(stage->folder, sizeof stage->folder, "/tmp/onced-relay-XXXXXX");
    assert_non_null(mkdtemp(stage->folder));
    snprintf(stage->path, sizeof stage->path, "%s/ledger.mcp", stage->folder);
    stage->listening = stage->owner.fd = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    side_init(&stage->client, pair[0]);
    stage->options = (struct relay_options){
        .in = pair[1], .out = pair[1], .fd = -1, .path = stage->path, .orphaned = on_orphaned, .user = stage};
    *state = stage;
    return 0;
}

static int set_up_connected(void **state)
{
    set_up(state);
    struct stage *stage = *state;
    owner_listens(stage);
    assert_int_equal(local_socket_connect(stage->path, &stage->options.fd, NULL), ERR_NONE);
    owner_takes(stage);
    assert_int_equal(pthread_create(&stage->thread, NULL, run_relay, stage), 0);
    return 0;
}

static enum err_code join(struct stage *stage)
{
    pthread_join(stage->thread, NULL);
    stage->joined = true;
    return stage->code;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    side_close(&stage->client); /* whatever it waits for, it ends with its client */
    if (!stage->joined)
        join(stage);
    owner_dies(stage);
    unlink(stage->path);
    assert_int_equal(rmdir(stage->folder), 0);
    free(stage);
    return 0;
}

/* ---- saying and hearing ---- */

static void say_bytes(struct side *side, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = write(side->fd, bytes, n);
        struct pollfd room = {.fd = side->fd, .events = POLLOUT};
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        } else if (errno != EAGAIN || poll(&room, 1, WAIT_MS) != 1) {
            fail_msg("nothing can be said: %s", strerror(errno));
        }
    }
}

static void say(struct side *side, const char *line)
{
    say_bytes(side, line, strlen(line));
    say_bytes(side, "\n", 1);
}

/* False: nothing within ms, or the end. */
static bool read_more(struct side *side, int ms)
{
    char chunk[65536];
    struct pollfd ready = {.fd = side->fd, .events = POLLIN};
    if (poll(&ready, 1, ms) != 1)
        return false;
    ssize_t n = read(side->fd, chunk, sizeof chunk);
    if (n > 0)
        buf_add(&side->in, chunk, (size_t)n);
    return n > 0;
}

static const char *hear(struct side *side)
{
    for (;;) {
        const char *end = side->in.n ? memchr(side->in.p, '\n', side->in.n) : NULL;
        if (end) {
            size_t n = (size_t)(end - side->in.p);
            buf_reset(&side->line);
            buf_add(&side->line, side->in.p, n);
            memmove(side->in.p, end + 1, side->in.n - n - 1);
            side->in.n -= n + 1;
            return side->line.p;
        }
        if (!read_more(side, WAIT_MS))
            fail_msg("nothing is heard");
    }
}

static void hear_is(struct side *side, const char *wanted)
{
    assert_string_equal(hear(side), wanted);
}

static void hear_has(struct side *side, const char *part)
{
    const char *line = hear(side);
    if (!strstr(line, part))
        fail_msg("%s\nis not in\n%s", part, line);
}

static void hear_nothing(struct side *side)
{
    assert_int_equal(side->in.n, 0);
    assert_false(read_more(side, 100));
    assert_int_equal(side->in.n, 0);
}

#define REQUEST(id, method) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\"}"
#define ANSWER(id)          "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{}}"
#define REFUSED(id)         "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"error\":{\"code\":-32603,\"message\":\"no\"}}"
#define INITIALIZE                                                                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}"
#define INITIALIZED   "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"
#define CANCELLED(id) "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":" id "}}"

/* The client says it, the owner hears it as it is. */
static void pass(struct stage *stage, const char *line)
{
    say(&stage->client, line);
    hear_is(&stage->owner, line);
}

static void answer(struct stage *stage, const char *line)
{
    say(&stage->owner, line);
    hear_is(&stage->client, line);
}

static void begin_session(struct stage *stage)
{
    pass(stage, INITIALIZE);
    answer(stage, ANSWER("0"));
    pass(stage, INITIALIZED);
}

/* What a new owner is told first. */
static void expect_greeting(struct stage *stage, const char *number)
{
    char line[200];
    snprintf(line, sizeof line,
             "{\"jsonrpc\":\"2.0\",\"id\":\"onced-relay-%s\",\"method\":\"initialize\",\"params\":{\"protocolVersion\":"
             "\"2025-11-25\"}}",
             number);
    hear_is(&stage->owner, line);
    hear_nothing(&stage->owner); /* nothing before its answer */
    snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":\"onced-relay-%s\",\"result\":{}}", number);
    say(&stage->owner, line);
    hear_is(&stage->owner, INITIALIZED);
}

/* ---- one owner ---- */

static void test_passes_on(void **state)
{
    struct stage *stage = *state;
    begin_session(stage);
    pass(stage, "{\"id\": 1, \"jsonrpc\" : \"2.0\", \"method\":\"tools\\/call\"}"); /* byte for byte */
    pass(stage, "garbage");
    answer(stage, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}");
    answer(stage, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"x\"}}");
    answer(stage, "{\"result\":{}, \"id\" : 1.0, \"jsonrpc\":\"2.0\"}");
    shutdown(stage->client.fd, SHUT_WR);
    assert_false(read_more(&stage->owner, WAIT_MS)); /* it learns that the client has said all */
    owner_dies(stage);
    assert_int_equal(join(stage), ERR_NONE);
}

static void test_nothing_is_answered_twice(void **state)
{
    struct stage *stage = *state;
    pass(stage, REQUEST("1", "a"));
    pass(stage, REQUEST("\"x\"", "a"));
    answer(stage, ANSWER("1"));
    say(&stage->owner, ANSWER("1"));
    say(&stage->owner, ANSWER("2")); /* never asked */
    answer(stage, ANSWER("\"x\""));
    hear_nothing(&stage->client);
}

/* A client that gives every request one id, each after the other's answer, and two at once. */
static void test_same_ids(void **state)
{
    struct stage *stage = *state;
    for (int i = 0; i < 3; i++) {
        pass(stage, REQUEST("1", "a"));
        answer(stage, ANSWER("1"));
    }
    pass(stage, REQUEST("1", "a"));
    pass(stage, REQUEST("1", "b"));
    answer(stage, ANSWER("1"));
    answer(stage, ANSWER("1"));
    say(&stage->owner, ANSWER("1"));
    hear_nothing(&stage->client);
}

/* ---- the next one ---- */

static void test_session_is_begun_anew(void **state)
{
    struct stage *stage = *state;
    begin_session(stage);
    pass(stage, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"debug\"}}");
    answer(stage, ANSWER("1"));
    pass(stage, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"info\"}}");
    answer(stage, ANSWER("2"));
    pass(stage, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"a:1\"}}");
    answer(stage, ANSWER("3"));
    pass(stage, "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"a:2\"}}");
    answer(stage, ANSWER("4"));
    pass(stage, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"resources/unsubscribe\",\"params\":{\"uri\":\"a:1\"}}");
    answer(stage, ANSWER("5"));
    pass(stage, "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"a:3\"}}");
    answer(stage, REFUSED("6"));
    pass(stage, REQUEST("7", "tools/call"));
    next_owner(stage);
    expect_greeting(stage, "1");
    hear_has(&stage->owner, "\"method\":\"logging/setLevel\",\"params\":{\"level\":\"info\"}");
    say(&stage->owner, ANSWER("\"onced-relay-2\""));
    hear_has(&stage->owner, "\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"a:2\"}");
    say(&stage->owner, ANSWER("\"onced-relay-3\""));
    hear_is(&stage->owner, REQUEST("7", "tools/call"));
    hear_nothing(&stage->owner);
    answer(stage, ANSWER("7"));
    hear_nothing(&stage->client); /* of what it did not ask */
    next_owner(stage);
    expect_greeting(stage, "4");
}

static void test_unanswered_is_asked_again(void **state)
{
    struct stage *stage = *state;
    pass(stage, REQUEST("1", "a"));
    pass(stage, REQUEST("2", "b"));
    pass(stage, REQUEST("3", "c"));
    pass(stage, REQUEST("4", "d"));
    answer(stage, ANSWER("2"));
    pass(stage, CANCELLED("3"));
    say_bytes(&stage->owner, ANSWER("1"), 20); /* the half that it managed to say is nobody's */
    next_owner(stage);
    hear_is(&stage->owner, REQUEST("1", "a"));
    hear_is(&stage->owner, REQUEST("4", "d"));
    hear_nothing(&stage->owner);
    answer(stage, ANSWER("4"));
    answer(stage, ANSWER("1"));
}

/* The last words of a dying owner count. */
static void test_answer_of_a_dead_owner(void **state)
{
    struct stage *stage = *state;
    pass(stage, REQUEST("1", "a"));
    say(&stage->owner, ANSWER("1"));
    next_owner(stage);
    hear_is(&stage->client, ANSWER("1"));
    hear_nothing(&stage->owner);
}

static void test_initialize_itself_is_unanswered(void **state)
{
    struct stage *stage = *state;
    pass(stage, INITIALIZE);
    next_owner(stage);
    hear_is(&stage->owner, INITIALIZE); /* the client's own */
    answer(stage, ANSWER("0"));
    pass(stage, INITIALIZED);
    next_owner(stage);
    expect_greeting(stage, "1");
}

static void test_said_while_nobody_listens(void **state)
{
    struct stage *stage = *state;
    begin_session(stage);
    owner_dies(stage);
    say(&stage->client, REQUEST("1", "a"));
    say(&stage->client, REQUEST("2", "b"));
    say(&stage->client, CANCELLED("1"));
    hear_nothing(&stage->client);
    owner_listens(stage);
    owner_takes(stage);
    expect_greeting(stage, "1");
    hear_is(&stage->owner, REQUEST("2", "b"));
    pass(stage, REQUEST("3", "c"));
}

/* A request that ends its owners is not given to all there are. */
static void test_given_up_after_three(void **state)
{
    struct stage *stage = *state;
    pass(stage, REQUEST("1", "a"));
    for (int i = 0; i < RELAY_SENDS_MAX - 1; i++) {
        next_owner(stage);
        hear_is(&stage->owner, REQUEST("1", "a"));
    }
    next_owner(stage);
    hear_has(&stage->client,
             "\"id\":1,\"error\":{\"code\":-32603,\"message\":\"the process that has the ledger ended three times");
    hear_nothing(&stage->owner);
    pass(stage, REQUEST("2", "b"));
}

static void test_owner_refuses_the_session(void **state)
{
    struct stage *stage = *state;
    begin_session(stage);
    next_owner(stage);
    hear_has(&stage->owner, "\"id\":\"onced-relay-1\",\"method\":\"initialize\"");
    say(&stage->owner, REFUSED("\"onced-relay-1\""));
    assert_false(read_more(&stage->owner, WAIT_MS)); /* another try */
    side_close(&stage->owner);
    owner_takes(stage);
    expect_greeting(stage, "2");
    hear_nothing(&stage->client);
}

/* ---- questions ---- */

static void test_questions(void **state)
{
    struct stage *stage = *state;
    begin_session(stage);
    answer(stage, REQUEST("900", "roots/list"));
    pass(stage, ANSWER("900"));
    say(&stage->client, ANSWER("900")); /* answers nothing */
    answer(stage, REQUEST("901", "roots/list"));
    answer(stage, REQUEST("902", "roots/list"));
    answer(stage, CANCELLED("902"));
    say(&stage->client, ANSWER("902"));
    hear_nothing(&stage->owner);
    next_owner(stage);
    hear_has(&stage->client, "\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":901,");
    expect_greeting(stage, "1");
    say(&stage->client, ANSWER("901")); /* for the dead one */
    hear_nothing(&stage->owner);
}

/* ---- ends ---- */

static void test_answers_after_the_client_has_said_all(void **state)
{
    struct stage *stage = *state;
    pass(stage, REQUEST("1", "a"));
    pass(stage, REQUEST("2", "subscriptions/listen"));
    shutdown(stage->client.fd, SHUT_WR);
    assert_false(read_more(&stage->owner, WAIT_MS));
    next_owner(stage);
    hear_is(&stage->owner, REQUEST("1", "a")); /* what has no end is over */
    assert_false(read_more(&stage->owner, WAIT_MS));
    answer(stage, ANSWER("1"));
    owner_dies(stage);
    assert_int_equal(join(stage), ERR_NONE);
}

static void test_client_gone(void **state)
{
    struct stage *stage = *state;
    pass(stage, REQUEST("1", "a"));
    side_close(&stage->client);
    assert_false(read_more(&stage->owner, WAIT_MS));
    assert_int_equal(join(stage), ERR_NONE);
}

static void test_orphaned(void **state)
{
    struct stage *stage = *state;
    pass(stage, REQUEST("1", "a"));
    owner_dies(stage);
    for (int i = 0; i < 50 && atomic_load(&stage->orphaned) == 0; i++)
        usleep(100000);
    assert_int_equal(atomic_load(&stage->orphaned), 1);
    owner_listens(stage);
    owner_takes(stage);
    hear_is(&stage->owner, REQUEST("1", "a"));
}

/* ---- size ---- */

static void test_giant_request(void **state)
{
    struct stage *stage = *state;
    char piece[65536];
    memset(piece, 'x', sizeof piece);
    static const char start[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"";
    say_bytes(&stage->client, start, sizeof start - 1);
    for (size_t said = 0; said < 2 * RELAY_REQUEST_MAX;) {
        ssize_t n = send(stage->client.fd, piece, sizeof piece, MSG_DONTWAIT);
        said += n > 0 ? (size_t)n : 0;
        if (n < 0)
            read_more(&stage->owner, 10); /* it is not read while its owner does not read */
    }
    say(&stage->client, "\"}}");
    assert_int_equal(strlen(hear(&stage->owner)), RELAY_REQUEST_MAX); /* the beginning, which is refused */
    answer(stage, REFUSED("1"));
    pass(stage, REQUEST("2", "a"));
}

#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, set_up_connected, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED(test_passes_on),
        CONNECTED(test_nothing_is_answered_twice),
        CONNECTED(test_same_ids),
        CONNECTED(test_session_is_begun_anew),
        CONNECTED(test_unanswered_is_asked_again),
        CONNECTED(test_answer_of_a_dead_owner),
        CONNECTED(test_initialize_itself_is_unanswered),
        CONNECTED(test_said_while_nobody_listens),
        CONNECTED(test_given_up_after_three),
        CONNECTED(test_owner_refuses_the_session),
        CONNECTED(test_questions),
        CONNECTED(test_answers_after_the_client_has_said_all),
        CONNECTED(test_client_gone),
        CONNECTED(test_orphaned),
        CONNECTED(test_giant_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
