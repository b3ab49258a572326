/* budgets, and of a tool: entities, guards, sets, window, budgets (design 9). */
#include "base/units.h"
#include "core/claims.h"
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define SECTION(id, title, words)                                                                                      \
    {                                                                                                                  \
        .name = (title), .text = (words), .options = id, .count = COUNT(id)                                            \
    }
#define SECOND INT64_C(1000)
#define DAY    (86400 * SECOND)

static const struct option entity_options[] = {
    {"type", OPTION_TEXT, .required = true, .text = "What kind of thing it is: `order`."},
    {"id", OPTION_TEMPLATE, .required = true, .text = "Which one: `{order_id}`."},
    {"exclusive", OPTION_CHOICE, .fallback = "reject", .choices = {"reject", "queue"},
     .text = "While another operation holds it: `reject` refuses the call (409), `queue` waits, in order, for the "
             "tool's total time at most."},
};
const struct option_section config_entity_section = SECTION(
    entity_options, "tools.NAME.entities[]",
    "Things that an operation has for itself from its start until it has ended, an unknown outcome included. All "
    "at once or none.");

static const struct option guard_options[] = {
    {"refuse_when", OPTION_JQ, .required = true,
     .text = "Condition over `{TYPE: {id, attributes, by: {attribute: operation}}, entities: […], arguments}`: "
             "`.order.state == \"refunded\"`. One that can not be judged refuses."},
    {"message", OPTION_TEMPLATE, .required = true,
     .text = "Why: `order {order_id} is already refunded by {order.by.state}`."},
};
const struct option_section config_state_guard_section =
    SECTION(guard_options, "tools.NAME.guards[]",
            "Refuses what the present state of its entities forbids: at admission, and again when its turn has come.");

static const struct option window_options[] = {
    {"key", OPTION_TEMPLATE, .required = true,
     .text = "What must not be done twice within the period: `followup:{template}:{user_id}`. Shared by all tools of "
             "the tenant."},
    {"per", OPTION_DURATION, .required = true, .min = SECOND, .max = 3650 * DAY, .text = "The period."},
    {"override", OPTION_CHOICE, .fallback = "denied", .choices = {"denied", "with_reason"},
     .text = "`with_reason`: a call that gives `override_reason` runs all the same; the reason is recorded."},
};
const struct option_section config_window_section =
    SECTION(window_options, "tools.NAME.window", "Once per period, whatever the key, tool or channel.");

static const struct option debit_options[] = {
    {"budget", OPTION_TEXT, .required = true, .text = "One of `budgets`."},
    {"amount", OPTION_POINTER, .computed = "1: calls are counted",
     .text = "Where the amount is among the arguments: `/amount`. Exact decimals, not negative."},
    {"key", OPTION_TEMPLATE, .computed = "one in all", .text = "One budget for each value: `{customer_id}`."},
};
const struct option_section config_debit_section =
    SECTION(debit_options, "tools.NAME.budgets[]",
            "What the call takes from budgets: given back when it is proven to have had no effect, kept while that is "
            "unknown.");

static const struct option budget_options[] = {
    {"per", OPTION_DURATION, .required = true, .min = SECOND, .max = 3650 * DAY,
     .text = "The period. Never more than the limit within any such time."},
    {"limit", OPTION_DECIMAL, .required = true, .min = 0, .max = INT64_C(999999999999999999),
     .text = "Largest sum or count: `500.00`."},
    {"scope", OPTION_CHOICE, .fallback = "tenant", .choices = {"tenant", "principal"},
     .text = "One for the whole tenant, or one for each principal."},
};
const struct option_section config_budget_section =
    SECTION(budget_options, "budgets.NAME", "A limit on sums or counts within a period; tools take from it.");

/* ---- what must be released ---- */

struct config_claims {
    struct tool_claims core;
    struct template *templates[2 * CLAIMS_ENTITIES_MAX + CLAIMS_GUARDS_MAX + CLAIMS_DEBITS_MAX + 1 + CONFIG_SETS_MAX];
    size_t template_count;
    struct jq_program *programs[CLAIMS_GUARDS_MAX];
    size_t program_count;
};

