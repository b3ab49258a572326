/* Attempts on MCP servers: what is sent, what its answer means, and what becomes of a server's questions. The server is
 * played through a transport that the test holds in its hands. */
#include "support/mcp_case.h"
#include "support/mcp_tool_case.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#define SENT_MAX 64

/* ---- the played server ---- */

struct sent {
    struct mcp_pending *pending; /* NULL: dropped, or no request */
    const char *method, *text;   /* of the message, in the case's arena */
    struct json *params;
};

struct play {
    struct mcp_case mcp;
    struct mcp_tool_case made;
    struct mcp_transport *transport; /* the last one, NULL once closed */
    struct sent sent[SENT_MAX];
    size_t count, looked;
    unsigned lists, lists_wanted, opened;
    const char *tools; /* what tools/list gives */
    bool silent;       /* the handshake is not answered */
    struct mcp_heard heard;
    /* the attempt's answer */
    struct arena arena;
    unsigned told;
    struct adapter_answer answer;
};

static struct play *current;

static bool play_send(struct mcp_transport *transport, const struct mcp_outgoing *message, struct err *err)
{
    struct play *play = current;
    struct sent *sent = &play->sent[play->count++];
    (void)transport;
    (void)err;
    assert_true(play->count < SENT_MAX);
    *sent = (struct sent){.pending = message->kind == RPC_REQUEST ? message->pending : NULL,
                          .method = arena_copy_text(&play->mcp.arena, message->method ? message->method : ""),
                          .text = arena_copy_str(&play->mcp.arena, message->text)};
    if (message->params)
        sent->params = json_copy(&play->mcp.arena, message->params);
    return true;
}

static void play_drop(struct mcp_transport *transport, struct mcp_pending *pending, bool cancelled)
{
    (void)transport;
    (void)cancelled;
    for (size_t i = 0; i < current->count; i++) {
        if (current->sent[i].pending == pending)
            current->sent[i].pending = NULL;
    }
}

static void play_close(struct mcp_transport *transport)
{
    struct mcp_hub *hub = current->mcp.hub;
    if (current->transport == transport)
        current->transport = NULL;
    free(transport);
    mcp_hub_release(hub);
}

static const struct mcp_transport_ops play_ops = {.send = play_send, .drop = play_drop, .close = play_close};

static struct mcp_transport *play_open(struct mcp_connection *connection, struct err *err)
{
    (void)err;
    struct mcp_transport *transport = calloc(1, sizeof *transport);
    *transport = (struct mcp_transport){.ops = &play_ops, .connection = connection};
    current->transport = transport;
    current->opened++;
    mcp_hub_hold(connection->hub);
    return transport;
}

/* result or error as the member's name, ' for ". */
static void say(struct play *play, struct mcp_pending *pending, const char *member, const char *value)
{
    assert_non_null(pending);
    assert_non_null(play->transport);
    const char *text = arena_printf(&play->mcp.arena, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"%s\":%s}", pending->id, member,
                                    mcp_tool_case_text(&play->mcp.arena, value));
    mcp_connection_message(play->transport->connection, pending, str_of(text), 0);
}

static void serve(struct play *play)
{
    while (play->looked < play->count) {
        struct sent *sent = &play->sent[play->looked++];
        if (!sent->pending || play->silent)
            continue;
        if (strcmp(sent->method, "initialize") == 0) {
            say(play, sent->pending, "result", "{'protocolVersion':'2025-11-25','capabilities':{'tools':{}}}");
        } else if (strcmp(sent->method, "server/discover") == 0) {
            say(play, sent->pending, "result",
                "{'resultType':'complete','supportedVersions':['2026-07-28'],"
                "'capabilities':{'tools':{}},'ttlMs':0,'cacheScope':'private'}");
        } else if (strcmp(sent->method, "tools/list") == 0) {
            play->lists++;
            say(play, sent->pending, "result",
                arena_printf(&play->mcp.arena, "{'resultType':'complete','tools':%s}", play->tools));
        }
    }
}

static bool is_ready(void *user)
{
    struct play *play = user;
    serve(play);
    return mcp_server_info(mcp_case_server(&play->mcp, "p")).state == MCP_SERVER_READY && play->lists > 0;
}

/* The n-th tools/call, from 0; NULL = not sent (yet). */
static struct sent *call_at(struct play *play, size_t n)
{
    for (size_t i = 0; i < play->count; i++) {
        if (strcmp(play->sent[i].method, "tools/call") == 0 && n-- == 0)
            return &play->sent[i];
    }
    return NULL;
}

static size_t calls(const struct play *play)
{
    size_t count = 0;
    for (size_t i = 0; i < play->count; i++)
        count += strcmp(play->sent[i].method, "tools/call") == 0;
    return count;
}

