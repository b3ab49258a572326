/* The durable store: a handful of commands, each atomic (design 15). Implementations: memory, SQLite. All commands are
 * asynchronous: submit hands a request over, done is called from ledger_poll() on the thread that polls, in the order
 * of submission. A request whose code is 0 is durable; with any other code nothing of it happened. */
#ifndef LEDGER_LEDGER_H
#define LEDGER_LEDGER_H

#include "base/arena.h"
#include "base/env.h"
#include "base/err.h"
#include "core/admission.h"
#include "core/inbox.h"
#include "core/operation.h"

#define LEDGER_SECRET_BYTES 32

enum ledger_command {
    LEDGER_ADMIT,
    LEDGER_TRANSITION,
    LEDGER_CLAIM_DUE,
    LEDGER_MARK,
    LEDGER_WATCH,
    LEDGER_RELEASE,
    LEDGER_EXPIRE,
    LEDGER_GET,
    LEDGER_GET_BY_KEY,
    LEDGER_LIST,
    LEDGER_EVENTS,
    LEDGER_ATTEMPTS,
    LEDGER_INCIDENTS,
    LEDGER_ACKNOWLEDGE,
    LEDGER_TOKEN_ADD,
    LEDGER_TOKEN_FIND,
    LEDGER_TOKEN_LIST,
    LEDGER_TOKEN_REVOKE,
    LEDGER_RECORD_INBOUND,
    LEDGER_INBOX_OF,
    LEDGER_INBOX_DUE,
    LEDGER_INBOX_LIST,
    LEDGER_INBOX_COUNTS,
    LEDGER_INBOX_PRUNE,
    LEDGER_FORWARD_DUE,
    LEDGER_FORWARD_MOVE,
    LEDGER_ENTITIES,
    LEDGER_ENTITY_RELEASE,
    LEDGER_BUDGETS,
    LEDGER_STATS
};

/* Collects admission_facts, calls admission_decide, and on VERDICT_NEW inserts op, its first event, and attempt when
 * op->state is dispatched. existing / tombstone point to copies in the request's arena. */
struct ledger_transition;
struct ledger_admit {
    struct admission admission; /* in; admission.op is inserted as it is */
    /* in: of a compensation (op->compensates) the move of the operation that it undoes, written in the same transaction
     * when the verdict is NEW; if that one has moved since: ERR_STALE. NULL with all else */
    struct ledger_transition *undoes;
    /* in: of a step, or of what undoes one in a rollback (op->parent), the move of its parent, likewise. Without it
     * nothing is undone that is a step of an operation that has not ended: ERR_CONFLICT */
    struct ledger_transition *parent;
    struct attempt *attempt;        /* in: NULL unless op->state is dispatched */
    struct event event;             /* in: the admission event */
    bool dry_run;                   /* in: decide only, insert nothing (plan-only calls, design 4) */
    struct admission_result result; /* out; texts of the refusal are in the request's arena */
};

#define LEDGER_CHANGE_EVENTS_MAX    4
#define LEDGER_CHANGE_ATTEMPTS_MAX  2
#define LEDGER_CHANGE_INCIDENTS_MAX 2

/* Compare-and-set: writes all life fields of op (not delivered / orphaned; orphaned is cleared when the new state is
 * terminal) if the stored rev is op->rev - 1 and, when fence is not NULL, the stored owner equals fence, or, with
 * unheld, there is none (a claim does not raise rev). Else
 * ERR_STALE, ERR_NOT_FOUND when there is no such row. Attempts are inserted or, when the id exists, updated.
 * What op claims (core/claims.h) follows its state in the same transaction: what becomes of its entities, window and
 * budgets is claims_move()'s word. A planned operation that awaits its entities and gets them has wake_at = now. */
struct ledger_undone {
    const struct operation *op; /* as it is now */
    struct event events[LEDGER_CHANGE_EVENTS_MAX];
    size_t event_count;
    bool incident; /* the one of incident_id was raised */
};

