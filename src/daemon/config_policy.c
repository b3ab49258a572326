/* Contradictory and dangerous policies of one tool (design 13). */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

struct policy {
    const struct loader *loader;
    const struct json *section;
    const char *pointer;
    struct tool *tool;
};

#define ERROR(policy, name, ...)   problems_add((policy)->loader->problems, at(policy, name), __VA_ARGS__)
#define WARNING(policy, name, ...) problems_warn((policy)->loader->problems, at(policy, name), __VA_ARGS__)

/* The member's pointer, or the tool's when the member was not stated: that is where a reader has to look. */
static const char *at(const struct policy *policy, const char *name)
{
    if (!name || !json_get(policy->section, name))
        return policy->pointer;
    return options_pointer(&policy->loader->loaded->arena, policy->pointer, str_of(name));
}

static bool states(const struct policy *policy, const char *name)
{
    return json_get(policy->section, name) != NULL;
}

static const char *class_name(const struct policy *policy)
{
    return tool_class_name(policy->tool->class);
}

/* Whether any text below value contains what. */
static bool mentions(const struct json *value, const char *what)
{
    if (!value)
        return false;
    if (value->type == JSON_STRING)
        return memmem(value->text.p, value->text.n, what, strlen(what)) != NULL;
    for (uint32_t i = 0; i < value->count; i++) {
        if (value->type == JSON_ARRAY && mentions(&value->items[i], what))
            return true;
        if (value->type == JSON_OBJECT && mentions(&value->members[i].value, what))
            return true;
    }
    return false;
}

static void check_read(const struct policy *policy)
{
    const struct json *request = json_get(policy->section, "request");
    struct str method = request && request->type == JSON_OBJECT ? json_get_text(request, "method") : STR_NONE;
    bool reads = !method.p || str_is(method, "GET") || str_is(method, "HEAD");
    if (!reads && !json_get_bool(policy->section, "method_is_read", false))
        problems_warn(
            policy->loader->problems,
            options_pointer(&policy->loader->loaded->arena, at(policy, "request"), STR("method")),
            "class read with %.*s: if the request changes something, nothing keeps it from happening twice; choose "
            "another class, or state method_is_read: true",
            STR_ARG(method));
    static const char *const pointless[] = {"key",    "identity",      "reconcile",
                                            "lookup", "repeat_window", "while_in_doubt"};
    for (size_t i = 0; i < sizeof pointless / sizeof *pointless; i++)
        if (states(policy, pointless[i]))
            WARNING(policy, pointless[i], "has no effect for class read");
    static const char *const of_ledger[] = {"audit", "cache", "normalize", "volatile"};
    for (size_t i = 0; policy->tool->forwarded && i < sizeof of_ledger / sizeof *of_ledger; i++)
        if (states(policy, of_ledger[i]))
            WARNING(policy, of_ledger[i], "has no effect for tools that are forwarded");
}

static void check_write(const struct policy *policy)
{
    static const char *const pointless[] = {"method_is_read", "audit", "cache"};
    for (size_t i = 0; i < sizeof pointless / sizeof *pointless; i++)
        if (states(policy, pointless[i]))
            WARNING(policy, pointless[i], "has an effect for class read only");
    if (policy->tool->forwarded)
        ERROR(policy, "forwarded", "is for class read: a call that changes something must go through the ledger");
}

static void check_class(const struct policy *policy)
{
    const struct tool *tool = policy->tool;
    bool honoured = tool->provider->kind != PROVIDER_HTTP;
    if (tool->class != CLASS_EXTERNAL_IDEMPOTENT && states(policy, "idempotent_by"))
        WARNING(policy, "idempotent_by", "has an effect for class external_idempotent only");
    if (tool->class == CLASS_EXTERNAL_IDEMPOTENT && tool->idempotent_by == IDEMPOTENT_BY_KEY &&
        !tool->provider->key_honoured)
        ERROR(policy, states(policy, "idempotent_by") ? "idempotent_by" : "class",
              "class external_idempotent by key needs %s in provider \"%s\"; without %s choose external_weak, or "
              "idempotent_by: precondition or nature",
              honoured ? "key: {honoured: true, …}" : "a key section", tool->provider->name, honoured ? "that" : "one");
    if (tool->class != CLASS_EXTERNAL_IRREVERSIBLE)
        return;
    if (!states(policy, "key") && tool->identity != IDENTITY_CALLER)
        ERROR(policy, "class", "class external_irreversible needs a business key (key) or identity: caller");
    if (!states(policy, "approval"))
        ERROR(policy, "class",
              "class external_irreversible must state its approval policy; approval: none is a statement");
}

static bool has_strategy(const struct tool *tool, enum strategy strategy)
{
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++)
        if (tool->reconcile.strategies[i] == strategy)
            return true;
    return false;
}

/* A default is an offer: what the tool cannot do is left out of it. */
static void trim_default_strategies(struct tool *tool)
{
    struct reconcile_policy *reconcile = &tool->reconcile;
    unsigned kept = 0;
    for (unsigned i = 0; i < reconcile->strategy_count; i++) {
        enum strategy strategy = reconcile->strategies[i];
        bool possible = strategy != STRATEGY_LOOKUP || tool->has_lookup;
        if (strategy == STRATEGY_RESEND) /* by nature: only the operator knows of later writes to the same object */
            possible = tool_may_resend(tool) && tool->idempotent_by != IDEMPOTENT_BY_NATURE;
        if (possible)
            reconcile->strategies[kept++] = strategy;
    }
    reconcile->strategy_count = kept;
}

