/* Connections and links to MCP servers, judged by what a scripted server sees and by what is told, how often. */
#include "support/mcp_case.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- small things ---- */

static const char *new_record(struct mcp_case *mcp)
{
    char path[] = "/tmp/onced-record-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return arena_copy_text(&mcp->arena, path);
}

static const char *read_record(struct mcp_case *mcp, const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return arena_copy_text(&mcp->arena, text);
}

static unsigned occurrences(const char *text, const char *what)
{
    unsigned n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static bool has_asked(void *user)
{
    return ((struct mcp_heard *)user)->asked > 0;
}

static bool has_lost(void *user)
{
    return ((struct mcp_heard *)user)->lost > 0;
}

#define LEGACY "{'mcp':{'command':['SERVER','--era','legacy'],'protocol':'2025-11-25'}}"
#define MODERN "{'mcp':{'command':['SERVER','--era','modern'],'protocol':'2026-07-28'}}"

/* ---- what is written (pure) ---- */

static const char *enveloped(struct arena *arena, enum mcp_era era, const char *params, char **token)
{
    struct json *can, *info, *out = NULL;
    struct buf text;
    json_parse(arena, STR("{\"roots\":{}}"), NULL, &can, NULL);
    json_parse(arena, STR("{\"name\":\"n\"}"), NULL, &info, NULL);
    struct mcp_envelope envelope = {.era = era, .capabilities = can, .client_info = info, .token = STR("7")};
    struct err err = {0};
    if (mcp_envelope_params(arena, str_of(params), &envelope, &out, token, &err) != ERR_NONE)
        return arena_copy_text(arena, err.text);
    if (!out)
        return NULL;
    buf_init(&text, 0);
    json_write(&text, out);
    const char *copy = arena_copy_text(arena, text.p);
    buf_release(&text);
    return copy;
}

static void envelope_suits_the_era(void **state)
{
    (void)state;
    struct arena arena;
    char *token = NULL;
    arena_init(&arena);
    assert_null(enveloped(&arena, MCP_ERA_LEGACY, NULL, &token));
    assert_string_equal(enveloped(&arena, MCP_ERA_LEGACY, "{\"a\":1}", &token), "{\"a\":1}");
    assert_string_equal(enveloped(&arena, MCP_ERA_MODERN, NULL, &token),
                        "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
                        "\"io.modelcontextprotocol/clientCapabilities\":{\"roots\":{}},"
                        "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"n\"}}}");
    /* a modern client's own capabilities stay, its revision does not */
    assert_string_equal(enveloped(&arena, MCP_ERA_MODERN,
                                  "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"x\","
                                  "\"io.modelcontextprotocol/clientCapabilities\":{},\"traceparent\":\"t\"}}",
                                  &token),
                        "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
                        "\"io.modelcontextprotocol/clientCapabilities\":{},\"traceparent\":\"t\","
                        "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"n\"}}}");
    /* nothing of the modern era reaches a legacy server; an empty _meta goes */
    assert_string_equal(enveloped(&arena, MCP_ERA_LEGACY,
                                  "{\"b\":2,\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
                                  "\"io.modelcontextprotocol/clientCapabilities\":{},"
                                  "\"io.modelcontextprotocol/clientInfo\":{},"
                                  "\"io.modelcontextprotocol/logLevel\":\"info\"}}",
                                  &token),
                        "{\"b\":2}");
    assert_null(token);
    assert_string_equal(enveloped(&arena, MCP_ERA_LEGACY, "{\"_meta\":{\"progressToken\":\"mine\",\"x\":1}}", &token),
                        "{\"_meta\":{\"progressToken\":7,\"x\":1}}");
    assert_string_equal(token, "\"mine\"");
    free(token);
    assert_non_null(strstr(enveloped(&arena, MCP_ERA_LEGACY, "[1]", &token), "no object"));
    arena_release(&arena);
}

static void secrets_are_masked(void **state)
{
    (void)state;
    char *values[] = {(char *)"geheim", (char *)"geheimnis", (char *)"-----BEGIN\nMIIEvQ==\r\nend\n", NULL};
    const struct secrets secrets = {values, 3};
    struct buf out;
    buf_init(&out, 64);
    secrets_mask(&secrets, STR("a geheimnis\tb geheim c geh"), &out);
    assert_string_equal(out.p, "a *** b *** c geh");
    buf_reset(&out);
    secrets_mask(&secrets, STR("key MIIEvQ== end"), &out); /* its lines come one by one */
    assert_string_equal(out.p, "key *** end");
    buf_release(&out);
}

/* ---- handshakes ---- */

struct handshake {
    const char *name, *section;
    enum mcp_server_state state;
    enum mcp_era era;
    const char *version, *error; /* error: part of it */
};

static bool are_settled(void *user)
{
    const struct mcp_case *mcp = user;
    return mcp_hub_settled(mcp->hub);
}

static void check_handshakes(struct mcp_case *mcp, const struct handshake *items, size_t count)
{
    assert_true(mcp_case_wait(mcp, are_settled, mcp));
    for (size_t i = 0; i < count; i++) {
        struct mcp_server_info info = mcp_server_info(mcp_case_server(mcp, items[i].name));
        if (info.state != items[i].state)
            fail_msg("%s: state %d, %s", items[i].name, info.state, info.error ? info.error : "");
        if (items[i].error) {
            assert_non_null(info.error);
            if (!strstr(info.error, items[i].error))
                fail_msg("%s: %s", items[i].name, info.error);
            continue;
        }
        if (info.era != items[i].era)
            fail_msg("%s: era %d", items[i].name, info.era);
        assert_string_equal(info.version, items[i].version);
        assert_string_equal(json_get_text(info.server_info, "name").p, "scripted");
        assert_non_null(json_get(info.capabilities, "tools"));
    }
}

#define AUTO(options) "{'mcp':{'command':['SERVER'" options "]}}"

static void both_eras_are_found(void **state)
{
    (void)state;
    static const struct handshake items[] = {
        {"a-legacy", AUTO(",'--era','legacy'"), MCP_SERVER_READY, MCP_ERA_LEGACY, "2025-11-25", NULL},
        {"b-modern", AUTO(",'--era','modern'"), MCP_SERVER_READY, MCP_ERA_MODERN, "2026-07-28", NULL},
        {"c-both", AUTO(",'--era','both'"), MCP_SERVER_READY, MCP_ERA_MODERN, "2026-07-28", NULL},
        {"d-error", AUTO(",'--probe','error'"), MCP_SERVER_READY, MCP_ERA_LEGACY, "2025-11-25", NULL},
        {"e-exit", AUTO(",'--probe','exit'"), MCP_SERVER_READY, MCP_ERA_LEGACY, "2025-11-25", NULL},
        {"f-error-exit", AUTO(",'--probe','error_exit'"), MCP_SERVER_READY, MCP_ERA_LEGACY, "2025-11-25", NULL},
        {"g-empty", AUTO(",'--probe','empty'"), MCP_SERVER_READY, MCP_ERA_LEGACY, "2025-11-25", NULL},
        {"h-again", AUTO(",'--era','modern','--probe','version'"), MCP_SERVER_READY, MCP_ERA_MODERN, "2026-07-28",
         NULL},
    };
    struct mcp_case mcp;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, items[0].name, items[0].section, items[1].name, items[1].section, items[2].name,
                   items[2].section, items[3].name, items[3].section, items[4].name, items[4].section, items[5].name,
                   items[5].section, items[6].name, items[6].section, items[7].name, items[7].section, NULL);
    check_handshakes(&mcp, items, 8);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(mcp_server_info(mcp_case_server(&mcp, items[i].name)).restarts, 0);
    mcp_case_end(&mcp);
}

