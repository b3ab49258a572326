#include "sim/checker.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

/* ---- the model ---- */

struct checker_model *checker_new(struct sim *sim)
{
    struct checker_model *model = mem_zero(sizeof *model);
    model->sim = sim;
    arena_init(&model->arena);
    map_init(&model->by_id);
    map_init(&model->newest_of_tool);
    map_init(&model->holders);
    map_init(&model->events);
    map_init(&model->event_names);
    map_init(&model->entities);
    model->intent_count = check_intents(sim);
    model->intents = arena_zero(&model->arena, (model->intent_count + 1) * sizeof *model->intents);
    for (uint32_t i = 0; i <= model->intent_count; i++)
        model->intents[i].allowed = 1;
    return model;
}

void checker_free(struct checker_model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->row_count; i++)
        free(model->rows[i]->states);
    free(model->rows);
    map_release(&model->by_id);
    map_release(&model->newest_of_tool);
    map_release(&model->holders);
    map_release(&model->events);
    map_release(&model->event_names);
    map_release(&model->entities);
    arena_release(&model->arena);
    free(model);
}

void check_copy(char *out, size_t size, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    if (n >= size)
        n = size - 1;
    if (n)
        memcpy(out, text, n);
    out[n] = '\0';
}

size_t check_joined(char out[CHECK_KEY_SIZE], struct str a, struct str b, struct str c)
{
    const struct str parts[] = {a, b, c};
    size_t n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert(parts[i].n + 1 < CHECK_KEY_SIZE - n);
        if (parts[i].n)
            memcpy(out + n, parts[i].p, parts[i].n);
        n += parts[i].n;
        out[n++] = '\n';
    }
    out[--n] = '\0';
    return n;
}

uint64_t check_digest(struct str text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    if (!text.p)
        return 0;
    for (size_t i = 0; i < text.n; i++)
        hash = (hash ^ (unsigned char)text.p[i]) * UINT64_C(1099511628211);
    return hash | 1;
}

struct check_row *check_find(const struct checker_model *model, const char *operation)
{
    return map_get(&model->by_id, operation);
}

struct check_intent *check_intent_of(struct checker_model *model, uint32_t intent)
{
    return &model->intents[intent <= model->intent_count ? intent : 0];
}

struct check_try *check_try_of(const struct check_row *row, const char *attempt)
{
    struct check_try *try = row->first_try;
    while (try && strcmp(try->id, attempt) != 0)
        try = try->next;
    return try;
}

bool check_excused(struct checker_model *model, const struct check_row *row)
{
    return row->excused_effects > 0 || check_intent_of(model, row->intent)->excused;
}

/* 3.2, 6: what proves by itself that this request had no effect. */
static bool clean(enum outcome outcome)
{
    return outcome == OUTCOME_NOT_SENT || outcome == OUTCOME_NOT_PROCESSED || outcome == OUTCOME_REFUSED;
}

bool check_in_doubt(const struct check_row *row)
{
    for (const struct check_try *try = row->first_try; try; try = try->next)
        if (try->kind == ATTEMPT_CALL && try->number > row->disproved && !clean(try->outcome))
            return true;
    return false;
}

bool check_proven_absent(enum state state)
{
    return state == STATE_FAILED_RETRYABLE || state == STATE_FAILED_PERMANENT || state == STATE_REJECTED;
}

void checker_committed(struct sim *sim, struct gateway *gateway, const struct ledger_request *request)
{
    check_committed(sim->checker, gateway_number(gateway), request);
}

/* ---- requests (design 5) ---- */

/* A look-up may be late: it changes nothing, and what it finds is judged when it is written. A call may not: the end of
 * the lease tells the others that nothing more will leave. */
static void check_held(struct sim *sim, unsigned number, const struct check_row *row, int64_t gateway_ms)
{
    const struct check_gateway *gateway = &sim->checker->gateways[number - 1];
    const char *me = gateway->incarnation;
    if (strcmp(row->owner, me) != 0)
        sim_violated(sim,
                     "5.1, 15 leases are exclusive: %s (intent %u): gw%u sends a call as %s, the row is held by %s",
                     row->id, row->intent, number, me, row->owner[0] ? row->owner : "nobody");
    else if (gateway_ms >= row->lease_until_ms)
        sim_violated(
            sim, "3.3, 15 a lease that has ended: %s (intent %u): gw%u sends a call %lld ms after the end of its lease",
            row->id, row->intent, number, (long long)(gateway_ms - row->lease_until_ms));
}

