/* One HTTP request and its answer, as the routes see it. Made and sent by http.c; a route reads the upper part, fills
 * `answer`, and calls exchange_send() exactly once: at once or later, from any callback on the loop's thread. Until
 * then the exchange stays valid. */
#ifndef DOOR_EXCHANGE_H
#define DOOR_EXCHANGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "door/caller.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct http_door;
struct route;
struct auth;
struct mcp_http;
struct MHD_Connection;
struct stream;

enum http_method { METHOD_GET, METHOD_HEAD, METHOD_POST, METHOD_DELETE, METHOD_OPTIONS, METHOD_OTHER };

/* The headers that anybody asks for. X(constant, lower-case name) */
#define HEADERS(X)                                                                                                     \
    X(HEADER_ACCEPT, "accept")                                                                                         \
    X(HEADER_AUTHORIZATION, "authorization")                                                                           \
    X(HEADER_CONTENT_LENGTH, "content-length")                                                                         \
    X(HEADER_CONTENT_TYPE, "content-type")                                                                             \
    X(HEADER_EXPECT, "expect")                                                                                         \
    X(HEADER_HOST, "host")                                                                                             \
    X(HEADER_IDEMPOTENCY_KEY, "idempotency-key")                                                                       \
    X(HEADER_LAST_EVENT_ID, "last-event-id")                                                                           \
    X(HEADER_MCP_METHOD, "mcp-method")                                                                                 \
    X(HEADER_MCP_NAME, "mcp-name")                                                                                     \
    X(HEADER_MCP_SESSION, "mcp-session-id")                                                                            \
    X(HEADER_MCP_VERSION, "mcp-protocol-version")                                                                      \
    X(HEADER_CALL_ID, "onced-call-id")                                                                                 \
    X(HEADER_PRINCIPAL, "onced-principal")                                                                             \
    X(HEADER_RUN_ID, "onced-run-id")                                                                                   \
    X(HEADER_SESSION_ID, "onced-session-id")                                                                           \
    X(HEADER_STEP_ID, "onced-step-id")                                                                                 \
    X(HEADER_TENANT, "onced-tenant")                                                                                   \
    X(HEADER_ORIGIN, "origin")                                                                                         \
    X(HEADER_PREFER, "prefer")                                                                                         \
    X(HEADER_TRACEPARENT, "traceparent")

enum header {
#define X(constant, name) constant,
    HEADERS(X)
#undef X
        HEADER_COUNT
};
const char *header_name(enum header header);

#define EXCHANGE_EXTRA_MAX 8 /* answer headers that only one route has */

/* One parameter of the query, decoded. */
struct query_pair {
    struct query_pair *next;
    struct str name, value;
};

#define EXCHANGE_PARAMS_MAX 2

struct exchange {
    struct http_door *door;
    struct engine *engine;
    struct arena arena; /* for this request; reset after the answer has gone */
    /* request */
    enum http_method method;
    const char *path;                 /* as sent, still escaped */
    struct str headers[HEADER_COUNT]; /* absent when not given; the first one when given more than once */
    uint32_t repeated;                /* bit per header that came more than once */
    struct query_pair *query;         /* in the order of the text */
    bool bad_query;                   /* a broken escape or too many parameters */
    struct buf body;
    bool too_large; /* the body was over the limit and is not complete */
    struct caller caller;
    const struct route *route;
    const char *params[EXCHANGE_PARAMS_MAX]; /* of the path, decoded */
    void *user;                              /* the route's own, while it waits */
    struct waiter *waiter;                   /* the route waits for the engine: given up when the caller leaves */
    /* answer */
    int status;
    struct buf answer;
    struct str fixed;                     /* instead of answer: a text that outlives the door */
    const char *content_type;             /* NULL: application/json */
    char operation_id[OPERATION_ID_SIZE]; /* Onced-Operation-Id; "" = none */
    bool location;                        /* Location: that operation */
    const char *allow;                    /* Allow, or NULL */
    bool replayed, challenge, close;      /* Idempotency-Replayed, WWW-Authenticate, Connection: close */
    bool bad_token;                       /* the challenge says that there was a token, and that it is no good */
    int retry_after_s;                    /* 0 = none */
    struct operation delivered; /* id, key source, state: told to the engine when the answer has been written */
    bool tell_delivered;
    struct {
        const char *name, *value;
    } extra[EXCHANGE_EXTRA_MAX];
    unsigned extra_count;
    void (*on_gone)(struct exchange *exchange);
    /* http.c's own */
    struct stream *stream; /* the answer is streamed */
    struct MHD_Connection *connection;
    struct peer *peer;
    struct exchange *next, **at; /* list of waiting ones, or of spare ones */
    struct watch *watch;
    int64_t since_ms; /* loop time */
    size_t discarded; /* bytes of the body that were thrown away */
    bool handled, in_handler, suspended, answered, gone;
};

