/* The texts of all statements. {…} stands for lists of columns (pg_rows.c), so that a new column is one line there:
 *
 *   {head}, {row}   of an operation, without and with its payload      {columns X P} of a record, with prefix P
 *   {define X}      the same with types, for tables                    {values X}    parameters for them
 *   {typed X P}     the same for the types of rows of parameters       {partitions X} tables by the tenant's hash
 *   {life P}        what a transition sets, from columns with prefix P; {typed life}: their types */
#include "ledger/pg_store.h"

#include "base/buf.h"

#include <assert.h>
#include <stdio.h>

/* What may hold other calls; as in the index operations_doubt, word for word. */
#define IN_DOUBT    "(state = 'unknown_outcome' OR (open = 1 AND (orphaned = 1 OR unknown_since_ms <> 0)))"
#define DUE         "(open = 1 OR wake_at_ms > 0)"
#define DATABASE_MS "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

/* A page of operations: of at most $2 rows the first $3 that fit. */
#define LIST(which, compare, order)                                                                                    \
    "SELECT {head}, CASE WHEN $10 = 1 THEN arguments END, CASE WHEN $10 = 1 THEN result END, "                         \
    "CASE WHEN $10 = 1 THEN error END FROM (SELECT * FROM operations WHERE id " compare " $1 AND " which               \
    " ORDER BY id " order " LIMIT $2) AS seen WHERE ($4::text IS NULL OR tenant = $4) "                                \
    "AND ($5::text IS NULL OR tool = $5) AND ($6::text IS NULL OR principal = $6) "                                    \
    "AND ($8::text IS NULL OR state = ANY ($8::text[])) AND ($9::text IS NULL OR reason = $9) AND ($11 = 0 OR claims " \
    "IS NOT NULL) "                                                                                                    \
    "ORDER BY id " order " LIMIT $3"
/* The last one of $2 rows and whether another one follows. */
#define LIST_END(which, compare, order)                                                                                \
    "SELECT id FROM operations WHERE id " compare " $1 AND " which " ORDER BY id " order " OFFSET $2 - 1 LIMIT 2"
#define ALL      "TRUE"
#define OF_RUN   "run = $7"
#define APPROVAL "open = 1 AND approval IS NOT NULL"

#define INBOX                                                                                                          \
    "id, source, event, type, status, outcome, match, value, external_id, operation, created_ms, received_ms, "        \
    "settled_ms, duplicates, duplicate_ms, retain_until_ms, result, forward, forward_tries, forward_at_ms, "           \
    "forward_until_ms, forward_detail"
/* A page of events, as LIST. */
#define INBOX_LIST(which)                                                                                              \
    "SELECT " INBOX " FROM (SELECT * FROM inbox WHERE id < $1 AND " which " ORDER BY id DESC LIMIT $2) AS seen "       \
    "WHERE ($4::text IS NULL OR source = $4) AND ($6::text IS NULL OR status = ANY ($6::text[])) "                     \
    "AND ($7::text IS NULL OR forward = ANY ($7::text[])) ORDER BY id DESC LIMIT $3"
#define INBOX_LIST_END(which) "SELECT id FROM inbox WHERE id < $1 AND " which " ORDER BY id DESC OFFSET $2 - 1 LIMIT 2"
#define ENTITY                "holder, held_ms, rev, attributes, override"
#define NAMED                 "SELECT id, tenant, tool, provider_key FROM operations WHERE "

struct text {
    int fixed; /* parameters that it names itself */
    const char *sql;
};

