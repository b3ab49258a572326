/* What tools/call answers (design 12, case S88): words that say what is known and what to do now, and the same for
 * programs. An outcome that is pending or unknown is never an error: clients and models answer errors with another
 * call. Pure.
 *
 *   reply                       isError   what the model is told to do
 *   done, nothing to do         no        use the result
 *   under way, unknown          no        wait (onced_wait), not call again
 *   failed, rejected (proven)   yes       mend the arguments, or ask a person
 *   held (in doubt)             no        wait for the other operation, or say distinct_from
 *   other arguments, same key   yes       look at the earlier operation
 *   not shared, expired         no        not call again (expired after a proven failure: yes)
 *   arguments refused           yes       mend them, places are named
 *   repeat_of refused           yes       say another one; no while the named operation is open: wait for it
 *   unknown tool, no key, ledger out of reach: errors of JSON-RPC, nothing was run */
#include "door/mcp_parts.h"
#include "door/message.h"

#define MESSAGE_BYTES_MAX 2000 /* of a provider's error in the text */
#define ERRORS_SHOWN_MAX  16

/* ---- small parts ---- */

static const char *tool_name(const struct engine_reply *reply, const struct mcp_result_view *view)
{
    if (reply->op && reply->op->tool)
        return reply->op->tool;
    if (reply->tombstone && reply->tombstone->tool)
        return reply->tombstone->tool;
    return reply->tool ? reply->tool->name : view->tool ? view->tool : "the tool";
}

static struct str shown(struct str text, const struct tool *tool, const struct shape_view *view)
{
    if (view->withheld)
        return STR_NONE;
    return view->own_call ? text : shape_masked(view->arena, text, tool);
}

static const struct json *parsed(struct arena *arena, struct str text)
{
    const struct json_limits stored = {.bytes_max = SIZE_MAX, .depth_max = 1000, .values_max = SIZE_MAX};
    struct json *value;
    return text.p && json_parse(arena, text, &stored, &value, NULL) == 0 ? value : NULL;
}

/* Not more than what fits, never half a character. */
static void add_bounded(struct buf *out, struct str text)
{
    size_t n = text.n < MESSAGE_BYTES_MAX ? text.n : MESSAGE_BYTES_MAX;
    while (n < text.n && n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    buf_add(out, text.p, n);
    if (n < text.n)
        buf_add_text(out, " …");
}

static void add_error_text(struct buf *out, const struct operation *op, const struct tool *tool,
                           const struct shape_view *view)
{
    const struct json *error = parsed(view->arena, shown(op->error, tool, view));
    struct str message = json_get_text(error, "message");
    if (message.n == 0)
        return;
    buf_add_text(out, "\nWhat went wrong: ");
    add_bounded(out, message);
}

static void add_note(struct buf *out, const struct engine_reply *reply, const struct shape_view *view)
{
    struct buf note;
    buf_init(&note, 0);
    message_note(&note, reply->op, reply->tool, view);
    if (note.n > 0) {
        buf_add_text(out, "\nNote: ");
        buf_add_str(out, buf_str(&note));
    }
    buf_release(&note);
}

/* How to learn more about an operation later, in what this door offers. */
static void add_wait(struct buf *out, const char *id, const struct mcp_result_view *view)
{
    if (view->can_wait)
        buf_printf(out, "call onced_wait with {\"operation_id\": \"%s\"}", id);
    else if (view->can_status)
        buf_printf(out, "call onced_status with {\"operation_id\": \"%s\"} in a while", id);
    else
        buf_printf(out, "tell the user that %s is not settled yet", id);
}

static void add_look(struct buf *out, const char *id, const struct mcp_result_view *view)
{
    if (view->can_status)
        buf_printf(out, "call onced_status with {\"operation_id\": \"%s\"}", id);
    else
        buf_printf(out, "ask a person to look at %s", id);
}

/* ---- an operation, a read ---- */

static void add_advice(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const struct operation *op = reply->op;
    const char *name = tool_name(reply, view);
    bool read = !op->id[0];
    switch (shape_next_action(op)) {
    case NEXT_USE_RESULT:
        if (!read)
            buf_printf(out, "\nDo not call %s again for the same purpose. It is recorded as %s.", name, op->id);
        return;
    case NEXT_WAIT:
        if (read) {
            buf_printf(out, "\nNothing was changed; %s may be called again.", name);
            return;
        }
        buf_printf(out, "\nDo not call %s again for this: it is recorded as %s (%s). To learn the outcome, ", name,
                   op->id, state_name(op->state));
        add_wait(out, op->id, view);
        buf_add_text(out, ". Until then say neither that it was done nor that it failed.");
        return;
    case NEXT_DO_NOT_RETRY:
        buf_printf(out, "\nDo not call %s again for this. It is recorded as %s.", name, op->id);
        return;
    case NEXT_FIX_ARGUMENTS:
        if (op->steps.p) {
            buf_printf(out,
                       "\nThis attempt is over. Calling %s again is a new one; with the same arguments it may end the "
                       "same way.",
                       name);
            return;
        }
        buf_printf(out,
                   "\nNothing was changed. Mend the arguments before calling %s again; the same arguments get the "
                   "same answer.",
                   name);
        return;
    case NEXT_ASK_HUMAN:
        buf_printf(out, "\nDo not call %s again for this. Tell the user that a person has to look at %s.", name,
                   op->id);
        return;
    }
}

/* A multi-step operation that did not come to its end. */
static bool rolled_back(const struct operation *op)
{
    return op->steps.p && op->state == STATE_COMPENSATED;
}

static void operation_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const struct operation *op = reply->op;
    struct str result = shown(op->result, reply->tool, &view->shape);
    buf_add_text(out, shape_words(view->shape.arena, op, reply->tool));
    add_advice(out, reply, view);
    if (op->state == STATE_FAILED_PERMANENT || op->state == STATE_UNKNOWN_OUTCOME || op->state == STATE_REJECTED ||
        op->state == STATE_FAILED_RETRYABLE || rolled_back(op))
        add_error_text(out, op, reply->tool, &view->shape);
    add_note(out, reply, &view->shape);
    if (result.p) {
        buf_add_text(out, "\nResult: ");
        buf_add_str(out, result);
    }
}

