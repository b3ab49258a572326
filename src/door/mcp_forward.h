/* Pass-through (docs/mcp.md): what servers behind onced offer besides protected tools reaches the client unharmed, in
 * both eras and across them. Shared by the mcp_forward*.c files; not for others.
 *
 *   request ─► passage (one server after the other until one knows it)  ─┐
 *           ─► listing (all servers at once, merged)                     ├─► errand ─► lane ─► link (adapter/mcp.h)
 *           ─► listen stream, subscription ─► watch (once per URI)      ─┘              │
 *   client ◄─ mcp_ask, or input_required and a later round ◄── asking ◄─────────────────┘ question of the server
 *
 * Everything is bounded by the maxima below. Callbacks of links may come while a session or request is already gone:
 * errands outlive the request that they were sent for, and then know of none. */
#ifndef DOOR_MCP_FORWARD_H
#define DOOR_MCP_FORWARD_H

#include "door/mcp_parts.h"

#define FORWARD_SERVERS_MAX   64     /* of one client request at once */
#define FORWARD_LANES_MAX     256    /* of modern clients; the idlest one is closed for a new one */
#define FORWARD_LANE_IDLE_MS  120000 /* of modern clients */
#define FORWARD_ERRANDS_MAX   20000  /* requests on the way, of all clients together */
#define FORWARD_ASKINGS_MAX   1024   /* questions of servers open at once */
#define FORWARD_SUSPENDED_MAX 256    /* requests that wait for a next round of their client */
#define FORWARD_SUSPENDED_MS  600000 /* how long they wait */
#define FORWARD_QUESTIONS_MAX 100    /* about one request of a modern client */
#define FORWARD_STATE_BYTES   16     /* of randomness in a requestState */
#define FORWARD_STATE_SIZE    48     /* of its text, NUL included */
#define FORWARD_ROUNDS_MAX    10     /* of one request that a modern server asks a legacy client about */
#define FORWARD_LISTENS_MAX   1024   /* listen streams */
#define FORWARD_URIS_MAX      256    /* subscriptions of one client or listen stream */
#define FORWARD_WATCHES_MAX   4096   /* subscriptions passed down, all servers together */
#define FORWARD_ROUTES_MAX    20000  /* names remembered: which server listed what */
#define FORWARD_CURSOR_MAX    16384  /* bytes of a cursor of ours */
#define FORWARD_URI_BYTES_MAX 8192
#define FORWARD_PATIENCE_MS   600000 /* for a server without a sign of life, when its provider states no time-out */
#define FORWARD_OWN_DIVISOR   4      /* of what waits or listens a principal may have this part */
#define FORWARD_TICK_MS       1000

#define FORWARD_URL_REQUIRED (-32042) /* legacy: the user has to visit a page first */

struct lane;
struct errand;
struct watch_uri;
struct asking;
struct suspended;
struct listen;
struct route_entry;

/* What belongs to the door rather than to a session. */
struct passing {
    struct mcp_door *door;
    uv_timer_t *timer;          /* freed by its close callback */
    bool ticking, turn_pending; /* the timer runs; it comes at the loop's next turn */
    struct lane *lanes;         /* not of sessions */
    struct lane *closing;       /* closed at the loop's next turn */
    size_t lane_count, errand_count;
    struct watch_uri *watches;
    size_t watch_count;
    struct asking *askings;
    size_t asking_count;
    struct suspended *suspended;
    size_t suspended_count;
    struct map states; /* requestState → suspended */
    struct listen *listens;
    size_t listen_count;
    unsigned offered;                        /* what the servers offer, as told last */
    bool changed_prompts, changed_resources; /* told to the listen streams at the loop's next turn */
    struct map routes;                       /* "u URI", "p PROMPT" → route_entry */
    struct route_entry *templates;           /* "t TEMPLATE" too */
    size_t route_count;
};
/* Makes it when there is none. */
struct passing *passing_of(struct mcp_door *door);
/* Something waits for the loop's next turn, or for the timer. */
void passing_next_turn(struct passing *passing);
void passing_keep_ticking(struct passing *passing);
int64_t passing_now_ms(const struct passing *passing); /* of the loop */

/* ---- lanes: mcp_forward_lane.c ---- */

/* A link to one server for one client: of a legacy session; or for modern requests, which have no session: one for all
 * clients where the server tells them apart by themselves (shared connection, modern server), else one per principal
 * and capabilities. */
