/* What the files of the MCP adapter share: compiled sections, hub, servers, connections, links, and the transports
 * below them. Not for others.
 *
 *   mcp_section.c                sections ─► struct mcp_provider, struct mcp_tool        once, at load
 *   mcp_hub.c                    servers: which there are, restarts, their lists of tools
 *   mcp_call.c                   attempts of operations: adapter_ops over links
 *   mcp_link.c                   links, requests, questions; which of them a message belongs to
 *   mcp_connection.c             what comes over the transport, time-outs, the end
 *   mcp_handshake.c              which era the server speaks, what it can
 *   mcp_pending.c                requests under way; what is sent (mcp_envelope.c: in the form of the era)
 *   mcp_stdio.c, mcp_http.c      transports: bytes of one connection
 *
 * Everything runs on the loop's thread. Below the door nothing is sent twice: a request that is lost is told as lost.
 */
#ifndef ADAPTER_MCP_PARTS_H
#define ADAPTER_MCP_PARTS_H

#include "adapter/mcp_section.h"
#include "base/map.h"

#define MCP_PENDING_MAX     4096                        /* requests under way per connection; more are refused */
#define MCP_QUESTIONS_MAX   64                          /* questions of a server that wait, per connection */
#define MCP_LINKS_MAX       4096                        /* per server */
#define MCP_QUEUE_BYTES_MAX (2 * MCP_MESSAGE_BYTES_MAX) /* unwritten bytes per connection */
#define MCP_DEPTH_MAX       128                         /* nesting of a message */
#define MCP_VALUES_MAX      2000000                     /* JSON values of a message */
#define MCP_TOOLS_MAX       4096                        /* of one server; REGISTRY_TOOLS_MAX bounds them together */
#define MCP_LIST_PAGES_MAX  256
#define MCP_LIST_BYTES_MAX  ((size_t)16 * 1024 * 1024) /* of all pages together */
#define MCP_PROBE_MS        3000                       /* server/discover of `protocol: auto` is waited for so long */
#define MCP_RESTART_MS      100                        /* first delay; doubles */
#define MCP_RESTART_MS_MAX  60000
#define MCP_STEADY_MS       10000 /* a server that was ready for so long starts with the first delay again */
#define MCP_DRAIN_MS        30000 /* requests of a server that the registry dropped may go on for so long */
#define MCP_CLOSE_TERM_MS   1000  /* from the end of stdin to SIGTERM */
#define MCP_CLOSE_KILL_MS   2000  /* from SIGTERM to SIGKILL */

#define MCP_META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define MCP_META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define MCP_META_CLIENT       "io.modelcontextprotocol/clientInfo"
#define MCP_META_LOG_LEVEL    "io.modelcontextprotocol/logLevel"
#define MCP_META_SERVER       "io.modelcontextprotocol/serverInfo"
#define MCP_META_SUBSCRIPTION "io.modelcontextprotocol/subscriptionId"

#define MCP_UNSUPPORTED_VERSION (-32022)

/* ---- what is written (mcp_envelope.c, pure) ---- */

extern const struct json_limits mcp_message_limits;

/* A legacy revision that we speak, also 2024-11-05: over stdio it differs in nothing that we use. */
bool mcp_version_is_legacy(struct str version);

struct mcp_envelope {
    enum mcp_era era;
    const struct json *capabilities, *client_info; /* modern: for a _meta that has none */
    struct str token;                              /* JSON text: what a progress token is replaced with */
};
/* params (JSON object; absent = none) with the `_meta` that the era demands and without what the other era puts there,
 * in arena; *out is NULL for none. *token: the progress token that was replaced, JSON text on the heap, NULL = none. */
enum err_code mcp_envelope_params(struct arena *arena, struct str params, const struct mcp_envelope *envelope,
                                  struct json **out, char **token, struct err *err);

/* ---- hub (mcp_hub.c) ---- */

struct mcp_connection;
struct mcp_transport;

/* Makes the transport of a connection: stdio or HTTP by its provider. Tests put their own in the hub's place of it. */
typedef struct mcp_transport *mcp_open_fn(struct mcp_connection *connection, struct err *err);

struct mcp_deferred {
    void (*call)(void *user);
    void *user;
    struct mcp_deferred *next;
};

