/* Tools and providers of a run: drawn from the seed, over every class and contract that a registry file may state
 * (src/daemon/config_policy.c refuses the rest), with short times, so that leases, retention and limits matter. A
 * user's registry is taken as it is. */
#include "base/mem.h"
#include "core/playbook.h"
#include "sim/run.h"
#include "sim/tools_claims.h"
#include "sim/tools_steps.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND        INT64_C(1000)
#define MINUTE        (60 * SECOND)
#define HOUR          (60 * MINUTE)
#define DAY           (24 * HOUR)
#define PROVIDERS_MAX 4
#define TOOLS_MAX     8
#define TOOLS_MOST    (TOOLS_MAX + SIM_MULTI_STEP_MAX + SIM_GUARDED_MAX)
#define VARIANTS_MAX  6

struct sim_tools {
    struct provider providers[PROVIDERS_MAX];
    size_t provider_count;
    /* changed: the same with other policies */
    struct tool tools[TOOLS_MOST], changed[TOOLS_MOST];
    size_t tool_count;
    struct template *key;
    struct schema *schema;
    struct normal *normal;
    struct arena arena;
    struct registry *variants[VARIANTS_MAX];
    size_t variant_count;
    struct claims_kit *claims;
    struct inbox_source sources[3 * PROVIDERS_MAX];
    size_t source_count;
    int64_t horizon_ms;
};

