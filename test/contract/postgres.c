#include "contract/postgres.h"

#include "ledger/postgres.h"

#include <stdlib.h>

const char *postgres_url(void)
{
    return getenv("ONCED_POSTGRES");
}

PGconn *postgres_connect(void)
{
    PGconn *conn = PQconnectdb(postgres_url());
    if (PQstatus(conn) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(conn));
    return conn;
}

long postgres_number(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    long number = PQntuples(result) > 0 && PQnfields(result) > 0 ? strtol(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    PQclear(result);
    return number;
}

/* For all tests, too: a new server process for each would take longer than all else. */
static PGconn *emptier;

/* What the test before left; transactions, too, if it failed. */
static void empty_tables(void)
{
    if (!emptier)
        emptier = postgres_connect();
    postgres_number(emptier, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state LIKE 'idle in "
                             "transaction%' AND datname = current_database()");
    postgres_number(
        emptier,
        "DO $$ DECLARE t text; BEGIN FOR t IN SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n "
        "ON n.oid = c.relnamespace WHERE n.nspname = 'onced' AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
        "AND c.relname NOT IN ('meta', 'migrations', 'gateways') LOOP EXECUTE 'DELETE FROM ' || t; END LOOP; END $$");
}

struct ledger *open_gateway(const char *url)
{
    struct ledger *ledger = NULL;
    struct err err = {0};
    struct ledger_postgres_options options = {.url = url ? url : postgres_url(), .own_clock = true};
    if (ledger_postgres_open(&options, env_system(), &ledger, &err)) /* the world's ids repeat */
        fail_msg("%s", err.text);
    return ledger;
}

/* One for all tests: connecting and planning would take most of the time. */
static struct ledger *shared;

int open_postgres(void **state)
{
    struct err err = {0};
    struct ledger_postgres_options options = {.url = postgres_url(), .own_clock = true};
    struct world *world = calloc(1, sizeof *world);
    world_init(world);
    empty_tables();
    if (!shared && ledger_postgres_open(&options, env_system(), &shared, &err))
        fail_msg("%s", err.text);
    world->ledger = shared;
    *state = world;
    return 0;
}

int release_postgres(void **state)
{
    struct world *world = *state;
    world->ledger = NULL;
    world_release(world);
    free(world);
    return 0;
}

void close_postgres(void)
{
    ledger_close(shared);
    shared = NULL;
    PQfinish(emptier);
    emptier = NULL;
}
