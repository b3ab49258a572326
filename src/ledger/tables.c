#include "ledger/tables.h"

#include "ledger/pg_store.h" /* the records' columns */

#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>

static const char *const names[TABLE_IDS] = {
    [TABLE_OPERATIONS] = "operations", [TABLE_HISTORY] = "history",
    [TABLE_INCIDENTS] = "incidents",   [TABLE_TOMBSTONES] = "tombstones",
    [TABLE_PRINCIPALS] = "principals", [TABLE_COUNTERS] = "counters",
    [TABLE_INBOX] = "inbox",           [TABLE_INBOX_COUNTS] = "inbox_counts",
    [TABLE_ENTITIES] = "entities",     [TABLE_ENTITY_WAITS] = "entity_waits",
    [TABLE_WINDOWS] = "windows",       [TABLE_BUDGET_SLICES] = "budget_slices",
};

const char *table_name(enum table_id id)
{
    return names[id];
}

/* ---- values ---- */

struct cell cell_int(int64_t number)
{
    return (struct cell){.kind = CELL_INT, .number = number};
}

struct cell cell_text(const char *text)
{
    return (struct cell){.kind = text ? CELL_TEXT : CELL_NULL, .text = str_of(text)};
}

int cell_compare(const struct cell *a, const struct cell *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->kind == CELL_INT)
        return a->number < b->number ? -1 : a->number > b->number;
    size_t shorter = a->text.n < b->text.n ? a->text.n : b->text.n;
    int order = shorter ? memcmp(a->text.p, b->text.p, shorter) : 0;
    return order ? order : a->text.n < b->text.n ? -1 : a->text.n > b->text.n;
}

/* ---- columns ---- */

static void add(struct table *table, const char *name, enum cell_kind kind, int name_kind, bool required)
{
    assert(table->count < TABLE_COLUMNS_MAX);
    table->columns[table->count++] = (struct table_column){name, kind, name_kind, required};
}

static enum cell_kind kind_of(enum column_kind kind)
{
    switch (kind) {
    case COLUMN_ID:
    case COLUMN_TEXT:
    case COLUMN_STR:
    case COLUMN_NAME: return CELL_TEXT;
    case COLUMN_BYTES:
    case COLUMN_DIGEST:
    case COLUMN_BASE_HASH: return CELL_BYTES;
    case COLUMN_INT64:
    case COLUMN_MOMENT:
    case COLUMN_INT:
    case COLUMN_BOOL: return CELL_INT;
    }
    return CELL_NULL;
}

static void add_record(struct table *table, enum pg_record which)
{
    const struct columns *columns = &pg_columns[which];
    for (size_t i = 0; i < columns->count; i++) {
        const struct column *column = &columns->list[i];
        add(table, column->name, kind_of(column->kind), column->kind == COLUMN_NAME ? (int)column->names : -1,
            (column->flags & COLUMN_REQUIRED) != 0);
    }
}

/* "name" or "name?" (may be NULL), all of one kind. */
static void add_list(struct table *table, enum cell_kind kind, const char *const *list)
{
    for (; *list; list++)
        add(table, *list, kind, -1, true);
}

static void add_inbox(struct table *table)
{
    static const char *const texts[] = {"id", "source", "event", "status", "outcome", "match", "forward", NULL};
    static const char *const optional[] = {"type", "value", "external_id", "operation", "result", "forward_detail"};
    static const char *const numbers[] = {
        "created_ms",      "received_ms",   "settled_ms",    "duplicates",       "duplicate_ms",
        "retain_until_ms", "forward_tries", "forward_at_ms", "forward_until_ms", NULL};
    add_list(table, CELL_TEXT, texts);
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        add(table, optional[i], CELL_TEXT, -1, false);
    add_list(table, CELL_INT, numbers);
    add(table, "body", CELL_BYTES, -1, false);
}

