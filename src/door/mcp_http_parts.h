/* What the files of MCP's HTTP transport share. Not for others.
 *
 *   POST ─► mcp_http.c: era, session, headers ─► channel ─► mcp_receive_message ─┐
 *   GET  ─► mcp_http.c: session ─► channel                                       │
 *                                    ▲ mcp_channel.c: JSON or event stream ◄─────┘ sink
 */
#ifndef DOOR_MCP_HTTP_PARTS_H
#define DOOR_MCP_HTTP_PARTS_H

#include "door/exchange.h"
#include "door/mcp_http.h"
#include "door/mcp_parts.h"

#define CHANNEL_OPEN_MS      750 /* without an answer for so long: a stream is opened (looked at once a second) */
#define CHANNEL_KEEPALIVE_MS 15000
#define CHANNEL_RETRY_MS     1000   /* what clients are told to wait before they come back */
#define CHANNEL_RESUME_MS    300000 /* a client that left a call's stream may come back for so long … */
#define CHANNEL_IDLE_MS      30000  /* … and for so long to the stream of its session */
#define CHANNEL_KEPT_MS      600000 /* an answer that nobody took is kept */
#define CHANNEL_WRITTEN_MS   60000  /* an answer that was written is kept, in case that it did not arrive */
#define CHANNEL_LISTEN_MAX   4      /* streams of messages of one session; a further one replaces the oldest */
#define CHANNEL_ENDED_MAX    64     /* answers kept per session; together at most stream_bytes_max */

/* One event that can be sent again. */
struct kept {
    struct kept *next;
    uint64_t number;
    size_t n;
    char bytes[]; /* the event as it goes out */
};

/* What this transport knows of a legacy session. */
struct mcp_client {
    struct mcp_http *http;
    struct mcp_client *next, **at;
    struct mcp_session *session;
    struct channel *channels; /* newest first */
    uint64_t next_number;     /* of channels */
};

enum channel_kind {
    CHANNEL_INITIALIZE, /* the session is made by it */
    CHANNEL_LEGACY,     /* one request of a legacy session */
    CHANNEL_MODERN,     /* one request that is its own session */
    CHANNEL_LISTEN      /* messages of a legacy session that belong to no request */
};

/* What the client takes, as its Accept header says. */
struct accepts {
    bool json, stream;
};

/* The way back to a client for one request, or for a session's own messages. */
struct channel {
    struct mcp_sink sink; /* first */
    enum channel_kind kind;
    struct mcp_http *http;
    struct channel *next, **at;            /* of http: waiting, open or parked */
    struct channel *sibling, **sibling_at; /* of client */
    struct mcp_client *client;             /* legacy */
    struct mcp_session *session;           /* MODERN, INITIALIZE: ends with the channel */
    struct exchange *exchange;             /* NULL: nobody is connected */
    struct accepts accepts;
    bool streaming;
    bool ended;       /* the answer is in; kept for a client that comes back */
    int64_t since_ms; /* loop time: of the list that it is in; of the last byte when open */
    uint64_t number, next_event;
    uint64_t lost_before; /* events with a lower number are not kept any more */
    struct kept *kept, **kept_end;
    size_t kept_bytes;
    struct {
        char id[OPERATION_ID_SIZE]; /* "" = none */
        enum key_source key_source;
        enum state state;
    } delivers;
};

struct header_plan;

struct mcp_http {
    struct mcp_door *door;
    struct channel *waiting, **waiting_end; /* nothing sent yet, oldest first */
    struct channel *open;                   /* streams with a client */
    struct channel *parked;                 /* streams without a client, and ended ones */
    struct mcp_client *clients;
    struct buf scratch;
    /* mcp_http_headers.c: which arguments have a header, for the tools of this registry */
    struct registry *registry;
    struct map plans;
};

static inline int64_t mcp_http_now_ms(const struct mcp_http *http)
{
    return (int64_t)uv_now(http->door->loop);
}

/* ---- mcp_channel.c ---- */

/* Waits for the first message. Frees itself after the final one, or when nobody can take it any more. */
struct channel *channel_new(struct mcp_http *http, enum channel_kind kind, struct exchange *exchange,
                            const struct accepts *accepts);
void channel_own_session(struct channel *channel, struct mcp_session *session); /* MODERN, INITIALIZE */
void channel_join(struct channel *channel, struct mcp_client *client);          /* LEGACY */
/* The stream of a session's messages, at once. */
void channel_listen(struct mcp_client *client, struct exchange *exchange);
/* Goes on with the stream that event belongs to. NULL, or why not. */
const char *channel_resume(struct mcp_client *client, struct exchange *exchange, struct str event);
void channel_forget(struct channel *channel); /* one without a client */
void channels_tick(struct mcp_http *http);

struct mcp_client *mcp_client_new(struct mcp_http *http, struct mcp_session *session);
struct mcp_client *mcp_client_of(struct mcp_session *session); /* NULL: not a session of this transport */
void mcp_client_free(struct mcp_client *client);               /* its session goes on without this transport */

/* ---- mcp_http_headers.c: the headers of modern requests ---- */

struct header_fault {
    int64_t code;
    const char *text;
    struct str data; /* absent = none */
};
/* In the order of precedence that clients expect. Texts of the fault live in the exchange's arena. */
bool mcp_headers_check(struct mcp_http *http, struct exchange *exchange, const struct rpc_message *message,
                       struct header_fault *fault);
void mcp_headers_forget(struct mcp_http *http);
/* A header's value as it is meant: outer blanks cut, "=?base64?…?=" decoded. false: not decodable, or characters that
 * no header may have. */
bool mcp_header_decode(struct arena *arena, struct str value, struct str *out);

#endif
