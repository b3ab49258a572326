#include "sim/tools_steps.h"

#include "core/playbook.h"
#include "sim/shared.h"

#include <assert.h>

#define SECOND      INT64_C(1000)
#define MINUTE      (60 * SECOND)
#define DAY         (24 * 60 * MINUTE)
#define STEPS_LEAST 2
#define STEPS_MOST  4

/* Each step has an order of its own, so that no step is another's call, and nobody's else. */
static const struct json *form_of(const struct steps_kit *kit, size_t at, const struct tool *tool, const char *noted)
{
    struct json *form = json_object(kit->arena);
    json_set(kit->arena, form, STR("order"), json_string(str_of(arena_printf(kit->arena, "s%zu {order}", at + 1))));
    json_set(kit->arena, form, STR("amount_cents"), json_string(STR("{amount_cents}")));
    json_set(kit->arena, form, STR("currency"), json_string(STR("{currency}")));
    if (tool->claims) {
        json_set(kit->arena, form, STR("from"), json_string(STR("{from}")));
        json_set(kit->arena, form, STR("to"), json_string(STR("{to}")));
    }
    if (noted) /* what a former step gave */
        json_set(kit->arena, form, STR("note"),
                 json_string(str_of(arena_printf(kit->arena, "after {$steps.%s.operation_id}", noted))));
    return form;
}

static void choose_undo(struct steps_item *item, const struct tool *tool, uint64_t how)
{
    if (!tool_is_write(tool)) {
        item->undo = STEPS_UNDO_NOTHING;
    } else if (tool->playbook_count > 0 && how < 6) {
        item->undo = STEPS_UNDO_PLAYBOOK;
        item->playbook = tool->playbooks[how % tool->playbook_count].name;
    } else {
        item->undo = how % 2 ? STEPS_UNDO_ESCALATE : STEPS_UNDO_LEAVE;
    }
}

/* Tools that can be undone are taken more often: their rollbacks are what is to be seen. */
static const struct tool *choose_tool(const struct steps_kit *kit, struct dice *dice)
{
    size_t n = (size_t)roll(dice, kit->count);
    bool undoable = roll(dice, 3) != 0;
    for (size_t i = 0; undoable && i < kit->count; i++)
        if (kit->tools[(n + i) % kit->count].playbook_count > 0)
            return &kit->tools[(n + i) % kit->count];
    return &kit->tools[n];
}

static const struct steps_list *draw_list(const struct steps_kit *kit, struct dice *dice, const char *digest,
                                          enum tool_class *class)
{
    size_t count = STEPS_LEAST + (size_t)roll(dice, STEPS_MOST - STEPS_LEAST + 1);
    struct steps_item *items = arena_zero(kit->arena, STEPS_MOST * sizeof *items);
    struct steps_list *list = arena_zero(kit->arena, sizeof *list);
    const char *noted = NULL;
    for (size_t i = 0; i < STEPS_MOST; i++) { /* the same number of rolls, whatever comes of them */
        const struct tool *tool = choose_tool(kit, dice);
        uint64_t how = roll(dice, 8);
        bool some = roll(dice, 5) == 0, notes = roll(dice, 2) == 0;
        if (i >= count)
            continue;
        items[i].name = arena_printf(kit->arena, "s%zu", i + 1);
        items[i].tool = tool->name;
        items[i].form = form_of(kit, i, tool, notes ? noted : NULL);
        items[i].when = some ? shared_when(kit->sim->shared) : NULL;
        choose_undo(&items[i], tool, how);
        noted = some ? noted : items[i].name;
        *class = tool->class > *class ? tool->class : *class;
    }
    *list = (struct steps_list){.items = items, .count = count, .digest = digest};
    return list;
}

size_t tools_steps_draw(const struct steps_kit *kit, struct tool *tools, struct tool *changed)
{
    struct dice roll_of = dice_of(kit->sim, STREAM(STREAM_TOOL, 0x3000)), *dice = &roll_of;
    bool drops = (kit->sim->options->faults & SIM_FAULT_BIT(SIM_RETENTION)) != 0;
    size_t count = roll(dice, 3) == 0 ? 0 : 1 + (size_t)roll(dice, SIM_MULTI_STEP_MAX), kept = 0;
    for (size_t i = 0; i < SIM_MULTI_STEP_MAX; i++) {
        int64_t kept_ms = roll(dice, 2) ? 5 * MINUTE : 60 * MINUTE;
        bool keyed = roll(dice, 2) == 0, short_time = roll(dice, 3) == 0, other_list = roll(dice, 3) == 0;
        enum tool_class class = CLASS_READ;
        const struct steps_list *list = draw_list(kit, dice, arena_printf(kit->arena, "list%zu", i), &class);
        if (i >= count || class == CLASS_READ)
            continue;
        struct tool *tool = &tools[kept];
        *tool = (struct tool){
            .name = arena_printf(kit->arena, "m%zu", i + 1),
            .version = "1",
            .class = class,
            .provider = &steps_provider,
            .identity = keyed ? IDENTITY_ANY : IDENTITY_CALLER,
            .key = keyed ? kit->key : NULL,
            .repeat_window_ms = MINUTE,
            .repeat = REPEAT_ALLOWED,
            .retry = {.attempts_max = 1,
                      .total_ms = short_time ? 20 * SECOND : 10 * MINUTE,
                      .backoff_ms = 200,
                      .backoff_max_ms = SECOND},
            .reconcile = {.strategies = {STRATEGY_MANUAL}, .strategy_count = 1},
            .approval = {.approvers = 1, .expires_ms = MINUTE, .policy = "as it was"},
            .retain_ms = drops ? kept_ms : 30 * DAY,
            .wait_ms = 2 * SECOND,
            .result_bytes_max = 65536,
            .steps = list,
        };
        changed[kept] = *tool;
        if (other_list) {
            struct steps_list *other = arena_zero(kit->arena, sizeof *other);
            *other = *list;
            other->digest = arena_printf(kit->arena, "other%zu", i);
            changed[kept].steps = other;
        }
        kept++;
    }
    return kept;
}
