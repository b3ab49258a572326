/* From the registry's request section to bytes: compiled once, filled from the arguments per call. The same arguments
 * give the same bytes, so that every attempt of an operation is the same request (design 1, provider key). */
#include "adapter/http_parts.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

/* ---- compiling ---- */

/* A text with places, or {jq: program}. */
static void read_text_or_jq(struct section *section, const char *name, struct http_text *text, struct jq_program **jq)
{
    const struct json *value = section_member(section, name);
    struct err err = {0};
    if (!value)
        return;
    if (value->type == JSON_STRING) {
        const char *copy = section_text(section, name, NULL);
        if (copy && http_text_new(copy, false, text, &err) != ERR_NONE)
            section_problem(section, name, "%s", err.text);
        return;
    }
    struct section inner;
    section_open(&inner, value, section_pointer(section, str_of(name)), section->problems);
    const char *program = section_text(&inner, "jq", NULL);
    if (program && jq_program_new(program, true, jq, &err) != ERR_NONE)
        section_problem(&inner, "jq", "%s", err.text);
    if (inner.value && !section_member(&inner, "jq"))
        section_problem(section, name, "expected a text with {places} or {jq: program}");
    section_close(&inner);
}

static void read_body(struct section *section, struct http_request *request, const char *name, enum http_body body)
{
    const struct json *value = section_member(section, name);
    struct err err = {0};
    if (!value)
        return;
    if (request->body != HTTP_BODY_NONE) {
        section_problem(section, name, "a request has json or form, not both");
        return;
    }
    request->body = body;
    if (value->type == JSON_STRING) {
        const char *text = section_text(section, name, NULL);
        if (text && jq_program_new(text, true, &request->body_jq, &err) != ERR_NONE)
            section_problem(section, name, "%s", err.text);
        return;
    }
    if (body == HTTP_BODY_FORM && value->type != JSON_OBJECT) {
        section_problem(section, name, "is %s, expected names and values, or a jq program as text",
                        json_type_name(value->type));
        return;
    }
    request->node = mem_zero(sizeof *request->node);
    http_node_read(section, name, value, request->node);
}

static bool is_method(struct http_request *request, const char *name)
{
    return strcmp(request->method, name) == 0;
}

static void read_method(struct section *section, struct http_request *request, enum http_use use)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", NULL};
    request->method = mem_copy_text(methods[section_choice(section, "method", methods, use == HTTP_USE_WRITE ? 1 : 0)]);
    if (use == HTTP_USE_LOOKUP && !is_method(request, "GET") && !is_method(request, "POST"))
        section_problem(section, "method", "is %s, expected GET or POST: a look-up must not change anything",
                        request->method);
    if (use == HTTP_USE_WRITE && is_method(request, "HEAD"))
        section_problem(section, "method", "is HEAD, which cannot be a write");
}

static void check_body(struct section *section, struct http_request *request, enum http_use use,
                       const struct http_provider *provider)
{
    bool carries = is_method(request, "POST") || is_method(request, "PUT") || is_method(request, "PATCH");
    if (request->body == HTTP_BODY_NONE && carries && use == HTTP_USE_WRITE)
        request->body = HTTP_BODY_ARGUMENTS;
    request->has_body = carries || request->body != HTTP_BODY_NONE;
    if (request->body != HTTP_BODY_NONE && (is_method(request, "GET") || is_method(request, "HEAD")))
        problems_add(section->problems, section->pointer, "%s requests have no body; use query", request->method);
    if (use != HTTP_USE_WRITE || provider->key_place != HTTP_KEY_FIELD)
        return;
    if (request->body == HTTP_BODY_NONE)
        problems_add(section->problems, section->pointer,
                     "the provider's key is the body's field %s, but the request has no body", provider->key_name);
    for (uint32_t i = 0; request->node && i < request->node->count; i++) {
        if (request->node->names && strcmp(request->node->names[i], provider->key_name) == 0)
            problems_add(section->problems, section->pointer, "%s is the provider's key and is set by onced",
                         provider->key_name);
    }
    if (request->node && request->node->type != JSON_OBJECT)
        problems_add(section->problems, section->pointer,
                     "the provider's key is the body's field %s, so the body must have members", provider->key_name);
}

/* ---- header lines ---- */

