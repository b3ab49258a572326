/* Applications that perform effects themselves (design 11.2): who is told to execute works for a while, has the effect,
 * and says how it ended, until it is heard.
 *
 *   told to execute ─► works, with heartbeats ─► effect, counted here ─► its word ─► acknowledged
 *                           │                       │                       └─ said again, to two gateways at once
 *                           └── falls silent ───────┴── and comes back: late, or with the same begin, said again
 *
 * Who begins is in client.c, what the rules say of it in checker_guard.c. A process knows its lease by the token: told
 * once more of one that it works on, it begins nothing new. */
#include "base/mem.h"
#include "sim/outside.h"

#include <stdio.h>
#include <stdlib.h>

#define ROLLS_PER_JOB  32
#define TOKEN_SIZE     128
#define WORDS_MAX      2000 /* that one executor says, answered or not */
#define HEARTBEATS_PER 3    /* lease */

enum manner {
    MANNER_HONEST, /* does what it is told, and says so */
    MANNER_REFUSES,
    MANNER_TRY_AGAIN,   /* refuses: the next one may */
    MANNER_UNSURE_DONE, /* can not tell; it happened … */
    MANNER_UNSURE_NOT,  /* … or did not */
    MANNER_NOOP,
    MANNER_SILENT_BEFORE,
    MANNER_SILENT_AFTER,
    MANNER_LATE_EFFECT, /* stands still past its lease, then goes on as if nothing were */
    MANNER_LATE_WORD,
    MANNER_LATE_NO,
    MANNER_COUNT
};

enum phase { PHASE_WORK, PHASE_WORD, PHASE_SILENT, PHASE_OVER };

struct executor {
    struct sim_event turn; /* its first member */
    struct executor *next;
    struct sim *sim;
    const struct tool *tool;
    const char *tenant, *actor; /* live as long as the run */
    char operation[OPERATION_ID_SIZE], token[TOKEN_SIZE];
    char external_id[EXTERNAL_ID_SIZE], result[RESULT_SIZE];
    uint32_t intent;
    unsigned number; /* of this intent's executors, from 0 */
    int attempt;
    enum manner manner;
    enum phase phase;
    bool performed, twice, heard;
    unsigned words; /* said so far */
    int64_t lease_ms, lease_until_ms, work_until_ms, pause_ms;
};

struct sim_executors {
    struct executor *executors;
    uint32_t effects;
};

struct word { /* under way */
    struct executor *executor;
    struct gateway *gateway;
    unsigned life;
    struct engine_guard said;
};

static void say(const struct executor *executor, const char *text)
{
    char who[24];
    if (!sim_traced(executor->sim))
        return;
    snprintf(who, sizeof who, "app %u.%u", executor->intent, executor->number + 1);
    sim_say(executor->sim, who, "%s (%s)", text, executor->operation);
}

static bool performs(enum manner manner)
{
    return manner == MANNER_HONEST || manner == MANNER_UNSURE_DONE || manner == MANNER_SILENT_AFTER ||
           manner == MANNER_LATE_EFFECT || manner == MANNER_LATE_WORD;
}

static bool is_silent(enum manner manner)
{
    return manner == MANNER_SILENT_BEFORE || manner == MANNER_SILENT_AFTER;
}

/* ---- the plan ---- */

static void plan(struct executor *executor)
{
    struct sim *sim = executor->sim;
    struct dice roll_of = dice_of(sim, STREAM(STREAM_INTENT, 0x8000000 | executor->intent)), *dice = &roll_of;
    dice->index = executor->number * ROLLS_PER_JOB;
    uint64_t how = roll(dice, MANNER_COUNT - 1);
    bool lengthy = roll(dice, 5) == 0;
    int64_t lease = executor->lease_ms, small = roll_between(dice, 1, 2000),
            large = roll_between(dice, 2000, 2 * lease);
    int64_t soon = roll_between(dice, 0, 300), late = lease + roll_between(dice, 1, lease);
    bool strange = roll_fault(dice, SIM_EXECUTORS, 900), twice = roll_fault(dice, SIM_EXECUTORS, 600);
    executor->manner = strange ? (enum manner)(1 + how) : MANNER_HONEST;
    bool stalls = executor->manner == MANNER_LATE_WORD || executor->manner == MANNER_LATE_NO;
    executor->twice = twice;
    executor->work_until_ms = sim->now_ms + (executor->manner == MANNER_LATE_EFFECT ? late : lengthy ? large : small);
    executor->pause_ms = stalls ? late : soon;
}

/* ---- its words ---- */

static struct gateway *some_gateway(struct sim *sim, uint64_t from)
{
    for (unsigned i = 0; i < sim->options->gateways; i++) {
        struct gateway *gateway = sim->gateways[(from + i) % sim->options->gateways];
        if (gateway_engine(gateway) && gateway_paused_until(gateway) == 0)
            return gateway;
    }
    return NULL;
}

