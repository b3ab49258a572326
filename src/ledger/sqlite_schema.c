/* Schema: numbered steps, forward only, each with all before it in one transaction; and the table `names`. */
#include "ledger/sqlite_store.h"

#include <stdio.h>

static const char version_1[] =
#include "schema_v1.h"
    ;

static const char version_2[] =
#include "schema_v2.h"
    ;

static const char version_3[] =
#include "schema_v3.h"
    ;

static const char version_4[] =
#include "schema_v4.h"
    ;

static const char version_5[] =
#include "schema_v5.h"
    ;

static const char version_6[] =
#include "schema_v6.h"
    ;

static const char version_7[] =
#include "schema_v7.h"
    ;

static const char version_8[] =
#include "schema_v8.h"
    ;

/* Step i brings a file from version i to i + 1. */
static const char *const steps[STORE_SCHEMA_VERSION] = {version_1, version_2, version_3, version_4,
                                                        version_5, version_6, version_7, version_8};

/* ---- names ---- */

/* Notes one row of `names`; texts that we do not know stay without a value. *next becomes a number that is free. */
static void note_name(struct store_names *names, enum name_kind kind, int number, const char *text, int *next)
{
    if (number < 0 || number >= NAME_VALUES_MAX)
        return;
    if (number >= *next)
        *next = number + 1;
    for (int value = 0; value < name_count(kind); value++) {
        if (strcmp(name_text(kind, value), text) == 0) {
            names->number[kind][value] = (signed char)number;
            names->value[kind][number] = (signed char)value;
        }
    }
}

static enum err_code add_names(struct store *store, enum name_kind kind, int next, struct err *err)
{
    sqlite3_stmt *insert = NULL;
    for (int value = 0; value < name_count(kind); value++) {
        if (store->names.number[kind][value] >= 0)
            continue;
        int rc = insert ? SQLITE_OK
                        : sqlite3_prepare_v2(store->db, "INSERT INTO names (kind, number, text) VALUES (?1, ?2, ?3)",
                                             -1, &insert, NULL);
        if (rc == SQLITE_OK && next < NAME_VALUES_MAX) {
            sqlite3_bind_text(insert, 1, name_kind_text(kind), -1, SQLITE_STATIC);
            sqlite3_bind_int(insert, 2, next);
            sqlite3_bind_text(insert, 3, name_text(kind, value), -1, SQLITE_STATIC);
            rc = sqlite3_step(insert) == SQLITE_DONE ? SQLITE_OK : sqlite3_extended_errcode(store->db);
            sqlite3_reset(insert);
        }
        if (rc != SQLITE_OK || next >= NAME_VALUES_MAX) {
            store_failed(store, rc == SQLITE_OK ? SQLITE_TOOBIG : rc, err);
            break;
        }
        store->names.number[kind][value] = (signed char)next;
        store->names.value[kind][next] = (signed char)value;
        next++;
    }
    sqlite3_finalize(insert);
    return err->code;
}

enum err_code store_names_load(struct store *store, bool may_add, struct err *err)
{
    memset(&store->names, -1, sizeof store->names);
    sqlite3_stmt *select = NULL;
    int next[NAME_KINDS] = {0};
    int rc = sqlite3_prepare_v2(store->db, "SELECT kind, number, text FROM names", -1, &select, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(select);
        if (rc != SQLITE_ROW)
            break;
        const char *kind_text = (const char *)sqlite3_column_text(select, 0);
        const char *text = (const char *)sqlite3_column_text(select, 2);
        if (!kind_text || !text) { /* never NULL in a file that we wrote */
            sqlite3_finalize(select);
            return store_failed(store, SQLITE_CORRUPT, err);
        }
        for (int kind = 0; kind < NAME_KINDS; kind++)
            if (strcmp(name_kind_text((enum name_kind)kind), kind_text) == 0)
                note_name(&store->names, (enum name_kind)kind, sqlite3_column_int(select, 1), text, &next[kind]);
    }
    sqlite3_finalize(select);
    if (rc != SQLITE_DONE)
        return store_failed(store, rc, err);
    for (int kind = 0; may_add && kind < NAME_KINDS; kind++)
        if (add_names(store, (enum name_kind)kind, next[kind], err))
            return err->code;
    return ERR_NONE;
}

