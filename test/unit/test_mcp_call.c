/* tools/call and the built-in tools, with an engine that the test plays. */
#include "support/mcp_stage.h"

/* ---- the way in ---- */

static void a_call_reaches_the_engine(void **state)
{
    struct stage *stage = *state;
    const struct mcp_facts facts = {.run_id = STR("run_9"), .step_id = STR("step_9")};
    ask_facts(stage, "tools/call",
              "\"name\":\"refund\",\"arguments\":{\"a\":1,\"distinct_from\":\"" OP_2
              "\"},\"_meta\":{\"dev.onced/idempotency-key\":\"key-1\",\"claudecode/toolUseId\":\"t-1\"}",
              &facts);
    assert_int_equal(stage->engine.calls, 1);
    assert_string_equal(stage->engine.tool, "refund");
    assert_string_equal(stage->engine.tenant, "default");
    assert_string_equal(stage->engine.principal, "local");
    assert_string_equal(stage->engine.key, "key-1");
    assert_string_equal(stage->engine.run, "run_9");
    assert_string_equal(stage->engine.step, "step_9");
    assert_string_equal(stage->engine.call, "t-1");
    assert_true(stage->engine.call_id_per_try);
    assert_string_equal(stage->engine.distinct, OP_2);
    assert_string_equal(stage->engine.arguments, "{\"a\":1}");
    assert_int_equal(stage->engine.wait_ms, 30000);
    assert_false(stage->engine.async);
    assert_false(stage->engine.dry_run);
    assert_int_equal(stage->engine.origin.session, stage->session->number);
    assert_true(stage->engine.origin.call > 0);
    assert_int_equal(stage->heard.final_count, 1);
    assert_status(stage, "completed_success");
    assert_false(is_error(stage));
}

static void the_wait_is_the_shorter_one(void **state)
{
    struct stage *stage = *state;
    stage->door->settings.wait_ms_max = 7000;
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->engine.wait_ms, 7000);
    stage->door->settings.wait_ms_max = 0;
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->engine.wait_ms, 30000);
}

static void delivery_is_left_to_the_transport(void **state)
{
    struct stage *stage = *state;
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.delivers, 1);
    assert_string_equal(stage->heard.delivered, OP_1);
    assert_int_equal(stage->engine.delivered, 0); /* only when the bytes are out */
    stage->op.delivered = true;
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.delivers, 0);
    stage->op.delivered = false;
    stage->op.principal = "somebody"; /* a shared result: the other one was not told */
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.delivers, 0);
    stage->engine.reply.op = &stage->other;
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.delivers, 0);
    assert_status(stage, "unknown_outcome");
}

static void replies_carry_what_the_engine_says(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply.replayed = true;
    call(stage, "\"name\":\"refund\"");
    assert_words(stage, "already done at ");
    stage->engine.reply.replayed = false;
    stage->engine.reply.kind = REPLY_HELD;
    stage->engine.reply.op = &stage->other;
    call(stage, "\"name\":\"refund\"");
    assert_false(is_error(stage));
    assert_words(stage, "distinct_from");
}

static void clients_that_want_logs_get_them(void **state)
{
    struct stage *stage = *state;
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.told_count, 0);
    stage->session->log_level = mcp_log_level(STR("info"));
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.told_count, 1);
    assert_string_equal(stage->heard.told[0],
                        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\","
                        "\"logger\":\"onced\",\"data\":{\"operation_id\":\"" OP_1 "\",\"tool\":\"refund\","
                        "\"status\":\"completed_success\",\"replayed\":false}}}");
    stage->session->log_level = mcp_log_level(STR("warning"));
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.told_count, 0);
    stage->engine.reply.op = &stage->other; /* unknown */
    call(stage, "\"name\":\"refund\"");
    assert_int_equal(stage->heard.told_count, 1);
    assert_non_null(strstr(stage->heard.told[0], "\"level\":\"warning\""));
}