static void turn_in(struct executor *executor, int64_t ms)
{
    if (!executor->turn.place)
        schedule_in(executor->sim, &executor->turn, ms);
}

static struct engine_guard word_of(const struct executor *executor)
{
    bool again = executor->manner == MANNER_TRY_AGAIN;
    bool none = again || executor->manner == MANNER_REFUSES || executor->manner == MANNER_LATE_NO;
    bool unsure = executor->manner == MANNER_UNSURE_DONE || executor->manner == MANNER_UNSURE_NOT;
    struct engine_guard word = {
        .word = none || unsure ? GUARD_FAIL : GUARD_COMPLETE,
        .tenant = executor->tenant,
        .tool = executor->tool->name,
        .lease = executor->token,
        .actor = executor->actor,
        .no_effect = none,
        .retry = again,
    };
    if (none || unsure)
        word.error = STR("{\"message\":\"it did not go well\"}");
    else if (executor->manner == MANNER_NOOP)
        word.noop = true;
    else
        word.external_id = executor->external_id;
    if (word.external_id)
        word.result = str_of(executor->result);
    return word;
}

static void heartbeat_answered(struct executor *executor, const struct engine_reply *reply)
{
    if (reply->kind == REPLY_OPERATION && reply->lease)
        executor->lease_until_ms = reply->op->lease_until_ms;
    if (reply->kind != REPLY_IMPOSSIBLE || executor->phase != PHASE_WORK || executor->manner == MANNER_LATE_EFFECT)
        return;
    say(executor, "has lost its lease, and begins nothing any more");
    executor->manner = performs(executor->manner) ? MANNER_TRY_AGAIN : executor->manner;
}

static void word_answered(struct executor *executor, const struct engine_reply *reply)
{
    bool gone = reply->kind == REPLY_NOT_FOUND || reply->kind == REPLY_EXPIRED;
    if (executor->phase != PHASE_WORD)
        return;
    if (reply->kind == REPLY_OPERATION && executor->twice && !executor->heard) {
        executor->heard = true;
        turn_in(executor, 1 + executor->pause_ms);
    } else if (reply->kind == REPLY_OPERATION || gone) {
        executor->phase = PHASE_OVER;
        schedule_drop(executor->sim, &executor->turn);
    } else {
        turn_in(executor, 300 + executor->words * 37 % 900);
    }
}

static void answered(void *user, const struct engine_reply *reply)
{
    struct word *word = user;
    struct executor *executor = word->executor;
    struct sim *sim = executor->sim;
    bool lives = gateway_engine(word->gateway) && gateway_life(word->gateway) == word->life;
    sim_mix(sim, (uint64_t)reply->kind << 48 | 0x9a4d);
    if (lives) {
        checker_guard_answered(sim, executor->operation, executor->attempt, &word->said, reply);
        if (word->said.word == GUARD_HEARTBEAT)
            heartbeat_answered(executor, reply);
        else
            word_answered(executor, reply);
    } else if (word->said.word != GUARD_HEARTBEAT && executor->phase == PHASE_WORD) {
        turn_in(executor, 400);
    }
    free(word);
}

static bool tell(struct executor *executor, uint64_t from, const struct engine_guard *said)
{
    struct sim *sim = executor->sim;
    struct gateway *gateway = some_gateway(sim, from);
    if (!gateway)
        return false;
    struct word *word = mem_zero(sizeof *word);
    *word = (struct word){executor, gateway, gateway_life(gateway), *said};
    executor->words++;
    say(executor, said->word == GUARD_HEARTBEAT  ? "goes on"
                  : said->word == GUARD_COMPLETE ? said->noop ? "says: it was so already" : "says: done"
                  : !said->no_effect             ? "says: not known"
                  : said->retry                  ? "says: nothing happened, try again"
                                                 : "says: nothing happened");
    checker_guard_says(sim, executor->operation, executor->attempt, &word->said);
    engine_guard(gateway_engine(gateway), &word->said, answered, word);
    gateway_moved(gateway);
    return true;
}

/* ---- its life ---- */

static void perform(struct executor *executor)
{
    struct sim *sim = executor->sim;
    struct message message = {.tool = executor->tool, .kind = ATTEMPT_CALL, .intent = executor->intent};
    memcpy(message.operation, executor->operation, sizeof message.operation);
    snprintf(executor->external_id, sizeof executor->external_id, "app_%u", ++sim->executors->effects);
    snprintf(executor->result, sizeof executor->result, "{\"done\":\"%s\"}", executor->external_id);
    executor->performed = true;
    say(executor, "performs it");
    sim_mix(sim, (uint64_t)executor->intent << 16 | 0xeffe);
    checker_effect(sim, &message, executor->external_id, SIM_FAULT_COUNT);
}

/* An application that looks at its clock begins nothing that its lease may not cover; its clock is no better than a
 * gateway's. */
