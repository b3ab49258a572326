/* Made-up arguments: what a schema allows, different for different intents, the same intent in other words. */
#include "support/test.h"

#include "core/identity.h"
#include "core/schema_pattern.h"
#include "sim/arguments.h"
#include "sim/pattern_text.h"
#include "sim/sample.h"

#include <stdio.h>

#define INTENTS 100

struct fixture {
    struct arena arena;
    struct provider provider;
    struct tool tool;
    struct schema *schema;
    struct template *key;
    struct normal *normal;
    struct arguments *arguments;
    struct err err;
    uint64_t distinct;
};

static int set_up(void **state)
{
    static struct fixture f;
    memset(&f, 0, sizeof f);
    arena_init(&f.arena);
    f.provider.name = "p";
    *state = &f;
    return 0;
}

static void clear(struct fixture *f)
{
    arguments_free(f->arguments);
    schema_free(f->schema);
    template_free(f->key);
    normal_free(f->normal);
    f->arguments = NULL;
    f->schema = NULL;
    f->key = NULL;
    f->normal = NULL;
    err_clear(&f->err);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    clear(f);
    arena_release(&f->arena);
    return 0;
}

static const struct json *parse(struct fixture *f, const char *text)
{
    struct json *value = NULL;
    struct err err = {0};
    if (json_parse(&f->arena, str_of(text), NULL, &value, &err))
        fail_msg("%s: %s", text, err.text);
    return value;
}

/* key, normal and examples may be NULL. */
static void make_tool(struct fixture *f, const char *schema, const char *key, const char *normal, const char *examples)
{
    clear(f);
    f->tool = (struct tool){.name = "t", .class = CLASS_EXTERNAL_IDEMPOTENT, .provider = &f->provider};
    f->tool.input_schema_json = parse(f, schema);
    if (schema_new(f->tool.input_schema_json, NULL, 0, &f->schema, &f->err))
        fail_msg("%s: %s", schema, f->err.text);
    f->tool.input_schema = f->schema;
    if (key)
        assert_int_equal(template_new(key, &f->key, &f->err), ERR_NONE);
    if (normal)
        assert_int_equal(normal_new(parse(f, normal), &f->normal, &f->err), ERR_NONE);
    f->tool.key = f->key;
    f->tool.normal = f->normal;
    f->arguments = arguments_new(examples ? parse(f, examples) : NULL);
}

static enum err_code check(struct fixture *f)
{
    err_clear(&f->err);
    return arguments_check(f->arguments, &f->tool, INTENTS, &f->distinct, &f->err);
}

static const struct json *give(struct fixture *f, uint64_t n, unsigned variant, uint64_t random)
{
    const struct json *value = arguments_give(f->arguments, &f->tool, n, variant, random, &f->arena);
    assert_non_null(value);
    return value;
}

static const char *text_of(struct fixture *f, const struct json *value)
{
    struct buf buf;
    buf_init(&buf, 0);
    json_write(&buf, value);
    const char *text = arena_copy_str(&f->arena, buf_str(&buf));
    buf_release(&buf);
    return text;
}

static const char *given(struct fixture *f, uint64_t n)
{
    return text_of(f, give(f, n, 0, 0));
}

/* Judged by the schema alone, without the identity's help. */
static void assert_valid(struct fixture *f, const struct json *value)
{
    struct schema_error *errors = NULL;
    size_t count = 0;
    struct err err = {0};
    if (schema_validate(f->schema, &f->arena, value, &errors, &count, &err))
        fail_msg("%s: %s", text_of(f, value), err.text);
}

