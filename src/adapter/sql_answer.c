/* What the server's answers prove. Pure: no connection is touched. */
#include "adapter/sql_parts.h"

#include "base/ulid.h"

#include <stdlib.h>

/* ---- rows ---- */

/* Object identifiers of built-in types never change (pg_type.dat). */
enum { TYPE_BOOL = 16, TYPE_INT8 = 20, TYPE_INT2 = 21, TYPE_INT4 = 23, TYPE_OID = 26, TYPE_JSON = 114 };
enum { TYPE_FLOAT4 = 700, TYPE_FLOAT8 = 701, TYPE_NUMERIC = 1700, TYPE_JSONB = 3802 };

static struct json text_value(struct arena *arena, struct str bytes)
{
    struct buf text;
    buf_init(&text, 0);
    http_add_lossy(&text, bytes); /* a database of encoding SQL_ASCII holds whatever was put in */
    struct json value = json_string(arena_str(arena, buf_str(&text)));
    buf_release(&text);
    return value;
}

/* NaN and Infinity are no JSON numbers; JSON beyond our limits stays text. */
static struct json parsed_value(struct arena *arena, struct str bytes, bool number)
{
    struct json *value = NULL;
    if (json_parse(arena, bytes, &json_limits_default, &value, NULL) == ERR_NONE &&
        (!number || value->type == JSON_NUMBER))
        return *value;
    return text_value(arena, bytes);
}

static struct json value_of(const PGresult *result, int row, int column, struct arena *arena)
{
    if (PQgetisnull(result, row, column))
        return json_null();
    struct str bytes = {PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column)};
    switch (PQftype(result, column)) {
    case TYPE_BOOL: return json_bool(bytes.n > 0 && bytes.p[0] == 't');
    case TYPE_INT2:
    case TYPE_INT4:
    case TYPE_INT8:
    case TYPE_OID:
    case TYPE_FLOAT4:
    case TYPE_FLOAT8:
    case TYPE_NUMERIC: return parsed_value(arena, bytes, true);
    case TYPE_JSON:
    case TYPE_JSONB: return parsed_value(arena, bytes, false);
    }
    return text_value(arena, bytes);
}

#define VALUE_BYTES 32 /* of a value besides its text, in memory and as JSON */

void sql_rows_add(struct sql_rows *rows, const PGresult *result, size_t bytes_max, struct arena *arena)
{
    int columns = PQnfields(result);
    if (rows->list.type != JSON_ARRAY)
        rows->list = *json_array(arena);
    for (int row = 0; row < PQntuples(result); row++) {
        for (int column = 0; column < columns; column++)
            rows->bytes += VALUE_BYTES + strlen(PQfname(result, column)) + (size_t)PQgetlength(result, row, column);
        rows->over = rows->over || rows->bytes > bytes_max;
        if (rows->over)
            return;
        struct json *object = json_object(arena);
        for (int column = 0; column < columns; column++)
            json_set(arena, object, arena_str(arena, str_of(PQfname(result, column))),
                     value_of(result, row, column, arena));
        json_append(arena, &rows->list, *object);
    }
}

static void set_rows(struct arena *arena, struct json *object, const struct sql_rows *rows)
{
    json_set(arena, object, STR("affected"), json_int(arena, rows->affected));
    json_set(arena, object, STR("rows"), rows->list.type == JSON_ARRAY ? rows->list : *json_array(arena));
}

struct json *sql_document(const struct sql_rows *rows, size_t count, struct arena *arena)
{
    struct json *document = json_object(arena), *statements = json_array(arena);
    for (size_t i = 0; i < count; i++) {
        struct json *one = json_object(arena);
        set_rows(arena, one, &rows[i]);
        json_append(arena, statements, *one);
    }
    set_rows(arena, document, &rows[count - 1]);
    json_set(arena, document, STR("statements"), *statements);
    return document;
}

/* ---- errors ---- */

static const char *field(const PGresult *result, int code, struct arena *arena)
{
    return result ? arena_copy_text(arena, PQresultErrorField(result, code)) : NULL;
}

/* libpq's own messages have several lines: the first says it. */
static const char *first_line(struct arena *arena, const char *text)
{
    size_t n = text ? strcspn(text, "\n") : 0;
    return n > 0 ? arena_copy_str(arena, (struct str){text, n}) : "the connection was closed";
}

