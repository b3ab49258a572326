/* Downstream MCP servers (docs/mcp.md): spawned over stdio or reached by streamable HTTP, legacy (2025-03-26 to
 * 2025-11-25) and modern (2026-07-28) era.
 *
 *   hub ── server (a provider of the registry file) ── shared link ── attempts of operations, list of tools
 *                                                  └── link per upstream client ── what is passed through for it
 *
 * A server is supervised: started when the registry names it, restarted with backoff when it dies, stopped when the
 * registry no longer names it or its section changed. Everything runs on the loop's thread. */
#ifndef ADAPTER_MCP_H
#define ADAPTER_MCP_H

#include "adapter/adapter.h"
#include "base/env.h"
#include "base/jsonrpc.h"
#include "base/problem.h"
#include "core/registry.h"

#include <uv.h>

#define MCP_LEGACY_VERSION    "2025-11-25" /* newest of the legacy era */
#define MCP_MODERN_VERSION    "2026-07-28"
#define MCP_MESSAGE_BYTES_MAX ((size_t)32 * 1024 * 1024)
#define MCP_TOOL_NAME_MAX     64 /* what clients take */

enum mcp_era { MCP_ERA_LEGACY, MCP_ERA_MODERN, MCP_ERA_ANY };

/* ---- configuration: sections of the registry file (docs/mcp.md) ---- */

/* Compiled section of a provider (the whole: member "mcp" and those that servers have in common with other providers).
 * Fills of *provider what the section states, defaults included (kind, limits, key contract, budget, breaker). Secrets
 * by reference (${env:NAME}, ${file:PATH}) in command, env, cwd, url and headers; relative paths are the caller's
 * matter. mcp.import is the caller's but for its prefix. NULL only with problems. */
struct mcp_provider;
struct mcp_provider *mcp_provider_new(const struct json *section, const char *pointer, struct provider *provider,
                                      struct problems *problems);
void mcp_provider_free(struct mcp_provider *provider);
/* What of the section makes the connection, in canonical form with references unexpanded, plus a digest of the values
 * they had: equal text, same server. Borrowed. */
struct str mcp_provider_identity(const struct mcp_provider *provider);

/* Compiled members "mcp", "lookup", "verify" and "timeout" of a tool's section: downstream name, key argument, what its
 * answers mean, look-up tool. Needs of *tool the name, class, input_schema_json (as the server listed it) and redact.
 * What struct tool.adapter_tool points to when the provider's kind is PROVIDER_MCP. */
struct mcp_tool;
struct mcp_tool *mcp_tool_new(const struct json *section, const char *pointer, const struct mcp_provider *provider,
                              struct tool *tool, struct problems *problems);
void mcp_tool_free(struct mcp_tool *tool);
bool mcp_tool_has_lookup(const struct mcp_tool *tool);
const char *mcp_tool_remote_name(const struct mcp_tool *tool);
/* The argument that takes the provider key and that callers do not see (S16, S17); NULL = none. */
const char *mcp_tool_key_argument(const struct mcp_tool *tool);

/* ---- hub ---- */

struct mcp_hub;
struct mcp_server;
struct mcp_link;
struct mcp_listener;

struct mcp_hub_options {
    uv_loop_t *loop;
    struct env *env;
    /* A server's tools were listed for the first time, changed, or went: the registry is to be made anew. Called from
     * the loop, at most once per turn for all servers together. */
    void (*catalog_changed)(void *user);
    void *user;
};

/* SIGPIPE must be ignored. Processes die with the thread that the loop runs on. */
enum err_code mcp_hub_new(const struct mcp_hub_options *options, struct mcp_hub **out, struct err *err);
struct adapter *mcp_hub_adapter(struct mcp_hub *hub); /* for attempts of tools of PROVIDER_MCP */
/* Who is told what servers say and ask about attempts (mcp_related.origin says whose); NULL = nobody. lost is not used.
 * link: the one that the attempt went over; NULL when its client has closed it meanwhile. */
void mcp_hub_set_listener(struct mcp_hub *hub, const struct mcp_listener *listener, void *user);
/* Starts, keeps and stops servers so that they are those of the registry (providers of kind PROVIDER_MCP); takes a
 * reference. */
void mcp_hub_apply(struct mcp_hub *hub, struct registry *registry);
/* Every server has listed its tools or has failed to at least once, and catalog_changed was told of it. */
bool mcp_hub_settled(const struct mcp_hub *hub);
/* {"SERVER": {"tools": [as listed], "resources": bool, "prompts": bool, …}} for the registry's `import`; servers never
 * reached are missing, those that are down keep their last list. */
struct json *mcp_hub_catalog(const struct mcp_hub *hub, struct arena *arena);
/* Open attempts are answered with what is known (connection_lost), children get SIGTERM, later SIGKILL. */
void mcp_hub_close(struct mcp_hub *hub, void (*closed)(void *user), void *user);

enum mcp_server_state { MCP_SERVER_STARTING, MCP_SERVER_READY, MCP_SERVER_DOWN };

