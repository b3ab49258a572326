/* Answers that are written piece by piece. libmicrohttpd asks for bytes when the socket takes some; when there are none
 * the connection is suspended until the route writes more, ends the stream, or the client leaves.
 *
 *   route ─ write ─► bytes ─► read_piece ─► libmicrohttpd ─► socket
 *                       └ none left: suspended ◄─ woken by the next write
 */
#include "base/mem.h"
#include "door/http_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>

#define BLOCK_BYTES 4096
#define KEEP_BYTES  (16 * 1024) /* of an empty buffer */

struct stream {
    struct buf bytes; /* written by the route … */
    size_t taken;     /* … of which the socket has got so many */
    size_t pending_max;
    void (*gone)(struct exchange *exchange);
    struct watch *watch;
    bool sleeping; /* the connection is suspended */
    bool ended;    /* by the route */
    bool lost;     /* the client has left or reads too slowly: nothing more is written */
    bool finished; /* libmicrohttpd has done with the request */
    bool told;     /* gone was called */
};

static struct stream *stream_new(size_t pending_max, void (*gone)(struct exchange *exchange))
{
    struct stream *stream = mem_zero(sizeof *stream);
    buf_init(&stream->bytes, 0);
    stream->pending_max = pending_max;
    stream->gone = gone;
    return stream;
}

void stream_free(struct stream *stream)
{
    if (!stream)
        return;
    watch_end(stream->watch);
    buf_release(&stream->bytes);
    free(stream);
}

static void list_add(struct exchange *exchange)
{
    struct http_door *door = exchange->door;
    exchange->next = door->streams;
    exchange->at = &door->streams;
    if (door->streams)
        door->streams->at = &exchange->next;
    door->streams = exchange;
}

static void list_remove(struct exchange *exchange)
{
    *exchange->at = exchange->next;
    if (exchange->next)
        exchange->next->at = exchange->at;
    exchange->next = NULL;
    exchange->at = NULL;
}

/* ---- the socket's side ---- */

static void wake(struct exchange *exchange)
{
    struct stream *stream = exchange->stream;
    if (!stream->sleeping)
        return;
    stream->sleeping = false;
    MHD_resume_connection(exchange->connection);
    http_want_run(exchange->door);
}

/* The rest will not be written. The route is told from streams_tell_lost(): it may be in the middle of a write. */
static void lose(struct exchange *exchange)
{
    struct stream *stream = exchange->stream;
    if (stream->lost)
        return;
    stream->lost = true;
    exchange->door->streams_lost = true;
    http_want_run(exchange->door);
    if (stream->finished)
        return;
    watch_end(stream->watch);
    stream->watch = NULL;
    shutdown(exchange->peer->fd, SHUT_RDWR); /* libmicrohttpd may be waiting for a socket that takes nothing */
    wake(exchange);
}

static void client_left(void *user)
{
    lose(user);
}

static void drop_taken(struct stream *stream)
{
    struct buf *bytes = &stream->bytes;
    if (stream->taken < bytes->n && stream->taken < bytes->n / 2)
        return;
    bytes->n -= stream->taken;
    if (bytes->n > 0)
        memmove(bytes->p, bytes->p + stream->taken, bytes->n);
    else if (bytes->cap > KEEP_BYTES)
        buf_release(bytes);
    stream->taken = 0;
}

static ssize_t read_piece(void *user, uint64_t position, char *out, size_t max)
{
    (void)position;
    struct exchange *exchange = user;
    struct stream *stream = exchange->stream;
    size_t n = stream->bytes.n - stream->taken;
    if (stream->lost)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0 && stream->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        stream->sleeping = true;
        MHD_suspend_connection(exchange->connection);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(out, stream->bytes.p + stream->taken, n);
    stream->taken += n;
    drop_taken(stream);
    return (ssize_t)n;
}

struct MHD_Response *stream_response(struct exchange *exchange)
{
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_piece, exchange, NULL);
}

bool stream_request_ended(struct exchange *exchange)
{
    struct stream *stream = exchange->stream;
    stream->finished = true;
    exchange->connection = NULL;
    exchange->peer = NULL;
    watch_end(stream->watch);
    stream->watch = NULL;
    if (!stream->ended)
        lose(exchange);
    return stream->ended;
}

/* ---- the route's side ---- */

void exchange_stream(struct exchange *exchange, const char *content_type, size_t pending_max,
                     void (*gone)(struct exchange *exchange))
{
    assert(!exchange->answered);
    exchange->answered = true;
    exchange->waiter = NULL;
    exchange->on_gone = NULL;
    exchange->status = 200;
    exchange->content_type = content_type;
    exchange->stream = stream_new(pending_max, gone);
    exchange->stream->watch = watch_begin(exchange->door->loop, exchange->peer->fd, client_left, exchange);
    if (exchange->in_handler) {
        list_add(exchange);
        return;
    }
    bool queued = http_queue(exchange) == MHD_YES;
    exchange->gone = !queued;
    http_resume(exchange);
    list_add(exchange);
    if (!queued)
        lose(exchange);
}

void exchange_stream_write(struct exchange *exchange, struct str bytes)
{
    struct stream *stream = exchange->stream;
    assert(stream && !stream->ended);
    if (stream->lost)
        return;
    size_t pending = stream->bytes.n - stream->taken;
    if (pending > 0 && pending + bytes.n > stream->pending_max) {
        lose(exchange);
        return;
    }
    buf_add_str(&stream->bytes, bytes);
    wake(exchange);
}

void exchange_stream_end(struct exchange *exchange)
{
    struct stream *stream = exchange->stream;
    assert(stream && !stream->ended);
    stream->ended = true;
    list_remove(exchange);
    if (stream->finished) {
        http_recycle(exchange);
        return;
    }
    if (stream->lost)
        exchange->tell_delivered = false;
    else
        http_check_present(exchange);
    wake(exchange);
}

void streams_tell_lost(struct http_door *door)
{
    while (door->streams_lost) {
        door->streams_lost = false;
        struct exchange *exchange = door->streams;
        while (exchange && !(exchange->stream->lost && !exchange->stream->told))
            exchange = exchange->next;
        if (!exchange)
            return;
        door->streams_lost = true; /* there may be more; the callback may change the list */
        exchange->stream->told = true;
        exchange->stream->gone(exchange);
    }
}

void streams_give_up(struct http_door *door)
{
    for (struct exchange *exchange = door->streams; exchange; exchange = exchange->next)
        lose(exchange);
    streams_tell_lost(door);
}
