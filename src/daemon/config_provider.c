/* One provider of the registry file. */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#define REFERENCES_MAX 20 /* in one text */

const char *config_resolve_path(struct arena *arena, const char *folder, struct str path)
{
    if (path.n > 0 && path.p[0] == '/')
        return arena_copy_str(arena, path);
    return arena_printf(arena, "%s%.*s", folder, STR_ARG(path));
}

static bool starts_with(struct str text, const char *prefix)
{
    size_t n = strlen(prefix);
    return text.n >= n && memcmp(text.p, prefix, n) == 0;
}

/* The adapter expands ${env:NAME} and ${file:PATH}; that relative paths start at the registry file's folder is settled
 * here, without touching the secrets themselves. */
static struct str settle_paths(const struct loader *loader, struct str text)
{
    struct arena *arena = &loader->loaded->arena;
    struct buf out;
    buf_init(&out, 0);
    for (unsigned i = 0; i < REFERENCES_MAX && text.n > 0; i++) {
        const char *start = memmem(text.p, text.n, "${", 2);
        const char *end = start ? memchr(start, '}', (size_t)(text.p + text.n - start)) : NULL;
        if (!end)
            break;
        buf_add(&out, text.p, (size_t)(start - text.p));
        struct str body = {start + 2, (size_t)(end - start - 2)};
        if (starts_with(body, "file:"))
            buf_printf(&out, "${file:%s}",
                       config_resolve_path(arena, loader->folder, (struct str){body.p + 5, body.n - 5}));
        else
            buf_add(&out, start, (size_t)(end - start + 1));
        text.n -= (size_t)(end + 1 - text.p);
        text.p = end + 1;
    }
    buf_add_str(&out, text);
    struct str settled = arena_str(arena, buf_str(&out));
    buf_release(&out);
    return settled;
}

static void settle_member(const struct loader *loader, struct json *object, const char *name)
{
    const struct json *value = json_get(object, name);
    if (value && value->type == JSON_STRING)
        json_set(&loader->loaded->arena, object, str_of(name), json_string(settle_paths(loader, value->text)));
}

void config_settle_members(const struct loader *loader, struct json *object, const char *name)
{
    struct json *members = (struct json *)json_get(object, name); /* the caller's own copy */
    for (uint32_t i = 0; members && members->type == JSON_OBJECT && i < members->count; i++)
        if (members->members[i].value.type == JSON_STRING)
            members->members[i].value = json_string(settle_paths(loader, members->members[i].value.text));
}

/* A server that onced starts is started in the registry file's folder, wherever onced itself was started. */
static void settle_server(const struct loader *loader, struct json *mcp)
{
    struct arena *arena = &loader->loaded->arena;
    if (!mcp || mcp->type != JSON_OBJECT)
        return;
    settle_member(loader, mcp, "url");
    config_settle_members(loader, mcp, "env");
    config_settle_members(loader, mcp, "headers");
    struct json *command = (struct json *)json_get(mcp, "command");
    for (uint32_t i = 0; command && command->type == JSON_ARRAY && i < command->count; i++)
        if (command->items[i].type == JSON_STRING)
            command->items[i] = json_string(settle_paths(loader, command->items[i].text));
    const struct json *cwd = json_get(mcp, "cwd");
    if (cwd && cwd->type == JSON_STRING)
        json_set(arena, mcp, STR("cwd"), json_string(str_of(config_resolve_path(arena, loader->folder, cwd->text))));
    else if (command && !cwd && *loader->folder)
        json_set(arena, mcp, STR("cwd"), json_string(str_of(loader->folder)));
}

enum option_kind config_provider_kind(const struct json *section)
{
    if (section->type != JSON_OBJECT)
        return OPTION_HTTP;
    if (json_get(section, "mcp"))
        return OPTION_MCP;
    if (json_get(section, "smtp"))
        return OPTION_MAIL;
    if (json_get(section, "sql"))
        return OPTION_SQL;
    return json_get(section, "command") ? OPTION_COMMAND : OPTION_HTTP;
}

