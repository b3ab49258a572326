/* One client on a pair of descriptors: messages in lines, in whatever era each is.
 *
 *   in ─► lines ─► mcp_receive ─► … ─► sink ─► output ─► (next turn) ─► out
 *
 * Answers of one turn of the loop leave with one write. Nothing is closed from within a message: what must end is noted
 * and done in on_turn. Clients that do not read what they are told are not read either; notifications that find no room
 * are dropped, answers are kept up to a maximum that ends the stream. */
#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "door/mcp_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_BYTES      65536
#define READS_MAX       4      /* per turn: others want to be heard, too */
#define KEEP_BYTES      262144 /* memory of a longer output is given back once it was written */
#define ENDING_CHECK_MS 1000
#define ENDING_MS_MAX   60000 /* a client that has said all gets its answers within this, or not at all */

/* The outcome of an operation is within the output: the engine is told when it was written. */
struct delivery {
    struct delivery *next;
    uint64_t at; /* mcp_stream.sent by then */
    struct operation op;
};

struct stream_sink {
    struct mcp_sink sink; /* first */
    struct mcp_stream *stream;
    struct stream_sink *next, **link;
    struct delivery *delivery; /* of the answer to come, or NULL */
};

struct mcp_stream {
    struct mcp_door *door;
    struct mcp_session *session; /* NULL once it was ended by others */
    int in, out;                 /* our own duplicates … */
    int in_flags, out_flags;     /* … of descriptors with these */
    bool in_plain, out_plain;    /* files and the like, which need no waiting for */
    uv_poll_t in_poll, out_poll;
    uv_idle_t turn;
    uv_timer_t ending;
    unsigned handles;
    int64_t ending_since_ms;
    struct lines lines;
    struct buf output;
    size_t output_at;      /* what of it was written */
    uint64_t queued, sent; /* bytes in all */
    struct delivery *deliveries, **deliveries_end;
    struct stream_sink *sinks, *spare;
    bool eof, paused, dead, closing, silent;
    void (*ended)(void *user);
    void *user;
};

static size_t unsent(const struct mcp_stream *stream)
{
    return stream->output.n - stream->output_at;
}

static void on_turn(uv_idle_t *turn);

static void wake(struct mcp_stream *stream)
{
    if (!stream->closing)
        uv_idle_start(&stream->turn, on_turn);
}

static void note_dead(struct mcp_stream *stream, const char *why)
{
    if (!stream->dead && log_begin(LOG_DEBUG, "mcp_client_left")) {
        log_text("why", why);
        log_end();
    }
    stream->dead = true;
    wake(stream);
}

/* ---- output ---- */

/* Messages that ask something wait for an answer: dropping one would leave who asked without. */
static bool droppable(struct str message)
{
    static const char start[] = "{\"jsonrpc\":\"2.0\",\"method\"";
    return message.n >= sizeof start - 1 && memcmp(message.p, start, sizeof start - 1) == 0;
}

static void make_room(struct mcp_stream *stream)
{
    if (stream->output_at < KEEP_BYTES || stream->output_at < stream->output.n / 2)
        return;
    memmove(stream->output.p, stream->output.p + stream->output_at, unsent(stream));
    stream->output.n -= stream->output_at;
    stream->output_at = 0;
}

/* A line end between values becomes a space: within strings there is none. */
static void add_line(struct buf *output, struct str message)
{
    size_t start = output->n;
    buf_add_str(output, message);
    for (char *p = output->p + start; (p = memchr(p, '\n', output->n - (size_t)(p - output->p)));)
        *p = ' ';
    buf_add_char(output, '\n');
}

/* False: not taken. */
static bool put(struct mcp_stream *stream, struct str message)
{
    size_t max = stream->door->settings.stream_bytes_max;
    if (stream->dead || stream->closing)
        return false;
    if (unsent(stream) > 0 && unsent(stream) + message.n > max) {
        if (droppable(message))
            return false;
        if (unsent(stream) + message.n > max + 2 * MCP_MESSAGE_BYTES_MAX) {
            log_message(LOG_WARN, "mcp_stream", "a client does not read its answers: %zu bytes wait; it is left alone",
                        unsent(stream));
            note_dead(stream, "it does not read");
            return false;
        }
    }
    make_room(stream);
    size_t before = stream->output.n;
    add_line(&stream->output, message);
    stream->queued += stream->output.n - before;
    wake(stream);
    return true;
}

