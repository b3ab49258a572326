#include "cli/cli.h"
#include "cli/command.h"
#include "cli/view.h"

#include "base/env.h"

enum { ALL = 'a', TYPE = 't', REASON = 'r' };

static const struct cli_option entity_options[] = {
    {ALL, "all", NULL, NULL, "also those that nobody holds and that have attributes"},
    {TYPE, "type", "TYPE", NULL, "only this type"},
    {REASON, "reason", "TEXT", NULL, "release: why; it is recorded"},
    {0},
};

const struct cli_command cli_entities_command = {
    .name = "entities",
    .operands = "[release TYPE ID]",
    .words = "release",
    .summary = "list what operations hold for themselves, or take one from its holder",
    .text = "release --reason lets the next one in although the holder has not ended: its effect may still happen.",
    .options = entity_options,
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_entities,
};

const struct cli_command cli_budgets_command = {
    .name = "budgets",
    .operands = "",
    .summary = "list how much of each budget is used",
    .shared = CLI_CONNECTS | CLI_JSON,
    .run = cli_budgets,
};

/* One line: name=value, … */
static struct str attributes_text(const struct json *attributes, struct arena *arena)
{
    struct buf text;
    buf_init(&text, 0);
    for (uint32_t i = 0; attributes && attributes->type == JSON_OBJECT && i < attributes->count; i++) {
        const struct json *value = json_get(&attributes->members[i].value, "value");
        if (i > 0)
            buf_add_text(&text, ", ");
        buf_add_str(&text, attributes->members[i].name);
        buf_add_char(&text, '=');
        if (value && value->type == JSON_STRING)
            buf_add_str(&text, value->text);
        else if (value)
            json_write(&text, value);
    }
    struct str kept = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return kept;
}

static void print_entities(const struct json *answer, struct arena *arena)
{
    static const char *const heads[] = {"TYPE", "ID", "OPERATION", "HELD", "WAITING", "ATTRIBUTES"};
    const struct json *entities = json_get(answer, "entities");
    int64_t now_ms = env_system()->now_ms(env_system()), ms;
    struct out_table table;
    struct out out;
    out_init(&out, stdout);
    if (!entities || entities->type != JSON_ARRAY || entities->count == 0) {
        out_printf(&out, "no entities\n");
        return;
    }
    out_table_init(&table, arena, heads, sizeof heads / sizeof heads[0]);
    for (uint32_t i = 0; i < entities->count; i++) {
        const struct json *entity = &entities->items[i];
        struct out_cell *cells = out_table_row(&table);
        char span[OUT_SPAN_SIZE] = "";
        if (out_parse_time(json_get_text(entity, "held_at"), &ms))
            out_span(now_ms - ms, span);
        cells[0].text = json_get_text(entity, "type");
        cells[1].text = json_get_text(entity, "id");
        cells[2].text = json_get_text(entity, "operation_id");
        cells[3].text = str_of(arena_copy_text(arena, span));
        cells[4].text = str_of(arena_printf(arena, "%lld", (long long)json_get_int(entity, "waiting", 0)));
        cells[5].text = attributes_text(json_get(entity, "attributes"), arena);
    }
    out_table_print(&out, &table);
}

static void print_budgets(const struct json *answer, struct arena *arena)
{
    static const char *const heads[] = {"BUDGET", "PRINCIPAL", "KEY", "USED", "LIMIT", "PER"};
    const struct json *budgets = json_get(answer, "budgets");
    struct out_table table;
    struct out out;
    out_init(&out, stdout);
    if (!budgets || budgets->type != JSON_ARRAY || budgets->count == 0) {
        out_printf(&out, "nothing is used of any budget\n");
        return;
    }
    out_table_init(&table, arena, heads, sizeof heads / sizeof heads[0]);
    for (uint32_t i = 0; i < budgets->count; i++) {
        const struct json *budget = &budgets->items[i];
        struct out_cell *cells = out_table_row(&table);
        char span[OUT_SPAN_SIZE] = "";
        out_span(json_get_int(budget, "per_ms", 0), span);
        cells[0].text = json_get_text(budget, "budget");
        cells[1].text = json_get_text(budget, "principal");
        cells[2].text = json_get_text(budget, "key");
        cells[3].text = json_get_text(budget, "used");
        cells[4].text = json_get_text(budget, "limit");
        cells[5].text = str_of(arena_copy_text(arena, span));
    }
    out_table_print(&out, &table);
}

