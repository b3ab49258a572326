/* What the files of the HTTP adapter share: compiled configuration, built requests, received answers. The MCP adapter
 * takes texts, places, statuses and expectations from here. Not for others.
 *
 *   provider + tool sections ──http_provider.c, http_tool.c──▶ struct http_tool        once, at load
 *   adapter_call ──http_request.c──▶ struct http_message ──http.c, libcurl──▶ wire     per request
 *   wire ──http.c──▶ struct http_reply ──http_answer.c, http_lookup.c──▶ adapter_answer
 */
#ifndef ADAPTER_HTTP_PARTS_H
#define ADAPTER_HTTP_PARTS_H

#include "adapter/http.h"
#include "adapter/jq.h"
#include "adapter/section.h"

#include <curl/curl.h>

#define HTTP_URL_BYTES_MAX      (16 * 1024)
#define HTTP_BODY_BYTES_MAX     (4 * 1024 * 1024)  /* of a request */
#define HTTP_HEADER_BYTES_MAX   (8 * 1024)         /* of one request header's value */
#define HTTP_ANSWER_HEAD_MAX    (64 * 1024)        /* status line and headers of an answer together */
#define HTTP_ANSWER_BYTES_MAX   (64 * 1024 * 1024) /* upper end of answer_bytes_max */
#define HTTP_ERROR_BYTES_MAX    (32 * 1024)        /* a larger error object of the provider's is left out */
#define HTTP_RETRY_AFTER_MS_MAX (INT64_C(24) * 60 * 60 * 1000)

/* ---- texts with places or secrets ---- */

/* A text of the request side. Either fixed (value; shown is the same with secrets masked) or with places (template). A
 * place may be optional in bodies: "{name?}". */
struct http_text {
    char *value, *shown;       /* NULL when template is used */
    struct template *template; /* NULL when value is used */
    bool single;               /* exactly one place: keeps its type, may be left out */
    bool optional;             /* "{name?}" */
};

enum err_code http_text_new(const char *text, bool optional_single, struct http_text *out, struct err *err);
void http_text_release(struct http_text *text);

/* Like http_secret_expand; *shown (heap) has "***" in place of each secret. */
enum err_code http_secret_expand_shown(const char *text, char **out, char **shown, bool *secret, struct err *err);

/* ---- provider ---- */

struct http_statuses {
    struct http_status *items;
    size_t count;
};

struct http_status {
    int status;
    char *code;              /* NULL = any; the provider's error code as text */
    struct jq_program *when; /* NULL = always */
};

struct http_header {
    char *name;
    struct http_text text;
};

struct http_headers {
    struct http_header *items;
    size_t count;
};

enum http_key_place { HTTP_KEY_NONE, HTTP_KEY_HEADER, HTTP_KEY_FIELD, HTTP_KEY_QUERY };

struct http_provider {
    unsigned refs;                   /* registry, tools, connection pool */
    bool closed;                     /* the registry let go of it: the pool may go once it is idle */
    char *base_url, *base_url_shown; /* no "/" at the end */
    size_t origin_bytes;             /* of base_url: scheme, host, port */
    struct http_headers headers;
    struct { /* options of a connection, the same for all requests */
        int64_t timeout_ms, connect_timeout_ms;
        unsigned connections;
        bool keepalive, verify;
        char *ca; /* NULL = the system's */
    } wire;
    size_t answer_bytes_max;
    enum http_key_place key_place;
    char *key_name;
    bool key_quoted;
    struct http_statuses in_use, mismatch, no_effect, not_processed;
    char *retry_after_header, *request_id_header; /* NULL = none */
    char *error_message, *error_code;             /* JSON Pointers */
};

void http_provider_ref(struct http_provider *provider);
void http_provider_unref(struct http_provider *provider); /* NULL is fine */

/* Bytes of scheme, host and port. */
size_t http_origin_bytes(const char *url);
/* What is wrong with a URL, or NULL; *plain: http to another machine. */
const char *http_url_fault(const char *url, bool may_have_query, bool *plain);
/* Members "retry_budget" and "breaker", "tls" of a provider. */
void http_limits_read(struct section *parent, struct provider *core);
void http_tls_read(struct section *parent, char **ca, bool *verify);

/* Compiles a list of statuses; when absent the fallback list (ends with 0; NULL = empty). */
void http_statuses_read(struct section *section, const char *name, const int *fallback, struct http_statuses *out);
void http_statuses_release(struct http_statuses *statuses);
/* Names and texts of request headers. key_header (may be NULL) and headers that belong to the wire are refused. */
void http_headers_read(struct section *section, const char *name, const char *key_header, struct http_headers *out);
/* The same for query parameters, whose names are free. */
void http_query_read(struct section *section, const char *name, const char *key_parameter, struct http_headers *out);
void http_headers_release(struct http_headers *headers);

