#include "daemon/config_options.h"

#include "core/claims.h"
#include "core/steps.h"

#include "daemon/config.h"
#include "daemon/config_auth.h"

#define AT(type, member) (offsetof(struct type, member) + 1)
#define COUNT(array)     (sizeof(array) / sizeof *(array))
#define SECTION(id, title, words)                                                                                      \
    {                                                                                                                  \
        .name = (title), .text = (words), .options = id, .count = COUNT(id)                                            \
    }

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)
#define YEARS  (3650 * DAY)
#define KB     INT64_C(1024)
#define MB     (1024 * KB)

const struct option_kind_names config_kinds[OPTION_KIND_COUNT] = {
    {OPTION_HTTP, "HTTP", "an HTTP provider", "HTTP providers"},
    {OPTION_MCP, "MCP", "an MCP server", "MCP servers"},
    {OPTION_COMMAND, "command", "a provider of commands", "providers of commands"},
    {OPTION_MAIL, "mail", "a mail server", "mail servers"},
    {OPTION_GUARDED, "guard mode", "a tool of guard mode", "tools of guard mode"},
    {OPTION_STEPS, "multi-step", "a multi-step tool", "multi-step tools"},
    {OPTION_SQL, "SQL", "a database", "databases"},
};

/* ---- server, ledger ---- */

static const struct option server_tls_options[] = {
    {"certificate", OPTION_TEXT, .required = true, .at = AT(config_server, tls_certificate),
     .text = "Certificate chain, PEM file. Relative paths start at the registry file's folder."},
    {"key", OPTION_TEXT, .required = true, .at = AT(config_server, tls_key), .text = "Private key, PEM file."},
};
static const struct option_section server_tls =
    SECTION(server_tls_options, "server.tls", "HTTPS on the listening address.");

static const struct option jwt_roles_options[] = {
    {"from", OPTION_TEXT, .required = true, .at = AT(config_jwt, issuer.roles_from),
     .text = "JSON Pointer to the claim: a list of texts, or one text with blanks between its words."},
    {"map", OPTION_OBJECT, .required = true, .at = AT(config_jwt, roles_map),
     .text = "What the claim may say → `agent`, `approver`, `operator` or `admin`. Of several the highest counts; a "
             "token with none of them is refused."},
};
static const struct option_section jwt_roles =
    SECTION(jwt_roles_options, "server.jwt.NAME.roles", "Which role a token has.");

static const struct option jwt_options[] = {
    {"issuer", OPTION_TEXT, .required = true, .at = AT(config_jwt, issuer.issuer),
     .text = "What the token's `iss` must be, byte for byte."},
    {"audience", OPTION_TEXTS, .required = true, .at = AT(config_jwt, issuer.audiences),
     .count_at = AT(config_jwt, issuer.audience_count),
     .text = "This server's names: the token's `aud` must have one of them."},
    {"jwks", OPTION_TEXT, .required = true, .at = AT(config_jwt, issuer.jwks),
     .text = "The issuer's public keys: `https://…` (plain `http://…` on loopback only; redirects are not followed) or "
             "`file:PATH`."},
    {"ca", OPTION_TEXT, .computed = "the system's certificates", .at = AT(config_jwt, issuer.ca),
     .text = "PEM file with the certificates to trust when the keys are fetched."},
    {"algorithms", OPTION_CHOICES, .fallback = "RS256, ES256, EdDSA", .max = JWT_ALGORITHMS_MAX,
     .choices = {"RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"},
     .at = AT(config_jwt, issuer.algorithms), .count_at = AT(config_jwt, issuer.algorithm_count),
     .text = "Signatures that are accepted. Unsigned and symmetric ones never are."},
    {"tenant", OPTION_TEXT, .required = true, .at = AT(config_jwt, issuer.tenant),
     .text = "The tenant of all its tokens, or a JSON Pointer to the claim that names it (`/tenant`)."},
    {"principal", OPTION_TEXT, .fallback = "/sub", .at = AT(config_jwt, issuer.principal),
     .text = "JSON Pointer to the claim that names the principal."},
    {"prefix", OPTION_TEXT, .may_be_empty = true, .fallback = "", .at = AT(config_jwt, issuer.prefix),
     .text = "Put before the principal's name, so that it never meets one of another issuer or of `onced token`."},
    {"roles", OPTION_SECTION, .section = &jwt_roles, .computed = "every token has the role agent", .at = 1,
     .text = "Which role a token has."},
    {"tools", OPTION_TEXT, .computed = "tokens are not limited", .at = AT(config_jwt, issuer.tools),
     .text = "JSON Pointer to the claim that lists the tools (patterns) which the token is good for. A token without "
             "it is refused."},
    {"entities", OPTION_TEXT, .computed = "tokens are not limited", .at = AT(config_jwt, issuer.entities),
     .text = "The same for entities: `order/*`."},
    {"leeway", OPTION_DURATION, .fallback = "60s", .max = 10 * MINUTE, .at = AT(config_jwt, issuer.leeway_ms),
     .text = "How far the clocks may differ when `exp` and `nbf` are judged."},
    {"refresh", OPTION_DURATION, .fallback = "10m", .min = 100, .max = DAY, .at = AT(config_jwt, issuer.refresh_ms),
     .text =
         "The keys are read anew so often; and when a token names a key that is not among them, but not within a tenth "
         "of "
         "this time (10 s at most) after the last reading. While they cannot be read, the last ones stay in force."},
};
const struct option_section config_jwt_section = {
    .name = "server.jwt.NAME",
    .text = "An identity provider whose signed tokens (JWT) are taken beside those of `onced token`.",
    .options = jwt_options,
    .count = COUNT(jwt_options),
};

static const struct option links_options[] = {
    {"base", OPTION_TEXT, .required = true, .at = AT(config_links, base),
     .text = "Where people reach this server: `https://onced.example.com`."},
    {"expires", OPTION_DURATION, .fallback = "24h", .min = SECOND, .max = 30 * DAY, .at = AT(config_links, expires_ms),
     .text = "A link's life; never longer than the request that it answers."},
};
static const struct option_section server_links =
    SECTION(links_options, "server.links", "One-time links for approvers.");

