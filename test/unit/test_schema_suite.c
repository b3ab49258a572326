/* The official JSON Schema test suite, required tests of 2020-12 and draft 7: every group's schema is compiled with the
 * suite's remotes, every test's verdict compared. The folder optional/ runs too; its results bind nothing. What fails
 * there is not promised: asserting format and content, references into other drafts. */
#include "support/test.h"

#include "core/schema.h"
#include "support/suites.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define DOCUMENTS_MAX 256

/* Tests of the suite that may fail, as "draft/file: group: test", each with its reason. The run fails when another test
 * fails, and when one of these passes. */
static const struct exception {
    const char *test;
    const char *why;
} exceptions[] = {
    {"", ""}, /* none */
};

struct suite {
    struct arena arena;
    struct schema_document documents[DOCUMENTS_MAX];
    size_t document_count;
    unsigned excepted; /* listed tests that failed, as expected */
};

struct tally {
    const char *draft;
    bool binding;
    unsigned passed, total, unexpected;
};

static const struct json_limits limits = {.bytes_max = 8 << 20, .depth_max = 200, .values_max = 1000000};

static struct json *parse_file(struct arena *arena, const char *path)
{
    struct json *value = NULL;
    struct err err = {0};
    if (json_parse(arena, suites_read(arena, path), &limits, &value, &err))
        fail_msg("%s: %s", path, err.text);
    return value;
}

/* Every JSON file below the folder, as http://localhost:1234/<path>. */
static void read_remotes(struct suite *suite, const char *folder, const char *uri)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        const char *path = arena_printf(&suite->arena, "%s/%s", folder, entry->d_name);
        const char *name = arena_printf(&suite->arena, "%s/%s", uri, entry->d_name);
        assert_int_equal(stat(path, &info), 0);
        if (S_ISDIR(info.st_mode)) {
            read_remotes(suite, path, name);
            continue;
        }
        assert_true(suite->document_count < DOCUMENTS_MAX);
        suite->documents[suite->document_count++] = (struct schema_document){name, parse_file(&suite->arena, path)};
    }
    closedir(dir);
}

static const struct exception *find_exception(const char *name)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (strcmp(exceptions[i].test, name) == 0)
            return &exceptions[i];
    return NULL;
}

static void count(struct suite *suite, struct tally *tally, const char *name, bool passed, const char *detail)
{
    const struct exception *exception = tally->binding ? find_exception(name) : NULL;
    tally->total++;
    tally->passed += passed;
    if (exception && !passed)
        suite->excepted++;
    if (passed == !exception || !tally->binding)
        return;
    tally->unexpected++;
    printf("%s %s%s%s\n", passed ? "listed, but passes:" : "fails:", name, detail ? ": " : "", detail ? detail : "");
}

/* The suite's draft 7 schemas leave "$schema" out. */
static void name_draft_7(struct suite *suite, struct json *schema)
{
    if (schema->type == JSON_OBJECT && !json_get(schema, "$schema"))
        json_set(&suite->arena, schema, STR("$schema"), json_string(STR("http://json-schema.org/draft-07/schema#")));
}

static void check_tests(struct suite *suite, struct tally *tally, const char *name, const struct schema *schema,
                        const char *refusal, const struct json *tests)
{
    for (uint32_t i = 0; i < tests->count; i++) {
        const struct json *test = &tests->items[i];
        const char *test_name =
            arena_printf(&suite->arena, "%s: %.*s", name, STR_ARG(json_get_text(test, "description")));
        struct schema_error *errors = NULL;
        size_t error_count = 0;
        struct err err = {0};
        enum err_code rc = ERR_INTERNAL;
        if (schema)
            rc = schema_validate(schema, &suite->arena, json_get(test, "data"), &errors, &error_count, &err);
        bool valid = json_get_bool(test, "valid", false);
        assert_true(rc != ERR_INVALID || error_count > 0);
        count(suite, tally, test_name, rc == (valid ? ERR_NONE : ERR_INVALID), schema ? err.text : refusal);
    }
}

static void run_group(struct suite *suite, struct tally *tally, const char *file, const struct json *group)
{
    struct schema *schema = NULL;
    struct err err = {0};
    struct json *value = json_copy(&suite->arena, json_get(group, "schema"));
    const char *name =
        arena_printf(&suite->arena, "%s/%s: %.*s", tally->draft, file, STR_ARG(json_get_text(group, "description")));
    if (strncmp(tally->draft, "draft7", 6) == 0)
        name_draft_7(suite, value);
    schema_new(value, suite->documents, suite->document_count, &schema, &err);
    check_tests(suite, tally, name, schema, err.text, json_get(group, "tests"));
    schema_free(schema);
}

static struct tally run_draft(struct suite *suite, const char *draft, bool binding)
{
    struct tally tally = {.draft = draft, .binding = binding};
    const char *folder = suites_path(&suite->arena, arena_printf(&suite->arena, "json-schema/tests/%s", draft));
    const char **files;
    assert_non_null(folder);
    size_t file_count = suites_list(&suite->arena, folder, ".json", &files);
    for (size_t f = 0; f < file_count; f++) {
        const struct json *groups = parse_file(&suite->arena, arena_printf(&suite->arena, "%s/%s", folder, files[f]));
        for (uint32_t i = 0; i < groups->count; i++)
            run_group(suite, &tally, files[f], &groups->items[i]);
    }
    return tally;
}

static void test_suite(void **state)
{
    (void)state;
    struct suite suite = {0};
    arena_init(&suite.arena);
    const char *remotes = suites_path(&suite.arena, "json-schema/remotes");
    if (!remotes) {
        arena_release(&suite.arena);
        skip();
    }
    read_remotes(&suite, remotes, "http://localhost:1234");
    struct tally optional = run_draft(&suite, "draft2020-12/optional", false);
    struct tally optional_7 = run_draft(&suite, "draft7/optional", false);
    printf("optional (not binding), 2020-12: %u of %u, draft 7: %u of %u\n", optional.passed, optional.total,
           optional_7.passed, optional_7.total);
    struct tally draft_2020 = run_draft(&suite, "draft2020-12", true);
    struct tally draft_7 = run_draft(&suite, "draft7", true);
    printf("2020-12: %u of %u, draft 7: %u of %u, excepted: %u\n", draft_2020.passed, draft_2020.total, draft_7.passed,
           draft_7.total, suite.excepted);
    arena_release(&suite.arena);
    assert_int_equal(draft_2020.unexpected + draft_7.unexpected, 0);
    assert_true(draft_2020.passed * 100 >= draft_2020.total * 99);
    assert_true(draft_7.passed * 100 >= draft_7.total * 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suite)};
    return cmocka_run_group_tests_name("schema_suite", tests, NULL, NULL);
}
