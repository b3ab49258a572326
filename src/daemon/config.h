/* The registry file (docs/registry.md) read into what the program works with: server and ledger settings, and the
 * registry of providers and tools. All problems of a file are found in one pass, each with its line and column (design
 * 13). */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/log.h"
#include "core/registry.h"
#include "daemon/config_report.h"
#include "door/jwt.h"
#include "door/mcp.h"
#include "door/notify.h"
#include "relay/relay.h"

#include <stdio.h>

enum config_auth { CONFIG_AUTH_NONE, CONFIG_AUTH_TOKENS };

struct config_server {
    const char *host; /* of `listen`: an IP address without brackets, or "localhost" */
    unsigned port;    /* 0: the system picks a free one */
    bool loopback;    /* host is a loopback address */
    enum config_auth auth;
    bool insecure_listen;                  /* plain HTTP on a public address was asked for */
    const char *tls_certificate, *tls_key; /* paths as the program can open them, or both NULL */
    unsigned connections_max;
    size_t body_bytes_max;
    unsigned in_flight_max;
    int64_t stop_timeout_ms;
    enum log_level log;
    struct config_links {
        const char *base; /* without a final slash; NULL: no approval links */
        int64_t expires_ms;
    } links;
    const struct jwt_issuer *issuers; /* whose signed tokens are taken */
    size_t issuer_count;
    struct digest jwt_digest; /* of what the file says of them */
};

struct config_ledger {
    const char *path, *url; /* as the file has them, or NULL */
    const char *where;      /* what ledger_open takes: references were expanded, a relative path resolved against the
                               registry file's folder */
    const char *shown;      /* the same for people, without a password */
    int64_t lease_ms;
};

struct config_notify {
    struct notify_settings settings; /* endpoint.url NULL: the file has no `notify` */
    const char *secret;              /* as the file has it: a reference */
    enum notify_kind kinds[NOTIFY_KIND_COUNT];
    unsigned kind_count;
};

/* What `onced relay` works with. settings.database and .token are NULL where their references do not hold. */
struct config_relay {
    const char *database, *token; /* as the file has them; database NULL: the file has no `relay` */
    const char *const *gateways;  /* the same */
    struct relay_settings settings;
};

/* Owns all its texts; independent of the registry that was loaded with it. */
struct config {
    struct arena arena;
    const char *path; /* of the registry file, as given */
    struct config_server server;
    struct config_ledger ledger;
    struct mcp_settings mcp;
    struct config_notify notify;
    struct config_relay relay;
    bool has_mcp_servers;             /* a provider is an MCP server */
    bool imports_tools;               /* … and tools are taken over from its list */
    int64_t mcp_start_timeout_ms_max; /* the longest start_timeout of them; 0 = there are none */
};
void config_free(struct config *config); /* NULL is fine */

/* Sections that take effect only with a restart (server, ledger) are the same in both, apart from the log level. */
bool config_same_process(const struct config *a, const struct config *b);

/* Reads and compiles a registry file. ERR_NONE: *config (config_free) and *registry (registry_unref) are new, report
 * may hold warnings. ERR_INVALID, ERR_LIMIT, ERR_IO, ERR_NOT_FOUND: report holds the reasons, outputs are untouched.
 * registry and config may be NULL when only the report is wanted. Reads the environment and files that ${env:…} and
 * ${file:…} name. */
enum err_code config_load(const char *path, struct config **config, struct registry **registry,
                          struct config_report *report);

/* The same with what MCP servers list (mcp_hub_catalog): their tools are imported and completed by it. Without a
 * catalogue there are only the tools that the file names. What a server lists is never an error: a tool that cannot be
 * used is left out with a warning, also when that is the file's doing. So load a file without a catalogue first. The
 * catalogue is copied. */
enum err_code config_load_with(const char *path, const struct json *catalog, struct config **config,
                               struct registry **registry, struct config_report *report);
enum err_code config_load_text_with(const char *path, struct str text, const struct json *catalog,
                                    struct config **config, struct registry **registry, struct config_report *report);

/* config_load for text in memory; path names it in messages and is what relative paths are resolved against. */
enum err_code config_load_text(const char *path, struct str text, struct config **config, struct registry **registry,
                               struct config_report *report);

/* `onced check`: loads the file, with what its MCP servers list unless catalog is NULL, and writes what was found, or a
 * line that all is well, to out; as JSON when json is set:
 * {"file", "ok", "errors", "warnings", "tools", "policy_version"?, "problems": [{"line", "column", "pointer",
 * "severity", "message"}]}. Returns 0 = fine (warnings allowed), 1 = errors found, 2 = the file cannot be read. */
int config_check(const char *path, const struct json *catalog, bool json, FILE *out);

#endif
