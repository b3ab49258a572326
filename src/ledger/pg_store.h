/* One connection to the ledger's PostgreSQL database and the commands on it: for one thread, no queue (pg.c has that).
 * A command runs within a transaction that its caller opened. When it fails in a way that needs a roll-back, `fault`
 * says how far the damage goes; logical refusals (stale, not found, …) leave it alone.
 *
 * Statements go through libpq's pipeline: writes are sent without waiting for what comes of them (pg_write); who needs
 * an answer asks (pg_ask) and takes it later (pg_answer), so that many commands share one journey to the server. Every
 * failure of what was sent shows at the next answer, or at the commit. */
#ifndef LEDGER_PG_STORE_H
#define LEDGER_PG_STORE_H

#include "ledger/rows.h"

#include "base/buf.h"

#include <libpq-fe.h>

#define PG_SCHEMA_VERSION 2
#define PG_SCHEMA         "onced" /* PostgreSQL schema that holds the tables unless the URL sets a search_path */
#define PG_PARTITIONS     8       /* of operations and history, by hash of the tenant */
#define PG_PARAMS_MAX     112
#define PG_PLACES         256 /* tenants whose partition is remembered; a power of two */
/* Defaults of the session; what the URL's options set counts instead. */
#define PG_STATEMENT_MS 10000
#define PG_LOCK_MS      5000
#define PG_IDLE_MS      10000
#define PG_CONNECT_S    3
/* How long the server may say nothing at all before it is taken for lost. */
#define PG_SILENCE_MS 20000
/* … and outside of pipelines, before the connection does any work: more than PG_LOCK_MS. A former primary that waits
 * for the word of a standby it has lost would wait for ever. */
#define PG_SETUP_MS 8000
/* How often pg.waits is asked while the server is waited for. */
#define PG_SLICE_MS 200
/* A gateway that stands still in the midst of a transaction (SIGSTOP, a paused machine) keeps its locks: others, when
 * they wait for the server, have sessions ended that have waited for their client so long within a transaction. */
#define PG_STUCK_MS     2000
#define PG_SERVER_LEAST 150000 /* as PQserverVersion has it */
/* Clocks that agree so far are taken as the same; they are compared that often. */
#define PG_CLOCK_SLACK_MS 100
#define PG_CLOCK_EVERY_MS 1000
/* News of watched operations (pg_news.h); the server takes less than 8000 bytes in one. */
#define PG_NEWS_CHANNEL   "onced"
#define PG_NEWS_BYTES_MAX 7900

enum pg_fault {
    PG_FINE,
    PG_COMMAND, /* this command only: run the others of the batch without it */
    PG_LATER,   /* beside another batch of this gateway: run it again after that one */
    PG_AGAIN,   /* another gateway was in the way (deadlock, key inserted meanwhile): run it again */
    PG_BUSY,    /* the server is there and can not write now (disk full, lock or statement time-out) */
    PG_AWAY,    /* the connection is lost or leads to a server that takes no writes; nothing was committed */
    PG_DOUBT,   /* it was lost while the commit was under way: whether it happened must be found out */
    PG_CORRUPT
};

