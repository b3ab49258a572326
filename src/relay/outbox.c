#include "relay/outbox.h"

#include "base/map.h"
#include "base/mark.h"
#include "base/mem.h"
#include "relay/table.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

#define SERVER_MS_MAX 30000 /* of one statement */

struct relay_outbox {
    const struct relay_settings *settings;
    PGconn *conn;  /* NULL: not connected */
    char *id_type; /* with the next one: known since the first connection */
    char *statements[STATEMENT_COUNT];
};

/* ---- life ---- */

struct relay_outbox *relay_outbox_new(const struct relay_settings *settings)
{
    struct relay_outbox *outbox = mem_zero(sizeof *outbox);
    outbox->settings = settings;
    return outbox;
}

static void disconnect(struct relay_outbox *outbox)
{
    PQfinish(outbox->conn);
    outbox->conn = NULL;
}

static void forget_statements(struct relay_outbox *outbox)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        free(outbox->statements[i]);
        outbox->statements[i] = NULL;
    }
    free(outbox->id_type);
    outbox->id_type = NULL;
}

void relay_outbox_free(struct relay_outbox *outbox)
{
    if (!outbox)
        return;
    disconnect(outbox);
    forget_statements(outbox);
    free(outbox);
}

/* ---- what the server says ---- */

static bool is_class(const char *state, const char *const *classes)
{
    for (size_t i = 0; classes[i]; i++)
        if (strncmp(state, classes[i], strlen(classes[i])) == 0)
            return true;
    return false;
}

static enum relay_fault fault_of(const char *state)
{
    static const char *const passing[] = {"08", "25", "40", "53", "55", "57", "58", "XX", NULL};
    static const char *const missing[] = {"42P01", "42703", "3F000", NULL};
    static const char *const unfit[] = {"42", NULL};
    if (!state || is_class(state, passing))
        return FAULT_LOST;
    if (is_class(state, missing))
        return FAULT_NO_TABLE;
    if (strcmp(state, "42501") == 0)
        return FAULT_NO_RIGHTS;
    return is_class(state, unfit) ? FAULT_UNFIT : FAULT_DATA;
}

/* Takes result. After a lost connection or a server that takes no writes (25006) another one may do better. */
static enum relay_fault failed(struct relay_outbox *outbox, PGresult *result, struct err *err)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *message = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (!message)
        message = PQerrorMessage(outbox->conn);
    enum relay_fault fault = fault_of(state);
    enum err_code code = fault == FAULT_LOST        ? ERR_UNAVAILABLE
                         : fault == FAULT_NO_TABLE  ? ERR_NOT_FOUND
                         : fault == FAULT_NO_RIGHTS ? ERR_DENIED
                                                    : ERR_INVALID;
    err_set(err, code, "%.*s%s%s%s", (int)strcspn(message, "\n"), message, state ? " (SQLSTATE " : "",
            state ? state : "", state ? ")" : "");
    bool lost = PQstatus(outbox->conn) != CONNECTION_OK || (state && strcmp(state, "25006") == 0);
    PQclear(result);
    if (lost)
        disconnect(outbox);
    return fault;
}

static enum relay_fault execute(struct relay_outbox *outbox, const char *text, struct err *err)
{
    PGresult *result = PQexec(outbox->conn, text);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        return failed(outbox, result, err);
    PQclear(result);
    return FAULT_NONE;
}

