#include "relay/relay.h"

#include "base/log.h"
#include "base/mark.h"
#include "base/mem.h"
#include "relay/gateway.h"
#include "relay/outbox.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/*   connect ─► take rows ─► send those without an earlier one ─► answers: the next one of the entity ─┐
 *      ▲          │ none                 ▲──────────────────────────────────────────────────────────────┘
 *      │          ▼                                   all answered, or half of the lease is over: mark, COMMIT
 *      └──── look at operations that go on ─► nothing: wait for NOTIFY, the poll, the next row that is due
 */

#define SECOND        INT64_C(1000)
#define NEVER         INT64_MAX
#define TICK_MS       100 /* how late a signal may be noticed while calls are in flight */
#define AWAY_FIRST_MS 100 /* database or gateway; doubles */
#define AWAY_MAX_MS   (5 * SECOND)
#define SUSPECTS_MAX  3 /* failures in a row without an answer: it is the gateway, not the rows */
#define FIGURES_MS    (10 * SECOND)
#define BACKLOG_MAX   100000 /* counted for the figures */

struct figures {
    int64_t calls, replayed, admitted, ended, failed, refused, later, looks, unmarked;
};

struct relay {
    const struct relay_settings *settings;
    struct relay_gateway *gateway;
    struct relay_outbox *outbox;
    struct relay_batch batch;
    struct relay_row **queue; /* of the batch: rows that may be sent now */
    size_t queue_from, queue_to;
    int signals;
    bool once, stopping;
    bool no_more;      /* nothing more of this batch is sent */
    bool not_entitled; /* by the token */
    unsigned suspects; /* failures since the last answer of onced */
    bool away;         /* it was told that no gateway answers */
    unsigned away_rounds, lost_rounds;
    int64_t ask_again_ms; /* what a gateway asked for */
    int64_t due_ms;       /* when the next row is due that this process put off */
    int64_t figures_ms;
    struct figures figures, told;
    char problem[RELAY_PROBLEM_BYTES]; /* of the last failure */
};

/* CLOCK_BOOTTIME: it goes on while the process, or the machine, stands still, as a lease does. */
static int64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * SECOND + t.tv_nsec / 1000000;
}

static void notice_signals(struct relay *relay)
{
    struct signalfd_siginfo info;
    while (read(relay->signals, &info, sizeof info) == (ssize_t)sizeof info)
        relay->stopping = true;
}

/* ---- what is told ---- */

static void tell_figures(struct relay *relay)
{
    struct figures *f = &relay->figures;
    int64_t backlog = -1;
    if (memcmp(f, &relay->told, sizeof *f) == 0 || log_level() > LOG_INFO)
        return;
    relay->told = *f;
    if (relay_outbox_socket(relay->outbox) >= 0)
        relay_outbox_backlog(relay->outbox, BACKLOG_MAX, &backlog, NULL);
    if (!log_begin(LOG_INFO, "relay_figures"))
        return;
    log_int("calls", f->calls);
    log_int("replayed", f->replayed);
    log_int("admitted", f->admitted);
    log_int("ended", f->ended);
    log_int("failed", f->failed);
    log_int("refused", f->refused);
    log_int("later", f->later);
    log_int("looks", f->looks);
    log_int("unmarked", f->unmarked);
    if (backlog >= 0)
        log_int("waiting", backlog);
    log_end();
}

/* The whole of a problem is in the row; it may hold what is none of the log's business. */
static void tell_refused(const struct relay_row *row)
{
    char what[48];
    snprintf(what, sizeof what, "%.*s", (int)strcspn(row->verdict.problem, ":"), row->verdict.problem);
    if (!log_begin(LOG_WARN, "relay_refused"))
        return;
    log_text("row", row->id);
    log_text("tool", row->tool);
    log_text("problem", what);
    log_end();
}

static void tell_away(struct relay *relay)
{
    if (!relay->away)
        log_message(LOG_WARN, "relay_away", "no gateway takes calls: %s", relay->problem);
    relay->away = true;
}

