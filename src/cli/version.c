#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"

#include <curl/curl.h>
#include <sqlite3.h>

const struct cli_command cli_version_command = {
    .name = "version",
    .operands = "",
    .summary = "show the version",
    .shared = CLI_JSON,
    .run = cli_version,
};

int cli_version(int argc, char **argv)
{
    struct cli_args args;
    cli_args_init(&args, &cli_version_command, argc, argv);
    int option = cli_args_next(&args);
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 0))
        return CLI_USAGE;
    const char *curl = curl_version_info(CURLVERSION_NOW)->version;
    if (args.json)
        printf("{\"version\":\"%s\",\"sqlite\":\"%s\",\"curl\":\"%s\"}\n", ONCED_VERSION, sqlite3_libversion(), curl);
    else
        printf("onced %s (SQLite %s, libcurl %s)\n", ONCED_VERSION, sqlite3_libversion(), curl);
    return CLI_OK;
}
