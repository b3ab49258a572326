/* Attempts of operations on MCP servers: one tools/call each.
 *
 *   send ─► params ─► link of the caller's session, else the server's own ─► tools/call ─► answer ─► mcp_judge ─► done
 *                        ▲                                                     │
 *                        │    the same params, inputResponses, requestState    ▼  resultType input_required (modern)
 *                        └───────────── answers of people, clients ◄──── hub's listener: one question per inputRequest
 *
 * Questions are answered within the attempt and its time: the rounds together are one request of the operation, as one
 * call during which a legacy server asks is. Where nobody is there to answer, or the rounds lead nowhere, it is not
 * known what the server has done so far. */
#include "adapter/mcp_answer.h"
#include "adapter/mcp_parts.h"

#include "base/mem.h"

#include <stdlib.h>

#define MCP_PARAMS_BYTES_MAX (MCP_MESSAGE_BYTES_MAX - (size_t)64 * 1024) /* the envelope needs some */
#define ROUNDS_MAX           10
#define QUESTIONS_MAX        32 /* of one round */

/* One inputRequest. */
struct asked {
    struct mcp_question question; /* first: see answered */
    struct mcp_attempt *attempt;
    const char *key;
    bool elicitation, open;
    struct str response; /* JSON text in the attempt's arena; absent = none yet */
};

struct mcp_attempt {
    struct mcp_hub *hub;
    struct mcp_tool *tool; /* a reference */
    const char *server;
    struct arena arena;
    struct mcp_judge judge;
    struct adapter_origin origin;
    adapter_done *done;
    void *user;
    struct buf params;   /* of the first round, without the last brace */
    int64_t deadline_ms; /* loop's time */
    /* rounds */
    unsigned round;
    struct asked *asked;
    size_t asked_count;
    bool asking;              /* within the loop that asks: answers only store */
    const char *failure;      /* what the server asked cannot be answered: why */
    struct str request_state; /* JSON text; absent = none */
    uv_timer_t timer;
    bool has_timer, waiting; /* waiting: in the hub's list */
    struct mcp_attempt *next, **at;
    struct adapter_answer unsent; /* given in the loop's next turn */
};

/* ---- what is sent ---- */

/* Ours takes the place of whatever a model wrote there (S16). */
static const struct json *with_key(struct arena *arena, const struct mcp_tool *tool, const struct json *arguments,
                                   const char *key)
{
    struct json *copy = arena_alloc(arena, sizeof *copy);
    struct str name = str_of(tool->key_argument);
    *copy = (struct json){.type = JSON_OBJECT};
    copy->members = arena_alloc(arena, sizeof *copy->members * (arguments->count + 1));
    for (uint32_t i = 0; i < arguments->count; i++) {
        if (!str_equal(arguments->members[i].name, name))
            copy->members[copy->count++] = arguments->members[i];
    }
    copy->members[copy->count++] = (struct json_member){name, json_string(str_of(key))};
    return copy;
}

/* hub: of a request that is sent; NULL = it is only shown or checked. */
static void write_meta(struct json_out *out, const struct mcp_tool *tool, const struct adapter_call *call, bool shown,
                       const struct mcp_hub *hub)
{
    bool lookup = call->kind == ATTEMPT_LOOKUP;
    json_out_name(out, "_meta");
    json_out_object(out);
    if (!lookup && call->provider_key && tool->provider->key_meta)
        json_out_member_text(out, "dev.onced/idempotency-key", call->provider_key);
    if (!lookup && call->operation)
        json_out_member_text(out, "dev.onced/operation", call->operation);
    if (http_trace_valid(call->trace) && !shown)
        json_out_member_text(out, "traceparent", call->trace);
    if ((call->origin.session || call->origin.call) && !shown)
        json_out_member_int(out, "progressToken", (int64_t)call->origin.call);
    if (!lookup && hub && hub->listener && hub->listener->introduced)
        hub->listener->introduced(hub->listener_user, &call->origin, out);
    json_out_end_object(out);
}

