/* Work on all rows of a PostgreSQL ledger: plain statements, one after the other, rows in with COPY. */
#include "ledger/bulk.h"
#include "ledger/pg_store.h"

#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define OID_BYTEA 17
#define OID_INT8  20
#define OID_TEXT  25

/* Statements of find() that are prepared: one for each way in which rows are looked up. Further ones are planned at
 * each use, which takes the server ten times as long as the look-up itself: a table may have many partitions. */
#define FINDS_MAX 32

struct pg_bulk {
    struct bulk base;
    struct pg pg;
    char *finds[FINDS_MAX]; /* their texts; named by their place */
    int find_count;
};

static struct pg *of(struct bulk *bulk)
{
    return &((struct pg_bulk *)bulk)->pg;
}

/* ---- what the tables are here ---- */

/* given: of columns that are no cells of ours, with their values, for rows that are put in. */
static const struct source {
    const char *from, *order[TABLE_ORDER_MAX + 1], *given, *given_value;
} sources[TABLE_IDS] = {
    [TABLE_OPERATIONS] = {"operations", {"id", "tenant"}, NULL, NULL},
    [TABLE_HISTORY] = {"history", {"operation", "sequence", "tenant"}, NULL, NULL},
    [TABLE_INCIDENTS] = {"incidents", {"id"}, NULL, NULL},
    [TABLE_TOMBSTONES] = {"tombstones", {"operation"}, NULL, NULL},
    [TABLE_PRINCIPALS] = {"principals", {"id"}, NULL, NULL},
    [TABLE_COUNTERS] = {"(SELECT state, sum(operations)::bigint AS operations FROM counters GROUP BY state HAVING "
                        "sum(operations) <> 0) AS c",
                        {"state"},
                        "gateway, ",
                        "\t"},
    [TABLE_INBOX] = {"inbox", {"id"}, NULL, NULL},
    [TABLE_INBOX_COUNTS] = {"(SELECT source, sum(events)::bigint AS events, sum(duplicates)::bigint AS duplicates, "
                            "sum(applied)::bigint AS applied, sum(ignored)::bigint AS ignored, sum(dropped)::bigint AS "
                            "dropped FROM inbox_counts GROUP BY source) AS c",
                            {"source"},
                            "gateway, ",
                            "\t"},
    [TABLE_ENTITIES] = {"entities", {"tenant", "type", "id"}, NULL, NULL},
    [TABLE_ENTITY_WAITS] = {"entity_waits", {"tenant", "type", "id", "ticket"}, NULL, NULL},
    [TABLE_WINDOWS] = {"windows", {"tenant", "key", "operation"}, NULL, NULL},
    [TABLE_BUDGET_SLICES] = {"budget_slices",
                             {"tenant", "budget", "subject", "key", "start_ms", "until_ms"},
                             NULL,
                             NULL},
};

static void add_order(struct buf *sql, const struct source *source)
{
    for (size_t i = 0; source->order[i]; i++)
        buf_printf(sql, "%s%s", i ? ", " : "", source->order[i]);
}

static void add_columns(struct buf *sql, const struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        buf_printf(sql, "%s%s", i ? ", " : "", table->columns[i].name);
}

static void add_select(struct buf *sql, const struct table *table)
{
    buf_add_text(sql, "SELECT ");
    add_columns(sql, table);
    buf_add_text(sql, ", ");
    add_order(sql, &sources[table->id]);
    buf_printf(sql, " FROM %s", sources[table->id].from);
}

/* ---- statements ---- */

struct parameters {
    int count;
    Oid types[TABLE_ORDER_MAX];
    const char *values[TABLE_ORDER_MAX];
    int lengths[TABLE_ORDER_MAX], formats[TABLE_ORDER_MAX];
    unsigned char numbers[TABLE_ORDER_MAX][8];
};

static void put(struct parameters *to, const struct cell *cell)
{
    int i = to->count++;
    to->formats[i] = 1;
    to->values[i] = cell->kind == CELL_NULL ? NULL : cell->text.p;
    to->lengths[i] = (int)cell->text.n;
    to->types[i] = cell->kind == CELL_BYTES ? OID_BYTEA : OID_TEXT;
    if (cell->kind != CELL_INT)
        return;
    for (int k = 0; k < 8; k++)
        to->numbers[i][k] = (unsigned char)((uint64_t)cell->number >> (56 - 8 * k));
    to->types[i] = OID_INT8;
    to->values[i] = (const char *)to->numbers[i];
    to->lengths[i] = 8;
}

