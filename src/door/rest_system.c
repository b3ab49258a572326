/* Tools, incidents, figures, health. */
#include "door/ask.h"
#include "door/rest.h"

#include <string.h>

/* ---- incidents ---- */

static bool incident_id_valid(const char *id)
{
    return strncmp(id, "in_", 3) == 0 && ulid_valid(id + 3);
}

static void show_incidents(struct exchange *exchange, struct ledger_request *request)
{
    struct buf *out = &exchange->answer;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such incident");
        return;
    }
    buf_add_text(out, "{\"incidents\":[");
    for (size_t i = 0; i < request->incidents.count; i++) {
        if (i > 0)
            buf_add_char(out, ',');
        shape_incident(out, &request->incidents.incidents[i]);
    }
    buf_add_char(out, ']');
    rest_write_next(exchange, request->incidents.next);
    buf_add_char(out, '}');
    exchange_send(exchange, 200);
}

void rest_incidents(struct exchange *exchange)
{
    size_t limit;
    const char *cursor;
    struct str open = rest_query(exchange, "open");
    if (open.p && !str_is(open, "true") && !str_is(open, "false")) {
        rest_refuse(exchange, PROBLEM_MALFORMED, "the parameter \"open\" must be true or false");
        return;
    }
    if (!rest_page(exchange, incident_id_valid, &limit, &cursor))
        return;
    struct ledger_request *request = ask_new(exchange, LEDGER_INCIDENTS);
    request->incidents.tenant = exchange->caller.tenant;
    request->incidents.open_only = str_is(open, "true");
    request->incidents.before = cursor;
    request->incidents.limit = limit;
    ask(exchange, request, show_incidents);
}

static void acknowledged(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such incident");
        return;
    }
    shape_incident(&exchange->answer, &request->acknowledge.result);
    exchange_send(exchange, 200);
}

void rest_acknowledge(struct exchange *exchange)
{
    if (!incident_id_valid(exchange->params[0])) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such incident: an id is in_ and 26 characters");
        return;
    }
    struct ledger_request *request = ask_new(exchange, LEDGER_ACKNOWLEDGE);
    request->acknowledge.tenant = exchange->caller.tenant;
    request->acknowledge.incident = exchange->params[0];
    request->acknowledge.by = exchange->caller.principal;
    request->acknowledge.now_ms = exchange_now_ms(exchange);
    ask(exchange, request, acknowledged);
}

/* ---- tools ---- */

static const char *idempotent_by_name(enum idempotent_by by)
{
    switch (by) {
    case IDEMPOTENT_BY_KEY: return "key";
    case IDEMPOTENT_BY_PRECONDITION: return "precondition";
    case IDEMPOTENT_BY_NATURE: return "nature";
    }
    return "";
}

static const char *share_name(const struct tool *tool)
{
    if (tool->share == SHARE_DEFAULT)
        return tool->key ? "tenant" : "principal";
    return tool->share == SHARE_TENANT ? "tenant" : "principal";
}

static const char *repeat_name(enum repeat_rule rule)
{
    switch (rule) {
    case REPEAT_ALLOWED: return "allowed";
    case REPEAT_WITH_APPROVAL: return "with_approval";
    case REPEAT_DENIED: return "denied";
    }
    return "";
}

static void write_retry(struct json_out *out, const struct tool *tool)
{
    json_out_name(out, "retry");
    json_out_object(out);
    json_out_member_int(out, "attempts", tool->retry.attempts_max);
    json_out_member_int(out, "total_ms", tool->retry.total_ms);
    json_out_member_int(out, "backoff_ms", tool->retry.backoff_ms);
    json_out_member_int(out, "backoff_max_ms", tool->retry.backoff_max_ms);
    json_out_end_object(out);
}

static void write_reconcile(struct json_out *out, const struct tool *tool)
{
    const struct reconcile_policy *policy = &tool->reconcile;
    json_out_name(out, "reconcile");
    json_out_object(out);
    json_out_name(out, "strategies");
    json_out_array(out);
    for (unsigned i = 0; i < policy->strategy_count; i++)
        json_out_text(out, strategy_name(policy->strategies[i]));
    json_out_end_array(out);
    json_out_member_int(out, "settle_ms", policy->settle_ms);
    json_out_member_int(out, "absent_times", policy->absent_times);
    json_out_member_int(out, "interval_ms", policy->interval_ms);
    json_out_member_int(out, "give_up_ms", policy->give_up_ms);
    json_out_end_object(out);
}

