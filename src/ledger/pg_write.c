/* The commands that write. */
#include "base/mem.h"
#include "core/playbook.h"
#include "core/steps.h"
#include "ledger/claim_store.h"
#include "ledger/compensation.h"
#include "ledger/pg_store.h"

/* How far candidates are searched: of one fingerprint, then (only if that was not enough) of the call's run. */
#define REPEATS_SCAN_MAX 256
#define DOUBT_SCAN_MAX   1000

/* Once something is written, a command that fails must not leave half of itself. */
static enum err_code whole_or_nothing(struct pg *pg, enum err_code code)
{
    if (code && pg->fault == PG_FINE)
        pg->fault = PG_COMMAND;
    return code;
}

/* ---- locks ---- */

#define LOCK_KEY    0x6f6e6365642d6b65u
#define LOCK_REPEAT 0x6f6e6365642d7265u

static int64_t operation_lock(const char *id)
{
    return (int64_t)text_hash(text_hash(TEXT_HASH_START, "operation"), id);
}

static int64_t tenant_lock(const char *tenant)
{
    return (int64_t)text_hash(text_hash(TEXT_HASH_START, "claims"), tenant);
}

/* Two gateways that look, decide and insert at the same time must not both find nothing: by key, by what a call would
 * repeat, by what it claims. And two that change the same rows, each in its own order, must not wait for one another:
 * what takes a row's lock takes this one before. */
size_t pg_locks_of(const struct ledger_request *request, int64_t locks[PG_LOCKS_MAX])
{
    size_t count = 0;
    if (request->command == LEDGER_ADMIT && !request->admit.dry_run) {
        const struct admission *admission = &request->admit.admission;
        locks[count++] = (int64_t)((uint64_t)digest_int64(&admission->op->key_hash) ^ LOCK_KEY);
        if (admission_wants_repeats(admission))
            locks[count++] = (int64_t)((uint64_t)operation_repeat_hash(admission->op) ^ LOCK_REPEAT);
        if (admission->claims || request->admit.undoes || request->admit.parent)
            locks[count++] = tenant_lock(admission->op->tenant);
    } else if (request->command == LEDGER_TRANSITION) {
        const struct operation *op = request->transition.op;
        locks[count++] = operation_lock(op->id);
        /* what is undone, and a step's parent, move with it and may claim something */
        if (op->claims.p || op->compensates || op->parent || op->steps.p || request->transition.seen)
            locks[count++] = tenant_lock(op->tenant);
    } else if (request->command == LEDGER_MARK) {
        locks[count++] = operation_lock(request->mark.operation);
    } else if (request->command == LEDGER_WATCH) {
        locks[count++] = operation_lock(request->get.operation);
    } else if (request->command == LEDGER_EXPIRE) {
        locks[count++] = operation_lock(request->expire.operation);
    } else if (request->command == LEDGER_ENTITY_RELEASE) {
        locks[count++] = tenant_lock(request->entity_release.tenant);
    }
    return count;
}

/* ---- admission: what is known ---- */

enum err_code pg_operation(struct pg *pg, const char *tenant, const char *id, struct arena *arena,
                           struct operation **out, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query_in(&query, pg, tenant ? PG_OPERATION_OF : PG_OPERATION_BY_ID, tenant);
    if (tenant)
        pg_put_text(&query, tenant);
    pg_put_text(&query, id);
    *out = NULL;
    if (pg_rows(&query, &result, err) == 0)
        pg_take_operation(pg, result, 0, arena, true, out, err);
    return err->code;
}

static enum err_code ask_by_key(struct pg *pg, const struct digest *key_hash, const char *tenant,
                                struct pg_ahead *ahead, struct err *err)
{
    static const enum pg_statement which[] = {PG_OPERATION_BY_KEY, PG_TOMBSTONE_BY_KEY};
    int tickets[2];
    for (int i = 0; i < 2; i++) {
        struct pg_query query;
        pg_query_in(&query, pg, which[i], tenant);
        pg_put_text(&query, tenant);
        pg_put_digest(&query, key_hash);
        if (pg_ask(&query, err))
            return err->code;
        tickets[i] = query.ticket;
    }
    ahead->by_key = tickets[0];
    ahead->stone = tickets[1];
    return ERR_NONE;
}

static enum err_code take_by_key(struct pg *pg, const struct pg_ahead *ahead, struct arena *arena, const char *tool,
                                 struct operation **op, struct tombstone **stone, struct err *err)
{
    const PGresult *rows, *stones;
    *op = NULL;
    *stone = NULL;
    if (pg_answer(pg, ahead->by_key, &rows, err) || pg_take_operation(pg, rows, 0, arena, true, op, err) ||
        pg_answer(pg, ahead->stone, &stones, err) || pg_take_tombstone(pg, stones, arena, stone, err))
        return err->code;
    if (*stone && admission_stone_answers(*stone, NULL, *op))
        *op = NULL;
    else
        *stone = NULL;
    /* The hash is over tenant and tool; a row of another tool under it could only be damage. */
    if (*op && !text_equal((*op)->tool, tool))
        *op = NULL;
    if (*stone && !text_equal((*stone)->tool, tool))
        *stone = NULL;
    return ERR_NONE;
}

