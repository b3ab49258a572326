/* Records ⇄ rows. The lists below are the tables' columns: a new one is one line here (and, once a version of the
 * schema is released, a step in pg_schema.c). */
#include "ledger/pg_store.h"

#include <stddef.h>

/* ---- columns ---- */

#define COLUMN(record, field, type, how)                                                                               \
    {                                                                                                                  \
#field, COLUMN_##type, NAME_STATE, offsetof(struct record, field), how                                         \
    }
#define COLUMN_AS(record, name, field, type, how)                                                                      \
    {                                                                                                                  \
        name, COLUMN_##type, NAME_STATE, offsetof(struct record, field), how                                           \
    }
#define ENUM_AS(record, name, field, kind, how)                                                                        \
    {                                                                                                                  \
        name, COLUMN_NAME, NAME_##kind, offsetof(struct record, field), how                                            \
    }
#define NEEDED COLUMN_REQUIRED
#define LIFE   COLUMN_LIFE

static const struct column operation_columns[] = {
    COLUMN(operation, id, ID, NEEDED),
    COLUMN(operation, tenant, TEXT, NEEDED),
    COLUMN(operation, tool, TEXT, NEEDED),
    COLUMN(operation, principal, TEXT, NEEDED),
    ENUM_AS(operation, "state", state, STATE, NEEDED | LIFE),
    ENUM_AS(operation, "reason", reason, REASON, NEEDED | LIFE),
    COLUMN(operation, rev, INT64, NEEDED | LIFE),
    COLUMN(operation, owner, TEXT, LIFE),
    COLUMN(operation, lease_until_ms, MOMENT, NEEDED | LIFE),
    COLUMN(operation, wake_at_ms, MOMENT, NEEDED | LIFE),
    COLUMN(operation, delivered, BOOL, NEEDED),
    COLUMN(operation, orphaned, BOOL, NEEDED),
    COLUMN(operation, key_hash, DIGEST, NEEDED),
    COLUMN(operation, key_version, INT, NEEDED),
    COLUMN(operation, fingerprint, DIGEST, NEEDED),
    COLUMN(operation, base_hash, BASE_HASH, 0),
    ENUM_AS(operation, "key_source", key_source, KEY_SOURCE, NEEDED),
    COLUMN(operation, canonical_version, INT, NEEDED),
    COLUMN(operation, key, TEXT, 0),
    COLUMN(operation, policy_version, TEXT, 0),
    COLUMN(operation, workflow, TEXT, 0),
    COLUMN(operation, run, TEXT, 0),
    COLUMN(operation, step, TEXT, 0),
    COLUMN(operation, session, TEXT, 0),
    COLUMN(operation, call, TEXT, 0),
    COLUMN(operation, trace, TEXT, 0),
    COLUMN(operation, repeat_of, TEXT, 0),
    COLUMN(operation, distinct_from, TEXT, 0),
    COLUMN(operation, previous, TEXT, 0),
    COLUMN(operation, compensates, TEXT, 0),
    COLUMN(operation, playbook, TEXT, 0),
    COLUMN(operation, escalation, TEXT, 0),
    COLUMN(operation, compensation, TEXT, LIFE),
    COLUMN(operation, parent, TEXT, 0),
    COLUMN(operation, steps, STR, LIFE),
    COLUMN(operation, provider_key, TEXT, 0),
    COLUMN(operation, created_ms, INT64, NEEDED),
    COLUMN(operation, not_before_ms, INT64, NEEDED),
    COLUMN(operation, ready_ms, INT64, NEEDED | LIFE),
    COLUMN(operation, may_have_applied, BOOL, NEEDED | LIFE),
    COLUMN(operation, attempts, INT, NEEDED | LIFE),
    COLUMN(operation, lookups, INT, NEEDED | LIFE),
    COLUMN(operation, tries, INT, NEEDED | LIFE),
    COLUMN(operation, first_sent_ms, INT64, NEEDED | LIFE),
    COLUMN(operation, last_sent_ms, INT64, NEEDED | LIFE),
    COLUMN(operation, unknown_since_ms, INT64, NEEDED | LIFE),
    COLUMN(operation, updated_ms, INT64, NEEDED | LIFE),
    COLUMN(operation, completed_ms, INT64, NEEDED | LIFE),
    COLUMN(operation, retries, INT, NEEDED | LIFE),
    COLUMN(operation, absent_count, INT, NEEDED | LIFE),
    COLUMN(operation, watch_next, INT, NEEDED | LIFE),
    COLUMN(operation, retain_until_ms, INT64, NEEDED | LIFE),
    COLUMN(operation, http_status, INT, NEEDED | LIFE),
    COLUMN(operation, external_id, TEXT, LIFE),
    COLUMN(operation, result_bytes, INT64, NEEDED | LIFE),
    COLUMN(operation, result_dropped, BOOL, NEEDED | LIFE),
    COLUMN(operation, duplicate_seen, BOOL, NEEDED | LIFE),
    COLUMN(operation, approval, STR, LIFE),
    COLUMN(operation, claims, STR, 0),
    COLUMN(operation, arguments, STR, COLUMN_PAYLOAD),
    COLUMN(operation, result, STR, LIFE | COLUMN_PAYLOAD),
    COLUMN(operation, error, STR, LIFE | COLUMN_PAYLOAD),
};

