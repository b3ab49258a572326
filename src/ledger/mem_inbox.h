/* The inbox of the ledger in memory. Inside of ledger only. */
#ifndef LEDGER_MEM_INBOX_H
#define LEDGER_MEM_INBOX_H

#include "ledger/ledger.h"

struct mem_inbox {
    struct inbound **events; /* by id; each is its own allocation with its arena behind it */
    size_t count, room;
    struct inbox_counts *sources; /* by name */
    size_t source_count, source_room;
};

/* The rows that an event may name. */
struct mem_inbox_rows {
    const struct operation *(*at)(void *user, size_t index); /* NULL behind the last */
    const struct operation *(*find)(void *user, const char *id);
    void *user;
};

void mem_inbox_release(struct mem_inbox *inbox);
enum err_code mem_inbox_record(struct mem_inbox *inbox, const struct mem_inbox_rows *rows,
                               struct ledger_request *request);
/* request->inbox_of.op is set by the caller. */
enum err_code mem_inbox_of(struct mem_inbox *inbox, const struct mem_inbox_rows *rows, struct ledger_request *request);
enum err_code mem_inbox_due(struct mem_inbox *inbox, const struct mem_inbox_rows *rows, struct ledger_request *request);
enum err_code mem_inbox_list(struct mem_inbox *inbox, struct ledger_request *request);
enum err_code mem_inbox_counts(struct mem_inbox *inbox, struct ledger_request *request);
enum err_code mem_inbox_prune(struct mem_inbox *inbox, struct ledger_request *request);
enum err_code mem_forward_due(struct mem_inbox *inbox, struct ledger_request *request);
enum err_code mem_forward_move(struct mem_inbox *inbox, struct ledger_request *request);
/* Whether the change's event is there and waits; then it becomes applied. */
bool mem_inbox_waits(const struct mem_inbox *inbox, const char *id);
void mem_inbox_apply(struct mem_inbox *inbox, const struct ledger_transition *change);

#endif
