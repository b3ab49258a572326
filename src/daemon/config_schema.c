/* What the option table says to editors (JSON Schema) and to people (reference page): see config_options.h. */
#include "daemon/config_options.h"

#define DURATION_PATTERN "^[0-9]+(ms|s|m|h|d)$"
#define SIZE_PATTERN     "^[0-9]+(B|KB|MB|GB)?$"
#define POINTER_PATTERN  "^(/([^~]|~[01])*)?$"
#define NAME_PATTERN     "^[A-Za-z0-9_.-]{1,64}$"

/* ---- JSON Schema ---- */

static bool is_documented_choice(const struct option *option, size_t index)
{
    return !text_equal(option->choices[index], option->unavailable);
}

static void write_enum(struct json_out *out, const struct option *option)
{
    json_out_name(out, "enum");
    json_out_array(out);
    for (size_t i = 0; i < OPTION_CHOICES_MAX && option->choices[i]; i++)
        if (is_documented_choice(option, i))
            json_out_text(out, option->choices[i]);
    json_out_end_array(out);
}

static void write_type(struct json_out *out, const char *type)
{
    json_out_member_text(out, "type", type);
}

static void write_types(struct json_out *out, const char *const *types)
{
    json_out_name(out, "type");
    json_out_array(out);
    for (; *types; types++)
        json_out_text(out, *types);
    json_out_end_array(out);
}

static void write_pattern_type(struct json_out *out, const char *pattern)
{
    write_type(out, "string");
    json_out_member_text(out, "pattern", pattern);
}

static void write_text_type(struct json_out *out)
{
    write_type(out, "string");
    json_out_member_int(out, "minLength", 1);
}

static void write_jq_object(struct json_out *out)
{
    json_out_object(out);
    write_type(out, "object");
    json_out_name(out, "properties");
    json_out_object(out);
    json_out_name(out, "jq");
    json_out_object(out);
    write_text_type(out);
    json_out_end_object(out);
    json_out_end_object(out);
    json_out_name(out, "required");
    json_out_array(out);
    json_out_text(out, "jq");
    json_out_end_array(out);
    json_out_member_bool(out, "additionalProperties", false);
    json_out_end_object(out);
}

static void write_status_number(struct json_out *out)
{
    json_out_object(out);
    write_type(out, "integer");
    json_out_member_int(out, "minimum", 100);
    json_out_member_int(out, "maximum", 599);
    json_out_end_object(out);
}

static void write_statuses(struct json_out *out)
{
    write_type(out, "array");
    json_out_name(out, "items");
    json_out_object(out);
    json_out_name(out, "anyOf");
    json_out_array(out);
    write_status_number(out);
    json_out_object(out);
    write_type(out, "object");
    json_out_name(out, "properties");
    json_out_object(out);
    json_out_name(out, "status");
    write_status_number(out);
    json_out_name(out, "code");
    json_out_object(out);
    write_types(out, (const char *const[]){"string", "number", NULL});
    json_out_end_object(out);
    json_out_name(out, "when");
    json_out_object(out);
    write_text_type(out);
    json_out_end_object(out);
    json_out_end_object(out);
    json_out_name(out, "required");
    json_out_array(out);
    json_out_text(out, "status");
    json_out_end_array(out);
    json_out_member_bool(out, "additionalProperties", false);
    json_out_end_object(out);
    json_out_end_array(out);
    json_out_end_object(out);
}

static void write_string_list(struct json_out *out, const char *pattern)
{
    write_type(out, "array");
    json_out_name(out, "items");
    json_out_object(out);
    write_pattern_type(out, pattern);
    json_out_end_object(out);
}

static void write_text_list(struct json_out *out)
{
    write_type(out, "array");
    json_out_name(out, "items");
    json_out_object(out);
    write_text_type(out);
    json_out_end_object(out);
}

static void write_alternative(struct json_out *out, const char *type, const char *pattern)
{
    json_out_object(out);
    write_type(out, type);
    if (pattern)
        json_out_member_text(out, "pattern", pattern);
    json_out_end_object(out);
}

static void write_any_of_begin(struct json_out *out)
{
    json_out_name(out, "anyOf");
    json_out_array(out);
}

static void write_mapping(struct json_out *out, const char *name_pattern)
{
    write_type(out, "object");
    if (!name_pattern)
        return;
    json_out_name(out, "propertyNames");
    json_out_object(out);
    json_out_member_text(out, "pattern", name_pattern);
    json_out_end_object(out);
}

static void write_messages(struct json_out *out)
{
    write_type(out, "object");
    json_out_name(out, "properties");
    json_out_object(out);
    for (unsigned i = 0; i < STATE_COUNT; i++) {
        json_out_name(out, state_name((enum state)i));
        json_out_object(out);
        write_text_type(out);
        json_out_end_object(out);
    }
    json_out_end_object(out);
    json_out_member_bool(out, "additionalProperties", false);
}