/* ---- stage ---- */

#define LEGACY "{'mcp':{'command':['x'],'protocol':'2025-11-25'}}"
#define MODERN "{'mcp':{'command':['x'],'protocol':'2026-07-28'}}"

static void begin(struct play *play, const char *provider, const char *tool, enum tool_class class)
{
    memset(play, 0, sizeof *play);
    current = play;
    arena_init(&play->arena);
    mcp_case_begin(&play->mcp);
    play->mcp.hub->open = play_open;
    play->tools = "[{'name':'tool','inputSchema':{'type':'object'}}]";
    play->heard = (struct mcp_heard){.mcp = &play->mcp};
    mcp_hub_set_listener(play->mcp.hub, &mcp_case_listener, &play->heard);
    mcp_tool_case_init(&play->made, provider, tool, class);
    if (!play->made.tool)
        fail_msg("%s", mcp_tool_case_problems(&play->made));
    mcp_case_apply(&play->mcp, "p", provider, NULL);
    assert_true(mcp_case_wait(&play->mcp, is_ready, play));
}

static void end(struct play *play)
{
    mcp_case_end(&play->mcp);
    mcp_tool_case_release(&play->made);
    arena_release(&play->arena);
}

static const char *keep(struct play *play, struct str text)
{
    return arena_copy_str(&play->arena, text);
}

static void on_done(void *user, const struct adapter_answer *answer)
{
    struct play *play = user;
    play->told++;
    play->answer = *answer;
    play->answer.detail = arena_copy_text(&play->arena, answer->detail);
    play->answer.external_id = arena_copy_text(&play->arena, answer->external_id);
    play->answer.result = arena_str(&play->arena, answer->result);
    play->answer.error = arena_str(&play->arena, answer->error);
}

static struct adapter_call call_of(struct play *play, enum attempt_kind kind, const char *arguments)
{
    return (struct adapter_call){.tool = &play->made.core_tool,
                                 .kind = kind,
                                 .operation = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                 .attempt = "at_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                 .provider_key = "key-1",
                                 .tenant = "acme",
                                 .arguments = mcp_tool_case_json(&play->arena, arguments)};
}

static void send_call(struct play *play, const struct adapter_call *call)
{
    struct adapter *adapter = mcp_hub_adapter(play->mcp.hub);
    unsigned told = play->told;
    adapter->ops->send(adapter, call, on_done, play);
    assert_int_equal(play->told, told); /* never from within */
}

static bool is_told(void *user)
{
    struct play *play = user;
    serve(play);
    return play->told > 0;
}

static void wait_told(struct play *play)
{
    assert_true(mcp_case_wait(&play->mcp, is_told, play));
    assert_int_equal(play->told, 1);
}

/* Sends and answers; member "result" or "error". */
static enum outcome outcome_of(struct play *play, enum attempt_kind kind, const char *member, const char *value)
{
    struct adapter_call call = call_of(play, kind, "{'path':'a'}");
    size_t at = calls(play);
    play->told = 0;
    send_call(play, &call);
    assert_int_equal(calls(play), at + 1);
    say(play, call_at(play, at)->pending, member, value);
    wait_told(play);
    return play->answer.outcome;
}

static void assert_outcome(enum outcome got, enum outcome wanted)
{
    assert_string_equal(outcome_name(got), outcome_name(wanted));
}

static const char *member_text(struct play *play, const struct json *object, const char *pointer)
{
    const struct json *value = json_pointer_get(object, str_of(pointer));
    struct buf text;
    if (!value)
        return "";
    buf_init(&text, 0);
    json_write(&text, value);
    const char *copy = keep(play, buf_str(&text));
    buf_release(&text);
    return copy;
}

static struct json *parsed(struct play *play, struct str text)
{
    struct json *value = NULL;
    assert_int_equal(json_parse(&play->arena, text, NULL, &value, NULL), ERR_NONE);
    return value;
}

/* ---- what is sent ---- */

static void the_request_carries_what_it_must(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{'mcp':{'tool':'write_file','key_argument':'request_id'}}", CLASS_EXTERNAL_WEAK);
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{'path':'a','request_id':'of the model','n':1.50}");
    call.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    call.origin = (struct adapter_origin){.session = 3, .call = 77};
    send_call(&play, &call);
    struct sent *sent = call_at(&play, 0);
    assert_non_null(sent);
    assert_string_equal(member_text(&play, sent->params, "/name"), "\"write_file\"");
    assert_string_equal(member_text(&play, sent->params, "/arguments"),
                        "{\"path\":\"a\",\"n\":1.50,\"request_id\":\"key-1\"}");
    const struct json *meta = json_get(sent->params, "_meta");
    assert_string_equal(member_text(&play, meta, "/dev.onced~1idempotency-key"), "\"key-1\"");
    assert_true(str_is(json_get_text(meta, "dev.onced/operation"), call.operation));
    assert_true(str_is(json_get_text(meta, "traceparent"), call.trace));
    assert_string_equal(member_text(&play, meta, "/progressToken"), sent->pending->id); /* ours on the wire */
    assert_string_equal(sent->pending->token, "77");
    say(&play, sent->pending, "result", "{'content':[]}");
    assert_int_equal(play.told, 1);
    end(&play);
}