enum err_code pg_answers_by_key(struct pg *pg, struct arena *arena, const struct digest *key_hash, const char *tenant,
                                const char *tool, struct operation **op, struct tombstone **stone, struct err *err)
{
    struct pg_ahead ahead;
    if (ask_by_key(pg, key_hash, tenant, &ahead, err))
        return err->code;
    return take_by_key(pg, &ahead, arena, tool, op, stone, err);
}

static enum err_code ask_repeats(struct pg *pg, const struct operation *op, bool of_run, int *ticket, struct err *err)
{
    struct pg_query query;
    pg_query_in(&query, pg, of_run ? PG_REPEATS_OF_RUN : PG_REPEATS, op->tenant);
    pg_put_text(&query, op->tenant);
    if (of_run)
        pg_put_text(&query, op->run);
    else
        pg_put_int(&query, operation_repeat_hash(op));
    pg_put_int(&query, of_run ? LEDGER_SCAN_MAX : REPEATS_SCAN_MAX);
    if (pg_ask(&query, err) == 0)
        *ticket = query.ticket;
    return err->code;
}

static enum err_code ask_doubts(struct pg *pg, const struct operation *op, int *ticket, struct err *err)
{
    struct pg_query query;
    pg_query_in(&query, pg, PG_IN_DOUBT, op->tenant);
    pg_put_text(&query, op->tenant);
    pg_put_text(&query, op->tool);
    pg_put_text(&query, op->principal);
    pg_put_int(&query, DOUBT_SCAN_MAX);
    if (pg_ask(&query, err) == 0)
        *ticket = query.ticket;
    return err->code;
}

/* Keeps the candidates that matter, in scratch memory. */
static enum err_code collect_repeats(struct pg *pg, const PGresult *rows, const struct admission *admission,
                                     struct admission_facts *facts, struct err *err)
{
    int count = PQntuples(rows);
    for (int i = 0; i < count && facts->repeat_count < ADMISSION_CANDIDATES_MAX; i++) {
        struct operation *other;
        if (pg_take_operation(pg, rows, i, &pg->scratch, false, &other, err))
            return err->code;
        if (operation_same_call(admission->op, other) && admission_joins(admission, other, admission->op->created_ms))
            facts->repeats[facts->repeat_count++] = other;
    }
    return ERR_NONE;
}

static enum err_code find_repeats(struct pg *pg, int ticket, const struct admission *admission,
                                  struct admission_facts *facts, struct err *err)
{
    const PGresult *rows;
    if (pg_answer(pg, ticket, &rows, err) || collect_repeats(pg, rows, admission, facts, err))
        return err->code;
    if (facts->repeat_count > 0 || PQntuples(rows) < REPEATS_SCAN_MAX || !admission->op->run)
        return ERR_NONE;
    /* Many runs make the same call: look within ours. */
    if (ask_repeats(pg, admission->op, true, &ticket, err) || pg_answer(pg, ticket, &rows, err))
        return err->code;
    return collect_repeats(pg, rows, admission, facts, err);
}

static enum err_code find_in_doubt(struct pg *pg, int ticket, const struct admission *admission,
                                   struct admission_facts *facts, struct err *err)
{
    const PGresult *rows;
    if (pg_answer(pg, ticket, &rows, err))
        return err->code;
    int count = PQntuples(rows);
    for (int i = 0; i < count && facts->in_doubt_count < ADMISSION_CANDIDATES_MAX; i++) {
        struct operation *other;
        if (pg_take_operation(pg, rows, i, &pg->scratch, false, &other, err))
            return err->code;
        if (admission_doubts(admission, other))
            facts->in_doubt[facts->in_doubt_count++] = other;
    }
    return ERR_NONE;
}

static enum err_code find_named(struct pg *pg, const struct admission *admission, struct arena *arena,
                                struct admission_facts *facts, struct err *err)
{
    struct operation *named;
    struct tombstone *stone;
    const PGresult *rows;
    struct pg_query query;
    const char *tenant = admission->op->tenant;
    if (pg_operation(pg, NULL, admission->op->repeat_of, arena, &named, err))
        return err->code;
    if (named && text_equal(named->tenant, tenant))
        facts->named = named;
    if (named)
        return ERR_NONE;
    pg_query(&query, pg, PG_TOMBSTONE_BY_ID);
    pg_put_text(&query, admission->op->repeat_of);
    if (pg_rows(&query, &rows, err) || pg_take_tombstone(pg, rows, arena, &stone, err))
        return err->code;
    if (stone && text_equal(stone->tenant, tenant))
        facts->named_stone = stone;
    return ERR_NONE;
}

static const struct pg_ahead nothing_asked = {
    .asked = true, .by_key = -1, .stone = -1, .repeats = -1, .doubts = -1, .rows = -1};