/* ---- calls that did not run ---- */

/* What the other operation is, in a bracket: id, time, what is known. */
static void add_existing(struct buf *out, const struct engine_reply *reply)
{
    char at[ENV_TIME_SIZE];
    const struct operation *op = reply->op;
    if (op) {
        env_time_text(op->created_ms, at);
        buf_printf(out, "%s (begun at %s, %s: %s)", op->id, at, state_name(op->state), shape_message(op, reply->tool));
    } else if (reply->tombstone) {
        env_time_text(reply->tombstone->completed_ms, at);
        buf_printf(out, "%s (ended at %s, %s)", reply->tombstone->operation, at, state_name(reply->tombstone->state));
    } else {
        buf_add_text(out, "an earlier operation");
    }
}

static const char *existing_id(const struct engine_reply *reply)
{
    return reply->op ? reply->op->id : reply->tombstone ? reply->tombstone->operation : "";
}

static void refused_words(struct buf *out, const struct engine_reply *reply)
{
    const struct identity_error *why = reply->why;
    size_t count = why && why->refusal == REFUSAL_ARGUMENTS ? why->error_count : 0;
    if (reply->err && reply->err->code == ERR_DENIED) {
        buf_printf(out, "Nothing was run: %s.\nDo not try again with other arguments to get around it.",
                   reply->err->text);
        return;
    }
    buf_add_text(out, "Nothing was run: the arguments are not valid.");
    for (size_t i = 0; i < count && i < ERRORS_SHOWN_MAX; i++) {
        const char *pointer = why->errors[i].pointer;
        buf_printf(out, "\n- %s: ", pointer && pointer[0] ? pointer : "the arguments");
        add_bounded(out, str_of(why->errors[i].message ? why->errors[i].message : "not valid"));
    }
    if (count > ERRORS_SHOWN_MAX)
        buf_printf(out, "\n- and %zu more", count - ERRORS_SHOWN_MAX);
    if (count == 0 && reply->err && reply->err->text[0])
        buf_printf(out, "\n- %s", reply->err->text);
    buf_add_text(out, "\nMend the arguments and call again.");
}

static void conflict_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    buf_add_text(out, "Nothing was run. What identifies this call was used before with other arguments, as ");
    add_existing(out, reply);
    buf_add_char(out, '.');
    for (size_t i = 0; i < reply->differing_count; i++)
        buf_printf(out, "%s%s", i == 0 ? "\nThey differ at " : ", ",
                   reply->differing[i][0] ? reply->differing[i] : "the whole");
    buf_printf(out, "%s\nIf that call is what is meant, do not call %s again: ", reply->differing_count ? "." : "",
               tool_name(reply, view));
    add_look(out, existing_id(reply), view);
    buf_add_text(out, ". If it is another intent, ask the user; it needs other values in what identifies it.");
}

