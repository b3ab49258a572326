/* The SQLite ledger: a queue, one thread that owns the connection, and group commit.
 *
 *   submitting thread                      ledger thread
 *   submit ──▶ waiting ──(up to batch_max)──▶ BEGIN, commands in order, COMMIT (one fsync)
 *   poll   ◀── finished ◀──────────────────── all at once, one notification
 *
 * What fails a whole transaction never takes others along silently: see run_batch. */
#include "ledger/sqlite_store.h"

#include "base/mark.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define BATCH_DEFAULT 512
#define BATCH_MAX     4096
/* The write-ahead log is copied back when it has grown to this many pages (16 MiB), after the results were handed over.
 * A thread of its own for this was tried: what takes the time is the disk's flush, which holds up commits all the same.
 * A longer log would be copied more cheaply, but takes longer to read after a crash. */
#define CHECKPOINT_FRAMES 4000
/* From here on the background check is asked to let go of its read transaction. */
#define CHECKPOINT_URGENT_FRAMES (8 * CHECKPOINT_FRAMES)

struct request_list {
    struct ledger_request *first, **last;
};

/* What admission changes in a request, to be put back before it is executed again. */
struct saved_identity {
    int key_version;
    const char *previous;
};

struct sqlite_ledger {
    struct ledger base;
    void (*notify)(void *user);
    void *user;
    size_t batch_max;
    int lock_fd; /* -1: none */
    bool started;
    pthread_t thread;

    pthread_mutex_t mutex; /* guards from here … */
    pthread_cond_t work;   /* something is waiting, or stopping */
    pthread_cond_t ready;  /* something is finished */
    struct request_list waiting, finished;
    size_t queued;       /* waiting or being executed */
    bool idle, stopping; /* … to here */

    /* the ledger thread's */
    struct store store;
    struct saved_identity *saved; /* one per place in a batch */
    int64_t commits, commands;
    int checkpoint_at; /* frames */
    struct checker *checker;

    atomic_bool is_damaged; /* damage is set, and stays */
    atomic_flag damage_taken;
    struct err damage;
};

