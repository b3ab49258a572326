/* server.jwt: the identity providers whose signed tokens are taken. */
#include "daemon/config_auth.h"

#include "base/digest.h"
#include "daemon/config_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <strings.h>
#include <unistd.h>

/* ---- members that are more than texts ---- */

static const char *member_pointer(const struct config_auth_reader *reader, const char *parent, const char *name)
{
    return arena_printf(reader->problems->arena, "%s/%s", parent, name);
}

/* Whether a text is a JSON Pointer to a claim; NULL is none at all. */
static void check_claim(const struct config_auth_reader *reader, const char *parent, const char *name, const char *text)
{
    if (text && (text[0] != '/' || !json_pointer_valid(str_of(text))))
        problems_add(reader->problems, member_pointer(reader, parent, name),
                     "\"%.60s\" is no JSON Pointer to a claim of the token, expected for example /sub", text);
}

static bool is_name(const char *text, size_t max)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return false;
    return n > 0 && n <= max;
}

static void check_tenant(const struct config_auth_reader *reader, const char *parent, const char *tenant)
{
    if (!tenant)
        return;
    if (tenant[0] == '/')
        check_claim(reader, parent, "tenant", tenant);
    else if (!is_name(tenant, PRINCIPAL_BYTES_MAX))
        problems_add(reader->problems, member_pointer(reader, parent, "tenant"),
                     "expected a tenant's name (1 to %d printable characters without spaces) or a JSON Pointer to the "
                     "claim that has it",
                     PRINCIPAL_BYTES_MAX);
}

static void check_prefix(const struct config_auth_reader *reader, const char *parent, const char *prefix)
{
    if (prefix && prefix[0] && !is_name(prefix, PRINCIPAL_BYTES_MAX / 2))
        problems_add(reader->problems, member_pointer(reader, parent, "prefix"),
                     "expected at most %d printable characters without spaces", PRINCIPAL_BYTES_MAX / 2);
}

static void read_roles(const struct config_auth_reader *reader, const char *parent, const struct json *map,
                       struct jwt_issuer *issuer)
{
    const char *pointer = member_pointer(reader, parent, "roles/map");
    check_claim(reader, parent, "roles/from", issuer->roles_from);
    if (!map)
        return;
    struct jwt_role *roles = arena_zero(reader->arena, (map->count + 1) * sizeof *roles);
    for (uint32_t i = 0; i < map->count; i++) {
        const struct json_member *member = &map->members[i];
        struct jwt_role *role = &roles[issuer->role_count++];
        role->value = arena_copy_str(reader->arena, member->name);
        if (member->value.type != JSON_STRING || !role_from_name(member->value.text, &role->role))
            problems_add(reader->problems, options_pointer(reader->problems->arena, pointer, member->name),
                         "expected a role: agent, approver, operator or admin");
    }
    if (map->count == 0)
        problems_add(reader->problems, pointer, "is empty: no token would have a role");
    issuer->roles = roles;
}

/* ---- where the keys are ---- */