static enum err_code ask_facts(struct pg *pg, const struct admission *admission, struct pg_ahead *ahead,
                               struct err *err)
{
    const struct operation *op = admission->op;
    *ahead = nothing_asked;
    if (ask_by_key(pg, &op->key_hash, op->tenant, ahead, err))
        return err->code;
    if (admission_wants_repeats(admission) && ask_repeats(pg, op, false, &ahead->repeats, err))
        return err->code;
    return admission->hold_in_doubt ? ask_doubts(pg, op, &ahead->doubts, err) : ERR_NONE;
}

static enum err_code gather(struct pg *pg, const struct admission *admission, const struct pg_ahead *ahead,
                            struct arena *arena, struct admission_facts *facts, struct err *err)
{
    struct operation *by_key;
    struct tombstone *stone;
    if (take_by_key(pg, ahead, arena, admission->op->tool, &by_key, &stone, err))
        return err->code;
    facts->by_key = by_key;
    facts->tombstone = stone;
    if (admission->op->repeat_of && find_named(pg, admission, arena, facts, err))
        return err->code;
    if (ahead->repeats >= 0 && find_repeats(pg, ahead->repeats, admission, facts, err))
        return err->code;
    return ahead->doubts >= 0 ? find_in_doubt(pg, ahead->doubts, admission, facts, err) : ERR_NONE;
}

/* ---- admission: what is written ---- */

static void put_line(struct pg_query *query, const struct event *event, const struct attempt *attempt)
{
    if (event)
        pg_put_record(query, RECORD_EVENT, event);
    else
        pg_put_nothing(query, RECORD_EVENT);
    if (attempt)
        pg_put_record(query, RECORD_ATTEMPT, attempt);
    else
        pg_put_nothing(query, RECORD_ATTEMPT);
}

static enum err_code insert_history(struct pg *pg, const struct operation *op, size_t line, const struct event *event,
                                    const struct attempt *attempt, struct err *err)
{
    struct pg_query query;
    pg_query_in(&query, pg, PG_INSERT_HISTORY, op->tenant);
    pg_put_text(&query, op->tenant);
    pg_put_text(&query, op->id);
    pg_put_int(&query, op->rev * LEDGER_CHANGE_EVENTS_MAX + (int64_t)line);
    put_line(&query, event, attempt);
    return pg_write(&query, err);
}

static void put_beginning(struct pg_query *query, const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op;
    struct admitted plain = admitted_plain(admit);
    pg_put_int(query, !state_terminal(op->state));
    pg_put_int(query, operation_repeat_hash(op));
    pg_put_text(query, plain.event ? state_name(op->state) : NULL);
    pg_put_text(query, plain.event ? reason_name(admit->event.reason) : NULL);
    pg_put_text(query, plain.attempt ? admit->attempt->id : NULL);
}

/* The row is there: what of its first line does not lie in itself. */
static enum err_code insert_beginning(struct pg *pg, const struct ledger_admit *admit, struct err *err)
{
    const struct operation *op = admit->admission.op;
    struct admitted plain = admitted_plain(admit);
    const struct attempt *attempt = plain.attempt ? NULL : admit->attempt;
    pg->moved[op->state]++;
    return plain.event && !attempt ? ERR_NONE
                                   : insert_history(pg, op, 0, plain.event ? NULL : &admit->event, attempt, err);
}

/* For an admission that is new if nothing is known: the operation is inserted, if so. */
static void add_admission(struct pg *pg, const struct ledger_admit *admit, struct pg_ahead *ahead)
{
    const struct admission *admission = &admit->admission;
    struct pg_query row;
    struct pg_group *group = pg_group_of(pg, PG_GROUP_ADMISSIONS, admission->op->tenant, &row);
    put_beginning(&row, admit);
    pg_put_int(&row, admission_wants_repeats(admission));
    pg_put_int(&row, admission->hold_in_doubt);
    pg_put_record(&row, RECORD_OPERATION, admission->op);
    ahead->at = pg_group_add(group, &row);
    ahead->rows = group->ticket;
}

static enum err_code insert_operation(struct pg *pg, const struct ledger_admit *admit, struct err *err)
{
    const struct operation *op = admit->admission.op;
    struct pg_query query;
    pg_query_in(&query, pg, PG_INSERT_OPERATION, op->tenant);
    put_beginning(&query, admit);
    pg_put_record(&query, RECORD_OPERATION, op);
    if (pg_write_one(&query, err) || insert_beginning(pg, admit, err))
        return err->code;
    return op->claims.p ? pg_claim_admitted(pg, &admit->admission, op->reason == REASON_AWAITING_ENTITY, err)
                        : ERR_NONE;
}

/* A new call that claims something: whether it gets it. What it is refused with outlives the scratch memory. */
static enum err_code judge_claims(struct pg *pg, struct ledger_request *request, struct admission_result *result)
{
    struct ledger_admit *admit = &request->admit;
    struct claims_facts facts;
    if (pg_claim_facts(pg, &admit->admission, &facts, &request->err))
        return request->err.code;
    admission_claim(&admit->admission, &facts, result);
    result->refusal.operation = arena_copy_text(request->arena, result->refusal.operation);
    return ERR_NONE;
}