static void write_identity(struct json_out *out, const struct tool *tool)
{
    json_out_name(out, "key");
    json_out_text(out, tool->key ? template_text(tool->key) : NULL);
    json_out_member_text(out, "identity", tool->identity == IDENTITY_CALLER ? "caller" : "any");
    json_out_member_text(out, "step_identity", tool->step_identity == STEP_PER_STEP ? "per_step" : "per_arguments");
    json_out_member_text(out, "on_mismatch", tool->on_mismatch == MISMATCH_CONFLICT ? "conflict" : "replay");
    json_out_member_text(out, "share_result", share_name(tool));
    json_out_member_int(out, "repeat_window_ms", tool->repeat_window_ms);
    json_out_member_text(out, "repeat", repeat_name(tool->repeat));
    json_out_member_text(out, "while_in_doubt", tool->in_doubt == IN_DOUBT_HOLD ? "hold" : "allow");
}

static void write_policy(struct json_out *out, const struct tool *tool)
{
    json_out_name(out, "policy");
    json_out_object(out);
    write_identity(out, tool);
    write_retry(out, tool);
    write_reconcile(out, tool);
    json_out_member_int(out, "wait_ms", tool->wait_ms);
    json_out_member_int(out, "retain_ms", tool->retain_ms);
    json_out_member_int(out, "cache_ms", tool->cache_ms);
    json_out_member_int(out, "result_bytes_max", (int64_t)tool->result_bytes_max);
    json_out_member_bool(out, "audit", tool->audit);
    json_out_end_object(out);
}

static void write_tool(struct json_out *out, const struct tool *tool)
{
    json_out_object(out);
    json_out_member_text(out, "name", tool->name);
    json_out_name(out, "title");
    json_out_text(out, tool->title);
    json_out_name(out, "description");
    json_out_text(out, tool->description);
    json_out_member_text(out, "version", tool->version ? tool->version : "1");
    json_out_member_text(out, "class", tool_class_name(tool->class));
    json_out_name(out, "idempotent_by");
    json_out_text(out, tool->class == CLASS_EXTERNAL_IDEMPOTENT ? idempotent_by_name(tool->idempotent_by) : NULL);
    json_out_name(out, "provider");
    json_out_text(out, tool->provider ? tool->provider->name : NULL);
    json_out_name(out, "input_schema");
    if (tool->input_schema_json)
        json_out_value(out, tool->input_schema_json);
    else
        json_out_raw(out, STR("{\"type\":\"object\"}"));
    write_policy(out, tool);
    if (tool->playbook_count > 0)
        rest_write_playbooks(out, tool);
    json_out_end_object(out);
}

