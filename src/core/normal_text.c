#include "core/normal_text.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>
#include <utf8proc.h>

static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The character at the start of text, and how many bytes it has. Bytes that are not UTF-8 come one by one as -1. */
static size_t next_char(struct str text, int32_t *c)
{
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.p, (utf8proc_ssize_t)text.n, c);
    if (n > 0)
        return (size_t)n;
    *c = -1;
    return 1;
}

static struct str without_first(struct str text, size_t n)
{
    return (struct str){text.p + n, text.n - n};
}

struct str normal_trim(struct str text)
{
    int32_t c;
    while (text.n > 0) {
        size_t n = next_char(text, &c);
        if (!is_space(c))
            break;
        text = without_first(text, n);
    }
    size_t kept = 0;
    for (size_t at = 0; at < text.n;) {
        at += next_char(without_first(text, at), &c);
        if (!is_space(c))
            kept = at;
    }
    return (struct str){text.p, kept};
}

static struct str from_buf(struct arena *arena, struct buf *buf)
{
    struct str text = arena_str(arena, buf_str(buf));
    buf_release(buf);
    return text;
}

struct str normal_collapse_space(struct arena *arena, struct str text)
{
    struct buf out;
    buf_init(&out, 0);
    bool in_space = false;
    while (text.n > 0) {
        int32_t c;
        size_t n = next_char(text, &c);
        bool space = is_space(c);
        if (!space)
            buf_add(&out, text.p, n);
        else if (!in_space)
            buf_add_char(&out, ' ');
        in_space = space;
        text = without_first(text, n);
    }
    return from_buf(arena, &out);
}

static struct str map_chars(struct arena *arena, struct str text, utf8proc_int32_t (*map)(utf8proc_int32_t))
{
    struct buf out;
    buf_init(&out, 0);
    while (text.n > 0) {
        int32_t c;
        size_t n = next_char(text, &c);
        utf8proc_uint8_t bytes[4];
        if (c < 0)
            buf_add(&out, text.p, n);
        else
            buf_add(&out, (const char *)bytes, (size_t)utf8proc_encode_char(map(c), bytes));
        text = without_first(text, n);
    }
    return from_buf(arena, &out);
}

struct str normal_lower(struct arena *arena, struct str text)
{
    return map_chars(arena, text, utf8proc_tolower);
}

struct str normal_upper(struct arena *arena, struct str text)
{
    return map_chars(arena, text, utf8proc_toupper);
}

static bool is_ascii(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] >= 0x80)
            return false;
    return true;
}

struct str normal_nfc(struct arena *arena, struct str text)
{
    if (is_ascii(text))
        return text;
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text.p, (utf8proc_ssize_t)text.n, &mapped,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n == UTF8PROC_ERROR_NOMEM)
        mem_exhausted("libutf8proc");
    if (n < 0)
        return text; /* not UTF-8: cannot come from the reader */
    struct str out = arena_str(arena, (struct str){(const char *)mapped, (size_t)n});
    free(mapped);
    return out;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Past at least one digit, or NULL. */
static const char *skip_digits(const char *p, const char *end)
{
    const char *start = p;
    while (p < end && is_digit(*p))
        p++;
    return p > start ? p : NULL;
}

struct str normal_decimal_text(struct arena *arena, struct str text)
{
    const char *p = text.p, *end = text.p + text.n;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *digits = p;
    p = skip_digits(p, end);
    if (!p)
        return STR_NONE;
    while (digits + 1 < p && *digits == '0')
        digits++;
    if (p < end && *p == '.')
        p = skip_digits(p + 1, end);
    if (p && p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p = skip_digits(p < end && (*p == '+' || *p == '-') ? p + 1 : p, end);
    }
    if (p != end)
        return STR_NONE;
    size_t n = (size_t)(end - digits);
    char *number = arena_alloc(arena, n + 1);
    number[0] = '-';
    memcpy(number + 1, digits, n);
    return negative ? (struct str){number, n + 1} : (struct str){number + 1, n};
}
