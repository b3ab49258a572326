/* Fills a SQLite ledger with finished operations through the ledger's own interface, as the daemon would have written
 * them: two commands each (before and after the request), many to a commit.
 *
 *   fill_ledger FILE COUNT [FIRST]
 *
 * Operation n has tool refund.create, key "refund:p{n}:4900:v1". Prints one JSON object: seconds, file size, and the id
 * of the operation in the middle. */
#include "base/mem.h"
#include "core/identity.h"
#include "ledger/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define IN_FLIGHT_MAX 32768
#define BATCH_MAX     16384 /* commands per commit: nobody waits here, and pages are written less often */

struct fill {
    struct ledger *ledger;
    struct env *env;
    struct ulid_source ids;
    uint64_t next, end, middle;
    char middle_id[OPERATION_ID_SIZE];
    unsigned in_flight;
    struct err err;
};

/* One operation on its way: admitted, then finished. */
struct job {
    struct fill *fill;
    struct arena arena;
    struct operation op;
    struct attempt attempt;
    struct ledger_request request;
};

static void new_id(struct fill *fill, const char *prefix, char out[OPERATION_ID_SIZE])
{
    char ulid[ULID_CHARS + 1];
    ulid_next(&fill->ids, ulid);
    snprintf(out, OPERATION_ID_SIZE, "%s%s", prefix, ulid);
}

static void job_free(struct job *job)
{
    job->fill->in_flight--;
    arena_release(&job->arena);
    free(job);
}

static void finished(struct ledger_request *request)
{
    struct job *job = request->user;
    if (request->code)
        err_set(&job->fill->err, request->code, "transition: %s", request->err.text);
    job_free(job);
}

static void finish(struct job *job)
{
    struct operation *op = &job->op;
    op->state = STATE_COMPLETED_SUCCESS;
    op->rev++;
    op->owner = NULL;
    op->lease_until_ms = 0;
    op->wake_at_ms = 0;
    op->updated_ms = op->completed_ms = op->created_ms + 2;
    op->http_status = 201;
    op->external_id = arena_printf(&job->arena, "refund_%s", op->key);
    op->result =
        str_of(arena_printf(&job->arena,
                            "{\"id\":\"%s\",\"object\":\"refunds\",\"status\":\"succeeded\",\"amount_cents\":4900,"
                            "\"metadata\":{\"operation\":\"%s\"}}",
                            op->external_id, op->id));
    op->result_bytes = (int64_t)op->result.n;
    job->attempt.outcome = OUTCOME_SUCCESS;
    job->attempt.finished_ms = op->completed_ms;
    job->attempt.http_status = 201;
    struct ledger_transition *change = &job->request.transition;
    *change = (struct ledger_transition){.op = op, .event_count = 1, .attempt_count = 1};
    change->attempts[0] = job->attempt;
    change->events[0] = (struct event){.at_ms = op->completed_ms,
                                       .cause = CAUSE_ANSWER,
                                       .from = STATE_DISPATCHED,
                                       .to = STATE_COMPLETED_SUCCESS,
                                       .actor = "onced",
                                       .attempt = 1};
    job->request.command = LEDGER_TRANSITION;
    job->request.done = finished;
    ledger_submit(job->fill->ledger, &job->request);
}

static void admitted(struct ledger_request *request)
{
    struct job *job = request->user;
    if (request->code || request->admit.result.verdict != VERDICT_NEW) {
        err_set(&job->fill->err, request->code ? request->code : ERR_CONFLICT, "admission of %s: %s", job->op.key,
                request->code ? request->err.text : verdict_name(request->admit.result.verdict));
        job_free(job);
        return;
    }
    finish(job);
}

static void describe(struct job *job, uint64_t n)
{
    struct fill *fill = job->fill;
    struct operation *op = &job->op;
    new_id(fill, "op_", op->id);
    op->tenant = "default";
    op->tool = "refund.create";
    op->principal = "local";
    op->key = arena_printf(&job->arena, "refund:p%llu:4900:v1", (unsigned long long)n);
    op->key_hash = op->base_hash = identity_key_hash(op->tenant, op->tool, op->key, NULL);
    op->key_source = KEY_SOURCE_BUSINESS;
    op->key_version = 1;
    op->arguments =
        str_of(arena_printf(&job->arena, "{\"amount_cents\":4900,\"payment_id\":\"p%llu\"}", (unsigned long long)n));
    op->fingerprint = digest_sha256(op->arguments);
    op->canonical_version = JSON_CANONICAL_VERSION;
    op->policy_version = "bench";
    op->provider_key = op->id;
    op->state = STATE_DISPATCHED;
    op->may_have_applied = true;
    op->rev = 1;
    op->owner = "bench";
    op->attempts = op->tries = 1;
    op->created_ms = op->updated_ms = op->first_sent_ms = op->last_sent_ms = fill->env->now_ms(fill->env);
    op->lease_until_ms = op->wake_at_ms = op->created_ms + 60000;
    job->attempt =
        (struct attempt){.number = 1, .kind = ATTEMPT_CALL, .outcome = OUTCOME_OPEN, .started_ms = op->created_ms};
    new_id(fill, "at_", job->attempt.id);
    if (n == fill->middle)
        snprintf(fill->middle_id, sizeof fill->middle_id, "%s", op->id);
}

static void start(struct fill *fill)
{
    struct job *job = mem_zero(sizeof *job);
    job->fill = fill;
    arena_init(&job->arena);
    describe(job, fill->next++);
    job->request.command = LEDGER_ADMIT;
    job->request.arena = &job->arena;
    job->request.user = job;
    job->request.done = admitted;
    job->request.admit.admission.op = &job->op;
    job->request.admit.attempt = &job->attempt;
    job->request.admit.event = (struct event){.at_ms = job->op.created_ms,
                                              .cause = CAUSE_ADMITTED,
                                              .from = STATE_DISPATCHED,
                                              .to = STATE_DISPATCHED,
                                              .actor = "local",
                                              .attempt = 1};
    fill->in_flight++;
    ledger_submit(fill->ledger, &job->request);
}

static int64_t run(struct fill *fill)
{
    int64_t begin = fill->env->now_ms(fill->env);
    while ((fill->next < fill->end && !fill->err.code) || fill->in_flight) {
        while (fill->next < fill->end && fill->in_flight < IN_FLIGHT_MAX && !fill->err.code)
            start(fill);
        ledger_wait(fill->ledger, 1000);
        ledger_poll(fill->ledger);
    }
    return fill->env->now_ms(fill->env) - begin;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "fill_ledger FILE COUNT [FIRST]\n");
        return 2;
    }
    struct fill fill = {.env = env_system()};
    struct ledger_sqlite_options options = {.path = argv[1], .batch_max = BATCH_MAX};
    uint64_t count = strtoull(argv[2], NULL, 10);
    fill.next = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    fill.end = fill.next + count;
    fill.middle = fill.next + count / 2;
    ulid_source_init(&fill.ids, fill.env);
    if (ledger_sqlite_open(&options, fill.env, &fill.ledger, &fill.err)) {
        fprintf(stderr, "fill_ledger: %s\n", fill.err.text);
        return 1;
    }
    int64_t took_ms = run(&fill);
    ledger_close(fill.ledger);
    if (fill.err.code) {
        fprintf(stderr, "fill_ledger: %s\n", fill.err.text);
        return 1;
    }
    printf("{\"operations\":%llu,\"seconds\":%.3f,\"middle\":\"%s\"}\n", (unsigned long long)count,
           (double)took_ms / 1000, fill.middle_id);
    return 0;
}
