/* onced simulate: is the program right? Runs the deterministic simulator over many seeds. */
#include "cli/simulate.h"

#include "base/log.h"
#include "cli/cli.h"
#include "cli/command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ID_SEED = 256,
    ID_SEEDS,
    ID_OPERATIONS,
    ID_INTENTS,
    ID_GATEWAYS,
    ID_FAULTS,
    ID_PERCENT,
    ID_LEDGER,
    ID_KEEP,
    ID_JOBS,
    ID_TRACE,
    ID_SHRINK_RUNS,
    ID_NO_SHRINK
};

static const struct cli_option options[] = {
    {ID_SEED, "seed", "N", NULL, "first seed (default 1)"},
    {ID_SEEDS, "seeds", "N", NULL, "number of runs, each with the next seed"},
    {ID_OPERATIONS, "operations", "N", NULL, "run until so many operations were admitted (default 100000)"},
    {ID_INTENTS, "intents", "N", NULL, "intended effects of one run (default 200)"},
    {ID_GATEWAYS, "gateways", "N", NULL, "gateways on one ledger, 1 to 8 (default: each seed chooses)"},
    {ID_FAULTS, "faults", "LIST", NULL, "all (default), contract, none, or names parted by commas; see below"},
    {ID_PERCENT, "fault-percent", "N", NULL, "how often faults happen, 1 to 100 (default: each seed chooses)"},
    {ID_LEDGER, "ledger", "KIND", "memory sqlite", "memory (default) or sqlite, in a file below TMPDIR"},
    {ID_KEEP, "keep", NULL, NULL, "with --ledger sqlite: leave the runs' ledger files there"},
    {ID_JOBS, "jobs", "N", NULL, "worker processes (default: one per CPU)"},
    {ID_TRACE, "trace", NULL, NULL, "print every event of the first seed's run, and run no other"},
    {ID_SHRINK_RUNS, "shrink-runs", "N", NULL, "runs to make a failing one small (default 2000)"},
    {ID_NO_SHRINK, "no-shrink", NULL, NULL, "print only the failing seed"},
    {0},
};

#define X(constant, name, breaks) "\n  " name
static const char fault_names[] = SIM_FAULTS(X);
const struct cli_command cli_simulate_command = {
    .name = "simulate",
    .operands = "",
    .summary = "prove the program: many simulated runs with faults, judged by a model of what must hold",
    .text =
        "Several gateways with the real core and engine, one ledger, simulated clocks, network, providers, clients "
        "and\n"
        "people, in one thread. A run is a function of its seed. Nothing is sent, no daemon is needed. A violation "
        "ends\n"
        "with exit status 1, the seed, the command that repeats it, and the trace of a run made as small as possible.\n"
        "--faults contract leaves out what breaks a provider's stated contract. Faults:" SIM_FAULTS(X),
    .options = options,
    .shared = CLI_JSON,
    .run = cli_simulate,
};
#undef X

struct ask {
    struct simulate_plan plan;
    const char *faults; /* as given */
    bool trace, shrink, json;
    unsigned shrink_runs;
};

/* ---- options ---- */

static bool number(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || value < min || value > max) {
        cli_usage(&cli_simulate_command, "--%s: %s is not a number from %" PRIu64 " to %" PRIu64, name, text, min, max);
        return false;
    }
    *out = value;
    return true;
}

static bool read_faults(const char *list, uint64_t *mask)
{
    *mask = 0;
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        struct str name = {p, n};
        enum sim_fault fault;
        if (str_is(name, "all")) {
            *mask |= SIM_FAULTS_ALL;
        } else if (str_is(name, "contract")) {
            *mask |= sim_faults_within_contract();
        } else if (sim_fault_from_name(name, &fault)) {
            *mask |= SIM_FAULT_BIT(fault);
        } else if (!str_is(name, "none")) {
            cli_usage(&cli_simulate_command, "--faults: there is no fault \"%.*s\" among all, contract, none and:%s",
                      (int)n, p, fault_names);
            return false;
        }
        p += n + (p[n] == ',');
    }
    return true;
}

static bool read_ledger(const char *text, enum sim_ledger *ledger)
{
    *ledger = strcmp(text, "sqlite") == 0 ? SIM_LEDGER_SQLITE : SIM_LEDGER_MEMORY;
    if (*ledger == SIM_LEDGER_SQLITE || strcmp(text, "memory") == 0)
        return true;
    cli_usage(&cli_simulate_command, "--ledger: %s is neither memory nor sqlite", text);
    return false;
}