/* Limits and waits that tests shorten; mcp_pace_default is what this file states. */
struct mcp_pace {
    size_t queue_bytes_max;
    int64_t probe_ms, restart_ms, term_ms, kill_ms;
};
extern const struct mcp_pace mcp_pace_default;

struct mcp_hub {
    struct adapter adapter; /* first: see mcp_hub_of */
    struct mcp_hub_options options;
    struct registry *registry;   /* in force; a reference, NULL before the first */
    struct mcp_server **servers; /* ordered by name */
    size_t server_count;
    struct mcp_server *retired;          /* not named any more, their last requests go on */
    mcp_open_fn *open;                   /* mcp_transport_open */
    struct mcp_pace pace;                /* mcp_pace_default */
    const struct mcp_listener *listener; /* messages about attempts; NULL = none */
    void *listener_user;
    struct mcp_deferred *deferred, **deferred_end;
    uv_timer_t timer;                             /* runs deferred */
    struct mcp_http_client *http;                 /* mcp_http.c's; NULL until needed */
    struct children *children;                    /* mcp_stdio.c's; NULL until needed */
    struct arena arena;                           /* of the next two */
    const struct json *can_nothing, *client_info; /* {} and onced's own */
    struct mcp_attempt *asking;                   /* mcp_call.c's: attempts that wait for answers of people */
    bool changed;                                 /* catalog_changed is due */
    bool closing, clients_closed;
    unsigned holds; /* by everything that has handles on the loop */
    void (*closed)(void *user);
    void *closed_user;
};

static inline struct mcp_hub *mcp_hub_of(struct adapter *adapter)
{
    return (struct mcp_hub *)adapter;
}

/* From the loop's next turn (also while the hub closes), in the order of the calls. For what must not happen within. */
void mcp_hub_defer(struct mcp_hub *hub, void (*call)(void *user), void *user);
/* A closing hub waits for those who hold it. */
void mcp_hub_hold(struct mcp_hub *hub);
void mcp_hub_release(struct mcp_hub *hub);

/* mcp_call.c */
extern const struct adapter_ops mcp_adapter_ops;
/* The first thing that a closing hub does: attempts that wait for answers of people end (connection_lost). */
void mcp_attempts_close(struct mcp_hub *hub);
/* mcp_http.c: called once all connections are closed; whatever still has handles holds the hub. http may be NULL. */
void mcp_http_client_close(struct mcp_hub *hub);
/* mcp_http.c: whether the x-mcp-header members of a tool as listed hold (facts 1.7); else the tool is left out. */
bool mcp_http_tool_valid(const struct json *tool, struct err *err);

/* ---- servers ---- */

struct mcp_server {
    struct mcp_hub *hub;
    char *name;
    struct mcp_provider *provider; /* a reference */
    enum mcp_server_state state;
    struct mcp_connection *shared;      /* NULL while down */
    struct mcp_link *own;               /* on the shared connection: lists, attempts without a link; NULL while down */
    struct mcp_connection *connections; /* all, the shared one too */
    struct mcp_link *links;             /* all but own */
    size_t link_count;
    /* facts of the shared connection, kept while it is down */
    enum mcp_era verdict; /* MCP_ERA_ANY = not known */
    struct arena facts;
    const struct json *capabilities, *server_info;
    const char *instructions;
    const char *version;
    /* list of tools */
    struct arena list;
    const struct json *tools; /* array as listed, NULL = never */
    struct arena draft;       /* of the pages so far */
    struct json *draft_tools;
    unsigned draft_pages;
    size_t draft_bytes;
    struct mcp_pending *listing, *listening;
    bool list_again; /* changed while it was being listed */
    bool settled;
    char *error; /* NULL = none */
    unsigned restarts, failures /* in a row */;
    int64_t ready_at_ms, listed_at_ms; /* loop's time */
    int64_t retry_at_ms;               /* when the list or the stream of changes is looked at again, 0 = not */
    uv_timer_t timer;                  /* restart, another try to list, end of the drain */
    bool retired, closed;
    struct mcp_server *next, **at; /* of the hub's retired ones */
};

/* The link for an attempt: that of the origin's session with this server, else the server's own. Waits for a server
 * that starts; NULL: it is down (err says why). */
