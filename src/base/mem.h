/* Heap memory. Exhaustion ends the process with a message: for the ledger that is a crash like any other (kill -9),
 * from which it recovers; limits on every input and queue (design 14.5) keep it from being reached. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t bytes);                 /* uninitialised */
void *mem_zero(size_t bytes);                  /* zeroed */
void *mem_grow(void *old, size_t bytes);       /* realloc */
char *mem_copy_text(const char *text);         /* strdup; NULL gives NULL */
char *mem_copy_bytes(const char *p, size_t n); /* NUL is appended */
/* For a library's report that it has no memory: the same end. what: which library or for what. */
_Noreturn void mem_exhausted(const char *what);

#endif