static enum relay_fault ask(struct relay_outbox *outbox, const char *text, int count, const char *const *values,
                            PGresult **out, struct err *err)
{
    PGresult *result = PQexecParams(outbox->conn, text, count, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        return failed(outbox, result, err);
    *out = result;
    return FAULT_NONE;
}

/* What was not committed is undone, whatever the connection thinks of it. */
static void roll_back(struct relay_outbox *outbox)
{
    if (outbox->conn && execute(outbox, "ROLLBACK", NULL))
        disconnect(outbox);
}

/* The server ends the transaction of a relay that stands still: its rows are free then. */
static enum relay_fault begin(struct relay_outbox *outbox, struct err *err)
{
    char text[240];
    snprintf(text, sizeof text,
             "BEGIN; SET LOCAL idle_in_transaction_session_timeout = %" PRId64 "; SET LOCAL statement_timeout = %d; "
             "SET LOCAL lock_timeout = %d",
             outbox->settings->lease_ms, SERVER_MS_MAX, SERVER_MS_MAX / 3);
    return execute(outbox, text, err);
}

/* ---- connecting ---- */

static void no_notice(void *user, const char *message)
{
    (void)user;
    (void)message;
}

static enum relay_fault open_connection(struct relay_outbox *outbox, struct err *err)
{
    /* what the url says of these wins: they come before it */
    static const char *const names[] = {"fallback_application_name",
                                        "connect_timeout",
                                        "keepalives_idle",
                                        "keepalives_interval",
                                        "keepalives_count",
                                        "tcp_user_timeout",
                                        "dbname",
                                        "client_encoding",
                                        NULL};
    const char *const values[] = {"onced relay", "10", "30", "10", "3", "60000", outbox->settings->database,
                                  "UTF8",        NULL};
    outbox->conn = PQconnectdbParams(names, values, 1);
    if (PQstatus(outbox->conn) != CONNECTION_OK) {
        failed(outbox, NULL, err);
        disconnect(outbox);
        return FAULT_LOST;
    }
    PQsetNoticeProcessor(outbox->conn, no_notice, NULL);
    return FAULT_NONE;
}

/* The id's type, and whether there can be two rows of one id. Of a partitioned table that cannot be asked for. */
static enum relay_fault learn_type(struct relay_outbox *outbox, struct err *err)
{
    static const char text[] =
        "SELECT format_type(a.atttypid, -1), c.relkind = 'p' OR (a.attnotnull AND EXISTS (SELECT 1 FROM pg_index i"
        " WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1"
        " AND i.indkey[0] = a.attnum))"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2 AND NOT a.attisdropped"
        " WHERE c.oid = to_regclass($1)";
    struct buf table;
    PGresult *result = NULL;
    buf_init(&table, 0);
    relay_table_write(&table, outbox->settings->table);
    const char *const values[] = {table.p, outbox->settings->columns.id};
    enum relay_fault fault = ask(outbox, text, 2, values, &result, err);
    if (!fault && PQntuples(result) == 0) {
        err_set(err, ERR_NOT_FOUND, "there is no table %s with a column %s", outbox->settings->table, values[1]);
        fault = FAULT_NO_TABLE;
    } else if (!fault && strcmp(PQgetvalue(result, 0, 1), "t") != 0) {
        err_set(err, ERR_INVALID, "column %s of %s is not unique: it needs a primary key or a unique index of its own",
                values[1], outbox->settings->table);
        fault = FAULT_UNFIT;
    }
    if (!fault)
        outbox->id_type = mem_copy_text(PQgetvalue(result, 0, 0));
    PQclear(result);
    buf_release(&table);
    return fault;
}

static const char *const none[MARK_PARAMETERS] = {"{}", "{}", "{}", "{}", "{}", "{}", "{}", "{}"};

/* Each statement is executed once on no row: names, types and rights are wrong now or never. */
static enum relay_fault rehearse(struct relay_outbox *outbox, struct err *err)
{
    static const int counts[STATEMENT_COUNT] = {1, 3, 1, 1, MARK_PARAMETERS, 1};
    static const char *const limits[] = {"0", "{}", "{}"};
    enum relay_fault fault = begin(outbox, err);
    for (int i = 0; !fault && i < STATEMENT_COUNT; i++) {
        PGresult *result = NULL;
        if (i == STATEMENT_FOLLOWERS && !outbox->settings->columns.entity[0])
            continue;
        const char *const *values = i == STATEMENT_MARK || i == STATEMENT_ARGUMENTS ? none : limits;
        fault = ask(outbox, outbox->statements[i], counts[i], values, &result, err);
        if (!fault)
            PQclear(result);
    }
    roll_back(outbox);
    return fault == FAULT_DATA ? FAULT_UNFIT : fault;
}

static enum relay_fault prepare(struct relay_outbox *outbox, struct err *err)
{
    enum relay_fault fault = learn_type(outbox, err);
    for (int i = 0; !fault && i < STATEMENT_COUNT; i++)
        if (i != STATEMENT_FOLLOWERS || outbox->settings->columns.entity[0])
            outbox->statements[i] = relay_statement(outbox->settings, i, outbox->id_type);
    if (!fault)
        fault = rehearse(outbox, err);
    if (fault)
        forget_statements(outbox);
    return fault;
}

static enum relay_fault listen(struct relay_outbox *outbox, struct err *err)
{
    char text[100];
    if (!outbox->settings->channel[0])
        return FAULT_NONE;
    snprintf(text, sizeof text, "LISTEN \"%s\"", outbox->settings->channel);
    return execute(outbox, text, err);
}

static enum relay_fault connect_bare(struct relay_outbox *outbox, struct err *err)
{
    return outbox->conn ? FAULT_NONE : open_connection(outbox, err);
}

enum relay_fault relay_outbox_connect(struct relay_outbox *outbox, struct err *err)
{
    bool is_new = outbox->conn == NULL;
    enum relay_fault fault = connect_bare(outbox, err);
    if (!fault && !outbox->id_type)
        fault = prepare(outbox, err);
    if (!fault && is_new)
        fault = listen(outbox, err);
    if (fault)
        disconnect(outbox);
    return fault;
}

enum relay_fault relay_outbox_install(struct relay_outbox *outbox, const char *statements, struct err *err)
{
    enum relay_fault fault = connect_bare(outbox, err);
    if (!fault)
        fault = execute(outbox, statements, err);
    return fault ? fault : relay_outbox_connect(outbox, err);
}

int relay_outbox_socket(const struct relay_outbox *outbox)
{
    return outbox->conn ? PQsocket(outbox->conn) : -1;
}

bool relay_outbox_heard(struct relay_outbox *outbox)
{
    bool heard = false;
    if (!outbox->conn || !PQconsumeInput(outbox->conn)) {
        disconnect(outbox);
        return true; /* nobody knows what was missed */
    }
    for (PGnotify *notify; (notify = PQnotifies(outbox->conn)); PQfreemem(notify))
        heard = true;
    return heard;
}

/* ---- arrays as libpq takes them ---- */

static void array_begin(struct buf *out)
{
    buf_init(out, 0);
    buf_add_char(out, '{');
}

static void array_add(struct buf *out, const char *text)
{
    if (out->n > 1)
        buf_add_char(out, ',');
    if (!text) {
        buf_add_text(out, "NULL");
        return;
    }
    buf_add_char(out, '"');
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            buf_add_char(out, '\\');
        buf_add_char(out, *p);
    }
    buf_add_char(out, '"');
}

