/* The adapter of a simulated gateway: requests and answers under way.
 *
 *   send ──► (not sent) ─────────────────────────────────────────► done
 *     └────► under way ──► arrives at the provider ──► answer ───► done     whichever is first: the answer,
 *                              └ lost, late, twice        └ lost            a reset or the attempt's time-out
 *
 * A request that has left belongs to the world: it arrives although its gateway may be dead by then. done is called
 * when the gateway runs: a pause defers it. */
#include "base/mem.h"
#include "sim/outside.h"
#include "sim/post.h"

#include <stdio.h>
#include <stdlib.h>

struct wire {
    struct adapter adapter;
    struct sim *sim;
    struct gateway *gateway;
    bool cut;
};

struct exchange {
    struct exchange *next, **at; /* among all that are under way */
    struct wire *wire;           /* NULL: the answer goes nowhere */
    adapter_done *done;          /* NULL once it was called */
    void *user;
    struct message message;
    struct provider_answer told;
    struct sim_event arrival, second, answer, deadline;
    bool answer_lost;
    bool late; /* arrives later than the contract allows */
    int64_t way_back_ms;
};

/* ---- life of an exchange ---- */

static struct exchange *exchange_new(struct sim *sim)
{
    struct post *post = providers_post(sim);
    struct exchange *exchange = post->spare;
    if (exchange)
        post->spare = exchange->next;
    else
        exchange = mem_alloc(sizeof *exchange);
    *exchange = (struct exchange){.next = post->first, .at = &post->first};
    if (post->first)
        post->first->at = &exchange->next;
    post->first = exchange;
    return exchange;
}

static void exchange_end(struct post *post, struct exchange *exchange)
{
    *exchange->at = exchange->next;
    if (exchange->next)
        exchange->next->at = exchange->at;
    exchange->next = post->spare;
    post->spare = exchange;
}

/* Nothing of it is to come any more. */
static void end_if_over(struct sim *sim, struct exchange *exchange)
{
    bool to_come = exchange->arrival.place || exchange->second.place || exchange->answer.place ||
                   exchange->deadline.place || exchange->done;
    if (!to_come)
        exchange_end(providers_post(sim), exchange);
}

unsigned wire_under_way(const struct sim *sim, const char *operation)
{
    unsigned n = 0;
    for (const struct exchange *exchange = providers_post(sim)->first; exchange; exchange = exchange->next)
        n += strcmp(exchange->message.operation, operation) == 0 && exchange->message.kind == ATTEMPT_CALL &&
             (exchange->arrival.place || exchange->second.place || exchange->done);
    return n;
}

void post_release(struct post *post)
{
    while (post->first)
        exchange_end(post, post->first);
    while (post->spare) {
        struct exchange *exchange = post->spare;
        post->spare = exchange->next;
        free(exchange);
    }
}

/* ---- telling the gateway ---- */

static void watch(struct sim *sim, const struct message *message, enum sim_wire_step what, enum outcome outcome)
{
    const struct sim_watch *watch = sim->options->watch;
    if (!watch || !watch->wire)
        return;
    struct sim_wire_seen seen = {
        .now_ms = sim->now_ms,
        .intent = message->intent,
        .gateway = message->gateway,
        .tool = message->tool,
        .kind = message->kind,
        .operation = message->operation,
        .what = what,
        .outcome = outcome,
    };
    watch->wire(watch->user, &seen);
}

static const char *detail_of(enum outcome outcome)
{
    switch (outcome) {
    case OUTCOME_NOT_SENT: return "connection refused";
    case OUTCOME_REFUSED: return "refused by the provider";
    case OUTCOME_NOT_PROCESSED: return "too many requests";
    case OUTCOME_KEY_IN_USE: return "a request with this key is being worked on";
    case OUTCOME_PROVIDER_ERROR: return "the provider failed";
    case OUTCOME_TIMEOUT: return "no answer in time";
    case OUTCOME_CONNECTION_LOST: return "connection reset";
    case OUTCOME_UNREADABLE: return "the answer is not JSON";
    case OUTCOME_WRONG_OBJECT: return "/id: expected another object";
    case OUTCOME_CANNOT_TELL: return "the provider answered 500";
    case OUTCOME_SEVERAL: return "several objects carry our reference";
    case OUTCOME_OPEN:
    case OUTCOME_SUCCESS:
    case OUTCOME_NOOP:
    case OUTCOME_ACCEPTED:
    case OUTCOME_LOST:
    case OUTCOME_FOUND:
    case OUTCOME_ABSENT:
    case OUTCOME_PENDING:
    case OUTCOME_FAILED_THERE:
    case OUTCOME_MORE:
    case OUTCOME_COUNT: break;
    }
    return NULL;
}

