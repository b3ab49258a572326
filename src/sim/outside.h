/* What the outside world's parts tell each other and the checker: requests under way (wire.c), what providers make of
 * them (provider.c), whose call it is (client.c), what is true (people.c). Not for others. */
#ifndef SIM_OUTSIDE_H
#define SIM_OUTSIDE_H

#include "sim/parts.h"

#define PROVIDER_KEY_SIZE 80 /* of what adapters get as provider key, NUL included */
#define EXTERNAL_ID_SIZE  24
#define RESULT_SIZE       64
/* Rolls of one request: the wire's from 0, the provider's from here, of a second copy of it from twice here. */
#define REQUEST_DICE 64

/* ---- requests and answers ---- */

struct message {
    const struct tool *tool; /* of sim->registry's making or of a variant: contracts are the same */
    enum attempt_kind kind;
    bool is_read; /* no operation behind it */
    uint32_t intent;
    unsigned gateway;                  /* number */
    char operation[OPERATION_ID_SIZE]; /* "" for reads */
    char attempt[OPERATION_ID_SIZE];
    char provider_key[PROVIDER_KEY_SIZE];
    char external_id[EXTERNAL_ID_SIZE]; /* "" = not known */
    uint64_t arguments;                 /* digest of the values */
    unsigned page;                      /* of a look-up, from 0 */
    int64_t sent_ms;
    int64_t land_ms; /* within the contract it has arrived, was worked on and can be looked up by then */
    struct dice dice;
};

struct provider_answer {
    enum outcome outcome; /* as an adapter judges it (design 6); OUTCOME_OPEN: no answer at all */
    int http_status;
    int64_t work_ms; /* until the answer leaves */
    char external_id[EXTERNAL_ID_SIZE];
    char result[RESULT_SIZE]; /* JSON, "" = none */
    int64_t retry_after_ms;
    unsigned matches;
};

/* The request has arrived. copy: it is the network's second delivery of it. late: it comes after land_ms (a fault that
 * breaks). */
struct provider_answer provider_receive(struct sim *sim, const struct message *message, bool copy, bool late);

/* Under the contract the same request, sent again, has no further effect at this provider. */
bool provider_repeats_are_harmless(const struct tool *tool);

/* What is true of an operation now. */
struct provider_truth {
    unsigned effects; /* that exist or are certain to come */
    bool unfinished;  /* still worked on */
    char external_id[EXTERNAL_ID_SIZE];
};
struct provider_truth provider_truth(const struct sim *sim, const char *provider_key);

/* Requests of this operation that may still arrive. */
unsigned wire_under_way(const struct sim *sim, const char *operation);

/* ---- applications (executors.c) ---- */

/* An application is told to execute, with reply->lease: once more of one that it was told before, it begins nothing
 * new. tenant and actor live as long as the run. */
void executors_told(struct sim *sim, uint32_t intent, const char *tenant, const char *actor,
                    const struct engine_reply *reply);
/* As provider_truth, of an operation of guard mode. */
struct provider_truth executors_truth(const struct sim *sim, const char *operation);

/* What the provider says by an event of this request, if its tools' source tells anything at all. NO_EFFECT only where
 * neither this request nor a repeat of it can have an effect any more. external_id "" = none. */
void webhooks_tell(struct sim *sim, const struct message *message, enum inbound_outcome outcome,
                   const char *external_id);

/* ---- the checker's ears ---- */

/* What an executor is about to say of its attempt, and what it was answered. */
void checker_guard_says(struct sim *sim, const char *operation, int attempt, const struct engine_guard *word);
void checker_guard_answered(struct sim *sim, const char *operation, int attempt, const struct engine_guard *word,
                            const struct engine_reply *reply);

/* An attempt is about to leave the gateway, whose clock shows gateway_ms. */
void checker_sending(struct sim *sim, struct gateway *gateway, const struct message *message, int64_t gateway_ms);
/* A request has arrived at the provider. copy: once more, by the network's doing. */
void checker_request(struct sim *sim, const struct message *message, bool copy);
/* The gateway was told how its attempt ended, and lives. */
void checker_answered(struct sim *sim, const struct message *message, enum outcome outcome);
/* What this gateway was told and has not written is lost with it. */
void checker_gateway_died(struct sim *sim, unsigned number);
/* An effect was made. excuse: SIM_FAULT_COUNT, or the fault that makes it a further one. */
void checker_effect(struct sim *sim, const struct message *message, const char *external_id, enum sim_fault excuse);

enum asked { ASKED_CALL, ASKED_PLAN, ASKED_WAIT, ASKED_OTHER /* for another tenant's operation */ };
struct caller { /* whose call was answered */
    uint32_t intent;
    unsigned call; /* number in the trace */
    enum asked asked;
    const char *tenant, *principal, *tool;
    const char *waited_for; /* ASKED_WAIT: operation id */
    const char *const *distinct_from;
    size_t distinct_count;
    bool is_read;
    unsigned gateway;
    int64_t asked_ms;
};
void checker_reply(struct sim *sim, const struct caller *caller, const struct engine_reply *reply);

/* ---- what people see on their screens: committed rows ---- */

struct row_seen {
    const char *id, *tenant, *principal, *provider_key;
    const char *incident;    /* id of its latest, "" = none */
    const struct tool *tool; /* NULL: the registry has none */
    uint32_t intent;
    enum state state;
    enum reason reason;
    bool owned, dropped;
    bool undoes;             /* it is a compensation */
    bool parent;             /* of a multi-step tool's steps */
    bool asked;              /* people are or were asked to approve it */
    int64_t rev, changed_ms; /* true time of the last change */
};
/* From approvers.c: what a person was answered to a decision. */
void checker_decided(struct sim *sim, const char *operation, const char *who, bool approve,
                     const struct engine_reply *reply);
/* From undoers.c: what a person was answered who wanted it undone. */
void checker_undone(struct sim *sim, const char *operation, const char *playbook, const struct engine_reply *reply);
/* From webhooks.c: the provider was told that its event (id of the stored one) is recorded. */
void checker_event_told(struct sim *sim, const char *id);
size_t checker_row_count(const struct sim *sim);
struct row_seen checker_row(const struct sim *sim, size_t index);         /* in order of admission */
uint32_t checker_intent_of(const struct sim *sim, const char *operation); /* 0 = no such operation */
uint32_t check_intents(const struct sim *sim);                            /* how many there can be */

#endif
