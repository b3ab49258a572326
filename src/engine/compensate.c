/* Running playbooks (design 10.1): the operation to be undone is looked at, what would undo it is worked out, and one
 * admission writes both. Who asks while that is under way, or when it is done, is answered with the compensation that
 * is there.
 *
 *   look ─┬─ completed_success ──────────► precondition, arguments ─► admission, with the original's move
 *         │                                                            └─ it has moved since: look again (bounded)
 *         ├─ compensating, compensated ──► the compensation that is there, if it is of this playbook
 *         └─ all else ───────────────────► there is nothing to undo */
#include "engine/internal.h"

#include "adapter/jq.h"
#include "base/log.h"
#include "base/mark.h"

#include <assert.h>

static const struct err no_error;

#define LOOKS_MAX 32 /* at an operation that others keep moving */

struct undoing {
    struct ledger_request request;
    struct arena arena;
    struct engine *engine;
    struct engine_compensation what; /* texts in the arena */
    const struct operation *failed;  /* an operator's retry of this compensation, or NULL */
    const struct operation *parent;  /* in whose rollback it is undone, as it was seen, or NULL; … */
    size_t at;                       /* … which of its steps */
    struct operation *original;      /* as it was seen */
    engine_reply_fn *reply;
    void *user;
    unsigned looks;
};

static void look(struct undoing *undoing);

static void release(struct undoing *undoing)
{
    struct arena arena = undoing->arena;
    arena_release(&arena);
}

static void answer(struct undoing *undoing, const struct engine_reply *reply)
{
    undoing->reply(undoing->user, reply);
    release(undoing);
}

static void answer_kind(struct undoing *undoing, enum reply_kind kind, const struct operation *op,
                        const struct err *err)
{
    struct engine_reply reply = {.kind = kind, .op = op, .err = err};
    if (op)
        reply.tool = registry_find(undoing->engine->registry, str_of(op->tool));
    if (kind == REPLY_UNAVAILABLE)
        undoing->engine->stats.unavailable++;
    answer(undoing, &reply);
}

static void look_again(struct undoing *undoing)
{
    struct err err = {0};
    if (++undoing->looks < LOOKS_MAX) {
        look(undoing);
        return;
    }
    err_set(&err, ERR_CONFLICT, "others keep changing the operation: look again");
    answer_kind(undoing, REPLY_IMPOSSIBLE, undoing->original, &err);
}

/* ---- the compensation that is there ---- */

static void compensation_loaded(struct ledger_request *request)
{
    struct undoing *undoing = request->user;
    const struct operation *op = request->get.op;
    struct err err = {0};
    engine_request_ended(undoing->engine);
    if (request->code) {
        answer_kind(undoing, request->code == ERR_NOT_FOUND ? REPLY_NOT_FOUND : REPLY_UNAVAILABLE, NULL, &request->err);
    } else if (!op) {
        struct engine_reply reply = {.kind = REPLY_EXPIRED, .tombstone = request->get.tombstone, .err = &no_error};
        answer(undoing, &reply);
    } else if (!text_equal(op->playbook, undoing->what.playbook)) {
        err_set(&err, ERR_CONFLICT, "the operation is %s by playbook %s (%s)", state_name(undoing->original->state),
                op->playbook, op->id);
        answer_kind(undoing, REPLY_IMPOSSIBLE, undoing->original, &err);
    } else {
        struct engine_reply reply = {.kind = REPLY_OPERATION, .op = op, .replayed = true, .err = &no_error};
        reply.tool = registry_find(undoing->engine->registry, str_of(op->tool));
        undoing->engine->stats.joined++;
        answer(undoing, &reply);
    }
}

static void load(struct undoing *undoing, const char *operation, void (*done)(struct ledger_request *request))
{
    struct ledger_request *request = &undoing->request;
    *request = (struct ledger_request){
        .command = LEDGER_GET,
        .get = {.tenant = undoing->what.tenant, .operation = operation},
        .arena = &undoing->arena,
        .done = done,
        .user = undoing,
    };
    engine_submit(undoing->engine, request);
}

/* ---- a new one ---- */

