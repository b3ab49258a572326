/* What may be said of a connection string of libpq (PostgreSQL documentation 34.1.1): messages never show its password.
 */
#ifndef BASE_PG_URL_H
#define BASE_PG_URL_H

#include "base/arena.h"

#include <stdbool.h>

/* postgresql://… or postgres://…, as against a file's path. */
bool pg_url_is(const char *text);

/* "postgresql://host:port/database" without anything secret; *fault: what libpq thinks wrong with url, or NULL (its
 * words may repeat a part of url). Both in arena. *secret: it holds a password. */
const char *pg_url_shown(const char *url, struct arena *arena, const char **fault, bool *secret);

#endif
