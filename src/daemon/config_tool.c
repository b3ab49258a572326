/* One tool of the registry file: its parts, and the policy checks over all of them. */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#include <assert.h>

static const char *below(const struct loader *loader, const char *pointer, const char *name)
{
    return options_pointer(&loader->loaded->arena, pointer, str_of(name));
}

/* ---- parts ---- */

/* The class decides defaults; a missing or unknown one is told by the option table. */
static bool find_class(const struct json *section, enum tool_class *class)
{
    struct str name = section->type == JSON_OBJECT ? json_get_text(section, "class") : STR_NONE;
    *class = CLASS_EXTERNAL_IRREVERSIBLE;
    return name.p && tool_class_from_name(name, class);
}

static const struct loaded_provider *find_provider(const struct loader *loader, const struct json *section,
                                                   const char *pointer)
{
    struct str name = json_get_text(section, "provider"); /* none when section is no mapping */
    if (!name.p || name.n == 0)
        return NULL; /* told by the option table */
    const struct loaded *loaded = loader->loaded;
    const char *names[REGISTRY_PROVIDERS_MAX];
    for (size_t i = 0; i < loaded->provider_count; i++) {
        names[i] = loaded->providers[i].core.name;
        if (str_is(name, names[i]))
            return &loaded->providers[i];
    }
    const char *nearest = options_nearest(name, names, loaded->provider_count);
    int shown = name.n > 60 ? 60 : (int)name.n;
    if (nearest)
        problems_add(loader->problems, below(loader, pointer, "provider"),
                     "there is no provider \"%.*s\", did you mean \"%s\"?", shown, name.p, nearest);
    else
        problems_add(loader->problems, below(loader, pointer, "provider"), "there is no provider \"%.*s\" in providers",
                     shown, name.p);
    return NULL;
}

/* In place of one that is not known or broken, so that everything else about the tool can be told too: its contract is
 * taken for good. Never gets into a registry that is used: there was an error. */
static const struct provider *assumed_provider(struct arena *arena)
{
    struct provider *provider = arena_zero(arena, sizeof *provider);
    provider->name = "";
    provider->key_honoured = true;
    return provider;
}

static const struct http_provider *assumed_http(const struct loader *loader)
{
    struct loaded *loaded = loader->loaded;
    if (!loaded->assumed_http) {
        struct arena *arena = &loaded->arena;
        struct problems none;
        struct provider core = {0};
        struct json *section = json_object(arena);
        json_set(arena, section, STR("base_url"), json_string(STR("http://localhost")));
        problems_init(&none, arena);
        loaded->assumed_http = http_provider_new(section, "", &core, &none);
        assert(loaded->assumed_http);
    }
    return loaded->assumed_http;
}

static const struct mcp_provider *assumed_mcp(const struct loader *loader)
{
    struct loaded *loaded = loader->loaded;
    if (!loaded->assumed_mcp) {
        struct arena *arena = &loaded->arena;
        struct problems none;
        struct provider core = {0};
        struct json *section = json_object(arena), *mcp = json_object(arena);
        json_set(arena, mcp, STR("url"), json_string(STR("http://localhost")));
        json_set(arena, section, STR("mcp"), *mcp);
        problems_init(&none, arena);
        loaded->assumed_mcp = mcp_provider_new(section, "", &core, &none);
        assert(loaded->assumed_mcp);
    }
    return loaded->assumed_mcp;
}

static void read_key(const struct loader *loader, const struct json *section, const char *pointer,
                     struct loaded_tool *out)
{
    struct str text = json_get_text(section, "key");
    struct err err = {0};
    if (!text.p || text.n == 0)
        return;
    if (template_new(arena_copy_str(&loader->loaded->arena, text), &out->key, &err))
        problems_add(loader->problems, below(loader, pointer, "key"), "%s", err.text);
    out->core.key = out->key;
}

static void read_normal(const struct loader *loader, const struct json *section, const char *pointer,
                        struct loaded_tool *out)
{
    const struct json *rules = json_get(section, "normalize");
    struct err err = {0};
    if (!rules || rules->type != JSON_OBJECT)
        return;
    if (normal_new(rules, &out->normal, &err))
        problems_add(loader->problems, below(loader, pointer, "normalize"), "%s", err.text);
    out->core.normal = out->normal;
}

