/* One connection to the ledger's SQLite file and the commands on it: single-threaded, synchronous, no queue (sqlite.c
 * has that). A command runs within a transaction that its caller opened; it leaves no statement open. When it fails in
 * a way that needs a roll-back, `fault` says how far the damage goes; logical refusals (stale, not found, …) leave it
 * alone. */
#ifndef LEDGER_SQLITE_STORE_H
#define LEDGER_SQLITE_STORE_H

#include "ledger/rows.h"

#include <pthread.h>
#include <sqlite3.h>

#define STORE_APPLICATION_ID 0x6f6e6364 /* "oncd" */
#define STORE_SCHEMA_VERSION 8
#define STORE_SMALL_BYTES    (16 << 20) /* files up to here are checked whole before they are used */
#define STORE_CACHE_KIB      12288
#define STORE_BUSY_MS        2000 /* how long another process may hold the write lock before a batch ends as unavailable */
/* The same for a process beside the owner, who commits all the time: SQLite's lock is not fair. */
#define STORE_BUSY_BESIDE_MS 30000

enum store_fault {
    FAULT_NONE,
    FAULT_COMMAND,     /* this command only: run the others of the batch without it */
    FAULT_UNAVAILABLE, /* disk full, input/output error, busy: nothing can be written now */
    FAULT_CORRUPT      /* the file is damaged */
};

/* Enumerations are stored as numbers that the table `names` ties to their texts, so that the order of the constants may
 * change without touching stored rows. */
struct store_names {
    signed char number[NAME_KINDS][NAME_VALUES_MAX]; /* stored number of a constant */
    signed char value[NAME_KINDS][NAME_VALUES_MAX];  /* constant of a stored number, -1 = none that we know */
};

/* Statements, prepared at first use and kept. The texts are in sqlite_store.c. */
enum statement {
    SQL_BEGIN,
    SQL_BEGIN_READ,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_COUNT,
    /* operations, reading */
    SQL_OPERATION_BY_ID,
    SQL_OPERATION_BY_KEY,
    SQL_REPEATS,
    SQL_REPEATS_OF_RUN,
    SQL_IN_DOUBT,
    SQL_LIFE_BY_ID,
    SQL_ADMITTED_BY_ID,
    SQL_DUE,
    SQL_FOREIGN,
    SQL_NEXT_WAKE,
    SQL_LIST_DOWN,
    SQL_LIST_UP,
    SQL_LIST_RUN_DOWN,
    SQL_LIST_RUN_UP,
    SQL_LIST_IN_DOUBT_DOWN,
    SQL_LIST_IN_DOUBT_UP,
    SQL_LIST_APPROVAL_DOWN,
    SQL_LIST_APPROVAL_UP,
    /* operations, writing */
    SQL_INSERT_OPERATION,
    SQL_UPDATE_OPERATION,
    SQL_UPDATE_IF,
    SQL_UPDATE_IF_OWNER,
    SQL_CLAIM,
    SQL_RELEASE,
    SQL_MARK,
    SQL_MARK_DELIVERED,
    SQL_SET_DOUBT,
    SQL_DELETE_DOUBT,
    SQL_DELETE_HISTORY,
    SQL_DELETE_OPERATION,
    /* the rest */
    SQL_ANY_DOUBT,
    SQL_ANY_TOMBSTONE,
    SQL_INSERT_HISTORY,
    SQL_ATTEMPTS,
    SQL_EVENTS,
    SQL_INSERT_INCIDENT,
    SQL_INCIDENT_BY_ID,
    SQL_INCIDENTS_OF,
    SQL_INCIDENTS,
    SQL_INCIDENTS_OPEN,
    SQL_ACKNOWLEDGE,
    SQL_INSERT_TOMBSTONE,
    SQL_TOMBSTONE_BY_ID,
    SQL_TOMBSTONE_BY_KEY,
    SQL_INSERT_TOKEN,
    SQL_TOKEN_BY_ID,
    SQL_TOKEN_BY_HASH,
    SQL_TOKENS,
    SQL_REVOKE_TOKEN,
    SQL_INSERT_INBOUND,
    SQL_INBOX_BY_EVENT,
    SQL_INBOX_BY_ID,
    SQL_INBOX_AGAIN,
    SQL_INBOX_COUNT,
    SQL_INBOX_COUNTS,
    SQL_INBOX_STANDING,
    SQL_INBOX_WAITING_FOR,
    SQL_INBOX_WAITING,
    SQL_INBOX_LIST,
    SQL_INBOX_LIST_OF,
    SQL_INBOX_LIST_WAITING,
    SQL_INBOX_OVER,
    SQL_INBOX_STATUS,
    SQL_INBOX_APPLY,
    SQL_DELETE_INBOUND,
    SQL_INBOX_LIST_UNDELIVERED,
    SQL_FORWARD_DUE,
    SQL_FORWARD_MOVE,
    SQL_INBOX_OPERATION_BY_ID,
    SQL_OPERATIONS_BY_PROVIDER_KEY,
    SQL_OPERATIONS_BY_EXTERNAL_ID,
    SQL_ENTITY,
    SQL_SET_ENTITY,
    SQL_DELETE_ENTITY,
    SQL_ENTITIES,
    SQL_ENTITIES_BUSY,
    SQL_WAITING,
    SQL_WAIT_LAST,
    SQL_WAIT_ADD,
    SQL_WAITS_OF,
    SQL_WAIT_REMOVE,
    SQL_WAKE,
    SQL_WINDOW,
    SQL_SET_WINDOW,
    SQL_DROP_WINDOW,
    SQL_SLICES,
    SQL_SET_SLICE,
    SQL_DELETE_SLICE,
    SQL_ALL_SLICES,
    SQL_PRUNE_WINDOWS,
    SQL_PRUNE_SLICES,
    SQL_COUNTERS,
    SQL_OLDEST_UNKNOWN,
    SQL_OPEN_INCIDENTS,
    SQL_APPROVALS_WAITING,
    SQL_CLAIMS_COUNT,
    STATEMENT_COUNT
};