static void list_init(struct request_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void list_append(struct request_list *list, struct ledger_request *request)
{
    request->next = NULL;
    *list->last = request;
    list->last = &request->next;
}

/* ---- damage ---- */

/* Called by the ledger thread and by the checker; the first one counts. */
static void set_damaged(void *user, const struct err *err)
{
    struct sqlite_ledger *ledger = user;
    if (atomic_flag_test_and_set(&ledger->damage_taken))
        return;
    ledger->damage = *err;
    atomic_store(&ledger->is_damaged, true);
}

/* ---- batches ---- */

static void save_identities(struct sqlite_ledger *ledger, struct ledger_request *first)
{
    struct saved_identity *saved = ledger->saved;
    for (struct ledger_request *request = first; request; request = request->next, saved++)
        if (request->command == LEDGER_ADMIT)
            *saved = (struct saved_identity){request->admit.admission.op->key_version,
                                             request->admit.admission.op->previous};
}

static void restore_identity(struct ledger_request *request, const struct saved_identity *saved)
{
    if (request->command == LEDGER_ADMIT) {
        request->admit.admission.op->key_version = saved->key_version;
        request->admit.admission.op->previous = saved->previous;
    }
}

/* Executes count requests from first on in one transaction. Unless FAULT_NONE comes back, nothing of it happened and
 * err says why. */
static enum store_fault run_group(struct sqlite_ledger *ledger, struct ledger_request *first, size_t count,
                                  const struct saved_identity *saved, bool writing, struct err *err)
{
    struct store *store = &ledger->store;
    int64_t changes = sqlite3_total_changes64(store->db);
    if (store_begin(store, writing, err)) {
        store_rollback(store);
        return store->fault;
    }
    struct ledger_request *request = first;
    for (size_t i = 0; i < count; i++, request = request->next) {
        restore_identity(request, &saved[i]);
        store_execute(store, request);
        if (store->fault) {
            *err = request->err;
            store_rollback(store);
            return store->fault;
        }
    }
    if (store_commit(store, err))
        return store->fault;
    if (sqlite3_total_changes64(store->db) != changes)
        ledger->commits++;
    return FAULT_NONE;
}

static void fail(struct ledger_request *request, const struct err *err)
{
    request->code = err->code;
    request->err = *err;
}

static void fail_all(struct ledger_request *first, size_t count, const struct err *err)
{
    for (size_t i = 0; i < count; i++, first = first->next)
        fail(first, err);
}

/* Nothing can be written now: commands that would write end with err, all others (an admission that meets an existing
 * operation is one) are answered. */
static void run_refusing(struct sqlite_ledger *ledger, struct ledger_request *first, size_t count,
                         const struct saved_identity *saved, const struct err *err)
{
    struct err reading = {0};
    ledger->store.refuse = err;
    enum store_fault fault = run_group(ledger, first, count, saved, false, &reading);
    ledger->store.refuse = NULL;
    if (fault)
        fail_all(first, count, &reading);
}

/*   fault of the group    what happens
 *   ------------------    ------------------------------------------------------------------------
 *   none                  all are done
 *   unavailable           what writes ends with ERR_UNAVAILABLE; the next batch is tried as usual
 *   corrupt               all end with ERR_CORRUPT, and from now on everything that writes
 *   one command's         rolled back; each again in a transaction of its own: only the guilty fails */
static void run_part(struct sqlite_ledger *ledger, struct ledger_request *first, size_t count,
                     const struct saved_identity *saved)
{
    struct err err = {0};
    bool writing = false;
    if (atomic_load(&ledger->is_damaged)) {
        run_refusing(ledger, first, count, saved, &ledger->damage);
        return;
    }
    struct ledger_request *request = first;
    for (size_t i = 0; i < count; i++, request = request->next)
        writing |= ledger_command_writes(request->command);
    switch (run_group(ledger, first, count, saved, writing && !ledger->store.read_only, &err)) {
    case FAULT_NONE: return;
    case FAULT_UNAVAILABLE:
        run_refusing(ledger, first, count, saved, &err);
        store_checkpoint(&ledger->store); /* a full disk may leave room within the log */
        return;
    case FAULT_CORRUPT:
        set_damaged(ledger, &err);
        fail_all(first, count, &err);
        return;
    case FAULT_COMMAND: break;
    }
    if (count == 1) {
        fail(first, &err);
        return;
    }
    for (size_t i = 0; i < count; i++, first = first->next)
        run_part(ledger, first, 1, &saved[i]);
}

static void run_batch(struct sqlite_ledger *ledger, struct ledger_request *first, size_t count)
{
    save_identities(ledger, first);
    run_part(ledger, first, count, ledger->saved);
    ledger->commands += (int64_t)count;
    for (; first; first = first->next) {
        if (first->command == LEDGER_STATS && first->code == 0) {
            first->stats.commits = ledger->commits;
            first->stats.commands = ledger->commands;
        }
    }
}

/* After each batch. While somebody reads (a backup, the check) the log can not start over and grows on: then the next
 * attempt comes only when it has grown by as much again. */
static void keep_log_bounded(struct sqlite_ledger *ledger)
{
    int frames = ledger->store.wal_frames;
    if (frames < CHECKPOINT_FRAMES)
        ledger->checkpoint_at = CHECKPOINT_FRAMES;
    if (frames < ledger->checkpoint_at)
        return;
    if (frames >= CHECKPOINT_URGENT_FRAMES)
        checker_yield(ledger->checker);
    store_checkpoint(&ledger->store);
    ledger->checkpoint_at = frames + CHECKPOINT_FRAMES;
}

/* ---- the thread ---- */

/* Takes up to batch_max requests off the queue, waits for the first one. Zero: time to end. */
static size_t take_batch(struct sqlite_ledger *ledger, struct ledger_request **first)
{
    size_t count = 0;
    pthread_mutex_lock(&ledger->mutex);
    while (!ledger->waiting.first && !ledger->stopping) {
        ledger->idle = true;
        pthread_cond_wait(&ledger->work, &ledger->mutex);
    }
    ledger->idle = false;
    *first = ledger->waiting.first;
    struct ledger_request *last = NULL;
    for (struct ledger_request *r = *first; r && count < ledger->batch_max; r = r->next) {
        last = r;
        count++;
    }
    if (last) {
        ledger->waiting.first = last->next;
        last->next = NULL;
    }
    if (!ledger->waiting.first)
        list_init(&ledger->waiting);
    pthread_mutex_unlock(&ledger->mutex);
    return count;
}

static void hand_over(struct sqlite_ledger *ledger, struct ledger_request *first, size_t count)
{
    struct ledger_request *last = first;
    while (last->next)
        last = last->next;
    pthread_mutex_lock(&ledger->mutex);
    bool quiet = !ledger->finished.first; /* else the notification for the ones before has not been followed yet */
    *ledger->finished.last = first;
    ledger->finished.last = &last->next;
    ledger->queued -= count;
    pthread_mutex_unlock(&ledger->mutex);
    pthread_cond_signal(&ledger->ready);
    if (quiet && ledger->notify)
        ledger->notify(ledger->user);
}

static void *ledger_main(void *arg)
{
    struct sqlite_ledger *ledger = arg;
    struct ledger_request *first;
    size_t count;
    pthread_setname_np(pthread_self(), "ledger");
    while ((count = take_batch(ledger, &first)) > 0) {
        run_batch(ledger, first, count);
        MARK(batch_committed);
        hand_over(ledger, first, count);
        keep_log_bounded(ledger);
    }
    return NULL;
}

/* ---- the interface ---- */

static void sqlite_submit(struct ledger *base, struct ledger_request *request)
{
    struct sqlite_ledger *ledger = (struct sqlite_ledger *)base;
    bool refused_first = false, wake = false;
    pthread_mutex_lock(&ledger->mutex);
    if (ledger->queued < LEDGER_QUEUE_MAX) {
        list_append(&ledger->waiting, request);
        ledger->queued++;
        wake = ledger->idle;
        ledger->idle = false; /* one wake-up is enough */
    } else {                  /* the only case in which a request overtakes others */
        request->code = err_set(&request->err, ERR_UNAVAILABLE, "the ledger has %d commands waiting: try again later",
                                LEDGER_QUEUE_MAX);
        refused_first = !ledger->finished.first;
        list_append(&ledger->finished, request);
        pthread_cond_signal(&ledger->ready);
    }
    pthread_mutex_unlock(&ledger->mutex);
    if (wake)
        pthread_cond_signal(&ledger->work);
    if (refused_first && ledger->notify)
        ledger->notify(ledger->user);
}

static void sqlite_poll(struct ledger *base)
{
    struct sqlite_ledger *ledger = (struct sqlite_ledger *)base;
    pthread_mutex_lock(&ledger->mutex);
    struct ledger_request *request = ledger->finished.first;
    list_init(&ledger->finished);
    pthread_mutex_unlock(&ledger->mutex);
    while (request) {
        struct ledger_request *next = request->next; /* done may free the request */
        request->next = NULL;
        request->done(request);
        request = next;
    }
}

static void sqlite_wait(struct ledger *base, int timeout_ms)
{
    struct sqlite_ledger *ledger = (struct sqlite_ledger *)base;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&ledger->mutex);
    int rc = 0;
    while (!ledger->finished.first && rc == 0)
        rc = pthread_cond_timedwait(&ledger->ready, &ledger->mutex, &until);
    pthread_mutex_unlock(&ledger->mutex);
}

