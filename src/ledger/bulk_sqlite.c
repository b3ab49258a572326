/* Work on all rows of a SQLite ledger. */
#include "ledger/bulk.h"
#include "ledger/sqlite_store.h"

#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECKPOINT_FRAMES 8000

struct sqlite_bulk {
    struct bulk base;
    struct store store;
    int lock_fd; /* -1: none */
    sqlite3_stmt *inserts[TABLE_IDS], *place;
    char id[OPERATION_ID_SIZE]; /* of the operation whose place was asked last … */
    int64_t n;                  /* … and it; 0 = none */
};

static struct sqlite_bulk *of(struct bulk *bulk)
{
    return (struct sqlite_bulk *)bulk;
}

/* ---- what the tables are here ---- */

/* prefix: of columns that have no expression of their own below. */
static const struct source {
    const char *from, *prefix, *order[TABLE_ORDER_MAX + 1];
} sources[TABLE_IDS] = {
    [TABLE_OPERATIONS] = {"operations", "", {"n"}},
    [TABLE_HISTORY] = {"history AS h LEFT JOIN operations AS o ON o.n = h.operation",
                       "h.",
                       {"h.operation", "h.sequence"}},
    [TABLE_INCIDENTS] = {"incidents", "", {"id"}},
    [TABLE_TOMBSTONES] = {"tombstones", "", {"operation"}},
    [TABLE_PRINCIPALS] = {"principals", "", {"id"}},
    [TABLE_COUNTERS] = {"(SELECT state, operations FROM counters WHERE operations <> 0)", "", {"state"}},
    [TABLE_INBOX] = {"inbox", "", {"id"}},
    [TABLE_INBOX_COUNTS] = {"inbox_counts", "", {"source"}},
    [TABLE_ENTITIES] = {"entities", "", {"tenant", "type", "id"}},
    [TABLE_ENTITY_WAITS] = {"entity_waits", "", {"tenant", "type", "id", "ticket"}},
    [TABLE_WINDOWS] = {"windows", "", {"tenant", "key", "operation"}},
    [TABLE_BUDGET_SLICES] = {"budget_slices", "", {"tenant", "budget", "subject", "key", "start_ms", "until_ms"}},
};

static void add_column(struct buf *sql, const struct table *table, size_t i)
{
    const char *name = table->columns[i].name;
    if (table->id == TABLE_HISTORY && strcmp(name, "operation") == 0)
        buf_add_text(sql, "o.id");
    else if (table->id == TABLE_HISTORY && strcmp(name, "tenant") == 0)
        buf_add_text(sql, "o.tenant");
    else
        buf_printf(sql, "%s%s", sources[table->id].prefix, name);
}

static void add_order(struct buf *sql, const struct source *source, const char *separator)
{
    for (size_t i = 0; source->order[i]; i++)
        buf_printf(sql, "%s%s", i ? separator : "", source->order[i]);
}

static void add_select(struct buf *sql, const struct table *table)
{
    buf_add_text(sql, "SELECT ");
    for (size_t i = 0; i < table->count; i++) {
        add_column(sql, table, i);
        buf_add_text(sql, ", ");
    }
    add_order(sql, &sources[table->id], ", ");
    buf_printf(sql, " FROM %s", sources[table->id].from);
}

/* ---- reading ---- */

static enum err_code failed(struct sqlite_bulk *bulk, int rc, struct err *err)
{
    return store_failed(&bulk->store, rc, err);
}

static enum err_code prepare(struct sqlite_bulk *bulk, const char *sql, sqlite3_stmt **out, struct err *err)
{
    int rc = sqlite3_prepare_v2(bulk->store.db, sql, -1, out, NULL);
    return rc == SQLITE_OK ? ERR_NONE : failed(bulk, rc, err);
}

static void bind(sqlite3_stmt *statement, int column, const struct cell *cell)
{
    switch (cell->kind) {
    case CELL_NULL: sqlite3_bind_null(statement, column); return;
    case CELL_INT: sqlite3_bind_int64(statement, column, cell->number); return;
    case CELL_TEXT:
        sqlite3_bind_text64(statement, column, cell->text.p, cell->text.n, SQLITE_STATIC, SQLITE_UTF8);
        return;
    case CELL_BYTES: sqlite3_bind_blob64(statement, column, cell->text.p, cell->text.n, SQLITE_STATIC);
    }
}

