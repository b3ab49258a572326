#include "ledger/verify.h"

#include "base/map.h"
#include "base/mem.h"
#include "core/audit.h"
#include "core/claims.h"
#include "core/inbox.h"
#include "ledger/claim_store.h"
#include "ledger/sqlite_store.h" /* where rows lie */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A slice of a budget as the operations have it. */
struct slice {
    struct decimal sum;
    bool seen; /* in the table */
    char key[];
};

struct verify {
    struct bulk *bulk;
    const struct verify_listener *listener;
    struct verify_report *report;
    struct arena arena; /* of the row at hand */
    enum table_id table;
    const char *id;
    int64_t live[STATE_COUNT], dropped[STATE_COUNT];
    int64_t newest_ms; /* what is over by then may be forgotten already */
    struct map slices;
    struct err *err;
};

static void say(struct verify *verify, const char *rule, const char *expected, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(struct verify *verify, const char *rule, const char *expected, const char *format, ...)
{
    char found[400];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    verify->report->findings++;
    verify->listener->found(verify->listener->user,
                            &(struct verify_finding){verify->table, verify->id, rule, expected, found});
}

static void audit_says(void *user, const char *rule, const char *expected, const char *found)
{
    say(user, rule, expected, "%s", found);
}

static void say_strange(struct verify *verify, const struct strange *strange)
{
    if (strange->column)
        say(verify, "value", "values are of their column's kind", "%s is %.*s, expected %s", strange->column,
            STR_ARG(strange->value), strange->expected);
}

/* ---- looking others up ---- */

static struct row *find_row(struct verify *verify, enum table_id table, const char *const *columns,
                            const struct cell *values, size_t count)
{
    struct row *rows;
    size_t found = 0;
    if (verify->err->code ||
        bulk_find(verify->bulk, table, columns, values, count, 1, &verify->arena, &rows, &found, verify->err))
        return NULL;
    return found ? rows : NULL;
}

static struct audit_other find_other(struct verify *verify, const char *id)
{
    static const char *const by_id[] = {"id"}, *const by_operation[] = {"operation"};
    struct audit_other other = {0};
    struct strange strange;
    struct cell cell = cell_text(id);
    struct row *row = id ? find_row(verify, TABLE_OPERATIONS, by_id, &cell, 1) : NULL;
    if (row) {
        struct operation_row *op = arena_zero(&verify->arena, sizeof *op);
        row_read_operation(&verify->bulk->tables[TABLE_OPERATIONS], row, op, &strange);
        other.op = &op->op;
        return other;
    }
    row = id ? find_row(verify, TABLE_TOMBSTONES, by_operation, &cell, 1) : NULL;
    if (row) {
        struct tombstone *stone = arena_zero(&verify->arena, sizeof *stone);
        row_read_tombstone(&verify->bulk->tables[TABLE_TOMBSTONES], row, stone, &strange);
        other.stone = stone;
    }
    return other;
}

static bool is_there(const struct audit_other *other)
{
    return other->op || other->stone;
}

static const char *tenant_of(const struct audit_other *other)
{
    return other->op ? other->op->tenant : other->stone->tenant;
}

static bool claims_entity(const struct claims *claims, const char *type, const char *id)
{
    for (size_t i = 0; i < claims->entity_count; i++)
        if (text_equal(claims->entities[i].type, type) && text_equal(claims->entities[i].id, id))
            return true;
    return false;
}

/* ---- operations: what they claim (9) ---- */

static bool counts(const struct operation *op)
{
    return claims_count(op->state) && !(op->steps.p && op->state == STATE_COMPENSATED && !op->may_have_applied);
}

static struct slice *slice_of(struct verify *verify, const char *key)
{
    struct slice *slice = map_get(&verify->slices, key);
    if (slice)
        return slice;
    if (verify->slices.count >= VERIFY_SLICES_MAX) {
        verify->report->unchecked_slices++;
        return NULL;
    }
    size_t n = strlen(key) + 1;
    slice = mem_zero(sizeof *slice + n);
    memcpy(slice->key, key, n);
    map_put(&verify->slices, slice->key, slice);
    return slice;
}

static const char *slice_key(struct verify *verify, const char *tenant, const char *budget, const char *subject,
                             const char *key, int64_t start_ms, int64_t until_ms)
{
    return arena_printf(&verify->arena, "%s/%s/%s/%s/%lld/%lld", tenant, budget, subject, key, (long long)start_ms,
                        (long long)until_ms);
}

static void add_debit(struct verify *verify, const struct operation *op, const struct claim_debit *debit)
{
    int64_t start_ms, until_ms;
    claims_slice(op->created_ms, debit->per_ms, &start_ms, &until_ms);
    if (until_ms + debit->per_ms <= verify->newest_ms)
        return;
    struct slice *slice =
        slice_of(verify, slice_key(verify, op->tenant, debit->budget, debit->subject, debit->key, start_ms, until_ms));
    if (slice)
        slice->sum = decimal_add(slice->sum, debit->amount);
}

static void check_window_used(struct verify *verify, const struct operation *op, const struct claims *claims)
{
    static const char *const columns[] = {"tenant", "key", "operation"};
    const struct cell values[] = {cell_text(op->tenant), cell_text(claims->window), cell_text(op->id)};
    if (op->created_ms + claims->window_per_ms > verify->newest_ms &&
        !find_row(verify, TABLE_WINDOWS, columns, values, 3))
        say(verify, "window-used", "an operation that counts stands in its window (9.2)", "%s does not name it",
            claims->window);
}

/* While its request may be on the wire nobody else may have them, unless an operator said so. */
static void check_entities_held(struct verify *verify, const struct operation *op, const struct claims *claims)
{
    static const char *const columns[] = {"tenant", "type", "id"};
    const struct table *table = &verify->bulk->tables[TABLE_ENTITIES];
    size_t holder = table_column(table, "holder"), override = table_column(table, "override");
    for (size_t i = 0; i < claims->entity_count; i++) {
        const struct claim_entity *entity = &claims->entities[i];
        const struct cell values[] = {cell_text(op->tenant), cell_text(entity->type), cell_text(entity->id)};
        const struct row *row = find_row(verify, TABLE_ENTITIES, columns, values, 3);
        const char *by = row ? row->cells[holder].text.p : NULL;
        if (!claims_holds(op, by) && !(row && row->cells[override].kind != CELL_NULL) && !verify->err->code)
            say(verify, "entity-held", "what is under way holds its entities (9.1)", "%s %s is held by %s",
                entity->type, entity->id, by ? by : "nobody");
    }
}

static void check_claims(struct verify *verify, const struct operation *op)
{
    struct claims claims;
    if (!op->claims.p || claims_read(&verify->arena, op->claims, &claims, NULL)) /* audit.c tells of those */
        return;
    for (size_t i = 0; counts(op) && i < claims.debit_count; i++)
        add_debit(verify, op, &claims.debits[i]);
    if (counts(op) && claims.window)
        check_window_used(verify, op, &claims);
    if (state_in_flight(op->state) || op->state == STATE_UNKNOWN_OUTCOME)
        check_entities_held(verify, op, &claims);
}

/* ---- operations: others, and the row's own place ---- */

static void check_others(struct verify *verify, struct audit *audit)
{
    const struct operation *op = audit->op;
    struct audit_other other = find_other(verify, op->previous);
    audit_previous(audit, &other);
    other = find_other(verify, op->compensates);
    audit_compensates(audit, &other);
    other = find_other(verify, op->compensation);
    audit_compensation(audit, &other);
    other = find_other(verify, op->parent);
    audit_parent(audit, &other);
    other = find_other(verify, op->repeat_of);
    if (op->repeat_of && !is_there(&other))
        say(verify, "link", "operations that a row names are there, or their tombstones", "repeat_of names %s",
            op->repeat_of);
}

static void check_steps(struct verify *verify, struct audit *audit)
{
    struct steps_progress progress;
    if (!audit->op->steps.p || steps_read(&verify->arena, audit->op->steps, &progress, NULL))
        return;
    for (size_t i = 0; i < progress.count; i++) {
        struct audit_other step = find_other(verify, progress.entries[i].operation);
        if (progress.entries[i].operation)
            audit_step(audit, &progress.entries[i], &step);
    }
}

/* Two incidents of one kind are one rule. */
static void check_duplicate_told(struct verify *verify, const struct operation *op)
{
    static const char *const columns[] = {"operation", "kind"};
    const struct cell values[] = {cell_text(op->id)};
    struct row *rows;
    size_t count = 0, kind = table_column(&verify->bulk->tables[TABLE_INCIDENTS], "kind");
    bool told = false;
    if (!op->duplicate_seen ||
        bulk_find(verify->bulk, TABLE_INCIDENTS, columns, values, 1, 1000, &verify->arena, &rows, &count, verify->err))
        return;
    for (size_t i = 0; i < count; i++)
        told = told || str_is(rows[i].cells[kind].text, incident_kind_name(INCIDENT_DUPLICATE_EFFECT));
    if (!told)
        say(verify, "duplicate-told", "a duplicate effect that was seen is an incident", "there is none");
}

static void check_fingerprint(struct verify *verify, const struct operation *op)
{
    const struct verify_listener *listener = verify->listener;
    if (audit_fingerprint(op))
        return;
    if (listener->whole_fingerprint && listener->whole_fingerprint(listener->user, op))
        say(verify, "fingerprint", "the fingerprint is that of the stored arguments (2.6)", "another one");
    else
        verify->report->unsure_fingerprints++;
}

static void check_derived(struct verify *verify, const struct row *row, const struct operation_row *stored)
{
    const struct operation *op = &stored->op;
    int64_t repeat_hash = op->tenant && op->tool && op->principal ? operation_repeat_hash(op) : stored->repeat_hash;
    if (stored->open != !state_terminal(op->state))
        say(verify, "open", "the mark of open rows is that of their state", "%s, open is %lld", state_name(op->state),
            (long long)stored->open);
    if (stored->repeat_hash != repeat_hash)
        say(verify, "repeat-hash", "what repetitions are found by is made of tenant, tool, principal, fingerprint",
            "another value");
    int64_t place = verify->bulk->postgres ? 0 : operation_place(op->id);
    if (!verify->bulk->postgres && (row->at[0].number < place || row->at[0].number >= place + PLACES_TRIED))
        say(verify, "place", "a row lies where its id is looked for", "it lies at %lld, its id leads to %lld",
            (long long)row->at[0].number, (long long)place);
    check_fingerprint(verify, op);
}

/* ---- operations and their history, side by side ---- */

/* -1: the line is of an operation before the row, of none; 0: of the row. */
static int compare_line(const struct row *line, const struct row *row)
{
    return line ? cell_compare(&line->at[0], &row->at[0]) : 1;
}

static const char *line_id(struct verify *verify, const struct history_row *line)
{
    return arena_printf(&verify->arena, "%.*s/%lld", STR_ARG(line->operation.p ? line->operation : STR("?")),
                        (long long)line->sequence);
}

static void say_orphan(struct verify *verify, const struct row *row)
{
    struct history_row line;
    struct strange strange;
    row_read_history(&verify->bulk->tables[TABLE_HISTORY], row, &line, &strange);
    verify->table = TABLE_HISTORY;
    verify->id = line_id(verify, &line);
    say(verify, "history-owner", "lines of history belong to an operation", "there is none");
}

static void take_line(struct verify *verify, struct audit *audit, const struct row *row)
{
    struct history_row line;
    struct strange strange;
    const char *id = verify->id;
    row_read_history(&verify->bulk->tables[TABLE_HISTORY], row, &line, &strange);
    verify->table = TABLE_HISTORY;
    verify->id = line_id(verify, &line);
    say_strange(verify, &strange);
    if (!str_is(line.tenant, audit->op->tenant))
        say(verify, "history-tenant", "lines of history have their operation's tenant", "%.*s", STR_ARG(line.tenant));
    if (!line.has_event && !line.has_attempt)
        say(verify, "history-holds", "a line holds an event, an attempt, or both", "neither");
    audit_line(audit, line.sequence);
    if (line.has_event)
        audit_event(audit, &line.event);
    if (line.has_attempt)
        audit_attempt(audit, &line.attempt);
    verify->table = TABLE_OPERATIONS;
    verify->id = id;
}

static void take_beginning(struct audit *audit, const struct operation_row *stored)
{
    if (stored->has_event) {
        audit_line(audit, LEDGER_CHANGE_EVENTS_MAX);
        audit_event(audit, &stored->event);
    }
    if (stored->attempt) {
        struct attempt attempt = {.number = 1, .kind = ATTEMPT_CALL, .started_ms = stored->op.created_ms};
        snprintf(attempt.id, sizeof attempt.id, "%s", stored->attempt);
        audit_attempt(audit, &attempt);
    }
}

static void check_operation(struct verify *verify, const struct row *row, struct bulk_walk *history,
                            const struct row **line)
{
    struct operation_row *stored = arena_zero(&verify->arena, sizeof *stored);
    struct strange strange;
    struct audit audit;
    row_read_operation(&verify->bulk->tables[TABLE_OPERATIONS], row, stored, &strange);
    verify->table = TABLE_OPERATIONS;
    verify->id = stored->op.id;
    say_strange(verify, &strange);
    audit_begin(&audit, &stored->op, audit_says, verify);
    take_beginning(&audit, stored);
    for (; compare_line(*line, row) == 0; *line = bulk_walk_next(history, verify->err)) {
        verify->report->rows[TABLE_HISTORY]++;
        take_line(verify, &audit, *line);
    }
    audit_end(&audit);
    check_derived(verify, row, stored);
    check_others(verify, &audit);
    check_steps(verify, &audit);
    check_claims(verify, &stored->op);
    check_duplicate_told(verify, &stored->op);
    verify->live[stored->op.state]++;
    verify->report->rows[TABLE_OPERATIONS]++;
}

static void check_operations(struct verify *verify)
{
    struct bulk_walk operations, history;
    bulk_walk_begin(&operations, verify->bulk, TABLE_OPERATIONS);
    bulk_walk_begin(&history, verify->bulk, TABLE_HISTORY);
    const struct row *line = bulk_walk_next(&history, verify->err), *row;
    while ((row = bulk_walk_next(&operations, verify->err))) {
        for (; compare_line(line, row) < 0; line = bulk_walk_next(&history, verify->err)) {
            verify->report->rows[TABLE_HISTORY]++;
            say_orphan(verify, line);
        }
        check_operation(verify, row, &history, &line);
        arena_reset(&verify->arena);
        if (verify->err->code)
            break;
    }
    for (; line && !verify->err->code; line = bulk_walk_next(&history, verify->err)) {
        verify->report->rows[TABLE_HISTORY]++;
        say_orphan(verify, line);
        arena_reset(&verify->arena);
    }
    bulk_walk_end(&operations);
    bulk_walk_end(&history);
}

/* ---- the other tables ---- */

/* Cells by name. */
static const char *text(struct verify *verify, const struct row *row, const char *column)
{
    return row->cells[table_column(&verify->bulk->tables[verify->table], column)].text.p;
}

static int64_t number(struct verify *verify, const struct row *row, const char *column)
{
    return row->cells[table_column(&verify->bulk->tables[verify->table], column)].number;
}

static void check_named(struct verify *verify, const struct audit_other *other, const char *operation,
                        const char *tenant)
{
    if (!is_there(other))
        say(verify, "owner", "the operation that a row belongs to is there, or its tombstone", "%s is not",
            operation ? operation : "none");
    else if (tenant && !text_equal(tenant_of(other), tenant))
        say(verify, "owner-tenant", "a row has its operation's tenant", "%s, and %s", tenant, tenant_of(other));
}

static void check_incident(struct verify *verify, const struct row *row)
{
    struct incident incident;
    struct strange strange;
    row_read_incident(&verify->bulk->tables[TABLE_INCIDENTS], row, &incident, &strange);
    verify->id = arena_copy_text(&verify->arena, incident.id);
    say_strange(verify, &strange);
    struct audit_other other = find_other(verify, incident.operation);
    check_named(verify, &other, incident.operation, incident.tenant);
    if ((incident.acknowledged_by != NULL) != (incident.acknowledged_ms != 0))
        say(verify, "acknowledged", "who acknowledged an incident and when come together", "%s, %lld",
            incident.acknowledged_by ? incident.acknowledged_by : "nobody", (long long)incident.acknowledged_ms);
}

static void check_tombstone(struct verify *verify, const struct row *row)
{
    static const char *const by_id[] = {"id"}, *const by_key[] = {"tenant", "key_hash", "key_version"};
    struct tombstone stone;
    struct strange strange;
    row_read_tombstone(&verify->bulk->tables[TABLE_TOMBSTONES], row, &stone, &strange);
    verify->id = arena_copy_text(&verify->arena, stone.operation);
    say_strange(verify, &strange);
    const struct cell id = cell_text(verify->id);
    const struct cell key[] = {
        cell_text(stone.tenant),
        {.kind = CELL_BYTES, .text = {(const char *)stone.key_hash.b, DIGEST_BYTES}},
        cell_int(stone.key_version),
    };
    if (!state_terminal(stone.state))
        say(verify, "tombstone-state", "only what has ended is dropped", "%s", state_name(stone.state));
    if (stone.dropped_ms <= 0 || stone.completed_ms <= 0)
        say(verify, "tombstone-times", "a tombstone tells when the operation ended and was dropped", "%lld, %lld",
            (long long)stone.completed_ms, (long long)stone.dropped_ms);
    if (find_row(verify, TABLE_OPERATIONS, by_id, &id, 1))
        say(verify, "tombstone-alone", "what was dropped has no row any more", "its row is there");
    else if (find_row(verify, TABLE_OPERATIONS, by_key, key, 3))
        say(verify, "tombstone-alone", "no row has the key and version of a tombstone", "there is one");
    verify->dropped[stone.state]++;
}

static void check_token(struct verify *verify, const struct row *row)
{
    struct token token;
    struct strange strange;
    row_read_token(&verify->bulk->tables[TABLE_PRINCIPALS], row, &token, &strange);
    verify->id = token.id;
    say_strange(verify, &strange);
    if (token.created_ms <= 0)
        say(verify, "token-times", "a token has a time of creation", "%lld", (long long)token.created_ms);
}

/* Counters come after operations and tombstones are known: see check_counters. */
static void check_counter(struct verify *verify, const struct row *row)
{
    const char *state_text = text(verify, row, "state");
    enum state state;
    verify->id = state_text;
    if (!state_from_name(str_of(state_text), &state)) {
        say(verify, "value", "values are of their column's kind", "state is %s", state_text);
        return;
    }
    int64_t there = number(verify, row, "operations"), expected = verify->live[state] + verify->dropped[state];
    if (there != expected)
        say(verify, "counter", "a state's counter is the number of its operations and tombstones",
            "it says %lld, there are %lld", (long long)there, (long long)expected);
    verify->live[state] = verify->dropped[state] = 0; /* the rest has no counter */
}

static void check_inbound_forward(struct verify *verify, const struct row *row)
{
    enum forward_status forward;
    const char *status = text(verify, row, "forward");
    if (!forward_status_from_name(str_of(status), &forward))
        say(verify, "value", "values are of their column's kind", "forward is %s", status);
    else if (forward != FORWARD_NONE && number(verify, row, "forward_at_ms") <= 0)
        say(verify, "forward-times", "an event that is forwarded has a time for it", "%s, and none", status);
}

static void check_inbound(struct verify *verify, const struct row *row)
{
    enum inbound_status status;
    enum inbound_outcome outcome;
    enum inbound_match match;
    const char *operation = text(verify, row, "operation");
    verify->id = text(verify, row, "id");
    if (!inbound_status_from_name(str_of(text(verify, row, "status")), &status) ||
        !inbound_outcome_from_name(str_of(text(verify, row, "outcome")), &outcome) ||
        !inbound_match_from_name(str_of(text(verify, row, "match")), &match)) {
        say(verify, "value", "values are of their column's kind", "%s, %s, %s", text(verify, row, "status"),
            text(verify, row, "outcome"), text(verify, row, "match"));
        return;
    }
    if ((status == INBOUND_APPLIED) != (operation != NULL))
        say(verify, "inbox-applied", "an event that was applied says to which operation, and no other does", "%s, %s",
            inbound_status_name(status), operation ? operation : "no operation");
    if ((status == INBOUND_WAITING) != (number(verify, row, "settled_ms") == 0))
        say(verify, "inbox-settled", "an event has a time of its end unless it waits", "%s, settled_ms is %lld",
            inbound_status_name(status), (long long)number(verify, row, "settled_ms"));
    if ((number(verify, row, "duplicates") > 0) != (number(verify, row, "duplicate_ms") > 0))
        say(verify, "inbox-duplicates", "further deliveries and the time of the last come together", "%lld, %lld",
            (long long)number(verify, row, "duplicates"), (long long)number(verify, row, "duplicate_ms"));
    struct audit_other other = find_other(verify, operation);
    if (operation)
        check_named(verify, &other, operation, NULL);
    check_inbound_forward(verify, row);
}

static void check_inbox_count(struct verify *verify, const struct row *row)
{
    verify->id = text(verify, row, "source");
    int64_t settled = number(verify, row, "applied") + number(verify, row, "ignored") + number(verify, row, "dropped");
    if (settled > number(verify, row, "events"))
        say(verify, "inbox-counts", "no more events of a source ended than came", "%lld came, %lld ended",
            (long long)number(verify, row, "events"), (long long)settled);
}

static void check_entity(struct verify *verify, const struct row *row)
{
    const char *tenant = text(verify, row, "tenant"), *type = text(verify, row, "type"), *id = text(verify, row, "id");
    const char *holder = text(verify, row, "holder");
    struct claims claims;
    verify->id = arena_printf(&verify->arena, "%s/%s/%s", tenant, type, id);
    if ((holder != NULL) != (number(verify, row, "held_ms") != 0))
        say(verify, "held-since", "who holds an entity and since when come together", "%s, %lld",
            holder ? holder : "nobody", (long long)number(verify, row, "held_ms"));
    if (!holder)
        return;
    struct audit_other other = find_other(verify, holder);
    if (!other.op || !text_equal(other.op->tenant, tenant))
        say(verify, "holder", "who holds an entity is an operation of the tenant (9.1)", "%s is not", holder);
    else if (state_terminal(other.op->state))
        say(verify, "holder", "who holds an entity has not ended (9.1)", "%s is %s", holder,
            state_name(other.op->state));
    else if (claims_read(&verify->arena, other.op->claims, &claims, NULL) == 0 && !claims_entity(&claims, type, id))
        say(verify, "holder", "who holds an entity claims it (9.1)", "%s does not", holder);
}

static void check_wait(struct verify *verify, const struct row *row)
{
    const char *tenant = text(verify, row, "tenant"), *type = text(verify, row, "type"), *id = text(verify, row, "id");
    const char *operation = text(verify, row, "operation");
    struct claims claims;
    verify->id =
        arena_printf(&verify->arena, "%s/%s/%s/%lld", tenant, type, id, (long long)number(verify, row, "ticket"));
    struct audit_other other = find_other(verify, operation);
    if (!other.op || !text_equal(other.op->tenant, tenant))
        say(verify, "waiter", "who waits for an entity is an operation of the tenant (9.1)", "%s is not", operation);
    else if (other.op->state != STATE_PLANNED)
        say(verify, "waiter", "who waits for an entity is planned (9.1)", "%s is %s", operation,
            state_name(other.op->state));
    else if (claims_read(&verify->arena, other.op->claims, &claims, NULL) == 0 && !claims_entity(&claims, type, id))
        say(verify, "waiter", "who waits for an entity claims it (9.1)", "%s does not", operation);
}

static void check_window(struct verify *verify, const struct row *row)
{
    const char *tenant = text(verify, row, "tenant"), *key = text(verify, row, "key");
    const char *operation = text(verify, row, "operation");
    struct claims claims;
    verify->id = arena_printf(&verify->arena, "%s/%s/%s", tenant, key, operation);
    struct audit_other other = find_other(verify, operation);
    check_named(verify, &other, operation, tenant);
    if (!other.op)
        return;
    if (!counts(other.op))
        say(verify, "window", "who stands in a window may have had an effect (9.2)", "%s is %s", operation,
            state_name(other.op->state));
    if (claims_read(&verify->arena, other.op->claims, &claims, NULL) == 0 &&
        (!text_equal(claims.window, key) || number(verify, row, "at_ms") != other.op->created_ms ||
         number(verify, row, "until_ms") != other.op->created_ms + claims.window_per_ms))
        say(verify, "window", "a window begins with its operation and lasts as long as that says (9.2)", "%lld to %lld",
            (long long)number(verify, row, "at_ms"), (long long)number(verify, row, "until_ms"));
}

/* Operations of about that time that were dropped count on, and their claims are gone with their rows. */
static bool some_dropped(struct verify *verify, int64_t since_ms)
{
    int64_t count = 0;
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM tombstones WHERE completed_ms >= %lld", (long long)since_ms);
    bulk_number(verify->bulk, sql, &count, verify->err);
    return count > 0;
}

static void check_slice(struct verify *verify, const struct row *row)
{
    int64_t start_ms = number(verify, row, "start_ms"), until_ms = number(verify, row, "until_ms");
    int64_t over_ms = number(verify, row, "over_ms");
    struct decimal amount;
    char there[DECIMAL_TEXT_BYTES], expected[DECIMAL_TEXT_BYTES];
    verify->id = slice_key(verify, text(verify, row, "tenant"), text(verify, row, "budget"),
                           text(verify, row, "subject"), text(verify, row, "key"), start_ms, until_ms);
    if (decimal_read(str_of(text(verify, row, "amount")), &amount, NULL)) {
        say(verify, "value", "values are of their column's kind", "amount is %s", text(verify, row, "amount"));
        return;
    }
    struct slice *slice = map_get(&verify->slices, verify->id);
    struct decimal sum = slice ? slice->sum : decimal_of(0);
    if (slice)
        slice->seen = true;
    int order = over_ms <= verify->newest_ms ? 0 : decimal_compare(amount, sum);
    if (order == 0 || (order > 0 && (verify->report->unchecked_slices || some_dropped(verify, start_ms))))
        return;
    decimal_write(amount, there);
    decimal_write(sum, expected);
    say(verify, "budget", "a slice of a budget is the sum of its operations (9.4)", "it says %s, they make %s", there,
        expected);
}

static void (*const checks[TABLE_IDS])(struct verify *verify, const struct row *row) = {
    [TABLE_INCIDENTS] = check_incident,  [TABLE_TOMBSTONES] = check_tombstone, [TABLE_PRINCIPALS] = check_token,
    [TABLE_COUNTERS] = check_counter,    [TABLE_INBOX] = check_inbound,        [TABLE_INBOX_COUNTS] = check_inbox_count,
    [TABLE_ENTITIES] = check_entity,     [TABLE_ENTITY_WAITS] = check_wait,    [TABLE_WINDOWS] = check_window,
    [TABLE_BUDGET_SLICES] = check_slice,
};

static void check_table(struct verify *verify, enum table_id table)
{
    struct bulk_walk walk;
    const struct row *row;
    bulk_walk_begin(&walk, verify->bulk, table);
    while (!verify->err->code && (row = bulk_walk_next(&walk, verify->err))) {
        verify->table = table;
        verify->report->rows[table]++;
        checks[table](verify, row);
        arena_reset(&verify->arena);
    }
    bulk_walk_end(&walk);
}

/* ---- what is missing in them ---- */

static void check_uncounted(struct verify *verify)
{
    verify->table = TABLE_COUNTERS;
    for (int state = 0; state < STATE_COUNT; state++) {
        long long there = verify->live[state] + verify->dropped[state];
        verify->id = state_name((enum state)state);
        if (there > 0)
            say(verify, "counter", "a state's counter is the number of its operations and tombstones",
                "it says nothing, there are %lld", there);
    }
}

static void check_unseen_slices(struct verify *verify)
{
    size_t at = 0;
    char sum[DECIMAL_TEXT_BYTES];
    verify->table = TABLE_BUDGET_SLICES;
    for (struct slice *slice; (slice = map_next(&verify->slices, &at));) {
        verify->id = slice->key;
        decimal_write(slice->sum, sum);
        if (!slice->seen && slice->sum.units != 0)
            say(verify, "budget", "a slice of a budget is the sum of its operations (9.4)",
                "it is not there, they make %s", sum);
    }
}

/* SQLite's table of what may hold other calls follows from the rows. */
static void check_doubts(struct verify *verify)
{
#define IN_DOUBT                                                                                                       \
    "open = 1 AND (orphaned = 1 OR unknown_since_ms <> 0 OR state = (SELECT number FROM names WHERE kind = 'state' "   \
    "AND text = 'unknown_outcome'))"
    int64_t missing = 0, extra = 0;
    if (verify->bulk->postgres ||
        bulk_number(verify->bulk,
                    "SELECT count(*) FROM operations WHERE " IN_DOUBT " AND n NOT IN (SELECT operation FROM doubts)",
                    &missing, verify->err) ||
        bulk_number(verify->bulk,
                    "SELECT count(*) FROM doubts WHERE operation NOT IN (SELECT n FROM operations WHERE " IN_DOUBT ")",
                    &extra, verify->err))
        return;
    verify->table = TABLE_OPERATIONS;
    verify->id = "doubts";
    if (missing || extra)
        say(verify, "doubts", "the table of doubts holds what may hold other calls, and nothing else (2.9)",
            "%lld are missing, %lld are too many", (long long)missing, (long long)extra);
#undef IN_DOUBT
}

/* ---- all ---- */

static void release(struct verify *verify)
{
    size_t at = 0;
    for (struct slice *slice; (slice = map_next(&verify->slices, &at));)
        free(slice);
    map_release(&verify->slices);
    arena_release(&verify->arena);
}

enum err_code ledger_verify(struct bulk *bulk, const struct verify_listener *listener, struct verify_report *out,
                            struct err *err)
{
    struct verify verify = {.bulk = bulk, .listener = listener, .report = out, .err = err};
    *out = (struct verify_report){0};
    arena_init(&verify.arena);
    map_init(&verify.slices);
    if (bulk_begin(bulk, false, err) == 0 &&
        bulk_number(bulk, "SELECT max(updated_ms) FROM operations", &verify.newest_ms, err) == 0) {
        check_operations(&verify);
        check_table(&verify, TABLE_INCIDENTS);
        check_table(&verify, TABLE_TOMBSTONES);
        for (int table = TABLE_PRINCIPALS; table < TABLE_IDS; table++)
            check_table(&verify, (enum table_id)table);
    }
    if (!err->code) {
        check_uncounted(&verify);
        check_unseen_slices(&verify);
        check_doubts(&verify);
    }
    if (err->code)
        bulk_rollback(bulk);
    else
        bulk_commit(bulk, err);
    release(&verify);
    return err->code;
}
