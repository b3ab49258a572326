/* The adapter's part of a tool, compiled from its section of the registry file. */
#include "adapter/http_parts.h"

#include "base/mem.h"

#include <stdlib.h>

/* ---- reference counts ---- */

void http_tool_ref(struct http_tool *tool)
{
    tool->refs++;
}

static void lookup_free(struct http_lookup *lookup)
{
    if (!lookup)
        return;
    http_request_free(lookup->request);
    http_request_free(lookup->by_id);
    free(lookup->items);
    http_equalities_release(&lookup->match);
    http_equalities_release(&lookup->verify);
    free(lookup->next_cursor);
    free(lookup->next_more);
    free(lookup->next_last_id);
    free(lookup->next_query);
    free(lookup->next_url);
    http_statuses_release(&lookup->absent_status);
    jq_program_free(lookup->pending);
    jq_program_free(lookup->failed);
    http_extract_release(&lookup->external_id);
    http_extract_release(&lookup->result);
    free(lookup);
}

static void response_release(struct http_response *response)
{
    http_statuses_release(&response->success);
    http_statuses_release(&response->noop);
    http_statuses_release(&response->accepted);
    http_statuses_release(&response->refused);
    http_statuses_release(&response->not_processed);
    jq_program_free(response->success_when);
    jq_program_free(response->error_when);
    http_extract_release(&response->external_id);
    http_extract_release(&response->result);
}

void http_tool_unref(struct http_tool *tool)
{
    if (!tool || --tool->refs > 0)
        return;
    http_request_free(tool->request);
    response_release(&tool->response);
    http_equalities_release(&tool->verify);
    lookup_free(tool->lookup);
    for (size_t i = 0; i < tool->redact_count; i++)
        free(tool->redact[i]);
    free(tool->redact);
    http_provider_unref(tool->provider);
    free(tool);
}

void http_tool_free(struct http_tool *tool)
{
    http_tool_unref(tool);
}

bool http_tool_has_lookup(const struct http_tool *tool)
{
    return tool->lookup != NULL;
}

/* ---- what is taken out of answers ---- */

static bool valid_pointer(struct section *section, const char *name, const char *text)
{
    if (json_pointer_valid(str_of(text)))
        return true;
    section_problem(section, name, "\"%s\" is no JSON Pointer, expected \"\" or for example /data/id", text);
    return false;
}

void http_extract_read(struct section *section, const char *name, const char *fallback, struct http_extract *out)
{
    const struct json *value = section_member(section, name);
    struct err err = {0};
    *out = (struct http_extract){0};
    if (!value || value->type == JSON_STRING) {
        const char *text = section_text(section, name, fallback);
        if (!text || !valid_pointer(section, name, text))
            return;
        out->pointer = mem_copy_text(strcmp(text, "/") == 0 ? "" : text); /* people write / for the whole */
        return;
    }
    struct section inner;
    section_open(&inner, value, section_pointer(section, str_of(name)), section->problems);
    const char *program = section_text(&inner, "jq", NULL);
    if (program && jq_program_new(program, false, &out->jq, &err) != ERR_NONE)
        section_problem(&inner, "jq", "%s", err.text);
    if (inner.value && !section_member(&inner, "jq"))
        section_problem(section, name, "expected a JSON Pointer or {jq: program}");
    section_close(&inner);
}

void http_extract_release(struct http_extract *extract)
{
    free(extract->pointer);
    jq_program_free(extract->jq);
}

static char *read_pointer(struct section *section, const char *name)
{
    const char *text = section_text(section, name, NULL);
    return text && valid_pointer(section, name, text) ? mem_copy_text(text) : NULL;
}

/* ---- what must equal what ---- */

static void read_equality_text(const struct json *value, const char *pointer, struct problems *problems,
                               struct http_equality *out)
{
    struct err err = {0};
    char *copy = mem_copy_bytes(value->text.p, value->text.n);
    size_t n = value->text.n;
    const char *text = copy;
    out->quoted = n >= 2 && copy[0] == '"' && copy[n - 1] == '"';
    if (out->quoted) {
        copy[n - 1] = '\0';
        text = copy + 1;
    }
    if (http_text_new(text, true, &out->text, &err) != ERR_NONE)
        problems_add(problems, pointer, "%s", err.text);
    free(copy);
}

