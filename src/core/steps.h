/* Multi-step tools (design 10.2): a list of steps, each an operation of its own whose arguments may use what former
 * steps gave. The operation of the multi-step tool is their parent; it sends nothing itself. What it has of its steps
 * is one JSON text in its row, the progress, which moves in the same transaction as the step that it tells of.
 *
 *   pending_dispatch ─► acknowledged ──────── all steps done ────────────────────────────► completed_success
 *                        │ running_steps
 *                        ├─ a step failed, or cancelled; something stands ─► compensating ─► compensated
 *                        │                                                   │ rolling_back   rolled_back
 *                        │                                                   └ needs_operator: a step is stuck
 *                        └─ a step failed, or cancelled; nothing stands ───► failed_permanent
 *
 * Steps run one after the other, and are undone one after the other in reverse order; what can not be undone stops the
 * rollback until a person decides, for what comes before it may be all that keeps the rest in order. */
#ifndef CORE_STEPS_H
#define CORE_STEPS_H

#include "core/operation.h"

#define STEPS_MAX            32
#define STEPS_NAME_BYTES_MAX 64
#define STEPS_KEY            "step:" /* what the keys of step operations begin with, and no others */

/* What becomes of a step that is done when the others are undone. X(constant, text) */
#define STEPS_UNDOS(X)                                                                                                 \
    X(STEPS_UNDO_NOTHING, "nothing")   /* it changes nothing: reads */                                                 \
    X(STEPS_UNDO_LEAVE, "leave")       /* it stays as it is */                                                         \
    X(STEPS_UNDO_PLAYBOOK, "playbook") /* by a playbook of its tool */                                                 \
    X(STEPS_UNDO_ESCALATE, "escalate") /* a person decides; also a last step for which nothing is stated */

enum steps_undo {
#define X(constant, text) constant,
    STEPS_UNDOS(X)
#undef X
};

/* ---- what the registry says: part of struct tool; immutable ---- */

struct steps_item {
    const char *name;        /* 1..STEPS_NAME_BYTES_MAX of [a-z0-9_-], unique in its tool */
    const char *tool;        /* of the same registry, no multi-step tool, not of guard mode */
    const struct json *form; /* arguments with places in their texts (steps_fill), or … */
    const void *arguments;   /* … the engine's (jq over steps_input), owned by the registry, … */
    const void *when;        /* … like the condition: false, the step is skipped; NULL = none */
    enum steps_undo undo;
    const char *playbook; /* STEPS_UNDO_PLAYBOOK: its name at the step's tool */
};

struct steps_list {
    const struct steps_item *items;
    size_t count;       /* 1..STEPS_MAX */
    const void *result; /* jq over steps_input: what the parent's result is; NULL = steps_result */
    const char *digest; /* short hex over the list as it is written: tells whether it has changed */
};

/* What a multi-step tool has as its provider, so that tool->provider is never NULL: it sends nothing. */
extern const struct provider steps_provider;

/* NULL when the list has none of that name. */
const struct steps_item *steps_find(const struct steps_list *list, const char *name);

/* ---- progress ---- */

/* X(constant, text) */
#define STEPS_STATUSES(X)                                                                                              \
    X(STEPS_WAITING, "waiting") /* not begun */                                                                        \
    X(STEPS_RUNNING, "running") /* its operation is under way, in whatever state that is */                            \
    X(STEPS_DONE, "done")       /* its operation has succeeded, or was so already */                                   \
    X(STEPS_SKIPPED, "skipped") /* its condition did not hold */                                                       \
    X(STEPS_FAILED, "failed")   /* ended, refused or cancelled, proven without effect */                               \
    X(STEPS_UNDOING, "undoing") /* its operation is being compensated */                                               \
    X(STEPS_UNDONE, "undone")                                                                                          \
    X(STEPS_LEFT, "left")   /* stands, by rule or by a person's word */                                                \
    X(STEPS_STUCK, "stuck") /* could not be undone: a person decides */

enum steps_status {
#define X(constant, text) constant,
    STEPS_STATUSES(X)
#undef X
};
const char *steps_status_name(enum steps_status status);
bool steps_status_from_name(struct str text, enum steps_status *out);

struct steps_entry {
    const char *name, *tool;
    enum steps_status status;
    enum steps_undo undo;
    const char *playbook;
    const char *operation;      /* NULL: not begun */
    const char *undo_operation; /* the compensation, the latest of several; NULL = none */
    const char *note;           /* words for people: why it failed, is stuck, was skipped; NULL = none */
    const char *code;           /* of the error that it failed with; NULL = none */
    int64_t held_since_ms;      /* its admission was refused for the time being since then; 0 = was not */
};

