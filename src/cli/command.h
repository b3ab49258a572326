/* What the program knows about its subcommands: one description each, from which parsing, `--help`, the shell
 * completion and the check of the manual page are all made (style 18). A subcommand's file defines its description;
 * commands.c lists them. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "cli/client.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cli_option {
    int id;            /* unique in its command; below 128 it is the short option's letter too. 0 ends a table */
    const char *name;  /* long name without dashes */
    const char *value; /* what the help calls its value; "FILE" completes to files; NULL: it takes none */
    const char *words; /* possible values, parted by spaces, for the completion; NULL: any */
    const char *text;  /* half a line for the help */
};

/* Options that several commands take in the same way; cli_args_next deals with them itself. */
enum cli_shared {
    CLI_CONNECTS = 1, /* --server, --token-file, --tenant, --principal */
    CLI_JSON = 2,     /* --json */
    CLI_LEDGER = 4    /* --config, --ledger: works on the ledger file, not on the daemon */
};

struct cli_command {
    const char *name;
    const char *operands;             /* "OP", "[FILE]", "" */
    const char *summary;              /* half a line */
    const char *text;                 /* paragraphs below the usage line, or NULL */
    const char *words;                /* possible first operands, for the completion; "FILE": files; NULL: any */
    const struct cli_option *options; /* NULL: only shared ones */
    unsigned shared;                  /* enum cli_shared */
    int (*run)(int argc, char **argv);
};

/* In the order of the help; NULL ends it. */
extern const struct cli_command *const cli_commands[];
const struct cli_command *cli_command_find(const char *name); /* NULL when there is none */
/* The command that was probably meant, or NULL when nothing is near. */
const struct cli_command *cli_command_nearest(const char *name);

/* The i-th option of a command, shared ones and --help behind its own; NULL at the end. */
const struct cli_option *cli_command_option(const struct cli_command *command, size_t i);
#define CLI_OPTIONS_MAX 40 /* per command */

void cli_command_help(const struct cli_command *command, FILE *out);
void cli_overview(FILE *out);

/* ---- reading a command line ---- */

struct cli_args {
    const struct cli_command *command;
    int argc;
    char **argv;
    const char *value; /* of the option just returned; NULL when it takes none */
    char **operands;   /* valid after CLI_ARGS_END */
    int operand_count;
    struct client_options connection; /* CLI_CONNECTS */
    bool json;                        /* CLI_JSON */
    const char *config, *ledger;      /* CLI_LEDGER; NULL when not given */
};

#define CLI_ARGS_END  (-1) /* all options were read */
#define CLI_ARGS_HELP (-2) /* --help was answered: return CLI_OK */
#define CLI_ARGS_BAD  (-3) /* a message was printed: return CLI_USAGE */

void cli_args_init(struct cli_args *args, const struct cli_command *command, int argc, char **argv);
/* The id of the next option of the command's own table, or one of the above. Uses getopt_long: one at a time. */
int cli_args_next(struct cli_args *args);
/* Whether the number of operands is right; prints what is missing or too much. */
bool cli_args_operands(const struct cli_args *args, int min, int max);

/* "onced call: " + text + where the help is, to standard error. Returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- one description per subcommand, each in its own file ---- */

extern const struct cli_command cli_compensate_command, cli_approve_command, cli_deny_command, cli_entities_command,
    cli_budgets_command, cli_pending_command, cli_backup_command, cli_call_command, cli_cancel_command,
    cli_chaos_command, cli_check_command, cli_completion_command, cli_eval_command, cli_guard_command, cli_help_command,
    cli_inbox_command, cli_incidents_command, cli_init_command, cli_ledger_command, cli_list_command, cli_mcp_command,
    cli_relay_command, cli_resolve_command, cli_retry_command, cli_serve_command, cli_show_command,
    cli_simulate_command, cli_sql_command, cli_token_command, cli_trace_command, cli_version_command;

#endif
