/* Tools of MCP servers: what a server lists, what the import proposes for it and what the file says of it become one
 * section per tool, which is then compiled like any other.
 *
 *   catalogue ─► title, description, schemas, annotations ─┐
 *   import    ─► provider, class, forwarded, defaults ─────┼─► merged section ─► config_tool_read
 *   tools     ─► what the file says; it wins ──────────────┘
 *
 * What a server lists is never an error of the file: a tool of it that cannot be used is left out with a warning. */
#include "base/buf.h"
#include "base/map.h"
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#include <assert.h>
#include <fnmatch.h>

#define LISTED_MAX 20 /* names in one warning */
#define SHOWN      60 /* bytes of a name in a message */

struct server {
    struct str name;
    const char *name_text, *import_pointer;
    const struct json *import; /* NULL = only tools that the file names */
    const struct json *tools;  /* as listed; NULL = not known */
    struct str prefix;
    struct map by_name;                /* the server's name → const struct json * */
    struct map named;                  /* the server's names that the file's own tools use → same */
    struct buf unclassified, unproven; /* names, for one warning each */
    unsigned unclassified_count, unproven_count;
};

struct import {
    const struct loader *loader;
    struct arena *arena;
    struct server *servers;
    size_t server_count;
    struct planned_tool *tools;
    size_t count, cap;
    struct map names; /* of planned tools */
};

static const struct json *member_of(const struct json *value, const char *name, enum json_type type)
{
    const struct json *member = value && value->type == JSON_OBJECT ? json_get(value, name) : NULL;
    return member && member->type == type ? member : NULL;
}

static int shown(struct str text)
{
    return text.n > SHOWN ? SHOWN : (int)text.n;
}

/* ---- what an import says ---- */

/* Names are short and patterns the operator's own. */
static bool fits(struct import *import, struct str pattern, const char *name)
{
    return fnmatch(arena_copy_str(import->arena, pattern), name, 0) == 0;
}

static bool listed(struct import *import, const struct json *patterns, const char *name)
{
    for (uint32_t i = 0; patterns && patterns->type == JSON_ARRAY && i < patterns->count; i++)
        if (patterns->items[i].type == JSON_STRING && fits(import, patterns->items[i].text, name))
            return true;
    return false;
}

static bool imports(struct import *import, const struct server *server, const char *name)
{
    if (!server->import)
        return false;
    const struct json *allow = json_get(server->import, "allow");
    return (!allow || listed(import, allow, name)) && !listed(import, json_get(server->import, "deny"), name);
}

/* The class that the operator gave: by the full name, else by the first pattern that fits. */
static struct str stated_class(struct import *import, const struct server *server, const char *name)
{
    const struct json *classes = member_of(server->import, "classes", JSON_OBJECT);
    const struct json *exact = classes ? json_get(classes, name) : NULL;
    for (uint32_t i = 0; classes && !exact && i < classes->count; i++)
        if (fits(import, classes->members[i].name, name))
            exact = &classes->members[i].value;
    return exact && exact->type == JSON_STRING ? exact->text : STR_NONE;
}

static bool says_read_only(const struct json *listed_tool)
{
    return json_get_bool(member_of(listed_tool, "annotations", JSON_OBJECT), "readOnlyHint", false);
}

static void note(struct buf *names, unsigned *count, const char *name)
{
    if (*count < LISTED_MAX)
        buf_printf(names, "%s%s", *count ? ", " : "", name);
    else if (*count == LISTED_MAX)
        buf_add_text(names, ", …");
    ++*count;
}

/* STR_NONE: left without one. */
static struct str class_for(struct import *import, struct server *server, const char *name,
                            const struct json *listed_tool)
{
    struct str stated = stated_class(import, server, name);
    if (stated.p) {
        if (str_is(stated, "read") && listed_tool && !says_read_only(listed_tool))
            note(&server->unproven, &server->unproven_count, name);
        return stated;
    }
    struct str rule = json_get_text(server->import, "unclassified");
    if (rule.p && str_is(rule, "refuse"))
        return STR_NONE;
    if (rule.p && str_is(rule, "read_only_hints") && says_read_only(listed_tool))
        return STR("read");
    if (listed_tool)
        note(&server->unclassified, &server->unclassified_count, name);
    return STR("external_weak");
}

