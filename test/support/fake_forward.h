/* Stands in at link time for what lies behind the MCP door's calls: pass-through (mcp_forward*.c) and the hub. Calls,
 * built-in tools, tasks, dispatch and sessions are the real ones; the engine is fake_engine.h. */
#ifndef SUPPORT_FAKE_FORWARD_H
#define SUPPORT_FAKE_FORWARD_H

#include "door/mcp_parts.h"
#include "support/fake_engine.h"

#define HEARD_MAX 32

/* What one request's client was told. Texts are copies. */
struct heard {
    struct mcp_sink sink;  /* first */
    char *told[HEARD_MAX]; /* notifications */
    size_t told_count;
    char *final; /* the answer, NULL = none */
    int final_count, dropped, delivers, http_status;
    char delivered[OPERATION_ID_SIZE];
};
void heard_init(struct heard *heard);
void heard_release(struct heard *heard);

struct fake_forward {
    bool resume;               /* mcp_forward_resume takes the request … */
    int resumed;               /* … so many times */
    char forwarded[128];       /* remote name of the last forwarded tool */
    bool has_server;           /* mcp_hub_find finds one */
    const char *key_argument;  /* mcp_tool_key_argument */
    char *task_told, task[64]; /* the last mcp_forward_task_changed */
    int tasks_told;
};
extern struct fake_forward fake_forward;
void fake_forward_reset(void);

#endif