static void header_line(struct buf *buf, const char *name, struct str value)
{
    buf_add_text(buf, name);
    /* libcurl takes "Name:" as "leave it out" and "Name;" as an empty value */
    buf_add_text(buf, value.n ? ": " : ";");
    buf_add_str(buf, value);
}

/* A list that lost a line for want of memory would be sent without it. */
static void append_fixed(struct http_request *request, const char *line)
{
    struct curl_slist *list = curl_slist_append(request->fixed, line);
    if (!list)
        mem_exhausted("libcurl");
    request->fixed = list;
}

static void add_fixed(struct http_request *request, const char *name, const char *value)
{
    struct buf buf;
    buf_init(&buf, 0);
    header_line(&buf, name, str_of(value));
    append_fixed(request, buf.p);
    buf_release(&buf);
}

static const struct http_header *find_header(const struct http_headers *headers, const char *name)
{
    for (size_t i = 0; i < headers->count; i++) {
        if (strcasecmp(headers->items[i].name, name) == 0)
            return &headers->items[i];
    }
    return NULL;
}

static bool has_header(const struct http_request *request, const struct http_provider *provider, const char *name)
{
    return find_header(&request->headers, name) || find_header(&provider->headers, name);
}

static void sort_header(struct http_request *request, const struct http_header *header)
{
    if (header->text.value)
        add_fixed(request, header->name, header->text.value);
    else
        request->dynamic[request->dynamic_count++] = header;
}

static const char *content_type(const struct http_request *request)
{
    switch (request->body) {
    case HTTP_BODY_ARGUMENTS:
    case HTTP_BODY_JSON: return "application/json";
    case HTTP_BODY_FORM: return "application/x-www-form-urlencoded";
    case HTTP_BODY_NONE: break;
    }
    return NULL;
}

/* The provider's headers and the request's own, which win; those without places are laid out once. */
static void sort_headers(struct http_request *request, const struct http_provider *provider)
{
    request->dynamic = mem_zero(sizeof *request->dynamic * (request->headers.count + provider->headers.count + 1));
    for (size_t i = 0; i < request->headers.count; i++)
        sort_header(request, &request->headers.items[i]);
    for (size_t i = 0; i < provider->headers.count; i++) {
        if (!find_header(&request->headers, provider->headers.items[i].name))
            sort_header(request, &provider->headers.items[i]);
    }
    const char *type = content_type(request);
    if (type && !has_header(request, provider, "Content-Type"))
        add_fixed(request, "Content-Type", type);
    else if (!type)
        append_fixed(request, "Content-Type:"); /* libcurl would send its own */
    if (!has_header(request, provider, "User-Agent"))
        add_fixed(request, "User-Agent", "onced/" ONCED_VERSION);
    append_fixed(request, "Expect:");
}

struct http_request *http_request_new(const struct json *value, const char *pointer,
                                      const struct http_provider *provider, enum http_use use,
                                      struct problems *problems)
{
    size_t errors = problems->errors;
    struct http_request *request = mem_zero(sizeof *request);
    struct section section;
    section_open(&section, value, pointer, problems);
    const char *key_header = provider->key_place == HTTP_KEY_HEADER ? provider->key_name : NULL;
    read_method(&section, request, use);
    read_text_or_jq(&section, "path", &request->path, &request->path_jq);
    if (!section_member(&section, "path"))
        section_problem(&section, "path", "is missing, expected for example /v1/refunds");
    const char *path = request->path.template ? template_text(request->path.template) : request->path.value;
    if (path && *path != '/' && *path != '{')
        section_problem(&section, "path", "does not begin with \"/\"");
    const char *key_query = provider->key_place == HTTP_KEY_QUERY && use == HTTP_USE_WRITE ? provider->key_name : NULL;
    http_query_read(&section, "query", key_query, &request->query);
    http_headers_read(&section, "headers", key_header, &request->headers);
    read_body(&section, request, "json", HTTP_BODY_JSON);
    read_body(&section, request, "form", HTTP_BODY_FORM);
    static const char *const arrays[] = {"brackets", "indexed", NULL};
    request->indexed_arrays = section_choice(&section, "form_arrays", arrays, 0) == 1;
    check_body(&section, request, use, provider);
    sort_headers(request, provider);
    section_close(&section);
    if (problems->errors == errors)
        return request;
    http_request_free(request);
    return NULL;
}

