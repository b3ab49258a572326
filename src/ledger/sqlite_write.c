/* The commands that write. */
#include "core/playbook.h"
#include "core/steps.h"
#include "ledger/claim_store.h"
#include "ledger/compensation.h"
#include "ledger/sqlite_store.h"

/* How far candidates are searched: of one fingerprint, then (only if that was not enough) of the call's run. */
#define REPEATS_SCAN_MAX 256
#define DOUBT_SCAN_MAX   1000

/* ---- admission ---- */

/* Whether a table that is nearly always empty is so: *known remembers it for a sole writer, who resets it when he fills
 * the table. Otherwise the table's own statement is to be asked (*empty is false). */
static enum err_code is_empty(struct store *store, enum statement any, bool *known, bool *empty, struct err *err)
{
    *empty = *known;
    if (*known || !store->sole_writer)
        return ERR_NONE;
    bool row;
    sqlite3_stmt *statement = store_prepare(store, any, err);
    if (!statement || store_step(store, statement, &row, err))
        return err->code;
    *empty = *known = row && sqlite3_column_int(statement, 0) == 0;
    sqlite3_reset(statement);
    return ERR_NONE;
}

/* Doubts come and go: while there are some, every 32nd question looks whether they are gone. */
static enum err_code doubts_empty(struct store *store, bool *empty, struct err *err)
{
    *empty = store->no_doubts;
    if (store->no_doubts || store->doubt_questions++ % 32 != 0)
        return ERR_NONE;
    return is_empty(store, SQL_ANY_DOUBT, &store->no_doubts, empty, err);
}

static void bind_no_effect(const struct store *store, sqlite3_stmt *statement)
{
    sqlite3_bind_int(statement, 2, store->names.number[NAME_STATE][STATE_FAILED_PERMANENT]);
    sqlite3_bind_int(statement, 3, store->names.number[NAME_STATE][STATE_REJECTED]);
}

enum err_code store_answers_by_key(struct store *store, struct arena *arena, const struct digest *key_hash,
                                   const char *tenant, const char *tool, struct operation **op,
                                   struct tombstone **tombstone, struct err *err)
{
    *op = NULL;
    *tombstone = NULL;
    bool stones_empty;
    sqlite3_stmt *by_key = store_prepare(store, SQL_OPERATION_BY_KEY, err);
    sqlite3_stmt *stones = store_prepare(store, SQL_TOMBSTONE_BY_KEY, err);
    if (!by_key || !stones)
        return err->code;
    sqlite3_bind_blob(by_key, 1, key_hash->b, DIGEST_BYTES, SQLITE_STATIC);
    bind_no_effect(store, by_key);
    sqlite3_bind_int(by_key, 4, store->names.number[NAME_STATE][STATE_COMPENSATED]);
    if (read_operation(store, by_key, arena, true, NULL, op, err) ||
        is_empty(store, SQL_ANY_TOMBSTONE, &store->no_tombstones, &stones_empty, err))
        return err->code;
    sqlite3_bind_blob(stones, 1, key_hash->b, DIGEST_BYTES, SQLITE_STATIC);
    bind_no_effect(store, stones);
    if (!stones_empty && read_tombstone(store, stones, arena, tombstone, err))
        return err->code;
    if (*tombstone && admission_stone_answers(*tombstone, NULL, *op))
        *op = NULL;
    else
        *tombstone = NULL;
    /* The hash is over tenant and tool; a row of another tenant under it could only be damage. */
    if (*op && !(text_equal((*op)->tenant, tenant) && text_equal((*op)->tool, tool)))
        *op = NULL;
    if (*tombstone && !(text_equal((*tombstone)->tenant, tenant) && text_equal((*tombstone)->tool, tool)))
        *tombstone = NULL;
    return ERR_NONE;
}

/* Steps a bound statement over candidates and keeps the ones that matter, in scratch memory. *more: the scan ended at
 * its limit, not at the end. */
static enum err_code collect_repeats(struct store *store, sqlite3_stmt *rows, int scan_max,
                                     const struct admission *admission, struct admission_facts *facts, bool *more,
                                     struct err *err)
{
    int seen = 0;
    bool found;
    while (store_step(store, rows, &found, err) == 0 && found) {
        struct operation *other;
        seen++;
        if (row_operation(store, rows, &store->scratch, false, NULL, &other, err))
            break;
        if (operation_same_call(admission->op, other) && admission_joins(admission, other, admission->op->created_ms)) {
            facts->repeats[facts->repeat_count++] = other;
            if (facts->repeat_count == ADMISSION_CANDIDATES_MAX)
                break;
        }
    }
    sqlite3_reset(rows);
    *more = seen == scan_max;
    return err->code;
}

