/* Databases and the tools that are statements in them, as the registry file states them (docs/sql.md). */
#include "adapter/sql_parts.h"

#include "base/mem.h"
#include "base/pg_url.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND_MS INT64_C(1000)
#define HOUR_MS   (3600 * SECOND_MS)
#define DAY_MS    (24 * HOUR_MS)

/* ---- life ---- */

void sql_provider_ref(struct sql_provider *provider)
{
    provider->refs++;
}

void sql_provider_unref(struct sql_provider *provider)
{
    if (!provider || --provider->refs > 0)
        return;
    char *texts[] = {provider->url,        provider->url_shown, provider->table,  provider->begin_write,
                     provider->begin_read, provider->claim,     provider->stored, provider->record};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    free(provider);
}

void sql_provider_free(struct sql_provider *provider)
{
    if (provider)
        provider->closed = true;
    sql_provider_unref(provider);
}

void sql_tool_ref(struct sql_tool *tool)
{
    tool->refs++;
}

static void statement_release(struct sql_statement *statement)
{
    for (size_t i = 0; i < statement->parameter_count; i++)
        http_node_release(&statement->parameters[i]);
    free(statement->parameters);
    free(statement->text);
    free(statement->refusal);
}

void sql_tool_unref(struct sql_tool *tool)
{
    if (!tool || --tool->refs > 0)
        return;
    for (size_t i = 0; i < tool->statement_count; i++)
        statement_release(&tool->statements[i]);
    free(tool->statements);
    jq_program_free(tool->noop_when);
    http_extract_release(&tool->external_id);
    http_extract_release(&tool->result);
    for (size_t i = 0; i < tool->redact_count; i++)
        free(tool->redact[i]);
    free(tool->redact);
    free(tool->name);
    sql_provider_unref(tool->provider);
    free(tool);
}

void sql_tool_free(struct sql_tool *tool)
{
    sql_tool_unref(tool);
}

void sql_provider_place(const struct sql_provider *provider, struct sql_place *out)
{
    *out = (struct sql_place){.url = provider->url, .table = provider->table};
}

/* ---- lists of SQLSTATEs ---- */

bool sql_states_has(const struct sql_states *states, const char *state)
{
    for (size_t i = 0; i < states->count; i++)
        if (*state && strncmp(state, states->items[i], strlen(states->items[i])) == 0)
            return true;
    return false;
}

/* Two characters are a class, five a state; digits and capitals. */
static bool is_state(struct str text)
{
    if (text.n != 2 && text.n != SQL_STATE_CHARS)
        return false;
    for (size_t i = 0; i < text.n; i++)
        if ((text.p[i] < '0' || text.p[i] > '9') && (text.p[i] < 'A' || text.p[i] > 'Z'))
            return false;
    return true;
}

static void states_read(struct section *section, const char *name, const char *const *fallback, struct sql_states *out)
{
    const struct json *value = section_member(section, name);
    for (size_t i = 0; !value && fallback && fallback[i]; i++)
        strcpy(out->items[out->count++], fallback[i]);
    if (!value)
        return;
    if (value->type != JSON_ARRAY || value->count > SQL_STATES_MAX) {
        section_problem(section, name, "expected a list of at most %d SQLSTATEs", SQL_STATES_MAX);
        return;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        const struct json *item = &value->items[i];
        if (item->type != JSON_STRING || !is_state(item->text))
            problems_add(section->problems,
                         arena_printf(section->problems->arena, "%s/%u", section_pointer(section, str_of(name)), i),
                         "expected an SQLSTATE as a text (\"23505\"), or a class of them (\"23\")");
        else
            memcpy(out->items[out->count++], item->text.p, item->text.n);
    }
}

/* ---- the provider ---- */

