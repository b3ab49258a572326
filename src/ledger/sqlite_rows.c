/* Records ⇄ rows. Binding and decoding go by position: the order of the calls is the order of the column lists in
 * sqlite_store.h and of the statements in sqlite_store.c. */
#include "ledger/sqlite_store.h"

/* ---- binding ---- */

struct binder {
    sqlite3_stmt *statement;
    const struct store_names *names;
    int column;
};

void bind_text(sqlite3_stmt *statement, int column, const char *text)
{
    sqlite3_bind_text(statement, column, text, -1, SQLITE_STATIC); /* NULL binds NULL */
}

static void put_text(struct binder *to, const char *text)
{
    bind_text(to->statement, ++to->column, text);
}

static void put_str(struct binder *to, struct str text)
{
    sqlite3_bind_text64(to->statement, ++to->column, text.p, text.n, SQLITE_STATIC, SQLITE_UTF8);
}

static void put_int(struct binder *to, int64_t value)
{
    sqlite3_bind_int64(to->statement, ++to->column, value);
}

static void put_digest(struct binder *to, const struct digest *digest)
{
    sqlite3_bind_blob(to->statement, ++to->column, digest->b, DIGEST_BYTES, SQLITE_STATIC);
}

static void put_name(struct binder *to, enum name_kind kind, int value)
{
    put_int(to, to->names->number[kind][value]);
}

/* Value of a digit in Crockford's base 32 plus one, 0 for all else. */
static const unsigned char digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
    ['G'] = 17, ['H'] = 18, ['J'] = 19, ['K'] = 20, ['M'] = 21, ['N'] = 22, ['P'] = 23, ['Q'] = 24,
    ['R'] = 25, ['S'] = 26, ['T'] = 27, ['V'] = 28, ['W'] = 29, ['X'] = 30, ['Y'] = 31, ['Z'] = 32,
};

/* "op_" + ULID: ten characters of time, sixteen of randomness, of which the last three count here. */
int64_t operation_place(const char *id)
{
    enum { TIME_CHARS = 10, LOW_CHARS = 3 };
    uint64_t time = 0, low = 0;
    int i = 0;
    if (strncmp(id, "op_", 3) == 0)
        for (int digit; i < ULID_CHARS && (digit = digits[(unsigned char)id[3 + i]]) > 0; i++) {
            if (i < TIME_CHARS)
                time = time << 5 | (uint64_t)(digit - 1);
            else if (i >= ULID_CHARS - LOW_CHARS)
                low = low << 5 | (uint64_t)(digit - 1);
        }
    if (i == ULID_CHARS && id[3 + ULID_CHARS] == '\0' && time >> 48 == 0)
        return (int64_t)(time << 15 | low);
    return (int64_t)(text_hash(TEXT_HASH_START, id) >> 2); /* never made by onced; still finds its row */
}

void bind_id(sqlite3_stmt *statement, const char *id)
{
    sqlite3_bind_int64(statement, 1, operation_place(id));
    bind_text(statement, 2, id);
}

