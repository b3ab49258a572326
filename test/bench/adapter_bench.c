/* CPU of the HTTP adapter per call: keep-alive connections over loopback to a provider in a child process that answers
 * at once. Usage: adapter_bench [CALLS [CONNECTIONS]]; prints calls/s and µs of CPU per call of this process alone,
 * user and system. */
#include "adapter/http.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_BODY                                                                                                    \
    "{\"id\":\"re_0001\",\"object\":\"refund\",\"amount\":4900,\"payment\":\"pay_17\",\"status\":\"succeeded\"}"

/* ---- the provider ---- */

static int listen_on(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&address, &length)) {
        perror("listen");
        exit(1);
    }
    *port = ntohs(address.sin_port);
    return fd;
}

/* Requests of the bench are small: head and body are in the buffer when the body's last byte, "}", is. */
static void serve_one(int fd, const char *answer, size_t answer_bytes)
{
    static char held[4096][1024];
    static size_t held_bytes[4096];
    char *p = held[fd];
    ssize_t n = recv(fd, p + held_bytes[fd], 1023 - held_bytes[fd], 0);
    if (n <= 0) {
        close(fd);
        held_bytes[fd] = 0;
        return;
    }
    held_bytes[fd] += (size_t)n;
    p[held_bytes[fd]] = '\0';
    const char *end = strstr(p, "\r\n\r\n");
    if (!end || (strncmp(p, "POST", 4) == 0 && (end[4] == '\0' || p[held_bytes[fd] - 1] != '}')))
        return;
    held_bytes[fd] = 0;
    if (send(fd, answer, answer_bytes, MSG_NOSIGNAL) < 0)
        close(fd);
}

static void serve(int listener)
{
    char answer[512];
    int length = snprintf(answer, sizeof answer,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                          sizeof ANSWER_BODY - 1, ANSWER_BODY);
    int set = epoll_create1(0), one = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[256];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "provider"); /* told apart in profiles */
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(set, events, 256, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) {
                serve_one(events[i].data.fd, answer, (size_t)length);
                continue;
            }
            int fd = accept(listener, NULL, NULL);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
            epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
        }
    }
}

/* ---- the client ---- */

struct bench {
    struct adapter *adapter;
    struct adapter_call call;
    unsigned long started, finished, wanted, failed;
};

static void on_answer(void *user, const struct adapter_answer *answer);

static void begin(struct bench *bench)
{
    bench->started++;
    bench->adapter->ops->send(bench->adapter, &bench->call, on_answer, bench);
}

static void on_answer(void *user, const struct adapter_answer *answer)
{
    struct bench *bench = user;
    if (answer->outcome != OUTCOME_SUCCESS && bench->failed++ == 0)
        fprintf(stderr, "%s: %s\n", outcome_name(answer->outcome), answer->detail ? answer->detail : "");
    if (++bench->finished == bench->wanted)
        http_adapter_close(bench->adapter, NULL, NULL);
    else if (bench->started < bench->wanted)
        begin(bench);
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static double now(void)
{
    struct timeval t;
    gettimeofday(&t, NULL);
    return seconds(t);
}

static const struct json *parse(struct arena *arena, const char *text)
{
    struct json *value = NULL;
    struct err err = {0};
    if (json_parse(arena, str_of(text), NULL, &value, &err) != ERR_NONE) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return value;
}

static const char tool_text[] =
    "{\"request\":{\"path\":\"/v1/refunds\",\"json\":{\"payment\":\"{payment_id}\",\"amount\":\"{amount_cents}\","
    "\"metadata\":{\"operation\":\"{$operation}\"}}},"
    "\"response\":{\"external_id\":\"/id\"},\"verify\":{\"/amount\":\"{amount_cents}\"}}";

static int run(struct bench *bench, struct arena *arena, int port, unsigned connections)
{
    struct problems problems;
    struct provider core_provider = {.name = "bench"};
    struct err err = {0};
    problems_init(&problems, arena);
    const char *section =
        arena_printf(arena,
                     "{\"base_url\":\"http://127.0.0.1:%d\",\"connections\":%u,"
                     "\"headers\":{\"Authorization\":\"Bearer abc\"},\"key\":{\"header\":\"Idempotency-Key\"}}",
                     port, connections);
    struct http_provider *provider = http_provider_new(parse(arena, section), "", &core_provider, &problems);
    struct tool tool = {.name = "refund", .class = CLASS_EXTERNAL_IDEMPOTENT, .provider = &core_provider};
    struct http_tool *http_tool =
        provider ? http_tool_new(parse(arena, tool_text), "", provider, &tool, &problems) : NULL;
    if (!http_tool || http_adapter_new(uv_default_loop(), &bench->adapter, &err) != ERR_NONE) {
        fprintf(stderr, "%s %s\n", problems.count ? problems.items[0].text : "", err.text);
        return 1;
    }
    tool.adapter_tool = http_tool;
    bench->call = (struct adapter_call){.tool = &tool,
                                        .kind = ATTEMPT_CALL,
                                        .operation = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                        .attempt = "at_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                        .provider_key = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                        .arguments = parse(arena, "{\"payment_id\":\"pay_17\",\"amount_cents\":4900}")};
    for (unsigned i = 0; i < connections && bench->started < bench->wanted; i++)
        begin(bench);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    http_tool_free(http_tool);
    http_provider_free(provider);
    return bench->failed > 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000};
    unsigned connections = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 64;
    struct arena arena;
    struct rusage before, after;
    int port, listener = listen_on(&port);
    pid_t child = fork();
    if (child == 0)
        serve(listener);
    close(listener);
    arena_init(&arena);
    getrusage(RUSAGE_SELF, &before);
    double start = now();
    int rc = run(&bench, &arena, port, connections);
    double elapsed = now() - start;
    getrusage(RUSAGE_SELF, &after);
    double user = seconds(after.ru_utime) - seconds(before.ru_utime);
    double system = seconds(after.ru_stime) - seconds(before.ru_stime), calls = (double)bench.finished;
    printf("%lu calls, %u connections: %.0f calls/s, %.1f µs CPU per call (%.1f user, %.1f system), peak RSS %ld KB\n",
           bench.finished, connections, calls / elapsed, (user + system) / calls * 1e6, user / calls * 1e6,
           system / calls * 1e6, after.ru_maxrss);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    arena_release(&arena);
    return rc;
}
