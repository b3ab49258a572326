#include "sim/tools_claims.h"

#include "base/mem.h"
#include "sim/shared.h"

#include <assert.h>
#include <stdlib.h>

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)

enum { FROM, TO, WINDOW, MESSAGE, AMOUNT, TEMPLATES };

struct claims_kit {
    struct template *templates[TEMPLATES];
    struct jq_program *guard; /* NULL in most runs */
    struct budget budgets[2];
    bool off; /* a run without any claims */
};

struct claims_kit *claims_kit_new(struct sim *sim)
{
    static const char *const texts[TEMPLATES] = {"{from}", "{to}", "pair:{from}:{to}", "amount {amount_cents} again",
                                                 "{amount_cents}"};
    struct dice roll_of = dice_of(sim, STREAM(STREAM_TOOL, 0x2000)), *dice = &roll_of;
    struct claims_kit *kit = mem_zero(sizeof *kit);
    struct err err = {0};
    bool good = true;
    for (size_t i = 0; i < TEMPLATES; i++)
        good = template_new(texts[i], &kit->templates[i], &err) == ERR_NONE && good;
    kit->off = roll(dice, 3) == 0;
    for (size_t i = 0; i < 2; i++) {
        static const int64_t limits[] = {2, 5, 2000, 20000};
        kit->budgets[i] = (struct budget){
            .name = i ? "count" : "sum",
            .per_ms = (1 + (int64_t)roll(dice, 5)) * 20 * SECOND,
            .limit = decimal_of(limits[(i ? 0 : 2) + roll(dice, 2)]),
            .per_principal = roll(dice, 2) == 0,
        };
    }
    if (roll(dice, 8) == 0 && !kit->off)
        kit->guard = shared_guard(sim->shared);
    assert(good);
    (void)good;
    return kit;
}

void claims_kit_free(struct claims_kit *kit)
{
    if (!kit)
        return;
    for (size_t i = 0; i < TEMPLATES; i++)
        template_free(kit->templates[i]);
    free(kit);
}

static void draw_entities(struct claims_kit *kit, struct arena *arena, struct tool_claims *claims, struct dice *dice)
{
    struct entity_rule *rules = arena_zero(arena, 2 * sizeof *rules);
    bool both = roll(dice, 2) == 0, queue = roll(dice, 4) != 0;
    for (size_t i = 0; i < (both ? 2 : 1); i++)
        rules[claims->entity_count++] =
            (struct entity_rule){.type = "account", .id = kit->templates[i ? TO : FROM], .queue = queue};
    claims->entities = rules;
}

static void draw_guard(struct claims_kit *kit, struct arena *arena, struct tool_claims *claims)
{
    struct guard_rule *guard = arena_zero(arena, sizeof *guard);
    struct attribute_rule *set = arena_zero(arena, sizeof *set);
    *guard = (struct guard_rule){kit->guard, kit->templates[MESSAGE]};
    *set = (struct attribute_rule){.type = "account", .name = "last", .template = kit->templates[AMOUNT]};
    claims->guards = guard;
    claims->sets = set;
    claims->guard_count = claims->set_count = 1;
}

const struct tool_claims *claims_kit_draw(struct claims_kit *kit, struct arena *arena, struct dice *dice)
{
    /* The same number of rolls, whatever comes of them. */
    bool some = roll(dice, 2) == 0 && !kit->off, entities = roll(dice, 3) != 0, window = roll(dice, 5) == 0;
    bool debits = roll(dice, 3) == 0, count = roll(dice, 2) == 0, long_window = roll(dice, 2) == 0;
    struct tool_claims *claims = arena_zero(arena, sizeof *claims);
    if (!some)
        return NULL;
    if (entities)
        draw_entities(kit, arena, claims, dice);
    if (entities && kit->guard)
        draw_guard(kit, arena, claims);
    if (window)
        claims->window = (struct window_rule){kit->templates[WINDOW], long_window ? 5 * MINUTE : 30 * SECOND, false};
    if (debits) {
        struct debit_rule *debit = arena_zero(arena, sizeof *debit);
        *debit = (struct debit_rule){&kit->budgets[count ? 1 : 0], count ? NULL : "/amount_cents", NULL};
        claims->debits = debit;
        claims->debit_count = 1;
    }
    return entities || window || debits ? claims : NULL;
}
