#include "adapter/sql_link.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define SWEEP_MS 10000

/* ---- the end of a link ---- */

static void handle_closed(struct sql_links *links)
{
    if (--links->handles == 0 && links->closed)
        links->closed(links->user);
}

static void link_free(struct sql_link *link)
{
    struct sql_links *links = link->links;
    PQfinish(link->conn);
    if (link->before)
        link->before->next = link->next;
    else
        links->all = link->next;
    if (link->next)
        link->next->before = link->before;
    sql_provider_unref(link->provider);
    free(link);
    handle_closed(links);
}

static void on_poll_closed(uv_handle_t *handle)
{
    link_free(handle->data);
}

/* The socket is watched no more before libpq closes it. A worker that still connects lets go of it later. */
void sql_link_drop(struct sql_link *link)
{
    bool connecting = link->state == SQL_LINK_CONNECTING;
    assert(link->state != SQL_LINK_CLOSING);
    link->event = NULL;
    link->state = SQL_LINK_CLOSING;
    if (connecting)
        uv_cancel((uv_req_t *)&link->work); /* fails once it has begun */
    else if (link->has_poll)
        uv_close((uv_handle_t *)&link->poll, on_poll_closed);
    else
        link_free(link);
}

/* ---- connecting ---- */

static void no_notice(void *user, const char *message)
{
    (void)user;
    (void)message;
}

/* On a worker: nothing of the loop's may be touched but the link's own. */
static void connect_work(uv_work_t *work)
{
    struct sql_link *link = work->data;
    char seconds[24];
    /* what the url says of these wins: they come before it */
    const char *const names[] = {"fallback_application_name", "connect_timeout", "dbname", "client_encoding", NULL};
    const char *const values[] = {"onced", seconds, link->provider->url, "UTF8", NULL};
    snprintf(seconds, sizeof seconds, "%lld", (long long)((link->provider->connect_timeout_ms + 999) / 1000));
    link->conn = PQconnectdbParams(names, values, 1);
}

static void connected(uv_work_t *work, int status)
{
    struct sql_link *link = work->data;
    if (link->state == SQL_LINK_CLOSING || status != 0) {
        link_free(link);
        return;
    }
    link->state = SQL_LINK_LENT;
    if (PQstatus(link->conn) == CONNECTION_OK) {
        PQsetNoticeProcessor(link->conn, no_notice, NULL);
        PQsetnonblocking(link->conn, 1);
    }
    link->event(link->user);
}

/* ---- lending ---- */

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct sql_link *link = poll->data;
    (void)status; /* libpq finds out by itself */
    (void)events;
    if (link->state == SQL_LINK_LENT)
        link->event(link->user);
    else if (link->state == SQL_LINK_IDLE && (!PQconsumeInput(link->conn) || PQstatus(link->conn) != CONNECTION_OK))
        sql_link_drop(link);
}

enum err_code sql_link_watch(struct sql_link *link, bool output)
{
    if (PQstatus(link->conn) != CONNECTION_OK || PQsocket(link->conn) < 0)
        return ERR_IO; /* libpq has closed the socket: its number may be somebody else's by now */
    if (!link->has_poll) {
        if (uv_poll_init(link->links->loop, &link->poll, PQsocket(link->conn)) != 0)
            return ERR_IO;
        link->poll.data = link;
        link->has_poll = true;
    }
    return uv_poll_start(&link->poll, UV_READABLE | (output ? UV_WRITABLE : 0), on_socket) ? ERR_IO : ERR_NONE;
}

/* One that is known to be alive: a server that went away has said so, or the system has. */
static struct sql_link *idle_link(struct sql_links *links, const struct sql_provider *provider)
{
    for (struct sql_link *link = links->all, *next; link; link = next) {
        next = link->next;
        if (link->state != SQL_LINK_IDLE || link->provider != provider)
            continue;
        if (PQconsumeInput(link->conn) && PQstatus(link->conn) == CONNECTION_OK)
            return link;
        sql_link_drop(link);
    }
    return NULL;
}

static struct sql_link *link_new(struct sql_links *links, struct sql_provider *provider)
{
    struct sql_link *link = mem_zero(sizeof *link);
    link->links = links;
    link->provider = provider;
    sql_provider_ref(provider);
    link->work.data = link;
    link->next = links->all;
    if (links->all)
        links->all->before = link;
    links->all = link;
    links->handles++;
    return link;
}

struct sql_link *sql_links_take(struct sql_links *links, struct sql_provider *provider, sql_link_event *event,
                                void *user)
{
    struct sql_link *link = idle_link(links, provider);
    assert(!links->closing);
    if (link) { /* room for output: the loop tells at once */
        link->state = SQL_LINK_LENT;
        sql_link_watch(link, true);
    } else {
        link = link_new(links, provider);
        link->state = SQL_LINK_CONNECTING;
        uv_queue_work(links->loop, &link->work, connect_work, connected);
    }
    link->event = event;
    link->user = user;
    return link;
}

void sql_link_give_back(struct sql_link *link)
{
    bool fit = PQstatus(link->conn) == CONNECTION_OK && PQtransactionStatus(link->conn) == PQTRANS_IDLE;
    if (!fit || link->provider->closed || link->links->closing || sql_link_watch(link, false) != ERR_NONE) {
        sql_link_drop(link);
        return;
    }
    link->state = SQL_LINK_IDLE;
    link->event = NULL;
    link->idle_since_ms = uv_now(link->links->loop);
}

/* ---- life ---- */

static void on_sweep(uv_timer_t *timer)
{
    struct sql_links *links = timer->data;
    for (struct sql_link *link = links->all, *next; link; link = next) {
        next = link->next;
        if (link->state == SQL_LINK_IDLE &&
            (link->provider->closed || uv_now(links->loop) - link->idle_since_ms >= SQL_IDLE_MS))
            sql_link_drop(link);
    }
}

void sql_links_init(struct sql_links *links, uv_loop_t *loop)
{
    *links = (struct sql_links){.loop = loop, .handles = 1};
    uv_timer_init(loop, &links->sweep);
    links->sweep.data = links;
    uv_timer_start(&links->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    uv_unref((uv_handle_t *)&links->sweep);
}

static void on_sweep_closed(uv_handle_t *handle)
{
    handle_closed(handle->data);
}

void sql_links_close(struct sql_links *links, void (*closed)(void *user), void *user)
{
    links->closing = true;
    links->closed = closed;
    links->user = user;
    for (struct sql_link *link = links->all, *next; link; link = next) {
        next = link->next;
        if (link->state != SQL_LINK_CLOSING)
            sql_link_drop(link);
    }
    uv_close((uv_handle_t *)&links->sweep, on_sweep_closed);
}
