/* The SQL adapter without a server: statements as written, sections, parameters, what errors prove. */
#include "support/sections.h"

#include "adapter/sql_parts.h"
#include "base/mem.h"
#include "base/ulid.h"

#include <stdlib.h>

#define OPERATION "op_01M8N7FXZ15E56XTVA8HVJEM36"

/* ---- statements as written ---- */

static void scanned(const char *text, const char *word, unsigned parameters, bool several, bool ended)
{
    struct sql_scan scan;
    sql_scan(str_of(text), &scan);
    if (strcmp(scan.word, word) != 0 || scan.parameters != parameters || scan.several != several ||
        !scan.unended != ended)
        fail_msg("%s: word %s, $%u, several %d, unended %s", text, scan.word, scan.parameters, scan.several,
                 scan.unended ? scan.unended : "-");
}

static void statements_are_scanned(void **state)
{
    (void)state;
    scanned("select $1", "SELECT", 1, false, true);
    scanned("  /* a /* nested; $9 */ comment */ -- $8; x\n update t set a=$2 where b=$1", "UPDATE", 2, false, true);
    scanned("SELECT '$3; it''s', \"a\"\"$4;\", $1;", "SELECT", 1, false, true);
    scanned("SELECT E'\\'; $3', $1", "SELECT", 1, false, true);
    scanned("SELECT 'E\\', $2", "SELECT", 2, false, true);
    scanned("SELECT $tag$ ; $5 $other$ $tag$, $$;$6$$, $2", "SELECT", 2, false, true);
    scanned("SELECT a$1, $12 FROM b", "SELECT", 12, false, true);
    scanned("SELECT 1; SELECT 2", "SELECT", 0, true, true);
    scanned("SELECT 1; -- that is all\n ; ", "SELECT", 0, false, true);
    scanned("(SELECT 1)", "SELECT", 0, false, true);
    scanned("SELECT 'open", "SELECT", 0, false, false);
    scanned("SELECT \"open", "SELECT", 0, false, false);
    scanned("SELECT 1 /* open", "SELECT", 0, false, false);
    scanned("SELECT $q$ open $r$", "SELECT", 0, false, false);
    scanned("", "", 0, false, true);
    scanned("ABCDEFGHIJKLMNOPQRSTUVWXYZ select", "ABCDEFGHIJKLMNO", 0, false, true);
}

static void only_what_cannot_end_the_transaction(void **state)
{
    static const char *const refused[] = {"COMMIT",
                                          "rollback",
                                          "BEGIN",
                                          "END",
                                          "ABORT",
                                          "SAVEPOINT a",
                                          "PREPARE TRANSACTION 'x'",
                                          "SET x = 1",
                                          "COPY t TO STDOUT",
                                          "VACUUM",
                                          "",
                                          "LISTEN a",
                                          "DO $$ x $$",
                                          "SELECT 1; COMMIT",
                                          "SELECT 'x",
                                          "CREATE TABLE a (b int)",
                                          "EXPLAIN SELECT 1"};
    static const char *const fine[] = {"SELECT 1", "WITH a AS (SELECT 1) SELECT * FROM a", "VALUES (1)", "TABLE a"};
    static const char *const writing[] = {"INSERT INTO a VALUES (1)", "UPDATE a SET b = 1", "delete from a",
                                          "MERGE INTO a …",           "CALL p()",           "LOCK TABLE a"};
    struct sql_scan scan;
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        sql_scan(str_of(refused[i]), &scan);
        if (!sql_statement_fault(&scan, true) || !sql_statement_fault(&scan, false))
            fail_msg("taken: %s", refused[i]);
    }
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        sql_scan(str_of(fine[i]), &scan);
        assert_null(sql_statement_fault(&scan, true));
        assert_null(sql_statement_fault(&scan, false));
    }
    for (size_t i = 0; i < sizeof writing / sizeof *writing; i++) {
        sql_scan(str_of(writing[i]), &scan);
        assert_null(sql_statement_fault(&scan, true));
        assert_non_null(sql_statement_fault(&scan, false));
    }
}

/* ---- a case: one provider, one tool ---- */

struct sql_case {
    struct arena arena;
    struct problems problems;
    struct provider core;
    struct tool tool;
    struct sql_provider *provider;
    struct sql_tool *sql;
    struct err err;
};