void config_claims_release(struct loaded_tool *tool)
{
    struct config_claims *claims = tool->claims;
    for (size_t i = 0; claims && i < claims->template_count; i++)
        template_free(claims->templates[i]);
    for (size_t i = 0; claims && i < claims->program_count; i++)
        jq_program_free(claims->programs[i]);
}

struct reader {
    const struct loader *loader;
    struct arena *arena;
    struct config_claims *out;
};

static const char *below(const struct reader *reader, const char *pointer, const char *name)
{
    return options_pointer(reader->arena, pointer, str_of(name));
}

static const char *item_pointer(const struct reader *reader, const char *pointer, uint32_t index)
{
    return arena_printf(reader->arena, "%s/%u", pointer, index);
}

/* NULL after an error. */
static const struct template *compile(struct reader *reader, struct str text, const char *pointer)
{
    struct config_claims *out = reader->out;
    struct err err = {0};
    struct template *template = NULL;
    if (!text.p || text.n == 0) /* told by the option table */
        return NULL;
    if (template_new(arena_copy_str(reader->arena, text), &template, &err)) {
        problems_add(reader->loader->problems, pointer, "%s", err.text);
        return NULL;
    }
    out->templates[out->template_count++] = template;
    return template;
}

/* The list's items that are mappings; others were told by the option table. */
static const struct json *list_of(const struct json *section, const char *name, size_t max, uint32_t *count)
{
    const struct json *list = json_get(section, name);
    *count = list && list->type == JSON_ARRAY ? list->count : 0;
    if (*count > max)
        *count = (uint32_t)max;
    return list;
}

static bool name_fits(const struct reader *reader, struct str name, const char *pointer, const char *what)
{
    bool fits = name.p && name.n > 0 && name.n <= CLAIMS_NAME_BYTES_MAX && config_name_valid(name);
    if (!fits && name.p && name.n > 0)
        problems_add(reader->loader->problems, pointer, "%s is 1 to %d characters of A-Z a-z 0-9 _ . -", what,
                     CLAIMS_NAME_BYTES_MAX);
    return fits;
}

/* ---- parts ---- */

static void read_entities(struct reader *reader, const struct json *section, const char *pointer)
{
    uint32_t count;
    const struct json *list = list_of(section, "entities", CLAIMS_ENTITIES_MAX, &count);
    struct entity_rule *rules = arena_zero(reader->arena, (count + 1) * sizeof *rules);
    struct tool_claims *core = &reader->out->core;
    for (uint32_t i = 0; i < count; i++) {
        const struct json *item = &list->items[i];
        const char *at = item_pointer(reader, below(reader, pointer, "entities"), i);
        struct str type = json_get_text(item, "type");
        struct entity_rule *rule = &rules[core->entity_count];
        rule->type = arena_copy_str(reader->arena, type);
        rule->id = compile(reader, json_get_text(item, "id"), below(reader, at, "id"));
        rule->queue = str_is(json_get_text(item, "exclusive"), "queue");
        if (name_fits(reader, type, below(reader, at, "type"), "a type") && rule->id)
            core->entity_count++;
    }
    core->entities = rules;
}

static void read_guards(struct reader *reader, const struct json *section, const char *pointer)
{
    uint32_t count;
    const struct json *list = list_of(section, "guards", CLAIMS_GUARDS_MAX, &count);
    struct guard_rule *rules = arena_zero(reader->arena, (count + 1) * sizeof *rules);
    struct tool_claims *core = &reader->out->core;
    for (uint32_t i = 0; i < count; i++) {
        const struct json *item = &list->items[i];
        const char *at = item_pointer(reader, below(reader, pointer, "guards"), i);
        struct str text = json_get_text(item, "refuse_when");
        struct guard_rule *rule = &rules[core->guard_count];
        struct jq_program *program = NULL;
        struct err err = {0};
        if (!text.p || text.n == 0)
            continue;
        if (jq_program_new(arena_copy_str(reader->arena, text), false, &program, &err)) {
            problems_add(reader->loader->problems, below(reader, at, "refuse_when"), "%s", err.text);
            continue;
        }
        reader->out->programs[reader->out->program_count++] = program;
        rule->program = program;
        rule->message = compile(reader, json_get_text(item, "message"), below(reader, at, "message"));
        if (rule->message)
            core->guard_count++;
    }
    core->guards = rules;
    if (count > 0 && core->entity_count == 0)
        problems_add(reader->loader->problems, below(reader, pointer, "guards"),
                     "guards look at entities: name those that they look at in entities");
}

