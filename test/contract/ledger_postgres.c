/* What only the PostgreSQL ledger has to show: several gateways on one database, connections that break, clocks that
 * differ, databases that do not fit. Run by ledger_contract.c. */
#include "contract/lossy_proxy.h"
#include "contract/postgres.h"
#include "core/claims.h"
#include "ledger/pg_store.h"
#include "ledger/postgres.h"
#include "ledger/queue.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- setting ---- */

#define PATIENCE_S 30

struct asked {
    struct ledger_request *request;
    struct arena arena;
    bool done;
    unsigned place; /* in the order in which all were done */
};

static void note_done(struct ledger_request *request)
{
    static unsigned places;
    struct asked *asked = request->user;
    asked->done = true;
    asked->place = ++places;
}

/* Hands a request over without waiting for it. */
static struct asked *ask(struct world *world, struct ledger *ledger, struct ledger_request *request)
{
    struct asked *asked = arena_zero(&world->arena, sizeof *asked);
    arena_init(&asked->arena);
    asked->request = request;
    request->arena = &asked->arena;
    request->done = note_done;
    request->user = asked;
    ledger_submit(ledger, request);
    return asked;
}

static void wait_for(struct ledger *ledger, struct asked **asked, size_t count)
{
    time_t end = time(NULL) + PATIENCE_S;
    for (size_t i = 0; i < count; i++) {
        while (!asked[i]->done) {
            if (time(NULL) > end)
                fail_msg("%zu of %zu requests are done", i, count);
            ledger_wait(ledger, 1000);
            ledger_poll(ledger);
        }
    }
}

static void forget(struct asked **asked, size_t count)
{
    for (size_t i = 0; i < count; i++)
        arena_release(&asked[i]->arena);
}

static void socket_folder(char out[128])
{
    const char *host = strstr(postgres_url(), "host=");
    assert_non_null(host);
    snprintf(out, 128, "%.*s", (int)strcspn(host + 5, "&"), host + 5);
}

static char *proxied_url(struct world *world, const struct proxy *proxy)
{
    return arena_printf(&world->arena, "postgresql://onced@/postgres?host=%s&port=5432", proxy->folder);
}

/* The world's ledger behind a proxy, while own is kept. */
struct behind {
    struct proxy proxy;
    struct ledger *own;
};

static void go_behind(struct world *world, struct behind *behind)
{
    char folder[128];
    socket_folder(folder);
    proxy_start(&behind->proxy, folder);
    behind->own = world->ledger;
    world->ledger = open_gateway(proxied_url(world, &behind->proxy));
}

static void come_back(struct world *world, struct behind *behind)
{
    ledger_close(world->ledger);
    world->ledger = behind->own;
    proxy_stop(&behind->proxy);
}

static long stored(const char *sql)
{
    PGconn *conn = postgres_connect();
    postgres_number(conn, "SET search_path = onced");
    long number = postgres_number(conn, sql);
    PQfinish(conn);
    return number;
}

/* Until what `sql` counts are so many. */
static void await(long count, const char *sql)
{
    time_t end = time(NULL) + PATIENCE_S;
    for (long there; (there = stored(sql)) < count;)
        if (time(NULL) > end)
            fail_msg("%ld, expected %ld: %s", there, count, sql);
}

/* ---- several gateways ---- */

enum { GATEWAYS = 3, CALLS = 150 };

/* Every gateway admits the same calls, all at once; returns how many were new. */
static size_t race(struct world *world, void (*shape)(struct world *world, struct ledger_request *request, int call),
                   size_t *refused)
{
    struct ledger *gateways[GATEWAYS] = {world->ledger};
    struct asked *asked[GATEWAYS][CALLS];
    size_t fresh = 0;
    *refused = 0;
    for (int g = 1; g < GATEWAYS; g++)
        gateways[g] = open_gateway(NULL);
    for (int i = 0; i < CALLS; i++) {
        for (int g = 0; g < GATEWAYS; g++) {
            int at = g == 1 ? CALLS - 1 - i : i; /* in different orders */
            struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", at), at);
            struct ledger_request *request = make_admit(world, op);
            if (shape)
                shape(world, request, g * CALLS + at);
            asked[g][i] = ask(world, gateways[g], request);
        }
    }
    for (int g = 0; g < GATEWAYS; g++) {
        wait_for(gateways[g], asked[g], CALLS);
        for (int i = 0; i < CALLS; i++) {
            if (asked[g][i]->request->code)
                fail_msg("%s", asked[g][i]->request->err.text);
            fresh += asked[g][i]->request->admit.result.verdict == VERDICT_NEW;
            *refused += asked[g][i]->request->admit.result.verdict == VERDICT_POLICY;
        }
        forget(asked[g], CALLS);
        if (g > 0)
            ledger_close(gateways[g]);
    }
    return fresh;
}

static void one_gateway_is_elected(void **state)
{
    struct world *world = *state;
    size_t refused;
    assert_int_equal(race(world, NULL, &refused), CALLS);
    assert_int_equal(refused, 0);
    assert_int_equal(stored("SELECT count(*) FROM operations"), CALLS);
}

/* Two gateways admit alike calls, each in a transaction that has written its own and not ended when the other one
 * begins: nothing but a lock keeps either from finding nothing. Returns how many were new. */
