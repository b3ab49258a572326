/* onced pending, approve, deny: what waits for people, and what they say (design 8). */
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/decide.h"
#include "cli/list_page.h"
#include "cli/view.h"

#include "base/env.h"

#include <stdlib.h>

enum { NOTE = 'n', TOOL = 't', LIMIT = 'l', VERSION = 256 };

/* ---- pending ---- */

static const struct cli_option pending_options[] = {
    {TOOL, "tool", "TOOL", NULL, "only of this tool"},
    {LIMIT, "limit", "N", NULL, "at most this many (default 20)"},
    {0},
};

const struct cli_command cli_pending_command = {
    .name = "pending",
    .operands = "[OP]",
    .summary = "list what waits for approval, newest first; of OP show what it rests on",
    .text = "With OP: its arguments, the request that would be sent with secrets masked, what came before under its "
            "key, and what was done lately with the entities that it works on.",
    .options = pending_options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_pending,
};

static void print_pending(struct out *out, const struct json *operation, struct arena *arena)
{
    const struct json *approval = json_get(operation, "approval"), *arguments = json_get(operation, "arguments");
    int64_t now_ms = env_system()->now_ms(env_system());
    out_str(out, OUT_BOLD, json_get_text(operation, "operation_id"));
    out_printf(out, "  ");
    out_str(out, OUT_PLAIN, json_get_text(operation, "tool"));
    out_printf(out, "  called by ");
    out_str(out, OUT_PLAIN, json_get_text(operation, "principal"));
    out_printf(out, "\n");
    out_field(out, "asked", view_time(arena, operation, "created_at", now_ms));
    if (approval) {
        out_field(out, "approved",
                  str_of(arena_printf(arena, "%lld of %lld", (long long)json_get_int(approval, "given", 0),
                                      (long long)json_get_int(approval, "needed", 0))));
        out_field(out, "until", view_time(arena, approval, "expires_at", now_ms));
    }
    if (arguments && arguments->type == JSON_OBJECT) {
        out_printf(out, "  ");
        out_text(out, OUT_DIM, "arguments");
        out_printf(out, "\n");
        out_json(out, arguments, 4);
    }
}

static int print_page(const struct cli_args *args, const struct list_page *page, struct arena *arena)
{
    struct out out;
    if (args->json) {
        list_print_json(page, stdout);
        return CLI_OK;
    }
    out_init(&out, stdout);
    if (page->operations->count == 0)
        out_printf(&out, "nothing waits for approval\n");
    for (uint32_t i = 0; i < page->operations->count; i++)
        print_pending(&out, &page->operations->items[i], arena);
    if (page->operations->count > 0)
        out_printf(&out, "\nonced approve OP   or   onced deny OP --note 'why'\n");
    if (page->more)
        out_printf(&out, "there are more: --limit\n");
    return CLI_OK;
}

/* ---- one of them ---- */

static void print_before(struct out *out, const struct json *list, const char *title, struct arena *arena)
{
    int64_t now_ms = env_system()->now_ms(env_system());
    if (!list || list->type != JSON_ARRAY || list->count == 0)
        return;
    out_printf(out, "  ");
    out_str(out, OUT_DIM, str_of(title));
    out_printf(out, "\n");
    for (uint32_t i = 0; i < list->count; i++) {
        const struct json *item = &list->items[i];
        struct str status = json_get_text(item, "status"), tool = json_get_text(item, "tool");
        out_printf(out, "    ");
        out_str(out, OUT_PLAIN, json_get_text(item, "operation_id"));
        out_printf(out, "  ");
        if (tool.p) {
            out_str(out, OUT_PLAIN, tool);
            out_printf(out, "  ");
        }
        out_str(out, view_state_style(status), status);
        out_printf(out, "  ");
        out_str(out, OUT_PLAIN, view_time(arena, item, "at", now_ms));
        out_printf(out, "\n");
    }
}

static void print_view(struct out *out, const struct json *view, struct arena *arena)
{
    const struct json *request = json_get(view, "request"), *entities = json_get(view, "entities");
    print_pending(out, json_get(view, "operation"), arena);
    if (request && request->type == JSON_OBJECT) {
        out_printf(out, "  ");
        out_text(out, OUT_DIM, "would be sent");
        out_printf(out, "\n");
        out_json(out, request, 4);
    }
    print_before(out, json_get(view, "earlier"), "earlier under its key", arena);
    for (uint32_t i = 0; entities && entities->type == JSON_ARRAY && i < entities->count; i++) {
        const struct json *entity = &entities->items[i];
        struct str type = json_get_text(entity, "type"), id = json_get_text(entity, "id");
        print_before(out, json_get(entity, "operations"),
                     arena_printf(arena, "lately with %.*s %.*s", STR_ARG(type), STR_ARG(id)), arena);
    }
}

static int show_pending(const struct cli_args *args, struct client *client, const char *operation, struct arena *arena)
{
    struct buf path;
    struct client_answer answer;
    struct out out;
    bool asked;
    buf_init(&path, 0);
    buf_add_text(&path, "/v1/operations/");
    client_escape(&path, operation);
    buf_add_text(&path, "/approval");
    const struct client_request request = {.method = "GET", .path = path.p};
    int code = view_ask(client, &request, arena, &answer, NULL, &asked);
    if (asked && view_success(&answer, args->json, &code)) {
        out_init(&out, stdout);
        if (args->json)
            view_raw(&answer);
        else
            print_view(&out, answer.json, arena);
        code = CLI_OK;
    }
    buf_release(&path);
    return code;
}