void http_request_free(struct http_request *request)
{
    if (!request)
        return;
    free(request->method);
    http_text_release(&request->path);
    jq_program_free(request->path_jq);
    http_headers_release(&request->query);
    http_headers_release(&request->headers);
    if (request->node)
        http_node_release(request->node);
    free(request->node);
    jq_program_free(request->body_jq);
    curl_slist_free_all(request->fixed);
    free(request->dynamic);
    free(request);
}

/* ---- building ---- */

struct builder {
    struct http_message *message;
    struct arena *arena;
    const struct http_tool *tool;
    const struct http_provider *provider;
    const struct http_request *request;
    const struct adapter_call *call;
    struct http_fill fill;
    bool keyed; /* this request carries the provider key */
    struct err *err;
};

/* ---- URL ---- */

static void add_form_escaped(struct buf *out, struct str text)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (isalnum(c) || c == '-' || c == '_' || c == '.' || c == '*') {
            buf_add_char(out, (char)c);
        } else if (c == ' ') {
            buf_add_char(out, '+');
        } else {
            char code[3] = {'%', hex[c >> 4], hex[c & 15]};
            buf_add(out, code, sizeof code);
        }
    }
}

static void add_parameter(struct buf *url, const char *name, struct str value)
{
    buf_add_char(url, memchr(url->p, '?', url->n) ? '&' : '?');
    add_form_escaped(url, str_of(name));
    buf_add_char(url, '=');
    add_form_escaped(url, value);
}

/* Text of a boolean, number or string; absent for the rest. */
static struct str scalar_text(const struct json *value)
{
    switch (value->type) {
    case JSON_BOOL: return value->boolean ? STR("true") : STR("false");
    case JSON_NUMBER:
    case JSON_STRING: return (struct str){value->text.n ? value->text.p : "", value->text.n};
    case JSON_NULL:
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return STR_NONE;
}

static enum err_code add_query_list(struct builder *b, const char *name, const struct json *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct str text = scalar_text(&list->items[i]);
        if (!text.p)
            return err_set(b->err, ERR_INVALID, "query %s: item %u is %s, expected text, a number or a boolean", name,
                           i, json_type_name(list->items[i].type));
        add_parameter(&b->message->url, name, text);
    }
    return ERR_NONE;
}

static enum err_code add_query_item(struct builder *b, const struct http_header *item)
{
    bool single;
    if (item->text.single) {
        const struct json *value = template_single(item->text.template, &b->fill.values, &single);
        if (!value || value->type == JSON_NULL)
            return ERR_NONE;
        if (value->type == JSON_ARRAY)
            return add_query_list(b, item->name, value);
    }
    buf_reset(&b->message->scratch);
    enum err_code code = http_fill_text(&b->fill, &item->text, TEMPLATE_PLAIN, &b->message->scratch);
    if (code != ERR_NONE) {
        err_prefix(b->err, "query %s: ", item->name);
        return code;
    }
    add_parameter(&b->message->url, item->name, buf_str(&b->message->scratch));
    return ERR_NONE;
}

static enum err_code add_path(struct builder *b)
{
    struct buf *url = &b->message->url;
    size_t start = url->n;
    if (b->request->path_jq) {
        struct json *path = NULL;
        enum err_code code =
            jq_program_run(b->request->path_jq, b->arena, b->fill.arguments, &b->fill.places, &path, b->err);
        if (code == ERR_NONE && path->type != JSON_STRING)
            code = err_set(b->err, ERR_INVALID, "the program gives %s, expected a text", json_type_name(path->type));
        if (code != ERR_NONE) {
            err_prefix(b->err, "path: ");
            return code;
        }
        buf_add_str(url, path->text);
    } else {
        enum err_code code = http_fill_text(&b->fill, &b->request->path, TEMPLATE_PATH, url);
        if (code != ERR_NONE) {
            err_prefix(b->err, "path: ");
            return code;
        }
    }
    if (url->n == start || url->p[start] != '/')
        return err_set(b->err, ERR_INVALID, "path: does not begin with \"/\"");
    return ERR_NONE;
}