/* An answer of onced's own. */
static void answered(struct relay *relay)
{
    if (relay->away)
        log_message(LOG_INFO, "relay_back", "%s answers", relay_gateway_address(relay->gateway));
    relay->away = false;
    relay->suspects = relay->away_rounds = 0;
}

/* ---- one row ---- */

static void put_off(struct relay *relay, struct relay_row *row)
{
    row->delay_ms = relay_row_delay_ms(row);
    int64_t due_ms = clock_ms() + row->delay_ms;
    if (due_ms < relay->due_ms)
        relay->due_ms = due_ms;
}

static void count(struct relay *relay, const struct relay_row *row)
{
    struct figures *f = &relay->figures;
    f->replayed += row->replayed;
    switch (row->verdict.outcome) {
    case RELAY_ADMITTED: f->admitted += !row->operation; break;
    case RELAY_ENDED:
        f->ended++;
        f->failed += row->verdict.failed;
        break;
    case RELAY_REFUSED: f->refused++; break;
    case RELAY_LATER: f->later++; break;
    case RELAY_AWAY:
    case RELAY_UNAUTHORIZED: break;
    }
}

/* The row's verdict stands. */
static void decide(struct relay *relay, struct relay_row *row)
{
    row->decided = true;
    if (row->verdict.outcome == RELAY_LATER || row->verdict.outcome == RELAY_ADMITTED)
        put_off(relay, row);
    else if (row->verdict.outcome == RELAY_REFUSED)
        tell_refused(row);
    count(relay, row);
    if (row->next && relay_row_lets_next_go(row, relay->settings))
        relay->queue[relay->queue_to++] = row->next;
}

/* ---- answers ---- */

/* The gateway takes nothing now: the row goes to the next address, until all were tried. */
static void try_elsewhere(struct relay *relay, struct relay_row *row, size_t failed_address)
{
    relay_gateway_turn(relay->gateway, failed_address);
    relay->suspects++;
    if (++row->tries < relay->settings->gateway_count)
        relay->queue[--relay->queue_from] = row; /* it left this very place */
    else
        relay->no_more = true;
}

/* Something may have been done, or the row is one that breaks the connection: it is put off, others go on. */
static void suspect(struct relay *relay, struct relay_row *row, size_t address)
{
    relay_gateway_turn(relay->gateway, address);
    if (++relay->suspects >= SUSPECTS_MAX && relay->suspects >= relay->settings->gateway_count)
        relay->no_more = true;
    decide(relay, row);
}

/* A look at an operation that this ledger does not know (a wrong gateway, a lost file) tells nothing. */
static void look_settle(struct relay_row *row)
{
    if (row->operation && row->verdict.outcome == RELAY_REFUSED)
        row->verdict.outcome = RELAY_LATER;
}

static void settle(struct relay *relay, const struct relay_done *done)
{
    struct relay_row *row = done->row;
    row->verdict = done->verdict;
    row->replayed = done->replayed && !row->operation;
    look_settle(row);
    bool gone = !done->sent || done->verdict.outcome == RELAY_AWAY;
    if (gone || done->verdict.suspect)
        snprintf(relay->problem, sizeof relay->problem, "%s", done->verdict.problem);
    if (gone) {
        if (done->verdict.retry_after_ms > relay->ask_again_ms)
            relay->ask_again_ms = done->verdict.retry_after_ms;
        try_elsewhere(relay, row, done->address);
    } else if (done->verdict.suspect) {
        suspect(relay, row, done->address);
    } else if (done->verdict.outcome == RELAY_UNAUTHORIZED) {
        snprintf(relay->problem, sizeof relay->problem, "%s", done->verdict.problem);
        relay->not_entitled = relay->no_more = true;
    } else {
        answered(relay);
        decide(relay, row);
    }
}

/* ---- one batch ---- */