static enum err_code find_repeats(struct store *store, const struct admission *admission, struct admission_facts *facts,
                                  struct err *err)
{
    bool more;
    sqlite3_stmt *rows = store_prepare(store, SQL_REPEATS, err);
    if (!rows)
        return err->code;
    sqlite3_bind_int64(rows, 1, operation_repeat_hash(admission->op));
    sqlite3_bind_int(rows, 2, REPEATS_SCAN_MAX);
    if (collect_repeats(store, rows, REPEATS_SCAN_MAX, admission, facts, &more, err))
        return err->code;
    if (facts->repeat_count > 0 || !more || !admission->op->run)
        return ERR_NONE;
    /* Many runs make the same call: look within ours. */
    if (!(rows = store_prepare(store, SQL_REPEATS_OF_RUN, err)))
        return err->code;
    bind_text(rows, 1, admission->op->run);
    sqlite3_bind_int(rows, 2, LEDGER_SCAN_MAX);
    return collect_repeats(store, rows, LEDGER_SCAN_MAX, admission, facts, &more, err);
}

static enum err_code find_in_doubt(struct store *store, const struct admission *admission,
                                   struct admission_facts *facts, struct err *err)
{
    bool none;
    sqlite3_stmt *rows = store_prepare(store, SQL_IN_DOUBT, err);
    if (!rows || doubts_empty(store, &none, err) || none)
        return err->code;
    bind_text(rows, 1, admission->op->tenant);
    bind_text(rows, 2, admission->op->tool);
    bind_text(rows, 3, admission->op->principal);
    sqlite3_bind_int(rows, 4, DOUBT_SCAN_MAX);
    bool found;
    while (store_step(store, rows, &found, err) == 0 && found) {
        struct operation *other;
        if (row_operation(store, rows, &store->scratch, false, NULL, &other, err))
            break;
        if (admission_doubts(admission, other)) {
            facts->in_doubt[facts->in_doubt_count++] = other;
            if (facts->in_doubt_count == ADMISSION_CANDIDATES_MAX)
                break;
        }
    }
    sqlite3_reset(rows);
    return err->code;
}

static enum err_code find_named(struct store *store, const struct admission *admission, struct arena *arena,
                                struct admission_facts *facts, struct err *err)
{
    struct operation *named;
    struct tombstone *stone;
    sqlite3_stmt *by_id = store_prepare(store, SQL_OPERATION_BY_ID, err);
    if (!by_id)
        return err->code;
    bind_id(by_id, admission->op->repeat_of);
    if (read_operation(store, by_id, arena, true, NULL, &named, err))
        return err->code;
    if (named && text_equal(named->tenant, admission->op->tenant))
        facts->named = named;
    if (named || !(by_id = store_prepare(store, SQL_TOMBSTONE_BY_ID, err)))
        return err->code;
    bind_text(by_id, 1, admission->op->repeat_of);
    if (read_tombstone(store, by_id, arena, &stone, err))
        return err->code;
    if (stone && text_equal(stone->tenant, admission->op->tenant))
        facts->named_stone = stone;
    return ERR_NONE;
}

static enum err_code gather(struct store *store, const struct admission *admission, struct arena *arena,
                            struct admission_facts *facts, struct err *err)
{
    struct operation *by_key;
    struct tombstone *tombstone;
    const struct operation *op = admission->op;
    if (store_answers_by_key(store, arena, &op->key_hash, op->tenant, op->tool, &by_key, &tombstone, err))
        return err->code;
    facts->by_key = by_key;
    facts->tombstone = tombstone;
    if (op->repeat_of && find_named(store, admission, arena, facts, err))
        return err->code;
    if (admission_wants_repeats(admission) && find_repeats(store, admission, facts, err))
        return err->code;
    return admission->hold_in_doubt ? find_in_doubt(store, admission, facts, err) : ERR_NONE;
}

static enum err_code insert_history(struct store *store, int64_t n, int64_t sequence, const struct event *event,
                                    const struct attempt *attempt, struct err *err)
{
    sqlite3_stmt *insert = store_prepare(store, SQL_INSERT_HISTORY, err);
    if (!insert)
        return err->code;
    bind_history(store, insert, n, sequence, event, attempt);
    return store_run(store, insert, err);
}

/* Writes the table of doubts after the operation's own row. */
static enum err_code set_doubt(struct store *store, int64_t n, bool before, bool after, struct err *err)
{
    if (!before && !after)
        return ERR_NONE;
    sqlite3_stmt *statement = store_prepare(store, after ? SQL_SET_DOUBT : SQL_DELETE_DOUBT, err);
    if (!statement)
        return err->code;
    store->no_doubts = false;
    sqlite3_bind_int64(statement, 1, n);
    return store_run(store, statement, err);
}

