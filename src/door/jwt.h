/* Signed tokens (JWT in JWS compact form, RFC 7515, 7519, 8725) of the user's identity provider: read, verified against
 * its public keys (JWKS, RFC 7517), and turned into a caller. Pure: no clock, no I/O; the keys' fetching is issuers.h.
 *
 * The cryptography is OpenSSL's. The forms around it are read here, by the strict JSON reader that everything else of
 * onced uses (names given twice are refused, numbers are exact): of Debian's JOSE libraries cjose and libjwt know no
 * EdDSA, and rhonabwy brings a second TLS library and follows addresses that a token names (jku, x5u).
 *
 * What is refused before any key is looked at: alg none, symmetric algorithms (a public key must never become a shared
 * secret), algorithms that the issuer is not configured for, critical extensions, encrypted tokens. A key is used with
 * the one family of algorithms that it is made for. Every refusal has a sentence of its own. */
#ifndef DOOR_JWT_H
#define DOOR_JWT_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "door/caller.h"

#define JWT_BYTES_MAX      6144 /* a whole token; fits into a request's head with room to spare (HTTP_HEAD_BYTES_MAX) */
#define JWT_KEYS_MAX       100  /* of one issuer */
#define JWT_KEY_SET_MAX    ((size_t)256 * 1024) /* bytes of a JWKS */
#define JWT_RSA_BITS_MIN   2048
#define JWT_AUDIENCES_MAX  16
#define JWT_ALGORITHMS_MAX 7
#define JWT_ISSUERS_MAX    16

/* X(constant, name), in the order of the registry file's choices. */
#define JWT_ALGORITHMS(X)                                                                                              \
    X(JWT_RS256, "RS256")                                                                                              \
    X(JWT_RS384, "RS384")                                                                                              \
    X(JWT_RS512, "RS512")                                                                                              \
    X(JWT_PS256, "PS256")                                                                                              \
    X(JWT_ES256, "ES256")                                                                                              \
    X(JWT_ES384, "ES384")                                                                                              \
    X(JWT_EDDSA, "EdDSA")
enum jwt_algorithm {
#define X(constant, name) constant,
    JWT_ALGORITHMS(X)
#undef X
};
const char *jwt_algorithm_name(enum jwt_algorithm algorithm);

/* ---- what an issuer's tokens must be, and what they mean (server.jwt of the registry file) ---- */

struct jwt_role { /* a value of the token's claim and the role it stands for */
    const char *value;
    enum role role;
};

/* Borrowed texts. Where a claim is named, it is by JSON Pointer. */
struct jwt_issuer {
    const char *name;   /* in the registry file, for messages */
    const char *issuer; /* of `iss`, compared byte by byte */
    const char *const *audiences;
    size_t audience_count; /* one of them must be in `aud` */
    const char *jwks;      /* URL, or path of a file */
    bool jwks_is_file;
    const char *ca; /* PEM file for the URL's certificate; NULL: the system's */
    enum jwt_algorithm algorithms[JWT_ALGORITHMS_MAX];
    unsigned algorithm_count;
    const char *tenant;     /* begins with "/": a claim; else the tenant of all its tokens */
    const char *principal;  /* claim */
    const char *prefix;     /* put before the principal's name, so that two issuers' names never meet; "" = none */
    const char *roles_from; /* claim; NULL: every token has the role agent */
    const struct jwt_role *roles;
    size_t role_count;
    const char *tools, *entities; /* claims that limit the token; NULL: they do not */
    int64_t leeway_ms;            /* between the clocks */
    int64_t refresh_ms;           /* the keys are fetched anew so often */
};

/* ---- keys ---- */

struct jwt_keys;
/* Reads a JWKS. Keys that cannot be used (of unknown kinds, too short, for encryption) are remembered with the reason.
 * ERR_INVALID, ERR_LIMIT: no key set, or none of its keys can be used. */
enum err_code jwt_keys_read(struct str text, struct jwt_keys **out, struct err *err);
void jwt_keys_free(struct jwt_keys *keys); /* NULL is fine */
size_t jwt_keys_count(const struct jwt_keys *keys);

/* ---- tokens ---- */

/* Everything lies in the arena that it was read into, but for signed_text, which is borrowed from the token. */
struct jwt {
    enum jwt_algorithm algorithm;
    const char *kid, *issuer;
    const struct json *claims;
    struct str signed_text; /* header.payload as sent */
    struct str signature;   /* decoded */
};

/* Whether a bearer token can only be meant as one of these: it has dots. */
bool jwt_looks_like(struct str token);

/* Reads without believing anything. ERR_INVALID, ERR_LIMIT, ERR_DENIED (an algorithm that is never accepted). */
enum err_code jwt_read(struct arena *arena, struct str token, struct jwt *out, struct err *err);

/* Whether the issuer signed it. ERR_NOT_FOUND: its keys do not have that kid: they may have been renewed. ERR_DENIED:
 * refused for good. */
enum err_code jwt_verify(const struct jwt *jwt, const struct jwt_issuer *issuer, const struct jwt_keys *keys,
                         struct err *err);

/* Of a verified token: issuer, time and audience, then who it stands for, in arena. ERR_DENIED. */
enum err_code jwt_caller(struct arena *arena, const struct jwt *jwt, const struct jwt_issuer *issuer, int64_t now_ms,
                         struct caller *out, struct err *err);

#endif