static int64_t call_timeout_ms(const struct relay *relay)
{
    return relay->settings->lease_ms * 2 / 5; /* begun in the first half of the lease, over before its end */
}

static void start(struct relay *relay, struct relay_row *row)
{
    struct buf body;
    struct relay_request request = {
        .row = row, .operation = row->operation, .tenant = row->tenant, .timeout_ms = call_timeout_ms(relay)};
    if (!relay_row_fits(row, relay->settings)) {
        decide(relay, row);
        return;
    }
    buf_init(&body, 0);
    if (row->operation)
        relay->figures.looks++;
    else
        relay_row_write_call(row, relay->settings, &body);
    relay->figures.calls += !row->operation;
    request.body = buf_str(&body);
    relay_gateway_send(relay->gateway, &request);
    buf_release(&body);
}

static bool may_start(const struct relay *relay, int64_t until_ms)
{
    return relay->queue_from < relay->queue_to && !relay->no_more && !relay->stopping && clock_ms() < until_ms;
}

/* Everything that is sent is answered, or given up by its time-out, when this returns. */
static void send_batch(struct relay *relay, bool looks)
{
    int64_t until_ms = clock_ms() + relay->settings->lease_ms / 2;
    struct relay_batch *batch = &relay->batch;
    relay->queue = arena_alloc(&batch->arena, (batch->count + 1) * sizeof(struct relay_row *));
    relay->queue_from = relay->queue_to = 0;
    relay->no_more = false;
    for (size_t i = 0; i < batch->heads; i++)
        relay->queue[relay->queue_to++] = &batch->rows[i];
    MARK(relay_taken);
    while (may_start(relay, until_ms) || relay_gateway_in_flight(relay->gateway) > 0) {
        struct relay_done done;
        while (may_start(relay, until_ms) && relay_gateway_has_room(relay->gateway, looks))
            start(relay, relay->queue[relay->queue_from++]);
        if (relay_gateway_next(relay->gateway, TICK_MS, &done)) {
            MARK_IF(!looks, relay_answered);
            MARK_IF(looks, relay_looked);
            settle(relay, &done);
        }
        notice_signals(relay);
    }
}

static size_t decided(const struct relay_batch *batch)
{
    size_t n = 0;
    for (size_t i = 0; i < batch->count; i++)
        n += batch->rows[i].decided;
    return n;
}

/* What a pass came to. */
enum pass {
    PASS_IDLE, /* nothing to do now */
    PASS_WORK, /* something was done: there may be more */
    PASS_LOST, /* the database: again after a while */
    PASS_AWAY, /* all gateways: the same */
    PASS_ENDED /* for good */
};

static enum pass lost(struct relay *relay, enum relay_fault fault, const struct err *err)
{
    bool passing = fault == FAULT_LOST || fault == FAULT_DATA;
    snprintf(relay->problem, sizeof relay->problem, "%s", err->text);
    if (passing && relay->lost_rounds == 0)
        log_message(LOG_WARN, "relay_database", "%s", err->text);
    return passing ? PASS_LOST : PASS_ENDED;
}

/* Rows that are taken are sent and marked. looks: operations that go on are looked at instead. */
static enum pass pass(struct relay *relay, bool looks, enum relay_fault *fault, struct err *err)
{
    size_t unmarked = 0;
    arena_release(&relay->batch.arena);
    arena_init(&relay->batch.arena);
    *fault = looks ? relay_outbox_take_looks(relay->outbox, &relay->batch, err)
                   : relay_outbox_take(relay->outbox, &relay->batch, err);
    if (*fault)
        return lost(relay, *fault, err);
    if (relay->batch.count == 0) {
        relay->lost_rounds = 0;
        return PASS_IDLE;
    }
    send_batch(relay, looks);
    bool some = decided(&relay->batch) > 0;
    *fault = relay_outbox_mark(relay->outbox, &relay->batch, &unmarked, err);
    relay->figures.unmarked += (int64_t)unmarked;
    bool others = *fault == FAULT_DATA && decided(&relay->batch) > unmarked;
    if (*fault && !others)
        return lost(relay, *fault, err);
    if (others) /* rows that cannot be marked are sent again and again; they do not slow the others down */
        log_message(LOG_WARN, "relay_unmarked", "%s", err->text);
    *fault = FAULT_NONE;
    relay->lost_rounds = 0;
    if (relay->not_entitled)
        return PASS_ENDED;
    if (relay->no_more) {
        tell_away(relay);
        return PASS_AWAY;
    }
    return some ? PASS_WORK : PASS_IDLE;
}

