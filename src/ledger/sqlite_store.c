#include "ledger/sqlite_store.h"

#include "base/mark.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* SQLite's pool of small allocations: statements at work (cursors, records) stay within it. */
#define LOOKASIDE_BYTES 1200
#define LOOKASIDE_SLOTS 400

#define FULL_ROW OPERATION_HEAD OPERATION_PAYLOAD
/* Nearly always the first row of the range. */
#define HAS_ID "n BETWEEN ?1 AND ?1 + 63 AND id = ?2 LIMIT 1"
_Static_assert(PLACES_TRIED == 64, "HAS_ID looks as far as an insert goes");

#define UPDATE_LIFE                                                                                                    \
    "UPDATE operations SET open = ?, state = ?, reason = ?, rev = ?, owner = ?, lease_until_ms = ?, "                  \
    "wake_at_ms = ?, orphaned = ?, may_have_applied = ?, attempts = ?, lookups = ?, tries = ?, first_sent_ms = ?, "    \
    "last_sent_ms = ?, unknown_since_ms = ?, updated_ms = ?, completed_ms = ?, retries = ?, absent_count = ?, "        \
    "watch_next = ?, retain_until_ms = ?, http_status = ?, external_id = ?, result_bytes = ?, result_dropped = ?, "    \
    "duplicate_seen = ?, approval = ?, ready_ms = ?, compensation = ?, steps = ?, result = ?, error = ? WHERE "