static size_t overlap(struct world *world, void (*shape)(struct world *world, struct ledger_request *request, int call))
{
    struct ledger *gateways[2] = {world->ledger, open_gateway(NULL)};
    struct asked *asked[2];
    size_t fresh = 0;
    PGconn *conn = postgres_connect();
    postgres_number(conn, "BEGIN");
    postgres_number(conn, "LOCK TABLE onced.counters IN SHARE MODE"); /* the last thing a batch writes */
    for (int g = 0; g < 2; g++) {
        struct ledger_request *request = make_admit(world, make_operation(world, "refund", "k", 1));
        shape(world, request, g);
        asked[g] = ask(world, gateways[g], request);
    }
    await(2, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onced' AND wait_event_type = 'Lock'");
    PQfinish(conn);
    for (int g = 0; g < 2; g++) {
        wait_for(gateways[g], &asked[g], 1);
        if (asked[g]->request->code)
            fail_msg("%s", asked[g]->request->err.text);
        fresh += asked[g]->request->admit.result.verdict == VERDICT_NEW;
    }
    forget(asked, 2);
    ledger_close(gateways[1]);
    return fresh;
}

/* Under random keys: what elects is that the call repeats another one. */
static void as_repeat(struct world *world, struct ledger_request *request, int call)
{
    struct operation *op = request->admit.admission.op;
    op->key_source = KEY_SOURCE_REPEAT;
    op->key = arena_printf(&world->arena, "random-%d", call);
    set_key(op);
    request->admit.admission.repeat_window_ms = 60000;
}

static void one_gateway_is_elected_without_a_key(void **state)
{
    struct world *world = *state;
    size_t refused;
    assert_int_equal(race(world, as_repeat, &refused), CALLS);
    assert_int_equal(stored("SELECT count(*) FROM operations"), CALLS);
}

static void a_repetition_under_way_is_found(void **state)
{
    struct world *world = *state;
    assert_int_equal(overlap(world, as_repeat), 1);
    assert_int_equal(stored("SELECT count(*) FROM operations"), 1);
}

/* All from one budget that has room for 100. */
static void debit(struct world *world, struct ledger_request *request, int call, int amount)
{
    struct operation *op = request->admit.admission.op;
    struct claims *claims = arena_zero(&world->arena, sizeof *claims);
    op->key = arena_printf(&world->arena, "debit-%d", call);
    set_key(op);
    claims->debits[0] = (struct claim_debit){.budget = "daily",
                                             .subject = "",
                                             .key = "",
                                             .amount = decimal_of(amount),
                                             .per_ms = 86400000,
                                             .limit = decimal_of(100)};
    claims->debit_count = 1;
    request->admit.admission.claims = claims;
    op->claims = claims_write(&world->arena, claims);
}

static void as_debit(struct world *world, struct ledger_request *request, int call)
{
    debit(world, request, call, 1);
}

static void as_debit_of_all(struct world *world, struct ledger_request *request, int call)
{
    debit(world, request, call, 100);
}

static void a_budget_is_never_overdrawn(void **state)
{
    struct world *world = *state;
    size_t refused;
    assert_int_equal(race(world, as_debit, &refused), 100);
    assert_int_equal(refused, GATEWAYS * CALLS - 100);
}

static void a_debit_under_way_counts(void **state)
{
    assert_int_equal(overlap(*state, as_debit_of_all), 1);
}

static void a_transition_is_made_once(void **state)
{
    enum { OPERATIONS = 60 };
    struct world *world = *state;
    struct ledger *other = open_gateway(NULL);
    struct asked *asked[2][OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++)
        admit(world, make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1));
    struct ledger_list *all = list(world, (struct ledger_list){.limit = OPERATIONS, .with_payload = true});
    for (int i = 0; i < OPERATIONS; i++) {
        for (int g = 0; g < 2; g++) {
            struct operation *op = operation_copy(&world->arena, all->ops[g ? OPERATIONS - 1 - i : i]);
            asked[g][i] = ask(world, g ? other : world->ledger, make_transition(world, op, STATE_REJECTED));
        }
    }
    wait_for(world->ledger, asked[0], OPERATIONS);
    wait_for(other, asked[1], OPERATIONS);
    for (int i = 0; i < OPERATIONS; i++) {
        enum err_code mine = asked[0][i]->request->code, theirs = asked[1][OPERATIONS - 1 - i]->request->code;
        assert_true((mine == 0 && theirs == ERR_STALE) || (mine == ERR_STALE && theirs == 0));
    }
    forget(asked[0], OPERATIONS);
    forget(asked[1], OPERATIONS);
    ledger_close(other);
    assert_int_equal(stored("SELECT count(*) FROM history"), OPERATIONS);
    assert_int_equal(stored("SELECT sum(operations) FROM counters WHERE state = 'rejected'"), OPERATIONS);
}

/* Statements go to the tenant's partition once the server has told its number: with one key in many tenants, each has
 * its own, before and after. */
static void each_tenant_has_its_place(void **state)
{
    enum { TENANTS = 12, ROUNDS = 3 };
    struct world *world = *state;
    for (int i = 0; i < TENANTS * ROUNDS; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i / TENANTS), 1);
        op->tenant = arena_printf(&world->arena, "tenant%d", i % TENANTS);
        assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
        move(world, op, STATE_REJECTED);
        struct ledger_request *request = make_request(world, LEDGER_GET);
        request->get.tenant = op->tenant;
        request->get.operation = op->id;
        assert_int_equal(call(world, request), 0);
        assert_string_equal(request->get.op->tenant, op->tenant);
        assert_false(request->get.op->delivered);
        mark(world, (struct ledger_mark){.operation = op->id, .tenant = op->tenant, .delivered = true});
        request->get.tenant = arena_printf(&world->arena, "tenant%d", (i + 1) % TENANTS);
        assert_int_equal(call(world, request), ERR_NOT_FOUND);
    }
    assert_int_equal(stored("SELECT count(*) FROM operations WHERE state = 'rejected' AND delivered = 1"),
                     TENANTS * ROUNDS);
    assert_int_equal(stored("SELECT count(*) FROM history"), TENANTS * ROUNDS);
    assert_true(stored("SELECT count(DISTINCT tableoid) FROM operations") > 1);
}

/* Plans are made while tables are empty, when all indexes seem to cost the same: none may lead to all rows of a tenant.
 */
static void no_index_leads_to_a_whole_tenant(void **state)
{
    (void)state;
    assert_int_equal(stored("SELECT count(*) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = "
                            "indkey[0] WHERE attname = 'tenant' AND indrelid IN ('operations'::regclass, "
                            "'history'::regclass, 'tombstones'::regclass)"),
                     0);
    assert_int_equal(stored("SELECT count(*) FROM (SELECT FROM pg_index WHERE indrelid = 'operations'::regclass AND "
                            "indpred IS NULL GROUP BY indkey[0] HAVING count(*) > 1) AS same"),
                     0);
}

