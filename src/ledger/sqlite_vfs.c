/* A thin layer over SQLite's own file layer that gathers writes to the write-ahead log. SQLite writes a log page by
 * page, each in two calls; the pages of one commit follow each other, so that they can go to the system in one.
 * Whatever looks at the file (sync, read, size, truncate) has the gathered bytes written first; SQLite tells other
 * connections of a commit only after its sync. An error of a gathered write is reported by the call that had it
 * written, which fails the commit as well. */
#include "ledger/sqlite_store.h"

#include "base/mark.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>

/* SQLite's Unix layer cuts a longer write into pieces, and takes one of exactly 128 KiB for a full disk. */
#define GATHER_BYTES_MAX ((128 << 10) - 1)

/* Behind it in memory lies the file of the layer below. */
struct log_file {
    sqlite3_file base;
    char *bytes; /* GATHER_BYTES_MAX, from the first write on */
    int count;
    sqlite3_int64 offset; /* in the file, of bytes[0] */
};

static sqlite3_file *below(sqlite3_file *file)
{
    return (sqlite3_file *)((struct log_file *)file + 1);
}

static int flush(sqlite3_file *file)
{
    struct log_file *log = (struct log_file *)file;
    int count = log->count;
    log->count = 0; /* after an error SQLite writes all again, from the same place on */
    return count ? below(file)->pMethods->xWrite(below(file), log->bytes, count, log->offset) : SQLITE_OK;
}

static int log_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset)
{
    struct log_file *log = (struct log_file *)file;
    if (log->count && (offset != log->offset + log->count || log->count + count > GATHER_BYTES_MAX)) {
        int rc = flush(file);
        if (rc != SQLITE_OK)
            return rc;
    }
    if (count > GATHER_BYTES_MAX)
        return below(file)->pMethods->xWrite(below(file), bytes, count, offset);
    if (!log->bytes)
        log->bytes = mem_alloc(GATHER_BYTES_MAX);
    if (log->count == 0)
        log->offset = offset;
    memcpy(log->bytes + log->count, bytes, (size_t)count);
    log->count += count;
    return SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 offset)
{
    struct log_file *log = (struct log_file *)file;
    bool gathered = log->count && offset < log->offset + log->count && log->offset < offset + count;
    int rc = gathered ? flush(file) : SQLITE_OK;
    return rc == SQLITE_OK ? below(file)->pMethods->xRead(below(file), bytes, count, offset) : rc;
}

static int log_sync(sqlite3_file *file, int flags)
{
    int rc = flush(file);
    MARK(log_written);
    if (rc == SQLITE_OK)
        rc = below(file)->pMethods->xSync(below(file), flags);
    MARK(log_synced);
    return rc;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = flush(file);
    return rc == SQLITE_OK ? below(file)->pMethods->xTruncate(below(file), size) : rc;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int rc = flush(file);
    return rc == SQLITE_OK ? below(file)->pMethods->xFileSize(below(file), size) : rc;
}

static int log_close(sqlite3_file *file)
{
    struct log_file *log = (struct log_file *)file;
    flush(file); /* what was committed is in the file already */
    free(log->bytes);
    return below(file)->pMethods->xClose(below(file));
}

static int log_lock(sqlite3_file *file, int level)
{
    return below(file)->pMethods->xLock(below(file), level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    return below(file)->pMethods->xUnlock(below(file), level);
}

static int log_check_lock(sqlite3_file *file, int *locked)
{
    return below(file)->pMethods->xCheckReservedLock(below(file), locked);
}

static int log_control(sqlite3_file *file, int operation, void *argument)
{
    return below(file)->pMethods->xFileControl(below(file), operation, argument);
}

static int log_sector(sqlite3_file *file)
{
    return below(file)->pMethods->xSectorSize(below(file));
}

static int log_device(sqlite3_file *file)
{
    return below(file)->pMethods->xDeviceCharacteristics(below(file));
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_check_lock,
    .xFileControl = log_control,
    .xSectorSize = log_sector,
    .xDeviceCharacteristics = log_device,
};

/* Files other than the log are the lower layer's own. */
static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    sqlite3_vfs *lower = sqlite3_vfs_find("unix");
    (void)vfs;
    if (!(flags & SQLITE_OPEN_WAL))
        return lower->xOpen(lower, name, file, flags, out_flags);
    struct log_file *log = (struct log_file *)file;
    *log = (struct log_file){0};
    int rc = lower->xOpen(lower, name, below(file), flags, out_flags);
    log->base.pMethods = rc == SQLITE_OK ? &log_methods : NULL;
    return rc;
}

static void register_once(void)
{
    static sqlite3_vfs vfs; /* SQLite links it into its list; never changed afterwards */
    const sqlite3_vfs *lower = sqlite3_vfs_find("unix");
    if (!lower) /* the first use of SQLite, which found no memory to initialise itself */
        mem_exhausted("SQLite");
    vfs = *lower;
    vfs.pNext = NULL;
    vfs.zName = STORE_VFS;
    vfs.szOsFile += (int)sizeof(struct log_file);
    vfs.xOpen = open_file;
    sqlite3_vfs_register(&vfs, 0);
}

void store_register_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_once);
}
