#include "door/watch.h"

#include "base/mem.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* ---- disconnects ---- */

struct watch {
    uv_poll_t poll;
    int fd;
    void (*gone)(void *user);
    void *user;
};

static void watch_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    close(watch->fd);
    free(watch);
}

static void watch_event(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    if (status == 0 && !(events & UV_DISCONNECT))
        return;
    uv_poll_stop(poll);
    watch->gone(watch->user);
}

struct watch *watch_begin(uv_loop_t *loop, int fd, void (*gone)(void *user), void *user)
{
    int copy = duplicate(fd);
    if (copy < 0)
        return NULL;
    struct watch *watch = mem_zero(sizeof *watch);
    *watch = (struct watch){.fd = copy, .gone = gone, .user = user};
    if (uv_poll_init(loop, &watch->poll, copy) != 0) {
        close(copy);
        free(watch);
        return NULL;
    }
    watch->poll.data = watch;
    uv_poll_start(&watch->poll, UV_DISCONNECT, watch_event);
    return watch;
}

void watch_end(struct watch *watch)
{
    if (watch)
        uv_close((uv_handle_t *)&watch->poll, watch_closed);
}

/* ---- lingering ---- */

struct lingerer {
    uv_poll_t poll;
    int fd;
    struct lingers *lingers;
    struct lingerer *next, **at;
    uint64_t until_ms;
    size_t bytes;
};

static void linger_closed(uv_handle_t *handle)
{
    struct lingerer *linger = handle->data;
    close(linger->fd);
    free(linger);
}

static void linger_end(struct lingerer *linger)
{
    *linger->at = linger->next;
    if (linger->next)
        linger->next->at = linger->at;
    linger->lingers->count--;
    uv_close((uv_handle_t *)&linger->poll, linger_closed);
}

static void linger_event(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct lingerer *linger = poll->data;
    char waste[16 * 1024];
    ssize_t n = status == 0 ? recv(linger->fd, waste, sizeof waste, MSG_DONTWAIT) : 0;
    if (n > 0)
        linger->bytes += (size_t)n;
    if (n <= 0 || linger->bytes > LINGER_BYTES_MAX)
        linger_end(linger);
}

void linger_begin(struct lingers *lingers, int fd)
{
    int copy = lingers->count < LINGERS_MAX ? duplicate(fd) : -1;
    if (copy < 0)
        return;
    struct lingerer *linger = mem_zero(sizeof *linger);
    linger->fd = copy;
    if (uv_poll_init(lingers->loop, &linger->poll, copy) != 0) {
        close(copy);
        free(linger);
        return;
    }
    linger->poll.data = linger;
    linger->lingers = lingers;
    linger->until_ms = uv_now(lingers->loop) + LINGER_MS;
    linger->next = lingers->first;
    linger->at = &lingers->first;
    if (lingers->first)
        lingers->first->at = &linger->next;
    lingers->first = linger;
    lingers->count++;
    /* The refusal is written within this turn of the loop; input is read from the next one on. */
    uv_poll_start(&linger->poll, UV_READABLE, linger_event);
}

void lingers_tick(struct lingers *lingers)
{
    for (struct lingerer *linger = lingers->first, *next; linger; linger = next) {
        next = linger->next;
        if (linger->until_ms <= uv_now(lingers->loop))
            linger_end(linger);
    }
}

void lingers_end(struct lingers *lingers)
{
    while (lingers->first)
        linger_end(lingers->first);
}
