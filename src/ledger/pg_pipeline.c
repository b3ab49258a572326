/* Statements through libpq's pipeline, within transactions.
 *
 *   pg_begin    BEGIN, fence with locks ─────────┐
 *   pg_write    prepare?, execute ───────────────┤  sent ──▶ server
 *   pg_ask      prepare?, execute ───────────────┤
 *   pg_answer   flush request; results in order ◀┘  of writes: checked; of others: kept by ticket
 *   pg_commit   counters, COMMIT, sync; results in order
 *
 * After an error the server skips everything up to the next sync; pg_rollback sends it and drains. */
#include "ledger/pg_store.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define OID_BYTEA 17
#define OID_INT8  20
#define OID_TEXT  25
/* As the statement says. */
#define OID_INFERRED 0

/* ---- parameters ---- */

void pg_query(struct pg_query *query, struct pg *pg, enum pg_statement which)
{
    query->pg = pg;
    query->which = which;
    query->partition = PG_PARTITIONS;
    query->count = 0;
    query->ticket = -1;
}

void pg_query_in(struct pg_query *query, struct pg *pg, enum pg_statement which, const char *tenant)
{
    pg_query(query, pg, which);
    if (!tenant)
        return;
    const struct pg_place *place = &pg->places[text_hash(TEXT_HASH_START, tenant) & (PG_PLACES - 1)];
    if (place->tenant && strcmp(place->tenant, tenant) == 0)
        query->partition = place->partition;
    else if (!pg->place_wanted)
        pg->place_wanted = mem_copy_text(tenant);
}

static void put(struct pg_query *query, Oid type, const char *p, size_t n, int format)
{
    assert(query->count < PG_PARAMS_MAX);
    int i = query->count++;
    query->types[i] = type;
    query->values[i] = p;
    query->lengths[i] = (int)n;
    query->formats[i] = format;
}

void pg_put_str(struct pg_query *query, struct str text)
{
    if (text.p)
        text = text_storable(text, &query->pg->scratch, NULL);
    put(query, OID_TEXT, text.p, text.n, 1);
}

void pg_put_text(struct pg_query *query, const char *text)
{
    pg_put_str(query, str_of(text));
}

void pg_put_bytes(struct pg_query *query, struct str bytes)
{
    put(query, OID_BYTEA, bytes.p, bytes.n, 1);
}

void pg_put_digest(struct pg_query *query, const struct digest *digest)
{
    put(query, OID_BYTEA, digest ? (const char *)digest->b : NULL, DIGEST_BYTES, 1);
}

void pg_put_int(struct pg_query *query, int64_t value)
{
    unsigned char *bytes = query->numbers[query->count];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)value >> (56 - 8 * i));
    put(query, OID_INT8, (const char *)bytes, 8, 1);
}

void pg_put_no_int(struct pg_query *query)
{
    put(query, OID_INT8, NULL, 0, 1);
}

void pg_put_rows(struct pg_query *query, struct str array)
{
    put(query, OID_INFERRED, array.p, array.n, 1);
}

void pg_put_moment(struct pg_query *query, int64_t ms)
{
    pg_put_int(query, ms > 0 ? ms + query->pg->offset_ms : ms);
}

/* ---- the wire ---- */

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum err_code pg_exchange(struct pg *pg, bool reading, struct err *err)
{
    int64_t began_ms = monotonic_ms();
    int64_t silence_ms = PQpipelineStatus(pg->conn) == PQ_PIPELINE_OFF ? PG_SETUP_MS : PG_SILENCE_MS;
    for (;;) {
        int unsent = PQflush(pg->conn);
        if (unsent < 0)
            return pg_failed(pg, NULL, err);
        if (reading ? !PQisBusy(pg->conn) : unsent == 0)
            return ERR_NONE;
        int64_t waited_ms = monotonic_ms() - began_ms;
        bool enough = (waited_ms >= silence_ms && !pg->patient) ||
                      (waited_ms >= PG_SLICE_MS && pg->waits && pg->waits(pg->waits_owner, waited_ms));
        struct pollfd fd = {.fd = PQsocket(pg->conn), .events = (short)(POLLIN | (unsent ? POLLOUT : 0))};
        if (fd.fd < 0 || enough)
            return pg_failed(pg, NULL, err);
        if (poll(&fd, 1, PG_SLICE_MS) < 0 && errno != EINTR)
            return pg_failed(pg, NULL, err);
        if (fd.revents & (POLLIN | POLLERR | POLLHUP) && !PQconsumeInput(pg->conn))
            return pg_failed(pg, NULL, err);
    }
}

