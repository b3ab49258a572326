/* Commands as providers: each attempt starts one process, without a shell, and judges how it ended by the tool's
 * exit-code contract (docs/registry.md, "Commands").
 *
 *   argv, env, stdin ──► fork, exec ──► stdout, stderr, end ──► exit code in which list? ──► answer
 *
 * A command that could not be started was not sent. One that was started and ended in another way than the contract
 * knows, by a signal or by its time-out may have had its effect. */
#ifndef ADAPTER_COMMAND_H
#define ADAPTER_COMMAND_H

#include "adapter/adapter.h"
#include "base/problem.h"

#include <uv.h>

/* SIGPIPE must be ignored. Processes die with the thread that the loop runs on. Outlives registries. */
struct adapter *command_adapter_new(uv_loop_t *loop);
/* Ends what is running (SIGTERM, later SIGKILL; done is called with what is known), then releases. The loop must run
 * until closed (may be NULL) was called. */
void command_adapter_close(struct adapter *adapter, void (*closed)(void *user), void *user);

/* Compiled section of a provider (the whole: member "command" and those that it has in common with other providers).
 * Fills of *provider what the section states, defaults included. Secrets by reference in env; relative paths are the
 * caller's matter. NULL only with problems. */
struct command_provider;
struct command_provider *command_provider_new(const struct json *section, const char *pointer,
                                              struct provider *provider, struct problems *problems);
void command_provider_free(struct command_provider *provider);

/* Compiled members "run", "verify" and "lookup" of a tool's section. What struct tool.adapter_tool points to when the
 * provider's kind is PROVIDER_COMMAND. NULL only with problems. */
struct command_tool;
struct command_tool *command_tool_new(const struct json *section, const char *pointer,
                                      const struct command_provider *provider, const struct tool *tool,
                                      struct problems *problems);
void command_tool_free(struct command_tool *tool);
bool command_tool_has_lookup(const struct command_tool *tool);

#endif
