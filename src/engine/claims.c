/* What a call claims (design 9), as far as it needs the engine: its entities are read, the guards of its tool are run
 * on what was found, and a planned operation whose turn has come gets its entities or waits for them.
 *
 *   admission:  look ─► guards ─► ledger admits, unless the entities have changed since ─► look again (bounded)
 *   its turn:   look ─┬─ holds them ─► guards ─┬─► on to the request
 *                     │                        └─► rejected (policy)
 *                     └─ does not ─► asks: the ledger gives them and wakes it, or lets it into the queues
 *
 * Attributes change with the success of operations that hold the entity, and with late evidence of those that no longer
 * do. So the first request carries what the guards have seen: the ledger refuses it when that has changed since
 * (waiting for a connection or an executor may take long), and they look again. */
#include "adapter/jq.h"
#include "base/log.h"
#include "base/mark.h"
#include "engine/internal.h"

#include <assert.h>

struct look {
    struct ledger_request request;
    struct flight *flight;
    struct claims *claims;
    void (*then)(struct flight *flight, struct look *look);
};

static bool has_guards(const struct flight *flight)
{
    return flight->tool && flight->tool->claims && flight->tool->claims->guard_count > 0;
}

/* ---- guards ---- */

static const char *message_of(const struct guard_rule *guard, const struct json *input, struct arena *arena)
{
    struct buf text;
    struct err err = {0};
    buf_init(&text, 0);
    const char *out;
    if (template_fill(guard->message, claims_message_values(arena, input), TEMPLATE_PLAIN, &text, &err))
        out = arena_printf(arena, "%s (%s)", template_text(guard->message), err.text);
    else
        out = arena_copy_str(arena, buf_str(&text));
    buf_release(&text);
    return out;
}

/* The words of the first guard that refuses, or NULL. A guard that can not be judged refuses. */
static const char *refusing_guard(struct flight *flight, const struct look *look, const struct json *arguments)
{
    const struct tool_claims *rules = flight->tool->claims;
    const struct ledger_entities *found = &look->request.entities;
    struct arena *arena = &flight->arena;
    struct str attributes[CLAIMS_ENTITIES_MAX];
    for (size_t i = 0; i < found->count; i++)
        attributes[i] = found->entities[i].attributes;
    const struct json *input = claims_guard_input(arena, look->claims, attributes, arguments);
    for (size_t i = 0; i < rules->guard_count; i++) {
        struct err err = {0};
        bool refuses;
        if (jq_program_test((struct jq_program *)rules->guards[i].program, input, &refuses, &err))
            return arena_printf(arena, "guard %zu of tool %s can not be judged: %s", i + 1, flight->tool->name,
                                err.text);
        if (refuses)
            return message_of(&rules->guards[i], input, arena);
    }
    return NULL;
}

/* ---- looking ---- */

static void looked(struct ledger_request *request)
{
    struct look *look = request->user;
    look->then(look->flight, look);
}

static void look_at(struct flight *flight, struct claims *claims,
                    void (*then)(struct flight *flight, struct look *look))
{
    struct look *look = arena_zero(&flight->arena, sizeof *look);
    look->flight = flight;
    look->claims = claims;
    look->then = then;
    look->request.command = LEDGER_ENTITIES;
    look->request.arena = &flight->arena;
    look->request.user = look;
    look->request.done = looked;
    look->request.entities = (struct ledger_entities){.tenant = flight->op.tenant, .of = claims};
    engine_submit(flight->engine, &look->request);
}

/* ---- admission ---- */

enum err_code flight_claim(struct flight *flight, const char *override_reason, struct err *err)
{
    const struct tool_claims *rules = flight->tool->claims;
    struct arena *arena = &flight->arena;
    struct admission *admission = &flight->request.admit.admission;
    struct claims *claims = arena_zero(arena, sizeof *claims);
    enum err_code code = claims_of_call(rules, &flight->op, flight->arguments, arena_copy_text(arena, override_reason),
                                        arena, claims, err);
    if (code)
        return code;
    admission->claims = claims;
    flight->op.claims = claims_write(arena, claims);
    return ERR_NONE;
}

