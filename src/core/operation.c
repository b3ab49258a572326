#include "core/operation.h"

#define NAME_OF(names, value) ((size_t)(value) < sizeof(names) / sizeof *(names) ? (names)[value] : "?")

const char *key_source_name(enum key_source source)
{
    static const char *const names[] = {
#define X(constant, text) text,
        KEY_SOURCES(X)
#undef X
    };
    return NAME_OF(names, source);
}

const char *attempt_kind_name(enum attempt_kind kind)
{
    return kind == ATTEMPT_CALL ? "call" : "lookup";
}

static const char *const outcome_names[OUTCOME_COUNT] = {
#define X(constant, text) text,
    OUTCOMES(X)
#undef X
};

const char *outcome_name(enum outcome outcome)
{
    return NAME_OF(outcome_names, outcome);
}

bool outcome_from_name(struct str text, enum outcome *out)
{
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        if (str_is(text, outcome_names[i])) {
            *out = (enum outcome)i;
            return true;
        }
    }
    return false;
}

const char *cause_name(enum cause cause)
{
    static const char *const names[] = {
#define X(constant, text) text,
        CAUSES(X)
#undef X
    };
    return NAME_OF(names, cause);
}

const char *incident_kind_name(enum incident_kind kind)
{
    static const char *const names[] = {
#define X(constant, text) text,
        INCIDENTS(X)
#undef X
    };
    return NAME_OF(names, kind);
}

bool operation_id_valid(const char *text)
{
    return text && strncmp(text, "op_", 3) == 0 && ulid_valid(text + 3);
}

bool operation_executor_holds(const struct operation *operation)
{
    return operation->owner &&
           strncmp(operation->owner, OPERATION_EXECUTOR_PREFIX, strlen(OPERATION_EXECUTOR_PREFIX)) == 0;
}

/* Ends with a NUL, as all texts of arenas do. */
static char *put_str(struct str *str, char *at)
{
    if (str->n)
        memcpy(at, str->p, str->n);
    at[str->n] = '\0';
    str->p = at;
    return at + str->n + 1;
}

struct operation *operation_copy(struct arena *arena, const struct operation *operation)
{
    struct operation *copy = arena_alloc(arena, sizeof *copy);
    *copy = *operation;
    const char **texts[] = {
        &copy->tenant,      &copy->tool,          &copy->principal,   &copy->key,          &copy->policy_version,
        &copy->workflow,    &copy->run,           &copy->step,        &copy->session,      &copy->call,
        &copy->trace,       &copy->repeat_of,     &copy->previous,    &copy->provider_key, &copy->owner,
        &copy->external_id, &copy->distinct_from, &copy->compensates, &copy->playbook,     &copy->compensation,
        &copy->escalation,  &copy->parent,
    };
    struct str *strs[] = {&copy->claims, &copy->arguments, &copy->result, &copy->error, &copy->approval, &copy->steps};
    enum { TEXTS = sizeof texts / sizeof *texts, STRS = sizeof strs / sizeof *strs };
    size_t bytes[TEXTS], sum = 0;
    for (size_t i = 0; i < TEXTS; i++)
        sum += bytes[i] = *texts[i] ? strlen(*texts[i]) + 1 : 0;
    for (size_t i = 0; i < STRS; i++)
        sum += strs[i]->p ? strs[i]->n + 1 : 0;
    char *at = arena_alloc(arena, sum); /* one for all: this runs several times in each operation's life */
    for (size_t i = 0; i < TEXTS; at += bytes[i++])
        if (*texts[i])
            *texts[i] = memcpy(at, *texts[i], bytes[i]);
    for (size_t i = 0; i < STRS; i++)
        if (strs[i]->p)
            at = put_str(strs[i], at);
    return copy;
}

struct tombstone operation_tombstone(const struct operation *operation, int64_t dropped_ms)
{
    struct tombstone stone = {
        .tenant = operation->tenant,
        .tool = operation->tool,
        .principal = operation->principal,
        .key_hash = operation->key_hash,
        .key_version = operation->key_version,
        .fingerprint = operation->fingerprint,
        .canonical_version = operation->canonical_version,
        .key_source = operation->key_source,
        .state = operation->state,
        .completed_ms = operation->completed_ms,
        .dropped_ms = dropped_ms,
        .external_id = operation->external_id,
    };
    memcpy(stone.operation, operation->id, sizeof stone.operation);
    return stone;
}