/* Due rows go to one gateway each, and nobody waits for the other. */
static void claims_are_spread(void **state)
{
    enum { ROWS = 80, CLAIMS = 8 };
    struct world *world = *state;
    struct ledger *other = open_gateway(NULL);
    struct asked *asked[2][CLAIMS];
    size_t handed_out = 0;
    for (int i = 0; i < ROWS; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        op->wake_at_ms = world->now_ms;
        admit(world, op);
    }
    for (int i = 0; i < CLAIMS; i++) {
        for (int g = 0; g < 2; g++) {
            struct ledger_request *request = make_request(world, LEDGER_CLAIM_DUE);
            request->claim = (struct ledger_claim){
                .owner = g ? OTHER_OWNER : OWNER, .now_ms = world->now_ms, .lease_ms = 60000, .limit = 16};
            asked[g][i] = ask(world, g ? other : world->ledger, request);
        }
    }
    wait_for(world->ledger, asked[0], CLAIMS);
    wait_for(other, asked[1], CLAIMS);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < CLAIMS; i++)
            handed_out += asked[g][i]->request->claim.count;
    forget(asked[0], CLAIMS);
    forget(asked[1], CLAIMS);
    ledger_close(other);
    assert_int_equal(handed_out, ROWS);
    assert_int_equal(stored("SELECT count(*) FROM operations WHERE owner IS NULL"), 0);
}

/* ---- news ---- */

struct listener {
    sem_t ready;
    char told[8][OPERATION_ID_SIZE];
    size_t count;
    bool missing;
};

static void ring(void *user)
{
    sem_post(&((struct listener *)user)->ready);
}

static void hear(void *user, const char *operation)
{
    struct listener *listener = user;
    if (!operation)
        listener->missing = true;
    else if (listener->count < 8)
        snprintf(listener->told[listener->count++], OPERATION_ID_SIZE, "%s", operation);
}

/* Until it has heard something: false after ten seconds. */
static bool listen_until(struct ledger *ledger, struct listener *listener, size_t count)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    for (;;) {
        ledger_poll(ledger);
        if (listener->missing && listener->count >= count)
            return true;
        if (sem_timedwait(&listener->ready, &until))
            return false;
    }
}

/* Only what is watched is told, by whom ever it is moved, and not to who moved it. */
static void moves_of_watched_operations_are_told(void **state)
{
    struct world *world = *state;
    struct listener listener = {0};
    struct ledger *other = NULL;
    struct err err = {0};
    sem_init(&listener.ready, 0, 0);
    struct ledger_postgres_options options = {
        .url = postgres_url(), .own_clock = true, .notify = ring, .user = &listener};
    if (ledger_postgres_open(&options, env_system(), &other, &err))
        fail_msg("%s", err.text);
    ledger_on_news(other, hear, &listener);
    assert_true(listen_until(other, &listener, 0)); /* it listens: what was before may be missing */
    struct operation *ops[3];
    for (int i = 0; i < 3; i++) {
        ops[i] = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        admit(world, ops[i]);
    }
    for (int i = 1; i < 3; i++) {
        struct ledger_request *request = make_request(world, LEDGER_WATCH);
        request->get = (struct ledger_get){.tenant = ops[i]->tenant, .operation = ops[i]->id};
        assert_int_equal(ledger_call(i == 1 ? other : world->ledger, request), 0);
    }
    for (int i = 0; i < 3; i++)
        move(world, ops[i], STATE_DISPATCHED);
    assert_true(listen_until(other, &listener, 2));
    move(world, ops[2], STATE_COMPLETED_SUCCESS);
    assert_true(listen_until(other, &listener, 3));
    assert_int_equal(listener.count, 3);
    assert_string_equal(listener.told[0], ops[1]->id);
    assert_string_equal(listener.told[1], ops[2]->id);
    assert_string_equal(listener.told[2], ops[2]->id);
    struct ledger_request *own = make_transition(world, ops[1], STATE_COMPLETED_SUCCESS);
    assert_int_equal(ledger_call(other, own), 0);
    move(world, ops[2], STATE_COMPENSATING);
    assert_true(listen_until(other, &listener, 4));
    assert_string_equal(listener.told[3], ops[2]->id);
    ledger_close(other);
    sem_destroy(&listener.ready);
}

/* A gateway that was stopped in the midst of a transaction keeps its locks. Who waits for them has its session ended.
 */
static void who_stands_still_is_not_waited_for(void **state)
{
    struct world *world = *state;
    struct listener listener = {0};
    struct ledger *other = NULL;
    struct err err = {0};
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    sem_init(&listener.ready, 0, 0);
    struct ledger_postgres_options options = {
        .url = postgres_url(), .own_clock = true, .notify = ring, .user = &listener};
    if (ledger_postgres_open(&options, env_system(), &other, &err))
        fail_msg("%s", err.text);
    ledger_on_news(other, hear, &listener);
    assert_true(listen_until(other, &listener, 0));
    PGconn *stopped = postgres_connect(), *person = postgres_connect();
    postgres_number(stopped, "SET application_name = 'onced'");
    postgres_number(stopped, "BEGIN");
    postgres_number(person, "BEGIN");
    postgres_number(stopped,
                    arena_printf(&world->arena, "SELECT 1 FROM onced.operations WHERE id = '%s' FOR UPDATE", op->id));
    assert_int_equal(ledger_call(other, make_transition(world, op, STATE_DISPATCHED)), 0);
    PQclear(PQexec(stopped, "SELECT 1"));
    assert_int_equal(PQstatus(stopped), CONNECTION_BAD);
    assert_int_equal(postgres_number(person, "SELECT 1"), 1); /* others are left alone, however long they take */
    PQfinish(stopped);
    PQfinish(person);
    ledger_close(other);
    sem_destroy(&listener.ready);
}

