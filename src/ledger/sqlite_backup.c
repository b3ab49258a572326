/* Online backup: copy under a temporary name beside the target, check, make durable, rename. */
#include "ledger/sqlite_store.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder part of a path, "." without one. Caller frees. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mem_copy_text(".");
    return slash == path ? mem_copy_text("/") : mem_copy_bytes(path, (size_t)(slash - path));
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static enum err_code sync_path(const char *path, int flags, struct err *err)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        err_set(err, ERR_IO, "%s can not be written to disk: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return err->code;
}

static enum err_code open_source(const char *path, sqlite3 **db, struct err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return err_set(err, ERR_NOT_FOUND, "there is no ledger at %s: %s", path, strerror(errno));
    /* Writable where possible: reading a write-ahead log that a crash left behind needs its -shm file. */
    int flags = access(path, W_OK) == 0 ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
    if (store_connect(path, flags, path, db, err))
        return err->code;
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(*db, "PRAGMA application_id", -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc != SQLITE_ROW)
        store_describe(*db, path, rc, NULL, err);
    else if (sqlite3_column_int(statement, 0) != STORE_APPLICATION_ID)
        err_set(err, ERR_INVALID, "%s is not a onced ledger", path);
    sqlite3_finalize(statement);
    return err->code;
}

/* One step over all pages is one read transaction: a consistent picture, whatever is written meanwhile. */
static enum err_code copy_pages(sqlite3 *source, const char *path, sqlite3 *copy, const char *copy_name,
                                struct err *err)
{
    sqlite3_backup *backup = sqlite3_backup_init(copy, "main", source, "main");
    if (!backup)
        return store_describe(copy, copy_name, sqlite3_extended_errcode(copy), NULL, err);
    int rc = sqlite3_backup_step(backup, -1);
    sqlite3_backup_finish(backup);
    if (rc == SQLITE_DONE)
        return ERR_NONE;
    if ((rc & 0xff) == SQLITE_FULL)
        return err_set(err, ERR_UNAVAILABLE, "no space for the backup at %s", copy_name);
    return store_describe(rc == SQLITE_CORRUPT ? source : copy, rc == SQLITE_CORRUPT ? path : copy_name, rc, NULL, err);
}

static enum err_code fill(const char *path, const char *temporary, struct err *err)
{
    sqlite3 *source = NULL, *copy = NULL;
    if (open_source(path, &source, err) || store_connect(temporary, SQLITE_OPEN_READWRITE, temporary, &copy, err))
        goto out;
    if (sqlite3_exec(copy, "PRAGMA synchronous = OFF", NULL, NULL, NULL) != SQLITE_OK)
        err_set(err, ERR_IO, "%s: %s", temporary, sqlite3_errmsg(copy));
    if (err->code || copy_pages(source, path, copy, temporary, err))
        goto out;
    /* Without a write-ahead log the backup is one file that can be moved about. */
    int rc = sqlite3_exec(copy, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        store_describe(copy, temporary, rc, NULL, err);
    else
        store_check(copy, temporary, NULL, err);
out:
    sqlite3_close(copy);
    sqlite3_close(source);
    return err->code;
}

static enum err_code publish(const char *temporary, const char *target, struct err *err)
{
    if (sync_path(temporary, O_RDONLY, err))
        return err->code;
    /* link refuses an existing target, which rename would replace. */
    if (link(temporary, target) != 0)
        return err_set(err, errno == EEXIST ? ERR_CONFLICT : ERR_IO, "%s can not be made: %s", target, strerror(errno));
    unlink(temporary);
    char *folder = folder_of(target);
    sync_path(folder, O_RDONLY | O_DIRECTORY, err);
    free(folder);
    return err->code;
}

static void remove_temporary(const char *temporary)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *file = sqlite3_mprintf("%s%s", temporary, ends[i]);
        unlink(file);
        sqlite3_free(file);
    }
}

enum err_code ledger_sqlite_backup(const char *path, const char *target, struct err *err)
{
    struct err own = {0};
    struct stat st;
    err = err ? err : &own;
    if (lstat(target, &st) == 0)
        return err_set(err, ERR_CONFLICT, "%s exists already: a backup never replaces a file", target);
    if (stat(path, &st) != 0)
        return err_set(err, ERR_NOT_FOUND, "there is no ledger at %s: %s", path, strerror(errno));
    char *folder = folder_of(target);
    char *temporary = sqlite3_mprintf("%s/.%s.%d.partial", folder, name_of(target), (int)getpid());
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        err_set(err, ERR_IO, "%s can not be made: %s", target, strerror(errno));
    } else {
        close(fd);
        if (fill(path, temporary, err) == 0)
            publish(temporary, target, err);
        remove_temporary(temporary);
    }
    sqlite3_free(temporary);
    free(folder);
    return err->code;
}
