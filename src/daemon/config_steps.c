/* tools.NAME.steps (design 10.2): multi-step tools, and whether the tools of their steps can be called that way. */
#include "core/steps.h"

#include "core/playbook.h"
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define DIGEST_HEX_BYTES 6

static const struct option step_options[] = {
    {"name", OPTION_TEXT, .required = true,
     .text = "What the step is called, once in the list: `reserve`. 1 to 64 characters of a-z 0-9 _ -."},
    {"tool", OPTION_TEXT, .required = true,
     .text = "The tool that performs it: one of `tools`, neither multi-step nor of guard mode."},
    {"arguments", OPTION_JSON_BODY, .required = true,
     .text = "Its arguments, with `{places}`: the call's arguments by name, `{$steps.NAME.result.a.b}`, "
             "`{$steps.NAME.external_id}`, `{$operation}`, `{$run}`; only steps before this one. A text alone is a jq "
             "program over `{arguments, steps: {NAME: {status, result, external_id, operation_id, arguments}}, "
             "operation_id, run_id}`."},
    {"when", OPTION_JQ, .computed = "always",
     .text = "Condition over the same: `.arguments.gift_wrap`. False: the step is skipped. One that can not be judged "
             "fails the step."},
    {"undo", OPTION_TEXT, .computed = "must be stated, but for reads and the last step",
     .text = "What becomes of it when a later step fails: a playbook of its tool; `leave`, it stays as it is; "
             "`escalate`, a person decides."},
};
const struct option_section config_step_section = {
    .name = "tools.NAME.steps[]",
    .text = "The steps of a multi-step tool, in order. Each is an operation of its own.",
    .options = step_options,
    .count = COUNT(step_options),
};

struct config_steps {
    struct steps_list core;
    struct steps_item items[STEPS_MAX]; /* in the order of the file; name or tool may be NULL after errors */
    bool undo_stated[STEPS_MAX];
    struct jq_program *programs[2 * STEPS_MAX + 1];
    size_t program_count;
};

void config_steps_release(struct loaded_tool *tool)
{
    struct config_steps *steps = tool->steps;
    for (size_t i = 0; steps && i < steps->program_count; i++)
        jq_program_free(steps->programs[i]);
}

/* The list, when it is one of mappings; others were told by the option table. */
static const struct json *list_of(const struct json *section)
{
    const struct json *list = section->type == JSON_OBJECT ? json_get(section, "steps") : NULL;
    return list && list->type == JSON_ARRAY && list->count <= STEPS_MAX ? list : NULL;
}

bool config_steps_stated(const struct json *section)
{
    return section->type == JSON_OBJECT && json_get(section, "steps");
}

/* ---- class ---- */

static const struct tool *loaded_tool(const struct loader *loader, struct str name)
{
    for (size_t i = 0; name.p && i < loader->loaded->tool_count; i++)
        if (str_is(name, loader->loaded->tools[i].core.name))
            return &loader->loaded->tools[i].core;
    return NULL;
}

bool config_steps_class(const struct loader *loader, const struct json *section, const char *pointer,
                        enum tool_class *class)
{
    const struct json *list = list_of(section);
    const char *by = NULL;
    enum tool_class stated;
    *class = CLASS_READ;
    for (uint32_t i = 0; list && i < list->count; i++) {
        const struct tool *tool = loaded_tool(loader, json_get_text(&list->items[i], "tool"));
        if (!tool) { /* told when all tools are read */
            *class = CLASS_EXTERNAL_IRREVERSIBLE;
            return false;
        }
        if (!by || tool->class > *class) {
            *class = tool->class;
            by = tool->name;
        }
    }
    struct str name = json_get_text(section, "class");
    if (by && name.p && tool_class_from_name(name, &stated) && stated != *class)
        problems_add(loader->problems, options_pointer(&loader->loaded->arena, pointer, STR("class")),
                     "a multi-step tool has the class of the most dangerous of its steps, %s (%s): leave class out",
                     tool_class_name(*class), by);
    return by != NULL;
}

/* ---- reading ---- */

struct reader {
    const struct loader *loader;
    struct arena *arena;
    struct config_steps *out;
};

static const char *below(const struct reader *reader, const char *pointer, const char *name)
{
    return options_pointer(reader->arena, pointer, str_of(name));
}

