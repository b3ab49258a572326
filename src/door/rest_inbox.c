/* POST /v1/inbox/{source}: webhooks of providers; GET /v1/inbox…: what came of them. */
#include "door/ask.h"
#include "door/inbox_rules.h"
#include "door/rest.h"

/* ---- a webhook ---- */

static struct inbox_message message_of(struct exchange *exchange)
{
    return (struct inbox_message){
        .body = buf_str(&exchange->body),
        .stripe = exchange_header(exchange, "stripe-signature"),
        .hub = exchange_header(exchange, "x-hub-signature-256"),
        .hub_event = exchange_header(exchange, "x-github-event"),
        .webhook_id = exchange_header(exchange, "webhook-id"),
        .webhook_time = exchange_header(exchange, "webhook-timestamp"),
        .webhook_sign = exchange_header(exchange, "webhook-signature"),
    };
}

static void answered(void *user, enum err_code code, const struct err *err, const struct inbound *event, bool duplicate)
{
    struct exchange *exchange = user;
    exchange_hold(exchange, -1);
    if (code) {
        exchange->retry_after_s = 1;
        rest_refuse(exchange, PROBLEM_UNAVAILABLE, arena_copy_text(&exchange->arena, err->text));
        return;
    }
    struct json_out out;
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_member_text(&out, "id", event->id);
    json_out_member_bool(&out, "duplicate", duplicate);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

void rest_inbox_receive(struct exchange *exchange)
{
    const struct inbox_source *source = registry_source(engine_registry(exchange->engine), exchange->params[0]);
    struct inbox_message message = message_of(exchange);
    struct inbound event;
    struct err err = {0};
    if (!source) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "there is no such source of events");
        return;
    }
    if (message.body.n > INBOX_BODY_BYTES_MAX) {
        rest_refuse(exchange, PROBLEM_TOO_LARGE,
                    arena_printf(&exchange->arena, "an event has at most %d bytes", INBOX_BODY_BYTES_MAX));
        return;
    }
    if (inbox_verify(source->rules, &message, exchange_now_ms(exchange), &err)) {
        rest_refuse(exchange, PROBLEM_BAD_SIGNATURE, arena_copy_text(&exchange->arena, err.text));
        return;
    }
    if (inbox_read(source->rules, source->name, &message, &exchange->arena, &event, &err)) {
        rest_refuse(exchange, PROBLEM_MALFORMED, arena_copy_text(&exchange->arena, err.text));
        return;
    }
    exchange_hold(exchange, 1);
    engine_inbound(exchange->engine, &event, answered, exchange);
}

/* ---- for people ---- */

/* A source speaks for one tenant; what is left of one that the registry no longer has is the operators' of the default
 * tenant. */
static bool of_caller(struct exchange *exchange, const char *name)
{
    const struct inbox_source *source = registry_source(engine_registry(exchange->engine), name);
    const char *tenant = source ? source->tenant : INBOX_TENANT_DEFAULT;
    return !tenant || !exchange->caller.tenant || text_equal(tenant, exchange->caller.tenant);
}

static bool event_id_valid(const char *id)
{
    return strncmp(id, "ev_", 3) == 0 && ulid_valid(id + 3);
}

static void write_time(struct json_out *out, const char *name, int64_t at_ms)
{
    char text[ENV_TIME_SIZE];
    if (at_ms == 0)
        return;
    env_time_text(at_ms, text);
    json_out_member_text(out, name, text);
}

static void write_forward(struct json_out *out, const struct forward *forward)
{
    json_out_name(out, "forward");
    json_out_object(out);
    json_out_member_text(out, "status", forward_status_name(forward->status));
    json_out_member_int(out, "tries", forward->tries);
    write_time(out, forward->status == FORWARD_DUE ? "next_try" : "since", forward->at_ms);
    if (forward->detail)
        json_out_member_text(out, "last_failure", forward->detail);
    json_out_end_object(out);
}

static void write_event(struct buf *buf, const struct inbound *event, bool whole)
{
    struct json_out out;
    json_out_init(&out, buf);
    json_out_object(&out);
    json_out_member_text(&out, "id", event->id);
    json_out_member_text(&out, "source", event->source);
    json_out_member_text(&out, "event", event->event);
    if (event->type)
        json_out_member_text(&out, "type", event->type);
    json_out_member_text(&out, "status", inbound_status_name(event->status));
    json_out_member_text(&out, "outcome", inbound_outcome_name(event->outcome));
    json_out_member_text(&out, "match", inbound_match_name(event->match));
    if (event->value)
        json_out_member_text(&out, "value", event->value);
    if (event->external_id)
        json_out_member_text(&out, "external_id", event->external_id);
    if (event->operation)
        json_out_member_text(&out, "operation", event->operation);
    write_time(&out, "created", event->created_ms);
    write_time(&out, "received", event->received_ms);
    write_time(&out, "settled", event->settled_ms);
    json_out_member_int(&out, "duplicates", event->duplicates);
    write_time(&out, "last_duplicate", event->duplicate_ms);
    if (event->forward.status != FORWARD_NONE)
        write_forward(&out, &event->forward);
    if (whole && event->result.p) {
        json_out_name(&out, "result");
        json_out_raw(&out, event->result);
    }
    if (whole) {
        json_out_name(&out, "body");
        json_out_str(&out, event->body);
    }
    json_out_end_object(&out);
}

static void show_events(struct exchange *exchange, struct ledger_request *request)
{
    struct buf *out = &exchange->answer;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such event");
        return;
    }
    buf_add_text(out, "{\"events\":[");
    size_t shown = 0;
    for (size_t i = 0; i < request->inbox_list.count; i++) {
        const struct inbound *event = &request->inbox_list.events[i];
        if (!of_caller(exchange, event->source))
            continue;
        if (shown++ > 0)
            buf_add_char(out, ',');
        write_event(out, event, false);
    }
    buf_add_char(out, ']');
    rest_write_next(exchange, request->inbox_list.next);
    buf_add_char(out, '}');
    exchange_send(exchange, 200);
}

