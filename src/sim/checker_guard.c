/* What must hold of guard mode (design 11.2). Known are the commits, who was told to execute, what those said, and the
 * effects that they had; of the leases only when they end, as the commits say.
 *
 *   one at a time   another executor only when each one before it is proven without effect: by its own word or a
 *                   person's. So never while a lease is live
 *   the lease       while it lasts only its holder's word moves the row; a gateway that ends says nothing about it
 *   own words       an attempt ends as its executor said, or as lost; silence is unknown_outcome
 *   told is kept    what an executor was acknowledged is there, then and at the end */
#include "sim/checker.h"

#include "base/mem.h"

#define PREFIX OPERATION_EXECUTOR_PREFIX

struct check_executor {
    struct check_executor *next;
    int attempt;
    const char *lease;       /* token: told once more, it is the same one */
    unsigned said;           /* bit per outcome that its words mean */
    uint64_t result;         /* digest of what it said, 0 = nothing */
    const char *external_id; /* the same; NULL = none */
    bool done_heard;         /* its "done" was acknowledged */
};

bool check_is_executor(const char *owner)
{
    return owner && strncmp(owner, PREFIX, strlen(PREFIX)) == 0;
}

bool check_is_guarded(const struct check_row *row)
{
    return row->tool && row->tool->guard_lease_ms > 0;
}

static struct check_executor *executor_of(const struct check_row *row, int attempt)
{
    struct check_executor *executor = row->executors;
    while (executor && executor->attempt != attempt)
        executor = executor->next;
    return executor;
}

static enum outcome outcome_of(const struct engine_guard *word)
{
    if (word->word == GUARD_COMPLETE)
        return word->noop ? OUTCOME_NOOP : OUTCOME_SUCCESS;
    return !word->no_effect ? OUTCOME_PROVIDER_ERROR : word->retry ? OUTCOME_NOT_PROCESSED : OUTCOME_REFUSED;
}

/* ---- told to execute ---- */

static const struct check_try *try_number(const struct check_row *row, int number)
{
    const struct check_try *try = row->first_try;
    while (try && try->number != number)
        try = try->next;
    return try;
}

/* Each one before it has had no effect, for certain. */
static bool others_are_disproved(const struct check_row *row, int attempt)
{
    for (const struct check_try *try = row->first_try; try && try->number < attempt; try = try->next) {
        bool clean = try->outcome == OUTCOME_REFUSED || try->outcome == OUTCOME_NOT_PROCESSED;
        if (try->kind == ATTEMPT_CALL && !clean && try->number > row->disproved)
            return false;
    }
    return true;
}

void check_told_to_execute(struct checker_model *model, struct check_row *row, const struct engine_reply *reply)
{
    struct sim *sim = model->sim;
    const struct operation *op = reply->op;
    struct check_executor *executor = executor_of(row, op->tries);
    if (!check_is_guarded(row) || op->state != STATE_DISPATCHED || !try_number(row, op->tries))
        sim_violated(sim, "11.2 begun and committed, then told: %s (intent %u) is to be executed, attempt %d of a %s",
                     row->id, row->intent, op->tries, state_name(op->state));
    if (op->lease_until_ms + SIM_CLOCK_SPREAD_MS <= sim->now_ms)
        sim_violated(sim, "11.2 nobody is told to execute without a lease: %s (intent %u), it ended %lld ms ago",
                     row->id, row->intent, (long long)(sim->now_ms - op->lease_until_ms));
    if (!others_are_disproved(row, op->tries))
        sim_violated(sim,
                     "11.2 never a second executor while the first may have done it: %s (intent %u) is to be executed "
                     "as attempt %d",
                     row->id, row->intent, op->tries);
    if (executor && strcmp(executor->lease, reply->lease) != 0)
        sim_violated(sim, "11.2 one executor per attempt: %s (intent %u) attempt %d is given to two", row->id,
                     row->intent, op->tries);
    if (executor)
        return;
    executor = arena_zero(&model->arena, sizeof *executor);
    executor->attempt = op->tries;
    executor->lease = arena_copy_text(&model->arena, reply->lease);
    executor->next = row->executors;
    row->executors = executor;
}

/* ---- what commits do ---- */

/* Its attempt ended in this change as its executor said, never otherwise. */
static void check_own_words(struct checker_model *model, const struct check_row *row, const struct attempt *attempt)
{
    const struct check_executor *executor = executor_of(row, attempt->number);
    if (attempt->outcome == OUTCOME_OPEN || attempt->outcome == OUTCOME_LOST)
        return;
    if (!executor || !(executor->said & 1u << attempt->outcome))
        sim_violated(model->sim, "11.2 only its own word ends it: %s (intent %u) attempt %d ends as %s, nobody said so",
                     row->id, row->intent, attempt->number, outcome_name(attempt->outcome));
}

static void check_recorded(struct checker_model *model, const struct check_row *row, const struct attempt *attempt)
{
    const struct check_executor *executor = executor_of(row, attempt->number);
    if (!executor || attempt->outcome != OUTCOME_SUCCESS)
        return;
    const char *said = executor->external_id ? executor->external_id : "";
    if (row->result != executor->result || strcmp(row->external_id, said) != 0)
        sim_violated(model->sim, "11.2 what the executor said is what is recorded: %s (intent %u): %s, it said %s",
                     row->id, row->intent, row->external_id, said);
}

