/* Entities, guards, windows and budgets (design 9), from what operations claim and how their states move, without a
 * look at the ledger's tables until the end. */
#include "sim/checker.h"
#include "sim/tools_claims.h"

#include "base/mem.h"

#define SLACK_MS (24LL * 3600 * 1000) /* sums whose period was over so long ago need not be kept exact */

struct check_entity {
    struct check_row
        *holder;  /* runs with it: from its first request, or its place before a busy provider, to its end */
    int64_t last; /* what the guard looks at; -1: nothing yet */
    bool late;    /* set by evidence, when its holder had gone: a guard may have looked just before */
    char key[];
};

struct check_claims {
    const struct check_row *row;
    struct check_claims *older; /* of all rows with claims */
    struct str text;
    struct check_entity *entities[CLAIMS_ENTITIES_MAX];
    size_t entity_count;
    bool guarded;
    int64_t amount; /* that it sets, and that its guard looks at */
    const char *window;
    int64_t window_ms;
    const char *budget, *subject; /* at most one: the simulator's tools have no more */
    int64_t debit, per_ms, limit;
    uint64_t waits; /* its place among those that wait for entities; 0 = it does not */
    bool runs;
};

static bool counts(const struct check_row *row)
{
    return row->state != STATE_FAILED_PERMANENT && row->state != STATE_REJECTED;
}

/* ---- reading ---- */

static struct check_entity *entity_of(struct checker_model *model, const char *tenant, const struct json *item)
{
    char key[CHECK_KEY_SIZE];
    size_t n = check_joined(key, str_of(tenant), json_get_text(item, "type"), json_get_text(item, "id"));
    struct check_entity *entity = map_get(&model->entities, key);
    if (!entity) {
        entity = arena_zero(&model->arena, sizeof *entity + n + 1);
        memcpy(entity->key, key, n + 1);
        entity->last = -1;
        map_put(&model->entities, entity->key, entity);
    }
    return entity;
}

static int64_t whole(struct str number)
{
    int64_t value = 0;
    return json_number_int64(number, &value) ? value : 0;
}

static int64_t amount_of(struct arena *arena, const struct operation *op)
{
    struct json *arguments;
    if (json_parse(arena, op->arguments, NULL, &arguments, NULL))
        return 0;
    const struct json *amount = json_get(arguments, "amount_cents");
    return amount ? whole(amount->text) : 0;
}

/* What the tool limits its budget to, as the registry said at admission. */
static int64_t limit_of(const struct check_row *row)
{
    const struct tool_claims *rules = row->tool ? row->tool->claims : NULL;
    return rules && rules->debit_count > 0 ? (int64_t)(rules->debits[0].budget->limit.units / decimal_of(1).units)
                                           : INT64_MAX;
}

static struct check_claims *read_claims(struct checker_model *model, struct check_row *row, const struct operation *op)
{
    struct arena *arena = &model->arena;
    struct json *text;
    if (json_parse(arena, op->claims, NULL, &text, NULL))
        return NULL;
    struct check_claims *claims = arena_zero(arena, sizeof *claims);
    const struct json *entities = json_get(text, "entities"), *budgets = json_get(text, "budgets");
    claims->row = row;
    claims->text = arena_str(arena, op->claims);
    for (uint32_t i = 0; entities && i < entities->count; i++)
        claims->entities[claims->entity_count++] = entity_of(model, row->tenant, &entities->items[i]);
    claims->guarded = row->tool && row->tool->claims && row->tool->claims->guard_count > 0;
    claims->amount = amount_of(arena, op);
    claims->window = arena_copy_str(arena, json_get_text(text, "window"));
    claims->window_ms = json_get_int(text, "window_per_ms", 0);
    if (budgets && budgets->count > 0) {
        const struct json *debit = &budgets->items[0];
        claims->budget = arena_copy_str(arena, json_get_text(debit, "budget"));
        claims->subject = arena_copy_str(arena, json_get_text(debit, "subject"));
        claims->debit = whole(json_get_text(debit, "amount"));
        claims->per_ms = json_get_int(debit, "per_ms", 0);
        claims->limit = limit_of(row);
    }
    return claims;
}

/* ---- entities (9.1), guards (9.3) ---- */

static bool shares_entity(const struct check_claims *a, const struct check_claims *b)
{
    for (size_t i = 0; i < a->entity_count; i++)
        for (size_t k = 0; k < b->entity_count; k++)
            if (a->entities[i] == b->entities[k])
                return true;
    return false;
}

static bool guard_forbids(const struct check_claims *claims)
{
    const struct check_entity *entity = claims->entities[0];
    return entity->last >= 0 && !entity->late && entity->last % SIM_GUARD_REST == claims->amount % SIM_GUARD_REST;
}

