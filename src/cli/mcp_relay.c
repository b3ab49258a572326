/*   client ─► lines ─► open requests ─► to_owner ─► socket          state: LOST ─► (GREETING ─►) LIVE ─► LOST …
 *   client ◄─ to_client ◄─ (one answer per open request) ◄─ lines ◄─ socket
 *
 * Only whole lines are passed on: the half of one that a dying process wrote is nobody's. */
#include "cli/mcp_relay.h"

#include "base/jsonrpc.h"
#include "base/lines.h"
#include "base/local_socket.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_EVERY_MS 50
#define READ_BYTES       65536
#define TURNED_AWAY_MS   1000      /* who ends a connection without a word for us is not asked again at once */
#define PENDING_MAX      (1 << 20) /* unwritten bytes in one direction; then the other end of it is not read */

enum relay_state { LOST, GREETING, LIVE };

/* One that the client waits for. */
struct open_request {
    struct open_request *next;
    char *id;   /* JSON text */
    char *line; /* NULL: too much to keep */
    size_t line_bytes;
    unsigned sends;
    bool listens; /* has no end of its own */
};

/* What a new owner must be told before anything else, in this order. */
struct session_part {
    struct session_part *next;
    char *method, *params; /* params: JSON text; NULL = none */
    char *uri;             /* of a subscription */
    char *open_id;         /* of the client's own request, while its answer is out */
};

struct question {
    struct question *next;
    char *id;
};

struct pipe_end {
    struct buf bytes;
    size_t at;
};

