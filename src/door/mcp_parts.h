/* What the files of the MCP door share. Not for others. */
#ifndef DOOR_MCP_PARTS_H
#define DOOR_MCP_PARTS_H

#include "base/digest.h"
#include "base/map.h"
#include "door/caller.h"
#include "door/mcp.h"
#include "door/mcp_seen.h"
#include "door/shape.h"

/* Error codes of MCP (2026-07-28) beyond those of JSON-RPC. */
#define MCP_HEADER_MISMATCH     (-32020)
#define MCP_MISSING_CAPABILITY  (-32021)
#define MCP_UNSUPPORTED_VERSION (-32022)
#define MCP_RESOURCE_NOT_FOUND  (-32002) /* legacy */
#define MCP_BUSY                429      /* ours: a limit of this session or door is reached, nothing was done */

#define MCP_META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define MCP_META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define MCP_META_CLIENT       "io.modelcontextprotocol/clientInfo"
#define MCP_META_LOG_LEVEL    "io.modelcontextprotocol/logLevel"
#define MCP_META_SERVER       "io.modelcontextprotocol/serverInfo"
#define MCP_META_SUBSCRIPTION "io.modelcontextprotocol/subscriptionId"
#define MCP_META_RELATED_TASK "io.modelcontextprotocol/related-task"
#define MCP_EXTENSION_TASKS   "io.modelcontextprotocol/tasks"
#define MCP_META_KEY          "dev.onced/idempotency-key"
#define MCP_META_RUN          "dev.onced/run-id"
#define MCP_META_STEP         "dev.onced/step-id"
#define MCP_META_SESSION      "dev.onced/session-id"
#define MCP_META_CALL         "dev.onced/call-id"
#define MCP_META_WORKFLOW     "dev.onced/workflow"
#define MCP_META_REPEAT       "dev.onced/repeat-of"
#define MCP_META_DISTINCT     "dev.onced/distinct-from"
#define MCP_META_OVERRIDE     "dev.onced/override-reason"
#define MCP_META_RESULT       "dev.onced/result" /* onced's result shape beside a server's own result */

#define MCP_SESSION_ID_SIZE 33 /* 32 hexadecimal characters and the NUL */

/* Of a message from a client: bytes, nesting, values. */
extern const struct json_limits mcp_door_limits;

struct mcp_session;
struct mcp_request;

/* ---- sinks: where messages to a client go (the transports implement them) ---- */

/* Where the messages about one request go. Belongs to the transport; lives until it was told the final message or to
 * drop, or said mcp_request_gone(). One that was handed over with anything but a request (MCP_RECEIVED_NOTICE) is the
 * transport's again at once. */
struct mcp_sink {
    const struct mcp_sink_ops *ops;
    /* mcp_rpc.c's, set by mcp_receive */
    struct mcp_request *request; /* NULL = none waits */
    struct mcp_sink *older;      /* the same request of a legacy session came before on this one */
};
struct mcp_sink_ops {
    /* One message without line end. final: the answer to the request, nothing follows, the sink is not to be touched
     * afterwards. http_status: what HTTP answers when nothing else was sent before (200, 400, 404, …). Within a message
     * that is not final no request and no session is ended: a transport that must (its client is gone) does so from the
     * loop's next turn. Within a final one the session may be ended. */
    void (*message)(struct mcp_sink *sink, struct str message, bool final, int http_status);
    /* The client cancelled: no answer will come. Like a final message otherwise. */
    void (*drop)(struct mcp_sink *sink);
    /* The final message, which follows at once, tells the outcome of op: once its bytes were written in full, the
     * transport tells the engine (engine_delivered). What it needs of op is copied. NULL: this transport cannot know.
     */
    void (*delivers)(struct mcp_sink *sink, const struct operation *op);
};

/* Where messages go that belong to no request of a legacy session: its GET stream over HTTP, the stream itself on
 * stdio. Returns false when nobody can be reached now. No request and no session is ended within. */
typedef bool mcp_send_fn(struct mcp_session *session, void *user, struct str message);

/* ---- sessions ---- */

/* One client. Legacy: from initialize on; modern over HTTP: one per request, made and ended by the transport; stdio:
 * one per stream, whatever era its messages are of. The transport sets stdio or ephemeral right after mcp_session_new;
 * a session that is neither counts against sessions_max once it is initialized, and a transport ends one whose
 * initialize failed (initialized is false when its answer comes). */
