#include "support/test.h"

#include "core/template.h"

struct fixture {
    struct arena arena;
    struct buf buf;
    struct err err;
};

static int set_up(void **state)
{
    static struct fixture f;
    arena_init(&f.arena);
    buf_init(&f.buf, 0);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    buf_release(&f->buf);
    return 0;
}

static const struct json *parse(struct fixture *f, const char *text)
{
    struct json *value = NULL;
    assert_int_equal(json_parse(&f->arena, str_of(text), NULL, &value, NULL), ERR_NONE);
    return value;
}

static enum err_code fill(struct fixture *f, const char *text, const char *values, enum template_escape escape)
{
    struct template *template = NULL;
    err_clear(&f->err);
    buf_reset(&f->buf);
    assert_int_equal(template_new(text, &template, &f->err), ERR_NONE);
    assert_string_equal(template_text(template), text);
    enum err_code code = template_fill(template, parse(f, values), escape, &f->buf, &f->err);
    template_free(template);
    return code;
}

static const char *filled(struct fixture *f, const char *text, const char *values, enum template_escape escape)
{
    if (fill(f, text, values, escape) != ERR_NONE)
        fail_msg("%s: %s", text, f->err.text);
    return buf_str(&f->buf).p;
}

static const char *refused(struct fixture *f, const char *text, const char *values, enum template_escape escape)
{
    assert_int_equal(fill(f, text, values, escape), ERR_INVALID);
    return f->err.text;
}

static void test_fills_places(void **state)
{
    struct fixture *f = *state;
    const char *values =
        "{\"order_id\":\"o-1\",\"amount_cents\":4900,\"a\":{\"b\":[{\"c\":true}]},\"x.y\":1.50,\"p/q\":\"z\"}";
    assert_string_equal(filled(f, "payment:{order_id}:capture:{amount_cents}:v1", values, TEMPLATE_KEY),
                        "payment:o-1:capture:4900:v1");
    assert_string_equal(filled(f, "{a.b.0.c} {/a/b/0/c} {/x.y} {/p~1q}", values, TEMPLATE_PLAIN), "true true 1.50 z");
    assert_string_equal(filled(f, "", values, TEMPLATE_PLAIN), "");
    assert_string_equal(filled(f, "no places", values, TEMPLATE_PLAIN), "no places");
    assert_string_equal(filled(f, "{{order_id}} {{{order_id}}} }}{{", values, TEMPLATE_PLAIN), "{order_id} {o-1} }{");
}

static void test_refuses_broken_templates(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"{", "column 1: "},      {"ab{", "column 3: "},   {"a{b", "column 2: "},    {"{}", "column 1: "},
        {"a}", "column 2: "},     {"{a{b}", "column 1: "}, {"{a.}", "column 1: "},   {"{.a}", "column 1: "},
        {"{a..b}", "column 1: "}, {"{ a}", "column 1: "},  {"{/a~2}", "column 1: "}, {"x{{{", "column 4: "},
        {"{a}}", "column 4: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template *template = NULL;
        err_clear(&f->err);
        assert_int_equal(template_new(cases[i][0], &template, &f->err), ERR_INVALID);
        assert_null(template);
        assert_int_equal(strncmp(f->err.text, cases[i][1], strlen(cases[i][1])), 0);
    }
    template_free(NULL);
}

static void test_refuses_a_huge_template(void **state)
{
    struct fixture *f = *state;
    char *text = arena_alloc(&f->arena, 70000);
    memset(text, 'a', 69999);
    text[69999] = '\0';
    struct template *template = NULL;
    assert_int_equal(template_new(text, &template, NULL), ERR_LIMIT);
}

/* cases.md S46: a missing or null component is refused by name and never becomes text. */
static void test_s46_missing_and_null_are_refused(void **state)
{
    struct fixture *f = *state;
    static const enum template_escape escapes[] = {TEMPLATE_PLAIN, TEMPLATE_KEY, TEMPLATE_PATH, TEMPLATE_QUERY};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        assert_string_equal(refused(f, "p:{order_id}", "{}", escapes[i]), "order_id is missing");
        assert_string_equal(refused(f, "p:{order_id}", "{\"order_id\":null}", escapes[i]), "order_id is null");
        assert_string_equal(refused(f, "p:{a.b}", "{\"a\":null}", escapes[i]), "a.b is missing");
        assert_string_equal(refused(f, "p:{a.b}", "{\"a\":{\"b\":null}}", escapes[i]), "a.b is null");
        assert_string_equal(refused(f, "p:{l}", "{\"l\":[1]}", escapes[i]),
                            "l is an array; text, a number or a boolean is needed");
        assert_string_equal(refused(f, "p:{/o}", "{\"o\":{}}", escapes[i]),
                            "/o is an object; text, a number or a boolean is needed");
    }
}

