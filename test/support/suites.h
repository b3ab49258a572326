/* The public test suites outside the project: $ONCED_SUITES, else ../shared/data beside the sources. Tests that need
 * one call skip() when it is absent. */
#ifndef SUPPORT_SUITES_H
#define SUPPORT_SUITES_H

#include "base/arena.h"
#include "base/str.h"

#include <stdbool.h>

/* Path of a folder or file of the suites ("jcs/input"), from the arena; NULL when it is not there. */
const char *suites_path(struct arena *arena, const char *name);

/* Whole file, NUL-terminated, from the arena; STR_NONE when it cannot be read. */
struct str suites_read(struct arena *arena, const char *path);

/* Names in a folder that end in `ending`, sorted, from the arena. Returns how many. */
size_t suites_list(struct arena *arena, const char *folder, const char *ending, const char ***names);

#endif
