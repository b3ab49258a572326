/* `onced serve` and `onced mcp`: one process with one event loop that wires registry, ledger, adapter, engine and doors
 * together. */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct daemon_options {
    const char *config_path;
    const char *listen_override; /* "ADDRESS:PORT", NULL = as the registry file says; port 0 picks a free one */
    const char *ledger_override; /* path, NULL = as the registry file says */
    bool quiet;                  /* no line on standard output when ready */
    int64_t ledger_wait_ms;      /* how long a PostgreSQL ledger that is away at start is waited for; 0 = not at all */
    /* `onced mcp`: ends when the client on mcp_in and mcp_out, and those on the ledger's socket, have left. */
    bool mcp;
    int mcp_in, mcp_out; /* borrowed; -1 = no client of its own */
};

/* Why it ended; `enum cli_exit` has the same numbers. */
enum daemon_exit {
    DAEMON_STOPPED = 0,     /* as asked */
    DAEMON_FAILED = 1,      /* for another reason than these */
    DAEMON_CONFIG = 2,      /* the registry file or an option is wrong */
    DAEMON_LEDGER_BUSY = 3, /* only with options.mcp: another process has the ledger; nothing was said */
    DAEMON_LEDGER_AWAY = 4, /* the ledger can not be reached now, or another process has it: starting again may help */
    DAEMON_DENIED = 6,      /* the ledger does not let us in, or rights are missing */
    DAEMON_LEDGER = 7,    /* the ledger can not be used: newer schema, damage, wrong encoding, no such database, … */
    DAEMON_NO_ADDRESS = 8 /* the HTTP server can not listen */
};

/* What a ledger that does not open makes of the process. */
enum daemon_exit daemon_ledger_exit(enum err_code code);

/* Runs until SIGTERM or SIGINT has been obeyed. When ready writes one line to standard output:
 * {"ready":true,"address":"127.0.0.1","port":7070,"pid":123,"tools":4}. SIGHUP reloads the registry file, all or
 * nothing. Returns an enum daemon_exit; what went wrong is said on standard error. */
int daemon_run(const struct daemon_options *options);

#endif
