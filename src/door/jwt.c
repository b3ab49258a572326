#include "door/jwt.h"

#include "base/base64.h"
#include "base/env.h"
#include "door/jwt_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#define SHOWN_MAX   64 /* characters of a token's text in messages */
#define KID_MAX     256
#define ISSUER_MAX  512
#define PART_VALUES 4096 /* values in a header or payload */
#define PART_DEPTH  16
#define SECOND_MS   1000
#define TIME_DIGITS 32

static const char *const algorithm_names[] = {
#define X(constant, name) [constant] = (name),
    JWT_ALGORITHMS(X)
#undef X
};

const char *jwt_algorithm_name(enum jwt_algorithm algorithm)
{
    return algorithm_names[algorithm];
}

/* What a token says is shown to people: cut, and without what could end a header line. */
static const char *shown(struct arena *arena, struct str text)
{
    size_t n = text.n < SHOWN_MAX ? text.n : SHOWN_MAX;
    char *copy = arena_alloc(arena, n + 1);
    for (size_t i = 0; i < n; i++)
        copy[i] = text.p[i] >= ' ' && text.p[i] < 0x7f && text.p[i] != '"' ? text.p[i] : '?';
    copy[n] = '\0';
    return copy;
}

/* ---- reading ---- */

bool jwt_decode(struct arena *arena, struct str text, struct str *out)
{
    unsigned char *bytes = arena_alloc(arena, BASE64_DECODED_MAX(text.n));
    size_t n;
    if (!base64url_decode(text, bytes, &n))
        return false;
    *out = (struct str){(const char *)bytes, n};
    return true;
}

bool jwt_looks_like(struct str token)
{
    return token.n > 0 && memchr(token.p, '.', token.n) != NULL;
}

static enum err_code read_part(struct arena *arena, struct str text, const char *what, const struct json **out,
                               struct err *err)
{
    const struct json_limits limits = {.bytes_max = JWT_BYTES_MAX, .depth_max = PART_DEPTH, .values_max = PART_VALUES};
    struct str decoded;
    struct json *value;
    if (!jwt_decode(arena, text, &decoded))
        return err_set(err, ERR_INVALID, "the token's %s is not base64url", what);
    enum err_code code = json_parse(arena, decoded, &limits, &value, err);
    if (code) {
        err_prefix(err, "the token's %s is not JSON: ", what);
        return code;
    }
    if (value->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "the token's %s is not a JSON object", what);
    *out = value;
    return ERR_NONE;
}

static enum err_code read_algorithm(struct arena *arena, struct str name, enum jwt_algorithm *out, struct err *err)
{
    if (!name.p)
        return err_set(err, ERR_INVALID, "the token's header has no alg");
    if (name.n == 4 && strncasecmp(name.p, "none", 4) == 0)
        return err_set(err, ERR_DENIED, "the token is not signed (alg none), which is never accepted");
    if (name.n >= 2 && strncasecmp(name.p, "HS", 2) == 0)
        return err_set(err, ERR_DENIED,
                       "the token's alg %s is symmetric, which is never accepted: whoever can check such a token can "
                       "make one",
                       shown(arena, name));
    for (unsigned i = 0; i < sizeof algorithm_names / sizeof *algorithm_names; i++) {
        if (str_is(name, algorithm_names[i])) {
            *out = (enum jwt_algorithm)i;
            return ERR_NONE;
        }
    }
    if (str_is(name, "Ed25519")) { /* RFC 9864's name for what EdDSA is with such a key */
        *out = JWT_EDDSA;
        return ERR_NONE;
    }
    return err_set(err, ERR_DENIED, "the token's alg \"%s\" is not known here", shown(arena, name));
}

/* RFC 8725 3.11: a token that was made for something else is not an access token. */
static bool is_access_type(struct str type)
{
    static const struct str prefix = STR("application/");
    if (!type.p)
        return true;
    if (type.n > prefix.n && strncasecmp(type.p, prefix.p, prefix.n) == 0)
        type = (struct str){type.p + prefix.n, type.n - prefix.n};
    return (type.n == 3 && strncasecmp(type.p, "JWT", 3) == 0) ||
           (type.n == 6 && strncasecmp(type.p, "at+jwt", 6) == 0);
}

static bool is_plain(struct str text, size_t max)
{
    return text.p && text.n > 0 && text.n <= max && !memchr(text.p, '\0', text.n);
}

static enum err_code read_header(struct arena *arena, const struct json *header, struct jwt *jwt, struct err *err)
{
    enum err_code code = read_algorithm(arena, json_get_text(header, "alg"), &jwt->algorithm, err);
    if (code)
        return code;
    const struct json *type = json_get(header, "typ");
    struct str kid = json_get_text(header, "kid");
    if (json_get(header, "crit"))
        return err_set(err, ERR_DENIED, "the token's header has critical extensions (crit), which are not known here");
    if (type && (type->type != JSON_STRING || !is_access_type(type->text)))
        return err_set(err, ERR_DENIED, "the token is of type \"%s\" (typ), expected JWT or at+jwt",
                       type->type == JSON_STRING ? shown(arena, type->text) : json_type_name(type->type));
    if (!is_plain(kid, KID_MAX))
        return err_set(err, ERR_DENIED, "the token's header does not name its key (kid)");
    jwt->kid = arena_copy_str(arena, kid);
    return ERR_NONE;
}