static void check_same_request(struct sim *sim, struct check_row *row, const struct message *message)
{
    if (!text_equal(row->provider_key, message->provider_key))
        sim_violated(sim, "1 provider key is the same on every attempt: %s: expected %s, sent %s", row->id,
                     row->provider_key, message->provider_key);
    if (message->kind != ATTEMPT_CALL)
        return;
    if (row->arguments && row->arguments != message->arguments)
        sim_violated(sim, "2.6 one operation, one set of arguments: %s sends other ones than before", row->id);
    row->arguments = message->arguments;
}

void checker_sending(struct sim *sim, struct gateway *gateway, const struct message *message, int64_t gateway_ms)
{
    check_sending(sim, gateway_number(gateway), message, gateway_ms);
}

/* The gateway sends by its clock while it holds the lease; another, whose clock is ahead, has taken over just now. What
 * leaves within the spread of the clocks lands within settle, as a late request does. */
static bool lost_by_another_clock(const struct sim *sim, unsigned number, const struct check_row *row,
                                  const struct check_try *try, int64_t gateway_ms)
{
    if (try->outcome == OUTCOME_OPEN) /* claimed, and no more as yet */
        return strcmp(row->former, sim->checker->gateways[number - 1].incarnation) == 0 &&
               gateway_ms < row->former_until_ms && sim->now_ms - row->claimed_ms <= SIM_CLOCK_SPREAD_MS;
    return try->outcome == OUTCOME_LOST && sim->now_ms - try->finished_ms <= SIM_CLOCK_SPREAD_MS;
}

void check_sending(struct sim *sim, unsigned number, const struct message *message, int64_t gateway_ms)
{
    if (message->is_read)
        return;
    struct check_row *row = check_find(sim->checker, message->operation);
    struct check_try *try = row ? check_try_of(row, message->attempt) : NULL;
    if (!row || !try) {
        sim_violated(sim, "5.1 persist, commit, then send: %s of %s leaves gw%u without a committed attempt row",
                     attempt_kind_name(message->kind), message->operation, number);
        return;
    }
    if (try->sent)
        sim_violated(sim, "5.2 one request per attempt row: %s of %s is sent again", try->id, row->id);
    if (try->kind == ATTEMPT_CALL && lost_by_another_clock(sim, number, row, try, gateway_ms)) {
        try->sent = true;
        check_same_request(sim, row, message);
        return;
    }
    if (try->outcome != OUTCOME_OPEN && try->kind == ATTEMPT_CALL)
        sim_violated(sim, "5.1 an attempt that has ended (%s) is sent: %s of %s", outcome_name(try->outcome), try->id,
                     row->id);
    if (message->kind == ATTEMPT_CALL && row->state != STATE_DISPATCHED)
        sim_violated(sim, "5.1 sent while the row says %s: %s (intent %u)", state_name(row->state), row->id,
                     row->intent);
    try->sent = true;
    if (message->kind == ATTEMPT_CALL)
        check_held(sim, number, row, gateway_ms);
    if (message->kind == ATTEMPT_CALL)
        check_step_sending(sim, row);
    check_same_request(sim, row, message);
}

void checker_request(struct sim *sim, const struct message *message, bool copy)
{
    if (message->is_read)
        return;
    struct check_row *row = check_find(sim->checker, message->operation);
    struct check_try *try = row ? check_try_of(row, message->attempt) : NULL;
    if (!try || !try->sent) {
        sim_violated(sim, "5.2 requests at the provider = attempt rows: a %s of %s arrived that no row tells of",
                     attempt_kind_name(message->kind), message->operation);
        return;
    }
    if (try->arrived++ > 0 && !copy)
        sim_violated(sim, "5.2 requests at the provider = attempt rows: %s of %s arrived %u times", try->id, row->id,
                     try->arrived);
}

void checker_answered(struct sim *sim, const struct message *message, enum outcome outcome)
{
    struct check_row *row = message->is_read ? NULL : check_find(sim->checker, message->operation);
    struct check_try *try = row ? check_try_of(row, message->attempt) : NULL;
    if (try && outcome == OUTCOME_SUCCESS)
        try->told = message->gateway;
}