static void nobody_there_means_no_progress(void **state)
{
    struct play play;
    (void)state;
    begin(&play, "{'mcp':{'command':['x'],'protocol':'2025-11-25'},'key':{'meta':false}}", "{}", CLASS_EXTERNAL_WEAK);
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{}");
    send_call(&play, &call);
    const struct json *meta = json_get(call_at(&play, 0)->params, "_meta");
    assert_null(json_get(meta, "progressToken"));
    assert_null(json_get(meta, "dev.onced/idempotency-key"));
    assert_null(json_get(meta, "traceparent"));
    say(&play, call_at(&play, 0)->pending, "result", "{'content':[]}");
    end(&play);
}

static void dry_runs_show_it_masked(void **state)
{
    static const char *const redact[] = {"/card"};
    struct play play;
    struct buf text;
    struct json_out out;
    struct err err = {0};
    (void)state;
    begin(&play, LEGACY, "{}", CLASS_EXTERNAL_WEAK);
    mcp_tool_free(play.made.tool);
    play.made.core_tool.redact_pointers = redact;
    play.made.core_tool.redact_count = 1;
    play.made.tool =
        mcp_tool_new(json_object(&play.arena), "", play.made.provider, &play.made.core_tool, &play.made.problems);
    play.made.core_tool.adapter_tool = play.made.tool;
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{'card':'4242','n':1}");
    struct adapter *adapter = mcp_hub_adapter(play.mcp.hub);
    buf_init(&text, 0);
    json_out_init(&out, &text);
    assert_int_equal(adapter->ops->check(adapter, &call, &err), ERR_NONE);
    assert_int_equal(adapter->ops->describe(adapter, &call, &out, &err), ERR_NONE);
    struct json *shown = parsed(&play, buf_str(&text));
    assert_string_equal(member_text(&play, shown, "/method"), "\"tools/call\"");
    assert_string_equal(member_text(&play, shown, "/url"), "\"stdio:p\"");
    assert_string_equal(member_text(&play, shown, "/body/arguments"), "{\"card\":\"***\",\"n\":1}");
    assert_int_equal(calls(&play), 0);
    buf_release(&text);
    end(&play);
}

static void what_cannot_be_built_is_told_by_name(void **state)
{
    struct play play;
    struct err err = {0};
    (void)state;
    begin(&play, LEGACY, "{'verify':{'/structuredContent/to':'{account.id}'}}", CLASS_EXTERNAL_WEAK);
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{'path':'a'}");
    struct adapter *adapter = mcp_hub_adapter(play.mcp.hub);
    assert_int_equal(adapter->ops->check(adapter, &call, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "account.id is missing"));
    send_call(&play, &call);
    wait_told(&play);
    assert_outcome(play.answer.outcome, OUTCOME_NOT_SENT);
    assert_int_equal(calls(&play), 0);
    end(&play);
}

/* ---- what answers mean ---- */

static void a_result_is_the_servers_confirmation(void **state)
{
    struct play play;
    (void)state;
    begin(&play, MODERN, "{'mcp':{'external_id':'.structuredContent.id'}}", CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result",
                              "{'resultType':'complete','content':[{'type':'text','text':'done'}],"
                              "'structuredContent':{'id':17},'isError':false,'_meta':{'a':1}}"),
                   OUTCOME_SUCCESS);
    assert_string_equal(play.answer.external_id, "17");
    assert_string_equal(keep(&play, play.answer.result),
                        "{\"content\":[{\"type\":\"text\",\"text\":\"done\"}],\"structuredContent\":{\"id\":17},"
                        "\"isError\":false,\"_meta\":{\"a\":1}}");
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[]}"), OUTCOME_UNREADABLE); /* no id */
    end(&play);
}

