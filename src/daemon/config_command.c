/* Commands in the registry file: their members, and where relative paths of theirs start. */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define SECTION(id, title, words)                                                                                      \
    {                                                                                                                  \
        .name = (title), .text = (words), .options = id, .count = COUNT(id)                                            \
    }
#define HOUR  (INT64_C(60) * 60 * 1000)
#define YEARS (3650 * 24 * HOUR)
#define KB    INT64_C(1024)
#define MB    (1024 * KB)

/* ---- providers ---- */

static const struct option command_options[] = {
    {"env", OPTION_TEMPLATES, .computed = "PATH and HOME as onced has them",
     .text = "Variables of every command of this provider; nothing else is inherited. Secrets only by reference, "
             "`${env:NAME}` or `${file:PATH}`."},
    {"cwd", OPTION_TEXT, .computed = "the registry file's folder", .text = "Where commands are started."},
    {"kill_after", OPTION_DURATION, .fallback = "2s", .max = 15000,
     .text = "At the time-out the command's process group gets SIGTERM, and so much later SIGKILL."},
};
const struct option_section config_command_section =
    SECTION(command_options, "providers.NAME.command", "Commands that onced starts, without a shell.");

static const struct option command_key_options[] = {
    {"honoured", OPTION_BOOL, .fallback = "false",
     .text = "The commands keep a call with a known key (`ONCED_IDEMPOTENCY_KEY`) from acting twice."},
    {"retention", OPTION_DURATION, .computed = "not known: ambiguous attempts are never repeated", .max = YEARS,
     .text = "How long they remember a key. After that a repetition could happen twice."},
    {"format", OPTION_CHOICE, .fallback = "operation_id", .choices = {"operation_id", "uuid", "hex"},
     .text = "What the key looks like. It is derived from the operation and the same on every attempt."},
    {"max_length", OPTION_INTEGER, .computed = "no limit", .min = 16, .max = 1000,
     .text = "Longest key that they take, in bytes."},
};
const struct option_section config_command_key_section = SECTION(
    command_key_options, "providers.NAME.key (command)", "What the key in `ONCED_IDEMPOTENCY_KEY` is good for.");

/* ---- tools ---- */

static const struct option exit_options[] = {
    {"success", OPTION_LIST, .computed = "`[0]`", .text = "The effect happened."},
    {"noop", OPTION_LIST, .computed = "none", .text = "It was already so: success without an effect of ours."},
    {"accepted", OPTION_LIST, .computed = "none", .text = "The final outcome comes later; needs a `lookup`."},
    {"no_effect", OPTION_LIST, .computed = "none",
     .text = "Definite refusals: the command promises that nothing happened, and repeating it is pointless. Codes that "
             "are in no list mean that it may have happened."},
    {"not_processed", OPTION_LIST, .computed = "none",
     .text = "Nothing happened, try again later. 75 (EX_TEMPFAIL) only if the command promises it."},
};
static const struct option_section run_exit =
    SECTION(exit_options, "tools.NAME.run.exit", "What exit codes prove: `[0, 3]` or ranges, `[\"64-78\"]`.");

#define RUN_OPTIONS                                                                                                    \
    {"argv", OPTION_LIST, .required = true,                                                                            \
     .text =                                                                                                           \
         "The program, then its arguments with places, one word each; no shell reads them. A word that is exactly "    \
         "one place may be left out (`\"{name?}\"`), and a list becomes as many words. The program is looked for "     \
         "in the PATH of `env`."},                                                                                     \
        {"leading_dash", OPTION_CHOICE, .fallback = "refuse", .choices = {"refuse", "allow"},                          \
         .text = "`refuse`: a value at the beginning of a word that begins with `-` and could be taken for an option " \
                 "is refused, unless `--` came before it."},                                                           \
        {"env", OPTION_TEMPLATES, .computed = "none",                                                                  \
         .text = "Variables with places, or secrets by reference; they win over the provider's. onced adds "           \
                 "`ONCED_IDEMPOTENCY_KEY`, `ONCED_OPERATION`, `ONCED_TENANT`, `ONCED_RUN`."},                          \
        {"cwd", OPTION_TEXT, .computed = "the provider's", .text = "Where it is started."},                            \
        {"stdin", OPTION_JSON_BODY, .computed = "nothing",                                                             \
         .text = "`json`: the arguments as JSON. Or a body with places, or a jq program as text. `none`."},            \
        {"output", OPTION_CHOICE, .fallback = "text", .choices = {"json", "text", "none"},                             \
         .text = "How its standard output is read. `json`: what is not JSON is unreadable, the outcome unknown. "      \
                 "`text`: `{text}`, and `cut` when it was too long."},                                                 \
        {"output_bytes_max",                                                                                           \
         OPTION_SIZE,                                                                                                  \
         .computed = "the provider's `answer_bytes_max`",                                                              \
         .min = KB,                                                                                                    \
         .max = 64 * MB,                                                                                               \
         .text = "More output is dropped; with `output: json` it is unreadable then."},                                \
        {"timeout",                                                                                                    \
         OPTION_DURATION,                                                                                              \
         .computed = "the provider's",                                                                                 \
         .min = 1,                                                                                                     \
         .max = HOUR,                                                                                                  \
         .text = "At most the provider's. Then its process group is killed and the outcome unknown."},

