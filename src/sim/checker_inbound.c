/* What must hold of inbound events (design 11.1, 3.4): an acknowledged one is kept, once; it is applied once, at rest,
 * to the operation that it names and its source speaks of; an older one changes nothing but a "nothing happened"; a
 * success has the last word. So neither the order of events nor that of answers matters. */
#include "sim/checker.h"

#include <stdio.h>

struct check_event { /* as it was recorded */
    struct check_event *older;
    const struct inbound *as;
    bool told; /* the provider was told that it is recorded */
    bool found;
    const struct check_row *applied; /* NULL = to none yet */
    char name[];                     /* "source event" */
};

struct check_heard { /* what one source's events have said of an operation: the newest of them */
    struct check_heard *next;
    const char *source;
    int64_t created_ms;
    enum inbound_outcome outcome;
};

/* ---- records ---- */

static bool may_be_gone(const struct checker_model *model, const struct check_event *event)
{
    return event->as->retain_until_ms <= model->inbox_pruned_ms;
}

void check_event_recorded(struct checker_model *model, const struct ledger_record_inbound *record)
{
    char name[128];
    int n = snprintf(name, sizeof name, "%s %s", record->event->source, record->event->event);
    struct check_event *event = map_get(&model->event_names, name);
    bool same = event && strcmp(event->as->id, record->event->id) == 0;
    bool expected = event ? record->duplicate && same : !record->duplicate;
    if (!expected && !(event && may_be_gone(model, event)))
        sim_violated(model->sim, "11.1 an event is recorded once: %s is recorded as %s, %s", name, record->event->id,
                     record->duplicate ? "said to be known" : "said to be new");
    if (same)
        return;
    event = arena_zero(&model->arena, sizeof *event + (size_t)n + 1);
    memcpy(event->name, name, (size_t)n + 1);
    event->as = inbound_copy(&model->arena, record->event);
    event->older = model->newest_event;
    model->newest_event = event;
    map_put(&model->event_names, event->name, event);
    map_put(&model->events, event->as->id, event);
}

void check_events_pruned(struct checker_model *model, const struct ledger_inbox_prune *prune)
{
    if (prune->now_ms > model->inbox_pruned_ms)
        model->inbox_pruned_ms = prune->now_ms;
}

void checker_event_told(struct sim *sim, const char *id)
{
    struct check_event *event = map_get(&sim->checker->events, id);
    if (!event)
        sim_violated(sim, "11.1 an event is recorded before it is acknowledged: %s", id);
    else
        event->told = true;
}

/* ---- what it does ---- */

static bool names(const struct inbound *event, const struct check_row *row)
{
    switch (event->match) {
    case INBOUND_BY_REFERENCE: return text_equal(event->value, row->id);
    case INBOUND_BY_PROVIDER_KEY: return text_equal(event->value, row->provider_key);
    case INBOUND_BY_EXTERNAL_ID: return text_equal(event->value, row->external_id);
    case INBOUND_BY_NOTHING:
    case INBOUND_MATCH_COUNT: break;
    }
    return false;
}

/* The simulator's sources are for all tools of a provider, or for none that there is. */
static bool speaks_of(const struct checker_model *model, const struct inbound *event, const struct check_row *row)
{
    const struct inbox_source *source = registry_source(model->sim->registry, event->source);
    return source && row->tool && text_equal(source->provider, row->tool->provider->name) && source->tool_count == 0 &&
           (!source->tenant || text_equal(source->tenant, row->tenant));
}

static struct check_heard *heard_of(struct check_row *row, const char *source)
{
    struct check_heard *heard = row->heard;
    while (heard && strcmp(heard->source, source) != 0)
        heard = heard->next;
    return heard;
}

static bool is_newer(const struct inbound *event, const struct check_heard *heard)
{
    return !heard || event->created_ms > heard->created_ms ||
           (event->created_ms == heard->created_ms && event->outcome > heard->outcome);
}