static void write_section_body(struct json_out *out, const struct option_section *section);

/* Keywords for the option's value, into an object that is open already. */
static void write_value_schema(struct json_out *out, const struct option *option)
{
    switch (option->type) {
    case OPTION_TEXT:
        if (option->may_be_empty)
            write_type(out, "string");
        else
            write_text_type(out);
        break;
    case OPTION_TEMPLATE:
    case OPTION_JQ: write_text_type(out); break;
    case OPTION_BOOL: write_type(out, "boolean"); break;
    case OPTION_INTEGER:
    case OPTION_COUNT:
    case OPTION_DECIMAL:
        write_type(out, option->type == OPTION_DECIMAL ? "number" : "integer");
        json_out_member_int(out, "minimum", option->min);
        json_out_member_int(out, "maximum", option->max);
        break;
    case OPTION_DURATION:
        write_any_of_begin(out);
        write_alternative(out, "string", DURATION_PATTERN);
        json_out_object(out);
        json_out_name(out, "enum");
        json_out_array(out);
        json_out_int(out, 0);
        json_out_text(out, "0");
        json_out_end_array(out);
        json_out_end_object(out);
        json_out_end_array(out);
        break;
    case OPTION_SIZE:
        write_any_of_begin(out);
        write_alternative(out, "string", SIZE_PATTERN);
        json_out_object(out);
        write_type(out, "integer");
        json_out_member_int(out, "minimum", option->min);
        json_out_member_int(out, "maximum", option->max);
        json_out_end_object(out);
        json_out_end_array(out);
        break;
    case OPTION_TEXTS: write_text_list(out); break;
    case OPTION_FLAG_OR_TEXTS:
        write_any_of_begin(out);
        write_alternative(out, "boolean", NULL);
        json_out_object(out);
        write_text_list(out);
        json_out_end_object(out);
        json_out_end_array(out);
        break;
    case OPTION_CLASSES:
        write_type(out, "object");
        json_out_name(out, "additionalProperties");
        json_out_object(out);
        write_enum(out, option);
        json_out_end_object(out);
        break;
    case OPTION_CHOICE: write_enum(out, option); break;
    case OPTION_CHOICES:
        write_type(out, "array");
        json_out_name(out, "items");
        json_out_object(out);
        write_enum(out, option);
        json_out_end_object(out);
        json_out_member_bool(out, "uniqueItems", true);
        break;
    case OPTION_DURATIONS:
        write_string_list(out, DURATION_PATTERN);
        json_out_member_int(out, "maxItems", option->max);
        break;
    case OPTION_POINTER: write_pattern_type(out, POINTER_PATTERN); break;
    case OPTION_POINTERS: write_string_list(out, POINTER_PATTERN); break;
    case OPTION_TEMPLATE_OR_JQ:
    case OPTION_POINTER_OR_JQ:
        write_any_of_begin(out);
        write_alternative(out, "string", option->type == OPTION_POINTER_OR_JQ ? POINTER_PATTERN : NULL);
        write_jq_object(out);
        json_out_end_array(out);
        break;
    case OPTION_TEMPLATES:
        write_mapping(out, NULL);
        json_out_name(out, "additionalProperties");
        write_alternative(out, "string", NULL);
        break;
    case OPTION_EQUALITIES:
        write_mapping(out, POINTER_PATTERN);
        json_out_name(out, "additionalProperties");
        json_out_object(out);
        write_types(out, (const char *const[]){"string", "number", "boolean", "null", "object", NULL});
        json_out_end_object(out);
        break;
    case OPTION_STATUSES: write_statuses(out); break;
    case OPTION_ANY:
    case OPTION_JSON_BODY: break; /* anything */
    case OPTION_FORM_BODY:
        write_any_of_begin(out);
        write_alternative(out, "object", NULL);
        write_alternative(out, "string", NULL);
        json_out_end_array(out);
        break;
    case OPTION_SCHEMA:
    case OPTION_OBJECT:
    case OPTION_NORMALIZERS: write_type(out, "object"); break;
    case OPTION_LIST: write_type(out, "array"); break;
    case OPTION_MESSAGES: write_messages(out); break;
    case OPTION_SECTION: write_section_body(out, option->section); break;
    case OPTION_SECTIONS:
        write_type(out, "array");
        json_out_member_int(out, "maxItems", option->max);
        json_out_name(out, "items");
        json_out_object(out);
        write_section_body(out, option->section);
        json_out_end_object(out);
        break;
    case OPTION_CHOICE_OR_SECTION:
        write_any_of_begin(out);
        json_out_object(out);
        write_enum(out, option);
        json_out_end_object(out);
        json_out_object(out);
        write_section_body(out, option->section);
        json_out_end_object(out);
        json_out_end_array(out);
        break;
    case OPTION_MAP:
        write_mapping(out, option->section->free_names ? NULL : NAME_PATTERN);
        json_out_name(out, "additionalProperties");
        json_out_object(out);
        write_section_body(out, option->section);
        json_out_end_object(out);
        break;
    }
}

