/* What the MCP servers of a registry list, asked once: for `onced check --connect` and `onced mcp import`. */
#ifndef DAEMON_CATALOG_H
#define DAEMON_CATALOG_H

#include "base/json.h"
#include "core/registry.h"

struct catalog {
    const struct json *tools;    /* as of mcp_hub_catalog; servers that could not be asked are missing */
    const struct json *failures; /* {"SERVER": why it could not be asked} */
    const struct json *servers; /* {"SERVER": {"version", "name"?, "release"?, "instructions"?}} of those that answered;
                                 * version: the protocol revision */
};

/* Starts the MCP servers, waits until each has told its tools or failed, at most timeout_ms, and stops them. Uses an
 * event loop of its own. Everything in *out lives in arena. ERR_IO: no event loop. */
enum err_code catalog_fetch(struct registry *registry, int64_t timeout_ms, struct arena *arena, struct catalog *out,
                            struct err *err);

#endif