static bool has_error(enum outcome outcome)
{
    return outcome == OUTCOME_REFUSED || outcome == OUTCOME_NOT_PROCESSED || outcome == OUTCOME_PROVIDER_ERROR;
}

static void tell(struct sim *sim, struct exchange *exchange)
{
    struct wire *wire = exchange->wire;
    const struct provider_answer *told = &exchange->told;
    adapter_done *done = exchange->done;
    char progress[32];
    snprintf(progress, sizeof progress, "{\"page\":%u}", exchange->message.page + 1);
    struct adapter_answer answer = {
        .outcome = told->outcome,
        .http_status = told->http_status,
        .detail = detail_of(told->outcome),
        .result = told->result[0] ? str_of(told->result) : STR_NONE,
        .error = has_error(told->outcome) ? STR("{\"message\":\"told by the simulated provider\"}") : STR_NONE,
        .external_id = told->external_id[0] ? told->external_id : NULL,
        .retry_after_ms = told->retry_after_ms,
        .progress = told->outcome == OUTCOME_MORE ? str_of(progress) : STR_NONE,
        .matches = told->matches,
    };
    sim_mix(sim, (uint64_t)told->outcome << 32 | exchange->message.intent);
    watch(sim, &exchange->message, SIM_WIRE_ANSWERED, told->outcome);
    if (sim_traced(sim) && !wire->cut)
        sim_say(sim, gateway_name(wire->gateway), "%s of %s ends: %s%s%s", attempt_kind_name(exchange->message.kind),
                exchange->message.operation, outcome_name(told->outcome), told->external_id[0] ? " " : "",
                told->external_id);
    schedule_drop(sim, &exchange->answer);
    schedule_drop(sim, &exchange->deadline);
    exchange->done = NULL;
    struct gateway *gateway = wire->gateway;
    bool dead = wire->cut;
    if (!dead)
        checker_answered(sim, &exchange->message, told->outcome);
    done(exchange->user, &answer);
    end_if_over(sim, exchange);
    if (!dead)
        gateway_moved(gateway);
}

/* True when the gateway stands still: the event comes again when it runs. */
static bool put_off(struct sim *sim, struct exchange *exchange, struct sim_event *event)
{
    int64_t until = gateway_paused_until(exchange->wire->gateway);
    if (sim->now_ms >= until)
        return false;
    schedule_at(sim, event, until);
    return true;
}

static void run_answer(struct sim *sim, struct sim_event *event)
{
    struct exchange *exchange = (struct exchange *)((char *)event - offsetof(struct exchange, answer));
    if (!exchange->done) /* its gateway is dead */
        end_if_over(sim, exchange);
    else if (!put_off(sim, exchange, event))
        tell(sim, exchange);
}

static void run_deadline(struct sim *sim, struct sim_event *event)
{
    struct exchange *exchange = (struct exchange *)((char *)event - offsetof(struct exchange, deadline));
    if (put_off(sim, exchange, event))
        return;
    exchange->told = (struct provider_answer){.outcome = OUTCOME_TIMEOUT};
    if (exchange->message.kind == ATTEMPT_LOOKUP)
        exchange->told.outcome = OUTCOME_CANNOT_TELL;
    tell(sim, exchange);
}

/* ---- at the provider ---- */

static void arrive(struct sim *sim, struct exchange *exchange, bool copy)
{
    const struct message *message = &exchange->message;
    watch(sim, message, SIM_WIRE_ARRIVED, OUTCOME_OPEN);
    checker_request(sim, message, copy);
    struct provider_answer answer = provider_receive(sim, message, copy, exchange->late);
    if (sim_traced(sim))
        sim_say(sim, message->tool->provider->name, "%s of %s%s%s: %s%s%s%s", attempt_kind_name(message->kind),
                message->is_read ? "a read" : message->operation, copy ? ", delivered again" : "",
                exchange->late ? ", very late" : "", outcome_name(answer.outcome), answer.external_id[0] ? " " : "",
                answer.external_id, exchange->answer_lost ? " (nobody hears it)" : "");
    bool heard = !copy && exchange->done && !exchange->answer_lost && answer.outcome != OUTCOME_OPEN;
    if (!heard || exchange->answer.place) /* a reset is on its way already */
        return;
    exchange->told = answer;
    schedule_in(sim, &exchange->answer, answer.work_ms + exchange->way_back_ms);
}