int cli_pending(int argc, char **argv)
{
    struct cli_args args;
    struct list_filter filter = {.reason = "awaiting_approval", .limit = 20};
    struct list_page page;
    struct client *client = NULL;
    struct arena arena;
    struct err err = {0};
    int option;
    cli_args_init(&args, &cli_pending_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        char *end = NULL;
        if (option == TOOL) {
            filter.tool = args.value;
            continue;
        }
        long limit = strtol(args.value, &end, 10);
        if (*end || end == args.value || limit < 1 || limit > LIST_LIMIT_MAX)
            return cli_usage(&cli_pending_command, "--limit %s: expected a number from 1 to %d", args.value,
                             LIST_LIMIT_MAX);
        filter.limit = (size_t)limit;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 1))
        return CLI_USAGE;
    if (client_new(&args.connection, &client, &err)) {
        view_error(&err);
        return CLI_USAGE;
    }
    arena_init(&arena);
    int code = args.operand_count > 0 ? show_pending(&args, client, args.operands[0], &arena)
                                      : list_fetch(client, &filter, args.json, &arena, &page);
    if (code == CLI_OK && args.operand_count == 0)
        code = print_page(&args, &page, &arena);
    arena_release(&arena);
    client_free(client);
    return code;
}

/* ---- approve, deny ---- */

static const struct cli_option approve_options[] = {
    {NOTE, "note", "TEXT", NULL, "kept with your name"},
    {VERSION, "version", "N", NULL, "refuse when the operation has moved on since this version"},
    {0},
};

static const struct cli_option deny_options[] = {
    {NOTE, "note", "TEXT", NULL, "why; required, the caller is told"},
    {VERSION, "version", "N", NULL, "refuse when the operation has moved on since this version"},
    {0},
};

const struct cli_command cli_approve_command = {
    .name = "approve",
    .operands = "OP",
    .summary = "agree that an operation runs",
    .text =
        "The approval is for this operation with its arguments, and used up with it. Whoever called the tool cannot "
        "approve it. Where somebody has decided before, their decision stands and is shown; exit status 1 when it is "
        "another one.",
    .options = approve_options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_approve,
};

const struct cli_command cli_deny_command = {
    .name = "deny",
    .operands = "OP",
    .summary = "refuse, for good, that an operation runs",
    .text = "The same call, made again, gets the refusal with your note. Where somebody has decided before, their "
            "decision stands and is shown; exit status 1 when it is another one.",
    .options = deny_options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_deny,
};

struct verdict_wish {
    const struct cli_command *command;
    const char *operation, *note;
    int64_t version;
};

static void wish_body(const struct verdict_wish *wish, struct buf *body)
{
    struct json_out out;
    json_out_init(&out, body);
    json_out_object(&out);
    json_out_member_text(&out, "via", "cli");
    if (wish->version)
        json_out_member_int(&out, "version", wish->version);
    if (wish->note)
        json_out_member_text(&out, "note", wish->note);
    json_out_end_object(&out);
}

/* Says whose decision counts; another one than was wished for is a failure. */
static int show_verdict(const struct verdict_wish *wish, const struct json *operation, bool json)
{
    const struct json *decision = json_get(operation, "decision");
    struct str said = json_get_text(decision, "decision");
    bool granted = str_is(said, wish->command->name);
    struct arena arena;
    struct out out;
    if (json || !decision)
        return granted ? CLI_OK : CLI_FAILED;
    arena_init(&arena);
    out_init(&out, stdout);
    if (!json_get_bool(decision, "counted", false)) {
        int64_t now_ms = env_system()->now_ms(env_system());
        out_printf(&out, "decided already: ");
        out_str(&out, OUT_BOLD, said);
        out_printf(&out, " by ");
        out_str(&out, OUT_PLAIN, json_get_text(decision, "by"));
        out_printf(&out, ", ");
        out_str(&out, OUT_PLAIN, view_time(&arena, decision, "at", now_ms));
        out_printf(&out, "\n");
    }
    arena_release(&arena);
    return granted ? CLI_OK : CLI_FAILED;
}

static int decide(const struct cli_args *args, const struct verdict_wish *wish)
{
    static const char lost[] =
        "The decision may have been taken: look at the operation, or repeat it; the first counts.";
    struct buf body, path;
    struct client *client = NULL;
    struct client_answer answer;
    struct arena arena;
    struct err err = {0};
    struct out out;
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
    buf_printf(&path, "/%s", wish->command->name);
    struct client_request request = {.method = "POST", .path = path.p, .body = buf_str(&body)};
    code = view_ask(client, &request, &arena, &answer, lost, &asked);
    if (!asked || !view_success(&answer, args->json, &code))
        goto out;
    code = show_verdict(wish, answer.json, args->json);
    out_init(&out, stdout);
    if (args->json)
        view_raw(&answer);
    else
        view_operation(&out, answer.json, answer.replayed);
out:
    client_free(client);
    arena_release(&arena);
    buf_release(&body);
    buf_release(&path);
    return code;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct cli_args args;
    struct verdict_wish wish = {.command = command};
    int option;
    cli_args_init(&args, command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        if (option == NOTE)
            wish.note = args.value;
        else if (!decision_version(command, args.value, &wish.version))
            return CLI_USAGE;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 1, 1))
        return CLI_USAGE;
    if (command == &cli_deny_command && (!wish.note || !wish.note[0]))
        return cli_usage(command, "--note is missing: say why, the caller is told");
    wish.operation = args.operands[0];
    return decide(&args, &wish);
}

int cli_approve(int argc, char **argv)
{
    return run(&cli_approve_command, argc, argv);
}

int cli_deny(int argc, char **argv)
{
    return run(&cli_deny_command, argc, argv);
}
