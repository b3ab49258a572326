#include "ledger/copy.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

/* The record in the target's table meta: {"from", "name", "snapshot", "table", "at": [what the last row was walked
 * by]}; at null: the table has not begun. */
struct progress {
    enum table_id table; /* TABLE_IDS: all are filled */
    const struct cell *at;
};

struct copy {
    struct bulk *from, *to;
    const struct copy_options *options;
    struct copy_report *report;
    struct arena arena; /* of the progress as it was found */
    struct progress progress;
    bool whole; /* the target was a whole copy before: it is only compared */
    struct err *err;
};

/* ---- the record ---- */

static void write_cell(struct json_out *out, const struct cell *cell)
{
    if (cell->kind == CELL_INT)
        json_out_int(out, cell->number);
    else
        json_out_str(out, cell->text);
}

static enum err_code record(struct copy *copy, enum table_id table, const struct cell *at)
{
    char from[BULK_FINGERPRINT_SIZE];
    struct json_out out;
    struct buf text;
    bulk_fingerprint(copy->from, from);
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "from", from);
    json_out_member_text(&out, "name", copy->from->name);
    json_out_member_bool(&out, "snapshot", copy->options->snapshot);
    json_out_member_text(&out, "table", table < TABLE_IDS ? table_name(table) : "");
    json_out_name(&out, "at");
    if (at) {
        json_out_array(&out);
        for (size_t i = 0; i < copy->from->order_count[table]; i++)
            write_cell(&out, &at[i]);
        json_out_end_array(&out);
    } else {
        json_out_null(&out);
    }
    json_out_end_object(&out);
    bulk_meta_set(copy->to, LEDGER_COPY, buf_str(&text), copy->err);
    buf_release(&text);
    return copy->err->code;
}

static const struct cell *read_at(struct copy *copy, const struct json *list)
{
    struct cell *at = arena_zero(&copy->arena, TABLE_ORDER_MAX * sizeof *at);
    for (uint32_t i = 0; i < list->count && i < TABLE_ORDER_MAX; i++) {
        const struct json *item = &list->items[i];
        if (item->type == JSON_NUMBER) {
            at[i].kind = CELL_INT;
            json_number_int64(item->text, &at[i].number);
        } else {
            at[i].kind = CELL_TEXT;
            at[i].text = arena_str(&copy->arena, item->text);
        }
    }
    return at;
}

static enum err_code read_record(struct copy *copy, struct str text)
{
    char from[BULK_FINGERPRINT_SIZE];
    struct json *object;
    bulk_fingerprint(copy->from, from);
    if (json_parse(&copy->arena, text, NULL, &object, copy->err)) {
        err_prefix(copy->err, "%s: the record of its copy: ", copy->to->name);
        return copy->err->code;
    }
    struct str table = json_get_text(object, "table"), name = json_get_text(object, "name");
    const struct json *at = json_get(object, "at");
    if (!str_is(json_get_text(object, "from"), from) || !str_is(name, copy->from->name))
        return err_set(copy->err, ERR_CONFLICT, "%s is being filled from %.*s: go on with that one, or empty it first",
                       copy->to->name, STR_ARG(name));
    if (json_get_bool(object, "snapshot", false) || copy->options->snapshot)
        return err_set(copy->err, ERR_CONFLICT,
                       "%s holds part of a copy of a snapshot, which can not be resumed: empty it and copy again",
                       copy->to->name);
    copy->progress.table = TABLE_IDS;
    for (int i = 0; i < TABLE_IDS; i++)
        if (str_is(table, table_name((enum table_id)i)))
            copy->progress.table = (enum table_id)i;
    if (at && at->type == JSON_ARRAY)
        copy->progress.at = read_at(copy, at);
    copy->report->resumed = true;
    return ERR_NONE;
}

/* ---- the beginning ---- */

static enum err_code check_empty(struct copy *copy)
{
    for (int i = 0; i < TABLE_IDS && !copy->err->code; i++) {
        struct row *rows;
        size_t count = 0;
        bulk_page(copy->to, (enum table_id)i, NULL, 1, &copy->arena, &rows, &count, copy->err);
        if (count > 0)
            err_set(copy->err, ERR_CONFLICT, "%s is not empty: it has %s; copy into a new file or database",
                    copy->to->name, table_name((enum table_id)i));
    }
    return copy->err->code;
}

/* The secret comes with the first transaction: digests that it keys are looked for from then on. */
static enum err_code begin_filling(struct copy *copy)
{
    struct str created, secret = {(const char *)copy->from->secret, LEDGER_SECRET_BYTES};
    if (check_empty(copy) || bulk_meta_get(copy->from, "created_ms", &copy->arena, &created, copy->err) ||
        bulk_begin(copy->to, true, copy->err))
        return copy->err->code;
    if (bulk_meta_set(copy->to, "secret", secret, copy->err) ||
        bulk_meta_set(copy->to, "created_ms", created, copy->err) || record(copy, TABLE_OPERATIONS, NULL))
        bulk_rollback(copy->to);
    else
        bulk_commit(copy->to, copy->err);
    return copy->err->code;
}