struct mcp_session {
    struct mcp_door *door;
    struct mcp_session *next, **at; /* of the door */
    uint64_t number;                /* adapter_origin.session */
    char number_text[24];           /* key of mcp_door.by_number */
    const char *id_key;             /* key of mcp_door.by_id */
    char id[MCP_SESSION_ID_SIZE];   /* of MCP-Session-Id; stdio and ephemeral sessions do not use theirs */
    bool stdio, ephemeral;
    bool ids_reused;    /* the client uses ids again for other requests: none of its answers is kept by id */
    bool initialized;   /* legacy: initialize was accepted */
    char version[16];   /* legacy: negotiated revision; "" before */
    struct arena arena; /* texts below */
    const char *tenant, *principal;
    enum role role;
    const struct scope *scope;                     /* of the token that opened it; NULL = not limited */
    const struct json *client_info, *capabilities; /* legacy: of initialize; NULL before */
    int log_level;     /* legacy: logging/setLevel; index into mcp_log_levels, -1 = not set */
    int64_t used_ms;   /* last request */
    mcp_send_fn *send; /* NULL = no way */
    void *send_user;
    /* The transport's: mcp_session_end calls it last, before memory is released; NULL = nobody wants to know. */
    void (*ended)(struct mcp_session *session, void *send_user);
    struct mcp_request *requests; /* being worked on */
    size_t request_count;
    struct map by_id;              /* JSON text of the id → mcp_request */
    struct mcp_seen *seen;         /* mcp_seen.c: legacy: ids that came, with recent answers */
    bool counted, ending;          /* in mcp_door.session_count; mcp_session_end is at work */
    struct mcp_forward *forward;   /* mcp_forward.c: links, subscriptions, questions */
    struct mcp_calls *calls;       /* mcp_call.c: what the session called last, per tool */
    struct mcp_outgoing *outgoing; /* mcp_ask.c: our requests to the client that wait for its answer */
};

/* mcp_session.c. New sessions belong to the door; texts are copied. NULL: the door is closing. (More legacy sessions
 * than sessions_max: initialize ends the idlest one, or is refused with MCP_BUSY and 503 when none is idle.) */
struct mcp_session *mcp_session_new(struct mcp_door *door, const char *tenant, const char *principal, enum role role);
/* Limits it to what its token covers; copied. Right after mcp_session_new. */
void mcp_session_limit(struct mcp_session *session, const struct scope *scope);
struct mcp_session *mcp_session_find(struct mcp_door *door, const char *id); /* by session id */
struct mcp_session *mcp_session_by_number(struct mcp_door *door, uint64_t number);
void mcp_session_set_sender(struct mcp_session *session, mcp_send_fn *send, void *user);
/* Ends it: requests that wait are dropped (their operations go on), links closed, outgoing requests forgotten. Not from
 * within a request's handler or callbacks, except after its final message. */
void mcp_session_end(struct mcp_session *session);

/* ---- requests ---- */

/* Facts of the transport that come with a message. */
struct mcp_facts {
    bool http;
    struct str idempotency_key, run_id, step_id, traceparent; /* headers, absent = none */
    /* modern over HTTP: checked against the body by mcp_http.c before the message is handed over */
};

/* One request of a client. Made by mcp_receive; ended by mcp_reply*, by mcp_request_gone of its last sink, by
 * notifications/cancelled and with its session. Texts and trees lie in its arena, or outlive it. */
struct mcp_request {
    struct mcp_session *session;
    struct mcp_request *next, **at;
    struct mcp_sink *sink;
    struct arena arena; /* everything about it */
    struct rpc_message message;
    struct mcp_facts facts;
    enum mcp_era era;
    const char *version;                          /* protocol revision in force for it */
    const struct json *meta;                      /* params._meta, NULL = none */
    const struct json *capabilities;              /* of the client for this request; never NULL, an object */
    struct str progress_token;                    /* JSON text, absent = none */
    int log_level;                                /* modern: of _meta; legacy: the session's; -1 = none wanted */
    uint64_t number;                              /* adapter_origin.call; unique in the process */
    void *user;                                   /* of who works on it … */
    void (*release)(struct mcp_request *request); /* … and lets go of it: called once when the request ends */
    void (*cancel)(struct mcp_request *request);  /* the client cancelled (NULL: only dropped) */
    /* The client cannot be reached and may come back for the answer, or is back (NULL: makes no difference). */
    void (*away)(struct mcp_request *request, bool away);
    bool cancelled;
    unsigned progress_told; /* progress notifications so far, whoever told them */
    /* mcp_rpc.c's */
    const char *key;         /* of session->by_id; NULL = not in it */
    struct digest digest;    /* legacy: of method and params */
    bool listed, remembered; /* in session->requests; legacy: its answer is kept */
    struct mcp_delivery delivery;
};

