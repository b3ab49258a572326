#include "core/template.h"

#include "base/mem.h"

#include <stdlib.h>

#define TEMPLATE_BYTES_MAX (64 * 1024)

/* Literal text, then (unless it is the last part) a place. */
struct part {
    struct str literal; /* braces already single */
    struct str name;    /* as written, for messages; absent: no place */
    struct str pointer; /* the same as a JSON Pointer */
};

struct template
{
    struct arena arena; /* all texts */
    const char *text;
    struct part *parts;
    size_t count, cap;
};

const char *template_text(const struct template *template)
{
    return template->text;
}

void template_free(struct template *template)
{
    if (!template)
        return;
    arena_release(&template->arena);
    free(template->parts);
    free(template);
}

/* ---- reading ---- */

/* "a.b" as "/a/b". Empty steps and white space are refused: they are slips of the pen, and names that really have them
 * can be written as pointers. */
static bool pointer_from_name(struct str name, struct buf *pointer)
{
    const char *end = name.p + name.n, *start = name.p;
    for (const char *p = start; p <= end; p++) {
        if (p < end && *p != '.') {
            if ((unsigned char)*p <= ' ')
                return false;
            continue;
        }
        if (p == start)
            return false;
        json_pointer_add(pointer, (struct str){start, (size_t)(p - start)});
        start = p + 1;
    }
    return true;
}

static bool read_place(struct template *template, struct str name, struct part *part)
{
    struct buf pointer;
    buf_init(&pointer, 0);
    bool good = name.n > 0;
    if (good && name.p[0] == '/') {
        buf_add_str(&pointer, name);
        good = json_pointer_valid(name);
    } else if (good) {
        good = pointer_from_name(name, &pointer);
    }
    part->name = name;
    part->pointer = arena_str(&template->arena, buf_str(&pointer));
    buf_release(&pointer);
    return good;
}

static void add_part(struct template *template, struct part part)
{
    if (template->count == template->cap) {
        template->cap = template->cap ? template->cap * 2 : 4;
        template->parts = mem_grow(template->parts, template->cap * sizeof *template->parts);
    }
    template->parts[template->count++] = part;
}

/* Columns count bytes from 1. */
static enum err_code read_text(struct template *template, struct buf *literal, struct err *err)
{
    const char *text = template->text;
    for (const char *p = text; *p;) {
        size_t column = (size_t)(p - text) + 1;
        if ((p[0] == '{' || p[0] == '}') && p[1] == p[0]) {
            buf_add_char(literal, *p);
            p += 2;
            continue;
        }
        if (*p == '}')
            return err_set(err, ERR_INVALID, "column %zu: \"}\" without \"{\"; write \"}}\" for a literal brace",
                           column);
        if (*p != '{') {
            buf_add_char(literal, *p++);
            continue;
        }
        size_t n = strcspn(p + 1, "{}");
        if (p[1 + n] != '}')
            return err_set(err, ERR_INVALID, "column %zu: \"{\" is not closed; write \"{{\" for a literal brace",
                           column);
        struct part part = {.literal = arena_str(&template->arena, buf_str(literal))};
        if (!read_place(template, (struct str){p + 1, n}, &part))
            return err_set(err, ERR_INVALID,
                           "column %zu: \"{%.*s}\" does not name a value; expected {name}, {a.b} or {/json/pointer}",
                           column, STR_ARG(part.name));
        add_part(template, part);
        buf_reset(literal);
        p += 1 + n + 1;
    }
    if (literal->n > 0)
        add_part(template, (struct part){.literal = arena_str(&template->arena, buf_str(literal))});
    return ERR_NONE;
}

enum err_code template_new(const char *text, struct template **out, struct err *err)
{
    if (strlen(text) > TEMPLATE_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "a template has at most %d bytes", TEMPLATE_BYTES_MAX);
    struct template *template = mem_zero(sizeof *template);
    arena_init(&template->arena);
    template->text = arena_copy_text(&template->arena, text);
    struct buf literal;
    buf_init(&literal, 0);
    enum err_code code = read_text(template, &literal, err);
    buf_release(&literal);
    if (code == ERR_NONE)
        *out = template;
    else
        template_free(template);
    return code;
}

