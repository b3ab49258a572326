/* Stands in for the engine and the ledger at link time, so that routes can be tested without either: the test says what
 * the next reply is, and sees what was asked. Link instead of the engine's library. */
#ifndef SUPPORT_FAKE_ENGINE_H
#define SUPPORT_FAKE_ENGINE_H

#include "engine/engine.h"

#define FAKE_PENDING_MAX 128
#define FAKE_OPS_MAX     64
#define FAKE_TOKENS_MAX  16

struct fake_pending {
    const struct engine *engine;
    engine_reply_fn *reply;
    void *user;
    bool open;
};

struct engine {
    struct env env;
    int64_t now_ms; /* the clock; 0: the system's */
    struct ledger ledger;
    struct registry *registry; /* borrowed */
    bool recovered, stopping;
    const char *refusal; /* engine_ledger_refusal() */
    /* the next replies */
    struct engine_reply reply;
    bool later; /* … are given by fake_engine_reply(), not at once */
    struct fake_pending pending[FAKE_PENDING_MAX];
    size_t pending_count;
    struct engine_waiting waiting; /* what every waiter waits for; operation NULL: "" */
    /* what was asked last; texts are copies */
    int calls, waits, left, away, delivered, decisions;
    char waited[64]; /* operation that was waited for */
    struct adapter_origin origin;
    bool call_id_per_try;
    char delivered_id[OPERATION_ID_SIZE];
    char tool[128], tenant[128], principal[128], key[600], run[300], step[300], session[300], call[300], workflow[300];
    char trace[100], repeat_of[64], distinct[64], arguments[4096];
    size_t distinct_count;
    int64_t wait_ms, not_before_ms;
    bool async, dry_run;
    bool limited; /* the last call came with a scope */
    struct engine_decision decision;
    char decided[64], actor[128], note[300], external_id[128], stated[512], link_by[128];
    /* what the ledger holds */
    struct operation *ops[FAKE_OPS_MAX]; /* oldest first */
    size_t op_count;
    struct tombstone *tombstone;
    struct event *events;
    size_t event_count;
    struct attempt *attempts;
    size_t attempt_count;
    struct incident *incidents;
    size_t incident_count;
    struct token tokens[FAKE_TOKENS_MAX];
    size_t token_count;
    int token_looks;
    enum err_code ledger_code; /* not 0: every command ends with it */
    bool ledger_later;         /* commands end in fake_ledger_poll() */
    struct ledger_request *queue;
    struct ledger_list last_list; /* its texts are gone with the request */
    char listed_tenant[128], listed_principal[128];
};

void fake_engine_init(struct engine *engine, struct registry *registry);
void fake_engine_release(struct engine *engine);
/* Answers the oldest waiting call with engine->reply. False when nobody waits. */
bool fake_engine_reply(struct engine *engine);
/* Ends the commands that wait (ledger_later). */
void fake_ledger_poll(struct engine *engine);

#endif
