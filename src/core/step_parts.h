/* What the files of step() share. Not for others. */
#ifndef CORE_STEP_PARTS_H
#define CORE_STEP_PARTS_H

#include "core/step.h"

#define TOOL_MISSING_MS 60000 /* until it is looked again whether a reload has brought a missing tool back */

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

/* step_time.c: time and leases; what needs the tool's policies says so */
int64_t step_doubled(int64_t base_ms, int times, int64_t max_ms);
int64_t step_backoff(const struct ctx *c); /* ms; needs the tool */
void step_take_lease(struct ctx *c);
/* Gives the lease back; 0: never by itself. */
void step_wake_at(struct operation *op, int64_t at_ms);
bool step_total_is_over(const struct operation *op, const struct tool *tool, int64_t now_ms);
bool step_time_is_up(const struct ctx *c);      /* needs the tool */
bool step_attempts_are_up(const struct ctx *c); /* needs the tool */

/* step_end.c: endings */
void step_start_watch(struct operation *op);
void step_schedule_closed(struct ctx *c); /* of a terminal row; the tool may be missing */
void step_keep(struct ctx *c);
/* Into a terminal state. */
void step_end(struct ctx *c, enum cause cause, enum state to, enum reason reason, const char *text);
void step_take_result(struct operation *op, const struct finding *finding);
/* With the finding's result. */
void step_succeed(struct ctx *c, enum cause cause, enum reason reason, const char *text);
/* Proven no effect, and not to be tried again. */
void step_fail(struct ctx *c, enum cause cause, enum reason reason, const char *text);
/* Proven no effect: again after delay_ms unless time is up. Needs the tool. */
void step_fail_retryable(struct ctx *c, enum cause cause, enum reason reason, int64_t delay_ms, const char *text);

/* step_unknown.c: reconciliation */
bool step_has_strategy(const struct tool *tool, enum strategy strategy);
/* Whether what leaves at sent_ms arrives while the provider still knows the first request's key. */
bool step_key_is_known(const struct operation *op, const struct tool *tool, int64_t sent_ms);
enum strategy step_next_strategy(const struct operation *op, const struct tool *tool, int64_t now_ms);
void step_give_to_operator(struct ctx *c, enum cause cause, const char *text);
int64_t step_lookup_delay(const struct ctx *c);                   /* ms */
int64_t step_event_until(const struct tool *tool, int64_t since); /* when waiting for its event ends */
void step_wait_for_outcome(struct ctx *c);                        /* accepted: the provider will finish later */
void step_sent_until(struct operation *op, int64_t at_ms);        /* a request may have left up to then */
/* Enters or stays in unknown_outcome and plans what comes next; the tool may be missing. */
void step_become_unknown(struct ctx *c, enum cause cause, enum reason reason, const char *text);

/* step_answer.c, step_lookup.c: both need the tool */
void step_answer(struct ctx *c);
void step_lookup_answer(struct ctx *c);

/* step_wake.c: its turn, its time */
void step_leave_queue(struct ctx *c); /* from here on time is the provider's */
void step_await_entity(struct ctx *c);
void step_dispatch(struct ctx *c);
void step_hold(struct ctx *c);
void step_renew(struct ctx *c);
void step_lookup_begin(struct ctx *c);
void step_owner_gone(struct ctx *c);
void step_wake(struct ctx *c); /* needs the tool */
void step_wake_without_tool(struct ctx *c);

/* step_approval.c */
bool step_wait_for_approval(struct ctx *c); /* true: it still waits for people, or has waited too long; dealt with */
bool step_approval_is_void(struct ctx *c);  /* given for another policy or request than the tool's is now */
void step_ask_anew(struct ctx *c);
enum err_code step_decide(struct ctx *c, struct err *err);
enum err_code step_link_made(struct ctx *c, struct err *err);

/* step_people.c */
enum err_code step_resolve(struct ctx *c, struct err *err);
enum err_code step_retry(struct ctx *c, struct err *err);
enum err_code step_cancel(struct ctx *c, struct err *err);

/* step_compensation.c: the operation that is undone */
enum err_code step_compensate(struct ctx *c, struct err *err);
void step_compensation_ended(struct ctx *c);

/* step_evidence.c, step_inbound.c */
void step_evidence(struct ctx *c);
void step_inbound(struct ctx *c);

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
