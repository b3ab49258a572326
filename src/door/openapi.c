#include "door/openapi.h"

#include "core/operation.h"
#include "door/rest.h"

#include <string.h>

/* ---- schemas of bodies and answers ---- */

#define TIME_OR_NULL  "{\"type\":[\"string\",\"null\"],\"format\":\"date-time\"}"
#define TEXT_OR_NULL  "{\"type\":[\"string\",\"null\"]}"
#define INT_OR_NULL   "{\"type\":[\"integer\",\"null\"]}"
#define TEXT          "{\"type\":\"string\"}"
#define INT           "{\"type\":\"integer\"}"
#define BOOL          "{\"type\":\"boolean\"}"
#define COUNT         "{\"type\":\"integer\",\"minimum\":0}"
#define ID            "{\"type\":\"string\",\"pattern\":\"^op_[0-9A-HJKMNP-TV-Z]{26}$\"}"
#define ID_OR_NULL    "{\"type\":[\"string\",\"null\"],\"pattern\":\"^op_[0-9A-HJKMNP-TV-Z]{26}$\"}"
#define REF(name)     "{\"$ref\":\"#/components/schemas/" name "\"}"
#define LIST_OF(name) "{\"type\":\"array\",\"items\":" REF(name) "}"
#define CLOSED        "\"additionalProperties\":false"

static const char call_schema[] =
    "{\"type\":\"object\",\"required\":[\"tool\"]," CLOSED ",\"properties\":{"
    "\"tool\":{\"type\":\"string\",\"minLength\":1},"
    "\"arguments\":{\"type\":[\"object\",\"null\"]},"
    "\"idempotency_key\":{\"type\":[\"string\",\"null\"],\"description\":\"Given by the deterministic layer, never by "
    "the "
    "model.\"},"
    "\"run_id\":" TEXT_OR_NULL ",\"step_id\":" TEXT_OR_NULL ",\"session_id\":" TEXT_OR_NULL ",\"call_id\":" TEXT_OR_NULL
    ",\"workflow\":" TEXT_OR_NULL ",\"repeat_of\":" ID_OR_NULL ","
    "\"distinct_from\":{\"anyOf\":[" ID ",{\"type\":\"array\",\"maxItems\":8,\"items\":" ID "},{\"type\":\"null\"}]},"
    "\"override_reason\":" TEXT_OR_NULL ","
    "\"wait_ms\":{\"type\":[\"integer\",\"null\"],\"minimum\":0,\"maximum\":120000},"
    "\"not_before\":" TIME_OR_NULL ",\"dry_run\":{\"type\":[\"boolean\",\"null\"]}}}";

static const char resolve_schema[] =
    "{\"type\":\"object\",\"required\":[\"version\",\"happened\",\"note\"]," CLOSED ",\"properties\":{"
    "\"version\":{\"type\":\"integer\",\"minimum\":1},\"happened\":" BOOL
    ",\"note\":{\"type\":\"string\",\"minLength\":1},"
    "\"external_id\":" TEXT_OR_NULL ",\"result\":{},\"retry\":{\"type\":[\"boolean\",\"null\"]}}}";

static const char decision_schema[] =
    "{\"type\":\"object\"," CLOSED ",\"properties\":{\"version\":{\"type\":[\"integer\",\"null\"],\"minimum\":1},"
    "\"note\":" TEXT_OR_NULL "}}";

static const char compensate_schema[] =
    "{\"type\":\"object\",\"required\":[\"playbook\"]," CLOSED ",\"properties\":{"
    "\"playbook\":{\"type\":\"string\",\"minLength\":1,\"description\":\"One of its tool's.\"},"
    "\"version\":{\"type\":[\"integer\",\"null\"],\"minimum\":1},"
    "\"reason\":{\"type\":[\"string\",\"null\"],\"maxLength\":2000},"
    "\"wait_ms\":{\"type\":[\"integer\",\"null\"],\"minimum\":0,\"maximum\":120000},"
    "\"dry_run\":{\"type\":[\"boolean\",\"null\"]}}}";

static const char guard_begin_schema[] =
    "{\"type\":\"object\",\"properties\":{\"arguments\":{\"type\":\"object\"},"
    "\"executor\":{\"type\":\"string\",\"description\":\"a random text of this process: the same begin said again by "
    "it gets the same lease\"},"
    "\"idempotency_key\":{\"type\":\"string\"},\"run_id\":{\"type\":\"string\"},\"step_id\":{\"type\":\"string\"},"
    "\"session_id\":{\"type\":\"string\"},\"call_id\":{\"type\":\"string\"},\"workflow\":{\"type\":\"string\"},"
    "\"repeat_of\":{\"type\":\"string\"},\"distinct_from\":{},\"override_reason\":{\"type\":\"string\"},"
    "\"wait_ms\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120000},\"dry_run\":{\"type\":\"boolean\"}},"
    "\"additionalProperties\":false}";
#define LEASE_MEMBER "\"lease\":{\"type\":\"string\",\"description\":\"token of the lease\"}"
static const char guard_heartbeat_schema[] =
    "{\"type\":\"object\",\"required\":[\"lease\"],\"properties\":{" LEASE_MEMBER "},\"additionalProperties\":false}";
