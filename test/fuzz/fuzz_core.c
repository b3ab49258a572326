/* The rules themselves: bytes become calls, claims, requests, answers, look-ups, crashes and people's decisions of
 * several gateways on one memory ledger; core (identity, admission, step) decides. Judges: the model of an operation's
 * life (support/life.h) over everything that was committed, and a provider that counts effects and never lies: no
 * "failed" that happened, no effect twice, no key forgotten, events that replay to the row.
 *
 * What the engine does with core is done here in the small, so that the fuzzer reaches what the engine never would. */
#include "fuzz.h"

#include "core/identity.h"
#include "core/step.h"
#include "ledger/ledger.h"
#include "support/life.h"
#include "support/world.h"

#include <string.h>

#define GATEWAYS     3
#define THINGS_MAX   24
#define FLIGHTS_MAX  12
#define TOOLS        5
#define LEASE_MS     40000
#define COMMANDS_MAX 400

/* An operation as the judge knows it. */
struct thing {
    char id[OPERATION_ID_SIZE];
    struct digest key_hash;
    const char *tenant, *principal;
    unsigned tool;
    struct life life;
    enum state state;
    int effects;
    int64_t landed_ms;    /* of the last effect */
    int64_t key_known_ms; /* since when the provider knows its key, 0 = not */
    bool gone;            /* only its tombstone is left */
};

enum phase { IDLE, ON_WIRE };

/* An operation in a gateway's memory. */
struct flight {
    bool used, owned, landed, effects_seen;
    unsigned gateway;
    struct thing *thing;
    struct operation op; /* texts in the world's arena */
    struct attempt attempt;
    enum phase phase;
    int64_t began_ms;
};

struct game {
    struct env env;
    int64_t now_ms;
    uint64_t random;
    struct str input;
    struct arena arena;
    struct ledger *ledger;
    struct ulid_source ids;
    struct provider honest, keyless;
    struct tool tools[TOOLS];
    char gateways[GATEWAYS][16];
    unsigned incarnations;
    struct thing things[THINGS_MAX];
    size_t thing_count;
    struct flight flights[FLIGHTS_MAX];
};

static int64_t game_now(struct env *env)
{
    return ((struct game *)env)->now_ms;
}

static void game_random(struct env *env, void *out, size_t n)
{
    struct game *game = (struct game *)env;
    for (unsigned char *p = out; n-- > 0;) {
        game->random = game->random * 6364136223846793005u + 1442695040888963407u;
        *p++ = (unsigned char)(game->random >> 56);
    }
}

static unsigned next(struct game *game)
{
    if (game->input.n == 0)
        return 0;
    game->input.n--;
    return (unsigned char)*game->input.p++;
}

static unsigned pick(struct game *game, unsigned n)
{
    return next(game) % n;
}

/* ---- the setting ---- */

static void set_tools(struct game *game)
{
    static const enum tool_class classes[TOOLS] = {CLASS_EXTERNAL_IDEMPOTENT, CLASS_EXTERNAL_IDEMPOTENT,
                                                   CLASS_EXTERNAL_WEAK, CLASS_EXTERNAL_IRREVERSIBLE,
                                                   CLASS_INTERNAL_WRITE};
    static const char *const names[TOOLS] = {"keyed", "nature", "weak", "final", "inner"};
    world_provider(&game->honest);
    game->honest.key_retention_ms = 3600000;
    game->keyless = game->honest;
    game->keyless.key_honoured = false;
    unsigned honoured = next(game); /* a bit per tool */
    for (unsigned i = 0; i < TOOLS; i++) {
        struct tool *tool = &game->tools[i];
        unsigned choice = next(game);
        world_tool(tool, names[i], classes[i], honoured >> i & 1 ? &game->honest : &game->keyless);
        /* whatever the registry says about strategies: what is not harmless is not sent again */
        tool->reconcile.strategies[0] = STRATEGY_RESEND;
        tool->reconcile.strategies[1] = STRATEGY_LOOKUP;
        tool->reconcile.strategies[2] = STRATEGY_MANUAL;
        tool->reconcile.strategy_count = 3;
        tool->idempotent_by = i == 1 ? IDEMPOTENT_BY_NATURE : IDEMPOTENT_BY_KEY;
        tool->retry.attempts_max = 1 + (choice & 3);
        tool->has_lookup = choice & 4;
        tool->on_mismatch = choice & 8 ? MISMATCH_REPLAY : MISMATCH_CONFLICT;
        tool->share = choice & 16 ? SHARE_TENANT : SHARE_DEFAULT;
        tool->repeat_window_ms = choice & 32 ? 900000 : 0;
        tool->retain_ms = choice & 64 ? 86400000 : 100000;
        tool->step_identity = choice & 128 ? STEP_PER_ARGUMENTS : STEP_PER_STEP;
    }
}