struct mcp_link *mcp_server_attempt_link(struct mcp_server *server, struct adapter_origin origin, struct err *err);
/* mcp_link_request for an attempt: messages about it go to the hub's listener with this origin. */
struct mcp_pending *mcp_link_attempt(struct mcp_link *link, const struct mcp_request_options *options,
                                     struct adapter_origin origin);
/* A tool as the server listed it (for Mcp-Param-* headers and key arguments); NULL = not listed. Valid until the loop's
 * next turn. */
const struct json *mcp_server_tool(const struct mcp_server *server, struct str name);
/* Lists the tools again (after -32020). */
void mcp_server_relist(struct mcp_server *server);

/* ---- requests ---- */

struct mcp_pending {
    struct mcp_hub *hub;
    struct mcp_connection *connection; /* NULL: there was none any more */
    struct mcp_link *link;             /* NULL: of the connection itself (handshake), or its link was closed */
    char id[24];                       /* decimal; the JSON text of the id as well */
    char method[RPC_METHOD_BYTES_MAX + 1];
    char *params; /* JSON text until it is sent; NULL = none */
    size_t params_bytes;
    char *token;    /* JSON text of the requester's progress token, NULL = none; ours is the id */
    mcp_done *done; /* NULL = forgotten */
    void *user;
    struct adapter_origin origin;
    bool attempt;     /* by mcp_link_attempt */
    bool sent;        /* handed to the transport */
    bool deferred;    /* an end that must not be told within is on its way, … */
    enum mcp_end end; /* this one … */
    char *text;       /* … with these words, unless another comes before */
    bool cancelled;
    bool renew;                      /* progress starts the time-out anew */
    int64_t timeout_ms, deadline_ms; /* loop's time; 0 = none */
    void *transport_data;            /* the transport's, from send to drop */
    struct mcp_pending *prev, *next; /* of the connection, in the order of sending */
};

/* ---- transports ---- */

/* One message for the wire. Everything is borrowed for the duration of the call. */
struct mcp_outgoing {
    enum rpc_kind kind;
    const char *method;          /* requests and notifications */
    const struct json *params;   /* as sent, _meta included; NULL = none */
    struct str text;             /* the whole message, no line end */
    enum mcp_era era;            /* that it is written in */
    const char *version;         /* for the header MCP-Protocol-Version; NULL = none (initialize) */
    struct mcp_pending *pending; /* requests: itself; answers and notifications: what they are about, NULL = nothing */
};

struct mcp_transport_ops {
    /* Requests have streams of their own (HTTP): messages come with their pending, and in the modern era dropping a
     * request cancels it. Else notifications/cancelled does. */
    bool streams;
    /* Takes a message. false: nothing of it left, nor will (err). Answers, failures and losses are told later through
     * the functions below, never from within send, drop, established or close. */
    bool (*send)(struct mcp_transport *transport, const struct mcp_outgoing *message, struct err *err);
    /* The request has ended one way or another: nothing is to be told about it any more; its transport_data goes.
     * Called exactly once for each request that send took. cancelled: the answer is not wanted any more (closes the
     * stream). */
    void (*drop)(struct mcp_transport *transport, struct mcp_pending *pending, bool cancelled);
    /* The handshake is over (connection->era, ->version hold): HTTP, legacy: the GET stream may be opened. */
    void (*established)(struct mcp_transport *transport);
    /* Lets go of the connection at once, ends in its own time and frees itself. Every request was dropped before. */
    void (*close)(struct mcp_transport *transport);
};

/* First member of a transport's own struct. A transport holds the hub (mcp_hub_hold) from open until it is freed. */
struct mcp_transport {
    const struct mcp_transport_ops *ops;
    struct mcp_connection *connection; /* NULL from close on */
};

/* NULL: it could not be begun (err). Not called back before open returned. */
struct mcp_transport *mcp_transport_open(struct mcp_connection *connection, struct err *err); /* one of the next two */
struct mcp_transport *mcp_stdio_open(struct mcp_connection *connection, struct err *err);
struct mcp_transport *mcp_http_open(struct mcp_connection *connection, struct err *err);

/* What transports tell. After each of them the connection may have closed the transport (transport->connection NULL):
 * look before going on. */
/* One JSON-RPC text (or what should be one). pending: the request on whose stream it came, NULL = the connection's.
 * http_status: of the answer that it came in, 0 = none. */
