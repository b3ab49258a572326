#include "cli/cli.h"
#include "cli/command.h"

const struct cli_command cli_help_command = {
    .name = "help",
    .operands = "[COMMAND]",
    .words = "COMMAND",
    .summary = "show this, or the help of one command",
    .run = cli_help,
};

int cli_help(int argc, char **argv)
{
    struct cli_args args;
    cli_args_init(&args, &cli_help_command, argc, argv);
    int option = cli_args_next(&args);
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 1))
        return CLI_USAGE;
    if (args.operand_count == 0) {
        cli_overview(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = cli_command_find(args.operands[0]);
    if (!command)
        return cli_usage(&cli_help_command, "there is no command '%s'", args.operands[0]);
    cli_command_help(command, stdout);
    return CLI_OK;
}