static const struct option server_options[] = {
    {"listen", OPTION_TEXT, .fallback = "127.0.0.1:7070", .at = AT(config_server, host),
     .text =
         "Address and port: `127.0.0.1:7070`, `[::1]:7070`, `localhost:7070`. Port 0 takes a free one. Elsewhere than "
         "loopback needs `auth: tokens`, and `tls` or `insecure_listen: true`."},
    {"auth", OPTION_CHOICE, .fallback = "none", .choices = {"none", "tokens"}, .at = AT(config_server, auth),
     .text =
         "`tokens`: callers present a bearer token made by `onced token`, or by an issuer that `jwt` names. `none` is "
         "allowed on loopback only."},
    {"jwt", OPTION_MAP, .section = &config_jwt_section, .computed = "none",
     .text = "Identity providers by name. Needs `auth: tokens`."},
    {"insecure_listen", OPTION_BOOL, .fallback = "false", .at = AT(config_server, insecure_listen),
     .text = "Plain HTTP on a public address, on your own head (for example behind a proxy that ends TLS)."},
    {"tls", OPTION_SECTION, .section = &server_tls, .at = 1, .text = "HTTPS on the listening address."},
    {"links", OPTION_SECTION, .section = &server_links, .computed = "none", .at = AT(config_server, links),
     .text = "One-time links by which people approve and deny from mail or a chat."},
    {"connections_max", OPTION_INTEGER, .fallback = "1024", .min = 1, .max = 65535,
     .at = AT(config_server, connections_max),
     .text = "Client connections at once; further ones wait in the system's queue."},
    {"body_bytes_max", OPTION_SIZE, .fallback = "1MB", .min = KB, .max = 64 * MB,
     .at = AT(config_server, body_bytes_max), .text = "Largest request body; beyond: 413."},
    {"in_flight_max", OPTION_INTEGER, .fallback = "10000", .min = 1, .max = 1000000,
     .at = AT(config_server, in_flight_max), .text = "Calls being worked on or waited for; beyond: 503."},
    {"stop_timeout", OPTION_DURATION, .fallback = "30s", .max = HOUR, .at = AT(config_server, stop_timeout_ms),
     .text = "A graceful stop waits this long for attempts on the wire."},
    {"log", OPTION_CHOICE, .fallback = "info", .choices = {"debug", "info", "warn", "error"},
     .at = AT(config_server, log),
     .text = "Least severe log lines that are written. The one member of this section that a reload changes."},
};
const struct option_section config_server_section = SECTION(server_options, "server", "Where and how onced listens.");

static const struct option ledger_options[] = {
    {"path", OPTION_TEXT, .computed = "`onced.db`", .at = AT(config_ledger, path),
     .text = "SQLite file, of one gateway. Relative paths start at the registry file's folder."},
    {"url", OPTION_TEXT, .computed = "none", .at = AT(config_ledger, url),
     .text = "Instead of a file: a PostgreSQL database (15 or newer) that several gateways may share, "
             "`postgresql://user@host1,host2/database?sslmode=verify-full`: everything that libpq knows. "
             "`${env:NAME}` and `${file:PATH}` are expanded; a password only so. See operations.md."},
    {"lease", OPTION_DURATION, .fallback = "15s", .min = SECOND, .max = HOUR, .at = AT(config_ledger, lease_ms),
     .text =
         "How long what a gateway holds outlasts the `timeout` of an attempt: when it dies, other gateways take over "
         "after both, and what only waited in its memory after twice the lease. A gateway that stops hands over at "
         "once. Longer than a commit ever takes."},
};
const struct option_section config_ledger_section = SECTION(ledger_options, "ledger", "Where operations are recorded.");

/* ---- the MCP door, principals ---- */

static const struct option mcp_tools_options[] = {
    {"status", OPTION_BOOL, .fallback = "true", .at = AT(mcp_settings, tool_status),
     .text = "`onced_status`: what became of an operation, a key, or the session's last call of a tool."},
    {"wait", OPTION_BOOL, .fallback = "true", .at = AT(mcp_settings, tool_wait),
     .text = "`onced_wait`: waits for the end of an operation."},
    {"plan", OPTION_BOOL, .fallback = "true", .at = AT(mcp_settings, tool_plan),
     .text = "`onced_plan`: what a call would do, without doing it."},
    {"run_report", OPTION_BOOL, .fallback = "true", .at = AT(mcp_settings, tool_run_report),
     .text = "`onced_run_report`: what a run really did."},
    {"compensate", OPTION_BOOL, .fallback = "true", .at = AT(mcp_settings, tool_compensate),
     .text = "`onced_compensate`: undoes an earlier call by one of its tool's playbooks. There only where tools have "
             "some."},
};
static const struct option_section mcp_tools =
    SECTION(mcp_tools_options, "mcp.tools", "The built-in tools that are offered.");

static const struct option mcp_stdio_options[] = {
    {"principal", OPTION_TEXT, .fallback = "local", .at = AT(mcp_settings, stdio_principal),
     .text = "Principal of its calls."},
    {"tenant", OPTION_TEXT, .fallback = "default", .at = AT(mcp_settings, stdio_tenant),
     .text = "Tenant of its calls."},
};
static const struct option_section mcp_stdio = SECTION(
    mcp_stdio_options, "mcp.stdio", "Who calls over `onced mcp`: the standard streams and the ledger's socket.");

static const struct option mcp_options[] = {
    {"tools", OPTION_SECTION, .section = &mcp_tools, .at = 1, .text = "The built-in tools that are offered."},
    {"output_schema", OPTION_BOOL, .fallback = "false", .at = AT(mcp_settings, output_schema),
     .text = "Publish onced's result shape as `outputSchema` of the registry's own tools."},
    {"tasks", OPTION_BOOL, .fallback = "true", .at = AT(mcp_settings, tasks),
     .text = "Answer long calls as tasks where the client can take them."},
    {"task_after", OPTION_DURATION, .fallback = "10s", .max = HOUR, .at = AT(mcp_settings, task_after_ms),
     .text = "A call that takes longer becomes a task."},
    {"wait", OPTION_DURATION, .fallback = "50s", .max = HOUR, .at = AT(mcp_settings, wait_ms_max),
     .text = "Longest wait of a call that is no task; then it is answered with what is known. Many clients give up "
             "after 60 s. 0 = the tool's `wait`."},
    {"sessions", OPTION_COUNT, .fallback = "1000", .min = 1, .max = 100000, .at = AT(mcp_settings, sessions_max),
     .text = "Legacy sessions at once; the idlest one is ended for a new one."},
    {"session_idle", OPTION_DURATION, .fallback = "1h", .min = SECOND, .max = 30 * DAY,
     .at = AT(mcp_settings, session_idle_ms), .text = "A session without a request for so long is ended."},
    {"calls", OPTION_COUNT, .fallback = "256", .min = 1, .max = 100000, .at = AT(mcp_settings, calls_max),
     .text = "Requests being worked on at once, per session."},
    {"stream_bytes", OPTION_SIZE, .fallback = "4MB", .min = 64 * KB, .max = 1024 * MB,
     .at = AT(mcp_settings, stream_bytes_max), .text = "Unsent or resumable bytes kept per stream."},
    {"origins", OPTION_TEXTS, .computed = "none", .at = AT(mcp_settings, origins),
     .count_at = AT(mcp_settings, origin_count),
     .text = "Allowed `Origin` values of web pages, beyond those of this machine: `https://app.example`."},
    {"stdio", OPTION_SECTION, .section = &mcp_stdio, .at = 1, .text = "Who calls over `onced mcp`."},
    {"instructions", OPTION_TEXT, .computed = "onced's own", .at = AT(mcp_settings, instructions),
     .text = "What clients are told about this server."},
};
const struct option_section config_mcp_section = SECTION(mcp_options, "mcp", "The MCP door: `/mcp` and `onced mcp`.");

