/* Mail servers and the tools that send through them, as the registry file states them (docs/mail.md). */
#include "adapter/mail_parts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <strings.h>

#define HOUR_MS (INT64_C(60) * 60 * 1000)

/* ---- life ---- */

void mail_provider_ref(struct mail_provider *provider)
{
    provider->refs++;
}

static void server_release(struct mail_server *server)
{
    free(server->url);
    free(server->username);
    free(server->password);
}

void mail_provider_unref(struct mail_provider *provider)
{
    if (!provider || --provider->refs > 0)
        return;
    server_release(&provider->smtp);
    server_release(&provider->imap);
    free(provider->url_shown);
    free(provider->from);
    free(provider->message_id_host);
    free(provider->folder);
    free(provider->ca);
    free(provider);
}

void mail_provider_free(struct mail_provider *provider)
{
    mail_provider_unref(provider);
}

void mail_tool_ref(struct mail_tool *tool)
{
    tool->refs++;
}

void mail_tool_unref(struct mail_tool *tool)
{
    if (!tool || --tool->refs > 0)
        return;
    struct http_node *nodes[] = {&tool->from,     &tool->to,      &tool->cc,   &tool->bcc,
                                 &tool->reply_to, &tool->subject, &tool->text, &tool->html};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        http_node_release(nodes[i]);
    http_headers_release(&tool->headers);
    for (size_t i = 0; i < tool->redact_count; i++)
        free(tool->redact[i]);
    free(tool->redact);
    mail_provider_unref(tool->provider);
    free(tool);
}

void mail_tool_free(struct mail_tool *tool)
{
    mail_tool_unref(tool);
}

bool mail_tool_has_lookup(const struct mail_tool *tool)
{
    return tool->provider->imap.url != NULL;
}

/* ---- servers ---- */

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
}

/* What is wrong with "smtp://host:port", or NULL. */
static const char *url_fault(const char *url, const char *scheme, bool *implicit_tls, bool *elsewhere)
{
    static const CURLUPart unwanted[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT, CURLUPART_QUERY};
    CURLU *parts = curl_url();
    char *given = NULL, *host = NULL, *path = NULL;
    const char *fault = NULL;
    size_t n = strlen(scheme);
    if (curl_url_set(parts, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_SCHEME, &given, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_PATH, &path, 0) != CURLUE_OK)
        fault = "is no URL";
    else if (strncasecmp(given, scheme, n) != 0 || (given[n] && strcasecmp(given + n, "s") != 0))
        fault = "has another scheme";
    else if (*path && strcmp(path, "/") != 0)
        fault = "has a path";
    for (size_t i = 0; !fault && i < sizeof unwanted / sizeof *unwanted; i++) {
        char *part = NULL;
        if (curl_url_get(parts, unwanted[i], &part, 0) == CURLUE_OK)
            fault = "has a user, query or fragment; give credentials as username and password";
        curl_free(part);
    }
    *implicit_tls = !fault && given[n];
    *elsewhere = !fault && !is_loopback(host);
    curl_free(given);
    curl_free(host);
    curl_free(path);
    curl_url_cleanup(parts);
    return fault;
}

static char *expand(struct section *section, const char *name)
{
    const char *text = section_text(section, name, NULL);
    char *out = NULL;
    bool secret;
    struct err err = {0};
    if (text && http_secret_expand(text, &out, &secret, &err) != ERR_NONE)
        section_problem(section, name, "%s", err.text);
    return out;
}

static bool is_host(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((*p < '0' || *p > '9') && (*p < 'A' || *p > 'Z') && (*p < 'a' || *p > 'z') && *p != '-' && *p != '.')
            return false;
    return *text != '\0' && *text != '.' && *text != '-' && strlen(text) <= 255;
}

static char *read_host(struct section *section, const char *name)
{
    const char *text = section_text(section, name, NULL);
    if (text && !is_host(text))
        section_problem(section, name, "is no host name, expected for example mail.example.com");
    return mem_copy_text(text);
}

static void check_password(struct section *section, const struct mail_server *server, bool elsewhere)
{
    if (!server->username != !server->password)
        section_problem(section, server->username ? "username" : "password", "needs %s beside it",
                        server->username ? "a password" : "a username");
    if (elsewhere && server->tls != MAIL_TLS_REQUIRED)
        problems_warn(section->problems, section_pointer(section, STR("tls")),
                      "is not required, to another machine: who is on the way can read %s",
                      server->password ? "password and messages" : "messages");
}

