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

/* One connection at a time: the ledger has only one. True: to be stopped. */
static bool serve(struct proxy *proxy, int client)
{
    struct sockaddr_un address = address_of(proxy->upstream);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool stopping = false;
    bool goes_on =
        atomic_load(&proxy->loss) != PROXY_AWAY && connect(server, (struct sockaddr *)&address, sizeof address) == 0;
    while (goes_on) {
        struct pollfd fds[] = {{client, POLLIN, 0}, {server, POLLIN, 0}, {proxy->stop[0], POLLIN, 0}};
        poll(fds, 3, -1);
        stopping = fds[2].revents != 0;
        goes_on = !stopping && (!fds[0].revents || pass(proxy, client, server, true)) &&
                  (!fds[1].revents || pass(proxy, server, client, false));
    }
    if (server != proxy->held)
        close(server);
    close(client);
    return stopping;
}

static void *proxy_main(void *arg)
{
    struct proxy *proxy = arg;
    for (bool stopping = false; !stopping;) {
        struct pollfd fds[] = {{proxy->listener, POLLIN, 0}, {proxy->stop[0], POLLIN, 0}};
        poll(fds, 2, -1);
        stopping = fds[1].revents != 0;
        int client = !stopping && fds[0].revents ? accept(proxy->listener, NULL, NULL) : -1;
        if (client >= 0)
            stopping = serve(proxy, client);
    }
    return NULL;
}

void proxy_start(struct proxy *proxy, const char *upstream)
{
    *proxy = (struct proxy){.folder = "/tmp/onced-proxy-XXXXXX", .held = -1};
    snprintf(proxy->upstream, sizeof proxy->upstream, "%s", upstream);
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