/* It begins to work on its entities. */
static void begin(struct checker_model *model, struct check_row *row)
{
    struct check_claims *claims = row->claims;
    claims->runs = true;
    for (const struct check_claims *other = model->newest_claims; other; other = other->older)
        if (other != claims && other->waits > 0 && (claims->waits == 0 || other->waits < claims->waits) &&
            shares_entity(claims, other))
            sim_violated(model->sim,
                         "9.1 queues are fair: %s (intent %u) begins before %s (intent %u), which waits longer",
                         row->id, row->intent, other->row->id, other->row->intent);
    for (size_t i = 0; i < claims->entity_count; i++) {
        struct check_entity *entity = claims->entities[i];
        if (entity->holder)
            sim_violated(model->sim, "9.1 entities are exclusive: %s (intent %u) begins while %s (intent %u) is %s",
                         row->id, row->intent, entity->holder->id, entity->holder->intent,
                         state_name(entity->holder->state));
        entity->holder = row;
    }
    if (claims->guarded && guard_forbids(claims))
        sim_violated(model->sim, "9.3 guards hold: %s (intent %u) begins with amount %lld after %lld", row->id,
                     row->intent, (long long)claims->amount, (long long)claims->entities[0]->last);
    claims->waits = 0;
}

static void end(struct check_row *row, enum state from)
{
    struct check_claims *claims = row->claims;
    bool effect =
        from != STATE_COMPENSATING && (row->state == STATE_COMPLETED_SUCCESS || row->state == STATE_COMPLETED_NOOP);
    for (size_t i = 0; i < claims->entity_count; i++) {
        struct check_entity *entity = claims->entities[i];
        if (effect && claims->guarded) {
            entity->last = claims->amount;
            entity->late = state_terminal(from);
        }
        if (entity->holder == row)
            entity->holder = NULL;
    }
    claims->waits = 0;
}

static void follow(struct checker_model *model, struct check_row *row, enum state from)
{
    struct check_claims *claims = row->claims;
    if (claims->entity_count == 0)
        return;
    if (row->state == STATE_PLANNED) {
        if (row->reason == REASON_AWAITING_ENTITY && claims->waits == 0)
            claims->waits = ++model->waits;
    } else if (state_terminal(row->state)) {
        if (row->state != from)
            end(row, from);
    } else if (!claims->runs) {
        begin(model, row);
    }
}

/* ---- windows (9.2), budgets (9.4) ---- */

static bool same_window(const struct check_claims *a, const struct check_claims *b)
{
    return a->window && b->window && strcmp(a->window, b->window) == 0 && text_equal(a->row->tenant, b->row->tenant);
}

static bool same_budget(const struct check_claims *a, const struct check_claims *b)
{
    return a->budget && b->budget && strcmp(a->budget, b->budget) == 0 && strcmp(a->subject, b->subject) == 0 &&
           text_equal(a->row->tenant, b->row->tenant);
}

static const struct check_row *window_user(const struct checker_model *model, const struct check_claims *claims,
                                           int64_t now_ms)
{
    for (const struct check_claims *other = model->newest_claims; other; other = other->older)
        if (other != claims && other->row->created_ms + other->window_ms > now_ms && counts(other->row) &&
            same_window(claims, other))
            return other->row;
    return NULL;
}

/* What counts since after_ms, without the claims' own. */
static int64_t used(const struct checker_model *model, const struct check_claims *claims, int64_t after_ms)
{
    int64_t sum = 0;
    for (const struct check_claims *other = model->newest_claims; other; other = other->older)
        if (other != claims && other->row->created_ms > after_ms && counts(other->row) && same_budget(claims, other))
            sum += other->debit;
    return sum;
}

static int64_t slice_ms(const struct check_claims *claims)
{
    return (claims->per_ms + CLAIMS_SLICES - 1) / CLAIMS_SLICES;
}

static void check_passed(struct checker_model *model, const struct check_row *row)
{
    const struct check_claims *claims = row->claims;
    const struct check_row *user = claims->window ? window_user(model, claims, row->created_ms) : NULL;
    int64_t sum = claims->budget ? used(model, claims, row->created_ms - claims->per_ms) + claims->debit : 0;
    if (user)
        sim_violated(model->sim, "9.2 windows hold: %s (intent %u) is new, %s (intent %u) used the window", row->id,
                     row->intent, user->id, user->intent);
    if (claims->budget && sum > claims->limit)
        sim_violated(model->sim,
                     "9.4 budgets hold: %s (intent %u) is new with %lld of %s, %lld count, the limit is %lld", row->id,
                     row->intent, (long long)claims->debit, claims->budget, (long long)sum, (long long)claims->limit);
}

/* ---- for the other files ---- */

