/* Ledgers in the PostgreSQL database of the test run (tools/with-postgres.sh), emptied before each test. */
#ifndef CONTRACT_POSTGRES_H
#define CONTRACT_POSTGRES_H

#include "contract/world.h"

#include <libpq-fe.h>

/* The URL of the test run, NULL without one. */
const char *postgres_url(void);
/* cmocka's setup and teardown: a world on an empty ledger, with the world's clock; after all tests. */
int open_postgres(void **state);
int release_postgres(void **state);
void close_postgres(void);
/* One more ledger of the same database, as another process would have it. url NULL: the test run's. */
struct ledger *open_gateway(const char *url);

int run_postgres_tests(void); /* ledger_postgres.c */

/* A connection of the test's own; one statement on it must succeed, the first column of its first row comes back as a
 * number. */
PGconn *postgres_connect(void);
long postgres_number(PGconn *conn, const char *sql);

#endif