static const char guard_complete_schema[] =
    "{\"type\":\"object\",\"required\":[\"lease\"],\"properties\":{" LEASE_MEMBER
    ",\"result\":{},\"external_id\":{\"type\":\"string\"},\"noop\":{\"type\":\"boolean\",\"description\":\"it was "
    "already so\"}},\"additionalProperties\":false}";
static const char guard_fail_schema[] =
    "{\"type\":\"object\",\"required\":[\"lease\",\"effect\"],\"properties\":{" LEASE_MEMBER
    ",\"effect\":{\"enum\":[\"none\",\"unknown\"],\"description\":\"none: it is proven that nothing happened\"},"
    "\"retry\":{\"type\":\"boolean\",\"description\":\"with effect none: the next begin may perform it\"},"
    "\"error\":{\"type\":\"object\",\"required\":[\"message\"]}},\"additionalProperties\":false}";
static const char guard_schema[] =
    "{\"type\":\"object\",\"required\":[\"decision\",\"lease\",\"operation\"],\"properties\":{"
    "\"decision\":{\"enum\":[\"execute\",\"replay\",\"wait\",\"approval_required\",\"denied\",\"unknown\"]},"
    "\"lease\":{\"type\":[\"object\",\"null\"],\"properties\":{\"token\":{\"type\":\"string\"},"
    "\"idempotency_key\":{\"type\":\"string\"},\"lease_ms\":{\"type\":\"integer\"},\"expires_at\":{\"type\":\"string\"}"
    "}},"
    "\"operation\":" REF("Operation") "}}";

static const char approval_schema[] =
    "{\"type\":\"object\"," CLOSED ",\"properties\":{\"version\":{\"type\":[\"integer\",\"null\"],\"minimum\":1},"
    "\"note\":{\"type\":[\"string\",\"null\"],\"maxLength\":2000},\"via\":{\"enum\":[\"cli\",null]}}}";

static const char approval_decision_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"by\",\"decision\",\"at\",\"note\",\"via\"],\"properties\":{\"by\":" TEXT
    ",\"decision\":{\"enum\":[\"approve\",\"deny\"]},\"at\":" TIME_OR_NULL ",\"note\":" TEXT_OR_NULL
    ",\"via\":{\"enum\":[\"rest\",\"cli\",\"link\",\"mcp\"]},\"link_by\":" TEXT ",\"counted\":" BOOL "}}";

static const char approval_record_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"needed\",\"given\",\"open\",\"expires_at\",\"decisions\"],\"properties\":{\"needed\":" COUNT
    ",\"given\":" COUNT ",\"open\":" BOOL ",\"expires_at\":" TIME_OR_NULL
    ",\"decisions\":" LIST_OF("ApprovalDecision") "}}";

static const char approval_view_schema[] =
    "{\"type\":\"object\"," CLOSED ",\"required\":[\"operation\",\"title\",\"description\",\"class\",\"request\","
    "\"earlier\",\"entities\"],\"properties\":{\"operation\":" REF(
        "Operation") ",\"title\":" TEXT_OR_NULL ",\"description\":" TEXT_OR_NULL ",\"class\":" TEXT_OR_NULL
                     ",\"request\":{\"description\":\"As it would be sent, secrets and redacted parts masked.\"},"
                     "\"earlier\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
                     "\"entities\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"type\",\"id\","
                     "\"operations\"]}}}}";

/* A text with blanks between its patterns is taken, too; what is answered is a list, or null: not limited. */
#define PATTERNS_OR_NULL "{\"type\":[\"array\",\"null\"],\"maxItems\":100,\"items\":{\"type\":\"string\"}}"
#define NEW_PATTERNS                                                                                                   \
    "{\"type\":[\"array\",\"string\",\"null\"],\"maxItems\":100,\"items\":{\"type\":\"string\",\"minLength\":1,"       \
    "\"maxLength\":200}}"

static const char new_links_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"approver\"],\"properties\":{\"approver\":{\"type\":\"string\",\"minLength\":1,"
    "\"maxLength\":128}}}";

static const char links_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"approver\",\"approve\",\"deny\",\"expires_at\",\"made_by\"],\"properties\":{"
    "\"approver\":" TEXT ",\"approve\":" TEXT ",\"deny\":" TEXT ",\"expires_at\":" TIME_OR_NULL ",\"made_by\":" TEXT
    "}}";

static const char new_token_schema[] =
    "{\"type\":\"object\",\"required\":[\"principal\",\"role\"]," CLOSED ",\"properties\":{"
    "\"principal\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":128},\"role\":" REF(
        "Role") ","
                "\"tools\":" NEW_PATTERNS ",\"entities\":" NEW_PATTERNS ",\"expires_at\":" TIME_OR_NULL "}}";

static const char step_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"name\",\"tool\",\"status\",\"operation_id\"],\"properties\":{\"name\":" TEXT ",\"tool\":" TEXT
    ",\"status\":{\"enum\":[\"waiting\",\"running\",\"done\",\"skipped\",\"failed\",\"undoing\",\"undone\",\"left\","
    "\"stuck\"]},\"operation_id\":" ID_OR_NULL ",\"undo_operation_id\":" ID ",\"note\":" TEXT "}}";