struct ledger_transition {
    const struct operation *op; /* in: the new row, rev already raised by one */
    const char *fence;          /* in: incarnation that must hold the row, NULL = no check … */
    bool unheld;                /* … but, with this, that nobody may hold it */
    struct event events[LEDGER_CHANGE_EVENTS_MAX];
    size_t event_count;
    struct attempt attempts[LEDGER_CHANGE_ATTEMPTS_MAX];
    size_t attempt_count;
    struct incident incidents[LEDGER_CHANGE_INCIDENTS_MAX];
    size_t incident_count;
    /* of a first request: its entities as its guards saw them (seen_rev). Changed since: ERR_STALE, nothing is changed.
     * NULL: no guard looked */
    const struct claims *seen;
    const char *inbound; /* id of the waiting inbound event that this change applies, or NULL; it becomes applied to op
                            in the same transaction. No longer waiting: ERR_STALE, nothing is changed */
    int64_t wake_ms;     /* out: earliest wake_at that it set for others (who waited for its entities); 0 = none */
    /* of a compensation: with its end, what it undoes is moved, too (core/playbook.h); of a step, and of what undoes
     * one: its parent (core/steps.h). in: an id for the incident that this may raise; out: the operations that were
     * moved, NULL = none was */
    char incident_id[OPERATION_ID_SIZE];
    const struct ledger_undone *undone, *parent;
};

/* Hands out rows whose wake_at_ms has come (0 < wake_at <= now): non-terminal rows first, oldest first, and only rows
 * without owner, owned by `owner`, or whose lease has ended (lease_until <= now). With `foreign`: instead all
 * non-terminal rows owned by any other incarnation, whatever their lease (only right when the caller knows that no
 * other process lives: SQLite under its lock file), but those that executors of guard mode hold. Each row handed out
 * gets owner, lease_until = now + lease_ms and wake_at = ledger_renewal_ms(), in the same transaction (rev is not
 * raised; no event). */
struct ledger_claim {
    const char *owner;          /* in */
    int64_t now_ms, lease_ms;   /* in */
    bool foreign;               /* in */
    size_t limit;               /* in: <= LEDGER_CLAIM_MAX */
    struct operation **ops;     /* out: rows as they were before the claim except owner, lease, wake (new values); */
    const char **former_owners; /* out: per row, NULL when it had none */
    size_t count;               /* out */
    int64_t next_wake_ms;       /* out: earliest wake_at left in the ledger, 0 = none */
};
#define LEDGER_CLAIM_MAX 256
/* With a third of the lease left it is the owner's to renew, or, once it has ended, anybody's. */
static inline int64_t ledger_renewal_ms(const struct ledger_claim *claim)
{
    return claim->now_ms + claim->lease_ms - claim->lease_ms / 3;
}

/* Sets flags without touching rev (true sets, false leaves alone). Unknown ids are ignored. */
struct ledger_mark {
    const char *operation;
    const char *tenant; /* whose it is, where that is known: it is found faster; NULL = not */
    bool delivered, orphaned;
    bool not_orphaned; /* clears orphaned: somebody waits again */
};

/* Replaces a terminal operation by its tombstone: row, attempts, events go, incidents stay. CAS on rev. ERR_CONFLICT
 * while it is open, and while its parent is: what a step gave may be wanted yet, and it may have to be undone. */
struct ledger_expire {
    const char *operation;
    int64_t rev, now_ms;
};

/* A gateway that stops lets go of what it holds, but for what it has dispatched: bytes of that may be under way, so its
 * lease says when that is over. All else is due at now_ms, for whoever comes first. */
struct ledger_release {
    const char *owner; /* in */
    int64_t now_ms;    /* in */
    int64_t count;     /* out: rows */
};

/* By operation id; tenant NULL = any. ERR_NOT_FOUND (also for another tenant's). A dropped operation gives tombstone.
 */
struct ledger_get {
    const char *tenant, *operation; /* in */
    struct operation *op;           /* out, or NULL */
    struct tombstone *tombstone;    /* out, or NULL */
    struct incident *incidents;     /* out: of this operation, at most 16, oldest first */
    size_t incident_count;
};

/* LEDGER_WATCH takes a ledger_get, too, with the tenant: from now on moves of this operation, whoever makes them, are
 * told as news (ledger_on_news); what it has become until then is the answer. */

/* By key hash: the highest version. Outputs as ledger_get. */
struct ledger_get_by_key {
    const char *tenant, *tool;
    struct digest key_hash;
    struct operation *op;
    struct tombstone *tombstone;
};

/* Newest first. A page looks at no more than LEDGER_SCAN_MAX rows, so it may be shorter than limit and still have a
 * cursor. */
#define LEDGER_SCAN_MAX 10000
struct ledger_list {
    const char *tenant;                 /* NULL = any */
    const char *tool, *run, *principal; /* NULL = any */
    uint32_t states;                    /* bit per enum state; 0 = any */
    enum reason reason;                 /* REASON_NONE = any */
    const struct claims *sharing;       /* only operations that claim one of these entities; NULL = any */
    const char *before;                 /* operation id: continue below it; NULL = from the newest */
    bool oldest_first;                  /* run reports: ascending, `before` then means after */
    size_t limit;                       /* <= LEDGER_LIST_MAX */
    bool with_payload;                  /* arguments, result and error too */
    struct operation **ops;             /* out */
    size_t count;
    const char *next; /* out: cursor for the next page, NULL at the end */
};
#define LEDGER_LIST_MAX 500