static bool is_loopback(struct str host)
{
    char text[64];
    struct in_addr v4;
    if (str_is(host, "localhost") || str_is(host, "[::1]"))
        return true;
    if (host.n >= sizeof text)
        return false;
    memcpy(text, host.p, host.n);
    text[host.n] = '\0';
    return inet_pton(AF_INET, text, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

/* The host of "http://HOST:PORT/…", without a name and password in front of it. */
static struct str host_of(const char *url)
{
    const char *from = strstr(url, "://") + 3;
    size_t n = strcspn(from, "/?#");
    const char *at = memrchr(from, '@', n);
    if (at) {
        n -= (size_t)(at + 1 - from);
        from = at + 1;
    }
    size_t end = n > 0 && from[0] == '[' ? strcspn(from, "]") + 1 : strcspn(from, ":/?#");
    return (struct str){from, end < n ? end : n};
}

static void check_file(const struct config_auth_reader *reader, const char *pointer, const char *path)
{
    if (access(path, R_OK) != 0)
        problems_warn(reader->problems, pointer, "%s cannot be read now: %s", path, strerror(errno));
}

static void read_jwks(const struct config_auth_reader *reader, const char *parent, struct jwt_issuer *issuer)
{
    const char *pointer = member_pointer(reader, parent, "jwks"), *text = issuer->jwks;
    if (!text)
        return;
    if (strncmp(text, "file:", 5) == 0 && text[5]) {
        issuer->jwks_is_file = true;
        issuer->jwks = config_resolve_path(reader->arena, reader->folder, str_of(text + 5));
        check_file(reader, pointer, issuer->jwks);
    } else if (strncasecmp(text, "http://", 7) == 0) {
        if (!is_loopback(host_of(text)))
            problems_add(reader->problems, pointer,
                         "keys that come over plain HTTP are anybody's: expected https://… (http://… is for loopback)");
    } else if (strncasecmp(text, "https://", 8) != 0) {
        problems_add(reader->problems, pointer, "expected https://…, or file:PATH");
    }
    if (issuer->ca) {
        issuer->ca = config_resolve_path(reader->arena, reader->folder, str_of(issuer->ca));
        check_file(reader, member_pointer(reader, parent, "ca"), issuer->ca);
    }
}

/* ---- all of them ---- */

static void read_issuer(const struct config_auth_reader *reader, const struct json_member *member, const char *pointer,
                        struct jwt_issuer *out)
{
    struct options_reader options = {.arena = reader->arena, .problems = reader->problems};
    struct config_jwt read = {0};
    options_read(&options, &config_jwt_section, &member->value, pointer, &read);
    read.issuer.name = arena_copy_str(reader->arena, member->name);
    read_jwks(reader, pointer, &read.issuer);
    check_tenant(reader, pointer, read.issuer.tenant);
    check_claim(reader, pointer, "principal", read.issuer.principal);
    check_claim(reader, pointer, "tools", read.issuer.tools);
    check_claim(reader, pointer, "entities", read.issuer.entities);
    check_prefix(reader, pointer, read.issuer.prefix);
    read_roles(reader, pointer, read.roles_map, &read.issuer);
    if (read.issuer.audiences && read.issuer.audience_count == 0)
        problems_add(reader->problems, member_pointer(reader, pointer, "audience"),
                     "is empty: no token would be for this server");
    if (read.issuer.algorithm_count == 0)
        problems_add(reader->problems, member_pointer(reader, pointer, "algorithms"),
                     "is empty: no token would be accepted");
    *out = read.issuer;
}

/* Two issuers may both know a "bob"; only a prefix tells them apart. */
static void check_pair(const struct config_auth_reader *reader, const struct jwt_issuer *a, const struct jwt_issuer *b)
{
    const char *pointer = options_pointer(reader->problems->arena, "/server/jwt", str_of(b->name));
    if (text_equal(a->issuer, b->issuer))
        problems_add(reader->problems, member_pointer(reader, pointer, "issuer"), "is that of %s already", a->name);
    else if (text_equal(a->prefix, b->prefix) && a->tenant && b->tenant &&
             (a->tenant[0] == '/' || b->tenant[0] == '/' || strcmp(a->tenant, b->tenant) == 0))
        problems_warn(reader->problems, pointer,
                      "principals of %s and %s may have the same names; give each a prefix of its own", a->name,
                      b->name);
}

void config_auth_read(const struct config_auth_reader *reader, const struct json *section, struct config_server *server)
{
    if (!section || section->type != JSON_OBJECT || section->count == 0)
        return;
    struct buf canonical;
    buf_init(&canonical, 0);
    json_canonical(&canonical, section);
    server->jwt_digest = digest_sha256(buf_str(&canonical));
    buf_release(&canonical);
    if (section->count > JWT_ISSUERS_MAX) {
        problems_add(reader->problems, "/server/jwt", "%u issuers, at most %d are allowed", (unsigned)section->count,
                     JWT_ISSUERS_MAX);
        return;
    }
    if (server->auth != CONFIG_AUTH_TOKENS)
        problems_add(reader->problems, "/server/jwt", "needs auth: tokens; without it no token is looked at");
    struct jwt_issuer *issuers = arena_zero(reader->arena, section->count * sizeof *issuers);
    for (uint32_t i = 0; i < section->count; i++) {
        const struct json_member *member = &section->members[i];
        const char *pointer = options_pointer(reader->problems->arena, "/server/jwt", member->name);
        if (!config_name_valid(member->name))
            problems_add(reader->problems, pointer, "a name has 1 to %d letters, digits, \"_\", \".\" and \"-\"",
                         CONFIG_NAME_BYTES_MAX);
        read_issuer(reader, member, pointer, &issuers[i]);
        for (uint32_t k = 0; k < i; k++)
            check_pair(reader, &issuers[k], &issuers[i]);
    }
    server->issuers = issuers;
    server->issuer_count = section->count;
}
