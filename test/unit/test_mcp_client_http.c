/* The MCP client over streamable HTTP against real servers on loopback: what they see is exactly what was sent, and
 * every ending is told as what it is. */
#include "adapter/mcp_headers.h"
#include "support/mcp_case.h"
#include "support/mcp_tool_case.h"
#include "support/mcp_web.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- stage ---- */

struct told {
    unsigned count;
    enum mcp_end end;
    bool sent;
    int http_status;
    int64_t code;
    const char *text, *result; /* "" = none */
};

struct stage {
    struct mcp_case mcp;
    struct mcp_web web;
    struct mcp_link *link;
    struct mcp_heard heard;
    struct told told;
};

static void begin(struct stage *stage, mcp_web_fn *handler, const char *more)
{
    memset(stage, 0, sizeof *stage);
    mcp_web_begin(&stage->web, handler);
    mcp_case_begin(&stage->mcp);
    const char *section = arena_printf(
        &stage->mcp.arena, "{'mcp':{'url':'http://127.0.0.1:%d/mcp','sessions':'shared'%s", stage->web.port, more);
    mcp_case_apply(&stage->mcp, "w", section, NULL);
}

/* With a link of a client. */
static void begin_ready(struct stage *stage, mcp_web_fn *handler, const char *more)
{
    begin(stage, handler, more);
    assert_true(mcp_case_wait_settled(&stage->mcp));
    struct mcp_server_info info = mcp_server_info(mcp_case_server(&stage->mcp, "w"));
    if (info.state != MCP_SERVER_READY)
        fail_msg("the server is not ready: %s", info.error ? info.error : "?");
    stage->link = mcp_case_open(&stage->mcp, "w", &stage->heard, NULL);
}

static void end(struct stage *stage)
{
    if (stage->link)
        mcp_link_close(stage->link);
    mcp_case_end(&stage->mcp);
    mcp_web_end(&stage->web);
}

static void on_told(void *user, const struct mcp_outcome *outcome)
{
    struct stage *stage = user;
    struct told *told = &stage->told;
    struct buf text;
    told->count++;
    told->end = outcome->end;
    told->sent = outcome->sent;
    told->http_status = outcome->http_status;
    told->text = arena_copy_text(&stage->mcp.arena, outcome->text ? outcome->text : "");
    told->result = "";
    if (outcome->end != MCP_ANSWERED)
        return;
    told->code = outcome->message->kind == RPC_ERROR ? outcome->message->code : 0;
    if (outcome->message->kind == RPC_RESULT) {
        buf_init(&text, 0);
        json_write(&text, outcome->message->result);
        told->result = arena_copy_str(&stage->mcp.arena, buf_str(&text));
        buf_release(&text);
    }
}

static struct mcp_pending *call(struct stage *stage, const char *arguments, int64_t timeout_ms)
{
    const char *params = mcp_tool_case_text(
        &stage->mcp.arena, arena_printf(&stage->mcp.arena, "{'name':'tool','arguments':%s}", arguments));
    struct mcp_request_options options = {
        .method = "tools/call", .params = str_of(params), .timeout_ms = timeout_ms, .done = on_told, .user = stage};
    stage->told = (struct told){0};
    return mcp_link_request(stage->link, &options);
}

static bool is_told(void *user)
{
    const struct stage *stage = user;
    return stage->told.count > 0;
}

static const struct told *ended(struct stage *stage)
{
    assert_true(mcp_case_wait(&stage->mcp, is_told, stage));
    assert_int_equal(stage->told.count, 1);
    return &stage->told;
}

static const struct told *called(struct stage *stage)
{
    call(stage, "{}", 9000);
    return ended(stage);
}

static const char *last_call_header(struct stage *stage, const char *name)
{
    unsigned times = mcp_web_times(&stage->web, "tools/call");
    assert_true(times > 0);
    return mcp_web_header(mcp_web_find(&stage->web, "tools/call", times - 1), name);
}

#define DONE      "{'content':[{'type':'text','text':'done'}]}"
#define DONE_TEXT "{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}"

/* ---- legacy ---- */

static bool plain_legacy(const struct mcp_web_request *request)
{
    bool done, keep = mcp_web_legacy(request, &done);
    if (!done)
        mcp_web_result(request, DONE);
    return keep;
}

