/* A ledger file that something has damaged: every command either gives records that are whole, or says what is wrong.
 * The first byte says how: bit 0 damages values (any value into any column, as an editor would), else bytes of the file
 * (as a disk would); bit 1 leaves out the check at the start, as after damage that comes later.
 *
 *   values: table, column, row, type, length, bytes …      bytes: offset (3 bytes), new byte … */
#include "fuzz.h"

#include "base/mem.h"
#include "core/identity.h"
#include "ledger/ledger.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOW_MS INT64_C(1790000000000)
#define ROWS   6

struct file {
    char folder[64], path[80];
    struct buf sound; /* the bytes of the undamaged file */
    char ids[ROWS][OPERATION_ID_SIZE];
};

static int64_t fixed_now(struct env *env)
{
    (void)env;
    return NOW_MS;
}

static void fixed_random(struct env *env, void *out, size_t n)
{
    static unsigned char last;
    (void)env;
    for (unsigned char *p = out; n-- > 0;)
        *p++ = last = (unsigned char)(last * 5 + 3);
}

static struct env env = {fixed_now, fixed_random};

/* ---- the sound file ---- */

static enum err_code ask(struct ledger *ledger, struct ledger_request *request)
{
    return ledger_call(ledger, request);
}

static void admit(struct ledger *ledger, struct arena *arena, struct file *file, struct ulid_source *ids, int i)
{
    struct operation *op = arena_zero(arena, sizeof *op);
    struct ledger_request request = {.command = LEDGER_ADMIT, .arena = arena};
    struct attempt attempt = {.id = "at_01ARZ3NDEKTSV4RRFFQ69G5FAV", .number = 1, .started_ms = NOW_MS};
    char ulid[ULID_CHARS + 1];
    ulid_next(ids, ulid);
    snprintf(op->id, sizeof op->id, "op_%s", ulid);
    memcpy(file->ids[i], op->id, sizeof op->id);
    op->tenant = "acme", op->tool = "refund", op->principal = "agent", op->policy_version = "p", op->run = "r";
    op->key = arena_printf(arena, "k%d", i);
    op->key_hash = op->base_hash = identity_key_hash(op->tenant, op->tool, op->key, NULL);
    op->key_version = 1, op->rev = 1, op->canonical_version = 1;
    op->key_source = i == 1 ? KEY_SOURCE_REPEAT : KEY_SOURCE_CALLER;
    op->provider_key = op->id, op->arguments = i == 1 ? STR("{\"n\":2}") : STR("{\"n\":1}");
    op->fingerprint = digest_sha256(op->arguments);
    op->created_ms = op->updated_ms = NOW_MS - 1000;
    op->state = STATE_DISPATCHED, op->may_have_applied = true, op->attempts = op->tries = 1;
    op->owner = "gw_1", op->lease_until_ms = op->wake_at_ms = NOW_MS - 1;
    request.admit.admission.op = op;
    request.admit.attempt = &attempt;
    request.admit.event = (struct event){.at_ms = op->created_ms, .from = op->state, .to = op->state, .actor = "agent"};
    CHECK(ask(ledger, &request) == 0 && request.admit.result.verdict == VERDICT_NEW);
    static const enum state ends[ROWS] = {STATE_UNKNOWN_OUTCOME,   STATE_COMPLETED_SUCCESS, STATE_FAILED_PERMANENT,
                                          STATE_COMPLETED_SUCCESS, STATE_FAILED_RETRYABLE,  STATE_UNKNOWN_OUTCOME};
    struct ledger_request move = {.command = LEDGER_TRANSITION, .arena = arena};
    op->rev++, op->state = ends[i], op->owner = NULL, op->lease_until_ms = 0, op->wake_at_ms = NOW_MS - 5;
    op->unknown_since_ms = op->state == STATE_UNKNOWN_OUTCOME ? NOW_MS - 10 : 0;
    op->completed_ms = state_terminal(op->state) ? NOW_MS - 10 : 0;
    op->result = STR("{\"id\":\"re_1\"}"), op->external_id = "re_1";
    move.transition =
        (struct ledger_transition){.op = op, .event_count = 1, .attempt_count = 1, .incident_count = i == 0};
    move.transition.events[0] = (struct event){.cause = CAUSE_ANSWER, .from = STATE_DISPATCHED, .to = op->state};
    move.transition.events[0].actor = "onced", move.transition.events[0].note = "a note";
    move.transition.attempts[0] = attempt;
    move.transition.attempts[0].outcome = OUTCOME_SUCCESS;
    move.transition.incidents[0] = (struct incident){.id = "in_01ARZ3NDEKTSV4RRFFQ69G5FAV", .tenant = "acme"};
    move.transition.incidents[0].operation = op->id;
    CHECK(ask(ledger, &move) == 0);
    if (i == 3) {
        struct ledger_request expire = {.command = LEDGER_EXPIRE, .arena = arena};
        expire.expire = (struct ledger_expire){.operation = op->id, .rev = 2, .now_ms = NOW_MS};
        CHECK(ask(ledger, &expire) == 0);
    }
}

