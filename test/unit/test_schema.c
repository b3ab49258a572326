#include "support/test.h"

#include "core/schema.h"
#include "core/schema_pattern.h"
#include "core/schema_uri.h"

#include <stdio.h>
#include <stdlib.h>

struct fixture {
    struct arena arena;
    struct buf buf;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena);
    buf_init(&f->buf, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    buf_release(&f->buf);
    free(f);
    return 0;
}

static struct json *parse(struct fixture *f, const char *text)
{
    static const struct json_limits limits = {.bytes_max = 8 << 20, .depth_max = 1000, .values_max = 1000000};
    struct json *value = NULL;
    struct err err = {0};
    if (json_parse(&f->arena, str_of(text), &limits, &value, &err))
        fail_msg("%s: %s", text, err.text);
    return value;
}

static struct schema *compile(struct fixture *f, const char *text)
{
    struct schema *schema = NULL;
    struct err err = {0};
    if (schema_new(parse(f, text), NULL, 0, &schema, &err))
        fail_msg("%s: %s", text, err.text);
    return schema;
}

/* All errors as "pointer (keyword) message", one per line; "" when valid; the error's text for a limit. */
static const char *errors_of(struct fixture *f, const char *schema_text, const char *instance)
{
    struct schema *schema = compile(f, schema_text);
    struct schema_error *errors = NULL;
    size_t count = 0;
    struct err err = {0};
    enum err_code rc = schema_validate(schema, &f->arena, parse(f, instance), &errors, &count, &err);
    buf_reset(&f->buf);
    buf_add_text(&f->buf, "");
    if (rc == ERR_LIMIT)
        buf_printf(&f->buf, "limit: %s", err.text);
    for (size_t i = 0; rc == ERR_INVALID && i < count; i++)
        buf_printf(&f->buf, "%s%s (%s) %s", i ? "\n" : "", errors[i].pointer, errors[i].keyword, errors[i].message);
    assert_int_equal(rc, err.code);
    assert_true(rc != ERR_INVALID || count > 0);
    schema_free(schema);
    return arena_copy_str(&f->arena, buf_str(&f->buf));
}

/* ---- what callers read ---- */

#define REFUND                                                                                                         \
    "{'type':'object','required':['order_id','amount_cents'],'additionalProperties':false,'properties':{"              \
    "'order_id':{'type':'string','minLength':3,'pattern':'^order_'},'amount_cents':{'type':'integer','minimum':1,"     \
    "'maximum':100000},'currency':{'enum':['EUR','USD']},'price':{'type':'number','multipleOf':0.01}}}"