/* ---- rows of many commands ---- */

static void connect_to(struct world *world, struct pg *pg)
{
    struct err err = {0};
    bool committed;
    pg_init(pg, postgres_url(), &world->env, true);
    if (pg_connect(pg, &committed, &err))
        fail_msg("%s", err.text);
}

static void rows_of_a_transaction_that_failed_are_forgotten(void **state)
{
    struct world *world = *state;
    struct ledger_request *moves[2];
    struct pg_ahead ahead;
    struct pg pg;
    struct err err = {0};
    for (int i = 0; i < 2; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), i);
        admit(world, op);
        moves[i] = make_transition(world, op, STATE_DISPATCHED);
    }
    connect_to(world, &pg);
    assert_int_equal(pg_begin(&pg, true, NULL, 0, &err), 0);
    pg_ahead(&pg, moves[0], &ahead); /* … and does not get to its being sent */
    pg_rollback(&pg);
    assert_int_equal(pg_begin(&pg, true, NULL, 0, &err), 0);
    assert_int_equal(pg_transition(&pg, moves[1], NULL), 0);
    assert_int_equal(pg_commit(&pg, &err), 0);
    pg_release(&pg);
    assert_int_equal(get(world, moves[0]->transition.op->id)->state, STATE_PENDING_DISPATCH);
    assert_int_equal(get(world, moves[1]->transition.op->id)->state, STATE_DISPATCHED);
}

/* ---- two batches at once ---- */

enum { BESIDE = QUEUE_BESIDE_LEAST };

/* Keeps one batch of the ledger from beginning: it waits for the lock of `request`, which the test holds. */
struct hold {
    PGconn *conn;
    long lock;
};

static long lock_of(const struct ledger_request *request)
{
    int64_t locks[PG_LOCKS_MAX];
    assert_int_equal(pg_locks_of(request, locks), 1);
    return (long)locks[0];
}

static struct hold hold_lock(struct world *world, long lock)
{
    struct hold hold = {postgres_connect(), lock};
    postgres_number(hold.conn, arena_printf(&world->arena, "SELECT 1 FROM pg_advisory_lock(%ld)", lock));
    return hold;
}

static void await_waiting(struct world *world, long lock)
{
    await(1, arena_printf(&world->arena,
                          "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
                          "AND (classid::bigint << 32 | objid::bigint) = %ld",
                          lock));
}

/* Gives what must not happen, `sql` counting so many, the time to happen. */
static void give_time(long sql_count, const char *sql)
{
    struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < 60 && stored(sql) < sql_count; i++)
        nanosleep(&pause, NULL);
}

static void let_go(struct hold *hold)
{
    PQfinish(hold->conn);
}

/* Admissions under keys of their own. */
static void ask_new_ones(struct world *world, struct asked **asked, int count)
{
    for (int i = 0; i < count; i++)
        asked[i] = ask(world, world->ledger,
                       make_admit(world, make_operation(world, "new", arena_printf(&world->arena, "new%d", i), i)));
}

static struct ledger_request *make_mark(struct world *world, const struct operation *op)
{
    struct ledger_request *request = make_request(world, LEDGER_MARK);
    request->mark = (struct ledger_mark){.operation = op->id, .tenant = op->tenant, .delivered = true};
    return request;
}

/* One batch waits in the server; the next one is done beside it, and handed over after it. */
static void a_batch_is_done_beside_another(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    struct asked *asked[1 + BESIDE];
    admit(world, op);
    struct ledger_request *moves = make_transition(world, op, STATE_DISPATCHED);
    struct hold hold = hold_lock(world, lock_of(moves));
    asked[0] = ask(world, world->ledger, moves);
    await_waiting(world, hold.lock);
    ask_new_ones(world, asked + 1, BESIDE);
    await(BESIDE, "SELECT count(*) FROM operations WHERE tool = 'new'");
    ledger_poll(world->ledger);
    for (int i = 0; i <= BESIDE; i++)
        assert_false(asked[i]->done);
    let_go(&hold);
    wait_for(world->ledger, asked, 1 + BESIDE);
    for (int i = 0; i <= BESIDE; i++) {
        assert_int_equal(asked[i]->request->code, 0);
        assert_int_equal(asked[i]->place, asked[0]->place + (unsigned)i);
    }
    forget(asked, 1 + BESIDE);
}

/* Whatever is more than rows of its own: who knows what it looks at. */
static void others_are_alone(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    struct asked *asked[1 + BESIDE];
    admit(world, op);
    move(world, op, STATE_REJECTED);
    struct ledger_request *expiry = make_request(world, LEDGER_EXPIRE);
    expiry->expire = (struct ledger_expire){.operation = op->id, .rev = op->rev, .now_ms = world->now_ms};
    struct hold hold = hold_lock(world, lock_of(expiry));
    asked[0] = ask(world, world->ledger, expiry);
    await_waiting(world, hold.lock);
    ask_new_ones(world, asked + 1, BESIDE);
    give_time(BESIDE, "SELECT count(*) FROM operations WHERE tool = 'new'");
    assert_int_equal(stored("SELECT count(*) FROM operations WHERE tool = 'new'"), 0);
    let_go(&hold);
    wait_for(world->ledger, asked, 1 + BESIDE);
    for (int i = 0; i <= BESIDE; i++)
        assert_int_equal(asked[i]->request->code, 0);
    forget(asked, 1 + BESIDE);
}