static const struct option principal_options[] = {
    {"tools", OPTION_TEXTS, .required = true, .at = AT(registry_access, tools),
     .count_at = AT(registry_access, tool_count),
     .text = "Names of tools with wildcards (`refund.*`). Others are not listed and their calls are refused. `[]` = "
             "none."},
};
const struct option_section config_principal_section = {
    .name = "principals.NAME",
    .text = "What one principal may see and call, over MCP and HTTP. Principals that are not named may use every tool.",
    .options = principal_options,
    .count = COUNT(principal_options),
    .free_names = true,
};

/* ---- providers ---- */

static const struct option provider_tls_options[] = {
    {"ca", OPTION_TEXT, .computed = "the system's certificates", .text = "PEM file with the certificates to trust."},
    {"verify", OPTION_BOOL, .fallback = "true", .text = "`false` accepts any certificate: for tests only."},
};
static const struct option_section provider_tls =
    SECTION(provider_tls_options, "providers.NAME.tls", "How the provider's certificate is checked.");

static const struct option provider_key_options[] = {
    {"header", OPTION_TEXT,
     .text = "The key travels in this header. One of `header`, `field` and `query` must be given."},
    {"field", OPTION_TEXT, .text = "The key travels in this top-level member of the JSON or form body."},
    {"query", OPTION_TEXT, .text = "The key travels in this query parameter."},
    {"format", OPTION_CHOICE, .fallback = "operation_id", .choices = {"operation_id", "uuid", "hex"},
     .text = "What the key looks like. It is derived from the operation and the same on every attempt."},
    {"max_length", OPTION_INTEGER, .computed = "no limit", .min = 16, .max = 1000,
     .text = "Longest key that the provider takes, in bytes."},
    {"retention", OPTION_DURATION, .computed = "not known: ambiguous attempts are never re-sent", .max = YEARS,
     .text = "How long the provider remembers a key. After that a re-send could happen twice."},
    {"quoted", OPTION_BOOL, .fallback = "false", .text = "Send the header as an RFC 8941 string, in double quotes."},
    {"in_use", OPTION_STATUSES, .computed = "none",
     .text =
         "Answers that say: a request with this key is still running. onced waits and asks again with the same key."},
    {"mismatch", OPTION_STATUSES, .computed = "none",
     .text = "Answers that say: same key, other parameters. The outcome is unknown then."},
};
static const struct option_section provider_key =
    SECTION(provider_key_options, "providers.NAME.key",
            "How the provider's idempotency key works; leave it out when there is none.");

static const struct option header_options[] = {
    {"header", OPTION_TEXT, .required = true, .text = "Name of the answer header."},
};
static const struct option_section provider_retry_after =
    SECTION(header_options, "providers.NAME.retry_after",
            "Where the provider says when to come back: seconds or an HTTP date.");
static const struct option_section provider_request_id = SECTION(
    header_options, "providers.NAME.request_id", "Where the provider names its request; kept with the attempt.");

static const struct option provider_error_options[] = {
    {"message", OPTION_POINTER, .fallback = "/error/message", .text = "The error's text in the answer."},
    {"code", OPTION_POINTER, .fallback = "/error/code",
     .text = "The error's code in the answer; what `{status, code}` compares with."},
};
static const struct option_section provider_error =
    SECTION(provider_error_options, "providers.NAME.error", "Where the provider's errors say what is wrong.");

static const struct option retry_budget_options[] = {
    {"per_second", OPTION_DECIMAL, .fallback = "10", .min = 0, .max = 100000,
     .text = "Re-sends that are allowed per second."},
    {"burst", OPTION_INTEGER, .fallback = "100", .min = 1, .max = 1000000, .text = "Re-sends that may be saved up."},
};
static const struct option_section provider_retry_budget =
    SECTION(retry_budget_options, "providers.NAME.retry_budget",
            "Re-sends to this provider, over all tools, so that an outage is not amplified.");

static const struct option breaker_options[] = {
    {"failures", OPTION_INTEGER, .fallback = "10", .min = 0, .max = 1000000,
     .text = "Failures in a row that open the breaker; 0 = off."},
    {"open", OPTION_DURATION, .fallback = "5s", .min = 100, .max = HOUR,
     .text = "While open, operations wait unsent; then one is let through as a probe."},
};
static const struct option_section provider_breaker =
    SECTION(breaker_options, "providers.NAME.breaker", "Holds operations back while the provider is down.");

/* ---- MCP servers ---- */

#define CLASS_NAMES                                                                                                    \
    {                                                                                                                  \
        "read", "internal_write", "external_idempotent", "external_weak", "external_irreversible"                      \
    }

static const struct option mcp_key_options[] = {
    {"argument", OPTION_TEXT, .computed = "none",
     .text = "The key is put into this argument of tools that have it, and callers do not see it."},
    {"meta", OPTION_BOOL, .fallback = "true", .text = "The key travels in `_meta[\"dev.onced/idempotency-key\"]`."},
    {"honoured", OPTION_BOOL, .fallback = "false",
     .text = "The server keeps a call with a known key from acting twice. Nothing in MCP promises that."},
    {"retention", OPTION_DURATION, .computed = "not known: ambiguous attempts are never re-sent", .max = YEARS,
     .text = "How long the server remembers a key. After that a re-send could happen twice."},
    {"format", OPTION_CHOICE, .fallback = "operation_id", .choices = {"operation_id", "uuid", "hex"},
     .text = "What the key looks like. It is derived from the operation and the same on every attempt."},
    {"max_length", OPTION_INTEGER, .computed = "no limit", .min = 16, .max = 1000,
     .text = "Longest key that the server takes, in bytes."},
};
static const struct option_section mcp_key =
    SECTION(mcp_key_options, "providers.NAME.key (MCP)", "What an MCP server is told to know a repeated call by.");

static const struct option mcp_import_options[] = {
    {"prefix", OPTION_TEXT, .fallback = "", .may_be_empty = true, .text = "Put before the names of imported tools."},
    {"allow", OPTION_TEXTS, .computed = "`[\"*\"]`",
     .text = "Which tools are imported: the server's names, with wildcards."},
    {"deny", OPTION_TEXTS, .computed = "none", .text = "Which of them are not."},
    {"unclassified", OPTION_CHOICE, .fallback = "external_weak",
     .choices = {"refuse", "read_only_hints", "external_weak"},
     .text = "Tools without a class of yours: left out; or class `read` when the server says `readOnlyHint`, else "
             "`external_weak`; or all `external_weak`."},
    {"classes", OPTION_CLASSES, .computed = "none", .choices = CLASS_NAMES,
     .text = "The server's names, with wildcards, and the class that you give them. A full name wins, then the first "
             "that fits."},
    {"forwarded", OPTION_FLAG_OR_TEXTS, .computed = "`false`",
     .text = "Tools of class `read` that are handed through as they are, outside of the ledger: all, or these names."},
    {"defaults", OPTION_OBJECT, .computed = "none", .text = "Members of `tools.NAME` for every imported tool."},
};
static const struct option_section mcp_import =
    SECTION(mcp_import_options, "providers.NAME.mcp.import",
            "Takes over the server's own tools. Without it only those that `tools` names can be called.");

