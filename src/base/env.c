#include "base/env.h"

#include <stdatomic.h>
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

static int64_t steady_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t shared_now_ms(struct env *env)
{
    struct env_shared *shared = (struct env_shared *)env;
    return steady_ms() + atomic_load_explicit(&shared->ahead_ms, memory_order_relaxed);
}

void env_shared_init(struct env_shared *shared)
{
    shared->env = (struct env){shared_now_ms, system_random};
    atomic_init(&shared->ahead_ms, system_now_ms(NULL) - steady_ms());
}

void env_shared_adjust(struct env_shared *shared, int64_t by_ms)
{
    atomic_fetch_add_explicit(&shared->ahead_ms, by_ms, memory_order_relaxed);
}

uint64_t env_random64(struct env *env)
{
    uint64_t value;
    env->random(env, &value, sizeof value);
    return value;
}

/* Two digits; the caller has room. */
static char *put2(char *p, unsigned value)
{
    *p++ = (char)('0' + value / 10);
    *p++ = (char)('0' + value % 10);
    return p;
}

/* By hand, since every event and answer has several times in it and gmtime with strftime takes a lock and a locale. */
void env_time_text(int64_t ms, char *out)
{
    const int64_t day_ms = 86400000;
    int64_t days = ms / day_ms;
    int64_t rest = ms % day_ms;
    if (rest < 0) {
        rest += day_ms;
        days--;
    }
    /* Proleptic Gregorian calendar in eras of 400 years that begin on 1 March, so that the leap day comes last. */
    days += 719468; /* from 0000-03-01 to 1970-01-01 */
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    unsigned day_of_era = (unsigned)(days - era * 146097);
    unsigned year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    unsigned month_from_march = (5 * day_of_year + 2) / 153;
    unsigned day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    unsigned month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    int64_t year = (int64_t)year_of_era + era * 400 + (month <= 2 ? 1 : 0);
    char *p = out;
    if (year >= 0 && year <= 9999)
        p = put2(put2(p, (unsigned)year / 100), (unsigned)year % 100);
    else
        p += snprintf(p, 16, "%lld", (long long)year);
    *p++ = '-';
    p = put2(p, month);
    *p++ = '-';
    p = put2(p, day);
    *p++ = 'T';
    p = put2(p, (unsigned)(rest / 3600000));
    *p++ = ':';
    p = put2(p, (unsigned)(rest / 60000 % 60));
    *p++ = ':';
    p = put2(p, (unsigned)(rest / 1000 % 60));
    *p++ = '.';
    *p++ = (char)('0' + rest % 1000 / 100);
    p = put2(p, (unsigned)(rest % 100));
    *p++ = 'Z';
    *p = '\0';
}
