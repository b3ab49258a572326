/* Writer: whole values, and texts composed step by step. */
#include "base/digits.h"
#include "base/json_internal.h"

#include <assert.h>

/* What a byte needs within a string: 0 nothing, 'u' \u00xx, 'h' part of a longer character, else the letter of its
 * two-character escape. */
static const char escapes[256] = {
    'u',       'u',       'u',       'u',       'u',       'u',         'u',           'u',       'b',
    't',       'n',       'u',       'f',       'r',       'u',         'u',           'u',       'u',
    'u',       'u',       'u',       'u',       'u',       'u',         'u',           'u',       'u',
    'u',       'u',       'u',       'u',       'u',       ['"'] = '"', ['\\'] = '\\',
#define ROW(x)                                                                                                         \
    [x] = 'h', [x + 1] = 'h', [x + 2] = 'h', [x + 3] = 'h', [x + 4] = 'h', [x + 5] = 'h', [x + 6] = 'h', [x + 7] = 'h'
    ROW(0x80), ROW(0x88), ROW(0x90), ROW(0x98), ROW(0xa0), ROW(0xa8),   ROW(0xb0),     ROW(0xb8), ROW(0xc0),
    ROW(0xc8), ROW(0xd0), ROW(0xd8), ROW(0xe0), ROW(0xe8), ROW(0xf0),   ROW(0xf8),
#undef ROW
};

static void add_escape(struct buf *buf, unsigned char c, char escape)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', escape, '0', '0', hex[c >> 4], hex[c & 15]};
    buf_add(buf, text, escape == 'u' ? 6 : 2);
}

/* Whether none of eight bytes needs anything; sometimes it does not see that, never the other way round. */
static bool all_plain(const char *p)
{
    const uint64_t ones = 0x0101010101010101, high = 0x80 * ones;
    uint64_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    uint64_t quotes = bytes ^ ('"' * ones), slashes = bytes ^ ('\\' * ones);
    return ((bytes | (bytes - ' ' * ones) | (quotes - ones) | (slashes - ones)) & high) == 0;
}

static const char *skip_plain(const char *p, const char *end)
{
    while (end - p >= 8 && all_plain(p))
        p += 8;
    while (p < end && escapes[(unsigned char)*p] == 0)
        p++;
    return p;
}

void json_write_string(struct buf *buf, struct str text)
{
    const char *p = text.p, *run = p, *end = p + text.n;
    buf_add_char(buf, '"');
    while ((p = skip_plain(p, end)) < end) {
        char escape = escapes[(unsigned char)*p];
        unsigned n = escape == 'h' ? json_utf8_length(p, end) : 0;
        if (n > 0) {
            p += n;
            continue;
        }
        buf_add(buf, run, (size_t)(p - run));
        if (escape == 'h')
            buf_add_text(buf, "\xef\xbf\xbd"); /* what we write is valid, whatever a provider or a file gave us */
        else
            add_escape(buf, (unsigned char)*p, escape);
        run = ++p;
    }
    buf_add(buf, run, (size_t)(p - run));
    buf_add_char(buf, '"');
}

static void write_indented(struct buf *buf, const struct json *value, unsigned level);

static void new_line(struct buf *buf, unsigned level)
{
    buf_add_char(buf, '\n');
    while (level-- > 0)
        buf_add_text(buf, "  ");
}

/* Level 0 means compact; in the pretty form levels start at 1. */
static void write_nested(struct buf *buf, const struct json *value, unsigned level)
{
    bool object = value->type == JSON_OBJECT;
    buf_add_char(buf, object ? '{' : '[');
    for (uint32_t i = 0; i < value->count; i++) {
        if (i > 0)
            buf_add_char(buf, ',');
        if (level)
            new_line(buf, level);
        if (object) {
            json_write_string(buf, value->members[i].name);
            buf_add(buf, ": ", level ? 2 : 1);
        }
        write_indented(buf, object ? &value->members[i].value : &value->items[i], level ? level + 1 : 0);
    }
    if (level && value->count > 0)
        new_line(buf, level - 1);
    buf_add_char(buf, object ? '}' : ']');
}