struct admitted bind_operation(struct store *store, sqlite3_stmt *statement, int64_t n,
                               const struct ledger_admit *admit)
{
    struct binder to = {statement, &store->names, 0};
    const struct operation *op = admit->admission.op;
    struct admitted plain = admitted_plain(admit);
    put_int(&to, n);
    put_text(&to, op->id);
    put_text(&to, op->tenant);
    put_text(&to, op->tool);
    put_text(&to, op->principal);
    put_text(&to, op->run);
    put_int(&to, !state_terminal(op->state));
    put_name(&to, NAME_STATE, (int)op->state);
    put_name(&to, NAME_REASON, (int)op->reason);
    put_int(&to, op->rev);
    put_text(&to, op->owner);
    put_int(&to, op->lease_until_ms);
    put_int(&to, op->wake_at_ms);
    put_int(&to, op->delivered);
    put_int(&to, op->orphaned);
    put_digest(&to, &op->key_hash);
    put_int(&to, op->key_version);
    put_int(&to, operation_repeat_hash(op));
    put_digest(&to, &op->fingerprint);
    if (digest_equal(&op->base_hash, &op->key_hash))
        put_text(&to, NULL);
    else
        put_digest(&to, &op->base_hash);
    put_name(&to, NAME_KEY_SOURCE, (int)op->key_source);
    put_int(&to, op->canonical_version);
    put_text(&to, op->key);
    put_text(&to, op->policy_version);
    put_text(&to, op->workflow);
    put_text(&to, op->step);
    put_text(&to, op->session);
    put_text(&to, op->call);
    put_text(&to, op->trace);
    put_text(&to, op->repeat_of);
    put_text(&to, op->distinct_from);
    put_text(&to, op->previous);
    put_text(&to, op->provider_key);
    put_int(&to, op->created_ms);
    put_int(&to, op->not_before_ms);
    put_int(&to, op->may_have_applied);
    put_int(&to, op->attempts);
    put_int(&to, op->lookups);
    put_int(&to, op->tries);
    put_int(&to, op->first_sent_ms);
    put_int(&to, op->last_sent_ms);
    put_int(&to, op->unknown_since_ms);
    put_int(&to, op->updated_ms);
    put_int(&to, op->completed_ms);
    put_int(&to, op->retries);
    put_int(&to, op->absent_count);
    put_int(&to, op->watch_next);
    put_int(&to, op->retain_until_ms);
    put_int(&to, op->http_status);
    put_text(&to, op->external_id);
    put_int(&to, op->result_bytes);
    put_int(&to, op->result_dropped);
    put_int(&to, op->duplicate_seen);
    put_str(&to, op->approval);
    put_int(&to, op->ready_ms);
    put_str(&to, op->claims);
    put_text(&to, op->compensates);
    put_text(&to, op->playbook);
    put_text(&to, op->escalation);
    put_text(&to, op->compensation);
    put_text(&to, op->parent);
    put_str(&to, op->steps);
    if (plain.event) {
        put_name(&to, NAME_STATE, (int)op->state);
        put_name(&to, NAME_REASON, (int)admit->event.reason);
    } else {
        put_text(&to, NULL);
        put_text(&to, NULL);
    }
    put_text(&to, plain.attempt ? admit->attempt->id : NULL);
    put_str(&to, op->arguments);
    put_str(&to, op->result);
    put_str(&to, op->error);
    return plain;
}

int bind_life(struct store *store, sqlite3_stmt *statement, const struct operation *op, bool orphaned)
{
    struct binder to = {statement, &store->names, 0};
    put_int(&to, !state_terminal(op->state));
    put_name(&to, NAME_STATE, (int)op->state);
    put_name(&to, NAME_REASON, (int)op->reason);
    put_int(&to, op->rev);
    put_text(&to, op->owner);
    put_int(&to, op->lease_until_ms);
    put_int(&to, op->wake_at_ms);
    put_int(&to, orphaned);
    put_int(&to, op->may_have_applied);
    put_int(&to, op->attempts);
    put_int(&to, op->lookups);
    put_int(&to, op->tries);
    put_int(&to, op->first_sent_ms);
    put_int(&to, op->last_sent_ms);
    put_int(&to, op->unknown_since_ms);
    put_int(&to, op->updated_ms);
    put_int(&to, op->completed_ms);
    put_int(&to, op->retries);
    put_int(&to, op->absent_count);
    put_int(&to, op->watch_next);
    put_int(&to, op->retain_until_ms);
    put_int(&to, op->http_status);
    put_text(&to, op->external_id);
    put_int(&to, op->result_bytes);
    put_int(&to, op->result_dropped);
    put_int(&to, op->duplicate_seen);
    put_str(&to, op->approval);
    put_int(&to, op->ready_ms);
    put_text(&to, op->compensation);
    put_str(&to, op->steps);
    put_str(&to, op->result);
    put_str(&to, op->error);
    return to.column;
}

static void put_event(struct binder *to, const struct event *event)
{
    put_int(to, event->at_ms);
    put_name(to, NAME_CAUSE, (int)event->cause);
    put_name(to, NAME_STATE, (int)event->from);
    put_name(to, NAME_STATE, (int)event->to);
    put_name(to, NAME_REASON, (int)event->reason);
    put_int(to, event->attempt);
    put_text(to, event->actor);
    put_text(to, event->note);
}

static void put_attempt(struct binder *to, const struct attempt *attempt)
{
    put_int(to, attempt->number);
    put_text(to, attempt->id);
    put_name(to, NAME_ATTEMPT_KIND, (int)attempt->kind);
    put_name(to, NAME_OUTCOME, (int)attempt->outcome);
    put_int(to, attempt->started_ms);
    put_int(to, attempt->finished_ms);
    put_int(to, attempt->http_status);
    put_text(to, attempt->provider_request_id);
    put_text(to, attempt->detail);
}

