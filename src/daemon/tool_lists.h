/* What MCP servers listed last, kept beside the ledger: a restarted onced knows their tools before they answer, and
 * while they are down. So what was left open is taken care of at once, and a repeated call finds its operation instead
 * of no tool.
 *
 * Lists are {"SERVER": {"section": digest of the server's section in the registry file, "tools": [as listed]}}, which
 * is also a catalogue for config_load_with. Another section, another server: its former list is not used. */
#ifndef DAEMON_TOOL_LISTS_H
#define DAEMON_TOOL_LISTS_H

#include "base/err.h"
#include "base/json.h"

#define TOOL_LISTS_SUFFIX                                                                                              \
    ".tools" /* of the file, behind the ledger's path, or the registry file's when the ledger is a database */

/* Lists for the MCP servers among providers (of the registry file): as now listed (mcp_hub_catalog), else as kept.
 * listed and kept may be NULL; the result borrows from both. */
const struct json *tool_lists_merge(struct arena *arena, const struct json *providers, const struct json *listed,
                                    const struct json *kept);

/* NULL when there are none, or none that can be read. */
const struct json *tool_lists_read(struct arena *arena, const char *path);
/* Atomically, mode 0600. */
enum err_code tool_lists_write(const char *path, const struct json *lists, struct err *err);

#endif