static void print_released(const struct json *answer)
{
    struct out out;
    out_init(&out, stdout);
    out_str(&out, OUT_PLAIN, json_get_text(answer, "type"));
    out_printf(&out, " ");
    out_str(&out, OUT_PLAIN, json_get_text(answer, "id"));
    out_printf(&out, " taken from ");
    out_str(&out, OUT_PLAIN, json_get_text(answer, "operation_id"));
    out_printf(&out, "\n");
}

static int ask_for(const struct cli_args *args, const struct client_request *request,
                   void (*print)(const struct json *answer, struct arena *arena), struct arena *arena)
{
    struct client_answer answer;
    struct client *client = NULL;
    struct err err = {0};
    bool asked;
    if (client_new(&args->connection, &client, &err)) {
        view_error(&err);
        return CLI_USAGE;
    }
    int code = view_ask(client, request, arena, &answer, "The same command again is harmless.", &asked);
    if (asked && view_success(&answer, args->json, &code)) {
        code = CLI_OK;
        if (args->json)
            view_raw(&answer);
        else if (print)
            print(answer.json, arena);
        else
            print_released(answer.json);
    }
    client_free(client);
    return code;
}

static int list_entities(const struct cli_args *args, bool all, const char *type, struct arena *arena)
{
    struct buf path;
    buf_init(&path, 0);
    buf_printf(&path, "/v1/entities?limit=500&all=%s", all ? "true" : "false");
    if (type) {
        buf_add_text(&path, "&type=");
        client_escape(&path, type);
    }
    struct client_request request = {.method = "GET", .path = path.p};
    int code = ask_for(args, &request, print_entities, arena);
    buf_release(&path);
    return code;
}

static int release_entity(const struct cli_args *args, const char *reason, struct arena *arena)
{
    struct buf path, body;
    struct json_out out;
    buf_init(&path, 0);
    buf_init(&body, 0);
    buf_add_text(&path, "/v1/entities/");
    client_escape(&path, args->operands[1]);
    buf_add_char(&path, '/');
    client_escape(&path, args->operands[2]);
    buf_add_text(&path, "/release");
    json_out_init(&out, &body);
    json_out_object(&out);
    json_out_member_text(&out, "reason", reason);
    json_out_end_object(&out);
    struct client_request request = {.method = "POST", .path = path.p, .body = buf_str(&body)};
    int code = ask_for(args, &request, NULL, arena);
    buf_release(&path);
    buf_release(&body);
    return code;
}

int cli_entities(int argc, char **argv)
{
    struct cli_args args;
    struct arena arena;
    const char *type = NULL, *reason = NULL;
    bool all = false;
    int option, code;
    cli_args_init(&args, &cli_entities_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0) {
        all |= option == ALL;
        type = option == TYPE ? args.value : type;
        reason = option == REASON ? args.value : reason;
    }
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 3))
        return CLI_USAGE;
    bool release = args.operand_count > 0;
    if (release && (args.operand_count != 3 || strcmp(args.operands[0], "release") != 0))
        return cli_usage(&cli_entities_command, "expected nothing or: release TYPE ID");
    if (release && (!reason || !reason[0]))
        return cli_usage(&cli_entities_command, "release wants a --reason: who holds it has not ended");
    arena_init(&arena);
    code = release ? release_entity(&args, reason, &arena) : list_entities(&args, all, type, &arena);
    arena_release(&arena);
    return code;
}

int cli_budgets(int argc, char **argv)
{
    struct cli_args args;
    struct arena arena;
    int option;
    cli_args_init(&args, &cli_budgets_command, argc, argv);
    while ((option = cli_args_next(&args)) > 0)
        ;
    if (option == CLI_ARGS_HELP)
        return CLI_OK;
    if (option == CLI_ARGS_BAD || !cli_args_operands(&args, 0, 0))
        return CLI_USAGE;
    arena_init(&arena);
    struct client_request request = {.method = "GET", .path = "/v1/budgets"};
    int code = ask_for(&args, &request, print_budgets, &arena);
    arena_release(&arena);
    return code;
}
