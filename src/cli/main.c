/* onced: finds the subcommand and runs it. */
#include "cli/cli.h"
#include "cli/command.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int unknown(const char *name)
{
    const struct cli_command *near = cli_command_nearest(name);
    fprintf(stderr, "onced: there is no command '%s'", name);
    if (near)
        fprintf(stderr, "; did you mean '%s'?\n", near->name);
    else
        fprintf(stderr, "; onced help lists all\n");
    return CLI_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        cli_overview(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    const struct cli_command *command = cli_command_find(name);
    return command ? command->run(argc - 1, argv + 1) : unknown(name);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a reader that left (| head) is seen as a write error */
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int code = run(argc, argv);
    if (fflush(stdout) != 0 && code == CLI_OK)
        code = CLI_FAILED; /* what was asked for could not be told */
    curl_global_cleanup();
    return code;
}
