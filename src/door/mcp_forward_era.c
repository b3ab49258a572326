/* Parameters, results and errors across eras. Pure. What the server's era demands in _meta is the adapter's part. */
#include "door/mcp_forward.h"

static void write_name(struct buf *out, bool *first, struct str name)
{
    buf_add_char(out, *first ? '{' : ',');
    *first = false;
    json_write_string(out, name);
    buf_add_char(out, ':');
}

static void write_raw(struct buf *out, bool *first, const char *name, struct str text)
{
    write_name(out, first, str_of(name));
    buf_add_str(out, text);
}

/* An object with one text member replaced. */
static void write_replaced(struct buf *out, const struct json *object, const char *name, struct str text)
{
    bool first = true;
    for (uint32_t i = 0; i < object->count; i++) {
        write_name(out, &first, object->members[i].name);
        if (str_is(object->members[i].name, name))
            json_write_string(out, text);
        else
            json_write(out, &object->members[i].value);
    }
    buf_add_text(out, first ? "{}" : "}");
}

/* Tasks are between onced and its client: a server behind it that answered with one of its own would not be found. */
void era_write_capabilities(struct buf *out, const struct json *capabilities)
{
    bool first = true;
    for (uint32_t i = 0; capabilities && capabilities->type == JSON_OBJECT && i < capabilities->count; i++) {
        const struct json_member *member = &capabilities->members[i];
        write_name(out, &first, member->name);
        if (!str_is(member->name, "extensions") || member->value.type != JSON_OBJECT) {
            json_write(out, &member->value);
            continue;
        }
        bool none = true;
        for (uint32_t j = 0; j < member->value.count; j++) {
            const struct json_member *extension = &member->value.members[j];
            if (str_is(extension->name, MCP_EXTENSION_TASKS))
                continue;
            write_name(out, &none, extension->name);
            json_write(out, &extension->value);
        }
        buf_add_text(out, none ? "{}" : "}");
    }
    buf_add_text(out, first ? "{}" : "}");
}

/* A modern server logs what the request asks for, a legacy client asks once per session. */
static bool wants_level(const struct mcp_request *request, bool to_modern)
{
    return to_modern && request->era == MCP_ERA_LEGACY && request->log_level >= 0;
}

static void write_meta(struct buf *out, const struct mcp_request *request, const struct json *meta, bool to_modern)
{
    bool first = true;
    for (uint32_t i = 0; meta && meta->type == JSON_OBJECT && i < meta->count; i++) {
        write_name(out, &first, meta->members[i].name);
        if (str_is(meta->members[i].name, MCP_META_CAPABILITIES))
            era_write_capabilities(out, &meta->members[i].value);
        else
            json_write(out, &meta->members[i].value);
    }
    if (wants_level(request, to_modern) && !json_get(meta, MCP_META_LOG_LEVEL)) {
        write_name(out, &first, STR(MCP_META_LOG_LEVEL));
        json_write_string(out, str_of(mcp_log_levels[request->log_level]));
    }
    buf_add_text(out, first ? "{}" : "}");
}

/* Members that the client sent and the server is not to see as they are. */
static bool is_left_out(const struct mcp_request *request, struct str name, bool to_modern,
                        const struct era_params *change)
{
    if (str_is(name, "inputResponses"))
        return !to_modern || change->responses.p || change->state.p;
    if (str_is(name, "requestState"))
        return !to_modern || change->responses.p || change->state.p;
    if (str_is(name, "task")) /* legacy tasks are between legacy sides only */
        return to_modern || request->era != MCP_ERA_LEGACY;
    return str_is(name, "cursor") && change->cursor.p;
}

void era_write_params(struct buf *out, const struct mcp_request *request, bool to_modern,
                      const struct era_params *change)
{
    const struct json *params = request->message.params;
    bool first = true, has_meta = false;
    for (uint32_t i = 0; params && i < params->count; i++) {
        struct str name = params->members[i].name;
        const struct json *value = &params->members[i].value;
        if (is_left_out(request, name, to_modern, change))
            continue;
        write_name(out, &first, name);
        if (str_is(name, "_meta")) {
            has_meta = true;
            write_meta(out, request, value, to_modern);
        } else if (change->name && str_is(name, "name")) {
            json_write_string(out, str_of(change->name));
        } else if (change->prompt.p && str_is(name, "ref") && value->type == JSON_OBJECT) {
            write_replaced(out, value, "name", change->prompt);
        } else {
            json_write(out, value);
        }
    }
    if (!has_meta && wants_level(request, to_modern)) {
        write_name(out, &first, STR("_meta"));
        write_meta(out, request, NULL, to_modern);
    }
    if (change->cursor.n > 0) {
        write_name(out, &first, STR("cursor"));
        json_write_string(out, change->cursor);
    }
    if (change->responses.p)
        write_raw(out, &first, "inputResponses", change->responses);
    if (change->state.p)
        write_raw(out, &first, "requestState", change->state);
    buf_add_text(out, first ? "{}" : "}");
}

bool era_cacheable(const char *method)
{
    static const char *const methods[] = {"resources/list", "resources/templates/list", "resources/read",
                                          "prompts/list", "tools/list"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

static void write_result_modern(struct buf *out, const struct mcp_request *request, const struct json *result)
{
    bool first = true;
    if (!json_get(result, "resultType"))
        write_raw(out, &first, "resultType", STR("\"complete\""));
    for (uint32_t i = 0; i < result->count; i++) {
        write_name(out, &first, result->members[i].name);
        json_write(out, &result->members[i].value);
    }
    struct str type = json_get_text(result, "resultType");
    if ((!type.p || str_is(type, "complete")) && era_cacheable(request->message.method)) {
        if (!json_get(result, "ttlMs"))
            write_raw(out, &first, "ttlMs", STR("0"));
        if (!json_get(result, "cacheScope"))
            write_raw(out, &first, "cacheScope", STR("\"private\""));
    }
    buf_add_char(out, '}');
}

/* Of a modern server for a legacy client: without what its revision does not know, and where it would not take the
 * whole result otherwise, without structured content that is no object. */
static void write_result_legacy(struct buf *out, const struct json *result)
{
    bool first = true;
    for (uint32_t i = 0; i < result->count; i++) {
        const struct json_member *member = &result->members[i];
        if (str_is(member->name, "resultType") || str_is(member->name, "ttlMs") || str_is(member->name, "cacheScope"))
            continue;
        if (str_is(member->name, "structuredContent") && member->value.type != JSON_OBJECT)
            continue;
        write_name(out, &first, member->name);
        json_write(out, &member->value);
    }
    buf_add_text(out, first ? "{}" : "}");
}

void era_write_result(struct buf *out, const struct mcp_request *request, const struct json *result)
{
    if (request->era != MCP_ERA_LEGACY && result->type == JSON_OBJECT)
        write_result_modern(out, request, result);
    else if (result->type == JSON_OBJECT && json_get(result, "resultType"))
        write_result_legacy(out, result);
    else
        json_write(out, result);
}

int64_t era_error_code(const struct mcp_request *request, int64_t code, const struct json *data)
{
    if (request->era != MCP_ERA_LEGACY)
        return code == MCP_RESOURCE_NOT_FOUND ? RPC_INVALID_PARAMS : code;
    if (code == RPC_INVALID_PARAMS && strcmp(request->message.method, "resources/read") == 0 &&
        json_get_text(data, "uri").p)
        return MCP_RESOURCE_NOT_FOUND;
    return code;
}
