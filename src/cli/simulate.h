/* Many simulated runs on all cores, for `onced simulate`: seeds are handed out one after the other to worker processes,
 * so that a run that crashes takes nothing but its worker with it. */
#ifndef CLI_SIMULATE_H
#define CLI_SIMULATE_H

#include "sim/sim.h"

#define SIMULATE_JOBS_MAX 64

struct simulate_plan {
    struct sim_options options; /* of every run but seed and gateways */
    unsigned gateways;          /* 0: each seed chooses */
    uint64_t first_seed;
    uint64_t seeds;          /* runs at most; 0 = as many as operations need */
    int64_t operations;      /* enough when so many were simulated; 0 = as many as seeds give */
    unsigned jobs;           /* 1 … SIMULATE_JOBS_MAX */
    int64_t run_seconds_max; /* a run that takes longer is taken for stuck */
    bool keep;               /* the ledger files of SQLite runs stay */
};

/* Sums over all runs. */
struct simulate_sum {
    uint64_t seeds, digest; /* digest: of all runs, whatever their order */
    int64_t operations, calls, attempts, lookups, effects, duplicates_excused, incidents, crashes, faults, settled,
        waiting_for_people, simulated_ms, faults_by_kind[SIM_FAULT_COUNT];
};

struct simulate_failure {
    bool found;
    uint64_t seed;
    bool died; /* the run's process ended by itself: nothing can be shrunk */
    char text[SIM_VIOLATION_MAX];
};

struct simulate_outcome {
    struct simulate_sum sum;
    struct simulate_failure failure; /* the first one found; others are not looked for */
    int64_t wall_ms, cpu_ms;
};

/* Options of one run of the plan. path has room for SIMULATE_PATH_SIZE: the ledger file of a SQLite run. */
#define SIMULATE_PATH_SIZE 256
struct sim_options simulate_options(const struct simulate_plan *plan, uint64_t seed, char *path);
/* Before and after a run: no ledger file may be left over. */
void simulate_remove_ledger(const struct sim_options *options);

/* ERR_IO when no worker can be started. */
enum err_code simulate_all(const struct simulate_plan *plan, struct simulate_outcome *out, struct err *err);

#endif
