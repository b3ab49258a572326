#include "support/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

void http_answer_release(struct http_answer *answer)
{
    buf_release(&answer->head);
    buf_release(&answer->body);
    arena_release(&answer->arena);
}

const char *http_answer_header(struct http_answer *answer, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = strstr(answer->head.p, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        const char *p = line + 2;
        if (strncasecmp(p, name, n) != 0 || p[n] != ':')
            continue;
        p += n + 1;
        p += strspn(p, " ");
        return arena_copy_str(&answer->arena, (struct str){p, strcspn(p, "\r\n")});
    }
    return NULL;
}

/* connect() that a signal interrupts (libFuzzer's timer) goes on by itself and must not be called again. */
static bool connects_later(int fd)
{
    struct pollfd poll_fd = {fd, POLLOUT, 0};
    int error = errno;
    socklen_t size = sizeof error;
    if (error != EINTR)
        return false;
    while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR)
        continue;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return false;
    errno = error;
    return error == 0;
}

int http_connect(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&at, sizeof at) != 0 && !connects_later(fd))) {
        perror("http_connect"); /* callers only see that there is no connection */
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static void turn(uv_loop_t *loop, int fd, short events)
{
    struct pollfd poll_fd = {fd, events, 0};
    uv_run(loop, UV_RUN_NOWAIT);
    poll(&poll_fd, fd >= 0, 1);
}

void http_spin(uv_loop_t *loop, int ms)
{
    uint64_t end = uv_hrtime() + (uint64_t)ms * 1000000;
    while (uv_hrtime() < end)
        turn(loop, -1, 0);
}

bool http_send(uv_loop_t *loop, int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        }
        turn(loop, fd, POLLOUT);
    }
    return true;
}

/* Bytes of the first whole answer in text; 0 when it is not complete. */
static size_t answer_length(struct str text, bool no_body, size_t *head_n, size_t *body_n)
{
    const char *end = text.p ? memmem(text.p, text.n, "\r\n\r\n", 4) : NULL;
    if (!end)
        return 0;
    *head_n = (size_t)(end - text.p);
    *body_n = 0;
    const char *length = strcasestr(text.p, "\r\nContent-Length:");
    if (length && length < end && !no_body)
        *body_n = strtoul(length + 17, NULL, 10);
    size_t all = *head_n + 4 + *body_n;
    return text.n >= all ? all : 0;
}

static void take_answer(struct buf *rest, size_t all, size_t head_n, size_t body_n, struct http_answer *answer)
{
    buf_add(&answer->head, rest->p, head_n);
    buf_add(&answer->body, rest->p + head_n + 4, body_n);
    memmove(rest->p, rest->p + all, rest->n - all);
    rest->n -= all;
    answer->status = atoi(answer->head.p + 9);
    struct json *json;
    if (answer->body.n > 0 && !json_parse(&answer->arena, buf_str(&answer->body),
                                          &(struct json_limits){SIZE_MAX, 100, SIZE_MAX}, &json, NULL))
        answer->json = json;
}

void http_receive(uv_loop_t *loop, int fd, struct buf *rest, bool no_body, int timeout_ms, struct http_answer *answer)
{
    struct buf own;
    uint64_t end = uv_hrtime() + (uint64_t)timeout_ms * 1000000;
    buf_init(&own, 0);
    if (!rest)
        rest = &own;
    *answer = (struct http_answer){.status = -1};
    for (;;) {
        char chunk[65536];
        size_t head_n, body_n, all = answer_length(buf_str(rest), no_body, &head_n, &body_n);
        if (all) {
            take_answer(rest, all, head_n, body_n, answer);
            break;
        }
        if (uv_hrtime() > end)
            break;
        ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n > 0) {
            buf_add(rest, chunk, (size_t)n);
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
            answer->status = 0;
            break;
        }
        turn(loop, fd, POLLIN);
    }
    buf_release(&own);
}
