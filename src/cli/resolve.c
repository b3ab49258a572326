#include "cli/cli.h"
#include "cli/decide.h"

enum { NOTE = 'n', HAPPENED = 256, DID_NOT_HAPPEN, EXTERNAL_ID, RESULT, RETRY, VERSION };

static const struct cli_option options[] = {
    {HAPPENED, "happened", NULL, NULL, "the effect was found at the provider"},
    {DID_NOT_HAPPEN, "did-not-happen", NULL, NULL, "the provider was searched, the effect is not there"},
    {EXTERNAL_ID, "external-id", "ID", NULL, "the provider's id of the effect"},
    {RESULT, "result", "JSON", NULL, "the result that callers get, with --happened"},
    {RETRY, "retry", NULL, NULL, "with --did-not-happen: try again now instead of closing"},
    {NOTE, "note", "TEXT", NULL, "how you know; is kept with your name (required)"},
    {VERSION, "version", "N", NULL, "refuse when the operation has moved on since this version"},
    {0},
};

const struct cli_command cli_resolve_command = {
    .name = "resolve",
    .operands = "OP",
    .summary = "state what really happened to an operation",
    .text = "For operations whose outcome onced could not find out. Look at the provider first: this statement is\n"
            "what callers will be told.\n"
            "Of a multi-step operation whose rollback is stuck at a step: --did-not-happen says that it is undone by\n"
            "hand, --happened that it stays as it is; the rollback goes on then.",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_resolve,
};

static bool take(struct decision *decision, bool *said_not, int option, const char *value)
{
    switch (option) {
    case HAPPENED: decision->happened = true; break;
    case DID_NOT_HAPPEN: *said_not = true; break;
    case EXTERNAL_ID: decision->external_id = value; break;
    case RESULT: decision->result = value; break;
    case RETRY: decision->retry = true; break;
    case NOTE: decision->note = value; break;
    case VERSION: return decision_version(&cli_resolve_command, value, &decision->version);
    }
    return true;
}

/* What the options say together; NULL when it makes sense. */
static const char *contradiction(const struct decision *decision, bool said_not)
{
    if (decision->happened == said_not)
        return "say either --happened or --did-not-happen";
    if (decision->retry && decision->happened)
        return "--retry goes with --did-not-happen only: it would happen twice";
    if (said_not && (decision->external_id || decision->result))
        return "--external-id and --result go with --happened only";
    if (!decision->note || !decision->note[0])
        return "--note is missing: say how you know";
    return NULL;
}

int cli_resolve(int argc, char **argv)
{
    struct cli_args args;
    struct decision decision = {.verb = "resolve", .resolves = true};
    bool said_not = false;
    int option;
    cli_args_init(&args, &cli_resolve_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (!take(&decision, &said_not, option, args.value))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    const char *wrong = contradiction(&decision, said_not);
    if (wrong)
        return cli_usage(&cli_resolve_command, "%s", wrong);
    decision.operation = args.operands[0];
    return decision_run(&args, &decision);
}
