/* Errors of a validation while they are collected: bounded, in an arena, rendered when they are found. Private to
 * schema.c. */
#ifndef CORE_SCHEMA_REPORT_H
#define CORE_SCHEMA_REPORT_H

#include "base/arena.h"
#include "base/json.h"
#include "core/schema.h"

#include <stdarg.h>

/* A place in the instance; a chain on the C stack. */
struct schema_spot {
    const struct json *value;
    const struct schema_spot *up; /* NULL: the whole instance */
    struct str name;              /* of the member; absent: an item */
    uint32_t index;               /* of the item */
};

struct schema_report {
    struct schema_error errors[SCHEMA_ERRORS_MAX];
    unsigned depths[SCHEMA_ERRORS_MAX]; /* tokens of the pointer */
    size_t count;
};

/* Further errors are dropped once SCHEMA_ERRORS_MAX are there. */
void schema_report_add(struct schema_report *report, struct arena *arena, const struct schema_spot *spot,
                       const char *keyword, const char *format, va_list args) __attribute__((format(printf, 5, 0)));
void schema_report_append(struct schema_report *report, const struct schema_report *more);

/* Deepest places first, otherwise in the order of finding. */
void schema_report_sort(struct schema_report *report);

unsigned schema_spot_depth(const struct schema_spot *spot);

/* A member's name for messages: as it is when it is a plain word, else quoted; cut when long. */
const char *schema_name_text(struct arena *arena, struct str name);

/* "string or null" for the bits of schema_node.h. */
const char *schema_types_text(struct arena *arena, unsigned types);

/* When no alternative of "anyOf" or "oneOf" matches: the report of the one that was evidently meant, NULL when that is
 * not clear. reports[] are those of the alternatives, ruled_out[] says which the instance's type rules out; depth is
 * that of the instance. */
const struct schema_report *schema_report_closest(const struct schema_report *reports, const bool *ruled_out,
                                                  size_t count, unsigned depth);

#endif