static const struct {
    const char *schema, *instance, *errors; /* ' stands for " */
} error_cases[] = {
    {REFUND, "{'order_id':'order_1','amount_cents':49.0,'currency':'EUR','price':19.99}", ""},
    {REFUND, "{'order_id':'order_1'}", " (required) required member amount_cents is missing"},
    {REFUND, "{}",
     " (required) required member order_id is missing\n (required) required member amount_cents is missing"},
    {REFUND, "[]", " (type) expected object, got array"},
    {REFUND, "{'order_id':7,'amount_cents':1.5}",
     "/order_id (type) expected string, got integer\n/amount_cents (type) expected integer, got number"},
    {REFUND, "{'order_id':'x','amount_cents':0,'currency':'GBP','price':0.001}",
     "/order_id (minLength) expected at least 3 characters, got 1\n"
     "/order_id (pattern) does not match the pattern ^order_\n"
     "/amount_cents (minimum) must be at least 1\n"
     "/currency (enum) must be one of 'EUR', 'USD'\n"
     "/price (multipleOf) must be a multiple of 0.01"},
    {REFUND, "{'order_id':'order_1','amount_cents':100001}", "/amount_cents (maximum) must be at most 100000"},
    {REFUND, "{'order_id':'order_1','amount_cents':1,'foo':1}", "/foo (additionalProperties) unknown member foo"},
    {REFUND, "{'order_id':'order_1','amount_cents':1,'a b/~':1}",
     "/a b~1~0 (additionalProperties) unknown member 'a b/~'"},
    {REFUND, "{'order_id':'order_1','amount_cent':1}",
     "/amount_cent (additionalProperties) unknown member amount_cent (did you mean amount_cents?)\n"
     " (required) required member amount_cents is missing"},
    {REFUND, "{'order_id':'order_1','amountCents':1,'amount_cents':1}",
     "/amountCents (additionalProperties) unknown member amountCents"},
    {"{'properties':{'a':{'properties':{'b':{'items':{'type':'null'}}}}},'maxProperties':1}",
     "{'x':1,'a':{'b':[null,true]}}",
     "/a/b/1 (type) expected null, got boolean\n (maxProperties) expected at most 1 member, got 2"},
    {"{'exclusiveMinimum':0,'exclusiveMaximum':1}", "0", " (exclusiveMinimum) must be greater than 0"},
    {"{'exclusiveMinimum':0,'exclusiveMaximum':1}", "1.0", " (exclusiveMaximum) must be less than 1"},
    {"{'maxLength':2}", "'\xc3\xa9\xc3\xa9'", ""},
    {"{'maxLength':2}", "'\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80'", " (maxLength) expected at most 2 characters, got 3"},
    {"{'minItems':2,'uniqueItems':true}", "[1]", " (minItems) expected at least 2 items, got 1"},
    {"{'minItems':2,'uniqueItems':true}", "[1,2,{'a':1,'b':2},{'b':2.0,'a':1e0}]",
     " (uniqueItems) items 2 and 3 are equal"},
    {"{'uniqueItems':true}", "[1,2,3,4,5,6,7,8,9,[10],11,12,[1e1]]", " (uniqueItems) items 9 and 12 are equal"},
    {"{'uniqueItems':true}", "[1,'1',true,[1],['1'],{'a':1},{'a':'1'},0,false,null,'',[],{}]", ""},
    {"{'prefixItems':[true],'items':false}", "[1,2]", " (items) expected at most 1 item, got 2"},
    {"{'contains':{'type':'string'},'minContains':2,'maxContains':2}", "['a',1]",
     " (contains) expected at least 2 matching items, got 1"},
    {"{'contains':{'type':'string'},'maxContains':2}", "['a','b','c']",
     " (maxContains) expected at most 2 matching items, got 3"},
    {"{'propertyNames':{'maxLength':2}}", "{'abc':1}",
     "/abc (propertyNames) member name abc is not allowed: expected at most 2 characters, got 3"},
    {"{'dependentRequired':{'card':['cvc']}}", "{'card':1}",
     " (dependentRequired) member cvc is required when card is there"},
    {"{'const':{'a':[1]}}", "{'a':[2]}", " (const) must be {'a':[1]}"},
    {"{'const':9007199254740993}", "9007199254740992", " (const) must be 9007199254740993"},
    {"{'const':49}", "4.90e1", ""},
    {"{'enum':[]}", "1", " (enum) must be one of the values of the schema (there are none)"},
    {"{'type':['string','null']}", "1", " (type) expected string or null, got integer"},
    {"{'anyOf':[{'type':'string'},{'type':'null'}]}", "1", " (anyOf) expected string or null, got integer"},
    {"{'anyOf':[{'type':'string','minLength':2},{'type':'null'}]}", "'a'",
     " (minLength) expected at least 2 characters, got 1"},
    {"{'oneOf':[{'properties':{'kind':{'const':'card'},'n':{'type':'integer'}}},"
     "{'properties':{'kind':{'const':'iban'},'n':{'type':'string'}}}]}",
     "{'kind':'iban','n':1}", "/n (type) expected string, got integer"},
    {"{'anyOf':[{'minimum':5},{'multipleOf':2}]}", "3", " (anyOf) matches none of the 2 alternatives of anyOf"},
    {"{'oneOf':[{'minimum':1},{'minimum':2},{'minimum':9}]}", "3",
     " (oneOf) matches alternatives 0 and 1 of oneOf, expected only one"},
    {"{'not':{'required':['a']}}", "{'a':1}", " (not) must not match the schema under 'not'"},
    {"{'if':{'required':['a']},'then':{'required':['b']},'else':{'required':['c']}}", "{'a':1}",
     " (required) required member b is missing"},
    {"{'if':{'required':['a']},'then':{'required':['b']},'else':{'required':['c']}}", "{}",
     " (required) required member c is missing"},
    {"{'allOf':[{'properties':{'a':true}}],'unevaluatedProperties':false}", "{'a':1,'b':2}",
     "/b (unevaluatedProperties) unknown member b"},
    {"{'prefixItems':[true],'contains':{'type':'string'},'unevaluatedItems':false}", "[1,'a',2]",
     "/2 (unevaluatedItems) unexpected item"},
    {"{'properties':{'a':false}}", "{'a':1}", "/a (false) no value is allowed here"},
    {"false", "1", " (false) no value is allowed here"},
    {"{'$schema':'http://json-schema.org/draft-07/schema#','items':[{'type':'string'}],'additionalItems':false}",
     "['a',1]", " (additionalItems) expected at most 1 item, got 2"},
    {"{'$schema':'http://json-schema.org/draft-07/schema#','properties':{'a':{'$ref':'#/definitions/n','type':'null'}},"
     "'definitions':{'n':{'type':'integer'}}}",
     "{'a':1}", ""},
    {"{'dependencies':{'a':['b'],'c':{'required':['d']}}}", "{'a':1,'c':1}",
     " (dependencies) member b is required when a is there\n (required) required member d is missing"},
};

