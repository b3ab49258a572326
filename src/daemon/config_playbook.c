/* tools.NAME.compensation (design 10.1): playbooks, and whether the tools that they run can be called that way. */
#include "core/playbook.h"
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct option playbook_options[] = {
    {"tool", OPTION_TEXT, .required = true, .text = "The tool that undoes it: `refund.create`."},
    {"arguments", OPTION_JSON_BODY, .required = true,
     .text = "Its arguments, with `{places}`: the original's arguments by name, `{$external_id}`, `{$operation}`, "
             "`{$run}`, `{$result.a.b}`. A text alone is a jq program over `{arguments, result, external_id, "
             "operation_id, tool, run_id}`."},
    {"when", OPTION_JQ, .computed = "always",
     .text = "Precondition over the same: `.arguments.amount_cents > 0`. One that can not be judged refuses."},
    {"approval", OPTION_CHOICE, .fallback = "none", .choices = {"none", "required"},
     .text = "`required`: people must agree, as the compensating tool's `approval` says (one, within 24 hours, where "
             "it says nothing). `none`: only where that tool itself asks for it."},
    {"title", OPTION_TEXT, .computed = "none", .text = "What it does, for people and models."},
    {"escalate", OPTION_TEXT, .computed = "nothing more",
     .text = "What the operator is told, in the incident, when it ended without effect."},
    {"on_incident", OPTION_CHOICE, .fallback = "propose", .choices = {"propose", "none"},
     .text = "`propose`: an incident of a duplicate effect names this playbook. Nothing is undone by itself."},
};
const struct option_section config_playbook_section = {
    .name = "tools.NAME.compensation.NAME",
    .text = "How an effect of the tool is undone: by an operation of another tool, once per operation.",
    .options = playbook_options,
    .count = COUNT(playbook_options),
};

struct config_playbooks {
    struct playbook core[PLAYBOOKS_MAX];
    size_t count;
    struct jq_program *programs[2 * PLAYBOOKS_MAX];
    size_t program_count;
};

void config_playbooks_release(struct loaded_tool *tool)
{
    struct config_playbooks *playbooks = tool->playbooks;
    for (size_t i = 0; playbooks && i < playbooks->program_count; i++)
        jq_program_free(playbooks->programs[i]);
}

/* ---- reading ---- */

struct reader {
    const struct loader *loader;
    struct config_playbooks *out;
};

static const char *below(const struct reader *reader, const char *pointer, const char *name)
{
    return options_pointer(&reader->loader->loaded->arena, pointer, str_of(name));
}

/* NULL after an error. */
static const void *compile(struct reader *reader, struct str text, const char *pointer)
{
    struct err err = {0};
    struct jq_program *program = NULL;
    if (!text.p || text.n == 0) /* told by the option table */
        return NULL;
    if (jq_program_new(arena_copy_str(&reader->loader->loaded->arena, text), false, &program, &err)) {
        problems_add(reader->loader->problems, pointer, "%s", err.text);
        return NULL;
    }
    reader->out->programs[reader->out->program_count++] = program;
    return program;
}

/* Every place must be readable, before a call finds out. */
static void check_form(struct reader *reader, const struct json *value, const char *pointer)
{
    struct arena *arena = &reader->loader->loaded->arena;
    struct template *template = NULL;
    struct err err = {0};
    if (value->type == JSON_STRING && template_new(arena_copy_str(arena, value->text), &template, &err))
        problems_add(reader->loader->problems, pointer, "%s", err.text);
    template_free(template);
    for (uint32_t i = 0; value->type == JSON_ARRAY && i < value->count; i++)
        check_form(reader, &value->items[i], arena_printf(arena, "%s/%u", pointer, i));
    for (uint32_t i = 0; value->type == JSON_OBJECT && i < value->count; i++)
        check_form(reader, &value->members[i].value, options_pointer(arena, pointer, value->members[i].name));
}

static void read_arguments(struct reader *reader, const struct json *value, const char *pointer,
                           struct playbook *playbook)
{
    if (!value)
        return; /* told by the option table */
    if (value->type == JSON_STRING) {
        playbook->arguments = compile(reader, value->text, pointer);
    } else if (value->type == JSON_OBJECT) {
        playbook->form = value;
        check_form(reader, value, pointer);
    } else {
        problems_add(reader->loader->problems, pointer, "expected a mapping with {places}, or a jq program");
    }
}

static const char *text_of(struct reader *reader, const struct json *section, const char *name)
{
    struct str text = json_get_text(section, name);
    return text.p && text.n > 0 ? arena_copy_str(&reader->loader->loaded->arena, text) : NULL;
}

static void read_one(struct reader *reader, const struct json_member *member, const char *pointer)
{
    struct playbook *playbook = &reader->out->core[reader->out->count];
    const struct json *section = &member->value;
    if (!config_name_valid(member->name)) {
        problems_add(reader->loader->problems, pointer, "a playbook's name is 1 to %d characters of A-Z a-z 0-9 _ . -",
                     CONFIG_NAME_BYTES_MAX);
        return;
    }
    const struct options_reader options = {.arena = &reader->loader->loaded->arena,
                                           .problems = reader->loader->problems};
    options_read(&options, &config_playbook_section, section, pointer, NULL);
    if (section->type != JSON_OBJECT)
        return;
    *playbook = (struct playbook){
        .name = arena_copy_str(&reader->loader->loaded->arena, member->name),
        .tool = text_of(reader, section, "tool"),
        .title = text_of(reader, section, "title"),
        .escalate = text_of(reader, section, "escalate"),
        .needs_approval = str_is(json_get_text(section, "approval"), "required"),
        .proposed = !str_is(json_get_text(section, "on_incident"), "none"),
        .when = compile(reader, json_get_text(section, "when"), below(reader, pointer, "when")),
    };
    read_arguments(reader, json_get(section, "arguments"), below(reader, pointer, "arguments"), playbook);
    if (playbook->tool)
        reader->out->count++;
}