static struct str bytes_of(sqlite3_stmt *statement, int column)
{
    const void *p = sqlite3_column_blob(statement, column);
    return (struct str){p ? p : "", (size_t)sqlite3_column_bytes(statement, column)};
}

static struct str mended(struct sqlite_bulk *bulk, struct str text, struct arena *arena)
{
    bool changed = false;
    struct str out = text_storable(text, arena, &changed);
    bulk->base.mended += changed;
    return out;
}

static struct cell take(struct sqlite_bulk *bulk, sqlite3_stmt *statement, int column, struct arena *arena)
{
    struct cell cell = {.kind = CELL_NULL};
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        cell.kind = CELL_INT;
        cell.number = sqlite3_column_int64(statement, column);
        break;
    case SQLITE_NULL: break;
    case SQLITE_BLOB: cell.kind = CELL_BYTES; break;
    default: cell.kind = CELL_TEXT; break;
    }
    if (cell.kind == CELL_TEXT)
        sqlite3_column_text(statement, column); /* of a number with a point, too */
    if (cell.kind == CELL_TEXT || cell.kind == CELL_BYTES)
        cell.text = arena_str(arena, bytes_of(statement, column));
    if (cell.kind == CELL_TEXT && bulk->base.storable)
        cell.text = mended(bulk, cell.text, arena);
    return cell;
}

/* Stored as a number that `names` has a text for. */
static struct cell take_name(struct sqlite_bulk *bulk, sqlite3_stmt *statement, int column, enum name_kind kind,
                             struct arena *arena)
{
    struct cell cell = take(bulk, statement, column, arena);
    if (cell.kind != CELL_INT)
        return cell;
    int value = cell.number >= 0 && cell.number < NAME_VALUES_MAX ? bulk->store.names.value[kind][cell.number] : -1;
    return cell_text(value >= 0 ? name_text(kind, value) : arena_printf(arena, "#%lld", (long long)cell.number));
}

static void take_row(struct sqlite_bulk *bulk, const struct table *table, sqlite3_stmt *statement, struct arena *arena,
                     struct row *out)
{
    size_t order = bulk->base.order_count[table->id];
    out->cells = arena_alloc(arena, (table->count + order) * sizeof *out->cells);
    out->at = out->cells + table->count;
    for (size_t i = 0; i < table->count; i++) {
        int names = table->columns[i].names;
        out->cells[i] = names >= 0 ? take_name(bulk, statement, (int)i, (enum name_kind)names, arena)
                                   : take(bulk, statement, (int)i, arena);
    }
    bool storable = bulk->base.storable; /* not of what it is found by */
    bulk->base.storable = false;
    for (size_t i = 0; i < order; i++)
        out->at[i] = take(bulk, statement, (int)(table->count + i), arena);
    bulk->base.storable = storable;
}

