/* What a token is limited to. */
#include "core/scope.h"

#include "core/claims.h"
#include "support/test.h"

static struct scope_list list_of(struct arena *arena, enum scope_kind kind, const char *text)
{
    struct scope_list list = {0};
    struct err err = {0};
    if (scope_list_parse(arena, kind, text, &list, &err))
        fail_msg("%s: %s", text, err.text);
    return list;
}

static void test_reading(void **state)
{
    (void)state;
    static const struct {
        enum scope_kind kind;
        const char *text, *words; /* words: of the refusal; NULL = taken, … */
        const char *stored;       /* … and stored like this */
    } rows[] = {
        {SCOPE_TOOLS, "[]", NULL, "[]"},
        {SCOPE_TOOLS, "\"\"", NULL, "[]"},
        {SCOPE_TOOLS, "\"  refund.*   order.get \"", NULL, "[\"refund.*\",\"order.get\"]"},
        {SCOPE_TOOLS, "[\"a b\"]", NULL, "[\"a b\"]"},
        {SCOPE_ENTITIES, "[\"order/*\",\"a/b/c\"]", NULL, "[\"order/*\",\"a/b/c\"]"},
        {SCOPE_TOOLS, "7", "expected a list of patterns, found number", NULL},
        {SCOPE_TOOLS, "[\"a\",null]", "item 2 is null", NULL},
        {SCOPE_TOOLS, "[\"\"]", "1 to 200 characters", NULL},
        {SCOPE_TOOLS, "[\"a\\u0000b\"]", "control character", NULL},
        {SCOPE_ENTITIES, "\"order\"", "\"order\" is no entity pattern", NULL},
        {SCOPE_ENTITIES, "[\"/x\"]", "is no entity pattern", NULL},
        {SCOPE_ENTITIES, "[\"order/\"]", "is no entity pattern", NULL},
        {SCOPE_TOOLS, "[", "", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena arena;
        struct scope_list list = {0};
        struct err err = {0};
        arena_init(&arena);
        enum err_code code = scope_list_parse(&arena, rows[i].kind, rows[i].text, &list, &err);
        if ((code == ERR_NONE) != (rows[i].words == NULL) || (code && !strstr(err.text, rows[i].words)))
            fail_msg("%s: %s", rows[i].text, err.text);
        if (rows[i].stored)
            assert_string_equal(scope_list_text(&arena, &list), rows[i].stored);
        else
            assert_false(list.limited);
        arena_release(&arena);
    }
}

static void test_number_of_patterns(void **state)
{
    (void)state;
    struct arena arena;
    struct buf text;
    struct scope_list list;
    struct err err = {0};
    arena_init(&arena);
    buf_init(&text, 0);
    buf_add_text(&text, "\"");
    for (int i = 0; i < SCOPE_PATTERNS_MAX; i++)
        buf_add_text(&text, "a ");
    buf_add_text(&text, "\"");
    assert_int_equal(scope_list_parse(&arena, SCOPE_TOOLS, text.p, &list, &err), ERR_NONE);
    assert_int_equal(list.count, SCOPE_PATTERNS_MAX);
    text.n--;
    buf_add_text(&text, "b\"");
    assert_int_equal(scope_list_parse(&arena, SCOPE_TOOLS, text.p, &list, &err), ERR_LIMIT);
    buf_release(&text);
    arena_release(&arena);
}

static void test_judging(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct scope scope = {list_of(&arena, SCOPE_TOOLS, "\"refund.* order.get\""),
                          list_of(&arena, SCOPE_ENTITIES, "[\"order/a-*\",\"cust*/7\"]")};
    assert_true(scope_allows_tool(&scope, "refund.create") && scope_allows_tool(&scope, "order.get"));
    assert_false(scope_allows_tool(&scope, "order.gets") || scope_allows_tool(&scope, "refund"));
    assert_true(scope_allows_entity(&scope, "order", "a-1/x") && scope_allows_entity(&scope, "customer", "7"));
    assert_false(scope_allows_entity(&scope, "order", "b-1") || scope_allows_entity(&scope, "order/a-1", "7"));
    assert_false(scope_allows_entity(&scope, "customer", "70"));
    const struct scope nothing = {.tools = {.limited = true}};
    assert_false(scope_allows_tool(&nothing, "a"));
    assert_true(scope_allows_entity(&nothing, "a", "b"));
    assert_true(scope_allows_tool(NULL, "a") && scope_allows_entity(NULL, "a", "b") && !scope_is_limited(NULL));
    arena_release(&arena);
}

static const char *refusal(struct arena *arena, const struct scope *scope, const char *tool,
                           const struct scope_entity *entities, size_t count)
{
    struct err err = {0};
    enum err_code code = scope_check(arena, scope, tool, entities, count, &err);
    assert_int_equal(code, err.text[0] ? ERR_DENIED : ERR_NONE);
    return arena_copy_text(arena, err.text);
}

static void test_calls(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    const struct scope_entity mine[] = {{"order", "1"}, {"customer", "2"}};
    struct scope scope = {.entities = list_of(&arena, SCOPE_ENTITIES, "\"order/*\"")};
    assert_string_equal(refusal(&arena, NULL, "t", NULL, 0), "");
    assert_string_equal(refusal(&arena, &scope, "t", mine, 1), "");
    assert_string_equal(refusal(&arena, &scope, "t", mine, 2),
                        "the token does not cover entity customer/2; its entities: order/*");
    assert_non_null(strstr(refusal(&arena, &scope, "t", NULL, 0), "does not say which it touches"));
    scope.tools = list_of(&arena, SCOPE_TOOLS, "[]");
    assert_string_equal(refusal(&arena, &scope, "t", mine, 1), "the token does not cover tool \"t\"; its tools: none");
    arena_release(&arena);
}

static void test_operations(void **state)
{
    (void)state;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    struct claims claims = {.entities = {{.type = "order", .id = "1", .seen_rev = -1}}, .entity_count = 1};
    struct operation op = {.tool = "t", .claims = claims_write(&arena, &claims)};
    struct scope scope = {.entities = list_of(&arena, SCOPE_ENTITIES, "\"order/1\"")};
    assert_int_equal(scope_check_operation(&scope, &op, &err), ERR_NONE);
    scope.entities = list_of(&arena, SCOPE_ENTITIES, "\"order/2\"");
    assert_int_equal(scope_check_operation(&scope, &op, &err), ERR_DENIED);
    op.claims = STR_NONE;
    scope.entities = list_of(&arena, SCOPE_ENTITIES, "\"order/1\"");
    err_clear(&err);
    assert_int_equal(scope_check_operation(&scope, &op, &err), ERR_DENIED);
    assert_int_equal(scope_check_operation(NULL, &op, &err), ERR_NONE);
    arena_release(&arena);
}

static void test_copies_and_words(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct scope scope = {list_of(&arena, SCOPE_TOOLS, "\"a b\""), {0}};
    const struct scope *copy = scope_copy(&arena, &scope);
    assert_true(scope_equal(&scope, copy) && !scope_equal(copy, NULL) && scope_equal(NULL, NULL));
    assert_string_equal(scope_list_words(&arena, &copy->tools), "a, b");
    assert_string_equal(scope_list_words(&arena, &copy->entities), "all");
    assert_null(scope_list_text(&arena, &copy->entities));
    assert_null(scope_copy(&arena, NULL));
    scope.tools = list_of(&arena, SCOPE_TOOLS, "\"b a\"");
    assert_false(scope_equal(&scope, copy));
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),    cmocka_unit_test(test_number_of_patterns),
        cmocka_unit_test(test_judging),    cmocka_unit_test(test_calls),
        cmocka_unit_test(test_operations), cmocka_unit_test(test_copies_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