static void new_incarnation(struct game *game, unsigned gateway)
{
    snprintf(game->gateways[gateway], sizeof game->gateways[gateway], "gw_%u", ++game->incarnations);
}

static enum err_code ask(struct game *game, struct ledger_request *request)
{
    request->arena = &game->arena;
    return ledger_call(game->ledger, request);
}

static struct thing *thing_of(struct game *game, const char *id)
{
    for (size_t i = 0; i < game->thing_count; i++)
        if (strcmp(game->things[i].id, id) == 0)
            return &game->things[i];
    return NULL;
}

static bool says_no_effect(enum state state)
{
    return state == STATE_FAILED_RETRYABLE || state == STATE_FAILED_PERMANENT || state == STATE_REJECTED;
}

static struct flight *flight_of(struct game *game, unsigned gateway, const struct thing *thing)
{
    for (size_t i = 0; i < FLIGHTS_MAX; i++)
        if (game->flights[i].used && game->flights[i].gateway == gateway && game->flights[i].thing == thing)
            return &game->flights[i];
    return NULL;
}

static struct flight *take_off(struct game *game, unsigned gateway, struct thing *thing, const struct operation *op)
{
    for (size_t i = 0; i < FLIGHTS_MAX; i++) {
        struct flight *flight = &game->flights[i];
        if (flight->used)
            continue;
        *flight = (struct flight){.used = true, .gateway = gateway, .thing = thing, .op = *op};
        flight->owned = text_equal(op->owner, game->gateways[gateway]);
        return flight;
    }
    return NULL;
}

/* ---- the provider ---- */

/* Whether a request under the operation's key is the one that it knows already. */
static bool dedupes(const struct game *game, const struct thing *thing)
{
    const struct tool *tool = &game->tools[thing->tool];
    if (tool->class == CLASS_EXTERNAL_IDEMPOTENT && tool->idempotent_by == IDEMPOTENT_BY_NATURE)
        return thing->effects > 0;
    return tool->provider->key_honoured && thing->effects > 0 &&
           game->now_ms - thing->key_known_ms < tool->provider->key_retention_ms;
}

static void leave(struct game *game, struct flight *flight, bool lands)
{
    struct thing *thing = flight->thing;
    flight->phase = ON_WIRE;
    flight->began_ms = game->now_ms;
    flight->landed = lands;
    if (!lands || dedupes(game, thing))
        return;
    if (thing->effects++ == 0)
        thing->key_known_ms = game->now_ms;
    thing->landed_ms = game->now_ms;
    CHECK(thing->effects == 1); /* never a second effect */
}

static enum outcome call_outcome(struct game *game, const struct flight *flight)
{
    static const enum outcome outcomes[] = {
        OUTCOME_NOT_SENT,     OUTCOME_SUCCESS,         OUTCOME_NOOP,    OUTCOME_ACCEPTED,   OUTCOME_REFUSED,
        OUTCOME_KEY_IN_USE,   OUTCOME_PROVIDER_ERROR,  OUTCOME_TIMEOUT, OUTCOME_UNREADABLE, OUTCOME_NOT_PROCESSED,
        OUTCOME_WRONG_OBJECT, OUTCOME_CONNECTION_LOST, OUTCOME_OPEN,
    };
    enum outcome outcome = outcomes[pick(game, sizeof outcomes / sizeof *outcomes)];
    bool says_no = outcome == OUTCOME_NOT_SENT || outcome == OUTCOME_REFUSED || outcome == OUTCOME_NOT_PROCESSED ||
                   outcome == OUTCOME_NOOP;
    bool says_yes = outcome == OUTCOME_SUCCESS || outcome == OUTCOME_ACCEPTED;
    return (says_no && flight->landed) || (says_yes && !flight->landed) ? OUTCOME_TIMEOUT : outcome;
}

