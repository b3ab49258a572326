/* Signed tokens: every algorithm against tokens that another library made, and every way in which a token or a key set
 * is no good. The vectors are made by joserfc (test/support/jwt_vectors.h); end-to-end tests use PyJWT. */
#include "door/jwt.h"

#include "support/jwt_vectors.h"
#include "support/test.h"

#include <stdio.h>

#define NOW_MS INT64_C(1800000000000)

static const char *const audiences[] = {"onced", "onced-old"};
static const struct jwt_role roles[] = {{"viewer", ROLE_AGENT}, {"ops", ROLE_OPERATOR}, {"x", ROLE_APPROVER}};

static struct jwt_issuer issuer(void)
{
    return (struct jwt_issuer){
        .name = "idp",
        .issuer = "https://idp.example",
        .audiences = audiences,
        .audience_count = 2,
        .algorithms = {JWT_RS256, JWT_RS384, JWT_RS512, JWT_PS256, JWT_ES256, JWT_ES384, JWT_EDDSA},
        .algorithm_count = 7,
        .tenant = "/org/tenant",
        .principal = "/sub",
        .prefix = "",
        .roles_from = "/roles",
        .roles = roles,
        .role_count = 3,
        .tools = "/scope",
        .leeway_ms = 60000,
    };
}

static struct jwt_keys *keys_of(const char *text)
{
    struct jwt_keys *keys = NULL;
    struct err err = {0};
    if (jwt_keys_read(str_of(text), &keys, &err))
        fail_msg("%s", err.text);
    return keys;
}

static void test_every_algorithm(void **state)
{
    (void)state;
    struct jwt_issuer from = issuer();
    struct jwt_keys *keys = keys_of(vector_keys);
    assert_int_equal(jwt_keys_count(keys), 4); /* too short, symmetric and for encryption: remembered, not used */
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct arena arena;
        struct jwt jwt;
        struct caller caller;
        struct err err = {0};
        arena_init(&arena);
        assert_int_equal(jwt_read(&arena, str_of(vectors[i].token), &jwt, &err), ERR_NONE);
        assert_int_equal(jwt.algorithm, vectors[i].algorithm);
        if (jwt_verify(&jwt, &from, keys, &err))
            fail_msg("%s: %s", jwt_algorithm_name(jwt.algorithm), err.text);
        assert_int_equal(jwt_caller(&arena, &jwt, &from, NOW_MS, &caller, &err), ERR_NONE);
        assert_string_equal(caller.tenant, "acme");
        assert_string_equal(caller.principal, "ann");
        assert_int_equal(caller.role, ROLE_OPERATOR); /* the highest of those that are mapped */
        assert_true(scope_allows_tool(caller.scope, "refund.create"));
        assert_false(scope_allows_tool(caller.scope, "payout.create"));
        arena_release(&arena);
    }
    jwt_keys_free(keys);
}

/* Every bit of header, payload and signature: none can change. */
static void test_every_changed_character(void **state)
{
    (void)state;
    struct jwt_issuer from = issuer();
    struct jwt_keys *keys = keys_of(vector_keys);
    char token[sizeof vector_eddsa];
    memcpy(token, vector_eddsa, sizeof token);
    for (size_t i = 0; i + 1 < sizeof token; i++) {
        struct arena arena;
        struct jwt jwt;
        struct err err = {0};
        char kept = token[i];
        arena_init(&arena);
        token[i] = kept == 'A' ? 'B' : 'A';
        if (jwt_read(&arena, str_of(token), &jwt, &err) == ERR_NONE)
            assert_int_not_equal(jwt_verify(&jwt, &from, keys, &err), ERR_NONE);
        assert_true(err.text[0]);
        token[i] = kept;
        arena_release(&arena);
    }
    jwt_keys_free(keys);
}

static void add_base64(struct buf *out, struct str bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t i = 0; i < bytes.n; i += 3) {
        unsigned left = bytes.n - i >= 3 ? 3 : (unsigned)(bytes.n - i), bits = 0;
        for (unsigned k = 0; k < 3; k++)
            bits = bits << 8 | (k < left ? (unsigned char)bytes.p[i + k] : 0);
        for (unsigned k = 0; k <= left; k++)
            buf_add_char(out, digits[bits >> (18 - 6 * k) & 63]);
    }
}