static void check_stated_strategies(const struct policy *policy)
{
    const struct tool *tool = policy->tool;
    if (has_strategy(tool, STRATEGY_RESEND) && !tool_may_resend(tool)) {
        if (tool->class == CLASS_EXTERNAL_WEAK || tool->class == CLASS_EXTERNAL_IRREVERSIBLE)
            ERROR(policy, "reconcile", "resend is never safe for class %s", class_name(policy));
        else
            ERROR(policy, "reconcile", "resend needs %s in provider \"%s\"",
                  tool->provider->kind != PROVIDER_HTTP ? "key: {honoured: true, …}" : "a key section",
                  tool->provider->name);
    } else if (has_strategy(tool, STRATEGY_RESEND) && tool->class == CLASS_EXTERNAL_IDEMPOTENT &&
               tool->idempotent_by == IDEMPOTENT_BY_NATURE)
        WARNING(policy, "reconcile",
                "resend by nature repeats the write as it was: a later write to the same object would be undone");
    if (has_strategy(tool, STRATEGY_LOOKUP) && !tool->has_lookup)
        ERROR(policy, "reconcile", "lookup needs a lookup section in this tool");
    if (!has_strategy(tool, STRATEGY_LOOKUP) && tool->has_lookup)
        WARNING(policy, "lookup", "is not used: reconcile does not list lookup");
    unsigned count = tool->reconcile.strategy_count;
    for (unsigned i = 0; i + 1 < count; i++)
        if (tool->reconcile.strategies[i] == STRATEGY_MANUAL)
            WARNING(policy, "reconcile", "strategies after manual are never tried");
}

static bool waits_for_events(const struct tool *tool)
{
    for (unsigned i = 0; i < tool->reconcile.strategy_count; i++)
        if (tool->reconcile.strategies[i] == STRATEGY_WEBHOOK)
            return true;
    return false;
}

static void check_reconcile(const struct policy *policy)
{
    struct tool *tool = policy->tool;
    if (states(policy, "reconcile"))
        check_stated_strategies(policy);
    else
        trim_default_strategies(tool);
    bool asks = tool->has_lookup || tool->guard_lease_ms > 0; /* guard mode: the application says how it ended */
    if (!asks && !tool_may_resend(tool) && !waits_for_events(tool))
        WARNING(policy, "class", "class %s without a lookup: every unknown outcome waits for an operator",
                class_name(policy));
}

/* The look-up can only find a mark that the request left. */
static void check_marks(const struct policy *policy)
{
    const struct json *lookup = json_get(policy->section, "lookup"), *request = json_get(policy->section, "request");
    if (!lookup || !request)
        return;
    if (mentions(lookup, "$operation") && !mentions(request, "$operation"))
        WARNING(policy, "lookup", "looks for {$operation}, but the request does not carry it");
    if (mentions(lookup, "$key") && !mentions(request, "$key") && !policy->tool->provider->key_honoured)
        WARNING(policy, "lookup", "looks for {$key}, but the request does not carry it");
}

static void check_times(const struct policy *policy)
{
    const struct tool *tool = policy->tool;
    const struct reconcile_policy *reconcile = &tool->reconcile;
    if (tool->has_lookup && reconcile->give_up_ms < reconcile->settle_ms * reconcile->absent_times)
        WARNING(policy, "give_up", "is shorter than settle times absent_times: absence can hardly be proven before");
    if (reconcile->interval_ms > reconcile->interval_max_ms)
        ERROR(policy, "lookup_interval", "is longer than lookup_interval_max");
    if (tool->retry.backoff_ms > tool->retry.backoff_max_ms)
        ERROR(policy, "retry", "backoff is longer than backoff_max");
    if (tool->provider->key_honoured && tool->retain_ms < tool->provider->key_retention_ms)
        WARNING(policy, "retain",
                "is shorter than the key retention of provider \"%s\": results are dropped while it still replays them",
                tool->provider->name);
    if (tool->repeat_window_ms > tool->retain_ms)
        WARNING(policy, "repeat_window", "is longer than retain: arguments and results are kept for the whole window");
}

/* What its steps' own tools say holds for each step: approvals, look-ups, retries. */
static void check_steps(const struct policy *policy)
{
    const struct tool *tool = policy->tool;
    if (tool->class == CLASS_READ)
        ERROR(policy, "steps",
              "change nothing (class read): there is nothing to keep whole, call the tools themselves");
    if (tool->class == CLASS_EXTERNAL_IRREVERSIBLE && !states(policy, "key") && tool->identity != IDENTITY_CALLER)
        ERROR(policy, "steps",
              "of class external_irreversible are among them: such a tool needs a business key (key) or identity: "
              "caller");
}

void config_tool_check(const struct loader *loader, const struct json *section, const char *pointer,
                       struct loaded_tool *loaded)
{
    struct policy policy = {loader, section, pointer, &loaded->core};
    if (loaded->core.steps) {
        check_steps(&policy);
        return;
    }
    if (loaded->core.class == CLASS_READ) {
        check_read(&policy);
        loaded->core.reconcile.strategy_count = 0;
        return;
    }
    check_write(&policy);
    check_class(&policy);
    check_reconcile(&policy);
    check_marks(&policy);
    check_times(&policy);
}
