/* What a move means for other operations, as changes that are written in the same transaction: a compensation's end for
 * the operation that it undoes (design 10.1), a step's end for its parent (10.2). Not for others.
 *
 *   compensation ends ─► what it undoes moves ─► if that is a step: its parent is told
 *   step ends, or is corrected by evidence ────► its parent is told */
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
/* The same for the parent, as stored, of a step that has moved: by change itself, or because change is the end of what
 * undoes it. */
bool parent_told(const struct ledger_transition *change, const struct operation *step, const struct operation *parent,
                 struct arena *arena, struct settlement *out);
/* Tells the command's caller of it, to be kept as change->undone or change->parent. */
const struct ledger_undone *settlement_tell(const struct settlement *settlement, struct arena *arena);
/* Others that it woke, too. */
void settlement_wakes(const struct settlement *settlement, struct ledger_transition *change);

/* ERR_INTERNAL unless a compensation comes with the move of the operation that it undoes, a step with its parent's, and
 * nothing else with either. */
enum err_code compensation_check(const struct ledger_admit *admit, struct err *err);
/* Whose state is to be asked before the admission undoes a step: of a parent that has no part in it; NULL = nobody's.
 */
const char *compensation_asks(const struct ledger_admit *admit);
/* ERR_CONFLICT when that one has not ended. */
enum err_code compensation_allowed(const struct ledger_admit *admit, enum state parent, struct err *err);
/* ERR_CONFLICT: it can not be dropped while its parent, in that state, has not ended. */
enum err_code parent_lets_go(const struct operation *op, enum state parent, struct err *err);

#endif