/* As of when the question was asked; what landed shortly before need not be seen yet. */
static enum outcome lookup_outcome(struct game *game, const struct flight *flight)
{
    const struct thing *thing = flight->thing;
    unsigned choice = pick(game, 8);
    bool settling = flight->began_ms - thing->landed_ms < game->tools[thing->tool].reconcile.settle_ms;
    if (choice == 0)
        return OUTCOME_CANNOT_TELL;
    if (choice == 1)
        return OUTCOME_TIMEOUT;
    if (!flight->effects_seen || (settling && choice < 4))
        return OUTCOME_ABSENT;
    return choice == 4 ? OUTCOME_PENDING : choice == 5 ? OUTCOME_WRONG_OBJECT : OUTCOME_FOUND;
}

/* ---- committing ---- */

static void check_row(const struct thing *thing, const struct operation *op)
{
    if (says_no_effect(op->state))
        CHECK(thing->effects == 0);
    if (op->state == STATE_COMPLETED_SUCCESS)
        CHECK(thing->effects == 1);
}

static void judge(const struct thing *thing, bool good, const struct life *life)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", thing->id, life->broken);
    abort();
}

static bool over_leases(enum step_kind kind)
{
    return kind == STEP_RESOLVE || kind == STEP_RETRY || kind == STEP_CANCEL || kind == STEP_EVIDENCE;
}

/* Commits one step of a flight. ERR_STALE: somebody else was first. */
static enum err_code commit(struct game *game, struct flight *flight, const struct step_input *in,
                            const struct step_effects *fx, const struct operation *before)
{
    struct ledger_request request = {.command = LEDGER_TRANSITION};
    struct ledger_transition *change = &request.transition;
    *change = (struct ledger_transition){.op = &flight->op,
                                         .fence = flight->owned ? game->gateways[flight->gateway] : NULL,
                                         .unheld = !flight->owned && !over_leases(in->kind)};
    for (size_t i = 0; i < fx->event_count; i++)
        change->events[change->event_count++] = fx->events[i];
    for (size_t i = 0; i < fx->incident_count; i++) {
        struct incident *incident = &change->incidents[change->incident_count++];
        *incident = (struct incident){.tenant = flight->op.tenant, .operation = flight->op.id};
        incident->kind = fx->incidents[i].kind;
        memcpy(incident->id, "in_", 3);
        ulid_next(&game->ids, incident->id + 3);
    }
    if (flight->attempt.id[0])
        change->attempts[change->attempt_count++] = flight->attempt;
    enum err_code code = ask(game, &request);
    CHECK(code == 0 || code == ERR_STALE || code == ERR_NOT_FOUND);
    if (code)
        return code;
    struct thing *thing = flight->thing;
    const struct tool *tool = &game->tools[thing->tool];
    judge(thing, life_check(&thing->life, tool, in, before, &flight->op, fx, ERR_NONE), &thing->life);
    thing->state = flight->op.state;
    check_row(thing, &flight->op);
    flight->owned = flight->op.owner != NULL;
    return ERR_NONE;
}

static struct step_input input(struct game *game, const struct flight *flight, enum step_kind kind)
{
    return (struct step_input){
        .kind = kind,
        .now_ms = game->now_ms,
        .random = next(game) * 7919u,
        .owner = game->gateways[flight->gateway],
        .lease_ms = LEASE_MS,
        .attempt = flight->attempt.number,
    };
}

