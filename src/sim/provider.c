/* The providers' side: what really happened. One record per key that a provider was given: its effects, the answer that
 * it remembers, what look-ups show of it.
 *
 *   request ─► throttled? failing? ─► known key (or a repeat that is harmless by nature)? ─► the same answer again
 *                                          └ no ─► refused? ─► effect, at once or after some work ─► answer
 *
 * Faults that break the contract say so to the checker: nobody else could have prevented what follows. */
#include "base/mem.h"
#include "sim/outside.h"
#include "sim/post.h"

#include <stdio.h>
#include <stdlib.h>

#define EFFECTS_MAX 16 /* of one key; more is not told apart */

struct effect {
    char external_id[EXTERNAL_ID_SIZE];
    int64_t visible_ms;    /* look-ups show it from then on */
    int64_t done_ms;       /* accepted first: worked on until then */
    bool failed;           /* ended badly there: something is to be seen, the effect did not happen */
    bool made;             /* the checker knows of it */
    enum sim_fault excuse; /* SIM_FAULT_COUNT, or the fault that made it a further one */
};

struct record {
    char key[PROVIDER_KEY_SIZE];
    struct effect effects[EFFECTS_MAX];
    size_t effect_count;
    struct provider_answer stored; /* what a repeat is told */
    int64_t stored_ms;             /* 0 = nothing stored */
    int64_t working_until_ms;
    char object[EXTERNAL_ID_SIZE]; /* of a tool whose repeats are harmless by nature: the one thing that there is */
};

/* Something that a provider does later: the effect of a slow request, the end of an accepted one. */
struct work {
    struct work *next;
    struct sim_event event;
    struct record *record;
    struct message message;
    size_t effect;                      /* index of the accepted one; EFFECTS_MAX: make it … */
    char external_id[EXTERNAL_ID_SIZE]; /* … under this id */
    enum sim_fault excuse;
};

struct sim_providers {
    struct post post;
    struct map records; /* provider key → record */
    struct arena arena;
    struct work *works, *spare;
    uint32_t effects;                /* number for external ids */
    uint32_t *counts;                /* requests per intent */
    char other_id[EXTERNAL_ID_SIZE]; /* of the latest effect: what a wrong object shows */
};

/* ---- life ---- */

struct sim_providers *providers_new(struct sim *sim)
{
    struct sim_providers *providers = mem_zero(sizeof *providers);
    arena_init(&providers->arena);
    map_init(&providers->records);
    providers->counts = arena_zero(&providers->arena, (check_intents(sim) + 1) * sizeof *providers->counts);
    snprintf(providers->other_id, sizeof providers->other_id, "ef_0");
    return providers;
}

void providers_free(struct sim_providers *providers)
{
    if (!providers)
        return;
    map_release(&providers->records);
    arena_release(&providers->arena);
    post_release(&providers->post);
    free(providers);
}

struct post *providers_post(const struct sim *sim)
{
    return &sim->providers->post;
}

uint32_t providers_post_count(struct sim *sim, uint32_t intent)
{
    return intent <= check_intents(sim) ? sim->providers->counts[intent]++ : 0;
}

static struct record *record_of(struct sim_providers *providers, const char *key)
{
    struct record *record = map_get(&providers->records, key);
    if (record)
        return record;
    record = arena_zero(&providers->arena, sizeof *record);
    memcpy(record->key, key, sizeof record->key);
    map_put(&providers->records, record->key, record);
    return record;
}

/* ---- contracts ---- */

static bool remembers_keys(const struct tool *tool)
{
    return tool->provider->key_honoured && tool->provider->key_retention_ms > 0;
}

static bool is_by(const struct tool *tool, enum idempotent_by by)
{
    return tool->class == CLASS_EXTERNAL_IDEMPOTENT && tool->idempotent_by == by;
}

static bool harmless_by_nature(const struct tool *tool)
{
    return is_by(tool, IDEMPOTENT_BY_NATURE) || is_by(tool, IDEMPOTENT_BY_PRECONDITION);
}

bool provider_repeats_are_harmless(const struct tool *tool)
{
    return remembers_keys(tool) || harmless_by_nature(tool);
}

/* ---- effects ---- */

static void seen(struct sim *sim, const struct message *message, struct effect *effect)
{
    if (effect->made)
        return;
    effect->made = true;
    sim_mix(sim, (uint64_t)message->intent << 8 | 0xef);
    checker_effect(sim, message, effect->external_id, effect->excuse);
    webhooks_tell(sim, message, INBOUND_SUCCESS, effect->external_id);
}

