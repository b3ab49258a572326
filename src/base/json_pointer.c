/* JSON Pointer (RFC 6901), and where two values differ. */
#include "base/json_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

bool json_pointer_valid(struct str pointer)
{
    if (pointer.n == 0)
        return true;
    if (pointer.p[0] != '/')
        return false;
    for (size_t i = 0; i < pointer.n; i++)
        if (pointer.p[i] == '~' && (i + 1 == pointer.n || (pointer.p[i + 1] != '0' && pointer.p[i + 1] != '1')))
            return false;
    return true;
}

void json_pointer_add(struct buf *buf, struct str token)
{
    buf_add_char(buf, '/');
    for (size_t i = 0; i < token.n; i++) {
        if (token.p[i] == '~')
            buf_add(buf, "~0", 2);
        else if (token.p[i] == '/')
            buf_add(buf, "~1", 2);
        else
            buf_add_char(buf, token.p[i]);
    }
}

static bool token_is(struct str token, struct str name)
{
    size_t at = 0;
    for (size_t i = 0; i < token.n; i++, at++) {
        char c = token.p[i];
        if (c == '~')
            c = token.p[++i] == '0' ? '~' : '/'; /* the pointer has been checked */
        if (at >= name.n || name.p[at] != c)
            return false;
    }
    return at == name.n;
}

static const struct json *member_of(const struct json *object, struct str token)
{
    for (uint32_t i = 0; i < object->count; i++)
        if (token_is(token, object->members[i].name))
            return &object->members[i].value;
    return NULL;
}

static const struct json *item_of(const struct json *array, struct str token)
{
    uint64_t index = 0;
    if (token.n == 0 || token.n > 10 || (token.n > 1 && token.p[0] == '0'))
        return NULL;
    for (size_t i = 0; i < token.n; i++) {
        if (token.p[i] < '0' || token.p[i] > '9')
            return NULL;
        index = index * 10 + (uint64_t)(token.p[i] - '0');
    }
    return index < array->count ? &array->items[index] : NULL;
}

const struct json *json_pointer_get(const struct json *value, struct str pointer)
{
    if (!json_pointer_valid(pointer))
        return NULL;
    const char *p = pointer.p, *end = pointer.p + pointer.n;
    while (value && p < end) {
        const char *start = ++p; /* behind the "/" */
        const char *slash = memchr(start, '/', (size_t)(end - start));
        p = slash ? slash : end;
        struct str token = {start, (size_t)(p - start)};
        if (value->type == JSON_OBJECT)
            value = member_of(value, token);
        else if (value->type == JSON_ARRAY)
            value = item_of(value, token);
        else
            value = NULL;
    }
    return value;
}

void json_pointer_remove(struct json *value, const char *pointer)
{
    const char *last = strrchr(pointer, '/');
    if (!last)
        return;
    struct json *parent = (struct json *)json_pointer_get(value, (struct str){pointer, (size_t)(last - pointer)});
    if (!parent || parent->type != JSON_OBJECT)
        return;
    const struct json *member = member_of(parent, str_of(last + 1));
    for (uint32_t i = 0; member && i < parent->count; i++) {
        if (&parent->members[i].value == member) {
            json_remove(parent, parent->members[i].name);
            return;
        }
    }
}

/* ---- differences ---- */

struct diff {
    struct arena *arena;
    struct buf path;
    const char **pointers;
    size_t count, max;
};

static void note(struct diff *diff)
{
    if (diff->count < diff->max)
        diff->pointers[diff->count++] = arena_copy_str(diff->arena, buf_str(&diff->path));
}

static void compare(struct diff *diff, const struct json *a, const struct json *b);

/* Compares below one more token; a or b may be missing. */
static void compare_at(struct diff *diff, struct str token, const struct json *a, const struct json *b)
{
    size_t length = diff->path.n;
    json_pointer_add(&diff->path, token);
    if (a && b)
        compare(diff, a, b);
    else
        note(diff);
    diff->path.n = length;
    diff->path.p[length] = '\0';
}

/* Both sides in the order of names: objects may be large. */
static void compare_objects(struct diff *diff, const struct json *a, const struct json *b)
{
    const struct json_member *a_room[JSON_SORT_ROOM], *b_room[JSON_SORT_ROOM];
    const struct json_member **left = json_sorted(a, a_room), **right = json_sorted(b, b_room);
    for (uint32_t i = 0, j = 0; diff->count < diff->max && (i < a->count || j < b->count);) {
        int order = i == a->count ? 1 : j == b->count ? -1 : json_name_compare(left[i]->name, right[j]->name);
        struct str name = order <= 0 ? left[i]->name : right[j]->name;
        compare_at(diff, name, order <= 0 ? &left[i]->value : NULL, order >= 0 ? &right[j]->value : NULL);
        i += order <= 0;
        j += order >= 0;
    }
    json_sorted_done(left, a_room);
    json_sorted_done(right, b_room);
}

/* Arrays of different lengths differ as a whole: what was inserted where is a guess. */
static void compare_arrays(struct diff *diff, const struct json *a, const struct json *b)
{
    if (a->count != b->count) {
        note(diff);
        return;
    }
    for (uint32_t i = 0; diff->count < diff->max && i < a->count; i++) {
        char index[16];
        int n = snprintf(index, sizeof index, "%u", i);
        compare_at(diff, (struct str){index, (size_t)n}, &a->items[i], &b->items[i]);
    }
}

static void compare(struct diff *diff, const struct json *a, const struct json *b)
{
    if (a->type == JSON_OBJECT && b->type == JSON_OBJECT)
        compare_objects(diff, a, b);
    else if (a->type == JSON_ARRAY && b->type == JSON_ARRAY)
        compare_arrays(diff, a, b);
    else if (!json_equal(a, b))
        note(diff);
}

size_t json_diff(struct arena *arena, const struct json *a, const struct json *b, size_t max, const char ***pointers)
{
    struct diff diff = {.arena = arena, .max = max};
    diff.pointers = arena_alloc(arena, max * sizeof *diff.pointers);
    buf_init(&diff.path, 0);
    compare(&diff, a, b);
    buf_release(&diff.path);
    *pointers = diff.pointers;
    return diff.count;
}
