/* Connections: the URL, settings of the session, epochs, what errors mean. */
#include "ledger/pg_news.h"
#include "ledger/pg_store.h"

#include "base/mem.h"
#include "base/ulid.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- what went wrong ---- */

static const char resume[] = "nothing was recorded, nothing was sent";

static const char session[] = "the tables must stay, and the URL must lead to the server itself, through no pooler";

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
    {"53100", PG_BUSY, ERR_UNAVAILABLE, "the server's disk is full",
     "nothing was recorded, nothing was sent; free space there and calls resume"},
    {"53300", PG_AWAY, ERR_UNAVAILABLE, "the server has no connection left", "raise its max_connections"},
    {"53", PG_BUSY, ERR_UNAVAILABLE, "the server lacks resources", resume},
    {"58", PG_BUSY, ERR_UNAVAILABLE, "the server's system reports an error", resume},
    {"28", PG_AWAY, ERR_DENIED, "the server does not let us in", "set user and password in the URL, or a .pgpass file"},
    {"3D000", PG_AWAY, ERR_INVALID, "there is no such database", "create it with createdb"},
    {"26000", PG_AWAY, ERR_UNAVAILABLE, "a prepared statement is gone", session},
    {"42P05", PG_AWAY, ERR_UNAVAILABLE, "a prepared statement is another one's", session},
    {"42P01", PG_AWAY, ERR_UNAVAILABLE, "a table is missing", session},
    {"42501", PG_BUSY, ERR_DENIED, "rights are missing",
     "the role needs CREATE on the database once, later USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on the "
     "tables"},
    {"42P06", PG_BUSY, ERR_DENIED, "the schema is there and the role may not use it",
     "GRANT USAGE ON SCHEMA to the role"},
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

/* Of a URL with several hosts each has its line; lines behind a tab explain the one before. */
static void all_hosts(const char *text, char out[256])
{
    size_t n = 0;
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        if (line[0] != '\t' && length > 0 && n < 255)
            n += (size_t)snprintf(out + n, 256 - n, "%s%.*s", n ? "; " : "", (int)length, line);
        line += length + (line[length] == '\n');
    }
    if (n == 0)
        snprintf(out, 256, "it gives no reason");
}

static enum err_code lost(struct pg *pg, struct err *err)
{
    char words[256];
    first_line(pg->conn ? PQerrorMessage(pg->conn) : "", words);
    pg->fault = PG_AWAY;
    return err_set(err, ERR_UNAVAILABLE, "%s is away (%s): %s", pg->name, words[0] ? words : "it says nothing any more",
                   resume);
}

static void note_last_words(struct pg *pg, const PGresult *result, const char *words)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity && strcmp(severity, "PANIC") == 0)
        snprintf(pg->last_words, sizeof pg->last_words, "%.*s", (int)sizeof pg->last_words - 1, words);
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
    note_last_words(pg, result, words);
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

/* As PQexec, but for a server that says nothing any more: of several statements the last one's result, or the failed
 * one's. */
static enum err_code last_result(struct pg *pg, PGresult **out, struct err *err)
{
    for (PGresult *next;;) {
        if (pg_exchange(pg, true, err)) {
            PQclear(*out);
            *out = NULL;
            return err->code;
        }
        if (!(next = PQgetResult(pg->conn)))
            return ERR_NONE;
        PQclear(*out);
        *out = next;
    }
}

