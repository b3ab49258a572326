/* A server that we started: one message per line on its stdin and stdout, its stderr goes to our log.
 *
 *   end       the process's or its stdout's, whatever comes first; what is left of its output is read for a moment
 *             longer, for an answer that it wrote before it ended
 *   closing   end of stdin ── MCP_CLOSE_TERM_MS ──► SIGTERM ── MCP_CLOSE_KILL_MS ──► SIGKILL, its whole group */
#include "adapter/child.h"
#include "adapter/mcp_parts.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES         65536
#define LAST_WORDS_MS      300  /* output is read for so long after the process or its stdout ended */
#define LOG_LINE_BYTES_MAX 2000 /* of a line of stderr */
#define LOG_LINES_MAX      100  /* lines of stderr in one second; more are counted */

struct mcp_stdio {
    struct mcp_transport base;
    struct mcp_hub *hub;
    struct mcp_provider *provider; /* a reference */
    char *name;
    struct child child;
    uv_pipe_t in, out, err;
    uv_timer_t timer;
    unsigned open_handles;
    struct lines lines, log_lines;
    bool exited, out_ended, terminated;
    int status;
    size_t queued_bytes;
    int64_t log_second;
    unsigned log_count;
    char buffer[READ_BYTES];
};

struct writing {
    uv_write_t request;
    struct mcp_stdio *stdio;
    size_t bytes;
    char data[];
};

static struct mcp_stdio *stdio_of(struct mcp_transport *transport)
{
    return (struct mcp_stdio *)transport;
}

/* ---- the end ---- */

static void stdio_free(struct mcp_stdio *stdio)
{
    struct mcp_hub *hub = stdio->hub;
    lines_release(&stdio->lines);
    lines_release(&stdio->log_lines);
    mcp_provider_unref(stdio->provider);
    free(stdio->name);
    free(stdio);
    mcp_hub_release(hub);
}