void checker_gateway_died(struct sim *sim, unsigned number)
{
    struct checker_model *model = sim->checker;
    for (size_t i = 0; i < model->row_count; i++)
        for (struct check_try *try = model->rows[i]->first_try; try; try = try->next)
            if (try->told == number)
                try->told = 0;
}

/* ---- effects ---- */

static bool says_nothing_happened(const struct check_row *row)
{
    return check_proven_absent(row->state) || row->state == STATE_PLANNED || row->state == STATE_PENDING_DISPATCH;
}

static void watch_effect(struct sim *sim, const struct message *message, const struct check_intent *intent,
                         const char *external_id, enum sim_fault excuse, bool excused)
{
    const struct sim_watch *watch = sim->options->watch;
    if (!watch || !watch->effect)
        return;
    struct sim_effect_seen seen = {
        .now_ms = sim->now_ms,
        .intent = message->intent,
        .nth = intent->effects,
        .tool = message->tool,
        .operation = message->operation,
        .external_id = external_id,
        .excuse = excuse,
        .excused = excused,
        .allowed = intent->allowed,
    };
    watch->effect(watch->user, &seen);
}

void checker_effect(struct sim *sim, const struct message *message, const char *external_id, enum sim_fault excuse)
{
    struct check_row *row = check_find(sim->checker, message->operation);
    if (!row) /* told by checker_request already */
        return;
    struct check_intent *intent = check_intent_of(sim->checker, row->intent);
    sim->result->effects++;
    intent->effects++;
    if (row->effects < 2)
        check_copy(row->effect_ids[row->effects], EXTERNAL_ID_SIZE, external_id);
    row->effects++;
    if (excuse != SIM_FAULT_COUNT) {
        row->excused_effects++;
        intent->excused_effects++;
    }
    bool excused = check_excused(sim->checker, row);
    if (intent->effects > 1 && excused)
        sim->result->duplicates_excused++;
    watch_effect(sim, message, intent, external_id, excuse, excused);
    if (row->intent > 0 && intent->effects > intent->allowed + intent->excused_effects && !intent->excused)
        sim_violated(sim, "1, 2 one intent, one effect: intent %u has %u effects, %s made the last one (%s)",
                     row->intent, intent->effects, row->id, external_id);
    else if (row->effects > 1 + row->excused_effects && !excused)
        sim_violated(sim, "6 one operation, one effect: %s (intent %u) has %u", row->id, row->intent, row->effects);
    else if (says_nothing_happened(row) && !excused)
        sim_violated(sim, "3.2 \"failed\" means it did not happen: %s (intent %u) is %s (%s), its effect %s landed now",
                     row->id, row->intent, state_name(row->state), reason_name(row->reason), external_id);
}

void checker_excuse(struct sim *sim, uint32_t intent, enum sim_fault excuse)
{
    if (sim_traced(sim))
        sim_say(sim, "world", "breaks its promise for intent %u: %s", intent, sim_fault_name(excuse));
    check_intent_of(sim->checker, intent)->excused = true;
}

/* ---- answers to callers (design 4, 12) ---- */

static bool shared(const struct check_row *row)
{
    if (!row->tool)
        return true;
    return row->tool->share == SHARE_TENANT ||
           (row->tool->share == SHARE_DEFAULT && row->key_source == KEY_SOURCE_BUSINESS);
}

/* Nobody is told what is not durable: the state told is the state that was committed under that version. */
static void check_durable(struct sim *sim, const struct check_row *row, const struct operation *op)
{
    if (op->rev > row->rev || op->rev < 1)
        sim_violated(sim, "4, 5.1 told before it is durable: %s version %lld, committed is %lld", row->id,
                     (long long)op->rev, (long long)row->rev);
    else if (row->states[op->rev - 1] != op->state)
        sim_violated(sim, "4 told what was not committed: %s version %lld is %s, told as %s", row->id,
                     (long long)op->rev, state_name((enum state)row->states[op->rev - 1]), state_name(op->state));
}

