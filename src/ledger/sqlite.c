/* The SQLite ledger: a queue (queue.h), its thread that owns the connection, and group commit: BEGIN, the commands of a
 * batch in order, COMMIT (one fsync). What fails a whole transaction never takes others along silently: see run_part.
 */
#include "ledger/queue.h"
#include "ledger/sqlite_store.h"

#include "base/mark.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

/* The write-ahead log is copied back when it has grown to this many pages (16 MiB), after the results were handed over.
 * A thread of its own for this was tried: what takes the time is the disk's flush, which holds up commits all the same.
 * A longer log would be copied more cheaply, but takes longer to read after a crash. */
#define CHECKPOINT_FRAMES 4000
/* From here on the background check is asked to let go of its read transaction. */
#define CHECKPOINT_URGENT_FRAMES (8 * CHECKPOINT_FRAMES)

struct sqlite_ledger {
    struct ledger base;
    struct queue queue;
    int lock_fd; /* -1: none */

    /* the ledger thread's */
    struct store store;
    struct saved_identity *saved; /* one per place in a batch */
    int64_t commits;
    int checkpoint_at; /* frames */
    struct checker *checker;

    atomic_bool is_damaged; /* damage is set, and stays */
    atomic_flag damage_taken;
    struct err damage;
};

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
    for (struct ledger_request *request = first; request; request = request->next)
        saved_identity_take(saved++, request);
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
        saved_identity_put(&saved[i], request);
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
        request_fail_all(first, count, &reading);
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
        request_fail_all(first, count, &err);
        return;
    case FAULT_COMMAND: break;
    }
    if (count == 1) {
        request_fail(first, &err);
        return;
    }
    for (size_t i = 0; i < count; i++, first = first->next)
        run_part(ledger, first, 1, &saved[i]);
}

static void run_batch(void *owner, int lane, struct ledger_request *first, size_t count)
{
    (void)lane; /* there is one */
    struct sqlite_ledger *ledger = owner;
    save_identities(ledger, first);
    run_part(ledger, first, count, ledger->saved);
    for (; first; first = first->next) {
        if (first->command == LEDGER_STATS && first->code == 0) {
            first->stats.commits = ledger->commits;
            first->stats.commands = ledger->queue.commands + (int64_t)count;
        }
    }
}

/* After each batch. While somebody reads (a backup, the check) the log can not start over and grows on: then the next
 * attempt comes only when it has grown by as much again. */
static void keep_log_bounded(void *owner)
{
    struct sqlite_ledger *ledger = owner;
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

/* ---- the interface ---- */

static void sqlite_submit(struct ledger *base, struct ledger_request *request)
{
    queue_submit(&((struct sqlite_ledger *)base)->queue, request);
}

static void sqlite_poll(struct ledger *base)
{
    queue_poll(&((struct sqlite_ledger *)base)->queue);
}

static int sqlite_turn(struct ledger *base)
{
    return queue_turn(&((struct sqlite_ledger *)base)->queue);
}

static void sqlite_wait(struct ledger *base, int timeout_ms)
{
    queue_wait(&((struct sqlite_ledger *)base)->queue, timeout_ms);
}

static void sqlite_close(struct ledger *base)
{
    struct sqlite_ledger *ledger = (struct sqlite_ledger *)base;
    queue_stop(&ledger->queue);
    checker_stop(ledger->checker);
    store_release(&ledger->store);
    if (ledger->lock_fd >= 0)
        close(ledger->lock_fd); /* the file stays: removing it would race with the next owner */
    queue_release(&ledger->queue);
    free(ledger->saved);
    free(ledger);
}

static const struct ledger_ops sqlite_ops = {sqlite_submit, sqlite_poll, sqlite_close, sqlite_wait, sqlite_turn};

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
enum err_code store_lock(const char *path, int *out, struct err *err)
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
        *out = fd;
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
    queue_init(&ledger->queue, options->batch_max, options->notify, options->user);
    ledger->queue.turn = options->turn;
    ledger->queue.run = run_batch;
    ledger->queue.after = keep_log_bounded;
    ledger->queue.owner = ledger;
    ledger->saved = mem_zero(ledger->queue.batch_max * sizeof *ledger->saved);
    ledger->lock_fd = -1;
    atomic_flag_clear(&ledger->damage_taken);
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
    if (owner && store_lock(options->path, &ledger->lock_fd, err))
        goto out;
    if (store_open(&ledger->store, &store, env, ledger->base.secret, err))
        goto out;
    if (owner && check_file(ledger, options->path, err)) /* others leave it to the owner */
        goto out;
    if (options->read_only)
        set_damaged(ledger, &(struct err){ERR_DENIED, "the ledger was opened for reading only"});
    queue_start(&ledger->queue, err);
out:
    if (err->code)
        sqlite_close(&ledger->base);
    else
        *out = &ledger->base;
    return err->code;
}