/* Calls that are held by one whose caller has gone, which is just being recorded. */
static void who_must_see_the_batch_before_waits(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 0);
    struct asked *asked[1 + BESIDE];
    admit(world, op);
    move(world, op, STATE_DISPATCHED);
    struct ledger_request *mark = make_request(world, LEDGER_MARK);
    mark->mark = (struct ledger_mark){.operation = op->id, .tenant = op->tenant, .orphaned = true};
    struct hold hold = hold_lock(world, lock_of(mark));
    asked[0] = ask(world, world->ledger, mark);
    await_waiting(world, hold.lock);
    for (int i = 0; i < BESIDE; i++) {
        struct ledger_request *request =
            make_admit(world, make_operation(world, "refund", arena_printf(&world->arena, "other%d", i), 1 + i));
        request->admit.admission.hold_in_doubt = true;
        asked[1 + i] = ask(world, world->ledger, request);
    }
    give_time(1 + BESIDE, "SELECT count(*) FROM operations");
    let_go(&hold);
    wait_for(world->ledger, asked, 1 + BESIDE);
    for (int i = 1; i <= BESIDE; i++)
        assert_int_equal(asked[i]->request->admit.result.verdict, VERDICT_HELD);
    forget(asked, 1 + BESIDE);
}

/* A call with the key of an operation whose end is just being recorded. */
static void an_admission_that_is_not_new_waits(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1), *again = make_operation(world, "refund", "k", 1);
    struct asked *asked[2 + BESIDE];
    admit(world, op);
    move(world, op, STATE_DISPATCHED);
    struct ledger_request *end = make_transition(world, op, STATE_COMPLETED_SUCCESS);
    struct hold hold = hold_lock(world, lock_of(end));
    asked[0] = ask(world, world->ledger, end);
    await_waiting(world, hold.lock);
    asked[1] = ask(world, world->ledger, make_admit(world, again));
    ask_new_ones(world, asked + 2, BESIDE);
    give_time(BESIDE, "SELECT count(*) FROM operations WHERE tool = 'new'");
    let_go(&hold);
    wait_for(world->ledger, asked, 2 + BESIDE);
    for (int i = 0; i < 2 + BESIDE; i++)
        assert_int_equal(asked[i]->request->code, 0);
    assert_int_equal(asked[1]->request->admit.result.existing->state, STATE_COMPLETED_SUCCESS);
    forget(asked, 2 + BESIDE);
}

/* The batch with the first move of a row waits for another row's lock and has none itself, for locks are taken in
 * rising order; the second move must not overtake it. */
static void changes_of_one_row_keep_their_order(void **state)
{
    struct world *world = *state;
    struct operation *ops[3];
    struct ledger_request *marks[3];
    struct asked *asked[4 + BESIDE];
    for (int i = 0; i < 3; i++) {
        ops[i] = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        admit(world, ops[i]);
        marks[i] = make_mark(world, ops[i]);
    }
    int higher = lock_of(marks[0]) < lock_of(marks[1]);
    struct operation *op = ops[higher];
    struct hold before = hold_lock(world, lock_of(marks[2])), hold = hold_lock(world, lock_of(marks[1 - higher]));
    asked[0] = ask(world, world->ledger, marks[2]);
    await_waiting(world, before.lock);
    asked[1] = ask(world, world->ledger, marks[1 - higher]); /* these two wait for their turn: one batch */
    asked[2] = ask(world, world->ledger, make_transition(world, op, STATE_DISPATCHED));
    let_go(&before);
    await_waiting(world, hold.lock);
    asked[3] =
        ask(world, world->ledger, make_transition(world, operation_copy(&world->arena, op), STATE_COMPLETED_SUCCESS));
    ask_new_ones(world, asked + 4, BESIDE);
    give_time(BESIDE, "SELECT count(*) FROM operations WHERE tool = 'new'");
    let_go(&hold);
    wait_for(world->ledger, asked, 4 + BESIDE);
    for (int i = 0; i < 4 + BESIDE; i++)
        assert_int_equal(asked[i]->request->code, 0);
    assert_int_equal(get(world, op->id)->state, STATE_COMPLETED_SUCCESS);
    forget(asked, 4 + BESIDE);
}

/* ---- connections that break ---- */

static void a_broken_connection_is_made_anew(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 5; i++) {
        admit(world, make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1));
        stored("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'onced'");
    }
    assert_int_equal(list(world, (struct ledger_list){.limit = 10})->count, 5);
    assert_int_equal(stored("SELECT count(*) FROM operations"), 5);
}

/* The question that has to be found out, each way: not committed, committed at some time, committed and not told. Every
 * call counts once. ONCED_LOST_COMMITS: how often. */
static void a_lost_commit_is_found_out(void **state)
{
    static const enum proxy_loss losses[] = {PROXY_LOSES_COMMIT, PROXY_LEAVES, PROXY_LOSES_ANSWER};
    struct world *world = *state;
    const char *wanted = getenv("ONCED_LOST_COMMITS");
    int count = wanted ? atoi(wanted) : 30;
    struct behind behind;
    go_behind(world, &behind);
    for (int i = 0; i < count; i++) {
        struct operation *op = make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1);
        atomic_store(&behind.proxy.loss, losses[i % 3]);
        assert_int_equal(admit(world, op).verdict, VERDICT_NEW);
        assert_int_equal(atomic_load(&behind.proxy.losses), 2 * i + 1);
        atomic_store(&behind.proxy.loss, losses[(i + 1) % 3]);
        move(world, op, STATE_REJECTED);
        assert_int_equal(atomic_load(&behind.proxy.losses), 2 * i + 2);
    }
    come_back(world, &behind);
    assert_int_equal(stored("SELECT count(*) FROM operations WHERE state = 'rejected' AND rev = 2"), count);
    assert_int_equal(stored("SELECT count(*) FROM history"), count);
    assert_int_equal(stored("SELECT sum(operations) FROM counters"), count);
    print_message("%d commits lost, all found out\n", 2 * count);
}

/* A connection that was given up must not commit after all, when its batch has been run again: the whole transaction of
 * a mark, which asks nothing before it commits, reaches the server when a later one is through. */
