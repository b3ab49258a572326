#include "cli/simulate.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WATCH_MS 100 /* how often the parent looks at its workers */

/* Shared by parent and workers. */
struct worker {
    pid_t pid;
    _Atomic uint64_t seed;
    _Atomic int64_t began_ms; /* of the run; 0 = between runs */
    struct simulate_sum sum;
};

struct board {
    _Atomic uint64_t next; /* number of the next run */
    _Atomic int64_t operations;
    atomic_bool stop;
    atomic_flag failed;
    struct simulate_failure failure; /* by whom failed was set first */
    struct worker workers[SIMULATE_JOBS_MAX];
};

static int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- one run ---- */

struct sim_options simulate_options(const struct simulate_plan *plan, uint64_t seed, char *path)
{
    static const unsigned gateways[] = {1, 1, 2, 2, 2, 3, 3, 4};
    struct sim_options options = plan->options;
    options.seed = seed;
    options.gateways = plan->gateways ? plan->gateways : gateways[seed % (sizeof gateways / sizeof *gateways)];
    if (options.ledger == SIM_LEDGER_SQLITE) {
        const char *folder = getenv("TMPDIR");
        snprintf(path, SIMULATE_PATH_SIZE, "%.180s/onced-simulate-%ld-%llu.db", folder && *folder ? folder : "/tmp",
                 (long)getpid(), (unsigned long long)seed);
        options.ledger_path = path;
    }
    return options;
}

void simulate_remove_ledger(const struct sim_options *options)
{
    static const char *const endings[] = {"", "-wal", "-shm", ".lock"};
    char name[SIMULATE_PATH_SIZE + 8];
    if (options->ledger != SIM_LEDGER_SQLITE)
        return;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(name, sizeof name, "%s%s", options->ledger_path, endings[i]);
        unlink(name);
    }
}

static void add_up(struct simulate_sum *sum, const struct sim_result *result, uint64_t seed)
{
    sum->seeds++;
    sum->digest ^= (result->digest ^ seed) * UINT64_C(0x9e3779b97f4a7c15);
    sum->operations += result->operations;
    sum->calls += result->calls;
    sum->attempts += result->attempts;
    sum->lookups += result->lookups;
    sum->effects += result->effects;
    sum->duplicates_excused += result->duplicates_excused;
    sum->incidents += result->incidents;
    sum->crashes += result->crashes;
    sum->faults += result->faults;
    sum->settled += result->settled;
    sum->waiting_for_people += result->waiting_for_people;
    sum->simulated_ms += result->simulated_ms;
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        sum->faults_by_kind[i] += result->faults_by_kind[i];
}

static void fail(struct board *board, uint64_t seed, bool died, const char *text)
{
    atomic_store(&board->stop, true);
    if (atomic_flag_test_and_set(&board->failed))
        return;
    board->failure.seed = seed;
    board->failure.died = died;
    snprintf(board->failure.text, sizeof board->failure.text, "%s", text);
    board->failure.found = true;
}

static void run_seed(const struct simulate_plan *plan, struct board *board, struct worker *worker, uint64_t seed,
                     struct sim_shared *shared)
{
    char path[SIMULATE_PATH_SIZE];
    struct sim_options options = simulate_options(plan, seed, path);
    options.shared = shared;
    struct sim_result result;
    atomic_store(&worker->seed, seed);
    atomic_store(&worker->began_ms, clock_ms());
    simulate_remove_ledger(&options);
    sim_run(&options, &result);
    if (!plan->keep)
        simulate_remove_ledger(&options);
    atomic_store(&worker->began_ms, 0);
    add_up(&worker->sum, &result, seed);
    atomic_fetch_add(&board->operations, result.operations);
    if (result.violated)
        fail(board, seed, false, result.violation);
    sim_result_release(&result);
}

static bool enough(const struct simulate_plan *plan, struct board *board, uint64_t n)
{
    return atomic_load(&board->stop) || (plan->seeds && n >= plan->seeds) ||
           (plan->operations && atomic_load(&board->operations) >= plan->operations);
}

static void work(const struct simulate_plan *plan, struct board *board, struct worker *worker)
{
    struct sim_shared *shared = sim_shared_new();
    for (uint64_t n; n = atomic_fetch_add(&board->next, 1), !enough(plan, board, n);)
        run_seed(plan, board, worker, plan->first_seed + n, shared);
    sim_shared_free(shared);
}

/* ---- the workers ---- */

static bool start_worker(const struct simulate_plan *plan, struct board *board, struct worker *worker)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) {
        worker->pid = pid; /* the parent's alone */
        return pid > 0;
    }
    work(plan, board, worker);
    fflush(NULL);
    _exit(0);
}

/* True when the worker is gone. */
static bool look_at(const struct simulate_plan *plan, struct board *board, struct worker *worker)
{
    char text[128];
    int status;
    int64_t began = atomic_load(&worker->began_ms);
    if (waitpid(worker->pid, &status, WNOHANG) == worker->pid) {
        if (WIFSIGNALED(status))
            snprintf(text, sizeof text, "the run ended by signal %d (%s)", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
        else
            snprintf(text, sizeof text, "the run ended its process with status %d", WEXITSTATUS(status));
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail(board, atomic_load(&worker->seed), true, text);
        return true;
    }
    if (began && clock_ms() - began > plan->run_seconds_max * 1000) {
        snprintf(text, sizeof text, "the run took longer than %lld s: it is stuck", (long long)plan->run_seconds_max);
        fail(board, atomic_load(&worker->seed), true, text);
        kill(worker->pid, SIGKILL);
    }
    return false;
}

static void sum_up(const struct board *board, unsigned jobs, struct simulate_sum *sum)
{
    for (unsigned i = 0; i < jobs; i++) {
        const struct simulate_sum *part = &board->workers[i].sum;
        sum->digest ^= part->digest;
        sum->seeds += part->seeds;
        const int64_t *from = &part->operations;
        int64_t *to = &sum->operations;
        for (size_t n = 0; n < (sizeof *sum - offsetof(struct simulate_sum, operations)) / sizeof *to; n++)
            to[n] += from[n];
    }
}

static int64_t cpu_ms(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

enum err_code simulate_all(const struct simulate_plan *plan, struct simulate_outcome *out, struct err *err)
{
    *out = (struct simulate_outcome){0};
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return err_set(err, ERR_IO, "no shared memory for the workers: %s", strerror(errno));
    atomic_flag_clear(&board->failed);
    int64_t start = clock_ms(), cpu = cpu_ms();
    unsigned jobs = 0, left;
    while (jobs < plan->jobs && start_worker(plan, board, &board->workers[jobs]))
        jobs++;
    if (jobs < plan->jobs)
        err_set(err, ERR_IO, "a worker process can not be started: %s", strerror(errno));
    if (err->code)
        atomic_store(&board->stop, true);
    for (left = jobs; left > 0;) {
        for (unsigned i = 0; i < jobs; i++) {
            struct worker *worker = &board->workers[i];
            if (worker->pid && look_at(plan, board, worker)) {
                worker->pid = 0;
                left--;
            }
        }
        if (left > 0)
            nanosleep(&(struct timespec){.tv_nsec = WATCH_MS * 1000000L}, NULL);
    }
    sum_up(board, jobs, &out->sum);
    out->failure = board->failure;
    out->wall_ms = clock_ms() - start;
    out->cpu_ms = cpu_ms() - cpu;
    munmap(board, sizeof *board);
    return err->code;
}
