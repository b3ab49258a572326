/* Mail servers and their tools in the registry file: what the option table says of them, and how they are compiled. */
#include "daemon/config_options.h"
#include "daemon/config_parts.h"

#include <assert.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct option smtp_options[] = {
    {"url", OPTION_TEXT, .required = true,
     .text = "`smtp://host:port`, or `smtps://host:port` for TLS from the first byte. `${env:NAME}` is expanded."},
    {"tls", OPTION_CHOICE, .fallback = "required", .choices = {"required", "opportunistic", "none"},
     .text = "With `smtp://`: STARTTLS. `required`: no message and no password without it."},
    {"username", OPTION_TEXT, .computed = "no login", .text = "For AUTH."},
    {"password", OPTION_TEXT, .text = "By reference: `${env:NAME}` or `${file:PATH}`."},
    {"from", OPTION_TEXT, .computed = "each tool says it",
     .text = "Sender of tools that state none: `Shop <shop@example.com>`. Bounces go to its address."},
    {"helo", OPTION_TEXT, .computed = "this machine's name", .text = "The name for EHLO."},
    {"message_id_host", OPTION_TEXT, .computed = "the sender's domain",
     .text = "What stands behind the @ in Message-ID. Part of the identity of messages: while some are unresolved it "
             "must not change."},
};
const struct option_section config_smtp_section = {
    .name = "providers.NAME.smtp",
    .text = "A mail server that takes messages; see mail.md.",
    .options = smtp_options,
    .count = COUNT(smtp_options),
};

static const struct option imap_options[] = {
    {"url", OPTION_TEXT, .required = true, .text = "`imap://host:port`, or `imaps://host:port`."},
    {"tls", OPTION_CHOICE, .fallback = "required", .choices = {"required", "opportunistic", "none"},
     .text = "With `imap://`: STARTTLS."},
    {"username", OPTION_TEXT, .required = true, .text = "For the login."},
    {"password", OPTION_TEXT, .required = true, .text = "By reference: `${env:NAME}` or `${file:PATH}`."},
    {"folder", OPTION_TEXT, .fallback = "INBOX", .text = "Where one copy of every message arrives."},
};
const struct option_section config_imap_section = {
    .name = "providers.NAME.imap",
    .text =
        "A mailbox that gets one copy of every message (`bcc`): where look-ups search by Message-ID. Without it every "
        "unknown outcome waits for an operator.",
    .options = imap_options,
    .count = COUNT(imap_options),
};

static const struct option mail_options[] = {
    {"from", OPTION_TEMPLATE, .computed = "the provider's `smtp.from`", .text = "Sender: `Shop <shop@example.com>`."},
    {"to", OPTION_ANY, .computed = "none",
     .text = "Address with places, or a list of them; a place alone may be a list, `\"{name?}\"` may be absent. One of "
             "`to`, `cc` and `bcc` must be given."},
    {"cc", OPTION_ANY, .computed = "none", .text = "The same."},
    {"bcc", OPTION_ANY, .computed = "none", .text = "The same; not in the message."},
    {"reply_to", OPTION_ANY, .computed = "none", .text = "The same, for answers; gets no message."},
    {"subject", OPTION_TEMPLATE, .computed = "none", .text = "One line."},
    {"text", OPTION_TEMPLATE, .computed = "none", .text = "Body as plain text. This, `html`, or both."},
    {"html", OPTION_TEMPLATE, .computed = "none",
     .text = "Body as HTML; values are put in as they are: escape what is not meant as markup."},
    {"headers", OPTION_TEMPLATES, .computed = "none",
     .text = "Further headers: `X-Campaign`, `List-Unsubscribe`, `In-Reply-To`. Those that onced writes are refused."},
};
const struct option_section config_tool_mail_section = {
    .name = "tools.NAME.mail",
    .text = "The message that is the effect.",
    .options = mail_options,
    .count = COUNT(mail_options),
};

/* In place of a provider that is broken, so that its tools can be looked at too. */
static const struct mail_provider *assumed_mail(const struct loader *loader)
{
    struct loaded *loaded = loader->loaded;
    if (!loaded->assumed_mail) {
        struct arena *arena = &loaded->arena;
        struct problems none;
        struct provider core = {0};
        struct json *section = json_object(arena), *smtp = json_object(arena);
        json_set(arena, smtp, STR("url"), json_string(STR("smtp://localhost")));
        json_set(arena, smtp, STR("from"), json_string(STR("nobody@localhost")));
        json_set(arena, section, STR("smtp"), *smtp);
        problems_init(&none, arena);
        loaded->assumed_mail = mail_provider_new(section, "", &core, &none);
        assert(loaded->assumed_mail);
    }
    return loaded->assumed_mail;
}

void config_mail_compile(const struct loader *loader, const struct json *section, const char *pointer,
                         const struct loaded_provider *provider, struct loaded_tool *out)
{
    const struct mail_provider *mail = provider && provider->mail ? provider->mail : assumed_mail(loader);
    out->mail = mail_tool_new(section, pointer, mail, &out->core, loader->problems);
    out->core.adapter_tool = out->mail;
    out->core.has_lookup = out->mail && mail_tool_has_lookup(out->mail);
}