/* Prepared at first use of each connection. The texts are in pg_statements.c. */
enum pg_statement {
    PG_BEGIN,
    PG_BEGIN_READ,
    PG_COMMIT,
    PG_ROLLBACK,
    PG_FENCE,
    PG_CLOCK,
    PG_PLACE,
    PG_COUNT,
    /* operations, reading */
    PG_OPERATION_BY_ID,
    PG_OPERATION_OF,
    PG_STATE,
    PG_OPERATION_BY_KEY,
    PG_REPEATS,
    PG_REPEATS_OF_RUN,
    PG_IN_DOUBT,
    PG_LIFE,
    PG_BEGINNING,
    PG_DUE,
    PG_HELD,
    PG_FOREIGN,
    PG_NEXT_WAKE,
    PG_LIST_DOWN, /* in this order: all, of a run, in doubt, awaiting approval … */
    PG_LIST_UP,
    PG_LIST_RUN_DOWN,
    PG_LIST_RUN_UP,
    PG_LIST_DOUBT_DOWN,
    PG_LIST_DOUBT_UP,
    PG_LIST_APPROVAL_DOWN,
    PG_LIST_APPROVAL_UP,
    PG_LIST_END_DOWN, /* … and the same again */
    PG_LIST_END_UP,
    PG_LIST_END_RUN_DOWN,
    PG_LIST_END_RUN_UP,
    PG_LIST_END_DOUBT_DOWN,
    PG_LIST_END_DOUBT_UP,
    PG_LIST_END_APPROVAL_DOWN,
    PG_LIST_END_APPROVAL_UP,
    /* operations, writing */
    PG_INSERT_OPERATION,
    PG_ADMIT, /* these three: many rows (pg_groups.c) */
    PG_MOVE,
    PG_MARK,
    PG_CLAIM,
    PG_RELEASE,
    PG_WATCH,
    PG_NOTIFY,
    PG_DELETE_HISTORY,
    PG_DELETE_OPERATION,
    /* the rest */
    PG_INSERT_HISTORY,
    PG_ATTEMPTS,
    PG_EVENTS,
    PG_INSERT_INCIDENT,
    PG_INCIDENT,
    PG_INCIDENTS_OF,
    PG_INCIDENTS,
    PG_ACKNOWLEDGE,
    PG_INSERT_TOMBSTONE,
    PG_TOMBSTONE_BY_ID,
    PG_TOMBSTONE_BY_KEY,
    PG_INSERT_TOKEN,
    PG_TOKEN_BY_ID,
    PG_TOKEN_BY_HASH,
    PG_TOKENS,
    PG_REVOKE_TOKEN,
    PG_INSERT_INBOUND,
    PG_INBOX_BY_EVENT,
    PG_INBOX_BY_ID,
    PG_INBOX_AGAIN,
    PG_INBOX_COUNT,
    PG_INBOX_COUNTS,
    PG_INBOX_STANDING,
    PG_INBOX_WAITING_FOR,
    PG_INBOX_WAITING,
    PG_INBOX_LIST, /* in this order: all, waiting, undelivered, of an operation … */
    PG_INBOX_LIST_WAITING,
    PG_INBOX_LIST_UNDELIVERED,
    PG_INBOX_LIST_OF,
    PG_INBOX_LIST_END, /* … and the same again */
    PG_INBOX_LIST_END_WAITING,
    PG_INBOX_LIST_END_UNDELIVERED,
    PG_INBOX_LIST_END_OF,
    PG_FORWARD_DUE,
    PG_FORWARD_MOVE,
    PG_INBOX_OVER,
    PG_INBOX_NEXT,
    PG_INBOX_STATUS,
    PG_INBOX_APPLY,
    PG_DELETE_INBOUND,
    PG_NAMED_BY_ID,
    PG_NAMED_BY_PROVIDER_KEY,
    PG_NAMED_BY_EXTERNAL_ID,
    PG_ENTITY,
    PG_SET_ENTITY,
    PG_DELETE_ENTITY,
    PG_ENTITIES,
    PG_WAITING,
    PG_WAIT_LAST,
    PG_WAIT_ADD,
    PG_WAITS_OF,
    PG_WAIT_REMOVE,
    PG_WAKE,
    PG_WINDOW,
    PG_SET_WINDOW,
    PG_DROP_WINDOW,
    PG_SLICES,
    PG_SET_SLICE,
    PG_DELETE_SLICE,
    PG_ALL_SLICES,
    PG_PRUNE_WINDOWS,
    PG_PRUNE_SLICES,
    PG_COUNTERS,
    PG_OLDEST_UNKNOWN,
    PG_OPEN_INCIDENTS,
    PG_APPROVALS_WAITING,
    PG_CLAIMS_COUNT,
    PG_BYTES,
    PG_STATEMENT_COUNT
};