static const struct option run_options[] = {
    RUN_OPTIONS /* and: */
    {"exit", OPTION_SECTION, .section = &run_exit, .computed = "0 is success, all else may have happened",
     .text = "What exit codes prove."},
    {"success_when", OPTION_JQ, .computed = "none",
     .text = "jq over the output of a success; false or an error: outcome unknown."},
    {"error_when", OPTION_JQ, .computed = "none",
     .text = "jq: true means that the output is an error in spite of the exit code: outcome unknown."},
    {"external_id", OPTION_POINTER_OR_JQ, .computed = "none", .text = "The effect's id in the output."},
    {"result", OPTION_POINTER_OR_JQ, .computed = "the whole output", .text = "What callers get."},
};
const struct option_section config_run_section =
    SECTION(run_options, "tools.NAME.run", "The command that is the effect.");

static const struct option lookup_run_options[] = {RUN_OPTIONS};
static const struct option_section lookup_run =
    SECTION(lookup_run_options, "tools.NAME.lookup.run", "A command that only looks.");

static const struct option lookup_exit_options[] = {
    {"found", OPTION_LIST, .computed = "`[0]`", .text = "It is there; conditions over the output may say otherwise."},
    {"absent", OPTION_LIST, .computed = "none", .text = "There is no such effect."},
    {"pending", OPTION_LIST, .computed = "none", .text = "It is still being worked on."},
    {"failed", OPTION_LIST, .computed = "none", .text = "It ended badly there; an operator decides."},
};
static const struct option_section lookup_exit = SECTION(lookup_exit_options, "tools.NAME.lookup.exit",
                                                         "What the look-up's exit codes say. All others: cannot tell.");

static const struct option lookup_options[] = {
    {"run", OPTION_SECTION, .required = true, .section = &lookup_run, .text = "A command that only looks."},
    {"exit", OPTION_SECTION, .section = &lookup_exit, .computed = "0 is found", .text = "What exit codes say."},
    {"found", OPTION_JQ, .computed = "none", .text = "jq over the output: true proves the effect."},
    {"absent", OPTION_JQ, .computed = "none", .text = "jq over the output: true says that there is no effect."},
    {"pending", OPTION_JQ, .computed = "never", .text = "jq: it is still being worked on."},
    {"failed", OPTION_JQ, .computed = "never", .text = "jq: it ended badly; an operator decides."},
    {"external_id", OPTION_POINTER_OR_JQ, .computed = "as in `run`", .text = "The effect's id in the output."},
    {"result", OPTION_POINTER_OR_JQ, .computed = "the whole output", .text = "What callers get, from the output."},
    {"verify", OPTION_EQUALITIES, .computed = "none",
     .text = "Must be equal in the output, else it is a wrong object: outcome unknown and an incident."},
};
const struct option_section config_command_lookup_section =
    SECTION(lookup_options, "tools.NAME.lookup (command)", "How to find out what really happened.");

/* ---- relative paths ---- */

static void settle_cwd(const struct loader *loader, struct json *section, bool fallback)
{
    struct arena *arena = &loader->loaded->arena;
    const struct json *cwd = section && section->type == JSON_OBJECT ? json_get(section, "cwd") : NULL;
    if (cwd && cwd->type == JSON_STRING)
        json_set(arena, section, STR("cwd"),
                 json_string(str_of(config_resolve_path(arena, loader->folder, cwd->text))));
    else if (!cwd && fallback && section && section->type == JSON_OBJECT && *loader->folder)
        json_set(arena, section, STR("cwd"), json_string(str_of(loader->folder)));
}

void config_settle_command(const struct loader *loader, struct json *command)
{
    if (!command || command->type != JSON_OBJECT)
        return;
    config_settle_members(loader, command, "env");
    settle_cwd(loader, command, true);
}

/* A copy: the file's own tree stays as it was written. */
const struct json *config_settle_run(const struct loader *loader, const struct json *section)
{
    struct arena *arena = &loader->loaded->arena;
    struct json *copy = json_copy(arena, section);
    struct json *run = (struct json *)json_get(copy, "run"); /* our own copy */
    const struct json *lookup = json_get(copy, "lookup");
    struct json *look = lookup && lookup->type == JSON_OBJECT ? (struct json *)json_get(lookup, "run") : NULL;
    struct json *both[] = {run, look};
    for (size_t i = 0; i < COUNT(both); i++) {
        if (!both[i] || both[i]->type != JSON_OBJECT)
            continue;
        config_settle_members(loader, both[i], "env");
        settle_cwd(loader, both[i], false);
    }
    return copy;
}

/* ---- what every tool needs until its provider is known ---- */

const struct command_provider *config_assumed_command(const struct loader *loader)
{
    struct loaded *loaded = loader->loaded;
    if (!loaded->assumed_command) {
        struct arena *arena = &loaded->arena;
        struct problems none;
        struct provider core = {0};
        struct json *section = json_object(arena);
        json_set(arena, section, STR("command"), *json_object(arena));
        json_set(arena, section, STR("timeout"), json_string(STR("1h")));
        problems_init(&none, arena);
        loaded->assumed_command = command_provider_new(section, "", &core, &none);
    }
    return loaded->assumed_command;
}
