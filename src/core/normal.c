#include "core/normal.h"

#include "base/mem.h"
#include "core/currency.h"
#include "core/normal_text.h"
#include "core/timestamp.h"

#include <stdio.h>
#include <stdlib.h>

enum kind {
    KIND_TRIM,
    KIND_COLLAPSE_SPACE,
    KIND_LOWER,
    KIND_UPPER,
    KIND_NFC,
    KIND_INTEGER,
    KIND_DECIMAL,
    KIND_TIMESTAMP,
    KIND_SORT,
    KIND_MINOR_UNITS, /* the ones from here on have a parameter */
    KIND_ENUM
};

static const char *const kind_names[] = {"trim",    "collapse_space", "lower", "upper",       "nfc", "integer",
                                         "decimal", "timestamp",      "sort",  "minor_units", "enum"};
#define KINDS_EXPECTED                                                                                                 \
    "expected trim, collapse_space, lower, upper, nfc, integer, decimal, minor_units(currency), timestamp, sort or "   \
    "{\"enum\": {\"from\": \"to\"}}"

struct step {
    enum kind kind;
    struct str sibling;     /* minor_units: member that holds the currency; absent when it is fixed */
    int digits;             /* minor_units: of the fixed currency */
    const struct json *map; /* enum */
};

struct field {
    struct str *tokens;
    size_t token_count;
    struct step *steps;
    size_t step_count;
    bool needs_sibling; /* applied after the others, so that the currency is already normal */
};

struct normal {
    struct arena arena;
    struct field *fields;
    size_t count;
};

/* ---- compiling ---- */

#define IS_ITEMS(token) str_is(token, "*")

static struct str token_from_pointer(struct arena *arena, struct str token)
{
    char *out = arena_alloc(arena, token.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < token.n; i++) {
        char c = token.p[i];
        if (c == '~')
            c = token.p[++i] == '0' ? '~' : '/';
        out[n++] = c;
    }
    out[n] = '\0';
    return (struct str){out, n};
}

/* "a.b" and "/a/b" into tokens. */
static enum err_code read_path(struct arena *arena, struct str path, struct field *field, struct err *err)
{
    bool pointer = path.n > 0 && path.p[0] == '/';
    if (path.n == 0 || (pointer && !json_pointer_valid(path)))
        return err_set(err, ERR_INVALID, "not a field; expected a name, a.b or a JSON Pointer");
    const char *p = pointer ? path.p + 1 : path.p, *end = path.p + path.n;
    field->tokens = arena_alloc(arena, path.n * sizeof *field->tokens + sizeof *field->tokens);
    for (;;) {
        const char *stop = memchr(p, pointer ? '/' : '.', (size_t)(end - p));
        struct str token = {p, (size_t)((stop ? stop : end) - p)};
        if (token.n == 0 && !pointer)
            return err_set(err, ERR_INVALID, "not a field; expected a name, a.b or a JSON Pointer");
        field->tokens[field->token_count++] = pointer ? token_from_pointer(arena, token) : arena_str(arena, token);
        if (!stop)
            return ERR_NONE;
        p = stop + 1;
    }
}

static bool starts_with(struct str text, const char *start, struct str *rest)
{
    size_t n = strlen(start);
    if (text.n < n || memcmp(text.p, start, n) != 0)
        return false;
    *rest = (struct str){text.p + n, text.n - n};
    return true;
}

/* What stands in "minor_units(…": a sibling's name or a code in quotes, and the closing bracket. */
static enum err_code read_currency(struct arena *arena, struct str text, struct step *step, struct err *err)
{
    if (text.n < 2 || text.p[text.n - 1] != ')')
        return err_set(err, ERR_INVALID, "expected minor_units(currency) with a member's name or a code in quotes");
    struct str inner = {text.p, text.n - 1};
    if (inner.p[0] != '"' && inner.p[0] != '\'') {
        step->sibling = arena_str(arena, inner);
        return ERR_NONE;
    }
    struct str code = {inner.p + 1, inner.n > 2 ? inner.n - 2 : 0};
    step->digits = inner.p[inner.n - 1] == inner.p[0] ? currency_digits(code) : -1;
    if (step->digits < 0)
        return err_set(err, ERR_INVALID, "%.*s is not a currency code of ISO 4217 in quotes", STR_ARG(inner));
    return ERR_NONE;
}

