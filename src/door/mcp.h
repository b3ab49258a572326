/* The MCP door (docs/mcp.md): agents reach the registry's tools, and what downstream MCP servers offer besides, over
 * stdio, a local socket and streamable HTTP at /mcp; legacy (2025-03-26 to 2025-11-25) and modern (2026-07-28) era.
 *
 *   HTTP exchange ─ mcp_http.c ───┐                       ┌─ mcp_list.c, mcp_call.c ─► engine ─► ledger, adapter
 *   socket, stdio ─ mcp_stream.c ─┼─► session ─► mcp_rpc.c ┼─ mcp_builtin.c, mcp_task.c
 *                                 │   sink                └─ mcp_forward.c ─► links of downstream servers
 */
#ifndef DOOR_MCP_H
#define DOOR_MCP_H

#include "adapter/mcp.h"
#include "engine/engine.h"

struct mcp_door;

/* Section "mcp" of the registry file. */
struct mcp_settings {
    bool tool_status, tool_wait, tool_plan, tool_run_report; /* built-in tools: onced_status, … */
    bool tool_compensate;    /* onced_compensate: where a tool that the caller may use has playbooks */
    bool output_schema;      /* publish onced's result shape as outputSchema of the registry's own tools */
    bool tasks;              /* answer long calls as tasks where the client can */
    int64_t task_after_ms;   /* a call that takes longer becomes a task */
    int64_t wait_ms_max;     /* a call without tasks is answered with what is known after this; 0 = the tool's wait */
    size_t sessions_max;     /* legacy sessions at once; the idlest one is ended for a new one */
    int64_t session_idle_ms; /* a session without a request for so long is ended */
    size_t calls_max;        /* requests being worked on, per session */
    size_t stream_bytes_max; /* unsent or resumable bytes kept per stream */
    const char *const *origins; /* allowed Origin values beyond loopback ones */
    size_t origin_count;
    const char *stdio_principal, *stdio_tenant; /* who calls over stdio and the local socket */
    const char *instructions;                   /* for clients; NULL = onced's own */
};
extern const struct mcp_settings mcp_settings_default;

struct mcp_door_options {
    uv_loop_t *loop;
    struct engine *engine;
    struct mcp_hub *hub;                 /* NULL = no downstream servers */
    const struct mcp_settings *settings; /* copied, texts borrowed */
};
struct mcp_door *mcp_door_new(const struct mcp_door_options *options);
/* Settings of a reloaded registry file; the texts of the former ones may be released afterwards. */
void mcp_door_configure(struct mcp_door *door, const struct mcp_settings *settings);
/* The registry in force has other tools: clients are told (list_changed). */
void mcp_door_tools_changed(struct mcp_door *door);
/* Listener for messages of attempts that the hub's adapter sent (progress, questions): they go to the session of the
 * attempt's origin. */
const struct mcp_listener *mcp_door_attempt_listener(void);
/* Ends all sessions; links are closed. Streams of the transports are ended by them. */
void mcp_door_close(struct mcp_door *door);
void mcp_door_free(struct mcp_door *door);

/* ---- the stream transport: newline-delimited messages ---- */

/* One client on a pair of descriptors (stdin and stdout of `onced mcp`). ended is called once, from the loop, when the
 * client closed its side and every answer was written, when writing fails, or when its session was ended; the stream is
 * gone then. The descriptors are not closed; they are non-blocking meanwhile. SIGPIPE must be ignored. */
struct mcp_stream;
enum err_code mcp_stream_open(struct mcp_door *door, int in, int out, void (*ended)(void *user), void *user,
                              struct mcp_stream **stream, struct err *err);
/* Reads nothing more; ended is called as soon as what was asked before is answered. */
void mcp_stream_finish(struct mcp_stream *stream);
/* Ends it at once (its memory goes with the loop's next turn); ended is not called. NULL is fine. */
void mcp_stream_close(struct mcp_stream *stream);

/* A Unix socket (mode 0600) at path, each connection one client: how `onced mcp` reaches the process that has the
 * ledger. A dead socket file is replaced, a live one is refused (ERR_CONFLICT). */
struct mcp_listener_socket;
#define MCP_SOCKET_CLIENTS_MAX 256
enum err_code mcp_socket_listen(struct mcp_door *door, const char *path, struct mcp_listener_socket **out,
                                struct err *err);
size_t mcp_socket_clients(const struct mcp_listener_socket *listener);
/* left: a client has gone. */
void mcp_socket_on_left(struct mcp_listener_socket *listener, void (*left)(void *user), void *user);
/* Removes the file and takes nobody new; what clients have asked is answered, what they say from now on is not read:
 * they find it unanswered and say it to the next owner. */
void mcp_socket_stop(struct mcp_listener_socket *listener);
void mcp_socket_close(struct mcp_listener_socket *listener); /* the same, and ends the connections; NULL is fine */
/* The path of a ledger's socket: LEDGER + ".mcp". */
#define MCP_SOCKET_SUFFIX ".mcp"

#endif
