#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum err_code err_set(struct err *err, enum err_code code, const char *format, ...)
{
    if (err && err->code == ERR_NONE) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        err->code = code;
    }
    return code;
}

void err_prefix(struct err *err, const char *format, ...)
{
    if (!err || err->code == ERR_NONE)
        return;
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0)
        return;
    size_t head = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    size_t tail = strlen(err->text);
    if (head + tail >= sizeof text)
        tail = sizeof text - 1 - head;
    memcpy(text + head, err->text, tail);
    text[head + tail] = '\0';
    memcpy(err->text, text, head + tail + 1);
}

void err_clear(struct err *err)
{
    err->code = ERR_NONE;
    err->text[0] = '\0';
}

const char *err_name(enum err_code code)
{
    switch (code) {
    case ERR_NONE: return "none";
    case ERR_INVALID: return "invalid";
    case ERR_LIMIT: return "limit";
    case ERR_NOT_FOUND: return "not_found";
    case ERR_CONFLICT: return "conflict";
    case ERR_STALE: return "stale";
    case ERR_DENIED: return "denied";
    case ERR_UNAVAILABLE: return "unavailable";
    case ERR_CORRUPT: return "corrupt";
    case ERR_IO: return "io";
    case ERR_INTERNAL: return "internal";
    }
    return "unknown";
}
