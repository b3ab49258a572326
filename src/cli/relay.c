#include "cli/cli.h"
#include "cli/command.h"
#include "cli/view.h"

#include "daemon/config.h"

#include <unistd.h>

enum { ONCE = 256, PRINT, QUIET = 'q' };

static const struct cli_option options[] = {
    {ONCE, "once", NULL, NULL, "end when nothing is left that can be done now"},
    {PRINT, "print", NULL, NULL, "install: print the statements instead of running them"},
    {QUIET, "quiet", NULL, NULL, "no line on standard output when ready"},
    {0},
};

const struct cli_command cli_relay_command = {
    .name = "relay",
    .operands = "[install] FILE",
    .words = "install FILE",
    .summary = "turn rows of an application's outbox table into operations",
    .text = "FILE is a registry file with a section relay: the database, the table, the gateways. Several relays may\n"
            "work on one table; each may be killed at any time. install makes the table, its indexes and triggers; a\n"
            "second time it changes nothing. Exit status: 0 stopped as asked, or with --once nothing is left; 1 the\n"
            "database's rights are missing or its table is unfit; 2 the command line or FILE is wrong; 4 the database\n"
            "cannot be reached at the start, with --once a gateway neither; 5 the table or a column is missing;\n"
            "6 the gateway refuses the token.",
    .options = options,
    .run = cli_relay,
};

struct relay_wish {
    const char *file;
    bool install, print, once, quiet;
};

static int exit_of(enum relay_end end)
{
    switch (end) {
    case RELAY_STOPPED: return CLI_OK;
    case RELAY_NO_DATABASE:
    case RELAY_NO_GATEWAY: return CLI_UNREACHABLE;
    case RELAY_NO_TABLE: return CLI_NOT_FOUND;
    case RELAY_NOT_ENTITLED: return CLI_DENIED;
    case RELAY_NO_RIGHTS:
    case RELAY_UNFIT: break;
    }
    return CLI_FAILED;
}

static void say_ready(void)
{
    printf("{\"ready\":true,\"pid\":%d}\n", (int)getpid());
    fflush(stdout);
}

static int print_statements(const struct relay_settings *settings)
{
    struct buf text;
    buf_init(&text, 0);
    relay_install_write(settings, &text);
    fputs(text.p, stdout);
    buf_release(&text);
    return CLI_OK;
}

static int ended(const char *who, enum relay_end end, struct err *err)
{
    const char *help = end == RELAY_NO_TABLE    ? ": make it with `onced relay install`"
                       : end == RELAY_NO_RIGHTS ? ": the role needs SELECT and UPDATE on the table, install CREATE"
                                                : "";
    if (end == RELAY_STOPPED)
        return CLI_OK;
    err_prefix(err, "%s: ", who);
    fprintf(stderr, "onced relay: %s%s\n", err->text, help);
    return exit_of(end);
}

static int run(const struct relay_wish *wish, const struct config *config)
{
    const struct relay_settings *settings = &config->relay.settings;
    struct err err = {0};
    log_set_level(config->server.log);
    if (wish->install) {
        enum relay_end end = relay_install(settings, &err);
        if (end == RELAY_STOPPED)
            printf("%s: table %s is there\n", settings->database_shown, settings->table);
        return ended(settings->database_shown, end, &err);
    }
    enum relay_end end = relay_serve(settings, wish->once, wish->quiet ? NULL : say_ready, &err);
    bool gateway = end == RELAY_NOT_ENTITLED || end == RELAY_NO_GATEWAY;
    return ended(gateway ? "gateway" : settings->database_shown, end, &err);
}

/* What is only a warning for the daemon. */
static bool complete(const struct relay_wish *wish, const struct config *config)
{
    const struct config_relay *relay = &config->relay;
    if (!relay->database)
        fprintf(stderr, "onced relay: %s has no section relay\n", wish->file);
    else if (!relay->settings.database || (relay->token && !relay->settings.token))
        fprintf(stderr, "onced relay: %s: a reference of section relay does not hold\n", wish->file);
    else
        return true;
    return false;
}

static int run_file(const struct relay_wish *wish)
{
    struct config_report report;
    struct config *config = NULL;
    int code = CLI_USAGE;
    config_report_init(&report);
    bool loaded = config_load(wish->file, &config, NULL, &report) == ERR_NONE;
    bool fine = loaded && ((wish->print && config->relay.database) || complete(wish, config));
    if (!fine)
        config_report_print(&report, stderr);
    else
        code = wish->print ? print_statements(&config->relay.settings) : run(wish, config);
    config_report_release(&report);
    config_free(config);
    return code;
}

static int wish_read(struct relay_wish *wish, const struct cli_args *args)
{
    int at = 0;
    if (args->operand_count > 0 && strcmp(args->operands[0], "install") == 0) {
        wish->install = true;
        at = 1;
    }
    if (args->operand_count != at + 1)
        return cli_usage(&cli_relay_command, "expected %sone registry file", wish->install ? "install and " : "");
    wish->file = args->operands[at];
    if (wish->print && !wish->install)
        return cli_usage(&cli_relay_command, "--print goes with install");
    if (wish->once && wish->install)
        return cli_usage(&cli_relay_command, "--once does not go with install");
    return CLI_OK;
}

int cli_relay(int argc, char **argv)
{
    struct relay_wish wish = {0};
    struct cli_args args;
    int option;
    cli_args_init(&args, &cli_relay_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        switch (option) {
        case ONCE: wish.once = true; break;
        case PRINT: wish.print = true; break;
        case QUIET: wish.quiet = true; break;
        }
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || wish_read(&wish, &args) != CLI_OK)
        return CLI_USAGE;
    return run_file(&wish);
}