static const struct text texts[PG_STATEMENT_COUNT] = {
    [PG_BEGIN] = {0, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"},
    [PG_BEGIN_READ] = {0, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
    [PG_COMMIT] = {0, "COMMIT"},
    [PG_ROLLBACK] = {0, "ROLLBACK"},
    /* Divides by zero when another connection has raised the epoch. */
    [PG_FENCE] = {4, "WITH mine AS (UPDATE gateways SET batch = $2, seen_ms = " DATABASE_MS
                     " WHERE id = $1 AND epoch = $3 RETURNING 1), locks AS MATERIALIZED (SELECT "
                     "count(pg_advisory_xact_lock(k)) AS held FROM unnest($4::bigint[]) AS k) "
                     "SELECT 1 / (SELECT count(*) FROM mine) FROM locks WHERE held >= 0"},
    [PG_CLOCK] = {0, "SELECT " DATABASE_MS},
    [PG_PLACE] = {2, "SELECT i FROM generate_series(0, $2::integer - 1) AS i WHERE "
                     "satisfies_hash_partition('operations'::regclass, $2::integer, i, $1::text)"},
    [PG_COUNT] = {3, "INSERT INTO counters (gateway, state, operations) SELECT $1, s, n FROM "
                     "unnest($2::text[], $3::bigint[]) AS moved (s, n) ON CONFLICT (gateway, state) "
                     "DO UPDATE SET operations = counters.operations + excluded.operations"},

    [PG_OPERATION_BY_ID] = {1, "SELECT {row} FROM operations WHERE id = $1"},
    [PG_STATE] = {1, "SELECT state FROM operations WHERE id = $1"},
    [PG_OPERATION_OF] = {2, "SELECT {row} FROM operations WHERE tenant = $1 AND id = $2 FOR UPDATE"},
    [PG_OPERATION_BY_KEY] = {2, "SELECT {row} FROM operations WHERE tenant = $1 AND key_hash = $2 ORDER BY "
                                "(state IN ('failed_permanent', 'rejected', 'compensated') AND may_have_applied = 0), "
                                "key_version DESC LIMIT 1"}, /* admission_answers */
    [PG_REPEATS] = {3, "SELECT {head} FROM operations WHERE tenant = $1 AND repeat_hash = $2 "
                       "ORDER BY created_ms DESC, id DESC LIMIT $3"},
    [PG_REPEATS_OF_RUN] = {3, "SELECT {head} FROM operations WHERE tenant = $1 AND run = $2 ORDER BY id DESC LIMIT $3"},
    [PG_IN_DOUBT] = {4, "SELECT {head} FROM operations WHERE tenant = $1 AND tool = $2 AND principal = $3 AND " IN_DOUBT
                        " ORDER BY id LIMIT $4"},
    [PG_LIFE] = {2, "SELECT state, rev, owner FROM operations WHERE tenant = $1 AND id = $2 FOR UPDATE"},
    [PG_BEGINNING] = {1, "SELECT tenant, admitted_state, admitted_reason, principal, created_ms, first_attempt "
                         "FROM operations WHERE id = $1"},
    [PG_DUE] = {4, "SELECT {row} FROM operations WHERE open = $1 AND wake_at_ms > 0 AND wake_at_ms <= $2 AND " DUE
                   " AND (owner IS NULL OR owner = $3 OR lease_until_ms <= $2) ORDER BY wake_at_ms, id LIMIT $4 "
                   "FOR UPDATE SKIP LOCKED"},
    [PG_HELD] = {3, "SELECT min(lease_until_ms) FROM operations WHERE open = $1 AND wake_at_ms > 0 "
                    "AND wake_at_ms <= $2 AND " DUE " AND owner <> $3 AND lease_until_ms > $2"},
    [PG_FOREIGN] = {2, "SELECT {row} FROM operations WHERE open = 1 AND " DUE " AND owner <> $1 AND owner NOT LIKE "
                       "'" OPERATION_EXECUTOR_PREFIX "%' ORDER BY wake_at_ms, id LIMIT $2 FOR UPDATE SKIP LOCKED"},
    [PG_NEXT_WAKE] = {2, "SELECT wake_at_ms FROM operations WHERE open = $1 AND wake_at_ms > $2 AND " DUE
                         " ORDER BY wake_at_ms LIMIT 1"},
    [PG_LIST_DOWN] = {11, LIST(ALL, "<", "DESC")},
    [PG_LIST_UP] = {11, LIST(ALL, ">", "ASC")},
    [PG_LIST_RUN_DOWN] = {11, LIST(OF_RUN, "<", "DESC")},
    [PG_LIST_RUN_UP] = {11, LIST(OF_RUN, ">", "ASC")},
    [PG_LIST_DOUBT_DOWN] = {11, LIST(IN_DOUBT, "<", "DESC")},
    [PG_LIST_DOUBT_UP] = {11, LIST(IN_DOUBT, ">", "ASC")},
    [PG_LIST_APPROVAL_DOWN] = {11, LIST(APPROVAL, "<", "DESC")},
    [PG_LIST_APPROVAL_UP] = {11, LIST(APPROVAL, ">", "ASC")},
    [PG_LIST_END_DOWN] = {7, LIST_END(ALL, "<", "DESC")},
    [PG_LIST_END_UP] = {7, LIST_END(ALL, ">", "ASC")},
    [PG_LIST_END_RUN_DOWN] = {7, LIST_END(OF_RUN, "<", "DESC")},
    [PG_LIST_END_RUN_UP] = {7, LIST_END(OF_RUN, ">", "ASC")},
    [PG_LIST_END_DOUBT_DOWN] = {7, LIST_END(IN_DOUBT, "<", "DESC")},
    [PG_LIST_END_DOUBT_UP] = {7, LIST_END(IN_DOUBT, ">", "ASC")},
    [PG_LIST_END_APPROVAL_DOWN] = {7, LIST_END(APPROVAL, "<", "DESC")},
    [PG_LIST_END_APPROVAL_UP] = {7, LIST_END(APPROVAL, ">", "ASC")},

    [PG_INSERT_OPERATION] = {5, "INSERT INTO operations (open, repeat_hash, admitted_state, admitted_reason, "
                                "first_attempt, {columns operation}) VALUES ($1, $2, $3, $4, $5, {values operation}) "
                                "ON CONFLICT (tenant, key_hash, key_version) DO NOTHING"},
    /* Admissions that decide on the assumption that nothing is known; this makes sure of it, or inserts nothing. The
     * subqueries are of a form that is never made a join or a table of all rows. */
    [PG_ADMIT] = {1,
                  "INSERT INTO operations (open, repeat_hash, admitted_state, admitted_reason, first_attempt, "
                  "{columns operation}) SELECT n.open, n.repeat_hash, n.admitted_state, n.admitted_reason, "
                  "n.first_attempt, {columns operation n.} FROM unnest($1::admission_row[]) AS n "
                  "WHERE (SELECT 1 FROM operations WHERE tenant = n.tenant AND key_hash = n.key_hash LIMIT 1) IS NULL "
                  "AND (SELECT 1 FROM tombstones WHERE tenant = n.tenant AND key_hash = n.key_hash LIMIT 1) IS NULL "
                  "AND (n.unless_repeated = 0 OR (SELECT 1 FROM operations WHERE tenant = n.tenant "
                  "AND repeat_hash = n.repeat_hash LIMIT 1) IS NULL) "
                  "AND (n.unless_in_doubt = 0 OR (SELECT 1 FROM operations WHERE tenant = n.tenant "
                  "AND tool = n.tool AND principal = n.principal AND " IN_DOUBT " LIMIT 1) IS NULL) "
                  "ON CONFLICT (tenant, key_hash, key_version) DO NOTHING RETURNING id"},
    [PG_MOVE] = {1, "WITH moved AS (UPDATE operations AS o SET {life n.} FROM unnest($1::move_row[]) AS n "
                    "WHERE o.tenant = n.tenant AND o.id = n.id AND o.rev = n.rev - 1 "
                    "AND (n.fence IS NULL OR o.owner = n.fence) AND (n.unheld = 0 OR o.owner IS NULL) "
                    "RETURNING o.watched, n.tenant, n.id, n.sequence, {columns event n.e_}, {columns attempt n.a_}), "
                    "noted AS (INSERT INTO history (tenant, operation, sequence, {columns event}, {columns attempt}) "
                    "SELECT tenant, id, sequence, {columns event e_}, {columns attempt a_} FROM moved "
                    "WHERE sequence IS NOT NULL) SELECT id, watched::bigint FROM moved"},
    [PG_MARK] = {1,
                 "UPDATE operations AS o SET delivered = greatest(o.delivered, n.delivered), "
                 "orphaned = CASE WHEN n.not_orphaned = 1 THEN 0 ELSE greatest(o.orphaned, n.orphaned) END "
                 "FROM unnest($1::mark_row[]) AS n WHERE o.id = n.id AND (o.delivered < n.delivered OR o.orphaned <> "
                 "CASE WHEN n.not_orphaned = 1 THEN 0 ELSE greatest(o.orphaned, n.orphaned) END)"},
    [PG_CLAIM] = {5, "UPDATE operations SET owner = $3, lease_until_ms = $4, wake_at_ms = $5 "
                     "WHERE tenant = $1 AND id = $2"},
    [PG_RELEASE] = {2, "UPDATE operations SET owner = NULL, lease_until_ms = 0, wake_at_ms = $2 WHERE open = 1 "
                       "AND owner = $1 AND state <> 'dispatched'"},
    [PG_WATCH] = {2, "UPDATE operations SET watched = 1 WHERE tenant = $1 AND id = $2 AND watched = 0"},
    [PG_NOTIFY] = {1, "SELECT pg_notify('" PG_NEWS_CHANNEL "', $1)"},
    [PG_DELETE_HISTORY] = {2, "DELETE FROM history WHERE tenant = $1 AND operation = $2"},
    [PG_DELETE_OPERATION] = {2, "DELETE FROM operations WHERE tenant = $1 AND id = $2"},

    [PG_INSERT_HISTORY] = {3, "INSERT INTO history (tenant, operation, sequence, {columns event}, {columns attempt}) "
                              "VALUES ($1, $2, $3, {values event}, {values attempt})"},
    [PG_ATTEMPTS] = {3, "SELECT {columns attempt} FROM history WHERE tenant = $1 AND operation = $2 "
                        "AND attempt_id IS NOT NULL ORDER BY sequence DESC LIMIT $3"},
    [PG_EVENTS] = {3, "SELECT {columns event} FROM history WHERE tenant = $1 AND operation = $2 AND cause IS NOT NULL "
                      "ORDER BY sequence DESC LIMIT $3"},
    [PG_INSERT_INCIDENT] = {0, "INSERT INTO incidents ({columns incident}) VALUES ({values incident})"},
    [PG_INCIDENT] = {1, "SELECT {columns incident} FROM incidents WHERE id = $1 FOR UPDATE"},
    [PG_INCIDENTS_OF] = {2, "SELECT {columns incident} FROM incidents WHERE operation = $1 ORDER BY id LIMIT $2"},
    [PG_INCIDENTS] = {4, "SELECT {columns incident} FROM incidents WHERE id < $1 AND ($3::text IS NULL OR tenant = $3) "
                         "AND ($4 = 0 OR acknowledged_ms = 0) ORDER BY id DESC LIMIT $2"},
    [PG_ACKNOWLEDGE] = {3, "UPDATE incidents SET acknowledged_by = $2, acknowledged_ms = $3 WHERE id = $1"},
    [PG_INSERT_TOMBSTONE] = {0, "INSERT INTO tombstones ({columns tombstone}) VALUES ({values tombstone})"},
    [PG_TOMBSTONE_BY_ID] = {1, "SELECT {columns tombstone} FROM tombstones WHERE operation = $1"},
    [PG_TOMBSTONE_BY_KEY] = {2, "SELECT {columns tombstone} FROM tombstones WHERE tenant = $1 AND key_hash = $2 "
                                "ORDER BY (state IN ('failed_permanent', 'rejected')), key_version DESC LIMIT 1"},
    [PG_INSERT_TOKEN] = {0, "INSERT INTO principals ({columns token}) VALUES ({values token})"},
    [PG_TOKEN_BY_ID] = {1, "SELECT {columns token} FROM principals WHERE id = $1 FOR UPDATE"},
    [PG_TOKEN_BY_HASH] = {1, "SELECT {columns token} FROM principals WHERE secret_hash = $1"},
    [PG_TOKENS] = {1, "SELECT {columns token} FROM principals ORDER BY id LIMIT $1"},
    [PG_REVOKE_TOKEN] = {2, "UPDATE principals SET revoked_ms = $2 WHERE id = $1"},

    [PG_INSERT_INBOUND] = {23, "INSERT INTO inbox (" INBOX ", body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
                               "$11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23) "
                               "ON CONFLICT (source, event) DO NOTHING"},
    [PG_INBOX_BY_EVENT] = {2, "SELECT " INBOX ", body FROM inbox WHERE source = $1 AND event = $2 FOR UPDATE"},
    [PG_INBOX_BY_ID] = {1, "SELECT " INBOX ", body FROM inbox WHERE id = $1"},
    [PG_INBOX_AGAIN] = {2, "UPDATE inbox SET duplicates = duplicates + 1, duplicate_ms = $2 WHERE id = $1"},
    [PG_INBOX_COUNT] = {7, "INSERT INTO inbox_counts (gateway, source, events, duplicates, applied, ignored, dropped) "
                           "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (gateway, source) DO UPDATE SET "
                           "events = inbox_counts.events + $3, duplicates = inbox_counts.duplicates + $4, "
                           "applied = inbox_counts.applied + $5, ignored = inbox_counts.ignored + $6, "
                           "dropped = inbox_counts.dropped + $7"},
    [PG_INBOX_COUNTS] = {0, "SELECT source, sum(events)::bigint, sum(duplicates)::bigint, sum(applied)::bigint, "
                            "sum(ignored)::bigint, sum(dropped)::bigint FROM inbox_counts GROUP BY source "
                            "ORDER BY source"},
    [PG_INBOX_STANDING] = {2, "SELECT created_ms, outcome FROM inbox WHERE operation = $1 AND source = $2"},
    [PG_INBOX_WAITING_FOR] = {3, "SELECT " INBOX " FROM inbox WHERE status = 'waiting' AND value = $1 AND match = $2 "
                                 "ORDER BY id LIMIT $3"},
    [PG_INBOX_WAITING] = {2, "SELECT " INBOX " FROM inbox WHERE status = 'waiting' AND id > $1 ORDER BY id LIMIT $2"},
    [PG_INBOX_LIST] = {7, INBOX_LIST(ALL)},
    [PG_INBOX_LIST_WAITING] = {7, INBOX_LIST("status = 'waiting'")},
    [PG_INBOX_LIST_UNDELIVERED] = {7, INBOX_LIST("forward = 'undelivered'")},
    [PG_INBOX_LIST_OF] = {7, INBOX_LIST("operation = $5")},
    [PG_INBOX_LIST_END] = {5, INBOX_LIST_END(ALL)},
    [PG_INBOX_LIST_END_WAITING] = {5, INBOX_LIST_END("status = 'waiting'")},
    [PG_INBOX_LIST_END_UNDELIVERED] = {5, INBOX_LIST_END("forward = 'undelivered'")},
    [PG_INBOX_LIST_END_OF] = {5, INBOX_LIST_END("operation = $5")},
    [PG_FORWARD_DUE] = {2, "SELECT " INBOX ", CASE WHEN forward_at_ms <= $2 THEN body END FROM inbox "
                           "WHERE forward = 'due' ORDER BY forward_at_ms, id LIMIT $1"},
    [PG_FORWARD_MOVE] = {8, "UPDATE inbox SET forward = $4, forward_tries = $5, forward_at_ms = $6, "
                            "forward_until_ms = $7, forward_detail = $8 WHERE id = $1 AND forward = $2 "
                            "AND forward_tries = $3"},
    [PG_INBOX_OVER] = {2, "DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE retain_until_ms <= $1 "
                          "ORDER BY retain_until_ms LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING source, status"},
    [PG_INBOX_NEXT] = {0, "SELECT min(retain_until_ms) FROM inbox"},
    [PG_INBOX_STATUS] = {1, "SELECT status, source FROM inbox WHERE id = $1 FOR UPDATE"},
    [PG_INBOX_APPLY] = {3, "UPDATE inbox SET status = 'applied', operation = $2, settled_ms = $3 WHERE id = $1"},
    [PG_NAMED_BY_ID] = {1, NAMED "id = $1"},
    [PG_NAMED_BY_PROVIDER_KEY] = {2, NAMED "provider_key = $1 AND provider_key <> id ORDER BY id LIMIT $2"},
    [PG_NAMED_BY_EXTERNAL_ID] = {2, NAMED "external_id = $1 ORDER BY id LIMIT $2"},

    [PG_ENTITY] = {3, "SELECT " ENTITY " FROM entities WHERE tenant = $1 AND type = $2 AND id = $3"},
    [PG_SET_ENTITY] = {8, "INSERT INTO entities (tenant, type, id, " ENTITY ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) "
                          "ON CONFLICT (tenant, type, id) DO UPDATE SET holder = $4, held_ms = $5, rev = $6, "
                          "attributes = $7, override = $8"},
    [PG_DELETE_ENTITY] = {3, "DELETE FROM entities WHERE tenant = $1 AND type = $2 AND id = $3"},
    [PG_ENTITIES] = {6,
                     "SELECT type, id, " ENTITY ", (SELECT count(*) FROM entity_waits AS w WHERE w.tenant = e.tenant "
                     "AND w.type = e.type AND w.id = e.id) FROM entities AS e WHERE tenant = $1 AND ($6 = 1 OR holder "
                     "IS NOT NULL) AND ($2::text IS NULL OR type = $2) AND (type, id) > ($3, $4) "
                     "ORDER BY type, id LIMIT $5"},
    [PG_WAITING] = {4, "SELECT operation FROM entity_waits WHERE tenant = $1 AND type = $2 AND id = $3 "
                       "ORDER BY ticket LIMIT $4"},
    [PG_WAIT_LAST] = {1, "SELECT max(ticket) FROM entity_waits WHERE tenant = $1"},
    [PG_WAIT_ADD] = {5, "INSERT INTO entity_waits (tenant, type, id, operation, ticket) VALUES ($1, $2, $3, $4, $5)"},
    [PG_WAITS_OF] = {1, "SELECT type, id FROM entity_waits WHERE operation = $1 ORDER BY type, id"},
    [PG_WAIT_REMOVE] = {1, "DELETE FROM entity_waits WHERE operation = $1"},
    [PG_WAKE] = {3, "UPDATE operations SET wake_at_ms = $3 WHERE tenant = $1 AND id = $2 AND owner IS NULL"},
    [PG_WINDOW] = {3, "SELECT operation, at_ms, until_ms FROM windows WHERE tenant = $1 AND key = $2 AND until_ms > $3 "
                      "ORDER BY at_ms DESC, operation DESC LIMIT 1"},
    [PG_SET_WINDOW] = {5, "INSERT INTO windows (tenant, key, operation, at_ms, until_ms) VALUES ($1, $2, $3, $4, $5) "
                          "ON CONFLICT (tenant, key, operation) DO UPDATE SET at_ms = $4, until_ms = $5"},
    [PG_DROP_WINDOW] = {3, "DELETE FROM windows WHERE tenant = $1 AND key = $2 AND operation = $3"},
    [PG_SLICES] = {5, "SELECT start_ms, until_ms, amount FROM budget_slices WHERE tenant = $1 AND budget = $2 "
                      "AND subject = $3 AND key = $4 AND until_ms > $5 ORDER BY until_ms, start_ms"},
    [PG_SET_SLICE] = {8,
                      "INSERT INTO budget_slices (tenant, budget, subject, key, start_ms, until_ms, amount, over_ms) "
                      "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, budget, subject, key, start_ms, "
                      "until_ms) DO UPDATE SET amount = $7, over_ms = $8"},
    [PG_DELETE_SLICE] = {6, "DELETE FROM budget_slices WHERE tenant = $1 AND budget = $2 AND subject = $3 AND key = $4 "
                            "AND start_ms = $5 AND until_ms = $6"},
    [PG_ALL_SLICES] = {2,
                       "SELECT budget, subject, key, start_ms, until_ms, amount FROM budget_slices WHERE tenant = $1 "
                       "ORDER BY budget, subject, key, until_ms LIMIT $2"},
    [PG_PRUNE_WINDOWS] = {1, "DELETE FROM windows WHERE (tenant, key, operation) IN (SELECT tenant, key, operation "
                             "FROM windows WHERE until_ms < $1 ORDER BY until_ms LIMIT 4 FOR UPDATE SKIP LOCKED)"},
    [PG_PRUNE_SLICES] = {1, "DELETE FROM budget_slices WHERE (tenant, budget, subject, key, start_ms, until_ms) IN "
                            "(SELECT tenant, budget, subject, key, start_ms, until_ms FROM budget_slices "
                            "WHERE over_ms < $1 ORDER BY over_ms LIMIT 4 FOR UPDATE SKIP LOCKED)"},
    [PG_COUNTERS] = {0, "SELECT state, sum(operations)::bigint FROM counters GROUP BY state"},
    [PG_OLDEST_UNKNOWN] = {0,
                           "SELECT min(unknown_since_ms) FROM operations WHERE " IN_DOUBT " AND unknown_since_ms > 0"},
    [PG_OPEN_INCIDENTS] = {0, "SELECT count(*) FROM incidents WHERE acknowledged_ms = 0"},
    [PG_APPROVALS_WAITING] = {0, "SELECT count(*), min(created_ms) FROM operations WHERE " APPROVAL
                                 " AND reason = 'awaiting_approval'"},
    [PG_CLAIMS_COUNT] = {0, "SELECT (SELECT count(*) FROM entities WHERE holder IS NOT NULL), "
                            "(SELECT count(*) FROM entity_waits)"},
    [PG_BYTES] = {0, "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c "
                     "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() "
                     "AND c.relkind = 'r'"},
};

/* ---- lists of columns ---- */

struct expansion {
    struct buf out;
    int next; /* parameter */
};

static const struct columns *record_named(struct str name)
{
    for (size_t i = 0; i < PG_RECORDS; i++)
        if (str_is(name, pg_columns[i].name))
            return &pg_columns[i];
    assert(!"a record of this name");
    return NULL;
}

static void comma(struct expansion *to, const char **separator)
{
    buf_add_text(&to->out, *separator);
    *separator = ", ";
}

static void add_names(struct expansion *to, const struct columns *columns, int without, struct str prefix)
{
    const char *separator = "";
    for (size_t i = 0; i < columns->count; i++) {
        if (columns->list[i].flags & without)
            continue;
        comma(to, &separator);
        buf_add_str(&to->out, prefix);
        buf_add_text(&to->out, columns->list[i].name);
    }
}

static void add_values(struct expansion *to, const struct columns *columns)
{
    const char *separator = "";
    for (size_t i = 0; i < columns->count; i++) {
        comma(to, &separator);
        buf_printf(&to->out, "$%d", to->next++);
    }
}

static const char *type_of(enum column_kind kind)
{
    switch (kind) {
    case COLUMN_ID:
    case COLUMN_TEXT:
    case COLUMN_STR:
    case COLUMN_NAME: return "text COLLATE \"C\"";
    case COLUMN_BYTES:
    case COLUMN_DIGEST:
    case COLUMN_BASE_HASH: return "bytea";
    case COLUMN_INT64:
    case COLUMN_MOMENT: return "bigint";
    case COLUMN_INT: return "integer";
    case COLUMN_BOOL: return "smallint";
    }
    return "";
}

static void add_definitions(struct expansion *to, const struct columns *columns)
{
    const char *separator = "";
    for (size_t i = 0; i < columns->count; i++) {
        const struct column *column = &columns->list[i];
        comma(to, &separator);
        buf_printf(&to->out, "%s %s%s", column->name, type_of(column->kind),
                   column->flags & COLUMN_REQUIRED ? " NOT NULL" : "");
    }
}

/* As parameters come: numbers are all of one type. */
static const char *parameter_type_of(enum column_kind kind)
{
    bool number = kind == COLUMN_INT || kind == COLUMN_BOOL;
    return number ? type_of(COLUMN_INT64) : type_of(kind);
}

static void add_types(struct expansion *to, const struct columns *columns, int with, struct str prefix)
{
    const char *separator = "";
    for (size_t i = 0; i < columns->count; i++) {
        const struct column *column = &columns->list[i];
        if (with && !(column->flags & with))
            continue;
        comma(to, &separator);
        buf_printf(&to->out, "%.*s%s %s", (int)prefix.n, prefix.p, column->name, parameter_type_of(column->kind));
    }
}

/* What has ended is no longer orphaned; else a transition leaves that alone. */
static void add_life(struct expansion *to, struct str prefix)
{
    const struct columns *columns = &pg_columns[RECORD_OPERATION];
    int n = (int)prefix.n;
    buf_printf(&to->out, "open = %.*sopen, orphaned = CASE WHEN %.*sopen = 1 THEN orphaned ELSE 0 END", n, prefix.p, n,
               prefix.p);
    for (size_t i = 0; i < columns->count; i++) {
        const char *name = columns->list[i].name;
        if (columns->list[i].flags & COLUMN_LIFE)
            buf_printf(&to->out, ", %s = %.*s%s", name, n, prefix.p, name);
    }
}

static void add_partitions(struct expansion *to, struct str table)
{
    for (int i = 0; i < PG_PARTITIONS; i++)
        buf_printf(&to->out,
                   "CREATE TABLE %.*s_%d PARTITION OF %.*s FOR VALUES WITH (MODULUS %d, REMAINDER %d) "
                   "WITH (fillfactor = 85);\n",
                   (int)table.n, table.p, i, (int)table.n, table.p, PG_PARTITIONS, i);
}

/* Takes the first word off. */
static struct str next_word(struct str *rest)
{
    const char *space = rest->n ? memchr(rest->p, ' ', rest->n) : NULL;
    struct str word = {rest->p, space ? (size_t)(space - rest->p) : rest->n};
    *rest = space ? (struct str){space + 1, rest->n - word.n - 1} : STR_NONE;
    return word;
}

static void expand(struct expansion *to, struct str rest)
{
    const struct columns *operation = &pg_columns[RECORD_OPERATION];
    struct str verb = next_word(&rest);
    if (str_is(verb, "head")) {
        add_names(to, operation, COLUMN_PAYLOAD, STR_NONE);
    } else if (str_is(verb, "row")) {
        add_names(to, operation, 0, STR_NONE);
    } else if (str_is(verb, "life")) {
        add_life(to, rest);
    } else {
        struct str what = next_word(&rest);
        if (str_is(verb, "columns"))
            add_names(to, record_named(what), 0, rest);
        else if (str_is(verb, "values"))
            add_values(to, record_named(what));
        else if (str_is(verb, "define"))
            add_definitions(to, record_named(what));
        else if (str_is(verb, "typed") && str_is(what, "life"))
            buf_add_text(&to->out, "open bigint, "), add_types(to, operation, COLUMN_LIFE, rest);
        else if (str_is(verb, "typed"))
            add_types(to, record_named(what), 0, rest);
        else if (str_is(verb, "partitions"))
            add_partitions(to, what);
        else
            assert(!"a list of columns");
    }
}

char *pg_expand(const char *sql, int fixed)
{
    struct expansion to = {.next = fixed + 1};
    buf_init(&to.out, 0);
    for (const char *p = sql; *p;) {
        const char *open = strchr(p, '{'), *close = open ? strchr(open, '}') : NULL;
        if (!close) {
            buf_add_text(&to.out, p);
            break;
        }
        buf_add(&to.out, p, (size_t)(open - p));
        expand(&to, (struct str){open + 1, (size_t)(close - open - 1)});
        p = close + 1;
    }
    assert(to.next <= PG_PARAMS_MAX + 1);
    return buf_detach(&to.out, NULL);
}

/* The two tables by their whole names only: columns are named otherwise. */
char *pg_in_partition(const char *sql, int partition)
{
    struct buf out;
    buf_init(&out, 0);
    while (*sql) {
        size_t word = strspn(sql, "abcdefghijklmnopqrstuvwxyz_0123456789");
        size_t other = word ? 0 : strcspn(sql, "abcdefghijklmnopqrstuvwxyz");
        struct str piece = {sql, word + other};
        buf_add_str(&out, piece);
        if (str_is(piece, "operations") || str_is(piece, "history"))
            buf_printf(&out, "_%d", partition);
        sql += piece.n;
    }
    return buf_detach(&out, NULL);
}

void pg_statements_make(char *out[PG_STATEMENT_COUNT])
{
    for (int i = 0; i < PG_STATEMENT_COUNT; i++)
        out[i] = pg_expand(texts[i].sql ? texts[i].sql : "", texts[i].fixed);
}
