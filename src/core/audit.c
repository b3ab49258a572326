#include "core/audit.h"

#include "base/mem.h"
#include "core/approval.h"
#include "core/claims.h"
#include "core/identity.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FOUND_BYTES     240
#define SEQUENCE_STRIDE 4

struct audit_try {
    char id[OPERATION_ID_SIZE];
    enum attempt_kind kind;
    enum outcome outcome;
};

static void say(struct audit *audit, const char *rule, const char *expected, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(struct audit *audit, const char *rule, const char *expected, const char *format, ...)
{
    char found[FOUND_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    audit->reports++;
    audit->report(audit->user, rule, expected, found);
}

void audit_begin(struct audit *audit, const struct operation *op,
                 void (*report)(void *user, const char *rule, const char *expected, const char *found), void *user)
{
    *audit = (struct audit){.op = op, .report = report, .user = user};
}

/* ---- events (3.1) ---- */

static bool is_evidence(enum cause cause)
{
    return cause == CAUSE_EVIDENCE || cause == CAUSE_LOOKUP || cause == CAUSE_OPERATOR;
}

/* Within a change lines count up from its first one; a change may have none. */
void audit_line(struct audit *audit, int64_t sequence)
{
    int64_t rev = sequence / SEQUENCE_STRIDE, last = audit->last_sequence;
    bool follows = sequence % SEQUENCE_STRIDE == 0 || sequence == last + 1;
    if (sequence <= last || !follows)
        say(audit, "event-sequence", "lines of history count up without gaps within a change",
            "line %lld comes after %lld", (long long)sequence, (long long)last);
    if (rev < 1 || rev > audit->op->rev)
        say(audit, "event-sequence", "lines of history belong to the row's changes, 1 to its version",
            "line %lld is of change %lld, the row is at version %lld", (long long)sequence, (long long)rev,
            (long long)audit->op->rev);
    audit->last_sequence = sequence;
}

void audit_event(struct audit *audit, const struct event *event)
{
    bool first = !audit->any_event;
    if (first && (event->cause != CAUSE_ADMITTED || event->from != event->to))
        say(audit, "events-begin", "the first event is the admission, into the first state", "%s, %s → %s",
            cause_name(event->cause), state_name(event->from), state_name(event->to));
    if (!first && event->cause == CAUSE_ADMITTED)
        say(audit, "events-begin", "an operation is admitted once", "a second admission, into %s",
            state_name(event->to));
    if (!first && event->from != audit->last)
        say(audit, "events-chain", "each event leaves the state in which the one before ended",
            "%s leaves %s, the one before ended in %s", cause_name(event->cause), state_name(event->from),
            state_name(audit->last));
    if (event->from != event->to && !state_may_move(event->from, event->to, is_evidence(event->cause)))
        say(audit, "events-move", "moves are those of the table of states", "%s → %s by %s", state_name(event->from),
            state_name(event->to), cause_name(event->cause));
    if (event->cause == CAUSE_OPERATOR && !event->actor)
        say(audit, "event-actor", "a person's decision has a name", "an operator's event without one");
    if (event->attempt < 0 || event->attempt > audit->op->tries)
        say(audit, "event-attempt", "events name attempts that are there", "attempt %d of %d", event->attempt,
            audit->op->tries);
    audit->any_event = true;
    audit->last = event->to;
}

/* ---- attempts (5.1) ---- */

static struct audit_try *known_try(struct audit *audit, const char *id)
{
    for (size_t i = audit->try_count; i-- > 0;) /* lines of one attempt lie close together */
        if (strcmp(audit->tries[i].id, id) == 0)
            return &audit->tries[i];
    return NULL;
}

void audit_attempt(struct audit *audit, const struct attempt *attempt)
{
    struct audit_try *try = known_try(audit, attempt->id);
    bool ended = attempt->outcome != OUTCOME_OPEN;
    if (ended != (attempt->finished_ms != 0))
        say(audit, "attempt-times", "an attempt has an end when it has an outcome, and only then",
            "attempt %d is %s, its end %s", attempt->number, outcome_name(attempt->outcome),
            attempt->finished_ms ? "is there" : "is missing");
    if (attempt->started_ms <= 0)
        say(audit, "attempt-times", "an attempt has a beginning", "attempt %d has none", attempt->number);
    if (!try) {
        if (audit->try_count == audit->try_room) {
            audit->try_room = audit->try_room ? 2 * audit->try_room : 8;
            audit->tries = mem_grow(audit->tries, audit->try_room * sizeof *audit->tries);
        }
        try = &audit->tries[audit->try_count++];
        snprintf(try->id, sizeof try->id, "%s", attempt->id);
        if ((size_t)attempt->number != audit->try_count)
            say(audit, "attempt-numbers", "attempts are numbered 1, 2, … without gaps", "attempt %d where %zu was due",
                attempt->number, audit->try_count);
    } else if (try->kind != attempt->kind) {
        say(audit, "attempt-kind", "an attempt stays a call or a look-up", "attempt %d was a %s, is a %s",
            attempt->number, attempt_kind_name(try->kind), attempt_kind_name(attempt->kind));
    }
    try->kind = attempt->kind;
    try->outcome = attempt->outcome;
}

static void check_counts(struct audit *audit)
{
    const struct operation *op = audit->op;
    int calls = 0, lookups = 0, not_sent = 0;
    for (size_t i = 0; i < audit->try_count; i++) {
        not_sent += audit->tries[i].outcome == OUTCOME_NOT_SENT;
        calls += audit->tries[i].kind == ATTEMPT_CALL && audit->tries[i].outcome != OUTCOME_NOT_SENT;
        lookups += audit->tries[i].kind == ATTEMPT_LOOKUP;
    }
    /* That a request had not left can come out when its owner has lost the lease: evidence, and no longer a count. */
    bool counted = op->attempts >= calls && op->attempts <= calls + not_sent;
    if ((size_t)op->tries != audit->try_count || op->lookups != lookups || !counted)
        say(audit, "attempt-counts", "the row counts its attempts: all, calls that may have left, look-ups",
            "the row says %d, %d, %d; there are %zu, %d, %d", op->tries, op->attempts, op->lookups, audit->try_count,
            calls, lookups);
    if (state_in_flight(op->state) && op->state == STATE_DISPATCHED && audit->try_count == 0)
        say(audit, "attempt-first", "what is dispatched has its attempt", "there is none");
}

/* ---- the row (3.2, 3.3, 4, 8) ---- */

static bool is_effect(enum state state)
{
    return state == STATE_COMPLETED_SUCCESS || state == STATE_COMPLETED_NOOP;
}

static bool is_no_effect(enum state state)
{
    return state == STATE_FAILED_RETRYABLE || state == STATE_FAILED_PERMANENT || state == STATE_REJECTED ||
           state == STATE_PLANNED || state == STATE_PENDING_DISPATCH;
}

static void check_truth(struct audit *audit)
{
    const struct operation *op = audit->op;
    bool may = is_effect(op->state) || op->state == STATE_DISPATCHED || op->state == STATE_UNKNOWN_OUTCOME;
    if (is_no_effect(op->state) && op->may_have_applied)
        say(audit, "no-effect", "this state says that nothing happened (3.2)", "%s, and it may have applied",
            state_name(op->state));
    if (may && !op->may_have_applied)
        say(audit, "may-have-applied", "this state says that something may have happened (3.2)",
            "%s, and it may not have applied", state_name(op->state));
    if (op->state == STATE_REJECTED && op->attempts > 0)
        say(audit, "rejected-unsent", "of what is rejected nothing was ever sent", "%d calls may have left",
            op->attempts);
    if (op->state == STATE_UNKNOWN_OUTCOME && op->unknown_since_ms == 0)
        say(audit, "unknown-since", "an unknown outcome has a beginning", "unknown_since_ms is 0");
    if (state_terminal(op->state) && op->unknown_since_ms != 0)
        say(audit, "unknown-since", "what has ended is not unknown", "%s, and unknown since %lld",
            state_name(op->state), (long long)op->unknown_since_ms);
}

static void check_times(struct audit *audit)
{
    const struct operation *op = audit->op;
    if (state_terminal(op->state) != (op->completed_ms != 0))
        say(audit, "completed", "a row has a time of completion when its state is terminal, and only then",
            "%s, completed_ms is %lld", state_name(op->state), (long long)op->completed_ms);
    if (state_terminal(op->state) && op->retain_until_ms <= 0)
        say(audit, "retain", "what has ended is kept until a stated time", "retain_until_ms is %lld",
            (long long)op->retain_until_ms);
    if (op->created_ms <= 0)
        say(audit, "created", "a row has a time of admission", "created_ms is %lld", (long long)op->created_ms);
}

/* 14, 15: whoever holds it has a lease that ends, and what is open is looked at again. */
static void check_lease(struct audit *audit)
{
    const struct operation *op = audit->op;
    bool follows = op->state == STATE_COMPENSATING || op->steps.p; /* what it waits for moves it */
    if ((op->owner != NULL) != (op->lease_until_ms != 0))
        say(audit, "lease", "an owner and the end of the lease come together", "owner %s, lease until %lld",
            op->owner ? op->owner : "none", (long long)op->lease_until_ms);
    if (op->owner && (op->wake_at_ms == 0 || op->wake_at_ms > op->lease_until_ms))
        say(audit, "lease-noticed", "a lease that ends is noticed: the row wakes by then (3.3)",
            "the lease ends at %lld, it wakes at %lld", (long long)op->lease_until_ms, (long long)op->wake_at_ms);
    if (!state_terminal(op->state) && op->wake_at_ms == 0 && op->reason != REASON_NEEDS_OPERATOR && !follows)
        say(audit, "claimable", "nothing open is forgotten: it wakes, or a person must decide",
            "%s (%s) without a time to wake", state_name(op->state), reason_name(op->reason));
}

static void check_identity(struct audit *audit)
{
    const struct operation *op = audit->op;
    if (!operation_id_valid(op->id))
        say(audit, "id", "ids are \"op_\" and a ULID", "%.*s", OPERATION_ID_SIZE - 1, op->id);
    if (op->rev < 1 || op->key_version < 1 || op->canonical_version < 1)
        say(audit, "versions", "versions begin at 1", "version %lld, key version %d, canonical form %d",
            (long long)op->rev, op->key_version, op->canonical_version);
    if (!op->key || !op->tenant || !op->tool)
        return;
    struct digest hash = identity_key_hash(op->tenant, op->tool, op->key, op->repeat_of);
    struct digest base = identity_key_hash(op->tenant, op->tool, op->key, NULL);
    if (!digest_equal(&hash, &op->key_hash))
        say(audit, "key-hash", "the key's hash is that of tenant, tool, key and repeat_of", "another one");
    if (!digest_equal(&base, &op->base_hash))
        say(audit, "key-hash", "the hash without repeat_of is that of tenant, tool and key", "another one");
}

static void check_approval(struct audit *audit)
{
    const struct operation *op = audit->op;
    struct approval approval;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    bool waits = op->state == STATE_PLANNED && op->reason == REASON_AWAITING_APPROVAL;
    if (op->approval.p && approval_read(&arena, op->approval, &approval, &err))
        say(audit, "approval-record", "an approval can be read", "%s", err.text);
    else if (op->tries > 0 && !approval_complete(op))
        say(audit, "approval-first", "nothing leaves before enough people agreed (8)", "%d attempts, %u of %u agreed",
            op->tries, approval_given(&approval), approval.needed);
    else if (waits && (!op->approval.p || approval_complete(op)))
        say(audit, "approval-waits", "what awaits approval was asked for and is not complete", "%s",
            op->approval.p ? "it is complete" : "nothing was asked for");
    arena_release(&arena);
}

static void check_texts(struct audit *audit)
{
    const struct operation *op = audit->op;
    struct steps_progress progress;
    struct claims claims;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    if (op->claims.p && claims_read(&arena, op->claims, &claims, &err))
        say(audit, "claims-record", "what an operation claims can be read", "%s", err.text);
    err_clear(&err);
    if (op->steps.p && steps_read(&arena, op->steps, &progress, &err))
        say(audit, "steps-record", "the progress of steps can be read", "%s", err.text);
    arena_release(&arena);
}

void audit_end(struct audit *audit)
{
    const struct operation *op = audit->op;
    if (!audit->any_event)
        say(audit, "events-begin", "the first event is the admission, into the first state", "there is no event");
    else if (audit->last != op->state)
        say(audit, "events-end", "the events lead to the row's state", "they end in %s, the row is %s",
            state_name(audit->last), state_name(op->state));
    check_counts(audit);
    check_truth(audit);
    check_times(audit);
    check_lease(audit);
    check_identity(audit);
    check_approval(audit);
    check_texts(audit);
    free(audit->tries);
    audit->tries = NULL;
}

bool audit_fingerprint(const struct operation *op)
{
    struct json *arguments;
    struct arena arena;
    struct buf text;
    bool same = true;
    if (!op->arguments.p || op->canonical_version != JSON_CANONICAL_VERSION)
        return true;
    arena_init(&arena);
    buf_init(&text, 0);
    if (json_parse(&arena, op->arguments, &json_limits_kept, &arguments, NULL) == 0) {
        json_canonical(&text, arguments);
        struct digest digest = digest_sha256(buf_str(&text));
        same = digest_equal(&digest, &op->fingerprint);
    } else {
        same = false;
    }
    buf_release(&text);
    arena_release(&arena);
    return same;
}

/* ---- two rows ---- */

static bool is_there(struct audit *audit, const struct audit_other *other, const char *column, const char *id)
{
    if (!other->op && !other->stone)
        say(audit, "link", "operations that a row names are there, or their tombstones", "%s names %s", column, id);
    return other->op || other->stone;
}

static const char *tenant_of(const struct audit_other *other)
{
    return other->op ? other->op->tenant : other->stone->tenant;
}

static bool same_tenant(struct audit *audit, const struct audit_other *other, const char *column)
{
    bool same = text_equal(audit->op->tenant, tenant_of(other));
    if (!same)
        say(audit, "link-tenant", "operations name others of their own tenant only", "%s names one of %s", column,
            tenant_of(other));
    return same;
}

/* Gives its key to a further version: proven without effect, or rolled back. */
static bool gives_way(const struct audit_other *other)
{
    if (other->stone)
        return !is_effect(other->stone->state);
    return !other->op->may_have_applied &&
           (other->op->state == STATE_FAILED_PERMANENT || other->op->state == STATE_REJECTED ||
            other->op->state == STATE_COMPENSATED);
}

void audit_previous(struct audit *audit, const struct audit_other *former)
{
    const struct operation *op = audit->op;
    if ((op->key_version > 1) != (op->previous != NULL))
        say(audit, "key-versions", "a further version of a key names the one before it", "version %d names %s",
            op->key_version, op->previous ? op->previous : "none");
    if (!op->previous || !is_there(audit, former, "previous", op->previous) || !same_tenant(audit, former, "previous"))
        return;
    const struct digest *hash = former->op ? &former->op->key_hash : &former->stone->key_hash;
    int version = former->op ? former->op->key_version : former->stone->key_version;
    enum state state = former->op ? former->op->state : former->stone->state;
    if (!digest_equal(hash, &op->key_hash) || version != op->key_version - 1)
        say(audit, "key-versions", "the version before it has the same key and the number before",
            "version %d comes after version %d of %s key", op->key_version, version,
            digest_equal(hash, &op->key_hash) ? "the same" : "another");
    /* What turned out to have happened after all was corrected, with an incident (3.4). */
    if (!gives_way(former) && state != STATE_COMPLETED_SUCCESS && state != STATE_COMPENSATED &&
        state != STATE_COMPENSATING)
        say(audit, "key-versions", "only what was proven without effect gives its key to a further version",
            "the version before it is %s", state_name(state));
}

void audit_compensates(struct audit *audit, const struct audit_other *original)
{
    const struct operation *op = audit->op, *other = original->op;
    if ((op->compensates != NULL) != (op->playbook != NULL))
        say(audit, "compensates", "what undoes an operation says by which playbook", "%s, %s",
            op->compensates ? op->compensates : "undoes none", op->playbook ? op->playbook : "no playbook");
    if (!op->compensates || !is_there(audit, original, "compensates", op->compensates) ||
        !same_tenant(audit, original, "compensates") || !other || state_terminal(op->state))
        return;
    if (other->state != STATE_COMPENSATING || !text_equal(other->compensation, op->id))
        say(audit, "compensates", "while it is being undone an operation says so, and by which other one (10.1)",
            "%s is %s by %s", other->id, state_name(other->state), other->compensation ? other->compensation : "none");
}

void audit_compensation(struct audit *audit, const struct audit_other *by)
{
    const struct operation *op = audit->op;
    bool undone = op->state == STATE_COMPENSATING || op->state == STATE_COMPENSATED;
    if (undone && !op->steps.p && !op->compensation)
        say(audit, "compensation", "what is undone names what undoes it", "%s, and names none", state_name(op->state));
    if (!op->compensation || !is_there(audit, by, "compensation", op->compensation) ||
        !same_tenant(audit, by, "compensation"))
        return;
    enum state state = by->op ? by->op->state : by->stone->state;
    if (by->op && !text_equal(by->op->compensates, op->id))
        say(audit, "compensation", "what undoes an operation names it", "%s names %s", by->op->id,
            by->op->compensates ? by->op->compensates : "none");
    if (op->state == STATE_COMPENSATING && !op->steps.p && state_terminal(state))
        say(audit, "compensation", "what is being undone waits for something that has not ended (10.1)", "%s is %s",
            op->compensation, state_name(state));
    if (op->state == STATE_COMPENSATED && !op->steps.p && !is_effect(state))
        say(audit, "compensation", "what is undone was undone by something that succeeded (10.1)", "%s is %s",
            op->compensation, state_name(state));
}

void audit_parent(struct audit *audit, const struct audit_other *parent)
{
    const struct operation *op = audit->op;
    struct steps_progress progress;
    struct arena arena;
    if (!op->parent || !is_there(audit, parent, "parent", op->parent) || !same_tenant(audit, parent, "parent") ||
        !parent->op)
        return;
    if (!parent->op->steps.p) {
        say(audit, "steps", "the parent of a step has steps (10.2)", "%s has none", op->parent);
        return;
    }
    arena_init(&arena);
    /* Of several attempts to undo a step the parent names the latest. */
    if (steps_read(&arena, parent->op->steps, &progress, NULL) == 0 && !op->compensates &&
        steps_entry_of(&progress, op->id) == progress.count)
        say(audit, "steps", "the parent of a step names it (10.2)", "%s does not", op->parent);
    arena_release(&arena);
}

void audit_step(struct audit *audit, const struct steps_entry *entry, const struct audit_other *step)
{
    const struct operation *op = audit->op;
    if (!is_there(audit, step, "steps", entry->operation) || !same_tenant(audit, step, "steps"))
        return;
    if (step->op && !text_equal(step->op->parent, op->id))
        say(audit, "steps", "a step names the operation that it belongs to (10.2)", "%s names %s", step->op->id,
            step->op->parent ? step->op->parent : "none");
    if (!step->op && !state_terminal(op->state))
        say(audit, "steps", "steps are kept while their operation is under way", "%s was dropped", entry->operation);
}