static const char *const schemas[] = {
    "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\"}}}",
    "{\"required\":[\"a\"],\"properties\":{\"a\":{\"minimum\":5}}}",
    "{\"type\":\"object\",\"required\":[\"id\",\"n\"],\"properties\":{\"id\":{\"type\":\"string\",\"minLength\":30},"
    "\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":3}}}",
    "{\"type\":\"object\",\"required\":[\"id\"],\"properties\":{\"id\":{\"type\":\"string\",\"maxLength\":3}}}",
    "{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{\"type\":\"integer\",\"exclusiveMinimum\":-7,"
    "\"multipleOf\":3}}}",
    "{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{\"type\":\"number\",\"exclusiveMinimum\":0,"
    "\"exclusiveMaximum\":1}}}",
    "{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{\"type\":\"number\",\"minimum\":0.01,"
    "\"multipleOf\":0.01,\"maximum\":99999.99}}}",
    "{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{\"type\":\"integer\",\"maximum\":-1}}}",
    "{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{\"type\":\"integer\",\"multipleOf\":2.5}}}",
    "{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":1e3,"
    "\"maximum\":9007199254740993}}}",
    "{\"type\":\"object\",\"required\":[\"c\",\"id\"],\"properties\":{\"c\":{\"enum\":[null,\"eur\",\"usd\"]},"
    "\"id\":{\"type\":[\"null\",\"string\"]}}}",
    "{\"type\":\"object\",\"required\":[\"v\",\"id\"],\"properties\":{\"v\":{\"const\":{\"x\":[1]}},\"id\":{}}}",
    "{\"type\":\"object\",\"required\":[\"lines\"],\"properties\":{\"lines\":{\"type\":\"array\",\"minItems\":3,"
    "\"uniqueItems\":true,\"items\":{\"type\":\"object\",\"required\":[\"sku\",\"qty\"],\"properties\":{\"sku\":"
    "{\"type\":\"string\"},\"qty\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":5}},\"additionalProperties\":false"
    "}}}}",
    "{\"type\":\"object\",\"required\":[\"t\"],\"properties\":{\"t\":{\"type\":\"array\",\"prefixItems\":["
    "{\"type\":\"string\"},{\"type\":\"integer\"}],\"items\":false,\"minItems\":2}}}",
    "{\"type\":\"object\",\"required\":[\"t\"],\"properties\":{\"t\":{\"type\":\"array\",\"contains\":"
    "{\"type\":\"integer\",\"minimum\":10},\"minContains\":2}}}",
    "{\"type\":\"object\",\"required\":[\"to\"],\"properties\":{\"to\":{\"oneOf\":[{\"type\":\"object\",\"required\":"
    "[\"iban\"],\"properties\":{\"iban\":{\"type\":\"string\"}},\"additionalProperties\":false},{\"type\":\"string\"}]}"
    "}}",
    "{\"anyOf\":[{\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\"}}},{\"required\":[\"b\"]}],"
    "\"type\":\"object\"}",
    /* the first branch can not be met: another attempt takes the second */
    "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"string\",\"pattern\":"
    "\"(?=x)y\"},{\"type\":\"integer\"}]}}}",
    "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#/$defs/i%64\"}},\"$defs\":{\"id\":"
    "{\"$ref\":\"#text\"},\"x\":{\"$anchor\":\"text\",\"type\":\"string\",\"minLength\":4}}}",
    "{\"allOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":2"
    "}}},{\"properties\":{\"a\":{\"maxLength\":12}}}]}",
    "{\"type\":\"object\",\"required\":[\"kind\",\"id\"],\"properties\":{\"kind\":{\"enum\":[\"card\",\"bank\"]},"
    "\"id\":{\"type\":\"string\"},\"iban\":{\"type\":\"string\"}},\"if\":{\"properties\":{\"kind\":{\"const\":\"bank\"}"
    "}},"
    "\"then\":{\"required\":[\"iban\"]},\"else\":{\"properties\":{\"kind\":{\"const\":\"card\"}}}}",
    "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"string\"}}"
    ","
    "\"dependentRequired\":{\"a\":[\"b\"]}}",
    "{\"type\":\"object\",\"minProperties\":3,\"properties\":{\"a\":{\"type\":\"string\"}},\"additionalProperties\":"
    "{\"type\":\"integer\"}}",
    "{\"type\":\"object\",\"required\":[\"node\"],\"properties\":{\"node\":{\"$ref\":\"#/$defs/node\"}},\"$defs\":{"
    "\"node\":{\"type\":\"object\",\"required\":[\"id\"],\"properties\":{\"id\":{\"type\":\"string\"},\"children\":"
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/node\"}}}}}}",
    "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\",\"required\":[\"a\",\"b\"],"
    "\"properties\":{\"a\":{\"type\":\"array\",\"items\":[{\"type\":\"string\"}],\"additionalItems\":{\"type\":"
    "\"integer\"},\"minItems\":3},\"b\":{\"type\":\"string\"},\"c\":{\"type\":\"string\"}},\"dependencies\":{\"b\":"
    "[\"c\"]}}",
    "{\"type\":\"object\",\"required\":[\"at\",\"on\",\"who\",\"key\",\"link\",\"host\",\"ip\"],\"properties\":{\"at\":"
    "{\"type\":\"string\",\"format\":\"date-time\"},\"on\":{\"type\":\"string\",\"format\":\"date\"},\"who\":{\"type\":"
    "\"string\",\"format\":\"email\"},\"key\":{\"type\":\"string\",\"format\":\"uuid\"},\"link\":{\"type\":\"string\","
    "\"format\":\"uri\"},\"host\":{\"type\":\"string\",\"format\":\"hostname\"},\"ip\":{\"type\":\"string\",\"format\":"
    "\"ipv4\"}}}",
};