bool sql_table_valid(const char *table)
{
    unsigned dots = 0;
    bool begins = true;
    size_t part = 0;
    for (const char *p = table; *p; p++, part++) {
        bool letter = (*p >= 'a' && *p <= 'z') || *p == '_', digit = *p >= '0' && *p <= '9';
        if (*p == '.' && !begins && dots++ == 0)
            begins = true, part = 0;
        else if (letter || (digit && !begins))
            begins = false;
        else
            return false;
        if (part > 62) /* PostgreSQL cuts longer names */
            return false;
    }
    return !begins;
}

/* libpq's words may repeat what is wrong: not where it can be a secret. */
static void read_url(struct section *section, struct sql_provider *provider)
{
    const char *text = section_text(section, "url", NULL), *fault;
    bool referred = false, password;
    struct err err = {0};
    if (!text) {
        if (section->value && !section_member(section, "url"))
            section_problem(section, "url", "is missing, expected for example ${env:DATABASE_URL}");
        return;
    }
    if (http_secret_expand(text, &provider->url, &referred, &err) != ERR_NONE) {
        section_problem(section, "url", "%s", err.text);
        return;
    }
    provider->url_shown = mem_copy_text(pg_url_shown(provider->url, section->problems->arena, &fault, &password));
    bool looks = strncmp(provider->url, "postgres", 8) == 0 || strchr(provider->url, '=');
    if (!looks)
        section_problem(section, "url", "is no connection string, expected postgresql://user@host:port/database");
    else if (fault)
        section_problem(section, "url", "is not understood%s%s", referred ? "" : ": ", referred ? "" : fault);
    else if (password && !referred)
        section_problem(section, "url", "holds a password: give it by reference, ${env:NAME} or ${file:PATH}");
}

/* Names are valid and numbers are ours: nothing of a call is ever part of a statement's text. */
static char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *text_of(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        mem_exhausted("a statement");
    va_end(args);
    return text;
}

