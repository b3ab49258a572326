/* What the files of the MCP adapter read of the compiled registry sections (adapter/mcp.h makes them). Not for others.
 * Both are immutable and counted: links and attempts outlive a reload. */
#ifndef ADAPTER_MCP_SECTION_H
#define ADAPTER_MCP_SECTION_H

#include "adapter/http_parts.h"
#include "adapter/mcp.h"
#include "adapter/secrets.h"

/* What an answer that a server calls an error (isError) says about the effect. */
enum mcp_errors {
    MCP_ERRORS_UNKNOWN,  /* nothing: it may have happened (the default: MCP promises no more) */
    MCP_ERRORS_NO_EFFECT /* the server's errors are proof that nothing happened */
};

struct mcp_provider {
    unsigned refs;
    /* either command or url */
    char **command;              /* argv, ends with NULL; NULL = url */
    char **env;                  /* "NAME=value", ends with NULL; all that the process gets (PATH and HOME are in it) */
    char *cwd;                   /* NULL = ours */
    char *url, *url_shown;       /* shown: for messages, without path where that holds a secret, and without query */
    size_t origin_bytes;         /* of url: scheme, host, port */
    struct http_headers headers; /* values without places */
    struct curl_slist *header_lines; /* the same and what onced says, as libcurl takes them */
    char *tls_ca;                    /* NULL = the system's certificates */
    bool tls_verify;
    char *version; /* the one revision to speak; NULL = auto */
    bool per_client, forward;
    enum mcp_errors errors;
    int64_t start_timeout_ms; /* until a started server has answered the handshake */
    int64_t timeout_ms, connect_timeout_ms;
    unsigned connections;
    size_t answer_bytes_max; /* of one message from the server; at most MCP_MESSAGE_BYTES_MAX */
    char *prefix;            /* of imported names, never NULL */
    char *key_argument;      /* for those of its tools that have an argument of this name; NULL = none */
    bool key_meta;           /* the key goes into _meta */
    struct secrets secrets;  /* masked in what the server writes to stderr */
    struct http_statuses no_effect, not_processed; /* of answers that are no JSON-RPC message */
    struct str identity;                           /* owned */
};

struct mcp_provider *mcp_provider_ref(struct mcp_provider *provider); /* returns it */
void mcp_provider_unref(struct mcp_provider *provider);               /* NULL is fine; mcp_provider_free is the same */

struct mcp_lookup {
    char *tool;             /* the server's name for it */
    struct http_node *node; /* arguments with places; NULL = the call's own */
    struct jq_program *jq;  /* instead of node */
    struct jq_program *found, *absent, *pending, *failed;
    struct http_equalities verify;
    struct http_extract external_id;
    int64_t timeout_ms;
};

struct mcp_tool {
    unsigned refs;
    struct mcp_provider *provider; /* a reference */
    char *remote_name;
    char *key_argument; /* NULL = none */
    bool write;
    int64_t timeout_ms;
    /* answers */
    enum mcp_errors errors;
    struct jq_program *no_effect_when, *not_processed_when, *noop_when, *error_when, *success_when; /* NULL = none */
    struct http_equalities verify;
    struct http_extract external_id;
    struct mcp_lookup *lookup; /* NULL = none */
    char **redact;             /* JSON Pointers */
    size_t redact_count;
};

struct mcp_tool *mcp_tool_ref(struct mcp_tool *tool);
void mcp_tool_unref(struct mcp_tool *tool);

#endif
