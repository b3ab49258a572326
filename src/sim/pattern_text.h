/* Texts that a regular expression matches, numbered: the n-th and the m-th differ. For made-up arguments of tools whose
 * schemas have patterns. What it understands: literals, escapes, classes, groups, alternatives, quantifiers, anchors at
 * the ends. What it does not (look-around, back-references, most \p{…}) is refused by name; whoever uses a text checks
 * it against the pattern, since a pattern may ask for more than its parts show. */
#ifndef SIM_PATTERN_TEXT_H
#define SIM_PATTERN_TEXT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

struct pattern_text;

/* Reads the pattern (ECMA-262 as in JSON Schema); texts will have length_min … length_max characters where that is
 * possible. All of it lives in arena; nothing points into pattern. ERR_INVALID says what is not understood. */
enum err_code pattern_text_new(struct arena *arena, struct str pattern, uint64_t length_min, uint64_t length_max,
                               struct pattern_text **out, struct err *err);

/* How many different texts can be told apart; at least 1. */
uint64_t pattern_text_count(const struct pattern_text *pattern);

/* Appends the text number n modulo the count. */
void pattern_text_write(const struct pattern_text *pattern, uint64_t n, struct buf *out);

#endif