/* NULL after an error, or when there is nothing to compile. */
static const void *compile(struct reader *reader, struct str text, const char *pointer)
{
    struct err err = {0};
    struct jq_program *program = NULL;
    if (!text.p || text.n == 0) /* told by the option table */
        return NULL;
    if (jq_program_new(arena_copy_str(reader->arena, text), false, &program, &err)) {
        problems_add(reader->loader->problems, pointer, "%s", err.text);
        return NULL;
    }
    reader->out->programs[reader->out->program_count++] = program;
    return program;
}

/* No dots: {$steps.a.b.result} could be read in two ways. */
static bool name_valid(struct str name)
{
    if (name.n == 0 || name.n > STEPS_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '-')
            return false;
    }
    return true;
}

static const char *read_name(struct reader *reader, struct str name, const char *pointer)
{
    const struct config_steps *out = reader->out;
    if (!name.p || name.n == 0) /* told by the option table */
        return NULL;
    if (!name_valid(name)) {
        problems_add(reader->loader->problems, pointer, "a step's name is 1 to %d characters of a-z 0-9 _ -",
                     STEPS_NAME_BYTES_MAX);
        return NULL;
    }
    for (size_t i = 0; i < out->core.count; i++)
        if (out->items[i].name && str_is(name, out->items[i].name)) {
            problems_add(reader->loader->problems, pointer, "step %zu is called \"%.*s\" already", i + 1,
                         STR_ARG(name));
            return NULL;
        }
    return arena_copy_str(reader->arena, name);
}

static void read_arguments(struct reader *reader, const struct json *value, const char *pointer,
                           struct steps_item *item)
{
    if (!value)
        return; /* told by the option table */
    if (value->type == JSON_STRING)
        item->arguments = compile(reader, value->text, pointer);
    else if (value->type == JSON_OBJECT)
        item->form = value;
    else
        problems_add(reader->loader->problems, pointer, "expected a mapping with {places}, or a jq program");
}

static void read_undo(struct reader *reader, struct str undo, struct steps_item *item)
{
    size_t index = reader->out->core.count;
    reader->out->undo_stated[index] = undo.n > 0;
    item->undo = STEPS_UNDO_ESCALATE;
    if (str_is(undo, "leave"))
        item->undo = STEPS_UNDO_LEAVE;
    else if (undo.n > 0 && !str_is(undo, "escalate")) {
        item->undo = STEPS_UNDO_PLAYBOOK;
        item->playbook = arena_copy_str(reader->arena, undo);
    }
}

static void read_one(struct reader *reader, const struct json *section, const char *pointer)
{
    struct steps_item *item = &reader->out->items[reader->out->core.count];
    if (section->type == JSON_OBJECT) {
        struct str tool = json_get_text(section, "tool");
        item->name = read_name(reader, json_get_text(section, "name"), below(reader, pointer, "name"));
        item->tool = tool.n > 0 ? arena_copy_str(reader->arena, tool) : NULL;
        item->when = compile(reader, json_get_text(section, "when"), below(reader, pointer, "when"));
        read_arguments(reader, json_get(section, "arguments"), below(reader, pointer, "arguments"), item);
        read_undo(reader, json_get_text(section, "undo"), item);
    }
    reader->out->core.count++;
}

/* Over the list as it is written: what the steps' own tools say may change while a parent is under way. */
static const char *digest_of(struct arena *arena, const struct json *list)
{
    struct buf canonical;
    char *hex = arena_alloc(arena, 2 * DIGEST_HEX_BYTES + 1);
    buf_init(&canonical, 0);
    json_canonical(&canonical, list);
    struct digest digest = digest_sha256(buf_str(&canonical));
    digest_hex(&digest, DIGEST_HEX_BYTES, hex);
    buf_release(&canonical);
    return hex;
}

void config_steps_read(const struct loader *loader, const struct json *section, const char *pointer,
                       struct loaded_tool *out)
{
    struct arena *arena = &loader->loaded->arena;
    struct reader reader = {loader, arena, arena_zero(arena, sizeof *reader.out)};
    const struct json *list = list_of(section);
    const char *at = below(&reader, pointer, "steps");
    struct steps_list *core = &reader.out->core;
    out->steps = reader.out;
    out->core.steps = core;
    out->core.provider = &steps_provider;
    out->core.reconcile.strategies[0] = STRATEGY_MANUAL;
    out->core.reconcile.strategy_count = 1;
    core->items = reader.out->items;
    core->digest = "";
    if (!list)
        return;
    if (list->count == 0)
        problems_add(loader->problems, at, "is empty, expected at least one step");
    for (uint32_t i = 0; i < list->count; i++)
        read_one(&reader, &list->items[i], arena_printf(arena, "%s/%u", at, i));
    core->result = compile(&reader, json_get_text(section, "result"), below(&reader, pointer, "result"));
    core->digest = digest_of(arena, list);
}

