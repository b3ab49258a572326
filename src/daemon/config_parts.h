/* How the registry file's providers and tools become what core and the adapter work with. Inside of config only. */
#ifndef DAEMON_CONFIG_PARTS_H
#define DAEMON_CONFIG_PARTS_H

#include "adapter/http.h"
#include "base/problem.h"
#include "core/registry.h"

/* Everything that one registry consists of; released after its last reference is gone. */
struct loaded_provider {
    struct provider core;
    struct http_provider *http; /* NULL after errors */
};

struct loaded_tool {
    struct tool core;
    struct http_tool *http; /* NULL after errors, like the next three when not stated */
    struct template *key;
    struct normal *normal;
    struct schema *schema;
};

struct loaded {
    struct arena arena; /* the file's tree, names, texts */
    struct loaded_provider *providers;
    size_t provider_count;
    struct loaded_tool *tools;
    size_t tool_count;
    struct http_provider *assumed; /* stands in for broken ones while tools are checked; else NULL */
};

void loaded_free(struct loaded *loaded); /* NULL is fine */

struct loader {
    struct loaded *loaded;
    struct problems *problems;
    const char *folder; /* of the registry file, ends with "/" or is empty: relative paths start here */
};

/* folder + path, or path itself when it is absolute; in arena. */
const char *config_resolve_path(struct arena *arena, const char *folder, struct str path);

/* Each fills one entry of loaded from one member of "providers" or "tools" and adds what is wrong. */
void config_provider_read(const struct loader *loader, struct str name, const struct json *section, const char *pointer,
                          struct loaded_provider *out);
void config_tool_read(const struct loader *loader, struct str name, const struct json *section, const char *pointer,
                      struct loaded_tool *out);

/* Policy: contradictions are errors, dangers are warnings (design 13). Called when the tool's parts are compiled;
 * leaves out of the default strategies what the tool cannot do. */
void config_tool_check(const struct loader *loader, const struct json *section, const char *pointer,
                       struct loaded_tool *tool);

/* Member names in the tool's templates, volatile and normalize that its input schema does not know. */
void config_names_check(const struct loader *loader, const struct json *section, const char *pointer,
                        const struct tool *tool);

/* Problems from index `from` on that repeat the place of an error between `start` and `from` are dropped: the option
 * table and the adapter look at the same members. */
void config_drop_repeated(struct problems *problems, size_t start, size_t from);

#endif
