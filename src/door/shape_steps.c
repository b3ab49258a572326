#include "door/shape_steps.h"

#include "core/steps.h"

#define ADD(out, literal) buf_add(out, literal, sizeof(literal) - 1)

static void add_text(struct buf *out, const char *text)
{
    if (text)
        json_write_string(out, str_of(text));
    else
        ADD(out, "null");
}

void shape_steps(struct buf *out, const struct operation *op, struct arena *arena, bool withheld)
{
    struct steps_progress progress;
    if (!op->steps.p || steps_read(arena, op->steps, &progress, NULL))
        return;
    ADD(out, ",\"steps\":[");
    for (size_t i = 0; i < progress.count; i++) {
        const struct steps_entry *entry = &progress.entries[i];
        buf_add_text(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        add_text(out, entry->name);
        ADD(out, ",\"tool\":");
        add_text(out, entry->tool);
        ADD(out, ",\"status\":");
        add_text(out, steps_status_name(entry->status));
        ADD(out, ",\"operation_id\":");
        add_text(out, entry->operation);
        if (entry->undo_operation) {
            ADD(out, ",\"undo_operation_id\":");
            add_text(out, entry->undo_operation);
        }
        if (entry->note && !withheld) {
            ADD(out, ",\"note\":");
            add_text(out, entry->note);
        }
        buf_add_char(out, '}');
    }
    buf_add_char(out, ']');
}

/* ---- words ---- */

static const struct steps_entry *first_of(const struct steps_progress *progress, enum steps_status status)
{
    for (size_t i = 0; i < progress->count; i++)
        if (progress->entries[i].status == status)
            return &progress->entries[i];
    return NULL;
}

/* "This was cancelled", "Step charge failed". The rest of the sentence follows. */
static const char *cause_of(struct arena *arena, const struct steps_progress *progress)
{
    const struct steps_entry *failed = first_of(progress, STEPS_FAILED);
    if (progress->cancelled || !failed)
        return "This was cancelled";
    return arena_printf(arena, "Step %s failed", failed->name);
}

/* Reads change nothing: that they are left as they are is nothing to tell. */
static const char *names_of(struct arena *arena, const struct steps_progress *progress, enum steps_status status)
{
    const char *names = "";
    for (size_t i = 0; i < progress->count; i++) {
        const struct steps_entry *entry = &progress->entries[i];
        if (entry->status == status && entry->undo != STEPS_UNDO_NOTHING)
            names = arena_printf(arena, "%s%s%s", names, names[0] ? ", " : "", entry->name);
    }
    return names[0] ? names : NULL;
}

static const char *forward_words(struct arena *arena, const struct operation *op, const struct steps_progress *progress)
{
    const struct steps_entry *runs = first_of(progress, STEPS_RUNNING), *waits = first_of(progress, STEPS_WAITING);
    size_t skipped = steps_count(progress, STEPS_SKIPPED);
    const char *how_far =
        arena_printf(arena, "%zu of %zu steps are done", steps_count(progress, STEPS_DONE), progress->count - skipped);
    if (progress->rolling_back || op->reason == REASON_CANCELLED)
        return arena_printf(arena, "%s; %s%sthen what was done is undone.", cause_of(arena, progress),
                            runs ? runs->name : "", runs ? " is under way and is settled first, " : "");
    if (op->reason == REASON_STEPS_CHANGED || op->reason == REASON_NEEDS_OPERATOR)
        return arena_printf(arena, "%s; the rest waits for a person.", how_far);
    if (runs)
        return arena_printf(arena, "%s; %s is running.", how_far, runs->name);
    return waits ? arena_printf(arena, "%s; %s is next.", how_far, waits->name) : arena_printf(arena, "%s.", how_far);
}

static const char *back_words(struct arena *arena, const struct steps_progress *progress)
{
    const struct steps_entry *stuck = first_of(progress, STEPS_STUCK);
    const char *cause = cause_of(arena, progress);
    if (stuck)
        return arena_printf(arena, "%s; step %s was done and is not undone: a person looks at it.", cause, stuck->name);
    return arena_printf(arena, "%s; what was done is being undone.", cause);
}

static const char *end_words(struct arena *arena, const struct steps_progress *progress)
{
    const char *cause = cause_of(arena, progress);
    const char *undone = names_of(arena, progress, STEPS_UNDONE), *left = names_of(arena, progress, STEPS_LEFT);
    if (left)
        return arena_printf(arena, "%s; %s%s%sleft as it is: %s.", cause, undone ? "undone: " : "",
                            undone ? undone : "", undone ? "; " : "", left);
    return arena_printf(arena, "%s; what was done before has been undone: nothing stands.", cause);
}

const char *shape_steps_message(struct arena *arena, const struct operation *op)
{
    struct steps_progress progress;
    if (!op->steps.p || steps_read(arena, op->steps, &progress, NULL))
        return NULL;
    switch (op->state) {
    case STATE_ACKNOWLEDGED: return forward_words(arena, op, &progress);
    case STATE_COMPENSATING: return back_words(arena, &progress);
    case STATE_COMPENSATED: return end_words(arena, &progress);
    case STATE_FAILED_PERMANENT: return arena_printf(arena, "%s; nothing was changed.", cause_of(arena, &progress));
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_DISPATCHED:
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP:
    case STATE_FAILED_RETRYABLE:
    case STATE_UNKNOWN_OUTCOME:
    case STATE_REJECTED: break;
    }
    return NULL;
}