static enum err_code insert_as_decided(struct pg *pg, const struct ledger_admit *admit, bool waits, struct err *err)
{
    struct ledger_admit waiting;
    struct operation op;
    if (!waits)
        return insert_operation(pg, admit, err);
    claim_waiting(admit, &waiting, &op);
    return insert_operation(pg, &waiting, err);
}

static enum err_code write_change(struct pg *pg, struct ledger_transition *change, const struct pg_ahead *ahead,
                                  enum state *from, struct err *err);

static enum err_code read_state(struct pg *pg, const char *id, bool *found, enum state *out, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_STATE);
    pg_put_text(&query, id);
    if (pg_rows(&query, &result, err))
        return err->code;
    struct pg_row row = pg_row(pg, result, 0, &pg->scratch);
    *found = PQntuples(result) > 0;
    int state = *found ? pg_take_name(&row, NAME_STATE) : 0;
    if (row.strange)
        return pg_strange(pg, row.strange, err);
    *out = (enum state)state;
    return ERR_NONE;
}

/* What is a step of an operation that has not ended is undone by that one only. */
static enum err_code ask_parent(struct pg *pg, const struct ledger_admit *admit, struct err *err)
{
    const char *parent = compensation_asks(admit);
    enum state state;
    bool found;
    if (parent && (read_state(pg, parent, &found, &state, err) || (found && compensation_allowed(admit, state, err))))
        return err->code;
    return ERR_NONE;
}

/* The moves of what a new compensation undoes, and of the parent of a new step: both or none. */
static enum err_code move_others(struct pg *pg, struct ledger_admit *admit, struct err *err)
{
    enum state from;
    if (compensation_check(admit, err) || ask_parent(pg, admit, err) ||
        (admit->undoes && write_change(pg, admit->undoes, NULL, &from, err)))
        return err->code;
    if (!admit->parent)
        return ERR_NONE;
    enum err_code code = write_change(pg, admit->parent, NULL, &from, err);
    return admit->undoes ? whole_or_nothing(pg, code) : code;
}

static enum err_code insert_new(struct pg *pg, struct ledger_admit *admit, const struct admission_result *result,
                                struct err *err)
{
    if (result->verdict != VERDICT_NEW || admit->dry_run)
        return ERR_NONE;
    if (move_others(pg, admit, err))
        return err->code;
    enum err_code code = insert_as_decided(pg, admit, result->waits, err);
    return admit->undoes || admit->parent ? whole_or_nothing(pg, code) : code;
}

enum err_code pg_admit(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead)
{
    struct ledger_admit *admit = &request->admit;
    struct admission_facts facts = {0};
    struct err *err = &request->err;
    struct pg_ahead own;
    admit->result = (struct admission_result){0};
    if (ahead && ahead->inserted) { /* nothing was known, and it is there */
        admit->result.verdict = VERDICT_NEW;
        return insert_beginning(pg, admit, err);
    }
    if (!ahead) {
        if (ask_facts(pg, &admit->admission, &own, err))
            return err->code;
        ahead = &own;
    }
    if (gather(pg, &admit->admission, ahead, request->arena, &facts, err))
        return err->code;
    struct admission_result result = admission_decide(&admit->admission, &facts, admit->admission.op->created_ms);
    if (result.verdict == VERDICT_NEW && admit->admission.claims && judge_claims(pg, request, &result))
        return err->code;
    if (insert_new(pg, admit, &result, err))
        return err->code;
    /* Candidates were read without payload and into scratch memory: the one that is returned is read again, whole. */
    if (result.existing && result.existing != facts.by_key && result.existing != facts.named) {
        struct operation *whole;
        if (pg_operation(pg, NULL, result.existing->id, request->arena, &whole, err))
            return err->code;
        result.existing = whole;
    }
    admit->result = result;
    return ERR_NONE;
}

/* ---- transition ---- */

static const struct attempt *attempt_of_line(const struct ledger_transition *change, size_t line)
{
    return line < change->attempt_count ? &change->attempts[line] : NULL;
}

static const struct event *event_of_line(const struct ledger_transition *change, size_t line)
{
    return line < change->event_count ? &change->events[line] : NULL;
}

/* The row and the first line of history in one statement: compare-and-set by its WHERE. */
static int add_move(struct pg *pg, const struct ledger_transition *change, struct pg_ahead *ahead)
{
    const struct operation *op = change->op;
    bool noted = change->event_count > 0 || change->attempt_count > 0;
    struct pg_query row;
    struct pg_group *group = pg_group_of(pg, PG_GROUP_MOVES, op->tenant, &row);
    pg_put_text(&row, op->tenant);
    pg_put_text(&row, op->id);
    pg_put_text(&row, change->fence);
    pg_put_int(&row, change->unheld && !change->fence);
    if (noted)
        pg_put_int(&row, op->rev * LEDGER_CHANGE_EVENTS_MAX);
    else
        pg_put_no_int(&row);
    pg_put_life(&row, op);
    put_line(&row, event_of_line(change, 0), attempt_of_line(change, 0));
    ahead->at = pg_group_add(group, &row);
    ahead->rows = group->ticket;
    return row.partition;
}