static enum err_code do_step(struct game *game, struct flight *flight, struct step_input *in, enum step_action *action)
{
    struct operation before = flight->op;
    struct step_effects fx;
    struct err err = {0};
    const struct tool *tool = &game->tools[flight->thing->tool];
    enum err_code code = step(&flight->op, tool, in, &fx, &err);
    *action = fx.action;
    if (code || !fx.changed) {
        struct life life = flight->thing->life; /* what is not committed is no part of it */
        judge(flight->thing, life_check(&life, tool, in, &before, &flight->op, &fx, code), &life);
        return code;
    }
    return commit(game, flight, in, &fx, &before);
}

static void land(struct flight *flight)
{
    flight->used = false;
}

/* ---- what a gateway does ---- */

static void begin_attempt(struct game *game, struct flight *flight, enum attempt_kind kind)
{
    flight->attempt = (struct attempt){
        .number = flight->op.tries + 1, .kind = kind, .outcome = OUTCOME_OPEN, .started_ms = game->now_ms};
    memcpy(flight->attempt.id, "at_", 3);
    ulid_next(&game->ids, flight->attempt.id + 3);
}

static void begin(struct game *game, struct flight *flight, enum step_kind kind)
{
    enum step_action action;
    begin_attempt(game, flight, kind == STEP_DISPATCH ? ATTEMPT_CALL : ATTEMPT_LOOKUP);
    struct step_input in = input(game, flight, kind);
    if (do_step(game, flight, &in, &action)) {
        land(flight);
        return;
    }
    if (kind == STEP_DISPATCH) {
        leave(game, flight, next(game) & 1);
    } else {
        flight->phase = ON_WIRE;
        flight->began_ms = game->now_ms;
        flight->effects_seen = flight->thing->effects > 0;
    }
}

static void wake(struct game *game, struct flight *flight)
{
    enum step_action action;
    flight->attempt = (struct attempt){0};
    struct step_input in = input(game, flight, STEP_WAKE);
    if (do_step(game, flight, &in, &action)) {
        land(flight);
        return;
    }
    switch (action) {
    case ACTION_NONE: land(flight); break;
    case ACTION_SEND:
        if (next(game) % 8 == 0) {
            struct step_input hold = input(game, flight, STEP_HOLD);
            hold.hold_reason = REASON_QUEUED;
            hold.hold_until_ms = game->now_ms + 1000;
            do_step(game, flight, &hold, &action);
            land(flight);
        } else {
            begin(game, flight, STEP_DISPATCH);
        }
        break;
    case ACTION_LOOKUP: begin(game, flight, STEP_LOOKUP_BEGIN); break;
    case ACTION_EXPIRE: {
        struct ledger_request request = {.command = LEDGER_EXPIRE};
        request.expire =
            (struct ledger_expire){.operation = flight->op.id, .rev = flight->op.rev, .now_ms = game->now_ms};
        if (ask(game, &request) == 0)
            flight->thing->gone = true;
        land(flight);
        break;
    }
    case ACTION_BEGIN_STEP:
    case ACTION_CANCEL_STEP:
    case ACTION_UNDO_STEP:
    case ACTION_FINISH_STEPS: abort(); /* no operation here has steps */
    }
}

/* Somebody moved the row meanwhile: what is known is evidence. */
static void give_evidence(struct game *game, struct flight *flight, struct finding finding)
{
    enum step_action action;
    struct ledger_request request = {.command = LEDGER_GET, .get = {.operation = flight->op.id}};
    if (ask(game, &request) == 0 && request.get.op) {
        flight->op = *request.get.op;
        flight->owned = text_equal(flight->op.owner, game->gateways[flight->gateway]);
        struct step_input in = input(game, flight, STEP_EVIDENCE);
        in.finding = finding;
        CHECK(do_step(game, flight, &in, &action) == 0);
    }
    land(flight);
}

