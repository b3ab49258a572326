#include "core/admission.h"

const char *verdict_name(enum verdict verdict)
{
    switch (verdict) {
    case VERDICT_NEW: return "new";
    case VERDICT_JOIN: return "join";
    case VERDICT_REPLAY: return "replay";
    case VERDICT_CONFLICT: return "conflict";
    case VERDICT_NOT_SHARED: return "not_shared";
    case VERDICT_HELD: return "held";
    case VERDICT_EXPIRED: return "expired";
    case VERDICT_REPEAT_UNKNOWN: return "repeat_unknown";
    case VERDICT_REPEAT_OPEN: return "repeat_open";
    case VERDICT_POLICY: return "policy";
    case VERDICT_LOOK: return "look_again";
    }
    return "?";
}

static bool proven_without_effect(enum state state)
{
    return state == STATE_FAILED_PERMANENT || state == STATE_REJECTED;
}

static bool answers(bool no_effect, int version, bool other_no_effect, int other_version)
{
    return no_effect == other_no_effect ? version > other_version : other_no_effect;
}

/* Also what was rolled back: its key is free for another attempt (design 10.2). What people undid by a playbook is an
 * effect that was there, and still may have applied. */
static bool op_no_effect(const struct operation *op)
{
    return (proven_without_effect(op->state) || op->state == STATE_COMPENSATED) && !op->may_have_applied;
}

bool admission_answers(const struct operation *op, const struct operation *other)
{
    return !other || answers(op_no_effect(op), op->key_version, op_no_effect(other), other->key_version);
}

bool admission_stone_answers(const struct tombstone *stone, const struct tombstone *other, const struct operation *op)
{
    bool no_effect = proven_without_effect(stone->state);
    return (!other ||
            answers(no_effect, stone->key_version, proven_without_effect(other->state), other->key_version)) &&
           (!op || answers(no_effect, stone->key_version, op_no_effect(op), op->key_version));
}

bool admission_wants_repeats(const struct admission *admission)
{
    return (admission->op->key_source == KEY_SOURCE_REPEAT || admission->repeats_too) && !admission->op->repeat_of;
}

/* Same run when the call's run is known, else same session when that is known, else anything of the principal. */
static bool same_scope(const struct operation *call, const struct operation *other)
{
    if (call->run)
        return text_equal(call->run, other->run);
    if (call->session)
        return text_equal(call->session, other->session);
    return true;
}

/* Compares the arguments themselves, for fingerprints of different canonical forms. Absent ones (payload dropped)
 * compare equal: then the key alone decides, and an upgrade never makes a second effect (design 2.5, case S43). */
static bool same_values(const struct admission *admission, struct str a, struct str b)
{
    if (!a.p || !b.p)
        return true;
    struct arena arena;
    arena_init(&arena);
    struct json *x, *y;
    bool same = json_parse(&arena, a, &json_limits_kept, &x, NULL) == 0 &&
                json_parse(&arena, b, &json_limits_kept, &y, NULL) == 0;
    for (size_t i = 0; same && i < admission->volatile_count; i++) {
        json_pointer_remove(x, admission->volatile_pointers[i]);
        json_pointer_remove(y, admission->volatile_pointers[i]);
    }
    same = same && json_equal(x, y);
    arena_release(&arena);
    return same;
}

static bool same_arguments(const struct admission *admission, const struct operation *other)
{
    const struct operation *call = admission->op;
    if (call->canonical_version != other->canonical_version)
        return same_values(admission, call->arguments, other->arguments);
    return digest_equal(&call->fingerprint, &other->fingerprint);
}

static struct admission_result verdict(enum verdict kind, const struct operation *existing)
{
    return (struct admission_result){.verdict = kind, .existing = existing};
}

