#include "cli/eval_file.h"

#include "base/mem.h"
#include "daemon/config_options.h"

#include <stdlib.h>

#define AT(type, member) (offsetof(struct type, member) + 1)
#define COUNT(array)     (sizeof(array) / sizeof *(array))

/* ---- what may be written where ---- */

/* Members that a call takes from its group, and a group from `defaults`, unless it has them itself. */
#define INHERITED                                                                                                      \
    {"tool", OPTION_TEXT}, {"arguments", OPTION_ANY}, {"tenant", OPTION_TEXT}, {"principal", OPTION_TEXT},             \
        {"idempotency_key", OPTION_ANY}, {"workflow", OPTION_ANY}, {"run_id", OPTION_ANY}, {"step_id", OPTION_ANY},    \
        {"session_id", OPTION_ANY},                                                                                    \
    {                                                                                                                  \
        "call_id", OPTION_ANY                                                                                          \
    }

struct call_stored {
    unsigned after, caller; /* 0: not given */
    int64_t at_ms;
};

struct group_stored {
    const char *name, *because;
};

struct file_stored {
    const char *registry;
};

static const enum state after_states[] = {
    STATE_COMPLETED_SUCCESS, STATE_COMPLETED_NOOP, STATE_FAILED_PERMANENT, STATE_FAILED_RETRYABLE,
    STATE_UNKNOWN_OUTCOME,   STATE_DISPATCHED,     STATE_ACKNOWLEDGED,
};

enum { CALLER_TOLD = 1, CALLER_GONE };

static const struct option call_options[] = {
    INHERITED,
    {"with", OPTION_ANY},
    {"without", OPTION_ANY},
    {"after", OPTION_CHOICE, .base = 1, .at = AT(call_stored, after),
     .choices = {"completed_success", "completed_noop", "failed_permanent", "failed_retryable", "unknown_outcome",
                 "dispatched", "acknowledged"}},
    {"caller", OPTION_CHOICE, .base = 1, .at = AT(call_stored, caller), .choices = {"told", "gone"}},
    {"at", OPTION_DURATION, .max = INT64_C(3650) * 86400000, .at = AT(call_stored, at_ms)},
    {"repeat_of", OPTION_ANY},
    {"distinct_from", OPTION_ANY},
};
static const struct option_section call_section = {"call", NULL, call_options, COUNT(call_options)};

static const struct option group_options[] = {
    {"name", OPTION_TEXT, .required = true, .at = AT(group_stored, name)},
    {"because", OPTION_TEXT, .at = AT(group_stored, because)},
    {"before", OPTION_ANY},
#define X(constant, text) {text, OPTION_ANY},
    EXPECTATIONS(X)
#undef X
        INHERITED,
};
static const struct option_section group_section = {"group", NULL, group_options, COUNT(group_options)};

static const struct option defaults_options[] = {INHERITED};
static const struct option_section defaults_section = {"defaults", NULL, defaults_options, COUNT(defaults_options)};

static const struct option file_options[] = {
    {"onced_eval", OPTION_INTEGER, .required = true, .min = 1, .max = 1},
    {"registry", OPTION_TEXT, .at = AT(file_stored, registry)},
    {"defaults", OPTION_SECTION, .section = &defaults_section},
    {"groups", OPTION_ANY, .required = true},
};
static const struct option_section file_section = {"file", NULL, file_options, COUNT(file_options)};

static const char *const expectation_names[] = {
#define X(constant, text) [constant] = (text),
    EXPECTATIONS(X)
#undef X
};

const char *expectation_name(enum expectation expectation)
{
    return expectation_names[expectation];
}

/* ---- reading ---- */

struct reader {
    struct eval_file *file;
    struct problems *problems;
    const struct json *defaults; /* NULL: none */
};

/* A mapping of the file and its place. */
struct spot {
    const struct json *value;
    const char *pointer;
};

/* Where a call's members may stand, the nearest first. */
struct scopes {
    struct spot call, group, defaults;
};

static const char *below(const struct reader *reader, const char *pointer, const char *name)
{
    return options_pointer(&reader->file->arena, pointer, str_of(name));
}

static void read_section(const struct reader *reader, const struct option_section *section, struct spot spot,
                         void *target)
{
    struct options_reader options = {.arena = &reader->file->arena, .problems = reader->problems};
    options_read(&options, section, spot.value, spot.pointer, target);
}

