/* The outbox table over one connection: rows are taken, and marked with what became of them, in one transaction. A row
 * that is taken is locked by that transaction and nothing else. Blocking. */
#ifndef RELAY_OUTBOX_H
#define RELAY_OUTBOX_H

#include "relay/row.h"

/* What is read of one batch's arguments; further rows stay for the next batch. */
#define RELAY_BATCH_BYTES_MAX (16 * 1024 * 1024)

struct relay_batch {
    struct arena arena; /* all of the rows */
    struct relay_row *rows;
    size_t count;
    size_t heads; /* the first so many are without an earlier row in the batch */
    bool full;    /* there may be more */
};

enum relay_fault {
    FAULT_NONE,
    FAULT_LOST,      /* the connection or the transaction: nothing of it happened, or all; again */
    FAULT_NO_TABLE,  /* the table or a column of it */
    FAULT_NO_RIGHTS, /* of the role */
    FAULT_UNFIT,     /* types, or no unique id */
    FAULT_DATA       /* the database refuses what was to be written: a trigger or constraint of the application's */
};

struct relay_outbox;

/* Borrows settings. Connects later. */
struct relay_outbox *relay_outbox_new(const struct relay_settings *settings);
void relay_outbox_free(struct relay_outbox *outbox); /* NULL is fine; what was not committed is undone */

/* Connects unless it is, and looks whether all statements can be executed. Listens on the channel. */
enum relay_fault relay_outbox_connect(struct relay_outbox *outbox, struct err *err);
/* The socket, or -1. */
int relay_outbox_socket(const struct relay_outbox *outbox);
/* Takes in what the server has sent; true when it tells of new rows. */
bool relay_outbox_heard(struct relay_outbox *outbox);

/* Begins a transaction and takes rows that may be sent: of each entity the oldest one that nobody has taken, and behind
 * it the next ones of the same entity as far as there is room. batch must be empty. */
enum relay_fault relay_outbox_take(struct relay_outbox *outbox, struct relay_batch *batch, struct err *err);
/* The same with rows whose operation goes on. */
enum relay_fault relay_outbox_take_looks(struct relay_outbox *outbox, struct relay_batch *batch, struct err *err);
/* Marks the rows that are decided, and commits. With FAULT_DATA all others were marked; *unmarked: how many not. */
enum relay_fault relay_outbox_mark(struct relay_outbox *outbox, const struct relay_batch *batch, size_t *unmarked,
                                   struct err *err);
/* Rows that wait to be sent, counted up to max. */
enum relay_fault relay_outbox_backlog(struct relay_outbox *outbox, unsigned max, int64_t *count, struct err *err);

/* Connects and executes the statements in one transaction, then looks whether the table is fit. */
enum relay_fault relay_outbox_install(struct relay_outbox *outbox, const char *statements, struct err *err);

#endif
