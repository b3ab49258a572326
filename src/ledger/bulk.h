/* A ledger opened for work on all of its rows (verify.h, copy.h): one connection of its own, synchronous, no queue, no
 * commands. SQLite and PostgreSQL are the same from here on. Not for others but the command line. */
#ifndef LEDGER_BULK_H
#define LEDGER_BULK_H

#include "ledger/tables.h"

enum bulk_use {
    BULK_LOOK,   /* reads while daemons may be at work */
    BULK_TAKE,   /* reads, and nobody else has it: the lock file, or the lock that all gateways share */
    BULK_FILL,   /* the same for writing: made when it is not there */
    BULK_MIGRATE /* the same, and brought to this program's schema */
};

/* Why it can not be opened, beyond the error's code. */
enum bulk_trouble {
    BULK_FINE,
    BULK_IN_USE,      /* a daemon has it */
    BULK_NEWER,       /* a newer onced has migrated it */
    BULK_OLDER,       /* it must be migrated first */
    BULK_UNREACHABLE, /* no file there, no server, no database */
    BULK_UNFINISHED,  /* a copy into it has not ended */
    BULK_OTHER
};

struct bulk;

struct bulk_ops {
    enum err_code (*begin)(struct bulk *bulk, bool writing, struct err *err);
    enum err_code (*commit)(struct bulk *bulk, struct err *err); /* of reading: ends it */
    void (*rollback)(struct bulk *bulk);
    enum err_code (*page)(struct bulk *bulk, const struct table *table, const struct cell *after, size_t limit,
                          struct arena *arena, struct row **rows, size_t *count, struct err *err);
    enum err_code (*find)(struct bulk *bulk, const struct table *table, const char *const *columns,
                          const struct cell *values, size_t value_count, size_t limit, struct arena *arena,
                          struct row **rows, size_t *count, struct err *err);
    enum err_code (*insert)(struct bulk *bulk, const struct table *table, const struct row *rows, size_t count,
                            struct err *err);
    enum err_code (*number)(struct bulk *bulk, const char *sql, int64_t *out, struct err *err);
    enum err_code (*by_state)(struct bulk *bulk, int64_t out[STATE_COUNT], struct err *err);
    enum err_code (*meta_get)(struct bulk *bulk, const char *name, struct arena *arena, struct str *out,
                              struct err *err);
    enum err_code (*meta_set)(struct bulk *bulk, const char *name, struct str value, struct err *err);
    enum err_code (*derive)(struct bulk *bulk, struct err *err);
    enum err_code (*settle)(struct bulk *bulk, struct err *err);
    enum err_code (*bytes)(struct bulk *bulk, int64_t *out, struct err *err);
    void (*close)(struct bulk *bulk);
};

/* Embedded first in both implementations. */
struct bulk {
    const struct bulk_ops *ops;
    const char *name; /* for messages; never a password */
    bool postgres;
    struct table *tables;
    size_t order_count[TABLE_IDS];
    unsigned char secret[LEDGER_SECRET_BYTES];
    bool storable;  /* in: read texts as PostgreSQL can store them: UTF-8 without NUL, else U+FFFD … */
    int64_t mended; /* out: … and so many were changed */
};

/* where: a SQLite file's path or a PostgreSQL URL. With an error *trouble says of which kind. */
enum err_code bulk_open(const char *where, enum bulk_use use, struct env *env, struct bulk **out,
                        enum bulk_trouble *trouble, struct err *err);
void bulk_close(struct bulk *bulk); /* NULL is fine */

/* Which schema is there, 0 = none yet, and which this program knows; nothing is changed. */
struct bulk_versions {
    int there, known;
};
enum err_code bulk_peek(const char *where, struct env *env, struct bulk_versions *out, enum bulk_trouble *trouble,
                        struct err *err);

/* A transaction; of reading: one consistent state of all tables. */
enum err_code bulk_begin(struct bulk *bulk, bool writing, struct err *err);
enum err_code bulk_commit(struct bulk *bulk, struct err *err); /* rolls back when it fails */
void bulk_rollback(struct bulk *bulk);

/* The rows behind `after` (cells of the last row's `at`; NULL: from the first), in the order of the table, at most
 * limit or a few MiB of them, in arena; none: the end. Texts end in NUL. */
enum err_code bulk_page(struct bulk *bulk, enum table_id table, const struct cell *after, size_t limit,
                        struct arena *arena, struct row **rows, size_t *count, struct err *err);
/* The rows whose columns have these values; only by columns that an index begins with, or that of an operation's id. */
enum err_code bulk_find(struct bulk *bulk, enum table_id table, const char *const *columns, const struct cell *values,
                        size_t value_count, size_t limit, struct arena *arena, struct row **rows, size_t *count,
                        struct err *err);
enum err_code bulk_insert(struct bulk *bulk, enum table_id table, const struct row *rows, size_t count,
                          struct err *err);
/* One number from a statement that both databases understand; NULL is 0. */
enum err_code bulk_number(struct bulk *bulk, const char *sql, int64_t *out, struct err *err);
enum err_code bulk_by_state(struct bulk *bulk, int64_t out[STATE_COUNT], struct err *err);
/* The table meta; absent: no such name, in writing: it is removed. */
enum err_code bulk_meta_get(struct bulk *bulk, const char *name, struct arena *arena, struct str *out, struct err *err);
enum err_code bulk_meta_set(struct bulk *bulk, const char *name, struct str value, struct err *err);
/* Within a transaction: writes what follows from the rows. Outside of one: statistics for the planner, checkpoint. */
enum err_code bulk_derive(struct bulk *bulk, struct err *err);
enum err_code bulk_settle(struct bulk *bulk, struct err *err);
enum err_code bulk_bytes(struct bulk *bulk, int64_t *out, struct err *err);

/* Tells ledgers apart without telling the secret: 16 hex digits. */
#define BULK_FINGERPRINT_SIZE 17
void bulk_fingerprint(const struct bulk *bulk, char out[BULK_FINGERPRINT_SIZE]);

/* Row after row of a table. */
struct bulk_walk {
    struct bulk *bulk;
    enum table_id table;
    struct arena page, place; /* place: where the last page ended */
    const struct cell *after;
    struct row *rows;
    size_t count, next, limit;
    bool over;
};
void bulk_walk_begin(struct bulk_walk *walk, struct bulk *bulk, enum table_id table);
/* NULL: the end (or err). The row is good until the next call. */
const struct row *bulk_walk_next(struct bulk_walk *walk, struct err *err);
void bulk_walk_end(struct bulk_walk *walk);

/* A copy of what a table is walked by. */
struct cell *bulk_at(const struct bulk *bulk, enum table_id table, const struct cell *at, struct arena *arena);

/* ---- implementations (bulk_sqlite.c, bulk_pg.c) ---- */

#define BULK_PAGE_BYTES (4 << 20)
#define BULK_LIMIT_MIN  16
#define BULK_LIMIT_MAX  512

enum err_code bulk_sqlite_open(const char *path, enum bulk_use use, struct env *env, struct bulk **out,
                               enum bulk_trouble *trouble, struct err *err);
enum err_code bulk_pg_open(const char *url, enum bulk_use use, struct env *env, struct bulk **out,
                           enum bulk_trouble *trouble, struct err *err);
enum err_code bulk_sqlite_peek(const char *path, struct bulk_versions *out, enum bulk_trouble *trouble,
                               struct err *err);
enum err_code bulk_pg_peek(const char *url, struct env *env, struct bulk_versions *out, enum bulk_trouble *trouble,
                           struct err *err);

#endif