struct builder {
    const struct mcp_hub *hub; /* NULL = nothing will be sent */
    const struct mcp_tool *tool;
    const struct adapter_call *call;
    struct arena *arena;
    struct http_fill fill;
    struct buf scratch;
    struct err *err;
};

static enum err_code lookup_arguments(struct builder *b, struct json *out)
{
    const struct mcp_lookup *lookup = b->tool->lookup;
    bool left_out;
    struct json *value = NULL;
    enum err_code code = ERR_NONE;
    *out = *b->fill.arguments;
    if (lookup->jq) {
        code = jq_program_run(lookup->jq, b->arena, b->fill.arguments, &b->fill.places, &value, b->err);
        if (code == ERR_NONE && value->type != JSON_OBJECT)
            code =
                err_set(b->err, ERR_INVALID, "the program gives %s, expected an object", json_type_name(value->type));
        if (code == ERR_NONE)
            *out = *value;
    } else if (lookup->node) {
        code = http_fill_node(&b->fill, lookup->node, out, &left_out);
    }
    if (code != ERR_NONE)
        err_prefix(b->err, "lookup: arguments: ");
    return code;
}

/* Params of tools/call without their last brace: rounds add members. */
static enum err_code build_params(struct builder *b, struct buf *params)
{
    const struct mcp_tool *tool = b->tool;
    bool lookup = b->call->kind == ATTEMPT_LOOKUP;
    const struct json *arguments = b->fill.arguments;
    struct json looked_up;
    struct json_out out;
    if (lookup) {
        enum err_code code = lookup_arguments(b, &looked_up);
        if (code != ERR_NONE)
            return code;
        arguments = &looked_up;
    } else if (tool->key_argument && b->call->provider_key) {
        arguments = with_key(b->arena, tool, arguments, b->call->provider_key);
    }
    json_out_init(&out, params);
    json_out_object(&out);
    json_out_member_text(&out, "name", lookup ? tool->lookup->tool : tool->remote_name);
    json_out_name(&out, "arguments");
    json_out_value(&out, arguments);
    write_meta(&out, tool, b->call, b->fill.shown, b->hub);
    if (params->over)
        return err_set(b->err, ERR_LIMIT, "the request has more than %zu bytes", params->max);
    return ERR_NONE;
}

static enum err_code begin_build(struct builder *b, struct arena *arena, const struct adapter_call *call,
                                 struct err *err)
{
    *b = (struct builder){.tool = call->tool->adapter_tool, .call = call, .arena = arena, .err = err};
    buf_init(&b->scratch, HTTP_BODY_BYTES_MAX);
    http_fill_init(&b->fill, arena, call, &b->scratch, err);
    if (call->kind == ATTEMPT_LOOKUP && !b->tool->lookup)
        return err_set(err, ERR_INVALID, "the tool has no look-up");
    return ERR_NONE;
}

/* What the answer will be judged by. */
static enum err_code build_expected(struct builder *b, struct mcp_judge *judge)
{
    struct http_expected *expected = NULL;
    const struct http_equalities *stated =
        b->call->kind == ATTEMPT_LOOKUP ? &b->tool->lookup->verify : &b->tool->verify;
    *judge = (struct mcp_judge){.tool = b->tool, .kind = b->call->kind, .arena = b->arena};
    enum err_code code = http_fill_equalities(&b->fill, stated, &expected, &judge->expected_count);
    judge->expected = expected;
    return code;
}

static enum err_code build(const struct mcp_hub *hub, struct arena *arena, const struct adapter_call *call,
                           struct buf *params, struct mcp_judge *judge, struct err *err)
{
    struct builder b;
    enum err_code code = begin_build(&b, arena, call, err);
    b.hub = hub;
    if (code == ERR_NONE)
        code = build_params(&b, params);
    if (code == ERR_NONE)
        code = build_expected(&b, judge);
    buf_release(&b.scratch);
    return code;
}

/* ---- without sending ---- */

