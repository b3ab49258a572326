/* MCP proves little. A result without isError is the server's confirmation. An error of the protocol that says the
 * request itself was wrong (unknown tool, refused arguments) proves that no tool ran. Everything else, isError too, may
 * come from a tool that was half done: it may have happened, unless the registry file says what proves the contrary.
 *
 *   not sent ───────────────────────────────► not_sent
 *   no answer ──────────────────────────────► timeout | connection_lost | unreadable
 *   HTTP status without a message ──────────► refused | not_processed, by the server's lists; else unreadable
 *   JSON-RPC error ─────────────────────────► refused | not_processed, by its code; else provider_error
 *   isError, error_when ────────────────────► refused | not_processed | noop, by `errors`; else provider_error
 *   result ─► success_when, external_id, verify ─► success | unreadable | wrong_object
 *   look-ups ─► found, absent, pending, failed ──► as they say; whatever is not exactly so: cannot_tell
 */
#include "adapter/mcp_answer.h"

#include "adapter/mcp_parts.h"

#include <stdio.h>

/* ---- errors ---- */

/* {"message", "code"?, "provider"?}; provider: the server's own error object or CallToolResult. */
static struct str error_text(const struct mcp_judge *j, struct str message, const char *code,
                             const struct json *provider)
{
    struct buf text;
    struct json_out out;
    buf_init(&text, 0);
    json_out_init(&out, &text);
    json_out_object(&out);
    json_out_name(&out, "message");
    json_out_str(&out, message);
    json_out_member_text(&out, "code", code);
    if (provider) {
        size_t before = text.n;
        json_out_name(&out, "provider");
        json_out_value(&out, provider);
        if (text.n - before > HTTP_ERROR_BYTES_MAX) { /* too large to be kept */
            text.n = before;
            text.p[before] = '\0';
        }
    }
    json_out_end_object(&out);
    struct str copy = arena_str(j->arena, buf_str(&text));
    buf_release(&text);
    return copy;
}

void mcp_judge_failure(const struct mcp_judge *j, enum outcome outcome, const char *detail,
                       struct adapter_answer *answer)
{
    bool lookup = j->kind == ATTEMPT_LOOKUP && outcome != OUTCOME_NOT_SENT;
    *answer = (struct adapter_answer){
        .outcome = lookup ? OUTCOME_CANNOT_TELL : outcome, .http_status = answer->http_status, .detail = detail};
    if (j->kind == ATTEMPT_CALL)
        answer->error = error_text(j, str_of(detail), NULL, NULL);
}

/* What the server says in words: its first text. */
static struct str first_text(const struct json *result)
{
    const struct json *content = json_get(result, "content");
    for (uint32_t i = 0; content && content->type == JSON_ARRAY && i < content->count; i++) {
        struct str text = json_get_text(&content->items[i], "text");
        if (text.p && text.n > 0)
            return text;
    }
    return STR("the server calls its answer an error");
}