/* An error of the tool's may come after half of its work (design 3.2). */
static void an_error_of_the_tool_proves_nothing(void **state)
{
    static const char answer[] = "{'content':[{'type':'text','text':'disk full'}],'isError':true}";
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{}", CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", answer), OUTCOME_PROVIDER_ERROR);
    struct json *error = parsed(&play, play.answer.error);
    assert_string_equal(member_text(&play, error, "/message"), "\"disk full\"");
    assert_string_equal(member_text(&play, error, "/provider/isError"), "true");
    end(&play);
    begin(&play, LEGACY, "{'mcp':{'errors':'no_effect'}}", CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", answer), OUTCOME_REFUSED);
    end(&play);
    begin(&play, LEGACY, "{}", CLASS_READ); /* has no effect anyway */
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", answer), OUTCOME_REFUSED);
    end(&play);
}

static void programs_say_which_errors_prove_something(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY,
          "{'mcp':{'errors':{'no_effect':'.content[0].text | startswith(\\'ENOENT\\')','noop':'.content[0].text == "
          "\\'exists\\'','not_processed':'.content[0].text == \\'busy\\''},'error_when':'.structuredContent.failed == "
          "true','success_when':'.structuredContent.state != \\'odd\\''}}",
          CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[{'text':'ENOENT: a'}],'isError':true}"),
                   OUTCOME_REFUSED);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[{'text':'exists'}],'isError':true}"),
                   OUTCOME_NOOP);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[{'text':'busy'}],'isError':true}"),
                   OUTCOME_NOT_PROCESSED);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[{'text':'other'}],'isError':true}"),
                   OUTCOME_PROVIDER_ERROR);
    /* a program that cannot be evaluated proves nothing */
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[{'text':7}],'isError':true}"),
                   OUTCOME_PROVIDER_ERROR);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[],'structuredContent':{'failed':true}}"),
                   OUTCOME_PROVIDER_ERROR);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[],'structuredContent':{'state':'odd'}}"),
                   OUTCOME_UNREADABLE);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[],'structuredContent':{}}"), OUTCOME_SUCCESS);
    end(&play);
}

static void a_program_that_fails_may_have_said_otherwise(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY,
          "{'mcp':{'errors':{'no_effect':'true','not_processed':'.content[0].text | startswith(\\'busy\\')'}}}",
          CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[{'text':'x'}],'isError':true}"),
                   OUTCOME_REFUSED);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[{'text':7}],'isError':true}"),
                   OUTCOME_PROVIDER_ERROR);
    end(&play);
}

static void errors_of_the_protocol(void **state)
{
    static const struct {
        const char *error;
        enum outcome outcome;
    } cases[] = {
        {"{'code':-32602,'message':'Unknown tool: x'}", OUTCOME_REFUSED},
        {"{'code':-32601,'message':'Method not found'}", OUTCOME_REFUSED},
        {"{'code':-32600,'message':'Invalid Request'}", OUTCOME_REFUSED},
        {"{'code':-32700,'message':'Parse error'}", OUTCOME_REFUSED},
        {"{'code':-32021,'message':'needs sampling'}", OUTCOME_REFUSED},
        {"{'code':-32042,'message':'visit','data':{'elicitations':[]}}", OUTCOME_REFUSED},
        {"{'code':-32603,'message':'Internal error'}", OUTCOME_PROVIDER_ERROR},
        {"{'code':-32000,'message':'whatever'}", OUTCOME_PROVIDER_ERROR},
        {"{'code':-32001,'message':'Session not found'}", OUTCOME_PROVIDER_ERROR},
        {"{'code':7,'message':''}", OUTCOME_PROVIDER_ERROR},
        /* the tool has run, and its result is what is wrong */
        {"{'code':-32602,'message':'Output validation error: Invalid structured content for tool x'}",
         OUTCOME_PROVIDER_ERROR},
        {"{'code':-32600,'message':'Tool x has an output schema but did not return structured content'}",
         OUTCOME_PROVIDER_ERROR},
    };
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{}", CLASS_EXTERNAL_WEAK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_outcome(outcome_of(&play, ATTEMPT_CALL, "error", cases[i].error), cases[i].outcome);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "error", "{'code':-32602,'message':'bad','data':{'a':1}}"),
                   OUTCOME_REFUSED);
    struct json *error = parsed(&play, play.answer.error);
    assert_string_equal(member_text(&play, error, "/code"), "\"-32602\"");
    assert_string_equal(member_text(&play, error, "/message"), "\"bad\"");
    assert_string_equal(member_text(&play, error, "/provider/data/a"), "1");
    end(&play);
}

static bool was_listed(void *user)
{
    struct play *play = user;
    serve(play);
    return play->lists == play->lists_wanted;
}

static void an_old_list_of_tools_is_made_anew(void **state)
{
    struct play play;
    (void)state;
    begin(&play, MODERN, "{}", CLASS_EXTERNAL_WEAK);
    play.lists_wanted = play.lists + 1;
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "error", "{'code':-32020,'message':'Mcp-Param-X is missing'}"),
                   OUTCOME_NOT_PROCESSED);
    assert_true(mcp_case_wait(&play.mcp, was_listed, &play));
    end(&play);
}

