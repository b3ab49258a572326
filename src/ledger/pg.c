/* The PostgreSQL ledger: a queue (queue.h) with two lanes, each a thread that owns a connection, and transactions that
 * many commands share.
 *
 *   batch ─▶ BEGIN, fence, locks ─▶ wave: all ask ahead ─▶ each in order: decides, writes ─▶ … ─▶ COMMIT
 *
 * A wave is a run of commands whose first statements can go to the server together (pg_goes_ahead): one journey for all
 * of them, but for admissions that could meet one before them. What goes wrong: see run_part. */
#include "ledger/postgres.h"

#include "ledger/pg_news.h"
#include "ledger/pg_store.h"
#include "ledger/queue.h"

#include "base/mark.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define WAVE_MAX   128
#define WAVE_SET   512 /* a power of two, larger than WAVE_MAX */
#define WAVE_BYTES (8 << 20)
/* How often a batch is run anew because other gateways were in the way. */
#define AGAIN_MAX 5
/* Pauses between attempts to connect; they double. */
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 5000
/* How long a ledger that is being closed goes on waiting for the server, or trying to find out what became of its last
 * commit. */
#define CLOSING_MS 5000
/* Who waits behind a server that has said nothing for so long is refused: nobody shall queue up before a dead one. */
#define PATIENCE_MS 3000

/* Locks that the batch at hand takes (pg_locks_of), as a hash table; the queue's mutex guards it. */
#define HELD_SLOTS 4096 /* a power of two */
struct held {
    bool all; /* whatever it may be: nothing runs beside it */
    size_t count;
    int64_t slots[HELD_SLOTS]; /* 0: free */
};

struct lane {
    struct postgres_ledger *ledger;
    int number;
    struct pg pg;
    struct saved_identity *saved; /* these three: one or more per place in a batch */
    int64_t *locks;
    struct pg_ahead *ahead;
    struct held held;
    int64_t commits;
    atomic_bool outdated; /* the ledger has gone on at another server than this lane is connected to */
    int64_t retry_at_ms;  /* monotonic: not before is connecting tried again */
    int pause_ms;
    struct err away;    /* why it failed last; code 0: it has not failed since it was there */
    int64_t give_up_ms; /* monotonic: a ledger that is being closed waits for the server no longer; 0 = it is not */
};

struct postgres_ledger {
    struct ledger base;
    struct queue queue;
    struct pg_news *_Atomic news; /* NULL: nobody wants them */
    struct lane lanes[QUEUE_LANES_MAX];
    _Atomic int64_t timeline; /* the newest that a lane has seen (pg.server) */
};

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- commands ---- */

static enum err_code execute(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead)
{
    switch (request->command) {
    case LEDGER_ADMIT: return pg_admit(pg, request, ahead);
    case LEDGER_TRANSITION: return pg_transition(pg, request, ahead);
    case LEDGER_CLAIM_DUE: return pg_claim(pg, request);
    case LEDGER_MARK: return pg_mark(pg, request, ahead);
    case LEDGER_WATCH: return pg_watch(pg, request);
    case LEDGER_RELEASE: return pg_release_claims(pg, request);
    case LEDGER_EXPIRE: return pg_expire(pg, request);
    case LEDGER_GET: return pg_get(pg, request);
    case LEDGER_GET_BY_KEY: return pg_get_by_key(pg, request);
    case LEDGER_LIST: return pg_list(pg, request);
    case LEDGER_EVENTS: return pg_events(pg, request);
    case LEDGER_ATTEMPTS: return pg_attempts(pg, request);
    case LEDGER_INCIDENTS: return pg_incidents(pg, request);
    case LEDGER_ACKNOWLEDGE: return pg_acknowledge(pg, request);
    case LEDGER_TOKEN_ADD: return pg_token_add(pg, request);
    case LEDGER_TOKEN_FIND: return pg_token_find(pg, request);
    case LEDGER_TOKEN_LIST: return pg_token_list(pg, request);
    case LEDGER_TOKEN_REVOKE: return pg_token_revoke(pg, request);
    case LEDGER_RECORD_INBOUND: return pg_record_inbound(pg, request);
    case LEDGER_INBOX_OF: return pg_inbox_of(pg, request);
    case LEDGER_INBOX_DUE: return pg_inbox_due(pg, request);
    case LEDGER_INBOX_LIST: return pg_inbox_list(pg, request);
    case LEDGER_INBOX_COUNTS: return pg_inbox_counts(pg, request);
    case LEDGER_INBOX_PRUNE: return pg_inbox_prune(pg, request);
    case LEDGER_FORWARD_DUE: return pg_forward_due(pg, request);
    case LEDGER_FORWARD_MOVE: return pg_forward_move(pg, request);
    case LEDGER_ENTITIES: return pg_entities(pg, request);
    case LEDGER_ENTITY_RELEASE: return pg_entity_release(pg, request);
    case LEDGER_BUDGETS: return pg_budgets(pg, request);
    case LEDGER_STATS: return pg_stats(pg, request);
    }
    return err_set(&request->err, ERR_INTERNAL, "no such ledger command");
}