static char *quoted(struct fixture *f, const char *text)
{
    char *copy = arena_copy_text(&f->arena, text);
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    return copy;
}

static void test_error_texts(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof error_cases / sizeof *error_cases; i++) {
        const char *schema = quoted(f, error_cases[i].schema);
        const char *instance = quoted(f, error_cases[i].instance), *expected = quoted(f, error_cases[i].errors);
        const char *got = errors_of(f, schema, instance);
        if (strcmp(got, expected) != 0)
            fail_msg("%s on %s gives\n%s\nnot\n%s", instance, schema, got, expected);
    }
}

static void test_first_error_is_the_line(void **state)
{
    struct fixture *f = *state;
    struct schema *schema = compile(f, "{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"b\"]}");
    struct schema_error *errors;
    size_t count;
    struct err err = {0};
    assert_int_equal(schema_validate(schema, &f->arena, parse(f, "{\"a\":1}"), &errors, &count, &err), ERR_INVALID);
    assert_int_equal(count, 2);
    assert_string_equal(err.text, "/a: expected null, got integer");
    assert_int_equal(schema_validate(schema, &f->arena, parse(f, "{\"a\":1}"), &errors, &count, NULL), ERR_INVALID);
    schema_free(schema);
}

static void test_errors_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct schema *schema = compile(f, "{\"items\":{\"type\":\"null\"}}");
    struct schema_error *errors;
    size_t count;
    struct json *array = json_array(&f->arena);
    for (int i = 0; i < 100; i++)
        json_append(&f->arena, array, json_int(&f->arena, i));
    assert_int_equal(schema_validate(schema, &f->arena, array, &errors, &count, NULL), ERR_INVALID);
    assert_int_equal(count, SCHEMA_ERRORS_MAX);
    schema_free(schema);
}