static void a_connection_given_up_commits_nothing(void **state)
{
    struct world *world = *state;
    struct behind behind;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    go_behind(world, &behind);
    mark(world, (struct ledger_mark){.operation = op->id, .orphaned = true});
    atomic_store(&behind.proxy.loss, PROXY_DELAYS);
    mark(world, (struct ledger_mark){.operation = op->id, .delivered = true});
    assert_int_equal(atomic_load(&behind.proxy.losses), 1);
    come_back(world, &behind);
    assert_int_equal(atomic_load(&behind.proxy.released), 1);
    /* Marks are the first, the lost one, and that one again, on either connection. Had the old one committed, its
     * number would be there. */
    assert_int_equal(stored("SELECT sum(batch)::bigint FROM gateways WHERE id IN "
                            "(SELECT id FROM gateways ORDER BY id DESC LIMIT 2)"),
                     3);
    assert_true(get(world, op->id)->delivered);
}

static void nothing_waits_for_a_server_that_is_away(void **state)
{
    struct world *world = *state;
    struct behind behind;
    go_behind(world, &behind);
    admit(world, make_operation(world, "refund", "k0", 1));
    atomic_store(&behind.proxy.loss, PROXY_AWAY);
    for (int i = 1; i < 20; i++) {
        struct ledger_request *request =
            make_admit(world, make_operation(world, "refund", arena_printf(&world->arena, "k%d", i), 1));
        assert_int_equal(call(world, request), ERR_UNAVAILABLE);
        assert_non_null(strstr(request->err.text, "PostgreSQL"));
    }
    atomic_store(&behind.proxy.loss, PROXY_PASSES);
    struct ledger_request *request = NULL;
    do { /* its next attempt is a moment away */
        request = make_admit(world, make_operation(world, "refund", "again", 1));
    } while (call(world, request) == ERR_UNAVAILABLE);
    assert_int_equal(request->code, 0);
    come_back(world, &behind);
    assert_int_equal(stored("SELECT count(*) FROM operations"), 2);
}

static void a_lock_is_not_waited_for_without_end(void **state)
{
    struct world *world = *state;
    PGconn *conn = postgres_connect();
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    struct ledger *own = world->ledger;
    world->ledger = open_gateway(arena_printf(&world->arena, "%s&options=-c%%20lock_timeout%%3D50", postgres_url()));
    postgres_number(conn, "BEGIN");
    postgres_number(conn, "SELECT 1 FROM onced.operations FOR UPDATE");
    struct operation *moved = operation_copy(&world->arena, op);
    struct ledger_request *request = make_transition(world, moved, STATE_REJECTED);
    assert_int_equal(call(world, request), ERR_UNAVAILABLE);
    assert_non_null(strstr(request->err.text, "lock"));
    postgres_number(conn, "ROLLBACK");
    move(world, op, STATE_REJECTED);
    PQfinish(conn);
    ledger_close(world->ledger);
    world->ledger = own;
}

/* Rows of processes that are long gone go; what they counted stays. */
static void what_the_dead_counted_stays(void **state)
{
    (void)state;
    stored("INSERT INTO gateways (id, epoch, batch, seen_ms) VALUES ('old', 3, 9, 1), ('older', 1, 1, 1)");
    stored("INSERT INTO counters VALUES ('old', 'rejected', 4), ('older', 'rejected', 5), ('older', 'planned', -1)");
    stored("INSERT INTO inbox_counts VALUES ('old', 'bank', 1, 2, 3, 4, 5), ('older', 'bank', 1, 1, 1, 1, 1)");
    for (int i = 0; i < 2; i++)
        ledger_close(open_gateway(NULL));
    assert_int_equal(stored("SELECT count(*) FROM gateways WHERE id LIKE 'old%'"), 0);
    assert_int_equal(stored("SELECT operations FROM counters WHERE gateway = '' AND state = 'rejected'"), 9);
    assert_int_equal(stored("SELECT sum(operations) FROM counters"), 8);
    assert_int_equal(stored("SELECT dropped FROM inbox_counts WHERE gateway = ''"), 6);
}

/* ---- clocks ---- */

static int64_t hour_ahead(struct env *env)
{
    (void)env;
    return env_system()->now_ms(env_system()) + 3600000;
}

/* The clock that gateways share is the database's, wherever it began; then nothing is converted. */
static void a_shared_clock_is_put_right(void **state)
{
    struct world *world = *state;
    for (int minutes = -10; minutes <= 10; minutes += 20) {
        struct env_shared clock;
        struct ledger *ledger = NULL;
        struct err err = {0};
        env_shared_init(&clock);
        env_shared_adjust(&clock, INT64_C(60000) * minutes);
        struct ledger_postgres_options options = {.url = postgres_url(), .clock = &clock};
        if (ledger_postgres_open(&options, &clock.env, &ledger, &err))
            fail_msg("%s", err.text);
        struct operation *op = make_operation(world, "refund", minutes < 0 ? "behind" : "ahead", 1);
        op->wake_at_ms = clock.env.now_ms(&clock.env);
        struct ledger_request *request = make_admit(world, op);
        assert_int_equal(ledger_call(ledger, request), 0);
        ledger_close(ledger);
        assert_int_equal(get(world, op->id)->wake_at_ms, op->wake_at_ms);
    }
    long off =
        stored("SELECT max(abs(wake_at_ms - (extract(epoch FROM clock_timestamp()) * 1000)::bigint)) FROM operations");
    assert_in_range(off, 0, 30000);
}

/* A gateway whose clock is wrong writes leases by the database's, and reads its own times back. */
static void leases_go_by_the_databases_clock(void **state)
{
    struct world *world = *state;
    struct env env = {hour_ahead, env_system()->random};
    struct ledger *own = world->ledger;
    struct err err = {0};
    struct ledger_postgres_options options = {.url = postgres_url()};
    assert_int_equal(ledger_postgres_open(&options, &env, &world->ledger, &err), 0);
    struct operation *op = make_operation(world, "refund", "k", 1);
    op->created_ms = op->updated_ms = hour_ahead(&env);
    op->owner = OWNER;
    op->lease_until_ms = op->wake_at_ms = op->created_ms + 30000;
    admit(world, op);
    const struct operation *back = get(world, op->id);
    assert_int_equal(back->created_ms, op->created_ms); /* the caller's */
    assert_true(llabs(back->lease_until_ms - op->lease_until_ms) < 1000);
    long left_ms =
        stored("SELECT lease_until_ms - (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM operations");
    assert_in_range(left_ms, 15000, 31000);
    ledger_close(world->ledger);
    /* One with the right clock sees the same lease. */
    assert_int_equal(ledger_postgres_open(&options, env_system(), &world->ledger, &err), 0);
    left_ms = (long)(get(world, op->id)->lease_until_ms - env_system()->now_ms(env_system()));
    assert_in_range(left_ms, 15000, 31000);
    ledger_close(world->ledger);
    world->ledger = own;
}

