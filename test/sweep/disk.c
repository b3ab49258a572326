#include "sweep/disk.h"

#include "base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTOR_BYTES 512
#define FILES_MAX    16

/* A write, or (bytes NULL) a truncation to `offset`. */
struct change {
    struct change *next;
    unsigned char *bytes;
    sqlite3_int64 offset, count;
};

/* A file's durable content and what came since. */
struct image {
    char path[512]; /* empty: this place is free */
    unsigned char *bytes;
    sqlite3_int64 size;
    struct change *first, **last;
};

/* Behind it in memory lies the file of the layer below. image is NULL for files that are not modelled (temporary). */
struct file {
    sqlite3_file base;
    struct image *image;
};

static struct disk {
    struct disk_plan plan;
    uint64_t *calls, *changes;
    uint64_t power_at; /* change at which the power fails, 0 = none (yet) */
    uint64_t random;
    struct image images[FILES_MAX]; /* open files point into it */
    sqlite3_vfs *lower;
    pthread_mutex_t mutex;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t next_random(void) /* splitmix64 */
{
    uint64_t z = disk.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- images ---- */

static void image_resize(struct image *image, sqlite3_int64 size)
{
    image->bytes = mem_grow(image->bytes, (size_t)size + 1);
    if (size > image->size)
        memset(image->bytes + image->size, 0, (size_t)(size - image->size));
    image->size = size;
}

static void image_write(struct image *image, const unsigned char *bytes, sqlite3_int64 count, sqlite3_int64 offset)
{
    if (offset + count > image->size)
        image_resize(image, offset + count);
    memcpy(image->bytes + offset, bytes, (size_t)count);
}

static void drop_changes(struct image *image)
{
    while (image->first) {
        struct change *change = image->first;
        image->first = change->next;
        free(change->bytes);
        free(change);
    }
    image->last = &image->first;
}

static void image_forget(struct image *image)
{
    drop_changes(image);
    free(image->bytes);
    *image = (struct image){0};
}

/* Of that path; of "": a free place. */
static struct image *image_find(const char *path)
{
    for (size_t i = 0; i < FILES_MAX; i++)
        if (strcmp(disk.images[i].path, path) == 0)
            return &disk.images[i];
    return NULL;
}

/* What lies on the disk when the process first meets the file is durable. */
static struct image *image_of(const char *path)
{
    struct image *image = image_find(path);
    if (image)
        return image;
    image = image_find("");
    if (!image || strlen(path) >= sizeof image->path)
        abort();
    *image = (struct image){.last = &image->first};
    snprintf(image->path, sizeof image->path, "%s", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return image;
    off_t size = lseek(fd, 0, SEEK_END);
    image_resize(image, size);
    if (pread(fd, image->bytes, (size_t)size, 0) != size)
        abort();
    close(fd);
    return image;
}

static void add_change(struct image *image, const void *bytes, sqlite3_int64 count, sqlite3_int64 offset)
{
    struct change *change = mem_zero(sizeof *change);
    change->offset = offset;
    change->count = count;
    if (bytes) {
        change->bytes = mem_alloc((size_t)count);
        memcpy(change->bytes, bytes, (size_t)count);
    }
    *image->last = change;
    image->last = &change->next;
}

static void apply(struct image *image, const struct change *change)
{
    if (change->bytes)
        image_write(image, change->bytes, change->count, change->offset);
    else
        image_resize(image, change->offset);
}

static void make_durable(struct image *image)
{
    for (struct change *change = image->first; change; change = change->next)
        apply(image, change);
    drop_changes(image);
}

/* ---- what a disk might hold ---- */

enum leaving { LEAVES_NOTHING, LEAVES_ALL, LEAVES_SECTORS, LEAVES_A_BEGINNING, LEAVINGS };

static uint64_t sectors_of(const struct change *change)
{
    return change->bytes ? (uint64_t)((change->count + SECTOR_BYTES - 1) / SECTOR_BYTES) : 1;
}

static uint64_t sectors_in(const struct image *image)
{
    uint64_t sectors = 0;
    for (const struct change *change = image->first; change; change = change->next)
        sectors += sectors_of(change);
    return sectors;
}

static void apply_sector(struct image *image, const struct change *change, uint64_t sector)
{
    if (!change->bytes) {
        apply(image, change);
        return;
    }
    sqlite3_int64 at = (sqlite3_int64)sector * SECTOR_BYTES, left = change->count - at;
    image_write(image, change->bytes + at, left < SECTOR_BYTES ? left : SECTOR_BYTES, change->offset + at);
}

/* Decides what of the changes since the last sync is on the disk. */
static void leave(struct image *image, enum leaving leaving)
{
    uint64_t sectors = sectors_in(image), seen = 0;
    uint64_t beginning = sectors ? next_random() % (sectors + 1) : 0;
    for (const struct change *change = image->first; change; change = change->next) {
        for (uint64_t i = 0; i < sectors_of(change); i++, seen++) {
            bool kept = leaving == LEAVES_ALL || (leaving == LEAVES_SECTORS && next_random() % 2) ||
                        (leaving == LEAVES_A_BEGINNING && seen < beginning);
            if (kept)
                apply_sector(image, change, i);
        }
    }
    drop_changes(image);
}

static void write_image(const struct image *image)
{
    int fd = open(image->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, image->bytes, (size_t)image->size, 0) != image->size)
        abort();
    close(fd);
}

/* The mutex is held for ever: no other thread writes any more. */
static void power_fails(void)
{
    enum leaving leaving = (enum leaving)(disk.plan.seed % LEAVINGS);
    for (size_t i = 0; i < FILES_MAX; i++) {
        struct image *image = &disk.images[i];
        char shm[sizeof image->path + 4];
        if (!image->path[0])
            continue;
        leave(image, leaving);
        write_image(image);
        snprintf(shm, sizeof shm, "%s-shm", image->path);
        if (next_random() % 2)
            unlink(shm);
    }
    _exit(DISK_POWER_EXIT);
}

/* ---- whether a call fails ---- */

static bool is_change(enum disk_call call)
{
    return call == DISK_WRITE || call == DISK_SYNC || call == DISK_TRUNCATE || call == DISK_DELETE;
}

/* Counts the call; with the mutex held. */
static enum disk_fault fault_of(enum disk_call call)
{
    const struct disk_plan *plan = &disk.plan;
    uint64_t n = ++disk.calls[call];
    if (is_change(call) && ++*disk.changes == disk.power_at)
        power_fails();
    if (plan->fault == DISK_POWER || call != plan->call || plan->nth == 0 || n < plan->nth ||
        (plan->times && n >= plan->nth + plan->times))
        return DISK_FINE;
    if (n == plan->nth && plan->power_after)
        disk.power_at = *disk.changes + plan->power_after;
    return plan->fault;
}

static void lock(void)
{
    pthread_mutex_lock(&disk.mutex);
}

static int unlock(int rc)
{
    pthread_mutex_unlock(&disk.mutex);
    return rc;
}

/* ---- files ---- */

static sqlite3_file *below(sqlite3_file *file)
{
    return (sqlite3_file *)((struct file *)file + 1);
}

static struct image *image_behind(sqlite3_file *file)
{
    return ((struct file *)file)->image;
}

static int file_close(sqlite3_file *file)
{
    return below(file)->pMethods->xClose(below(file));
}

static int file_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 offset)
{
    lock();
    enum disk_fault fault = fault_of(DISK_READ);
    unlock(0);
    return fault ? SQLITE_IOERR_READ : below(file)->pMethods->xRead(below(file), bytes, count, offset);
}

static int write_through(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset)
{
    if (count == 0)
        return SQLITE_OK;
    int rc = below(file)->pMethods->xWrite(below(file), bytes, count, offset);
    if (rc == SQLITE_OK && image_behind(file))
        add_change(image_behind(file), bytes, count, offset);
    return rc;
}

static int file_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset)
{
    lock();
    switch (fault_of(DISK_WRITE)) {
    case DISK_IO_ERROR: return unlock(SQLITE_IOERR_WRITE);
    case DISK_FULL: return unlock(SQLITE_FULL);
    case DISK_SHORT: write_through(file, bytes, count / 2, offset); return unlock(SQLITE_FULL);
    case DISK_FINE:
    case DISK_POWER: break;
    }
    return unlock(write_through(file, bytes, count, offset));
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    lock();
    if (fault_of(DISK_TRUNCATE))
        return unlock(SQLITE_IOERR_TRUNCATE);
    int rc = below(file)->pMethods->xTruncate(below(file), size);
    if (rc == SQLITE_OK && image_behind(file))
        add_change(image_behind(file), NULL, 0, size);
    return unlock(rc);
}