/* One message from a client. sink: where the answer goes if it is a request; NULL only for what certainly is none.
 * REQUEST: the sink was told the final message already, or will be. NOTICE: a notification or an answer to a request of
 * ours: nothing will be told. FAULT: no message, or one that this session does not take: the sink was told, finally.
 * Afterwards the session may be gone if its sinks end it. */
enum mcp_received { MCP_RECEIVED_REQUEST, MCP_RECEIVED_NOTICE, MCP_RECEIVED_FAULT };
enum mcp_received mcp_receive(struct mcp_session *session, struct mcp_sink *sink, struct str text,
                              const struct mcp_facts *facts);
/* The same for a message that the transport has read already (into arena, which is taken over and left empty). */
enum mcp_received mcp_receive_message(struct mcp_session *session, struct mcp_sink *sink, struct arena *arena,
                                      const struct rpc_message *message, const struct mcp_facts *facts);
/* The transport lost the client of this sink, which is not touched any more. cancels (modern over HTTP): that is a
 * cancellation; else (legacy) the request ends when no other sink waits for it, and nobody is told. */
void mcp_request_gone(struct mcp_sink *sink, bool cancels);
/* Ends a request without an answer: its sinks are told to drop. For mcp_session_end. */
void mcp_request_drop(struct mcp_request *request);
/* Whether a modern request's _meta has what every request must have. If not, *missing gets the data member of the error
 * -32602: {"envelope":{"missing":[…]}}. Transports that check headers ask this first: it outranks them. */
bool mcp_envelope_complete(const struct rpc_message *message, struct buf *missing);
/* Whether the message says itself that it is of the modern era (_meta names a protocol version, or the method exists
 * there only). */
bool mcp_is_modern(const struct rpc_message *message);

/* Answers; the request is gone afterwards, and its session may be. result and data are JSON texts, which may lie in the
 * request's arena; so may the arguments of format. */