static bool names_entity(const struct tool_claims *core, struct str type)
{
    for (size_t i = 0; i < core->entity_count; i++)
        if (str_is(type, core->entities[i].type))
            return true;
    return false;
}

static void read_attribute(struct reader *reader, const char *type, const struct json_member *member,
                           const char *pointer, struct attribute_rule *rules)
{
    struct tool_claims *core = &reader->out->core;
    struct attribute_rule *rule = &rules[core->set_count];
    const char *at = options_pointer(reader->arena, pointer, member->name);
    static const char *const taken[] = {"id", "by", "type"};
    if (core->set_count == CONFIG_SETS_MAX) {
        problems_add(reader->loader->problems, at, "more than %d attributes", CONFIG_SETS_MAX);
        return;
    }
    if (!name_fits(reader, member->name, at, "an attribute's name"))
        return;
    for (size_t i = 0; i < COUNT(taken); i++)
        if (str_is(member->name, taken[i]))
            problems_add(reader->loader->problems, at, "\"%s\" is a name that guards use for something else", taken[i]);
    *rule = (struct attribute_rule){
        .type = type, .name = arena_copy_str(reader->arena, member->name), .value = &member->value};
    if (member->value.type == JSON_STRING && memchr(member->value.text.p, '{', member->value.text.n))
        rule->template = compile(reader, member->value.text, at);
    core->set_count++;
}

static void read_sets(struct reader *reader, const struct json *section, const char *pointer)
{
    const struct json *sets = json_get(section, "sets");
    struct tool_claims *core = &reader->out->core;
    struct attribute_rule *rules = arena_zero(reader->arena, CONFIG_SETS_MAX * sizeof *rules);
    core->sets = rules;
    for (uint32_t i = 0; sets && sets->type == JSON_OBJECT && i < sets->count; i++) {
        const struct json_member *type = &sets->members[i];
        const char *at = options_pointer(reader->arena, below(reader, pointer, "sets"), type->name);
        if (!names_entity(core, type->name))
            problems_add(reader->loader->problems, at, "there is no entity of this type in entities");
        else if (type->value.type != JSON_OBJECT)
            problems_add(reader->loader->problems, at, "expected a mapping of attributes to values");
        else
            for (uint32_t k = 0; k < type->value.count; k++)
                read_attribute(reader, arena_copy_str(reader->arena, type->name), &type->value.members[k], at, rules);
    }
}

static int64_t duration_of(const struct json *section, const char *name)
{
    int64_t ms = 0;
    const struct json *value = json_get(section, name);
    if (!value || (value->type != JSON_STRING && value->type != JSON_NUMBER) ||
        units_duration_ms(value->text, &ms, NULL))
        return 0;
    return ms;
}

static void read_window(struct reader *reader, const struct json *section, const char *pointer)
{
    const struct json *window = json_get(section, "window");
    struct window_rule *rule = &reader->out->core.window;
    const char *at = below(reader, pointer, "window");
    if (!window || window->type != JSON_OBJECT)
        return;
    rule->key = compile(reader, json_get_text(window, "key"), below(reader, at, "key"));
    rule->per_ms = duration_of(window, "per");
    rule->overridable = str_is(json_get_text(window, "override"), "with_reason");
    if (!json_get(window, "override"))
        problems_warn(reader->loader->problems, at,
                      "does not say whether it may be overridden: state override: denied, or with_reason");
}

static const struct budget *find_budget(const struct reader *reader, struct str name, const char *pointer)
{
    const struct loaded *loaded = reader->loader->loaded;
    for (size_t i = 0; i < loaded->budget_count; i++)
        if (str_is(name, loaded->budgets[i].name))
            return &loaded->budgets[i];
    if (name.p && name.n > 0)
        problems_add(reader->loader->problems, pointer, "there is no budget \"%.*s\" in budgets",
                     name.n > 60 ? 60 : (int)name.n, name.p);
    return NULL;
}

