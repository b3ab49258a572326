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

/* A clock that many machines agree about: this one's own steady clock (it stands still for nobody, and nobody sets it),
 * which begins as the wall clock and is put right by whoever can ask the common one. Any thread may read and adjust it.
 */
struct env_shared {
    struct env env;
    _Atomic int64_t ahead_ms; /* of the steady clock */
};
void env_shared_init(struct env_shared *shared);
void env_shared_adjust(struct env_shared *shared, int64_t by_ms);

uint64_t env_random64(struct env *env);

/* RFC 3339 in UTC with milliseconds: "2026-11-29T16:23:28.123Z". out has room for ENV_TIME_SIZE. */
#define ENV_TIME_SIZE 32
void env_time_text(int64_t ms, char *out);

#endif
