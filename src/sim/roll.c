/* Decisions from counters: hash(seed, stream, index). Nothing is carried from one decision to the next, so leaving one
 * out leaves all others as they are. */
#include "base/mem.h"
#include "sim/run.h"

#include <assert.h>
#include <stdlib.h>

#define CHATTER_PERCENT_MAX 5

#define X(constant, text, breaks) {text, breaks},
static const struct {
    const char *name;
    bool breaks;
} faults[SIM_FAULT_COUNT] = {SIM_FAULTS(X)};
#undef X

const char *sim_fault_name(enum sim_fault fault)
{
    return fault < SIM_FAULT_COUNT ? faults[fault].name : "none";
}

bool sim_fault_from_name(struct str text, enum sim_fault *out)
{
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (str_is(text, faults[i].name)) {
            *out = (enum sim_fault)i;
            return true;
        }
    }
    return false;
}

bool sim_fault_breaks(enum sim_fault fault)
{
    return fault < SIM_FAULT_COUNT && faults[fault].breaks;
}

uint64_t sim_faults_within_contract(void)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        if (!faults[i].breaks)
            mask |= SIM_FAULT_BIT(i);
    return mask;
}

/* The finaliser of splitmix64. */
static inline uint64_t mixed(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t hash_at(uint64_t mixed_seed, uint32_t stream, uint32_t index)
{
    uint64_t place = (uint64_t)stream << 32 | index;
    return mixed(mixed_seed ^ mixed(place + UINT64_C(0xd1b54a32d192ed03)));
}

uint64_t roll_mix_seed(uint64_t seed)
{
    return mixed(seed + UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t roll_hash(uint64_t seed, uint32_t stream, uint32_t index)
{
    return hash_at(roll_mix_seed(seed), stream, index);
}

struct dice dice_of(struct sim *sim, uint32_t stream)
{
    return (struct dice){.sim = sim, .stream = stream};
}

uint64_t roll(struct dice *dice, uint64_t n)
{
    assert(n > 0);
    return hash_at(dice->sim->mixed_seed, dice->stream, dice->index++) % n;
}

int64_t roll_between(struct dice *dice, int64_t from, int64_t to)
{
    assert(from <= to);
    return from + (int64_t)roll(dice, (uint64_t)(to - from) + 1);
}

static bool left_out(const struct sim_options *options, uint32_t stream, uint32_t index)
{
    size_t low = 0, high = options->left_out_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct sim_decision *decision = &options->left_out[middle];
        if (decision->stream < stream || (decision->stream == stream && decision->index < index))
            low = middle + 1;
        else
            high = middle;
    }
    return low < options->left_out_count && options->left_out[low].stream == stream &&
           options->left_out[low].index == index;
}

static void remember(struct sim_result *result, uint32_t stream, uint32_t index)
{
    size_t count = result->taken_count;
    if ((count & (count - 1)) == 0) /* a power of two: full */
        result->taken = mem_grow(result->taken, (count ? 2 * count : 1) * sizeof *result->taken);
    result->taken[result->taken_count++] = (struct sim_decision){stream, index};
}

/* Clients that hardly do anything but ask again would take most of the time of a run. */
static unsigned percent_of(const struct sim *sim, enum sim_fault fault)
{
    bool chatter = fault == SIM_CLIENT_RETRY || fault == SIM_CLIENT_REWRITE;
    return chatter && sim->fault_percent > CHATTER_PERCENT_MAX ? CHATTER_PERCENT_MAX : sim->fault_percent;
}

bool roll_fault(struct dice *dice, enum sim_fault fault, unsigned weight)
{
    struct sim *sim = dice->sim;
    const struct sim_options *options = sim->options;
    uint32_t index = dice->index;
    dice->index++;
    if (sim->over || !(options->faults & SIM_FAULT_BIT(fault)))
        return false;
    bool hit = hash_at(sim->mixed_seed, dice->stream, index) % 10000 < (uint64_t)percent_of(sim, fault) * weight;
    if (!hit || left_out(options, dice->stream, index))
        return false;
    remember(sim->result, dice->stream, index);
    sim->result->faults++;
    sim->result->faults_by_kind[fault]++;
    return true;
}