static void read_server(struct section *section, const char *scheme, struct mail_server *out)
{
    static const char *const choices[] = {"required", "opportunistic", "none", NULL};
    bool implicit_tls = false, elsewhere = false, stated = section_member(section, "tls") != NULL;
    out->tls = (enum mail_tls)section_choice(section, "tls", choices, MAIL_TLS_REQUIRED);
    out->username = expand(section, "username");
    out->password = expand(section, "password");
    char *url = expand(section, "url");
    if (!url) {
        if (section->value && !section_member(section, "url"))
            section_problem(section, "url", "is missing, expected for example %ss://mail.example.com", scheme);
        return;
    }
    const char *fault = url_fault(url, scheme, &implicit_tls, &elsewhere);
    out->url = url;
    if (fault)
        section_problem(section, "url", "%s, expected %s://host:port or %ss://host:port", fault, scheme, scheme);
    if (implicit_tls && stated && out->tls != MAIL_TLS_REQUIRED)
        section_problem(section, "tls", "contradicts the url: %ss:// is TLS from the first byte", scheme);
    check_password(section, out, elsewhere);
}

/* libcurl takes the name for EHLO as the URL's path. */
static void add_helo(struct mail_provider *provider, const char *helo)
{
    struct buf url;
    size_t n = strlen(provider->smtp.url);
    buf_init(&url, 0);
    buf_add_text(&url, provider->smtp.url);
    provider->url_shown = mem_copy_text(provider->smtp.url);
    if (helo) {
        buf_add_text(&url, n > 0 && provider->smtp.url[n - 1] == '/' ? "" : "/");
        buf_add_text(&url, helo);
    }
    free(provider->smtp.url);
    provider->smtp.url = buf_detach(&url, NULL);
}

static void read_smtp(struct section *parent, struct mail_provider *provider)
{
    struct section section;
    section_open(&section, section_member(parent, "smtp"), section_pointer(parent, STR("smtp")), parent->problems);
    read_server(&section, "smtp", &provider->smtp);
    provider->from = expand(&section, "from");
    provider->message_id_host = read_host(&section, "message_id_host");
    char *helo = read_host(&section, "helo");
    if (provider->smtp.url)
        add_helo(provider, helo);
    free(helo);
    section_close(&section);
}

static void read_imap(struct section *parent, struct mail_provider *provider)
{
    const struct json *value = section_member(parent, "imap");
    struct section section;
    if (!value)
        return;
    section_open(&section, value, section_pointer(parent, STR("imap")), parent->problems);
    read_server(&section, "imap", &provider->imap);
    provider->folder = mem_copy_text(section_text(&section, "folder", "INBOX"));
    for (const char *p = provider->folder; *p; p++)
        if (*p < ' ' || *p > '~') {
            section_problem(&section, "folder", "has a character beyond printable ASCII");
            break;
        }
    if (section.value && !provider->imap.username && !section_member(&section, "username"))
        section_problem(&section, "username", "is missing");
    section_close(&section);
}

struct mail_provider *mail_provider_new(const struct json *value, const char *pointer, struct provider *core,
                                        struct problems *problems)
{
    size_t errors = problems->errors;
    struct mail_provider *provider = mem_zero(sizeof *provider);
    struct section section;
    provider->refs = 1;
    section_open(&section, value, pointer, problems);
    read_smtp(&section, provider);
    read_imap(&section, provider);
    core->kind = PROVIDER_MAIL;
    core->key_honoured = false;
    core->key_format = KEY_FORMAT_OPERATION_ID;
    core->timeout_ms = provider->timeout_ms = section_ms(&section, "timeout", 60000, 1, HOUR_MS);
    core->connect_timeout_ms = provider->connect_timeout_ms =
        section_ms(&section, "connect_timeout", 30000, 1, HOUR_MS);
    core->connections_max = (unsigned)section_int(&section, "connections", 10, 1, 4096);
    core->queue_max = (unsigned)section_int(&section, "queue", 4096, 1, 1000000);
    http_tls_read(&section, &provider->ca, &provider->verify);
    http_limits_read(&section, core);
    section_close(&section);
    if (problems->errors == errors)
        return provider;
    mail_provider_free(provider);
    return NULL;
}

/* ---- tools ---- */

