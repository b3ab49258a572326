/* A provider's contract, compiled from its section of the registry file. */
#include "adapter/http_parts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <strings.h>

#define HOUR_MS (INT64_C(60) * 60 * 1000)

static const int no_effect_default[] = {400, 401, 402, 403, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422, 0};
static const int not_processed_default[] = {429, 0};

/* ---- reference counts: answers that are still on the wire outlive a reload ---- */

void http_provider_ref(struct http_provider *provider)
{
    provider->refs++;
}

static void destroy(struct http_provider *provider)
{
    http_headers_release(&provider->headers);
    http_statuses_release(&provider->in_use);
    http_statuses_release(&provider->mismatch);
    http_statuses_release(&provider->no_effect);
    http_statuses_release(&provider->not_processed);
    free(provider->base_url);
    free(provider->base_url_shown);
    free(provider->wire.ca);
    free(provider->key_name);
    free(provider->retry_after_header);
    free(provider->request_id_header);
    free(provider->error_message);
    free(provider->error_code);
    free(provider);
}

void http_provider_unref(struct http_provider *provider)
{
    if (provider && --provider->refs == 0)
        destroy(provider);
}

void http_provider_free(struct http_provider *provider)
{
    if (!provider)
        return;
    provider->closed = true;
    http_provider_unref(provider);
}

/* ---- statuses ---- */

struct jq_program *http_jq_read(struct section *section, const char *name)
{
    const char *text = section_text(section, name, NULL);
    struct jq_program *program = NULL;
    struct err err = {0};
    if (text && jq_program_new(text, false, &program, &err) != ERR_NONE)
        section_problem(section, name, "%s", err.text);
    return program;
}

static bool read_status(const struct json *value, const char *pointer, struct problems *problems,
                        struct http_status *out)
{
    int64_t number;
    if (value->type == JSON_NUMBER) {
        if (json_number_int64(value->text, &number) && number >= 100 && number <= 599) {
            out->status = (int)number;
            return true;
        }
        problems_add(problems, pointer, "is %.*s, expected an HTTP status from 100 to 599", STR_ARG(value->text));
        return false;
    }
    if (value->type != JSON_OBJECT) {
        problems_add(problems, pointer, "is %s, expected an HTTP status or {status, code, when}",
                     json_type_name(value->type));
        return false;
    }
    struct section section;
    section_open(&section, value, pointer, problems);
    out->status = (int)section_int(&section, "status", 0, 100, 599);
    const struct json *code = section_member(&section, "code");
    if (code && (code->type == JSON_STRING || code->type == JSON_NUMBER))
        out->code = mem_copy_bytes(code->text.p, code->text.n);
    else if (code)
        section_problem(&section, "code", "is %s, expected a text or a number", json_type_name(code->type));
    out->when = http_jq_read(&section, "when");
    if (!section_member(&section, "status"))
        section_problem(&section, "status", "is missing, expected an HTTP status");
    section_close(&section);
    return out->status != 0;
}

void http_statuses_read(struct section *section, const char *name, const int *fallback, struct http_statuses *out)
{
    const struct json *value = section_member(section, name);
    *out = (struct http_statuses){0};
    if (!value) {
        for (; fallback && fallback[out->count]; out->count++) {
            out->items = mem_grow(out->items, (out->count + 1) * sizeof *out->items);
            out->items[out->count] = (struct http_status){.status = fallback[out->count]};
        }
        return;
    }
    if (value->type != JSON_ARRAY) {
        section_problem(section, name, "is %s, expected a list of HTTP statuses", json_type_name(value->type));
        return;
    }
    out->items = mem_zero(sizeof *out->items * (value->count + 1));
    for (uint32_t i = 0; i < value->count; i++) {
        const char *pointer =
            arena_printf(section->problems->arena, "%s/%u", section_pointer(section, str_of(name)), i);
        read_status(&value->items[i], pointer, section->problems, &out->items[out->count++]);
    }
}

void http_statuses_release(struct http_statuses *statuses)
{
    for (size_t i = 0; i < statuses->count; i++) {
        free(statuses->items[i].code);
        jq_program_free(statuses->items[i].when);
    }
    free(statuses->items);
    *statuses = (struct http_statuses){0};
}

/* ---- headers ---- */

static bool is_token(const char *name)
{
    for (const char *p = name; *p; p++) {
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || strchr("\"(),/:;<=>?@[\\]{}", *p))
            return false;
    }
    return *name != '\0';
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strcasecmp(name, *names) == 0)
            return true;
    }
    return false;
}