static void answers_that_are_none(void **state)
{
    static const char *const results[] = {
        "{}",
        "{'content':7}",
        "{'content':[],'isError':'no'}",
        "{'resultType':'task','taskId':'1'}",
        "{'resultType':7,'content':[]}",
        "{'structuredContent':null,'content':null}",
    };
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{}", CLASS_EXTERNAL_WEAK);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", results[i]), OUTCOME_UNREADABLE);
    end(&play);
}

static void another_operations_object_is_no_success(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{'verify':{'/structuredContent/path':'{path}'}}", CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[],'structuredContent':{'path':'a'}}"),
                   OUTCOME_SUCCESS);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'content':[],'structuredContent':{'path':'b'}}"),
                   OUTCOME_WRONG_OBJECT);
    assert_string_equal(play.answer.detail, "/structuredContent/path: expected \"a\", got \"b\"");
    assert_null(play.answer.result.p);
    end(&play);
}

/* ---- no answer ---- */

static void a_server_that_goes_leaves_it_open(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{}", CLASS_EXTERNAL_WEAK);
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{}");
    send_call(&play, &call);
    assert_int_equal(calls(&play), 1);
    play.silent = true;
    mcp_connection_lost(play.transport->connection, "the server ended with signal 9");
    wait_told(&play);
    assert_outcome(play.answer.outcome, OUTCOME_CONNECTION_LOST);
    assert_string_equal(play.answer.detail, "the server ended with signal 9");
    /* while it is down nothing is sent, and that is known */
    play.told = 0;
    send_call(&play, &call);
    wait_told(&play);
    assert_outcome(play.answer.outcome, OUTCOME_NOT_SENT);
    assert_int_equal(calls(&play), 1);
    end(&play);
}

static void a_silent_server_is_not_waited_for(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{'timeout':'30ms','lookup':{'tool':'read','found':'.x'}}", CLASS_EXTERNAL_WEAK);
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{}");
    send_call(&play, &call);
    wait_told(&play);
    assert_outcome(play.answer.outcome, OUTCOME_TIMEOUT);
    play.told = 0;
    call.kind = ATTEMPT_LOOKUP;
    send_call(&play, &call);
    wait_told(&play);
    assert_outcome(play.answer.outcome, OUTCOME_CANNOT_TELL);
    end(&play);
}

static void a_server_that_starts_is_waited_for(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{'timeout':'50ms'}", CLASS_EXTERNAL_WEAK);
    play.silent = true;
    unsigned opened = play.opened;
    mcp_connection_lost(play.transport->connection, "gone");
    for (int i = 0; i < 200 && play.opened == opened; i++)
        mcp_case_turn(&play.mcp, 10);
    assert_int_equal(play.opened, opened + 1);
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{}");
    send_call(&play, &call); /* waits for the handshake, which does not end */
    wait_told(&play);
    assert_int_equal(calls(&play), 0);
    assert_outcome(play.answer.outcome, OUTCOME_NOT_SENT);
    end(&play);
}

static void garbage_is_unreadable(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{}", CLASS_EXTERNAL_WEAK);
    struct adapter_call call = call_of(&play, ATTEMPT_CALL, "{}");
    send_call(&play, &call);
    mcp_connection_message(play.transport->connection, call_at(&play, 0)->pending, STR("{\"jsonrpc\":\"2.0\",oops"), 0);
    wait_told(&play);
    assert_outcome(play.answer.outcome, OUTCOME_UNREADABLE);
    end(&play);
}

static enum outcome outcome_of_status(struct play *play, enum mcp_end how, bool sent, int status)
{
    struct adapter_call call = call_of(play, ATTEMPT_CALL, "{}");
    size_t at = calls(play);
    play->told = 0;
    send_call(play, &call);
    mcp_connection_pending_lost(play->transport->connection, call_at(play, at)->pending, how, sent, status,
                                "so it was");
    wait_told(play);
    return play->answer.outcome;
}

static void what_http_says_without_a_message(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY, "{}", CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 401), OUTCOME_REFUSED);
    assert_int_equal(play.answer.http_status, 401);
    assert_string_equal(play.answer.detail, "so it was");
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 413), OUTCOME_REFUSED);
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 429), OUTCOME_NOT_PROCESSED);
    /* a session may end after its calls did their work (case S12) */
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 404), OUTCOME_PROVIDER_ERROR);
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 307), OUTCOME_PROVIDER_ERROR);
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 500), OUTCOME_PROVIDER_ERROR);
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 0), OUTCOME_CONNECTION_LOST);
    assert_outcome(outcome_of_status(&play, MCP_LOST, false, 0), OUTCOME_NOT_SENT);
    assert_outcome(outcome_of_status(&play, MCP_UNREADABLE, true, 200), OUTCOME_UNREADABLE);
    end(&play);
    begin(&play, "{'mcp':{'command':['x'],'protocol':'2025-11-25'},'no_effect':[404]}", "{}", CLASS_EXTERNAL_WEAK);
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 404), OUTCOME_REFUSED);
    assert_outcome(outcome_of_status(&play, MCP_LOST, true, 401), OUTCOME_PROVIDER_ERROR);
    end(&play);
}

