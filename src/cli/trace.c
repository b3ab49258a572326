#include "cli/cli.h"
#include "cli/command.h"
#include "cli/timeline.h"
#include "cli/view.h"

#include "base/env.h"

const struct cli_command cli_trace_command = {
    .name = "trace",
    .operands = "OP",
    .summary = "show the whole life of one operation",
    .text = "Who asked for what, every move of its state, every request on the wire and how it ended, incidents,\n"
            "and what to do next.",
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_trace,
};

/* GET /v1/operations/{id}suffix; NULL when *code says why not. */
static const struct json *fetch(struct client *client, const struct cli_args *args, const char *suffix,
                                struct arena *arena, int *code)
{
    struct client_answer answer;
    struct buf path;
    bool asked;
    buf_init(&path, 0);
    buf_add_text(&path, "/v1/operations/");
    client_escape(&path, args->operands[0]);
    buf_add_text(&path, suffix);
    struct client_request request = {.method = "GET", .path = path.p};
    *code = view_ask(client, &request, arena, &answer, NULL, &asked);
    const struct json *found = asked && view_success(&answer, args->json, code) ? answer.json : NULL;
    buf_release(&path);
    return found;
}

static void print_json(const struct trace *trace)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_name(&out, "operation");
    json_out_value(&out, trace->operation);
    json_out_name(&out, "events");
    json_out_value(&out, trace->events);
    json_out_name(&out, "attempts");
    json_out_value(&out, trace->attempts);
    json_out_end_object(&out);
    printf("%s\n", text.p);
    buf_release(&text);
}

/* The array in an answer {"name": […]}; an empty one when it is not there. */
static const struct json *list_of(const struct json *answer, const char *name, struct arena *arena)
{
    const struct json *list = json_get(answer, name);
    return list && list->type == JSON_ARRAY ? list : json_array(arena);
}

static int trace(const struct cli_args *args, struct client *client, struct arena *arena)
{
    struct trace trace = {0};
    struct out out;
    int code;
    /* The operation last: what it says is at least as new as its events. */
    const struct json *events = fetch(client, args, "/events", arena, &code);
    const struct json *attempts = events ? fetch(client, args, "/attempts", arena, &code) : NULL;
    trace.operation = attempts ? fetch(client, args, "", arena, &code) : NULL;
    if (!trace.operation)
        return code;
    trace.events = list_of(events, "events", arena);
    trace.attempts = list_of(attempts, "attempts", arena);
    if (args->json) {
        print_json(&trace);
    } else {
        out_init(&out, stdout);
        trace_print(&out, &trace, env_system()->now_ms(env_system()));
    }
    return CLI_OK;
}

int cli_trace(int argc, char **argv)
{
    struct cli_args args;
    struct arena arena;
    struct client *client = NULL;
    struct err err = {0};
    int code = CLI_USAGE;
    cli_args_init(&args, &cli_trace_command, argc, argv);
    int option = cli_args_next(&args);
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    arena_init(&arena);
    if (client_new(&args.connection, &client, &err))
        view_error(&err);
    else
        code = trace(&args, client, &arena);
    client_free(client);
    arena_release(&arena);
    return code;
}
