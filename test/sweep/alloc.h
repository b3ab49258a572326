/* The program's own malloc, calloc, realloc and relatives, for every library in it: the n-th one from now on gives
 * NULL. They stand before the C library's or, in a sanitized build, the sanitizer's. */
#ifndef SWEEP_ALLOC_H
#define SWEEP_ALLOC_H

#include <stdint.h>

/* Counts from here on into *count (may be shared memory). The nth allocation fails and so do the next ones, `times` in
 * all (0: all later ones); nth 0: none fails. Any thread. */
void alloc_arm(uint64_t *count, uint64_t nth, uint64_t times);
void alloc_disarm(void);

#endif