static void run_arrival(struct sim *sim, struct sim_event *event)
{
    struct exchange *exchange = (struct exchange *)((char *)event - offsetof(struct exchange, arrival));
    arrive(sim, exchange, false);
    end_if_over(sim, exchange);
}

static void run_second(struct sim *sim, struct sim_event *event)
{
    struct exchange *exchange = (struct exchange *)((char *)event - offsetof(struct exchange, second));
    arrive(sim, exchange, true);
    end_if_over(sim, exchange);
}

/* ---- sending ---- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t digest_of(const struct json *value, uint64_t hash)
{
    hash = (hash ^ (uint64_t)value->type) * UINT64_C(1099511628211);
    switch (value->type) {
    case JSON_NULL: break;
    case JSON_BOOL: hash ^= value->boolean; break;
    case JSON_NUMBER:
    case JSON_STRING: hash = mix(hash, value->text.p, value->text.n); break;
    case JSON_ARRAY:
        for (uint32_t i = 0; i < value->count; i++)
            hash = digest_of(&value->items[i], hash);
        break;
    case JSON_OBJECT:
        for (uint32_t i = 0; i < value->count; i++)
            hash = digest_of(&value->members[i].value, mix(hash, value->members[i].name.p, value->members[i].name.n));
        break;
    }
    return hash;
}

static void fit(char *out, size_t size, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    if (n >= size)
        n = size - 1;
    if (n)
        memcpy(out, text, n);
    out[n] = '\0';
}

static unsigned page_of(struct str progress)
{
    unsigned page = 0;
    for (size_t i = 0; i < progress.n; i++)
        if (progress.p[i] >= '0' && progress.p[i] <= '9')
            page = page * 10 + (unsigned)(progress.p[i] - '0');
    return page;
}

/* The last moment at which a request that leaves now may arrive, be worked on and become visible to look-ups: settle
 * after the attempt's time-out, also when it ended sooner without an answer, less what clocks may differ; and while a
 * key is remembered. */
static int64_t land_ms(const struct tool *tool, int64_t now_ms)
{
    const struct provider *provider = tool->provider;
    int64_t within = tool_timeout_ms(tool) + tool->reconcile.settle_ms - SIM_CLOCK_SPREAD_MS;
    if (provider->key_honoured && provider->key_retention_ms && within > provider->key_retention_ms)
        within = provider->key_retention_ms;
    return now_ms + (within > 50 ? within : 50);
}

static void fill_message(struct wire *wire, struct message *message, const struct adapter_call *call)
{
    struct sim *sim = wire->sim;
    bool is_read = !call->operation || !*call->operation;
    uint32_t intent = is_read ? intent_of_trace(call->trace) : checker_intent_of(sim, call->operation);
    *message = (struct message){
        .tool = call->tool,
        .kind = call->kind,
        .is_read = is_read,
        .intent = intent,
        .gateway = gateway_number(wire->gateway),
        .arguments = digest_of(call->arguments, UINT64_C(14695981039346656037)),
        .page = page_of(call->progress),
        .sent_ms = sim->now_ms,
        .land_ms = land_ms(call->tool, sim->now_ms),
    };
    fit(message->operation, sizeof message->operation, call->operation);
    fit(message->attempt, sizeof message->attempt, call->attempt);
    fit(message->provider_key, sizeof message->provider_key, call->provider_key);
    fit(message->external_id, sizeof message->external_id, call->external_id);
    uint32_t place = intent * 64 + (providers_post_count(sim, intent) & 63);
    message->dice = dice_of(sim, STREAM(STREAM_REQUEST, place));
}