/* synchronous_commit off would let an answered COMMIT be lost in a crash; what is stricter than on stays. */
static void make_statements(struct sql_provider *p)
{
    static const char *const levels[] = {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"};
    const char *level = levels[p->isolation], *table = p->table;
    int64_t gone_ms = p->timeout_ms; /* a session whose client is gone without a word holds its locks no longer */
    p->begin_write =
        text_of("BEGIN ISOLATION LEVEL %s; SET LOCAL lock_timeout = %" PRId64 "; SET LOCAL statement_timeout = %" PRId64
                "; SET LOCAL idle_in_transaction_session_timeout = %" PRId64
                "; SELECT set_config('synchronous_commit', 'on', true) WHERE "
                "current_setting('synchronous_commit') = 'off'",
                level, p->lock_timeout_ms, p->statement_timeout_ms, gone_ms);
    p->begin_read =
        text_of("BEGIN ISOLATION LEVEL %s READ ONLY; SET LOCAL lock_timeout = %" PRId64
                "; SET LOCAL statement_timeout = %" PRId64 "; SET LOCAL idle_in_transaction_session_timeout = %" PRId64,
                level, p->lock_timeout_ms, p->statement_timeout_ms, gone_ms);
    p->claim = text_of("INSERT INTO %s (provider_key, tool, operation, fingerprint, expires_at) VALUES ($1, $2, $3, "
                       "$4, now() + %" PRId64 " * interval '1 millisecond') ON CONFLICT DO NOTHING",
                       table, p->retention_ms + SQL_RETENTION_SLACK_MS);
    p->stored = text_of("SELECT fingerprint, result, external_id FROM %s WHERE provider_key = $1", table);
    p->record = text_of("UPDATE %s SET result = $2, external_id = $3 WHERE provider_key = $1", table);
}

static void read_sql(struct section *parent, struct sql_provider *provider)
{
    static const char *const isolations[] = {"read_committed", "repeatable_read", "serializable", NULL};
    static const char *const again[] = {"40", "53", "55", "57", NULL};
    struct section section;
    section_open(&section, section_member(parent, "sql"), section_pointer(parent, STR("sql")), parent->problems);
    read_url(&section, provider);
    const char *table = section_text(&section, "table", SQL_TABLE_DEFAULT);
    if (!sql_table_valid(table))
        section_problem(&section, "table", "expected a name of a-z, 0-9 and _, or schema.name");
    provider->table = mem_copy_text(table);
    provider->retention_ms = section_ms(&section, "retention", 30 * DAY_MS, HOUR_MS, 3650 * DAY_MS);
    provider->isolation = (enum sql_isolation)section_choice(&section, "isolation", isolations, SQL_READ_COMMITTED);
    provider->lock_timeout_ms = section_ms(&section, "lock_timeout", 5 * SECOND_MS, 1, HOUR_MS);
    provider->statement_timeout_ms = section_ms(&section, "statement_timeout", provider->timeout_ms, 1, HOUR_MS);
    states_read(&section, "not_processed", again, &provider->not_processed);
    section_close(&section);
}

struct sql_provider *sql_provider_new(const struct json *value, const char *pointer, struct provider *core,
                                      struct problems *problems)
{
    size_t errors = problems->errors;
    struct sql_provider *provider = mem_zero(sizeof *provider);
    struct section section;
    provider->refs = 1;
    section_open(&section, value, pointer, problems);
    core->timeout_ms = provider->timeout_ms = section_ms(&section, "timeout", 10 * SECOND_MS, 1, HOUR_MS);
    core->connect_timeout_ms = provider->connect_timeout_ms =
        section_ms(&section, "connect_timeout", 5 * SECOND_MS, 1, HOUR_MS);
    read_sql(&section, provider);
    core->kind = PROVIDER_SQL;
    core->key_honoured = true;
    core->key_format = KEY_FORMAT_OPERATION_ID;
    core->key_retention_ms = provider->retention_ms;
    core->connections_max = (unsigned)section_int(&section, "connections", 8, 1, 1024);
    core->queue_max = (unsigned)section_int(&section, "queue", 4096, 1, 1000000);
    provider->answer_bytes_max =
        section_bytes(&section, "answer_bytes_max", (size_t)1024 * 1024, 1024, HTTP_ANSWER_BYTES_MAX);
    http_limits_read(&section, core);
    section_close(&section);
    if (problems->errors == errors) {
        make_statements(provider);
        return provider;
    }
    sql_provider_free(provider);
    return NULL;
}

/* ---- tools ---- */

static void read_parameters(struct section *section, struct sql_statement *out)
{
    const struct json *value = section_member(section, "parameters");
    if (!value)
        return;
    if (value->type != JSON_ARRAY || value->count > SQL_PARAMETERS_MAX) {
        section_problem(section, "parameters", "expected a list of at most %d values, the first is $1",
                        SQL_PARAMETERS_MAX);
        return;
    }
    struct section list = {.pointer = section_pointer(section, STR("parameters")), .problems = section->problems};
    out->parameters = mem_zero(sizeof *out->parameters * (value->count + 1));
    for (uint32_t i = 0; i < value->count; i++)
        http_node_read(&list, arena_printf(section->problems->arena, "%u", i), &value->items[i],
                       &out->parameters[out->parameter_count++]);
}

static void read_text(struct section *section, bool write, struct sql_statement *out)
{
    const char *text = section_text(section, "text", NULL);
    struct sql_scan scan;
    if (!text) {
        if (section->value && !section_member(section, "text"))
            section_problem(section, "text", "is missing, expected for example UPDATE … WHERE id = $1");
        return;
    }
    out->text = mem_copy_text(text);
    sql_scan(str_of(text), &scan);
    const char *fault = sql_statement_fault(&scan, write);
    if (fault)
        section_problem(section, "text", "%s", fault);
    else if (strlen(text) > SQL_STATEMENT_BYTES_MAX)
        section_problem(section, "text", "has more than %d bytes", SQL_STATEMENT_BYTES_MAX);
    else if (scan.parameters != out->parameter_count)
        section_problem(section, "text", "uses %u parameters ($1, $2, …), but %zu are given", scan.parameters,
                        out->parameter_count);
}

static void read_statement(const struct json *value, const char *pointer, bool write, struct problems *problems,
                           struct sql_statement *out)
{
    struct section section;
    section_open(&section, value, pointer, problems);
    read_parameters(&section, out);
    read_text(&section, write, out);
    out->expect_rows = section_int(&section, "expect_rows", -1, 0, 1000000000);
    const char *refusal = section_text(&section, "refusal", NULL);
    out->refusal = mem_copy_text(refusal);
    if (refusal && out->expect_rows < 0)
        section_problem(&section, "refusal", "needs expect_rows: what should it tell of?");
    section_close(&section);
}

static void read_statements(struct section *section, struct sql_tool *tool)
{
    const struct json *value = section_member(section, "statements");
    if (!value || value->type != JSON_ARRAY || value->count == 0 || value->count > SQL_STATEMENTS_MAX) {
        section_problem(section, "statements", "expected a list of 1 to %d statements: {text, parameters}",
                        SQL_STATEMENTS_MAX);
        return;
    }
    tool->statements = mem_zero(sizeof *tool->statements * value->count);
    for (uint32_t i = 0; i < value->count; i++) {
        const char *pointer =
            arena_printf(section->problems->arena, "%s/%u", section_pointer(section, STR("statements")), i);
        read_statement(&value->items[i], pointer, tool->write, section->problems,
                       &tool->statements[tool->statement_count++]);
    }
}

static void read_tool(struct section *parent, struct sql_tool *tool)
{
    struct section section;
    const struct json *value = section_member(parent, "sql");
    section_open(&section, value, section_pointer(parent, STR("sql")), parent->problems);
    if (!value) {
        section_problem(parent, "sql", "is missing, expected at least statements");
        return;
    }
    read_statements(&section, tool);
    states_read(&section, "noop", NULL, &tool->noop);
    tool->noop_when = http_jq_read(&section, "noop_when");
    http_extract_read(&section, "external_id", NULL, &tool->external_id);
    http_extract_read(&section, "result", "", &tool->result);
    if (!tool->write && (tool->noop.count || tool->noop_when))
        section_problem(&section, tool->noop.count ? "noop" : "noop_when", "has no meaning for class read");
    section_close(&section);
}

/* Everything else that it could be called would promise less than it is, or more. */
static void check_class(struct section *section, const struct tool *core)
{
    if (core->class != CLASS_INTERNAL_WRITE && core->class != CLASS_READ)
        section_problem(section, "class",
                        "is %s, but a transaction that holds its own record is exactly once by itself: expected "
                        "internal_write, or read",
                        tool_class_name(core->class));
}

struct sql_tool *sql_tool_new(const struct json *value, const char *pointer, const struct sql_provider *provider,
                              const struct tool *core, struct problems *problems)
{
    size_t errors = problems->errors;
    struct sql_tool *tool = mem_zero(sizeof *tool);
    struct section section;
    tool->refs = 1;
    /* the caller lends its provider; transactions on the wire need it for longer */
    tool->provider = (struct sql_provider *)provider;
    sql_provider_ref(tool->provider);
    tool->write = tool_is_write(core);
    tool->name = mem_copy_text(core->name ? core->name : "");
    tool->redact = mem_zero(sizeof *tool->redact * (core->redact_count + 1));
    for (size_t i = 0; i < core->redact_count; i++)
        tool->redact[tool->redact_count++] = mem_copy_text(core->redact_pointers[i]);
    section_open(&section, value, pointer, problems);
    /* leases and what a session may leave behind go by the provider's time-out: no transaction may run longer */
    tool->timeout_ms = section_ms(&section, "timeout", provider->timeout_ms, 1, HOUR_MS);
    if (tool->timeout_ms > provider->timeout_ms)
        section_problem(&section, "timeout", "is longer than the provider's timeout");
    check_class(&section, core);
    read_tool(&section, tool);
    if (problems->errors == errors)
        return tool;
    sql_tool_free(tool);
    return NULL;
}
