/* tools/list: what clients are told of each tool. */
#include "door/mcp_parts.h"

#include <assert.h>

/* ---- which arguments are onced's ---- */

#define LOOK_DEPTH_MAX 32

static bool is_object(const struct json *value)
{
    return value && value->type == JSON_OBJECT;
}

/* Whether a schema says something of a property of this name, at the place itself or through the keywords that apply
 * to the same value. */
static bool has_property(const struct json *root, const struct json *schema, const char *name, unsigned depth)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"}, *const singles[] = {"if", "then", "else", "not"};
    if (!is_object(schema) || depth == LOOK_DEPTH_MAX)
        return false;
    if (json_get(json_get(schema, "properties"), name))
        return true;
    for (size_t i = 0; i < 3; i++) {
        const struct json *list = json_get(schema, lists[i]);
        for (size_t k = 0; list && list->type == JSON_ARRAY && k < list->count; k++)
            if (has_property(root, &list->items[k], name, depth + 1))
                return true;
    }
    for (size_t i = 0; i < 4; i++)
        if (has_property(root, json_get(schema, singles[i]), name, depth + 1))
            return true;
    const struct json *dependent = json_get(schema, "dependentSchemas");
    for (size_t i = 0; is_object(dependent) && i < dependent->count; i++)
        if (has_property(root, &dependent->members[i].value, name, depth + 1))
            return true;
    struct str ref = json_get_text(schema, "$ref");
    return ref.n > 1 && ref.p[0] == '#' && ref.p[1] == '/' &&
           has_property(root, json_pointer_get(root, (struct str){ref.p + 1, ref.n - 1}), name, depth + 1);
}

bool mcp_adds_argument(const struct tool *tool, const char *name)
{
    const struct json *schema = tool->input_schema_json;
    return tool_is_write(tool) && !tool->forwarded && !has_property(schema, schema, name, 0);
}

/* A schema to which a property may be added without anything in it that could refuse objects that have it. */
static bool may_grow(const struct json *schema)
{
    static const char *const strict[] = {"allOf",
                                         "anyOf",
                                         "oneOf",
                                         "not",
                                         "if",
                                         "$ref",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "enum",
                                         "const",
                                         "propertyNames",
                                         "patternProperties",
                                         "dependentSchemas",
                                         "maxProperties",
                                         "dependencies"};
    for (size_t i = 0; i < sizeof strict / sizeof *strict; i++)
        if (json_get(schema, strict[i]))
            return false;
    const struct json *properties = json_get(schema, "properties");
    return !properties || properties->type == JSON_OBJECT;
}

static void add_property(struct arena *arena, struct json *schema, const char *name, const char *property)
{
    struct json *value, *properties = (struct json *)json_get(schema, "properties");
    if (!properties) {
        json_set(arena, schema, STR("properties"), *json_object(arena));
        properties = (struct json *)json_get(schema, "properties");
    }
    if (json_parse(arena, str_of(property), NULL, &value, NULL) == ERR_NONE)
        json_set(arena, properties, str_of(name), *value);
}

static const char repeat_schema[] =
    "{\"type\":\"string\",\"description\":\"Only to do the same thing once more on purpose: the operation_id that the "
    "earlier result named. Never for a retry.\"}";
static const char distinct_schema[] =
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":8,\"description\":\"Only when this call was held "
    "back because of unresolved ones and is another intent: their operation_ids.\"}";

static const char override_schema[] = "{\"type\":\"string\",\"description\":\"Only when this call was refused because "
                                      "the same was done not long ago, and "
                                      "the user wants it all the same: why.\"}";

static bool window_is_overridable(const struct tool *tool)
{
    return tool->claims && tool->claims->window.key && tool->claims->window.overridable;
}

/* ---- what goes in ---- */

