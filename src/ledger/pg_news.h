/* News between gateways on one PostgreSQL database: a connection of its own that listens, on a thread of its own, since
 * the ledger thread sleeps while it has nothing to do.
 *
 *   gateway A   watched operation moves ─▶ pg_notify in the same transaction, at most one per commit in most cases
 *   gateway B   LISTEN ─▶ ids ─▶ ledger_poll ─▶ ledger_on_news
 *
 * A connection that breaks, and more news than are kept, become the one piece of news that some may be missing. So does
 * one that leads to another server than the ledger's own: after a failover a former primary may go on, and nothing
 * happens there any more. A server that knows no notifications (a compatible engine) has none: whoever waits looks from
 * time to time (engine/wait.c). The same connection helps the other one, which may wait for the locks of a gateway that
 * stands still. Not for others. */
#ifndef LEDGER_PG_NEWS_H
#define LEDGER_PG_NEWS_H

#include "ledger/ledger.h"
#include "ledger/pg_store.h"

struct pg_news;

/* gateway: as pg.gateway, whose own news are passed over. server: where the ledger's own connection leads to. notify,
 * from the thread: there are some to take. NULL: no thread can be started. */
struct pg_news *pg_news_start(const char *url, struct env *env, const char *gateway, const struct pg_server *server,
                              void (*notify)(void *user), void *user);
/* The ledger's own has connected anew, to this server: the news follow there, unless they are on a later timeline
 * already, to which the ledger will come. */
void pg_news_follow(struct pg_news *news, const struct pg_server *server);
/* Tells what came since the last call. */
void pg_news_tell(struct pg_news *news, ledger_news_fn *tell, void *user);
/* Ends, at most once a second, sessions of gateways that have stood still for PG_STUCK_MS in the midst of a
 * transaction. The server rolls it back; their gateway, when it goes on, meets a broken connection and finds out. */
void pg_news_unblock(struct pg_news *news);
/* Ends the thread: at once, or when an attempt to connect ends (PG_CONNECT_S). NULL is fine. */
void pg_news_stop(struct pg_news *news);

/* On a connection outside of pipelines: whether the server knows notifications. */
bool pg_news_known(struct pg *pg);

#endif
