/* What the files of the MCP adapter read of the compiled registry sections (adapter/mcp.h makes them). Not for others.
 * Both are immutable and counted: links and attempts outlive a reload. */
#ifndef ADAPTER_MCP_SECTION_H
#define ADAPTER_MCP_SECTION_H

#include "adapter/http_parts.h"
#include "adapter/mcp.h"

/* What an answer that a server calls an error (isError) says about the effect. */
enum mcp_errors {
    MCP_ERRORS_UNKNOWN,  /* nothing: it may have happened (the default: MCP promises no more) */
    MCP_ERRORS_NO_EFFECT /* the server's errors are proof that nothing happened */
};

struct mcp_provider {
    unsigned refs;
    /* stdio: command is set; HTTP: url is set */
    char **command; /* argv, NULL-terminated */
    char **env;     /* "NAME=value", NULL-terminated: all that the child gets */
    char *cwd;      /* NULL = ours */
    char *url;
    size_t origin_bytes;             /* of url: scheme, host, port */
    struct http_headers headers;     /* values without places */
    struct curl_slist *header_lines; /* the same, as libcurl takes them */
    char *ca;                        /* NULL = the system's certificates */
    bool verify;                     /* check them */
    enum mcp_era era;                /* MCP_ERA_ANY: the modern era is probed first */
    char *version;                   /* the one revision to speak; NULL = what both can */
    bool per_client, forward;
    enum mcp_errors errors;
    int64_t start_timeout_ms; /* until a started server has answered the handshake */
    int64_t timeout_ms, connect_timeout_ms;
    unsigned connections;
    size_t answer_bytes_max;                       /* of one message from the server */
    char *prefix;                                  /* of imported names, "" = none */
    char *key_argument;                            /* for tools that have an argument of this name; NULL = none */
    bool key_meta;                                 /* the key goes into _meta */
    struct http_statuses no_effect, not_processed; /* of answers that are no JSON-RPC message */
    char *identity;
};

struct mcp_provider *mcp_provider_ref(struct mcp_provider *provider);
void mcp_provider_unref(struct mcp_provider *provider); /* NULL is fine */

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
