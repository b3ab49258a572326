#include "ledger/pg_news.h"

#include "base/mem.h"
#include "ledger/queue.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define KEPT_MAX     4096 /* ids between two calls of pg_news_tell; beyond: "some may be missing" */
#define PAUSE_MIN_MS 100  /* between attempts to connect; they double */
#define PAUSE_MAX_MS 5000
/* Without a word from us a firewall forgets the connection, and a server that is gone is not noticed. */
#define ALIVE_MS         30000
#define UNBLOCK_EVERY_MS 900

typedef char news_id[OPERATION_ID_SIZE];

struct pg_news {
    struct pg pg; /* the thread's */
    void (*notify)(void *user);
    void *user;
    char gateway[ULID_CHARS + 1];
    int wake_fd;
    int64_t unblocked_ms; /* the thread's: when it last did; monotonic */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards from here … */
    news_id *ids;
    size_t count;
    bool missing, unblock;
    struct pg_server ledgers; /* where the ledger's own connection leads to … */
    bool moved;               /* … which is new */
    bool stopping;            /* … to here */
};

/* ---- what came ---- */

static bool is_stopping(struct pg_news *news)
{
    pthread_mutex_lock(&news->mutex);
    bool stopping = news->stopping;
    pthread_mutex_unlock(&news->mutex);
    return stopping;
}

static void keep(struct pg_news *news, struct str id)
{
    if (id.n >= OPERATION_ID_SIZE || news->count == KEPT_MAX) {
        news->missing = true;
        return;
    }
    char *kept = news->ids[news->count++];
    memcpy(kept, id.p, id.n);
    kept[id.n] = '\0';
}

/* "GATEWAY ID ID …" */
static void take_text(struct pg_news *news, const char *text)
{
    size_t sender = strcspn(text, " ");
    if (text[sender] == '\0' || (sender == strlen(news->gateway) && memcmp(text, news->gateway, sender) == 0))
        return;
    pthread_mutex_lock(&news->mutex);
    bool quiet = news->count == 0 && !news->missing;
    for (const char *p = text + sender; *p;) {
        p += strspn(p, " ");
        size_t n = strcspn(p, " ");
        if (n > 0)
            keep(news, (struct str){p, n});
        p += n;
    }
    pthread_mutex_unlock(&news->mutex);
    if (quiet)
        news->notify(news->user);
}

static void note_missing(struct pg_news *news)
{
    pthread_mutex_lock(&news->mutex);
    bool quiet = news->count == 0 && !news->missing;
    news->missing = true;
    pthread_mutex_unlock(&news->mutex);
    if (quiet)
        news->notify(news->user);
}

void pg_news_tell(struct pg_news *news, ledger_news_fn *tell, void *user)
{
    pthread_mutex_lock(&news->mutex);
    size_t count = news->count;
    bool missing = news->missing;
    news_id *ids = count ? mem_alloc(count * sizeof *ids) : NULL;
    if (count)
        memcpy(ids, news->ids, count * sizeof *ids);
    news->count = 0;
    news->missing = false;
    pthread_mutex_unlock(&news->mutex);
    if (missing)
        tell(user, NULL);
    for (size_t i = 0; i < count; i++)
        tell(user, ids[i]);
    free(ids);
}

/* ---- the connection ---- */

