/* The ledger in memory: the same answers as the SQLite one (test/contract), for tests and the simulator.
 * Single-threaded; commands wait until the next poll, so that callers meet the same order of things as with a real
 * ledger. Rows lie in an array ordered by id; sizes are those of a test, so filters walk it, and claims an array of the
 * times at which rows are due. */
#include "ledger/ledger.h"

#include "base/map.h"
#include "base/mem.h"
#include "core/playbook.h"
#include "core/steps.h"
#include "ledger/compensation.h"
#include "ledger/mem_claims.h"
#include "ledger/mem_inbox.h"

#include <stdlib.h>

#define BUCKETS           1024 /* power of two */
#define CALLERS           64   /* power of two */
#define GET_INCIDENTS_MAX 16

struct mem_row {
    char id[OPERATION_ID_SIZE];
    size_t due;           /* its place in the ledger's due_ms and due_rows */
    struct operation *op; /* in life */
    struct arena life;    /* of op */
    struct arena spare;   /* in which the next transition makes op anew */
    struct arena history; /* texts of events and attempts */
    struct event *events;
    struct attempt *attempts;
    size_t event_count, event_room, attempt_count;
    bool watched;
    struct mem_row *next_key;  /* same bucket */
    struct mem_row *next_call; /* same bucket, newer first */
};

struct mem_stone {
    struct tombstone tombstone;
    struct mem_stone *next_key;
};

/* Rows of callers whose names fall into the same bucket, by id. */
struct mem_callers {
    struct mem_row **rows;
    size_t count, room;
};

struct mem_ledger {
    struct ledger base;
    struct ledger_request *waiting, **last;
    size_t waiting_count;
    struct ledger_request *refused;   /* found the queue full: answered at the next poll */
    struct arena arena;               /* tombstones, incidents, tokens */
    char (*moved)[OPERATION_ID_SIZE]; /* watched ones, to be told with the next poll */
    size_t moved_count, moved_room;
    struct mem_row **rows; /* by id */
    size_t row_count, row_room;
    /* When each row is due, and which row that is: in no order, and apart, since most looks are at the times alone. */
    int64_t *due_ms;
    struct mem_row **due_rows;
    size_t due_ms_room, due_rows_room;
    struct map by_id, stones_by_id; /* → mem_row, tombstone */
    struct mem_row *by_key[BUCKETS], *by_call[BUCKETS];
    struct mem_callers callers[CALLERS];
    struct mem_stone *stones[BUCKETS];
    struct incident *incidents; /* by id */
    size_t incident_count, incident_room;
    struct token *tokens; /* by id */
    size_t token_count, token_room;
    int64_t by_state[STATE_COUNT];
    int64_t commits, commands;
    struct mem_inbox inbox;
    struct mem_claims claims;
};

static size_t bucket(const struct digest *digest)
{
    return (size_t)((uint64_t)digest_int64(digest) & (BUCKETS - 1));
}

/* Room for one more item of size bytes in an array. */
static void *room_for(void *items, size_t count, size_t *room, size_t bytes)
{
    if (count < *room)
        return items;
    *room = *room ? *room * 2 : 16;
    return mem_grow(items, *room * bytes);
}

/* ---- rows ---- */