static bool names_complete(const struct store_names *names)
{
    for (int kind = 0; kind < NAME_KINDS; kind++)
        for (int value = 0; value < name_count((enum name_kind)kind); value++)
            if (names->number[kind][value] < 0)
                return false;
    return true;
}

/* ---- versions ---- */

static enum err_code exec(struct store *store, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ERR_NONE : store_failed(store, rc, err);
}

static enum err_code read_int(struct store *store, const char *sql, int *out, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int(statement, 0);
    else
        store_failed(store, rc, err);
    sqlite3_finalize(statement);
    return err->code;
}

/* *version is 0 for a file with nothing in it. */
static enum err_code read_version(struct store *store, int *version, struct err *err)
{
    int application = 0, tables = 0;
    if (read_int(store, "PRAGMA application_id", &application, err) ||
        read_int(store, "PRAGMA user_version", version, err) ||
        read_int(store, "SELECT count(*) FROM sqlite_schema", &tables, err))
        return err->code;
    if (application != STORE_APPLICATION_ID && (application != 0 || tables > 0))
        return err_set(err, ERR_INVALID, "%s is the SQLite database of another program, not a onced ledger",
                       store->path);
    if (*version < 0)
        return store_failed(store, SQLITE_CORRUPT, err);
    if (*version > STORE_SCHEMA_VERSION)
        return err_set(
            err, ERR_INVALID,
            "%s has schema version %d, this onced knows versions up to %d: run the newer onced that wrote it",
            store->path, *version, STORE_SCHEMA_VERSION);
    return ERR_NONE;
}

static enum err_code write_meta(struct store *store, struct env *env, bool created, struct err *err)
{
    char text[512];
    unsigned char secret[LEDGER_SECRET_BYTES];
    char hex[2 * LEDGER_SECRET_BYTES + 1];
    env->random(env, secret, sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++)
        snprintf(hex + 2 * i, 3, "%02x", secret[i]);
    if (created) {
        snprintf(text, sizeof text,
                 "PRAGMA application_id = %d; INSERT INTO meta VALUES ('secret', x'%s'), ('created_ms', %lld)",
                 STORE_APPLICATION_ID, hex, (long long)env->now_ms(env));
        if (exec(store, text, err))
            return err->code;
    }
    snprintf(text, sizeof text, "PRAGMA user_version = %d; INSERT OR REPLACE INTO meta VALUES ('schema_version', %d)",
             STORE_SCHEMA_VERSION, STORE_SCHEMA_VERSION);
    return exec(store, text, err);
}

static enum err_code migrate_locked(struct store *store, struct env *env, struct err *err)
{
    int version = 0;
    if (read_version(store, &version, err)) /* again: another process may have been quicker */
        return err->code;
    bool created = version == 0;
    for (int i = version; i < STORE_SCHEMA_VERSION; i++)
        if (exec(store, steps[i], err))
            return err->code;
    if (store_names_load(store, true, err))
        return err->code;
    return version < STORE_SCHEMA_VERSION ? write_meta(store, env, created, err) : ERR_NONE;
}

enum err_code store_migrate(struct store *store, struct env *env, struct err *err)
{
    int version = 0;
    if (read_version(store, &version, err))
        return err->code;
    if (store->read_only && version < STORE_SCHEMA_VERSION)
        return err_set(err, ERR_INVALID,
                       "%s has schema version %d, this onced needs %d: start `onced serve` once to migrate it",
                       store->path, version, STORE_SCHEMA_VERSION);
    if (version == STORE_SCHEMA_VERSION && store_names_load(store, false, err))
        return err->code;
    if (store->read_only || (version == STORE_SCHEMA_VERSION && names_complete(&store->names)))
        return ERR_NONE;
    if (exec(store, "BEGIN IMMEDIATE", err))
        return err->code;
    if (migrate_locked(store, env, err) == 0)
        exec(store, "COMMIT", err);
    if (err->code)
        store_rollback(store);
    return err->code;
}
