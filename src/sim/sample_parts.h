/* What the files of the sampler share. Not for others. */
#ifndef SIM_SAMPLE_PARTS_H
#define SIM_SAMPLE_PARTS_H

#include "sim/sample.h"

#define FACETS_MAX 48

/* All schemas that one value must satisfy at once: $ref, allOf and the chosen branches are in it already. */
struct facets {
    const struct json *list[FACETS_MAX];
    size_t count;
};

struct sampling {
    struct arena *arena;
    const struct sample_request *request;
    uint64_t n;       /* of the value that is being made (items of arrays have their own) */
    uint64_t rest;    /* digits of n not dealt out yet */
    unsigned choice;  /* digits of the attempt not used yet */
    unsigned choices; /* product of all branchings met, saturated */
    unsigned depth;
    struct buf path; /* JSON Pointer of the place */
    struct err *err;
};

/* One of `count` possibilities for this value. */
uint64_t sampling_place(struct sampling *sampling, uint64_t count);
/* Sets the error with the place in front. */
enum err_code sampling_refuse(struct sampling *sampling, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The last name in the path, "" at the root. */
struct str sampling_name(const struct sampling *sampling);

/* The keyword of the i-th facet, NULL when it has none. */
const struct json *facet_get(const struct facets *facets, size_t i, const char *keyword);
/* The largest (smallest) count that any facet states. */
uint64_t facets_largest(const struct facets *facets, const char *keyword, uint64_t fallback);
uint64_t facets_smallest(const struct facets *facets, const char *keyword, uint64_t fallback);

enum err_code sample_text(struct sampling *sampling, const struct facets *facets, struct json *out);
enum err_code sample_number(struct sampling *sampling, const struct facets *facets, bool integer, struct json *out);

#endif