/* ---- what was sent ---- */

static void note_sent(struct pg *pg, struct pg_sent sent)
{
    if (pg->sent_count == pg->sent_room) {
        size_t room = pg->sent_room ? 2 * pg->sent_room : 64;
        struct pg_sent *larger = mem_alloc(room * sizeof *larger);
        for (size_t i = 0; i < pg->sent_count; i++)
            larger[i] = pg->sent[(pg->sent_first + i) % pg->sent_room];
        free(pg->sent);
        pg->sent = larger;
        pg->sent_first = 0;
        pg->sent_room = room;
    }
    pg->sent[(pg->sent_first + pg->sent_count++) % pg->sent_room] = sent;
    pg->unflushed = true;
}

int pg_ticket(struct pg *pg)
{
    if (pg->ticket_count == pg->ticket_room) {
        pg->ticket_room = pg->ticket_room ? 2 * pg->ticket_room : 64;
        pg->answers = mem_grow(pg->answers, (size_t)pg->ticket_room * sizeof *pg->answers);
    }
    pg->answers[pg->ticket_count] = NULL;
    return pg->ticket_count++;
}

static void forget_answers(struct pg *pg)
{
    for (int i = 0; i < pg->ticket_count; i++)
        PQclear(pg->answers[i]);
    pg->ticket_count = 0;
}

static enum err_code prepare(struct pg *pg, const struct pg_query *query, const char *name, struct err *err)
{
    if (pg->prepared[query->which][query->partition])
        return ERR_NONE;
    char *of_partition =
        query->partition < PG_PARTITIONS ? pg_in_partition(pg->texts[query->which], query->partition) : NULL;
    const char *text = of_partition ? of_partition : pg->texts[query->which];
    bool sent = PQsendPrepare(pg->conn, name, text, query->count, query->types) != 0;
    free(of_partition);
    if (!sent)
        return pg_failed(pg, NULL, err);
    pg->prepared[query->which][query->partition] = true;
    note_sent(pg, (struct pg_sent){.kind = SENT_PREPARE, .which = query->which, .partition = query->partition});
    return ERR_NONE;
}

static enum err_code send_query(struct pg_query *query, struct pg_sent sent, struct err *err)
{
    struct pg *pg = query->pg;
    char name[32];
    int length = snprintf(name, sizeof name, "s%d", (int)query->which);
    if (query->partition < PG_PARTITIONS)
        snprintf(name + length, sizeof name - (size_t)length, "_%d", query->partition);
    if (pg->fault)
        return err_set(err, ERR_INTERNAL, "statement %d after a failure", (int)query->which);
    if (!pg->conn) {
        pg->fault = PG_AWAY;
        return err_set(err, ERR_UNAVAILABLE, "%s is not connected", pg->name);
    }
    if (prepare(pg, query, name, err))
        return err->code;
    if (!PQsendQueryPrepared(pg->conn, name, query->count, query->values, query->lengths, query->formats, 1))
        return pg_failed(pg, NULL, err);
    sent.which = query->which;
    note_sent(pg, sent);
    return ERR_NONE;
}

enum err_code pg_write(struct pg_query *query, struct err *err)
{
    return send_query(query, (struct pg_sent){.kind = SENT_WRITE}, err);
}

enum err_code pg_write_one(struct pg_query *query, struct err *err)
{
    return send_query(query, (struct pg_sent){.kind = SENT_WRITE_ONE}, err);
}