void config_playbooks_read(const struct loader *loader, const struct json *section, const char *pointer,
                           struct loaded_tool *out)
{
    const struct json *playbooks = json_get(section, "compensation");
    struct reader reader = {loader, NULL};
    const char *at = below(&reader, pointer, "compensation");
    if (!playbooks || playbooks->type != JSON_OBJECT || playbooks->count == 0)
        return;
    if (out->core.class == CLASS_READ)
        problems_add(loader->problems, at, "is for tools that change something, not for class read");
    if (playbooks->count > PLAYBOOKS_MAX) {
        problems_add(loader->problems, at, "%u playbooks, at most %d are allowed", playbooks->count, PLAYBOOKS_MAX);
        return;
    }
    reader.out = out->playbooks = arena_zero(&loader->loaded->arena, sizeof *out->playbooks);
    for (uint32_t i = 0; i < playbooks->count; i++)
        read_one(&reader, &playbooks->members[i],
                 options_pointer(&loader->loaded->arena, at, playbooks->members[i].name));
    out->core.playbooks = reader.out->core;
    out->core.playbook_count = reader.out->count;
}

/* ---- when all tools are known ---- */

const struct tool *config_find_tool(const struct loader *loader, const char *name, const char *pointer)
{
    const struct loaded *loaded = loader->loaded;
    const char *names[CONFIG_SUGGESTIONS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < loaded->tool_count; i++) {
        if (strcmp(loaded->tools[i].core.name, name) == 0)
            return &loaded->tools[i].core;
        if (count < CONFIG_SUGGESTIONS_MAX)
            names[count++] = loaded->tools[i].core.name;
    }
    const char *nearest = options_nearest(str_of(name), names, count);
    if (nearest)
        problems_add(loader->problems, pointer, "there is no tool \"%.60s\", did you mean \"%s\"?", name, nearest);
    else
        problems_add(loader->problems, pointer, "there is no tool \"%.60s\" in tools", name);
    return NULL;
}

/* A form names its members: what the tool requires and does not get, or does not know, fails each run. */
void config_form_check(const struct loader *loader, const struct json *form, const struct tool *tool,
                       const char *pointer)
{
    const struct json *schema = tool->input_schema_json;
    const struct json *required = schema ? json_get(schema, "required") : NULL;
    const struct json *properties = schema ? json_get(schema, "properties") : NULL;
    const struct json *additional = schema ? json_get(schema, "additionalProperties") : NULL;
    struct arena *arena = &loader->loaded->arena;
    for (uint32_t i = 0; required && required->type == JSON_ARRAY && i < required->count; i++) {
        const struct json *name = &required->items[i];
        const struct json *property = properties ? json_get_str(properties, name->text) : NULL;
        bool has_default = property && property->type == JSON_OBJECT && json_get(property, "default");
        if (name->type == JSON_STRING && !has_default && !json_get_str(form, name->text))
            problems_add(loader->problems, pointer, "does not give \"%.*s\", which %s requires", STR_ARG(name->text),
                         tool->name);
    }
    bool closed = additional && additional->type == JSON_BOOL && !additional->boolean;
    for (uint32_t i = 0; closed && i < form->count; i++) {
        struct str name = form->members[i].name;
        if (!properties || !json_get_str(properties, name))
            problems_add(loader->problems, options_pointer(arena, pointer, name), "%s has no argument \"%.*s\"",
                         tool->name, STR_ARG(name));
    }
}

static void check_one(const struct loader *loader, const struct loaded_tool *owner, const struct playbook *playbook)
{
    struct arena *arena = &loader->loaded->arena;
    const char *at = options_pointer(arena, "/tools", str_of(owner->core.name));
    at = options_pointer(arena, options_pointer(arena, at, STR("compensation")), str_of(playbook->name));
    const struct tool *tool = config_find_tool(loader, playbook->tool, options_pointer(arena, at, STR("tool")));
    if (!tool)
        return;
    if (tool->steps)
        problems_add(loader->problems, options_pointer(arena, at, STR("tool")),
                     "%s is a multi-step tool: a playbook runs one that is not", tool->name);
    if (tool->class == CLASS_READ || tool->forwarded)
        problems_add(loader->problems, options_pointer(arena, at, STR("tool")),
                     "%s changes nothing that onced knows of (class read): it can undo nothing", tool->name);
    if (playbook->form)
        config_form_check(loader, playbook->form, tool, options_pointer(arena, at, STR("arguments")));
    if (!playbook->escalate)
        problems_warn(loader->problems, at, "does not say what an operator is to do when it fails: state escalate");
}

void config_playbooks_check(const struct loader *loader)
{
    const struct loaded *loaded = loader->loaded;
    for (size_t i = 0; i < loaded->tool_count; i++)
        for (size_t k = 0; k < loaded->tools[i].core.playbook_count; k++)
            check_one(loader, &loaded->tools[i], &loaded->tools[i].core.playbooks[k]);
}
