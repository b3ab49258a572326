#include "cli/cli.h"
#include "cli/command.h"
#include "cli/view.h"

#include "base/env.h"

enum { SOURCE = 's', UNMATCHED = 'u', OPERATION = 'o', UNDELIVERED = 'd' };

static const struct cli_option options[] = {
    {SOURCE, "source", "NAME", NULL, "only events of this source"},
    {UNMATCHED, "unmatched", NULL, NULL, "only those that no operation has taken"},
    {OPERATION, "operation", "OPERATION", NULL, "only those that were applied to it"},
    {UNDELIVERED, "undelivered", NULL, NULL, "only those that did not reach the application's endpoint"},
    {0},
};

const struct cli_command cli_inbox_command = {
    .name = "inbox",
    .operands = "[show EVENT | forward EVENT | counts]",
    .words = "show forward counts",
    .summary = "list what providers told (webhooks), show one event, send one on again, or count them",
    .text = "waiting: no operation has taken it yet. applied: part of its operation's history. ignored: the source's\n"
            "rules say that it is of no interest. Newest first.\n"
            "forward: an undelivered event goes to the application once more (inbox.NAME.forward), under the same\n"
            "webhook-id.",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_inbox,
};

static struct out_cell span_cell(struct arena *arena, struct str time, int64_t now_ms)
{
    char span[OUT_SPAN_SIZE] = "";
    int64_t ms;
    if (out_parse_time(time, &ms))
        out_span(now_ms - ms, span);
    return (struct out_cell){str_of(arena_copy_text(arena, span)), OUT_PLAIN};
}

static void print_list(const struct json *events, struct arena *arena)
{
    static const char *const heads[] = {"ID", "SOURCE", "EVENT", "TYPE", "AGE", "STATUS", "OUTCOME", "ABOUT"};
    int64_t now_ms = env_system()->now_ms(env_system());
    struct out_table table;
    struct out out;
    out_init(&out, stdout);
    if (!events || events->type != JSON_ARRAY || events->count == 0) {
        out_printf(&out, "no events\n");
        return;
    }
    out_table_init(&table, arena, heads, sizeof heads / sizeof heads[0]);
    for (uint32_t i = 0; i < events->count; i++) {
        const struct json *event = &events->items[i];
        struct out_cell *cells = out_table_row(&table);
        struct str operation = json_get_text(event, "operation"), status = json_get_text(event, "status");
        cells[0].text = json_get_text(event, "id");
        cells[1].text = json_get_text(event, "source");
        cells[2].text = json_get_text(event, "event");
        cells[3].text = json_get_text(event, "type");
        cells[4] = span_cell(arena, json_get_text(event, "received"), now_ms);
        cells[5] = (struct out_cell){status, str_is(status, "waiting") ? OUT_RED : OUT_PLAIN};
        cells[6].text = json_get_text(event, "outcome");
        cells[7].text = operation.n > 0 ? operation : json_get_text(event, "value");
    }
    out_table_print(&out, &table);
}

static void print_counts(const struct json *sources, struct arena *arena)
{
    static const char *const names[] = {"source", "events", "duplicates", "applied", "ignored", "waiting", "dropped"};
    static const char *const heads[] = {"SOURCE", "EVENTS", "DUPLICATES", "APPLIED", "IGNORED", "WAITING", "DROPPED"};
    struct out_table table;
    struct out out;
    out_init(&out, stdout);
    if (!sources || sources->type != JSON_ARRAY || sources->count == 0) {
        out_printf(&out, "no events\n");
        return;
    }
    out_table_init(&table, arena, heads, sizeof heads / sizeof heads[0]);
    for (uint32_t i = 0; i < sources->count; i++) {
        struct out_cell *cells = out_table_row(&table);
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            const struct json *value = json_get(&sources->items[i], names[k]);
            if (value)
                cells[k].text = value->text;
        }
    }
    out_table_print(&out, &table);
}

static void print_forward(const struct json *event)
{
    const struct json *forward = json_get(event, "forward");
    struct out out;
    out_init(&out, stdout);
    if (!forward)
        return;
    struct str status = json_get_text(forward, "status"), failure = json_get_text(forward, "last_failure");
    out_printf(&out, "%-16s%.*s after %.*s tries", "forward", STR_ARG(status),
               STR_ARG(json_get(forward, "tries")->text));
    if (failure.n > 0) {
        out_printf(&out, ": ");
        out_str(&out, OUT_PLAIN, failure);
    }
    out_printf(&out, "\n");
}