/* Whatever made the URL: no byte that could split the request line, no segment that names another resource. */
static enum err_code check_url(struct builder *b)
{
    const struct buf *url = &b->message->url;
    if (url->over)
        return err_set(b->err, ERR_LIMIT, "the URL has more than %d bytes", HTTP_URL_BYTES_MAX);
    const char *path = url->p + b->provider->origin_bytes, *last = url->p + url->n;
    const char *query = memchr(path, '?', (size_t)(last - path)), *end = query ? query : last;
    for (const char *p = path; p < last; p++) {
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || strchr("\"<>\\^`{|}#", *p))
            return err_set(b->err, ERR_INVALID, "%s: holds a character that must be escaped (byte %u)",
                           p < end ? "path" : "query", (unsigned char)*p);
    }
    while (path < end) {
        struct str segment = {path + 1, strcspn(path + 1, "/?")};
        if (str_is(segment, ".") || str_is(segment, ".."))
            return err_set(b->err, ERR_INVALID, "path: has a segment \"%.*s\"", STR_ARG(segment));
        path += 1 + segment.n;
    }
    return ERR_NONE;
}

/* ---- look-up pages ---- */

/* The page's address as the provider gave it: same origin only, since our credentials go along. */
static enum err_code add_page_url(struct builder *b, struct str page)
{
    struct buf *url = &b->message->url;
    struct str origin = {b->provider->base_url, b->provider->origin_bytes};
    buf_add_str(url, origin);
    if (page.n > 1 && page.p[0] == '/' && page.p[1] != '/') {
        buf_add_str(url, page);
    } else if (page.n > origin.n && strncasecmp(page.p, origin.p, origin.n) == 0 &&
               (page.p[origin.n] == '/' || page.p[origin.n] == '?')) {
        buf_add(url, page.p + origin.n, page.n - origin.n);
    } else {
        return err_set(b->err, ERR_INVALID, "the next page's address is not on the provider's host");
    }
    return ERR_NONE;
}

static enum err_code build_url(struct builder *b)
{
    struct buf *url = &b->message->url;
    const struct http_lookup *lookup = b->tool->lookup;
    const struct json *progress = b->message->progress;
    struct str page_url = progress ? json_get_text(progress, "url") : STR_NONE;
    struct str cursor = progress ? json_get_text(progress, "cursor") : STR_NONE;
    if (page_url.p) {
        enum err_code code = add_page_url(b, page_url);
        return code ? code : check_url(b);
    }
    buf_add_text(url, b->fill.shown ? b->provider->base_url_shown : b->provider->base_url);
    enum err_code code = add_path(b);
    for (size_t i = 0; code == ERR_NONE && i < b->request->query.count; i++) {
        const struct http_header *item = &b->request->query.items[i];
        if (cursor.p && strcmp(item->name, lookup->next_query) == 0)
            continue;
        code = add_query_item(b, item);
    }
    if (code != ERR_NONE)
        return code;
    if (cursor.p)
        add_parameter(url, lookup->next_query, cursor);
    if (b->keyed && b->provider->key_place == HTTP_KEY_QUERY)
        add_parameter(url, b->provider->key_name, str_of(b->call->provider_key));
    /* a masked origin has no byte that could be wrong, and its length differs */
    return b->fill.shown ? ERR_NONE : check_url(b);
}

/* ---- body ---- */

static enum err_code body_value(struct builder *b, struct json *out)
{
    const struct http_request *request = b->request;
    bool left_out = false;
    if (request->body_jq) {
        struct json *value = NULL;
        enum err_code code =
            jq_program_run(request->body_jq, b->arena, b->fill.arguments, &b->fill.places, &value, b->err);
        if (code == ERR_NONE)
            *out = *value;
        return code;
    }
    if (request->node) {
        *out = json_null();
        return http_fill_node(&b->fill, request->node, out, &left_out);
    }
    *out = *b->fill.arguments;
    return ERR_NONE;
}

static enum err_code add_key_field(struct builder *b, struct json *body)
{
    struct str name = str_of(b->provider->key_name);
    if (body->type != JSON_OBJECT)
        return err_set(b->err, ERR_INVALID, "the body is %s, but the provider's key %s needs members",
                       json_type_name(body->type), b->provider->key_name);
    if (b->request->body == HTTP_BODY_ARGUMENTS || b->request->body_jq) {
        /* a value of the model's may have that name: ours replaces it */
        struct json_member *members = arena_alloc(b->arena, sizeof *members * (body->count + 1));
        uint32_t count = 0;
        for (uint32_t i = 0; i < body->count; i++) {
            if (!str_equal(body->members[i].name, name))
                members[count++] = body->members[i];
        }
        body->members = members;
        body->count = count;
    }
    body->members[body->count++] = (struct json_member){name, json_string(str_of(b->call->provider_key))};
    return ERR_NONE;
}