static void answer(struct game *game, struct flight *flight)
{
    bool is_call = flight->attempt.kind == ATTEMPT_CALL;
    enum step_action action;
    struct step_input in = input(game, flight, is_call ? STEP_ANSWER : STEP_LOOKUP_ANSWER);
    in.finding.outcome = is_call ? call_outcome(game, flight) : lookup_outcome(game, flight);
    in.finding.external_id = "x_1";
    in.finding.retry_after_ms = next(game) & 1 ? 5000 : 0;
    in.began_ms = flight->began_ms;
    flight->attempt.outcome = in.finding.outcome;
    flight->attempt.finished_ms = game->now_ms;
    flight->phase = IDLE;
    enum err_code code = do_step(game, flight, &in, &action);
    if (code)
        give_evidence(game, flight, in.finding);
    else
        land(flight);
}

static void move(struct game *game)
{
    struct flight *flight = &game->flights[pick(game, FLIGHTS_MAX)];
    if (!flight->used)
        return;
    if (flight->phase == ON_WIRE)
        answer(game, flight);
    else
        wake(game, flight);
}

static void take_up(struct game *game, unsigned gateway, const struct operation *op, const char *former)
{
    struct thing *thing = thing_of(game, op->id);
    CHECK(thing && !thing->gone);
    if (flight_of(game, gateway, thing))
        return;
    struct flight *flight = take_off(game, gateway, thing, op);
    enum step_action action;
    if (!flight)
        return; /* its lease will end */
    if (!former || state_terminal(op->state) || op->state != STATE_DISPATCHED) {
        wake(game, flight);
        return;
    }
    struct step_input in = input(game, flight, STEP_OWNER_GONE);
    do_step(game, flight, &in, &action);
    land(flight);
}

static void claim(struct game *game, bool foreign)
{
    unsigned gateway = pick(game, GATEWAYS);
    struct ledger_request request = {.command = LEDGER_CLAIM_DUE};
    request.claim = (struct ledger_claim){.owner = game->gateways[gateway],
                                          .now_ms = game->now_ms,
                                          .lease_ms = LEASE_MS,
                                          .foreign = foreign,
                                          .limit = 1 + pick(game, 4)};
    CHECK(ask(game, &request) == 0);
    for (size_t i = 0; i < request.claim.count; i++)
        take_up(game, gateway, request.claim.ops[i], request.claim.former_owners[i]);
}

/* ---- calls ---- */

/* A new operation under a key: whatever the key meant before has provably not happened. */
static void check_new(const struct game *game, const struct operation *op)
{
    for (size_t i = 0; i < game->thing_count; i++) {
        const struct thing *other = &game->things[i];
        if (digest_equal(&other->key_hash, &op->key_hash))
            CHECK(other->effects == 0 && (other->state == STATE_FAILED_PERMANENT || other->state == STATE_REJECTED));
    }
}

static void check_met(const struct operation *op, const struct admission *admission,
                      const struct admission_result *result)
{
    const struct operation *existing = result->existing;
    bool shown = result->verdict == VERDICT_JOIN || result->verdict == VERDICT_REPLAY;
    if (existing)
        CHECK(text_equal(existing->tenant, op->tenant) && text_equal(existing->tool, op->tool));
    if (shown)
        CHECK(admission->share_with_tenant || text_equal(existing->principal, op->principal));
    if (shown && !digest_equal(&existing->fingerprint, &op->fingerprint))
        CHECK(result->other_arguments && admission->on_mismatch == MISMATCH_REPLAY);
    if (result->verdict == VERDICT_REPLAY)
        CHECK(state_terminal(existing->state));
}