static void admission_looked(struct flight *flight, struct look *look)
{
    struct claims *claims = look->claims;
    struct ledger_request *admit = &flight->request;
    if (look->request.code) { /* as if the admission itself had failed */
        admit->code = look->request.code;
        admit->err = look->request.err;
        admit->done(admit);
        return;
    }
    for (size_t i = 0; i < claims->entity_count; i++)
        claims->entities[i].seen_rev = look->request.entities.entities[i].rev;
    claims->guard = refusing_guard(flight, look, flight->arguments);
    MARK(guards_judged);
    engine_request_ended(flight->engine);
    engine_submit(flight->engine, admit);
}

bool flight_look_first(struct flight *flight)
{
    struct admission *admission = &flight->request.admit.admission;
    if (!admission->claims || !has_guards(flight))
        return false;
    look_at(flight, admission->claims, admission_looked);
    return true;
}

bool flight_look_again(struct flight *flight)
{
    struct admission *admission = &flight->request.admit.admission;
    if (++flight->looks >= GUARD_LOOKS_MAX)
        return false;
    admission->op->key_version = 1; /* as identity left them */
    admission->op->previous = NULL;
    flight->phase = PHASE_ADMIT;
    look_at(flight, admission->claims, admission_looked);
    return true;
}

/* ---- its turn ---- */

void flight_looked(struct flight *flight)
{
    if (has_guards(flight))
        flight->seen = flight->request.admit.admission.claims;
}

bool flight_must_look(const struct flight *flight)
{
    const struct operation *op = &flight->op;
    return !flight->seen && has_guards(flight) && claims_want_entities(op->claims) && op->attempts == 0 &&
           (op->state == STATE_PENDING_DISPATCH || op->state == STATE_FAILED_RETRYABLE);
}

static bool holds_all(const struct flight *flight, const struct look *look)
{
    const struct ledger_entities *found = &look->request.entities;
    for (size_t i = 0; i < found->count; i++)
        if (!claims_holds(&flight->op, found->entities[i].holder))
            return false;
    return true;
}

static void turn_looked(struct flight *flight, struct look *look)
{
    struct engine *engine = flight->engine;
    engine_request_ended(engine);
    flight->phase = PHASE_NEW;
    if (look->request.code) { /* later: the row stays ours until its lease ends, and is claimed again then */
        log_message(LOG_ERROR, "ledger", "%s: %s", flight->op.id, look->request.err.text);
        flight_decided(flight, REPLY_UNAVAILABLE, &look->request.err);
        engine_plan(engine, flight->durable.wake_at_ms);
        flight_free(flight);
        return;
    }
    if (flight->op.state == STATE_PLANNED && !holds_all(flight, look)) {
        struct step_input in = {.kind = STEP_AWAIT_ENTITY};
        flight_step(flight, &in, AFTER_GO_ON, NULL);
        return;
    }
    const char *refusal = has_guards(flight) ? refusing_guard(flight, look, flight_arguments(flight)) : NULL;
    if (refusal) {
        struct step_input in = {.kind = STEP_REFUSE, .note = refusal};
        flight_step(flight, &in, AFTER_GO_ON, NULL);
        return;
    }
    for (size_t i = 0; i < look->claims->entity_count; i++)
        look->claims->entities[i].seen_rev = look->request.entities.entities[i].rev;
    flight->seen = has_guards(flight) ? look->claims : NULL;
    MARK(entities_held);
    flight_want_send(flight);
}

void flight_take_turn(struct flight *flight)
{
    struct claims *claims = arena_zero(&flight->arena, sizeof *claims);
    struct err err = {0};
    if (!claims_want_entities(flight->op.claims)) {
        flight_want_send(flight);
        return;
    }
    if (claims_read(&flight->arena, flight->op.claims, claims, &err)) { /* damage: never sent unclaimed */
        struct step_input in = {.kind = STEP_REFUSE, .note = arena_copy_text(&flight->arena, err.text)};
        flight_step(flight, &in, AFTER_GO_ON, NULL);
        return;
    }
    flight->phase = PHASE_FETCH;
    look_at(flight, claims, turn_looked);
}