static void calls_that_are_none_are_refused(void **state)
{
    struct stage *stage = *state;
    call(stage, "\"arguments\":{}");
    assert_refused(stage, RPC_INVALID_PARAMS, "params.name");
    call(stage, "\"name\":7");
    assert_refused(stage, RPC_INVALID_PARAMS, "params.name");
    call(stage, "\"name\":\"refunt\"");
    assert_refused(stage, RPC_INVALID_PARAMS, "did you mean \"refund\"?");
    call(stage, "\"name\":\"nothing like it\"");
    assert_refused(stage, RPC_INVALID_PARAMS, "no tool \"nothing like it\"");
    call(stage, "\"name\":\"refund\",\"arguments\":5");
    assert_refused(stage, RPC_INVALID_PARAMS, "params.arguments");
    call(stage, "\"name\":\"refund\",\"_meta\":{\"idempotencyKey\":5}");
    assert_refused(stage, RPC_INVALID_PARAMS, "idempotencyKey");
    assert_int_equal(stage->engine.calls, 0);
}

/* What the model wrote wrong it is told as an answer, so that it can mend it. */
static void a_wrong_intent_is_answered(void **state)
{
    struct stage *stage = *state;
    call(stage, "\"name\":\"refund\",\"arguments\":{\"repeat_of\":\"the last one\"}");
    assert_true(is_error(stage));
    assert_words(stage, "/repeat_of");
    assert_int_equal(stage->engine.calls, 0);
}

static void unavailable_says_that_nothing_was_sent(void **state)
{
    struct stage *stage = *state;
    static const struct err err = {ERR_UNAVAILABLE, "too many calls in flight"};
    stage->engine.reply = (struct engine_reply){.kind = REPLY_UNAVAILABLE, .err = &err};
    call(stage, "\"name\":\"refund\"");
    assert_refused(stage, RPC_INTERNAL_ERROR, "nothing was sent: too many calls in flight");
    const struct json *error = json_get(parse(stage, stage->heard.final), "error");
    assert_int_equal(json_get_int(json_get(error, "data"), "retry_after_ms", 0), 1000);
}

/* ---- the client's user approves ---- */

#define ELICIT MODERN_META "{\"elicitation\":{\"form\":{}}}"
#define REFUND "\"name\":\"refund\",\"arguments\":{\"a\":1},\"_meta\":{" ELICIT "}"

/* A call that waits for people, of a tool whose users may be asked. */
static void make_waiting(struct stage *stage)
{
    stage->refund.approval = (struct approval_policy){
        .required = true, .approvers = 1, .expires_ms = 3600000, .policy = "p", .mcp = APPROVAL_MCP_ELICIT};
    make_operation(&stage->op, OP_1, STATE_PLANNED);
    stage->op.reason = REASON_AWAITING_APPROVAL;
    stage->op.arguments = STR("{\"a\":1}");
    stage->op.approval = approval_request(&stage->arena, &stage->refund.approval, NOW);
}

/* requestState of the question that was asked. */
static const char *asked_state(struct stage *stage)
{
    const struct json *result = json_get(parse(stage, stage->heard.final), "result");
    assert_true(str_is(json_get_text(result, "resultType"), "input_required"));
    return arena_copy_str(&stage->arena, json_get_text(result, "requestState"));
}

static void round_with(struct stage *stage, const char *params, const char *state, const char *answer)
{
    call(stage, arena_printf(&stage->arena, "%s,\"requestState\":\"%s\",\"inputResponses\":{\"approval\":%s}", params,
                             state, answer));
}

#define YES "{\"action\":\"accept\",\"content\":{\"decision\":\"approve\"}}"