/* header.payload.signature: where the dots are. */
static bool split(struct str token, struct str parts[3])
{
    size_t count = 0, from = 0;
    for (size_t i = 0; i <= token.n; i++) {
        if (i < token.n && token.p[i] != '.')
            continue;
        if (count == 3)
            return false;
        parts[count++] = (struct str){token.p + from, i - from};
        from = i + 1;
    }
    return count == 3;
}

enum err_code jwt_read(struct arena *arena, struct str token, struct jwt *out, struct err *err)
{
    struct str parts[3];
    const struct json *header;
    struct jwt jwt = {0};
    if (token.n > JWT_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the token has %zu bytes, at most %d are read", token.n, JWT_BYTES_MAX);
    if (!split(token, parts))
        return err_set(err, ERR_INVALID, "the token is not a signed one: expected HEADER.PAYLOAD.SIGNATURE");
    enum err_code code = read_part(arena, parts[0], "header", &header, err);
    if (!code)
        code = read_header(arena, header, &jwt, err);
    if (!code)
        code = read_part(arena, parts[1], "payload", &jwt.claims, err);
    if (code)
        return code;
    if (!jwt_decode(arena, parts[2], &jwt.signature) || jwt.signature.n == 0)
        return err_set(err, ERR_INVALID, "the token's signature is not base64url");
    struct str issuer = json_get_text(jwt.claims, "iss");
    if (!is_plain(issuer, ISSUER_MAX))
        return err_set(err, ERR_INVALID, "the token does not say who issued it (iss)");
    jwt.issuer = arena_copy_str(arena, issuer);
    jwt.signed_text = (struct str){token.p, parts[0].n + 1 + parts[1].n};
    *out = jwt;
    return ERR_NONE;
}

/* ---- time ---- */

/* now + by_ms as a JSON number of seconds: RFC 7519's times may have fractions, and ours are exact decimals. */
static struct str seconds_text(char out[TIME_DIGITS], int64_t ms)
{
    int n = snprintf(out, TIME_DIGITS, "%" PRId64 ".%03d", ms / SECOND_MS, (int)(ms % SECOND_MS));
    return (struct str){out, (size_t)n};
}

static const char *time_words(struct arena *arena, const struct json *value)
{
    char text[ENV_TIME_SIZE];
    int64_t seconds;
    if (!json_number_int64(value->text, &seconds) || seconds < 0 || seconds > INT64_C(100000000000))
        return shown(arena, value->text);
    env_time_text(seconds * SECOND_MS, text);
    return arena_printf(arena, "%.19sZ", text);
}

static enum err_code check_times(struct arena *arena, const struct jwt *jwt, const struct jwt_issuer *issuer,
                                 int64_t now_ms, struct err *err)
{
    const struct json *exp = json_get(jwt->claims, "exp"), *nbf = json_get(jwt->claims, "nbf");
    char text[TIME_DIGITS];
    if (!exp)
        return err_set(err, ERR_DENIED, "the token does not say when it ends (exp)");
    if (exp->type != JSON_NUMBER || (nbf && nbf->type != JSON_NUMBER))
        return err_set(err, ERR_DENIED, "the token's times (exp, nbf) must be numbers of seconds");
    if (json_number_compare(exp->text, seconds_text(text, now_ms - issuer->leeway_ms)) <= 0)
        return err_set(err, ERR_DENIED, "the token has expired at %s", time_words(arena, exp));
    if (nbf && json_number_compare(nbf->text, seconds_text(text, now_ms + issuer->leeway_ms)) > 0)
        return err_set(err, ERR_DENIED, "the token is not valid yet: not before %s", time_words(arena, nbf));
    return ERR_NONE;
}

/* ---- audience ---- */

static bool is_for(const struct jwt_issuer *issuer, struct str audience)
{
    for (size_t i = 0; i < issuer->audience_count; i++)
        if (str_is(audience, issuer->audiences[i]))
            return true;
    return false;
}

static enum err_code check_audience(struct arena *arena, const struct jwt *jwt, const struct jwt_issuer *issuer,
                                    struct err *err)
{
    const struct json *aud = json_get(jwt->claims, "aud");
    struct str first = STR_NONE;
    if (aud && aud->type == JSON_STRING) {
        first = aud->text;
        if (is_for(issuer, first))
            return ERR_NONE;
    }
    for (uint32_t i = 0; aud && aud->type == JSON_ARRAY && i < aud->count; i++) {
        if (aud->items[i].type != JSON_STRING)
            continue;
        if (is_for(issuer, aud->items[i].text))
            return ERR_NONE;
        if (!first.p)
            first = aud->items[i].text;
    }
    if (!first.p)
        return err_set(err, ERR_DENIED, "the token does not say for whom it was made (aud)");
    return err_set(err, ERR_DENIED, "the token was made for somebody else: its audience is \"%s\", not \"%s\"",
                   shown(arena, first), issuer->audiences[0]);
}

/* ---- who it stands for ---- */

static bool is_name(struct str text, size_t max)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] <= ' ' || text.p[i] >= 0x7f)
            return false;
    return text.n > 0 && text.n <= max;
}

