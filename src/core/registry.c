#include "core/registry.h"

#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdlib.h>

struct registry {
    unsigned references;
    const struct tool **tools; /* sorted by name */
    size_t tool_count;
    const struct provider **providers; /* sorted by name */
    size_t provider_count;
    struct registry_access *access; /* sorted by principal */
    size_t access_count;
    struct inbox_source *sources;
    size_t source_count;
    char *policy_version;
    registry_destroy *destroy;
    void *owner;
};

static int compare_tools(const void *a, const void *b)
{
    const struct tool *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_providers(const void *a, const void *b)
{
    const struct provider *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void *copy_sorted(const void *items, size_t count, int (*compare)(const void *, const void *))
{
    void *copy = mem_alloc((count + 1) * sizeof(void *));
    if (count) {
        memcpy(copy, items, count * sizeof(void *));
        qsort(copy, count, sizeof(void *), compare);
    }
    return copy;
}

static void registry_free(struct registry *registry)
{
    free(registry->tools);
    free(registry->providers);
    free(registry->access);
    free(registry->sources);
    free(registry->policy_version);
    free(registry);
}

static enum err_code check_unique(const struct registry *registry, struct err *err)
{
    for (size_t i = 1; i < registry->tool_count; i++)
        if (compare_tools(&registry->tools[i - 1], &registry->tools[i]) == 0)
            return err_set(err, ERR_INVALID, "two tools are named \"%s\"", registry->tools[i]->name);
    for (size_t i = 1; i < registry->provider_count; i++)
        if (compare_providers(&registry->providers[i - 1], &registry->providers[i]) == 0)
            return err_set(err, ERR_INVALID, "two providers are named \"%s\"", registry->providers[i]->name);
    return ERR_NONE;
}

enum err_code registry_new(const struct tool *const *tools, size_t tool_count, const struct provider *const *providers,
                           size_t provider_count, const char *policy_version, registry_destroy *destroy, void *owner,
                           struct registry **out, struct err *err)
{
    if (tool_count > REGISTRY_TOOLS_MAX)
        return err_set(err, ERR_LIMIT, "%zu tools, at most %d are allowed", tool_count, REGISTRY_TOOLS_MAX);
    if (provider_count > REGISTRY_PROVIDERS_MAX)
        return err_set(err, ERR_LIMIT, "%zu providers, at most %d are allowed", provider_count, REGISTRY_PROVIDERS_MAX);
    struct registry *registry = mem_zero(sizeof *registry);
    registry->references = 1;
    registry->tools = copy_sorted(tools, tool_count, compare_tools);
    registry->tool_count = tool_count;
    registry->providers = copy_sorted(providers, provider_count, compare_providers);
    registry->provider_count = provider_count;
    registry->policy_version = mem_copy_text(policy_version ? policy_version : "");
    enum err_code code = check_unique(registry, err);
    if (code) {
        registry_free(registry);
        return code;
    }
    registry->destroy = destroy;
    registry->owner = owner;
    *out = registry;
    return ERR_NONE;
}

/* ---- who may use what ---- */

static int compare_access(const void *a, const void *b)
{
    const struct registry_access *x = a, *y = b;
    return strcmp(x->principal, y->principal);
}

void registry_restrict(struct registry *registry, const struct registry_access *access, size_t count)
{
    assert(!registry->access && count <= REGISTRY_ACCESS_MAX);
    if (count == 0)
        return;
    registry->access = mem_alloc(count * sizeof *access);
    memcpy(registry->access, access, count * sizeof *access);
    qsort(registry->access, count, sizeof *access, compare_access);
    registry->access_count = count;
}

bool registry_allows(const struct registry *registry, const char *principal, const struct tool *tool)
{
    const struct registry_access wanted = {.principal = principal ? principal : ""};
    const struct registry_access *access =
        registry->access_count
            ? bsearch(&wanted, registry->access, registry->access_count, sizeof wanted, compare_access)
            : NULL;
    for (size_t i = 0; access && i < access->tool_count; i++)
        if (fnmatch(access->tools[i], tool->name, 0) == 0)
            return true;
    return access == NULL;
}

/* ---- who tells ---- */

void registry_listen(struct registry *registry, const struct inbox_source *sources, size_t count)
{
    assert(!registry->sources && count <= INBOX_SOURCES_MAX);
    if (count == 0)
        return;
    registry->sources = mem_alloc(count * sizeof *sources);
    memcpy(registry->sources, sources, count * sizeof *sources);
    registry->source_count = count;
}

const struct inbox_source *registry_source(const struct registry *registry, const char *name)
{
    for (size_t i = 0; i < registry->source_count; i++)
        if (text_equal(registry->sources[i].name, name))
            return &registry->sources[i];
    return NULL;
}

size_t registry_source_count(const struct registry *registry)
{
    return registry->source_count;
}

/* ---- references ---- */

struct registry *registry_ref(struct registry *registry)
{
    assert(registry->references > 0);
    registry->references++;
    return registry;
}

void registry_unref(struct registry *registry)
{
    if (!registry)
        return;
    assert(registry->references > 0);
    if (--registry->references > 0)
        return;
    if (registry->destroy)
        registry->destroy(registry->owner);
    registry_free(registry);
}

const struct tool *registry_find(const struct registry *registry, struct str name)
{
    size_t low = 0, high = registry->tool_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct str other = str_of(registry->tools[middle]->name);
        size_t shared = name.n < other.n ? name.n : other.n;
        int order = shared ? memcmp(name.p, other.p, shared) : 0;
        if (order == 0 && name.n == other.n)
            return registry->tools[middle];
        if (order < 0 || (order == 0 && name.n < other.n))
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

size_t registry_tool_count(const struct registry *registry)
{
    return registry->tool_count;
}

const struct tool *registry_tool_at(const struct registry *registry, size_t index)
{
    assert(index < registry->tool_count);
    return registry->tools[index];
}

size_t registry_provider_count(const struct registry *registry)
{
    return registry->provider_count;
}

const struct provider *registry_provider_at(const struct registry *registry, size_t index)
{
    assert(index < registry->provider_count);
    return registry->providers[index];
}

const char *registry_policy_version(const struct registry *registry)
{
    return registry->policy_version;
}
