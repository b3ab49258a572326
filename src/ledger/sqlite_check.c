/* Integrity checks: at once for small files, in the background for large ones. */
#include "ledger/queue.h"
#include "ledger/sqlite_store.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RESUME_S       60
#define PROGRESS_STEPS 2000 /* of SQLite's virtual machine between looks at the flags: well under a millisecond */

enum err_code store_check(sqlite3 *db, const char *name, const char *table, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    char *sql =
        table ? sqlite3_mprintf("PRAGMA integrity_check(%Q)", table) : sqlite3_mprintf("PRAGMA integrity_check(1)");
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    sqlite3_free(sql);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    const char *verdict = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    if (rc != SQLITE_ROW)
        store_describe(db, name, rc, NULL, err);
    else if (!verdict || strcmp(verdict, "ok") != 0)
        err_set(err, ERR_CORRUPT, "%s is damaged (%.200s): stop onced and restore the newest backup", name,
                verdict ? verdict : "no verdict");
    sqlite3_finalize(statement);
    return err->code;
}

struct checker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    char *path;
    const char *name;
    atomic_bool stop, yield;
    void (*damaged)(void *user, const struct err *err);
    void *user;
};

static int interrupted(void *user)
{
    struct checker *checker = user;
    return atomic_load_explicit(&checker->stop, memory_order_relaxed) ||
           atomic_load_explicit(&checker->yield, memory_order_relaxed);
}

/* Waits a while; false when it is time to stop. */
static bool pause_check(struct checker *checker)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += RESUME_S;
    pthread_mutex_lock(&checker->mutex);
    int rc = 0;
    while (!atomic_load(&checker->stop) && rc == 0)
        rc = pthread_cond_timedwait(&checker->wake, &checker->mutex, &until);
    pthread_mutex_unlock(&checker->mutex);
    atomic_store(&checker->yield, false);
    return !atomic_load(&checker->stop);
}

/* Tables one by one, so that an interruption loses little. Any error but damage (busy, interrupted, input/output) is
 * tried again after a pause. */
static void check_tables(struct checker *checker, sqlite3 *db)
{
    static const char *const tables[] = {"meta",      "names",      "operations", "doubts",  "history",
                                         "incidents", "tombstones", "principals", "counters"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables;) {
        struct err err = {0};
        if (atomic_load(&checker->stop))
            return;
        enum err_code code = store_check(db, checker->name, tables[i], &err);
        if (code == ERR_CORRUPT) {
            checker->damaged(checker->user, &err);
            return;
        }
        if (code == ERR_NONE)
            i++;
        else if (!pause_check(checker))
            return;
    }
}

static void *checker_main(void *arg)
{
    struct checker *checker = arg;
    struct err err = {0};
    sqlite3 *db;
    pthread_setname_np(pthread_self(), "ledger-check");
    /* Lowest priorities for processor and disk, of this thread only (Linux). Refusal changes nothing but speed. */
    pid_t tid = (pid_t)syscall(SYS_gettid);
    setpriority(PRIO_PROCESS, (id_t)tid, 19);
    enum { IOPRIO_WHO_PROCESS = 1, IOPRIO_IDLE = 3 << 13 };
    syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, tid, IOPRIO_IDLE);
    if (store_connect(checker->path, SQLITE_OPEN_READONLY, checker->name, &db, &err))
        return NULL;
    sqlite3_progress_handler(db, PROGRESS_STEPS, interrupted, checker);
    check_tables(checker, db);
    sqlite3_close(db);
    return NULL;
}

struct checker *checker_start(const char *path, void (*damaged)(void *user, const struct err *err), void *user)
{
    struct checker *checker = mem_zero(sizeof *checker);
    checker->path = mem_copy_text(path);
    const char *slash = strrchr(checker->path, '/');
    checker->name = slash ? slash + 1 : checker->path;
    checker->damaged = damaged;
    checker->user = user;
    pthread_mutex_init(&checker->mutex, NULL);
    pthread_cond_init(&checker->wake, NULL);
    if (queue_thread(&checker->thread, checker_main, checker) == 0)
        return checker;
    free(checker->path);
    free(checker);
    return NULL;
}

void checker_yield(struct checker *checker)
{
    if (checker)
        atomic_store(&checker->yield, true);
}

void checker_stop(struct checker *checker)
{
    if (!checker)
        return;
    pthread_mutex_lock(&checker->mutex);
    atomic_store(&checker->stop, true);
    pthread_cond_signal(&checker->wake);
    pthread_mutex_unlock(&checker->mutex);
    pthread_join(checker->thread, NULL);
    pthread_cond_destroy(&checker->wake);
    pthread_mutex_destroy(&checker->mutex);
    free(checker->path);
    free(checker);
}
