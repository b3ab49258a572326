/* Servers that onced starts: what they get, what is said when they end, and that none of them stays behind. */
#include "support/mcp_case.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEGACY(more) "{'mcp':{'command':['SERVER'" more "],'protocol':'2025-11-25'}}"

static bool has_lost(void *user)
{
    return ((struct mcp_heard *)user)->lost > 0;
}

/* A process that has ended but was not reaped by its new parent does nothing any more. */
static bool is_alive(pid_t pid)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    fclose(file);
    return state != 'X' && state != 'Z';
}

static bool is_gone(void *user)
{
    return !is_alive(*(pid_t *)user);
}

/* SIGKILL takes its time. */
static bool ends_soon(pid_t pid)
{
    for (int i = 0; i < 2000 && is_alive(pid); i++)
        usleep(10000);
    return !is_alive(pid);
}

/* Runs body with standard error in a file; the text is in the case's arena. */
struct captured {
    int kept, fd;
    char path[32];
};

static void capture_begin(struct captured *captured)
{
    snprintf(captured->path, sizeof captured->path, "/tmp/onced-stderr-XXXXXX");
    captured->fd = mkstemp(captured->path);
    assert_true(captured->fd >= 0);
    fflush(stderr);
    captured->kept = dup(2);
    dup2(captured->fd, 2);
}

static const char *capture_end(struct captured *captured, struct arena *arena)
{
    fflush(stderr);
    dup2(captured->kept, 2);
    close(captured->kept);
    off_t size = lseek(captured->fd, 0, SEEK_END);
    char *text = arena_alloc(arena, (size_t)size + 1);
    assert_int_equal(pread(captured->fd, text, (size_t)size, 0), size);
    text[size] = '\0';
    close(captured->fd);
    unlink(captured->path);
    return text;
}

static unsigned occurrences(const char *text, const char *what)
{
    unsigned n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

/* ---- what a process gets ---- */

static void it_gets_what_is_stated_and_no_more(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    int leak = open("/dev/null", O_RDONLY); /* without O_CLOEXEC */
    setenv("ONCED_TEST_SECRET", "hidden", 1);
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s",
                   "{'mcp':{'command':['SERVER'],'env':{'STATED':'a b','TOKEN':'${env:ONCED_TEST_SECRET}'},'cwd':'/'}}",
                   NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    mcp_case_call(&mcp, link, "environment", NULL, &reply);
    char own[64];
    int pid = 0, group = 0, session = 0;
    assert_int_equal(sscanf(reply.words, "cwd=/ pgid=%d sid=%d pid=%d", &group, &session, &pid), 3);
    assert_int_equal(group, pid);
    assert_int_equal(session, pid);
    assert_non_null(strstr(reply.words, " STATED=a b"));
    assert_non_null(strstr(reply.words, " TOKEN=hidden"));
    assert_non_null(strstr(reply.words, " PATH="));
    assert_null(strstr(reply.words, "ONCED_TEST_SECRET"));
    snprintf(own, sizeof own, " open:%d", leak);
    assert_null(strstr(reply.words, " open:"));
    mcp_link_close(link);
    mcp_case_end(&mcp);
    close(leak);
}

static void what_cannot_be_started_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *section, *error;
    } items[] = {
        {"{'mcp':{'command':['no-such-program-here']}}", "no-such-program-here is not in the PATH"},
        {"{'mcp':{'command':['/no/such/program']}}", "/no/such/program cannot be started: No such file"},
        {"{'mcp':{'command':['SERVER'],'cwd':'/no/such/folder'}}", "cwd /no/such/folder: No such file"},
        {"{'mcp':{'command':['/etc/passwd']}}", "/etc/passwd cannot be started: Permission denied"},
        {"{'mcp':{'command':['SERVER','--exit','4']}}", "the server exited with status 4"},
        {"{'mcp':{'command':['true']}}", "the server exited with status 0"},
    };
    struct mcp_case mcp;
    mcp_case_begin(&mcp);
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        mcp_case_apply(&mcp, "s", items[i].section, NULL);
        assert_true(mcp_case_wait_state(&mcp, "s", MCP_SERVER_DOWN));
        struct mcp_server *server = mcp_case_server(&mcp, "s");
        if (!strstr(mcp_server_info(server).error, items[i].error))
            fail_msg("%s", mcp_server_info(server).error);
        struct err err = {0};
        assert_null(mcp_link_open(server, &(struct mcp_link_options){0}, &err));
        assert_int_equal(err.code, ERR_UNAVAILABLE);
        assert_non_null(strstr(err.text, "server s is down: "));
        assert_null(mcp_server_attempt_link(server, (struct adapter_origin){0}, NULL));
    }
    assert_true(mcp_hub_settled(mcp.hub));
    mcp_case_end(&mcp);
}

