#include "cli/cli.h"
#include "cli/command.h"
#include "daemon/config.h"
#include "daemon/config_options.h"

enum { ID_SCHEMA = 256, ID_REFERENCE };

static const struct cli_option options[] = {
    {ID_SCHEMA, "schema", NULL, NULL, "print the JSON Schema of registry files, for editors"},
    {ID_REFERENCE, "reference", NULL, NULL, "print the reference page of all members, in Markdown"},
    {0},
};

const struct cli_command cli_check_command = {
    .name = "check",
    .operands = "FILE",
    .words = "FILE",
    .summary = "validate a registry file without starting",
    .text =
        "Tells every problem as file:line:column: path: what is wrong, what was expected. Warnings are about what is\n"
        "allowed but dangerous or pointless. Exit status: 0 fine, 1 errors found, 2 the file cannot be read.\n"
        "References such as ${env:NAME} are looked up as `onced serve` would do it; nothing is sent.",
    .options = options,
    .shared = CLI_JSON,
    .run = cli_check,
};

static int print(void (*write)(struct buf *out))
{
    struct buf text;
    buf_init(&text, 0);
    write(&text);
    bool written = fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0;
    buf_release(&text);
    return written ? CLI_OK : CLI_FAILED;
}

int cli_check(int argc, char **argv)
{
    struct cli_args args;
    void (*document)(struct buf * out) = NULL;
    cli_args_init(&args, &cli_check_command, argc, argv);
    for (int option; (option = cli_args_next(&args)) != CLI_ARGS_END;) {
        switch (option) {
        case CLI_ARGS_HELP: return CLI_OK;
        case CLI_ARGS_BAD: return CLI_USAGE;
        case ID_SCHEMA: document = options_write_schema; break;
        case ID_REFERENCE: document = options_write_reference; break;
        }
    }
    if (document)
        return cli_args_operands(&args, 0, 0) ? print(document) : CLI_USAGE;
    if (!cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    return config_check(args.operands[0], args.json, stdout);
}