/* Which server it is, as far as it can tell; 0 = not known. A promoted standby has its primary's system and begins a
 * new timeline, with a higher number. */
struct pg_server {
    int64_t system, timeline;
};

/* What was sent and has not come back. */
struct pg_sent {
    enum { SENT_PREPARE, SENT_WRITE, SENT_WRITE_ONE, SENT_ASKED, SENT_COMMIT, SENT_SYNC } kind;
    enum pg_statement which;
    int partition; /* PREPARE */
    int ticket;    /* ASKED */
};

/* What goes to the server in one statement for many rows; sent in this order. */
enum pg_group_kind { PG_GROUP_MOVES, PG_GROUP_MARKS, PG_GROUP_ADMISSIONS };
#define PG_GROUPS 3
struct pg_group {
    struct buf rows;
    int count;  /* not sent yet */
    int ticket; /* theirs */
};

struct pg {
    PGconn *conn; /* NULL: away */
    char *url;
    char name[128]; /* of the database for messages: "database at host"; never a password */
    struct env *env;
    struct env_shared *clock; /* env, when it is to follow the database's clock; else NULL */
    bool own_clock;           /* times are the caller's (tests): the database's clock is not asked */
    int64_t offset_ms;        /* the database's clock minus ours; 0 while they agree within PG_CLOCK_SLACK_MS */
    int64_t clock_asked_ms, clock_before_ms; /* when it was asked last: monotonic, and ours */
    int clock_ticket;                        /* of the transaction at hand, -1: not asked */
    /* This process in the table gateways: every writing transaction sets its batch there and fails when another
     * connection has raised the epoch since: of a lost connection nothing can be committed later on. */
    char gateway[ULID_CHARS + 1];
    char sender[ULID_CHARS + 1]; /* of news: the gateway of the process's first connection */
    bool beside;                 /* the batch at hand runs beside another one of this process */
    int64_t epoch, batch;
    unsigned first_host;     /* of the URL's: which of them is tried first */
    struct pg_server server; /* its timeline only grows */
    bool patient;            /* the server may be silent for as long as it likes (migrations) */
    bool warned;             /* the server has sent a warning since this was cleared */
    /* Asked every PG_SLICE_MS while the server says nothing; true: give the connection up. NULL = go on. */
    bool (*waits)(void *owner, int64_t waited_ms);
    void *waits_owner;
    /* What a server said that died (PANIC), until one works again; "" = nothing. */
    char last_words[160];

    /* In which partition a tenant's rows lie, by its hash. A statement for that partition alone costs a third of one
     * for the whole table, which opens all partitions with their indexes. The server is asked in passing: until its
     * word is there, statements go to the whole table. */
    struct pg_place {
        char *tenant; /* NULL: free */
        int partition;
    } places[PG_PLACES];
    char *place_wanted; /* NULL: none */
    int place_ticket;   /* of the transaction at hand, -1: not asked */

    char *texts[PG_STATEMENT_COUNT];
    bool prepared[PG_STATEMENT_COUNT][PG_PARTITIONS + 1]; /* the last one: for the whole table */
    struct pg_sent *sent;                                 /* a ring */
    size_t sent_first, sent_count, sent_room;
    bool unflushed;     /* the server holds results back until it is asked for them */
    PGresult **answers; /* by ticket; NULL: not there yet */
    int ticket_count, ticket_room;
    Oid row_types[PG_GROUPS];
    struct pg_group groups[PG_GROUPS][PG_PARTITIONS + 1]; /* the last one: of tenants whose place is not known */

    struct arena scratch; /* emptied after each command */
    enum pg_fault fault;  /* of the command or transaction at hand */
    bool writing;         /* the transaction is */
    int64_t moved[STATE_COUNT];
    bool mute;                       /* the server knows no notifications: others find out by looking */
    char (*news)[OPERATION_ID_SIZE]; /* watched operations that the transaction at hand moves */
    size_t news_count, news_room;
};

/* ---- connection (pg_connect.c) ---- */

