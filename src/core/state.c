#include "core/state.h"

static const char *const state_names[STATE_COUNT] = {
#define X(constant, text, terminal) text,
    STATES(X)
#undef X
};

static const bool state_is_terminal[STATE_COUNT] = {
#define X(constant, text, terminal) terminal,
    STATES(X)
#undef X
};

const char *state_name(enum state state)
{
    return (unsigned)state < STATE_COUNT ? state_names[state] : "?";
}

bool state_from_name(struct str text, enum state *out)
{
    for (int i = 0; i < STATE_COUNT; i++) {
        if (str_is(text, state_names[i])) {
            *out = (enum state)i;
            return true;
        }
    }
    return false;
}

bool state_terminal(enum state state)
{
    return (unsigned)state < STATE_COUNT && state_is_terminal[state];
}

bool state_in_flight(enum state state)
{
    return state == STATE_DISPATCHED || state == STATE_ACKNOWLEDGED;
}

#define TO(state) (1u << (state))

/* The table. Terminal states are write-once except success → compensating and the evidence rule below. */
static const unsigned moves[STATE_COUNT] = {
    /* planned and pending_dispatch → acknowledged → compensating or failed_permanent: only parents of steps, which send
     * nothing themselves; step.c asserts it */
    [STATE_PLANNED] = TO(STATE_PENDING_DISPATCH) | TO(STATE_DISPATCHED) | TO(STATE_REJECTED) | TO(STATE_ACKNOWLEDGED),
    [STATE_PENDING_DISPATCH] = TO(STATE_DISPATCHED) | TO(STATE_REJECTED) | TO(STATE_ACKNOWLEDGED),
    [STATE_DISPATCHED] = TO(STATE_ACKNOWLEDGED) | TO(STATE_COMPLETED_SUCCESS) | TO(STATE_COMPLETED_NOOP) |
                         TO(STATE_FAILED_RETRYABLE) | TO(STATE_FAILED_PERMANENT) | TO(STATE_UNKNOWN_OUTCOME),
    [STATE_ACKNOWLEDGED] = TO(STATE_COMPLETED_SUCCESS) | TO(STATE_COMPLETED_NOOP) | TO(STATE_UNKNOWN_OUTCOME) |
                           TO(STATE_FAILED_PERMANENT) | TO(STATE_COMPENSATING),
    /* rejected only while nothing ever left (not_sent attempts): step.c asserts it */
    [STATE_FAILED_RETRYABLE] = TO(STATE_DISPATCHED) | TO(STATE_FAILED_PERMANENT) | TO(STATE_REJECTED),
    [STATE_UNKNOWN_OUTCOME] = TO(STATE_DISPATCHED) | TO(STATE_ACKNOWLEDGED) | TO(STATE_COMPLETED_SUCCESS) |
                              TO(STATE_COMPLETED_NOOP) | TO(STATE_FAILED_RETRYABLE) | TO(STATE_FAILED_PERMANENT),
    [STATE_COMPLETED_SUCCESS] = TO(STATE_COMPENSATING),
    [STATE_COMPLETED_NOOP] = 0,
    [STATE_FAILED_PERMANENT] = 0,
    [STATE_REJECTED] = 0,
    [STATE_COMPENSATING] = TO(STATE_COMPENSATED) | TO(STATE_COMPLETED_SUCCESS),
    [STATE_COMPENSATED] = 0,
};

/* Evidence of an effect corrects a state that said "no effect" (design 3.4). */
static const unsigned evidence_moves = TO(STATE_FAILED_RETRYABLE) | TO(STATE_FAILED_PERMANENT) | TO(STATE_REJECTED);

bool state_may_move(enum state from, enum state to, bool evidence)
{
    if ((unsigned)from >= STATE_COUNT || (unsigned)to >= STATE_COUNT)
        return false;
    if (moves[from] & TO(to))
        return true;
    return evidence && to == STATE_COMPLETED_SUCCESS && (evidence_moves & TO(from));
}

static const char *const reason_names[REASON_COUNT] = {
#define X(constant, text) text,
    REASONS(X)
#undef X
};

const char *reason_name(enum reason reason)
{
    return (unsigned)reason < REASON_COUNT ? reason_names[reason] : "?";
}

bool reason_from_name(struct str text, enum reason *out)
{
    for (int i = 0; i < REASON_COUNT; i++) {
        if (str_is(text, reason_names[i])) {
            *out = (enum reason)i;
            return true;
        }
    }
    return false;
}
