#include "cli/fake_timer.h"

#include "base/mem.h"

#include <stdlib.h>
#include <time.h>

void fake_timers_init(struct fake_timers *timers)
{
    *timers = (struct fake_timers){0};
}

void fake_timers_release(struct fake_timers *timers)
{
    free(timers->heap);
    fake_timers_init(timers);
}

static void put(struct fake_timers *timers, size_t i, struct fake_timer *timer)
{
    timers->heap[i] = timer;
    timer->place = i + 1;
}

static void sift_up(struct fake_timers *timers, size_t i, struct fake_timer *timer)
{
    while (i > 0 && timers->heap[(i - 1) / 2]->at_ms > timer->at_ms) {
        put(timers, i, timers->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(timers, i, timer);
}

static void sift_down(struct fake_timers *timers, size_t i, struct fake_timer *timer)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= timers->count)
            break;
        if (child + 1 < timers->count && timers->heap[child + 1]->at_ms < timers->heap[child]->at_ms)
            child++;
        if (timers->heap[child]->at_ms >= timer->at_ms)
            break;
        put(timers, i, timers->heap[child]);
        i = child;
    }
    put(timers, i, timer);
}

void fake_timer_start(struct fake_timers *timers, struct fake_timer *timer, int64_t at_ms)
{
    fake_timer_stop(timers, timer);
    timer->at_ms = at_ms;
    if (timers->count == timers->cap) {
        timers->cap = timers->cap ? timers->cap * 2 : 64;
        timers->heap = mem_grow(timers->heap, timers->cap * sizeof(struct fake_timer *));
    }
    sift_up(timers, timers->count++, timer);
}

void fake_timer_stop(struct fake_timers *timers, struct fake_timer *timer)
{
    if (!timer->place)
        return;
    size_t i = timer->place - 1;
    timer->place = 0;
    struct fake_timer *last = timers->heap[--timers->count];
    if (last == timer)
        return;
    if (i > 0 && timers->heap[(i - 1) / 2]->at_ms > last->at_ms)
        sift_up(timers, i, last);
    else
        sift_down(timers, i, last);
}

void fake_timers_run(struct fake_timers *timers, int64_t now_ms)
{
    while (timers->count && timers->heap[0]->at_ms <= now_ms) {
        struct fake_timer *timer = timers->heap[0];
        fake_timer_stop(timers, timer);
        timer->fire(timer);
    }
}

int fake_timers_wait(const struct fake_timers *timers, int64_t now_ms, int max)
{
    if (!timers->count)
        return max;
    int64_t wait = timers->heap[0]->at_ms - now_ms;
    if (wait < 0)
        return 0;
    return wait < max ? (int)wait : max;
}

int64_t fake_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
