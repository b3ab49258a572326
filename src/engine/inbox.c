#include "engine/inbox.h"

#include "base/log.h"
#include "base/mem.h"
#include "core/inbox.h"
#include "engine/internal.h"

#include <stdlib.h>

#define SWEEP_MS    30000   /* between looks at everything that waits */
#define PRUNE_MS    3600000 /* between removals of what is past its time … */
#define PRUNE_BATCH 500     /* … so many at once */

struct inbox {
    struct engine *engine;
    struct map due; /* operation id → itself: an event about it may be waiting */
    bool may_wait;  /* there are waiting events that name no operation yet, or might be */
    size_t looking; /* questions about single operations that are out */
    bool sweeping, pruning;
    bool swept;                 /* the first sweep is over */
    int64_t sweep_ms, prune_ms; /* next time, 0 = not planned */
    void (*started)(struct engine *engine);
};

/* A question to the ledger, with an arena of its own. */
struct question {
    struct ledger_request request;
    struct arena arena;
    struct inbox *inbox;
    const char *operation; /* looked at */
    engine_inbound_fn *reply;
    void *user;
};

static struct question *question_new(struct inbox *inbox, enum ledger_command command,
                                     void (*done)(struct ledger_request *request))
{
    struct arena arena;
    arena_init(&arena);
    struct question *question = arena_zero(&arena, sizeof *question);
    question->inbox = inbox;
    question->request.command = command;
    question->request.done = done;
    question->request.user = question;
    question->arena = arena;
    question->request.arena = &question->arena;
    return question;
}

static void question_free(struct question *question)
{
    struct arena arena = question->arena;
    arena_release(&arena);
}

/* ---- life ---- */

struct inbox *inbox_new(struct engine *engine)
{
    struct inbox *inbox = mem_zero(sizeof *inbox);
    inbox->engine = engine;
    inbox->may_wait = true;
    map_init(&inbox->due);
    return inbox;
}

static void forget_due(struct inbox *inbox, const char *operation)
{
    free(map_remove(&inbox->due, operation));
}

static void add_due(struct inbox *inbox, const char *operation)
{
    if (map_get(&inbox->due, operation))
        return;
    char *id = mem_copy_text(operation);
    map_put(&inbox->due, id, id);
}

void inbox_free(struct inbox *inbox)
{
    if (!inbox)
        return;
    size_t at = 0;
    char *id;
    while ((id = map_next(&inbox->due, &at)))
        free(id);
    map_release(&inbox->due);
    free(inbox);
}

static bool has_sources(const struct inbox *inbox)
{
    return registry_source_count(inbox->engine->registry) > 0;
}

static void plan_sweep(struct inbox *inbox, int64_t in_ms)
{
    int64_t at_ms = engine_now(inbox->engine) + in_ms;
    if (inbox->sweep_ms == 0 || at_ms < inbox->sweep_ms)
        inbox->sweep_ms = at_ms;
    engine_reschedule(inbox->engine);
}

/* ---- which event an operation takes next ---- */

/* The one operation that the source speaks of, among those that the event names. An external id alone may name several
 * (providers count from 1): then none is taken, and a person sees the event as waiting. */
static bool speaks_of(const struct inbox *inbox, const struct inbound *event, const struct ledger_named *named,
                      size_t count, const char *operation)
{
    const struct registry *registry = inbox->engine->registry;
    const struct inbox_source *source = registry_source(registry, event->source);
    size_t takes = 0;
    bool is_this = false;
    if (!source || count == LEDGER_INBOX_OPS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct tool *tool = registry_find(registry, str_of(named[i].tool));
        if (!inbox_source_takes(source, named[i].tenant, named[i].tool, tool))
            continue;
        takes++;
        is_this |= text_equal(named[i].operation, operation);
    }
    return takes == 1 && is_this;
}

/* Its place among the answer's events, or their count. */
static size_t next_event(const struct inbox *inbox, const struct ledger_inbox_of *of)
{
    size_t at = 0;
    while (at < of->count && !speaks_of(inbox, &of->events[at], of->named[at], of->named_count[at], of->operation))
        at++;
    return at;
}

/* ---- applying ---- */

static struct str error_of(struct arena *arena, const struct inbound *event, const char *words)
{
    struct buf text;
    buf_init(&text, 0);
    struct json_out out;
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_member_text(&out, "message", words);
    if (event->type)
        json_out_member_text(&out, "code", event->type);
    json_out_end_object(&out);
    struct str error = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return error;
}

static void apply(struct flight *flight, const struct inbound *event, const struct inbound_standing *standing)
{
    struct arena *arena = &flight->arena;
    const char *words = arena_printf(arena, "%s told: %s (%s)%s%s", event->source, inbound_outcome_name(event->outcome),
                                     event->event, event->type ? ", " : "", event->type ? event->type : "");
    struct step_input in = {
        .kind = STEP_INBOUND,
        .event = event,
        .standing = standing,
        .actor = arena_printf(arena, "inbox/%s", event->source),
        .finding = {.detail = words,
                    .result = arena_str(arena, event->result),
                    .external_id = arena_copy_text(arena, event->external_id)},
    };
    if (event->outcome == INBOUND_NO_EFFECT)
        in.finding.error = error_of(arena, event, words);
    flight->inbound = arena_copy_text(arena, event->id);
    flight_step(flight, &in, AFTER_GO_ON, NULL);
}