static void case_init(struct sql_case *c, enum tool_class class, const char *provider, const char *tool)
{
    *c = (struct sql_case){.tool = {.name = "t", .class = class, .provider = &c->core}};
    arena_init(&c->arena);
    problems_init(&c->problems, &c->arena);
    c->provider = sql_provider_new(parse(&c->arena, provider), "/providers/p", &c->core, &c->problems);
    if (c->provider)
        c->sql = sql_tool_new(parse(&c->arena, tool), "/tools/t", c->provider, &c->tool, &c->problems);
    c->tool.adapter_tool = c->sql;
}

static void case_release(struct sql_case *c)
{
    sql_tool_free(c->sql);
    sql_provider_free(c->provider);
    arena_release(&c->arena);
}

#define PROVIDER "{\"sql\":{\"url\":\"postgresql://u@127.0.0.1:5432/shop\"}}"
#define TOOL                                                                                                           \
    "{\"sql\":{\"statements\":[{\"text\":\"UPDATE a SET x = $1 WHERE id = $2\",\"parameters\":[\"{n}\",\"{id?}\"],"    \
    "\"expect_rows\":1},{\"text\":\"INSERT INTO b VALUES ($1, $2, $3)\",\"parameters\":[\"{$operation}\",\"no {n}\","  \
    "{\"who\":\"{id?}\",\"n\":7}]}],\"noop\":[\"23505\"]}}"

static void refused(const char *provider, const char *tool, enum tool_class class, const char *pointer,
                    const char *words)
{
    struct sql_case c;
    case_init(&c, class, provider, tool);
    expect_problem(&c.problems, pointer, words);
    case_release(&c);
}

#define SQL_PROVIDER(members) "{\"sql\":{\"url\":\"postgresql://h/d\"," members "}}"
#define SQL_TOOL(members)     "{\"sql\":{\"statements\":[" members "]}}"

static void sections(void **state)
{
    (void)state;
    refused("{\"sql\":{}}", TOOL, CLASS_INTERNAL_WRITE, "/providers/p/sql/url", "is missing");
    refused("{\"sql\":{\"url\":\"mysql://h\"}}", TOOL, CLASS_INTERNAL_WRITE, "/providers/p/sql/url",
            "no connection string");
    refused("{\"sql\":{\"url\":\"postgresql://h/d?nonsense=1\"}}", TOOL, CLASS_INTERNAL_WRITE, "/providers/p/sql/url",
            "nonsense");
    refused("{\"sql\":{\"url\":\"host=h password=x\"}}", TOOL, CLASS_INTERNAL_WRITE, "/providers/p/sql/url",
            "by reference");
    static const char *const tables[] = {"", "1a", "a.b.c", "a;b", "A", "a.", ".a", "a b", "\\\"a\\\""};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char provider[128];
        snprintf(provider, sizeof provider, SQL_PROVIDER("\"table\":\"%s\""), tables[i]);
        refused(provider, TOOL, CLASS_INTERNAL_WRITE, "/providers/p/sql/table", "");
    }
    refused(SQL_PROVIDER("\"not_processed\":[\"4\"]"), TOOL, CLASS_INTERNAL_WRITE, "/providers/p/sql/not_processed/0",
            "SQLSTATE");
    refused(SQL_PROVIDER("\"retention\":\"1s\""), TOOL, CLASS_INTERNAL_WRITE, "/providers/p/sql/retention", "");
    for (enum tool_class class = CLASS_EXTERNAL_IDEMPOTENT; class <= CLASS_EXTERNAL_IRREVERSIBLE; class ++)
        refused(PROVIDER, TOOL, class, "/tools/t/class", "internal_write, or read");
    refused(PROVIDER, "{}", CLASS_INTERNAL_WRITE, "/tools/t/sql", "missing");
    refused(PROVIDER, "{\"timeout\":\"1m\"}", CLASS_INTERNAL_WRITE, "/tools/t/timeout", "longer than the provider's");
    refused(PROVIDER, SQL_TOOL(""), CLASS_INTERNAL_WRITE, "/tools/t/sql/statements", "1 to 32");
    refused(PROVIDER, SQL_TOOL("{\"text\":\"SELECT $2\",\"parameters\":[1]}"), CLASS_INTERNAL_WRITE,
            "/tools/t/sql/statements/0/text", "uses 2 parameters");
    refused(PROVIDER, SQL_TOOL("{\"text\":\"SELECT 1\",\"parameters\":[1]}"), CLASS_INTERNAL_WRITE,
            "/tools/t/sql/statements/0/text", "uses 0 parameters");
    refused(PROVIDER, SQL_TOOL("{\"text\":\"SELECT 1\",\"refusal\":\"x\"}"), CLASS_INTERNAL_WRITE,
            "/tools/t/sql/statements/0/refusal", "expect_rows");
    refused(PROVIDER, TOOL, CLASS_READ, "/tools/t/sql/statements/0/text", "class read");
    refused(PROVIDER, SQL_TOOL("{\"text\":\"SELECT 1\",\"typo\":1}"), CLASS_INTERNAL_WRITE,
            "/tools/t/sql/statements/0/typo", "unknown");
}