static void first_state(struct game *game, struct operation *op, unsigned gateway, struct ledger_admit *admit,
                        struct attempt *attempt)
{
    op->created_ms = op->updated_ms = game->now_ms;
    op->rev = 1;
    op->state = op->not_before_ms > game->now_ms ? STATE_PLANNED : STATE_PENDING_DISPATCH;
    op->wake_at_ms = op->not_before_ms > game->now_ms ? op->not_before_ms : game->now_ms;
    if (op->state == STATE_PENDING_DISPATCH && next(game) % 4) {
        *attempt = (struct attempt){.number = 1, .kind = ATTEMPT_CALL, .started_ms = game->now_ms};
        memcpy(attempt->id, "at_", 3);
        ulid_next(&game->ids, attempt->id + 3);
        op->state = STATE_DISPATCHED;
        op->may_have_applied = true;
        op->attempts = op->tries = 1;
        op->first_sent_ms = op->last_sent_ms = game->now_ms;
        op->owner = game->gateways[gateway];
        op->lease_until_ms = op->wake_at_ms = game->now_ms + LEASE_MS;
        admit->attempt = attempt;
    }
    admit->event = (struct event){
        .at_ms = game->now_ms, .cause = CAUSE_ADMITTED, .from = op->state, .to = op->state, .actor = op->principal};
}

static void admitted(struct game *game, unsigned gateway, unsigned tool, const struct operation *op,
                     const struct attempt *attempt)
{
    struct thing *thing = &game->things[game->thing_count++];
    *thing = (struct thing){.key_hash = op->key_hash, .tenant = op->tenant, .tool = tool, .state = op->state};
    thing->principal = op->principal;
    memcpy(thing->id, op->id, sizeof thing->id);
    life_begin(&thing->life, op);
    struct flight *flight = op->state == STATE_DISPATCHED ? take_off(game, gateway, thing, op) : NULL;
    bool lands = next(game) & 1;
    if (!flight)
        return; /* no room: as if the gateway had died */
    flight->attempt = *attempt;
    leave(game, flight, lands);
}

static void call(struct game *game)
{
    static const char *const tenants[] = {"acme", "beta"}, *const principals[] = {"ann", "bob"};
    static const char *const keys[] = {NULL, NULL, "k1", "k2"}, *const runs[] = {NULL, "r1", "r2"};
    static const char *const arguments[] = {"{\"n\":1}", "{\"n\":1.0}", "{\"n\":2}"};
    unsigned tool = pick(game, TOOLS), who = next(game), what = next(game), gateway = pick(game, GATEWAYS);
    if (game->thing_count == THINGS_MAX)
        return;
    struct ledger_request *request = arena_zero(&game->arena, sizeof *request);
    struct operation *op = arena_zero(&game->arena, sizeof *op);
    struct json *value;
    struct identity_error why;
    struct err err = {0};
    const struct json *effective;
    CHECK(json_parse(&game->arena, str_of(arguments[what % 3]), NULL, &value, &err) == 0);
    struct call call = {.tenant = tenants[who >> 7], .principal = principals[(who >> 6) & 1], .arguments = value};
    call.idempotency_key = keys[who & 3];
    call.run = runs[(who >> 2) % 3];
    call.step = call.run && who & 32 ? "s1" : NULL;
    call.not_before_ms = (what & 128) && (what & 64) ? game->now_ms + 5000 : 0;
    if (game->thing_count > 0 && what & 32)
        call.repeat_of = game->things[pick(game, (unsigned)game->thing_count)].id;
    if (game->thing_count > 0 && what & 16)
        call.distinct_from[call.distinct_count++] = game->things[pick(game, (unsigned)game->thing_count)].id;
    memcpy(op->id, "op_", 3);
    ulid_next(&game->ids, op->id + 3);
    request->command = LEDGER_ADMIT;
    struct ledger_admit *admit = &request->admit;
    CHECK(identity_derive(&call, &game->tools[tool], STR("secret"), &game->arena, op, &admit->admission, &effective,
                          &why, &err) == 0);
    struct attempt attempt = {0};
    op->policy_version = "p";
    first_state(game, op, gateway, admit, &attempt);
    admit->dry_run = what & 8 && what & 4;
    CHECK(ask(game, request) == 0);
    if (admit->result.verdict != VERDICT_NEW) {
        check_met(op, &admit->admission, &admit->result);
        return;
    }
    check_new(game, op);
    if (!admit->dry_run)
        admitted(game, gateway, tool, op, &attempt);
}

/* ---- people, time, crashes ---- */

