/* Commands that work on the ledger file itself: where it is. */
#ifndef CLI_LEDGER_PATH_H
#define CLI_LEDGER_PATH_H

#include "cli/command.h"

/* The path from --ledger, or from the registry file of --config; arena-allocated. NULL after a message. */
const char *ledger_path(const struct cli_args *args, struct arena *arena);

#endif
