/* The whole at the end: the ledger says what its commits said, everything has settled, nothing was forgotten. */
#include "sim/checker.h"

#include "core/audit.h"

#include <stdio.h>

static enum err_code ask(struct sim *sim, struct ledger_request *request)
{
    enum err_code code = ledger_call(sim->backing, request);
    if (code && code != ERR_NOT_FOUND)
        sim_violated(sim, "15 the ledger can be read at the end: %s", request->err.text);
    return code;
}

/* ---- the ledger and the model agree ---- */

static void check_row_kept(struct sim *sim, const struct check_row *row, const struct operation *op)
{
    const char *owner = op->owner ? op->owner : "", *external_id = op->external_id ? op->external_id : "";
    if (op->state != row->state || op->rev != row->rev || strcmp(owner, row->owner) != 0 ||
        strcmp(external_id, row->external_id) != 0 || check_digest(op->result) != row->result)
        sim_violated(
            sim,
            "15 what was committed is kept: %s (intent %u): committed %s version %lld (%s), found %s version %lld (%s)",
            row->id, row->intent, state_name(row->state), (long long)row->rev, row->external_id, state_name(op->state),
            (long long)op->rev, external_id);
    bool same = text_equal(op->tenant, row->tenant) && text_equal(op->principal, row->principal) &&
                text_equal(op->provider_key, row->provider_key) && digest_equal(&op->key_hash, &row->key_hash) &&
                digest_equal(&op->fingerprint, &row->fingerprint) && op->key_version == row->key_version;
    if (!same)
        sim_violated(sim, "2 identity is fixed at admission: %s (intent %u) has changed", row->id, row->intent);
}

static size_t check_rows_kept(struct sim *sim)
{
    char before[OPERATION_ID_SIZE] = "";
    size_t found = 0;
    bool more = true;
    while (more && !sim->result->violated) {
        struct arena arena;
        arena_init(&arena);
        struct ledger_request request = {
            .command = LEDGER_LIST,
            .arena = &arena,
            .list = {.oldest_first = true, .limit = LEDGER_LIST_MAX, .with_payload = true},
        };
        request.list.before = before[0] ? before : NULL;
        more = ask(sim, &request) == ERR_NONE && request.list.next;
        for (size_t i = 0; i < request.list.count; i++) {
            const struct operation *op = request.list.ops[i];
            const struct check_row *row = check_find(sim->checker, op->id);
            found++;
            if (!row)
                sim_violated(sim, "4 only what was admitted has a row: %s (a dry run or a read may have left it)",
                             op->id);
            else if (row->dropped)
                sim_violated(sim, "15 what was dropped is gone: %s is still there", op->id);
            else
                check_row_kept(sim, row, op);
        }
        if (more)
            check_copy(before, sizeof before, request.list.next);
        arena_release(&arena);
    }
    return found;
}

static void check_history(struct sim *sim, const struct check_row *row)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_EVENTS, .arena = &arena, .events = {.operation = row->id}};
    if (ask(sim, &request) == ERR_NONE) {
        const struct ledger_events *events = &request.events;
        bool whole =
            events->count > 0 && (events->count == LEDGER_HISTORY_MAX || events->events[0].cause == CAUSE_ADMITTED);
        for (size_t i = 1; whole && i < events->count; i++)
            whole = events->events[i].from == events->events[i - 1].to;
        if (!whole || events->events[events->count - 1].to != row->state)
            sim_violated(sim, "3.1 events replay to the row: %s (intent %u), %zu events do not lead to %s", row->id,
                         row->intent, events->count, state_name(row->state));
    }
    arena_release(&arena);
}

static void check_attempts(struct sim *sim, const struct check_row *row)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = row->id}};
    if (ask(sim, &request) == ERR_NONE) {
        const struct check_try *try = row->first_try;
        size_t i = 0;
        for (; try && i < request.attempts.count; try = try->next, i++) {
            const struct attempt *attempt = &request.attempts.attempts[i];
            if (strcmp(attempt->id, try->id) != 0 || attempt->outcome != try->outcome || attempt->kind != try->kind)
                sim_violated(sim, "5.1 attempt rows are kept: %s attempt %d is %s, committed was %s", row->id,
                             try->number, outcome_name(attempt->outcome), outcome_name(try->outcome));
        }
        if ((try || i < request.attempts.count) && request.attempts.count < LEDGER_HISTORY_MAX)
            sim_violated(sim, "5.1 attempt rows are kept: %s has %zu in the ledger, not as many as were committed",
                         row->id, request.attempts.count);
    }
    arena_release(&arena);
}

