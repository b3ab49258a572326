/* Playbooks (design 10.1): how the effect of a tool can be undone. Running one makes an operation of its own, of the
 * compensating tool, whose key names the operation that it undoes: asked for twice, it is done once.
 *
 *   the original                                       the compensation
 *   completed_success ─► compensating       ◄─ one ─►  admitted
 *   compensating      ─► compensated        ◄─ one ─►  completed_success, completed_noop
 *   compensating      ─► completed_success  ◄─ one ─►  failed_permanent, rejected   (incident, escalation)
 *
 * "one": both rows change in one transaction of the ledger. While the compensation's outcome is unknown, the original
 * stays compensating. */
#ifndef CORE_PLAYBOOK_H
#define CORE_PLAYBOOK_H

#include "core/operation.h"

#define PLAYBOOKS_MAX 16            /* of one tool */
#define PLAYBOOK_KEY  "compensate:" /* what the keys of compensations begin with, and no others */

/* Part of struct tool; immutable. */
struct playbook {
    const char *name;        /* unique in its tool */
    const char *tool;        /* the compensating one */
    const char *title;       /* what it does, for people and models; NULL = not said */
    const struct json *form; /* arguments with places in their texts (playbook_fill), or … */
    const void *arguments;   /* … the engine's (jq over playbook_input), owned by the registry, … */
    const void *when;        /* … like the precondition; NULL = none */
    bool needs_approval;     /* also where the compensating tool itself does not ask for one */
    bool proposed;           /* named in incidents of a duplicate effect */
    const char *escalate;    /* what the operator is told when it fails for good; NULL = nothing */
};

/* NULL when the tool has none of that name. */
const struct playbook *playbook_find(const struct tool *tool, const char *name);
/* The one that incidents name, or NULL. */
const struct playbook *playbook_proposed(const struct tool *tool);

/* The key of a compensation. */
const char *playbook_key(struct arena *arena, const char *operation, const char *playbook);

/* What arguments and precondition see: {"arguments", "result", "external_id", "operation_id", "tool", "run_id"}; what
 * is not there is null. */
const struct json *playbook_input(struct arena *arena, const struct operation *op);

/* form with its places filled: {name} and {a.b} from the original's arguments, {$external_id}, {$operation}, {$run} and
 * {$result.a.b}. A text that is nothing but one place takes the value as it is, whatever its type. ERR_INVALID names
 * the place that is missing. */
enum err_code playbook_fill(struct arena *arena, const struct json *form, const struct operation *op, struct json **out,
                            struct err *err);

/* Whether a move of a compensation settles what becomes of the operation that it undoes. */
bool playbook_settles(enum state from, const struct operation *to);

#endif
