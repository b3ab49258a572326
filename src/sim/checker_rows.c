/* What each committed command may do to a row: the rules of design 2, 3, 5, 6, 7 and 15 in their own words. */
#include "sim/checker.h"

#include "base/mem.h"

#include <stdlib.h>

#define MISSING_TOOL_MS 60000 /* after which it is looked again whether a reload has brought a tool back */

/* ---- who commits (15: leases) ---- */

/* The incarnation that this command shows, NULL when it shows none. */
static const char *shown_by(const struct ledger_request *request, const struct check_row *row)
{
    switch (request->command) {
    case LEDGER_ADMIT: return request->admit.admission.op->owner;
    case LEDGER_CLAIM_DUE: return request->claim.owner;
    case LEDGER_TRANSITION:
        if (request->transition.event_count > 0 && request->transition.events[0].cause == CAUSE_EVIDENCE)
            return NULL; /* its fence is whoever holds the row, that is not to change */
        if (request->transition.fence)
            return request->transition.fence;
        if (request->transition.op->owner && row && strcmp(request->transition.op->owner, row->owner) != 0)
            return request->transition.op->owner;
        return NULL;
    default: return NULL;
    }
}

static void learn_incarnation(struct checker_model *model, unsigned number, const char *incarnation)
{
    if (!incarnation || check_is_executor(incarnation)) /* that one is an application */
        return;
    struct check_gateway *gateway = &model->gateways[number - 1];
    struct check_holder *holder = map_get(&model->holders, incarnation);
    if (!holder) {
        holder = arena_zero(&model->arena, sizeof *holder);
        holder->gateway = number;
        check_copy(holder->incarnation, sizeof holder->incarnation, incarnation);
        map_put(&model->holders, holder->incarnation, holder);
        memcpy(gateway->incarnation, holder->incarnation, sizeof gateway->incarnation);
    }
    if (holder->gateway != number)
        sim_violated(model->sim, "15 leases are exclusive: gw%u acts as %s, which is gw%u", number, incarnation,
                     holder->gateway);
    else if (strcmp(gateway->incarnation, incarnation) != 0)
        sim_violated(model->sim, "1 owner, incarnation: gw%u acts as %s of an earlier life", number, incarnation);
}

/* ---- moves (3) ---- */

#define BY(cause) (1u << (cause))
#define ANSWERED  BY(CAUSE_ANSWER)
#define EVIDENCE  (BY(CAUSE_EVIDENCE) | BY(CAUSE_OPERATOR))

/* Which causes may lead where. What is not here is forbidden. */
static const struct {
    enum state from, to;
    unsigned causes;
} moves[] = {
    {STATE_PLANNED, STATE_PENDING_DISPATCH, BY(CAUSE_HELD) | BY(CAUSE_TIMER)},
    {STATE_PLANNED, STATE_DISPATCHED, BY(CAUSE_DISPATCH)},
    {STATE_PLANNED, STATE_REJECTED, BY(CAUSE_CANCEL) | BY(CAUSE_APPROVAL) | BY(CAUSE_TIMER) | BY(CAUSE_POLICY)},
    {STATE_PENDING_DISPATCH, STATE_DISPATCHED, BY(CAUSE_DISPATCH)},
    {STATE_PENDING_DISPATCH, STATE_REJECTED, BY(CAUSE_CANCEL) | BY(CAUSE_TIMER)},
    {STATE_DISPATCHED, STATE_ACKNOWLEDGED, ANSWERED},
    {STATE_DISPATCHED, STATE_COMPLETED_SUCCESS, ANSWERED | EVIDENCE},
    {STATE_DISPATCHED, STATE_COMPLETED_NOOP, ANSWERED},
    {STATE_DISPATCHED, STATE_FAILED_RETRYABLE, ANSWERED},
    {STATE_DISPATCHED, STATE_FAILED_PERMANENT, ANSWERED},
    /* 3.3: an owner that is gone proves nothing */
    {STATE_DISPATCHED, STATE_UNKNOWN_OUTCOME, ANSWERED | BY(CAUSE_OWNER_GONE)},
    {STATE_ACKNOWLEDGED, STATE_COMPLETED_SUCCESS, BY(CAUSE_LOOKUP) | EVIDENCE},
    {STATE_ACKNOWLEDGED, STATE_UNKNOWN_OUTCOME, BY(CAUSE_LOOKUP) | BY(CAUSE_GAVE_UP) | EVIDENCE},
    {STATE_FAILED_RETRYABLE, STATE_DISPATCHED, BY(CAUSE_DISPATCH)},
    {STATE_FAILED_RETRYABLE, STATE_FAILED_PERMANENT, BY(CAUSE_TIMER) | BY(CAUSE_CANCEL)},
    {STATE_FAILED_RETRYABLE, STATE_REJECTED, BY(CAUSE_CANCEL)},
    /* 6: a re-send; 7: found, proven absent, or a person's word. Never the clock (7.2) */
    {STATE_UNKNOWN_OUTCOME, STATE_DISPATCHED, BY(CAUSE_DISPATCH)},
    {STATE_UNKNOWN_OUTCOME, STATE_ACKNOWLEDGED, BY(CAUSE_LOOKUP) | BY(CAUSE_EVIDENCE)},
    {STATE_UNKNOWN_OUTCOME, STATE_COMPLETED_SUCCESS, BY(CAUSE_LOOKUP) | EVIDENCE},
    {STATE_UNKNOWN_OUTCOME, STATE_FAILED_RETRYABLE, BY(CAUSE_LOOKUP) | BY(CAUSE_OPERATOR)},
    {STATE_UNKNOWN_OUTCOME, STATE_FAILED_PERMANENT, BY(CAUSE_LOOKUP) | EVIDENCE}, /* an event's: check_no_effect */
    /* 3.4: evidence corrects a "no effect" */
    {STATE_FAILED_RETRYABLE, STATE_COMPLETED_SUCCESS, EVIDENCE},
    {STATE_FAILED_PERMANENT, STATE_COMPLETED_SUCCESS, EVIDENCE},
    {STATE_REJECTED, STATE_COMPLETED_SUCCESS, EVIDENCE},
    /* 10.1 */
    {STATE_COMPLETED_SUCCESS, STATE_COMPENSATING, BY(CAUSE_COMPENSATION)},
    {STATE_COMPENSATING, STATE_COMPENSATED, BY(CAUSE_COMPENSATION)},
    {STATE_COMPENSATING, STATE_COMPLETED_SUCCESS, BY(CAUSE_COMPENSATION)},
};

