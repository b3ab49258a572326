/* Providers as the engine sees them: the gate and the queue before it. */
#include "base/mem.h"
#include "engine/internal.h"

struct route *engine_route(struct engine *engine, const struct provider *provider)
{
    struct route *route = map_get(&engine->routes, provider->name);
    if (!route) {
        route = mem_zero(sizeof *route);
        route->name = mem_copy_text(provider->name);
        route->tail = &route->head;
        map_put(&engine->routes, route->name, route);
    }
    route->connections_max = provider->connections_max;
    return route;
}

void route_push(struct route *route, struct queued *queued)
{
    queued->next = NULL;
    *route->tail = queued;
    route->tail = &queued->next;
    route->count++;
}

static struct queued *pop(struct route *route)
{
    struct queued *first = route->head;
    route->head = first->next;
    if (!route->head)
        route->tail = &route->head;
    route->count--;
    return first;
}

bool route_remove(struct route *route, struct queued *queued)
{
    for (struct queued **at = &route->head; *at; at = &(*at)->next) {
        if (*at != queued)
            continue;
        *at = queued->next;
        if (!queued->next)
            route->tail = at;
        route->count--;
        return true;
    }
    return false;
}

void route_pump(struct route *route)
{
    if (route->pumping) /* what goes may free a slot at once: the outer loop sees it */
        return;
    route->pumping = true;
    while (route->head && route->gate.slots_used < route->connections_max) {
        struct queued *queued = pop(route);
        queued->go(queued);
    }
    route->pumping = false;
}