/* What is refused before any key is looked at. */
static void test_headers_and_forms(void **state)
{
    (void)state;
    static const char claims[] = "{\"iss\":\"i\"}";
    static const struct {
        const char *header, *claims, *words; /* words "" = read */
    } rows[] = {
        {"{\"alg\":\"ES256\",\"kid\":\"a\"}", claims, ""},
        {"{\"alg\":\"Ed25519\",\"kid\":\"a\",\"typ\":\"application/AT+JWT\"}", claims, ""},
        {"{\"alg\":\"none\",\"kid\":\"a\"}", claims, "not signed (alg none)"},
        {"{\"alg\":\"nOnE\",\"kid\":\"a\"}", claims, "not signed (alg none)"},
        {"{\"alg\":\"HS256\",\"kid\":\"a\"}", claims, "alg HS256 is symmetric"},
        {"{\"alg\":\"hs512\",\"kid\":\"a\"}", claims, "alg hs512 is symmetric"},
        {"{\"alg\":\"es256\",\"kid\":\"a\"}", claims, "alg \"es256\" is not known"},
        {"{\"kid\":\"a\"}", claims, "has no alg"},
        {"{\"alg\":7,\"kid\":\"a\"}", claims, "has no alg"},
        {"{\"alg\":\"ES256\"}", claims, "does not name its key"},
        {"{\"alg\":\"ES256\",\"kid\":\"\"}", claims, "does not name its key"},
        {"{\"alg\":\"ES256\",\"kid\":\"a\\u0000\"}", claims, "does not name its key"},
        {"{\"alg\":\"ES256\",\"kid\":\"a\",\"crit\":[]}", claims, "critical extensions"},
        {"{\"alg\":\"ES256\",\"kid\":\"a\",\"typ\":\"logout+jwt\"}", claims, "of type \"logout+jwt\""},
        {"{\"alg\":\"ES256\",\"kid\":\"a\",\"typ\":1}", claims, "of type \"number\""},
        {"{\"alg\":\"ES256\",\"alg\":\"none\",\"kid\":\"a\"}", claims, "header is not JSON"},
        {"[]", claims, "header is not a JSON object"},
        {"{\"alg\":\"ES256\",\"kid\":\"a\"}", "7", "payload is not a JSON object"},
        {"{\"alg\":\"ES256\",\"kid\":\"a\"}", "{\"iss\":\"i\",\"iss\":\"j\"}", "payload is not JSON"},
        {"{\"alg\":\"ES256\",\"kid\":\"a\"}", "{}", "who issued it"},
        {"{\"alg\":\"ES256\",\"kid\":\"a\"}", "{\"iss\":[\"i\"]}", "who issued it"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena arena;
        struct jwt jwt;
        struct buf token;
        struct err err = {0};
        arena_init(&arena);
        buf_init(&token, 0);
        add_base64(&token, str_of(rows[i].header));
        buf_add_char(&token, '.');
        add_base64(&token, str_of(rows[i].claims));
        buf_add_text(&token, ".AAAA");
        enum err_code code = jwt_read(&arena, buf_str(&token), &jwt, &err);
        if ((code == ERR_NONE) != (rows[i].words[0] == '\0') || !strstr(err.text, rows[i].words))
            fail_msg("%s %s: \"%s\"", rows[i].header, rows[i].claims, err.text);
        buf_release(&token);
        arena_release(&arena);
    }
    static const char *const forms[] = {"",        ".", "..", "a.b", "a.b.c", "a.b.c.d", "....", "eyJhIjoxfQ==.e30.AA",
                                        "e30.e30."};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct arena arena;
        struct jwt jwt;
        struct err err = {0};
        arena_init(&arena);
        assert_int_not_equal(jwt_read(&arena, str_of(forms[i]), &jwt, &err), ERR_NONE);
        assert_true(err.text[0]);
        arena_release(&arena);
    }
}