/* Names come from callers: long ones are cut between characters, odd ones quoted. */
static void test_names_in_errors(void **state)
{
    struct fixture *f = *state;
    char name[201] = {0};
    for (int i = 0; i < 200; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    memmove(name + 1, name, 199);
    name[0] = 'x';
    name[199] = '\0';
    struct json *object = json_object(&f->arena);
    json_set(&f->arena, object, str_of(name), json_null());
    json_set(&f->arena, object, STR(""), json_null());
    json_set(&f->arena, object, STR("a\nb"), json_null());
    struct schema *schema = compile(f, "{\"additionalProperties\":false}");
    struct schema_error *errors;
    size_t count;
    assert_int_equal(schema_validate(schema, &f->arena, object, &errors, &count, NULL), ERR_INVALID);
    assert_int_equal(count, 3);
    assert_int_equal(strlen(errors[0].message), strlen("unknown member ") + 63 + 3);
    assert_string_equal(errors[1].message, "unknown member \"\"");
    assert_string_equal(errors[1].pointer, "/");
    assert_string_equal(errors[2].message, "unknown member \"a\\nb\"");
    schema_free(schema);
}

/* ---- broken schemas ---- */

static const struct {
    const char *schema, *error;
} refused_schemas[] = {
    {"3", "must be a schema (an object, true or false), is number"},
    {"{'properties':{'a':{'type':'text'}}}",
     "/properties/a/type: must be one or an array of null, boolean, integer, number, string, array, object"},
    {"{'type':[]}", "/type: must name at least one type"},
    {"{'properties':[]}", "/properties: must be an object"},
    {"{'properties':{'a/b':null}}", "/properties/a~1b: must be a schema (an object, true or false), is null"},
    {"{'required':'a'}", "/required: must be an array of names"},
    {"{'required':[1]}", "/required: must be an array of names"},
    {"{'minLength':-1}", "/minLength: must be a non-negative integer"},
    {"{'minLength':1.5}", "/minLength: must be a non-negative integer"},
    {"{'maximum':'3'}", "/maximum: must be a number"},
    {"{'multipleOf':0}", "/multipleOf: must be a number greater than 0"},
    {"{'allOf':[]}", "/allOf: must be a non-empty array of schemas"},
    {"{'enum':1}", "/enum: must be an array of values"},
    {"{'uniqueItems':1}", "/uniqueItems: must be true or false"},
    {"{'pattern':'('}", "/pattern: missing closing parenthesis in the pattern"},
    {"{'patternProperties':{'a**':true}}", "/patternProperties: nothing to repeat at byte 3 of the pattern"},
    {"{'$defs':[]}", "/$defs: must be an object"},
    {"{'$defs':{'unused':{'type':1}}}",
     "/$defs/unused/type: must be one or an array of null, boolean, integer, number, string, array, object"},
    {"{'$ref':1}", "/$ref: must be a URI reference"},
    {"{'$ref':'#/$defs/a'}", "/$ref: there is nothing at #/$defs/a"},
    {"{'$ref':'#/title','title':'x'}", "/$ref: #/title is not a schema"},
    {"{'$ref':'#a'}", "/$ref: there is no anchor a"},
    {"{'items':{'$ref':'http://example.com/a.json#/b'}}",
     "/items/$ref: http://example.com/a.json is not part of this schema, and nothing is fetched"},
    {"{'$schema':'http://json-schema.org/draft-04/schema#'}",
     "/$schema: http://json-schema.org/draft-04/schema# is not supported (2020-12 and draft-07 are)"},
    {"{'$schema':1}", "/$schema: must be a string"},
    {"{'$id':1}", "/$id: must be a string"},
    {"{'$id':'a#b'}", "/$id: must have no fragment"},
    {"{'$defs':{'a':{'$id':'x'},'b':{'$id':'x'}}}", "/$defs/b/$id: x is there twice"},
    {"{'$defs':{'a':{'$anchor':'x'},'b':{'$anchor':'x'}}}", "/$defs/b/$anchor: the anchor x is there twice"},
    {"{'items':[true]}", "/items: an array of schemas is draft 7; 2020-12 calls it prefixItems"},
    {"{'$ref':'#'}", "refers to itself for the same value without end"},
    {"{'$defs':{'a':{'anyOf':[{'type':'null'},{'$ref':'#/$defs/b'}]},'b':{'$ref':'#/$defs/a'}}}",
     "/$defs/a: refers to itself for the same value without end"},
};

static void test_broken_schemas(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof refused_schemas / sizeof *refused_schemas; i++) {
        const char *text = quoted(f, refused_schemas[i].schema);
        struct schema *schema = NULL;
        struct err err = {0};
        enum err_code rc = schema_new(parse(f, text), NULL, 0, &schema, &err);
        if (rc != ERR_INVALID || strcmp(err.text, refused_schemas[i].error) != 0)
            fail_msg("%s gives %s\nnot %s", text, err.text, refused_schemas[i].error);
        assert_null(schema);
    }
    assert_int_equal(schema_new(parse(f, "{\"type\":1}"), NULL, 0, &(struct schema *){NULL}, NULL), ERR_INVALID);
    schema_free(NULL);
}

/* A schema that describes a tree refers to itself rightly. */
static void test_recursion_that_consumes(void **state)
{
    struct fixture *f = *state;
    const char *tree = "{\"properties\":{\"next\":{\"$ref\":\"#\"},\"v\":{\"type\":\"integer\"}},"
                       "\"additionalProperties\":false}";
    assert_string_equal(errors_of(f, tree, "{\"next\":{\"next\":{\"v\":1}}}"), "");
    assert_string_equal(errors_of(f, tree, "{\"next\":{\"next\":{\"v\":\"1\"}}}"),
                        "/next/next/v (type) expected integer, got string");
}

