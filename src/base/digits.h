/* Digits of numbers, where a printf would be too slow or too lax. */
#ifndef BASE_DIGITS_H
#define BASE_DIGITS_H

#include "base/str.h"

#include <stdint.h>

/* Of a hexadecimal digit in either case; else -1. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* In decimal digits, at the end of room. Not NUL-terminated. */
#define INT_TEXT_SIZE 24
static inline struct str int_text(int64_t value, char room[INT_TEXT_SIZE])
{
    size_t at = INT_TEXT_SIZE;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        room[--at] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0)
        room[--at] = '-';
    return (struct str){room + at, INT_TEXT_SIZE - at};
}

#endif
