#include "cli/cli.h"
#include "cli/command.h"
#include "cli/view.h"

#include "base/env.h"

enum { ALL = 'a' };

static const struct cli_option options[] = {
    {ALL, "all", NULL, NULL, "acknowledged ones too"},
    {0},
};

const struct cli_command cli_incidents_command = {
    .name = "incidents",
    .operands = "[ack INCIDENT]",
    .words = "ack",
    .summary = "list what operators must know, or acknowledge one",
    .text = "duplicate_effect: the provider shows more than one effect. late_landing: closed as not happened, and it\n"
            "did. wrong_object: the provider answered with something else. contradiction: evidence that cannot be.",
    .options = options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_incidents,
};

static void print_list(const struct json *incidents, struct arena *arena)
{
    static const char *const heads[] = {"INCIDENT", "KIND", "OPERATION", "AGE", "ACKNOWLEDGED", "NOTE"};
    int64_t now_ms = env_system()->now_ms(env_system()), ms;
    struct out_table table;
    struct out out;
    out_init(&out, stdout);
    if (!incidents || incidents->type != JSON_ARRAY || incidents->count == 0) {
        out_printf(&out, "no incidents\n");
        return;
    }
    out_table_init(&table, arena, heads, sizeof heads / sizeof heads[0]);
    for (uint32_t i = 0; i < incidents->count; i++) {
        const struct json *incident = &incidents->items[i];
        struct out_cell *cells = out_table_row(&table);
        char span[OUT_SPAN_SIZE] = "";
        struct str by = json_get_text(incident, "acknowledged_by");
        if (out_parse_time(json_get_text(incident, "at"), &ms))
            out_span(now_ms - ms, span);
        cells[0].text = json_get_text(incident, "id");
        cells[1] = (struct out_cell){json_get_text(incident, "kind"), by.n > 0 ? OUT_PLAIN : OUT_RED};
        cells[2].text = json_get_text(incident, "operation_id");
        cells[3].text = str_of(arena_copy_text(arena, span));
        cells[4].text = by.n > 0 ? by : STR("open");
        cells[5].text = json_get_text(incident, "note");
    }
    out_table_print(&out, &table);
}

static int run(const struct cli_args *args, struct client *client, bool all, struct arena *arena)
{
    struct client_answer answer;
    struct out out;
    bool asked, acknowledge = args->operand_count == 2;
    struct buf path;
    buf_init(&path, 0);
    if (acknowledge) {
        buf_add_text(&path, "/v1/incidents/");
        client_escape(&path, args->operands[1]);
        buf_add_text(&path, "/acknowledge");
    } else {
        buf_add_text(&path, all ? "/v1/incidents" : "/v1/incidents?open=true");
    }
    struct client_request request = {.method = acknowledge ? "POST" : "GET", .path = path.p};
    if (acknowledge)
        request.body = STR("{}");
    int code = view_ask(client, &request, arena, &answer, "The same command again is harmless.", &asked);
    if (asked && view_success(&answer, args->json, &code)) {
        code = CLI_OK;
        if (args->json) {
            view_raw(&answer);
        } else if (acknowledge) {
            out_init(&out, stdout);
            out_str(&out, OUT_PLAIN, json_get_text(answer.json, "id"));
            out_printf(&out, " acknowledged by ");
            out_str(&out, OUT_PLAIN, json_get_text(answer.json, "acknowledged_by"));
            out_printf(&out, "\n");
        } else {
            print_list(json_get(answer.json, "incidents"), arena);
        }
    }
    buf_release(&path);
    return code;
}

int cli_incidents(int argc, char **argv)
{
    struct cli_args args;
    struct arena arena;
    struct client *client = NULL;
    struct err err = {0};
    bool all = false;
    int option, code = CLI_USAGE;
    cli_args_init(&args, &cli_incidents_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0)
        all = true;
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 2))
        return CLI_USAGE;
    if (args.operand_count > 0 && (args.operand_count < 2 || strcmp(args.operands[0], "ack") != 0))
        return cli_usage(&cli_incidents_command, "expected nothing or: ack INCIDENT");
    arena_init(&arena);
    if (client_new(&args.connection, &client, &err))
        view_error(&err);
    else
        code = run(&args, client, all, &arena);
    client_free(client);
    arena_release(&arena);
    return code;
}
