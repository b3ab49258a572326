/* inbox.NAME: where providers tell of their own accord (design 11.1). */
#include "adapter/http.h"
#include "adapter/webhook.h"
#include "daemon/config_parts.h"
#include "door/inbox_rules.h"

#include <stdlib.h>

#define AT(type, member) (offsetof(struct type, member) + 1)
#define COUNT(array)     (sizeof(array) / sizeof *(array))
#define MINUTE           INT64_C(60000)
#define DAY              (1440 * MINUTE)

/* As the option table fills it. */
struct config_source {
    enum inbox_scheme scheme;
    const char *const *secrets;
    size_t secret_count;
    int64_t tolerance_ms;
    struct forward_policy forward;
    const char *forward_secret;
    struct inbox_source core;
};

static const struct option signature_options[] = {
    {"scheme", OPTION_CHOICE, .required = true, .choices = {"stripe", "github", "standard_webhooks"},
     .at = AT(config_source, scheme),
     .text = "`stripe`: `Stripe-Signature`. `github`: `X-Hub-Signature-256`, which signs no time. `standard_webhooks`: "
             "`webhook-id`, `webhook-timestamp`, `webhook-signature` (also Svix, OpenAI, …)."},
    {"secrets", OPTION_TEXTS, .required = true, .at = AT(config_source, secrets),
     .count_at = AT(config_source, secret_count),
     .text = "By reference (`${env:NAME}`, `${file:PATH}`); any of them may sign, so that they can be changed one "
             "after the other. `standard_webhooks`: `whsec_…`."},
    {"tolerance", OPTION_DURATION, .fallback = "5m", .min = 1000, .max = DAY, .at = AT(config_source, tolerance_ms),
     .text = "How far the signed time may lie from this clock. Older ones are refused: a replayed event is a recorded "
             "one, or too old."},
};
static const struct option_section signature_section = {
    .name = "inbox.NAME.signature",
    .text = "How the sender proves who it is: over the body as it was sent, compared in constant time.",
    .options = signature_options,
    .count = COUNT(signature_options),
};

static const struct option match_options[] = {
    {"reference", OPTION_POINTER_OR_JQ,
     .text = "Where the event carries our operation id, when the tool's request sent it (`{$operation}`)."},
    {"provider_key", OPTION_POINTER_OR_JQ, .text = "Where it carries the key that the request was sent with."},
    {"external_id", OPTION_POINTER_OR_JQ,
     .text = "Where it carries the provider's id of the effect, as the answer or a look-up told it."},
};
static const struct option_section match_section = {
    .name = "inbox.NAME.match",
    .text = "By what an event names its operation: the first of these that it carries counts, and only that one.",
    .options = match_options,
    .count = COUNT(match_options),
};

static const struct option outcome_options[] = {
    {"when", OPTION_JQ, .computed = "always", .text = "jq condition over the event: `.type == \"charge.succeeded\"`."},
    {"outcome", OPTION_CHOICE, .required = true, .choices = {"ignore", "pending", "failed", "no_effect", "success"},
     .text = "`success`: the effect happened. `no_effect`: the provider's word that it did not. `failed`: something "
             "exists and ended badly; a person must judge. `pending`: accepted, the outcome comes later. `ignore`."},
    {"external_id", OPTION_POINTER_OR_JQ, .computed = "that of `match`", .text = "The provider's id of the effect."},
    {"result", OPTION_POINTER_OR_JQ, .computed = "none", .text = "What callers get as the result."},
};
static const struct option_section outcome_section = {
    .name = "inbox.NAME.outcomes[]",
    .text = "What an event says of the effect: the first whose condition holds. None: `ignore`.",
    .options = outcome_options,
    .count = COUNT(outcome_options),
};

static const struct option forward_options[] = {
    {"url", OPTION_TEXT, .required = true, .at = AT(config_source, forward.url),
     .text = "The application's endpoint. Redirects are not followed."},
    {"secret", OPTION_TEXT, .computed = "unsigned", .at = AT(config_source, forward_secret),
     .text = "`whsec_…` by reference (`${env:NAME}`, `${file:PATH}`): signs as Standard Webhooks has it."},
    {"timeout", OPTION_DURATION, .fallback = "10s", .min = 100, .max = 60000,
     .at = AT(config_source, forward.timeout_ms), .text = "Of one try."},
    {"give_up", OPTION_DURATION, .fallback = "24h", .min = 1000, .max = 3650 * DAY,
     .at = AT(config_source, forward.give_up_ms),
     .text = "No try is begun later than this after the event came; then it is `undelivered` until `onced inbox "
             "forward` has it sent again."},
    {"ca", OPTION_TEXT, .computed = "the system's certificates", .at = AT(config_source, forward.ca),
     .text = "PEM file with the certificates to trust."},
};
static const struct option_section forward_section = {
    .name = "inbox.NAME.forward",
    .text = "Where events go on to once they are recorded: the body as it came, with the same `webhook-id` on every "
            "try, again with backoff until the endpoint answers 2xx, then never again.",
    .options = forward_options,
    .count = COUNT(forward_options),
};

