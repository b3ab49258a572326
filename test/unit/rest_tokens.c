/* The REST door: tokens, their roles and limits, signed tokens. */
#include "rest_stage.h"

#include "core/identity.h"
#include "door/auth.h"
#include "door/links.h"
#include "support/jwt_vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- tokens ---- */

static const char *make_token(struct stage *stage, const char *tenant, const char *principal, enum role role)
{
    static char header[200];
    char secret[AUTH_TOKEN_SIZE];
    struct digest hash;
    auth_token_make(env_system(), secret, &hash);
    struct token *token = &stage->engine.tokens[stage->engine.token_count];
    *token = (struct token){.id = strdup(stage->engine.token_count ? "tok_2" : "tok_1"),
                            .tenant = strdup(tenant),
                            .principal = strdup(principal),
                            .role = role,
                            .secret_hash = hash,
                            .created_ms = NOW};
    stage->engine.token_count++;
    snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", secret);
    return header;
}

static void test_token_wanted(void **state)
{
    struct stage *stage = *state;
    ask_rest(stage, "GET", "/v1/tools", "", NULL);
    expect_problem(stage, 401, "unauthorized");
    assert_string_equal(http_answer_header(&stage->answer, "WWW-Authenticate"), "Bearer realm=\"onced\"");
    static const char *const bad[] = {"Authorization: Basic abc\r\n", "Authorization: Bearer\r\n",
                                      "Authorization: Bearer nope\r\n",
                                      "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask_rest(stage, "GET", "/v1/tools", bad[i], NULL);
        expect_problem(stage, 401, "unauthorized");
    }
    assert_int_equal(ask_rest(stage, "GET", "/healthz", "", NULL), 200);
    assert_int_equal(ask_rest(stage, "GET", "/openapi.json", "", NULL), 200);
    stage->engine.ledger_code = ERR_UNAVAILABLE;
    ask_rest(stage, "GET", "/v1/tools", "Authorization: Bearer nope\r\n", NULL);
    expect_problem(stage, 503, "unavailable");
}

/* A large body is refused before anybody asks the ledger about the token: nothing is under way when the connection
 * ends. */
static void test_token_large(void **state)
{
    struct stage *stage = *state;
    char *far = large_call(5 * 1024 * 1024), headers[300];
    stage->engine.ledger_later = true;
    snprintf(headers, sizeof headers, "%s", make_token(stage, "default", "a", ROLE_AGENT));
    assert_int_equal(call(stage, headers, far), 413);
    assert_null(stage->engine.queue);
    free(far);
}

/* Which role may what: one row per route. */
static void test_roles(void **state)
{
    struct stage *stage = *state;
    char headers[4][200];
    static const enum role roles[] = {ROLE_AGENT, ROLE_APPROVER, ROLE_OPERATOR, ROLE_ADMIN};
    for (int i = 0; i < 4; i++)
        snprintf(headers[i], sizeof headers[i], "%s" JSON_TYPE, make_token(stage, "default", "local", roles[i]));
    static const struct {
        const char *method, *path, *body;
        bool may[4];
    } rows[] = {
        {"POST", "/v1/calls", "{\"tool\":\"t\"}", {true, false, true, true}},
        {"GET", "/v1/operations", NULL, {true, true, true, true}},
        {"GET", "/v1/operations/" OP_1, NULL, {true, true, true, true}},
        {"POST",
         "/v1/operations/" OP_1 "/resolve",
         "{\"version\":1,\"happened\":true,\"note\":\"n\"}",
         {false, false, true, true}},
        {"POST", "/v1/operations/" OP_1 "/retry", "", {false, false, true, true}},
        {"POST", "/v1/operations/" OP_1 "/cancel", "", {true, false, true, true}},
        {"GET", "/v1/incidents", NULL, {false, false, true, true}},
        {"GET", "/v1/stats", NULL, {false, false, true, true}},
        {"GET", "/v1/tools", NULL, {true, true, true, true}},
        {"GET", "/v1/tokens", NULL, {false, false, false, true}},
        {"POST", "/v1/tokens", "{\"principal\":\"p\",\"role\":\"agent\"}", {false, false, false, true}},
        {"DELETE", "/v1/tokens/tok_9", NULL, {false, false, false, true}},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        for (int i = 0; i < 4; i++) {
            int status = ask_rest(stage, rows[row].method, rows[row].path, headers[i], rows[row].body);
            if ((status != 403) != rows[row].may[i])
                fail_msg("%s %s as %s: %d", rows[row].method, rows[row].path, role_name(roles[i]), status);
        }
    }
}