static void the_user_of_the_client_decides(void **state)
{
    struct stage *stage = *state;
    make_waiting(stage);
    call(stage, REFUND);
    assert_int_equal(stage->engine.decisions, 0);
    const char *asked = asked_state(stage);
    round_with(stage, REFUND, asked, YES);
    assert_int_equal(stage->engine.decisions, 1);
    assert_int_equal(stage->engine.calls, 1); /* the round is no call */
    assert_int_equal(stage->engine.decision.kind, DECISION_APPROVE);
    assert_int_equal(stage->engine.decision.via, APPROVAL_VIA_MCP);
    assert_true(stage->engine.decision.until_ms == NOW + 3600000);
    assert_string_equal(stage->engine.actor, "local/user");
    assert_string_equal(stage->engine.decided, OP_1);
    round_with(stage, REFUND, asked, "{\"action\":\"accept\",\"content\":{\"decision\":\"deny\",\"note\":\"n\"}}");
    assert_int_equal(stage->engine.decision.kind, DECISION_DENY);
    assert_string_equal(stage->engine.note, "n");
}

static void no_decision_is_none(void **state)
{
    static const char *const answers[] = {
        "{\"action\":\"decline\"}",
        "{\"action\":\"cancel\",\"content\":{\"decision\":\"approve\"}}",
        "{\"action\":\"decline\",\"content\":{\"decision\":\"deny\"}}",
        "{\"action\":\"accept\"}",
        "{\"action\":\"accept\",\"content\":{\"decision\":\"maybe\"}}",
        "null",
    };
    struct stage *stage = *state;
    make_waiting(stage);
    call(stage, REFUND);
    const char *asked = asked_state(stage);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        round_with(stage, REFUND, asked, answers[i]);
        assert_status(stage, "planned");
    }
    assert_int_equal(stage->engine.decisions, 0);
}

static void questions_are_not_forged(void **state)
{
    struct stage *stage = *state;
    make_waiting(stage);
    call(stage, REFUND);
    const char *asked = asked_state(stage);
    for (size_t i = strlen("onced-approval:"), n = strlen(asked); i < n; i++) {
        char *other = arena_copy_text(&stage->arena, asked);
        other[i] = other[i] == '1' ? '2' : '1';
        round_with(stage, REFUND, other, YES);
        assert_refused(stage, RPC_INVALID_PARAMS, "requestState");
    }
    round_with(stage, "\"name\":\"refund\",\"arguments\":{\"a\":2},\"_meta\":{" ELICIT "}", asked, YES);
    assert_refused(stage, RPC_INVALID_PARAMS, "requestState"); /* another call */
    stage->engine.now_ms = NOW + 3600000;
    round_with(stage, REFUND, asked, YES);
    assert_refused(stage, RPC_INVALID_PARAMS, "requestState"); /* over */
    assert_int_equal(stage->engine.decisions, 0);
}

static void who_is_not_asked(void **state)
{
    struct stage *stage = *state;
    make_waiting(stage);
    call(stage, "\"name\":\"refund\",\"arguments\":{\"a\":1},\"_meta\":{" MODERN_META "{}}"); /* cannot */
    assert_status(stage, "planned");
    stage->op.principal = "somebody"; /* joined: another agent's call is not for this one's user */
    call(stage, REFUND);
    assert_status(stage, "planned");
    stage->op.principal = "local";
    stage->refund.approval.mcp = APPROVAL_MCP_NONE;
    call(stage, REFUND);
    assert_status(stage, "planned");
    assert_int_equal(stage->engine.decisions, 0);
}

static void lists_of_principals_hold_at_the_call(void **state)
{
    struct stage *stage = *state;
    mcp_session_end(stage->session);
    stage_session(stage, "reader", ROLE_AGENT, MCP_LEGACY_VERSION);
    call(stage, "\"name\":\"refund\"");
    assert_refused(stage, RPC_INVALID_PARAMS, "no tool \"refund\"");
    call(stage, "\"name\":\"refunt\"");
    assert_null(strstr(stage->heard.final, "\\\"refund\\\"")); /* not suggested either */
    call(stage, "\"name\":\"onced_plan\",\"arguments\":{\"tool\":\"refund\"}");
    assert_refused(stage, RPC_INVALID_PARAMS, "no tool \"refund\"");
    assert_int_equal(stage->engine.calls, 0);
    call(stage, "\"name\":\"look\"");
    assert_int_equal(stage->engine.calls, 1);
}