static const struct option mcp_server_options[] = {
    {"command", OPTION_TEXTS,
     .text = "Program and arguments: onced starts it and talks over its standard streams. This or `url`. `${env:NAME}` "
             "and `${file:PATH}` are expanded."},
    {"env", OPTION_TEMPLATES, .computed = "PATH and HOME as onced has them",
     .text = "The program's environment; nothing else is inherited. Secrets only by reference."},
    {"cwd", OPTION_TEXT, .computed = "the registry file's folder", .text = "Where the program is started."},
    {"url", OPTION_TEXT, .text = "Streamable HTTP: `http://127.0.0.1:3001/mcp`. This or `command`."},
    {"headers", OPTION_TEMPLATES, .computed = "none",
     .text = "With `url`: sent with every request; secrets only by reference."},
    {"protocol", OPTION_CHOICE, .fallback = "auto",
     .choices = {"auto", "2025-11-25", "2025-06-18", "2025-03-26", "2026-07-28"},
     .text = "`auto` asks for the modern era first. Or the one revision to speak."},
    {"sessions", OPTION_CHOICE, .computed = "`shared` with `command`, `per_client` with `url`",
     .choices = {"shared", "per_client"}, .text = "Whether clients share one connection to the server."},
    {"forward", OPTION_BOOL, .fallback = "true",
     .text = "Resources, prompts, completion and what else the server has is passed through."},
    {"errors", OPTION_CHOICE, .fallback = "unknown", .choices = {"unknown", "no_effect"},
     .text = "What a result with `isError` says about the effect. MCP promises nothing: `unknown`. `no_effect` only if "
             "the server is known to fail before it acts."},
    {"start_timeout", OPTION_DURATION, .fallback = "15s", .min = 100, .max = HOUR,
     .text = "How long a started server has to answer; the doors of a starting onced wait for it."},
    {"import", OPTION_SECTION, .section = &mcp_import, .computed = "only tools that `tools` names",
     .text = "Takes over the server's own tools."},
};
static const struct option_section mcp_server =
    SECTION(mcp_server_options, "providers.NAME.mcp", "An MCP server that tools are called on; see mcp.md.");

#define OPTION_NETWORK  (OPTION_HTTP | OPTION_MCP | OPTION_MAIL)
#define OPTION_ANSWERED (OPTION_HTTP | OPTION_MCP)

static const struct option provider_options[] = {
    {"mcp", OPTION_SECTION, OPTION_MCP, .required = true, .section = &mcp_server,
     .text = "Makes the provider an MCP server."},
    {"command", OPTION_SECTION, OPTION_COMMAND, .required = true, .section = &config_command_section,
     .text = "Makes the provider one of commands that onced starts."},
    {"smtp", OPTION_SECTION, OPTION_MAIL, .required = true, .section = &config_smtp_section,
     .text = "Makes the provider a mail server."},
    {"imap", OPTION_SECTION, OPTION_MAIL, .section = &config_imap_section, .computed = "no look-ups",
     .text = "Where look-ups search."},
    {"sql", OPTION_SECTION, OPTION_SQL, .required = true, .section = &config_sql_section,
     .text = "Makes the provider a PostgreSQL database."},
    {"base_url", OPTION_TEXT, OPTION_HTTP, .required = true,
     .text = "`http://` or `https://`, host, optional port and path. `${env:NAME}` and `${env:NAME:-default}` are "
             "expanded."},
    {"headers", OPTION_TEMPLATES, OPTION_HTTP, .computed = "none",
     .text = "Sent with every request. Secrets only by reference, `${env:NAME}` or `${file:PATH}`, expanded at load."},
    {"timeout", OPTION_DURATION, OPTION_HTTP, .fallback = "10s", .min = 1, .max = HOUR, .text = "Of a whole attempt."},
    {"timeout", OPTION_DURATION, OPTION_MCP, .fallback = "60s", .min = 1, .max = HOUR,
     .text = "Of a whole attempt; the server's progress starts it anew."},
    {"timeout", OPTION_DURATION, OPTION_COMMAND, .fallback = "60s", .min = 1, .max = HOUR,
     .text = "Of a command; then its process group is killed and the outcome unknown."},
    {"connect_timeout", OPTION_DURATION, OPTION_ANSWERED, .fallback = "3s", .min = 1, .max = HOUR,
     .text = "Resolve, connect and TLS."},
    {"connections", OPTION_INTEGER, OPTION_ANSWERED, .fallback = "64", .min = 1, .max = 4096,
     .text = "Attempts on the wire at once."},
    {"timeout", OPTION_DURATION, OPTION_MAIL, .fallback = "60s", .min = 1, .max = HOUR,
     .text = "Of a whole attempt, from resolving the name to the answer to the message."},
    {"connect_timeout", OPTION_DURATION, OPTION_MAIL, .fallback = "30s", .min = 1, .max = HOUR,
     .text = "Resolve, connect, TLS, greeting and login; some servers let strangers wait."},
    {"connections", OPTION_INTEGER, OPTION_MAIL, .fallback = "10", .min = 1, .max = 4096,
     .text = "Messages on the wire at once, each on a connection of its own."},
    {"timeout", OPTION_DURATION, OPTION_SQL, .fallback = "10s", .min = 1, .max = HOUR,
     .text = "Of a whole attempt, from connecting to the answer to COMMIT."},
    {"connect_timeout", OPTION_DURATION, OPTION_SQL, .fallback = "5s", .min = 1, .max = HOUR,
     .text = "Per host, in whole seconds, 2 s at least. What the `url` says wins."},
    {"connections", OPTION_INTEGER, OPTION_SQL, .fallback = "8", .min = 1, .max = 1024,
     .text = "Transactions at once, each on a connection of its own; a minute after the last they are closed."},
    {"connections", OPTION_INTEGER, OPTION_COMMAND, .fallback = "16", .min = 1, .max = 4096,
     .text = "Commands that run at once."},
    {"queue", OPTION_INTEGER, .fallback = "4096", .min = 1, .max = 1000000,
     .text = "Operations waiting in memory for a connection; the rest waits in the ledger."},
    {"keepalive", OPTION_BOOL, OPTION_HTTP, .fallback = "true", .text = "`false`: a new connection per request."},
    {"tls", OPTION_SECTION, OPTION_NETWORK, .section = &provider_tls,
     .text = "How the provider's certificate is checked."},
    {"answer_bytes_max", OPTION_SIZE, OPTION_HTTP, .fallback = "1MB", .min = KB, .max = 64 * MB,
     .text = "A larger answer is unreadable: outcome unknown."},
    {"answer_bytes_max", OPTION_SIZE, OPTION_MCP, .fallback = "4MB", .min = KB, .max = 32 * MB,
     .text = "A larger message is unreadable: outcome unknown."},
    {"answer_bytes_max", OPTION_SIZE, OPTION_COMMAND, .fallback = "1MB", .min = KB, .max = 64 * MB,
     .text = "Of a command's standard output, where `run.output_bytes_max` says nothing else."},
    {"answer_bytes_max", OPTION_SIZE, OPTION_SQL, .fallback = "1MB", .min = KB, .max = 64 * MB,
     .text = "Of a statement's rows; with more all is rolled back and the call is refused."},
    {"key", OPTION_SECTION, OPTION_COMMAND, .section = &config_command_key_section,
     .text = "What the key in `ONCED_IDEMPOTENCY_KEY` is good for."},
    {"key", OPTION_SECTION, OPTION_HTTP, .section = &provider_key,
     .text = "How the provider's idempotency key works; leave it out when there is none."},
    {"key", OPTION_SECTION, OPTION_MCP, .section = &mcp_key,
     .text = "What the server is told to know a repeated call by."},
    {"no_effect", OPTION_STATUSES, OPTION_MCP,
     .fallback = "400, 401, 402, 403, 405, 406, 410, 411, 412, 413, 414, 415, 422, 431",
     .text = "With `url`, statuses without a JSON-RPC answer: the call did not reach the tool. Replaces the default."},
    {"no_effect", OPTION_STATUSES, OPTION_HTTP,
     .fallback = "400, 401, 402, 403, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422",
     .text = "Definite refusals: nothing happened, and asking again the same way is pointless. Replaces the default."},
    {"not_processed", OPTION_STATUSES, OPTION_ANSWERED, .fallback = "429",
     .text = "Nothing happened, try again later. Add 503 only if the provider promises it. Replaces the default."},
    {"retry_after", OPTION_SECTION, OPTION_HTTP, .section = &provider_retry_after, .computed = "Retry-After",
     .text = "Where the provider says when to come back."},
    {"request_id", OPTION_SECTION, OPTION_HTTP, .section = &provider_request_id, .computed = "none",
     .text = "Where the provider names its request."},
    {"error", OPTION_SECTION, OPTION_HTTP, .section = &provider_error,
     .text = "Where the provider's errors say what is wrong."},
    {"retry_budget", OPTION_SECTION, .section = &provider_retry_budget, .text = "Re-sends allowed over all tools."},
    {"breaker", OPTION_SECTION, .section = &provider_breaker,
     .text = "Holds operations back while the provider is down."},
};
const struct option_section config_provider_section =
    SECTION(provider_options, "providers.NAME", "An external system and its contract.");

