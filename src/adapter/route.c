#include "adapter/route.h"

static struct adapter *adapter_of(struct adapter *adapter, const struct adapter_call *call)
{
    return ((struct adapter_route *)adapter)->kinds[call->tool->provider->kind];
}

static enum err_code check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    struct adapter *to = adapter_of(adapter, call);
    return to->ops->check(to, call, err);
}

static enum err_code describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                              struct err *err)
{
    struct adapter *to = adapter_of(adapter, call);
    return to->ops->describe(to, call, out, err);
}

static void route_send(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct adapter *to = adapter_of(adapter, call);
    to->ops->send(to, call, done, user);
}

void adapter_route_init(struct adapter_route *route)
{
    static const struct adapter_ops ops = {.check = check, .describe = describe, .send = route_send};
    *route = (struct adapter_route){.adapter = {.ops = &ops}};
    route->kinds[PROVIDER_APPLICATION] = adapter_application();
}