/* ---- its end ---- */

static void calls_learn_how_it_ended(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *why;
    } items[] = {
        {"{}", "the server exited with status 3"},
        {"{'status':0}", "the server exited with status 0"},
        {"{'signal':9}", "the server was ended by signal 9"},
        {"{'signal':15}", "the server was ended by signal 15"},
    };
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        struct mcp_case mcp;
        struct mcp_heard heard = {0};
        struct mcp_reply other, reply;
        mcp_case_begin(&mcp);
        mcp_case_apply(&mcp, "s", LEGACY(""), NULL);
        struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
        mcp_case_request(&mcp, link, "tools/call", "{'name':'never'}", 0, &other);
        mcp_case_call(&mcp, link, "crash", items[i].arguments, &reply);
        assert_int_equal(reply.end, MCP_LOST);
        assert_true(reply.sent); /* it may have happened */
        assert_non_null(strstr(reply.text, items[i].why));
        assert_int_equal(other.count, 1);
        assert_int_equal(other.end, MCP_LOST);
        assert_true(other.sent);
        assert_int_equal(heard.lost, 1);
        assert_string_equal(heard.why, reply.text);
        mcp_link_close(link);
        /* it is started again, and nothing was sent twice: the new one is not asked for the lost calls */
        assert_true(mcp_case_wait_state(&mcp, "s", MCP_SERVER_READY));
        assert_int_equal(mcp_server_info(mcp_case_server(&mcp, "s")).restarts, 1);
        link = mcp_case_open(&mcp, "s", &heard, NULL);
        mcp_case_call(&mcp, link, "echo", NULL, &reply);
        assert_int_equal(reply.end, MCP_ANSWERED);
        mcp_link_close(link);
        mcp_case_end(&mcp);
    }
}

static void an_answer_before_the_end_counts(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY(""), NULL);
    for (int i = 0; i < 3; i++) {
        assert_true(mcp_case_wait_state(&mcp, "s", MCP_SERVER_READY));
        struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
        mcp_case_call(&mcp, link, "crash", "{'answer':true}", &reply);
        assert_int_equal(reply.end, MCP_ANSWERED);
        assert_string_equal(reply.words, "last words");
        assert_true(mcp_case_wait(&mcp, has_lost, &heard));
        mcp_link_close(link);
    }
    mcp_case_end(&mcp);
}

static void closed_output_is_an_end(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY(""), NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    mcp_case_call(&mcp, link, "close", NULL, &reply);
    assert_int_equal(reply.end, MCP_LOST);
    assert_non_null(strstr(reply.text, "closed its standard output"));
    mcp_link_close(link);
    mcp_case_end(&mcp);
}

static bool has_restarts(void *user)
{
    return mcp_server_info(user).restarts >= 3;
}

static void it_rises_again_later_and_later(void **state)
{
    (void)state;
    struct mcp_case mcp;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", "{'mcp':{'command':['SERVER','--exit','1'],'protocol':'2025-11-25'}}", NULL);
    uint64_t began = uv_hrtime();
    assert_true(mcp_case_wait(&mcp, has_restarts, mcp_case_server(&mcp, "s")));
    /* 100 + 200 + 400 ms, a quarter less at the least */
    assert_true(uv_hrtime() - began > UINT64_C(500000000));
    assert_true(uv_hrtime() - began < UINT64_C(5000000000));
    mcp_case_end(&mcp);
}

/* ---- its output ---- */

static void garbage_is_passed_over(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply, broken, after;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY(""), NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    mcp_case_call(&mcp, link, "garbage", NULL, &reply);
    assert_string_equal(reply.words, "after garbage");
    mcp_case_call(&mcp, link, "twice", NULL, &reply);
    assert_string_equal(reply.words, "once");
    /* an answer that cannot be read is the end of its request, and of no other */
    mcp_case_request(&mcp, link, "tools/call", "{'name':'slow','arguments':{'ms':100}}", 9000, &after);
    mcp_case_call(&mcp, link, "broken", NULL, &broken);
    assert_int_equal(broken.end, MCP_UNREADABLE);
    assert_true(broken.sent);
    assert_true(mcp_case_wait_reply(&mcp, &after));
    assert_int_equal(after.end, MCP_ANSWERED);
    assert_int_equal(reply.count, 1);
    mcp_link_close(link);
    mcp_case_end(&mcp);
}