static enum err_code read_map(struct arena *arena, const struct json *map, struct step *step, struct err *err)
{
    if (!map || map->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, KINDS_EXPECTED);
    for (uint32_t i = 0; i < map->count; i++) {
        enum json_type type = map->members[i].value.type;
        if (type == JSON_NULL || type == JSON_ARRAY || type == JSON_OBJECT)
            return err_set(err, ERR_INVALID, "enum maps to %s; text, a number or a boolean is needed",
                           json_type_name(type));
    }
    step->kind = KIND_ENUM;
    step->map = json_copy(arena, map);
    return ERR_NONE;
}

static enum err_code read_step(struct arena *arena, const struct json *rule, struct step *step, struct err *err)
{
    *step = (struct step){0};
    if (rule->type == JSON_OBJECT && rule->count == 1)
        return read_map(arena, json_get(rule, "enum"), step, err);
    struct str rest;
    if (rule->type == JSON_STRING && starts_with(rule->text, "minor_units(", &rest)) {
        step->kind = KIND_MINOR_UNITS;
        return read_currency(arena, rest, step, err);
    }
    for (int kind = 0; rule->type == JSON_STRING && kind < KIND_MINOR_UNITS; kind++) {
        if (str_is(rule->text, kind_names[kind])) {
            step->kind = (enum kind)kind;
            return ERR_NONE;
        }
    }
    if (rule->type == JSON_STRING)
        return err_set(err, ERR_INVALID, "\"%.*s\" is not a normaliser; " KINDS_EXPECTED, STR_ARG(rule->text));
    return err_set(err, ERR_INVALID, "%s is not a normaliser; " KINDS_EXPECTED, json_type_name(rule->type));
}

static enum err_code read_field(struct arena *arena, const struct json_member *rule, struct field *field,
                                struct err *err)
{
    *field = (struct field){0};
    enum err_code code = read_path(arena, rule->name, field, err);
    bool many = rule->value.type == JSON_ARRAY;
    field->step_count = many ? rule->value.count : 1;
    field->steps = arena_alloc(arena, field->step_count * sizeof *field->steps);
    for (size_t i = 0; code == ERR_NONE && i < field->step_count; i++) {
        code = read_step(arena, many ? &rule->value.items[i] : &rule->value, &field->steps[i], err);
        if (field->steps[i].sibling.p)
            field->needs_sibling = true;
    }
    if (code == ERR_NONE && field->needs_sibling && IS_ITEMS(field->tokens[field->token_count - 1]))
        code = err_set(err, ERR_INVALID, "items of an array have no sibling that could hold the currency");
    return code;
}

enum err_code normal_new(const struct json *rules, struct normal **out, struct err *err)
{
    if (rules->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "expected an object of field and normaliser, got %s",
                       json_type_name(rules->type));
    struct normal *normal = mem_zero(sizeof *normal);
    arena_init(&normal->arena);
    normal->fields = arena_alloc(&normal->arena, rules->count * sizeof *normal->fields);
    for (; normal->count < rules->count; normal->count++) {
        const struct json_member *rule = &rules->members[normal->count];
        enum err_code code = read_field(&normal->arena, rule, &normal->fields[normal->count], err);
        if (code) {
            err_prefix(err, "%.*s: ", STR_ARG(rule->name));
            normal_free(normal);
            return code;
        }
    }
    *out = normal;
    return ERR_NONE;
}

void normal_free(struct normal *normal)
{
    if (!normal)
        return;
    arena_release(&normal->arena);
    free(normal);
}

/* ---- applying ---- */

/* Where we are, from the field up to the root. */
struct place {
    const struct place *above;
    struct str name; /* absent in an array */
    uint32_t index;
};

struct work {
    struct arena *arena;
    struct err *err;
    const struct field *field;
};