struct store {
    sqlite3 *db;
    char *path;
    const char *name; /* file name within path, for messages */
    bool read_only;
    bool sole_writer;              /* no other process writes: what was seen to be empty stays so until we fill it */
    bool no_doubts, no_tombstones; /* seen to be empty (only with sole_writer); a roll-back forgets it */
    unsigned doubt_questions;      /* asked while it was not known to be empty */
    struct store_names names;
    struct arena scratch;       /* emptied after each command */
    enum store_fault fault;     /* of the command or transaction at hand */
    const struct err *refuse;   /* not NULL: writing commands end with this error instead */
    int64_t moved[STATE_COUNT]; /* change of the counters in this transaction */
    int wal_frames;             /* in the write-ahead log after the last commit */
    sqlite3_stmt *statements[STATEMENT_COUNT];
};

struct store_options {
    const char *path;
    bool read_only;
    bool sole_writer; /* the caller holds the lock file */
    bool unfinished;  /* also one into which a copy has not ended (copy.h): else ERR_INVALID */
};

/* The lock file beside the ledger: who holds it owns the ledger. The lock ends with *out being closed. ERR_UNAVAILABLE:
 * another process has it. */
enum err_code store_lock(const char *path, int *out, struct err *err);

/* Opens or creates the file, migrates it forward, reads or makes the secret. No integrity check. On failure the store
 * is released. */
enum err_code store_open(struct store *store, const struct store_options *options, struct env *env,
                         unsigned char secret[LEDGER_SECRET_BYTES], struct err *err);
/* The last connection copies the (bounded) write-ahead log back and removes it, so that the file is complete by itself.
 */
void store_release(struct store *store);

/* File layer that gathers writes to the log (sqlite_vfs.c); any number of calls. */
#define STORE_VFS "onced"
void store_register_vfs(void);

/* A bare connection to an existing file: for checks and backups. */
enum err_code store_connect(const char *path, int flags, const char *name, sqlite3 **out, struct err *err);

enum err_code store_begin(struct store *store, bool writing, struct err *err);
enum err_code store_commit(struct store *store, struct err *err); /* rolls back when it fails */
void store_rollback(struct store *store);

/* Runs one command; sets request->code and request->err. */
void store_execute(struct store *store, struct ledger_request *request);

/* Copies the write-ahead log back as far as readers allow. Failure is no harm: the next one does it. */
void store_checkpoint(struct store *store);
int64_t store_file_bytes(const char *path);
/* path with a suffix, to be freed. */
char *store_file_beside(const char *path, const char *suffix);

/* Verifies the whole file (table NULL) or one table with its indexes: every page, every index entry. ERR_CORRUPT with
 * what is wrong, or the error that came between (ERR_UNAVAILABLE when a progress handler of the caller interrupted it).
 */
enum err_code store_check(sqlite3 *db, const char *name, const char *table, struct err *err);

/* The same in a thread of its own with its own connection at low priority (sqlite_check.c), for files too large to
 * check before use. damaged is called from that thread, at most once. */
struct checker;
struct checker *checker_start(const char *path, void (*damaged)(void *user, const struct err *err), void *user);
/* Its read transaction keeps the write-ahead log from starting over: interrupts the check, which resumes a minute
 * later. */
void checker_yield(struct checker *checker);
void checker_stop(struct checker *checker); /* NULL is fine */