/* Of one operation, oldest first, at most LEDGER_HISTORY_MAX newest ones. */
#define LEDGER_HISTORY_MAX 1000
struct ledger_events {
    const char *operation;
    struct event *events;
    size_t count;
};
struct ledger_attempts {
    const char *operation;
    struct attempt *attempts;
    size_t count;
};

/* Newest first. */
struct ledger_incidents {
    const char *tenant; /* NULL = any */
    bool open_only;
    const char *before; /* incident id cursor or NULL */
    size_t limit;
    struct incident *incidents; /* out */
    size_t count;
    const char *next;
};
struct ledger_acknowledge {
    const char *tenant, *incident, *by; /* in */
    int64_t now_ms;
    struct incident result; /* out; a repeated acknowledgement returns the first one */
};

/* Bearer tokens (table principals): only SHA-256 of the secret is stored. */
enum role { ROLE_AGENT, ROLE_APPROVER, ROLE_OPERATOR, ROLE_ADMIN };
const char *role_name(enum role role);
bool role_from_name(struct str text, enum role *out);
struct token {
    const char *id; /* "tok_" + ULID: for lists and revocation */
    struct digest secret_hash;
    const char *tenant, *principal;
    enum role role;
    int64_t created_ms, expires_ms, revoked_ms; /* 0 = not */
    const char *tools, *entities;               /* what it is limited to, as scope_list_text makes it; NULL = all */
};
struct ledger_token { /* ADD: token in. FIND: secret_hash in, token out. REVOKE: id and revoked_ms in */
    struct token token;
};
struct ledger_token_list {
    struct token *tokens;
    size_t count;
};

/* ---- inbox (design 11.1) ---- */

#define LEDGER_INBOX_OPS_MAX    4  /* operations that one event is told to name */
#define LEDGER_INBOX_EVENTS_MAX 16 /* waiting events of one operation that are handed out at once */
#define LEDGER_INBOX_PAGE_MAX   256

/* An operation that an event names. */
struct ledger_named {
    const char *operation, *tenant, *tool;
};

/* Inserts the event unless (source, event) is known: then the stored row counts one more delivery (now_ms) and nothing
 * else of the new one is kept. */
struct ledger_record_inbound {
    struct inbound *event; /* in: as it is to be stored; out: as it is stored, in the request's arena */
    int64_t now_ms;        /* in */
    bool duplicate;        /* out */
    struct ledger_named named[LEDGER_INBOX_OPS_MAX]; /* out: the operations that a waiting event names */
    size_t named_count;
};

/* The waiting events that name an operation, oldest first, without bodies. ERR_NOT_FOUND: no such row (any more). */
struct ledger_inbox_of {
    const char *operation;  /* in */
    struct operation *op;   /* out: the row, with payload */
    struct inbound *events; /* out: at most LEDGER_INBOX_EVENTS_MAX … */
    bool more;              /* … and there are others */
    /* out, per event: the newest applied event of the same source and operation, and all operations that it names */
    struct inbound_standing *standing;
    struct ledger_named (*named)[LEDGER_INBOX_OPS_MAX];
    size_t *named_count;
    size_t count;
};

/* Waiting events that name at least one operation, by rising id; without bodies. */
struct ledger_inbox_due {
    const char *after;       /* in: event id, NULL = from the oldest */
    const char **operations; /* out: of each event one operation, at most LEDGER_INBOX_PAGE_MAX */
    size_t count;
    const char *next; /* out: cursor for the next page, NULL at the end */
    bool any_waiting; /* out: there are waiting events at all */
};

/* Newest first. */
struct ledger_inbox_list {
    const char *id;        /* in: only this one, with its body; ERR_NOT_FOUND */
    const char *source;    /* NULL = any */
    const char *operation; /* NULL = any */
    uint32_t statuses;     /* bit per enum inbound_status; 0 = any */
    uint32_t forwards;     /* bit per enum forward_status; 0 = any */
    const char *before;    /* event id: continue below it */
    size_t limit;          /* <= LEDGER_LIST_MAX */
    struct inbound *events;
    size_t count;
    const char *next;
};