static void add_columns(struct table *table)
{
    static const char *const
        history_key[] = {"operation", "tenant", NULL},
        *const entity_key[] = {"tenant", "type", "id", NULL}, *const counts[] = {"events",  "duplicates", "applied",
                                                                                 "ignored", "dropped",    NULL},
        *const window_key[] = {"tenant", "key", "operation", NULL}, *const window_times[] = {"at_ms", "until_ms", NULL},
        *const slice_key[] = {"tenant", "budget", "subject", "key", NULL},
        *const slice_times[] = {"start_ms", "until_ms", "over_ms", NULL};
    switch (table->id) {
    case TABLE_OPERATIONS: /* the record first: row_read_operation goes by it */
        add_record(table, RECORD_OPERATION);
        add(table, "open", CELL_INT, -1, true);
        add(table, "repeat_hash", CELL_INT, -1, true);
        add(table, "admitted_state", CELL_TEXT, NAME_STATE, false);
        add(table, "admitted_reason", CELL_TEXT, NAME_REASON, false);
        add(table, "first_attempt", CELL_TEXT, -1, false);
        return;
    case TABLE_HISTORY: /* as row_read_history reads it */
        add_list(table, CELL_TEXT, history_key);
        add(table, "sequence", CELL_INT, -1, true);
        add_record(table, RECORD_EVENT);
        add_record(table, RECORD_ATTEMPT);
        return;
    case TABLE_INCIDENTS: add_record(table, RECORD_INCIDENT); return;
    case TABLE_TOMBSTONES: add_record(table, RECORD_TOMBSTONE); return;
    case TABLE_PRINCIPALS: add_record(table, RECORD_TOKEN); return;
    case TABLE_COUNTERS:
        add(table, "state", CELL_TEXT, NAME_STATE, true);
        add(table, "operations", CELL_INT, -1, true);
        return;
    case TABLE_INBOX: add_inbox(table); return;
    case TABLE_INBOX_COUNTS:
        add(table, "source", CELL_TEXT, -1, true);
        add_list(table, CELL_INT, counts);
        return;
    case TABLE_ENTITIES:
        add_list(table, CELL_TEXT, entity_key);
        add(table, "holder", CELL_TEXT, -1, false);
        add(table, "held_ms", CELL_INT, -1, true);
        add(table, "rev", CELL_INT, -1, true);
        add(table, "attributes", CELL_TEXT, -1, false);
        add(table, "override", CELL_TEXT, -1, false);
        return;
    case TABLE_ENTITY_WAITS:
        add_list(table, CELL_TEXT, entity_key);
        add(table, "ticket", CELL_INT, -1, true);
        add(table, "operation", CELL_TEXT, -1, true);
        return;
    case TABLE_WINDOWS:
        add_list(table, CELL_TEXT, window_key);
        add_list(table, CELL_INT, window_times);
        return;
    case TABLE_BUDGET_SLICES:
        add_list(table, CELL_TEXT, slice_key);
        add_list(table, CELL_INT, slice_times);
        add(table, "amount", CELL_TEXT, -1, true);
        return;
    case TABLE_IDS: break;
    }
}

struct table *tables_new(void)
{
    struct table *tables = mem_zero(TABLE_IDS * sizeof *tables);
    for (int i = 0; i < TABLE_IDS; i++) {
        tables[i].id = (enum table_id)i;
        tables[i].name = names[i];
        add_columns(&tables[i]);
    }
    return tables;
}

size_t table_column(const struct table *table, const char *name)
{
    size_t i = 0;
    while (i < table->count && strcmp(table->columns[i].name, name) != 0)
        i++;
    assert(i < table->count);
    return i;
}

/* ---- rows as records ---- */

static void set_strange(struct strange *strange, const char *column, const struct cell *cell, const char *expected)
{
    if (!strange->column)
        *strange = (struct strange){column, cell->kind == CELL_NULL ? STR("NULL") : cell->text, expected};
}

static void take_id(const struct column *column, const struct cell *cell, void *field, struct strange *strange)
{
    if (cell->text.n >= OPERATION_ID_SIZE)
        set_strange(strange, column->name, cell, "an id");
    else if (cell->kind == CELL_TEXT)
        memcpy(field, cell->text.p, cell->text.n + 1);
}

static void take_digest(const struct column *column, const struct cell *cell, void *record, struct strange *strange)
{
    struct digest *field = (struct digest *)((char *)record + column->offset);
    if (cell->kind == CELL_BYTES && cell->text.n == DIGEST_BYTES)
        memcpy(field->b, cell->text.p, DIGEST_BYTES);
    else if (column->kind == COLUMN_BASE_HASH && cell->kind == CELL_NULL)
        *field = ((struct operation *)record)->key_hash;
    else
        set_strange(strange, column->name,
                    cell->kind == CELL_NULL ? cell : &(struct cell){.kind = CELL_TEXT, .text = STR("other bytes")},
                    "a SHA-256");
}

static void take(const struct column *column, const struct cell *cell, void *record, struct strange *strange)
{
    void *field = (char *)record + column->offset;
    if (cell->kind == CELL_NULL && column->flags & COLUMN_REQUIRED)
        set_strange(strange, column->name, cell, "a value");
    switch (column->kind) {
    case COLUMN_ID: take_id(column, cell, field, strange); break;
    case COLUMN_TEXT: *(const char **)field = cell->kind == CELL_TEXT ? cell->text.p : NULL; break;
    case COLUMN_STR:
    case COLUMN_BYTES: *(struct str *)field = cell->text; break;
    case COLUMN_INT64:
    case COLUMN_MOMENT: *(int64_t *)field = cell->number; break;
    case COLUMN_INT: *(int *)field = (int)cell->number; break;
    case COLUMN_BOOL: *(bool *)field = cell->number != 0; break;
    case COLUMN_DIGEST:
    case COLUMN_BASE_HASH: take_digest(column, cell, record, strange); break;
    case COLUMN_NAME: {
        int value = cell->kind == CELL_TEXT ? name_value(column->names, cell->text) : -1;
        if (value < 0 && cell->kind == CELL_TEXT)
            set_strange(strange, column->name, cell, name_kind_text(column->names));
        *(int *)field = value < 0 ? 0 : value;
        break;
    }
    }
}