static enum err_code take_rows(struct sqlite_bulk *bulk, const struct table *table, sqlite3_stmt *statement,
                               size_t limit, struct arena *arena, struct row **rows, size_t *count, struct err *err)
{
    size_t before = arena->bytes;
    int rc = SQLITE_ROW;
    *rows = arena_alloc(arena, (limit + 1) * sizeof **rows);
    *count = 0;
    while (*count < limit && arena->bytes - before < BULK_PAGE_BYTES && (rc = sqlite3_step(statement)) == SQLITE_ROW)
        take_row(bulk, table, statement, arena, &(*rows)[(*count)++]);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        failed(bulk, rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

static enum err_code page(struct bulk *base, const struct table *table, const struct cell *after, size_t limit,
                          struct arena *arena, struct row **rows, size_t *count, struct err *err)
{
    struct sqlite_bulk *bulk = of(base);
    const struct source *source = &sources[table->id];
    size_t order = base->order_count[table->id];
    sqlite3_stmt *statement = NULL;
    struct buf sql;
    buf_init(&sql, 0);
    add_select(&sql, table);
    if (after) {
        buf_add_text(&sql, " WHERE (");
        add_order(&sql, source, ", ");
        buf_add_text(&sql, ") > (");
        for (size_t i = 0; i < order; i++)
            buf_add_text(&sql, i ? ", ?" : "?");
        buf_add_text(&sql, ")");
    }
    buf_add_text(&sql, " ORDER BY ");
    add_order(&sql, source, ", ");
    if (prepare(bulk, sql.p, &statement, err) == 0) {
        for (size_t i = 0; after && i < order; i++)
            bind(statement, (int)i + 1, &after[i]);
        take_rows(bulk, table, statement, limit, arena, rows, count, err);
    }
    buf_release(&sql);
    return err->code;
}

static enum err_code find(struct bulk *base, const struct table *table, const char *const *columns,
                          const struct cell *values, size_t value_count, size_t limit, struct arena *arena,
                          struct row **rows, size_t *count, struct err *err)
{
    struct sqlite_bulk *bulk = of(base);
    sqlite3_stmt *statement = NULL;
    struct buf sql;
    buf_init(&sql, 0);
    add_select(&sql, table);
    for (size_t i = 0; i < value_count; i++) {
        bool by_place = table->id == TABLE_OPERATIONS && strcmp(columns[i], "id") == 0;
        buf_add_text(&sql, i ? " AND " : " WHERE ");
        if (by_place)
            buf_printf(&sql, "n BETWEEN %lld AND %lld AND ", (long long)operation_place(values[i].text.p),
                       (long long)operation_place(values[i].text.p) + PLACES_TRIED - 1);
        buf_printf(&sql, "%s = ?", columns[i]);
    }
    if (prepare(bulk, sql.p, &statement, err) == 0) {
        for (size_t i = 0; i < value_count; i++)
            bind(statement, (int)i + 1, &values[i]);
        take_rows(bulk, table, statement, limit, arena, rows, count, err);
    }
    buf_release(&sql);
    return err->code;
}

static enum err_code number(struct bulk *base, const char *sql, int64_t *out, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    if (prepare(of(base), sql, &statement, err))
        return err->code;
    int rc = sqlite3_step(statement);
    *out = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        failed(of(base), rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

static enum err_code by_state(struct bulk *base, int64_t out[STATE_COUNT], struct err *err)
{
    struct sqlite_bulk *bulk = of(base);
    sqlite3_stmt *statement = NULL;
    int rc;
    memset(out, 0, STATE_COUNT * sizeof *out);
    if (prepare(bulk, "SELECT state, count(*) FROM operations GROUP BY state", &statement, err))
        return err->code;
    while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
        int64_t stored = sqlite3_column_int64(statement, 0);
        int state = stored >= 0 && stored < NAME_VALUES_MAX ? bulk->store.names.value[NAME_STATE][stored] : -1;
        if (state >= 0)
            out[state] = sqlite3_column_int64(statement, 1);
    }
    if (rc != SQLITE_DONE)
        failed(bulk, rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

static enum err_code bytes(struct bulk *base, int64_t *out, struct err *err)
{
    (void)err;
    *out = store_file_bytes(of(base)->store.path);
    return ERR_NONE;
}

/* ---- meta ---- */

static enum err_code meta_get(struct bulk *base, const char *name, struct arena *arena, struct str *out,
                              struct err *err)
{
    sqlite3_stmt *statement = NULL;
    *out = STR_NONE;
    if (prepare(of(base), "SELECT value FROM meta WHERE name = ?1", &statement, err))
        return err->code;
    bind_text(statement, 1, name);
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW && sqlite3_column_type(statement, 0) != SQLITE_NULL)
        *out = arena_str(arena, bytes_of(statement, 0)); /* of numbers: their digits */
    else if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        failed(of(base), rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

/* Times are numbers, all else bytes. */
static enum err_code meta_set(struct bulk *base, const char *name, struct str value, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    size_t n = strlen(name);
    const char *sql =
        value.p ? "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)" : "DELETE FROM meta WHERE name = ?1";
    if (prepare(of(base), sql, &statement, err))
        return err->code;
    bind_text(statement, 1, name);
    if (value.p && n > 3 && strcmp(name + n - 3, "_ms") == 0)
        sqlite3_bind_int64(statement, 2, strtoll(value.p, NULL, 10));
    else if (value.p)
        sqlite3_bind_blob64(statement, 2, value.p, value.n, SQLITE_STATIC);
    int rc = sqlite3_step(statement);
    if (rc != SQLITE_DONE)
        failed(of(base), rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

/* ---- writing ---- */

static enum err_code run(struct sqlite_bulk *bulk, sqlite3_stmt *statement, struct err *err)
{
    int rc = sqlite3_step(statement);
    if (rc != SQLITE_DONE)
        failed(bulk, rc, err);
    sqlite3_reset(statement);
    return err->code;
}

static enum err_code insert_statement(struct sqlite_bulk *bulk, const struct table *table, sqlite3_stmt **out,
                                      struct err *err)
{
    bool placed = table->id == TABLE_OPERATIONS, of_operation = table->id == TABLE_HISTORY;
    size_t count = 0;
    struct buf sql;
    *out = bulk->inserts[table->id];
    if (*out)
        return ERR_NONE;
    buf_init(&sql, 0);
    buf_printf(&sql, "INSERT INTO %s (", table->name);
    for (size_t i = 0; i < table->count; i++) {
        if (of_operation && strcmp(table->columns[i].name, "tenant") == 0)
            continue;
        buf_printf(&sql, "%s%s", count++ ? ", " : "", table->columns[i].name);
    }
    count += placed;
    buf_add_text(&sql, placed ? ", n) VALUES (" : ") VALUES (");
    for (size_t i = 0; i < count; i++)
        buf_add_text(&sql, i ? ", ?" : "?");
    buf_add_text(&sql, ")");
    prepare(bulk, sql.p, out, err);
    bulk->inserts[table->id] = *out;
    buf_release(&sql);
    return err->code;
}

/* Values of enumerations become numbers. */
static enum err_code bind_column(struct sqlite_bulk *bulk, const struct table *table, size_t i, sqlite3_stmt *statement,
                                 int place, const struct cell *cell, struct err *err)
{
    int names = table->columns[i].names;
    if (names < 0 || cell->kind == CELL_NULL) {
        bind(statement, place, cell);
        return ERR_NONE;
    }
    int value = cell->kind == CELL_TEXT ? name_value((enum name_kind)names, cell->text) : -1;
    if (value < 0)
        return err_set(err, ERR_CORRUPT, "%s.%s is \"%.*s\", which this onced does not know", table->name,
                       table->columns[i].name, STR_ARG(cell->text));
    sqlite3_bind_int(statement, place, bulk->store.names.number[names][value]);
    return ERR_NONE;
}

/* Where the operation of a line of history lies. */
static enum err_code find_place(struct sqlite_bulk *bulk, const struct cell *id, int64_t *n, struct err *err)
{
    if (id->kind != CELL_TEXT)
        return err_set(err, ERR_CORRUPT, "history holds a line of no operation: run onced ledger verify");
    if (bulk->n && str_is(id->text, bulk->id)) {
        *n = bulk->n;
        return ERR_NONE;
    }
    if (!bulk->place &&
        prepare(bulk, "SELECT n FROM operations WHERE n BETWEEN ?1 AND ?1 + 63 AND id = ?2", &bulk->place, err))
        return err->code;
    bind_id(bulk->place, id->text.p);
    int rc = sqlite3_step(bulk->place);
    if (rc == SQLITE_ROW)
        *n = bulk->n = sqlite3_column_int64(bulk->place, 0);
    else if (rc == SQLITE_DONE)
        err_set(err, ERR_CORRUPT, "history holds a line of %.64s, which is not there: run onced ledger verify",
                id->text.p);
    else
        failed(bulk, rc, err);
    sqlite3_reset(bulk->place);
    snprintf(bulk->id, sizeof bulk->id, "%s", id->text.p);
    return err->code;
}
_Static_assert(PLACES_TRIED == 64, "find_place looks as far as an insert goes");

static enum err_code insert_history(struct sqlite_bulk *bulk, const struct table *table, sqlite3_stmt *statement,
                                    const struct row *row, struct err *err)
{
    int64_t n = 0;
    int place = 1;
    if (find_place(bulk, &row->cells[0], &n, err))
        return err->code;
    sqlite3_bind_int64(statement, place++, n);
    for (size_t i = 1; i < table->count; i++)
        if (strcmp(table->columns[i].name, "tenant") != 0 &&
            bind_column(bulk, table, i, statement, place++, &row->cells[i], err))
            return err->code;
    return run(bulk, statement, err);
}

/* At the place of its id, or at the next free one. */
static enum err_code insert_operation(struct sqlite_bulk *bulk, const struct table *table, sqlite3_stmt *statement,
                                      const struct row *row, struct err *err)
{
    const struct cell *id = &row->cells[table_column(table, "id")];
    for (size_t i = 0; i < table->count; i++)
        if (bind_column(bulk, table, i, statement, (int)i + 1, &row->cells[i], err))
            return err->code;
    int64_t place = operation_place(id->kind == CELL_TEXT ? id->text.p : "");
    for (int64_t n = place;; n++) {
        sqlite3_bind_int64(statement, (int)table->count + 1, n);
        int rc = sqlite3_step(statement);
        sqlite3_reset(statement);
        if (rc == SQLITE_DONE)
            return ERR_NONE;
        if (rc != SQLITE_CONSTRAINT_PRIMARYKEY || n + 1 == place + PLACES_TRIED)
            return failed(bulk, rc, err);
    }
}

static enum err_code insert_plain(struct sqlite_bulk *bulk, const struct table *table, sqlite3_stmt *statement,
                                  const struct row *row, struct err *err)
{
    for (size_t i = 0; i < table->count; i++)
        if (bind_column(bulk, table, i, statement, (int)i + 1, &row->cells[i], err))
            return err->code;
    return run(bulk, statement, err);
}

static enum err_code insert(struct bulk *base, const struct table *table, const struct row *rows, size_t count,
                            struct err *err)
{
    struct sqlite_bulk *bulk = of(base);
    sqlite3_stmt *statement;
    if (insert_statement(bulk, table, &statement, err))
        return err->code;
    for (size_t i = 0; i < count && err->code == 0; i++) {
        if (table->id == TABLE_HISTORY)
            insert_history(bulk, table, statement, &rows[i], err);
        else if (table->id == TABLE_OPERATIONS)
            insert_operation(bulk, table, statement, &rows[i], err);
        else
            insert_plain(bulk, table, statement, &rows[i], err);
    }
    return err->code;
}

static enum err_code exec(struct sqlite_bulk *bulk, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(bulk->store.db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ERR_NONE : failed(bulk, rc, err);
}

/* As operation_in_doubt. */
static enum err_code derive(struct bulk *base, struct err *err)
{
    return exec(of(base),
                "DELETE FROM doubts; INSERT INTO doubts (operation, tenant, tool, principal, unknown_since_ms) SELECT "
                "n, tenant, tool, principal, unknown_since_ms FROM operations WHERE open = 1 AND (orphaned = 1 OR "
                "unknown_since_ms <> 0 OR state = (SELECT number FROM names WHERE kind = 'state' AND text = "
                "'unknown_outcome'))",
                err);
}

static enum err_code settle(struct bulk *base, struct err *err)
{
    (void)err;
    store_checkpoint(&of(base)->store);
    return ERR_NONE;
}

/* ---- transactions ---- */

static enum err_code begin(struct bulk *base, bool writing, struct err *err)
{
    int64_t ignored;
    if (store_begin(&of(base)->store, writing, err))
        return err->code;
    return writing ? ERR_NONE
                   : number(base, "SELECT count(*) FROM meta", &ignored, err); /* now, not at the first row */
}

static enum err_code commit(struct bulk *base, struct err *err)
{
    struct store *store = &of(base)->store;
    if (store_commit(store, err) == 0 && store->wal_frames > CHECKPOINT_FRAMES)
        store_checkpoint(store);
    return err->code;
}

static void rollback(struct bulk *base)
{
    of(base)->n = 0;
    store_rollback(&of(base)->store);
}

/* ---- opening ---- */

static void close_bulk(struct bulk *base)
{
    struct sqlite_bulk *bulk = of(base);
    for (int i = 0; i < TABLE_IDS; i++)
        sqlite3_finalize(bulk->inserts[i]);
    sqlite3_finalize(bulk->place);
    store_release(&bulk->store);
    if (bulk->lock_fd >= 0)
        close(bulk->lock_fd);
    free(base->tables);
    free(bulk);
}

static const struct bulk_ops ops = {
    begin,    commit,   rollback, page,   find,   insert, number,
    by_state, meta_get, meta_set, derive, settle, bytes,  close_bulk,
};

static enum err_code read_pragma(sqlite3 *db, const char *name, const char *sql, int *out, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int(statement, 0);
    else
        store_describe(db, name, rc, NULL, err);
    sqlite3_finalize(statement);
    return err->code;
}

enum err_code bulk_sqlite_peek(const char *path, struct bulk_versions *out, enum bulk_trouble *trouble, struct err *err)
{
    sqlite3 *db = NULL;
    int application = 0, tables = 0;
    *out = (struct bulk_versions){.known = STORE_SCHEMA_VERSION};
    if (access(path, F_OK) != 0) {
        *trouble = BULK_UNREACHABLE;
        return err_set(err, ERR_NOT_FOUND, "there is no ledger at %s", path);
    }
    /* A log that was left behind may have to be taken in. */
    if (store_connect(path, access(path, W_OK) == 0 ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY, path, &db, err))
        return err->code;
    if (read_pragma(db, path, "PRAGMA application_id", &application, err) == 0 &&
        read_pragma(db, path, "SELECT count(*) FROM sqlite_schema", &tables, err) == 0 &&
        read_pragma(db, path, "PRAGMA user_version", &out->there, err) == 0 && application != STORE_APPLICATION_ID &&
        (application != 0 || tables > 0))
        err_set(err, ERR_INVALID, "%s is the SQLite database of another program, not a onced ledger", path);
    sqlite3_close(db);
    return err->code;
}

static enum err_code judge_version(const char *path, enum bulk_use use, enum bulk_trouble *trouble, struct err *err)
{
    struct bulk_versions versions;
    bool may_be_made = use == BULK_FILL || use == BULK_MIGRATE;
    if (may_be_made && access(path, F_OK) != 0 && errno == ENOENT)
        return ERR_NONE;
    if (bulk_sqlite_peek(path, &versions, trouble, err))
        return err->code;
    if (versions.there > versions.known) {
        *trouble = BULK_NEWER;
        return err_set(err, ERR_INVALID, "%s has schema version %d, this onced knows versions up to %d", path,
                       versions.there, versions.known);
    }
    if (versions.there < versions.known && !may_be_made) {
        *trouble = BULK_OLDER;
        return err_set(err, ERR_INVALID, "%s has schema version %d, this onced needs %d: run onced ledger migrate",
                       path, versions.there, versions.known);
    }
    return ERR_NONE;
}

enum err_code bulk_sqlite_open(const char *path, enum bulk_use use, struct env *env, struct bulk **out,
                               enum bulk_trouble *trouble, struct err *err)
{
    struct sqlite_bulk *bulk;
    struct store_options options = {.path = path, .read_only = use == BULK_LOOK, .unfinished = true};
    if (judge_version(path, use, trouble, err))
        return err->code;
    bulk = mem_zero(sizeof *bulk);
    bulk->base.ops = &ops;
    bulk->base.tables = tables_new();
    bulk->lock_fd = -1;
    for (int i = 0; i < TABLE_IDS; i++)
        while (sources[i].order[bulk->base.order_count[i]])
            bulk->base.order_count[i]++;
    if (use != BULK_LOOK && store_lock(path, &bulk->lock_fd, err)) {
        *trouble = err->code == ERR_UNAVAILABLE ? BULK_IN_USE : BULK_OTHER;
        goto failed;
    }
    if (store_open(&bulk->store, &options, env, bulk->base.secret, err))
        goto failed;
    bulk->base.name = bulk->store.path;
    *out = &bulk->base;
    return ERR_NONE;
failed:
    close_bulk(&bulk->base);
    return err->code;
}