/* 15: a key is never forgotten. */
static void check_tombstone(struct sim *sim, const struct check_row *row)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_GET, .arena = &arena, .get = {.operation = row->id}};
    bool kept = ask(sim, &request) == ERR_NONE && request.get.tombstone;
    const struct tombstone *stone = kept ? request.get.tombstone : NULL;
    const char *external_id = stone && stone->external_id ? stone->external_id : "";
    if (!stone || stone->state != row->state || !digest_equal(&stone->key_hash, &row->key_hash) ||
        !digest_equal(&stone->fingerprint, &row->fingerprint) || strcmp(external_id, row->external_id) != 0)
        sim_violated(sim, "15 a tombstone stays for ever: %s (intent %u, %s) %s", row->id, row->intent,
                     state_name(row->state), stone ? "has another one" : "has none");
    arena_release(&arena);
}

/* ---- everything has settled ---- */

static bool lives(const struct sim *sim, const char *incarnation)
{
    for (unsigned i = 0; i < sim->options->gateways; i++)
        if (strcmp(sim->checker->gateways[i].incarnation, incarnation) == 0)
            return true;
    return false;
}

static void check_settled(struct sim *sim, const struct check_row *row)
{
    if (row->reason == REASON_NEEDS_OPERATOR)
        sim->result->waiting_for_people++;
    else if (row->steps && !state_terminal(row->state) && check_parent_waits(row))
        sim->result->waiting_for_people++;
    else if (!state_terminal(row->state))
        sim_violated(
            sim, "7.2, 18 every operation ends or waits for a person: %s (intent %u, tool %s) is %s (%s), wakes %lld",
            row->id, row->intent, row->tool_name, state_name(row->state), reason_name(row->reason),
            (long long)(row->wake_at_ms ? row->wake_at_ms - sim->now_ms : 0));
    if (row->owner[0] && !lives(sim, row->owner))
        sim_violated(sim, "3.3 nothing stays with the dead: %s (intent %u, %s) is held by %s", row->id, row->intent,
                     state_name(row->state), row->owner);
    /* Late evidence of an earlier attempt may close it while the gateway of the last one is dead: then nobody learns
     * how that one ended, and its row says so. */
    for (const struct check_try *try = row->first_try; try; try = try->next)
        if (try->outcome == OUTCOME_OPEN && try->kind == ATTEMPT_CALL && !row->by_evidence)
            sim_violated(sim, "5.1 every attempt ends: %s (intent %u) attempt %d is open", row->id, row->intent,
                         try->number);
}

/* 3.4: a provider's confirmation that reached a gateway which lived on is never thrown away. */
static void check_evidence(struct sim *sim, const struct check_row *row)
{
    for (const struct check_try *try = row->first_try; try; try = try->next)
        if (try->told && (try->outcome == OUTCOME_OPEN || try->outcome == OUTCOME_LOST) && !row->dropped)
            sim_violated(sim,
                         "3.4 late evidence is kept: %s (intent %u): gw%u was told of the success of attempt %d, its "
                         "row says %s",
                         row->id, row->intent, try->told, try->number, outcome_name(try->outcome));
}

/* 3.2, 3.4 */
static void check_truth(struct sim *sim, const struct check_row *row)
{
    bool excused = check_excused(sim->checker, row);
    bool told =
        row->incidents & (1u << INCIDENT_LATE_LANDING | 1u << INCIDENT_DUPLICATE_EFFECT | 1u << INCIDENT_CONTRADICTION);
    if (check_proven_absent(row->state) && row->effects > 0 && !excused && !told)
        sim_violated(sim, "3.2 \"failed\" means it did not happen: %s (intent %u) is %s, effect %s exists, no incident",
                     row->id, row->intent, state_name(row->state), row->effect_ids[0]);
    bool corrected =
        (check_proven_absent(row->told_state) && row->state == STATE_COMPLETED_SUCCESS) || row->undone_by != NULL;
    if (row->told && row->told_state != row->state && !corrected)
        sim_violated(sim, "3.1, 12 an acknowledged result is never lost: %s (intent %u) was told as %s, is %s", row->id,
                     row->intent, state_name(row->told_state), state_name(row->state));
    if (row->told && row->told_state == row->state && strcmp(row->told_id, row->external_id) != 0)
        sim_violated(sim, "3.1, 12 an acknowledged result is never lost: %s (intent %u) was told with %s, has %s",
                     row->id, row->intent, row->told_id, row->external_id);
}

