/* Building, looking up, comparing. */
#include "base/digits.h"
#include "base/json_internal.h"

#include <assert.h>

#define FIRST_ROOM 4
#define ROOM_MAX   0xffffff

const char *json_type_name(enum json_type type)
{
    switch (type) {
    case JSON_NULL: return "null";
    case JSON_BOOL: return "boolean";
    case JSON_NUMBER: return "number";
    case JSON_STRING: return "string";
    case JSON_ARRAY: return "array";
    case JSON_OBJECT: return "object";
    }
    return "unknown";
}

/* ---- looking up ---- */

static struct json_member *find(const struct json *object, struct str name)
{
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (uint32_t i = 0; i < object->count; i++)
        if (str_equal(object->members[i].name, name))
            return &object->members[i];
    return NULL;
}

const struct json *json_get_str(const struct json *object, struct str name)
{
    const struct json_member *member = find(object, name);
    return member ? &member->value : NULL;
}

const struct json *json_get(const struct json *object, const char *name)
{
    return json_get_str(object, str_of(name));
}

struct str json_get_text(const struct json *object, const char *name)
{
    const struct json *value = json_get(object, name);
    return value && value->type == JSON_STRING ? value->text : STR_NONE;
}

bool json_get_bool(const struct json *object, const char *name, bool fallback)
{
    const struct json *value = json_get(object, name);
    return value && value->type == JSON_BOOL ? value->boolean : fallback;
}

int64_t json_get_int(const struct json *object, const char *name, int64_t fallback)
{
    const struct json *value = json_get(object, name);
    int64_t number;
    return value && value->type == JSON_NUMBER && json_number_int64(value->text, &number) ? number : fallback;
}

/* ---- building ---- */

struct json json_null(void)
{
    return (struct json){.type = JSON_NULL};
}

struct json json_bool(bool value)
{
    return (struct json){.type = JSON_BOOL, .boolean = value};
}

struct json json_string(struct str text)
{
    return text.p ? (struct json){.type = JSON_STRING, .text = text} : json_null();
}

struct json json_number(struct str exact_text)
{
    return (struct json){.type = JSON_NUMBER, .text = exact_text};
}

struct json json_int(struct arena *arena, int64_t value)
{
    char room[INT_TEXT_SIZE];
    return json_number(arena_str(arena, int_text(value, room)));
}

static struct json *new_value(struct arena *arena, enum json_type type)
{
    struct json *value = arena_zero(arena, sizeof *value);
    value->type = type;
    return value;
}

struct json *json_object(struct arena *arena)
{
    return new_value(arena, JSON_OBJECT);
}

struct json *json_array(struct arena *arena)
{
    return new_value(arena, JSON_ARRAY);
}

/* Room for one more element behind the last one: the old array when it has some left, else a copy of twice the size. */
static void *make_room(struct arena *arena, struct json *value, void *elements, size_t element_bytes)
{
    if (value->room > 0) {
        value->room--;
        return elements;
    }
    size_t added = value->count < FIRST_ROOM ? FIRST_ROOM : value->count;
    if (added > ROOM_MAX)
        added = ROOM_MAX;
    void *grown = arena_alloc(arena, (value->count + added) * element_bytes);
    if (value->count > 0)
        memcpy(grown, elements, value->count * element_bytes);
    value->room = (uint32_t)(added - 1);
    return grown;
}

void json_set(struct arena *arena, struct json *object, struct str name, struct json value)
{
    assert(object->type == JSON_OBJECT);
    struct json_member *member = find(object, name);
    if (member) {
        member->value = value;
        return;
    }
    object->members = make_room(arena, object, object->members, sizeof *object->members);
    object->members[object->count++] = (struct json_member){name, value};
}

void json_remove(struct json *object, struct str name)
{
    struct json_member *member = find(object, name);
    if (!member)
        return;
    size_t behind = object->count - (size_t)(member - object->members) - 1;
    memmove(member, member + 1, behind * sizeof *member);
    object->count--;
}

void json_append(struct arena *arena, struct json *array, struct json value)
{
    assert(array->type == JSON_ARRAY);
    array->items = make_room(arena, array, array->items, sizeof *array->items);
    array->items[array->count++] = value;
}

static struct json copy_value(struct arena *arena, const struct json *value)
{
    struct json copy = *value;
    copy.room = 0;
    switch (value->type) {
    case JSON_NULL:
    case JSON_BOOL: break;
    case JSON_NUMBER:
    case JSON_STRING: copy.text = arena_str(arena, value->text); break;
    case JSON_ARRAY:
        copy.items = arena_alloc(arena, value->count * sizeof *copy.items);
        for (uint32_t i = 0; i < value->count; i++)
            copy.items[i] = copy_value(arena, &value->items[i]);
        break;
    case JSON_OBJECT:
        copy.members = arena_alloc(arena, value->count * sizeof *copy.members);
        for (uint32_t i = 0; i < value->count; i++) {
            copy.members[i].name = arena_str(arena, value->members[i].name);
            copy.members[i].value = copy_value(arena, &value->members[i].value);
        }
        break;
    }
    return copy;
}

struct json *json_copy(struct arena *arena, const struct json *value)
{
    struct json *copy = arena_alloc(arena, sizeof *copy);
    *copy = copy_value(arena, value);
    return copy;
}

/* ---- comparing ---- */

static bool same_names_in_order(const struct json *a, const struct json *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (!str_equal(a->members[i].name, b->members[i].name))
            return false;
    return true;
}

static bool equal_objects(const struct json *a, const struct json *b)
{
    if (a->count != b->count)
        return false;
    if (same_names_in_order(a, b)) {
        for (uint32_t i = 0; i < a->count; i++)
            if (!json_equal(&a->members[i].value, &b->members[i].value))
                return false;
        return true;
    }
    const struct json_member *a_room[JSON_SORT_ROOM], *b_room[JSON_SORT_ROOM];
    const struct json_member **left = json_sorted(a, a_room), **right = json_sorted(b, b_room);
    bool equal = true;
    for (uint32_t i = 0; equal && i < a->count; i++)
        equal = str_equal(left[i]->name, right[i]->name) && json_equal(&left[i]->value, &right[i]->value);
    json_sorted_done(left, a_room);
    json_sorted_done(right, b_room);
    return equal;
}

static bool equal_arrays(const struct json *a, const struct json *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!json_equal(&a->items[i], &b->items[i]))
            return false;
    return true;
}

bool json_equal(const struct json *a, const struct json *b)
{
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case JSON_NULL: return true;
    case JSON_BOOL: return a->boolean == b->boolean;
    case JSON_NUMBER: return str_equal(a->text, b->text) || json_number_compare(a->text, b->text) == 0;
    case JSON_STRING: return str_equal(a->text, b->text);
    case JSON_ARRAY: return equal_arrays(a, b);
    case JSON_OBJECT: return equal_objects(a, b);
    }
    return false;
}
