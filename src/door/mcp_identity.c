/* Which call is meant, from what an MCP request brings along (design 2.2): the caller's own keys and coordinates in
 * _meta and headers, the ids that known clients send by themselves, and the two arguments that onced adds to schemas.
 * What a sender believes to have given is used or refused, never dropped (case S59). Pure. */
#include "door/call_body.h"
#include "door/mcp_parts.h"

#include <stdarg.h>
#include <stdio.h>

struct reading {
    struct arena *arena;
    const struct json *params, *meta; /* meta may be NULL */
    const struct mcp_facts *facts;
    struct mcp_fault *fault;
};

static bool refuse(struct reading *reading, const char *pointer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse(struct reading *reading, const char *pointer, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *reading->fault = (struct mcp_fault){RPC_INVALID_PARAMS, arena_copy_text(reading->arena, text), pointer};
    return false;
}

/* ---- texts ---- */

static bool has_control(struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        if ((unsigned char)text.p[i] < 0x20 || text.p[i] == 0x7f)
            return true;
    }
    return false;
}

static bool usable(struct str text, size_t bytes_max)
{
    return text.n > 0 && text.n <= bytes_max && !has_control(text);
}

/* where: how the place is named in a refusal. */
static bool text_of(struct reading *reading, const struct json *value, const char *where, size_t bytes_max,
                    const char **out)
{
    if (value->type != JSON_STRING)
        return refuse(reading, NULL, "%s must be a string, got %s; leave it out when there is none", where,
                      json_type_name(value->type));
    if (!usable(value->text, bytes_max))
        return refuse(reading, NULL, "%s must have 1 to %zu bytes and no control characters, got %zu bytes", where,
                      bytes_max, value->text.n);
    *out = arena_copy_str(reading->arena, value->text);
    return true;
}

/* Of what is not there nobody asks the place: hardly ever is anything there. */
static const char *meta_place(struct reading *reading, const char *name)
{
    return json_get(reading->meta, name) ? arena_printf(reading->arena, "_meta[\"%s\"]", name) : name;
}

/* One fact from several places: the first one counts, another value elsewhere is refused. */
static bool agree(struct reading *reading, const char *where, const char *value, const char **out, const char **from)
{
    if (*out && strcmp(*out, value) != 0)
        return refuse(reading, NULL, "%s and %s differ: which one is meant?", *from, where);
    if (!*out) {
        *out = value;
        *from = where;
    }
    return true;
}

static bool take_meta(struct reading *reading, const struct json *object, const char *name, const char *where,
                      size_t bytes_max, const char **out, const char **from)
{
    const struct json *value = json_get(object, name);
    const char *text = NULL;
    return !value || (text_of(reading, value, where, bytes_max, &text) && agree(reading, where, text, out, from));
}

/* ---- the key ---- */

static bool take_key_header(struct reading *reading, const char **out, const char **from)
{
    struct err err = {0};
    const char *key;
    if (!reading->facts->idempotency_key.p)
        return true;
    if (identity_parse_header(reading->facts->idempotency_key, reading->arena, &key, &err))
        return refuse(reading, NULL, "the header %s", err.text);
    return agree(reading, "the header Idempotency-Key", key, out, from);
}

static bool read_key(struct reading *reading, struct call *call)
{
    static const char *const names[] = {MCP_META_KEY, "idempotencyKey", "idempotency_key", "idempotency-key"};
    const char *from = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!take_meta(reading, reading->meta, names[i], meta_place(reading, names[i]), OPERATION_KEY_BYTES_MAX,
                       &call->idempotency_key, &from))
            return false;
    }
    return take_meta(reading, reading->params, "idempotencyKey", "params.idempotencyKey", OPERATION_KEY_BYTES_MAX,
                     &call->idempotency_key, &from) &&
           take_key_header(reading, &call->idempotency_key, &from);
}

/* ---- the caller's own coordinates ---- */

