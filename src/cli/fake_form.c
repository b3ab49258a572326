#include "cli/fake_form.h"

#include "base/digits.h"

#include <stdlib.h>

static enum err_code decode(struct arena *arena, struct str in, struct str *out, struct err *err)
{
    char *p = arena_alloc(arena, in.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < in.n; i++) {
        char c = in.p[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            if (in.n - i < 3 || hex_value(in.p[i + 1]) < 0 || hex_value(in.p[i + 2]) < 0)
                return err_set(err, ERR_INVALID, "form body: bad escape at byte %zu of \"%.*s\"", i, STR_ARG(in));
            c = (char)(hex_value(in.p[i + 1]) * 16 + hex_value(in.p[i + 2]));
            i += 2;
        }
        p[n++] = c;
    }
    *out = (struct str){p, n};
    return ERR_NONE;
}

static bool is_integer(struct str s)
{
    size_t i = s.n > 0 && s.p[0] == '-';
    if (s.n == i || s.n - i > 15 || (s.p[i] == '0' && s.n - i > 1))
        return false;
    for (; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    }
    return true;
}

/* "a[b][]" into its parts. */
static int split_name(struct str name, struct str parts[FAKE_FORM_DEPTH_MAX])
{
    size_t n = 0;
    while (n < name.n && name.p[n] != '[')
        n++;
    parts[0] = (struct str){name.p, n};
    int count = 1;
    while (n < name.n) {
        size_t start = ++n;
        while (n < name.n && name.p[n] != ']')
            n++;
        if (n == name.n || count == FAKE_FORM_DEPTH_MAX)
            return -1;
        parts[count++] = (struct str){name.p + start, n - start};
        n++;
        if (n < name.n && name.p[n] != '[')
            return -1;
    }
    return parts[0].n ? count : -1;
}

static bool part_is_index(struct str part)
{
    return part.n == 0 || is_integer(part);
}

/* The child of an object or array under a part of the name; made when absent (of a type that fits the next part). */
static struct json *child(struct arena *arena, struct json *parent, struct str part, bool array)
{
    struct json *fresh = array ? json_array(arena) : json_object(arena);
    if (parent->type == JSON_OBJECT) {
        if (!json_get_str(parent, part))
            json_set(arena, parent, part, *fresh);
        return (struct json *)json_get_str(parent, part);
    }
    size_t index = part.n ? (size_t)strtoul(part.p, NULL, 10) : parent->count;
    if (index > parent->count)
        return NULL;
    if (index == parent->count)
        json_append(arena, parent, *fresh);
    return &parent->items[index];
}

static enum err_code add(struct arena *arena, struct json *object, struct str name, struct str value, struct err *err)
{
    struct str parts[FAKE_FORM_DEPTH_MAX] = {STR_NONE};
    int count = split_name(name, parts);
    if (count < 0)
        return err_set(err, ERR_INVALID, "form body: cannot read the name \"%.*s\"", STR_ARG(name));
    bool number = is_integer(value) && !str_is(parts[0], "metadata");
    struct json leaf = number ? json_number(value) : json_string(value);
    struct json *at = object;
    for (int i = 0; i + 1 < count; i++) {
        at = child(arena, at, parts[i], part_is_index(parts[i + 1]));
        if (!at || (at->type != JSON_OBJECT && at->type != JSON_ARRAY))
            return err_set(err, ERR_INVALID, "form body: \"%.*s\" does not fit what came before", STR_ARG(name));
    }
    if (at->type == JSON_OBJECT)
        json_set(arena, at, parts[count - 1], leaf);
    else
        json_append(arena, at, leaf);
    return ERR_NONE;
}

enum err_code fake_form_parse(struct arena *arena, struct str text, struct json **out, struct err *err)
{
    struct json *object = json_object(arena);
    size_t members = 0;
    for (size_t i = 0; i < text.n;) {
        size_t end = i;
        while (end < text.n && text.p[end] != '&')
            end++;
        size_t equals = i;
        while (equals < end && text.p[equals] != '=')
            equals++;
        if (end > i) {
            struct str name = STR_NONE, value = STR("");
            size_t value_at = equals < end ? equals + 1 : end;
            if (++members > FAKE_FORM_MEMBERS_MAX)
                return err_set(err, ERR_LIMIT, "form body: more than %d members", FAKE_FORM_MEMBERS_MAX);
            if (decode(arena, (struct str){text.p + i, equals - i}, &name, err) ||
                decode(arena, (struct str){text.p + value_at, end - value_at}, &value, err) ||
                add(arena, object, name, value, err))
                return err->code;
        }
        i = end + 1;
    }
    *out = object;
    return ERR_NONE;
}