static void write_input_schema(struct arena *arena, const struct tool *tool, struct json_out *out)
{
    json_out_name(out, "inputSchema");
    if (tool->forwarded && tool->input_schema_json) {
        json_out_value(out, tool->input_schema_json);
        return;
    }
    struct json *schema = tool->input_schema_json ? json_copy(arena, tool->input_schema_json) : json_object(arena);
    if (!is_object(schema)) /* true: any object */
        schema = json_object(arena);
    if (!json_get(schema, "type"))
        json_set(arena, schema, STR("type"), json_string(STR("object")));
    if (may_grow(schema)) {
        if (tool->repeat != REPEAT_DENIED && mcp_adds_argument(tool, MCP_ARGUMENT_REPEAT))
            add_property(arena, schema, MCP_ARGUMENT_REPEAT, repeat_schema);
        if (tool->in_doubt == IN_DOUBT_HOLD && mcp_adds_argument(tool, MCP_ARGUMENT_DISTINCT))
            add_property(arena, schema, MCP_ARGUMENT_DISTINCT, distinct_schema);
        if (window_is_overridable(tool) && mcp_adds_argument(tool, MCP_ARGUMENT_OVERRIDE))
            add_property(arena, schema, MCP_ARGUMENT_OVERRIDE, override_schema);
    }
    json_out_value(out, schema);
}

/* ---- what comes out ---- */

#define TEXT_OR_NULL "{\"type\":[\"string\",\"null\"]}"

/* What every answer in onced's shape has; more may be there (docs/mcp.md). */
const char mcp_result_schema[] =
    "{\"type\":\"object\",\"properties\":{\"operation_id\":" TEXT_OR_NULL ",\"tool\":{\"type\":\"string\"},"
    "\"status\":{\"type\":\"string\"},\"reason\":" TEXT_OR_NULL ",\"replayed\":{\"type\":\"boolean\"},"
    "\"result\":{},\"error\":{\"type\":[\"object\",\"null\"]},\"external_id\":" TEXT_OR_NULL ","
    "\"next_action\":{\"enum\":[\"use_result\",\"wait\",\"do_not_retry\",\"fix_arguments\",\"ask_human\"]},"
    "\"retry_after_ms\":{\"type\":[\"integer\",\"null\"]},\"safe_user_message\":{\"type\":\"string\"}},"
    "\"required\":[\"operation_id\",\"tool\",\"status\",\"replayed\",\"next_action\",\"safe_user_message\"]}";

/* Whether the schema can be put one level deeper: what it refers to within itself lies in its definitions, which move
 * to the new root. */
static bool may_sink(const struct json *value, unsigned depth)
{
    static const char *const bound[] = {"$id", "id", "$dynamicRef", "$recursiveRef"};
    if (depth == LOOK_DEPTH_MAX * 4)
        return false;
    for (size_t i = 0; value->type == JSON_ARRAY && i < value->count; i++)
        if (!may_sink(&value->items[i], depth + 1))
            return false;
    if (value->type != JSON_OBJECT)
        return true;
    for (size_t i = 0; i < sizeof bound / sizeof *bound; i++)
        if (json_get_text(value, bound[i]).p)
            return false;
    struct str ref = json_get_text(value, "$ref");
    bool local = ref.p && ref.n && ref.p[0] == '#';
    bool defined =
        (ref.n > 8 && memcmp(ref.p, "#/$defs/", 8) == 0) || (ref.n > 14 && memcmp(ref.p, "#/definitions/", 14) == 0);
    if ((local && !defined) || (ref.p && ref.n == 0))
        return false;
    for (size_t i = 0; i < value->count; i++)
        if (!may_sink(&value->members[i].value, depth + 1))
            return false;
    return true;
}

/* Moves what must stand at the root from a schema to its new root; returns what is left of it. */
static struct json *sink(struct arena *arena, const struct json *theirs, struct json *root)
{
    static const char *const lifted[] = {"$schema", "$defs", "definitions"};
    struct json *rest = json_copy(arena, theirs);
    for (size_t i = 0; i < sizeof lifted / sizeof *lifted; i++) {
        const struct json *value = json_get(theirs, lifted[i]);
        if (value)
            json_set(arena, root, str_of(lifted[i]), *value);
        json_remove(rest, str_of(lifted[i]));
    }
    return rest;
}

static struct json *any_of(struct arena *arena, const struct json *one, const struct json *other)
{
    struct json *any = json_array(arena);
    json_append(arena, any, *one);
    json_append(arena, any, *other);
    return any;
}

static struct json *own_schema(struct arena *arena)
{
    struct json *ours;
    enum err_code code = json_parse(arena, str_of(mcp_result_schema), NULL, &ours, NULL);
    assert(!code);
    return ours;
}