static void test_agent_sees(void **state)
{
    struct stage *stage = *state;
    char agent[200];
    snprintf(agent, sizeof agent, "%s", make_token(stage, "default", "local", ROLE_AGENT));
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_1, agent, NULL), 200);
    expect_shape(stage, "Operation");
    assert_null(member(stage, "/key"));
    assert_null(member(stage, "/arguments"));
    expect(stage, "/result/id", "re_1");
    /* Another principal's: the state, not the result. */
    stage->other.state = STATE_COMPLETED_SUCCESS;
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_2, agent, NULL), 200);
    expect_shape(stage, "Operation");
    expect(stage, "/status", "completed_success");
    expect(stage, "/result", "null");
    expect(stage, "/external_id", "null");
    expect(stage, "/note", "the result belongs to somebody and is not shown");
    stage->other.tool = "order.cancel"; /* share_result: tenant */
    ask_rest(stage, "GET", "/v1/operations/" OP_2, agent, NULL);
    expect(stage, "/result/id", "re_1");
    stage->other.tool = "refund.create";
    stage->other.key_source = KEY_SOURCE_BUSINESS; /* shared by default */
    ask_rest(stage, "GET", "/v1/operations/" OP_2, agent, NULL);
    expect(stage, "/result/id", "re_1");
    ask_rest(stage, "POST", "/v1/operations/" OP_2 "/cancel", agent, "");
    expect_problem(stage, 403, "forbidden");
    assert_int_equal(ask_rest(stage, "POST", "/v1/operations/" OP_1 "/cancel", agent, ""), 200);
    char lying[300];
    snprintf(lying, sizeof lying, "%sOnced-Tenant: other\r\n", agent);
    ask_rest(stage, "GET", "/v1/operations", lying, NULL);
    expect_problem(stage, 403, "forbidden");
    snprintf(agent, sizeof agent, "%s", make_token(stage, "other", "local", ROLE_ADMIN));
    ask_rest(stage, "GET", "/v1/operations/" OP_1, agent, NULL);
    expect_problem(stage, 404, "not_found");
}

static void test_token_cache(void **state)
{
    struct stage *stage = *state;
    char agent[200];
    snprintf(agent, sizeof agent, "%s", make_token(stage, "default", "local", ROLE_ADMIN));
    for (int i = 0; i < 5; i++)
        assert_int_equal(ask_rest(stage, "GET", "/v1/tools", agent, NULL), 200);
    assert_int_equal(stage->engine.token_looks, 1);
    /* Revoked by another process: seen when the memory has faded. */
    stage->engine.tokens[0].revoked_ms = NOW;
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools", agent, NULL), 200);
    stage->engine.now_ms += AUTH_CACHE_MS;
    ask_rest(stage, "GET", "/v1/tools", agent, NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "revoked");
    stage->engine.tokens[0].revoked_ms = 0;
    stage->engine.tokens[0].expires_ms = stage->engine.now_ms + 2000;
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools", agent, NULL), 200);
    stage->engine.now_ms += 2000; /* expires while it is remembered */
    ask_rest(stage, "GET", "/v1/tools", agent, NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "expired");
}