/* What frames a message belongs to the HTTP library. */
static const char *const wire_headers[] = {"Host",
                                           "Content-Length",
                                           "Transfer-Encoding",
                                           "Connection",
                                           "Expect",
                                           "Keep-Alive",
                                           "Proxy-Connection",
                                           "Proxy-Authorization",
                                           "Upgrade",
                                           "TE",
                                           "Trailer",
                                           "Accept-Encoding",
                                           NULL};
/* Names that providers use for idempotency keys: one value for all operations would merge them (design 2.1). */
static const char *const key_headers[] = {
    "Idempotency-Key",   "X-Idempotency-Key", "PayPal-Request-Id",        "Idempotency_Key",
    "X-Idempotence-Key", "Idempotence-Key",   "Repeatability-Request-ID", NULL};

static const char *header_fault(const char *name, const struct http_text *text, const char *key_header)
{
    if (!is_token(name))
        return "is no header name";
    if (is_one_of(name, wire_headers))
        return "belongs to the connection and cannot be set";
    if (key_header && strcasecmp(name, key_header) == 0)
        return "is the provider's idempotency key: its value belongs to each operation and is set by onced";
    if (text->value && is_one_of(name, key_headers))
        return "carries idempotency keys, and a fixed value would be the same for all operations; state it as the "
               "provider's key: {header: …} instead";
    for (const char *p = text->value; p && *p; p++) {
        if ((unsigned char)*p < ' ' && *p != '\t')
            return "has a control character in its value";
    }
    if (text->value && strlen(text->value) > HTTP_HEADER_BYTES_MAX)
        return "has a value that is too long";
    return NULL;
}

/* Names and texts. Faults of a header's name or value only when it is to be a header. */
static void read_texts(struct section *section, const char *name, bool header, const char *key_name,
                       struct http_headers *out)
{
    const struct json *value = section_member(section, name);
    *out = (struct http_headers){0};
    if (!value)
        return;
    if (value->type != JSON_OBJECT) {
        section_problem(section, name, "is %s, expected names and texts", json_type_name(value->type));
        return;
    }
    struct section inner;
    section_open(&inner, value, section_pointer(section, str_of(name)), section->problems);
    out->items = mem_zero(sizeof *out->items * (value->count + 1));
    for (uint32_t i = 0; i < value->count; i++) {
        const struct json_member *member = &value->members[i];
        const char *pointer = section_pointer(&inner, member->name), *fault = NULL;
        struct http_header *item = &out->items[out->count++];
        struct err err = {0};
        item->name = mem_copy_bytes(member->name.p, member->name.n);
        if (member->value.type != JSON_STRING) {
            problems_add(section->problems, pointer, "is %s, expected a text", json_type_name(member->value.type));
            continue;
        }
        char *text = mem_copy_bytes(member->value.text.p, member->value.text.n);
        if (http_text_new(text, true, &item->text, &err) != ERR_NONE)
            fault = err.text;
        else if (header)
            fault = header_fault(item->name, &item->text, key_name);
        else if (key_name && strcmp(item->name, key_name) == 0)
            fault = "is the provider's idempotency key and is set by onced";
        if (fault)
            problems_add(section->problems, pointer, "%s", fault);
        free(text);
    }
}

void http_headers_read(struct section *section, const char *name, const char *key_header, struct http_headers *out)
{
    read_texts(section, name, true, key_header, out);
}

void http_query_read(struct section *section, const char *name, const char *key_parameter, struct http_headers *out)
{
    read_texts(section, name, false, key_parameter, out);
}

void http_headers_release(struct http_headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        free(headers->items[i].name);
        http_text_release(&headers->items[i].text);
    }
    free(headers->items);
    *headers = (struct http_headers){0};
}

/* ---- base URL ---- */

size_t http_origin_bytes(const char *url)
{
    const char *host = strstr(url, "://");
    return host ? (size_t)(host - url) + 3 + strcspn(host + 3, "/?") : strlen(url);
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
}

const char *http_url_fault(const char *url, bool may_have_query, bool *plain)
{
    static const CURLUPart unwanted[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT, CURLUPART_QUERY};
    size_t unwanted_count = sizeof unwanted / sizeof *unwanted - (may_have_query ? 1 : 0);
    const char *fault = NULL;
    char *scheme = NULL, *host = NULL;
    CURLU *parts = curl_url();
    if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK)
        fault = "is no URL, expected for example https://api.example.com/v1";
    else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        fault = "is neither http nor https";
    for (size_t i = 0; !fault && i < unwanted_count; i++) {
        char *part = NULL;
        if (curl_url_get(parts, unwanted[i], &part, 0) == CURLUE_OK)
            fault = may_have_query
                        ? "has a user or fragment; give credentials as a header"
                        : "has a user, query or fragment; give credentials as a header, parameters with each request";
        curl_free(part);
    }
    *plain = !fault && strcmp(scheme, "http") == 0 && !is_loopback(host);
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(parts);
    return fault;
}