void mcp_reply(struct mcp_request *request, struct str result);
/* The HTTP status follows from era and code: modern -32601 404, -32020 … -32022 400; all else 200. */
void mcp_reply_error(struct mcp_request *request, int64_t code, struct str data, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same with a status of its own (malformed or refused before any work). */
void mcp_reply_error_status(struct mcp_request *request, int http_status, int64_t code, struct str data,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Right before mcp_reply, when the answer tells a terminal operation to its own principal: see mcp_sink_ops.delivers.
 */
void mcp_request_set_delivery(struct mcp_request *request, const struct operation *op);
/* Notification on the request's stream (of several: the newest), before its answer. params: a JSON object, or absent.
 */
void mcp_notify(struct mcp_request *request, const char *method, struct str params);
/* Progress in the client's token; nothing when it wants none. progress and total are JSON numbers, message is plain
 * text; total and message may be absent. */
void mcp_progress(struct mcp_request *request, struct str progress, struct str total, struct str message);
/* logging: to the request's client when it asked for this level. level is one of mcp_log_levels. */
extern const char *const mcp_log_levels[8]; /* debug … emergency */
int mcp_log_level(struct str name);         /* -1 = no such level */
void mcp_log(struct mcp_request *request, int level, const char *logger, struct str data);

/* A request of ours to a legacy client (sampling, elicitation, roots); on the stream of `request` when given. done is
 * called once, never from within: message NULL when the client is gone. *id (for mcp_ask_withdraw) is valid until then.
 * false: the client cannot be reached, or too many of ours wait; done is not called. Modern clients are asked with
 * input_required instead. */
#define MCP_ASKS_MAX 256 /* per session */
typedef void mcp_asked_fn(void *user, const struct rpc_message *message);
bool mcp_ask(struct mcp_session *session, struct mcp_request *request, const char *method, struct str params,
             mcp_asked_fn *done, void *user, struct str *id);
/* Forgets it (done is not called) and tells the client that its answer is not needed. */
void mcp_ask_withdraw(struct mcp_session *session, struct str id);
/* For mcp_rpc.c: false, when it answers nothing of ours. And for mcp_session_end. */
bool mcp_ask_answered(struct mcp_session *session, const struct rpc_message *message);
void mcp_asks_end(struct mcp_session *session);

/* Whether the client said that it can: a path of member names, "elicitation.url"; names that hold dots themselves are
 * found too ("extensions.io.modelcontextprotocol/tasks"). "elicitation.form" is what an elicitation without modes
 * means.
 */
bool mcp_client_can(const struct json *capabilities, const char *path);

/* ---- methods: mcp_rpc.c has one table ---- */

void mcp_initialize(struct mcp_request *request); /* mcp_session.c */
void mcp_discover(struct mcp_request *request);   /* mcp_session.c */
void mcp_tools_list(struct mcp_request *request); /* mcp_list.c */
void mcp_tools_call(struct mcp_request *request); /* mcp_call.c */
void mcp_forwarded(struct mcp_request *request);  /* mcp_forward.c: resources, prompts, completion, subscriptions */
void mcp_listen(struct mcp_request *request);     /* mcp_forward.c: subscriptions/listen */
void mcp_set_level(struct mcp_request *request);  /* mcp_forward.c too: also told to the servers */
void mcp_tasks(struct mcp_request *request);      /* mcp_task.c: tasks/… */
/* notifications of the client but cancelled and initialized (roots/list_changed, progress on what we asked, …) */
void mcp_forward_notice(struct mcp_session *session, const struct rpc_message *message);

/* Tells every client that wants to know (legacy: sessions; modern: listen streams). kind: "tools", "prompts",
 * "resources". */
void mcp_tell_list_changed(struct mcp_door *door, const char *kind);
/* Outside of any request. params may be absent. false: not initialized, or nobody can be reached now. */
bool mcp_legacy_notify(struct mcp_session *session, const char *method, struct str params);

/* The capabilities that onced has with the servers behind it, as a JSON object. */
void mcp_write_capabilities(struct mcp_door *door, enum mcp_era era, struct json_out *out);
/* {"name", "title", "version"} of onced, for serverInfo and _meta. */
void mcp_write_server_info(struct json_out *out);

/* ---- mcp_list.c: what is published of a tool ---- */

/* Whether an argument of this name ("repeat_of", "distinct_from") is onced's and not the tool's: writes only, and only
 * if their own schema has none of that name. It is taken out of each call, and published where that is safe. */
bool mcp_adds_argument(const struct tool *tool, const char *name);
/* One member of tools/list for a protocol revision ("2025-11-25", …). arena: for what must be worked out. */
void mcp_write_tool(struct arena *arena, const struct mcp_door *door, const struct tool *tool, const char *version,
                    struct json_out *out);
/* JSON Schema of structuredContent in onced's own shape (settings.output_schema). */
extern const char mcp_result_schema[];
#define MCP_LIST_PAGE 500 /* tools per page of tools/list */

/* ---- mcp_identity.c, pure: design 2.2 from _meta, headers and arguments ---- */

struct mcp_fault {
    int64_t code;
    const char *text;    /* in the arena */
    const char *pointer; /* where in the arguments it lies: the model can mend it, so that it gets an answer; or NULL */
};
/* Fills *call (not tenant and principal). arguments are a copy without repeat_of, distinct_from and the hidden key
 * argument. false: *fault. */
bool mcp_identity_read(struct arena *arena, const struct rpc_message *message, const struct mcp_facts *facts,
                       const struct tool *tool, struct call *call, struct mcp_fault *fault);
/* The arguments that onced adds to the published schemas of writes and takes out again (design 2.8, 2.9). */
#define MCP_ARGUMENT_REPEAT   "repeat_of"
#define MCP_ARGUMENT_DISTINCT "distinct_from"
#define MCP_ARGUMENT_OVERRIDE "override_reason"

/* ---- mcp_result.c, pure: what tools/call answers ---- */

/* How a reply is to be told, besides what it says. */
struct mcp_result_view {
    struct shape_view shape;
    enum mcp_era era;
    const char *tool;          /* as it was called: for replies that carry none */
    bool can_wait, can_status; /* onced_wait, onced_status: the text names them */
    bool inlined;              /* within another result: no resultType */
    const char *task;          /* legacy: the result of this task; NULL = none */
};
/* CallToolResult for a reply of the engine: content (text), structuredContent in onced's shape or, for a downstream
 * server's own result, its content with onced's shape in _meta. Not for replies that mcp_reply_is_error() names. */
void mcp_write_result(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view);
/* The text for the model alone. */
void mcp_write_result_text(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view);
/* Whether the result says that the tool failed: only what is proven and what the model can act on. */
bool mcp_result_is_error(const struct engine_reply *reply);
/* Replies that are JSON-RPC errors: onced did not accept the call. *fault gets code and text. */
bool mcp_reply_is_error(struct arena *arena, const struct engine_reply *reply, const char *tool,
                        struct mcp_fault *fault);
/* A call that did not run because of its arguments, as REPLY_REFUSED is told: fault.pointer says where. */
void mcp_write_refusal(struct buf *out, const struct mcp_fault *fault, const struct mcp_result_view *view);

/* ---- between files ---- */

/* Where a forwarded tool lives. */
struct mcp_forward_target {
    struct mcp_server *server;
    const char *remote_name; /* of the tool there */
};
/* mcp_forward.c: hands a tools/call of a forwarded tool to its server, on the session's link. */
void mcp_forward_tool(struct mcp_request *request, const struct tool *tool, const struct mcp_forward_target *target);
/* A later round of a call that waits for answers of its client (modern era: requestState is one of ours): its answers
 * are handed down and this request takes the place of the one that waits. mcp_tools_call asks first, also for protected
 * tools. false: nothing of ours, go on as usual (params.inputResponses may be there all the same). */
bool mcp_forward_resume(struct mcp_request *request);
/* Whether a server behind us offers it: a path into its capabilities, "resources", "resources.subscribe", "prompts",
 * "completions", "logging". */
bool mcp_forward_offers(struct mcp_door *door, const char *capability);
/* mcp_session_end and mcp_door_close tell these, before sessions, requests and the hub go. */
void mcp_forward_session_ended(struct mcp_session *session);
void mcp_forward_close(struct mcp_door *door);
/* Settings or servers changed: capabilities may be others. */
void mcp_forward_configured(struct mcp_door *door);
/* Listen streams that want it are told (mcp_tell_list_changed does; kind as there). */
void mcp_forward_list_changed(struct mcp_door *door, const char *kind);
/* Listen streams that named this task are told; params of notifications/tasks without _meta members of ours: a JSON
 * object, not empty. Only streams of this tenant and principal. */
void mcp_forward_task_changed(struct mcp_door *door, const char *tenant, const char *principal, struct str task_id,
                              struct str params);
/* mcp_rpc.c: the request that an attempt's origin names (mcp_door_attempt_listener is mcp_forward.c's). NULL = gone. */
struct mcp_request *mcp_request_by_number(struct mcp_door *door, uint64_t session, uint64_t call);

/* mcp_builtin.c: onced_status and the others. False: no such tool, or switched off. */
bool mcp_builtin_call(struct mcp_request *request, struct str name, const struct json *arguments);
/* Appends the descriptions of those that are there for the caller to an open JSON array. */
void mcp_builtin_list(struct mcp_request *request, struct json_out *out);
/* mcp_call.c: the operation that the session's last call of a tool led to, "" = none. tool NULL: of any tool. */
const char *mcp_last_operation(const struct mcp_session *session, const char *tool);
/* mcp_call.c: mcp_session_end tells it, after the session's requests have ended: frees session->calls. */
void mcp_calls_end(struct mcp_session *session);
/* mcp_task.c: mcp_session_end tells it. Nobody is told any more how the session's tasks end. */
void mcp_tasks_session_ended(struct mcp_session *session);
/* mcp_task.c: mcp_door_close tells it. */
void mcp_tasks_close(struct mcp_door *door);

/* mcp_task.c: whether calls of this tool may be answered as tasks (execution.taskSupport "optional"). */
bool mcp_task_possible(const struct mcp_door *door, const struct tool *tool);
/* Whether this call may be answered as a task, and the answer. */
bool mcp_task_wanted(const struct mcp_request *request, const struct tool *tool);
void mcp_task_created(struct mcp_request *request, const struct operation *op, const struct tool *tool);

struct mcp_door {
    uv_loop_t *loop;
    struct engine *engine;
    struct mcp_hub *hub;
    struct mcp_settings settings;
    struct mcp_session *sessions;
    size_t session_count; /* initialized ones over HTTP: those that sessions_max is about */
    struct map by_id;     /* session id → session */
    struct map by_number; /* session number as text → session */
    uv_timer_t *timer;    /* ends idle sessions */
    uint64_t next_number; /* of sessions and calls */
    bool closing;
    struct mcp_task_watch *tasks; /* mcp_task.c: whose end clients are told */
    size_t task_count;
    struct passing *passing; /* mcp_forward.c: what belongs to no session; NULL until needed */
};

/* ---- transport over HTTP: mcp_http.c, called by rest.c for the path /mcp ---- */
struct exchange;
void mcp_http_handle(struct exchange *exchange);

#endif