/* The row as it is, locked. *from and what check needs. */
static enum err_code read_life(struct pg *pg, const struct ledger_transition *change, enum state *from, struct err *err)
{
    const PGresult *result;
    struct pg_query query;
    pg_query_in(&query, pg, PG_LIFE, change->op->tenant);
    pg_put_text(&query, change->op->tenant);
    pg_put_text(&query, change->op->id);
    if (pg_rows(&query, &result, err))
        return err->code;
    if (PQntuples(result) == 0)
        return transition_check(change, false, 0, true, err);
    struct pg_row row = pg_row(pg, result, 0, &pg->scratch);
    int state = pg_take_name(&row, NAME_STATE);
    if (row.strange)
        return pg_strange(pg, row.strange, err);
    *from = (enum state)state;
    int64_t rev = pg_take_int(&row);
    return transition_check(change, true, rev, transition_owner_fits(change, pg_take_text(&row)), err);
}

/* Nothing was written: says why, or, when the row has come to fit meanwhile, has it tried again. */
static enum err_code explain(struct pg *pg, const struct ledger_transition *change, struct err *err)
{
    enum state from;
    if (read_life(pg, change, &from, err))
        return err->code;
    pg->fault = PG_AGAIN;
    return err_set(err, ERR_UNAVAILABLE, "operation %s was changed at the same time", change->op->id);
}

/* Events and attempts side by side: mostly one of each, in one line, which came with the move. */
static enum err_code write_rest(struct pg *pg, const struct ledger_transition *change, struct err *err)
{
    size_t lines = change->event_count > change->attempt_count ? change->event_count : change->attempt_count;
    for (size_t i = 1; i < lines; i++)
        if (insert_history(pg, change->op, i, event_of_line(change, i), attempt_of_line(change, i), err))
            return err->code;
    for (size_t i = 0; i < change->incident_count; i++) {
        struct pg_query query;
        pg_query(&query, pg, PG_INSERT_INCIDENT);
        pg_put_record(&query, RECORD_INCIDENT, &change->incidents[i]);
        if (pg_write(&query, err))
            return err->code;
    }
    return ERR_NONE;
}

static void note_news(struct pg *pg, const char *id)
{
    if (pg->mute)
        return;
    if (pg->news_count == pg->news_room) {
        pg->news_room = pg->news_room ? 2 * pg->news_room : 64;
        pg->news = mem_grow(pg->news, pg->news_room * sizeof *pg->news);
    }
    memcpy(pg->news[pg->news_count++], id, OPERATION_ID_SIZE);
}

/* One operation's row, history, incidents and claims. ahead: of a move that was sent with others, or NULL. The events
 * tell the former state; without any it is read first. */
static enum err_code write_change(struct pg *pg, struct ledger_transition *change, const struct pg_ahead *ahead,
                                  enum state *from, struct err *err)
{
    const struct operation *op = change->op;
    struct pg_ahead own = nothing_asked;
    struct pg_row row;
    bool moved;
    *from = change->event_count > 0 ? change->events[0].from : op->state;
    if (change->seen && pg_claim_unchanged(pg, change, err))
        return err->code;
    if (!ahead) {
        ahead = &own;
        if (change->event_count == 0 && read_life(pg, change, from, err))
            return err->code;
        if (pg_group_send(pg, PG_GROUP_MOVES, add_move(pg, change, &own), err))
            return err->code;
    }
    if (pg_group_row(pg, ahead->rows, ahead->at, op->id, &row, &moved, err))
        return err->code;
    if (!moved)
        return explain(pg, change, err);
    pg->moved[*from]--;
    pg->moved[op->state]++;
    if (pg_take_int(&row))
        note_news(pg, op->id);
    if (write_rest(pg, change, err))
        return err->code;
    return op->claims.p ? pg_claim_moved(pg, *from, change, err) : ERR_NONE;
}

/* A step, or what was undone of one, has moved: its parent is told. */
static enum err_code tell_parent(struct pg *pg, struct ledger_request *request, const struct operation *step)
{
    struct ledger_transition *change = &request->transition;
    struct err *err = &request->err;
    struct operation *parent;
    struct settlement settlement;
    enum state from;
    if (pg_operation(pg, step->tenant, step->parent, &pg->scratch, &parent, err) || !parent ||
        !parent_told(change, step, parent, &pg->scratch, &settlement))
        return err->code;
    if (write_change(pg, &settlement.change, NULL, &from, err))
        return err->code;
    settlement_wakes(&settlement, change);
    change->parent = settlement_tell(&settlement, request->arena);
    return ERR_NONE;
}

/* A compensation has ended: what it undoes moves with it. */
static enum err_code settle(struct pg *pg, struct ledger_request *request)
{
    struct ledger_transition *change = &request->transition;
    struct err *err = &request->err;
    struct operation *original;
    struct settlement settlement;
    enum state from;
    if (pg_operation(pg, change->op->tenant, change->op->compensates, &pg->scratch, &original, err) || !original ||
        !compensation_settles(change, original, &pg->scratch, &settlement))
        return err->code;
    if (write_change(pg, &settlement.change, NULL, &from, err))
        return err->code;
    settlement_wakes(&settlement, change);
    change->undone = settlement_tell(&settlement, request->arena);
    return steps_tell(from, &settlement.op) ? tell_parent(pg, request, &settlement.op) : ERR_NONE;
}