static const char operation_schema[] =
    "{\"type\":\"object\",\"required\":[\"operation_id\",\"tool\",\"status\",\"reason\",\"replayed\","
    "\"attempts\","
    "\"lookups\","
    "\"version\",\"key_source\",\"key_version\",\"created_at\",\"updated_at\",\"completed_at\",\"not_before\","
    "\"result\","
    "\"error\",\"external_id\",\"http_status\",\"result_dropped\",\"next_action\",\"retry_after_ms\",\"safe_"
    "user_"
    "message\","
    "\"principal\",\"run_id\",\"step_id\",\"session_id\",\"workflow\",\"repeat_of\",\"distinct_from\","
    "\"previous\","
    "\"links\"]," CLOSED ",\"properties\":{"
    "\"operation_id\":" ID_OR_NULL ",\"tool\":" TEXT ",\"status\":" REF("Status") ",\"reason\":" REF(
        "Reason") ","
                  "\"replayed\":" BOOL ",\"attempts\":" COUNT ",\"lookups\":" COUNT ",\"version\":" COUNT ","
                  "\"key_source\":" REF(
                      "KeySource") ",\"key_version\":" COUNT ","
                                   "\"created_at\":" TIME_OR_NULL ",\"updated_at\":" TIME_OR_NULL
                                   ",\"completed_at\":" TIME_OR_NULL ","
                                   "\"not_before\":" TIME_OR_NULL
                                   ",\"result\":{},\"error\":{\"type\":[\"object\",\"null\"]},"
                                   "\"external_id\":" TEXT_OR_NULL ",\"http_status\":" INT_OR_NULL
                                   ",\"result_dropped\":" BOOL ",\"result_bytes\":" COUNT ","
                                   "\"next_action\":" REF(
                                       "NextAction") ",\"retry_after_ms\":" INT_OR_NULL ",\"safe_user_message\":" TEXT
                                                     ","
                                                     "\"principal\":" TEXT_OR_NULL ",\"run_id\":" TEXT_OR_NULL
                                                     ",\"step_id\":" TEXT_OR_NULL ",\"session_id\":" TEXT_OR_NULL ","
                                                     "\"workflow\":" TEXT_OR_NULL ",\"repeat_of\":" ID_OR_NULL
                                                     ",\"distinct_from\":" TEXT_OR_NULL ","
                                                     "\"previous\":" ID_OR_NULL ",\"compensates\":" ID
                                                     ",\"playbook\":" TEXT ",\"compensation\":" ID
                                                     ",\"parent_operation_id\":" ID ",\"steps\":" LIST_OF(
                                                         "Step") ",\"key\":" TEXT_OR_NULL
                                                                 ",\"arguments\":{\"type\":[\"object\",\"null\"]},"
                                                                 "\"incidents\":" LIST_OF(
                                                                     "Incident") ",\"approval\""
                                                                                 ":" REF(
                                                                                     "Approval"
                                                                                     "Record") ",\"decision\""
                                                                                               ":" REF(
                                                                                                   "ApprovalDe"
                                                                                                   "ci"
                                                                                                   "si"
                                                                                                   "on") ",\"n"
                                                                                                         "ot"
                                                                                                         "e"
                                                                                                         "\""
                                                                                                         ":" TEXT ","
                                                                                                         "\"li"
                                                                                                         "nk"
                                                                                                         "s"
                                                                                                         "\":{"
                                                                                                         "\"ty"
                                                                                                         "pe"
                                                                                                         "\""
                                                                                                         ":["
                                                                                                         "\"ob"
                                                                                                         "je"
                                                                                                         "ct"
                                                                                                         "\","
                                                                                                         "\"nu"
                                                                                                         "ll"
                                                                                                         "\""
                                                                                                         "]"
                                                                                                         "," CLOSED
                                                                                                         ",\"r"
                                                                                                         "eq"
                                                                                                         "ui"
                                                                                                         "red"
                                                                                                         "\":"
                                                                                                         "["
                                                                                                         "\"se"
                                                                                                         "lf"
                                                                                                         "\""
                                                                                                         ",\"e"
                                                                                                         "ve"
                                                                                                         "nt"
                                                                                                         "s\","
                                                                                                         "\"at"
                                                                                                         "te"
                                                                                                         "mp"
                                                                                                         "ts\""
                                                                                                         "],"
                                                                                                         "\"pr"
                                                                                                         "op"
                                                                                                         "er"
                                                                                                         "ties"
                                                                                                         "\""
                                                                                                         ":{"
                                                                                                         "\"se"
                                                                                                         "lf"
                                                                                                         "\""
                                                                                                         ":" TEXT ",\"e"
                                                                                                         "ve"
                                                                                                         "nt"
                                                                                                         "s\""
                                                                                                         ":" TEXT ",\"a"
                                                                                                         "tt"
                                                                                                         "em"
                                                                                                         "pts"
                                                                                                         "\""
                                                                                                         ":" TEXT "}}}"
                                                                                                         "}";