static void on_closed(uv_handle_t *handle)
{
    struct mcp_stdio *stdio = handle->data;
    if (--stdio->open_handles == 0)
        stdio_free(stdio);
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

/* Once the process has ended and nobody wants to hear of it any more. */
static void close_handles(struct mcp_stdio *stdio)
{
    close_handle((uv_handle_t *)&stdio->in);
    close_handle((uv_handle_t *)&stdio->out);
    close_handle((uv_handle_t *)&stdio->err);
    close_handle((uv_handle_t *)&stdio->timer);
}

static void end_text(const struct mcp_stdio *stdio, char *out, size_t size)
{
    if (!stdio->exited)
        snprintf(out, size, "the server closed its standard output");
    else if (WIFSIGNALED(stdio->status))
        snprintf(out, size, "the server was ended by signal %d (%s)", WTERMSIG(stdio->status),
                 strsignal(WTERMSIG(stdio->status)));
    else
        snprintf(out, size, "the server exited with status %d", WEXITSTATUS(stdio->status));
}

/* All that it said has been heard. */
static void tell_lost(struct mcp_stdio *stdio)
{
    char text[128];
    if (!stdio->base.connection)
        return;
    end_text(stdio, text, sizeof text);
    mcp_connection_lost(stdio->base.connection, text);
}

static void on_last_words(uv_timer_t *timer)
{
    tell_lost(timer->data);
}

/* The process or its output ended. */
static void ending(struct mcp_stdio *stdio)
{
    if (!stdio->base.connection) {
        if (stdio->exited)
            close_handles(stdio);
    } else if (stdio->exited && stdio->out_ended) {
        uv_timer_stop(&stdio->timer);
        tell_lost(stdio);
    } else {
        uv_timer_start(&stdio->timer, on_last_words, LAST_WORDS_MS, 0);
    }
}

static void on_exited(struct child *child, int status)
{
    struct mcp_stdio *stdio = (struct mcp_stdio *)((char *)child - offsetof(struct mcp_stdio, child));
    stdio->exited = true;
    stdio->status = status;
    ending(stdio);
}

static void on_overdue(uv_timer_t *timer)
{
    struct mcp_stdio *stdio = timer->data;
    child_kill(&stdio->child, stdio->terminated ? SIGKILL : SIGTERM);
    if (!stdio->terminated)
        uv_timer_start(&stdio->timer, on_overdue, (uint64_t)stdio->hub->pace.kill_ms, 0);
    stdio->terminated = true;
}

static void stdio_close(struct mcp_transport *transport)
{
    struct mcp_stdio *stdio = stdio_of(transport);
    uv_timer_stop(&stdio->timer);
    close_handle((uv_handle_t *)&stdio->in);
    if (stdio->exited)
        close_handles(stdio);
    else
        uv_timer_start(&stdio->timer, on_overdue, (uint64_t)stdio->hub->pace.term_ms, 0);
}

/* ---- reading ---- */

static void on_line(void *user, struct str line, bool over)
{
    struct mcp_stdio *stdio = user;
    if (!stdio->base.connection)
        return; /* it may write until it ends */
    if (over)
        mcp_connection_oversize(stdio->base.connection, NULL, line);
    else
        mcp_connection_message(stdio->base.connection, NULL, line, 0);
}

static void on_log_line(void *user, struct str line, bool over)
{
    struct mcp_stdio *stdio = user;
    int64_t second = (int64_t)uv_now(stdio->hub->options.loop) / 1000;
    struct buf text;
    if (second != stdio->log_second) {
        if (stdio->log_count > LOG_LINES_MAX)
            log_message(LOG_WARN, "mcp_server_stderr", "server %s: %u lines were left out", stdio->name,
                        stdio->log_count - LOG_LINES_MAX);
        stdio->log_second = second;
        stdio->log_count = 0;
    }
    if (++stdio->log_count > LOG_LINES_MAX || !log_begin(LOG_INFO, "mcp_server_stderr"))
        return;
    buf_init(&text, LOG_LINE_BYTES_MAX);
    secrets_mask(&stdio->provider->secrets, line, &text);
    log_text("server", stdio->name);
    log_text("text", text.p);
    if (over)
        log_text("cut", "true");
    log_end();
    buf_release(&text);
}

static void on_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct mcp_stdio *stdio = handle->data;
    (void)suggested;
    *out = uv_buf_init(stdio->buffer, sizeof stdio->buffer); /* read at once: one is enough */
}

static void on_out(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct mcp_stdio *stdio = stream->data;
    if (n > 0)
        lines_feed(&stdio->lines, bytes->base, (size_t)n);
    if (n >= 0)
        return;
    lines_end(&stdio->lines); /* what has no line end may be whole for all that */
    if (!uv_is_closing((uv_handle_t *)stream))
        uv_read_stop(stream);
    stdio->out_ended = true;
    ending(stdio);
}

static void on_err(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct mcp_stdio *stdio = stream->data;
    if (n > 0)
        lines_feed(&stdio->log_lines, bytes->base, (size_t)n);
    if (n >= 0)
        return;
    lines_end(&stdio->log_lines);
    if (!uv_is_closing((uv_handle_t *)stream))
        uv_read_stop(stream);
}

/* ---- writing ---- */

static void on_written(uv_write_t *request, int status)
{
    struct writing *writing = (struct writing *)request;
    writing->stdio->queued_bytes -= writing->bytes;
    (void)status; /* a broken pipe: the process or its output ends as well */
    free(writing);
}

static void queue(struct mcp_stdio *stdio, struct str text, size_t begun)
{
    size_t bytes = text.n + 1 - begun;
    struct writing *writing = mem_alloc(sizeof *writing + bytes);
    writing->stdio = stdio;
    writing->bytes = bytes;
    if (bytes > 1)
        memcpy(writing->data, text.p + begun, bytes - 1);
    writing->data[bytes - 1] = '\n';
    uv_buf_t buf = uv_buf_init(writing->data, (unsigned)bytes);
    stdio->queued_bytes += bytes;
    if (uv_write(&writing->request, (uv_stream_t *)&stdio->in, &buf, 1, on_written) == 0)
        return;
    stdio->queued_bytes -= bytes;
    free(writing);
}