/* ---- when all tools are known ---- */

struct checker {
    const struct loader *loader;
    struct arena *arena;
    const struct tool *parent;
    struct config_steps *steps;
    size_t at; /* the step that is looked at */
};

/* The step that a place names, told when it is not one before this one. */
static const struct steps_item *named_step(const struct checker *checker, struct str name, const char *pointer)
{
    const struct steps_list *list = &checker->steps->core;
    const char *names[STEPS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct steps_item *item = &list->items[i];
        if (!item->name)
            continue;
        if (str_is(name, item->name) && i < checker->at)
            return item;
        if (str_is(name, item->name)) {
            problems_add(checker->loader->problems, pointer,
                         "step \"%s\" is not over then: only steps before this one can be used", item->name);
            return NULL;
        }
        if (i < checker->at)
            names[count++] = item->name;
    }
    const char *nearest = options_nearest(name, names, count);
    int shown = name.n > 60 ? 60 : (int)name.n;
    if (nearest)
        problems_add(checker->loader->problems, pointer, "there is no step \"%.*s\", did you mean \"%s\"?", shown,
                     name.p, nearest);
    else
        problems_add(checker->loader->problems, pointer, "there is no step \"%.*s\"", shown, name.p);
    return NULL;
}

/* The next part of a pointer like "/$steps/charge/external_id"; names of steps and members have nothing to unescape. */
static struct str next_token(struct str *pointer)
{
    if (pointer->n == 0)
        return STR_NONE;
    const char *start = pointer->p + 1, *end = memchr(start, '/', pointer->n - 1);
    size_t n = end ? (size_t)(end - start) : pointer->n - 1;
    *pointer = (struct str){start + n, pointer->n - 1 - n};
    return (struct str){start, n};
}

static bool is_member(struct str name)
{
    static const char *const members[] = {"status", "result", "external_id", "operation_id", "arguments"};
    for (size_t i = 0; i < COUNT(members); i++)
        if (str_is(name, members[i]))
            return true;
    return false;
}

static void check_step_place(const struct checker *checker, struct str rest, struct str name, const char *pointer)
{
    struct problems *problems = checker->loader->problems;
    struct str step = next_token(&rest), member = next_token(&rest);
    if (!step.p) {
        problems_add(problems, pointer, "\"{$steps}\" does not name a step, expected {$steps.NAME.…}");
        return;
    }
    const struct steps_item *item = named_step(checker, step, pointer);
    if (!item)
        return;
    if (member.p && !is_member(member))
        problems_add(problems, pointer,
                     "\"{%.*s}\": a step has status, result, external_id, operation_id and arguments, no \"%.*s\"",
                     STR_ARG(name), STR_ARG(member));
    else if (item->when && !str_is(member, "status"))
        problems_warn(problems, pointer,
                      "step \"%s\" may be skipped (when): this step fails then, for there is nothing to fill in",
                      item->name);
}

static void check_place(const struct checker *checker, struct str name, struct str place, const char *pointer)
{
    struct str rest = place, first = next_token(&rest);
    if (first.n == 0 || first.p[0] != '$')
        return; /* an argument: config_names.c */
    if (str_is(first, "$steps"))
        check_step_place(checker, rest, name, pointer);
    else if ((!str_is(first, "$operation") && !str_is(first, "$run")) || rest.n > 0)
        problems_add(checker->loader->problems, pointer,
                     "\"{%.*s}\" is no place of a step, expected {argument}, {$steps.NAME.…}, {$operation} or {$run}",
                     STR_ARG(name));
}

/* Every place must be readable, before a call finds out. */
static void check_form(const struct checker *checker, const struct json *value, const char *pointer)
{
    struct template *template = NULL;
    struct str name, place;
    struct err err = {0};
    if (value->type == JSON_STRING) {
        if (template_new(arena_copy_str(checker->arena, value->text), &template, &err))
            problems_add(checker->loader->problems, pointer, "%s", err.text);
        for (size_t i = 0; template && template_place(template, i, &name, &place); i++)
            check_place(checker, name, place, pointer);
        template_free(template);
    }
    for (uint32_t i = 0; value->type == JSON_ARRAY && i < value->count; i++)
        check_form(checker, &value->items[i], arena_printf(checker->arena, "%s/%u", pointer, i));
    for (uint32_t i = 0; value->type == JSON_OBJECT && i < value->count; i++)
        check_form(checker, &value->members[i].value, options_pointer(checker->arena, pointer, value->members[i].name));
}

