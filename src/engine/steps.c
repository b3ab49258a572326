/* Drives the steps of a multi-step tool (design 10.2). The parent's progress says what is next; whatever begins or
 * undoes a step is admitted together with the parent's move, so that a driver that looks at an old parent begins
 * nothing.
 *
 *   begin ──► what former steps gave ─► condition, arguments ─► admission of the step, with the parent's move
 *   undo ───► its playbook (compensate.c) ────────────────────► admission of what undoes it, likewise
 *   cancel ─► the step's operation, if nothing of it has left
 *   finish ─► what the steps gave ────────────────────────────► the parent's result
 *
 * The driver then lets go of the parent. The end of what it has admitted moves the parent, in the ledger, and wakes it:
 * after a crash as before it. */
#include "engine/internal.h"

#include "adapter/jq.h"
#include "base/log.h"
#include "base/mark.h"
#include "core/steps.h"

#include <assert.h>

#define CANCEL_AGAIN_MS 60000 /* a cancelled parent looks so often whether its running step can be stopped by now */
#define MISSING_MS      60000 /* until it is looked again whether a reload has brought a step's tool */
#define TAKEN_MS        60000 /* until it is looked again at a key that should be free and is not */

struct drive {
    struct flight *flight; /* of the parent; the drive lies in its arena */
    enum step_action action;
    size_t at;   /* which step */
    size_t next; /* to be loaded */
    struct steps_progress progress;
    const struct operation *steps[STEPS_MAX];
};

static struct steps_entry *entry_of(struct drive *drive)
{
    return &drive->progress.entries[drive->at];
}

/* ---- the parent's own moves ---- */

static void answer_step(struct drive *drive, enum step_kind kind, const char *note)
{
    struct step_input in = {.kind = kind, .at = drive->at, .note = arena_copy_text(&drive->flight->arena, note)};
    drive->flight->phase = PHASE_NEW;
    flight_step(drive->flight, &in, AFTER_GO_ON, NULL);
}

