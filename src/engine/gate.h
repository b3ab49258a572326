/* What stands between an operation and a provider (design 6): connection slots, circuit breaker, retry budget. Pure
 * state with the time handed in; one per provider name, kept over registry reloads. */
#ifndef ENGINE_GATE_H
#define ENGINE_GATE_H

#include "core/operation.h"
#include "core/tool.h"

struct gate {
    unsigned slots_used;
    /* circuit breaker */
    unsigned failures;     /* in a row */
    int64_t open_until_ms; /* 0 = closed */
    bool probing;          /* half open: one attempt is out to see */
    /* retry budget: a token bucket */
    double tokens;
    int64_t filled_ms;
};

enum gate_answer { GATE_PASS, GATE_FULL, GATE_OPEN, GATE_BUDGET };

/* Takes a slot if allowed. resend: the request may repeat an effect's request and spends a budget token. On GATE_OPEN
 * and GATE_BUDGET *until_ms is when to ask again; GATE_FULL frees by itself. */
enum gate_answer gate_take(struct gate *gate, const struct provider *provider, bool resend, int64_t now_ms,
                           int64_t *until_ms);

/* Gives a slot back that was never used for a request. */
void gate_return(struct gate *gate);

/* Gives a slot back after an attempt; not reached and provider errors count for the breaker, anything that shows a
 * living provider closes it. */
void gate_done(struct gate *gate, const struct provider *provider, enum outcome outcome, int64_t now_ms);

enum reason gate_reason(enum gate_answer answer);

#endif
