/* Whether everything that a ledger holds fits together: the rules of core/audit.h for each operation, and those between
 * tables. Streams over all rows, in memory that does not grow with them. Not for others but the command line. */
#ifndef LEDGER_VERIFY_H
#define LEDGER_VERIFY_H

#include "ledger/bulk.h"

struct verify_finding {
    enum table_id table;
    const char *id; /* of the row: its key, parts parted by "/" */
    const char *rule, *expected, *found;
};

struct verify_report {
    int64_t rows[TABLE_IDS]; /* that were looked at */
    int64_t findings;
    /* Fingerprints that are not those of the stored arguments: the tool leaves members out (`volatile`), or damage. */
    int64_t unsure_fingerprints;
    int64_t unchecked_slices; /* of budgets: more than VERIFY_SLICES_MAX count at present */
};

#define VERIFY_SLICES_MAX 100000

struct verify_listener {
    /* Called for each thing that is wrong; its texts are good for the call. */
    void (*found)(void *user, const struct verify_finding *finding);
    /* Whether the operation's tool is known to leave nothing out of the fingerprint: then it must be that of the stored
     * arguments. May be NULL. */
    bool (*whole_fingerprint)(void *user, const struct operation *op);
    void *user;
};

/* In one consistent state of the ledger, which daemons may go on changing. An error: it could not be read to its end.
 */
enum err_code ledger_verify(struct bulk *bulk, const struct verify_listener *listener, struct verify_report *out,
                            struct err *err);

#endif
