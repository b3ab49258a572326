/* The ledger's disk fails at the n-th call, or the power does: engine and SQLite ledger in a process that lives with it
 * (life.h), then one that continues without faults. Whatever happened, at the end: the file is sound, every intent has
 * exactly the effects that its callers were told, nothing that was told has changed, no request arrived without a row.
 *
 *     sweep_ledger                      all sweeps; n is spread over the calls that an undisturbed life makes
 *     ONCED_SWEEP=500 sweep_ledger      so many n of each sweep
 *     ONCED_SWEEP=full sweep_ledger     every n, until a life is not touched any more, and four times the seeds
 *     sweep_ledger NAME N SEED          one case, for looking at it */
#include "support/test.h"
#include "sweep/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define FAILURES_MAX 5 /* told of one sweep */

static const struct sweep {
    const char *name;
    bool commands; /* of the ledger's interface, instead of the disk's calls */
    enum disk_call call;
    enum disk_fault fault;
    uint64_t times;
    uint64_t power_after;
    unsigned seeds, few;
} sweeps[] = {
    {"write_io", false, DISK_WRITE, DISK_IO_ERROR, 1, 0, 1, 12},
    {"write_full", false, DISK_WRITE, DISK_FULL, 3, 0, 1, 12},
    {"write_short", false, DISK_WRITE, DISK_SHORT, 1, 0, 1, 12},
    {"write_for_ever", false, DISK_WRITE, DISK_FULL, 0, 0, 1, 8},
    {"sync", false, DISK_SYNC, DISK_IO_ERROR, 1, 0, 1, 12},
    {"sync_then_power", false, DISK_SYNC, DISK_IO_ERROR, 1, 4, 2, 8},
    {"write_then_power", false, DISK_WRITE, DISK_SHORT, 1, 4, 2, 8},
    {"truncate", false, DISK_TRUNCATE, DISK_IO_ERROR, 1, 0, 1, 12},
    {"read", false, DISK_READ, DISK_IO_ERROR, 1, 0, 1, 12},
    {"open", false, DISK_OPEN, DISK_IO_ERROR, 1, 0, 1, 12},
    {"delete", false, DISK_DELETE, DISK_IO_ERROR, 1, 0, 1, 12},
    {"shm_map", false, DISK_SHM_MAP, DISK_IO_ERROR, 1, 0, 1, 12},
    {"commit", true, DISK_WRITE, DISK_FINE, 1, 0, 1, 12},
    {"commits_in_a_row", true, DISK_WRITE, DISK_FINE, 8, 0, 1, 12},
    {"power", false, DISK_WRITE, DISK_POWER, 1, 0, 4, 24},
};

static struct sweep_case one;

static struct life_plan plan_of(const struct sweep *sweep, uint64_t n, uint64_t seed)
{
    if (sweep->commands)
        return (struct life_plan){.command_nth = n, .command_times = sweep->times};
    return (struct life_plan){.disk = {.call = sweep->call,
                                       .nth = n,
                                       .times = sweep->times,
                                       .fault = sweep->fault,
                                       .power_after = sweep->power_after,
                                       .seed = seed}};
}

static int disturbed(struct sweep_case *sweep, const void *plan)
{
    return life_run(sweep->memory, plan, sweep->ledger);
}

static uint64_t calls_made(const struct sweep *sweep)
{
    const struct life_memory *memory = one.memory;
    if (sweep->commands)
        return memory->commands;
    return sweep->fault == DISK_POWER ? memory->disk_changes : memory->disk_calls[sweep->call];
}

/* NULL, or what is wrong. *calls: how many calls of the kind the disturbed life made; *end: how it ended. */
static const char *run_case(const struct sweep *sweep, uint64_t n, uint64_t seed, uint64_t *calls, int *end)
{
    struct life_plan plan = plan_of(sweep, n, seed);
    bool lasting = !sweep->commands && sweep->times == 0, power = sweep->fault == DISK_POWER || sweep->power_after;
    unsigned allowed = 1u << LIFE_DONE | 1u << LIFE_REFUSED | (lasting ? 1u << LIFE_TIRED : 0);
    case_reset(&one);
    int status = case_child(&one, disturbed, &plan);
    *calls = calls_made(sweep);
    *end = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const char *wrong = power && *end == DISK_POWER_EXIT ? NULL : case_ended(&one, status, allowed);
    return wrong ? wrong : case_judge(&one);
}

struct tally {
    unsigned cases, failed, done, refused, power;
};

static void count(struct tally *tally, const struct sweep *sweep, uint64_t n, uint64_t seed, const char *wrong, int end)
{
    tally->cases++;
    tally->done += end == LIFE_DONE || end == LIFE_TIRED;
    tally->refused += end == LIFE_REFUSED;
    tally->power += end == DISK_POWER_EXIT;
    if (wrong && ++tally->failed <= FAILURES_MAX)
        print_message("# sweep_ledger %s %llu %llu: %s\n", sweep->name, (unsigned long long)n, (unsigned long long)seed,
                      wrong);
}

static void run_sweep(void **state)
{
    const struct sweep *sweep = *state;
    struct tally tally = {0};
    uint64_t total = 0, calls = 0, n;
    int end;
    const char *wrong = run_case(sweep, UINT64_MAX / 2, 0, &total, &end);
    if (wrong)
        fail_msg("undisturbed: %s", wrong);
    unsigned seeds = sweep->seeds > 1 && case_full() ? 4 * sweep->seeds : sweep->seeds;
    assert_true(total > 0); /* a call that is never made would prove nothing */
    for (unsigned i = 0; (n = case_point(total, sweep->few, i)) > 0; i++) {
        for (unsigned k = 0; k < seeds; k++) {
            uint64_t seed = seeds > 1 ? (uint64_t)i * seeds + k : 0; /* each point another pattern of loss */
            wrong = run_case(sweep, n, seed, &calls, &end);
            count(&tally, sweep, n, seed, wrong, end);
        }
    }
    do { /* until a life is not touched */
        wrong = run_case(sweep, ++total, 0, &calls, &end);
        count(&tally, sweep, total, 0, wrong, end);
    } while (calls >= total && tally.failed == 0);
    print_message("# %s: %u cases over %llu calls, %u lived through it, %u refused to start, %u lost power, %u wrong\n",
                  sweep->name, tally.cases, (unsigned long long)total - 1, tally.done, tally.refused, tally.power,
                  tally.failed);
    assert_int_equal(tally.failed, 0);
}

static int run_one(const char *name, uint64_t n, uint64_t seed)
{
    for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++) {
        if (strcmp(sweeps[i].name, name) != 0)
            continue;
        uint64_t calls;
        int end;
        const char *wrong = run_case(&sweeps[i], n, seed, &calls, &end);
        printf("the first life made %llu calls and ended with %d; %s\n", (unsigned long long)calls, end,
               wrong ? wrong : "all promises kept");
        return wrong != NULL;
    }
    fprintf(stderr, "there is no sweep %s\n", name);
    return 2;
}

int main(int count, char **words)
{
    struct CMUnitTest tests[sizeof sweeps / sizeof *sweeps];
    case_init(&one);
    int failed;
    if (count == 4) {
        failed = run_one(words[1], strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
    } else {
        for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++)
            tests[i] = (struct CMUnitTest){
                .name = sweeps[i].name, .test_func = run_sweep, .initial_state = (void *)&sweeps[i]};
        failed = cmocka_run_group_tests_name("sweep_ledger", tests, NULL, NULL);
    }
    case_release(&one);
    return failed;
}
