#include "cli/cli.h"
#include "cli/decide.h"

enum { NOTE = 'n', VERSION = 256 };

static const struct cli_option options[] = {
    {NOTE, "note", "TEXT", NULL, "why; is kept with your name"},
    {VERSION, "version", "N", NULL, "refuse when the operation has moved on since this version"},
    {0},
};

const struct cli_command cli_retry_command = {
    .name = "retry",
    .operands = "OP",
    .summary = "try a failed operation again now",
    .text = "Of a closed operation that failed this opens the next version of its key, with the same arguments.\n"
            "Of a multi-step operation whose rollback is stuck at a step it runs that step's playbook once more.",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_retry,
};

int cli_retry(int argc, char **argv)
{
    struct cli_args args;
    struct decision decision = {.verb = "retry"};
    int option;
    cli_args_init(&args, &cli_retry_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (option == NOTE)
            decision.note = args.value;
        else if (!decision_version(&cli_retry_command, args.value, &decision.version))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    decision.operation = args.operands[0];
    return decision_run(&args, &decision);
}