static void decide(struct game *game)
{
    static const enum step_kind kinds[] = {STEP_RESOLVE, STEP_RETRY, STEP_CANCEL};
    if (game->thing_count == 0)
        return;
    struct thing *thing = &game->things[pick(game, (unsigned)game->thing_count)];
    unsigned gateway = pick(game, GATEWAYS);
    struct ledger_request request = {.command = LEDGER_GET, .get = {.operation = thing->id}};
    CHECK(ask(game, &request) == 0);
    if (!request.get.op || flight_of(game, gateway, thing))
        return;
    struct flight *flight = take_off(game, gateway, thing, request.get.op);
    if (!flight)
        return;
    enum step_action action;
    struct step_input in = input(game, flight, kinds[pick(game, 3)]);
    in.actor = "ann";
    in.note = "because";
    in.happened = thing->effects > 0; /* people who look tell the truth */
    in.allow_retry = next(game) & 1;
    do_step(game, flight, &in, &action);
    land(flight);
}

static void pass_time(struct game *game)
{
    static const int64_t spans[] = {1, 100, 1000, 6000, 12000, 45000, 120000, 700000, 4000000, 90000000};
    game->now_ms += spans[pick(game, sizeof spans / sizeof *spans)];
}

static void crash(struct game *game)
{
    unsigned gateway = pick(game, GATEWAYS);
    for (size_t i = 0; i < FLIGHTS_MAX; i++)
        if (game->flights[i].gateway == gateway)
            game->flights[i].used = false;
    new_incarnation(game, gateway);
}

static void mark(struct game *game)
{
    if (game->thing_count == 0)
        return;
    struct thing *thing = &game->things[pick(game, (unsigned)game->thing_count)];
    unsigned what = next(game);
    struct ledger_request request = {.command = LEDGER_MARK};
    request.mark = (struct ledger_mark){
        .operation = thing->id, .delivered = what & 1, .orphaned = what & 2, .not_orphaned = what & 4};
    CHECK(ask(game, &request) == 0);
}

/* ---- the end ---- */

/* Every event follows on the one before and the last one says what the row says; every attempt has its row. */
static void check_history(struct game *game, const struct thing *thing)
{
    struct ledger_request get = {.command = LEDGER_GET, .get = {.operation = thing->id}};
    struct ledger_request events = {.command = LEDGER_EVENTS, .events = {.operation = thing->id}};
    struct ledger_request attempts = {.command = LEDGER_ATTEMPTS, .attempts = {.operation = thing->id}};
    CHECK(ask(game, &get) == 0);
    if (thing->gone) {
        CHECK(get.get.tombstone && get.get.tombstone->state == thing->state);
        return;
    }
    CHECK(get.get.op && ask(game, &events) == 0 && ask(game, &attempts) == 0);
    const struct operation *op = get.get.op;
    CHECK(op->state == thing->state && events.events.count > 0);
    enum state state = events.events.events[0].from;
    for (size_t i = 0; i < events.events.count; i++) {
        CHECK(events.events.events[i].from == state);
        state = events.events.events[i].to;
    }
    CHECK(state == op->state && attempts.attempts.count == (size_t)op->tries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const commands[])(struct game *) = {call, call, move, move, move, pass_time, decide, crash, mark};
    static struct game game;
    game = (struct game){.env = {game_now, game_random}, .now_ms = 1800000000000, .random = 1};
    game.input = (struct str){(const char *)data, size};
    arena_init(&game.arena);
    game.ledger = ledger_memory_new(&game.env);
    ulid_source_init(&game.ids, &game.env);
    set_tools(&game);
    for (unsigned i = 0; i < GATEWAYS; i++)
        new_incarnation(&game, i);
    for (int i = 0; i < COMMANDS_MAX && game.input.n > 0; i++) {
        unsigned command = next(&game);
        if (command % 12 >= sizeof commands / sizeof *commands)
            claim(&game, false);
        else
            commands[command % 12](&game);
    }
    for (size_t i = 0; i < game.thing_count; i++)
        check_history(&game, &game.things[i]);
    ledger_close(game.ledger);
    arena_release(&game.arena);
    return 0;
}