/* Takes the result. */
static enum err_code judge(struct pg *pg, PGresult *result, ExecStatusType expected, PGresult **out, struct err *err)
{
    if (PQresultStatus(result) == expected) {
        *out = result;
        return ERR_NONE;
    }
    pg_failed(pg, PQstatus(pg->conn) == CONNECTION_OK ? result : NULL, err);
    PQclear(result);
    return err->code;
}

static enum err_code run(struct pg *pg, const char *sql, const struct parameters *parameters, PGresult **out,
                         struct err *err)
{
    static const struct parameters none;
    const struct parameters *with = parameters ? parameters : &none;
    PGresult *result =
        PQexecParams(pg->conn, sql, with->count, with->types, with->values, with->lengths, with->formats, 1);
    return judge(pg, result, PGRES_TUPLES_OK, out, err);
}

/* The same with a statement that is kept. */
static enum err_code run_kept(struct pg_bulk *bulk, const char *sql, const struct parameters *with, PGresult **out,
                              struct err *err)
{
    struct pg *pg = &bulk->pg;
    PGresult *prepared = NULL;
    char name[16];
    int at = 0;
    while (at < bulk->find_count && strcmp(bulk->finds[at], sql) != 0)
        at++;
    if (at == FINDS_MAX)
        return run(pg, sql, with, out, err);
    snprintf(name, sizeof name, "find%d", at);
    if (at == bulk->find_count) {
        if (judge(pg, PQprepare(pg->conn, name, sql, with->count, with->types), PGRES_COMMAND_OK, &prepared, err))
            return err->code;
        PQclear(prepared);
        bulk->finds[bulk->find_count++] = mem_copy_text(sql);
    }
    PGresult *result = PQexecPrepared(pg->conn, name, with->count, with->values, with->lengths, with->formats, 1);
    return judge(pg, result, PGRES_TUPLES_OK, out, err);
}

static struct cell take(const PGresult *result, int row, int column, struct arena *arena)
{
    struct cell cell = {.kind = CELL_NULL};
    struct pg_row from = {.result = result, .row = row, .column = column};
    if (PQgetisnull(result, row, column))
        return cell;
    Oid type = PQftype(result, column);
    cell.kind = type == OID_TEXT ? CELL_TEXT : type == OID_BYTEA ? CELL_BYTES : CELL_INT;
    if (cell.kind == CELL_INT)
        cell.number = pg_take_int(&from);
    else
        cell.text =
            arena_str(arena, (struct str){PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column)});
    return cell;
}

static void take_rows(struct bulk *bulk, const struct table *table, const PGresult *result, struct arena *arena,
                      struct row **rows, size_t *count)
{
    size_t columns = table->count + bulk->order_count[table->id];
    *count = (size_t)PQntuples(result);
    *rows = arena_alloc(arena, (*count + 1) * sizeof **rows);
    for (size_t i = 0; i < *count; i++) {
        struct row *row = &(*rows)[i];
        row->cells = arena_alloc(arena, columns * sizeof *row->cells);
        row->at = row->cells + table->count;
        for (size_t k = 0; k < columns; k++)
            row->cells[k] = take(result, (int)i, (int)k, arena);
    }
}

/* ---- reading ---- */

static enum err_code page(struct bulk *bulk, const struct table *table, const struct cell *after, size_t limit,
                          struct arena *arena, struct row **rows, size_t *count, struct err *err)
{
    const struct source *source = &sources[table->id];
    struct parameters parameters = {0};
    PGresult *result = NULL;
    struct buf sql;
    buf_init(&sql, 0);
    *count = 0;
    add_select(&sql, table);
    if (after) {
        buf_add_text(&sql, " WHERE (");
        add_order(&sql, source);
        buf_add_text(&sql, ") > (");
        for (size_t i = 0; i < bulk->order_count[table->id]; i++) {
            buf_printf(&sql, "%s$%zu", i ? ", " : "", i + 1);
            put(&parameters, &after[i]);
        }
        buf_add_text(&sql, ")");
    }
    buf_add_text(&sql, " ORDER BY ");
    add_order(&sql, source);
    buf_printf(&sql, " LIMIT %zu", limit);
    if (run(of(bulk), sql.p, &parameters, &result, err) == 0)
        take_rows(bulk, table, result, arena, rows, count);
    PQclear(result);
    buf_release(&sql);
    return err->code;
}

