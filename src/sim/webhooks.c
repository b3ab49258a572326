/* Providers that tell of what they did on their own (design 11.1), beside the answers to our requests.
 *
 *   it happened, was accepted, ended badly, did not happen ──► event ──► some gateway that is up ──► recorded: done
 *                                └ nobody tells of it            ▲               │
 *                                                                └─── no word ───┘   at least once
 *
 * Before the answer or long after it, overtaking one another, twice (also at the same instant through two gateways),
 * naming the operation by what it may not know yet, of an older or a newer moment than what contradicts it, and by
 * sources that do not speak of this operation. What the rules say of it is in checker_inbound.c. */
#include "base/mem.h"
#include "sim/outside.h"

#include <stdio.h>
#include <stdlib.h>

#define ROLLS_PER_EVENT 64 /* of what is told; then those of each event's deliveries */
#define PER_INTENT      64 /* things told of one intent whose dice are told apart */
#define NAME_SIZE       32

struct webhook {
    struct sim_event delivery, second; /* until somebody has recorded it; once more whatever was answered */
    struct sim *sim;
    struct inbound event;
    char source[NAME_SIZE], id[NAME_SIZE], value[PROVIDER_KEY_SIZE], external_id[EXTERNAL_ID_SIZE], result[RESULT_SIZE];
    struct dice dice;
    bool recorded;
};

struct sim_webhooks {
    struct arena arena;
    uint32_t *counts; /* things told per intent; NULL: nobody listens */
};

struct sim_webhooks *sim_webhooks_new(struct sim *sim)
{
    struct sim_webhooks *webhooks = mem_zero(sizeof *webhooks);
    arena_init(&webhooks->arena);
    /* A user's sources say in their own words what events mean. */
    bool on = (sim->options->faults & SIM_FAULT_BIT(SIM_WEBHOOKS)) && !sim->options->registry;
    if (on && registry_source_count(sim->registry) > 0)
        webhooks->counts = arena_zero(&webhooks->arena, (check_intents(sim) + 1) * sizeof *webhooks->counts);
    return webhooks;
}

void sim_webhooks_free(struct sim_webhooks *webhooks)
{
    if (!webhooks)
        return;
    arena_release(&webhooks->arena);
    free(webhooks);
}

/* ---- deliveries ---- */

static void answered(void *user, enum err_code code, const struct err *err, const struct inbound *event, bool duplicate)
{
    struct webhook *webhook = user;
    struct sim *sim = webhook->sim;
    (void)err;
    sim_mix(sim, (uint64_t)code << 8 | duplicate);
    if (code)
        return; /* it is sent again */
    webhook->recorded = true;
    schedule_drop(sim, &webhook->delivery);
    checker_event_told(sim, event->id);
}

static struct gateway *some_gateway(struct sim *sim, uint64_t from)
{
    for (unsigned i = 0; i < sim->options->gateways; i++) {
        struct gateway *gateway = sim->gateways[(from + i) % sim->options->gateways];
        if (gateway_engine(gateway) && gateway_paused_until(gateway) == 0)
            return gateway;
    }
    return NULL;
}

static void deliver(struct sim *sim, struct webhook *webhook)
{
    struct gateway *gateway = some_gateway(sim, roll(&webhook->dice, SIM_GATEWAYS_MAX));
    if (!gateway)
        return;
    if (sim_traced(sim))
        sim_say(sim, webhook->source, "tells %s of %s %s: %s (%s of +%lld ms)", gateway_name(gateway),
                inbound_match_name(webhook->event.match), webhook->value, inbound_outcome_name(webhook->event.outcome),
                webhook->id, (long long)(webhook->event.created_ms - SIM_START_MS));
    engine_inbound(gateway_engine(gateway), &webhook->event, answered, webhook);
    gateway_moved(gateway);
}

static void run_delivery(struct sim *sim, struct sim_event *event)
{
    struct webhook *webhook = (struct webhook *)event; /* its first member */
    schedule_in(sim, event, roll_between(&webhook->dice, 500, 15000));
    deliver(sim, webhook);
}

static void run_second(struct sim *sim, struct sim_event *event)
{
    deliver(sim, (struct webhook *)((char *)event - offsetof(struct webhook, second)));
}

/* ---- what is told ---- */

static void name_operation(struct webhook *webhook, const struct message *message, uint64_t how)
{
    struct inbound *event = &webhook->event;
    const char *value = message->provider_key;
    event->match = INBOUND_BY_PROVIDER_KEY;
    if (how == 0) {
        event->match = INBOUND_BY_REFERENCE;
        value = message->operation;
    } else if (how == 1 && webhook->external_id[0]) {
        event->match = INBOUND_BY_EXTERNAL_ID;
        value = webhook->external_id;
    }
    snprintf(webhook->value, sizeof webhook->value, "%s", value);
    event->value = webhook->value;
}