/* ---- tool ---- */

/* A body as configured: JSON with places in its texts. */
struct http_node {
    enum json_type type;
    struct json literal;   /* null, boolean, number */
    struct http_text text; /* string */
    uint32_t count;
    struct http_node *items; /* array items, or member values */
    char **names;            /* members */
};

enum http_body { HTTP_BODY_NONE, HTTP_BODY_ARGUMENTS, HTTP_BODY_JSON, HTTP_BODY_FORM };

struct http_request {
    char *method;
    bool has_body; /* an empty one too; else neither length nor type is sent */
    struct http_text path;
    struct jq_program *path_jq;         /* instead of path */
    struct http_headers query, headers; /* query: names and texts likewise */
    enum http_body body;
    struct http_node *node;
    struct jq_program *body_jq;
    bool indexed_arrays;                /* forms: a[0]= instead of a[]= */
    struct curl_slist *fixed;           /* header lines that are the same for every request */
    const struct http_header **dynamic; /* the provider's and ours that have places */
    size_t dynamic_count;
};

/* Which value of an answer must equal what. */
struct http_equality {
    const char *pointer;
    const struct json *literal; /* NULL when text or jq is used */
    struct http_text text;
    bool quoted;           /* "\"{x}\"": the text, also of a number */
    struct jq_program *jq; /* over the arguments; NULL when text is used */
};

struct http_equalities {
    struct arena arena; /* pointers and literals */
    struct http_equality *items;
    size_t count;
};

/* A value taken out of an answer. */
struct http_extract {
    char *pointer; /* NULL when jq is used or nothing is configured */
    struct jq_program *jq;
};

enum http_answer_body { HTTP_ANSWER_JSON, HTTP_ANSWER_ANY, HTTP_ANSWER_NONE };

struct http_response {
    struct http_statuses success, noop, accepted, refused, not_processed;
    bool success_default; /* 200-299 but 202 */
    enum http_answer_body body;
    bool insist_type;
    struct jq_program *success_when, *error_when;
    struct http_extract external_id, result;
};

struct http_lookup {
    struct http_request *request, *by_id; /* either may be NULL, not both */
    char *items;                          /* NULL: the answer is the object */
    struct http_equalities match, verify;
    char *next_cursor, *next_more, *next_last_id, *next_query, *next_url;
    int64_t pages_max;
    struct http_statuses absent_status;
    bool absent_stated; /* else it counts for single objects only: 404 for a list is a wrong path, not an empty list */
    struct jq_program *pending, *failed;
    struct http_extract external_id, result;
};

struct http_tool {
    unsigned refs;
    struct http_provider *provider; /* a reference */
    bool write;                     /* the tool's calls change something */
    int64_t timeout_ms;             /* of a whole attempt */
    char **redact;                  /* JSON Pointers */
    size_t redact_count;
    struct http_request *request;
    struct http_response response;
    struct http_equalities verify;
    struct http_lookup *lookup; /* NULL = none */
};

void http_tool_ref(struct http_tool *tool);
void http_tool_unref(struct http_tool *tool); /* NULL is fine */

/* http_request.c. NULL after reporting. Writes have POST by default and the arguments as body unless stated otherwise.
 */
enum http_use { HTTP_USE_READ, HTTP_USE_WRITE, HTTP_USE_LOOKUP };
struct http_request *http_request_new(const struct json *value, const char *pointer,
                                      const struct http_provider *provider, enum http_use use,
                                      struct problems *problems);
void http_request_free(struct http_request *request);

void http_node_read(struct section *section, const char *name, const struct json *value, struct http_node *out);
void http_node_release(struct http_node *node);
void http_equalities_read(struct section *section, const char *name, struct http_equalities *out);
void http_equalities_release(struct http_equalities *equalities);
void http_extract_read(struct section *section, const char *name, const char *fallback, struct http_extract *out);
void http_extract_release(struct http_extract *extract);
struct jq_program *http_jq_read(struct section *section, const char *name); /* NULL when absent or broken */

/* ---- one request and its answer ---- */

struct http_expected { /* an equality with its right side filled in */
    const char *pointer;
    const struct json *value;
};

/* http_fill.c. The values of a call, for what the registry file has places for. Made anew for each request. */
struct http_fill {
    struct arena *arena;          /* borrowed, as all but the values */
    const struct json *arguments; /* masked when shown */
    struct json values;           /* the arguments and the names with "$" */
    struct jq_places places;
    bool shown; /* for people: secrets masked */
    struct buf *scratch;
    struct err *err;
};