static void add_place(struct buf *pointer, const struct place *place)
{
    if (!place)
        return;
    add_place(pointer, place->above);
    char index[16];
    struct str token = place->name;
    if (!token.p)
        token = (struct str){index, (size_t)snprintf(index, sizeof index, "%u", place->index)};
    json_pointer_add(pointer, token);
}

static enum err_code refuse(struct work *work, const struct place *place, const char *why)
{
    struct buf pointer;
    buf_init(&pointer, ERR_TEXT_MAX / 2);
    add_place(&pointer, place);
    err_set(work->err, ERR_INVALID, "%s: %s", buf_str(&pointer).p, why);
    buf_release(&pointer);
    return ERR_INVALID;
}

static enum err_code refuse_type(struct work *work, const struct place *place, const struct step *step,
                                 const char *needed, const struct json *value)
{
    char why[128];
    snprintf(why, sizeof why, "%s needs %s, got %s", kind_names[step->kind], needed, json_type_name(value->type));
    return refuse(work, place, why);
}

static enum err_code apply_text(struct work *work, const struct place *place, const struct step *step,
                                struct str (*change)(struct arena *, struct str), struct json *value)
{
    if (value->type != JSON_STRING)
        return refuse_type(work, place, step, "text", value);
    value->text = change(work->arena, value->text);
    return ERR_NONE;
}

static struct str trim(struct arena *arena, struct str text)
{
    (void)arena;
    return normal_trim(text);
}

/* The number that the value is or spells. */
static enum err_code read_decimal(struct work *work, const struct place *place, const struct step *step,
                                  const struct json *value, struct str *number)
{
    if (value->type != JSON_NUMBER && value->type != JSON_STRING)
        return refuse_type(work, place, step, "a number or decimal text", value);
    *number = value->type == JSON_NUMBER ? value->text : normal_decimal_text(work->arena, value->text);
    return number->p ? ERR_NONE : refuse(work, place, "is not a decimal number");
}

static struct str canonical_number(struct arena *arena, struct str number)
{
    struct buf text;
    buf_init(&text, 0);
    json_canonical_number(&text, number);
    struct str out = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return out;
}

static bool has_exponent(struct str number)
{
    return memchr(number.p, 'e', number.n) || memchr(number.p, 'E', number.n);
}

static enum err_code apply_integer(struct work *work, const struct place *place, const struct step *step,
                                   struct json *value)
{
    struct str number;
    enum err_code code = read_decimal(work, place, step, value, &number);
    if (code)
        return code;
    if (!json_number_is_integer(number))
        return refuse(work, place, "is not a whole number");
    struct str shortest = canonical_number(work->arena, number);
    /* Long ids stay digit for digit; what only an exponent makes long is no integer that anybody means. */
    if (has_exponent(shortest)) {
        if (has_exponent(number) || memchr(number.p, '.', number.n))
            return refuse(work, place, "has more than 21 digits");
        shortest = number;
    }
    *value = json_number(shortest);
    return ERR_NONE;
}

static enum err_code apply_decimal(struct work *work, const struct place *place, const struct step *step,
                                   struct json *value)
{
    struct str number;
    enum err_code code = read_decimal(work, place, step, value, &number);
    if (code == ERR_NONE)
        *value = json_number(canonical_number(work->arena, number));
    return code;
}

static enum err_code find_digits(struct work *work, const struct place *place, const struct step *step,
                                 const struct json *parent, int *digits)
{
    char why[ERR_TEXT_MAX / 4];
    *digits = step->digits;
    if (!step->sibling.p)
        return ERR_NONE;
    const struct json *code = json_get_str(parent, step->sibling);
    if (!code || code->type != JSON_STRING) {
        snprintf(why, sizeof why, "the currency in %.*s is %s", STR_ARG(step->sibling),
                 !code                     ? "missing"
                 : code->type == JSON_NULL ? "null"
                                           : "not text");
        return refuse(work, place, why);
    }
    *digits = currency_digits(code->text);
    if (*digits < 0) {
        snprintf(why, sizeof why, "the currency in %.*s is not a code of ISO 4217", STR_ARG(step->sibling));
        return refuse(work, place, why);
    }
    return ERR_NONE;
}