static void read_equality(struct http_equalities *equalities, const struct json *value, const char *pointer,
                          struct problems *problems, struct http_equality *out)
{
    struct err err = {0};
    const struct json *program = value->type == JSON_OBJECT && value->count == 1 ? json_get(value, "jq") : NULL;
    if (program && program->type == JSON_STRING) {
        char *text = mem_copy_bytes(program->text.p, program->text.n);
        if (jq_program_new(text, true, &out->jq, &err) != ERR_NONE)
            problems_add(problems, pointer, "%s", err.text);
        free(text);
    } else if (value->type == JSON_STRING) {
        read_equality_text(value, pointer, problems, out);
    } else {
        out->literal = json_copy(&equalities->arena, value);
    }
}

void http_equalities_read(struct section *section, const char *name, struct http_equalities *out)
{
    const struct json *value = section_member(section, name);
    *out = (struct http_equalities){0};
    arena_init(&out->arena);
    if (!value)
        return;
    if (value->type != JSON_OBJECT) {
        section_problem(section, name, "is %s, expected JSON Pointers and what must be there",
                        json_type_name(value->type));
        return;
    }
    struct section inner;
    section_open(&inner, value, section_pointer(section, str_of(name)), section->problems);
    out->items = mem_zero(sizeof *out->items * (value->count + 1));
    for (uint32_t i = 0; i < value->count; i++) {
        const char *pointer = section_pointer(&inner, value->members[i].name);
        struct http_equality *item = &out->items[out->count++];
        item->pointer = arena_copy_str(&out->arena, value->members[i].name);
        if (!json_pointer_valid(value->members[i].name))
            problems_add(section->problems, pointer, "\"%s\" is no JSON Pointer, expected for example /amount",
                         item->pointer);
        read_equality(out, &value->members[i].value, pointer, section->problems, item);
    }
}

void http_equalities_release(struct http_equalities *equalities)
{
    for (size_t i = 0; i < equalities->count; i++) {
        http_text_release(&equalities->items[i].text);
        jq_program_free(equalities->items[i].jq);
    }
    free(equalities->items);
    arena_release(&equalities->arena);
}

/* ---- sections ---- */

/* Who accepts and never tells leaves the outcome open for ever. */
static bool told_later(const struct http_tool *tool, const struct tool *core)
{
    bool told = tool->lookup != NULL;
    for (unsigned i = 0; i < core->reconcile.strategy_count; i++)
        told |= core->reconcile.strategies[i] == STRATEGY_WEBHOOK;
    return told;
}

static void read_response(const struct json *value, const char *pointer, struct problems *problems,
                          const struct tool *core, struct http_tool *tool)
{
    static const int accepted_default[] = {202, 0};
    static const char *const bodies[] = {"json", "any", "none", NULL};
    static const char *const types[] = {"any", "json", NULL};
    struct http_response *out = &tool->response;
    struct section section;
    section_open(&section, value, pointer, problems);
    out->success_default = !section_member(&section, "success");
    http_statuses_read(&section, "success", NULL, &out->success);
    http_statuses_read(&section, "noop", NULL, &out->noop);
    http_statuses_read(&section, "accepted", told_later(tool, core) ? accepted_default : NULL, &out->accepted);
    if (out->accepted.count > 0 && !told_later(tool, core))
        section_problem(&section, "accepted", "needs a lookup, or the final outcome could never be known");
    http_statuses_read(&section, "refused", NULL, &out->refused);
    http_statuses_read(&section, "not_processed", NULL, &out->not_processed);
    out->body = (enum http_answer_body)section_choice(&section, "body", bodies, HTTP_ANSWER_JSON);
    bool head = tool->request && strcmp(tool->request->method, "HEAD") == 0; /* never has one */
    if (head && section_member(&section, "body") && out->body != HTTP_ANSWER_NONE)
        section_problem(&section, "body", "answers to HEAD have no body, expected none");
    if (head)
        out->body = HTTP_ANSWER_NONE;
    out->insist_type = section_choice(&section, "content_type", types, 0) == 1;
    out->success_when = http_jq_read(&section, "success_when");
    out->error_when = http_jq_read(&section, "error_when");
    http_extract_read(&section, "external_id", NULL, &out->external_id);
    http_extract_read(&section, "result", "", &out->result);
    if (out->body == HTTP_ANSWER_NONE &&
        (out->success_when || out->error_when || out->external_id.pointer || out->external_id.jq || out->insist_type))
        section_problem(&section, "body", "is none, but other members of the response need an answer to look into");
    section_close(&section);
}