static bool stdio_send(struct mcp_transport *transport, const struct mcp_outgoing *message, struct err *err)
{
    struct mcp_stdio *stdio = stdio_of(transport);
    struct str text = message->text;
    char end[] = "\n";
    int begun = 0;
    if (stdio->exited)
        return err_set(err, ERR_UNAVAILABLE, "the server has ended"), false;
    if (stdio->queued_bytes + text.n > stdio->hub->pace.queue_bytes_max)
        return err_set(err, ERR_UNAVAILABLE, "the server does not read what it is sent"), false;
    if (stdio->queued_bytes == 0) {
        uv_buf_t bufs[2] = {uv_buf_init((char *)text.p, (unsigned)text.n), uv_buf_init(end, 1)};
        begun = uv_try_write((uv_stream_t *)&stdio->in, bufs, 2);
        if (begun < 0 && begun != UV_EAGAIN)
            return err_set(err, ERR_UNAVAILABLE, "the server takes no input any more: %s", uv_strerror(begun)), false;
    }
    if (begun < 0)
        begun = 0;
    if ((size_t)begun < text.n + 1)
        queue(stdio, text, (size_t)begun);
    return true;
}

static void stdio_drop(struct mcp_transport *transport, struct mcp_pending *pending, bool cancelled)
{
    (void)transport;
    (void)pending;
    (void)cancelled;
}

/* ---- start ---- */

static const struct mcp_transport_ops stdio_ops = {.send = stdio_send, .drop = stdio_drop, .close = stdio_close};

static void adopt(struct mcp_stdio *stdio, uv_pipe_t *pipe, int fd)
{
    uv_pipe_init(stdio->hub->options.loop, pipe, 0);
    pipe->data = stdio;
    stdio->open_handles++;
    if (uv_pipe_open(pipe, fd) != 0)
        close(fd); /* reads and writes fail then */
}

struct mcp_transport *mcp_stdio_open(struct mcp_connection *connection, struct err *err)
{
    struct mcp_stdio *stdio = mem_zero(sizeof *stdio);
    int pipes[3];
    const struct mcp_provider *provider = connection->server->provider;
    const struct child_spec spec = {.argv = provider->command, .env = provider->env, .cwd = provider->cwd};
    stdio->hub = connection->hub;
    if (!stdio->hub->children)
        stdio->hub->children = children_new(stdio->hub->options.loop);
    if (child_start(stdio->hub->children, &stdio->child, &spec, pipes, err) != ERR_NONE) {
        free(stdio);
        return NULL;
    }
    mcp_hub_hold(stdio->hub);
    stdio->base = (struct mcp_transport){.ops = &stdio_ops, .connection = connection};
    stdio->child.exited = on_exited;
    stdio->provider = mcp_provider_ref(connection->server->provider);
    stdio->name = mem_copy_text(connection->server->name);
    adopt(stdio, &stdio->in, pipes[0]);
    adopt(stdio, &stdio->out, pipes[1]);
    adopt(stdio, &stdio->err, pipes[2]);
    uv_timer_init(stdio->hub->options.loop, &stdio->timer);
    stdio->timer.data = stdio;
    stdio->open_handles++;
    lines_init(&stdio->lines, stdio->provider->answer_bytes_max, on_line, stdio);
    lines_init(&stdio->log_lines, LOG_LINE_BYTES_MAX, on_log_line, stdio);
    uv_read_start((uv_stream_t *)&stdio->out, on_buffer, on_out);
    uv_read_start((uv_stream_t *)&stdio->err, on_buffer, on_err);
    return &stdio->base;
}
