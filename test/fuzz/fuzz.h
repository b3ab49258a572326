/* What fuzz programs share. Each has one LLVMFuzzerTestOneInput and a folder of seeds, corpus/<name>. */
#ifndef FUZZ_H
#define FUZZ_H

#include "base/str.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assertion that stays in every build. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* For programs that need two texts: the first line and the rest. */
static inline void fuzz_split(struct str input, struct str *line, struct str *rest)
{
    const char *end = input.n > 0 ? (const char *)memchr(input.p, '\n', input.n) : NULL;
    *line = end ? (struct str){input.p, (size_t)(end - input.p)} : input;
    *rest = end ? (struct str){end + 1, input.n - line->n - 1} : (struct str){input.p + input.n, 0};
}

#endif