static void put_nulls(struct binder *to, int count)
{
    while (count-- > 0)
        sqlite3_bind_null(to->statement, ++to->column);
}

void bind_history(struct store *store, sqlite3_stmt *statement, int64_t n, int64_t sequence, const struct event *event,
                  const struct attempt *attempt)
{
    enum { EVENT_FIELDS = 8, ATTEMPT_FIELDS = 9 };
    struct binder to = {statement, &store->names, 0};
    put_int(&to, n);
    put_int(&to, sequence);
    if (event)
        put_event(&to, event);
    else
        put_nulls(&to, EVENT_FIELDS);
    if (attempt)
        put_attempt(&to, attempt);
    else
        put_nulls(&to, ATTEMPT_FIELDS);
}

void bind_incident(struct store *store, sqlite3_stmt *statement, const struct incident *incident)
{
    struct binder to = {statement, &store->names, 0};
    put_text(&to, incident->id);
    put_text(&to, incident->tenant);
    put_text(&to, incident->operation);
    put_name(&to, NAME_INCIDENT_KIND, (int)incident->kind);
    put_int(&to, incident->at_ms);
    put_text(&to, incident->note);
    put_text(&to, incident->acknowledged_by);
    put_int(&to, incident->acknowledged_ms);
}

void bind_tombstone(struct store *store, sqlite3_stmt *statement, const struct tombstone *stone)
{
    struct binder to = {statement, &store->names, 0};
    put_text(&to, stone->operation);
    put_text(&to, stone->tenant);
    put_text(&to, stone->tool);
    put_text(&to, stone->principal);
    put_digest(&to, &stone->key_hash);
    put_int(&to, stone->key_version);
    put_digest(&to, &stone->fingerprint);
    put_int(&to, stone->canonical_version);
    put_name(&to, NAME_KEY_SOURCE, (int)stone->key_source);
    put_name(&to, NAME_STATE, (int)stone->state);
    put_int(&to, stone->completed_ms);
    put_int(&to, stone->dropped_ms);
    put_text(&to, stone->external_id);
}

void bind_token(struct store *store, sqlite3_stmt *statement, const struct token *token)
{
    struct binder to = {statement, &store->names, 0};
    put_text(&to, token->id);
    put_digest(&to, &token->secret_hash);
    put_text(&to, token->tenant);
    put_text(&to, token->principal);
    put_name(&to, NAME_ROLE, (int)token->role);
    put_int(&to, token->created_ms);
    put_int(&to, token->expires_ms);
    put_int(&to, token->revoked_ms);
    put_text(&to, token->tools);
    put_text(&to, token->entities);
}

/* ---- decoding ---- */

struct reader {
    sqlite3_stmt *row;
    struct arena *arena;
    const struct store_names *names;
    int column;
    const char *strange; /* what could not be understood */
};

static int64_t take_int(struct reader *from)
{
    return sqlite3_column_int64(from->row, from->column++);
}

static bool take_bool(struct reader *from)
{
    return take_int(from) != 0;
}

static struct str take_str(struct reader *from)
{
    const char *text = (const char *)sqlite3_column_text(from->row, from->column);
    size_t bytes = text ? (size_t)sqlite3_column_bytes(from->row, from->column) : 0;
    from->column++;
    return arena_str(from->arena, (struct str){text, bytes});
}

static const char *take_text(struct reader *from)
{
    return take_str(from).p;
}

/* Texts that may not be absent: what the schema calls NOT NULL. */
static const char *take_present(struct reader *from)
{
    const char *text = take_text(from);
    return text ? text : "";
}

static void take_id(struct reader *from, char out[OPERATION_ID_SIZE])
{
    const char *text = (const char *)sqlite3_column_text(from->row, from->column);
    int bytes = sqlite3_column_bytes(from->row, from->column++);
    if (!text || bytes >= OPERATION_ID_SIZE) {
        from->strange = "id";
        return;
    }
    memcpy(out, text, (size_t)bytes + 1);
}

static bool take_digest(struct reader *from, struct digest *out)
{
    const void *blob = sqlite3_column_blob(from->row, from->column);
    bool present = blob && sqlite3_column_bytes(from->row, from->column) == DIGEST_BYTES;
    from->column++;
    if (present)
        memcpy(out->b, blob, DIGEST_BYTES);
    return present;
}

