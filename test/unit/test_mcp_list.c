/* What tools/list publishes: schemas with onced's own arguments, annotations, pages, lists per principal; and that
 * calls are answered as the published outputSchema says. */
#include "support/test.h"

#include "core/schema.h"
#include "support/fake_forward.h"

#include <stdio.h>
#include <stdlib.h>

#define TOOLS_MAX 1200
#define OP_1      "op_01J00000000000000000000001"

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct registry *registry;
    struct mcp_settings settings;
    struct mcp_door *door;
    struct mcp_session *session;
    struct provider http, files;
    struct tool tools[TOOLS_MAX];
    size_t count;
    struct arena arena;
    int last_id;
};

static const struct json *parsed(struct stage *stage, const char *text)
{
    struct json *value;
    struct err err = {0};
    if (json_parse(&stage->arena, str_of(text), NULL, &value, &err))
        fail_msg("%s: %s", text, err.text);
    return value;
}

static struct tool *add(struct stage *stage, const char *name, enum tool_class class, const char *schema)
{
    struct tool *tool = &stage->tools[stage->count++];
    *tool = (struct tool){.name = name, .class = class, .provider = &stage->http, .repeat_window_ms = 1000};
    if (schema)
        tool->input_schema_json = parsed(stage, schema);
    return tool;
}

static struct tool *add_imported(struct stage *stage, const char *name, enum tool_class class, const char *schema)
{
    struct tool *tool = add(stage, name, class, schema);
    tool->provider = &stage->files;
    tool->adapter_tool = name;
    return tool;
}

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    fake_forward_reset();
    arena_init(&stage->arena);
    stage->http = (struct provider){.name = "payments", .kind = PROVIDER_HTTP};
    stage->files = (struct provider){.name = "files", .kind = PROVIDER_MCP};
    stage->settings = mcp_settings_default;
    stage->settings.tool_status = stage->settings.tool_wait = stage->settings.tool_plan = false;
    stage->settings.tool_run_report = false;
    assert_int_equal(uv_loop_init(&stage->loop), 0);
    *state = stage;
    return 0;
}

/* After the tools were added. */
static void open_door(struct stage *stage, const char *policy, const struct registry_access *access, size_t count)
{
    const struct tool *list[TOOLS_MAX];
    for (size_t i = 0; i < stage->count; i++)
        list[i] = &stage->tools[i];
    struct registry *former = stage->registry;
    assert_int_equal(registry_new(list, stage->count, NULL, 0, policy, NULL, NULL, &stage->registry, NULL), 0);
    registry_restrict(stage->registry, access, count);
    if (former) {
        stage->engine.registry = stage->registry;
        registry_unref(former);
        return;
    }
    fake_engine_init(&stage->engine, stage->registry);
    stage->door = mcp_door_new(
        &(struct mcp_door_options){.loop = &stage->loop, .engine = &stage->engine, .settings = &stage->settings});
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    if (stage->door) {
        mcp_door_free(stage->door);
        fake_engine_release(&stage->engine);
    }
    uv_run(&stage->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&stage->loop), 0);
    registry_unref(stage->registry);
    arena_release(&stage->arena);
    free(stage);
    return 0;
}

/* ---- asking ---- */

static const struct json *answer_of(struct stage *stage, struct mcp_session *session, const char *method,
                                    const char *params)
{
    struct heard heard;
    const char *text = arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":%s}",
                                    ++stage->last_id, method, params);
    heard_init(&heard);
    mcp_receive(session, &heard.sink, str_of(text), NULL);
    assert_int_equal(heard.final_count, 1);
    struct json *answer;
    const struct json_limits wide = {.bytes_max = SIZE_MAX, .depth_max = 100, .values_max = SIZE_MAX};
    assert_int_equal(json_parse(&stage->arena, str_of(heard.final), &wide, &answer, NULL), 0);
    heard_release(&heard);
    return answer;
}