static bool move_allowed(enum state from, enum state to, enum cause cause)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (moves[i].from == from && moves[i].to == to)
            return (moves[i].causes & BY(cause)) != 0;
    return false;
}

/* 11.2: the executor takes it back, after its lease. */
static bool takes_back(const struct check_row *row, enum state from, const struct event *event)
{
    return check_is_guarded(row) && event->cause == CAUSE_EVIDENCE && from == STATE_UNKNOWN_OUTCOME &&
           (event->to == STATE_FAILED_RETRYABLE || event->to == STATE_FAILED_PERMANENT);
}

static void check_events(struct checker_model *model, const struct check_row *row,
                         const struct ledger_transition *change)
{
    enum state at = row->state;
    for (size_t i = 0; i < change->event_count; i++) {
        const struct event *event = &change->events[i];
        if (event->from != at)
            sim_violated(model->sim, "3.1 events replay to the row: %s: an event leaves %s, the row was %s", row->id,
                         state_name(event->from), state_name(at));
        bool parents = row->steps && check_parent_may_move(at, event->to, event->cause);
        if (event->to != at && !parents && !takes_back(row, at, event) && !move_allowed(at, event->to, event->cause))
            sim_violated(model->sim, "3 moves: %s (intent %u): %s → %s by %s (%s)", row->id, row->intent,
                         state_name(at), state_name(event->to), cause_name(event->cause), reason_name(event->reason));
        if (event->cause == CAUSE_OPERATOR && !event->actor)
            sim_violated(model->sim, "7.4 a person's decision has a name: %s", row->id);
        at = event->to;
    }
    if (at != change->op->state)
        sim_violated(model->sim, "3.1 every move has its event: %s is written as %s, its events end in %s", row->id,
                     state_name(change->op->state), state_name(at));
}

static enum cause last_cause(const struct ledger_transition *change)
{
    return change->event_count ? change->events[change->event_count - 1].cause : CAUSE_COUNT;
}

/* ---- attempts (5.1, 5.2) ---- */

static void add_try(struct checker_model *model, struct check_row *row, const struct attempt *attempt)
{
    int expected = row->last_try ? row->last_try->number + 1 : 1;
    if (attempt->number != expected)
        sim_violated(model->sim, "5.1 attempts are numbered: %s: attempt %d where %d was expected", row->id,
                     attempt->number, expected);
    if (attempt->outcome != OUTCOME_OPEN)
        sim_violated(model->sim, "5.1 an attempt row is written before the request leaves: %s: attempt %d begins as %s",
                     row->id, attempt->number, outcome_name(attempt->outcome));
    struct check_try *try = arena_zero(&model->arena, sizeof *try);
    check_copy(try->id, sizeof try->id, attempt->id);
    try->number = attempt->number;
    try->kind = attempt->kind;
    try->outcome = attempt->outcome;
    try->started_ms = attempt->started_ms;
    if (row->last_try)
        row->last_try->next = try;
    else
        row->first_try = try;
    row->last_try = try;
}

/* An attempt ends once; only "lost" may give way to what was learned later (3.4). */
static void end_try(struct checker_model *model, const struct check_row *row, struct check_try *try,
                    const struct attempt *attempt)
{
    bool unsure = check_is_guarded(row) && try->outcome == OUTCOME_PROVIDER_ERROR; /* it may know better later */
    bool open = try->outcome == OUTCOME_OPEN || try->outcome == OUTCOME_LOST || unsure;
    if (attempt->outcome != try->outcome && !open)
        sim_violated(model->sim, "3.4 attempts end once: %s attempt %d was %s, is written as %s", row->id, try->number,
                     outcome_name(try->outcome), outcome_name(attempt->outcome));
    try->outcome = attempt->outcome;
    try->finished_ms = attempt->finished_ms;
}

static struct check_try *write_tries(struct checker_model *model, struct check_row *row,
                                     const struct ledger_transition *change)
{
    struct check_try *began = NULL;
    for (size_t i = 0; i < change->attempt_count; i++) {
        struct check_try *try = check_try_of(row, change->attempts[i].id);
        if (try) {
            end_try(model, row, try, &change->attempts[i]);
        } else {
            add_try(model, row, &change->attempts[i]);
            began = row->last_try;
        }
    }
    return began;
}

/* ---- re-sends (6) ---- */

static bool resends_by_key(const struct tool *tool)
{
    return tool->class == CLASS_INTERNAL_WRITE ||
           (tool->class == CLASS_EXTERNAL_IDEMPOTENT && tool->idempotent_by == IDEMPOTENT_BY_KEY);
}

static bool resend_is_harmless(const struct check_row *row, const struct check_try *resend)
{
    const struct tool *tool = row->tool;
    const struct check_try *first = row->first_try;
    if (!tool || tool->guard_lease_ms > 0)
        return false;
    if (!resends_by_key(tool))
        return tool->class == CLASS_EXTERNAL_IDEMPOTENT;
    while (first && (first->kind != ATTEMPT_CALL || first->outcome == OUTCOME_NOT_SENT))
        first = first->next;
    return tool->provider->key_honoured && first &&
           resend->started_ms - first->started_ms < tool->provider->key_retention_ms;
}

