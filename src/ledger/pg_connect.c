/* Connections: the URL, settings of the session, epochs, what errors mean. */
#include "ledger/pg_store.h"

#include "base/mem.h"
#include "base/ulid.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- what went wrong ---- */

static const char resume[] = "nothing was recorded, nothing was sent";

struct meaning {
    const char *state; /* SQLSTATE or its class */
    enum pg_fault fault;
    enum err_code code;
    const char *what; /* NULL: the server's own words; else in front of them */
    const char *advice;
};

static const struct meaning meanings[] = {
    {"08", PG_AWAY, ERR_UNAVAILABLE, "the connection broke", resume},
    {"57P", PG_AWAY, ERR_UNAVAILABLE, "the server ends or begins its work", resume},
    {"25006", PG_AWAY, ERR_UNAVAILABLE, "the server takes no writes: it is a standby",
     "name all hosts in the URL with target_session_attrs=read-write"},
    {"25P03", PG_AWAY, ERR_UNAVAILABLE, "the server gave the transaction up", resume},
    {"22012", PG_AWAY, ERR_UNAVAILABLE, "another connection of this gateway has taken over", resume},
    {"40", PG_AGAIN, ERR_UNAVAILABLE, "other gateways were in the way", resume},
    {"55P03", PG_BUSY, ERR_UNAVAILABLE, "a lock was held too long", resume},
    {"57014", PG_BUSY, ERR_UNAVAILABLE, "a statement took too long", resume},
    {"53100", PG_BUSY, ERR_UNAVAILABLE, "the server's disk is full", "free space and calls resume"},
    {"53300", PG_AWAY, ERR_UNAVAILABLE, "the server has no connection left", "raise its max_connections"},
    {"53", PG_BUSY, ERR_UNAVAILABLE, "the server lacks resources", resume},
    {"58", PG_BUSY, ERR_UNAVAILABLE, "the server's system reports an error", resume},
    {"28", PG_AWAY, ERR_DENIED, "the server does not let us in", "set user and password in the URL, or a .pgpass file"},
    {"3D000", PG_AWAY, ERR_INVALID, "there is no such database", "create it with createdb"},
    {"42501", PG_BUSY, ERR_DENIED, "rights are missing",
     "the role needs CREATE on the database once, later SELECT, INSERT, UPDATE and DELETE on the tables"},
    {"XX001", PG_CORRUPT, ERR_CORRUPT, "the server reports damage", "stop onced and restore the newest backup"},
    {"XX002", PG_CORRUPT, ERR_CORRUPT, "the server reports damage", "stop onced, then REINDEX or restore"},
};

static const struct meaning *meaning_of(const char *state)
{
    for (size_t i = 0; state && i < sizeof meanings / sizeof *meanings; i++)
        if (strncmp(meanings[i].state, state, strlen(meanings[i].state)) == 0)
            return &meanings[i];
    return NULL;
}

/* libpq's messages are lines, the first of which says it all. */
static void first_line(const char *text, char out[256])
{
    snprintf(out, 256, "%s", text ? text : "");
    out[strcspn(out, "\n")] = '\0';
}

static enum err_code lost(struct pg *pg, struct err *err)
{
    char words[256];
    first_line(pg->conn ? PQerrorMessage(pg->conn) : "", words);
    pg->fault = PG_AWAY;
    return err_set(err, ERR_UNAVAILABLE, "%s is away (%s): %s", pg->name, words[0] ? words : "it says nothing any more",
                   resume);
}

enum err_code pg_failed(struct pg *pg, const PGresult *result, struct err *err)
{
    if (!result)
        return lost(pg, err);
    char words[256];
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const struct meaning *meaning = meaning_of(state);
    first_line(PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY), words);
    if (!state) /* libpq's own: the connection */
        return lost(pg, err);
    if (pg->fault == PG_FINE || (meaning && meaning->fault == PG_AWAY))
        pg->fault = meaning ? meaning->fault : PG_COMMAND;
    if (!meaning)
        return err_set(err, ERR_INTERNAL, "%s: %s (SQLSTATE %s)", pg->name, words, state);
    return err_set(err, meaning->code, "%s: %s (%s): %s", pg->name, meaning->what, words, meaning->advice);
}

enum err_code pg_strange(struct pg *pg, const char *what, struct err *err)
{
    pg->fault = PG_COMMAND;
    return err_set(err, ERR_INTERNAL, "%s holds a %s that this onced does not know: a newer one wrote it", pg->name,
                   what);
}

/* ---- outside of pipelines ---- */

enum err_code pg_exec_rows(struct pg *pg, const char *sql, int count, const char *const *values, PGresult **out,
                           struct err *err)
{
    PGresult *result = count ? PQexecParams(pg->conn, sql, count, NULL, values, NULL, NULL, 0) : PQexec(pg->conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        *out = result;
        return ERR_NONE;
    }
    pg_failed(pg, PQstatus(pg->conn) == CONNECTION_OK ? result : NULL, err);
    PQclear(result);
    return err->code;
}

