/* The headers of modern requests repeat what the body says, so that proxies can route by them; here both are held
 * against each other (2026-07-28, "standard headers" and "custom headers from tool parameters"). */
#include "adapter/mcp_headers.h"
#include "base/base64.h"
#include "base/mem.h"
#include "door/mcp_http_parts.h"

#include <stdlib.h>
#include <strings.h>

#define PARAMS_MAX      64  /* headers of one tool that are looked at */
#define PARAM_DEPTH_MAX 16  /* of nested properties */
#define NAME_BYTES_MAX  128 /* of a header's name */
#define SHOWN_BYTES_MAX 200 /* of a value in an error */

/* ---- values ---- */

static struct str trim(struct str value)
{
    while (value.n > 0 && (value.p[0] == ' ' || value.p[0] == '\t'))
        value.p++, value.n--;
    while (value.n > 0 && (value.p[value.n - 1] == ' ' || value.p[value.n - 1] == '\t'))
        value.n--;
    return value;
}

/* With its padding, nothing between, no bits left over: every value has one spelling. */
static bool decode_base64(struct arena *arena, struct str text, struct str *out)
{
    if (text.n % 4 != 0 || (text.n > 0 && text.p[text.n - 3] == '='))
        return false;
    unsigned char *bytes = arena_alloc(arena, BASE64_DECODED_MAX(text.n));
    size_t n;
    if (!base64_decode(text, bytes, &n))
        return false;
    *out = (struct str){(const char *)bytes, n};
    return true;
}

#define SENTINEL_START "=?base64?"
#define SENTINEL_END   "?="

bool mcp_header_decode(struct arena *arena, struct str value, struct str *out)
{
    const size_t start = sizeof SENTINEL_START - 1, end = sizeof SENTINEL_END - 1;
    value = trim(value);
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c < 0x20 && c != '\t') || c > 0x7e)
            return false;
    }
    *out = value;
    if (value.n < start + end || memcmp(value.p, SENTINEL_START, start) != 0 ||
        memcmp(value.p + value.n - end, SENTINEL_END, end) != 0)
        return true;
    return decode_base64(arena, (struct str){value.p + start, value.n - start - end}, out);
}

/* ---- faults ---- */

static struct str shorten(struct str text)
{
    return text.n > SHOWN_BYTES_MAX ? (struct str){text.p, SHOWN_BYTES_MAX} : text;
}

static bool mismatch(struct exchange *exchange, struct header_fault *fault, const char *header, struct str is,
                     struct str body)
{
    struct buf data;
    struct json_out out;
    buf_init(&data, 0);
    json_out_init(&out, &data);
    json_out_object(&out);
    json_out_name(&out, "mismatch");
    json_out_object(&out);
    json_out_member_text(&out, "name", header);
    json_out_name(&out, "body");
    json_out_str(&out, shorten(body));
    json_out_end_object(&out);
    json_out_end_object(&out);
    *fault = (struct header_fault){
        .code = MCP_HEADER_MISMATCH,
        .text =
            arena_printf(&exchange->arena,
                         is.p ? "the header %s does not say what the body says" : "the header %s is missing", header),
        .data = arena_str(&exchange->arena, buf_str(&data)),
    };
    buf_release(&data);
    return false;
}

/* What a header must say. */
static bool check_text(struct exchange *exchange, const char *header, struct str is, struct str wanted,
                       struct header_fault *fault)
{
    struct str value;
    if (is.p && mcp_header_decode(&exchange->arena, is, &value) && str_equal(value, wanted))
        return true;
    return mismatch(exchange, fault, header, is, wanted);
}

/* A field that came twice is the list of both. */
static struct str whole_header(struct exchange *exchange, enum header header)
{
    struct str value = exchange->headers[header];
    if (exchange->repeated & (uint32_t)1 << header)
        value = exchange_header(exchange, header_name(header));
    return value.p ? trim(value) : value;
}

/* ---- Mcp-Name ---- */