static enum err_code add_form_value(struct builder *b, const struct json *value);

/* name holds the whole name so far; its tail is put back after each child. */
static enum err_code add_form_children(struct builder *b, const struct json *value)
{
    struct buf *name = &b->message->scratch;
    size_t length = name->n;
    for (uint32_t i = 0; i < value->count; i++) {
        bool object = value->type == JSON_OBJECT;
        if (object && length == 0) {
            add_form_escaped(name, value->members[i].name);
        } else if (object) {
            buf_add_char(name, '[');
            add_form_escaped(name, value->members[i].name);
            buf_add_char(name, ']');
        } else if (b->request->indexed_arrays) {
            buf_printf(name, "[%u]", i);
        } else {
            buf_add_text(name, "[]");
        }
        enum err_code code = add_form_value(b, object ? &value->members[i].value : &value->items[i]);
        if (code != ERR_NONE)
            return code;
        name->n = length;
    }
    return ERR_NONE;
}

static enum err_code add_form_value(struct builder *b, const struct json *value)
{
    struct buf *body = &b->message->body;
    if (value->type == JSON_ARRAY || value->type == JSON_OBJECT)
        return add_form_children(b, value);
    if (value->type == JSON_NULL)
        return ERR_NONE; /* a form cannot say null */
    if (body->n > 0)
        buf_add_char(body, '&');
    buf_add_str(body, buf_str(&b->message->scratch));
    buf_add_char(body, '=');
    add_form_escaped(body, scalar_text(value));
    return ERR_NONE;
}

static enum err_code build_body(struct builder *b)
{
    struct json body;
    if (b->request->body == HTTP_BODY_NONE)
        return ERR_NONE;
    enum err_code code = body_value(b, &body);
    if (code == ERR_NONE && b->keyed && b->provider->key_place == HTTP_KEY_FIELD)
        code = add_key_field(b, &body);
    if (code == ERR_NONE && b->request->body == HTTP_BODY_FORM) {
        if (body.type != JSON_OBJECT)
            code = err_set(b->err, ERR_INVALID, "is %s, a form needs members", json_type_name(body.type));
        buf_reset(&b->message->scratch);
        if (code == ERR_NONE)
            code = add_form_value(b, &body);
    } else if (code == ERR_NONE) {
        json_write(&b->message->body, &body);
    }
    if (code == ERR_NONE && b->message->body.over)
        code = err_set(b->err, ERR_LIMIT, "has more than %d bytes", HTTP_BODY_BYTES_MAX);
    if (code != ERR_NONE)
        err_prefix(b->err, "body: ");
    return code;
}

/* ---- headers ---- */

static void prepend_line(struct builder *b, const char *name, struct str value)
{
    buf_reset(&b->message->scratch);
    header_line(&b->message->scratch, name, value);
    struct curl_slist *node = arena_alloc(b->arena, sizeof *node);
    node->data = arena_copy_str(b->arena, buf_str(&b->message->scratch));
    node->next = b->message->headers;
    b->message->headers = node;
}

/* "{name?}" without a value. */
static bool is_left_out(struct builder *b, const struct http_text *text)
{
    bool single;
    return text->optional && !template_single(text->template, &b->fill.values, &single);
}

/* Into value (emptied first). */
static enum err_code header_value(struct builder *b, const struct http_header *header, struct buf *value)
{
    buf_reset(value);
    enum err_code code = http_fill_text(&b->fill, &header->text, TEMPLATE_PLAIN, value);
    if (code == ERR_NONE && value->over)
        code = err_set(b->err, ERR_LIMIT, "is longer than %d bytes", HTTP_HEADER_BYTES_MAX);
    for (size_t i = 0; code == ERR_NONE && i < value->n; i++) {
        if ((unsigned char)value->p[i] < ' ' && value->p[i] != '\t')
            code = err_set(b->err, ERR_INVALID, "a value from the arguments has a line feed or control character");
    }
    if (code != ERR_NONE)
        err_prefix(b->err, "header %s: ", header->name);
    return code;
}

