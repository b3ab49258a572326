/* Strict reader (RFC 8259). The text is copied into the arena once; strings are decoded in place in that copy, where
 * they can only get shorter, and values point into it. A NUL behind the copy ends every scan, so that only error paths
 * ask whether the text has ended. */
#include "base/json_internal.h"

#include "base/digits.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Recursion stays within this whatever the caller allows. */
#define DEPTH_HARD_MAX 1000
#define STACK_FIRST    48

const struct json_limits json_limits_default = {.bytes_max = 1 << 20, .depth_max = 64, .values_max = 100000};
const struct json_limits json_limits_kept = {
    .bytes_max = SIZE_MAX, .depth_max = DEPTH_HARD_MAX, .values_max = SIZE_MAX};

struct reader {
    struct arena *arena;
    struct err *err;
    enum err_code code;
    struct str source; /* as given, for positions */
    char *text;        /* our copy */
    char *at;          /* next byte */
    const char *end;
    size_t values_left;
    unsigned depth_left;
    bool duplicates_accepted;
    /* Elements of all open arrays and objects; each is copied to the arena when its bracket closes. */
    struct json_member *stack;
    size_t stack_n, stack_cap;
    struct json_member stack_first[STACK_FIRST];
};

/* ---- errors ---- */

static bool fail(struct reader *r, const char *at, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool fail(struct reader *r, const char *at, enum err_code code, const char *format, ...)
{
    char what[ERR_TEXT_MAX / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    size_t offset = (size_t)(at - r->text), line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        unsigned char c = (unsigned char)r->source.p[i];
        if (c == '\n') {
            line++;
            column = 1;
        } else if ((c & 0xc0) != 0x80) {
            column++; /* characters, as an editor counts them */
        }
    }
    r->code = err_set(r->err, code, "line %zu, column %zu (byte %zu): %s", line, column, offset, what);
    return false;
}

static bool unexpected(struct reader *r, const char *expected)
{
    unsigned char c = (unsigned char)*r->at;
    if (r->at == r->end)
        return fail(r, r->at, ERR_INVALID, "the text ends where %s was expected", expected);
    if (c > 0x20 && c < 0x7f)
        return fail(r, r->at, ERR_INVALID, "'%c' where %s was expected", c, expected);
    return fail(r, r->at, ERR_INVALID, "byte 0x%02x where %s was expected", c, expected);
}

/* A name for messages: cut to a readable length at a character boundary, control bytes escaped. */
static void show_name(struct str name, char *out, size_t size)
{
    struct buf shown;
    buf_init(&shown, 0);
    if (name.n > 60) {
        name.n = 60;
        while (((unsigned char)name.p[name.n] & 0xc0) == 0x80)
            name.n--;
    }
    json_write_string(&shown, name);
    if (shown.n < size)
        memcpy(out, shown.p, shown.n + 1);
    else
        snprintf(out, size, "(name)");
    buf_release(&shown);
}

/* ---- scalars ---- */

static void skip_space(struct reader *r)
{
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')
        r->at++;
}

/* Bytes that a string takes over as they are: all but control bytes, quote, backslash and the parts of longer
 * characters. */
static bool is_plain(unsigned char c)
{
    static const bool plain[256] = {
#define ROW(x) [x] = 1, [x + 1] = 1, [x + 2] = 1, [x + 3] = 1, [x + 4] = 1, [x + 5] = 1, [x + 6] = 1, [x + 7] = 1
        [0x20] = 1, [0x21] = 1, [0x23] = 1, [0x24] = 1, [0x25] = 1, [0x26] = 1, [0x27] = 1, ROW(0x28),
        ROW(0x30),  ROW(0x38),  ROW(0x40),  ROW(0x48),  ROW(0x50),  [0x58] = 1, [0x59] = 1, [0x5a] = 1,
        [0x5b] = 1, [0x5d] = 1, [0x5e] = 1, [0x5f] = 1, ROW(0x60),  ROW(0x68),  ROW(0x70),  ROW(0x78),
#undef ROW
    };
    return plain[c];
}

/* Four hex digits at p, or -1. Stops at the NUL behind the text. */
static int32_t read_hex4(const char *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(p[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* r->at is at "\u"; appends the character at *to and moves on. */
static bool read_unicode_escape(struct reader *r, char **to)
{
    int32_t high = read_hex4(r->at + 2);
    if (high < 0)
        return fail(r, r->at, ERR_INVALID, "\\u is not followed by four hexadecimal digits");
    uint32_t code = (uint32_t)high;
    size_t used = 6;
    if (high >= 0xdc00 && high <= 0xdfff)
        return fail(r, r->at, ERR_INVALID, "low surrogate without a high one before it");
    if (high >= 0xd800 && high <= 0xdbff) {
        int32_t low = r->at[6] == '\\' && r->at[7] == 'u' ? read_hex4(r->at + 8) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, r->at, ERR_INVALID, "high surrogate without a low one behind it");
        code = 0x10000 + (((uint32_t)high - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        used = 12;
    }
    *to = put_utf8(*to, code);
    r->at += used;
    return true;
}

static bool read_escape(struct reader *r, char **to)
{
    char c = r->at[1];
    switch (c) {
    case '"':
    case '\\':
    case '/': break;
    case 'b': c = '\b'; break;
    case 'f': c = '\f'; break;
    case 'n': c = '\n'; break;
    case 'r': c = '\r'; break;
    case 't': c = '\t'; break;
    case 'u': return read_unicode_escape(r, to);
    default: return fail(r, r->at, ERR_INVALID, "unknown escape in a string");
    }
    *(*to)++ = c;
    r->at += 2;
    return true;
}

/* r->at is at the opening quote; decodes in place. */
static bool read_string(struct reader *r, struct str *out)
{
    char *start = ++r->at, *to = start;
    for (;;) {
        char *run = r->at, *p = run;
        while (is_plain((unsigned char)*p))
            p++;
        if (to != run)
            memmove(to, run, (size_t)(p - run));
        to += p - run;
        r->at = p;
        unsigned char c = (unsigned char)*p;
        if (c == '"') {
            r->at++;
            *out = (struct str){start, (size_t)(to - start)};
            return true;
        }
        if (c == '\\') {
            if (!read_escape(r, &to))
                return false;
        } else if (c >= 0x80) {
            unsigned n = json_utf8_length(p, r->end);
            if (n == 0)
                return fail(r, p, ERR_INVALID, "byte 0x%02x in a string is not valid UTF-8 here", c);
            memmove(to, p, n);
            to += n;
            r->at += n;
        } else if (p == r->end) {
            return fail(r, p, ERR_INVALID, "the text ends within a string");
        } else {
            return fail(r, p, ERR_INVALID, "control byte 0x%02x in a string must be escaped", c);
        }
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_digits(struct reader *r)
{
    if (!is_digit(*r->at))
        return unexpected(r, "a digit");
    while (is_digit(*r->at))
        r->at++;
    return true;
}

static bool read_number(struct reader *r, struct json *out)
{
    const char *start = r->at;
    if (*r->at == '-')
        r->at++;
    if (*r->at == '0')
        r->at++;
    else if (!read_digits(r))
        return false;
    if (*r->at == '.') {
        r->at++;
        if (!read_digits(r))
            return false;
    }
    if (*r->at == 'e' || *r->at == 'E') {
        r->at++;
        if (*r->at == '+' || *r->at == '-')
            r->at++;
        if (!read_digits(r))
            return false;
    }
    *out = json_number((struct str){start, (size_t)(r->at - start)});
    return true;
}

static bool read_literal(struct reader *r, const char *literal, struct json value, struct json *out)
{
    size_t n = strlen(literal);
    if (strncmp(r->at, literal, n) != 0)
        return unexpected(r, "a value");
    r->at += n;
    *out = value;
    return true;
}

/* ---- arrays and objects ---- */

static struct json_member *push(struct reader *r)
{
    if (r->stack_n == r->stack_cap) {
        r->stack_cap *= 2;
        if (r->stack == r->stack_first) {
            r->stack = mem_alloc(r->stack_cap * sizeof *r->stack);
            memcpy(r->stack, r->stack_first, sizeof r->stack_first);
        } else {
            r->stack = mem_grow(r->stack, r->stack_cap * sizeof *r->stack);
        }
    }
    return &r->stack[r->stack_n++];
}

static bool read_value(struct reader *r, struct json *out);

static bool read_array(struct reader *r, struct json *out)
{
    size_t base = r->stack_n;
    r->at++;
    skip_space(r);
    while (*r->at != ']' || r->stack_n > base) {
        struct json item;
        if (!read_value(r, &item))
            return false;
        push(r)->value = item;
        skip_space(r);
        if (*r->at == ']')
            break;
        if (*r->at != ',')
            return unexpected(r, "',' or ']'");
        r->at++;
        skip_space(r);
    }
    r->at++;
    size_t count = r->stack_n - base;
    *out = (struct json){.type = JSON_ARRAY, .count = (uint32_t)count};
    if (count > 0) {
        out->items = arena_alloc(r->arena, count * sizeof *out->items);
        for (size_t i = 0; i < count; i++)
            out->items[i] = r->stack[base + i].value;
    }
    r->stack_n = base;
    return true;
}

/* Any order will do: shorter names first, so that most comparisons end at the length. */
static int compare_names(const void *a, const void *b)
{
    const struct str *left = &(*(struct json_member *const *)a)->name,
                     *right = &(*(struct json_member *const *)b)->name;
    if (left->n != right->n)
        return left->n < right->n ? -1 : 1;
    return memcmp(left->p, right->p, left->n);
}

#define PAIRWISE_MAX 12

/* The member that repeats the name of an earlier one, or NULL. */
static const struct json_member *find_duplicate(const struct json_member *members, size_t count)
{
    if (count <= PAIRWISE_MAX) {
        for (size_t i = 1; i < count; i++)
            for (size_t j = 0; j < i; j++)
                if (str_equal(members[i].name, members[j].name))
                    return &members[i];
        return NULL;
    }
    const struct json_member **sorted = mem_alloc(count * sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &members[i];
    qsort(sorted, count, sizeof *sorted, compare_names);
    const struct json_member *found = NULL;
    for (size_t i = 1; i < count; i++) {
        if (!str_equal(sorted[i]->name, sorted[i - 1]->name))
            continue;
        const struct json_member *later = sorted[i] > sorted[i - 1] ? sorted[i] : sorted[i - 1];
        if (!found || later < found)
            found = later;
    }
    free(sorted);
    return found;
}

static bool read_member(struct reader *r)
{
    struct json_member member;
    if (*r->at != '"')
        return unexpected(r, "a member name in quotes");
    if (!read_string(r, &member.name))
        return false;
    skip_space(r);
    if (*r->at != ':')
        return unexpected(r, "':'");
    r->at++;
    skip_space(r);
    if (!read_value(r, &member.value))
        return false;
    *push(r) = member;
    return true;
}

static bool read_object(struct reader *r, struct json *out)
{
    size_t base = r->stack_n;
    r->at++;
    skip_space(r);
    while (*r->at != '}' || r->stack_n > base) {
        if (!read_member(r))
            return false;
        skip_space(r);
        if (*r->at == '}')
            break;
        if (*r->at != ',')
            return unexpected(r, "',' or '}'");
        r->at++;
        skip_space(r);
    }
    r->at++;
    size_t count = r->stack_n - base;
    const struct json_member *again = r->duplicates_accepted ? NULL : find_duplicate(r->stack + base, count);
    if (again) {
        char name[128];
        show_name(again->name, name, sizeof name);
        return fail(r, again->name.p - 1, ERR_INVALID, "member name %s is given twice", name);
    }
    *out = (struct json){.type = JSON_OBJECT, .count = (uint32_t)count};
    if (count > 0) {
        out->members = arena_alloc(r->arena, count * sizeof *out->members);
        memcpy(out->members, r->stack + base, count * sizeof *out->members);
    }
    r->stack_n = base;
    return true;
}

static bool read_nested(struct reader *r, struct json *out)
{
    if (r->depth_left == 0)
        return fail(r, r->at, ERR_LIMIT, "arrays and objects are nested too deeply");
    r->depth_left--;
    bool read = *r->at == '[' ? read_array(r, out) : read_object(r, out);
    r->depth_left++;
    return read;
}

static bool read_value(struct reader *r, struct json *out)
{
    if (r->values_left == 0)
        return fail(r, r->at, ERR_LIMIT, "there are too many values");
    r->values_left--;
    switch (*r->at) {
    case '{':
    case '[': return read_nested(r, out);
    case '"': *out = (struct json){.type = JSON_STRING}; return read_string(r, &out->text);
    case 't': return read_literal(r, "true", json_bool(true), out);
    case 'f': return read_literal(r, "false", json_bool(false), out);
    case 'n': return read_literal(r, "null", json_null(), out);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return read_number(r, out);
    default: return unexpected(r, "a value");
    }
}

static bool read_text(struct reader *r, struct json *out)
{
    if (r->source.n >= 3 && memcmp(r->source.p, "\xef\xbb\xbf", 3) == 0)
        return fail(r, r->at, ERR_INVALID, "a byte order mark is not allowed");
    skip_space(r);
    if (!read_value(r, out))
        return false;
    skip_space(r);
    return r->at == r->end || unexpected(r, "the end of the text");
}

enum err_code json_parse(struct arena *arena, struct str text, const struct json_limits *limits, struct json **out,
                         struct err *err)
{
    if (!limits)
        limits = &json_limits_default;
    if (text.n > limits->bytes_max)
        return err_set(err, ERR_LIMIT, "the text has %zu bytes, at most %zu are allowed", text.n, limits->bytes_max);
    struct reader r;
    r.arena = arena;
    r.err = err;
    r.code = ERR_NONE;
    r.source = text;
    r.text = arena_alloc(arena, text.n + 1);
    if (text.n > 0)
        memcpy(r.text, text.p, text.n);
    r.text[text.n] = '\0';
    r.at = r.text;
    r.end = r.text + text.n;
    r.duplicates_accepted = limits->duplicates_accepted;
    r.values_left = limits->values_max < UINT32_MAX ? limits->values_max : UINT32_MAX;
    r.depth_left = limits->depth_max < DEPTH_HARD_MAX ? limits->depth_max : DEPTH_HARD_MAX;
    r.stack = r.stack_first;
    r.stack_n = 0;
    r.stack_cap = STACK_FIRST;
    struct json *value = arena_alloc(arena, sizeof *value);
    if (read_text(&r, value))
        *out = value;
    if (r.stack != r.stack_first)
        free(r.stack);
    return r.code;
}
