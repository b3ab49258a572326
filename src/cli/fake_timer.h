/* Timers of the fault-injecting provider: a binary heap of embedded timers, no allocation per timer. */
#ifndef CLI_FAKE_TIMER_H
#define CLI_FAKE_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_timer {
    int64_t at_ms;
    size_t place;                           /* in the heap + 1; 0 = not running */
    void (*fire)(struct fake_timer *timer); /* the timer has stopped when it is called */
    void *user;
};

struct fake_timers {
    struct fake_timer **heap; /* owned array of borrowed timers */
    size_t count, cap;
};

void fake_timers_init(struct fake_timers *timers);
void fake_timers_release(struct fake_timers *timers);

/* Starts or moves a timer. */
void fake_timer_start(struct fake_timers *timers, struct fake_timer *timer, int64_t at_ms);
void fake_timer_stop(struct fake_timers *timers, struct fake_timer *timer);

/* Fires all that are due. */
void fake_timers_run(struct fake_timers *timers, int64_t now_ms);
/* Milliseconds until the next one, at most max. */
int fake_timers_wait(const struct fake_timers *timers, int64_t now_ms, int max);

/* Monotonic clock. */
int64_t fake_clock_ms(void);

#endif