static void check_dispatch(struct checker_model *model, const struct check_row *row, const struct check_try *began,
                           bool doubted)
{
    if (!began || began->kind != ATTEMPT_CALL) {
        sim_violated(model->sim, "5.1 dispatched with its attempt row: %s (intent %u) has none", row->id, row->intent);
        return;
    }
    if (doubted && !resend_is_harmless(row, began))
        sim_violated(model->sim,
                     "6 a re-send from unknown_outcome must be provably harmless: %s (intent %u, tool %s) attempt %d",
                     row->id, row->intent, row->tool_name, began->number);
}

/* ---- proofs of "no effect" (3.2, 7.1) ---- */

static const struct check_try *last_call(const struct check_row *row)
{
    const struct check_try *last = NULL;
    for (const struct check_try *try = row->first_try; try; try = try->next)
        if (try->kind == ATTEMPT_CALL && try->outcome != OUTCOME_NOT_SENT)
            last = try;
    return last;
}

/* Consecutive "absent" after the last request, each not before settle was over; without an answer the provider may have
 * been at work for the whole time-out. Pages and look-ups whose gateway died are no answers. */
static unsigned absent_run(const struct check_row *row)
{
    const struct check_try *call = last_call(row);
    bool unanswered = call && (call->outcome == OUTCOME_LOST || call->outcome == OUTCOME_CONNECTION_LOST ||
                               call->outcome == OUTCOME_TIMEOUT);
    int64_t after_ms = row->tool->reconcile.settle_ms + (unanswered ? tool_timeout_ms(row->tool) : 0) -
                       SIM_CLOCK_SPREAD_MS; /* the stamps are of several clocks, which step */
    unsigned run = 0;
    for (const struct check_try *try = call; try; try = try->next) {
        if (try->kind != ATTEMPT_LOOKUP || try->outcome == OUTCOME_MORE || try->outcome == OUTCOME_LOST ||
            try->outcome == OUTCOME_OPEN)
            continue;
        bool settled = try->finished_ms - call->started_ms >= after_ms;
        if (try->outcome != OUTCOME_ABSENT)
            run = 0;
        else
            run += settled;
    }
    return run;
}

static void check_no_effect(struct checker_model *model, struct check_row *row, enum cause cause, bool told)
{
    bool doubted = check_in_doubt(row);
    bool proven = !doubted;
    if (doubted && (cause == CAUSE_OPERATOR || told))
        proven = true;
    else if (doubted && cause == CAUSE_LOOKUP && row->tool)
        proven = absent_run(row) >= row->tool->reconcile.absent_times;
    if (!proven && cause == CAUSE_LOOKUP)
        sim_violated(model->sim,
                     "7.1 absent counts after settle and %u times in a row: %s (intent %u) becomes %s on %u answers",
                     row->tool ? row->tool->reconcile.absent_times : 0, row->id, row->intent, state_name(row->state),
                     row->tool ? absent_run(row) : 0);
    else if (!proven)
        sim_violated(model->sim, "3.2 no clean failure ends a doubt: %s (intent %u) becomes %s by %s", row->id,
                     row->intent, state_name(row->state), cause_name(cause));
    if (row->effects > 0 && !check_excused(model, row))
        sim_violated(model->sim,
                     "3.2 \"failed\" means it did not happen: %s (intent %u) becomes %s (%s), effect %s exists",
                     row->id, row->intent, state_name(row->state), reason_name(row->reason), row->effect_ids[0]);
    if (row->state == STATE_REJECTED && last_call(row))
        sim_violated(model->sim, "3 rejected: nothing was ever sent: %s has an attempt that may have left", row->id);
    if (doubted)
        row->disproved = row->last_try->number;
}

/* ---- proofs of an effect (5.4) ---- */

static bool was_shown(const struct check_row *row)
{
    if (row->told_of_effect)
        return true;
    for (const struct check_try *try = row->first_try; try; try = try->next)
        if (try->outcome == OUTCOME_SUCCESS || try->outcome == OUTCOME_FOUND || try->outcome == OUTCOME_SEVERAL)
            return true;
    return false;
}

static void check_success(struct checker_model *model, const struct check_row *row, enum cause cause)
{
    if (cause == CAUSE_OPERATOR)
        return;
    if (!was_shown(row))
        sim_violated(model->sim,
                     "5.4 success only on the provider's confirmation: %s (intent %u), attempt outcomes say none",
                     row->id, row->intent);
    if (check_excused(model, row))
        return;
    /* several objects: which of them is ours is for a person to say, there is an incident */
    bool known = row->effects > 2 || row->incidents & 1u << INCIDENT_DUPLICATE_EFFECT ||
                 strcmp(row->external_id, row->effect_ids[0]) == 0 || strcmp(row->external_id, row->effect_ids[1]) == 0;
    if (row->effects == 0 || !known)
        sim_violated(model->sim, "5.4 success means an effect: %s (intent %u) names %s, the provider has %u (%s)",
                     row->id, row->intent, row->external_id, row->effects, row->effect_ids[0]);
}

/* What the provider showed must not go unnoticed (1, 5.4, 7.1). */
static void check_noticed(struct checker_model *model, const struct check_row *row)
{
    const struct check_try *try = row->last_try;
    if (try && try->outcome == OUTCOME_SEVERAL && !(row->incidents & 1u << INCIDENT_DUPLICATE_EFFECT))
        sim_violated(model->sim, "7.1 two matches are an incident: %s (intent %u) has none", row->id, row->intent);
    if (try && try->outcome == OUTCOME_WRONG_OBJECT && try->kind == ATTEMPT_CALL &&
        !(row->incidents & 1u << INCIDENT_WRONG_OBJECT))
        sim_violated(model->sim, "5.4 another operation's object is an incident: %s (intent %u) has none", row->id,
                     row->intent);
}