/* Of an operation that waits for approval; the path. */
static const char *make_link(struct stage *stage, struct arena *arena, const char *ground)
{
    const struct approval_policy policy = {.approvers = 1, .expires_ms = 7200000, .policy = "p"};
    stage->op.state = STATE_PLANNED;
    stage->op.reason = REASON_AWAITING_APPROVAL;
    stage->op.completed_ms = 0;
    stage->op.result = STR_NONE;
    stage->op.approval = approval_request(arena, &policy, NOW);
    const struct link link = {"default", OP_1, "alice", true, NOW + 1000, "ops", ground};
    return arena_printf(arena, LINKS_PATH "%s", link_write(arena, stage->engine.ledger.secret, &link));
}

/* A link is as good as the token that it rests on. */
static void test_links_rest_on_tokens(void **state)
{
    struct stage *stage = *state;
    struct arena arena;
    arena_init(&arena);
    const char *link = make_link(stage, &arena, LINK_GROUND_TOKEN);
    assert_int_equal(ask_rest(stage, "GET", link, "", NULL), 404); /* no such person */
    make_token(stage, "default", "alice", ROLE_APPROVER);
    assert_int_equal(ask_rest(stage, "GET", link, "", NULL), 200);
    assert_int_equal(stage->engine.decisions, 0);
    assert_int_equal(ask_rest(stage, "POST", link, "", "note=x"), 200);
    assert_int_equal(stage->engine.decisions, 1);
    assert_string_equal(stage->engine.actor, "alice");
    assert_string_equal(stage->engine.link_by, "ops");
    stage->engine.tokens[0].role = ROLE_AGENT;
    assert_int_equal(ask_rest(stage, "POST", link, "", "note=x"), 404);
    stage->engine.tokens[0].role = ROLE_APPROVER;
    stage->engine.tokens[0].revoked_ms = NOW;
    assert_int_equal(ask_rest(stage, "POST", link, "", "note=x"), 404);
    static const char *const grounds[] = {LINK_GROUND_OPEN, LINK_GROUND_ISSUER "https://gone.example"};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(ask_rest(stage, "POST", make_link(stage, &arena, grounds[i]), "", "note=x"), 404);
    assert_int_equal(stage->engine.decisions, 1);
    arena_release(&arena);
}

/* Figures are of all tenants together. */
static void test_metrics_are_for_operators(void **state)
{
    struct stage *stage = *state;
    char agent[200], boss[200];
    snprintf(agent, sizeof agent, "%s", make_token(stage, "default", "local", ROLE_AGENT));
    snprintf(boss, sizeof boss, "%s", make_token(stage, "default", "boss", ROLE_OPERATOR));
    assert_int_equal(ask_rest(stage, "GET", "/metrics", agent, NULL), 403);
    assert_int_equal(ask_rest(stage, "GET", "/metrics", "", NULL), 401);
    assert_int_equal(ask_rest(stage, "GET", "/metrics", boss, NULL), 200);
    assert_non_null(strstr(stage->answer.body.p, "# TYPE onced_approvals_waiting gauge\n"));
}