/* 64 bytes are 86 characters and leave four bits over: were they free, one token would have sixteen texts. */
static void test_one_text_for_one_token(void **state)
{
    (void)state;
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char token[sizeof vector_eddsa];
    struct arena arena;
    struct jwt jwt;
    struct err err = {0};
    arena_init(&arena);
    memcpy(token, vector_eddsa, sizeof token);
    char *last = &token[sizeof token - 2];
    size_t digit = (size_t)(strchr(digits, *last) - digits);
    assert_int_equal(digit % 16, 0);
    *last = digits[digit + 1];
    assert_int_equal(jwt_read(&arena, str_of(token), &jwt, &err), ERR_INVALID);
    assert_string_equal(err.text, "the token's signature is not base64url");
    arena_release(&arena);
}

/* A token that is good but for its algorithm's, key's or issuer's being another one. */
static void verify_refused(const char *token, const struct jwt_issuer *from, const char *set, enum err_code code,
                           const char *words)
{
    struct arena arena;
    struct jwt jwt;
    struct err err = {0};
    struct jwt_keys *keys = keys_of(set);
    arena_init(&arena);
    assert_int_equal(jwt_read(&arena, str_of(token), &jwt, &err), ERR_NONE);
    assert_int_equal(jwt_verify(&jwt, from, keys, &err), code);
    assert_non_null(strstr(err.text, words));
    jwt_keys_free(keys);
    arena_release(&arena);
}

#define X_OF_ED25519 "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" /* RFC 8037 A.2 */
#define ED_KEY(kid)  "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" X_OF_ED25519 "\",\"kid\":\"" kid "\"}"

static void test_keys_that_do_not_fit(void **state)
{
    (void)state;
    struct jwt_issuer from = issuer();
    verify_refused(vector_eddsa, &from, "{\"keys\":[" ED_KEY("ed") "]}", ERR_DENIED, "signature is wrong");
    verify_refused(vector_eddsa, &from, "{\"keys\":[" ED_KEY("other") "]}", ERR_NOT_FOUND, "no key \"ed\"");
    verify_refused(vector_es256, &from, "{\"keys\":[" ED_KEY("p256") "]}", ERR_DENIED, "does not go with");
    verify_refused(vector_rs256, &from, "{\"keys\":[" ED_KEY("rsa") "]}", ERR_DENIED, "does not go with");
    verify_refused(vector_eddsa, &from,
                   "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" X_OF_ED25519
                   "\",\"kid\":\"ed\",\"alg\":\"ES256\"}]}",
                   ERR_DENIED, "does not go with");
    verify_refused(vector_eddsa, &from,
                   "{\"keys\":[{\"kid\":\"ed\",\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"AA\"}," ED_KEY("z") "]}",
                   ERR_DENIED, "keys of its kind");
    verify_refused(vector_eddsa, &from, "{\"keys\":[{\"use\":\"enc\",\"kid\":\"ed\"}," ED_KEY("z") "]}", ERR_DENIED,
                   "not for signatures");
    from.algorithm_count = 1;
    verify_refused(vector_eddsa, &from, vector_keys, ERR_DENIED, "not among those of issuer idp");
}

