/* The tables of a ledger as lists of typed columns, the same for all SQL ledgers: for work on all rows (bulk.h), where
 * commands on single records (ledger.h) are not enough. What differs between the databases (numbers for names, places
 * for ids, counters per gateway) is taken out in reading and put back in writing, so that a row is the same row
 * wherever it lies. What follows from other rows (SQLite's table of doubts) is no part of it. Not for others. */
#ifndef LEDGER_TABLES_H
#define LEDGER_TABLES_H

#include "ledger/rows.h"

/* In the order in which they are copied: what others refer to comes first. */
enum table_id {
    TABLE_OPERATIONS,
    TABLE_HISTORY,
    TABLE_INCIDENTS,
    TABLE_TOMBSTONES,
    TABLE_PRINCIPALS,
    TABLE_COUNTERS,
    TABLE_INBOX,
    TABLE_INBOX_COUNTS,
    TABLE_ENTITIES,
    TABLE_ENTITY_WAITS,
    TABLE_WINDOWS,
    TABLE_BUDGET_SLICES,
    TABLE_IDS
};
const char *table_name(enum table_id id); /* "operations", … */

/* ---- values ---- */

enum cell_kind { CELL_NULL, CELL_INT, CELL_TEXT, CELL_BYTES };

struct cell {
    enum cell_kind kind;
    int64_t number;
    struct str text; /* TEXT, BYTES */
};

struct cell cell_int(int64_t number);
struct cell cell_text(const char *text); /* borrows; NULL gives NULL */
/* By kind, then as the databases sort it: numbers, bytes. */
int cell_compare(const struct cell *a, const struct cell *b);

#define TABLE_COLUMNS_MAX 80
#define TABLE_ORDER_MAX   6

/* cells: those of the table's columns, in their order; at: what the table is walked by, of the database at hand. */
struct row {
    struct cell *cells, *at;
};

/* ---- columns ---- */

struct table_column {
    const char *name;
    enum cell_kind kind;
    int names; /* enum name_kind of an enumeration (TEXT; SQLite stores its number), -1: none */
    bool required;
};

struct table {
    enum table_id id;
    const char *name;
    struct table_column columns[TABLE_COLUMNS_MAX];
    size_t count;
};

/* All tables; new with malloc, free with free(). */
struct table *tables_new(void);
/* Index of a column. It must be there. */
size_t table_column(const struct table *table, const char *name);

/* ---- rows as records ---- */

/* Where a row can not be understood: the column, what it holds, what was expected. NULL column: it can. */
struct strange {
    const char *column;
    struct str value;
    const char *expected;
};

/* What the row of an operation says besides the record: what follows from it, and its beginning (rows.h). */
struct operation_row {
    struct operation op;
    int64_t open, repeat_hash;
    bool has_event; /* … in the row */
    struct event event;
    const char *attempt; /* id of call attempt 1, or NULL */
};
/* Texts are those of the cells, which must end in NUL (as bulk.h's do). What is strange stays zero. */
void row_read_operation(const struct table *table, const struct row *row, struct operation_row *out,
                        struct strange *strange);

struct history_row {
    struct str operation, tenant; /* of SQLite's lines without operation: absent */
    int64_t sequence;
    bool has_event, has_attempt;
    struct event event;
    struct attempt attempt;
};
void row_read_history(const struct table *table, const struct row *row, struct history_row *out,
                      struct strange *strange);
void row_read_incident(const struct table *table, const struct row *row, struct incident *out, struct strange *strange);
void row_read_tombstone(const struct table *table, const struct row *row, struct tombstone *out,
                        struct strange *strange);
void row_read_token(const struct table *table, const struct row *row, struct token *out, struct strange *strange);

/* ---- digests ---- */

/* Over the rows of a table in any order: the sum of the digests of all of them. */
struct rows_digest {
    int64_t rows;
    unsigned char sum[DIGEST_BYTES];
};
void rows_digest_add(struct rows_digest *digest, const struct table *table, const struct row *row);
bool rows_digest_equal(const struct rows_digest *a, const struct rows_digest *b);

#endif
