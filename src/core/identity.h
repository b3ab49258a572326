/* Which calls are the same call (design 2): effective arguments, fingerprint, idempotency key and its source. */
#ifndef CORE_IDENTITY_H
#define CORE_IDENTITY_H

#include "core/admission.h"

/* A call as it came through a door. All texts are borrowed. */
struct call {
    const char *tenant, *principal;
    const struct json *arguments;                       /* NULL: an empty object */
    const char *idempotency_key;                        /* from the deterministic layer, NULL = none */
    const char *workflow, *run, *step, *session, *call; /* NULL = not given */
    const char *trace;
    const char *repeat_of; /* operation id */
    const char *distinct_from[ADMISSION_DISTINCT_MAX];
    size_t distinct_count;
    const char *compensates, *playbook; /* the engine only: what it undoes, and how (design 10.1); both or none */
    const char *parent; /* the engine only: the operation that it is a step of, `step` being which (design 10.2), or,
                           with `compensates`, in whose rollback it is run */
    const char *override_reason; /* why a semantic window is overridden on purpose; NULL = it is not */
    int64_t not_before_ms;       /* 0 = at once */
    /* The client gives each repetition by the model a new call id (MCP tool_use ids): the id joins the client's own
     * retries, the repeat rule (design 2.2.5) holds besides. */
    bool call_id_per_try;
};

#define CALL_COORDINATE_BYTES_MAX 256 /* of run, step, session, … */

/* Why a call was refused before admission; doors choose their status by it. */
enum refusal {
    REFUSAL_NONE,
    REFUSAL_KEY_MISSING,  /* identity: caller and no key: 400 */
    REFUSAL_KEY_INVALID,  /* unusable key or coordinate: 400, never a silent downgrade (case S59) */
    REFUSAL_ARGUMENTS,    /* schema or normaliser: 422 with errors */
    REFUSAL_KEY_COMPONENT /* business key component missing or null: 422 */
};

struct identity_error {
    enum refusal refusal;
    struct schema_error *errors; /* REFUSAL_ARGUMENTS: in the arena */
    size_t error_count;
};

/* Fills the identity part of *op (id must be set: provider key and repeat keys derive from it) and of *admission
 * (admission->op = op). Texts go to arena. effective receives the effective arguments. secret is the ledger's.
 * ERR_INVALID with *why filled. */
enum err_code identity_derive(const struct call *call, const struct tool *tool, struct str secret, struct arena *arena,
                              struct operation *op, struct admission *admission, const struct json **effective,
                              struct identity_error *why, struct err *err);

/* The hash under which a key is stored. */
struct digest identity_key_hash(const char *tenant, const char *tool, const char *key, const char *repeat_of);

/* Idempotency-Key header: RFC structured string ("…" with \" and \\) or a bare value. Result in arena. ERR_INVALID for
 * anything unusable. */
enum err_code identity_parse_header(struct str value, struct arena *arena, const char **key, struct err *err);

/* 1..OPERATION_KEY_BYTES_MAX bytes without control characters. */
enum err_code identity_check_key(const char *key, struct err *err);

/* Eight hex characters under the ledger's secret: what logs may carry of a key (design 2.10). */
void identity_key_short(struct str secret, const char *key, char out[9]);

#endif
