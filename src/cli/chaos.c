/* `onced chaos`: what would this registry do under faults? Simulated (sim/sim.h), nothing is sent. */
#include "cli/chaos_report.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/variables.h"
#include "daemon/config.h"

#include <errno.h>
#include <stdlib.h>

enum { ID_OPERATIONS = 256, ID_FAULTS, ID_RATE, ID_GATEWAYS, ID_SEED, ID_TOOL, ID_ARGUMENTS, ID_HTML, ID_JOBS };

static const struct cli_option options[] = {
    {ID_OPERATIONS, "operations", "N", NULL, "at least as many, spread over the tools (default 10000)"},
    {ID_FAULTS, "faults", "LIST", "contract all", "contract (default), all, or names parted by commas"},
    {ID_RATE, "rate", "PERCENT", NULL, "how often, 1 to 100; without it, it differs from world to world"},
    {ID_GATEWAYS, "gateways", "N", NULL, "daemons on one ledger, 1 to 8 (default 2)"},
    {ID_SEED, "seed", "N", NULL, "equal seeds give equal reports (default 1)"},
    {ID_TOOL, "tool", "NAME", NULL, "only this one; may be given more than once"},
    {ID_ARGUMENTS, "arguments", "FILE", NULL, "example arguments: a mapping of tools to lists of objects"},
    {ID_HTML, "html", "FILE", NULL, "write the report with charts there, too"},
    {ID_JOBS, "jobs", "N", NULL, "worlds at once, 1 to 64 (default 1); the report is the same"},
    {0},
};

const struct cli_command cli_chaos_command = {
    .name = "chaos",
    .operands = "FILE",
    .words = "FILE",
    .summary = "try a registry file under faults and print what became of it",
    .text = "Runs operations of all tools in a simulation: gateways with the real rules and engine, providers that do\n"
            "what the registry file says of them, and faults. Prints duplicate effects, unknown outcomes and other\n"
            "figures (docs/chaos.md). contract means all faults that break no stated contract; all means every fault.\n"
            "Nothing is sent; variables that ${env:NAME} asks for need not be set. Exit status: 0 no duplicate effect\n"
            "beyond the stated contracts, 1 there were some, 2 the files or the command line cannot be used.",
    .options = options,
    .shared = CLI_JSON,
    .run = cli_chaos,
};

#define TOOLS_MAX 256

struct settings {
    struct chaos_options chaos;
    const char *tools[TOOLS_MAX];
    const char *faults_text, *arguments_path, *html_path;
    bool rate_given, json;
    struct arena arena;
};

/* ---- the command line ---- */

static bool read_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < min || value > max)
        return false;
    *out = value;
    return true;
}

static bool add_fault(struct str name, uint64_t *mask)
{
    enum sim_fault fault;
    if (str_is(name, "all"))
        *mask |= SIM_FAULTS_ALL;
    else if (str_is(name, "contract"))
        /* what people decide at any time says nothing of the registry */
        *mask |= sim_faults_within_contract() & ~SIM_FAULT_BIT(SIM_PEOPLE);
    else if (sim_fault_from_name(name, &fault))
        *mask |= SIM_FAULT_BIT(fault);
    else
        return false;
    return true;
}

static int read_faults(struct settings *settings)
{
    for (const char *p = settings->faults_text;; p++) {
        size_t n = strcspn(p, ",");
        if (!add_fault((struct str){p, n}, &settings->chaos.faults)) {
            struct buf names;
            buf_init(&names, 0);
            chaos_fault_names(&names, SIM_FAULTS_ALL);
            int code = cli_usage(&cli_chaos_command, "there is no fault '%.*s'; expected contract, all or some of: %s",
                                 (int)n, p, buf_str(&names).p);
            buf_release(&names);
            return code;
        }
        p += n;
        if (!*p)
            return CLI_OK;
    }
}

static int read_count(int id, const char *value, struct settings *settings)
{
    static const struct {
        int id;
        const char *name;
        uint64_t min, max;
    } counts[] = {
        {ID_OPERATIONS, "operations", 1, 1000000000},
        {ID_RATE, "rate", 1, 100},
        {ID_GATEWAYS, "gateways", 1, 8},
        {ID_SEED, "seed", 0, UINT64_MAX},
        {ID_JOBS, "jobs", 1, 64},
    };
    size_t i = 0;
    uint64_t number = 0;
    while (counts[i].id != id)
        i++;
    if (!read_number(value, counts[i].min, counts[i].max, &number))
        return cli_usage(&cli_chaos_command, "--%s %s: expected a number from %llu to %llu", counts[i].name, value,
                         (unsigned long long)counts[i].min, (unsigned long long)counts[i].max);
    switch (id) {
    case ID_OPERATIONS: settings->chaos.operations = (int64_t)number; break;
    case ID_RATE: settings->chaos.rate = (unsigned)number; break;
    case ID_GATEWAYS: settings->chaos.gateways = (unsigned)number; break;
    case ID_SEED: settings->chaos.seed = number; break;
    case ID_JOBS: settings->chaos.jobs = (unsigned)number; break;
    }
    return CLI_OK;
}