static const struct option source_options[] = {
    {"signature", OPTION_SECTION, .required = true, .section = &signature_section, .at = 1,
     .text = "How the sender proves who it is."},
    {"event_id", OPTION_POINTER_OR_JQ,
     .computed = "stripe: `/id`; standard_webhooks: the header `webhook-id`; github: the body's digest",
     .text = "What tells two events apart. The same one again is counted and answered 200."},
    {"type", OPTION_POINTER_OR_JQ, .computed = "`/type`; github: the header `X-GitHub-Event`", .text = "For people."},
    {"created", OPTION_POINTER_OR_JQ, .computed = "stripe: `/created`; standard_webhooks: `/timestamp`; else arrival",
     .text = "The provider's time of the event: seconds or milliseconds since 1970, or RFC 3339. An older event never "
             "downgrades what a newer one said."},
    {"match", OPTION_SECTION, .required = true, .section = &match_section, .at = 0,
     .text = "By what an event names its operation."},
    {"outcomes", OPTION_SECTIONS, .required = true, .max = INBOX_OUTCOMES_MAX, .section = &outcome_section,
     .text = "What it says of the effect."},
    {"provider", OPTION_TEXT, .required = true, .at = AT(config_source, core.provider),
     .text = "Only operations of this provider's tools."},
    {"tools", OPTION_TEXTS, .computed = "all of the provider's", .at = AT(config_source, core.tools),
     .count_at = AT(config_source, core.tool_count), .text = "Only these, with wildcards."},
    {"forward", OPTION_SECTION, .section = &forward_section, .computed = "nowhere", .at = 1,
     .text = "The application's own endpoint for these events."},
    {"tenant", OPTION_TEXT, .fallback = INBOX_TENANT_DEFAULT, .at = AT(config_source, core.tenant),
     .text = "Only this tenant's operations; its operators see the events."},
    {"retain", OPTION_DURATION, .fallback = "30d", .min = DAY, .max = 3650 * DAY,
     .at = AT(config_source, core.retain_ms),
     .text = "Events are kept so long, matched or not; longer than the provider sends them again."},
};
const struct option_section config_inbox_section = {
    .name = "inbox.NAME",
    .text = "Events of a provider (webhooks) at `POST /v1/inbox/NAME`.",
    .options = source_options,
    .count = COUNT(source_options),
};

/* ---- compiling ---- */

struct source_reader {
    const struct loader *loader;
    const char *pointer;
    struct inbox_rules *rules;
};

static const char *place(const struct source_reader *reader, const char *name)
{
    return arena_printf(reader->loader->problems->arena, "%s/%s", reader->pointer, name);
}

static struct jq_program *compile(const struct source_reader *reader, struct str text, const char *pointer)
{
    struct jq_program *program = NULL;
    struct err err = {0};
    if (jq_program_new(arena_copy_str(&reader->loader->loaded->arena, text), false, &program, &err))
        problems_add(reader->loader->problems, pointer, "%s", err.text);
    return program;
}

static struct inbox_pick pick(const struct source_reader *reader, const struct json *section, const char *name,
                              const char *at)
{
    const struct json *value = section ? json_get(section, name) : NULL;
    struct inbox_pick pick = {0};
    if (!value)
        return pick;
    if (value->type == JSON_STRING)
        pick.pointer = arena_copy_str(&reader->loader->loaded->arena, value->text);
    else if (value->type == JSON_OBJECT && json_get(value, "jq") && json_get(value, "jq")->type == JSON_STRING)
        pick.jq = compile(reader, json_get(value, "jq")->text,
                          arena_printf(reader->loader->problems->arena, "%s/%s/jq", at, name));
    return pick;
}

static void default_pointer(struct inbox_pick *pick, const char *pointer)
{
    if (!pick->pointer && !pick->jq)
        pick->pointer = pointer;
}

