/* Bearer tokens of the caller's tenant. Nobody can make a token for another tenant here; `onced token` on the machine
 * can. */
#include "base/ulid.h"
#include "core/identity.h"
#include "door/ask.h"
#include "door/auth.h"
#include "door/call_body.h"
#include "door/rest.h"

#include <string.h>
#include <strings.h>

static void write_token(struct buf *out, const struct token *token, const char *secret)
{
    buf_add_text(out, "{\"id\":");
    json_write_string(out, str_of(token->id));
    if (secret) {
        buf_add_text(out, ",\"token\":");
        json_write_string(out, str_of(secret));
    }
    buf_add_text(out, ",\"tenant\":");
    json_write_string(out, str_of(token->tenant));
    buf_add_text(out, ",\"principal\":");
    json_write_string(out, str_of(token->principal));
    buf_add_text(out, ",\"role\":");
    json_write_string(out, str_of(role_name(token->role)));
    buf_printf(out, ",\"tools\":%s,\"entities\":%s", token->tools ? token->tools : "null",
               token->entities ? token->entities : "null");
    buf_add_text(out, ",\"created_at\":");
    shape_time(out, token->created_ms);
    buf_add_text(out, ",\"expires_at\":");
    shape_time(out, token->expires_ms);
    buf_add_text(out, ",\"revoked_at\":");
    shape_time(out, token->revoked_ms);
    buf_add_char(out, '}');
}

/* ---- list ---- */

static void show_tokens(struct exchange *exchange, struct ledger_request *request)
{
    struct buf *out = &exchange->answer;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no tokens");
        return;
    }
    bool first = true;
    buf_add_text(out, "{\"tokens\":[");
    for (size_t i = 0; i < request->token_list.count; i++) {
        const struct token *token = &request->token_list.tokens[i];
        if (!text_equal(token->tenant, exchange->caller.tenant))
            continue;
        if (!first)
            buf_add_char(out, ',');
        first = false;
        write_token(out, token, NULL);
    }
    buf_add_text(out, "]}");
    exchange_send(exchange, 200);
}

void rest_tokens(struct exchange *exchange)
{
    ask(exchange, ask_new(exchange, LEDGER_TOKEN_LIST), show_tokens);
}

/* ---- add ---- */

static void added(struct exchange *exchange, struct ledger_request *request)
{
    char *secret = exchange->user;
    if (request->code)
        rest_ledger_problem(exchange, request, "no such token");
    else {
        write_token(&exchange->answer, &request->token.token, secret);
        exchange_send(exchange, 201);
    }
    explicit_bzero(secret, AUTH_TOKEN_SIZE);
}

static bool check_token(struct exchange *exchange, const char *principal, const char *role, int64_t expires_ms,
                        struct token *token)
{
    struct problem_document problem;
    bool ok = true;
    size_t n = strlen(principal);
    for (size_t i = 0; i < n; i++)
        ok = ok && principal[i] > 0x20 && principal[i] < 0x7f;
    if (!ok || n == 0 || n > PRINCIPAL_BYTES_MAX)
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/principal",
                         "\"principal\" must be 1 to 128 printable ASCII characters without spaces");
    else if (!role_from_name(str_of(role), &token->role))
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/role",
                         "\"role\" must be one of agent, approver, operator, admin");
    else if (expires_ms && expires_ms <= token->created_ms)
        ok = body_refuse(&problem, PROBLEM_MALFORMED, "/expires_at", "\"expires_at\" lies in the past");
    if (!ok)
        rest_problem(exchange, &problem);
    return ok;
}

