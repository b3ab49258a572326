/* Finding tools by name, order, references. */
#include "core/registry.h"

#include "support/test.h"

static void count_destroy(void *owner)
{
    ++*(int *)owner;
}

static void test_find(void **state)
{
    (void)state;
    static const struct tool tools[] = {{.name = "b"}, {.name = "a.b"}, {.name = "a"}, {.name = "aa"}, {.name = "B"}};
    const struct tool *list[5];
    for (size_t i = 0; i < 5; i++)
        list[i] = &tools[i];
    struct registry *registry;
    assert_int_equal(registry_new(list, 5, NULL, 0, "v", NULL, NULL, &registry, NULL), ERR_NONE);
    assert_int_equal(registry_tool_count(registry), 5);
    static const char *const order[] = {"B", "a", "a.b", "aa", "b"};
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(registry_tool_at(registry, i)->name, order[i]);
        assert_ptr_equal(registry_find(registry, str_of(tools[i].name)), &tools[i]);
    }
    static const char *const absent[] = {"", "A", "a.", "a.bb", "ab", "c", "aaa"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        assert_null(registry_find(registry, str_of(absent[i])));
    assert_null(registry_find(registry, STR_NONE));
    assert_null(registry_find(registry, (struct str){"a\0", 2}));
    assert_string_equal(registry_policy_version(registry), "v");
    registry_unref(registry);
}

static void test_empty(void **state)
{
    (void)state;
    struct registry *registry;
    assert_int_equal(registry_new(NULL, 0, NULL, 0, NULL, NULL, NULL, &registry, NULL), ERR_NONE);
    assert_null(registry_find(registry, STR("a")));
    assert_int_equal(registry_tool_count(registry) + registry_provider_count(registry), 0);
    assert_string_equal(registry_policy_version(registry), "");
    registry_unref(registry);
    registry_unref(NULL);
}

static void test_references(void **state)
{
    (void)state;
    int destroyed = 0;
    struct registry *registry;
    assert_int_equal(registry_new(NULL, 0, NULL, 0, "v", count_destroy, &destroyed, &registry, NULL), ERR_NONE);
    assert_ptr_equal(registry_ref(registry), registry);
    registry_unref(registry);
    assert_int_equal(destroyed, 0);
    registry_unref(registry);
    assert_int_equal(destroyed, 1);
}

static void test_duplicates(void **state)
{
    (void)state;
    static const struct tool tools[] = {{.name = "a"}, {.name = "b"}, {.name = "a"}};
    static const struct provider providers[] = {{.name = "p"}, {.name = "p"}};
    const struct tool *list[] = {&tools[0], &tools[1], &tools[2]};
    const struct provider *provider_list[] = {&providers[0], &providers[1]};
    struct registry *registry = NULL;
    struct err err = {0};
    int destroyed = 0;
    assert_int_equal(registry_new(list, 3, NULL, 0, "", count_destroy, &destroyed, &registry, &err), ERR_INVALID);
    assert_string_equal(err.text, "two tools are named \"a\"");
    err_clear(&err);
    assert_int_equal(registry_new(list, 2, provider_list, 2, "", count_destroy, &destroyed, &registry, &err),
                     ERR_INVALID);
    assert_string_equal(err.text, "two providers are named \"p\"");
    assert_null(registry);
    assert_int_equal(destroyed, 0); /* stays with the caller */
}

static void test_access(void **state)
{
    (void)state;
    static const struct tool tools[] = {{.name = "refund.create"}, {.name = "refund.get"}, {.name = "files_read"}};
    static const char *const support[] = {"refund.*", "files_rea?"}, *const files[] = {"files_[a-q]*"};
    const struct registry_access access[] = {
        {"support", support, 2}, {"files", files, 1}, {"nobody", NULL, 0}, {"everything", (const char *[]){"*"}, 1}};
    const struct tool *list[] = {&tools[0], &tools[1], &tools[2]};
    struct registry *registry;
    assert_int_equal(registry_new(list, 3, NULL, 0, "v", NULL, NULL, &registry, NULL), ERR_NONE);
    assert_true(registry_allows(registry, "nobody", &tools[0])); /* nothing stated, nothing forbidden */
    registry_restrict(registry, access, 4);
    static const struct {
        const char *principal;
        bool tools[3];
    } wanted[] = {{"support", {true, true, true}},   {"files", {false, false, false}},
                  {"nobody", {false, false, false}}, {"everything", {true, true, true}},
                  {"other", {true, true, true}},     {"", {true, true, true}},
                  {NULL, {true, true, true}}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(registry_allows(registry, wanted[i].principal, &tools[k]), wanted[i].tools[k]);
    registry_unref(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),       cmocka_unit_test(test_empty),  cmocka_unit_test(test_references),
        cmocka_unit_test(test_duplicates), cmocka_unit_test(test_access),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
