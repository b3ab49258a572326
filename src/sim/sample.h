/* One value that a JSON Schema allows, made from the published schema (not the compiled one: "format" and the names of
 * members say what a value is to look like). Numbered: the n-th and the m-th differ where the schema leaves room.
 *
 * What it follows: type, enum, const, bounds, multipleOf, lengths, pattern (pattern_text.h), format, properties,
 * required, dependentRequired, minProperties, additionalProperties, items, prefixItems, contains, uniqueItems, allOf,
 * anyOf, oneOf, if/then/else, $ref within the document. The rest ("not", dependentSchemas, …) is left to luck: whoever
 * uses a value validates it, and asks for further attempts. */
#ifndef SIM_SAMPLE_H
#define SIM_SAMPLE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

#include <stdint.h>

#define SAMPLE_ATTEMPTS 48 /* worth making: they take other branches of anyOf, oneOf and if */

struct sample_request {
    const struct json *schema; /* whole document */
    uint64_t n;
    unsigned attempt;
    bool all_members; /* else some of those that are not required are left out */
    bool spread;      /* how n is dealt out to members with few values: as digits of a number, or each takes n modulo */
    const struct json *given; /* members of the outermost object that are fixed, or NULL */
    const char *const *times; /* JSON Pointers of texts that must be points in time, whatever the schema says */
    size_t time_count;
};

/* The value lives in arena and may share parts of the schema and of given. *branches tells how many further attempts
 * would give something else (0: none). ERR_INVALID names the member and what could not be made of it. */
enum err_code sample(struct arena *arena, const struct sample_request *request, struct json *out, unsigned *branches,
                     struct err *err);

#endif
