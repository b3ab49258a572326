#include "door/shape.h"

#include "base/digits.h"
#include "door/message.h"
#include "door/shape_steps.h"

#include <string.h>

/* Names are written with what surrounds them: an answer has fifty members, and this is on the path of every replay. */
#define ADD(out, literal) buf_add(out, literal, sizeof(literal) - 1)

static void add_text(struct buf *out, const char *text)
{
    if (text)
        json_write_string(out, str_of(text));
    else
        ADD(out, "null");
}

/* Text of our own alphabet (ids, names of states): nothing to escape. */
static void add_plain(struct buf *out, const char *text)
{
    buf_add_char(out, '"');
    buf_add_text(out, text);
    buf_add_char(out, '"');
}

static void add_int(struct buf *out, int64_t value)
{
    char room[INT_TEXT_SIZE];
    buf_add_str(out, int_text(value, room));
}

static void add_int_or_null(struct buf *out, int64_t value)
{
    if (value)
        add_int(out, value);
    else
        ADD(out, "null");
}

static void add_bool(struct buf *out, bool value)
{
    if (value)
        ADD(out, "true");
    else
        ADD(out, "false");
}

static void add_json(struct buf *out, struct str json_text)
{
    if (json_text.p)
        buf_add_str(out, json_text);
    else
        ADD(out, "null");
}

void shape_time(struct buf *out, int64_t ms)
{
    if (!ms) {
        ADD(out, "null");
        return;
    }
    char text[ENV_TIME_SIZE];
    env_time_text(ms, text);
    add_plain(out, text);
}

bool shape_shared(const struct operation *op, const struct tool *tool)
{
    enum share_rule rule = tool ? tool->share : SHARE_PRINCIPAL;
    return rule == SHARE_TENANT || (rule == SHARE_DEFAULT && op->key_source == KEY_SOURCE_BUSINESS);
}

struct str shape_masked(struct arena *arena, struct str json_text, const struct tool *tool)
{
    if (!json_text.p)
        return json_text;
    if (!tool)
        return STR_NONE;
    if (tool->redact_count == 0)
        return json_text;
    const struct json_limits stored = {SIZE_MAX, 1000, SIZE_MAX};
    struct json *value;
    if (json_parse(arena, json_text, &stored, &value, NULL))
        return STR_NONE; /* not to be masked, so not to be shown */
    bool masked = false;
    for (size_t i = 0; i < tool->redact_count; i++) {
        const struct json *place = json_pointer_get(value, str_of(tool->redact_pointers[i]));
        if (!place)
            continue;
        *(struct json *)(uintptr_t)place = json_string(STR("***")); /* the tree is ours */
        masked = true;
    }
    if (!masked)
        return json_text;
    struct buf text;
    buf_init(&text, 0);
    json_write(&text, value);
    struct str copy = arena_str(arena, buf_str(&text));
    buf_release(&text);
    return copy;
}

/* ---- operation ---- */

static struct str shown_payload(struct str text, const struct tool *tool, const struct shape_view *view)
{
    if (view->withheld)
        return STR_NONE;
    return view->own_call ? text : shape_masked(view->arena, text, tool);
}

static void add_notes(struct buf *out, const struct operation *op, const struct tool *tool,
                      const struct shape_view *view)
{
    struct buf note;
    buf_init(&note, 0);
    message_note(&note, op, tool, view);
    if (note.n > 0) {
        ADD(out, ",\"note\":");
        json_write_string(out, buf_str(&note));
    }
    buf_release(&note);
}

static void add_incidents(struct buf *out, const struct shape_view *view)
{
    ADD(out, ",\"incidents\":[");
    for (size_t i = 0; i < view->incident_count; i++) {
        if (i > 0)
            buf_add_char(out, ',');
        shape_incident(out, &view->incidents[i]);
    }
    buf_add_char(out, ']');
}

