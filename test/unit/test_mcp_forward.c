/* Pass-through: what servers behind onced offer reaches clients unharmed, in both eras and across them. The door is the
 * real one, below it links are played (support/fake_link.h). */
#include "door/mcp_forward.h"
#include "support/fake_engine.h"
#include "support/fake_link.h"
#include "support/test.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define CAN_ALL "{\"roots\":{\"listChanged\":true},\"sampling\":{},\"elicitation\":{\"form\":{},\"url\":{}}}"
#define OFFERS                                                                                                         \
    "{\"resources\":{\"subscribe\":true,\"listChanged\":true},\"prompts\":{\"listChanged\":true},\"completions\":{},"  \
    "\"logging\":{},\"tools\":{}}"

/* ---- a client's end ---- */

#define HEARD_MAX 32

struct client {
    struct mcp_sink sink; /* first */
    char *told[HEARD_MAX];
    size_t told_count;
    char *final;
    int finals, drops, status;
};

static void hear(struct mcp_sink *sink, struct str message, bool final, int status)
{
    struct client *client = (struct client *)sink;
    char *copy = mem_copy_bytes(message.p, message.n);
    if (final) {
        assert_int_equal(client->finals++, 0);
        client->final = copy;
        client->status = status;
    } else {
        if (client->told_count == HEARD_MAX) /* the last one stands for those that are too many */
            free(client->told[--client->told_count]);
        client->told[client->told_count++] = copy;
    }
}

static void hear_drop(struct mcp_sink *sink)
{
    ((struct client *)sink)->drops++;
}

static const struct mcp_sink_ops client_ops = {.message = hear, .drop = hear_drop};

/* ---- the stage ---- */

#define CLIENTS_MAX 512

struct stage {
    uv_loop_t loop;
    struct engine engine;
    struct registry *registry;
    struct mcp_settings settings;
    struct mcp_hub hub;
    struct mcp_server *one, *two; /* "a", legacy; "b", modern; not there until made */
    struct mcp_door *door;
    struct mcp_session *session; /* legacy, can everything */
    struct client *clients[CLIENTS_MAX];
    size_t client_count;
    char *sent[HEARD_MAX]; /* on the session's own stream */
    size_t sent_count;
    struct arena arena;
};

static const struct provider provider_a = {.name = "a", .kind = PROVIDER_MCP, .timeout_ms = 12345};
static const struct tool tool_read = {
    .name = "read", .class = CLASS_READ, .provider = &provider_a, .forwarded = true, .adapter_tool = "remote_read"};
static const struct tool tool_pay = {.name = "pay",
                                     .class = CLASS_EXTERNAL_WEAK,
                                     .provider = &provider_a,
                                     .adapter_tool = "remote_pay",
                                     .wait_ms = 1000};

static bool hear_session(struct mcp_session *session, void *user, struct str message)
{
    struct stage *stage = user;
    (void)session;
    if (stage->sent_count == HEARD_MAX)
        free(stage->sent[--stage->sent_count]);
    stage->sent[stage->sent_count++] = mem_copy_bytes(message.p, message.n);
    return true;
}

static struct client *client_new(struct stage *stage)
{
    struct client *client = mem_zero(sizeof *client);
    client->sink.ops = &client_ops;
    assert_true(stage->client_count < CLIENTS_MAX);
    stage->clients[stage->client_count++] = client;
    return client;
}

static struct client *say(struct stage *stage, struct mcp_session *session, const char *text)
{
    struct client *client = client_new(stage);
    assert_int_equal(mcp_receive(session, &client->sink, str_of(text), NULL), MCP_RECEIVED_REQUEST);
    return client;
}

/* Texts in ' for ". */
static const char *quoted(struct stage *stage, const char *text)
{
    char *copy = arena_copy_text(&stage->arena, text);
    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    return copy;
}

static struct client *ask(struct stage *stage, int id, const char *method, const char *params)
{
    return say(stage, stage->session,
               arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":%s}", id,
                            method, quoted(stage, params)));
}

/* A modern request, in a session of its own that the test does not end. members: of params, with a comma behind. */
static struct client *ask_modern_as(struct stage *stage, const char *principal, const char *can, int id,
                                    const char *method, const char *members)
{
    struct mcp_session *session = mcp_session_new(stage->door, "default", principal, ROLE_AGENT);
    session->ephemeral = true;
    return say(stage, session,
               arena_printf(&stage->arena,
                            "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{%s\"_meta\":{"
                            "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
                            "\"io.modelcontextprotocol/clientCapabilities\":%s}}}",
                            id, method, quoted(stage, members), quoted(stage, can)));
}

static struct client *ask_modern(struct stage *stage, int id, const char *method, const char *members)
{
    return ask_modern_as(stage, "agent", CAN_ALL, id, method, members);
}

static void turn(struct stage *stage)
{
    uv_run(&stage->loop, UV_RUN_NOWAIT);
    uv_run(&stage->loop, UV_RUN_NOWAIT);
}

static struct mcp_session *legacy_session(struct stage *stage, const char *can)
{
    struct mcp_session *session = mcp_session_new(stage->door, "default", "agent", ROLE_AGENT);
    mcp_session_set_sender(session, hear_session, stage);
    struct client *client = say(stage, session,
                                arena_printf(&stage->arena,
                                             "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
                                             "\"protocolVersion\":\"2025-11-25\",\"capabilities\":%s,"
                                             "\"clientInfo\":{\"name\":\"test\",\"version\":\"1\"}}}",
                                             quoted(stage, can)));
    assert_int_equal(client->finals, 1);
    return session;
}

static int set_up(void **state)
{
    struct stage *stage = mem_zero(sizeof *stage);
    const struct tool *tools[] = {&tool_pay, &tool_read};
    const struct provider *providers[] = {&provider_a};
    arena_init(&stage->arena);
    assert_int_equal(uv_loop_init(&stage->loop), 0);
    assert_int_equal(registry_new(tools, 2, providers, 1, "abc", NULL, NULL, &stage->registry, NULL), 0);
    fake_engine_init(&stage->engine, stage->registry);
    fake_hub_init(&stage->hub);
    stage->one = fake_server(&stage->hub, "a", MCP_ERA_LEGACY, OFFERS);
    stage->settings = mcp_settings_default;
    stage->door = mcp_door_new(&(struct mcp_door_options){
        .loop = &stage->loop, .engine = &stage->engine, .hub = &stage->hub, .settings = &stage->settings});
    stage->session = legacy_session(stage, CAN_ALL);
    *state = stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    mcp_door_free(stage->door);
    uv_run(&stage->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&stage->loop), 0);
    for (size_t i = 0; i < stage->client_count; i++) {
        struct client *client = stage->clients[i];
        assert_int_equal(client->finals + client->drops, 1); /* nobody is left without an end */
        for (size_t j = 0; j < client->told_count; j++)
            free(client->told[j]);
        free(client->final);
        free(client);
    }
    for (size_t i = 0; i < stage->sent_count; i++)
        free(stage->sent[i]);
    fake_engine_release(&stage->engine);
    fake_hub_release(&stage->hub);
    registry_unref(stage->registry);
    arena_release(&stage->arena);
    free(stage);
    return 0;
}

/* ---- looking ---- */

static const struct json *parse(struct stage *stage, const char *text)
{
    struct json *tree;
    struct err err = {0};
    assert_non_null(text);
    if (json_parse(&stage->arena, str_of(text), NULL, &tree, &err) != ERR_NONE)
        fail_msg("%s in %s", err.text, text);
    return tree;
}

static void same_value(struct stage *stage, const struct json *have, const char *want)
{
    const struct json *wanted = parse(stage, quoted(stage, want));
    if (have && json_equal(have, wanted))
        return;
    struct buf text;
    buf_init(&text, 0);
    if (have)
        json_write(&text, have);
    fail_msg("got %s, expected %s", buf_str(&text).p, want);
}

static const char *text_at(struct stage *stage, const struct json *object, const char *name)
{
    return arena_copy_str(&stage->arena, json_get_text(object, name));
}

static void same(struct stage *stage, const char *have, const char *want)
{
    same_value(stage, parse(stage, have), want);
}

static void is_result(struct stage *stage, const struct client *client, const char *want)
{
    assert_int_equal(client->finals, 1);
    same_value(stage, json_get(parse(stage, client->final), "result"), want);
}

static void is_error(struct stage *stage, const struct client *client, int64_t code, const char *words, int status)
{
    assert_int_equal(client->finals, 1);
    const struct json *error = json_get(parse(stage, client->final), "error");
    if (!error || json_get_int(error, "code", 0) != code)
        fail_msg("got %s, expected error %d", client->final, (int)code);
    if (!strstr(client->final, words))
        fail_msg("got %s, expected \"%s\"", client->final, words);
    assert_int_equal(client->status, status);
}

static void is_notice(struct stage *stage, const char *text, const char *method, const char *params)
{
    const struct json *tree = parse(stage, text);
    assert_string_equal(text_at(stage, tree, "method"), method);
    same_value(stage, json_get(tree, "params"), params);
}

/* The request that the server was sent, which is there. */
static struct mcp_pending *sent(struct mcp_server *server, const char *method)
{
    struct mcp_pending *pending = fake_find(server, method);
    if (!pending)
        fail_msg("server %s was sent no %s", server->name, method);
    return pending;
}

static struct mcp_server *add_modern(struct stage *stage)
{
    stage->two = fake_server(&stage->hub, "b", MCP_ERA_MODERN, OFFERS);
    return stage->two;
}

/* ---- one server ---- */

