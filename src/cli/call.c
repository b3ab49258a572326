#include "cli/call_body.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/view.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

enum {
    ARG = 'a',
    KEY = 'k',
    ARGS = 256,
    ARGS_FILE,
    RUN,
    STEP,
    SESSION,
    CALL,
    WORKFLOW,
    ASYNC,
    WAIT,
    NOT_BEFORE,
    DRY_RUN,
    REPEAT_OF,
    DISTINCT_FROM,
    OVERRIDE_REASON
};

static const struct cli_option options[] = {
    {ARG, "arg", "NAME=VALUE", NULL, "one argument; a value that is JSON is taken as JSON, else as text"},
    {ARGS, "args", "JSON", NULL, "all arguments as one JSON object; --arg changes single ones"},
    {ARGS_FILE, "args-file", "FILE", NULL, "the same from a file; - is standard input"},
    {KEY, "key", "KEY", NULL, "idempotency key: the same for every repetition of the same intent"},
    {RUN, "run", "ID", NULL, "the workflow run that this call belongs to"},
    {STEP, "step", "ID", NULL, "the step within the run"},
    {SESSION, "session", "ID", NULL, "the session within which --call-id is unique"},
    {CALL, "call-id", "ID", NULL, "the caller's own id of this call, kept across its repetitions"},
    {WORKFLOW, "workflow", "NAME", NULL, "name of the workflow, for people"},
    {ASYNC, "async", NULL, NULL, "return as soon as the operation is recorded"},
    {WAIT, "wait", "DURATION", NULL, "wait this long for the end (10s, 2m; default: as the tool says)"},
    {NOT_BEFORE, "not-before", "TIME", NULL, "do not send before this time (2026-12-01T00:00:00Z)"},
    {DRY_RUN, "dry-run", NULL, NULL, "tell what would happen; nothing is recorded or sent"},
    {REPEAT_OF, "repeat-of", "OP", NULL, "do it once more on purpose: the operation that it repeats"},
    {DISTINCT_FROM, "distinct-from", "OP", NULL, "this is another intent than that unresolved operation"},
    {OVERRIDE_REASON, "override-reason", "TEXT", NULL, "why it is done again within its window, where that is allowed"},
    {0},
};

const struct cli_command cli_call_command = {
    .name = "call",
    .operands = "TOOL",
    .summary = "call a tool, at most once per intent",
    .text = "The exit code says what is known: 0 it happened, 1 it did not, 3 it is not decided yet. Repeating the\n"
            "same command with the same --key is always safe.",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_call,
};

static bool bad(const struct err *err)
{
    cli_usage(&cli_call_command, "%s", err->text);
    return false;
}

static bool take_wait(struct call_body *body, const char *text)
{
    struct err err = {0};
    if (units_duration_ms(str_of(text), &body->wait_ms, &err)) {
        err_prefix(&err, "--wait: ");
        return bad(&err);
    }
    return true;
}

/* False when a message was printed. */
static bool take(struct call_body *body, int option, const char *value)
{
    struct err err = {0};
    switch (option) {
    case ARG: return call_body_arg(body, value, &err) ? bad(&err) : true;
    case ARGS: return call_body_args(body, str_of(value), &err) ? bad(&err) : true;
    case ARGS_FILE: return call_body_args_file(body, value, &err) ? bad(&err) : true;
    case DISTINCT_FROM: return call_body_distinct(body, value, &err) ? bad(&err) : true;
    case WAIT: return take_wait(body, value);
    case KEY: body->key = value; break;
    case RUN: body->run = value; break;
    case STEP: body->step = value; break;
    case SESSION: body->session = value; break;
    case CALL: body->call = value; break;
    case WORKFLOW: body->workflow = value; break;
    case NOT_BEFORE: body->not_before = value; break;
    case REPEAT_OF: body->repeat_of = value; break;
    case OVERRIDE_REASON: body->override_reason = value; break;
    case ASYNC: body->async = true; break;
    case DRY_RUN: body->dry_run = true; break;
    }
    return true;
}

/* 0 = go on, else exit code + 1. */
static int read_line(struct cli_args *args, struct call_body *body)
{
    int option;
    while ((option = cli_args_next(args)) > 0) {
        if (!take(body, option, args->value))
            return CLI_USAGE + 1;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK + 1;
    if (option == CLI_ARGS_BAD || !cli_args_operands(args, 1, 1))
        return CLI_USAGE + 1;
    body->tool = args->operands[0];
    return 0;
}

static int plan(struct client *client, const struct cli_args *args, const struct client_request *request,
                struct arena *arena)
{
    struct client_answer answer;
    struct out out;
    bool asked;
    int code = view_ask(client, request, arena, &answer, NULL, &asked);
    if (!asked || !view_success(&answer, args->json, &code))
        return code;
    if (args->json) {
        view_raw(&answer);
        return CLI_OK;
    }
    out_init(&out, stdout);
    out_text(&out, OUT_BOLD, "This would happen; nothing was recorded, nothing was sent:");
    out_printf(&out, "\n");
    out_json(&out, answer.json, 2);
    return CLI_OK;
}

static int dry_run(const struct cli_args *args, const struct client_request *request, struct arena *arena)
{
    struct client *client = NULL;
    struct err err = {0};
    if (client_new(&args->connection, &client, &err)) {
        view_error(&err);
        return CLI_USAGE;
    }
    int code = plan(client, args, request, arena);
    client_free(client);
    return code;
}

int cli_call(int argc, char **argv)
{
    static const char lost[] =
        "The call may have been taken. Do not call under another key: the same command again tells what became of it.";
    static const char *const async_header[] = {"Prefer: respond-async"};
    struct arena arena;
    struct buf text;
    struct cli_args args;
    struct call_body body;
    arena_init(&arena);
    buf_init(&text, 0);
    call_body_init(&body, &arena);
    cli_args_init(&args, &cli_call_command, argc, argv);
    int code = read_line(&args, &body);
    if (code) {
        code--;
        goto out;
    }
    call_body_write(&body, &text);
    struct client_request request = {.method = "POST", .path = "/v1/calls", .body = buf_str(&text)};
    request.wait_ms = body.wait_ms >= 0 ? body.wait_ms : CALL_WAIT_MS_MAX;
    request.headers = async_header;
    request.header_count = body.async ? 1 : 0;
    if (body.dry_run)
        code = dry_run(&args, &request, &arena);
    else
        code = view_operation_command(&args, &request, lost, true);
out:
    buf_release(&text);
    arena_release(&arena);
    return code;
}