/* Waits until something is finished; false when nothing is left to wait for. */
static bool wait_for_rest(struct sqlite_ledger *ledger)
{
    pthread_mutex_lock(&ledger->mutex);
    while (!ledger->finished.first && ledger->queued > 0)
        pthread_cond_wait(&ledger->ready, &ledger->mutex);
    bool some = ledger->finished.first;
    pthread_mutex_unlock(&ledger->mutex);
    return some;
}

static void sqlite_close(struct ledger *base)
{
    struct sqlite_ledger *ledger = (struct sqlite_ledger *)base;
    if (ledger->started) {
        while (wait_for_rest(ledger))
            sqlite_poll(base);
        pthread_mutex_lock(&ledger->mutex);
        ledger->stopping = true;
        pthread_cond_signal(&ledger->work);
        pthread_mutex_unlock(&ledger->mutex);
        pthread_join(ledger->thread, NULL);
    }
    checker_stop(ledger->checker);
    store_release(&ledger->store);
    if (ledger->lock_fd >= 0)
        close(ledger->lock_fd); /* the file stays: removing it would race with the next owner */
    pthread_cond_destroy(&ledger->work);
    pthread_cond_destroy(&ledger->ready);
    pthread_mutex_destroy(&ledger->mutex);
    free(ledger->saved);
    free(ledger);
}