enum err_code pg_ask(struct pg_query *query, struct err *err)
{
    if (query->ticket < 0)
        query->ticket = pg_ticket(query->pg);
    return send_query(query, (struct pg_sent){.kind = SENT_ASKED, .ticket = query->ticket}, err);
}

/* ---- what comes back ---- */

/* The next result; libpq puts a NULL between those of two statements. */
static enum err_code next_result(struct pg *pg, PGresult **out, struct err *err)
{
    for (int nulls = 0; nulls < 3; nulls++) {
        if (pg_exchange(pg, true, err))
            return err->code;
        *out = PQgetResult(pg->conn);
        if (*out)
            return ERR_NONE;
        if (PQstatus(pg->conn) != CONNECTION_OK)
            return pg_failed(pg, NULL, err);
    }
    return pg_failed(pg, NULL, err);
}

int64_t pg_written(const PGresult *result)
{
    return strtoll(PQcmdTuples((PGresult *)result), NULL, 10);
}

static enum err_code check_written(struct pg *pg, const PGresult *result, struct err *err)
{
    if (pg_written(result) == 1)
        return ERR_NONE;
    pg->fault = PG_AGAIN;
    return err_set(err, ERR_UNAVAILABLE, "another gateway wrote the same at the same time; try again");
}

static enum err_code check_commit(struct pg *pg, const PGresult *result, struct err *err)
{
    bool done = strcmp(PQcmdStatus((PGresult *)result), "COMMIT") == 0;
    if (done && pg->warned) { /* "… might not have been replicated": somebody cancelled the wait for the standby */
        pg->fault = PG_AWAY;
        return err_set(err, ERR_UNAVAILABLE, "%s: the standby's word for a commit was not waited for", pg->name);
    }
    if (done)
        return ERR_NONE;
    pg->fault = PG_COMMAND;
    return err_set(err, ERR_INTERNAL, "%s rolled a transaction back that was to be committed", pg->name);
}

/* Takes one result in: what was sent first is answered first. */
static enum err_code take_result(struct pg *pg, struct err *err)
{
    assert(pg->sent_count > 0);
    PGresult *result;
    if (next_result(pg, &result, err))
        return err->code;
    struct pg_sent sent = pg->sent[pg->sent_first];
    pg->sent_first = (pg->sent_first + 1) % pg->sent_room;
    pg->sent_count--;
    ExecStatusType status = PQresultStatus(result);
    bool fine = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_PIPELINE_SYNC;
    if (!fine) {
        if (sent.kind == SENT_PREPARE)
            pg->prepared[sent.which][sent.partition] = false;
        if (status == PGRES_PIPELINE_ABORTED) /* skipped behind an error that was taken in already */
            err_set(err, ERR_INTERNAL, "a statement behind a failed one");
        else
            pg_failed(pg, result, err);
    } else if (sent.kind == SENT_WRITE_ONE) {
        check_written(pg, result, err);
    } else if (sent.kind == SENT_COMMIT) {
        check_commit(pg, result, err);
    } else if (sent.kind == SENT_ASKED) {
        pg->answers[sent.ticket] = result;
        return ERR_NONE;
    }
    PQclear(result);
    return fine ? err->code : ERR_INTERNAL;
}

enum err_code pg_answer(struct pg *pg, int ticket, const PGresult **out, struct err *err)
{
    if (pg->fault)
        return err_set(err, ERR_INTERNAL, "an answer after a failure");
    while (!pg->answers[ticket]) {
        if (pg->unflushed && !PQsendFlushRequest(pg->conn))
            return pg_failed(pg, NULL, err);
        pg->unflushed = false;
        if (take_result(pg, err))
            return err->code;
    }
    *out = pg->answers[ticket];
    return ERR_NONE;
}

enum err_code pg_rows(struct pg_query *query, const PGresult **out, struct err *err)
{
    return pg_ask(query, err) ? err->code : pg_answer(query->pg, query->ticket, out, err);
}

/* ---- transactions ---- */

static enum err_code send_plain(struct pg *pg, enum pg_statement which, int kind, struct err *err)
{
    struct pg_query query;
    pg_query(&query, pg, which);
    return send_query(&query, (struct pg_sent){.kind = kind}, err);
}