/* A protected tool of a server answers in its server's shape, or, as long as nothing is known for certain, in onced's.
 * NULL: that cannot be said in a schema. */
static struct json *either_schema(struct arena *arena, const struct json *theirs, const char *version)
{
    bool object = str_is(json_get_text(theirs, "type"), "object");
    if (!is_object(theirs) || !may_sink(theirs, 0) || (!object && strcmp(version, MCP_MODERN_VERSION) != 0))
        return NULL;
    struct json *root = json_object(arena);
    if (object)
        json_set(arena, root, STR("type"), json_string(STR("object")));
    const struct json *rest = sink(arena, theirs, root);
    json_set(arena, root, STR("anyOf"), *any_of(arena, rest, own_schema(arena)));
    return root;
}

/* onced's shape, in which a result is of the stated schema, or there is none. */
static struct json *wrapped_schema(struct arena *arena, const struct json *stated)
{
    struct json *root = own_schema(arena), *none = json_object(arena), *result = json_object(arena);
    if (!is_object(stated) || !may_sink(stated, 0))
        return root;
    json_set(arena, none, STR("type"), json_string(STR("null")));
    const struct json *rest = sink(arena, stated, root);
    json_set(arena, result, STR("anyOf"), *any_of(arena, rest, none));
    json_set(arena, (struct json *)json_get(root, "properties"), STR("result"), *result);
    return root;
}

static void write_output_schema(struct arena *arena, const struct tool *tool, const struct mcp_settings *settings,
                                const char *version, struct json_out *out)
{
    bool server = tool->provider && tool->provider->kind == PROVIDER_MCP;
    const struct json *schema = tool->output_schema_json;
    if (!server)
        schema = settings->output_schema || schema ? wrapped_schema(arena, schema) : NULL;
    else if (schema && !tool->forwarded)
        schema = either_schema(arena, schema, version);
    if (schema)
        json_out_name(out, "outputSchema"), json_out_value(out, schema);
}

/* ---- annotations ---- */

/* Hints for clients that nobody stated, as far as the class and onced's own rules tell: what neither knows is left out,
 * and the protocol's defaults (destructive, open world) hold. idempotentHint is true where the same arguments again
 * are joined to the operation that there is: for ever by a business key or the provider's own nature, else within
 * repeat_window, which is far longer than anybody's retries. */
static void write_class_hints(const struct tool *tool, struct json_out *out)
{
    bool write = tool_is_write(tool);
    bool joined = tool->key || tool->repeat_window_ms > 0 || tool->identity == IDENTITY_CALLER;
    json_out_object(out);
    json_out_member_text(out, "title", tool->title);
    json_out_member_bool(out, "readOnlyHint", !write);
    if (tool->class == CLASS_EXTERNAL_WEAK || tool->class == CLASS_EXTERNAL_IRREVERSIBLE)
        json_out_member_bool(out, "destructiveHint", true);
    if (write)
        json_out_member_bool(out, "idempotentHint", joined || tool->class == CLASS_EXTERNAL_IDEMPOTENT);
    if (tool->class == CLASS_INTERNAL_WRITE)
        json_out_member_bool(out, "openWorldHint", false);
    else if (write)
        json_out_member_bool(out, "openWorldHint", true);
    json_out_end_object(out);
}

static void write_annotations(const struct tool *tool, struct json_out *out)
{
    if (tool->annotations_json) {
        json_out_name(out, "annotations"), json_out_value(out, tool->annotations_json);
    } else if (!tool->forwarded) {
        json_out_name(out, "annotations");
        write_class_hints(tool, out);
    }
}

void mcp_write_tool(struct arena *arena, const struct mcp_door *door, const struct tool *tool, const char *version,
                    struct json_out *out)
{
    json_out_object(out);
    json_out_member_text(out, "name", tool->name);
    json_out_member_text(out, "title", tool->title);
    json_out_member_text(out, "description", tool->description);
    write_input_schema(arena, tool, out);
    write_output_schema(arena, tool, &door->settings, version, out);
    write_annotations(tool, out);
    if (tool->icons_json)
        json_out_name(out, "icons"), json_out_value(out, tool->icons_json);
    if (strcmp(version, MCP_LEGACY_VERSION) == 0 && mcp_task_possible(door, tool)) {
        json_out_name(out, "execution"), json_out_object(out);
        json_out_member_text(out, "taskSupport", "optional");
        json_out_end_object(out);
    }
    if (tool->meta_json)
        json_out_name(out, "_meta"), json_out_value(out, tool->meta_json);
    json_out_end_object(out);
}