/* ---- waiting ---- */

static void pause_for(struct relay *relay, int64_t ms, bool listen)
{
    int64_t until_ms = clock_ms() + ms;
    for (int64_t left_ms; !relay->stopping && (left_ms = until_ms - clock_ms()) > 0;) {
        struct pollfd fds[2] = {{relay->signals, POLLIN, 0},
                                {listen ? relay_outbox_socket(relay->outbox) : -1, POLLIN, 0}};
        poll(fds, 2, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX);
        notice_signals(relay);
        if (fds[1].revents && relay_outbox_heard(relay->outbox))
            return;
    }
}

static void wait_for_rows(struct relay *relay)
{
    int64_t now_ms = clock_ms(), left_ms = relay->due_ms - now_ms;
    int64_t ms = left_ms < relay->settings->poll_ms ? left_ms : relay->settings->poll_ms;
    if (relay_outbox_socket(relay->outbox) >= 0 && relay_outbox_heard(relay->outbox))
        return;
    pause_for(relay, ms > 1 ? ms : 1, true);
    if (clock_ms() >= relay->due_ms)
        relay->due_ms = NEVER;
}

static void wait_for_gateway(struct relay *relay)
{
    int64_t ms = relay_doubled(AWAY_FIRST_MS, relay->away_rounds++, AWAY_MAX_MS);
    ms = relay->ask_again_ms > ms ? relay->ask_again_ms : ms;
    relay->ask_again_ms = 0;
    relay->suspects = 0;
    pause_for(relay, ms < AWAY_MAX_MS ? ms : AWAY_MAX_MS, false);
}

static void wait_for_database(struct relay *relay)
{
    pause_for(relay, relay_doubled(AWAY_FIRST_MS, relay->lost_rounds++, AWAY_MAX_MS), false);
}

/* ---- the whole ---- */

static enum relay_end end_of(enum relay_fault fault)
{
    switch (fault) {
    case FAULT_NO_TABLE: return RELAY_NO_TABLE;
    case FAULT_NO_RIGHTS: return RELAY_NO_RIGHTS;
    case FAULT_UNFIT: return RELAY_UNFIT;
    case FAULT_NONE:
    case FAULT_LOST:
    case FAULT_DATA: break;
    }
    return RELAY_NO_DATABASE;
}

/* A call that is none: onced says what is wrong with it to those who may call, and refuses the others. */
static void probe(struct relay *relay, struct relay_done *done)
{
    const struct relay_request request = {.body = STR("{}"), .timeout_ms = call_timeout_ms(relay)};
    relay_gateway_send(relay->gateway, &request);
    while (!relay_gateway_next(relay->gateway, TICK_MS, done))
        notice_signals(relay);
}

static bool entitled(struct relay *relay, struct err *err)
{
    struct relay_done done;
    for (size_t i = 0; i < relay->settings->gateway_count; i++) {
        probe(relay, &done);
        if (done.sent && !done.verdict.suspect && done.verdict.outcome != RELAY_AWAY)
            break;
        relay_gateway_turn(relay->gateway, done.address);
    }
    bool refused = done.verdict.outcome == RELAY_UNAUTHORIZED ||
                   (done.verdict.outcome == RELAY_REFUSED && strncmp(done.verdict.problem, "forbidden", 9) == 0);
    if (refused)
        err_set(err, ERR_DENIED, "%s refuses the token: %s", relay_gateway_address(relay->gateway),
                done.verdict.problem);
    return !refused;
}