static void note(struct checker_model *model, struct check_row *row, const struct inbound *event,
                 struct check_heard *heard)
{
    if (!is_newer(event, heard))
        return;
    if (!heard) {
        heard = arena_zero(&model->arena, sizeof *heard);
        heard->source = event->source;
        heard->next = row->heard;
        row->heard = heard;
    }
    heard->created_ms = event->created_ms;
    heard->outcome = event->outcome;
}

static bool has_incident(const struct ledger_transition *change, enum incident_kind kind)
{
    for (size_t i = 0; i < change->incident_count; i++)
        if (change->incidents[i].kind == kind)
            return true;
    return false;
}

/* A success settles whatever is open, and corrects what says that nothing happened. */
static void check_success_told(struct sim *sim, const struct check_row *row, enum state from,
                               const struct inbound *event)
{
    bool stands = row->state == STATE_COMPLETED_SUCCESS || row->state == STATE_COMPLETED_NOOP ||
                  row->state == STATE_COMPENSATING || row->state == STATE_COMPENSATED;
    if (!stands && row->reason != REASON_VERIFYING)
        sim_violated(sim, "3.4, 11.1 a success has the last word: %s (intent %u) was told of it by %s and is %s (%s)",
                     row->id, row->intent, event->event, state_name(row->state), reason_name(row->reason));
    bool other = from == STATE_COMPLETED_SUCCESS && event->external_id && row->external_id[0] &&
                 strcmp(event->external_id, row->external_id) != 0;
    if (other && !(row->incidents & 1u << INCIDENT_DUPLICATE_EFFECT))
        sim_violated(sim, "3.4 a second effect is an incident: %s (intent %u) has %s, was told of %s by %s", row->id,
                     row->intent, row->external_id, event->external_id, event->event);
}

static void check_what_it_does(struct sim *sim, const struct check_row *row, enum state from,
                               const struct ledger_transition *change, const struct inbound *event,
                               const struct check_heard *heard)
{
    bool newer = is_newer(event, heard), bad = event->outcome == INBOUND_FAILED || event->outcome == INBOUND_NO_EFFECT;
    if (event->outcome == INBOUND_SUCCESS)
        check_success_told(sim, row, from, event);
    else if (!newer && from != row->state)
        sim_violated(sim, "11.1 an older event never downgrades: %s (intent %u) goes from %s to %s by %s", row->id,
                     row->intent, state_name(from), state_name(row->state), event->event);
    if (bad && heard && newer && from == STATE_COMPLETED_SUCCESS && !has_incident(change, INCIDENT_CONTRADICTION))
        sim_violated(sim, "3.4 a failure told after the success is an incident: %s (intent %u), event %s", row->id,
                     row->intent, event->event);
    if (event->outcome == INBOUND_FAILED && from != row->state && row->reason != REASON_NEEDS_OPERATOR)
        sim_violated(sim, "11.1 what ended badly is for a person: %s (intent %u) is %s (%s) by %s", row->id,
                     row->intent, state_name(row->state), reason_name(row->reason), event->event);
}

void check_inbound_applied(struct checker_model *model, struct check_row *row, enum state from,
                           const struct ledger_transition *change)
{
    struct sim *sim = model->sim;
    struct check_event *event = map_get(&model->events, change->inbound);
    if (!event || event->applied || event->as->outcome == INBOUND_IGNORE) {
        sim_violated(sim, "11.1 an event is applied once: %s to %s (intent %u): %s", change->inbound, row->id,
                     row->intent,
                     !event           ? "it is not recorded"
                     : event->applied ? event->applied->id
                                      : "it says nothing of interest");
        return;
    }
    event->applied = row;
    if (!speaks_of(model, event->as, row) || !names(event->as, row))
        sim_violated(sim, "11.1, 16 an event is for the operation that it names: %s names %s, is applied to %s of %s",
                     event->name, event->as->value, row->id, row->tenant);
    if (from == STATE_DISPATCHED)
        sim_violated(sim, "11.1 an event waits for the answer: %s is applied to %s (intent %u), which is dispatched",
                     event->name, row->id, row->intent);
    struct check_heard *heard = heard_of(row, event->as->source);
    check_what_it_does(sim, row, from, change, event->as, heard);
    row->told_of_effect |= event->as->outcome == INBOUND_SUCCESS;
    note(model, row, event->as, heard);
}