/* The id of the effect to be made. Where repeats are harmless by nature all requests of an operation are about one
 * thing, also when a quick one overtakes one that is worked on. */
static void next_id(struct sim_providers *providers, struct record *record, const struct tool *tool,
                    char out[EXTERNAL_ID_SIZE])
{
    bool one_thing = harmless_by_nature(tool) && record->object[0];
    if (!one_thing)
        snprintf(record->object, EXTERNAL_ID_SIZE, "ef_%u", ++providers->effects);
    memcpy(out, record->object, EXTERNAL_ID_SIZE);
}

static struct effect *add_effect(struct sim *sim, struct record *record, const struct message *message,
                                 const char *external_id, int64_t visible_ms, enum sim_fault excuse)
{
    struct sim_providers *providers = sim->providers;
    if (record->effect_count == EFFECTS_MAX) {
        sim_violated(sim, "6: %s: more than %d effects of one operation", message->operation, EFFECTS_MAX);
        record->effect_count--;
    }
    struct effect *effect = &record->effects[record->effect_count++];
    *effect = (struct effect){.visible_ms = visible_ms, .excuse = excuse};
    memcpy(effect->external_id, external_id, sizeof effect->external_id);
    memcpy(providers->other_id, effect->external_id, sizeof providers->other_id);
    return effect;
}

static void fill_object(struct provider_answer *answer, const char *external_id)
{
    snprintf(answer->external_id, sizeof answer->external_id, "%s", external_id);
    snprintf(answer->result, sizeof answer->result, "{\"id\":\"%s\",\"made\":true}", external_id);
}

static void store(struct sim *sim, struct record *record, const struct provider_answer *answer)
{
    record->stored = *answer;
    record->stored.work_ms = 0;
    record->stored_ms = sim->now_ms;
}

/* Visible at once, or by the fault within settle of the effect, and of the attempt's end. */
static int64_t visible_from(const struct message *message, int64_t made_ms, struct dice *dice)
{
    int64_t within = message->tool->reconcile.settle_ms - SIM_CLOCK_SPREAD_MS, room = message->land_ms - made_ms;
    if (room > within)
        room = within;
    int64_t lag = roll_between(dice, 0, room > 0 ? room : 0);
    return roll_fault(dice, SIM_LOOKUP_LAGS, 50) ? made_ms + lag : made_ms;
}

/* ---- later ---- */

static void run_work(struct sim *sim, struct sim_event *event);

static void do_later(struct sim *sim, struct record *record, const struct message *message, size_t effect,
                     const char *external_id, enum sim_fault excuse, int64_t ms)
{
    struct sim_providers *providers = sim->providers;
    struct work *work = providers->spare;
    if (work)
        providers->spare = work->next;
    else
        work = arena_alloc(&providers->arena, sizeof *work);
    *work = (struct work){.record = record, .message = *message, .effect = effect, .excuse = excuse};
    memcpy(work->external_id, external_id, sizeof work->external_id);
    work->event.run = run_work;
    schedule_in(sim, &work->event, ms);
}

static void make_effect(struct sim *sim, struct record *record, const struct message *message, const char *external_id,
                        int64_t visible_ms, enum sim_fault excuse)
{
    struct effect *effect = add_effect(sim, record, message, external_id, visible_ms, excuse);
    struct provider_answer answer = {.outcome = OUTCOME_SUCCESS, .http_status = 201};
    fill_object(&answer, effect->external_id);
    store(sim, record, &answer);
    seen(sim, message, effect);
}

/* What was accepted has happened. */
static void finish(struct sim *sim, struct record *record, const struct message *message, struct effect *effect)
{
    if (effect->made)
        return;
    effect->failed = false;
    if (effect->done_ms > sim->now_ms)
        effect->done_ms = sim->now_ms;
    fill_object(&record->stored, effect->external_id);
    record->stored.outcome = OUTCOME_SUCCESS;
    record->stored.http_status = 200;
    seen(sim, message, effect);
}

