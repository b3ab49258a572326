#include "door/auth.h"

#include "base/mem.h"
#include "door/ask.h"

#include <stdlib.h>
#include <strings.h>

/* ---- secrets ---- */

struct digest auth_token_hash(struct str token)
{
    return digest_sha256(token);
}

void auth_token_make(struct env *env, char out[AUTH_TOKEN_SIZE], struct digest *hash)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char secret[33] = {0};
    env->random(env, secret, 32);
    char *p = out;
    memcpy(p, "onced_", 6);
    p += 6;
    for (unsigned i = 0; i < 33; i += 3) {
        unsigned bits = (unsigned)secret[i] << 16 | (unsigned)secret[i + 1] << 8 | secret[i + 2];
        for (int shift = 18; shift >= 0 && p < out + AUTH_TOKEN_SIZE - 1; shift -= 6)
            *p++ = alphabet[bits >> shift & 63];
    }
    *p = '\0';
    explicit_bzero(secret, sizeof secret);
    *hash = auth_token_hash(str_of(out));
}

/* ---- cache of positive look-ups: open addressing over a table twice as large as its content ---- */

struct entry {
    struct digest hash;
    int64_t until_ms;   /* 0 = free */
    int64_t expires_ms; /* the token's own end, 0 = none */
    struct caller caller;
    struct arena arena; /* of caller */
};

#define SLOTS (2 * AUTH_CACHE_MAX)

struct auth {
    struct entry slots[SLOTS];
    size_t count;
    struct issuers *issuers; /* NULL: none */
    struct people *people;   /* of the issuers */
    void (*closed)(void *user);
    void *closed_user;
};

struct auth *auth_new(struct issuers *issuers)
{
    struct auth *auth = mem_zero(sizeof *auth);
    auth->issuers = issuers;
    auth->people = people_new();
    return auth;
}

const struct people *auth_people(const struct auth *auth)
{
    return auth->people;
}

bool auth_has_issuer(const struct auth *auth, const char *issuer)
{
    return auth->issuers && issuers_has(auth->issuers, issuer);
}

static void clear(struct auth *auth)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (auth->slots[i].until_ms)
            arena_release(&auth->slots[i].arena);
    memset(auth->slots, 0, sizeof auth->slots);
    auth->count = 0;
}

static void issuers_closed(void *user)
{
    struct auth *auth = user;
    void (*closed)(void *user) = auth->closed;
    void *closed_user = auth->closed_user;
    clear(auth);
    people_free(auth->people);
    free(auth);
    closed(closed_user);
}

void auth_close(struct auth *auth, void (*closed)(void *user), void *user)
{
    if (!auth) {
        closed(user);
        return;
    }
    auth->closed = closed;
    auth->closed_user = user;
    if (auth->issuers)
        issuers_close(auth->issuers, issuers_closed, auth);
    else
        issuers_closed(auth);
}

static struct entry *slot_of(struct auth *auth, const struct digest *hash)
{
    size_t at = (size_t)digest_int64(hash) % SLOTS;
    while (auth->slots[at].until_ms && !digest_equal(&auth->slots[at].hash, hash))
        at = (at + 1) % SLOTS;
    return &auth->slots[at];
}

/* Small and rarely full of old entries, so that forgetting everything is simpler than deleting from a probed table. */
void auth_tick(struct auth *auth, int64_t now_ms)
{
    for (size_t i = 0; i < SLOTS && auth->count > 0; i++) {
        if (auth->slots[i].until_ms && auth->slots[i].until_ms <= now_ms) {
            clear(auth);
            return;
        }
    }
}

void auth_forget(struct auth *auth, const char *token_id)
{
    (void)token_id; /* the others are looked up again, which costs one command each */
    clear(auth);
}

static struct caller caller_copy(struct arena *arena, const struct caller *caller)
{
    return (struct caller){arena_copy_text(arena, caller->tenant), arena_copy_text(arena, caller->principal),
                           caller->role, scope_copy(arena, caller->scope)};
}

static void remember(struct auth *auth, const struct digest *hash, const struct caller *caller, int64_t expires_ms,
                     int64_t now_ms)
{
    if (auth->count >= AUTH_CACHE_MAX)
        clear(auth);
    struct entry *entry = slot_of(auth, hash);
    bool known = entry->until_ms != 0;
    entry->until_ms = now_ms + AUTH_CACHE_MS;
    entry->expires_ms = expires_ms;
    if (known)
        return;
    entry->hash = *hash;
    arena_init(&entry->arena);
    entry->caller = caller_copy(&entry->arena, caller);
    auth->count++;
}

/* ---- onced's own tokens ---- */

struct auth_look_up {
    struct auth *auth;
    struct digest hash;
    void (*ready)(struct exchange *exchange, enum auth_outcome outcome, const char *text);
};

/* The scope of a token as the ledger has it; false: not readable. */
static bool token_scope(struct arena *arena, const struct token *token, const struct scope **out, struct err *err)
{
    struct scope *scope = arena_zero(arena, sizeof *scope);
    *out = NULL;
    if (scope_list_parse(arena, SCOPE_TOOLS, token->tools, &scope->tools, err) ||
        scope_list_parse(arena, SCOPE_ENTITIES, token->entities, &scope->entities, err))
        return false;
    if (scope_is_limited(scope))
        *out = scope;
    return true;
}