static void read_secrets(const struct source_reader *reader, const struct config_source *config)
{
    struct inbox_rules *rules = reader->rules;
    struct arena *arena = &reader->loader->loaded->arena;
    if (config->secrets && (config->secret_count == 0 || config->secret_count > INBOX_SECRETS_MAX))
        problems_add(reader->loader->problems, place(reader, "signature/secrets"), "expected 1 to %d secrets",
                     INBOX_SECRETS_MAX);
    for (size_t i = 0; i < config->secret_count && i < INBOX_SECRETS_MAX; i++) {
        char *text = NULL;
        bool by_reference = false;
        struct err err = {0};
        const char *pointer =
            arena_printf(reader->loader->problems->arena, "%s/signature/secrets/%zu", reader->pointer, i);
        if (http_secret_expand(config->secrets[i], &text, &by_reference, &err) ||
            inbox_secret(config->scheme, text, arena, &rules->secrets[i], &err))
            problems_add(reader->loader->problems, pointer, "%s", err.text);
        else if (!by_reference)
            problems_add(reader->loader->problems, pointer,
                         "a secret is given by reference: ${env:NAME} or ${file:PATH}");
        else
            rules->secret_count++;
        free(text);
    }
}

static void read_outcomes(const struct source_reader *reader, const struct json *list)
{
    struct inbox_rules *rules = reader->rules;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->count && i < INBOX_OUTCOMES_MAX; i++) {
        const struct json *section = &list->items[i];
        const char *at = arena_printf(reader->loader->problems->arena, "%s/outcomes/%u", reader->pointer, i);
        if (section->type != JSON_OBJECT)
            continue;
        struct inbox_rule *rule = &rules->outcomes[rules->outcome_count++];
        const struct json *when = json_get(section, "when"), *outcome = json_get(section, "outcome");
        if (when && when->type == JSON_STRING)
            rule->when = compile(reader, when->text, arena_printf(reader->loader->problems->arena, "%s/when", at));
        if (outcome && outcome->type == JSON_STRING)
            inbound_outcome_from_name(outcome->text, &rule->outcome);
        rule->external_id = pick(reader, section, "external_id", at);
        rule->result = pick(reader, section, "result", at);
    }
}

static void read_picks(const struct source_reader *reader, const struct json *section)
{
    struct inbox_rules *rules = reader->rules;
    const struct json *match = json_get(section, "match");
    const char *at = place(reader, "match");
    rules->event_id = pick(reader, section, "event_id", reader->pointer);
    rules->type = pick(reader, section, "type", reader->pointer);
    rules->created = pick(reader, section, "created", reader->pointer);
    match = match && match->type == JSON_OBJECT ? match : NULL;
    rules->reference = pick(reader, match, "reference", at);
    rules->provider_key = pick(reader, match, "provider_key", at);
    rules->external_id = pick(reader, match, "external_id", at);
    if (match && match->count == 0)
        problems_add(reader->loader->problems, at, "is empty: no event would find its operation");
    switch (rules->scheme) {
    case INBOX_STRIPE:
        default_pointer(&rules->event_id, "/id");
        default_pointer(&rules->type, "/type");
        default_pointer(&rules->created, "/created");
        break;
    case INBOX_STANDARD_WEBHOOKS:
        default_pointer(&rules->type, "/type");
        default_pointer(&rules->created, "/timestamp");
        break;
    case INBOX_GITHUB: break;
    }
}

/* ---- forwarding ---- */

static void read_forward_secret(const struct source_reader *reader, const char *given, struct str *out)
{
    char *text = NULL;
    bool by_reference = false;
    struct err err = {0};
    if (http_secret_expand(given, &text, &by_reference, &err) ||
        webhook_secret(text, &reader->loader->loaded->arena, out, &err))
        problems_add(reader->loader->problems, place(reader, "forward/secret"), "%s", err.text);
    else if (!by_reference)
        problems_add(reader->loader->problems, place(reader, "forward/secret"),
                     "a secret is given by reference: ${env:NAME} or ${file:PATH}");
    free(text);
}

static const struct forward_policy *read_forward(const struct source_reader *reader, const struct json *section,
                                                 const struct config_source *config)
{
    struct arena *arena = &reader->loader->loaded->arena;
    struct forward_policy *policy = arena_zero(arena, sizeof *policy);
    bool plain = false;
    if (!json_get(section, "forward"))
        return NULL;
    *policy = config->forward;
    const char *fault = policy->url ? webhook_url_fault(policy->url, &plain) : NULL;
    if (fault)
        problems_add(reader->loader->problems, place(reader, "forward/url"), "%s", fault);
    if (plain)
        problems_warn(reader->loader->problems, place(reader, "forward/url"),
                      "plain HTTP to another machine: events can be read on the way");
    if (policy->give_up_ms > config->core.retain_ms)
        problems_add(reader->loader->problems, place(reader, "forward/give_up"),
                     "is longer than the events are kept (retain)");
    if (config->forward_secret)
        read_forward_secret(reader, config->forward_secret, &policy->secret);
    if (policy->ca)
        policy->ca = config_resolve_path(arena, reader->loader->folder, str_of(policy->ca));
    return policy;
}

/* ---- dangers and contradictions ---- */

