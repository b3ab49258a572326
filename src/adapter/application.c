/* Guard mode: the application performs the effect. There is nothing to build and nothing to send. */
#include "adapter/route.h"

#include <assert.h>

static enum err_code application_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    (void)adapter;
    (void)call;
    (void)err;
    return ERR_NONE;
}

static enum err_code application_describe(struct adapter *adapter, const struct adapter_call *call,
                                          struct json_out *out, struct err *err)
{
    (void)adapter;
    (void)err;
    json_out_object(out);
    json_out_member_text(out, "method", "perform");
    json_out_member_text(out, "url", "application");
    json_out_member_text(out, "idempotency_key", call->provider_key);
    json_out_end_object(out);
    return ERR_NONE;
}

static void application_send(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user)
{
    (void)adapter;
    (void)call;
    (void)done;
    (void)user;
    assert(!"the engine sends nothing in guard mode");
}

struct adapter *adapter_application(void)
{
    static const struct adapter_ops ops = {
        .check = application_check, .describe = application_describe, .send = application_send};
    static const struct adapter application = {.ops = &ops};
    return (struct adapter *)&application; /* has no state */
}