static void defaults(void **state)
{
    struct sql_case c;
    (void)state;
    case_init(&c, CLASS_INTERNAL_WRITE, PROVIDER, TOOL);
    assert_non_null(c.sql);
    assert_int_equal(c.core.kind, PROVIDER_SQL);
    assert_true(c.core.key_honoured && tool_may_resend(&c.tool));
    assert_int_equal(c.core.key_retention_ms, INT64_C(30) * 24 * 3600 * 1000);
    assert_string_equal(c.provider->url_shown, "postgresql://127.0.0.1:5432/shop");
    expect_in(c.provider->claim, "INSERT INTO onced_dedupe ");
    expect_in(c.provider->claim, "now() + 2678400000 * interval"); /* 31 days: a day more than resends rely on */
    expect_in(c.provider->begin_write, "idle_in_transaction_session_timeout = 10000");
    expect_in(c.provider->begin_read, "READ ONLY");
    case_release(&c);
}

/* ---- parameters ---- */

static enum err_code build(struct sql_case *c, const char *arguments, struct sql_call *out)
{
    const struct adapter_call call = {.tool = &c->tool,
                                      .operation = OPERATION,
                                      .provider_key = OPERATION,
                                      .tenant = "default",
                                      .arguments = parse(&c->arena, arguments)};
    err_clear(&c->err);
    return sql_call_build(c->sql, &call, &c->arena, out, &c->err);
}

static void parameters(void **state)
{
    struct sql_case c;
    struct sql_call call, other;
    (void)state;
    case_init(&c, CLASS_INTERNAL_WRITE, PROVIDER, TOOL);
    assert_int_equal(build(&c, "{\"n\":5e3,\"id\":\"x'; DROP TABLE a; --\"}", &call), ERR_NONE);
    assert_string_equal(call.values[0].items[0], "5000");
    assert_string_equal(call.values[0].items[1], "x'; DROP TABLE a; --");
    assert_string_equal(call.values[1].items[0], OPERATION);
    assert_string_equal(call.values[1].items[1], "no 5e3");
    assert_string_equal(call.values[1].items[2], "{\"who\":\"x'; DROP TABLE a; --\",\"n\":7}");
    assert_int_equal(build(&c, "{\"id\":\"x'; DROP TABLE a; --\",\"n\":5000}", &other), ERR_NONE);
    assert_string_equal(call.fingerprint, other.fingerprint);
    assert_int_equal(build(&c, "{\"n\":70}", &other), ERR_NONE);
    assert_string_equal(other.values[0].items[0], "70");
    assert_null(other.values[0].items[1]);
    assert_string_equal(other.values[1].items[2], "{\"n\":7}");
    assert_string_not_equal(call.fingerprint, other.fingerprint);
    assert_int_equal(build(&c, "{\"n\":null}", &other), ERR_INVALID); /* NULL alone, but nothing within a text */
    expect_in(c.err.text, "statement 2, $2");
    assert_int_equal(build(&c, "{\"id\":\"x\"}", &other), ERR_INVALID);
    expect_in(c.err.text, "statement 1, $1");
    assert_int_equal(build(&c, "{\"n\":1,\"id\":\"a\\u0000b\"}", &other), ERR_INVALID);
    expect_in(c.err.text, "NUL");
    case_release(&c);
}

