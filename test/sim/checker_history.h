/* Histories for the checker, written by hand: what gateways, providers and callers would have told it. Commands go to
 * the checker alone, or with `kept` also to a memory ledger that the end is compared with. */
#ifndef CHECKER_HISTORY_H
#define CHECKER_HISTORY_H

#include "sim/checker.h"
#include "support/test_parts.h"

#define NOW INT64_C(1800000000000)
#define OPS 8

/* One checker with a ledger, tools of three classes, and the operations of a history. */
struct fix {
    struct sim sim;
    struct sim_options options;
    struct sim_result result;
    struct env env;
    struct provider provider, keyed_provider;
    struct tool weak, keyed, read;
    struct registry *registry;
    struct operation ops[OPS];
    size_t op_count;
    struct attempt tries[OPS]; /* the latest of each operation */
    struct arena arena;
    unsigned char random;
};

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int setup(void **state);
int teardown(void **state);

/* What the checker has said by now. */
void expect(struct fix *fix, const char *rule);
void expect_nothing(struct fix *fix);

/* The names of gateways, from 1. */
extern const char *const incarnations[];

/* Gateway committed the command. kept: the ledger has it, too. */
void tell(struct fix *fix, unsigned gateway, struct ledger_request *request, bool kept);

/* A new operation of an intent, planned, not told to anybody yet. */
struct operation *make(struct fix *fix, const char *tool, uint32_t intent, unsigned call);
void admit_as(struct fix *fix, unsigned gateway, struct operation *op, bool kept);
struct operation *admit(struct fix *fix, const char *tool, uint32_t intent, unsigned call); /* made, by gateway 1 */

/* The next version of the row as it would be written by a gateway; the caller changes what it likes before. */
struct change {
    struct ledger_request request;
    struct operation op;
};
struct change change_to(struct operation *op, enum state to, enum cause cause);
void write_change(struct fix *fix, unsigned gateway, struct operation *op, struct change *change, bool kept);
struct attempt *begin_try(struct fix *fix, struct operation *op, struct change *change, enum attempt_kind kind);
void end_try(struct fix *fix, struct operation *op, struct change *change, enum outcome outcome);

/* Whole changes, by gateway 1 and kept. */
void move(struct fix *fix, struct operation *op, enum state to, enum cause cause);
void dispatch(struct fix *fix, struct operation *op);
void answer(struct fix *fix, struct operation *op, enum outcome outcome, enum state to);
void look_up(struct fix *fix, struct operation *op, enum outcome outcome, enum state to);
void drop(struct fix *fix, const struct operation *op, int64_t now_ms, bool kept);

/* Admitted, and so far. */
struct operation *dispatched(struct fix *fix, const char *tool, uint32_t intent);
struct operation *unknown(struct fix *fix, const char *tool, uint32_t intent);
/* Sent, made there, answered: the ordinary way. */
struct operation *succeeded(struct fix *fix, const char *tool, uint32_t intent);

/* The wire and the provider. */
struct message message_of(struct fix *fix, const struct operation *op);
void send_by(struct fix *fix, unsigned gateway, const struct message *message, int64_t clock_ms);
void effect(struct fix *fix, const struct operation *op, const char *external_id, enum sim_fault excuse);

/* What a caller was told; of tenant acme, principal agent unless the caller says so. */
void reply_as(struct fix *fix, struct caller caller, struct engine_reply reply);
void reply(struct fix *fix, uint32_t intent, unsigned call, enum reply_kind kind, const struct operation *op);

/* Rules by file. */
extern const struct test_part checker_states;
extern const struct test_part checker_leases;
extern const struct test_part checker_answers;
extern const struct test_part checker_inbound;

#endif
