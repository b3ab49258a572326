#include "cli/cli.h"
#include "cli/command.h"
#include "daemon/catalog.h"
#include "daemon/config.h"
#include "daemon/config_options.h"

enum { ID_SCHEMA = 256, ID_REFERENCE, ID_CONNECT };

static const struct cli_option options[] = {
    {ID_CONNECT, "connect", NULL, NULL, "start the MCP servers, and check with the tools that they list"},
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
        "References such as ${env:NAME} are looked up as `onced serve` would do it; nothing is sent. With --connect, "
        "4\n"
        "is the exit status when an MCP server cannot be asked; no tool is called.",
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

/* The servers are asked for their lists when the file alone is fine. */
static int check_connected(const char *path, bool json)
{
    struct config_report report;
    struct config *config = NULL;
    struct registry *registry = NULL;
    struct arena arena;
    struct catalog catalog = {0};
    struct err err = {0};
    int code = CLI_OK;
    arena_init(&arena);
    config_report_init(&report);
    log_set_level(LOG_ERROR);
    if (config_load(path, &config, &registry, &report) == ERR_NONE && config->has_mcp_servers) {
        if (catalog_fetch(registry, config->mcp_start_timeout_ms_max, &arena, &catalog, &err)) {
            fprintf(stderr, "onced check: %s\n", err.text);
            code = CLI_UNREACHABLE;
        }
        for (uint32_t i = 0; catalog.failures && i < catalog.failures->count; i++) {
            const struct json_member *member = &catalog.failures->members[i];
            fprintf(stderr, "onced check: MCP server %.*s: %.*s\n", STR_ARG(member->name), STR_ARG(member->value.text));
            code = CLI_UNREACHABLE;
        }
    }
    int checked = config_check(path, catalog.tools, json, stdout);
    registry_unref(registry);
    config_free(config);
    config_report_release(&report);
    arena_release(&arena);
    return checked ? checked : code;
}

int cli_check(int argc, char **argv)
{
    struct cli_args args;
    void (*document)(struct buf * out) = NULL;
    bool connect = false;
    cli_args_init(&args, &cli_check_command, argc, argv);
    for (int option; (option = cli_args_next(&args)) != CLI_ARGS_END;) {
        switch (option) {
        case CLI_ARGS_HELP: return CLI_OK;
        case CLI_ARGS_BAD: return CLI_USAGE;
        case ID_CONNECT: connect = true; break;
        case ID_SCHEMA: document = options_write_schema; break;
        case ID_REFERENCE: document = options_write_reference; break;
        }
    }
    if (document)
        return cli_args_operands(&args, 0, 0) ? print(document) : CLI_USAGE;
    if (!cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    if (connect)
        return check_connected(args.operands[0], args.json);
    return config_check(args.operands[0], NULL, args.json, stdout);
}