/* In time, some seconds or minutes later. */
static int64_t way_of(struct dice *dice)
{
    uint64_t how = roll(dice, 8);
    int64_t soon = roll_between(dice, 0, 30), later = roll_between(dice, 30, 5000),
            late = roll_between(dice, 5000, 120000);
    return how < 3 ? soon : how < 7 ? later : late;
}

struct told {
    const char *source, *external_id; /* "" = none */
    enum inbound_outcome outcome;
    int64_t created_ms;
    unsigned place; /* of its dice */
};

static void tell(struct sim *sim, const struct message *message, const struct dice *of, const struct told *told)
{
    struct webhook *webhook = arena_zero(&sim->webhooks->arena, sizeof *webhook);
    struct dice *dice = &webhook->dice;
    webhook->sim = sim;
    *dice = *of;
    dice->index = told->place * ROLLS_PER_EVENT;
    uint64_t by = roll(dice, 3);
    int64_t way = way_of(dice), apart = roll_between(dice, 0, 3000);
    bool twice = roll(dice, 4) == 0, at_once = roll(dice, 3) == 0;
    snprintf(webhook->source, sizeof webhook->source, "%s", told->source);
    snprintf(webhook->id, sizeof webhook->id, "e%u-%u-%u", message->intent, of->stream & (PER_INTENT - 1), told->place);
    snprintf(webhook->external_id, sizeof webhook->external_id, "%s", told->external_id);
    snprintf(webhook->result, sizeof webhook->result, "{\"id\":\"%s\",\"made\":true}", told->external_id);
    webhook->event = (struct inbound){
        .source = webhook->source,
        .event = webhook->id,
        .created_ms = told->created_ms,
        .outcome = told->outcome,
        .external_id = webhook->external_id[0] ? webhook->external_id : NULL,
        .result = told->outcome == INBOUND_SUCCESS ? str_of(webhook->result) : STR_NONE,
        .body = STR("{}"),
    };
    name_operation(webhook, message, by);
    webhook->delivery.run = run_delivery;
    webhook->second.run = run_second;
    schedule_in(sim, &webhook->delivery, way);
    if (twice)
        schedule_in(sim, &webhook->second, way + (at_once ? 0 : apart));
}

/* Speaks of others' operations: of another tenant's, other tools', another provider's. */
static const char *other_source(const struct sim *sim, const char *provider, uint64_t how, char out[NAME_SIZE])
{
    snprintf(out, NAME_SIZE, "%s", strcmp(provider, "p1") == 0 ? "p2" : "p1");
    if (how == 2 && registry_source(sim->registry, out))
        return out;
    snprintf(out, NAME_SIZE, "%s-%s", provider, how == 1 ? "tools" : "tenant");
    return out;
}

void webhooks_tell(struct sim *sim, const struct message *message, enum inbound_outcome outcome,
                   const char *external_id)
{
    struct sim_webhooks *webhooks = sim->webhooks;
    if (!webhooks->counts || message->is_read || message->intent > check_intents(sim))
        return;
    uint32_t nth = webhooks->counts[message->intent]++ % PER_INTENT;
    struct dice dice = dice_of(sim, STREAM(STREAM_WEBHOOK, message->intent * PER_INTENT + nth));
    bool contradicts = roll(&dice, 5) == 0, older = roll(&dice, 2) == 0, strange = roll(&dice, 24) == 0;
    bool no_matter = roll(&dice, 10) == 0, untrue = roll(&dice, 2) == 0;
    int64_t apart = roll_between(&dice, 1, 5000);
    uint64_t how = roll(&dice, 3);
    if (!roll_fault(&dice, SIM_WEBHOOKS, 2000))
        return;
    char other[NAME_SIZE];
    const char *provider = message->tool->provider->name;
    struct told told = {provider, external_id, outcome, sim->now_ms, 1};
    tell(sim, message, &dice, &told);
    if (contradicts && outcome == INBOUND_SUCCESS)
        tell(sim, message, &dice,
             &(struct told){provider, external_id, INBOUND_FAILED, sim->now_ms + (older ? -apart : apart), 2});
    if (strange)
        tell(sim, message, &dice,
             &(struct told){other_source(sim, provider, how, other), external_id,
                            untrue ? INBOUND_NO_EFFECT : INBOUND_SUCCESS, sim->now_ms, 3});
    if (no_matter)
        tell(sim, message, &dice, &(struct told){provider, external_id, INBOUND_IGNORE, sim->now_ms, 4});
}