/* What was told as final stays so; "no effect" may be corrected by evidence (3.4). */
static void check_final(struct sim *sim, struct check_row *row, const struct operation *op)
{
    uint64_t result = check_digest(op->result);
    const char *external_id = op->external_id ? op->external_id : "";
    if (row->told && row->told_state == op->state) {
        bool other_result = result && row->told_result && result != row->told_result;
        if (strcmp(row->told_id, external_id) != 0 || other_result)
            sim_violated(sim,
                         "3.1, 12 an acknowledged result is never lost: %s (intent %u) was told with %s, now with %s",
                         row->id, row->intent, row->told_id, external_id);
    } else if (row->told && row->undone_by) { /* done, and undone; or its undoing failed: check_undone_moved */
        row->told = false;
    } else if (row->told && !(check_proven_absent(row->told_state) && op->state == STATE_COMPLETED_SUCCESS)) {
        sim_violated(sim, "3.1 terminal states are write-once: %s (intent %u) was told as %s, now as %s", row->id,
                     row->intent, state_name(row->told_state), state_name(op->state));
    }
    row->told = true;
    row->told_state = op->state;
    if (result)
        row->told_result = result;
    check_copy(row->told_id, sizeof row->told_id, external_id);
}

/* A keyless call and the same one that was made again on purpose (repeat_of) look alike: either may be told (2.2.5). */
static bool looks_the_same(struct checker_model *model, const struct check_row *row, uint32_t intent)
{
    if (row->key_source != KEY_SOURCE_REPEAT)
        return false;
    for (const struct check_row *own = check_intent_of(model, intent)->newest; own; own = own->older_of_intent)
        if (own->key_source == KEY_SOURCE_REPEAT && digest_equal(&own->fingerprint, &row->fingerprint) &&
            text_equal(own->tenant, row->tenant) && text_equal(own->principal, row->principal) &&
            text_equal(own->tool_name, row->tool_name))
            return true;
    return false;
}

static void check_told_operation(struct sim *sim, const struct caller *caller, const struct engine_reply *reply,
                                 struct check_row *row)
{
    const struct operation *op = reply->op;
    bool own_tools = sim->options->registry == NULL;
    if (caller->asked == ASKED_CALL) {
        if (row->intent != caller->intent && own_tools && !looks_the_same(sim->checker, row, caller->intent))
            sim_violated(sim,
                         "2 other intents are never merged: a call of intent %u was told of %s, which is intent %u's",
                         caller->intent, row->id, row->intent);
        if (!text_equal(row->principal, caller->principal) && !shared(row))
            sim_violated(sim, "2.4 results are not shared across principals: %s of %s told to %s", row->id,
                         row->principal, caller->principal);
        bool made_it = row->intent == caller->intent && row->call == caller->call;
        if (!made_it && !reply->replayed && !reply->lease)
            sim_violated(sim, "12 replayed: call %u of intent %u did not cause %s and is told that it did",
                         caller->call, caller->intent, row->id);
    } else if (caller->waited_for && strcmp(caller->waited_for, row->id) != 0) {
        sim_violated(sim, "12 asked for %s, told of %s", caller->waited_for, row->id);
    }
    check_durable(sim, row, op);
    if (reply->lease)
        check_told_to_execute(sim->checker, row, reply);
    if (state_terminal(op->state))
        check_final(sim, row, op);
}

/* These say that this call executed nothing: no row may be its work, neither now nor later. */
static bool says_not_executed(enum reply_kind kind)
{
    switch (kind) {
    case REPLY_PLAN:
    case REPLY_NO_TOOL:
    case REPLY_REFUSED:
    case REPLY_CONFLICT:
    case REPLY_NOT_SHARED:
    case REPLY_HELD:
    case REPLY_POLICY:
    case REPLY_EXPIRED:
    case REPLY_REPEAT:
    case REPLY_UNAVAILABLE: return true;
    case REPLY_OPERATION:
    case REPLY_READ:
    case REPLY_NOT_FOUND:
    case REPLY_STALE:
    case REPLY_IMPOSSIBLE: break;
    }
    return false;
}