/* ---- tools ---- */

#define ANY_METHOD                                                                                                     \
    {                                                                                                                  \
        "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"                                                                \
    }
#define LOOKUP_METHOD                                                                                                  \
    {                                                                                                                  \
        "GET", "POST"                                                                                                  \
    } /* a look-up must not change anything */
#define REQUEST_OPTIONS(methods, method_default, body_default)                                                         \
    {"method", OPTION_CHOICE, .computed = method_default, .choices = methods, .text = "HTTP method."},                 \
        {"path", OPTION_TEMPLATE_OR_JQ, .required = true,                                                              \
         .text = "Appended to the provider's `base_url`; values are escaped as path segments. Or `{jq: program}`."},   \
        {"query", OPTION_TEMPLATES, .computed = "none",                                                                \
         .text = "Query parameters. One whose single place is absent is left out."},                                   \
        {"headers", OPTION_TEMPLATES, .computed = "none", .text = "Request headers; they win over the provider's."},   \
        {"json", OPTION_JSON_BODY, .computed = body_default,                                                           \
         .text = "JSON body. A text that is exactly one place keeps the value's type; a text instead of a mapping is " \
                 "jq."},                                                                                               \
        {"form", OPTION_FORM_BODY, .computed = "none",                                                                 \
         .text = "Form body with brackets for nested members: `metadata[operation]=…`. Instead of `json`."},           \
        {"form_arrays", OPTION_CHOICE, .fallback = "brackets", .choices = {"brackets", "indexed"},                     \
         .text = "Lists in a form: `a[]=` or `a[0]=`."},

static const struct option request_options[] = {REQUEST_OPTIONS(
    ANY_METHOD, "GET for class `read`, else POST", "the arguments, for writes by POST, PUT or PATCH without `form`")};
static const struct option_section tool_request =
    SECTION(request_options, "tools.NAME.request", "The request that is the effect.");

static const struct option lookup_request_options[] = {REQUEST_OPTIONS(LOOKUP_METHOD, "GET", "none")};
static const struct option_section lookup_request =
    SECTION(lookup_request_options, "tools.NAME.lookup.request", "Asks the provider for what carries our reference.");
static const struct option_section lookup_by_id =
    SECTION(lookup_request_options, "tools.NAME.lookup.by_id",
            "Asks the provider for one object by `{$external_id}`, once that is known.");

static const struct option response_options[] = {
    {"success", OPTION_STATUSES, .computed = "200-299, without `accepted` and `noop`",
     .text = "The effect happened. 202 counts only when it is listed here."},
    {"noop", OPTION_STATUSES, .computed = "none", .text = "It was already so: success without an effect of ours."},
    {"accepted", OPTION_STATUSES, .computed = "202 with a `lookup`, else none",
     .text = "The final outcome comes later; needs a `lookup`."},
    {"refused", OPTION_STATUSES, .computed = "none",
     .text = "Definite refusals, in addition to the provider's `no_effect`."},
    {"not_processed", OPTION_STATUSES, .computed = "none",
     .text = "Try again later, in addition to the provider's `not_processed`."},
    {"body", OPTION_CHOICE, .fallback = "json", .choices = {"json", "any", "none"},
     .text = "`json`: an answer that is not JSON is unreadable, its outcome unknown. `any`: text is wrapped. `none`: "
             "ignored."},
    {"content_type", OPTION_CHOICE, .fallback = "any", .choices = {"any", "json"},
     .text = "`json` also insists on the content type application/json."},
    {"success_when", OPTION_JQ, .computed = "none",
     .text = "jq over the answer of a success; false or an error: outcome unknown."},
    {"error_when", OPTION_JQ, .computed = "none",
     .text = "jq: true means the answer is an error in a 200: outcome unknown unless `refused` matches."},
    {"external_id", OPTION_POINTER_OR_JQ, .computed = "none", .text = "The provider's id of the effect."},
    {"result", OPTION_POINTER_OR_JQ, .computed = "the whole answer", .text = "What callers get."},
};
static const struct option_section tool_response =
    SECTION(response_options, "tools.NAME.response", "How an answer is read.");

static const struct option next_options[] = {
    {"cursor", OPTION_POINTER,
     .text = "The next page's cursor in the answer; absent, null or empty: last page. With `query`."},
    {"more", OPTION_POINTER, .text = "Whether there is another page (true). With `last_id` and `query`."},
    {"last_id", OPTION_POINTER, .text = "In the last item: what the next page starts after."},
    {"query", OPTION_TEXT, .text = "Query parameter that the cursor or last id goes into."},
    {"url", OPTION_POINTER,
     .text = "The next page's address in the answer, on the same host; absent or null: last page."},
};
static const struct option_section lookup_next =
    SECTION(next_options, "tools.NAME.lookup.next",
            "How to get the next page: `{cursor, query}`, `{more, last_id, "
            "query}` or `{url}`. Without it the first page is all.");

