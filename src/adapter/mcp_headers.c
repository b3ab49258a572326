#include "adapter/mcp_headers.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <strings.h>

#define SENTINEL_START "=?base64?"
#define SENTINEL_END   "?="
#define DEPTH_MAX      64 /* of a schema; what lies deeper has no headers */
#define NAME_BYTES_MAX 256

/* ---- values ---- */

static bool has_ends(struct str text, const char *start, const char *end)
{
    size_t a = strlen(start), z = strlen(end);
    return text.n >= a + z && memcmp(text.p, start, a) == 0 && memcmp(text.p + text.n - z, end, z) == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* A header can carry it as it is, and nobody would take it for an encoded one. */
static bool is_plain(struct str text)
{
    if (text.n == 0 || is_blank(text.p[0]) || is_blank(text.p[text.n - 1]))
        return false;
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if ((c < 0x20 && c != '\t') || c > 0x7e)
            return false;
    }
    return !has_ends(text, SENTINEL_START, SENTINEL_END);
}

static void add_encoded(struct buf *out, struct str text)
{
    unsigned char chunk[65]; /* 48 bytes and the NUL */
    buf_add_text(out, SENTINEL_START);
    for (size_t at = 0; at < text.n; at += 48) {
        size_t n = text.n - at < 48 ? text.n - at : 48;
        int length = EVP_EncodeBlock(chunk, (const unsigned char *)text.p + at, (int)n);
        buf_add(out, (const char *)chunk, (size_t)length);
    }
    buf_add_text(out, SENTINEL_END);
}

static void give(mcp_header_fn *header, void *user, const char *name, struct str value)
{
    struct buf encoded;
    if (is_plain(value)) {
        header(user, name, value);
        return;
    }
    buf_init(&encoded, 0);
    add_encoded(&encoded, value);
    header(user, name, buf_str(&encoded));
    buf_release(&encoded);
}

/* ---- x-mcp-header ---- */

/* Schemas below these are not reached through `properties` alone: no argument could be named for a header there. */
static const char *const elsewhere[] = {"items",
                                        "prefixItems",
                                        "contains",
                                        "additionalProperties",
                                        "unevaluatedProperties",
                                        "unevaluatedItems",
                                        "propertyNames",
                                        "oneOf",
                                        "anyOf",
                                        "allOf",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        NULL};
static const char *const elsewhere_by_name[] = {"patternProperties", "dependentSchemas", "$defs", "definitions", NULL};

struct scan {
    struct err *err;
    /* names found so far */
    struct str *names;
    size_t count;
    struct arena *arena;
};

static bool is_token(struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return text.n > 0 && text.n <= NAME_BYTES_MAX;
}

static enum err_code check_name(struct scan *scan, const struct json *schema, const struct json *name, struct str at)
{
    struct str type = json_get_text(schema, "type");
    int shown = at.n > 64 ? 64 : (int)at.n;
    if (name->type != JSON_STRING || !is_token(name->text))
        return err_set(scan->err, ERR_INVALID, "%.*s: x-mcp-header is no header name", shown, at.p);
    if (!str_is(type, "string") && !str_is(type, "integer") && !str_is(type, "boolean"))
        return err_set(scan->err, ERR_INVALID, "%.*s: x-mcp-header is for string, integer and boolean only", shown,
                       at.p);
    for (size_t i = 0; i < scan->count; i++) {
        if (scan->names[i].n == name->text.n && strncasecmp(scan->names[i].p, name->text.p, name->text.n) == 0)
            return err_set(scan->err, ERR_INVALID, "%.*s: x-mcp-header %.*s is given twice", shown, at.p,
                           STR_ARG(name->text));
    }
    if ((scan->count & (scan->count - 1)) == 0) { /* doubles */
        struct str *longer = arena_alloc(scan->arena, (scan->count ? 2 * scan->count : 1) * sizeof *longer);
        if (scan->count)
            memcpy(longer, scan->names, scan->count * sizeof *longer);
        scan->names = longer;
    }
    scan->names[scan->count++] = name->text;
    return ERR_NONE;
}

static enum err_code check_schema(struct scan *scan, const struct json *schema, struct str at, bool reachable,
                                  unsigned depth);

static enum err_code check_all(struct scan *scan, const struct json *values, struct str at, bool reachable,
                               unsigned depth)
{
    enum err_code code = ERR_NONE;
    for (uint32_t i = 0; values && code == ERR_NONE && i < values->count; i++) {
        if (values->type == JSON_OBJECT)
            code = check_schema(scan, &values->members[i].value, reachable ? values->members[i].name : at, reachable,
                                depth + 1);
        else if (values->type == JSON_ARRAY)
            code = check_schema(scan, &values->items[i], at, reachable, depth + 1);
        else
            break;
    }
    return code;
}

