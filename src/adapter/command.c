/* Processes of commands: one per attempt.
 *
 *   send ─► command_build ─► fork, exec ─► stdin written and closed; stdout, the end of stderr kept
 *                              │ failed         │
 *                              ▼                ▼ time over, onced stops: SIGTERM ── kill_after ──► SIGKILL, its group
 *                           not_sent          end ─► what is left of its output ─► command_answer ─► done
 */
#include "adapter/child.h"
#include "adapter/command_parts.h"

#include "base/mem.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_BYTES    65536
#define LAST_WORDS_MS 300 /* output is read for so long after the process ended: others may hold its pipe */

struct command_adapter {
    struct adapter base; /* first */
    uv_loop_t *loop;
    struct children *children;
    struct process *first;
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
    char buffer[READ_BYTES];
};

struct process {
    struct command_adapter *adapter;
    struct process *next, **at;
    struct command_tool *tool; /* a reference */
    struct arena arena;
    struct command_line line;
    struct command_judge judge;
    struct command_end end;
    adapter_done *done;
    void *user;
    struct child child;
    uv_pipe_t in, out, err;
    uv_write_t writing;
    uv_timer_t timer;
    unsigned open_handles;
    struct buf output, written;
    bool running, out_ended, told;
};

static struct command_adapter *command_adapter_of(struct adapter *adapter)
{
    return (struct command_adapter *)adapter;
}

/* ---- life ---- */

static void on_children_closed(void *user)
{
    struct command_adapter *adapter = user;
    void (*closed)(void *user) = adapter->closed;
    void *closed_user = adapter->closed_user;
    free(adapter);
    if (closed)
        closed(closed_user);
}

static void close_when_idle(struct command_adapter *adapter)
{
    if (adapter->closing && !adapter->first)
        children_close(adapter->children, on_children_closed, adapter);
}

static void process_free(struct process *process)
{
    struct command_adapter *adapter = process->adapter;
    *process->at = process->next;
    if (process->next)
        process->next->at = process->at;
    buf_release(&process->output);
    buf_release(&process->written);
    arena_release(&process->arena);
    command_tool_unref(process->tool);
    free(process);
    close_when_idle(adapter);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct process *process = handle->data;
    if (--process->open_handles == 0)
        process_free(process);
}

static void close_handle(uv_handle_t *handle)
{
    if (handle->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handle))
        uv_close(handle, on_handle_closed);
}

/* ---- the end ---- */

/* stderr with secrets masked, its last bytes, as text that JSON can hold. */
static struct str last_words(struct process *process)
{
    struct buf masked, own, text;
    struct str all = buf_str(&process->written);
    if (all.n > COMMAND_STDERR_BYTES_MAX) {
        all.p += all.n - COMMAND_STDERR_BYTES_MAX;
        all.n = COMMAND_STDERR_BYTES_MAX;
    }
    buf_init(&masked, 0);
    buf_init(&own, 0);
    buf_init(&text, 0);
    secrets_mask(&process->tool->provider->secrets, all, &masked);
    secrets_mask(&process->tool->secrets, buf_str(&masked), &own);
    http_add_lossy(&text, buf_str(&own));
    while (text.n > 0 && text.p[text.n - 1] == ' ')
        text.n--;
    struct str words = arena_str(&process->arena, buf_str(&text));
    buf_release(&masked);
    buf_release(&own);
    buf_release(&text);
    return words;
}

static void tell(struct process *process)
{
    struct adapter_answer answer;
    if (process->told)
        return;
    process->told = true;
    process->end.output = buf_str(&process->output);
    process->end.output_cut = process->output.over;
    process->end.written = last_words(process);
    command_answer(&process->judge, &process->end, &answer);
    process->done(process->user, &answer);
    close_handle((uv_handle_t *)&process->in);
    close_handle((uv_handle_t *)&process->out);
    close_handle((uv_handle_t *)&process->err);
    close_handle((uv_handle_t *)&process->timer);
}

static void on_last_words(uv_timer_t *timer)
{
    tell(timer->data);
}

static void on_exited(struct child *child, int status)
{
    struct process *process = (struct process *)((char *)child - offsetof(struct process, child));
    process->running = false;
    process->end.status = status;
    uv_timer_stop(&process->timer);
    if (process->out_ended)
        tell(process);
    else
        uv_timer_start(&process->timer, on_last_words, LAST_WORDS_MS, 0);
}

static void on_overdue(uv_timer_t *timer)
{
    struct process *process = timer->data;
    child_kill(&process->child, SIGKILL);
}

static void kill_soon(struct process *process)
{
    child_kill(&process->child, SIGTERM);
    uv_timer_start(&process->timer, on_overdue, (uint64_t)process->tool->provider->kill_after_ms, 0);
}

static void on_timeout(uv_timer_t *timer)
{
    struct process *process = timer->data;
    process->end.timed_out = true;
    kill_soon(process);
}

/* ---- its streams ---- */

static void on_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct process *process = handle->data;
    (void)suggested;
    *out = uv_buf_init(process->adapter->buffer, READ_BYTES); /* read at once: one is enough for all */
}

/* What is over the limit is read and dropped: a command that cannot write would wait for ever. */
static void on_out(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct process *process = stream->data;
    if (n > 0) {
        size_t room = process->output.max - process->output.n;
        buf_add(&process->output, bytes->base, (size_t)n < room ? (size_t)n : room);
        process->output.over = process->output.over || (size_t)n > room;
    }
    if (n >= 0)
        return;
    process->out_ended = true;
    uv_read_stop(stream);
    if (!process->running)
        tell(process);
}

