/* What sim.c, roll.c, schedule.c, gateway.c, store.c and shrink.c share beyond parts.h. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include "sim/parts.h"

/* Takes the first event that is due until then off the heap; NULL when there is none. */
struct sim_event *schedule_take(struct sim *sim, int64_t until_ms);

/* A seed as the dice want it: the same for all rolls of a run. */
uint64_t roll_mix_seed(uint64_t seed);
/* A number that depends on these three only. */
uint64_t roll_hash(uint64_t seed, uint32_t stream, uint32_t index);

/* Runs what is left undisturbed: pauses end, gateways start again, with the whole registry. */
void gateway_calm(struct gateway *gateway);
/* Nothing is under way between it and its ledger, and it is up. */
bool gateway_quiet(const struct gateway *gateway);
int64_t gateway_clock_ms(struct gateway *gateway); /* as it sees it */

/* NULL while it is down. */
struct ledger *gateway_ledger(struct gateway *gateway);
bool store_quiet(const struct ledger *store);

#endif