static bool forwards(struct import *import, const struct server *server, const char *name)
{
    const struct json *forwarded = json_get(server->import, "forwarded");
    if (forwarded && forwarded->type == JSON_BOOL)
        return forwarded->boolean;
    return listed(import, forwarded, name);
}

/* ---- sections ---- */

static void set(struct import *import, struct json *section, const char *name, const struct json *value,
                enum json_type type)
{
    bool empty = value && value->type == JSON_STRING && value->text.n == 0;
    if (value && value->type == type && !empty)
        json_set(import->arena, section, str_of(name), *json_copy(import->arena, value));
}

static void add_listed(struct import *import, const struct json *listed_tool, struct json *section)
{
    static const struct {
        const char *theirs, *ours;
        enum json_type type;
    } members[] = {
        {"title", "title", JSON_STRING},
        {"description", "description", JSON_STRING},
        {"annotations", "annotations", JSON_OBJECT},
        {"inputSchema", "input_schema", JSON_OBJECT},
        {"outputSchema", "output_schema", JSON_OBJECT},
        {"icons", "icons", JSON_ARRAY},
        {"_meta", "meta", JSON_OBJECT},
    };
    for (size_t i = 0; listed_tool && i < sizeof members / sizeof *members; i++)
        set(import, section, members[i].ours, json_get(listed_tool, members[i].theirs), members[i].type);
}

static void add_members(struct import *import, const struct json *from, struct json *section)
{
    for (uint32_t i = 0; from && from->type == JSON_OBJECT && i < from->count; i++)
        json_set(import->arena, section, from->members[i].name, from->members[i].value);
}

/* Defaults are for reads and writes alike: what has no effect for the tool's class is not meant for it. */
static void add_defaults(struct import *import, const struct json *defaults, struct str class, struct json *section)
{
    static const char *const of_writes[] = {"key", "identity", "reconcile", "repeat_window", "while_in_doubt", NULL},
                             *const of_reads[] = {"audit", "cache", NULL};
    const char *const *unfit = class.p && str_is(class, "read") ? of_writes : of_reads;
    bool idempotent = class.p && str_is(class, "external_idempotent");
    for (uint32_t i = 0; defaults && i < defaults->count; i++) {
        const struct json_member *member = &defaults->members[i];
        bool fitting = idempotent || !str_is(member->name, "idempotent_by");
        for (size_t k = 0; unfit[k]; k++)
            fitting = fitting && !str_is(member->name, unfit[k]);
        if (fitting)
            json_set(import->arena, section, member->name, member->value);
    }
}

/* What is proposed for a tool; own: what the file says of it, or NULL. False: there is no class for it. */
static bool propose(struct import *import, struct server *server, const char *remote, const struct json *listed_tool,
                    const struct json *own, struct json *section)
{
    json_set(import->arena, section, STR("provider"), json_string(server->name));
    add_listed(import, listed_tool, section);
    if (!imports(import, server, remote))
        return own != NULL;
    const struct json *stated = own ? json_get(own, "class") : NULL;
    struct str class = stated ? json_get_text(own, "class") : class_for(import, server, remote, listed_tool);
    if (class.p)
        json_set(import->arena, section, STR("class"), json_string(class));
    if (class.p && str_is(class, "read") && forwards(import, server, remote))
        json_set(import->arena, section, STR("forwarded"), json_bool(true));
    add_defaults(import, member_of(server->import, "defaults", JSON_OBJECT), class, section);
    return class.p || own;
}

/* ---- planned tools ---- */

static struct planned_tool *add(struct import *import, struct planned_tool tool)
{
    assert(import->count < import->cap);
    import->tools[import->count] = tool;
    map_put(&import->names, arena_copy_str(import->arena, tool.name), &import->tools[import->count]);
    return &import->tools[import->count++];
}

static struct server *server_named(struct import *import, struct str name)
{
    for (size_t i = 0; i < import->server_count; i++)
        if (str_equal(import->servers[i].name, name))
            return &import->servers[i];
    return NULL;
}

