#include "cli/cli.h"
#include "cli/decide.h"

enum { NOTE = 'n', VERSION = 256 };

static const struct cli_option options[] = {
    {NOTE, "note", "TEXT", NULL, "why; is kept with your name"},
    {VERSION, "version", "N", NULL, "refuse when the operation has moved on since this version"},
    {0},
};

const struct cli_command cli_cancel_command = {
    .name = "cancel",
    .operands = "OP",
    .summary = "stop an operation of which nothing has left yet",
    .text = "What is on the wire cannot be called back: the daemon refuses then.\n"
            "A multi-step operation begins no further step; what was done is undone once the running one has ended.",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_cancel,
};

int cli_cancel(int argc, char **argv)
{
    struct cli_args args;
    struct decision decision = {.verb = "cancel"};
    int option;
    cli_args_init(&args, &cli_cancel_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (option == NOTE)
            decision.note = args.value;
        else if (!decision_version(&cli_cancel_command, args.value, &decision.version))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    decision.operation = args.operands[0];
    return decision_run(&args, &decision);
}