static bool check_name(struct exchange *exchange, const struct rpc_message *message, struct header_fault *fault)
{
    const char *member = mcp_name_member(message->method);
    struct str header = whole_header(exchange, HEADER_MCP_NAME);
    const struct json *value = member && message->params ? json_get(message->params, member) : NULL;
    if (!member)
        return true;
    if (!value || value->type != JSON_STRING) /* refused as bad params, later */
        return header.p || mismatch(exchange, fault, "Mcp-Name", STR_NONE, STR_NONE);
    return check_text(exchange, "Mcp-Name", header, value->text, fault);
}

/* ---- Mcp-Param-… ---- */

struct header_param {
    struct header_param *next;
    const char *header;                /* lower case, with "mcp-param-" */
    const char *path[PARAM_DEPTH_MAX]; /* of the argument */
    unsigned depth;
};

struct header_plan {
    struct arena arena; /* of itself too */
    struct header_param *params;
};

static bool is_token(struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c && strchr("!#$%&'*+-.^_`|~", c))))
            return false;
    }
    return text.n > 0 && text.n <= NAME_BYTES_MAX;
}

static void add_param(struct header_plan *plan, struct str name, const char *const *path, unsigned depth)
{
    struct header_param *param = arena_zero(&plan->arena, sizeof *param);
    char *header = arena_printf(&plan->arena, "mcp-param-%.*s", STR_ARG(name));
    for (char *p = header; *p; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p | 0x20) : *p;
    param->header = header;
    param->depth = depth;
    memcpy(param->path, path, depth * sizeof *path);
    param->next = plan->params;
    plan->params = param;
}

/* Only what is reached through `properties` can have a header. */
static void collect(struct header_plan *plan, const struct json *schema, const char **path, unsigned depth,
                    unsigned *count)
{
    const struct json *properties = schema->type == JSON_OBJECT ? json_get(schema, "properties") : NULL;
    if (!properties || properties->type != JSON_OBJECT || depth >= PARAM_DEPTH_MAX)
        return;
    for (uint32_t i = 0; i < properties->count; i++) {
        const struct json *property = &properties->members[i].value;
        const struct json *name = json_get(property, "x-mcp-header");
        path[depth] = arena_copy_str(&plan->arena, properties->members[i].name);
        if (name && name->type == JSON_STRING && is_token(name->text) && ++*count <= PARAMS_MAX)
            add_param(plan, name->text, path, depth + 1);
        collect(plan, property, path, depth + 1, count);
    }
}

static struct header_plan *plan_new(const struct tool *tool)
{
    struct arena arena;
    const char *path[PARAM_DEPTH_MAX];
    unsigned count = 0;
    arena_init(&arena);
    struct header_plan *plan = arena_zero(&arena, sizeof *plan);
    plan->arena = arena;
    if (tool->input_schema_json)
        collect(plan, tool->input_schema_json, path, 0, &count);
    return plan;
}

static void plan_free(struct header_plan *plan)
{
    struct arena arena = plan->arena;
    arena_release(&arena);
}

void mcp_headers_forget(struct mcp_http *http)
{
    size_t at = 0;
    for (struct header_plan *plan = map_next(&http->plans, &at); plan; plan = map_next(&http->plans, &at))
        plan_free(plan);
    map_release(&http->plans);
    map_init(&http->plans);
    registry_unref(http->registry);
    http->registry = NULL;
}

/* Worked out once per tool and registry. */
static const struct header_plan *plan_of(struct mcp_http *http, const struct tool *tool)
{
    struct registry *registry = engine_registry(http->door->engine);
    if (http->registry != registry) {
        mcp_headers_forget(http);
        http->registry = registry_ref(registry);
    }
    struct header_plan *plan = map_get(&http->plans, tool->name);
    if (!plan) {
        plan = plan_new(tool);
        map_put(&http->plans, tool->name, plan);
    }
    return plan;
}

static bool is_same_number(struct arena *arena, struct str text, struct str number)
{
    struct json *value;
    struct err err = {0};
    return !json_parse(arena, text, NULL, &value, &err) && value->type == JSON_NUMBER &&
           json_number_compare(value->text, number) == 0;
}

