#include "adapter/sql.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/view.h"

#include "daemon/config.h"

#include <inttypes.h>

enum { URL = 256, TABLE, PROVIDER, PRINT };

static const struct cli_option options[] = {
    {URL, "url", "URL", NULL, "the database (postgresql://…), instead of FILE; a password is better in PGPASSWORD"},
    {TABLE, "table", "NAME", NULL, "with --url: the table's name, also schema.name (default: " SQL_TABLE_DEFAULT ")"},
    {PROVIDER, "provider", "NAME", NULL, "only this provider of the registry file (default: every database in it)"},
    {PRINT, "print", NULL, NULL, "install: print the statements instead of running them"},
    {0},
};

const struct cli_command cli_sql_command = {
    .name = "sql",
    .operands = "install|prune [FILE]",
    .words = "install prune",
    .summary = "make and tidy the table by which SQL tools know a repetition",
    .text =
        "install makes the table in each database of the registry file; a second time it changes nothing. The role\n"
        "that onced uses needs SELECT, INSERT and UPDATE on it, prune DELETE as well. prune removes the records\n"
        "whose retention is over: run it daily.",
    .options = options,
    .run = cli_sql,
};

enum verb { VERB_INSTALL, VERB_PRUNE };

struct sql_wish {
    struct cli_args args;
    enum verb verb;
    const char *url, *table, *provider, *file;
    bool print;
};

static int exit_of(enum err_code code)
{
    return code == ERR_UNAVAILABLE ? CLI_UNREACHABLE : code == ERR_DENIED ? CLI_DENIED : CLI_FAILED;
}

/* ---- one database ---- */

static int print_statements(const struct sql_place *place)
{
    struct buf text;
    buf_init(&text, 0);
    sql_table_write(place->table, &text);
    fputs(text.p, stdout);
    buf_release(&text);
    return CLI_OK;
}

/* name: who is meant, for people. */
static int run_at(const struct sql_wish *wish, const char *name, const struct sql_place *place)
{
    struct err err = {0};
    int64_t count = 0;
    if (wish->verb == VERB_INSTALL && wish->print)
        return print_statements(place);
    enum err_code code = wish->verb == VERB_INSTALL ? sql_install(place, &err) : sql_prune(place, &count, &err);
    if (code) {
        err_prefix(&err, "%s: ", name);
        view_error(&err);
        return exit_of(code);
    }
    if (wish->verb == VERB_INSTALL)
        printf("%s: table %s is there\n", name, place->table);
    else
        printf("%s: %" PRId64 " record%s removed from %s\n", name, count, count == 1 ? "" : "s", place->table);
    return CLI_OK;
}

/* ---- those of a registry file ---- */

static int run_registry(const struct sql_wish *wish, const struct registry *registry)
{
    int code = CLI_OK;
    unsigned met = 0;
    for (size_t i = 0; i < registry_provider_count(registry); i++) {
        const struct provider *provider = registry_provider_at(registry, i);
        struct sql_place place;
        if (provider->kind != PROVIDER_SQL || (wish->provider && strcmp(provider->name, wish->provider) != 0))
            continue;
        met++;
        sql_provider_place(provider->adapter_provider, &place);
        int one = run_at(wish, provider->name, &place);
        code = code ? code : one;
    }
    if (met > 0)
        return code;
    fprintf(stderr, "onced sql: %s has no provider%s%s with an sql section\n", wish->file, wish->provider ? " " : "",
            wish->provider ? wish->provider : "");
    return CLI_NOT_FOUND;
}

static int run_file(const struct sql_wish *wish)
{
    struct config_report report;
    struct config *config = NULL;
    struct registry *registry = NULL;
    int code = CLI_USAGE;
    config_report_init(&report);
    if (config_load(wish->file, &config, &registry, &report) == ERR_NONE)
        code = run_registry(wish, registry);
    else
        config_report_print(&report, stderr);
    config_report_release(&report);
    registry_unref(registry);
    config_free(config);
    return code;
}

/* ---- the command line ---- */

static void take(struct sql_wish *wish, int option, const char *value)
{
    switch (option) {
    case URL: wish->url = value; break;
    case TABLE: wish->table = value; break;
    case PROVIDER: wish->provider = value; break;
    case PRINT: wish->print = true; break;
    }
}

static int wish_read(struct sql_wish *wish)
{
    const struct cli_args *args = &wish->args;
    const char *word = args->operand_count > 0 ? args->operands[0] : "";
    bool install = strcmp(word, "install") == 0;
    wish->verb = install ? VERB_INSTALL : VERB_PRUNE;
    wish->file = args->operand_count > 1 ? args->operands[1] : NULL;
    if (!install && strcmp(word, "prune") != 0)
        return cli_usage(&cli_sql_command, "expected install or prune");
    if (args->operand_count > 2)
        return cli_usage(&cli_sql_command, "%s takes one registry file", word);
    if (!wish->file && !wish->url && !(install && wish->print))
        return cli_usage(&cli_sql_command, "say which database: the registry file, or --url");
    if (wish->file && (wish->url || wish->table))
        return cli_usage(&cli_sql_command, "the registry file says url and table; leave --url and --table out");
    if (wish->provider && !wish->file)
        return cli_usage(&cli_sql_command, "--provider needs a registry file");
    if (wish->table && !sql_table_valid(wish->table))
        return cli_usage(&cli_sql_command, "--table: expected a name of a-z, 0-9 and _, or schema.name");
    return CLI_OK;
}

int cli_sql(int argc, char **argv)
{
    struct sql_wish wish = {0};
    int option;
    cli_args_init(&wish.args, &cli_sql_command, argc, argv);
    while ((option = cli_args_next(&wish.args)) > 0)
        take(&wish, option, wish.args.value);
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || wish_read(&wish) != CLI_OK)
        return CLI_USAGE;
    if (wish.file)
        return run_file(&wish);
    const struct sql_place place = {.url = wish.url, .table = wish.table ? wish.table : SQL_TABLE_DEFAULT};
    return run_at(&wish, "database", &place);
}