static void slow_and_fixed_ones_too(void **state)
{
    (void)state;
    static const struct handshake items[] = {
        /* no answer to the probe at all */
        {"a-ignore", AUTO(",'--probe','ignore'"), MCP_SERVER_READY, MCP_ERA_LEGACY, "2025-11-25", NULL},
        /* the probe is given up before the server has started; its late answer and the refusal of initialize tell */
        {"b-slow", AUTO(",'--era','modern','--start-ms','800'"), MCP_SERVER_READY, MCP_ERA_MODERN, "2026-07-28", NULL},
        {"c-slow", AUTO(",'--era','both','--start-ms','800'"), MCP_SERVER_READY, MCP_ERA_LEGACY, "2025-11-25", NULL},
        {"d-old", "{'mcp':{'command':['SERVER','--version','2024-11-05'],'protocol':'2025-06-18'}}", MCP_SERVER_READY,
         MCP_ERA_LEGACY, "2024-11-05", NULL},
        {"e-wrong", "{'mcp':{'command':['SERVER','--era','legacy'],'protocol':'2026-07-28'}}", MCP_SERVER_DOWN,
         MCP_ERA_ANY, NULL, "server/discover: error -32601"},
        {"f-wrong", "{'mcp':{'command':['SERVER','--era','modern'],'protocol':'2025-11-25'}}", MCP_SERVER_DOWN,
         MCP_ERA_ANY, NULL, "initialize: error -32022"},
        {"g-future", AUTO(",'--version','2031-01-01'"), MCP_SERVER_DOWN, MCP_ERA_ANY, NULL, "revision 2031-01-01"},
        {"h-silent", "{'mcp':{'command':['SERVER','--silent','1'],'start_timeout':'300ms','protocol':'2025-11-25'}}",
         MCP_SERVER_DOWN, MCP_ERA_ANY, NULL, "did not answer within 300 ms"},
    };
    struct mcp_case mcp;
    mcp_case_begin(&mcp);
    mcp.hub->pace.probe_ms = 400;
    mcp_case_apply(&mcp, items[0].name, items[0].section, items[1].name, items[1].section, items[2].name,
                   items[2].section, items[3].name, items[3].section, NULL);
    check_handshakes(&mcp, items, 4);
    mcp_case_apply(&mcp, items[4].name, items[4].section, items[5].name, items[5].section, items[6].name,
                   items[6].section, items[7].name, items[7].section, NULL);
    for (size_t i = 4; i < 8; i++) {
        assert_true(mcp_case_wait_state(&mcp, items[i].name, MCP_SERVER_DOWN));
        assert_non_null(strstr(mcp_server_info(mcp_case_server(&mcp, items[i].name)).error, items[i].error));
    }
    mcp_case_end(&mcp);
}