static const struct option lookup_options[] = {
    {"request", OPTION_SECTION, .required = true, .section = &lookup_request,
     .text = "Asks for what carries our reference."},
    {"by_id", OPTION_SECTION, .section = &lookup_by_id,
     .text = "Asks for one object, once the provider's id is known."},
    {"items", OPTION_POINTER, .computed = "the answer is the object itself",
     .text = "The array of candidates in the answer."},
    {"match", OPTION_EQUALITIES, .computed = "none",
     .text = "Which candidate is ours: JSON Pointers into the candidate → templates, all must be equal."},
    {"next", OPTION_SECTION, .section = &lookup_next, .computed = "one page", .text = "How to get the next page."},
    {"pages_max", OPTION_INTEGER, .fallback = "100", .min = 1, .max = 10000,
     .text = "Beyond, the look-up cannot tell."},
    {"absent_status", OPTION_STATUSES, .computed = "404 for single objects, none for lists",
     .text = "Answers that say: there is no such thing."},
    {"pending", OPTION_JQ, .computed = "never", .text = "jq over the match: the provider is still at work."},
    {"failed", OPTION_JQ, .computed = "never", .text = "jq over the match: it ended badly there; an operator decides."},
    {"external_id", OPTION_POINTER_OR_JQ, .computed = "as in `response`", .text = "The provider's id in the match."},
    {"result", OPTION_POINTER_OR_JQ, .computed = "the whole match", .text = "What callers get, from the match."},
    {"verify", OPTION_EQUALITIES, .computed = "none",
     .text = "Must be equal in the match, else it is a wrong object: outcome unknown and an incident."},
};
static const struct option_section tool_lookup =
    SECTION(lookup_options, "tools.NAME.lookup", "How to find out from the provider what really happened.");

static const struct option mcp_lookup_options[] = {
    {"tool", OPTION_TEXT, .required = true, .text = "Another tool of the same server, by the server's name."},
    {"arguments", OPTION_JSON_BODY, .computed = "none",
     .text = "Its arguments, with places; a text instead of a mapping is jq."},
    {"found", OPTION_JQ, .computed = "never",
     .text = "jq over the look-up's result: true proves the effect. This or `absent`, better both."},
    {"absent", OPTION_JQ, .computed = "never",
     .text = "jq over the look-up's result: true says that there is no effect."},
    {"pending", OPTION_JQ, .computed = "never", .text = "jq: the server is still at work."},
    {"failed", OPTION_JQ, .computed = "never", .text = "jq: it ended badly there; an operator decides."},
    {"external_id", OPTION_ANY, .computed = "none", .text = "jq or JSON Pointer: the server's id of the effect."},
    {"verify", OPTION_EQUALITIES, .computed = "none",
     .text = "Must be equal in the look-up's result, else it is a wrong object: outcome unknown and an incident."},
    {"timeout", OPTION_DURATION, .computed = "the tool's", .min = 1, .max = HOUR, .text = "Of one look-up."},
};
static const struct option_section mcp_tool_lookup =
    SECTION(mcp_lookup_options, "tools.NAME.lookup (MCP)", "How to find out from the server what really happened.");

static const struct option mcp_tool_options[] = {
    {"tool", OPTION_TEXT, .computed = "the tool's name without the import's prefix",
     .text = "The server's name of it."},
    {"key_argument", OPTION_TEXT, .computed = "the provider's `key.argument`, where the tool has it",
     .text = "The argument that takes the provider key. Callers do not see it."},
    {"errors", OPTION_ANY, .computed = "the server's",
     .text = "What a result with `isError` says about the effect: `unknown`, `no_effect`, or jq over the result: "
             "`{no_effect, not_processed, noop}`."},
    {"error_when", OPTION_JQ, .computed = "never",
     .text = "jq over a result without `isError`: true means that it is an error after all."},
    {"success_when", OPTION_JQ, .computed = "none",
     .text = "jq over the result of a success; false or an error: outcome unknown."},
    {"external_id", OPTION_ANY, .computed = "none", .text = "jq or JSON Pointer: the server's id of the effect."},
};
static const struct option_section tool_mcp =
    SECTION(mcp_tool_options, "tools.NAME.mcp", "The tool as the MCP server has it.");

static const struct option retry_options[] = {
    {"attempts", OPTION_INTEGER, .fallback = "5", .min = 1, .max = 1000, .at = AT(retry_policy, attempts_max),
     .text = "Requests that may leave, the first one included."},
    {"total", OPTION_DURATION, .fallback = "1h", .min = SECOND, .max = 365 * DAY, .at = AT(retry_policy, total_ms),
     .text = "Since admission, over all retries."},
    {"backoff", OPTION_DURATION, .fallback = "200ms", .min = 1, .max = DAY, .at = AT(retry_policy, backoff_ms),
     .text = "Base of the exponential backoff with full jitter."},
    {"backoff_max", OPTION_DURATION, .fallback = "30s", .min = 1, .max = DAY, .at = AT(retry_policy, backoff_max_ms),
     .text = "Longest pause between two attempts."},
};
static const struct option_section tool_retry =
    SECTION(retry_options, "tools.NAME.retry", "When attempts are repeated.");

static const struct option approval_options[] = {
    {"when", OPTION_JQ, .computed = "every call",
     .text =
         "jq over the effective arguments: `.amount_cents > 10000`. Calls for which it is false need nobody; when it "
         "fails, people are asked."},
    {"approvers", OPTION_INTEGER, .fallback = "1", .min = 1, .max = APPROVERS_MAX, .at = AT(approval_policy, approvers),
     .text = "Distinct people who must agree, the caller never among them. One who refuses ends it."},
    {"expires", OPTION_DURATION, .fallback = "24h", .min = 100, .max = 365 * DAY, .at = AT(approval_policy, expires_ms),
     .text =
         "Without enough of them by then the call is `rejected` (`expired`); the same call, made again, asks anew."},
    {"mcp", OPTION_CHOICE, .fallback = "none", .choices = {"none", "elicit"}, .at = AT(approval_policy, mcp),
     .text =
         "`elicit`: a form at the calling MCP client, where it can show one; what is entered there is one decision, "
         "by `PRINCIPAL/user`. Another person than the agent by name only: a client may answer by itself."},
};
static const struct option_section tool_approval =
    SECTION(approval_options, "tools.NAME.approval", "Who must agree before a call runs.");

