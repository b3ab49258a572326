/* Per-field normalisers (design 2.6): run after the schema's defaults and before canonicalisation; what they produce is
 * what is fingerprinted, shown and sent. */
#ifndef CORE_NORMAL_H
#define CORE_NORMAL_H

#include "base/json.h"

/* Kinds:
 *   trim, collapse_space, lower, upper, nfc    text (white space as Unicode has it; one-to-one case mapping)
 *   integer, decimal                           a number or decimal text → a number in its shortest exact form
 *   minor_units(currency)                      an amount in major units (number or decimal text) → a whole number of
 * minor units; currency is a sibling member's name or a literal ISO 4217 code in quotes. Fields with a sibling are done
 * last. timestamp                                  RFC 3339 → UTC, seconds kept, fraction kept without trailing zeros
 *   {"enum": {"from": "to"}}                   text that is not among the "from" stays as it is
 *   sort                                       array as a set: sorted by canonical text, duplicates removed
 */
struct normal;

/* Compiles rules: an object of field (name, "a.b" or JSON Pointer; a "*" token stands for every array item) → one kind
 * or an array of kinds applied in order. Errors name the field. Free with normal_free (NULL is fine). */
enum err_code normal_new(const struct json *rules, struct normal **out, struct err *err);
void normal_free(struct normal *normal);

/* Changes value in place (new texts in arena; what lies below the root is copied before it changes, so that defaults
 * shared with a schema stay as they are). Absent and null fields are left alone. A value that a normaliser cannot read
 * ("timestamp" of "tomorrow") is refused with the field's pointer, ERR_INVALID. */
enum err_code normal_apply(const struct normal *normal, struct arena *arena, struct json *value, struct err *err);

#endif