static void test_tool_verbatim(void **state)
{
    struct stage *stage = *state;
    struct client *client = ask(stage, 1, "tools/call",
                                "{'name':'read','arguments':{'n':1.50},'extra':[1],'_meta':{'progressToken':7,'x':1}}");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    same(stage, pending->params,
         "{'name':'remote_read','arguments':{'n':1.50},'extra':[1],'_meta':{'progressToken':7,'x':1}}");
    assert_non_null(strstr(pending->params, "1.50")); /* as it was written */
    fake_notify(pending->link, pending, "notifications/progress",
                "{\"progressToken\":7,\"progress\":1,\"total\":3,\"message\":\"m\",\"more\":true}");
    fake_result(pending,
                "{\"content\":[{\"type\":\"text\",\"text\":\"\\u00e4\"}],\"isError\":true,\"own\":{\"n\":1e3}}");
    is_result(stage, client, "{'content':[{'type':'text','text':'ä'}],'isError':true,'own':{'n':1e3}}");
    assert_int_equal(client->told_count, 1);
    is_notice(stage, client->told[0], "notifications/progress",
              "{'progressToken':7,'progress':1,'total':3,'message':'m','more':true}");
    /* the client told the server who it is */
    same(stage, stage->one->links->client_info, "{'name':'test','version':'1'}");
    same(stage, stage->one->links->capabilities, CAN_ALL);
    assert_string_equal(stage->one->links->version, "2025-11-25");
    assert_int_equal(stage->one->links->session, stage->session->number);
    /* and the next request goes the same way */
    client = ask(stage, 2, "tools/call", "{'name':'read'}");
    assert_int_equal(stage->one->opened, 1);
    same(stage, sent(stage->one, "tools/call")->params, "{'name':'remote_read'}");
    char words[2000];
    memset(words, 'w', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    fake_error(sent(stage->one, "tools/call"), -32099, words, "{\"a\":[1]}");
    is_error(stage, client, -32099, words, 200);
    same_value(stage, json_get(json_get(parse(stage, client->final), "error"), "data"), "{'a':[1]}");
}

static void test_tool_lost(void **state)
{
    struct stage *stage = *state;
    struct client *client = ask(stage, 1, "tools/call", "{'name':'read'}");
    fake_end(sent(stage->one, "tools/call"), MCP_LOST, "exit 1");
    assert_non_null(strstr(client->final, "\"isError\":true"));
    assert_non_null(strstr(client->final, "exit 1"));
    client = ask(stage, 2, "resources/read", "{'uri':'x:1'}");
    fake_end(sent(stage->one, "resources/read"), MCP_TIMED_OUT, NULL);
    is_error(stage, client, -32603, "did not answer in time", 200);
    stage->one->state = MCP_SERVER_DOWN;
    client = ask(stage, 3, "resources/read", "{'uri':'x:1'}");
    is_error(stage, client, -32603, "is down: it died", 200);
}

/* Modern client, legacy server: what its era demands is added; a connection per principal and capabilities. */
static void test_modern_client(void **state)
{
    struct stage *stage = *state;
    struct client *client = ask_modern(stage, 1, "tools/call", "'name':'read','arguments':{},'task':{'ttl':1},");
    same(stage, stage->one->links->capabilities, CAN_ALL);
    assert_null(strstr(sent(stage->one, "tools/call")->params, "task"));
    fake_result(sent(stage->one, "tools/call"), "{\"content\":[]}");
    is_result(stage, client, "{'resultType':'complete','content':[]}");
    client = ask_modern(stage, 2, "resources/read", "'uri':'x:1',");
    assert_int_equal(stage->one->opened, 1);
    fake_result(sent(stage->one, "resources/read"), "{\"contents\":[]}");
    is_result(stage, client, "{'resultType':'complete','contents':[],'ttlMs':0,'cacheScope':'private'}");
    client = ask_modern_as(stage, "other", CAN_ALL, 3, "resources/read", "'uri':'x:1',");
    assert_int_equal(stage->one->opened, 2);
    fake_error(sent(stage->one, "resources/read"), -32002, "Resource not found", NULL);
    is_error(stage, client, -32602, "Resource not found", 200);
    same_value(stage, json_get(json_get(parse(stage, client->final), "error"), "data"), "{'uri':'x:1'}");
    client = ask_modern_as(stage, "other", "{}", 4, "prompts/get", "'name':'p',");
    assert_int_equal(stage->one->opened, 3);
    fake_result(sent(stage->one, "prompts/get"), "{\"messages\":[]}");
    is_result(stage, client, "{'resultType':'complete','messages':[]}");
}

/* Modern on both sides: verbatim; one connection for all; errors with their status. */
static void test_modern_both(void **state)
{
    struct stage *stage = *state;
    stage->one->era = MCP_ERA_MODERN;
    struct client *client = ask_modern(
        stage, 1, "tools/call", "'name':'read','inputResponses':{'k':{'action':'accept'}},'requestState':'theirs',");
    const struct json *params = parse(stage, sent(stage->one, "tools/call")->params);
    same_value(stage, json_get(params, "requestState"), "'theirs'");
    same_value(stage, json_get(params, "inputResponses"), "{'k':{'action':'accept'}}");
    same_value(stage, json_get(json_get(params, "_meta"), MCP_META_CAPABILITIES), CAN_ALL);
    fake_result(
        sent(stage->one, "tools/call"),
        "{\"resultType\":\"input_required\",\"inputRequests\":{\"k\":{\"method\":\"roots/list\",\"params\":{}}},"
        "\"requestState\":\"{\\\"q\\\":1}\"}");
    is_result(stage, client,
              "{'resultType':'input_required','inputRequests':{'k':{'method':'roots/list','params':{}}},"
              "'requestState':'{\\'q\\':1}'}");
    client = ask_modern_as(stage, "other", "{}", 2, "tools/call", "'name':'read',");
    assert_int_equal(stage->one->opened, 1);
    fake_error(sent(stage->one, "tools/call"), -32021, "needs sampling",
               "{\"requiredCapabilities\":{\"sampling\":{}}}");
    is_error(stage, client, -32021, "needs sampling", 400);
    same_value(stage, json_get(json_get(parse(stage, client->final), "error"), "data"),
               "{'requiredCapabilities':{'sampling':{}}}");
    client = ask_modern(stage, 3, "resources/read", "'uri':'x:1',");
    fake_result(sent(stage->one, "resources/read"),
                "{\"resultType\":\"complete\",\"contents\":[],\"ttlMs\":5,\"cacheScope\":\"public\"}");
    is_result(stage, client, "{'resultType':'complete','contents':[],'ttlMs':5,'cacheScope':'public'}");
}

/* Legacy client, modern server: nothing that its revision does not know. */
static void test_legacy_client_modern_server(void **state)
{
    struct stage *stage = *state;
    stage->one->era = MCP_ERA_MODERN;
    struct client *client = ask(stage, 1, "tools/call", "{'name':'read'}");
    same(stage, sent(stage->one, "tools/call")->params, "{'name':'remote_read'}");
    fake_result(sent(stage->one, "tools/call"),
                "{\"resultType\":\"complete\",\"content\":[],\"structuredContent\":[1],\"_meta\":{\"a\":1}}");
    is_result(stage, client, "{'content':[],'_meta':{'a':1}}");
    client = ask(stage, 2, "resources/read", "{'uri':'x:1'}");
    fake_error(sent(stage->one, "resources/read"), -32602, "no such", "{\"uri\":\"x:1\"}");
    is_error(stage, client, -32002, "no such", 200);
    ask(stage, 3, "logging/setLevel", "{'level':'info'}");
    assert_null(fake_find(stage->one, "logging/setLevel"));
    client = ask(stage, 4, "tools/call", "{'name':'read'}");
    same(stage, sent(stage->one, "tools/call")->params,
         "{'name':'remote_read','_meta':{'io.modelcontextprotocol/logLevel':'info'}}");
    fake_notify(stage->one->links, sent(stage->one, "tools/call"), "notifications/message",
                "{\"level\":\"debug\",\"data\":1}");
    fake_notify(stage->one->links, sent(stage->one, "tools/call"), "notifications/message",
                "{\"level\":\"info\",\"logger\":\"l\",\"data\":{\"a\":1}}");
    fake_result(sent(stage->one, "tools/call"), "{\"resultType\":\"complete\",\"content\":[]}");
    assert_int_equal(client->told_count, 1);
    is_notice(stage, client->told[0], "notifications/message", "{'level':'info','logger':'l','data':{'a':1}}");
}

static void test_cancel(void **state)
{
    struct stage *stage = *state;
    struct client *client = ask(stage, 1, "tools/call", "{'name':'read'}");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    const char *cancel =
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1,\"reason\":\"no\"}}";
    assert_int_equal(mcp_receive(stage->session, NULL, str_of(cancel), NULL), MCP_RECEIVED_NOTICE);
    assert_int_equal(client->drops, 1);
    assert_true(pending->cancelled);
    fake_end(pending, MCP_CANCELLED, NULL); /* reaches nobody */
    client = ask_modern(stage, 2, "tools/call", "'name':'read',");
    pending = sent(stage->one, "tools/call");
    mcp_request_gone(&client->sink, true);
    assert_true(pending->cancelled);
    client->drops = 1; /* the transport's own end */
}

/* ---- questions of servers ---- */

static void reply_to(struct stage *stage, struct mcp_session *session, const char *request, const char *rest)
{
    const struct json *id = json_get(parse(stage, request), "id");
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, id);
    const char *answer =
        arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%s,%s}", buf_str(&text).p, quoted(stage, rest));
    buf_release(&text);
    assert_int_equal(mcp_receive(session, NULL, str_of(answer), NULL), MCP_RECEIVED_NOTICE);
}