/* ---- transitions ---- */

/* A gateway moves what it holds or nobody does. People's decisions and late evidence may go over a lease: whoever holds
 * it loses its compare-and-set then. */
static void check_lease(struct checker_model *model, unsigned number, const struct check_row *row,
                        const struct ledger_transition *change)
{
    const char *me = model->gateways[number - 1].incarnation;
    const char *owner = change->op->owner ? change->op->owner : "";
    enum cause cause = last_cause(change);
    bool over = cause == CAUSE_OPERATOR || cause == CAUSE_CANCEL || cause == CAUSE_EVIDENCE || cause == CAUSE_APPROVAL;
    bool own_word = check_is_executor(row->owner) && text_equal(change->fence, row->owner);
    if (row->owner[0] && strcmp(row->owner, me) != 0 && !over && !own_word)
        sim_violated(model->sim, "15 leases are exclusive: gw%u (%s) moves %s (intent %u) by %s, it is held by %s",
                     number, me, row->id, row->intent, cause_name(cause), row->owner);
    bool begun = check_is_executor(owner) && change->op->state == STATE_DISPATCHED && check_is_guarded(row);
    if (owner[0] && strcmp(owner, me) != 0 && strcmp(owner, row->owner) != 0 && !begun)
        sim_violated(model->sim, "15 leases are not given away: gw%u writes %s as owner of %s", number, owner, row->id);
}

static void check_end_is_final(struct checker_model *model, const struct check_row *row, const struct operation *op)
{
    if (!state_terminal(row->state) || op->state != row->state)
        return;
    const char *external_id = op->external_id ? op->external_id : "";
    if (strcmp(row->external_id, external_id) != 0 || row->result != check_digest(op->result) ||
        row->completed_ms != op->completed_ms)
        sim_violated(model->sim, "3.1 terminal states are write-once: %s (intent %u, %s) changes its result", row->id,
                     row->intent, state_name(row->state));
}

static void keep_state(struct check_row *row)
{
    size_t need = (size_t)row->rev;
    if (need > row->states_room) {
        row->states_room = need < 8 ? 8 : 2 * need;
        row->states = mem_grow(row->states, row->states_room);
    }
    row->states[need - 1] = (unsigned char)row->state;
}

static void take_life(struct checker_model *model, struct check_row *row, const struct operation *op)
{
    row->state = op->state;
    row->reason = op->reason;
    row->rev = op->rev;
    row->changed_ms = model->sim->now_ms;
    check_copy(row->owner, sizeof row->owner, op->owner);
    row->lease_until_ms = op->lease_until_ms;
    row->wake_at_ms = op->wake_at_ms;
    row->updated_ms = op->updated_ms;
    row->completed_ms = op->completed_ms;
    row->retain_until_ms = op->retain_until_ms;
    check_copy(row->external_id, sizeof row->external_id, op->external_id);
    row->result = check_digest(op->result);
    if (state_terminal(op->state))
        row->orphaned = false;
    keep_state(row);
}

/* 7.3: closed as "did not happen" by look-ups or a person: looked at again later. */
static void begin_watch(struct checker_model *model, struct check_row *row, enum cause cause)
{
    bool closes = row->state == STATE_FAILED_PERMANENT && (cause == CAUSE_LOOKUP || cause == CAUSE_OPERATOR);
    if (!closes || !row->tool || !row->tool->has_lookup || row->tool->reconcile.watch_count == 0)
        return;
    int64_t first = row->completed_ms + row->tool->reconcile.watch_ms[0];
    row->closed_absent_ms = row->completed_ms;
    row->closed_tries = row->last_try ? row->last_try->number : 0;
    bool late = row->wake_at_ms > first && row->wake_at_ms > row->completed_ms + MISSING_TOOL_MS;
    if (row->wake_at_ms == 0 || late)
        sim_violated(
            model->sim,
            "7.3 late-landing watch: %s (intent %u) closed as absent, to be looked at in %lld ms, wakes in %lld",
            row->id, row->intent, (long long)row->tool->reconcile.watch_ms[0],
            (long long)(row->wake_at_ms ? row->wake_at_ms - row->completed_ms : -1));
}

static void check_schedule(struct checker_model *model, const struct check_row *row)
{
    bool follows = row->state == STATE_COMPENSATING || row->steps; /* its compensation's, or step's, end moves it */
    if (!state_terminal(row->state) && row->wake_at_ms == 0 && row->reason != REASON_NEEDS_OPERATOR && !follows)
        sim_violated(model->sim, "7.2, 14 nothing open is forgotten: %s (intent %u) is %s (%s) without a time to wake",
                     row->id, row->intent, state_name(row->state), reason_name(row->reason));
    bool at_once = row->wake_at_ms <= row->updated_ms; /* a claim can come back after the lease that it gave */
    if (row->owner[0] && row->wake_at_ms > row->lease_until_ms && !at_once)
        sim_violated(model->sim, "3.3 a lease that ends is noticed: %s is held until %lld and wakes later", row->id,
                     (long long)row->lease_until_ms);
}

static void follow(struct checker_model *model, const struct ledger_undone *moved);

static void note_incident(struct checker_model *model, const struct operation *op)
{
    struct check_row *row = check_find(model, op->id);
    if (row && row->steps)
        row->incidents |= 1u << INCIDENT_CONTRADICTION;
}

