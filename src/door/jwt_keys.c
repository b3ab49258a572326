/* An issuer's public keys (RFC 7517, 7518, 8037) and the check of a signature with one of them. */
#include "base/mem.h"
#include "door/jwt_parts.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>

#define RSA_BITS_MAX   8192 /* larger ones would make a check cost too much */
#define EXPONENT_MAX   8    /* bytes */
#define COORDINATE_MAX 48
#define SIGNATURE_DER  128 /* of two P-384 numbers */
#define ED25519_BYTES  32
#define KEY_SET_VALUES 20000
#define KEY_SET_DEPTH  16
#define KID_SHOWN_MAX  64

/* How algorithms and keys go together. */
struct family {
    enum jwt_algorithm algorithm;
    const char *kty, *curve; /* curve: NULL for RSA */
    const EVP_MD *(*digest)(void);
    bool pss;
    size_t coordinate; /* bytes of r and of s; 0: the signature is as it is sent */
};

static const struct family families[] = {
    {JWT_RS256, "RSA", NULL, EVP_sha256, false, 0},    {JWT_RS384, "RSA", NULL, EVP_sha384, false, 0},
    {JWT_RS512, "RSA", NULL, EVP_sha512, false, 0},    {JWT_PS256, "RSA", NULL, EVP_sha256, true, 0},
    {JWT_ES256, "EC", "P-256", EVP_sha256, false, 32}, {JWT_ES384, "EC", "P-384", EVP_sha384, false, 48},
    {JWT_EDDSA, "OKP", "Ed25519", NULL, false, 0},
};

static const struct family *family_of(enum jwt_algorithm algorithm)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].algorithm == algorithm)
            return &families[i];
    return NULL;
}

struct key {
    const char *kid;
    const char *kty, *curve; /* curve: NULL for RSA */
    const char *alg;         /* the only one that it may be used with; NULL = not stated */
    EVP_PKEY *pkey;          /* NULL: cannot be used, because of … */
    const char *why;
};

struct jwt_keys {
    struct arena arena;
    struct key *keys;
    size_t count, usable;
};

size_t jwt_keys_count(const struct jwt_keys *keys)
{
    return keys->usable;
}

void jwt_keys_free(struct jwt_keys *keys)
{
    if (!keys)
        return;
    for (size_t i = 0; i < keys->count; i++)
        EVP_PKEY_free(keys->keys[i].pkey);
    arena_release(&keys->arena);
    free(keys);
}

/* ---- one key ---- */

static EVP_PKEY *from_parameters(const char *type, OSSL_PARAM_BLD *build)
{
    OSSL_PARAM *parameters = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *pkey = NULL;
    if (!parameters || !context || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &pkey, EVP_PKEY_PUBLIC_KEY, parameters) != 1)
        pkey = NULL;
    EVP_PKEY_CTX_free(context);
    OSSL_PARAM_free(parameters);
    return pkey;
}

static bool member_bytes(struct arena *arena, const struct json *jwk, const char *name, struct str *out)
{
    struct str text = json_get_text(jwk, name);
    return text.p && text.n > 0 && text.n <= JWT_KEY_SET_MAX && jwt_decode(arena, text, out) && out->n > 0;
}

static BIGNUM *number(struct str bytes)
{
    return BN_bin2bn((const unsigned char *)bytes.p, (int)bytes.n, NULL);
}

static EVP_PKEY *rsa_key(struct arena *arena, const struct json *jwk, const char **why)
{
    struct str n, e;
    EVP_PKEY *pkey = NULL;
    *why = "its n or e is missing or broken";
    if (!member_bytes(arena, jwk, "n", &n) || !member_bytes(arena, jwk, "e", &e) || e.n > EXPONENT_MAX)
        return NULL;
    BIGNUM *modulus = number(n), *exponent = number(e);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    int bits = modulus ? BN_num_bits(modulus) : 0;
    if (!modulus || !exponent || !build)
        mem_exhausted("OpenSSL");
    if (bits < JWT_RSA_BITS_MIN)
        *why = arena_printf(arena, "it is an RSA key of %d bits, at least %d are wanted", bits, JWT_RSA_BITS_MIN);
    else if (bits > RSA_BITS_MAX)
        *why = arena_printf(arena, "it is an RSA key of %d bits, at most %d are taken", bits, RSA_BITS_MAX);
    else if (!BN_is_odd(modulus) || !BN_is_odd(exponent) || BN_is_one(exponent))
        *why = "its n or e is no RSA key's";
    else if (OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, modulus) == 1 &&
             OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, exponent) == 1)
        pkey = from_parameters("RSA", build);
    OSSL_PARAM_BLD_free(build);
    BN_free(modulus);
    BN_free(exponent);
    return pkey;
}