static const char tombstone_schema[] =
    "{\"type\":\"object\",\"description\":\"An operation of which only the fact is still kept.\",\"required\":["
    "\"operation_id\",\"tool\",\"status\",\"completed_at\",\"dropped_at\",\"result_dropped\",\"next_action\","
    "\"safe_user_message\"]," CLOSED ",\"properties\":{\"operation_id\":" ID ",\"tool\":" TEXT ",\"status\":" REF(
        "Status") ","
                  "\"reason\":{\"type\":\"null\"},\"replayed\":" BOOL ",\"key_source\":" REF(
                      "KeySource") ",\"key_version\":" COUNT ","
                                   "\"completed_at\":" TIME_OR_NULL ",\"dropped_at\":" TIME_OR_NULL
                                   ",\"result\":{\"type\":\"null\"},"
                                   "\"error\":{\"type\":\"null\"},\"external_id\":" TEXT_OR_NULL
                                   ",\"result_dropped\":{\"const\":true},"
                                   "\"next_action\":" REF("NextAction") ",\"retry_after_ms\":{\"type\":\"null\"},"
                                                                        "\"safe_user_message\":" TEXT ","
                                                                        "\"principal\":" TEXT_OR_NULL ",\"note\":" TEXT
                                                                        "}}";

static const char call_answer_schema[] =
    "{\"anyOf\":[" REF("Operation") ",{\"type\":\"object\",\"description\":\"With dry_run: what would happen.\"}]}";

static const char event_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"at\",\"cause\",\"from\",\"to\",\"reason\",\"actor\",\"attempt\",\"note\"],"
    "\"properties\":{\"at\":" TIME_OR_NULL ",\"cause\":" TEXT
    ",\"from\":" REF("Status") ",\"to\":" REF("Status") ","
                                                        "\"reason\":" REF("Reason") ",\"actor\":" TEXT_OR_NULL
                                                                                    ",\"attempt\":" INT_OR_NULL
                                                                                    ",\"note\":" TEXT_OR_NULL "}}";

static const char attempt_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"id\",\"number\",\"kind\",\"outcome\",\"started_at\",\"finished_at\","
    "\"http_status\",\"provider_request_id\",\"detail\"],\"properties\":{\"id\":" TEXT ",\"number\":" COUNT ","
    "\"kind\":{\"enum\":[\"call\",\"lookup\"]},\"outcome\":" REF("Outcome") ",\"started_at\":" TIME_OR_NULL ","
                                                                            "\"finished_at\":" TIME_OR_NULL
                                                                            ",\"http_status\":" INT_OR_NULL
                                                                            ",\"provider_request_id\":" TEXT_OR_NULL ","
                                                                            "\"detail\":" TEXT_OR_NULL "}}";

static const char incident_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"id\",\"kind\",\"operation_id\",\"at\",\"note\",\"acknowledged_by\","
    "\"acknowledged_at\"],\"properties\":{\"id\":" TEXT
    ",\"kind\":" REF("IncidentKind") ",\"operation_id\":" ID_OR_NULL ","
                                     "\"at\":" TIME_OR_NULL ",\"note\":" TEXT_OR_NULL
                                     ",\"acknowledged_by\":" TEXT_OR_NULL ","
                                     "\"acknowledged_at\":" TIME_OR_NULL "}}";

static const char entity_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"type\",\"id\",\"operation_id\",\"held_at\",\"waiting\",\"attributes\",\"override\"],"
    "\"properties\":{\"type\":" TEXT ",\"id\":" TEXT ",\"operation_id\":" ID_OR_NULL ",\"held_at\":" TIME_OR_NULL
    ",\"waiting\":" INT ",\"attributes\":{\"type\":\"object\"},\"override\":{\"type\":[\"object\",\"null\"]}}}";

static const char budget_schema[] =
    "{\"type\":\"object\"," CLOSED
    ",\"required\":[\"budget\",\"principal\",\"key\",\"used\",\"limit\",\"per_ms\"],\"properties\":{\"budget\":" TEXT
    ",\"principal\":" TEXT_OR_NULL ",\"key\":" TEXT_OR_NULL ",\"used\":" TEXT ",\"limit\":" TEXT ",\"per_ms\":" INT
    "}}";

static const char run_schema[] =
    "{\"type\":\"object\"," CLOSED ",\"required\":[\"run_id\",\"operations\",\"next\",\"summary\",\"complete\","
    "\"safe_user_message\"],\"properties\":{\"run_id\":" TEXT
    ",\"operations\":" LIST_OF("Operation") ","
                                            "\"next\":" TEXT_OR_NULL ",\"summary\":{\"type\":\"object\"," CLOSED
                                            ",\"required\":[\"total\",\"succeeded\",\"failed\","
                                            "\"open\",\"unknown\"],\"properties\":{\"total\":" COUNT
                                            ",\"succeeded\":" COUNT ",\"failed\":" COUNT ",\"open\":" COUNT ","
                                            "\"unknown\":" COUNT "}},\"complete\":" BOOL ",\"safe_user_message\":" TEXT
                                            "}}";

static const char tool_schema[] =
    "{\"type\":\"object\",\"required\":[\"name\",\"title\",\"description\",\"version\",\"class\",\"idempotent_by\","
    "\"provider\",\"input_schema\",\"policy\"]," CLOSED ",\"properties\":{\"name\":" TEXT ",\"title\":" TEXT_OR_NULL ","
    "\"description\":" TEXT_OR_NULL ",\"version\":" TEXT ",\"class\":" REF(
        "Class") ",\"idempotent_by\":" TEXT_OR_NULL ","
                 "\"provider\":" TEXT_OR_NULL
                 ",\"input_schema\":{\"type\":[\"object\",\"boolean\"]},\"policy\":{\"type\":\"object\"}}}";