/* A copy of the section with paths settled; the file's own tree stays as it was written (it is what the policy
 * version is made of). */
static const struct json *settle_section(const struct loader *loader, const struct json *section)
{
    if (section->type != JSON_OBJECT)
        return section;
    struct arena *arena = &loader->loaded->arena;
    struct json *copy = json_copy(arena, section);
    settle_member(loader, copy, "base_url");
    config_settle_members(loader, copy, "headers");
    settle_server(loader, (struct json *)json_get(copy, "mcp")); /* our own copy */
    config_settle_command(loader, (struct json *)json_get(copy, "command"));
    config_settle_members(loader, copy, "smtp");
    config_settle_members(loader, copy, "imap");
    config_settle_members(loader, copy, "sql");
    struct json *tls = (struct json *)json_get(copy, "tls");
    const struct json *ca = tls ? json_get(tls, "ca") : NULL;
    if (ca && ca->type == JSON_STRING)
        json_set(arena, tls, STR("ca"), json_string(str_of(config_resolve_path(arena, loader->folder, ca->text))));
    return copy;
}

void config_drop_repeated(struct problems *problems, size_t start, size_t from)
{
    size_t kept = from;
    for (size_t i = from; i < problems->count; i++) {
        const struct problem *problem = &problems->items[i];
        bool repeated = false;
        for (size_t k = start; k < from && !repeated; k++)
            repeated = !problems->items[k].warning && strcmp(problems->items[k].pointer, problem->pointer) == 0;
        if (!repeated)
            problems->items[kept++] = *problem;
        else if (!problem->warning)
            problems->errors--;
    }
    problems->count = kept;
}

void config_provider_read(const struct loader *loader, struct str name, const struct json *section, const char *pointer,
                          struct loaded_provider *out)
{
    struct problems *problems = loader->problems;
    struct arena *arena = &loader->loaded->arena;
    out->core.name = arena_copy_str(arena, name);
    if (!config_name_valid(name))
        problems_add(problems, pointer, "a provider's name is 1 to %d characters of A-Z a-z 0-9 _ . -",
                     CONFIG_NAME_BYTES_MAX);
    size_t start = problems->count;
    enum option_kind kind = config_provider_kind(section);
    struct options_reader reader = {.arena = arena, .problems = problems, .kind = kind};
    options_read(&reader, &config_provider_section, section, pointer, NULL);
    size_t from = problems->count;
    if (section->type == JSON_OBJECT && kind == OPTION_MCP) {
        out->mcp = mcp_provider_new(settle_section(loader, section), pointer, &out->core, problems);
        out->core.kind = PROVIDER_MCP;
        out->core.adapter_provider = out->mcp;
    } else if (section->type == JSON_OBJECT && kind == OPTION_COMMAND) {
        out->command = command_provider_new(settle_section(loader, section), pointer, &out->core, problems);
        out->core.kind = PROVIDER_COMMAND;
        out->core.adapter_provider = out->command;
    } else if (section->type == JSON_OBJECT && kind == OPTION_MAIL) {
        out->mail = mail_provider_new(settle_section(loader, section), pointer, &out->core, problems);
        out->core.kind = PROVIDER_MAIL;
        out->core.adapter_provider = out->mail;
    } else if (section->type == JSON_OBJECT && kind == OPTION_SQL) {
        out->sql = sql_provider_new(settle_section(loader, section), pointer, &out->core, problems);
        out->core.kind = PROVIDER_SQL;
        out->core.adapter_provider = out->sql;
    } else if (section->type == JSON_OBJECT) {
        out->http = http_provider_new(settle_section(loader, section), pointer, &out->core, problems);
        out->core.adapter_provider = out->http;
    }
    config_drop_repeated(problems, start, from);
}
