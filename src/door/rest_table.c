/* The routes, each in one place: who may, what runs, and what openapi.json says about it. */
#include "door/links.h"
#include "door/mcp_http.h"
#include "door/mcp_parts.h"
#include "door/rest.h"

#define STATES_TEXT                                                                                                    \
    "{\"type\":\"string\",\"description\":\"one or more states, separated by commas; the parameter may be repeated\"}"
#define TEXT    "{\"type\":\"string\"}"
#define CURSOR  "{\"type\":\"string\",\"description\":\"`next` of the former page\"}"
#define LIMIT   "{\"type\":\"integer\",\"minimum\":1,\"maximum\":500,\"default\":50}"
#define WAIT_MS "{\"type\":\"integer\",\"minimum\":0,\"maximum\":120000,\"default\":0}"

static const struct route_parameter operation_query[] = {
    {"wait", WAIT_MS, "Milliseconds to wait until the operation is terminal or needs an operator."},
    {NULL, NULL, NULL}};

static const struct route_parameter list_query[] = {{"tool", TEXT, "Only this tool."},
                                                    {"status", STATES_TEXT, "Only these states."},
                                                    {"reason", TEXT, "Only this reason: `awaiting_approval`."},
                                                    {"run_id", TEXT, "Only this run."},
                                                    {"principal", TEXT, "Only calls of this principal."},
                                                    {"limit", LIMIT, "Operations per page."},
                                                    {"cursor", CURSOR, "Where to go on."},
                                                    {NULL, NULL, NULL}};

static const struct route_parameter page_query[] = {
    {"limit", LIMIT, "Operations per page."}, {"cursor", CURSOR, "Where to go on."}, {NULL, NULL, NULL}};

static const struct route_parameter incident_query[] = {
    {"open", "{\"type\":\"boolean\",\"default\":false}", "Only those that nobody has acknowledged."},
    {"limit", LIMIT, "Incidents per page."},
    {"cursor", CURSOR, "Where to go on."},
    {NULL, NULL, NULL}};

static const struct route_parameter entity_query[] = {
    {"type", TEXT, "Only this type."},
    {"all", "{\"type\":\"boolean\",\"default\":false}", "Also those that nobody holds."},
    {"limit", LIMIT, "Entities per page."},
    {"cursor", CURSOR, "Where to go on."},
    {NULL, NULL, NULL}};

static const struct route_parameter inbox_query[] = {
    {"status", "{\"type\":\"string\",\"enum\":[\"waiting\",\"applied\",\"ignored\"]}", "Only these."},
    {"source", TEXT, "Only of this source."},
    {"operation", TEXT, "Only what was applied to this operation."},
    {"forward", "{\"type\":\"string\",\"enum\":[\"none\",\"due\",\"delivered\",\"undelivered\"]}",
     "Only those whose way on to the application has come so far."},
    {"limit", LIMIT, "Events per page."},
    {"cursor", CURSOR, "Where to go on."},
    {NULL, NULL, NULL}};

