/* ULID: 48 bits of milliseconds and 80 random bits in 26 characters of Crockford base 32; sorts by time of creation. */
#ifndef BASE_ULID_H
#define BASE_ULID_H

#include "base/env.h"

#include <stdbool.h>

#define ULID_CHARS 26

struct ulid_source {
    struct env *env;
    int64_t last_ms;
    unsigned char last[10];
};

void ulid_source_init(struct ulid_source *source, struct env *env);

/* Writes 26 characters and a NUL. Strictly increasing within one source, also when the clock steps back. */
void ulid_next(struct ulid_source *source, char out[ULID_CHARS + 1]);

/* True for exactly 26 characters of the alphabet in upper case within range. */
bool ulid_valid(const char *text);

/* Milliseconds encoded in a valid ULID. */
int64_t ulid_time_ms(const char *text);

#endif
