/* The registry file: every message with its place, defaults, the schema and the documents made from the option table.
 */
#include "daemon/config.h"

#include "daemon/config_options.h"
#include "daemon/init.h"
#include "daemon/yaml.h"

#include "support/suites.h"
#include "support/test.h"

#include <stdlib.h>
#include <unistd.h>

static const char *source_path(struct arena *arena, const char *name)
{
    const char *root = getenv("ONCED_SOURCE");
    return arena_printf(arena, "%s/%s", root ? root : ".", name);
}

/* ---- messages ---- */

static char *report_text(const struct config_report *report)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    config_report_print(report, file);
    fclose(file);
    return text;
}

/* Loads text as "f" and compares the whole report; errors or not must fit what is returned. */
static void expect(const char *text, const char *wanted)
{
    struct config_report report;
    struct registry *registry = NULL;
    config_report_init(&report);
    enum err_code code = config_load_text("f", str_of(text), NULL, &registry, &report);
    char *got = report_text(&report);
    if (strcmp(got, wanted) != 0)
        print_error("%s\nwanted:\n%s\ngot:\n%s", text, wanted, got);
    assert_string_equal(got, wanted);
    assert_int_equal(code != ERR_NONE, report.errors > 0);
    assert_int_equal(registry != NULL, report.errors == 0);
    free(got);
    registry_unref(registry);
    config_report_release(&report);
}

/* Part of what is said. */
static void expect_words(const char *text, const char *words)
{
    struct config_report report;
    struct registry *registry = NULL;
    config_report_init(&report);
    config_load_text("f", str_of(text), NULL, &registry, &report);
    char *got = report_text(&report);
    if (!strstr(got, words))
        fail_msg("%s\nwanted: %s\ngot:\n%s", text, words, got);
    free(got);
    registry_unref(registry);
    config_report_release(&report);
}

/* Two providers, one with keys and one without, so that a tool starts in line 6, column 3. */
#define PRELUDE                                                                                                        \
    "onced: 1\n"                                                                                                       \
    "providers:\n"                                                                                                     \
    "  keyed: {base_url: \"http://127.0.0.1:1\", key: {header: K, retention: 24h}}\n"                                  \
    "  plain: {base_url: \"http://127.0.0.1:1\"}\n"                                                                    \
    "tools:\n"

static void expect_tool(const char *tool, const char *wanted)
{
    struct buf text;
    buf_init(&text, 0);
    buf_printf(&text, PRELUDE "  t:\n%s", tool);
    expect(buf_str(&text).p, wanted);
    buf_release(&text);
}

#define REQUEST "    request: {path: /x}\n"
#define LOOKUP  "    lookup: {request: {path: /x}}\n"
#define READ    "    class: read\n    provider: plain\n" REQUEST
#define WEAK    "    class: external_weak\n    provider: plain\n" REQUEST LOOKUP
#define KEYED   "    class: external_idempotent\n    provider: keyed\n" REQUEST LOOKUP

static void test_top_level(void **state)
{
    (void)state;
    expect("onced: 1\n", "f:1:1: warning: /tools: no tools are defined: every call will be refused\n");
    expect("tools: {}\n", "f:1:1: /onced: is missing, expected 1\nf:1:1: warning: /tools: no tools are defined: every "
                          "call will be refused\n");
    expect("onced: 2\nserver: 3\n", "f:1:1: /onced: expected 1, found 2\nf:1:1: warning: /tools: no tools are defined: "
                                    "every call will be refused\nf:2:1: /server: expected a mapping, found 3\n");
    expect("[1]\n", "f:1:1: expected a mapping, found a list\nf:1:1: warning: /tools: no tools are defined: every call "
                    "will be refused\n");
    expect("onced: 1\ntool: {}\n", "f:1:1: warning: /tools: no tools are defined: every call will be refused\n"
                                   "f:2:1: /tool: unknown member \"tool\", did you mean \"tools\"?\n");
    expect("a: b: c\n", "f:1:5: invalid nested block mapping on the same line\n");
    expect("onced: 1\nonced: yes\n",
           "f:2:1: \"onced\" is given twice, first in line 1\nf:2:8: yes is a boolean to some YAML readers and text to "
           "others: write true, or \"yes\" in quotes\n");
}

#define SERVER(text)                                                                                                   \
    "onced: 1\ntools: {t: {class: read, provider: p, request: {path: /}}}\nproviders: {p: {base_url: "                 \
    "\"http://[::1]:1\"}}\nserver:\n" text

static void test_server(void **state)
{
    (void)state;
    expect(SERVER("  listen: \"[::1]:0\"\n"), "");
    expect(SERVER("  listen: localhost:1\n"), "");
    expect(SERVER("  listen: 127.9.9.9:65535\n"), "");
    static const char *const bad[] = {"7070",           "127.0.0.1", "127.0.0.1:65536", "::1:80",
                                      "example.com:80", ":80",       "127.0.0.1:",      "127.0.0.1:8o"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[300], wanted[300];
        snprintf(text, sizeof text, SERVER("  listen: \"%s\"\n"), bad[i]);
        snprintf(wanted, sizeof wanted,
                 "f:5:3: /server/listen: \"%s\" is not an address and port, expected for example "
                 "127.0.0.1:7070 or [::1]:7070\n",
                 bad[i]);
        expect(text, wanted);
    }
    expect(
        SERVER("  listen: 0.0.0.0:80\n"),
        "f:5:3: /server/listen: listening on 0.0.0.0 needs auth: tokens, or anybody who can reach it may call tools\n"
        "f:5:3: /server/listen: listening on 0.0.0.0 needs tls, or insecure_listen: true behind something that "
        "encrypts\n");
    expect(SERVER("  listen: 10.0.0.1:80\n  auth: tokens\n"),
           "f:5:3: /server/listen: listening on 10.0.0.1 needs tls, or "
           "insecure_listen: true behind something that encrypts\n");
    expect(SERVER("  listen: \"[2001:db8::1]:80\"\n  auth: tokens\n  insecure_listen: true\n"), "");
    expect(SERVER("  listen: \"[::ffff:127.0.0.1]:80\"\n"), "");
    expect(SERVER("  listen: 0.0.0.0:80\n  auth: tokens\n  tls: {certificate: /none/c.pem, key: /none/k.pem}\n"),
           "f:7:9: warning: /server/tls/certificate: /none/c.pem cannot be read now: No such file or directory\n"
           "f:7:35: warning: /server/tls/key: /none/k.pem cannot be read now: No such file or directory\n");
    expect(SERVER("  tls: {certificate: c.pem}\n"), "f:5:3: /server/tls/key: is missing, expected a text\n");
    expect(SERVER("  connections_max: 0\n  body_bytes_max: 100MB\n  stop_timeout: 10\n  log: loud\n  auth: token\n  "
                  "tls: x\n"),
           "f:5:3: /server/connections_max: expected a whole number from 1 to 65535, found 0\n"
           "f:6:3: /server/body_bytes_max: expected a size (bytes, 64KB, 1MB) from 1KB to 64MB, found \"100MB\"\n"
           "f:7:3: /server/stop_timeout: expected a duration (500ms, 10s, 5m, 24h, 30d) from 0 to 1h, found 10\n"
           "f:8:3: /server/log: expected one of debug, info, warn, error, found \"loud\"\n"
           "f:9:3: /server/auth: expected one of none, tokens, found \"token\"\n"
           "f:10:3: /server/tls: expected a mapping, found \"x\"\n");
}