static enum err_code mcp_check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    struct arena arena;
    struct buf params;
    struct mcp_judge judge;
    (void)adapter;
    arena_init(&arena);
    buf_init(&params, MCP_PARAMS_BYTES_MAX);
    enum err_code code = build(NULL, &arena, call, &params, &judge, err);
    buf_release(&params);
    arena_release(&arena);
    return code;
}

static enum err_code mcp_describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                                  struct err *err)
{
    const struct mcp_tool *tool = call->tool->adapter_tool;
    const struct mcp_provider *provider = tool->provider;
    struct arena arena;
    struct buf params;
    struct builder b;
    enum err_code code = mcp_check(adapter, call, err);
    if (code != ERR_NONE)
        return code;
    arena_init(&arena);
    buf_init(&params, MCP_PARAMS_BYTES_MAX);
    begin_build(&b, &arena, call, err);
    http_fill_mask(&b.fill, tool->redact, tool->redact_count);
    bool good = build_params(&b, &params) == ERR_NONE;
    buf_add_char(&params, '}');
    json_out_object(out);
    json_out_member_text(out, "method", "tools/call");
    json_out_member_text(
        out, "url", provider->url ? provider->url_shown : arena_printf(&arena, "stdio:%s", call->tool->provider->name));
    json_out_name(out, "headers");
    json_out_object(out);
    for (size_t i = 0; i < provider->headers.count; i++)
        json_out_member_text(out, provider->headers.items[i].name, provider->headers.items[i].text.shown);
    json_out_end_object(out);
    json_out_name(out, "body");
    json_out_raw(out, good ? buf_str(&params) : STR("\"***\"")); /* masks may spoil it: "***" is no number for jq */
    json_out_end_object(out);
    buf_release(&b.scratch);
    buf_release(&params);
    arena_release(&arena);
    return ERR_NONE;
}

/* ---- life of an attempt ---- */

static int64_t now_ms(const struct mcp_attempt *attempt)
{
    return (int64_t)uv_now(attempt->hub->options.loop);
}

static struct mcp_attempt *attempt_new(struct mcp_hub *hub, const struct adapter_call *call, adapter_done *done,
                                       void *user)
{
    struct mcp_attempt *attempt = mem_zero(sizeof *attempt);
    const struct mcp_tool *tool = call->tool->adapter_tool;
    attempt->hub = hub;
    attempt->tool = mcp_tool_ref((struct mcp_tool *)tool); /* answers on the wire outlive a reload */
    attempt->origin = call->origin;
    attempt->done = done;
    attempt->user = user;
    arena_init(&attempt->arena);
    buf_init(&attempt->params, MCP_PARAMS_BYTES_MAX);
    attempt->server = arena_copy_text(&attempt->arena, call->tool->provider->name);
    attempt->judge = (struct mcp_judge){.tool = tool, .kind = call->kind, .arena = &attempt->arena};
    /* the deadline covers the whole attempt, rounds included (design 5.3): its lease ends soon after */
    attempt->deadline_ms =
        now_ms(attempt) + (call->kind == ATTEMPT_LOOKUP && tool->lookup ? tool->lookup->timeout_ms : tool->timeout_ms);
    return attempt;
}

static void release(struct mcp_attempt *attempt)
{
    buf_release(&attempt->params);
    arena_release(&attempt->arena);
    mcp_tool_unref(attempt->tool);
    free(attempt);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct mcp_attempt *attempt = handle->data;
    struct mcp_hub *hub = attempt->hub;
    release(attempt);
    mcp_hub_release(hub);
}

static void attempt_free(struct mcp_attempt *attempt)
{
    if (attempt->has_timer)
        uv_close((uv_handle_t *)&attempt->timer, on_timer_closed);
    else
        release(attempt);
}

static void finish(struct mcp_attempt *attempt, const struct adapter_answer *answer)
{
    attempt->done(attempt->user, answer);
    attempt_free(attempt);
}

static void tell_unsent(void *user)
{
    struct mcp_attempt *attempt = user;
    finish(attempt, &attempt->unsent);
}