static void not_shared_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const char *principal = reply->op ? reply->op->principal : reply->tombstone ? reply->tombstone->principal : NULL;
    buf_printf(out, "Nothing was run. This was called before by %s, who alone may see the result, as %s.",
               principal ? principal : "another principal", existing_id(reply));
    buf_printf(out, "\nDo not call %s again for this; tell the user.", tool_name(reply, view));
}

/* Waiting for what only a person can settle is of no use. */
static bool waits_for_person(const struct operation *op)
{
    return op && shape_next_action(op) == NEXT_ASK_HUMAN;
}

static void held_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    buf_add_text(out, "Nothing was run, because an earlier call of the same tool is not settled: ");
    add_existing(out, reply);
    buf_printf(out, ".\nIf this call means the same, do not call %s again: ", tool_name(reply, view));
    if (waits_for_person(reply->op))
        buf_printf(out, "tell the user that a person has to look at %s", existing_id(reply));
    else
        add_wait(out, existing_id(reply), view);
    buf_printf(out, ".\nIf it is another intent, call %s again with \"distinct_from\": \"%s\".", tool_name(reply, view),
               existing_id(reply));
}

static void expired_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const struct operation op = {.state = reply->tombstone ? reply->tombstone->state : STATE_COMPLETED_SUCCESS};
    buf_add_text(out, "Nothing was run now. This was called before, as ");
    add_existing(out, reply);
    buf_printf(out, ": %s\nOnly the fact is still kept, its result is not. Do not call %s again for this.",
               shape_message(&op, NULL), tool_name(reply, view));
}

static bool repeat_is_open(const struct engine_reply *reply)
{
    return reply->op && !state_terminal(reply->op->state);
}

static void repeat_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    buf_printf(out, "Nothing was run: %s.",
               reply->err && reply->err->text[0] ? reply->err->text : "the repetition is refused");
    if (repeat_is_open(reply)) {
        buf_add_text(out, "\nTo learn its outcome, ");
        add_wait(out, reply->op->id, view);
        buf_add_char(out, '.');
        return;
    }
    buf_printf(out, "\nIf the user wants %s done once more, repeat_of must name the operation that was done.",
               tool_name(reply, view));
}

static void policy_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const struct claims_refusal *refusal = reply->refusal;
    const char *why = reply->err && reply->err->text[0] ? reply->err->text : "a policy forbids it";
    buf_printf(out, "Nothing was run: %s.", why);
    if (refusal->verdict == CLAIMS_ENTITY && refusal->operation) {
        buf_add_text(out, "\nTo learn when it has ended, ");
        add_wait(out, refusal->operation, view);
        buf_add_char(out, '.');
    } else if (refusal->verdict == CLAIMS_WINDOW && refusal->overridable) {
        buf_printf(out, "\nOnly if the user wants it again all the same, call %s again with \"override_reason\": why.",
                   tool_name(reply, view));
    } else {
        buf_printf(out, "\nDo not call %s again for this now.", tool_name(reply, view));
    }
}

static void plan_words(struct buf *out, const struct engine_reply *reply)
{
    buf_add_text(out, "Nothing was run or recorded. This is what a call would do:\n");
    buf_add_str(out, reply->plan);
}

void mcp_write_result_text(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    switch (reply->kind) {
    case REPLY_OPERATION:
    case REPLY_READ: operation_words(out, reply, view); return;
    case REPLY_PLAN: plan_words(out, reply); return;
    case REPLY_REFUSED: refused_words(out, reply); return;
    case REPLY_CONFLICT: conflict_words(out, reply, view); return;
    case REPLY_NOT_SHARED: not_shared_words(out, reply, view); return;
    case REPLY_HELD: held_words(out, reply, view); return;
    case REPLY_POLICY: policy_words(out, reply, view); return;
    case REPLY_EXPIRED: expired_words(out, reply, view); return;
    case REPLY_REPEAT: repeat_words(out, reply, view); return;
    case REPLY_NOT_FOUND: buf_add_text(out, "There is no such operation."); return;
    case REPLY_NO_TOOL:
    case REPLY_STALE:
    case REPLY_IMPOSSIBLE:
    case REPLY_UNAVAILABLE:
        buf_add_text(out, reply->err && reply->err->text[0] ? reply->err->text : "This is not possible now.");
        return;
    }
}

