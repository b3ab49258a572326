/* RFC 3339 date-times as text, without a detour over numbers: fractions keep all their digits. */
#ifndef CORE_TIMESTAMP_H
#define CORE_TIMESTAMP_H

#include "base/buf.h"

/* Appends the moment in UTC: "2026-11-29T16:23:28.5Z", seconds kept, the fraction without trailing zeros. Lower-case t
 * and z and a space for the T are read. False for anything else: no offset, 30 February, a leap second elsewhere than
 * at 23:59:60 UTC, a year that leaves 0000 to 9999 in UTC. */
bool timestamp_to_utc(struct buf *out, struct str text);

#endif