static void add_links(struct buf *out, const char *id)
{
    if (!id[0]) {
        ADD(out, ",\"links\":null");
        return;
    }
    ADD(out, ",\"links\":{\"self\":\"/v1/operations/");
    buf_add_text(out, id);
    ADD(out, "\",\"events\":\"/v1/operations/");
    buf_add_text(out, id);
    ADD(out, "/events\",\"attempts\":\"/v1/operations/");
    buf_add_text(out, id);
    ADD(out, "/attempts\"}");
}

static void add_identity(struct buf *out, const struct operation *op, const struct shape_view *view)
{
    ADD(out, "{\"operation_id\":");
    if (op->id[0])
        add_plain(out, op->id);
    else
        ADD(out, "null");
    ADD(out, ",\"tool\":");
    add_text(out, op->tool);
    ADD(out, ",\"status\":");
    add_plain(out, state_name(op->state));
    ADD(out, ",\"reason\":");
    if (op->reason != REASON_NONE)
        add_plain(out, reason_name(op->reason));
    else
        ADD(out, "null");
    ADD(out, ",\"replayed\":");
    add_bool(out, view->replayed);
    ADD(out, ",\"attempts\":");
    add_int(out, op->attempts);
    ADD(out, ",\"lookups\":");
    add_int(out, op->lookups);
    ADD(out, ",\"version\":");
    add_int(out, op->rev);
    ADD(out, ",\"key_source\":");
    if (op->id[0])
        add_plain(out, key_source_name(op->key_source));
    else
        ADD(out, "null");
    ADD(out, ",\"key_version\":");
    add_int(out, op->key_version);
}

static void add_times(struct buf *out, const struct operation *op)
{
    ADD(out, ",\"created_at\":");
    shape_time(out, op->created_ms);
    ADD(out, ",\"updated_at\":");
    shape_time(out, op->updated_ms);
    ADD(out, ",\"completed_at\":");
    shape_time(out, op->completed_ms);
    ADD(out, ",\"not_before\":");
    shape_time(out, op->not_before_ms);
}

static void add_outcome(struct buf *out, const struct operation *op, const struct tool *tool,
                        const struct shape_view *view)
{
    ADD(out, ",\"result\":");
    add_json(out, shown_payload(op->result, tool, view));
    ADD(out, ",\"error\":");
    add_json(out, shown_payload(op->error, tool, view));
    ADD(out, ",\"external_id\":");
    add_text(out, view->withheld ? NULL : op->external_id);
    ADD(out, ",\"http_status\":");
    add_int_or_null(out, op->http_status);
    ADD(out, ",\"result_dropped\":");
    add_bool(out, op->result_dropped);
    if (op->result_dropped) {
        ADD(out, ",\"result_bytes\":");
        add_int(out, op->result_bytes);
    }
    int64_t retry_ms = shape_retry_after_ms(op, view->now_ms);
    ADD(out, ",\"next_action\":");
    add_plain(out, next_action_name(shape_next_action(op)));
    ADD(out, ",\"retry_after_ms\":");
    add_int_or_null(out, retry_ms);
    ADD(out, ",\"safe_user_message\":");
    add_text(out, shape_words(view->arena, op, tool));
}

static void add_coordinates(struct buf *out, const struct operation *op)
{
    ADD(out, ",\"principal\":");
    add_text(out, op->principal);
    ADD(out, ",\"run_id\":");
    add_text(out, op->run);
    ADD(out, ",\"step_id\":");
    add_text(out, op->step);
    ADD(out, ",\"session_id\":");
    add_text(out, op->session);
    ADD(out, ",\"workflow\":");
    add_text(out, op->workflow);
    ADD(out, ",\"repeat_of\":");
    add_text(out, op->repeat_of);
    ADD(out, ",\"distinct_from\":");
    add_text(out, op->distinct_from);
    ADD(out, ",\"previous\":");
    add_text(out, op->previous);
    if (op->compensates) {
        ADD(out, ",\"compensates\":");
        add_text(out, op->compensates);
        ADD(out, ",\"playbook\":");
        add_text(out, op->playbook);
    }
    if (op->compensation) {
        ADD(out, ",\"compensation\":");
        add_text(out, op->compensation);
    }
    if (op->parent) {
        ADD(out, ",\"parent_operation_id\":");
        add_text(out, op->parent);
    }
}

