/* Telling people (design 8): a signed POST (adapter/webhook.h) to the endpoint that the registry file names, when
 * something waits for a person or an incident was raised.
 *
 *   committed change ─► queue ─► is it still so? ─► links for approvers, if wanted ─► POST ─► 2xx: told
 *   start, overflow ──► scan ──┘                                                      └ else: again, with backoff
 *
 * No call waits for it or fails because of it. What waits is asked for in the ledger, not kept here: after a restart,
 * or when more was to be told than the queue holds, everything that still waits is told (again), each with the id it
 * had: the same operation, kind and version of the request have the same webhook-id, by which receivers know a
 * repetition. What does not wait any more when its turn comes is not told.
 *
 * For one thread: the loop's. */
#ifndef DOOR_NOTIFY_H
#define DOOR_NOTIFY_H

#include "adapter/webhook.h"
#include "engine/engine.h"

#include <uv.h>

/* X(constant, name in the registry file, type of the message) */
#define NOTIFY_KINDS(X)                                                                                                \
    X(NOTIFY_APPROVAL, "approval", "approval.requested") /* people are asked to approve */                             \
    X(NOTIFY_OPERATOR, "operator", "operator.needed")    /* only an operator can settle what happened */               \
    X(NOTIFY_INCIDENT, "incident", "incident.raised")                                                                  \
    X(NOTIFY_STUCK, "stuck", "rollback.stuck") /* a rollback goes no further without a person */

enum notify_kind {
#define X(constant, name, type) constant,
    NOTIFY_KINDS(X)
#undef X
        NOTIFY_KIND_COUNT
};
const char *notify_kind_name(enum notify_kind kind);
const char *notify_kind_type(enum notify_kind kind);

#define NOTIFY_QUEUE_MAX      1000
#define NOTIFY_TOLD_MAX       8192 /* ids remembered, so that a change of what was told is not told again */
#define NOTIFY_APPROVERS_MAX  10
#define NOTIFY_BACKOFF_MS     1000 /* after a failure, doubled up to … */
#define NOTIFY_BACKOFF_MAX_MS 300000
#define NOTIFY_REFUSALS_MAX   5 /* 4xx answers (but 408, 425, 429) to one message, which is then given up */
#define NOTIFY_GIVE_UP_MS     86400000
#define NOTIFY_ID_SIZE        37 /* "msg_" + 32 hex digits, with the NUL */

struct notify_settings {
    struct webhook_endpoint endpoint; /* url NULL: nobody is told */
    unsigned kinds;                   /* bit per enum notify_kind */
    bool payload;                     /* arguments, results and errors go along, as far as `redact` leaves them */
    const char *const *approvers;     /* for whom links are made, where server.links is set and they may decide */
    size_t approver_count;
};

struct notify_stats {
    int64_t told[NOTIFY_KIND_COUNT]; /* 2xx */
    int64_t failures;                /* requests that were not answered with 2xx */
    int64_t moot;                    /* did not wait any more when their turn came */
    int64_t given_up;
    int64_t overflows; /* the queue was full: told later, by the scan */
    size_t queued;
};

struct notify;
struct door_parts;

/* Follows the engine's changes from now on; sends nothing before the loop runs. */
enum err_code notify_new(uv_loop_t *loop, struct engine *engine, struct notify **out, struct err *err);
/* Settings are copied. Another address is told everything that waits. */
void notify_configure(struct notify *notify, const struct notify_settings *settings);
/* The HTTP door is open, or (NULL) about to close: approval links can be made meanwhile. */
void notify_set_door(struct notify *notify, const struct door_parts *parts);
void notify_close(struct notify *notify, void (*closed)(void *user), void *user);

struct notify_stats notify_stats(const struct notify *notify);

/* The webhook-id of what is to be told about an operation now; false: nothing of this kind waits. incident: of
 * NOTIFY_INCIDENT, its id. */
bool notify_id(enum notify_kind kind, const struct operation *op, const char *incident, int64_t now_ms,
               char out[NOTIFY_ID_SIZE]);

#endif