/* Not from within send. */
static void fail_later(struct mcp_attempt *attempt, enum outcome outcome, const char *detail)
{
    mcp_judge_failure(&attempt->judge, outcome, detail, &attempt->unsent);
    mcp_hub_defer(attempt->hub, tell_unsent, attempt);
}

static void fail_now(struct mcp_attempt *attempt, enum outcome outcome, const char *detail)
{
    struct adapter_answer answer = {0};
    mcp_judge_failure(&attempt->judge, outcome, detail, &answer);
    finish(attempt, &answer);
}

/* ---- one request ---- */

static void answered(void *user, const struct mcp_outcome *outcome);

/* False: nothing was sent (err). */
static bool request(struct mcp_attempt *attempt, struct str params, struct err *err)
{
    struct mcp_server *server = mcp_hub_find(attempt->hub, attempt->server);
    struct mcp_link *link = server ? mcp_server_attempt_link(server, attempt->origin, err) : NULL;
    int64_t left_ms = attempt->deadline_ms - now_ms(attempt);
    if (!server)
        err_set(err, ERR_UNAVAILABLE, "the registry names no MCP server %s any more", attempt->server);
    if (!link)
        return false;
    const struct mcp_request_options options = {
        .method = "tools/call",
        .params = params,
        .timeout_ms = left_ms > 0 ? left_ms : 1,
        .no_timeout_renewal = true,
        .done = answered,
        .user = attempt,
    };
    mcp_link_attempt(link, &options, attempt->origin);
    return true;
}

static void mcp_send(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct mcp_hub *hub = mcp_hub_of(adapter);
    struct mcp_attempt *attempt = attempt_new(hub, call, done, user);
    struct err err = {0};
    enum err_code code = hub->closing ? err_set(&err, ERR_UNAVAILABLE, "onced is stopping")
                                      : build(hub, &attempt->arena, call, &attempt->params, &attempt->judge, &err);
    size_t length = attempt->params.n;
    buf_add_char(&attempt->params, '}');
    if (code != ERR_NONE || !request(attempt, buf_str(&attempt->params), &err))
        fail_later(attempt, OUTCOME_NOT_SENT, arena_copy_text(&attempt->arena, err.text));
    attempt->params.n = length;
}

/* ---- questions of modern servers ---- */

/* People may take their time, but not longer than the attempt. */
static void on_deadline(uv_timer_t *timer);
static void go_on(struct mcp_attempt *attempt);

static void wait_begin(struct mcp_attempt *attempt)
{
    struct mcp_hub *hub = attempt->hub;
    int64_t left_ms = attempt->deadline_ms - now_ms(attempt);
    if (!attempt->has_timer) {
        uv_timer_init(hub->options.loop, &attempt->timer);
        attempt->timer.data = attempt;
        attempt->has_timer = true;
        mcp_hub_hold(hub);
    }
    uv_timer_start(&attempt->timer, on_deadline, (uint64_t)(left_ms > 0 ? left_ms : 0), 0);
    attempt->waiting = true;
    attempt->next = hub->asking;
    attempt->at = &hub->asking;
    if (attempt->next)
        attempt->next->at = &attempt->next;
    hub->asking = attempt;
}

static void wait_end(struct mcp_attempt *attempt)
{
    if (!attempt->waiting)
        return;
    attempt->waiting = false;
    uv_timer_stop(&attempt->timer);
    *attempt->at = attempt->next;
    if (attempt->next)
        attempt->next->at = attempt->at;
}

static struct mcp_link *any_link(const struct mcp_attempt *attempt)
{
    struct mcp_server *server = mcp_hub_find(attempt->hub, attempt->server);
    return server ? mcp_server_attempt_link(server, attempt->origin, NULL) : NULL;
}