/* All rolls are taken, whatever comes of them: leaving one out moves no other. */
static void go(struct sim *sim, struct exchange *exchange)
{
    struct message *message = &exchange->message;
    struct dice *dice = &message->dice;
    int64_t timeout = tool_timeout_ms(message->tool);
    int64_t way = roll_between(dice, 1, 20), back = roll_between(dice, 1, 20);
    int64_t stray = roll_between(dice, 0, 2000), early = roll_between(dice, 1, timeout > 1 ? timeout - 1 : 1);
    int64_t room = message->land_ms - sim->now_ms, later = roll_between(dice, 0, room > 50 ? room - 50 : 0);
    int64_t very = roll_between(dice, 3000, 7200000);
    bool resets = roll(dice, 2) == 0, back_too = roll(dice, 2) == 0;
    bool refused = roll_fault(dice, SIM_NET_REFUSED, 25), lost = roll_fault(dice, SIM_NET_LOST, 30);
    bool unheard = roll_fault(dice, SIM_ANSWER_LOST, 50), late = roll_fault(dice, SIM_NET_LATE, 30);
    bool reorder = roll_fault(dice, SIM_NET_REORDER, 50), twice = roll_fault(dice, SIM_NET_TWICE, 10);
    bool very_late = roll_fault(dice, SIM_NET_VERY_LATE, 10);
    bool ends_early = (lost || unheard) && resets;
    if (refused) {
        exchange->told = (struct provider_answer){.outcome = OUTCOME_NOT_SENT};
        schedule_in(sim, &exchange->answer, way);
        return;
    }
    if (reorder) {
        way += stray < room - 50 ? stray : 0;
        back += back_too ? stray : 0;
    }
    if (late)
        way = later;
    if (very_late) {
        way = room + SIM_CLOCK_SPREAD_MS + very;
        exchange->late = true;
    }
    exchange->way_back_ms = back;
    exchange->answer_lost = unheard;
    schedule_in(sim, &exchange->deadline, timeout);
    if (!lost)
        schedule_in(sim, &exchange->arrival, way);
    if (!lost && twice)
        schedule_in(sim, &exchange->second, way + stray);
    if (ends_early) {
        exchange->told = (struct provider_answer){.outcome = OUTCOME_CONNECTION_LOST};
        schedule_in(sim, &exchange->answer, early);
    }
}

static void wire_send(struct adapter *adapter, const struct adapter_call *call, adapter_done *done, void *user)
{
    struct wire *wire = (struct wire *)adapter;
    struct sim *sim = wire->sim;
    struct exchange *exchange = exchange_new(sim);
    fill_message(wire, &exchange->message, call);
    exchange->wire = wire;
    exchange->done = done;
    exchange->user = user;
    exchange->arrival.run = run_arrival;
    exchange->second.run = run_second;
    exchange->answer.run = run_answer;
    exchange->deadline.run = run_deadline;
    if (wire->cut)
        return; /* the next wire_cut answers */
    struct env *env = engine_env(gateway_engine(wire->gateway));
    if (call->kind == ATTEMPT_LOOKUP)
        sim->result->lookups++;
    else
        sim->result->attempts++;
    watch(sim, &exchange->message, SIM_WIRE_SENT, OUTCOME_OPEN);
    if (sim_traced(sim))
        sim_say(sim, gateway_name(wire->gateway), "sends a %s of %s (intent %u)%s", attempt_kind_name(call->kind),
                exchange->message.is_read ? "read" : exchange->message.operation, exchange->message.intent,
                exchange->message.page ? ", next page" : "");
    checker_sending(sim, wire->gateway, &exchange->message, env->now_ms(env));
    go(sim, exchange);
}

/* ---- the rest of the interface ---- */

/* One in fifty requests of the simulator's own tools can not be built. */
static enum err_code check(struct adapter *adapter, const struct adapter_call *call, struct err *err)
{
    const struct wire *wire = (const struct wire *)adapter;
    uint64_t seed = wire->sim->options->seed;
    if (!wire->sim->options->registry && digest_of(call->arguments, mix(0, &seed, sizeof seed)) % 50 == 7)
        return err_set(err, ERR_INVALID, "order: no request can be built from it (simulated)");
    return ERR_NONE;
}

static enum err_code describe(struct adapter *adapter, const struct adapter_call *call, struct json_out *out,
                              struct err *err)
{
    (void)adapter;
    (void)err;
    json_out_object(out);
    json_out_member_text(out, "key", call->provider_key);
    json_out_end_object(out);
    return ERR_NONE;
}

struct adapter *wire_new(struct sim *sim, struct gateway *gateway)
{
    static const struct adapter_ops ops = {check, describe, wire_send};
    struct wire *wire = mem_zero(sizeof *wire);
    wire->adapter.ops = &ops;
    wire->sim = sim;
    wire->gateway = gateway;
    return &wire->adapter;
}

void wire_cut(struct adapter *adapter)
{
    struct wire *wire = (struct wire *)adapter;
    struct exchange *exchange;
    wire->cut = true;
    do { /* what done sends from within comes first in the list: look again from there */
        exchange = providers_post(wire->sim)->first;
        while (exchange && !(exchange->wire == wire && exchange->done))
            exchange = exchange->next;
        if (exchange) {
            exchange->told = (struct provider_answer){.outcome = OUTCOME_TIMEOUT};
            tell(wire->sim, exchange);
        }
    } while (exchange);
}

void wire_free(struct adapter *adapter)
{
    struct wire *wire = (struct wire *)adapter;
    if (!wire)
        return;
    for (struct exchange *exchange = providers_post(wire->sim)->first; exchange; exchange = exchange->next)
        if (exchange->wire == wire)
            exchange->wire = NULL;
    free(wire);
}