static void tell_delivered(struct mcp_stream *stream)
{
    while (stream->deliveries && stream->deliveries->at <= stream->sent) {
        struct delivery *delivery = stream->deliveries;
        stream->deliveries = delivery->next;
        if (!stream->deliveries)
            stream->deliveries_end = &stream->deliveries;
        engine_delivered(stream->door->engine, &delivery->op);
        free(delivery);
    }
}

static void on_out(uv_poll_t *poll, int status, int events)
{
    struct mcp_stream *stream = poll->data;
    (void)status; /* writing tells what is wrong */
    (void)events;
    uv_poll_stop(poll);
    wake(stream);
}

static void write_output(struct mcp_stream *stream)
{
    while (unsent(stream) > 0 && !stream->dead) {
        ssize_t n = write(stream->out, stream->output.p + stream->output_at, unsent(stream));
        if (n > 0) {
            stream->output_at += (size_t)n;
            stream->sent += (uint64_t)n;
        } else if (n < 0 && errno == EAGAIN && !stream->out_plain) {
            uv_poll_start(&stream->out_poll, UV_WRITABLE, on_out);
            break;
        } else if (n == 0 || errno != EINTR) {
            note_dead(stream, strerror(errno));
        }
    }
    tell_delivered(stream);
    if (unsent(stream) > 0)
        return;
    stream->output_at = 0;
    if (stream->output.cap > KEEP_BYTES)
        buf_release(&stream->output);
    else
        buf_reset(&stream->output);
}

/* ---- sinks ---- */

static struct stream_sink *sink_of(struct mcp_sink *sink)
{
    return (struct stream_sink *)sink;
}

static void sink_unlink(struct stream_sink *sink)
{
    *sink->link = sink->next;
    if (sink->next)
        sink->next->link = sink->link;
}

static void sink_end(struct stream_sink *sink)
{
    struct mcp_stream *stream = sink->stream;
    sink_unlink(sink);
    free(sink->delivery);
    free(sink);
    if (stream->eof)
        wake(stream); /* the last one may have been waited for */
}

static void sink_message(struct mcp_sink *base, struct str message, bool final, int http_status)
{
    struct stream_sink *sink = sink_of(base);
    struct mcp_stream *stream = sink->stream;
    (void)http_status;
    bool taken = put(stream, message);
    if (!final)
        return;
    if (taken && sink->delivery) {
        sink->delivery->at = stream->queued;
        *stream->deliveries_end = sink->delivery;
        stream->deliveries_end = &sink->delivery->next;
        sink->delivery = NULL;
    }
    sink_end(sink);
}

static void sink_drop(struct mcp_sink *base)
{
    sink_end(sink_of(base));
}

static void sink_delivers(struct mcp_sink *base, const struct operation *op)
{
    struct stream_sink *sink = sink_of(base);
    if (!sink->delivery)
        sink->delivery = mem_zero(sizeof *sink->delivery);
    struct operation *told = &sink->delivery->op;
    memcpy(told->id, op->id, sizeof told->id);
    told->key_source = op->key_source;
    told->state = op->state;
    told->delivered = op->delivered;
}

static const struct mcp_sink_ops sink_ops = {sink_message, sink_drop, sink_delivers};

static struct stream_sink *sink_new(struct mcp_stream *stream)
{
    struct stream_sink *sink = stream->spare;
    stream->spare = NULL;
    if (!sink)
        sink = mem_alloc(sizeof *sink);
    *sink = (struct stream_sink){.sink = {.ops = &sink_ops}, .stream = stream, .next = stream->sinks};
    sink->link = &stream->sinks;
    if (sink->next)
        sink->next->link = &sink->next;
    stream->sinks = sink;
    return sink;
}

/* ---- input ---- */

static void take_line(void *user, struct str line, bool over)
{
    struct mcp_stream *stream = user;
    static const struct mcp_facts facts = {.http = false};
    (void)over; /* then it is longer than what mcp_receive takes, which answers it */
    if (!stream->session || stream->dead)
        return;
    struct stream_sink *sink = sink_new(stream);
    if (mcp_receive(stream->session, &sink->sink, line, &facts) == MCP_RECEIVED_NOTICE) {
        sink_unlink(sink);
        free(stream->spare);
        stream->spare = sink;
    }
}