static const struct json *member(struct spot spot, const char *name)
{
    return spot.value && spot.value->type == JSON_OBJECT ? json_get(spot.value, name) : NULL;
}

/* null takes back what an outer scope says. *from is where the member stood. */
static const struct json *inherited(const struct scopes *scopes, const char *name, struct spot *from)
{
    const struct spot order[] = {scopes->call, scopes->group, scopes->defaults};
    for (size_t i = 0; i < COUNT(order); i++) {
        const struct json *value = member(order[i], name);
        if (!value)
            continue;
        if (from)
            *from = order[i];
        return value->type == JSON_NULL ? NULL : value;
    }
    return NULL;
}

/* Coordinates may be empty texts: what onced says to those can be a scenario. */
static const char *inherited_text(const struct reader *reader, const struct scopes *scopes, const char *name)
{
    const struct json *value = inherited(scopes, name, NULL);
    return value && value->type == JSON_STRING ? arena_copy_str(&reader->file->arena, value->text) : NULL;
}

static void check_texts(const struct reader *reader, struct spot spot)
{
    static const char *const names[] = {"idempotency_key", "workflow", "run_id", "step_id", "session_id", "call_id"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const struct json *value = member(spot, names[i]);
        if (value && value->type != JSON_STRING && value->type != JSON_NULL)
            problems_add(reader->problems, below(reader, spot.pointer, names[i]),
                         "expected a text (in quotes) or null");
    }
    const struct json *arguments = member(spot, "arguments");
    if (arguments && arguments->type != JSON_OBJECT && arguments->type != JSON_STRING)
        problems_add(reader->problems, below(reader, spot.pointer, "arguments"),
                     "expected a mapping, or JSON as an agent sent it as a text");
}

/* ---- arguments ---- */

static void lay_over(const struct reader *reader, struct json *arguments, struct spot call)
{
    const struct json *with = member(call, "with");
    struct arena *arena = &reader->file->arena;
    if (!with)
        return;
    if (with->type != JSON_OBJECT) {
        problems_add(reader->problems, below(reader, call.pointer, "with"),
                     "expected a mapping of arguments that this call has otherwise than its group");
        return;
    }
    for (uint32_t i = 0; i < with->count; i++)
        json_set(arena, arguments, with->members[i].name, *json_copy(arena, &with->members[i].value));
}

static void leave_out(const struct reader *reader, struct json *arguments, struct spot call)
{
    const struct json *without = member(call, "without");
    if (!without)
        return;
    const char *pointer = below(reader, call.pointer, "without");
    if (without->type != JSON_ARRAY) {
        problems_add(reader->problems, pointer, "expected a list of argument names");
        return;
    }
    for (uint32_t i = 0; i < without->count; i++) {
        const struct json *name = &without->items[i];
        const char *at = arena_printf(&reader->file->arena, "%s/%u", pointer, i);
        if (name->type != JSON_STRING)
            problems_add(reader->problems, at, "expected an argument's name");
        else if (!json_get_str(arguments, name->text))
            problems_add(reader->problems, at, "there is no argument of this name to be left out");
        else
            json_remove(arguments, name->text);
    }
}

static void read_arguments(const struct reader *reader, const struct scopes *scopes, struct eval_call *out)
{
    struct arena *arena = &reader->file->arena;
    const struct json *base = inherited(scopes, "arguments", NULL);
    bool changed = member(scopes->call, "with") || member(scopes->call, "without");
    if (base && base->type == JSON_STRING) {
        out->arguments_text = base->text;
        if (changed)
            problems_add(reader->problems, scopes->call.pointer,
                         "with and without need arguments that are a mapping, they are a text here");
        return;
    }
    struct json *arguments = base && base->type == JSON_OBJECT ? json_copy(arena, base) : json_object(arena);
    leave_out(reader, arguments, scopes->call);
    lay_over(reader, arguments, scopes->call);
    out->arguments = arguments;
}

/* ---- references ---- */

