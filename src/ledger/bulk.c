#include "ledger/bulk.h"

#include "base/pg_url.h"

#include <assert.h>
#include <stdlib.h>

enum err_code bulk_open(const char *where, enum bulk_use use, struct env *env, struct bulk **out,
                        enum bulk_trouble *trouble, struct err *err)
{
    *trouble = BULK_FINE;
    enum err_code code = pg_url_is(where) ? bulk_pg_open(where, use, env, out, trouble, err)
                                          : bulk_sqlite_open(where, use, env, out, trouble, err);
    if (code && *trouble == BULK_FINE)
        *trouble = BULK_OTHER;
    return code;
}

void bulk_close(struct bulk *bulk)
{
    if (bulk)
        bulk->ops->close(bulk);
}

enum err_code bulk_peek(const char *where, struct env *env, struct bulk_versions *out, enum bulk_trouble *trouble,
                        struct err *err)
{
    *trouble = BULK_FINE;
    enum err_code code =
        pg_url_is(where) ? bulk_pg_peek(where, env, out, trouble, err) : bulk_sqlite_peek(where, out, trouble, err);
    if (code && *trouble == BULK_FINE)
        *trouble = BULK_OTHER;
    return code;
}

enum err_code bulk_begin(struct bulk *bulk, bool writing, struct err *err)
{
    return bulk->ops->begin(bulk, writing, err);
}

enum err_code bulk_commit(struct bulk *bulk, struct err *err)
{
    return bulk->ops->commit(bulk, err);
}

void bulk_rollback(struct bulk *bulk)
{
    bulk->ops->rollback(bulk);
}

enum err_code bulk_page(struct bulk *bulk, enum table_id table, const struct cell *after, size_t limit,
                        struct arena *arena, struct row **rows, size_t *count, struct err *err)
{
    return bulk->ops->page(bulk, &bulk->tables[table], after, limit, arena, rows, count, err);
}

enum err_code bulk_find(struct bulk *bulk, enum table_id table, const char *const *columns, const struct cell *values,
                        size_t value_count, size_t limit, struct arena *arena, struct row **rows, size_t *count,
                        struct err *err)
{
    assert(value_count > 0 && value_count <= TABLE_ORDER_MAX);
    return bulk->ops->find(bulk, &bulk->tables[table], columns, values, value_count, limit, arena, rows, count, err);
}

enum err_code bulk_insert(struct bulk *bulk, enum table_id table, const struct row *rows, size_t count, struct err *err)
{
    return bulk->ops->insert(bulk, &bulk->tables[table], rows, count, err);
}

enum err_code bulk_number(struct bulk *bulk, const char *sql, int64_t *out, struct err *err)
{
    return bulk->ops->number(bulk, sql, out, err);
}

enum err_code bulk_by_state(struct bulk *bulk, int64_t out[STATE_COUNT], struct err *err)
{
    return bulk->ops->by_state(bulk, out, err);
}

enum err_code bulk_meta_get(struct bulk *bulk, const char *name, struct arena *arena, struct str *out, struct err *err)
{
    return bulk->ops->meta_get(bulk, name, arena, out, err);
}

enum err_code bulk_meta_set(struct bulk *bulk, const char *name, struct str value, struct err *err)
{
    return bulk->ops->meta_set(bulk, name, value, err);
}

enum err_code bulk_derive(struct bulk *bulk, struct err *err)
{
    return bulk->ops->derive(bulk, err);
}

enum err_code bulk_settle(struct bulk *bulk, struct err *err)
{
    return bulk->ops->settle(bulk, err);
}

enum err_code bulk_bytes(struct bulk *bulk, int64_t *out, struct err *err)
{
    return bulk->ops->bytes(bulk, out, err);
}

void bulk_fingerprint(const struct bulk *bulk, char out[BULK_FINGERPRINT_SIZE])
{
    const struct str parts[] = {STR("ledger"), {(const char *)bulk->secret, sizeof bulk->secret}};
    struct digest digest = digest_parts(parts, 2);
    digest_hex(&digest, (BULK_FINGERPRINT_SIZE - 1) / 2, out);
}

struct cell *bulk_at(const struct bulk *bulk, enum table_id table, const struct cell *at, struct arena *arena)
{
    size_t count = bulk->order_count[table];
    struct cell *copy = arena_alloc(arena, count * sizeof *copy);
    for (size_t i = 0; i < count; i++) {
        copy[i] = at[i];
        copy[i].text = arena_str(arena, at[i].text);
    }
    return copy;
}

/* ---- walks ---- */

void bulk_walk_begin(struct bulk_walk *walk, struct bulk *bulk, enum table_id table)
{
    *walk = (struct bulk_walk){.bulk = bulk, .table = table, .limit = BULK_LIMIT_MIN};
    arena_init(&walk->page);
    arena_init(&walk->place);
}

/* Pages grow while their rows are small. */
static void next_page(struct bulk_walk *walk, struct err *err)
{
    if (walk->count > 0) {
        arena_reset(&walk->place);
        walk->after = bulk_at(walk->bulk, walk->table, walk->rows[walk->count - 1].at, &walk->place);
        if (walk->page.bytes < BULK_PAGE_BYTES / 2 && 2 * walk->limit <= BULK_LIMIT_MAX)
            walk->limit *= 2;
        else if (walk->page.bytes > BULK_PAGE_BYTES && walk->limit > BULK_LIMIT_MIN)
            walk->limit /= 2;
    }
    arena_release(&walk->page); /* not reset: its size is that of the next page alone */
    arena_init(&walk->page);
    walk->next = walk->count = 0;
    if (bulk_page(walk->bulk, walk->table, walk->after, walk->limit, &walk->page, &walk->rows, &walk->count, err) ||
        walk->count == 0)
        walk->over = true;
}

const struct row *bulk_walk_next(struct bulk_walk *walk, struct err *err)
{
    if (walk->next == walk->count && !walk->over)
        next_page(walk, err);
    return walk->over || err->code ? NULL : &walk->rows[walk->next++];
}

void bulk_walk_end(struct bulk_walk *walk)
{
    arena_release(&walk->page);
    arena_release(&walk->place);
}
