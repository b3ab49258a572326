/* Regular expressions of JSON Schema: ECMA-262 with the u flag, translated to PCRE2 (UTF, JIT where the machine
 * allows). What ECMA-262 does not know (\A, possessive quantifiers, recursion, verbs) is refused rather than given
 * another meaning. Leniencies: any escaped punctuation, "{" that starts no quantifier, inline flags like (?i). Known
 * difference: \S inside brackets takes white space beyond ASCII too. */
#ifndef CORE_SCHEMA_PATTERN_H
#define CORE_SCHEMA_PATTERN_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

struct schema_pattern; /* immutable, shareable between threads */

#define SCHEMA_PATTERN_BYTES_MAX 4096

/* Compiles text (borrowed; keep it as long as the pattern). The struct comes from arena, the code from the heap: call
 * schema_pattern_release. ERR_INVALID says what is wrong and at which byte. */
enum err_code schema_pattern_new(struct arena *arena, struct str text, struct schema_pattern **out, struct err *err);
void schema_pattern_release(struct schema_pattern *pattern);

struct str schema_pattern_text(const struct schema_pattern *pattern);

/* Patterns of one schema form a list, for release. */
struct schema_pattern *schema_pattern_next(const struct schema_pattern *pattern);
void schema_pattern_link(struct schema_pattern *pattern, struct schema_pattern *next);

/* Working memory of matches, taken from an arena at the first match; one per validation. */
struct schema_matcher {
    struct arena *arena;
    struct schema_matcher_data *data; /* NULL before the first match */
};

enum schema_match { SCHEMA_MATCH_NO, SCHEMA_MATCH_YES, SCHEMA_MATCH_LIMIT };

/* Looks for the pattern anywhere in text. *steps is reduced by what it cost (may fall below 0; the caller looks).
 * Bounded: a match that backtracks more than 100,000 times gives SCHEMA_MATCH_LIMIT. */
enum schema_match schema_pattern_match(const struct schema_pattern *pattern, struct schema_matcher *matcher,
                                       struct str text, int64_t *steps);

#endif