/* OpenSSL refuses points that are not on the curve. */
static EVP_PKEY *ec_key(struct arena *arena, const struct json *jwk, const struct family *family, const char **why)
{
    struct str x, y;
    unsigned char point[1 + 2 * COORDINATE_MAX] = {POINT_CONVERSION_UNCOMPRESSED};
    EVP_PKEY *pkey = NULL;
    size_t n = family->coordinate;
    *why = "its x and y are no point of the curve";
    if (!member_bytes(arena, jwk, "x", &x) || !member_bytes(arena, jwk, "y", &y) || x.n != n || y.n != n)
        return NULL;
    memcpy(point + 1, x.p, n);
    memcpy(point + 1 + n, y.p, n);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    if (!build)
        mem_exhausted("OpenSSL");
    if (OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, family->curve, 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, 1 + 2 * n) == 1)
        pkey = from_parameters("EC", build);
    OSSL_PARAM_BLD_free(build);
    return pkey;
}

static EVP_PKEY *okp_key(struct arena *arena, const struct json *jwk, const char **why)
{
    struct str x;
    *why = "its x is not a point of Ed25519";
    if (!member_bytes(arena, jwk, "x", &x) || x.n != ED25519_BYTES)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)x.p, x.n);
}

/* RFC 7517 4.2, 4.3: what the key says that it is for. */
static const char *not_for_signatures(const struct json *jwk)
{
    const struct json *use = json_get(jwk, "use"), *operations = json_get(jwk, "key_ops");
    if (use && !(use->type == JSON_STRING && str_is(use->text, "sig")))
        return "it is not for signatures (use)";
    if (!operations)
        return NULL;
    for (uint32_t i = 0; operations->type == JSON_ARRAY && i < operations->count; i++)
        if (operations->items[i].type == JSON_STRING && str_is(operations->items[i].text, "verify"))
            return NULL;
    return "it is not for checking signatures (key_ops)";
}

static const struct family *family_for(struct str kty, struct str curve)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (str_is(kty, families[i].kty) && (!families[i].curve || str_is(curve, families[i].curve)))
            return &families[i];
    return NULL;
}

static void read_key(struct arena *arena, const struct json *jwk, struct key *key)
{
    struct str kid = json_get_text(jwk, "kid"), alg = json_get_text(jwk, "alg");
    const struct family *family = family_for(json_get_text(jwk, "kty"), json_get_text(jwk, "crv"));
    key->kid = kid.p && !memchr(kid.p, '\0', kid.n) ? arena_copy_str(arena, kid) : NULL;
    key->why = not_for_signatures(jwk);
    if (key->why)
        return;
    key->why = "keys of its kind (kty, crv) are not known here";
    if (!family)
        return;
    key->kty = family->kty;
    key->curve = family->curve;
    key->alg = !alg.p ? NULL : str_is(alg, "Ed25519") ? "EdDSA" : arena_copy_str(arena, alg);
    if (!family->curve)
        key->pkey = rsa_key(arena, jwk, &key->why);
    else if (family->coordinate)
        key->pkey = ec_key(arena, jwk, family, &key->why);
    else
        key->pkey = okp_key(arena, jwk, &key->why);
}

enum err_code jwt_keys_read(struct str text, struct jwt_keys **out, struct err *err)
{
    const struct json_limits limits = {
        .bytes_max = JWT_KEY_SET_MAX, .depth_max = KEY_SET_DEPTH, .values_max = KEY_SET_VALUES};
    struct jwt_keys *keys = mem_zero(sizeof *keys);
    struct json *root;
    arena_init(&keys->arena);
    enum err_code code = json_parse(&keys->arena, text, &limits, &root, err);
    const struct json *list = code ? NULL : json_get(root, "keys");
    if (!code && (!list || list->type != JSON_ARRAY))
        code = err_set(err, ERR_INVALID, "not a key set: expected an object with a list \"keys\"");
    else if (!code && list->count > JWT_KEYS_MAX)
        code = err_set(err, ERR_LIMIT, "%u keys, at most %d are taken", (unsigned)list->count, JWT_KEYS_MAX);
    if (!code) {
        keys->keys = arena_zero(&keys->arena, (list->count + 1) * sizeof *keys->keys);
        for (uint32_t i = 0; i < list->count; i++) {
            struct key *key = &keys->keys[keys->count++];
            read_key(&keys->arena, &list->items[i], key);
            keys->usable += key->pkey && key->kid;
        }
        if (keys->usable == 0)
            code =
                err_set(err, ERR_INVALID, "none of the %zu keys can be used%s%s", keys->count, keys->count ? ": " : "",
                        keys->count ? (keys->keys[0].pkey ? "it has no kid" : keys->keys[0].why) : "");
        ERR_clear_error();
    }
    if (code) {
        jwt_keys_free(keys);
        return code;
    }
    *out = keys;
    return ERR_NONE;
}

