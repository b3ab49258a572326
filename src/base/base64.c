#include "base/base64.h"

#include <stdint.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static int digit_of(const char *alphabet, char c)
{
    const char *at = c ? strchr(alphabet, c) : NULL;
    return at ? (int)(at - alphabet) : -1;
}

static bool decode(const char *alphabet, struct str text, unsigned char *out, size_t *n)
{
    uint32_t bits = 0;
    int held = 0;
    *n = 0;
    for (size_t i = 0; i < text.n; i++) {
        int digit = digit_of(alphabet, text.p[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[(*n)++] = (unsigned char)(bits >> held);
        }
    }
    return text.n % 4 != 1 && (bits & ((1u << held) - 1)) == 0; /* one text per value */
}

bool base64_decode(struct str text, unsigned char *out, size_t *n)
{
    while (text.n > 0 && text.p[text.n - 1] == '=')
        text.n--;
    return decode(digits, text, out, n);
}

bool base64url_decode(struct str text, unsigned char *out, size_t *n)
{
    return decode(url_digits, text, out, n);
}

void base64_encode(const unsigned char *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        if (left > 1)
            bits |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2)
            bits |= bytes[i + 2];
        for (size_t k = 0; k < 4; k++)
            *out++ = k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    *out = '\0';
}