struct mcp_server_info {
    const char *name; /* of the provider */
    enum mcp_server_state state;
    enum mcp_era era;                /* of the shared link, once ready */
    const char *version;             /* protocol revision in use, NULL before */
    const struct json *capabilities; /* the server's, NULL before; valid until the loop's next turn */
    const struct json *server_info;  /* {"name", "version"}, may be NULL */
    const char *instructions;        /* may be NULL */
    const char *error;               /* why it is down, NULL = none */
    unsigned restarts;
    bool per_client;    /* links are opened per upstream client */
    bool forward;       /* resources, prompts, completion and the like are passed through */
    const char *prefix; /* of imported names, "" = none */
};

size_t mcp_hub_server_count(const struct mcp_hub *hub);
struct mcp_server *mcp_hub_server_at(const struct mcp_hub *hub, size_t index); /* ordered by name */
struct mcp_server *mcp_hub_find(const struct mcp_hub *hub, const char *name);  /* NULL = none */
struct mcp_server_info mcp_server_info(const struct mcp_server *server);

/* ---- links: what the door passes through ---- */

struct mcp_pending;  /* a request that we sent and whose answer has not come */
struct mcp_question; /* a request of the server that waits for our answer */

/* What a message from the server belongs to: nothing (both NULL / 0) for messages of the connection itself. */
struct mcp_related {
    void *user;                   /* of mcp_link_request */
    struct adapter_origin origin; /* of an attempt, when the adapter sent the request */
};

struct mcp_listener {
    /* A notification. progress: the token in params is the one that the request was sent with (restored). */
    void (*notified)(void *user, struct mcp_link *link, const struct mcp_related *related,
                     const struct rpc_message *message);
    /* sampling/createMessage, elicitation/create, roots/list, …: answer with mcp_answer exactly once, at once or later
     * (the message is valid during the callback only). */
    void (*asked)(void *user, struct mcp_link *link, const struct mcp_related *related,
                  const struct rpc_message *message, struct mcp_question *question);
    /* The question needs no answer any more (the server cancelled it or is gone): forget it. */
    void (*withdrawn)(void *user, struct mcp_link *link, struct mcp_question *question);
    /* The connection is gone; every pending request has been told. The link is of no use any more: close it. */
    void (*lost)(void *user, struct mcp_link *link, const char *why);
    /* The hub's listener: adds to the open object `_meta` of an attempt's request what a modern server is to know of
     * the client behind it (clientCapabilities, logLevel). NULL, or nobody is there: nothing is known. */
    void (*introduced)(void *user, const struct adapter_origin *origin, struct json_out *meta);
};

struct mcp_link_options {
    uint64_t session;        /* the upstream session's number: attempts with this origin use the link; 0 = none */
    enum mcp_era era;        /* wanted; MCP_ERA_ANY = as the server's configuration or the shared link says */
    const char *version;     /* legacy: revision to offer; NULL = newest */
    struct str capabilities; /* JSON object: what the upstream client can; absent = none */
    struct str client_info;  /* JSON object, absent = onced's own */
    const struct mcp_listener *listener;
    void *user;
};

/* A server with per_client gets a connection of its own for this client, others hand out the shared connection under
 * the link. Requests may be made at once; they wait until the connection stands. NULL: the server is down (err). */
struct mcp_link *mcp_link_open(struct mcp_server *server, const struct mcp_link_options *options, struct err *err);
void mcp_link_close(struct mcp_link *link); /* pending requests are told MCP_LOST; listener is not called any more */
enum mcp_era mcp_link_era(const struct mcp_link *link);          /* before the handshake: likely, or MCP_ERA_ANY */
struct mcp_server *mcp_link_server(const struct mcp_link *link); /* NULL once the hub was closed */

/* How a request ended. */
enum mcp_end {
    MCP_ANSWERED,  /* message is RPC_RESULT or RPC_ERROR (the server's own) */
    MCP_LOST,      /* the connection ended or could not be made */
    MCP_TIMED_OUT, /* no answer in time */
    MCP_CANCELLED, /* by mcp_pending_cancel */
    MCP_UNREADABLE /* the answer breaks the protocol or a limit */
};

struct mcp_outcome {
    enum mcp_end end;
    const struct rpc_message *message; /* MCP_ANSWERED, valid during the callback */
    bool sent;                         /* bytes of the request may have left */
    int http_status;                   /* 0 = none */
    const char *text;
};
typedef void mcp_done(void *user, const struct mcp_outcome *outcome);

struct mcp_request_options {
    const char *method;
    struct str params;  /* JSON object; `_meta` is passed on with what the era demands added; absent = none */
    int64_t timeout_ms; /* 0 = none; progress starts it anew */
    bool no_timeout_renewal;
    mcp_done *done; /* called exactly once, never from within mcp_link_request */
    void *user;
};
struct mcp_pending *mcp_link_request(struct mcp_link *link, const struct mcp_request_options *options);
/* Legacy: notifications/cancelled; modern: the stream is closed. done is still called (MCP_CANCELLED or the answer). */
void mcp_pending_cancel(struct mcp_pending *pending, const char *reason);
/* done will not be called any more; the request goes on. */
void mcp_pending_forget(struct mcp_pending *pending);
void mcp_link_notify(struct mcp_link *link, const char *method, struct str params);
/* result (JSON object) or, when absent, an error. */
void mcp_answer(struct mcp_question *question, struct str result, int64_t code, struct str message);

#endif