void sql_fault_read(const PGresult *result, const PGconn *conn, struct arena *arena, struct sql_fault *out)
{
    const char *state = field(result, PG_DIAG_SQLSTATE, arena);
    const char *severity = field(result, PG_DIAG_SEVERITY_NONLOCALIZED, arena);
    const char *message = field(result, PG_DIAG_MESSAGE_PRIMARY, arena);
    *out = (struct sql_fault){.detail = field(result, PG_DIAG_MESSAGE_DETAIL, arena),
                              .hint = field(result, PG_DIAG_MESSAGE_HINT, arena),
                              .constraint = field(result, PG_DIAG_CONSTRAINT_NAME, arena)};
    if (state && strlen(state) == SQL_STATE_CHARS)
        memcpy(out->state, state, SQL_STATE_CHARS);
    out->message = message ? message : first_line(arena, PQerrorMessage(conn));
    out->fatal = !severity || strcmp(severity, "ERROR") != 0;
}

static bool is_state(const struct sql_fault *fault, const char *state)
{
    return strcmp(fault->state, state) == 0;
}

/* The record's table is onced's own business: what is wrong with it is no refusal of the call. */
static const char *table_words(const struct sql_tool *tool, const struct sql_fault *fault, struct arena *arena)
{
    const char *table = tool->provider->table;
    if (is_state(fault, "42P01") || is_state(fault, "3F000"))
        return arena_printf(arena, "there is no table %s in this database: make it with `onced sql install`", table);
    if (is_state(fault, "42501"))
        return arena_printf(arena, "onced's role may not use table %s: GRANT SELECT, INSERT, UPDATE ON %s TO it (%s)",
                            table, table, fault->message);
    if (is_state(fault, "42703"))
        return arena_printf(arena, "table %s is not as `onced sql install` makes it (%s)", table, fault->message);
    if (is_state(fault, "25006"))
        return "the server takes no writes (a standby, or default_transaction_read_only): name all hosts in the url, "
               "with target_session_attrs=read-write";
    return NULL;
}

static bool at_table(enum sql_stage stage)
{
    return stage == SQL_STAGE_CLAIM || stage == SQL_STAGE_STORED || stage == SQL_STAGE_RECORD;
}

/* An ERROR as the answer to COMMIT is a rollback. Where the session ends with it, the server may have been past the
 * point of no return already: shutting down, it does so to sessions that wait for a standby with their commit. */
static bool is_unclear_commit(enum sql_stage stage, const struct sql_fault *fault)
{
    return stage == SQL_STAGE_COMMIT &&
           (fault->fatal || is_state(fault, "40003") || strncmp(fault->state, "08", 2) == 0);
}

enum outcome sql_fault_outcome(const struct sql_tool *tool, enum sql_stage stage, const struct sql_fault *fault,
                               struct arena *arena, const char **words)
{
    const char *table = at_table(stage) ? table_words(tool, fault, arena) : NULL;
    *words = table ? table : fault->message;
    if (is_unclear_commit(stage, fault))
        return OUTCOME_CONNECTION_LOST;
    if (table || fault->fatal || stage == SQL_STAGE_BEGIN) /* nothing of the call's was looked at */
        return OUTCOME_NOT_PROCESSED;
    if (stage == SQL_STAGE_CLAIM && is_state(fault, "55P03")) {
        *words = "an earlier transaction of this operation has not ended yet";
        return OUTCOME_KEY_IN_USE;
    }
    if (stage == SQL_STAGE_STATEMENT && sql_states_has(&tool->noop, fault->state))
        return OUTCOME_NOOP;
    return sql_states_has(&tool->provider->not_processed, fault->state) ? OUTCOME_NOT_PROCESSED : OUTCOME_REFUSED;
}

enum outcome sql_lost_outcome(enum sql_stage stage, bool timed_out)
{
    if (stage == SQL_STAGE_CONNECT)
        return OUTCOME_NOT_SENT;
    if (stage == SQL_STAGE_COMMIT)
        return timed_out ? OUTCOME_TIMEOUT : OUTCOME_CONNECTION_LOST;
    return OUTCOME_NOT_PROCESSED;
}

/* ---- decisions within the transaction ---- */

enum sql_stage sql_after_claim(enum attempt_kind kind, int64_t affected)
{
    if (affected == 0) /* committed by an earlier attempt: nothing runs again */
        return SQL_STAGE_STORED;
    return kind == ATTEMPT_LOOKUP ? SQL_STAGE_ROLLBACK : SQL_STAGE_STATEMENT;
}

bool sql_absent_counts(const struct sql_provider *provider, const char *operation, int64_t now_ms)
{
    const char *ulid = operation && strncmp(operation, "op_", 3) == 0 ? operation + 3 : "";
    return ulid_valid(ulid) && now_ms - ulid_time_ms(ulid) < provider->retention_ms;
}

bool sql_record_is_ours(const struct sql_call *call, struct str fingerprint)
{
    return !call->fingerprint[0] || str_is(fingerprint, call->fingerprint);
}

bool sql_rows_fit(const struct sql_statement *statement, int64_t affected)
{
    return statement->expect_rows < 0 || affected == statement->expect_rows;
}