static const struct column event_columns[] = {
    COLUMN(event, at_ms, INT64, 0),
    ENUM_AS(event, "cause", cause, CAUSE, 0),
    ENUM_AS(event, "from_state", from, STATE, 0),
    ENUM_AS(event, "to_state", to, STATE, 0),
    ENUM_AS(event, "reason", reason, REASON, 0),
    COLUMN(event, attempt, INT, 0),
    COLUMN(event, actor, TEXT, 0),
    COLUMN(event, note, TEXT, 0),
};

static const struct column attempt_columns[] = {
    COLUMN_AS(attempt, "attempt_number", number, INT, 0),
    COLUMN_AS(attempt, "attempt_id", id, ID, 0),
    ENUM_AS(attempt, "attempt_kind", kind, ATTEMPT_KIND, 0),
    ENUM_AS(attempt, "outcome", outcome, OUTCOME, 0),
    COLUMN(attempt, started_ms, INT64, 0),
    COLUMN(attempt, finished_ms, INT64, 0),
    COLUMN(attempt, http_status, INT, 0),
    COLUMN(attempt, provider_request_id, TEXT, 0),
    COLUMN(attempt, detail, TEXT, 0),
};

static const struct column incident_columns[] = {
    COLUMN(incident, id, ID, NEEDED),           COLUMN(incident, tenant, TEXT, NEEDED),
    COLUMN(incident, operation, TEXT, NEEDED),  ENUM_AS(incident, "kind", kind, INCIDENT_KIND, NEEDED),
    COLUMN(incident, at_ms, INT64, NEEDED),     COLUMN(incident, note, TEXT, 0),
    COLUMN(incident, acknowledged_by, TEXT, 0), COLUMN(incident, acknowledged_ms, INT64, NEEDED),
};

static const struct column tombstone_columns[] = {
    COLUMN(tombstone, operation, ID, NEEDED),
    COLUMN(tombstone, tenant, TEXT, NEEDED),
    COLUMN(tombstone, tool, TEXT, NEEDED),
    COLUMN(tombstone, principal, TEXT, NEEDED),
    COLUMN(tombstone, key_hash, DIGEST, NEEDED),
    COLUMN(tombstone, key_version, INT, NEEDED),
    COLUMN(tombstone, fingerprint, DIGEST, NEEDED),
    COLUMN(tombstone, canonical_version, INT, NEEDED),
    ENUM_AS(tombstone, "key_source", key_source, KEY_SOURCE, NEEDED),
    ENUM_AS(tombstone, "state", state, STATE, NEEDED),
    COLUMN(tombstone, completed_ms, INT64, NEEDED),
    COLUMN(tombstone, dropped_ms, INT64, NEEDED),
    COLUMN(tombstone, external_id, TEXT, 0),
};

static const struct column token_columns[] = {
    COLUMN(token, id, TEXT, NEEDED),
    COLUMN(token, secret_hash, DIGEST, NEEDED),
    COLUMN(token, tenant, TEXT, NEEDED),
    COLUMN(token, principal, TEXT, NEEDED),
    ENUM_AS(token, "role", role, ROLE, NEEDED),
    COLUMN(token, created_ms, INT64, NEEDED),
    COLUMN(token, expires_ms, INT64, NEEDED),
    COLUMN(token, revoked_ms, INT64, NEEDED),
    COLUMN(token, tools, TEXT, 0),
    COLUMN(token, entities, TEXT, 0),
};

