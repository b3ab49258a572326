/* What a call claims beyond its key (design 9): entities that it must have for itself, a semantic window, sums of
 * budgets; and the guards that look at what earlier operations left behind. Computed from the effective arguments
 * before admission, judged within the admission's transaction, kept with the operation as one JSON text that never
 * changes, and given back by what the operation's state says (claims_move). Pure, like all of core. */
#ifndef CORE_CLAIMS_H
#define CORE_CLAIMS_H

#include "base/decimal.h"
#include "core/operation.h"

#define CLAIMS_ENTITIES_MAX   16
#define CLAIMS_GUARDS_MAX     16
#define CLAIMS_DEBITS_MAX     8
#define CLAIMS_NAME_BYTES_MAX 64   /* entity types, budgets, attributes */
#define CLAIMS_TEXT_BYTES_MAX 512  /* entity ids, window and budget keys after filling */
#define CLAIMS_SETS_BYTES_MAX 4096 /* attributes that one operation gives one entity, as JSON */
#define CLAIMS_WAITERS_MAX    1000 /* operations that wait for one entity; further ones are refused */
#define CLAIMS_SLICES         60   /* a budget's period is counted in so many slices */

/* ---- what the registry says ---- */

struct entity_rule {
    const char *type;
    const struct template *id;
    bool queue; /* busy: wait for it, in order; else refuse */
};

struct guard_rule {
    const void *program;            /* jq, compiled; opaque to core: the engine runs it */
    const struct template *message; /* over the arguments and what the guard sees */
};

struct attribute_rule { /* of the call's entities of that type, set with its success */
    const char *type, *name;
    const struct json *value;        /* as it is, unless … */
    const struct template *template; /* … it is a text with {places} */
};

struct window_rule {
    const struct template *key; /* NULL: the tool has none */
    int64_t per_ms;
    bool overridable; /* with a reason */
};

struct budget {
    const char *name;
    int64_t per_ms;
    struct decimal limit;
    bool per_principal; /* one for each principal; else one for the tenant */
};

struct debit_rule {
    const struct budget *budget;
    const char *amount;         /* JSON Pointer into the arguments; NULL: 1 for each call */
    const struct template *key; /* one budget per value; NULL: one in all */
};

struct tool_claims {
    const struct entity_rule *entities;
    const struct guard_rule *guards;
    const struct attribute_rule *sets;
    const struct debit_rule *debits;
    size_t entity_count, guard_count, set_count, debit_count;
    struct window_rule window;
};

/* ---- what a call claims ---- */

struct claim_entity {
    const char *type, *id;
    bool queue;
    const struct json *sets; /* an object, or NULL */
    int64_t seen_rev;        /* that the guards looked at; -1: none did */
};

struct claim_debit {
    const char *budget, *subject, *key; /* subject: the principal, or ""; key: "" when there is one in all */
    struct decimal amount;
    int64_t per_ms;
    struct decimal limit; /* at admission; not stored */
};

struct claims {
    struct claim_entity entities[CLAIMS_ENTITIES_MAX]; /* by type and id, none twice */
    size_t entity_count;
    const char *window; /* its key, NULL = none */
    int64_t window_per_ms;
    struct claim_debit debits[CLAIMS_DEBITS_MAX];
    size_t debit_count;
    const char *override_reason; /* of the window; NULL = none */
    /* for the admission only, not stored */
    bool window_overridable;
    const char *guard;     /* a guard refuses, with these words; NULL: all let it pass */
    int64_t wait_until_ms; /* a place in an entity's queue is held until then */
};

/* Fills *out from the tool's rules, texts in arena. ERR_INVALID, ERR_LIMIT: a member that is missing or null, an amount
 * that is no decimal or negative, a text that is too long. */
enum err_code claims_of_call(const struct tool_claims *rules, const struct operation *op, const struct json *arguments,
                             const char *override_reason, struct arena *arena, struct claims *out, struct err *err);