static void check_not_executed(struct sim *sim, const struct caller *caller, const struct engine_reply *reply)
{
    enum reply_kind kind = reply->kind;
    struct check_row *known = reply->tombstone ? check_find(sim->checker, reply->tombstone->operation) : NULL;
    if (kind == REPLY_EXPIRED && known && known->call == caller->call && known->intent == caller->intent)
        return; /* its own, dropped while it waited */
    struct check_intent *intent = check_intent_of(sim->checker, caller->intent);
    intent->not_executed |= UINT64_C(1) << (caller->call % CALLS_MAX);
    for (const struct check_row *row = intent->newest; row; row = row->older_of_intent)
        if (row->call == caller->call)
            sim_violated(sim, "4, 12 told that nothing was recorded (answer kind %d), yet call %u of intent %u made %s",
                         (int)kind, caller->call, caller->intent, row->id);
}

static void check_tenant(struct sim *sim, const struct caller *caller, const struct engine_reply *reply)
{
    const char *tenant = reply->op && reply->op->id[0] ? reply->op->tenant
                         : reply->tombstone            ? reply->tombstone->tenant
                                                       : NULL;
    if (tenant && !text_equal(tenant, caller->tenant))
        sim_violated(sim, "16 tenants see nothing of each other: a caller of %s was told of an operation of %s",
                     caller->tenant, tenant);
}

static void watch_reply(struct sim *sim, const struct caller *caller, const struct engine_reply *reply,
                        const struct check_row *row)
{
    const struct sim_watch *watch = sim->options->watch;
    if (!watch || !watch->reply)
        return;
    struct sim_reply_seen seen = {
        .now_ms = sim->now_ms,
        .asked_ms = caller->asked_ms,
        .intent = caller->intent,
        .call = caller->call,
        .gateway = caller->gateway,
        .of_intent = row ? row->intent : 0,
        .same_intent_expected = caller->asked == ASKED_CALL,
        .reply = reply,
    };
    watch->reply(watch->user, &seen);
}

void checker_reply(struct sim *sim, const struct caller *caller, const struct engine_reply *reply)
{
    struct check_row *row = reply->op && reply->op->id[0] ? check_find(sim->checker, reply->op->id) : NULL;
    sim_mix(sim, (uint64_t)reply->kind << 40 | (uint64_t)caller->call << 32 | caller->intent);
    watch_reply(sim, caller, reply, row);
    check_tenant(sim, caller, reply);
    if (reply->op && reply->op->id[0] && !row)
        sim_violated(sim, "4, 5.1 told before it is durable: %s (call %u of intent %u)", reply->op->id, caller->call,
                     caller->intent);
    else if (reply->kind == REPLY_OPERATION && row)
        check_told_operation(sim, caller, reply, row);
    bool asks = caller->asked == ASKED_WAIT || caller->asked == ASKED_OTHER;
    if (!asks && says_not_executed(reply->kind))
        check_not_executed(sim, caller, reply);
    for (size_t i = 0; reply->kind == REPLY_HELD && row && i < caller->distinct_count; i++)
        if (strcmp(caller->distinct_from[i], row->id) == 0)
            sim_violated(sim,
                         "2.9 distinct_from lets a call run: call %u of intent %u is held because of %s all the same",
                         caller->call, caller->intent, row->id);
    if (caller->asked == ASKED_WAIT && reply->kind == REPLY_NOT_FOUND)
        sim_violated(sim, "4, 15 an acknowledged operation is never lost: %s (intent %u) is not found",
                     caller->waited_for, caller->intent);
}

/* ---- what people see ---- */

size_t checker_row_count(const struct sim *sim)
{
    return sim->checker->row_count;
}

struct row_seen checker_row(const struct sim *sim, size_t index)
{
    const struct check_row *row = sim->checker->rows[index];
    return (struct row_seen){
        .id = row->id,
        .tenant = row->tenant,
        .principal = row->principal,
        .asked = check_was_asked(row),
        .incident = row->incident,
        .provider_key = row->provider_key,
        .tool = row->tool,
        .undoes = row->undoes != NULL,
        .parent = row->steps != NULL,
        .intent = row->intent,
        .state = row->state,
        .reason = row->reason,
        .owned = row->owner[0] != '\0',
        .dropped = row->dropped,
        .rev = row->rev,
        .changed_ms = row->changed_ms,
    };
}

uint32_t checker_intent_of(const struct sim *sim, const char *operation)
{
    const struct check_row *row = check_find(sim->checker, operation);
    return row ? row->intent : 0;
}