static void requests_wait_for_the_handshake(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", AUTO(",'--start-ms','100'"), NULL);
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    assert_int_equal(mcp_server_info(mcp_link_server(link)).state, MCP_SERVER_STARTING);
    mcp_case_call(&mcp, link, "echo", "{'x':1}", &reply);
    assert_int_equal(reply.end, MCP_ANSWERED);
    assert_string_equal(reply.words, "{\"name\":\"echo\",\"arguments\":{\"x\":1}}");
    assert_int_equal(mcp_link_era(link), MCP_ERA_LEGACY);
    mcp_link_close(link);
    mcp_case_end(&mcp);
}

static void what_a_client_can_reaches_the_server(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    const char *record = new_record(&mcp);
    const char *own =
        arena_printf(&mcp.arena, "{'mcp':{'command':['SERVER','--record','%s'],'sessions':'per_client'}}", record);
    mcp_case_apply(&mcp, "m", MODERN, "p", own, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link_options options = {.era = MCP_ERA_ANY,
                                       .version = "2025-06-18",
                                       .capabilities = STR("{\"sampling\":{\"tools\":{}}}"),
                                       .client_info = STR("{\"name\":\"upstream\",\"version\":\"9\"}")};
    /* modern: with every request */
    struct mcp_link *link = mcp_case_open(&mcp, "m", &heard, &options);
    mcp_case_call(&mcp, link, "echo", "{}", &reply);
    assert_non_null(strstr(reply.words, "clientCapabilities\":{\"sampling\":{\"tools\":{}}}"));
    assert_non_null(strstr(reply.words, "clientInfo\":{\"name\":\"upstream\""));
    assert_non_null(strstr(reply.words, "protocolVersion\":\"2026-07-28\""));
    mcp_link_close(link);
    /* legacy with a connection of its own: in the handshake. The shared one can everything. */
    struct mcp_link *private = mcp_case_open(&mcp, "p", &heard, &options);
    mcp_case_call(&mcp, private, "echo", "{}", &reply);
    const char *text = read_record(&mcp, record);
    assert_non_null(strstr(text, "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"sampling\":{\"tools\":{}}},"
                                 "\"clientInfo\":{\"name\":\"upstream\",\"version\":\"9\"}"));
    assert_non_null(
        strstr(text, "\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"roots\":{\"listChanged\":true}"));
    assert_int_equal(occurrences(text, "notifications/initialized"), 2);
    assert_int_equal(occurrences(text, "server/discover"), 1); /* what the first one found out holds */
    mcp_link_close(private);
    unlink(record);
    mcp_case_end(&mcp);
}

/* ---- requests ---- */

static void progress_comes_back_in_the_token_given(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "l", LEGACY, "m", MODERN, NULL);
    for (int i = 0; i < 2; i++) {
        struct mcp_link *link = mcp_case_open(&mcp, i ? "m" : "l", &heard, NULL);
        mcp_case_request(&mcp, link, "tools/call",
                         "{'name':'progress','arguments':{'count':3},'_meta':{'progressToken':'mine'}}", 9000, &reply);
        assert_true(mcp_case_wait_reply(&mcp, &reply));
        assert_int_equal(heard.notified, 3);
        assert_string_equal(heard.last_method, "notifications/progress");
        assert_string_equal(heard.last_params, "{\"progressToken\":\"mine\",\"progress\":3,\"total\":3}");
        assert_ptr_equal(heard.last_user, &reply);
        mcp_link_close(link);
    }
    mcp_case_end(&mcp);
}

