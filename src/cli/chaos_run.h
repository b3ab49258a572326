/* What `onced chaos` runs: which of the registry's tools, in which worlds, until there were enough operations; and what
 * came of it all. The same options give the same outcome, whatever the number of jobs. */
#ifndef CLI_CHAOS_RUN_H
#define CLI_CHAOS_RUN_H

#include "cli/chaos_kpi.h"
#include "sim/arguments.h"

#define CHAOS_INTENTS 100 /* of one world, where the tools' schemas allow so many different ones */

struct chaos_options {
    const char *path; /* of the registry file, as given */
    uint64_t seed;
    int64_t operations;
    uint64_t faults;   /* mask */
    unsigned rate;     /* percent; 0 = differs from world to world */
    unsigned gateways; /* per world */
    unsigned jobs;
    const char *const *tools; /* names; none: all */
    size_t tool_count;
    const char *command; /* that gives the same report again */
};

struct chaos_skipped { /* a tool that was not exercised */
    const char *name, *why;
};

struct chaos_outcome {
    struct arena arena;
    const struct chaos_options *options;
    const struct registry *registry;
    const struct tool **tools; /* exercised ones, by name */
    struct chaos_kpi *kpis;    /* of each */
    size_t tool_count;
    struct chaos_kpi *total;
    struct chaos_skipped *skipped;
    size_t skipped_count;
    int64_t worlds, crashes, incidents, simulated_ms;
    int64_t faults[SIM_FAULT_COUNT];
    bool violated;                 /* the simulator's checker found a rule broken */
    uint64_t violated_seed;        /* of that world */
    const char *violation, *trace; /* what was broken; that world made small, line by line */
};

/* registry and arguments (already holding the examples) are borrowed and must outlive the outcome. ERR_NOT_FOUND: the
 * options name a tool that there is not; ERR_INVALID: no tool can be exercised, or one that was asked for by name.
 * chaos_outcome_release in any case. */
enum err_code chaos_run(const struct chaos_options *options, const struct registry *registry,
                        struct arguments *arguments, struct chaos_outcome *outcome, struct err *err);
void chaos_outcome_release(struct chaos_outcome *outcome);

/* No effect more than the stated contracts allow, no rule broken. */
bool chaos_holds(const struct chaos_outcome *outcome);

#endif