/* Requests that have no end of their own would hold the stream for ever. */
static void end_listens(struct mcp_stream *stream)
{
    for (struct stream_sink *sink = stream->sinks, *next; sink; sink = next) {
        struct mcp_request *request = sink->sink.request;
        next = sink->next;
        if (!request || strcmp(request->message.method, "subscriptions/listen") != 0)
            continue;
        mcp_request_gone(&sink->sink, true);
        sink_end(sink);
    }
}

/* A client that is gone altogether waits for nothing. */
static bool is_gone(const struct mcp_stream *stream)
{
    struct pollfd out = {.fd = stream->out};
    return poll(&out, 1, 0) > 0 && out.revents & (POLLHUP | POLLERR);
}

static void on_ending(uv_timer_t *timer)
{
    struct mcp_stream *stream = timer->data;
    if (is_gone(stream))
        note_dead(stream, "it is gone");
    else if ((int64_t)uv_now(stream->door->loop) - stream->ending_since_ms > ENDING_MS_MAX)
        note_dead(stream, "its answers took too long");
}

static void stop_reading(struct mcp_stream *stream)
{
    if (!stream->in_plain)
        uv_poll_stop(&stream->in_poll);
}

/* No more comes in: what was asked is answered, then the stream ends. */
static void begin_ending(struct mcp_stream *stream)
{
    if (stream->eof || stream->closing)
        return;
    stream->eof = true;
    stop_reading(stream);
    if (stream->session && !stream->dead)
        end_listens(stream);
    stream->ending_since_ms = (int64_t)uv_now(stream->door->loop);
    uv_timer_start(&stream->ending, on_ending, 0, ENDING_CHECK_MS);
    wake(stream);
}

static void on_in(uv_poll_t *poll, int status, int events);

static void pause_when_full(struct mcp_stream *stream)
{
    size_t max = stream->door->settings.stream_bytes_max;
    if (!stream->paused && unsent(stream) > max) {
        stream->paused = true;
        stop_reading(stream);
    } else if (stream->paused && unsent(stream) <= max / 2) {
        stream->paused = false;
        if (!stream->eof && !stream->in_plain)
            uv_poll_start(&stream->in_poll, UV_READABLE, on_in);
    }
}

static void read_input(struct mcp_stream *stream)
{
    char chunk[READ_BYTES];
    for (int i = 0; i < READS_MAX && !stream->eof && !stream->paused && !stream->dead; i++) {
        ssize_t n = read(stream->in, chunk, sizeof chunk);
        if (n > 0) {
            lines_feed(&stream->lines, chunk, (size_t)n);
            pause_when_full(stream);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            lines_end(&stream->lines);
            begin_ending(stream);
        }
        if (n < (ssize_t)sizeof chunk)
            break;
    }
}

static void on_in(uv_poll_t *poll, int status, int events)
{
    (void)status; /* reading tells what is wrong */
    (void)events;
    read_input(poll->data);
}

/* ---- life ---- */

static void restore(int fd, int flags)
{
    fcntl(fd, F_SETFL, flags);
    close(fd);
}

static void on_closed(uv_handle_t *handle)
{
    struct mcp_stream *stream = handle->data;
    if (--stream->handles > 0)
        return;
    restore(stream->in, stream->in_flags);
    restore(stream->out, stream->out_flags);
    if (!stream->silent)
        stream->ended(stream->user);
    free(stream);
}

static void close_handle(void *handle)
{
    uv_close(handle, on_closed);
}

static void finish(struct mcp_stream *stream)
{
    struct mcp_session *session = stream->session;
    if (stream->closing)
        return;
    stream->closing = true;
    stream->session = NULL;
    if (session) {
        session->ended = NULL;
        mcp_session_set_sender(session, NULL, NULL);
        mcp_session_end(session); /* drops the sinks that wait */
    }
    while (stream->sinks)
        sink_end(stream->sinks);
    free(stream->spare);
    for (struct delivery *delivery = stream->deliveries, *next; delivery; delivery = next) {
        next = delivery->next;
        free(delivery);
    }
    lines_release(&stream->lines);
    buf_release(&stream->output);
    close_handle(&stream->turn);
    close_handle(&stream->ending);
    if (!stream->in_plain)
        close_handle(&stream->in_poll);
    if (!stream->out_plain)
        close_handle(&stream->out_poll);
}