static void progress_renews_the_time_out(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply renewed, fixed;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "a", LEGACY, "b", "{'mcp':{'command':['SERVER'],'protocol':'2025-06-18'}}", NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    static const char params[] =
        "{'name':'progress','arguments':{'count':7,'pause_ms':300},'_meta':{'progressToken':1}}";
    struct mcp_heard other = {0};
    struct mcp_link *a = mcp_case_open(&mcp, "a", &heard, NULL), *b = mcp_case_open(&mcp, "b", &other, NULL);
    mcp_case_request(&mcp, a, "tools/call", params, 1500, &renewed);
    fixed = (struct mcp_reply){.mcp = &mcp};
    mcp_case_request(&mcp, b, "tools/call", params, 1500, &fixed)->renew = false;
    assert_true(mcp_case_wait_reply(&mcp, &fixed));
    assert_int_equal(fixed.end, MCP_TIMED_OUT);
    assert_true(fixed.sent);
    assert_true(mcp_case_wait_reply(&mcp, &renewed));
    assert_int_equal(renewed.end, MCP_ANSWERED);
    mcp_link_close(a);
    mcp_link_close(b);
    mcp_case_end(&mcp);
}

static void cancellation_is_told_and_told_back(void **state)
{
    (void)state;
    static const char *const eras[] = {"legacy", "modern"}, *const versions[] = {"2025-11-25", "2026-07-28"};
    for (int i = 0; i < 2; i++) {
        struct mcp_case mcp;
        struct mcp_heard heard = {0};
        struct mcp_reply cancelled, slow, unsent, forgotten;
        mcp_case_begin(&mcp);
        const char *record = new_record(&mcp);
        const char *section =
            arena_printf(&mcp.arena, "{'mcp':{'command':['SERVER','--era','%s','--record','%s'],'protocol':'%s'}}",
                         eras[i], record, versions[i]);
        mcp_case_apply(&mcp, "s", section, NULL);
        struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
        mcp_pending_cancel(mcp_case_request(&mcp, link, "tools/call", "{'name':'never'}", 0, &unsent), "early");
        assert_true(mcp_case_wait_reply(&mcp, &unsent));
        assert_int_equal(unsent.end, MCP_CANCELLED);
        assert_false(unsent.sent);
        assert_true(mcp_case_wait_settled(&mcp));
        struct mcp_pending *pending =
            mcp_case_request(&mcp, link, "tools/call", "{'name':'slow','arguments':{'ms':100}}", 0, &cancelled);
        mcp_pending_cancel(pending, "the user \"left\"");
        assert_true(mcp_case_wait_reply(&mcp, &cancelled));
        assert_int_equal(cancelled.end, MCP_CANCELLED);
        assert_true(cancelled.sent);
        mcp_case_request(&mcp, link, "tools/call", "{'name':'never'}", 60, &slow);
        assert_true(mcp_case_wait_reply(&mcp, &slow));
        assert_int_equal(slow.end, MCP_TIMED_OUT);
        mcp_pending_forget(mcp_case_request(&mcp, link, "tools/call", "{'name':'echo'}", 0, &forgotten));
        mcp_case_turn(&mcp, 150); /* the late answer means nothing */
        assert_int_equal(cancelled.count, 1);
        assert_int_equal(slow.count, 1);
        assert_int_equal(forgotten.count, 0);
        const char *text = read_record(&mcp, record);
        assert_int_equal(occurrences(text, "notifications/cancelled"), 2);
        assert_non_null(strstr(text, "\"reason\":\"the user \\\"left\\\"\""));
        assert_int_equal(occurrences(text, "\"never\""), 1);
        mcp_link_close(link);
        unlink(record);
        mcp_case_end(&mcp);
    }
}

static void too_many_requests_are_refused(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    static struct mcp_reply replies[MCP_PENDING_MAX];
    struct mcp_reply over;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    for (size_t i = 0; i < MCP_PENDING_MAX; i++)
        mcp_case_request(&mcp, link, "tools/call", "{'name':'never'}", 0, &replies[i]);
    mcp_case_request(&mcp, link, "tools/call", "{'name':'echo'}", 0, &over);
    assert_true(mcp_case_wait_reply(&mcp, &over));
    assert_int_equal(over.end, MCP_LOST);
    assert_false(over.sent);
    assert_non_null(strstr(over.text, "too many requests"));
    mcp_link_close(link);
    for (size_t i = 0; i < MCP_PENDING_MAX; i++) {
        assert_int_equal(replies[i].count, 1);
        assert_int_equal(replies[i].end, MCP_LOST);
        assert_true(replies[i].sent);
    }
    mcp_case_end(&mcp);
}

/* ---- what servers ask and tell ---- */

static const struct mcp_link_options sampler = {
    .era = MCP_ERA_ANY, .session = 1, .capabilities = {"{\"sampling\":{}}", 15}};