/* Since the beginning, per source, ordered by its name. */
struct inbox_counts {
    const char *source;
    int64_t events, duplicates, applied, ignored, dropped; /* dropped: still waiting when their time was over */
};
struct ledger_inbox_counts {
    struct inbox_counts *sources; /* out */
    size_t count;
};

/* Removes events whose retain_until_ms has come. */
struct ledger_inbox_prune {
    int64_t now_ms;
    size_t limit;    /* in: rows at once */
    size_t count;    /* out: removed */
    int64_t next_ms; /* out: earliest retain_until_ms left, 0 = none */
};

/* Events that are to be forwarded now (FORWARD_DUE, at_ms <= now), oldest try first, with their bodies. */
struct ledger_forward_due {
    int64_t now_ms;         /* in */
    size_t limit;           /* in: <= LEDGER_FORWARDS_MAX */
    struct inbound *events; /* out */
    size_t count;
    int64_t next_ms; /* out: the earliest time of those that are left, 0 = none */
};
#define LEDGER_FORWARDS_MAX 64

/* Compare-and-set: forward becomes `to` if its status and tries are those of `was`. ERR_STALE, ERR_NOT_FOUND. */
struct ledger_forward_move {
    const char *id; /* of the event */
    struct forward was, to;
};

/* An entity as it stands (design 9). */
struct ledger_entity {
    const char *type, *id;
    const char *holder; /* operation id, NULL = nobody */
    int64_t held_ms;    /* since when */
    size_t waiting;
    int64_t rev;           /* of its attributes; 0 = never set */
    struct str attributes; /* JSON (claims_set), absent = none */
    struct str override;   /* JSON {"by", "note", "operation", "at_ms"}: the last release by an operator */
};

/* With `of`: exactly its entities, in their order, found or not. Else those of the tenant that are held or waited for
 * (all = also those that only have attributes), ordered by type and id, of a type, from behind (after_type, after_id)
 * on. */
struct ledger_entities {
    const char *tenant; /* in */
    const struct claims *of;
    const char *type; /* NULL = any */
    const char *after_type, *after_id;
    bool all;
    size_t limit;                   /* <= LEDGER_LIST_MAX */
    struct ledger_entity *entities; /* out */
    size_t count;
};

/* Takes an entity from the operation that holds it, whatever its state, and lets the next one in. ERR_NOT_FOUND when
 * nobody holds it, ERR_STALE when another operation than the stated one does. */
struct ledger_entity_release {
    const char *tenant, *type, *id, *by, *note; /* in */
    int64_t now_ms;
    const char *operation; /* in: who must hold it, NULL = anybody; out: who did */
    int64_t wake_ms;       /* out: as with transitions */
};

/* Sums of budgets, by slices (claims_slice), of one tenant; at most LEDGER_SCAN_MAX. */
struct ledger_budget_slice {
    const char *budget, *subject, *key;
    int64_t start_ms, until_ms;
    struct decimal amount;
};
struct ledger_budgets {
    const char *tenant; /* in */
    struct ledger_budget_slice *slices;
    size_t count;
};

struct ledger_stats {
    int64_t by_state[STATE_COUNT]; /* out: open states exact; terminal ones as counted by the ledger's own counters */
    int64_t oldest_unknown_ms;     /* out: unknown_since of the oldest, 0 = none */
    int64_t open_incidents;
    int64_t approvals_waiting;               /* operations that wait for people … */
    int64_t oldest_approval_ms;              /* … and created_ms of the oldest, 0 = none */
    int64_t entities_held, entities_waiting; /* places in their queues */
    int64_t commits, commands;               /* since start */
    int64_t file_bytes;
};

struct ledger_request {
    enum ledger_command command;
    struct arena *arena; /* outputs are allocated here; nobody else touches it between submit and done */
    union {
        struct ledger_admit admit;
        struct ledger_transition transition;
        struct ledger_claim claim;
        struct ledger_mark mark;
        struct ledger_release release;
        struct ledger_expire expire;
        struct ledger_get get; /* GET, WATCH */
        struct ledger_get_by_key get_by_key;
        struct ledger_list list;
        struct ledger_events events;
        struct ledger_attempts attempts;
        struct ledger_incidents incidents;
        struct ledger_acknowledge acknowledge;
        struct ledger_token token;
        struct ledger_token_list token_list;
        struct ledger_record_inbound record_inbound;
        struct ledger_inbox_of inbox_of;
        struct ledger_inbox_due inbox_due;
        struct ledger_inbox_list inbox_list;
        struct ledger_inbox_counts inbox_counts;
        struct ledger_inbox_prune inbox_prune;
        struct ledger_forward_due forward_due;
        struct ledger_forward_move forward_move;
        struct ledger_entities entities;
        struct ledger_entity_release entity_release;
        struct ledger_budgets budgets;
        struct ledger_stats stats;
    };
    enum err_code code;                           /* out */
    struct err err;                               /* out */
    void (*done)(struct ledger_request *request); /* may free the request, may submit others */
    void *user;
    struct ledger_request *next; /* the ledger's, while submitted */
};