static void test_schemas_are_met_by_different_intents(void **state)
{
    struct fixture *f = *state;
    for (size_t s = 0; s < sizeof schemas / sizeof *schemas; s++) {
        make_tool(f, schemas[s], NULL, NULL, NULL);
        if (check(f))
            fail_msg("%s: %s", schemas[s], f->err.text);
        if (f->distinct != INTENTS)
            fail_msg("%s: only %d different intents", schemas[s], (int)f->distinct);
        for (uint64_t n = 0; n < INTENTS; n++)
            assert_valid(f, give(f, n, 0, 0));
    }
}

static void test_equal_numbers_give_equal_arguments(void **state)
{
    struct fixture *f = *state;
    for (size_t s = 0; s < sizeof schemas / sizeof *schemas; s++) {
        make_tool(f, schemas[s], NULL, NULL, NULL);
        const char *first = given(f, 41);
        make_tool(f, schemas[s], NULL, NULL, NULL);
        given(f, 7); /* the order of asking does not matter */
        assert_string_equal(given(f, 41), first);
    }
}

static void test_plain_texts_and_numbers_can_be_read(void **state)
{
    struct fixture *f = *state;
    make_tool(f,
              "{\"type\":\"object\",\"required\":[\"payment_id\",\"amount_cents\",\"currency\"],\"properties\":{"
              "\"payment_id\":{\"type\":\"string\"},\"amount_cents\":{\"type\":\"integer\",\"minimum\":1},"
              "\"currency\":{\"type\":\"string\"}}}",
              "refund:{payment_id}", NULL, NULL);
    assert_int_equal(check(f), ERR_NONE);
    assert_string_equal(given(f, 17), "{\"payment_id\":\"payment_id-17\",\"amount_cents\":18,\"currency\":\"EUR\"}");
}

static void test_optional_members_come_and_go(void **state)
{
    struct fixture *f = *state;
    int with = 0;
    make_tool(f,
              "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\"},\"note\":"
              "{\"type\":\"string\"}}}",
              NULL, NULL, NULL);
    for (uint64_t n = 0; n < INTENTS; n++)
        with += json_get(give(f, n, 0, 0), "note") != NULL;
    assert_in_range(with, 20, 80);
}

/* What the key is made of must be there, required or not. */
static void test_members_of_the_key_are_always_there(void **state)
{
    struct fixture *f = *state;
    make_tool(f, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"string\"}}}",
              "k:{a}", NULL, NULL);
    assert_int_equal(check(f), ERR_NONE);
    assert_int_equal(f->distinct, INTENTS);
    for (uint64_t n = 0; n < INTENTS; n++)
        assert_non_null(json_get(give(f, n, 0, 0), "a"));
}

