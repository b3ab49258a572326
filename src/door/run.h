/* What really happened in a run, summed up: the REST door and the MCP door say the same. Pure. */
#ifndef DOOR_RUN_H
#define DOOR_RUN_H

#include "base/json.h"
#include "core/operation.h"

#define RUN_OPERATIONS_MAX 10000 /* counted; a larger run is reported as not complete */

struct run_summary {
    bool cut; /* more than RUN_OPERATIONS_MAX */
    int64_t total, succeeded, failed, open, unknown, doubled;
};

void run_count(struct run_summary *run, const struct operation *op);
/* Everything has ended and everything is known. */
bool run_complete(const struct run_summary *run);
/* Plain words that never claim more than is known. */
const char *run_message(const struct run_summary *run);
/* The members "summary", "complete" and "safe_user_message" of an open object. */
void run_write(const struct run_summary *run, struct json_out *out);

#endif
