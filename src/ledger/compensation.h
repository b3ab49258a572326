/* What a compensation's move means for the operation that it undoes (design 10.1), as a change that is written in the
 * same transaction. Not for others. */
#ifndef LEDGER_COMPENSATION_H
#define LEDGER_COMPENSATION_H

#include "ledger/ledger.h"

/* The undone operation and its change, to be applied as if it were a command of its own. */
struct settlement {
    struct operation op;
    struct ledger_transition change;
};

/* original as stored. False: nothing changes. Texts are those of change and original, or in arena. */
bool compensation_settles(const struct ledger_transition *change, const struct operation *original, struct arena *arena,
                          struct settlement *out);
/* Tells the command's caller of it. */
void compensation_settled(const struct settlement *settlement, struct arena *arena, struct ledger_transition *change);

/* ERR_INTERNAL unless a compensation comes with the move of the operation that it undoes, and nothing else does. */
enum err_code compensation_check(const struct ledger_admit *admit, struct err *err);

#endif