static void write_indented(struct buf *buf, const struct json *value, unsigned level)
{
    switch (value->type) {
    case JSON_NULL: buf_add(buf, "null", 4); break;
    case JSON_BOOL: buf_add_text(buf, value->boolean ? "true" : "false"); break;
    case JSON_NUMBER: buf_add_str(buf, value->text); break;
    case JSON_STRING: json_write_string(buf, value->text); break;
    case JSON_ARRAY:
    case JSON_OBJECT: write_nested(buf, value, level); break;
    }
}

void json_write(struct buf *buf, const struct json *value)
{
    write_indented(buf, value, 0);
}

void json_write_pretty(struct buf *buf, const struct json *value)
{
    write_indented(buf, value, 1);
}

/* ---- composing ---- */

#define OUT_DEPTH_MAX 64

void json_out_init(struct json_out *out, struct buf *buf)
{
    *out = (struct json_out){.buf = buf};
}

/* The comma before a name, or before a value that follows no name. */
static void separate(struct json_out *out)
{
    if (out->after_name) {
        out->after_name = false;
        return;
    }
    if (out->depth == 0)
        return;
    uint64_t bit = (uint64_t)1 << (out->depth - 1);
    if (out->has_value & bit)
        buf_add_char(out->buf, ',');
    out->has_value |= bit;
}

static void begin(struct json_out *out, char bracket)
{
    separate(out);
    assert(out->depth < OUT_DEPTH_MAX);
    out->depth++;
    out->has_value &= ~((uint64_t)1 << (out->depth - 1));
    buf_add_char(out->buf, bracket);
}

static void end(struct json_out *out, char bracket)
{
    assert(out->depth > 0 && !out->after_name);
    out->depth--;
    buf_add_char(out->buf, bracket);
}

void json_out_object(struct json_out *out)
{
    begin(out, '{');
}

void json_out_end_object(struct json_out *out)
{
    end(out, '}');
}

void json_out_array(struct json_out *out)
{
    begin(out, '[');
}

void json_out_end_array(struct json_out *out)
{
    end(out, ']');
}

void json_out_name(struct json_out *out, const char *name)
{
    assert(out->depth > 0 && !out->after_name);
    separate(out);
    json_write_string(out->buf, str_of(name));
    buf_add_char(out->buf, ':');
    out->after_name = true;
}

void json_out_text(struct json_out *out, const char *text)
{
    json_out_str(out, str_of(text));
}

void json_out_str(struct json_out *out, struct str text)
{
    separate(out);
    if (text.p)
        json_write_string(out->buf, text);
    else
        buf_add(out->buf, "null", 4);
}

void json_out_int(struct json_out *out, int64_t value)
{
    char room[INT_TEXT_SIZE];
    separate(out);
    buf_add_str(out->buf, int_text(value, room));
}

void json_out_bool(struct json_out *out, bool value)
{
    separate(out);
    buf_add_text(out->buf, value ? "true" : "false");
}

void json_out_null(struct json_out *out)
{
    separate(out);
    buf_add(out->buf, "null", 4);
}

void json_out_raw(struct json_out *out, struct str json_text)
{
    separate(out);
    if (json_text.p)
        buf_add_str(out->buf, json_text);
    else
        buf_add(out->buf, "null", 4);
}

void json_out_value(struct json_out *out, const struct json *value)
{
    separate(out);
    json_write(out->buf, value);
}

void json_out_member_text(struct json_out *out, const char *name, const char *text)
{
    if (!text)
        return;
    json_out_name(out, name);
    json_out_text(out, text);
}

void json_out_member_int(struct json_out *out, const char *name, int64_t value)
{
    json_out_name(out, name);
    json_out_int(out, value);
}

void json_out_member_bool(struct json_out *out, const char *name, bool value)
{
    json_out_name(out, name);
    json_out_bool(out, value);
}

struct str json_to_text(struct arena *arena, const struct json *value)
{
    struct buf text;
    if (!value)
        return STR_NONE;
    buf_init(&text, 0);
    json_write(&text, value);
    struct str copy = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return copy;
}
