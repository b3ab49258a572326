/* Events in simulated time: a binary heap, first by time, then by order of scheduling, so that a run never depends on
 * where something lies in memory. */
#include "base/mem.h"
#include "sim/run.h"

#include <assert.h>
#include <stdlib.h>

static inline bool before(const struct sim_place *a, const struct sim_place *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static inline void put(struct sim *sim, size_t place, const struct sim_place *what)
{
    sim->heap[place] = *what;
    what->event->place = place;
}

static void rise(struct sim *sim, struct sim_place what, size_t place)
{
    for (; place > 1 && before(&what, &sim->heap[place / 2]); place /= 2)
        put(sim, place, &sim->heap[place / 2]);
    put(sim, place, &what);
}

static void sink(struct sim *sim, struct sim_place what, size_t place)
{
    for (;;) {
        size_t child = 2 * place;
        if (child > sim->heap_count)
            break;
        if (child < sim->heap_count && before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!before(&sim->heap[child], &what))
            break;
        put(sim, place, &sim->heap[child]);
        place = child;
    }
    put(sim, place, &what);
}

void schedule_at(struct sim *sim, struct sim_event *event, int64_t at_ms)
{
    assert(event->place == 0);
    if (sim->heap_count + 1 >= sim->heap_room) {
        sim->heap_room = sim->heap_room ? 2 * sim->heap_room : 1024;
        sim->heap = mem_grow(sim->heap, sim->heap_room * sizeof *sim->heap);
    }
    event->at_ms = at_ms > sim->now_ms ? at_ms : sim->now_ms;
    event->order = ++sim->order;
    rise(sim, (struct sim_place){event->at_ms, event->order, event}, ++sim->heap_count);
}

void schedule_in(struct sim *sim, struct sim_event *event, int64_t ms)
{
    schedule_at(sim, event, sim->now_ms + ms);
}

void schedule_drop(struct sim *sim, struct sim_event *event)
{
    if (event->place == 0)
        return;
    size_t place = event->place;
    struct sim_place last = sim->heap[sim->heap_count--];
    event->place = 0;
    if (last.event == event)
        return;
    if (place > 1 && before(&last, &sim->heap[place / 2]))
        rise(sim, last, place);
    else
        sink(sim, last, place);
}

struct sim_event *schedule_take(struct sim *sim, int64_t until_ms)
{
    struct sim_event *first = sim->heap_count ? sim->heap[1].event : NULL;
    if (!first || first->at_ms > until_ms)
        return NULL;
    schedule_drop(sim, first);
    return first;
}
