/* The SQL adapter: tools that are statements in the user's own PostgreSQL (docs/sql.md), exactly once within that
 * database: the record by which a repetition is known is written in the same transaction as the effect.
 *
 *   section ─► sql_provider, sql_tool                    once, at load
 *   call ─► statements and parameters ─► transaction ─► finding
 *        └► the same key claimed and let go ───────────► found, absent, cannot tell
 *
 * COMMIT is sent by itself, when all else was answered: before it, nothing can have happened, whatever goes wrong. From
 * then on the key is held in the database, by the transaction or by its row, until it is decided. Values are parameters
 * of the protocol, never part of a statement's text. */
#ifndef ADAPTER_SQL_H
#define ADAPTER_SQL_H

#include "adapter/adapter.h"
#include "base/problem.h"

#include <uv.h>

/* Compiled section of a provider: member "sql". Fills of *provider what the section states, defaults included (kind,
 * key contract, limits, budget, breaker). NULL only with problems. */
struct sql_provider;
struct sql_provider *sql_provider_new(const struct json *section, const char *pointer, struct provider *provider,
                                      struct problems *problems);
void sql_provider_free(struct sql_provider *provider); /* NULL is fine */

/* Compiled members "sql" and "timeout" of a tool's section. Needs of *tool the name, class and redact. What struct
 * tool.adapter_tool points to when the provider's kind is PROVIDER_SQL. NULL only with problems. */
struct sql_tool;
struct sql_tool *sql_tool_new(const struct json *section, const char *pointer, const struct sql_provider *provider,
                              const struct tool *tool, struct problems *problems);
void sql_tool_free(struct sql_tool *tool);

/* The client side of one event loop. Outlives registries. Connections are kept for SQL_IDLE_MS after their last use. */
#define SQL_IDLE_MS 60000
enum err_code sql_adapter_new(uv_loop_t *loop, struct adapter **out, struct err *err);
/* Ends what is on the wire (done is called with what is known) and releases. The loop must still run: closed (NULL is
 * fine) is called when all handles are closed, which may take a connection attempt's whole time. */
void sql_adapter_close(struct adapter *adapter, void (*closed)(void *user), void *user);

/* ---- for `onced sql`: blocking ---- */

#define SQL_TABLE_DEFAULT "onced_dedupe"

/* A database with its table. */
struct sql_place {
    const char *url, *table;
};
/* Borrows from the provider. */
void sql_provider_place(const struct sql_provider *provider, struct sql_place *out);
/* "name" or "schema.name", of a-z 0-9 _: no quoting is ever needed, so nothing can be put into a statement by it. */
bool sql_table_valid(const char *table);
/* The statements that make the table, with ";" behind each. */
void sql_table_write(const char *table, struct buf *out);

/* ERR_UNAVAILABLE: not reached, or refused at the login. ERR_DENIED: rights are missing. ERR_IO: the server's words. */
enum err_code sql_install(const struct sql_place *place, struct err *err);
/* Deletes records that no resend and no look-up needs any more, some thousand per transaction. *count: how many. */
enum err_code sql_prune(const struct sql_place *place, int64_t *count, struct err *err);

#endif