/* ---- shared by the parts of the store ---- */

/* The prepared statement, reset. NULL on failure (fault and err are set). */
sqlite3_stmt *store_prepare(struct store *store, enum statement which, struct err *err);
/* Steps once and resets: for statements that return no rows. */
enum err_code store_run(struct store *store, sqlite3_stmt *statement, struct err *err);
/* Steps; *row tells whether there is one. On failure or at the end the statement is reset. */
enum err_code store_step(struct store *store, sqlite3_stmt *statement, bool *row, struct err *err);
/* Records what SQLite's result code means, as fault and as a text that says what to do. */
enum err_code store_failed(struct store *store, int rc, struct err *err);
enum err_code store_describe(sqlite3 *db, const char *name, int rc, enum store_fault *fault, struct err *err);
/* A stored value that this program can not understand. */
enum err_code store_strange(struct store *store, const char *what, struct err *err);
/* ERR_NONE, or the error of store->refuse. */
enum err_code store_may_write(const struct store *store, struct err *err);

/* names (sqlite_schema.c) */
enum err_code store_migrate(struct store *store, struct env *env, struct err *err);
enum err_code store_names_load(struct store *store, bool may_add, struct err *err);

/* rows (sqlite_rows.c). Column lists fit the decode functions. */
#define OPERATION_HEAD                                                                                                 \
    "n, id, tenant, tool, principal, run, state, reason, rev, owner, lease_until_ms, wake_at_ms, delivered, "          \
    "orphaned, key_hash, key_version, fingerprint, base_hash, key_source, canonical_version, key, policy_version, "    \
    "workflow, step, session, call, trace, repeat_of, distinct_from, previous, provider_key, created_ms, "             \
    "not_before_ms, may_have_applied, attempts, lookups, tries, first_sent_ms, last_sent_ms, unknown_since_ms, "       \
    "updated_ms, completed_ms, retries, absent_count, watch_next, retain_until_ms, http_status, external_id, "         \
    "result_bytes, result_dropped, duplicate_seen, approval, ready_ms, claims, compensates, playbook, escalation, "    \
    "compensation, parent, steps"
#define OPERATION_PAYLOAD ", arguments, result, error"
#define EVENT_COLUMNS     "at_ms, cause, from_state, to_state, reason, attempt, actor, note"
#define ATTEMPT_COLUMNS                                                                                                \
    "attempt_number, attempt_id, attempt_kind, outcome, started_ms, finished_ms, http_status, provider_request_id, "   \
    "detail"
#define INCIDENT_COLUMNS "id, tenant, operation, kind, at_ms, note, acknowledged_by, acknowledged_ms"
#define TOMBSTONE_COLUMNS                                                                                              \
    "operation, tenant, tool, principal, key_hash, key_version, fingerprint, canonical_version, key_source, state, "   \
    "completed_ms, dropped_ms, external_id"
#define INBOX_COLUMNS                                                                                                  \
    "id, source, event, type, status, outcome, match, value, external_id, operation, created_ms, received_ms, "        \
    "settled_ms, duplicates, duplicate_ms, retain_until_ms, result, body, forward, forward_tries, forward_at_ms, "     \
    "forward_until_ms, forward_detail"
#define TOKEN_COLUMNS "id, secret_hash, tenant, principal, role, created_ms, expires_ms, revoked_ms, tools, entities"

/* A row as operation in arena; arguments, result and error only with payload. Position in the file goes to *n unless
 * NULL. */
enum err_code row_operation(struct store *store, sqlite3_stmt *row, struct arena *arena, bool payload, int64_t *n,
                            struct operation **out, struct err *err);
enum err_code row_attempt(struct store *store, sqlite3_stmt *row, struct arena *arena, struct attempt *out,
                          struct err *err);
enum err_code row_event(struct store *store, sqlite3_stmt *row, struct arena *arena, struct event *out,
                        struct err *err);
enum err_code row_incident(struct store *store, sqlite3_stmt *row, struct arena *arena, struct incident *out,
                           struct err *err);
enum err_code row_tombstone(struct store *store, sqlite3_stmt *row, struct arena *arena, struct tombstone **out,
                            struct err *err);
enum err_code row_token(struct store *store, sqlite3_stmt *row, struct arena *arena, struct token *out,
                        struct err *err);
/* admit gives the first event and attempt, which go into the row when they are plain; whether they did comes back. */
struct admitted bind_operation(struct store *store, sqlite3_stmt *statement, int64_t n,
                               const struct ledger_admit *admit);