void check_guard_moved(struct checker_model *model, const struct check_row *row, enum state from,
                       const struct ledger_transition *change, const char *owner_before)
{
    struct sim *sim = model->sim;
    bool ended = from == STATE_DISPATCHED && row->state != STATE_DISPATCHED;
    if (!check_is_guarded(row))
        return;
    if (from != STATE_DISPATCHED && row->state == STATE_DISPATCHED && !check_is_executor(row->owner))
        sim_violated(sim, "11.2 the application holds the lease: %s (intent %u) is begun by %s", row->id, row->intent,
                     row->owner[0] ? row->owner : "nobody");
    if (row->state == STATE_DISPATCHED && from != STATE_DISPATCHED && !others_are_disproved(row, row->last_try->number))
        sim_violated(sim, "11.2 never a second executor while the first may have done it: %s (intent %u) attempt %d",
                     row->id, row->intent, row->last_try->number);
    for (size_t i = 0; i < change->attempt_count; i++) {
        check_own_words(model, row, &change->attempts[i]);
        if (from != row->state && row->state == STATE_COMPLETED_SUCCESS)
            check_recorded(model, row, &change->attempts[i]);
    }
    bool said = change->attempt_count > 0 && change->attempts[0].outcome != OUTCOME_LOST;
    if (ended && check_is_executor(owner_before) && !said)
        sim_violated(sim, "11.2 a lease is its holder's: %s (intent %u) becomes %s, whoever holds it said nothing",
                     row->id, row->intent, state_name(row->state));
    if (ended && !said && row->state != STATE_UNKNOWN_OUTCOME && row->state != STATE_COMPLETED_SUCCESS)
        sim_violated(sim, "11.2 silence is unknown_outcome: %s (intent %u) becomes %s", row->id, row->intent,
                     state_name(row->state));
}

/* ---- what executors say and hear ---- */

void checker_guard_says(struct sim *sim, const char *operation, int attempt, const struct engine_guard *word)
{
    const struct check_row *row = check_find(sim->checker, operation);
    struct check_executor *executor = row ? executor_of(row, attempt) : NULL;
    if (!executor || word->word == GUARD_HEARTBEAT)
        return;
    executor->said |= 1u << outcome_of(word);
    executor->result = check_digest(word->result);
    executor->external_id = arena_copy_text(&sim->checker->arena, word->external_id);
}

static bool took_effect(const struct check_row *row)
{
    return row->state == STATE_COMPLETED_SUCCESS || row->state == STATE_COMPENSATING || row->state == STATE_COMPENSATED;
}

static void word_heard(struct sim *sim, const struct check_row *row, struct check_executor *executor,
                       const struct engine_guard *word)
{
    enum outcome outcome = outcome_of(word);
    const struct check_try *try = try_number(row, executor->attempt);
    bool open = row->state == STATE_DISPATCHED || row->state == STATE_UNKNOWN_OUTCOME;
    bool latest = row->last_try->number == executor->attempt;
    if (!try || try->outcome != outcome)
        sim_violated(sim, "11.2 what is acknowledged is there: %s (intent %u) attempt %d said %s, its row says %s",
                     row->id, row->intent, executor->attempt, outcome_name(outcome),
                     try ? outcome_name(try->outcome) : "nothing");
    else if (outcome == OUTCOME_SUCCESS && !took_effect(row))
        sim_violated(sim, "11.2 a complete is never thrown away, however late: %s (intent %u) is %s", row->id,
                     row->intent, state_name(row->state));
    else if (word->word == GUARD_FAIL && word->no_effect && latest && open)
        sim_violated(sim, "11.2 a proof is taken, however late: %s (intent %u) attempt %d had no effect, it is %s",
                     row->id, row->intent, executor->attempt, state_name(row->state));
    executor->done_heard |= outcome == OUTCOME_SUCCESS;
}

void checker_guard_answered(struct sim *sim, const char *operation, int attempt, const struct engine_guard *word,
                            const struct engine_reply *reply)
{
    const struct check_row *row = check_find(sim->checker, operation);
    struct check_executor *executor = row ? executor_of(row, attempt) : NULL;
    if (!executor)
        return;
    if (reply->kind == REPLY_NOT_FOUND || (reply->kind == REPLY_EXPIRED && !row->dropped))
        sim_violated(sim, "11.2 a lease that was given is known: %s (intent %u) attempt %d is not", row->id,
                     row->intent, attempt);
    if (reply->kind == REPLY_IMPOSSIBLE && word->word != GUARD_HEARTBEAT)
        sim_violated(sim, "11.2 late words count: %s (intent %u) attempt %d is told that its word is impossible",
                     row->id, row->intent, attempt);
    if (reply->kind == REPLY_OPERATION && reply->op->rev > row->rev)
        sim_violated(sim, "4, 5.1 told before it is durable: %s version %lld, committed is %lld", row->id,
                     (long long)reply->op->rev, (long long)row->rev);
    if (reply->kind == REPLY_OPERATION && word->word != GUARD_HEARTBEAT)
        word_heard(sim, row, executor, word);
}

/* ---- the end ---- */

void check_guard_end(struct sim *sim, const struct check_row *row)
{
    for (const struct check_executor *executor = row->executors; executor; executor = executor->next) {
        if (executor->done_heard && !took_effect(row))
            sim_violated(sim, "11.2 what is acknowledged is there: %s (intent %u) attempt %d was done, it is %s",
                         row->id, row->intent, executor->attempt, state_name(row->state));
    }
}