static bool take_header(struct reading *reading, struct str value, const char *where, const char **out,
                        const char **from)
{
    if (!value.p)
        return true;
    if (!usable(value, CALL_COORDINATE_BYTES_MAX))
        return refuse(reading, NULL, "%s must have 1 to %d bytes and no control characters, got %zu bytes", where,
                      CALL_COORDINATE_BYTES_MAX, value.n);
    return agree(reading, where, arena_copy_str(reading->arena, value), out, from);
}

static bool read_coordinates(struct reading *reading, struct call *call)
{
    const struct {
        const char *name;
        const char **out;
        struct str header;
        const char *header_name;
    } places[] = {
        {MCP_META_RUN, &call->run, reading->facts->run_id, "the header Onced-Run-Id"},
        {MCP_META_STEP, &call->step, reading->facts->step_id, "the header Onced-Step-Id"},
        {MCP_META_SESSION, &call->session, STR_NONE, NULL},
        {MCP_META_CALL, &call->call, STR_NONE, NULL},
        {MCP_META_WORKFLOW, &call->workflow, STR_NONE, NULL},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *from = "";
        if (!take_meta(reading, reading->meta, places[i].name, meta_place(reading, places[i].name),
                       CALL_COORDINATE_BYTES_MAX, places[i].out, &from) ||
            !take_header(reading, places[i].header, places[i].header_name, places[i].out, &from))
            return false;
    }
    return true;
}

/* ---- what known clients send by themselves ---- */

/* Codex: an object, or the same as JSON text. */
static bool codex_turn(struct reading *reading, const struct json **out)
{
    static const char name[] = "x-codex-turn-metadata";
    const struct json *value = json_get(reading->meta, name);
    *out = NULL;
    if (value && value->type == JSON_STRING) {
        struct json *parsed;
        struct err err = {0};
        if (json_parse(reading->arena, value->text, &json_limits_default, &parsed, &err))
            return refuse(reading, NULL, "_meta[\"%s\"] is no JSON: %s", name, err.text);
        value = parsed;
    }
    if (value && value->type != JSON_OBJECT)
        return refuse(reading, NULL, "_meta[\"%s\"] must be an object, got %s", name, json_type_name(value->type));
    *out = value;
    return true;
}

/* A conversation is a session. The first one that is there counts; they are of different clients, so that there is
 * nothing to contradict. */