struct lane {
    struct lane *next, **at; /* of the session, or of passing */
    struct passing *passing;
    struct mcp_session *session; /* NULL: for modern requests, or closing */
    char *server;                /* name */
    char *key;                   /* for modern requests: whose; "" = everybody's */
    struct mcp_link *link;       /* NULL: lost */
    bool per_client;
    struct errand *errands; /* newest first */
    size_t errand_count, watch_count;
    int64_t patience_ms;
    int level;    /* logging level that the server was told, -1 = none */
    bool holding; /* requests wait until the server has answered logging/setLevel */
    int64_t used_ms;
};

/* The lane of this client to this server, made when there is none. NULL: err says why. */
struct lane *lane_for(struct mcp_request *request, struct mcp_server *server, struct err *err);
struct lane *lane_of_session(struct mcp_session *session, struct mcp_server *server, struct err *err);
/* The one for everybody. */
struct lane *lane_common(struct passing *passing, struct mcp_server *server, struct err *err);
/* Lost or not wanted any more: closed at the loop's next turn, errands are told then. */
void lane_retire(struct lane *lane);
/* Whether the server behind it speaks the modern era; false also while that is not known. */
bool lane_modern(const struct lane *lane);
/* The server's log level is made fine enough for this one. */
void lane_want_level(struct lane *lane, int level);
void lanes_tick(struct passing *passing);
void lanes_close_retired(struct passing *passing);
void lanes_close_all(struct passing *passing);

/* A request sent down. Freed after done. */
typedef void errand_done(struct errand *errand, const struct mcp_outcome *outcome);
struct errand {
    struct errand *next, **at; /* of the lane */
    struct lane *lane;         /* NULL: closed */
    struct mcp_pending *pending;
    struct mcp_request *request; /* for which notifications and questions are; NULL = ours, or gone */
    struct watch_uri *watch;     /* our own listen stream for it */
    char *method, *params;       /* while the lane holds it back */
    size_t params_bytes;
    int64_t patience_ms, deadline_ms; /* without a sign of the server; questions to people do not count */
    size_t asking_count;              /* questions about it that are open */
    errand_done *done;                /* NULL: nobody wants to know */
    void *user;
};
/* params is copied. The answer is waited for as long as the server's provider says, from each sign of life on. NULL:
 * too many (err). done is never called from within. */
struct errand *errand_send(struct lane *lane, struct mcp_request *request, const char *method, struct str params,
                           errand_done *done, void *user, struct err *err);
/* Nobody wants the answer any more: the server is told to stop. */
void errand_abandon(struct errand *errand, const char *why);

/* ---- across eras, pure: mcp_forward_era.c ---- */

/* params for the server: name (when given) instead of params.name, _meta in the server's era. responses and state:
 * JSON texts of a next round, absent = as the client sent them (modern) or none (legacy). */
struct era_params {
    const char *name;  /* replaces "name", NULL = as it came */
    struct str prompt; /* replaces ref.name, absent = as it came */
    struct str cursor; /* replaces "cursor", absent = as it came; empty = none */
    struct str responses, state;
};
void era_write_params(struct buf *out, const struct mcp_request *request, bool to_modern,
                      const struct era_params *change);
/* clientCapabilities as servers are to see them. */
void era_write_capabilities(struct buf *out, const struct json *capabilities);
/* A result for the client: resultType and cache hints added or removed. */
void era_write_result(struct buf *out, const struct mcp_request *request, const struct json *result);
/* The method's result carries cache hints in the modern era. */
bool era_cacheable(const char *method);
/* The error code for the client, and data when it changes (else the server's own). */
int64_t era_error_code(const struct mcp_request *request, int64_t code, const struct json *data);

/* ---- requests passed on: mcp_forward.c, mcp_forward_list.c ---- */

/* Progress and log messages of a server about this request, when its client wants them. */
void forward_progress(struct mcp_request *request, const struct rpc_message *message);
void forward_log(struct mcp_request *request, const struct rpc_message *message);
/* Answers with the server's own error. */
void forward_reply_error(struct mcp_request *request, const struct rpc_message *error);
/* Answers after an outcome that is no answer. */
void forward_reply_lost(struct mcp_request *request, const char *server, const struct mcp_outcome *outcome);
void forward_reply_no_method(struct mcp_request *request);

/* Servers with forward: true, in name order; capability NULL = all, else those that offer it or are starting. */
size_t forward_servers(struct mcp_door *door, const char *capability, struct mcp_server **out, size_t max);

void listing_begin(struct mcp_request *request);

/* ---- which server knows a name: mcp_forward_route.c ---- */

enum route_kind { ROUTE_URI = 'u', ROUTE_PROMPT = 'p', ROUTE_TEMPLATE = 't' };
/* Remembers; the first server in name order keeps a name (false: it was another's). */
bool route_learn(struct passing *passing, enum route_kind kind, struct str name, const char *server);
/* The server that is known to have it (URIs: also by template), NULL = not known. */
const char *route_find(struct passing *passing, enum route_kind kind, struct str name);
bool route_template_matches(struct str template, struct str uri); /* pure */
void routes_forget(struct passing *passing);

