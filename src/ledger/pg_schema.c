/* Schema: numbered steps, forward only, all of them in one transaction under an advisory lock. */
#include "ledger/pg_store.h"

#include <stdio.h>
#include <stdlib.h>

static const char version_1[] =
#include "schema_pg_v1.h"
    ;
static const char version_2[] =
#include "schema_pg_v2.h"
    ;

/* Step i brings the tables from version i to i + 1. */
static const char *const steps[PG_SCHEMA_VERSION] = {version_1, version_2};

/* Whoever migrates holds it; the number is only ours. */
#define MIGRATION_LOCK "7957134081023301"

static enum err_code read_text(struct pg *pg, const char *sql, struct arena *arena, const char **out, struct err *err)
{
    PGresult *result = NULL;
    *out = NULL;
    if (pg_exec_rows(pg, sql, 0, NULL, &result, err))
        return err->code;
    if (PQntuples(result) > 0 && !PQgetisnull(result, 0, 0))
        *out = arena_copy_text(arena, PQgetvalue(result, 0, 0));
    PQclear(result);
    return ERR_NONE;
}

enum err_code pg_version(struct pg *pg, int *version, struct err *err)
{
    const char *text;
    *version = 0;
    if (read_text(pg, "SELECT to_regclass('migrations')::text", &pg->scratch, &text, err) || !text)
        return err->code;
    if (read_text(pg, "SELECT max(version)::text FROM migrations", &pg->scratch, &text, err))
        return err->code;
    *version = text ? (int)strtol(text, NULL, 10) : 0;
    return ERR_NONE;
}

static enum err_code read_version(struct pg *pg, int *version, struct err *err)
{
    if (pg_version(pg, version, err) == 0 && *version > PG_SCHEMA_VERSION)
        return err_set(
            err, ERR_INVALID,
            "%s has schema version %d, this onced knows versions up to %d: run the newer onced that wrote it", pg->name,
            *version, PG_SCHEMA_VERSION);
    return err->code;
}

enum err_code pg_check_version(struct pg *pg, struct err *err)
{
    int version;
    if (read_version(pg, &version, err) == 0 && version < PG_SCHEMA_VERSION)
        err_set(err, ERR_UNAVAILABLE, "%s has lost its tables, or has not got all of them yet", pg->name);
    return err->code;
}

static enum err_code run_step(struct pg *pg, int version, struct err *err)
{
    char note[160];
    char *sql = pg_expand(steps[version], 0);
    snprintf(note, sizeof note,
             "INSERT INTO migrations VALUES (%d, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, '%s')",
             version + 1, ONCED_VERSION);
    /* Gateways that run find their epoch raised: they connect anew, and an older program refuses what it finds. */
    if (pg_exec(pg, sql, err) == 0 && pg_exec(pg, note, err) == 0)
        pg_exec(pg, "UPDATE gateways SET epoch = epoch + 1", err);
    free(sql);
    return err->code;
}

static enum err_code make_secret(struct pg *pg, struct err *err)
{
    unsigned char secret[LEDGER_SECRET_BYTES];
    char sql[256], hex[2 * LEDGER_SECRET_BYTES + 1];
    pg->env->random(pg->env, secret, sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++)
        snprintf(hex + 2 * i, 3, "%02x", secret[i]);
    snprintf(sql, sizeof sql, "INSERT INTO meta (name, value) VALUES ('secret', decode('%s', 'hex'))", hex);
    return pg_exec(pg, sql, err);
}

static enum err_code migrate_locked(struct pg *pg, struct err *err)
{
    int version;
    const char *schema;
    if (pg_exec(pg,
                "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; "
                "SELECT pg_advisory_xact_lock(" MIGRATION_LOCK ")",
                err) ||
        read_version(pg, &version, err)) /* again: another process may have been quicker */
        return err->code;
    if (read_text(pg, "SELECT current_schema()", &pg->scratch, &schema, err) ||
        (!schema && pg_exec(pg, "CREATE SCHEMA " PG_SCHEMA, err)))
        return err->code;
    if (version == 0 && pg_exec(pg,
                                "CREATE TABLE migrations (version integer PRIMARY KEY, applied_ms bigint NOT NULL, "
                                "program text NOT NULL)",
                                err))
        return err->code;
    for (int i = version; i < PG_SCHEMA_VERSION; i++)
        if (run_step(pg, i, err))
            return err->code;
    return version == 0 ? make_secret(pg, err) : ERR_NONE;
}

enum err_code pg_secret(struct pg *pg, unsigned char secret[LEDGER_SECRET_BYTES], struct err *err)
{
    const char *hex;
    if (read_text(pg, "SELECT encode(value, 'hex') FROM meta WHERE name = 'secret'", &pg->scratch, &hex, err))
        return err->code;
    if (!hex || strlen(hex) != 2 * LEDGER_SECRET_BYTES)
        return err_set(err, ERR_CORRUPT, "%s has lost its secret (table meta): restore the newest backup", pg->name);
    for (size_t i = 0; i < LEDGER_SECRET_BYTES; i++) {
        const char byte[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        secret[i] = (unsigned char)strtoul(byte, NULL, 16);
    }
    return ERR_NONE;
}

/* Of processes that have written nothing for a week nobody asks any more; what they counted goes into one row. Whose
 * row is gone although it lives takes a new one when it writes again. */
static enum err_code forget_gateways(struct pg *pg, struct err *err)
{
    return pg_exec(
        pg,
        "WITH gone AS (DELETE FROM gateways WHERE seen_ms < (extract(epoch FROM clock_timestamp()) * 1000)::bigint "
        "- 7 * 86400000::bigint RETURNING id), "
        "counted AS (DELETE FROM counters WHERE gateway IN (SELECT id FROM gone) RETURNING state, operations), "
        "told AS (DELETE FROM inbox_counts WHERE gateway IN (SELECT id FROM gone) "
        "RETURNING source, events, duplicates, applied, ignored, dropped), "
        "kept AS (INSERT INTO counters (gateway, state, operations) SELECT '', state, sum(operations) FROM counted "
        "GROUP BY state ON CONFLICT (gateway, state) DO UPDATE SET "
        "operations = counters.operations + excluded.operations) "
        "INSERT INTO inbox_counts (gateway, source, events, duplicates, applied, ignored, dropped) SELECT '', source, "
        "sum(events), sum(duplicates), sum(applied), sum(ignored), sum(dropped) FROM told GROUP BY source "
        "ON CONFLICT (gateway, source) DO UPDATE SET events = inbox_counts.events + excluded.events, "
        "duplicates = inbox_counts.duplicates + excluded.duplicates, applied = inbox_counts.applied + "
        "excluded.applied, "
        "ignored = inbox_counts.ignored + excluded.ignored, dropped = inbox_counts.dropped + excluded.dropped",
        err);
}

enum err_code pg_migrate(struct pg *pg, unsigned char secret[LEDGER_SECRET_BYTES], struct err *err)
{
    int version;
    bool patient = pg->patient;
    if (read_version(pg, &version, err))
        goto out;
    if (version < PG_SCHEMA_VERSION) {
        pg->patient = true;
        if (pg_exec(pg, "BEGIN", err) || migrate_locked(pg, err) || pg_exec(pg, "COMMIT", err))
            goto out;
    } else if (forget_gateways(pg, err)) {
        goto out;
    }
    pg_secret(pg, secret, err);
out:
    pg->patient = patient;
    arena_reset(&pg->scratch);
    return err->code;
}