/* ---- look-ups ---- */

static void look_ups_say_what_they_prove(void **state)
{
    struct play play;
    (void)state;
    begin(&play, LEGACY,
          "{'lookup':{'tool':'read','arguments':{'path':'/data/{path}','op':'{$operation}'},"
          "'found':'.structuredContent.found == true','absent':'.isError == true and (.content[0].text | "
          "startswith(\\'ENOENT\\')) or .structuredContent.found == false','pending':'.structuredContent.pending == "
          "true',"
          "'failed':'.structuredContent.failed == true','external_id':'/structuredContent/id',"
          "'verify':{'/structuredContent/path':'{path}'}}}",
          CLASS_EXTERNAL_WEAK);
#define FOUND(more) "{'content':[],'structuredContent':{'found':true,'id':'e1','path':'a'" more "}}"
    assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "result", FOUND("")), OUTCOME_FOUND);
    assert_string_equal(play.answer.external_id, "e1");
    assert_non_null(play.answer.result.p);
    const struct json *params = call_at(&play, 0)->params;
    assert_string_equal(member_text(&play, params, "/name"), "\"read\"");
    assert_string_equal(member_text(&play, params, "/arguments"),
                        "{\"path\":\"/data/a\",\"op\":\"op_01ARZ3NDEKTSV4RRFFQ69G5FAV\"}");
    /* a server that knows the key must not take the look-up for the call */
    assert_null(json_get(json_get(params, "_meta"), "dev.onced/idempotency-key"));
    assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "result", FOUND(",'pending':true")), OUTCOME_PENDING);
    assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "result", FOUND(",'failed':true")), OUTCOME_FAILED_THERE);
    assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "result",
                              "{'content':[],'structuredContent':{'found':true,'id':'e1','path':'b'}}"),
                   OUTCOME_WRONG_OBJECT);
    assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "result", "{'content':[{'text':'ENOENT'}],'isError':true}"),
                   OUTCOME_ABSENT);
    assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "result", "{'content':[],'structuredContent':{'found':false}}"),
                   OUTCOME_ABSENT);
    /* whatever is not exactly so cannot tell (7.1) */
    static const char *const unsure[] = {
        "{'content':[],'structuredContent':{}}",
        "{'content':[{'text':'EACCES'}],'isError':true}",
        "{'content':[{'text':7}],'isError':true}",
        "{'content':[],'structuredContent':{'found':true,'path':'a'}}",                                      /* no id */
        "{'content':[{'text':'E'}],'isError':true,'structuredContent':{'found':true,'id':'e1','path':'a'}}", /* an error
                                                                                                              */
        "{}",
        "{'resultType':'input_required','requestState':'s','content':[]}",
    };
    for (size_t i = 0; i + 1 < sizeof unsure / sizeof *unsure; i++)
        assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "result", unsure[i]), OUTCOME_CANNOT_TELL);
    assert_outcome(outcome_of(&play, ATTEMPT_LOOKUP, "error", "{'code':-32602,'message':'Unknown tool: read'}"),
                   OUTCOME_CANNOT_TELL);
    end(&play);
}

/* ---- questions of modern servers ---- */

#define ASKS_NAME                                                                                                      \
    "'name':{'method':'elicitation/create','params':{'mode':'form','message':'Name?','requestedSchema':{'type':"       \
    "'object'}}}"

/* The caller is there. */
static void begin_asked(struct play *play, const char *tool)
{
    begin(play, MODERN, tool, CLASS_EXTERNAL_WEAK);
    struct adapter_call call = call_of(play, ATTEMPT_CALL, "{'path':'a'}");
    call.origin = (struct adapter_origin){.session = 3, .call = 77};
    send_call(play, &call);
}

