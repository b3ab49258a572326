/* Entities and budgets as they stand (design 9), and an operator's release of an entity. */
#include "core/claims.h"
#include "door/ask.h"
#include "door/call_body.h"
#include "door/rest.h"

#include <string.h>

/* ---- entities ---- */

/* What operations left behind: name → value, and who set it. */
static void write_attributes(struct json_out *out, struct str text, struct arena *arena)
{
    struct json *attributes;
    json_out_name(out, "attributes");
    json_out_object(out);
    if (text.p && json_parse(arena, text, NULL, &attributes, NULL) == ERR_NONE && attributes->type == JSON_OBJECT)
        for (uint32_t i = 0; i < attributes->count; i++) {
            json_out_name(out, arena_copy_str(arena, attributes->members[i].name));
            json_out_value(out, &attributes->members[i].value);
        }
    json_out_end_object(out);
}

static void write_time(struct json_out *out, const char *name, int64_t ms)
{
    struct buf time;
    buf_init(&time, 0);
    shape_time(&time, ms);
    json_out_name(out, name);
    json_out_raw(out, buf_str(&time));
    buf_release(&time);
}

static void write_entity(struct json_out *out, const struct ledger_entity *entity, struct arena *arena)
{
    json_out_object(out);
    json_out_member_text(out, "type", entity->type);
    json_out_member_text(out, "id", entity->id);
    json_out_name(out, "operation_id"), json_out_text(out, entity->holder);
    write_time(out, "held_at", entity->held_ms);
    json_out_member_int(out, "waiting", (int64_t)entity->waiting);
    write_attributes(out, entity->attributes, arena);
    json_out_name(out, "override"), json_out_raw(out, entity->override);
    json_out_end_object(out);
}

static void show_entities(struct exchange *exchange, struct ledger_request *request)
{
    const struct ledger_entities *found = &request->entities;
    struct json_out out;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no such entity");
        return;
    }
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_name(&out, "entities");
    json_out_array(&out);
    for (size_t i = 0; i < found->count; i++)
        write_entity(&out, &found->entities[i], &exchange->arena);
    json_out_end_array(&out);
    const struct ledger_entity *last = found->count == found->limit ? &found->entities[found->count - 1] : NULL;
    json_out_name(&out, "next");
    json_out_text(&out, last ? arena_printf(&exchange->arena, "%s/%s", last->type, last->id) : NULL);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

static bool entity_cursor_valid(const char *text)
{
    return strchr(text, '/') != NULL;
}

void rest_entities(struct exchange *exchange)
{
    size_t limit;
    const char *cursor;
    struct str all = rest_query(exchange, "all"), type = rest_query(exchange, "type");
    if (all.p && !str_is(all, "true") && !str_is(all, "false")) {
        rest_refuse(exchange, PROBLEM_MALFORMED, "the parameter \"all\" must be true or false");
        return;
    }
    if (!rest_page(exchange, entity_cursor_valid, &limit, &cursor))
        return;
    struct ledger_request *request = ask_new(exchange, LEDGER_ENTITIES);
    request->entities = (struct ledger_entities){
        .tenant = exchange->caller.tenant,
        .type = arena_copy_str(&exchange->arena, type),
        .all = str_is(all, "true"),
        .limit = limit,
    };
    if (cursor) { /* "TYPE/ID"; a type has no "/" */
        const char *slash = strchr(cursor, '/');
        request->entities.after_type = arena_copy_str(&exchange->arena, (struct str){cursor, (size_t)(slash - cursor)});
        request->entities.after_id = slash + 1;
    }
    ask(exchange, request, show_entities);
}