static void a_legacy_session(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, plain_legacy, ",'headers':{'Authorization':'Bearer t'}}}");
    const struct told *told = called(&stage);
    assert_int_equal(told->end, MCP_ANSWERED);
    assert_int_equal(told->http_status, 200);
    assert_string_equal(told->result, DONE_TEXT);
    const struct mcp_web_request *first = mcp_web_find(&stage.web, "initialize", 0);
    assert_null(mcp_web_header(first, "Mcp-Session-Id"));
    assert_null(mcp_web_header(first, "MCP-Protocol-Version"));
    assert_null(mcp_web_header(first, "Mcp-Method"));
    assert_string_equal(last_call_header(&stage, "Mcp-Session-Id"), "session-1");
    assert_string_equal(last_call_header(&stage, "MCP-Protocol-Version"), "2025-11-25");
    assert_string_equal(last_call_header(&stage, "Content-Type"), "application/json");
    assert_string_equal(last_call_header(&stage, "Accept"), "application/json, text/event-stream");
    assert_string_equal(last_call_header(&stage, "Authorization"), "Bearer t");
    assert_null(last_call_header(&stage, "Mcp-Method"));
    assert_null(last_call_header(&stage, "Mcp-Param-Region"));
    assert_null(last_call_header(&stage, "Expect"));
    /* the handshake's steps in their order: nothing else before the server has heard that it is over */
    unsigned initialized = mcp_web_find(&stage.web, "notifications/initialized", 0)->number;
    assert_int_equal(mcp_web_find(&stage.web, "GET", 0)->number, initialized + 1);
    assert_true(mcp_web_find(&stage.web, "tools/list", 0)->number > initialized + 1);
    /* a connection is good for more than one request */
    unsigned connections = stage.web.connections;
    for (int i = 0; i < 20; i++)
        assert_int_equal(called(&stage)->end, MCP_ANSWERED);
    assert_int_equal(stage.web.connections, connections);
    mcp_link_close(stage.link);
    stage.link = NULL;
    mcp_case_end(&stage.mcp);
    assert_int_equal(mcp_web_times(&stage.web, "DELETE"), 1);
    assert_string_equal(mcp_web_header(mcp_web_find(&stage.web, "DELETE", 0), "Mcp-Session-Id"), "session-1");
    assert_int_equal(mcp_web_times(&stage.web, "GET"), 1); /* 405: not asked again */
    mcp_web_end(&stage.web);
}

static bool events_legacy(const struct mcp_web_request *request)
{
    bool done, keep;
    if (strcmp(request->rpc, "initialize") == 0) { /* many servers answer everything so */
        mcp_web_stream(request);
        mcp_web_event_result(request, NULL, "{'protocolVersion':'2025-06-18','capabilities':{'tools':{}}}");
        return false;
    }
    keep = mcp_web_legacy(request, &done);
    if (done)
        return keep;
    mcp_web_stream(request);
    mcp_web_event(request, NULL, NULL,
                  "{'jsonrpc':'2.0','method':'notifications/message','params':{'level':'info','data':'x'}}");
    mcp_web_event(request, NULL, NULL, "{'jsonrpc':'2.0','id':'q','method':'roots/list'}");
    for (int i = 0; i < 400 && !mcp_web_find(request->web, "POST", 0); i++)
        mcp_web_sleep(5);
    mcp_web_event_result(request, NULL, DONE);
    return false;
}

static void events_and_questions_come_on_the_calls_stream(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, events_legacy, ",'protocol':'2025-06-18'}}");
    mcp_link_close(stage.link);
    stage.heard.answer = "{\"roots\":[]}";
    stage.link = mcp_case_open(&stage.mcp, "w", &stage.heard,
                               &(struct mcp_link_options){.era = MCP_ERA_ANY, .capabilities = STR("{\"roots\":{}}")});
    const struct told *told = called(&stage);
    assert_int_equal(told->end, MCP_ANSWERED);
    assert_string_equal(told->result, DONE_TEXT);
    assert_int_equal(stage.heard.notified, 1);
    assert_int_equal(stage.heard.asked, 1);
    assert_ptr_equal(stage.heard.last_user, &stage);
    assert_string_equal(last_call_header(&stage, "Mcp-Session-Id"), "session-1");
    assert_string_equal(last_call_header(&stage, "MCP-Protocol-Version"), "2025-06-18");
    const struct mcp_web_request *answer = mcp_web_find(&stage.web, "POST", 0); /* the one without a method */
    assert_non_null(answer);
    assert_string_equal(answer->id, "\"q\"");
    assert_string_equal(mcp_web_header(answer, "Mcp-Session-Id"), "session-1");
    end(&stage);
}

