/* The HTTP adapter: libcurl multi on a libuv loop. Configuration sections come as JSON trees (from the registry file)
 * and are compiled once; see docs/registry.md for their members. */
#ifndef ADAPTER_HTTP_H
#define ADAPTER_HTTP_H

#include "adapter/adapter.h"
#include "base/problem.h"

#include <uv.h>

/* The client side of one event loop: connection pools, timers. Outlives registries. */
enum err_code http_adapter_new(uv_loop_t *loop, struct adapter **out, struct err *err);
/* Aborts what is on the wire (done is called with what is known) and releases. The loop must still run once to close
 * handles: closed is called when all are. */
void http_adapter_close(struct adapter *adapter, void (*closed)(void *user), void *user);

/* Compiled provider section: base URL, headers with secrets resolved, key and error contract. Problems are added with
 * pointers below `pointer`; NULL is returned only when there were errors. Also fills the members of core's struct
 * provider that the section states (connections_max, timeouts, key contract, budget, breaker), defaults included. */
struct http_provider;
struct http_provider *http_provider_new(const struct json *section, const char *pointer, struct provider *provider,
                                        struct problems *problems);
void http_provider_free(struct http_provider *provider);

/* Compiled request, response, lookup and verify parts of one tool (members "request", "response", "verify", "lookup" of
 * the tool's section). provider is borrowed. The result is what struct tool.adapter_tool points to. */
struct http_tool;
struct http_tool *http_tool_new(const struct json *section, const char *pointer, const struct http_provider *provider,
                                struct tool *tool, struct problems *problems);
void http_tool_free(struct http_tool *tool);
bool http_tool_has_lookup(const struct http_tool *tool);

/* Expands "${env:NAME}" and "${file:PATH}" in text (heap copy; may be secret). Whole-file value with one trailing
 * newline removed. Errors name the reference, never the value. *secret tells whether anything was expanded. */
enum err_code http_secret_expand(const char *text, char **out, bool *secret, struct err *err);

#endif