/* cases.md S45: components that contain the separator stay apart. */
static void test_s45_key_escapes(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(filled(f, "{a}:{b}", "{\"a\":\"a:b\",\"b\":\"c\"}", TEMPLATE_KEY), "a%3Ab:c");
    assert_string_equal(filled(f, "{a}:{b}", "{\"a\":\"a\",\"b\":\"b:c\"}", TEMPLATE_KEY), "a:b%3Ac");
    assert_string_equal(filled(f, "{a}", "{\"a\":\"%3A{x}\\u0000\\n\\u007fé /\"}", TEMPLATE_KEY),
                        "%253A%7Bx%7D%00%0A%7Fé /");
    assert_string_equal(filled(f, "{a}:{b}", "{\"a\":\"\",\"b\":\"\"}", TEMPLATE_KEY), ":");
}

static void test_key_numbers_are_canonical(void **state)
{
    struct fixture *f = *state;
    static const char *const same[] = {"{\"n\":49}", "{\"n\":49.0}", "{\"n\":49.00}", "{\"n\":4.9e1}"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_string_equal(filled(f, "k:{n}", same[i], TEMPLATE_KEY), "k:49");
    assert_string_equal(filled(f, "k:{n}", "{\"n\":9007199254740993}", TEMPLATE_KEY), "k:9007199254740993");
    assert_string_equal(filled(f, "{n}", "{\"n\":49.00}", TEMPLATE_PLAIN), "49.00");
    assert_string_equal(filled(f, "k:{n}", "{\"n\":false}", TEMPLATE_KEY), "k:false");
}

static void test_path_escapes(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(filled(f, "/orders/{id}/refunds", "{\"id\":\"a/b?c#d e%é\"}", TEMPLATE_PATH),
                        "/orders/a%2Fb%3Fc%23d%20e%25%C3%A9/refunds");
    assert_string_equal(filled(f, "/{id}", "{\"id\":\"A-z_0.9~\"}", TEMPLATE_PATH), "/A-z_0.9~");
    assert_string_equal(filled(f, "/{id}", "{\"id\":\"...\"}", TEMPLATE_PATH), "/...");
    assert_string_equal(filled(f, "/{id}", "{\"id\":1e+2}", TEMPLATE_PATH), "/1e%2B2");
    assert_string_equal(refused(f, "/orders/{id}", "{\"id\":\"\"}", TEMPLATE_PATH), "id is empty");
    assert_string_equal(refused(f, "/orders/{id}", "{\"id\":\"..\"}", TEMPLATE_PATH),
                        "id is \"..\", which cannot be a part of a path");
    refused(f, "/orders/{id}", "{\"id\":\".\"}", TEMPLATE_PATH);
}

static void test_query_escapes(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(filled(f, "q={q}&r={r}", "{\"q\":\"a b&c=d+e~*-._é\",\"r\":\"\"}", TEMPLATE_QUERY),
                        "q=a+b%26c%3Dd%2Be%7E*-._%C3%A9&r=");
}

static void test_single_place_gives_the_value(void **state)
{
    struct fixture *f = *state;
    const struct json *values = parse(f, "{\"amount\":49.00,\"o\":{\"x\":1},\"n\":null}");
    static const struct {
        const char *text;
        bool single;
        const char *pointer; /* NULL: no value */
    } cases[] = {{"{amount}", true, "/amount"},  {"{o}", true, "/o"},     {"{n}", true, "/n"},
                 {"{none}", true, NULL},         {"{o.x}", true, "/o/x"}, {"{amount} ", false, NULL},
                 {"{amount}{o.x}", false, NULL}, {"x", false, NULL},      {"", false, NULL},
                 {"{{amount}}", false, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template *template = NULL;
        assert_int_equal(template_new(cases[i].text, &template, NULL), ERR_NONE);
        bool single = !cases[i].single;
        const struct json *value = template_single(template, values, &single);
        assert_int_equal(single, cases[i].single);
        assert_ptr_equal(value, cases[i].pointer ? json_pointer_get(values, str_of(cases[i].pointer)) : NULL);
        template_free(template);
    }
}

static void test_places_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *name, *pointer;
    } expected[] = {{"a", "/a"}, {"b.c", "/b/c"}, {"/d~1e", "/d~1e"}};
    struct template *template = NULL;
    struct str name, pointer;
    assert_int_equal(template_new("x:{a}{{no}}:{b.c}{/d~1e}:v1", &template, NULL), ERR_NONE);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(template_place(template, i, &name, &pointer));
        assert_true(str_is(name, expected[i].name));
        assert_true(str_is(pointer, expected[i].pointer));
    }
    assert_false(template_place(template, 3, &name, &pointer));
    template_free(template);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_fills_places),
        TEST(test_refuses_broken_templates),
        TEST(test_refuses_a_huge_template),
        TEST(test_s46_missing_and_null_are_refused),
        TEST(test_s45_key_escapes),
        TEST(test_key_numbers_are_canonical),
        TEST(test_path_escapes),
        TEST(test_query_escapes),
        TEST(test_single_place_gives_the_value),
        TEST(test_places_in_order),
#undef TEST
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