static int read_option(int id, const char *value, struct settings *settings)
{
    switch (id) {
    case ID_FAULTS: settings->faults_text = value; return CLI_OK;
    case ID_ARGUMENTS: settings->arguments_path = value; return CLI_OK;
    case ID_HTML: settings->html_path = value; return CLI_OK;
    case ID_TOOL:
        if (settings->chaos.tool_count == TOOLS_MAX)
            return cli_usage(&cli_chaos_command, "more than %d tools", TOOLS_MAX);
        settings->tools[settings->chaos.tool_count++] = value;
        return CLI_OK;
    }
    return read_count(id, value, settings);
}

/* A word as a shell takes it. */
static void add_word(struct buf *out, const char *text)
{
    if (text[0] &&
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%") == strlen(text)) {
        buf_add_text(out, text);
        return;
    }
    buf_add_char(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            buf_add_text(out, "'\\''");
        else
            buf_add_char(out, *text);
    }
    buf_add_char(out, '\'');
}

/* Everything that the outcome depends on, also what was left to its default. */
static const char *write_command(struct settings *settings)
{
    const struct chaos_options *chaos = &settings->chaos;
    struct buf text;
    buf_init(&text, 0);
    buf_add_text(&text, "onced chaos ");
    add_word(&text, chaos->path);
    buf_printf(&text, " --operations %lld --faults ", (long long)chaos->operations);
    add_word(&text, settings->faults_text);
    if (chaos->rate)
        buf_printf(&text, " --rate %u", chaos->rate);
    buf_printf(&text, " --gateways %u --seed %llu", chaos->gateways, (unsigned long long)chaos->seed);
    for (size_t i = 0; i < chaos->tool_count; i++) {
        buf_add_text(&text, " --tool ");
        add_word(&text, settings->tools[i]);
    }
    if (settings->arguments_path) {
        buf_add_text(&text, " --arguments ");
        add_word(&text, settings->arguments_path);
    }
    const char *command = arena_copy_str(&settings->arena, buf_str(&text));
    buf_release(&text);
    return command;
}

static int read_command_line(struct cli_args *args, struct settings *settings, bool *done)
{
    int option, code = CLI_OK;
    *done = false;
    while ((option = cli_args_next(args)) > 0)
        if ((code = read_option(option, args->value, settings)))
            return code;
    *done = option == CLI_ARGS_HELP;
    if (option != CLI_ARGS_END)
        return *done ? CLI_OK : CLI_USAGE;
    if (!cli_args_operands(args, 1, 1))
        return CLI_USAGE;
    settings->chaos.path = args->operands[0];
    settings->chaos.tools = settings->tools;
    settings->json = args->json;
    if ((code = read_faults(settings)))
        return code;
    settings->chaos.command = write_command(settings);
    return CLI_OK;
}

/* ---- examples ---- */

static void check_examples(const struct json *root, const struct registry *registry, struct problems *problems)
{
    if (root->type != JSON_OBJECT) {
        problems_add(problems, "", "expected a mapping of tools to lists of argument objects, got %s",
                     json_type_name(root->type));
        return;
    }
    for (uint32_t i = 0; i < root->count; i++) {
        struct str name = root->members[i].name;
        const struct json *list = &root->members[i].value;
        struct buf pointer;
        buf_init(&pointer, 0);
        json_pointer_add(&pointer, name);
        if (!registry_find(registry, name))
            problems_add(problems, buf_str(&pointer).p, "the registry has no such tool");
        else if (list->type != JSON_ARRAY || list->count == 0)
            problems_add(problems, buf_str(&pointer).p, "expected a list of argument objects, got %s",
                         list->type == JSON_ARRAY ? "an empty one" : json_type_name(list->type));
        size_t n = pointer.n;
        for (uint32_t k = 0; list->type == JSON_ARRAY && k < list->count; k++) {
            pointer.n = n;
            buf_printf(&pointer, "/%u", k);
            if (list->items[k].type != JSON_OBJECT)
                problems_add(problems, buf_str(&pointer).p, "expected an argument object, got %s",
                             json_type_name(list->items[k].type));
        }
        buf_release(&pointer);
    }
}