static void read_file(struct file *file)
{
    char part[4096];
    ssize_t n;
    int fd = open(file->path, O_RDONLY);
    CHECK(fd >= 0);
    buf_init(&file->sound, 0);
    while ((n = read(fd, part, sizeof part)) > 0)
        buf_add(&file->sound, part, (size_t)n);
    close(fd);
}

static void remove_files(struct file *file)
{
    static const char *const endings[] = {"", "-wal", "-shm", ".lock", "-journal"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", file->path, endings[i]);
        unlink(name);
    }
}

static struct file *make_file(void)
{
    static struct file file;
    struct arena arena;
    struct ulid_source ids;
    struct ledger *ledger;
    struct err err = {0};
    if (file.path[0])
        return &file;
    arena_init(&arena);
    snprintf(file.folder, sizeof file.folder, "%s/onced-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(file.folder));
    snprintf(file.path, sizeof file.path, "%s/l", file.folder);
    struct ledger_sqlite_options options = {.path = file.path};
    CHECK(ledger_sqlite_open(&options, &env, &ledger, &err) == 0);
    ulid_source_init(&ids, &env);
    for (int i = 0; i < ROWS; i++)
        admit(ledger, &arena, &file, &ids, i);
    struct ledger_request token = {.command = LEDGER_TOKEN_ADD, .arena = &arena};
    token.token.token = (struct token){.id = "tok_01ARZ3NDEKTSV4RRFFQ69G5FAV", .tenant = "acme", .principal = "agent"};
    CHECK(ask(ledger, &token) == 0);
    ledger_close(ledger);
    read_file(&file);
    remove_files(&file);
    arena_release(&arena);
    return &file;
}

static void forget_file(void)
{
    struct file *file = make_file();
    remove_files(file);
    rmdir(file->folder);
    buf_release(&file->sound);
}

/* ---- damage ---- */

static unsigned next(struct str *input)
{
    if (input->n == 0)
        return 0;
    input->n--;
    return (unsigned char)*input->p++;
}

static void damage_bytes(struct str input, char *bytes, size_t n)
{
    while (input.n >= 4) {
        size_t offset = (size_t)next(&input) << 16 | (size_t)next(&input) << 8 | next(&input);
        bytes[offset % n] = (char)next(&input);
    }
}

static const char *table_name(unsigned i)
{
    static const char *const names[] = {"operations", "operations", "operations", "history",  "history", "incidents",
                                        "tombstones", "principals", "doubts",     "counters", "names",   "meta"};
    return names[i % (sizeof names / sizeof *names)];
}

static void bind(sqlite3_stmt *statement, unsigned type, struct str *input)
{
    size_t n = next(input);
    struct str bytes = {input->p, n < input->n ? n : input->n};
    input->p += bytes.n;
    input->n -= bytes.n;
    int64_t number = 0;
    for (size_t i = 0; i < bytes.n && i < 8; i++)
        number = (int64_t)((uint64_t)number << 8 | (unsigned char)bytes.p[i]);
    switch (type % 6) {
    case 0: sqlite3_bind_null(statement, 1); break;
    case 1: sqlite3_bind_int64(statement, 1, number); break;
    case 2: sqlite3_bind_text(statement, 1, bytes.p, (int)bytes.n, SQLITE_TRANSIENT); break;
    case 3: sqlite3_bind_blob(statement, 1, bytes.p, (int)bytes.n, SQLITE_TRANSIENT); break;
    case 4: sqlite3_bind_double(statement, 1, (double)number * 1e10); break;
    case 5: sqlite3_bind_int64(statement, 1, -number); break;
    }
}

static void damage_value(sqlite3 *db, struct str *input)
{
    char text[256];
    sqlite3_stmt *columns, *update;
    const char *table = table_name(next(input));
    unsigned column = next(input), row = next(input), type = next(input);
    snprintf(text, sizeof text,
             "SELECT name FROM pragma_table_info('%s') ORDER BY cid LIMIT 1 OFFSET %u %% (SELECT "
             "count(*) FROM pragma_table_info('%s'))",
             table, column, table);
    CHECK(sqlite3_prepare_v2(db, text, -1, &columns, NULL) == SQLITE_OK && sqlite3_step(columns) == SQLITE_ROW);
    const char *name = (const char *)sqlite3_column_text(columns, 0);
    const char *key = strcmp(table, "history") == 0 ? "operation" : strcmp(table, "names") == 0 ? "kind" : NULL;
    if (!key) /* the first column is the primary key */
        key = strcmp(table, "operations") == 0   ? "n"
              : strcmp(table, "tombstones") == 0 ? "operation"
              : strcmp(table, "doubts") == 0     ? "operation"
              : strcmp(table, "counters") == 0   ? "state"
              : strcmp(table, "meta") == 0       ? "name"
                                                 : "id";
    snprintf(text, sizeof text, "UPDATE OR IGNORE %s SET \"%s\" = ?1 WHERE %s = (SELECT %s FROM %s LIMIT 1 OFFSET %u)",
             table, name, key, key, table, row % 8);
    CHECK(sqlite3_prepare_v2(db, text, -1, &update, NULL) == SQLITE_OK);
    bind(update, type, input);
    sqlite3_step(update); /* STRICT tables refuse some */
    sqlite3_finalize(update);
    sqlite3_finalize(columns);
}

static void damage_values(const struct file *file, struct str input)
{
    sqlite3 *db;
    CHECK(sqlite3_open(file->path, &db) == SQLITE_OK);
    sqlite3_exec(db, "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF", NULL,
                 NULL, NULL);
    for (int i = 0; i < 6 && input.n >= 4; i++)
        damage_value(db, &input);
    sqlite3_close(db);
}

static void write_damaged(struct file *file, struct str input, bool values)
{
    char *bytes = mem_alloc(file->sound.n);
    memcpy(bytes, file->sound.p, file->sound.n);
    if (!values)
        damage_bytes(input, bytes, file->sound.n);
    int fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, file->sound.n) == (ssize_t)file->sound.n);
    close(fd);
    free(bytes);
    if (values)
        damage_values(file, input);
}