static void what_a_token_covers_holds_at_the_call(void **state)
{
    struct stage *stage = *state;
    static const char *const some[] = {"look"}, *const orders[] = {"order/*"};
    const struct scope tools = {.tools = {true, some, 1}}, entities = {.entities = {true, orders, 1}};
    mcp_session_end(stage->session);
    stage_session(stage, "agent", ROLE_AGENT, MCP_LEGACY_VERSION);
    mcp_session_limit(stage->session, &tools);
    call(stage, "\"name\":\"refund\"");
    assert_refused(stage, RPC_INVALID_PARAMS, "the token does not cover tool \"refund\"; its tools: look");
    call(stage, "\"name\":\"onced_plan\",\"arguments\":{\"tool\":\"refund\"}");
    assert_refused(stage, RPC_INVALID_PARAMS, "does not cover tool");
    call(stage, "\"name\":\"refunt\"");
    assert_null(strstr(stage->heard.final, "\\\"refund\\\"")); /* not suggested either */
    assert_int_equal(stage->engine.calls, 0);
    call(stage, "\"name\":\"look\"");
    assert_true(stage->engine.calls == 1 && stage->engine.limited);
    /* what is handed through names no entity */
    mcp_session_limit(stage->session, &entities);
    call(stage, "\"name\":\"files_list\"");
    assert_refused(stage, RPC_INVALID_PARAMS, "does not say which it touches");
}

static void approvers_only_look(void **state)
{
    struct stage *stage = *state;
    mcp_session_end(stage->session);
    stage_session(stage, "boss", ROLE_APPROVER, MCP_LEGACY_VERSION);
    call(stage, "\"name\":\"refund\"");
    assert_refused(stage, RPC_INVALID_PARAMS, "approver");
    assert_int_equal(stage->engine.calls, 0);
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_1 "\"}");
    assert_status(stage, "completed_success");
}

static void forwarded_tools_are_handed_through(void **state)
{
    struct stage *stage = *state;
    call(stage, "\"name\":\"files_list\"");
    assert_refused(stage, RPC_INTERNAL_ERROR, "is not running");
    stage->door->hub = (struct mcp_hub *)&fake_forward; /* never looked into */
    fake_forward.has_server = true;
    call(stage, "\"name\":\"files_list\"");
    assert_string_equal(fake_forward.forwarded, "list");
    assert_int_equal(stage->engine.calls, 0);
    stage->door->hub = NULL;
}

/* A round that answers a server's question must never be taken for a call. */
static void later_rounds_are_no_calls(void **state)
{
    struct stage *stage = *state;
    fake_forward.resume = true;
    call(stage, "\"name\":\"refund\",\"requestState\":\"x\"");
    assert_int_equal(fake_forward.resumed, 1);
    assert_int_equal(stage->engine.calls, 0);
}

/* ---- while it goes on ---- */

static struct mcp_request *waiting(struct stage *stage)
{
    return stage->session->requests;
}

static void progress_grows(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    stage->engine.waiting = (struct engine_waiting){OP_1, true, true};
    call(stage, "\"name\":\"refund\",\"_meta\":{\"progressToken\":\"p-1\"}");
    let_time_pass(stage);
    let_time_pass(stage);
    assert_true(stage->heard.told_count >= 2);
    int64_t last = 0;
    for (size_t i = 0; i < stage->heard.told_count; i++) {
        const struct json *message = parse(stage, stage->heard.told[i]);
        const struct json *params = json_get(message, "params");
        assert_string_equal(text_of(stage, message, "method"), "notifications/progress");
        assert_string_equal(text_of(stage, params, "progressToken"), "p-1");
        assert_non_null(strstr(text_of(stage, params, "message"), OP_1));
        assert_true(json_get_int(params, "progress", 0) > last);
        last = json_get_int(params, "progress", 0);
    }
    size_t told = stage->heard.told_count;
    mcp_progress(waiting(stage), STR("1"), STR("2"), STR_NONE); /* a server's own: ours would break its order */
    let_time_pass(stage);
    let_time_pass(stage);
    assert_int_equal(stage->heard.told_count, told + 1);
    assert_true(fake_engine_reply(&stage->engine));
    assert_status(stage, "completed_success");
}

