/* The HTTP server: libmicrohttpd in epoll mode inside the owner's libuv loop, no thread of its own. Turns requests into
 * exchanges (exchange.h), hands them to the routes (rest.h) and sends what they answer.
 *
 *   socket ─► libmicrohttpd ─► exchange ─► route ─┬─ answers at once ───────────────────────► response
 *                                                 └─ waits (connection suspended) ─ answers ─► response
 */
#ifndef DOOR_HTTP_H
#define DOOR_HTTP_H

#include "base/err.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct http_door;
struct jwt_issuer;
struct mcp_door;
struct door_parts;
struct notify;

struct http_door_options {
    uv_loop_t *loop;                        /* borrowed; must run until http_door_close has called back */
    struct engine *engine;                  /* borrowed, like its ledger, until then */
    const char *address;                    /* an IP address without brackets, or "localhost" (127.0.0.1) */
    uint16_t port;                          /* 0: the system picks a free one */
    const char *tls_cert_pem, *tls_key_pem; /* the texts, copied; both or neither */
    struct mcp_door *mcp;                   /* borrowed like the engine; NULL: there is no /mcp */
    bool auth_tokens;                       /* else everybody is admin, and requests of foreign web pages are refused */
    const struct jwt_issuer *issuers;       /* whose signed tokens are taken, too; as issuers_new borrows them */
    size_t issuer_count;
    size_t connections_max; /* further ones get 503; 0 = HTTP_CONNECTIONS_DEFAULT */
    size_t body_bytes_max;  /* of a request; larger ones get 413; 0 = HTTP_BODY_BYTES_DEFAULT */
    const char *links_base; /* where people reach this door, for approval links; copied; NULL = none */
    int64_t links_expires_ms;
    const struct notify *notify; /* borrowed, for figures; may be NULL */
    unsigned timeout_s;          /* 0 = HTTP_TIMEOUT_S */
};

#define HTTP_CONNECTIONS_DEFAULT 1024
#define HTTP_BODY_BYTES_DEFAULT  (1024 * 1024)
/* Without any byte for this long, or without a whole request for twice as long, a connection is closed. */
#define HTTP_TIMEOUT_S 30
/* Room for the head of a request, per connection. A longer head gets 431 (414 when it is the path) from libmicrohttpd,
 * without a problem document. */
#define HTTP_HEAD_BYTES_MAX (8 * 1024)

/* Listens. ERR_INVALID: no such address, unusable certificate. ERR_IO: in use, not permitted, … */
enum err_code http_door_new(const struct http_door_options *options, struct http_door **out, struct err *err);

/* What its routes are given; until http_door_close. */
const struct door_parts *http_door_parts(const struct http_door *door);

uint16_t http_door_port(const struct http_door *door);

/* Takes no new connections; requests on the present ones are still answered (calls by the engine's refusal once it is
 * stopping), and each answer closes its connection. */
void http_door_stop_accepting(struct http_door *door);

/* Lets answers that are being written go out (at most a second), gives up waiting callers (their operations go on), and
 * releases everything; closed is called from the loop afterwards. Requests to the ledger that are on their way are
 * waited for, so the ledger must still be polled. */
void http_door_close(struct http_door *door, void (*closed)(void *user), void *user);

#endif
