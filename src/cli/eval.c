/* `onced eval`: would these calls be one operation? Scenario files against a registry, nothing is sent. */
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/eval_print.h"
#include "cli/variables.h"
#include "daemon/config.h"

#include <stdlib.h>

enum { ID_REGISTRY = 256 };

static const struct cli_option options[] = {
    {ID_REGISTRY, "registry", "FILE", NULL, "registry file, instead of the one that the scenario file names"},
    {'a', "all", NULL, NULL, "show groups that hold, too"},
    {0},
};

const struct cli_command cli_eval_command = {
    .name = "eval",
    .operands = "FILE...",
    .words = "FILE",
    .summary = "check which calls a registry takes for one operation",
    .text =
        "Plays the groups of scenario files (docs/eval.md) against a registry: calls that must be one operation, "
        "calls\n"
        "that must not, calls that must be refused. Everything is as in the daemon, but for the provider: nothing is\n"
        "sent. Variables that ${env:NAME} asks for need not be set. Exit status: 0 all groups hold, 1 some do not,\n"
        "2 a file cannot be used.",
    .options = options,
    .shared = CLI_JSON,
    .run = cli_eval,
};

/* One scenario file with all that it needs; outcome points into the rest. */
struct evaluation {
    struct eval_outcome outcome;
    struct config_report file_report, registry_report, check_report;
    struct eval_file *file;
    struct registry *registry;
    struct arena arena; /* verdicts */
};

static void init(struct evaluation *evaluation, const char *path)
{
    *evaluation = (struct evaluation){.outcome = {.path = path}};
    arena_init(&evaluation->arena);
    config_report_init(&evaluation->file_report);
    config_report_init(&evaluation->registry_report);
    config_report_init(&evaluation->check_report);
    evaluation->outcome.reports[0] = &evaluation->file_report;
    evaluation->outcome.reports[1] = &evaluation->registry_report;
    evaluation->outcome.reports[2] = &evaluation->check_report;
}

static void release(struct evaluation *evaluation)
{
    registry_unref(evaluation->registry);
    eval_file_free(evaluation->file);
    config_report_release(&evaluation->file_report);
    config_report_release(&evaluation->registry_report);
    config_report_release(&evaluation->check_report);
    arena_release(&evaluation->arena);
}

static enum err_code load(struct evaluation *evaluation, const char *registry)
{
    enum err_code code = eval_file_load(evaluation->outcome.path, &evaluation->file, &evaluation->file_report);
    if (code)
        return code;
    evaluation->outcome.registry_path = registry ? registry : evaluation->file->registry;
    if (!evaluation->outcome.registry_path) {
        evaluation->file_report.path = arena_copy_text(&evaluation->file_report.arena, evaluation->outcome.path);
        config_report_one(&evaluation->file_report, "names no registry, and --registry is not given");
        return ERR_INVALID;
    }
    variables_assume(evaluation->outcome.registry_path);
    code = config_load(evaluation->outcome.registry_path, NULL, &evaluation->registry, &evaluation->registry_report);
    if (!code)
        code = eval_file_check(evaluation->file, evaluation->registry, &evaluation->check_report);
    return code;
}

static enum err_code judge(struct evaluation *evaluation)
{
    struct eval_file *file = evaluation->file;
    struct eval_world *world = NULL;
    struct err err = {0};
    enum err_code code = eval_world_new(evaluation->registry, &world, &err);
    if (code) {
        fprintf(stderr, "onced eval: %s\n", err.text);
        return code;
    }
    struct eval_verdict *verdicts = arena_zero(&evaluation->arena, file->group_count * sizeof *verdicts);
    for (size_t i = 0; i < file->group_count; i++) {
        eval_judge(world, &file->groups[i], &evaluation->arena, &verdicts[i]);
        eval_count(&evaluation->outcome.counts, &verdicts[i]);
    }
    eval_world_free(world);
    evaluation->outcome.verdicts = verdicts;
    evaluation->outcome.registry = evaluation->registry;
    return ERR_NONE;
}

static int evaluate(struct evaluation *evaluation, const char *registry)
{
    enum err_code code = load(evaluation, registry);
    config_report_print(&evaluation->file_report, stderr);
    if (code) /* warnings about a registry that can be used are `onced check`'s to tell */
        config_report_print(&evaluation->registry_report, stderr);
    config_report_print(&evaluation->check_report, stderr);
    if (!code)
        code = judge(evaluation);
    if (code)
        return CLI_USAGE;
    const struct eval_counts *counts = &evaluation->outcome.counts;
    return counts->hold == counts->groups ? CLI_OK : CLI_FAILED;
}

static void print(struct evaluation *evaluations, size_t count, int status, bool json, bool all)
{
    struct eval_outcome *outcomes = mem_alloc(count * sizeof *outcomes);
    struct eval_counts sum = {0};
    struct out out;
    out_init(&out, stdout);
    for (size_t i = 0; i < count; i++) {
        outcomes[i] = evaluations[i].outcome;
        eval_counts_add(&sum, &outcomes[i].counts);
        if (!json)
            eval_print_text(&out, &outcomes[i], all);
    }
    if (json)
        eval_print_json(stdout, outcomes, count, status == CLI_OK, all);
    else if (count > 1)
        eval_print_sum(&out, &sum, count);
    free(outcomes);
}

static int evaluate_all(char **paths, size_t count, const char *registry, bool json, bool all)
{
    struct evaluation *evaluations = mem_zero(count * sizeof *evaluations);
    int status = CLI_OK;
    for (size_t i = 0; i < count; i++) {
        init(&evaluations[i], paths[i]);
        int one = evaluate(&evaluations[i], registry);
        if (one > status) /* a file that cannot be used weighs more than a group that does not hold */
            status = one;
    }
    print(evaluations, count, status, json, all);
    for (size_t i = 0; i < count; i++)
        release(&evaluations[i]);
    free(evaluations);
    return status;
}

#define FILES_MAX 1000

int cli_eval(int argc, char **argv)
{
    struct cli_args args;
    const char *registry = NULL;
    bool all = false;
    cli_args_init(&args, &cli_eval_command, argc, argv);
    for (int option; (option = cli_args_next(&args)) != CLI_ARGS_END;) {
        switch (option) {
        case CLI_ARGS_HELP: return CLI_OK;
        case CLI_ARGS_BAD: return CLI_USAGE;
        case ID_REGISTRY: registry = args.value; break;
        case 'a': all = true; break;
        }
    }
    if (!cli_args_operands(&args, 1, FILES_MAX))
        return CLI_USAGE;
    log_set_level(LOG_OFF); /* the engine's life of each call is no news here */
    return evaluate_all(args.operands, (size_t)args.operand_count, registry, args.json, all);
}