/* The server's name of a tool of the file. */
static const char *remote_name(struct import *import, const struct server *server, struct str name,
                               const struct json *own)
{
    struct str stated = json_get_text(member_of(own, "mcp", JSON_OBJECT), "tool");
    if (stated.p)
        return arena_copy_str(import->arena, stated);
    size_t n = server->prefix.n;
    bool prefixed = n > 0 && name.n > n && memcmp(name.p, server->prefix.p, n) == 0;
    return arena_copy_str(import->arena, prefixed ? (struct str){name.p + n, name.n - n} : name);
}

static bool has_prefix(const struct server *server, struct str name)
{
    return name.n > server->prefix.n &&
           (server->prefix.n == 0 || memcmp(name.p, server->prefix.p, server->prefix.n) == 0);
}

/* The server whose import a tool of the file without a provider refines: the one that lists it, else the only one that
 * could. NULL: none, or it cannot be told. */
static struct server *refined_server(struct import *import, struct str name, const struct json *own)
{
    struct server *lists = NULL, *could = NULL;
    unsigned listing = 0, possible = 0;
    for (size_t i = 0; i < import->server_count; i++) {
        struct server *server = &import->servers[i];
        const char *remote = remote_name(import, server, name, own);
        if (!has_prefix(server, name) || !imports(import, server, remote))
            continue;
        could = server;
        possible++;
        if (map_get(&server->by_name, remote)) {
            lists = server;
            listing++;
        }
    }
    return listing == 1 ? lists : listing == 0 && possible == 1 ? could : NULL;
}

static const char *nearest_name(struct import *import, const struct server *server, const char *name)
{
    const struct json *tools = server->tools;
    const char **names = arena_alloc(import->arena, (tools->count + 1) * sizeof *names);
    size_t count = 0;
    for (uint32_t i = 0; i < tools->count; i++) {
        struct str other = json_get_text(&tools->items[i], "name");
        if (other.p)
            names[count++] = arena_copy_str(import->arena, other);
    }
    return options_nearest(str_of(name), names, count);
}

static void warn_unknown(struct import *import, const struct server *server, const char *name, const char *pointer)
{
    const char *nearest = nearest_name(import, server, name);
    const char *hint = nearest ? arena_printf(import->arena, ", did you mean \"%s\"?", nearest) : "";
    problems_warn(import->loader->problems, pointer, "server %s has no tool \"%.*s\"%s", server->name_text, SHOWN, name,
                  hint);
}

/* What only the server's list can tell about a tool of the file. */
static void check_named(struct import *import, const struct server *server, const char *remote,
                        const struct planned_tool *tool, const struct json *own)
{
    struct problems *problems = import->loader->problems;
    struct arena *arena = import->arena;
    const struct json *listed_tool = map_get(&server->by_name, remote);
    const struct json *mcp = member_of(own, "mcp", JSON_OBJECT);
    const struct json *key_argument = member_of(mcp, "key_argument", JSON_STRING);
    const struct json *schema = member_of(tool->section, "input_schema", JSON_OBJECT);
    const char *mcp_pointer = options_pointer(arena, tool->pointer, STR("mcp"));
    if (key_argument && schema && !json_get_str(member_of(schema, "properties", JSON_OBJECT), key_argument->text))
        problems_warn(problems, options_pointer(arena, mcp_pointer, STR("key_argument")),
                      "input_schema has no member \"%.*s\": the server may refuse it", shown(key_argument->text),
                      key_argument->text.p);
    if (!server->tools)
        return;
    if (!listed_tool)
        warn_unknown(import, server, remote,
                     json_get(mcp, "tool") ? options_pointer(arena, mcp_pointer, STR("tool")) : tool->pointer);
    struct str class = json_get_text(own, "class");
    if (listed_tool && class.p && str_is(class, "read") && !says_read_only(listed_tool))
        problems_warn(problems, options_pointer(arena, tool->pointer, STR("class")),
                      "class read, but server %s does not say readOnlyHint: if it changes something, nothing keeps it "
                      "from happening twice",
                      server->name_text);
    struct str lookup = json_get_text(member_of(own, "lookup", JSON_OBJECT), "tool");
    if (lookup.p && !map_get(&server->by_name, arena_copy_str(arena, lookup)))
        warn_unknown(import, server, arena_copy_str(arena, lookup),
                     options_pointer(arena, options_pointer(arena, tool->pointer, STR("lookup")), STR("tool")));
}