/* The handshake of a server that takes nothing before it has heard that it is over. */
static bool slow_to_begin(const struct mcp_web_request *request)
{
    bool done, keep;
    if (strcmp(request->rpc, "notifications/initialized") == 0) {
        mcp_web_sleep(400);
        request->web->state = 1;
    } else if (strcmp(request->method, "GET") == 0) {
        /* no head before there is something to say */
        for (int i = 0; i < 1000 && request->web->state != 2; i++)
            mcp_web_sleep(10);
    } else if (strcmp(request->rpc, "tools/list") == 0 && request->web->state == 0) {
        mcp_web_error(request, 400, "{'code':-32602,'message':'not initialized'}");
        return true;
    }
    if (strcmp(request->rpc, "tools/list") == 0)
        request->web->state = 2;
    keep = mcp_web_legacy(request, &done);
    if (!done)
        mcp_web_result(request, DONE);
    return keep;
}

static void requests_wait_for_the_end_of_the_handshake(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, slow_to_begin, "}}");
    assert_int_equal(called(&stage)->end, MCP_ANSWERED);
    const struct mcp_web_request *first = mcp_web_find(&stage.web, "notifications/initialized", 0);
    const struct mcp_web_request *list = mcp_web_find(&stage.web, "tools/list", 0);
    assert_in_range(list->at_ms - first->at_ms, 400, 9000); /* a GET stream without a head does not hold up */
    end(&stage);
}

/* ---- streams that break ---- */

#define RETRY_MS 120

static bool breaks_with_id(const struct mcp_web_request *request)
{
    bool done, keep;
    if (strcmp(request->method, "GET") == 0 && mcp_web_header(request, "Last-Event-ID")) {
        mcp_web_stream(request);
        if (++request->web->state < 3) { /* once more nothing but a place */
            mcp_web_event(request, "place-2", NULL, "");
            return false;
        }
        mcp_web_event(request, "place-3", NULL, "{'jsonrpc':'2.0','method':'notifications/message'}");
        struct mcp_web_request of_call = *mcp_web_find(request->web, "tools/call", 0);
        of_call.fd = request->fd;
        mcp_web_event_result(&of_call, "place-4", DONE);
        return false;
    }
    keep = mcp_web_legacy(request, &done);
    if (done)
        return keep;
    mcp_web_stream(request);
    mcp_web_event(request, "place-1", "120", "");
    return false;
}

static void a_broken_stream_is_resumed_where_it_broke(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, breaks_with_id, "}}");
    const struct told *told = called(&stage);
    assert_int_equal(told->end, MCP_ANSWERED);
    assert_string_equal(told->result, DONE_TEXT);
    assert_int_equal(stage.heard.notified, 1);
    assert_int_equal(mcp_web_times(&stage.web, "tools/call"), 1); /* asked again for the answer, not for the effect */
    const struct mcp_web_request *post = mcp_web_find(&stage.web, "tools/call", 0);
    const struct mcp_web_request *get = mcp_web_find(&stage.web, "GET", 1), *next = mcp_web_find(&stage.web, "GET", 2);
    assert_string_equal(mcp_web_header(get, "Last-Event-ID"), "place-1");
    assert_string_equal(mcp_web_header(get, "Mcp-Session-Id"), "session-1");
    assert_string_equal(mcp_web_header(get, "MCP-Protocol-Version"), "2025-11-25");
    assert_string_equal(mcp_web_header(get, "Accept"), "text/event-stream");
    assert_true(get->at_ms - post->at_ms >= RETRY_MS); /* not earlier than the server wants */
    assert_string_equal(mcp_web_header(next, "Last-Event-ID"), "place-2");
    assert_true(next->at_ms - get->at_ms >= RETRY_MS);
    end(&stage);
}

static bool breaks_without_id(const struct mcp_web_request *request)
{
    bool done, keep = mcp_web_legacy(request, &done);
    if (done)
        return keep;
    mcp_web_stream(request);
    mcp_web_event(request, NULL, NULL, "{'jsonrpc':'2.0','method':'notifications/message','params':{}}");
    return false;
}

static void a_stream_without_a_place_is_lost(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, breaks_without_id, "}}");
    const struct told *told = called(&stage);
    assert_int_equal(told->end, MCP_LOST);
    assert_true(told->sent);
    assert_int_equal(told->http_status, 0);
    mcp_case_turn(&stage.mcp, 50);
    assert_int_equal(mcp_web_times(&stage.web, "tools/call"), 1);
    assert_int_equal(mcp_web_times(&stage.web, "GET"), 1);
    end(&stage);
}

static bool forgets_the_place(const struct mcp_web_request *request)
{
    bool done, keep;
    if (strcmp(request->method, "GET") == 0 && mcp_web_header(request, "Last-Event-ID")) {
        mcp_web_error(request, 400, "{'code':-32000,'message':'unknown event id'}");
        return true;
    }
    keep = mcp_web_legacy(request, &done);
    if (done)
        return keep;
    mcp_web_stream(request);
    mcp_web_event(request, "place-1", "10", "");
    return false;
}