static void test_ask_legacy(void **state)
{
    struct stage *stage = *state;
    struct client *client = ask(stage, 1, "tools/call", "{'name':'read'}");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    struct mcp_question question;
    fake_ask(pending->link, pending, &question, "sampling/createMessage",
             "{\"messages\":[],\"maxTokens\":5,\"_meta\":{\"progressToken\":1,\"y\":2}}");
    assert_int_equal(client->told_count, 1); /* on the stream of the request */
    const struct json *asked = parse(stage, client->told[0]);
    assert_string_equal(text_at(stage, asked, "method"), "sampling/createMessage");
    const struct json *params = json_get(asked, "params");
    const char *token = text_at(stage, json_get(params, "_meta"), "progressToken");
    assert_non_null(token); /* ours */
    const char *progress =
        arena_printf(&stage->arena,
                     "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"%s\","
                     "\"progress\":3}}",
                     token);
    mcp_receive(stage->session, NULL, str_of(progress), NULL);
    assert_string_equal(stage->hub.last_notice, "notifications/progress");
    same(stage, stage->hub.last_notice_params, "{'progressToken':1,'progress':3}");
    reply_to(stage, stage->session, client->told[0], "'result':{'role':'assistant','n':1.0}");
    assert_string_equal(question.result, "{\"role\":\"assistant\",\"n\":1.0}");
    fake_question_release(&question);
    fake_ask(pending->link, pending, &question, "roots/list", NULL);
    reply_to(stage, stage->session, client->told[1], "'error':{'code':-1,'message':'User rejected'}");
    assert_null(question.result);
    assert_int_equal(question.code, -1);
    assert_string_equal(question.message, "User rejected");
    fake_question_release(&question);
    /* without a relation: the request that is there */
    fake_ask(pending->link, NULL, &question, "elicitation/create", "{\"message\":\"m\"}");
    assert_int_equal(client->told_count, 3);
    fake_withdraw(pending->link, &question);
    assert_int_equal(client->told_count, 4); /* the client is told */
    assert_int_equal(question.answers, 0);
    /* an answer that ends the request ends its questions */
    fake_ask(pending->link, pending, &question, "elicitation/create", "{\"message\":\"m\"}");
    fake_result(pending, "{\"content\":[]}");
    assert_string_equal(question.result, "{\"action\":\"cancel\"}");
    fake_question_release(&question);
}

static void test_ask_refused(void **state)
{
    struct stage *stage = *state;
    struct mcp_session *session = legacy_session(stage, "{'elicitation':{}}");
    say(stage, session, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"read\"}}");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    static const struct {
        const char *method, *params;
        int64_t code;
    } cases[] = {
        {"sampling/createMessage", "{}", -32601},
        {"roots/list", "{}", -32601},
        {"elicitation/create", "{\"mode\":\"url\",\"url\":\"x\"}", -32602},
        {"own/method", "{}", -32601},
        {"tasks/get", "{}", -32601},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mcp_question question;
        fake_ask(pending->link, pending, &question, cases[i].method, cases[i].params);
        assert_int_equal(question.answers, 1);
        assert_null(question.result);
        assert_int_equal(question.code, cases[i].code);
        fake_question_release(&question);
    }
    struct mcp_question question; /* the client goes */
    fake_ask(pending->link, pending, &question, "elicitation/create", "{}");
    assert_int_equal(question.answers, 0);
    mcp_session_end(session);
    assert_string_equal(question.result, "{\"action\":\"cancel\"}");
    fake_question_release(&question);
    turn(stage);
    assert_int_equal(stage->one->link_count, 0);
}

static const char *state_of(struct stage *stage, const struct client *client)
{
    const struct json *result = json_get(parse(stage, client->final), "result");
    assert_string_equal(text_at(stage, result, "resultType"), "input_required");
    return text_at(stage, result, "requestState");
}

static struct client *round_two(struct stage *stage, const char *principal, int id, const char *tool, const char *state,
                                const char *responses)
{
    return ask_modern_as(
        stage, principal, CAN_ALL, id, "tools/call",
        arena_printf(&stage->arena, "'name':'%s','inputResponses':%s,'requestState':'%s',", tool, responses, state));
}

/* Modern client, legacy server: input_required, and the next round takes the place of the first. */
static void test_suspend(void **state)
{
    struct stage *stage = *state;
    struct mcp_question first, second, third;
    struct client *client = ask_modern(stage, 1, "tools/call", "'name':'read',");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    fake_ask(pending->link, pending, &first, "elicitation/create",
             "{\"mode\":\"url\",\"url\":\"u\",\"message\":\"m\",\"elicitationId\":\"e\",\"_meta\":{\"a\":1}}");
    fake_ask(pending->link, pending, &second, "sampling/createMessage", "{\"maxTokens\":1}");
    assert_int_equal(client->finals, 0);
    turn(stage);
    const struct json *result = json_get(parse(stage, client->final), "result");
    same_value(stage, json_get(result, "inputRequests"),
               "{'q1':{'method':'elicitation/create','params':{'mode':'url','url':'u','message':'m'}},"
               "'q2':{'method':'sampling/createMessage','params':{'maxTokens':1}}}");
    const char *name = state_of(stage, client);
    fake_ask(pending->link, pending, &third, "roots/list", NULL); /* comes with the next round */
    /* not by others, not for another call, not with a changed state */
    struct client *other = round_two(stage, "other", 2, "read", name, "{'q1':{'action':'accept'}}");
    is_error(stage, other, -32602, "requestState", 200);
    other = ask_modern(stage, 3, "tools/call",
                       arena_printf(&stage->arena, "'name':'read','arguments':{'x':1},'requestState':'%s',", name));
    is_error(stage, other, -32602, "requestState", 200);
    other =
        round_two(stage, "agent", 4, "read", arena_printf(&stage->arena, "%sx", name), "{'q1':{'action':'accept'}}");
    is_error(stage, other, -32602, "requestState", 200);
    assert_int_equal(first.answers + second.answers, 0);
    /* one is answered, one is malformed, the third was not known: asked again */
    client = round_two(stage, "agent", 5, "read", name, "{'q1':{'action':'accept'},'q2':5,'other':{}}");
    assert_string_equal(first.result, "{\"action\":\"accept\"}");
    assert_int_equal(second.answers + third.answers, 0);
    result = json_get(parse(stage, client->final), "result");
    assert_int_equal(json_get(result, "inputRequests")->count, 2);
    is_error(stage, round_two(stage, "agent", 6, "read", name, "{}"), -32602, "requestState", 200); /* used */
    name = state_of(stage, client);
    client = round_two(stage, "agent", 7, "read", name, "{'q2':{'role':'assistant'},'q3':{'roots':[]}}");
    assert_int_equal(client->finals, 0);
    assert_string_equal(second.result, "{\"role\":\"assistant\"}");
    assert_string_equal(third.result, "{\"roots\":[]}");
    /* the first request is the server's, the last one the client's */
    fake_result(pending, "{\"content\":[1]}");
    is_result(stage, client, "{'resultType':'complete','content':[1]}");
    assert_int_equal(json_get_int(parse(stage, client->final), "id", 0), 7);
    fake_question_release(&first);
    fake_question_release(&second);
    fake_question_release(&third);
    assert_int_equal(stage->door->passing->suspended_count, 0);
}

/* The round's progress comes in its own token, and closing its stream cancels. */
static void test_suspend_then_cancel(void **state)
{
    struct stage *stage = *state;
    struct mcp_question question;
    struct client *client = ask_modern(stage, 1, "tools/call", "'name':'read',");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    fake_ask(pending->link, pending, &question, "elicitation/create", "{}");
    turn(stage);
    const char *text = arena_printf(
        &stage->arena,
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"read\",\"requestState\":\"%s\","
        "\"inputResponses\":{\"q1\":{\"action\":\"decline\"}},\"_meta\":{\"progressToken\":\"t2\","
        "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/"
        "clientCapabilities\":{}}}}",
        state_of(stage, client));
    struct mcp_session *session = mcp_session_new(stage->door, "default", "agent", ROLE_AGENT);
    session->ephemeral = true;
    client = say(stage, session, text);
    assert_int_equal(question.answers, 1);
    fake_question_release(&question);
    fake_notify(pending->link, pending, "notifications/progress", "{\"progressToken\":\"t1\",\"progress\":2}");
    is_notice(stage, client->told[0], "notifications/progress", "{'progressToken':'t2','progress':2}");
    mcp_request_gone(&client->sink, true);
    client->drops = 1;
    assert_true(pending->cancelled);
    assert_int_equal(stage->door->passing->suspended_count, 0);
}

/* The answer comes while nobody waits; or never, and the time is over. */
static void test_suspend_alone(void **state)
{
    struct stage *stage = *state;
    struct mcp_question question;
    struct client *client = ask_modern(stage, 1, "prompts/get", "'name':'p',");
    struct mcp_pending *pending = sent(stage->one, "prompts/get");
    fake_ask(pending->link, pending, &question, "elicitation/create", "{}");
    turn(stage);
    fake_result(pending, "{\"messages\":[]}");
    fake_question_release(&question);
    client = ask_modern(
        stage, 2, "prompts/get",
        arena_printf(&stage->arena, "'name':'p','inputResponses':{},'requestState':'%s',", state_of(stage, client)));
    is_result(stage, client, "{'resultType':'complete','messages':[]}");
    assert_int_equal(json_get_int(parse(stage, client->final), "id", 0), 2);

    client = ask_modern(stage, 3, "prompts/get", "'name':'p',");
    pending = sent(stage->one, "prompts/get");
    fake_ask(pending->link, pending, &question, "sampling/createMessage", "{}");
    turn(stage);
    stage->door->passing->suspended->expires_ms = 0;
    suspended_tick(stage->door->passing);
    assert_int_equal(question.code, -32603);
    assert_true(pending->cancelled);
    fake_question_release(&question);
    assert_int_equal(stage->door->passing->suspended_count, 0);
    assert_int_equal(stage->door->passing->asking_count, 0);
}