static const struct option tool_options[] = {
    {"title", OPTION_TEXT, .computed = "none", .at = AT(tool, title), .text = "Name for people."},
    {"description", OPTION_TEXT, .computed = "none", .at = AT(tool, description),
     .text = "What the model is told about the tool."},
    {"version", OPTION_TEXT, .fallback = "1", .at = AT(tool, version),
     .text = "Of the tool's definition; recorded with every operation."},
    {"class", OPTION_CHOICE, .required = true, .imported = true, .of_steps = true, .at = AT(tool, class),
     .choices = CLASS_NAMES, .text = "Side-effect class; see \"Defaults by class\" in registry.md."},
    {"idempotent_by", OPTION_CHOICE, OPTION_PERFORMED, .fallback = "key", .choices = {"key", "precondition", "nature"},
     .at = AT(tool, idempotent_by),
     .text =
         "Class `external_idempotent` only: by the provider's idempotency key, by a version check such as If-Match, or "
         "because the request replaces or deletes."},
    {"provider", OPTION_TEXT, OPTION_NETWORK | OPTION_COMMAND | OPTION_SQL, .required = true, .imported = true,
     .text = "Name of an entry of `providers`."},
    {"annotations", OPTION_OBJECT, .computed = "the server's, or made from the class", .at = AT(tool, annotations_json),
     .text = "What MCP clients are told instead: `{readOnlyHint, destructiveHint, idempotentHint, openWorldHint}`."},
    {"output_schema", OPTION_OBJECT, .computed = "the server's, or see `mcp.output_schema`",
     .at = AT(tool, output_schema_json), .text = "JSON Schema of the structured result, for MCP clients."},
    {"icons", OPTION_LIST, .computed = "the server's", .at = AT(tool, icons_json), .text = "For MCP clients."},
    {"meta", OPTION_OBJECT, .computed = "the server's", .at = AT(tool, meta_json), .text = "`_meta` for MCP clients."},
    {"forwarded", OPTION_BOOL, OPTION_MCP, .fallback = "false", .at = AT(tool, forwarded),
     .text = "Class `read`: calls are handed through to the server as they are, outside of the ledger."},
    {"input_schema", OPTION_SCHEMA, .computed = "the server's, or any object",
     .text = "JSON Schema of the arguments (2020-12, or draft 7 by `$schema`). Its defaults are applied; remote `$ref` "
             "are refused."},
    {"key", OPTION_TEMPLATE, .computed = "none",
     .text = "Business key over the arguments: `refund:{payment_id}:{amount_cents}:v1`. Two calls with one key are one "
             "effect."},
    {"identity", OPTION_CHOICE, .fallback = "any", .choices = {"any", "caller"}, .at = AT(tool, identity),
     .text = "`caller`: an idempotency key from the caller is required, a call without one is refused."},
    {"step_identity", OPTION_CHOICE, .fallback = "per_step", .choices = {"per_step", "per_arguments"},
     .at = AT(tool, step_identity),
     .text = "`per_arguments`: the tool is rightly called several times within one step of a run."},
    {"normalize", OPTION_NORMALIZERS, .computed = "none",
     .text = "Field → normaliser or list of them: trim, collapse_space, lower, upper, nfc, integer, decimal, "
             "minor_units(currency), timestamp, sort, {enum: {from: to}}."},
    {"volatile", OPTION_POINTERS, .computed = "none", .at = AT(tool, volatile_pointers),
     .count_at = AT(tool, volatile_count), .text = "Arguments that are sent but not fingerprinted."},
    {"on_mismatch", OPTION_CHOICE, .fallback = "conflict", .choices = {"conflict", "replay"},
     .at = AT(tool, on_mismatch),
     .text = "Same key, other arguments: refuse, or answer with the recorded result, marked."},
    {"share_result", OPTION_CHOICE, .computed = "`tenant` for business keys, else `principal`",
     .choices = {"principal", "tenant"}, .base = SHARE_PRINCIPAL, .at = AT(tool, share),
     .text = "Who else may be given the recorded result."},
    {"repeat_window", OPTION_DURATION, .by_class = {"0", "15m", "15m", "24h", "24h"}, .max = YEARS,
     .at = AT(tool, repeat_window_ms),
     .text = "A call without a key joins an equal one that finished within this time; 0 = off."},
    {"repeat", OPTION_CHOICE, .fallback = "allowed", .choices = {"allowed", "with_approval", "denied"},
     .at = AT(tool, repeat),
     .text =
         "Whether `repeat_of` may do it once more on purpose; `with_approval`: when people agree (`approval` says how "
         "many, 1 by default)."},
    {"while_in_doubt", OPTION_CHOICE, .by_class = {"allow", "allow", "allow", "hold", "hold"},
     .choices = {"hold", "allow"}, .at = AT(tool, in_doubt),
     .text = "`hold`: while an operation of this tool and principal is unresolved, another one waits for a decision."},
    {"approval", OPTION_CHOICE_OR_SECTION, .computed = "`none`; must be stated for class `external_irreversible`",
     .choices = {"none", "required"}, .section = &tool_approval, .at = AT(tool, approval),
     .text = "Whether people must agree before a call runs. `required`: one person, within 24 hours."},
    {"entities", OPTION_SECTIONS, .section = &config_entity_section, .max = CLAIMS_ENTITIES_MAX, .computed = "none",
     .text = "What the operation must have for itself."},
    {"guards", OPTION_SECTIONS, .section = &config_state_guard_section, .max = CLAIMS_GUARDS_MAX, .computed = "none",
     .text = "What the state of its entities forbids."},
    {"sets", OPTION_OBJECT, .computed = "none",
     .text =
         "Attributes that its success gives its entities: `{order: {state: refunded, refund_id: \"{id}\"}}`; values "
         "are JSON, or texts with places from the arguments."},
    {"window", OPTION_SECTION, .section = &config_window_section, .computed = "none",
     .text = "What must not be done twice within a period."},
    {"budgets", OPTION_SECTIONS, .section = &config_debit_section, .max = CLAIMS_DEBITS_MAX, .computed = "none",
     .text = "What the call takes from `budgets`."},
    {"compensation", OPTION_MAP, OPTION_PERFORMED, .section = &config_playbook_section, .computed = "none",
     .text = "Playbooks: how an effect of the tool is undone, by name."},
    {"method_is_read", OPTION_BOOL, OPTION_HTTP, .fallback = "false",
     .text = "Class `read` with a method other than GET or HEAD: states that the request changes nothing (a search by "
             "POST)."},
    {"mcp", OPTION_SECTION, OPTION_MCP, .section = &tool_mcp, .text = "The tool as the MCP server has it."},
    {"request", OPTION_SECTION, OPTION_HTTP, .required = true, .section = &tool_request,
     .text = "The request that is the effect."},
    {"guard_mode", OPTION_SECTION, OPTION_GUARDED, .required = true, .section = &config_guard_mode_section, .at = 1,
     .text = "The application performs the effect itself; the tool has no provider."},
    {"steps", OPTION_SECTIONS, OPTION_STEPS, .required = true, .section = &config_step_section, .max = STEPS_MAX,
     .text = "Makes the tool a multi-step one: other tools, in this order, all or undone; see steps.md."},
    {"result", OPTION_JQ, OPTION_STEPS, .computed = "`{steps: {NAME: {operation_id, status, external_id, result}}}`",
     .text = "What callers get when all is done: jq over `{arguments, steps, operation_id, run_id}`."},
    {"run", OPTION_SECTION, OPTION_COMMAND, .required = true, .section = &config_run_section,
     .text = "The command that is the effect."},
    {"mail", OPTION_SECTION, OPTION_MAIL, .required = true, .section = &config_tool_mail_section,
     .text = "The message that is the effect."},
    {"sql", OPTION_SECTION, OPTION_SQL, .required = true, .section = &config_tool_sql_section,
     .text = "The transaction that is the effect."},
    {"response", OPTION_SECTION, OPTION_HTTP, .section = &tool_response, .text = "How an answer is read."},
    {"verify", OPTION_EQUALITIES, OPTION_HTTP | OPTION_MCP | OPTION_COMMAND, .computed = "none",
     .text = "JSON Pointers into the answer → templates that must be equal, else the provider answered with a wrong "
             "object: "
             "outcome unknown and an incident."},
    {"reconcile", OPTION_CHOICES, OPTION_PERFORMED,
     .by_class = {"", "resend, lookup, manual", "resend, lookup, manual", "lookup, manual", "lookup, manual"},
     .choices = {"resend", "lookup", "webhook", "manual"}, .max = STRATEGIES_MAX, .at = AT(tool, reconcile.strategies),
     .count_at = AT(tool, reconcile.strategy_count),
     .text = "How an unknown outcome is settled, in this order. Of the default, what the tool cannot do is left out. "
             "`webhook`: for `webhook_wait` the provider's event (`inbox`) is waited for, then comes the next."},
    {"lookup", OPTION_SECTION, OPTION_HTTP, .section = &tool_lookup, .computed = "none",
     .text = "How to find out what really happened."},
    {"lookup", OPTION_SECTION, OPTION_MCP, .section = &mcp_tool_lookup, .computed = "none",
     .text = "How to find out what really happened."},
    {"lookup", OPTION_SECTION, OPTION_COMMAND, .section = &config_command_lookup_section, .computed = "none",
     .text = "How to find out what really happened."},
    {"settle", OPTION_DURATION, OPTION_PERFORMED, .fallback = "5s", .max = 30 * DAY,
     .at = AT(tool, reconcile.settle_ms),
     .text = "The provider's propagation delay: \"absent\" proves nothing sooner after the last attempt, or after its "
             "time-out when the connection broke or onced died."},
    {"absent_times", OPTION_INTEGER, OPTION_PERFORMED, .fallback = "2", .min = 1, .max = 100,
     .at = AT(tool, reconcile.absent_times), .text = "Consecutive \"absent\" answers that prove absence."},
    {"lookup_interval", OPTION_DURATION, OPTION_PERFORMED, .fallback = "1s", .min = 10, .max = DAY,
     .at = AT(tool, reconcile.interval_ms), .text = "Between look-ups at first; doubles."},
    {"lookup_interval_max", OPTION_DURATION, OPTION_PERFORMED, .fallback = "1m", .min = 10, .max = DAY,
     .at = AT(tool, reconcile.interval_max_ms), .text = "Longest pause between look-ups."},
    {"webhook_wait", OPTION_DURATION, OPTION_PERFORMED, .fallback = "5m", .min = 1, .max = 30 * DAY,
     .at = AT(tool, reconcile.webhook_ms),
     .text = "Strategy `webhook`: how long an event is waited for before the next strategy; also before the first "
             "look-up of an accepted operation, where `webhook` comes before `lookup`."},
    {"give_up", OPTION_DURATION, OPTION_PERFORMED, .fallback = "1h", .min = 1, .max = YEARS,
     .at = AT(tool, reconcile.give_up_ms),
     .text = "Since the outcome became unknown; then an operator is asked. Never closed by the clock alone."},
    {"watch", OPTION_DURATIONS, OPTION_PERFORMED, .fallback = "1m, 10m, 1h, 24h", .min = 1, .max = WATCH_MAX,
     .at = AT(tool, reconcile.watch_ms), .count_at = AT(tool, reconcile.watch_count),
     .text = "After closing on \"absent\": look again, in case it lands late. `[]` = never."},
    {"retry", OPTION_SECTION, .section = &tool_retry, .at = AT(tool, retry), .text = "When attempts are repeated."},
    {"timeout", OPTION_DURATION, OPTION_NETWORK | OPTION_SQL, .computed = "the provider's", .min = 1, .max = HOUR,
     .text = "Of a whole attempt; SQL: at most the provider's. Leases and `settle` go by the longer of both."},
    {"wait", OPTION_DURATION, .fallback = "20s", .max = 10 * MINUTE, .at = AT(tool, wait_ms),
     .text = "Inline callers wait this long for the end, then get 202."},
    {"retain", OPTION_DURATION, .fallback = "30d", .min = 1, .max = YEARS, .at = AT(tool, retain_ms),
     .text = "Arguments and results are kept this long after the end (at least twice `repeat_window`, or ten minutes "
             "longer than it); the key is never forgotten."},
    {"result_bytes_max", OPTION_SIZE, .fallback = "64KB", .min = 0, .max = 16 * MB, .at = AT(tool, result_bytes_max),
     .text = "A larger result is delivered once and kept as digest, size and external id."},
    {"audit", OPTION_BOOL, OPTION_PERFORMED, .fallback = "false", .at = AT(tool, audit),
     .text = "Class `read`: keep a ledger row of each call."},
    {"cache", OPTION_DURATION, OPTION_PERFORMED, .fallback = "0", .max = DAY, .at = AT(tool, cache_ms),
     .text = "Class `read`: keep results in memory this long; 0 = off."},
    {"redact", OPTION_POINTERS, .computed = "none", .at = AT(tool, redact_pointers), .count_at = AT(tool, redact_count),
     .text = "Parts of arguments and results that are masked wherever they are shown."},
    {"messages", OPTION_MESSAGES, .computed = "onced's own",
     .text = "State → what callers may tell the user. Must not claim more than is known."},
};
const struct option_section config_tool_section =
    SECTION(tool_options, "tools.NAME", "A capability with its side-effect class and policy.");