/* The server's refusal is about the place, not about the call. */
static void a_place_that_is_gone_leaves_the_call_open(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, forgets_the_place, "}}");
    const struct told *told = called(&stage);
    assert_int_equal(told->end, MCP_LOST);
    assert_true(told->sent);
    assert_int_equal(told->http_status, 0);
    assert_int_equal(mcp_web_times(&stage.web, "tools/call"), 1);
    end(&stage);
}

static bool has_get_stream(const struct mcp_web_request *request)
{
    bool done, keep;
    if (strcmp(request->method, "GET") == 0) {
        unsigned times = ++request->web->state;
        mcp_web_stream(request);
        if (times == 1)
            mcp_web_event(request, "g1", "30", "{'jsonrpc':'2.0','method':'notifications/resources/list_changed'}");
        else
            mcp_web_closed(request->fd, 5000);
        return false;
    }
    keep = mcp_web_legacy(request, &done);
    if (!done)
        mcp_web_result(request, DONE);
    return keep;
}

static bool has_two_gets(void *user)
{
    struct stage *stage = user;
    return mcp_web_times(&stage->web, "GET") >= 2;
}

static void the_get_stream_is_kept(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, has_get_stream, "}}");
    assert_true(mcp_case_wait(&stage.mcp, has_two_gets, &stage));
    const struct mcp_web_request *get = mcp_web_find(&stage.web, "GET", 1);
    assert_string_equal(mcp_web_header(get, "Last-Event-ID"), "g1");
    assert_true(get->at_ms - mcp_web_find(&stage.web, "GET", 0)->at_ms >= 30);
    assert_int_equal(called(&stage)->end, MCP_ANSWERED);
    end(&stage);
}

/* ---- sessions that end (case S12) ---- */

static bool forgets_sessions(const struct mcp_web_request *request)
{
    bool done, keep;
    const char *session = mcp_web_header(request, "Mcp-Session-Id");
    if (strcmp(request->rpc, "initialize") == 0 && request->web->state > 0)
        snprintf(request->web->session, sizeof request->web->session, "session-2");
    if (request->web->state > 0 && session && strcmp(session, "session-1") == 0) {
        mcp_web_error(request, 404, "{'code':-32001,'message':'Session not found'}");
        return true;
    }
    keep = mcp_web_legacy(request, &done);
    if (!done)
        mcp_web_result(request, DONE);
    return keep;
}

static bool has_second_session(void *user)
{
    struct stage *stage = user;
    return mcp_web_times(&stage->web, "initialize") >= 2 &&
           mcp_server_info(mcp_case_server(&stage->mcp, "w")).state == MCP_SERVER_READY;
}

static void an_ended_session_is_not_a_second_call(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, forgets_sessions, "}}");
    stage.web.state = 1; /* the server has done its work and forgotten the session */
    const struct told *told = called(&stage);
    assert_int_equal(told->http_status, 404);
    assert_true(told->sent);
    assert_true(mcp_case_wait(&stage.mcp, has_second_session, &stage));
    assert_int_equal(mcp_web_times(&stage.web, "tools/call"), 1);
    assert_int_equal(stage.heard.lost, 1);
    assert_int_equal(mcp_web_times(&stage.web, "DELETE"), 0); /* it has gone already */
    mcp_link_close(stage.link);
    stage.link = mcp_case_open(&stage.mcp, "w", &stage.heard, NULL);
    assert_int_equal(called(&stage)->end, MCP_ANSWERED);
    assert_string_equal(last_call_header(&stage, "Mcp-Session-Id"), "session-2");
    end(&stage);
}

static bool bad_session(const struct mcp_web_request *request)
{
    bool done, keep;
    if (strcmp(request->rpc, "initialize") == 0) {
        mcp_web_answer(
            request, 200, "application/json", "Mcp-Session-Id: a b\r\n",
            "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}");
        return true;
    }
    keep = mcp_web_legacy(request, &done);
    return keep;
}

static void a_session_id_that_is_none(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage, bad_session, "}}");
    assert_true(mcp_case_wait_settled(&stage.mcp));
    struct mcp_server_info info = mcp_server_info(mcp_case_server(&stage.mcp, "w"));
    assert_int_equal(info.state, MCP_SERVER_DOWN);
    assert_non_null(strstr(info.error, "session id has characters that it may not have"));
    end(&stage);
}

/* ---- refusals ---- */