/* The place of a new row is taken: by another id of the same millisecond, which is fine, or by this one. */
static enum err_code check_new(struct store *store, const char *id, struct err *err)
{
    bool found;
    sqlite3_stmt *row = store_prepare(store, SQL_LIFE_BY_ID, err);
    if (!row)
        return err->code;
    bind_id(row, id);
    if (store_step(store, row, &found, err) == 0 && found)
        err_set(err, ERR_INTERNAL, "operation %s exists already", id);
    sqlite3_reset(row);
    return err->code;
}

/* Puts the row at the place of its id, or at the next free one. */
static enum err_code insert_row(struct store *store, const struct ledger_admit *admit, int64_t *n,
                                struct admitted *plain, struct err *err)
{
    sqlite3_stmt *insert = store_prepare(store, SQL_INSERT_OPERATION, err);
    if (!insert)
        return err->code;
    const char *id = admit->admission.op->id;
    int64_t place = operation_place(id);
    *plain = bind_operation(store, insert, place, admit);
    for (*n = place;; ++*n) {
        sqlite3_bind_int64(insert, 1, *n);
        int rc = sqlite3_step(insert);
        sqlite3_reset(insert);
        if (rc == SQLITE_DONE)
            return ERR_NONE;
        if (rc != SQLITE_CONSTRAINT_PRIMARYKEY || *n + 1 == place + PLACES_TRIED)
            return store_failed(store, rc, err);
        if (*n == place && check_new(store, id, err))
            return err->code;
    }
}

static enum err_code insert_operation(struct store *store, const struct ledger_admit *admit, struct err *err)
{
    const struct operation *op = admit->admission.op;
    struct admitted plain = {0};
    int64_t n = 0;
    if (store_may_write(store, err) || insert_row(store, admit, &n, &plain, err))
        return err->code;
    store->moved[op->state]++;
    const struct attempt *attempt = plain.attempt ? NULL : admit->attempt;
    if ((!plain.event || attempt) &&
        insert_history(store, n, op->rev * LEDGER_CHANGE_EVENTS_MAX, plain.event ? NULL : &admit->event, attempt, err))
        return err->code;
    if (set_doubt(store, n, false, operation_in_doubt(op->state, op->orphaned, op->unknown_since_ms), err))
        return err->code;
    return op->claims.p ? store_claim_admitted(store, &admit->admission, op->reason == REASON_AWAITING_ENTITY, err)
                        : ERR_NONE;
}

/* Candidates were read without payload and into scratch memory: the one that is returned is read again, whole. */
static enum err_code read_whole(struct store *store, const struct operation *candidate, struct arena *arena,
                                const struct operation **out, struct err *err)
{
    struct operation *whole;
    sqlite3_stmt *by_id = store_prepare(store, SQL_OPERATION_BY_ID, err);
    if (!by_id)
        return err->code;
    bind_id(by_id, candidate->id);
    if (read_operation(store, by_id, arena, true, NULL, &whole, err) == 0)
        *out = whole;
    return err->code;
}

/* A new call that claims something: whether it gets it. What it is refused with outlives the scratch memory. */
static enum err_code judge_claims(struct store *store, struct ledger_request *request, struct admission_result *result)
{
    struct ledger_admit *admit = &request->admit;
    struct claims_facts facts;
    if (store_claim_facts(store, &admit->admission, &facts, &request->err))
        return request->err.code;
    admission_claim(&admit->admission, &facts, result);
    result->refusal.operation = arena_copy_text(request->arena, result->refusal.operation);
    return ERR_NONE;
}

static enum err_code insert_waiting(struct store *store, const struct ledger_admit *admit, struct err *err)
{
    struct ledger_admit waiting;
    struct operation op;
    claim_waiting(admit, &waiting, &op);
    return insert_operation(store, &waiting, err);
}

static enum err_code write_change(struct store *store, struct ledger_transition *change, enum state *from,
                                  struct err *err);

/* Once something is written, a command that fails must not leave half of itself. */
static enum err_code whole_or_nothing(struct store *store, enum err_code code)
{
    if (code && store->fault == FAULT_NONE)
        store->fault = FAULT_COMMAND;
    return code;
}

/* What compare-and-set and counters need of a row. */
struct life {
    int64_t n, rev;
    bool owned; /* as the change demands */
    enum state state;
    bool orphaned, delivered;
    int64_t unknown_since_ms;
};

