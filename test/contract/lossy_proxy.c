#include "contract/lossy_proxy.h"

#include "support/test.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET "/.s.PGSQL.5432"

/* The statement COMMIT as the ledger binds it (pg_pipeline.c names statements by their numbers), and what the server
 * says of it. */
static const char bound[] = "\0s2";
static const char answered[] = "C\0\0\0\013COMMIT";

static struct sockaddr_un address_of(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s%s", folder, SOCKET) >= sizeof address.sun_path)
        abort();
    return address;
}

static void lose(struct proxy *proxy)
{
    atomic_store(&proxy->loss, PROXY_PASSES);
    atomic_fetch_add(&proxy->losses, 1);
}

static bool has(const char *bytes, ssize_t n, const char *what, size_t size)
{
    return memmem(bytes, (size_t)n, what, size) != NULL;
}

/* What was delayed reaches the server, which gets done with it. */
static void release_rest(struct proxy *proxy)
{
    char bytes[4096];
    if (proxy->held < 0)
        return;
    bool taken = send(proxy->held, proxy->rest, proxy->rest_bytes, MSG_NOSIGNAL) == (ssize_t)proxy->rest_bytes;
    shutdown(proxy->held, SHUT_WR);
    while (read(proxy->held, bytes, sizeof bytes) > 0)
        continue; /* until it has ended */
    atomic_fetch_add(&proxy->released, taken);
    close(proxy->held);
    proxy->held = -1;
}

/* Passes on what one side says; false when the connection is to be broken. */
static bool pass(struct proxy *proxy, int from, int to, bool client)
{
    char bytes[65536];
    ssize_t n = read(from, bytes, sizeof bytes);
    enum proxy_loss loss = (enum proxy_loss)atomic_load(&proxy->loss);
    if (n <= 0 || loss == PROXY_AWAY)
        return false;
    bool commit = client && has(bytes, n, bound, sizeof bound);
    bool answer = !client && has(bytes, n, answered, sizeof answered);
    if ((loss == PROXY_LOSES_COMMIT && commit) || (loss == PROXY_LOSES_ANSWER && answer)) {
        lose(proxy);
        return false;
    }
    if (loss == PROXY_DELAYS && commit) {
        lose(proxy);
        proxy->held = to;
        proxy->rest_bytes = (size_t)n;
        memcpy(proxy->rest, bytes, (size_t)n);
        return false;
    }
    if (answer)
        release_rest(proxy);
    for (ssize_t sent = 0, k; sent < n; sent += k)
        if ((k = send(to, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL)) <= 0)
            return false;
    if (loss == PROXY_LEAVES && commit) {
        lose(proxy);
        return false;
    }
    return true;
}

/* One connection through the proxy; client -1: none. */
struct pair {
    int client, server;
};

static void end_pair(const struct proxy *proxy, struct pair *pair)
{
    if (pair->server != proxy->held)
        close(pair->server);
    close(pair->client);
    pair->client = -1;
}

static void accept_pair(struct proxy *proxy, struct pair pairs[PROXY_CONNECTIONS_MAX])
{
    struct sockaddr_un address = address_of(proxy->upstream);
    struct pair pair = {accept(proxy->listener, NULL, NULL), socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    int place = 0;
    while (place < PROXY_CONNECTIONS_MAX && pairs[place].client >= 0)
        place++;
    if (place < PROXY_CONNECTIONS_MAX && atomic_load(&proxy->loss) != PROXY_AWAY &&
        connect(pair.server, (struct sockaddr *)&address, sizeof address) == 0)
        pairs[place] = pair;
    else
        end_pair(proxy, &pair);
}

static void *proxy_main(void *arg)
{
    struct proxy *proxy = arg;
    struct pair pairs[PROXY_CONNECTIONS_MAX];
    for (int i = 0; i < PROXY_CONNECTIONS_MAX; i++)
        pairs[i].client = -1;
    for (bool stopping = false; !stopping;) {
        struct pollfd fds[2 + 2 * PROXY_CONNECTIONS_MAX] = {{proxy->listener, POLLIN, 0}, {proxy->stop[0], POLLIN, 0}};
        struct pollfd *of_pairs = fds + 2;
        for (int i = 0; i < PROXY_CONNECTIONS_MAX; i++) {
            bool open = pairs[i].client >= 0;
            of_pairs[2 * i] = (struct pollfd){pairs[i].client, POLLIN, 0};
            of_pairs[2 * i + 1] = (struct pollfd){open ? pairs[i].server : -1, POLLIN, 0};
        }
        poll(fds, 2 + 2 * PROXY_CONNECTIONS_MAX, -1);
        stopping = fds[1].revents != 0;
        for (int i = 0; i < PROXY_CONNECTIONS_MAX; i++) {
            struct pair *pair = &pairs[i];
            if ((of_pairs[2 * i].revents && !pass(proxy, pair->client, pair->server, true)) ||
                (of_pairs[2 * i + 1].revents && !pass(proxy, pair->server, pair->client, false)))
                end_pair(proxy, pair);
        }
        if (!stopping && fds[0].revents)
            accept_pair(proxy, pairs);
    }
    for (int i = 0; i < PROXY_CONNECTIONS_MAX; i++)
        if (pairs[i].client >= 0)
            end_pair(proxy, &pairs[i]);
    return NULL;
}

void proxy_start(struct proxy *proxy, const char *upstream)
{
    *proxy = (struct proxy){.held = -1};
    snprintf(proxy->upstream, sizeof proxy->upstream, "%s", upstream);
    snprintf(proxy->folder, sizeof proxy->folder, "%s/proxy-XXXXXX",
             upstream); /* gone with it, if the test is killed */
    assert_non_null(mkdtemp(proxy->folder));
    struct sockaddr_un address = address_of(proxy->folder);
    proxy->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(proxy->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(proxy->listener, 8), 0);
    assert_int_equal(pipe(proxy->stop), 0);
    assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_main, proxy), 0);
}

void proxy_stop(struct proxy *proxy)
{
    struct sockaddr_un address = address_of(proxy->folder);
    assert_int_equal(write(proxy->stop[1], "x", 1), 1);
    pthread_join(proxy->thread, NULL);
    close(proxy->listener);
    close(proxy->stop[0]);
    close(proxy->stop[1]);
    unlink(address.sun_path);
    rmdir(proxy->folder);
}
