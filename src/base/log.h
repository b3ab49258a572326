/* Structured logs: one JSON object a line on standard error (design 17). Only the edges log (engine, door, daemon,
 * cli); base, core, ledger and adapters return errors. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };

/* The one mutable global of the program (style 14). Default LOG_INFO. */
void log_set_level(enum log_level level);
enum log_level log_level(void);

/* Starts a line at a level with an event name; returns 0 when the level is off, and then the other calls do nothing.
 * log_begin … log_text/log_int … log_end; a line is cut at LOG_LINE_MAX bytes. Single-threaded use per line is kept by
 * a thread-local buffer. */
#define LOG_LINE_MAX 4096
int log_begin(enum log_level level, const char *event);
void log_text(const char *name, const char *value); /* NULL value: left out */
void log_int(const char *name, int64_t value);
void log_end(void);

/* A line with a message only. */
void log_message(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