/* ---- whether it is an error ---- */

static bool proven_failure(enum state state)
{
    return state == STATE_FAILED_PERMANENT || state == STATE_REJECTED;
}

bool mcp_result_is_error(const struct engine_reply *reply)
{
    switch (reply->kind) {
    case REPLY_OPERATION: return proven_failure(reply->op->state) || rolled_back(reply->op);
    case REPLY_READ: /* nothing can have happened: whatever is no success has failed */
        return reply->op->state != STATE_COMPLETED_SUCCESS && reply->op->state != STATE_COMPLETED_NOOP;
    case REPLY_EXPIRED: return reply->tombstone && proven_failure(reply->tombstone->state);
    case REPLY_REPEAT: return !repeat_is_open(reply);
    case REPLY_PLAN:
    case REPLY_NOT_SHARED:
    case REPLY_POLICY: /* nothing is wrong with the call */
    case REPLY_HELD: return false;
    case REPLY_REFUSED:
    case REPLY_CONFLICT:
    case REPLY_NOT_FOUND:
    case REPLY_NO_TOOL:
    case REPLY_STALE:
    case REPLY_IMPOSSIBLE:
    case REPLY_UNAVAILABLE: return true;
    }
    return true;
}

bool mcp_reply_is_error(struct arena *arena, const struct engine_reply *reply, const char *tool,
                        struct mcp_fault *fault)
{
    const char *text = reply->err && reply->err->text[0] ? reply->err->text : "not available at the moment";
    if (reply->kind == REPLY_NO_TOOL) {
        *fault = (struct mcp_fault){RPC_INVALID_PARAMS, arena_printf(arena, "no tool \"%.100s\"", tool), NULL};
        return true;
    }
    if (reply->kind == REPLY_UNAVAILABLE) {
        *fault = (struct mcp_fault){RPC_INTERNAL_ERROR,
                                    arena_printf(arena, "nothing was sent: %s; call again in a moment", text), NULL};
        return true;
    }
    if (reply->kind != REPLY_REFUSED || !reply->why)
        return false;
    if (reply->why->refusal == REFUSAL_KEY_MISSING)
        text = arena_printf(arena,
                            "nothing was run: tool %.64s needs an idempotency key of the client, as _meta[\"%s\"] or "
                            "header Idempotency-Key",
                            tool, MCP_META_KEY);
    else if (reply->why->refusal == REFUSAL_KEY_INVALID)
        text = arena_printf(arena, "nothing was run: %s", text);
    else
        return false;
    *fault = (struct mcp_fault){RPC_INVALID_PARAMS, text, NULL};
    return true;
}

/* ---- for programs ---- */

struct not_run {
    enum problem_type type;
    enum next_action next;
    const char *message; /* safe_user_message */
};

static struct not_run not_run_by_policy(const struct claims_refusal *refusal)
{
    enum problem_type type = shape_refusal_type(refusal);
    switch (refusal->verdict) {
    case CLAIMS_ENTITY:
        return (struct not_run){type, NEXT_WAIT,
                                "Nothing was done now: an earlier request about the same is not settled."};
    case CLAIMS_WINDOW:
        return (struct not_run){type, NEXT_DO_NOT_RETRY, "Nothing was done now: the same was done not long ago."};
    case CLAIMS_BUDGET:
        return (struct not_run){type, refusal->until_ms ? NEXT_WAIT : NEXT_ASK_HUMAN,
                                "Nothing was done now: a limit has been reached."};
    case CLAIMS_GUARD:
    case CLAIMS_PASS:
    case CLAIMS_WAIT:
    case CLAIMS_LOOK: break;
    }
    return (struct not_run){type, NEXT_DO_NOT_RETRY, "This was not done: it is not allowed as things stand."};
}

