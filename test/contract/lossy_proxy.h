/* A proxy before the PostgreSQL server that breaks connections around COMMIT, for the question whether it happened. */
#ifndef CONTRACT_LOSSY_PROXY_H
#define CONTRACT_LOSSY_PROXY_H

#include <pthread.h>
#include <stdatomic.h>

#define PROXY_CONNECTIONS_MAX 8 /* at once; more are refused */

enum proxy_loss {
    PROXY_PASSES,
    PROXY_LOSES_COMMIT, /* it does not reach the server */
    PROXY_LEAVES,       /* it does, and nobody waits for the answer */
    PROXY_DELAYS,       /* the client is gone; the server gets the rest when the next one has committed */
    PROXY_LOSES_ANSWER, /* the server's "COMMIT" does not reach the client */
    PROXY_AWAY          /* every connection is broken at once */
};

struct proxy {
    char folder[128], upstream[128]; /* of the sockets */
    int listener, stop[2];
    pthread_t thread;
    atomic_int loss;     /* enum proxy_loss; each but AWAY happens once, then it is PASSES */
    atomic_int losses;   /* how often it happened */
    atomic_int released; /* DELAYS: how often the server took the rest */
    int held;            /* DELAYS: the connection that waits for its rest, -1 = none … */
    char rest[65536];    /* … and that */
    size_t rest_bytes;
};

/* upstream: the folder of the server's socket (port 5432). The proxy's own is port 5432 in folder, too. */
void proxy_start(struct proxy *proxy, const char *upstream);
void proxy_stop(struct proxy *proxy);

#endif