static enum err_code find(struct bulk *bulk, const struct table *table, const char *const *columns,
                          const struct cell *values, size_t value_count, size_t limit, struct arena *arena,
                          struct row **rows, size_t *count, struct err *err)
{
    struct parameters parameters = {0};
    PGresult *result = NULL;
    struct buf sql;
    buf_init(&sql, 0);
    *count = 0;
    add_select(&sql, table);
    for (size_t i = 0; i < value_count; i++) {
        buf_printf(&sql, " %s %s = $%zu", i ? "AND" : "WHERE", columns[i], i + 1);
        put(&parameters, &values[i]);
    }
    buf_printf(&sql, " LIMIT %zu", limit);
    if (run_kept((struct pg_bulk *)bulk, sql.p, &parameters, &result, err) == 0)
        take_rows(bulk, table, result, arena, rows, count);
    PQclear(result);
    buf_release(&sql);
    return err->code;
}

static enum err_code number(struct bulk *bulk, const char *sql, int64_t *out, struct err *err)
{
    PGresult *result = NULL;
    struct pg_row row = {0};
    *out = 0;
    if (run(of(bulk), sql, NULL, &result, err))
        return err->code;
    row.result = result;
    if (PQntuples(result) > 0 && !pg_take_null(&row))
        *out = pg_take_int(&row);
    PQclear(result);
    return ERR_NONE;
}

static enum err_code by_state(struct bulk *bulk, int64_t out[STATE_COUNT], struct err *err)
{
    PGresult *result = NULL;
    memset(out, 0, STATE_COUNT * sizeof *out);
    if (run(of(bulk), "SELECT state, count(*) FROM operations GROUP BY state", NULL, &result, err))
        return err->code;
    for (int i = 0; i < PQntuples(result); i++) {
        struct pg_row row = {.result = result, .row = i};
        int state = pg_take_name(&row, NAME_STATE);
        if (state >= 0)
            out[state] = pg_take_int(&row);
    }
    PQclear(result);
    return ERR_NONE;
}

static enum err_code bytes(struct bulk *bulk, int64_t *out, struct err *err)
{
    return number(bulk, of(bulk)->texts[PG_BYTES], out, err);
}

/* ---- meta ---- */

static enum err_code meta_get(struct bulk *bulk, const char *name, struct arena *arena, struct str *out,
                              struct err *err)
{
    struct cell cell = cell_text(name);
    struct parameters parameters = {0};
    PGresult *result = NULL;
    *out = STR_NONE;
    put(&parameters, &cell);
    if (run(of(bulk), "SELECT value FROM meta WHERE name = $1", &parameters, &result, err) == 0 &&
        PQntuples(result) > 0)
        *out = take(result, 0, 0, arena).text;
    PQclear(result);
    return err->code;
}

static enum err_code meta_set(struct bulk *bulk, const char *name, struct str value, struct err *err)
{
    struct cell key = cell_text(name), cell = {.kind = CELL_BYTES, .text = value};
    struct parameters parameters = {0};
    PGresult *result = NULL;
    put(&parameters, &key);
    if (value.p)
        put(&parameters, &cell);
    run(of(bulk),
        value.p
            ? "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2 RETURNING 1"
            : "DELETE FROM meta WHERE name = $1 RETURNING 1",
        &parameters, &result, err);
    PQclear(result);
    return err->code;
}

/* ---- writing ---- */

static void add_text(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        switch (text.p[i]) {
        case '\\': buf_add_text(out, "\\\\"); break;
        case '\n': buf_add_text(out, "\\n"); break;
        case '\r': buf_add_text(out, "\\r"); break;
        case '\t': buf_add_text(out, "\\t"); break;
        default: buf_add_char(out, text.p[i]);
        }
    }
}

