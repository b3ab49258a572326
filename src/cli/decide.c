#include "cli/decide.h"

#include "base/env.h"
#include "cli/cli.h"
#include "cli/view.h"

#include <errno.h>
#include <stdlib.h>

enum { NOTE = 'n', VERSION = 256 };

const struct cli_option decision_options[] = {
    {NOTE, "note", "TEXT", NULL, "why; is kept with your name"},
    {VERSION, "version", "N", NULL, "refuse when the operation has moved on since this version"},
    {0},
};

bool decision_version(const struct cli_command *command, const char *text, int64_t *version)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || end == text || value < 1) {
        cli_usage(command, "--version %s: expected the number that onced show tells", text);
        return false;
    }
    *version = value;
    return true;
}

static void decision_body(const struct decision *decision, int64_t version, struct buf *buf)
{
    struct json_out out;
    json_out_init(&out, buf);
    json_out_object(&out);
    json_out_member_int(&out, "version", version);
    if (decision->resolves) {
        json_out_member_bool(&out, "happened", decision->happened);
        if (decision->retry)
            json_out_member_bool(&out, "retry", true);
        json_out_member_text(&out, "external_id", decision->external_id);
        if (decision->result) {
            json_out_name(&out, "result");
            json_out_raw(&out, str_of(decision->result));
        }
    }
    json_out_member_text(&out, "note", decision->note);
    json_out_end_object(&out);
}

static void decision_saw(const struct json *operation, int64_t version)
{
    struct arena arena;
    struct out out;
    arena_init(&arena);
    out_init(&out, stdout);
    struct str status = json_get_text(operation, "status"), reason = json_get_text(operation, "reason");
    struct str since = view_time(&arena, operation, "updated_at", env_system()->now_ms(env_system()));
    out_printf(&out, "saw ");
    out_str(&out, OUT_BOLD, json_get_text(operation, "tool"));
    out_printf(&out, " ");
    out_str(&out, OUT_PLAIN, json_get_text(operation, "operation_id"));
    out_printf(&out, " in ");
    out_str(&out, view_state_style(status), status);
    if (reason.n > 0) {
        out_printf(&out, " (");
        out_str(&out, OUT_PLAIN, reason);
        out_printf(&out, ")");
    }
    out_printf(&out, ", version %lld, since ", (long long)version);
    out_str(&out, OUT_PLAIN, since);
    out_printf(&out, "\n");
    arena_release(&arena);
}

static int decision_send(struct client *client, const struct cli_args *args, const struct decision *decision,
                         int64_t version, struct arena *arena)
{
    static const char lost[] = "The decision may have been taken: look at the operation before you repeat it.";
    struct buf body, path;
    struct client_answer answer;
    struct out out;
    bool asked;
    buf_init(&body, 0);
    buf_init(&path, 0);
    decision_body(decision, version, &body);
    buf_add_text(&path, "/v1/operations/");
    client_escape(&path, decision->operation);
    buf_printf(&path, "/%s", decision->verb);
    struct client_request request = {.method = "POST", .path = path.p, .body = buf_str(&body)};
    int code = view_ask(client, &request, arena, &answer, lost, &asked);
    if (asked && view_success(&answer, args->json, &code)) {
        out_init(&out, stdout);
        if (args->json)
            view_raw(&answer);
        else
            view_operation(&out, answer.json, answer.replayed);
        code = CLI_OK;
    }
    buf_release(&body);
    buf_release(&path);
    return code;
}

/* The operation as it is now; NULL when *code says why not. */
static const struct json *decision_look(struct client *client, const struct cli_args *args, const char *operation,
                                        struct arena *arena, int *code)
{
    struct buf path;
    struct client_answer answer;
    bool asked;
    buf_init(&path, 0);
    buf_add_text(&path, "/v1/operations/");
    client_escape(&path, operation);
    struct client_request request = {.method = "GET", .path = path.p};
    *code = view_ask(client, &request, arena, &answer, NULL, &asked);
    const struct json *found = asked && view_success(&answer, args->json, code) ? answer.json : NULL;
    buf_release(&path);
    return found;
}

static bool result_valid(const struct decision *decision, struct arena *arena)
{
    struct err err = {0};
    struct json *value;
    if (!decision->result || json_parse(arena, str_of(decision->result), NULL, &value, &err) == ERR_NONE)
        return true;
    err_prefix(&err, "--result: ");
    view_error(&err);
    return false;
}

int decision_run(const struct cli_args *args, const struct decision *decision)
{
    struct arena arena;
    struct client *client = NULL;
    struct err err = {0};
    int code = CLI_USAGE;
    arena_init(&arena);
    if (!result_valid(decision, &arena))
        goto out;
    if (client_new(&args->connection, &client, &err)) {
        view_error(&err);
        goto out;
    }
    const struct json *operation = decision_look(client, args, decision->operation, &arena, &code);
    if (!operation)
        goto out;
    int64_t version = decision->version > 0 ? decision->version : json_get_int(operation, "version", 0);
    if (!args->json)
        decision_saw(operation, version);
    code = decision_send(client, args, decision, version, &arena);
out:
    client_free(client);
    arena_release(&arena);
    return code;
}

int decision_main(int argc, char **argv, const struct cli_command *command)
{
    struct cli_args args;
    struct decision decision = {.verb = command->name};
    int option;
    cli_args_init(&args, command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (option == NOTE)
            decision.note = args.value;
        else if (!decision_version(command, args.value, &decision.version))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    decision.operation = args.operands[0];
    return decision_run(&args, &decision);
}