static const char *const statement_texts[STATEMENT_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_BEGIN_READ] = "BEGIN",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_COUNT] = "INSERT INTO counters (state, operations) VALUES (?1, ?2) "
                  "ON CONFLICT (state) DO UPDATE SET operations = operations + ?2",

    [SQL_OPERATION_BY_ID] = "SELECT " FULL_ROW " FROM operations WHERE " HAS_ID,
    /* admission_answers. Ordered by the state, too, it would need a sorter, and a list of states a table: either costs
     * more than all else of an admission. */
    [SQL_OPERATION_BY_KEY] =
        "SELECT " FULL_ROW " FROM operations WHERE n = coalesce("
        "(SELECT n FROM operations WHERE key_hash = ?1 AND NOT ((state = ?2 OR state = ?3 OR state = ?4) "
        "AND may_have_applied = 0) ORDER BY key_version DESC LIMIT 1), "
        "(SELECT n FROM operations WHERE key_hash = ?1 ORDER BY key_version DESC LIMIT 1))",
    [SQL_REPEATS] = "SELECT " OPERATION_HEAD " FROM operations WHERE repeat_hash = ?1 ORDER BY n DESC LIMIT ?2",
    [SQL_REPEATS_OF_RUN] = "SELECT " OPERATION_HEAD " FROM operations WHERE run = ?1 ORDER BY n DESC LIMIT ?2",
    [SQL_IN_DOUBT] = "SELECT " OPERATION_HEAD " FROM operations WHERE n IN (SELECT operation FROM doubts "
                     "WHERE tenant = ?1 AND tool = ?2 AND principal = ?3) ORDER BY n LIMIT ?4",
    [SQL_LIFE_BY_ID] =
        "SELECT n, rev, owner, state, orphaned, delivered, unknown_since_ms FROM operations WHERE " HAS_ID,
    [SQL_ADMITTED_BY_ID] = "SELECT n, admitted_state, admitted_reason, principal, created_ms, first_attempt "
                           "FROM operations WHERE " HAS_ID,
    [SQL_DUE] = "SELECT " FULL_ROW " FROM operations "
                "WHERE open = ?1 AND wake_at_ms > 0 AND wake_at_ms <= ?2 AND (open = 1 OR wake_at_ms > 0) "
                "ORDER BY wake_at_ms, n LIMIT ?3",
    [SQL_FOREIGN] = "SELECT " FULL_ROW " FROM operations WHERE open = 1 AND owner IS NOT NULL AND owner IS NOT ?1 "
                    "AND owner NOT GLOB '" OPERATION_EXECUTOR_PREFIX "*' ORDER BY wake_at_ms, n LIMIT ?2",
    [SQL_NEXT_WAKE] = "SELECT wake_at_ms FROM operations WHERE open = ?1 AND wake_at_ms > ?2 "
                      "AND (open = 1 OR wake_at_ms > 0) ORDER BY wake_at_ms LIMIT 1",
    [SQL_LIST_DOWN] = "SELECT " FULL_ROW " FROM operations WHERE n < ?1 ORDER BY n DESC LIMIT ?2",
    [SQL_LIST_UP] = "SELECT " FULL_ROW " FROM operations WHERE n > ?1 ORDER BY n LIMIT ?2",
    [SQL_LIST_RUN_DOWN] = "SELECT " FULL_ROW " FROM operations WHERE n < ?1 AND run = ?3 ORDER BY n DESC LIMIT ?2",
    [SQL_LIST_RUN_UP] = "SELECT " FULL_ROW " FROM operations WHERE n > ?1 AND run = ?3 ORDER BY n LIMIT ?2",
    [SQL_LIST_IN_DOUBT_DOWN] = "SELECT " FULL_ROW " FROM operations WHERE n IN (SELECT operation FROM doubts "
                               "WHERE operation < ?1 ORDER BY operation DESC LIMIT ?2) ORDER BY n DESC",
    [SQL_LIST_IN_DOUBT_UP] = "SELECT " FULL_ROW " FROM operations WHERE n IN (SELECT operation FROM doubts "
                             "WHERE operation > ?1 ORDER BY operation LIMIT ?2) ORDER BY n",
    [SQL_LIST_APPROVAL_DOWN] = "SELECT " FULL_ROW " FROM operations INDEXED BY operations_approval WHERE open = 1 AND "
                               "approval IS NOT NULL AND n < ?1 ORDER BY n DESC LIMIT ?2",
    [SQL_LIST_APPROVAL_UP] = "SELECT " FULL_ROW " FROM operations INDEXED BY operations_approval WHERE open = 1 AND "
                             "approval IS NOT NULL AND n > ?1 ORDER BY n LIMIT ?2",

    [SQL_INSERT_OPERATION] =
        "INSERT INTO operations (n, id, tenant, tool, principal, run, open, state, reason, rev, owner, "
        "lease_until_ms, wake_at_ms, delivered, orphaned, key_hash, key_version, repeat_hash, fingerprint, base_hash, "
        "key_source, canonical_version, key, policy_version, workflow, step, session, call, trace, repeat_of, "
        "distinct_from, previous, provider_key, created_ms, not_before_ms, may_have_applied, attempts, lookups, tries, "
        "first_sent_ms, last_sent_ms, unknown_since_ms, updated_ms, completed_ms, retries, absent_count, watch_next, "
        "retain_until_ms, http_status, external_id, result_bytes, result_dropped, duplicate_seen, approval, ready_ms, "
        "claims, compensates, playbook, escalation, compensation, parent, steps, admitted_state, admitted_reason, "
        "first_attempt, "
        "arguments, result, "
        "error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?, ?, ?, ?, ?, ?, "
        "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [SQL_UPDATE_OPERATION] = UPDATE_LIFE "n = ?",
    [SQL_UPDATE_IF] = UPDATE_LIFE "n = ? AND id = ? AND rev = ?",
    [SQL_UPDATE_IF_OWNER] = UPDATE_LIFE "n = ? AND id = ? AND rev = ? AND owner = ?",
    [SQL_CLAIM] = "UPDATE operations SET owner = ?2, lease_until_ms = ?3, wake_at_ms = ?4 WHERE n = ?1",
    [SQL_RELEASE] =
        "UPDATE operations SET owner = NULL, lease_until_ms = 0, wake_at_ms = ?2 WHERE open = 1 AND owner = ?1 "
        "AND state <> ?3",
    [SQL_MARK] = "UPDATE operations SET delivered = ?2, orphaned = ?3 WHERE n = ?1",
    [SQL_MARK_DELIVERED] = "UPDATE operations SET delivered = 1 WHERE n = ?1 AND id = ?2 AND delivered = 0",
    [SQL_SET_DOUBT] = "INSERT OR REPLACE INTO doubts (operation, tenant, tool, principal, unknown_since_ms) "
                      "SELECT n, tenant, tool, principal, unknown_since_ms FROM operations WHERE n = ?1",
    [SQL_DELETE_DOUBT] = "DELETE FROM doubts WHERE operation = ?1",
    [SQL_DELETE_HISTORY] = "DELETE FROM history WHERE operation = ?1",
    [SQL_DELETE_OPERATION] = "DELETE FROM operations WHERE n = ?1",

    [SQL_ANY_DOUBT] = "SELECT EXISTS (SELECT 1 FROM doubts)",
    [SQL_ANY_TOMBSTONE] = "SELECT EXISTS (SELECT 1 FROM tombstones)",
    [SQL_INSERT_HISTORY] = "INSERT INTO history (operation, sequence, " EVENT_COLUMNS ", " ATTEMPT_COLUMNS
                           ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [SQL_ATTEMPTS] = "SELECT " ATTEMPT_COLUMNS " FROM history WHERE operation = ?1 AND attempt_id IS NOT NULL "
                     "ORDER BY sequence DESC LIMIT ?2",
    [SQL_EVENTS] = "SELECT " EVENT_COLUMNS " FROM history WHERE operation = ?1 AND cause IS NOT NULL "
                   "ORDER BY sequence DESC LIMIT ?2",
    [SQL_INSERT_INCIDENT] = "INSERT INTO incidents (" INCIDENT_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    [SQL_INCIDENT_BY_ID] = "SELECT " INCIDENT_COLUMNS " FROM incidents WHERE id = ?1",
    [SQL_INCIDENTS_OF] = "SELECT " INCIDENT_COLUMNS " FROM incidents WHERE operation = ?1 ORDER BY id LIMIT ?2",
    [SQL_INCIDENTS] = "SELECT " INCIDENT_COLUMNS " FROM incidents WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_INCIDENTS_OPEN] = "SELECT " INCIDENT_COLUMNS " FROM incidents WHERE id < ?1 AND acknowledged_ms = 0 "
                           "ORDER BY id DESC LIMIT ?2",
    [SQL_ACKNOWLEDGE] = "UPDATE incidents SET acknowledged_by = ?2, acknowledged_ms = ?3 WHERE id = ?1",
    [SQL_INSERT_TOMBSTONE] =
        "INSERT INTO tombstones (" TOMBSTONE_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [SQL_TOMBSTONE_BY_ID] = "SELECT " TOMBSTONE_COLUMNS " FROM tombstones WHERE operation = ?1",
    [SQL_TOMBSTONE_BY_KEY] =
        "SELECT " TOMBSTONE_COLUMNS " FROM tombstones WHERE operation = coalesce("
        "(SELECT operation FROM tombstones WHERE key_hash = ?1 AND NOT (state = ?2 OR state = ?3) "
        "ORDER BY key_version DESC LIMIT 1), "
        "(SELECT operation FROM tombstones WHERE key_hash = ?1 ORDER BY key_version DESC LIMIT 1))",
    [SQL_INSERT_TOKEN] = "INSERT INTO principals (" TOKEN_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [SQL_TOKEN_BY_ID] = "SELECT " TOKEN_COLUMNS " FROM principals WHERE id = ?1",
    [SQL_TOKEN_BY_HASH] = "SELECT " TOKEN_COLUMNS " FROM principals WHERE secret_hash = ?1",
    [SQL_TOKENS] = "SELECT " TOKEN_COLUMNS " FROM principals ORDER BY id",
    [SQL_REVOKE_TOKEN] = "UPDATE principals SET revoked_ms = ?2 WHERE id = ?1",
    [SQL_INSERT_INBOUND] = "INSERT INTO inbox (" INBOX_COLUMNS ") "
                           "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [SQL_INBOX_BY_EVENT] = "SELECT " INBOX_COLUMNS " FROM inbox WHERE source = ?1 AND event = ?2",
    [SQL_INBOX_BY_ID] = "SELECT " INBOX_COLUMNS " FROM inbox WHERE id = ?1",
    [SQL_INBOX_AGAIN] = "UPDATE inbox SET duplicates = duplicates + 1, duplicate_ms = ?2 WHERE id = ?1",
    [SQL_INBOX_COUNT] =
        "INSERT INTO inbox_counts (source, events, duplicates, applied, ignored, dropped) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (source) DO UPDATE SET events = events + ?2, "
        "duplicates = duplicates + ?3, applied = applied + ?4, ignored = ignored + ?5, dropped = dropped + ?6",
    [SQL_INBOX_COUNTS] =
        "SELECT source, events, duplicates, applied, ignored, dropped FROM inbox_counts ORDER BY source",
    [SQL_INBOX_STANDING] = "SELECT created_ms, outcome FROM inbox WHERE operation = ?1 AND source = ?2",
    [SQL_INBOX_WAITING_FOR] = "SELECT " INBOX_COLUMNS " FROM inbox WHERE status = 'waiting' AND value = ?1 "
                              "AND match = ?2 ORDER BY id LIMIT ?3",
    [SQL_INBOX_WAITING] =
        "SELECT " INBOX_COLUMNS " FROM inbox WHERE status = 'waiting' AND id > ?1 ORDER BY id LIMIT ?2",
    [SQL_INBOX_LIST] = "SELECT " INBOX_COLUMNS " FROM inbox WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_INBOX_LIST_OF] =
        "SELECT " INBOX_COLUMNS " FROM inbox WHERE operation = ?3 AND id < ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_INBOX_LIST_WAITING] =
        "SELECT " INBOX_COLUMNS " FROM inbox WHERE status = 'waiting' AND id < ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_INBOX_LIST_UNDELIVERED] =
        "SELECT " INBOX_COLUMNS " FROM inbox WHERE forward = 'undelivered' AND id < ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_FORWARD_DUE] = "SELECT " INBOX_COLUMNS " FROM inbox WHERE forward = 'due' ORDER BY forward_at_ms, id LIMIT ?1",
    [SQL_FORWARD_MOVE] =
        "UPDATE inbox SET forward = ?4, forward_tries = ?5, forward_at_ms = ?6, forward_until_ms = ?7, "
        "forward_detail = ?8 WHERE id = ?1 AND forward = ?2 AND forward_tries = ?3",
    [SQL_INBOX_OVER] = "SELECT id, retain_until_ms, source, status FROM inbox ORDER BY retain_until_ms LIMIT 1",
    [SQL_INBOX_STATUS] = "SELECT status, source FROM inbox WHERE id = ?1",
    [SQL_INBOX_APPLY] = "UPDATE inbox SET status = 'applied', operation = ?2, settled_ms = ?3 WHERE id = ?1",
    [SQL_DELETE_INBOUND] = "DELETE FROM inbox WHERE id = ?1",
    [SQL_INBOX_OPERATION_BY_ID] = "SELECT id, provider_key, tenant, tool FROM operations WHERE " HAS_ID,
    [SQL_OPERATIONS_BY_PROVIDER_KEY] = "SELECT id, provider_key, tenant, tool FROM operations WHERE provider_key = ?1 "
                                       "AND provider_key IS NOT NULL AND provider_key <> id ORDER BY n LIMIT ?2",
    [SQL_OPERATIONS_BY_EXTERNAL_ID] = "SELECT id, provider_key, tenant, tool FROM operations WHERE external_id = ?1 "
                                      "AND external_id IS NOT NULL ORDER BY n LIMIT ?2",
    [SQL_ENTITY] = "SELECT holder, held_ms, rev, attributes, override FROM entities "
                   "WHERE tenant = ?1 AND type = ?2 AND id = ?3",
    [SQL_SET_ENTITY] =
        "INSERT INTO entities (tenant, type, id, holder, held_ms, rev, attributes, override) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, type, id) DO UPDATE SET holder = ?4, "
        "held_ms = ?5, rev = ?6, attributes = ?7, override = ?8",
    [SQL_DELETE_ENTITY] = "DELETE FROM entities WHERE tenant = ?1 AND type = ?2 AND id = ?3",
    [SQL_ENTITIES] = "SELECT type, id, holder, held_ms, rev, attributes, override FROM entities "
                     "WHERE tenant = ?1 AND (?2 IS NULL OR type = ?2) AND (type, id) > (?3, ?4) "
                     "ORDER BY type, id LIMIT ?5",
    [SQL_ENTITIES_BUSY] = "SELECT type, id, holder, held_ms, rev, attributes, override FROM entities "
                          "WHERE tenant = ?1 AND holder IS NOT NULL AND (?2 IS NULL OR type = ?2) "
                          "AND (type, id) > (?3, ?4) ORDER BY type, id LIMIT ?5",
    [SQL_WAITING] = "SELECT operation FROM entity_waits WHERE tenant = ?1 AND type = ?2 AND id = ?3 "
                    "ORDER BY ticket LIMIT ?4",
    [SQL_WAIT_LAST] = "SELECT ticket FROM entity_waits ORDER BY ticket DESC LIMIT 1",
    [SQL_WAIT_ADD] = "INSERT INTO entity_waits (tenant, type, id, operation, ticket) VALUES (?1, ?2, ?3, ?4, ?5)",
    [SQL_WAITS_OF] = "SELECT type, id FROM entity_waits WHERE operation = ?1 ORDER BY type, id",
    [SQL_WAIT_REMOVE] = "DELETE FROM entity_waits WHERE operation = ?1",
    [SQL_WAKE] = "UPDATE operations SET wake_at_ms = ?3 WHERE n BETWEEN ?1 AND ?1 + 63 AND id = ?2 AND owner IS NULL",
    [SQL_WINDOW] = "SELECT operation, at_ms, until_ms FROM windows WHERE tenant = ?1 AND key = ?2 AND until_ms > ?3 "
                   "ORDER BY at_ms DESC, operation DESC LIMIT 1",
    [SQL_SET_WINDOW] = "INSERT OR REPLACE INTO windows (tenant, key, operation, at_ms, until_ms) "
                       "VALUES (?1, ?2, ?3, ?4, ?5)",
    [SQL_DROP_WINDOW] = "DELETE FROM windows WHERE tenant = ?1 AND key = ?2 AND operation = ?3",
    [SQL_SLICES] = "SELECT start_ms, until_ms, amount FROM budget_slices WHERE tenant = ?1 AND budget = ?2 "
                   "AND subject = ?3 AND key = ?4 AND until_ms > ?5 ORDER BY until_ms, start_ms",
    [SQL_SET_SLICE] =
        "INSERT INTO budget_slices (tenant, budget, subject, key, start_ms, until_ms, amount, over_ms) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, budget, subject, key, start_ms, until_ms) "
        "DO UPDATE SET amount = ?7, over_ms = ?8",
    [SQL_DELETE_SLICE] = "DELETE FROM budget_slices WHERE tenant = ?1 AND budget = ?2 AND subject = ?3 AND key = ?4 "
                         "AND start_ms = ?5 AND until_ms = ?6",
    [SQL_ALL_SLICES] = "SELECT budget, subject, key, start_ms, until_ms, amount FROM budget_slices WHERE tenant = ?1 "
                       "ORDER BY budget, subject, key, until_ms LIMIT ?2",
    [SQL_PRUNE_WINDOWS] = "DELETE FROM windows WHERE (tenant, key, operation) IN (SELECT tenant, key, operation "
                          "FROM windows WHERE until_ms < ?1 ORDER BY until_ms LIMIT 4)",
    [SQL_PRUNE_SLICES] =
        "DELETE FROM budget_slices WHERE (tenant, budget, subject, key, start_ms, until_ms) IN (SELECT tenant, "
        "budget, subject, key, start_ms, until_ms FROM budget_slices WHERE over_ms < ?1 ORDER BY over_ms LIMIT 4)",
    [SQL_COUNTERS] = "SELECT state, operations FROM counters",
    [SQL_OLDEST_UNKNOWN] = "SELECT unknown_since_ms FROM doubts WHERE unknown_since_ms > 0 "
                           "ORDER BY unknown_since_ms LIMIT 1",
    [SQL_OPEN_INCIDENTS] = "SELECT count(*) FROM incidents WHERE acknowledged_ms = 0",
    [SQL_APPROVALS_WAITING] =
        "SELECT count(*), coalesce(min(created_ms), 0) FROM operations INDEXED BY operations_approval WHERE open = 1 "
        "AND approval IS NOT NULL AND reason = ?1",
    [SQL_CLAIMS_COUNT] = "SELECT (SELECT count(*) FROM entities INDEXED BY entities_holder WHERE holder IS NOT NULL), "
                         "(SELECT count(*) FROM entity_waits)",
};

