/* A schema on the first line, an instance behind it. */
#include "fuzz.h"

#include "core/schema.h"

static void check_errors(const struct json *instance, const struct schema_error *errors, size_t count)
{
    CHECK(count > 0 && count <= SCHEMA_ERRORS_MAX);
    for (size_t i = 0; i < count; i++) {
        CHECK(errors[i].message[0] != '\0' && errors[i].keyword[0] != '\0');
        CHECK(json_pointer_get(instance, str_of(errors[i].pointer)));
    }
}

static enum err_code validate(const struct schema *schema, struct arena *arena, const struct json *instance)
{
    struct schema_error *errors = NULL;
    size_t count = 0;
    struct err err = {0};
    enum err_code rc = schema_validate(schema, arena, instance, &errors, &count, &err);
    CHECK(rc == ERR_NONE || rc == ERR_INVALID || rc == ERR_LIMIT);
    CHECK(rc == err.code && (rc == ERR_NONE) == (err.text[0] == '\0'));
    if (rc == ERR_INVALID)
        check_errors(instance, errors, count);
    return rc;
}

/* Canonical form changes how numbers are written and members are ordered: nothing that a schema may see. */
static void check_canonical(const struct schema *schema, struct arena *arena, const struct json *instance,
                            enum err_code expected)
{
    struct buf text;
    struct json *again = NULL;
    buf_init(&text, 0);
    json_canonical(&text, instance);
    if (json_parse(arena, buf_str(&text), NULL, &again, NULL) == ERR_NONE) {
        enum err_code rc = validate(schema, arena, again);
        CHECK(rc == expected || rc == ERR_LIMIT || expected == ERR_LIMIT);
    }
    buf_release(&text);
}

static void check_defaults(const struct schema *schema, struct arena *arena, struct json *instance)
{
    struct buf text;
    buf_init(&text, 0);
    schema_apply_defaults(schema, arena, instance);
    json_write(&text, instance);
    size_t n = text.n;
    buf_reset(&text);
    schema_apply_defaults(schema, arena, json_copy(arena, instance));
    json_write(&text, instance);
    CHECK(text.n == n);
    buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str line, rest;
    fuzz_split((struct str){(const char *)data, size}, &line, &rest);
    struct arena arena;
    struct json *value = NULL, *instance = NULL;
    struct schema *schema = NULL;
    struct err err = {0};
    arena_init(&arena);
    if (json_parse(&arena, line, NULL, &value, NULL) == ERR_NONE &&
        json_parse(&arena, rest, NULL, &instance, NULL) == ERR_NONE) {
        if (schema_new(value, NULL, 0, &schema, &err) == ERR_NONE) {
            check_canonical(schema, &arena, instance, validate(schema, &arena, instance));
            check_defaults(schema, &arena, instance);
        } else {
            CHECK(err.text[0] != '\0' && !schema);
        }
    }
    schema_free(schema);
    arena_release(&arena);
    return 0;
}