#define TOKEN_MEMBERS                                                                                                  \
    "\"id\":" TEXT ",\"tenant\":" TEXT ",\"principal\":" TEXT                                                          \
    ",\"role\":" REF("Role") ",\"tools\":" PATTERNS_OR_NULL ",\"entities\":" PATTERNS_OR_NULL                          \
                             ",\"created_at\":" TIME_OR_NULL ","                                                       \
                             "\"expires_at\":" TIME_OR_NULL ",\"revoked_at\":" TIME_OR_NULL
#define TOKEN_REQUIRED                                                                                                 \
    "\"id\",\"tenant\",\"principal\",\"role\",\"tools\",\"entities\",\"created_at\",\"expires_at\",\"revoked_at\""

static const char token_schema[] =
    "{\"type\":\"object\"," CLOSED ",\"required\":[" TOKEN_REQUIRED "],\"properties\":{" TOKEN_MEMBERS "}}";

static const char issued_token_schema[] = "{\"type\":\"object\"," CLOSED ",\"required\":[\"token\"," TOKEN_REQUIRED
                                          "],\"properties\":{\"token\":" TEXT "," TOKEN_MEMBERS "}}";

static const char stats_schema[] =
    "{\"type\":\"object\"," CLOSED ",\"required\":[\"version\",\"ledger\",\"engine\"],\"properties\":{\"version\":" TEXT
    ","
    "\"ledger\":{\"type\":\"object\",\"required\":[\"operations\",\"oldest_unknown_at\",\"open_incidents\",\"commits\","
    "\"commands\",\"file_bytes\"]},\"engine\":{\"type\":\"object\",\"additionalProperties\":" INT "}}}";

static const char health_schema[] =
    "{\"type\":\"object\",\"required\":[\"status\",\"version\"]," CLOSED ",\"properties\":{"
    "\"status\":{\"const\":\"ok\"},\"version\":" TEXT "}}";

static const char ready_schema[] =
    "{\"type\":\"object\",\"required\":[\"status\",\"reasons\"]," CLOSED ",\"properties\":{"
    "\"status\":{\"enum\":[\"ready\",\"not_ready\"]},"
    "\"reasons\":{\"type\":\"array\",\"items\":" TEXT "}}}";

static const char problem_schema[] =
    "{\"type\":\"object\",\"description\":\"RFC 9457\",\"required\":[\"type\",\"title\",\"status\"]," CLOSED
    ",\"properties\":{"
    "\"type\":" REF("ProblemType") ",\"title\":" TEXT ",\"status\":" INT ",\"detail\":" TEXT ",\"pointer\":" TEXT ","
                                   "\"operation_id\":" ID ",\"operation_status\":" REF(
                                       "Status") ",\"operation\":" TEXT ",\"principal\":" TEXT ","
                                                 "\"errors\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
                                                 "\"required\":[\"pointer\",\"message\",\"keyword\"],"
                                                 "\"properties\":{\"pointer\":" TEXT ",\"message\":" TEXT
                                                 ",\"keyword\":" TEXT_OR_NULL "}}},"
                                                 "\"differing\":{\"type\":\"array\",\"items\":" TEXT
                                                 "},\"version\":" INT ",\"retry_after_ms\":" INT
                                                 ",\"entity\":{\"type\":\"object\",\"properties\":{\"type\":" TEXT
                                                 ",\"id\":" TEXT "}},\"budget\":" TEXT ",\"at\":" TIME_OR_NULL
                                                 ",\"until\":" TIME_OR_NULL
                                                 ",\"override\":{\"enum\":[\"with_reason\",\"denied\"]}}}";

#define LIST_SCHEMA(name, item)                                                                                        \
    "{\"type\":\"object\"," CLOSED ",\"required\":[\"" name "\",\"next\"],\"properties\":{\"" name                     \
    "\":" LIST_OF(item) ",\"next\":" TEXT_OR_NULL "}}"
#define HISTORY_SCHEMA(name, item)                                                                                     \
    "{\"type\":\"object\"," CLOSED ",\"required\":[\"operation_id\",\"" name                                           \
    "\"],\"properties\":{\"operation_id\":" ID ",\"" name "\":" LIST_OF(item) "}}"