void check_claims_admitted(struct checker_model *model, struct check_row *row, const struct operation *op)
{
    if (!op->claims.p || !(row->claims = read_claims(model, row, op)))
        return;
    check_passed(model, row);
    row->claims->older = model->newest_claims;
    model->newest_claims = row->claims;
    follow(model, row, row->state);
}

/* A refusal by policy has its reason. */
void check_claims_refused(struct checker_model *model, struct check_row *shadow, const struct ledger_admit *admit)
{
    const struct operation *op = admit->admission.op;
    struct check_claims *claims = read_claims(model, shadow, op);
    bool right = true;
    if (!claims)
        return;
    switch (admit->result.refusal.verdict) {
    case CLAIMS_WINDOW: right = window_user(model, claims, op->created_ms) != NULL; break;
    case CLAIMS_BUDGET: /* a slice counts whole */
        right =
            used(model, claims, op->created_ms - claims->per_ms - slice_ms(claims) - 1) + claims->debit > claims->limit;
        break;
    case CLAIMS_ENTITY:
        right = false;
        for (const struct check_claims *other = model->newest_claims; other && !right; other = other->older)
            right = (other->waits > 0 || (other->runs && !state_terminal(other->row->state))) &&
                    shares_entity(claims, other);
        break;
    case CLAIMS_GUARD: right = claims->guarded && claims->entities[0]->last >= 0; break;
    case CLAIMS_PASS:
    case CLAIMS_WAIT:
    case CLAIMS_LOOK: right = false; break;
    }
    if (!right)
        sim_violated(model->sim,
                     "9 a refusal has its reason: a call of intent %u is refused by %s, and nothing forbids it",
                     shadow->intent, claims_verdict_name(admit->result.refusal.verdict));
}

void check_claims_moved(struct checker_model *model, struct check_row *row, enum state from, const struct operation *op)
{
    if (!row->claims)
        return;
    if (!str_equal(row->claims->text, op->claims))
        sim_violated(model->sim, "9 what is claimed is fixed at admission: %s (intent %u) has changed", row->id,
                     row->intent);
    follow(model, row, from);
}

/* ---- at the end ---- */

static void check_entities_free(struct sim *sim, const char *tenant)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {
        .command = LEDGER_ENTITIES, .arena = &arena, .entities = {.tenant = tenant, .all = true, .limit = 500}};
    if (ledger_call(sim->backing, &request) == ERR_NONE)
        for (size_t i = 0; i < request.entities.count; i++) {
            const struct ledger_entity *entity = &request.entities.entities[i];
            const struct check_row *row = entity->holder ? check_find(sim->checker, entity->holder) : NULL;
            if (entity->holder && (!row || state_terminal(row->state)))
                sim_violated(sim, "9.1 who has ended holds nothing: %s %s is held by %s", entity->type, entity->id,
                             entity->holder);
            if (entity->waiting > 0 && !entity->holder)
                sim_violated(sim, "9.1 nobody waits for what is free: %s %s", entity->type, entity->id);
        }
    arena_release(&arena);
}

/* The ledger's sums are the sums of what counts. */
static void check_sums(struct sim *sim, const char *tenant)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_BUDGETS, .arena = &arena, .budgets = {.tenant = tenant}};
    if (ledger_call(sim->backing, &request) == ERR_NONE)
        for (size_t i = 0; i < request.budgets.count; i++) {
            const struct ledger_budget_slice *slice = &request.budgets.slices[i];
            int64_t sum = 0;
            bool old = false;
            for (const struct check_claims *other = sim->checker->newest_claims; other; other = other->older) {
                const struct check_row *row = other->row;
                if (!other->budget || strcmp(other->budget, slice->budget) != 0 ||
                    strcmp(other->subject, slice->subject) != 0 || !text_equal(row->tenant, tenant) ||
                    row->created_ms < slice->start_ms || row->created_ms >= slice->until_ms)
                    continue;
                old |= slice->until_ms + other->per_ms + SLACK_MS / 2 < sim->now_ms;
                sum += counts(row) ? other->debit : 0;
            }
            if (!old && decimal_compare(slice->amount, decimal_of(sum)) != 0)
                sim_violated(sim, "9.4 budgets are exact: %s of %s: %lld count, the ledger has another sum",
                             slice->budget, tenant, (long long)sum);
        }
    arena_release(&arena);
}

void check_claims_end(struct sim *sim)
{
    const struct checker_model *model = sim->checker;
    for (size_t i = 0; i < model->row_count && !sim->result->violated; i++) {
        const char *tenant = model->rows[i]->tenant;
        size_t first = 0;
        while (!text_equal(model->rows[first]->tenant, tenant))
            first++;
        if (first < i) /* once for each tenant */
            continue;
        check_entities_free(sim, tenant);
        check_sums(sim, tenant);
    }
}