/* The life columns for the updates of operations; returns how many they are. What the row is found by comes behind. */
int bind_life(struct store *store, sqlite3_stmt *statement, const struct operation *op, bool orphaned);
/* One line of history; event or attempt may be NULL. */
void bind_history(struct store *store, sqlite3_stmt *statement, int64_t n, int64_t sequence, const struct event *event,
                  const struct attempt *attempt);
void bind_incident(struct store *store, sqlite3_stmt *statement, const struct incident *incident);
void bind_tombstone(struct store *store, sqlite3_stmt *statement, const struct tombstone *stone);
void bind_token(struct store *store, sqlite3_stmt *statement, const struct token *token);
void bind_text(sqlite3_stmt *statement, int column, const char *text); /* borrowed until the statement's next reset */

/* Where the row of an id lies, or is looked for first; other ids that came before may push it up by less than
 * PLACES_TRIED. Positive and rising with time for ULIDs. */
#define PLACES_TRIED 64
int64_t operation_place(const char *id);
/* Binds ?1 and ?2 of the statements that look for an id. */
void bind_id(sqlite3_stmt *statement, const char *id);

/* The statement's first row as an operation, if there is one; resets. */
enum err_code read_operation(struct store *store, sqlite3_stmt *statement, struct arena *arena, bool payload,
                             int64_t *n, struct operation **out, struct err *err);
enum err_code read_tombstone(struct store *store, sqlite3_stmt *statement, struct arena *arena, struct tombstone **out,
                             struct err *err);

/* commands (sqlite_write.c, sqlite_query.c) */
enum err_code store_admit(struct store *store, struct ledger_request *request);
enum err_code store_transition(struct store *store, struct ledger_request *request);
enum err_code store_claim(struct store *store, struct ledger_request *request);
enum err_code store_mark(struct store *store, struct ledger_request *request);
enum err_code store_release_claims(struct store *store, struct ledger_request *request);
enum err_code store_expire(struct store *store, struct ledger_request *request);
enum err_code store_acknowledge(struct store *store, struct ledger_request *request);
enum err_code store_token_add(struct store *store, struct ledger_request *request);
enum err_code store_token_revoke(struct store *store, struct ledger_request *request);
enum err_code store_get(struct store *store, struct ledger_request *request);
enum err_code store_get_by_key(struct store *store, struct ledger_request *request);
enum err_code store_list(struct store *store, struct ledger_request *request);
enum err_code store_events(struct store *store, struct ledger_request *request);
enum err_code store_attempts(struct store *store, struct ledger_request *request);
enum err_code store_incidents(struct store *store, struct ledger_request *request);
enum err_code store_token_find(struct store *store, struct ledger_request *request);
enum err_code store_token_list(struct store *store, struct ledger_request *request);
enum err_code store_stats(struct store *store, struct ledger_request *request);
/* sqlite_inbox.c */
enum err_code store_record_inbound(struct store *store, struct ledger_request *request);
enum err_code store_inbox_of(struct store *store, struct ledger_request *request);
enum err_code store_inbox_due(struct store *store, struct ledger_request *request);
enum err_code store_inbox_list(struct store *store, struct ledger_request *request);
enum err_code store_inbox_counts(struct store *store, struct ledger_request *request);
enum err_code store_inbox_prune(struct store *store, struct ledger_request *request);
enum err_code store_forward_due(struct store *store, struct ledger_request *request);
enum err_code store_forward_move(struct store *store, struct ledger_request *request);
/* ERR_STALE unless the event is waiting; *source is in the scratch arena. Before anything of a transition is written.
 */
enum err_code store_inbound_waits(struct store *store, const char *id, const char **source, struct err *err);
enum err_code store_inbound_apply(struct store *store, const struct ledger_transition *change, const char *source,
                                  struct err *err);
/* sqlite_claims.c: what operations claim, within admissions and transitions; then the commands about it. */
enum err_code store_claim_facts(struct store *store, const struct admission *admission, struct claims_facts *out,
                                struct err *err);
enum err_code store_claim_admitted(struct store *store, const struct admission *admission, bool waits, struct err *err);
enum err_code store_claim_unchanged(struct store *store, const struct ledger_transition *change, struct err *err);
enum err_code store_claim_moved(struct store *store, enum state from, struct ledger_transition *change,
                                struct err *err);
enum err_code store_entities(struct store *store, struct ledger_request *request);
enum err_code store_entity_release(struct store *store, struct ledger_request *request);
enum err_code store_budgets(struct store *store, struct ledger_request *request);
/* The version that answers for the key (admission_answers): the operation with its payload, or a tombstone. */
enum err_code store_answers_by_key(struct store *store, struct arena *arena, const struct digest *key_hash,
                                   const char *tenant, const char *tool, struct operation **op,
                                   struct tombstone **tombstone, struct err *err);

#endif
