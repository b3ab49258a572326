#include "door/message.h"

#include "door/shape_steps.h"

#include <string.h>

/* Bounds of what a caller is told to wait. */
#define RETRY_MIN_MS  500
#define RETRY_MAX_MS  60000
#define RETRY_WIRE_MS 1000
#define RETRY_READ_MS 1000

const char *next_action_name(enum next_action action)
{
    switch (action) {
    case NEXT_USE_RESULT: return "use_result";
    case NEXT_WAIT: return "wait";
    case NEXT_DO_NOT_RETRY: return "do_not_retry";
    case NEXT_FIX_ARGUMENTS: return "fix_arguments";
    case NEXT_ASK_HUMAN: return "ask_human";
    }
    return "";
}

static bool is_read(const struct operation *op)
{
    return op->id[0] == '\0' && op->tool;
}

static enum next_action after_failure(const struct operation *op)
{
    if (op->steps.p) /* another call is a new attempt, unless a person did not want it */
        return op->reason == REASON_CANCELLED ? NEXT_DO_NOT_RETRY : NEXT_FIX_ARGUMENTS;
    if (op->reason == REASON_PROVIDER_REFUSED || op->reason == REASON_BAD_REQUEST)
        return NEXT_FIX_ARGUMENTS;
    return NEXT_ASK_HUMAN;
}

enum next_action shape_next_action(const struct operation *op)
{
    switch (op->state) {
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP: return NEXT_USE_RESULT;
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_ACKNOWLEDGED:
    case STATE_FAILED_RETRYABLE:
    case STATE_COMPENSATING:
        return op->reason == REASON_NEEDS_OPERATOR || op->reason == REASON_STEPS_CHANGED ? NEXT_ASK_HUMAN : NEXT_WAIT;
    case STATE_UNKNOWN_OUTCOME: return op->reason == REASON_NEEDS_OPERATOR && !is_read(op) ? NEXT_ASK_HUMAN : NEXT_WAIT;
    case STATE_FAILED_PERMANENT:
        return is_read(op) && after_failure(op) == NEXT_ASK_HUMAN ? NEXT_WAIT : after_failure(op);
    case STATE_REJECTED: return op->reason == REASON_EXPIRED ? NEXT_ASK_HUMAN : NEXT_DO_NOT_RETRY;
    case STATE_COMPENSATED: return op->steps.p ? after_failure(op) : NEXT_DO_NOT_RETRY;
    }
    return NEXT_ASK_HUMAN;
}

int64_t shape_retry_after_ms(const struct operation *op, int64_t now_ms)
{
    if (shape_next_action(op) != NEXT_WAIT)
        return 0;
    if (is_read(op))
        return RETRY_READ_MS;
    if (op->state == STATE_DISPATCHED)
        return RETRY_WIRE_MS;
    int64_t at_ms = op->state == STATE_PLANNED && op->not_before_ms ? op->not_before_ms : op->wake_at_ms;
    int64_t wait_ms = at_ms - now_ms;
    if (!at_ms || wait_ms < RETRY_MIN_MS)
        return RETRY_MIN_MS;
    return wait_ms < RETRY_MAX_MS ? wait_ms : RETRY_MAX_MS;
}

/* ---- safe_user_message ---- */

static const char *planned_message(enum reason reason)
{
    if (reason == REASON_SCHEDULED)
        return "This is scheduled and has not been done yet.";
    if (reason == REASON_AWAITING_APPROVAL)
        return "This is waiting for approval and has not been done yet.";
    return "This has been recorded and has not been done yet.";
}

static const char *rejected_message(enum reason reason, bool asked_people)
{
    if (reason == REASON_CANCELLED)
        return "This was cancelled before it was done.";
    if (reason == REASON_DENIED)
        return "This was not approved and has not been done.";
    if (reason == REASON_EXPIRED && asked_people)
        return "This was not approved in time and has not been done.";
    if (reason == REASON_EXPIRED)
        return "The time for this was over before it could be done; it has not been done.";
    return "This was refused and has not been done.";
}

static const char *read_message(const struct operation *op)
{
    return op->state == STATE_COMPLETED_SUCCESS || op->state == STATE_COMPLETED_NOOP
               ? "The information was read."
               : "The information could not be read.";
}