/* A value as COPY reads it. */
static void add_value(struct buf *out, const struct cell *cell)
{
    static const char hex[] = "0123456789abcdef";
    switch (cell->kind) {
    case CELL_NULL: buf_add_text(out, "\\N"); return;
    case CELL_INT: buf_printf(out, "%lld", (long long)cell->number); return;
    case CELL_TEXT: add_text(out, cell->text); return;
    case CELL_BYTES:
        buf_add_text(out, "\\\\x");
        for (size_t i = 0; i < cell->text.n; i++) {
            buf_add_char(out, hex[(unsigned char)cell->text.p[i] >> 4]);
            buf_add_char(out, hex[cell->text.p[i] & 15]);
        }
    }
}

static bool send_rows(struct pg *pg, const struct table *table, const struct row *rows, size_t count)
{
    const struct source *source = &sources[table->id];
    bool sent = true;
    struct buf line;
    buf_init(&line, 0);
    for (size_t i = 0; i < count && sent; i++) {
        buf_reset(&line);
        buf_add_text(&line, source->given_value ? source->given_value : "");
        for (size_t k = 0; k < table->count; k++) {
            buf_add_text(&line, k ? "\t" : "");
            add_value(&line, &rows[i].cells[k]);
        }
        buf_add_char(&line, '\n');
        sent = PQputCopyData(pg->conn, line.p, (int)line.n) == 1;
    }
    buf_release(&line);
    return sent;
}

static enum err_code end_copy(struct pg *pg, bool sent, struct err *err)
{
    PQputCopyEnd(pg->conn, sent ? NULL : "not all rows could be sent");
    for (PGresult *result; (result = PQgetResult(pg->conn)); PQclear(result))
        if (PQresultStatus(result) != PGRES_COMMAND_OK && !err->code)
            pg_failed(pg, PQstatus(pg->conn) == CONNECTION_OK ? result : NULL, err);
    if (!sent && !err->code)
        pg_failed(pg, NULL, err);
    return err->code;
}

static enum err_code insert(struct bulk *bulk, const struct table *table, const struct row *rows, size_t count,
                            struct err *err)
{
    struct pg *pg = of(bulk);
    const char *given = sources[table->id].given;
    struct buf sql;
    buf_init(&sql, 0);
    buf_printf(&sql, "COPY %s (%s", table->name, given ? given : "");
    add_columns(&sql, table);
    buf_add_text(&sql, ") FROM STDIN");
    PGresult *result = PQexec(pg->conn, sql.p);
    if (PQresultStatus(result) == PGRES_COPY_IN)
        end_copy(pg, send_rows(pg, table, rows, count), err);
    else
        pg_failed(pg, PQstatus(pg->conn) == CONNECTION_OK ? result : NULL, err);
    PQclear(result);
    buf_release(&sql);
    return err->code;
}

static enum err_code derive(struct bulk *bulk, struct err *err)
{
    (void)bulk; /* everything that follows from rows is an index here */
    (void)err;
    return ERR_NONE;
}

static enum err_code settle(struct bulk *bulk, struct err *err)
{
    struct buf sql;
    buf_init(&sql, 0);
    buf_add_text(&sql, "ANALYZE ");
    for (int i = 0; i < TABLE_IDS; i++)
        buf_printf(&sql, "%s%s", i ? ", " : "", table_name((enum table_id)i));
    pg_exec(of(bulk), sql.p, err);
    buf_release(&sql);
    return err->code;
}

/* ---- transactions ---- */

