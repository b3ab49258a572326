/* The life of one operation on one screen, from its record, its events and its attempts as the daemon gives them. */
#ifndef CLI_TIMELINE_H
#define CLI_TIMELINE_H

#include "cli/out.h"

struct trace {
    const struct json *operation;
    const struct json *events;   /* array, oldest first */
    const struct json *attempts; /* array, oldest first */
};

/*   WHEN        EVENT      WHAT
 *   +0 ms       admitted   dispatched
 *   +0 ms         request 1 leaves
 *   +10.0 s       request 1 timeout after 10.0 s
 *   +10.0 s     answer     dispatched → unknown_outcome (timeout)  */
void trace_print(struct out *out, const struct trace *trace, int64_t now_ms);

#endif