/* "previous", the number of an earlier call, or an operation id. `number` is that of the call itself, from 1. */
static void read_reference(const struct reader *reader, const struct json *value, const char *pointer, size_t number,
                           struct eval_reference *out)
{
    int64_t call = 0;
    bool previous = value->type == JSON_STRING && str_is(value->text, "previous");
    if (previous)
        call = (int64_t)number - 1;
    if (previous || (value->type == JSON_NUMBER && json_number_int64(value->text, &call))) {
        if (call < 1 || call >= (int64_t)number)
            problems_add(reader->problems, pointer, "there is no such earlier call, this one is number %zu", number);
        else
            out->call = (size_t)call;
        return;
    }
    if (value->type == JSON_STRING && value->text.n > 3 && memcmp(value->text.p, "op_", 3) == 0) {
        out->id = arena_copy_str(&reader->file->arena, value->text);
        return;
    }
    problems_add(reader->problems, pointer,
                 "expected previous, the number of an earlier call, or an operation id (op_…)");
}

static void read_references(const struct reader *reader, struct spot spot, size_t number, struct eval_call *out)
{
    const struct json *repeat = member(spot, "repeat_of"), *distinct = member(spot, "distinct_from");
    if (repeat && repeat->type != JSON_NULL)
        read_reference(reader, repeat, below(reader, spot.pointer, "repeat_of"), number, &out->repeat_of);
    if (!distinct || distinct->type == JSON_NULL)
        return;
    const char *pointer = below(reader, spot.pointer, "distinct_from");
    if (distinct->type != JSON_ARRAY) {
        read_reference(reader, distinct, pointer, number, &out->distinct_from[out->distinct_count++]);
        return;
    }
    if (distinct->count > ADMISSION_DISTINCT_MAX) {
        problems_add(reader->problems, pointer, "%u operations, at most %d are allowed", distinct->count,
                     ADMISSION_DISTINCT_MAX);
        return;
    }
    for (uint32_t i = 0; i < distinct->count; i++)
        read_reference(reader, &distinct->items[i], arena_printf(&reader->file->arena, "%s/%u", pointer, i), number,
                       &out->distinct_from[out->distinct_count++]);
}

/* ---- calls, groups ---- */

static void read_tool(const struct reader *reader, const struct scopes *scopes, struct eval_call *out)
{
    struct spot from = scopes->call;
    const struct json *value = inherited(scopes, "tool", &from);
    out->tool_pointer = below(reader, from.pointer, "tool");
    if (value && value->type == JSON_STRING)
        out->tool = arena_copy_str(&reader->file->arena, value->text);
    else if (!value)
        problems_add(reader->problems, out->tool_pointer,
                     "is missing: the call, its group or defaults must say which tool is called");
}

static void read_call(const struct reader *reader, const struct scopes *scopes, size_t number, struct eval_call *out)
{
    struct call_stored stored = {0};
    struct spot spot = scopes->call;
    read_section(reader, &call_section, spot, &stored);
    if (spot.value->type != JSON_OBJECT)
        return;
    check_texts(reader, spot);
    read_tool(reader, scopes, out);
    read_arguments(reader, scopes, out);
    read_references(reader, spot, number, out);
    out->tenant = inherited_text(reader, scopes, "tenant");
    out->principal = inherited_text(reader, scopes, "principal");
    out->idempotency_key = inherited_text(reader, scopes, "idempotency_key");
    out->workflow = inherited_text(reader, scopes, "workflow");
    out->run = inherited_text(reader, scopes, "run_id");
    out->step = inherited_text(reader, scopes, "step_id");
    out->session = inherited_text(reader, scopes, "session_id");
    out->call = inherited_text(reader, scopes, "call_id");
    if (!out->tenant)
        out->tenant = "default";
    if (!out->principal)
        out->principal = "agent";
    out->has_after = stored.after != 0;
    out->after = after_states[stored.after ? stored.after - 1 : 0];
    out->caller_gone = stored.caller == CALLER_GONE;
    out->at_ms = stored.at_ms;
}

