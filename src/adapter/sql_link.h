/* Connections to databases: made on libuv's worker threads, kept for a while after use. One at a time is lent to
 * whoever executes a transaction on it. Not for others than the SQL adapter.
 *
 *   take ─► idle one ──────────────────────────────► lent ─► give back ─► idle ─► closed after SQL_IDLE_MS
 *        └► worker: PQconnectdbParams ─► connected ─┘    └─► drop ─► closed
 *
 * libpq connects without waiting, but for names: it would resolve them on the loop. On a worker all of libpq's settings
 * work as they do elsewhere, several hosts and service files included. */
#ifndef ADAPTER_SQL_LINK_H
#define ADAPTER_SQL_LINK_H

#include "adapter/sql_parts.h"

struct sql_link;

struct sql_links {
    uv_loop_t *loop;
    struct sql_link *all;
    unsigned handles; /* links and the timer, not closed yet */
    uv_timer_t sweep;
    bool closing;
    void (*closed)(void *user);
    void *user;
};

/* Something happened: connected (or not: sql_link_fault), readable, writable. */
typedef void sql_link_event(void *user);

struct sql_link {
    struct sql_links *links;
    struct sql_provider *provider; /* a reference */
    PGconn *conn;                  /* NULL while connecting */
    enum { SQL_LINK_CONNECTING, SQL_LINK_LENT, SQL_LINK_IDLE, SQL_LINK_CLOSING } state;
    uv_work_t work;
    uv_poll_t poll;
    bool has_poll;
    sql_link_event *event; /* NULL: nobody waits (any more) */
    void *user;
    uint64_t idle_since_ms;
    struct sql_link *next, *before;
};

void sql_links_init(struct sql_links *links, uv_loop_t *loop);
/* Nobody may hold a link any more. closed is called when all are closed. */
void sql_links_close(struct sql_links *links, void (*closed)(void *user), void *user);

/* event is called later, also for a link that is ready at once (conn is there then). */
struct sql_link *sql_links_take(struct sql_links *links, struct sql_provider *provider, sql_link_event *event,
                                void *user);
/* Watches the socket; output: also until there is room. ERR_IO: it cannot be watched. */
enum err_code sql_link_watch(struct sql_link *link, bool output);
/* After a transaction that has ended; dropped when it is not fit for another one. */
void sql_link_give_back(struct sql_link *link);
/* Closes it, whatever it is doing: what was not committed is rolled back. */
void sql_link_drop(struct sql_link *link);

#endif