static void questions_reach_the_client_at_work(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard able = {0}, unable = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    able.answer = "{\"role\":\"assistant\"}";
    struct mcp_link *a = mcp_case_open(&mcp, "s", &able, &sampler), *b = mcp_case_open(&mcp, "s", &unable, NULL);
    mcp_case_call(&mcp, a, "ask", NULL, &reply);
    assert_string_equal(reply.words, "{\"role\":\"assistant\"}");
    assert_int_equal(able.asked, 1);
    assert_string_equal(able.last_method, "sampling/createMessage");
    assert_ptr_equal(able.last_user, &reply);
    /* the client that called cannot, and no other is asked in its place */
    mcp_case_call(&mcp, b, "ask", NULL, &reply);
    assert_string_equal(reply.words, "refused -32601");
    mcp_case_call(&mcp, b, "ask", "{'method':'roots/list'}", &reply);
    assert_string_equal(reply.words, "{\"roots\":[]}");
    mcp_case_call(&mcp, b, "ask", "{'method':'ping'}", &reply);
    assert_string_equal(reply.words, "{}");
    /* two at work: the one that can, though the other was later */
    struct mcp_reply waiting, asking;
    mcp_case_request(&mcp, a, "tools/call", "{'name':'slow','arguments':{'ms':300}}", 9000, &waiting);
    mcp_case_request(&mcp, b, "tools/call", "{'name':'ask'}", 9000, &asking);
    assert_true(mcp_case_wait_reply(&mcp, &asking));
    assert_string_equal(asking.words, "{\"role\":\"assistant\"}");
    assert_ptr_equal(able.last_user, &waiting);
    assert_int_equal(unable.asked, 0);
    assert_true(mcp_case_wait_reply(&mcp, &waiting));
    mcp_link_close(a);
    mcp_link_close(b);
    mcp_case_end(&mcp);
}

static void questions_end_one_way_or_another(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0}, other = {0};
    struct mcp_reply reply, kept;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, &sampler);
    /* answered later, with an error */
    mcp_case_request(&mcp, link, "tools/call", "{'name':'ask'}", 9000, &reply);
    assert_true(mcp_case_wait(&mcp, has_asked, &heard));
    mcp_answer(heard.question, STR_NONE, -1, STR("user rejected"));
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_string_equal(reply.words, "refused -1");
    /* withdrawn by the server */
    mcp_case_call(&mcp, link, "ask", "{'withdraw':true}", &reply);
    assert_string_equal(reply.words, "withdrawn");
    assert_int_equal(heard.withdrawn, 1);
    /* the client that was asked leaves */
    struct mcp_link *stays = mcp_case_open(&mcp, "s", &other, &sampler);
    mcp_case_request(&mcp, link, "tools/call", "{'name':'ask'}", 9000, &kept);
    heard.asked = 0;
    assert_true(mcp_case_wait(&mcp, has_asked, &heard));
    mcp_link_close(link);
    assert_int_equal(kept.count, 1);
    assert_int_equal(kept.end, MCP_LOST);
    mcp_case_call(&mcp, stays, "echo", NULL, &reply);
    /* the server goes */
    mcp_case_request(&mcp, stays, "tools/call", "{'name':'ask'}", 9000, &kept);
    other.asked = 0;
    assert_true(mcp_case_wait(&mcp, has_asked, &other));
    mcp_case_request(&mcp, stays, "tools/call", "{'name':'crash'}", 9000, &reply);
    assert_true(mcp_case_wait(&mcp, has_lost, &other));
    assert_int_equal(other.withdrawn, 1);
    assert_int_equal(kept.count, 1);
    assert_int_equal(kept.end, MCP_LOST);
    assert_true(kept.sent);
    mcp_link_close(stays);
    mcp_case_end(&mcp);
}

static void logs_go_to_the_client_at_work(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard first = {0}, second = {0};
    struct mcp_reply reply, slow;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link *a = mcp_case_open(&mcp, "s", &first, NULL), *b = mcp_case_open(&mcp, "s", &second, NULL);
    mcp_case_call(&mcp, a, "log", NULL, &reply);
    assert_int_equal(first.notified, 1);
    assert_int_equal(second.notified, 0);
    assert_ptr_equal(first.last_user, &reply);
    mcp_case_request(&mcp, b, "tools/call", "{'name':'slow'}", 9000, &slow);
    mcp_case_call(&mcp, a, "log", NULL, &reply); /* whose it is cannot be told */
    assert_int_equal(first.notified, 2);
    assert_int_equal(second.notified, 1);
    assert_null(first.last_user);
    assert_true(mcp_case_wait_reply(&mcp, &slow));
    mcp_link_close(a);
    mcp_link_close(b);
    mcp_case_end(&mcp);
}

/* ---- attempts ---- */