static bool read_option(struct ask *ask, int option, const char *value)
{
    struct simulate_plan *plan = &ask->plan;
    uint64_t n = 0;
    bool good = true;
    switch (option) {
    case ID_SEED: return number("seed", value, 0, UINT64_MAX, &plan->first_seed);
    case ID_SEEDS: return number("seeds", value, 1, UINT64_MAX, &plan->seeds);
    case ID_OPERATIONS:
        good = number("operations", value, 1, INT64_MAX, &n);
        plan->operations = (int64_t)n;
        break;
    case ID_INTENTS:
        good = number("intents", value, 1, 1000000, &n);
        plan->options.intents = (unsigned)n;
        break;
    case ID_GATEWAYS:
        good = number("gateways", value, 1, 8, &n);
        plan->gateways = (unsigned)n;
        break;
    case ID_FAULTS: ask->faults = value; return read_faults(value, &plan->options.faults);
    case ID_PERCENT:
        good = number("fault-percent", value, 1, 100, &n);
        plan->options.fault_percent = (unsigned)n;
        break;
    case ID_LEDGER: return read_ledger(value, &plan->options.ledger);
    case ID_JOBS:
        good = number("jobs", value, 1, SIMULATE_JOBS_MAX, &n);
        plan->jobs = (unsigned)n;
        break;
    case ID_KEEP: plan->keep = true; break;
    case ID_TRACE: ask->trace = true; break;
    case ID_SHRINK_RUNS:
        good = number("shrink-runs", value, 1, 1000000, &n);
        ask->shrink_runs = (unsigned)n;
        break;
    case ID_NO_SHRINK: ask->shrink = false; break;
    }
    return good;
}

static unsigned cpu_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > SIMULATE_JOBS_MAX ? SIMULATE_JOBS_MAX : (unsigned)count;
}

/* ---- one run in the open ---- */

static void print_line(void *user, int64_t now_ms, const char *who, const char *what)
{
    int64_t *start_ms = user;
    if (*start_ms == 0)
        *start_ms = now_ms;
    printf("%12" PRId64 " ms  %-10s %s\n", now_ms - *start_ms, who, what);
}

static int trace(const struct ask *ask)
{
    char path[SIMULATE_PATH_SIZE];
    int64_t start_ms = 0;
    struct sim_watch watch = {.user = &start_ms, .line = print_line};
    struct sim_options one = simulate_options(&ask->plan, ask->plan.first_seed, path);
    struct sim_result result;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a run that dies has told all it did */
    one.watch = &watch;
    simulate_remove_ledger(&one);
    sim_run(&one, &result);
    simulate_remove_ledger(&one);
    printf("%" PRId64 " operations, %" PRId64 " effects, %" PRId64 " faults, digest %016" PRIx64 "\n",
           result.operations, result.effects, result.faults, result.digest);
    if (result.violated)
        printf("VIOLATION %s\n", result.violation);
    int code = result.violated ? CLI_FAILED : CLI_OK;
    sim_result_release(&result);
    return code;
}

/* ---- the report ---- */

static int64_t per_core_second(const struct simulate_outcome *outcome)
{
    return outcome->cpu_ms > 0 ? outcome->sum.operations * 1000 / outcome->cpu_ms : 0;
}

static void write_command(const struct ask *ask, uint64_t seed, struct buf *out)
{
    const struct simulate_plan *plan = &ask->plan;
    buf_printf(out, "onced simulate --seed %" PRIu64 " --seeds 1 --intents %u --faults %s", seed, plan->options.intents,
               ask->faults);
    if (plan->gateways)
        buf_printf(out, " --gateways %u", plan->gateways);
    if (plan->options.fault_percent)
        buf_printf(out, " --fault-percent %u", plan->options.fault_percent);
    if (plan->options.ledger == SIM_LEDGER_SQLITE)
        buf_add_text(out, " --ledger sqlite");
}

static void print_text(const struct ask *ask, const struct simulate_outcome *outcome)
{
    const struct simulate_sum *sum = &outcome->sum;
    uint64_t last = ask->plan.first_seed + (sum->seeds ? sum->seeds - 1 : 0);
    printf("seeds             %" PRIu64 " (%" PRIu64 " to %" PRIu64 "), digest %016" PRIx64 "\n", sum->seeds,
           ask->plan.first_seed, last, sum->digest);
    printf("operations        %" PRId64 " from %" PRId64 " calls, %" PRId64 " ended\n", sum->operations, sum->calls,
           sum->settled);
    printf("requests          %" PRId64 " calls, %" PRId64 " look-ups\n", sum->attempts, sum->lookups);
    printf("effects           %" PRId64 ", %" PRId64 " of them second ones by a broken contract\n", sum->effects,
           sum->duplicates_excused);
    printf("incidents         %" PRId64 "\n", sum->incidents);
    printf("left to people    %" PRId64 "\n", sum->waiting_for_people);
    printf("crashes           %" PRId64 "\n", sum->crashes);
    printf("faults            %" PRId64 "\n", sum->faults);
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        if (sum->faults_by_kind[i] > 0)
            printf("  %-15s %" PRId64 "\n", sim_fault_name((enum sim_fault)i), sum->faults_by_kind[i]);
    printf("simulated time    %" PRId64 " days\n", sum->simulated_ms / 86400000);
    printf("duration          %" PRId64 ".%01" PRId64 " s, %" PRId64 " operations/s per core\n",
           outcome->wall_ms / 1000, outcome->wall_ms % 1000 / 100, per_core_second(outcome));
    printf("violations        %d\n", outcome->failure.found);
}