static enum err_code read_name(struct arena *arena, const struct jwt *jwt, const char *pointer, const char *what,
                               const char *prefix, const char **out, struct err *err)
{
    const struct json *value = json_pointer_get(jwt->claims, str_of(pointer));
    if (!value)
        return err_set(err, ERR_DENIED, "the token has no claim %s, which is to name the %s", pointer, what);
    if (value->type != JSON_STRING || !is_name(value->text, PRINCIPAL_BYTES_MAX - strlen(prefix)))
        return err_set(err, ERR_DENIED,
                       "the token's claim %s, which is to name the %s, is not 1 to %zu printable characters without "
                       "spaces",
                       pointer, what, PRINCIPAL_BYTES_MAX - strlen(prefix));
    *out = arena_printf(arena, "%s%.*s", prefix, STR_ARG(value->text));
    return ERR_NONE;
}

/* The highest role that one value stands for; false: none. */
static bool role_of(const struct jwt_issuer *issuer, struct str value, enum role *role, bool *any)
{
    for (size_t i = 0; i < issuer->role_count; i++) {
        if (!str_is(value, issuer->roles[i].value))
            continue;
        if (!*any || issuer->roles[i].role > *role)
            *role = issuer->roles[i].role;
        *any = true;
    }
    return *any;
}

/* A list of texts, or one text with blanks between its words. */
static enum err_code read_role(const struct jwt *jwt, const struct jwt_issuer *issuer, enum role *out, struct err *err)
{
    bool any = false;
    *out = ROLE_AGENT;
    if (!issuer->roles_from)
        return ERR_NONE;
    const struct json *value = json_pointer_get(jwt->claims, str_of(issuer->roles_from));
    struct str words = value && value->type == JSON_STRING ? value->text : STR_NONE;
    for (uint32_t i = 0; value && value->type == JSON_ARRAY && i < value->count; i++)
        if (value->items[i].type == JSON_STRING)
            role_of(issuer, value->items[i].text, out, &any);
    for (size_t at = 0, end; at < words.n; at = end + 1) {
        for (end = at; end < words.n && words.p[end] != ' ';)
            end++;
        role_of(issuer, (struct str){words.p + at, end - at}, out, &any);
    }
    if (!any)
        return err_set(err, ERR_DENIED,
                       "the token has no role here: its claim %s names none of those that issuer %s maps",
                       issuer->roles_from, issuer->name);
    return ERR_NONE;
}

/* A claim that is to limit the token and is not there limits it to nothing: said so, rather than letting all pass. */
static enum err_code read_list(struct arena *arena, const struct jwt *jwt, enum scope_kind kind, const char *pointer,
                               struct scope_list *out, struct err *err)
{
    if (!pointer)
        return ERR_NONE;
    const struct json *value = json_pointer_get(jwt->claims, str_of(pointer));
    const char *what = kind == SCOPE_TOOLS ? "tools" : "entities";
    if (!value)
        return err_set(err, ERR_DENIED, "the token has no claim %s, which is to list its %s", pointer, what);
    if (scope_list_read(arena, kind, value, arena_printf(arena, "the token's claim %s", pointer), out, err))
        return err->code = ERR_DENIED;
    return ERR_NONE;
}

enum err_code jwt_caller(struct arena *arena, const struct jwt *jwt, const struct jwt_issuer *issuer, int64_t now_ms,
                         struct caller *out, struct err *err)
{
    struct caller caller = {0};
    struct scope *scope = arena_zero(arena, sizeof *scope);
    assert(strcmp(jwt->issuer, issuer->issuer) == 0);
    enum err_code code = check_times(arena, jwt, issuer, now_ms, err);
    if (!code)
        code = check_audience(arena, jwt, issuer, err);
    if (!code && issuer->tenant[0] != '/')
        caller.tenant = issuer->tenant;
    else if (!code)
        code = read_name(arena, jwt, issuer->tenant, "tenant", "", &caller.tenant, err);
    if (!code)
        code = read_name(arena, jwt, issuer->principal, "principal", issuer->prefix, &caller.principal, err);
    if (!code)
        code = read_role(jwt, issuer, &caller.role, err);
    if (!code)
        code = read_list(arena, jwt, SCOPE_TOOLS, issuer->tools, &scope->tools, err);
    if (!code)
        code = read_list(arena, jwt, SCOPE_ENTITIES, issuer->entities, &scope->entities, err);
    if (code)
        return code;
    caller.scope = scope_is_limited(scope) ? scope : NULL;
    *out = caller;
    return ERR_NONE;
}
