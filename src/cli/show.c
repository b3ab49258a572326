#include "cli/cli.h"
#include "cli/command.h"
#include "cli/view.h"

#include "base/units.h"

#include <inttypes.h>

enum { WAIT = 'w', TOOL = 256, KEY };

static const struct cli_option options[] = {
    {WAIT, "wait", "DURATION", NULL, "wait this long for its end; then the exit code says how it ended"},
    {TOOL, "tool", "TOOL", NULL, "with --key instead of OP: the operation of this tool"},
    {KEY, "key", "KEY", NULL, "with --tool: the operation with this idempotency key"},
    {0},
};

const struct cli_command cli_show_command = {
    .name = "show",
    .operands = "OP",
    .summary = "show one operation",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_show,
};

/* Where the operation is found; false when a message was printed. */
static bool show_path(const struct cli_args *args, const char *tool, const char *key, struct buf *path)
{
    if ((tool != NULL) != (key != NULL)) {
        cli_usage(&cli_show_command, "--tool and --key belong together");
        return false;
    }
    if (!cli_args_operands(args, tool ? 0 : 1, tool ? 0 : 1))
        return false;
    buf_add_text(path, tool ? "/v1/tools/" : "/v1/operations/");
    client_escape(path, tool ? tool : args->operands[0]);
    if (tool) {
        buf_add_text(path, "/operations/");
        client_escape(path, key);
    }
    return true;
}

int cli_show(int argc, char **argv)
{
    struct cli_args args;
    struct buf path;
    struct err err = {0};
    const char *tool = NULL, *key = NULL;
    int64_t wait_ms = 0;
    int option, code = CLI_USAGE;
    buf_init(&path, 0);
    cli_args_init(&args, &cli_show_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (option == TOOL)
            tool = args.value;
        else if (option == KEY)
            key = args.value;
        else if (units_duration_ms(str_of(args.value), &wait_ms, &err)) {
            cli_usage(&cli_show_command, "--wait: %s", err.text);
            goto out;
        }
    }
    if (option == CLI_ARGS_HELP)
        code = CLI_OK;
    if (option != CLI_ARGS_END || !show_path(&args, tool, key, &path))
        goto out;
    if (wait_ms > 0)
        buf_printf(&path, "?wait=%" PRId64, wait_ms);
    struct client_request request = {.method = "GET", .path = path.p, .wait_ms = wait_ms};
    code = view_operation_command(&args, &request, NULL, wait_ms > 0);
out:
    buf_release(&path);
    return code;
}