static void attempt_done(void *user, const struct mcp_outcome *outcome)
{
    struct mcp_reply *reply = user;
    reply->count++;
    reply->end = outcome->end;
    reply->sent = outcome->sent;
}

static void send_attempt(struct mcp_case *mcp, const char *params, struct adapter_origin origin,
                         struct mcp_reply *reply)
{
    struct err err = {0};
    *reply = (struct mcp_reply){.mcp = mcp};
    struct mcp_link *link = mcp_server_attempt_link(mcp_case_server(mcp, "s"), origin, &err);
    assert_non_null(link);
    mcp_link_attempt(
        link,
        &(struct mcp_request_options){
            .method = "tools/call", .params = str_of(params), .timeout_ms = 9000, .done = attempt_done, .user = reply},
        origin);
}

static void messages_about_attempts_name_their_origin(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard hub = {0}, client = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    hub.mcp = &mcp;
    hub.answer = "{\"by\":\"hub\"}";
    mcp_hub_set_listener(mcp.hub, &mcp_case_listener, &hub);
    mcp_case_apply(&mcp, "s", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    send_attempt(&mcp, "{\"name\":\"progress\",\"_meta\":{\"progressToken\":5}}", (struct adapter_origin){7, 5},
                 &reply);
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_int_equal(hub.notified, 3);
    assert_int_equal(hub.last_origin.session, 7);
    assert_int_equal(hub.last_origin.call, 5);
    assert_non_null(strstr(hub.last_params, "\"progressToken\":5,"));
    send_attempt(&mcp, "{\"name\":\"ask\"}", (struct adapter_origin){7, 6}, &reply);
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_int_equal(hub.asked, 1);
    assert_int_equal(hub.last_origin.call, 6);
    /* nobody is behind it: nobody is asked */
    send_attempt(&mcp, "{\"name\":\"ask\"}", (struct adapter_origin){0, 0}, &reply);
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_int_equal(hub.asked, 1);
    /* the client's own link is used; when it leaves, its attempt goes on */
    struct mcp_link_options options = sampler;
    options.session = 7;
    struct mcp_link *link = mcp_case_open(&mcp, "s", &client, &options);
    assert_ptr_equal(mcp_server_attempt_link(mcp_link_server(link), (struct adapter_origin){7, 9}, NULL), link);
    send_attempt(&mcp, "{\"name\":\"slow\",\"arguments\":{\"ms\":150}}", (struct adapter_origin){7, 9}, &reply);
    assert_int_equal(link->pending_count, 1);
    mcp_link_close(link);
    assert_int_equal(reply.count, 0);
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_int_equal(reply.end, MCP_ANSWERED);
    mcp_case_end(&mcp);
}

static void an_attempt_outlives_its_clients_connection(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard client = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", "{'mcp':{'command':['SERVER'],'protocol':'2025-11-25','sessions':'per_client'}}", NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link_options options = sampler;
    struct mcp_server *server = mcp_case_server(&mcp, "s");
    struct mcp_link *link = mcp_case_open(&mcp, "s", &client, &options);
    struct mcp_reply echo;
    mcp_case_call(&mcp, link, "echo", NULL, &echo);
    assert_non_null(server->connections->next); /* one of its own */
    send_attempt(&mcp, "{\"name\":\"slow\",\"arguments\":{\"ms\":150}}", (struct adapter_origin){1, 9}, &reply);
    mcp_link_close(link);
    assert_non_null(server->connections->next);
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_int_equal(reply.end, MCP_ANSWERED);
    assert_null(server->connections->next); /* ended with its last request */
    mcp_case_end(&mcp);
}

/* ---- lists and reloads ---- */

static size_t listed(struct mcp_case *mcp, const char *server)
{
    const struct json *catalog = mcp_hub_catalog(mcp->hub, &mcp->arena);
    const struct json *tools = json_get(json_get(catalog, server), "tools");
    return tools ? tools->count : 0;
}

struct count_of {
    struct mcp_case *mcp;
    const char *server;
    size_t count;
};

static bool has_count(void *user)
{
    const struct count_of *wanted = user;
    return listed(wanted->mcp, wanted->server) == wanted->count;
}

static void lists_are_whole_and_kept_up_to_date(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "l", "{'mcp':{'command':['SERVER','--tools','40','--page','7']}}", "m",
                   "{'mcp':{'command':['SERVER','--era','modern','--tools','3']}}", NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    mcp_case_turn(&mcp, 20);
    size_t own = listed(&mcp, "m") - 3;
    assert_int_equal(listed(&mcp, "l"), own + 40);
    unsigned changes = mcp.catalog_changes;
    assert_in_range(changes, 1, 2);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "m" : "l";
        struct mcp_link *link = mcp_case_open(&mcp, name, &heard, NULL);
        mcp_case_call(&mcp, link, "grow", "{'by':2}", &reply);
        assert_true(mcp_case_wait(&mcp, has_count, &(struct count_of){&mcp, name, own + (i ? 5 : 42)}));
        assert_int_equal(heard.notified, 1); /* the link hears of it as well */
        assert_string_equal(heard.last_method, "notifications/tools/list_changed");
        mcp_case_turn(&mcp, 20);
        assert_int_equal(mcp.catalog_changes, ++changes);
        mcp_link_close(link);
    }
    assert_non_null(mcp_server_tool(mcp_case_server(&mcp, "l"), STR("extra_41")));
    assert_null(mcp_server_tool(mcp_case_server(&mcp, "l"), STR("extra_42")));
    /* a list that says the same changes nothing */
    mcp_server_relist(mcp_case_server(&mcp, "l"));
    mcp_server_relist(mcp_case_server(&mcp, "l"));
    mcp_case_turn(&mcp, 100);
    assert_int_equal(mcp.catalog_changes, changes);
    mcp_case_end(&mcp);
}