static void released(struct exchange *exchange, struct ledger_request *request)
{
    const struct ledger_entity_release *release = &request->entity_release;
    struct json_out out;
    if (request->code == ERR_STALE) {
        rest_refuse(exchange, PROBLEM_STALE_VERSION, request->err.text);
        return;
    }
    if (request->code) {
        rest_ledger_problem(exchange, request,
                            arena_printf(&exchange->arena, "nobody holds %s %s", release->type, release->id));
        return;
    }
    engine_due(exchange->engine, release->wake_ms);
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_member_text(&out, "type", release->type);
    json_out_member_text(&out, "id", release->id);
    json_out_member_text(&out, "operation_id", release->operation);
    json_out_member_text(&out, "released_by", release->by);
    json_out_member_text(&out, "reason", release->note);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

void rest_entity_release(struct exchange *exchange)
{
    const char *reason = NULL, *operation = NULL;
    const struct body_member members[] = {
        {.name = "reason", .type = BODY_TEXT, .out = &reason, .required = true},
        {.name = "operation_id", .type = BODY_TEXT, .out = &operation},
    };
    if (!rest_body(exchange, members, sizeof members / sizeof *members))
        return;
    if (!reason[0]) {
        rest_refuse(exchange, PROBLEM_MALFORMED, "\"reason\" must not be empty");
        return;
    }
    struct ledger_request *request = ask_new(exchange, LEDGER_ENTITY_RELEASE);
    request->entity_release = (struct ledger_entity_release){
        .tenant = exchange->caller.tenant,
        .type = exchange->params[0],
        .id = exchange->params[1],
        .by = exchange->caller.principal,
        .note = reason,
        .operation = operation,
        .now_ms = exchange_now_ms(exchange),
    };
    ask(exchange, request, released);
}

/* ---- budgets ---- */

static const struct budget *budget_named(const struct exchange *exchange, const char *name)
{
    const struct registry *registry = engine_registry(exchange->engine);
    for (size_t i = 0; i < registry_tool_count(registry); i++) {
        const struct tool_claims *claims = registry_tool_at(registry, i)->claims;
        for (size_t k = 0; claims && k < claims->debit_count; k++)
            if (strcmp(claims->debits[k].budget->name, name) == 0)
                return claims->debits[k].budget;
    }
    return NULL;
}

static bool same_account(const struct ledger_budget_slice *a, const struct ledger_budget_slice *b)
{
    return strcmp(a->budget, b->budget) == 0 && strcmp(a->subject, b->subject) == 0 && strcmp(a->key, b->key) == 0;
}

static void write_budget(struct json_out *out, const struct ledger_budget_slice *account, const struct budget *budget,
                         struct decimal used)
{
    char text[DECIMAL_TEXT_BYTES];
    json_out_object(out);
    json_out_member_text(out, "budget", account->budget);
    json_out_name(out, "principal"), json_out_text(out, account->subject[0] ? account->subject : NULL);
    json_out_name(out, "key"), json_out_text(out, account->key[0] ? account->key : NULL);
    decimal_write(used, text);
    json_out_member_text(out, "used", text);
    decimal_write(budget->limit, text);
    json_out_member_text(out, "limit", text);
    json_out_member_int(out, "per_ms", budget->per_ms);
    json_out_end_object(out);
}

/* Slices come ordered by account. Budgets that the registry no longer has are left out. */
static void show_budgets(struct exchange *exchange, struct ledger_request *request)
{
    const struct ledger_budgets *found = &request->budgets;
    int64_t now_ms = exchange_now_ms(exchange);
    struct json_out out;
    if (request->code) {
        rest_ledger_problem(exchange, request, "no budgets");
        return;
    }
    json_out_init(&out, &exchange->answer);
    json_out_object(&out);
    json_out_name(&out, "budgets");
    json_out_array(&out);
    for (size_t i = 0, end; i < found->count; i = end) {
        const struct ledger_budget_slice *account = &found->slices[i];
        const struct budget *budget = budget_named(exchange, account->budget);
        struct decimal used = decimal_of(0);
        for (end = i; end < found->count && same_account(account, &found->slices[end]); end++)
            if (budget && found->slices[end].until_ms > now_ms - budget->per_ms)
                used = decimal_add(used, found->slices[end].amount);
        if (budget && used.units > 0)
            write_budget(&out, account, budget, used);
    }
    json_out_end_array(&out);
    json_out_end_object(&out);
    exchange_send(exchange, 200);
}

void rest_budgets(struct exchange *exchange)
{
    struct ledger_request *request = ask_new(exchange, LEDGER_BUDGETS);
    request->budgets.tenant = exchange->caller.tenant;
    ask(exchange, request, show_budgets);
}