static const char *array_end(struct buf *out)
{
    buf_add_char(out, '}');
    return out->p;
}

/* ---- taking rows ---- */

static const char *cell(const PGresult *result, int row, int column, struct arena *arena)
{
    return PQgetisnull(result, row, column) ? NULL : arena_copy_text(arena, PQgetvalue(result, row, column));
}

static void rows_add(struct relay_batch *batch, const PGresult *result)
{
    for (int i = 0; i < PQntuples(result); i++) {
        struct relay_row *row = &batch->rows[batch->count++];
        const char *bytes = PQgetvalue(result, i, ROW_BYTES), *attempts = PQgetvalue(result, i, ROW_ATTEMPTS);
        *row = (struct relay_row){.arguments_bytes = (size_t)strtoull(bytes, NULL, 10),
                                  .attempts = strtoll(attempts, NULL, 10)};
        row->id = cell(result, i, ROW_ID, &batch->arena);
        row->tool = cell(result, i, ROW_TOOL, &batch->arena);
        row->entity = cell(result, i, ROW_ENTITY, &batch->arena);
        row->run_id = cell(result, i, ROW_RUN, &batch->arena);
        row->tenant = cell(result, i, ROW_TENANT, &batch->arena);
        row->operation = cell(result, i, ROW_OPERATION, &batch->arena);
    }
}

/* limit: at most so many rows; further parameters as the statement has them. */
static enum relay_fault take(struct relay_outbox *outbox, enum relay_statement which, size_t limit, const char *second,
                             const char *third, struct relay_batch *batch, struct err *err)
{
    char text[24];
    PGresult *result = NULL;
    snprintf(text, sizeof text, "%zu", limit);
    const char *const values[] = {text, second, third};
    enum relay_fault fault = ask(outbox, outbox->statements[which], second ? 3 : 1, values, &result, err);
    if (fault)
        return fault;
    rows_add(batch, result);
    PQclear(result);
    return FAULT_NONE;
}

static enum relay_fault take_followers(struct relay_outbox *outbox, struct relay_batch *batch, struct err *err)
{
    struct buf entities, ids;
    size_t room = outbox->settings->batch - batch->count;
    array_begin(&entities);
    array_begin(&ids);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->rows[i].entity)
            array_add(&entities, batch->rows[i].entity);
        array_add(&ids, batch->rows[i].id);
    }
    array_end(&entities);
    array_end(&ids);
    enum relay_fault fault = take(outbox, STATEMENT_FOLLOWERS, room, entities.p, ids.p, batch, err);
    buf_release(&entities);
    buf_release(&ids);
    return fault;
}