/* 7.3: each time of the watch that has come while the row was kept had its look-up. */
static void check_watched(struct sim *sim, const struct check_row *row)
{
    if (row->closed_absent_ms == 0 || !row->tool || row->state != STATE_FAILED_PERMANENT)
        return;
    const struct reconcile_policy *policy = &row->tool->reconcile;
    const int64_t slack_ms = 10 * 60000; /* crashes, pauses, breakers, leases */
    int64_t end = row->retain_until_ms && row->retain_until_ms < sim->now_ms ? row->retain_until_ms : sim->now_ms;
    unsigned due = 0, looked = 0;
    while (due < policy->watch_count && row->closed_absent_ms + policy->watch_ms[due] + slack_ms < end)
        due++;
    for (const struct check_try *try = row->first_try; try; try = try->next)
        looked += try->number > row->closed_tries && try->kind == ATTEMPT_LOOKUP && try->outcome != OUTCOME_OPEN &&
                  try->outcome != OUTCOME_LOST && try->outcome != OUTCOME_MORE;
    if (looked < due)
        sim_violated(sim, "7.3 late-landing watch: %s (intent %u) was looked at %u times after closing, %u were due",
                     row->id, row->intent, looked, due);
}

void checker_end(struct sim *sim)
{
    struct checker_model *model = sim->checker;
    size_t kept = 0;
    sim->result->waiting_for_people = 0;
    for (size_t i = 0; i < model->row_count && !sim->result->violated; i++) {
        const struct check_row *row = model->rows[i];
        check_settled(sim, row);
        check_truth(sim, row);
        check_evidence(sim, row);
        check_watched(sim, row);
        check_undone_end(sim, row);
        check_guard_end(sim, row);
        if (row->steps)
            check_steps_end(sim, row);
        if (row->dropped) {
            check_tombstone(sim, row);
            continue;
        }
        kept++;
        check_history(sim, row);
        check_attempts(sim, row);
    }
    check_claims_end(sim);
    check_inbound_end(sim);
    size_t found = sim->result->violated ? kept : check_rows_kept(sim);
    if (found != kept)
        sim_violated(sim, "15 what was committed is kept: %zu rows were, %zu are in the ledger", kept, found);
}

/* ---- rows as such ---- */

struct sound_row {
    struct sim *sim;
    const struct operation *op;
};

static void not_sound(void *user, const char *rule, const char *expected, const char *found)
{
    const struct sound_row *row = user;
    sim_violated(row->sim, "15 rows fit together: %s: %s: %s; expected: %s", row->op->id, rule, found, expected);
}

/* The rules that `onced ledger verify` judges by. */
static void check_row_sound(struct sim *sim, const struct operation *op)
{
    struct sound_row row = {sim, op};
    struct audit audit;
    struct arena arena;
    arena_init(&arena);
    struct ledger_request events = {.command = LEDGER_EVENTS, .arena = &arena, .events = {.operation = op->id}};
    struct ledger_request attempts = {.command = LEDGER_ATTEMPTS, .arena = &arena, .attempts = {.operation = op->id}};
    bool whole = ask(sim, &events) == ERR_NONE && ask(sim, &attempts) == ERR_NONE &&
                 events.events.count < LEDGER_HISTORY_MAX && attempts.attempts.count < LEDGER_HISTORY_MAX;
    audit_begin(&audit, op, not_sound, &row);
    for (size_t i = 0; whole && i < events.events.count; i++)
        audit_event(&audit, &events.events.events[i]);
    for (size_t i = 0; whole && i < attempts.attempts.count; i++)
        audit_attempt(&audit, &attempts.attempts.attempts[i]);
    if (whole)
        audit_end(&audit);
    arena_release(&arena);
}

void checker_sound(struct sim *sim)
{
    char before[OPERATION_ID_SIZE] = "";
    bool more = true;
    while (more && !sim->result->violated) {
        struct arena arena;
        arena_init(&arena);
        struct ledger_request request = {
            .command = LEDGER_LIST,
            .arena = &arena,
            .list = {.oldest_first = true, .limit = LEDGER_LIST_MAX, .with_payload = true},
        };
        request.list.before = before[0] ? before : NULL;
        more = ask(sim, &request) == ERR_NONE && request.list.next;
        for (size_t i = 0; i < request.list.count; i++)
            check_row_sound(sim, request.list.ops[i]);
        if (more)
            check_copy(before, sizeof before, request.list.next);
        arena_release(&arena);
    }
}