static void transition(struct checker_model *model, unsigned number, const struct ledger_transition *change)
{
    const struct operation *op = change->op;
    struct check_row *row = check_find(model, op->id);
    if (!row || row->dropped) {
        sim_violated(model->sim, "4 only what was admitted has a life: %s is moved and %s", op->id,
                     row ? "was dropped" : "nobody admitted it");
        return;
    }
    if (op->rev != row->rev + 1)
        sim_violated(model->sim, "3.1, 15 compare-and-set: %s (intent %u) goes from version %lld to %lld by gw%u",
                     row->id, row->intent, (long long)row->rev, (long long)op->rev, number);
    enum state from = row->state;
    enum cause cause = last_cause(change);
    bool doubted = check_in_doubt(row);
    char owner[INCARNATION_SIZE];
    check_copy(owner, sizeof owner, row->owner);
    if (number > 0)
        check_lease(model, number, row, change);
    check_events(model, row, change);
    check_end_is_final(model, row, op);
    check_approvals(model, row, change);
    struct check_try *began = write_tries(model, row, change);
    for (size_t i = 0; i < change->incident_count; i++) {
        row->incidents |= 1u << change->incidents[i].kind;
        check_copy(row->incident, sizeof row->incident, change->incidents[i].id);
    }
    take_life(model, row, op);
    if (change->inbound)
        check_inbound_applied(model, row, from, change);
    if (from != row->state && row->state == STATE_DISPATCHED)
        check_dispatch(model, row, began, doubted);
    if (from != row->state && check_proven_absent(row->state))
        check_no_effect(model, row, cause, check_told_no_effect(model, change));
    if (from != row->state && row->state == STATE_COMPLETED_SUCCESS && from != STATE_COMPENSATING && !row->steps)
        check_success(model, row, cause);
    if (from != row->state && check_proven_absent(from) && row->state == STATE_COMPLETED_SUCCESS &&
        !(row->incidents & 1u << INCIDENT_LATE_LANDING))
        sim_violated(model->sim, "3.4 a corrected \"no effect\" is an incident: %s (intent %u) has none", row->id,
                     row->intent);
    row->by_evidence |= from == STATE_DISPATCHED && row->state == STATE_COMPLETED_SUCCESS && cause == CAUSE_EVIDENCE;
    if (from != row->state)
        begin_watch(model, row, cause);
    check_noticed(model, row);
    check_guard_moved(model, row, from, change, owner);
    check_schedule(model, row);
    check_claims_moved(model, row, from, op);
    if (from != row->state && state_terminal(row->state))
        check_undone_moved(model, row, change);
    if (row->steps)
        check_parent_moved(model, row, from, change);
    if (number > 0) /* of what moves on account of another, that one's change tells */
        check_parent_told(model, row, from, change->parent);
    if (change->undone)
        follow(model, change->undone);
    if (change->parent)
        follow(model, change->parent);
}

/* On account of another operation: over whatever lease there is (compare-and-set), number 0. */
static void follow(struct checker_model *model, const struct ledger_undone *moved)
{
    struct ledger_transition change = {.op = moved->op, .event_count = moved->event_count};
    memcpy(change.events, moved->events, sizeof change.events);
    transition(model, 0, &change);
    if (moved
            ->incident) /* which of them only its kind of operation tells: what could not be undone, or came too late */
        note_incident(model, moved->op);
}

/* ---- admission (2, 4) ---- */

static const struct tool *tool_at_admission(struct checker_model *model, const struct operation *op)
{
    struct sim *sim = model->sim;
    for (size_t i = 0; i < tools_variant_count(sim); i++) {
        struct registry *registry = tools_variant(sim, i);
        if (text_equal(registry_policy_version(registry), op->policy_version))
            return registry_find(registry, str_of(op->tool));
    }
    return registry_find(sim->registry, str_of(op->tool));
}

static bool same_scope(const struct operation *op, const struct check_row *other)
{
    if (op->run)
        return text_equal(op->run, other->run);
    return !op->session || text_equal(op->session, other->session);
}

static struct check_list *list_of(struct checker_model *model, const struct operation *op)
{
    char key[CHECK_KEY_SIZE];
    size_t n = check_joined(key, str_of(op->tenant), str_of(op->tool), str_of(op->principal));
    struct check_list *list = map_get(&model->newest_of_tool, key);
    if (!list) {
        list = arena_zero(&model->arena, sizeof *list + n + 1);
        memcpy(list->key, key, n + 1);
        map_put(&model->newest_of_tool, list->key, list);
    }
    return list;
}

/* 2.9: what a caller left unresolved holds the same principal's other calls of this tool. */
static bool holds(const struct ledger_admit *admit, const struct check_row *other)
{
    bool unresolved = other->state == STATE_UNKNOWN_OUTCOME ||
                      ((other->state == STATE_DISPATCHED || other->state == STATE_ACKNOWLEDGED) && other->orphaned);
    for (size_t i = 0; i < admit->admission.distinct_count; i++)
        if (strcmp(admit->admission.distinct_from[i], other->id) == 0)
            return false;
    return unresolved && same_scope(admit->admission.op, other);
}

/* 2.2.5: what a call without any key joins: the same call, open, not yet told of, or finished within the window. */
static bool joins(const struct operation *op, const struct tool *tool, const struct check_row *other)
{
    if (!digest_equal(&op->fingerprint, &other->fingerprint))
        return false;
    bool in_window = tool && tool->repeat_window_ms > 0 && other->completed_ms &&
                     op->created_ms - other->completed_ms < tool->repeat_window_ms;
    if (other->state == STATE_REJECTED && (other->reason == REASON_EXPIRED || other->reason == REASON_POLICY))
        return false; /* 8, 9: a later call need not meet the same */
    bool untold = other->key_source == KEY_SOURCE_REPEAT && !other->delivered;
    bool open = !other->dropped && (!state_terminal(other->state) || untold);
    if (open && !op->run)
        return true;
    return same_scope(op, other) && (open || in_window);
}