/* The system's disk need not be waited for: what counts is the model. After a failed sync the system takes its cache
 * for clean. */
static int file_sync(sqlite3_file *file, int flags)
{
    struct image *image = image_behind(file);
    (void)flags;
    lock();
    if (fault_of(DISK_SYNC)) {
        if (image)
            leave(image, (enum leaving)(next_random() % LEAVINGS));
        return unlock(SQLITE_IOERR_FSYNC);
    }
    if (image)
        make_durable(image);
    return unlock(SQLITE_OK);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return below(file)->pMethods->xFileSize(below(file), size);
}

static int file_lock(sqlite3_file *file, int level)
{
    return below(file)->pMethods->xLock(below(file), level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    return below(file)->pMethods->xUnlock(below(file), level);
}

static int file_check_lock(sqlite3_file *file, int *locked)
{
    return below(file)->pMethods->xCheckReservedLock(below(file), locked);
}

static int file_control(sqlite3_file *file, int operation, void *argument)
{
    return below(file)->pMethods->xFileControl(below(file), operation, argument);
}

static int file_sector(sqlite3_file *file)
{
    return below(file)->pMethods->xSectorSize(below(file));
}

static int file_device(sqlite3_file *file)
{
    return below(file)->pMethods->xDeviceCharacteristics(below(file));
}

static int file_shm_map(sqlite3_file *file, int page, int bytes, int extend, void volatile **out)
{
    lock();
    enum disk_fault fault = fault_of(DISK_SHM_MAP);
    unlock(0);
    return fault ? SQLITE_IOERR_SHMMAP : below(file)->pMethods->xShmMap(below(file), page, bytes, extend, out);
}

static int file_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return below(file)->pMethods->xShmLock(below(file), offset, n, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    below(file)->pMethods->xShmBarrier(below(file));
}

static int file_shm_unmap(sqlite3_file *file, int delete)
{
    return below(file)->pMethods->xShmUnmap(below(file), delete);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_device,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

/* ---- the layer ---- */

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags, int *out_flags)
{
    struct file *file = (struct file *)base;
    (void)vfs;
    *file = (struct file){0};
    lock();
    if (fault_of(DISK_OPEN))
        return unlock(SQLITE_CANTOPEN);
    if (name && flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL))
        file->image = image_of(name);
    int rc = disk.lower->xOpen(disk.lower, name, below(base), flags, out_flags);
    file->base.pMethods = rc == SQLITE_OK ? &methods : NULL;
    return unlock(rc);
}

static int disk_delete(sqlite3_vfs *vfs, const char *name, int sync_folder)
{
    (void)vfs;
    (void)sync_folder;
    lock();
    if (fault_of(DISK_DELETE))
        return unlock(SQLITE_IOERR_DELETE);
    int rc = disk.lower->xDelete(disk.lower, name, 0);
    if (rc == SQLITE_OK && image_find(name))
        image_forget(image_find(name));
    return unlock(rc);
}

void disk_start(const struct disk_plan *plan, uint64_t *calls, uint64_t *changes)
{
    static sqlite3_vfs vfs; /* SQLite links it into its list */
    disk.plan = *plan;
    disk.calls = calls;
    disk.changes = changes;
    disk.random = plan->seed;
    disk.power_at = plan->fault == DISK_POWER ? plan->nth : 0;
    disk.lower = sqlite3_vfs_find("unix");
    if (!disk.lower)
        mem_exhausted("SQLite");
    vfs = *disk.lower;
    vfs.pNext = NULL;
    vfs.zName = "unix";
    vfs.szOsFile = (int)sizeof(struct file) + disk.lower->szOsFile;
    vfs.xOpen = disk_open;
    vfs.xDelete = disk_delete;
    sqlite3_vfs_register(&vfs, 1);
}
