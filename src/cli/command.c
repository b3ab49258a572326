#include "cli/command.h"

#include "cli/cli.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ID_SERVER = 200, ID_TOKEN_FILE, ID_TENANT, ID_PRINCIPAL, ID_JSON, ID_CONFIG, ID_LEDGER };

struct shared_option {
    unsigned needs; /* enum cli_shared; 0: every command has it */
    struct cli_option option;
};

static const struct shared_option shared_options[] = {
    {CLI_LEDGER, {ID_CONFIG, "config", "FILE", NULL, "registry file that names the ledger"}},
    {CLI_LEDGER, {ID_LEDGER, "ledger", "WHERE", NULL, "ledger: a file, or postgresql://…"}},
    {CLI_CONNECTS, {ID_SERVER, "server", "URL", NULL, "daemon to ask (ONCED_SERVER, default http://127.0.0.1:7070)"}},
    {CLI_CONNECTS, {ID_TOKEN_FILE, "token-file", "FILE", NULL, "file that holds the token (or ONCED_TOKEN)"}},
    {CLI_CONNECTS, {ID_TENANT, "tenant", "NAME", NULL, "act in this tenant (daemons without tokens only)"}},
    {CLI_CONNECTS, {ID_PRINCIPAL, "principal", "NAME", NULL, "act as this principal (daemons without tokens only)"}},
    {CLI_JSON, {ID_JSON, "json", NULL, NULL, "print JSON for programs"}},
    {0, {'h', "help", NULL, NULL, "show this help"}},
};
#define SHARED_COUNT (sizeof shared_options / sizeof shared_options[0])

const struct cli_command *cli_command_find(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    }
    return NULL;
}

/* ---- the nearest name ---- */

#define NAME_MAX_COMPARED 32

static size_t least(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance with neighbours swapped counting as one slip; words longer than NAME_MAX_COMPARED are not near
 * anything. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > NAME_MAX_COMPARED || m > NAME_MAX_COMPARED)
        return SIZE_MAX;
    size_t d[NAME_MAX_COMPARED + 1][NAME_MAX_COMPARED + 1];
    for (size_t i = 0; i <= n; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = least(d[i - 1][j] + 1, d[i][j - 1] + 1, change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1, d[i][j]);
        }
    }
    return d[n][m];
}

const struct cli_command *cli_command_nearest(const char *name)
{
    const struct cli_command *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; cli_commands[i]; i++) {
        const char *candidate = cli_commands[i]->name;
        size_t slips = distance(name, candidate);
        /* the beginning of a word ("inc", "comp") says more than its distance */
        if (strlen(name) >= 2 && strncmp(candidate, name, strlen(name)) == 0)
            slips = 1;
        if (slips < best_distance && slips <= 1 + strlen(candidate) / 4) {
            best = cli_commands[i];
            best_distance = slips;
        }
    }
    return best;
}

/* ---- options ---- */

const struct cli_option *cli_command_option(const struct cli_command *command, size_t i)
{
    size_t at = 0;
    for (const struct cli_option *option = command->options; option && option->id; option++) {
        if (at++ == i)
            return option;
    }
    for (size_t s = 0; s < SHARED_COUNT; s++) {
        unsigned needs = shared_options[s].needs;
        if ((needs == 0 || (command->shared & needs)) && at++ == i)
            return &shared_options[s].option;
    }
    return NULL;
}

void cli_args_init(struct cli_args *args, const struct cli_command *command, int argc, char **argv)
{
    *args = (struct cli_args){.command = command, .argc = argc, .argv = argv};
    optind = 0; /* GNU: start afresh */
    opterr = 0;
}

/* True when the option is a shared one and was dealt with. */
static bool take_shared(struct cli_args *args, int id)
{
    switch (id) {
    case ID_SERVER: args->connection.server = optarg; return true;
    case ID_TOKEN_FILE: args->connection.token_file = optarg; return true;
    case ID_TENANT: args->connection.tenant = optarg; return true;
    case ID_PRINCIPAL: args->connection.principal = optarg; return true;
    case ID_JSON: args->json = true; return true;
    case ID_CONFIG: args->config = optarg; return true;
    case ID_LEDGER: args->ledger = optarg; return true;
    }
    return false;
}