/* The text that is kept; absent when nothing is claimed. */
struct str claims_write(struct arena *arena, const struct claims *claims);
/* Reads what claims_write wrote. */
enum err_code claims_read(struct arena *arena, struct str text, struct claims *out, struct err *err);
/* Whether the text names entities, without reading it. */
bool claims_want_entities(struct str text);
/* Whether the text names one of the entities of `of`. False for a text that cannot be read. */
bool claims_share_entity(struct str text, const struct claims *of);

/* ---- decisions ---- */

enum claims_verdict {
    CLAIMS_PASS,   /* all is granted */
    CLAIMS_WAIT,   /* an entity is busy: insert it as planned, in the queue */
    CLAIMS_LOOK,   /* entities have changed since the guards looked: look again */
    CLAIMS_GUARD,  /* refused: a guard; … */
    CLAIMS_ENTITY, /* … an entity is busy or its queue is full; … */
    CLAIMS_WINDOW, /* … the window's key was used; … */
    CLAIMS_BUDGET  /* … a budget has no room */
};
const char *claims_verdict_name(enum claims_verdict verdict); /* "pass", "wait", "guard", "entity_busy", … */

/* What the ledger knows. */
struct claims_facts {
    struct {
        const char *holder; /* operation id; NULL: nobody */
        size_t waiting;     /* operations in its queue */
        int64_t rev;        /* of its attributes; 0: never set */
    } entities[CLAIMS_ENTITIES_MAX];
    const char *window_operation; /* the newest one that counts and whose period is not over; NULL: none */
    int64_t window_at_ms, window_until_ms;
    struct decimal totals[CLAIMS_DEBITS_MAX]; /* what counts within the last period */
    int64_t room_at_ms[CLAIMS_DEBITS_MAX];    /* when the amount would fit again if nothing else came; 0: never */
};

/* Why a call was refused; texts of the facts and claims. */
struct claims_refusal {
    enum claims_verdict verdict;
    const char *operation; /* in the way: holder, or user of the window; NULL: none to name */
    const char *type, *id; /* ENTITY */
    const char *budget;
    int64_t at_ms,
        until_ms;     /* WINDOW: when it was used, when it is over. BUDGET: until_ms: when there is room; 0: never */
    bool overridable; /* WINDOW */
};

/* wants_entities: it may start at once (it waits for nothing else). */
enum claims_verdict claims_decide(const struct claims *claims, const struct claims_facts *facts, bool wants_entities,
                                  struct claims_refusal *refusal);

/* The refusal in words. */
void claims_explain(const struct claims *claims, const struct claims_refusal *refusal, struct err *err);

/* Makes of an operation that would have started at once one that waits for its entities. */
void claims_await(struct operation *op, int64_t until_ms);

/* Whether who holds an entity does so for the operation: itself, or the operation that it is a step of, which gives it
 * back when all of them are over (design 10.2). */
bool claims_holds(const struct operation *op, const char *holder);

/* What a transition means for the claims of the operation. */
struct claims_move {
    bool release; /* gives its entities back, leaves their queues */
    bool acquire; /* takes its entities, or a place in their queues, if it has neither */
    bool set;     /* its entities get their attributes */
    bool counts, counted;
};
struct claims_move claims_move(enum state from, const struct operation *to);
/* Whether an operation counts in windows and budgets: not proven without effect. */
bool claims_count(enum state state);

/* The slice of a budget in which an operation of that time counts. */
void claims_slice(int64_t created_ms, int64_t per_ms, int64_t *start_ms, int64_t *until_ms);

/* ---- attributes ---- */

/* Attributes of an entity are one object: name → {"value", "by": operation id, "at_ms"}. Puts `sets` over what was
 * there (absent: nothing). */
struct str claims_set(struct arena *arena, struct str attributes, const struct json *sets, const char *operation,
                      int64_t now_ms);
/* What guards see: {type: {"id", name: value, …, "by": {name: operation id}}, …, "entities": [the same with "type"],
 * "arguments"}; of several entities of one type the first has the name. attributes[i] belongs to entity i. */
struct json *claims_guard_input(struct arena *arena, const struct claims *claims, const struct str *attributes,
                                const struct json *arguments);
/* What messages are filled from: the arguments, and for all else what guards see. */
struct json *claims_message_values(struct arena *arena, const struct json *input);

#endif