/* schema_new's error starts with the place inside the schema: "/properties/a: …". */
static void read_schema(const struct loader *loader, const struct json *value, const char *pointer,
                        struct loaded_tool *out)
{
    struct err err = {0};
    if (!value || value->type != JSON_OBJECT)
        return;
    const char *at = below(loader, pointer, "input_schema");
    if (schema_new(value, NULL, 0, &out->schema, &err)) {
        const char *text = err.text, *end = strstr(text, ": ");
        struct str inner = {text, end ? (size_t)(end - text) : 0};
        bool has_place = inner.n > 0 && text[0] == '/' && json_pointer_get(value, inner);
        if (has_place)
            at = arena_printf(&loader->loaded->arena, "%s%.*s", at, STR_ARG(inner));
        problems_add(loader->problems, at, "%s", has_place ? end + 2 : text);
        return;
    }
    const struct json *type = json_get(value, "type");
    if (type && type->type == JSON_STRING && !str_is(type->text, "object"))
        problems_add(loader->problems, arena_printf(&loader->loaded->arena, "%s/type", at),
                     "arguments are always an object, expected type object");
    out->core.input_schema = out->schema;
    out->core.input_schema_json = value;
}

static void read_messages(const struct loader *loader, const struct json *section, struct tool *tool)
{
    const struct json *messages = json_get(section, "messages");
    if (!messages || messages->type != JSON_OBJECT)
        return;
    struct arena *arena = &loader->loaded->arena;
    struct tool_message *list = arena_alloc(arena, (messages->count + 1) * sizeof *list);
    size_t count = 0;
    for (uint32_t i = 0; i < messages->count; i++) {
        const struct json_member *member = &messages->members[i];
        if (member->value.type == JSON_STRING && state_from_name(member->name, &list[count].state))
            list[count++].text = arena_copy_str(arena, member->value.text);
    }
    tool->messages = list;
    tool->message_count = count;
}

static enum option_kind tool_kind(const struct loaded_provider *provider, const struct json *section)
{
    if (config_steps_stated(section))
        return OPTION_STEPS;
    if (section->type == JSON_OBJECT && json_get(section, "guard_mode"))
        return OPTION_GUARDED;
    if (provider) {
        switch (provider->core.kind) {
        case PROVIDER_MCP: return OPTION_MCP;
        case PROVIDER_COMMAND: return OPTION_COMMAND;
        case PROVIDER_MAIL: return OPTION_MAIL;
        case PROVIDER_SQL: return OPTION_SQL;
        case PROVIDER_HTTP:
        case PROVIDER_APPLICATION: /* is no provider of the file's */
        case PROVIDER_STEPS:
        case PROVIDER_KIND_COUNT: break;
        }
        return OPTION_HTTP;
    }
    if (section->type != JSON_OBJECT)
        return OPTION_HTTP;
    if (json_get(section, "mcp"))
        return OPTION_MCP;
    if (json_get(section, "mail"))
        return OPTION_MAIL;
    if (json_get(section, "sql"))
        return OPTION_SQL;
    return json_get(section, "run") ? OPTION_COMMAND : OPTION_HTTP;
}

static void compile_http(const struct loader *loader, const struct json *section, const char *pointer,
                         const struct loaded_provider *provider, struct loaded_tool *out)
{
    const struct http_provider *http = provider && provider->http ? provider->http : assumed_http(loader);
    out->http = http_tool_new(section, pointer, http, &out->core, loader->problems);
    out->core.adapter_tool = out->http;
    if (out->http)
        out->core.has_lookup = http_tool_has_lookup(out->http);
}

static void compile_mcp(const struct loader *loader, const struct json *section, const char *pointer,
                        const struct loaded_provider *provider, struct loaded_tool *out)
{
    const struct mcp_provider *mcp = provider && provider->mcp ? provider->mcp : assumed_mcp(loader);
    out->mcp = mcp_tool_new(section, pointer, mcp, &out->core, loader->problems);
    out->core.adapter_tool = out->mcp;
    if (out->mcp)
        out->core.has_lookup = mcp_tool_has_lookup(out->mcp);
}

