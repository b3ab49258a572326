/* URI references for "$id" and "$ref" (RFC 3986, section 5). Used while compiling only. */
#ifndef CORE_SCHEMA_URI_H
#define CORE_SCHEMA_URI_H

#include "base/arena.h"
#include "base/str.h"

struct schema_uri {
    struct str base;     /* all before "#" */
    struct str fragment; /* percent-decoded; absent without "#" */
};

/* Resolves reference against base (which has no fragment and may itself be relative or empty). Results are in the
 * arena. */
struct schema_uri schema_uri_resolve(struct arena *arena, struct str base, struct str reference);

#endif
