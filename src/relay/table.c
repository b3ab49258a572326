#include "relay/table.h"

#include <string.h>

#define NAME_BYTES_MAX 63

bool relay_name_valid(const char *name, bool dotted)
{
    size_t part = 0;
    for (const char *p = name; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || *p == '_', digit = *p >= '0' && *p <= '9';
        if (*p == '.' && dotted && part > 0) {
            dotted = false;
            part = 0;
        } else if ((letter || (digit && part > 0)) && part < NAME_BYTES_MAX) {
            part++;
        } else {
            return false;
        }
    }
    return part > 0;
}

void relay_table_write(struct buf *out, const char *table)
{
    const char *dot = strchr(table, '.');
    if (dot)
        buf_printf(out, "\"%.*s\".\"%s\"", (int)(dot - table), table, dot + 1);
    else
        buf_printf(out, "\"%s\"", table);
}

static const char *order_column(const struct relay_columns *columns)
{
    return columns->order[0] ? columns->order : columns->id;
}

/* Rows with these are before later ones of their entity, besides new ones. */
static void blocking_write(struct buf *out, const struct relay_settings *settings)
{
    buf_add_text(out, settings->order == RELAY_AFTER_COMPLETION ? ", 'admitted'" : "");
    buf_add_text(out, settings->on_refusal == RELAY_HOLD ? ", 'refused', 'failed_permanent', 'rejected'" : "");
}

static void column_or_null(struct buf *out, const char *name)
{
    if (name[0])
        buf_printf(out, ", o.\"%s\"::text", name);
    else
        buf_add_text(out, ", NULL::text");
}

/* In the order of enum row_column. */
static void select_write(struct buf *out, const struct relay_settings *settings)
{
    const struct relay_columns *c = &settings->columns;
    buf_printf(out, "SELECT o.\"%s\"::text, o.\"%s\"::text", c->id, c->tool);
    column_or_null(out, c->entity);
    column_or_null(out, c->run_id);
    column_or_null(out, c->tenant);
    buf_printf(out, ", octet_length(o.\"%s\"::text), o.\"%s\", o.\"%s\"::text FROM ", c->arguments, c->attempts,
               c->operation_id);
    relay_table_write(out, settings->table);
    buf_add_text(out, " o WHERE ");
}

static void due_write(struct buf *out, const struct relay_columns *c)
{
    buf_printf(out, " AND (o.\"%s\" IS NULL OR o.\"%s\" <= clock_timestamp())", c->next_at, c->next_at);
}

/* " AND no earlier row of the entity has one of these". */
static void nothing_before_write(struct buf *out, const struct relay_settings *settings, const char *first)
{
    const struct relay_columns *c = &settings->columns;
    const char *order = order_column(c);
    buf_add_text(out, " AND NOT EXISTS (SELECT 1 FROM ");
    relay_table_write(out, settings->table);
    buf_printf(out, " p WHERE p.\"%s\" = o.\"%s\" AND p.\"%s\" IN (%s", c->entity, c->entity, c->status, first);
    blocking_write(out, settings);
    buf_printf(out, ") AND p.\"%s\" < o.\"%s\")", order, order);
}

/* The lock of an entity's oldest row is the right to send any of the entity: whoever meets it looks for others. An
 * entity with a row in front that is locked has none for others, since rows leave 'new' at the end only. */
static void heads_write(struct buf *out, const struct relay_settings *settings)
{
    const struct relay_columns *c = &settings->columns;
    select_write(out, settings);
    buf_printf(out, "o.\"%s\" = 'new'", c->status);
    due_write(out, c);
    if (c->entity[0])
        nothing_before_write(out, settings, "'new'");
    buf_printf(out, " ORDER BY o.\"%s\" LIMIT $1 FOR UPDATE OF o SKIP LOCKED", order_column(c));
}

/* Not locked: that of the row in front is enough. */
static void followers_write(struct buf *out, const struct relay_settings *settings)
{
    const struct relay_columns *c = &settings->columns;
    select_write(out, settings);
    buf_printf(out, "o.\"%s\" = 'new' AND o.\"%s\" = ANY($2) AND o.\"%s\" <> ALL($3)", c->status, c->entity, c->id);
    if (settings->on_refusal == RELAY_HOLD || settings->order == RELAY_AFTER_COMPLETION)
        nothing_before_write(out, settings, "''");
    buf_printf(out, " ORDER BY o.\"%s\" LIMIT $1", order_column(c));
}

