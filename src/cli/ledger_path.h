/* Commands that work on the ledger itself: where it is. */
#ifndef CLI_LEDGER_PATH_H
#define CLI_LEDGER_PATH_H

#include "cli/command.h"

/* The file's path or the PostgreSQL URL (pg_url_is) from --ledger, or from the registry file of --config;
 * arena-allocated. NULL after a message. */
const char *ledger_path(const struct cli_args *args, struct arena *arena);

#endif
