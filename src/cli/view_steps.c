#include "cli/view_steps.h"

#include "core/state.h"

static const struct json *list_of(const struct json *operation)
{
    const struct json *steps = json_get(operation, "steps");
    return steps && steps->type == JSON_ARRAY ? steps : NULL;
}

bool view_has_steps(const struct json *operation)
{
    return list_of(operation) != NULL;
}

static enum out_style style_of(struct str status)
{
    static const struct {
        const char *name;
        enum out_style style;
    } styles[] = {
        {"done", OUT_GREEN},    {"undone", OUT_GREEN}, {"running", OUT_CYAN}, {"undoing", OUT_YELLOW},
        {"skipped", OUT_PLAIN}, {"left", OUT_YELLOW},  {"failed", OUT_RED},   {"stuck", OUT_RED},
    };
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (str_is(status, styles[i].name))
            return styles[i].style;
    return OUT_DIM;
}

static size_t widest(const struct json *steps, const char *member)
{
    size_t most = 0;
    for (uint32_t i = 0; i < steps->count; i++) {
        size_t n = json_get_text(&steps->items[i], member).n;
        most = n > most ? n : most;
    }
    return most;
}

/* Names of steps and tools are ASCII. */
static void cell(struct out *out, enum out_style style, struct str text, size_t width)
{
    out_str(out, style, text);
    out_printf(out, "%*s", (int)(width > text.n ? width - text.n : 0) + 2, "");
}

static void view_step(struct out *out, const struct json *step, size_t name_width, size_t tool_width)
{
    struct str operation = json_get_text(step, "operation_id"), undo = json_get_text(step, "undo_operation_id");
    struct str status = json_get_text(step, "status"), note = json_get_text(step, "note");
    out_printf(out, "    ");
    cell(out, style_of(status), status, 7);
    cell(out, OUT_BOLD, json_get_text(step, "name"), name_width);
    cell(out, OUT_PLAIN, json_get_text(step, "tool"), tool_width);
    out_str(out, OUT_PLAIN, operation.n > 0 ? operation : STR("–"));
    if (undo.n > 0) {
        out_printf(out, "  undone by ");
        out_str(out, OUT_PLAIN, undo);
    }
    out_printf(out, "\n");
    if (note.n > 0) {
        out_printf(out, "             ");
        out_str(out, OUT_DIM, note);
        out_printf(out, "\n");
    }
}

void view_steps(struct out *out, const struct json *operation)
{
    const struct json *steps = list_of(operation);
    if (!steps)
        return;
    size_t name_width = widest(steps, "name"), tool_width = widest(steps, "tool");
    out_printf(out, "  ");
    out_text(out, OUT_DIM, "steps");
    out_printf(out, "\n");
    for (uint32_t i = 0; i < steps->count; i++)
        view_step(out, &steps->items[i], name_width, tool_width);
}

static bool state_of(const struct json *operation, enum state *state)
{
    return state_from_name(json_get_text(operation, "status"), state);
}

static const struct json *first_of(const struct json *operation, const char *status)
{
    const struct json *steps = list_of(operation);
    for (uint32_t i = 0; steps && i < steps->count; i++)
        if (str_is(json_get_text(&steps->items[i], "status"), status))
            return &steps->items[i];
    return NULL;
}

const char *view_steps_effect(const struct json *operation)
{
    enum state state;
    if (!state_of(operation, &state))
        return "not known";
    switch (state) {
    case STATE_ACKNOWLEDGED:
        return first_of(operation, "done") ? "in part: its steps are under way"
                                           : "possible: its first step is under way";
    case STATE_COMPENSATING: return "in part: what was done is being undone";
    case STATE_COMPENSATED:
        return first_of(operation, "left") ? "in part: the rest is undone, or was not done" : "what was done is undone";
    case STATE_FAILED_PERMANENT: return "proven: nothing of it happened";
    case STATE_PLANNED:
    case STATE_PENDING_DISPATCH:
    case STATE_REJECTED: return "none: nothing was sent";
    case STATE_COMPLETED_SUCCESS:
    case STATE_COMPLETED_NOOP: return "proven: it happened";
    case STATE_DISPATCHED:
    case STATE_FAILED_RETRYABLE:
    case STATE_UNKNOWN_OUTCOME: break;
    }
    return "not known";
}

static void line(struct out *out, const char *before, struct str id, const char *after)
{
    out_printf(out, "    %s", before);
    out_str(out, OUT_PLAIN, id);
    out_printf(out, "%s\n", after);
}

static void next_stuck(struct out *out, const struct json *step, struct str id)
{
    out_printf(out, "    Step ");
    out_str(out, OUT_BOLD, json_get_text(step, "name"));
    out_printf(out, " was done and could not be undone; what was done before it waits for your word:\n");
    line(out, "onced resolve ", id, " --did-not-happen --note 'how'   it is undone by hand");
    line(out, "onced resolve ", id, " --happened --note 'why'   it stays as it is");
    line(out, "onced retry ", id, " --note 'why'   has its playbook run once more");
}

void view_steps_next(struct out *out, const struct json *operation)
{
    enum state state;
    struct str id = json_get_text(operation, "operation_id");
    const struct json *stuck = first_of(operation, "stuck"), *running = first_of(operation, "running");
    if (!id.p || !state_of(operation, &state) ||
        (state_terminal(state) && state != STATE_FAILED_PERMANENT && state != STATE_COMPENSATED &&
         state != STATE_REJECTED))
        return;
    out_printf(out, "  ");
    out_text(out, OUT_DIM, "next");
    out_printf(out, "\n");
    if (state_terminal(state)) {
        out_printf(out, "    It is over. The same call, made again, is a new attempt.\n");
        return;
    }
    if (state == STATE_COMPENSATING && stuck) {
        next_stuck(out, stuck, id);
        return;
    }
    if (running && json_get_text(running, "operation_id").n > 0)
        line(out, "onced show ", json_get_text(running, "operation_id"), "   the step that runs");
    line(out, "onced show ", id, " --wait 60s   waits for its end");
    if (state != STATE_COMPENSATING)
        line(out, "onced cancel ", id, " --note 'why'   begins no further step, and undoes what was done");
}
