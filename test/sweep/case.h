/* One case of a sweep: a life with a fault in a child process, then a life without, in another, and what must hold. */
#ifndef SWEEP_CASE_H
#define SWEEP_CASE_H

#include "sweep/life.h"

#include <stddef.h>

struct sweep_case {
    struct life_memory *memory; /* shared with the children */
    char folder[64], ledger[96], log[96];
};

/* Once per program; the memory and the folder are used by one case after the other. */
void case_init(struct sweep_case *sweep);
void case_release(struct sweep_case *sweep);

/* Runs body in a child with standard error in the log; its wait status. */
int case_child(struct sweep_case *sweep, int (*body)(struct sweep_case *sweep, const void *argument),
               const void *argument);
/* Standard error of the last child, at most n - 1 bytes. */
void case_log(const struct sweep_case *sweep, char *text, size_t n);

/* Forgets the former case: an empty folder, a provider without effects. */
void case_reset(struct sweep_case *sweep);
/* The second life and the judgement. NULL, or what is wrong (in the shared memory, or static). */
const char *case_judge(struct sweep_case *sweep);
/* NULL when the child ended in one of the ways that `allowed` (bit per enum life_end) says; else what is wrong. */
const char *case_ended(struct sweep_case *sweep, int status, unsigned allowed);

bool case_full(void); /* ONCED_SWEEP=full */
/* When full: every point; with a number in ONCED_SWEEP: so many; else `few` of them, spread over 1 … total. Returns the
 * i-th point, 0 at the end. */
uint64_t case_point(uint64_t total, unsigned few, unsigned i);

#endif