/* Whether a retry that fits no longer what is there came too late, and all else that the admission says. */
static void admission_answered(void *user, const struct engine_reply *reply)
{
    struct undoing *undoing = user;
    struct err err = {0};
    if (reply->kind == REPLY_STALE && !undoing->parent) {
        look_again(undoing);
    } else if (reply->kind == REPLY_REFUSED) { /* the playbook's arguments, not the caller's */
        err_set(&err, reply->err->code == ERR_DENIED ? ERR_DENIED : ERR_CONFLICT, "playbook %s can not be run: %s",
                undoing->what.playbook, reply->err->text);
        answer_kind(undoing, REPLY_IMPOSSIBLE, undoing->original, &err);
    } else if (reply->kind == REPLY_IMPOSSIBLE) {
        answer_kind(undoing, REPLY_IMPOSSIBLE, undoing->original, reply->err);
    } else {
        answer(undoing, reply);
    }
}

static enum err_code unknown_playbook(const struct tool *tool, const char *name, struct err *err)
{
    struct buf names;
    buf_init(&names, 0);
    for (size_t i = 0; i < tool->playbook_count; i++) {
        buf_add_text(&names, i ? ", " : "");
        buf_add_text(&names, tool->playbooks[i].name);
    }
    struct str text = buf_str(&names);
    err_set(err, ERR_CONFLICT, "tool %s has no playbook \"%.100s\"%s%.*s", tool->name, name,
            tool->playbook_count ? ", only " : ": what it does can not be undone by one", STR_ARG(text));
    buf_release(&names);
    return err->code;
}

/* ERR_CONFLICT, ERR_DENIED with words for whoever asked. */
static enum err_code find_playbook(struct undoing *undoing, const struct playbook **out, struct err *err)
{
    struct registry *registry = undoing->engine->registry;
    const struct engine_compensation *what = &undoing->what;
    const struct operation *op = undoing->original;
    const struct tool *tool = registry_find(registry, str_of(op->tool));
    if (!tool)
        return err_set(err, ERR_CONFLICT, "the registry has no tool %s at present: how to undo it is not known",
                       op->tool);
    if (!(*out = playbook_find(tool, what->playbook)))
        return unknown_playbook(tool, what->playbook, err);
    const struct tool *compensating = registry_find(registry, str_of((*out)->tool));
    if (!compensating)
        return err_set(err, ERR_CONFLICT, "the registry has no tool %s, which playbook %s runs", (*out)->tool,
                       (*out)->name);
    if (what->own_only && !text_equal(op->principal, what->actor))
        return err_set(err, ERR_DENIED, "only the principal that called it, or an operator, may have it undone");
    bool allowed =
        undoing->parent || /* who may call a multi-step tool may have its steps undone */
        (registry_allows(registry, what->actor, tool) && registry_allows(registry, what->actor, compensating));
    if (!allowed)
        return err_set(err, ERR_DENIED, "%s may not use both %s and %s", what->actor, tool->name, compensating->name);
    return scope_check_operation(what->scope, op, err);
}

static enum err_code work_out(struct undoing *undoing, const struct playbook *playbook, struct json **arguments,
                              struct err *err)
{
    const struct json *input = playbook_input(&undoing->arena, undoing->original);
    bool holds = true;
    if (playbook->when && jq_program_test((struct jq_program *)playbook->when, input, &holds, err))
        return err_prefix(err, "the precondition of playbook %s can not be judged: ", playbook->name), err->code;
    if (!holds)
        return err_set(err, ERR_CONFLICT, "the precondition of playbook %s does not hold", playbook->name);
    if (playbook->form
            ? playbook_fill(&undoing->arena, playbook->form, undoing->original, arguments, err)
            : jq_program_run((struct jq_program *)playbook->arguments, &undoing->arena, input, NULL, arguments, err))
        return err_prefix(err, "the arguments of playbook %s: ", playbook->name), err->code;
    if ((*arguments)->type != JSON_OBJECT)
        return err_set(err, ERR_CONFLICT, "the arguments of playbook %s give no object", playbook->name);
    return ERR_NONE;
}

