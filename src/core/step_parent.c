/* The parent of a multi-step tool's steps (design 10.2): what its progress tells, as moves of its row. */
#include "core/step_parts.h"
#include "core/steps.h"

#include <assert.h>

#define CHANGED_MS 60000 /* until it is looked again whether a reload has brought a tool or its list back */

bool step_is_parent(const struct operation *op)
{
    return op->steps.p != NULL;
}

/* On its way, forward or back: its steps' moves are news to it. */
static bool under_way(const struct operation *op, const struct steps_progress *progress)
{
    return op->state == STATE_ACKNOWLEDGED || (op->state == STATE_COMPENSATING && progress->rolling_back);
}

static void save(struct ctx *c, const struct steps_progress *progress)
{
    c->op->steps = steps_write(c->in->arena, progress);
    c->fx->changed = true;
}

/* What we wrote ourselves: only a damaged ledger has something else there. */
static bool read(struct ctx *c, struct steps_progress *progress)
{
    assert(c->in->arena);
    return steps_read(c->in->arena, c->op->steps, progress, NULL) == ERR_NONE;
}

static const char *words(struct ctx *c, const struct steps_entry *entry, const char *what, const char *more)
{
    return arena_printf(c->in->arena, "step %s %s%s%s", entry->name, what, more ? ": " : "", more ? more : "");
}

/* ---- its turn ---- */

void step_run_steps(struct ctx *c)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    assert(step_is_parent(op) && c->tool && c->tool->steps);
    assert(op->state == STATE_PLANNED || op->state == STATE_PENDING_DISPATCH);
    steps_start(c->tool->steps, &progress); /* as the list is now: nothing of the former one has begun */
    save(c, &progress);
    step_move(c, CAUSE_STEP, STATE_ACKNOWLEDGED, REASON_RUNNING_STEPS, NULL);
    step_wake_at(op, c->in->now_ms);
}

/* ---- forward ---- */

/* Nothing else may be under way, and nothing before it be open, undone or failed. */
static struct steps_entry *entry_next(struct ctx *c, struct steps_progress *progress, enum steps_next_kind kind)
{
    bool readable = read(c, progress);
    assert(readable);
    struct steps_next next = steps_next(progress);
    assert(next.kind == kind && next.at == c->in->at);
    return &progress->entries[next.at];
}

void step_begin(struct ctx *c)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    assert(op->state == STATE_ACKNOWLEDGED && c->in->child);
    struct steps_entry *entry = entry_next(c, &progress, STEPS_NEXT_BEGIN);
    entry->status = STEPS_RUNNING;
    entry->operation = c->in->child;
    entry->note = NULL;
    entry->held_since_ms = 0;
    op->may_have_applied = true;
    save(c, &progress);
    step_move(c, CAUSE_STEP, STATE_ACKNOWLEDGED, REASON_RUNNING_STEPS, words(c, entry, "begins", entry->operation));
    step_wake_at(op, 0); /* the step's end wakes it, in the same transaction */
}

void step_pass_over(struct ctx *c)
{
    struct steps_progress progress;
    bool fails = c->in->kind == STEP_FAIL_STEP;
    struct steps_entry *entry = entry_next(c, &progress, STEPS_NEXT_BEGIN);
    entry->status = fails ? STEPS_FAILED : STEPS_SKIPPED;
    entry->note = c->in->note;
    entry->held_since_ms = 0;
    save(c, &progress);
    step_move(c, CAUSE_STEP, c->op->state, REASON_RUNNING_STEPS,
              words(c, entry, fails ? "can not begin" : "is skipped", c->in->note));
    step_wake_at(c->op, c->in->now_ms);
}

void step_hold_step(struct ctx *c)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    bool readable = read(c, &progress);
    assert(readable && c->in->at < progress.count);
    struct steps_entry *entry = &progress.entries[c->in->at];
    if (entry->held_since_ms == 0)
        entry->held_since_ms = c->in->now_ms;
    save(c, &progress);
    if (op->reason != c->in->hold_reason)
        step_move(c, CAUSE_HELD, op->state, c->in->hold_reason,
                  c->in->note ? words(c, entry, "waits", c->in->note) : NULL);
    step_wake_at(op, c->in->hold_until_ms);
}

/* ---- back ---- */

void step_undo(struct ctx *c)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    assert(op->state == STATE_COMPENSATING && c->in->compensation);
    struct steps_entry *entry = entry_next(c, &progress, STEPS_NEXT_UNDO);
    entry->status = STEPS_UNDOING;
    entry->undo_operation = c->in->compensation;
    entry->note = NULL;
    entry->held_since_ms = 0;
    save(c, &progress);
    step_move(c, CAUSE_STEP, STATE_COMPENSATING, REASON_ROLLING_BACK,
              words(c, entry, "is being undone", entry->undo_operation));
    step_wake_at(op, 0); /* the compensation's end wakes it */
}

void step_not_undone(struct ctx *c)
{
    struct steps_progress progress;
    struct steps_entry *entry = entry_next(c, &progress, STEPS_NEXT_UNDO);
    entry->status = STEPS_STUCK;
    entry->note = c->in->note;
    save(c, &progress);
    step_note(c, CAUSE_STEP, c->op->state, words(c, entry, "can not be undone", c->in->note));
    step_wake_at(c->op, c->in->now_ms);
}