struct steps_progress {
    const char *digest;       /* of the list as the parent began with it */
    const char *rolling_back; /* why, in words; NULL: it goes forward */
    bool cancelled;           /* … because a person cancelled it */
    struct steps_entry entries[STEPS_MAX];
    size_t count;
};

/* All steps waiting, as the list has them. */
void steps_start(const struct steps_list *list, struct steps_progress *out);
/* The text that is kept in the parent's row:
 * {"digest", "rolling_back"?, "cancelled"?, "steps": [{"name", "tool", "status", "undo", "playbook"?, "operation"?,
 * "undo_operation"?, "note"?, "code"?, "held_since_ms"?}, …]}. */
struct str steps_write(struct arena *arena, const struct steps_progress *progress);
/* Reads what steps_write wrote. */
enum err_code steps_read(struct arena *arena, struct str text, struct steps_progress *out, struct err *err);

/* The entry whose operation, or compensation, has that id; progress->count: none. */
size_t steps_entry_of(const struct steps_progress *progress, const char *operation);
size_t steps_count(const struct steps_progress *progress, enum steps_status status);

/* ---- what is next ---- */

enum steps_next_kind {
    STEPS_NEXT_BEGIN,   /* entries[at] begins, or is skipped */
    STEPS_NEXT_WAIT,    /* for entries[at], which runs or is being undone */
    STEPS_NEXT_TURN,    /* entries[at] has failed: what is done is to be undone (steps_turn) */
    STEPS_NEXT_UNDO,    /* entries[at] is to be undone by its playbook */
    STEPS_NEXT_LEAVE,   /* entries[at] is left as it is, by rule */
    STEPS_NEXT_STUCK,   /* a person must decide on entries[at] */
    STEPS_NEXT_SUCCEED, /* all are done or skipped */
    STEPS_NEXT_FAIL,    /* rolled back, and nothing that changed anything was ever done */
    STEPS_NEXT_END      /* rolled back: what was done is undone or left */
};

struct steps_next {
    enum steps_next_kind kind;
    size_t at;
};

/* Pure: what the progress alone says. */
struct steps_next steps_next(const struct steps_progress *progress);
/* From forward to rolling back, because entries[at] failed; words in arena. */
void steps_turn(struct arena *arena, struct steps_progress *progress, size_t at);
/* Whether something was done, or is undone or left, that changed anything: a rollback has something to tell of. */
bool steps_stand(const struct steps_progress *progress);
/* "2 of 4 steps are done" and the like are the door's words; this is what an error says: which step failed and why,
 * what is undone, what is left. {"message", "step"?, "code"?} */
struct str steps_error(struct arena *arena, const struct steps_progress *progress);

/* How a step operation's state shows in its entry, given what the entry was: its ends, and its way through being
 * compensated. *entry is changed; false: it tells nothing new. Texts in arena. */
bool steps_take(struct arena *arena, struct steps_entry *entry, const struct operation *step);

/* Whether a move of an operation, a step or what was undone of one, is news to its parent. */
bool steps_tell(enum state from, const struct operation *to);

/* ---- passing results on ---- */

/* The key of a step operation. */
const char *steps_key(struct arena *arena, const char *parent, const char *name);

/* What arguments, conditions and results see: {"arguments": the parent's, "steps": {name: {"status", "result",
 * "external_id", "operation_id", "arguments"}} of the steps that are over, "operation_id", "run_id"}; what is not there
 * is null; of skipped steps only the status. steps[i] is the operation of entry i or NULL. */
const struct json *steps_input(struct arena *arena, const struct operation *parent,
                               const struct steps_progress *progress, const struct operation *const *steps);
/* form with its places filled: {name} and {a.b} from the parent's arguments, {$steps.NAME.result.a.b} and the like,
 * {$operation}, {$run}. A text that is nothing but one place takes the value as it is, whatever its type. ERR_INVALID
 * names the place that is missing. */
enum err_code steps_fill(struct arena *arena, const struct json *form, const struct json *input, struct json **out,
                         struct err *err);
/* The parent's result where its tool does not say another: {"steps": {name: {"operation_id", "status", "external_id",
 * "result"}}}. */
struct json *steps_result(struct arena *arena, const struct json *input);

#endif