static const char *refusal_type, *refusal_more, *refusal_body;
static int refusal_status;

static bool refuses(const struct mcp_web_request *request)
{
    bool done, keep = mcp_web_legacy(request, &done);
    if (!done)
        mcp_web_answer(request, refusal_status, refusal_type, refusal_more, refusal_body);
    return keep;
}

static void a_refusal_keeps_its_status(void **state)
{
    static const struct {
        int status;
        const char *type, *more, *body;
        enum mcp_end end;
        int64_t code;
        const char *text;
    } cases[] = {
        {400, "application/json", "", "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32602,\"message\":\"m\"}}",
         MCP_ANSWERED, -32602, ""},
        {401, "application/json", "WWW-Authenticate: Bearer\r\n", "{\"error\":\"invalid_token\"}", MCP_LOST, 0,
         "onced does no OAuth"},
        {403, "text/html", "", "<p>no</p>", MCP_LOST, 0, "HTTP 403"},
        {307, NULL, "Location: /elsewhere\r\n", "", MCP_LOST, 0, "redirects are not followed"},
        {500, "application/json", "", "{\"error\":{\"message\":\"boom\"}}", MCP_LOST, 0, "HTTP 500: boom"},
        {503, NULL, "", "", MCP_LOST, 0, "HTTP 503"},
        {202, NULL, "", "", MCP_UNREADABLE, 0, "HTTP 202 without a message"},
        {200, "application/json", "", "", MCP_UNREADABLE, 0, "without a message"},
        {200, "application/json", "", "{\"jsonrpc\":\"2.0\",", MCP_UNREADABLE, 0, "cannot be read"},
        {200, "text/html", "", "<p>hello</p>", MCP_UNREADABLE, 0, "without a message"},
        {200, "application/json", "", "[]", MCP_UNREADABLE, 0, "cannot be read"},
    };
    struct stage stage;
    (void)state;
    begin_ready(&stage, refuses, "}}");
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        refusal_status = cases[i].status;
        refusal_type = cases[i].type;
        refusal_more = cases[i].more;
        refusal_body = cases[i].body;
        const struct told *told = called(&stage);
        assert_int_equal(told->end, cases[i].end);
        assert_int_equal(told->code, cases[i].code);
        assert_int_equal(told->http_status, cases[i].status);
        assert_true(told->sent);
        if (!strstr(told->text, cases[i].text))
            fail_msg("%d: %s", cases[i].status, told->text);
        assert_int_equal(mcp_web_times(&stage.web, "tools/call"), i + 1);
    }
    end(&stage);
}

static bool demands_authorisation(const struct mcp_web_request *request)
{
    mcp_web_answer(request, 401, "application/json", "", "{\"error\":\"invalid_token\"}");
    return true;
}

static void a_server_that_demands_authorisation_says_so(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage, demands_authorisation, "}}");
    assert_true(mcp_case_wait_settled(&stage.mcp));
    assert_non_null(strstr(mcp_server_info(mcp_case_server(&stage.mcp, "w")).error, "onced does no OAuth"));
    end(&stage);
}

/* ---- connections that fail ---- */

static bool closes_on_call(const struct mcp_web_request *request)
{
    bool done, keep = mcp_web_legacy(request, &done);
    if (done)
        return keep;
    if (request->web->state == 1) /* a first part of the answer */
        mcp_web_say(request->fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{");
    return false;
}

/* A reused connection that dies before the first answer byte is what HTTP libraries send again on (design 5.2). */
static void a_call_is_sent_once(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, closes_on_call, "}}");
    for (unsigned i = 0; i < 5; i++) {
        const struct told *told = called(&stage);
        assert_int_equal(told->end, MCP_LOST);
        assert_true(told->sent);
        assert_int_equal(told->http_status, 0);
        assert_int_equal(mcp_web_times(&stage.web, "tools/call"), i + 1);
    }
    stage.web.state = 1;
    assert_int_equal(called(&stage)->end, MCP_LOST);
    assert_int_equal(stage.told.http_status, 0); /* a status without its answer proves nothing */
    assert_int_equal(mcp_web_times(&stage.web, "tools/call"), 6);
    end(&stage);
}

static void nobody_listens(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, plain_legacy, "}}");
    mcp_web_end(&stage.web);
    const struct told *told = called(&stage);
    if (told->sent) /* over a connection whose end was not seen yet */
        told = called(&stage);
    assert_int_equal(told->end, MCP_LOST);
    assert_false(told->sent);
    mcp_link_close(stage.link);
    mcp_case_end(&stage.mcp);
}