void rest_tools(struct exchange *exchange)
{
    const struct registry *registry = engine_registry(exchange->engine);
    struct json_out out;
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_name(&out, "tools");
    json_out_array(&out);
    for (size_t i = 0; i < registry_tool_count(registry); i++)
        if (caller_may_use(registry, exchange->caller.principal, exchange->caller.scope, registry_tool_at(registry, i)))
            write_tool(&out, registry_tool_at(registry, i));
    json_out_end_array(&out);
    json_out_member_text(&out, "policy_version", registry_policy_version(registry));
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

void rest_tool_by_name(struct exchange *exchange)
{
    const struct tool *tool = rest_tool(exchange, exchange->params[0]);
    struct json_out out;
    if (!tool) {
        rest_no_tool(exchange, exchange->params[0]);
        return;
    }
    if (!rest_may_use(exchange, tool))
        return;
    json_out_init(&out, &exchange->answer);
    write_tool(&out, tool);
    exchange_send(exchange, 200);
}

/* ---- figures ---- */

static void write_ledger_stats(struct json_out *out, const struct ledger_stats *stats)
{
    json_out_name(out, "ledger");
    json_out_object(out);
    json_out_name(out, "operations");
    json_out_object(out);
    for (unsigned i = 0; i < STATE_COUNT; i++)
        json_out_member_int(out, state_name((enum state)i), stats->by_state[i]);
    json_out_end_object(out);
    json_out_name(out, "oldest_unknown_at");
    if (stats->oldest_unknown_ms) {
        char text[ENV_TIME_SIZE];
        env_time_text(stats->oldest_unknown_ms, text);
        json_out_text(out, text);
    } else {
        json_out_null(out);
    }
    json_out_member_int(out, "open_incidents", stats->open_incidents);
    json_out_member_int(out, "commits", stats->commits);
    json_out_member_int(out, "commands", stats->commands);
    json_out_member_int(out, "file_bytes", stats->file_bytes);
    json_out_end_object(out);
}

static void write_engine_stats(struct json_out *out, const struct engine_stats *stats)
{
    json_out_name(out, "engine");
    json_out_object(out);
    json_out_member_int(out, "flights", (int64_t)stats->flights);
    json_out_member_int(out, "waiters", (int64_t)stats->waiters);
    json_out_member_int(out, "calls", stats->calls);
    json_out_member_int(out, "admitted", stats->admitted);
    json_out_member_int(out, "joined", stats->joined);
    json_out_member_int(out, "replayed", stats->replayed);
    json_out_member_int(out, "conflicts", stats->conflicts);
    json_out_member_int(out, "held", stats->held);
    json_out_member_int(out, "refused", stats->refused);
    json_out_member_int(out, "attempts", stats->attempts);
    json_out_member_int(out, "lookups", stats->lookups);
    json_out_member_int(out, "reads", stats->reads);
    json_out_member_int(out, "unavailable", stats->unavailable);
    json_out_end_object(out);
}

static void show_stats(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, "no figures");
        return;
    }
    struct engine_stats engine = engine_stats(exchange->engine);
    struct json_out out;
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_member_text(&out, "version", ONCED_VERSION);
    write_ledger_stats(&out, &request->stats);
    write_engine_stats(&out, &engine);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

void rest_stats(struct exchange *exchange)
{
    ask(exchange, ask_new(exchange, LEDGER_STATS), show_stats);
}

/* ---- health ---- */

void rest_health(struct exchange *exchange)
{
    buf_add_text(&exchange->answer, "{\"status\":\"ok\",\"version\":\"" ONCED_VERSION "\"}");
    exchange_send(exchange, 200);
}

static void show_ready(struct exchange *exchange)
{
    struct engine *engine = exchange->engine;
    const struct door_parts *parts = exchange_parts(exchange);
    struct json_out out;
    bool recovering = !engine_recovered(engine), stopping = engine_stopping(engine) || parts->stopping;
    const char *refusal = parts->ledger_failed ? parts->ledger_text : engine_ledger_refusal(engine);
    bool ready = !recovering && !stopping && !refusal;
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_member_text(&out, "status", ready ? "ready" : "not_ready");
    json_out_name(&out, "reasons");
    json_out_array(&out);
    if (recovering)
        json_out_text(&out, "recovering what a former process left");
    if (stopping)
        json_out_text(&out, "stopping");
    if (refusal)
        json_out_text(&out, arena_printf(&exchange->arena, "the ledger does not work: %s", refusal));
    json_out_end_array(&out);
    json_out_end_object(&out);
    exchange->retry_after_s = ready ? 0 : 1;
    exchange_send(exchange, ready ? 200 : 503);
}

static void ledger_asked(struct exchange *exchange, struct ledger_request *request)
{
    struct door_parts *parts = exchange_parts(exchange);
    parts->ledger_asked_ms = exchange_now_ms(exchange);
    parts->ledger_failed = request->code != ERR_NONE;
    snprintf(parts->ledger_text, sizeof parts->ledger_text, "%s", request->err.text);
    show_ready(exchange);
}

/* Nobody needs a token for this, so the ledger is asked at most once a second. */
#define READY_CACHE_MS 1000

void rest_ready(struct exchange *exchange)
{
    const struct door_parts *parts = exchange_parts(exchange);
    int64_t age_ms = exchange_now_ms(exchange) - parts->ledger_asked_ms;
    if (parts->ledger_asked_ms && age_ms >= 0 && age_ms < READY_CACHE_MS)
        show_ready(exchange);
    else
        ask(exchange, ask_new(exchange, LEDGER_STATS), ledger_asked);
}

void rest_openapi(struct exchange *exchange)
{
    exchange->fixed = exchange_parts(exchange)->openapi;
    exchange_send(exchange, 200);
}
