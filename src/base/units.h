/* Durations and sizes as people write them in the registry file: "500ms", "10s", "5m", "24h", "30d"; "64KB", "1MB". */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

/* Ten years: no duration in a registry file is longer, and sums with a wall clock cannot overflow. */
#define UNITS_DURATION_MS_MAX (INT64_C(3650) * 24 * 60 * 60 * 1000)

/* A whole number and a unit (ms, s, m, h, d) without a space; "0" needs no unit. ERR_INVALID names the text and what
 * was expected. *ms is written on success only. */
enum err_code units_duration_ms(struct str text, int64_t *ms, struct err *err);

/* A whole number and a unit (B, KB, MB, GB; 1024-based), or a number alone, which is bytes. ERR_INVALID as above.
 * *bytes is written on success only. */
enum err_code units_bytes(struct str text, size_t *bytes, struct err *err);

#endif
