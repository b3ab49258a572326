/* What the doors share about approvals. */
#ifndef DOOR_APPROVALS_H
#define DOOR_APPROVALS_H

#include "door/exchange.h"

/* Answers a person's decision: the operation, and which decision stands for them. */
void approvals_decided(struct exchange *exchange, const struct engine_reply *reply, const char *person);

/* The provider request as it would be sent, secrets and redacted parts masked; null without a tool. */
void approvals_write_request(struct exchange *exchange, const struct operation *op, const struct tool *tool,
                             struct json_out *out);

#define APPROVALS_EARLIER_MAX 10 /* operations under the key before this one */
#define APPROVALS_SHARING_MAX 20 /* others that claim one of its entities, newest first */

/* What came before an operation that people decide on: former versions of its key and what it repeats; and, among the
 * last LEDGER_SCAN_MAX operations, those that claim one of its entities. */
struct approvals_history {
    const struct operation *op;
    const struct operation *earlier[APPROVALS_EARLIER_MAX];
    size_t earlier_count;
    const struct claims *claims;      /* NULL: it claims no entity */
    struct operation *const *sharing; /* the operation itself may be among them */
    size_t sharing_count;
    void (*known)(struct exchange *exchange, const struct approvals_history *history);
    void *user; /* the route's own, while this asks */
};

/* known is called once, at once or later, with exchange->user as it is now. What cannot be read is left out. */
void approvals_look_back(struct exchange *exchange, const struct operation *op,
                         void (*known)(struct exchange *exchange, const struct approvals_history *history));
/* "entities": for each what was done with it lately; a list. */
void approvals_write_entities(const struct approvals_history *history, struct json_out *out);

#endif