/* Each row knows the next one of its entity. Followers are in their order behind the heads; two heads of one entity
 * (their order is the same) go at once. */
static void chain(struct relay_batch *batch)
{
    struct map last;
    map_init(&last);
    for (size_t i = 0; i < batch->count; i++) {
        struct relay_row *row = &batch->rows[i], *before = row->entity ? map_get(&last, row->entity) : NULL;
        if (before && i >= batch->heads)
            before->next = row;
        if (row->entity)
            map_put(&last, row->entity, row);
    }
    map_release(&last);
}

/* As many rows as their arguments allow; one in any case. Those that are too large by themselves are not read. */
static void cut(struct relay_batch *batch, size_t one_max)
{
    size_t sum = 0, i = 0;
    for (; i < batch->count; i++) {
        size_t bytes = batch->rows[i].arguments_bytes;
        sum += bytes <= one_max ? bytes : 0;
        if (sum > RELAY_BATCH_BYTES_MAX && i > 0)
            break;
    }
    batch->full = batch->full || i < batch->count;
    batch->count = i;
    batch->heads = batch->heads < i ? batch->heads : i;
}

static enum relay_fault read_arguments(struct relay_outbox *outbox, struct relay_batch *batch, struct err *err)
{
    struct buf ids;
    struct map rows;
    PGresult *result = NULL;
    array_begin(&ids);
    map_init(&rows);
    for (size_t i = 0; i < batch->count; i++) {
        struct relay_row *row = &batch->rows[i];
        if (row->arguments_bytes > outbox->settings->arguments_bytes_max)
            continue;
        array_add(&ids, row->id);
        map_put(&rows, row->id, row);
    }
    const char *const values[] = {array_end(&ids)};
    enum relay_fault fault = ask(outbox, outbox->statements[STATEMENT_ARGUMENTS], 1, values, &result, err);
    for (int i = 0; !fault && i < PQntuples(result); i++) {
        struct relay_row *row = map_get(&rows, PQgetvalue(result, i, 0));
        if (row && !PQgetisnull(result, i, 1)) {
            row->arguments_bytes = (size_t)PQgetlength(result, i, 1);
            row->arguments = arena_str(&batch->arena, (struct str){PQgetvalue(result, i, 1), row->arguments_bytes}).p;
        }
    }
    if (!fault)
        PQclear(result);
    map_release(&rows);
    buf_release(&ids);
    return fault;
}

static void batch_begin(const struct relay_outbox *outbox, struct relay_batch *batch)
{
    batch->rows = arena_alloc(&batch->arena, outbox->settings->batch * sizeof *batch->rows);
    batch->count = batch->heads = 0;
    batch->full = false;
}

enum relay_fault relay_outbox_take(struct relay_outbox *outbox, struct relay_batch *batch, struct err *err)
{
    size_t limit = outbox->settings->batch;
    batch_begin(outbox, batch);
    enum relay_fault fault = begin(outbox, err);
    if (!fault)
        fault = take(outbox, STATEMENT_HEADS, limit, NULL, NULL, batch, err);
    batch->heads = batch->count;
    if (!fault && batch->count > 0 && batch->count < limit && outbox->settings->columns.entity[0])
        fault = take_followers(outbox, batch, err);
    batch->full = batch->count == limit;
    cut(batch, outbox->settings->arguments_bytes_max);
    chain(batch);
    if (!fault && batch->count > 0)
        fault = read_arguments(outbox, batch, err);
    if (fault || batch->count == 0)
        roll_back(outbox);
    if (fault)
        batch->count = 0;
    return fault;
}

enum relay_fault relay_outbox_take_looks(struct relay_outbox *outbox, struct relay_batch *batch, struct err *err)
{
    batch_begin(outbox, batch);
    enum relay_fault fault = begin(outbox, err);
    if (!fault)
        fault = take(outbox, STATEMENT_LOOKS, outbox->settings->batch, NULL, NULL, batch, err);
    batch->heads = batch->count;
    batch->full = batch->count == outbox->settings->batch;
    if (fault || batch->count == 0)
        roll_back(outbox);
    if (fault)
        batch->count = 0;
    return fault;
}

/* ---- marking ---- */