static void on_err(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct process *process = stream->data;
    struct buf *written = &process->written;
    if (n > 0)
        buf_add(written, bytes->base, (size_t)n);
    if (written->n > 2 * COMMAND_STDERR_BYTES_MAX) { /* the end is what matters */
        memmove(written->p, written->p + written->n - COMMAND_STDERR_BYTES_MAX, COMMAND_STDERR_BYTES_MAX);
        written->n = COMMAND_STDERR_BYTES_MAX;
        written->p[written->n] = '\0';
    }
    if (n < 0)
        uv_read_stop(stream);
}

static void on_written(uv_write_t *request, int status)
{
    struct process *process = request->data;
    (void)status; /* a command need not read what it is given */
    close_handle((uv_handle_t *)&process->in);
}

static void write_input(struct process *process)
{
    struct str input = process->line.input;
    uv_buf_t bytes = uv_buf_init((char *)input.p, (unsigned)input.n);
    process->writing.data = process;
    if (input.n == 0 || uv_write(&process->writing, (uv_stream_t *)&process->in, &bytes, 1, on_written) != 0)
        close_handle((uv_handle_t *)&process->in);
}

static void adopt(struct process *process, uv_pipe_t *pipe, int fd)
{
    uv_pipe_init(process->adapter->loop, pipe, 0);
    pipe->data = process;
    process->open_handles++;
    if (uv_pipe_open(pipe, fd) != 0)
        close(fd); /* reads and writes fail then */
}

/* ---- the beginning ---- */

static struct process *process_new(struct command_adapter *adapter, const struct adapter_call *call, adapter_done *done,
                                   void *user)
{
    struct process *process = mem_zero(sizeof *process);
    process->adapter = adapter;
    process->tool = command_tool_ref((struct command_tool *)call->tool->adapter_tool);
    process->done = done;
    process->user = user;
    arena_init(&process->arena);
    buf_init(&process->written, 0);
    uv_timer_init(adapter->loop, &process->timer);
    process->timer.data = process;
    process->open_handles = 1;
    process->next = adapter->first;
    process->at = &adapter->first;
    if (process->next)
        process->next->at = &process->next;
    adapter->first = process;
    return process;
}

static enum err_code start(struct process *process, const struct adapter_call *call, struct err *err)
{
    struct command_line *line = &process->line;
    int pipes[3];
    process->judge = (struct command_judge){.tool = process->tool, .kind = call->kind, .arena = &process->arena};
    if (process->adapter->closing)
        return err_set(err, ERR_UNAVAILABLE, "onced is stopping");
    enum err_code code = command_build(process->tool, call, &process->arena, line, err);
    if (code)
        return code;
    process->judge.expected = line->expected;
    process->judge.expected_count = line->expected_count;
    buf_init(&process->output, line->run->output_bytes_max);
    process->child.exited = on_exited;
    const struct child_spec spec = {.argv = line->argv, .env = line->env, .cwd = line->cwd};
    code = child_start(process->adapter->children, &process->child, &spec, pipes, err);
    if (code)
        return code;
    process->running = process->end.started = true;
    adopt(process, &process->in, pipes[0]);
    adopt(process, &process->out, pipes[1]);
    adopt(process, &process->err, pipes[2]);
    return ERR_NONE;
}

static void command_send(struct adapter *base, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct process *process = process_new(command_adapter_of(base), call, done, user);
    struct err err = {0};
    if (start(process, call, &err)) {
        process->end.detail = arena_copy_text(&process->arena, err.text);
        uv_timer_start(&process->timer, on_last_words, 0, 0); /* never from within */
        return;
    }
    uv_timer_start(&process->timer, on_timeout, (uint64_t)process->line.run->timeout_ms, 0);
    if (uv_read_start((uv_stream_t *)&process->out, on_buffer, on_out) != 0)
        process->out_ended = true;
    uv_read_start((uv_stream_t *)&process->err, on_buffer, on_err);
    write_input(process);
}

/* ---- without starting ---- */

static enum err_code command_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    struct arena arena;
    struct command_line line;
    (void)adapter;
    arena_init(&arena);
    enum err_code code = command_build(call->tool->adapter_tool, call, &arena, &line, err);
    arena_release(&arena);
    return code;
}

static enum err_code command_show(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                                  struct err *err)
{
    (void)adapter;
    return command_describe(call->tool->adapter_tool, call, out, err);
}

struct adapter *command_adapter_new(uv_loop_t *loop)
{
    static const struct adapter_ops ops = {.check = command_check, .describe = command_show, .send = command_send};
    struct command_adapter *adapter = mem_zero(sizeof *adapter);
    adapter->base.ops = &ops;
    adapter->loop = loop;
    adapter->children = children_new(loop);
    return &adapter->base;
}

void command_adapter_close(struct adapter *base, void (*closed)(void *user), void *user)
{
    struct command_adapter *adapter = command_adapter_of(base);
    adapter->closing = true;
    adapter->closed = closed;
    adapter->closed_user = user;
    for (struct process *process = adapter->first; process; process = process->next) {
        if (!process->running || process->end.timed_out)
            continue;
        process->end.stopped = true;
        kill_soon(process);
    }
    close_when_idle(adapter);
}