static void found(struct exchange *exchange, struct ledger_request *request)
{
    struct auth_look_up *look_up = exchange->user;
    exchange->user = NULL;
    const struct token *token = &request->token.token;
    int64_t now_ms = exchange_now_ms(exchange);
    struct caller caller = {token->tenant, token->principal, token->role, NULL};
    struct err err = {0};
    if (request->code == ERR_NOT_FOUND) {
        look_up->ready(exchange, AUTH_REFUSED, "the token is not known");
    } else if (request->code) {
        look_up->ready(exchange, AUTH_UNAVAILABLE, request->err.text);
    } else if (token->revoked_ms && token->revoked_ms <= now_ms) {
        look_up->ready(exchange, AUTH_REFUSED, "the token was revoked");
    } else if (token->expires_ms && token->expires_ms <= now_ms) {
        look_up->ready(exchange, AUTH_REFUSED, "the token has expired");
    } else if (!token_scope(&exchange->arena, token, &caller.scope, &err)) {
        look_up->ready(exchange, AUTH_UNAVAILABLE, err.text);
    } else {
        remember(look_up->auth, &look_up->hash, &caller, token->expires_ms, now_ms);
        exchange->caller = caller;
        look_up->ready(exchange, AUTH_OK, "");
    }
}

static void check_own(struct auth *auth, struct exchange *exchange, struct str token,
                      void (*ready)(struct exchange *exchange, enum auth_outcome outcome, const char *text))
{
    struct digest hash = auth_token_hash(token);
    const struct entry *entry = slot_of(auth, &hash);
    int64_t now_ms = exchange_now_ms(exchange);
    if (entry->until_ms > now_ms && (!entry->expires_ms || entry->expires_ms > now_ms)) {
        exchange->caller = caller_copy(&exchange->arena, &entry->caller);
        ready(exchange, AUTH_OK, "");
        return;
    }
    struct auth_look_up *look_up = arena_zero(&exchange->arena, sizeof *look_up);
    *look_up = (struct auth_look_up){auth, hash, ready};
    exchange->user = look_up;
    struct ledger_request *request = ask_new(exchange, LEDGER_TOKEN_FIND);
    request->token.token.secret_hash = hash;
    ask(exchange, request, found);
}

/* ---- signed tokens ---- */

struct signed_check {
    struct issuers_question question;
    struct auth *auth;
    struct exchange *exchange;
    bool *answered; /* within issuers_ask: to be set, as the exchange may be another request's afterwards; else NULL */
    void (*ready)(struct exchange *exchange, enum auth_outcome outcome, const char *text);
};

static void judged(struct issuers_question *question)
{
    struct signed_check *check = question->user;
    struct exchange *exchange = check->exchange;
    if (check->answered)
        *check->answered = true;
    else
        exchange_on_gone(exchange, NULL);
    exchange->user = NULL;
    switch (question->verdict) {
    case ISSUERS_YES:
        exchange->caller = question->caller;
        people_saw(check->auth->people, question->jwt.issuer, &exchange->caller, exchange_now_ms(exchange));
        check->ready(exchange, AUTH_OK, "");
        return;
    case ISSUERS_NO: check->ready(exchange, AUTH_REFUSED, question->err.text); return;
    case ISSUERS_NOT_NOW: check->ready(exchange, AUTH_UNAVAILABLE, question->err.text); return;
    }
}

static void asker_left(struct exchange *exchange)
{
    struct signed_check *check = exchange->user;
    issuers_withdraw(check->auth->issuers, &check->question);
}

static void check_signed(struct auth *auth, struct exchange *exchange, struct str token,
                         void (*ready)(struct exchange *exchange, enum auth_outcome outcome, const char *text))
{
    if (!auth->issuers) {
        ready(exchange, AUTH_REFUSED, "the token is a signed one (JWT), and this server knows no issuer (server.jwt)");
        return;
    }
    bool answered = false;
    struct signed_check *check = arena_zero(&exchange->arena, sizeof *check);
    check->question.arena = &exchange->arena;
    check->question.token = token;
    check->question.user = check;
    check->question.done = judged;
    check->auth = auth;
    check->exchange = exchange;
    check->ready = ready;
    check->answered = &answered;
    exchange->user = check;
    issuers_ask(auth->issuers, &check->question);
    if (answered)
        return;
    check->answered = NULL;
    exchange_on_gone(exchange, asker_left);
}

/* ---- the check ---- */

/* The token of "Bearer TOKEN"; absent when the header is something else. */
static struct str bearer(struct str header)
{
    if (header.n < 7 || strncasecmp(header.p, "Bearer ", 7) != 0)
        return STR_NONE;
    struct str token = {header.p + 7, header.n - 7};
    while (token.n > 0 && token.p[0] == ' ')
        token.p++, token.n--;
    while (token.n > 0 && token.p[token.n - 1] == ' ')
        token.n--;
    return token;
}

void auth_check(struct auth *auth, struct exchange *exchange,
                void (*ready)(struct exchange *exchange, enum auth_outcome outcome, const char *text))
{
    struct str header = exchange->headers[HEADER_AUTHORIZATION];
    if (!header.p) {
        ready(exchange, AUTH_MISSING, "this server wants a token: Authorization: Bearer TOKEN");
        return;
    }
    struct str token = bearer(header);
    bool is_signed = jwt_looks_like(token);
    if (!token.p || token.n == 0 || (token.n > AUTH_TOKEN_BYTES_MAX && !is_signed) ||
        exchange->repeated & (uint32_t)1 << HEADER_AUTHORIZATION)
        ready(exchange, AUTH_REFUSED, "the Authorization header is not of the form Bearer TOKEN");
    else if (is_signed)
        check_signed(auth, exchange, token, ready);
    else
        check_own(auth, exchange, token, ready);
}
