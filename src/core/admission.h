/* Admission: which verdict a call gets, given what the ledger knows (design 2.4, 2.7, 2.8, 2.9, 4). The ledger collects
 * the facts and carries out the verdict in one transaction; the decision itself is here, pure. */
#ifndef CORE_ADMISSION_H
#define CORE_ADMISSION_H

#include "core/claims.h"

#define ADMISSION_CANDIDATES_MAX 8
#define ADMISSION_DISTINCT_MAX   8

struct admission {
    struct operation
        *op; /* the new operation as it would be inserted; admission_decide may set key_version, previous */
    /* rules of the tool at this moment */
    enum on_mismatch on_mismatch;
    bool share_with_tenant; /* 2.4, resolved for the key source */
    int64_t repeat_window_ms;
    bool repeats_too;                                  /* the repeat rule holds besides the key (source call) */
    bool hold_in_doubt;                                /* 2.9 applies */
    const char *distinct_from[ADMISSION_DISTINCT_MAX]; /* operation ids that the caller declares to be other intents */
    size_t distinct_count;
    const char *const *volatile_pointers; /* of the tool: members that are no part of what is compared */
    size_t volatile_count;
    const char *new_version_of; /* operator's retry of a closed operation: opens the next version; else NULL */
    struct claims *claims;      /* NULL: the call claims nothing (design 9) */
    bool wants_entities;        /* it may start at once; else it takes its entities when its turn has come */
};

struct admission_facts {
    const struct operation *by_key;      /* the version that answers for (tenant, tool, key_hash), or NULL; see below */
    const struct tombstone *tombstone;   /* the same when only a tombstone is left */
    const struct operation *named;       /* the operation that repeat_of names in this tenant, or NULL */
    const struct tombstone *named_stone; /* the same when only its tombstone is left */
    /* newest first: same tenant, tool, principal, fingerprint. Asked for only when admission_wants_repeats() */
    const struct operation *repeats[ADMISSION_CANDIDATES_MAX];
    size_t repeat_count;
    /* oldest first: same tenant, tool, principal, unknown_outcome or in flight and (orphaned or sent again while an
     * earlier attempt is not disproved). Only when hold_in_doubt */
    const struct operation *in_doubt[ADMISSION_CANDIDATES_MAX];
    size_t in_doubt_count;
};

enum verdict {
    VERDICT_NEW,            /* insert op */
    VERDICT_JOIN,           /* existing, not terminal: wait for it */
    VERDICT_REPLAY,         /* existing, terminal: its result is the answer */
    VERDICT_CONFLICT,       /* existing under the same key with other arguments: nothing runs */
    VERDICT_NOT_SHARED,     /* existing belongs to another principal */
    VERDICT_HELD,           /* existing is in doubt: nothing runs until distinct_from or it settles */
    VERDICT_EXPIRED,        /* tombstone: known executed, result dropped */
    VERDICT_REPEAT_UNKNOWN, /* repeat_of names no operation of this tool that the call would have joined */
    VERDICT_REPEAT_OPEN,    /* repeat_of names an operation that is not terminal */
    VERDICT_POLICY,         /* new, but refused by a guard, an entity, a window or a budget: nothing is kept of it */
    VERDICT_LOOK            /* entities have changed since the guards looked: look again, then admit again */
};
const char *verdict_name(enum verdict verdict);

struct admission_result {
    enum verdict verdict;
    const struct operation *existing;  /* JOIN, REPLAY, CONFLICT, NOT_SHARED, HELD, REPEAT_OPEN; of the facts */
    const struct tombstone *tombstone; /* EXPIRED, or CONFLICT and NOT_SHARED against a tombstone */
    bool other_arguments;              /* replayed although the arguments differ (on_mismatch: replay) */
    struct claims_refusal refusal;     /* POLICY */
    bool waits;                        /* NEW: in the queue of an entity, as claims_await() makes it */
};

/* Which of a key's versions answers for it: the newest that is not proven without effect, and when all are, the newest.
 * (A version that was closed as "no effect" may turn out to have happened, 3.4, when a later one was opened and failed
 * already.) True: the first is it. NULL as the second loses. */
bool admission_answers(const struct operation *op, const struct operation *other);
bool admission_stone_answers(const struct tombstone *stone, const struct tombstone *other, const struct operation *op);

bool admission_wants_repeats(const struct admission *admission);
/* Whether a candidate can matter, for ledgers: what fails these need not be among the facts, so that the candidates
 * that do matter are never crowded out. joins: of facts.repeats. doubts: of facts.in_doubt. */
bool admission_joins(const struct admission *admission, const struct operation *other, int64_t now_ms);
bool admission_doubts(const struct admission *admission, const struct operation *other);
struct admission_result admission_decide(struct admission *admission, const struct admission_facts *facts,
                                         int64_t now_ms);
/* A call that is new and claims something: whether it gets it. Only then are these facts asked for: a known key is
 * answered before any policy looks at it. */
void admission_claim(const struct admission *admission, const struct claims_facts *facts,
                     struct admission_result *result);

#endif