/* RFC 8941 string, when the provider wants it so. */
static void key_text(const struct builder *b, struct buf *value)
{
    buf_reset(value);
    if (b->provider->key_quoted)
        buf_add_char(value, '"');
    for (const char *p = b->call->provider_key; *p; p++) {
        if (b->provider->key_quoted && (*p == '"' || *p == '\\'))
            buf_add_char(value, '\\');
        buf_add_char(value, *p);
    }
    if (b->provider->key_quoted)
        buf_add_char(value, '"');
}

bool http_trace_valid(const char *trace)
{
    size_t n = trace ? strlen(trace) : 0;
    return n > 0 && n <= 128 && strspn(trace, "0123456789abcdef-") == n;
}

static enum err_code build_headers(struct builder *b)
{
    struct buf *value = &b->message->value;
    b->message->headers = b->request->fixed;
    for (size_t i = 0; i < b->request->dynamic_count; i++) {
        if (is_left_out(b, &b->request->dynamic[i]->text))
            continue;
        enum err_code code = header_value(b, b->request->dynamic[i], value);
        if (code != ERR_NONE)
            return code;
        prepend_line(b, b->request->dynamic[i]->name, buf_str(value));
    }
    if (b->keyed && b->provider->key_place == HTTP_KEY_HEADER) {
        key_text(b, value);
        prepend_line(b, b->provider->key_name, buf_str(value));
    }
    if (http_trace_valid(b->call->trace))
        prepend_line(b, "traceparent", str_of(b->call->trace));
    return ERR_NONE;
}

/* ---- what the answer will be judged by ---- */

static enum err_code build_expected(struct builder *b)
{
    struct http_message *message = b->message;
    const struct http_lookup *lookup = b->tool->lookup;
    if (b->call->kind == ATTEMPT_CALL)
        return http_fill_equalities(&b->fill, &b->tool->verify, &message->verify, &message->verify_count);
    enum err_code code = http_fill_equalities(&b->fill, &lookup->match, &message->match, &message->match_count);
    return code ? code : http_fill_equalities(&b->fill, &lookup->verify, &message->verify, &message->verify_count);
}

/* ---- the whole ---- */

void http_message_init(struct http_message *message, struct arena *arena)
{
    *message = (struct http_message){.arena = arena};
    buf_init(&message->url, HTTP_URL_BYTES_MAX);
    buf_init(&message->body, HTTP_BODY_BYTES_MAX);
    buf_init(&message->scratch, HTTP_BODY_BYTES_MAX);
    buf_init(&message->value, HTTP_HEADER_BYTES_MAX);
}

void http_message_release(struct http_message *message)
{
    buf_release(&message->url);
    buf_release(&message->body);
    buf_release(&message->scratch);
    buf_release(&message->value);
}

/* Which request a look-up uses, and what it knows from the former page. */
static enum err_code begin_lookup(struct builder *b)
{
    const struct http_lookup *lookup = b->tool->lookup;
    struct http_message *message = b->message;
    if (!lookup)
        return err_set(b->err, ERR_INVALID, "the tool has no look-up");
    message->by_id = lookup->by_id && (b->call->external_id || !lookup->request);
    b->request = message->by_id ? lookup->by_id : lookup->request;
    message->external_id = arena_copy_text(b->arena, b->call->external_id);
    if (!b->call->progress.p)
        return ERR_NONE;
    struct json *progress = NULL;
    struct json_limits limits = json_limits_default;
    limits.bytes_max = 3 * (size_t)HTTP_ANSWER_BYTES_MAX; /* holds the first match's result as an escaped text */
    enum err_code code = json_parse(b->arena, b->call->progress, &limits, &progress, b->err);
    if (code == ERR_NONE &&
        (message->by_id || progress->type != JSON_OBJECT || (json_get(progress, "cursor") && !lookup->next_query)))
        code = err_set(b->err, ERR_INVALID, "is not from this look-up");
    if (code != ERR_NONE)
        err_prefix(b->err, "progress: ");
    message->progress = progress;
    return code;
}