/* NULL in *out when no file was given. */
static enum err_code read_examples(struct settings *settings, const struct registry *registry,
                                   struct config_report *report, const struct json **out)
{
    struct buf text;
    struct yaml yaml;
    struct problems problems;
    *out = NULL;
    if (!settings->arguments_path)
        return ERR_NONE;
    buf_init(&text, CONFIG_BYTES_MAX);
    enum err_code code = config_read_file(settings->arguments_path, "a file of example arguments", &text, report);
    if (!code) {
        report->path = settings->arguments_path;
        code = yaml_parse(&settings->arena, buf_str(&text), &yaml);
        if (code) {
            config_report_yaml(report, &yaml);
        } else {
            problems_init(&problems, &settings->arena);
            check_examples(yaml.root, registry, &problems);
            config_report_problems(report, &yaml, &problems);
            code = report->errors ? ERR_INVALID : ERR_NONE;
            *out = yaml.root;
        }
    }
    buf_release(&text);
    return code;
}

/* ---- the whole ---- */

static int write_html(const char *path, const struct chaos_outcome *outcome)
{
    struct buf text;
    buf_init(&text, 0);
    chaos_write_html(&text, outcome);
    FILE *file = fopen(path, "w");
    bool good = file && fwrite(text.p, 1, text.n, file) == text.n;
    good = file && fclose(file) == 0 && good;
    if (!good)
        fprintf(stderr, "onced chaos: %s cannot be written: %s\n", path, strerror(errno));
    buf_release(&text);
    return good ? CLI_OK : CLI_FAILED;
}

static int report(const struct settings *settings, const struct chaos_outcome *outcome)
{
    if (settings->json) {
        struct buf text;
        buf_init(&text, 0);
        chaos_write_json(&text, outcome);
        fwrite(text.p, 1, text.n, stdout);
        buf_release(&text);
    } else {
        struct out out;
        out_init(&out, stdout);
        chaos_write_text(&out, outcome);
    }
    int code = settings->html_path ? write_html(settings->html_path, outcome) : CLI_OK;
    return code ? code : chaos_holds(outcome) ? CLI_OK : CLI_FAILED;
}

static int run(const struct settings *settings, const struct registry *registry, const struct json *examples)
{
    struct arguments *arguments = arguments_new(examples);
    struct chaos_outcome outcome;
    struct err err = {0};
    int code = CLI_USAGE;
    if (chaos_run(&settings->chaos, registry, arguments, &outcome, &err))
        fprintf(stderr, "onced chaos: %s\n", err.text);
    else
        code = report(settings, &outcome);
    chaos_outcome_release(&outcome);
    arguments_free(arguments);
    return code;
}

static int load_and_run(struct settings *settings)
{
    struct config_report registry_report, examples_report;
    struct registry *registry = NULL;
    struct config *config = NULL;
    const struct json *examples = NULL;
    int result = CLI_USAGE;
    config_report_init(&registry_report);
    config_report_init(&examples_report);
    log_set_level(LOG_OFF); /* what simulated gateways log is no news of this machine */
    variables_assume(settings->chaos.path);
    if (config_load(settings->chaos.path, &config, &registry, &registry_report)) {
        config_report_print(&registry_report, stderr); /* warnings of a file that can be used are for `onced check` */
    } else if (read_examples(settings, registry, &examples_report, &examples)) {
        config_report_print(&examples_report, stderr);
    } else {
        if (config->imports_tools)
            fprintf(stderr,
                    "onced chaos: no MCP server is started: of the tools that %s imports only those that it names are "
                    "simulated, without their input_schema unless the file states it\n",
                    settings->chaos.path);
        result = run(settings, registry, examples);
    }
    config_free(config);
    registry_unref(registry);
    config_report_release(&registry_report);
    config_report_release(&examples_report);
    return result;
}

int cli_chaos(int argc, char **argv)
{
    struct settings settings = {
        .chaos = {.seed = 1, .operations = 10000, .gateways = 2, .jobs = 1},
        .faults_text = "contract",
    };
    struct cli_args args;
    bool done = false;
    arena_init(&settings.arena);
    cli_args_init(&args, &cli_chaos_command, argc, argv);
    int code = read_command_line(&args, &settings, &done);
    if (code == CLI_OK && !done)
        code = load_and_run(&settings);
    arena_release(&settings.arena);
    return code;
}