static void no_token_no_progress(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    call(stage, "\"name\":\"refund\"");
    let_time_pass(stage);
    assert_int_equal(stage->heard.told_count, 0);
    assert_true(fake_engine_reply(&stage->engine));
    assert_int_equal(stage->heard.final_count, 1);
}

static void cancel(struct stage *stage)
{
    char text[128];
    const struct mcp_facts none = {0};
    snprintf(text, sizeof text,
             "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%d}}",
             stage->next_id);
    mcp_receive(stage->session, NULL, str_of(text), &none);
}

static void a_cancelled_call_cancels_what_it_opened(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    stage->engine.waiting = (struct engine_waiting){OP_1, true, true};
    call(stage, "\"name\":\"refund\",\"_meta\":{\"progressToken\":1}");
    cancel(stage);
    assert_int_equal(stage->engine.left, 1);
    assert_int_equal(stage->engine.decisions, 1);
    assert_int_equal(stage->engine.decision.kind, DECISION_CANCEL);
    assert_string_equal(stage->engine.decided, OP_1);
    assert_string_equal(stage->engine.actor, "local");
    assert_int_equal(stage->heard.dropped, 1);
    assert_int_equal(stage->heard.final_count, 0);
    stage->op.state = STATE_REJECTED;
    assert_true(fake_engine_reply(&stage->engine)); /* the decision: only logged */
    assert_int_equal(stage->heard.final_count, 0);
}

/* Somebody else's effect, or one that others wait for, goes on. */
static void a_cancelled_call_leaves_others_alone(void **state)
{
    struct stage *stage = *state;
    static const struct engine_waiting cases[] = {{OP_1, false, true}, {OP_1, true, false}, {"", false, false}};
    stage->engine.later = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage->engine.waiting = cases[i];
        call(stage, "\"name\":\"refund\"");
        cancel(stage);
        assert_int_equal(stage->engine.left, i + 1);
        assert_int_equal(stage->engine.decisions, 0);
        assert_int_equal(stage->heard.dropped, 1);
    }
}

static void a_client_that_is_gone_only_leaves(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    stage->engine.waiting = (struct engine_waiting){OP_1, true, true};
    call(stage, "\"name\":\"refund\"");
    mcp_request_gone(&stage->heard.sink, false);
    assert_int_equal(stage->engine.left, 1);
    assert_int_equal(stage->engine.decisions, 0);
    call(stage, "\"name\":\"refund\"");
    mcp_session_end(stage->session);
    assert_int_equal(stage->engine.left, 2);
    assert_int_equal(stage->engine.decisions, 0);
    stage_session(stage, "local", ROLE_AGENT, MCP_LEGACY_VERSION);
}

/* ---- built-in tools ---- */

static void status_shows_an_operation(void **state)
{
    struct stage *stage = *state;
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_2 "\",\"tool\":null,\"key\":\"\"}");
    assert_status(stage, "unknown_outcome");
    assert_false(is_error(stage));
    assert_words(stage, "onced_wait");
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"tool\":\"refund\",\"key\":\"k\"}");
    assert_string_equal(text_of(stage, json_get(result(stage), "structuredContent"), "operation_id"), OP_2);
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_3 "\"}");
    assert_true(is_error(stage));
    assert_words(stage, "no such operation");
}