#define COUNT_SCHEMA "{\"type\":\"integer\",\"minimum\":0}"
static const char inbox_entry_schema[] =
    "{\"type\":\"object\"," CLOSED ",\"required\":[\"id\",\"source\",\"event\",\"status\",\"outcome\",\"match\","
    "\"created\",\"received\",\"duplicates\"],"
    "\"properties\":{\"id\":" TEXT ",\"source\":" TEXT ",\"event\":" TEXT ",\"type\":" TEXT
    ",\"status\":{\"enum\":[\"waiting\",\"applied\",\"ignored\"]},"
    "\"outcome\":{\"enum\":[\"ignore\",\"pending\",\"failed\",\"no_effect\",\"success\"]},"
    "\"match\":{\"enum\":[\"nothing\",\"reference\",\"provider_key\",\"external_id\"]},\"value\":" TEXT
    ",\"external_id\":" TEXT ",\"operation\":" TEXT ",\"created\":" TEXT ",\"received\":" TEXT ",\"settled\":" TEXT
    ",\"duplicates\":" COUNT_SCHEMA ",\"last_duplicate\":" TEXT ",\"forward\":{\"type\":\"object\"," CLOSED
    ",\"required\":[\"status\",\"tries\"],\"properties\":{\"status\":{\"enum\":[\"due\",\"delivered\",\"undelivered\"]}"
    ","
    "\"tries\":" COUNT_SCHEMA ",\"next_try\":" TEXT ",\"since\":" TEXT ",\"last_failure\":" TEXT
    "}},\"result\":{},\"body\":" TEXT "}}";

/* Names as the records have them: lists of the program, so that the document cannot fall behind. */
#define X1(constant, text)                text,
#define X2(constant, text, terminal)      text,
#define X4(constant, name, status, title) "urn:onced:problem:" name,
static const char *const status_names[] = {STATES(X2) NULL};
static const char *const reason_names[] = {REASONS(X1) NULL};
static const char *const key_source_names[] = {KEY_SOURCES(X1) NULL};
static const char *const class_names[] = {CLASSES(X1) NULL};
static const char *const outcome_names[] = {OUTCOMES(X1) NULL};
static const char *const incident_names[] = {INCIDENTS(X1) NULL};
static const char *const problem_names[] = {PROBLEM_TYPES(X4) NULL};
static const char *const next_action_names[] = {"use_result",    "wait",      "do_not_retry",
                                                "fix_arguments", "ask_human", NULL};
static const char *const role_names[] = {"agent", "approver", "operator", "admin", NULL};
#undef X1
#undef X2
#undef X4

static const struct {
    const char *name;
    const char *const *values;
    bool or_null; /* instead of the empty name */
} enumerations[] = {
    {"Status", status_names, false}, {"Reason", reason_names, true},        {"KeySource", key_source_names, true},
    {"Class", class_names, false},   {"Outcome", outcome_names, false},     {"IncidentKind", incident_names, false},
    {"Role", role_names, false},     {"ProblemType", problem_names, false}, {"NextAction", next_action_names, false},
};

static const struct {
    const char *name, *text;
} schemas[] = {
    {"Call", call_schema},
    {"Resolve", resolve_schema},
    {"Decision", decision_schema},
    {"Compensate", compensate_schema},
    {"Approval", approval_schema},
    {"ApprovalRecord", approval_record_schema},
    {"NewLinks", new_links_schema},
    {"Links", links_schema},
    {"ApprovalDecision", approval_decision_schema},
    {"ApprovalView", approval_view_schema},
    {"GuardBegin", guard_begin_schema},
    {"GuardHeartbeat", guard_heartbeat_schema},
    {"GuardComplete", guard_complete_schema},
    {"GuardFail", guard_fail_schema},
    {"Guard", guard_schema},
    {"InboundEvent", "{\"type\":\"object\",\"description\":\"whatever the provider sends\"}"},
    {"InboundReceipt",
     "{\"type\":\"object\"," CLOSED ",\"required\":[\"id\",\"duplicate\"],\"properties\":{\"id\":" TEXT
     ",\"duplicate\":{\"type\":\"boolean\"}}}"},
    {"InboxEntry", inbox_entry_schema},
    {"InboxList", LIST_SCHEMA("events", "InboxEntry")},
    {"InboxCounts",
     "{\"type\":\"object\"," CLOSED
     ",\"required\":[\"sources\"],\"properties\":{\"sources\":{\"type\":\"array\",\"items\":{"
     "\"type\":\"object\"," CLOSED ",\"required\":[\"source\",\"events\",\"duplicates\",\"applied\",\"ignored\","
     "\"waiting\",\"dropped\"],\"properties\":{\"source\":" TEXT ",\"events\":" COUNT_SCHEMA
     ",\"duplicates\":" COUNT_SCHEMA ",\"applied\":" COUNT_SCHEMA ",\"ignored\":" COUNT_SCHEMA
     ",\"waiting\":" COUNT_SCHEMA ",\"dropped\":" COUNT_SCHEMA "}}}}}"},
    {"NewToken", new_token_schema},
    {"CallAnswer", call_answer_schema},
    {"Operation", operation_schema},
    {"Step", step_schema},
    {"Tombstone", tombstone_schema},
    {"OperationOrTombstone", "{\"anyOf\":[" REF("Operation") "," REF("Tombstone") "]}"},
    {"OperationList", LIST_SCHEMA("operations", "Operation")},
    {"Event", event_schema},
    {"EventList", HISTORY_SCHEMA("events", "Event")},
    {"Attempt", attempt_schema},
    {"AttemptList", HISTORY_SCHEMA("attempts", "Attempt")},
    {"Incident", incident_schema},
    {"IncidentList", LIST_SCHEMA("incidents", "Incident")},
    {"Entity", entity_schema},
    {"EntityList", LIST_SCHEMA("entities", "Entity")},
    {"EntityRelease",
     "{\"type\":\"object\"," CLOSED ",\"required\":[\"reason\"],\"properties\":{\"reason\":{\"type\":\"string\","
     "\"minLength\":1},\"operation_id\":" ID_OR_NULL "}}"},
    {"ReleasedEntity", "{\"type\":\"object\"," CLOSED ",\"required\":[\"type\",\"id\",\"operation_id\",\"released_by\","
                       "\"reason\"],\"properties\":{\"type\":" TEXT ",\"id\":" TEXT ",\"operation_id\":" ID
                       ",\"released_by\":" TEXT ",\"reason\":" TEXT "}}"},
    {"Budget", budget_schema},
    {"BudgetList",
     "{\"type\":\"object\"," CLOSED ",\"required\":[\"budgets\"],\"properties\":{\"budgets\":" LIST_OF("Budget") "}}"},
    {"Run", run_schema},
    {"Tool", tool_schema},
    {"ToolList",
     "{\"type\":\"object\"," CLOSED ",\"required\":[\"tools\",\"policy_version\"],\"properties\":{\"tools\":" LIST_OF(
         "Tool") ",\"policy_version\":" TEXT "}}"},
    {"Token", token_schema},
    {"IssuedToken", issued_token_schema},
    {"TokenList",
     "{\"type\":\"object\"," CLOSED ",\"required\":[\"tokens\"],\"properties\":{\"tokens\":" LIST_OF("Token") "}}"},
    {"Stats", stats_schema},
    {"Health", health_schema},
    {"Ready", ready_schema},
    {"OpenAPI", "{\"type\":\"object\",\"required\":[\"openapi\",\"info\",\"paths\"]}"},
    {"Problem", problem_schema},
};