static enum err_code read_life(struct store *store, const char *id, const struct ledger_transition *change, bool *found,
                               struct life *life, struct err *err);

/* What is a step of an operation that has not ended is undone by that one only. */
static enum err_code ask_parent(struct store *store, const struct ledger_admit *admit, struct err *err)
{
    const char *parent = compensation_asks(admit);
    struct life life;
    bool found = false;
    if (parent &&
        (read_life(store, parent, NULL, &found, &life, err) || (found && compensation_allowed(admit, life.state, err))))
        return err->code;
    return ERR_NONE;
}

/* The moves of what a new compensation undoes, and of the parent of a new step: both or none. */
static enum err_code move_others(struct store *store, struct ledger_admit *admit, struct err *err)
{
    enum state from;
    if (compensation_check(admit, err) || ask_parent(store, admit, err) ||
        (admit->undoes && write_change(store, admit->undoes, &from, err)))
        return err->code;
    if (!admit->parent)
        return ERR_NONE;
    enum err_code code = write_change(store, admit->parent, &from, err);
    return admit->undoes ? whole_or_nothing(store, code) : code;
}

static enum err_code insert_new(struct store *store, struct ledger_admit *admit, const struct admission_result *result,
                                struct err *err)
{
    if (result->verdict != VERDICT_NEW || admit->dry_run)
        return ERR_NONE;
    if (move_others(store, admit, err))
        return err->code;
    enum err_code code = result->waits ? insert_waiting(store, admit, err) : insert_operation(store, admit, err);
    return admit->undoes || admit->parent ? whole_or_nothing(store, code) : code;
}

enum err_code store_admit(struct store *store, struct ledger_request *request)
{
    struct ledger_admit *admit = &request->admit;
    struct admission_facts facts = {0};
    struct err *err = &request->err;
    admit->result = (struct admission_result){0};
    if (gather(store, &admit->admission, request->arena, &facts, err))
        return err->code;
    struct admission_result result = admission_decide(&admit->admission, &facts, admit->admission.op->created_ms);
    if (result.verdict == VERDICT_NEW && admit->admission.claims && judge_claims(store, request, &result))
        return err->code;
    if (insert_new(store, admit, &result, err))
        return err->code;
    if (result.existing && result.existing != facts.by_key && result.existing != facts.named &&
        read_whole(store, result.existing, request->arena, &result.existing, err))
        return err->code;
    admit->result = result;
    return ERR_NONE;
}

/* ---- transition ---- */

/* change NULL: nothing is demanded of the owner. */
static enum err_code read_life(struct store *store, const char *id, const struct ledger_transition *change, bool *found,
                               struct life *life, struct err *err)
{
    sqlite3_stmt *row = store_prepare(store, SQL_LIFE_BY_ID, err);
    if (!row)
        return err->code;
    bind_id(row, id);
    if (store_step(store, row, found, err) || !*found)
        return err->code;
    int number = sqlite3_column_int(row, 3);
    int state = number >= 0 && number < NAME_VALUES_MAX ? store->names.value[NAME_STATE][number] : -1;
    *life = (struct life){
        .n = sqlite3_column_int64(row, 0),
        .rev = sqlite3_column_int64(row, 1),
        .owned = !change || transition_owner_fits(change, (const char *)sqlite3_column_text(row, 2)),
        .state = state < 0 ? STATE_PLANNED : (enum state)state,
        .orphaned = sqlite3_column_int(row, 4) != 0,
        .delivered = sqlite3_column_int(row, 5) != 0,
        .unknown_since_ms = sqlite3_column_int64(row, 6),
    };
    sqlite3_reset(row);
    return state < 0 ? store_strange(store, "state", err) : ERR_NONE;
}

static enum err_code write_life(struct store *store, const struct operation *op, const struct life *life,
                                struct err *err)
{
    sqlite3_stmt *update = store_prepare(store, SQL_UPDATE_OPERATION, err);
    if (!update)
        return err->code;
    bool orphaned = life->orphaned && !state_terminal(op->state);
    sqlite3_bind_int64(update, bind_life(store, update, op, orphaned) + 1, life->n);
    store->moved[life->state]--;
    store->moved[op->state]++;
    if (store_run(store, update, err))
        return err->code;
    return set_doubt(store, life->n, operation_in_doubt(life->state, life->orphaned, life->unknown_since_ms),
                     operation_in_doubt(op->state, orphaned, op->unknown_since_ms), err);
}

