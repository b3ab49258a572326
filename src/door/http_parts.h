/* What the files of the HTTP server share. Not for others. */
#ifndef DOOR_HTTP_PARTS_H
#define DOOR_HTTP_PARTS_H

#include "door/exchange.h"
#include "door/http.h"
#include "door/watch.h"

#include <microhttpd.h>

/* One connection. */
struct peer {
    struct http_door *door;
    struct peer *next, **at;
    int fd;
    uint64_t idle_since_ms;    /* loop time at which its last request ended, or at which it was accepted */
    struct exchange *exchange; /* at most one at a time: libmicrohttpd does pipelined requests one after the other */
    bool surplus;
};

struct http_door {
    uv_loop_t *loop;
    struct engine *engine;
    struct door_parts parts;
    char *links_base; /* of parts.links */
    struct buf openapi;
    struct MHD_Daemon *mhd;
    char *tls_cert, *tls_key;
    int listen_fd;
    uint16_t port;
    size_t connections, connections_max;
    unsigned timeout_s;
    int64_t request_ms; /* a request is whole within this time, or its connection ends */
    struct peer *peers;
    struct exchange *waiting, **waiting_end; /* suspended ones, oldest first */
    struct exchange *streams;                /* with a streamed answer that has not been ended */
    bool streams_lost;                       /* the route of one of them is still to be told */
    struct exchange *spare;
    size_t spare_count, active, holds;
    struct lingers lingers;
    uv_poll_t poll;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;
    uv_timer_t tick, sweep;
    bool run_needed, idle_on, sweep_on;
    char date[32]; /* Date of answers, worked out once a second */
    int64_t date_s;
    bool starting;
    char start_text[ERR_TEXT_MAX]; /* what libmicrohttpd said last, while starting */
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
    uint64_t close_deadline_ms;
    unsigned handles_open;
};

/* ---- http.c ---- */

void http_want_run(struct http_door *door);
void http_resume(struct exchange *exchange); /* one that waited for its route */
/* Hands the answer to libmicrohttpd. */
enum MHD_Result http_queue(struct exchange *exchange);
/* A new result is only told as delivered when there is still somebody to take it. */
void http_check_present(struct exchange *exchange);
void http_recycle(struct exchange *exchange);

/* ---- http_stream.c ---- */

struct MHD_Response *stream_response(struct exchange *exchange);
/* libmicrohttpd has done with the request. False: the route has not ended the stream yet, the exchange stays. */
bool stream_request_ended(struct exchange *exchange);
void streams_tell_lost(struct http_door *door); /* once per turn of the loop */
void streams_give_up(struct http_door *door);   /* the door closes: every route is told that its client has gone */
void stream_free(struct stream *stream);        /* NULL is fine */

#endif
