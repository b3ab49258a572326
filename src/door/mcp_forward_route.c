/* Which server has a resource, a template or a prompt: remembered from what they list. */
#include "door/mcp_forward.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

struct route_entry {
    struct route_entry *next; /* templates */
    char *server;
    bool collision_told;
    char key[]; /* kind, space, name */
};

static char *route_key(enum route_kind kind, struct str name)
{
    char *key = mem_alloc(name.n + 3);
    key[0] = (char)kind;
    key[1] = ' ';
    memcpy(key + 2, name.p, name.n);
    key[name.n + 2] = '\0';
    return key;
}

static bool is_usable(struct str name)
{
    return name.p && name.n > 0 && name.n <= FORWARD_URI_BYTES_MAX && !memchr(name.p, '\0', name.n);
}

bool route_learn(struct passing *passing, enum route_kind kind, struct str name, const char *server)
{
    if (!is_usable(name))
        return true;
    char *key = route_key(kind, name);
    struct route_entry *entry = map_get(&passing->routes, key);
    bool own = true;
    if (entry) {
        int order = strcmp(server, entry->server);
        own = order <= 0;
        if (order != 0 && !entry->collision_told)
            log_message(LOG_WARN, "mcp_name_collision",
                        "\"%s\" is offered by servers \"%s\" and \"%s\": \"%s\" is asked", entry->key + 2,
                        entry->server, server, own ? server : entry->server);
        entry->collision_told = entry->collision_told || order != 0;
        if (order < 0) {
            free(entry->server);
            entry->server = mem_copy_text(server);
        }
    } else if (passing->route_count < FORWARD_ROUTES_MAX) {
        entry = mem_alloc(sizeof *entry + name.n + 3);
        entry->next = NULL;
        entry->collision_told = false;
        entry->server = mem_copy_text(server);
        memcpy(entry->key, key, name.n + 3);
        map_put(&passing->routes, entry->key, entry);
        passing->route_count++;
        if (kind == ROUTE_TEMPLATE) {
            entry->next = passing->templates;
            passing->templates = entry;
        }
    }
    free(key);
    return own;
}

/* The last expression of the template that was met: it takes one byte more whenever the rest does not fit. */
struct expression {
    size_t after; /* where the template goes on; 0 = none was met */
    size_t taken; /* end of what it takes of the URI */
    bool slash;   /* it may take "/" */
};

/* An expression stands for one byte or more, and not for "/" unless it begins with "+", "#" or "/" (RFC 6570). What is
 * optional ("?", "&") may be missing. */
static bool expression_begin(struct expression *expression, struct str template, size_t t, struct str uri, size_t u)
{
    const char *end = memchr(template.p + t, '}', template.n - t);
    if (!end)
        return false;
    char first = template.p[t + 1];
    bool optional = first == '?' || first == '&', slash = optional || first == '+' || first == '#' || first == '/';
    if (!optional && (u >= uri.n || (uri.p[u] == '/' && !slash)))
        return false;
    *expression = (struct expression){(size_t)(end - template.p) + 1, u + (optional ? 0 : 1), slash};
    return true;
}

static bool expression_extend(struct expression *expression, struct str uri)
{
    if (!expression->after || expression->taken >= uri.n || (uri.p[expression->taken] == '/' && !expression->slash))
        return false;
    expression->taken++;
    return true;
}

bool route_template_matches(struct str template, struct str uri)
{
    struct expression last = {0};
    size_t t = 0, u = 0;
    for (;;) {
        bool fits = false;
        if (t < template.n && template.p[t] == '{') {
            fits = expression_begin(&last, template, t, uri, u);
        } else if (t == template.n && u == uri.n) {
            return true;
        } else if (t < template.n && u < uri.n && template.p[t] == uri.p[u]) {
            t++;
            u++;
            continue;
        }
        if (!fits && !expression_extend(&last, uri))
            return false;
        t = last.after;
        u = last.taken;
    }
}

const char *route_find(struct passing *passing, enum route_kind kind, struct str name)
{
    if (!is_usable(name))
        return NULL;
    char *key = route_key(kind, name);
    const struct route_entry *entry = map_get(&passing->routes, key);
    free(key);
    if (entry)
        return entry->server;
    const char *found = NULL;
    for (entry = passing->templates; kind == ROUTE_URI && entry; entry = entry->next)
        if (route_template_matches(str_of(entry->key + 2), name) && (!found || strcmp(entry->server, found) < 0))
            found = entry->server;
    return found;
}

void routes_forget(struct passing *passing)
{
    size_t at = 0;
    struct route_entry *entry;
    while ((entry = map_next(&passing->routes, &at)) != NULL) {
        free(entry->server);
        free(entry);
    }
    map_release(&passing->routes);
    passing->templates = NULL;
    passing->route_count = 0;
}
