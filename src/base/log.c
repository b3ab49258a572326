#include "base/log.h"

#include "base/env.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int current_level = LOG_INFO;
static _Thread_local char line[LOG_LINE_MAX];
static _Thread_local size_t used;

void log_set_level(enum log_level level)
{
    current_level = level;
}

enum log_level log_level(void)
{
    return (enum log_level)current_level;
}

#define TAIL_ROOM 8 /* closing quote, brace and newline always fit */

static void put(char c)
{
    if (used < sizeof line - TAIL_ROOM)
        line[used++] = c;
}

static void put_text(const char *text)
{
    while (*text)
        put(*text++);
}

static void put_quoted(const char *text)
{
    put('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            put('\\');
            put((char)c);
        } else if (c < 0x20) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", c);
            put_text(escape);
        } else {
            put((char)c);
        }
    }
    if (used < sizeof line - 3)
        line[used++] = '"';
}

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_DEBUG: return "debug";
    case LOG_INFO: return "info";
    case LOG_WARN: return "warn";
    case LOG_ERROR: return "error";
    case LOG_OFF: break;
    }
    return "off";
}

int log_begin(enum log_level level, const char *event)
{
    used = 0;
    if (level < log_level())
        return 0;
    char now[ENV_TIME_SIZE];
    env_time_text(env_system()->now_ms(env_system()), now);
    put_text("{\"time\":");
    put_quoted(now);
    put_text(",\"level\":");
    put_quoted(level_name(level));
    put_text(",\"event\":");
    put_quoted(event);
    return 1;
}

void log_text(const char *name, const char *value)
{
    if (!used || !value)
        return;
    put(',');
    put_quoted(name);
    put(':');
    put_quoted(value);
}

void log_int(const char *name, int64_t value)
{
    if (!used)
        return;
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)value);
    put(',');
    put_quoted(name);
    put(':');
    put_text(number);
}

void log_end(void)
{
    if (!used)
        return;
    line[used++] = '}';
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* a log that cannot be written must not stop the work */
    used = 0;
}

void log_message(enum log_level level, const char *event, const char *format, ...)
{
    if (!log_begin(level, event))
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_text("message", text);
    log_end();
}