/* ---- what comes out is whole ---- */

static size_t sum_text(const char *text)
{
    return text ? strlen(text) : 0;
}

/* Touches every byte that the record says it has. */
static void check_operation(const struct operation *op)
{
    struct arena arena;
    CHECK(op->tenant && op->tool && op->principal && strlen(op->id) < sizeof op->id);
    CHECK((unsigned)op->state < STATE_COUNT && (unsigned)op->reason < REASON_COUNT);
    CHECK((unsigned)op->key_source <= KEY_SOURCE_REPEAT);
    CHECK(strcmp(state_name(op->state), "?") != 0 && strcmp(key_source_name(op->key_source), "?") != 0);
    arena_init(&arena);
    const struct operation *copy = operation_copy(&arena, op);
    CHECK(sum_text(copy->key) + sum_text(copy->owner) + sum_text(copy->trace) + sum_text(copy->external_id) < 1 << 20);
    arena_release(&arena);
}

static void check_code(const struct ledger_request *request)
{
    CHECK(request->code == ERR_NONE || request->err.text[0]);
    CHECK(request->code != ERR_NONE || request->err.code == ERR_NONE);
}

static bool does(struct ledger *ledger, struct ledger_request *request)
{
    ask(ledger, request);
    check_code(request);
    return request->code == ERR_NONE;
}

static void read_history(struct ledger *ledger, struct arena *arena, const char *id)
{
    struct ledger_request get = {.command = LEDGER_GET, .arena = arena, .get = {.operation = id}};
    struct ledger_request events = {.command = LEDGER_EVENTS, .arena = arena, .events = {.operation = id}};
    struct ledger_request attempts = {.command = LEDGER_ATTEMPTS, .arena = arena, .attempts = {.operation = id}};
    if (does(ledger, &get) && get.get.op)
        check_operation(get.get.op);
    if (get.code == ERR_NONE && get.get.tombstone)
        CHECK(get.get.tombstone->tenant && (unsigned)get.get.tombstone->state < STATE_COUNT);
    if (does(ledger, &events))
        for (size_t i = 0; i < events.events.count; i++) {
            const struct event *event = &events.events.events[i];
            CHECK((unsigned)event->from < STATE_COUNT && (unsigned)event->to < STATE_COUNT);
            CHECK((unsigned)event->cause < CAUSE_COUNT && (unsigned)event->reason < REASON_COUNT);
        }
    if (does(ledger, &attempts))
        for (size_t i = 0; i < attempts.attempts.count; i++)
            CHECK((unsigned)attempts.attempts.attempts[i].outcome < OUTCOME_COUNT);
}