/* ---- signatures ---- */

/* JWS has r and s as they are, OpenSSL wants them in DER. */
static size_t ecdsa_der(struct str signature, size_t coordinate, unsigned char out[SIGNATURE_DER])
{
    if (signature.n != 2 * coordinate)
        return 0;
    const unsigned char *bytes = (const unsigned char *)signature.p;
    BIGNUM *r = BN_bin2bn(bytes, (int)coordinate, NULL), *s = BN_bin2bn(bytes + coordinate, (int)coordinate, NULL);
    ECDSA_SIG *sig = ECDSA_SIG_new();
    if (!r || !s || !sig)
        mem_exhausted("OpenSSL");
    ECDSA_SIG_set0(sig, r, s); /* takes them; fails for NULL only */
    int n = i2d_ECDSA_SIG(sig, &out);
    ECDSA_SIG_free(sig);
    return n > 0 ? (size_t)n : 0;
}

static bool signature_fits(const struct family *family, EVP_PKEY *pkey, struct str text, struct str signature)
{
    unsigned char der[SIGNATURE_DER];
    const unsigned char *bytes = (const unsigned char *)signature.p;
    size_t n = signature.n;
    if (family->coordinate) {
        n = ecdsa_der(signature, family->coordinate, der);
        bytes = der;
        if (n == 0)
            return false;
    }
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_PKEY_CTX *key_context = NULL; /* of context */
    if (!context)
        mem_exhausted("OpenSSL");
    bool ready = EVP_DigestVerifyInit(context, &key_context, family->digest ? family->digest() : NULL, NULL, pkey) == 1;
    if (ready && family->pss)
        ready = EVP_PKEY_CTX_set_rsa_padding(key_context, RSA_PKCS1_PSS_PADDING) == 1 &&
                EVP_PKEY_CTX_set_rsa_pss_saltlen(key_context, RSA_PSS_SALTLEN_DIGEST) == 1;
    bool fits = ready && EVP_DigestVerify(context, bytes, n, (const unsigned char *)text.p, text.n) == 1;
    EVP_MD_CTX_free(context);
    ERR_clear_error();
    return fits;
}

/* A set may have several keys of one kid when their kinds differ (RFC 7517 4.5). */
static const struct key *find_key(const struct jwt_keys *keys, const char *kid, const struct family *family)
{
    const struct key *found = NULL;
    for (size_t i = 0; i < keys->count; i++) {
        const struct key *key = &keys->keys[i];
        if (!text_equal(key->kid, kid))
            continue;
        if (key->pkey && text_equal(key->kty, family->kty) && text_equal(key->curve, family->curve))
            return key;
        found = found ? found : key;
    }
    return found;
}

static bool is_accepted(const struct jwt_issuer *issuer, enum jwt_algorithm algorithm)
{
    for (unsigned i = 0; i < issuer->algorithm_count; i++)
        if (issuer->algorithms[i] == algorithm)
            return true;
    return false;
}

enum err_code jwt_verify(const struct jwt *jwt, const struct jwt_issuer *issuer, const struct jwt_keys *keys,
                         struct err *err)
{
    const struct family *family = family_of(jwt->algorithm);
    const char *alg = jwt_algorithm_name(jwt->algorithm);
    char kid[KID_SHOWN_MAX + 1] = "";
    for (size_t i = 0; i < KID_SHOWN_MAX && jwt->kid[i]; i++)
        kid[i] = jwt->kid[i] >= ' ' && jwt->kid[i] < 0x7f && jwt->kid[i] != '"' ? jwt->kid[i] : '?';
    if (!is_accepted(issuer, jwt->algorithm))
        return err_set(err, ERR_DENIED, "the token's alg %s is not among those of issuer %s (algorithms)", alg,
                       issuer->name);
    const struct key *key = find_key(keys, jwt->kid, family);
    if (!key)
        return err_set(err, ERR_NOT_FOUND, "issuer %s has no key \"%s\" (kid)", issuer->name, kid);
    if (!key->pkey)
        return err_set(err, ERR_DENIED, "issuer %s's key \"%s\" cannot be used: %s", issuer->name, kid, key->why);
    if (!text_equal(key->kty, family->kty) || !text_equal(key->curve, family->curve) ||
        (key->alg && strcmp(key->alg, alg) != 0))
        return err_set(err, ERR_DENIED, "the token's alg %s does not go with issuer %s's key \"%s\"", alg, issuer->name,
                       kid);
    if (!signature_fits(family, key->pkey, jwt->signed_text, jwt->signature))
        return err_set(err, ERR_DENIED, "the token's signature is wrong: it was changed, or signed with another key");
    return ERR_NONE;
}