/* ---- filling ---- */

/* RFC 3986 unreserved characters. */
static bool is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

static bool goes_as_it_is(unsigned char c, enum template_escape escape)
{
    switch (escape) {
    case TEMPLATE_PLAIN: return true;
    case TEMPLATE_KEY: return c >= 0x20 && c != 0x7f && c != ':' && c != '%' && c != '{' && c != '}';
    case TEMPLATE_PATH: return is_unreserved(c);
    case TEMPLATE_QUERY: return (is_unreserved(c) && c != '~') || c == '*';
    }
    return false;
}

static void add_escaped(struct buf *out, struct str text, enum template_escape escape)
{
    static const char hex[] = "0123456789ABCDEF";
    const char *run = text.p, *end = text.p + text.n;
    for (const char *p = run; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (goes_as_it_is(c, escape))
            continue;
        buf_add(out, run, (size_t)(p - run));
        run = p + 1;
        if (escape == TEMPLATE_QUERY && c == ' ') {
            buf_add_char(out, '+');
        } else {
            char code[3] = {'%', hex[c >> 4], hex[c & 15]};
            buf_add(out, code, sizeof code);
        }
    }
    buf_add(out, run, (size_t)(end - run));
}

static enum err_code add_string(struct buf *out, struct str text, struct str name, enum template_escape escape,
                                struct err *err)
{
    /* An empty segment or a dot segment would name another resource: DELETE /orders/ or /orders/.. */
    if (escape == TEMPLATE_PATH && text.n == 0)
        return err_set(err, ERR_INVALID, "%.*s is empty", STR_ARG(name));
    if (escape == TEMPLATE_PATH && (str_is(text, ".") || str_is(text, "..")))
        return err_set(err, ERR_INVALID, "%.*s is \"%.*s\", which cannot be a part of a path", STR_ARG(name),
                       STR_ARG(text));
    add_escaped(out, text, escape);
    return ERR_NONE;
}

static void add_number(struct buf *out, struct str number, enum template_escape escape)
{
    if (escape == TEMPLATE_KEY)
        json_canonical_number(out, number); /* has no byte that a key escapes */
    else
        add_escaped(out, number, escape);
}

static enum err_code fill_place(const struct part *part, const struct json *values, enum template_escape escape,
                                struct buf *out, struct err *err)
{
    const struct json *value = json_pointer_get(values, part->pointer);
    if (!value)
        return err_set(err, ERR_INVALID, "%.*s is missing", STR_ARG(part->name));
    switch (value->type) {
    case JSON_NULL: return err_set(err, ERR_INVALID, "%.*s is null", STR_ARG(part->name));
    case JSON_BOOL: buf_add_text(out, value->boolean ? "true" : "false"); return ERR_NONE;
    case JSON_NUMBER: add_number(out, value->text, escape); return ERR_NONE;
    case JSON_STRING: return add_string(out, value->text, part->name, escape, err);
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return err_set(err, ERR_INVALID, "%.*s is an %s; text, a number or a boolean is needed", STR_ARG(part->name),
                   json_type_name(value->type));
}

enum err_code template_fill(const struct template *template, const struct json *values, enum template_escape escape,
                            struct buf *out, struct err *err)
{
    for (size_t i = 0; i < template->count; i++) {
        const struct part *part = &template->parts[i];
        buf_add_str(out, part->literal);
        if (!part->name.p)
            continue;
        enum err_code code = fill_place(part, values, escape, out, err);
        if (code)
            return code;
    }
    return ERR_NONE;
}

const struct json *template_single(const struct template *template, const struct json *values, bool *is_single)
{
    const struct part *only = template->parts;
    *is_single = template->count == 1 && only->literal.n == 0 && only->name.p;
    return *is_single ? json_pointer_get(values, only->pointer) : NULL;
}

bool template_place(const struct template *template, size_t index, struct str *name, struct str *pointer)
{
    for (size_t i = 0; i < template->count; i++) {
        const struct part *part = &template->parts[i];
        if (!part->name.p || index-- > 0)
            continue;
        *name = part->name;
        *pointer = part->pointer;
        return true;
    }
    return false;
}