static void check_keyless(struct checker_model *model, const struct check_row *row, const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op;
    for (const struct check_row *other = row->older_of_tool; other; other = other->older_of_tool) {
        bool own_way = op->compensates || op->parent; /* it names what it undoes, or is a step of */
        if (row->tool && row->tool->in_doubt == IN_DOUBT_HOLD && !own_way && holds(admit, other))
            sim_violated(model->sim, "2.9 in-doubt guard: %s (intent %u) runs while %s (intent %u) is %s", row->id,
                         row->intent, other->id, other->intent, state_name(other->state));
        if (op->key_source == KEY_SOURCE_REPEAT && !op->repeat_of && !op->previous && joins(op, row->tool, other))
            sim_violated(model->sim,
                         "2.2.5 a repeat joins: %s (intent %u) is new, %s (intent %u) is the same call and %s", row->id,
                         row->intent, other->id, other->intent,
                         other->dropped ? "was finished within the window" : state_name(other->state));
    }
}

/* Another operation may take its place: nothing happened, or what did was rolled back (10.2). */
static bool proven_without_effect(const struct check_row *row)
{
    bool rolled_back = row->steps && row->state == STATE_COMPENSATED;
    return rolled_back ||
           ((row->state == STATE_FAILED_PERMANENT || row->state == STATE_REJECTED) && !check_in_doubt(row));
}

/* 2.4, 2.7, 15: one operation per key; a further version only after proof that the former had no effect. */
static void check_key(struct checker_model *model, const struct check_row *row)
{
    int newest = 0;
    for (size_t i = model->row_count; i-- > 0;) {
        const struct check_row *other = model->rows[i];
        if (other == row || !digest_equal(&other->key_hash, &row->key_hash))
            continue;
        if (newest == 0)
            newest = other->key_version;
        if (!proven_without_effect(other))
            sim_violated(model->sim,
                         "2, 15 a key is never forgotten: %s (intent %u) is new, %s has its key and is %s%s", row->id,
                         row->intent, other->id, other->dropped ? "a tombstone: " : "", state_name(other->state));
        break;
    }
    if (row->key_version != newest + 1)
        sim_violated(model->sim, "2.7 versions count up: %s (intent %u) is version %d, the newest was %d", row->id,
                     row->intent, row->key_version, newest);
}

/* The same intent never has a second operation that could have an effect, whatever its key is. */
static void check_one_intent(struct checker_model *model, const struct check_row *row, const struct operation *op)
{
    struct check_intent *intent = check_intent_of(model, row->intent);
    if (row->intent == 0)
        return;
    for (const struct check_row *other = row->older_of_intent; other; other = other->older_of_intent) {
        if (proven_without_effect(other) || other->undoes != row->undoes) /* of another original */
            continue;
        if (op->key_source == KEY_SOURCE_REPEAT && !op->repeat_of) {
            intent->allowed++; /* 2.2.5 lets it be another one: check_keyless has judged that */
            return;
        }
        sim_violated(model->sim, "1, 2 one intent, one operation: %s is new for intent %u (key source %s), %s is %s",
                     row->id, row->intent, key_source_name(op->key_source), other->id, state_name(other->state));
    }
}

/* 2.2: the first source that yields a key wins. */
static void check_source(struct checker_model *model, const struct check_row *row, const struct operation *op)
{
    enum key_source source = op->key_source;
    bool weaker_than_business = source != KEY_SOURCE_CALLER && source != KEY_SOURCE_BUSINESS;
    bool wrong = row->tool && ((row->tool->identity == IDENTITY_CALLER && source != KEY_SOURCE_CALLER) ||
                               (row->tool->key && weaker_than_business));
    wrong |= op->run && op->step && (source == KEY_SOURCE_CALL || source == KEY_SOURCE_REPEAT);
    wrong |= op->call && source == KEY_SOURCE_REPEAT;
    if (wrong && !op->compensates && !op->parent)
        sim_violated(model->sim, "2.2 the first source of a key wins: %s (intent %u, tool %s) took %s", row->id,
                     row->intent, row->tool_name, key_source_name(source));
}

static void check_first_state(struct checker_model *model, unsigned number, const struct check_row *row,
                              const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op;
    bool fits = op->state == STATE_PLANNED || op->state == STATE_PENDING_DISPATCH || op->state == STATE_DISPATCHED;
    if (!fits || op->rev != 1)
        sim_violated(model->sim, "4 admission: %s begins as %s, version %lld", op->id, state_name(op->state),
                     (long long)op->rev);
    if ((op->state == STATE_DISPATCHED) != (admit->attempt != NULL))
        sim_violated(model->sim, "5.1 dispatched with its attempt row: %s begins as %s %s one", op->id,
                     state_name(op->state), admit->attempt ? "with" : "without");
    bool begun = check_is_executor(op->owner) && op->state == STATE_DISPATCHED && check_is_guarded(row);
    if (op->owner && !begun && strcmp(op->owner, model->gateways[number - 1].incarnation) != 0)
        sim_violated(model->sim, "15 leases are not given away: gw%u admits %s for %s", number, op->id, op->owner);
    if (admit->event.to != op->state || admit->event.cause != CAUSE_ADMITTED)
        sim_violated(model->sim, "3.1 every life begins with its event: %s", op->id);
    if (row->tool && row->tool->class == CLASS_READ && !row->tool->audit && !op->parent && !row->steps)
        sim_violated(model->sim, "4 reads leave no row: %s", op->id);
}

static uint32_t call_of_trace(const char *trace)
{
    const char *last = trace ? strrchr(trace, '-') : NULL;
    return last ? (uint32_t)strtoul(last + 1, NULL, 10) : 0;
}

