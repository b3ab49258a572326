/* The figures of `onced chaos` (docs/chaos.md defines each). Plain numbers without pointers, so that a world's figures
 * can lie in memory that processes share, and be added to others in any order. */
#ifndef CLI_CHAOS_KPI_H
#define CLI_CHAOS_KPI_H

#include "sim/sim.h"

/* ---- times ---- */

#define HISTOGRAM_EXACT   1024 /* ms, each of its own */
#define HISTOGRAM_PARTS   64   /* beyond: equal parts of each doubling, so that a figure is at most 1.6 % too high */
#define HISTOGRAM_BUCKETS (HISTOGRAM_EXACT + 33 * HISTOGRAM_PARTS)

struct histogram {
    int64_t count, sum, max; /* ms */
    int64_t buckets[HISTOGRAM_BUCKETS];
};
void histogram_add(struct histogram *histogram, int64_t ms); /* below 0 counts as 0 */
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The smallest time that at least that share of all does not exceed (nearest rank); 0 when there is none. */
int64_t histogram_percentile(const struct histogram *histogram, unsigned percent);
/* How many lie above `above` and not above `upto`; bounds below HISTOGRAM_EXACT are exact. */
int64_t histogram_between(const struct histogram *histogram, int64_t above, int64_t upto);

/* ---- one tool ---- */

/* How operations ended. X(constant, name, text) */
#define CHAOS_ENDS(X)                                                                                                  \
    X(END_SUCCESS, "success", "effect proven")                                                                         \
    X(END_NOOP, "noop", "proven to be already so")                                                                     \
    X(END_FAILED, "failed", "proven no effect")                                                                        \
    X(END_REJECTED, "rejected", "never sent")                                                                          \
    X(END_OPERATOR, "operator", "a person decided")                                                                    \
    X(END_OPEN, "open", "not ended")

enum chaos_end {
#define X(constant, name, text) constant,
    CHAOS_ENDS(X)
#undef X
        END_COUNT
};
const char *chaos_end_name(enum chaos_end end);
const char *chaos_end_text(enum chaos_end end);

/* What ended the doubt about an operation's outcome. X(constant, name, text) */
#define CHAOS_DOUBTS(X)                                                                                                \
    X(DOUBT_RESEND, "resend", "same key sent again")                                                                   \
    X(DOUBT_LOOKUP, "lookup", "provider looked up")                                                                    \
    X(DOUBT_EVIDENCE, "evidence", "late answer")                                                                       \
    X(DOUBT_OPERATOR, "operator", "given to the operator")                                                             \
    X(DOUBT_OPEN, "open", "not ended")

enum chaos_doubt {
#define X(constant, name, text) constant,
    CHAOS_DOUBTS(X)
#undef X
        DOUBT_COUNT
};
const char *chaos_doubt_name(enum chaos_doubt doubt);
const char *chaos_doubt_text(enum chaos_doubt doubt);

struct chaos_kpi {
    int64_t operations, calls;      /* admitted; calls of agents that were answered */
    int64_t effects;                /* at the provider */
    int64_t duplicates;             /* further effects of an intent that nothing excuses */
    int64_t duplicates_excused;     /* … after a contract-breaking fault */
    int64_t duplicates_keyless;     /* … of operations that no key tied to the first one (missed dedupe) */
    int64_t unknown;                /* operations that ever were unknown_outcome */
    int64_t doubts[DOUBT_COUNT];    /* … by what ended that; the sum is `unknown` */
    int64_t ends[END_COUNT];        /* the sum is `operations` */
    int64_t false_dedupe, answers;  /* answers about an operation of another intent; answers about any operation */
    int64_t missed_dedupe, repeats; /* calls of an intent that had an operation */
    int64_t commits, stale;         /* refused as stale; all that moved or would have moved a row */
    int64_t joined, held;           /* calls that waited for another's operation; that an open doubt held */
    int64_t requests, lookups;      /* that arrived at the provider */
    struct histogram reconcile_ms;  /* from doubt to its end without a person */
    struct histogram added_ms;      /* of calls that were answered by the first and only request of their operation */
};
void chaos_kpi_merge(struct chaos_kpi *into, const struct chaos_kpi *from);
/* Operations whose outcome was unknown and became known without a person. */
int64_t chaos_kpi_resolved(const struct chaos_kpi *kpi);

/* ---- one world ---- */

struct chaos_world {
    uint64_t seed;
    bool ran, violated;
    char violation[SIM_VIOLATION_MAX];
    int64_t operations, crashes, incidents, simulated_ms;
    int64_t faults[SIM_FAULT_COUNT];
    struct chaos_kpi tools[]; /* as the plan counts them */
};

/* Runs one world and fills *world (zeroed by the caller), which has room for as many tools as registry has. Tools are
 * counted in the order of the registry. */
void chaos_world_run(const struct sim_options *options, struct chaos_world *world);

#endif
