#include "engine/gate.h"

#include <assert.h>

static void fill(struct gate *gate, const struct provider *provider, int64_t now_ms)
{
    double burst = provider->retry_budget_burst;
    if (gate->filled_ms == 0) {
        gate->tokens = burst;
    } else if (now_ms > gate->filled_ms) {
        gate->tokens += (double)(now_ms - gate->filled_ms) * provider->retry_budget_per_s / 1000.0;
        if (gate->tokens > burst)
            gate->tokens = burst;
    }
    gate->filled_ms = now_ms;
}

enum gate_answer gate_take(struct gate *gate, const struct provider *provider, bool resend, int64_t now_ms,
                           int64_t *until_ms)
{
    if (gate->open_until_ms) {
        if (now_ms < gate->open_until_ms) {
            *until_ms = gate->open_until_ms;
            return GATE_OPEN;
        }
        if (gate->probing) {
            *until_ms = now_ms + provider->breaker_open_ms;
            return GATE_OPEN;
        }
    }
    if (gate->slots_used >= provider->connections_max)
        return GATE_FULL;
    if (resend && provider->retry_budget_burst > 0) {
        fill(gate, provider, now_ms);
        if (gate->tokens < 1) {
            double per_ms = provider->retry_budget_per_s / 1000.0;
            *until_ms = now_ms + 1 + (per_ms > 0 ? (int64_t)((1 - gate->tokens) / per_ms) : 1000);
            return GATE_BUDGET;
        }
        gate->tokens -= 1;
    }
    gate->probing = gate->open_until_ms != 0;
    gate->slots_used++;
    return GATE_PASS;
}

void gate_return(struct gate *gate)
{
    assert(gate->slots_used > 0);
    gate->slots_used--;
    gate->probing = false;
}

static bool shows_trouble(enum outcome outcome)
{
    return outcome == OUTCOME_NOT_SENT || outcome == OUTCOME_PROVIDER_ERROR || outcome == OUTCOME_TIMEOUT ||
           outcome == OUTCOME_CONNECTION_LOST;
}

void gate_done(struct gate *gate, const struct provider *provider, enum outcome outcome, int64_t now_ms)
{
    assert(gate->slots_used > 0);
    gate->slots_used--;
    bool probe = gate->probing;
    gate->probing = false;
    if (!shows_trouble(outcome)) {
        gate->failures = 0;
        gate->open_until_ms = 0;
        return;
    }
    gate->failures++;
    if (provider->breaker_failures && (probe || gate->failures >= provider->breaker_failures))
        gate->open_until_ms = now_ms + provider->breaker_open_ms;
}

enum reason gate_reason(enum gate_answer answer)
{
    switch (answer) {
    case GATE_PASS: return REASON_NONE;
    case GATE_FULL: return REASON_QUEUED;
    case GATE_OPEN: return REASON_CIRCUIT_OPEN;
    case GATE_BUDGET: return REASON_QUEUED;
    }
    return REASON_NONE;
}
