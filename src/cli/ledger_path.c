#include "cli/ledger_path.h"

#include "base/pg_url.h"
#include "daemon/config.h"

/* libpq's own words could repeat a password. */
static bool understood(const struct cli_args *args, struct arena *arena)
{
    const char *fault = NULL;
    bool password;
    if (pg_url_is(args->ledger))
        pg_url_shown(args->ledger, arena, &fault, &password);
    if (fault)
        cli_usage(args->command, "--ledger: the URL is not understood, expected postgresql://user@host:port/database");
    return !fault;
}

const char *ledger_path(const struct cli_args *args, struct arena *arena)
{
    struct config_report report;
    struct config *config = NULL;
    struct registry *registry = NULL;
    const char *path = NULL;
    if (args->ledger)
        return understood(args, arena) ? args->ledger : NULL;
    if (!args->config) {
        cli_usage(args->command, "say which ledger: --ledger FILE or URL, or --config FILE with the registry file");
        return NULL;
    }
    config_report_init(&report);
    if (config_load(args->config, &config, &registry, &report) == ERR_NONE) {
        path = arena_copy_text(arena, config->ledger.where);
    } else {
        config_report_print(&report, stderr);
        fprintf(stderr, "onced %s: the registry file cannot be used; --ledger does without it\n", args->command->name);
    }
    config_report_release(&report);
    registry_unref(registry);
    config_free(config);
    return path;
}