static struct not_run not_run_of(const struct engine_reply *reply)
{
    switch (reply->kind) {
    case REPLY_REFUSED:
        if (reply->err && reply->err->code == ERR_DENIED)
            return (struct not_run){PROBLEM_FORBIDDEN, NEXT_DO_NOT_RETRY, "This was not done: it is not permitted."};
        return (struct not_run){PROBLEM_INVALID_ARGUMENTS, NEXT_FIX_ARGUMENTS,
                                "This was not done: the details given are not valid."};
    case REPLY_CONFLICT:
        return (struct not_run){PROBLEM_KEY_REUSED, NEXT_DO_NOT_RETRY,
                                "Nothing was done now: the same was requested before with other details."};
    case REPLY_NOT_SHARED:
        return (struct not_run){PROBLEM_RESULT_NOT_SHARED, NEXT_DO_NOT_RETRY,
                                "Nothing was done now: the same was requested before by somebody else."};
    case REPLY_HELD:
        return (struct not_run){PROBLEM_IN_DOUBT, waits_for_person(reply->op) ? NEXT_ASK_HUMAN : NEXT_WAIT,
                                "Nothing was done now: an earlier request is still being checked."};
    case REPLY_POLICY: return not_run_by_policy(reply->refusal);
    case REPLY_REPEAT:
        return repeat_is_open(reply)
                   ? (struct not_run){PROBLEM_REPEAT_REFUSED, NEXT_WAIT,
                                      "Nothing was repeated: the first request has not ended."}
                   : (struct not_run){PROBLEM_REPEAT_REFUSED, NEXT_DO_NOT_RETRY, "Nothing was repeated."};
    case REPLY_NOT_FOUND: return (struct not_run){PROBLEM_NOT_FOUND, NEXT_FIX_ARGUMENTS, "There is no record of this."};
    case REPLY_OPERATION:
    case REPLY_READ:
    case REPLY_PLAN:
    case REPLY_EXPIRED:
    case REPLY_NO_TOOL:
    case REPLY_STALE:
    case REPLY_IMPOSSIBLE:
    case REPLY_UNAVAILABLE: break;
    }
    return (struct not_run){PROBLEM_NOT_POSSIBLE, NEXT_ASK_HUMAN, "This is not possible now."};
}

static void add_problem(struct buf *out, const struct engine_reply *reply, enum problem_type type)
{
    static const char *const none[] = {NULL};
    struct problem_document problem = {
        .type = type,
        .detail = reply->err && reply->err->text[0] ? reply->err->text : NULL,
        .op = reply->op,
        .tombstone = reply->tombstone,
    };
    if (type == PROBLEM_INVALID_ARGUMENTS && reply->why && reply->why->refusal == REFUSAL_ARGUMENTS) {
        problem.errors = reply->why->errors;
        problem.error_count = reply->why->error_count;
    }
    problem.refusal = reply->refusal;
    if (type == PROBLEM_RESULT_NOT_SHARED)
        problem.principal = reply->op ? reply->op->principal : reply->tombstone ? reply->tombstone->principal : NULL;
    if (type == PROBLEM_KEY_REUSED) {
        problem.differing = reply->differing_count > 0 ? reply->differing : none;
        problem.differing_count = reply->differing_count;
    }
    shape_problem(out, &problem);
}

/* The members that the result shape always has, and why nothing was run. */
static void not_run_shape(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    struct not_run what = not_run_of(reply);
    int64_t retry_ms = what.next == NEXT_WAIT && reply->op ? shape_retry_after_ms(reply->op, view->shape.now_ms) : 0;
    if (reply->refusal)
        retry_ms = shape_refusal_wait_ms(reply->refusal, view->shape.now_ms);
    struct buf problem;
    struct json_out json;
    buf_init(&problem, 0);
    add_problem(&problem, reply, what.type);
    json_out_init(&json, out);
    json_out_object(&json);
    json_out_name(&json, "operation_id"), json_out_null(&json);
    json_out_member_text(&json, "tool", tool_name(reply, view));
    json_out_member_text(&json, "status", "not_run");
    json_out_member_text(&json, "reason", problem_type_name(what.type));
    json_out_member_bool(&json, "replayed", false);
    json_out_member_text(&json, "next_action", next_action_name(what.next));
    json_out_name(&json, "retry_after_ms");
    if (retry_ms)
        json_out_int(&json, retry_ms);
    else
        json_out_null(&json);
    json_out_member_text(&json, "safe_user_message", what.message);
    json_out_name(&json, "problem"), json_out_raw(&json, buf_str(&problem));
    json_out_end_object(&json);
    buf_release(&problem);
}