/* ---- approvals ---- */

static void add_decision(struct buf *out, const struct approval_decision *decision)
{
    ADD(out, "{\"by\":");
    add_text(out, decision->by);
    ADD(out, ",\"decision\":");
    add_plain(out, decision->approve ? "approve" : "deny");
    ADD(out, ",\"at\":");
    shape_time(out, decision->at_ms);
    ADD(out, ",\"note\":");
    add_text(out, decision->note);
    ADD(out, ",\"via\":");
    add_plain(out, approval_via_name(decision->via));
    if (decision->link_by) {
        ADD(out, ",\"link_by\":");
        add_text(out, decision->link_by);
    }
}

static void add_approval(struct buf *out, const struct operation *op, const struct shape_view *view)
{
    struct approval approval;
    if (approval_read(view->arena, op->approval, &approval, NULL))
        return;
    ADD(out, ",\"approval\":{\"needed\":");
    add_int(out, approval.needed);
    ADD(out, ",\"given\":");
    add_int(out, approval_given(&approval));
    ADD(out, ",\"open\":");
    add_bool(out, op->state == STATE_PLANNED && !approval_complete(op));
    ADD(out, ",\"expires_at\":");
    shape_time(out, approval.expires_ms);
    ADD(out, ",\"decisions\":[");
    for (size_t i = 0; i < approval.count; i++) {
        if (i > 0)
            buf_add_char(out, ',');
        add_decision(out, &approval.decisions[i]);
        buf_add_char(out, '}');
    }
    ADD(out, "]}");
    if (!view->decision)
        return;
    ADD(out, ",\"decision\":");
    add_decision(out, view->decision);
    ADD(out, ",\"counted\":");
    add_bool(out, view->decision_counted);
    buf_add_char(out, '}');
}

void shape_operation(struct buf *out, const struct operation *op, const struct tool *tool,
                     const struct shape_view *view)
{
    add_identity(out, op, view);
    add_times(out, op);
    add_outcome(out, op, tool, view);
    add_coordinates(out, op);
    if (view->privileged && !view->own_call) {
        ADD(out, ",\"key\":");
        add_text(out, op->key);
    }
    if ((view->privileged || (view->approver && op->approval.p)) && !view->own_call && !view->outside) {
        ADD(out, ",\"arguments\":");
        add_json(out, shape_masked(view->arena, op->arguments, tool));
    }
    shape_steps(out, op, view->arena, view->withheld);
    if (op->approval.p)
        add_approval(out, op, view);
    if (view->with_incidents)
        add_incidents(out, view);
    add_notes(out, op, tool, view);
    add_links(out, op->id);
    buf_add_char(out, '}');
}

void shape_tombstone(struct buf *out, const struct tombstone *tombstone)
{
    struct json_out json;
    json_out_init(&json, out);
    json_out_object(&json);
    json_out_member_text(&json, "operation_id", tombstone->operation);
    json_out_member_text(&json, "tool", tombstone->tool);
    json_out_member_text(&json, "status", state_name(tombstone->state));
    json_out_name(&json, "reason"), json_out_null(&json);
    json_out_member_bool(&json, "replayed", false);
    json_out_member_text(&json, "key_source", key_source_name(tombstone->key_source));
    json_out_member_int(&json, "key_version", tombstone->key_version);
    json_out_end_object(&json);
    out->n--; /* the members below are written as above */
    ADD(out, ",\"completed_at\":");
    shape_time(out, tombstone->completed_ms);
    ADD(out, ",\"dropped_at\":");
    shape_time(out, tombstone->dropped_ms);
    struct operation op = {.state = tombstone->state};
    ADD(out, ",\"result\":null,\"error\":null,\"external_id\":");
    add_text(out, tombstone->external_id);
    ADD(out, ",\"result_dropped\":true,\"next_action\":");
    add_plain(out, next_action_name(tombstone->state == STATE_COMPLETED_SUCCESS ? NEXT_DO_NOT_RETRY
                                                                                : shape_next_action(&op)));
    ADD(out, ",\"retry_after_ms\":null,\"safe_user_message\":");
    add_text(out, shape_message(&op, NULL));
    ADD(out, ",\"principal\":");
    add_text(out, tombstone->principal);
    ADD(out,
        ",\"note\":\"only the fact is kept: result, arguments and history were dropped when their time was over\"}");
}