static void test_documents(void **state)
{
    struct fixture *f = *state;
    struct schema_document documents[] = {
        {"https://example.com/money#", parse(f, "{\"type\":\"integer\",\"minimum\":\"broken\"}")},
        {"https://example.com/id", parse(f, "{\"$defs\":{\"id\":{\"$anchor\":\"id\",\"minLength\":2}}}")},
    };
    struct schema *schema = NULL;
    struct err err = {0};
    const char *good = "{\"$id\":\"https://example.com/tools/pay\",\"properties\":{\"a\":{\"$ref\":\"../id#id\"}}}";
    assert_int_equal(schema_new(parse(f, good), documents, 2, &schema, &err), ERR_NONE);
    struct schema_error *errors;
    size_t count;
    assert_int_equal(schema_validate(schema, &f->arena, parse(f, "{\"a\":\"x\"}"), &errors, &count, &err), ERR_INVALID);
    assert_string_equal(err.text, "/a: expected at least 2 characters, got 1");
    schema_free(schema);
    err_clear(&err);
    assert_int_equal(schema_new(parse(f, "{\"$ref\":\"https://example.com/money\"}"), documents, 2, &schema, &err),
                     ERR_INVALID);
    assert_string_equal(err.text, "https://example.com/money#/minimum: must be a number");
}

static void test_meta_schemas(void **state)
{
    struct fixture *f = *state;
    const char *meta_2020 = "{\"$ref\":\"https://json-schema.org/draft/2020-12/schema\"}";
    assert_string_equal(errors_of(f, meta_2020, "{\"properties\":{\"a\":{\"minLength\":1}}}"), "");
    assert_string_equal(errors_of(f, meta_2020, "{\"properties\":{\"a\":{\"minLength\":-1}}}"),
                        "/properties/a/minLength (minimum) must be at least 0");
    assert_string_equal(
        errors_of(f, "{\"$ref\":\"http://json-schema.org/draft-07/schema#\"}", "{\"items\":[{\"not\":3}]}"),
        "/items/0/not (type) expected boolean or object, got integer");
}

/* ---- defaults ---- */

static const struct {
    const char *schema, *instance, *filled;
} default_cases[] = {
    {"{'properties':{'a':{'default':1},'b':{'default':2}}}", "{'b':3}", "{'b':3,'a':1}"},
    {"{'properties':{'a':{'default':1}}}", "{'a':null}", "{'a':null}"},
    {"{'properties':{'a':{'default':1}}}", "[]", "[]"},
    {"{'properties':{'a':{'default':{},'properties':{'b':{'default':[1]}}}}}", "{}", "{'a':{'b':[1]}}"},
    {"{'items':{'properties':{'a':{'default':1}}}}", "[{},{'a':2},3]", "[{'a':1},{'a':2},3]"},
    {"{'prefixItems':[{'properties':{'a':{'default':1}}}]}", "[{},{}]", "[{'a':1},{}]"},
    {"{'allOf':[{'properties':{'a':{'default':1}}},{'properties':{'a':{'default':2}}}]}", "{}", "{'a':1}"},
    {"{'$ref':'#/$defs/o','$defs':{'o':{'properties':{'a':{'$ref':'#/$defs/n'}}},'n':{'default':7}}}", "{}", "{'a':7}"},
    {"{'anyOf':[{'properties':{'a':{'default':1}}}],'if':{'properties':{'b':{'default':1}}}}", "{}", "{}"},
    {"{'properties':{'next':{'$ref':'#'},'n':{'default':0}}}", "{'next':{'next':{}}}",
     "{'next':{'next':{'n':0},'n':0},'n':0}"},
};

static void test_defaults(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof default_cases / sizeof *default_cases; i++) {
        struct schema *schema = compile(f, quoted(f, default_cases[i].schema));
        for (int round = 0; round < 2; round++) { /* the schema's own values must have stayed as they were */
            struct json *instance = parse(f, quoted(f, default_cases[i].instance));
            schema_apply_defaults(schema, &f->arena, instance);
            buf_reset(&f->buf);
            json_write(&f->buf, instance);
            assert_string_equal(f->buf.p, quoted(f, default_cases[i].filled));
        }
        schema_free(schema);
    }
}

/* What happens to one filled instance is not seen in the next. */
static void test_defaults_are_not_shared(void **state)
{
    struct fixture *f = *state;
    struct schema *schema = compile(f, "{\"properties\":{\"a\":{\"default\":{\"x\":{}},\"properties\":"
                                       "{\"x\":{\"properties\":{\"b\":{\"default\":1}}}}}}}");
    for (int round = 0; round < 2; round++) {
        struct json *instance = parse(f, "{}");
        schema_apply_defaults(schema, &f->arena, instance);
        struct json *x = (struct json *)json_pointer_get(instance, STR("/a/x"));
        assert_int_equal(x->count, 1);
        json_set(&f->arena, x, STR("c"), json_null());
    }
    schema_free(schema);
}

