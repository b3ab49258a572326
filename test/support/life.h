/* A second, simpler model of an operation's life (design 3, 6, 7): it watches what goes into step() and what comes out,
 * and says where a rule was broken. It shares nothing with core/step.c and core/state.c, so that a mistake there is not
 * made here as well. For random lives in tests and for the fuzzer. */
#ifndef TEST_LIFE_H
#define TEST_LIFE_H

#include "core/approval.h"
#include "core/step.h"

struct life {
    enum state state;                    /* as the events tell it */
    bool on_wire;                        /* the present attempt has begun and not ended */
    bool doubt;                          /* a former attempt may have landed */
    bool confirmed;                      /* the provider said success, effects are being counted */
    bool operator_allows;                /* a person wants it tried beyond the limits */
    int call_attempts;                   /* that may have left */
    int tries;                           /* attempts of every kind */
    int absences;                        /* settled absent answers in a row */
    int64_t first_sent_ms, last_sent_ms; /* of call attempts that may have left, 0 = none */
    int64_t ready_ms;                    /* people agreed, or its entities were free: the tool's time runs from here */
    /* approval (design 8) */
    unsigned needed;                   /* 0: nobody is asked */
    const char *agreed[APPROVERS_MAX]; /* who did; texts of the inputs */
    unsigned agreed_count;
    int64_t expires_ms;
    const char *policy;
    const char *undone_by; /* the latest compensation, NULL = none (10.1) */
    char broken[256];      /* what is wrong; "" while nothing is */
};

/* An operation as it was admitted: planned, pending_dispatch, or dispatched with attempt 1. Whoever has it approved
 * sets life->policy to the tool's. */
void life_begin(struct life *life, const struct operation *op);

/* One step(): before and after, the input, what it returned. False: a rule is broken, life->broken says which. */
bool life_check(struct life *life, const struct tool *tool, const struct step_input *in, const struct operation *before,
                const struct operation *after, const struct step_effects *effects, enum err_code code);

#endif
