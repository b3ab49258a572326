/* `onced mcp`: one line in a client's configuration. Whoever has the ledger serves; the others pass on to it.
 *
 *   nobody has the ledger     daemon in this process, on stdin and stdout, and on LEDGER.mcp for those who come later
 *   somebody has it           relay between stdin, stdout and LEDGER.mcp (mcp_relay.h)
 *   … and ends                relay goes on in its thread; the main thread tries to become the daemon of LEDGER.mcp */
#include "door/mcp.h"
#include "base/local_socket.h"
#include "base/mem.h"
#include "base/pg_url.h"
#include "cli/cli.h"
#include "cli/ledger_path.h"
#include "cli/mcp_import.h"
#include "cli/mcp_relay.h"
#include "daemon/daemon.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS 100

enum { URL = 256, NAME, ENV, HEADER, OUTPUT = 'o', FORCE = 300 };

static const struct cli_option options[] = {
    {URL, "url", "URL", NULL, "import: the server's address, instead of a command"},
    {NAME, "name", "NAME", NULL, "import: what the file calls the server"},
    {ENV, "env", "NAME", NULL, "import: variable that the command needs; may be given more than once"},
    {HEADER, "header", "NAME: VALUE", NULL, "import: header for --url, secrets as ${env:NAME}"},
    {OUTPUT, "output", "FILE", NULL, "import: write there instead of to standard output"},
    {FORCE, "force", NULL, NULL, "import: overwrite FILE"},
    {0},
};

const struct cli_command cli_mcp_command = {
    .name = "mcp",
    .operands = "[import [SERVER | -- COMMAND ...]]",
    .words = "import",
    .summary = "be an MCP server on standard input and output",
    .text = "For the configuration of an MCP client: command onced, arguments mcp --config FILE. The ledger is\n"
            "that of the running daemon, or of another onced mcp, or opened here when nobody has it. Logs go\n"
            "to standard error.\n\n"
            "onced mcp import writes a registry file from what a server lists: each tool with a proposed class\n"
            "and what is to be decided. The server is one of --config FILE, a command, or a --url:\n"
            "  onced mcp import -- npx -y @modelcontextprotocol/server-filesystem /data",
    .options = options,
    .shared = CLI_LEDGER,
    .run = cli_mcp,
};

/* What the relay's thread and the main thread tell each other. */
struct passing {
    struct relay_options relay;
    char *path; /* of the socket */
    pthread_mutex_t mutex;
    pthread_cond_t news;
    bool orphaned, ended;
    struct err err; /* of the relay */
};

static void on_orphaned(void *user)
{
    struct passing *passing = user;
    pthread_mutex_lock(&passing->mutex);
    passing->orphaned = true;
    pthread_cond_signal(&passing->news);
    pthread_mutex_unlock(&passing->mutex);
}

static void *relay_thread(void *user)
{
    struct passing *passing = user;
    struct err err = {0};
    relay_run(&passing->relay, &err);
    pthread_mutex_lock(&passing->mutex);
    passing->err = err;
    passing->ended = true;
    pthread_cond_signal(&passing->news);
    pthread_mutex_unlock(&passing->mutex);
    return NULL;
}

/* True: somebody should become the owner; false: the relay has ended. */
static bool wait_for_news(struct passing *passing)
{
    pthread_mutex_lock(&passing->mutex);
    while (!passing->orphaned && !passing->ended)
        pthread_cond_wait(&passing->news, &passing->mutex);
    bool orphaned = !passing->ended;
    passing->orphaned = false;
    pthread_mutex_unlock(&passing->mutex);
    return orphaned;
}

static bool has_ended(struct passing *passing)
{
    pthread_mutex_lock(&passing->mutex);
    bool ended = passing->ended;
    pthread_mutex_unlock(&passing->mutex);
    return ended;
}

/* Takes passing, whose relay has ended. */
static int relay_ended(struct passing *passing, pthread_t thread)
{
    int code = passing->err.code ? CLI_FAILED : CLI_OK;
    pthread_join(thread, NULL);
    if (code)
        fprintf(stderr, "onced mcp: %s\n", passing->err.text);
    pthread_mutex_destroy(&passing->mutex);
    pthread_cond_destroy(&passing->news);
    free(passing->path);
    free(passing);
    return code;
}