static void fetched(struct ledger_request *request)
{
    struct flight *flight = request->user;
    struct inbox *inbox = flight->engine->inbox;
    struct ledger_inbox_of *of = &request->inbox_of;
    engine_request_ended(flight->engine);
    flight->phase = PHASE_NEW;
    size_t at = request->code ? 0 : next_event(inbox, of);
    if (request->code || at == of->count) {
        if (request->code && request->code != ERR_NOT_FOUND) /* it stays recorded: the next sweep finds it */
            plan_sweep(inbox, COMMIT_RETRY_MAX_MS);
        forget_due(inbox, flight->op.id);
        flight_go_on(flight);
        return;
    }
    apply(flight, &of->events[at], &of->standing[at]);
}

bool inbox_takes(struct flight *flight)
{
    struct inbox *inbox = flight->engine->inbox;
    if (inbox->due.count == 0 || !map_get(&inbox->due, flight->op.id) || step_waits_for_answer(&flight->op))
        return false;
    struct ledger_request *request = &flight->request;
    flight->phase = PHASE_FETCH;
    request->command = LEDGER_INBOX_OF;
    request->inbox_of = (struct ledger_inbox_of){.operation = arena_copy_text(&flight->arena, flight->op.id)};
    request->code = ERR_NONE;
    err_clear(&request->err);
    request->done = fetched;
    engine_submit(flight->engine, request);
    return true;
}

/* ---- looking at an operation that may be at rest ---- */

static void look_over(struct inbox *inbox)
{
    inbox->looking--;
    if (inbox->started && inbox->swept && inbox->looking == 0) {
        void (*started)(struct engine *) = inbox->started;
        inbox->started = NULL;
        started(inbox->engine);
    }
}

static void wake_at_rest(struct inbox *inbox, const struct operation *op)
{
    struct engine *engine = inbox->engine;
    struct flight *flight = map_get(&engine->flights, op->id);
    if (flight && flight->phase == PHASE_QUEUED) { /* waits for a slot: what is told may make that needless */
        route_remove(flight->route, &flight->queued);
        flight->phase = PHASE_NEW;
        flight_wake(flight);
    } else if (!flight && !step_waits_for_answer(op)) {
        flight = flight_from(engine, op, text_equal(op->owner, engine->incarnation));
        inbox_takes(flight);
    } /* else it stays due: at the flight's next pause, or when the attempt's owner is known to be gone */
}

static void looked(struct ledger_request *request)
{
    struct question *question = request->user;
    struct inbox *inbox = question->inbox;
    engine_request_ended(inbox->engine);
    if (request->code || next_event(inbox, &request->inbox_of) == request->inbox_of.count) {
        if (request->code && request->code != ERR_NOT_FOUND)
            plan_sweep(inbox, COMMIT_RETRY_MAX_MS);
        forget_due(inbox, question->operation);
    } else if (!inbox->engine->stopping) {
        wake_at_rest(inbox, request->inbox_of.op);
    }
    question_free(question);
    look_over(inbox);
}

static void look(struct inbox *inbox, const char *operation)
{
    if (inbox->engine->stopping) /* it is recorded: the next start finds it */
        return;
    add_due(inbox, operation);
    struct question *question = question_new(inbox, LEDGER_INBOX_OF, looked);
    question->operation = arena_copy_text(&question->arena, operation);
    question->request.inbox_of.operation = question->operation;
    inbox->looking++;
    engine_submit(inbox->engine, &question->request);
}

void inbox_flight_gone(struct inbox *inbox, const char *operation)
{
    if (inbox && inbox->due.count > 0 && map_get(&inbox->due, operation))
        look(inbox, operation);
}

void inbox_named(struct flight *flight)
{
    struct inbox *inbox = flight->engine->inbox;
    if (inbox->may_wait && has_sources(inbox))
        add_due(inbox, flight->op.id);
}

/* ---- sweeps ---- */

static void sweep(struct inbox *inbox, const char *after);

static void swept(struct ledger_request *request)
{
    struct question *question = request->user;
    struct inbox *inbox = question->inbox;
    struct ledger_inbox_due *due = &request->inbox_due;
    engine_request_ended(inbox->engine);
    inbox->sweeping = false;
    inbox->looking++; /* until the end of this function */
    for (size_t i = 0; !request->code && i < due->count; i++)
        look(inbox, due->operations[i]);
    if (request->code) {
        log_message(LOG_ERROR, "inbox", "looking for inbound events that wait: %s", request->err.text);
        plan_sweep(inbox, COMMIT_RETRY_MAX_MS);
    } else if (due->next && !inbox->engine->stopping) {
        sweep(inbox, due->next);
    } else {
        inbox->may_wait = due->any_waiting || !inbox->engine->sole_owner;
        inbox->swept = true;
        if (inbox->may_wait)
            plan_sweep(inbox, SWEEP_MS);
    }
    question_free(question);
    look_over(inbox);
}