/* Appends the calls of one list: `before`, or what is expected of. */
static void read_calls(const struct reader *reader, struct spot group, struct spot list, struct eval_group *out)
{
    struct arena *arena = &reader->file->arena;
    for (uint32_t i = 0; i < list.value->count; i++) {
        size_t index = out->call_count++;
        struct eval_call *call = &out->calls[index];
        struct scopes scopes = {
            .call = {&list.value->items[i], arena_printf(arena, "%s/%u", list.pointer, i)},
            .group = group,
            .defaults = {reader->defaults, "/defaults"},
        };
        struct yaml_place place = yaml_find(&reader->file->yaml, str_of(scopes.call.pointer));
        call->line = place.line;
        call->column = place.column;
        read_call(reader, &scopes, index + 1, call);
        bool given = member(scopes.call, "at") != NULL;
        if (index > 0 && !given)
            call->at_ms = call[-1].at_ms;
        else if (index > 0 && call->at_ms < call[-1].at_ms)
            problems_add(reader->problems, below(reader, scopes.call.pointer, "at"),
                         "calls stand in the order of their arrival, this one is earlier than the one before");
    }
}

static bool check_list(const struct reader *reader, struct spot list, size_t least)
{
    if (list.value->type == JSON_ARRAY && list.value->count >= least && list.value->count <= EVAL_CALLS_MAX)
        return true;
    problems_add(reader->problems, list.pointer, "expected a list of %zu to %d calls", least, EVAL_CALLS_MAX);
    return false;
}

static void read_lists(const struct reader *reader, struct spot group, const struct json *calls, struct eval_group *out)
{
    struct spot before = {member(group, "before"), below(reader, group.pointer, "before")};
    struct spot judged = {calls, below(reader, group.pointer, expectation_name(out->expectation))};
    bool fine = !before.value || check_list(reader, before, 1);
    if (!check_list(reader, judged, out->expectation == EXPECT_REFUSED ? 1 : 2) || !fine)
        return;
    size_t count = judged.value->count + (before.value ? before.value->count : 0);
    if (count > EVAL_CALLS_MAX) {
        problems_add(reader->problems, before.pointer, "%zu calls together, at most %d are allowed", count,
                     EVAL_CALLS_MAX);
        return;
    }
    out->calls = arena_zero(&reader->file->arena, count * sizeof *out->calls);
    if (before.value)
        read_calls(reader, group, before, out);
    out->first = out->call_count;
    read_calls(reader, group, judged, out);
}

static void list_expectations(struct buf *out)
{
    for (unsigned i = 0; i < EXPECTATION_COUNT; i++)
        buf_printf(out, "%s%s", i ? ", " : "", expectation_names[i]);
}

static void read_group(const struct reader *reader, struct spot spot, struct eval_group *out)
{
    struct group_stored stored = {0};
    const struct json *calls = NULL;
    struct yaml_place place = yaml_find(&reader->file->yaml, str_of(spot.pointer));
    out->line = place.line;
    out->column = place.column;
    read_section(reader, &group_section, spot, &stored);
    out->name = stored.name;
    out->because = stored.because;
    if (spot.value->type != JSON_OBJECT)
        return;
    check_texts(reader, spot);
    for (unsigned i = 0; i < EXPECTATION_COUNT; i++) {
        const struct json *list = member(spot, expectation_names[i]);
        if (list && calls) {
            problems_add(reader->problems, below(reader, spot.pointer, expectation_names[i]),
                         "a group expects one thing of its calls, this one has %s already",
                         expectation_name(out->expectation));
        } else if (list) {
            calls = list;
            out->expectation = (enum expectation)i;
        }
    }
    if (calls) {
        read_lists(reader, spot, calls, out);
    } else {
        struct buf names;
        buf_init(&names, 0);
        list_expectations(&names);
        problems_add(reader->problems, spot.pointer, "the calls are missing, expected one of %s", names.p);
        buf_release(&names);
    }
    if (out->because && (out->expectation == EXPECT_SAME || out->expectation == EXPECT_DISTINCT))
        problems_add(reader->problems, below(reader, spot.pointer, "because"),
                     "only calls that are turned away are told why: conflict, held, not_shared, refused");
}

static void read_groups(const struct reader *reader, const struct json *list)
{
    struct eval_file *file = reader->file;
    if (list->type != JSON_ARRAY || list->count == 0 || list->count > EVAL_GROUPS_MAX) {
        problems_add(reader->problems, "/groups", "expected a list of 1 to %d groups", EVAL_GROUPS_MAX);
        return;
    }
    file->groups = arena_zero(&file->arena, list->count * sizeof *file->groups);
    for (uint32_t i = 0; i < list->count; i++) {
        struct spot spot = {&list->items[i], arena_printf(&file->arena, "/groups/%u", i)};
        read_group(reader, spot, &file->groups[file->group_count++]);
    }
}

