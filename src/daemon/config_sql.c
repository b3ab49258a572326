/* Databases and their tools in the registry file: what the option table says of them, and how they are compiled. */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#include <assert.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define HOUR         (INT64_C(60) * 60 * 1000)
#define DAY          (24 * HOUR)
#define STATEMENTS   32

static const struct option sql_options[] = {
    {"url", OPTION_TEXT, .required = true,
     .text = "`postgresql://user@host:port/database?sslmode=verify-full`, or `host=… dbname=…`: everything that libpq "
             "knows, several hosts included. `${env:NAME}` and `${file:PATH}` are expanded; a password only so."},
    {"table", OPTION_TEXT, .fallback = "onced_dedupe",
     .text = "Table of the records, also `schema.name`; made by `onced sql install`."},
    {"retention", OPTION_DURATION, .fallback = "30d", .min = HOUR, .max = 3650 * DAY,
     .text =
         "How long records are kept at least, and so how long an unclear attempt may be repeated. `onced sql prune` "
         "removes them a day later."},
    {"isolation", OPTION_CHOICE, .fallback = "read_committed",
     .choices = {"read_committed", "repeatable_read", "serializable"}, .text = "Of the transactions."},
    {"lock_timeout", OPTION_DURATION, .fallback = "5s", .min = 1, .max = HOUR,
     .text = "Longest wait for a lock, and for an earlier transaction of the same operation."},
    {"statement_timeout", OPTION_DURATION, .computed = "the provider's `timeout`", .min = 1, .max = HOUR,
     .text = "Of one statement, kept by the server."},
    {"not_processed", OPTION_LIST, .computed = "`[\"40\", \"53\", \"55\", \"57\"]`",
     .text =
         "SQLSTATEs, or classes of them, after which it is tried again; all others are refusals. Both mean that all "
         "was rolled back. Replaces the default."},
};
const struct option_section config_sql_section = {
    .name = "providers.NAME.sql",
    .text = "A PostgreSQL database; see sql.md.",
    .options = sql_options,
    .count = COUNT(sql_options),
};

static const struct option statement_options[] = {
    {"text", OPTION_TEXT, .required = true,
     .text = "One SELECT, INSERT, UPDATE, DELETE, MERGE, WITH, VALUES, TABLE, CALL or LOCK; class `read`: one that "
             "reads. Values only as `$1`, `$2`, …: nothing is ever put into the text."},
    {"parameters", OPTION_LIST, .computed = "none",
     .text =
         "What `$1`, `$2`, … stand for: texts with places (a place alone keeps its type, `\"{name?}\"` may be absent "
         "and is NULL then), or plain values. Lists and objects go as JSON."},
    {"expect_rows", OPTION_INTEGER, .computed = "any number", .min = 0, .max = 1000000000,
     .text = "How many rows it must meet; else all is rolled back and the call is refused."},
    {"refusal", OPTION_TEXT, .computed = "says the numbers", .text = "What callers are told then."},
};
static const struct option_section statement_section = {
    .name = "tools.NAME.sql.statements",
    .text = "One statement of the transaction.",
    .options = statement_options,
    .count = COUNT(statement_options),
};

static const struct option tool_sql_options[] = {
    {"statements", OPTION_SECTIONS, .required = true, .section = &statement_section, .max = STATEMENTS,
     .text = "What is executed, in this order, in one transaction."},
    {"result", OPTION_POINTER_OR_JQ, .computed = "the whole document",
     .text = "What callers get, from `{affected, rows, statements: [{affected, rows}]}`; the first two are the last "
             "statement's. `/rows/0`, `/affected`."},
    {"external_id", OPTION_POINTER_OR_JQ, .computed = "none", .text = "The effect's id in the same document."},
    {"noop", OPTION_LIST, .computed = "none",
     .text = "SQLSTATEs of a statement which say that it was already so: `[\"23505\"]`. All is rolled back."},
    {"noop_when", OPTION_JQ, .computed = "never", .text = "jq over the document: true says so, too."},
};
const struct option_section config_tool_sql_section = {
    .name = "tools.NAME.sql",
    .text = "The transaction that is the effect.",
    .options = tool_sql_options,
    .count = COUNT(tool_sql_options),
};

/* In place of a provider that is broken, so that its tools can be looked at too. */
static const struct sql_provider *assumed_sql(const struct loader *loader)
{
    struct loaded *loaded = loader->loaded;
    if (!loaded->assumed_sql) {
        struct arena *arena = &loaded->arena;
        struct problems none;
        struct provider core = {0};
        struct json *section = json_object(arena), *sql = json_object(arena);
        json_set(arena, sql, STR("url"), json_string(STR("postgresql://localhost")));
        json_set(arena, section, STR("sql"), *sql);
        problems_init(&none, arena);
        loaded->assumed_sql = sql_provider_new(section, "", &core, &none);
        assert(loaded->assumed_sql);
    }
    return loaded->assumed_sql;
}

/* A look-up claims the key itself and waits for whoever holds it: its word is final at once, where the file says
 * nothing else. */
void config_sql_compile(const struct loader *loader, const struct json *section, const char *pointer,
                        const struct loaded_provider *provider, struct loaded_tool *out)
{
    const struct sql_provider *sql = provider && provider->sql ? provider->sql : assumed_sql(loader);
    out->sql = sql_tool_new(section, pointer, sql, &out->core, loader->problems);
    out->core.adapter_tool = out->sql;
    out->core.has_lookup = tool_is_write(&out->core);
    if (!json_get(section, "settle"))
        out->core.reconcile.settle_ms = 0;
    if (!json_get(section, "absent_times"))
        out->core.reconcile.absent_times = 1;
}