/* A call that onced runs itself: its questions go to whoever waits for it, and the next round is no repeat of it. */
static void test_protected(void **state)
{
    struct stage *stage = *state;
    struct mcp_question question = {0};
    const struct mcp_listener *listener = mcp_door_attempt_listener();
    stage->engine.later = true;
    struct client *client = ask_modern(stage, 1, "tools/call", "'name':'pay','arguments':{'a':1},");
    assert_int_equal(stage->engine.calls, 1);
    struct mcp_related related = {.origin = stage->engine.origin};
    struct rpc_message message = {.kind = RPC_REQUEST,
                                  .id = STR("1"),
                                  .method = "elicitation/create",
                                  .params = parse(stage, "{\"message\":\"sure?\"}")};
    listener->asked(stage->door, NULL, &related, &message, &question);
    turn(stage);
    client = ask_modern(stage, 2, "tools/call",
                        arena_printf(&stage->arena,
                                     "'name':'pay','arguments':{'a':1},'inputResponses':{'q1':{'action':'accept'}},"
                                     "'requestState':'%s',",
                                     state_of(stage, client)));
    assert_string_equal(question.result, "{\"action\":\"accept\"}");
    fake_question_release(&question);
    assert_int_equal(stage->engine.calls, 1); /* not another one */
    assert_int_equal(stage->engine.left, 0);
    /* the attempt asks again */
    listener->asked(stage->door, NULL, &related, &message, &question);
    turn(stage);
    client = ask_modern(stage, 3, "tools/call",
                        arena_printf(&stage->arena,
                                     "'name':'pay','arguments':{'a':1},'inputResponses':{'q2':{'action':'accept'}},"
                                     "'requestState':'%s',",
                                     state_of(stage, client)));
    assert_int_equal(question.answers, 1);
    fake_question_release(&question);
    stage->engine.reply = (struct engine_reply){.kind = REPLY_NO_TOOL};
    assert_true(fake_engine_reply(&stage->engine));
    assert_int_equal(client->finals, 1);
    assert_int_equal(json_get_int(parse(stage, client->final), "id", 0), 3);
    /* states of others are none of ours */
    is_error(stage, round_two(stage, "agent", 4, "pay", "theirs", "{}"), -32602, "requestState", 200);
    assert_int_equal(stage->engine.calls, 1);
    /* nobody is there any more */
    listener->asked(stage->door, NULL, &related, &message, &question);
    assert_int_equal(question.answers, 1);
    assert_int_equal(question.code, -32603);
    fake_question_release(&question);
}

/* Legacy client: questions and progress of attempts are on the stream of its call. */
static void test_protected_legacy(void **state)
{
    struct stage *stage = *state;
    struct mcp_question question = {0};
    const struct mcp_listener *listener = mcp_door_attempt_listener();
    stage->engine.later = true;
    struct client *client = ask(stage, 1, "tools/call", "{'name':'pay','arguments':{},'_meta':{'progressToken':'t'}}");
    struct mcp_related related = {.origin = stage->engine.origin};
    struct rpc_message message = {.kind = RPC_REQUEST, .id = STR("1"), .method = "roots/list"};
    listener->asked(stage->door, NULL, &related, &message, &question);
    reply_to(stage, stage->session, client->told[client->told_count - 1], "'result':{'roots':[]}");
    assert_string_equal(question.result, "{\"roots\":[]}");
    fake_question_release(&question);
    message = (struct rpc_message){.kind = RPC_NOTIFICATION,
                                   .method = "notifications/progress",
                                   .params = parse(stage, "{\"progressToken\":\"t\",\"progress\":0.5}")};
    listener->notified(stage->door, NULL, &related, &message);
    is_notice(stage, client->told[client->told_count - 1], "notifications/progress",
              "{'progressToken':'t','progress':0.5}");
    listener->asked(stage->door, NULL, &related, &message, &question); /* no such question */
    assert_int_equal(question.code, -32601);
    fake_question_release(&question);
}

/* Legacy client, modern server: its questions become requests, the answers the next round. */
static void test_rounds(void **state)
{
    struct stage *stage = *state;
    stage->one->era = MCP_ERA_MODERN;
    struct client *client = ask(stage, 1, "tools/call", "{'name':'read','arguments':{'a':1}}");
    fake_result(sent(stage->one, "tools/call"),
                "{\"resultType\":\"input_required\",\"requestState\":\"s1\",\"inputRequests\":{"
                "\"a\\\"b\":{\"method\":\"elicitation/create\",\"params\":{\"message\":\"m\"}},"
                "\"r\":{\"method\":\"roots/list\",\"params\":{}}}}");
    assert_int_equal(client->told_count, 2);
    assert_null(fake_find(stage->one, "tools/call"));
    reply_to(stage, stage->session, client->told[0], "'result':{'action':'accept','content':{'n':2.0}}");
    reply_to(stage, stage->session, client->told[1], "'result':{'roots':[]}");
    same(stage, sent(stage->one, "tools/call")->params,
         "{'name':'remote_read','arguments':{'a':1},'requestState':'s1','inputResponses':{"
         "'a\\\"b':{'action':'accept','content':{'n':2.0}},'r':{'roots':[]}}}");
    fake_result(sent(stage->one, "tools/call"), "{\"resultType\":\"input_required\",\"requestState\":\"s2\"}");
    same(stage, sent(stage->one, "tools/call")->params,
         "{'name':'remote_read','arguments':{'a':1},'requestState':'s2'}");
    fake_result(sent(stage->one, "tools/call"), "{\"resultType\":\"complete\",\"content\":[]}");
    is_result(stage, client, "{'content':[]}");
    /* a client that says no, a client that cannot, a server without end */
    client = ask(stage, 2, "tools/call", "{'name':'read'}");
    fake_result(
        sent(stage->one, "tools/call"),
        "{\"resultType\":\"input_required\",\"inputRequests\":{\"k\":{\"method\":\"sampling/createMessage\"}}}");
    reply_to(stage, stage->session, client->told[0], "'error':{'code':-1,'message':'User rejected'}");
    is_error(stage, client, -1, "User rejected", 200);
    client = ask(stage, 3, "tools/call", "{'name':'read'}");
    fake_result(sent(stage->one, "tools/call"),
                "{\"resultType\":\"input_required\",\"inputRequests\":{\"k\":{\"method\":\"own/method\"}}}");
    is_error(stage, client, -32603, "cannot answer", 200);
    client = ask(stage, 4, "tools/call", "{'name':'read'}");
    for (int i = 0; i <= FORWARD_ROUNDS_MAX; i++)
        fake_result(sent(stage->one, "tools/call"), "{\"resultType\":\"input_required\",\"requestState\":\"s\"}");
    is_error(stage, client, -32603, "again and again", 200);
    /* the client goes while it is asked */
    client = ask(stage, 5, "tools/call", "{'name':'read'}");
    fake_result(sent(stage->one, "tools/call"),
                "{\"resultType\":\"input_required\",\"inputRequests\":{\"k\":{\"method\":\"roots/list\"}}}");
    mcp_session_end(stage->session);
    assert_int_equal(client->drops, 1);
}

static void test_url_required(void **state)
{
    struct stage *stage = *state;
    const char *data =
        "{\"elicitations\":[{\"mode\":\"url\",\"elicitationId\":\"e\",\"url\":\"u\",\"message\":\"m\"}]}";
    struct client *client = ask_modern(stage, 1, "tools/call", "'name':'read',");
    fake_error(sent(stage->one, "tools/call"), -32042, "go there", data);
    is_result(stage, client,
              "{'resultType':'input_required','inputRequests':{'url1':{'method':'elicitation/create','params':{"
              "'mode':'url','message':'m','url':'u'}}}}");
    client = ask_modern(stage, 2, "tools/call", "'name':'read','inputResponses':{'url1':{'action':'accept'}},");
    assert_null(strstr(sent(stage->one, "tools/call")->params, "inputResponses"));
    fake_result(sent(stage->one, "tools/call"), "{\"content\":[]}");
    is_result(stage, client, "{'resultType':'complete','content':[]}");
    client = ask_modern_as(stage, "agent", "{}", 3, "tools/call", "'name':'read',");
    fake_error(sent(stage->one, "tools/call"), -32042, "go there", data);
    is_error(stage, client, -32021, "go there", 400);
    client = ask(stage, 4, "tools/call", "{'name':'read'}");
    fake_error(sent(stage->one, "tools/call"), -32042, "go there", data);
    is_error(stage, client, -32042, "elicitationId", 200);
}

/* ---- lists ---- */

