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
    struct str name = json_get_text(section, "provider");
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
    if (!loaded->assumed) {
        struct arena *arena = &loaded->arena;
        struct problems none;
        struct provider core;
        struct json *section = json_object(arena);
        json_set(arena, section, STR("base_url"), json_string(STR("http://localhost")));
        problems_init(&none, arena);
        loaded->assumed = http_provider_new(section, "", &core, &none);
        assert(loaded->assumed);
    }
    return loaded->assumed;
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
static void read_schema(const struct loader *loader, const struct json *section, const char *pointer,
                        struct loaded_tool *out)
{
    const struct json *value = json_get(section, "input_schema");
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
    bool classified = find_class(section, &class);
    struct options_reader reader = {arena, problems, class};
    options_read(&reader, &config_tool_section, section, pointer, &out->core);
    out->core.name = arena_copy_str(arena, name);
    out->core.class = class;
    if (section->type != JSON_OBJECT)
        return;
    read_key(loader, section, pointer, out);
    read_normal(loader, section, pointer, out);
    read_schema(loader, section, pointer, out);
    read_messages(loader, section, &out->core);
    config_names_check(loader, section, pointer, &out->core);
    const struct loaded_provider *provider = find_provider(loader, section, pointer);
    out->core.provider = provider ? &provider->core : assumed_provider(arena);
    size_t from = problems->count;
    if (json_get(section, "request")) {
        const struct http_provider *http = provider && provider->http ? provider->http : assumed_http(loader);
        out->http = http_tool_new(section, pointer, http, &out->core, problems);
        config_drop_repeated(problems, start, from);
    }
    out->core.adapter_tool = out->http;
    const struct json *lookup = json_get(section, "lookup");
    out->core.has_lookup = out->http ? http_tool_has_lookup(out->http) : lookup != NULL;
    if (classified)
        config_tool_check(loader, section, pointer, out);
}