/* The options of a command in getopt_long's form. */
static void getopt_tables(const struct cli_command *command, struct option *longs, char *shorts)
{
    size_t n = 0, s = 0;
    shorts[s++] = ':'; /* a missing value is told apart from an unknown option */
    for (const struct cli_option *option; (option = cli_command_option(command, n)) && n < CLI_OPTIONS_MAX; n++) {
        longs[n] = (struct option){option->name, option->value ? required_argument : no_argument, NULL, option->id};
        if (option->id < 128) {
            shorts[s++] = (char)option->id;
            if (option->value)
                shorts[s++] = ':';
        }
    }
    longs[n] = (struct option){0};
    shorts[s] = '\0';
}

int cli_args_next(struct cli_args *args)
{
    struct option longs[CLI_OPTIONS_MAX + 1];
    char shorts[2 * CLI_OPTIONS_MAX + 2];
    getopt_tables(args->command, longs, shorts);
    for (;;) {
        int id = getopt_long(args->argc, args->argv, shorts, longs, NULL);
        args->value = optarg;
        if (id == -1) {
            args->operands = args->argv + optind;
            args->operand_count = args->argc - optind;
            return CLI_ARGS_END;
        }
        if (id == 'h') {
            cli_command_help(args->command, stdout);
            return CLI_ARGS_HELP;
        }
        if (id == '?' || id == ':') {
            const char *word = args->argv[optind - 1];
            if (id == '?' && optopt && optopt < 128)
                cli_usage(args->command, "unknown option -%c", optopt);
            else
                cli_usage(args->command, id == '?' ? "unknown option %s" : "option %s needs a value", word);
            return CLI_ARGS_BAD;
        }
        if (!take_shared(args, id))
            return id;
    }
}

bool cli_args_operands(const struct cli_args *args, int min, int max)
{
    if (args->operand_count < min) {
        cli_usage(args->command, "%s is missing; usage: onced %s %s", args->command->operands, args->command->name,
                  args->command->operands);
        return false;
    }
    if (args->operand_count > max) {
        cli_usage(args->command, "'%s' is one word too many", args->operands[max]);
        return false;
    }
    return true;
}

int cli_usage(const struct cli_command *command, const char *format, ...)
{
    va_list list;
    fprintf(stderr, "onced %s: ", command->name);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\nSee: onced %s --help\n", command->name);
    return CLI_USAGE;
}

/* ---- help ---- */

static void option_help(const struct cli_option *option, FILE *out)
{
    char left[64];
    char letter[8] = "    ";
    if (option->id < 128)
        snprintf(letter, sizeof letter, "-%c, ", option->id);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->value ? " " : "",
             option->value ? option->value : "");
    fprintf(out, "  %-28s %s\n", left, option->text);
}

void cli_command_help(const struct cli_command *command, FILE *out)
{
    fprintf(out, "onced %s: %s\n\nUsage: onced %s%s%s [options]\n", command->name, command->summary, command->name,
            command->operands[0] ? " " : "", command->operands);
    if (command->text)
        fprintf(out, "\n%s\n", command->text);
    fprintf(out, "\nOptions:\n");
    const struct cli_option *option;
    for (size_t i = 0; (option = cli_command_option(command, i)); i++)
        option_help(option, out);
}

void cli_overview(FILE *out)
{
    fprintf(out,
            "onced %s: runs the tool calls of agents at most once and tells what happened\n\n"
            "Usage: onced COMMAND [options]\n\nCommands:\n",
            ONCED_VERSION);
    for (size_t i = 0; cli_commands[i]; i++)
        fprintf(out, "  %-14s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fprintf(out, "\nonced COMMAND --help tells more. To begin: onced init onced.yaml, then onced serve onced.yaml\n");
}