static void test_list_one(void **state)
{
    struct stage *stage = *state;
    struct client *client = ask(stage, 1, "resources/list", "{'cursor':'theirs'}");
    same(stage, sent(stage->one, "resources/list")->params, "{'cursor':'theirs'}");
    fake_result(sent(stage->one, "resources/list"),
                "{\"resources\":[{\"uri\":\"x:1\"}],\"nextCursor\":\"n\",\"own\":1}");
    is_result(stage, client, "{'resources':[{'uri':'x:1'}],'nextCursor':'n','own':1}");
    stage->one->prefix = "a_";
    client = ask(stage, 2, "prompts/list", "{}");
    fake_result(sent(stage->one, "prompts/list"), "{\"prompts\":[{\"name\":\"p\",\"title\":\"P\"}],\"own\":1}");
    is_result(stage, client, "{'prompts':[{'name':'a_p','title':'P'}],'own':1}");
    client = ask(stage, 3, "prompts/list", "{}");
    fake_error(sent(stage->one, "prompts/list"), -5, "no", NULL);
    is_error(stage, client, -5, "no", 200);
    client = ask_modern(stage, 4, "prompts/list", "");
    fake_result(sent(stage->one, "prompts/list"), "{\"prompts\":[]}");
    is_result(stage, client, "{'resultType':'complete','prompts':[],'ttlMs':0,'cacheScope':'private'}");
}