static bool read_session(struct reading *reading, const struct json *turn, struct call *call)
{
    const struct {
        const struct json *object;
        const char *name, *where;
    } places[] = {
        {reading->meta, "threadId", "_meta.threadId"},
        {turn, "session_id", "_meta[\"x-codex-turn-metadata\"].session_id"},
        {reading->meta, "vscode.conversationId", "_meta[\"vscode.conversationId\"]"},
        {reading->meta, "agent-session-id", "_meta[\"agent-session-id\"]"},
        {reading->meta, "ai.opencode/sessionID", "_meta[\"ai.opencode/sessionID\"]"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct json *value = json_get(places[i].object, places[i].name);
        const char *text = NULL;
        if (!value)
            continue;
        if (!text_of(reading, value, places[i].where, CALL_COORDINATE_BYTES_MAX, &text))
            return false;
        if (!call->session)
            call->session = text;
    }
    return true;
}

/* A tool_use id: the client keeps it across its own retries, a model's repetition comes with another one. */
static bool read_tool_use(struct reading *reading, struct call *call)
{
    static const char name[] = "claudecode/toolUseId";
    const struct json *value = json_get(reading->meta, name);
    const char *text = NULL;
    if (!value)
        return true;
    if (!text_of(reading, value, "_meta[\"claudecode/toolUseId\"]", CALL_COORDINATE_BYTES_MAX, &text))
        return false;
    if (!call->call) {
        call->call = text;
        call->call_id_per_try = true;
    }
    return true;
}

/* A turn is no call: several calls of one turn share its id. It is kept for correlation, as is what an OpenAI client
 * tells; nothing depends on these, so that what is not usable is left aside. */
static void read_correlation(struct reading *reading, const struct json *turn, struct call *call)
{
    const struct json *values[] = {
        json_get(turn, "turn_id"),
        json_get(reading->meta, "vscode.requestId"),
        json_get(reading->meta, "openai/session"),
        json_get(reading->meta, "openai/subject"),
    };
    for (size_t i = 0; !call->workflow && i < sizeof values / sizeof *values; i++) {
        if (values[i] && values[i]->type == JSON_STRING && usable(values[i]->text, CALL_COORDINATE_BYTES_MAX))
            call->workflow = arena_copy_str(reading->arena, values[i]->text);
    }
}

static bool read_client(struct reading *reading, struct call *call)
{
    const struct json *turn;
    if (!codex_turn(reading, &turn) || !read_session(reading, turn, call) || !read_tool_use(reading, call))
        return false;
    read_correlation(reading, turn, call);
    return true;
}

static void read_trace(struct reading *reading, struct call *call)
{
    const struct json *value = json_get(reading->meta, "traceparent");
    if (value && value->type == JSON_STRING)
        call->trace = call_traceparent(reading->arena, value->text);
    if (!call->trace && reading->facts->traceparent.p)
        call->trace = call_traceparent(reading->arena, reading->facts->traceparent);
}

/* ---- repeat_of and distinct_from ---- */

static const char *operation_of(struct reading *reading, const struct json *value)
{
    if (value->type != JSON_STRING || value->text.n != OPERATION_ID_SIZE - 1)
        return NULL;
    const char *id = arena_copy_str(reading->arena, value->text);
    return operation_id_valid(id) ? id : NULL;
}

/* Models fill optional arguments with null or "": not given. */
static bool is_blank(const struct json *value)
{
    return !value || value->type == JSON_NULL || (value->type == JSON_STRING && value->text.n == 0);
}

static bool take_repeat(struct reading *reading, const struct json *value, const char *where, const char *pointer,
                        struct call *call, const char **from)
{
    if (pointer ? is_blank(value) : !value)
        return true;
    const char *id = operation_of(reading, value);
    if (!id)
        return refuse(reading, pointer, "%s must be an operation id (op_…) of a call that has ended", where);
    return agree(reading, where, id, &call->repeat_of, from);
}

static bool add_distinct(struct reading *reading, const struct json *value, const char *where, const char *pointer,
                         struct call *call)
{
    const char *id = operation_of(reading, value);
    if (!id)
        return refuse(reading, pointer, "%s must be an operation id (op_…) or an array of them", where);
    for (size_t i = 0; i < call->distinct_count; i++) {
        if (strcmp(call->distinct_from[i], id) == 0)
            return true;
    }
    if (call->distinct_count == ADMISSION_DISTINCT_MAX)
        return refuse(reading, pointer, "%s: at most %d operations", where, ADMISSION_DISTINCT_MAX);
    call->distinct_from[call->distinct_count++] = id;
    return true;
}

static bool take_distinct(struct reading *reading, const struct json *value, const char *where, const char *pointer,
                          struct call *call)
{
    if (pointer ? is_blank(value) : !value)
        return true;
    if (value->type != JSON_ARRAY)
        return add_distinct(reading, value, where, pointer, call);
    for (uint32_t i = 0; i < value->count; i++) {
        if (!add_distinct(reading, &value->items[i], where, pointer, call))
            return false;
    }
    return true;
}

static const char *hidden_argument(const struct tool *tool)
{
    return tool->provider && tool->provider->kind == PROVIDER_MCP && tool->adapter_tool
               ? mcp_tool_key_argument(tool->adapter_tool)
               : NULL;
}

static const struct json *without(struct arena *arena, const struct json *arguments, const char *const *names,
                                  size_t count)
{
    bool has = false;
    for (size_t i = 0; i < count; i++)
        has = has || (names[i] && json_get(arguments, names[i]));
    if (!has)
        return arguments;
    struct json *copy = json_object(arena);
    for (uint32_t m = 0; m < arguments->count; m++) {
        bool drop = false;
        for (size_t i = 0; i < count; i++)
            drop = drop || (names[i] && str_is(arguments->members[m].name, names[i]));
        if (!drop)
            json_set(arena, copy, arguments->members[m].name, arguments->members[m].value);
    }
    return copy;
}

static bool take_override(struct reading *reading, const struct json *value, const char *where, const char *pointer,
                          struct call *call, const char **from)
{
    if (pointer ? is_blank(value) : !value)
        return true;
    if (value->type != JSON_STRING || value->text.n == 0 || value->text.n > CALL_COORDINATE_BYTES_MAX)
        return refuse(reading, pointer, "%s must be a text of at most %d bytes", where, CALL_COORDINATE_BYTES_MAX);
    return agree(reading, where, arena_copy_str(reading->arena, value->text), &call->override_reason, from);
}

/* Tools without a window that may be overridden keep an argument of that name for themselves. */
static const char *override_argument(const struct tool *tool)
{
    bool overridable = tool->claims && tool->claims->window.key && tool->claims->window.overridable;
    return overridable && mcp_adds_argument(tool, MCP_ARGUMENT_OVERRIDE) ? MCP_ARGUMENT_OVERRIDE : NULL;
}

static bool read_override(struct reading *reading, const struct tool *tool, struct call *call)
{
    const char *argument = override_argument(tool), *from = "";
    return take_override(reading, json_get(reading->meta, MCP_META_OVERRIDE), meta_place(reading, MCP_META_OVERRIDE),
                         NULL, call, &from) &&
           (!argument || take_override(reading, json_get(call->arguments, argument), argument,
                                       "/" MCP_ARGUMENT_OVERRIDE, call, &from));
}

static bool read_intent(struct reading *reading, const struct tool *tool, struct call *call)
{
    const char *repeat = mcp_adds_argument(tool, MCP_ARGUMENT_REPEAT) ? MCP_ARGUMENT_REPEAT : NULL;
    const char *distinct = mcp_adds_argument(tool, MCP_ARGUMENT_DISTINCT) ? MCP_ARGUMENT_DISTINCT : NULL;
    const struct json *arguments = call->arguments;
    const char *from = "";
    if (!take_repeat(reading, json_get(reading->meta, MCP_META_REPEAT), meta_place(reading, MCP_META_REPEAT), NULL,
                     call, &from) ||
        !take_distinct(reading, json_get(reading->meta, MCP_META_DISTINCT), meta_place(reading, MCP_META_DISTINCT),
                       NULL, call))
        return false;
    if (repeat && !take_repeat(reading, json_get(arguments, repeat), repeat, "/" MCP_ARGUMENT_REPEAT, call, &from))
        return false;
    if (distinct && !take_distinct(reading, json_get(arguments, distinct), distinct, "/" MCP_ARGUMENT_DISTINCT, call))
        return false;
    if (!read_override(reading, tool, call))
        return false;
    const char *const drop[] = {repeat, distinct, override_argument(tool), hidden_argument(tool)};
    call->arguments = without(reading->arena, arguments, drop, sizeof drop / sizeof *drop);
    return true;
}

/* ---- the whole ---- */

static bool read_arguments(struct reading *reading, struct call *call)
{
    const struct json *arguments = json_get(reading->params, "arguments");
    if (!arguments || arguments->type == JSON_NULL)
        arguments = json_object(reading->arena);
    if (arguments->type != JSON_OBJECT)
        return refuse(reading, NULL, "params.arguments must be an object, got %s", json_type_name(arguments->type));
    call->arguments = arguments;
    return true;
}

bool mcp_identity_read(struct arena *arena, const struct rpc_message *message, const struct mcp_facts *facts,
                       const struct tool *tool, struct call *call, struct mcp_fault *fault)
{
    struct reading reading = {
        .arena = arena,
        .params = message->params,
        .meta = json_get(message->params, "_meta"),
        .facts = facts,
        .fault = fault,
    };
    if (reading.meta && reading.meta->type != JSON_OBJECT)
        return refuse(&reading, NULL, "params._meta must be an object, got %s", json_type_name(reading.meta->type));
    if (!read_arguments(&reading, call) || !read_key(&reading, call) || !read_coordinates(&reading, call) ||
        !read_client(&reading, call) || !read_intent(&reading, tool, call))
        return false;
    read_trace(&reading, call);
    return true;
}