static void test_token_life(void **state)
{
    struct stage *stage = *state;
    char admin[300], made[300], path[100];
    snprintf(admin, sizeof admin, "%s" JSON_TYPE, make_token(stage, "default", "boss", ROLE_ADMIN));
    assert_int_equal(ask_rest(stage, "POST", "/v1/tokens", admin,
                              "{\"principal\":\"agent-1\",\"role\":\"agent\",\"expires_at\":\"2030-01-01T00:00:00Z\"}"),
                     201);
    expect_shape(stage, "IssuedToken");
    expect(stage, "/tenant", "default");
    assert_int_equal(strlen(member(stage, "/token")), AUTH_TOKEN_SIZE - 1);
    snprintf(made, sizeof made, "Authorization: bearer %s\r\n" JSON_TYPE, member(stage, "/token"));
    snprintf(path, sizeof path, "/v1/tokens/%s", member(stage, "/id"));
    assert_int_equal(ask_rest(stage, "POST", "/v1/calls", made, "{\"tool\":\"t\"}"), 201);
    assert_string_equal(stage->engine.principal, "agent-1");
    assert_int_equal(ask_rest(stage, "GET", "/v1/tokens", admin, NULL), 200);
    expect_shape(stage, "TokenList");
    assert_null(member(stage, "/tokens/0/token"));
    assert_int_equal(ask_rest(stage, "DELETE", path, admin, NULL), 200);
    expect_shape(stage, "Token");
    ask_rest(stage, "POST", "/v1/calls", made, "{\"tool\":\"t\"}"); /* at once */
    expect_problem(stage, 401, "unauthorized");
    assert_int_equal(ask_rest(stage, "DELETE", path, admin, NULL), 200); /* repeated: the first one */
    ask_rest(stage, "DELETE", "/v1/tokens/tok_none", admin, NULL);
    expect_problem(stage, 404, "not_found");
    static const char *const bad[] = {
        "{\"principal\":\"a\"}",
        "{\"principal\":\"a b\",\"role\":\"agent\"}",
        "{\"principal\":\"\",\"role\":\"agent\"}",
        "{\"principal\":\"a\",\"role\":\"king\"}",
        "{\"principal\":\"a\",\"role\":\"agent\",\"expires_at\":\"2001-01-01T00:00:00Z\"}",
        "{\"principal\":\"a\",\"role\":\"agent\",\"tenant\":\"other\"}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask_rest(stage, "POST", "/v1/tokens", admin, bad[i]);
        expect_problem(stage, 400, "malformed");
    }
    /* Another tenant's admin sees and revokes nothing of it. */
    snprintf(admin, sizeof admin, "%s", make_token(stage, "other", "boss", ROLE_ADMIN));
    ask_rest(stage, "DELETE", "/v1/tokens/tok_1", admin, NULL);
    expect_problem(stage, 404, "not_found");
}

/* What a token is limited to holds for what is listed, called, shown and decided, whatever the role. */
static void test_token_limits(void **state)
{
    struct stage *stage = *state;
    char limited[300];
    snprintf(limited, sizeof limited, "%s" JSON_TYPE, make_token(stage, "default", "local", ROLE_ADMIN));
    stage->engine.tokens[0].tools = "[\"order.*\"]";
    for (int i = 0; i < 2; i++) { /* looked up, and remembered */
        assert_int_equal(ask_rest(stage, "GET", "/v1/tools", limited, NULL), 200);
        expect(stage, "/tools/0/name", "order.cancel");
        assert_null(member(stage, "/tools/1"));
    }
    ask_rest(stage, "GET", "/v1/tools/refund.create", limited, NULL);
    expect_problem(stage, 403, "forbidden");
    ask_rest(stage, "POST", "/v1/calls", limited, "{\"tool\":\"refund.create\"}");
    expect_problem(stage, 403, "forbidden");
    expect(stage, "/detail", "the token does not cover tool \"refund.create\"; its tools: order.*");
    assert_int_equal(stage->engine.calls, 0);
    assert_int_equal(ask_rest(stage, "POST", "/v1/calls", limited, "{\"tool\":\"order.cancel\"}"), 201);
    assert_true(stage->engine.calls == 1 && stage->engine.limited);
    assert_int_equal(ask_rest(stage, "GET", "/v1/operations/" OP_1, limited, NULL), 200);
    expect_shape(stage, "Operation");
    assert_null(member(stage, "/arguments"));
    expect(stage, "/result", "null");
    expect(stage, "/external_id", "null");
    expect(stage, "/note", "the token does not cover this operation: arguments and result are not shown");
    stage->op.tool = "order.cancel";
    ask_rest(stage, "GET", "/v1/operations/" OP_1, limited, NULL);
    expect(stage, "/result/id", "re_1");
    assert_non_null(member(stage, "/arguments"));
    ask_rest(stage, "POST", "/v1/operations/" OP_1 "/cancel", limited, "");
    assert_true(stage->engine.decisions == 1 && stage->engine.decision.scope);
    ask_rest(stage, "POST", "/v1/tokens", limited, "{\"principal\":\"p\",\"role\":\"agent\"}");
    expect_problem(stage, 403, "forbidden");
    expect_detail(stage, "can make no tokens");
}