static void read_lists(struct ledger *ledger, struct arena *arena)
{
    struct ledger_request list = {.command = LEDGER_LIST, .arena = arena, .list = {.limit = 20, .with_payload = true}};
    struct ledger_request run = {.command = LEDGER_LIST, .arena = arena, .list = {.limit = 20, .run = "r"}};
    struct ledger_request doubts = {.command = LEDGER_LIST, .arena = arena, .list = {.limit = 20}};
    struct ledger_request incidents = {.command = LEDGER_INCIDENTS, .arena = arena, .incidents = {.limit = 20}};
    struct ledger_request tokens = {.command = LEDGER_TOKEN_LIST, .arena = arena};
    struct ledger_request stats = {.command = LEDGER_STATS, .arena = arena};
    doubts.list.states = 1u << STATE_UNKNOWN_OUTCOME;
    struct ledger_request *lists[] = {&list, &run, &doubts};
    for (size_t k = 0; k < 3; k++)
        if (does(ledger, lists[k]))
            for (size_t i = 0; i < lists[k]->list.count; i++)
                check_operation(lists[k]->list.ops[i]);
    if (does(ledger, &incidents))
        for (size_t i = 0; i < incidents.incidents.count; i++)
            CHECK(incidents.incidents.incidents[i].tenant && incidents.incidents.incidents[i].operation);
    if (does(ledger, &tokens))
        for (size_t i = 0; i < tokens.token_list.count; i++)
            CHECK(tokens.token_list.tokens[i].tenant && tokens.token_list.tokens[i].principal);
    does(ledger, &stats);
}

static void admit_again(struct ledger *ledger, struct arena *arena, int i, enum key_source source)
{
    struct operation *op = arena_zero(arena, sizeof *op);
    struct ledger_request request = {.command = LEDGER_ADMIT, .arena = arena};
    snprintf(op->id, sizeof op->id, "op_01BX5ZZKBKACTAV9WEVGEMM%c%02d", source == KEY_SOURCE_REPEAT ? 'R' : 'C', i);
    op->tenant = "acme", op->tool = "refund", op->principal = "agent", op->policy_version = "p";
    op->key = source == KEY_SOURCE_REPEAT ? op->id : arena_printf(arena, "k%d", i);
    op->key_hash = op->base_hash = identity_key_hash(op->tenant, op->tool, op->key, NULL);
    op->key_version = 1, op->rev = 1, op->canonical_version = 1, op->key_source = source, op->provider_key = op->id;
    op->arguments = STR("{\"n\":1}"), op->fingerprint = digest_sha256(op->arguments);
    op->created_ms = op->updated_ms = NOW_MS, op->state = STATE_PENDING_DISPATCH;
    request.admit.admission = (struct admission){.op = op, .hold_in_doubt = true, .repeat_window_ms = 1000000};
    request.admit.event = (struct event){.at_ms = NOW_MS, .from = op->state, .to = op->state, .actor = "agent"};
    if (does(ledger, &request) && request.admit.result.existing)
        check_operation(request.admit.result.existing);
}

static void write_on(struct ledger *ledger, struct arena *arena)
{
    struct ledger_request claim = {.command = LEDGER_CLAIM_DUE, .arena = arena};
    claim.claim = (struct ledger_claim){.owner = "gw_2", .now_ms = NOW_MS, .lease_ms = 1000, .limit = 8};
    if (does(ledger, &claim))
        for (size_t i = 0; i < claim.claim.count; i++)
            check_operation(claim.claim.ops[i]);
    claim.claim.foreign = true;
    does(ledger, &claim);
    for (int i = 0; i < ROWS; i++)
        admit_again(ledger, arena, i, i == 1 ? KEY_SOURCE_REPEAT : KEY_SOURCE_CALLER);
    admit_again(ledger, arena, 9, KEY_SOURCE_REPEAT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct file *file = make_file();
    struct str input = {(const char *)data + 1, size ? size - 1 : 0};
    static bool registered;
    struct ledger *ledger = NULL;
    struct err err = {0};
    if (!registered)
        atexit(forget_file);
    registered = true;
    if (size == 0)
        return 0;
    write_damaged(file, input, data[0] & 1);
    struct ledger_sqlite_options options = {.path = file->path, .shared = data[0] & 2};
    if (ledger_sqlite_open(&options, &env, &ledger, &err)) {
        CHECK(err.text[0]);
    } else {
        struct arena arena;
        arena_init(&arena);
        for (int i = 0; i < ROWS; i++)
            read_history(ledger, &arena, file->ids[i]);
        read_lists(ledger, &arena);
        write_on(ledger, &arena);
        for (int i = 0; i < ROWS; i++)
            read_history(ledger, &arena, file->ids[i]);
        ledger_close(ledger);
        arena_release(&arena);
    }
    remove_files(file);
    return 0;
}
