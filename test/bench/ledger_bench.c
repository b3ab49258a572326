/* What the SQLite ledger costs: CPU of the ledger thread per admit + transition pair, per replay and per look-up, bytes
 * per operation, time to open. Usage: ledger_bench FOLDER [OPERATIONS]; the file ledger_bench.db in FOLDER must not
 * exist and is removed at the end. With OPERATIONS the ledger grows to that size and look-ups are measured along the
 * way. */
#include "base/mem.h"
#include "ledger/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define GROUP_MAX 64
#define DAY_MS    86400000

struct call {
    struct ledger_request request;
    struct arena arena;
    struct operation op;
    struct attempt attempt;
    char key[64];
};

struct bench {
    struct ledger *ledger;
    struct ulid_source ids;
    struct call calls[GROUP_MAX];
    size_t open;        /* calls submitted, not done */
    unsigned long made; /* operations so far; their keys are counted up */
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* CPU of all threads but this one. */
static int64_t ledger_cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void call_done(struct ledger_request *request)
{
    struct bench *bench = request->user;
    bench->open--;
    if (request->code) {
        fprintf(stderr, "ledger_bench: %s\n", request->err.text);
        exit(1);
    }
}

static void fill(struct bench *bench, struct call *call, unsigned long number)
{
    struct operation *op = &call->op;
    char ulid[ULID_CHARS + 1];
    *op = (struct operation){.tenant = "acme", .tool = "refund_payment", .principal = "agent-7"};
    ulid_next(&bench->ids, ulid);
    snprintf(op->id, sizeof op->id, "op_%s", ulid);
    snprintf(call->key, sizeof call->key, "refund:order_%09lu:4900:EUR:v1", number);
    struct str parts[] = {STR("acme"), STR("refund_payment"), str_of(call->key)};
    op->key = call->key;
    op->key_hash = op->base_hash = digest_parts(parts, 3);
    op->key_version = 1;
    op->key_source = KEY_SOURCE_BUSINESS;
    op->fingerprint = digest_sha256(str_of(call->key));
    op->canonical_version = 1;
    op->policy_version = "8f3a1c9d2b4e";
    op->run = "run-20261129-0007";
    op->provider_key = op->id;
    op->arguments = STR("{\"order_id\":\"order_000000123\",\"amount_cents\":4900,\"currency\":\"EUR\","
                        "\"reason\":\"customer returned the goods\"}");
    op->created_ms = op->updated_ms = op->first_sent_ms = op->last_sent_ms = bench->ids.last_ms;
    op->state = STATE_DISPATCHED;
    op->may_have_applied = true;
    op->rev = 1;
    op->owner = "01KB9A6QH4R2M5T7V8W9X0Y1Z2";
    op->lease_until_ms = op->wake_at_ms = op->created_ms + 60000;
    op->attempts = op->tries = 1;
}

static void submit(struct bench *bench, struct call *call)
{
    call->request.arena = &call->arena;
    call->request.done = call_done;
    call->request.user = bench;
    bench->open++;
    ledger_submit(bench->ledger, &call->request);
}

static void finish(struct bench *bench)
{
    while (bench->open > 0) {
        ledger_wait(bench->ledger, 1000);
        ledger_poll(bench->ledger);
    }
}

static void admit(struct bench *bench, struct call *call, unsigned long number)
{
    arena_reset(&call->arena);
    fill(bench, call, number);
    call->attempt = (struct attempt){.number = 1, .started_ms = call->op.created_ms};
    snprintf(call->attempt.id, sizeof call->attempt.id, "at_%s", call->op.id + 3);
    call->request.command = LEDGER_ADMIT;
    call->request.admit = (struct ledger_admit){
        .admission = {.op = &call->op, .hold_in_doubt = true, .share_with_tenant = true},
        .attempt = &call->attempt,
        .event = {.at_ms = call->op.created_ms,
                  .cause = CAUSE_ADMITTED,
                  .from = STATE_DISPATCHED,
                  .to = STATE_DISPATCHED,
                  .actor = "agent-7",
                  .attempt = 1},
    };
    submit(bench, call);
}

static void complete(struct bench *bench, struct call *call)
{
    struct operation *op = &call->op;
    op->rev++;
    op->state = STATE_COMPLETED_SUCCESS;
    op->may_have_applied = true;
    op->owner = NULL;
    op->lease_until_ms = 0;
    op->updated_ms = op->completed_ms = op->created_ms + 12;
    op->retain_until_ms = op->wake_at_ms = op->completed_ms + 30 * (int64_t)DAY_MS;
    op->http_status = 200;
    op->external_id = "re_3NqYxR2eZvKYlo2C1a2b3c4d";
    op->result = STR("{\"id\":\"re_3NqYxR2eZvKYlo2C1a2b3c4d\",\"object\":\"refund\",\"amount\":4900,"
                     "\"currency\":\"eur\",\"status\":\"succeeded\"}");
    op->result_bytes = (int64_t)op->result.n;
    call->attempt.outcome = OUTCOME_SUCCESS;
    call->attempt.finished_ms = op->completed_ms;
    call->attempt.http_status = 200;
    call->attempt.provider_request_id = "req_0123456789";
    call->request.command = LEDGER_TRANSITION;
    call->request.transition = (struct ledger_transition){
        .op = op,
        .fence = "01KB9A6QH4R2M5T7V8W9X0Y1Z2",
        .events = {{.at_ms = op->completed_ms,
                    .cause = CAUSE_ANSWER,
                    .from = STATE_DISPATCHED,
                    .to = STATE_COMPLETED_SUCCESS,
                    .actor = "onced",
                    .attempt = 1}},
        .event_count = 1,
        .attempts = {call->attempt},
        .attempt_count = 1,
    };
    submit(bench, call);
}

static void pairs(struct bench *bench, size_t group, size_t count)
{
    for (size_t done = 0; done < count; done += group) {
        for (size_t i = 0; i < group; i++)
            admit(bench, &bench->calls[i], bench->made++);
        finish(bench);
        for (size_t i = 0; i < group; i++)
            complete(bench, &bench->calls[i]);
        finish(bench);
    }
}

static void measure_pairs(struct bench *bench, size_t group, size_t count)
{
    int64_t cpu = ledger_cpu_ns(), wall = clock_ns(CLOCK_MONOTONIC);
    pairs(bench, group, count);
    cpu = ledger_cpu_ns() - cpu;
    wall = clock_ns(CLOCK_MONOTONIC) - wall;
    printf("pair (admit + transition), %2zu a commit: %6.1f us CPU, %7.1f us wall\n", group,
           (double)cpu / 1000 / (double)count, (double)wall / 1000 / (double)count);
}

static void measure_replays(struct bench *bench, size_t group, size_t count)
{
    int64_t cpu = ledger_cpu_ns();
    for (size_t done = 0; done < count; done += group) {
        for (size_t i = 0; i < group; i++)
            admit(bench, &bench->calls[i], env_random64(env_system()) % bench->made);
        finish(bench);
    }
    cpu = ledger_cpu_ns() - cpu;
    printf("replay,                    %2zu a commit: %6.1f us CPU\n", group, (double)cpu / 1000 / (double)count);
}

static void measure_marks(struct bench *bench, size_t count)
{
    int64_t cpu = 0;
    for (size_t done = 0; done < count; done += GROUP_MAX) {
        pairs(bench, GROUP_MAX, GROUP_MAX);
        int64_t before = ledger_cpu_ns();
        for (size_t i = 0; i < GROUP_MAX; i++) {
            struct call *call = &bench->calls[i];
            call->request.command = LEDGER_MARK;
            call->request.mark = (struct ledger_mark){.operation = call->op.id, .delivered = true};
            submit(bench, call);
        }
        finish(bench);
        cpu += ledger_cpu_ns() - before;
    }
    printf("mark delivered,            %2d a commit: %6.1f us CPU\n", GROUP_MAX, (double)cpu / 1000 / (double)count);
}

static struct ledger_stats stats(struct bench *bench)
{
    struct arena arena;
    arena_init(&arena);
    struct ledger_request request = {.command = LEDGER_STATS, .arena = &arena};
    ledger_call(bench->ledger, &request);
    arena_release(&arena);
    return request.stats;
}

static void report_size(struct bench *bench)
{
    struct ledger_stats now = stats(bench);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%lu operations: %.0f bytes each, %lld commits, peak RSS %.1f MiB\n", bench->made,
           (double)now.file_bytes / (double)bench->made, (long long)now.commits, (double)usage.ru_maxrss / 1024);
}

