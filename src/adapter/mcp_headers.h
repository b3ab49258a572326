/* What the headers of a modern request repeat of its body (2026-07-28, streamable HTTP): Mcp-Method, Mcp-Name and one
 * Mcp-Param-* for each argument that the tool's schema names an `x-mcp-header` for. Pure. */
#ifndef ADAPTER_MCP_HEADERS_H
#define ADAPTER_MCP_HEADERS_H

#include "base/json.h"

/* Whether the x-mcp-header members of a tool as listed hold; ERR_INVALID says which does not. A server that demands
 * headers which cannot be made is not callable: such a tool is left out. */
enum err_code mcp_tool_headers_check(const struct json *tool, struct err *err);

/* One header. Texts are valid during the call. */
typedef void mcp_header_fn(void *user, const char *name, struct str value);

/* The member of a request's params that Mcp-Name repeats; NULL: the method has none. */
const char *mcp_name_member(const char *method);

/* All headers of a request with params (may be NULL). tool: as listed, NULL = not known or no tools/call. Values are
 * encoded as headers need it. */
void mcp_request_headers(const char *method, const struct json *params, const struct json *tool, mcp_header_fn *header,
                         void *user);

#endif