bool admission_doubts(const struct admission *admission, const struct operation *other)
{
    bool unresolved = other->state == STATE_UNKNOWN_OUTCOME || (state_in_flight(other->state) && other->orphaned);
    /* sent again while an earlier attempt is not disproved */
    unresolved |= state_in_flight(other->state) && other->unknown_since_ms != 0;
    for (size_t k = 0; unresolved && k < admission->distinct_count; k++)
        if (strcmp(admission->distinct_from[k], other->id) == 0)
            return false;
    return unresolved && same_scope(admission->op, other);
}

/* 2.9: the oldest unresolved operation that the caller has not declared to be another intent. */
static const struct operation *in_doubt(const struct admission *admission, const struct admission_facts *facts)
{
    if (!admission->hold_in_doubt)
        return NULL;
    for (size_t i = 0; i < facts->in_doubt_count; i++)
        if (admission_doubts(admission, facts->in_doubt[i]))
            return facts->in_doubt[i];
    return NULL;
}

static struct admission_result open_new(struct admission *admission, const struct admission_facts *facts)
{
    const struct operation *doubt = in_doubt(admission, facts);
    return doubt ? verdict(VERDICT_HELD, doubt) : verdict(VERDICT_NEW, NULL);
}

static struct admission_result open_version(struct admission *admission, const struct admission_facts *facts,
                                            int last_version, const char *previous)
{
    struct admission_result result = open_new(admission, facts);
    if (result.verdict == VERDICT_NEW) {
        admission->op->key_version = last_version + 1;
        admission->op->previous = previous;
    }
    return result;
}

/* An end that the same call, made later, need not meet again, unlike a person's no: a rejection by a rule or by the
 * clock, and steps that are rolled back. */
static bool may_come_again(const struct operation *existing)
{
    if (existing->steps.p && existing->state != STATE_REJECTED)
        return op_no_effect(existing);
    return existing->state == STATE_REJECTED &&
           (existing->reason == REASON_POLICY || existing->reason == REASON_EXPIRED);
}

static struct admission_result meet(struct admission *admission, const struct admission_facts *facts,
                                    const struct operation *existing)
{
    const struct operation *op = admission->op;
    if (!admission->share_with_tenant && !text_equal(op->principal, existing->principal))
        return verdict(VERDICT_NOT_SHARED, existing);
    if (admission->new_version_of && strcmp(admission->new_version_of, existing->id) == 0 && op_no_effect(existing))
        return open_version(admission, facts, existing->key_version, existing->id);
    bool same = same_arguments(admission, existing);
    if ((!same || may_come_again(existing)) && op_no_effect(existing))
        return open_version(admission, facts, existing->key_version, existing->id);
    /* Mismatch before status (case S62): "busy, retry" would invite a wrong replay. */
    if (!same && admission->on_mismatch == MISMATCH_CONFLICT)
        return verdict(VERDICT_CONFLICT, existing);
    struct admission_result result = verdict(state_terminal(existing->state) ? VERDICT_REPLAY : VERDICT_JOIN, existing);
    result.other_arguments = !same;
    return result;
}

static struct admission_result meet_tombstone(struct admission *admission, const struct admission_facts *facts)
{
    const struct tombstone *stone = facts->tombstone;
    const struct operation *op = admission->op;
    struct admission_result result = {.verdict = VERDICT_EXPIRED, .tombstone = stone};
    bool same =
        digest_equal(&op->fingerprint, &stone->fingerprint) || op->canonical_version != stone->canonical_version;
    if (!admission->share_with_tenant && !text_equal(op->principal, stone->principal))
        result.verdict = VERDICT_NOT_SHARED;
    else if (!same && proven_without_effect(stone->state))
        return open_version(admission, facts, stone->key_version, stone->operation);
    else if (!same && admission->on_mismatch == MISMATCH_CONFLICT)
        result.verdict = VERDICT_CONFLICT;
    return result;
}

/* 2.8: the named operation must be the one that the call would have joined: same tool and base key (also along a chain
 * of repeats), or without any key the same principal's same arguments. */
