/* The checker's model: what must hold (design 18), written from the design and not from the code. It knows of each
 * operation only what the outside can see: commits of the ledger, requests that leave and arrive, effects, answers to
 * callers. Each rule names its place in the design.
 *
 *   checker.c       intents: which calls mean the same effect; effects, requests, answers
 *   checker_rows.c  rows: admission, moves, leases, claims, retention
 *   checker_approvals.c  who agreed to what
 *   checker_undone.c     what undoes what
 *   checker_steps.c      multi-step tools
 *   checker_guard.c      guard mode
 *   checker_inbound.c    what providers tell by events
 *   checker_end.c   the whole at the end: model and ledger agree, everything has settled
 *
 * Not for others. */
#ifndef SIM_CHECKER_H
#define SIM_CHECKER_H

#include "sim/outside.h"

#define INCARNATION_SIZE 64 /* and for "guard:…" */
#define CALLS_MAX        64 /* per intent: numbers 1 … 63 */

#define CHECK_KEY_SIZE 1024

#define CHECK_VERSIONS 8 /* of one key: whose steps are told apart */

struct check_claims;
struct check_steps;
struct check_event;
struct check_heard;
struct check_executor;

struct check_try {          /* one attempt row */
    struct check_try *next; /* in order of numbers */
    char id[OPERATION_ID_SIZE];
    int number;
    enum attempt_kind kind;
    enum outcome outcome;
    int64_t started_ms, finished_ms; /* by the gateways' clocks */
    bool sent;
    unsigned arrived;
    unsigned told; /* number of the gateway that was told how it ended and has to write it; 0 = none */
};

struct check_row { /* an operation, as its commits left it */
    char id[OPERATION_ID_SIZE];
    struct check_row *older_of_intent, *older_of_tool;
    const struct tool *tool; /* as the registry had it at admission; NULL when unknown */
    const char *tenant, *tool_name, *principal, *run, *session, *provider_key;
    struct digest key_hash, fingerprint;
    int key_version;
    enum key_source key_source;
    uint32_t intent;
    unsigned call; /* that made it; 0 = an operator's retry did */
    int64_t created_ms;
    /* life */
    enum state state;
    enum reason reason;
    int64_t rev, changed_ms /* true time */;
    char owner[INCARNATION_SIZE]; /* "" = nobody */
    int64_t lease_until_ms, wake_at_ms, updated_ms, completed_ms, retain_until_ms;
    char former[INCARNATION_SIZE]; /* who held it before its owner claimed it, at claimed_ms (true time), and until when
                                    */
    int64_t former_until_ms, claimed_ms;
    bool by_evidence; /* completed while its last request was another's: nobody may have learned how that one ended */
    bool delivered, orphaned, dropped;
    char external_id[EXTERNAL_ID_SIZE];
    uint64_t result;       /* digest, 0 = none */
    unsigned char *states; /* by rev - 1 */
    size_t states_room;
    unsigned incidents;                   /* bit per kind */
    char incident[OPERATION_ID_SIZE];     /* the latest, "" = none */
    struct check_row *undoes, *undone_by; /* a compensation and its original (the latest) */
    struct check_asked *asked;            /* people who are to agree; NULL = nobody was asked */
    struct check_steps *steps;            /* of a multi-step tool; NULL = it is none */
    struct check_heard *heard;            /* by events; NULL = nothing was applied */
    bool told_of_effect;                  /* one of them was a success */
    struct check_row *parent;             /* whose step it is, or undoes; NULL = nobody's */
    struct check_executor *executors;     /* guard mode: who was told to execute, the latest first */
    /* attempts */
    struct check_try *first_try, *last_try;
    int disproved;            /* tries up to this number are proven to have had no effect */
    int64_t closed_absent_ms; /* completed on the word of a look-up or a person: the watch begins; 0 = not */
    int closed_tries;         /* attempt rows at that moment */
    /* outside */
    unsigned effects, excused_effects;
    char effect_ids[2][EXTERNAL_ID_SIZE]; /* the first ones */
    uint64_t arguments;                   /* digest that went over the wire, 0 = none yet */
    struct check_claims *claims;          /* NULL = none */
    /* what callers were told of its end */
    bool told;
    enum state told_state;
    char told_id[EXTERNAL_ID_SIZE];
    uint64_t told_result;
};

struct check_intent {
    struct check_row *newest;
    unsigned effects;
    unsigned allowed;         /* effects that the rules allow: more than one where 2.2.5 does */
    unsigned excused_effects; /* further ones that a broken promise made */
    bool excused;             /* a promise to onced was broken for it */
    uint64_t not_executed;    /* bit per call that was told so */
};

struct check_gateway {
    char incarnation[INCARNATION_SIZE]; /* the latest it showed */
};

