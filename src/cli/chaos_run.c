#include "cli/chaos_run.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define EMPTY_WORLDS_MAX 100 /* in a row: then something keeps all calls from being admitted */
#define SHRINK_RUNS      300

/* Tools that run in worlds of their own registry. Most share one; a tool whose schema allows only few different intents
 * has its own, with as many intents per world. */
struct group {
    struct registry *registry;
    unsigned intents;
    size_t *tools; /* index in the outcome, for each of the registry */
    size_t count;
};

struct plan {
    const struct chaos_options *options;
    struct arguments *arguments;
    struct chaos_outcome *outcome;
    uint64_t *distinct; /* per exercised tool */
    struct group *groups;
    size_t group_count;
};

/* ---- which tools ---- */

static bool chosen(const struct chaos_options *options, const char *name)
{
    for (size_t i = 0; i < options->tool_count; i++)
        if (strcmp(options->tools[i], name) == 0)
            return true;
    return options->tool_count == 0;
}

static void skip(struct chaos_outcome *outcome, const char *name, const char *why)
{
    outcome->skipped[outcome->skipped_count++] =
        (struct chaos_skipped){.name = name, .why = arena_copy_text(&outcome->arena, why)};
}

static enum err_code choose_tool(struct plan *plan, const struct tool *tool, struct err *err)
{
    struct chaos_outcome *outcome = plan->outcome;
    struct err why = {0};
    if (!tool_is_write(tool)) {
        skip(outcome, tool->name, "is a read: it has no effect that could be made twice");
        return ERR_NONE;
    }
    if (arguments_check(plan->arguments, tool, CHAOS_INTENTS, &plan->distinct[outcome->tool_count], &why)) {
        if (plan->options->tool_count > 0)
            return err_set(err, ERR_INVALID, "tool %s cannot be exercised: %s; give examples with --arguments",
                           tool->name, why.text);
        skip(outcome, tool->name, why.text);
        return ERR_NONE;
    }
    outcome->tools[outcome->tool_count++] = tool;
    return ERR_NONE;
}

static enum err_code choose_tools(struct plan *plan, struct err *err)
{
    const struct chaos_options *options = plan->options;
    struct chaos_outcome *outcome = plan->outcome;
    size_t count = registry_tool_count(outcome->registry);
    outcome->tools = arena_zero(&outcome->arena, (count + 1) * sizeof(const struct tool *));
    outcome->skipped = arena_zero(&outcome->arena, (count + 1) * sizeof *outcome->skipped);
    plan->distinct = arena_zero(&outcome->arena, (count + 1) * sizeof *plan->distinct);
    for (size_t i = 0; i < options->tool_count; i++)
        if (!registry_find(outcome->registry, str_of(options->tools[i])))
            return err_set(err, ERR_NOT_FOUND, "%s has no tool %s", options->path, options->tools[i]);
    for (size_t i = 0; i < count; i++) {
        const struct tool *tool = registry_tool_at(outcome->registry, i);
        enum err_code code = chosen(options, tool->name) ? choose_tool(plan, tool, err) : ERR_NONE;
        if (code)
            return code;
    }
    if (outcome->tool_count > 0)
        return ERR_NONE;
    const struct chaos_skipped *first = outcome->skipped_count ? &outcome->skipped[0] : NULL;
    return err_set(err, ERR_INVALID, "%s has no tool that can be exercised%s%s%s%s", options->path, first ? ": " : "",
                   first ? first->name : "", first ? ": " : "", first ? first->why : "");
}

/* ---- which worlds ---- */

static enum err_code add_group(struct plan *plan, size_t *tools, size_t count, unsigned intents, struct err *err)
{
    struct chaos_outcome *outcome = plan->outcome;
    const struct tool **list = arena_zero(&outcome->arena, count * sizeof(const struct tool *));
    for (size_t i = 0; i < count; i++)
        list[i] = outcome->tools[tools[i]];
    struct group *group = &plan->groups[plan->group_count];
    *group = (struct group){.intents = intents, .tools = tools, .count = count};
    enum err_code code = registry_new(list, count, NULL, 0, registry_policy_version(outcome->registry), NULL, NULL,
                                      &group->registry, err);
    plan->group_count += !code;
    return code;
}