void pg_execute(struct pg *pg, struct ledger_request *request, const struct pg_ahead *ahead)
{
    err_clear(&request->err);
    request->code = execute(pg, request, ahead);
    if (request->code == ERR_INTERNAL && pg->fault == PG_FINE)
        pg->fault = PG_COMMAND;
    arena_reset(&pg->scratch);
}

/* ---- waves ---- */

static bool meets_one(const struct ledger_request *first, const struct ledger_request *request)
{
    if (request->command != LEDGER_ADMIT)
        return false;
    for (; first != request; first = first->next)
        if (first->command == LEDGER_ADMIT && pg_admissions_meet(first, request))
            return true;
    return false;
}

/* Whether an operation of this id is in the set, where it is from now on. Two that share a hash are taken as one. */
static bool seen_before(uint64_t set[WAVE_SET], const char *id)
{
    uint64_t hash = text_hash(TEXT_HASH_START, id) | 1;
    size_t i = hash >> 32 & (WAVE_SET - 1);
    for (; set[i] && set[i] != hash; i = (i + 1) & (WAVE_SET - 1)) {
    }
    bool seen = set[i] == hash;
    set[i] = hash;
    return seen;
}

/* How many commands from first on go ahead together; 0: the first one can not. Rows that change go together, whatever
 * their order, hence each only once; and together they are not too large for one message. */
static size_t wave_size(const struct ledger_request *first, size_t count)
{
    uint64_t changed[WAVE_SET] = {0};
    size_t size = 0, bytes = 0;
    for (; size < count && size < WAVE_MAX && pg_goes_ahead(first); first = first->next) {
        const char *id = pg_ahead_changes(first);
        bytes += pg_ahead_bytes(first);
        if ((id && seen_before(changed, id)) || (bytes > WAVE_BYTES && size > 0))
            break;
        size++;
    }
    return size;
}

/* An admission that could meet one before it asks only at its turn. Moves and marks go first: an admission sees those
 * that were queued before it. */
static enum pg_fault ask_ahead(struct lane *lane, struct ledger_request *first, size_t size, struct err *err)
{
    struct ledger_request *request = first;
    for (size_t i = 0; i < size; i++, request = request->next) {
        lane->ahead[i].asked = false;
        if (!meets_one(first, request))
            pg_ahead(&lane->pg, request, &lane->ahead[i]);
    }
    if (pg_groups_send(&lane->pg, err))
        return lane->pg.fault;
    request = first;
    for (size_t i = 0; i < size; i++, request = request->next)
        if (lane->ahead[i].asked && pg_ahead_again(&lane->pg, request, &lane->ahead[i], err))
            return lane->pg.fault;
    return PG_FINE;
}

static enum pg_fault run_wave(struct lane *lane, struct ledger_request *first, size_t size,
                              const struct saved_identity *saved, bool goes_ahead, struct err *err)
{
    struct pg *pg = &lane->pg;
    struct ledger_request *request = first;
    for (size_t i = 0; i < size; i++, request = request->next)
        saved_identity_put(&saved[i], request);
    if (goes_ahead && ask_ahead(lane, first, size, err))
        return pg->fault;
    request = first;
    for (size_t i = 0; i < size; i++, request = request->next) {
        pg_execute(pg, request, goes_ahead && lane->ahead[i].asked ? &lane->ahead[i] : NULL);
        if (pg->fault) {
            *err = request->err;
            return pg->fault;
        }
    }
    return PG_FINE;
}

