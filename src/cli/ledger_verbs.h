/* What `onced ledger` does: one file per group of verbs. */
#ifndef CLI_LEDGER_VERBS_H
#define CLI_LEDGER_VERBS_H

#include "cli/command.h"

#include "ledger/bulk.h"

struct ledger_wish {
    struct cli_args args;
    bool dry_run, snapshot;
    int64_t max; /* findings that are printed */
};

/* Each returns an exit code. where: a file's path or a URL. */
int ledger_migrate(const struct ledger_wish *wish, const char *where);
int ledger_stats(const struct ledger_wish *wish, const char *where);
int ledger_verify_rows(const struct ledger_wish *wish, const char *where);
int ledger_copy_rows(const struct ledger_wish *wish, const char *from, const char *to);

/* Prints the error and tells its exit code. */
int ledger_trouble(enum bulk_trouble trouble, const struct err *err);

#endif