struct ledger;

struct ledger_ops {
    void (*submit)(struct ledger *ledger, struct ledger_request *request);
    void (*poll)(struct ledger *ledger);
    void (*close)(struct ledger *ledger);
    void (*wait)(struct ledger *ledger, int timeout_ms); /* NULL: poll always has all there is */
    int (*turn)(struct ledger *ledger);                  /* NULL: submit leaves nothing to do */
    void (*listen)(struct ledger *ledger);               /* NULL: news come without, or never */
};

/* A watched operation has been moved; NULL: any may have been, and that is all that is known. */
typedef void ledger_news_fn(void *user, const char *operation);

/* Embedded first in every implementation. */
struct ledger {
    const struct ledger_ops *ops;
    unsigned char secret[LEDGER_SECRET_BYTES]; /* made once per ledger, for keyed digests (design 2.2.3, 2.10) */
    ledger_news_fn *news;                      /* NULL: nobody listens */
    void *news_user;
};

/* From now on ledger_poll() tells of moves of watched operations (LEDGER_WATCH), this process's own ones perhaps not
 * among them. News are hints: they may be lost, come twice, or late. Not after ledger_close() has begun. */
void ledger_on_news(struct ledger *ledger, ledger_news_fn *news, void *user);

/* Hands the request over. With a full queue (LEDGER_QUEUE_MAX) it completes with ERR_UNAVAILABLE. */
#define LEDGER_QUEUE_MAX 65536
void ledger_submit(struct ledger *ledger, struct ledger_request *request);
/* Only for a ledger opened with turn: after that was called, at the end of a turn of the caller's loop. Tells how long
 * the loop may sleep before the next call, in ms: 0 = the turn has brought requests, the next one may bring more, and
 * is to come at once; -1 = all have gone to the ledger's thread, together, and no call is due. */
int ledger_turn(struct ledger *ledger);
/* Calls done of finished requests. Memory ledger: also executes what was submitted. */
void ledger_poll(struct ledger *ledger);
/* Finishes what was submitted (done is called), then releases everything. NULL is fine. */
void ledger_close(struct ledger *ledger);

/* In memory, single-threaded, nothing durable: for tests and the simulator. secret from env. */
struct ledger *ledger_memory_new(struct env *env);

struct ledger_sqlite_options {
    const char *path;
    bool read_only;   /* for onced show on a stopped daemon; no lock is taken */
    bool shared;      /* no lock file: a short-lived second process (onced token, backup) */
    size_t batch_max; /* commands per commit; 0 = default 512 */
    /* Set: requests are collected until a turn of the caller's loop brings none, or there is a good number of them, so
     * that they share a commit. Called by submit for the first one: ledger_turn() is due. */
    void (*turn)(void *user);
    /* Called from the ledger thread when ledger_poll has something to do. Must be thread-safe (uv_async_send). May be
     * NULL: then ledger_wait() is used. */
    void (*notify)(void *user);
    void *user;
};

/* Opens or creates (mode 0600), takes the lock file (path + ".lock"), migrates forward, checks integrity: the whole
 * file at once when it is small (< 16 MiB), else in the background on a second connection; damage found later puts the
 * ledger into a failed state in which every write command ends with ERR_CORRUPT. Errors say what to do: locked by pid
 * N, newer schema, not a database, read-only file, no space, damaged. */
enum err_code ledger_sqlite_open(const struct ledger_sqlite_options *options, struct env *env, struct ledger **out,
                                 struct err *err);

/* Blocks until something can be polled or timeout_ms has passed; for command-line use without an event loop. */
void ledger_wait(struct ledger *ledger, int timeout_ms);

/* Online backup of the ledger file at path into a new file (refuses to overwrite), consistent, while a daemon may be
 * writing; the copy is checked before it gets its name. */
enum err_code ledger_sqlite_backup(const char *path, const char *target, struct err *err);

/* Submits and waits: for command-line use and tests. */
enum err_code ledger_call(struct ledger *ledger, struct ledger_request *request);

#endif