enum err_code pg_transition(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead)
{
    struct ledger_transition *change = &request->transition;
    struct err *err = &request->err;
    const char *source = NULL;
    enum state from;
    if (change->inbound && pg_inbound_waits(pg, change->inbound, &source, err))
        return err->code;
    if (write_change(pg, change, ahead, &from, err))
        return err->code;
    if (playbook_settles(from, change->op) && whole_or_nothing(pg, settle(pg, request)))
        return err->code;
    if (steps_tell(from, change->op) && whole_or_nothing(pg, tell_parent(pg, request, change->op)))
        return err->code;
    return change->inbound ? whole_or_nothing(pg, pg_inbound_apply(pg, change, source, err)) : ERR_NONE;
}

/* ---- claims ---- */

static enum err_code take_rows(struct pg *pg, struct pg_query *query, struct ledger_request *request)
{
    struct ledger_claim *claim = &request->claim;
    const PGresult *rows;
    if (pg_rows(query, &rows, &request->err))
        return request->err.code;
    int count = PQntuples(rows);
    for (int i = 0; i < count && claim->count < claim->limit; i++)
        if (pg_take_operation(pg, rows, i, request->arena, true, &claim->ops[claim->count++], &request->err))
            return request->err.code;
    return ERR_NONE;
}

static enum err_code find_claims(struct pg *pg, struct ledger_request *request)
{
    struct ledger_claim *claim = &request->claim;
    struct pg_query query;
    if (claim->foreign) {
        pg_query(&query, pg, PG_FOREIGN);
        pg_put_text(&query, claim->owner);
        pg_put_int(&query, (int64_t)claim->limit);
        return take_rows(pg, &query, request);
    }
    for (int open = 1; open >= 0 && claim->count < claim->limit; open--) {
        pg_query(&query, pg, PG_DUE);
        pg_put_int(&query, open);
        pg_put_moment(&query, claim->now_ms);
        pg_put_text(&query, claim->owner);
        pg_put_int(&query, (int64_t)(claim->limit - claim->count));
        if (take_rows(pg, &query, request))
            return request->err.code;
    }
    return ERR_NONE;
}

static enum err_code write_claims(struct pg *pg, struct ledger_request *request)
{
    struct ledger_claim *claim = &request->claim;
    const char *owner = arena_copy_text(request->arena, claim->owner);
    int64_t until = claim->now_ms + claim->lease_ms;
    for (size_t i = 0; i < claim->count; i++) {
        struct operation *op = claim->ops[i];
        struct pg_query query;
        claim->former_owners[i] = op->owner;
        op->owner = owner;
        op->lease_until_ms = until;
        op->wake_at_ms = ledger_renewal_ms(claim);
        pg_query_in(&query, pg, PG_CLAIM, op->tenant);
        pg_put_text(&query, op->tenant);
        pg_put_text(&query, op->id);
        pg_put_text(&query, owner);
        pg_put_moment(&query, until);
        pg_put_moment(&query, op->wake_at_ms);
        if (pg_write(&query, &request->err))
            return request->err.code;
    }
    return ERR_NONE;
}

static enum err_code earliest(struct pg *pg, struct pg_query *query, int64_t *at, struct err *err)
{
    const PGresult *result;
    if (pg_rows(query, &result, err))
        return err->code;
    struct pg_row row = pg_row(pg, result, 0, &pg->scratch);
    if (PQntuples(result) == 0 || pg_take_null(&row))
        return ERR_NONE;
    int64_t other = pg_take_moment(&row);
    if (other > 0 && (*at == 0 || other < *at))
        *at = other;
    return ERR_NONE;
}

/* The earliest time after which another claim could find something: a due row that did not fit, the end of a lease that
 * was in the way, or the next wake_at. */
static enum err_code next_wake(struct pg *pg, struct ledger_request *request)
{
    struct ledger_claim *claim = &request->claim;
    bool full = claim->count == claim->limit;
    for (int open = 1; open >= 0; open--) {
        struct pg_query query;
        pg_query(&query, pg, PG_NEXT_WAKE);
        pg_put_int(&query, open);
        pg_put_moment(&query, full || claim->foreign ? 0 : claim->now_ms);
        if (earliest(pg, &query, &claim->next_wake_ms, &request->err))
            return request->err.code;
        if (claim->foreign)
            continue;
        pg_query(&query, pg, PG_HELD);
        pg_put_int(&query, open);
        pg_put_moment(&query, claim->now_ms);
        pg_put_text(&query, claim->owner);
        if (earliest(pg, &query, &claim->next_wake_ms, &request->err))
            return request->err.code;
    }
    return ERR_NONE;
}

