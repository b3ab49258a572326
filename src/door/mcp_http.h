/* Streamable HTTP for MCP at /mcp, both eras on one path (docs/mcp.md). What the HTTP server has to do with it: */
#ifndef DOOR_MCP_HTTP_H
#define DOOR_MCP_HTTP_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct mcp_door;
struct mcp_http;

#define MCP_PATH "/mcp"

struct mcp_http *mcp_http_new(struct mcp_door *door); /* borrowed while exchanges come */
/* Opens streams, keeps them alive, forgets what nobody fetched: once a second. */
void mcp_http_tick(struct mcp_http *http);
/* Every exchange has been answered. Sessions stay with the door; they only lose their streams. NULL is fine. */
void mcp_http_free(struct mcp_http *http);

/* A refusal as clients of MCP read them: a JSON-RPC error. */
void mcp_http_refuse(struct exchange *exchange, int status, int64_t code, struct str id, struct str data,
                     const char *text);
/* Whether the settings allow this Origin, which is none of this machine's own. Its pages may read our answers then:
 * mcp_http_allow_origin() adds the headers that browsers want to see (CORS), also to the answer to OPTIONS. */
bool mcp_http_origin_allowed(const struct mcp_http *http, struct str origin);
void mcp_http_allow_origin(struct exchange *exchange);

#endif