static void run_work(struct sim *sim, struct sim_event *event)
{
    struct work *work = (struct work *)((char *)event - offsetof(struct work, event));
    bool makes = work->effect == EFFECTS_MAX;
    if (makes && work->record->effect_count > 0 && harmless_by_nature(work->message.tool)) {
        /* a repeat was quicker; where it was only accepted so far, this request makes things as they should be */
        finish(sim, work->record, &work->message, &work->record->effects[0]);
    } else if (makes) {
        make_effect(sim, work->record, &work->message, work->external_id, sim->now_ms, work->excuse);
    } else if (!work->record->effects[work->effect].failed) {
        finish(sim, work->record, &work->message, &work->record->effects[work->effect]);
    } else {
        webhooks_tell(sim, &work->message, INBOUND_FAILED, work->external_id);
    }
    work->next = sim->providers->spare;
    sim->providers->spare = work;
}

/* ---- calls ---- */

struct luck { /* all rolls of one call, taken whatever comes of them */
    int64_t retry_after_ms, work_ms, accepted_ms;
    bool throttled, error_before, error_after, refused, unreadable, slow, accepted, fails_there, keeps_refusal;
    bool ignored, forgotten, wrong, already;
    unsigned of_four;
};

static struct luck draw(const struct message *message, struct dice *dice, int64_t now_ms)
{
    struct luck luck = {0};
    int64_t room = message->land_ms - now_ms, timeout = tool_timeout_ms(message->tool);
    int64_t near = room < timeout ? room : timeout;
    bool over = roll(dice, 2) == 0;
    int64_t about = roll_between(dice, 0, 200), beyond = roll_between(dice, 0, room > 0 ? room : 0);
    luck.work_ms = over ? beyond : near - about;
    luck.accepted_ms = roll_between(dice, 50, 30000);
    luck.retry_after_ms = roll(dice, 2) ? roll_between(dice, 1, 8000) : (dice->index++, 0);
    luck.fails_there = roll(dice, 4) == 0;
    luck.keeps_refusal = roll(dice, 2) == 0;
    luck.already = roll(dice, 40) == 0;
    luck.of_four = (unsigned)roll(dice, 4);
    luck.throttled = roll_fault(dice, SIM_THROTTLED, 25);
    luck.error_before = roll_fault(dice, SIM_ERROR_BEFORE, 25);
    luck.error_after = roll_fault(dice, SIM_ERROR_AFTER, 25);
    luck.refused = roll_fault(dice, SIM_REFUSED, 25);
    luck.unreadable = roll_fault(dice, SIM_UNREADABLE, 20);
    luck.slow = roll_fault(dice, SIM_SLOW, 25) && luck.work_ms > 0;
    luck.accepted = roll_fault(dice, SIM_ACCEPTED, 25);
    luck.ignored = roll_fault(dice, SIM_KEY_IGNORED, 50);
    luck.forgotten = roll_fault(dice, SIM_KEY_FORGOTTEN, 50);
    luck.wrong = roll_fault(dice, SIM_WRONG_OBJECT, 15);
    return luck;
}

/* The provider knows this key: it says what it said, or that it is still at it. */
static struct provider_answer repeat_by_key(const struct record *record, const struct luck *luck)
{
    if (record->stored.outcome == OUTCOME_OPEN)
        return (struct provider_answer){
            .outcome = OUTCOME_KEY_IN_USE, .http_status = 409, .retry_after_ms = luck->retry_after_ms};
    return record->stored;
}

/* A repeat finds things as they should be: the same again, "already so", or the precondition no longer holds. */
static struct provider_answer repeat_by_nature(const struct record *record, const struct message *message,
                                               const struct luck *luck)
{
    struct provider_answer answer = record->stored;
    if (!is_by(message->tool, IDEMPOTENT_BY_PRECONDITION) || luck->of_four == 0)
        return answer;
    answer.outcome = luck->of_four == 1 ? OUTCOME_REFUSED : OUTCOME_NOOP;
    answer.http_status = luck->of_four == 1 ? 412 : 200;
    if (answer.outcome == OUTCOME_REFUSED)
        answer.external_id[0] = answer.result[0] = '\0';
    return answer;
}

static struct provider_answer accept_it(struct sim *sim, struct record *record, const struct message *message,
                                        const struct luck *luck, int64_t visible_ms, enum sim_fault excuse)
{
    char id[EXTERNAL_ID_SIZE];
    next_id(sim->providers, record, message->tool, id);
    struct effect *effect = add_effect(sim, record, message, id, visible_ms, excuse);
    effect->done_ms = sim->now_ms + luck->accepted_ms;
    effect->failed = luck->fails_there;
    do_later(sim, record, message, record->effect_count - 1, id, excuse, luck->accepted_ms);
    webhooks_tell(sim, message, INBOUND_PENDING, id);
    struct provider_answer answer = {.outcome = OUTCOME_ACCEPTED, .http_status = 202};
    snprintf(answer.external_id, sizeof answer.external_id, "%s", effect->external_id);
    store(sim, record, &answer);
    return answer;
}