static int pass_on(int fd, const char *socket_path, struct daemon_options *daemon)
{
    struct passing *passing = mem_zero(sizeof *passing);
    pthread_t thread;
    passing->path = mem_copy_text(socket_path);
    passing->relay = (struct relay_options){STDIN_FILENO, STDOUT_FILENO, fd, passing->path, on_orphaned, passing};
    pthread_mutex_init(&passing->mutex, NULL);
    pthread_cond_init(&passing->news, NULL);
    if (pthread_create(&thread, NULL, relay_thread, passing) != 0) {
        fputs("onced mcp: no thread can be started\n", stderr);
        return CLI_FAILED;
    }
    daemon->mcp_in = daemon->mcp_out = -1;
    while (wait_for_news(passing)) {
        int code = daemon_run(daemon);
        if (code == DAEMON_LEDGER_BUSY)
            continue;
        if (!has_ended(passing))
            return code; /* told to stop: the relay goes with the process, what it uses is left to it */
        int relayed = relay_ended(passing, thread);
        return code ? code : relayed;
    }
    return relay_ended(passing, thread);
}

static void sleep_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* An owner that is just beginning or ending has the ledger and takes nobody: a matter of moments. */
static int run(const char *socket_path, struct daemon_options *daemon)
{
    for (int waited = 0; waited <= RELAY_GIVE_UP_MS; waited += RETRY_MS) {
        int fd, code;
        if (local_socket_connect(socket_path, &fd, NULL) == ERR_NONE)
            return pass_on(fd, socket_path, daemon);
        code = daemon_run(daemon);
        if (code != DAEMON_LEDGER_BUSY)
            return code;
        sleep_ms(RETRY_MS);
    }
    fprintf(stderr, "onced mcp: another process has the ledger and nobody listens on %s\n", socket_path);
    return CLI_FAILED;
}

/* ---- onced mcp import ---- */

static bool add_to(const char **list, size_t *count, const char *value)
{
    if (*count == MCP_IMPORT_LIST_MAX)
        return false;
    list[(*count)++] = value;
    return true;
}

static bool take_option(int option, const char *value, struct mcp_import *import)
{
    switch (option) {
    case URL: import->url = value; break;
    case NAME: import->name = value; break;
    case ENV: return add_to(import->env, &import->env_count, value);
    case HEADER: return add_to(import->headers, &import->header_count, value);
    case OUTPUT: import->output = value; break;
    case FORCE: import->force = true; break;
    }
    return true;
}

/* What stands behind "--" is a command, whatever it looks like. */
static int words_behind_dashes(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return argc - i - 1;
    return 0;
}

static int run_import(const struct cli_args *args, int words, struct mcp_import *import)
{
    int others = args->operand_count - 1 - words;
    import->words = args->operands + args->operand_count - words;
    import->word_count = (size_t)words;
    if (others == 1) {
        import->config = args->config;
        import->server = args->operands[1];
    }
    if (others > 1 || (others == 1) + (words > 0) + (import->url != NULL) != 1)
        return cli_usage(args->command, "import takes one of: SERVER, -- COMMAND ..., --url URL");
    if (others == 1 && !args->config)
        return cli_usage(args->command,
                         "import %s: say in which registry file: --config FILE (a command stands behind --)",
                         import->server);
    if (others == 0 && args->config)
        return cli_usage(args->command, "import: --config FILE goes with the name of a SERVER in it");
    return cli_mcp_import(args->command, import);
}

int cli_mcp(int argc, char **argv)
{
    struct cli_args args;
    struct mcp_import import = {0};
    struct arena arena;
    bool given = false;
    int code = CLI_USAGE, words = words_behind_dashes(argc, argv);
    cli_args_init(&args, &cli_mcp_command, argc, argv);
    for (int option; (option = cli_args_next(&args)) != CLI_ARGS_END; given = true) {
        if (option == CLI_ARGS_HELP)
            return CLI_OK;
        if (option == CLI_ARGS_BAD)
            return CLI_USAGE;
        if (!take_option(option, args.value, &import))
            return cli_usage(args.command, "more than %d of --env or --header", MCP_IMPORT_LIST_MAX);
    }
    if (args.operand_count > words && strcmp(args.operands[0], "import") == 0)
        return run_import(&args, words, &import);
    if (given)
        return cli_usage(args.command, "--url, --name, --env, --header, --output and --force go with import");
    if (!cli_args_operands(&args, 0, 0))
        return CLI_USAGE;
    if (!args.config)
        return cli_usage(args.command, "say which tools there are: --config FILE with the registry file");
    arena_init(&arena);
    signal(SIGPIPE, SIG_IGN);
    const char *path = ledger_path(&args, &arena);
    if (path) {
        struct daemon_options daemon = {
            .config_path = args.config,
            .ledger_override = args.ledger,
            .quiet = true,
            .mcp = true,
            .mcp_in = STDIN_FILENO,
            .mcp_out = STDOUT_FILENO,
        };
        code = pg_url_is(path) ? daemon_run(&daemon) /* one more gateway: nothing to share with the others */
                               : run(arena_printf(&arena, "%s%s", path, MCP_SOCKET_SUFFIX), &daemon);
    }
    arena_release(&arena);
    return code;
}