/* Bytes of text that may be kept as a message, cut between characters. */
static struct str shortened(struct str text)
{
    if (text.n <= HTTP_ERROR_BYTES_MAX)
        return text;
    size_t n = HTTP_ERROR_BYTES_MAX;
    while (n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    return (struct str){text.p, n};
}

/* ---- JSON-RPC errors ---- */

/* Codes by which a server says that the request never reached a tool. */
static enum outcome outcome_of_code(int64_t code)
{
    switch (code) {
    case RPC_PARSE_ERROR:
    case RPC_INVALID_REQUEST:
    case RPC_METHOD_NOT_FOUND:
    case RPC_INVALID_PARAMS: /* unknown tool, refused arguments */
    case MCP_MISSING_CAPABILITY:
    case MCP_ELICITATION_FIRST: return OUTCOME_REFUSED;
    case MCP_HEADER_MISMATCH: /* we have an old list of its tools: another try with the new one gets through */
    case MCP_UNSUPPORTED_VERSION: /* likewise after another handshake */ return OUTCOME_NOT_PROCESSED;
    default: return OUTCOME_PROVIDER_ERROR;
    }
}

/* The TypeScript SDK uses the same codes when it does not like what the tool gave back: the tool has run then. */
static bool is_about_result(struct str words)
{
    return words.p &&
           (memmem(words.p, words.n, "structured content", 18) || memmem(words.p, words.n, "utput validation", 16));
}

static enum outcome outcome_of_status(const struct mcp_judge *j, int status, struct err *broken)
{
    const struct mcp_provider *provider = j->tool->provider;
    if (status == 0)
        return OUTCOME_OPEN;
    if (http_statuses_match(&provider->not_processed, status, STR_NONE, NULL, broken))
        return OUTCOME_NOT_PROCESSED;
    if (http_statuses_match(&provider->no_effect, status, STR_NONE, NULL, broken))
        return OUTCOME_REFUSED;
    return OUTCOME_OPEN;
}

static const struct json *error_object(const struct rpc_message *message)
{
    const struct json *error = json_get(message->tree, "error");
    return error && error->type == JSON_OBJECT ? error : NULL;
}

static void judge_error(const struct mcp_judge *j, const struct mcp_outcome *outcome, struct adapter_answer *answer)
{
    const struct rpc_message *message = outcome->message;
    struct err broken = {0};
    char code[24];
    snprintf(code, sizeof code, "%lld", (long long)message->code);
    answer->outcome = outcome_of_code(message->code);
    if (answer->outcome == OUTCOME_PROVIDER_ERROR) {
        enum outcome by_status = outcome_of_status(j, outcome->http_status, &broken);
        if (by_status != OUTCOME_OPEN)
            answer->outcome = by_status;
    }
    if (is_about_result(message->message))
        answer->outcome = OUTCOME_PROVIDER_ERROR;
    if (j->continued) /* it says nothing about the requests before */
        answer->outcome = OUTCOME_PROVIDER_ERROR;
    struct str words = message->message.n > 0 ? shortened(message->message) : STR("no message");
    answer->error = error_text(j, words, code, error_object(message));
    answer->detail =
        arena_printf(j->arena, "the server answered error %s: %.200s", code, arena_copy_str(j->arena, words));
}

/* ---- results ---- */

/* Our own copy without what only belongs to the modern envelope. */
static const struct json *without_envelope(const struct mcp_judge *j, const struct json *result)
{
    if (!json_get(result, "resultType"))
        return result;
    struct json *copy = arena_alloc(j->arena, sizeof *copy);
    *copy = (struct json){.type = JSON_OBJECT};
    copy->members = arena_alloc(j->arena, sizeof *copy->members * result->count);
    for (uint32_t i = 0; i < result->count; i++) {
        if (!str_is(result->members[i].name, "resultType"))
            copy->members[copy->count++] = result->members[i];
    }
    return copy;
}

/* NULL: it is a CallToolResult. */
static const char *result_fault(const struct json *result)
{
    const struct json *content = json_get(result, "content"), *error = json_get(result, "isError");
    struct str type = json_get_text(result, "resultType");
    if (!result || result->type != JSON_OBJECT)
        return "the result is no object";
    if (json_get(result, "resultType") && !str_is(type, "complete"))
        return "the result has a resultType that onced did not ask for";
    if (content && content->type != JSON_ARRAY)
        return "the result's content is no list";
    if (!content && !json_get(result, "structuredContent"))
        return "the result has no content";
    if (error && error->type != JSON_BOOL)
        return "the result's isError is neither true nor false";
    return NULL;
}

static bool holds(struct jq_program *condition, const struct json *result, struct err *err)
{
    bool truth = false;
    return condition && jq_program_test(condition, result, &truth, err) == ERR_NONE && truth;
}

static void unreadable(const struct mcp_judge *j, const char *detail, const struct json *result,
                       struct adapter_answer *answer)
{
    answer->outcome = OUTCOME_UNREADABLE;
    answer->detail = detail;
    answer->result = STR_NONE;
    answer->error = error_text(j, str_of(detail), NULL, result);
}

/* A result that is an error. A read has no effect, whatever became of it. */
static void judge_is_error(const struct mcp_judge *j, const struct json *result, struct adapter_answer *answer)
{
    const struct mcp_tool *tool = j->tool;
    struct err err = {0};
    if (holds(tool->noop_when, result, &err))
        answer->outcome = OUTCOME_NOOP;
    else if (holds(tool->not_processed_when, result, &err))
        answer->outcome = OUTCOME_NOT_PROCESSED;
    else if (!tool->write || tool->errors == MCP_ERRORS_NO_EFFECT || holds(tool->no_effect_when, result, &err))
        answer->outcome = OUTCOME_REFUSED;
    else
        answer->outcome = OUTCOME_PROVIDER_ERROR;
    if (err.code != ERR_NONE && tool->write) { /* what might have said otherwise could not be evaluated */
        answer->outcome = OUTCOME_PROVIDER_ERROR;
        answer->detail = arena_printf(j->arena, "errors: %s", err.text);
    } else if (answer->outcome == OUTCOME_NOOP) {
        answer->result = json_to_text(j->arena, result);
        return;
    } else {
        answer->detail = "the server calls its answer an error (isError)";
    }
    answer->error = error_text(j, shortened(first_text(result)), NULL, result);
}

static void take_id(const struct mcp_judge *j, const struct http_extract *extract, const struct json *result,
                    struct err *err, struct adapter_answer *answer)
{
    const struct json *value = NULL;
    if (!extract->pointer && !extract->jq)
        return;
    if (http_extract_run(extract, result, j->arena, &value, err) == ERR_NONE) {
        answer->external_id = http_id_text(j->arena, value);
        if (!answer->external_id)
            err_set(err, ERR_INVALID, "is no text or number");
    }
}

static bool verify(const struct mcp_judge *j, const struct json *result, struct adapter_answer *answer)
{
    const struct json *got = NULL;
    const struct http_expected *wrong = http_mismatch(j->expected, j->expected_count, result, &got);
    if (!wrong)
        return true;
    answer->outcome = OUTCOME_WRONG_OBJECT;
    answer->result = STR_NONE;
    answer->detail = http_mismatch_text(j->arena, wrong, got);
    return false;
}

static void judge_result(const struct mcp_judge *j, const struct json *result, struct adapter_answer *answer)
{
    const struct mcp_tool *tool = j->tool;
    struct err err = {0};
    bool is_error = json_get_bool(result, "isError", false) || holds(tool->error_when, result, &err);
    if (err.code != ERR_NONE) {
        unreadable(j, arena_printf(j->arena, "error_when: %s", err.text), result, answer);
        return;
    }
    if (is_error) {
        judge_is_error(j, result, answer);
        return;
    }
    if (tool->success_when && !holds(tool->success_when, result, &err)) {
        const char *why = err.code ? arena_printf(j->arena, "success_when: %s", err.text)
                                   : "the answer is not what success_when promises";
        unreadable(j, why, result, answer);
        return;
    }
    answer->outcome = OUTCOME_SUCCESS;
    take_id(j, &tool->external_id, result, &err, answer);
    if (err.code != ERR_NONE)
        unreadable(j, arena_printf(j->arena, "external_id: %s", err.text), result, answer);
    else if (verify(j, result, answer))
        answer->result = json_to_text(j->arena, result);
    else
        answer->error = error_text(j, str_of(answer->detail), NULL, result);
}

/* ---- look-ups ---- */

static void cannot_tell(struct adapter_answer *answer, const char *detail)
{
    answer->outcome = OUTCOME_CANNOT_TELL;
    answer->detail = detail;
    answer->external_id = NULL;
    answer->result = STR_NONE;
}

static void judge_found(const struct mcp_judge *j, const struct json *result, struct adapter_answer *answer)
{
    const struct mcp_lookup *lookup = j->tool->lookup;
    struct err err = {0};
    bool failed = holds(lookup->failed, result, &err), pending = holds(lookup->pending, result, &err);
    answer->outcome = failed ? OUTCOME_FAILED_THERE : pending ? OUTCOME_PENDING : OUTCOME_FOUND;
    take_id(j, &lookup->external_id, result, &err, answer);
    if (err.code != ERR_NONE)
        cannot_tell(answer, arena_printf(j->arena, "what was found: %s", err.text));
    else if (verify(j, result, answer))
        answer->result = json_to_text(j->arena, result);
}

static void judge_lookup(const struct mcp_judge *j, const struct json *result, struct adapter_answer *answer)
{
    const struct mcp_lookup *lookup = j->tool->lookup;
    struct err err = {0};
    bool is_error = json_get_bool(result, "isError", false);
    bool found = holds(lookup->found, result, &err), absent = holds(lookup->absent, result, &err);
    if (err.code != ERR_NONE)
        cannot_tell(answer, arena_printf(j->arena, "the look-up's answer: %s", err.text));
    else if (found && absent)
        cannot_tell(answer, "both found and absent hold for the look-up's answer");
    else if (found && is_error)
        cannot_tell(answer, "the look-up's answer is an error (isError)");
    else if (found)
        judge_found(j, result, answer);
    else if (absent)
        answer->outcome = OUTCOME_ABSENT;
    else
        cannot_tell(answer, is_error ? "the look-up's answer is an error (isError)"
                                     : "neither found nor absent holds for the look-up's answer");
}

/* ---- the whole ---- */

static void judge_answered(const struct mcp_judge *j, const struct mcp_outcome *outcome, struct adapter_answer *answer)
{
    const struct rpc_message *message = outcome->message;
    bool lookup = j->kind == ATTEMPT_LOOKUP;
    if (message->kind == RPC_ERROR) {
        judge_error(j, outcome, answer);
        if (lookup)
            cannot_tell(answer, answer->detail);
        return;
    }
    const char *fault = result_fault(message->result);
    if (fault && lookup)
        cannot_tell(answer, fault);
    else if (fault)
        unreadable(j, fault, NULL, answer);
    else if (lookup)
        judge_lookup(j, without_envelope(j, message->result), answer);
    else
        judge_result(j, without_envelope(j, message->result), answer);
}

static enum outcome outcome_of_end(const struct mcp_judge *j, const struct mcp_outcome *outcome)
{
    struct err broken = {0};
    enum outcome by_status;
    if (!outcome->sent && !j->continued)
        return OUTCOME_NOT_SENT;
    switch (outcome->end) {
    case MCP_TIMED_OUT: return OUTCOME_TIMEOUT;
    case MCP_UNREADABLE: return OUTCOME_UNREADABLE;
    case MCP_CANCELLED: return OUTCOME_CONNECTION_LOST;
    case MCP_ANSWERED:
    case MCP_LOST: break;
    }
    if (outcome->http_status == 0)
        return OUTCOME_CONNECTION_LOST;
    by_status = outcome_of_status(j, outcome->http_status, &broken); /* a whole answer that is no message */
    return by_status == OUTCOME_OPEN || j->continued ? OUTCOME_PROVIDER_ERROR : by_status;
}

void mcp_judge(const struct mcp_judge *j, const struct mcp_outcome *outcome, struct adapter_answer *answer)
{
    *answer = (struct adapter_answer){.outcome = OUTCOME_OPEN, .http_status = outcome->http_status};
    if (outcome->end == MCP_ANSWERED)
        judge_answered(j, outcome, answer);
    else
        mcp_judge_failure(j, outcome_of_end(j, outcome), outcome->text ? outcome->text : "no answer", answer);
}