static void add_shape(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    switch (reply->kind) {
    case REPLY_OPERATION:
    case REPLY_READ: shape_operation(out, reply->op, reply->tool, &view->shape); return;
    case REPLY_PLAN: buf_add_str(out, reply->plan); return;
    case REPLY_EXPIRED: shape_tombstone(out, reply->tombstone); return;
    case REPLY_NO_TOOL:
    case REPLY_REFUSED:
    case REPLY_CONFLICT:
    case REPLY_NOT_SHARED:
    case REPLY_HELD:
    case REPLY_POLICY:
    case REPLY_REPEAT:
    case REPLY_NOT_FOUND:
    case REPLY_STALE:
    case REPLY_IMPOSSIBLE:
    case REPLY_UNAVAILABLE: not_run_shape(out, reply, view); return;
    }
}

/* ---- the result ---- */

static void begin(struct json_out *json, struct buf *out, const struct mcp_result_view *view)
{
    json_out_init(json, out);
    json_out_object(json);
    if (view->era == MCP_ERA_MODERN && !view->inlined)
        json_out_member_text(json, "resultType", "complete");
}

static void text_block(struct json_out *json, struct str text)
{
    json_out_object(json);
    json_out_member_text(json, "type", "text");
    json_out_name(json, "text"), json_out_str(json, text);
    json_out_end_object(json);
}

static void related_task(struct json_out *json, const char *task)
{
    json_out_name(json, MCP_META_RELATED_TASK);
    json_out_object(json);
    json_out_member_text(json, "taskId", task);
    json_out_end_object(json);
}

static void finish(struct json_out *json, const struct mcp_result_view *view)
{
    if (view->task) {
        json_out_name(json, "_meta");
        json_out_object(json);
        related_task(json, view->task);
        json_out_end_object(json);
    }
    json_out_end_object(json);
}

/* ---- results of MCP servers ---- */

static bool is_call_result(const struct json *value)
{
    const struct json *content = json_get(value, "content");
    return content ? content->type == JSON_ARRAY : json_get(value, "structuredContent") != NULL;
}

/* The server's own CallToolResult, when that is what the operation has for a result; NULL else. What a look-up or an
 * operator found is not what the tool would have answered: that is told in our words. */
static const struct json *server_result(const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const struct operation *op = reply->op;
    const struct provider *provider = reply->tool ? reply->tool->provider : NULL;
    if ((reply->kind != REPLY_OPERATION && reply->kind != REPLY_READ) || !provider || provider->kind != PROVIDER_MCP ||
        (op->state != STATE_COMPLETED_SUCCESS && op->state != STATE_COMPLETED_NOOP) ||
        op->reason == REASON_RECONCILED || op->reason == REASON_OPERATOR || op->reason == REASON_LATE_LANDING)
        return NULL;
    const struct json *value = parsed(view->shape.arena, shown(op->result, reply->tool, &view->shape));
    return is_call_result(value) ? value : NULL;
}

/* What a server said about a call that it refused: shown before our words. */
static const struct json *server_refusal(const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const struct provider *provider = reply->tool ? reply->tool->provider : NULL;
    if ((reply->kind != REPLY_OPERATION && reply->kind != REPLY_READ) || !provider || provider->kind != PROVIDER_MCP ||
        reply->op->state != STATE_FAILED_PERMANENT)
        return NULL;
    const struct json *error = parsed(view->shape.arena, shown(reply->op->error, reply->tool, &view->shape));
    const struct json *value = json_get(error, "provider");
    return is_call_result(value) ? value : NULL;
}

static void add_items(struct json_out *json, const struct json *array)
{
    for (uint32_t i = 0; i < array->count; i++)
        json_out_value(json, &array->items[i]);
}

/* What must be said besides a server's own words; nothing for an ordinary success. */
static void beside_words(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    if (reply->op->duplicate_seen || reply->op->state == STATE_COMPLETED_NOOP)
        buf_add_text(out, shape_message(reply->op, reply->tool));
    struct buf note;
    buf_init(&note, 0);
    message_note(&note, reply->op, reply->tool, &view->shape);
    if (note.n > 0 && out->n > 0)
        buf_add_char(out, '\n');
    buf_add_str(out, buf_str(&note));
    buf_release(&note);
}

/* Members that are about the way of the message, not about the tool; and names that our texts cannot hold. */
static bool is_envelope(struct str name)
{
    return str_is(name, "resultType") || str_is(name, "ttlMs") || str_is(name, "cacheScope") ||
           memchr(name.p, 0, name.n);
}