static enum err_code find_beginning(struct copy *copy)
{
    struct str text;
    if (bulk_meta_get(copy->to, LEDGER_COPY, &copy->arena, &text, copy->err))
        return copy->err->code;
    if (text.p)
        return read_record(copy, text);
    /* Only a copy has the same secret. Who was killed with the last commit behind him does not know that it is whole.
     */
    copy->whole = memcmp(copy->from->secret, copy->to->secret, LEDGER_SECRET_BYTES) == 0;
    return copy->whole ? ERR_NONE : begin_filling(copy);
}

/* ---- filling ---- */

static enum err_code put_page(struct copy *copy, enum table_id table, const struct row *rows, size_t count)
{
    if (bulk_begin(copy->to, true, copy->err))
        return copy->err->code;
    if (bulk_insert(copy->to, table, rows, count, copy->err) || record(copy, table, rows[count - 1].at))
        bulk_rollback(copy->to);
    else
        bulk_commit(copy->to, copy->err);
    return copy->err->code;
}

static void tell(const struct copy *copy, enum table_id table, int64_t rows, bool comparing)
{
    if (copy->options->progress)
        copy->options->progress(copy->options->user, table, rows, comparing);
}

static enum err_code fill_table(struct copy *copy, enum table_id table, const struct cell *after)
{
    struct bulk_walk walk;
    int64_t rows = 0;
    bulk_walk_begin(&walk, copy->from, table);
    walk.after = after;
    while (bulk_walk_next(&walk, copy->err)) {
        if (put_page(copy, table, walk.rows, walk.count))
            break;
        rows += (int64_t)walk.count;
        copy->report->copied += (int64_t)walk.count;
        walk.next = walk.count; /* the whole page is done */
        tell(copy, table, rows, false);
    }
    bulk_walk_end(&walk);
    return copy->err->code;
}

static enum err_code fill(struct copy *copy)
{
    struct progress from = copy->progress;
    for (int table = (int)from.table; table < TABLE_IDS; table++)
        if (fill_table(copy, (enum table_id)table, table == (int)from.table ? from.at : NULL))
            return copy->err->code;
    return ERR_NONE;
}

/* ---- comparing ---- */

static enum err_code sum_table(struct copy *copy, struct bulk *bulk, enum table_id table, struct rows_digest *out)
{
    struct bulk_walk walk;
    const struct row *row;
    bulk_walk_begin(&walk, bulk, table);
    while ((row = bulk_walk_next(&walk, copy->err)))
        rows_digest_add(out, &bulk->tables[table], row);
    bulk_walk_end(&walk);
    return copy->err->code;
}

static enum err_code compare(struct copy *copy)
{
    struct copy_report *report = copy->report;
    if (bulk_begin(copy->to, false, copy->err))
        return copy->err->code;
    copy->from->mended = 0; /* counted once, over all rows */
    for (int i = 0; i < TABLE_IDS && !copy->err->code; i++) {
        enum table_id table = (enum table_id)i;
        if (sum_table(copy, copy->from, table, &report->from[i]) == 0)
            sum_table(copy, copy->to, table, &report->to[i]);
        tell(copy, table, report->to[i].rows, true);
    }
    report->mended = copy->from->mended;
    for (int i = 0; i < TABLE_IDS && !copy->err->code; i++)
        if (!rows_digest_equal(&report->from[i], &report->to[i]))
            report->differs = true;
    if (report->differs && copy->whole)
        err_set(copy->err, ERR_CONFLICT,
                "%s was copied from %s before, and one of them has been used since: it is not copied again",
                copy->to->name, copy->from->name);
    else if (report->differs)
        err_set(copy->err, ERR_CONFLICT,
                "%s and %s differ: the one was changed between two runs, or the other by hand; empty %s and copy again",
                copy->from->name, copy->to->name, copy->to->name);
    bulk_rollback(copy->to); /* it only read */
    return copy->err->code;
}

static enum err_code release_target(struct copy *copy)
{
    if (bulk_begin(copy->to, true, copy->err))
        return copy->err->code;
    if (bulk_derive(copy->to, copy->err) || bulk_meta_set(copy->to, LEDGER_COPY, STR_NONE, copy->err))
        bulk_rollback(copy->to);
    else
        bulk_commit(copy->to, copy->err);
    return copy->err->code ? copy->err->code : bulk_settle(copy->to, copy->err);
}

/* ---- all ---- */

enum err_code ledger_copy(struct bulk *from, struct bulk *to, const struct copy_options *options,
                          struct copy_report *out, struct err *err)
{
    struct copy copy = {.from = from, .to = to, .options = options, .report = out, .err = err};
    *out = (struct copy_report){0};
    arena_init(&copy.arena);
    from->storable = to->postgres && !from->postgres;
    if (bulk_begin(from, false, err) == 0) {
        if (find_beginning(&copy) == 0 && (copy.whole || fill(&copy) == 0) && compare(&copy) == 0 && !copy.whole)
            release_target(&copy);
        bulk_rollback(from); /* it only read */
    }
    arena_release(&copy.arena);
    return err->code;
}

void copy_digest(const struct rows_digest tables[TABLE_IDS], size_t n, char *out)
{
    struct str parts[TABLE_IDS];
    for (int i = 0; i < TABLE_IDS; i++)
        parts[i] = (struct str){(const char *)tables[i].sum, sizeof tables[i].sum};
    struct digest digest = digest_parts(parts, TABLE_IDS);
    digest_hex(&digest, n, out);
}
