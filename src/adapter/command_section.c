/* Commands as the registry file states them (docs/registry.md). */
#include "adapter/command_parts.h"

#include "base/mem.h"

#include <stdlib.h>

#define HOUR_MS (INT64_C(60) * 60 * 1000)

/* ---- life ---- */

static void run_release(struct command_run *run)
{
    for (size_t i = 0; i < run->argv_count; i++)
        http_text_release(&run->argv[i].text);
    free(run->argv);
    http_headers_release(&run->env);
    free(run->cwd);
    if (run->node)
        http_node_release(run->node);
    free(run->node);
    jq_program_free(run->jq);
}

void command_provider_free(struct command_provider *provider)
{
    if (!provider || --provider->refs > 0)
        return;
    http_headers_release(&provider->env);
    free(provider->cwd);
    secrets_release(&provider->secrets);
    free(provider);
}

static void lookup_free(struct command_lookup *lookup)
{
    if (!lookup)
        return;
    run_release(&lookup->run);
    jq_program_free(lookup->found_when);
    jq_program_free(lookup->absent_when);
    jq_program_free(lookup->pending_when);
    jq_program_free(lookup->failed_when);
    http_extract_release(&lookup->external_id);
    http_extract_release(&lookup->result);
    http_equalities_release(&lookup->verify);
    free(lookup);
}

struct command_tool *command_tool_ref(struct command_tool *tool)
{
    tool->refs++;
    return tool;
}

void command_tool_unref(struct command_tool *tool)
{
    if (!tool || --tool->refs > 0)
        return;
    run_release(&tool->run);
    jq_program_free(tool->success_when);
    jq_program_free(tool->error_when);
    http_extract_release(&tool->external_id);
    http_extract_release(&tool->result);
    http_equalities_release(&tool->verify);
    lookup_free(tool->lookup);
    secrets_release(&tool->secrets);
    for (size_t i = 0; i < tool->redact_count; i++)
        free(tool->redact[i]);
    free(tool->redact);
    command_provider_free(tool->provider);
    free(tool);
}

void command_tool_free(struct command_tool *tool)
{
    command_tool_unref(tool);
}

bool command_tool_has_lookup(const struct command_tool *tool)
{
    return tool->lookup != NULL;
}

/* ---- exit codes ---- */

/* "64-78" */
static bool read_range(struct str text, int *first, int *last)
{
    int values[2] = {0, 0};
    size_t i = 0;
    for (unsigned part = 0; part < 2; part++) {
        size_t begin = i;
        while (i < text.n && text.p[i] >= '0' && text.p[i] <= '9' && i - begin < 3)
            values[part] = values[part] * 10 + (text.p[i++] - '0');
        if (i == begin || values[part] > 255 || (part == 0 && (i >= text.n || text.p[i++] != '-')))
            return false;
    }
    *first = values[0];
    *last = values[1];
    return i == text.n && *first <= *last;
}

static bool read_exit(const struct json *item, int *first, int *last)
{
    int64_t code;
    if (item->type == JSON_STRING)
        return read_range(item->text, first, last);
    if (item->type != JSON_NUMBER || !json_number_int64(item->text, &code) || code < 0 || code > 255)
        return false;
    *first = *last = (int)code;
    return true;
}

/* `only`: the list when nothing is stated, -1 = none. `taken` tells which codes mean something already. */
static void read_exits(struct section *section, const char *name, int only, struct command_exits *taken,
                       struct command_exits *out)
{
    const struct json *value = section_member(section, name);
    if (!value && only >= 0 && !command_exits_has(taken, only))
        out->bits[only / 64] |= UINT64_C(1) << (only % 64);
    if (value && value->type != JSON_ARRAY) {
        section_problem(section, name, "is %s, expected a list of exit codes", json_type_name(value->type));
        return;
    }
    for (uint32_t i = 0; value && i < value->count; i++) {
        int first, last;
        if (!read_exit(&value->items[i], &first, &last)) {
            section_problem(section, name, "expected exit codes from 0 to 255, or ranges such as \"64-78\"");
            return;
        }
        for (int code = first; code <= last; code++) {
            if (command_exits_has(taken, code) || command_exits_has(out, code)) {
                section_problem(section, name, "exit code %d is named twice: it can mean one thing only", code);
                return;
            }
            out->bits[code / 64] |= UINT64_C(1) << (code % 64);
        }
    }
    for (size_t i = 0; i < 4; i++)
        taken->bits[i] |= out->bits[i];
}

/* ---- environment ---- */

static const char *env_fault(const char *name, const struct http_text *text)
{
    if (!*name || strchr(name, '='))
        return "is no name of an environment variable";
    if (strncmp(name, COMMAND_RESERVED_PREFIX, strlen(COMMAND_RESERVED_PREFIX)) == 0)
        return "is set by onced: its value belongs to each operation";
    if (text->value && strlen(text->value) > COMMAND_WORD_BYTES_MAX)
        return "has a value that is too long";
    return NULL;
}