static enum err_code make_groups(struct plan *plan, struct err *err)
{
    struct chaos_outcome *outcome = plan->outcome;
    size_t *many = arena_zero(&outcome->arena, outcome->tool_count * sizeof *many), many_count = 0;
    plan->groups = arena_zero(&outcome->arena, (outcome->tool_count + 1) * sizeof *plan->groups);
    enum err_code code = ERR_NONE;
    for (size_t i = 0; i < outcome->tool_count && !code; i++) {
        if (plan->distinct[i] >= CHAOS_INTENTS) {
            many[many_count++] = i;
            continue;
        }
        size_t *one = arena_zero(&outcome->arena, sizeof *one);
        *one = i;
        code = add_group(plan, one, 1, (unsigned)plan->distinct[i], err);
    }
    return code || many_count == 0 ? code : add_group(plan, many, many_count, CHAOS_INTENTS, err);
}

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static struct sim_options world_options(const struct plan *plan, size_t group, uint64_t index)
{
    const struct chaos_options *options = plan->options;
    uint64_t seed = mixed(mixed(options->seed + UINT64_C(0x9e3779b97f4a7c15)) + (uint64_t)group * 1000003 + index);
    return (struct sim_options){
        .seed = seed,
        .gateways = options->gateways,
        .intents = plan->groups[group].intents,
        .faults = options->faults,
        .fault_percent = options->rate,
        .ledger = SIM_LEDGER_MEMORY,
        .registry = plan->groups[group].registry,
        .arguments = arguments_give,
        .arguments_user = plan->arguments,
    };
}

/* ---- running them ---- */

static size_t world_bytes(const struct group *group)
{
    return sizeof(struct chaos_world) + group->count * sizeof(struct chaos_kpi);
}

/* A world in a process of its own, which shares the slot. */
static pid_t run_apart(const struct plan *plan, size_t group, uint64_t index, struct chaos_world *slot)
{
    pid_t pid = fork();
    if (pid == 0) {
        const struct sim_options options = world_options(plan, group, index);
        chaos_world_run(&options, slot);
        _exit(0);
    }
    return pid;
}

