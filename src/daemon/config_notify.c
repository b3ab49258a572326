/* notify: who is told when something waits for people (design 8). */
#include "adapter/http.h"
#include "daemon/config.h"
#include "daemon/config_parts.h"

#include <stdlib.h>

#define AT(type, member) (offsetof(struct type, member) + 1)
#define COUNT(array)     (sizeof(array) / sizeof *(array))

static const struct option notify_options[] = {
    {"url", OPTION_TEXT, .required = true, .at = AT(config_notify, settings.endpoint.url),
     .text = "Where messages are posted to: `https://…`, a chat relay or an application of yours. Redirects are not "
             "followed."},
    {"secret", OPTION_TEXT, .required = true, .at = AT(config_notify, secret),
     .text =
         "`whsec_…` by reference (`${env:NAME}`, `${file:PATH}`): messages are signed as Standard Webhooks has it."},
    {"on", OPTION_CHOICES, .fallback = "approval, operator, incident, stuck", .max = NOTIFY_KIND_COUNT,
     .choices = {"approval", "operator", "incident", "stuck"}, .at = AT(config_notify, kinds),
     .count_at = AT(config_notify, kind_count),
     .text = "`approval`: a call waits for approval. `operator`: only a person can settle an outcome. `incident`: one "
             "was raised. `stuck`: a rollback goes no further."},
    {"approvers", OPTION_TEXTS, .computed = "none", .at = AT(config_notify, settings.approvers),
     .count_at = AT(config_notify, settings.approver_count),
     .text = "Principals for whom approval links go along (`server.links`), each as far as they may decide. Whoever "
             "reads the message can decide as any of them: send it to them alone."},
    {"payload", OPTION_BOOL, .fallback = "false", .at = AT(config_notify, settings.payload),
     .text = "Arguments, results and errors go along, masked as `redact` says."},
    {"timeout", OPTION_DURATION, .fallback = "10s", .min = 100, .max = 60000,
     .at = AT(config_notify, settings.endpoint.timeout_ms), .text = "Of one request."},
    {"ca", OPTION_TEXT, .computed = "the system's certificates", .at = AT(config_notify, settings.endpoint.ca),
     .text = "PEM file with the certificates to trust."},
};
const struct option_section config_notify_section = {
    .name = "notify",
    .text = "A signed POST when something waits for people; again with backoff until it is taken, and again after a "
            "restart for all that still waits. Changes take effect with a reload.",
    .options = notify_options,
    .count = COUNT(notify_options),
};

static const char *settled(const struct loader *loader, const char *text)
{
    struct arena *arena = &loader->loaded->arena;
    struct json *outer = json_object(arena), *inner = json_object(arena);
    json_set(arena, inner, STR("secret"), json_string(str_of(text)));
    json_set(arena, outer, STR("members"), *inner);
    config_settle_members(loader, outer, "members");
    return arena_copy_str(arena, json_get_text(json_get(outer, "members"), "secret"));
}

static void read_secret(const struct loader *loader, struct config_notify *notify, struct arena *arena)
{
    char *text = NULL;
    bool by_reference = false;
    struct err err = {0};
    if (http_secret_expand(settled(loader, notify->secret), &text, &by_reference, &err) ||
        webhook_secret(text, arena, &notify->settings.endpoint.secret, &err))
        problems_add(loader->problems, "/notify/secret", "%s", err.text);
    else if (!by_reference)
        problems_add(loader->problems, "/notify/secret", "a secret is given by reference: ${env:NAME} or ${file:PATH}");
    free(text);
}

static void check_approvers(const struct loader *loader, const struct config *config)
{
    const struct notify_settings *settings = &config->notify.settings;
    if (settings->approver_count == 0)
        return;
    if (settings->approver_count > NOTIFY_APPROVERS_MAX)
        problems_add(loader->problems, "/notify/approvers", "has %zu names, expected at most %d",
                     settings->approver_count, NOTIFY_APPROVERS_MAX);
    if (!config->server.links.base)
        problems_add(loader->problems, "/notify/approvers",
                     "links need server.links, which says where people open them");
}

void config_notify_finish(const struct loader *loader, struct config *config)
{
    struct config_notify *notify = &config->notify;
    struct webhook_endpoint *endpoint = &notify->settings.endpoint;
    bool plain = false;
    if (!endpoint->url)
        return;
    const char *fault = webhook_url_fault(endpoint->url, &plain);
    if (fault)
        problems_add(loader->problems, "/notify/url", "%s", fault);
    else if (plain && notify->settings.approver_count > 0)
        problems_add(loader->problems, "/notify/url",
                     "plain HTTP to another machine: whoever reads it on the way could decide by its links; expected "
                     "https://…");
    else if (plain)
        problems_warn(loader->problems, "/notify/url", "plain HTTP to another machine: it can be read on the way");
    if (notify->secret)
        read_secret(loader, notify, &config->arena);
    if (endpoint->ca)
        endpoint->ca = config_resolve_path(&config->arena, loader->folder, str_of(endpoint->ca));
    for (unsigned i = 0; i < notify->kind_count; i++)
        notify->settings.kinds |= 1u << notify->kinds[i];
    if (notify->settings.kinds == 0)
        problems_add(loader->problems, "/notify/on", "is empty: nobody would be told of anything");
    check_approvers(loader, config);
}