static void status_knows_the_last_call(void **state)
{
    struct stage *stage = *state;
    call(stage, "\"name\":\"onced_status\"");
    assert_true(is_error(stage));
    call(stage, "\"name\":\"refund\""); /* OP_1 */
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"tool\":\"refund\"}");
    assert_string_equal(text_of(stage, json_get(result(stage), "structuredContent"), "operation_id"), OP_1);
    stage->engine.reply.op = &stage->other;
    call(stage, "\"name\":\"refund\"");
    call(stage, "\"name\":\"onced_status\"");
    assert_string_equal(text_of(stage, json_get(result(stage), "structuredContent"), "operation_id"), OP_2);
    assert_string_equal(mcp_last_operation(stage->session, "look"), "");
}

/* Without a session of its own a client's conversation tells, else the principal's newest call. */
static void status_without_a_session_looks_in_the_ledger(void **state)
{
    struct stage *stage = *state;
    mcp_session_end(stage->session);
    stage_session(stage, "local", ROLE_AGENT, "");
    stage->op.session = "c-1";
    stage->other.session = "c-2";
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"tool\":\"refund\"},\"_meta\":{" MODERN_META
                "{},\"threadId\":\"c-1\"}");
    assert_string_equal(text_of(stage, json_get(result(stage), "structuredContent"), "operation_id"), OP_1);
    assert_string_equal(stage->engine.listed_principal, "local");
    assert_string_equal(text_of(stage, result(stage), "resultType"), "complete");
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"tool\":\"refund\"},\"_meta\":{" MODERN_META "{}}");
    assert_string_equal(text_of(stage, json_get(result(stage), "structuredContent"), "operation_id"), OP_2);
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"tool\":\"refund\"},\"_meta\":{" MODERN_META
                "{},\"threadId\":\"c-3\"}");
    assert_true(is_error(stage));
}

static void results_of_others_stay_theirs(void **state)
{
    struct stage *stage = *state;
    stage->op.principal = "somebody";
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_1 "\"}");
    assert_words(stage, "belongs to somebody");
    assert_null(strstr(stage->heard.final, "re_1"));
    stage->op.tenant = "another"; /* and another tenant's do not exist */
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_1 "\"}");
    assert_true(is_error(stage));
    assert_words(stage, "no such operation");
}

static void arguments_of_built_in_tools_are_strict(void **state)
{
    struct stage *stage = *state;
    static const char *const wrong[] = {
        "\"name\":\"onced_status\",\"arguments\":{\"operation\":\"x\"}",
        "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":7}",
        "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"7\"}",
        "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_1 "\",\"tool\":\"refund\"}",
        "\"name\":\"onced_status\",\"arguments\":{\"key\":\"k\"}",
        "\"name\":\"onced_status\",\"arguments\":[]",
        "\"name\":\"onced_wait\"",
        "\"name\":\"onced_wait\",\"arguments\":{\"operation_id\":\"" OP_1 "\",\"wait_ms\":-1}",
        "\"name\":\"onced_wait\",\"arguments\":{\"operation_id\":\"" OP_1 "\",\"wait_ms\":\"9\"}",
        "\"name\":\"onced_plan\",\"arguments\":{}",
        "\"name\":\"onced_plan\",\"arguments\":{\"tool\":\"refund\",\"arguments\":[]}",
        "\"name\":\"onced_plan\",\"arguments\":{\"tool\":\"refund\",\"arguments\":{\"repeat_of\":\"x\"}}",
        "\"name\":\"onced_plan\",\"arguments\":{\"tool\":\"files_list\"}",
        "\"name\":\"onced_run_report\"",
        "\"name\":\"onced_run_report\",\"arguments\":{\"run_id\":7}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        call(stage, wrong[i]);
        if (!is_error(stage))
            fail_msg("accepted: %s", wrong[i]);
        assert_status(stage, "not_run");
    }
    assert_int_equal(stage->engine.calls + stage->engine.waits, 0);
}

