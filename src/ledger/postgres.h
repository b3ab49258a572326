/* The ledger in a PostgreSQL database (15 or newer): the same answers as the others (test/contract), for several
 * processes at once. */
#ifndef LEDGER_POSTGRES_H
#define LEDGER_POSTGRES_H

#include "ledger/ledger.h"

struct ledger_postgres_options {
    /* A libpq URL or its list of settings: TLS, several hosts and time-outs included. Only primaries are taken
     * (target_session_attrs=read-write) unless it says otherwise. The tables lie in the schema "onced" unless its
     * options set a search_path. */
    const char *url;
    size_t batch_max; /* commands per commit; 0 = default 512 */
    bool own_clock;   /* for tests with a clock of their own: times of leases are the caller's, not the database's */
    struct env_shared *clock; /* env itself, when it is to follow the database's clock; may be NULL */
    void (*turn)(void *user); /* these as for SQLite */
    void (*notify)(void *user);
    void *user;
};

/* Connects; creates the tables or migrates them forward under an advisory lock. Errors say what to do: ERR_UNAVAILABLE
 * can not be reached, is a standby; ERR_DENIED password, rights; ERR_INVALID no such database, newer schema, encoding.
 *
 * Later on a connection that breaks is made anew, with growing pauses between attempts; meanwhile commands end with
 * ERR_UNAVAILABLE. When it breaks during a commit, the commands of that batch end only when it is known whether they
 * happened; those behind them are refused ahead of them. */
enum err_code ledger_postgres_open(const struct ledger_postgres_options *options, struct env *env, struct ledger **out,
                                   struct err *err);

#endif
