/* The world's time and randomness behind one small interface (design 14.6), so that a simulator can own both. */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stddef.h>
#include <stdint.h>

struct env {
    /* Wall clock, milliseconds since 1970 UTC: everything that is stored or compared across processes. */
    int64_t (*now_ms)(struct env *env);
    /* Fills n bytes with randomness fit for secrets. */
    void (*random)(struct env *env, void *out, size_t n);
};

/* The operating system's clock and getrandom(2). Static, shared, stateless. */
struct env *env_system(void);

uint64_t env_random64(struct env *env);

/* RFC 3339 in UTC with milliseconds: "2026-11-29T16:23:28.123Z". out has room for ENV_TIME_SIZE. */
#define ENV_TIME_SIZE 32
void env_time_text(int64_t ms, char *out);

#endif
