#include "base/decimal.h"

#include <assert.h>
#include <string.h>

#define WHOLE_DIGITS_MAX 18
#define EXPONENT_MAX     1000

static decimal_units power_of_ten(int exponent)
{
    decimal_units value = 1;
    while (exponent-- > 0)
        value *= 10;
    return value;
}

/* The parts of a number's text. */
struct parts {
    bool negative;
    char digits[WHOLE_DIGITS_MAX + DECIMAL_PLACES + 1]; /* significant ones, no leading zeros */
    int count;
    long exponent; /* of the last digit */
    bool too_long; /* a digit that is not zero did not fit */
};

static void add_digit(struct parts *parts, char digit, bool behind_point)
{
    bool leading = parts->count == 0 && digit == '0';
    bool fits = parts->count < (int)sizeof parts->digits;
    if (!leading && fits)
        parts->digits[parts->count++] = digit;
    else if (!leading && digit != '0')
        parts->too_long = true;
    if (leading || fits)
        parts->exponent -= behind_point;
    else
        parts->exponent += !behind_point;
}

static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

/* RFC 8259's grammar of a number. */
static bool split(struct str text, struct parts *parts)
{
    const char *p = text.p, *end = text.p + text.n;
    *parts = (struct parts){0};
    if (p < end && *p == '-')
        parts->negative = true, p++;
    if (!is_digit(p, end))
        return false;
    for (bool zero_first = *p == '0', first = true; is_digit(p, end); p++, first = false) {
        if (zero_first && !first)
            return false;
        add_digit(parts, *p, false);
    }
    if (p < end && *p == '.') {
        if (!is_digit(++p, end))
            return false;
        for (; is_digit(p, end); p++)
            add_digit(parts, *p, true);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        long exponent = 0;
        bool negative = ++p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+'))
            p++;
        if (!is_digit(p, end))
            return false;
        for (; is_digit(p, end); p++)
            exponent = exponent < EXPONENT_MAX ? exponent * 10 + (*p - '0') : exponent;
        parts->exponent += negative ? -exponent : exponent;
    }
    return p == end;
}

enum err_code decimal_read(struct str text, struct decimal *out, struct err *err)
{
    struct parts parts;
    int shown = text.n > 60 ? 60 : (int)text.n;
    if (!text.p || !split(text, &parts))
        return err_set(err, ERR_INVALID, "\"%.*s\" is no decimal number", shown, text.p ? text.p : "");
    while (parts.count > 0 && parts.digits[parts.count - 1] == '0')
        parts.count--, parts.exponent++;
    if (parts.count == 0) {
        out->units = 0;
        return ERR_NONE;
    }
    if (parts.too_long || parts.exponent < -DECIMAL_PLACES)
        return err_set(err, ERR_LIMIT, "%.*s has more than %d decimal places", shown, text.p, DECIMAL_PLACES);
    if (parts.count + parts.exponent > WHOLE_DIGITS_MAX)
        return err_set(err, ERR_LIMIT, "%.*s is beyond 10^%d", shown, text.p, WHOLE_DIGITS_MAX);
    decimal_units units = 0;
    for (int i = 0; i < parts.count; i++)
        units = units * 10 + (parts.digits[i] - '0');
    units *= power_of_ten((int)parts.exponent + DECIMAL_PLACES);
    out->units = parts.negative ? -units : units;
    return ERR_NONE;
}

void decimal_write(struct decimal value, char out[DECIMAL_TEXT_BYTES])
{
    char digits[DECIMAL_TEXT_BYTES];
    int count = 0;
    bool negative = value.units < 0;
    decimal_units rest = negative ? -value.units : value.units;
    while (rest > 0 || count <= DECIMAL_PLACES) { /* least first, at least one before the point */
        digits[count++] = (char)('0' + (int)(rest % 10));
        rest /= 10;
        assert(count < DECIMAL_TEXT_BYTES - 3);
    }
    int last = 0; /* places that are not zero */
    while (last < DECIMAL_PLACES && digits[last] == '0')
        last++;
    if (negative)
        *out++ = '-';
    for (int i = count - 1; i >= last; i--) {
        if (i == DECIMAL_PLACES - 1)
            *out++ = '.';
        *out++ = digits[i];
    }
    *out = '\0';
}

struct decimal decimal_of(long long whole)
{
    return (struct decimal){whole * power_of_ten(DECIMAL_PLACES)};
}

struct decimal decimal_add(struct decimal a, struct decimal b)
{
    return (struct decimal){a.units + b.units};
}

struct decimal decimal_subtract(struct decimal a, struct decimal b)
{
    return (struct decimal){a.units - b.units};
}

int decimal_compare(struct decimal a, struct decimal b)
{
    return (a.units > b.units) - (a.units < b.units);
}