static struct mcp_session *session_of(struct stage *stage, const char *principal, const char *version)
{
    struct mcp_session *session = mcp_session_new(stage->door, "default", principal, ROLE_AGENT);
    const char *params = arena_printf(&stage->arena, "{\"protocolVersion\":\"%s\",\"capabilities\":{}}", version);
    assert_non_null(json_get(answer_of(stage, session, "initialize", params), "result"));
    return session;
}

#define MODERN                                                                                                         \
    "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                                          \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}}"

static const struct json *tools_for(struct stage *stage, const char *principal, const char *version)
{
    if (!stage->door)
        open_door(stage, "v1", NULL, 0);
    const struct json *answer;
    if (strcmp(version, MCP_MODERN_VERSION) == 0) {
        struct mcp_session *session = mcp_session_new(stage->door, "default", principal, ROLE_AGENT);
        session->ephemeral = true;
        answer = answer_of(stage, session, "tools/list", MODERN);
    } else {
        answer = answer_of(stage, session_of(stage, principal, version), "tools/list", "{}");
    }
    return json_get(json_get(answer, "result"), "tools");
}

static const struct json *find(const struct json *tools, const char *name)
{
    for (size_t i = 0; i < tools->count; i++)
        if (str_is(json_get_text(&tools->items[i], "name"), name))
            return &tools->items[i];
    return NULL;
}

static const struct json *listed(struct stage *stage, const char *name)
{
    const struct json *tool = find(tools_for(stage, "agent", "2025-11-25"), name);
    if (!tool)
        fail_msg("%s is not listed", name);
    return tool;
}

static void assert_json(struct stage *stage, const struct json *have, const char *wanted)
{
    struct buf text;
    buf_init(&text, 0);
    if (have)
        json_write(&text, have);
    if (!have || !json_equal(have, parsed(stage, wanted)))
        fail_msg("%.*s, not %s", STR_ARG(buf_str(&text)), wanted);
    buf_release(&text);
}

/* ---- arguments ---- */

static const struct json *property(const struct json *tool, const char *name)
{
    return json_get(json_get(json_get(tool, "inputSchema"), "properties"), name);
}

static void test_added_arguments(void **state)
{
    struct stage *stage = *state;
    const char *closed = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"],"
                         "\"additionalProperties\":false}";
    add(stage, "weak", CLASS_EXTERNAL_WEAK, closed);
    add(stage, "read", CLASS_READ, closed);
    add(stage, "none", CLASS_EXTERNAL_WEAK, NULL);
    add(stage, "bare", CLASS_INTERNAL_WRITE, "{\"description\":\"x\"}");
    add(stage, "true", CLASS_INTERNAL_WRITE, "true");
    add(stage, "denied", CLASS_EXTERNAL_WEAK, closed)->repeat = REPEAT_DENIED;
    add(stage, "allowed", CLASS_EXTERNAL_WEAK, closed)->in_doubt = IN_DOUBT_ALLOW;
    add_imported(stage, "forwarded", CLASS_READ, closed)->forwarded = true;
    const struct json *weak = listed(stage, "weak");
    assert_json(stage, json_get(property(weak, "repeat_of"), "type"), "\"string\"");
    assert_json(stage, json_get(property(weak, "distinct_from"), "type"), "\"array\"");
    assert_json(stage, json_get(json_get(weak, "inputSchema"), "required"), "[\"a\"]");
    assert_json(stage, json_get(json_get(weak, "inputSchema"), "additionalProperties"), "false");
    assert_non_null(property(weak, "a"));
    assert_json(stage, json_get(listed(stage, "read"), "inputSchema"), closed);
    assert_json(stage, json_get(listed(stage, "forwarded"), "inputSchema"), closed);
    static const char *const open[] = {"none", "bare", "true"};
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(property(listed(stage, open[i]), "repeat_of"));
        assert_json(stage, json_get(json_get(listed(stage, open[i]), "inputSchema"), "type"), "\"object\"");
    }
    assert_null(property(listed(stage, "denied"), "repeat_of"));
    assert_non_null(property(listed(stage, "denied"), "distinct_from"));
    assert_non_null(property(listed(stage, "allowed"), "repeat_of"));
    assert_null(property(listed(stage, "allowed"), "distinct_from"));
    assert_null(json_get(stage->tools[0].input_schema_json, "repeat_of"));
    assert_json(stage, stage->tools[0].input_schema_json, closed); /* the registry's own stays as it is */
    assert_true(mcp_adds_argument(&stage->tools[0], "repeat_of"));
    assert_false(mcp_adds_argument(&stage->tools[1], "repeat_of"));
    assert_true(mcp_adds_argument(&stage->tools[5], "repeat_of")); /* taken out and refused, not sent on */
    assert_false(mcp_adds_argument(&stage->tools[7], "repeat_of"));
}