/* The key is what makes an intent: members outside of it do not count. */
/* Tools of MCP servers have their schema from the server, which is not asked here. */
static void test_without_a_schema_the_key_is_enough(void **state)
{
    struct fixture *f = *state;
    make_tool(f, "{\"type\":\"object\"}", "k:{a}:{b}", NULL, NULL);
    f->tool.input_schema = NULL;
    f->tool.input_schema_json = NULL;
    assert_int_equal(check(f), ERR_NONE);
    assert_int_equal(f->distinct, INTENTS);
    const struct json *value = give(f, 1, 0, 0);
    assert_true(json_get_text(value, "a").n > 0 && json_get_text(value, "b").n > 0);
}

static void test_few_different_keys_are_told(void **state)
{
    struct fixture *f = *state;
    const char *schema = "{\"type\":\"object\",\"required\":[\"id\",\"a\",\"b\"],\"properties\":{\"id\":{\"type\":"
                         "\"string\"},\"a\":{\"enum\":[1,2,3]},\"b\":{\"enum\":[\"x\",\"y\",\"z\"]}}}";
    make_tool(f, schema, "k:{b}", NULL, NULL);
    assert_int_equal(check(f), ERR_NONE);
    assert_int_equal(f->distinct, 3);
    make_tool(f, schema, "k:{a}:{b}", NULL, NULL);
    assert_int_equal(check(f), ERR_NONE);
    assert_int_equal(f->distinct, 9);
    make_tool(f, schema, "k:{id}", NULL, NULL);
    assert_int_equal(check(f), ERR_NONE);
    assert_int_equal(f->distinct, INTENTS);
    f->tool.identity = IDENTITY_CALLER; /* the caller's key tells intents apart */
    f->tool.key = NULL;
    assert_int_equal(check(f), ERR_NONE);
    assert_int_equal(f->distinct, INTENTS);
}

static void test_normalisers_are_heeded(void **state)
{
    struct fixture *f = *state;
    make_tool(f,
              "{\"type\":\"object\",\"required\":[\"when\",\"amount\",\"currency\",\"name\"],\"properties\":{\"when\":"
              "{\"type\":\"string\"},\"amount\":{\"type\":\"integer\"},\"currency\":{\"type\":\"string\"},\"name\":"
              "{\"type\":\"string\"}}}",
              "k:{when}:{amount}:{name}",
              "{\"when\":\"timestamp\",\"amount\":\"minor_units(currency)\",\"name\":[\"trim\",\"upper\"]}", NULL);
    if (check(f))
        fail_msg("%s", f->err.text);
    assert_int_equal(f->distinct, INTENTS);
}

/* ---- the same intent in other words ---- */

