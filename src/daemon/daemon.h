/* `onced serve` and `onced mcp`: one process with one event loop that wires registry, ledger, adapter, engine and doors
 * together. */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include <stdbool.h>

struct daemon_options {
    const char *config_path;
    const char *listen_override; /* "ADDRESS:PORT", NULL = as the registry file says; port 0 picks a free one */
    const char *ledger_override; /* path, NULL = as the registry file says */
    bool quiet;                  /* no line on standard output when ready */
    /* `onced mcp`: ends when the client on mcp_in and mcp_out, and those on the ledger's socket, have left. */
    bool mcp;
    int mcp_in, mcp_out; /* borrowed; -1 = no client of its own */
};

#define DAEMON_LEDGER_BUSY 3 /* exit code with options.mcp: another process has the ledger; nothing was said */

/* Runs until SIGTERM or SIGINT has been obeyed. When ready writes one line to standard output:
 * {"ready":true,"address":"127.0.0.1","port":7070,"pid":123,"tools":4}. SIGHUP reloads the registry file, all or
 * nothing. Returns the exit code: 0 = stopped as asked, 1 = could not start or went wrong (said on standard error). */
int daemon_run(const struct daemon_options *options);

#endif