static int take_name(struct reader *from, enum name_kind kind, const char *what)
{
    int64_t number = take_int(from);
    int value = number >= 0 && number < NAME_VALUES_MAX ? from->names->value[kind][number] : -1;
    if (value >= 0)
        return value;
    from->strange = what;
    return 0;
}

static enum err_code finish(struct store *store, const struct reader *from, struct err *err)
{
    return from->strange ? store_strange(store, from->strange, err) : ERR_NONE;
}

enum err_code row_operation(struct store *store, sqlite3_stmt *row, struct arena *arena, bool payload, int64_t *n,
                            struct operation **out, struct err *err)
{
    struct reader from = {row, arena, &store->names, 0, NULL};
    struct operation *op = arena_zero(arena, sizeof *op);
    int64_t place = take_int(&from);
    take_id(&from, op->id);
    op->tenant = take_present(&from);
    op->tool = take_present(&from);
    op->principal = take_present(&from);
    op->run = take_text(&from);
    op->state = (enum state)take_name(&from, NAME_STATE, "state");
    op->reason = (enum reason)take_name(&from, NAME_REASON, "reason");
    op->rev = take_int(&from);
    op->owner = take_text(&from);
    op->lease_until_ms = take_int(&from);
    op->wake_at_ms = take_int(&from);
    op->delivered = take_bool(&from);
    op->orphaned = take_bool(&from);
    if (!take_digest(&from, &op->key_hash))
        from.strange = "key hash";
    op->key_version = (int)take_int(&from);
    if (!take_digest(&from, &op->fingerprint))
        from.strange = "fingerprint";
    if (!take_digest(&from, &op->base_hash))
        op->base_hash = op->key_hash;
    op->key_source = (enum key_source)take_name(&from, NAME_KEY_SOURCE, "key source");
    op->canonical_version = (int)take_int(&from);
    op->key = take_text(&from);
    op->policy_version = take_text(&from);
    op->workflow = take_text(&from);
    op->step = take_text(&from);
    op->session = take_text(&from);
    op->call = take_text(&from);
    op->trace = take_text(&from);
    op->repeat_of = take_text(&from);
    op->distinct_from = take_text(&from);
    op->previous = take_text(&from);
    op->provider_key = take_text(&from);
    op->created_ms = take_int(&from);
    op->not_before_ms = take_int(&from);
    op->may_have_applied = take_bool(&from);
    op->attempts = (int)take_int(&from);
    op->lookups = (int)take_int(&from);
    op->tries = (int)take_int(&from);
    op->first_sent_ms = take_int(&from);
    op->last_sent_ms = take_int(&from);
    op->unknown_since_ms = take_int(&from);
    op->updated_ms = take_int(&from);
    op->completed_ms = take_int(&from);
    op->retries = (int)take_int(&from);
    op->absent_count = (int)take_int(&from);
    op->watch_next = (int)take_int(&from);
    op->retain_until_ms = take_int(&from);
    op->http_status = (int)take_int(&from);
    op->external_id = take_text(&from);
    op->result_bytes = take_int(&from);
    op->result_dropped = take_bool(&from);
    op->duplicate_seen = take_bool(&from);
    op->approval = take_str(&from);
    op->ready_ms = take_int(&from);
    op->claims = take_str(&from);
    op->compensates = take_text(&from);
    op->playbook = take_text(&from);
    op->escalation = take_text(&from);
    op->compensation = take_text(&from);
    op->parent = take_text(&from);
    op->steps = take_str(&from);
    if (payload) {
        op->arguments = take_str(&from);
        op->result = take_str(&from);
        op->error = take_str(&from);
    }
    if (finish(store, &from, err))
        return err->code;
    if (n)
        *n = place;
    *out = op;
    return ERR_NONE;
}

enum err_code row_attempt(struct store *store, sqlite3_stmt *row, struct arena *arena, struct attempt *out,
                          struct err *err)
{
    struct reader from = {row, arena, &store->names, 0, NULL};
    *out = (struct attempt){.number = (int)take_int(&from)};
    take_id(&from, out->id);
    out->kind = (enum attempt_kind)take_name(&from, NAME_ATTEMPT_KIND, "kind of attempt");
    out->outcome = (enum outcome)take_name(&from, NAME_OUTCOME, "outcome");
    out->started_ms = take_int(&from);
    out->finished_ms = take_int(&from);
    out->http_status = (int)take_int(&from);
    out->provider_request_id = take_text(&from);
    out->detail = take_text(&from);
    return finish(store, &from, err);
}

