/* `onced mcp`: one line in a client's configuration. Whoever has the ledger serves; the others pass on to it.
 *
 *   nobody has the ledger     daemon in this process, on stdin and stdout, and on LEDGER.mcp for those who come later
 *   somebody has it           relay between stdin, stdout and LEDGER.mcp (mcp_relay.h)
 *   … and ends                relay goes on in its thread; the main thread tries to become the daemon of LEDGER.mcp */
#include "base/local_socket.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/ledger_path.h"
#include "cli/mcp_relay.h"
#include "daemon/daemon.h"
#include "door/mcp.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS 100

const struct cli_command cli_mcp_command = {
    .name = "mcp",
    .operands = "",
    .summary = "be an MCP server on standard input and output",
    .text = "For the configuration of an MCP client: command onced, arguments mcp --config FILE. The ledger is\n"
            "that of the running daemon, or of another onced mcp, or opened here when nobody has it. Logs go\n"
            "to standard error.",
    .shared = CLI_LEDGER,
    .run = cli_mcp,
};

/* What the relay's thread and the main thread tell each other. */
struct passing {
    struct relay_options relay;
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

static int relay_ended(struct passing *passing, pthread_t thread)
{
    int code = passing->err.code ? CLI_FAILED : CLI_OK;
    pthread_join(thread, NULL);
    if (code)
        fprintf(stderr, "onced mcp: %s\n", passing->err.text);
    pthread_mutex_destroy(&passing->mutex);
    pthread_cond_destroy(&passing->news);
    free(passing);
    return code;
}

static int pass_on(int fd, const char *socket_path, struct daemon_options *daemon)
{
    struct passing *passing = mem_zero(sizeof *passing);
    pthread_t thread;
    passing->relay = (struct relay_options){STDIN_FILENO, STDOUT_FILENO, fd, socket_path, on_orphaned, passing};
    pthread_mutex_init(&passing->mutex, NULL);
    pthread_cond_init(&passing->news, NULL);
    if (pthread_create(&thread, NULL, relay_thread, passing) != 0) {
        fputs("onced mcp: no thread can be started\n", stderr);
        return CLI_FAILED;
    }
    daemon->mcp_in = daemon->mcp_out = -1;
    while (wait_for_news(passing)) {
        int code = daemon_run(daemon);
        if (code != DAEMON_LEDGER_BUSY)
            return code; /* the relay, if it still runs, goes with the process */
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

int cli_mcp(int argc, char **argv)
{
    struct cli_args args;
    struct arena arena;
    int code = CLI_USAGE;
    cli_args_init(&args, &cli_mcp_command, argc, argv);
    int option = cli_args_next(&args);
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 0))
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
        code = run(arena_printf(&arena, "%s%s", path, MCP_SOCKET_SUFFIX), &daemon);
    }
    arena_release(&arena);
    return code;
}