struct relay {
    const struct relay_options *options;
    enum relay_state state;
    int fd;
    bool shut; /* our side of the connection is closed */
    struct lines from_client, from_owner;
    struct pipe_end to_client, to_owner;
    struct open_request *open, **open_end;
    size_t open_count, kept_bytes;
    struct session_part *parts, **parts_end;
    size_t part_count;
    bool initialized; /* notifications/initialized came */
    struct question *questions;
    uint64_t greetings; /* number of our own last request */
    int64_t lost_ms, tried_ms, told_ms;
    bool heard; /* this owner has said something to us */
    bool client_ended, client_gone, gave_up;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static char *copy(struct str text)
{
    return mem_copy_bytes(text.p, text.n);
}

/* ---- output ---- */

static size_t pending(const struct pipe_end *end)
{
    return end->bytes.n - end->at;
}

static void push(struct pipe_end *end, struct str line)
{
    if (end->at > 0) {
        memmove(end->bytes.p, end->bytes.p + end->at, pending(end));
        end->bytes.n = pending(end);
        end->at = 0;
    }
    buf_add_str(&end->bytes, line);
    buf_add_char(&end->bytes, '\n');
}

static void drop_pending(struct pipe_end *end)
{
    buf_release(&end->bytes);
    end->at = 0;
}

/* False: the other side is gone. */
static bool flush(struct pipe_end *end, int fd)
{
    while (pending(end) > 0) {
        ssize_t n = write(fd, end->bytes.p + end->at, pending(end));
        if (n > 0)
            end->at += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            return true;
        else if (n == 0 || errno != EINTR)
            return false;
    }
    if (end->bytes.cap > PENDING_MAX)
        drop_pending(end);
    buf_reset(&end->bytes);
    end->at = 0;
    return true;
}

/* ---- requests that wait ---- */

static struct open_request *open_add(struct relay *relay, struct str id, struct str line, bool listens)
{
    struct open_request *request = mem_zero(sizeof *request);
    request->id = copy(id);
    request->listens = listens;
    if (line.n <= RELAY_KEPT_MAX && relay->kept_bytes <= RELAY_KEPT_MAX - line.n) {
        request->line = copy(line);
        request->line_bytes = line.n;
        relay->kept_bytes += line.n;
    }
    *relay->open_end = request;
    relay->open_end = &request->next;
    relay->open_count++;
    return request;
}

/* Takes the request at *at out of the list. */
static void open_remove(struct relay *relay, struct open_request **at)
{
    struct open_request *request = *at;
    *at = request->next;
    if (!request->next)
        relay->open_end = at;
    relay->open_count--;
    relay->kept_bytes -= request->line_bytes;
    free(request->id);
    free(request->line);
    free(request);
}

static struct open_request **open_find(struct relay *relay, struct str id)
{
    for (struct open_request **at = &relay->open; *at; at = &(*at)->next)
        if (str_is(id, (*at)->id))
            return at;
    return NULL;
}

static void answer_lost(struct relay *relay, struct open_request **at, const char *words)
{
    struct buf text;
    buf_init(&text, 0);
    rpc_write_error(&text, str_of((*at)->id), RPC_INTERNAL_ERROR, str_of(words), STR_NONE);
    push(&relay->to_client, buf_str(&text));
    buf_release(&text);
    open_remove(relay, at);
}

/* To a process that has not heard of them. */
static void send_open(struct relay *relay)
{
    for (struct open_request **at = &relay->open; *at;) {
        struct open_request *request = *at;
        if (!request->line) {
            answer_lost(relay, at,
                        "the process that has the ledger ended, and this request was too large to keep: find out what "
                        "became of it (onced_status) before you send it again");
        } else if (request->sends >= RELAY_SENDS_MAX) {
            answer_lost(relay, at,
                        "the process that has the ledger ended three times while this request was open: find out what "
                        "became of it (onced_status) before you send it again");
        } else {
            push(&relay->to_owner, (struct str){request->line, request->line_bytes});
            request->sends++;
            at = &request->next;
        }
    }
}

/* ---- what makes a session ---- */

static void part_free(struct session_part *part)
{
    free(part->method);
    free(part->params);
    free(part->uri);
    free(part->open_id);
    free(part);
}

static void part_remove(struct relay *relay, struct session_part **at)
{
    struct session_part *part = *at;
    *at = part->next;
    if (!part->next)
        relay->parts_end = at;
    relay->part_count--;
    part_free(part);
}

/* There is one initialize, one level, and one subscription per resource. */
static void forget_part(struct relay *relay, const char *method, const char *uri)
{
    for (struct session_part **at = &relay->parts; *at;) {
        if (strcmp((*at)->method, method) == 0 && text_equal((*at)->uri, uri))
            part_remove(relay, at);
        else
            at = &(*at)->next;
    }
}

static void keep_part(struct relay *relay, const struct rpc_message *message, const char *uri)
{
    forget_part(relay, message->method, uri);
    if (relay->part_count >= RELAY_SESSION_MAX)
        return;
    struct session_part *part = mem_zero(sizeof *part);
    part->method = mem_copy_text(message->method);
    part->uri = mem_copy_text(uri);
    part->open_id = copy(message->id);
    if (message->params) {
        struct buf params;
        buf_init(&params, 0);
        json_write(&params, message->params);
        part->params = buf_detach(&params, NULL);
    }
    *relay->parts_end = part;
    relay->parts_end = &part->next;
    relay->part_count++;
}

static void note_session_request(struct relay *relay, struct arena *arena, struct str line)
{
    struct rpc_message message;
    struct rpc_fault fault;
    if (!rpc_read(arena, line, NULL, &message, &fault) || message.kind != RPC_REQUEST)
        return;
    struct str named = message.params ? json_get_text(message.params, "uri") : STR_NONE;
    const char *uri = named.p ? arena_copy_str(arena, named) : NULL;
    if (strcmp(message.method, "resources/unsubscribe") == 0)
        forget_part(relay, "resources/subscribe", uri);
    else
        keep_part(relay, &message, uri);
}

static bool makes_session(struct str method)
{
    return str_is(method, "initialize") || str_is(method, "logging/setLevel") ||
           str_is(method, "resources/subscribe") || str_is(method, "resources/unsubscribe");
}

/* The client's own request was answered: from now on it is part of the session, or, refused, never was. */
static void settle_part(struct relay *relay, struct str id, bool refused)
{
    for (struct session_part **at = &relay->parts; *at; at = &(*at)->next) {
        struct session_part *part = *at;
        if (!part->open_id || !str_is(id, part->open_id))
            continue;
        free(part->open_id);
        part->open_id = NULL;
        if (refused)
            part_remove(relay, at);
        return;
    }
}

/* ---- a new owner ---- */

static void go_live(struct relay *relay)
{
    relay->state = LIVE;
    send_open(relay);
}

static void send_part(struct relay *relay, const struct session_part *part)
{
    struct buf text;
    char id[40];
    snprintf(id, sizeof id, "\"onced-relay-%llu\"", (unsigned long long)++relay->greetings);
    buf_init(&text, 0);
    rpc_write_request(&text, str_of(id), part->method, str_of(part->params));
    push(&relay->to_owner, buf_str(&text));
    buf_release(&text);
}

static const struct session_part *initialize_part(const struct relay *relay)
{
    for (const struct session_part *part = relay->parts; part; part = part->next)
        if (strcmp(part->method, "initialize") == 0 && !part->open_id)
            return part;
    return NULL;
}

/* A client that has not begun a session, or is of the modern era, has nothing to be told. */
static void greet(struct relay *relay)
{
    const struct session_part *part = initialize_part(relay);
    relay->shut = relay->heard = false;
    if (!part) {
        go_live(relay);
        return;
    }
    relay->state = GREETING;
    send_part(relay, part);
}

static void greeted(struct relay *relay)
{
    struct buf text;
    buf_init(&text, 0);
    if (relay->initialized) {
        rpc_write_notification(&text, "notifications/initialized", STR_NONE);
        push(&relay->to_owner, buf_str(&text));
    }
    buf_release(&text);
    for (const struct session_part *part = relay->parts; part; part = part->next)
        if (!part->open_id && strcmp(part->method, "initialize") != 0)
            send_part(relay, part);
    go_live(relay);
}

/* ---- questions of the owner to the client ---- */

static void question_add(struct relay *relay, struct str id)
{
    struct question *question = mem_zero(sizeof *question);
    question->id = copy(id);
    question->next = relay->questions;
    relay->questions = question;
}

static bool question_remove(struct relay *relay, struct str id)
{
    for (struct question **at = &relay->questions; *at; at = &(*at)->next) {
        struct question *question = *at;
        if (!str_is(id, question->id))
            continue;
        *at = question->next;
        free(question->id);
        free(question);
        return true;
    }
    return false;
}

/* Who asked is gone; the answer would be taken for one to the next owner's question. */
static void withdraw_questions(struct relay *relay)
{
    while (relay->questions) {
        struct buf params, text;
        buf_init(&params, 0);
        buf_init(&text, 0);
        buf_printf(&params, "{\"requestId\":%s,\"reason\":\"who asked is gone\"}", relay->questions->id);
        rpc_write_notification(&text, "notifications/cancelled", buf_str(&params));
        push(&relay->to_client, buf_str(&text));
        buf_release(&params);
        buf_release(&text);
        question_remove(relay, str_of(relay->questions->id));
    }
}

static void lose(struct relay *relay)
{
    if (relay->fd >= 0)
        close(relay->fd);
    relay->fd = -1;
    relay->state = LOST;
    relay->lost_ms = relay->told_ms = now_ms();
    if (!relay->heard)
        relay->tried_ms = relay->lost_ms + TURNED_AWAY_MS;
    drop_pending(&relay->to_owner);
    lines_release(&relay->from_owner);
    withdraw_questions(relay);
}

/* ---- lines ---- */

/* The id in params of a cancellation, as JSON text; absent: none. */
static struct str cancelled_id(struct arena *arena, struct str line)
{
    struct rpc_message message;
    struct rpc_fault fault;
    if (!rpc_read(arena, line, NULL, &message, &fault) || !message.params)
        return STR_NONE;
    const struct json *id = json_get(message.params, "requestId");
    if (!id || (id->type != JSON_STRING && id->type != JSON_NUMBER))
        return STR_NONE;
    struct buf text;
    buf_init(&text, 0);
    json_canonical(&text, id);
    struct str out = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return out;
}

static void note_notification(struct relay *relay, struct arena *arena, struct str method, struct str line)
{
    if (str_is(method, "notifications/initialized")) {
        relay->initialized = true;
    } else if (str_is(method, "notifications/cancelled")) {
        struct str id = cancelled_id(arena, line);
        struct open_request **at = id.p ? open_find(relay, id) : NULL;
        if (at)
            open_remove(relay, at); /* nobody waits for its answer */
    }
}

static void on_client_line(void *user, struct str line, bool over)
{
    struct relay *relay = user;
    struct arena arena;
    arena_init(&arena);
    struct rpc_glance glance = rpc_glance(&arena, line);
    bool answer = glance.result || glance.error, request = !answer && glance.method.p && glance.id.p;
    bool pass = relay->state == LIVE;
    (void)over; /* longer than what any owner takes: the beginning is enough for being refused */
    if (request) {
        if (makes_session(glance.method))
            note_session_request(relay, &arena, line);
        open_add(relay, glance.id, line, str_is(glance.method, "subscriptions/listen"))->sends = pass;
    } else if (answer) {
        pass = question_remove(relay, glance.id) && pass;
    } else if (glance.method.p) {
        note_notification(relay, &arena, glance.method, line);
    }
    if (pass)
        push(&relay->to_owner, line);
    arena_release(&arena);
}

/* An answer to what we asked ourselves. True: it was one. */
static bool take_greeting(struct relay *relay, const struct rpc_glance *glance)
{
    char last[40];
    static const char own[] = "\"onced-relay-";
    if (!glance->id.p || glance->id.n < sizeof own || memcmp(glance->id.p, own, sizeof own - 1) != 0)
        return false;
    snprintf(last, sizeof last, "%s%llu\"", own, (unsigned long long)relay->greetings);
    if (relay->state != GREETING || !str_is(glance->id, last))
        return true;
    if (!glance->error) {
        greeted(relay);
        return true;
    }
    relay->gave_up = true; /* it does not want us now: another try, later */
    relay->heard = false;
    return true;
}

static void on_owner_line(void *user, struct str line, bool over)
{
    struct relay *relay = user;
    struct arena arena;
    arena_init(&arena);
    struct rpc_glance glance = rpc_glance(&arena, line);
    bool answer = glance.result || glance.error, pass = !over;
    relay->heard |= !answer || glance.id.p;
    if (answer && !take_greeting(relay, &glance)) {
        struct open_request **at = glance.id.p ? open_find(relay, glance.id) : NULL;
        if (at && !over) {
            settle_part(relay, glance.id, glance.error);
            open_remove(relay, at);
        } else if (at) {
            answer_lost(relay, at, "the answer is longer than what can be passed on");
        } else {
            pass = pass && !glance.id.p; /* nothing is answered twice */
        }
    } else if (answer) {
        pass = false;
    } else if (glance.method.p && glance.id.p && pass) {
        question_add(relay, glance.id);
    } else if (str_is(glance.method, "notifications/cancelled")) {
        struct str id = cancelled_id(&arena, line);
        if (id.p)
            question_remove(relay, id);
    }
    if (pass)
        push(&relay->to_client, line);
    arena_release(&arena);
}

/* ---- the loop ---- */

static void try_to_connect(struct relay *relay)
{
    int64_t now = now_ms();
    if (now - relay->tried_ms < CONNECT_EVERY_MS)
        return;
    relay->tried_ms = now;
    if (local_socket_connect(relay->options->path, &relay->fd, NULL) == ERR_NONE) {
        lines_init(&relay->from_owner, RELAY_ANSWER_MAX, on_owner_line, relay);
        greet(relay);
        return;
    }
    if (now - relay->told_ms >= RELAY_TAKE_OVER_MS) {
        relay->told_ms = now;
        if (relay->options->orphaned)
            relay->options->orphaned(relay->options->user);
    }
}

/* The client has said all: what has no end of its own is over, and the owner shall know. */
static void client_ends(struct relay *relay)
{
    lines_end(&relay->from_client);
    relay->client_ended = true;
    for (struct open_request **at = &relay->open; *at;) {
        if ((*at)->listens)
            open_remove(relay, at);
        else
            at = &(*at)->next;
    }
}

static void read_client(struct relay *relay)
{
    char chunk[READ_BYTES];
    ssize_t n = read(relay->options->in, chunk, sizeof chunk);
    if (n > 0)
        lines_feed(&relay->from_client, chunk, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        client_ends(relay);
}

static void read_owner(struct relay *relay)
{
    char chunk[READ_BYTES];
    ssize_t n = read(relay->fd, chunk, sizeof chunk);
    if (n > 0)
        lines_feed(&relay->from_owner, chunk, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        lose(relay);
    if (relay->gave_up && relay->fd >= 0)
        lose(relay);
    relay->gave_up = false;
}

static void write_owner(struct relay *relay)
{
    if (!flush(&relay->to_owner, relay->fd)) {
        /* What it still said is worth hearing; reading finds its end. */
        drop_pending(&relay->to_owner);
        return;
    }
    if (relay->client_ended && relay->state == LIVE && pending(&relay->to_owner) == 0 && !relay->shut) {
        shutdown(relay->fd, SHUT_WR);
        relay->shut = true;
    }
}

/* Everything was said and answered. The owner closes its side when it has no more to say, also to what was no request.
 */
static bool all_said(const struct relay *relay)
{
    return relay->client_ended && relay->open_count == 0 && relay->fd < 0;
}

static bool is_done(const struct relay *relay)
{
    return relay->client_gone || (all_said(relay) && pending(&relay->to_client) == 0);
}

static void wait_for_events(struct relay *relay, struct pollfd fds[3])
{
    bool hear = !relay->client_ended && relay->open_count < RELAY_OPEN_MAX && pending(&relay->to_owner) < PENDING_MAX;
    bool listen = pending(&relay->to_client) < PENDING_MAX;
    fds[0] = (struct pollfd){.fd = hear ? relay->options->in : -1, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = relay->options->out, .events = pending(&relay->to_client) ? POLLOUT : 0};
    fds[2] = (struct pollfd){.fd = relay->fd, .events = listen ? POLLIN : 0};
    if (relay->fd >= 0 && pending(&relay->to_owner))
        fds[2].events |= POLLOUT;
    if (poll(fds, 3, relay->fd >= 0 ? -1 : CONNECT_EVERY_MS) < 0)
        memset(fds, 0, 3 * sizeof *fds);
}

static void turn(struct relay *relay)
{
    struct pollfd fds[3];
    wait_for_events(relay, fds);
    if (fds[2].revents & (POLLIN | POLLHUP | POLLERR))
        read_owner(relay);
    if (fds[0].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL))
        read_client(relay);
    if (!flush(&relay->to_client, relay->options->out) || fds[1].revents & (POLLERR | POLLHUP | POLLNVAL))
        relay->client_gone = true;
    if (relay->fd < 0 && !all_said(relay))
        try_to_connect(relay);
    if (relay->fd >= 0)
        write_owner(relay);
}

static void release(struct relay *relay)
{
    if (relay->fd >= 0)
        close(relay->fd);
    while (relay->open)
        open_remove(relay, &relay->open);
    while (relay->parts)
        part_remove(relay, &relay->parts);
    while (relay->questions)
        question_remove(relay, str_of(relay->questions->id));
    lines_release(&relay->from_client);
    lines_release(&relay->from_owner);
    buf_release(&relay->to_client.bytes);
    buf_release(&relay->to_owner.bytes);
}

enum err_code relay_run(const struct relay_options *options, struct err *err)
{
    struct relay relay = {.options = options, .fd = options->fd};
    enum err_code code = ERR_NONE;
    int flags = fcntl(options->out, F_GETFL);
    relay.open_end = &relay.open;
    relay.parts_end = &relay.parts;
    relay.lost_ms = relay.told_ms = now_ms();
    buf_init(&relay.to_client.bytes, 0);
    buf_init(&relay.to_owner.bytes, 0);
    lines_init(&relay.from_client, RELAY_REQUEST_MAX, on_client_line, &relay);
    lines_init(&relay.from_owner, RELAY_ANSWER_MAX, on_owner_line, &relay);
    fcntl(options->out, F_SETFL, flags | O_NONBLOCK);
    if (relay.fd >= 0)
        greet(&relay);
    while (!code && !is_done(&relay)) {
        turn(&relay);
        if (relay.fd < 0 && now_ms() - relay.lost_ms > RELAY_GIVE_UP_MS)
            code =
                err_set(err, ERR_UNAVAILABLE, "%s: nobody listens there, and the ledger can not be had", options->path);
    }
    fcntl(options->out, F_SETFL, flags);
    release(&relay);
    return code;
}