/* The locks are taken by the same statement: those behind it see what the ones who held them have committed. */
static enum err_code fence(struct pg *pg, const int64_t *locks, size_t count, struct err *err)
{
    struct buf list;
    struct pg_query query;
    buf_init(&list, 0);
    buf_add_char(&list, '{');
    for (size_t i = 0; i < count; i++)
        buf_printf(&list, "%s%lld", i ? "," : "", (long long)locks[i]);
    buf_add_char(&list, '}');
    pg_query(&query, pg, PG_FENCE);
    pg_put_text(&query, pg->gateway);
    pg_put_int(&query, ++pg->batch);
    pg_put_int(&query, pg->epoch);
    pg_put_str(&query, buf_str(&list));
    pg_write(&query, err);
    buf_release(&list);
    return err->code;
}

/* Now and then; what comes back is looked at when the transaction has ended. */
static enum err_code ask_for_the_time(struct pg *pg, struct err *err)
{
    struct pg_query query;
    int64_t now_ms = monotonic_ms();
    pg->clock_ticket = -1;
    if (pg->own_clock || now_ms - pg->clock_asked_ms < PG_CLOCK_EVERY_MS)
        return ERR_NONE;
    pg->clock_asked_ms = now_ms;
    pg->clock_before_ms = pg->env->now_ms(pg->env);
    pg_query(&query, pg, PG_CLOCK);
    if (pg_ask(&query, err) == 0)
        pg->clock_ticket = query.ticket;
    return err->code;
}

static void look_at_the_time(struct pg *pg)
{
    const PGresult *result = pg->clock_ticket >= 0 ? pg->answers[pg->clock_ticket] : NULL;
    if (!result)
        return;
    struct pg_row row = pg_row(pg, result, 0, NULL);
    pg_compare_clocks(pg, pg->clock_before_ms, pg->env->now_ms(pg->env), pg_take_int(&row));
}

/* As the time: in passing. */
static enum err_code ask_for_the_place(struct pg *pg, struct err *err)
{
    struct pg_query query;
    pg->place_ticket = -1;
    if (!pg->place_wanted)
        return ERR_NONE;
    pg_query(&query, pg, PG_PLACE);
    pg_put_text(&query, pg->place_wanted);
    pg_put_int(&query, PG_PARTITIONS);
    if (pg_ask(&query, err) == 0)
        pg->place_ticket = query.ticket;
    return err->code;
}

static void look_at_the_place(struct pg *pg)
{
    const PGresult *result = pg->place_ticket >= 0 ? pg->answers[pg->place_ticket] : NULL;
    if (!result || PQntuples(result) != 1)
        return;
    struct pg_row row = pg_row(pg, result, 0, NULL);
    struct pg_place *place = &pg->places[text_hash(TEXT_HASH_START, pg->place_wanted) & (PG_PLACES - 1)];
    free(place->tenant);
    *place = (struct pg_place){pg->place_wanted, (int)pg_take_int(&row)};
    pg->place_wanted = NULL;
}

void pg_forget_places(struct pg *pg)
{
    for (int i = 0; i < PG_PLACES; i++) {
        free(pg->places[i].tenant);
        pg->places[i].tenant = NULL;
    }
    free(pg->place_wanted);
    pg->place_wanted = NULL;
}

enum err_code pg_begin(struct pg *pg, bool writing, const int64_t *locks, size_t lock_count, struct err *err)
{
    pg->fault = PG_FINE;
    pg->writing = writing;
    memset(pg->moved, 0, sizeof pg->moved);
    pg->news_count = 0;
    forget_answers(pg);
    pg_groups_clear(pg);
    if (send_plain(pg, writing ? PG_BEGIN : PG_BEGIN_READ, SENT_WRITE, err))
        return err->code;
    if (ask_for_the_time(pg, err) || ask_for_the_place(pg, err))
        return err->code;
    return writing ? fence(pg, locks, lock_count, err) : ERR_NONE;
}