static void read_record(enum pg_record which, const struct cell *cells, void *record, struct strange *strange)
{
    for (size_t i = 0; i < pg_columns[which].count; i++)
        take(&pg_columns[which].list[i], &cells[i], record, strange);
}

/* A name that may be absent. */
static bool read_name(const struct table *table, const struct row *row, const char *name, int *out,
                      struct strange *strange)
{
    size_t i = table_column(table, name);
    const struct cell *cell = &row->cells[i];
    if (cell->kind != CELL_TEXT)
        return false;
    int value = name_value((enum name_kind)table->columns[i].names, cell->text);
    if (value < 0)
        set_strange(strange, name, cell, name_kind_text((enum name_kind)table->columns[i].names));
    else
        *out = value;
    return value >= 0;
}

void row_read_operation(const struct table *table, const struct row *row, struct operation_row *out,
                        struct strange *strange)
{
    int state = 0, reason = 0;
    *out = (struct operation_row){0};
    *strange = (struct strange){0};
    read_record(RECORD_OPERATION, row->cells, &out->op, strange);
    out->open = row->cells[table_column(table, "open")].number;
    out->repeat_hash = row->cells[table_column(table, "repeat_hash")].number;
    out->attempt = row->cells[table_column(table, "first_attempt")].text.p;
    out->has_event = read_name(table, row, "admitted_state", &state, strange);
    read_name(table, row, "admitted_reason", &reason, strange);
    out->event = (struct event){
        .at_ms = out->op.created_ms,
        .cause = CAUSE_ADMITTED,
        .from = (enum state)state,
        .to = (enum state)state,
        .reason = (enum reason)reason,
        .actor = out->op.principal,
        .attempt = out->attempt ? 1 : 0,
    };
}

void row_read_history(const struct table *table, const struct row *row, struct history_row *out,
                      struct strange *strange)
{
    const struct cell *event = &row->cells[3], *attempt = event + pg_columns[RECORD_EVENT].count;
    *out = (struct history_row){.operation = row->cells[0].text, .tenant = row->cells[1].text};
    *strange = (struct strange){0};
    assert(table->id == TABLE_HISTORY);
    out->sequence = row->cells[2].number;
    out->has_event = event[1].kind != CELL_NULL;     /* cause */
    out->has_attempt = attempt[1].kind != CELL_NULL; /* attempt_id */
    if (out->has_event)
        read_record(RECORD_EVENT, event, &out->event, strange);
    if (out->has_attempt)
        read_record(RECORD_ATTEMPT, attempt, &out->attempt, strange);
}

void row_read_incident(const struct table *table, const struct row *row, struct incident *out, struct strange *strange)
{
    assert(table->id == TABLE_INCIDENTS);
    *out = (struct incident){0};
    *strange = (struct strange){0};
    read_record(RECORD_INCIDENT, row->cells, out, strange);
}

void row_read_tombstone(const struct table *table, const struct row *row, struct tombstone *out,
                        struct strange *strange)
{
    assert(table->id == TABLE_TOMBSTONES);
    *out = (struct tombstone){0};
    *strange = (struct strange){0};
    read_record(RECORD_TOMBSTONE, row->cells, out, strange);
}

void row_read_token(const struct table *table, const struct row *row, struct token *out, struct strange *strange)
{
    assert(table->id == TABLE_PRINCIPALS);
    *out = (struct token){0};
    *strange = (struct strange){0};
    read_record(RECORD_TOKEN, row->cells, out, strange);
}

/* ---- digests ---- */

static void add_cell(struct buf *text, const struct cell *cell)
{
    switch (cell->kind) {
    case CELL_NULL: buf_add_char(text, '-'); return;
    case CELL_INT: buf_printf(text, "i%lld;", (long long)cell->number); return;
    case CELL_TEXT:
    case CELL_BYTES:
        buf_printf(text, "%c%zu:", cell->kind == CELL_TEXT ? 't' : 'b', cell->text.n);
        buf_add_str(text, cell->text);
    }
}

static void add_up(unsigned char sum[DIGEST_BYTES], const struct digest *digest)
{
    unsigned carry = 0;
    for (int i = DIGEST_BYTES - 1; i >= 0; i--) {
        carry += sum[i] + (unsigned)digest->b[i];
        sum[i] = (unsigned char)carry;
        carry >>= 8;
    }
}

void rows_digest_add(struct rows_digest *digest, const struct table *table, const struct row *row)
{
    struct buf text;
    buf_init(&text, 0);
    buf_printf(&text, "%s:", table->name);
    for (size_t i = 0; i < table->count; i++)
        add_cell(&text, &row->cells[i]);
    struct digest one = digest_sha256(buf_str(&text));
    add_up(digest->sum, &one);
    digest->rows++;
    buf_release(&text);
}

bool rows_digest_equal(const struct rows_digest *a, const struct rows_digest *b)
{
    return a->rows == b->rows && memcmp(a->sum, b->sum, sizeof a->sum) == 0;
}
