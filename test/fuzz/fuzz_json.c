/* Any bytes: refused with an error, or read, and then nothing is lost on the way out and in again. */
#include "fuzz.h"

#include "base/json.h"

static struct json *parse(struct arena *arena, struct str text)
{
    struct json *value = NULL;
    struct err err = {0};
    /* What we write may be longer than what came in, and nested as deeply. */
    struct json_limits limits = {.bytes_max = SIZE_MAX / 4, .depth_max = 64, .values_max = 100000};
    if (json_parse(arena, text, &limits, &value, &err) != ERR_NONE) {
        fprintf(stderr, "%s\n", err.text);
        return NULL;
    }
    return value;
}

static void check_same(struct arena *arena, const struct json *value, struct str text)
{
    struct json *again = parse(arena, text);
    CHECK(again && json_equal(value, again));
    const char **pointers;
    CHECK(json_diff(arena, value, again, 4, &pointers) == 0);
}

static void check_texts(struct arena *arena, const struct json *value)
{
    struct buf text, twice;
    buf_init(&text, 0);
    buf_init(&twice, 0);
    json_write(&text, value);
    check_same(arena, value, buf_str(&text));
    json_write(&twice, parse(arena, buf_str(&text)));
    CHECK(str_equal(buf_str(&text), buf_str(&twice)));
    buf_reset(&text);
    json_write_pretty(&text, value);
    check_same(arena, value, buf_str(&text));
    buf_reset(&text);
    json_canonical(&text, value);
    check_same(arena, value, buf_str(&text));
    buf_reset(&twice);
    json_canonical(&twice, parse(arena, buf_str(&text)));
    CHECK(str_equal(buf_str(&text), buf_str(&twice)));
    buf_release(&text);
    buf_release(&twice);
}

static void check_number(struct str number)
{
    struct buf canonical;
    buf_init(&canonical, 0);
    json_canonical_number(&canonical, number);
    struct str same = buf_str(&canonical);
    CHECK(json_number_compare(number, same) == 0);
    CHECK(json_number_compare(same, number) == 0);
    CHECK(json_number_is_integer(number) == json_number_is_integer(same));
    bool bounded = number.n < 5000 && !memchr(number.p, 'e', number.n) && !memchr(number.p, 'E', number.n);
    CHECK(!bounded || json_number_multiple_of(number, same) || json_number_compare(number, STR("0")) <= 0);
    int64_t a = 0, b = 0;
    bool fits = json_number_int64(number, &a);
    CHECK(fits == json_number_int64(same, &b) && a == b);
    CHECK(!fits || json_number_multiple_of(number, STR("1")));
    if (fits) {
        char text[24];
        int n = snprintf(text, sizeof text, "%lld", (long long)a);
        CHECK(json_number_compare(number, (struct str){text, (size_t)n}) == 0);
    }
    buf_release(&canonical);
}

/* Every value is found under the pointer that leads to it. */
static void walk(const struct json *root, const struct json *value, struct buf *pointer)
{
    CHECK(json_pointer_get(root, buf_str(pointer)) == value);
    if (value->type == JSON_NUMBER)
        check_number(value->text);
    size_t length = pointer->n;
    bool object = value->type == JSON_OBJECT;
    for (uint32_t i = 0; (object || value->type == JSON_ARRAY) && i < value->count && i < 50; i++) {
        char index[16];
        int n = snprintf(index, sizeof index, "%u", i);
        json_pointer_add(pointer, object ? value->members[i].name : (struct str){index, (size_t)n});
        walk(root, object ? &value->members[i].value : &value->items[i], pointer);
        pointer->n = length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str input = {(const char *)data, size};
    struct arena arena;
    struct err err = {0};
    struct json *value = NULL;
    arena_init(&arena);
    if (json_parse(&arena, input, NULL, &value, &err) == ERR_NONE) {
        check_texts(&arena, value);
        CHECK(json_equal(value, json_copy(&arena, value)));
        struct buf pointer;
        buf_init(&pointer, 0);
        walk(value, value, &pointer);
        buf_release(&pointer);
        json_pointer_get(value, input);
    } else {
        CHECK(value == NULL && err.code != ERR_NONE && err.text[0] != '\0');
    }
    arena_release(&arena);
    return 0;
}
