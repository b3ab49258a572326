/* The ledger's socket: each connection is one client of mcp_stream.c. */
#include "base/local_socket.h"
#include "base/log.h"
#include "base/mem.h"
#include "door/mcp_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY_MS 500 /* with no descriptors left, accepting is tried again after this */

struct client {
    struct mcp_listener_socket *listener; /* NULL once that is closed */
    struct mcp_stream *stream;
    struct client *next, **link;
};

struct mcp_listener_socket {
    struct mcp_door *door;
    char *path;
    struct stat file; /* as we made it: another's is not removed */
    int fd;
    uv_poll_t poll;
    uv_timer_t retry;
    unsigned handles;
    struct client *clients;
    size_t client_count;
    bool stopped;
    void (*left)(void *user);
    void *user;
};

/* ---- clients ---- */

static void client_unlink(struct client *client)
{
    *client->link = client->next;
    if (client->next)
        client->next->link = client->link;
    client->listener->client_count--;
}

static void on_client_ended(void *user)
{
    struct client *client = user;
    struct mcp_listener_socket *listener = client->listener;
    client_unlink(client);
    free(client);
    if (listener->left)
        listener->left(listener->user);
}

/* Whoever is too many is told so, as far as one write goes. */
static void turn_away(int fd, const char *why)
{
    struct buf text;
    buf_init(&text, 0);
    rpc_write_error(&text, STR_NONE, MCP_BUSY, str_of(why), STR_NONE);
    buf_add_char(&text, '\n');
    if (send(fd, text.p, text.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        log_message(LOG_DEBUG, "mcp_socket", "turned away without a word: %s", strerror(errno));
    buf_release(&text);
    log_message(LOG_WARN, "mcp_socket", "a client was turned away: %s", why);
}

static void take_client(struct mcp_listener_socket *listener, int fd)
{
    struct err err = {0};
    struct client *client;
    if (!local_socket_trusted(fd)) {
        turn_away(fd, "this socket is for its owner alone");
        return;
    }
    if (listener->client_count >= MCP_SOCKET_CLIENTS_MAX) {
        turn_away(fd, "too many clients are connected");
        return;
    }
    client = mem_zero(sizeof *client);
    client->listener = listener;
    if (mcp_stream_open(listener->door, fd, fd, on_client_ended, client, &client->stream, &err)) {
        turn_away(fd, err.text);
        free(client);
        return;
    }
    client->next = listener->clients;
    client->link = &listener->clients;
    if (client->next)
        client->next->link = &client->next;
    listener->clients = client;
    listener->client_count++;
}

static void on_ready(uv_poll_t *poll, int status, int events);

static void on_retry(uv_timer_t *timer)
{
    struct mcp_listener_socket *listener = timer->data;
    if (!listener->stopped)
        uv_poll_start(&listener->poll, UV_READABLE, on_ready);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct mcp_listener_socket *listener = poll->data;
    (void)status;
    (void)events;
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        take_client(listener, fd);
        close(fd); /* the stream has its own */
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        log_message(LOG_WARN, "mcp_socket", "no client can be taken now: %s", strerror(errno));
        uv_poll_stop(poll);
        uv_timer_start(&listener->retry, on_retry, RETRY_MS, 0);
    }
}

/* ---- life ---- */

enum err_code mcp_socket_listen(struct mcp_door *door, const char *path, struct mcp_listener_socket **out,
                                struct err *err)
{
    int fd;
    enum err_code code = local_socket_listen(path, &fd, err);
    if (code)
        return code;
    struct mcp_listener_socket *listener = mem_zero(sizeof *listener);
    listener->door = door;
    listener->path = mem_copy_text(path);
    listener->fd = fd;
    if (lstat(path, &listener->file) != 0 || uv_poll_init(door->loop, &listener->poll, fd) != 0) {
        code = err_set(err, ERR_IO, "the socket can not be watched: %s", strerror(errno));
        unlink(path);
        close(fd);
        free(listener->path);
        free(listener);
        return code;
    }
    uv_timer_init(door->loop, &listener->retry);
    listener->handles = 2;
    listener->poll.data = listener->retry.data = listener;
    uv_poll_start(&listener->poll, UV_READABLE, on_ready);
    *out = listener;
    return ERR_NONE;
}

size_t mcp_socket_clients(const struct mcp_listener_socket *listener)
{
    return listener->client_count;
}

void mcp_socket_on_left(struct mcp_listener_socket *listener, void (*left)(void *user), void *user)
{
    listener->left = left;
    listener->user = user;
}

static void remove_file(struct mcp_listener_socket *listener)
{
    struct stat now;
    if (lstat(listener->path, &now) == 0 && now.st_ino == listener->file.st_ino && now.st_dev == listener->file.st_dev)
        unlink(listener->path);
}

void mcp_socket_stop(struct mcp_listener_socket *listener)
{
    if (listener->stopped)
        return;
    listener->stopped = true;
    uv_poll_stop(&listener->poll);
    uv_timer_stop(&listener->retry);
    remove_file(listener);
    close(listener->fd); /* who waits to be taken learns it now, and goes to the next owner */
    for (struct client *client = listener->clients; client; client = client->next)
        mcp_stream_finish(client->stream);
}

static void on_closed(uv_handle_t *handle)
{
    struct mcp_listener_socket *listener = handle->data;
    if (--listener->handles > 0)
        return;
    free(listener->path);
    free(listener);
}

void mcp_socket_close(struct mcp_listener_socket *listener)
{
    if (!listener)
        return;
    mcp_socket_stop(listener);
    while (listener->clients) {
        struct client *client = listener->clients;
        mcp_stream_close(client->stream);
        client_unlink(client);
        free(client);
    }
    uv_close((uv_handle_t *)&listener->poll, on_closed);
    uv_close((uv_handle_t *)&listener->retry, on_closed);
}
