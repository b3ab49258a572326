/* A small HTTP client for tests that run the server's loop themselves: bytes out, answer in, nothing hidden. */
#ifndef SUPPORT_HTTP_CLIENT_H
#define SUPPORT_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/json.h"

#include <stdint.h>
#include <uv.h>

struct http_answer {
    int status;              /* 0: the connection was closed before a whole answer came */
    struct buf head, body;   /* head without the empty line */
    const struct json *json; /* of the body, NULL when it is none; in arena */
    struct arena arena;
};
void http_answer_release(struct http_answer *answer);
/* Value of a header in the arena, NULL when it is not there. */
const char *http_answer_header(struct http_answer *answer, const char *name);

/* Connects to 127.0.0.1; blocking connect, non-blocking afterwards. */
int http_connect(uint16_t port);
/* Sends everything, running the loop while the other side is slow. False when the connection broke. */
bool http_send(uv_loop_t *loop, int fd, const char *bytes, size_t n);
/* Runs the loop until one answer has come, the connection is closed, or timeout_ms is over (then status is -1).
 * `no_body`: answer to HEAD. What comes after the answer is kept in `rest` (may be NULL) for the next call. */
void http_receive(uv_loop_t *loop, int fd, struct buf *rest, bool no_body, int timeout_ms, struct http_answer *answer);
/* Runs the loop for so long. */
void http_spin(uv_loop_t *loop, int ms);

#endif
