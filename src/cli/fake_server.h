/* The fault-injecting provider's server: one thread, libmicrohttpd in epoll mode inside our own loop, timers for
 * whatever is held. A request's life:
 *
 *   RECEIVING ── body complete ──> fake_api_start / fake_control decides: answer, delivery, how long to hold
 *       │ nothing to wait for                   │ held: the connection is suspended, its timer runs
 *       v                                       v (timer, late commit, client gone, release, reset, stop)
 *     READY ──> delivered: answered by the library, or raw bytes / FIN / RST on the socket, then closed
 *
 * A late commit may outlive its connection: the request is freed when both are over. */
#ifndef CLI_FAKE_SERVER_H
#define CLI_FAKE_SERVER_H

#include "base/arena.h"
#include "base/buf.h"
#include "cli/fake_config.h"
#include "cli/fake_log.h"
#include "cli/fake_script.h"
#include "cli/fake_store.h"
#include "cli/fake_timer.h"
#include "cli/fake_webhook.h"

#include <microhttpd.h>

#define FAKE_BODY_MAX (4 << 20)
#define FAKE_KEY_MAX  1024

struct fake_options {
    const char *listen; /* IPv4 address */
    unsigned port;      /* 0 = any free one */
    unsigned connections_max;
    size_t objects_max;  /* kept objects and keys */
    size_t requests_max; /* kept request log entries; 0 = none */
    struct fake_config config;
};

/* How the answer goes out. */
enum fake_delivery {
    DELIVER_ANSWER,
    DELIVER_CLOSE,    /* FIN without an answer */
    DELIVER_RESET,    /* RST without an answer */
    DELIVER_TRUNCATE, /* header and half the body, then FIN */
    DELIVER_DRIP,     /* in pieces over drip_ms, then FIN */
    DELIVER_NEVER     /* nothing, until the client leaves */
};

enum fake_phase { PHASE_RECEIVING, PHASE_HELD, PHASE_READY };

enum fake_method { METHOD_GET, METHOD_POST, METHOD_PUT, METHOD_DELETE, METHOD_OTHER };

struct fake_request {
    struct fake *fake;
    struct fake_request *older, *newer; /* all live requests; spare ones are linked by older */
    struct arena arena;                 /* for everything below without an owner of its own */
    struct MHD_Connection *connection;  /* NULL once the library is done with it */
    uint64_t connection_number;
    uint64_t n; /* in the log */
    enum fake_method method;
    struct str uri, path;
    struct buf body;   /* as received */
    bool headers_seen; /* the library's first call for it is over */
    enum fake_phase phase;
    bool suspended;

    /* what is asked for */
    bool write; /* a write under /v1, to which faults of writes apply */
    int collection;
    struct str id;                  /* of the path; may be absent */
    struct json *json;              /* body as an object */
    struct str reference, business; /* may be absent */
    struct fake_plan plan;
    struct fake_key *key; /* in progress, ours; NULL = none */

    /* what goes back */
    enum fake_delivery delivery;
    int64_t hold_ms; /* before delivery; -1 = for ever */
    int64_t drip_ms;
    int status;
    struct buf answer;
    const char *content_type;
    const char *location, *challenge; /* headers, NULL = none */
    int64_t retry_after_s;            /* -1 = none */
    unsigned etag;                    /* 0 = none */
    bool replayed;
    struct buf raw; /* whole answer, for truncating and dripping */
    size_t raw_sent;

    struct fake_timer hold_timer;   /* deliver, or next drip */
    struct fake_timer commit_timer; /* late commit */
};

struct fake {
    struct fake_options options;
    struct fake_config config;
    struct fake_store store;
    struct fake_counts lookups; /* by URI: which look-up for the same thing it is */
    struct fake_log log;
    struct fake_script script;
    struct fake_timers timers;
    struct fake_webhooks webhooks;
    struct MHD_Daemon *daemon;
    int epoll_fd;
    unsigned port;
    uint64_t connections; /* accepted so far */
    int64_t now_ms;       /* monotonic, of this round of the loop */
    uint64_t fault_used[FAULT_COUNT];
    struct fake_request *newest; /* live requests */
    struct fake_request *spare;
    size_t spare_count;
    bool stopping;
};

/* Listens; *out is owned by the caller. ERR_IO with what the system said. */
enum err_code fake_server_new(const struct fake_options *options, struct fake **out, struct err *err);
void fake_server_free(struct fake *fake);
/* One round: waits at most wait_ms. */
void fake_server_round(struct fake *fake, int wait_ms);

/* ---- between the files of the server ---- */

/* Decides about a complete request (fake_api.c: /v1, fake_control.c: /_fake). */
void fake_api_start(struct fake_request *request);
void fake_control_start(struct fake_request *request);

/* A problem as answer: {"error":{"message":…,"code":…}}. Replaces what was in the answer. */
void fake_answer_error(struct fake_request *request, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Ends the hold: the request is delivered as its fields say. */
void fake_request_ready(struct fake_request *request);
/* Frees the request once neither its connection nor a late commit needs it. */
void fake_request_done(struct fake_request *request);
/* Value of a query member or header, absent when there is none. */
struct str fake_request_query(const struct fake_request *request, const char *name);
struct str fake_request_header(const struct fake_request *request, const char *name);
struct fake_entry *fake_request_entry(struct fake_request *request);
/* Forgets all effects, keys, requests, scripts; held requests are closed, late commits cancelled; settings as at the
 * start. */
void fake_server_reset(struct fake *fake);
/* As if the time of all that waits were over: slow and late commits happen, held answers go out (or what is to become
 * of them). What an object that was accepted becomes, and what webhooks wait for, keeps its time. */
void fake_server_release(struct fake *fake);

#endif
