/* Entities, windows and budgets within the ledger's transactions: the rules over a small interface that each
 * implementation fills with its own rows (memory: mem_claims.c, SQLite: sqlite_claims.c). Not for others. */
#ifndef LEDGER_CLAIM_STORE_H
#define LEDGER_CLAIM_STORE_H

#include "ledger/ledger.h"

/* One entity that was ever held or given attributes; one without holder, attributes and override is forgotten. */
struct entity_row {
    const char *holder;    /* operation id or NULL */
    int64_t held_ms;       /* since when */
    int64_t rev;           /* of the attributes: +1 with every change; 0 = never set */
    struct str attributes; /* JSON text (claims_set) or absent */
    struct str override;   /* JSON text of the last release by an operator, or absent */
};

struct budget_slice {
    int64_t start_ms, until_ms;
    struct decimal amount;
};

struct claim_store;

/* Texts come back in arena. Each returns 0 or an error, after which the transaction is undone. */
struct claim_store_ops {
    enum err_code (*entity)(struct claim_store *store, const char *tenant, const char *type, const char *id,
                            struct arena *arena, struct entity_row *out, struct err *err);
    enum err_code (*set_entity)(struct claim_store *store, const char *tenant, const char *type, const char *id,
                                const struct entity_row *row, struct err *err);
    /* Queues. count: at most CLAIMS_WAITERS_MAX. first: NULL when nobody waits. */
    enum err_code (*waiting)(struct claim_store *store, const char *tenant, const char *type, const char *id,
                             struct arena *arena, size_t *count, const char **first, struct err *err);
    enum err_code (*wait_last)(struct claim_store *store, int64_t *ticket, struct err *err); /* 0: nobody waits */
    enum err_code (*wait_add)(struct claim_store *store, const char *tenant, const char *type, const char *id,
                              const char *operation, int64_t ticket, struct err *err);
    /* Whether the operation waits, and for what (out->entities, up to CLAIMS_ENTITIES_MAX). */
    enum err_code (*waits_of)(struct claim_store *store, const char *operation, struct arena *arena, struct claims *out,
                              struct err *err);
    enum err_code (*wait_remove)(struct claim_store *store, const char *operation, struct err *err);
    /* Sets wake_at of an operation that nobody holds. */
    enum err_code (*wake)(struct claim_store *store, const char *operation, int64_t at_ms, struct err *err);
    /* The newest user of a window that is not over; *operation NULL: none. */
    enum err_code (*window)(struct claim_store *store, const char *tenant, const char *key, int64_t now_ms,
                            struct arena *arena, const char **operation, int64_t *at_ms, int64_t *until_ms,
                            struct err *err);
    enum err_code (*set_window)(struct claim_store *store, const char *tenant, const char *key, const char *operation,
                                int64_t at_ms, int64_t until_ms, struct err *err);
    enum err_code (*drop_window)(struct claim_store *store, const char *tenant, const char *key, const char *operation,
                                 struct err *err);
    /* Slices of one budget that end after after_ms, oldest first. */
    enum err_code (*slices)(struct claim_store *store, const char *tenant, const struct claim_debit *debit,
                            int64_t after_ms, struct arena *arena, struct budget_slice **out, size_t *count,
                            struct err *err);
    /* Writes a slice; a zero amount removes it. */
    enum err_code (*set_slice)(struct claim_store *store, const char *tenant, const struct claim_debit *debit,
                               const struct budget_slice *slice, struct err *err);
    /* Forgets a few windows and slices that were over before before_ms. */
    enum err_code (*prune)(struct claim_store *store, int64_t before_ms, struct err *err);
};

struct claim_store {
    const struct claim_store_ops *ops;
    int64_t woken_ms; /* earliest wake_at that was set in the command at hand; 0 = none */
};

/* Windows and slices are kept this much longer than they count, against clocks that are set back. */
#define CLAIM_SLACK_MS (48LL * 3600 * 1000)

/* The facts for claims_decide, as of the operation's created_ms. */
enum err_code claim_facts(struct claim_store *store, const struct admission *admission, struct arena *arena,
                          struct claims_facts *out, struct err *err);
/* The same admission as it is inserted when the operation has to wait for its entities; *op is its operation. */
void claim_waiting(const struct ledger_admit *admit, struct ledger_admit *waiting, struct operation *op);

/* After the operation was inserted: takes its entities (or places in the queues), its window and its sums. */
enum err_code claim_admitted(struct claim_store *store, const struct admission *admission, bool waits,
                             struct arena *arena, struct err *err);
/* Before an operation is sent: ERR_STALE when the attributes of its entities are not what its guards saw. */
enum err_code claim_unchanged(struct claim_store *store, const struct operation *op, const struct claims *seen,
                              struct arena *arena, struct err *err);
/* After an operation with claims has moved. */
enum err_code claim_moved(struct claim_store *store, enum state from, const struct operation *to, struct arena *arena,
                          struct err *err);
/* An operator's release. */
enum err_code claim_release(struct claim_store *store, struct ledger_entity_release *release, struct arena *arena,
                            struct err *err);
/* Fills out->entities for the entities that the query names. */
enum err_code claim_entities_named(struct claim_store *store, struct ledger_entities *query, struct arena *arena,
                                   struct err *err);

#endif
