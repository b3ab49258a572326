/* What the files of step() share. Not for others. */
#ifndef CORE_STEP_PARTS_H
#define CORE_STEP_PARTS_H

#include "core/step.h"

/* One step in the making. */
struct ctx {
    struct operation *op;
    const struct tool *tool;
    const struct step_input *in;
    struct step_effects *fx;
};

/* step.c */
void step_note(struct ctx *c, enum cause cause, enum state from, const char *text);
void step_incident(struct ctx *c, enum incident_kind kind, const char *text);
/* The one function that moves. */
void step_move(struct ctx *c, enum cause cause, enum state to, enum reason reason, const char *text);
/* Into a terminal state. */
void step_end(struct ctx *c, enum cause cause, enum state to, enum reason reason, const char *text);
/* Gives the lease back; 0: never by itself. */
void step_wake_at(struct operation *op, int64_t at_ms);

/* step_parent.c: parents of steps */
void step_run_steps(struct ctx *c);
void step_begin(struct ctx *c);
void step_pass_over(struct ctx *c); /* skipped, or failed without an operation */
void step_hold_step(struct ctx *c);
void step_undo(struct ctx *c);
void step_not_undone(struct ctx *c);
void step_finish(struct ctx *c);
void step_wake_parent(struct ctx *c); /* acknowledged or compensating; the tool may be missing */
void step_told(struct ctx *c);
enum err_code step_cancel_parent(struct ctx *c, struct err *err);
enum err_code step_resolve_parent(struct ctx *c, struct err *err);
enum err_code step_retry_parent(struct ctx *c, struct err *err);

#endif
