/* The MCP clients that are not reached over HTTP: the one on the daemon's own descriptors (`onced mcp`), and those on
 * the ledger's socket (other `onced mcp`). */
#ifndef DAEMON_LOCAL_CLIENTS_H
#define DAEMON_LOCAL_CLIENTS_H

#include "door/mcp.h"

#define LOCAL_CLIENTS_FIRST_MS 10000 /* nobody came within this: there is nobody */

struct local_clients_options {
    uv_loop_t *loop;
    struct mcp_door *door;
    const char *ledger_path; /* NULL: no socket; a gateway of its own can be started for each client */
    int in, out;             /* of a client of one's own; -1 = none */
    /* Not NULL: called once, from the loop, when there is no client any more, or none came. */
    void (*idle)(void *user);
    void *user;
};

struct local_clients {
    struct local_clients_options options;
    struct mcp_listener_socket *socket; /* NULL = none */
    struct mcp_stream *stdio;           /* NULL = none */
    uv_timer_t first;
    bool open, told, stopped;
};

/* Without a socket other processes are not served, which is logged; it is an error only when nobody else would be. */
enum err_code local_clients_open(struct local_clients *clients, const struct local_clients_options *options,
                                 struct err *err);
/* Nobody new, nothing more is read; what was asked is answered. */
void local_clients_stop(struct local_clients *clients);
/* Before the door is closed; a zeroed struct is fine. */
void local_clients_close(struct local_clients *clients);

#endif