/* ---- history ---- */

void shape_incident(struct buf *out, const struct incident *incident)
{
    ADD(out, "{\"id\":");
    add_plain(out, incident->id);
    ADD(out, ",\"kind\":");
    add_plain(out, incident_kind_name(incident->kind));
    ADD(out, ",\"operation_id\":");
    add_text(out, incident->operation);
    ADD(out, ",\"at\":");
    shape_time(out, incident->at_ms);
    ADD(out, ",\"note\":");
    add_text(out, incident->note);
    ADD(out, ",\"acknowledged_by\":");
    add_text(out, incident->acknowledged_by);
    ADD(out, ",\"acknowledged_at\":");
    shape_time(out, incident->acknowledged_ms);
    buf_add_char(out, '}');
}

void shape_event(struct buf *out, const struct event *event)
{
    ADD(out, "{\"at\":");
    shape_time(out, event->at_ms);
    ADD(out, ",\"cause\":");
    add_plain(out, cause_name(event->cause));
    ADD(out, ",\"from\":");
    add_plain(out, state_name(event->from));
    ADD(out, ",\"to\":");
    add_plain(out, state_name(event->to));
    ADD(out, ",\"reason\":");
    if (event->reason != REASON_NONE)
        add_plain(out, reason_name(event->reason));
    else
        ADD(out, "null");
    ADD(out, ",\"actor\":");
    add_text(out, event->actor);
    ADD(out, ",\"attempt\":");
    add_int_or_null(out, event->attempt);
    ADD(out, ",\"note\":");
    add_text(out, event->note);
    buf_add_char(out, '}');
}

void shape_attempt(struct buf *out, const struct attempt *attempt)
{
    ADD(out, "{\"id\":");
    add_plain(out, attempt->id);
    ADD(out, ",\"number\":");
    add_int(out, attempt->number);
    ADD(out, ",\"kind\":");
    add_plain(out, attempt_kind_name(attempt->kind));
    ADD(out, ",\"outcome\":");
    add_plain(out, outcome_name(attempt->outcome));
    ADD(out, ",\"started_at\":");
    shape_time(out, attempt->started_ms);
    ADD(out, ",\"finished_at\":");
    shape_time(out, attempt->finished_ms);
    ADD(out, ",\"http_status\":");
    add_int_or_null(out, attempt->http_status);
    ADD(out, ",\"provider_request_id\":");
    add_text(out, attempt->provider_request_id);
    ADD(out, ",\"detail\":");
    add_text(out, attempt->detail);
    buf_add_char(out, '}');
}

/* ---- problems ---- */

static const struct {
    const char *name, *title;
    int status;
} problem_types[] = {
#define X(constant, name, status, title) {name, title, status},
    PROBLEM_TYPES(X)
#undef X
};

const char *problem_type_name(enum problem_type type)
{
    return problem_types[type].name;
}

int problem_type_status(enum problem_type type)
{
    return problem_types[type].status;
}

const char *problem_type_title(enum problem_type type)
{
    return problem_types[type].title;
}

static void problem_operation(struct buf *out, const char *id, enum state state)
{
    ADD(out, ",\"operation_id\":");
    add_plain(out, id);
    ADD(out, ",\"operation_status\":");
    add_plain(out, state_name(state));
    ADD(out, ",\"operation\":\"/v1/operations/");
    buf_add_text(out, id);
    buf_add_char(out, '"');
}