static void a_flood_of_changes_is_listed_now_and_then(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    const char *record = new_record(&mcp);
    const char *section =
        arena_printf(&mcp.arena, "{'mcp':{'command':['SERVER','--record','%s'],'protocol':'2025-11-25'}}", record);
    mcp_case_apply(&mcp, "s", section, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    size_t own = listed(&mcp, "s");
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, NULL);
    for (int i = 0; i < 100; i++)
        mcp_case_call(&mcp, link, "grow", NULL, &reply);
    assert_true(mcp_case_wait(&mcp, has_count, &(struct count_of){&mcp, "s", own + 100}));
    assert_in_range(occurrences(read_record(&mcp, record), "tools/list"), 2, 12);
    mcp_link_close(link);
    unlink(record);
    mcp_case_end(&mcp);
}

static void messages_are_one_line_each(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    heard.answer = "{\n\"role\":\r\n\"assistant\"}";
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, &sampler);
    mcp_link_notify(link, "notifications/roots/list_changed", STR("{\n \"a\":\n1}"));
    mcp_case_request(&mcp, link, "tools/call", "{'name':\n'ask'\n}", 9000, &reply);
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_string_equal(reply.words, "{\"role\":\"assistant\"}");
    mcp_link_close(link);
    mcp_case_end(&mcp);
}

static void a_reload_keeps_what_is_the_same(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0}, gone = {0};
    struct mcp_reply slow, reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "a", LEGACY, "b", LEGACY, "c", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_server *a = mcp_case_server(&mcp, "a"), *b = mcp_case_server(&mcp, "b");
    struct mcp_link *link_b = mcp_case_open(&mcp, "b", &heard, NULL), *link_c = mcp_case_open(&mcp, "c", &gone, NULL);
    mcp_case_request(&mcp, link_b, "tools/call", "{'name':'slow','arguments':{'ms':300}}", 9000, &slow);
    mcp_case_apply(&mcp, "a", LEGACY, "b", "{'mcp':{'command':['SERVER','--tools','1'],'protocol':'2025-11-25'}}",
                   NULL);
    assert_ptr_equal(mcp_case_server(&mcp, "a"), a);
    assert_ptr_not_equal(mcp_case_server(&mcp, "b"), b);
    assert_null(mcp_hub_find(mcp.hub, "c"));
    assert_int_equal(gone.lost, 1); /* nothing was under way there */
    mcp_link_close(link_c);
    assert_int_equal(listed(&mcp, "b"), 0); /* another section, another server */
    /* the request under way ends in its own time, then the process goes */
    assert_int_equal(heard.lost, 0);
    assert_true(mcp_case_wait_reply(&mcp, &slow));
    assert_int_equal(slow.end, MCP_ANSWERED);
    assert_int_equal(heard.lost, 1);
    struct err err = {0};
    assert_null(mcp_link_open(b, &(struct mcp_link_options){0}, &err));
    mcp_case_request(&mcp, link_b, "tools/list", NULL, 0, &reply); /* over a link that is lost */
    assert_true(mcp_case_wait_reply(&mcp, &reply));
    assert_int_equal(reply.end, MCP_LOST);
    assert_false(reply.sent);
    mcp_link_close(link_b);
    assert_null(mcp.hub->retired);
    assert_true(mcp_case_wait_state(&mcp, "b", MCP_SERVER_READY));
    mcp_case_end(&mcp);
}