static bool lease_is_short(const struct executor *executor)
{
    return executor->sim->now_ms >= executor->lease_until_ms - SIM_CLOCK_SPREAD_MS;
}

static void end_work(struct executor *executor)
{
    bool blind = executor->manner == MANNER_LATE_EFFECT;
    if (performs(executor->manner) && !executor->performed && !blind && lease_is_short(executor))
        executor->manner = MANNER_TRY_AGAIN;
    if (performs(executor->manner) && !executor->performed)
        perform(executor);
    executor->phase = is_silent(executor->manner) ? PHASE_SILENT : PHASE_WORD;
    if (executor->phase == PHASE_SILENT)
        say(executor, "falls silent");
    else
        turn_in(executor, executor->pause_ms);
}

static void work(struct executor *executor)
{
    struct sim *sim = executor->sim;
    int64_t beat_ms = executor->lease_ms / HEARTBEATS_PER, left_ms = executor->work_until_ms - sim->now_ms;
    const struct engine_guard heartbeat = {
        .word = GUARD_HEARTBEAT,
        .tenant = executor->tenant,
        .tool = executor->tool->name,
        .lease = executor->token,
        .actor = executor->actor,
    };
    if (left_ms <= 0) {
        end_work(executor);
        return;
    }
    if (executor->manner != MANNER_LATE_EFFECT && !is_silent(executor->manner))
        tell(executor, executor->words, &heartbeat);
    turn_in(executor, left_ms < beat_ms ? left_ms : beat_ms);
}

static void run_turn(struct sim *sim, struct sim_event *event)
{
    struct executor *executor = (struct executor *)event;
    (void)sim;
    if (executor->phase == PHASE_WORK) {
        work(executor);
    } else if (executor->phase == PHASE_WORD && executor->words < WORDS_MAX) {
        struct engine_guard word = word_of(executor);
        bool both = executor->twice && executor->words % 2 == 0;
        bool told = tell(executor, executor->intent + executor->words, &word);
        if (told && both) /* the same word at once through another gateway */
            tell(executor, executor->intent + executor->words, &word);
        if (!told)
            turn_in(executor, 500);
    }
}

/* Its begin, said again: it works on it, or has fallen silent and comes back. */
static void come_back(struct executor *executor, const struct engine_reply *reply)
{
    executor->lease_until_ms = reply->op->lease_until_ms;
    if (executor->phase != PHASE_SILENT)
        return;
    say(executor, "comes back to what it began");
    executor->manner = MANNER_HONEST;
    executor->phase = PHASE_WORK;
    executor->work_until_ms = executor->sim->now_ms + executor->pause_ms;
    turn_in(executor, executor->pause_ms);
}

void executors_told(struct sim *sim, uint32_t intent, const char *tenant, const char *actor,
                    const struct engine_reply *reply)
{
    unsigned number = 0;
    for (struct executor *other = sim->executors->executors; other; other = other->next) {
        if (strcmp(other->token, reply->lease) == 0) {
            come_back(other, reply);
            return;
        }
        number += other->intent == intent;
    }
    struct executor *executor = mem_zero(sizeof *executor);
    *executor = (struct executor){
        .turn = {.run = run_turn},
        .next = sim->executors->executors,
        .sim = sim,
        .tool = reply->tool,
        .tenant = tenant,
        .actor = actor,
        .intent = intent,
        .number = number,
        .attempt = reply->op->tries,
        .phase = PHASE_WORK,
        .lease_ms = reply->tool->guard_lease_ms,
        .lease_until_ms = reply->op->lease_until_ms,
    };
    memcpy(executor->operation, reply->op->id, sizeof executor->operation);
    snprintf(executor->token, sizeof executor->token, "%s", reply->lease);
    sim->executors->executors = executor;
    plan(executor);
    say(executor, "is told to execute");
    int64_t first_ms = executor->work_until_ms - sim->now_ms, beat_ms = executor->lease_ms / HEARTBEATS_PER;
    turn_in(executor, first_ms < beat_ms ? first_ms : beat_ms);
}

struct provider_truth executors_truth(const struct sim *sim, const char *operation)
{
    struct provider_truth truth = {0};
    for (const struct executor *executor = sim->executors->executors; executor; executor = executor->next) {
        if (strcmp(executor->operation, operation) != 0)
            continue;
        truth.unfinished |= executor->phase == PHASE_WORK && performs(executor->manner) && !executor->performed;
        truth.effects += executor->performed;
        if (executor->performed)
            memcpy(truth.external_id, executor->external_id, sizeof truth.external_id);
    }
    return truth;
}

struct sim_executors *executors_new(struct sim *sim)
{
    (void)sim;
    return mem_zero(sizeof(struct sim_executors));
}

void executors_free(struct sim_executors *executors)
{
    while (executors && executors->executors) {
        struct executor *executor = executors->executors;
        executors->executors = executor->next;
        free(executor);
    }
    free(executors);
}