/* The tool has such an argument itself, wherever it says so: then it is the tool's. */
static void test_collisions(void **state)
{
    struct stage *stage = *state;
    static const char *const own[] = {
        "{\"type\":\"object\",\"properties\":{\"repeat_of\":{\"type\":\"integer\"}}}",
        "{\"type\":\"object\",\"allOf\":[{\"properties\":{\"repeat_of\":{}}}]}",
        "{\"type\":\"object\",\"anyOf\":[{},{\"oneOf\":[{\"properties\":{\"repeat_of\":{}}}]}]}",
        "{\"type\":\"object\",\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"properties\":{\"repeat_of\":{}}}}}",
        "{\"type\":\"object\",\"if\":{},\"then\":{\"properties\":{\"repeat_of\":{}}}}",
        "{\"type\":\"object\",\"dependentSchemas\":{\"a\":{\"properties\":{\"repeat_of\":{}}}}}",
    };
    static const char *const not_own[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"properties\":{\"repeat_of\":{}}}}}",
        "{\"type\":\"object\",\"$defs\":{\"x\":{\"properties\":{\"repeat_of\":{}}}}}",
        "{\"type\":\"object\",\"$ref\":\"#\"}",
        "{\"type\":\"object\",\"$ref\":\"#/nowhere\",\"allOf\":7,\"properties\":[]}",
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_false(mcp_adds_argument(add(stage, "t", CLASS_EXTERNAL_WEAK, own[i]), "repeat_of"));
    for (size_t i = 0; i < sizeof not_own / sizeof *not_own; i++)
        assert_true(mcp_adds_argument(add(stage, "t", CLASS_EXTERNAL_WEAK, not_own[i]), "repeat_of"));
    stage->count = 0;
    add(stage, "own", CLASS_EXTERNAL_WEAK, own[0]);
    const struct json *tool = listed(stage, "own");
    assert_json(stage, property(tool, "repeat_of"), "{\"type\":\"integer\"}");
    assert_non_null(property(tool, "distinct_from"));
}

/* Where another keyword could refuse an object that has one member more, nothing is added. */
static void test_not_safe(void **state)
{
    struct stage *stage = *state;
    static const char *const strict[] = {
        "{\"type\":\"object\",\"allOf\":[{\"additionalProperties\":false}]}",
        "{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
        "{\"type\":\"object\",\"patternProperties\":{\".*\":{\"type\":\"integer\"}}}",
        "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":3}}",
        "{\"type\":\"object\",\"maxProperties\":1}",
        "{\"type\":\"object\",\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"additionalProperties\":false}}}",
        "{\"type\":\"object\",\"if\":{\"required\":[\"a\"]},\"then\":{\"maxProperties\":1}}",
        "{\"type\":\"object\",\"not\":{\"required\":[\"repeat_of\"]}}",
    };
    char name[16][8];
    for (size_t i = 0; i < sizeof strict / sizeof *strict; i++) {
        snprintf(name[i], sizeof name[i], "t%zu", i);
        add(stage, name[i], CLASS_EXTERNAL_WEAK, strict[i]);
    }
    for (size_t i = 0; i < sizeof strict / sizeof *strict; i++)
        assert_json(stage, json_get(listed(stage, name[i]), "inputSchema"), strict[i]);
}

/* ---- annotations and the rest ---- */