/* Written by onced, or by servers on the way. */
static bool is_reserved(const char *name)
{
    static const char *const names[] = {
        "From",       "To",     "Cc",           "Bcc",      "Reply-To",    "Subject",        "Date",
        "Message-ID", "Sender", "MIME-Version", "Received", "Return-Path", "DKIM-Signature", NULL};
    for (size_t i = 0; names[i]; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return strncasecmp(name, "Content-", 8) == 0 || strncasecmp(name, "Resent-", 7) == 0;
}

static void read_headers(struct section *section, struct mail_tool *tool)
{
    http_headers_read(section, "headers", NULL, &tool->headers);
    const char *pointer = section_pointer(section, STR("headers"));
    struct section inner = {.pointer = pointer, .problems = section->problems};
    for (size_t i = 0; i < tool->headers.count; i++) {
        const struct http_header *header = &tool->headers.items[i];
        if (is_reserved(header->name))
            problems_add(section->problems, section_pointer(&inner, str_of(header->name)),
                         "is written by onced or by mail servers; see the other members of mail");
        else if (strlen(header->name) > 70)
            problems_add(section->problems, section_pointer(&inner, str_of(header->name)), "is too long a name");
    }
}

/* A text, or for addresses also a list of texts. */
static bool read_node(struct section *section, const char *name, bool list, struct http_node *out)
{
    const struct json *value = section_member(section, name);
    *out = (struct http_node){.type = JSON_NULL};
    if (!value)
        return false;
    bool fits = value->type == JSON_STRING || (list && value->type == JSON_ARRAY);
    for (uint32_t i = 0; fits && value->type == JSON_ARRAY && i < value->count; i++)
        fits = value->items[i].type == JSON_STRING;
    if (!fits)
        section_problem(section, name, list ? "expected a text or a list of texts" : "expected a text");
    else
        http_node_read(section, name, value, out);
    return true;
}

static void read_mail(struct section *section, struct mail_tool *tool)
{
    bool from = read_node(section, "from", false, &tool->from), to = read_node(section, "to", true, &tool->to);
    bool cc = read_node(section, "cc", true, &tool->cc), bcc = read_node(section, "bcc", true, &tool->bcc);
    bool text = read_node(section, "text", false, &tool->text), html = read_node(section, "html", false, &tool->html);
    read_node(section, "reply_to", true, &tool->reply_to);
    read_node(section, "subject", false, &tool->subject);
    read_headers(section, tool);
    if (!section->value)
        return;
    if (!to && !cc && !bcc)
        section_problem(section, "to", "is missing, and so are cc and bcc: who gets the message?");
    if (!text && !html)
        section_problem(section, "text", "is missing, and so is html: the message has no body");
    if (!from && !tool->provider->from)
        section_problem(section, "from", "is missing here and in the provider's smtp section");
}

/* Mail is external_weak by nature (design 6): no server knows a message again by its id. */
static void check_class(struct section *section, const struct tool *core)
{
    if (core->class != CLASS_EXTERNAL_WEAK && core->class != CLASS_EXTERNAL_IRREVERSIBLE)
        section_problem(
            section, "class",
            "is %s, but mail servers do not know a message that they get twice, and nothing takes a message "
            "back: expected external_weak or external_irreversible",
            tool_class_name(core->class));
}

struct mail_tool *mail_tool_new(const struct json *value, const char *pointer, const struct mail_provider *provider,
                                struct tool *core, struct problems *problems)
{
    size_t errors = problems->errors;
    struct mail_tool *tool = mem_zero(sizeof *tool);
    struct section section, mail;
    tool->refs = 1;
    /* the caller lends its provider; messages on the wire need it for longer */
    tool->provider = (struct mail_provider *)provider;
    mail_provider_ref(tool->provider);
    tool->redact = mem_zero(sizeof *tool->redact * (core->redact_count + 1));
    for (size_t i = 0; i < core->redact_count; i++)
        tool->redact[tool->redact_count++] = mem_copy_text(core->redact_pointers[i]);
    section_open(&section, value, pointer, problems);
    tool->timeout_ms = section_ms(&section, "timeout", provider->timeout_ms, 1, HOUR_MS);
    core->timeout_ms = tool->timeout_ms;
    check_class(&section, core);
    section_open(&mail, section_member(&section, "mail"), section_pointer(&section, STR("mail")), problems);
    read_mail(&mail, tool);
    section_close(&mail);
    if (section.value && !section_member(&section, "mail"))
        section_problem(&section, "mail", "is missing, expected at least {to, text}");
    if (problems->errors == errors)
        return tool;
    mail_tool_free(tool);
    return NULL;
}