static void undo(struct undoing *undoing)
{
    const struct operation *op = undoing->original;
    const struct playbook *playbook = NULL;
    struct json *arguments = NULL;
    struct err err = {0};
    if (find_playbook(undoing, &playbook, &err) || work_out(undoing, playbook, &arguments, &err)) {
        if (err.code != ERR_DENIED)
            err.code = ERR_CONFLICT;
        answer_kind(undoing, REPLY_IMPOSSIBLE, op, &err);
        return;
    }
    struct engine_call *call = arena_zero(&undoing->arena, sizeof *call);
    *call = (struct engine_call){
        .tool = playbook->tool,
        .wait_ms = -1,
        .async = true,
        .dry_run = undoing->what.dry_run,
        .scope = undoing->what.scope,
        .call = {.tenant = op->tenant,
                 .principal = undoing->what.actor,
                 .arguments = arguments,
                 .workflow = op->workflow,
                 .run = op->run,
                 .trace = undoing->what.trace,
                 .compensates = op->id,
                 .playbook = playbook->name,
                 .parent = undoing->parent ? undoing->parent->id : NULL},
    };
    const struct admit_as as = {
        .new_version_of = undoing->failed ? undoing->failed->id : NULL,
        .old = undoing->failed,
        .undone = op,
        .playbook = playbook,
        .reason = undoing->what.reason,
        .parent = undoing->parent,
        .at = undoing->at,
    };
    engine_admit(undoing->engine, call, &as, admission_answered, undoing);
}

enum err_code flight_undo(struct flight *flight, const struct admit_as *as, struct err *err)
{
    struct arena *arena = &flight->arena;
    struct operation *undone = operation_copy(arena, as->undone);
    struct ledger_transition *change = arena_zero(arena, sizeof *change);
    const char *why = as->reason && as->reason[0] ? as->reason : NULL;
    struct step_effects effects;
    struct step_input in = {
        .kind = STEP_COMPENSATE,
        .now_ms = engine_now(flight->engine),
        .actor = flight->op.principal,
        .note = arena_printf(arena, "%s (playbook %s)%s%s", flight->op.id, as->playbook->name, why ? ": " : "",
                             why ? why : ""),
        .arena = arena,
        .compensation = flight->op.id,
    };
    enum err_code code = step(undone, NULL, &in, &effects, err);
    if (code)
        return code;
    flight->op.escalation = arena_copy_text(arena, as->playbook->escalate);
    flight->undoes = arena_printf(arena, "undoes %s by playbook %s%s%s", undone->id, as->playbook->name,
                                  why ? ": " : "", why ? why : "");
    *change = (struct ledger_transition){.op = undone, .event_count = effects.event_count};
    memcpy(change->events, effects.events, effects.event_count * sizeof *effects.events);
    flight->request.admit.undoes = change;
    return ERR_NONE;
}

/* ---- what was committed ---- */

/* Who waits for it: it may have ended. A flight of its own finds out with its next commit. */
static void tell_callers(struct engine *engine, const struct operation *op)
{
    if (map_get(&engine->flights, op->id) || !map_get(&engine->lists, op->id))
        return;
    struct flight *flight = flight_from(engine, op, text_equal(op->owner, engine->incarnation));
    callers_tell(flight);
    flight_free(flight);
}

void engine_undone(struct engine *engine, const struct operation *op, const struct event *events, size_t count)
{
    replay_forget(&engine->replay, &op->key_hash);
    log_transitions(engine, op, events, count);
    engine_plan(engine, op->wake_at_ms);
    tell_callers(engine, op);
}

/* ---- looking ---- */

/* A former try that failed for good: the next one is the next version of its key. */
static void former_loaded(struct ledger_request *request)
{
    struct undoing *undoing = request->user;
    const struct operation *op = request->get.op;
    engine_request_ended(undoing->engine);
    if (request->code && request->code != ERR_NOT_FOUND) {
        answer_kind(undoing, REPLY_UNAVAILABLE, NULL, &request->err);
        return;
    }
    bool failed = !request->code && op && (op->state == STATE_FAILED_PERMANENT || op->state == STATE_REJECTED);
    undoing->failed = failed && text_equal(op->playbook, undoing->what.playbook) ? op : NULL;
    undo(undoing);
}