#define RECORD(name)                                                                                                   \
    {                                                                                                                  \
#name, name##_columns, sizeof name##_columns / sizeof *name##_columns                                          \
    }
const struct columns pg_columns[PG_RECORDS] = {
    [RECORD_OPERATION] = RECORD(operation), [RECORD_EVENT] = RECORD(event),         [RECORD_ATTEMPT] = RECORD(attempt),
    [RECORD_INCIDENT] = RECORD(incident),   [RECORD_TOMBSTONE] = RECORD(tombstone), [RECORD_TOKEN] = RECORD(token),
};

/* ---- writing ---- */

static void put_base_hash(struct pg_query *query, const struct operation *op)
{
    pg_put_digest(query, digest_equal(&op->base_hash, &op->key_hash) ? NULL : &op->base_hash);
}

static void put_column(struct pg_query *query, const struct column *column, const void *record)
{
    const void *field = (const char *)record + column->offset;
    switch (column->kind) {
    case COLUMN_ID: pg_put_text(query, field); break;
    case COLUMN_TEXT: pg_put_text(query, *(const char *const *)field); break;
    case COLUMN_STR: pg_put_str(query, *(const struct str *)field); break;
    case COLUMN_BYTES: pg_put_bytes(query, *(const struct str *)field); break;
    case COLUMN_INT64: pg_put_int(query, *(const int64_t *)field); break;
    case COLUMN_MOMENT: pg_put_moment(query, *(const int64_t *)field); break;
    case COLUMN_INT: pg_put_int(query, *(const int *)field); break;
    case COLUMN_BOOL: pg_put_int(query, *(const bool *)field); break;
    case COLUMN_DIGEST: pg_put_digest(query, field); break;
    case COLUMN_BASE_HASH: put_base_hash(query, record); break;
    case COLUMN_NAME: pg_put_text(query, name_text(column->names, *(const int *)field)); break;
    }
}

void pg_put_record(struct pg_query *query, enum pg_record which, const void *record)
{
    for (size_t i = 0; i < pg_columns[which].count; i++)
        put_column(query, &pg_columns[which].list[i], record);
}

void pg_put_nothing(struct pg_query *query, enum pg_record which)
{
    for (size_t i = 0; i < pg_columns[which].count; i++) {
        enum column_kind kind = pg_columns[which].list[i].kind;
        /* The type of a parameter is that of all its values. */
        if (kind == COLUMN_INT64 || kind == COLUMN_INT)
            pg_put_no_int(query);
        else
            pg_put_text(query, NULL);
    }
}

void pg_put_life(struct pg_query *query, const struct operation *op)
{
    pg_put_int(query, !state_terminal(op->state));
    for (size_t i = 0; i < pg_columns[RECORD_OPERATION].count; i++)
        if (operation_columns[i].flags & COLUMN_LIFE)
            put_column(query, &operation_columns[i], op);
}

/* ---- reading ---- */

struct pg_row pg_row(struct pg *pg, const PGresult *result, int row, struct arena *arena)
{
    return (struct pg_row){.pg = pg, .result = result, .row = row, .arena = arena};
}

bool pg_take_null(struct pg_row *row)
{
    return PQgetisnull(row->result, row->row, row->column) != 0;
}

/* Integers of two, four and eight bytes, as the network has them. */
int64_t pg_take_int(struct pg_row *row)
{
    const unsigned char *p = (const unsigned char *)PQgetvalue(row->result, row->row, row->column);
    int bytes = PQgetlength(row->result, row->row, row->column++);
    uint64_t value = bytes > 0 && p[0] & 0x80 ? ~(uint64_t)0 : 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | p[i];
    return (int64_t)value;
}

int64_t pg_take_moment(struct pg_row *row)
{
    int64_t ms = pg_take_int(row);
    return ms > 0 ? ms - row->pg->offset_ms : ms;
}

