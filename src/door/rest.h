/* The REST API (docs/http-api.md): one table of routes, from which requests are dispatched and openapi.json is made. */
#ifndef DOOR_REST_H
#define DOOR_REST_H

#include "door/exchange.h"
#include "door/shape.h"

/* Finds the route, the caller, and whether the one may use the other; then hands over. */
void rest_handle(struct exchange *exchange);

/* ---- the table ---- */

/* Bits of roles. */
#define MAY_AGENT    (1u << ROLE_AGENT)
#define MAY_APPROVER (1u << ROLE_APPROVER)
#define MAY_OPERATOR (1u << ROLE_OPERATOR)
#define MAY_ADMIN    (1u << ROLE_ADMIN)
#define MAY_READ     (MAY_AGENT | MAY_APPROVER | MAY_OPERATOR | MAY_ADMIN)
#define MAY_CALL     (MAY_AGENT | MAY_OPERATOR | MAY_ADMIN)
#define MAY_OPERATE  (MAY_OPERATOR | MAY_ADMIN)
#define MAY_DECIDE   (MAY_APPROVER | MAY_OPERATOR | MAY_ADMIN)
#define MAY_ANYBODY  0u /* no token wanted */

struct route_parameter {
    const char *name, *schema, *description; /* schema: JSON text */
};

struct route {
    enum http_method method;
    const char *path; /* "{name}" stands for one segment */
    unsigned roles;
    void (*handle)(struct exchange *exchange);
    const char *id, *summary;            /* of openapi.json */
    const struct route_parameter *query; /* ends with a NULL name; NULL: none */
    const char *body;                    /* component schema of the body, NULL = none */
    bool body_optional;
    const char *answer;   /* component schema of success */
    const char *statuses; /* successes: "200 201 202" */
    const char *problems; /* names of problem types beyond those that any route may have */
};

extern const struct route rest_routes[];
extern const size_t rest_route_count;
/* Those of /mcp, which openapi.json does not describe; they are there when the door has an MCP door behind it. */
extern const struct route rest_mcp_routes[];
extern const size_t rest_mcp_route_count;
/* Those of approval links and of figures for Prometheus, which openapi.json does not describe either. */
#define METRICS_PATH "/metrics"
extern const struct route rest_text_routes[];
extern const size_t rest_text_route_count;

/* ---- for the handlers ---- */

bool rest_privileged(const struct exchange *exchange); /* operator or admin */
void rest_problem(struct exchange *exchange, const struct problem_document *problem);
void rest_refuse(struct exchange *exchange, enum problem_type type, const char *detail);
/* The problem document for what the ledger said; not_found words ERR_NOT_FOUND. */
void rest_ledger_problem(struct exchange *exchange, const struct ledger_request *request, const char *not_found);
/* Finds a parameter of the query; absent when not given. */
struct str rest_query(const struct exchange *exchange, const char *name);
/* A whole number in the query; fallback when absent. false: answered with a problem. */
bool rest_query_int(struct exchange *exchange, const char *name, int64_t min, int64_t max, int64_t fallback,
                    int64_t *out);
/* How an operation is to be seen by this caller. */
struct shape_view rest_view(struct exchange *exchange, const struct operation *op, const struct tool *tool);
void rest_no_tool(struct exchange *exchange, const char *name); /* 404, with a suggestion */
const struct tool *rest_tool(struct exchange *exchange, const char *name);
/* Whether the registry lets the caller's principal use the tool; else the exchange is refused (403). */
bool rest_may_use(struct exchange *exchange, const struct tool *tool);
/* Answers with an operation: 200, 201 or 202 with the headers that go with it. */
void rest_send_operation(struct exchange *exchange, const struct operation *op, const struct tool *tool,
                         const struct shape_view *view);
/* Reads the body as JSON members. false: answered with a problem. An empty body is an empty object when the route says
 * so. */
struct body_member;
bool rest_body(struct exchange *exchange, const struct body_member *members, size_t count);

/* Whether the first place of the path is an operation id; what is none cannot name anything: answered with 404. */
bool rest_names_operation(struct exchange *exchange);
/* `limit` and `cursor` of a list. false: answered with a problem. */
bool rest_page(struct exchange *exchange, bool (*valid)(const char *id), size_t *limit, const char **cursor);
/* Writes "operations":[…]; returns the cursor of the next page, NULL at the end. The page ends early when it gets
 * large. */
const char *rest_write_operations(struct exchange *exchange, const struct ledger_list *list);
void rest_write_next(struct exchange *exchange, const char *next); /* ,"next":… */

/* rest_compensate.c: "playbooks":[…] of a tool. */
void rest_write_playbooks(struct json_out *out, const struct tool *tool);

/* Replies of the engine to calls, waits and decisions. */
void rest_reply(struct exchange *exchange, const struct engine_reply *reply, bool own_call);

/* A call that begins: what its headers say, unless a fact came twice; then the exchange is refused, and false. */
struct call_headers; /* door/call_body.h */
bool rest_call_headers(struct exchange *exchange, struct call_headers *given);
/* The call as it was read, to the engine; refused when the caller may not use the tool. reply gets the exchange. */
void rest_call_begin(struct exchange *exchange, struct engine_call *call, engine_reply_fn *reply);

/* rest_guard.c */
void rest_guard_begin(struct exchange *exchange);
void rest_guard_heartbeat(struct exchange *exchange);
void rest_guard_complete(struct exchange *exchange);
void rest_guard_fail(struct exchange *exchange);

/* rest_calls.c, rest_approvals.c, rest_operations.c, rest_run.c, rest_system.c, rest_tokens.c */
void rest_call(struct exchange *exchange);
void rest_operation(struct exchange *exchange);
void rest_operation_by_key(struct exchange *exchange);
void rest_operations(struct exchange *exchange);
void rest_events(struct exchange *exchange);
void rest_attempts(struct exchange *exchange);
void rest_resolve(struct exchange *exchange);
void rest_retry(struct exchange *exchange);
void rest_cancel(struct exchange *exchange);
void rest_approval(struct exchange *exchange);
void rest_approve(struct exchange *exchange);
void rest_deny(struct exchange *exchange);
void rest_compensate(struct exchange *exchange);
void rest_run(struct exchange *exchange);
void rest_incidents(struct exchange *exchange);
void rest_acknowledge(struct exchange *exchange);
void rest_entities(struct exchange *exchange); /* rest_entities.c */
void rest_entity_release(struct exchange *exchange);
void rest_budgets(struct exchange *exchange);
void rest_tools(struct exchange *exchange);
void rest_tool_by_name(struct exchange *exchange);
void rest_tokens(struct exchange *exchange);
void rest_token_add(struct exchange *exchange);
void rest_token_revoke(struct exchange *exchange);
void rest_inbox_receive(struct exchange *exchange);
void rest_inbox(struct exchange *exchange);
void rest_inbox_event(struct exchange *exchange);
void rest_inbox_forward(struct exchange *exchange);
void rest_inbox_counts(struct exchange *exchange);
void rest_metrics(struct exchange *exchange); /* rest_metrics.c */
void rest_stats(struct exchange *exchange);
void rest_health(struct exchange *exchange);
void rest_ready(struct exchange *exchange);
void rest_openapi(struct exchange *exchange);

#endif
