/* The body and headers of POST /v1/calls read into a call for the engine. Pure: no I/O, so that it can be fuzzed. */
#ifndef DOOR_CALL_BODY_H
#define DOOR_CALL_BODY_H

#include "door/shape.h"
#include "engine/engine.h"

/* What headers may say; absent ones are not given. */
struct call_headers {
    struct str idempotency_key, run_id, step_id, session_id, call_id, traceparent, prefer;
};

#define CALL_DEPTH_MAX  64
#define CALL_VALUES_MAX 100000

/* Fills *call (tenant and principal are the caller's business). Texts go to arena; arguments are the parsed tree and
 * may be changed in place by the engine. false: *problem says what is wrong, with texts in arena. */
bool call_body_read(struct arena *arena, struct str body, const struct call_headers *headers, int64_t now_ms,
                    struct engine_call *call, struct problem_document *problem);

/* The same of POST /v1/guard/{tool}/begin: the tool is named by the path, the executor may be. */
bool guard_body_read(struct arena *arena, struct str body, const struct call_headers *headers, const char *tool,
                     struct engine_call *call, struct problem_document *problem);

/* ---- for the other bodies ---- */

/* Parses a body. Problems as above: malformed (with the position) or too_large (too deep, too many values). */
bool body_parse(struct arena *arena, struct str body, struct json **out, struct problem_document *problem);

enum body_type { BODY_TEXT, BODY_BOOL, BODY_INT, BODY_ANY, BODY_TIME };

/* A member that a body may have. `out` is written when it is there and not null: const char ** (text without NUL
 * bytes), bool *, int64_t *, const struct json **, int64_t * (milliseconds). */
struct body_member {
    const char *name;
    enum body_type type;
    void *out;
    bool required;
    int64_t min, max; /* BODY_INT */
    bool *given;      /* set when the member is there and not null; may be NULL */
};

/* Reads an object's members. Refused, with the pointer: what is no object, unknown members (with a suggestion), wrong
 * types, missing ones. */
bool body_read(struct arena *arena, const struct json *body, const struct body_member *members, size_t count,
               struct problem_document *problem);

bool body_refuse(struct problem_document *problem, enum problem_type type, const char *pointer, const char *detail);

/* A copy; NULL when it is not well-formed: W3C wants such a traceparent ignored. */
const char *call_traceparent(struct arena *arena, struct str text);

/* RFC 3339 → milliseconds. */
bool body_time(struct str text, int64_t *ms);

#endif
