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

/* A copy of the section with paths settled; the file's own tree stays as it was written (it is what the policy
 * version is made of). */
static const struct json *settle_section(const struct loader *loader, const struct json *section)
{
    if (section->type != JSON_OBJECT)
        return section;
    struct arena *arena = &loader->loaded->arena;
    struct json *copy = json_copy(arena, section);
    settle_member(loader, copy, "base_url");
    struct json *headers = (struct json *)json_get(copy, "headers"); /* our own copy */
    for (uint32_t i = 0; headers && headers->type == JSON_OBJECT && i < headers->count; i++)
        if (headers->members[i].value.type == JSON_STRING)
            headers->members[i].value = json_string(settle_paths(loader, headers->members[i].value.text));
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
    options_read(&(struct options_reader){.arena = arena, .problems = problems}, &config_provider_section, section,
                 pointer, NULL);
    size_t from = problems->count;
    if (section->type == JSON_OBJECT)
        out->http = http_provider_new(settle_section(loader, section), pointer, &out->core, problems);
    config_drop_repeated(problems, start, from);
}