/* First position whose id is not below. */
static size_t position(const struct mem_ledger *ledger, const char *id)
{
    size_t low = 0, high = ledger->row_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(ledger->rows[middle]->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Among equals the SQLite ledger goes by place, that is by the time in the id and then by its last characters
 * (operation_place). The same here, so that a simulated run is the same on both. */
static int compare_age(const char *a, const char *b)
{
    enum { TIME = 3, TIME_CHARS = 10, LOW_CHARS = 3 };
    int order = strncmp(a + TIME, b + TIME, TIME_CHARS);
    if (order == 0)
        order = strcmp(a + OPERATION_ID_SIZE - 1 - LOW_CHARS, b + OPERATION_ID_SIZE - 1 - LOW_CHARS);
    return order ? order : strcmp(a, b);
}

static struct mem_row *find_row(const struct mem_ledger *ledger, const char *id)
{
    return map_get(&ledger->by_id, id);
}

static void row_free(struct mem_row *row)
{
    arena_release(&row->life);
    arena_release(&row->spare);
    arena_release(&row->history);
    free(row->events);
    free(row->attempts);
    free(row);
}

static void set_operation(struct mem_ledger *ledger, struct mem_row *row, const struct operation *op)
{
    struct arena life = row->spare;
    arena_reset(&life);
    row->op = operation_copy(&life, op);
    row->spare = row->life;
    row->life = life;
    ledger->due_ms[row->due] = op->wake_at_ms;
}

static void add_event(struct mem_row *row, const struct event *event)
{
    row->events = room_for(row->events, row->event_count, &row->event_room, sizeof *row->events);
    struct event *copy = &row->events[row->event_count++];
    *copy = *event;
    copy->actor = arena_copy_text(&row->history, event->actor);
    copy->note = arena_copy_text(&row->history, event->note);
}

static void set_attempt(struct mem_row *row, const struct attempt *attempt)
{
    size_t at = 0;
    while (at < row->attempt_count && strcmp(row->attempts[at].id, attempt->id) != 0)
        at++;
    if (at == row->attempt_count)
        row->attempts = mem_grow(row->attempts, ++row->attempt_count * sizeof *row->attempts);
    row->attempts[at] = *attempt;
    row->attempts[at].provider_request_id = arena_copy_text(&row->history, attempt->provider_request_id);
    row->attempts[at].detail = arena_copy_text(&row->history, attempt->detail);
}

static uint32_t mixed(uint32_t hash, const char *text) /* FNV-1a */
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static struct mem_callers *callers_of(struct mem_ledger *ledger, const struct operation *op)
{
    uint32_t hash = mixed(mixed(mixed(2166136261u, op->tool), op->principal), op->tenant);
    return &ledger->callers[(hash ^ hash >> 16) & (CALLERS - 1)];
}

static void add_to_callers(struct mem_ledger *ledger, struct mem_row *row)
{
    struct mem_callers *callers = callers_of(ledger, row->op);
    callers->rows = room_for(callers->rows, callers->count, &callers->room, sizeof *callers->rows);
    size_t at = callers->count++;
    for (; at > 0 && strcmp(callers->rows[at - 1]->id, row->id) > 0; at--)
        callers->rows[at] = callers->rows[at - 1];
    callers->rows[at] = row;
}

static void remove_from_callers(struct mem_ledger *ledger, const struct mem_row *row)
{
    struct mem_callers *callers = callers_of(ledger, row->op);
    size_t at = 0;
    while (callers->rows[at] != row)
        at++;
    callers->count--;
    memmove(&callers->rows[at], &callers->rows[at + 1], (callers->count - at) * sizeof *callers->rows);
}

static void add_due(struct mem_ledger *ledger, struct mem_row *row)
{
    size_t count = ledger->row_count;
    ledger->due_ms = room_for(ledger->due_ms, count, &ledger->due_ms_room, sizeof *ledger->due_ms);
    ledger->due_rows = room_for(ledger->due_rows, count, &ledger->due_rows_room, sizeof *ledger->due_rows);
    ledger->due_rows[count] = row;
    row->due = count;
}

/* The last one takes its place. */
static void remove_due(struct mem_ledger *ledger, const struct mem_row *row)
{
    size_t last = ledger->row_count - 1;
    ledger->due_ms[row->due] = ledger->due_ms[last];
    ledger->due_rows[row->due] = ledger->due_rows[last];
    ledger->due_rows[row->due]->due = row->due;
}

static void insert_row(struct mem_ledger *ledger, const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op;
    struct mem_row *row = mem_zero(sizeof *row);
    memcpy(row->id, op->id, sizeof row->id);
    add_due(ledger, row);
    set_operation(ledger, row, op);
    map_put(&ledger->by_id, row->id, row);
    add_to_callers(ledger, row);
    size_t at = position(ledger, op->id);
    ledger->rows = room_for(ledger->rows, ledger->row_count, &ledger->row_room, sizeof *ledger->rows);
    memmove(&ledger->rows[at + 1], &ledger->rows[at], (ledger->row_count - at) * sizeof *ledger->rows);
    ledger->rows[at] = row;
    ledger->row_count++;
    row->next_key = ledger->by_key[bucket(&op->key_hash)];
    ledger->by_key[bucket(&op->key_hash)] = row;
    struct mem_row **call = &ledger->by_call[bucket(&op->fingerprint)];
    while (*call && compare_age((*call)->op->id, op->id) > 0)
        call = &(*call)->next_call;
    row->next_call = *call;
    *call = row;
    add_event(row, &admit->event);
    if (admit->attempt)
        set_attempt(row, admit->attempt);
    ledger->by_state[op->state]++;
}

static void remove_row(struct mem_ledger *ledger, struct mem_row *row)
{
    struct mem_row **link = &ledger->by_key[bucket(&row->op->key_hash)];
    while (*link != row)
        link = &(*link)->next_key;
    *link = row->next_key;
    link = &ledger->by_call[bucket(&row->op->fingerprint)];
    while (*link != row)
        link = &(*link)->next_call;
    *link = row->next_call;
    remove_from_callers(ledger, row);
    map_remove(&ledger->by_id, row->id);
    remove_due(ledger, row);
    size_t at = position(ledger, row->id);
    ledger->row_count--;
    memmove(&ledger->rows[at], &ledger->rows[at + 1], (ledger->row_count - at) * sizeof *ledger->rows);
    row_free(row);
}

static struct operation *copy_out(struct arena *arena, const struct operation *op, bool payload)
{
    struct operation shallow = *op;
    if (!payload)
        shallow.arguments = shallow.result = shallow.error = STR_NONE;
    return operation_copy(arena, &shallow);
}

static struct tombstone *copy_stone(struct arena *arena, const struct tombstone *stone)
{
    struct tombstone *copy = arena_alloc(arena, sizeof *copy);
    *copy = *stone;
    copy->tenant = arena_copy_text(arena, stone->tenant);
    copy->tool = arena_copy_text(arena, stone->tool);
    copy->principal = arena_copy_text(arena, stone->principal);
    copy->external_id = arena_copy_text(arena, stone->external_id);
    return copy;
}

/* ---- admission ---- */

/* The version that answers for the key: a row, or a tombstone. */
static void answers_by_key(const struct mem_ledger *ledger, const struct digest *key_hash, const char *tenant,
                           const char *tool, const struct operation **op, const struct tombstone **tombstone)
{
    *op = NULL;
    *tombstone = NULL;
    for (const struct mem_row *row = ledger->by_key[bucket(key_hash)]; row; row = row->next_key)
        if (digest_equal(&row->op->key_hash, key_hash) && admission_answers(row->op, *op))
            *op = row->op;
    for (const struct mem_stone *stone = ledger->stones[bucket(key_hash)]; stone; stone = stone->next_key)
        if (digest_equal(&stone->tombstone.key_hash, key_hash) &&
            admission_stone_answers(&stone->tombstone, *tombstone, *op))
            *tombstone = &stone->tombstone;
    if (*tombstone)
        *op = NULL;
    if (*op && !(text_equal((*op)->tenant, tenant) && text_equal((*op)->tool, tool)))
        *op = NULL;
    if (*tombstone && !(text_equal((*tombstone)->tenant, tenant) && text_equal((*tombstone)->tool, tool)))
        *tombstone = NULL;
}

static bool same_caller(const struct operation *a, const struct operation *b)
{
    return text_equal(a->tool, b->tool) && text_equal(a->principal, b->principal) && text_equal(a->tenant, b->tenant);
}

static const struct tombstone *find_stone(const struct mem_ledger *ledger, const char *operation)
{
    return map_get(&ledger->stones_by_id, operation);
}

static void gather(struct mem_ledger *ledger, const struct admission *admission, struct admission_facts *facts)
{
    const struct operation *op = admission->op;
    answers_by_key(ledger, &op->key_hash, op->tenant, op->tool, &facts->by_key, &facts->tombstone);
    const struct mem_row *named = op->repeat_of ? find_row(ledger, op->repeat_of) : NULL;
    const struct tombstone *stone = op->repeat_of && !named ? find_stone(ledger, op->repeat_of) : NULL;
    if (named && text_equal(named->op->tenant, op->tenant))
        facts->named = named->op;
    if (stone && text_equal(stone->tenant, op->tenant))
        facts->named_stone = stone;
    if (admission_wants_repeats(admission)) {
        const struct mem_row *row = ledger->by_call[bucket(&op->fingerprint)];
        for (; row && facts->repeat_count < ADMISSION_CANDIDATES_MAX; row = row->next_call)
            if (digest_equal(&row->op->fingerprint, &op->fingerprint) && same_caller(row->op, op) &&
                admission_joins(admission, row->op, op->created_ms))
                facts->repeats[facts->repeat_count++] = row->op;
    }
    if (!admission->hold_in_doubt)
        return;
    const struct mem_callers *callers = callers_of(ledger, op);
    for (size_t i = 0; i < callers->count && facts->in_doubt_count < ADMISSION_CANDIDATES_MAX; i++)
        if (admission_doubts(admission, callers->rows[i]->op) && same_caller(callers->rows[i]->op, op))
            facts->in_doubt[facts->in_doubt_count++] = callers->rows[i]->op;
}

/* A new call that claims something: whether it gets it. */
static enum err_code judge_claims(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_admit *in = &request->admit;
    struct claims_facts facts;
    if (claim_facts(&ledger->claims.base, &in->admission, request->arena, &facts, &request->err))
        return request->err.code;
    admission_claim(&in->admission, &facts, &in->result);
    return ERR_NONE;
}

static void insert_new(struct mem_ledger *ledger, const struct ledger_admit *in)
{
    struct ledger_admit waiting;
    struct operation op;
    if (in->result.waits)
        claim_waiting(in, &waiting, &op);
    insert_row(ledger, in->result.waits ? &waiting : in);
}

/* The moves of what a new compensation undoes, and of the parent of a new step: both or none. */
static enum err_code move_others(struct mem_ledger *ledger, struct ledger_request *request);

static enum err_code admit(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_admit *in = &request->admit;
    struct operation *op = in->admission.op;
    struct admission_facts facts = {0};
    gather(ledger, &in->admission, &facts);
    in->result = admission_decide(&in->admission, &facts, op->created_ms);
    if (in->result.existing)
        in->result.existing = operation_copy(request->arena, in->result.existing);
    if (in->result.tombstone)
        in->result.tombstone = copy_stone(request->arena, in->result.tombstone);
    op->previous = arena_copy_text(request->arena, op->previous); /* may point into the row that it names */
    if (in->result.verdict == VERDICT_NEW && in->admission.claims && judge_claims(ledger, request))
        return request->err.code;
    if (in->result.verdict != VERDICT_NEW || in->dry_run)
        return ERR_NONE;
    if (find_row(ledger, op->id))
        return err_set(&request->err, ERR_INTERNAL, "operation %s exists already", op->id);
    if (compensation_check(in, &request->err) || move_others(ledger, request))
        return request->err.code;
    insert_new(ledger, in);
    if (!op->claims.p)
        return ERR_NONE;
    return claim_admitted(&ledger->claims.base, &in->admission, in->result.waits, request->arena, &request->err);
}

/* ---- transition ---- */

static enum err_code check_change(const struct ledger_transition *change, const struct mem_row *row, struct err *err)
{
    const struct operation *op = change->op;
    if (!row)
        return err_set(err, ERR_NOT_FOUND, "there is no operation %s", op->id);
    if (row->op->rev != op->rev - 1)
        return err_set(err, ERR_STALE, "%s is at version %lld, the change was made for version %lld", op->id,
                       (long long)row->op->rev, (long long)op->rev - 1);
    if (change->fence && !text_equal(change->fence, row->op->owner))
        return err_set(err, ERR_STALE, "%s is no longer held by %s", op->id, change->fence);
    if (change->unheld && row->op->owner)
        return err_set(err, ERR_STALE, "%s is held by %s now", op->id, row->op->owner);
    return ERR_NONE;
}

/* The life fields of `to` onto the identity of the row. */
static struct operation with_life(const struct operation *row, const struct operation *to)
{
    struct operation op = *to;
    bool orphaned = row->orphaned && !state_terminal(to->state);
    op.tenant = row->tenant, op.tool = row->tool, op.principal = row->principal, op.key = row->key;
    op.key_hash = row->key_hash, op.base_hash = row->base_hash, op.fingerprint = row->fingerprint;
    op.key_source = row->key_source, op.key_version = row->key_version;
    op.canonical_version = row->canonical_version, op.policy_version = row->policy_version;
    op.workflow = row->workflow, op.run = row->run, op.step = row->step, op.session = row->session;
    op.call = row->call, op.trace = row->trace, op.repeat_of = row->repeat_of;
    op.distinct_from = row->distinct_from, op.previous = row->previous, op.provider_key = row->provider_key;
    op.arguments = row->arguments, op.created_ms = row->created_ms, op.not_before_ms = row->not_before_ms;
    op.claims = row->claims, op.parent = row->parent;
    op.compensates = row->compensates, op.playbook = row->playbook, op.escalation = row->escalation;
    op.delivered = row->delivered, op.orphaned = orphaned;
    return op;
}

static void add_incident(struct mem_ledger *ledger, const struct incident *incident)
{
    ledger->incidents =
        room_for(ledger->incidents, ledger->incident_count, &ledger->incident_room, sizeof *ledger->incidents);
    size_t at = ledger->incident_count++;
    for (; at > 0 && strcmp(ledger->incidents[at - 1].id, incident->id) > 0; at--)
        ledger->incidents[at] = ledger->incidents[at - 1];
    struct incident *copy = &ledger->incidents[at];
    *copy = *incident;
    copy->tenant = arena_copy_text(&ledger->arena, incident->tenant);
    copy->operation = arena_copy_text(&ledger->arena, incident->operation);
    copy->note = arena_copy_text(&ledger->arena, incident->note);
    copy->acknowledged_by = arena_copy_text(&ledger->arena, incident->acknowledged_by);
}

static enum err_code move_claims(struct mem_ledger *ledger, struct ledger_request *request,
                                 struct ledger_transition *change, const struct mem_row *row, enum state from)
{
    /* A copy: it may be woken itself. */
    const struct operation *op = operation_copy(request->arena, row->op);
    enum err_code code = claim_moved(&ledger->claims.base, from, op, request->arena, &request->err);
    change->wake_ms = ledger->claims.base.woken_ms;
    return code;
}

static void note_moved(struct mem_ledger *ledger, const char *id)
{
    if (ledger->moved_count == ledger->moved_room) {
        ledger->moved_room = ledger->moved_room ? 2 * ledger->moved_room : 16;
        ledger->moved = mem_grow(ledger->moved, ledger->moved_room * sizeof *ledger->moved);
    }
    memcpy(ledger->moved[ledger->moved_count++], id, OPERATION_ID_SIZE);
}

/* One operation's row, history, incidents and claims. */
static enum err_code apply(struct mem_ledger *ledger, struct ledger_request *request, struct ledger_transition *change,
                           struct mem_row *row)
{
    struct operation op = with_life(row->op, change->op);
    enum state from = row->op->state;
    ledger->by_state[row->op->state]--;
    ledger->by_state[op.state]++;
    set_operation(ledger, row, &op);
    for (size_t i = 0; i < change->attempt_count; i++)
        set_attempt(row, &change->attempts[i]);
    for (size_t i = 0; i < change->event_count; i++)
        add_event(row, &change->events[i]);
    for (size_t i = 0; i < change->incident_count; i++)
        add_incident(ledger, &change->incidents[i]);
    if (row->watched)
        note_moved(ledger, row->id);
    return row->op->claims.p ? move_claims(ledger, request, change, row, from) : ERR_NONE;
}

static enum err_code move_others(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_admit *in = &request->admit;
    struct err *err = &request->err;
    struct mem_row *undone = in->undoes ? find_row(ledger, in->undoes->op->id) : NULL;
    struct mem_row *parent = in->parent ? find_row(ledger, in->parent->op->id) : NULL;
    const char *asks = compensation_asks(in);
    const struct mem_row *asked = asks ? find_row(ledger, asks) : NULL;
    if ((in->undoes && check_change(in->undoes, undone, err)) ||
        (in->parent && check_change(in->parent, parent, err)) ||
        (asked && compensation_allowed(in, asked->op->state, err)))
        return err->code;
    if ((undone && apply(ledger, request, in->undoes, undone)) ||
        (parent && apply(ledger, request, in->parent, parent)))
        return err->code;
    return ERR_NONE;
}

/* A step, or what was undone of one, has moved: its parent is told. */
static enum err_code tell_parent(struct mem_ledger *ledger, struct ledger_request *request,
                                 const struct operation *step)
{
    struct ledger_transition *change = &request->transition;
    struct mem_row *parent = find_row(ledger, step->parent);
    struct settlement settlement;
    if (!parent)
        return ERR_NONE;
    struct operation *copy = operation_copy(request->arena, parent->op);
    if (!parent_told(change, step, copy, request->arena, &settlement))
        return ERR_NONE;
    enum err_code code = apply(ledger, request, &settlement.change, parent);
    settlement_wakes(&settlement, change);
    change->parent = settlement_tell(&settlement, request->arena);
    return code;
}

/* A compensation has ended: what it undoes moves with it. */
static enum err_code settle(struct mem_ledger *ledger, struct ledger_request *request, const struct mem_row *row)
{
    struct ledger_transition *change = &request->transition;
    struct mem_row *original = find_row(ledger, row->op->compensates);
    struct settlement settlement;
    if (!original)
        return ERR_NONE;
    struct operation *copy = operation_copy(request->arena, original->op);
    if (!compensation_settles(change, copy, request->arena, &settlement))
        return ERR_NONE;
    enum err_code code = apply(ledger, request, &settlement.change, original);
    settlement_wakes(&settlement, change);
    change->undone = settlement_tell(&settlement, request->arena);
    return !code && steps_tell(copy->state, &settlement.op) ? tell_parent(ledger, request, &settlement.op) : code;
}

static enum err_code transition(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_transition *change = &request->transition;
    struct mem_row *row = find_row(ledger, change->op->id);
    if (check_change(change, row, &request->err))
        return request->err.code;
    if (change->seen && claim_unchanged(&ledger->claims.base, change->op, change->seen, request->arena, &request->err))
        return request->err.code;
    if (change->inbound && !mem_inbox_waits(&ledger->inbox, change->inbound))
        return err_set(&request->err, ERR_STALE, "inbound event %s is no longer waiting", change->inbound);
    enum state from = row->op->state;
    enum err_code code = apply(ledger, request, change, row);
    if (!code && playbook_settles(from, row->op))
        code = settle(ledger, request, row);
    if (!code && steps_tell(from, row->op))
        code = tell_parent(ledger, request, operation_copy(request->arena, row->op));
    if (change->inbound)
        mem_inbox_apply(&ledger->inbox, change);
    return code;
}

/* ---- claims ---- */

static int compare_due(const void *left, const void *right)
{
    const struct mem_row *a = *(struct mem_row *const *)left, *b = *(struct mem_row *const *)right;
    bool a_ended = state_terminal(a->op->state), b_ended = state_terminal(b->op->state);
    if (a_ended != b_ended)
        return a_ended ? 1 : -1;
    if (a->op->wake_at_ms != b->op->wake_at_ms)
        return a->op->wake_at_ms < b->op->wake_at_ms ? -1 : 1;
    return compare_age(a->op->id, b->op->id);
}

static bool held_by_others(const struct ledger_claim *claim, const struct operation *op)
{
    return !state_terminal(op->state) && op->owner && !text_equal(op->owner, claim->owner) &&
           !operation_executor_holds(op);
}

/* The rows that the claim is about; free() them. */
static struct mem_row **find_due(const struct mem_ledger *ledger, const struct ledger_claim *claim, size_t *count)
{
    struct mem_row **due = mem_alloc((ledger->row_count + 1) * sizeof(struct mem_row *));
    size_t n = 0;
    for (size_t i = 0; i < ledger->row_count && claim->foreign; i++)
        if (held_by_others(claim, ledger->due_rows[i]->op))
            due[n++] = ledger->due_rows[i];
    for (size_t i = 0; i < ledger->row_count && !claim->foreign; i++)
        if (ledger->due_ms[i] > 0 && ledger->due_ms[i] <= claim->now_ms)
            due[n++] = ledger->due_rows[i];
    *count = n;
    return due;
}

static bool claimable(const struct ledger_claim *claim, const struct operation *op)
{
    return claim->foreign || !op->owner || text_equal(op->owner, claim->owner) || op->lease_until_ms <= claim->now_ms;
}

static void earliest(int64_t *at, int64_t other)
{
    if (other > 0 && (*at == 0 || other < *at))
        *at = other;
}

static void set_wake(struct mem_ledger *ledger, struct mem_row *row, int64_t at_ms)
{
    row->op->wake_at_ms = ledger->due_ms[row->due] = at_ms;
}

static void claim_row(struct mem_ledger *ledger, struct ledger_claim *claim, struct mem_row *row, struct arena *arena)
{
    struct operation *op = row->op;
    claim->former_owners[claim->count] = arena_copy_text(arena, op->owner);
    if (!text_equal(op->owner, claim->owner))
        op->owner = arena_copy_text(&row->life, claim->owner);
    op->lease_until_ms = claim->now_ms + claim->lease_ms;
    set_wake(ledger, row, ledger_renewal_ms(claim));
    claim->ops[claim->count++] = copy_out(arena, op, true);
}

/* The earliest time after which another claim could find something: a due row that did not fit, the end of a lease that
 * was in the way, or the next wake_at. */
static void next_wake(const struct mem_ledger *ledger, struct ledger_claim *claim, int64_t held_until)
{
    int64_t after = claim->count == claim->limit || claim->foreign ? 0 : claim->now_ms;
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < ledger->row_count; i++) /* without branches: this walks all rows at each claim */
        first = ledger->due_ms[i] > after && ledger->due_ms[i] < first ? ledger->due_ms[i] : first;
    claim->next_wake_ms = held_until;
    if (first != INT64_MAX)
        earliest(&claim->next_wake_ms, first);
}

static enum err_code claim_due(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_claim *claim = &request->claim;
    if (claim->limit > LEDGER_CLAIM_MAX)
        claim->limit = LEDGER_CLAIM_MAX;
    claim->ops = arena_alloc(request->arena, (claim->limit + 1) * sizeof *claim->ops);
    claim->former_owners = arena_alloc(request->arena, (claim->limit + 1) * sizeof *claim->former_owners);
    claim->count = 0;
    size_t due_count;
    struct mem_row **due = find_due(ledger, claim, &due_count);
    if (due_count > 1)
        qsort(due, due_count, sizeof(struct mem_row *), compare_due);
    int64_t held_until = 0;
    for (size_t i = 0; i < due_count && claim->count < claim->limit; i++) {
        if (claimable(claim, due[i]->op))
            claim_row(ledger, claim, due[i], request->arena);
        else
            earliest(&held_until, due[i]->op->lease_until_ms);
    }
    free(due);
    next_wake(ledger, claim, held_until);
    return ERR_NONE;
}

/* ---- marks, expiry ---- */

static enum err_code mark(struct mem_ledger *ledger, struct ledger_request *request)
{
    const struct ledger_mark *in = &request->mark;
    struct mem_row *row = find_row(ledger, in->operation);
    if (!row)
        return ERR_NONE;
    row->op->delivered |= in->delivered;
    row->op->orphaned = (row->op->orphaned || in->orphaned) && !in->not_orphaned;
    return ERR_NONE;
}

static enum err_code release(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_release *in = &request->release;
    in->count = 0;
    for (size_t i = 0; i < ledger->row_count; i++) {
        struct mem_row *row = ledger->rows[i];
        struct operation *op = row->op;
        if (!text_equal(op->owner, in->owner) || state_terminal(op->state) || op->state == STATE_DISPATCHED)
            continue;
        op->owner = NULL;
        op->lease_until_ms = 0;
        set_wake(ledger, row, in->now_ms);
        in->count++;
    }
    return ERR_NONE;
}

static void add_stone(struct mem_ledger *ledger, const struct operation *op, int64_t dropped_ms)
{
    struct tombstone stone = operation_tombstone(op, dropped_ms);
    struct mem_stone *kept = arena_zero(&ledger->arena, sizeof *kept);
    kept->tombstone = *copy_stone(&ledger->arena, &stone);
    kept->next_key = ledger->stones[bucket(&op->key_hash)];
    ledger->stones[bucket(&op->key_hash)] = kept;
    map_put(&ledger->stones_by_id, kept->tombstone.operation, &kept->tombstone);
}

static enum err_code expire(struct mem_ledger *ledger, struct ledger_request *request)
{
    const struct ledger_expire *in = &request->expire;
    struct mem_row *row = find_row(ledger, in->operation);
    if (!row)
        return err_set(&request->err, ERR_NOT_FOUND, "there is no operation %s", in->operation);
    if (row->op->rev != in->rev)
        return err_set(&request->err, ERR_STALE, "%s is at version %lld, not %lld", in->operation,
                       (long long)row->op->rev, (long long)in->rev);
    if (!state_terminal(row->op->state))
        return err_set(&request->err, ERR_CONFLICT, "%s is %s: only what has ended can be dropped", in->operation,
                       state_name(row->op->state));
    const struct mem_row *parent = row->op->parent ? find_row(ledger, row->op->parent) : NULL;
    if (parent && parent_lets_go(row->op, parent->op->state, &request->err))
        return request->err.code;
    add_stone(ledger, row->op, in->now_ms);
    remove_row(ledger, row);
    return ERR_NONE;
}

/* ---- queries ---- */

static struct incident copy_incident(struct arena *arena, const struct incident *incident)
{
    struct incident copy = *incident;
    copy.tenant = arena_copy_text(arena, incident->tenant);
    copy.operation = arena_copy_text(arena, incident->operation);
    copy.note = arena_copy_text(arena, incident->note);
    copy.acknowledged_by = arena_copy_text(arena, incident->acknowledged_by);
    return copy;
}

static enum err_code get(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_get *in = &request->get;
    in->op = NULL;
    in->tombstone = NULL;
    in->incidents = NULL;
    in->incident_count = 0;
    const struct mem_row *row = find_row(ledger, in->operation);
    const struct tombstone *stone = row ? NULL : find_stone(ledger, in->operation);
    const char *tenant = row ? row->op->tenant : stone ? stone->tenant : NULL;
    if (!tenant || (in->tenant && !text_equal(tenant, in->tenant)))
        return err_set(&request->err, ERR_NOT_FOUND, "there is no operation %s", in->operation);
    if (row)
        in->op = copy_out(request->arena, row->op, true);
    else
        in->tombstone = copy_stone(request->arena, stone);
    in->incidents = arena_alloc(request->arena, GET_INCIDENTS_MAX * sizeof *in->incidents);
    for (size_t i = 0; i < ledger->incident_count && in->incident_count < GET_INCIDENTS_MAX; i++)
        if (strcmp(ledger->incidents[i].operation, in->operation) == 0)
            in->incidents[in->incident_count++] = copy_incident(request->arena, &ledger->incidents[i]);
    return ERR_NONE;
}

static enum err_code watch(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct mem_row *row = find_row(ledger, request->get.operation);
    if (row)
        row->watched = true;
    return get(ledger, request);
}

static enum err_code get_by_key(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_get_by_key *in = &request->get_by_key;
    const struct operation *op;
    const struct tombstone *stone;
    answers_by_key(ledger, &in->key_hash, in->tenant, in->tool, &op, &stone);
    in->op = op ? copy_out(request->arena, op, true) : NULL;
    in->tombstone = stone ? copy_stone(request->arena, stone) : NULL;
    if (!op && !stone)
        return err_set(&request->err, ERR_NOT_FOUND, "%s has no operation under this key", in->tool);
    return ERR_NONE;
}

static bool list_wants(const struct ledger_list *list, const struct operation *op)
{
    return (!list->states || (list->states & 1u << op->state)) &&
           (list->reason == REASON_NONE || list->reason == op->reason) &&
           (!list->sharing || claims_share_entity(op->claims, list->sharing)) &&
           (!list->tenant || text_equal(list->tenant, op->tenant)) &&
           (!list->tool || text_equal(list->tool, op->tool)) && (!list->run || text_equal(list->run, op->run)) &&
           (!list->principal || text_equal(list->principal, op->principal));
}

static enum err_code list_rows(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_list *list = &request->list;
    if (list->limit > LEDGER_LIST_MAX)
        list->limit = LEDGER_LIST_MAX;
    list->count = 0;
    list->next = NULL;
    list->ops = arena_alloc(request->arena, (list->limit + 1) * sizeof *list->ops);
    /* [from, to) in the order of ids, walked upwards or downwards */
    size_t from = 0, to = ledger->row_count;
    if (list->before && list->oldest_first) {
        from = position(ledger, list->before);
        from += from < to && strcmp(ledger->rows[from]->op->id, list->before) == 0;
    } else if (list->before) {
        to = position(ledger, list->before);
    }
    const struct operation *last = NULL;
    for (size_t seen = 0; seen < to - from; seen++) {
        const struct operation *op = ledger->rows[list->oldest_first ? from + seen : to - 1 - seen]->op;
        if (list->run && !text_equal(list->run, op->run))
            continue;
        if (seen == LEDGER_SCAN_MAX || list->count == list->limit) {
            list->next = last ? arena_copy_text(request->arena, last->id) : NULL;
            break;
        }
        last = op;
        if (list_wants(list, op))
            list->ops[list->count++] = copy_out(request->arena, op, list->with_payload);
    }
    return ERR_NONE;
}

static enum err_code events(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_events *out = &request->events;
    const struct mem_row *row = find_row(ledger, out->operation);
    if (!row)
        return err_set(&request->err, ERR_NOT_FOUND, "there is no operation %s", out->operation);
    out->count = row->event_count < LEDGER_HISTORY_MAX ? row->event_count : LEDGER_HISTORY_MAX;
    out->events = arena_alloc(request->arena, (out->count + 1) * sizeof *out->events);
    for (size_t i = 0; i < out->count; i++) {
        out->events[i] = row->events[row->event_count - out->count + i];
        out->events[i].actor = arena_copy_text(request->arena, out->events[i].actor);
        out->events[i].note = arena_copy_text(request->arena, out->events[i].note);
    }
    return ERR_NONE;
}

static int compare_attempts(const void *left, const void *right)
{
    return ((const struct attempt *)left)->number - ((const struct attempt *)right)->number;
}

static enum err_code attempts(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_attempts *out = &request->attempts;
    const struct mem_row *row = find_row(ledger, out->operation);
    if (!row)
        return err_set(&request->err, ERR_NOT_FOUND, "there is no operation %s", out->operation);
    if (row->attempt_count)
        qsort(row->attempts, row->attempt_count, sizeof *row->attempts, compare_attempts);
    out->count = row->attempt_count < LEDGER_HISTORY_MAX ? row->attempt_count : LEDGER_HISTORY_MAX;
    out->attempts = arena_alloc(request->arena, (out->count + 1) * sizeof *out->attempts);
    for (size_t i = 0; i < out->count; i++) {
        struct attempt *copy = &out->attempts[i];
        *copy = row->attempts[row->attempt_count - out->count + i];
        copy->provider_request_id = arena_copy_text(request->arena, copy->provider_request_id);
        copy->detail = arena_copy_text(request->arena, copy->detail);
    }
    return ERR_NONE;
}

/* ---- incidents ---- */

static enum err_code incidents(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_incidents *out = &request->incidents;
    if (out->limit > LEDGER_LIST_MAX)
        out->limit = LEDGER_LIST_MAX;
    out->count = 0;
    out->next = NULL;
    out->incidents = arena_alloc(request->arena, (out->limit + 1) * sizeof *out->incidents);
    const struct incident *last = NULL;
    size_t seen = 0;
    for (size_t i = ledger->incident_count; i-- > 0;) {
        const struct incident *incident = &ledger->incidents[i];
        bool passed = out->before && strcmp(incident->id, out->before) >= 0;
        if (passed || (out->open_only && incident->acknowledged_ms > 0))
            continue;
        if (seen++ == LEDGER_SCAN_MAX || out->count == out->limit) {
            out->next = last ? arena_copy_text(request->arena, last->id) : NULL;
            break;
        }
        last = incident;
        if (!out->tenant || text_equal(out->tenant, incident->tenant))
            out->incidents[out->count++] = copy_incident(request->arena, incident);
    }
    return ERR_NONE;
}

static enum err_code acknowledge(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_acknowledge *in = &request->acknowledge;
    for (size_t i = 0; i < ledger->incident_count; i++) {
        struct incident *incident = &ledger->incidents[i];
        if (strcmp(incident->id, in->incident) != 0 || (in->tenant && !text_equal(in->tenant, incident->tenant)))
            continue;
        if (incident->acknowledged_ms == 0) {
            incident->acknowledged_by = arena_copy_text(&ledger->arena, in->by);
            incident->acknowledged_ms = in->now_ms;
        }
        in->result = copy_incident(request->arena, incident);
        return ERR_NONE;
    }
    return err_set(&request->err, ERR_NOT_FOUND, "there is no incident %s", in->incident);
}

/* ---- tokens ---- */

static struct token copy_token(struct arena *arena, const struct token *token)
{
    struct token copy = *token;
    copy.id = arena_copy_text(arena, token->id);
    copy.tenant = arena_copy_text(arena, token->tenant);
    copy.principal = arena_copy_text(arena, token->principal);
    copy.tools = arena_copy_text(arena, token->tools);
    copy.entities = arena_copy_text(arena, token->entities);
    return copy;
}

static enum err_code token_add(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct token token = copy_token(&ledger->arena, &request->token.token);
    ledger->tokens = room_for(ledger->tokens, ledger->token_count, &ledger->token_room, sizeof *ledger->tokens);
    size_t at = ledger->token_count++;
    for (; at > 0 && strcmp(ledger->tokens[at - 1].id, token.id) > 0; at--)
        ledger->tokens[at] = ledger->tokens[at - 1];
    ledger->tokens[at] = token;
    return ERR_NONE;
}

static enum err_code token_find(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct token *in = &request->token.token;
    for (size_t i = 0; i < ledger->token_count; i++) {
        if (digest_equal(&ledger->tokens[i].secret_hash, &in->secret_hash)) {
            *in = copy_token(request->arena, &ledger->tokens[i]);
            return ERR_NONE;
        }
    }
    return err_set(&request->err, ERR_NOT_FOUND, "there is no such token");
}

static enum err_code token_list(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_token_list *out = &request->token_list;
    out->count = ledger->token_count;
    out->tokens = arena_alloc(request->arena, (out->count + 1) * sizeof *out->tokens);
    for (size_t i = 0; i < out->count; i++)
        out->tokens[i] = copy_token(request->arena, &ledger->tokens[i]);
    return ERR_NONE;
}

static enum err_code token_revoke(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct token *in = &request->token.token;
    for (size_t i = 0; i < ledger->token_count; i++) {
        if (strcmp(ledger->tokens[i].id, in->id) != 0)
            continue;
        if (ledger->tokens[i].revoked_ms == 0)
            ledger->tokens[i].revoked_ms = in->revoked_ms;
        *in = copy_token(request->arena, &ledger->tokens[i]);
        return ERR_NONE;
    }
    return err_set(&request->err, ERR_NOT_FOUND, "there is no token %s", in->id);
}

static enum err_code stats(struct mem_ledger *ledger, struct ledger_request *request)
{
    struct ledger_stats *out = &request->stats;
    *out = (struct ledger_stats){.commits = ledger->commits, .commands = ledger->commands};
    memcpy(out->by_state, ledger->by_state, sizeof out->by_state);
    for (size_t i = 0; i < ledger->row_count; i++) {
        const struct operation *op = ledger->rows[i]->op;
        earliest(&out->oldest_unknown_ms, op->unknown_since_ms);
        if (op->state != STATE_PLANNED || op->reason != REASON_AWAITING_APPROVAL)
            continue;
        out->approvals_waiting++;
        earliest(&out->oldest_approval_ms, op->created_ms);
    }
    mem_claims_count(&ledger->claims, out);
    for (size_t i = 0; i < ledger->incident_count; i++)
        out->open_incidents += ledger->incidents[i].acknowledged_ms == 0;
    return ERR_NONE;
}

/* ---- inbox ---- */

static const struct operation *row_at(void *user, size_t index)
{
    const struct mem_ledger *ledger = user;
    return index < ledger->row_count ? ledger->rows[index]->op : NULL;
}

static const struct operation *row_named(void *user, const char *id)
{
    const struct mem_row *row = find_row(user, id);
    return row ? row->op : NULL;
}

static enum err_code inbox_of(struct mem_ledger *ledger, const struct mem_inbox_rows *rows,
                              struct ledger_request *request)
{
    struct ledger_inbox_of *out = &request->inbox_of;
    const struct mem_row *row = find_row(ledger, out->operation);
    out->op = row ? copy_out(request->arena, row->op, true) : NULL;
    if (!row)
        return err_set(&request->err, ERR_NOT_FOUND, "there is no operation %s", out->operation);
    return mem_inbox_of(&ledger->inbox, rows, request);
}

/* ---- entities ---- */

static void wake_row(void *user, const char *operation, int64_t at_ms)
{
    struct mem_row *row = find_row(user, operation);
    if (row && !row->op->owner)
        set_wake(user, row, at_ms);
}

/* ---- the interface ---- */

static enum err_code execute(struct mem_ledger *ledger, struct ledger_request *request)
{
    const struct mem_inbox_rows rows = {row_at, row_named, ledger};
    switch (request->command) {
    case LEDGER_ADMIT: return admit(ledger, request);
    case LEDGER_TRANSITION: return transition(ledger, request);
    case LEDGER_CLAIM_DUE: return claim_due(ledger, request);
    case LEDGER_MARK: return mark(ledger, request);
    case LEDGER_WATCH: return watch(ledger, request);
    case LEDGER_RELEASE: return release(ledger, request);
    case LEDGER_EXPIRE: return expire(ledger, request);
    case LEDGER_GET: return get(ledger, request);
    case LEDGER_GET_BY_KEY: return get_by_key(ledger, request);
    case LEDGER_LIST: return list_rows(ledger, request);
    case LEDGER_EVENTS: return events(ledger, request);
    case LEDGER_ATTEMPTS: return attempts(ledger, request);
    case LEDGER_INCIDENTS: return incidents(ledger, request);
    case LEDGER_ACKNOWLEDGE: return acknowledge(ledger, request);
    case LEDGER_TOKEN_ADD: return token_add(ledger, request);
    case LEDGER_TOKEN_FIND: return token_find(ledger, request);
    case LEDGER_TOKEN_LIST: return token_list(ledger, request);
    case LEDGER_TOKEN_REVOKE: return token_revoke(ledger, request);
    case LEDGER_RECORD_INBOUND: return mem_inbox_record(&ledger->inbox, &rows, request);
    case LEDGER_INBOX_OF: return inbox_of(ledger, &rows, request);
    case LEDGER_INBOX_DUE: return mem_inbox_due(&ledger->inbox, &rows, request);
    case LEDGER_INBOX_LIST: return mem_inbox_list(&ledger->inbox, request);
    case LEDGER_INBOX_COUNTS: return mem_inbox_counts(&ledger->inbox, request);
    case LEDGER_INBOX_PRUNE: return mem_inbox_prune(&ledger->inbox, request);
    case LEDGER_FORWARD_DUE: return mem_forward_due(&ledger->inbox, request);
    case LEDGER_FORWARD_MOVE: return mem_forward_move(&ledger->inbox, request);
    case LEDGER_ENTITIES: return mem_entities(&ledger->claims, request);
    case LEDGER_ENTITY_RELEASE:
        return claim_release(&ledger->claims.base, &request->entity_release, request->arena, &request->err);
    case LEDGER_BUDGETS: return mem_budgets(&ledger->claims, request);
    case LEDGER_STATS: return stats(ledger, request);
    }
    return err_set(&request->err, ERR_INTERNAL, "no such ledger command");
}

static void mem_submit(struct ledger *base, struct ledger_request *request)
{
    struct mem_ledger *ledger = (struct mem_ledger *)base;
    if (ledger->waiting_count == LEDGER_QUEUE_MAX) {
        request->code = err_set(&request->err, ERR_UNAVAILABLE, "the ledger has %d commands waiting: try again later",
                                LEDGER_QUEUE_MAX);
        request->next = ledger->refused;
        ledger->refused = request;
        return;
    }
    *ledger->last = request;
    ledger->last = &request->next;
    ledger->waiting_count++;
}

static void tell_news(struct mem_ledger *ledger)
{
    char(*moved)[OPERATION_ID_SIZE] = ledger->moved;
    size_t count = ledger->moved_count;
    ledger->moved = NULL;
    ledger->moved_count = ledger->moved_room = 0;
    for (size_t i = 0; i < count && ledger->base.news; i++)
        ledger->base.news(ledger->base.news_user, moved[i]);
    free(moved);
}

/* Executes what was submitted before the call; what done submits waits for the next poll. */
static void mem_poll(struct ledger *base)
{
    struct mem_ledger *ledger = (struct mem_ledger *)base;
    struct ledger_request *first = ledger->waiting, *refused = ledger->refused;
    ledger->waiting = NULL;
    ledger->last = &ledger->waiting;
    ledger->waiting_count = 0;
    ledger->refused = NULL;
    for (struct ledger_request *request = first; request; request = request->next) {
        ledger->commands++;
        request->code = execute(ledger, request);
    }
    ledger->commits += first != NULL;
    struct ledger_request *lists[] = {first, refused};
    for (size_t i = 0; i < 2; i++) {
        for (struct ledger_request *request = lists[i], *next; request; request = next) {
            next = request->next; /* done may free the request */
            request->next = NULL;
            request->done(request);
        }
    }
    tell_news(ledger);
}

static void mem_close(struct ledger *base)
{
    struct mem_ledger *ledger = (struct mem_ledger *)base;
    ledger->base.news = NULL;
    while (ledger->waiting || ledger->refused)
        mem_poll(base);
    for (size_t i = 0; i < ledger->row_count; i++)
        row_free(ledger->rows[i]);
    for (size_t i = 0; i < CALLERS; i++)
        free(ledger->callers[i].rows);
    free(ledger->rows);
    free(ledger->due_ms);
    free(ledger->due_rows);
    map_release(&ledger->by_id);
    map_release(&ledger->stones_by_id);
    free(ledger->incidents);
    free(ledger->tokens);
    mem_inbox_release(&ledger->inbox);
    mem_claims_release(&ledger->claims);
    arena_release(&ledger->arena);
    free(ledger);
}

struct ledger *ledger_memory_new(struct env *env)
{
    static const struct ledger_ops ops = {mem_submit, mem_poll, mem_close, NULL};
    struct mem_ledger *ledger = mem_zero(sizeof *ledger);
    ledger->base.ops = &ops;
    ledger->last = &ledger->waiting;
    arena_init(&ledger->arena);
    mem_claims_init(&ledger->claims, wake_row, ledger);
    env->random(env, ledger->base.secret, sizeof ledger->base.secret);
    return &ledger->base;
}