static void read_env(struct section *section, bool with_places, struct secrets *secrets, struct http_headers *out)
{
    const struct json *value = section_member(section, "env");
    size_t errors = section->problems->errors;
    struct section inner;
    http_query_read(section, "env", NULL, out); /* names are free there, texts the same */
    section_open(&inner, value, section_pointer(section, STR("env")), section->problems);
    if (section->problems->errors > errors)
        return;
    if (out->count > COMMAND_ENV_MAX)
        section_problem(section, "env", "has %zu variables, at most %d are allowed", out->count, COMMAND_ENV_MAX);
    for (size_t i = 0; i < out->count; i++) {
        const char *fault = env_fault(out->items[i].name, &out->items[i].text);
        if (!fault && out->items[i].text.template && !with_places)
            fault = "has a {place}: a provider's variables are the same for all calls";
        if (fault)
            section_problem(&inner, out->items[i].name, "%s", fault);
        const char *text = section_text(&inner, out->items[i].name, "");
        if (!out->items[i].text.template)
            secrets_keep(secrets, text);
    }
}

/* ---- argv ---- */

/* Programs that read an argument as a program. */
static bool is_shell(const char *program)
{
    static const char *const shells[] = {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", NULL};
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    for (size_t i = 0; shells[i]; i++) {
        if (strcmp(name, shells[i]) == 0)
            return true;
    }
    return false;
}

/* sh -c TEXT: what is put into TEXT is executed. */
static bool is_program_text(const struct command_run *run, size_t i)
{
    if (i < 2 || !run->argv[0].text.value || !is_shell(run->argv[0].text.value) || !run->argv[i - 1].text.value)
        return false;
    const char *option = run->argv[i - 1].text.value;
    return option[0] == '-' && option[1] != '-' && strchr(option, 'c') != NULL;
}

static void read_word(struct section *section, const struct json *item, const char *pointer, struct command_run *run)
{
    struct problems *problems = section->problems;
    size_t i = run->argv_count;
    struct command_word *word = &run->argv[i];
    struct err err = {0};
    if (item->type != JSON_STRING || (item->text.n > 0 && memchr(item->text.p, 0, item->text.n))) {
        problems_add(problems, pointer, "expected a text; a number as a text: \"5\"");
        return;
    }
    char *text = mem_copy_bytes(item->text.p, item->text.n);
    if (strstr(text, "${"))
        problems_add(problems, pointer,
                     "has a reference: every user of the machine can read arguments of processes, put it into env");
    else if (http_text_new(text, true, &word->text, &err) != ERR_NONE)
        problems_add(problems, pointer, "%s", err.text);
    else
        run->argv_count++;
    bool literal_begin = text[0] != '{' || text[1] == '{';
    bool after_end = i > 0 && (run->argv[i - 1].fixed_begin && run->argv[i - 1].text.value &&
                               strcmp(run->argv[i - 1].text.value, "--") == 0);
    word->fixed_begin = literal_begin || after_end;
    free(text);
    if (i == 0 && (word->text.template || (word->text.value && !*word->text.value)))
        problems_add(problems, pointer, "is the program: expected a name or a path without {places}");
    if (word->text.template && is_program_text(run, i))
        problems_add(problems, pointer,
                     "a shell executes what is put in here; give the value as an argument instead: [sh, -c, 'prog "
                     "\"$1\"', sh, \"{value}\"]");
}

/* After "--" nothing is an option any more. */
static void mark_operands(struct command_run *run)
{
    bool operands = false;
    for (size_t i = 0; i < run->argv_count; i++) {
        struct command_word *word = &run->argv[i];
        word->fixed_begin = word->fixed_begin || operands;
        operands = operands || (word->text.value && strcmp(word->text.value, "--") == 0);
    }
}

static void read_argv(struct section *section, struct command_run *run)
{
    const struct json *value = section_member(section, "argv");
    if (!value || value->type != JSON_ARRAY || value->count == 0 || value->count > COMMAND_WORDS_MAX) {
        section_problem(section, "argv", "expected a list of 1 to %d words: the program and its arguments",
                        COMMAND_WORDS_MAX);
        return;
    }
    run->argv = mem_zero(sizeof *run->argv * (value->count + 1));
    for (uint32_t i = 0; i < value->count; i++)
        read_word(section, &value->items[i],
                  arena_printf(section->problems->arena, "%s/%u", section_pointer(section, STR("argv")), i), run);
    mark_operands(run);
}

/* ---- how it is run ---- */

static void read_input(struct section *section, struct command_run *run)
{
    const struct json *value = section_member(section, "stdin");
    struct err err = {0};
    run->input = value ? COMMAND_INPUT_BODY : COMMAND_INPUT_NONE;
    if (!value)
        return;
    if (value->type != JSON_STRING) {
        run->node = mem_zero(sizeof *run->node);
        http_node_read(section, "stdin", value, run->node);
    } else if (str_is(value->text, "none")) {
        run->input = COMMAND_INPUT_NONE;
    } else if (str_is(value->text, "json")) {
        run->input = COMMAND_INPUT_ARGUMENTS;
    } else {
        const char *text = section_text(section, "stdin", "");
        if (jq_program_new(text, true, &run->jq, &err) != ERR_NONE)
            section_problem(section, "stdin", "expected json, none, a body or a jq program: %s", err.text);
    }
}

/* provider is lent. */
static void read_run(struct section *section, const struct command_provider *provider, struct secrets *secrets,
                     struct command_run *run)
{
    static const char *const outputs[] = {"json", "text", "none", NULL};
    static const char *const dashes[] = {"refuse", "allow", NULL};
    read_argv(section, run);
    run->dash_allowed = section_choice(section, "leading_dash", dashes, 0) == 1;
    read_env(section, true, secrets, &run->env);
    run->cwd = mem_copy_text(section_text(section, "cwd", NULL));
    read_input(section, run);
    run->output = (enum command_output)section_choice(section, "output", outputs, COMMAND_OUTPUT_TEXT);
    run->output_bytes_max =
        section_bytes(section, "output_bytes_max", provider->output_bytes_max, 1024, COMMAND_OUTPUT_BYTES_MAX);
    /* leases and settle go by the provider's time-out: no command may run longer */
    run->timeout_ms = section_ms(section, "timeout", provider->timeout_ms, 1, HOUR_MS);
    if (run->timeout_ms > provider->timeout_ms)
        section_problem(section, "timeout", "is longer than the provider's timeout");
}

static void require_output(struct section *section, const struct command_run *run, const char *name, bool stated)
{
    if (stated && run->output == COMMAND_OUTPUT_NONE)
        section_problem(section, name, "needs an output to look into, but run.output is none");
}

static bool extracts(const struct http_extract *extract)
{
    return extract->jq || extract->pointer;
}

/* ---- the tool ---- */

static void read_contract(struct section *run, struct command_tool *tool)
{
    struct section section;
    struct command_exits taken = {{0}};
    section_open(&section, section_member(run, "exit"), section_pointer(run, STR("exit")), run->problems);
    /* stated ones first: a default gives way to them */
    read_exits(&section, "noop", -1, &taken, &tool->noop);
    read_exits(&section, "accepted", -1, &taken, &tool->accepted);
    read_exits(&section, "no_effect", -1, &taken, &tool->refused);
    read_exits(&section, "not_processed", -1, &taken, &tool->not_processed);
    read_exits(&section, "success", 0, &taken, &tool->success);
    if (section_member(&section, "accepted") && !tool->lookup)
        section_problem(&section, "accepted", "needs a lookup, or the final outcome could never be known");
    section_close(&section);
}

static void read_tool_run(struct section *parent, struct command_tool *tool)
{
    struct section section;
    const struct json *value = section_member(parent, "run");
    section_open(&section, value, section_pointer(parent, STR("run")), parent->problems);
    if (!value) {
        section_problem(parent, "run", "is missing, expected at least argv");
        return;
    }
    read_run(&section, tool->provider, &tool->secrets, &tool->run);
    read_contract(&section, tool);
    tool->success_when = http_jq_read(&section, "success_when");
    tool->error_when = http_jq_read(&section, "error_when");
    http_extract_read(&section, "external_id", NULL, &tool->external_id);
    http_extract_read(&section, "result", "", &tool->result);
    require_output(&section, &tool->run, "success_when", tool->success_when != NULL);
    require_output(&section, &tool->run, "error_when", tool->error_when != NULL);
    require_output(&section, &tool->run, "external_id", extracts(&tool->external_id));
    section_close(&section);
}

static void read_lookup_exits(struct section *parent, struct command_lookup *out)
{
    struct section section;
    struct command_exits taken = {{0}};
    section_open(&section, section_member(parent, "exit"), section_pointer(parent, STR("exit")), parent->problems);
    read_exits(&section, "absent", -1, &taken, &out->absent);
    read_exits(&section, "pending", -1, &taken, &out->pending);
    read_exits(&section, "failed", -1, &taken, &out->failed);
    read_exits(&section, "found", 0, &taken, &out->found);
    bool absent = section_member(&section, "absent") != NULL;
    section_close(&section);
    if (parent->value && !absent && !section_member(parent, "absent") && !section_member(parent, "found"))
        problems_add(parent->problems, parent->pointer,
                     "expected exit: {absent: […]}, or found or absent as jq over the output: what does it prove?");
}

static void read_lookup(struct section *parent, struct command_tool *tool)
{
    const struct json *value = section_member(parent, "lookup");
    struct section section, run;
    if (!value)
        return;
    struct command_lookup *out = mem_zero(sizeof *out);
    tool->lookup = out;
    section_open(&section, value, section_pointer(parent, STR("lookup")), parent->problems);
    const struct json *how = section_member(&section, "run");
    section_open(&run, how, section_pointer(&section, STR("run")), parent->problems);
    if (!how)
        section_problem(&section, "run", "is missing, expected at least argv");
    else
        read_run(&run, tool->provider, &tool->secrets, &out->run);
    section_close(&run);
    out->found_when = http_jq_read(&section, "found");
    out->absent_when = http_jq_read(&section, "absent");
    out->pending_when = http_jq_read(&section, "pending");
    out->failed_when = http_jq_read(&section, "failed");
    read_lookup_exits(&section, out);
    http_equalities_read(&section, "verify", &out->verify);
    http_extract_read(&section, "external_id", NULL, &out->external_id);
    http_extract_read(&section, "result", "", &out->result);
    bool looks = out->found_when || out->absent_when || out->pending_when || out->failed_when;
    require_output(&section, &out->run, "verify", out->verify.count > 0);
    require_output(&section, &out->run, "run", looks || extracts(&out->external_id));
    section_close(&section);
}

struct command_tool *command_tool_new(const struct json *value, const char *pointer,
                                      const struct command_provider *provider, const struct tool *core,
                                      struct problems *problems)
{
    size_t errors = problems->errors;
    struct command_tool *tool = mem_zero(sizeof *tool);
    struct section section;
    tool->refs = 1;
    /* the caller lends its provider; processes need it for longer */
    tool->provider = (struct command_provider *)provider;
    tool->provider->refs++;
    tool->write = tool_is_write(core);
    tool->redact = mem_zero(sizeof *tool->redact * (core->redact_count + 1));
    for (size_t i = 0; i < core->redact_count; i++)
        tool->redact[tool->redact_count++] = mem_copy_text(core->redact_pointers[i]);
    section_open(&section, value, pointer, problems);
    read_lookup(&section, tool);
    read_tool_run(&section, tool);
    http_equalities_read(&section, "verify", &tool->verify);
    require_output(&section, &tool->run, "verify", tool->verify.count > 0);
    if (problems->errors == errors)
        return tool;
    command_tool_free(tool);
    return NULL;
}

/* ---- the provider ---- */

static void read_key(struct section *parent, struct provider *core)
{
    static const char *const formats[] = {"operation_id", "uuid", "hex", NULL};
    struct section section;
    section_open(&section, section_member(parent, "key"), section_pointer(parent, STR("key")), parent->problems);
    core->key_honoured = section_bool(&section, "honoured", false);
    core->key_format = (enum key_format)section_choice(&section, "format", formats, KEY_FORMAT_OPERATION_ID);
    core->key_bytes_max = (unsigned)section_int(&section, "max_length", 0, 16, 1000);
    core->key_retention_ms = section_ms(&section, "retention", 0, 0, INT64_MAX);
    section_close(&section);
}

static void read_command(struct section *parent, struct command_provider *provider)
{
    struct section section;
    section_open(&section, section_member(parent, "command"), section_pointer(parent, STR("command")),
                 parent->problems);
    read_env(&section, false, &provider->secrets, &provider->env);
    provider->cwd = mem_copy_text(section_text(&section, "cwd", NULL));
    provider->kill_after_ms = section_ms(&section, "kill_after", 2000, 0, COMMAND_KILL_AFTER_MAX);
    section_close(&section);
}

struct command_provider *command_provider_new(const struct json *value, const char *pointer, struct provider *core,
                                              struct problems *problems)
{
    size_t errors = problems->errors;
    struct command_provider *provider = mem_zero(sizeof *provider);
    struct section section;
    provider->refs = 1;
    section_open(&section, value, pointer, problems);
    read_command(&section, provider);
    read_key(&section, core);
    http_limits_read(&section, core);
    provider->timeout_ms = section_ms(&section, "timeout", 60000, 1, HOUR_MS);
    provider->output_bytes_max =
        section_bytes(&section, "answer_bytes_max", (size_t)1024 * 1024, 1024, COMMAND_OUTPUT_BYTES_MAX);
    core->kind = PROVIDER_COMMAND;
    core->timeout_ms = provider->timeout_ms + provider->kill_after_ms; /* until the process is gone for certain */
    core->connect_timeout_ms = core->timeout_ms;
    core->connections_max = (unsigned)section_int(&section, "connections", 16, 1, 4096);
    core->queue_max = (unsigned)section_int(&section, "queue", 4096, 1, 1000000);
    section_close(&section);
    if (problems->errors == errors)
        return provider;
    command_provider_free(provider);
    return NULL;
}