void rest_inbox(struct exchange *exchange)
{
    size_t limit;
    const char *cursor;
    struct str status = rest_query(exchange, "status"), source = rest_query(exchange, "source"),
               operation = rest_query(exchange, "operation");
    struct str forward = rest_query(exchange, "forward");
    enum inbound_status only = INBOUND_WAITING;
    enum forward_status forwarded = FORWARD_NONE;
    if (status.p && !inbound_status_from_name(status, &only)) {
        rest_refuse(exchange, PROBLEM_MALFORMED, "the parameter \"status\" must be waiting, applied or ignored");
        return;
    }
    if (forward.p && !forward_status_from_name(forward, &forwarded)) {
        rest_refuse(exchange, PROBLEM_MALFORMED,
                    "the parameter \"forward\" must be none, due, delivered or undelivered");
        return;
    }
    if (!rest_page(exchange, event_id_valid, &limit, &cursor))
        return;
    struct ledger_request *request = ask_new(exchange, LEDGER_INBOX_LIST);
    request->inbox_list = (struct ledger_inbox_list){
        .forwards = forward.p ? 1u << forwarded : 0,
        .source = arena_copy_str(&exchange->arena, source),
        .operation = arena_copy_str(&exchange->arena, operation),
        .statuses = status.p ? 1u << only : 0,
        .before = cursor,
        .limit = limit,
    };
    ask(exchange, request, show_events);
}

static void show_event(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such event");
        return;
    }
    if (!of_caller(exchange, request->inbox_list.events[0].source)) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such event");
        return;
    }
    write_event(&exchange->answer, &request->inbox_list.events[0], true);
    exchange_send(exchange, 200);
}

void rest_inbox_event(struct exchange *exchange)
{
    if (!event_id_valid(exchange->params[0])) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such event: an id is ev_ and 26 characters");
        return;
    }
    struct ledger_request *request = ask_new(exchange, LEDGER_INBOX_LIST);
    request->inbox_list = (struct ledger_inbox_list){.id = exchange->params[0], .limit = 1};
    ask(exchange, request, show_event);
}

/* ---- once more ---- */

static void sent_again(struct exchange *exchange, struct ledger_request *request)
{
    if (request->code == ERR_STALE) {
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, "the event's forwarding has gone on meanwhile: look again");
        return;
    }
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such event");
        return;
    }
    struct inbound *event = exchange->user;
    event->forward = request->forward_move.to;
    engine_forward_due(exchange->engine);
    write_event(&exchange->answer, event, false);
    exchange_send(exchange, 202);
}

static void send_again(struct exchange *exchange, struct ledger_request *request)
{
    struct inbound *event = request->code ? NULL : &request->inbox_list.events[0];
    if (request->code || !of_caller(exchange, event->source)) {
        if (request->code)
            rest_ledger_problem(exchange, request, "no such event");
        else
            rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such event");
        return;
    }
    const struct inbox_source *source = registry_source(engine_registry(exchange->engine), event->source);
    if (!source || !source->forward) {
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE, "the registry file does not say where this source's events go");
        return;
    }
    if (event->forward.status != FORWARD_UNDELIVERED) {
        rest_refuse(exchange, PROBLEM_NOT_POSSIBLE,
                    arena_printf(&exchange->arena, "it is %s: only what is undelivered is sent again",
                                 event->forward.status == FORWARD_NONE ? "not forwarded"
                                                                       : forward_status_name(event->forward.status)));
        return;
    }
    exchange->user = event;
    struct ledger_request *move = ask_new(exchange, LEDGER_FORWARD_MOVE);
    move->forward_move = (struct ledger_forward_move){
        .id = event->id,
        .was = event->forward,
        .to = forward_again(&event->forward, source->forward, exchange_now_ms(exchange)),
    };
    ask(exchange, move, sent_again);
}

void rest_inbox_forward(struct exchange *exchange)
{
    if (!event_id_valid(exchange->params[0])) {
        rest_refuse(exchange, PROBLEM_NOT_FOUND, "no such event: an id is ev_ and 26 characters");
        return;
    }
    struct ledger_request *request = ask_new(exchange, LEDGER_INBOX_LIST);
    request->inbox_list = (struct ledger_inbox_list){.id = exchange->params[0], .limit = 1};
    ask(exchange, request, send_again);
}

/* ---- figures ---- */

static void show_counts(struct exchange *exchange, struct ledger_request *request)
{
    struct json_out out;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no counts");
        return;
    }
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_name(&out, "sources");
    json_out_array(&out);
    for (size_t i = 0; i < request->inbox_counts.count; i++) {
        const struct inbox_counts *counts = &request->inbox_counts.sources[i];
        if (!of_caller(exchange, counts->source))
            continue;
        json_out_object(&out);
        json_out_member_text(&out, "source", counts->source);
        json_out_member_int(&out, "events", counts->events);
        json_out_member_int(&out, "duplicates", counts->duplicates);
        json_out_member_int(&out, "applied", counts->applied);
        json_out_member_int(&out, "ignored", counts->ignored);
        json_out_member_int(&out, "waiting", counts->events - counts->applied - counts->ignored - counts->dropped);
        json_out_member_int(&out, "dropped", counts->dropped);
        json_out_end_object(&out);
    }
    json_out_end_array(&out);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

void rest_inbox_counts(struct exchange *exchange)
{
    ask(exchange, ask_new(exchange, LEDGER_INBOX_COUNTS), show_counts);
}