static void test_token_with_limits(void **state)
{
    struct stage *stage = *state;
    char admin[300];
    snprintf(admin, sizeof admin, "%s" JSON_TYPE, make_token(stage, "default", "boss", ROLE_ADMIN));
    assert_int_equal(ask_rest(stage, "POST", "/v1/tokens", admin,
                              "{\"principal\":\"p\",\"role\":\"agent\",\"tools\":\"a b\",\"entities\":[\"order/*\"]}"),
                     201);
    expect_shape(stage, "IssuedToken");
    expect(stage, "/tools/1", "b");
    expect(stage, "/entities/0", "order/*");
    static const char *const bad[] = {
        "{\"principal\":\"p\",\"role\":\"agent\",\"tools\":7}",
        "{\"principal\":\"p\",\"role\":\"agent\",\"tools\":[\"\"]}",
        "{\"principal\":\"p\",\"role\":\"agent\",\"entities\":[\"order\"]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask_rest(stage, "POST", "/v1/tokens", admin, bad[i]);
        expect_problem(stage, 400, "malformed");
    }
}

/* ---- signed tokens ---- */

static void reopen_for(struct stage *stage, const struct jwt_issuer *issuer)
{
    struct err err = {0};
    close_door(stage);
    const struct http_door_options options = {.loop = &stage->loop,
                                              .engine = &stage->engine,
                                              .address = "127.0.0.1",
                                              .auth_tokens = true,
                                              .issuers = issuer,
                                              .issuer_count = issuer != NULL};
    if (http_door_new(&options, &stage->door, &err))
        fail_msg("%s", err.text);
}

static const char *signed_header(struct stage *stage, const char *token)
{
    return arena_printf(&stage->arena, "Authorization: Bearer %s\r\n", token);
}

static void test_signed_token(void **state)
{
    struct stage *stage = *state;
    static const char *const audiences[] = {"onced"};
    static const struct jwt_role roles[] = {{"ops", ROLE_OPERATOR}};
    char path[] = "/tmp/onced-jwks-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, vector_keys, strlen(vector_keys)), strlen(vector_keys));
    close(fd);
    const struct jwt_issuer issuer = {
        .name = "idp",
        .issuer = "https://idp.example",
        .audiences = audiences,
        .audience_count = 1,
        .jwks = path,
        .jwks_is_file = true,
        .algorithms = {JWT_ES256},
        .algorithm_count = 1,
        .tenant = "/org/tenant",
        .principal = "/sub",
        .prefix = "idp:",
        .roles_from = "/roles",
        .roles = roles,
        .role_count = 1,
        .tools = "/scope",
        .refresh_ms = 600000,
    };
    ask_rest(stage, "GET", "/v1/tools", signed_header(stage, vector_es256), NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "knows no issuer");
    reopen_for(stage, &issuer);
    assert_int_equal(ask_rest(stage, "GET", "/v1/tools", signed_header(stage, vector_es256), NULL), 200);
    expect(stage, "/tools/0/name", "refund.create");
    assert_null(member(stage, "/tools/1"));
    char call[1000];
    snprintf(call, sizeof call, "%s" JSON_TYPE, signed_header(stage, vector_es256));
    ask_rest(stage, "POST", "/v1/calls", call, "{\"tool\":\"refund.create\"}");
    assert_string_equal(stage->engine.tenant, "acme");
    assert_string_equal(stage->engine.principal, "idp:ann");
    ask_rest(stage, "GET", "/v1/tools", signed_header(stage, vector_eddsa), NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "alg EdDSA is not among those");
    assert_string_equal(http_answer_header(&stage->answer, "WWW-Authenticate"),
                        "Bearer realm=\"onced\", error=\"invalid_token\"");
    stage->engine.now_ms = INT64_C(4102444801000);
    ask_rest(stage, "GET", "/v1/tools", signed_header(stage, vector_es256), NULL);
    expect_problem(stage, 401, "unauthorized");
    expect_detail(stage, "has expired at 2100-01-01");
    unlink(path);
}