static int64_t pick(struct dice *dice, const int64_t *values, size_t count)
{
    return values[roll(dice, count)];
}
#define PICK(dice, ...)                                                                                                \
    pick(dice, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* ---- providers ---- */

static void draw_provider(struct sim *sim, struct sim_tools *tools, size_t n)
{
    struct dice roll_of = dice_of(sim, STREAM(STREAM_TOOL, 0x1000 + n)), *dice = &roll_of;
    struct provider *provider = &tools->providers[n];
    *provider = (struct provider){
        .name = arena_printf(&tools->arena, "p%zu", n + 1),
        .connections_max = (unsigned)PICK(dice, 1, 2, 4, 16, 64),
        .queue_max = (unsigned)PICK(dice, 0, 2, 20, 100),
        .timeout_ms = PICK(dice, 300, 1000, 3000, 10000),
        .connect_timeout_ms = PICK(dice, 200, 1000),
        .key_honoured = roll(dice, 3) != 0,
        .key_format = (enum key_format)roll(dice, 3),
        .key_bytes_max = (unsigned)PICK(dice, 0, 0, 36, 64),
        .retry_budget_per_s = (double)PICK(dice, 1, 5, 50),
        .retry_budget_burst = (unsigned)PICK(dice, 0, 1, 10, 100),
        .breaker_failures = (unsigned)PICK(dice, 0, 0, 2, 5),
        .breaker_open_ms = PICK(dice, 200, 2000, 10000),
    };
    if (provider->key_honoured)
        provider->key_retention_ms = PICK(dice, 0, 20 * SECOND, 2 * MINUTE, 15 * MINUTE, DAY);
}

/* ---- tools ---- */

enum kind {
    KIND_READ,
    KIND_INTERNAL,
    KIND_BY_KEY,
    KIND_BY_PRECONDITION,
    KIND_BY_NATURE,
    KIND_WEAK,
    KIND_IRREVERSIBLE,
    KIND_COUNT
};

static void set_class(struct tool *tool, enum kind kind)
{
    static const struct {
        enum tool_class class;
        enum idempotent_by by;
    } kinds[KIND_COUNT] = {
        {CLASS_READ, IDEMPOTENT_BY_KEY},
        {CLASS_INTERNAL_WRITE, IDEMPOTENT_BY_KEY},
        {CLASS_EXTERNAL_IDEMPOTENT, IDEMPOTENT_BY_KEY},
        {CLASS_EXTERNAL_IDEMPOTENT, IDEMPOTENT_BY_PRECONDITION},
        {CLASS_EXTERNAL_IDEMPOTENT, IDEMPOTENT_BY_NATURE},
        {CLASS_EXTERNAL_WEAK, IDEMPOTENT_BY_KEY},
        {CLASS_EXTERNAL_IRREVERSIBLE, IDEMPOTENT_BY_KEY},
    };
    tool->class = kinds[kind].class;
    tool->idempotent_by = kinds[kind].by;
}

static void draw_identity(struct sim_tools *tools, struct tool *tool, struct dice *dice)
{
    static const char *const note[] = {"/note"};
    bool irreversible = tool->class == CLASS_EXTERNAL_IRREVERSIBLE;
    bool weak = irreversible || tool->class == CLASS_EXTERNAL_WEAK;
    uint64_t how = roll(dice, irreversible ? 2 : 5);
    tool->identity = how == 0 ? IDENTITY_CALLER : IDENTITY_ANY;
    tool->key = how == 1 ? tools->key : NULL;
    tool->step_identity = roll(dice, 3) == 0 ? STEP_PER_ARGUMENTS : STEP_PER_STEP;
    tool->normal = roll(dice, 2) ? tools->normal : NULL;
    if (roll(dice, 2)) {
        tool->volatile_pointers = note;
        tool->volatile_count = 1;
    }
    if (roll(dice, 2)) {
        tool->input_schema = tools->schema;
    }
    tool->on_mismatch = roll(dice, 4) == 0 ? MISMATCH_REPLAY : MISMATCH_CONFLICT;
    tool->share = (enum share_rule)roll(dice, 3);
    tool->repeat_window_ms = weak ? PICK(dice, 10 * MINUTE, DAY) : PICK(dice, 0, MINUTE, 15 * MINUTE);
    tool->repeat = roll(dice, 4) == 0 ? REPEAT_DENIED : REPEAT_ALLOWED;
    tool->in_doubt = weak != (roll(dice, 5) == 0) ? IN_DOUBT_HOLD : IN_DOUBT_ALLOW;
}

static void draw_retry(struct tool *tool, struct dice *dice)
{
    tool->retry = (struct retry_policy){
        .attempts_max = (unsigned)PICK(dice, 1, 2, 5, 10),
        .total_ms = PICK(dice, 20 * SECOND, 2 * MINUTE, 10 * MINUTE),
        .backoff_ms = PICK(dice, 20, 200, 1000),
        .backoff_max_ms = PICK(dice, 1000, 10 * SECOND),
    };
}

static void draw_reconcile(struct tool *tool, struct dice *dice)
{
    struct reconcile_policy *policy = &tool->reconcile;
    bool resend = tool_may_resend(tool) && roll(dice, 6) != 0;
    bool lookup_first = roll(dice, 2) == 0;
    tool->has_lookup = roll(dice, 3) != 0;
    *policy = (struct reconcile_policy){
        .settle_ms = PICK(dice, SIM_CLOCK_SPREAD_MS + SECOND, 8 * SECOND, 30 * SECOND),
        .absent_times = (unsigned)PICK(dice, 1, 2, 3),
        .interval_ms = PICK(dice, 100, SECOND, 5 * SECOND),
        .interval_max_ms = PICK(dice, 5 * SECOND, 20 * SECOND),
        .give_up_ms = PICK(dice, 10 * SECOND, 2 * MINUTE, 20 * MINUTE),
        .watch_ms = {PICK(dice, 10 * SECOND, MINUTE), 10 * MINUTE},
        .watch_count = (unsigned)PICK(dice, 0, 1, 2, 2),
    };
    if (tool->has_lookup && lookup_first)
        policy->strategies[policy->strategy_count++] = STRATEGY_LOOKUP;
    if (resend)
        policy->strategies[policy->strategy_count++] = STRATEGY_RESEND;
    if (tool->has_lookup && !lookup_first)
        policy->strategies[policy->strategy_count++] = STRATEGY_LOOKUP;
    policy->strategies[policy->strategy_count++] = STRATEGY_MANUAL;
}

static const struct provider *draw_provider_for(struct sim_tools *tools, enum kind kind, struct dice *dice)
{
    size_t n = (size_t)roll(dice, tools->provider_count);
    if (kind != KIND_BY_KEY)
        return &tools->providers[n];
    for (size_t i = 0; i < tools->provider_count; i++) { /* by key needs one that honours keys */
        const struct provider *provider = &tools->providers[(n + i) % tools->provider_count];
        if (provider->key_honoured)
            return provider;
    }
    return NULL;
}

/* Every third tool's attempts may take longer than its provider's time-out says. */
static void draw_time_out(struct sim *sim, struct tool *tool, size_t n)
{
    struct dice roll_of = dice_of(sim, STREAM(STREAM_TOOL, 0x5000 + n)), *dice = &roll_of;
    tool->timeout_ms = roll(dice, 3) == 0 ? tool->provider->timeout_ms * PICK(dice, 2, 5, 20) : 0;
}

/* From a stream of its own: leaving approvals out leaves all else as it was. */
static void draw_approval(struct sim *sim, struct tool *tool, size_t n)
{
    struct dice roll_of = dice_of(sim, STREAM(STREAM_TOOL, 0x2000 + n)), *dice = &roll_of;
    bool asks = (sim->options->faults & SIM_FAULT_BIT(SIM_APPROVALS)) && tool->class != CLASS_READ;
    bool repeats = roll(dice, 3) == 0;
    tool->approval = (struct approval_policy){
        .required = roll(dice, 3) == 0 && asks,
        .approvers = (unsigned)PICK(dice, 1, 1, 2, 3),
        .expires_ms = PICK(dice, 10 * SECOND, MINUTE, 5 * MINUTE),
        .policy = "as it was",
    };
    if (asks && repeats && tool->repeat == REPEAT_ALLOWED)
        tool->repeat = REPEAT_WITH_APPROVAL;
}

/* Every second tool asks more people, or for another request, after a reload. */
static void change_approval(struct tool *tool, size_t n)
{
    if (n % 2)
        return;
    tool->approval.policy = "as it is now";
    tool->approval.approvers = tool->approval.approvers % 3 + 1;
}

/* Each second writing tool can be undone, by itself or another one; from no dice, so that all else stays as it was. */
static void draw_playbooks(struct sim_tools *tools)
{
    static const char form[] =
        "{\"order\":\"undo {order}\",\"amount_cents\":\"{amount_cents}\",\"currency\":\"{currency}\"}";
    static const char other[] =
        "{\"order\":\"off {order}\",\"amount_cents\":\"{amount_cents}\",\"currency\":\"{currency}\"}";
    struct json *forms[2];
    if (json_parse(&tools->arena, STR(form), NULL, &forms[0], NULL) ||
        json_parse(&tools->arena, STR(other), NULL, &forms[1], NULL))
        assert(!"the forms are JSON");
    const struct tool *by = NULL;
    for (size_t i = tools->tool_count; i-- > 0;) {
        struct tool *tool = &tools->tools[i];
        if (!tool_is_write(tool))
            continue;
        by = by ? by : tool;
        if (i % 2)
            continue;
        struct playbook *playbooks = arena_zero(&tools->arena, 2 * sizeof *playbooks);
        playbooks[0] = (struct playbook){.name = "undo", .tool = by->name, .form = forms[0], .escalate = "by hand"};
        playbooks[1] = (struct playbook){.name = "other", .tool = tool->name, .form = forms[1]};
        tool->playbooks = tools->changed[i].playbooks = playbooks;
        tool->playbook_count = tools->changed[i].playbook_count = 2;
    }
}

/* From a stream of its own, too: in every sixteenth run providers tell by events, and some tools wait for them. */
static bool listens(struct sim *sim)
{
    struct dice dice = dice_of(sim, STREAM(STREAM_TOOL, 0x6000));
    return roll(&dice, 16) == 0 && (sim->options->faults & SIM_FAULT_BIT(SIM_WEBHOOKS));
}

static void draw_waiting(struct sim *sim, struct tool *tool, size_t n)
{
    struct dice roll_of = dice_of(sim, STREAM(STREAM_TOOL, 0x6001 + n)), *dice = &roll_of;
    struct reconcile_policy *policy = &tool->reconcile;
    bool waits = roll(dice, 2) == 0, first = roll(dice, 2) == 0;
    int64_t wait_ms = PICK(dice, SECOND, 10 * SECOND, MINUTE);
    if (!waits || !listens(sim) || policy->strategy_count == 0)
        return;
    unsigned at = first ? 0 : policy->strategy_count - 1; /* manual is the last */
    for (unsigned i = policy->strategy_count++; i > at; i--)
        policy->strategies[i] = policy->strategies[i - 1];
    policy->strategies[at] = STRATEGY_WEBHOOK;
    policy->webhook_ms = wait_ms;
}

static void draw_tool(struct sim *sim, struct sim_tools *tools, size_t n)
{
    static const uint64_t weights[KIND_COUNT] = {8, 10, 26, 10, 10, 20, 16};
    struct dice roll_of = dice_of(sim, STREAM(STREAM_TOOL, n + 1)), *dice = &roll_of;
    struct tool *tool = &tools->tools[n];
    uint64_t at = roll(dice, 100);
    size_t kind = 0;
    for (; at >= weights[kind]; kind++)
        at -= weights[kind];
    const struct provider *provider = draw_provider_for(tools, (enum kind)kind, dice);
    if (!provider) {
        kind = KIND_WEAK;
        provider = &tools->providers[0];
    }
    *tool = (struct tool){
        .name = arena_printf(&tools->arena, "t%zu", n + 1),
        .version = "1",
        .provider = provider,
        .retain_ms =
            sim->options->faults & SIM_FAULT_BIT(SIM_RETENTION) ? PICK(dice, MINUTE, 5 * MINUTE, HOUR) : 30 * DAY,
        .wait_ms = PICK(dice, 0, 2 * SECOND, 20 * SECOND),
        .result_bytes_max = (size_t)PICK(dice, 16, 65536, 65536),
    };
    set_class(tool, (enum kind)kind);
    draw_identity(tools, tool, dice);
    draw_retry(tool, dice);
    draw_reconcile(tool, dice);
    draw_approval(sim, tool, n);
    draw_time_out(sim, tool, n);
    draw_waiting(sim, tool, n);
    if (tool->class == CLASS_READ) {
        tool->reconcile.strategy_count = 0;
        tool->has_lookup = false;
        tool->audit = roll(dice, 4) == 0;
        tool->cache_ms = PICK(dice, 0, 5 * SECOND);
    }
    struct dice claims_dice = dice_of(sim, STREAM(STREAM_TOOL, 0x2001 + n));
    if (tool_is_write(tool))
        tool->claims = claims_kit_draw(tools->claims, &tools->arena, &claims_dice);
    tools->changed[n] = *tool;
    draw_retry(&tools->changed[n], dice);
    tools->changed[n].in_doubt = tool->in_doubt;
    change_approval(&tools->changed[n], n);
    tools->changed[n].wait_ms = PICK(dice, 0, SECOND, 10 * SECOND);
    tools->changed[n].reconcile.interval_ms = PICK(dice, 200, 3 * SECOND);
}

/* ---- guard mode ---- */

/* As src/daemon/config_guard.c makes it. */
static const struct provider application = {
    .name = "(application)",
    .kind = PROVIDER_APPLICATION,
    .connections_max = 1000000,
    .queue_max = 1000000,
    .timeout_ms = MINUTE,
    .connect_timeout_ms = MINUTE,
};

static void draw_guarded(struct sim *sim, struct sim_tools *tools)
{
    static const enum kind kinds[] = {KIND_INTERNAL, KIND_WEAK, KIND_IRREVERSIBLE};
    bool drops = (sim->options->faults & SIM_FAULT_BIT(SIM_RETENTION)) != 0;
    for (size_t i = 0; i < SIM_GUARDED_MAX; i++) {
        struct dice roll_of = dice_of(sim, STREAM(STREAM_TOOL, 0x4000 + i)), *dice = &roll_of;
        struct dice claims_dice = dice_of(sim, STREAM(STREAM_TOOL, 0x4100 + i));
        size_t at = tools->tool_count;
        struct tool *tool = &tools->tools[at];
        *tool = (struct tool){
            .name = arena_printf(&tools->arena, "g%zu", i + 1),
            .version = "1",
            .provider = &application,
            .guard_lease_ms = PICK(dice, 6 * SECOND, 20 * SECOND, MINUTE),
            .retain_ms = drops ? PICK(dice, 5 * MINUTE, HOUR) : 30 * DAY,
            .wait_ms = PICK(dice, 0, 2 * SECOND, 20 * SECOND),
            .result_bytes_max = 65536,
            .reconcile = {.strategies = {STRATEGY_MANUAL},
                          .strategy_count = 1,
                          .settle_ms = SIM_CLOCK_SPREAD_MS + SECOND,
                          .absent_times = 1,
                          .interval_ms = SECOND,
                          .interval_max_ms = SECOND,
                          .give_up_ms = 10 * SECOND},
        };
        set_class(tool, kinds[roll(dice, 3)]);
        draw_identity(tools, tool, dice);
        draw_retry(tool, dice);
        draw_approval(sim, tool, 0x2100 + i);
        tool->claims = claims_kit_draw(tools->claims, &tools->arena, &claims_dice);
        tools->changed[at] = *tool;
        draw_retry(&tools->changed[at], dice);
        change_approval(&tools->changed[at], i);
        tools->changed[at].guard_lease_ms = PICK(dice, 6 * SECOND, 30 * SECOND);
        tools->tool_count += roll(dice, 3) != 0;
    }
}

/* ---- what tools are made of ---- */

static void make_parts(struct sim_tools *tools)
{
    static const char schema[] = "{\"type\":\"object\",\"required\":[\"order\",\"amount_cents\",\"currency\"],"
                                 "\"properties\":{\"order\":{\"type\":\"string\",\"minLength\":1},"
                                 "\"amount_cents\":{\"type\":\"integer\"},\"currency\":{\"type\":\"string\"},"
                                 "\"note\":{\"type\":\"string\",\"default\":\"\"}}}";
    static const char rules[] = "{\"order\":\"trim\",\"currency\":\"upper\"}";
    struct err err = {0};
    struct json *value;
    bool good = !template_new("pay:{order}:{amount_cents}", &tools->key, &err) &&
                !json_parse(&tools->arena, STR(schema), NULL, &value, &err) &&
                !schema_new(value, NULL, 0, &tools->schema, &err) &&
                !json_parse(&tools->arena, STR(rules), NULL, &value, &err) && !normal_new(value, &tools->normal, &err);
    assert(good);
    (void)good;
}

static void draw(struct sim *sim, struct sim_tools *tools)
{
    struct dice dice = dice_of(sim, STREAM(STREAM_TOOL, 0));
    make_parts(tools);
    tools->claims = claims_kit_new(sim);
    tools->provider_count = 1 + (size_t)roll(&dice, PROVIDERS_MAX);
    tools->tool_count = 1 + (size_t)roll(&dice, TOOLS_MAX);
    for (size_t i = 0; i < tools->provider_count; i++)
        draw_provider(sim, tools, i);
    for (size_t i = 0; i < tools->tool_count; i++)
        draw_tool(sim, tools, i);
    if (sim->options->faults & (SIM_FAULT_BIT(SIM_COMPENSATIONS) | SIM_FAULT_BIT(SIM_STEPS)))
        draw_playbooks(tools);
    if (sim->options->faults & SIM_FAULT_BIT(SIM_STEPS)) {
        struct steps_kit kit = {sim, &tools->arena, tools->tools, tools->tool_count, tools->key};
        size_t count = tools_steps_draw(&kit, &tools->tools[tools->tool_count], &tools->changed[tools->tool_count]);
        tools->tool_count += count;
    }
    if (sim->options->faults & SIM_FAULT_BIT(SIM_EXECUTORS))
        draw_guarded(sim, tools);
}

/* ---- registries ---- */

#define SOURCES_PER_PROVIDER 3

/* Each provider tells by its name; two more sources speak of other operations than the ones that there are. */
static void draw_sources(struct sim *sim, struct sim_tools *tools)
{
    static const char *const others[] = {"zz*"};
    int64_t retain_ms = sim->options->faults & SIM_FAULT_BIT(SIM_RETENTION) ? HOUR : 30 * DAY;
    for (size_t i = 0; i < tools->provider_count && listens(sim); i++) {
        const char *name = tools->providers[i].name;
        struct inbox_source *sources = &tools->sources[tools->source_count];
        sources[0] = (struct inbox_source){.name = name, .provider = name, .retain_ms = retain_ms};
        sources[1] = sources[2] = sources[0];
        sources[1].name = arena_printf(&tools->arena, "%s-tenant", name);
        sources[1].tenant = "somebody";
        sources[2].name = arena_printf(&tools->arena, "%s-tools", name);
        sources[2].tools = others;
        sources[2].tool_count = 1;
        tools->source_count += SOURCES_PER_PROVIDER;
    }
}

static void add_variant(struct sim_tools *tools, const struct tool *const *list, size_t count)
{
    struct err err = {0};
    const char *version = arena_printf(&tools->arena, "sim%zu", tools->variant_count);
    enum err_code code =
        registry_new(list, count, NULL, 0, version, NULL, NULL, &tools->variants[tools->variant_count++], &err);
    assert(code == ERR_NONE);
    (void)code;
    if (tools->source_count > 0)
        registry_listen(tools->variants[tools->variant_count - 1], tools->sources, tools->source_count);
}

/* Each without one of the tools; the last one with other policies, where they are ours. */
static void add_variants(struct sim *sim, struct sim_tools *tools)
{
    size_t count = registry_tool_count(sim->registry);
    const struct tool **list = mem_alloc((count + 1) * sizeof(struct tool *));
    for (size_t missing = 0; missing < count && tools->variant_count + 1 < VARIANTS_MAX; missing++) {
        size_t n = 0;
        for (size_t i = 0; i < count; i++)
            if (i != missing)
                list[n++] = registry_tool_at(sim->registry, i);
        add_variant(tools, list, n);
    }
    for (size_t i = 0; i < tools->tool_count; i++)
        list[i] = &tools->changed[i];
    if (tools->tool_count > 0)
        add_variant(tools, list, tools->tool_count);
    free(list);
}

static int64_t settles_within(const struct sim *sim, const struct tool *tool)
{
    const struct reconcile_policy *policy = &tool->reconcile;
    int64_t watch = 0, rounds = policy->absent_times + 2;
    for (unsigned i = 0; i < policy->watch_count; i++)
        watch = policy->watch_ms[i] > watch ? policy->watch_ms[i] : watch;
    int64_t retain = sim->options->faults & SIM_FAULT_BIT(SIM_RETENTION) ? tool->retain_ms : 0;
    return 3 * tool->retry.total_ms + 2 * policy->give_up_ms + policy->settle_ms + rounds * policy->interval_max_ms +
           watch + retain + 20 * tool->guard_lease_ms + 2 * tool->approval.expires_ms + 10 * tool_timeout_ms(tool) +
           5 * tool->provider->breaker_open_ms;
}

struct sim_tools *tools_new(struct sim *sim)
{
    struct sim_tools *tools = mem_zero(sizeof *tools);
    arena_init(&tools->arena);
    if (sim->options->registry) {
        tools->variants[tools->variant_count++] = registry_ref(sim->options->registry);
    } else {
        const struct tool *list[TOOLS_MOST];
        draw(sim, tools);
        draw_sources(sim, tools);
        for (size_t i = 0; i < tools->tool_count; i++)
            list[i] = &tools->tools[i];
        add_variant(tools, list, tools->tool_count);
    }
    sim->registry = tools->variants[0];
    if (sim->options->faults & SIM_FAULT_BIT(SIM_RELOAD))
        add_variants(sim, tools);
    for (size_t i = 0; i < registry_tool_count(sim->registry); i++) {
        const struct tool *tool = registry_tool_at(sim->registry, i);
        int64_t ms = settles_within(sim, tool) + tool->reconcile.webhook_ms;
        for (size_t k = 0; tool->steps && k < tool->steps->count; k++) /* each, and what undoes it */
            ms += 2 * settles_within(sim, registry_find(sim->registry, str_of(tool->steps->items[k].tool)));
        if (tool->steps && tool->steps->count > sim->steps_max)
            sim->steps_max = tool->steps->count;
        tools->horizon_ms = ms > tools->horizon_ms ? ms : tools->horizon_ms;
    }
    tools->horizon_ms += 10 * MINUTE; /* leases, queues, downtimes and pauses that began before */
    return tools;
}

void tools_free(struct sim_tools *tools)
{
    if (!tools)
        return;
    for (size_t i = 0; i < tools->variant_count; i++)
        registry_unref(tools->variants[i]);
    template_free(tools->key);
    schema_free(tools->schema);
    normal_free(tools->normal);
    claims_kit_free(tools->claims);
    arena_release(&tools->arena);
    free(tools);
}

/* ---- arguments ---- */

static struct json text_value(struct arena *arena, const char *before, uint64_t n, const char *behind)
{
    char text[64]; /* much of a run's time would be spent in printf */
    size_t at = 32, start;
    memcpy(text + at, behind, strlen(behind) + 1);
    size_t end = at + strlen(behind);
    do
        text[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    start = at - strlen(before);
    memcpy(text + start, before, at - start);
    return json_string(arena_str(arena, (struct str){text + start, end - start}));
}

/* The same effect in the ways an agent may write it: number forms, order of members, and what normalisers mend. */
static const struct json *own_arguments(const struct tool *tool, uint64_t n, unsigned variant, unsigned rewrite,
                                        struct arena *arena)
{
    static const char *const currencies[] = {"EUR", "USD", "GBP", "CHF"}, *const lower[] = {"eur", "usd", "gbp", "chf"};
    static const char *const ends[] = {"", ".0", "00e-2"};
    bool mends = tool->normal && variant >= 3;
    struct json *object = json_object(arena), amount = text_value(arena, "", 100 + 7 * n, ends[variant % 3]);
    struct json order = text_value(arena, mends ? " o-" : "o-", n, mends ? " " : "");
    struct json currency = json_string(str_of(mends ? lower[rewrite % 4] : currencies[rewrite % 4]));
    amount.type = JSON_NUMBER;
    if (variant % 2)
        json_set(arena, object, STR("currency"), currency);
    json_set(arena, object, STR("order"), order);
    json_set(arena, object, STR("amount_cents"), amount);
    if (variant % 2 == 0)
        json_set(arena, object, STR("currency"), currency);
    if (tool->volatile_count > 0)
        json_set(arena, object, STR("note"), text_value(arena, "writing ", variant, ""));
    else if (rewrite > 0)
        json_set(arena, object, STR("note"), text_value(arena, "rewriting ", rewrite, ""));
    if (tool->claims || tool->steps) { /* its steps may claim something */
        json_set(arena, object, STR("from"), text_value(arena, "a", n % 5, ""));
        json_set(arena, object, STR("to"), text_value(arena, "a", (3 * n + 1) % 7, ""));
    }
    return object;
}

const struct json *tools_arguments(struct sim *sim, const struct tool *tool, uint64_t n, unsigned variant,
                                   unsigned rewrite, uint64_t random, struct arena *arena)
{
    const struct sim_options *options = sim->options;
    if (!options->registry)
        return own_arguments(tool, n, variant, rewrite, arena);
    return rewrite > 0 ? NULL : options->arguments(options->arguments_user, tool, n, variant, random, arena);
}

/* ---- what others ask ---- */

size_t tools_variant_count(const struct sim *sim)
{
    return sim->tools->variant_count;
}

struct registry *tools_variant(const struct sim *sim, size_t index)
{
    return sim->tools->variants[index];
}

int64_t tools_horizon_ms(const struct sim *sim)
{
    return sim->tools->horizon_ms;
}
