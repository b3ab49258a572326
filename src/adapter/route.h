/* One adapter in front of several: each request goes to the adapter of its tool's provider kind. */
#ifndef ADAPTER_ROUTE_H
#define ADAPTER_ROUTE_H

#include "adapter/adapter.h"

struct adapter_route {
    struct adapter adapter;                     /* what the engine gets */
    struct adapter *kinds[PROVIDER_KIND_COUNT]; /* borrowed; every kind that a registry names must be there, but the
                                                   application's is */
};

/* Tools of guard mode: there is nothing to send. */
struct adapter *adapter_application(void);

void adapter_route_init(struct adapter_route *route);

#endif
