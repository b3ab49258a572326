/* Requests under way, kept by the providers for wire.c. Not for others. */
#ifndef SIM_POST_H
#define SIM_POST_H

#include "sim/parts.h"

struct exchange;
struct post {
    struct exchange *first; /* all that are under way, newest first */
    struct exchange *spare; /* memory for the next ones */
};
struct post *providers_post(const struct sim *sim);
void post_release(struct post *post); /* at the end: what is still under way is forgotten */
/* How many requests were made for this intent so far; counts this one. */
uint32_t providers_post_count(struct sim *sim, uint32_t intent);

#endif