void http_fill_init(struct http_fill *fill, struct arena *arena, const struct adapter_call *call, struct buf *scratch,
                    struct err *err);
/* From now on for people: secrets and the arguments that redact points to are masked. */
void http_fill_mask(struct http_fill *fill, char *const *redact, size_t count);
/* All: ERR_INVALID names the argument. */
enum err_code http_fill_text(struct http_fill *fill, const struct http_text *text, enum template_escape escape,
                             struct buf *out);
/* *left_out: an optional place without a value. Objects have room for one more member. */
enum err_code http_fill_node(struct http_fill *fill, const struct http_node *node, struct json *out, bool *left_out);
enum err_code http_fill_equalities(struct http_fill *fill, const struct http_equalities *equalities,
                                   struct http_expected **out, size_t *count);

/* Fit for a traceparent header; NULL is not. */
bool http_trace_valid(const char *trace);

/* A request ready for the wire, and what the answer will be judged by: the call's arguments are gone by then. */
struct http_message {
    struct arena *arena; /* borrowed: texts below */
    const struct http_request *request;
    struct buf url, body; /* these and the next are reused between requests */
    struct buf scratch, value;
    struct curl_slist *headers; /* nodes in the arena, then the request's fixed ones */
    struct http_expected *match, *verify;
    size_t match_count, verify_count;
    enum attempt_kind kind;
    bool by_id;                  /* look-ups */
    const struct json *progress; /* look-ups: what the former page left, NULL for the first */
    const char *external_id;     /* look-ups by id, copied */
};

void http_message_init(struct http_message *message, struct arena *arena);
void http_message_release(struct http_message *message);

/* ERR_INVALID names the argument. */
enum err_code http_message_build(struct http_message *message, const struct http_tool *tool,
                                 const struct adapter_call *call, struct err *err);
/* The same for people: secrets and redacted arguments masked. */
enum err_code http_message_describe(const struct http_tool *tool, const struct adapter_call *call, struct json_out *out,
                                    struct err *err);

enum http_end {
    HTTP_END_COMPLETE,
    HTTP_END_TIMEOUT,
    HTTP_END_LOST,       /* connection failed or closed before the answer was whole */
    HTTP_END_UNREADABLE, /* not HTTP, or cut short after its head */
    HTTP_END_OVERSIZE    /* body over answer_bytes_max */
};

struct http_reply {
    bool sent; /* a request byte may have left */
    enum http_end end;
    int status; /* 0 = no status line */
    struct str body;
    const char *content_type, *retry_after, *request_id; /* NULL = not there */
    const char *detail;                                  /* the transport's words when it did not complete */
};

/* http_answer.c, http_lookup.c: pure but for jq. Texts of the answer are in arena or borrowed from reply and message.
 */
void http_judge(const struct http_tool *tool, const struct http_message *message, const struct http_reply *reply,
                struct arena *arena, int64_t now_ms, struct adapter_answer *answer);
void http_judge_lookup(const struct http_tool *tool, const struct http_message *message, const struct http_reply *reply,
                       struct arena *arena, struct adapter_answer *answer);

/* The first entry that the answer matches, or NULL; *broken is set when a condition could not be evaluated. body may be
 * NULL (not JSON). */
const struct http_status *http_statuses_match(const struct http_statuses *statuses, int status, struct str code,
                                              const struct json *body, struct err *broken);
/* The provider's error code as text; absent when there is none. */
struct str http_error_code(const struct http_provider *provider, const struct json *body);
/* NULL when all hold, else the pointer's expectation that does not; *got is what is there (NULL = nothing). */
const struct http_expected *http_mismatch(const struct http_expected *expected, size_t count, const struct json *value,
                                          const struct json **got);
const char *http_mismatch_text(struct arena *arena, const struct http_expected *expected, const struct json *got);
/* Takes a value out of an answer. *out is NULL when nothing is configured; ERR_INVALID when it is not there. */
enum err_code http_extract_run(const struct http_extract *extract, const struct json *value, struct arena *arena,
                               const struct json **out, struct err *err);
/* A string from bytes that need not be UTF-8: what is not becomes U+FFFD. */
void http_add_lossy(struct buf *out, struct str bytes);
/* As an id: text or number, not empty. NULL otherwise. */
const char *http_id_text(struct arena *arena, const struct json *value);
/* Not within the limits or not JSON: NULL. */
struct json *http_parse_answer(const struct http_provider *provider, struct arena *arena, struct str body,
                               struct err *err);

#endif