#define JWT(members) SERVER("  auth: tokens\n  jwt:\n    corp: {" members "}\n")
#define GOOD         "issuer: i, audience: [a], jwks: https://i/k, tenant: t"

static void test_issuers(void **state)
{
    (void)state;
    expect(JWT(GOOD), "");
    expect(JWT("issuer: i, audience: [a], jwks: \"http://127.0.0.1:1/k\", tenant: /t, algorithms: [PS256]"), "");
    expect(JWT("issuer: i, audience: [a], jwks: \"http://[::1]:1/k\", tenant: t"), "");
    expect(JWT(""), "f:7:5: /server/jwt/corp/audience: is missing, expected a list of texts\n"
                    "f:7:5: /server/jwt/corp/issuer: is missing, expected a text\n"
                    "f:7:5: /server/jwt/corp/jwks: is missing, expected a text\n"
                    "f:7:5: /server/jwt/corp/tenant: is missing, expected a text\n");
    static const struct {
        const char *text, *wanted;
    } bad[] = {
        {JWT("issuer: i, audience: [], jwks: https://i/k, tenant: t"), "/audience: is empty"},
        {JWT("issuer: i, audience: [a], jwks: \"http://i/k\", tenant: t"), "/jwks: keys that come over plain HTTP"},
        {JWT("issuer: i, audience: [a], jwks: \"http://127.0.0.1@evil/k\", tenant: t"), "/jwks: keys that come over"},
        {JWT("issuer: i, audience: [a], jwks: \"ftp://i/k\", tenant: t"), "/jwks: expected https://"},
        {JWT("issuer: i, audience: [a], jwks: \"file:/none/k\", tenant: t"), "warning: /server/jwt/corp/jwks: /none/k"},
        {JWT("issuer: i, audience: [a], jwks: https://i/k, tenant: \"a b\""), "/tenant: expected a tenant's name"},
        {JWT(GOOD ", principal: sub"), "/principal: \"sub\" is no JSON Pointer"},
        {JWT(GOOD ", tools: /a~2"), "/tools: \"/a~2\" is no JSON Pointer"},
        {JWT(GOOD ", algorithms: [HS256]"), "/algorithms/0: expected a list of RS256, RS384"},
        {JWT(GOOD ", algorithms: []"), "/algorithms: is empty"},
        {JWT(GOOD ", roles: {map: {a: agent}}"), "/roles/from: is missing"},
        {JWT(GOOD ", roles: {from: /r, map: {a: king}}"), "/roles/map/a: expected a role"},
        {JWT(GOOD ", roles: {from: /r, map: {}}"), "/roles/map: is empty"},
        {JWT(GOOD ", leeway: 11m"), "/leeway: expected a duration"},
        {SERVER("  jwt: {corp: {" GOOD "}}\n"), "/server/jwt: needs auth: tokens"},
        {SERVER("  auth: tokens\n  jwt: {a: {" GOOD "}, b: {" GOOD "}}\n"),
         "/server/jwt/b/issuer: is that of a already"},
        {SERVER("  auth: tokens\n  jwt: {a: {" GOOD
                "}, b: {issuer: j, audience: [a], jwks: https://j/k, tenant: /t}}\n"),
         "warning: /server/jwt/b: principals of a and b may have the same names"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_words(bad[i].text, bad[i].wanted);
}

static void expect_provider(const char *provider, const char *wanted)
{
    struct buf text;
    buf_init(&text, 0);
    buf_printf(&text,
               "onced: 1\ntools: {t: {class: read, provider: q, request: {path: /}}}\nproviders:\n"
               "  q: {base_url: \"http://localhost:1\"}\n  p:\n%s",
               provider);
    expect(buf_str(&text).p, wanted);
    buf_release(&text);
}

#define URL "    base_url: http://localhost:1\n"

static void test_providers(void **state)
{
    (void)state;
    expect_provider("    timeout: 1s\n", "f:5:3: /providers/p/base_url: is missing, expected a text\n");
    expect_provider("    base_url: ftp://x\n", "f:6:5: /providers/p/base_url: is neither http nor https\n");
    expect_provider(URL "    timeot: 1s\n",
                    "f:7:5: /providers/p/timeot: unknown member \"timeot\", did you mean \"timeout\"?\n");
    expect_provider(URL "    timeout: soon\n    connections: 1.5\n    keepalive: 1\n",
                    "f:7:5: /providers/p/timeout: expected a duration (500ms, 10s, 5m, 24h, 30d) from 1ms to 1h, found "
                    "\"soon\"\n"
                    "f:8:5: /providers/p/connections: expected a whole number from 1 to 4096, found 1.5\n"
                    "f:9:5: /providers/p/keepalive: expected true or false, found 1\n");
    expect_provider(URL "    key: {max_length: 1}\n",
                    "f:7:5: /providers/p/key: expected exactly one of header, field and query\n"
                    "f:7:11: /providers/p/key/max_length: expected a whole number from 16 to 1000, found 1\n");
    expect_provider(URL "    no_effect: [400, 99, {status: 409, cod: x}, {code: x}]\n",
                    "f:7:22: /providers/p/no_effect/1: expected a list of HTTP statuses (409) or {status, code, when}, "
                    "found 99\n"
                    "f:7:26: /providers/p/no_effect/2: expected a list of HTTP statuses (409) or {status, code, when}, "
                    "found a mapping\n"
                    "f:7:40: /providers/p/no_effect/2/cod: unknown member\n"
                    "f:7:49: /providers/p/no_effect/3: expected a list of HTTP statuses (409) or {status, code, when}, "
                    "found a mapping\n"
                    "f:7:49: /providers/p/no_effect/3/status: is missing, expected an HTTP status\n");
    expect_provider(URL "    headers: {Authorization: \"Bearer ${env:ONCED_TEST_UNSET}\"}\n",
                    "f:7:15: /providers/p/headers/Authorization: environment variable ONCED_TEST_UNSET is not set\n");
    expect_provider(URL "    headers: {Authorization: \"${file:none/token}\"}\n",
                    "f:7:15: /providers/p/headers/Authorization: file none/token cannot be read: No such file or "
                    "directory\n");
    expect_provider(URL "    headers: {X: 1}\n",
                    "f:7:5: /providers/p/headers: expected a mapping of names to texts, found a "
                    "mapping\nf:7:15: /providers/p/headers/X: is number, expected a text\n");
    expect_provider(URL "    retry_budget: {per_second: -1}\n    error: {code: x}\n",
                    "f:7:20: /providers/p/retry_budget/per_second: expected a number from 0 to 100000, found -1\n"
                    "f:8:13: /providers/p/error/code: expected a JSON Pointer (/a/b), found \"x\"\n");
    expect("onced: 1\nproviders:\n  a b: {base_url: \"http://localhost:1\"}\n",
           "f:1:1: warning: /tools: no tools are defined: every call will be refused\n"
           "f:3:3: /providers/a b: a provider's name is 1 to 64 characters of A-Z a-z 0-9 _ . -\n");
}

static void test_tool_members(void **state)
{
    (void)state;
    expect_tool(READ, "");
    expect_tool("    {}\n",
                "f:6:3: /tools/t/class: is missing, expected one of read, internal_write, external_idempotent, "
                "external_weak, external_irreversible\n"
                "f:6:3: /tools/t/provider: is missing, expected a text\n"
                "f:6:3: /tools/t/request: is missing, expected a mapping\n");
    expect_tool("    1\n", "f:6:3: /tools/t: expected a mapping, found 1\n");
    expect_tool(READ "    clas: x\n", "f:10:5: /tools/t/clas: unknown member \"clas\", did you mean \"class\"?\n");
    expect_tool("    class: write\n    provider: plain\n" REQUEST,
                "f:7:5: /tools/t/class: expected one of read, internal_write, external_idempotent, external_weak, "
                "external_irreversible, found \"write\"\n");
    expect_tool("    class: read\n    provider: plane\n" REQUEST,
                "f:8:5: /tools/t/provider: there is no provider \"plane\", did you mean \"plain\"?\n");
    expect_tool("    class: read\n    provider: other\n" REQUEST,
                "f:8:5: /tools/t/provider: there is no provider \"other\" in providers\n");
    expect_tool(READ "    version: 1\n", "f:10:5: /tools/t/version: expected a text, found 1 (put it in quotes)\n");
    expect_tool(READ "    volatile: [/a, b]\n",
                "f:10:20: /tools/t/volatile/1: expected a list of JSON Pointers (/a/b), found \"b\"\n");
    expect_tool(WEAK "    messages: {done: x}\n",
                "f:11:5: /tools/t/messages: expected a mapping of states to texts, found a mapping\n");
    expect_tool(WEAK "    watch: [1m, 1m]\n",
                "f:11:17: /tools/t/watch/1: durations must increase, this one is not longer than the one before\n");
    expect_tool(WEAK "    watch: [1m, x]\n",
                "f:11:17: /tools/t/watch/1: expected a list of at most 8 durations (1m, 24h), found \"x\"\n");
    expect_tool(WEAK "    approval: maybe\n",
                "f:11:5: /tools/t/approval: expected none, required or a mapping, found \"maybe\"\n");
    expect_tool(WEAK "    approval: {approvers: 11}\n",
                "f:11:16: /tools/t/approval/approvers: expected a whole number from 1 to 10, found 11\n");
    expect_tool(WEAK "    approval: {mcp: ask}\n",
                "f:11:16: /tools/t/approval/mcp: expected one of none, elicit, found \"ask\"\n");
    expect_tool(WEAK "    approval: {aprovers: 2}\n",
                "f:11:16: /tools/t/approval/aprovers: unknown member \"aprovers\", did you mean \"approvers\"?\n");
    expect_tool(WEAK "    approval: required\n",
                "f:11:5: warning: /tools/t/approval: nobody can approve: without auth: tokens (or links) in server all "
                "callers are one person, and who calls a tool does not decide on it\n");
    expect_tool(READ "    approval: required\n",
                "f:10:5: /tools/t/approval: is for tools that change something, not for class read\n");
    expect_tool(WEAK "    repeat: never\n",
                "f:11:5: /tools/t/repeat: expected one of allowed, with_approval, denied, found \"never\"\n");
    expect_tool(WEAK "    key: \"{a\"\n",
                "f:11:5: /tools/t/key: column 1: \"{\" is not closed; write \"{{\" for a literal brace\n");
    expect_tool(
        WEAK "    normalize: {a: louder}\n",
        "f:11:5: /tools/t/normalize: a: \"louder\" is not a normaliser; expected trim, collapse_space, lower, "
        "upper, nfc, integer, decimal, minor_units(currency), timestamp, sort or {\"enum\": {\"from\": \"to\"}}\n");
    expect_tool(WEAK "    lookup_interval: 2m\n    retry: {backoff: 1m}\n",
                "f:11:5: /tools/t/lookup_interval: is longer than lookup_interval_max\n"
                "f:12:5: /tools/t/retry: backoff is longer than backoff_max\n");
    expect("onced: 1\ntools:\n  a/b: {class: read}\n",
           "f:3:3: /tools/a~1b: a tool's name is 1 to 64 characters of A-Z a-z 0-9 _ . -\n"
           "f:3:3: /tools/a~1b/provider: is missing, expected a text\n"
           "f:3:3: /tools/a~1b/request: is missing, expected a mapping\n");
    char name[80];
    memset(name, 'n', 65);
    name[65] = '\0';
    char text[400], wanted[400];
    snprintf(text, sizeof text, PRELUDE "  %s: {class: read, provider: plain, request: {path: /}}\n", name);
    snprintf(wanted, sizeof wanted, "f:6:3: /tools/%s: a tool's name is 1 to 64 characters of A-Z a-z 0-9 _ . -\n",
             name);
    expect(text, wanted);
    expect(PRELUDE "  t: {class: read, provider: plain, request: {path: /}}\n  t: {}\n",
           "f:7:3: \"t\" is given twice, first in line 6\n");
}

#define SCHEMA                                                                                                         \
    "    input_schema: {type: object, required: [amount], properties: {amount: {type: integer}, note: {type: "         \
    "string}, deep: "                                                                                                  \
    "{properties: {er: {}}}}}\n"

static void test_names(void **state)
{
    (void)state;
    expect_tool(WEAK SCHEMA "    key: \"x:{amout}\"\n",
                "f:12:5: /tools/t/key: input_schema has no member \"amout\", did you mean \"amount\"?\n");
    expect_tool(WEAK SCHEMA "    key: \"x:{amount}:{deep.er}:{/deep/er}\"\n    while_in_doubt: hold\n", "");
    expect_tool(WEAK SCHEMA "    key: \"x:{deep.r}\"\n",
                "f:12:5: /tools/t/key: input_schema has no member \"r\", did you mean \"er\"?\n");
    expect_tool(
        WEAK SCHEMA "    key: \"x:{note}\"\n",
        "f:12:5: warning: /tools/t/key: input_schema does not require \"note\": calls without it are refused\n");
    expect_tool(WEAK SCHEMA "    key: \"x:{amount}:{$run}\"\n",
                "f:12:5: /tools/t/key: a business key is made of arguments only, {$…} is not allowed here\n");
    expect_tool(WEAK SCHEMA "    volatile: [/note, /noat]\n",
                "f:12:23: warning: /tools/t/volatile/1: input_schema has no member \"noat\", did you mean \"note\"?\n");
    expect_tool(WEAK SCHEMA "    normalize: {note: trim, nowhere: trim}\n",
                "f:12:29: warning: /tools/t/normalize/nowhere: input_schema has no member \"nowhere\"\n");
    expect_tool("    class: external_weak\n    provider: plain\n" LOOKUP SCHEMA
                "    request: {path: \"/{nte}\", json: {a: [\"{amont}\"], b: \"{{x}} {$operation}\"}}\n",
                "f:11:15: /tools/t/request/path: input_schema has no member \"nte\", did you mean \"note\"?\n"
                "f:11:42: /tools/t/request/json/a/0: input_schema has no member \"amont\", did you mean \"amount\"?\n");
    /* what cannot be told is not claimed */
    expect_tool(
        WEAK
        "    input_schema: {allOf: [{$ref: \"#/$defs/a\"}], $defs: {a: {properties: {b: {}}}}}\n    key: \"{c}\"\n",
        "");
    expect_tool(WEAK "    input_schema: {type: object}\n    key: \"{c}\"\n", "");
    expect_tool(WEAK "    input_schema: {$ref: \"#/$defs/a\", $defs: {a: {properties: {b: {}}}}}\n    key: \"{c}\"\n",
                "f:12:5: /tools/t/key: input_schema has no member \"c\", did you mean \"b\"?\n");
    expect_tool(WEAK "    input_schema: {type: object, additionalProperties: false}\n    key: \"{c}\"\n",
                "f:12:5: /tools/t/key: input_schema has no member \"c\"\n");
    expect_tool(WEAK "    input_schema: {type: object, properties: {a: {type: strin}}}\n",
                "f:11:51: /tools/t/input_schema/properties/a/type: must be one or an array of null, boolean, integer, "
                "number, string, array, object\n");
    expect_tool(WEAK "    input_schema: {type: array}\n",
                "f:11:20: /tools/t/input_schema/type: arguments are always an object, expected type object\n");
}

/* 9: entities, guards, sets, windows, budgets. */
static void test_claims(void **state)
{
    (void)state;
    expect("onced: 1\n"
           "providers:\n"
           "  keyed: {base_url: \"http://127.0.0.1:1\", key: {header: K, retention: 24h}}\n"
           "  plain: {base_url: \"http://127.0.0.1:1\"}\n"
           "tools:\n"
           "  t:\n"
           "    class: external_idempotent\n"
           "    provider: keyed\n"
           "    request: {path: /x}\n"
           "    guards: [{refuse_when: '.order.state ==', message: \"m\"}, {refuse_when: 'true', message: \"m\"}]\n"
           "    sets: {order: {state: refunded, by: 1}}\n"
           "    window: {key: \"w:{x}\", per: 60d}\n"
           "    budgets: [{budget: none}]\n"
           "    entities: [{type: \"a b\", id: \"{x\"}, {type: order, exclusive: maybe}]\n",
           "f:10:5: /tools/t/guards: guards look at entities: name those that they look at in entities\n"
           "f:10:15: /tools/t/guards/0/refuse_when: syntax error, unexpected ')' (Unix shell quoting issues?)\n"
           "f:11:12: /tools/t/sets/order: there is no entity of this type in entities\n"
           "f:12:5: warning: /tools/t/window: does not say whether it may be overridden: state override: denied, or "
           "with_reason\n"
           "f:12:5: warning: /tools/t/window: is longer than retain: what was done is refused again, but can no longer "
           "be looked at\n"
           "f:13:16: /tools/t/budgets/0/budget: there is no budget \"none\" in budgets\n"
           "f:14:17: /tools/t/entities/0/type: a type is 1 to 64 characters of A-Z a-z 0-9 _ . -\n"
           "f:14:30: /tools/t/entities/0/id: column 1: \"{\" is not closed; write \"{{\" for a literal brace\n"
           "f:14:41: /tools/t/entities/1/id: is missing, expected a text with {places}\n"
           "f:14:55: /tools/t/entities/1/exclusive: expected one of reject, queue, found \"maybe\"\n");
    expect("onced: 1\n"
           "budgets: {b: {per: 1h, limit: 0.0000000000000000001}, \"a b\": {per: 1s, limit: -1}}\n"
           "providers:\n"
           "  keyed: {base_url: \"http://127.0.0.1:1\", key: {header: K, retention: 24h}}\n"
           "tools:\n"
           "  t:\n"
           "    class: read\n"
           "    provider: keyed\n"
           "    request: {path: /x}\n"
           "    entities: [{type: order, id: \"{x}\"}]\n"
           "    budgets: [{budget: b}, {budget: b, amount: /n}]\n",
           "f:2:24: /budgets/b/limit: 0.0000000000000000001 has more than 18 decimal places\n"
           "f:2:55: /budgets/a b: a budget's name is 1 to 64 characters of A-Z a-z 0-9 _ . -\n"
           "f:2:72: /budgets/a b/limit: expected a number from 0 to 999999999999999999, found -1\n"
           "f:10:5: /tools/t/entities: is for tools that change something, not for class read\n"
           "f:11:5: /tools/t/budgets: is for tools that change something, not for class read\n"
           "f:11:28: /tools/t/budgets/1: budget \"b\" is taken from twice\n");
    expect("onced: 1\n"
           "budgets: {b: {per: 1h, limit: 500.00, scope: principal}}\n"
           "providers:\n"
           "  keyed: {base_url: \"http://127.0.0.1:1\", key: {header: K, retention: 24h}}\n"
           "tools:\n"
           "  t:\n"
           "    class: external_idempotent\n"
           "    provider: keyed\n"
           "    request: {path: /x}\n"
           "    entities: [{type: order, id: \"{o}\", exclusive: queue}]\n"
           "    guards: [{refuse_when: '.order.state == \"refunded\"', message: \"{o} is {order.state}\"}]\n"
           "    sets: {order: {state: refunded, n: \"{n}\"}}\n"
           "    window: {key: \"w:{o}\", per: 24h, override: with_reason}\n"
           "    budgets: [{budget: b, amount: /n, key: \"{o}\"}]\n",
           "");
}

static void test_policies(void **state)
{
    (void)state;
    expect_tool(
        "    class: read\n    provider: plain\n    request: {method: POST, path: /x}\n",
        "f:9:15: warning: /tools/t/request/method: class read with POST: if the request changes something, nothing "
        "keeps it from happening twice; choose another class, or state method_is_read: true\n");
    expect_tool(
        "    class: read\n    provider: plain\n    request: {method: POST, path: /x}\n    method_is_read: true\n", "");
    expect_tool(READ "    key: a\n    identity: caller\n",
                "f:10:5: warning: /tools/t/key: has no effect for class read\n"
                "f:11:5: warning: /tools/t/identity: has no effect for class read\n");
    expect_tool(WEAK "    cache: 1s\n    idempotent_by: key\n",
                "f:11:5: warning: /tools/t/cache: has an effect for class read only\n"
                "f:12:5: warning: /tools/t/idempotent_by: has an effect for class external_idempotent only\n");
    expect_tool(
        "    class: external_weak\n    provider: plain\n" REQUEST,
        "f:7:5: warning: /tools/t/class: class external_weak without a lookup: every unknown outcome waits for an "
        "operator\n");
    expect_tool(
        "    class: external_irreversible\n    provider: plain\n" REQUEST LOOKUP,
        "f:7:5: /tools/t/class: class external_irreversible must state its approval policy; approval: none is a "
        "statement\n"
        "f:7:5: /tools/t/class: class external_irreversible needs a business key (key) or identity: caller\n");
    expect_tool(
        "    class: external_irreversible\n    provider: plain\n    identity: caller\n    approval: {mcp: elicit, "
        "approvers: 2}\n" REQUEST LOOKUP,
        "f:10:5: warning: /tools/t/approval: nobody can approve: without auth: tokens (or links) in server all "
        "callers are one person, and who calls a tool does not decide on it\n");
    expect_tool(
        "    class: external_irreversible\n    provider: plain\n    identity: caller\n    approval: {mcp: "
        "elicit}\n" REQUEST LOOKUP,
        "f:10:16: warning: /tools/t/approval/mcp: a form at the calling client is all that it takes, and a client may "
        "answer by itself: for what can not be undone name more approvers, or ask nobody by MCP\n");
    expect_tool(
        "    class: external_irreversible\n    provider: nowhere\n" REQUEST,
        "f:7:5: /tools/t/class: class external_irreversible must state its approval policy; approval: none is a "
        "statement\n"
        "f:7:5: /tools/t/class: class external_irreversible needs a business key (key) or identity: caller\n"
        "f:7:5: warning: /tools/t/class: class external_irreversible without a lookup: every unknown outcome waits "
        "for an operator\n"
        "f:8:5: /tools/t/provider: there is no provider \"nowhere\" in providers\n");
    expect_tool(
        "    class: external_irreversible\n    provider: plain\n    identity: caller\n    approval: none\n" REQUEST
            LOOKUP,
        "");
    expect_tool(KEYED, "");
    expect_tool(
        "    class: external_idempotent\n    provider: plain\n" REQUEST LOOKUP,
        "f:7:5: /tools/t/class: class external_idempotent by key needs a key section in provider \"plain\"; without "
        "one choose external_weak, or idempotent_by: precondition or nature\n");
    expect_tool("    class: external_idempotent\n    idempotent_by: nature\n    provider: plain\n" REQUEST, "");
    expect_tool(WEAK "    reconcile: [resend, lookup]\n",
                "f:11:5: /tools/t/reconcile: resend is never safe for class external_weak\n");
    expect_tool(
        "    class: internal_write\n    provider: plain\n    reconcile: [resend]\n" REQUEST,
        "f:7:5: warning: /tools/t/class: class internal_write without a lookup: every unknown outcome waits for an "
        "operator\nf:9:5: /tools/t/reconcile: resend needs a key section in provider \"plain\"\n");
    expect_tool("    class: external_idempotent\n    provider: keyed\n    reconcile: [lookup]\n" REQUEST,
                "f:9:5: /tools/t/reconcile: lookup needs a lookup section in this tool\n");
    expect_tool(KEYED "    reconcile: [manual, resend]\n",
                "f:10:5: warning: /tools/t/lookup: is not used: reconcile does not list lookup\n"
                "f:11:5: warning: /tools/t/reconcile: strategies after manual are never tried\n");
    expect_tool(KEYED "    reconcile: [lookup, webhook]\n",
                "f:11:5: /tools/t/reconcile: webhook: no source of `inbox` speaks of this tool's provider \"keyed\"\n");
    expect_tool(KEYED "    reconcile: [lookup, lookup]\n",
                "f:11:25: /tools/t/reconcile/1: \"lookup\" is listed twice\n");
    expect_tool("    class: external_idempotent\n    provider: keyed\n" REQUEST "    response: {accepted: [202]}\n",
                "f:10:16: /tools/t/response/accepted: needs a lookup, or the final outcome could never be known\n");
    expect_tool(
        WEAK "    settle: 1m\n    absent_times: 3\n    give_up: 2m\n",
        "f:13:5: warning: /tools/t/give_up: is shorter than settle times absent_times: absence can hardly be proven "
        "before\n");
    expect_tool(KEYED "    retain: 1h\n",
                "f:11:5: warning: /tools/t/retain: is shorter than the key retention of provider \"keyed\": "
                "results are dropped while it still replays them\n");
    expect_tool(WEAK "    repeat_window: 60d\n",
                "f:11:5: warning: /tools/t/repeat_window: is longer than retain: arguments and "
                "results are kept for the whole window\n");
    expect_tool("    class: external_weak\n    provider: plain\n" REQUEST
                "    lookup: {request: {path: /x, query: {r: \"{$operation}\"}}}\n",
                "f:10:5: warning: /tools/t/lookup: looks for {$operation}, but the request does not carry it\n");
}

static void test_several_at_once(void **state)
{
    (void)state;
    expect(
        "onced: 1\n"
        "server: {listen: \"0.0.0.0:1\", auth: tokens}\n"
        "providers:\n"
        "  p: {base_url: \"http://localhost:1\", tiemout: 1s}\n"
        "tools:\n"
        "  a: {class: external_idempotent, provider: p, request: {path: x}}\n"
        "  b: {provider: q, request: {}}\n",
        "f:2:10: /server/listen: listening on 0.0.0.0 needs tls, or insecure_listen: true behind something that "
        "encrypts\n"
        "f:4:39: /providers/p/tiemout: unknown member \"tiemout\", did you mean \"timeout\"?\n"
        "f:6:7: /tools/a/class: class external_idempotent by key needs a key section in provider \"p\"; without one "
        "choose external_weak, or idempotent_by: precondition or nature\n"
        "f:6:7: warning: /tools/a/class: class external_idempotent without a lookup: every unknown outcome waits for "
        "an "
        "operator\n"
        "f:6:58: /tools/a/request/path: does not begin with \"/\"\n"
        "f:7:3: /tools/b/class: is missing, expected one of read, internal_write, external_idempotent, external_weak, "
        "external_irreversible\n"
        "f:7:7: /tools/b/provider: there is no provider \"q\", did you mean \"p\"?\n"
        "f:7:20: /tools/b/request/path: is missing, expected a text with {places} or {jq: program}\n");
}

/* ---- what is read ---- */

struct loaded_file {
    struct config *config;
    struct registry *registry;
};

static struct loaded_file load(const char *path, const char *text)
{
    struct loaded_file file = {0};
    struct config_report report;
    config_report_init(&report);
    enum err_code code = text ? config_load_text(path, str_of(text), &file.config, &file.registry, &report)
                              : config_load(path, &file.config, &file.registry, &report);
    if (code) {
        char *messages = report_text(&report);
        fail_msg("%s", messages);
    }
    config_report_release(&report);
    return file;
}

static void unload(struct loaded_file *file)
{
    registry_unref(file->registry);
    config_free(file->config);
}

static const struct tool *find(const struct loaded_file *file, const char *name)
{
    const struct tool *tool = registry_find(file->registry, str_of(name));
    assert_non_null(tool);
    return tool;
}

static void test_all_members(void **state)
{
    (void)state;
    struct loaded_file file = load(
        "dir/f.yaml",
        "onced: 1\n"
        "server: {listen: \"[::1]:8080\", auth: tokens, insecure_listen: true, connections_max: 7, body_bytes_max: "
        "2KB,\n"
        "  in_flight_max: 8, stop_timeout: 9s, log: warn}\n"
        "ledger: {path: l.db}\n"
        "providers:\n"
        "  p: {base_url: \"http://localhost:1\", timeout: 7s, connect_timeout: 2s, connections: 3, queue: 4,\n"
        "    key: {field: k, format: hex, max_length: 32, retention: 12h}, retry_budget: {per_second: 1.5, burst: 2},\n"
        "    breaker: {failures: 0, open: 1s}}\n"
        "tools:\n"
        "  a:\n"
        "    title: T\n"
        "    description: D\n"
        "    version: \"7\"\n"
        "    class: external_irreversible\n"
        "    provider: p\n"
        "    input_schema: {type: object}\n"
        "    key: \"k:{x}\"\n"
        "    identity: caller\n"
        "    step_identity: per_arguments\n"
        "    normalize: {x: trim}\n"
        "    volatile: [/v, /w]\n"
        "    on_mismatch: replay\n"
        "    share_result: principal\n"
        "    repeat_window: 1h\n"
        "    repeat: denied\n"
        "    while_in_doubt: allow\n"
        "    approval: none\n"
        "    request: {path: /x, json: {r: \"{$operation}\"}}\n"
        "    response: {external_id: /id}\n"
        "    verify: {/x: \"{x}\"}\n"
        "    reconcile: [manual]\n"
        "    settle: 6s\n"
        "    absent_times: 3\n"
        "    lookup_interval: 2s\n"
        "    lookup_interval_max: 3m\n"
        "    give_up: 2h\n"
        "    watch: [2m]\n"
        "    retry: {attempts: 2, total: 2h, backoff: 1s, backoff_max: 1m}\n"
        "    timeout: 5s\n"
        "    wait: 4s\n"
        "    retain: 90d\n"
        "    result_bytes_max: 1KB\n"
        "    redact: [/card]\n"
        "    messages: {unknown_outcome: U, completed_success: S}\n"
        "  b: {class: read, provider: p, request: {path: /}, audit: true, cache: 3s}\n");
    const struct config_server *server = &file.config->server;
    assert_string_equal(server->host, "::1");
    assert_int_equal(server->port, 8080);
    assert_true(server->loopback && server->insecure_listen);
    assert_int_equal(server->auth, CONFIG_AUTH_TOKENS);
    assert_null(server->tls_certificate);
    assert_int_equal(server->connections_max, 7);
    assert_int_equal(server->body_bytes_max, 2048);
    assert_int_equal(server->in_flight_max, 8);
    assert_int_equal(server->stop_timeout_ms, 9000);
    assert_int_equal(server->log, LOG_WARN);
    assert_string_equal(file.config->ledger.where, "dir/l.db");
    assert_string_equal(file.config->path, "dir/f.yaml");

    const struct tool *tool = find(&file, "a");
    const struct provider *provider = tool->provider;
    assert_ptr_equal(registry_provider_at(file.registry, 0), provider);
    assert_string_equal(provider->name, "p");
    assert_int_equal(provider->timeout_ms, 7000);
    assert_int_equal(provider->connections_max, 3);
    assert_int_equal(provider->queue_max, 4);
    assert_true(provider->key_honoured);
    assert_int_equal(provider->key_format, KEY_FORMAT_HEX);
    assert_int_equal(provider->key_bytes_max, 32);
    assert_int_equal(provider->key_retention_ms, 12 * 3600 * 1000);
    assert_int_equal(provider->breaker_failures, 0);

    assert_string_equal(tool->title, "T");
    assert_string_equal(tool->description, "D");
    assert_string_equal(tool->version, "7");
    assert_int_equal(tool->class, CLASS_EXTERNAL_IRREVERSIBLE);
    assert_non_null(tool->input_schema);
    assert_non_null(tool->input_schema_json);
    assert_string_equal(template_text(tool->key), "k:{x}");
    assert_int_equal(tool->identity, IDENTITY_CALLER);
    assert_int_equal(tool->step_identity, STEP_PER_ARGUMENTS);
    assert_non_null(tool->normal);
    assert_int_equal(tool->volatile_count, 2);
    assert_string_equal(tool->volatile_pointers[1], "/w");
    assert_int_equal(tool->on_mismatch, MISMATCH_REPLAY);
    assert_int_equal(tool->share, SHARE_PRINCIPAL);
    assert_int_equal(tool->repeat_window_ms, 3600 * 1000);
    assert_int_equal(tool->repeat, REPEAT_DENIED);
    assert_int_equal(tool->in_doubt, IN_DOUBT_ALLOW);
    assert_int_equal(tool->reconcile.strategy_count, 1);
    assert_int_equal(tool->reconcile.strategies[0], STRATEGY_MANUAL);
    assert_int_equal(tool->reconcile.settle_ms, 6000);
    assert_int_equal(tool->reconcile.absent_times, 3);
    assert_int_equal(tool->reconcile.interval_ms, 2000);
    assert_int_equal(tool->reconcile.interval_max_ms, 180000);
    assert_int_equal(tool->reconcile.give_up_ms, 7200000);
    assert_int_equal(tool->reconcile.watch_count, 1);
    assert_int_equal(tool->reconcile.watch_ms[0], 120000);
    assert_int_equal(tool->retry.attempts_max, 2);
    assert_int_equal(tool->retry.total_ms, 7200000);
    assert_int_equal(tool->retry.backoff_ms, 1000);
    assert_int_equal(tool->retry.backoff_max_ms, 60000);
    assert_int_equal(tool->wait_ms, 4000);
    assert_int_equal(tool->retain_ms, INT64_C(90) * 86400 * 1000);
    assert_int_equal(tool->result_bytes_max, 1024);
    assert_int_equal(tool->redact_count, 1);
    assert_int_equal(tool->message_count, 2);
    assert_int_equal(tool->messages[1].state, STATE_COMPLETED_SUCCESS);
    assert_string_equal(tool->messages[1].text, "S");
    assert_non_null(tool->adapter_tool);
    assert_false(tool->has_lookup);
    assert_true(find(&file, "b")->audit);
    assert_int_equal(find(&file, "b")->cache_ms, 3000);
    unload(&file);
}

static void test_defaults(void **state)
{
    (void)state;
    struct loaded_file file =
        load("f", PRELUDE
             "  read: {class: read, provider: plain, request: {path: /}}\n"
             "  internal: {class: internal_write, provider: plain, request: {path: /}}\n"
             "  idempotent: {class: external_idempotent, provider: keyed, request: {path: /}, lookup: {request: {path: "
             "/}}}\n"
             "  weak: {class: external_weak, provider: keyed, request: {path: /}, lookup: {request: {path: /}}}\n"
             "  irreversible: {class: external_irreversible, identity: caller, approval: none, provider: plain, "
             "request: {path: "
             "/}}\n");
    static const struct {
        const char *name;
        int64_t window_ms;
        enum in_doubt_rule in_doubt;
        unsigned count;
        enum strategy strategies[3];
    } wanted[] = {
        {"read", 0, IN_DOUBT_ALLOW, 0, {0}},
        {"internal", 15 * 60000, IN_DOUBT_ALLOW, 1, {STRATEGY_MANUAL}},
        {"idempotent", 15 * 60000, IN_DOUBT_ALLOW, 3, {STRATEGY_RESEND, STRATEGY_LOOKUP, STRATEGY_MANUAL}},
        {"weak", 86400000, IN_DOUBT_HOLD, 2, {STRATEGY_LOOKUP, STRATEGY_MANUAL}},
        {"irreversible", 86400000, IN_DOUBT_HOLD, 1, {STRATEGY_MANUAL}},
    };
    assert_int_equal(registry_tool_count(file.registry), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct tool *tool = find(&file, wanted[i].name);
        assert_int_equal(tool->repeat_window_ms, wanted[i].window_ms);
        assert_int_equal(tool->in_doubt, wanted[i].in_doubt);
        assert_int_equal(tool->reconcile.strategy_count, wanted[i].count);
        for (unsigned k = 0; k < wanted[i].count; k++)
            assert_int_equal(tool->reconcile.strategies[k], wanted[i].strategies[k]);
        assert_string_equal(tool->version, "1");
        assert_int_equal(tool->share, SHARE_DEFAULT);
        assert_int_equal(tool->retry.attempts_max, 5);
        assert_int_equal(tool->reconcile.watch_count, 4);
        assert_int_equal(tool->reconcile.watch_ms[3], 86400000);
        assert_int_equal(tool->result_bytes_max, 65536);
        assert_int_equal(tool->wait_ms, 20000);
        assert_null(tool->key);
        assert_null(tool->title);
    }
    assert_string_equal(registry_tool_at(file.registry, 0)->name, "idempotent"); /* ordered by name */
    assert_string_equal(file.config->server.host, "127.0.0.1");
    assert_int_equal(file.config->server.port, 7070);
    assert_string_equal(file.config->ledger.where, "onced.db");
    assert_null(registry_find(file.registry, STR("rea")));
    assert_null(registry_find(file.registry, STR("")));
    unload(&file);
}

static void test_policy_version(void **state)
{
    (void)state;
    static const char *const tools[] = {
        "  t: {class: read, provider: plain, request: {path: /}}\n",
        "  t: # comment\n    provider: \"plain\"\n    request: {path: /}\n    class: read\n",
        "  t: {class: read, provider: plain, request: {path: /y}}\n",
    };
    char versions[3][32];
    for (size_t i = 0; i < 3; i++) {
        char text[600];
        snprintf(text, sizeof text, PRELUDE "%s", tools[i]);
        struct loaded_file file = load("f", text);
        snprintf(versions[i], sizeof versions[i], "%s", registry_policy_version(file.registry));
        unload(&file);
    }
    assert_int_equal(strlen(versions[0]), 12);
    assert_string_equal(versions[0], versions[1]);
    assert_string_not_equal(versions[0], versions[2]);
}

#define LEDGER(members) "onced: 1\nledger: {" members "}\ntools: {}\n"
#define NO_TOOLS        "f:3:1: warning: /tools: no tools are defined: every call will be refused\n"

static void test_ledgers(void **state)
{
    (void)state;
    expect(LEDGER("url: \"mysql://u@h/db\""),
           "f:2:10: /ledger/url: is no PostgreSQL URL, expected postgresql://user@host:port/database\n" NO_TOOLS);
    expect(LEDGER("url: \"postgresql://u:hush@h/db\""),
           "f:2:10: /ledger/url: holds a password: give it by reference, ${env:NAME} or ${file:PATH}\n" NO_TOOLS);
    expect(LEDGER("url: \"postgresql://u@h/db?sslmod=require\""),
           "f:2:10: /ledger/url: is not understood: invalid URI query parameter: \"sslmod\"\n" NO_TOOLS);
    expect(LEDGER("url: \"postgresql://u@h1:5432,h2:70000/db\""),
           "f:2:10: /ledger/url: is not understood: a port is no number from 1 to 65535\n" NO_TOOLS);
    expect(LEDGER("url: \"${env:ONCED_NOT_SET}\""),
           "f:2:10: /ledger/url: environment variable ONCED_NOT_SET is not set\n" NO_TOOLS);
    expect(LEDGER("url: \"postgresql://u@h/db\", path: l.db"),
           "f:2:38: /ledger/path: goes with no url: a ledger is in a file or in a database\n" NO_TOOLS);
    setenv("ONCED_TEST_LEDGER", "postgresql://u:hush@h1,h2:5433/db?target_session_attrs=any", 1);
    struct loaded_file file = load("f", LEDGER("url: \"${env:ONCED_TEST_LEDGER}\""));
    assert_string_equal(file.config->ledger.where, getenv("ONCED_TEST_LEDGER"));
    assert_string_equal(file.config->ledger.shown, "postgresql://h1,h2:5433/db");
    unload(&file);
}

static void test_reload(void **state)
{
    (void)state;
    const char *text = PRELUDE "  t: {class: read, provider: plain, request: {path: /}}\n";
    struct loaded_file a = load("f", text), b = load("f", text);
    assert_true(config_same_process(a.config, b.config));
    b.config->server.log = LOG_ERROR;
    assert_true(config_same_process(a.config, b.config));
    b.config->ledger.where = "other";
    assert_false(config_same_process(a.config, b.config));
    struct registry *held = registry_ref(a.registry);
    const struct tool *tool = find(&a, "t");
    unload(&a); /* the holder's reference keeps everything */
    assert_string_equal(tool->name, "t");
    assert_string_equal(tool->provider->name, "plain");
    registry_unref(held);
    unload(&b);
}

/* ---- files and documents ---- */

static void test_unreadable(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(config_check("/none/x.yaml", NULL, false, out), 2);
    assert_int_equal(config_check("/", NULL, false, out), 2);
    fclose(out);
    assert_string_equal(text, "/none/x.yaml: cannot be opened: No such file or directory\n"
                              "/: is a folder, expected a registry file\n");
    free(text);
}

static void test_check_json(void **state)
{
    (void)state;
    char path[] = "/tmp/onced-test-XXXXXX", *text = NULL;
    size_t size;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *content = "onced: 1\ntools: {t: {class: read}}\n";
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(config_check(path, NULL, true, out), 1);
    fclose(out);
    unlink(path);
    struct arena arena;
    struct json *value;
    arena_init(&arena);
    assert_int_equal(json_parse(&arena, (struct str){text, size - 1}, NULL, &value, NULL), ERR_NONE);
    assert_false(json_get_bool(value, "ok", true));
    assert_int_equal(json_get_int(value, "errors", 0), 2);
    const struct json *first = &json_get(value, "problems")->items[0];
    assert_int_equal(json_get_int(first, "line", 0), 2);
    assert_int_equal(json_get_int(first, "column", 0), 9);
    assert_true(str_is(json_get_text(first, "pointer"), "/tools/t/provider"));
    assert_true(str_is(json_get_text(first, "severity"), "error"));
    arena_release(&arena);
    free(text);
}

/* The schema for editors must accept what we accept. */
static struct schema *file_schema(struct arena *arena)
{
    struct buf text;
    struct json *value;
    struct schema *schema = NULL;
    struct err err = {0};
    buf_init(&text, 0);
    options_write_schema(&text);
    if (json_parse(arena, buf_str(&text), NULL, &value, &err) || schema_new(value, NULL, 0, &schema, &err))
        fail_msg("%s", err.text);
    buf_release(&text);
    return schema;
}

static void expect_schema_accepts(const struct schema *schema, const char *name, struct str text, bool accepted)
{
    struct arena arena;
    struct yaml yaml;
    struct schema_error *errors;
    size_t count;
    struct err err = {0};
    arena_init(&arena);
    assert_int_equal(yaml_parse(&arena, text, &yaml), ERR_NONE);
    enum err_code code = schema_validate(schema, &arena, yaml.root, &errors, &count, &err);
    if (accepted && code)
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(code, accepted ? ERR_NONE : ERR_INVALID);
    arena_release(&arena);
}

static void test_examples(void **state)
{
    (void)state;
    struct arena arena;
    const char **names;
    arena_init(&arena);
    setenv("STRIPE_KEY", "sk_test_x", 1);
    struct schema *schema = file_schema(&arena);
    const char *folder = source_path(&arena, "examples");
    size_t count = suites_list(&arena, folder, ".yaml", &names);
    assert_true(count >= 5);
    for (size_t i = 0; i < count; i++) {
        const char *path = arena_printf(&arena, "%s/%s", folder, names[i]);
        struct config_report report;
        struct registry *registry = NULL;
        config_report_init(&report);
        config_load(path, NULL, &registry, &report);
        char *messages = report_text(&report);
        assert_string_equal(messages, ""); /* no warnings either */
        free(messages);
        registry_unref(registry);
        config_report_release(&report);
        expect_schema_accepts(schema, names[i], suites_read(&arena, path), true);
    }
    schema_free(schema);
    arena_release(&arena);
}

static void test_schema_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "tools: {}\n",
        "onced: 1\nserver: {listen: \"\"}\n",
        "onced: 1\nserver: {log: loud}\n",
        "onced: 1\nproviders: {p: {base_url: x, timeout: 10}}\n",
        "onced: 1\nproviders: {p: {timeout: 10s}}\n",
        "onced: 1\nproviders: {p q: {base_url: x}}\n",
        "onced: 1\nproviders: {p: {mcp: {url: x, protocol: \"1\"}}}\n",
        "onced: 1\nproviders: {p: {mcp: {command: cat}}}\n",
        "onced: 1\nproviders: {p: {mcp: {command: [cat], import: {classes: {a: reed}}}}}\n",
        "onced: 1\nprincipals: {a: {}}\n",
        "onced: 1\nmcp: {calls: 0}\n",
        "onced: 1\nproviders: {p: {base_url: x, no_effect: [99]}}\n",
        "onced: 1\ntools: {t: {class: read, provider: p}}\n",
        "onced: 1\ntools: {t: {class: write, provider: p, request: {path: /}}}\n",
        "onced: 1\ntools: {t: {class: read, provider: p, request: {path: /}, approval: {when: 1}}}\n",
        "onced: 1\ntools: {t: {class: read, provider: p, request: {path: /, metod: GET}}}\n",
    };
    struct arena arena;
    arena_init(&arena);
    struct schema *schema = file_schema(&arena);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_schema_accepts(schema, bad[i], str_of(bad[i]), false);
    expect_schema_accepts(schema, "minimal",
                          STR("onced: 1\ntools: {t: {class: read, provider: p, request: {path: {jq: .x}}}}\n"), true);
    schema_free(schema);
    arena_release(&arena);
}