/* The server's _meta, ours beside it. Its result is the answer itself, so that the shape does not hold it again. */
static void server_meta(struct json_out *json, const struct json *meta, const struct engine_reply *reply,
                        const struct mcp_result_view *view)
{
    struct operation op = *reply->op;
    struct buf shape;
    op.result = STR_NONE;
    buf_init(&shape, 0);
    shape_operation(&shape, &op, reply->tool, &view->shape);
    json_out_name(json, "_meta");
    json_out_object(json);
    for (uint32_t i = 0; meta && meta->type == JSON_OBJECT && i < meta->count; i++) {
        struct str name = meta->members[i].name;
        if (str_is(name, MCP_META_SERVER) || str_is(name, MCP_META_RELATED_TASK) || str_is(name, MCP_META_RESULT) ||
            memchr(name.p, 0, name.n))
            continue;
        json_out_name(json, arena_copy_str(view->shape.arena, name));
        json_out_value(json, &meta->members[i].value);
    }
    json_out_name(json, MCP_META_RESULT), json_out_raw(json, buf_str(&shape));
    if (view->task)
        related_task(json, view->task);
    json_out_end_object(json);
    buf_release(&shape);
}

static void server_content(struct json_out *json, const struct json *content, struct str words)
{
    json_out_name(json, "content");
    json_out_array(json);
    if (content)
        add_items(json, content);
    if (words.n > 0)
        text_block(json, words);
    json_out_end_array(json);
}

/* Members as they came. isError is not among them: what the registry calls a success (noop_when) is none. */
static void server_members(struct json_out *json, const struct json *result, const struct mcp_result_view *view)
{
    for (uint32_t i = 0; i < result->count; i++) {
        struct str name = result->members[i].name;
        const struct json *value = &result->members[i].value;
        if (is_envelope(name) || str_is(name, "_meta") || str_is(name, "content") || str_is(name, "isError"))
            continue;
        /* the legacy era has objects only */
        if (str_is(name, "structuredContent") && value->type != JSON_OBJECT && view->era == MCP_ERA_LEGACY)
            continue;
        json_out_name(json, arena_copy_str(view->shape.arena, name));
        json_out_value(json, value);
    }
}

static void write_server_result(struct buf *out, const struct json *result, const struct engine_reply *reply,
                                const struct mcp_result_view *view)
{
    struct json_out json;
    struct buf words;
    buf_init(&words, 0);
    beside_words(&words, reply, view);
    begin(&json, out, view);
    server_content(&json, json_get(result, "content"), buf_str(&words));
    server_members(&json, result, view);
    json_out_member_bool(&json, "isError", false);
    server_meta(&json, json_get(result, "_meta"), reply, view);
    json_out_end_object(&json);
    buf_release(&words);
}

void mcp_write_result(struct buf *out, const struct engine_reply *reply, const struct mcp_result_view *view)
{
    const struct json *own = server_result(reply, view);
    if (own) {
        write_server_result(out, own, reply, view);
        return;
    }
    const struct json *refusal = server_refusal(reply, view);
    struct json_out json;
    struct buf words, shape;
    buf_init(&words, 0);
    buf_init(&shape, 0);
    mcp_write_result_text(&words, reply, view);
    add_shape(&shape, reply, view);
    begin(&json, out, view);
    json_out_name(&json, "content");
    json_out_array(&json);
    if (json_get(refusal, "content"))
        add_items(&json, json_get(refusal, "content"));
    text_block(&json, buf_str(&words));
    json_out_end_array(&json);
    json_out_name(&json, "structuredContent"), json_out_raw(&json, buf_str(&shape));
    json_out_member_bool(&json, "isError", mcp_result_is_error(reply));
    finish(&json, view);
    buf_release(&words);
    buf_release(&shape);
}

void mcp_write_refusal(struct buf *out, const struct mcp_fault *fault, const struct mcp_result_view *view)
{
    struct schema_error error = {.pointer = fault->pointer, .message = fault->text, .keyword = "type"};
    const struct identity_error why = {.refusal = REFUSAL_ARGUMENTS, .errors = &error, .error_count = 1};
    const struct err none = {0};
    const struct engine_reply reply = {.kind = REPLY_REFUSED, .why = &why, .err = &none};
    mcp_write_result(out, &reply, view);
}
