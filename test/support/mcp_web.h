/* A small HTTP server for tests of the MCP client: a thread per connection, a handler per test, a record of what came.
 */
#ifndef SUPPORT_MCP_WEB_H
#define SUPPORT_MCP_WEB_H

#include "base/json.h"

#include <pthread.h>
#include <stdatomic.h>

#define MCP_WEB_REQUESTS_MAX 256

struct mcp_web_request {
    struct mcp_web *web;
    int fd;          /* of its connection */
    unsigned number; /* of the request, from 1 */
    int64_t at_ms;   /* steady clock */
    char method[16];
    const char *head; /* whole, NUL-terminated */
    const char *body;
    const char *rpc; /* JSON-RPC method of the body; "" = none */
    const char *id;  /* JSON text of the body's id; "" = none */
};

/* Answers. False: the connection is closed then. */
typedef bool mcp_web_fn(const struct mcp_web_request *request);

struct mcp_web {
    int port;
    int listener;
    pthread_t thread;
    mcp_web_fn *handler;
    atomic_bool stopping;
    atomic_uint count, connections, open;
    atomic_int fds[MCP_WEB_REQUESTS_MAX]; /* open connections, -1 = free */
    pthread_mutex_t lock;
    struct mcp_web_request *requests[MCP_WEB_REQUESTS_MAX]; /* what came, in order */
    char session[64];                                       /* that answers to initialize carry; "" = none */
    atomic_uint state;                                      /* the test's */
};

void mcp_web_begin(struct mcp_web *web, mcp_web_fn *handler);
void mcp_web_end(struct mcp_web *web);

/* The n-th request (from 0) with this JSON-RPC method, or this HTTP method; NULL = not yet. */
const struct mcp_web_request *mcp_web_find(struct mcp_web *web, const char *method, unsigned n);
unsigned mcp_web_times(struct mcp_web *web, const char *method);
/* Value of a header, in the request's own memory until the next call; NULL = not there. */
const char *mcp_web_header(const struct mcp_web_request *request, const char *name);
/* The n-th Content of the body as a tree (arena is the caller's). */
struct json *mcp_web_body(const struct mcp_web_request *request, struct arena *arena);

/* ---- for handlers ---- */

void mcp_web_say(int fd, const char *text);
/* A whole answer. type NULL = no body at all. more: further header lines with their ends, or "". */
void mcp_web_answer(const struct mcp_web_request *request, int status, const char *type, const char *more,
                    const char *body);
/* {"jsonrpc","id","result"} as JSON; ' for " in result. */
void mcp_web_result(const struct mcp_web_request *request, const char *result);
void mcp_web_error(const struct mcp_web_request *request, int status, const char *error);
/* Begins a stream of events; the connection is to be closed at its end. */
void mcp_web_stream(const struct mcp_web_request *request);
/* An event with data ' for "; id and retry may be NULL. */
void mcp_web_event(const struct mcp_web_request *request, const char *id, const char *retry, const char *data);
/* The answer to the request as an event. */
void mcp_web_event_result(const struct mcp_web_request *request, const char *id, const char *result);
/* Waits until the other side has closed; false: not within ms. */
bool mcp_web_closed(int fd, int ms);
void mcp_web_sleep(int ms);

/* What every legacy server does: server/discover is unknown (400), initialize gives the session, notifications and
 * answers 202, GET 405, DELETE 200, tools/list the tool "tool". *done: it was answered. */
bool mcp_web_legacy(const struct mcp_web_request *request, bool *done);
/* Likewise of the modern era. */
bool mcp_web_modern(const struct mcp_web_request *request, bool *done);

#endif