static void questions_are_answered_within_the_attempt(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    play.heard.answer = "{\"action\":\"accept\",\"content\":{\"name\":\"A\"}}";
    say(&play, call_at(&play, 0)->pending, "result",
        "{'resultType':'input_required','inputRequests':{" ASKS_NAME ",'roots':{'method':'roots/list'}},"
        "'requestState':'{\\'n\\': 1}'}");
    assert_int_equal(play.heard.asked, 2);
    assert_string_equal(play.heard.last_method, "roots/list");
    assert_int_equal(play.heard.last_origin.call, 77);
    assert_int_equal(play.told, 0);
    assert_int_equal(calls(&play), 2);
    const struct json *first = call_at(&play, 0)->params, *second = call_at(&play, 1)->params;
    assert_string_not_equal(member_text(&play, first, "/_meta/progressToken"),
                            member_text(&play, second, "/_meta/progressToken")); /* another id */
    assert_string_equal(member_text(&play, first, "/arguments"), member_text(&play, second, "/arguments"));
    assert_string_equal(member_text(&play, second, "/requestState"), "\"{\\\"n\\\": 1}\"");
    assert_string_equal(member_text(&play, second, "/inputResponses"),
                        "{\"name\":{\"action\":\"accept\",\"content\":{\"name\":\"A\"}},"
                        "\"roots\":{\"action\":\"accept\",\"content\":{\"name\":\"A\"}}}");
    assert_string_equal(member_text(&play, second, "/_meta/dev.onced~1idempotency-key"), "\"key-1\"");
    /* another round without a state: none is sent then */
    say(&play, call_at(&play, 1)->pending, "result", "{'resultType':'input_required','inputRequests':{" ASKS_NAME "}}");
    assert_int_equal(calls(&play), 3);
    assert_null(json_get(call_at(&play, 2)->params, "requestState"));
    say(&play, call_at(&play, 2)->pending, "result", "{'resultType':'complete','content':[]}");
    assert_int_equal(play.told, 1);
    assert_outcome(play.answer.outcome, OUTCOME_SUCCESS);
    end(&play);
}

static void a_state_alone_means_again(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    say(&play, call_at(&play, 0)->pending, "result", "{'resultType':'input_required','requestState':'s'}");
    assert_int_equal(calls(&play), 2);
    assert_null(json_get(call_at(&play, 1)->params, "inputResponses"));
    assert_string_equal(member_text(&play, call_at(&play, 1)->params, "/requestState"), "\"s\"");
    say(&play, call_at(&play, 1)->pending, "result", "{'content':[]}");
    assert_outcome(play.answer.outcome, OUTCOME_SUCCESS);
    end(&play);
}

static void answers_may_come_later(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    say(&play, call_at(&play, 0)->pending, "result",
        "{'resultType':'input_required','inputRequests':{" ASKS_NAME "},'requestState':'s'}");
    assert_int_equal(calls(&play), 1);
    mcp_case_turn(&play.mcp, 20);
    assert_int_equal(calls(&play), 1);
    mcp_answer(play.heard.question, STR("{\"action\":\"decline\"}"), 0, STR_NONE);
    assert_int_equal(calls(&play), 2);
    assert_string_equal(member_text(&play, call_at(&play, 1)->params, "/inputResponses"),
                        "{\"name\":{\"action\":\"decline\"}}");
    say(&play, call_at(&play, 1)->pending, "result", "{'content':[]}");
    assert_int_equal(play.told, 1);
    end(&play);
}

/* It is not known what the server did before it asked. */
static void nobody_to_ask_leaves_it_open(void **state)
{
    struct play play;
    (void)state;
    begin(&play, MODERN, "{}", CLASS_EXTERNAL_WEAK);
    assert_outcome(
        outcome_of(&play, ATTEMPT_CALL, "result", "{'resultType':'input_required','inputRequests':{" ASKS_NAME "}}"),
        OUTCOME_PROVIDER_ERROR);
    assert_int_equal(play.heard.asked, 0);
    assert_int_equal(calls(&play), 1);
    assert_outcome(outcome_of(&play, ATTEMPT_CALL, "result", "{'resultType':'input_required'}"),
                   OUTCOME_PROVIDER_ERROR);
    end(&play);
}

static void refused_questions(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    say(&play, call_at(&play, 0)->pending, "result", "{'resultType':'input_required','inputRequests':{" ASKS_NAME "}}");
    mcp_answer(play.heard.question, STR_NONE, -32603, STR("no user"));
    assert_int_equal(calls(&play), 2); /* an elicitation can be cancelled */
    assert_string_equal(member_text(&play, call_at(&play, 1)->params, "/inputResponses"),
                        "{\"name\":{\"action\":\"cancel\"}}");
    say(&play, call_at(&play, 1)->pending, "result",
        "{'resultType':'input_required','inputRequests':{'r':{'method':'roots/list'}}}");
    mcp_answer(play.heard.question, STR_NONE, -32601, STR("no roots"));
    wait_told(&play);
    assert_int_equal(calls(&play), 2);
    assert_outcome(play.answer.outcome, OUTCOME_PROVIDER_ERROR);
    assert_string_equal(play.answer.detail, "the server's question was refused (-32601): no roots");
    end(&play);
}