static void on_turn(uv_idle_t *turn)
{
    struct mcp_stream *stream = turn->data;
    uv_idle_stop(turn);
    if (stream->in_plain && !stream->eof)
        read_input(stream);
    write_output(stream);
    pause_when_full(stream);
    if (stream->dead || !stream->session || (stream->eof && !stream->sinks && unsent(stream) == 0))
        finish(stream);
    else if (stream->in_plain && !stream->eof && !stream->paused)
        wake(stream);
}

static void session_ended(struct mcp_session *session, void *user)
{
    struct mcp_stream *stream = user;
    (void)session;
    stream->session = NULL;
    wake(stream);
}

static bool send_message(struct mcp_session *session, void *user, struct str message)
{
    (void)session;
    return put(user, message);
}

/* Not everything can be waited for: files and devices like /dev/null are always ready. Our own duplicate, since two
 * handles of a loop cannot have one descriptor. */
static enum err_code open_side(struct mcp_stream *stream, int given, int *fd, int *flags, uv_poll_t *handle,
                               bool *plain, struct err *err)
{
    *fd = fcntl(given, F_DUPFD_CLOEXEC, 3);
    *flags = fcntl(given, F_GETFL);
    if (*fd < 0 || *flags < 0)
        return err_set(err, ERR_IO, "descriptor %d can not be used: %s", given, strerror(errno));
    handle->data = stream;
    int status = uv_poll_init(stream->door->loop, handle, *fd);
    *plain = status != 0;
    if (status != 0 && status != UV_EPERM)
        return err_set(err, ERR_IO, "descriptor %d can not be watched: %s", given, uv_strerror(status));
    stream->handles += !*plain;
    return ERR_NONE;
}

static void stream_start(struct mcp_stream *stream)
{
    struct mcp_session *session = stream->session;
    session->stdio = true;
    session->ended = session_ended;
    mcp_session_set_sender(session, send_message, stream);
    lines_init(&stream->lines, mcp_door_limits.bytes_max + 1, take_line, stream);
    buf_init(&stream->output, 0);
    stream->deliveries_end = &stream->deliveries;
    if (stream->in_plain)
        wake(stream);
    else
        uv_poll_start(&stream->in_poll, UV_READABLE, on_in);
}

enum err_code mcp_stream_open(struct mcp_door *door, int in, int out, void (*ended)(void *user), void *user,
                              struct mcp_stream **out_stream, struct err *err)
{
    struct mcp_stream *stream = mem_zero(sizeof *stream);
    const struct mcp_settings *settings = &door->settings;
    *stream = (struct mcp_stream){.door = door, .in = -1, .out = -1, .ended = ended, .user = user, .handles = 2};
    uv_idle_init(door->loop, &stream->turn);
    uv_timer_init(door->loop, &stream->ending);
    stream->turn.data = stream->ending.data = stream;
    stream->in_plain = stream->out_plain = true; /* no handles yet */
    enum err_code code =
        open_side(stream, in, &stream->in, &stream->in_flags, &stream->in_poll, &stream->in_plain, err);
    if (!code)
        code = open_side(stream, out, &stream->out, &stream->out_flags, &stream->out_poll, &stream->out_plain, err);
    if (!code) {
        stream->session = mcp_session_new(door, settings->stdio_tenant, settings->stdio_principal, ROLE_AGENT);
        if (!stream->session)
            code = err_set(err, ERR_UNAVAILABLE, "the MCP door is closing");
    }
    if (code) {
        stream->silent = true;
        finish(stream);
        return code;
    }
    stream_start(stream);
    *out_stream = stream;
    return ERR_NONE;
}

void mcp_stream_finish(struct mcp_stream *stream)
{
    begin_ending(stream);
}

void mcp_stream_close(struct mcp_stream *stream)
{
    if (!stream)
        return;
    stream->silent = true;
    finish(stream);
}
