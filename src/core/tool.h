/* What the registry says about a tool and its provider, as far as the rules need it. Built by the daemon's
 * configuration from the registry file (docs/registry.md) and by tests directly; immutable once in use. How requests
 * are built and answers read is the adapter's part and hangs behind `adapter_tool`. */
#ifndef CORE_TOOL_H
#define CORE_TOOL_H

#include "base/json.h"
#include "core/approval.h"
#include "core/normal.h"
#include "core/schema.h"
#include "core/state.h"
#include "core/template.h"

#include <stdbool.h>
#include <stdint.h>

/* Side-effect class (design 13). X(constant, text) */
#define CLASSES(X)                                                                                                     \
    X(CLASS_READ, "read")                                                                                              \
    X(CLASS_INTERNAL_WRITE, "internal_write")                                                                          \
    X(CLASS_EXTERNAL_IDEMPOTENT, "external_idempotent")                                                                \
    X(CLASS_EXTERNAL_WEAK, "external_weak")                                                                            \
    X(CLASS_EXTERNAL_IRREVERSIBLE, "external_irreversible")

enum tool_class {
#define X(constant, text) constant,
    CLASSES(X)
#undef X
};
const char *tool_class_name(enum tool_class value);
bool tool_class_from_name(struct str text, enum tool_class *out);

/* How an external_idempotent tool is idempotent. */
enum idempotent_by { IDEMPOTENT_BY_KEY, IDEMPOTENT_BY_PRECONDITION, IDEMPOTENT_BY_NATURE };

enum strategy { STRATEGY_RESEND, STRATEGY_LOOKUP, STRATEGY_WEBHOOK, STRATEGY_MANUAL };
#define STRATEGIES_MAX 4
const char *strategy_name(enum strategy value); /* "resend", "lookup", "webhook", "manual" */

enum identity_rule { IDENTITY_ANY, IDENTITY_CALLER /* a caller key is required */ };
enum on_mismatch { MISMATCH_CONFLICT, MISMATCH_REPLAY };
enum repeat_rule { REPEAT_ALLOWED, REPEAT_WITH_APPROVAL, REPEAT_DENIED };
enum in_doubt_rule { IN_DOUBT_HOLD, IN_DOUBT_ALLOW };
enum share_rule { SHARE_DEFAULT /* business keys: tenant, else principal */, SHARE_PRINCIPAL, SHARE_TENANT };
enum step_identity { STEP_PER_STEP, STEP_PER_ARGUMENTS };

/* Alphabet and form of the key that a provider is given (design 1 "provider key"). */
enum key_format { KEY_FORMAT_OPERATION_ID, KEY_FORMAT_UUID, KEY_FORMAT_HEX };

/* By what adapter a provider is reached. */
enum provider_kind {
    PROVIDER_HTTP,
    PROVIDER_MCP,
    PROVIDER_COMMAND,
    PROVIDER_APPLICATION,
    PROVIDER_MAIL,
    PROVIDER_SQL,
    PROVIDER_STEPS, /* of multi-step tools: nothing is ever sent */
    PROVIDER_KIND_COUNT
};

struct provider {
    const char *name;
    enum provider_kind kind;
    const void *adapter_provider; /* owned by the registry, opaque to core */
    unsigned connections_max;     /* attempts on the wire at once */
    unsigned queue_max;           /* operations waiting in memory for a slot */
    int64_t timeout_ms;           /* of one attempt, whole */
    int64_t connect_timeout_ms;
    /* key contract */
    bool key_honoured;        /* provider dedupes by the key we send */
    int64_t key_retention_ms; /* how long it remembers; 0 = not known, treat as no retention */
    enum key_format key_format;
    unsigned key_bytes_max; /* 0 = no limit stated */
    /* retry budget: tokens per second that re-sends may use, and the burst (design 6) */
    double retry_budget_per_s;
    unsigned retry_budget_burst;
    /* circuit breaker: opens after this many not-reached or provider-error outcomes in a row; 0 = off */
    unsigned breaker_failures;
    int64_t breaker_open_ms; /* then one probe is let through */
};