static enum err_code apply_minor_units(struct work *work, const struct place *place, const struct step *step,
                                       const struct json *parent, struct json *value)
{
    struct str number;
    int digits;
    enum err_code code = read_decimal(work, place, step, value, &number);
    if (code == ERR_NONE)
        code = find_digits(work, place, step, parent, &digits);
    if (code)
        return code;
    struct str amount = canonical_number(work->arena, number);
    if (has_exponent(amount))
        return refuse(work, place, "is too large or too small for an amount of money");
    /* Multiplied as text: "12.5" with two digits is 12.5e2. */
    struct str scaled = str_of(arena_printf(work->arena, "%.*se%d", STR_ARG(amount), digits));
    if (!json_number_is_integer(scaled))
        return refuse(work, place, "has more decimals than its currency");
    amount = canonical_number(work->arena, scaled);
    if (has_exponent(amount))
        return refuse(work, place, "is too large or too small for an amount of money");
    *value = json_number(amount);
    return ERR_NONE;
}

static enum err_code apply_timestamp(struct work *work, const struct place *place, const struct step *step,
                                     struct json *value)
{
    if (value->type != JSON_STRING)
        return refuse_type(work, place, step, "text", value);
    struct buf text;
    buf_init(&text, 0);
    bool read = timestamp_to_utc(&text, value->text);
    if (read)
        value->text = arena_str(work->arena, buf_str(&text));
    buf_release(&text);
    return read ? ERR_NONE : refuse(work, place, "is not a date and time of RFC 3339 (2026-11-29T16:23:28Z)");
}

/* Text that the map does not know stays: whether it is allowed is the schema's question. */
static enum err_code apply_enum(const struct step *step, struct arena *arena, struct json *value)
{
    const struct json *to = value->type == JSON_STRING ? json_get_str(step->map, value->text) : NULL;
    if (to)
        *value = *json_copy(arena, to); /* the value may live longer than the rules */
    return ERR_NONE;
}

struct sortable {
    struct str text; /* canonical */
    const struct json *item;
};

static int compare_sortable(const void *a, const void *b)
{
    const struct sortable *left = a, *right = b;
    size_t common = left->text.n < right->text.n ? left->text.n : right->text.n;
    int order = memcmp(left->text.p, right->text.p, common);
    if (order == 0)
        order = (left->text.n > right->text.n) - (left->text.n < right->text.n);
    /* Of equal ones (49 and 49.0) the first in the array is kept. */
    return order ? order : (left->item > right->item) - (left->item < right->item);
}

static enum err_code apply_sort(struct work *work, const struct place *place, const struct step *step,
                                struct json *value)
{
    if (value->type != JSON_ARRAY)
        return refuse_type(work, place, step, "an array", value);
    if (value->count == 0)
        return ERR_NONE;
    struct sortable *sorted = mem_alloc(value->count * sizeof *sorted);
    struct buf text;
    buf_init(&text, 0);
    for (uint32_t i = 0; i < value->count; i++) {
        buf_reset(&text);
        json_canonical(&text, &value->items[i]);
        sorted[i] = (struct sortable){arena_str(work->arena, buf_str(&text)), &value->items[i]};
    }
    buf_release(&text);
    qsort(sorted, value->count, sizeof *sorted, compare_sortable);
    struct json set = {.type = JSON_ARRAY};
    set.items = arena_alloc(work->arena, value->count * sizeof *set.items);
    for (uint32_t i = 0; i < value->count; i++)
        if (i == 0 || !str_equal(sorted[i].text, sorted[i - 1].text))
            set.items[set.count++] = *sorted[i].item;
    free(sorted);
    *value = set;
    return ERR_NONE;
}