static void a_server_that_never_stops_asking(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    for (size_t i = 0; i < 20 && play.told == 0; i++)
        say(&play, call_at(&play, i)->pending, "result", "{'resultType':'input_required','requestState':'s'}");
    assert_int_equal(calls(&play), 11); /* the call and ten rounds */
    assert_int_equal(play.told, 1);
    assert_outcome(play.answer.outcome, OUTCOME_PROVIDER_ERROR);
    end(&play);
}

/* What a later round says is about that round. */
static void a_refused_round_does_not_disprove_the_first(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    say(&play, call_at(&play, 0)->pending, "result", "{'resultType':'input_required','requestState':'s'}");
    say(&play, call_at(&play, 1)->pending, "error", "{'code':-32602,'message':'bad state'}");
    assert_int_equal(play.told, 1);
    assert_outcome(play.answer.outcome, OUTCOME_PROVIDER_ERROR);
    end(&play);
    begin_asked(&play, "{}");
    say(&play, call_at(&play, 0)->pending, "result", "{'resultType':'input_required','requestState':'s'}");
    mcp_connection_pending_lost(play.transport->connection, call_at(&play, 1)->pending, MCP_LOST, false, 0, "refused");
    assert_outcome(play.answer.outcome, OUTCOME_CONNECTION_LOST); /* not "not sent" */
    end(&play);
}

static void people_have_as_long_as_the_attempt(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{'timeout':'60ms'}");
    say(&play, call_at(&play, 0)->pending, "result", "{'resultType':'input_required','inputRequests':{" ASKS_NAME "}}");
    wait_told(&play);
    assert_outcome(play.answer.outcome, OUTCOME_TIMEOUT);
    assert_int_equal(play.heard.withdrawn, 1);
    assert_int_equal(calls(&play), 1);
    end(&play);
}

static void a_stop_does_not_wait_for_people(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    say(&play, call_at(&play, 0)->pending, "result",
        "{'resultType':'input_required','inputRequests':{" ASKS_NAME ",'again':{'method':'elicitation/create'}}}");
    mcp_answer(play.heard.question, STR("{\"action\":\"accept\"}"), 0, STR_NONE); /* one of the two */
    assert_int_equal(calls(&play), 1);
    end(&play);
    assert_int_equal(play.told, 1);
    assert_outcome(play.answer.outcome, OUTCOME_CONNECTION_LOST);
    assert_int_equal(play.heard.withdrawn, 1);
}

static void a_stop_ends_what_is_open(void **state)
{
    struct play play;
    (void)state;
    begin_asked(&play, "{}");
    end(&play);
    assert_int_equal(play.told, 1);
    assert_outcome(play.answer.outcome, OUTCOME_CONNECTION_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_carries_what_it_must),
        cmocka_unit_test(nobody_there_means_no_progress),
        cmocka_unit_test(dry_runs_show_it_masked),
        cmocka_unit_test(what_cannot_be_built_is_told_by_name),
        cmocka_unit_test(a_result_is_the_servers_confirmation),
        cmocka_unit_test(an_error_of_the_tool_proves_nothing),
        cmocka_unit_test(programs_say_which_errors_prove_something),
        cmocka_unit_test(a_program_that_fails_may_have_said_otherwise),
        cmocka_unit_test(errors_of_the_protocol),
        cmocka_unit_test(an_old_list_of_tools_is_made_anew),
        cmocka_unit_test(answers_that_are_none),
        cmocka_unit_test(another_operations_object_is_no_success),
        cmocka_unit_test(a_server_that_goes_leaves_it_open),
        cmocka_unit_test(a_silent_server_is_not_waited_for),
        cmocka_unit_test(a_server_that_starts_is_waited_for),
        cmocka_unit_test(garbage_is_unreadable),
        cmocka_unit_test(what_http_says_without_a_message),
        cmocka_unit_test(look_ups_say_what_they_prove),
        cmocka_unit_test(questions_are_answered_within_the_attempt),
        cmocka_unit_test(a_state_alone_means_again),
        cmocka_unit_test(answers_may_come_later),
        cmocka_unit_test(nobody_to_ask_leaves_it_open),
        cmocka_unit_test(refused_questions),
        cmocka_unit_test(a_server_that_never_stops_asking),
        cmocka_unit_test(a_refused_round_does_not_disprove_the_first),
        cmocka_unit_test(people_have_as_long_as_the_attempt),
        cmocka_unit_test(a_stop_does_not_wait_for_people),
        cmocka_unit_test(a_stop_ends_what_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