static void test_annotations(void **state)
{
    struct stage *stage = *state;
    add(stage, "read", CLASS_READ, NULL);
    add(stage, "internal", CLASS_INTERNAL_WRITE, NULL);
    add(stage, "idempotent", CLASS_EXTERNAL_IDEMPOTENT, NULL)->repeat_window_ms = 0;
    add(stage, "weak", CLASS_EXTERNAL_WEAK, NULL)->title = "Weak";
    add(stage, "once", CLASS_EXTERNAL_WEAK, NULL)->repeat_window_ms = 0;
    struct tool *keyed = add(stage, "keyed", CLASS_EXTERNAL_IRREVERSIBLE, NULL);
    keyed->repeat_window_ms = 0;
    keyed->identity = IDENTITY_CALLER;
    add(stage, "stated", CLASS_EXTERNAL_WEAK, NULL)->annotations_json =
        parsed(stage, "{\"readOnlyHint\":true,\"x\":[1]}");
    add_imported(stage, "passed", CLASS_READ, NULL)->forwarded = true;
    static const struct {
        const char *name, *wanted;
    } cases[] = {
        {"read", "{\"readOnlyHint\":true}"},
        {"internal", "{\"readOnlyHint\":false,\"idempotentHint\":true,\"openWorldHint\":false}"},
        {"idempotent", "{\"readOnlyHint\":false,\"idempotentHint\":true,\"openWorldHint\":true}"},
        {"weak", "{\"title\":\"Weak\",\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":true,"
                 "\"openWorldHint\":true}"},
        {"once", "{\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":false,\"openWorldHint\":true}"},
        {"keyed", "{\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":true,\"openWorldHint\":true}"},
        {"stated", "{\"readOnlyHint\":true,\"x\":[1]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_json(stage, json_get(listed(stage, cases[i].name), "annotations"), cases[i].wanted);
    assert_null(json_get(listed(stage, "passed"), "annotations"));
}

static void test_members(void **state)
{
    struct stage *stage = *state;
    struct tool *tool = add(stage, "full", CLASS_EXTERNAL_WEAK, NULL);
    tool->title = "Full", tool->description = "Says it all.";
    tool->icons_json = parsed(stage, "[{\"src\":\"x\"}]");
    tool->meta_json = parsed(stage, "{\"a\":1}");
    add(stage, "plain", CLASS_READ, NULL);
    const struct json *full = listed(stage, "full"), *plain = listed(stage, "plain");
    assert_json(stage, json_get(full, "title"), "\"Full\"");
    assert_json(stage, json_get(full, "description"), "\"Says it all.\"");
    assert_json(stage, json_get(full, "icons"), "[{\"src\":\"x\"}]");
    assert_json(stage, json_get(full, "_meta"), "{\"a\":1}");
    assert_json(stage, json_get(full, "execution"), "{\"taskSupport\":\"optional\"}");
    static const char *const absent[] = {"title", "description", "icons", "_meta", "execution", "outputSchema"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        assert_null(json_get(plain, absent[i]));
    static const char *const others[] = {"2025-06-18", MCP_MODERN_VERSION};
    for (size_t i = 0; i < 2; i++)
        assert_null(json_get(find(tools_for(stage, "agent", others[i]), "full"), "execution"));
    stage->settings.tasks = false;
    mcp_door_configure(stage->door, &stage->settings);
    assert_null(json_get(listed(stage, "full"), "execution"));
}

/* ---- results ---- */

static void test_output_of_servers(void **state)
{
    struct stage *stage = *state;
    static const struct {
        const char *theirs, *one; /* NULL: left out */
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
         "a\"}},\"$defs\":{\"a\":{\"type\":\"string\"}}}",
         "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}"},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\",\"definitions\":{\"a\":{}}}",
         "{\"type\":\"object\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"https://example.com/x\"}}}",
         "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"https://example.com/x\"}}}"},
        {"{\"type\":\"object\",\"properties\":{\"$ref\":{\"type\":\"string\"}}}",
         "{\"type\":\"object\",\"properties\":{\"$ref\":{\"type\":\"string\"}}}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}}}", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/properties/b\"},\"b\":{}}}", NULL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"items\":[{\"$ref\":\"#name\"}]}}}", NULL},
        {"{\"type\":\"object\",\"$id\":\"https://example.com/\"}", NULL},
        {"{\"type\":\"object\",\"$defs\":{\"a\":{\"$dynamicRef\":\"#x\"}}}", NULL},
        {"{\"type\":\"array\"}", NULL},
    };
    char name[16][8];
    size_t count = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < count; i++) {
        snprintf(name[i], sizeof name[i], "t%zu", i);
        add_imported(stage, name[i], CLASS_EXTERNAL_WEAK, NULL)->output_schema_json = parsed(stage, cases[i].theirs);
    }
    struct tool *forwarded = add_imported(stage, "u", CLASS_READ, NULL);
    forwarded->forwarded = true;
    forwarded->output_schema_json = parsed(stage, cases[4].theirs);
    add_imported(stage, "v", CLASS_EXTERNAL_WEAK, NULL);
    for (size_t i = 0; i < count; i++) {
        const struct json *schema = json_get(listed(stage, name[i]), "outputSchema");
        if (!cases[i].one) {
            assert_null(schema);
            continue;
        }
        const struct json *theirs = stage->tools[i].output_schema_json;
        assert_json(stage, json_get(schema, "type"), "\"object\"");
        assert_json(stage, &json_get(schema, "anyOf")->items[0], cases[i].one);
        assert_json(stage, &json_get(schema, "anyOf")->items[1], mcp_result_schema);
        static const char *const moved[] = {"$defs", "definitions", "$schema"};
        for (size_t k = 0; k < 3; k++) {
            const struct json *a = json_get(theirs, moved[k]), *b = json_get(schema, moved[k]);
            assert_true(a == b || (a && b && json_equal(a, b)));
        }
    }
    assert_json(stage, json_get(listed(stage, "u"), "outputSchema"), cases[4].theirs);
    assert_null(json_get(listed(stage, "v"), "outputSchema"));
    /* the modern era knows results that are no objects */
    const struct json *array = json_get(find(tools_for(stage, "agent", MCP_MODERN_VERSION), "t9"), "outputSchema");
    assert_null(json_get(array, "type"));
    assert_json(stage, &json_get(array, "anyOf")->items[0], "{\"type\":\"array\"}");
}

static struct schema *compiled(const struct json *schema)
{
    struct schema *out;
    struct err err = {0};
    if (schema_new(schema, NULL, 0, &out, &err))
        fail_msg("%s", err.text);
    return out;
}

static void assert_valid(struct stage *stage, const struct schema *schema, const struct json *value, bool valid)
{
    struct schema_error *errors;
    size_t count;
    struct err err = {0};
    enum err_code code = schema_validate(schema, &stage->arena, value, &errors, &count, &err);
    if ((code == ERR_NONE) != valid) {
        struct buf text;
        buf_init(&text, 0);
        json_write(&text, value);
        fail_msg("%.*s: %s", STR_ARG(buf_str(&text)), valid ? err.text : "valid");
    }
}

/* Whatever the engine replies, the answer is of the published schema. */
static void test_answers_are_of_the_schema(void **state)
{
    struct stage *stage = *state;
    add(stage, "own", CLASS_EXTERNAL_WEAK, NULL)->output_schema_json =
        parsed(stage, "{\"type\":\"object\",\"properties\":{\"id\":{\"$ref\":\"#/$defs/id\"}},\"required\":[\"id\"],"
                      "\"$defs\":{\"id\":{\"type\":\"string\"}}}");
    struct tool *imported = add_imported(stage, "imported", CLASS_EXTERNAL_WEAK, NULL);
    imported->output_schema_json = parsed(stage, "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},"
                                                 "\"required\":[\"n\"],\"additionalProperties\":false}");
    struct mcp_session *session = (open_door(stage, "v1", NULL, 0), session_of(stage, "agent", "2025-11-25"));
    struct schema *schemas[] = {compiled(json_get(listed(stage, "own"), "outputSchema")),
                                compiled(json_get(listed(stage, "imported"), "outputSchema"))};
    assert_valid(stage, schemas[1], parsed(stage, "{\"n\":1}"), true);
    assert_valid(stage, schemas[1], parsed(stage, "{\"n\":\"x\"}"), false);
    assert_valid(stage, schemas[0], parsed(stage, "{\"id\":\"x\"}"), false);
    struct operation op = {.tenant = "default", .principal = "agent", .key = "k", .key_version = 1};
    struct tombstone tombstone = {
        .tenant = "default", .principal = "agent", .operation = OP_1, .state = STATE_COMPLETED_SUCCESS};
    memcpy(op.id, OP_1, sizeof op.id);
    struct err why = {.code = ERR_CONFLICT, .text = "differs"};
    static const enum state states[] = {STATE_COMPLETED_SUCCESS, STATE_UNKNOWN_OUTCOME, STATE_FAILED_PERMANENT,
                                        STATE_PENDING_DISPATCH, STATE_REJECTED};
    static const enum reply_kind kinds[] = {REPLY_CONFLICT, REPLY_NOT_SHARED, REPLY_HELD, REPLY_EXPIRED, REPLY_REPEAT};
    for (size_t t = 0; t < 2; t++) {
        op.tool = tombstone.tool = stage->tools[t].name;
        stage->engine.reply = (struct engine_reply){.op = &op, .tool = &stage->tools[t], .err = &why};
        const char *params = arena_printf(&stage->arena, "{\"name\":\"%s\"}", op.tool);
        for (size_t i = 0; i < 10; i++) {
            stage->engine.reply.kind = i < 5 ? REPLY_OPERATION : kinds[i - 5];
            stage->engine.reply.tombstone = stage->engine.reply.kind == REPLY_EXPIRED ? &tombstone : NULL;
            op.state = states[i % 5];
            op.result = STR_NONE;
            if (op.state == STATE_COMPLETED_SUCCESS)
                op.result = t == 0 ? STR("{\"id\":\"re_1\"}") : STR("{\"content\":[],\"structuredContent\":{\"n\":1}}");
            const struct json *result = json_get(answer_of(stage, session, "tools/call", params), "result");
            assert_non_null(json_get(result, "structuredContent"));
            assert_valid(stage, schemas[t], json_get(result, "structuredContent"), true);
        }
    }
    schema_free(schemas[0]), schema_free(schemas[1]);
}

static void test_own_output_schema(void **state)
{
    struct stage *stage = *state;
    add(stage, "own", CLASS_EXTERNAL_WEAK, NULL);
    add_imported(stage, "imported", CLASS_EXTERNAL_WEAK, NULL);
    assert_null(json_get(listed(stage, "own"), "outputSchema"));
    stage->settings.output_schema = true;
    mcp_door_configure(stage->door, &stage->settings);
    assert_json(stage, json_get(listed(stage, "own"), "outputSchema"), mcp_result_schema);
    assert_null(json_get(listed(stage, "imported"), "outputSchema"));
}

/* ---- pages, principals ---- */

static const struct json *page(struct stage *stage, struct mcp_session *session, const char *cursor)
{
    const struct json *answer =
        answer_of(stage, session, "tools/list", cursor ? arena_printf(&stage->arena, "{\"cursor\":%s}", cursor) : "{}");
    return json_get(answer, "result") ? json_get(answer, "result") : json_get(answer, "error");
}

static void add_many(struct stage *stage, char (*names)[8], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "t%04zu", i);
        add(stage, names[i], CLASS_READ, NULL);
    }
}