static void plan_named(struct import *import, struct str name, const struct json *own)
{
    struct planned_tool tool = {
        .name = name,
        .section = own,
        .pointer = options_pointer(import->arena, "/tools", name),
    };
    const struct json *provider = member_of(own, "provider", JSON_STRING);
    struct server *server = provider ? server_named(import, provider->text)
                            : own->type == JSON_OBJECT && !json_get(own, "provider") ? refined_server(import, name, own)
                                                                                     : NULL;
    if (server && own->type == JSON_OBJECT) {
        const char *remote = remote_name(import, server, name, own);
        struct json *section = json_object(import->arena);
        const struct json *listed_tool = map_get(&server->by_name, remote);
        propose(import, server, remote, listed_tool, own, section);
        add_members(import, own, section);
        tool.section = section;
        tool.server = listed_tool ? server->name_text : NULL;
        map_put(&server->named, remote, (void *)own);
        check_named(import, server, remote, &tool, own);
    }
    add(import, tool);
}

/* ---- imported tools ---- */

static const char *left_out(struct import *import, struct str name, struct str full)
{
    if (import->count == REGISTRY_TOOLS_MAX)
        return arena_printf(import->arena, "there are %d tools already", REGISTRY_TOOLS_MAX);
    if (full.n > CONFIG_NAME_BYTES_MAX)
        return arena_printf(import->arena,
                            "its name would have %zu characters, clients take %d; name it in tools: "
                            "SHORT: {provider: …, mcp: {tool: %.*s}}",
                            full.n, CONFIG_NAME_BYTES_MAX, shown(name), name.p);
    if (!config_name_valid(full))
        return arena_printf(import->arena,
                            "a tool's name is 1 to %d characters of A-Z a-z 0-9 _ . -; name it in tools: NAME: "
                            "{provider: …, mcp: {tool: …}}",
                            CONFIG_NAME_BYTES_MAX);
    if (full.n > 6 && memcmp(full.p, "onced_", 6) == 0)
        return "names that begin with onced_ belong to onced; give the import a prefix";
    const struct planned_tool *other = map_get(&import->names, arena_copy_str(import->arena, full));
    if (other)
        return other->imported
                   ? arena_printf(import->arena, "server %s has a tool of this name too; give an import a prefix",
                                  other->server)
                   : "the file's own tools have this name; give the import a prefix";
    return NULL;
}

static void plan_listed(struct import *import, struct server *server, const struct json *listed_tool)
{
    struct str name = json_get_text(listed_tool, "name");
    const char *remote = name.p && name.n ? arena_copy_str(import->arena, name) : NULL;
    bool first = remote && map_get(&server->by_name, remote) == listed_tool;
    if (!first || map_get(&server->named, remote) || !imports(import, server, remote))
        return;
    struct str full = str_of(arena_printf(import->arena, "%.*s%s", STR_ARG(server->prefix), remote));
    const char *why = left_out(import, name, full);
    struct json *section = json_object(import->arena);
    if (!why && !propose(import, server, remote, listed_tool, NULL, section))
        why = "it has no class, and unclassified tools are refused; give it one in classes or in tools";
    if (why) {
        problems_warn(import->loader->problems, server->import_pointer, "tool \"%.*s\" of server %s is left out: %s",
                      shown(name), name.p, server->name_text, why);
        return;
    }
    add(import, (struct planned_tool){
                    .name = full,
                    .section = section,
                    .pointer = server->import_pointer,
                    .server = server->name_text,
                    .imported = true,
                });
}

static void tell_guesses(struct import *import, const struct server *server)
{
    struct problems *problems = import->loader->problems;
    if (server->unclassified_count)
        problems_warn(problems, server->import_pointer,
                      "%u tool%s of server %s without a class of yours %s taken for external_weak (never sent twice, "
                      "unknown outcomes wait for an operator): %s",
                      server->unclassified_count, server->unclassified_count == 1 ? "" : "s", server->name_text,
                      server->unclassified_count == 1 ? "is" : "are", buf_str(&server->unclassified).p);
    if (server->unproven_count)
        problems_warn(problems, options_pointer(import->arena, server->import_pointer, STR("classes")),
                      "class read without server %s saying readOnlyHint: if they change something, nothing keeps it "
                      "from happening twice: %s",
                      server->name_text, buf_str(&server->unproven).p);
}