static void await(pid_t pid, uint64_t seed, struct chaos_world *slot)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (slot->ran && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    slot->seed = seed;
    slot->violated = true;
    snprintf(slot->violation, sizeof slot->violation, "the world's process died (%s %d)",
             WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void add_world(struct plan *plan, const struct group *group, const struct chaos_world *world)
{
    struct chaos_outcome *outcome = plan->outcome;
    outcome->worlds++;
    outcome->crashes += world->crashes;
    outcome->incidents += world->incidents;
    outcome->simulated_ms += world->simulated_ms;
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        outcome->faults[i] += world->faults[i];
    for (size_t i = 0; i < group->count; i++)
        chaos_kpi_merge(&outcome->kpis[group->tools[i]], &world->tools[i]);
    if (world->violated && !outcome->violated) {
        outcome->violated = true;
        outcome->violated_seed = world->seed;
        outcome->violation = arena_copy_text(&outcome->arena, world->violation);
    }
}

struct progress {
    int64_t target, done;
    uint64_t next;  /* world */
    unsigned empty; /* worlds in a row */
};

static bool enough(const struct plan *plan, const struct progress *progress)
{
    return progress->done >= progress->target || plan->outcome->violated || progress->empty >= EMPTY_WORLDS_MAX;
}

/* As many worlds as there are jobs, at once; those beyond what is needed are thrown away, so that the outcome does not
 * depend on the jobs. */
static void run_round(struct plan *plan, size_t index, char *slots, struct progress *progress)
{
    const struct group *group = &plan->groups[index];
    unsigned jobs = plan->options->jobs;
    size_t bytes = world_bytes(group);
    pid_t *pids = mem_zero(jobs * sizeof *pids);
    memset(slots, 0, jobs * bytes);
    for (unsigned i = 0; i < jobs; i++) {
        struct chaos_world *slot = (struct chaos_world *)(slots + i * bytes);
        const struct sim_options options = world_options(plan, index, progress->next + i);
        pids[i] = jobs > 1 ? run_apart(plan, index, progress->next + i, slot) : -1;
        if (pids[i] < 0)
            chaos_world_run(&options, slot);
    }
    for (unsigned i = 0; i < jobs; i++)
        if (pids[i] > 0)
            await(pids[i], world_options(plan, index, progress->next + i).seed,
                  (struct chaos_world *)(slots + i * bytes));
    for (unsigned i = 0; i < jobs && !enough(plan, progress); i++) {
        const struct chaos_world *world = (const struct chaos_world *)(slots + i * bytes);
        add_world(plan, group, world);
        progress->done += world->operations;
        progress->empty = world->operations ? 0 : progress->empty + 1;
    }
    progress->next += jobs;
    free(pids);
}

static enum err_code run_group(struct plan *plan, size_t index, int64_t target, struct err *err)
{
    size_t bytes = world_bytes(&plan->groups[index]) * plan->options->jobs;
    struct progress progress = {.target = target};
    char *slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        return err_set(err, ERR_IO, "no memory for %zu bytes of figures", bytes);
    while (!enough(plan, &progress))
        run_round(plan, index, slots, &progress);
    munmap(slots, bytes);
    if (progress.empty >= EMPTY_WORLDS_MAX)
        return err_set(err, ERR_INVALID, "no call of %s is ever admitted",
                       registry_tool_at(plan->groups[index].registry, 0)->name);
    return ERR_NONE;
}

static enum err_code run_groups(struct plan *plan, struct err *err)
{
    struct chaos_outcome *outcome = plan->outcome;
    int64_t tools_left = (int64_t)outcome->tool_count, left = plan->options->operations;
    enum err_code code = ERR_NONE;
    for (size_t i = 0; i < plan->group_count && !code && !outcome->violated; i++) {
        int64_t count = (int64_t)plan->groups[i].count, target = (left * count + tools_left - 1) / tools_left;
        code = run_group(plan, i, target, err);
        left -= target;
        tools_left -= count;
    }
    return code;
}

/* The violated world made small. */
static void explain(struct plan *plan)
{
    struct chaos_outcome *outcome = plan->outcome;
    struct buf trace;
    buf_init(&trace, 64 * 1024);
    for (size_t group = 0; group < plan->group_count && trace.n == 0; group++) {
        struct sim_options options = world_options(plan, group, 0);
        struct sim_result result;
        options.seed = outcome->violated_seed;
        sim_run(&options, &result);
        if (result.violated && strcmp(result.violation, outcome->violation) == 0)
            sim_shrink(&options, SHRINK_RUNS, &trace);
        sim_result_release(&result);
    }
    outcome->trace = arena_copy_str(&outcome->arena, buf_str(&trace));
    buf_release(&trace);
}

static void release_groups(struct plan *plan)
{
    for (size_t i = 0; i < plan->group_count; i++)
        registry_unref(plan->groups[i].registry);
}

enum err_code chaos_run(const struct chaos_options *options, const struct registry *registry,
                        struct arguments *arguments, struct chaos_outcome *outcome, struct err *err)
{
    struct plan plan = {.options = options, .arguments = arguments, .outcome = outcome};
    *outcome = (struct chaos_outcome){.options = options, .registry = registry};
    arena_init(&outcome->arena);
    enum err_code code = choose_tools(&plan, err);
    if (!code)
        code = make_groups(&plan, err);
    if (!code) {
        outcome->kpis = arena_zero(&outcome->arena, outcome->tool_count * sizeof *outcome->kpis);
        outcome->total = arena_zero(&outcome->arena, sizeof *outcome->total);
        code = run_groups(&plan, err);
    }
    if (!code && outcome->violated && strncmp(outcome->violation, "the world's process died", 24) != 0)
        explain(&plan);
    for (size_t i = 0; !code && i < outcome->tool_count; i++)
        chaos_kpi_merge(outcome->total, &outcome->kpis[i]);
    release_groups(&plan);
    return code;
}

void chaos_outcome_release(struct chaos_outcome *outcome)
{
    arena_release(&outcome->arena);
}

bool chaos_holds(const struct chaos_outcome *outcome)
{
    return !outcome->violated && outcome->total->duplicates == 0;
}