/* ---- the file ---- */

static const char *resolve(struct arena *arena, const char *path, const char *registry)
{
    const char *slash = strrchr(path, '/');
    if (!registry || registry[0] == '/' || !slash)
        return registry;
    return arena_printf(arena, "%.*s%s", (int)(slash - path + 1), path, registry);
}

static void read_tree(struct eval_file *file, struct problems *problems)
{
    struct reader reader = {.file = file, .problems = problems};
    struct spot root = {file->yaml.root, ""};
    struct file_stored stored = {0};
    read_section(&reader, &file_section, root, &stored);
    file->registry = resolve(&file->arena, file->path, stored.registry);
    reader.defaults = member(root, "defaults");
    check_texts(&reader, (struct spot){reader.defaults, "/defaults"});
    const struct json *groups = member(root, "groups");
    if (groups)
        read_groups(&reader, groups);
}

void eval_file_free(struct eval_file *file)
{
    if (!file)
        return;
    arena_release(&file->arena);
    free(file);
}

enum err_code eval_file_load_text(const char *path, struct str text, struct eval_file **out,
                                  struct config_report *report)
{
    struct eval_file *file = mem_zero(sizeof *file);
    struct problems problems;
    arena_init(&file->arena);
    file->path = arena_copy_text(&file->arena, path);
    report->path = arena_copy_text(&report->arena, path);
    enum err_code code = yaml_parse(&file->arena, text, &file->yaml);
    if (code) {
        config_report_yaml(report, &file->yaml);
        goto out;
    }
    problems_init(&problems, &report->arena);
    read_tree(file, &problems);
    config_report_problems(report, &file->yaml, &problems);
    if (problems.errors) {
        code = ERR_INVALID;
        goto out;
    }
    *out = file;
    file = NULL;
out:
    eval_file_free(file);
    return code;
}

enum err_code eval_file_load(const char *path, struct eval_file **out, struct config_report *report)
{
    struct buf text;
    buf_init(&text, CONFIG_BYTES_MAX);
    enum err_code code = config_read_file(path, "a scenario file", &text, report);
    if (!code)
        code = eval_file_load_text(path, buf_str(&text), out, report);
    buf_release(&text);
    return code;
}

/* ---- against a registry ---- */

static void refuse_tool(const struct eval_call *call, const struct registry *registry, struct problems *problems)
{
    size_t count = registry_tool_count(registry);
    const char **names = mem_alloc((count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = registry_tool_at(registry, i)->name;
    const char *nearest = options_nearest(str_of(call->tool), names, count);
    if (nearest)
        problems_add(problems, call->tool_pointer, "the registry has no tool \"%.64s\", did you mean \"%s\"?",
                     call->tool, nearest);
    else
        problems_add(problems, call->tool_pointer, "the registry has no tool \"%.64s\"", call->tool);
    free(names);
}

static bool told_already(const struct problems *problems, const char *pointer)
{
    return problems->count > 0 && strcmp(problems->items[problems->count - 1].pointer, pointer) == 0;
}

enum err_code eval_file_check(const struct eval_file *file, const struct registry *registry,
                              struct config_report *report)
{
    struct problems problems;
    problems_init(&problems, &report->arena);
    report->path = arena_copy_text(&report->arena, file->path);
    for (size_t g = 0; g < file->group_count; g++) {
        const struct eval_group *group = &file->groups[g];
        for (size_t c = 0; c < group->call_count; c++) {
            const struct eval_call *call = &group->calls[c];
            const struct tool *tool = registry_find(registry, str_of(call->tool));
            if (told_already(&problems, call->tool_pointer))
                continue; /* the group's tool: once is enough */
            if (!tool)
                refuse_tool(call, registry, &problems);
            else if (!tool_is_write(tool) && !tool->audit && group->expectation != EXPECT_REFUSED)
                problems_add(&problems, call->tool_pointer,
                             "%s is a read: reads are no operations, they may run as often as they like", tool->name);
        }
    }
    config_report_problems(report, &file->yaml, &problems);
    return problems.errors ? ERR_INVALID : ERR_NONE;
}