static void test_key_sets(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "1"},
        {"[]", "expected an object with a list"},
        {"{\"keys\":{}}", "expected an object with a list"},
        {"{\"keys\":[]}", "none of the 0 keys"},
        {"{\"keys\":[1,\"x\",null]}", "none of the 3 keys"},
        {"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\",\"kid\":\"a\"}]}", "keys of its kind"},
        {"{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"a\",\"n\":\"AQ\",\"e\":\"AQAB\"}]}",
         "RSA key of 1 bits, at least 2048"},
        {"{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"a\",\"n\":\"A+A\",\"e\":\"AQAB\"}]}", "n or e is missing or broken"},
        {"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"a\",\"x\":\"" X_OF_ED25519 "\",\"y\":\"" X_OF_ED25519
         "\"}]}",
         "no point of the curve"},
        {"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-521\",\"kid\":\"a\",\"x\":\"AA\",\"y\":\"AA\"}]}", "keys of its kind"},
        {"{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"a\",\"x\":\"AA\"}]}", "not a point of Ed25519"},
        {"{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" X_OF_ED25519 "\"}]}", "it has no kid"},
        {"{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" X_OF_ED25519
         "\",\"kid\":\"a\",\"key_ops\":[\"sign\"]}]}",
         "key_ops"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct jwt_keys *keys = NULL;
        struct err err = {0};
        assert_int_not_equal(jwt_keys_read(str_of(bad[i].text), &keys, &err), ERR_NONE);
        assert_null(keys);
        if (!strstr(err.text, bad[i].words))
            fail_msg("%s: %s", bad[i].text, err.text);
    }
    struct buf many;
    buf_init(&many, 0);
    buf_add_text(&many, "{\"keys\":[");
    for (int i = 0; i <= JWT_KEYS_MAX; i++)
        buf_printf(&many, "%s" ED_KEY("k%d"), i ? "," : "", i);
    buf_add_text(&many, "]}");
    struct jwt_keys *keys = NULL;
    struct err err = {0};
    assert_int_equal(jwt_keys_read(buf_str(&many), &keys, &err), ERR_LIMIT);
    buf_release(&many);
}

/* ---- claims ---- */

static const char *said(const char *claims, const struct jwt_issuer *from, struct arena *arena)
{
    struct json *value;
    struct err err = {0};
    struct caller caller;
    assert_int_equal(json_parse(arena, str_of(claims), NULL, &value, &err), ERR_NONE);
    struct jwt jwt = {.issuer = from->issuer, .claims = value};
    if (jwt_caller(arena, &jwt, from, NOW_MS, &caller, &err)) {
        assert_int_equal(err.code, ERR_DENIED);
        return arena_copy_text(arena, err.text);
    }
    return "";
}

static void test_claims(void **state)
{
    (void)state;
#define REST "\"org\":{\"tenant\":\"t\"},\"sub\":\"s\",\"roles\":\"viewer\",\"scope\":[]}"
#define AUD  "\"aud\":\"onced-old\","
    static const struct {
        const char *claims, *words; /* "" = taken */
    } rows[] = {
        /* now is 1800000000, the clocks may differ by 60 s */
        {"{\"exp\":1800000001," AUD REST, ""},
        {"{\"exp\":1799999941," AUD REST, ""},
        {"{\"exp\":1799999940.001," AUD REST, ""},
        {"{\"exp\":1799999940," AUD REST, "has expired at 2027-01-15T07:59:00Z"},
        {"{\"exp\":1.7e9," AUD REST, "has expired at"},
        {"{\"exp\":1e400," AUD REST, ""},
        {"{\"exp\":-1e400," AUD REST, "has expired at -1e400"},
        {"{\"exp\":\"1900000000\"," AUD REST, "must be numbers"},
        {"{" AUD REST, "does not say when it ends"},
        {"{\"nbf\":1700000000," AUD REST, "does not say when it ends"},
        {"{\"exp\":null," AUD REST, "must be numbers"},
        {"{\"exp\":1900000000,\"nbf\":1800000060," AUD REST, ""},
        {"{\"exp\":1900000000,\"nbf\":1800000060.5," AUD REST, "not valid yet: not before"},
        {"{\"exp\":1900000000,\"nbf\":\"0\"," AUD REST, "must be numbers"},
        {"{\"exp\":1900000000," REST, "for whom it was made"},
        {"{\"exp\":1900000000,\"aud\":[]," REST, "for whom it was made"},
        {"{\"exp\":1900000000,\"aud\":[1,\"x\"]," REST, "audience is \"x\", not \"onced\""},
        {"{\"exp\":1900000000,\"aud\":\"onced\\u0000\"," REST, "audience is \"onced?\""},
        {"{\"exp\":1900000000,\"aud\":[\"x\",\"onced\"]," REST, ""},
        {"{\"exp\":1900000000," AUD "\"sub\":\"s\",\"roles\":\"viewer\",\"scope\":\"\"}", "no claim /org/tenant"},
        {"{\"exp\":1900000000," AUD "\"org\":{\"tenant\":7},\"sub\":\"s\",\"roles\":\"viewer\",\"scope\":\"\"}",
         "/org/tenant, which is to name the tenant, is not 1 to 128"},
        {"{\"exp\":1900000000," AUD
         "\"org\":{\"tenant\":\"t\"},\"sub\":\"s\\u0000\",\"roles\":\"viewer\",\"scope\":\"\"}",
         "which is to name the principal, is not"},
        {"{\"exp\":1900000000," AUD "\"org\":{\"tenant\":\"t\"},\"sub\":\"\",\"roles\":\"viewer\",\"scope\":\"\"}",
         "which is to name the principal, is not"},
        {"{\"exp\":1900000000," AUD
         "\"org\":{\"tenant\":\"t\"},\"sub\":\"s\",\"roles\":\"none viewers\",\"scope\":\"\"}",
         "no role here"},
        {"{\"exp\":1900000000," AUD "\"org\":{\"tenant\":\"t\"},\"sub\":\"s\",\"roles\":[7,\"x\"],\"scope\":\"\"}", ""},
        {"{\"exp\":1900000000," AUD "\"org\":{\"tenant\":\"t\"},\"sub\":\"s\",\"scope\":\"\"}", "no role here"},
        {"{\"exp\":1900000000," AUD "\"org\":{\"tenant\":\"t\"},\"sub\":\"s\",\"roles\":\"ops\"}", "no claim /scope"},
        {"{\"exp\":1900000000," AUD "\"org\":{\"tenant\":\"t\"},\"sub\":\"s\",\"roles\":\"ops\",\"scope\":[7]}",
         "the token's claim /scope: expected a list of texts"},
    };
    struct jwt_issuer from = issuer();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena arena;
        arena_init(&arena);
        const char *words = said(rows[i].claims, &from, &arena);
        if (rows[i].words[0] ? !strstr(words, rows[i].words) : words[0] != '\0')
            fail_msg("%s: \"%s\", expected \"%s\"", rows[i].claims, words, rows[i].words);
        arena_release(&arena);
    }
}