/* Host and port may come from the environment and are no secrets; a token in the path is. */
static char *shown_url(const char *url, size_t origin, const char *masked)
{
    struct buf buf;
    buf_init(&buf, 0);
    buf_add(&buf, url, origin);
    size_t masked_origin = http_origin_bytes(masked);
    if (masked[masked_origin])
        buf_add_text(&buf, masked + masked_origin);
    else if (url[origin])
        buf_add_text(&buf, "/***");
    return buf_detach(&buf, NULL);
}

static void read_base_url(struct section *section, struct http_provider *provider)
{
    const char *text = section_text(section, "base_url", NULL);
    char *masked = NULL;
    bool secret, plain;
    struct err err = {0};
    if (!text) {
        if (!section_member(section, "base_url"))
            section_problem(section, "base_url", "is missing, expected a URL");
        return;
    }
    if (http_secret_expand_shown(text, &provider->base_url, &masked, &secret, &err) != ERR_NONE) {
        section_problem(section, "base_url", "%s", err.text);
        return;
    }
    for (char *p = provider->base_url; *p && p[strlen(p) - 1] == '/';)
        p[strlen(p) - 1] = '\0';
    for (char *p = masked; *p && p[strlen(p) - 1] == '/';)
        p[strlen(p) - 1] = '\0';
    const char *fault = strstr(provider->base_url, "://") ? http_url_fault(provider->base_url, false, &plain)
                                                          : "is no URL, expected http:// or https://";
    if (fault)
        section_problem(section, "base_url", "%s", fault);
    else if (plain)
        problems_warn(section->problems, section_pointer(section, STR("base_url")),
                      "is plain http to another machine: requests and secrets can be read on the way");
    provider->origin_bytes = http_origin_bytes(provider->base_url);
    provider->base_url_shown = shown_url(provider->base_url, provider->origin_bytes, masked);
    free(masked);
}

/* ---- sections ---- */

static void read_key(struct section *parent, struct http_provider *provider, struct provider *core)
{
    static const char *const formats[] = {"operation_id", "uuid", "hex", NULL};
    static const char *const places[] = {"header", "field", "query"};
    static const enum http_key_place values[] = {HTTP_KEY_HEADER, HTTP_KEY_FIELD, HTTP_KEY_QUERY};
    const struct json *value = section_member(parent, "key");
    core->key_honoured = value != NULL;
    core->key_format = KEY_FORMAT_OPERATION_ID;
    core->key_retention_ms = 0;
    core->key_bytes_max = 0;
    if (!value)
        return;
    struct section section;
    unsigned stated = 0;
    section_open(&section, value, section_pointer(parent, STR("key")), parent->problems);
    for (size_t i = 0; i < 3; i++) {
        const char *name = section_text(&section, places[i], NULL);
        if (name && stated++ == 0) {
            provider->key_place = values[i];
            provider->key_name = mem_copy_text(name);
        }
    }
    if (section.value && stated != 1)
        problems_add(section.problems, section.pointer, "expected exactly one of header, field and query");
    struct http_text no_text = {0};
    const char *fault =
        provider->key_place == HTTP_KEY_HEADER ? header_fault(provider->key_name, &no_text, NULL) : NULL;
    if (fault)
        section_problem(&section, "header", "%s", fault);
    core->key_format = (enum key_format)section_choice(&section, "format", formats, KEY_FORMAT_OPERATION_ID);
    core->key_bytes_max = (unsigned)section_int(&section, "max_length", 0, 16, 1000);
    core->key_retention_ms = section_ms(&section, "retention", 0, 0, INT64_MAX);
    provider->key_quoted = section_bool(&section, "quoted", false);
    http_statuses_read(&section, "in_use", NULL, &provider->in_use);
    http_statuses_read(&section, "mismatch", NULL, &provider->mismatch);
    section_close(&section);
}

void http_tls_read(struct section *parent, char **ca, bool *verify)
{
    struct section section;
    section_open(&section, section_member(parent, "tls"), section_pointer(parent, STR("tls")), parent->problems);
    *ca = mem_copy_text(section_text(&section, "ca", NULL));
    *verify = section_bool(&section, "verify", true);
    if (!*verify)
        problems_warn(section.problems, section_pointer(&section, STR("verify")),
                      "is false: anybody on the way can answer in the provider's name");
    section_close(&section);
}