const struct route rest_routes[] = {
    {METHOD_POST, "/v1/calls", MAY_CALL, rest_call, "call", "Calls a tool, at most once per intent.", NULL, "Call",
     false, "CallAnswer", "200 201 202",
     "key_missing key_invalid no_such_tool in_doubt entity_busy guard window budget result_not_shared result_expired "
     "repeat_refused key_reused "
     "invalid_arguments"},
    {METHOD_GET, "/v1/operations", MAY_READ, rest_operations, "listOperations", "Lists operations, newest first.",
     list_query, NULL, false, "OperationList", "200", ""},
    {METHOD_GET, "/v1/operations/{id}", MAY_READ, rest_operation, "getOperation",
     "One operation; with `wait` a long poll.", operation_query, NULL, false, "OperationOrTombstone", "200 202",
     "not_found"},
    {METHOD_GET, "/v1/operations/{id}/events", MAY_READ, rest_events, "getEvents", "The life of an operation.", NULL,
     NULL, false, "EventList", "200", "not_found"},
    {METHOD_GET, "/v1/operations/{id}/attempts", MAY_READ, rest_attempts, "getAttempts",
     "The requests on the wire for an operation.", NULL, NULL, false, "AttemptList", "200", "not_found"},
    {METHOD_POST, "/v1/operations/{id}/resolve", MAY_OPERATE, rest_resolve, "resolveOperation",
     "States what really happened.", NULL, "Resolve", false, "Operation", "200 202",
     "not_found stale_version not_possible"},
    {METHOD_POST, "/v1/operations/{id}/retry", MAY_OPERATE, rest_retry, "retryOperation", "Has it tried again now.",
     NULL, "Decision", true, "Operation", "200 202", "not_found stale_version not_possible"},
    {METHOD_POST, "/v1/operations/{id}/cancel", MAY_CALL, rest_cancel, "cancelOperation",
     "Cancels what has not been sent: the owner or an operator.", NULL, "Decision", true, "Operation", "200 202",
     "not_found stale_version not_possible"},
    {METHOD_POST, "/v1/operations/{id}/compensate", MAY_CALL, rest_compensate, "compensateOperation",
     "Undoes what it did, by a playbook of its tool; once, however often it is asked for. The owner or an operator.",
     NULL, "Compensate", false, "Operation", "200 202", "not_found stale_version not_possible result_expired"},
    {METHOD_GET, "/v1/operations/{id}/approval", MAY_DECIDE, rest_approval, "getApproval",
     "What an approver looks at: arguments, the request with secrets masked, earlier operations under the key.", NULL,
     NULL, false, "ApprovalView", "200", "not_found"},
    {METHOD_POST, "/v1/operations/{id}/approve", MAY_DECIDE, rest_approve, "approveOperation",
     "Agrees; a repeated or contradictory decision is answered with the first one.", NULL, "Approval", true,
     "Operation", "200 202", "not_found stale_version not_possible"},
    {METHOD_POST, "/v1/operations/{id}/deny", MAY_DECIDE, rest_deny, "denyOperation",
     "Refuses, for good; a repeated or contradictory decision is answered with the first one.", NULL, "Approval", false,
     "Operation", "200 202", "not_found stale_version not_possible"},
    {METHOD_POST, "/v1/guard/{tool}/begin", MAY_CALL, rest_guard_begin, "guardBegin",
     "Guard mode: whether the caller is to perform the effect itself, now.", NULL, "GuardBegin", false, "Guard",
     "200 201 202",
     "key_missing key_invalid no_such_tool in_doubt entity_busy guard window budget result_not_shared result_expired "
     "repeat_refused key_reused "
     "invalid_arguments not_possible"},
    {METHOD_POST, "/v1/guard/{tool}/heartbeat", MAY_CALL, rest_guard_heartbeat, "guardHeartbeat",
     "Goes on: the lease is renewed.", NULL, "GuardHeartbeat", false, "Guard", "200 201 202", "not_found not_possible"},
    {METHOD_POST, "/v1/guard/{tool}/complete", MAY_CALL, rest_guard_complete, "guardComplete",
     "The effect happened; also when the lease has ended meanwhile.", NULL, "GuardComplete", false, "Guard", "200 202",
     "not_found"},
    {METHOD_POST, "/v1/guard/{tool}/fail", MAY_CALL, rest_guard_fail, "guardFail",
     "It failed: whether it is proven that nothing happened must be said.", NULL, "GuardFail", false, "Guard",
     "200 202", "not_found"},
    {METHOD_POST, "/v1/operations/{id}/links", MAY_OPERATE, rest_links, "makeLinks",
     "One-time links by which one person approves or denies.", NULL, "NewLinks", false, "Links", "200",
     "not_found not_possible"},
    {METHOD_GET, "/v1/tools", MAY_READ, rest_tools, "listTools", "The tools with their schemas and policies.", NULL,
     NULL, false, "ToolList", "200", ""},
    {METHOD_GET, "/v1/tools/{tool}", MAY_READ, rest_tool_by_name, "getTool", "One tool.", NULL, NULL, false, "Tool",
     "200", "no_such_tool"},
    {METHOD_GET, "/v1/tools/{tool}/operations/{key}", MAY_READ, rest_operation_by_key, "getOperationByKey",
     "Status by idempotency key: the version that answers for it.", NULL, NULL, false, "OperationOrTombstone",
     "200 202", "not_found"},
    {METHOD_GET, "/v1/runs/{run_id}", MAY_READ, rest_run, "getRun", "Every operation of a run, oldest first.",
     page_query, NULL, false, "Run", "200", ""},
    {METHOD_GET, "/v1/incidents", MAY_OPERATE, rest_incidents, "listIncidents", "Incidents, newest first.",
     incident_query, NULL, false, "IncidentList", "200", ""},
    {METHOD_POST, "/v1/incidents/{id}/acknowledge", MAY_OPERATE, rest_acknowledge, "acknowledgeIncident",
     "Somebody has taken note; repeated: the first acknowledgement.", NULL, NULL, false, "Incident", "200",
     "not_found"},
    {METHOD_GET, "/v1/entities", MAY_OPERATE, rest_entities, "listEntities",
     "What operations hold for themselves, by type and id.", entity_query, NULL, false, "EntityList", "200", ""},
    {METHOD_POST, "/v1/entities/{type}/{id}/release", MAY_OPERATE, rest_entity_release, "releaseEntity",
     "Takes an entity from the operation that holds it, with a reason, and lets the next one in.", NULL,
     "EntityRelease", false, "ReleasedEntity", "200", "not_found stale_version"},
    {METHOD_GET, "/v1/budgets", MAY_OPERATE, rest_budgets, "listBudgets", "How much of each budget is used.", NULL,
     NULL, false, "BudgetList", "200", ""},
    {METHOD_POST, "/v1/inbox/{source}", MAY_ANYBODY, rest_inbox_receive, "receiveEvent",
     "A provider's event (webhook), signed as the source's section of the registry says: recorded before it is "
     "answered.",
     NULL, "InboundEvent", false, "InboundReceipt", "200", "bad_signature not_found"},
    {METHOD_GET, "/v1/inbox", MAY_OPERATE, rest_inbox, "listInbox", "Events of providers, newest first.", inbox_query,
     NULL, false, "InboxList", "200", ""},
    {METHOD_GET, "/v1/inbox/{id}", MAY_OPERATE, rest_inbox_event, "getInboundEvent", "One event with its body.", NULL,
     NULL, false, "InboxEntry", "200", "not_found"},
    {METHOD_POST, "/v1/inbox/{id}/forward", MAY_OPERATE, rest_inbox_forward, "forwardInboundEvent",
     "Sends an undelivered event to the application once more, under the same webhook-id.", NULL, NULL, false,
     "InboxEntry", "202", "not_found not_possible"},
    {METHOD_GET, "/v1/inbox-counts", MAY_OPERATE, rest_inbox_counts, "countInbox",
     "How many events came, again and again, and what became of them.", NULL, NULL, false, "InboxCounts", "200", ""},
    {METHOD_GET, "/v1/tokens", MAY_ADMIN, rest_tokens, "listTokens",
     "The tokens of this tenant, without their secrets.", NULL, NULL, false, "TokenList", "200", ""},
    {METHOD_POST, "/v1/tokens", MAY_ADMIN, rest_token_add, "addToken",
     "Makes a token for this tenant; its secret is shown this once.", NULL, "NewToken", false, "IssuedToken", "201",
     ""},
    {METHOD_DELETE, "/v1/tokens/{id}", MAY_ADMIN, rest_token_revoke, "revokeToken", "Revokes a token of this tenant.",
     NULL, NULL, false, "Token", "200", "not_found"},
    {METHOD_GET, "/v1/stats", MAY_OPERATE, rest_stats, "getStats", "Figures of ledger and engine.", NULL, NULL, false,
     "Stats", "200", ""},
    {METHOD_GET, "/healthz", MAY_ANYBODY, rest_health, "health", "The process lives.", NULL, NULL, false, "Health",
     "200", ""},
    {METHOD_GET, "/readyz", MAY_ANYBODY, rest_ready, "ready", "Ready for calls, or the reasons why not.", NULL, NULL,
     false, "Ready", "200 503", ""},
    {METHOD_GET, "/openapi.json", MAY_ANYBODY, rest_openapi, "openapi", "This document.", NULL, NULL, false, "OpenAPI",
     "200", ""},
};

const size_t rest_route_count = sizeof rest_routes / sizeof *rest_routes;

const struct route rest_mcp_routes[] = {
    {.method = METHOD_POST, .path = "/mcp", .roles = MAY_CALL, .handle = mcp_http_handle, .body = "JSON-RPC message"},
    {.method = METHOD_GET, .path = "/mcp", .roles = MAY_CALL, .handle = mcp_http_handle},
    {.method = METHOD_DELETE, .path = "/mcp", .roles = MAY_CALL, .handle = mcp_http_handle},
};

/* What is no JSON. Pages are reached with nothing but the link itself. */
const struct route rest_text_routes[] = {
    {.method = METHOD_GET, .path = METRICS_PATH, .roles = MAY_OPERATE, .handle = rest_metrics},
    {.method = METHOD_GET, .path = LINKS_PATH "{token}", .roles = MAY_ANYBODY, .handle = rest_link_page},
    {.method = METHOD_POST, .path = LINKS_PATH "{token}", .roles = MAY_ANYBODY, .handle = rest_link_used},
};

const size_t rest_text_route_count = sizeof rest_text_routes / sizeof *rest_text_routes;

const size_t rest_mcp_route_count = sizeof rest_mcp_routes / sizeof *rest_mcp_routes;
