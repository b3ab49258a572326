/* What callers see (design 12): the one result shape, the words that go with each state, and problem documents. Pure:
 * records in, JSON text out. Used by every door. */
#ifndef DOOR_SHAPE_H
#define DOOR_SHAPE_H

#include "base/buf.h"
#include "base/json.h"
#include "core/claims.h"
#include "core/identity.h"
#include "core/operation.h"

/* ---- operations ---- */

struct shape_view {
    struct arena *arena; /* for what must be worked out */
    int64_t now_ms;
    bool replayed;        /* this call did not cause the execution that it is told about */
    bool other_arguments; /* replayed although the arguments differ */
    bool outside;         /* the caller's token does not cover the operation: payload is withheld from anybody */
    bool own_call;        /* the answer of the caller's own call: nothing is masked */
    bool privileged;      /* operator or admin: key and arguments are shown */
    bool approver;        /* somebody who decides: arguments of what needs approval are shown */
    bool withheld;        /* the result belongs to another principal */
    bool with_incidents;  /* incidents are known */
    const struct incident *incidents;
    size_t incident_count;
    const struct approval_decision *decision; /* answer to a decision: the one that stands; NULL = no such answer */
    bool decision_counted;                    /* and it is the one that was just made */
};

/* Appends the operation as one JSON object. tool NULL: the registry no longer has it; what may have to be masked is
 * left out then, unless own_call. A read (op->id is "") has operation_id null and no links. */
void shape_operation(struct buf *out, const struct operation *op, const struct tool *tool,
                     const struct shape_view *view);

/* An operation of which only the tombstone is left, in the same shape. */
void shape_tombstone(struct buf *out, const struct tombstone *tombstone);

void shape_incident(struct buf *out, const struct incident *incident);
void shape_event(struct buf *out, const struct event *event);
void shape_attempt(struct buf *out, const struct attempt *attempt);
void shape_time(struct buf *out, int64_t ms); /* quoted; 0 writes null */

/* Whether results of this operation may be shown to other principals of its tenant (design 2.4). */
bool shape_shared(const struct operation *op, const struct tool *tool);

enum next_action { NEXT_USE_RESULT, NEXT_WAIT, NEXT_DO_NOT_RETRY, NEXT_FIX_ARGUMENTS, NEXT_ASK_HUMAN };
const char *next_action_name(enum next_action action);
enum next_action shape_next_action(const struct operation *op);
/* When it makes sense to ask again; 0 = never by itself. */
int64_t shape_retry_after_ms(const struct operation *op, int64_t now_ms);
/* Plain words that never claim more than is known. tool may be NULL. */
const char *shape_message(const struct operation *op, const struct tool *tool);
/* The same, with how far a multi-step operation is, in arena. */
const char *shape_words(struct arena *arena, const struct operation *op, const struct tool *tool);

/* Replaces what the tool's redact paths name in a JSON text by "***". Gives the text itself when there is nothing to
 * mask, absent when it cannot be told what to mask (tool NULL). */
struct str shape_masked(struct arena *arena, struct str json_text, const struct tool *tool);

/* ---- problem documents (RFC 9457) ---- */

/* X(constant, name in the type, HTTP status, title) */
#define PROBLEM_TYPES(X)                                                                                               \
    X(PROBLEM_MALFORMED, "malformed", 400, "The request is malformed")                                                 \
    X(PROBLEM_KEY_MISSING, "key_missing", 400, "This tool wants an idempotency key")                                   \
    X(PROBLEM_KEY_INVALID, "key_invalid", 400, "The idempotency key is not usable")                                    \
    X(PROBLEM_UNAUTHORIZED, "unauthorized", 401, "Not authenticated")                                                  \
    X(PROBLEM_BAD_SIGNATURE, "bad_signature", 401, "The signature does not fit; nothing was recorded")                 \
    X(PROBLEM_FORBIDDEN, "forbidden", 403, "Not allowed")                                                              \
    X(PROBLEM_NOT_FOUND, "not_found", 404, "Not found")                                                                \
    X(PROBLEM_NO_SUCH_TOOL, "no_such_tool", 404, "There is no such tool")                                              \
    X(PROBLEM_METHOD_NOT_ALLOWED, "method_not_allowed", 405, "Not with this method")                                   \
    X(PROBLEM_IN_DOUBT, "in_doubt", 409, "An earlier call is unresolved; nothing was run")                             \
    X(PROBLEM_RESULT_NOT_SHARED, "result_not_shared", 409, "The result belongs to another principal; nothing was run") \
    X(PROBLEM_RESULT_EXPIRED, "result_expired", 409, "Known, but the result is no longer kept; nothing was run")       \
    X(PROBLEM_REPEAT_REFUSED, "repeat_refused", 409, "The repetition is refused; nothing was run")                     \
    X(PROBLEM_STALE_VERSION, "stale_version", 409, "The operation has changed since")                                  \
    X(PROBLEM_NOT_POSSIBLE, "not_possible", 409, "Not possible in the present state")                                  \
    X(PROBLEM_ENTITY_BUSY, "entity_busy", 409, "Another operation works on this; nothing was run")                     \
    X(PROBLEM_GUARDED, "guard", 409, "A rule about the present state forbids this; nothing was run")                   \
    X(PROBLEM_WINDOW, "window", 409, "The same was done not long ago; nothing was run")                                \
    X(PROBLEM_TOO_LARGE, "too_large", 413, "The request is too large")                                                 \
    X(PROBLEM_NOT_JSON, "not_json", 415, "The body must be JSON")                                                      \
    X(PROBLEM_KEY_REUSED, "key_reused", 422, "The key was used with other arguments; nothing was run")                 \
    X(PROBLEM_INVALID_ARGUMENTS, "invalid_arguments", 422, "The arguments are not valid; nothing was run")             \
    X(PROBLEM_BUDGET, "budget", 429, "A budget is used up; nothing was run")                                           \
    X(PROBLEM_INTERNAL, "internal", 500, "Something went wrong here")                                                  \
    X(PROBLEM_UNAVAILABLE, "unavailable", 503, "Not available at the moment; nothing was recorded, nothing was sent")

enum problem_type {
#define X(constant, name, status, title) constant,
    PROBLEM_TYPES(X)
#undef X
};
const char *problem_type_name(enum problem_type type);
int problem_type_status(enum problem_type type);
const char *problem_type_title(enum problem_type type);

#define PROBLEM_MEDIA_TYPE "application/problem+json"

struct problem_document {
    enum problem_type type;
    const char *detail;                /* NULL = nothing beyond the title */
    const char *pointer;               /* place in the body, NULL = none */
    const struct operation *op;        /* the operation it is about, may be NULL */
    const struct tombstone *tombstone; /* … when only that is left */
    const char *principal;             /* whose result it is, NULL = not told */
    const struct schema_error *errors; /* into the arguments */
    size_t error_count;
    const char *const *differing; /* JSON Pointers; NULL = member left out */
    size_t differing_count;
    const struct claims_refusal *refusal; /* by policy; NULL = none */
    int64_t version;                      /* the operation's present version, 0 = not told */
    int64_t retry_after_ms;               /* 0 = not told */
};

/* Of a refusal by policy: its type, and how long until there is room again (0 = not told). */
enum problem_type shape_refusal_type(const struct claims_refusal *refusal);
int64_t shape_refusal_wait_ms(const struct claims_refusal *refusal, int64_t now_ms);

void shape_problem(struct buf *out, const struct problem_document *problem);

#endif