enum err_code row_event(struct store *store, sqlite3_stmt *row, struct arena *arena, struct event *out, struct err *err)
{
    struct reader from = {row, arena, &store->names, 0, NULL};
    out->at_ms = take_int(&from);
    out->cause = (enum cause)take_name(&from, NAME_CAUSE, "cause");
    out->from = (enum state)take_name(&from, NAME_STATE, "state");
    out->to = (enum state)take_name(&from, NAME_STATE, "state");
    out->reason = (enum reason)take_name(&from, NAME_REASON, "reason");
    out->attempt = (int)take_int(&from);
    out->actor = take_text(&from);
    out->note = take_text(&from);
    return finish(store, &from, err);
}

enum err_code row_incident(struct store *store, sqlite3_stmt *row, struct arena *arena, struct incident *out,
                           struct err *err)
{
    struct reader from = {row, arena, &store->names, 0, NULL};
    *out = (struct incident){0};
    take_id(&from, out->id);
    out->tenant = take_present(&from);
    out->operation = take_present(&from);
    out->kind = (enum incident_kind)take_name(&from, NAME_INCIDENT_KIND, "kind of incident");
    out->at_ms = take_int(&from);
    out->note = take_text(&from);
    out->acknowledged_by = take_text(&from);
    out->acknowledged_ms = take_int(&from);
    return finish(store, &from, err);
}

enum err_code row_tombstone(struct store *store, sqlite3_stmt *row, struct arena *arena, struct tombstone **out,
                            struct err *err)
{
    struct reader from = {row, arena, &store->names, 0, NULL};
    struct tombstone *stone = arena_zero(arena, sizeof *stone);
    take_id(&from, stone->operation);
    stone->tenant = take_present(&from);
    stone->tool = take_present(&from);
    stone->principal = take_present(&from);
    if (!take_digest(&from, &stone->key_hash))
        from.strange = "key hash";
    stone->key_version = (int)take_int(&from);
    if (!take_digest(&from, &stone->fingerprint))
        from.strange = "fingerprint";
    stone->canonical_version = (int)take_int(&from);
    stone->key_source = (enum key_source)take_name(&from, NAME_KEY_SOURCE, "key source");
    stone->state = (enum state)take_name(&from, NAME_STATE, "state");
    stone->completed_ms = take_int(&from);
    stone->dropped_ms = take_int(&from);
    stone->external_id = take_text(&from);
    if (finish(store, &from, err) == 0)
        *out = stone;
    return err->code;
}

enum err_code row_token(struct store *store, sqlite3_stmt *row, struct arena *arena, struct token *out, struct err *err)
{
    struct reader from = {row, arena, &store->names, 0, NULL};
    struct token token = {.id = take_present(&from)};
    if (!take_digest(&from, &token.secret_hash))
        from.strange = "secret hash";
    token.tenant = take_present(&from);
    token.principal = take_present(&from);
    token.role = (enum role)take_name(&from, NAME_ROLE, "role");
    token.created_ms = take_int(&from);
    token.expires_ms = take_int(&from);
    token.revoked_ms = take_int(&from);
    token.tools = take_text(&from);
    token.entities = take_text(&from);
    if (finish(store, &from, err) == 0)
        *out = token;
    return err->code;
}

/* ---- one row ---- */

enum err_code read_operation(struct store *store, sqlite3_stmt *statement, struct arena *arena, bool payload,
                             int64_t *n, struct operation **out, struct err *err)
{
    bool found;
    *out = NULL;
    if (store_step(store, statement, &found, err) || !found)
        return err->code;
    row_operation(store, statement, arena, payload, n, out, err);
    sqlite3_reset(statement);
    return err->code;
}

enum err_code read_tombstone(struct store *store, sqlite3_stmt *statement, struct arena *arena, struct tombstone **out,
                             struct err *err)
{
    bool found;
    *out = NULL;
    if (store_step(store, statement, &found, err) || !found)
        return err->code;
    row_tombstone(store, statement, arena, out, err);
    sqlite3_reset(statement);
    return err->code;
}