static void print_event(const struct json *event)
{
    struct out out;
    out_init(&out, stdout);
    for (uint32_t i = 0; i < event->count; i++) {
        const struct json_member *member = &event->members[i];
        if (str_is(member->name, "body") || (member->value.type != JSON_STRING && member->value.type != JSON_NUMBER))
            continue;
        out_printf(&out, "%-16.*s", STR_ARG(member->name));
        out_str(&out, OUT_PLAIN, member->value.text);
        out_printf(&out, "\n");
    }
    print_forward(event);
    if (!json_get(event, "body"))
        return;
    out_printf(&out, "\n");
    out_str(&out, OUT_PLAIN, json_get_text(event, "body"));
    out_printf(&out, "\n");
}

static void add_filter(struct buf *path, const char *name, const char *value)
{
    if (!value)
        return;
    buf_add_char(path, strchr(buf_str(path).p, '?') ? '&' : '?');
    buf_add_text(path, name);
    buf_add_char(path, '=');
    client_escape(path, value);
}

enum view { LIST, SHOW, FORWARD, COUNTS };

static void make_path(const struct cli_args *args, enum view view, const char *const *filters, struct buf *path)
{
    switch (view) {
    case LIST:
        buf_add_text(path, "/v1/inbox");
        add_filter(path, "source", filters[0]);
        add_filter(path, "operation", filters[1]);
        add_filter(path, "status", filters[2]);
        add_filter(path, "forward", filters[3]);
        break;
    case SHOW:
    case FORWARD:
        buf_add_text(path, "/v1/inbox/");
        client_escape(path, args->operands[1]);
        buf_add_text(path, view == FORWARD ? "/forward" : "");
        break;
    case COUNTS: buf_add_text(path, "/v1/inbox-counts"); break;
    }
}

static int run(const struct cli_args *args, struct client *client, enum view view, const char *const *filters,
               struct arena *arena)
{
    struct client_answer answer;
    bool asked;
    struct buf path;
    buf_init(&path, 0);
    make_path(args, view, filters, &path);
    struct client_request request = {.method = view == FORWARD ? "POST" : "GET", .path = path.p};
    int code = view_ask(client, &request, arena, &answer, "The same command again is harmless.", &asked);
    if (asked && view_success(&answer, args->json, &code)) {
        code = CLI_OK;
        if (args->json)
            view_raw(&answer);
        else if (view == LIST)
            print_list(json_get(answer.json, "events"), arena);
        else if (view == COUNTS)
            print_counts(json_get(answer.json, "sources"), arena);
        else
            print_event(answer.json);
    }
    buf_release(&path);
    return code;
}

/* False: told what was expected. */
static bool choose_view(const struct cli_args *args, bool filtered, enum view *out)
{
    *out = LIST;
    if (args->operand_count == 0)
        return true;
    if (args->operand_count == 2 && strcmp(args->operands[0], "show") == 0)
        *out = SHOW;
    else if (args->operand_count == 2 && strcmp(args->operands[0], "forward") == 0)
        *out = FORWARD;
    else if (args->operand_count == 1 && strcmp(args->operands[0], "counts") == 0)
        *out = COUNTS;
    if (*out != LIST && !filtered)
        return true;
    cli_usage(&cli_inbox_command, "expected nothing, show EVENT, forward EVENT, or counts; options belong to the list");
    return false;
}

int cli_inbox(int argc, char **argv)
{
    struct cli_args args;
    struct arena arena;
    struct client *client = NULL;
    struct err err = {0};
    const char *filters[4] = {NULL, NULL, NULL, NULL};
    bool filtered = false;
    enum view view;
    int option, code = CLI_USAGE;
    cli_args_init(&args, &cli_inbox_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        filtered = true;
        if (option == UNMATCHED)
            filters[2] = "waiting";
        else if (option == UNDELIVERED)
            filters[3] = "undelivered";
        else
            filters[option == SOURCE ? 0 : 1] = args.value;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 2) || !choose_view(&args, filtered, &view))
        return CLI_USAGE;
    arena_init(&arena);
    if (client_new(&args.connection, &client, &err))
        view_error(&err);
    else
        code = run(&args, client, view, filters, &arena);
    client_free(client);
    arena_release(&arena);
    return code;
}