static void write_default(struct json_out *out, const struct option *option)
{
    if (!option->fallback)
        return;
    switch (option->type) {
    case OPTION_BOOL:
    case OPTION_INTEGER:
    case OPTION_COUNT:
    case OPTION_DECIMAL:
        json_out_name(out, "default");
        json_out_raw(out, str_of(option->fallback));
        break;
    case OPTION_TEXT:
    case OPTION_DURATION:
    case OPTION_SIZE:
    case OPTION_CHOICE:
    case OPTION_POINTER:
    case OPTION_TEMPLATE:
    case OPTION_JQ: json_out_member_text(out, "default", option->fallback); break;
    case OPTION_TEXTS:
    case OPTION_FLAG_OR_TEXTS:
    case OPTION_CLASSES:
    case OPTION_OBJECT:
    case OPTION_LIST:
    case OPTION_CHOICES:
    case OPTION_DURATIONS:
    case OPTION_POINTERS:
    case OPTION_TEMPLATE_OR_JQ:
    case OPTION_POINTER_OR_JQ:
    case OPTION_TEMPLATES:
    case OPTION_EQUALITIES:
    case OPTION_STATUSES:
    case OPTION_JSON_BODY:
    case OPTION_FORM_BODY:
    case OPTION_SCHEMA:
    case OPTION_NORMALIZERS:
    case OPTION_MESSAGES:
    case OPTION_ANY:
    case OPTION_SECTION:
    case OPTION_SECTIONS:
    case OPTION_CHOICE_OR_SECTION:
    case OPTION_MAP: break; /* lists and mappings: in words on the reference page */
    }
}

static void write_option(struct json_out *out, const struct option *option)
{
    json_out_object(out);
    json_out_member_text(out, "description", option->text);
    write_value_schema(out, option);
    write_default(out, option);
    json_out_end_object(out);
}

/* Whether another option of the same name comes before (or, with `behind`, after) this one: for another kind. */
static bool has_namesake(const struct option_section *section, const struct option *option, bool behind)
{
    for (size_t i = 0; i < section->count; i++) {
        const struct option *other = &section->options[i];
        if (other != option && behind == (other > option) && strcmp(other->name, option->name) == 0)
            return true;
    }
    return false;
}

static void write_namesakes(struct json_out *out, const struct option_section *section, const struct option *first)
{
    json_out_object(out);
    write_any_of_begin(out);
    for (const struct option *option = first; option < section->options + section->count; option++)
        if (strcmp(option->name, first->name) == 0)
            write_option(out, option);
    json_out_end_array(out);
    json_out_end_object(out);
}

static void write_properties(struct json_out *out, const struct option_section *section)
{
    json_out_name(out, "properties");
    json_out_object(out);
    for (size_t i = 0; i < section->count; i++) {
        const struct option *option = &section->options[i];
        if (has_namesake(section, option, false))
            continue;
        json_out_name(out, option->name);
        if (has_namesake(section, option, true))
            write_namesakes(out, section, option);
        else
            write_option(out, option);
    }
    json_out_end_object(out);
}

/* What a section of this kind must have; `imported`: including what an import could fill in. */
static void write_required(struct json_out *out, const struct option_section *section, enum option_kind kind,
                           bool imported)
{
    bool any = false;
    for (size_t i = 0; i < section->count; i++) {
        const struct option *option = &section->options[i];
        bool wanted = option->required && (option->kind == OPTION_ANY_KIND || (option->kind & kind));
        if (!wanted || (option->imported && !imported) || (option->of_steps && kind == OPTION_STEPS))
            continue;
        if (!any) {
            json_out_name(out, "required");
            json_out_array(out);
        }
        any = true;
        json_out_text(out, option->name);
    }
    if (any)
        json_out_end_array(out);
}

static bool requires(const struct option_section *section, enum option_kind kind)
{
    for (size_t i = 0; i < section->count; i++)
        if (section->options[i].required && section->options[i].kind == kind)
            return true;
    return false;
}