/* A default that needs itself would go on for ever. */
static void test_defaults_end(void **state)
{
    struct fixture *f = *state;
    struct schema *schema = compile(f, "{\"properties\":{\"a\":{\"$ref\":\"#\",\"default\":{}}}}");
    struct json *instance = parse(f, "{}");
    schema_apply_defaults(schema, &f->arena, instance);
    assert_int_equal(instance->count, 1);
    schema_free(schema);
}

/* ---- limits ---- */

static const char *repeat(struct fixture *f, const char *head, const char *part, int count, const char *tail)
{
    buf_reset(&f->buf);
    buf_add_text(&f->buf, head);
    for (int i = 0; i < count; i++)
        buf_add_text(&f->buf, part);
    buf_add_text(&f->buf, tail);
    return arena_copy_str(&f->arena, buf_str(&f->buf));
}

static void test_steps_are_bounded(void **state)
{
    struct fixture *f = *state;
    /* 2^20 ways through the alternatives. */
    struct json *schema_value = parse(f, "{\"$defs\":{\"a0\":false}}");
    struct json *defs = (struct json *)json_get(schema_value, "$defs");
    for (int i = 1; i <= 20; i++) {
        const char *both = arena_printf(
            &f->arena, "{\"anyOf\":[{\"$ref\":\"#/$defs/a%d\"},{\"$ref\":\"#/$defs/a%d\"}]}", i - 1, i - 1);
        json_set(&f->arena, defs, str_of(arena_printf(&f->arena, "a%d", i)), *parse(f, both));
    }
    json_set(&f->arena, schema_value, STR("$ref"), json_string(STR("#/$defs/a20")));
    buf_reset(&f->buf);
    json_write(&f->buf, schema_value);
    const char *text = arena_copy_str(&f->arena, buf_str(&f->buf));
    assert_string_equal(errors_of(f, text, "1"), "limit: validation takes more than a million steps");
}

static void test_nesting_is_bounded(void **state)
{
    struct fixture *f = *state;
    const char *deep = repeat(f, repeat(f, "", "[", 600, ""), "]", 600, "");
    assert_string_equal(errors_of(f, "{\"items\":{\"$ref\":\"#\"}}", deep),
                        "limit: schemas nest more than 500 deep on this instance");
    /* A loop that only the dynamic scope closes cannot be seen when compiling. */
    assert_string_equal(errors_of(f, "{\"$dynamicAnchor\":\"a\",\"$dynamicRef\":\"#a\"}", "1"),
                        "limit: schemas nest more than 500 deep on this instance");
    /* Long chains of references take no C stack while compiling. */
    buf_reset(&f->buf);
    buf_add_text(&f->buf, "{\"$ref\":\"#/$defs/a0\",\"$defs\":{");
    for (int i = 0; i < 20000; i++)
        buf_printf(&f->buf, "\"a%d\":{\"$ref\":\"#/$defs/a%d\"},", i, i + 1);
    buf_add_text(&f->buf, "\"a20000\":true}}");
    const char *chain = arena_copy_str(&f->arena, buf_str(&f->buf));
    assert_string_equal(errors_of(f, chain, "1"), "limit: schemas nest more than 500 deep on this instance");
}

static void test_patterns_are_bounded(void **state)
{
    struct fixture *f = *state;
    const char *evil = repeat(f, "\"", "a", 60, "!\"");
    assert_string_equal(errors_of(f, "{\"pattern\":\"^(a|a?)+$\"}", evil),
                        "limit: a pattern of the schema backtracks more than 100000 times");
    const char *long_text = repeat(f, "\"", "ab", 20000, "\"");
    assert_string_equal(errors_of(f, "{\"pattern\":\"^(ab)*$\"}", long_text), "");
    assert_string_equal(errors_of(f, "{\"pattern\":\"^[ab]+$\"}", long_text), "");
}

static void test_large_arrays(void **state)
{
    struct fixture *f = *state;
    struct json *array = json_array(&f->arena);
    for (int i = 0; i < 50000; i++)
        json_append(&f->arena, array, json_int(&f->arena, i));
    struct schema *schema = compile(f, "{\"uniqueItems\":true,\"items\":{\"type\":\"integer\"}}");
    struct schema_error *errors;
    size_t count;
    assert_int_equal(schema_validate(schema, &f->arena, array, &errors, &count, NULL), ERR_NONE);
    json_append(&f->arena, array, json_number(STR("7.0")));
    assert_int_equal(schema_validate(schema, &f->arena, array, &errors, &count, NULL), ERR_INVALID);
    assert_string_equal(errors[0].message, "items 7 and 50000 are equal");
    schema_free(schema);
}