static void read_next(struct section *parent, struct http_lookup *out)
{
    struct section section;
    const struct json *value = section_member(parent, "next");
    section_open(&section, value, section_pointer(parent, STR("next")), parent->problems);
    out->next_cursor = read_pointer(&section, "cursor");
    out->next_more = read_pointer(&section, "more");
    out->next_last_id = read_pointer(&section, "last_id");
    out->next_query = mem_copy_text(section_text(&section, "query", NULL));
    out->next_url = read_pointer(&section, "url");
    section_close(&section);
    if (!section.value)
        return;
    bool by_cursor = out->next_cursor && out->next_query && !out->next_more && !out->next_last_id && !out->next_url;
    bool by_last = out->next_more && out->next_last_id && out->next_query && !out->next_cursor && !out->next_url;
    bool by_url = out->next_url && !out->next_cursor && !out->next_more && !out->next_last_id && !out->next_query;
    if (!by_cursor && !by_last && !by_url)
        problems_add(parent->problems, section.pointer, "expected {cursor, query}, {more, last_id, query} or {url}");
    else if (!out->items)
        problems_add(parent->problems, section.pointer, "needs items: pages are lists");
}

static void read_lookup_requests(struct section *section, struct http_tool *tool, struct http_lookup *out)
{
    const struct json *request = section_member(section, "request"), *by_id = section_member(section, "by_id");
    if (request)
        out->request = http_request_new(request, section_pointer(section, STR("request")), tool->provider,
                                        HTTP_USE_LOOKUP, section->problems);
    if (by_id)
        out->by_id = http_request_new(by_id, section_pointer(section, STR("by_id")), tool->provider, HTTP_USE_LOOKUP,
                                      section->problems);
    if (!request)
        section_problem(section, "request", "is missing: by_id alone finds nothing while the provider's id is unknown");
}

static void read_lookup(const struct json *value, const char *pointer, struct problems *problems,
                        struct http_tool *tool)
{
    static const int not_found[] = {404, 0};
    struct http_lookup *out = mem_zero(sizeof *out);
    struct section section;
    tool->lookup = out;
    section_open(&section, value, pointer, problems);
    read_lookup_requests(&section, tool, out);
    out->items = read_pointer(&section, "items");
    http_equalities_read(&section, "match", &out->match);
    http_equalities_read(&section, "verify", &out->verify);
    if (section.value && out->items && out->match.count == 0)
        section_problem(&section, "match", "is missing: which of the items is ours?");
    read_next(&section, out);
    out->pages_max = section_int(&section, "pages_max", 100, 1, 10000);
    out->absent_stated = section_member(&section, "absent_status") != NULL;
    http_statuses_read(&section, "absent_status", not_found, &out->absent_status);
    out->pending = http_jq_read(&section, "pending");
    out->failed = http_jq_read(&section, "failed");
    http_extract_read(&section, "external_id", NULL, &out->external_id);
    http_extract_read(&section, "result", "", &out->result);
    section_close(&section);
}

static void copy_redact(struct http_tool *tool, const struct tool *core)
{
    tool->redact = mem_zero(sizeof *tool->redact * (core->redact_count + 1));
    for (size_t i = 0; i < core->redact_count; i++)
        tool->redact[tool->redact_count++] = mem_copy_text(core->redact_pointers[i]);
}

struct http_tool *http_tool_new(const struct json *value, const char *pointer, const struct http_provider *provider,
                                struct tool *core, struct problems *problems)
{
    size_t errors = problems->errors;
    struct http_tool *tool = mem_zero(sizeof *tool);
    struct section section;
    tool->refs = 1;
    /* the caller lends its provider; answers on the wire need it for longer */
    tool->provider = (struct http_provider *)provider;
    http_provider_ref(tool->provider);
    tool->write = tool_is_write(core);
    copy_redact(tool, core);
    section_open(&section, value, pointer, problems);
    tool->timeout_ms = section_ms(&section, "timeout", provider->wire.timeout_ms, 1, INT64_C(60) * 60 * 1000);
    core->timeout_ms = tool->timeout_ms;
    const struct json *request = section_member(&section, "request"), *lookup = section_member(&section, "lookup");
    if (request)
        tool->request = http_request_new(request, section_pointer(&section, STR("request")), provider,
                                         tool->write ? HTTP_USE_WRITE : HTTP_USE_READ, problems);
    else
        section_problem(&section, "request", "is missing, expected at least a path");
    if (lookup)
        read_lookup(lookup, section_pointer(&section, STR("lookup")), problems, tool);
    read_response(section_member(&section, "response"), section_pointer(&section, STR("response")), problems, core,
                  tool);
    http_equalities_read(&section, "verify", &tool->verify);
    if (tool->verify.count > 0 && tool->response.body == HTTP_ANSWER_NONE)
        section_problem(&section, "verify", "needs an answer to look into, but response.body is none");
    if (problems->errors == errors)
        return tool;
    http_tool_free(tool);
    return NULL;
}