static void sweep(struct inbox *inbox, const char *after)
{
    struct question *question = question_new(inbox, LEDGER_INBOX_DUE, swept);
    question->request.inbox_due.after = arena_copy_text(&question->arena, after);
    inbox->sweeping = true;
    inbox->sweep_ms = 0;
    engine_submit(inbox->engine, &question->request);
}

static void pruned(struct ledger_request *request)
{
    struct question *question = request->user;
    struct inbox *inbox = question->inbox;
    bool more = !request->code && request->inbox_prune.count == PRUNE_BATCH;
    engine_request_ended(inbox->engine);
    inbox->pruning = false;
    inbox->prune_ms = engine_now(inbox->engine) + (more ? 0 : PRUNE_MS);
    question_free(question);
    engine_reschedule(inbox->engine);
}

static void prune(struct inbox *inbox)
{
    struct question *question = question_new(inbox, LEDGER_INBOX_PRUNE, pruned);
    question->request.inbox_prune =
        (struct ledger_inbox_prune){.now_ms = engine_now(inbox->engine), .limit = PRUNE_BATCH};
    inbox->pruning = true;
    inbox->prune_ms = 0;
    engine_submit(inbox->engine, &question->request);
}

void inbox_start(struct inbox *inbox, void (*done)(struct engine *engine))
{
    if (!has_sources(inbox)) {
        done(inbox->engine);
        return;
    }
    inbox->started = done;
    inbox->prune_ms = engine_now(inbox->engine) + PRUNE_MS;
    sweep(inbox, NULL);
}

void inbox_reloaded(struct inbox *inbox)
{
    if (!has_sources(inbox) || inbox->started)
        return;
    plan_sweep(inbox, 0);
    if (inbox->prune_ms == 0 && !inbox->pruning)
        inbox->prune_ms = engine_now(inbox->engine) + PRUNE_MS;
}

void inbox_tick(struct inbox *inbox, int64_t now_ms)
{
    if (inbox->engine->stopping)
        return;
    if (inbox->sweep_ms && inbox->sweep_ms <= now_ms && !inbox->sweeping)
        sweep(inbox, NULL);
    if (inbox->prune_ms && inbox->prune_ms <= now_ms && !inbox->pruning)
        prune(inbox);
}

int64_t inbox_next_ms(const struct inbox *inbox)
{
    if (inbox->engine->stopping)
        return 0;
    int64_t a = inbox->sweeping ? 0 : inbox->sweep_ms, b = inbox->prune_ms;
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* ---- recording ---- */

static void recorded(struct ledger_request *request)
{
    struct question *question = request->user;
    struct inbox *inbox = question->inbox;
    struct engine *engine = inbox->engine;
    struct ledger_record_inbound *record = &request->record_inbound;
    engine_request_ended(engine);
    if (!request->code && record->event->status == INBOUND_WAITING) {
        if (record->named_count == 0) {
            inbox->may_wait = true;
            plan_sweep(inbox, SWEEP_MS);
        }
        for (size_t i = 0; i < record->named_count; i++)
            look(inbox, record->named[i].operation);
    }
    if (!request->code && !record->duplicate && record->event->forward.status == FORWARD_DUE)
        engine_forward_due(engine);
    engine->stats.inbound += !request->code && !record->duplicate;
    engine->stats.inbound_duplicates += !request->code && record->duplicate;
    question->reply(question->user, request->code, &request->err, request->code ? NULL : record->event,
                    record->duplicate);
    question_free(question);
}

void engine_inbound(struct engine *engine, const struct inbound *event, engine_inbound_fn *reply, void *user)
{
    if (engine->stopping) {
        struct err err = {0};
        err_set(&err, ERR_UNAVAILABLE, "onced is stopping");
        reply(user, ERR_UNAVAILABLE, &err, NULL, false);
        return;
    }
    struct question *question = question_new(engine->inbox, LEDGER_RECORD_INBOUND, recorded);
    struct inbound *copy = inbound_copy(&question->arena, event);
    char ulid[ULID_CHARS + 1];
    ulid_next(&engine->ids, ulid);
    memcpy(copy->id, "ev_", 3);
    memcpy(copy->id + 3, ulid, sizeof ulid);
    copy->received_ms = engine_now(engine);
    if (copy->created_ms == 0)
        copy->created_ms = copy->received_ms;
    copy->status = copy->outcome == INBOUND_IGNORE ? INBOUND_IGNORED : INBOUND_WAITING;
    copy->settled_ms = copy->status == INBOUND_IGNORED ? copy->received_ms : 0;
    const struct inbox_source *source = registry_source(engine->registry, event->source);
    copy->retain_until_ms = copy->received_ms + (source ? source->retain_ms : 0);
    copy->forward = forward_begin(source ? source->forward : NULL, copy->received_ms);
    question->request.record_inbound = (struct ledger_record_inbound){.event = copy, .now_ms = copy->received_ms};
    question->reply = reply;
    question->user = user;
    engine_submit(engine, &question->request);
}
