/* Why two calls are one operation, or two: the rule of design 2.2 that decided, and the values that it looked at. */
#ifndef CLI_EVAL_REASON_H
#define CLI_EVAL_REASON_H

#include "cli/eval_world.h"

/* What a call is known by: "business key refund:pay_1:4900:v1", "step s1 of run r1", "its arguments (no key)". In
 * arena, like all that follows. */
const char *eval_identity_text(struct arena *arena, const struct eval_result *result);

/* b was answered with a's operation, or met its key. Numbers are those of the calls. */
const char *eval_reason_one(struct arena *arena, const struct eval_result *a, size_t a_number,
                            const struct eval_result *b, size_t b_number);

/* b opened an operation of its own. */
const char *eval_reason_two(struct arena *arena, const struct eval_result *a, size_t a_number,
                            const struct eval_result *b, size_t b_number);

#endif