/* {header: NAME} */
static char *read_header_name(struct section *parent, const char *name, const char *fallback)
{
    struct section section;
    section_open(&section, section_member(parent, name), section_pointer(parent, str_of(name)), parent->problems);
    const char *header = section_text(&section, "header", fallback);
    if (header && !is_token(header))
        section_problem(&section, "header", "is no header name");
    section_close(&section);
    return mem_copy_text(header);
}

static char *read_pointer(struct section *section, const char *name, const char *fallback)
{
    const char *text = section_text(section, name, fallback);
    if (!json_pointer_valid(str_of(text)))
        section_problem(section, name, "is no JSON Pointer, expected for example /error/message");
    return mem_copy_text(text);
}

static void read_error(struct section *parent, struct http_provider *provider)
{
    struct section section;
    section_open(&section, section_member(parent, "error"), section_pointer(parent, STR("error")), parent->problems);
    provider->error_message = read_pointer(&section, "message", "/error/message");
    provider->error_code = read_pointer(&section, "code", "/error/code");
    section_close(&section);
}

static double read_rate(struct section *section, const char *name, double fallback)
{
    const struct json *value = section_member(section, name);
    if (!value)
        return fallback;
    if (value->type == JSON_NUMBER && value->text.n < 32 && json_number_compare(value->text, STR("0")) >= 0 &&
        json_number_compare(value->text, STR("100000")) <= 0) {
        char text[32];
        memcpy(text, value->text.p, value->text.n);
        text[value->text.n] = '\0';
        return strtod(text, NULL);
    }
    section_problem(section, name, "expected a number from 0 to 100000");
    return fallback;
}

void http_limits_read(struct section *parent, struct provider *core)
{
    struct section budget, breaker;
    section_open(&budget, section_member(parent, "retry_budget"), section_pointer(parent, STR("retry_budget")),
                 parent->problems);
    core->retry_budget_per_s = read_rate(&budget, "per_second", 10);
    core->retry_budget_burst = (unsigned)section_int(&budget, "burst", 100, 1, 1000000);
    section_close(&budget);
    section_open(&breaker, section_member(parent, "breaker"), section_pointer(parent, STR("breaker")),
                 parent->problems);
    core->breaker_failures = (unsigned)section_int(&breaker, "failures", 10, 0, 1000000);
    core->breaker_open_ms = section_ms(&breaker, "open", 5000, 100, HOUR_MS);
    section_close(&breaker);
}

static void read_wire(struct section *section, struct http_provider *provider, struct provider *core)
{
    core->timeout_ms = section_ms(section, "timeout", 10000, 1, HOUR_MS);
    core->connect_timeout_ms = section_ms(section, "connect_timeout", 3000, 1, HOUR_MS);
    core->connections_max = (unsigned)section_int(section, "connections", 64, 1, 4096);
    core->queue_max = (unsigned)section_int(section, "queue", 4096, 1, 1000000);
    provider->wire.timeout_ms = core->timeout_ms;
    provider->wire.connect_timeout_ms = core->connect_timeout_ms;
    provider->wire.connections = core->connections_max;
    provider->wire.keepalive = section_bool(section, "keepalive", true);
    provider->answer_bytes_max = section_bytes(section, "answer_bytes_max", 1024 * 1024, 1024, HTTP_ANSWER_BYTES_MAX);
}

struct http_provider *http_provider_new(const struct json *value, const char *pointer, struct provider *core,
                                        struct problems *problems)
{
    size_t errors = problems->errors;
    struct http_provider *provider = mem_zero(sizeof *provider);
    struct section section;
    provider->refs = 1;
    section_open(&section, value, pointer, problems);
    read_base_url(&section, provider);
    read_wire(&section, provider, core);
    http_tls_read(&section, &provider->wire.ca, &provider->wire.verify);
    read_key(&section, provider, core);
    const char *key_header = provider->key_place == HTTP_KEY_HEADER ? provider->key_name : NULL;
    http_headers_read(&section, "headers", key_header, &provider->headers);
    http_statuses_read(&section, "no_effect", no_effect_default, &provider->no_effect);
    http_statuses_read(&section, "not_processed", not_processed_default, &provider->not_processed);
    provider->retry_after_header = read_header_name(&section, "retry_after", "Retry-After");
    provider->request_id_header = read_header_name(&section, "request_id", NULL);
    read_error(&section, provider);
    http_limits_read(&section, core);
    section_close(&section);
    if (problems->errors == errors)
        return provider;
    http_provider_free(provider);
    return NULL;
}