static bool is_same_value(struct arena *arena, struct str header, const struct json *value)
{
    struct str text;
    if (!mcp_header_decode(arena, header, &text))
        return false;
    switch (value->type) {
    case JSON_STRING: return str_equal(text, value->text);
    case JSON_NUMBER: return is_same_number(arena, text, value->text);
    case JSON_BOOL: return str_is(text, value->boolean ? "true" : "false");
    case JSON_NULL:
    case JSON_ARRAY:
    case JSON_OBJECT: return true; /* the tool's schema has a word to say */
    }
    return false;
}

static bool check_param(struct exchange *exchange, const struct header_param *param, const struct json *arguments,
                        struct header_fault *fault)
{
    const struct json *value = arguments;
    for (unsigned i = 0; i < param->depth && value; i++)
        value = json_get(value, param->path[i]);
    if (!value || value->type == JSON_NULL || value->type == JSON_ARRAY || value->type == JSON_OBJECT)
        return true;
    struct str header = exchange_header(exchange, param->header);
    if (header.p && is_same_value(&exchange->arena, header, value))
        return true;
    struct str body = value->type == JSON_BOOL ? str_of(value->boolean ? "true" : "false") : value->text;
    return mismatch(exchange, fault, param->header, header, body);
}

static bool check_params(struct mcp_http *http, struct exchange *exchange, const struct rpc_message *message,
                         struct header_fault *fault)
{
    const struct json *arguments = message->params ? json_get(message->params, "arguments") : NULL;
    if (strcmp(message->method, "tools/call") != 0 || !arguments || arguments->type != JSON_OBJECT)
        return true;
    struct registry *registry = engine_registry(http->door->engine);
    const struct tool *tool = registry_find(registry, json_get_text(message->params, "name"));
    if (!tool || !caller_may_use(registry, exchange->caller.principal, exchange->caller.scope, tool))
        return true; /* refused later, in words that do not tell whether there is such a tool */
    for (const struct header_param *param = plan_of(http, tool)->params; param; param = param->next) {
        if (!check_param(exchange, param, arguments, fault))
            return false;
    }
    return true;
}

/* ---- all of them ---- */

static bool unsupported(struct exchange *exchange, struct str requested, struct header_fault *fault)
{
    struct buf data;
    buf_init(&data, 0);
    buf_add_text(&data, "{\"supported\":[\"" MCP_MODERN_VERSION "\"],\"requested\":");
    json_write_string(&data, shorten(requested));
    buf_add_text(&data, "}");
    *fault = (struct header_fault){
        .code = MCP_UNSUPPORTED_VERSION,
        .text = "this protocol version is not supported; supported: " MCP_MODERN_VERSION
                ", and the revisions from 2025-03-26 to " MCP_LEGACY_VERSION " by initialize",
        .data = arena_str(&exchange->arena, buf_str(&data)),
    };
    buf_release(&data);
    return false;
}

bool mcp_headers_check(struct mcp_http *http, struct exchange *exchange, const struct rpc_message *message,
                       struct header_fault *fault)
{
    struct str header = whole_header(exchange, HEADER_MCP_VERSION), method = whole_header(exchange, HEADER_MCP_METHOD);
    struct buf missing;
    buf_init(&missing, 0);
    bool complete = mcp_envelope_complete(message, &missing);
    if (!complete)
        *fault = (struct header_fault){RPC_INVALID_PARAMS, "params._meta lacks what every request must have",
                                       arena_str(&exchange->arena, buf_str(&missing))};
    buf_release(&missing);
    if (!complete)
        return false;
    struct str version = json_get_text(json_get(message->params, "_meta"), MCP_META_VERSION);
    if (header.p && !check_text(exchange, "MCP-Protocol-Version", header, version, fault))
        return false;
    if (method.p && !check_text(exchange, "Mcp-Method", method, str_of(message->method), fault))
        return false;
    if (!str_is(version, MCP_MODERN_VERSION))
        return unsupported(exchange, version, fault);
    return check_text(exchange, "MCP-Protocol-Version", header, version, fault) &&
           check_text(exchange, "Mcp-Method", method, str_of(message->method), fault) &&
           check_name(exchange, message, fault) && check_params(http, exchange, message, fault);
}