/* A fixed tenant, a prefix, and no lists: what the file says and not the token. */
static void test_what_the_file_says(void **state)
{
    (void)state;
    struct jwt_issuer from = issuer();
    struct arena arena;
    struct json *claims;
    struct caller caller;
    struct err err = {0};
    arena_init(&arena);
    from.tenant = "fixed";
    from.prefix = "idp:";
    from.roles_from = from.tools = NULL;
    json_parse(&arena,
               STR("{\"exp\":1900000000,\"aud\":\"onced\",\"sub\":\"s\",\"tenant\":\"mine\",\"roles\":[\"ops\"]}"),
               NULL, &claims, &err);
    struct jwt jwt = {.issuer = from.issuer, .claims = claims};
    assert_int_equal(jwt_caller(&arena, &jwt, &from, NOW_MS, &caller, &err), ERR_NONE);
    assert_string_equal(caller.tenant, "fixed");
    assert_string_equal(caller.principal, "idp:s");
    assert_int_equal(caller.role, ROLE_AGENT);
    assert_null(caller.scope);
    arena_release(&arena);
}

static void test_size(void **state)
{
    (void)state;
    struct arena arena;
    struct jwt jwt;
    struct err err = {0};
    char token[JWT_BYTES_MAX + 2];
    memset(token, 'a', sizeof token);
    token[sizeof token - 1] = '\0';
    arena_init(&arena);
    assert_int_equal(jwt_read(&arena, str_of(token), &jwt, &err), ERR_LIMIT);
    assert_string_equal(err.text, "the token has 6145 bytes, at most 6144 are read");
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_and_forms),
        cmocka_unit_test(test_one_text_for_one_token),
        cmocka_unit_test(test_every_algorithm),
        cmocka_unit_test(test_every_changed_character),
        cmocka_unit_test(test_keys_that_do_not_fit),
        cmocka_unit_test(test_key_sets),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_what_the_file_says),
        cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
