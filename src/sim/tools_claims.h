/* What the simulator's own tools claim (design 9): entities, guards, windows, budgets, drawn from the seed. */
#ifndef SIM_TOOLS_CLAIMS_H
#define SIM_TOOLS_CLAIMS_H

#include "core/claims.h"
#include "sim/parts.h"

/* Operations of tools with claims have two more arguments, "from" and "to": accounts, of which there are few. A guard
 * refuses an amount that leaves the same rest when divided by this as the last one that changed the account. */
#define SIM_GUARD_REST 3

struct claims_kit;
struct claims_kit *claims_kit_new(struct sim *sim);
void claims_kit_free(struct claims_kit *kit); /* NULL is fine */
/* NULL: this tool claims nothing. In arena. */
const struct tool_claims *claims_kit_draw(struct claims_kit *kit, struct arena *arena, struct dice *dice);

#endif