static bool is_large(const struct mcp_web_request *request)
{
    static const char block[] = "0123456789012345678901234567890123456789012345678901234567890123";
    bool done, keep = mcp_web_legacy(request, &done);
    if (done)
        return keep;
    bool events = request->web->state == 1;
    mcp_web_say(request->fd, events ? "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
                                    : "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
    for (int i = 0; i < 256; i++)
        mcp_web_say(request->fd, block);
    mcp_web_closed(request->fd, 5000);
    return false;
}

static void an_answer_over_the_limit_is_unreadable(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, is_large, "},'answer_bytes_max':'4KB'}");
    assert_int_equal(called(&stage)->end, MCP_UNREADABLE);
    assert_true(stage.told.sent);
    stage.web.state = 1;
    assert_int_equal(called(&stage)->end, MCP_UNREADABLE);
    assert_int_equal(mcp_web_times(&stage.web, "tools/call"), 2);
    end(&stage);
}

/* ---- requests that nobody waits for ---- */

static bool never_answers(const struct mcp_web_request *request)
{
    bool done, keep = mcp_web_legacy(request, &done);
    if (done)
        return keep;
    mcp_web_stream(request);
    request->web->state = mcp_web_closed(request->fd, 5000) ? 2 : 1;
    return false;
}

static bool was_closed(void *user)
{
    const struct stage *stage = user;
    return stage->web.state != 0;
}

static bool is_called(void *user)
{
    struct stage *stage = user;
    return mcp_web_times(&stage->web, "tools/call") > 0;
}

static bool was_cancelled(void *user)
{
    struct stage *stage = user;
    return mcp_web_times(&stage->web, "notifications/cancelled") > 0;
}

static void legacy_cancels_by_a_message(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, never_answers, "}}");
    struct mcp_pending *pending = call(&stage, "{}", 9000);
    assert_true(mcp_case_wait(&stage.mcp, is_called, &stage));
    mcp_pending_cancel(pending, "enough");
    assert_int_equal(ended(&stage)->end, MCP_CANCELLED);
    assert_true(mcp_case_wait(&stage.mcp, was_cancelled, &stage));
    struct json *body = mcp_web_body(mcp_web_find(&stage.web, "notifications/cancelled", 0), &stage.mcp.arena);
    assert_true(
        str_is(json_get(json_get(body, "params"), "requestId")->text, mcp_web_find(&stage.web, "tools/call", 0)->id));
    end(&stage);
}

static bool plain_modern(const struct mcp_web_request *request)
{
    bool done, keep = mcp_web_modern(request, &done);
    if (!done)
        mcp_web_result(request, "{'resultType':'complete','content':[]}");
    return keep;
}

static bool modern_never_answers(const struct mcp_web_request *request)
{
    bool done, keep = mcp_web_modern(request, &done);
    if (done)
        return keep;
    mcp_web_stream(request);
    request->web->state = mcp_web_closed(request->fd, 5000) ? 2 : 1;
    return false;
}

static void modern_cancels_by_closing_the_stream(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, modern_never_answers, "}}");
    struct mcp_pending *pending = call(&stage, "{}", 9000);
    assert_true(mcp_case_wait(&stage.mcp, is_called, &stage));
    mcp_pending_cancel(pending, "enough");
    assert_int_equal(ended(&stage)->end, MCP_CANCELLED);
    assert_true(mcp_case_wait(&stage.mcp, was_closed, &stage));
    assert_int_equal(stage.web.state, 2);
    assert_int_equal(mcp_web_times(&stage.web, "notifications/cancelled"), 0);
    /* a time-out is one, too */
    stage.web.state = 0;
    call(&stage, "{}", 30);
    assert_int_equal(ended(&stage)->end, MCP_TIMED_OUT);
    assert_true(mcp_case_wait(&stage.mcp, was_closed, &stage));
    assert_int_equal(stage.web.state, 2);
    end(&stage);
}

static void a_stop_does_not_wait_for_answers(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, never_answers, "}}");
    call(&stage, "{}", 0);
    assert_true(mcp_case_wait(&stage.mcp, is_called, &stage));
    mcp_link_close(stage.link);
    stage.link = NULL;
    assert_int_equal(stage.told.count, 1);
    assert_int_equal(stage.told.end, MCP_LOST);
    end(&stage);
}

/* ---- modern ---- */