bool check_told_no_effect(const struct checker_model *model, const struct ledger_transition *change)
{
    const struct check_event *event = change->inbound ? map_get(&model->events, change->inbound) : NULL;
    return event && event->as->outcome == INBOUND_NO_EFFECT;
}

/* ---- the end ---- */

static void check_kept(struct sim *sim, const struct inbound *kept)
{
    struct check_event *event = map_get(&sim->checker->events, kept->id);
    const char *applied = event && event->applied ? event->applied->id : NULL;
    if (event)
        event->found = true;
    enum inbound_status expected = applied                           ? INBOUND_APPLIED
                                   : kept->outcome == INBOUND_IGNORE ? INBOUND_IGNORED
                                                                     : INBOUND_WAITING;
    if (!event || kept->status != expected || !text_equal(kept->operation, applied))
        sim_violated(sim, "11.1 what was recorded is kept: event %s of %s is %s, to %s", kept->event, kept->source,
                     inbound_status_name(kept->status), kept->operation ? kept->operation : "none");
}

static void check_events_kept(struct sim *sim)
{
    char before[OPERATION_ID_SIZE] = "";
    bool more = true;
    while (more && !sim->result->violated) {
        struct arena arena;
        arena_init(&arena);
        struct ledger_request request = {
            .command = LEDGER_INBOX_LIST,
            .arena = &arena,
            .inbox_list = {.limit = LEDGER_LIST_MAX, .before = before[0] ? before : NULL},
        };
        if (ledger_call(sim->backing, &request))
            sim_violated(sim, "15 the ledger can be read at the end: %s", request.err.text);
        for (size_t i = 0; i < request.inbox_list.count && !request.code; i++)
            check_kept(sim, &request.inbox_list.events[i]);
        more = !request.code && request.inbox_list.next;
        if (more)
            check_copy(before, sizeof before, request.inbox_list.next);
        arena_release(&arena);
    }
}

/* Nobody is left whose event it is. An id that several have is for a person. */
static void check_waits_rightly(struct sim *sim, const struct check_event *event)
{
    const struct checker_model *model = sim->checker;
    const struct check_row *of = NULL;
    size_t takes = 0, named = 0;
    for (size_t i = 0; i < model->row_count; i++) {
        const struct check_row *row = model->rows[i];
        if (row->dropped || !names(event->as, row))
            continue;
        named++;
        if (speaks_of(model, event->as, row))
            takes++, of = row;
    }
    if (takes == 1 && named < LEDGER_INBOX_OPS_MAX)
        sim_violated(sim, "11.1 an event finds its operation: %s (%s) still waits, %s (intent %u) is %s (%s)",
                     event->name, inbound_outcome_name(event->as->outcome), of->id, of->intent, state_name(of->state),
                     reason_name(of->reason));
}

void check_inbound_end(struct sim *sim)
{
    struct checker_model *model = sim->checker;
    if (!model->newest_event)
        return;
    check_events_kept(sim);
    for (size_t i = 0; i < model->row_count; i++)
        if (model->rows[i]->told_of_effect && check_proven_absent(model->rows[i]->state))
            sim_violated(sim, "3.4, 11.1 a success has the last word: %s (intent %u) was told of it and is %s",
                         model->rows[i]->id, model->rows[i]->intent, state_name(model->rows[i]->state));
    for (const struct check_event *event = model->newest_event; event && !sim->result->violated; event = event->older) {
        if (!event->found && !may_be_gone(model, event))
            sim_violated(sim, "11.1 a recorded event is never lost: %s (%s) is gone%s", event->name, event->as->id,
                         event->told ? ", and was acknowledged" : "");
        else if (event->found && !event->applied && event->as->outcome != INBOUND_IGNORE)
            check_waits_rightly(sim, event);
    }
}