/* ---- texts ---- */

static void texts_that_postgres_refuses_are_mended(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    op->external_id = "caf\xe9 \xc3\xa9 \xed\xa0\x80";
    op->result = (struct str){"\"a\0b\"", 5};
    move(world, op, STATE_COMPLETED_SUCCESS);
    const struct operation *back = get(world, op->id);
    assert_string_equal(back->external_id, "caf\xef\xbf\xbd \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    assert_true(str_is(back->result, "\"a\xef\xbf\xbd"
                                     "b\""));
}

/* ---- databases that do not fit ---- */

static void assert_refused(struct world *world, const char *url, enum err_code code, const char *word)
{
    struct ledger *ledger = NULL;
    struct err err = {0};
    struct ledger_postgres_options options = {.url = url, .own_clock = true};
    enum err_code got = ledger_postgres_open(&options, &world->env, &ledger, &err);
    if (got != code || !strstr(err.text, word))
        fail_msg("%s: %s: %s", url, err_name(got), err.text);
    assert_null(ledger);
}

static void refusals_say_what_to_do(void **state)
{
    struct world *world = *state;
    struct arena *arena = &world->arena;
    char folder[128];
    socket_folder(folder);
    assert_refused(world, arena_printf(arena, "postgresql://onced@/none?host=%s", folder), ERR_INVALID, "createdb");
    assert_refused(world, arena_printf(arena, "postgresql://nobody@/postgres?host=%s", folder), ERR_INVALID,
                   "createuser");
    assert_refused(world, "postgresql://onced@/postgres?host=/nowhere", ERR_UNAVAILABLE, "is it running");
    assert_refused(world, arena_printf(arena, "%s&target_session=x", postgres_url()), ERR_UNAVAILABLE,
                   "target_session");
    assert_refused(world, arena_printf(arena, "%s&options=-c%%20default_transaction_read_only%%3Don", postgres_url()),
                   ERR_UNAVAILABLE, "primary");
    stored("INSERT INTO migrations VALUES (999, 0, 'a newer one')");
    assert_refused(world, postgres_url(), ERR_INVALID, "schema version 999");
    stored("DELETE FROM migrations WHERE version = 999");
    stored("CREATE ROLE guest LOGIN");
    assert_refused(world, arena_printf(arena, "postgresql://guest@/postgres?host=%s", folder), ERR_DENIED, "rights");
    stored("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    assert_refused(world, arena_printf(arena, "postgresql://onced@/latin?host=%s", folder), ERR_INVALID, "UTF8");
}

/* Two that open an empty database at the same time: one migrates, the other finds it done. */
static void tables_are_made_once(void **state)
{
    struct world *world = *state;
    char folder[128];
    socket_folder(folder);
    stored("CREATE DATABASE fresh");
    const char *url = arena_printf(&world->arena, "postgresql://onced@/fresh?host=%s", folder);
    struct ledger *first = open_gateway(url), *second = open_gateway(url);
    assert_memory_equal(first->secret, second->secret, LEDGER_SECRET_BYTES);
    assert_memory_not_equal(first->secret, world->ledger->secret, LEDGER_SECRET_BYTES);
    ledger_close(first);
    ledger_close(second);
}

/* What version 1 did not have: the types of rows. A gateway that was running goes on. */
static void an_older_schema_is_migrated(void **state)
{
    struct world *world = *state;
    struct operation *op = make_operation(world, "refund", "k", 1);
    admit(world, op);
    PGconn *conn = postgres_connect();
    PQclear(PQexec(conn, "SET search_path = onced; DROP TYPE admission_row, move_row, mark_row; "
                         "DELETE FROM migrations WHERE version > 1"));
    PQfinish(conn);
    struct ledger *own = world->ledger;
    world->ledger = open_gateway(NULL);
    assert_int_equal(stored("SELECT max(version) FROM migrations"), PG_SCHEMA_VERSION);
    assert_same_operation(get(world, op->id), op);
    move(world, op, STATE_DISPATCHED);
    assert_int_equal(admit(world, make_operation(world, "refund", "k2", 2)).verdict, VERDICT_NEW);
    ledger_close(world->ledger);
    world->ledger = own;
    move(world, op, STATE_COMPLETED_SUCCESS);
}

/* ---- what is asked of a server ---- */

/* A connection that asks for nothing of the kind gets commits that are durable here and at the standby. */
static void a_commit_is_durable_whatever_the_role_says(void **state)
{
    static const char *const asked[] = {"off", "local", "remote_write", "on", "remote_apply"};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct pg pg;
        struct err err = {0};
        PGresult *result = NULL;
        stored(arena_printf(&world->arena, "ALTER ROLE onced SET synchronous_commit = %s", asked[i]));
        pg_init(&pg, postgres_url(), &world->env, true);
        if (pg_connect_bare(&pg, &err) || pg_exec_rows(&pg, "SHOW synchronous_commit", 0, NULL, &result, &err))
            fail_msg("%s", err.text);
        assert_string_equal(PQgetvalue(result, 0, 0), i < 3 ? "on" : asked[i]);
        PQclear(result);
        pg_release(&pg);
    }
    stored("ALTER ROLE onced RESET synchronous_commit");
}

