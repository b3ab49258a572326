/* libcurl's multi interface on a libuv loop: what the HTTP adapter and the MCP client have in common.
 *
 *   start ─► curl_multi ─► sockets: an epoll set of our own under one uv_poll
 *                      └─► timers: one uv_timer
 *   received, finished ◄── after libcurl returned, never within one of its callbacks
 *
 * Exactly one request per start (design 5.2). libcurl sends again on its own when a reused connection dies before the
 * first answer byte, on another idle connection or a new one. Both ways are shut by locks of their own:
 *   1. the callback before each request (PREREQ) lets one request pass per start; every request goes through it;
 *   2. no socket is opened any more once the request was let pass.
 * A body that is not sent together with its head is also given through a callback that refuses to rewind. Small bodies
 * are handed over in one piece: libcurl then sends head and body with one system call, which saves a third of the CPU.
 *
 * Sockets live in an epoll set of our own inside the loop's: libuv would remove and add a socket for every request
 * (four system calls), while here a kept-alive connection stays registered between requests. */
#ifndef ADAPTER_CURL_LOOP_H
#define ADAPTER_CURL_LOOP_H

#include "base/buf.h"
#include "base/err.h"

#include <curl/curl.h>
#include <stdint.h>
#include <uv.h>

struct curl_watch;
struct curl_transfer;

struct curl_loop {
    uv_loop_t *loop;
    CURLM *multi;
    int epoll;
    uv_poll_t poll;
    uv_timer_t timer;    /* libcurl's */
    uv_timer_t deferred; /* ends that must not be told from within start and refuse */
    struct curl_watch *watches;
    size_t watch_count;
    struct curl_transfer *busy;    /* on the wire */
    struct curl_transfer *refused; /* waiting for deferred */
    struct curl_transfer *refused_last;
    size_t refused_count;
    struct curl_transfer *received; /* that have got something */
    unsigned depth;                 /* of enter */
    bool closing, released;
    bool let_out; /* a request was let pass since its bytes were looked for */
    unsigned open_handles;
    void (*release)(void *user);
    void (*closed)(void *user);
    void *user;
};

struct curl_transfer_ops {
    /* It is off the wire; may free the transfer. refused transfers have CURLE_FAILED_INIT. */
    void (*finished)(struct curl_transfer *transfer, CURLcode code);
    /* Instead of finished, for transfers that only connect: the connection stands, curl_easy_send and curl_easy_recv
     * are the caller's until curl_transfer_stop, which closes it. May free the transfer. */
    void (*connected)(struct curl_transfer *transfer);
    /* After curl_transfer_received; may stop or free this and other transfers. NULL = never marked. */
    void (*received)(struct curl_transfer *transfer);
};

/* Embedded in what a client keeps per request. */
struct curl_transfer {
    struct curl_loop *loop;
    CURL *easy;
    const struct curl_transfer_ops *ops;
    struct str body; /* of the request; borrowed until the end */
    size_t body_sent;
    unsigned let_pass; /* requests that were let pass: 0 or 1 */
    char error[CURL_ERROR_SIZE];
    bool on_wire, is_refused, is_received, connect_only;
    struct curl_transfer *prev, *next; /* busy or refused */
    struct curl_transfer *received_prev, *received_next;
};

enum err_code curl_loop_init(struct curl_loop *loop, uv_loop_t *uv, struct err *err);
/* Ends what is on the wire (finished is called, CURLE_RECV_ERROR), then calls release, where easy handles are to be
 * freed, then, once the loop's handles are closed, closed. At once, or when the loop's callbacks have returned. */
void curl_loop_close(struct curl_loop *loop, void (*release)(void *user), void (*closed)(void *user), void *user);
/* Around anything that calls back and may lead to curl_loop_close. */
void curl_loop_enter(struct curl_loop *loop);
void curl_loop_leave(struct curl_loop *loop);

/* Makes the easy handle with the options that all requests have: HTTP/1.1, no redirects, proxies, netrc; locks. */
void curl_transfer_init(struct curl_transfer *transfer, struct curl_loop *loop, const struct curl_transfer_ops *ops);
void curl_transfer_release(struct curl_transfer *transfer);
/* Ready for another request. */
void curl_transfer_clear(struct curl_transfer *transfer);
/* Text options are copied by libcurl; want of memory ends the process. */
void curl_transfer_text(struct curl_transfer *transfer, CURLoption option, const char *text);
/* From now on it connects, does TLS and logs in, no more: see connected. A connection of its own each time. */
void curl_transfer_connect_only(struct curl_transfer *transfer);
/* Sets transfer->body as the body of the request (POST and the like). */
void curl_transfer_body(struct curl_transfer *transfer, struct str body);
/* Puts it on the wire. finished is called later, whatever happens. */
enum err_code curl_transfer_start(struct curl_transfer *transfer, struct err *err);
/* It will not go out: finished is called from the loop's next turn. */
void curl_transfer_refuse(struct curl_transfer *transfer);
/* Takes it off the wire at once; finished and received are not called any more. Not from within libcurl's callbacks. */
void curl_transfer_stop(struct curl_transfer *transfer);
/* From within libcurl's callbacks: call received once libcurl has returned. */
void curl_transfer_received(struct curl_transfer *transfer);

#endif
