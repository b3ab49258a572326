#include "sweep/alloc.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* What lies behind: the sanitizer's functions where it is linked, else the C library's. */
#define BEHIND(result, name, parameters)                                                                               \
    extern result __interceptor_##name parameters __attribute__((weak));                                               \
    extern result __libc_##name parameters
BEHIND(void *, malloc, (size_t));
BEHIND(void *, calloc, (size_t, size_t));
BEHIND(void *, realloc, (void *, size_t));
BEHIND(void *, memalign, (size_t, size_t));

static uint64_t *counter; /* NULL: disarmed */
static uint64_t first, last;

void alloc_arm(uint64_t *count, uint64_t nth, uint64_t times)
{
    *count = 0;
    first = nth;
    last = times ? nth + times - 1 : UINT64_MAX;
    __atomic_store_n(&counter, count, __ATOMIC_SEQ_CST);
}

void alloc_disarm(void)
{
    __atomic_store_n(&counter, NULL, __ATOMIC_SEQ_CST);
}

static bool fails(void)
{
    uint64_t *count = __atomic_load_n(&counter, __ATOMIC_SEQ_CST);
    if (!count)
        return false;
    uint64_t n = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    if (first == 0 || n < first || n > last)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    if (fails())
        return NULL;
    return __interceptor_malloc ? __interceptor_malloc(bytes) : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    if (fails())
        return NULL;
    return __interceptor_calloc ? __interceptor_calloc(count, bytes) : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    if (bytes && fails())
        return NULL;
    return __interceptor_realloc ? __interceptor_realloc(old, bytes) : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    if (fails())
        return NULL;
    return __interceptor_memalign ? __interceptor_memalign(alignment, bytes) : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *memory = aligned_alloc(alignment, bytes);
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}