static void modern_requests_have_their_headers(void **state)
{
    struct stage stage;
    (void)state;
    begin_ready(&stage, plain_modern, "}}");
    call(&stage, "{'region':'us west 1','deep':{'n':42.0}}", 9000);
    assert_int_equal(ended(&stage)->end, MCP_ANSWERED);
    assert_string_equal(last_call_header(&stage, "MCP-Protocol-Version"), "2026-07-28");
    assert_string_equal(last_call_header(&stage, "Mcp-Method"), "tools/call");
    assert_string_equal(last_call_header(&stage, "Mcp-Name"), "tool");
    assert_string_equal(last_call_header(&stage, "Mcp-Param-Region"), "us west 1");
    assert_string_equal(last_call_header(&stage, "Mcp-Param-N"), "42");
    assert_null(last_call_header(&stage, "Mcp-Session-Id")); /* the server's is ignored */
    call(&stage, "{'region':null,'deep':{}}", 9000);
    assert_int_equal(ended(&stage)->end, MCP_ANSWERED);
    assert_null(last_call_header(&stage, "Mcp-Param-Region"));
    assert_null(last_call_header(&stage, "Mcp-Param-N"));
    const struct mcp_web_request *list = mcp_web_find(&stage.web, "tools/list", 0);
    assert_string_equal(mcp_web_header(list, "Mcp-Method"), "tools/list");
    assert_null(mcp_web_header(list, "Mcp-Name"));
    /* a tool whose headers cannot be made is left out */
    const struct mcp_server *server = mcp_case_server(&stage.mcp, "w");
    assert_non_null(mcp_server_tool(server, STR("tool")));
    assert_null(mcp_server_tool(server, STR("broken")));
    mcp_link_close(stage.link);
    stage.link = NULL;
    mcp_case_end(&stage.mcp);
    assert_int_equal(mcp_web_times(&stage.web, "GET") + mcp_web_times(&stage.web, "DELETE"), 0);
    mcp_web_end(&stage.web);
}

/* ---- headers, pure ---- */

struct seen {
    struct arena arena;
    const char *text; /* "Name: value\n" of each */
};

static void see(void *user, const char *name, struct str value)
{
    struct seen *seen = user;
    seen->text = arena_printf(&seen->arena, "%s%s: %.*s\n", seen->text, name, STR_ARG(value));
}

static void headers_are(const char *method, const char *params, const char *tool, const char *wanted)
{
    struct seen seen = {.text = ""};
    arena_init(&seen.arena);
    mcp_request_headers(method, params ? mcp_tool_case_json(&seen.arena, params) : NULL,
                        tool ? mcp_tool_case_json(&seen.arena, tool) : NULL, see, &seen);
    assert_string_equal(seen.text, wanted);
    arena_release(&seen.arena);
}

#define PARAM(type) "{'inputSchema':{'properties':{'a':{'type':'" type "','x-mcp-header':'A'}}}}"
#define VALUE(value, header)                                                                                           \
    headers_are("tools/call", "{'name':'t','arguments':{'a':" value "}}", PARAM("string"),                             \
                "Mcp-Method: tools/call\nMcp-Name: t\nMcp-Param-A: " header "\n")