static void large_answers_have_a_limit(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", "{'mcp':{'command':['SERVER'],'protocol':'2025-11-25'},'answer_bytes_max':'2MB'}", NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    mcp_case_call(&mcp, link, "big", "{'bytes':2000000}", &reply);
    assert_int_equal(reply.end, MCP_ANSWERED);
    assert_int_equal(strlen(reply.words), 2000000);
    mcp_case_call(&mcp, link, "big", "{'bytes':3000000}", &reply);
    assert_int_equal(reply.end, MCP_UNREADABLE);
    assert_non_null(strstr(reply.text, "over the limit"));
    mcp_case_call(&mcp, link, "echo", NULL, &reply);
    assert_int_equal(reply.end, MCP_ANSWERED);
    mcp_link_close(link);
    mcp_case_end(&mcp);
}

static void what_it_does_not_read_has_a_limit(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply deaf, replies[3], refused;
    size_t bytes = 1000000;
    mcp_case_begin(&mcp);
    mcp.hub->pace.queue_bytes_max = 2100000;
    mcp_case_apply(&mcp, "s", LEGACY(""), NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    char *params = malloc(bytes + 1);
    memset(params, 'x', bytes);
    memcpy(params, "{'a':'", 6);
    memcpy(params + bytes - 2, "'}", 3);
    mcp_case_request(&mcp, link, "tools/call", "{'name':'deaf'}", 0, &deaf);
    mcp_case_turn(&mcp, 30);
    for (int i = 0; i < 2; i++)
        mcp_case_request(&mcp, link, "tools/call", params, 0, &replies[i]);
    mcp_case_request(&mcp, link, "tools/call", params, 0, &refused);
    assert_true(mcp_case_wait_reply(&mcp, &refused));
    assert_int_equal(refused.end, MCP_LOST);
    assert_false(refused.sent);
    assert_non_null(strstr(refused.text, "does not read"));
    assert_int_equal(replies[1].count, 0);
    free(params);
    mcp_link_close(link);
    assert_int_equal(replies[1].count, 1);
    mcp_case_end(&mcp);
}

static void stderr_goes_to_the_log_without_secrets(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    struct captured captured;
    setenv("ONCED_TEST_SECRET", "s3cr3t-value", 1);
    mcp_case_begin(&mcp);
    capture_begin(&captured);
    mcp_case_apply(&mcp, "s",
                   "{'mcp':{'command':['SERVER','--stderr','hello \\\\ there'],"
                   "'env':{'TOKEN':'Bearer ${env:ONCED_TEST_SECRET}'}}}",
                   NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    mcp_case_call(&mcp, link, "stderr", "{'text':'token is s3cr3t-value!'}", &reply);
    mcp_case_call(&mcp, link, "stderr", "{'text':'flood','count':1000}", &reply);
    mcp_case_turn(&mcp, 1100);
    mcp_case_call(&mcp, link, "stderr", "{'text':'later'}", &reply);
    mcp_case_turn(&mcp, 50);
    mcp_link_close(link);
    mcp_case_end(&mcp);
    arena_init(&mcp.arena);
    const char *text = capture_end(&captured, &mcp.arena);
    assert_non_null(strstr(text, "\"event\":\"mcp_server_stderr\",\"server\":\"s\",\"text\":\"hello \\\\ there\""));
    assert_non_null(strstr(text, "token is ***!"));
    assert_null(strstr(text, "s3cr3t"));
    assert_in_range(occurrences(text, "\"text\":\"flood\""), 50, 200);
    assert_non_null(strstr(text, "lines were left out"));
    assert_non_null(strstr(text, "\"text\":\"later\""));
    arena_release(&mcp.arena);
}

/* ---- nothing stays behind ---- */

static pid_t pid_of(struct mcp_case *mcp, struct mcp_link *link)
{
    struct mcp_reply reply;
    int pid = 0;
    mcp_case_call(mcp, link, "environment", NULL, &reply);
    assert_int_equal(sscanf(strstr(reply.words, " pid="), " pid=%d", &pid), 1);
    return pid;
}

static void stubborn_ones_are_killed_with_their_children(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY(",'--stubborn','1'"), NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    pid_t pid = pid_of(&mcp, link);
    mcp_case_call(&mcp, link, "child", NULL, &reply);
    pid_t child = (pid_t)atoi(reply.words);
    assert_true(is_alive(pid));
    assert_true(is_alive(child));
    mcp_link_close(link);
    uint64_t began = uv_hrtime();
    mcp_case_end(&mcp);
    assert_true((uv_hrtime() - began) / 1000000 >= 550);
    assert_false(is_alive(pid));
    assert_true(ends_soon(child));
}

static void children_of_a_dead_server_are_killed(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY(""), NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    mcp_case_call(&mcp, link, "child", NULL, &reply);
    pid_t child = (pid_t)atoi(reply.words);
    mcp_case_call(&mcp, link, "crash", NULL, &reply);
    assert_true(mcp_case_wait(&mcp, is_gone, &child));
    mcp_link_close(link);
    mcp_case_end(&mcp);
}

static void well_behaved_ones_end_with_their_input(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY(""), NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    pid_t pid = pid_of(&mcp, link);
    mcp_link_close(link);
    mcp.hub->pace.term_ms = 60000;
    uint64_t began = uv_hrtime();
    mcp_case_end(&mcp);
    assert_true((uv_hrtime() - began) / 1000000 < 30000);
    assert_false(is_alive(pid));
}

/* Plays onced in a process of its own: writes the server's id to standard output and is killed. */
static int play_onced(void)
{
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY(",'--stubborn','1'"), NULL);
    pid_t pid = pid_of(&mcp, mcp_case_open(&mcp, "s", &heard, NULL));
    if (write(1, &pid, sizeof pid) == sizeof pid)
        raise(SIGKILL);
    return 1;
}

static void none_outlives_a_killed_onced(void **state)
{
    (void)state;
    int told[2], status;
    pid_t server = 0;
    assert_int_equal(pipe(told), 0);
    pid_t onced = fork();
    if (onced == 0) {
        dup2(told[1], 1);
        execl("/proc/self/exe", "test_mcp_stdio", "play", (char *)NULL);
        _exit(1);
    }
    close(told[1]);
    assert_int_equal(read(told[0], &server, sizeof server), sizeof server);
    close(told[0]);
    assert_int_equal(waitpid(onced, &status, 0), onced);
    assert_true(WIFSIGNALED(status));
    assert_true(ends_soon(server));
}

static void per_client_means_a_process_each(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard a = {0}, b = {0};
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", "{'mcp':{'command':['SERVER'],'protocol':'2025-11-25','sessions':'per_client'}}", NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link *first = mcp_case_open(&mcp, "s", &a, NULL), *second = mcp_case_open(&mcp, "s", &b, NULL);
    pid_t one = pid_of(&mcp, first), two = pid_of(&mcp, second);
    assert_int_not_equal(one, two);
    struct mcp_reply reply;
    mcp_case_call(&mcp, first, "crash", NULL, &reply);
    assert_int_equal(a.lost, 1);
    assert_int_equal(b.lost, 0);
    assert_int_equal(mcp_server_info(mcp_case_server(&mcp, "s")).state, MCP_SERVER_READY);
    assert_int_equal(pid_of(&mcp, second), two);
    mcp_link_close(first);
    mcp_link_close(second);
    assert_true(mcp_case_wait(&mcp, is_gone, &two));
    mcp_case_end(&mcp);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return play_onced();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gets_what_is_stated_and_no_more),
        cmocka_unit_test(what_cannot_be_started_is_said),
        cmocka_unit_test(calls_learn_how_it_ended),
        cmocka_unit_test(an_answer_before_the_end_counts),
        cmocka_unit_test(closed_output_is_an_end),
        cmocka_unit_test(it_rises_again_later_and_later),
        cmocka_unit_test(garbage_is_passed_over),
        cmocka_unit_test(large_answers_have_a_limit),
        cmocka_unit_test(what_it_does_not_read_has_a_limit),
        cmocka_unit_test(stderr_goes_to_the_log_without_secrets),
        cmocka_unit_test(stubborn_ones_are_killed_with_their_children),
        cmocka_unit_test(children_of_a_dead_server_are_killed),
        cmocka_unit_test(well_behaved_ones_end_with_their_input),
        cmocka_unit_test(none_outlives_a_killed_onced),
        cmocka_unit_test(per_client_means_a_process_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