static enum err_code begin(struct bulk *bulk, bool writing, struct err *err)
{
    int64_t ignored;
    if (pg_exec(of(bulk),
                writing ? "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
                        : "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                err))
        return err->code;
    return writing ? ERR_NONE
                   : number(bulk, "SELECT count(*) FROM meta", &ignored, err); /* now, not at the first row */
}

static void rollback(struct bulk *bulk)
{
    struct err ignored = {0};
    if (of(bulk)->conn && PQtransactionStatus(of(bulk)->conn) != PQTRANS_IDLE)
        pg_exec(of(bulk), "ROLLBACK", &ignored);
}

static enum err_code commit(struct bulk *bulk, struct err *err)
{
    if (pg_exec(of(bulk), "COMMIT", err))
        rollback(bulk);
    return err->code;
}

/* ---- opening ---- */

static void close_bulk(struct bulk *bulk)
{
    struct pg_bulk *own = (struct pg_bulk *)bulk;
    pg_release(&own->pg);
    while (own->find_count > 0)
        free(own->finds[--own->find_count]);
    free(bulk->tables);
    free(bulk);
}

static const struct bulk_ops ops = {
    begin,    commit,   rollback, page,   find,   insert, number,
    by_state, meta_get, meta_set, derive, settle, bytes,  close_bulk,
};

static enum err_code connect_there(struct pg *pg, enum bulk_trouble *trouble, struct err *err)
{
    if (pg_connect_bare(pg, err))
        *trouble = err->code == ERR_UNAVAILABLE || err->code == ERR_INVALID ? BULK_UNREACHABLE : BULK_OTHER;
    return err->code;
}

enum err_code bulk_pg_peek(const char *url, struct env *env, struct bulk_versions *out, enum bulk_trouble *trouble,
                           struct err *err)
{
    struct pg pg;
    *out = (struct bulk_versions){.known = PG_SCHEMA_VERSION};
    pg_init(&pg, url, env, true);
    if (connect_there(&pg, trouble, err) == 0)
        pg_version(&pg, &out->there, err);
    pg_release(&pg);
    return err->code;
}

static enum err_code judge_version(struct pg *pg, enum bulk_use use, enum bulk_trouble *trouble, int *version,
                                   struct err *err)
{
    if (pg_version(pg, version, err))
        return err->code;
    if (*version > PG_SCHEMA_VERSION) {
        *trouble = BULK_NEWER;
        return err_set(err, ERR_INVALID, "%s has schema version %d, this onced knows versions up to %d", pg->name,
                       *version, PG_SCHEMA_VERSION);
    }
    if (*version == PG_SCHEMA_VERSION || use == BULK_FILL || use == BULK_MIGRATE)
        return ERR_NONE;
    *trouble = *version ? BULK_OLDER : BULK_UNREACHABLE;
    return *version
               ? err_set(err, ERR_INVALID, "%s has schema version %d, this onced needs %d: run onced ledger migrate",
                         pg->name, *version, PG_SCHEMA_VERSION)
               : err_set(err, ERR_NOT_FOUND, "%s holds no ledger", pg->name);
}

/* Long statements and long pauses between them are in the nature of this. */
static enum err_code prepare_session(struct pg *pg, struct err *err)
{
    struct err unknown = {0}; /* a server that is only compatible may not have it */
    pg->patient = true;
    pg_exec(pg, "SET idle_in_transaction_session_timeout = 0", &unknown);
    pg->fault = PG_FINE;
    return pg_exec(pg, "SET statement_timeout = 0; SET plan_cache_mode = auto", err);
}

/* Alone with the tables, once they are there. */
static enum err_code take_alone(struct pg_bulk *bulk, int version, enum bulk_trouble *trouble, struct err *err)
{
    bool in_use = false;
    if (version > 0 && pg_take_alone(&bulk->pg, &in_use, err))
        goto out;
    if (pg_migrate(&bulk->pg, bulk->base.secret, err) || version > 0)
        return err->code;
    pg_take_alone(&bulk->pg, &in_use, err);
out:
    if (in_use)
        *trouble = BULK_IN_USE;
    return err->code;
}

enum err_code bulk_pg_open(const char *url, enum bulk_use use, struct env *env, struct bulk **out,
                           enum bulk_trouble *trouble, struct err *err)
{
    struct pg_bulk *bulk = mem_zero(sizeof *bulk);
    struct pg *pg = &bulk->pg;
    int version = 0;
    bulk->base.ops = &ops;
    bulk->base.postgres = true;
    bulk->base.tables = tables_new();
    for (int i = 0; i < TABLE_IDS; i++)
        while (sources[i].order[bulk->base.order_count[i]])
            bulk->base.order_count[i]++;
    pg_init(pg, url, env, true);
    if (connect_there(pg, trouble, err) || judge_version(pg, use, trouble, &version, err) || prepare_session(pg, err))
        goto failed;
    if (use == BULK_LOOK ? pg_secret(pg, bulk->base.secret, err) : take_alone(bulk, version, trouble, err))
        goto failed;
    bulk->base.name = pg->name;
    *out = &bulk->base;
    return ERR_NONE;
failed:
    close_bulk(&bulk->base);
    return err->code;
}