static void compile_command(const struct loader *loader, const struct json *section, const char *pointer,
                            const struct loaded_provider *provider, struct loaded_tool *out)
{
    const struct command_provider *command =
        provider && provider->command ? provider->command : config_assumed_command(loader);
    out->command = command_tool_new(config_settle_run(loader, section), pointer, command, &out->core, loader->problems);
    out->core.adapter_tool = out->command;
    if (out->command)
        out->core.has_lookup = command_tool_has_lookup(out->command);
}

/* The argument that the adapter fills with the provider key is no argument of the caller's: what is shown and checked
 * is the schema without it. A forwarded tool gets no key, and its arguments stay its own. */
static void hide_key_argument(const struct loader *loader, const char *pointer, struct loaded_tool *out)
{
    struct arena *arena = &loader->loaded->arena;
    const char *name = out->mcp ? mcp_tool_key_argument(out->mcp) : NULL;
    const struct json *had = out->core.input_schema_json;
    if (!name || out->core.forwarded || !json_get(json_get(had, "properties"), name))
        return;
    struct json *schema = json_copy(arena, had), *kept = json_array(arena);
    const struct json *required = json_get(schema, "required");
    json_remove((struct json *)json_get(schema, "properties"), str_of(name)); /* our own copy */
    for (uint32_t i = 0; required && required->type == JSON_ARRAY && i < required->count; i++)
        if (required->items[i].type != JSON_STRING || !str_is(required->items[i].text, name))
            json_append(arena, kept, required->items[i]);
    if (required)
        json_set(arena, schema, STR("required"), *kept);
    schema_free(out->schema);
    out->schema = NULL;
    read_schema(loader, schema, pointer, out);
}

void config_tool_read(const struct loader *loader, struct str name, const struct json *section, const char *pointer,
                      struct loaded_tool *out)
{
    struct problems *problems = loader->problems;
    struct arena *arena = &loader->loaded->arena;
    if (!config_name_valid(name))
        problems_add(problems, pointer, "a tool's name is 1 to %d characters of A-Z a-z 0-9 _ . -",
                     CONFIG_NAME_BYTES_MAX);
    size_t start = problems->count;
    enum tool_class class;
    bool steps = config_steps_stated(section);
    bool classified = steps ? config_steps_class(loader, section, pointer, &class) : find_class(section, &class);
    const struct loaded_provider *provider = steps ? NULL : find_provider(loader, section, pointer);
    enum option_kind kind = tool_kind(provider, section);
    struct options_reader reader = {arena, problems, class, kind, false};
    out->section = section;
    options_read(&reader, &config_tool_section, section, pointer, &out->core);
    out->core.name = arena_copy_str(arena, name);
    out->core.class = class;
    if (section->type != JSON_OBJECT)
        return;
    read_key(loader, section, pointer, out);
    read_normal(loader, section, pointer, out);
    read_schema(loader, json_get(section, "input_schema"), pointer, out);
    read_messages(loader, section, &out->core);
    config_approval_read(loader, section, pointer, out);
    config_claims_read(loader, section, pointer, out);
    config_playbooks_read(loader, section, pointer, out);
    config_names_check(loader, section, pointer, &out->core);
    out->core.provider = provider ? &provider->core : assumed_provider(arena);
    size_t from = problems->count;
    out->core.has_lookup = json_get(section, "lookup") != NULL;
    if (kind == OPTION_STEPS)
        config_steps_read(loader, section, pointer, out);
    else if (kind == OPTION_GUARDED)
        config_guard_read(loader, section, pointer, out);
    else if (kind == OPTION_MCP)
        compile_mcp(loader, section, pointer, provider, out), hide_key_argument(loader, pointer, out);
    else if (kind == OPTION_COMMAND && json_get(section, "run"))
        compile_command(loader, section, pointer, provider, out);
    else if (kind == OPTION_MAIL && json_get(section, "mail"))
        config_mail_compile(loader, section, pointer, provider, out);
    else if (kind == OPTION_SQL && json_get(section, "sql"))
        config_sql_compile(loader, section, pointer, provider, out);
    else if (json_get(section, "request"))
        compile_http(loader, section, pointer, provider, out);
    config_drop_repeated(problems, start, from);
    if (classified)
        config_tool_check(loader, section, pointer, out);
}
