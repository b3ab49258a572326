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
    enum role role;
    char *tenant, *principal; /* one allocation, at tenant */
};

#define SLOTS (2 * AUTH_CACHE_MAX)

struct auth {
    struct entry slots[SLOTS];
    size_t count;
};

struct auth *auth_new(void)
{
    return mem_zero(sizeof(struct auth));
}

static void clear(struct auth *auth)
{
    for (size_t i = 0; i < SLOTS; i++)
        free(auth->slots[i].tenant);
    memset(auth->slots, 0, sizeof auth->slots);
    auth->count = 0;
}

void auth_free(struct auth *auth)
{
    if (!auth)
        return;
    clear(auth);
    free(auth);
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

static void remember(struct auth *auth, const struct token *token, int64_t now_ms)
{
    if (auth->count >= AUTH_CACHE_MAX)
        clear(auth);
    struct entry *entry = slot_of(auth, &token->secret_hash);
    if (entry->until_ms) {
        entry->until_ms = now_ms + AUTH_CACHE_MS;
        entry->expires_ms = token->expires_ms;
        return;
    }
    size_t tenant_n = strlen(token->tenant) + 1, principal_n = strlen(token->principal) + 1;
    char *texts = mem_alloc(tenant_n + principal_n);
    memcpy(texts, token->tenant, tenant_n);
    memcpy(texts + tenant_n, token->principal, principal_n);
    *entry = (struct entry){
        .hash = token->secret_hash,
        .until_ms = now_ms + AUTH_CACHE_MS,
        .expires_ms = token->expires_ms,
        .role = token->role,
        .tenant = texts,
        .principal = texts + tenant_n,
    };
    auth->count++;
}

/* ---- the check ---- */

struct auth_look_up {
    struct auth *auth;
    struct digest hash;
    void (*ready)(struct exchange *exchange, enum auth_outcome outcome, const char *text);
};

static void found(struct exchange *exchange, struct ledger_request *request)
{
    struct auth_look_up *look_up = exchange->user;
    exchange->user = NULL;
    const struct token *token = &request->token.token;
    int64_t now_ms = exchange_now_ms(exchange);
    if (request->code == ERR_NOT_FOUND) {
        look_up->ready(exchange, AUTH_REFUSED, "the token is not known");
    } else if (request->code) {
        look_up->ready(exchange, AUTH_UNAVAILABLE, request->err.text);
    } else if (token->revoked_ms && token->revoked_ms <= now_ms) {
        look_up->ready(exchange, AUTH_REFUSED, "the token was revoked");
    } else if (token->expires_ms && token->expires_ms <= now_ms) {
        look_up->ready(exchange, AUTH_REFUSED, "the token has expired");
    } else {
        struct token stored = *token;
        stored.secret_hash = look_up->hash;
        remember(look_up->auth, &stored, now_ms);
        exchange->caller = (struct caller){token->tenant, token->principal, token->role};
        look_up->ready(exchange, AUTH_OK, "");
    }
}

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
    if (!token.p || token.n == 0 || token.n > AUTH_TOKEN_BYTES_MAX ||
        exchange->repeated & (uint32_t)1 << HEADER_AUTHORIZATION) {
        ready(exchange, AUTH_REFUSED, "the Authorization header is not of the form Bearer TOKEN");
        return;
    }
    struct digest hash = auth_token_hash(token);
    const struct entry *entry = slot_of(auth, &hash);
    int64_t now_ms = exchange_now_ms(exchange);
    if (entry->until_ms > now_ms && (!entry->expires_ms || entry->expires_ms > now_ms)) {
        exchange->caller = (struct caller){arena_copy_text(&exchange->arena, entry->tenant),
                                           arena_copy_text(&exchange->arena, entry->principal), entry->role};
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