static void finish_failed(struct ctx *c, const struct steps_progress *progress, enum state to, enum reason reason)
{
    c->op->error = steps_error(c->in->arena, progress);
    step_end(c, CAUSE_STEP, to, progress->cancelled ? REASON_CANCELLED : reason, progress->rolling_back);
}

void step_finish(struct ctx *c)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    entry_next(c, &progress, STEPS_NEXT_SUCCEED);
    op->result = c->in->finding.result;
    op->result_bytes = (int64_t)op->result.n;
    op->error = STR_NONE;
    step_end(c, CAUSE_STEP, STATE_COMPLETED_SUCCESS, REASON_NONE, c->in->note);
}

/* ---- what is next ---- */

/* It waits for others: they wake it. */
static void rest(struct ctx *c)
{
    if (!c->op->owner && c->op->wake_at_ms == 0)
        return;
    step_wake_at(c->op, 0);
    c->fx->changed = true;
}

static void want_begin(struct ctx *c, const struct steps_progress *progress, size_t at)
{
    bool same = c->tool && text_equal(c->tool->steps->digest, progress->digest);
    enum reason reason = c->tool ? REASON_STEPS_CHANGED : REASON_TOOL_MISSING;
    if (same) {
        c->fx->action = ACTION_BEGIN_STEP;
        c->fx->at = at;
        return;
    }
    if (c->op->reason != reason)
        step_move(c, CAUSE_HELD, c->op->state, reason,
                  c->tool ? "the registry has another list of steps now: it goes on with the former list, or is "
                            "cancelled"
                          : "the registry has no such tool");
    step_wake_at(c->op, c->in->now_ms + CHANGED_MS);
    c->fx->changed = true;
}

/* Once for each step that is stuck: the driver comes by here only when something has moved. */
static void ask_people(struct ctx *c, struct steps_progress *progress, size_t at)
{
    struct steps_entry *entry = &progress->entries[at];
    if (c->op->reason == REASON_NEEDS_OPERATOR) {
        rest(c);
        return;
    }
    if (entry->status != STEPS_STUCK) {
        entry->status = STEPS_STUCK;
        entry->note = "no playbook undoes it";
    }
    save(c, progress);
    const char *text = words(c, entry, "could not be undone", entry->note);
    step_incident(c, INCIDENT_COMPENSATION_FAILED, text);
    step_move(c, CAUSE_STEP, STATE_COMPENSATING, REASON_NEEDS_OPERATOR, text);
    step_wake_at(c->op, 0);
}

/* What a rule leaves as it is needs nobody. */
static struct steps_next pass_by(struct ctx *c, struct steps_progress *progress)
{
    struct steps_next next = steps_next(progress);
    while (next.kind == STEPS_NEXT_TURN || next.kind == STEPS_NEXT_LEAVE) {
        if (next.kind == STEPS_NEXT_TURN)
            steps_turn(c->in->arena, progress, next.at);
        else
            progress->entries[next.at].status = STEPS_LEFT;
        save(c, progress);
        next = steps_next(progress);
    }
    return next;
}

static void roll_back(struct ctx *c, const struct steps_progress *progress)
{
    save(c, progress);
    step_move(c, CAUSE_STEP, STATE_COMPENSATING, REASON_ROLLING_BACK, progress->rolling_back);
    step_wake_at(c->op, c->in->now_ms);
}

void step_wake_parent(struct ctx *c)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    if (!read(c, &progress)) {
        if (op->reason != REASON_NEEDS_OPERATOR)
            step_move(c, CAUSE_HELD, op->state, REASON_NEEDS_OPERATOR, "the progress of its steps can not be read");
        rest(c);
        return;
    }
    if (!under_way(op, &progress)) {
        rest(c);
        return;
    }
    struct steps_next next = pass_by(c, &progress);
    bool begins_back = op->state == STATE_ACKNOWLEDGED && progress.rolling_back;
    switch (next.kind) {
    case STEPS_NEXT_BEGIN: want_begin(c, &progress, next.at); break;
    case STEPS_NEXT_WAIT:
        if (begins_back) { /* cancelled: what has not left yet needs not leave */
            c->fx->action = ACTION_CANCEL_STEP;
            c->fx->at = next.at;
        } else {
            rest(c);
        }
        break;
    case STEPS_NEXT_UNDO:
        if (begins_back) {
            roll_back(c, &progress);
        } else if (c->fx->changed) { /* what was left by rule is written first */
            step_wake_at(op, c->in->now_ms);
        } else {
            c->fx->action = ACTION_UNDO_STEP;
            c->fx->at = next.at;
        }
        break;
    case STEPS_NEXT_STUCK:
        if (begins_back)
            roll_back(c, &progress);
        else
            ask_people(c, &progress, next.at);
        break;
    case STEPS_NEXT_SUCCEED: c->fx->action = ACTION_FINISH_STEPS; break;
    case STEPS_NEXT_FAIL: finish_failed(c, &progress, STATE_FAILED_PERMANENT, REASON_STEP_FAILED); break;
    case STEPS_NEXT_END:
        if (begins_back)
            roll_back(c, &progress);
        else
            finish_failed(c, &progress, STATE_COMPENSATED, REASON_ROLLED_BACK);
        break;
    case STEPS_NEXT_TURN:
    case STEPS_NEXT_LEAVE: break; /* passed by */
    }
}