static bool provider_exists(const struct loaded *loaded, const char *name)
{
    for (size_t i = 0; i < loaded->provider_count; i++)
        if (text_equal(loaded->providers[i].core.name, name))
            return true;
    return false;
}

static void check_source(const struct source_reader *reader, const struct inbox_source *source)
{
    const struct loaded *loaded = reader->loader->loaded;
    if (source->provider && !provider_exists(loaded, source->provider))
        problems_add(reader->loader->problems, place(reader, "provider"), "there is no provider \"%s\"",
                     source->provider);
}

static void read_source(const struct loader *loader, const struct json_member *member, const char *pointer)
{
    struct loaded *loaded = loader->loaded;
    struct options_reader options = {.arena = &loaded->arena, .problems = loader->problems};
    struct config_source config = {0};
    options_read(&options, &config_inbox_section, &member->value, pointer, &config);
    if (member->value.type != JSON_OBJECT)
        return;
    struct inbox_rules *rules = arena_zero(&loaded->arena, sizeof *rules);
    struct source_reader reader = {loader, pointer, rules};
    rules->scheme = config.scheme;
    rules->tolerance_ms = config.tolerance_ms;
    read_secrets(&reader, &config);
    read_picks(&reader, &member->value);
    read_outcomes(&reader, json_get(&member->value, "outcomes"));
    config.core.forward = read_forward(&reader, &member->value, &config);
    check_source(&reader, &config.core);
    struct inbox_source *source = &loaded->sources[loaded->source_count++];
    *source = config.core;
    source->name = arena_copy_str(&loaded->arena, member->name);
    source->rules = rules;
}

void config_inbox_read(const struct loader *loader, const struct json *inbox)
{
    struct loaded *loaded = loader->loaded;
    if (!inbox)
        return;
    if (inbox->count > INBOX_SOURCES_MAX) {
        problems_add(loader->problems, "/inbox", "%u sources, at most %d are allowed", inbox->count, INBOX_SOURCES_MAX);
        return;
    }
    loaded->sources = arena_zero(&loaded->arena, (inbox->count + 1) * sizeof *loaded->sources);
    for (uint32_t i = 0; i < inbox->count; i++) {
        const struct json_member *member = &inbox->members[i];
        const char *pointer = options_pointer(&loaded->arena, "/inbox", member->name);
        if (!config_name_valid(member->name))
            problems_add(loader->problems, pointer, "a source's name is 1 to %d of A-Z, a-z, 0-9, _, ., -",
                         CONFIG_NAME_BYTES_MAX);
        read_source(loader, member, pointer);
    }
}

static void pick_free(struct inbox_pick *pick)
{
    jq_program_free(pick->jq);
}

void config_inbox_release(struct loaded *loaded)
{
    for (size_t i = 0; i < loaded->source_count; i++) {
        struct inbox_rules *rules = (struct inbox_rules *)loaded->sources[i].rules; /* ours: made above */
        struct inbox_pick *picks[] = {&rules->event_id,  &rules->type,         &rules->created,
                                      &rules->reference, &rules->provider_key, &rules->external_id};
        for (size_t k = 0; k < COUNT(picks); k++)
            pick_free(picks[k]);
        for (size_t k = 0; k < rules->outcome_count; k++) {
            jq_program_free(rules->outcomes[k].when);
            pick_free(&rules->outcomes[k].external_id);
            pick_free(&rules->outcomes[k].result);
        }
    }
}

static bool told_of(const struct loaded *loaded, const struct tool *tool)
{
    for (size_t i = 0; i < loaded->source_count; i++)
        if (inbox_source_takes(&loaded->sources[i], loaded->sources[i].tenant, tool->name, tool))
            return true;
    return false;
}

/* A tool that waits for events which nobody sends would only lose time. */
void config_inbox_check(const struct loader *loader)
{
    const struct loaded *loaded = loader->loaded;
    for (size_t i = 0; i < loaded->tool_count; i++) {
        const struct tool *tool = &loaded->tools[i].core;
        const struct reconcile_policy *policy = &tool->reconcile;
        bool waits = false;
        for (unsigned k = 0; k < policy->strategy_count; k++)
            waits |= policy->strategies[k] == STRATEGY_WEBHOOK;
        if (!waits || !tool->provider)
            continue;
        const char *pointer = options_pointer(loader->problems->arena, "/tools", str_of(tool->name));
        if (!told_of(loaded, tool))
            problems_add(loader->problems, arena_printf(loader->problems->arena, "%s/reconcile", pointer),
                         "webhook: no source of `inbox` speaks of this tool's provider \"%s\"", tool->provider->name);
        if (policy->webhook_ms >= policy->give_up_ms)
            problems_add(loader->problems, arena_printf(loader->problems->arena, "%s/webhook_wait", pointer),
                         "is not shorter than give_up: nothing would come after it");
    }
}