enum err_code pg_claim(struct pg *pg, struct ledger_request *request)
{
    struct ledger_claim *claim = &request->claim;
    if (claim->limit > LEDGER_CLAIM_MAX)
        claim->limit = LEDGER_CLAIM_MAX;
    claim->ops = arena_alloc(request->arena, (claim->limit + 1) * sizeof *claim->ops);
    claim->former_owners = arena_alloc(request->arena, (claim->limit + 1) * sizeof *claim->former_owners);
    claim->count = 0;
    claim->next_wake_ms = 0;
    if (find_claims(pg, request) || write_claims(pg, request) || next_wake(pg, request))
        return request->err.code;
    return ERR_NONE;
}

/* What it has become is read behind the mark, in the same transaction: a move that the mark came too late for is in it.
 */
enum err_code pg_watch(struct pg *pg, struct ledger_request *request)
{
    struct pg_query query;
    pg_query_in(&query, pg, PG_WATCH, request->get.tenant);
    pg_put_text(&query, request->get.tenant);
    pg_put_text(&query, request->get.operation);
    return pg_write(&query, &request->err) ? request->err.code : pg_get(pg, request);
}

enum err_code pg_release_claims(struct pg *pg, struct ledger_request *request)
{
    struct ledger_release *release = &request->release;
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_RELEASE);
    pg_put_text(&query, release->owner);
    pg_put_moment(&query, release->now_ms);
    if (pg_ask(&query, &request->err) || pg_answer(pg, query.ticket, &result, &request->err))
        return request->err.code;
    release->count = pg_written(result);
    return ERR_NONE;
}

/* ---- marks, expiry ---- */

static int add_mark(struct pg *pg, const struct ledger_mark *mark)
{
    struct pg_query row;
    struct pg_group *group = pg_group_of(pg, PG_GROUP_MARKS, mark->tenant, &row);
    pg_put_text(&row, mark->operation);
    pg_put_int(&row, mark->delivered);
    pg_put_int(&row, mark->orphaned);
    pg_put_int(&row, mark->not_orphaned);
    pg_group_add(group, &row);
    return row.partition;
}

enum err_code pg_mark(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead)
{
    return ahead ? ERR_NONE : pg_group_send(pg, PG_GROUP_MARKS, add_mark(pg, &request->mark), &request->err);
}

enum err_code pg_expire(struct pg *pg, struct ledger_request *request)
{
    static const enum pg_statement deletes[] = {PG_DELETE_HISTORY, PG_DELETE_OPERATION};
    const struct ledger_expire *expire = &request->expire;
    struct err *err = &request->err;
    struct operation *op;
    struct pg_query query;
    if (pg_operation(pg, NULL, expire->operation, &pg->scratch, &op, err) ||
        (op && pg_operation(pg, op->tenant, op->id, &pg->scratch, &op, err)) || expire_check(expire, op, err))
        return err->code;
    enum state parent;
    bool found;
    if (op->parent && (read_state(pg, op->parent, &found, &parent, err) || (found && parent_lets_go(op, parent, err))))
        return err->code;
    struct tombstone stone = operation_tombstone(op, expire->now_ms);
    pg_query(&query, pg, PG_INSERT_TOMBSTONE);
    pg_put_record(&query, RECORD_TOMBSTONE, &stone);
    if (pg_write(&query, err))
        return err->code;
    for (size_t i = 0; i < sizeof deletes / sizeof *deletes; i++) {
        pg_query_in(&query, pg, deletes[i], op->tenant);
        pg_put_text(&query, op->tenant);
        pg_put_text(&query, op->id);
        if (pg_write(&query, err))
            return err->code;
    }
    return ERR_NONE;
}

/* ---- incidents, tokens ---- */

enum err_code pg_acknowledge(struct pg *pg, struct ledger_request *request)
{
    struct ledger_acknowledge *acknowledge = &request->acknowledge;
    struct err *err = &request->err;
    const PGresult *result;
    struct incident incident = {0};
    struct pg_query query;
    pg_query(&query, pg, PG_INCIDENT);
    pg_put_text(&query, acknowledge->incident);
    if (pg_rows(&query, &result, err))
        return err->code;
    bool found = PQntuples(result) > 0;
    struct pg_row row = pg_row(pg, result, 0, request->arena);
    if (found && pg_take_record(&row, RECORD_INCIDENT, true, &incident, sizeof incident, err))
        return err->code;
    if (!found || (acknowledge->tenant && !text_equal(acknowledge->tenant, incident.tenant)))
        return err_set(err, ERR_NOT_FOUND, "there is no incident %s", acknowledge->incident);
    if (incident.acknowledged_ms == 0) {
        incident.acknowledged_by = arena_copy_text(request->arena, acknowledge->by);
        incident.acknowledged_ms = acknowledge->now_ms;
        pg_query(&query, pg, PG_ACKNOWLEDGE);
        pg_put_text(&query, acknowledge->incident);
        pg_put_text(&query, acknowledge->by);
        pg_put_int(&query, acknowledge->now_ms);
        if (pg_write(&query, err))
            return err->code;
    }
    acknowledge->result = incident;
    return ERR_NONE;
}