/* An operator's retry has no caller: it is of the intent of the version before it. */
static void find_intent(struct checker_model *model, struct check_row *row, const struct operation *op)
{
    const struct check_row *previous = op->previous ? check_find(model, op->previous) : NULL;
    row->intent = intent_of_trace(op->trace);
    row->call = call_of_trace(op->trace);
    if (row->intent == 0 && previous)
        row->intent = previous->intent;
}

static struct check_row *new_row(struct checker_model *model, const struct operation *op)
{
    struct arena *arena = &model->arena;
    struct check_row *row = arena_zero(arena, sizeof *row);
    check_copy(row->id, sizeof row->id, op->id);
    row->tool = tool_at_admission(model, op);
    row->tenant = arena_copy_text(arena, op->tenant);
    row->tool_name = arena_copy_text(arena, op->tool);
    row->principal = arena_copy_text(arena, op->principal);
    row->run = arena_copy_text(arena, op->run);
    row->session = arena_copy_text(arena, op->session);
    row->provider_key = arena_copy_text(arena, op->provider_key);
    row->key_hash = op->key_hash;
    row->fingerprint = op->fingerprint;
    row->key_version = op->key_version;
    row->key_source = op->key_source;
    row->created_ms = op->created_ms;
    find_intent(model, row, op);
    check_steps_of_row(model, row, op);
    return row;
}

static void link_row(struct checker_model *model, struct check_row *row, const struct operation *op)
{
    struct check_intent *intent = check_intent_of(model, row->intent);
    struct check_list *list = list_of(model, op);
    if (model->row_count == model->row_room) {
        model->row_room = model->row_room ? 2 * model->row_room : 64;
        model->rows = mem_grow(model->rows, model->row_room * sizeof(struct check_row *));
    }
    model->rows[model->row_count++] = row;
    map_put(&model->by_id, row->id, row);
    row->older_of_intent = intent->newest;
    intent->newest = row;
    row->older_of_tool = list->newest;
    list->newest = row;
}

static void insert(struct checker_model *model, unsigned number, const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op;
    if (check_find(model, op->id)) {
        sim_violated(model->sim, "1 ids are unique: %s is admitted twice", op->id);
        return;
    }
    struct check_row *row = new_row(model, op);
    link_row(model, row, op);
    if (admit->attempt)
        add_try(model, row, admit->attempt);
    take_life(model, row, op);
    check_first_state(model, number, row, admit);
    check_undone_admitted(model, row, op, admit);
    check_step_admitted(model, row, op, admit);
    check_source(model, row, op);
    check_asked_at_admission(model, row, op);
    check_key(model, row);
    check_keyless(model, row, admit);
    check_one_intent(model, row, op);
    check_schedule(model, row);
    check_claims_admitted(model, row, op);
    if (admit->undoes)
        transition(model, 0, admit->undoes);
    if (admit->parent)
        transition(model, 0, admit->parent);
    if (row->call && check_intent_of(model, row->intent)->not_executed & UINT64_C(1) << (row->call % CALLS_MAX))
        sim_violated(model->sim, "4, 12 told that nothing was recorded, yet call %u of intent %u makes %s", row->call,
                     row->intent, row->id);
}

/* With its entities busy it is written as one that waits: nothing of it has left (9.1). */
static void insert_as_admitted(struct checker_model *model, unsigned number, const struct ledger_admit *admit)
{
    struct ledger_admit waiting = *admit;
    struct operation op = *admit->admission.op;
    if (!admit->result.waits) {
        insert(model, number, admit);
        return;
    }
    op.state = STATE_PLANNED;
    op.reason = REASON_AWAITING_ENTITY;
    op.may_have_applied = false;
    op.attempts = op.tries = 0;
    op.first_sent_ms = op.last_sent_ms = op.lease_until_ms = 0;
    op.owner = NULL;
    op.wake_at_ms = admit->admission.claims->wait_until_ms;
    waiting.admission.op = &op;
    waiting.attempt = NULL;
    waiting.event.from = waiting.event.to = STATE_PLANNED;
    insert(model, number, &waiting);
}

/* Joined or replayed: the same key (or the same call, 2.2.5), and the arguments decide before the state does (2.7). */
static void check_met(struct checker_model *model, const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op, *existing = admit->result.existing;
    struct check_row *row = check_find(model, existing->id);
    if (!row) {
        sim_violated(model->sim, "4 joined what does not exist: %s", existing->id);
        return;
    }
    bool same = digest_equal(&op->fingerprint, &existing->fingerprint);
    bool same_key = digest_equal(&op->key_hash, &existing->key_hash);
    bool keyless = op->key_source == KEY_SOURCE_REPEAT;
    const struct tool *tool = tool_at_admission(model, op);
    if (!same_key && !(keyless && same))
        sim_violated(model->sim,
                     "2 other intents are never merged: a call of intent %u meets %s of intent %u, another key",
                     intent_of_trace(op->trace), row->id, row->intent);
    if (!same && tool && tool->on_mismatch == MISMATCH_CONFLICT)
        sim_violated(model->sim, "2.7 same key, other arguments is a conflict: a call of intent %u is given %s",
                     intent_of_trace(op->trace), row->id);
    if (!text_equal(op->tenant, existing->tenant) || !text_equal(op->tool, existing->tool))
        sim_violated(model->sim, "2.4, 16 the scope of a key is tenant and tool: a call of %s meets %s of %s",
                     op->tenant, existing->id, existing->tenant);
}

