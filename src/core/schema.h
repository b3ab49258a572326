/* JSON Schema 2020-12 and draft 7: compiled once, applied many times. Pure; no remote references are ever fetched
 * (design 16), only documents handed in. */
#ifndef CORE_SCHEMA_H
#define CORE_SCHEMA_H

#include "base/json.h"

struct schema; /* compiled; immutable, so that it may be shared */

/* A document that "$ref" may name by its absolute URI (the official suite's remotes, meta-schemas). Optional. */
struct schema_document {
    const char *uri;
    const struct json *value;
};

/* Compiles value (copied). Dialect from "$schema" (2020-12 when absent, draft-07 known; others refused). Refuses broken
 * schemas with the JSON Pointer of the place: wrong keyword types, unresolvable or remote $ref, a pattern that is not a
 * regular expression (ECMA-262 style run by PCRE2 with match limits). Free with schema_free (NULL is fine). */
enum err_code schema_new(const struct json *value, const struct schema_document *documents, size_t document_count,
                         struct schema **out, struct err *err);
void schema_free(struct schema *schema);

struct schema_error {
    const char *pointer; /* into the instance, "" for the whole */
    const char
        *message; /* "expected integer, got string"; no values of the instance: names, counts, what the schema asks */
    const char *keyword; /* the schema keyword that failed */
};

#define SCHEMA_ERRORS_MAX 16

/* Validates instance. Returns 0 when valid; ERR_INVALID with *errors (arena) holding up to SCHEMA_ERRORS_MAX errors,
 * most specific places first; err holds the first as one line. Bounded work: ERR_LIMIT when a schema and an instance
 * would take more than about a million steps. format is an annotation (2020-12 default). */
enum err_code schema_validate(const struct schema *schema, struct arena *arena, const struct json *instance,
                              struct schema_error **errors, size_t *error_count, struct err *err);

/* Adds "default" values of absent members to instance in place (objects reached through properties, items, allOf and
 * $ref; not through conditional branches). Values are shared with the schema: treat as read-only. */
void schema_apply_defaults(const struct schema *schema, struct arena *arena, struct json *instance);

#endif
