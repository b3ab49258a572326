/* "did you mean": the known name that is nearest to a mistyped one. */
#ifndef DOOR_SUGGEST_H
#define DOOR_SUGGEST_H

#include "base/str.h"

/* Keeps the nearest of the names offered to it. */
struct suggestion {
    struct str wanted;
    const char *name; /* borrowed; NULL = nothing near enough */
    unsigned distance;
};

#define SUGGEST_BYTES_MAX 64 /* longer names are not compared */

struct suggestion suggestion_for(struct str wanted);
void suggestion_offer(struct suggestion *suggestion, const char *name);

#endif