/* ---- what went wrong ---- */

static bool no_space(sqlite3 *db, int rc)
{
    int error = (rc & 0xff) == SQLITE_IOERR ? sqlite3_system_errno(db) : 0;
    return (rc & 0xff) == SQLITE_FULL || error == ENOSPC || error == EDQUOT;
}

enum err_code store_describe(sqlite3 *db, const char *name, int rc, enum store_fault *fault, struct err *err)
{
    static const char resume[] = "nothing was recorded, nothing was sent";
    enum store_fault ignored;
    fault = fault ? fault : &ignored;
    *fault = FAULT_UNAVAILABLE;
    if (no_space(db, rc))
        return err_set(err, ERR_UNAVAILABLE, "the disk that holds %s is full: %s; free space and calls resume", name,
                       resume);
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
        return err_set(err, ERR_UNAVAILABLE, "another process holds %s locked: %s; calls resume when it lets go", name,
                       resume);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return err_set(err, ERR_UNAVAILABLE,
                       "%s can not be written (%s): %s; make file and folder writable for onced and calls resume", name,
                       sqlite3_errstr(rc), resume);
    case SQLITE_CANTOPEN:
        return err_set(err, ERR_UNAVAILABLE, "%s or its -wal or -shm file can not be opened (%s): %s", name,
                       strerror(sqlite3_system_errno(db)), resume);
    case SQLITE_CORRUPT:
        *fault = FAULT_CORRUPT;
        return err_set(err, ERR_CORRUPT, "%s is damaged (%s): stop onced and restore the newest backup", name,
                       sqlite3_errmsg(db));
    case SQLITE_NOTADB:
        *fault = FAULT_CORRUPT;
        return err_set(err, ERR_CORRUPT, "%s is not a onced ledger, or its beginning is damaged: %s", name,
                       sqlite3_errmsg(db));
    case SQLITE_IOERR:
        if (rc == SQLITE_IOERR_CORRUPTFS || rc == SQLITE_IOERR_DATA) {
            *fault = FAULT_CORRUPT;
            return err_set(err, ERR_CORRUPT, "%s is damaged (%s): stop onced and restore the newest backup", name,
                           sqlite3_errstr(rc));
        }
        return err_set(err, ERR_UNAVAILABLE, "the disk that holds %s reports an error (%s, %s): %s", name,
                       sqlite3_errstr(rc), strerror(sqlite3_system_errno(db)), resume);
    case SQLITE_NOMEM:
    case SQLITE_INTERRUPT: return err_set(err, ERR_UNAVAILABLE, "%s: %s: %s", name, sqlite3_errstr(rc), resume);
    default: break;
    }
    *fault = FAULT_COMMAND;
    return err_set(err, ERR_INTERNAL, "%s: %s (SQLite code %d)", name, sqlite3_errmsg(db), rc);
}