/* ---- the file ---- */

static const struct option file_options[] = {
    {"onced", OPTION_INTEGER, .required = true, .min = 1, .max = 1, .text = "Version of this format."},
    {"server", OPTION_SECTION, .section = &config_server_section, .at = AT(config, server),
     .text = "Where and how onced listens. Changes need a restart."},
    {"ledger", OPTION_SECTION, .section = &config_ledger_section, .at = AT(config, ledger),
     .text = "Where operations are recorded. Changes need a restart."},
    {"mcp", OPTION_SECTION, .section = &config_mcp_section, .at = AT(config, mcp),
     .text = "The MCP door: `/mcp` and `onced mcp`."},
    {"notify", OPTION_SECTION, .section = &config_notify_section, .computed = "nobody is told",
     .at = AT(config, notify), .text = "Who is told when something waits for people."},
    {"relay", OPTION_SECTION, .section = &config_relay_section, .computed = "there is none", .at = AT(config, relay),
     .text = "Rows of an application's outbox table become operations: `onced relay`."},
    {"principals", OPTION_MAP, .section = &config_principal_section, .computed = "every principal may use every tool",
     .text = "Per principal: the tools that it may see and call."},
    {"budgets", OPTION_MAP, .section = &config_budget_section, .computed = "none",
     .text = "Limits on sums and counts by name."},
    {"inbox", OPTION_MAP, .section = &config_inbox_section, .computed = "none",
     .text = "Where providers tell of their own accord (webhooks), by name: `POST /v1/inbox/NAME`."},
    {"providers", OPTION_MAP, .section = &config_provider_section, .text = "External systems by name."},
    {"tools", OPTION_MAP, .section = &config_tool_section, .text = "Tools by name."},
};
const struct option_section config_file = SECTION(file_options, "the file", "The top level.");