void mcp_connection_message(struct mcp_connection *connection, struct mcp_pending *pending, struct str text,
                            int http_status);
/* A message over a limit was skipped. begin: its first bytes. */
void mcp_connection_oversize(struct mcp_connection *connection, struct mcp_pending *pending, struct str begin);
/* The request's stream ended without its answer. end: MCP_LOST or MCP_UNREADABLE. sent: bytes of it may have left. The
 * pending is dropped within. text: for people, no secrets. */
void mcp_connection_pending_lost(struct mcp_connection *connection, struct mcp_pending *pending, enum mcp_end end,
                                 bool sent, int http_status, const char *text);
/* The whole connection is of no use any more (process exited, session ended): every request is told MCP_LOST, and the
 * transport is closed within. */
void mcp_connection_lost(struct mcp_connection *connection, const char *why);

/* ---- connections (mcp_connection.c) ---- */

/*   DISCOVER ──► ESTABLISHED ──► LOST      the modern era is probed first where it may be either;
 *      │  ▲          ▲                     what the server cannot do, and what kills it, leads to the other
 *      ▼  │          │
 *   INITIALIZE ──────┘ */
enum mcp_stage { MCP_STAGE_DISCOVER, MCP_STAGE_INITIALIZE, MCP_STAGE_ESTABLISHED, MCP_STAGE_LOST };

struct mcp_connection {
    struct mcp_hub *hub;
    struct mcp_server *server;
    struct mcp_transport *transport; /* NULL once lost */
    bool shared;
    enum mcp_stage stage;
    enum mcp_era era; /* from established on; before: of the handshake's present step */
    char version[16]; /* likewise */
    /* handshake */
    bool may_modern, may_legacy;      /* not tried yet and allowed */
    bool discover_again;              /* server/discover was sent a second time */
    bool probed;                      /* server/discover was sent to this process */
    char offer[16];                   /* legacy revision to offer */
    char *capabilities, *client_info; /* legacy: JSON texts of the client that it is for; NULL = onced's own */
    struct mcp_pending *probe, *initialize;
    int64_t start_deadline_ms, probe_deadline_ms; /* loop's time, 0 = none */
    uv_timer_t timer;                             /* these and time-outs of requests */
    int64_t due_ms;                               /* when it fires, 0 = not set */
    /* what the server said */
    struct arena facts;
    const struct json *server_capabilities, *server_info;
    const char *instructions;
    /* under way */
    uint64_t last_id;
    struct mcp_pending *first, *last; /* sent or waiting to be, in the order of their ids */
    size_t pending_count;
    struct map by_id; /* id → pending */
    struct mcp_question *questions;
    size_t question_count;
    struct mcp_link *links;
    struct mcp_link *cursor;           /* next of those that are being told something */
    bool draining;                     /* nobody is behind it any more: it ends with its last request */
    char *why;                         /* once lost */
    struct mcp_connection *next, **at; /* of the server */
};

struct mcp_connect {
    bool shared;
    enum mcp_era wanted;                  /* MCP_ERA_ANY = find out; the provider's revision goes before */
    const char *version;                  /* legacy revision to offer; NULL = newest */
    struct str capabilities, client_info; /* JSON objects, absent = onced's own */
};
/* NULL: it could not be begun. What becomes of it is told to server (shared) and links. */
struct mcp_connection *mcp_connection_open(struct mcp_server *server, const struct mcp_connect *connect,
                                           struct err *err);
/* Ends it: requests are told MCP_LOST, questions withdrawn, links lost (why), the server told when it is the shared
 * one. Memory goes in a later turn of the loop. Does nothing when it is lost already. */
void mcp_connection_close(struct mcp_connection *connection, const char *why);
/* Closes it when it drains and nothing is under way any more. */
void mcp_connection_settle(struct mcp_connection *connection);

/* mcp_pending.c. connection NULL or lost, or over a limit: the request is told MCP_LOST in a later turn. link may be
 * NULL. */
struct mcp_pending *mcp_connection_request(struct mcp_connection *connection, struct mcp_link *link,
                                           struct mcp_hub *hub, const struct mcp_request_options *options,
                                           const struct adapter_origin *origin);
/* At once, whatever the stage: the handshake's own. */
struct mcp_pending *mcp_connection_request_now(struct mcp_connection *connection,
                                               const struct mcp_request_options *options);