/* Connects nothing yet. url is copied. */
void pg_init(struct pg *pg, const char *url, struct env *env, bool own_clock);
/* Connects, takes the settings and a new epoch; *committed tells whether the batch that the connection before was
 * committing has happened. ERR_UNAVAILABLE: try again later; ERR_INVALID, ERR_DENIED: somebody must do something. */
enum err_code pg_connect(struct pg *pg, bool *committed, struct err *err);
/* The connection without epoch and tables, for their migration. */
enum err_code pg_connect_bare(struct pg *pg, struct err *err);
void pg_disconnect(struct pg *pg);
void pg_release(struct pg *pg);

/* Outside of pipelines. An engine that knows no such things leaves zeros. */
enum err_code pg_which_server(struct pg *pg, struct pg_server *server, struct err *err);

/* The database's clock showed there_ms at some moment between before_ms and after_ms of ours. */
void pg_compare_clocks(struct pg *pg, int64_t before_ms, int64_t after_ms, int64_t there_ms);

/* How many hosts the URL names. */
unsigned pg_hosts(const struct pg *pg);
/* Sends what is to be sent and reads what comes, until something can be taken (reading) or all is sent. A server that
 * says nothing for PG_SILENCE_MS (PG_SETUP_MS) is lost: its answers come within the time-outs of the session. */
enum err_code pg_exchange(struct pg *pg, bool reading, struct err *err);
/* One text without parameters or answer, outside of pipelines: sessions, migrations. */
enum err_code pg_exec(struct pg *pg, const char *sql, struct err *err);
/* The same with an answer; the caller clears *out. */
enum err_code pg_exec_rows(struct pg *pg, const char *sql, int count, const char *const *values, PGresult **out,
                           struct err *err);
/* What a failed result or a lost connection (result NULL) means, as fault and as a text that says what to do. */
enum err_code pg_failed(struct pg *pg, const PGresult *result, struct err *err);
/* A stored value that this program can not understand. */
enum err_code pg_strange(struct pg *pg, const char *what, struct err *err);

/* ---- schema (pg_schema.c) ---- */

/* Creates or migrates forward under an advisory lock; reads or makes the secret. */
enum err_code pg_migrate(struct pg *pg, unsigned char secret[LEDGER_SECRET_BYTES], struct err *err);
/* Of the tables, 0 where there are none. */
enum err_code pg_version(struct pg *pg, int *version, struct err *err);
enum err_code pg_secret(struct pg *pg, unsigned char secret[LEDGER_SECRET_BYTES], struct err *err);
/* ERR_INVALID when a newer onced has migrated the tables. */
enum err_code pg_check_version(struct pg *pg, struct err *err);
/* The texts of all statements. */
void pg_statements_make(char *texts[PG_STATEMENT_COUNT]);
/* sql with {…} replaced by lists of columns (pg_statements.c); fixed: parameters that it names itself. To be freed. */
char *pg_expand(const char *sql, int fixed);

/* ---- who may work on it (pg_lock.c) ---- */

/* A gateway's share, until the connection ends. ERR_UNAVAILABLE: somebody has it alone; ERR_INVALID: a copy into it has
 * not ended. */
enum err_code pg_share(struct pg *pg, struct err *err);
/* Alone, until the connection ends; waits PG_ALONE_MS for the shares of others. *in_use: they stay. */
enum err_code pg_take_alone(struct pg *pg, bool *in_use, struct err *err);
#define PG_ALONE_MS 2000

/* ---- statements (pg_pipeline.c) ---- */

struct pg_query {
    struct pg *pg;
    enum pg_statement which;
    int partition; /* PG_PARTITIONS: the whole table */
    int count, ticket;
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX], formats[PG_PARAMS_MAX];
    Oid types[PG_PARAMS_MAX];
    unsigned char numbers[PG_PARAMS_MAX][8];
};

void pg_query(struct pg_query *query, struct pg *pg, enum pg_statement which);
/* The same for a statement that is only about rows of this tenant: it looks into their partition alone, where that is
 * known. tenant NULL: as pg_query. */