static void admitted(struct checker_model *model, unsigned number, const struct ledger_admit *admit)
{
    if (admit->dry_run)
        return; /* whether it left something behind shows at the end */
    switch (admit->result.verdict) {
    case VERDICT_NEW: insert_as_admitted(model, number, admit); break;
    case VERDICT_JOIN:
    case VERDICT_REPLAY: check_met(model, admit); break;
    case VERDICT_POLICY: check_claims_refused(model, new_row(model, admit->admission.op), admit); break;
    case VERDICT_CONFLICT:
    case VERDICT_NOT_SHARED:
    case VERDICT_HELD:
    case VERDICT_EXPIRED:
    case VERDICT_REPEAT_UNKNOWN:
    case VERDICT_LOOK:
    case VERDICT_REPEAT_OPEN: break; /* checker_reply: nothing may come of this call */
    }
}

/* ---- claims, marks, retention (15) ---- */

static void claimed(struct checker_model *model, unsigned number, const struct ledger_claim *claim)
{
    if (claim->foreign && model->sim->options->gateways > 1)
        sim_violated(model->sim, "15 other gateways may live: gw%u takes over whatever their leases say", number);
    for (size_t i = 0; i < claim->count; i++) {
        struct check_row *row = check_find(model, claim->ops[i]->id);
        if (!row || row->dropped) {
            sim_violated(model->sim, "4 claimed what does not exist: %s", claim->ops[i]->id);
            continue;
        }
        bool free = !row->owner[0] || strcmp(row->owner, claim->owner) == 0 || row->lease_until_ms <= claim->now_ms;
        if (!free && (!claim->foreign || check_is_executor(row->owner))) /* an application is no former process */
            sim_violated(model->sim, "15 leases are exclusive: gw%u claims %s (intent %u), held by %s for %lld ms more",
                         number, row->id, row->intent, row->owner, (long long)(row->lease_until_ms - claim->now_ms));
        if (strcmp(row->owner, claim->owner) != 0) {
            check_copy(row->former, sizeof row->former, row->owner);
            row->former_until_ms = row->lease_until_ms;
            row->claimed_ms = model->sim->now_ms;
        }
        check_copy(row->owner, sizeof row->owner, claim->owner);
        row->lease_until_ms = claim->now_ms + claim->lease_ms;
        row->wake_at_ms = ledger_renewal_ms(claim);
    }
}

/* Only what is its own, and nothing of which bytes may be under way. */
static void released(struct checker_model *model, const struct ledger_release *release)
{
    for (size_t i = 0; i < model->row_count; i++) {
        struct check_row *row = model->rows[i];
        if (row->dropped || strcmp(row->owner, release->owner) != 0 || state_terminal(row->state) ||
            row->state == STATE_DISPATCHED)
            continue;
        row->owner[0] = '\0';
        row->lease_until_ms = 0;
        row->wake_at_ms = release->now_ms;
    }
}

static void marked(struct checker_model *model, const struct ledger_mark *mark)
{
    struct check_row *row = check_find(model, mark->operation);
    if (!row || row->dropped)
        return;
    row->delivered |= mark->delivered;
    row->orphaned = (row->orphaned || mark->orphaned) && !mark->not_orphaned;
}

static void expired(struct checker_model *model, const struct ledger_expire *expire)
{
    struct check_row *row = check_find(model, expire->operation);
    if (!row || row->dropped || !state_terminal(row->state) || expire->rev != row->rev) {
        sim_violated(model->sim, "15 retention: %s is dropped and is %s", expire->operation,
                     row ? state_name(row->state) : "unknown");
        return;
    }
    if (row->retain_until_ms == 0 || expire->now_ms < row->retain_until_ms)
        sim_violated(model->sim, "15 retention: %s (intent %u) is dropped %lld ms too early", row->id, row->intent,
                     (long long)(row->retain_until_ms - expire->now_ms));
    row->dropped = true;
    row->owner[0] = '\0';
}

void check_committed(struct checker_model *model, unsigned number, const struct ledger_request *request)
{
    const struct check_row *row =
        request->command == LEDGER_TRANSITION ? check_find(model, request->transition.op->id) : NULL;
    bool writes =
        !(request->command == LEDGER_ADMIT && (request->admit.dry_run || request->admit.result.verdict != VERDICT_NEW));
    if (writes)
        learn_incarnation(model, number, shown_by(request, row));
    switch (request->command) {
    case LEDGER_ADMIT: admitted(model, number, &request->admit); break;
    case LEDGER_TRANSITION: transition(model, number, &request->transition); break;
    case LEDGER_CLAIM_DUE: claimed(model, number, &request->claim); break;
    case LEDGER_MARK: marked(model, &request->mark); break;
    case LEDGER_EXPIRE: expired(model, &request->expire); break;
    case LEDGER_RECORD_INBOUND: check_event_recorded(model, &request->record_inbound); break;
    case LEDGER_INBOX_PRUNE: check_events_pruned(model, &request->inbox_prune); break;
    case LEDGER_RELEASE: released(model, &request->release); break;
    case LEDGER_WATCH:
    case LEDGER_GET:
    case LEDGER_GET_BY_KEY:
    case LEDGER_LIST:
    case LEDGER_EVENTS:
    case LEDGER_ATTEMPTS:
    case LEDGER_INCIDENTS:
    case LEDGER_ACKNOWLEDGE:
    case LEDGER_TOKEN_ADD:
    case LEDGER_TOKEN_FIND:
    case LEDGER_TOKEN_LIST:
    case LEDGER_TOKEN_REVOKE:
    case LEDGER_INBOX_OF:
    case LEDGER_INBOX_DUE:
    case LEDGER_INBOX_LIST:
    case LEDGER_INBOX_COUNTS:
    case LEDGER_FORWARD_DUE:
    case LEDGER_FORWARD_MOVE:
    case LEDGER_ENTITIES:
    case LEDGER_ENTITY_RELEASE:
    case LEDGER_BUDGETS:
    case LEDGER_STATS: break; /* nothing of an operation changes */
    }
}
