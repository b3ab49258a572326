/* What an MCP client sends with a call, and what the answer makes of what a server or provider gave back. Lines:
 * control letters and then the Idempotency-Key header; the operation's result; its error; the rest: params of
 * tools/call. */
#include "fuzz.h"

#include "support/fake_forward.h"

#define NOW_MS INT64_C(1790000000000)

static const struct err no_error;

static unsigned pick(struct str control, size_t at, unsigned count)
{
    return at < control.n ? (unsigned char)control.p[at] % count : 0;
}

static struct str next_line(struct str *rest)
{
    struct str line, left;
    fuzz_split(*rest, &line, &left);
    *rest = left;
    return line;
}

static bool usable(const char *text, size_t bytes_max)
{
    return !text || (text[0] && strlen(text) <= bytes_max);
}

/* What gets through is within what the engine is promised; what is onced's own is not passed on. */
static void check_call(const struct tool *tool, const struct call *call)
{
    CHECK(call->arguments && call->arguments->type == JSON_OBJECT);
    CHECK(usable(call->idempotency_key, OPERATION_KEY_BYTES_MAX));
    const char *const coordinates[] = {call->workflow, call->run, call->step, call->session, call->call};
    for (size_t i = 0; i < sizeof coordinates / sizeof *coordinates; i++)
        CHECK(usable(coordinates[i], CALL_COORDINATE_BYTES_MAX));
    CHECK(!call->repeat_of || operation_id_valid(call->repeat_of));
    CHECK(call->distinct_count <= ADMISSION_DISTINCT_MAX);
    for (size_t i = 0; i < call->distinct_count; i++)
        CHECK(operation_id_valid(call->distinct_from[i]));
    CHECK(!call->trace || strlen(call->trace) == 55);
    CHECK(!call->call_id_per_try || call->call);
    if (mcp_adds_argument(tool, MCP_ARGUMENT_REPEAT))
        CHECK(!json_get(call->arguments, MCP_ARGUMENT_REPEAT));
    if (tool->provider->kind == PROVIDER_MCP)
        CHECK(!json_get(call->arguments, "request_id"));
}

static void read_call(struct arena *arena, const struct tool *tool, struct str control, struct str params)
{
    struct json *tree;
    struct err err = {0};
    struct call call = {0};
    struct mcp_fault fault = {0};
    struct rpc_message message = {.kind = RPC_REQUEST, .method = "tools/call"};
    struct mcp_facts facts = {0};
    if (json_parse(arena, params, NULL, &tree, &err) || tree->type != JSON_OBJECT)
        return;
    message.params = tree;
    if (control.n > 6)
        facts.idempotency_key = (struct str){control.p + 6, control.n - 6};
    if (mcp_identity_read(arena, &message, &facts, tool, &call, &fault)) {
        check_call(tool, &call);
        return;
    }
    CHECK(fault.code == RPC_INVALID_PARAMS && fault.text && fault.text[0]);
    CHECK(!fault.pointer || json_pointer_valid(str_of(fault.pointer)));
}

/* Whatever was recorded: one JSON object, with content, and no error where an effect is possible. */
static void check_result(struct arena *arena, const struct engine_reply *reply, enum mcp_era era, struct str text)
{
    struct json *value;
    struct err err = {0};
    const struct json_limits limits = {.bytes_max = SIZE_MAX, .depth_max = 1000, .values_max = SIZE_MAX};
    CHECK(json_parse(arena, text, &limits, &value, &err) == ERR_NONE);
    const struct json *content = json_get(value, "content"), *is_error = json_get(value, "isError");
    const struct json *structured = json_get(value, "structuredContent");
    CHECK(content && content->type == JSON_ARRAY);
    CHECK(is_error && is_error->type == JSON_BOOL);
    CHECK(!structured || structured->type == JSON_OBJECT || era == MCP_ERA_MODERN);
    CHECK((era == MCP_ERA_MODERN) == (json_get(value, "resultType") != NULL));
    if (reply->kind == REPLY_OPERATION && reply->op->state != STATE_FAILED_PERMANENT &&
        reply->op->state != STATE_REJECTED)
        CHECK(!is_error->boolean);
    if (reply->kind == REPLY_HELD)
        CHECK(!is_error->boolean);
}

/* The ledger holds JSON only. */
static struct str stored(struct arena *arena, struct str text)
{
    struct json *value;
    return text.n > 0 && json_parse(arena, text, NULL, &value, NULL) == ERR_NONE ? text : STR_NONE;
}

static void write_result(struct arena *arena, const struct tool *tool, struct str control, struct str result,
                         struct str error)
{
    static const enum reply_kind kinds[] = {REPLY_OPERATION, REPLY_OPERATION, REPLY_OPERATION,  REPLY_READ,
                                            REPLY_CONFLICT,  REPLY_HELD,      REPLY_NOT_SHARED, REPLY_REPEAT};
    struct operation op = {
        .id = "op_01J00000000000000000000001",
        .tool = tool->name,
        .principal = "local",
        .created_ms = NOW_MS - 5000,
        .state = (enum state)pick(control, 1, STATE_COUNT),
        .reason = (enum reason)pick(control, 2, REASON_COUNT),
        .result = stored(arena, result),
        .error = stored(arena, error),
        .duplicate_seen = pick(control, 3, 5) == 1,
    };
    const struct engine_reply reply = {
        .kind = kinds[pick(control, 0, sizeof kinds / sizeof *kinds)], .op = &op, .tool = tool, .err = &no_error};
    const struct mcp_result_view view = {
        .shape = {.arena = arena,
                  .now_ms = NOW_MS,
                  .own_call = pick(control, 3, 2) == 0,
                  .replayed = pick(control, 3, 3) == 0,
                  .withheld = pick(control, 3, 7) == 0},
        .era = pick(control, 4, 2) ? MCP_ERA_MODERN : MCP_ERA_LEGACY,
        .can_wait = true,
    };
    struct buf out;
    if (reply.kind == REPLY_READ)
        op.id[0] = '\0';
    buf_init(&out, 0);
    mcp_write_result(&out, &reply, &view);
    check_result(arena, &reply, view.era, buf_str(&out));
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const redact[] = {"/structuredContent/card", "/content/0/text", "/card"};
    struct arena arena;
    struct str rest = {(const char *)data, size};
    struct str control = next_line(&rest), result = next_line(&rest), error = next_line(&rest);
    const struct provider provider = {.name = "p", .kind = pick(control, 5, 2) ? PROVIDER_MCP : PROVIDER_HTTP};
    const struct tool tool = {
        .name = "refund",
        .class = pick(control, 5, 3) ? CLASS_EXTERNAL_WEAK : CLASS_READ,
        .provider = &provider,
        .adapter_tool = "remote",
        .redact_pointers = redact,
        .redact_count = 3,
    };
    arena_init(&arena);
    fake_forward.key_argument = "request_id";
    read_call(&arena, &tool, control, rest);
    write_result(&arena, &tool, control, result, error);
    arena_release(&arena);
    return 0;
}
