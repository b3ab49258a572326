/* The lock that every gateway's connection shares, and that whoever copies or migrates the ledger takes alone: so that
 * neither works on what the other changes. It is the server's, per connection: it ends when the server gives the
 * connection up, hence after whatever that one has left running. */
#include "ledger/pg_store.h"

#include <stdlib.h>

/* The first number is only ours ("oncd"), the second is the ledger's: one database may hold several, in schemas. */
#define GATEWAY_LOCK "(1869505380, ('meta'::regclass::oid::bigint - 2147483648)::integer)"

static bool is_true(const PGresult *result, int column)
{
    return PQntuples(result) > 0 && strcmp(PQgetvalue(result, 0, column), "t") == 0;
}

enum err_code pg_share(struct pg *pg, struct err *err)
{
    PGresult *result = NULL;
    if (pg_exec_rows(pg,
                     "SELECT pg_try_advisory_lock_shared" GATEWAY_LOCK
                     ", EXISTS (SELECT 1 FROM meta WHERE name = '" LEDGER_COPY "')",
                     0, NULL, &result, err))
        return err->code;
    if (!is_true(result, 0))
        err_set(err, ERR_UNAVAILABLE, "%s is being copied or migrated by another process: try again when that is done",
                pg->name);
    else if (is_true(result, 1))
        err_set(err, ERR_INVALID, "%s is being filled by onced ledger copy: run that again to its end", pg->name);
    PQclear(result);
    return err->code;
}

enum err_code pg_take_alone(struct pg *pg, bool *in_use, struct err *err)
{
    PGresult *result = NULL;
    struct err refused = {0};
    char sql[300];
    *in_use = false;
    snprintf(sql, sizeof sql, "SET lock_timeout = %d; SELECT pg_advisory_lock" GATEWAY_LOCK, PG_ALONE_MS);
    if (pg_exec(pg, sql, &refused) == 0)
        return ERR_NONE;
    *in_use = pg->fault == PG_BUSY && PQstatus(pg->conn) == CONNECTION_OK;
    if (!*in_use) {
        *err = refused;
        return err->code;
    }
    pg->fault = PG_FINE;
    if (pg_exec_rows(pg,
                     "SELECT count(*), min(l.pid) FROM pg_locks AS l WHERE locktype = 'advisory' AND granted AND "
                     "l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND (classid, "
                     "objid::bigint) = (1869505380, ('meta'::regclass::oid::bigint - 2147483648) & 4294967295)",
                     0, NULL, &result, err))
        return err->code;
    err_set(err, ERR_UNAVAILABLE,
            "%s is in use by %s connections of onced (one of them: server process %s): stop all gateways first",
            pg->name, PQgetvalue(result, 0, 0), PQgetvalue(result, 0, 1));
    PQclear(result);
    return err->code;
}