struct str pg_take_str(struct pg_row *row)
{
    struct str text = STR_NONE;
    if (!pg_take_null(row))
        text = (struct str){PQgetvalue(row->result, row->row, row->column),
                            (size_t)PQgetlength(row->result, row->row, row->column)};
    row->column++;
    return arena_str(row->arena, text);
}

const char *pg_take_text(struct pg_row *row)
{
    return pg_take_str(row).p;
}

bool pg_take_digest(struct pg_row *row, struct digest *out)
{
    bool present = !pg_take_null(row) && PQgetlength(row->result, row->row, row->column) == DIGEST_BYTES;
    if (present)
        memcpy(out->b, PQgetvalue(row->result, row->row, row->column), DIGEST_BYTES);
    row->column++;
    return present;
}

int pg_take_name(struct pg_row *row, enum name_kind kind)
{
    struct str text = {PQgetvalue(row->result, row->row, row->column),
                       (size_t)PQgetlength(row->result, row->row, row->column)};
    row->column++;
    int value = name_value(kind, text);
    if (value < 0)
        row->strange = name_kind_text(kind);
    return value;
}

void pg_take_id(struct pg_row *row, char out[OPERATION_ID_SIZE])
{
    int bytes = PQgetlength(row->result, row->row, row->column);
    if (bytes >= OPERATION_ID_SIZE)
        row->strange = "id";
    else
        memcpy(out, PQgetvalue(row->result, row->row, row->column), (size_t)bytes + 1);
    row->column++;
}

static void take_column(struct pg_row *row, const struct column *column, void *record)
{
    void *field = (char *)record + column->offset;
    switch (column->kind) {
    case COLUMN_ID: pg_take_id(row, field); break;
    case COLUMN_TEXT: *(const char **)field = pg_take_text(row); break;
    case COLUMN_STR:
    case COLUMN_BYTES: *(struct str *)field = pg_take_str(row); break;
    case COLUMN_INT64: *(int64_t *)field = pg_take_int(row); break;
    case COLUMN_MOMENT: *(int64_t *)field = pg_take_moment(row); break;
    case COLUMN_INT: *(int *)field = (int)pg_take_int(row); break;
    case COLUMN_BOOL: *(bool *)field = pg_take_int(row) != 0; break;
    case COLUMN_DIGEST:
        if (!pg_take_digest(row, field))
            row->strange = column->name;
        break;
    case COLUMN_BASE_HASH:
        if (!pg_take_digest(row, field))
            *(struct digest *)field = ((struct operation *)record)->key_hash;
        break;
    case COLUMN_NAME: {
        int value = pg_take_name(row, column->names);
        *(int *)field = value < 0 ? 0 : value;
        break;
    }
    }
}
_Static_assert(sizeof(enum state) == sizeof(int), "enumerations are written and read as int");

enum err_code pg_take_record(struct pg_row *row, enum pg_record which, bool payload, void *record, size_t bytes,
                             struct err *err)
{
    memset(record, 0, bytes);
    for (size_t i = 0; i < pg_columns[which].count; i++)
        if (payload || !(pg_columns[which].list[i].flags & COLUMN_PAYLOAD))
            take_column(row, &pg_columns[which].list[i], record);
    return row->strange ? pg_strange(row->pg, row->strange, err) : ERR_NONE;
}

enum err_code pg_take_operation(struct pg *pg, const PGresult *result, int row, struct arena *arena, bool payload,
                                struct operation **out, struct err *err)
{
    *out = NULL;
    if (row >= PQntuples(result))
        return ERR_NONE;
    struct pg_row from = pg_row(pg, result, row, arena);
    struct operation *op = arena_alloc(arena, sizeof *op);
    if (pg_take_record(&from, RECORD_OPERATION, payload, op, sizeof *op, err) == 0)
        *out = op;
    return err->code;
}

enum err_code pg_take_tombstone(struct pg *pg, const PGresult *result, struct arena *arena, struct tombstone **out,
                                struct err *err)
{
    *out = NULL;
    if (PQntuples(result) == 0)
        return ERR_NONE;
    struct pg_row from = pg_row(pg, result, 0, arena);
    struct tombstone *stone = arena_alloc(arena, sizeof *stone);
    if (pg_take_record(&from, RECORD_TOMBSTONE, true, stone, sizeof *stone, err) == 0)
        *out = stone;
    return err->code;
}