/* Events and attempts side by side: mostly one of each, in one line. */
static enum err_code write_history(struct store *store, const struct ledger_transition *change, int64_t n,
                                   struct err *err)
{
    size_t lines = change->event_count > change->attempt_count ? change->event_count : change->attempt_count;
    for (size_t i = 0; i < lines; i++) {
        const struct event *event = i < change->event_count ? &change->events[i] : NULL;
        const struct attempt *attempt = i < change->attempt_count ? &change->attempts[i] : NULL;
        if (insert_history(store, n, change->op->rev * LEDGER_CHANGE_EVENTS_MAX + (int64_t)i, event, attempt, err))
            return err->code;
    }
    return ERR_NONE;
}

static enum err_code insert_incident(struct store *store, const struct incident *incident, struct err *err)
{
    sqlite3_stmt *insert = store_prepare(store, SQL_INSERT_INCIDENT, err);
    if (!insert)
        return err->code;
    bind_incident(store, insert, incident);
    return store_run(store, insert, err);
}

/* The common case in one statement, without reading the row first: compare-and-set by its WHERE. Only while nothing is
 * in doubt, hence nothing orphaned that has not ended; the events tell the former state. *done is false when the row is
 * not as expected: then the long way finds out why. */
static enum err_code write_life_at_once(struct store *store, const struct ledger_transition *change, struct life *life,
                                        bool *done, struct err *err)
{
    const struct operation *op = change->op;
    bool nothing_in_doubt;
    *done = false;
    if (change->unheld)
        return ERR_NONE;
    if (doubts_empty(store, &nothing_in_doubt, err))
        return err->code;
    if (!nothing_in_doubt || change->event_count == 0 || operation_in_doubt(op->state, false, op->unknown_since_ms))
        return ERR_NONE;
    sqlite3_stmt *update = store_prepare(store, change->fence ? SQL_UPDATE_IF_OWNER : SQL_UPDATE_IF, err);
    if (!update)
        return err->code;
    *life = (struct life){.n = operation_place(op->id), .state = change->events[0].from};
    int column = bind_life(store, update, op, false);
    sqlite3_bind_int64(update, ++column, life->n);
    bind_text(update, ++column, op->id);
    sqlite3_bind_int64(update, ++column, op->rev - 1);
    if (change->fence)
        bind_text(update, ++column, change->fence);
    if (store_run(store, update, err))
        return err->code;
    *done = sqlite3_changes(store->db) == 1;
    if (*done) {
        store->moved[life->state]--;
        store->moved[op->state]++;
    }
    return ERR_NONE;
}

static enum err_code write_life_checked(struct store *store, const struct ledger_transition *change, struct life *life,
                                        struct err *err)
{
    bool found;
    if (read_life(store, change->op->id, change, &found, life, err) ||
        transition_check(change, found, life->rev, life->owned, err))
        return err->code;
    return write_life(store, change->op, life, err);
}

/* One operation's row, history, incidents and claims. */
static enum err_code write_change(struct store *store, struct ledger_transition *change, enum state *from,
                                  struct err *err)
{
    struct life life;
    bool done;
    if (store_may_write(store, err) || (change->seen && store_claim_unchanged(store, change, err)) ||
        write_life_at_once(store, change, &life, &done, err) ||
        (!done && write_life_checked(store, change, &life, err)) || write_history(store, change, life.n, err))
        return err->code;
    *from = life.state;
    for (size_t i = 0; i < change->incident_count; i++)
        if (insert_incident(store, &change->incidents[i], err))
            return err->code;
    return change->op->claims.p ? store_claim_moved(store, life.state, change, err) : ERR_NONE;
}

static enum err_code read_other(struct store *store, const char *id, struct operation **out, struct err *err)
{
    sqlite3_stmt *by_id = store_prepare(store, SQL_OPERATION_BY_ID, err);
    if (!by_id)
        return err->code;
    bind_id(by_id, id);
    return read_operation(store, by_id, &store->scratch, true, NULL, out, err);
}

/* A step, or what was undone of one, has moved: its parent is told. */
static enum err_code tell_parent(struct store *store, struct ledger_request *request, const struct operation *step)
{
    struct ledger_transition *change = &request->transition;
    struct err *err = &request->err;
    struct operation *parent;
    struct settlement settlement;
    enum state from;
    if (read_other(store, step->parent, &parent, err) || !parent ||
        !parent_told(change, step, parent, &store->scratch, &settlement))
        return err->code;
    if (write_change(store, &settlement.change, &from, err))
        return err->code;
    settlement_wakes(&settlement, change);
    change->parent = settlement_tell(&settlement, request->arena);
    return ERR_NONE;
}

