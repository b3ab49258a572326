#include "support/life.h"

#include "core/inbox.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the checks of one step need. */
struct look {
    struct life *life;
    const struct tool *tool;
    const struct step_input *in;
    const struct operation *before, *after;
    const struct step_effects *fx;
};

static bool broken(struct look *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool broken(struct look *l, const char *format, ...)
{
    va_list arguments;
    if (l->life->broken[0])
        return false;
    va_start(arguments, format);
    vsnprintf(l->life->broken, sizeof l->life->broken, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- states ---- */

static bool no_effect(enum state state)
{
    return state == STATE_FAILED_RETRYABLE || state == STATE_FAILED_PERMANENT || state == STATE_REJECTED;
}

static bool closed(enum state state)
{
    return state == STATE_COMPLETED_SUCCESS || state == STATE_COMPLETED_NOOP || state == STATE_FAILED_PERMANENT ||
           state == STATE_REJECTED || state == STATE_COMPENSATED;
}

static bool undoes(enum step_kind kind)
{
    return kind == STEP_COMPENSATE || kind == STEP_COMPENSATION_ENDED;
}

/* The moves of docs/states.md that an input may cause; "nothing was ever sent" of rejected is checked elsewhere. */
static bool may_move(enum state from, enum state to, bool proof, enum step_kind kind)
{
    switch (from) {
    case STATE_PLANNED: return to == STATE_PENDING_DISPATCH || to == STATE_DISPATCHED || to == STATE_REJECTED;
    case STATE_PENDING_DISPATCH: return to == STATE_DISPATCHED || to == STATE_REJECTED;
    case STATE_DISPATCHED:
        return to == STATE_ACKNOWLEDGED || to == STATE_COMPLETED_SUCCESS || to == STATE_COMPLETED_NOOP ||
               to == STATE_FAILED_RETRYABLE || to == STATE_FAILED_PERMANENT || to == STATE_UNKNOWN_OUTCOME;
    case STATE_ACKNOWLEDGED:
        return to == STATE_COMPLETED_SUCCESS || to == STATE_COMPLETED_NOOP || to == STATE_UNKNOWN_OUTCOME;
    case STATE_FAILED_RETRYABLE:
        return to == STATE_DISPATCHED || to == STATE_FAILED_PERMANENT || to == STATE_REJECTED ||
               (proof && to == STATE_COMPLETED_SUCCESS);
    case STATE_UNKNOWN_OUTCOME:
        return to == STATE_DISPATCHED || to == STATE_ACKNOWLEDGED || to == STATE_COMPLETED_SUCCESS ||
               to == STATE_COMPLETED_NOOP || to == STATE_FAILED_RETRYABLE || to == STATE_FAILED_PERMANENT;
    case STATE_FAILED_PERMANENT:
    case STATE_REJECTED: return proof && to == STATE_COMPLETED_SUCCESS;
    case STATE_COMPLETED_SUCCESS: return undoes(kind) && to == STATE_COMPENSATING;
    case STATE_COMPENSATING:
        return kind == STEP_COMPENSATION_ENDED && (to == STATE_COMPENSATED || to == STATE_COMPLETED_SUCCESS);
    case STATE_COMPLETED_NOOP:
    case STATE_COMPENSATED: return false;
    }
    return false;
}

/* ---- what an input proves ---- */

static bool definite_no_effect(enum outcome outcome)
{
    return outcome == OUTCOME_NOT_SENT || outcome == OUTCOME_REFUSED || outcome == OUTCOME_NOT_PROCESSED;
}

static bool is_look_up(const struct look *l)
{
    return l->in->kind == STEP_LOOKUP_ANSWER && l->tool;
}

/* The answer of the attempt that is on the wire. */
static bool is_answer(const struct look *l)
{
    return l->in->kind == STEP_ANSWER && l->before->state == STATE_DISPATCHED;
}

static bool shows_effect(const struct look *l)
{
    enum outcome outcome = l->in->finding.outcome;
    switch (l->in->kind) {
    case STEP_ANSWER:
        if (l->before->state == STATE_DISPATCHED)
            return outcome == OUTCOME_SUCCESS;
        return outcome == OUTCOME_SUCCESS || outcome == OUTCOME_FOUND || outcome == OUTCOME_SEVERAL;
    case STEP_EVIDENCE: return outcome == OUTCOME_SUCCESS || outcome == OUTCOME_FOUND || outcome == OUTCOME_SEVERAL;
    case STEP_LOOKUP_ANSWER:
        return outcome == OUTCOME_FOUND || outcome == OUTCOME_SEVERAL ||
               (l->life->confirmed && outcome != OUTCOME_FAILED_THERE && outcome != OUTCOME_WRONG_OBJECT);
    case STEP_RESOLVE: return l->in->happened;
    case STEP_INBOUND: return l->in->event->outcome == INBOUND_SUCCESS;
    case STEP_DISPATCH:
    case STEP_HOLD:
    case STEP_AWAIT_ENTITY:
    case STEP_REFUSE:
    case STEP_LOOKUP_BEGIN:
    case STEP_WAKE:
    case STEP_KEEP:
    case STEP_OWNER_GONE:
    case STEP_RETRY:
    case STEP_CANCEL: break;
    case STEP_APPROVAL:
    case STEP_LINK:
    case STEP_RENEW:
    case STEP_COMPENSATE:
    case STEP_COMPENSATION_ENDED: break;
    case STEP_RUN_STEPS: /* of parents, whose lives are test_steps.c's */
    case STEP_BEGIN_STEP:
    case STEP_SKIP_STEP:
    case STEP_FAIL_STEP:
    case STEP_HOLD_STEP:
    case STEP_UNDO_STEP:
    case STEP_NOT_UNDONE:
    case STEP_FINISH_STEPS:
    case STEP_TOLD: break;
    }
    return false;
}

/* ---- following the life ---- */

/* In a row: what is asked or begun in between leaves the count, every other answer and every new attempt ends it. */
static void follow_absence(struct look *l)
{
    struct life *life = l->life;
    bool look_up = is_look_up(l) && l->before->state == STATE_UNKNOWN_OUTCOME;
    bool absent = look_up && l->in->finding.outcome == OUTCOME_ABSENT;
    if (absent && l->in->now_ms - life->last_sent_ms >= l->tool->reconcile.settle_ms)
        life->absences++;
    else if ((look_up && !absent) || l->in->kind == STEP_DISPATCH || l->in->kind == STEP_RETRY ||
             l->in->kind == STEP_INBOUND || (l->in->kind == STEP_EVIDENCE && l->in->finding.outcome != OUTCOME_ABSENT))
        life->absences = 0;
}

static void follow_attempt(struct look *l)
{
    struct life *life = l->life;
    enum outcome outcome = l->in->finding.outcome;
    if (l->in->kind == STEP_DISPATCH) {
        life->on_wire = true;
        life->call_attempts++;
        life->tries++;
        if (life->first_sent_ms == 0)
            life->first_sent_ms = l->in->now_ms;
        life->last_sent_ms = l->in->now_ms;
    } else if (l->in->kind == STEP_LOOKUP_BEGIN) {
        life->tries++;
    } else if (is_answer(l)) {
        life->on_wire = false;
        life->confirmed = outcome == OUTCOME_SUCCESS;
        life->doubt |= !definite_no_effect(outcome);
        if (outcome != OUTCOME_NOT_SENT) /* what never left used nobody's permission */
            life->operator_allows = false;
        if (outcome == OUTCOME_NOT_SENT && l->tool && --life->call_attempts == 0)
            life->first_sent_ms = life->last_sent_ms = 0;
    } else if (life->on_wire && l->after->state == STATE_UNKNOWN_OUTCOME) { /* the owner is gone */
        life->on_wire = false;
        life->doubt = true;
    }
}

static void follow_people(struct look *l)
{
    struct life *life = l->life;
    if (l->in->kind == STEP_RETRY || (l->in->kind == STEP_RESOLVE && !l->in->happened))
        life->operator_allows = true;
    if (l->in->kind == STEP_RESOLVE && !l->in->happened)
        life->doubt = life->on_wire = false;
}

static bool guarded(const struct look *l)
{
    return l->tool && l->tool->guard_lease_ms > 0;
}

/* The provider tells of its own accord that nothing happened: of the one request that there was, or of several that it
 * takes for one (11.1). */
static bool told_absent(const struct look *l)
{
    if (l->in->kind != STEP_INBOUND || l->in->event->outcome != INBOUND_NO_EFFECT)
        return false;
    bool one = l->life->call_attempts <= 1 ||
               (l->tool && l->tool->provider->key_honoured &&
                (l->tool->class == CLASS_INTERNAL_WRITE || l->tool->class == CLASS_EXTERNAL_IDEMPOTENT));
    return one && inbound_newer(l->in->event, l->in->standing);
}

/* The last executor, whose lease ended, says that it did nothing (11.2). */
static bool taken_back(const struct look *l)
{
    enum outcome outcome = l->in->finding.outcome;
    bool late = l->in->kind == STEP_EVIDENCE || (l->in->kind == STEP_ANSWER && l->before->state != STATE_DISPATCHED);
    return guarded(l) && late && l->in->attempt == l->life->tries &&
           (outcome == OUTCOME_REFUSED || outcome == OUTCOME_NOT_PROCESSED);
}

static bool proven_absent(const struct look *l)
{
    return (is_look_up(l) && l->tool && l->life->absences >= (int)l->tool->reconcile.absent_times) || told_absent(l) ||
           taken_back(l);
}

/* ---- approvals (8) ---- */

static void ask(struct life *life, const struct operation *op)
{
    struct approval approval;
    struct arena arena;
    arena_init(&arena);
    life->agreed_count = 0;
    if (op->approval.p && approval_read(&arena, op->approval, &approval, NULL) == ERR_NONE) {
        life->needed = approval.needed;
        life->expires_ms = approval.expires_ms;
    }
    arena_release(&arena);
}

static bool waits_for_people(const struct life *life)
{
    return life->agreed_count < life->needed;
}

static bool has_agreed(const struct life *life, const char *person)
{
    for (unsigned i = 0; i < life->agreed_count; i++)
        if (strcmp(life->agreed[i], person) == 0)
            return true;
    return false;
}

static bool other_policy(const struct look *l)
{
    return l->tool && l->tool->approval.policy && l->life->policy &&
           strcmp(l->tool->approval.policy, l->life->policy) != 0;
}

/* The request is made anew: by its next wake, or when somebody agrees to what is no longer asked. */
static bool follow_anew(struct look *l)
{
    if (!other_policy(l) || l->after->state != STATE_PLANNED || l->after->reason != REASON_AWAITING_APPROVAL)
        return broken(l, "the approval was rewritten");
    ask(l->life, l->after);
    l->life->policy = l->tool->approval.policy;
    return true;
}

static bool follow_decision(struct look *l)
{
    struct life *life = l->life;
    const char *person = l->in->actor;
    enum state to = l->after->state;
    if (l->before->state != STATE_PLANNED || !waits_for_people(life) || has_agreed(life, person))
        return broken(l, "a decision counts that is none");
    if (strcmp(person, l->before->principal) == 0)
        return broken(l, "who called it decides on it");
    if (life->expires_ms <= l->in->now_ms)
        return (to == STATE_REJECTED && l->after->reason == REASON_EXPIRED) || broken(l, "decided too late");
    if (!l->in->approve)
        return (to == STATE_REJECTED && l->after->reason == REASON_DENIED) || broken(l, "a no was not heard");
    if (other_policy(l))
        return follow_anew(l);
    life->agreed[life->agreed_count++] = person;
    if (!waits_for_people(life))
        life->ready_ms = l->in->now_ms;
    bool waits = l->after->reason == REASON_AWAITING_APPROVAL;
    return (to == STATE_PLANNED && waits == waits_for_people(life)) || broken(l, "an agreement was not counted");
}

static bool check_people(struct look *l)
{
    bool rewritten = l->before->approval.p != l->after->approval.p;
    bool first = l->before->state == STATE_PLANNED || l->before->state == STATE_PENDING_DISPATCH;
    bool leaves = l->in->kind == STEP_DISPATCH || (l->in->kind == STEP_HOLD && first) || l->fx->action == ACTION_SEND;
    if (l->in->kind == STEP_APPROVAL)
        return follow_decision(l);
    if (rewritten)
        return l->in->kind == STEP_WAKE ? follow_anew(l) : broken(l, "the approval was rewritten");
    bool wants = l->after->state == STATE_PLANNED && l->fx->action == ACTION_SEND;
    if (wants && l->life->needed > 0 && other_policy(l))
        return broken(l, "goes on with an agreement to something else");
    return !(leaves && waits_for_people(l->life)) || broken(l, "goes on before people agreed");
}

/* A person's word that counts is not refused. */
static bool check_unheard(struct look *l)
{
    const struct life *life = l->life;
    bool own = strcmp(l->in->actor, l->before->principal) == 0;
    bool open = l->before->state == STATE_PLANNED && waits_for_people(life) && !own;
    if (l->in->kind == STEP_APPROVAL && open && !has_agreed(life, l->in->actor) && (l->tool || !l->in->approve))
        return broken(l, "a decision that counts was refused");
    return true;
}

/* ---- undoing (10.1) ---- */

static bool check_undoing(struct look *l)
{
    struct life *life = l->life;
    enum state from = l->before->state, to = l->after->state;
    if (l->in->kind == STEP_COMPENSATE) {
        life->undone_by = l->in->compensation;
        bool begun = from == STATE_COMPLETED_SUCCESS && !l->before->compensates && to == STATE_COMPENSATING &&
                     l->after->compensation == life->undone_by;
        return begun || broken(l, "what can not be undone is undone");
    }
    if (l->in->kind != STEP_COMPENSATION_ENDED)
        return from != STATE_COMPENSATING || to == STATE_COMPENSATING || broken(l, "undoing ended by itself");
    bool effect = l->in->ended == STATE_COMPLETED_SUCCESS || l->in->ended == STATE_COMPLETED_NOOP;
    bool latest = life->undone_by && strcmp(life->undone_by, l->in->compensation) == 0;
    if (effect) {
        if (from == STATE_COMPENSATED && latest)
            return broken(l, "the same undoing was told of twice");
        life->undone_by = from == STATE_COMPENSATED ? life->undone_by : l->in->compensation;
        return to == STATE_COMPENSATED || broken(l, "undone, and yet %s", state_name(to));
    }
    if (!latest || to != STATE_COMPLETED_SUCCESS)
        return broken(l, "an undoing without effect made it %s", state_name(to));
    return true;
}

/* ---- checks ---- */

static bool same_text(struct str a, struct str b)
{
    return a.p == b.p && a.n == b.n;
}

static bool check_identity(struct look *l)
{
    const struct operation *a = l->before, *b = l->after;
    bool same = strcmp(a->id, b->id) == 0 && a->tenant == b->tenant && a->tool == b->tool &&
                a->principal == b->principal && a->key == b->key && a->key_source == b->key_source &&
                a->key_version == b->key_version && a->provider_key == b->provider_key &&
                same_text(a->arguments, b->arguments) && a->created_ms == b->created_ms &&
                a->not_before_ms == b->not_before_ms && digest_equal(&a->key_hash, &b->key_hash) &&
                digest_equal(&a->base_hash, &b->base_hash) && digest_equal(&a->fingerprint, &b->fingerprint) &&
                a->delivered == b->delivered && a->orphaned == b->orphaned;
    return same || broken(l, "a step changed what admission fixed");
}

/* Events lead from the state that was to the state that is, by moves of the table. */
static bool check_events(struct look *l)
{
    struct life *life = l->life;
    const struct event *last = NULL;
    for (size_t i = 0; i < l->fx->event_count; i++) {
        last = &l->fx->events[i];
        if (last->from != life->state)
            return broken(l, "an event tells of %s, the operation was %s", state_name(last->from),
                          state_name(life->state));
        if (last->to != last->from && !may_move(last->from, last->to, shows_effect(l), l->in->kind))
            return broken(l, "moved from %s to %s", state_name(last->from), state_name(last->to));
        if (last->at_ms != l->in->now_ms || !last->actor)
            return broken(l, "an event without its time or actor");
        life->state = last->to;
    }
    if (life->state != l->after->state)
        return broken(l, "the events end in %s, the row says %s", state_name(life->state), state_name(l->after->state));
    bool told = last ? last->reason == l->after->reason : l->before->reason == l->after->reason;
    if (!told && l->after->reason != REASON_NEEDS_OPERATOR)
        return broken(l, "no event tells of reason %s", reason_name(l->after->reason));
    return true;
}

static size_t incidents(const struct look *l, enum incident_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < l->fx->incident_count; i++)
        count += l->fx->incidents[i].kind == kind;
    return count;
}

static bool check_incidents(struct look *l)
{
    enum outcome outcome = l->in->finding.outcome;
    bool corrected = no_effect(l->before->state) && l->after->state == STATE_COMPLETED_SUCCESS;
    if (corrected != (incidents(l, INCIDENT_LATE_LANDING) == 1))
        return broken(l, "late landing and its incident do not go together");
    bool open_look = is_look_up(l) && (l->before->state == STATE_UNKNOWN_OUTCOME ||
                                       l->before->state == STATE_ACKNOWLEDGED || closed(l->before->state));
    if (open_look && outcome == OUTCOME_SEVERAL && !l->after->duplicate_seen)
        return broken(l, "several effects were not noted");
    if (l->after->duplicate_seen && !l->before->duplicate_seen && incidents(l, INCIDENT_DUPLICATE_EFFECT) == 0)
        return broken(l, "several effects without an incident");
    bool stands = l->before->state == STATE_COMPENSATING && l->after->state == STATE_COMPLETED_SUCCESS;
    bool stopped = l->in->ended_reason == REASON_DENIED || l->in->ended_reason == REASON_CANCELLED;
    if ((stands && !stopped) != (incidents(l, INCIDENT_COMPENSATION_FAILED) == 1))
        return broken(l, "an undoing that failed and its incident do not go together");
    if (is_answer(l) && l->tool && outcome == OUTCOME_WRONG_OBJECT && incidents(l, INCIDENT_WRONG_OBJECT) != 1)
        return broken(l, "a wrong object without an incident");
    return true;
}

/* 3.1, 3.4 */
static bool check_closed(struct look *l)
{
    const struct operation *a = l->before, *b = l->after;
    if (closed(b->state) != (b->completed_ms != 0))
        return broken(l, "%s with completed_ms %lld", state_name(b->state), (long long)b->completed_ms);
    if (!closed(a->state) || a->state != b->state)
        return true;
    bool same = a->completed_ms == b->completed_ms && a->external_id == b->external_id &&
                same_text(a->result, b->result) && same_text(a->error, b->error) && a->attempts == b->attempts &&
                a->may_have_applied == b->may_have_applied;
    return same || broken(l, "a closed operation was rewritten");
}

/* 3.2: a failure needs proof, success too. */
static bool check_proof(struct look *l)
{
    struct life *life = l->life;
    const struct operation *a = l->before, *b = l->after;
    bool entered = a->state != b->state;
    bool given_back = a->state == STATE_COMPENSATING; /* it was proven before */
    if (entered && b->state == STATE_COMPLETED_SUCCESS && !given_back && !shows_effect(l))
        return broken(l, "success without proof");
    if (entered && b->state == STATE_COMPLETED_NOOP && !(is_answer(l) && l->in->finding.outcome == OUTCOME_NOOP))
        return broken(l, "noop without the provider's word");
    if (entered && no_effect(b->state)) {
        if (proven_absent(l))
            life->doubt = false;
        if (life->doubt || life->on_wire)
            return broken(l, "%s although an attempt may have landed", state_name(b->state));
        if (b->state == STATE_REJECTED && life->call_attempts > 0)
            return broken(l, "rejected after a request left");
    }
    bool possible = life->doubt || life->on_wire || b->state == STATE_COMPLETED_SUCCESS;
    if (possible && !b->may_have_applied && b->state != STATE_COMPLETED_NOOP)
        return broken(l, "may_have_applied is not set");
    bool nothing = no_effect(b->state) || b->state == STATE_PLANNED || b->state == STATE_PENDING_DISPATCH;
    return !(nothing && b->may_have_applied) || broken(l, "%s may have applied", state_name(b->state));
}

static bool check_counts(struct look *l)
{
    const struct life *life = l->life;
    const struct operation *b = l->after;
    if (b->attempts != life->call_attempts || b->tries != life->tries)
        return broken(l, "attempts %d of %d, tries %d of %d", b->attempts, life->call_attempts, b->tries, life->tries);
    if (b->first_sent_ms != life->first_sent_ms)
        return broken(l, "first sent at another time");
    return true;
}

/* 6: what is provably harmless to send again out of doubt. */
static bool harmless(const struct look *l)
{
    const struct life *life = l->life;
    const struct tool *tool = l->tool;
    bool by_key = tool->class == CLASS_INTERNAL_WRITE ||
                  (tool->class == CLASS_EXTERNAL_IDEMPOTENT && tool->idempotent_by == IDEMPOTENT_BY_KEY);
    if (by_key)
        return tool->provider->key_honoured && life->first_sent_ms > 0 &&
               l->in->now_ms - life->first_sent_ms < tool->provider->key_retention_ms;
    return tool->class == CLASS_EXTERNAL_IDEMPOTENT;
}

static bool check_send(struct look *l)
{
    const struct life *life = l->life;
    const struct operation *op = l->after;
    if (l->fx->action != ACTION_SEND)
        return true;
    int64_t since = op->not_before_ms > op->created_ms ? op->not_before_ms : op->created_ms;
    since = since > life->ready_ms ? since : life->ready_ms;
    bool waits = op->state == STATE_PLANNED || op->state == STATE_PENDING_DISPATCH ||
                 op->state == STATE_FAILED_RETRYABLE || op->state == STATE_UNKNOWN_OUTCOME;
    if (!waits || !l->tool)
        return broken(l, "wants to send while %s", state_name(op->state));
    if (op->not_before_ms > l->in->now_ms)
        return broken(l, "wants to send before its time");
    if (life->doubt && !harmless(l))
        return broken(l, "a request that may have landed is sent again");
    if (!life->operator_allows && life->call_attempts >= (int)l->tool->retry.attempts_max)
        return broken(l, "more attempts than the tool allows");
    if (!life->operator_allows && op->state != STATE_PLANNED && l->in->now_ms - since >= l->tool->retry.total_ms)
        return broken(l, "sends beyond the tool's total time");
    return true;
}

static bool check_time(struct look *l)
{
    const struct operation *op = l->after;
    const struct finding *finding = &l->in->finding;
    bool begins = l->in->kind == STEP_DISPATCH || l->in->kind == STEP_LOOKUP_BEGIN || l->in->kind == STEP_RENEW;
    if (begins && (op->owner != l->in->owner || op->lease_until_ms != l->in->now_ms + l->in->lease_ms ||
                   op->wake_at_ms != op->lease_until_ms))
        return broken(l, "an attempt without its lease");
    bool asked = is_answer(l) && l->tool && finding->outcome == OUTCOME_NOT_PROCESSED;
    if (asked && op->state == STATE_FAILED_RETRYABLE && op->wake_at_ms < l->in->now_ms + finding->retry_after_ms)
        return broken(l, "earlier again than the provider asked for");
    bool asleep = !closed(op->state) && l->fx->action == ACTION_NONE && op->wake_at_ms == 0;
    if (asleep && op->reason != REASON_NEEDS_OPERATOR && op->state != STATE_COMPENSATING)
        return broken(l, "%s waits for nobody", state_name(op->state));
    return true;
}

static bool check_expiry(struct look *l)
{
    const struct operation *op = l->after;
    if (l->fx->action != ACTION_EXPIRE)
        return true;
    if (!closed(op->state) || op->retain_until_ms == 0 || op->retain_until_ms > l->in->now_ms)
        return broken(l, "wants to drop %s before its time", state_name(op->state));
    return true;
}

static bool check_refusal(struct look *l, enum err_code code)
{
    bool decides = l->in->kind == STEP_APPROVAL || l->in->kind == STEP_LINK;
    bool people = decides || l->in->kind == STEP_RESOLVE || l->in->kind == STEP_RETRY || l->in->kind == STEP_CANCEL ||
                  l->in->kind == STEP_COMPENSATE;
    if (!people || (code != ERR_CONFLICT && !(decides && code == ERR_DENIED)) || l->fx->changed)
        return broken(l, "a refusal that is none");
    return l->in->kind != STEP_APPROVAL || check_unheard(l);
}

/* ---- the whole ---- */

void life_begin(struct life *life, const struct operation *op)
{
    *life = (struct life){.state = op->state};
    ask(life, op);
    if (op->state == STATE_DISPATCHED) {
        life->on_wire = true;
        life->call_attempts = life->tries = 1;
        life->first_sent_ms = life->last_sent_ms = op->first_sent_ms;
    }
}

bool life_check(struct life *life, const struct tool *tool, const struct step_input *in, const struct operation *before,
                const struct operation *after, const struct step_effects *effects, enum err_code code)
{
    struct look l = {life, tool, in, before, after, effects};
    if (!effects->changed || code) {
        if (memcmp(before, after, sizeof *before) != 0 || effects->event_count > 0 || effects->incident_count > 0)
            return broken(&l, "something changed and is not told");
        return code ? check_refusal(&l, code) : check_send(&l) && check_people(&l) && check_expiry(&l);
    }
    if (after->rev != before->rev + 1 || after->updated_ms != in->now_ms)
        return broken(&l, "version %lld after %lld", (long long)after->rev, (long long)before->rev);
    if (in->kind == STEP_DISPATCH || in->kind == STEP_HOLD)
        life->ready_ms = before->reason == REASON_AWAITING_ENTITY ? in->now_ms : life->ready_ms;
    follow_absence(&l);
    follow_people(&l);
    follow_attempt(&l);
    bool good = check_people(&l) && check_undoing(&l) && check_identity(&l) && check_events(&l) &&
                check_incidents(&l) && check_closed(&l) && check_proof(&l) && check_counts(&l) && check_send(&l) &&
                check_time(&l) && check_expiry(&l);
    if (closed(after->state) || after->state == STATE_FAILED_RETRYABLE)
        life->doubt = life->confirmed = false;
    if (after->state == STATE_UNKNOWN_OUTCOME)
        life->confirmed = false;
    return good;
}
