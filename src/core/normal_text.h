/* What the normalisers of normal.h do to text, apart from where in a value they do it. */
#ifndef CORE_NORMAL_TEXT_H
#define CORE_NORMAL_TEXT_H

#include "base/arena.h"
#include "base/str.h"

#include <stdint.h>

/* All take valid UTF-8 and give text from the arena, or the input itself when nothing changes. White space is Unicode's
 * White_Space property. */
struct str normal_trim(struct str text);                                /* always a part of the input */
struct str normal_collapse_space(struct arena *arena, struct str text); /* each run of white space → one space */
/* One-to-one case mapping, independent of any language. */
struct str normal_lower(struct arena *arena, struct str text);
struct str normal_upper(struct arena *arena, struct str text);
struct str normal_nfc(struct arena *arena, struct str text);

/* Decimal text as people and models write it ("+007.50", "1e3") as a JSON number ("7.50", "1e3"). STR_NONE when it is
 * not one: no white space, no group separators, a digit on both sides of a point. */
struct str normal_decimal_text(struct arena *arena, struct str text);

#endif