static void hold_step(struct drive *drive, enum reason reason, int64_t until_ms, const char *note)
{
    struct flight *flight = drive->flight;
    struct step_input in = {
        .kind = STEP_HOLD_STEP,
        .at = drive->at,
        .hold_reason = reason,
        .hold_until_ms = until_ms,
        .note = arena_copy_text(&flight->arena, note),
    };
    flight->phase = PHASE_NEW;
    if (flight->engine->stopping) { /* as it is, the next start finds it due */
        flight_free(flight);
        return;
    }
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

/* ---- what an admission says ---- */

/* It could pass later; how long that is worth waiting for is the step's tool's total time. */
static bool hold_for_policy(struct drive *drive, const struct engine_reply *reply)
{
    const struct steps_entry *entry = entry_of(drive);
    int64_t now_ms = engine_now(drive->flight->engine), since_ms = entry->held_since_ms ? entry->held_since_ms : now_ms;
    int64_t until_ms = reply->refusal ? reply->refusal->until_ms : 0;
    if (until_ms == 0 || !reply->tool || until_ms >= since_ms + reply->tool->retry.total_ms)
        return false;
    hold_step(drive, REASON_AWAITING_BUDGET, until_ms > now_ms ? until_ms : now_ms + HOLD_MS, reply->err->text);
    return true;
}

/* What came of it is written with the parent's move already: this copy of the parent is an old one. */
static void let_go(struct drive *drive)
{
    struct flight *flight = drive->flight;
    flight->phase = PHASE_NEW;
    flight_free(flight);
}

static void admitted(void *user, const struct engine_reply *reply)
{
    struct drive *drive = user;
    struct flight *flight = drive->flight;
    bool undo = drive->action == ACTION_UNDO_STEP;
    enum reason going = undo ? REASON_ROLLING_BACK : REASON_RUNNING_STEPS;
    int64_t now_ms = engine_now(flight->engine);
    switch (reply->kind) {
    case REPLY_OPERATION:
        if (!reply->replayed)
            let_go(drive);
        else if (undo) /* begun before, so that the parent has been told: then this look at it is an old one */
            hold_step(drive, going, now_ms + HOLD_MS, NULL);
        else
            hold_step(drive, REASON_NEEDS_OPERATOR, now_ms + TAKEN_MS, "another operation has its key");
        return;
    case REPLY_STALE: flight_reload(flight); return;
    case REPLY_UNAVAILABLE: hold_step(drive, going, now_ms + HOLD_MS, NULL); return;
    case REPLY_NO_TOOL: hold_step(drive, REASON_TOOL_MISSING, now_ms + MISSING_MS, entry_of(drive)->tool); return;
    case REPLY_POLICY:
        if (hold_for_policy(drive, reply))
            return;
        break;
    case REPLY_NOT_FOUND:
    case REPLY_EXPIRED:
    case REPLY_READ:
    case REPLY_PLAN:
    case REPLY_REFUSED:
    case REPLY_CONFLICT:
    case REPLY_NOT_SHARED:
    case REPLY_HELD:
    case REPLY_REPEAT:
    case REPLY_IMPOSSIBLE: break;
    }
    answer_step(drive, undo ? STEP_NOT_UNDONE : STEP_FAIL_STEP,
                reply->err->text[0] ? reply->err->text : "the ledger no longer has what it needs");
}

enum err_code flight_move_parent(struct flight *flight, const struct admit_as *as, struct err *err)
{
    struct arena *arena = &flight->arena;
    struct engine *engine = flight->engine;
    struct operation *parent = operation_copy(arena, as->parent);
    struct ledger_transition *change = arena_zero(arena, sizeof *change);
    struct step_effects effects;
    struct step_input in = {
        .kind = as->undone ? STEP_UNDO_STEP : STEP_BEGIN_STEP,
        .now_ms = engine_now(engine),
        .arena = arena,
        .at = as->at,
        .child = flight->op.id,
        .compensation = flight->op.id,
    };
    bool owned = text_equal(as->parent->owner, engine->incarnation);
    enum err_code code = step(parent, NULL, &in, &effects, err);
    if (code)
        return code;
    *change = (struct ledger_transition){
        .op = parent,
        .fence = owned ? engine->incarnation : NULL,
        .unheld = !owned,
        .event_count = effects.event_count,
    };
    memcpy(change->events, effects.events, effects.event_count * sizeof *effects.events);
    flight->request.admit.parent = change;
    return ERR_NONE;
}

/* ---- begin ---- */

static const struct json *input_of(struct drive *drive)
{
    struct flight *flight = drive->flight;
    return steps_input(&flight->arena, &flight->op, &drive->progress, drive->steps);
}

/* ERR_…: the words say what can not be worked out. */
static enum err_code work_out(struct drive *drive, const struct steps_item *item, bool *holds, struct json **arguments,
                              struct err *err)
{
    struct arena *arena = &drive->flight->arena;
    const struct json *input = input_of(drive);
    *holds = true;
    if (item->when && jq_program_test((struct jq_program *)item->when, input, holds, err))
        return err_prefix(err, "its condition can not be judged: "), err->code;
    if (!*holds)
        return ERR_NONE;
    if (item->form ? steps_fill(arena, item->form, input, arguments, err)
                   : jq_program_run((struct jq_program *)item->arguments, arena, input, NULL, arguments, err))
        return err_prefix(err, "its arguments: "), err->code;
    if ((*arguments)->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "its arguments are no object");
    return ERR_NONE;
}

static void begin_step(struct drive *drive)
{
    struct flight *flight = drive->flight;
    const struct operation *parent = &flight->op;
    const struct steps_item *item = &flight->tool->steps->items[drive->at];
    struct json *arguments = NULL;
    struct err err = {0};
    bool holds;
    if (work_out(drive, item, &holds, &arguments, &err)) {
        answer_step(drive, STEP_FAIL_STEP, err.text);
        return;
    }
    if (!holds) {
        answer_step(drive, STEP_SKIP_STEP, NULL);
        return;
    }
    struct engine_call *call = arena_zero(&flight->arena, sizeof *call);
    *call = (struct engine_call){
        .tool = item->tool,
        .wait_ms = -1,
        .async = true,
        .call = {.tenant = parent->tenant,
                 .principal = parent->principal,
                 .arguments = arguments,
                 .workflow = parent->workflow,
                 .run = parent->run,
                 .step = item->name,
                 .session = parent->session,
                 .trace = parent->trace,
                 .parent = parent->id},
    };
    const struct admit_as as = {.parent = parent, .at = drive->at};
    MARK(step_admitting);
    engine_admit(flight->engine, call, &as, admitted, drive);
}

/* ---- finish ---- */

/* All is done: that its result can not be made as the tool wants it changes nothing of that. */
static void finish(struct drive *drive)
{
    struct flight *flight = drive->flight;
    struct arena *arena = &flight->arena;
    const struct tool *tool = flight->tool;
    const struct json *input = input_of(drive);
    bool own = tool && tool->steps->result && text_equal(tool->steps->digest, drive->progress.digest);
    struct json *result = NULL;
    struct err err = {0};
    struct step_input in = {.kind = STEP_FINISH_STEPS};
    if (own && jq_program_run((struct jq_program *)tool->steps->result, arena, input, NULL, &result, &err))
        in.note = arena_printf(arena, "the tool's own result can not be made: %s", err.text);
    if (!result)
        result = steps_result(arena, input);
    in.finding.result = json_to_text(arena, result);
    flight->phase = PHASE_NEW;
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

/* ---- cancel ---- */

/* Stopped: then its end has moved the parent, and this is an old copy; or it goes on until it is known how it ended. */
static void step_cancelled(void *user, const struct engine_reply *reply)
{
    struct drive *drive = user;
    (void)reply;
    hold_step(drive, REASON_CANCELLED, engine_now(drive->flight->engine) + CANCEL_AGAIN_MS, NULL);
}

static void cancel_step(struct drive *drive)
{
    const struct engine_decision decision = {
        .kind = DECISION_CANCEL,
        .tenant = drive->flight->op.tenant,
        .operation = entry_of(drive)->operation,
        .actor = "onced",
        .note = arena_printf(&drive->flight->arena, "%s is cancelled", drive->flight->op.id),
    };
    engine_decide(drive->flight->engine, &decision, step_cancelled, drive);
}

/* ---- what former steps gave ---- */

static void load(struct drive *drive);

static void loaded(struct ledger_request *request)
{
    struct flight *flight = request->user;
    struct drive *drive = flight->drive;
    engine_request_ended(flight->engine);
    if (request->code && request->code != ERR_NOT_FOUND) {
        log_message(LOG_ERROR, "ledger", "%s: %s", flight->op.id, request->err.text);
        hold_step(drive, flight->op.reason, engine_now(flight->engine) + HOLD_MS, NULL);
        return;
    }
    if (!request->code)
        drive->steps[drive->next] = request->get.op;
    drive->next++;
    load(drive);
}

static void load(struct drive *drive)
{
    struct flight *flight = drive->flight;
    struct ledger_request *request = &flight->request;
    while (drive->next < drive->progress.count && !drive->progress.entries[drive->next].operation)
        drive->next++;
    if (drive->next == drive->progress.count) {
        if (drive->action == ACTION_BEGIN_STEP)
            begin_step(drive);
        else
            finish(drive);
        return;
    }
    request->command = LEDGER_GET;
    request->get = (struct ledger_get){.operation = drive->progress.entries[drive->next].operation};
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->done = loaded;
    engine_submit(flight->engine, request);
}

void flight_drive(struct flight *flight, enum step_action action, size_t at)
{
    struct drive *drive = arena_zero(&flight->arena, sizeof *drive);
    *drive = (struct drive){.flight = flight, .action = action, .at = at};
    bool readable = steps_read(&flight->arena, flight->op.steps, &drive->progress, NULL) == ERR_NONE;
    assert(readable); /* step() has read it */
    flight->drive = drive;
    flight->phase = PHASE_FETCH;
    switch (action) {
    case ACTION_BEGIN_STEP:
    case ACTION_FINISH_STEPS: load(drive); break;
    case ACTION_CANCEL_STEP: cancel_step(drive); break;
    case ACTION_UNDO_STEP:
        engine_roll_back(flight->engine, &flight->op, at, entry_of(drive)->operation, entry_of(drive)->playbook,
                         drive->progress.rolling_back, admitted, drive);
        break;
    case ACTION_NONE:
    case ACTION_SEND:
    case ACTION_LOOKUP:
    case ACTION_EXPIRE: assert(!"no action of a parent");
    }
}

/* ---- dry run ---- */

static void describe_arguments(struct flight *flight, const struct steps_item *item, const struct json *input,
                               struct json_out *out)
{
    struct arena *arena = &flight->arena;
    struct json *arguments = NULL;
    struct err err = {0};
    enum err_code code =
        item->form ? steps_fill(arena, item->form, input, &arguments, &err)
                   : jq_program_run((struct jq_program *)item->arguments, arena, input, NULL, &arguments, &err);
    json_out_name(out, "arguments");
    if (code) /* it needs what former steps give */
        json_out_null(out);
    else
        json_out_value(out, arguments);
}

void flight_describe_steps(struct flight *flight, struct json_out *out)
{
    const struct steps_list *list = flight->tool->steps;
    const struct operation *none[STEPS_MAX] = {0};
    struct steps_progress progress;
    steps_start(list, &progress);
    const struct json *input = steps_input(&flight->arena, &flight->op, &progress, none);
    json_out_array(out);
    for (size_t i = 0; i < list->count; i++) {
        const struct steps_item *item = &list->items[i];
        struct err err = {0};
        bool holds = true;
        json_out_object(out);
        json_out_member_text(out, "name", item->name);
        json_out_member_text(out, "tool", item->tool);
        if (i == 0 && item->when && !jq_program_test((struct jq_program *)item->when, input, &holds, &err))
            json_out_member_bool(out, "when", holds); /* of later ones it may depend on what former ones give */
        describe_arguments(flight, item, input, out);
        json_out_end_object(out);
    }
    json_out_end_array(out);
}
