/* The tools that onced runs, looked up by name. One registry is one loaded state of the registry file: immutable,
 * shared by reference, so that a reload can put a new one in place while calls and attempts of the former one are in
 * flight. Used by one thread (the event loop); the counts are not atomic. */
#ifndef CORE_REGISTRY_H
#define CORE_REGISTRY_H

#include "core/inbox.h"
#include "core/tool.h"

#define REGISTRY_TOOLS_MAX     4096
#define REGISTRY_PROVIDERS_MAX 256
#define REGISTRY_ACCESS_MAX    1000 /* principals with a list of their own */

struct registry;

/* Releases what tools and providers consist of (arena, compiled parts); called once, after the last registry_unref. */
typedef void registry_destroy(void *owner);

/* Makes a registry with one reference, held by the caller. The arrays are copied; what they point to must stay valid
 * until destroy(owner), which may be NULL for tools that outlive the registry (tests). policy_version is copied.
 * Refuses names that are given twice and more than the maxima (ERR_INVALID, ERR_LIMIT); owner stays with the caller
 * then. */
enum err_code registry_new(const struct tool *const *tools, size_t tool_count, const struct provider *const *providers,
                           size_t provider_count, const char *policy_version, registry_destroy *destroy, void *owner,
                           struct registry **out, struct err *err);

/* Which tools one principal may see and call: shell patterns (fnmatch) over their names. */
struct registry_access {
    const char *principal;
    const char *const *tools;
    size_t tool_count;
};

/* Principals that are not in the list may use every tool. Before the registry is shared, once; the array is copied,
 * what it points to must stay valid until destroy(owner). No principal twice; at most REGISTRY_ACCESS_MAX. */
void registry_restrict(struct registry *registry, const struct registry_access *access, size_t count);
bool registry_allows(const struct registry *registry, const char *principal, const struct tool *tool);

/* Where providers tell of their own accord (design 11.1). As registry_restrict: before the registry is shared, once;
 * the array is copied. No name twice; at most INBOX_SOURCES_MAX. */
void registry_listen(struct registry *registry, const struct inbox_source *sources, size_t count);
const struct inbox_source *registry_source(const struct registry *registry, const char *name); /* or NULL */
size_t registry_source_count(const struct registry *registry);

struct registry *registry_ref(struct registry *registry); /* returns registry */
void registry_unref(struct registry *registry);           /* NULL is fine */

/* NULL when there is no tool of that name. Valid as long as the caller holds a reference. */
const struct tool *registry_find(const struct registry *registry, struct str name);

/* All tools and providers, ordered by name (bytewise). */
size_t registry_tool_count(const struct registry *registry);
const struct tool *registry_tool_at(const struct registry *registry, size_t index);
size_t registry_provider_count(const struct registry *registry);
const struct provider *registry_provider_at(const struct registry *registry, size_t index);

/* Short hex digest of everything that the file says about tools and providers: equal text, equal policy. */
const char *registry_policy_version(const struct registry *registry);

#endif