static void closing_tells_everyone_once(void **state)
{
    (void)state;
    struct mcp_case mcp;
    struct mcp_heard heard = {0};
    struct mcp_reply reply;
    mcp_case_begin(&mcp);
    mcp_case_apply(&mcp, "s", LEGACY, NULL);
    assert_true(mcp_case_wait_settled(&mcp));
    struct mcp_link *link = mcp_case_open(&mcp, "s", &heard, &sampler);
    mcp_case_request(&mcp, link, "tools/call", "{'name':'never'}", 0, &reply);
    mcp_case_turn(&mcp, 20);
    mcp_case_end(&mcp);
    assert_int_equal(reply.count, 1);
    assert_int_equal(reply.end, MCP_LOST);
    assert_true(reply.sent);
    assert_int_equal(heard.lost, 1);
    assert_null(mcp_link_server(link));
    mcp_link_close(link); /* later than the hub */
}

/* ---- owners do as they like from within ---- */

struct closer {
    struct mcp_case *mcp;
    struct mcp_link *links[3];
    unsigned told;
};

static void close_links(struct closer *closer)
{
    for (size_t i = 0; i < 3; i++) {
        struct mcp_link *link = closer->links[i];
        closer->links[i] = NULL; /* closing calls back */
        if (link)
            mcp_link_close(link);
    }
}

static void close_when_notified(void *user, struct mcp_link *link, const struct mcp_related *related,
                                const struct rpc_message *message)
{
    struct closer *closer = user;
    (void)link;
    (void)related;
    (void)message;
    closer->told++;
    close_links(closer);
}

static void close_when_asked(void *user, struct mcp_link *link, const struct mcp_related *related,
                             const struct rpc_message *message, struct mcp_question *question)
{
    (void)question; /* answered with the link's end */
    close_when_notified(user, link, related, message);
}

static void close_when_lost(void *user, struct mcp_link *link, const char *why)
{
    struct closer *closer = user;
    (void)link;
    (void)why;
    closer->told++;
    close_links(closer);
}

static void close_when_done(void *user, const struct mcp_outcome *outcome)
{
    struct closer *closer = user;
    (void)outcome;
    closer->told++;
    close_links(closer);
}

static bool was_told(void *user)
{
    return ((struct closer *)user)->told > 0;
}

static void callbacks_may_close_links(void **state)
{
    (void)state;
    static const struct mcp_listener listener = {close_when_notified, close_when_asked, NULL, close_when_lost};
    static const char *const calls[] = {"{\"name\":\"log\"}", "{\"name\":\"grow\"}", "{\"name\":\"ask\"}",
                                        "{\"name\":\"crash\"}", "{\"name\":\"echo\"}"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct mcp_case mcp;
        struct closer closer = {.mcp = &mcp};
        mcp_case_begin(&mcp);
        mcp_case_apply(&mcp, "s", LEGACY, NULL);
        assert_true(mcp_case_wait_settled(&mcp));
        struct mcp_link_options options = sampler;
        options.listener = &listener;
        options.user = &closer;
        for (size_t k = 0; k < 3; k++)
            closer.links[k] = mcp_link_open(mcp_case_server(&mcp, "s"), &options, NULL);
        mcp_link_request(closer.links[1], &(struct mcp_request_options){.method = "tools/call",
                                                                        .params = str_of(calls[i]),
                                                                        .done = close_when_done,
                                                                        .user = &closer});
        assert_true(mcp_case_wait(&mcp, was_told, &closer));
        mcp_case_turn(&mcp, 20);
        assert_in_range(closer.told, 1, 2); /* the request may have been told on the way */
        assert_int_equal(mcp_case_server(&mcp, "s")->link_count, 0);
        mcp_case_end(&mcp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(envelope_suits_the_era),
        cmocka_unit_test(secrets_are_masked),
        cmocka_unit_test(both_eras_are_found),
        cmocka_unit_test(slow_and_fixed_ones_too),
        cmocka_unit_test(requests_wait_for_the_handshake),
        cmocka_unit_test(what_a_client_can_reaches_the_server),
        cmocka_unit_test(progress_comes_back_in_the_token_given),
        cmocka_unit_test(progress_renews_the_time_out),
        cmocka_unit_test(cancellation_is_told_and_told_back),
        cmocka_unit_test(too_many_requests_are_refused),
        cmocka_unit_test(questions_reach_the_client_at_work),
        cmocka_unit_test(questions_end_one_way_or_another),
        cmocka_unit_test(logs_go_to_the_client_at_work),
        cmocka_unit_test(messages_about_attempts_name_their_origin),
        cmocka_unit_test(an_attempt_outlives_its_clients_connection),
        cmocka_unit_test(lists_are_whole_and_kept_up_to_date),
        cmocka_unit_test(a_flood_of_changes_is_listed_now_and_then),
        cmocka_unit_test(messages_are_one_line_each),
        cmocka_unit_test(a_reload_keeps_what_is_the_same),
        cmocka_unit_test(closing_tells_everyone_once),
        cmocka_unit_test(callbacks_may_close_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