void pg_query_in(struct pg_query *query, struct pg *pg, enum pg_statement which, const char *tenant);
/* sql for one partition of operations and history. To be freed. */
char *pg_in_partition(const char *sql, int partition);
void pg_forget_places(struct pg *pg);
/* In the order of the parameters. Texts are borrowed until the query is sent; what is not UTF-8 or has a NUL is sent
 * with U+FFFD in those places, since PostgreSQL takes nothing else. */
void pg_put_text(struct pg_query *query, const char *text); /* NULL puts NULL */
void pg_put_str(struct pg_query *query, struct str text);
void pg_put_bytes(struct pg_query *query, struct str bytes);
void pg_put_int(struct pg_query *query, int64_t value);
void pg_put_digest(struct pg_query *query, const struct digest *digest); /* NULL puts NULL */
void pg_put_moment(struct pg_query *query, int64_t ms);                  /* of ours, 0 = none, as the database's */
void pg_put_no_int(struct pg_query *query);                              /* NULL */
void pg_put_rows(struct pg_query *query, struct str array);              /* pg_groups.c */

/* Sends; failures show later. one: exactly one row must be written, else PG_AGAIN. */
enum err_code pg_write(struct pg_query *query, struct err *err);
enum err_code pg_write_one(struct pg_query *query, struct err *err);
enum err_code pg_ask(struct pg_query *query, struct err *err);
int pg_ticket(struct pg *pg); /* one for what is asked later: query->ticket */
/* The answer to what was asked, the store's until the transaction ends. */
enum err_code pg_answer(struct pg *pg, int ticket, const PGresult **out, struct err *err);
/* Both. */
enum err_code pg_rows(struct pg_query *query, const PGresult **out, struct err *err);
/* Rows that an answer says were written. */
int64_t pg_written(const PGresult *result);

/* Opens a transaction. locks: sorted advisory locks that it takes first. */
enum err_code pg_begin(struct pg *pg, bool writing, const int64_t *locks, size_t lock_count, struct err *err);
enum err_code pg_commit(struct pg *pg, struct err *err); /* rolls back when it fails */
void pg_rollback(struct pg *pg);

/* ---- rows (pg_rows.c) ---- */

struct pg_row {
    struct pg *pg;
    const PGresult *result;
    int row, column;
    struct arena *arena;
    const char *strange; /* what could not be understood */
};

struct pg_row pg_row(struct pg *pg, const PGresult *result, int row, struct arena *arena);
bool pg_take_null(struct pg_row *row); /* whether the next one is NULL; stays there */
int64_t pg_take_int(struct pg_row *row);
int64_t pg_take_moment(struct pg_row *row);
const char *pg_take_text(struct pg_row *row);
struct str pg_take_str(struct pg_row *row);
bool pg_take_digest(struct pg_row *row, struct digest *out);
int pg_take_name(struct pg_row *row, enum name_kind kind); /* -1 and strange: not known */
void pg_take_id(struct pg_row *row, char out[OPERATION_ID_SIZE]);

enum column_kind {
    COLUMN_ID,        /* char[OPERATION_ID_SIZE] */
    COLUMN_TEXT,      /* const char * */
    COLUMN_STR,       /* struct str, text */
    COLUMN_BYTES,     /* struct str, any bytes */
    COLUMN_INT64,     /* int64_t */
    COLUMN_MOMENT,    /* int64_t, ms; the database's clock in the table, ours in the record */
    COLUMN_INT,       /* int */
    COLUMN_BOOL,      /* bool */
    COLUMN_DIGEST,    /* struct digest */
    COLUMN_BASE_HASH, /* operations only: NULL when it is the key hash */
    COLUMN_NAME       /* an enumeration, as its text */
};
enum column_flag {
    COLUMN_REQUIRED = 1, /* NOT NULL */
    COLUMN_LIFE = 2,     /* transitions write it */
    COLUMN_PAYLOAD = 4
};
struct column {
    const char *name;
    enum column_kind kind;
    enum name_kind names; /* NAME */
    size_t offset;        /* in the record */
    int flags;
};
/* The records' columns: tables, statements, writing and reading all go by these lists. */
struct columns {
    const char *name; /* "operation", … */
    const struct column *list;
    size_t count;
};
enum pg_record { RECORD_OPERATION, RECORD_EVENT, RECORD_ATTEMPT, RECORD_INCIDENT, RECORD_TOMBSTONE, RECORD_TOKEN };
#define PG_RECORDS 6
extern const struct columns pg_columns[PG_RECORDS];

