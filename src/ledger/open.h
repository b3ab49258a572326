/* Opens the ledger that a text names, whichever kind it is. */
#ifndef LEDGER_OPEN_H
#define LEDGER_OPEN_H

#include "ledger/ledger.h"

struct ledger_open_options {
    const char *where; /* path of a SQLite file, or a PostgreSQL URL (pg_url_is) */
    bool beside;       /* a short-lived process beside the daemon that owns the file; without meaning for PostgreSQL */
    struct env_shared *clock; /* as for PostgreSQL; without meaning for a file, which has no clock */
    void (*turn)(void *user); /* these as for SQLite */
    void (*notify)(void *user);
    void *user;
};

/* Errors as those of ledger_sqlite_open and ledger_postgres_open. */
enum err_code ledger_open(const struct ledger_open_options *options, struct env *env, struct ledger **out,
                          struct err *err);

#endif