static void loaded(struct ledger_request *request)
{
    struct undoing *undoing = request->user;
    struct operation *op = request->get.op;
    struct err err = {0};
    engine_request_ended(undoing->engine);
    MARK(decision_loaded);
    if (request->code) {
        answer_kind(undoing, request->code == ERR_NOT_FOUND ? REPLY_NOT_FOUND : REPLY_UNAVAILABLE, NULL, &request->err);
        return;
    }
    if (!op) {
        struct engine_reply reply = {.kind = REPLY_EXPIRED, .tombstone = request->get.tombstone, .err = &no_error};
        answer(undoing, &reply);
        return;
    }
    undoing->original = op;
    if (op->state == STATE_COMPENSATING || op->state == STATE_COMPENSATED) {
        load(undoing, op->compensation, compensation_loaded);
    } else if (op->state != STATE_COMPLETED_SUCCESS || op->compensates) {
        if (op->compensates)
            err_set(&err, ERR_CONFLICT, "the operation undoes %s: that can not be undone in turn", op->compensates);
        else
            err_set(&err, ERR_CONFLICT, "the operation is %s: only what has succeeded can be undone",
                    state_name(op->state));
        answer_kind(undoing, REPLY_IMPOSSIBLE, op, &err);
    } else if (undoing->what.rev != 0 && undoing->what.rev != op->rev) {
        err_set(&err, ERR_STALE, "you looked at version %lld, it is at version %lld now: look again",
                (long long)undoing->what.rev, (long long)op->rev);
        answer_kind(undoing, REPLY_STALE, op, &err);
    } else if (undoing->parent && op->compensation) {
        load(undoing, op->compensation, former_loaded);
    } else {
        undo(undoing);
    }
}

static void look(struct undoing *undoing)
{
    load(undoing, undoing->what.operation, loaded);
}

static struct undoing *undoing_new(struct engine *engine, const struct engine_compensation *what,
                                   engine_reply_fn *reply, void *user)
{
    struct arena arena;
    arena_init(&arena);
    struct undoing *undoing = arena_zero(&arena, sizeof *undoing);
    undoing->engine = engine;
    undoing->what = *what;
    undoing->what.tenant = arena_copy_text(&arena, what->tenant);
    undoing->what.operation = arena_copy_text(&arena, what->operation);
    undoing->what.playbook = arena_copy_text(&arena, what->playbook);
    undoing->what.actor = arena_copy_text(&arena, what->actor);
    undoing->what.reason = arena_copy_text(&arena, what->reason);
    undoing->what.trace = arena_copy_text(&arena, what->trace);
    undoing->what.scope = scope_copy(&arena, what->scope);
    undoing->reply = reply;
    undoing->user = user;
    undoing->arena = arena;
    return undoing;
}

void engine_compensate(struct engine *engine, const struct engine_compensation *what, engine_reply_fn *reply,
                       void *user)
{
    struct err err = {0};
    assert(what->playbook && what->operation && what->actor);
    if (engine->stopping) {
        err_set(&err, ERR_UNAVAILABLE, "onced is stopping");
        reply_error(engine, reply, user, REPLY_UNAVAILABLE, &err);
        return;
    }
    look(undoing_new(engine, what, reply, user));
}

void engine_roll_back(struct engine *engine, const struct operation *parent, size_t at, const char *operation,
                      const char *playbook, const char *reason, engine_reply_fn *reply, void *user)
{
    struct err err = {0};
    const struct engine_compensation what = {
        .tenant = parent->tenant,
        .operation = operation,
        .playbook = playbook,
        .actor = parent->principal,
        .trace = parent->trace,
    };
    if (engine->stopping) {
        err_set(&err, ERR_UNAVAILABLE, "onced is stopping");
        reply_error(engine, reply, user, REPLY_UNAVAILABLE, &err);
        return;
    }
    struct undoing *undoing = undoing_new(engine, &what, reply, user);
    undoing->what.reason = arena_printf(&undoing->arena, "rollback of %s: %s", parent->id, reason);
    undoing->parent = operation_copy(&undoing->arena, parent);
    undoing->at = at;
    look(undoing);
}

void engine_compensate_again(struct engine *engine, const struct operation *failed, const char *reason,
                             engine_reply_fn *reply, void *user)
{
    const struct engine_compensation what = {
        .tenant = failed->tenant,
        .operation = failed->compensates,
        .playbook = failed->playbook,
        .actor = failed->principal,
        .reason = reason,
    };
    struct undoing *undoing = undoing_new(engine, &what, reply, user);
    undoing->failed = operation_copy(&undoing->arena, failed);
    look(undoing);
}