/* A compensation has ended: what it undoes moves with it. */
static enum err_code settle(struct store *store, struct ledger_request *request)
{
    struct ledger_transition *change = &request->transition;
    struct err *err = &request->err;
    struct operation *original;
    struct settlement settlement;
    enum state from;
    if (read_other(store, change->op->compensates, &original, err) || !original ||
        !compensation_settles(change, original, &store->scratch, &settlement))
        return err->code;
    if (write_change(store, &settlement.change, &from, err))
        return err->code;
    settlement_wakes(&settlement, change);
    change->undone = settlement_tell(&settlement, request->arena);
    return steps_tell(from, &settlement.op) ? tell_parent(store, request, &settlement.op) : ERR_NONE;
}

enum err_code store_transition(struct store *store, struct ledger_request *request)
{
    struct ledger_transition *change = &request->transition;
    struct err *err = &request->err;
    const char *source = NULL;
    enum state from;
    if (change->inbound && store_inbound_waits(store, change->inbound, &source, err))
        return err->code;
    if (write_change(store, change, &from, err))
        return err->code;
    if (playbook_settles(from, change->op) && whole_or_nothing(store, settle(store, request)))
        return err->code;
    if (steps_tell(from, change->op) && whole_or_nothing(store, tell_parent(store, request, change->op)))
        return err->code;
    return change->inbound ? store_inbound_apply(store, change, source, err) : ERR_NONE;
}

/* ---- claims ---- */

/* Takes rows of a bound statement until the limit. Rows that another owner still holds are passed over; *held_until
 * becomes the earliest end of their leases. */
static enum err_code take_rows(struct store *store, sqlite3_stmt *rows, struct ledger_request *request, int64_t *places,
                               int64_t *held_until)
{
    struct ledger_claim *claim = &request->claim;
    struct err *err = &request->err;
    bool found;
    while (claim->count < claim->limit && store_step(store, rows, &found, err) == 0 && found) {
        struct operation *op;
        if (row_operation(store, rows, request->arena, true, &places[claim->count], &op, err))
            break;
        if (claim_may_take(claim, op))
            claim->ops[claim->count++] = op;
        else if (*held_until == 0 || op->lease_until_ms < *held_until)
            *held_until = op->lease_until_ms;
    }
    sqlite3_reset(rows);
    return err->code;
}

static enum err_code find_claims(struct store *store, struct ledger_request *request, int64_t *places,
                                 int64_t *held_until)
{
    struct ledger_claim *claim = &request->claim;
    if (claim->foreign) {
        sqlite3_stmt *rows = store_prepare(store, SQL_FOREIGN, &request->err);
        if (!rows)
            return request->err.code;
        bind_text(rows, 1, claim->owner);
        sqlite3_bind_int64(rows, 2, (int64_t)claim->limit);
        return take_rows(store, rows, request, places, held_until);
    }
    for (int open = 1; open >= 0 && claim->count < claim->limit; open--) {
        sqlite3_stmt *rows = store_prepare(store, SQL_DUE, &request->err);
        if (!rows)
            return request->err.code;
        sqlite3_bind_int(rows, 1, open);
        sqlite3_bind_int64(rows, 2, claim->now_ms);
        sqlite3_bind_int64(rows, 3, LEDGER_SCAN_MAX);
        if (take_rows(store, rows, request, places, held_until))
            return request->err.code;
    }
    return ERR_NONE;
}

static enum err_code write_claims(struct store *store, struct ledger_request *request, const int64_t *places)
{
    struct ledger_claim *claim = &request->claim;
    struct err *err = &request->err;
    sqlite3_stmt *update = store_prepare(store, SQL_CLAIM, err);
    if (!update)
        return err->code;
    const char *owner = arena_copy_text(request->arena, claim->owner);
    int64_t until = claim->now_ms + claim->lease_ms;
    for (size_t i = 0; i < claim->count; i++) {
        struct operation *op = claim->ops[i];
        claim->former_owners[i] = op->owner;
        op->owner = owner;
        op->lease_until_ms = until;
        op->wake_at_ms = ledger_renewal_ms(claim);
        sqlite3_bind_int64(update, 1, places[i]);
        bind_text(update, 2, owner);
        sqlite3_bind_int64(update, 3, until);
        sqlite3_bind_int64(update, 4, op->wake_at_ms);
        if (store_run(store, update, err))
            return err->code;
    }
    return ERR_NONE;
}

static void earliest(int64_t *at, int64_t other)
{
    if (other > 0 && (*at == 0 || other < *at))
        *at = other;
}

/* The earliest time after which another claim could find something: a due row that did not fit, the end of a lease that
 * was in the way, or the next wake_at. */