static void wait_waits(void **state)
{
    struct stage *stage = *state;
    stage->engine.later = true;
    stage->engine.waiting = (struct engine_waiting){OP_2, false, true};
    call(stage, "\"name\":\"onced_wait\",\"arguments\":{\"operation_id\":\"" OP_2
                "\",\"wait_ms\":20000},\"_meta\":{\"progressToken\":7}");
    assert_string_equal(stage->engine.waited, OP_2);
    assert_int_equal(stage->engine.wait_ms, 20000);
    let_time_pass(stage);
    assert_true(stage->heard.told_count > 0);
    assert_true(fake_engine_reply(&stage->engine));
    assert_status(stage, "completed_success");
    assert_int_equal(stage->heard.delivers, 1);
    stage->door->settings.wait_ms_max = 1000;
    call(stage, "\"name\":\"onced_wait\",\"arguments\":{\"operation_id\":\"" OP_2 "\"}");
    assert_int_equal(stage->engine.wait_ms, 1000);
    cancel(stage);
    assert_int_equal(stage->engine.left, 1);
    assert_int_equal(stage->engine.decisions, 0); /* waiting less cancels nothing */
}

static void plan_runs_nothing(void **state)
{
    struct stage *stage = *state;
    stage->engine.reply = (struct engine_reply){
        .kind = REPLY_PLAN, .plan = STR("{\"decision\":\"execute\"}"), .tool = &stage->refund, .err = &no_error};
    call(stage,
         "\"name\":\"onced_plan\",\"arguments\":{\"tool\":\"refund\",\"arguments\":{\"a\":1,\"repeat_of\":\"" OP_1
         "\"}},\"_meta\":{\"dev.onced/run-id\":\"r\"}");
    assert_true(stage->engine.dry_run);
    assert_string_equal(stage->engine.arguments, "{\"a\":1}");
    assert_string_equal(stage->engine.repeat_of, OP_1);
    assert_string_equal(stage->engine.run, "r");
    assert_words(stage, "execute");
    assert_false(is_error(stage));
}

static void the_report_puts_what_is_open_first(void **state)
{
    struct stage *stage = *state;
    struct operation failed;
    make_operation(&failed, OP_3, STATE_FAILED_PERMANENT);
    stage->engine.ops[2] = &failed;
    stage->engine.op_count = 3;
    call(stage, "\"name\":\"onced_run_report\",\"arguments\":{\"run_id\":\"run_1\"}");
    const struct json *shape = json_get(result(stage), "structuredContent");
    assert_int_equal(json_get_int(json_get(shape, "summary"), "total", -1), 3);
    assert_int_equal(json_get_int(json_get(shape, "summary"), "unknown", -1), 1);
    assert_int_equal(json_get_int(json_get(shape, "summary"), "failed", -1), 1);
    assert_false(json_get_bool(shape, "complete", true));
    assert_int_equal(json_get(shape, "unresolved")->count, 1);
    assert_string_equal(text_of(stage, &json_get(shape, "unresolved")->items[0], "operation_id"), OP_2);
    assert_int_equal(json_get(shape, "ended")->count, 2);
    assert_true(json_get_bool(shape, "all_shown", false));
    assert_words(stage, "Do not tell the user that everything is done");
    assert_string_equal(stage->engine.listed_tenant, "default");
    call(stage, "\"name\":\"onced_run_report\",\"_meta\":{\"dev.onced/run-id\":\"run_2\"}");
    assert_words(stage, "Nothing is recorded for this run.");
    const struct mcp_facts facts = {.run_id = STR("run_1")};
    ask_facts(stage, "tools/call", "\"name\":\"onced_run_report\"", &facts);
    assert_words(stage, "Run run_1");
}

static void built_in_tools_can_be_switched_off(void **state)
{
    struct stage *stage = *state;
    struct mcp_settings off = stage->settings;
    off.tool_status = off.tool_wait = off.tool_plan = off.tool_run_report = false;
    static const char *const names[] = {"onced_status", "onced_wait", "onced_plan", "onced_run_report"};
    ask(stage, "tools/list", "");
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(stage->heard.final, names[i]));
    mcp_door_configure(stage->door, &off);
    ask(stage, "tools/list", "");
    assert_null(strstr(stage->heard.final, "onced_"));
    for (size_t i = 0; i < 4; i++) {
        call(stage, arena_printf(&stage->arena, "\"name\":\"%s\"", names[i]));
        assert_refused(stage, RPC_INVALID_PARAMS, "no tool");
    }
    stage->engine.reply.op = &stage->other;
    call(stage, "\"name\":\"refund\"");
    assert_null(strstr(words(stage), "onced_"));
}