void mcp_pending_send(struct mcp_pending *pending); /* one that waited for the handshake */
/* Tells the server that nobody waits for the answer any more (once, if the request was sent). */
void mcp_pending_abandon(struct mcp_pending *pending, const char *reason);
/* Tells the requester (unless forgotten) and frees. */
void mcp_pending_end(struct mcp_pending *pending, const struct mcp_outcome *outcome);
void mcp_pending_end_as(struct mcp_pending *pending, enum mcp_end end, const char *text); /* … without an answer */
struct mcp_pending *mcp_connection_find(const struct mcp_connection *connection, struct str id);
/* A notification or an answer; dropped when the transport does not take it. related may be NULL. */
void mcp_connection_notify(struct mcp_connection *connection, const char *method, struct str params,
                           struct mcp_pending *related);
void mcp_connection_answer(struct mcp_connection *connection, struct str id, struct mcp_pending *related,
                           struct str result, int64_t code, struct str message);

/* The timer looks at all deadlines at this one at the latest (loop's time; 0 = none). */
void mcp_connection_wake(struct mcp_connection *connection, int64_t deadline_ms);

/* mcp_handshake.c. begin plans and sends the first request. reopen: the process has ended; whether another was started,
 * because the probe may have been what ended it. */
void mcp_handshake_begin(struct mcp_connection *connection, const struct mcp_connect *connect);
bool mcp_handshake_reopen(struct mcp_connection *connection);
void mcp_handshake_probe_overdue(struct mcp_connection *connection);

/* mcp_route.c: a notification or request of the server goes to whom it concerns. */
void mcp_route_notification(struct mcp_connection *connection, struct mcp_pending *pending, struct arena *arena,
                            struct rpc_message *message);
void mcp_route_request(struct mcp_connection *connection, struct mcp_pending *pending,
                       const struct rpc_message *message);
void mcp_question_withdraw(struct mcp_question *question);

/* mcp_server.c: about the shared connection. */
void mcp_server_established(struct mcp_server *server);
void mcp_server_lost(struct mcp_server *server, const char *why);
/* mcp_server.c: a connection or link is gone; a retired server goes with the last. */
void mcp_server_settle(struct mcp_server *server);
/* Starts at once. provider: a reference is taken. */
struct mcp_server *mcp_server_new(struct mcp_hub *hub, const char *name, struct mcp_provider *provider);
/* Takes no new requests any more and goes once the last has ended, after MCP_DRAIN_MS in any case. */
void mcp_server_retire(struct mcp_server *server);
/* Ends all connections now. */
void mcp_server_stop(struct mcp_server *server, const char *why);

/* ---- links (mcp_link.c) ---- */

/* The server's own link on its shared connection. */
struct mcp_link *mcp_link_own(struct mcp_server *server);
/* Takes it off its connection, which is lost or about to be. */
void mcp_link_detach(struct mcp_link *link);

struct mcp_link {
    struct mcp_hub *hub;
    struct mcp_connection *connection; /* NULL once lost or closed */
    struct mcp_server *server;         /* NULL once the hub was closed */
    uint64_t session;
    struct arena arena;
    const struct json *capabilities;     /* of the client; never NULL */
    const struct json *client_info;      /* never NULL */
    const struct mcp_listener *listener; /* NULL = none (the server's own link) */
    void *user;
    uint64_t used; /* id of its last request on the connection: the most recently active one has the highest */
    size_t pending_count;
    struct mcp_link *next, **at;               /* of the connection */
    struct mcp_link *server_next, **server_at; /* of the server */
};

struct mcp_question {
    struct mcp_connection *connection;
    struct mcp_pending *pending; /* it came about, NULL = nothing, or that has ended */
    struct mcp_link *link;       /* who was asked; NULL = the hub's listener, and the attempt has no link any more */
    bool by_hub;                 /* the hub's listener was asked */
    char *id;                    /* JSON text */
    struct mcp_question *next, **at;
    /* An attempt's (mcp_call.c: modern servers ask with a result): mcp_answer hands the answer over by this, and
     * nothing else of it is used. NULL: a request of the server. */
    void (*answered)(struct mcp_question *question, struct str result, int64_t code, struct str message);
};

#endif