static void test_valid_takes_no_memory(void **state)
{
    struct fixture *f = *state;
    struct schema *schema = compile(f, quoted(f, "{'required':['a'],'properties':{'a':{'type':'string','maxLength':3},"
                                                 "'b':{'anyOf':[{'type':'null'},{'minimum':1}]}},"
                                                 "'unevaluatedProperties':false}"));
    struct json *instance = parse(f, "{\"a\":\"x\",\"b\":1}");
    struct arena none;
    struct schema_error *errors;
    size_t count;
    arena_init(&none);
    assert_int_equal(schema_validate(schema, &none, instance, &errors, &count, NULL), ERR_NONE);
    assert_int_equal(none.bytes, 0);
    arena_release(&none);
    schema_free(schema);
}

/* ---- patterns ---- */

static const struct {
    const char *pattern;
    struct str text;
    bool matches;
} pattern_cases[] = {
    {"", STR(""), true},
    {"b", STR("abc"), true},
    {"^b$", STR("b\n"), false},
    {"^\\d$", STR("\xd9\xa1"), false},
    {"^\\w$", STR("\xc3\xa9"), false},
    {"^\\s$", STR("\xc2\xa0"), true},
    {"^\\s$", STR("\xef\xbb\xbf"), true},
    {"^[\\s]$", STR("\xe2\x80\xa9"), true},
    {"^\\S$", STR("\xc2\xa0"), false},
    {"^.$", STR("\xf0\x9f\x98\x80"), true},
    {"^.$", STR("\xe2\x80\xa8"), false},
    {"^.$", STR("\r"), false},
    {"^\\u00e9$", STR("\xc3\xa9"), true},
    {"^\\uD83D\\uDE00$", STR("\xf0\x9f\x98\x80"), true},
    {"^\\u{1F600}$", STR("\xf0\x9f\x98\x80"), true},
    {"^[\\u{1F600}-\\u{1F64F}]$", STR("\xf0\x9f\x98\x81"), true},
    {"^\\x41\\cJ\\0\\v$", {"A\n\0\v", 4}, true},
    {"^\\p{Letter}\\p{Lu}\\p{gc=Decimal_Number}$", STR("\xc3\xa9\x41\xd9\xa1"), true},
    {"^\\p{Script=Greek}\\P{Script=Greek}$", STR("\xce\xb1g"), true},
    {"^[\\p{L}_-]+$", STR("\xc3\xa9_-"), true},
    {"^[[:alpha:]]$", STR("a]"), true},
    {"^[[:alpha:]]$", STR("z]"), false},
    {"^[^]$", STR("\n"), true},
    {"[]", STR("a"), false},
    {"^a{,2}$", STR("a{,2}"), true},
    {"^a{1,2}?$", STR("aa"), true},
    {"^{a}$", STR("{a}"), true},
    {"^(?:(a)|b)\\1$", STR("b"), true},
    {"^(?<x>a|b)\\k<x>$", STR("bb"), true},
    {"^(?!no)\\w+(?<=s)$", STR("yes"), true},
    {"^(?i)YES$", STR("yes"), true},
    {"^\\/\\-\\_\\@\\\"$", STR("/-_@\""), true},
    {"^[\\b]$", STR("\b"), true},
    {"\\bfoo\\b", STR("a foo b"), true},
    {"a", {"\xff", 1}, false}, /* never UTF-8 in parsed JSON; must only be harmless */
};

static void test_patterns(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof pattern_cases / sizeof *pattern_cases; i++) {
        struct schema_pattern *pattern = NULL;
        struct schema_matcher matcher = {.arena = &f->arena};
        struct err err = {0};
        int64_t steps = 1000;
        if (schema_pattern_new(&f->arena, str_of(pattern_cases[i].pattern), &pattern, &err))
            fail_msg("%s: %s", pattern_cases[i].pattern, err.text);
        enum schema_match match = schema_pattern_match(pattern, &matcher, pattern_cases[i].text, &steps);
        if (match != (pattern_cases[i].matches ? SCHEMA_MATCH_YES : SCHEMA_MATCH_NO))
            fail_msg("%s on %.*s gives %d", pattern_cases[i].pattern, STR_ARG(pattern_cases[i].text), (int)match);
        assert_true(steps < 1000);
        schema_pattern_release(pattern);
    }
}

