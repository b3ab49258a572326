#include "base/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static int64_t system_now_ms(struct env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void system_random(struct env *env, void *out, size_t n)
{
    (void)env;
    char *p = out;
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0)
            continue; /* EINTR is the only error that can come */
        p += got;
        n -= (size_t)got;
    }
}

struct env *env_system(void)
{
    static struct env system = {system_now_ms, system_random};
    return &system;
}

uint64_t env_random64(struct env *env)
{
    uint64_t value;
    env->random(env, &value, sizeof value);
    return value;
}

void env_time_text(int64_t ms, char *out)
{
    time_t seconds = (time_t)(ms / 1000);
    int rest = (int)(ms % 1000);
    if (rest < 0) {
        rest += 1000;
        seconds--;
    }
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t n = strftime(out, ENV_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, ENV_TIME_SIZE - n, ".%03dZ", rest);
}