/* ---- pages ---- */

#define PAGE_BYTES_MAX ((size_t)4 * 1024 * 1024) /* a page ends with the tool that passes this */

/* A cursor is the registry's policy version and the place of the next tool: "VERSION.PLACE". Another registry has other
 * places, so that its cursors are refused. */
static bool read_cursor(struct mcp_request *request, const struct registry *registry, size_t *at)
{
    const struct json *cursor = json_get(request->message.params, "cursor");
    *at = 0;
    if (!cursor)
        return true;
    struct str text = cursor->type == JSON_STRING ? cursor->text : STR_NONE, version;
    version = str_of(registry_policy_version(registry));
    bool ours = text.n > version.n + 1 && memcmp(text.p, version.p, version.n) == 0 && text.p[version.n] == '.';
    int64_t place = 0;
    struct str rest = ours ? (struct str){text.p + version.n + 1, text.n - version.n - 1} : STR_NONE;
    for (size_t i = 0; i < rest.n; i++)
        ours = ours && rest.p[i] >= '0' && rest.p[i] <= '9';
    if (ours && json_number_int64(rest, &place) && place >= 0 && (size_t)place < registry_tool_count(registry)) {
        *at = (size_t)place;
        return true;
    }
    mcp_reply_error(request, RPC_INVALID_PARAMS, STR_NONE,
                    "params.cursor is not one of this list, or the list has changed since: ask for the first page");
    return false;
}

/* A built-in tool stands in front of one of the registry's that has its name. */
static bool taken(const struct mcp_settings *settings, const char *name)
{
    const struct {
        const char *name;
        bool on;
    } own[] = {
        {"onced_status", settings->tool_status},
        {"onced_wait", settings->tool_wait},
        {"onced_plan", settings->tool_plan},
        {"onced_run_report", settings->tool_run_report},
        {"onced_compensate", settings->tool_compensate},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].on && strcmp(own[i].name, name) == 0)
            return true;
    return false;
}

static bool visible(struct mcp_request *request, const struct registry *registry, const struct tool *tool)
{
    const struct mcp_session *session = request->session;
    return tool->guard_lease_ms == 0 && /* a model performs nothing by itself */
           caller_may_use(registry, session->principal, session->scope, tool) &&
           !taken(&request->session->door->settings, tool->name);
}

/* Returns the place of the first tool that is not on this page. */
static size_t write_page(struct mcp_request *request, const struct registry *registry, size_t at, struct json_out *out)
{
    size_t count = 0;
    for (; at < registry_tool_count(registry) && count < MCP_LIST_PAGE && out->buf->n < PAGE_BYTES_MAX; at++) {
        const struct tool *tool = registry_tool_at(registry, at);
        if (!visible(request, registry, tool))
            continue;
        mcp_write_tool(&request->arena, request->session->door, tool, request->version, out);
        count++;
    }
    return at;
}

void mcp_tools_list(struct mcp_request *request)
{
    struct mcp_door *door = request->session->door;
    const struct registry *registry = engine_registry(door->engine);
    size_t at;
    if (!read_cursor(request, registry, &at))
        return;
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_name(&out, "tools"), json_out_array(&out);
    at = write_page(request, registry, at, &out);
    bool last = at == registry_tool_count(registry);
    if (last)
        mcp_builtin_list(request, &out);
    json_out_end_array(&out);
    if (!last)
        json_out_member_text(&out, "nextCursor",
                             arena_printf(&request->arena, "%s.%zu", registry_policy_version(registry), at));
    if (request->era == MCP_ERA_MODERN) {
        json_out_member_text(&out, "resultType", "complete");
        json_out_member_int(&out, "ttlMs", 0);
        json_out_member_text(&out, "cacheScope", "private");
    }
    json_out_end_object(&out);
    mcp_reply(request, buf_str(&text));
    buf_release(&text);
}
