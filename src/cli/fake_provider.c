#include "cli/cli.h"

#include "cli/fake_server.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

static const char help[] =
    "Usage: onced fake-provider [OPTIONS]\n"
    "A payment-like provider that fails on demand and counts what it really did. Never put it on a public address.\n\n"
    "  --port N             listen on this port; 0 (default) takes a free one and tells it in the ready line\n"
    "  --listen ADDRESS     IPv4 address (default 127.0.0.1)\n"
    "  --faults LIST        seeded probabilities: timeout_after_commit:500=0.1,5xx_committed=0.05,lookup_500=0.2\n"
    "  --seed N             seed of the probabilities (default 1)\n"
    "  --contract NAME      how keys behave: stripe, qonto, checkout, truelayer, solid, easyship, epay\n"
    "  --set NAME=VALUE     any setting of POST /_fake/config, for example keys=ignore, retention_ms=3000, "
    "latency_ms=200\n"
    "  --objects-max N      objects and keys kept, the oldest are forgotten (default 200000)\n"
    "  --requests-max N     requests kept for GET /_fake/requests (default 65536; 0 = none, fastest)\n"
    "  --connections-max N  (default 4096)\n"
    "  --help\n\n"
    "Effects: GET /_fake/effects. Requests: GET /_fake/requests. Faults of one request: header Fake-Fault: "
    "NAME[=ARGUMENT].\n"
    "All faults and settings: docs/fake-provider.md. Stops on SIGTERM and SIGINT.\n";

static bool read_number(const char *text, unsigned long max, unsigned long *out)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (!*text || *end || *text == '-' || number > max)
        return false;
    *out = number;
    return true;
}

/* 0 = go on, else the exit status + 1. */
static int read_options(int argc, char **argv, struct fake_options *options)
{
    enum { PORT, LISTEN, FAULTS, SEED, CONTRACT, SET, OBJECTS, REQUESTS, CONNECTIONS, HELP };
    static const struct option longs[] = {
        {"port", 1, NULL, PORT},
        {"listen", 1, NULL, LISTEN},
        {"faults", 1, NULL, FAULTS},
        {"seed", 1, NULL, SEED},
        {"contract", 1, NULL, CONTRACT},
        {"set", 1, NULL, SET},
        {"objects-max", 1, NULL, OBJECTS},
        {"requests-max", 1, NULL, REQUESTS},
        {"connections-max", 1, NULL, CONNECTIONS},
        {"help", 0, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    static const char *const settings[] = {[FAULTS] = "faults", [SEED] = "seed", [CONTRACT] = "contract"};
    struct err err = {0};
    unsigned long number = 0;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        bool fine = true;
        char setting[256];
        switch (option) {
        case PORT:
            fine = read_number(optarg, 65535, &number);
            options->port = (unsigned)number;
            break;
        case LISTEN: options->listen = optarg; break;
        case OBJECTS:
            fine = read_number(optarg, 100000000, &number) && number;
            options->objects_max = number;
            break;
        case REQUESTS:
            fine = read_number(optarg, 100000000, &number);
            options->requests_max = number;
            break;
        case CONNECTIONS:
            fine = read_number(optarg, 100000, &number) && number;
            options->connections_max = (unsigned)number;
            break;
        case FAULTS:
        case SEED:
        case CONTRACT:
            fine = snprintf(setting, sizeof setting, "%s=%s", settings[option], optarg) < (int)sizeof setting &&
                   fake_config_apply_text(&options->config, setting, &err) == ERR_NONE;
            break;
        case SET: fine = fake_config_apply_text(&options->config, optarg, &err) == ERR_NONE; break;
        case HELP: fputs(help, stdout); return 1;
        default: fprintf(stderr, "%s: see --help\n", argv[0]); return 3;
        }
        if (!fine) {
            fprintf(stderr, "%s: --%s %s: %s\n", argv[0], longs[option].name, optarg,
                    err.code ? err.text : "not a number in range");
            return 3;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected \"%s\"; see --help\n", argv[0], argv[optind]);
        return 3;
    }
    return 0;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int cli_fake_provider(int argc, char **argv)
{
    struct fake_options options = {
        .listen = "127.0.0.1", .connections_max = 4096, .objects_max = 200000, .requests_max = 65536};
    struct err err = {0};
    struct fake *fake;
    fake_config_init(&options.config);
    int status = read_options(argc, argv, &options);
    if (status)
        return status - 1;
    if (fake_server_new(&options, &fake, &err)) {
        fprintf(stderr, "%s: %s\n", argv[0], err.text);
        return 1;
    }
    catch_signals();
    printf("{\"ready\":true,\"port\":%u,\"url\":\"http://%s:%u\",\"pid\":%d}\n", fake->port, options.listen, fake->port,
           (int)getpid());
    fflush(stdout);
    while (!stop_asked)
        fake_server_round(fake, 100); /* a signal between check and wait is seen after this long */
    fake_server_free(fake);
    return 0;
}