static void identity_of(struct fixture *f, const struct json *arguments, struct operation *op)
{
    const struct call call = {.tenant = "a", .principal = "b", .arguments = arguments};
    struct admission admission;
    const struct json *effective;
    struct identity_error why;
    *op = (struct operation){.id = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"};
    if (identity_derive(&call, &f->tool, STR("secret"), &f->arena, op, &admission, &effective, &why, &f->err))
        fail_msg("%s: %s", text_of(f, arguments), f->err.text);
}

static void test_variants_are_the_same_intent(void **state)
{
    struct fixture *f = *state;
    static const char *const pointers[] = {"/note"};
    bool padded = false, numbered = false, ordered = false, reworded = false;
    make_tool(f,
              "{\"type\":\"object\",\"required\":[\"id\",\"amount\",\"subject\",\"note\"],\"properties\":{\"id\":"
              "{\"type\":\"string\"},\"amount\":{\"type\":\"integer\"},\"subject\":{\"type\":\"string\"},\"note\":"
              "{\"type\":\"string\"}}}",
              "k:{id}:{amount}", "{\"subject\":[\"trim\",\"lower\"]}", NULL);
    f->tool.volatile_pointers = pointers;
    f->tool.volatile_count = 1;
    for (uint64_t n = 0; n < INTENTS; n++) {
        struct operation base, other;
        const char *plain = given(f, n);
        identity_of(f, give(f, n, 0, 0), &base);
        for (unsigned variant = 1; variant < 4; variant++) {
            const struct json *value = give(f, n, variant, n);
            const char *text = text_of(f, value);
            assert_string_equal(text_of(f, give(f, n, variant, n)), text);
            assert_string_equal(json_get_text(value, "id").p, json_get_text(give(f, n, 0, 0), "id").p);
            identity_of(f, value, &other);
            assert_true(digest_equal(&base.key_hash, &other.key_hash));
            assert_true(digest_equal(&base.fingerprint, &other.fingerprint));
            padded = padded || json_get_text(value, "subject").p[0] == ' ';
            numbered = numbered || strstr(text, ".0");
            ordered = ordered || strncmp(text, plain, 5) != 0;
            reworded = reworded || strstr(text, "again");
        }
    }
    assert_true(padded);
    assert_true(numbered);
    assert_true(ordered);
    assert_true(reworded);
}

/* ---- what can not be made ---- */

static const struct {
    const char *schema, *text;
} refused[] = {
    {"{\"type\":\"object\",\"required\":[\"sku\"],\"properties\":{\"sku\":{\"type\":\"string\",\"pattern\":"
     "\"^(?!x)[a-z]+$\"}}}",
     "/sku: no text can be made for pattern ^(?!x)[a-z]+$: a look-ahead, look-behind or flag at byte 2 of the pattern"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"object\",\"required\":[\"b\"],"
     "\"properties\":{\"b\":{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}}}}}",
     "/a/b: no number lies within the bounds"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"minLength\":5,\"maxLength\":4}}}",
     "/a: no text has the length that is asked for"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[1,2]}}}",
     "/a: no value of \"enum\" fits what else is asked"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}", "/a: the schema allows nothing here"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\",\"not\":{\"minLength\":1}}}"
     "}",
     "/a: "},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
     "the schema asks for values nested without end"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"string\",\"allOf\":[{\"type\":"
     "\"integer\"}]}}}",
     "/a: the types that are asked for exclude each other"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"type\":\"array\",\"minItems\":1000}}}",
     "/a: more than 64 items are asked for"},
};

static void test_what_can_not_be_made_is_named(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        make_tool(f, refused[i].schema, NULL, NULL, NULL);
        assert_int_equal(check(f), ERR_INVALID);
        if (!strstr(f->err.text, refused[i].text))
            fail_msg("expected \"%s\", got \"%s\"", refused[i].text, f->err.text);
        assert_null(arguments_give(f->arguments, &f->tool, 0, 0, 0, &f->arena));
    }
}

static void test_examples_are_taken(void **state)
{
    struct fixture *f = *state;
    const char *schema = "{\"type\":\"object\",\"required\":[\"sku\",\"id\"],\"properties\":{\"sku\":{\"type\":"
                         "\"string\",\"pattern\":\"^(?!x)[a-z]+$\"},\"id\":{\"type\":\"string\"}}}";
    make_tool(f, schema, NULL, NULL, "{\"t\":[{\"sku\":\"abc\"},{\"sku\":\"def\"}]}");
    if (check(f))
        fail_msg("%s", f->err.text);
    assert_int_equal(f->distinct, INTENTS); /* the rest is made up */
    assert_string_equal(given(f, 0), "{\"id\":\"id-0\",\"sku\":\"abc\"}");
    assert_string_equal(given(f, 3), "{\"id\":\"id-3\",\"sku\":\"def\"}");
    make_tool(f, schema, NULL, NULL, "{\"t\":[{\"sku\":\"abc\",\"id\":\"1\"},{\"sku\":\"def\",\"id\":\"1\"}]}");
    assert_int_equal(check(f), ERR_NONE);
    assert_int_equal(f->distinct, 2); /* nothing is left to make up */
    make_tool(f, schema, NULL, NULL, "{\"t\":[{\"sku\":\"xyz\"}]}");
    assert_int_equal(check(f), ERR_INVALID);
    assert_non_null(strstr(f->err.text, "/sku: "));
}

/* ---- patterns ---- */

struct pattern_case {
    const char *pattern;
    int min, max; /* length */
    const char *first;
    uint64_t count; /* at least */
};