static const char *plain_message(const struct operation *op)
{
    switch (op->state) {
    case STATE_PLANNED: return planned_message(op->reason);
    case STATE_PENDING_DISPATCH: return "This has been accepted and has not been done yet.";
    case STATE_DISPATCHED: return "This is under way; it is not known yet whether it was done.";
    case STATE_ACKNOWLEDGED: return "This was accepted by the provider; it is not known yet whether it was done.";
    case STATE_COMPLETED_SUCCESS:
        return op->duplicate_seen ? "This was done, possibly more than once; a person has to check." : "This was done.";
    case STATE_COMPLETED_NOOP: return "Nothing had to be done: it was so already.";
    case STATE_FAILED_RETRYABLE: return "This has not been done yet; it will be tried again.";
    case STATE_FAILED_PERMANENT: return "This was not done.";
    case STATE_UNKNOWN_OUTCOME:
        return op->reason == REASON_NEEDS_OPERATOR
                   ? "It is not known whether this was done; a person has to check."
                   : "It is not known yet whether this was done; that is being checked.";
    case STATE_REJECTED: return rejected_message(op->reason, op->approval.p != NULL);
    case STATE_COMPENSATING: return "This was done and is being undone.";
    case STATE_COMPENSATED: return "This was done and has been undone.";
    }
    return "";
}

/* A parent sends nothing itself: "the provider" would be wrong, and it is known what was done. */
static const char *plain_steps_message(const struct operation *op)
{
    if (op->state == STATE_ACKNOWLEDGED)
        return "This is under way; not all of its steps are done yet.";
    if (op->state == STATE_COMPENSATING)
        return "This was not completed; what was done is being undone.";
    if (op->state == STATE_COMPENSATED)
        return "This was not completed; what was done has been undone.";
    return plain_message(op);
}

const char *shape_message(const struct operation *op, const struct tool *tool)
{
    for (size_t i = 0; tool && i < tool->message_count; i++) {
        if (tool->messages[i].state == op->state)
            return tool->messages[i].text;
    }
    return is_read(op) ? read_message(op) : op->steps.p ? plain_steps_message(op) : plain_message(op);
}

const char *shape_words(struct arena *arena, const struct operation *op, const struct tool *tool)
{
    for (size_t i = 0; tool && i < tool->message_count; i++) {
        if (tool->messages[i].state == op->state)
            return tool->messages[i].text;
    }
    const char *told = shape_steps_message(arena, op);
    return told ? told : shape_message(op, tool);
}

/* ---- note ---- */

static void separate(struct buf *out, size_t start)
{
    if (out->n > start)
        buf_add_text(out, "; ");
}

static void note_of_replay(struct buf *out, const struct operation *op, const struct tool *tool)
{
    bool done = op->state == STATE_COMPLETED_SUCCESS || op->state == STATE_COMPLETED_NOOP;
    char at[ENV_TIME_SIZE];
    env_time_text(state_terminal(op->state) && op->completed_ms ? op->completed_ms : op->created_ms, at);
    if (!state_terminal(op->state)) {
        buf_add_text(out, "joined ");
        buf_add_text(out, op->id);
        buf_add_text(out, ", which was begun at ");
        buf_add_text(out, at);
    } else {
        buf_add_text(out, done ? "already done at " : "already ended at ");
        buf_add_text(out, at);
        buf_add_text(out, " as ");
        buf_add_text(out, op->id);
    }
    bool repeatable = !tool || tool->repeat != REPEAT_DENIED;
    if (done && repeatable)
        buf_add_text(out, "; to do it once more on purpose, call again with repeat_of");
}

void message_note(struct buf *out, const struct operation *op, const struct tool *tool, const struct shape_view *view)
{
    size_t start = out->n;
    if (view->replayed && op->id[0])
        note_of_replay(out, op, tool);
    if (op->approval.p && op->state == STATE_PLANNED && op->reason == REASON_AWAITING_APPROVAL) {
        separate(out, start);
        buf_add_text(out, "people have been asked to approve this; ask again later with its operation_id");
    }
    if (op->approval.p && op->state == STATE_REJECTED && op->reason == REASON_EXPIRED) {
        separate(out, start);
        buf_add_text(out, "nobody decided in time: the same call, made again, asks for approval anew");
    }
    if (view->other_arguments) {
        separate(out, start);
        buf_add_text(out, "the arguments differ from those of the first call; its result is returned");
    }
    if (op->result_dropped) {
        separate(out, start);
        buf_printf(out,
                   op->result.p ? "the result has %lld bytes and is delivered this once; it is not kept"
                                : "the result had %lld bytes, was delivered once and is not kept",
                   (long long)op->result_bytes);
    }
    if (view->withheld) {
        separate(out, start);
        if (view->outside)
            buf_add_text(out, "the token does not cover this operation: arguments and result are not shown");
        else
            buf_printf(out, "the result belongs to %s and is not shown",
                       op->principal ? op->principal : "another principal");
    }
    if (!tool && !view->own_call && (op->result.p || op->error.p || op->arguments.p)) {
        separate(out, start);
        buf_add_text(out,
                     "the tool is no longer registered, so that it is not known what to mask; nothing of it is shown");
    }
}
