#include "core/playbook.h"

#include "core/form.h"

const struct playbook *playbook_find(const struct tool *tool, const char *name)
{
    for (size_t i = 0; i < tool->playbook_count; i++)
        if (strcmp(tool->playbooks[i].name, name) == 0)
            return &tool->playbooks[i];
    return NULL;
}

const struct playbook *playbook_proposed(const struct tool *tool)
{
    for (size_t i = 0; i < tool->playbook_count; i++)
        if (tool->playbooks[i].proposed)
            return &tool->playbooks[i];
    return NULL;
}

const char *playbook_key(struct arena *arena, const char *operation, const char *playbook)
{
    return arena_printf(arena, PLAYBOOK_KEY "%s:%s", operation, playbook);
}

static struct json text_or_null(const char *text)
{
    return text ? json_string(str_of(text)) : (struct json){.type = JSON_NULL};
}

static struct json value_or_null(struct arena *arena, struct str text)
{
    struct json *value;
    if (!text.p || json_parse(arena, text, &json_limits_kept, &value, NULL) != ERR_NONE)
        return (struct json){.type = JSON_NULL};
    return *value;
}

const struct json *playbook_input(struct arena *arena, const struct operation *op)
{
    struct json *input = json_object(arena);
    json_set(arena, input, STR("arguments"), value_or_null(arena, op->arguments));
    json_set(arena, input, STR("result"), value_or_null(arena, op->result));
    json_set(arena, input, STR("external_id"), text_or_null(op->external_id));
    json_set(arena, input, STR("operation_id"), json_string(str_of(op->id)));
    json_set(arena, input, STR("tool"), json_string(str_of(op->tool)));
    json_set(arena, input, STR("run_id"), text_or_null(op->run));
    return input;
}

/* ---- arguments from a form ---- */

/* Ours win: an argument that is called "$result" is no place of ours. */
static struct json *places(struct arena *arena, const struct operation *op)
{
    const struct json *input = playbook_input(arena, op), *arguments = json_get(input, "arguments");
    struct json *values = json_object(arena);
    for (uint32_t i = 0; arguments->type == JSON_OBJECT && i < arguments->count; i++)
        json_set(arena, values, arguments->members[i].name, arguments->members[i].value);
    json_set(arena, values, STR("$external_id"), *json_get(input, "external_id"));
    json_set(arena, values, STR("$operation"), *json_get(input, "operation_id"));
    json_set(arena, values, STR("$run"), *json_get(input, "run_id"));
    json_set(arena, values, STR("$result"), *json_get(input, "result"));
    return values;
}

enum err_code playbook_fill(struct arena *arena, const struct json *form, const struct operation *op, struct json **out,
                            struct err *err)
{
    return form_fill(arena, form, places(arena, op), out, err);
}

bool playbook_settles(enum state from, const struct operation *to)
{
    return to->compensates && from != to->state && state_terminal(to->state);
}