static void test_refused_patterns(void **state)
{
    static const char *const refused[] = {
        "(",      "a)",    "[a",           "\\",       "a++",   "*a",          "(*ACCEPT)", "(?R)",  "(?>a)",   "\\A",
        "\\Z",    "\\Q",   "\\K",          "\\h",      "\\u12", "\\u{110000}", "\\uD800",   "\\x1",  "\\c1",    "\\p",
        "\\pL",   "\\p{}", "\\p{Klingon}", "\\01",     "\\1",   "\\k<a>",      "\\k",       "(?#c)", "a{2}{3}", "[\\1]",
        "a{2,1}", "[z-a]", "\\e",          "(?P<n>a)", "\\u{}", "|*",          "^*",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct schema_pattern *pattern = NULL;
        struct err err = {0};
        enum err_code rc = schema_pattern_new(&f->arena, str_of(refused[i]), &pattern, &err);
        if (rc != ERR_INVALID || !err.text[0])
            fail_msg("%s is not refused", refused[i]);
    }
    struct schema_pattern *pattern = NULL;
    struct err err = {0};
    const char *large = repeat(f, "", "a", SCHEMA_PATTERN_BYTES_MAX + 1, "");
    assert_int_equal(schema_pattern_new(&f->arena, str_of(large), &pattern, &err), ERR_LIMIT);
}

/* ---- URIs ---- */

static void test_uris(void **state)
{
    /* RFC 3986, 5.4, and what relative bases and URNs need. */
    static const struct {
        const char *base, *reference, *uri, *fragment;
    } cases[] = {
        {"http://a/b/c/d;p?q", "g:h", "g:h", NULL},
        {"http://a/b/c/d;p?q", "g", "http://a/b/c/g", NULL},
        {"http://a/b/c/d;p?q", "./g/", "http://a/b/c/g/", NULL},
        {"http://a/b/c/d;p?q", "/g", "http://a/g", NULL},
        {"http://a/b/c/d;p?q", "//g", "http://g", NULL},
        {"http://a/b/c/d;p?q", "?y", "http://a/b/c/d;p?y", NULL},
        {"http://a/b/c/d;p?q", "g?y#s", "http://a/b/c/g?y", "s"},
        {"http://a/b/c/d;p?q", "#s", "http://a/b/c/d;p?q", "s"},
        {"http://a/b/c/d;p?q", "", "http://a/b/c/d;p?q", NULL},
        {"http://a/b/c/d;p?q", ".", "http://a/b/c/", NULL},
        {"http://a/b/c/d;p?q", "..", "http://a/b/", NULL},
        {"http://a/b/c/d;p?q", "../../g", "http://a/g", NULL},
        {"http://a/b/c/d;p?q", "../../../g", "http://a/g", NULL},
        {"http://a/b/c/d;p?q", "g/../h", "http://a/b/c/h", NULL},
        {"http://a/b/c/d;p?q", "g..", "http://a/b/c/g..", NULL},
        {"http://a", "g", "http://a/g", NULL},
        {"", "a/b.json#/c%25d", "a/b.json", "/c%d"},
        {"a/b.json", "../c", "c", NULL},
        {"a/b.json", "c", "a/c", NULL},
        {"", "#", "", ""},
        {"urn:uuid:1", "#/a%2", "urn:uuid:1", "/a%2"},
        {"http://a/b", "urn:x:../y", "urn:x:../y", NULL},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct schema_uri uri = schema_uri_resolve(&f->arena, str_of(cases[i].base), str_of(cases[i].reference));
        assert_string_equal(arena_copy_str(&f->arena, uri.base), cases[i].uri);
        if (cases[i].fragment)
            assert_string_equal(arena_copy_str(&f->arena, uri.fragment), cases[i].fragment);
        else
            assert_null(uri.fragment.p);
    }
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_error_texts),
        TEST(test_first_error_is_the_line),
        TEST(test_errors_are_bounded),
        TEST(test_names_in_errors),
        TEST(test_broken_schemas),
        TEST(test_recursion_that_consumes),
        TEST(test_documents),
        TEST(test_meta_schemas),
        TEST(test_defaults),
        TEST(test_defaults_are_not_shared),
        TEST(test_defaults_end),
        TEST(test_steps_are_bounded),
        TEST(test_nesting_is_bounded),
        TEST(test_patterns_are_bounded),
        TEST(test_large_arrays),
        TEST(test_valid_takes_no_memory),
        TEST(test_patterns),
        TEST(test_refused_patterns),
        TEST(test_uris),
    };
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
