/* What the doors share about approvals. */
#ifndef DOOR_APPROVALS_H
#define DOOR_APPROVALS_H

#include "door/exchange.h"

/* Answers a person's decision: the operation, and which decision stands for them. */
void approvals_decided(struct exchange *exchange, const struct engine_reply *reply, const char *person);

/* The provider request as it would be sent, secrets and redacted parts masked; null without a tool. */
void approvals_write_request(struct exchange *exchange, const struct operation *op, const struct tool *tool,
                             struct json_out *out);

#endif
