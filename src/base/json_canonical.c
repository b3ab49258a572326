/* Canonical JSON: RFC 8785 layout, numbers as exact decimals (design 2.5). */
#include "base/json_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int json_name_compare(struct str a, struct str b)
{
    size_t common = a.n < b.n ? a.n : b.n;
    for (size_t i = 0; i < common; i++) {
        unsigned char left = (unsigned char)a.p[i], right = (unsigned char)b.p[i];
        if (left == right)
            continue;
        /* UTF-8 bytes sort like code points. UTF-16 sorts code points from U+10000 (first byte >= 0xf0, surrogates from
         * 0xd800) below U+E000 … U+FFFF (first byte 0xee or 0xef). */
        if (left >= 0xee && right >= 0xee && (left >= 0xf0) != (right >= 0xf0))
            return left >= 0xf0 ? -1 : 1;
        return left < right ? -1 : 1;
    }
    return (a.n > b.n) - (a.n < b.n);
}

static int compare_members(const void *a, const void *b)
{
    const struct json_member *const *left = a, *const *right = b;
    return json_name_compare((*left)->name, (*right)->name);
}

#define INSERTION_MAX 16

const struct json_member **json_sorted(const struct json *object, const struct json_member **room)
{
    size_t count = object->count;
    const struct json_member **sorted = room;
    if (count > JSON_SORT_ROOM)
        sorted = mem_alloc(count * sizeof *sorted);
    for (size_t i = 0; i < count; i++) {
        const struct json_member *member = &object->members[i];
        size_t at = i;
        for (; count <= INSERTION_MAX && at > 0 && json_name_compare(sorted[at - 1]->name, member->name) > 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = member;
    }
    if (count > INSERTION_MAX)
        qsort(sorted, count, sizeof *sorted, compare_members);
    return sorted;
}

void json_sorted_done(const struct json_member **sorted, const struct json_member **room)
{
    if (sorted != room)
        free(sorted);
}

static void add_zeros(struct buf *buf, int64_t count)
{
    while (count-- > 0)
        buf_add_char(buf, '0');
}

/* Digits [from, to) of the decimal. */
static void add_digits(struct buf *buf, const struct json_decimal *d, size_t from, size_t to)
{
    size_t split = d->head.n;
    if (from < split)
        buf_add(buf, d->head.p + from, (to < split ? to : split) - from);
    if (to > split)
        buf_add(buf, d->tail.p + (from > split ? from - split : 0), to - (from > split ? from : split));
}

/* Appends exponent + change, both as absolute value and sign, when the exponent is too long for an integer. change is
 * smaller than the exponent by far, so that the sign stays. */
static void add_long_exponent(struct buf *buf, const struct json_decimal *d, int64_t change)
{
    buf_add_char(buf, d->exponent_negative ? '-' : '+');
    char *text = mem_alloc(d->exponent.n + 1);
    text[0] = '0'; /* room for a carry */
    memcpy(text + 1, d->exponent.p, d->exponent.n);
    int64_t carry = d->exponent_negative ? -change : change;
    for (size_t i = d->exponent.n + 1; i-- > 0 && carry != 0;) {
        int64_t sum = (text[i] - '0') + carry;
        int64_t digit = ((sum % 10) + 10) % 10;
        carry = (sum - digit) / 10;
        text[i] = (char)('0' + digit);
    }
    size_t skip = 0;
    while (text[skip] == '0')
        skip++;
    buf_add(buf, text + skip, d->exponent.n + 1 - skip);
    free(text);
}

static void add_scientific(struct buf *buf, const struct json_decimal *d, const int64_t *order)
{
    add_digits(buf, d, 0, 1);
    if (d->digits > 1) {
        buf_add_char(buf, '.');
        add_digits(buf, d, 1, d->digits);
    }
    buf_add_char(buf, 'e');
    if (order)
        buf_printf(buf, "%+" PRId64, *order - 1);
    else
        add_long_exponent(buf, d, d->shift - 1);
}

/* The text is its own canonical form: an integer of up to 21 digits (the reader allows no leading zeros). */
static bool is_plain_integer(struct str number)
{
    size_t i = number.p[0] == '-' ? 1 : 0;
    if (number.n - i > 21 || (i == 1 && number.p[1] == '0'))
        return false;
    for (; i < number.n; i++)
        if (number.p[i] < '0' || number.p[i] > '9')
            return false;
    return true;
}

void json_canonical_number(struct buf *buf, struct str number)
{
    if (is_plain_integer(number)) {
        buf_add_str(buf, number);
        return;
    }
    struct json_decimal d = json_decimal_read(number);
    if (d.digits == 0) {
        buf_add_char(buf, '0');
        return;
    }
    if (d.negative)
        buf_add_char(buf, '-');
    /* ECMAScript Number::toString, with k = digits and n = order. */
    int64_t n, k = (int64_t)d.digits;
    if (!json_decimal_order(&d, &n)) {
        add_scientific(buf, &d, NULL);
    } else if (k <= n && n <= 21) {
        add_digits(buf, &d, 0, d.digits);
        add_zeros(buf, n - k);
    } else if (n > 0 && n <= 21) {
        add_digits(buf, &d, 0, (size_t)n);
        buf_add_char(buf, '.');
        add_digits(buf, &d, (size_t)n, d.digits);
    } else if (n > -6 && n <= 0) {
        buf_add_text(buf, "0.");
        add_zeros(buf, -n);
        add_digits(buf, &d, 0, d.digits);
    } else {
        add_scientific(buf, &d, &n);
    }
}

static void add_object(struct buf *buf, const struct json *object)
{
    const struct json_member *room[JSON_SORT_ROOM];
    const struct json_member **sorted = json_sorted(object, room);
    buf_add_char(buf, '{');
    for (size_t i = 0; i < object->count; i++) {
        if (i > 0)
            buf_add_char(buf, ',');
        json_write_string(buf, sorted[i]->name);
        buf_add_char(buf, ':');
        json_canonical(buf, &sorted[i]->value);
    }
    buf_add_char(buf, '}');
    json_sorted_done(sorted, room);
}

static void add_array(struct buf *buf, const struct json *array)
{
    buf_add_char(buf, '[');
    for (size_t i = 0; i < array->count; i++) {
        if (i > 0)
            buf_add_char(buf, ',');
        json_canonical(buf, &array->items[i]);
    }
    buf_add_char(buf, ']');
}

void json_canonical(struct buf *buf, const struct json *value)
{
    switch (value->type) {
    case JSON_NULL: buf_add_text(buf, "null"); break;
    case JSON_BOOL: buf_add_text(buf, value->boolean ? "true" : "false"); break;
    case JSON_NUMBER: json_canonical_number(buf, value->text); break;
    case JSON_STRING: json_write_string(buf, value->text); break;
    case JSON_ARRAY: add_array(buf, value); break;
    case JSON_OBJECT: add_object(buf, value); break;
    }
}
