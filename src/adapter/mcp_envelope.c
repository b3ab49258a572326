#include "adapter/mcp_parts.h"

#include "base/mem.h"

const struct json_limits mcp_message_limits = {
    .bytes_max = MCP_MESSAGE_BYTES_MAX, .depth_max = MCP_DEPTH_MAX, .values_max = MCP_VALUES_MAX};

bool mcp_version_is_legacy(struct str version)
{
    return str_is(version, "2025-11-25") || str_is(version, "2025-06-18") || str_is(version, "2025-03-26") ||
           str_is(version, "2024-11-05");
}

static char *json_text(const struct json *value)
{
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, value);
    return buf_detach(&text, NULL);
}

static bool is_object(const struct json *value)
{
    return value && value->type == JSON_OBJECT;
}

static void replace_token(struct arena *arena, struct json *meta, struct str ours, char **token)
{
    const struct json *theirs = json_get(meta, "progressToken");
    if (!theirs || theirs->type == JSON_NULL)
        return;
    *token = json_text(theirs);
    json_set(arena, meta, STR("progressToken"), json_number(arena_str(arena, ours)));
}

static void set_default(struct arena *arena, struct json *meta, const char *name, const struct json *value)
{
    if (!is_object(json_get(meta, name)))
        json_set(arena, meta, str_of(name), *value);
}

static void modern_meta(struct arena *arena, struct json *meta, const struct mcp_envelope *envelope)
{
    json_set(arena, meta, STR(MCP_META_VERSION), json_string(STR(MCP_MODERN_VERSION)));
    set_default(arena, meta, MCP_META_CAPABILITIES, envelope->capabilities);
    set_default(arena, meta, MCP_META_CLIENT, envelope->client_info);
}

static void legacy_meta(struct json *meta)
{
    json_remove(meta, STR(MCP_META_VERSION));
    json_remove(meta, STR(MCP_META_CAPABILITIES));
    json_remove(meta, STR(MCP_META_CLIENT));
    json_remove(meta, STR(MCP_META_LOG_LEVEL));
}

enum err_code mcp_envelope_params(struct arena *arena, struct str params, const struct mcp_envelope *envelope,
                                  struct json **out, char **token, struct err *err)
{
    bool modern = envelope->era == MCP_ERA_MODERN;
    struct json *tree = NULL;
    enum err_code code = params.p ? json_parse(arena, params, &mcp_message_limits, &tree, err) : ERR_NONE;
    if (code)
        return code;
    if (tree && tree->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "params are no object");
    *out = tree;
    *token = NULL;
    if (!modern && !json_get(tree, "_meta"))
        return ERR_NONE;
    if (!tree)
        *out = tree = json_object(arena);
    const struct json *given = json_get(tree, "_meta");
    struct json *meta = json_object(arena);
    if (is_object(given))
        *meta = *given;
    replace_token(arena, meta, envelope->token, token);
    if (modern)
        modern_meta(arena, meta, envelope);
    else
        legacy_meta(meta);
    if (meta->count > 0)
        json_set(arena, tree, STR("_meta"), *meta);
    else
        json_remove(tree, STR("_meta"));
    return ERR_NONE;
}
