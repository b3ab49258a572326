/* Typed reading of one section (an object) of the configuration tree. Every member that was asked for is known; the
 * rest is reported when the section is closed. Problems carry the JSON Pointer of the member. */
#ifndef ADAPTER_SECTION_H
#define ADAPTER_SECTION_H

#include "base/json.h"
#include "base/problem.h"

struct section {
    const struct json *value; /* NULL: absent or not an object (reported); then every member is absent */
    const char *pointer;
    struct problems *problems;
    uint64_t asked; /* by member index */
};

#define SECTION_MEMBERS_MAX 64

/* value may be NULL. All is borrowed; pointer must live as long as the section. */
void section_open(struct section *section, const struct json *value, const char *pointer, struct problems *problems);
/* Reports members that nobody asked for. */
void section_close(struct section *section);

/* NULL when absent or null. */
const struct json *section_member(struct section *section, const char *name);
/* "pointer/name", in the problems' arena. */
const char *section_pointer(const struct section *section, struct str name);
void section_problem(struct section *section, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The fallback when absent, and after a problem was reported. */
const char *section_text(struct section *section, const char *name, const char *fallback); /* borrows from the tree */
bool section_bool(struct section *section, const char *name, bool fallback);
int64_t section_int(struct section *section, const char *name, int64_t fallback, int64_t min, int64_t max);
int64_t section_ms(struct section *section, const char *name, int64_t fallback, int64_t min, int64_t max);
size_t section_bytes(struct section *section, const char *name, size_t fallback, size_t min, size_t max);
/* Index into choices (NULL-terminated); fallback is an index too. */
unsigned section_choice(struct section *section, const char *name, const char *const *choices, unsigned fallback);

#endif