void pg_put_record(struct pg_query *query, enum pg_record which, const void *record);
/* NULLs for all its columns. */
void pg_put_nothing(struct pg_query *query, enum pg_record which);
/* The columns that a transition writes. */
void pg_put_life(struct pg_query *query, const struct operation *op);
/* Fills *record, which is zeroed first; without payload the columns of COLUMN_PAYLOAD are not in the row. */
enum err_code pg_take_record(struct pg_row *row, enum pg_record which, bool payload, void *record, size_t bytes,
                             struct err *err);

/* The first row of an answer as an operation, or NULL. */
enum err_code pg_take_operation(struct pg *pg, const PGresult *result, int row, struct arena *arena, bool payload,
                                struct operation **out, struct err *err);
enum err_code pg_take_tombstone(struct pg *pg, const PGresult *result, struct arena *arena, struct tombstone **out,
                                struct err *err);

/* ---- many rows in one statement (pg_groups.c) ---- */

/* The group of a tenant's rows. *row is begun: the caller puts the type's columns, then adds it. */
struct pg_group *pg_group_of(struct pg *pg, enum pg_group_kind kind, const char *tenant, struct pg_query *row);
int pg_group_add(struct pg_group *group, const struct pg_query *row); /* its place in the group */
/* The answer's ticket is that of the group since its first row. */
enum err_code pg_group_send(struct pg *pg, enum pg_group_kind kind, int partition, struct err *err);
/* What the statement of this ticket has returned for the row of this place and id, from its second column on; *found:
 * it was written. */
enum err_code pg_group_row(struct pg *pg, int ticket, int at, const char *id, struct pg_row *row, bool *found,
                           struct err *err);
void pg_groups_clear(struct pg *pg); /* a transaction begins: what another one has left is not its own */
enum err_code pg_groups_send(struct pg *pg, struct err *err); /* all that have rows */
void pg_groups_release(struct pg *pg);
/* What the server calls the types of the rows; once per connection. */
enum err_code pg_groups_learn(struct pg *pg, struct err *err);

/* ---- commands ---- */

/* What a command has asked for ahead of its turn, with the others of its wave. */
struct pg_ahead {
    bool asked;
    int by_key, stone, repeats, doubts; /* tickets, -1 = not asked */
    int rows, at;                       /* it is a row of the group with this ticket, in this place */
    bool inserted;                      /* of an admission that found nothing, if so */
};
/* Whether the command can ask ahead: then it does, and the commands behind it may do so before its turn comes. What it
 * writes becomes a row of a group. */
bool pg_goes_ahead(const struct ledger_request *request);
void pg_ahead(struct pg *pg, struct ledger_request *request, struct pg_ahead *ahead);
/* Of what goes ahead: the operation whose row it changes, or NULL; and about how many bytes it sends. */
const char *pg_ahead_changes(const struct ledger_request *request);
size_t pg_ahead_bytes(const struct ledger_request *request);
/* When the groups of the wave were sent: those that have to ask more do, again all before any waits. */
enum err_code pg_ahead_again(struct pg *pg, struct ledger_request *request, struct pg_ahead *ahead, struct err *err);
/* Whether it goes ahead and all that it has to know of other operations is that there is none of its key, nor one that
 * it would repeat: then it is new, or not, whatever becomes of those that are there. */