struct retry_policy {
    unsigned attempts_max; /* requests that may have left, first one included */
    int64_t total_ms;      /* since admission, over all retries */
    int64_t backoff_ms;    /* base of the exponential backoff with full jitter */
    int64_t backoff_max_ms;
};

#define WATCH_MAX 8

struct reconcile_policy {
    enum strategy strategies[STRATEGIES_MAX];
    unsigned strategy_count;
    int64_t settle_ms;     /* absent proves nothing earlier than this after the end of the last attempt */
    unsigned absent_times; /* consecutive absent answers that prove absence */
    int64_t interval_ms;   /* between look-ups at first; doubles up to interval_max_ms */
    int64_t interval_max_ms;
    int64_t webhook_ms;          /* strategy webhook: so long an event is waited for, then the next strategy */
    int64_t give_up_ms;          /* since the outcome became unknown; then needs_operator */
    int64_t watch_ms[WATCH_MAX]; /* late-landing watch after closing on absent (design 7.3) */
    unsigned watch_count;
};

struct tool_claims;
struct playbook;
struct steps_list;

struct tool_message { /* wording for callers, per state (design 12) */
    enum state state;
    const char *text;
};

struct tool {
    const char *name;                /* unique in the registry, 1..64 of [A-Za-z0-9_.-] */
    const char *title, *description; /* may be NULL */
    const char *version;             /* of the tool's definition; default "1" */
    enum tool_class class;
    enum idempotent_by idempotent_by;
    const struct provider *provider;
    int64_t timeout_ms; /* of one attempt, whole, where that is longer than the provider's: tool_timeout_ms() */
    const struct json *input_schema_json; /* as published */
    const struct schema *input_schema;    /* compiled; NULL = any object */
    /* what MCP clients are told (docs/mcp.md); NULL = worked out from the class, or none */
    const struct json *annotations_json, *output_schema_json, *icons_json, *meta_json;
    bool forwarded; /* MCP: handed through to the server as it is, outside of the ledger (class read only) */
    /* identity (design 2) */
    enum identity_rule identity;
    const struct template *key;       /* business key over canonical arguments; NULL = none */
    const struct tool_claims *claims; /* entities, guards, window, budgets (core/claims.h); NULL = none */
    enum step_identity step_identity;
    const struct normal *normal;          /* normalisers; NULL = none */
    const char *const *volatile_pointers; /* JSON Pointers dropped from the fingerprint */
    size_t volatile_count;
    enum on_mismatch on_mismatch;
    enum share_rule share;
    int64_t repeat_window_ms; /* 0 = off */
    enum repeat_rule repeat;
    enum in_doubt_rule in_doubt;
    struct approval_policy approval;
    const struct playbook *playbooks; /* how its effects can be undone (core/playbook.h) */
    size_t playbook_count;
    const struct steps_list *steps; /* multi-step (core/steps.h): no request of its own; NULL = it is none */
    /* life */
    struct retry_policy retry;
    struct reconcile_policy reconcile;
    int64_t guard_lease_ms; /* > 0: guard mode, the application performs the effect and holds a lease (design 11.2) */
    bool has_lookup;        /* adapter can look up by key or reference */
    bool audit;             /* reads: write a ledger row */
    int64_t cache_ms;       /* reads: result cache; 0 = off */
    int64_t retain_ms;      /* payloads are kept this long after the end */
    int64_t wait_ms;        /* default wait of inline callers */
    size_t result_bytes_max;
    const char *const *redact_pointers; /* JSON Pointers into arguments and results, masked wherever shown */
    size_t redact_count;
    const struct tool_message *messages;
    size_t message_count;
    const void *adapter_tool; /* owned by the registry, opaque to core */
};

bool tool_is_write(const struct tool *tool);
/* An automatic re-send from unknown_outcome can be harmless at all (class, idempotent_by, key contract). */
bool tool_may_resend(const struct tool *tool);
/* How long one attempt may take: its own time-out, or the provider's if that is longer. Leases, settle (design 7.1) and
 * what a provider remembers of a key go by it. */
int64_t tool_timeout_ms(const struct tool *tool);

#endif
