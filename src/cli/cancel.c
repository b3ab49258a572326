#include "cli/cli.h"
#include "cli/decide.h"

const struct cli_command cli_cancel_command = {
    .name = "cancel",
    .operands = "OP",
    .summary = "stop an operation of which nothing has left yet",
    .text = "What is on the wire cannot be called back: the daemon refuses then.\n"
            "A multi-step operation begins no further step; what was done is undone once the running one has ended.",
    .options = decision_options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_cancel,
};

int cli_cancel(int argc, char **argv)
{
    return decision_main(argc, argv, &cli_cancel_command);
}
