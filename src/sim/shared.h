/* Programs of the simulator's own tools, compiled once for all runs that share them. Not for others. */
#ifndef SIM_SHARED_H
#define SIM_SHARED_H

#include "sim/sim.h"

struct jq_program;

/* Compiled at the first call: in most runs a program is not needed, and to compile it takes longer than a small run.
 * Borrowed. */
struct jq_program *shared_guard(struct sim_shared *shared); /* of entities: refuses SIM_GUARD_REST's equal rests */
struct jq_program *shared_when(struct sim_shared *shared);  /* of steps: only even amounts */

#endif
