#include "base/units.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "daemon/daemon.h"

enum { LISTEN = 'l', LEDGER = 256, QUIET = 'q', WAIT = 257 };

static const struct cli_option options[] = {
    {LISTEN, "listen", "ADDRESS:PORT", NULL, "listen here instead of where the file says; port 0 takes a free one"},
    {LEDGER, "ledger", "WHERE", NULL, "ledger: a file or postgresql://…, instead of where FILE says"},
    {WAIT, "wait-for-ledger", "TIME", NULL, "a PostgreSQL ledger that is away at start is waited for: 30s, 5m"},
    {QUIET, "quiet", NULL, NULL, "no line on standard output when ready"},
    {0},
};

const struct cli_command cli_serve_command = {
    .name = "serve",
    .operands = "FILE",
    .words = "FILE",
    .summary = "run the daemon with a registry file",
    .text = "SIGHUP reads the file again, all or nothing. SIGTERM and SIGINT stop gracefully: what is on the\n"
            "wire is finished, the rest stays in the ledger and goes on with the next start.",
    .options = options,
    .run = cli_serve,
};

/* Somebody who types `onced serve` wants to know how to begin. */
static int explain(void)
{
    fputs("onced serve needs a registry file: what tools there are and how their providers behave.\n\n"
          "  onced init onced.yaml     writes a commented one to start from\n"
          "  onced check onced.yaml    says what is wrong with it\n"
          "  onced serve onced.yaml    runs it\n\n"
          "docs/registry.md explains every line; onced serve --help the options.\n",
          stderr);
    return CLI_USAGE;
}

_Static_assert((int)DAEMON_CONFIG == CLI_USAGE && (int)DAEMON_LEDGER_AWAY == CLI_UNREACHABLE &&
                   (int)DAEMON_DENIED == CLI_DENIED && (int)DAEMON_LEDGER == CLI_LEDGER_BAD &&
                   (int)DAEMON_NO_ADDRESS == CLI_NO_ADDRESS,
               "one meaning per exit code");

int cli_serve(int argc, char **argv)
{
    struct cli_args args;
    struct daemon_options daemon = {0};
    struct err err = {0};
    int option;
    cli_args_init(&args, &cli_serve_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        switch (option) {
        case LISTEN: daemon.listen_override = args.value; break;
        case LEDGER: daemon.ledger_override = args.value; break;
        case QUIET: daemon.quiet = true; break;
        case WAIT:
            if (units_duration_ms(str_of(args.value), &daemon.ledger_wait_ms, &err))
                return cli_usage(&cli_serve_command, "--wait-for-ledger: %s", err.text);
            break;
        }
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD)
        return CLI_USAGE;
    if (args.operand_count == 0)
        return explain();
    if (!cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    daemon.config_path = args.operands[0];
    return daemon_run(&daemon);
}
