/* Shared by the json*.c files only: decimals taken apart, members in order, UTF-8. */
#ifndef BASE_JSON_INTERNAL_H
#define BASE_JSON_INTERNAL_H

#include "base/json.h"

/* A JSON number taken apart without conversion. Its value is 0.DIGITS x 10^(shift + exponent), DIGITS being head
 * followed by tail, without leading and trailing zeros; no digits at all means zero. Borrows the number's text. */
struct json_decimal {
    bool negative;         /* never set for zero */
    struct str head, tail; /* significant digits before and after the point */
    size_t digits;         /* head.n + tail.n */
    int64_t shift;         /* where the point is; at most the length of the text, either way */
    bool exponent_negative;
    struct str exponent; /* digits without leading zeros; empty for 0; any length */
};

/* Exponents of more digits than this are worked on as text; up to it int64 arithmetic cannot overflow. */
#define JSON_EXPONENT_DIGITS 17

/* number must be valid JSON (the reader has checked it). */
struct json_decimal json_decimal_read(struct str number);
/* shift + exponent; false when the exponent is too long for that. */
bool json_decimal_order(const struct json_decimal *decimal, int64_t *order);

/* Byte length of the UTF-8 sequence at p (first byte >= 0x80), 0 when it is not valid (overlong, surrogate, beyond
 * U+10FFFF, cut). */
static inline unsigned json_utf8_length(const char *text, const char *end)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t left = (size_t)(end - text);
    if (p[0] < 0xc2 || left < 2 || (p[1] & 0xc0) != 0x80)
        return 0;
    if (p[0] < 0xe0)
        return 2;
    if (left < 3 || (p[2] & 0xc0) != 0x80)
        return 0;
    if (p[0] < 0xf0)
        return (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ? 0 : 3;
    if (p[0] > 0xf4 || left < 4 || (p[3] & 0xc0) != 0x80)
        return 0;
    return (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f) ? 0 : 4;
}

/* The members of an object sorted by UTF-16 code units of their names, as pointers in `room` when they fit and on the
 * heap otherwise (give it back with json_sorted_done). */
#define JSON_SORT_ROOM 32
const struct json_member **json_sorted(const struct json *object, const struct json_member **room);
void json_sorted_done(const struct json_member **sorted, const struct json_member **room);
/* Order of RFC 8785: by UTF-16 code units. */
int json_name_compare(struct str a, struct str b);

#endif