static void test_list_merged(void **state)
{
    struct stage *stage = *state;
    struct mcp_server *a = stage->one, *b = add_modern(stage);
    b->prefix = "b_";
    struct client *client = ask_modern(stage, 1, "resources/list", "");
    fake_result(sent(b, "resources/list"),
                "{\"resultType\":\"complete\",\"resources\":[{\"uri\":\"x:1\",\"name\":\"b\"},{\"uri\":\"x:2\"}],"
                "\"ttlMs\":9,\"cacheScope\":\"public\"}");
    assert_int_equal(client->finals, 0);
    fake_result(sent(a, "resources/list"), "{\"resources\":[{\"uri\":\"x:1\",\"name\":\"a\"}],\"nextCursor\":\"n\"}");
    const struct json *result = json_get(parse(stage, client->final), "result");
    same_value(stage, json_get(result, "resources"), "[{'uri':'x:1','name':'a'},{'uri':'x:2'}]");
    assert_int_equal(json_get_int(result, "ttlMs", -1), 0);
    assert_string_equal(text_at(stage, result, "cacheScope"), "private");
    const char *cursor = text_at(stage, result, "nextCursor");
    client = ask_modern(stage, 2, "resources/list", arena_printf(&stage->arena, "'cursor':'%s',", cursor));
    assert_null(fake_find(b, "resources/list")); /* it had no more */
    assert_string_equal(text_at(stage, parse(stage, sent(a, "resources/list")->params), "cursor"), "n");
    fake_result(sent(a, "resources/list"), "{\"resources\":[{\"uri\":\"x:3\"}]}");
    result = json_get(parse(stage, client->final), "result");
    same_value(stage, json_get(result, "resources"), "[{'uri':'x:3'}]");
    assert_null(json_get(result, "nextCursor"));
    static const char *const bad[] = {"'n'", "'6e'", "'7b7d7'", "5", "'zz'"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        is_error(stage, ask_modern(stage, 3, "resources/list", arena_printf(&stage->arena, "'cursor':%s,", bad[i])),
                 -32602, "cursor", 200);
    /* prompts under their servers' prefixes; one that has none of the kind; one that is down is left out */
    client = ask(stage, 4, "prompts/list", "{}");
    fake_result(sent(a, "prompts/list"), "{\"prompts\":[{\"name\":\"p\"}]}");
    fake_result(sent(b, "prompts/list"), "{\"resultType\":\"complete\",\"prompts\":[{\"name\":\"p\"}],\"ttlMs\":1}");
    is_result(stage, client, "{'prompts':[{'name':'p'},{'name':'b_p'}]}");
    client = ask(stage, 5, "resources/templates/list", "{}");
    fake_error(sent(a, "resources/templates/list"), -32601, "no", NULL);
    fake_result(sent(b, "resources/templates/list"), "{\"resourceTemplates\":[{\"uriTemplate\":\"t:{x}\"}]}");
    is_result(stage, client, "{'resourceTemplates':[{'uriTemplate':'t:{x}'}]}");
    a->state = MCP_SERVER_DOWN;
    client = ask(stage, 6, "resources/list", "{}");
    fake_result(sent(b, "resources/list"), "{\"resources\":[{\"uri\":\"x:2\"}]}");
    is_result(stage, client, "{'resources':[{'uri':'x:2'}]}");
    /* the client goes */
    client = ask_modern(stage, 7, "resources/list", "");
    struct mcp_pending *pending = sent(b, "resources/list");
    mcp_request_gone(&client->sink, true);
    client->drops = 1;
    assert_true(pending->cancelled);
}

static void test_not_offered(void **state)
{
    struct stage *stage = *state;
    stage->one->forward = false;
    is_error(stage, ask(stage, 1, "resources/list", "{}"), -32601, "", 200);
    is_error(stage, ask_modern(stage, 1, "prompts/list", ""), -32601, "", 404);
    is_error(stage, ask_modern(stage, 2, "completion/complete", ""), -32601, "", 404);
    is_error(stage, ask(stage, 3, "resources/subscribe", "{'uri':'x'}"), -32601, "", 200);
}

/* ---- names ---- */

static void test_routes(void **state)
{
    struct stage *stage = *state;
    struct mcp_server *a = stage->one, *b = add_modern(stage);
    struct client *client = ask(stage, 1, "resources/list", "{}");
    fake_result(sent(a, "resources/list"), "{\"resources\":[{\"uri\":\"x:1\"}]}");
    fake_result(sent(b, "resources/list"), "{\"resources\":[{\"uri\":\"x:2\"}]}");
    client = ask(stage, 2, "resources/templates/list", "{}");
    fake_result(sent(a, "resources/templates/list"), "{\"resourceTemplates\":[]}");
    fake_result(sent(b, "resources/templates/list"), "{\"resourceTemplates\":[{\"uriTemplate\":\"t:{id}/d\"}]}");
    static const char *const known[] = {"x:2", "t:5/d"};
    for (int i = 0; i < 2; i++) {
        client = ask(stage, 3 + i, "resources/read", arena_printf(&stage->arena, "{'uri':'%s'}", known[i]));
        assert_null(fake_find(a, "resources/read"));
        fake_result(sent(b, "resources/read"), "{\"contents\":[]}");
        is_result(stage, client, "{'contents':[]}");
    }
    /* not known: one after the other, and remembered */
    client = ask(stage, 5, "resources/read", "{'uri':'y:1'}");
    assert_null(fake_find(b, "resources/read"));
    fake_error(sent(a, "resources/read"), -32002, "not at a", NULL);
    fake_result(sent(b, "resources/read"), "{\"contents\":[5]}");
    is_result(stage, client, "{'contents':[5]}");
    client = ask(stage, 6, "resources/read", "{'uri':'y:1'}");
    fake_result(sent(b, "resources/read"), "{\"contents\":[6]}");
    is_result(stage, client, "{'contents':[6]}");
    /* nobody has it: the first word counts; any other error ends it */
    client = ask(stage, 7, "resources/read", "{'uri':'z:1'}");
    fake_error(sent(a, "resources/read"), -32002, "not at a", "{\"uri\":\"z:1\"}");
    fake_error(sent(b, "resources/read"), -32602, "not at b", "{\"uri\":\"z:1\"}");
    is_error(stage, client, -32002, "not at a", 200);
    client = ask(stage, 8, "resources/read", "{'uri':'z:1'}");
    fake_error(sent(a, "resources/read"), -32603, "broken", NULL);
    is_error(stage, client, -32603, "broken", 200);
    assert_null(fake_find(b, "resources/read"));
    is_error(stage, ask(stage, 9, "resources/read", "{}"), -32602, "uri", 200);
    /* prompts by prefix, the longest one that fits */
    b->prefix = "b_";
    client = ask(stage, 10, "prompts/get", "{'name':'b_p','arguments':{'a':'1'}}");
    same(stage, sent(b, "prompts/get")->params, "{'name':'p','arguments':{'a':'1'}}");
    fake_result(sent(b, "prompts/get"), "{\"resultType\":\"complete\",\"messages\":[]}");
    is_result(stage, client, "{'messages':[]}");
    client = ask(stage, 11, "prompts/get", "{'name':'p'}");
    fake_result(sent(a, "prompts/get"), "{\"messages\":[]}");
    a->prefix = "a_";
    is_error(stage, ask(stage, 12, "prompts/get", "{'name':'p'}"), -32602, "Unknown prompt", 200);
    client = ask(stage, 13, "completion/complete",
                 "{'ref':{'type':'ref/prompt','name':'b_p','title':'T'},'argument':{'name':'n','value':'v'}}");
    same(stage, sent(b, "completion/complete")->params,
         "{'ref':{'type':'ref/prompt','name':'p','title':'T'},'argument':{'name':'n','value':'v'}}");
    fake_result(sent(b, "completion/complete"), "{\"completion\":{\"values\":[]}}");
    is_result(stage, client, "{'completion':{'values':[]}}");
    client = ask(stage, 14, "completion/complete",
                 "{'ref':{'type':'ref/resource','uri':'t:{id}/d'},'argument':{'name':'n','value':'v'}}");
    fake_result(sent(b, "completion/complete"), "{\"completion\":{\"values\":[]}}");
    is_error(stage, ask(stage, 15, "completion/complete", "{'ref':{'type':'x'}}"), -32602, "ref", 200);
}

static void test_templates(void **state)
{
    (void)state;
    static const struct {
        const char *template, *uri;
        bool fits;
    } cases[] = {
        {"a:{x}/d", "a:1/d", true},
        {"a:{x}/d", "a:/d", false},
        {"a:{x}/d", "a:1/2/d", false},
        {"a:{+x}/d", "a:1/2/d", true},
        {"a:{x}", "a:12", true},
        {"a:{x}", "b:1", false},
        {"a:{x}-{y}", "a:1-2-3", true},
        {"a:{x}{?q}", "a:1", true},
        {"a:{x}{?q}", "a:1?q=/", true},
        {"a:{x", "a:1", false},
        {"", "", true},
        {"a", "a", true},
        {"a", "ab", false},
        {"{x}", "ab", true},
        {"{x}b", "abbb", true},
        {"f{/x}", "f/a/b", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (route_template_matches(str_of(cases[i].template), str_of(cases[i].uri)) != cases[i].fits)
            fail_msg("%s and %s", cases[i].template, cases[i].uri);
}

/* ---- log level, notices ---- */

static void test_level(void **state)
{
    struct stage *stage = *state;
    struct client *client = ask(stage, 1, "tools/call", "{'name':'read'}");
    fake_result(sent(stage->one, "tools/call"), "{\"content\":[]}");
    client = ask(stage, 2, "logging/setLevel", "{'level':'warning'}");
    is_result(stage, client, "{}");
    same(stage, sent(stage->one, "logging/setLevel")->params, "{'level':'warning'}");
    /* what comes behind waits until the server knows */
    client = ask(stage, 3, "tools/call", "{'name':'read'}");
    ask(stage, 4, "resources/read", "{'uri':'x:1'}");
    assert_null(fake_find(stage->one, "tools/call"));
    fake_result(sent(stage->one, "logging/setLevel"), "{}");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    sent(stage->one, "resources/read");
    fake_notify(pending->link, NULL, "notifications/message", "{\"level\":\"info\",\"data\":1}");
    fake_notify(pending->link, pending, "notifications/message", "{\"level\":\"error\",\"data\":2}");
    assert_int_equal(client->told_count, 1);
    is_notice(stage, client->told[0], "notifications/message", "{'level':'error','data':2}");
    fake_result(pending, "{\"content\":[]}");
    fake_result(sent(stage->one, "resources/read"), "{\"contents\":[]}");
    fake_notify(stage->one->links, NULL, "notifications/message", "{\"level\":\"alert\",\"data\":3}");
    is_notice(stage, stage->sent[stage->sent_count - 1], "notifications/message", "{'level':'alert','data':3}");
    is_error(stage, ask(stage, 5, "logging/setLevel", "{'level':'loud'}"), -32602, "level", 200);
    /* modern: per request */
    client = ask_modern(stage, 6, "tools/call", "'name':'read',");
    fake_notify(sent(stage->one, "tools/call")->link, NULL, "notifications/message",
                "{\"level\":\"alert\",\"data\":3}");
    assert_int_equal(client->told_count, 0);
    fake_result(sent(stage->one, "tools/call"), "{\"content\":[]}");
}

static void test_notices(void **state)
{
    struct stage *stage = *state;
    ask(stage, 1, "tools/call", "{'name':'read'}");
    fake_result(sent(stage->one, "tools/call"), "{\"content\":[]}");
    const char *roots = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}";
    mcp_receive(stage->session, NULL, str_of(roots), NULL);
    assert_string_equal(stage->hub.last_notice, "notifications/roots/list_changed");
    assert_int_equal(stage->hub.notified, 1);
    /* a shared server hears of a client with roots when it comes, and when it says so */
    struct mcp_server *shared = fake_server(&stage->hub, "b", MCP_ERA_LEGACY, OFFERS);
    shared->per_client = false;
    mcp_receive(stage->session, NULL, str_of(roots), NULL);
    assert_int_equal(shared->opened, 1);
    assert_int_equal(stage->hub.notified, 4);
    shared->forward = false;
    struct mcp_link *link = stage->one->links;
    fake_notify(link, NULL, "notifications/elicitation/complete", "{\"elicitationId\":\"e\"}");
    is_notice(stage, stage->sent[0], "notifications/elicitation/complete", "{'elicitationId':'e'}");
    fake_notify(link, NULL, "notifications/prompts/list_changed", NULL);
    fake_notify(link, NULL, "notifications/resources/list_changed", NULL);
    fake_notify(link, NULL, "notifications/tools/list_changed", NULL); /* the hub's matter */
    fake_notify(link, NULL, "notifications/own", "{\"a\":1}");
    assert_int_equal(stage->sent_count, 4);
    is_notice(stage, stage->sent[3], "notifications/own", "{'a':1}");
    fake_lose(link);
    turn(stage);
    assert_int_equal(stage->one->link_count, 0);
    ask(stage, 2, "tools/call", "{'name':'read'}");
    assert_int_equal(stage->one->opened, 2);
    fake_result(sent(stage->one, "tools/call"), "{\"content\":[]}");
}

/* ---- subscriptions ---- */

static void test_subscribe(void **state)
{
    struct stage *stage = *state;
    stage->one->per_client = false;
    struct client *client = ask(stage, 1, "resources/subscribe", "{'uri':'x:1'}");
    same(stage, sent(stage->one, "resources/subscribe")->params, "{'uri':'x:1'}");
    fake_result(sent(stage->one, "resources/subscribe"), "{}");
    is_result(stage, client, "{}");
    is_result(stage, ask(stage, 2, "resources/subscribe", "{'uri':'x:1'}"), "{}"); /* again */
    struct mcp_session *other = legacy_session(stage, "{}");
    client = say(stage, other,
                 "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"x:1\"}}");
    is_result(stage, client, "{}");
    assert_null(fake_find(stage->one, "resources/subscribe")); /* once for both */
    struct mcp_link *link = stage->one->links;
    fake_notify(link, NULL, "notifications/resources/updated", "{\"uri\":\"x:1\",\"title\":\"t\"}");
    fake_notify(link, NULL, "notifications/resources/updated", "{\"uri\":\"x:1/part\"}");
    fake_notify(link, NULL, "notifications/resources/updated", "{\"uri\":\"x:12\"}");
    assert_int_equal(stage->sent_count, 4);
    is_notice(stage, stage->sent[0], "notifications/resources/updated", "{'uri':'x:1','title':'t'}");
    is_result(stage, ask(stage, 3, "resources/unsubscribe", "{'uri':'x:1'}"), "{}");
    assert_null(fake_find(stage->one, "resources/unsubscribe")); /* one is left */
    fake_notify(link, NULL, "notifications/resources/updated", "{\"uri\":\"x:1\"}");
    assert_int_equal(stage->sent_count, 5);
    mcp_session_end(other);
    same(stage, sent(stage->one, "resources/unsubscribe")->params, "{'uri':'x:1'}");
    fake_result(sent(stage->one, "resources/unsubscribe"), "{}");
    client = ask(stage, 4, "resources/subscribe", "{'uri':'no'}");
    fake_error(sent(stage->one, "resources/subscribe"), -32002, "no such", NULL);
    is_error(stage, client, -32002, "no such", 200);
    assert_int_equal(stage->door->passing->watch_count, 0);
    is_error(stage, ask(stage, 5, "resources/subscribe", "{}"), -32602, "uri", 200);
    /* the connection breaks: made again when the server is back */
    client = ask(stage, 6, "resources/subscribe", "{'uri':'x:9'}");
    fake_result(sent(stage->one, "resources/subscribe"), "{}");
    fake_lose(stage->one->links);
    turn(stage);
    assert_int_equal(stage->one->link_count, 0);
    stage->door->passing->watches->retry_ms = 0;
    listens_tick(stage->door->passing);
    same(stage, sent(stage->one, "resources/subscribe")->params, "{'uri':'x:9'}");
    fake_result(sent(stage->one, "resources/subscribe"), "{}");
    fake_notify(stage->one->links, NULL, "notifications/resources/updated", "{\"uri\":\"x:9\"}");
    assert_int_equal(stage->sent_count, 6);
}

static void test_subscribe_modern_server(void **state)
{
    struct stage *stage = *state;
    stage->one->era = MCP_ERA_MODERN;
    struct client *client = ask(stage, 1, "resources/subscribe", "{'uri':'x:1'}");
    is_result(stage, client, "{}");
    struct mcp_pending *pending = sent(stage->one, "subscriptions/listen");
    same(stage, pending->params, "{'notifications':{'resourceSubscriptions':['x:1']}}");
    fake_notify(pending->link, pending, "notifications/subscriptions/acknowledged", "{}");
    fake_notify(pending->link, pending, "notifications/resources/updated",
                "{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":5},\"uri\":\"x:1\"}");
    assert_int_equal(stage->sent_count, 1);
    is_notice(stage, stage->sent[0], "notifications/resources/updated", "{'uri':'x:1'}");
    fake_result(pending, "{\"resultType\":\"complete\"}"); /* the server ends the stream */
    stage->door->passing->watches->retry_ms = 0;
    listens_tick(stage->door->passing);
    pending = sent(stage->one, "subscriptions/listen");
    ask(stage, 2, "resources/unsubscribe", "{'uri':'x:1'}");
    assert_true(pending->cancelled);
    fake_end(pending, MCP_CANCELLED, NULL);
}

static void test_listen(void **state)
{
    struct stage *stage = *state;
    is_error(stage, ask_modern(stage, 1, "subscriptions/listen", ""), -32602, "notifications", 200);
    struct client *nothing =
        ask_modern(stage, 2, "subscriptions/listen", "'notifications':{'toolsListChanged':false},");
    assert_int_equal(nothing->told_count, 1);
    is_result(stage, nothing, "{'_meta':{'io.modelcontextprotocol/subscriptionId':2},'resultType':'complete'}");
    struct client *all = ask_modern(stage, 3, "subscriptions/listen",
                                    "'notifications':{'toolsListChanged':true,'promptsListChanged':true,"
                                    "'resourcesListChanged':true,'resourceSubscriptions':['x:1','x:2'],'odd':1},");
    is_notice(stage, all->told[0], "notifications/subscriptions/acknowledged",
              "{'_meta':{'io.modelcontextprotocol/subscriptionId':3},'notifications':{'toolsListChanged':true,"
              "'promptsListChanged':true,'resourcesListChanged':true,'resourceSubscriptions':['x:1','x:2']}}");
    struct client *prompts =
        ask_modern(stage, 4, "subscriptions/listen", "'notifications':{'promptsListChanged':true},");
    assert_int_equal(stage->one->opened, 1);
    fake_result(sent(stage->one, "resources/subscribe"), "{}");
    fake_result(sent(stage->one, "resources/subscribe"), "{}");
    mcp_tell_list_changed(stage->door, "tools");
    is_notice(stage, all->told[1], "notifications/tools/list_changed",
              "{'_meta':{'io.modelcontextprotocol/subscriptionId':3}}");
    struct mcp_link *link = stage->one->links;
    fake_notify(link, NULL, "notifications/prompts/list_changed", NULL);
    turn(stage);
    assert_int_equal(all->told_count, 3);
    assert_int_equal(prompts->told_count, 2);
    is_notice(stage, prompts->told[1], "notifications/prompts/list_changed",
              "{'_meta':{'io.modelcontextprotocol/subscriptionId':4}}");
    fake_notify(link, NULL, "notifications/resources/updated", "{\"uri\":\"x:2\",\"t\":1}");
    assert_int_equal(all->told_count, 4);
    is_notice(stage, all->told[3], "notifications/resources/updated",
              "{'_meta':{'io.modelcontextprotocol/subscriptionId':3},'uri':'x:2','t':1}");
    /* the client goes: nothing is left of it at the server */
    mcp_request_gone(&all->sink, true);
    all->drops = 1;
    fake_result(sent(stage->one, "resources/unsubscribe"), "{}");
    fake_result(sent(stage->one, "resources/unsubscribe"), "{}");
    assert_int_equal(stage->door->passing->watch_count, 0);
    /* the servers offer no prompts any more: the stream ends in good order */
    stage->one->tree = json_object(&stage->hub.arena);
    mcp_door_tools_changed(stage->door);
    is_result(stage, prompts, "{'_meta':{'io.modelcontextprotocol/subscriptionId':4},'resultType':'complete'}");
    /* and so it does when onced stops */
    struct client *last = ask_modern(stage, 5, "subscriptions/listen", "'notifications':{'toolsListChanged':true},");
    mcp_door_close(stage->door);
    is_result(stage, last, "{'_meta':{'io.modelcontextprotocol/subscriptionId':5},'resultType':'complete'}");
}

static void test_listen_tasks(void **state)
{
    struct stage *stage = *state;
    is_error(stage, ask_modern(stage, 1, "subscriptions/listen", "'notifications':{'taskIds':['t1']},"), -32021,
             "taskIds", 400);
    struct client *client = ask_modern_as(stage, "agent", "{'extensions':{'io.modelcontextprotocol/tasks':{}}}", 2,
                                          "subscriptions/listen", "'notifications':{'taskIds':['t1','t2']},");
    is_notice(stage, client->told[0], "notifications/subscriptions/acknowledged",
              "{'_meta':{'io.modelcontextprotocol/subscriptionId':2},'notifications':{'taskIds':['t1','t2']}}");
    mcp_forward_task_changed(stage->door, "default", "agent", STR("t3"), STR("{\"taskId\":\"t3\"}"));
    mcp_forward_task_changed(stage->door, "default", "other", STR("t1"), STR("{\"taskId\":\"t1\"}"));
    mcp_forward_task_changed(stage->door, "default", "agent", STR("t1"),
                             STR("{\"taskId\":\"t1\",\"status\":\"working\"}"));
    assert_int_equal(client->told_count, 2);
    is_notice(stage, client->told[1], "notifications/tasks",
              "{'_meta':{'io.modelcontextprotocol/subscriptionId':2},'taskId':'t1','status':'working'}");
    mcp_request_gone(&client->sink, true);
    client->drops = 1;
}

/* ---- bounds ---- */

static void test_bounds(void **state)
{
    struct stage *stage = *state;
    struct passing *passing = passing_of(stage->door);
    struct mcp_question question;
    struct client *client = ask_modern(stage, 1, "tools/call", "'name':'read',");
    struct mcp_pending *pending = sent(stage->one, "tools/call");
    passing->suspended_count = FORWARD_SUSPENDED_MAX;
    fake_ask(pending->link, pending, &question, "roots/list", NULL);
    assert_int_equal(question.code, -32603);
    fake_question_release(&question);
    passing->suspended_count = 0;
    passing->asking_count = FORWARD_ASKINGS_MAX;
    fake_ask(pending->link, pending, &question, "roots/list", NULL);
    assert_int_equal(question.code, -32603);
    fake_question_release(&question);
    passing->asking_count = 0;
    fake_result(pending, "{\"content\":[]}");
    passing->errand_count = FORWARD_ERRANDS_MAX;
    client = ask(stage, 2, "resources/read", "{'uri':'x:1'}");
    is_error(stage, client, -32603, "on their way", 200);
    passing->errand_count = 0;
    passing->listen_count = FORWARD_LISTENS_MAX;
    is_error(stage, ask_modern(stage, 3, "subscriptions/listen", "'notifications':{'toolsListChanged':true},"), -32603,
             "open already", 200);
    passing->listen_count = 0;
    for (int i = 0; i <= FORWARD_LISTENS_MAX / FORWARD_OWN_DIVISOR; i++) { /* of one principal; others may still */
        client = ask_modern(stage, 10 + i, "subscriptions/listen", "'notifications':{'toolsListChanged':true},");
        assert_int_equal(client->finals, i == FORWARD_LISTENS_MAX / FORWARD_OWN_DIVISOR);
    }
    client =
        ask_modern_as(stage, "other", "{}", 9, "subscriptions/listen", "'notifications':{'toolsListChanged':true},");
    assert_int_equal(client->finals, 0);
    /* clients without a session: the idlest connection gives way */
    size_t lanes = passing->lane_count;
    passing->lane_count = FORWARD_LANES_MAX;
    client = ask_modern_as(stage, "other", CAN_ALL, 4, "tools/call", "'name':'read',");
    turn(stage);
    assert_int_equal(stage->one->link_count, 2); /* the session's and the new one */
    pending = sent(stage->one, "tools/call");
    client = ask_modern_as(stage, "third", CAN_ALL, 5, "tools/call", "'name':'read',");
    assert_non_null(strstr(client->final, "connections to servers are in use"));
    passing->lane_count = lanes;
    fake_result(pending, "{\"content\":[]}");
    /* a server without a sign of life */
    client = ask(stage, 6, "resources/read", "{'uri':'x:1'}");
    pending = sent(stage->one, "resources/read");
    struct errand *errand = stage->session->forward->lanes->errands;
    assert_int_equal(errand->patience_ms, 12345); /* the provider's time-out */
    errand->deadline_ms = 0;
    errand->asking_count = 1; /* people may take their time */
    lanes_tick(passing);
    assert_int_equal(client->finals, 0);
    errand->asking_count = 0;
    errand->deadline_ms = 0;
    lanes_tick(passing);
    is_error(stage, client, -32603, "in time", 200);
    assert_true(pending->cancelled);
    fake_end(pending, MCP_CANCELLED, NULL);
}

/* ---- at random ---- */

/* Clients and servers do whatever they can in any order. Judged by what must hold always: each request gets one end,
 * each question one answer at most (fake_link.c, client_ops), and nothing is left when the door is closed (ASan). */

#define PLAY_STEPS 300

struct play {
    struct stage *stage;
    uint64_t seed;
    int id;
    struct mcp_session *sessions[3];
    const char *states[8];
    size_t state_count;
    struct mcp_question *questions[256];
    size_t question_count;
    size_t seen; /* clients whose final message was looked at */
};

static unsigned roll(struct play *play, unsigned sides)
{
    play->seed = play->seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(play->seed >> 33) % sides;
}

static struct mcp_pending *any_pending(struct play *play)
{
    size_t waiting = fake_waiting(&play->stage->hub), skip = waiting ? roll(play, (unsigned)waiting) : 0;
    for (struct mcp_pending *pending = play->stage->hub.pendings; pending; pending = pending->next)
        if (!pending->told && !pending->cancelled && skip-- == 0)
            return pending;
    return NULL;
}

static struct mcp_link *any_link(struct play *play)
{
    struct mcp_server *server = play->stage->hub.servers[roll(play, (unsigned)play->stage->hub.server_count)];
    unsigned skip = server->link_count ? roll(play, (unsigned)server->link_count) : 0;
    struct mcp_link *link = server->links;
    while (link && skip-- > 0)
        link = link->next;
    return link && !link->lost ? link : NULL;
}

static const char *const play_requests[][2] = {
    {"tools/call", "'name':'read'"},
    {"tools/call", "'name':'pay','arguments':{'a':1}"},
    {"resources/read", "'uri':'x:1'"},
    {"resources/list", "'a':1"},
    {"prompts/list", "'a':1"},
    {"prompts/get", "'name':'p'"},
    {"completion/complete", "'ref':{'type':'ref/prompt','name':'p'},'argument':{'name':'n','value':'v'}"},
    {"resources/subscribe", "'uri':'x:1'"},
    {"resources/unsubscribe", "'uri':'x:1'"},
    {"logging/setLevel", "'level':'info'"},
};

static void play_legacy(struct play *play)
{
    struct stage *stage = play->stage;
    unsigned which = roll(play, sizeof play_requests / sizeof play_requests[0]);
    say(stage, play->sessions[roll(play, 3)],
        arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{%s}}", ++play->id,
                     play_requests[which][0], quoted(stage, play_requests[which][1])));
}

