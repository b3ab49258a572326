/* The records' table: made and tidied from the command line. Blocking: nothing else goes on in those processes. */
#include "adapter/sql.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

#define PRUNE_ROWS "5000" /* of one transaction: short locks, little to undo */

void sql_table_write(const char *table, struct buf *out)
{
    const char *dot = strchr(table, '.'), *name = dot ? dot + 1 : table;
    buf_printf(out,
               "CREATE TABLE IF NOT EXISTS %s (\n"
               "    provider_key text PRIMARY KEY,\n"
               "    tool text NOT NULL,\n"
               "    operation text NOT NULL,\n"
               "    fingerprint text NOT NULL,\n"
               "    result text,\n"
               "    external_id text,\n"
               "    created_at timestamptz NOT NULL DEFAULT now(),\n"
               "    expires_at timestamptz NOT NULL\n"
               ");\n"
               "CREATE INDEX IF NOT EXISTS %.50s_expires_at ON %s (expires_at);\n",
               table, name, table);
}

static enum err_code server_error(const PGconn *conn, const PGresult *result, struct err *err)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *message = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (!message)
        message = PQerrorMessage(conn);
    int n = (int)strcspn(message, "\n");
    if (!state)
        return err_set(err, ERR_UNAVAILABLE, "%.*s", n, message);
    if (strcmp(state, "42501") == 0)
        return err_set(err, ERR_DENIED, "%.*s: run it as the owner of the schema, or `onced sql install --print`", n,
                       message);
    if (strcmp(state, "42P01") == 0)
        return err_set(err, ERR_NOT_FOUND, "%.*s: make it with `onced sql install`", n, message);
    return err_set(err, ERR_IO, "%.*s (SQLSTATE %s)", n, message, state);
}

static void no_notice(void *user, const char *message)
{
    (void)user;
    (void)message;
}

static enum err_code open_place(const struct sql_place *place, PGconn **out, struct err *err)
{
    const char *const names[] = {"fallback_application_name", "connect_timeout", "dbname", NULL};
    const char *const values[] = {"onced sql", "10", place->url, NULL};
    PGconn *conn = PQconnectdbParams(names, values, 1);
    if (PQstatus(conn) == CONNECTION_OK) {
        PQsetNoticeProcessor(conn, no_notice, NULL); /* "already exists, skipping" */
        *out = conn;
        return ERR_NONE;
    }
    server_error(conn, NULL, err);
    PQfinish(conn);
    return err->code;
}

static enum err_code execute(PGconn *conn, const char *text, int64_t *affected, struct err *err)
{
    PGresult *result = PQexec(conn, text);
    enum err_code code = ERR_NONE;
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        code = server_error(conn, result, err);
    else if (affected)
        *affected = strtoll(PQcmdTuples(result), NULL, 10);
    PQclear(result);
    return code;
}

enum err_code sql_install(const struct sql_place *place, struct err *err)
{
    PGconn *conn = NULL;
    struct buf text;
    enum err_code code = open_place(place, &conn, err);
    if (code)
        return code;
    buf_init(&text, 0);
    sql_table_write(place->table, &text);
    code = execute(conn, text.p, NULL, err);
    buf_release(&text);
    PQfinish(conn);
    return code;
}

enum err_code sql_prune(const struct sql_place *place, int64_t *count, struct err *err)
{
    PGconn *conn = NULL;
    struct buf text;
    int64_t removed = 0;
    *count = 0;
    enum err_code code = open_place(place, &conn, err);
    if (code)
        return code;
    buf_init(&text, 0);
    buf_printf(&text,
               "DELETE FROM %s WHERE provider_key IN (SELECT provider_key FROM %s WHERE expires_at < now() "
               "ORDER BY expires_at LIMIT " PRUNE_ROWS ")",
               place->table, place->table);
    do {
        code = execute(conn, text.p, &removed, err);
        *count += code ? 0 : removed;
    } while (!code && removed > 0);
    buf_release(&text);
    PQfinish(conn);
    return code;
}