enum err_code pg_token_add(struct pg *pg, struct ledger_request *request)
{
    struct pg_query query;
    pg_query(&query, pg, PG_INSERT_TOKEN);
    pg_put_record(&query, RECORD_TOKEN, &request->token.token);
    return pg_write(&query, &request->err);
}

enum err_code pg_token_revoke(struct pg *pg, struct ledger_request *request)
{
    struct token *wanted = &request->token.token, stored;
    struct err *err = &request->err;
    const PGresult *result;
    struct pg_query query;
    pg_query(&query, pg, PG_TOKEN_BY_ID);
    pg_put_text(&query, wanted->id);
    if (pg_rows(&query, &result, err))
        return err->code;
    if (PQntuples(result) == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no token %s", wanted->id);
    struct pg_row row = pg_row(pg, result, 0, request->arena);
    if (pg_take_record(&row, RECORD_TOKEN, true, &stored, sizeof stored, err))
        return err->code;
    if (stored.revoked_ms == 0) {
        stored.revoked_ms = wanted->revoked_ms;
        pg_query(&query, pg, PG_REVOKE_TOKEN);
        pg_put_text(&query, wanted->id);
        pg_put_int(&query, wanted->revoked_ms);
        if (pg_write(&query, err))
            return err->code;
    }
    *wanted = stored;
    return ERR_NONE;
}

/* ---- ahead of their turn ---- */

bool pg_goes_ahead(const struct ledger_request *request)
{
    const struct ledger_transition *change = &request->transition;
    if (request->command == LEDGER_ADMIT)
        return !request->admit.undoes && !request->admit.parent && !request->admit.admission.claims;
    if (request->command == LEDGER_TRANSITION)
        return change->event_count > 0 && !change->inbound && !change->seen && !change->op->claims.p &&
               !change->op->compensates && !change->op->parent;
    return request->command == LEDGER_MARK;
}

/* Whether an admission of which the ledger knows nothing that matters is let in. What undoes another operation or is a
 * step of it needs more than that. */
static bool new_if_unknown(struct ledger_admit *admit)
{
    static const struct admission_facts nothing = {0};
    const struct operation *op = admit->admission.op;
    return !admit->dry_run && !op->compensates && !op->parent &&
           admission_decide(&admit->admission, &nothing, op->created_ms).verdict == VERDICT_NEW;
}

const char *pg_ahead_changes(const struct ledger_request *request)
{
    if (request->command == LEDGER_ADMIT)
        return NULL;
    return request->command == LEDGER_MARK ? request->mark.operation : request->transition.op->id;
}

size_t pg_ahead_bytes(const struct ledger_request *request)
{
    if (request->command == LEDGER_MARK)
        return 0;
    const struct operation *op =
        request->command == LEDGER_ADMIT ? request->admit.admission.op : request->transition.op;
    return op->arguments.n + op->result.n + op->error.n;
}

void pg_ahead(struct pg *pg, struct ledger_request *request, struct pg_ahead *ahead)
{
    *ahead = nothing_asked;
    if (request->command == LEDGER_MARK)
        add_mark(pg, &request->mark);
    else if (request->command == LEDGER_TRANSITION)
        add_move(pg, &request->transition, ahead);
    else if (new_if_unknown(&request->admit))
        add_admission(pg, &request->admit, ahead);
}

bool pg_minds_itself(struct ledger_request *request)
{
    struct ledger_admit *admit = &request->admit;
    if (request->command != LEDGER_ADMIT)
        return pg_goes_ahead(request);
    return pg_goes_ahead(request) && !admit->admission.hold_in_doubt && new_if_unknown(admit);
}

/* Of admissions that are not new for certain: what is known. */
enum err_code pg_ahead_again(struct pg *pg, struct ledger_request *request, struct pg_ahead *ahead, struct err *err)
{
    struct pg_row row;
    if (request->command != LEDGER_ADMIT)
        return ERR_NONE;
    const struct admission *admission = &request->admit.admission;
    if (ahead->rows >= 0 && pg_group_row(pg, ahead->rows, ahead->at, admission->op->id, &row, &ahead->inserted, err))
        return err->code;
    if (ahead->inserted)
        return ERR_NONE;
    if (pg->beside) {
        pg->fault = PG_LATER;
        return err_set(err, ERR_UNAVAILABLE, "an admission that is not new, beside another batch");
    }
    return ask_facts(pg, admission, ahead, err);
}

bool pg_admissions_meet(const struct ledger_request *first, const struct ledger_request *second)
{
    const struct admission *a = &first->admit.admission, *b = &second->admit.admission;
    if (digest_equal(&a->op->key_hash, &b->op->key_hash))
        return true;
    if (b->hold_in_doubt && text_equal(a->op->tool, b->op->tool) &&
        operation_in_doubt(a->op->state, a->op->orphaned, a->op->unknown_since_ms))
        return true;
    if (b->op->repeat_of && strcmp(b->op->repeat_of, a->op->id) == 0)
        return true;
    return admission_wants_repeats(b) && operation_repeat_hash(a->op) == operation_repeat_hash(b->op);
}