static void test_documents(void **state)
{
    (void)state;
    struct arena arena;
    struct buf reference;
    arena_init(&arena);
    buf_init(&reference, 0);
    options_write_reference(&reference);
    struct str page = suites_read(&arena, source_path(&arena, "docs/registry-reference.md"));
    if (!page.p || !str_equal(page, buf_str(&reference)))
        fail_msg("docs/registry-reference.md is out of date: run onced check --reference > docs/registry-reference.md");
    /* the example in registry.md is a whole, valid file */
    struct str guide = suites_read(&arena, source_path(&arena, "docs/registry.md"));
    assert_non_null(guide.p);
    const char *start = strstr(guide.p, "```yaml\n") + 8, *end = strstr(start, "```");
    struct str example = {start, (size_t)(end - start)};
    setenv("PAYMENTS_TOKEN", "t", 1);
    expect(arena_copy_str(&arena, example), "");
    struct schema *schema = file_schema(&arena);
    expect_schema_accepts(schema, "registry.md", example, true);
    schema_free(schema);
    buf_release(&reference);
    arena_release(&arena);
}

static void test_init(void **state)
{
    (void)state;
    static const char *const methods[] = {NULL, "GET", "POST", "DELETE"};
    struct arena arena;
    arena_init(&arena);
    setenv("ONCED_TEST_TOKEN", "t", 1);
    struct schema *schema = file_schema(&arena);
    for (unsigned i = 0; i < 5 * 4 * 2; i++) {
        struct init_options options = {.class = (enum tool_class)(i % 5), .method = methods[i / 5 % 4]};
        if (i >= 20)
            options = (struct init_options){"my.tool",      "https://api.example.com:8443/v1/things",
                                            options.method, options.class,
                                            "X-Key",        "ONCED_TEST_TOKEN"};
        struct buf text;
        struct err err = {0};
        buf_init(&text, 0);
        assert_int_equal(init_write(&options, &text, &err), ERR_NONE);
        struct loaded_file file = load("f", buf_str(&text).p);
        assert_int_equal(registry_tool_at(file.registry, 0)->class, options.class);
        expect_schema_accepts(schema, "init", buf_str(&text), true);
        unload(&file);
        buf_release(&text);
    }
    static const struct init_options bad[] = {
        {.tool = "a b"},         {.url = "example.com/x"}, {.url = "http://h/x?y=1"},
        {.url = "http://h/\"x"}, {.url = "http://h/{x}"},  {.url = "http://"},
        {.method = "BREW"},      {.key_header = "a b"},    {.token_env = ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct buf text;
        struct err err = {0};
        buf_init(&text, 0);
        assert_int_equal(init_write(&bad[i], &text, &err), ERR_INVALID);
        assert_int_equal(text.n, 0);
        buf_release(&text);
    }
    schema_free(schema);
    arena_release(&arena);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"timeout", "total", "retry", "retain"};
    assert_string_equal(options_nearest(STR("tiemout"), names, 4), "timeout");
    assert_string_equal(options_nearest(STR("rety"), names, 4), "retry");
    assert_null(options_nearest(STR("zzzz"), names, 4));
    assert_null(options_nearest(STR("x"), names, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_level),      cmocka_unit_test(test_server),
        cmocka_unit_test(test_issuers),        cmocka_unit_test(test_providers),
        cmocka_unit_test(test_tool_members),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_claims),         cmocka_unit_test(test_policies),
        cmocka_unit_test(test_ledgers),        cmocka_unit_test(test_several_at_once),
        cmocka_unit_test(test_all_members),    cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_policy_version), cmocka_unit_test(test_reload),
        cmocka_unit_test(test_unreadable),     cmocka_unit_test(test_check_json),
        cmocka_unit_test(test_examples),       cmocka_unit_test(test_schema_refuses),
        cmocka_unit_test(test_documents),      cmocka_unit_test(test_init),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