static void looks_write(struct buf *out, const struct relay_settings *settings)
{
    const struct relay_columns *c = &settings->columns;
    select_write(out, settings);
    buf_printf(out, "o.\"%s\" = 'admitted'", c->status);
    due_write(out, c);
    buf_printf(out, " ORDER BY o.\"%s\" LIMIT $1 FOR UPDATE OF o SKIP LOCKED", c->next_at);
}

static void arguments_write(struct buf *out, const struct relay_settings *settings)
{
    const struct relay_columns *c = &settings->columns;
    buf_printf(out, "SELECT o.\"%s\"::text, o.\"%s\"::text FROM ", c->id, c->arguments);
    relay_table_write(out, settings->table);
    buf_printf(out, " o WHERE o.\"%s\" = ANY($1)", c->id);
}

/* In the order of enum mark_parameter. A row that is decided stays as it is, whatever a late relay has to say. */
static void mark_write(struct buf *out, const struct relay_settings *settings, const char *id_type)
{
    const struct relay_columns *c = &settings->columns;
    buf_add_text(out, "UPDATE ");
    relay_table_write(out, settings->table);
    buf_printf(
        out,
        " o SET \"%s\" = v.status, \"%s\" = coalesce(v.operation, o.\"%s\"), \"%s\" = v.problem, \"%s\" = v.attempts,"
        " \"%s\" = clock_timestamp() + v.delay * interval '1 millisecond',"
        " \"%s\" = CASE WHEN v.admitted THEN coalesce(o.\"%s\", clock_timestamp()) ELSE o.\"%s\" END,"
        " \"%s\" = CASE WHEN v.ended THEN clock_timestamp() ELSE o.\"%s\" END"
        " FROM unnest($1::%s[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::bool[],"
        " $8::bool[]) AS v (id, status, operation, problem, attempts, delay, admitted, ended)"
        " WHERE o.\"%s\" = v.id AND o.\"%s\" IN ('new', 'admitted')",
        c->status, c->operation_id, c->operation_id, c->problem, c->attempts, c->next_at, c->admitted_at,
        c->admitted_at, c->admitted_at, c->ended_at, c->ended_at, id_type, c->id, c->status);
}

static void backlog_write(struct buf *out, const struct relay_settings *settings)
{
    buf_add_text(out, "SELECT count(*) FROM (SELECT 1 FROM ");
    relay_table_write(out, settings->table);
    buf_printf(out, " WHERE \"%s\" = 'new' LIMIT $1) x", settings->columns.status);
}

char *relay_statement(const struct relay_settings *settings, enum relay_statement which, const char *id_type)
{
    struct buf out;
    buf_init(&out, 0);
    switch (which) {
    case STATEMENT_HEADS: heads_write(&out, settings); break;
    case STATEMENT_FOLLOWERS: followers_write(&out, settings); break;
    case STATEMENT_LOOKS: looks_write(&out, settings); break;
    case STATEMENT_ARGUMENTS: arguments_write(&out, settings); break;
    case STATEMENT_MARK: mark_write(&out, settings, id_type); break;
    case STATEMENT_BACKLOG: backlog_write(&out, settings); break;
    case STATEMENT_COUNT: break;
    }
    return buf_detach(&out, NULL);
}

/* ---- the table itself ---- */

static void install_table(struct buf *out, const struct relay_settings *settings)
{
    const struct relay_columns *c = &settings->columns;
    buf_add_text(out, "CREATE TABLE IF NOT EXISTS ");
    relay_table_write(out, settings->table);
    buf_printf(out, " (\n    \"%s\" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,\n", c->id);
    if (c->order[0] && strcmp(c->order, c->id) != 0 && strcmp(c->order, "created_at") != 0)
        buf_printf(out, "    \"%s\" bigint GENERATED ALWAYS AS IDENTITY,\n", c->order);
    buf_printf(out, "    \"%s\" text NOT NULL,\n    \"%s\" jsonb NOT NULL DEFAULT '{}',\n", c->tool, c->arguments);
    const char *const optional[] = {c->entity, c->run_id, c->tenant};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (optional[i][0])
            buf_printf(out, "    \"%s\" text,\n", optional[i]);
    buf_printf(out,
               "    created_at timestamptz NOT NULL DEFAULT now(),\n"
               "    \"%s\" text NOT NULL DEFAULT 'new',\n    \"%s\" text,\n    \"%s\" text,\n"
               "    \"%s\" integer NOT NULL DEFAULT 0,\n"
               "    \"%s\" timestamptz,\n    \"%s\" timestamptz,\n    \"%s\" timestamptz\n);\n",
               c->status, c->operation_id, c->problem, c->attempts, c->next_at, c->admitted_at, c->ended_at);
}