/* A member "tools" or "entities" as it is stored; absent or null: not limited. */
static bool read_list(struct exchange *exchange, enum scope_kind kind, const struct json *value, const char **out)
{
    struct problem_document problem;
    struct scope_list list = {0};
    struct err err = {0};
    const char *name = kind == SCOPE_TOOLS ? "\"tools\"" : "\"entities\"";
    if (value && value->type != JSON_NULL && scope_list_read(&exchange->arena, kind, value, name, &list, &err)) {
        body_refuse(&problem, PROBLEM_MALFORMED, kind == SCOPE_TOOLS ? "/tools" : "/entities",
                    arena_copy_text(&exchange->arena, err.text));
        rest_problem(exchange, &problem);
        return false;
    }
    *out = scope_list_text(&exchange->arena, &list);
    return true;
}

/* Nobody gives away more than he has. */
static bool may_make_tokens(struct exchange *exchange)
{
    if (!scope_is_limited(exchange->caller.scope))
        return true;
    rest_refuse(exchange, PROBLEM_FORBIDDEN, "a token that is limited to certain tools or entities can make no tokens");
    return false;
}

void rest_token_add(struct exchange *exchange)
{
    const char *principal = NULL, *role = NULL;
    const struct json *tools = NULL, *entities = NULL;
    int64_t expires_ms = 0;
    const struct body_member members[] = {
        {.name = "principal", .type = BODY_TEXT, .out = &principal, .required = true},
        {.name = "role", .type = BODY_TEXT, .out = &role, .required = true},
        {.name = "expires_at", .type = BODY_TIME, .out = &expires_ms},
        {.name = "tools", .type = BODY_ANY, .out = &tools},
        {.name = "entities", .type = BODY_ANY, .out = &entities},
    };
    struct token token = {.tenant = exchange->caller.tenant, .created_ms = exchange_now_ms(exchange)};
    if (!may_make_tokens(exchange) || !rest_body(exchange, members, sizeof members / sizeof *members) ||
        !check_token(exchange, principal, role, expires_ms, &token) ||
        !read_list(exchange, SCOPE_TOOLS, tools, &token.tools) ||
        !read_list(exchange, SCOPE_ENTITIES, entities, &token.entities))
        return;
    struct env *env = engine_env(exchange->engine);
    struct ulid_source ids;
    char id[ULID_CHARS + 1];
    char *secret = arena_alloc(&exchange->arena, AUTH_TOKEN_SIZE);
    ulid_source_init(&ids, env);
    ulid_next(&ids, id);
    auth_token_make(env, secret, &token.secret_hash);
    token.id = arena_printf(&exchange->arena, "tok_%s", id);
    token.principal = principal;
    token.expires_ms = expires_ms;
    struct ledger_request *request = ask_new(exchange, LEDGER_TOKEN_ADD);
    request->token.token = token;
    exchange->user = secret;
    ask(exchange, request, added);
}

/* ---- revoke ---- */

static void revoked(struct exchange *exchange, struct ledger_request *request)
{
    struct auth *auth = exchange_parts(exchange)->auth;
    struct token *token = exchange->user;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such token");
        return;
    }
    if (auth)
        auth_forget(auth, token->id);
    write_token(&exchange->answer, token, NULL);
    exchange_send(exchange, 200);
}

/* The token must be of this tenant; a repeated revocation is answered with the first one. */
static void token_known(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such token");
        return;
    }
    struct token *found = NULL;
    for (size_t i = 0; i < request->token_list.count; i++) {
        struct token *token = &request->token_list.tokens[i];
        if (strcmp(token->id, exchange->params[0]) == 0 && text_equal(token->tenant, exchange->caller.tenant))
            found = token;
    }
    if (!found) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such token");
        return;
    }
    if (found->revoked_ms) {
        write_token(&exchange->answer, found, NULL);
        exchange_send(exchange, 200);
        return;
    }
    found->revoked_ms = exchange_now_ms(exchange);
    exchange->user = found;
    struct ledger_request *next = ask_new(exchange, LEDGER_TOKEN_REVOKE);
    next->token.token.id = found->id;
    next->token.token.revoked_ms = found->revoked_ms;
    ask(exchange, next, revoked);
}

void rest_token_revoke(struct exchange *exchange)
{
    ask(exchange, ask_new(exchange, LEDGER_TOKEN_LIST), token_known);
}
