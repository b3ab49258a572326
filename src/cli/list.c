#include "cli/cli.h"
#include "cli/command.h"
#include "cli/list_page.h"
#include "cli/view.h"

#include "base/env.h"
#include "base/units.h"
#include "core/state.h"

#include <stdlib.h>
#include <time.h>

enum { STATUS = 's', TOOL = 't', LIMIT = 'n', WATCH = 'w', RUN = 256, PRINCIPAL_IS, EVERY };

#define STATES_WORDS                                                                                                   \
    "planned pending_dispatch dispatched acknowledged completed_success completed_noop failed_retryable "              \
    "failed_permanent unknown_outcome rejected compensating compensated"

static const struct cli_option options[] = {
    {STATUS, "status", "STATE", STATES_WORDS, "only in this state; several parted by commas"},
    {TOOL, "tool", "TOOL", NULL, "only of this tool"},
    {RUN, "run", "ID", NULL, "only of this run"},
    {PRINCIPAL_IS, "by", "NAME", NULL, "only called by this principal"},
    {LIMIT, "limit", "N", NULL, "at most this many (default 20)"},
    {WATCH, "watch", NULL, NULL, "show again and again until interrupted"},
    {EVERY, "every", "DURATION", NULL, "with --watch: how often (default 2s)"},
    {0},
};

const struct cli_command cli_list_command = {
    .name = "list",
    .operands = "",
    .summary = "list operations, newest first",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_list,
};

struct list_wish {
    struct list_filter filter;
    bool watch;
    int64_t every_ms;
};

static bool take_limit(struct list_wish *wish, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < 1 || value > LIST_LIMIT_MAX) {
        cli_usage(&cli_list_command, "--limit %s: expected a number from 1 to %d", text, LIST_LIMIT_MAX);
        return false;
    }
    wish->filter.limit = (size_t)value;
    return true;
}

static bool take_every(struct list_wish *wish, const char *text)
{
    struct err err = {0};
    if (units_duration_ms(str_of(text), &wish->every_ms, &err) || wish->every_ms < 100) {
        cli_usage(&cli_list_command, "--every %s: expected a duration of 100ms or more", text);
        return false;
    }
    return true;
}

/* Every name in a comma-separated list must be a state: a slip would look like "nothing there". */
static bool take_status(struct list_wish *wish, const char *text)
{
    enum state state;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        if (!state_from_name((struct str){at, n}, &state)) {
            cli_usage(&cli_list_command, "--status %.*s: no such state; there are %s", (int)n, at, STATES_WORDS);
            return false;
        }
        at += n + (at[n] == ',');
    }
    wish->filter.status = text;
    return true;
}

static bool take(struct list_wish *wish, int option, const char *value)
{
    switch (option) {
    case STATUS: return take_status(wish, value);
    case LIMIT: return take_limit(wish, value);
    case EVERY: return take_every(wish, value);
    case TOOL: wish->filter.tool = value; break;
    case RUN: wish->filter.run = value; break;
    case PRINCIPAL_IS: wish->filter.principal = value; break;
    case WATCH: wish->watch = true; break;
    }
    return true;
}

static void pause_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

static int list_once(const struct cli_args *args, struct client *client, const struct list_wish *wish)
{
    struct arena arena;
    struct list_page page;
    struct out out;
    arena_init(&arena);
    int code = list_fetch(client, &wish->filter, args->json, &arena, &page);
    if (code == CLI_OK) {
        out_init(&out, stdout);
        if (wish->watch && out.columns > 0 && !args->json)
            out_printf(&out, "\033[H\033[2J"); /* home, clear: a screen that stays in place */
        if (args->json)
            list_print_json(&page, stdout);
        else
            list_print(&out, &page, env_system()->now_ms(env_system()), &arena);
        if (fflush(stdout) != 0)
            code = CLI_FAILED;
    }
    arena_release(&arena);
    return code;
}

int cli_list(int argc, char **argv)
{
    struct cli_args args;
    struct list_wish wish = {.filter = {.limit = 20}, .every_ms = 2000};
    struct client *client = NULL;
    struct err err = {0};
    int option;
    cli_args_init(&args, &cli_list_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (!take(&wish, option, args.value))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 0))
        return CLI_USAGE;
    if (client_new(&args.connection, &client, &err)) {
        view_error(&err);
        return CLI_USAGE;
    }
    int code = list_once(&args, client, &wish);
    /* a daemon that restarts does not end the watch; one that refuses does */
    while (wish.watch && (code == CLI_OK || code == CLI_UNREACHABLE)) {
        pause_ms(wish.every_ms);
        code = list_once(&args, client, &wish);
    }
    client_free(client);
    return code;
}