/* Sends status and answer. The exchange is not to be touched afterwards. */
void exchange_send(struct exchange *exchange, int status);

/* ---- streamed answers (server-sent events) ---- */

/* Sends the head now: 200 with this content type, no caching. Pieces follow with exchange_stream_write; the exchange
 * stays valid until exchange_stream_end. gone is called (once, from the loop) when the client leaves or when more than
 * pending_max bytes would wait unsent (one piece alone may be larger); the exchange is to be ended by
 * exchange_stream_end all the same, at once or later. */
void exchange_stream(struct exchange *exchange, const char *content_type, size_t pending_max,
                     void (*gone)(struct exchange *exchange));
void exchange_stream_write(struct exchange *exchange, struct str bytes); /* copied */
void exchange_stream_end(struct exchange *exchange);                     /* not to be touched afterwards */
/* While a plain answer is not given yet: be told when the client leaves (once, from the loop, NULL withdraws). There is
 * nothing to answer then: the exchange is not to be touched after gone has returned. */
void exchange_on_gone(struct exchange *exchange, void (*gone)(struct exchange *exchange));

/* A request header by its lower-case name, also one that is not in the table above; absent when not given, joined by
 * ", " when given more than once. Valid until the answer. */
struct str exchange_header(struct exchange *exchange, const char *name);
/* An answer header; name and value live in the exchange's arena or outlive it. At most EXCHANGE_EXTRA_MAX. */
void exchange_add_header(struct exchange *exchange, const char *name, const char *value);

/* The route went to the ledger (+1) or is back (-1): the door does not close meanwhile. */
void exchange_hold(struct exchange *exchange, int by);

/* The connection is beyond the limit: all it gets is being told so. */
bool exchange_surplus(const struct exchange *exchange);

/* Decodes %XX. False for broken escapes and for %00, which no text of ours may hold. *out is NUL-terminated, in arena.
 */
bool exchange_unescape(struct arena *arena, struct str text, struct str *out);

/* Approval links (door/links.h). */
struct link_settings {
    const char *base; /* what comes before "/links/…", without a final slash; NULL: there are none */
    int64_t expires_ms;
};

/* What the door offers to routes. */
struct door_parts {
    struct auth *auth;    /* NULL: no tokens, everybody is admin */
    struct mcp_http *mcp; /* NULL: there is no /mcp */
    struct str openapi;   /* the generated document */
    size_t body_bytes_max;
    struct link_settings links;
    const struct notify *notify; /* NULL: nobody is told of anything */
    bool stopping;
    int64_t failures, failure_logged_ms; /* answers of 500 and more since the last line about them */
    /* readiness of the ledger as last asked */
    int64_t ledger_asked_ms; /* 0 = never */
    bool ledger_failed;
    char ledger_text[ERR_TEXT_MAX];
};
struct door_parts *exchange_parts(struct exchange *exchange);

static inline int64_t exchange_now_ms(struct exchange *exchange)
{
    struct env *env = engine_env(exchange->engine);
    return env->now_ms(env);
}

#endif
