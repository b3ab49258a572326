/* Multi-step tools of the simulator (design 10.2), drawn from the seed over its single tools. Not for others. */
#ifndef SIM_TOOLS_STEPS_H
#define SIM_TOOLS_STEPS_H

#include "core/steps.h"
#include "sim/parts.h"

#define SIM_MULTI_STEP_MAX 2

struct steps_kit {
    struct sim *sim;
    struct arena *arena;
    const struct tool *tools; /* single ones, which perform the steps */
    size_t count;
    const struct template *key;
};

/* Writes up to SIM_MULTI_STEP_MAX tools, and what they are after a reload: now and then with another list of steps. How
 * many: none when no tool writes. */
size_t tools_steps_draw(const struct steps_kit *kit, struct tool *tools, struct tool *changed);

#endif