static void play_modern(struct play *play)
{
    struct stage *stage = play->stage;
    unsigned which = roll(play, 8);
    const char *principal = roll(play, 4) ? "agent" : "other";
    if (which == 7) {
        ask_modern_as(stage, principal, CAN_ALL, ++play->id, "subscriptions/listen",
                      "'notifications':{'promptsListChanged':true,'resourceSubscriptions':['x:1']},");
        return;
    }
    ask_modern_as(stage, principal, roll(play, 4) ? CAN_ALL : "{}", ++play->id, play_requests[which][0],
                  arena_printf(&stage->arena, "%s,", play_requests[which][1]));
}

/* Keeps requestStates, and answers what legacy clients are asked. */
static void play_look(struct play *play)
{
    struct stage *stage = play->stage;
    for (; play->seen < stage->client_count; play->seen++) {
        struct client *client = stage->clients[play->seen];
        const char *state = client->final ? strstr(client->final, "onced:") : NULL;
        if (state)
            play->states[roll(play, 8)] = arena_copy_str(&stage->arena, (struct str){state, 38});
    }
}

static void play_round(struct play *play)
{
    const char *state = play->states[roll(play, 8)];
    unsigned which = roll(play, 3);
    play->seen = 0; /* answers may have come since */
    play_look(play);
    if (!state)
        return;
    ask_modern_as(play->stage, "agent", CAN_ALL, ++play->id, play_requests[which][0],
                  arena_printf(&play->stage->arena,
                               "%s,'requestState':'%s','inputResponses':{'q1':{'action':'accept'},'q2':{'roots':[]}},",
                               play_requests[which][1], state));
}