enum err_code store_failed(struct store *store, int rc, struct err *err)
{
    return store_describe(store->db, store->name, rc, &store->fault, err);
}

enum err_code store_strange(struct store *store, const char *what, struct err *err)
{
    store->fault = FAULT_COMMAND;
    return err_set(err, ERR_INTERNAL, "%s holds a %s that this onced does not know: a newer one wrote it", store->name,
                   what);
}

enum err_code store_may_write(const struct store *store, struct err *err)
{
    return store->refuse ? err_set(err, store->refuse->code, "%s", store->refuse->text) : ERR_NONE;
}

/* ---- statements ---- */

sqlite3_stmt *store_prepare(struct store *store, enum statement which, struct err *err)
{
    sqlite3_stmt **statement = &store->statements[which];
    if (*statement)
        return *statement;
    int rc = sqlite3_prepare_v3(store->db, statement_texts[which], -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
    if (rc != SQLITE_OK) {
        store_failed(store, rc, err);
        return NULL;
    }
    return *statement;
}

enum err_code store_step(struct store *store, sqlite3_stmt *statement, bool *row, struct err *err)
{
    int rc = sqlite3_step(statement);
    *row = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW)
        return ERR_NONE;
    enum err_code code = rc == SQLITE_DONE ? ERR_NONE : store_failed(store, rc, err);
    sqlite3_reset(statement);
    return code;
}

