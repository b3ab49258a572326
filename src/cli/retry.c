#include "cli/cli.h"
#include "cli/decide.h"

const struct cli_command cli_retry_command = {
    .name = "retry",
    .operands = "OP",
    .summary = "try a failed operation again now",
    .text = "Of a closed operation that failed this opens the next version of its key, with the same arguments.\n"
            "Of a multi-step operation whose rollback is stuck at a step it runs that step's playbook once more.",
    .options = decision_options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_retry,
};

int cli_retry(int argc, char **argv)
{
    return decision_main(argc, argv, &cli_retry_command);
}