enum err_code pg_exec(struct pg *pg, const char *sql, struct err *err)
{
    PGresult *result = NULL;
    if (pg_exec_rows(pg, sql, 0, NULL, &result, err) == 0)
        PQclear(result);
    return err->code;
}

/* ---- connecting ---- */

void pg_init(struct pg *pg, const char *url, struct env *env, bool own_clock)
{
    *pg = (struct pg){.url = mem_copy_text(url), .env = env, .own_clock = own_clock, .name = "the PostgreSQL ledger"};
    struct ulid_source ids;
    ulid_source_init(&ids, env);
    ulid_next(&ids, pg->gateway);
    arena_init(&pg->scratch);
    pg_statements_make(pg->texts);
}

void pg_disconnect(struct pg *pg)
{
    for (int i = 0; i < pg->ticket_count; i++)
        PQclear(pg->answers[i]);
    pg->ticket_count = 0;
    PQfinish(pg->conn);
    pg->conn = NULL;
    pg->sent_first = pg->sent_count = 0;
    pg->unflushed = false;
    memset(pg->prepared, 0, sizeof pg->prepared);
}

void pg_release(struct pg *pg)
{
    pg_disconnect(pg);
    for (int i = 0; i < PG_STATEMENT_COUNT; i++)
        free(pg->texts[i]);
    free(pg->sent);
    free(pg->answers);
    free(pg->url);
    arena_release(&pg->scratch);
    *pg = (struct pg){0};
}

/* What the URL leaves open gets our defaults; the URL counts where both speak. */
static PGconn *open_connection(const char *url)
{
    char seconds[12];
    snprintf(seconds, sizeof seconds, "%d", PG_CONNECT_S);
    const char *const names[] = {"connect_timeout",      "keepalives_idle",  "keepalives_interval",
                                 "keepalives_count",     "tcp_user_timeout", "fallback_application_name",
                                 "target_session_attrs", "dbname",           NULL};
    const char *const values[] = {seconds, "5", "2", "3", "10000", "onced", "read-write", url, NULL};
    return PQconnectdbParams(names, values, 1);
}

static void name_it(struct pg *pg)
{
    const char *host = PQhost(pg->conn), *database = PQdb(pg->conn);
    if (database)
        snprintf(pg->name, sizeof pg->name, "database %.60s at %.40s:%.8s", database,
                 host && *host ? host : "localhost", PQport(pg->conn) ? PQport(pg->conn) : "");
}

/* The server's refusal as it came with the connection, which has no result to ask for a SQLSTATE. */
static enum err_code refused(struct pg *pg, struct err *err)
{
    char words[256];
    const char *all = PQerrorMessage(pg->conn);
    first_line(all, words);
    pg->fault = PG_AWAY;
    if (strstr(all, "password") || strstr(all, "authentication") || strstr(all, "pg_hba.conf"))
        return err_set(err, ERR_DENIED,
                       "PostgreSQL does not let us in (%s): set user and password in the URL or a .pgpass file", words);
    if (strstr(all, "does not exist"))
        return err_set(err, ERR_INVALID, "%s: create it first (createdb, createuser)", words);
    if (strstr(all, "read-only") || strstr(all, "hot standby") || strstr(all, "not accept"))
        return err_set(err, ERR_UNAVAILABLE,
                       "%s: onced needs the primary: name all hosts in the URL, as in postgresql://host1,host2/name",
                       words);
    return err_set(err, ERR_UNAVAILABLE, "PostgreSQL can not be reached (%s): is it running, are host and port right?",
                   words);
}

/* Our defaults of what the URL's options do not set. A server that does not know one (a compatible engine) goes
 * without. */
static enum err_code settle_session(struct pg *pg, struct err *err)
{
    char statement[16], lock[16], idle[16];
    snprintf(statement, sizeof statement, "%d", PG_STATEMENT_MS);
    snprintf(lock, sizeof lock, "%d", PG_LOCK_MS);
    snprintf(idle, sizeof idle, "%d", PG_IDLE_MS);
    const struct {
        const char *name, *value;
        bool needed;
    } settings[] = {
        {"search_path", PG_SCHEMA, true},
        {"statement_timeout", statement, false},
        {"lock_timeout", lock, false},
        {"idle_in_transaction_session_timeout", idle, false},
        {"plan_cache_mode", "force_generic_plan", false}, /* planning anew costs more than all statements do … */
        {"enable_seqscan", "off", false},                 /* … which all walk an index, also while tables are small */
        {"jit", "off", false},
        {"client_min_messages", "warning", false},
    };
    const char *options = "";
    PQconninfoOption *info = PQconninfo(pg->conn);
    for (PQconninfoOption *option = info; option && option->keyword; option++)
        if (strcmp(option->keyword, "options") == 0 && option->val)
            options = option->val;
    for (size_t i = 0; err->code == 0 && i < sizeof settings / sizeof *settings; i++) {
        if (strstr(options, settings[i].name))
            continue;
        const char *const values[] = {settings[i].name, settings[i].value};
        struct err own = {0};
        PGresult *result = NULL;
        if (pg_exec_rows(pg, "SELECT set_config($1, $2, false)", 2, values, &result, &own) == 0)
            PQclear(result);
        else if (settings[i].needed || PQstatus(pg->conn) != CONNECTION_OK)
            *err = own;
    }
    PQconninfoFree(info);
    if (err->code == 0)
        pg->fault = PG_FINE;
    return err->code;
}