static void open_ledger(struct bench *bench, const char *path)
{
    struct err err = {0};
    int64_t wall = clock_ns(CLOCK_MONOTONIC);
    struct ledger_sqlite_options options = {.path = path};
    if (ledger_sqlite_open(&options, env_system(), &bench->ledger, &err)) {
        fprintf(stderr, "ledger_bench: %s\n", err.text);
        exit(1);
    }
    printf("open: %.1f ms\n", (double)(clock_ns(CLOCK_MONOTONIC) - wall) / 1e6);
}

static void grow(struct bench *bench, const char *path, size_t target)
{
    for (size_t size = 10000; size <= target; size *= 10) {
        if (size > bench->made)
            pairs(bench, GROUP_MAX, size - bench->made);
        report_size(bench);
        measure_replays(bench, GROUP_MAX, 20032);
        measure_pairs(bench, GROUP_MAX, 10048);
    }
    int64_t wall = clock_ns(CLOCK_MONOTONIC);
    ledger_close(bench->ledger);
    printf("close: %.1f ms\n", (double)(clock_ns(CLOCK_MONOTONIC) - wall) / 1e6);
    open_ledger(bench, path);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: ledger_bench FOLDER [OPERATIONS]\n");
        return 2;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/ledger_bench.db", argv[1]);
    if (access(path, F_OK) == 0) {
        fprintf(stderr, "ledger_bench: %s exists already\n", path);
        return 2;
    }
    struct bench *bench = mem_zero(sizeof *bench);
    ulid_source_init(&bench->ids, env_system());
    open_ledger(bench, path);
    pairs(bench, GROUP_MAX, 20032); /* warm, and a file of some size */
    report_size(bench);
    measure_pairs(bench, 1, 500);
    measure_pairs(bench, 32, 20000);
    measure_pairs(bench, 64, 20032);
    measure_replays(bench, 1, 5000);
    measure_replays(bench, 64, 50048);
    measure_marks(bench, 6400);
    if (argc == 3)
        grow(bench, path, strtoul(argv[2], NULL, 10));
    report_size(bench);
    ledger_close(bench->ledger);
    for (size_t i = 0; i < GROUP_MAX; i++)
        arena_release(&bench->calls[i].arena);
    free(bench);
    static const char *const ends[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char file[4200];
        snprintf(file, sizeof file, "%s%s", path, ends[i]);
        unlink(file);
    }
    return 0;
}