static void problem_errors(struct buf *out, const struct problem_document *problem)
{
    ADD(out, ",\"errors\":[");
    for (size_t i = 0; i < problem->error_count; i++) {
        const struct schema_error *error = &problem->errors[i];
        if (i > 0)
            buf_add_char(out, ',');
        ADD(out, "{\"pointer\":");
        add_text(out, error->pointer);
        ADD(out, ",\"message\":");
        add_text(out, error->message);
        ADD(out, ",\"keyword\":");
        add_text(out, error->keyword);
        buf_add_char(out, '}');
    }
    buf_add_char(out, ']');
}

static void problem_differing(struct buf *out, const struct problem_document *problem)
{
    ADD(out, ",\"differing\":[");
    for (size_t i = 0; i < problem->differing_count; i++) {
        if (i > 0)
            buf_add_char(out, ',');
        add_text(out, problem->differing[i]);
    }
    buf_add_char(out, ']');
}

enum problem_type shape_refusal_type(const struct claims_refusal *refusal)
{
    switch (refusal->verdict) {
    case CLAIMS_ENTITY: return PROBLEM_ENTITY_BUSY;
    case CLAIMS_WINDOW: return PROBLEM_WINDOW;
    case CLAIMS_BUDGET: return PROBLEM_BUDGET;
    case CLAIMS_GUARD:
    case CLAIMS_PASS:
    case CLAIMS_WAIT:
    case CLAIMS_LOOK: break;
    }
    return PROBLEM_GUARDED;
}

int64_t shape_refusal_wait_ms(const struct claims_refusal *refusal, int64_t now_ms)
{
    bool told = refusal->verdict == CLAIMS_WINDOW || refusal->verdict == CLAIMS_BUDGET;
    return told && refusal->until_ms > now_ms ? refusal->until_ms - now_ms : 0;
}

static void problem_refusal(struct buf *out, const struct claims_refusal *refusal)
{
    if (refusal->operation) {
        ADD(out, ",\"operation_id\":");
        add_plain(out, refusal->operation);
        ADD(out, ",\"operation\":\"/v1/operations/");
        buf_add_text(out, refusal->operation);
        buf_add_char(out, '"');
    }
    if (refusal->type) {
        ADD(out, ",\"entity\":{\"type\":");
        add_text(out, refusal->type);
        ADD(out, ",\"id\":");
        add_text(out, refusal->id);
        buf_add_char(out, '}');
    }
    if (refusal->budget) {
        ADD(out, ",\"budget\":");
        add_text(out, refusal->budget);
    }
    if (refusal->verdict == CLAIMS_WINDOW) {
        ADD(out, ",\"at\":");
        shape_time(out, refusal->at_ms);
        ADD(out, ",\"until\":");
        shape_time(out, refusal->until_ms);
        ADD(out, ",\"override\":");
        add_text(out, refusal->overridable ? "with_reason" : "denied");
    }
}

void shape_problem(struct buf *out, const struct problem_document *problem)
{
    ADD(out, "{\"type\":\"urn:onced:problem:");
    buf_add_text(out, problem_type_name(problem->type));
    ADD(out, "\",\"title\":");
    add_plain(out, problem_type_title(problem->type));
    ADD(out, ",\"status\":");
    add_int(out, problem_type_status(problem->type));
    if (problem->detail && problem->detail[0]) {
        ADD(out, ",\"detail\":");
        add_text(out, problem->detail);
    }
    if (problem->pointer) {
        ADD(out, ",\"pointer\":");
        add_text(out, problem->pointer);
    }
    if (problem->op && problem->op->id[0])
        problem_operation(out, problem->op->id, problem->op->state);
    else if (problem->tombstone)
        problem_operation(out, problem->tombstone->operation, problem->tombstone->state);
    if (problem->principal) {
        ADD(out, ",\"principal\":");
        add_text(out, problem->principal);
    }
    if (problem->errors)
        problem_errors(out, problem);
    if (problem->differing)
        problem_differing(out, problem);
    if (problem->refusal)
        problem_refusal(out, problem->refusal);
    if (problem->version) {
        ADD(out, ",\"version\":");
        add_int(out, problem->version);
    }
    if (problem->retry_after_ms) {
        ADD(out, ",\"retry_after_ms\":");
        add_int(out, problem->retry_after_ms);
    }
    buf_add_char(out, '}');
}
