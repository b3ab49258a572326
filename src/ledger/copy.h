/* Copies everything that a ledger holds into an empty one, of whichever kind: so that a daemon goes on there as if
 * nothing had happened. In batches, each with a record of how far it is in the same transaction: a copy that was cut
 * short goes on where it was. Until it has ended and both sides were compared, the target is no ledger that a daemon
 * would open. Not for others but the command line.
 *
 *   empty ──► filling: operations, history, … ──► comparing: digests of both ──► a ledger
 *                   each batch: rows + record        equal: the record goes, in one transaction
 */
#ifndef LEDGER_COPY_H
#define LEDGER_COPY_H

#include "ledger/bulk.h"

struct copy_options {
    /* from was opened to BULK_LOOK: daemons go on with it. Such a copy can not be resumed: it would mix two states. */
    bool snapshot;
    /* After each batch; may be NULL. comparing: the table's rows are being read once more. */
    void (*progress)(void *user, enum table_id table, int64_t rows, bool comparing);
    void *user;
};

struct copy_report {
    bool resumed;
    int64_t copied; /* rows, by this run */
    int64_t mended; /* texts that PostgreSQL can not store as they are */
    bool differs;   /* with ERR_CONFLICT: the two sides are not the same in the end */
    struct rows_digest from[TABLE_IDS], to[TABLE_IDS];
};

/* from: BULK_TAKE or, with snapshot, BULK_LOOK; to: BULK_FILL. ERR_CONFLICT: to holds something else, is being filled
 * from another ledger, or differs in the end. */
enum err_code ledger_copy(struct bulk *from, struct bulk *to, const struct copy_options *options,
                          struct copy_report *out, struct err *err);

/* One digest of all tables, hex of n bytes and NUL. */
void copy_digest(const struct rows_digest tables[TABLE_IDS], size_t n, char *out);

#endif