static enum err_code next_wake(struct store *store, struct ledger_request *request, int64_t held_until)
{
    struct ledger_claim *claim = &request->claim;
    bool full = claim->count == claim->limit;
    earliest(&claim->next_wake_ms, held_until);
    for (int open = 1; open >= 0; open--) {
        bool found;
        sqlite3_stmt *row = store_prepare(store, SQL_NEXT_WAKE, &request->err);
        if (!row)
            return request->err.code;
        sqlite3_bind_int(row, 1, open);
        sqlite3_bind_int64(row, 2, full || claim->foreign ? 0 : claim->now_ms);
        if (store_step(store, row, &found, &request->err))
            return request->err.code;
        if (found)
            earliest(&claim->next_wake_ms, sqlite3_column_int64(row, 0));
        sqlite3_reset(row);
    }
    return ERR_NONE;
}

enum err_code store_claim(struct store *store, struct ledger_request *request)
{
    struct ledger_claim *claim = &request->claim;
    if (store_may_write(store, &request->err))
        return request->err.code;
    if (claim->limit > LEDGER_CLAIM_MAX)
        claim->limit = LEDGER_CLAIM_MAX;
    claim->ops = arena_alloc(request->arena, (claim->limit + 1) * sizeof *claim->ops);
    claim->former_owners = arena_alloc(request->arena, (claim->limit + 1) * sizeof *claim->former_owners);
    int64_t *places = arena_alloc(&store->scratch, (claim->limit + 1) * sizeof *places);
    claim->count = 0;
    claim->next_wake_ms = 0;
    int64_t held_until = 0;
    if (find_claims(store, request, places, &held_until) || write_claims(store, request, places) ||
        next_wake(store, request, held_until))
        return request->err.code;
    return ERR_NONE;
}

enum err_code store_release_claims(struct store *store, struct ledger_request *request)
{
    struct ledger_release *release = &request->release;
    struct err *err = &request->err;
    sqlite3_stmt *update = store_may_write(store, err) ? NULL : store_prepare(store, SQL_RELEASE, err);
    if (!update)
        return err->code;
    bind_text(update, 1, release->owner);
    sqlite3_bind_int64(update, 2, release->now_ms);
    sqlite3_bind_int(update, 3, store->names.number[NAME_STATE][STATE_DISPATCHED]);
    if (store_run(store, update, err) == 0)
        release->count = sqlite3_changes(store->db);
    return err->code;
}

/* ---- marks, expiry ---- */

/* The common case in one statement: the answer has reached its caller, and nothing is in doubt, hence nothing orphaned.
 * *done is false when the row is not as expected: then the long way finds out why. */
static enum err_code mark_delivered_at_once(struct store *store, const struct ledger_mark *mark, bool *done,
                                            struct err *err)
{
    bool nothing_in_doubt;
    *done = false;
    if (!mark->delivered || mark->orphaned)
        return ERR_NONE;
    if (doubts_empty(store, &nothing_in_doubt, err) || !nothing_in_doubt)
        return err->code;
    sqlite3_stmt *update = store_prepare(store, SQL_MARK_DELIVERED, err);
    if (!update)
        return err->code;
    bind_id(update, mark->operation);
    if (store_run(store, update, err))
        return err->code;
    *done = sqlite3_changes(store->db) == 1;
    return ERR_NONE;
}

enum err_code store_mark(struct store *store, struct ledger_request *request)
{
    const struct ledger_mark *mark = &request->mark;
    struct err *err = &request->err;
    struct life life;
    bool found, done;
    if (store_may_write(store, err) || mark_delivered_at_once(store, mark, &done, err) || done)
        return err->code;
    if (read_life(store, mark->operation, NULL, &found, &life, err) || !found)
        return err->code;
    bool delivered = life.delivered || mark->delivered;
    bool orphaned = (life.orphaned || mark->orphaned) && !mark->not_orphaned;
    if (delivered == life.delivered && orphaned == life.orphaned)
        return ERR_NONE;
    sqlite3_stmt *update = store_prepare(store, SQL_MARK, err);
    if (!update)
        return err->code;
    sqlite3_bind_int64(update, 1, life.n);
    sqlite3_bind_int(update, 2, delivered);
    sqlite3_bind_int(update, 3, orphaned);
    if (store_run(store, update, err))
        return err->code;
    return set_doubt(store, life.n, operation_in_doubt(life.state, life.orphaned, life.unknown_since_ms),
                     operation_in_doubt(life.state, orphaned, life.unknown_since_ms), err);
}

static enum err_code delete_row(struct store *store, int64_t n, struct err *err)
{
    static const enum statement deletes[] = {SQL_DELETE_HISTORY, SQL_DELETE_DOUBT, SQL_DELETE_OPERATION};
    for (size_t i = 0; i < sizeof deletes / sizeof *deletes; i++) {
        sqlite3_stmt *statement = store_prepare(store, deletes[i], err);
        if (!statement)
            return err->code;
        sqlite3_bind_int64(statement, 1, n);
        if (store_run(store, statement, err))
            return err->code;
    }
    return ERR_NONE;
}

