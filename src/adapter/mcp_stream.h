/* One HTTP exchange with an MCP server: a request out, a JSON body or a stream of events in. Below mcp_http.c, which
 * knows what they are for. */
#ifndef ADAPTER_MCP_STREAM_H
#define ADAPTER_MCP_STREAM_H

#include "adapter/curl_loop.h"
#include "adapter/mcp_parts.h"
#include "base/sse.h"

/* All streams of one hub. */
struct mcp_http_client {
    struct curl_loop loop;
    struct mcp_hub *hub;
    struct mcp_stream *idle;
    unsigned idle_count;
};

enum err_code mcp_http_client_new(struct mcp_hub *hub, struct mcp_http_client **out, struct err *err);

enum mcp_form { MCP_FORM_OTHER, MCP_FORM_JSON, MCP_FORM_EVENTS };

/* How a stream ended. Everything is valid during the callback. */
struct mcp_stream_end {
    bool sent;     /* bytes of the request may have left */
    bool complete; /* the answer is whole */
    bool over;     /* it was over the limit */
    int status;    /* 0 = no status line */
    enum mcp_form form;
    struct str body;     /* JSON and other; events were told */
    const char *session; /* header Mcp-Session-Id, NULL = none */
    const char *text;    /* when it is not complete: why */
};

struct mcp_stream_ops {
    /* The answer's head is there; only when want_head was set. */
    void (*head)(struct mcp_stream *stream);
    /* One event of type "message" with data. status: of the answer that it came in. */
    void (*message)(struct mcp_stream *stream, struct str text, int status);
    /* Nothing more is told after it. */
    void (*ended)(struct mcp_stream *stream, const struct mcp_stream_end *end);
};

struct mcp_stream {
    struct curl_transfer transfer; /* first */
    struct mcp_http_client *client;
    struct mcp_provider *provider; /* a reference: what the options are set for */
    CURLU *url;                    /* of provider, read; NULL: libcurl reads it */
    const struct mcp_stream_ops *ops;
    void *owner; /* NULL once stopped */
    bool inside; /* a callback of ops runs */
    bool want_head;
    /* the request */
    struct arena arena;
    struct buf request;
    struct curl_slist *headers;
    char method[8];
    int64_t timeout_ms; /* 0 = none */
    /* the answer */
    struct buf body; /* of events: what was not read yet */
    size_t head_bytes;
    bool head_over, over;
    enum mcp_form form;
    bool has_form;
    const char *content_type, *session;
    struct sse_reader reader;
    /* events */
    struct buf last_id;
    bool has_id, has_event;
    int64_t retry_ms;        /* -1 = not stated */
    struct mcp_stream *next; /* idle */
};

/* One for a request to provider's server, with its fixed headers. Ends by itself (ended) or by mcp_stream_stop, and is
 * the client's again then. */
struct mcp_stream *mcp_stream_take(struct mcp_http_client *client, struct mcp_provider *provider,
                                   const struct mcp_stream_ops *ops, void *owner);
/* name and value are copied; a value with line ends is the caller's bug. */
void mcp_stream_header(struct mcp_stream *stream, const char *name, struct str value);
/* POST with this body (copied), GET or DELETE (absent). timeout_ms 0 = none. */
void mcp_stream_prepare(struct mcp_stream *stream, const char *method, struct str body, int64_t timeout_ms);
/* Puts it on the wire: ended is called later, also when that cannot be done. */
void mcp_stream_start(struct mcp_stream *stream);
/* At once, without a word; also from within its callbacks. */
void mcp_stream_stop(struct mcp_stream *stream);

#endif