enum err_code store_run(struct store *store, sqlite3_stmt *statement, struct err *err)
{
    int rc = sqlite3_step(statement);
    enum err_code code = rc == SQLITE_DONE ? ERR_NONE : store_failed(store, rc, err);
    sqlite3_reset(statement);
    return code;
}

static enum err_code run_plain(struct store *store, enum statement which, struct err *err)
{
    sqlite3_stmt *statement = store_prepare(store, which, err);
    return statement ? store_run(store, statement, err) : err->code;
}

/* ---- transactions ---- */

enum err_code store_begin(struct store *store, bool writing, struct err *err)
{
    store->fault = FAULT_NONE;
    memset(store->moved, 0, sizeof store->moved);
    return run_plain(store, writing ? SQL_BEGIN : SQL_BEGIN_READ, err);
}

/* One row per state that changed, whatever the number of commands. */
static enum err_code write_counters(struct store *store, struct err *err)
{
    for (int state = 0; state < STATE_COUNT; state++) {
        if (!store->moved[state])
            continue;
        sqlite3_stmt *statement = store_prepare(store, SQL_COUNT, err);
        if (!statement)
            return err->code;
        sqlite3_bind_int(statement, 1, store->names.number[NAME_STATE][state]);
        sqlite3_bind_int64(statement, 2, store->moved[state]);
        if (store_run(store, statement, err))
            return err->code;
    }
    return ERR_NONE;
}