static void withdraw_all(struct mcp_attempt *attempt)
{
    const struct mcp_listener *listener = attempt->hub->listener;
    for (size_t i = 0; i < attempt->asked_count; i++) {
        if (!attempt->asked[i].open)
            continue;
        attempt->asked[i].open = false;
        if (listener && listener->withdrawn)
            listener->withdrawn(attempt->hub->listener_user, any_link(attempt), &attempt->asked[i].question);
    }
}

static void give_up(struct mcp_attempt *attempt, enum outcome outcome, const char *detail)
{
    wait_end(attempt);
    withdraw_all(attempt);
    fail_now(attempt, outcome, detail);
}

static void on_deadline(uv_timer_t *timer)
{
    give_up(timer->data, OUTCOME_TIMEOUT, "the server's questions were not answered in time");
}

void mcp_attempts_close(struct mcp_hub *hub)
{
    while (hub->asking)
        give_up(hub->asking, OUTCOME_CONNECTION_LOST, "onced stopped while the server waited for answers");
}

static bool all_answered(const struct mcp_attempt *attempt)
{
    for (size_t i = 0; i < attempt->asked_count; i++) {
        if (attempt->asked[i].open)
            return false;
    }
    return true;
}

/* Called by mcp_answer. Errors have no place among inputResponses: an elicitation can be cancelled, for the rest the
 * server gets no answer from us. */
static void take_answer(struct mcp_question *question, struct str result, int64_t code, struct str message)
{
    struct asked *asked = (struct asked *)question;
    struct mcp_attempt *attempt = asked->attempt;
    if (!asked->open)
        return;
    asked->open = false;
    if (result.p)
        asked->response = arena_str(&attempt->arena, result);
    else if (asked->elicitation)
        asked->response = STR("{\"action\":\"cancel\"}");
    else if (!attempt->failure)
        attempt->failure =
            arena_printf(&attempt->arena, "the server's question was refused (%lld): %.*s", (long long)code,
                         (int)(message.n > 200 ? 200 : message.n), message.p ? message.p : "");
    if (!attempt->asking)
        go_on(attempt);
}

/* Copies what is needed of an inputRequest. */
static bool read_question(struct mcp_attempt *attempt, const struct json_member *member, struct asked *out)
{
    struct str method = json_get_text(&member->value, "method");
    *out = (struct asked){.attempt = attempt,
                          .question = {.answered = take_answer},
                          .key = arena_copy_str(&attempt->arena, member->name),
                          .elicitation = str_is(method, "elicitation/create")};
    return method.n > 0 && method.n <= RPC_METHOD_BYTES_MAX && !memchr(method.p, 0, method.n) &&
           !memchr(member->name.p ? member->name.p : "", 0, member->name.n);
}

static void ask(struct mcp_attempt *attempt, const struct json *requests)
{
    const struct mcp_listener *listener = attempt->hub->listener;
    const struct mcp_related related = {.origin = attempt->origin};
    struct mcp_link *link = any_link(attempt);
    attempt->asking = true;
    for (uint32_t i = 0; i < attempt->asked_count; i++)
        attempt->asked[i].open = true;
    for (uint32_t i = 0; link && i < attempt->asked_count; i++) {
        const struct json *value = &requests->members[i].value, *params = json_get(value, "params");
        struct rpc_message message = {
            .kind = RPC_REQUEST,
            .method = arena_copy_str(&attempt->arena, json_get_text(value, "method")),
            .params = params && params->type == JSON_OBJECT ? params : NULL,
            .tree = value,
        };
        listener->asked(attempt->hub->listener_user, link, &related, &message, &attempt->asked[i].question);
    }
    attempt->asking = false;
    if (!link)
        give_up(attempt, OUTCOME_CONNECTION_LOST, "the server went while it waited for answers");
    else if (all_answered(attempt))
        go_on(attempt);
    else
        wait_begin(attempt);
}