static void mark_row(struct buf arrays[MARK_PARAMETERS], const struct relay_row *row)
{
    char attempts[24], delay[24];
    bool ended = row->verdict.outcome == RELAY_ENDED || row->verdict.outcome == RELAY_REFUSED;
    bool admitted = row->verdict.outcome == RELAY_ADMITTED || row->verdict.outcome == RELAY_ENDED;
    snprintf(attempts, sizeof attempts, "%" PRId64, relay_row_attempts(row));
    snprintf(delay, sizeof delay, "%" PRId64, row->delay_ms);
    array_add(&arrays[MARK_ID], row->id);
    array_add(&arrays[MARK_STATUS], relay_row_status(row));
    array_add(&arrays[MARK_OPERATION], row->verdict.operation[0] ? row->verdict.operation : NULL);
    array_add(&arrays[MARK_PROBLEM], row->verdict.problem[0] ? row->verdict.problem : NULL);
    array_add(&arrays[MARK_ATTEMPTS], attempts);
    array_add(&arrays[MARK_DELAY], ended ? NULL : delay);
    array_add(&arrays[MARK_ADMITTED], admitted ? "t" : "f");
    array_add(&arrays[MARK_ENDED], ended ? "t" : "f");
}

static enum relay_fault mark_rows(struct relay_outbox *outbox, const struct relay_row *rows, size_t count,
                                  struct err *err)
{
    struct buf arrays[MARK_PARAMETERS];
    const char *values[MARK_PARAMETERS];
    PGresult *result = NULL;
    for (int i = 0; i < MARK_PARAMETERS; i++)
        array_begin(&arrays[i]);
    for (size_t i = 0; i < count; i++)
        if (rows[i].decided)
            mark_row(arrays, &rows[i]);
    for (int i = 0; i < MARK_PARAMETERS; i++)
        values[i] = array_end(&arrays[i]);
    enum relay_fault fault = ask(outbox, outbox->statements[STATEMENT_MARK], MARK_PARAMETERS, values, &result, err);
    if (!fault)
        PQclear(result);
    for (int i = 0; i < MARK_PARAMETERS; i++)
        buf_release(&arrays[i]);
    return fault;
}

/* A row that the application's own trigger or constraint refuses does not keep the others from being marked. */
static enum relay_fault mark_each(struct relay_outbox *outbox, const struct relay_batch *batch, size_t *unmarked,
                                  struct err *err)
{
    enum relay_fault fault = execute(outbox, "ROLLBACK TO marking", NULL);
    for (size_t i = 0; !fault && i < batch->count; i++) {
        struct err one = {0};
        if (!batch->rows[i].decided)
            continue;
        fault = execute(outbox, "SAVEPOINT marking", err);
        if (!fault)
            fault = mark_rows(outbox, &batch->rows[i], 1, &one);
        if (fault != FAULT_DATA)
            continue;
        (*unmarked)++;
        err_set(err, ERR_INVALID, "row %s cannot be marked: %s", batch->rows[i].id, one.text);
        fault = execute(outbox, "ROLLBACK TO marking", NULL);
    }
    return fault;
}

/* A constraint of the application's that is judged at the end only concerns all rows: none is marked. */
static enum relay_fault commit(struct relay_outbox *outbox, struct err *err)
{
    MARK(relay_marked);
    enum relay_fault fault = execute(outbox, "COMMIT", err);
    if (!fault)
        MARK(relay_committed);
    return fault == FAULT_DATA ? FAULT_LOST : fault;
}

enum relay_fault relay_outbox_mark(struct relay_outbox *outbox, const struct relay_batch *batch, size_t *unmarked,
                                   struct err *err)
{
    struct err first = {0};
    *unmarked = 0;
    if (!outbox->conn)
        return FAULT_LOST;
    enum relay_fault fault = execute(outbox, "SAVEPOINT marking", err);
    if (!fault)
        fault = mark_rows(outbox, batch->rows, batch->count, &first);
    if (fault == FAULT_DATA)
        fault = mark_each(outbox, batch, unmarked, err);
    else if (fault && first.code)
        err_set(err, first.code, "%s", first.text);
    if (!fault)
        fault = commit(outbox, err);
    if (fault)
        roll_back(outbox);
    return fault ? fault : *unmarked ? FAULT_DATA : FAULT_NONE;
}

enum relay_fault relay_outbox_backlog(struct relay_outbox *outbox, unsigned max, int64_t *count, struct err *err)
{
    char limit[16];
    PGresult *result = NULL;
    snprintf(limit, sizeof limit, "%u", max);
    const char *const values[] = {limit};
    enum relay_fault fault = ask(outbox, outbox->statements[STATEMENT_BACKLOG], 1, values, &result, err);
    if (fault)
        return fault;
    *count = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return FAULT_NONE;
}