static bool repeat_names_ours(const struct admission *admission, const struct operation *named)
{
    const struct operation *op = admission->op;
    if (!named || !text_equal(named->tool, op->tool))
        return false;
    if (op->key_source == KEY_SOURCE_REPEAT)
        return text_equal(named->principal, op->principal) && same_arguments(admission, named);
    return digest_equal(&named->base_hash, &op->base_hash) &&
           (admission->share_with_tenant || text_equal(named->principal, op->principal));
}

/* The same when the named one's row is gone. A tombstone does not keep what a repeat was a repeat of, so along a chain
 * of repeats equal arguments stand in for the base key. */
static bool repeat_names_our_stone(const struct admission *admission, const struct tombstone *named)
{
    const struct operation *op = admission->op;
    bool own = text_equal(named->principal, op->principal);
    bool same = named->key_source == op->key_source && digest_equal(&named->fingerprint, &op->fingerprint);
    if (!text_equal(named->tool, op->tool))
        return false;
    if (op->key_source == KEY_SOURCE_REPEAT)
        return own && same;
    return (same || digest_equal(&named->key_hash, &op->base_hash)) && (admission->share_with_tenant || own);
}

/* Repeat rule 2.2.5: finished operations are joined while undelivered or within the window. */
bool admission_joins(const struct admission *admission, const struct operation *other, int64_t now_ms)
{
    if (may_come_again(other))
        return false;
    /* Only repeat-keyed operations have their delivery recorded. */
    bool open = !state_terminal(other->state) || (other->key_source == KEY_SOURCE_REPEAT && !other->delivered);
    /* A session is how a caller is connected, not what it means (2.3): a client that lost its session repeats the call
     * in a new one (case S12). So sessions keep told results apart, never an open call from its repeat. */
    if (open && !admission->op->run)
        return true;
    if (!same_scope(admission->op, other))
        return false;
    if (open)
        return true;
    return admission->repeat_window_ms > 0 && now_ms - other->completed_ms < admission->repeat_window_ms;
}

static const struct operation *repeat_to_join(const struct admission *admission, const struct admission_facts *facts,
                                              int64_t now_ms)
{
    for (size_t i = 0; i < facts->repeat_count; i++)
        if (admission_joins(admission, facts->repeats[i], now_ms))
            return facts->repeats[i];
    return NULL;
}

struct admission_result admission_decide(struct admission *admission, const struct admission_facts *facts,
                                         int64_t now_ms)
{
    const struct operation *op = admission->op;
    if (op->repeat_of) {
        if (facts->named_stone ? !repeat_names_our_stone(admission, facts->named_stone)
                               : !repeat_names_ours(admission, facts->named))
            return verdict(VERDICT_REPEAT_UNKNOWN, NULL);
        if (facts->named && !state_terminal(facts->named->state))
            return verdict(VERDICT_REPEAT_OPEN, facts->named);
    }
    if (facts->by_key)
        return meet(admission, facts, facts->by_key);
    if (facts->tombstone)
        return meet_tombstone(admission, facts);
    if (admission_wants_repeats(admission)) {
        const struct operation *join = repeat_to_join(admission, facts, now_ms);
        if (join)
            return verdict(state_terminal(join->state) ? VERDICT_REPLAY : VERDICT_JOIN, join);
    }
    return open_new(admission, facts);
}

void admission_claim(const struct admission *admission, const struct claims_facts *facts,
                     struct admission_result *result)
{
    switch (claims_decide(admission->claims, facts, admission->wants_entities, &result->refusal)) {
    case CLAIMS_PASS: break;
    case CLAIMS_WAIT: result->waits = true; break;
    case CLAIMS_LOOK: result->verdict = VERDICT_LOOK; break;
    case CLAIMS_GUARD:
    case CLAIMS_ENTITY:
    case CLAIMS_WINDOW:
    case CLAIMS_BUDGET: result->verdict = VERDICT_POLICY; break;
    }
}