static void test_pages(void **state)
{
    struct stage *stage = *state;
    static char names[TOOLS_MAX][8];
    size_t count = 2 * MCP_LIST_PAGE + 1;
    add_many(stage, names, count);
    stage->settings.tool_status = true;
    open_door(stage, "v1", NULL, 0);
    struct mcp_session *session = session_of(stage, "agent", "2025-06-18");
    const char *cursor = NULL;
    size_t seen = 0, pages = 0;
    do {
        const struct json *result = page(stage, session, cursor), *tools = json_get(result, "tools");
        for (size_t i = 0; i < tools->count; i++, seen++)
            assert_true(str_is(json_get_text(&tools->items[i], "name"), seen < count ? names[seen] : "onced_status"));
        struct str next = json_get_text(result, "nextCursor");
        cursor = next.p ? arena_printf(&stage->arena, "\"%.*s\"", STR_ARG(next)) : NULL;
        pages++;
    } while (cursor);
    assert_int_equal(seen, count + 1);
    assert_int_equal(pages, 3);
    struct str next = json_get_text(page(stage, session, NULL), "nextCursor");
    cursor = arena_printf(&stage->arena, "\"%.*s\"", STR_ARG(next));
    assert_int_equal(json_get(page(stage, session, cursor), "tools")->count, MCP_LIST_PAGE);
    static const char *const bad[] = {"7",         "\"\"",       "\"x\"",        "\"v1\"",     "\"v1.\"",
                                      "\"v1.-1\"", "\"v1.1e1\"", "\"v1.99999\"", "\"v2.500\"", "null"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(json_get_int(page(stage, session, bad[i]), "code", 0), RPC_INVALID_PARAMS);
    open_door(stage, "v2", NULL, 0); /* another registry: places may be others */
    assert_int_equal(json_get_int(page(stage, session, cursor), "code", 0), RPC_INVALID_PARAMS);
}

static void test_principals(void **state)
{
    struct stage *stage = *state;
    add(stage, "refund.create", CLASS_EXTERNAL_WEAK, NULL);
    add(stage, "refund.list", CLASS_READ, NULL);
    add(stage, "files_read", CLASS_READ, NULL);
    static const char *const some[] = {"refund.*"}, *const none[] = {""};
    static const struct registry_access access[] = {{"support", some, 1}, {"nobody", none, 1}};
    stage->settings.tool_status = true;
    open_door(stage, "v1", access, 2);
    static const char *const versions[] = {"2025-11-25", MCP_MODERN_VERSION};
    for (size_t i = 0; i < 2; i++) {
        const struct json *tools = tools_for(stage, "support", versions[i]);
        assert_int_equal(tools->count, 3);
        assert_null(find(tools, "files_read"));
        assert_non_null(find(tools, "onced_status"));
        assert_int_equal(tools_for(stage, "nobody", versions[i])->count, 1);
        assert_int_equal(tools_for(stage, "agent", versions[i])->count, 4);
    }
}

/* A name that a built-in tool has is listed once. */
static void test_builtin_names(void **state)
{
    struct stage *stage = *state;
    add(stage, "onced_status", CLASS_READ, NULL)->title = "Not ours";
    stage->settings.tool_status = true;
    const struct json *tools = tools_for(stage, "agent", "2025-11-25");
    assert_int_equal(tools->count, 1);
    assert_false(str_is(json_get_text(&tools->items[0], "title"), "Not ours"));
    stage->settings.tool_status = false;
    mcp_door_configure(stage->door, &stage->settings);
    assert_true(str_is(json_get_text(listed(stage, "onced_status"), "title"), "Not ours"));
}

static void test_modern_envelope(void **state)
{
    struct stage *stage = *state;
    add(stage, "a", CLASS_READ, NULL);
    open_door(stage, "v1", NULL, 0);
    struct mcp_session *session = mcp_session_new(stage->door, "default", "agent", ROLE_AGENT);
    session->ephemeral = true;
    const struct json *result = json_get(answer_of(stage, session, "tools/list", MODERN), "result");
    assert_json(stage, json_get(result, "resultType"), "\"complete\"");
    assert_json(stage, json_get(result, "ttlMs"), "0");
    assert_json(stage, json_get(result, "cacheScope"), "\"private\"");
    result = json_get(answer_of(stage, session_of(stage, "agent", "2025-11-25"), "tools/list", "{}"), "result");
    assert_int_equal(result->count, 1); /* tools alone */
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_added_arguments),
        TEST(test_collisions),
        TEST(test_not_safe),
        TEST(test_annotations),
        TEST(test_members),
        TEST(test_output_of_servers),
        TEST(test_answers_are_of_the_schema),
        TEST(test_own_output_schema),
        TEST(test_pages),
        TEST(test_principals),
        TEST(test_builtin_names),
        TEST(test_modern_envelope),
    };
    return cmocka_run_group_tests_name("mcp_list", tests, NULL, NULL);
}