enum err_code store_commit(struct store *store, struct err *err)
{
    enum err_code code = write_counters(store, err);
    MARK(before_sql_commit);
    if (code == ERR_NONE)
        run_plain(store, SQL_COMMIT, err);
    if (err->code)
        store_rollback(store);
    return err->code;
}

void store_rollback(struct store *store)
{
    /* After some errors SQLite has rolled back by itself. A failure to roll back shows again at the next BEGIN. */
    struct err ignored = {0};
    enum store_fault fault = store->fault;
    if (!sqlite3_get_autocommit(store->db))
        run_plain(store, SQL_ROLLBACK, &ignored);
    store->fault = fault;
    store->no_doubts = store->no_tombstones = false; /* may have been seen after what is now undone */
}

static int count_frames(void *user, sqlite3 *db, const char *database, int frames)
{
    (void)db;
    (void)database;
    ((struct store *)user)->wal_frames = frames;
    return SQLITE_OK;
}

void store_checkpoint(struct store *store)
{
    int frames = 0, copied = 0;
    MARK(before_checkpoint);
    if (sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &frames, &copied) == SQLITE_OK &&
        frames == copied)
        store->wal_frames = 0;
    MARK(after_checkpoint);
}

/* ---- commands ---- */

static enum err_code execute(struct store *store, struct ledger_request *request)
{
    switch (request->command) {
    case LEDGER_ADMIT: return store_admit(store, request);
    case LEDGER_TRANSITION: return store_transition(store, request);
    case LEDGER_CLAIM_DUE: return store_claim(store, request);
    case LEDGER_MARK: return store_mark(store, request);
    case LEDGER_WATCH: return store_get(store, request); /* no other process moves anything */
    case LEDGER_RELEASE: return store_release_claims(store, request);
    case LEDGER_EXPIRE: return store_expire(store, request);
    case LEDGER_GET: return store_get(store, request);
    case LEDGER_GET_BY_KEY: return store_get_by_key(store, request);
    case LEDGER_LIST: return store_list(store, request);
    case LEDGER_EVENTS: return store_events(store, request);
    case LEDGER_ATTEMPTS: return store_attempts(store, request);
    case LEDGER_INCIDENTS: return store_incidents(store, request);
    case LEDGER_ACKNOWLEDGE: return store_acknowledge(store, request);
    case LEDGER_TOKEN_ADD: return store_token_add(store, request);
    case LEDGER_TOKEN_FIND: return store_token_find(store, request);
    case LEDGER_TOKEN_LIST: return store_token_list(store, request);
    case LEDGER_TOKEN_REVOKE: return store_token_revoke(store, request);
    case LEDGER_RECORD_INBOUND: return store_record_inbound(store, request);
    case LEDGER_INBOX_OF: return store_inbox_of(store, request);
    case LEDGER_INBOX_DUE: return store_inbox_due(store, request);
    case LEDGER_INBOX_LIST: return store_inbox_list(store, request);
    case LEDGER_INBOX_COUNTS: return store_inbox_counts(store, request);
    case LEDGER_INBOX_PRUNE: return store_inbox_prune(store, request);
    case LEDGER_FORWARD_DUE: return store_forward_due(store, request);
    case LEDGER_FORWARD_MOVE: return store_forward_move(store, request);
    case LEDGER_ENTITIES: return store_entities(store, request);
    case LEDGER_ENTITY_RELEASE: return store_entity_release(store, request);
    case LEDGER_BUDGETS: return store_budgets(store, request);
    case LEDGER_STATS: return store_stats(store, request);
    }
    return err_set(&request->err, ERR_INTERNAL, "no such ledger command");
}