static enum err_code apply_step(struct work *work, const struct place *place, const struct step *step,
                                const struct json *parent, struct json *value)
{
    switch (step->kind) {
    case KIND_TRIM: return apply_text(work, place, step, trim, value);
    case KIND_COLLAPSE_SPACE: return apply_text(work, place, step, normal_collapse_space, value);
    case KIND_LOWER: return apply_text(work, place, step, normal_lower, value);
    case KIND_UPPER: return apply_text(work, place, step, normal_upper, value);
    case KIND_NFC: return apply_text(work, place, step, normal_nfc, value);
    case KIND_INTEGER: return apply_integer(work, place, step, value);
    case KIND_DECIMAL: return apply_decimal(work, place, step, value);
    case KIND_TIMESTAMP: return apply_timestamp(work, place, step, value);
    case KIND_SORT: return apply_sort(work, place, step, value);
    case KIND_MINOR_UNITS: return apply_minor_units(work, place, step, parent, value);
    case KIND_ENUM: return apply_enum(step, work->arena, value);
    }
    return ERR_INTERNAL;
}

static enum err_code descend(struct work *work, const struct place *place, size_t depth, const struct json *parent,
                             struct json *value);

/* Items and members below the root may be shared (defaults belong to the schema): they are copied, one level, before
 * something in them changes. */
static void own_children(struct work *work, struct json *value)
{
    bool array = value->type == JSON_ARRAY;
    size_t bytes = value->count * (array ? sizeof *value->items : sizeof *value->members);
    if (array)
        value->items = memcpy(arena_alloc(work->arena, bytes), value->items, bytes);
    else
        value->members = memcpy(arena_alloc(work->arena, bytes), value->members, bytes);
    value->room = 0;
}

static enum err_code descend_array(struct work *work, const struct place *place, size_t depth, struct json *array)
{
    struct str token = work->field->tokens[depth];
    if (array->count == 0)
        return ERR_NONE;
    own_children(work, array);
    if (IS_ITEMS(token)) {
        for (uint32_t i = 0; i < array->count; i++) {
            struct place below = {.above = place, .index = i};
            enum err_code code = descend(work, &below, depth + 1, array, &array->items[i]);
            if (code)
                return code;
        }
        return ERR_NONE;
    }
    int64_t index;
    if (token.n == 0 || token.n > 9 || strspn(token.p, "0123456789") < token.n || (token.n > 1 && token.p[0] == '0') ||
        !json_number_int64(token, &index) || index >= array->count)
        return ERR_NONE; /* no such item */
    struct place below = {.above = place, .index = (uint32_t)index};
    return descend(work, &below, depth + 1, array, &array->items[index]);
}

static enum err_code descend_object(struct work *work, const struct place *place, size_t depth, struct json *object)
{
    struct str token = work->field->tokens[depth];
    if (!json_get_str(object, token))
        return ERR_NONE;
    if (place)
        own_children(work, object);
    for (uint32_t i = 0; i < object->count; i++) {
        if (!str_equal(object->members[i].name, token))
            continue;
        struct place below = {.above = place, .name = token};
        return descend(work, &below, depth + 1, object, &object->members[i].value);
    }
    return ERR_NONE;
}

static enum err_code descend(struct work *work, const struct place *place, size_t depth, const struct json *parent,
                             struct json *value)
{
    const struct field *field = work->field;
    if (value->type == JSON_NULL)
        return ERR_NONE;
    if (depth < field->token_count) {
        if (value->type == JSON_ARRAY)
            return descend_array(work, place, depth, value);
        return value->type == JSON_OBJECT ? descend_object(work, place, depth, value) : ERR_NONE;
    }
    for (size_t i = 0; i < field->step_count; i++) {
        enum err_code code = apply_step(work, place, &field->steps[i], parent, value);
        if (code)
            return code;
    }
    return ERR_NONE;
}

enum err_code normal_apply(const struct normal *normal, struct arena *arena, struct json *value, struct err *err)
{
    struct work work = {.arena = arena, .err = err};
    for (int late = 0; late <= 1; late++) {
        for (size_t i = 0; i < normal->count; i++) {
            work.field = &normal->fields[i];
            if (work.field->needs_sibling != (late == 1))
                continue;
            enum err_code code = descend(&work, NULL, 0, NULL, value);
            if (code)
                return code;
        }
    }
    return ERR_NONE;
}