/* ---- questions of servers: mcp_forward_ask.c ---- */

/* A server's question that waits for a client. */
struct asking {
    struct asking *next, **at;
    struct passing *passing;
    struct mcp_question *question;
    struct mcp_link *link;       /* NULL: closed (an attempt's question outlives it) */
    bool attempt;                /* about an attempt: of the hub's listener */
    struct errand *errand;       /* that it is about; NULL = none, or gone */
    uint64_t session;            /* legacy: who was asked */
    char *id;                    /* legacy: of our request */
    struct suspended *suspended; /* modern: the request that waits */
    char *key, *method, *params; /* modern: as the client is told */
    char *token, *server_token;  /* legacy: progress tokens, ours and the server's (JSON texts) */
    bool told;                   /* modern: is part of the last input_required */
};
/* A modern client's request that waits for answers of its client. */
struct suspended {
    struct mcp_sink sink; /* of the request while no client waits for it */
    struct suspended *next, **at;
    struct passing *passing;
    char state[FORWARD_STATE_SIZE]; /* "" = a client waits */
    struct mcp_request *request;    /* NULL: it has ended */
    struct mcp_session *session;    /* holds the request while no client waits; else NULL */
    char *answer;                   /* JSON text of the final message that came meanwhile */
    size_t answer_bytes;
    struct digest call; /* principal, method, parameters */
    int64_t expires_ms;
    unsigned keys; /* of questions, so far */
    bool due;      /* its client is to be asked at the loop's next turn: questions often come together */
    /* the request's, which ours is put in front of */
    void (*release)(struct mcp_request *request);
};
/* Asks the client of this request (NULL: of this session); answers the question at once when nobody can be asked. */
struct ask_from {
    struct mcp_link *link;
    bool attempt;
    struct errand *errand; /* may be NULL */
    struct mcp_question *question;
};
void ask_client(struct passing *passing, const struct ask_from *from, struct mcp_session *session,
                struct mcp_request *request, const struct rpc_message *message);
void ask_withdrawn(struct passing *passing, struct mcp_question *question);
/* The link is about to be closed: its questions are answered now. */
void ask_link_gone(struct passing *passing, const struct mcp_link *link);
/* The errand ended: its questions are of no use. */
void ask_errand_ended(struct errand *errand);
/* Progress of the client about a question of a server. */
void ask_progress(struct mcp_session *session, const struct rpc_message *message);
/* Whether a client with these capabilities can be asked this. */
bool ask_is_possible(const struct json *capabilities, struct str method, const struct json *params);
/* Answers with what a legacy server's error -32042 wants of the user. */
void ask_urls(struct mcp_request *request, const struct rpc_message *error);
struct mcp_request *suspended_by_number(struct passing *passing, uint64_t number);
void suspended_park_due(struct passing *passing);
void suspended_tick(struct passing *passing);
void suspended_end_all(struct passing *passing);
void askings_end_all(struct passing *passing);

/* ---- subscriptions: mcp_forward_listen.c ---- */

/* A resource subscribed to at a server, once for all who want it. */
struct watch_uri {
    struct watch_uri *next, **at;
    struct passing *passing;
    struct lane *lane; /* NULL: lost, made again when the server is back */
    char *server, *uri;
    struct follower *followers;
    struct errand *listen; /* modern server: our stream; legacy: the request on its way */
    bool subscribed;       /* legacy server */
    int64_t retry_ms;      /* not tried again before */
};
/* Somebody who wants to hear of a resource. */
struct follower {
    struct follower *next, **at;         /* of the watch */
    struct follower *own_next, **own_at; /* of the session or listen stream */
    struct watch_uri *watch;
    struct mcp_session *session; /* one of the two */
    struct listen *listen;
};
void subscription_request(struct mcp_request *request); /* resources/subscribe and unsubscribe */
void watch_updated(struct lane *lane, struct errand *errand, const struct rpc_message *message);
void watch_lane_gone(struct lane *lane);
void watch_session_ended(struct mcp_session *session);
void listens_tick(struct passing *passing);
void listens_tell_changed(struct passing *passing, const char *kind);
void listens_end_all(struct passing *passing);

/* What a session has of this. */
struct mcp_forward {
    struct lane *lanes;
    size_t asking_count;
    struct follower *followers;
    size_t follower_count;
};
struct mcp_forward *forward_of(struct mcp_session *session);

#endif