/* ---- what its steps tell ---- */

/* The parent has ended: nobody undoes anything any more. */
static void told_late(struct ctx *c, const struct steps_entry *entry)
{
    bool against = entry->status == STEPS_DONE && c->op->state != STATE_COMPLETED_SUCCESS;
    const char *text = words(c, entry, steps_status_name(entry->status), entry->operation);
    if (against)
        step_incident(c, INCIDENT_CONTRADICTION,
                      words(c, entry, "has happened after all, and was not undone", entry->operation));
    step_note(c, CAUSE_STEP, c->op->state, text);
}

void step_told(struct ctx *c)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    const struct operation *told = c->in->told;
    if (!step_is_parent(op) || !read(c, &progress))
        return;
    size_t at = steps_entry_of(&progress, told->id);
    if (at == progress.count || !text_equal(progress.entries[at].operation, told->id))
        return;
    struct steps_entry *entry = &progress.entries[at];
    if (!steps_take(c->in->arena, entry, told))
        return;
    if (entry->status == STEPS_STUCK && c->in->note)
        entry->note = arena_printf(c->in->arena, "%s; %s", entry->note, c->in->note);
    save(c, &progress);
    if (!under_way(op, &progress)) {
        told_late(c, entry);
        return;
    }
    bool decided = op->state == STATE_COMPENSATING && steps_count(&progress, STEPS_STUCK) == 0;
    enum reason reason = decided && op->reason == REASON_NEEDS_OPERATOR ? REASON_ROLLING_BACK : op->reason;
    step_move(c, CAUSE_STEP, op->state, reason, words(c, entry, steps_status_name(entry->status), entry->note));
    step_wake_at(op, c->in->now_ms);
}

/* ---- people ---- */

enum err_code step_cancel_parent(struct ctx *c, struct err *err)
{
    struct operation *op = c->op;
    struct steps_progress progress;
    if (!read(c, &progress))
        return err_set(err, ERR_CONFLICT, "the progress of its steps can not be read");
    if (op->state != STATE_ACKNOWLEDGED || progress.rolling_back)
        return err_set(err, ERR_CONFLICT, "the operation is being rolled back already");
    progress.cancelled = true;
    progress.rolling_back = arena_printf(c->in->arena, "cancelled by %s%s%s", c->in->actor ? c->in->actor : "onced",
                                         c->in->note && c->in->note[0] ? ": " : "", c->in->note ? c->in->note : "");
    save(c, &progress);
    step_move(c, CAUSE_CANCEL, STATE_ACKNOWLEDGED, REASON_CANCELLED, c->in->note);
    step_wake_at(op, c->in->now_ms);
    return ERR_NONE;
}

static struct steps_entry *stuck_entry(struct ctx *c, struct steps_progress *progress)
{
    if (!read(c, progress) || !under_way(c->op, progress))
        return NULL;
    struct steps_next next = steps_next(progress);
    bool stuck = next.kind == STEPS_NEXT_STUCK && progress->entries[next.at].status == STEPS_STUCK;
    return stuck ? &progress->entries[next.at] : NULL;
}

static void go_on(struct ctx *c, struct steps_progress *progress, const char *text)
{
    save(c, progress);
    step_move(c, CAUSE_OPERATOR, STATE_COMPENSATING, REASON_ROLLING_BACK, text);
    step_wake_at(c->op, c->in->now_ms);
}

enum err_code step_resolve_parent(struct ctx *c, struct err *err)
{
    struct steps_progress progress;
    struct steps_entry *entry = stuck_entry(c, &progress);
    if (!entry)
        return err_set(err, ERR_CONFLICT,
                       "the operation is %s: only a step that could not be undone is to be decided on here; what is "
                       "open of a single step is resolved at the step's own operation",
                       state_name(c->op->state));
    entry->status = c->in->happened ? STEPS_LEFT : STEPS_UNDONE;
    entry->note = c->in->note;
    go_on(c, &progress, words(c, entry, c->in->happened ? "is left as it is" : "was undone by hand", c->in->note));
    return ERR_NONE;
}

enum err_code step_retry_parent(struct ctx *c, struct err *err)
{
    struct steps_progress progress;
    struct steps_entry *entry = stuck_entry(c, &progress);
    if (!entry)
        return err_set(err, ERR_CONFLICT, "the operation is %s, and no step of it waits to be undone once more",
                       state_name(c->op->state));
    if (entry->undo != STEPS_UNDO_PLAYBOOK)
        return err_set(err, ERR_CONFLICT, "no playbook undoes step %s: resolve the operation instead", entry->name);
    entry->status = STEPS_DONE;
    go_on(c, &progress, words(c, entry, "is to be undone once more", c->in->note));
    return ERR_NONE;
}