static void ledger_failures_are_errors(void **state)
{
    struct stage *stage = *state;
    stage->engine.ledger_code = ERR_UNAVAILABLE;
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_1 "\"}");
    assert_refused(stage, RPC_INTERNAL_ERROR, "the ledger cannot be read");
    call(stage, "\"name\":\"onced_run_report\",\"arguments\":{\"run_id\":\"run_1\"}");
    assert_refused(stage, RPC_INTERNAL_ERROR, "the ledger cannot be read");
}

/* The ledger answers a request whose client is gone: nobody is told, nothing is touched. */
static void late_ledger_answers_reach_nobody(void **state)
{
    struct stage *stage = *state;
    stage->engine.ledger_later = true;
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_1 "\"}");
    mcp_request_gone(&stage->heard.sink, false);
    call(stage, "\"name\":\"onced_run_report\",\"arguments\":{\"run_id\":\"run_1\"}");
    cancel(stage);
    fake_ledger_poll(&stage->engine);
    assert_int_equal(stage->heard.final_count, 0);
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_1 "\"}");
    fake_ledger_poll(&stage->engine);
    assert_status(stage, "completed_success");
}

static void tombstones_are_shown(void **state)
{
    struct stage *stage = *state;
    struct tombstone stone = {.operation = OP_3,
                              .tenant = "default",
                              .tool = "refund",
                              .principal = "local",
                              .state = STATE_COMPLETED_SUCCESS,
                              .completed_ms = NOW - 9000,
                              .dropped_ms = NOW};
    stage->engine.tombstone = &stone;
    call(stage, "\"name\":\"onced_status\",\"arguments\":{\"operation_id\":\"" OP_3 "\"}");
    assert_false(is_error(stage));
    assert_status(stage, "completed_success");
    assert_words(stage, "Only the fact is still kept");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_set_up, stage_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_call_reaches_the_engine),
        TEST(the_wait_is_the_shorter_one),
        TEST(delivery_is_left_to_the_transport),
        TEST(replies_carry_what_the_engine_says),
        TEST(clients_that_want_logs_get_them),
        TEST(calls_that_are_none_are_refused),
        TEST(a_wrong_intent_is_answered),
        TEST(unavailable_says_that_nothing_was_sent),
        TEST(the_user_of_the_client_decides),
        TEST(no_decision_is_none),
        TEST(questions_are_not_forged),
        TEST(who_is_not_asked),
        TEST(lists_of_principals_hold_at_the_call),
        TEST(what_a_token_covers_holds_at_the_call),
        TEST(approvers_only_look),
        TEST(forwarded_tools_are_handed_through),
        TEST(later_rounds_are_no_calls),
        TEST(progress_grows),
        TEST(no_token_no_progress),
        TEST(a_cancelled_call_cancels_what_it_opened),
        TEST(a_cancelled_call_leaves_others_alone),
        TEST(a_client_that_is_gone_only_leaves),
        TEST(status_shows_an_operation),
        TEST(status_knows_the_last_call),
        TEST(status_without_a_session_looks_in_the_ledger),
        TEST(results_of_others_stay_theirs),
        TEST(arguments_of_built_in_tools_are_strict),
        TEST(wait_waits),
        TEST(plan_runs_nothing),
        TEST(the_report_puts_what_is_open_first),
        TEST(built_in_tools_can_be_switched_off),
        TEST(ledger_failures_are_errors),
        TEST(late_ledger_answers_reach_nobody),
        TEST(tombstones_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
