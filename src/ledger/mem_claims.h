/* Entities, windows and budgets of the ledger in memory (claim_store.h). Arrays in the order that SQLite lists rows in:
 * sizes are those of a test. */
#ifndef LEDGER_MEM_CLAIMS_H
#define LEDGER_MEM_CLAIMS_H

#include "ledger/claim_store.h"

struct mem_entity;
struct mem_wait;
struct mem_window;
struct mem_slice;

struct mem_claims {
    struct claim_store base;
    /* Sets wake_at of an operation that nobody holds. */
    void (*wake)(void *user, const char *operation, int64_t at_ms);
    void *user;
    struct mem_entity *entities;
    struct mem_wait *waits;
    struct mem_window *windows;
    struct mem_slice *slices;
    size_t entity_count, wait_count, window_count, slice_count;
    size_t entity_room, wait_room, window_room, slice_room;
};

void mem_claims_init(struct mem_claims *claims, void (*wake)(void *user, const char *operation, int64_t at_ms),
                     void *user);
void mem_claims_release(struct mem_claims *claims);

enum err_code mem_entities(struct mem_claims *claims, struct ledger_request *request);
void mem_claims_count(const struct mem_claims *claims, struct ledger_stats *out);
enum err_code mem_budgets(struct mem_claims *claims, struct ledger_request *request);

#endif