/* Small ones: of rows that are still to be dealt with, and what can hold others back. */
static void install_indexes(struct buf *out, const struct relay_settings *settings, const char *name)
{
    const struct relay_columns *c = &settings->columns;
    buf_printf(out, "CREATE INDEX IF NOT EXISTS \"%.50s_new\" ON ", name);
    relay_table_write(out, settings->table);
    buf_printf(out, " (\"%s\") WHERE \"%s\" = 'new';\n", order_column(c), c->status);
    buf_printf(out, "CREATE INDEX IF NOT EXISTS \"%.50s_admitted\" ON ", name);
    relay_table_write(out, settings->table);
    buf_printf(out, " (\"%s\") WHERE \"%s\" = 'admitted';\n", c->next_at, c->status);
    if (!c->entity[0])
        return;
    buf_printf(out, "CREATE INDEX IF NOT EXISTS \"%.50s_entity\" ON ", name);
    relay_table_write(out, settings->table);
    buf_printf(out,
               " (\"%s\", \"%s\") WHERE \"%s\" IN ('new', 'admitted', 'refused', 'failed_permanent', 'rejected');\n",
               c->entity, order_column(c), c->status);
}

static void install_function(struct buf *out, const char *schema, int schema_n, const char *name, const char *what,
                             const char *body)
{
    buf_add_text(out, "CREATE OR REPLACE FUNCTION ");
    if (schema_n)
        buf_printf(out, "\"%.*s\".", schema_n, schema);
    buf_printf(out, "\"%.50s_%s\"() RETURNS trigger LANGUAGE plpgsql AS $$\n%s$$;\n", name, what, body);
}

/* The row's id is its identity: what it asks for must not change, since it may have been sent already. */
static void install_triggers(struct buf *out, const struct relay_settings *settings, const char *name)
{
    const struct relay_columns *c = &settings->columns;
    const char *dot = strchr(settings->table, '.');
    int schema_n = dot ? (int)(dot - settings->table) : 0;
    struct buf body;
    buf_init(&body, 0);
    const char *const asked[] = {c->id, c->tool, c->arguments, c->entity, c->run_id, c->tenant};
    install_function(
        out, settings->table, schema_n, name, "fixed",
        "BEGIN\n    RAISE EXCEPTION 'a row of the outbox is not changed: it may have been sent; insert another one';\n"
        "END");
    buf_printf(out, "CREATE OR REPLACE TRIGGER \"%.50s_fixed\" BEFORE UPDATE", name);
    for (size_t i = 0, n = 0; i < sizeof asked / sizeof *asked; i++)
        if (asked[i][0])
            buf_printf(out, "%s\"%s\"", n++ ? ", " : " OF ", asked[i]);
    buf_add_text(out, " ON ");
    relay_table_write(out, settings->table);
    buf_add_text(out, "\n    FOR EACH ROW WHEN (");
    for (size_t i = 0, n = 0; i < sizeof asked / sizeof *asked; i++)
        if (asked[i][0]) /* as texts: json has no equality */
            buf_printf(out, "%sOLD.\"%s\"::text IS DISTINCT FROM NEW.\"%s\"::text", n++ ? " OR " : "", asked[i],
                       asked[i]);
    buf_add_text(out, ") EXECUTE FUNCTION ");
    if (schema_n)
        buf_printf(out, "\"%.*s\".", schema_n, settings->table);
    buf_printf(out, "\"%.50s_fixed\"();\n", name);
    if (settings->channel[0]) {
        buf_printf(&body, "BEGIN\n    PERFORM pg_notify('%s', '');\n    RETURN NULL;\nEND", settings->channel);
        install_function(out, settings->table, schema_n, name, "told", body.p);
        buf_printf(out, "CREATE OR REPLACE TRIGGER \"%.50s_told\" AFTER INSERT ON ", name);
        relay_table_write(out, settings->table);
        buf_add_text(out, "\n    FOR EACH STATEMENT EXECUTE FUNCTION ");
        if (schema_n)
            buf_printf(out, "\"%.*s\".", schema_n, settings->table);
        buf_printf(out, "\"%.50s_told\"();\n", name);
    }
    buf_release(&body);
}

void relay_install_write(const struct relay_settings *settings, struct buf *out)
{
    const char *dot = strchr(settings->table, '.'), *name = dot ? dot + 1 : settings->table;
    install_table(out, settings);
    install_indexes(out, settings, name);
    install_triggers(out, settings, name);
}
