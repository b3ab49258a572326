#include "sim/shared.h"

#include "adapter/jq.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

struct sim_shared {
    struct jq_program *guard, *when; /* NULL: not needed so far */
};

struct sim_shared *sim_shared_new(void)
{
    return mem_zero(sizeof(struct sim_shared));
}

void sim_shared_free(struct sim_shared *shared)
{
    if (!shared)
        return;
    jq_program_free(shared->guard);
    jq_program_free(shared->when);
    free(shared);
}

static struct jq_program *compiled(struct jq_program **program, const char *text)
{
    struct err err = {0};
    if (!*program && jq_program_new(text, false, program, &err))
        assert(!"the simulator's programs compile");
    return *program;
}

struct jq_program *shared_guard(struct sim_shared *shared)
{
    return compiled(&shared->guard, "(.account.last // -1) % 3 == (.arguments.amount_cents % 3)");
}

struct jq_program *shared_when(struct sim_shared *shared)
{
    return compiled(&shared->when, ".arguments.amount_cents % 2 == 0");
}