struct checker_model {
    struct sim *sim;
    struct arena arena;
    struct map by_id;          /* operation id → row */
    struct map newest_of_tool; /* "tenant tool principal" → struct check_list */
    struct map entities;       /* "tenant type id" → struct check_entity */
    struct check_claims *newest_claims;
    uint64_t waits;                 /* places in the queues of entities that were given out */
    struct map events, event_names; /* inbound: by id; by "source event", the latest of it */
    struct check_event *newest_event;
    int64_t inbox_pruned_ms; /* what is kept for so long may be gone */
    struct map holders;      /* incarnation → struct check_holder */
    struct check_row **rows; /* in order of admission */
    size_t row_count, row_room;
    struct check_intent *intents;
    uint32_t intent_count;
    struct check_gateway gateways[SIM_GATEWAYS_MAX];
};

struct check_list {
    struct check_row *newest;
    char key[];
};

struct check_holder {
    unsigned gateway;
    char incarnation[INCARNATION_SIZE];
};

/* checker.c */
struct check_row *check_find(const struct checker_model *model, const char *operation);
struct check_intent *check_intent_of(struct checker_model *model, uint32_t intent); /* 0 has one, too */
struct check_try *check_try_of(const struct check_row *row, const char *attempt);
bool check_in_doubt(const struct check_row *row); /* a request may have had an effect, and nothing disproves it */
bool check_proven_absent(enum state state);       /* states that say "no effect" of something that was to be sent */
bool check_excused(struct checker_model *model, const struct check_row *row);
void check_copy(char *out, size_t size, const char *text);
uint64_t check_digest(struct str text); /* 0 only for the absent text */
/* The three texts, one to a line: a key of the model's maps. The length; they fit, the simulator made them. */
size_t check_joined(char out[CHECK_KEY_SIZE], struct str a, struct str b, struct str c);

/* number is the gateway's */
void check_sending(struct sim *sim, unsigned number, const struct message *message, int64_t gateway_ms);

/* checker_rows.c */
void check_committed(struct checker_model *model, unsigned number, const struct ledger_request *request);

/* ---- approvals (checker_approvals.c) ---- */

void check_asked_at_admission(struct checker_model *model, struct check_row *row, const struct operation *op);
void check_approvals(struct checker_model *model, struct check_row *row, const struct ledger_transition *change);
bool check_was_asked(const struct check_row *row);

/* checker_undone.c */
void check_undone_admitted(struct checker_model *model, struct check_row *row, const struct operation *op,
                           const struct ledger_admit *admit);
/* before what it undoes is moved in the model */
void check_undone_moved(struct checker_model *model, const struct check_row *row,
                        const struct ledger_transition *change);
void check_undone_end(struct sim *sim, const struct check_row *row);

/* checker_steps.c */
uint32_t check_step_intent(const struct sim *sim, const struct check_row *parent, size_t at, bool undo);
void check_steps_of_row(struct checker_model *model, struct check_row *row, const struct operation *op);
/* after check_undone_admitted, before the parent is moved in the model */
void check_step_admitted(struct checker_model *model, struct check_row *row, const struct operation *op,
                         const struct ledger_admit *admit);
void check_step_sending(struct sim *sim, const struct check_row *row);
bool check_parent_may_move(enum state from, enum state to, enum cause cause);
void check_parent_moved(struct checker_model *model, struct check_row *parent, enum state from,
                        const struct ledger_transition *change);
void check_parent_told(struct checker_model *model, const struct check_row *row, enum state from,
                       const struct ledger_undone *told);
bool check_parent_waits(const struct check_row *parent);
void check_steps_end(struct sim *sim, const struct check_row *parent);

/* checker_guard.c */
bool check_is_executor(const char *owner); /* NULL is fine */
bool check_is_guarded(const struct check_row *row);
void check_told_to_execute(struct checker_model *model, struct check_row *row, const struct engine_reply *reply);
/* after the row has moved; owner_before: who held it until then */
void check_guard_moved(struct checker_model *model, const struct check_row *row, enum state from,
                       const struct ledger_transition *change, const char *owner_before);
void check_guard_end(struct sim *sim, const struct check_row *row);

/* checker_inbound.c */
void check_event_recorded(struct checker_model *model, const struct ledger_record_inbound *record);
void check_events_pruned(struct checker_model *model, const struct ledger_inbox_prune *prune);
/* after the row was moved in the model, before what proves that move is judged */
void check_inbound_applied(struct checker_model *model, struct check_row *row, enum state from,
                           const struct ledger_transition *change);
bool check_told_no_effect(const struct checker_model *model, const struct ledger_transition *change);
void check_inbound_end(struct sim *sim);

/* checker_claims.c */
void check_claims_admitted(struct checker_model *model, struct check_row *row, const struct operation *op);
/* shadow: the row that it would have been */
void check_claims_refused(struct checker_model *model, struct check_row *shadow, const struct ledger_admit *admit);
void check_claims_moved(struct checker_model *model, struct check_row *row, enum state from,
                        const struct operation *op);
void check_claims_end(struct sim *sim);

#endif