enum err_code store_expire(struct store *store, struct ledger_request *request)
{
    const struct ledger_expire *expire = &request->expire;
    struct err *err = &request->err;
    struct operation *op;
    int64_t n;
    sqlite3_stmt *by_id = store_prepare(store, SQL_OPERATION_BY_ID, err);
    if (store_may_write(store, err) || !by_id)
        return err->code;
    bind_id(by_id, expire->operation);
    if (read_operation(store, by_id, &store->scratch, false, &n, &op, err))
        return err->code;
    if (expire_check(expire, op, err))
        return err->code;
    struct life parent;
    bool found = false;
    if (op->parent &&
        (read_life(store, op->parent, NULL, &found, &parent, err) || (found && parent_lets_go(op, parent.state, err))))
        return err->code;
    sqlite3_stmt *insert = store_prepare(store, SQL_INSERT_TOMBSTONE, err);
    if (!insert)
        return err->code;
    store->no_tombstones = false;
    struct tombstone stone = operation_tombstone(op, expire->now_ms);
    bind_tombstone(store, insert, &stone);
    if (store_run(store, insert, err))
        return err->code;
    return delete_row(store, n, err);
}

/* ---- incidents, tokens ---- */

enum err_code store_acknowledge(struct store *store, struct ledger_request *request)
{
    struct ledger_acknowledge *acknowledge = &request->acknowledge;
    struct err *err = &request->err;
    bool found;
    sqlite3_stmt *row = store_prepare(store, SQL_INCIDENT_BY_ID, err);
    if (store_may_write(store, err) || !row)
        return err->code;
    bind_text(row, 1, acknowledge->incident);
    if (store_step(store, row, &found, err))
        return err->code;
    struct incident incident = {0};
    if (found)
        row_incident(store, row, request->arena, &incident, err);
    sqlite3_reset(row);
    if (err->code)
        return err->code;
    if (!found || (acknowledge->tenant && !text_equal(acknowledge->tenant, incident.tenant)))
        return err_set(err, ERR_NOT_FOUND, "there is no incident %s", acknowledge->incident);
    if (incident.acknowledged_ms == 0) {
        sqlite3_stmt *update = store_prepare(store, SQL_ACKNOWLEDGE, err);
        if (!update)
            return err->code;
        incident.acknowledged_by = arena_copy_text(request->arena, acknowledge->by);
        incident.acknowledged_ms = acknowledge->now_ms;
        bind_text(update, 1, acknowledge->incident);
        bind_text(update, 2, acknowledge->by);
        sqlite3_bind_int64(update, 3, acknowledge->now_ms);
        if (store_run(store, update, err))
            return err->code;
    }
    acknowledge->result = incident;
    return ERR_NONE;
}

static enum err_code read_token(struct store *store, const char *id, struct arena *arena, bool *found,
                                struct token *token, struct err *err)
{
    sqlite3_stmt *row = store_prepare(store, SQL_TOKEN_BY_ID, err);
    if (!row)
        return err->code;
    bind_text(row, 1, id);
    if (store_step(store, row, found, err) || !*found)
        return err->code;
    row_token(store, row, arena, token, err);
    sqlite3_reset(row);
    return err->code;
}

enum err_code store_token_add(struct store *store, struct ledger_request *request)
{
    struct err *err = &request->err;
    sqlite3_stmt *insert = store_prepare(store, SQL_INSERT_TOKEN, err);
    if (store_may_write(store, err) || !insert)
        return err->code;
    bind_token(store, insert, &request->token.token);
    return store_run(store, insert, err);
}

enum err_code store_token_revoke(struct store *store, struct ledger_request *request)
{
    struct token *wanted = &request->token.token, stored;
    struct err *err = &request->err;
    bool found;
    if (store_may_write(store, err) || read_token(store, wanted->id, request->arena, &found, &stored, err))
        return err->code;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no token %s", wanted->id);
    if (stored.revoked_ms == 0) {
        sqlite3_stmt *update = store_prepare(store, SQL_REVOKE_TOKEN, err);
        if (!update)
            return err->code;
        stored.revoked_ms = wanted->revoked_ms;
        bind_text(update, 1, wanted->id);
        sqlite3_bind_int64(update, 2, wanted->revoked_ms);
        if (store_run(store, update, err))
            return err->code;
    }
    *wanted = stored;
    return ERR_NONE;
}