/* A server on an older timeline than was seen before is not the ledger's any more. */
static void a_former_primary_is_refused(void **state)
{
    struct world *world = *state;
    struct pg pg;
    struct err err = {0};
    bool committed;
    connect_to(world, &pg);
    assert_int_equal(pg.server.timeline, 1);
    assert_int_equal(pg.server.system, stored("SELECT system_identifier FROM pg_control_system()"));
    pg.server.timeline = 2;
    assert_int_equal(pg_connect(&pg, &committed, &err), ERR_UNAVAILABLE);
    assert_non_null(strstr(err.text, "former primary"));
    assert_null(pg.conn);
    pg_release(&pg);
}

/* Stands for "the transaction might not have been replicated": somebody has cancelled the wait for the standby. */
static void warn_at_commit(const char *when)
{
    char sql[256];
    PGconn *conn = postgres_connect();
    postgres_number(conn, "SET search_path = onced");
    postgres_number(conn, "CREATE OR REPLACE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS "
                          "'BEGIN RAISE WARNING ''it might not have been replicated''; RETURN NULL; END'");
    snprintf(sql, sizeof sql,
             "CREATE CONSTRAINT TRIGGER warns AFTER UPDATE ON gateways DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN "
             "(%s) EXECUTE FUNCTION warn()",
             when);
    postgres_number(conn, sql);
    PQfinish(conn);
}

static void a_commit_with_a_warning_is_found_out(void **state)
{
    struct world *world = *state;
    admit(world, make_operation(world, "refund", "before", 1));
    long epoch = stored("SELECT sum(epoch) FROM gateways");
    warn_at_commit("OLD.epoch = NEW.epoch");
    struct asked *asked = ask(world, world->ledger, make_admit(world, make_operation(world, "refund", "k", 1)));
    wait_for(world->ledger, &asked, 1); /* who does not find it out commits again and again */
    assert_int_equal(asked->request->code, 0);
    forget(&asked, 1);
    assert_int_equal(stored("SELECT sum(epoch) FROM gateways"), epoch + 1);
    stored("DROP TRIGGER warns ON gateways");
    assert_int_equal(stored("SELECT count(*) FROM operations"), 2);
}

static void an_epoch_with_a_warning_is_not_taken(void **state)
{
    struct world *world = *state;
    struct pg pg;
    struct err err = {0};
    bool committed;
    connect_to(world, &pg);
    warn_at_commit("OLD.epoch <> NEW.epoch");
    assert_int_equal(pg_connect(&pg, &committed, &err), ERR_UNAVAILABLE);
    assert_non_null(strstr(err.text, "standby"));
    stored("DROP TRIGGER warns ON gateways");
    err_clear(&err);
    assert_int_equal(pg_connect(&pg, &committed, &err), 0);
    pg_release(&pg);
}

/* What works comes first again: the host behind one that lets in and does not work. */
static void hosts_are_tried_in_turn(void **state)
{
    struct world *world = *state;
    char folder[128];
    struct pg pg;
    struct err err = {0};
    socket_folder(folder);
    pg_init(
        &pg,
        arena_printf(&world->arena, "postgresql://onced@/postgres?host=/nowhere,%s,/elsewhere&port=1,5432,2", folder),
        &world->env, true);
    assert_int_equal(pg_hosts(&pg), 3);
    for (pg.first_host = 0; pg.first_host < 7; pg.first_host++) {
        if (pg_connect_bare(&pg, &err))
            fail_msg("%s", err.text);
        assert_string_equal(PQhost(pg.conn), folder);
        assert_string_equal(PQport(pg.conn), "5432");
    }
    pg_release(&pg);
}

#define POSTGRES_TEST(f) cmocka_unit_test_setup_teardown(f, open_postgres, release_postgres)

int run_postgres_tests(void)
{
    const struct CMUnitTest tests[] = {
        POSTGRES_TEST(one_gateway_is_elected),
        POSTGRES_TEST(one_gateway_is_elected_without_a_key),
        POSTGRES_TEST(a_repetition_under_way_is_found),
        POSTGRES_TEST(a_budget_is_never_overdrawn),
        POSTGRES_TEST(a_debit_under_way_counts),
        POSTGRES_TEST(a_transition_is_made_once),
        POSTGRES_TEST(each_tenant_has_its_place),
        POSTGRES_TEST(no_index_leads_to_a_whole_tenant),
        POSTGRES_TEST(claims_are_spread),
        POSTGRES_TEST(moves_of_watched_operations_are_told),
        POSTGRES_TEST(who_stands_still_is_not_waited_for),
        POSTGRES_TEST(rows_of_a_transaction_that_failed_are_forgotten),
        POSTGRES_TEST(a_batch_is_done_beside_another),
        POSTGRES_TEST(others_are_alone),
        POSTGRES_TEST(who_must_see_the_batch_before_waits),
        POSTGRES_TEST(an_admission_that_is_not_new_waits),
        POSTGRES_TEST(changes_of_one_row_keep_their_order),
        POSTGRES_TEST(a_broken_connection_is_made_anew),
        POSTGRES_TEST(a_lost_commit_is_found_out),
        POSTGRES_TEST(a_connection_given_up_commits_nothing),
        POSTGRES_TEST(nothing_waits_for_a_server_that_is_away),
        POSTGRES_TEST(a_lock_is_not_waited_for_without_end),
        POSTGRES_TEST(what_the_dead_counted_stays),
        POSTGRES_TEST(leases_go_by_the_databases_clock),
        POSTGRES_TEST(a_shared_clock_is_put_right),
        POSTGRES_TEST(texts_that_postgres_refuses_are_mended),
        POSTGRES_TEST(refusals_say_what_to_do),
        POSTGRES_TEST(tables_are_made_once),
        POSTGRES_TEST(an_older_schema_is_migrated),
        POSTGRES_TEST(a_commit_is_durable_whatever_the_role_says),
        POSTGRES_TEST(a_former_primary_is_refused),
        POSTGRES_TEST(a_commit_with_a_warning_is_found_out),
        POSTGRES_TEST(an_epoch_with_a_warning_is_not_taken),
        POSTGRES_TEST(hosts_are_tried_in_turn),
    };
    return cmocka_run_group_tests_name("PostgreSQL ledger", tests, NULL, NULL);
}