/* Waits until the server says something, something is to be done, or timeout_ms is over. */
static void sleep_on(struct pg_news *news, int fd, int timeout_ms)
{
    uint64_t rung;
    struct pollfd fds[2] = {{.fd = news->wake_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    poll(fds, fd < 0 ? 1 : 2, timeout_ms);
    if (fds[0].revents && read(news->wake_fd, &rung, sizeof rung) < 0)
        return; /* somebody else's read: there is none */
}

static void ring(struct pg_news *news)
{
    uint64_t one = 1;
    if (write(news->wake_fd, &one, sizeof one) < 0)
        return; /* the counter is full: it has been rung */
}

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* By age and by what it waits for: one that works, and one that waits for a lock, is left alone. A server without this
 * view has its own ways. */
static void unblock(struct pg_news *news)
{
    char sql[640];
    struct err ignored = {0};
    int64_t now_ms = monotonic_ms();
    pthread_mutex_lock(&news->mutex);
    bool wanted = news->unblock;
    news->unblock = false;
    pthread_mutex_unlock(&news->mutex);
    if (!wanted || now_ms - news->unblocked_ms < UNBLOCK_EVERY_MS)
        return;
    news->unblocked_ms = now_ms;
    snprintf(sql, sizeof sql,
             "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
             "AND usename = current_user AND application_name = current_setting('application_name') "
             "AND pid <> pg_backend_pid() AND wait_event = 'ClientRead' "
             "AND xact_start < clock_timestamp() - interval '%d ms'",
             PG_STUCK_MS);
    pg_exec(&news->pg, sql, &ignored);
    news->pg.fault = PG_FINE;
}

void pg_news_unblock(struct pg_news *news)
{
    pthread_mutex_lock(&news->mutex);
    news->unblock = true;
    pthread_mutex_unlock(&news->mutex);
    ring(news);
}

void pg_news_follow(struct pg_news *news, const struct pg_server *server)
{
    pthread_mutex_lock(&news->mutex);
    news->ledgers = *server;
    news->moved = true;
    pthread_mutex_unlock(&news->mutex);
    ring(news);
}

static bool has_moved(struct pg_news *news)
{
    pthread_mutex_lock(&news->mutex);
    bool moved = news->moved;
    pthread_mutex_unlock(&news->mutex);
    return moved;
}

/* False: the connection leads to a server where nothing happens any more, or is broken. */
static bool is_with_the_ledger(struct pg_news *news)
{
    struct pg_server here;
    struct err ignored = {0};
    pthread_mutex_lock(&news->mutex);
    struct pg_server there = news->ledgers;
    news->moved = false;
    pthread_mutex_unlock(&news->mutex);
    if (pg_which_server(&news->pg, &here, &ignored))
        return false;
    bool same_system = here.system == there.system || here.system == 0 || there.system == 0;
    return same_system && (here.timeline >= there.timeline || here.timeline == 0);
}

/* Until the connection breaks, or leads to the wrong server. */
static void listen_on(struct pg_news *news)
{
    PGconn *conn = news->pg.conn;
    struct err err = {0};
    PGnotify *note;
    while (!is_stopping(news) && PQconsumeInput(conn) && PQstatus(conn) == CONNECTION_OK) {
        while ((note = PQnotifies(conn))) {
            take_text(news, note->extra);
            PQfreemem(note);
        }
        struct pollfd ready = {.fd = PQsocket(conn), .events = POLLIN};
        int64_t alive_ms = monotonic_ms() + ALIVE_MS;
        sleep_on(news, ready.fd, ALIVE_MS);
        unblock(news);
        if (has_moved(news) && !is_with_the_ledger(news))
            return;
        if (monotonic_ms() >= alive_ms && !is_stopping(news) && pg_exec(&news->pg, "SELECT 1", &err))
            return;
    }
}

static void *news_main(void *arg)
{
    struct pg_news *news = arg;
    int pause_ms = PAUSE_MIN_MS;
    pthread_setname_np(pthread_self(), "news");
    while (!is_stopping(news)) {
        struct err err = {0};
        bool there = pg_connect_bare(&news->pg, &err) == 0;
        if (there && is_with_the_ledger(news) && pg_exec(&news->pg, "LISTEN " PG_NEWS_CHANNEL, &err) == 0) {
            pause_ms = PAUSE_MIN_MS;
            note_missing(news); /* what was told before we listened */
            listen_on(news);
        } else if (there) {
            news->pg.first_host++;
        }
        pg_disconnect(&news->pg);
        sleep_on(news, -1, is_stopping(news) ? 0 : pause_ms);
        pause_ms = 2 * pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    }
    return NULL;
}

/* pg.waits: on this thread, while the server says nothing. */
static bool ends(void *owner, int64_t waited_ms)
{
    (void)waited_ms;
    return is_stopping(owner);
}

/* ---- life ---- */

static void release(struct pg_news *news)
{
    pg_release(&news->pg);
    pthread_mutex_destroy(&news->mutex);
    if (news->wake_fd >= 0)
        close(news->wake_fd);
    free(news->ids);
    free(news);
}

struct pg_news *pg_news_start(const char *url, struct env *env, const char *gateway, const struct pg_server *server,
                              void (*notify)(void *user), void *user)
{
    struct pg_news *news = mem_zero(sizeof *news);
    pg_init(&news->pg, url, env, true);
    news->pg.waits = ends;
    news->pg.waits_owner = news;
    news->ledgers = *server;
    news->notify = notify;
    news->user = user;
    snprintf(news->gateway, sizeof news->gateway, "%s", gateway);
    news->ids = mem_alloc(KEPT_MAX * sizeof *news->ids);
    pthread_mutex_init(&news->mutex, NULL);
    news->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (news->wake_fd < 0 || queue_thread(&news->thread, news_main, news) != 0) {
        release(news);
        return NULL;
    }
    return news;
}

void pg_news_stop(struct pg_news *news)
{
    if (!news)
        return;
    pthread_mutex_lock(&news->mutex);
    news->stopping = true;
    pthread_mutex_unlock(&news->mutex);
    ring(news);
    pthread_join(news->thread, NULL);
    release(news);
}

bool pg_news_known(struct pg *pg)
{
    struct err ignored = {0};
    bool known = pg_exec(pg, "SELECT pg_notify('" PG_NEWS_CHANNEL "', '')", &ignored) == 0;
    if (!known && PQstatus(pg->conn) == CONNECTION_OK)
        pg->fault = PG_FINE;
    return known;
}
