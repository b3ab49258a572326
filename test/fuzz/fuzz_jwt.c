/* Any bytes as a signed token (first line) and as its issuer's key set (the rest): refused with words, or read. What no
 * key signed is never believed, whatever it says. */
#include "fuzz.h"

#include "door/jwt.h"

#define NOW_MS INT64_C(1800000000000)

static const char *const audiences[] = {"onced"};
static const struct jwt_role roles[] = {{"ops", ROLE_OPERATOR}};
static const struct jwt_issuer issuer = {
    .name = "fuzz",
    .issuer = "https://idp.example",
    .audiences = audiences,
    .audience_count = 1,
    .algorithms = {JWT_RS256, JWT_RS384, JWT_RS512, JWT_PS256, JWT_ES256, JWT_ES384, JWT_EDDSA},
    .algorithm_count = 7,
    .tenant = "/org/tenant",
    .principal = "/sub",
    .prefix = "p:",
    .roles_from = "/roles",
    .roles = roles,
    .role_count = 1,
    .tools = "/scope",
    .leeway_ms = 60000,
};

static bool is_name(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return false;
    return n > 0 && n <= PRINCIPAL_BYTES_MAX;
}

/* Whether or not somebody signed it: the claims are read safely. */
static void check_claims(struct arena *arena, const struct jwt *jwt)
{
    struct caller caller;
    struct err err = {0};
    if (strcmp(jwt->issuer, issuer.issuer) != 0)
        return;
    if (jwt_caller(arena, jwt, &issuer, NOW_MS, &caller, &err)) {
        CHECK(err.code == ERR_DENIED && err.text[0]);
        return;
    }
    CHECK(is_name(caller.tenant) && is_name(caller.principal) && strncmp(caller.principal, "p:", 2) == 0);
    CHECK(caller.role == ROLE_OPERATOR && caller.scope && caller.scope->tools.limited);
}

static void check_signature(const struct jwt *jwt, const struct jwt_keys *keys)
{
    struct err err = {0};
    enum err_code code = jwt_verify(jwt, &issuer, keys, &err);
    CHECK(code == err.code);
    CHECK(code == ERR_NONE || ((code == ERR_DENIED || code == ERR_NOT_FOUND) && err.text[0]));
    /* one bit of the signature makes it another one */
    if (code == ERR_NONE) {
        struct jwt changed = *jwt;
        char *bytes = malloc(jwt->signature.n);
        memcpy(bytes, jwt->signature.p, jwt->signature.n);
        bytes[jwt->signature.n / 2] ^= 1;
        changed.signature.p = bytes;
        CHECK(jwt_verify(&changed, &issuer, keys, &err) == ERR_DENIED);
        free(bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct str token, set;
    struct jwt jwt;
    struct jwt_keys *keys = NULL;
    struct err err = {0}, key_err = {0};
    arena_init(&arena);
    fuzz_split(size ? (struct str){(const char *)data, size} : STR(""), &token, &set);
    enum err_code key_code = jwt_keys_read(set, &keys, &key_err);
    CHECK(key_code == key_err.code && (key_code ? key_err.text[0] != '\0' : jwt_keys_count(keys) > 0));
    if (jwt_read(&arena, token, &jwt, &err)) {
        CHECK(err.code == ERR_INVALID || err.code == ERR_LIMIT || err.code == ERR_DENIED);
        CHECK(err.text[0]);
    } else {
        CHECK(jwt.kid && jwt.issuer && jwt.claims && jwt.signature.n > 0 && jwt.signed_text.n < token.n);
        check_claims(&arena, &jwt);
        if (keys)
            check_signature(&jwt, keys);
    }
    jwt_keys_free(keys);
    arena_release(&arena);
    return 0;
}
