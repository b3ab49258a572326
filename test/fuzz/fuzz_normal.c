/* Rules of normalisers on the first line, a value behind it. */
#include "fuzz.h"

#include "core/normal.h"

static struct str canonical(struct arena *arena, const struct json *value)
{
    struct buf text;
    buf_init(&text, 0);
    json_canonical(&text, value);
    struct str out = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return out;
}

static void check_apply(struct arena *arena, const struct normal *normal, struct json *value)
{
    struct json *original = json_copy(arena, value), *changed = NULL;
    struct json before = *json_copy(arena, value), copy = before;
    struct err err = {0};
    if (normal_apply(normal, arena, value, &err) != ERR_NONE) {
        CHECK(err.text[0] != '\0');
        return;
    }
    /* The result is JSON, and the same every time. */
    struct str text = canonical(arena, value);
    CHECK(json_parse(arena, text, NULL, &changed, NULL) == ERR_NONE && json_equal(value, changed));
    CHECK(normal_apply(normal, arena, original, NULL) == ERR_NONE && json_equal(value, original));
    /* What lies below the members of the root is not written to. */
    if (copy.type == JSON_OBJECT && copy.count > 0) {
        struct str inner = canonical(arena, &before);
        size_t bytes = copy.count * sizeof *copy.members;
        copy.members = memcpy(arena_alloc(arena, bytes), copy.members, bytes);
        CHECK(normal_apply(normal, arena, &copy, NULL) == ERR_NONE);
        CHECK(str_equal(inner, canonical(arena, &before)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str line, rest;
    fuzz_split((struct str){(const char *)data, size}, &line, &rest);
    struct arena arena;
    struct err err = {0};
    struct normal *normal = NULL;
    struct json *rules = NULL, *value = NULL;
    arena_init(&arena);
    if (json_parse(&arena, line, NULL, &rules, NULL) == ERR_NONE) {
        if (normal_new(rules, &normal, &err) != ERR_NONE)
            CHECK(err.text[0] != '\0');
        else if (json_parse(&arena, rest, NULL, &value, NULL) == ERR_NONE)
            check_apply(&arena, normal, value);
    }
    normal_free(normal);
    arena_release(&arena);
    return 0;
}