static void dry_runs_mask(void **state)
{
    static const char *const redact[] = {"/id"};
    struct sql_case c;
    struct buf text;
    struct json_out out;
    (void)state;
    case_init(&c, CLASS_INTERNAL_WRITE, PROVIDER, TOOL);
    sql_tool_free(c.sql);
    c.tool.redact_pointers = redact;
    c.tool.redact_count = 1;
    c.sql = sql_tool_new(parse(&c.arena, TOOL), "/tools/t", c.provider, &c.tool, &c.problems);
    const struct adapter_call call = {
        .tool = &c.tool, .operation = OPERATION, .arguments = parse(&c.arena, "{\"n\":1,\"id\":\"secret\"}")};
    buf_init(&text, 0);
    json_out_init(&out, &text);
    assert_int_equal(sql_call_describe(c.sql, &call, &out, &c.err), ERR_NONE);
    expect_in(text.p, "\"url\":\"postgresql://127.0.0.1:5432/shop\"");
    expect_in(text.p, "{\"text\":\"UPDATE a SET x = $1 WHERE id = $2\",\"parameters\":[1,\"***\"]}");
    assert_null(strstr(text.p, "secret"));
    buf_release(&text);
    case_release(&c);
}

/* ---- what errors prove ---- */

static enum outcome outcome_of(struct sql_case *c, enum sql_stage stage, const char *state, bool fatal,
                               const char **words)
{
    struct sql_fault fault = {.fatal = fatal, .message = "the server's words"};
    snprintf(fault.state, sizeof fault.state, "%s", state);
    return sql_fault_outcome(c->sql, stage, &fault, &c->arena, words);
}

static void errors_before_commit(void **state)
{
    static const enum sql_stage stages[] = {SQL_STAGE_BEGIN, SQL_STAGE_CLAIM, SQL_STAGE_STORED, SQL_STAGE_STATEMENT,
                                            SQL_STAGE_RECORD};
    static const char *const again[] = {"40001", "40P01", "53100", "53300", "55P03", "57014", "57P01"};
    struct sql_case c;
    const char *words = NULL;
    (void)state;
    case_init(&c, CLASS_INTERNAL_WRITE, PROVIDER, TOOL);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        for (size_t k = 0; k < sizeof again / sizeof *again; k++) {
            bool waits = stages[i] == SQL_STAGE_CLAIM && strcmp(again[k], "55P03") == 0;
            assert_int_equal(outcome_of(&c, stages[i], again[k], false, &words),
                             waits ? OUTCOME_KEY_IN_USE : OUTCOME_NOT_PROCESSED);
        }
        assert_int_equal(outcome_of(&c, stages[i], "0A000", false, &words),
                         stages[i] == SQL_STAGE_BEGIN ? OUTCOME_NOT_PROCESSED : OUTCOME_REFUSED);
        assert_int_equal(outcome_of(&c, stages[i], "", true, &words), OUTCOME_NOT_PROCESSED);
        assert_int_equal(sql_lost_outcome(stages[i], true), OUTCOME_NOT_PROCESSED);
        assert_int_equal(sql_lost_outcome(stages[i], false), OUTCOME_NOT_PROCESSED);
    }
    assert_int_equal(outcome_of(&c, SQL_STAGE_STATEMENT, "23505", false, &words), OUTCOME_NOOP);
    assert_int_equal(outcome_of(&c, SQL_STAGE_STATEMENT, "23503", false, &words), OUTCOME_REFUSED);
    assert_int_equal(outcome_of(&c, SQL_STAGE_STATEMENT, "42P01", false, &words), OUTCOME_REFUSED);
    assert_int_equal(outcome_of(&c, SQL_STAGE_CLAIM, "42P01", false, &words), OUTCOME_NOT_PROCESSED);
    expect_in(words, "onced sql install");
    assert_int_equal(outcome_of(&c, SQL_STAGE_CLAIM, "42501", false, &words), OUTCOME_NOT_PROCESSED);
    expect_in(words, "GRANT SELECT, INSERT, UPDATE ON onced_dedupe");
    assert_int_equal(outcome_of(&c, SQL_STAGE_CLAIM, "25006", false, &words), OUTCOME_NOT_PROCESSED);
    expect_in(words, "target_session_attrs=read-write");
    assert_int_equal(sql_lost_outcome(SQL_STAGE_CONNECT, true), OUTCOME_NOT_SENT);
    case_release(&c);
}