static void print_json(const struct ask *ask, const struct simulate_outcome *outcome)
{
    const struct simulate_sum *sum = &outcome->sum;
    const struct {
        const char *name;
        int64_t value;
    } figures[] = {
        {"seeds", (int64_t)sum->seeds},
        {"operations", sum->operations},
        {"calls", sum->calls},
        {"attempts", sum->attempts},
        {"lookups", sum->lookups},
        {"effects", sum->effects},
        {"duplicates_excused", sum->duplicates_excused},
        {"incidents", sum->incidents},
        {"settled", sum->settled},
        {"waiting_for_people", sum->waiting_for_people},
        {"crashes", sum->crashes},
        {"faults", sum->faults},
        {"simulated_ms", sum->simulated_ms},
        {"wall_ms", outcome->wall_ms},
        {"cpu_ms", outcome->cpu_ms},
        {"operations_per_core_second", per_core_second(outcome)},
        {"violations", outcome->failure.found},
    };
    struct buf text;
    struct json_out out;
    char digest[17];
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_int(&out, "first_seed", (int64_t)ask->plan.first_seed);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_out_member_int(&out, figures[i].name, figures[i].value);
    snprintf(digest, sizeof digest, "%016" PRIx64, sum->digest);
    json_out_member_text(&out, "digest", digest);
    json_out_name(&out, "faults_by_kind");
    json_out_object(&out);
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        json_out_member_int(&out, sim_fault_name((enum sim_fault)i), sum->faults_by_kind[i]);
    json_out_end_object(&out);
    if (outcome->failure.found) {
        struct buf command;
        buf_init(&command, 0);
        write_command(ask, outcome->failure.seed, &command);
        json_out_name(&out, "violation");
        json_out_object(&out);
        json_out_member_int(&out, "seed", (int64_t)outcome->failure.seed);
        json_out_member_text(&out, "text", outcome->failure.text);
        json_out_member_text(&out, "command", command.p);
        json_out_end_object(&out);
        buf_release(&command);
    }
    json_out_end_object(&out);
    printf("%s\n", text.p);
    buf_release(&text);
}

static void print_failure(const struct ask *ask, const struct simulate_failure *failure)
{
    struct buf command, small;
    buf_init(&command, 0);
    buf_init(&small, 0);
    write_command(ask, failure->seed, &command);
    printf("\nVIOLATION in seed %" PRIu64 ": %s\nrepeat with: %s%s\n", failure->seed, failure->text, command.p,
           failure->died ? " --trace" : "");
    fflush(stdout);
    if (ask->shrink && !failure->died && ask->plan.options.ledger == SIM_LEDGER_MEMORY) {
        char path[SIMULATE_PATH_SIZE];
        struct sim_options one = simulate_options(&ask->plan, failure->seed, path);
        sim_shrink(&one, ask->shrink_runs, &small);
        printf("\nthe smallest run found that breaks the same rule:\n%s", small.p);
    }
    buf_release(&command);
    buf_release(&small);
}

int cli_simulate(int argc, char **argv)
{
    struct cli_args args;
    struct simulate_outcome outcome;
    struct err err = {0};
    struct ask ask = {
        .faults = "all",
        .shrink = true,
        .shrink_runs = 2000,
        .plan = {.options = {.intents = 200, .faults = SIM_FAULTS_ALL},
                 .first_seed = 1,
                 .jobs = cpu_count(),
                 .run_seconds_max = 300},
    };
    cli_args_init(&args, &cli_simulate_command, argc, argv);
    for (int option; (option = cli_args_next(&args)) != CLI_ARGS_END;) {
        if (option == CLI_ARGS_HELP)
            return CLI_OK;
        if (option == CLI_ARGS_BAD || !read_option(&ask, option, args.value))
            return CLI_USAGE;
    }
    if (!cli_args_operands(&args, 0, 0))
        return CLI_USAGE;
    if (!ask.plan.seeds && !ask.plan.operations)
        ask.plan.operations = 100000;
    ask.json = args.json;
    log_set_level(LOG_OFF); /* what the gateways do is in the trace */
    if (ask.trace)
        return trace(&ask);
    if (simulate_all(&ask.plan, &outcome, &err)) {
        fprintf(stderr, "onced simulate: %s\n", err.text);
        return CLI_FAILED;
    }
    if (args.json)
        print_json(&ask, &outcome);
    else
        print_text(&ask, &outcome);
    if (outcome.failure.found && !args.json)
        print_failure(&ask, &outcome.failure);
    return outcome.failure.found ? CLI_FAILED : CLI_OK;
}
