/* Many rows in one statement: they go as one array whose elements are of a type of ours (sql/pg_v2.sql), in
 * PostgreSQL's binary form (array_recv, record_recv). */
#include "ledger/pg_store.h"

#include <stdlib.h>

#define MEMORY_KEPT (1 << 20)

static const enum pg_statement statements[PG_GROUPS] = {
    [PG_GROUP_MOVES] = PG_MOVE, [PG_GROUP_MARKS] = PG_MARK, [PG_GROUP_ADMISSIONS] = PG_ADMIT};

static void add_int32(struct buf *buf, uint32_t value)
{
    const char bytes[] = {(char)(value >> 24), (char)(value >> 16), (char)(value >> 8), (char)value};
    buf_add(buf, bytes, sizeof bytes);
}

static void add_header(struct buf *buf, Oid type, int rows)
{
    add_int32(buf, 1); /* dimension */
    add_int32(buf, 0); /* no element is NULL */
    add_int32(buf, type);
    add_int32(buf, (uint32_t)rows);
    add_int32(buf, 1); /* index of the first */
}

/* ---- one group ---- */

struct pg_group *pg_group_of(struct pg *pg, enum pg_group_kind kind, const char *tenant, struct pg_query *row)
{
    pg_query_in(row, pg, statements[kind], tenant);
    return &pg->groups[kind][row->partition];
}

int pg_group_add(struct pg_group *group, const struct pg_query *row)
{
    struct buf *buf = &group->rows;
    if (group->count == 0) {
        group->ticket = pg_ticket(row->pg);
        buf_reset(buf);
        add_header(buf, 0, 0); /* filled in when it is sent */
    }
    size_t begin = buf->n;
    add_int32(buf, 0);
    add_int32(buf, (uint32_t)row->count);
    for (int i = 0; i < row->count; i++) {
        add_int32(buf, row->types[i]);
        add_int32(buf, row->values[i] ? (uint32_t)row->lengths[i] : UINT32_MAX);
        if (row->values[i])
            buf_add(buf, row->values[i], (size_t)row->lengths[i]);
    }
    uint32_t bytes = (uint32_t)(buf->n - begin - 4);
    for (int i = 0; i < 4; i++)
        buf->p[begin + (size_t)i] = (char)(bytes >> (24 - 8 * i));
    return group->count++;
}

enum err_code pg_group_send(struct pg *pg, enum pg_group_kind kind, int partition, struct err *err)
{
    struct pg_group *group = &pg->groups[kind][partition];
    struct pg_query query;
    struct buf header;
    if (group->count == 0)
        return ERR_NONE;
    buf_init(&header, 0);
    add_header(&header, pg->row_types[kind], group->count);
    memcpy(group->rows.p, header.p, header.n);
    buf_release(&header);
    pg_query(&query, pg, statements[kind]);
    query.partition = partition;
    query.ticket = group->ticket;
    pg_put_rows(&query, buf_str(&group->rows));
    pg_ask(&query, err);
    group->count = 0; /* the next row begins a new one */
    if (group->rows.cap > MEMORY_KEPT)
        buf_release(&group->rows);
    return err->code;
}

enum err_code pg_group_row(struct pg *pg, int ticket, int at, const char *id, struct pg_row *row, bool *found,
                           struct err *err)
{
    const PGresult *result;
    *found = false;
    if (pg_answer(pg, ticket, &result, err))
        return err->code;
    int count = PQntuples(result);
    size_t length = strlen(id);
    /* They come in the order in which they were sent, as a rule, without those that were not written. */
    for (int i = 0; i < count && !*found; i++) {
        int number = (at + count - i) % count;
        if ((size_t)PQgetlength(result, number, 0) == length &&
            memcmp(PQgetvalue(result, number, 0), id, length) == 0) {
            *found = true;
            *row = pg_row(pg, result, number, &pg->scratch);
            row->column = 1;
        }
    }
    return ERR_NONE;
}

/* ---- those of a wave ---- */

void pg_groups_clear(struct pg *pg)
{
    for (int kind = 0; kind < PG_GROUPS; kind++)
        for (int partition = 0; partition <= PG_PARTITIONS; partition++)
            pg->groups[kind][partition].count = 0;
}

enum err_code pg_groups_send(struct pg *pg, struct err *err)
{
    for (int kind = 0; kind < PG_GROUPS; kind++)
        for (int partition = 0; partition <= PG_PARTITIONS; partition++)
            if (pg_group_send(pg, (enum pg_group_kind)kind, partition, err))
                return err->code;
    return ERR_NONE;
}

void pg_groups_release(struct pg *pg)
{
    for (int kind = 0; kind < PG_GROUPS; kind++)
        for (int partition = 0; partition <= PG_PARTITIONS; partition++)
            buf_release(&pg->groups[kind][partition].rows);
}

enum err_code pg_groups_learn(struct pg *pg, struct err *err)
{
    static const enum pg_group_kind asked[PG_GROUPS] = {PG_GROUP_MOVES, PG_GROUP_MARKS, PG_GROUP_ADMISSIONS};
    PGresult *result = NULL;
    if (pg_exec_rows(pg, "SELECT 'move_row'::regtype::oid, 'mark_row'::regtype::oid, 'admission_row'::regtype::oid", 0,
                     NULL, &result, err))
        return err->code;
    for (int i = 0; i < PG_GROUPS; i++)
        pg->row_types[asked[i]] = (Oid)strtoul(PQgetvalue(result, 0, i), NULL, 10);
    PQclear(result);
    return ERR_NONE;
}