static void errors_at_commit(void **state)
{
    struct sql_case c;
    const char *words = NULL;
    (void)state;
    case_init(&c, CLASS_INTERNAL_WRITE, PROVIDER, TOOL);
    assert_int_equal(outcome_of(&c, SQL_STAGE_COMMIT, "23503", false, &words),
                     OUTCOME_REFUSED); /* deferred constraint */
    assert_int_equal(outcome_of(&c, SQL_STAGE_COMMIT, "40001", false, &words), OUTCOME_NOT_PROCESSED);
    static const char *const unclear[] = {"40003", "08006", "08007"};
    for (size_t i = 0; i < sizeof unclear / sizeof *unclear; i++)
        assert_int_equal(outcome_of(&c, SQL_STAGE_COMMIT, unclear[i], false, &words), OUTCOME_CONNECTION_LOST);
    assert_int_equal(outcome_of(&c, SQL_STAGE_COMMIT, "57P01", true, &words), OUTCOME_CONNECTION_LOST);
    assert_int_equal(outcome_of(&c, SQL_STAGE_COMMIT, "", true, &words), OUTCOME_CONNECTION_LOST);
    assert_int_equal(sql_lost_outcome(SQL_STAGE_COMMIT, false), OUTCOME_CONNECTION_LOST);
    assert_int_equal(sql_lost_outcome(SQL_STAGE_COMMIT, true), OUTCOME_TIMEOUT);
    case_release(&c);
}

/* ---- decisions within the transaction ---- */

static void a_record_decides(void **state)
{
    struct sql_case c;
    struct sql_call call;
    (void)state;
    case_init(&c, CLASS_INTERNAL_WRITE, PROVIDER, TOOL);
    assert_int_equal(sql_after_claim(ATTEMPT_CALL, 0), SQL_STAGE_STORED);
    assert_int_equal(sql_after_claim(ATTEMPT_LOOKUP, 0), SQL_STAGE_STORED);
    assert_int_equal(sql_after_claim(ATTEMPT_CALL, 1), SQL_STAGE_STATEMENT);
    assert_int_equal(sql_after_claim(ATTEMPT_LOOKUP, 1), SQL_STAGE_ROLLBACK);
    assert_int_equal(build(&c, "{\"n\":1}", &call), ERR_NONE);
    assert_true(sql_record_is_ours(&call, str_of(call.fingerprint)));
    assert_false(sql_record_is_ours(&call, STR("00")));
    assert_false(sql_record_is_ours(&call, STR_NONE));
    call.fingerprint[0] = '\0'; /* arguments were dropped meanwhile */
    assert_true(sql_record_is_ours(&call, STR("00")));
    assert_true(sql_rows_fit(&c.sql->statements[0], 1));
    assert_false(sql_rows_fit(&c.sql->statements[0], 0));
    assert_false(sql_rows_fit(&c.sql->statements[0], 2));
    assert_true(sql_rows_fit(&c.sql->statements[1], 0));
    case_release(&c);
}

static void absence_is_proof_while_records_are_kept(void **state)
{
    struct sql_case c;
    (void)state;
    case_init(&c, CLASS_INTERNAL_WRITE, PROVIDER, TOOL);
    int64_t began_ms = ulid_time_ms(&OPERATION[3]), kept_ms = c.provider->retention_ms;
    assert_true(sql_absent_counts(c.provider, OPERATION, began_ms));
    assert_true(sql_absent_counts(c.provider, OPERATION, began_ms + kept_ms - 1));
    assert_false(sql_absent_counts(c.provider, OPERATION, began_ms + kept_ms));
    assert_false(sql_absent_counts(c.provider, "something else", began_ms));
    assert_false(sql_absent_counts(c.provider, NULL, began_ms));
    case_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statements_are_scanned),
        cmocka_unit_test(only_what_cannot_end_the_transaction),
        cmocka_unit_test(sections),
        cmocka_unit_test(defaults),
        cmocka_unit_test(parameters),
        cmocka_unit_test(dry_runs_mask),
        cmocka_unit_test(a_record_decides),
        cmocka_unit_test(absence_is_proof_while_records_are_kept),
        cmocka_unit_test(errors_before_commit),
        cmocka_unit_test(errors_at_commit),
    };
    return cmocka_run_group_tests_name("sql", tests, NULL, NULL);
}
