/* A ledger under test with a clock and randomness that the test owns, and makers for records. */
#ifndef CONTRACT_WORLD_H
#define CONTRACT_WORLD_H

#include "core/identity.h"
#include "ledger/ledger.h"

#include "support/test.h"

#define WORLD_START_MS 1795968000000 /* 2026-11-29T16:00:00Z */
#define OWNER          "incarnation-one"
#define OTHER_OWNER    "incarnation-two"

struct world {
    struct env env; /* first: env functions cast it back */
    int64_t now_ms;
    uint64_t random;
    struct ulid_source ids;
    struct arena arena; /* everything that the test makes or gets */
    struct ledger *ledger;
    char folder[128]; /* of the SQLite file; "" for memory */
    char path[160];
};

void world_init(struct world *world);
void world_release(struct world *world);
void world_folder(struct world *world); /* makes a folder below TMPDIR, sets path */
void world_open(struct world *world);   /* SQLite at path; fails the test otherwise */
void world_close(struct world *world);

/* An operation in pending_dispatch by "agent" of tenant "acme" under a caller key. Arguments {"n":number}; fingerprint
 * by them. */
struct operation *make_operation(struct world *world, const char *tool, const char *key, int number);
/* After tenant, tool, key or repeat_of were changed. */
void set_key(struct operation *op);
void set_arguments(struct world *world, struct operation *op, int number);

/* A request of the world: arena and command set, all else zero. */
struct ledger_request *make_request(struct world *world, enum ledger_command command);
struct ledger_request *make_admit(struct world *world, struct operation *op);
/* A call without a key of its own, which joins what it repeats within a second. run may be NULL. */
struct ledger_request *make_repeat(struct world *world, const char *tool, int number, const char *run);
/* A change of op to a state with one event; raises op->rev and sets the usual fields. */
struct ledger_request *make_transition(struct world *world, struct operation *op, enum state to);

enum err_code call(struct world *world, struct ledger_request *request);
struct admission_result admit(struct world *world, struct operation *op); /* the command must succeed */
void move(struct world *world, struct operation *op, enum state to);      /* must succeed */
struct operation *get(struct world *world, const char *id);               /* NULL when not there */
struct ledger_claim *claim(struct world *world, const char *owner, int64_t lease_ms, size_t limit);
struct ledger_list *list(struct world *world, struct ledger_list wanted); /* must succeed */
void mark(struct world *world, struct ledger_mark mark);
enum err_code expire(struct world *world, const char *id, int64_t rev);
void assert_same_operation(const struct operation *a, const struct operation *b);

/* Tests without a setting of their own; ledger_contract.c gives them one per implementation. */
#define CONTRACT_TEST(f)                                                                                               \
    {                                                                                                                  \
#f, f, NULL, NULL, NULL                                                                                        \
    }
extern const struct CMUnitTest contract_records[]; /* ledger_records.c */
extern const size_t contract_record_count;
extern const struct CMUnitTest contract_inbox[]; /* ledger_inbox.c */
extern const size_t contract_inbox_count;
extern const struct CMUnitTest contract_claims[]; /* ledger_claims.c */
extern const size_t contract_claim_count;
extern const struct CMUnitTest contract_compensations[]; /* ledger_compensation.c */
extern const size_t contract_compensation_count;
extern const struct CMUnitTest contract_steps[]; /* ledger_steps.c */
extern const size_t contract_step_count;

#endif