static void play_answer(struct play *play)
{
    struct stage *stage = play->stage;
    struct client *client = stage->clients[roll(play, (unsigned)stage->client_count)];
    if (!client->told_count)
        return;
    const struct json *tree = parse(stage, client->told[roll(play, (unsigned)client->told_count)]);
    const struct json *id = json_get(tree, "id");
    if (!id)
        return;
    const char *answer =
        arena_printf(&stage->arena, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"roots\":[]}}", STR_ARG(id->text));
    for (int i = 0; i < 3; i++)
        mcp_receive(play->sessions[i], NULL, str_of(answer), NULL);
}

static void play_server(struct play *play)
{
    static const char *const results[] = {
        "{\"content\":[]}",
        "{\"resources\":[{\"uri\":\"x:1\"}],\"nextCursor\":\"n\"}",
        "{\"prompts\":[{\"name\":\"p\"}]}",
        ("{\"resultType\":\"input_required\",\"requestState\":\"s\",\"inputRequests\":{\"a\":{\"method\":\"roots/"
         "list\"}}}"),
    };
    struct mcp_pending *pending = any_pending(play);
    if (!pending)
        return;
    switch (roll(play, 8)) {
    case 0: fake_error(pending, -32002, "no", NULL); break;
    case 1: fake_error(pending, -32042, "url", "{\"elicitations\":[{\"url\":\"u\",\"message\":\"m\"}]}"); break;
    case 2: fake_end(pending, roll(play, 2) ? MCP_LOST : MCP_UNREADABLE, "broke"); break;
    case 3:
        fake_notify(pending->link, pending, "notifications/progress", "{\"progressToken\":1,\"progress\":1}");
        break;
    default: fake_result(pending, results[roll(play, 4)]); break;
    }
}

static void play_ask(struct play *play)
{
    static const char *const methods[] = {"roots/list", "elicitation/create", "sampling/createMessage"};
    struct stage *stage = play->stage;
    struct mcp_link *link = any_link(play);
    if (play->question_count == 256)
        return;
    struct mcp_question *question = play->questions[play->question_count++] = mem_zero(sizeof *question);
    struct mcp_pending *pending = roll(play, 3) ? any_pending(play) : NULL;
    const char *method = methods[roll(play, 3)];
    if (roll(play, 4) == 0) { /* about an attempt; its link is the hub's own */
        struct mcp_related related = {.origin = stage->engine.origin};
        struct rpc_message message = {.kind = RPC_REQUEST, .id = STR("1"), .method = method};
        mcp_door_attempt_listener()->asked(stage->door, NULL, &related, &message, question);
    } else if (pending && !pending->link->lost) {
        fake_ask(pending->link, pending, question, method, "{\"message\":\"m\"}");
    } else if (link) {
        fake_ask(link, NULL, question, method, "{\"message\":\"m\"}");
    }
}

static void play_notice(struct play *play)
{
    static const char *const methods[] = {"notifications/prompts/list_changed", "notifications/resources/updated",
                                          "notifications/message", "notifications/own"};
    struct mcp_link *link = any_link(play);
    if (link)
        fake_notify(link, NULL, methods[roll(play, 4)], "{\"uri\":\"x:1\",\"level\":\"error\",\"data\":1}");
}

static void play_leave(struct play *play)
{
    struct stage *stage = play->stage;
    struct client *client = stage->clients[roll(play, (unsigned)stage->client_count)];
    if (client->finals || client->drops)
        return;
    struct mcp_session *session = client->sink.request->session;
    mcp_request_gone(&client->sink, session->ephemeral);
    client->drops = 1;
    if (session->ephemeral && roll(play, 2))
        mcp_session_end(session); /* as the transport does */
}

static void play_trouble(struct play *play)
{
    struct stage *stage = play->stage;
    struct mcp_link *link = any_link(play);
    struct passing *passing = passing_of(stage->door);
    unsigned which = roll(play, 3);
    switch (roll(play, 8)) {
    case 0:
        if (link)
            fake_lose(link);
        break;
    case 1:
        mcp_session_end(play->sessions[which]);
        play->sessions[which] = legacy_session(stage, CAN_ALL);
        break;
    case 2: stage->one->state = stage->one->state == MCP_SERVER_DOWN ? MCP_SERVER_READY : MCP_SERVER_DOWN; break;
    case 3:
        if (passing->suspended)
            passing->suspended->expires_ms = 0;
        suspended_tick(passing);
        break;
    case 4:
        for (struct watch_uri *watch = passing->watches; watch; watch = watch->next)
            watch->retry_ms = 0;
        listens_tick(passing);
        break;
    case 5: mcp_forward_configured(stage->door); break;
    case 6:
        stage->engine.reply = (struct engine_reply){.kind = REPLY_NO_TOOL};
        fake_engine_reply(&stage->engine);
        break;
    default: lanes_tick(passing); break;
    }
}

static void play_one(struct stage *stage, uint64_t seed)
{
    static void (*const moves[])(struct play *) = {play_legacy, play_modern, play_server, play_server, play_ask,
                                                   play_answer, play_round,  play_notice, play_leave,  play_trouble};
    struct play play = {.stage = stage, .seed = seed * 2 + 1};
    stage->engine.later = true;
    stage->one->per_client = roll(&play, 2);
    add_modern(stage)->prefix = "b_";
    stage->two->per_client = roll(&play, 2);
    play.sessions[0] = stage->session;
    play.sessions[1] = legacy_session(stage, CAN_ALL);
    play.sessions[2] = legacy_session(stage, "{}");
    for (int i = 0; i < PLAY_STEPS; i++) {
        moves[roll(&play, sizeof moves / sizeof moves[0])](&play);
        play_look(&play);
        if (roll(&play, 3) == 0)
            turn(stage);
        assert_int_equal(stage->hub.server_count, 2);
    }
    mcp_door_free(stage->door);
    stage->door = NULL;
    for (size_t i = 0; i < play.question_count; i++) {
        assert_false(play.questions[i]->open);
        fake_question_release(play.questions[i]);
        free(play.questions[i]);
    }
}

/* MCP_FORWARD_SEEDS: how many games; MCP_FORWARD_SEED: one of them. */
static void test_random(void **state)
{
    (void)state;
    const char *count = getenv("MCP_FORWARD_SEEDS"), *one = getenv("MCP_FORWARD_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 0, last = one ? first + 1 : count ? strtoull(count, NULL, 10) : 40;
    enum log_level level = log_level();
    log_set_level(LOG_OFF);
    for (uint64_t seed = first; seed < last; seed++) {
        void *stage;
        fprintf(stderr, "seed %llu\r", (unsigned long long)seed);
        set_up(&stage);
        play_one(stage, seed);
        tear_down(&stage);
    }
    fputc('\n', stderr);
    log_set_level(level);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_tool_verbatim),
        TEST(test_tool_lost),
        TEST(test_modern_client),
        TEST(test_modern_both),
        TEST(test_legacy_client_modern_server),
        TEST(test_cancel),
        TEST(test_ask_legacy),
        TEST(test_ask_refused),
        TEST(test_suspend),
        TEST(test_suspend_then_cancel),
        TEST(test_suspend_alone),
        TEST(test_protected),
        TEST(test_protected_legacy),
        TEST(test_rounds),
        TEST(test_url_required),
        TEST(test_list_one),
        TEST(test_list_merged),
        TEST(test_not_offered),
        TEST(test_routes),
        cmocka_unit_test(test_templates),
        TEST(test_level),
        TEST(test_notices),
        TEST(test_subscribe),
        TEST(test_subscribe_modern_server),
        TEST(test_listen),
        TEST(test_listen_tasks),
        TEST(test_bounds),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