/* What tells the kinds apart is what each of them requires. */
static void write_kinds(struct json_out *out, const struct option_section *section)
{
    write_any_of_begin(out);
    for (size_t i = 0; i < OPTION_KIND_COUNT; i++) {
        if (!requires(section, config_kinds[i].kind))
            continue;
        json_out_object(out);
        write_required(out, section, config_kinds[i].kind, true);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

static void write_section_body(struct json_out *out, const struct option_section *section)
{
    write_type(out, "object");
    write_properties(out, section);
    write_required(out, section, OPTION_ANY_KIND, false);
    if (section == &config_provider_section)
        write_kinds(out, section);
    json_out_member_bool(out, "additionalProperties", false);
}

/* Without MCP servers nothing fills in what a tool leaves out. */
static void write_without_imports(struct json_out *out)
{
    json_out_name(out, "if");
    json_out_raw(out,
                 STR("{\"properties\":{\"providers\":{\"additionalProperties\":{\"not\":{\"required\":[\"mcp\"]}}}}}"));
    json_out_name(out, "then");
    json_out_object(out);
    json_out_name(out, "properties");
    json_out_object(out);
    json_out_name(out, "tools");
    json_out_object(out);
    json_out_name(out, "additionalProperties");
    json_out_object(out);
    write_kinds(out, &config_tool_section);
    json_out_end_object(out);
    json_out_end_object(out);
    json_out_end_object(out);
    json_out_end_object(out);
}

void options_write_schema(struct buf *out)
{
    struct buf compact;
    buf_init(&compact, 0);
    struct json_out writer;
    json_out_init(&writer, &compact);
    json_out_object(&writer);
    json_out_member_text(&writer, "$schema", "https://json-schema.org/draft/2020-12/schema");
    json_out_member_text(&writer, "title", "onced registry file");
    write_section_body(&writer, &config_file);
    write_without_imports(&writer);
    json_out_end_object(&writer);

    struct arena arena;
    arena_init(&arena);
    struct json *schema;
    struct err err = {0};
    if (json_parse(&arena, buf_str(&compact), NULL, &schema, &err) == ERR_NONE)
        json_write_pretty(out, schema);
    buf_add_char(out, '\n');
    arena_release(&arena);
    buf_release(&compact);
}

/* ---- reference page ---- */

static void write_cell(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            buf_add_char(out, '\\');
        buf_add_char(out, *text);
    }
}

static void write_type_cell(struct buf *out, const struct option *option)
{
    if (option->type == OPTION_SECTION || option->type == OPTION_MAP) {
        buf_printf(out, "section `%s`", option->section->name);
        return;
    }
    struct buf expected;
    buf_init(&expected, 0);
    options_expected(option, &expected);
    write_cell(out, buf_str(&expected).p);
    buf_release(&expected);
    if (option->section)
        buf_printf(out, ": section `%s`", option->section->name);
}

static void write_default_cell(struct buf *out, const struct option *option)
{
    if (option->required && option->of_steps) {
        buf_add_text(out, "required; an import or the steps fill it in");
    } else if (option->required && option->imported) {
        buf_add_text(out, "required; an import fills it in");
    } else if (option->required) {
        buf_add_text(out, "required");
    } else if (option->by_class[0]) {
        for (unsigned i = 0; i < 5; i++) {
            const char *text = option->by_class[i];
            buf_printf(out, "%s%s: %s", i ? "<br>" : "", tool_class_name((enum tool_class)i), *text ? text : "none");
        }
    } else if (option->fallback) {
        buf_printf(out, "`%s`", option->fallback);
    } else if (option->computed) {
        write_cell(out, option->computed);
    }
}

/* " | HTTP, MCP: " */
static void write_kind_labels(struct buf *out, enum option_kind kind)
{
    const char *between = " | ";
    if (kind == OPTION_PERFORMED) {
        buf_add_text(out, " | not multi-step: ");
        return;
    }
    for (size_t i = 0; i < OPTION_KIND_COUNT; i++) {
        if (!(kind & config_kinds[i].kind))
            continue;
        buf_printf(out, "%s%s", between, config_kinds[i].label);
        between = ", ";
    }
    buf_add_text(out, kind == OPTION_ANY_KIND ? " | " : ": ");
}

static void write_section_page(struct buf *out, const struct option_section *section)
{
    buf_printf(out, "\n## `%s`\n\n%s\n\n", section->name, section->text);
    buf_add_text(out, "| member | value | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < section->count; i++) {
        const struct option *option = &section->options[i];
        buf_printf(out, "| `%s` | ", option->name);
        write_type_cell(out, option);
        buf_add_text(out, " | ");
        write_default_cell(out, option);
        write_kind_labels(out, option->kind);
        write_cell(out, option->text);
        buf_add_text(out, " |\n");
    }
    for (size_t i = 0; i < section->count; i++)
        if (section->options[i].section)
            write_section_page(out, section->options[i].section);
}

void options_write_reference(struct buf *out)
{
    buf_add_text(out, "# Registry file: all members\n\n"
                      "Generated from the option table by `onced check --reference`; do not edit. "
                      "[registry.md](registry.md) explains the file as a whole.\n");
    write_section_page(out, &config_file);
}