static const struct ledger_ops sqlite_ops = {sqlite_submit, sqlite_poll, sqlite_close, sqlite_wait};

/* ---- opening ---- */

static void write_pid(int fd)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    /* Only words for people; the lock itself is the kernel's. */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) != n)
        return;
}

/* flock(2) on a file of its own: the kernel lets go of it however the process ends. */
static enum err_code take_lock(struct sqlite_ledger *ledger, const char *path, struct err *err)
{
    char *lock = store_file_beside(path, ".lock");
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        err_set(err, ERR_IO, "the lock file %s can not be opened: %s", lock, strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        char pid[32] = "";
        ssize_t n = errno == EWOULDBLOCK ? pread(fd, pid, sizeof pid - 1, 0) : -1;
        if (n < 0)
            err_set(err, ERR_IO, "the lock file %s can not be locked: %s", lock, strerror(errno));
        else
            err_set(err, ERR_UNAVAILABLE, "%s is in use by pid %ld: one onced at a time may own a ledger", path,
                    strtol(pid, NULL, 10));
        close(fd);
    } else {
        write_pid(fd);
        ledger->lock_fd = fd;
    }
    free(lock);
    return err->code;
}

static enum err_code check_file(struct sqlite_ledger *ledger, const char *path, struct err *err)
{
    if (store_file_bytes(path) < STORE_SMALL_BYTES)
        return store_check(ledger->store.db, ledger->store.name, NULL, err);
    ledger->checker = checker_start(path, set_damaged, ledger);
    return ERR_NONE;
}

static struct sqlite_ledger *ledger_new(const struct ledger_sqlite_options *options)
{
    struct sqlite_ledger *ledger = mem_zero(sizeof *ledger);
    ledger->base.ops = &sqlite_ops;
    ledger->notify = options->notify;
    ledger->user = options->user;
    ledger->batch_max = options->batch_max ? options->batch_max : BATCH_DEFAULT;
    if (ledger->batch_max > BATCH_MAX)
        ledger->batch_max = BATCH_MAX;
    ledger->saved = mem_zero(ledger->batch_max * sizeof *ledger->saved);
    ledger->lock_fd = -1;
    atomic_flag_clear(&ledger->damage_taken);
    list_init(&ledger->waiting);
    list_init(&ledger->finished);
    pthread_mutex_init(&ledger->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&ledger->work, NULL);
    pthread_cond_init(&ledger->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return ledger;
}

enum err_code ledger_sqlite_open(const struct ledger_sqlite_options *options, struct env *env, struct ledger **out,
                                 struct err *err)
{
    struct err own = {0};
    err = err ? err : &own;
    struct sqlite_ledger *ledger = ledger_new(options);
    bool owner = !options->shared && !options->read_only;
    struct store_options store = {.path = options->path, .read_only = options->read_only, .sole_writer = owner};
    if (owner && take_lock(ledger, options->path, err))
        goto out;
    if (store_open(&ledger->store, &store, env, ledger->base.secret, err))
        goto out;
    if (owner && check_file(ledger, options->path, err)) /* others leave it to the owner */
        goto out;
    if (options->read_only)
        set_damaged(ledger, &(struct err){ERR_DENIED, "the ledger was opened for reading only"});
    if (store_thread(&ledger->thread, ledger_main, ledger) != 0)
        err_set(err, ERR_IO, "the ledger thread can not be started: %s", strerror(errno));
    else
        ledger->started = true;
out:
    if (err->code)
        sqlite_close(&ledger->base);
    else
        *out = &ledger->base;
    return err->code;
}