/* ---- the document ---- */

static const char *method_name(enum http_method method)
{
    switch (method) {
    case METHOD_GET: return "get";
    case METHOD_HEAD: return "head";
    case METHOD_POST: return "post";
    case METHOD_DELETE: return "delete";
    case METHOD_OPTIONS: return "options";
    case METHOD_OTHER: break;
    }
    return "";
}

static void write_ref(struct json_out *out, const char *kind, const char *name)
{
    struct buf text;
    buf_init(&text, 0);
    buf_printf(&text, "{\"$ref\":\"#/components/%s/%s\"}", kind, name);
    json_out_raw(out, buf_str(&text));
    buf_release(&text);
}

static void write_parameter(struct json_out *out, const char *name, const char *in, bool required, const char *schema,
                            const char *description)
{
    json_out_object(out);
    json_out_member_text(out, "name", name);
    json_out_member_text(out, "in", in);
    if (required)
        json_out_member_bool(out, "required", true);
    json_out_member_text(out, "description", description);
    json_out_name(out, "schema");
    json_out_raw(out, str_of(schema));
    json_out_end_object(out);
}

static void write_call_headers(struct json_out *out)
{
    static const char *const headers[][2] = {
        {"Idempotency-Key", "Like the member idempotency_key; structured string or bare."},
        {"Onced-Run-Id", "Like run_id."},
        {"Onced-Step-Id", "Like step_id."},
        {"Onced-Session-Id", "Like session_id."},
        {"Onced-Call-Id", "Like call_id."},
        {"Prefer", "respond-async, wait=SECONDS"},
        {"traceparent", "W3C trace context, kept with the operation."},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        write_parameter(out, headers[i][0], "header", false, TEXT, headers[i][1]);
}

static void write_parameters(struct json_out *out, const struct route *route)
{
    json_out_name(out, "parameters");
    json_out_array(out);
    for (const char *p = strchr(route->path, '{'); p; p = strchr(p + 1, '{')) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p + 1, "}"), p + 1);
        write_parameter(out, name, "path", true, TEXT, NULL);
    }
    for (size_t i = 0; route->query && route->query[i].name; i++)
        write_parameter(out, route->query[i].name, "query", false, route->query[i].schema, route->query[i].description);
    if (route->handle == rest_call)
        write_call_headers(out);
    json_out_end_array(out);
}

static void write_content(struct json_out *out, const char *type, const char *schema)
{
    json_out_name(out, "content");
    json_out_object(out);
    json_out_name(out, type);
    json_out_object(out);
    json_out_name(out, "schema");
    write_ref(out, "schemas", schema);
    json_out_end_object(out);
    json_out_end_object(out);
}

static void write_body(struct json_out *out, const struct route *route)
{
    if (!route->body)
        return;
    json_out_name(out, "requestBody");
    json_out_object(out);
    json_out_member_bool(out, "required", !route->body_optional);
    write_content(out, "application/json", route->body);
    json_out_end_object(out);
}

static const char *success_text(const char *status)
{
    if (strcmp(status, "201") == 0)
        return "Done now, by this request.";
    if (strcmp(status, "202") == 0)
        return "Not ended yet: Location says where to ask, Retry-After when.";
    if (strcmp(status, "503") == 0)
        return "Not now; the body says why.";
    return "The answer.";
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n) {
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    }
    return false;
}