/* ---- transactions ---- */

static int compare_locks(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* In rising order, so that gateways wait for one another and never in a circle. */
static size_t collect_locks(struct lane *lane, const struct ledger_request *first, size_t count)
{
    size_t all = 0, kept = 0;
    for (size_t i = 0; i < count; i++, first = first->next)
        all += pg_locks_of(first, &lane->locks[all]);
    if (all > 1)
        qsort(lane->locks, all, sizeof *lane->locks, compare_locks);
    for (size_t i = 0; i < all; i++)
        if (i == 0 || lane->locks[i] != lane->locks[i - 1])
            lane->locks[kept++] = lane->locks[i];
    return kept;
}

static bool any_writes(const struct ledger_request *first, size_t count)
{
    bool writing = false;
    for (size_t i = 0; i < count; i++, first = first->next)
        writing |= ledger_command_writes(first->command);
    return writing;
}

/* Executes count requests from first on in one transaction. Unless PG_FINE or PG_DOUBT comes back, nothing of it
 * happened; err says why. */
static enum pg_fault run_group(struct lane *lane, struct ledger_request *first, size_t count,
                               const struct saved_identity *saved, struct err *err)
{
    struct pg *pg = &lane->pg;
    bool writing = any_writes(first, count);
    size_t locks = collect_locks(lane, first, count);
    if (pg_begin(pg, writing, lane->locks, locks, err))
        goto failed;
    struct ledger_request *request = first;
    for (size_t done = 0, size; done < count; done += size) {
        bool goes_ahead = (size = wave_size(request, count - done)) > 0;
        size = goes_ahead ? size : 1;
        if (run_wave(lane, request, size, &saved[done], goes_ahead, err))
            goto failed;
        for (size_t i = 0; i < size; i++)
            request = request->next;
    }
    MARK(before_sql_commit);
    if (pg_commit(pg, err))
        return pg->fault;
    lane->commits += writing;
    return PG_FINE;
failed:
    pg_rollback(pg);
    return pg->fault;
}

/* ---- away and back ---- */

static bool out_of_time(struct lane *lane)
{
    int64_t now_ms = monotonic_ms();
    if (lane->give_up_ms == 0 && queue_closing(&lane->ledger->queue))
        lane->give_up_ms = now_ms + CLOSING_MS;
    return lane->give_up_ms && now_ms >= lane->give_up_ms;
}

/* pg.waits */
static bool server_is_silent(void *owner, int64_t waited_ms)
{
    struct lane *lane = owner;
    struct err err = lane->away;
    if (lane->ledger->news && waited_ms >= PG_STUCK_MS / 2)
        pg_news_unblock(lane->ledger->news);
    if (!err.code && waited_ms >= PATIENCE_MS)
        err_set(&err, ERR_UNAVAILABLE, "%s has said nothing for %d s: nothing was recorded, nothing was sent",
                lane->pg.name, (int)(waited_ms / 1000));
    if (err.code)
        queue_refuse(&lane->ledger->queue, &err);
    return out_of_time(lane);
}

/* The other lane's connection leads to a former primary, sound though it may be. */
static void have_the_other_follow(struct lane *lane)
{
    int other = 1 - lane->number;
    atomic_store(&lane->ledger->lanes[other].outdated, true);
    queue_rouse(&lane->ledger->queue, other);
}

/* True when there is a connection. *committed as in pg_connect. */
static bool connect_now(struct lane *lane, bool *committed, struct err *err)
{
    struct env *env = lane->pg.env;
    struct err why = {0};
    int64_t seen = lane->ledger->timeline;
    if (lane->pg.server.timeline < seen)
        lane->pg.server.timeline = seen;
    if (pg_connect(&lane->pg, committed, &why) == 0) {
        bool newest = false;
        while (seen < lane->pg.server.timeline && !newest)
            newest = atomic_compare_exchange_weak(&lane->ledger->timeline, &seen, lane->pg.server.timeline);
        if (newest)
            have_the_other_follow(lane);
        lane->pause_ms = 0;
        err_clear(&lane->away);
        if (lane->ledger->news)
            pg_news_follow(lane->ledger->news, &lane->pg.server);
        return true;
    }
    why.code = ERR_UNAVAILABLE; /* whatever it is, it can pass */
    err_prefix(&why, "nothing was recorded, nothing was sent: ");
    *err = lane->away = why;
    lane->pause_ms = lane->pause_ms ? 2 * lane->pause_ms : PAUSE_MIN_MS;
    if (lane->pause_ms > PAUSE_MAX_MS)
        lane->pause_ms = PAUSE_MAX_MS;
    /* Gateways that lost one server shall not come back all at once. */
    int jitter_ms = (int)(env_random64(env) % (uint64_t)(lane->pause_ms / 2 + 1));
    lane->retry_at_ms = monotonic_ms() + lane->pause_ms / 2 + jitter_ms;
    return false;
}

static bool connected(struct lane *lane, struct err *err)
{
    bool committed;
    if (atomic_exchange(&lane->outdated, false))
        pg_disconnect(&lane->pg);
    if (lane->pg.conn)
        return true;
    if (monotonic_ms() < lane->retry_at_ms) {
        *err = lane->away;
        return false;
    }
    if (out_of_time(lane)) { /* a server that says nothing would hold up each batch anew */
        err_set(err, ERR_UNAVAILABLE, "%s is away and onced stops: nothing was recorded, nothing was sent",
                lane->pg.name);
        return false;
    }
    return connect_now(lane, &committed, err);
}

/* queue.rest: the second lane works only when it has a connection; the first one has to say so when there is none. */
static int rests(void *owner, int number)
{
    struct lane *lane = &((struct postgres_ledger *)owner)->lanes[number];
    struct err ignored = {0};
    if (!lane->outdated && (number == 0 || lane->pg.conn))
        return 0;
    if (queue_closing(&lane->ledger->queue))
        return number > 0 ? PAUSE_MIN_MS : 0;
    if (connected(lane, &ignored) || number == 0)
        return 0;
    int64_t left_ms = lane->retry_at_ms - monotonic_ms();
    return left_ms > 1 ? (int)left_ms : 1;
}

enum finding { FOUND_COMMITTED, FOUND_UNDONE, NOT_FOUND_OUT };

/* The connection broke during a commit. Until a new one tells what became of it, the batch is neither done nor failed.
 */
static enum finding find_out(struct lane *lane, struct err *err)
{
    bool committed;
    for (;;) {
        if (connect_now(lane, &committed, err))
            return committed ? FOUND_COMMITTED : FOUND_UNDONE;
        for (int64_t left_ms; (left_ms = lane->retry_at_ms - monotonic_ms()) > 0;) {
            queue_refuse(&lane->ledger->queue, &lane->away);
            if (!queue_pause(&lane->ledger->queue, (int)left_ms))
                continue;
            if (out_of_time(lane))
                return NOT_FOUND_OUT;
            break;
        }
    }
}

/*   fault of the group    what happens
 *   ------------------    ------------------------------------------------------------------------
 *   none                  all are done
 *   in doubt              found out first (find_out): done, or run again
 *   away                  once more on a new connection; when there is none, all end with ERR_UNAVAILABLE
 *   later                 run again when the batches before it are done
 *   again                 the same, a few times
 *   busy, corrupt         all end with that error
 *   one command's         rolled back; each again in a transaction of its own: only the guilty fails */
static void run_part(struct lane *lane, struct ledger_request *first, size_t count, const struct saved_identity *saved)
{
    struct err err = {0};
    int away = 0, again = 0;
    bool one_by_one = false;
    while (!one_by_one) {
        if (!connected(lane, &err))
            goto failed;
        err_clear(&err);
        enum pg_fault fault = run_group(lane, first, count, saved, &err);
        if (lane->pg.beside && (fault == PG_LATER || fault == PG_AGAIN || fault == PG_COMMAND)) {
            queue_await_others(&lane->ledger->queue, lane->number);
            lane->pg.beside = false;
        }
        switch (fault) {
        case PG_FINE: return;
        case PG_LATER: break;
        case PG_DOUBT:
            switch (find_out(lane, &err)) {
            case FOUND_COMMITTED: return;
            case FOUND_UNDONE: break;
            case NOT_FOUND_OUT:
                err_clear(&err);
                err_set(&err, ERR_UNAVAILABLE,
                        "%s went away, and it is not known whether the last changes were recorded", lane->pg.name);
                goto failed;
            }
            break;
        case PG_AWAY:
            if (++away > 1)
                goto failed;
            break;
        case PG_AGAIN:
            if (++again > AGAIN_MAX)
                goto failed;
            break;
        case PG_BUSY:
        case PG_CORRUPT: goto failed;
        case PG_COMMAND:
            if (count == 1)
                goto failed;
            one_by_one = true;
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct ledger_request *next = first->next;
        run_part(lane, first, 1, &saved[i]);
        first = next;
    }
    return;
failed:
    if (err.code == ERR_DENIED || err.code == ERR_INVALID) /* of the server, not of a caller */
        err.code = ERR_UNAVAILABLE;
    request_fail_all(first, count, &err);
}

static void run_batch(void *owner, int number, struct ledger_request *first, size_t count)
{
    struct postgres_ledger *ledger = owner;
    struct lane *lane = &ledger->lanes[number];
    struct saved_identity *saved = lane->saved;
    for (struct ledger_request *request = first; request; request = request->next)
        saved_identity_take(saved++, request);
    run_part(lane, first, count, lane->saved);
    for (; first; first = first->next) {
        if (first->command == LEDGER_STATS && first->code == 0) { /* which runs beside nothing */
            first->stats.commits = ledger->lanes[0].commits + ledger->lanes[1].commits;
            first->stats.commands = ledger->queue.commands + (int64_t)count;
        }
    }
}

/* ---- two batches at once ---- */

static int64_t *held_slot(struct held *held, int64_t lock)
{
    size_t i = (uint64_t)lock * 0x9e3779b97f4a7c15u >> 32 & (HELD_SLOTS - 1);
    while (held->slots[i] && held->slots[i] != lock)
        i = (i + 1) & (HELD_SLOTS - 1);
    return &held->slots[i];
}

static void hold(struct held *held, const int64_t *locks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *held_slot(held, locks[i]) = locks[i];
    held->count += count;
    held->all |= held->count > HELD_SLOTS / 2;
}

static bool any_held(struct held *held, const int64_t *locks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (*held_slot(held, locks[i]))
            return true;
    return false;
}

/* queue.beside. Beside another batch goes what neither has to see what that one writes nor changes the same rows, for
 * the other one may come first: moves, marks, and admissions that are new unless there is one of their key or the same
 * call (if there is, the batch is run again after the other one: PG_LATER). */
static size_t runs_beside(void *owner, int number, struct ledger_request *first, size_t count, bool others)
{
    struct postgres_ledger *ledger = owner;
    struct lane *lane = &ledger->lanes[number];
    struct held *held = &lane->held, *other = &ledger->lanes[1 - number].held;
    size_t size = 0;
    if (others && other->all)
        return 0;
    held->all = false;
    held->count = 0;
    memset(held->slots, 0, sizeof held->slots);
    for (; size < count; first = first->next, size++) {
        int64_t locks[PG_LOCKS_MAX];
        size_t lock_count = pg_locks_of(first, locks);
        if (others && (held->all || !pg_minds_itself(first) || any_held(other, locks, lock_count)))
            break;
        held->all |= !pg_goes_ahead(first);
        hold(held, locks, lock_count);
    }
    lane->pg.beside = others;
    return size;
}

/* ---- the interface ---- */

static void postgres_submit(struct ledger *base, struct ledger_request *request)
{
    queue_submit(&((struct postgres_ledger *)base)->queue, request);
}

static void postgres_poll(struct ledger *base)
{
    struct postgres_ledger *ledger = (struct postgres_ledger *)base;
    queue_poll(&ledger->queue);
    if (ledger->news && base->news)
        pg_news_tell(ledger->news, base->news, base->news_user);
}

static void postgres_listen(struct ledger *base)
{
    struct postgres_ledger *ledger = (struct postgres_ledger *)base;
    struct pg *pg = &ledger->lanes[0].pg;
    if (!ledger->news && ledger->queue.notify) /* nothing is under way yet on the ledger's thread */
        ledger->news =
            pg_news_start(pg->url, pg->env, pg->gateway, &pg->server, ledger->queue.notify, ledger->queue.user);
}

static int postgres_turn(struct ledger *base)
{
    return queue_turn(&((struct postgres_ledger *)base)->queue);
}

static void postgres_wait(struct ledger *base, int timeout_ms)
{
    queue_wait(&((struct postgres_ledger *)base)->queue, timeout_ms);
}

static void postgres_close(struct ledger *base)
{
    struct postgres_ledger *ledger = (struct postgres_ledger *)base;
    base->news = NULL;
    queue_stop(&ledger->queue);
    pg_news_stop(ledger->news); /* until now the ledger's thread could wake it */
    queue_release(&ledger->queue);
    for (int i = 0; i < QUEUE_LANES_MAX; i++) {
        pg_release(&ledger->lanes[i].pg);
        free(ledger->lanes[i].saved);
        free(ledger->lanes[i].locks);
        free(ledger->lanes[i].ahead);
    }
    free(ledger);
}

static const struct ledger_ops postgres_ops = {postgres_submit, postgres_poll, postgres_close,
                                               postgres_wait,   postgres_turn, postgres_listen};

/* A host that lets us in and does not work (a former primary, full of waiting commits) is passed over. */
static enum err_code open_some_host(struct postgres_ledger *ledger, struct err *err)
{
    struct pg *pg = &ledger->lanes[0].pg;
    bool committed;
    for (unsigned tries = 0, hosts = pg_hosts(pg); tries < hosts; tries++) {
        err_clear(err);
        pg->first_host = tries;
        if (pg_connect_bare(pg, err)) /* libpq has tried them all */
            return err->code;
        if ((pg_migrate(pg, ledger->base.secret, err) == 0 && pg_connect(pg, &committed, err) == 0) ||
            err->code != ERR_UNAVAILABLE)
            break;
    }
    ledger->timeline = pg->server.timeline;
    return err->code;
}

/* Connects nothing yet. The first lane alone puts the clock right, since two would do so twice. */
static void lane_init(struct postgres_ledger *ledger, int number, const struct ledger_postgres_options *options,
                      struct env *env)
{
    struct lane *lane = &ledger->lanes[number];
    lane->ledger = ledger;
    lane->number = number;
    lane->saved = mem_zero(ledger->queue.batch_max * sizeof *lane->saved);
    lane->locks = mem_zero(ledger->queue.batch_max * PG_LOCKS_MAX * sizeof *lane->locks);
    lane->ahead = mem_zero(WAVE_MAX * sizeof *lane->ahead);
    pg_init(&lane->pg, options->url, env, options->own_clock);
    memcpy(lane->pg.sender, ledger->lanes[0].pg.gateway, sizeof lane->pg.sender);
    lane->pg.clock = number == 0 ? options->clock : NULL;
    lane->pg.waits = server_is_silent;
    lane->pg.waits_owner = lane;
}

enum err_code ledger_postgres_open(const struct ledger_postgres_options *options, struct env *env, struct ledger **out,
                                   struct err *err)
{
    struct err own = {0};
    err = err ? err : &own;
    struct postgres_ledger *ledger = mem_zero(sizeof *ledger);
    ledger->base.ops = &postgres_ops;
    queue_init(&ledger->queue, options->batch_max, options->notify, options->user);
    ledger->queue.turn = options->turn;
    ledger->queue.run = run_batch;
    ledger->queue.beside = runs_beside;
    ledger->queue.rest = rests;
    ledger->queue.lanes = QUEUE_LANES_MAX;
    ledger->queue.owner = ledger;
    for (int i = 0; i < QUEUE_LANES_MAX; i++)
        lane_init(ledger, i, options, env);
    if (open_some_host(ledger, err) || queue_start(&ledger->queue, err))
        postgres_close(&ledger->base);
    else
        *out = &ledger->base;
    return err->code;
}
