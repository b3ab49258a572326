/* The registry file that `onced mcp import` writes: a server's own tools with what can be told from their list, and
 * what the operator has to decide. */
#ifndef DAEMON_SKELETON_H
#define DAEMON_SKELETON_H

#include "base/buf.h"
#include "base/json.h"

struct skeleton {
    const char *provider;       /* its name in the file */
    const struct json *section; /* of the provider, written as it is */
    const struct json *tools;   /* array, as the server lists them */
    const struct json *facts;   /* of catalog.servers; NULL = not known */
    const char *path;           /* of the file that it is for, NULL = a new one */
};

/* Writes YAML that passes `onced check`. */
void skeleton_write(const struct skeleton *skeleton, struct buf *out);

/* A provider's name from how the server is reached: "npx -y @scope/server-files@1.2 /data" gives "files". In arena. */
const char *skeleton_name_of_command(struct arena *arena, char *const *words, size_t count);
const char *skeleton_name_of_url(struct arena *arena, const char *url);

#endif