/* Why the questions cannot even be asked; NULL = they can. */
static const char *read_questions(struct mcp_attempt *attempt, const struct json *result)
{
    const struct json *requests = json_get(result, "inputRequests"), *state = json_get(result, "requestState");
    bool somebody = (attempt->origin.session || attempt->origin.call) && attempt->hub->listener;
    attempt->request_state = STR_NONE;
    attempt->asked_count = 0;
    if (requests && requests->type != JSON_OBJECT)
        return "the server's inputRequests are no object";
    if (!requests && !state)
        return "the server asks for input and does not say which";
    if (requests && requests->count > QUESTIONS_MAX)
        return "the server asks too many questions at once";
    if (requests && requests->count > 0 && !somebody)
        return "the server asks for input, and nobody is there to give it";
    if (++attempt->round > ROUNDS_MAX)
        return "the server goes on asking for input";
    if (state) {
        struct buf text;
        buf_init(&text, 0);
        json_write(&text, state);
        attempt->request_state = arena_str(&attempt->arena, buf_str(&text));
        buf_release(&text);
    }
    uint32_t count = requests ? requests->count : 0;
    attempt->asked = arena_zero(&attempt->arena, sizeof *attempt->asked * (count + 1));
    for (uint32_t i = 0; i < count; i++) {
        if (!read_question(attempt, &requests->members[i], &attempt->asked[i]))
            return "the server's question has no method";
    }
    attempt->asked_count = count;
    return NULL;
}

static void input_required(struct mcp_attempt *attempt, const struct json *result)
{
    const char *fault = read_questions(attempt, result);
    attempt->judge.continued = true;
    if (fault)
        fail_now(attempt, OUTCOME_PROVIDER_ERROR, fault);
    else
        ask(attempt, json_get(result, "inputRequests"));
}

/* All questions are answered: the same params, the answers, the state as it came. */
static void go_on(struct mcp_attempt *attempt)
{
    struct buf *params = &attempt->params;
    size_t length = params->n;
    struct err err = {0};
    if (!all_answered(attempt))
        return;
    if (attempt->failure) {
        give_up(attempt, OUTCOME_PROVIDER_ERROR, attempt->failure);
        return;
    }
    wait_end(attempt);
    if (attempt->asked_count > 0)
        buf_add_text(params, ",\"inputResponses\":{");
    for (size_t i = 0; i < attempt->asked_count; i++) {
        buf_add_text(params, i ? "," : "");
        json_write_string(params, str_of(attempt->asked[i].key));
        buf_add_char(params, ':');
        buf_add_str(params, attempt->asked[i].response);
    }
    buf_add_text(params, attempt->asked_count > 0 ? "}" : "");
    if (attempt->request_state.p) {
        buf_add_text(params, ",\"requestState\":");
        buf_add_str(params, attempt->request_state);
    }
    buf_add_char(params, '}');
    if (params->over)
        err_set(&err, ERR_LIMIT, "the answers to the server's questions are too long");
    bool sent = !params->over && request(attempt, buf_str(params), &err);
    params->n = length;
    if (!sent)
        fail_later(attempt, OUTCOME_CONNECTION_LOST, arena_copy_text(&attempt->arena, err.text));
}

/* ---- answers ---- */

static bool asks_for_input(const struct mcp_outcome *outcome)
{
    return outcome->end == MCP_ANSWERED && outcome->message->kind == RPC_RESULT &&
           str_is(json_get_text(outcome->message->result, "resultType"), "input_required");
}

static void answered(void *user, const struct mcp_outcome *outcome)
{
    struct mcp_attempt *attempt = user;
    struct adapter_answer answer;
    if (asks_for_input(outcome)) {
        input_required(attempt, outcome->message->result);
        return;
    }
    if (outcome->end == MCP_ANSWERED && outcome->message->kind == RPC_ERROR &&
        outcome->message->code == MCP_HEADER_MISMATCH) {
        struct mcp_server *server = mcp_hub_find(attempt->hub, attempt->server);
        if (server)
            mcp_server_relist(server);
    }
    mcp_judge(&attempt->judge, outcome, &answer);
    finish(attempt, &answer);
}

const struct adapter_ops mcp_adapter_ops = {.check = mcp_check, .describe = mcp_describe, .send = mcp_send};