static const struct pattern_case patterns[] = {
    {"^[A-Z]+-[0-9]+$", 0, 100, "AAAA-0000", 1000000},
    {"^INC[0-9]{7}$", 0, 100, "INC0000000", 10000000},
    {"^(card|bank)_[a-f0-9]{8}$", 0, 100, "card_00000000", 1000000},
    {"^cus_[A-Za-z0-9]{14}$", 0, 100, "cus_00000000000000", 1000000},
    {"^\\d{4}-\\d{2}$", 0, 100, "0000-00", 1000000},
    {"^[^:]+$", 0, 100, "0000", 1000000},
    {"^\\+?[1-9]\\d{1,14}$", 0, 100, "+1000000", 1000000},
    {"^a?b*c+?(?:d|e){2,3}$", 0, 100, "abbbbccccddd", 8},
    {"^(?<year>\\d{4})$", 4, 4, "0000", 10000},
    {"^\\w+@\\w+\\.com$", 5, 100, "0000@0000.com", 1000000},
    {"^[a-z]+$", 20, 20, "aaaaaaaaaaaaaaaaaaaa", 1000000},
    {"^[a-z]+$", 1, 2, "aa", 26 * 26},
    {"^\\u0041\\x42\\.$", 0, 100, "AB.", 1},
    {"^[äöü]$", 0, 100, "ä", 3},
    {"^\\p{Lu}{3}$", 0, 100, "AAA", 17576},
    {"^(yes|no)$", 0, 100, "yes", 2},
    {"[0-9]{3}", 0, 100, "000", 1000},
};

static void test_patterns(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const struct pattern_case *c = &patterns[i];
        struct pattern_text *texts = NULL;
        struct schema_pattern *compiled = NULL;
        struct schema_matcher matcher = {.arena = &f->arena};
        struct err err = {0};
        if (pattern_text_new(&f->arena, str_of(c->pattern), (uint64_t)c->min, (uint64_t)c->max, &texts, &err) ||
            schema_pattern_new(&f->arena, str_of(c->pattern), &compiled, &err))
            fail_msg("%s: %s", c->pattern, err.text);
        if (pattern_text_count(texts) < c->count)
            fail_msg("%s: only %d texts", c->pattern, (int)pattern_text_count(texts));
        const char *former = "";
        for (uint64_t n = 0; n < 50; n++) {
            int64_t steps = 1000000;
            struct buf buf;
            buf_init(&buf, 0);
            pattern_text_write(texts, n, &buf);
            const char *text = arena_copy_str(&f->arena, buf_str(&buf));
            buf_release(&buf);
            if (n == 0)
                assert_string_equal(text, c->first);
            if (schema_pattern_match(compiled, &matcher, str_of(text), &steps) != SCHEMA_MATCH_YES)
                fail_msg("%s does not match %s", text, c->pattern);
            if (n > 0 && n < pattern_text_count(texts))
                assert_string_not_equal(text, former);
            former = text;
        }
        schema_pattern_release(compiled);
    }
}

static void test_patterns_that_are_not_understood(void **state)
{
    struct fixture *f = *state;
    static const char *const texts[] = {
        "^(?=x)", "(a)\\1", "\\P{L}", "\\p{Greek}", "a{1000}", "(", "[a", "((a{200}){200}){200}", "a)", "[^\\d\\D]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct pattern_text *out = NULL;
        struct err err = {0};
        if (pattern_text_new(&f->arena, str_of(texts[i]), 0, 10, &out, &err) != ERR_INVALID)
            fail_msg("%s was understood", texts[i]);
        assert_non_null(strstr(err.text, "of the pattern"));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_schemas_are_met_by_different_intents),
        TEST(test_equal_numbers_give_equal_arguments),
        TEST(test_plain_texts_and_numbers_can_be_read),
        TEST(test_optional_members_come_and_go),
        TEST(test_members_of_the_key_are_always_there),
        TEST(test_few_different_keys_are_told),
        TEST(test_without_a_schema_the_key_is_enough),
        TEST(test_normalisers_are_heeded),
        TEST(test_variants_are_the_same_intent),
        TEST(test_what_can_not_be_made_is_named),
        TEST(test_examples_are_taken),
        TEST(test_patterns),
        TEST(test_patterns_that_are_not_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