static enum err_code check_schema(struct scan *scan, const struct json *schema, struct str at, bool reachable,
                                  unsigned depth)
{
    if (schema->type != JSON_OBJECT || depth > DEPTH_MAX)
        return ERR_NONE;
    enum err_code code = ERR_NONE;
    const struct json *name = json_get(schema, "x-mcp-header");
    if (name && (!reachable || depth == 0))
        code = err_set(scan->err, ERR_INVALID, "%.*s: x-mcp-header is not reached through properties alone",
                       at.n > 64 ? 64 : (int)at.n, at.p);
    else if (name)
        code = check_name(scan, schema, name, at);
    if (code == ERR_NONE)
        code = check_all(scan, json_get(schema, "properties"), at, reachable, depth);
    for (size_t i = 0; code == ERR_NONE && elsewhere[i]; i++) {
        const struct json *value = json_get(schema, elsewhere[i]);
        if (value && value->type == JSON_ARRAY)
            code = check_all(scan, value, at, false, depth);
        else if (value)
            code = check_schema(scan, value, at, false, depth + 1);
    }
    for (size_t i = 0; code == ERR_NONE && elsewhere_by_name[i]; i++)
        code = check_all(scan, json_get(schema, elsewhere_by_name[i]), at, false, depth);
    return code;
}

enum err_code mcp_tool_headers_check(const struct json *tool, struct err *err)
{
    struct arena arena;
    struct scan scan = {.err = err, .arena = &arena};
    const struct json *schema = json_get(tool, "inputSchema");
    arena_init(&arena);
    enum err_code code = schema ? check_schema(&scan, schema, STR("inputSchema"), true, 0) : ERR_NONE;
    if (code != ERR_NONE) {
        struct str name = json_get_text(tool, "name");
        err_prefix(err, "%.*s: ", name.n > 64 ? 64 : (int)name.n, name.p ? name.p : "");
    }
    arena_release(&arena);
    return code;
}

/* ---- headers ---- */

static void give_param(mcp_header_fn *header, void *user, struct str name, const struct json *value)
{
    char whole[16 + NAME_BYTES_MAX];
    struct buf number;
    snprintf(whole, sizeof whole, "Mcp-Param-%.*s", STR_ARG(name));
    switch (value->type) {
    case JSON_STRING: give(header, user, whole, value->text); break;
    case JSON_BOOL: give(header, user, whole, value->boolean ? STR("true") : STR("false")); break;
    case JSON_NUMBER:
        buf_init(&number, 0);
        json_canonical_number(&number, value->text);
        give(header, user, whole, buf_str(&number));
        buf_release(&number);
        break;
    case JSON_NULL: /* the same as absent */
    case JSON_ARRAY:
    case JSON_OBJECT: break; /* the server refuses them anyway */
    }
}

static void give_params(mcp_header_fn *header, void *user, const struct json *schema, const struct json *arguments,
                        unsigned depth)
{
    const struct json *properties = json_get(schema, "properties");
    if (!properties || properties->type != JSON_OBJECT || !arguments || arguments->type != JSON_OBJECT ||
        depth > DEPTH_MAX)
        return;
    for (uint32_t i = 0; i < properties->count; i++) {
        const struct json *property = &properties->members[i].value, *name = json_get(property, "x-mcp-header");
        const struct json *value = json_get_str(arguments, properties->members[i].name);
        if (!value)
            continue;
        if (name && name->type == JSON_STRING && is_token(name->text))
            give_param(header, user, name->text, value);
        give_params(header, user, property, value, depth + 1);
    }
}

const char *mcp_name_member(const char *method)
{
    static const struct {
        const char *method, *member;
    } named[] = {{"tools/call", "name"},  {"prompts/get", "name"},    {"resources/read", "uri"},
                 {"tasks/get", "taskId"}, {"tasks/update", "taskId"}, {"tasks/cancel", "taskId"}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strcmp(named[i].method, method) == 0)
            return named[i].member;
    }
    return NULL;
}

void mcp_request_headers(const char *method, const struct json *params, const struct json *tool, mcp_header_fn *header,
                         void *user)
{
    const char *member = mcp_name_member(method);
    struct str name = member ? json_get_text(params, member) : STR_NONE;
    give(header, user, "Mcp-Method", str_of(method));
    if (name.p)
        give(header, user, "Mcp-Name", name);
    if (tool)
        give_params(header, user, json_get(tool, "inputSchema"), json_get(params, "arguments"), 0);
}