/* The words that a step of this tool can be undone by. */
static const char *undo_words(struct arena *arena, const struct tool *tool)
{
    const char *words = "";
    for (size_t i = 0; i < tool->playbook_count; i++)
        words = arena_printf(arena, "%s%s, ", words, tool->playbooks[i].name);
    return arena_printf(arena, "%sleave or escalate", words);
}

static void check_undo(const struct checker *checker, const struct tool *tool, struct steps_item *item,
                       const char *pointer)
{
    struct problems *problems = checker->loader->problems;
    bool stated = checker->steps->undo_stated[checker->at], last = checker->at + 1 == checker->steps->core.count;
    const char *at = options_pointer(checker->arena, pointer, STR("undo"));
    if (tool->class == CLASS_READ) {
        if (stated && item->undo != STEPS_UNDO_LEAVE)
            problems_add(problems, at, "%s changes nothing (class read): there is nothing to undo", tool->name);
        item->undo = STEPS_UNDO_NOTHING;
        item->playbook = NULL;
        return;
    }
    if (!stated && !last)
        problems_add(problems, pointer, "does not say what becomes of it when a later step fails, expected undo: %s",
                     undo_words(checker->arena, tool));
    if (item->undo == STEPS_UNDO_PLAYBOOK && !playbook_find(tool, item->playbook))
        problems_add(problems, at, "%s has no playbook \"%.60s\", expected %s", tool->name, item->playbook,
                     undo_words(checker->arena, tool));
}

/* What a step's watch finds is told to its parent as long as that is kept (design 7.3, 10.2). */
static void check_retain(const struct checker *checker, const struct tool *tool, const char *pointer)
{
    const struct reconcile_policy *reconcile = &tool->reconcile;
    bool watches = tool->class != CLASS_READ && tool->has_lookup && reconcile->watch_count > 0;
    if (watches && checker->parent->retain_ms <= reconcile->watch_ms[reconcile->watch_count - 1])
        problems_warn(
            checker->loader->problems, pointer,
            "the watch of %s goes on after retain of %s has ended: an effect that lands then is an incident of "
            "the step alone",
            tool->name, checker->parent->name);
}

/* A playbook of that name could not be told from the rule. */
static void check_playbook_names(const struct checker *checker, const struct tool *tool, const char *pointer)
{
    static const char *const rules[] = {"leave", "escalate"};
    for (size_t i = 0; i < COUNT(rules); i++)
        if (playbook_find(tool, rules[i]))
            problems_add(checker->loader->problems, pointer,
                         "%s has a playbook called \"%s\", which is a rule of steps: give it another name", tool->name,
                         rules[i]);
}

static const char *unfit(const struct tool *tool)
{
    if (tool->steps)
        return "is a multi-step tool itself: name the tools of its steps";
    if (tool->guard_lease_ms > 0)
        return "is of guard mode: no application would begin the step";
    if (tool->forwarded)
        return "is forwarded, outside of the ledger: what it gave could not be passed on after a crash";
    return NULL;
}

static void check_one(const struct checker *checker, const char *pointer)
{
    struct steps_item *item = &checker->steps->items[checker->at];
    const char *at = options_pointer(checker->arena, pointer, STR("tool"));
    const char *arguments = options_pointer(checker->arena, pointer, STR("arguments"));
    if (item->form)
        check_form(checker, item->form, arguments);
    const struct tool *tool = item->tool ? config_find_tool(checker->loader, item->tool, at) : NULL;
    if (!tool)
        return;
    const char *why = unfit(tool);
    if (why) {
        problems_add(checker->loader->problems, at, "%s %s", tool->name, why);
        return;
    }
    if (item->form)
        config_form_check(checker->loader, item->form, tool, arguments);
    check_undo(checker, tool, item, pointer);
    check_retain(checker, tool, at);
    check_playbook_names(checker, tool, at);
}

void config_steps_check(const struct loader *loader)
{
    struct loaded *loaded = loader->loaded;
    for (size_t i = 0; i < loaded->tool_count; i++) {
        struct loaded_tool *tool = &loaded->tools[i];
        if (!tool->steps)
            continue;
        const char *at = options_pointer(&loaded->arena, "/tools", str_of(tool->core.name));
        at = options_pointer(&loaded->arena, at, STR("steps"));
        struct checker checker = {loader, &loaded->arena, &tool->core, tool->steps, 0};
        for (; checker.at < tool->steps->core.count; checker.at++)
            check_one(&checker, arena_printf(&loaded->arena, "%s/%zu", at, checker.at));
    }
}