/* Keys that are not there are an error of the start. */
static void test_issuer_without_keys(void **state)
{
    struct stage *stage = *state;
    const struct jwt_issuer issuer = {.name = "idp", .issuer = "i", .jwks = "/none/jwks.json", .jwks_is_file = true};
    const struct http_door_options options = {.loop = &stage->loop,
                                              .engine = &stage->engine,
                                              .address = "127.0.0.1",
                                              .auth_tokens = true,
                                              .issuers = &issuer,
                                              .issuer_count = 1};
    struct http_door *door;
    struct err err = {0};
    assert_int_equal(http_door_new(&options, &door, &err), ERR_IO);
    assert_string_equal(err.text, "the keys of issuer idp: /none/jwks.json cannot be read: No such file or directory");
}

/* Tokens protect against foreign pages by themselves: a public name in Host is fine then. */
static void test_token_host(void **state)
{
    struct stage *stage = *state;
    char text[500];
    snprintf(text, sizeof text, "GET /v1/tools HTTP/1.1\r\nHost: onced.example\r\n%s\r\n",
             make_token(stage, "default", "a", ROLE_AGENT));
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd, text);
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    close(fd);
}

/* The ledger takes its time: the token look-up and the route's own command both suspend the connection. */
static void test_ledger_later(void **state)
{
    struct stage *stage = *state;
    char text[500];
    stage->engine.ledger_later = true;
    snprintf(text, sizeof text, "GET /v1/operations/" OP_1 " HTTP/1.1\r\nHost: x\r\n%s\r\n",
             make_token(stage, "default", "local", ROLE_OPERATOR));
    int fd = http_connect(http_door_port(stage->door));
    send_raw(stage, fd, text);
    for (int i = 0; i < 3; i++) {
        http_spin(&stage->loop, 5);
        fake_ledger_poll(&stage->engine);
    }
    http_answer_release(&stage->answer);
    http_receive(&stage->loop, fd, NULL, false, 2000, &stage->answer);
    assert_int_equal(stage->answer.status, 200);
    expect(stage, "/operation_id", OP_1);
    /* A caller that leaves while the ledger works: the answer goes nowhere, and nothing breaks. */
    send_raw(stage, fd, text);
    http_spin(&stage->loop, 5);
    close(fd);
    http_spin(&stage->loop, 100);
    fake_ledger_poll(&stage->engine);
    fake_ledger_poll(&stage->engine);
    http_spin(&stage->loop, 10);
}

static const struct CMUnitTest tests[] = {
    TOKEN_CASE(test_token_wanted),
    TOKEN_CASE(test_token_large),
    TOKEN_CASE(test_roles),
    TOKEN_CASE(test_agent_sees),
    TOKEN_CASE(test_token_cache),
    TOKEN_CASE(test_links_rest_on_tokens),
    TOKEN_CASE(test_metrics_are_for_operators),
    TOKEN_CASE(test_token_life),
    TOKEN_CASE(test_token_limits),
    TOKEN_CASE(test_token_with_limits),
    TOKEN_CASE(test_signed_token),
    TOKEN_CASE(test_issuer_without_keys),
    TOKEN_CASE(test_token_host),
    TOKEN_CASE(test_ledger_later),
};
const struct test_part token_tests = {"rest tokens", tests, sizeof tests / sizeof *tests};