/* Problems that any route of this kind may have. */
static bool is_common(const struct route *route, enum problem_type type)
{
    bool open = route->roles == MAY_ANYBODY;
    switch (type) {
    case PROBLEM_MALFORMED:
    case PROBLEM_FORBIDDEN:
    case PROBLEM_TOO_LARGE: return true;
    case PROBLEM_UNAUTHORIZED:
    case PROBLEM_UNAVAILABLE: return !open;
    case PROBLEM_NOT_JSON: return route->body != NULL;
    default: return false;
    }
}

/* One response per status; its description names the problem types. */
static void write_problems(struct json_out *out, const struct route *route, unsigned status)
{
    struct buf text;
    buf_init(&text, 0);
#define X(constant, name, number, title)                                                                               \
    if (number == status && (is_common(route, constant) || has_word(route->problems, name)))                           \
        buf_printf(&text, "%s%s", text.n ? ", " : "", name);
    PROBLEM_TYPES(X)
#undef X
    if (text.n > 0) {
        char code[8];
        snprintf(code, sizeof code, "%u", status);
        json_out_name(out, code);
        json_out_object(out);
        json_out_member_text(out, "description", text.p);
        write_content(out, PROBLEM_MEDIA_TYPE, "Problem");
        json_out_end_object(out);
    }
    buf_release(&text);
}

static void write_responses(struct json_out *out, const struct route *route)
{
    json_out_name(out, "responses");
    json_out_object(out);
    for (const char *p = route->statuses; *p; p += strspn(p, " ")) {
        char status[4] = {p[0], p[1], p[2], '\0'};
        p += 3;
        json_out_name(out, status);
        json_out_object(out);
        json_out_member_text(out, "description", success_text(status));
        write_content(out, "application/json", route->answer);
        json_out_end_object(out);
    }
    for (unsigned status = 400; status < 600; status++) {
        char text[8];
        snprintf(text, sizeof text, "%u", status);
        if (!has_word(route->statuses, text))
            write_problems(out, route, status);
    }
    json_out_end_object(out);
}

static void write_roles(struct json_out *out, const struct route *route)
{
    json_out_name(out, "security");
    json_out_array(out);
    if (route->roles != MAY_ANYBODY)
        json_out_raw(out, STR("{\"token\":[]}"));
    json_out_end_array(out);
    if (route->roles == MAY_ANYBODY)
        return;
    json_out_name(out, "x-onced-roles");
    json_out_array(out);
    for (unsigned role = ROLE_AGENT; role <= ROLE_ADMIN; role++) {
        if (route->roles & 1u << role)
            json_out_text(out, role_name((enum role)role));
    }
    json_out_end_array(out);
}

static void write_route(struct json_out *out, const struct route *route)
{
    json_out_name(out, method_name(route->method));
    json_out_object(out);
    json_out_member_text(out, "operationId", route->id);
    json_out_member_text(out, "summary", route->summary);
    write_roles(out, route);
    write_parameters(out, route);
    write_body(out, route);
    write_responses(out, route);
    json_out_end_object(out);
}

static bool is_first_of_path(size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(rest_routes[i].path, rest_routes[index].path) == 0)
            return false;
    }
    return true;
}

static void write_paths(struct json_out *out)
{
    json_out_name(out, "paths");
    json_out_object(out);
    for (size_t i = 0; i < rest_route_count; i++) {
        if (!is_first_of_path(i))
            continue;
        json_out_name(out, rest_routes[i].path);
        json_out_object(out);
        for (size_t j = i; j < rest_route_count; j++) {
            if (strcmp(rest_routes[j].path, rest_routes[i].path) == 0)
                write_route(out, &rest_routes[j]);
        }
        json_out_end_object(out);
    }
    json_out_end_object(out);
}

static void write_enumerations(struct json_out *out)
{
    for (size_t i = 0; i < sizeof enumerations / sizeof *enumerations; i++) {
        json_out_name(out, enumerations[i].name);
        json_out_object(out);
        json_out_name(out, "enum");
        json_out_array(out);
        for (const char *const *value = enumerations[i].values; *value; value++) {
            if ((*value)[0])
                json_out_text(out, *value);
        }
        if (enumerations[i].or_null)
            json_out_null(out);
        json_out_end_array(out);
        json_out_end_object(out);
    }
}

static void write_components(struct json_out *out)
{
    json_out_name(out, "components");
    json_out_object(out);
    json_out_name(out, "securitySchemes");
    json_out_raw(out, STR("{\"token\":{\"type\":\"http\",\"scheme\":\"bearer\"}}"));
    json_out_name(out, "schemas");
    json_out_object(out);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        json_out_name(out, schemas[i].name);
        json_out_raw(out, str_of(schemas[i].text));
    }
    write_enumerations(out);
    json_out_end_object(out);
    json_out_end_object(out);
}

void openapi_write(struct buf *out)
{
    struct json_out json;
    json_out_init(&json, out);
    json_out_object(&json);
    json_out_member_text(&json, "openapi", "3.1.0");
    json_out_name(&json, "info");
    json_out_object(&json);
    json_out_member_text(&json, "title", "onced");
    json_out_member_text(&json, "version", ONCED_VERSION);
    json_out_member_text(&json, "summary", "Runs agents' tool calls at most once per intent and tells what happened.");
    json_out_end_object(&json);
    write_paths(&json);
    write_components(&json);
    json_out_end_object(&json);
}
