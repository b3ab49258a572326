/* JSON numbers as exact decimals. */
#include "base/json_internal.h"

#include "base/mem.h"

#include <assert.h>
#include <openssl/bn.h>
#include <stdlib.h>

/* multiple_of works on numbers of at most this many digits once powers of ten are written out. */
#define SPAN_MAX 10000

static const char *digits_end(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static struct str drop_leading_zeros(struct str digits)
{
    while (digits.n > 0 && digits.p[0] == '0') {
        digits.p++;
        digits.n--;
    }
    return digits;
}

static struct str drop_trailing_zeros(struct str digits)
{
    while (digits.n > 0 && digits.p[digits.n - 1] == '0')
        digits.n--;
    return digits;
}

struct json_decimal json_decimal_read(struct str number)
{
    struct json_decimal d = {0};
    const char *p = number.p, *end = number.p + number.n;
    bool negative = p < end && *p == '-';
    if (negative)
        p++;
    const char *stop = digits_end(p, end);
    d.head = (struct str){p, (size_t)(stop - p)};
    d.tail = (struct str){stop, 0};
    p = stop;
    if (p < end && *p == '.') {
        stop = digits_end(++p, end);
        d.tail = (struct str){p, (size_t)(stop - p)};
        p = stop;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            d.exponent_negative = *p++ == '-';
        d.exponent = drop_leading_zeros((struct str){p, (size_t)(end - p)});
    }
    d.head = drop_leading_zeros(d.head);
    d.shift = (int64_t)d.head.n;
    if (d.head.n == 0) {
        size_t before = d.tail.n;
        d.tail = drop_leading_zeros(d.tail);
        d.shift = -(int64_t)(before - d.tail.n);
    }
    d.tail = drop_trailing_zeros(d.tail);
    if (d.tail.n == 0)
        d.head = drop_trailing_zeros(d.head);
    d.digits = d.head.n + d.tail.n;
    d.negative = negative && d.digits > 0;
    return d;
}

static char digit_at(const struct json_decimal *d, size_t i)
{
    return i < d->head.n ? d->head.p[i] : d->tail.p[i - d->head.n];
}

bool json_decimal_order(const struct json_decimal *d, int64_t *order)
{
    if (d->exponent.n > JSON_EXPONENT_DIGITS)
        return false;
    int64_t exponent = 0;
    for (size_t i = 0; i < d->exponent.n; i++)
        exponent = exponent * 10 + (d->exponent.p[i] - '0');
    *order = d->shift + (d->exponent_negative ? -exponent : exponent);
    return true;
}

/* a - b of two digit texts without leading zeros, of which only the sign and small values matter: beyond +-10^17 it
 * stays there. */
static int64_t text_difference(struct str a, struct str b)
{
    const int64_t far = 100000000000000000;
    if (a.n != b.n) {
        /* Different lengths may still be near each other (1000 and 999): write the shorter one with leading zeros. */
        size_t pad = a.n > b.n ? a.n - b.n : b.n - a.n;
        if (pad > 1)
            return a.n > b.n ? far : -far;
    }
    size_t n = a.n > b.n ? a.n : b.n;
    int64_t difference = 0;
    for (size_t i = 0; i < n; i++) {
        int left = i + a.n < n ? 0 : a.p[i + a.n - n] - '0';
        int right = i + b.n < n ? 0 : b.p[i + b.n - n] - '0';
        difference = difference * 10 + (left - right);
        if (difference > far || difference < -far)
            return difference > 0 ? far : -far;
    }
    return difference;
}

/* Which of the two has its first digit at the higher power of ten. */
static int compare_order(const struct json_decimal *a, const struct json_decimal *b)
{
    int64_t left = 0, right = 0;
    if (json_decimal_order(a, &left) && json_decimal_order(b, &right))
        return (left > right) - (left < right);
    /* One exponent at least is longer than any shift can make up for. */
    if (a->exponent_negative != b->exponent_negative)
        return a->exponent_negative ? -1 : 1;
    int64_t difference = text_difference(a->exponent, b->exponent);
    if (a->exponent_negative)
        difference = -difference;
    difference += a->shift - b->shift;
    return (difference > 0) - (difference < 0);
}

static int compare_magnitude(const struct json_decimal *a, const struct json_decimal *b)
{
    int order = compare_order(a, b);
    if (order)
        return order;
    size_t common = a->digits < b->digits ? a->digits : b->digits;
    for (size_t i = 0; i < common; i++) {
        int difference = digit_at(a, i) - digit_at(b, i);
        if (difference)
            return difference;
    }
    return (a->digits > b->digits) - (a->digits < b->digits);
}

int json_number_compare(struct str a_text, struct str b_text)
{
    struct json_decimal a = json_decimal_read(a_text), b = json_decimal_read(b_text);
    if (a.digits == 0 || b.digits == 0) {
        int left = a.digits == 0 ? 0 : a.negative ? -1 : 1;
        int right = b.digits == 0 ? 0 : b.negative ? -1 : 1;
        return left - right;
    }
    if (a.negative != b.negative)
        return a.negative ? -1 : 1;
    int magnitude = compare_magnitude(&a, &b);
    return a.negative ? -magnitude : magnitude;
}

bool json_number_is_integer(struct str number)
{
    struct json_decimal d = json_decimal_read(number);
    int64_t order;
    if (d.digits == 0)
        return true;
    if (!json_decimal_order(&d, &order))
        return !d.exponent_negative;
    return order >= (int64_t)d.digits;
}

bool json_number_int64(struct str number, int64_t *out)
{
    struct json_decimal d = json_decimal_read(number);
    int64_t order;
    if (d.digits == 0) {
        *out = 0;
        return true;
    }
    if (!json_decimal_order(&d, &order) || order < (int64_t)d.digits || order > 19)
        return false;
    uint64_t limit = (uint64_t)INT64_MAX + (d.negative ? 1 : 0), value = 0;
    for (size_t i = 0; i < (size_t)order; i++) {
        unsigned digit = i < d.digits ? (unsigned)(digit_at(&d, i) - '0') : 0;
        if (value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = d.negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* The digits with `zeros` more behind them, as an integer. The caller frees it. */
static BIGNUM *to_bignum(const struct json_decimal *d, size_t zeros)
{
    struct buf text;
    buf_init(&text, 0);
    buf_add_str(&text, d->head);
    buf_add_str(&text, d->tail);
    for (size_t i = 0; i < zeros; i++)
        buf_add_char(&text, '0');
    BIGNUM *number = NULL;
    int read = BN_dec2bn(&number, text.p);
    buf_release(&text);
    if (!read)
        mem_exhausted("libcrypto"); /* the text is digits only */
    return number;
}

static bool divides_big(const struct json_decimal *a, size_t zeros, const struct json_decimal *b)
{
    if (a->digits + zeros > SPAN_MAX || b->digits > SPAN_MAX)
        return false;
    BIGNUM *dividend = to_bignum(a, zeros), *divisor = to_bignum(b, 0), *rest = BN_new();
    BN_CTX *ctx = BN_CTX_new();
    if (!rest || !ctx || !BN_mod(rest, dividend, divisor, ctx))
        mem_exhausted("libcrypto"); /* the divisor is not zero */
    bool result = BN_is_zero(rest);
    BN_CTX_free(ctx);
    BN_free(rest);
    BN_free(divisor);
    BN_free(dividend);
    return result;
}

static bool divides_small(const struct json_decimal *a, size_t zeros, const struct json_decimal *b)
{
    uint64_t divisor = 0, rest = 0;
    for (size_t i = 0; i < b->digits; i++)
        divisor = divisor * 10 + (uint64_t)(digit_at(b, i) - '0');
    /* At most 18 digits: rest * 10 + 9 stays below 2^64. */
    for (size_t i = 0; i < a->digits + zeros; i++) {
        rest = rest * 10 + (i < a->digits ? (uint64_t)(digit_at(a, i) - '0') : 0);
        rest %= divisor;
    }
    return rest == 0;
}

bool json_number_multiple_of(struct str a_text, struct str b_text)
{
    struct json_decimal a = json_decimal_read(a_text), b = json_decimal_read(b_text);
    int64_t a_order, b_order;
    if (a.digits == 0 || b.digits == 0)
        return a.digits == 0;
    if (!json_decimal_order(&a, &a_order) || !json_decimal_order(&b, &b_order))
        return false;
    /* a / b = A x 10^zeros / B with integers A and B. A does not end in zero, so that with a negative power of ten it
     * cannot be divisible. */
    int64_t zeros = (a_order - (int64_t)a.digits) - (b_order - (int64_t)b.digits);
    if (zeros < 0 || zeros > SPAN_MAX)
        return false;
    if (b.digits <= 18)
        return divides_small(&a, (size_t)zeros, &b);
    return divides_big(&a, (size_t)zeros, &b);
}