static void begin(struct builder *b, struct http_message *message, const struct http_tool *tool,
                  const struct adapter_call *call, bool shown, struct err *err)
{
    bool lookup = call->kind == ATTEMPT_LOOKUP;
    *b = (struct builder){.message = message,
                          .arena = message->arena,
                          .tool = tool,
                          .provider = tool->provider,
                          .request = tool->request,
                          .call = call,
                          .err = err};
    http_fill_init(&b->fill, b->arena, call, &message->scratch, err);
    if (shown)
        http_fill_mask(&b->fill, tool->redact, tool->redact_count);
    b->keyed = !lookup && tool->write && call->provider_key && tool->provider->key_place != HTTP_KEY_NONE;
    buf_reset(&message->url);
    buf_reset(&message->body);
    message->kind = call->kind;
    message->by_id = false;
    message->progress = NULL;
    message->external_id = NULL;
    message->match_count = message->verify_count = 0;
}

static enum err_code build(struct builder *b)
{
    enum err_code code = b->call->kind == ATTEMPT_LOOKUP ? begin_lookup(b) : ERR_NONE;
    if (code != ERR_NONE)
        return code;
    b->message->request = b->request;
    code = build_url(b);
    if (code == ERR_NONE)
        code = build_body(b);
    if (code == ERR_NONE && !b->fill.shown)
        code = build_headers(b);
    if (code == ERR_NONE && !b->fill.shown)
        code = build_expected(b);
    return code;
}

enum err_code http_message_build(struct http_message *message, const struct http_tool *tool,
                                 const struct adapter_call *call, struct err *err)
{
    struct builder b;
    begin(&b, message, tool, call, false, err);
    return build(&b);
}

/* ---- for people ---- */

/* The request could be built from the real values; where masks spoil it ("***" is no number for jq), masks are shown.
 */
static void describe_header(struct builder *b, const struct http_header *header, struct json_out *out)
{
    if (is_left_out(b, &header->text))
        return;
    json_out_name(out, header->name);
    if (header_value(b, header, &b->message->value) == ERR_NONE)
        json_out_str(out, buf_str(&b->message->value));
    else
        json_out_text(out, "***");
}

static void describe_headers(struct builder *b, struct json_out *out)
{
    const struct http_request *request = b->request;
    json_out_name(out, "headers");
    json_out_object(out);
    for (size_t i = 0; i < request->headers.count; i++)
        describe_header(b, &request->headers.items[i], out);
    for (size_t i = 0; i < b->provider->headers.count; i++) {
        if (!find_header(&request->headers, b->provider->headers.items[i].name))
            describe_header(b, &b->provider->headers.items[i], out);
    }
    if (content_type(request) && !has_header(request, b->provider, "Content-Type"))
        json_out_member_text(out, "Content-Type", content_type(request));
    if (b->keyed && b->provider->key_place == HTTP_KEY_HEADER) {
        key_text(b, &b->message->value);
        json_out_name(out, b->provider->key_name);
        json_out_str(out, buf_str(&b->message->value));
    }
    json_out_end_object(out);
}

static void describe_body(const struct http_message *message, struct json_out *out)
{
    switch (message->request->body) {
    case HTTP_BODY_NONE: json_out_null(out); break;
    case HTTP_BODY_FORM: json_out_str(out, buf_str(&message->body)); break;
    case HTTP_BODY_ARGUMENTS:
    case HTTP_BODY_JSON: json_out_raw(out, buf_str(&message->body)); break;
    }
}

static void describe(struct http_message *message, const struct http_tool *tool, const struct adapter_call *call,
                     struct json_out *out)
{
    struct builder b;
    struct err ignored = {0};
    begin(&b, message, tool, call, true, &ignored);
    bool good = build(&b) == ERR_NONE;
    json_out_object(out);
    json_out_member_text(out, "method", b.request->method);
    json_out_name(out, "url");
    json_out_str(out, good ? buf_str(&message->url) : STR("***"));
    describe_headers(&b, out);
    json_out_name(out, "body");
    if (good)
        describe_body(message, out);
    else
        json_out_text(out, "***");
    json_out_end_object(out);
}

enum err_code http_message_describe(const struct http_tool *tool, const struct adapter_call *call, struct json_out *out,
                                    struct err *err)
{
    struct arena arena;
    struct http_message message;
    arena_init(&arena);
    http_message_init(&message, &arena);
    enum err_code code = http_message_build(&message, tool, call, err);
    if (code == ERR_NONE)
        describe(&message, tool, call, out);
    http_message_release(&message);
    arena_release(&arena);
    return code;
}
