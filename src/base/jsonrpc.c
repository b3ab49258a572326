#include "base/jsonrpc.h"

#include <inttypes.h>

/* ---- ids ---- */

/* The id as it is written back: two spellings of one id give one text. False: no id that we take. */
static bool read_id(struct arena *arena, const struct json *value, struct str *out, struct err *err)
{
    struct buf text;
    bool whole = value->type == JSON_NUMBER && json_number_is_integer(value->text);
    if (value->type != JSON_STRING && !whole)
        return err_set(err, ERR_INVALID, "\"id\" is neither a string nor a whole number"), false;
    buf_init(&text, RPC_ID_BYTES_MAX);
    if (whole)
        json_canonical_number(&text, value->text);
    else
        json_write_string(&text, value->text);
    if (!text.over)
        *out = arena_str(arena, buf_str(&text));
    else
        err_set(err, ERR_LIMIT, "\"id\" is longer than %d bytes", RPC_ID_BYTES_MAX);
    buf_release(&text);
    return err->code == ERR_NONE;
}

/* ---- a glance: the outermost object, without looking into its values ---- */

struct walk {
    const char *at, *end;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void walk_space(struct walk *walk)
{
    while (walk->at < walk->end && is_space(*walk->at))
        walk->at++;
}

static bool walk_char(struct walk *walk, char c)
{
    walk_space(walk);
    if (walk->at == walk->end || *walk->at != c)
        return false;
    walk->at++;
    return true;
}

/* Behind the quote that ends a string; at stands on the one that opens it. */
static bool walk_string(struct walk *walk)
{
    for (walk->at++; walk->at < walk->end; walk->at++) {
        if (*walk->at == '\\')
            walk->at++;
        else if (*walk->at == '"')
            return walk->at++, true;
    }
    walk->at = walk->end;
    return false;
}

/* Over one value, whatever is in it, to the comma or bracket behind it. */
static bool walk_value(struct walk *walk)
{
    size_t depth = 0;
    while (walk->at < walk->end) {
        char c = *walk->at;
        if (c == '"') {
            if (!walk_string(walk))
                return false;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}'))
            return true;
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && depth-- == 0)
            return false;
        walk->at++;
    }
    return false;
}

static struct str walk_name(struct walk *walk)
{
    walk_space(walk);
    const char *start = walk->at;
    if (start == walk->end || *start != '"' || !walk_string(walk))
        return STR_NONE;
    return (struct str){start, (size_t)(walk->at - start)};
}

static const struct json *read_scalar(struct arena *arena, struct str text)
{
    static const struct json_limits limits = {.bytes_max = 8 * RPC_ID_BYTES_MAX, .depth_max = 1, .values_max = 1};
    struct json *value;
    return text.p && json_parse(arena, text, &limits, &value, NULL) == ERR_NONE ? value : NULL;
}

struct rpc_glance rpc_glance(struct arena *arena, struct str text)
{
    struct walk walk = {text.p, text.p + text.n};
    struct rpc_glance glance = {.id = STR_NONE, .method = STR_NONE};
    struct str id = STR_NONE, method = STR_NONE;
    unsigned ids = 0;
    for (char open = '{'; walk_char(&walk, open); open = ',') {
        struct str name = walk_name(&walk);
        if (!name.p || !walk_char(&walk, ':'))
            break;
        walk_space(&walk);
        const char *start = walk.at;
        bool whole = walk_value(&walk);
        struct str value = {start, (size_t)(walk.at - start)};
        glance.result |= str_is(name, "\"result\"");
        glance.error |= str_is(name, "\"error\"");
        if (str_is(name, "\"method\"") && whole)
            method = value;
        if (str_is(name, "\"id\"") && ++ids == 1 && whole)
            id = value;
        if (!whole)
            break;
    }
    struct err err = {0};
    const struct json *value = ids == 1 ? read_scalar(arena, id) : NULL;
    if (value && !read_id(arena, value, &glance.id, &err))
        glance.id = STR_NONE;
    value = read_scalar(arena, method);
    if (value && value->type == JSON_STRING)
        glance.method = value->text;
    return glance;
}

/* A client that waits for an answer must get one, also when its arguments are no JSON (a lone surrogate, a duplicate
 * name) or are over a limit. Only of a request, and only when it has one id: an error for another's would end the wrong
 * call. */
static struct str find_id(struct arena *arena, struct str text)
{
    struct rpc_glance glance = rpc_glance(arena, text);
    return glance.method.p && !glance.result && !glance.error ? glance.id : STR_NONE;
}

/* ---- reading ---- */

static bool read_request(struct arena *arena, const struct json *tree, const struct json *method,
                         struct rpc_message *out, struct err *err)
{
    const struct json *params = json_get(tree, "params");
    if (method->type != JSON_STRING)
        return err_set(err, ERR_INVALID, "\"method\" is not a string"), false;
    if (method->text.n > RPC_METHOD_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "\"method\" is longer than %d bytes", RPC_METHOD_BYTES_MAX), false;
    if (method->text.n > 0 && memchr(method->text.p, '\0', method->text.n))
        return err_set(err, ERR_INVALID, "\"method\" holds a NUL"), false;
    if (json_get(tree, "result") || json_get(tree, "error"))
        return err_set(err, ERR_INVALID, "a message has \"method\", or \"result\" or \"error\", not both"), false;
    if (params && params->type == JSON_NULL)
        params = NULL; /* some clients write what they do not have */
    if (params && params->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "\"params\" is not an object"), false;
    out->kind = json_get(tree, "id") ? RPC_REQUEST : RPC_NOTIFICATION;
    out->method = arena_copy_str(arena, method->text);
    out->params = params;
    return true;
}