enum err_code pg_exec_rows(struct pg *pg, const char *sql, int count, const char *const *values, PGresult **out,
                           struct err *err)
{
    PGresult *result = NULL;
    int sent =
        count ? PQsendQueryParams(pg->conn, sql, count, NULL, values, NULL, NULL, 0) : PQsendQuery(pg->conn, sql);
    if (!sent)
        return pg_failed(pg, NULL, err);
    if (last_result(pg, &result, err))
        return err->code;
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

/* ---- connecting ---- */

void pg_init(struct pg *pg, const char *url, struct env *env, bool own_clock)
{
    *pg = (struct pg){.url = mem_copy_text(url), .env = env, .own_clock = own_clock, .name = "the PostgreSQL ledger"};
    struct ulid_source ids;
    ulid_source_init(&ids, env);
    ulid_next(&ids, pg->gateway);
    memcpy(pg->sender, pg->gateway, sizeof pg->sender);
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
    pg_forget_places(pg);
}

void pg_release(struct pg *pg)
{
    pg_disconnect(pg);
    for (int i = 0; i < PG_STATEMENT_COUNT; i++)
        free(pg->texts[i]);
    free(pg->sent);
    free(pg->news);
    free(pg->answers);
    pg_groups_release(pg);
    free(pg->url);
    arena_release(&pg->scratch);
    *pg = (struct pg){0};
}

/* The list with its first `by` members at its end. Freed by the caller. */
static char *turned(const char *list, unsigned by)
{
    size_t members = 1, n = strlen(list);
    for (const char *p = list; *p; p++)
        members += *p == ',';
    const char *from = list;
    for (unsigned i = 0; i < by % members; i++)
        from = strchr(from, ',') + 1;
    char *out = mem_alloc(n + 2);
    snprintf(out, n + 2, "%s%s%.*s", from, from > list ? "," : "", (int)(from > list ? from - list - 1 : 0), list);
    return out;
}

unsigned pg_hosts(const struct pg *pg)
{
    unsigned most = 1;
    PQconninfoOption *info = PQconninfoParse(pg->url, NULL);
    for (PQconninfoOption *option = info; option && option->keyword; option++) {
        if (!option->val || (strcmp(option->keyword, "host") != 0 && strcmp(option->keyword, "hostaddr") != 0))
            continue;
        unsigned hosts = 1;
        for (const char *p = option->val; *p; p++)
            hosts += *p == ',';
        most = hosts > most ? hosts : most;
    }
    PQconninfoFree(info);
    return most;
}

#define PG_DEFAULTS 8 /* of the connection, the URL among them */
static const char *const host_lists[] = {"host", "hostaddr", "port"};
#define PG_HOST_LISTS (sizeof host_lists / sizeof *host_lists)

/* What the URL leaves open gets our defaults; the URL counts where both speak, but for the order of its hosts. */
static PGconn *open_connection(const struct pg *pg)
{
    char seconds[12], *lists[PG_HOST_LISTS] = {NULL};
    snprintf(seconds, sizeof seconds, "%d", PG_CONNECT_S);
    const char *names[PG_DEFAULTS + PG_HOST_LISTS + 1] = {
        "connect_timeout",  "keepalives_idle",           "keepalives_interval",  "keepalives_count",
        "tcp_user_timeout", "fallback_application_name", "target_session_attrs", "dbname"};
    const char *values[PG_DEFAULTS + PG_HOST_LISTS + 1] = {seconds, "5",     "2",          "3",
                                                           "10000", "onced", "read-write", pg->url};
    size_t count = PG_DEFAULTS, listed = 0;
    PQconninfoOption *info = pg->first_host ? PQconninfoParse(pg->url, NULL) : NULL;
    for (PQconninfoOption *option = info; option && option->keyword; option++) {
        for (size_t i = 0; option->val && i < PG_HOST_LISTS; i++) {
            if (strcmp(option->keyword, host_lists[i]) != 0 || !strchr(option->val, ','))
                continue;
            names[count] = host_lists[i];
            values[count++] = lists[listed++] = turned(option->val, pg->first_host);
        }
    }
    PGconn *conn = PQconnectdbParams(names, values, 1);
    PQconninfoFree(info);
    while (listed > 0)
        free(lists[--listed]);
    return conn;
}

static void name_it(struct pg *pg)
{
    const char *host = PQhost(pg->conn), *database = PQdb(pg->conn);
    if (database)
        snprintf(pg->name, sizeof pg->name, "database %.60s at %.40s:%.8s", database,
                 host && *host ? host : "localhost", PQport(pg->conn) ? PQport(pg->conn) : "");
}

/* The server's refusal as it came with the connection, which has no result to ask for a SQLSTATE. */
static enum err_code meaning_of_refusal(struct pg *pg, struct err *err)
{
    char words[256];
    const char *all = PQerrorMessage(pg->conn);
    all_hosts(all, words);
    pg->fault = PG_AWAY;
    if (strstr(all, "too many clients") || strstr(all, "too many connections") ||
        strstr(all, "remaining connection slots"))
        return err_set(err, ERR_UNAVAILABLE,
                       "PostgreSQL has no connection left (%s): raise its max_connections, or the role's limit", words);
    if (strstr(all, "starting up") || strstr(all, "not yet accepting") || strstr(all, "shutting down") ||
        strstr(all, "in recovery mode"))
        return err_set(err, ERR_UNAVAILABLE, "PostgreSQL is starting or stopping (%s): try again", words);
    if (strstr(all, "password") || strstr(all, "authentication") || strstr(all, "pg_hba.conf"))
        return err_set(err, ERR_DENIED,
                       "PostgreSQL does not let us in (%s): set user and password in the URL or a .pgpass file", words);
    if (strstr(all, "does not exist"))
        return err_set(err, ERR_INVALID, "%s: create it first (createdb, createuser)", words);
    if (strstr(all, "read-only") || strstr(all, "hot standby") || strstr(all, "not accept"))
        return err_set(err, ERR_UNAVAILABLE,
                       "%s: onced needs the primary: name all hosts in the URL, as in postgresql://host1,host2/name",
                       words);
    return err_set(err, ERR_UNAVAILABLE,
                   "PostgreSQL can not be reached (%s): is it running, are host and port right, has its "
                   "disk space left?",
                   words);
}

static enum err_code refused(struct pg *pg, struct err *err)
{
    meaning_of_refusal(pg, err);
    if (pg->last_words[0])
        err_prefix(err, "the server died (%s), mend that and start it if it does not by itself; ", pg->last_words);
    return err->code;
}

/* A commit that the server answers is on disk, and with the synchronous standby if there is one: whatever role,
 * database or URL say. What asks for more is left alone. */
static enum err_code insist_on_durability(struct pg *pg, struct err *err)
{
    PGresult *result = NULL;
    struct err own = {0};
    if (pg_exec_rows(pg,
                     "SELECT set_config('synchronous_commit', 'on', false) WHERE "
                     "current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')",
                     0, NULL, &result, &own) == 0)
        PQclear(result);
    else if (PQstatus(pg->conn) != CONNECTION_OK) /* an engine that has no such setting has nothing to relax */
        *err = own;
    return err->code;
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
        {"enable_seqscan", "off", false},  /* … which all walk an index, also while tables are small … */
        {"enable_hashjoin", "off", false}, /* … once for each row of a group */
        {"enable_mergejoin", "off", false},
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
    if (err->code == 0 && insist_on_durability(pg, err) == 0)
        pg->fault = PG_FINE;
    return err->code;
}

static enum err_code check_encoding(struct pg *pg, struct err *err)
{
    const char *encoding = PQparameterStatus(pg->conn, "server_encoding");
    if (encoding && strcmp(encoding, "UTF8") != 0)
        return err_set(err, ERR_INVALID, "%s has the encoding %s: create a database with ENCODING 'UTF8'", pg->name,
                       encoding);
    return pg_exec(pg, "SET client_encoding = 'UTF8'", err); /* PQsetClientEncoding would wait without end */
}

/* A pooler gives the session another server process when it likes: prepared statements, settings and the shared lock
 * would be somebody else's. It shows by the process id, which it makes up. */
static enum err_code check_server(struct pg *pg, struct err *err)
{
    int64_t process[2] = {0};
    bool found;
    int version = PQserverVersion(pg->conn);
    if (version < PG_SERVER_LEAST)
        return err_set(err, ERR_INVALID, "%s is run by PostgreSQL %d, onced needs %d or newer: upgrade the server",
                       pg->name, version / 10000, PG_SERVER_LEAST / 10000);
    if (check_encoding(pg, err) || read_number(pg, "SELECT pg_backend_pid()", 0, NULL, &found, process, err))
        return err->code;
    if (process[0] != PQbackendPID(pg->conn))
        return err_set(
            err, ERR_INVALID,
            "%s is behind a connection pooler (pgbouncer or the like): onced needs one session of the server "
            "itself, so give it the server's own host and port",
            pg->name);
    return ERR_NONE;
}

static void on_notice(void *user, const PGresult *result)
{
    struct pg *pg = user;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    pg->warned |= severity && strcmp(severity, "WARNING") == 0;
}

enum err_code pg_connect_bare(struct pg *pg, struct err *err)
{
    pg_disconnect(pg);
    pg->fault = PG_FINE;
    pg->conn = open_connection(pg);
    if (!pg->conn)
        mem_exhausted("libpq");
    if (PQstatus(pg->conn) != CONNECTION_OK) {
        refused(pg, err);
    } else {
        PQsetNoticeReceiver(pg->conn, on_notice, pg);
        name_it(pg);
        if (check_server(pg, err) == 0)
            settle_session(pg, err);
    }
    if (err->code)
        pg_disconnect(pg);
    return err->code;
}

/* ---- epochs and clocks ---- */

/* Raises the epoch of our row, which waits for the end of whatever the connection before has left running, and shuts
 * that one out if it has not begun to write. Only then the row says whether its last batch was committed. */
static enum err_code take_epoch(struct pg *pg, bool *committed, struct err *err)
{
    const char *const values[] = {pg->gateway};
    int64_t row[2] = {0};
    bool found;
    *committed = pg->warned = false;
    if (read_number(pg,
                    "INSERT INTO gateways AS g (id, epoch, batch, seen_ms) VALUES ($1, 1, 0, "
                    "(extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT (id) DO UPDATE SET "
                    "epoch = g.epoch + 1, seen_ms = excluded.seen_ms RETURNING epoch, batch",
                    1, values, &found, row, err))
        return err->code;
    if (pg->warned) {
        pg->fault = PG_AWAY;
        return err_set(err, ERR_UNAVAILABLE, "%s: the standby's word for a commit was not waited for", pg->name);
    }
    if (pg->epoch == 0) /* a row that is there under our random id: its numbers go on, so that none means two things */
        pg->batch = row[1];
    else
        *committed = row[1] == pg->batch;
    pg->epoch = row[0];
    return ERR_NONE;
}

enum err_code pg_which_server(struct pg *pg, struct pg_server *server, struct err *err)
{
    int64_t numbers[2] = {0};
    bool found;
    struct err own = {0};
    if (read_number(pg,
                    "SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, "
                    "8))::bit(32)::bigint FROM pg_control_system()",
                    0, NULL, &found, numbers, &own)) {
        if (PQstatus(pg->conn) != CONNECTION_OK)
            return err_set(err, own.code, "%s", own.text);
        pg->fault = PG_FINE;
    }
    *server = (struct pg_server){numbers[0], numbers[1]};
    return ERR_NONE;
}

/* A server on an older timeline than was seen is a former primary that came back: what it has is not the ledger any
 * more. */
static enum err_code check_timeline(struct pg *pg, struct err *err)
{
    struct pg_server server;
    if (pg_which_server(pg, &server, err))
        return err->code;
    if (server.timeline == 0)
        return ERR_NONE;
    if (server.timeline < pg->server.timeline)
        return err_set(
            err, ERR_UNAVAILABLE,
            "%s is a former primary that came back (timeline %lld, the ledger has gone on on %lld): make it a "
            "standby, or take it out of the URL",
            pg->name, (long long)server.timeline, (long long)pg->server.timeline);
    pg->server = server;
    return ERR_NONE;
}

/* As long as what was seen allows for clocks that agree, they are taken to agree: what is stored stays what was
 * written. */
void pg_compare_clocks(struct pg *pg, int64_t before_ms, int64_t after_ms, int64_t there_ms)
{
    int64_t least = there_ms - after_ms - PG_CLOCK_SLACK_MS, most = there_ms - before_ms + PG_CLOCK_SLACK_MS;
    if (least <= 0 && 0 <= most)
        pg->offset_ms = 0;
    else if (pg->clock)
        env_shared_adjust(pg->clock, least + (most - least) / 2);
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

static enum err_code learn_news(struct pg *pg, struct err *err)
{
    pg->mute = !pg_news_known(pg);
    return pg->fault ? pg_failed(pg, NULL, err) : ERR_NONE;
}

enum err_code pg_connect(struct pg *pg, bool *committed, struct err *err)
{
    if (pg_connect_bare(pg, err))
        return err->code;
    if (pg_check_version(pg, err) == 0 && pg_share(pg, err) == 0 && check_timeline(pg, err) == 0 &&
        pg_groups_learn(pg, err) == 0 && take_epoch(pg, committed, err) == 0 && compare_clocks(pg, err) == 0 &&
        learn_news(pg, err) == 0 && (PQsetnonblocking(pg->conn, 1) != 0 || !PQenterPipelineMode(pg->conn)))
        pg_failed(pg, NULL, err);
    if (err->code) { /* it lets us in and does not work: next time the host behind it comes first */
        pg->first_host++;
        pg_disconnect(pg);
    } else {
        pg->last_words[0] = '\0';
    }
    return err->code;
}