static struct provider_answer work_slowly(struct sim *sim, struct record *record, const struct message *message,
                                          const struct luck *luck, enum sim_fault excuse)
{
    char id[EXTERNAL_ID_SIZE];
    next_id(sim->providers, record, message->tool, id);
    record->working_until_ms = sim->now_ms + luck->work_ms;
    store(sim, record, &(struct provider_answer){.outcome = OUTCOME_OPEN});
    do_later(sim, record, message, EFFECTS_MAX, id, excuse, luck->work_ms);
    struct provider_answer answer = {.outcome = OUTCOME_SUCCESS, .http_status = 201, .work_ms = luck->work_ms};
    fill_object(&answer, id);
    return answer;
}

static struct provider_answer process(struct sim *sim, struct record *record, const struct message *message,
                                      const struct luck *luck, int64_t visible_ms, enum sim_fault excuse)
{
    if (luck->refused) {
        struct provider_answer answer = {.outcome = OUTCOME_REFUSED, .http_status = 402};
        if (luck->keeps_refusal)
            store(sim, record, &answer);
        bool for_ever = remembers_keys(message->tool) ? luck->keeps_refusal : !tool_may_resend(message->tool);
        if (for_ever && excuse == SIM_FAULT_COUNT) /* the other copy may be worked on */
            webhooks_tell(sim, message, INBOUND_NO_EFFECT, "");
        return answer;
    }
    if (luck->accepted)
        return accept_it(sim, record, message, luck, visible_ms, excuse);
    if (luck->slow)
        return work_slowly(sim, record, message, luck, excuse);
    char id[EXTERNAL_ID_SIZE];
    next_id(sim->providers, record, message->tool, id);
    make_effect(sim, record, message, id, visible_ms, excuse);
    struct provider_answer answer = record->stored;
    if (luck->error_after)
        answer = (struct provider_answer){.outcome = OUTCOME_PROVIDER_ERROR, .http_status = 502};
    else if (luck->unreadable)
        answer = (struct provider_answer){.outcome = OUTCOME_UNREADABLE, .http_status = 200};
    return answer;
}

static struct provider_answer receive_call(struct sim *sim, const struct message *message, struct dice *dice,
                                           enum sim_fault excuse)
{
    struct luck luck = draw(message, dice, sim->now_ms);
    int64_t visible_ms = visible_from(message, sim->now_ms, dice);
    if (luck.throttled)
        return (struct provider_answer){
            .outcome = OUTCOME_NOT_PROCESSED, .http_status = 429, .retry_after_ms = luck.retry_after_ms};
    if (luck.error_before)
        return (struct provider_answer){.outcome = OUTCOME_PROVIDER_ERROR, .http_status = 503};
    const struct tool *tool = message->tool;
    struct record *record = record_of(sim->providers, message->provider_key);
    if (luck.wrong && strcmp(sim->providers->other_id, "ef_0") != 0 && record->effect_count == 0) {
        struct provider_answer answer = {.outcome = OUTCOME_WRONG_OBJECT, .http_status = 200};
        fill_object(&answer, sim->providers->other_id);
        return answer;
    }
    int64_t kept_ms = tool->provider->key_retention_ms + SIM_CLOCK_SPREAD_MS;
    bool known = record->stored_ms && remembers_keys(tool) && sim->now_ms - record->stored_ms < kept_ms;
    if (known && !luck.ignored && !luck.forgotten)
        return repeat_by_key(record, &luck);
    if (known && excuse == SIM_FAULT_COUNT)
        excuse = luck.ignored ? SIM_KEY_IGNORED : SIM_KEY_FORGOTTEN;
    if (record->effect_count > 0 && harmless_by_nature(tool))
        return repeat_by_nature(record, message, &luck);
    if (luck.already && is_by(tool, IDEMPOTENT_BY_NATURE) && record->working_until_ms < sim->now_ms)
        return (struct provider_answer){.outcome = OUTCOME_NOOP, .http_status = 200};
    return process(sim, record, message, &luck, visible_ms, excuse);
}