/* ---- servers ---- */

/* Members that an import decides itself, or that only one tool can have. */
static void check_defaults(struct import *import, const struct server *server)
{
    static const char *const own[] = {"provider", "class", "forwarded", "mcp", "lookup", "input_schema"};
    const struct json *defaults = member_of(server->import, "defaults", JSON_OBJECT);
    const char *pointer = options_pointer(import->arena, server->import_pointer, STR("defaults"));
    struct options_reader reader = {import->arena, import->loader->problems, CLASS_EXTERNAL_WEAK, OPTION_MCP, true};
    if (!defaults)
        return;
    options_read(&reader, &config_tool_section, defaults, pointer, NULL);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_get(defaults, own[i]))
            problems_add(import->loader->problems, options_pointer(import->arena, pointer, str_of(own[i])),
                         "belongs to one tool: state it in tools%s", i == 1 ? ", or in classes" : "");
}

static void read_server(struct import *import, struct server *server, const struct json_member *member,
                        const struct json *catalog)
{
    struct arena *arena = import->arena;
    const struct json *mcp = member_of(&member->value, "mcp", JSON_OBJECT);
    server->name = member->name;
    server->name_text = arena_copy_str(arena, member->name);
    server->import_pointer = arena_printf(arena, "%s/mcp/import", options_pointer(arena, "/providers", member->name));
    server->import = member_of(mcp, "import", JSON_OBJECT);
    struct str prefix = server->import ? json_get_text(server->import, "prefix") : STR_NONE;
    server->prefix = prefix.p ? prefix : STR("");
    const struct json *entry = catalog ? json_get_str(catalog, member->name) : NULL;
    server->tools = member_of(entry, "tools", JSON_ARRAY);
    for (uint32_t i = 0; server->tools && i < server->tools->count; i++) {
        struct str name = json_get_text(&server->tools->items[i], "name");
        const char *text = name.p && name.n ? arena_copy_str(arena, name) : NULL;
        if (text && !map_get(&server->by_name, text))
            map_put(&server->by_name, text, &server->tools->items[i]);
    }
    check_defaults(import, server);
}

static void read_servers(struct import *import, const struct json *providers, const struct json *catalog)
{
    uint32_t count = providers && providers->count <= REGISTRY_PROVIDERS_MAX ? providers->count : 0;
    import->servers = arena_zero(import->arena, (count + 1) * sizeof *import->servers);
    for (uint32_t i = 0; i < count; i++) {
        if (!member_of(&providers->members[i].value, "mcp", JSON_OBJECT))
            continue;
        struct server *server = &import->servers[import->server_count++];
        map_init(&server->by_name);
        map_init(&server->named);
        buf_init(&server->unclassified, 0);
        buf_init(&server->unproven, 0);
        read_server(import, server, &providers->members[i], catalog);
    }
}

static void release(struct import *import)
{
    for (size_t i = 0; i < import->server_count; i++) {
        struct server *server = &import->servers[i];
        map_release(&server->by_name);
        map_release(&server->named);
        buf_release(&server->unclassified);
        buf_release(&server->unproven);
    }
    map_release(&import->names);
}

size_t config_plan_tools(const struct loader *loader, const struct json *providers, const struct json *tools,
                         const struct json *catalog, struct planned_tool **out)
{
    struct import import = {.loader = loader, .arena = &loader->loaded->arena};
    map_init(&import.names);
    import.cap = (tools ? tools->count : 0) + (size_t)REGISTRY_TOOLS_MAX;
    read_servers(&import, providers, catalog);
    if (import.server_count == 0)
        import.cap = tools ? tools->count : 0;
    import.tools = arena_zero(import.arena, (import.cap + 1) * sizeof *import.tools);
    for (uint32_t i = 0; tools && i < tools->count; i++)
        plan_named(&import, tools->members[i].name, &tools->members[i].value);
    for (size_t i = 0; i < import.server_count; i++) {
        struct server *server = &import.servers[i];
        for (uint32_t k = 0; server->tools && k < server->tools->count; k++)
            plan_listed(&import, server, &server->tools->items[k]);
        tell_guesses(&import, server);
    }
    release(&import);
    *out = import.tools;
    return import.count;
}