static void read_debits(struct reader *reader, const struct json *section, const char *pointer)
{
    uint32_t count;
    const struct json *list = list_of(section, "budgets", CLAIMS_DEBITS_MAX, &count);
    struct debit_rule *rules = arena_zero(reader->arena, (count + 1) * sizeof *rules);
    struct tool_claims *core = &reader->out->core;
    core->debits = rules;
    for (uint32_t i = 0; i < count; i++) {
        const struct json *item = &list->items[i];
        const char *at = item_pointer(reader, below(reader, pointer, "budgets"), i);
        struct debit_rule *rule = &rules[core->debit_count];
        rule->budget = find_budget(reader, json_get_text(item, "budget"), below(reader, at, "budget"));
        rule->amount = arena_copy_str(reader->arena, json_get_text(item, "amount"));
        rule->key = compile(reader, json_get_text(item, "key"), below(reader, at, "key"));
        for (size_t k = 0; rule->budget && k < core->debit_count; k++)
            if (rules[k].budget == rule->budget && !rules[k].key == !rule->key)
                problems_add(reader->loader->problems, at, "budget \"%s\" is taken from twice", rule->budget->name);
        if (rule->budget)
            core->debit_count++;
    }
}

/* ---- the whole ---- */

static void check(struct reader *reader, const struct json *section, const char *pointer, const struct tool *tool)
{
    static const char *const members[] = {"entities", "guards", "sets", "window", "budgets"};
    const struct window_rule *window = &reader->out->core.window;
    for (size_t i = 0; i < COUNT(members); i++)
        if (tool->class == CLASS_READ && json_get(section, members[i]))
            problems_add(reader->loader->problems, below(reader, pointer, members[i]),
                         "is for tools that change something, not for class read");
    if (window->key && tool->retain_ms < window->per_ms)
        problems_warn(reader->loader->problems, below(reader, pointer, "window"),
                      "is longer than retain: what was done is refused again, but can no longer be looked at");
}

void config_claims_read(const struct loader *loader, const struct json *section, const char *pointer,
                        struct loaded_tool *out)
{
    struct arena *arena = &loader->loaded->arena;
    struct reader reader = {loader, arena, arena_zero(arena, sizeof(struct config_claims))};
    struct tool_claims *core = &reader.out->core;
    out->claims = reader.out;
    read_entities(&reader, section, pointer);
    read_guards(&reader, section, pointer);
    read_sets(&reader, section, pointer);
    read_window(&reader, section, pointer);
    read_debits(&reader, section, pointer);
    check(&reader, section, pointer, &out->core);
    if (core->entity_count > 0 || core->debit_count > 0 || core->window.key)
        out->core.claims = core;
}

void config_budgets_read(const struct loader *loader, const struct json *budgets)
{
    struct loaded *loaded = loader->loaded;
    struct options_reader options = {.arena = &loaded->arena, .problems = loader->problems};
    struct reader reader = {loader, &loaded->arena, NULL};
    uint32_t count = budgets && budgets->type == JSON_OBJECT ? budgets->count : 0;
    loaded->budgets = arena_zero(&loaded->arena, (count + 1) * sizeof *loaded->budgets);
    for (uint32_t i = 0; i < count; i++) {
        const struct json_member *member = &budgets->members[i];
        const char *at = options_pointer(&loaded->arena, "/budgets", member->name);
        struct budget *budget = &loaded->budgets[loaded->budget_count];
        options_read(&options, &config_budget_section, &member->value, at, NULL);
        const struct json *limit = json_get(&member->value, "limit");
        struct err err = {0};
        if (!name_fits(&reader, member->name, at, "a budget's name"))
            continue;
        if (limit && limit->type == JSON_NUMBER && decimal_read(limit->text, &budget->limit, &err))
            problems_add(loader->problems, below(&reader, at, "limit"), "%s", err.text);
        budget->name = arena_copy_str(&loaded->arena, member->name);
        budget->per_ms = duration_of(&member->value, "per");
        budget->per_principal = str_is(json_get_text(&member->value, "scope"), "principal");
        loaded->budget_count++;
    }
}