static void values_are_encoded_where_headers_need_it(void **state)
{
    (void)state;
    headers_are("tools/list", NULL, NULL, "Mcp-Method: tools/list\n");
    headers_are("resources/read", "{'uri':'file:///path/to/file%20name.txt'}", NULL,
                "Mcp-Method: resources/read\nMcp-Name: file:///path/to/file%20name.txt\n");
    headers_are("prompts/get", "{'name':'caf\xc3\xa9'}", NULL,
                "Mcp-Method: prompts/get\nMcp-Name: =?base64?Y2Fmw6k=?=\n");
    headers_are("tasks/get", "{'taskId':'t1'}", NULL, "Mcp-Method: tasks/get\nMcp-Name: t1\n");
    VALUE("'plain text'", "plain text");
    VALUE("'Hello, \xe4\xb8\x96\xe7\x95\x8c'", "=?base64?SGVsbG8sIOS4lueVjA==?=");
    VALUE("' padded '", "=?base64?IHBhZGRlZCA=?=");
    VALUE("'=?base64?literal?='", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=");
    VALUE("''", "=?base64?"
                "?=");
    VALUE("'a\\u000d\\u000ab'", "=?base64?YQ0KYg==?=");
    VALUE("'a\\u0000b'", "=?base64?YQBi?=");
    VALUE("true", "true");
    VALUE("9007199254740993", "9007199254740993");
    headers_are("tools/call", "{'name':'t','arguments':{'a':null}}", PARAM("string"),
                "Mcp-Method: tools/call\nMcp-Name: t\n");
    headers_are("tools/call", "{'name':'t'}", PARAM("string"), "Mcp-Method: tools/call\nMcp-Name: t\n");
    headers_are("tools/call", "{'name':'t','arguments':{'a':['x']}}", PARAM("string"),
                "Mcp-Method: tools/call\nMcp-Name: t\n");
    /* longer than one chunk of the encoder */
    headers_are("prompts/get", "{'name':'\xc3\xa9 123456789 123456789 123456789 123456789 123456789 '}", NULL,
                "Mcp-Method: prompts/get\nMcp-Name: "
                "=?base64?w6kgMTIzNDU2Nzg5IDEyMzQ1Njc4OSAxMjM0NTY3ODkgMTIzNDU2Nzg5IDEyMzQ1Njc4OSA=?=\n");
}

static bool tool_holds(const char *schema)
{
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    struct json *tool = mcp_tool_case_json(&arena, arena_printf(&arena, "{'name':'t','inputSchema':%s}", schema));
    bool good = mcp_tool_headers_check(tool, &err) == ERR_NONE;
    assert_true(good || err.text[0]);
    arena_release(&arena);
    return good;
}

static void tools_whose_headers_cannot_be_made(void **state)
{
    static const char *const bad[] = {
        "{'properties':{'a':{'type':'string','x-mcp-header':''}}}",
        "{'properties':{'a':{'type':'string','x-mcp-header':{}}}}",
        "{'properties':{'a':{'type':'string','x-mcp-header':null}}}",
        "{'properties':{'a':{'type':'number','x-mcp-header':'A'}}}",
        "{'properties':{'a':{'x-mcp-header':'A'}}}",
        "{'properties':{'a':{'type':['string','null'],'x-mcp-header':'A'}}}",
        "{'properties':{'a':{'type':'string','x-mcp-header':'A'},'b':{'type':'string','x-mcp-header':'a'}}}",
        "{'properties':{'a':{'type':'string','x-mcp-header':'A B'}}}",
        "{'properties':{'a':{'type':'string','x-mcp-header':'A:'}}}",
        "{'properties':{'a':{'type':'string','x-mcp-header':'R\xc3\xa9gion'}}}",
        "{'properties':{'a':{'type':'string','x-mcp-header':'A\\u0009'}}}",
        "{'type':'string','x-mcp-header':'A'}",
        "{'properties':{'a':{'type':'array','items':{'type':'string','x-mcp-header':'A'}}}}",
        "{'oneOf':[{'properties':{'a':{'type':'string','x-mcp-header':'A'}}}]}",
        "{'$defs':{'d':{'type':'string','x-mcp-header':'A'}}}",
        "{'additionalProperties':{'type':'string','x-mcp-header':'A'}}",
        "{'properties':{'o':{'type':'object','if':{'properties':{'a':{'type':'string','x-mcp-header':'A'}}}}}}",
    };
    static const char *const good[] = {
        "{}",
        "{'properties':{'a':{'type':'string','x-mcp-header':'A'},'b':{'type':'integer','x-mcp-header':'B'}}}",
        "{'properties':{'o':{'type':'object','properties':{'a':{'type':'boolean','x-mcp-header':'A'}}}}}",
        "{'properties':{'x-mcp-header':{'type':'number'}}}",
        "{'properties':{'a':{'type':'object','default':{'x-mcp-header':7}}}}",
        "true",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (tool_holds(bad[i]))
            fail_msg("taken: %s", bad[i]);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!tool_holds(good[i]))
            fail_msg("refused: %s", good[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_legacy_session),
        cmocka_unit_test(events_and_questions_come_on_the_calls_stream),
        cmocka_unit_test(requests_wait_for_the_end_of_the_handshake),
        cmocka_unit_test(a_broken_stream_is_resumed_where_it_broke),
        cmocka_unit_test(a_stream_without_a_place_is_lost),
        cmocka_unit_test(a_place_that_is_gone_leaves_the_call_open),
        cmocka_unit_test(the_get_stream_is_kept),
        cmocka_unit_test(an_ended_session_is_not_a_second_call),
        cmocka_unit_test(a_session_id_that_is_none),
        cmocka_unit_test(a_refusal_keeps_its_status),
        cmocka_unit_test(a_server_that_demands_authorisation_says_so),
        cmocka_unit_test(a_call_is_sent_once),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(an_answer_over_the_limit_is_unreadable),
        cmocka_unit_test(legacy_cancels_by_a_message),
        cmocka_unit_test(modern_cancels_by_closing_the_stream),
        cmocka_unit_test(a_stop_does_not_wait_for_answers),
        cmocka_unit_test(modern_requests_have_their_headers),
        cmocka_unit_test(values_are_encoded_where_headers_need_it),
        cmocka_unit_test(tools_whose_headers_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