void store_execute(struct store *store, struct ledger_request *request)
{
    err_clear(&request->err);
    request->code = execute(store, request);
    if (request->code == ERR_INTERNAL && store->fault == FAULT_NONE)
        store->fault = FAULT_COMMAND;
    arena_reset(&store->scratch);
}

/* ---- connection ---- */

/* Before SQLite's first use in the process; later it is refused, which only costs speed: statistics take a lock at
 * every allocation. */
static void configure_process(void)
{
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

enum err_code store_connect(const char *path, int flags, const char *name, sqlite3 **out, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure_process);
    store_register_vfs();
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX, STORE_VFS);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(db, 1);
        sqlite3_busy_timeout(db, STORE_BUSY_MS);
        *out = db;
        return ERR_NONE;
    }
    int cause = db ? sqlite3_system_errno(db) : 0;
    err_set(err, ERR_IO, "%s can not be opened: %s", name, cause ? strerror(cause) : sqlite3_errstr(rc));
    sqlite3_close(db);
    return ERR_IO;
}

/* SQLite would create it with the process's umask; its -wal and -shm files get the mode of this one. */
static enum err_code create_file(const char *path, struct err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return ERR_NONE;
    if (fd < 0)
        return err_set(err, ERR_IO, "%s can not be created: %s", path, strerror(errno));
    close(fd);
    return ERR_NONE;
}

char *store_file_beside(const char *path, const char *suffix)
{
    size_t bytes = strlen(path) + strlen(suffix) + 1;
    char *file = mem_alloc(bytes);
    snprintf(file, bytes, "%s%s", path, suffix);
    return file;
}