static bool read_error(const struct json *error, struct rpc_message *out, struct err *err)
{
    const struct json *code = json_get(error, "code"), *message = json_get(error, "message");
    if (error->type != JSON_OBJECT || !code || code->type != JSON_NUMBER ||
        !json_number_int64(code->text, &out->code) || !message || message->type != JSON_STRING)
        return err_set(err, ERR_INVALID, "\"error\" is not an object with a whole number \"code\" and a \"message\""),
               false;
    out->kind = RPC_ERROR;
    out->message = message->text;
    out->data = json_get(error, "data");
    return true;
}

static bool read_reply(const struct json *tree, struct rpc_message *out, struct err *err)
{
    const struct json *result = json_get(tree, "result"), *error = json_get(tree, "error");
    if (result && error && error->type == JSON_NULL)
        error = NULL; /* JSON-RPC 1.0 wrote both, the one that does not hold as null */
    if (result && error && result->type == JSON_NULL)
        result = NULL;
    if (!result && !error)
        return err_set(err, ERR_INVALID, "a message has \"method\", \"result\" or \"error\""), false;
    if (result && error)
        return err_set(err, ERR_INVALID, "a message has \"result\" or \"error\", not both"), false;
    if (error)
        return read_error(error, out, err);
    out->kind = RPC_RESULT;
    out->result = result;
    return true;
}

static bool read_members(struct arena *arena, const struct json *tree, struct rpc_message *out, struct err *err)
{
    const struct json *version = json_get(tree, "jsonrpc"), *id = json_get(tree, "id");
    const struct json *method = json_get(tree, "method");
    /* An error that tells of a text without a readable id has none. */
    bool no_id = !id || (id->type == JSON_NULL && !method && json_get(tree, "error"));
    if (!no_id && !read_id(arena, id, &out->id, err))
        return false;
    if (!version || version->type != JSON_STRING || !str_is(version->text, "2.0"))
        return err_set(err, ERR_INVALID, "\"jsonrpc\" is not \"2.0\""), false;
    if (method)
        return read_request(arena, tree, method, out, err);
    if (!read_reply(tree, out, err))
        return false;
    if (no_id && out->kind == RPC_RESULT)
        return err_set(err, ERR_INVALID, "a result has an \"id\""), false;
    return true;
}

static bool refuse(struct rpc_fault *fault, int code, struct str id, const struct err *err)
{
    *fault = (struct rpc_fault){.code = code, .id = id, .err = *err};
    return false;
}

bool rpc_read(struct arena *arena, struct str text, const struct json_limits *limits, struct rpc_message *out,
              struct rpc_fault *fault)
{
    struct rpc_message message = {.id = STR_NONE};
    struct json *tree;
    struct err err = {0};
    enum err_code code = json_parse(arena, text, limits, &tree, &err);
    if (code)
        return refuse(fault, code == ERR_LIMIT ? RPC_INVALID_REQUEST : RPC_PARSE_ERROR, find_id(arena, text), &err);
    if (tree->type != JSON_OBJECT) {
        err_set(&err, ERR_INVALID, "a message is an object, not %s%s", json_type_name(tree->type),
                tree->type == JSON_ARRAY ? ": batches are not taken" : "");
        return refuse(fault, RPC_INVALID_REQUEST, STR_NONE, &err);
    }
    if (!read_members(arena, tree, &message, &err)) {
        bool reply = json_get(tree, "result") || json_get(tree, "error");
        return refuse(fault, RPC_INVALID_REQUEST, reply ? STR_NONE : message.id, &err);
    }
    message.tree = tree;
    *out = message;
    return true;
}

/* ---- writing ---- */

static void open_message(struct buf *out)
{
    buf_add_text(out, "{\"jsonrpc\":\"2.0\"");
}

static void add_id(struct buf *out, struct str id)
{
    buf_add_text(out, ",\"id\":");
    buf_add_str(out, id.p ? id : STR("null"));
}

static void add_method(struct buf *out, const char *method, struct str params)
{
    buf_add_text(out, ",\"method\":");
    json_write_string(out, str_of(method));
    if (params.p) {
        buf_add_text(out, ",\"params\":");
        buf_add_str(out, params);
    }
    buf_add_char(out, '}');
}

void rpc_write_request(struct buf *out, struct str id, const char *method, struct str params)
{
    open_message(out);
    add_id(out, id);
    add_method(out, method, params);
}

void rpc_write_notification(struct buf *out, const char *method, struct str params)
{
    open_message(out);
    add_method(out, method, params);
}

void rpc_write_result(struct buf *out, struct str id, struct str result)
{
    open_message(out);
    add_id(out, id);
    buf_add_text(out, ",\"result\":");
    buf_add_str(out, result);
    buf_add_char(out, '}');
}

void rpc_write_error(struct buf *out, struct str id, int64_t code, struct str message, struct str data)
{
    open_message(out);
    add_id(out, id);
    buf_printf(out, ",\"error\":{\"code\":%" PRId64 ",\"message\":", code);
    json_write_string(out, message.p ? message : STR(""));
    if (data.p) {
        buf_add_text(out, ",\"data\":");
        buf_add_str(out, data);
    }
    buf_add_text(out, "}}");
}
