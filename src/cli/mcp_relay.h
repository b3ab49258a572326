/* Between an MCP client and the process that has the ledger: passes lines on as they are, and outlives that process.
 * When it ends, the next one is looked for at the same socket; it is told who the client is (initialize and what else
 * makes a session), and what the client still waits for is asked again. Onced's repeat rule joins what was already
 * begun, so that nothing is done twice; each request gets one answer. */
#ifndef CLI_MCP_RELAY_H
#define CLI_MCP_RELAY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define RELAY_OPEN_MAX     4096               /* requests without an answer; then the client is read no more */
#define RELAY_KEPT_MAX     ((size_t)64 << 20) /* bytes of them; the rest is not asked again but given up */
#define RELAY_REQUEST_MAX  ((size_t)8 << 20)  /* of one message of the client, more than owners take */
#define RELAY_ANSWER_MAX   ((size_t)64 << 20)
#define RELAY_SENDS_MAX    3      /* of one request: it may be what ends those processes */
#define RELAY_TAKE_OVER_MS 2000   /* without an owner for so long, somebody should become it */
#define RELAY_GIVE_UP_MS   120000 /* the relay ends. Owners that begin wait for their MCP servers */
#define RELAY_SESSION_MAX  256    /* messages that make a session: subscriptions above all */

struct relay_options {
    int in, out;      /* the client's; borrowed */
    int fd;           /* connected already, taken over; -1 = none */
    const char *path; /* the socket; borrowed */
    /* Nobody listens: called every RELAY_TAKE_OVER_MS or so until somebody does. */
    void (*orphaned)(void *user);
    void *user;
};

/* Runs until the client has left (ERR_NONE) or nobody could be reached (ERR_UNAVAILABLE). Blocks; SIGPIPE must be
 * ignored. */
enum err_code relay_run(const struct relay_options *options, struct err *err);

#endif