static bool has_content(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

/* SQLite takes a file of a few bytes for an empty one and would write over it. A journal means that a creation was cut
 * short, which SQLite undoes. */
static enum err_code check_beginning(const struct store *store, struct err *err)
{
    static const char magic[16] = "SQLite format 3";
    char head[sizeof magic] = "";
    char *journal = store_file_beside(store->path, "-journal");
    int fd = open(store->path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : 0;
    if (n > 0 && memcmp(head, magic, sizeof magic) != 0 && !has_content(journal))
        err_set(err, ERR_CORRUPT, "%s is not a onced ledger, or its beginning is damaged", store->path);
    if (fd >= 0)
        close(fd);
    free(journal);
    return err->code;
}

/* A ledger in a folder where no -shm file can be made can be read as it is, provided that nothing waits in a -wal file.
 */
static enum err_code connect_immutable(struct store *store, struct err *err)
{
    struct buf uri;
    buf_init(&uri, 0);
    buf_add_text(&uri, "file:");
    for (const char *p = store->path; *p; p++) {
        if (strchr("?#%", *p))
            buf_printf(&uri, "%%%02X", (unsigned char)*p);
        else
            buf_add_char(&uri, *p);
    }
    buf_add_text(&uri, "?immutable=1");
    sqlite3_close(store->db);
    store->db = NULL;
    enum err_code code = store_connect(uri.p, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, store->name, &store->db, err);
    buf_release(&uri);
    return code;
}

static enum err_code connect_read_only(struct store *store, struct err *err)
{
    if (access(store->path, F_OK) != 0)
        return err_set(err, ERR_NOT_FOUND, "there is no ledger at %s", store->path);
    if (store_connect(store->path, SQLITE_OPEN_READONLY, store->name, &store->db, err))
        return err->code;
    int rc = sqlite3_exec(store->db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL) & 0xff;
    if (rc != SQLITE_CANTOPEN && rc != SQLITE_READONLY)
        return ERR_NONE;
    char *wal = store_file_beside(store->path, "-wal");
    bool waits = has_content(wal);
    free(wal);
    return waits ? ERR_NONE : connect_immutable(store, err);
}

static enum err_code connect_writable(struct store *store, struct err *err)
{
    if (create_file(store->path, err) ||
        store_connect(store->path, SQLITE_OPEN_READWRITE, store->name, &store->db, err))
        return err->code;
    if (!store->sole_writer)
        sqlite3_busy_timeout(store->db, STORE_BUSY_BESIDE_MS);
    if (sqlite3_db_readonly(store->db, "main") == 1)
        return err_set(err, ERR_IO, "%s is read-only: make the file writable for the user that runs onced",
                       store->path);
    return ERR_NONE;
}

static enum err_code exec(struct store *store, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ERR_NONE : store_failed(store, rc, err);
}

static enum err_code configure(struct store *store, struct err *err)
{
    /* WAL journal with fsync at each commit; checkpoints are called by sqlite.c between batches. */
    char text[256];
    snprintf(text, sizeof text,
             "PRAGMA cache_size = -%d; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA mmap_size = 0; "
             "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;",
             STORE_CACHE_KIB);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_LOOKASIDE, NULL, LOOKASIDE_BYTES, LOOKASIDE_SLOTS);
    sqlite3_wal_hook(store->db, count_frames, store); /* also switches automatic checkpoints off */
    return exec(store, text, err);
}

/* A write-ahead log that grew during a long backup is cut to this size when it starts over. */
static enum err_code use_wal(struct store *store, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->db, "PRAGMA journal_mode = WAL", -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc != SQLITE_ROW)
        store_failed(store, rc, err);
    else if (sqlite3_stricmp((const char *)sqlite3_column_text(statement, 0), "wal") != 0)
        err_set(err, ERR_IO, "the file system that holds %s does not support SQLite's write-ahead log", store->name);
    sqlite3_finalize(statement);
    if (err->code)
        return err->code;
    return exec(store, "PRAGMA journal_size_limit = 67108864", err);
}

static enum err_code read_secret(struct store *store, unsigned char secret[LEDGER_SECRET_BYTES], struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->db, "SELECT value FROM meta WHERE name = 'secret'", -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW && sqlite3_column_bytes(statement, 0) == LEDGER_SECRET_BYTES)
        memcpy(secret, sqlite3_column_blob(statement, 0), LEDGER_SECRET_BYTES);
    else if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        err_set(err, ERR_CORRUPT, "%s has lost its secret (table meta): restore the newest backup", store->name);
    else
        store_failed(store, rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

static enum err_code check_whole(struct store *store, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->db, "SELECT 1 FROM meta WHERE name = '" LEDGER_COPY "'", -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        err_set(err, ERR_INVALID, "%s is being filled by onced ledger copy: run that again to its end", store->path);
    else if (rc != SQLITE_DONE)
        store_failed(store, rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

static void sync_folder(const char *path)
{
    char *folder = mem_copy_text(path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

enum err_code store_open(struct store *store, const struct store_options *options, struct env *env,
                         unsigned char secret[LEDGER_SECRET_BYTES], struct err *err)
{
    struct err own = {0};
    err = err ? err : &own;
    *store = (struct store){
        .path = mem_copy_text(options->path), .read_only = options->read_only, .sole_writer = options->sole_writer};
    const char *slash = strrchr(store->path, '/');
    store->name = slash ? slash + 1 : store->path;
    arena_init(&store->scratch);
    bool fresh = !options->read_only && !has_content(store->path);
    if (check_beginning(store, err))
        goto out;
    if (options->read_only ? connect_read_only(store, err) : connect_writable(store, err))
        goto out;
    if (configure(store, err) || store_migrate(store, env, err))
        goto out;
    if (!options->read_only && use_wal(store, err))
        goto out;
    if (read_secret(store, secret, err) || (!options->unfinished && check_whole(store, err)))
        goto out;
    MARK_IF(fresh, ledger_created);
    if (fresh)
        sync_folder(store->path);
    MARK(ledger_opened);
out:
    if (err->code)
        store_release(store);
    return err->code;
}

void store_release(struct store *store)
{
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    arena_release(&store->scratch);
    free(store->path);
    *store = (struct store){0};
}

int64_t store_file_bytes(const char *path)
{
    int64_t bytes = 0;
    struct stat st;
    char *wal = store_file_beside(path, "-wal");
    if (stat(path, &st) == 0)
        bytes += st.st_size;
    if (stat(wal, &st) == 0)
        bytes += st.st_size;
    free(wal);
    return bytes;
}