/* One row per state that changed, whatever the number of commands. */
static enum err_code write_counters(struct pg *pg, struct err *err)
{
    struct buf states, numbers;
    struct pg_query query;
    buf_init(&states, 0);
    buf_init(&numbers, 0);
    for (int state = 0; state < STATE_COUNT; state++) {
        if (!pg->moved[state])
            continue;
        buf_printf(&states, "%c%s", states.n ? ',' : '{', state_name((enum state)state));
        buf_printf(&numbers, "%c%lld", numbers.n ? ',' : '{', (long long)pg->moved[state]);
    }
    if (states.n) {
        buf_add_char(&states, '}');
        buf_add_char(&numbers, '}');
        pg_query(&query, pg, PG_COUNT);
        pg_put_text(&query, pg->gateway);
        pg_put_str(&query, buf_str(&states));
        pg_put_str(&query, buf_str(&numbers));
        pg_write(&query, err);
    }
    buf_release(&states);
    buf_release(&numbers);
    return err->code;
}

static enum err_code sync_up(struct pg *pg, struct err *err)
{
    if (!PQpipelineSync(pg->conn))
        return pg_failed(pg, NULL, err);
    note_sent(pg, (struct pg_sent){.kind = SENT_SYNC});
    return ERR_NONE;
}

/* Takes everything in; the first error stays. */
static void drain(struct pg *pg, struct err *err)
{
    while (pg->sent_count > 0 && pg->conn && pg->fault != PG_AWAY)
        take_result(pg, err);
    pg->unflushed = false;
}

/* One notification for as many as fit. The server lets commits with notifications pass one by one, hence only for what
 * somebody waits for. */
static enum err_code write_news(struct pg *pg, struct err *err)
{
    for (size_t done = 0; done < pg->news_count && err->code == 0;) {
        struct buf text;
        struct pg_query query;
        buf_init(&text, 0);
        buf_add_text(&text, pg->sender);
        for (; done < pg->news_count && text.n + OPERATION_ID_SIZE < PG_NEWS_BYTES_MAX; done++)
            buf_printf(&text, " %s", pg->news[done]);
        pg_query(&query, pg, PG_NOTIFY);
        pg_put_str(&query, buf_str(&text));
        pg_write(&query, err);
        buf_release(&text);
    }
    return err->code;
}

enum err_code pg_commit(struct pg *pg, struct err *err)
{
    bool under_way = write_counters(pg, err) == 0 && write_news(pg, err) == 0;
    pg->warned = false;
    /* As soon as the COMMIT is handed to libpq the server may have got it. */
    if (under_way && send_plain(pg, PG_COMMIT, SENT_COMMIT, err) == 0 && sync_up(pg, err) == 0)
        drain(pg, err);
    if (under_way && pg->fault == PG_AWAY && pg->writing)
        pg->fault = PG_DOUBT;
    if (err->code) {
        pg_rollback(pg);
    } else {
        look_at_the_time(pg);
        look_at_the_place(pg);
    }
    forget_answers(pg);
    return err->code;
}

void pg_rollback(struct pg *pg)
{
    struct err ignored = {0};
    enum pg_fault fault = pg->fault;
    bool lost = !pg->conn || fault == PG_AWAY || fault == PG_DOUBT;
    pg->fault = PG_FINE;
    if (!lost && sync_up(pg, &ignored) == 0) {
        drain(pg, &ignored);
        pg->fault = PG_FINE;
        err_clear(&ignored);
        if (pg->conn && PQtransactionStatus(pg->conn) != PQTRANS_IDLE &&
            send_plain(pg, PG_ROLLBACK, SENT_WRITE, &ignored) == 0 && sync_up(pg, &ignored) == 0)
            drain(pg, &ignored);
        lost = pg->fault != PG_FINE || PQtransactionStatus(pg->conn) != PQTRANS_IDLE;
    }
    if (lost) /* the server rolls back what was open; a new connection knows nothing of it */
        pg_disconnect(pg);
    pg->fault = fault;
    forget_answers(pg);
}