static enum err_code check_encoding(struct pg *pg, struct err *err)
{
    const char *encoding = PQparameterStatus(pg->conn, "server_encoding");
    if (encoding && strcmp(encoding, "UTF8") != 0)
        return err_set(err, ERR_INVALID, "%s has the encoding %s: create a database with ENCODING 'UTF8'", pg->name,
                       encoding);
    if (PQsetClientEncoding(pg->conn, "UTF8") != 0)
        return pg_failed(pg, NULL, err);
    return ERR_NONE;
}

static void no_notice(void *user, const PGresult *result)
{
    (void)user;
    (void)result;
}

enum err_code pg_connect_bare(struct pg *pg, struct err *err)
{
    pg_disconnect(pg);
    pg->fault = PG_FINE;
    pg->conn = open_connection(pg->url);
    if (!pg->conn)
        mem_exhausted("libpq");
    if (PQstatus(pg->conn) != CONNECTION_OK) {
        refused(pg, err);
    } else {
        PQsetNoticeReceiver(pg->conn, no_notice, NULL);
        name_it(pg);
        if (check_encoding(pg, err) == 0)
            settle_session(pg, err);
    }
    if (err->code)
        pg_disconnect(pg);
    return err->code;
}

/* ---- epochs and clocks ---- */

static enum err_code read_number(struct pg *pg, const char *sql, int count, const char *const *values, bool *found,
                                 int64_t out[2], struct err *err)
{
    PGresult *result = NULL;
    if (pg_exec_rows(pg, sql, count, values, &result, err))
        return err->code;
    *found = PQntuples(result) > 0;
    for (int i = 0; *found && i < PQnfields(result) && i < 2; i++)
        out[i] = strtoll(PQgetvalue(result, 0, i), NULL, 10);
    PQclear(result);
    return ERR_NONE;
}

/* Raises the epoch of our row, which waits for the end of whatever the connection before has left running, and shuts
 * that one out if it has not begun to write. Only then the row says whether its last batch was committed. */
static enum err_code take_epoch(struct pg *pg, bool *committed, struct err *err)
{
    const char *const values[] = {pg->gateway};
    int64_t row[2] = {0};
    bool found;
    *committed = false;
    if (read_number(pg,
                    "INSERT INTO gateways AS g (id, epoch, batch, seen_ms) VALUES ($1, 1, 0, "
                    "(extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT (id) DO UPDATE SET "
                    "epoch = g.epoch + 1, seen_ms = excluded.seen_ms RETURNING epoch, batch",
                    1, values, &found, row, err))
        return err->code;
    if (pg->epoch == 0) /* a row that is there under our random id: its numbers go on, so that none means two things */
        pg->batch = row[1];
    else
        *committed = row[1] == pg->batch;
    pg->epoch = row[0];
    return ERR_NONE;
}

/* As long as what was seen allows for clocks that agree, they are taken to agree: what is stored stays what was
 * written. */
void pg_compare_clocks(struct pg *pg, int64_t before_ms, int64_t after_ms, int64_t there_ms)
{
    int64_t least = there_ms - after_ms - PG_CLOCK_SLACK_MS, most = there_ms - before_ms + PG_CLOCK_SLACK_MS;
    if (least <= 0 && 0 <= most)
        pg->offset_ms = 0;
    else if (pg->offset_ms < least || pg->offset_ms > most)
        pg->offset_ms = least + (most - least) / 2;
}

static enum err_code compare_clocks(struct pg *pg, struct err *err)
{
    int64_t there[2] = {0};
    bool found;
    if (pg->own_clock)
        return ERR_NONE;
    int64_t before_ms = pg->env->now_ms(pg->env);
    if (read_number(pg, pg->texts[PG_CLOCK], 0, NULL, &found, there, err) == 0)
        pg_compare_clocks(pg, before_ms, pg->env->now_ms(pg->env), there[0]);
    return err->code;
}

enum err_code pg_connect(struct pg *pg, bool *committed, struct err *err)
{
    if (pg_connect_bare(pg, err))
        return err->code;
    if (pg_check_version(pg, err) == 0 && pg_share(pg, err) == 0 && take_epoch(pg, committed, err) == 0 && compare_clocks(pg, err) == 0 &&
        (PQsetnonblocking(pg->conn, 1) != 0 || !PQenterPipelineMode(pg->conn)))
        pg_failed(pg, NULL, err);
    if (err->code)
        pg_disconnect(pg);
    return err->code;
}