/* The two kinds of work take turns, so that neither starves the other. */
static enum pass both(struct relay *relay, enum relay_fault *fault, struct err *err)
{
    enum pass rows = pass(relay, false, fault, err);
    if (rows != PASS_IDLE && rows != PASS_WORK)
        return rows;
    enum pass looks = relay->stopping ? PASS_IDLE : pass(relay, true, fault, err);
    return looks == PASS_IDLE ? rows : looks;
}

static enum relay_end round_ended(struct relay *relay, enum relay_fault fault, struct err *err)
{
    if (!relay->not_entitled)
        return end_of(fault);
    err_set(err, ERR_DENIED, "the gateway refuses the token: %s", relay->problem);
    return RELAY_NOT_ENTITLED;
}

static enum relay_end work(struct relay *relay, struct err *err)
{
    while (!relay->stopping) {
        struct err why = {0};
        enum relay_fault fault = relay_outbox_connect(relay->outbox, &why);
        enum pass done = fault ? lost(relay, fault, &why) : both(relay, &fault, &why);
        if (done == PASS_ENDED) {
            enum relay_end end = round_ended(relay, fault, &why);
            err_set(err, why.code, "%s", why.text);
            return end;
        }
        if (relay->once && done == PASS_IDLE)
            break;
        if (relay->once && (done == PASS_AWAY || done == PASS_LOST)) {
            err_set(err, ERR_UNAVAILABLE, "%s", relay->problem);
            return done == PASS_AWAY ? RELAY_NO_GATEWAY : RELAY_NO_DATABASE;
        }
        if (done == PASS_IDLE)
            wait_for_rows(relay);
        else if (done == PASS_LOST)
            wait_for_database(relay);
        else if (done == PASS_AWAY)
            wait_for_gateway(relay);
        if (clock_ms() >= relay->figures_ms) {
            tell_figures(relay);
            relay->figures_ms = clock_ms() + FIGURES_MS;
        }
    }
    return RELAY_STOPPED;
}

static int take_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static enum relay_end begin(struct relay *relay, struct err *err)
{
    if (relay_gateway_new(relay->settings, &relay->gateway, err))
        return RELAY_UNFIT;
    enum relay_fault fault = relay_outbox_connect(relay->outbox, err);
    if (fault)
        return end_of(fault);
    return entitled(relay, err) ? RELAY_STOPPED : RELAY_NOT_ENTITLED;
}

enum relay_end relay_serve(const struct relay_settings *settings, bool once, void (*ready)(void), struct err *err)
{
    struct relay relay = {.settings = settings, .once = once, .due_ms = NEVER, .signals = take_signals()};
    arena_init(&relay.batch.arena);
    relay.outbox = relay_outbox_new(settings);
    enum relay_end end = begin(&relay, err);
    if (end == RELAY_STOPPED) {
        log_message(LOG_INFO, "relay_begun", "table %s in %s, to %s", settings->table, settings->database_shown,
                    relay_gateway_address(relay.gateway));
        if (ready)
            ready();
        end = work(&relay, err);
        tell_figures(&relay);
    }
    relay_gateway_free(relay.gateway);
    relay_outbox_free(relay.outbox);
    arena_release(&relay.batch.arena);
    close(relay.signals);
    return end;
}

enum relay_end relay_install(const struct relay_settings *settings, struct err *err)
{
    struct relay_outbox *outbox = relay_outbox_new(settings);
    struct buf statements;
    buf_init(&statements, 0);
    relay_install_write(settings, &statements);
    enum relay_fault fault = relay_outbox_install(outbox, statements.p, err);
    buf_release(&statements);
    relay_outbox_free(outbox);
    return fault ? end_of(fault) : RELAY_STOPPED;
}