bool pg_minds_itself(struct ledger_request *request);
/* Whether the second, an admission, could meet what the first, another one, inserts. */
bool pg_admissions_meet(const struct ledger_request *first, const struct ledger_request *second);
/* Adds the advisory locks that keep other gateways away from what the command decides by. At most PG_LOCKS_MAX. */
#define PG_LOCKS_MAX 3
size_t pg_locks_of(const struct ledger_request *request, int64_t locks[PG_LOCKS_MAX]);

/* Runs one command; sets request->code and request->err. */
void pg_execute(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead);

/* pg_write.c */
enum err_code pg_admit(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead);
enum err_code pg_transition(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead);
enum err_code pg_mark(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead);
enum err_code pg_watch(struct pg *pg, struct ledger_request *request);
enum err_code pg_release_claims(struct pg *pg, struct ledger_request *request);
enum err_code pg_claim(struct pg *pg, struct ledger_request *request);
enum err_code pg_expire(struct pg *pg, struct ledger_request *request);
enum err_code pg_acknowledge(struct pg *pg, struct ledger_request *request);
enum err_code pg_token_add(struct pg *pg, struct ledger_request *request);
enum err_code pg_token_revoke(struct pg *pg, struct ledger_request *request);
/* The operation with its payload, or NULL. With its tenant: locked until the transaction ends; NULL: of any, not
 * locked.
 */
enum err_code pg_operation(struct pg *pg, const char *tenant, const char *id, struct arena *arena,
                           struct operation **out, struct err *err);
enum err_code pg_answers_by_key(struct pg *pg, struct arena *arena, const struct digest *key_hash, const char *tenant,
                                const char *tool, struct operation **op, struct tombstone **stone, struct err *err);
/* pg_query.c */
enum err_code pg_get(struct pg *pg, struct ledger_request *request);
enum err_code pg_get_by_key(struct pg *pg, struct ledger_request *request);
enum err_code pg_list(struct pg *pg, struct ledger_request *request);
enum err_code pg_events(struct pg *pg, struct ledger_request *request);
enum err_code pg_attempts(struct pg *pg, struct ledger_request *request);
enum err_code pg_incidents(struct pg *pg, struct ledger_request *request);
enum err_code pg_token_find(struct pg *pg, struct ledger_request *request);
enum err_code pg_token_list(struct pg *pg, struct ledger_request *request);
enum err_code pg_stats(struct pg *pg, struct ledger_request *request);
/* pg_inbox.c */
enum err_code pg_record_inbound(struct pg *pg, struct ledger_request *request);
enum err_code pg_inbox_of(struct pg *pg, struct ledger_request *request);
enum err_code pg_inbox_due(struct pg *pg, struct ledger_request *request);
enum err_code pg_inbox_list(struct pg *pg, struct ledger_request *request);
enum err_code pg_inbox_counts(struct pg *pg, struct ledger_request *request);
enum err_code pg_inbox_prune(struct pg *pg, struct ledger_request *request);
enum err_code pg_forward_due(struct pg *pg, struct ledger_request *request);
enum err_code pg_forward_move(struct pg *pg, struct ledger_request *request);
/* ERR_STALE unless the event is waiting; locks it. *source is in the scratch arena. */
enum err_code pg_inbound_waits(struct pg *pg, const char *id, const char **source, struct err *err);
enum err_code pg_inbound_apply(struct pg *pg, const struct ledger_transition *change, const char *source,
                               struct err *err);
/* pg_claims.c */
enum err_code pg_claim_facts(struct pg *pg, const struct admission *admission, struct claims_facts *out,
                             struct err *err);
enum err_code pg_claim_admitted(struct pg *pg, const struct admission *admission, bool waits, struct err *err);
enum err_code pg_claim_unchanged(struct pg *pg, const struct ledger_transition *change, struct err *err);
enum err_code pg_claim_moved(struct pg *pg, enum state from, struct ledger_transition *change, struct err *err);
enum err_code pg_entities(struct pg *pg, struct ledger_request *request);
enum err_code pg_entity_release(struct pg *pg, struct ledger_request *request);
enum err_code pg_budgets(struct pg *pg, struct ledger_request *request);

#endif
