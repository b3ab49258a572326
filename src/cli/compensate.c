/* onced compensate: undoes what an operation did, by a playbook of its tool (design 10.1). */
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/decide.h"
#include "cli/view.h"

#include "base/units.h"

enum { NOTE = 'n', WAIT = 'w', VERSION = 256, PLAN = 257 };

#define WAIT_MAX_MS 120000

static const struct cli_option options[] = {
    {NOTE, "note", "TEXT", NULL, "why; is kept with both operations"},
    {WAIT, "wait", "DURATION", NULL, "wait this long for its end (default 20s, 0 = not at all)"},
    {VERSION, "version", "N", NULL, "refuse when the operation has moved on since this version"},
    {PLAN, "dry-run", NULL, NULL, "say what would be done, and do nothing"},
    {0},
};

const struct cli_command cli_compensate_command = {
    .name = "compensate",
    .operands = "OP PLAYBOOK",
    .summary = "undo what an operation did, by a playbook of its tool",
    .text =
        "A playbook (compensation in the registry file) says by which tool and with which arguments. What it makes is "
        "an operation of its own, which is shown; asked for twice, it is done once. Exit status 0 when it is undone, "
        "1 when it is not, 3 when that is not known yet.",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_compensate,
};

struct undo_wish {
    const char *operation, *playbook, *note;
    int64_t version, wait_ms;
    bool plan;
};

static void wish_body(const struct undo_wish *wish, struct buf *body)
{
    struct json_out out;
    json_out_init(&out, body);
    json_out_object(&out);
    json_out_member_text(&out, "playbook", wish->playbook);
    if (wish->version)
        json_out_member_int(&out, "version", wish->version);
    if (wish->note)
        json_out_member_text(&out, "reason", wish->note);
    json_out_member_int(&out, "wait_ms", wish->wait_ms);
    if (wish->plan)
        json_out_member_bool(&out, "dry_run", true);
    json_out_end_object(&out);
}

static int show(const struct cli_args *args, const struct undo_wish *wish, const struct client_answer *answer)
{
    struct out out;
    out_init(&out, stdout);
    if (args->json)
        view_raw(answer);
    else if (wish->plan)
        out_json(&out, answer->json, 0);
    else
        view_operation(&out, answer->json, answer->replayed);
    return wish->plan ? CLI_OK : view_operation_exit(answer->json);
}

static int undo(const struct cli_args *args, const struct undo_wish *wish)
{
    static const char lost[] = "It may have been begun: look at the operation, or ask again; it is done once.";
    struct buf body, path;
    struct client *client = NULL;
    struct client_answer answer;
    struct arena arena;
    struct err err = {0};
    bool asked;
    int code = CLI_USAGE;
    buf_init(&body, 0);
    buf_init(&path, 0);
    arena_init(&arena);
    if (client_new(&args->connection, &client, &err)) {
        view_error(&err);
        goto out;
    }
    wish_body(wish, &body);
    buf_add_text(&path, "/v1/operations/");
    client_escape(&path, wish->operation);
    buf_add_text(&path, "/compensate");
    struct client_request request = {
        .method = "POST", .path = path.p, .body = buf_str(&body), .wait_ms = wish->wait_ms};
    code = view_ask(client, &request, &arena, &answer, lost, &asked);
    if (asked && view_success(&answer, args->json, &code))
        code = show(args, wish, &answer);
out:
    client_free(client);
    arena_release(&arena);
    buf_release(&body);
    buf_release(&path);
    return code;
}

static bool read_wait(const char *text, int64_t *ms)
{
    struct err err = {0};
    if (units_duration_ms(str_of(text), ms, &err) == ERR_NONE && *ms >= 0 && *ms <= WAIT_MAX_MS)
        return true;
    cli_usage(&cli_compensate_command, "--wait %s: expected a duration up to 2m (10s)", text);
    return false;
}

int cli_compensate(int argc, char **argv)
{
    struct cli_args args;
    struct undo_wish wish = {.wait_ms = 20000};
    int option;
    cli_args_init(&args, &cli_compensate_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (option == NOTE)
            wish.note = args.value;
        else if (option == PLAN)
            wish.plan = true;
        else if (option == WAIT ? !read_wait(args.value, &wish.wait_ms)
                                : !decision_version(&cli_compensate_command, args.value, &wish.version))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 2, 2))
        return CLI_USAGE;
    wish.operation = args.operands[0];
    wish.playbook = args.operands[1];
    return undo(&args, &wish);
}