static struct provider_answer receive_read(const struct message *message, struct dice *dice, int64_t now_ms)
{
    struct luck luck = draw(message, dice, now_ms);
    struct provider_answer answer = {.outcome = OUTCOME_SUCCESS, .http_status = 200};
    if (luck.throttled)
        answer = (struct provider_answer){
            .outcome = OUTCOME_NOT_PROCESSED, .http_status = 429, .retry_after_ms = luck.retry_after_ms};
    else if (luck.error_before || luck.error_after)
        answer = (struct provider_answer){.outcome = OUTCOME_PROVIDER_ERROR, .http_status = 500};
    else if (luck.refused)
        answer = (struct provider_answer){.outcome = OUTCOME_REFUSED, .http_status = 404};
    else if (luck.unreadable)
        answer = (struct provider_answer){.outcome = OUTCOME_UNREADABLE, .http_status = 200};
    else
        snprintf(answer.result, sizeof answer.result, "{\"read\":%u}", message->intent);
    return answer;
}

/* ---- look-ups ---- */

static bool shown(const struct effect *effect, const struct message *message, int64_t now_ms)
{
    bool asked = !message->external_id[0] || strcmp(message->external_id, effect->external_id) == 0;
    return asked && effect->visible_ms <= now_ms;
}

static struct provider_answer object_found(const struct effect *effect, int64_t now_ms)
{
    struct provider_answer answer = {.outcome = OUTCOME_FOUND, .http_status = 200, .matches = 1};
    if (effect->done_ms > now_ms)
        answer.outcome = OUTCOME_PENDING;
    else if (effect->failed)
        answer.outcome = OUTCOME_FAILED_THERE;
    fill_object(&answer, effect->external_id);
    if (answer.outcome != OUTCOME_FOUND)
        answer.result[0] = '\0';
    return answer;
}

static struct provider_answer receive_lookup(struct sim *sim, const struct message *message, struct dice *dice)
{
    bool failing = roll_fault(dice, SIM_LOOKUP_FAILS, 50), blind = roll_fault(dice, SIM_LOOKUP_BLIND, 30);
    uint64_t how = roll(dice, 4);
    bool pages = roll(dice, 4) == 0;
    if (failing)
        return (struct provider_answer){.outcome = how ? OUTCOME_CANNOT_TELL : OUTCOME_OPEN, .http_status = 500};
    if (pages && message->page < 2)
        return (struct provider_answer){.outcome = OUTCOME_MORE, .http_status = 200};
    const struct record *record = map_get(&sim->providers->records, message->provider_key);
    struct provider_answer answer = {.outcome = OUTCOME_ABSENT, .http_status = 404};
    unsigned matches = 0, done = 0;
    for (size_t i = 0; record && i < record->effect_count; i++) {
        const struct effect *effect = &record->effects[i];
        if (!shown(effect, message, sim->now_ms))
            continue;
        done += effect->done_ms <= sim->now_ms && !effect->failed;
        if (matches++ == 0)
            answer = object_found(effect, sim->now_ms);
    }
    if (matches > 0 && blind) {
        checker_excuse(sim, message->intent, SIM_LOOKUP_BLIND);
        return (struct provider_answer){.outcome = OUTCOME_ABSENT, .http_status = 404};
    }
    if (matches > 1 && done > 0) /* several that all are worked on or failed are told as the first of them is */
        answer.outcome = OUTCOME_SEVERAL;
    answer.matches = matches;
    return answer;
}

/* ---- entry ---- */

struct provider_answer provider_receive(struct sim *sim, const struct message *message, bool copy, bool late)
{
    struct dice dice = message->dice;
    dice.index = REQUEST_DICE * (copy ? 2 : 1);
    if (message->kind == ATTEMPT_LOOKUP)
        return receive_lookup(sim, message, &dice);
    if (message->is_read)
        return receive_read(message, &dice, sim->now_ms);
    return receive_call(sim, message, &dice, copy ? SIM_NET_TWICE : late ? SIM_NET_VERY_LATE : SIM_FAULT_COUNT);
}

struct provider_truth provider_truth(const struct sim *sim, const char *provider_key)
{
    struct provider_truth truth = {0};
    const struct record *record = map_get(&sim->providers->records, provider_key);
    if (!record)
        return truth;
    truth.unfinished = record->working_until_ms >= sim->now_ms; /* its end may be the next event of this moment */
    for (size_t i = 0; i < record->effect_count; i++) {
        const struct effect *effect = &record->effects[i];
        truth.unfinished |= effect->done_ms >= sim->now_ms;
        if (effect->failed)
            continue;
        if (truth.effects++ == 0)
            memcpy(truth.external_id, effect->external_id, sizeof truth.external_id);
    }
    return truth;
}
