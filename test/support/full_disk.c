/* A full disk for any program that was not asked: LD_PRELOAD=…/full-disk.so ONCED_FULL_DISK=LINK program
 *
 * While the symbolic link LINK exists, its target is the name of a folder (absolute, no link within it) below which the
 * disk is full: what would make a file there longer fails with ENOSPC, and nothing of it is written. What overwrites,
 * and what creates an empty file or removes one, works, as it does on a file system that is full. The link comes and
 * goes while the program runs.
 *
 * Knows the calls by which PostgreSQL writes its files: write, pwrite, pwritev, posix_fallocate. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The function behind ours. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (!next)                                                                                                         \
    next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* The target of a link without an end; false: there is none. */
static bool follow(const char *link, char target[PATH_MAX])
{
    ssize_t n = readlink(link, target, PATH_MAX - 1);
    if (n <= 0)
        return false;
    target[n] = '\0';
    return true;
}

static bool is_below_full(int fd)
{
    const char *link = getenv("ONCED_FULL_DISK");
    char folder[PATH_MAX], file[PATH_MAX], self[64];
    if (!link || !follow(link, folder))
        return false;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    size_t n = strlen(folder);
    return follow(self, file) && strncmp(file, folder, n) == 0 && file[n] == '/';
}

/* at < 0: where the descriptor stands. */
static bool has_room(int fd, off_t at, size_t bytes)
{
    struct stat st;
    int before = errno;
    bool room = true;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        int flags = fcntl(fd, F_GETFL);
        if (at < 0)
            at = flags >= 0 && flags & O_APPEND ? st.st_size : lseek(fd, 0, SEEK_CUR);
        room = at + (off_t)bytes <= st.st_size || !is_below_full(fd);
    }
    errno = room ? before : ENOSPC;
    return room;
}

static size_t sum(const struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    NEXT(write);
    return has_room(fd, -1, n) ? next(fd, bytes, n) : -1;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    NEXT(pwrite);
    return has_room(fd, at, n) ? next(fd, bytes, n, at) : -1;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    NEXT(pwritev);
    return has_room(fd, at, sum(parts, count)) ? next(fd, parts, count, at) : -1;
}

int posix_fallocate(int fd, off_t at, off_t bytes)
{
    NEXT(posix_fallocate);
    return has_room(fd, at, (size_t)bytes) ? next(fd, at, bytes) : ENOSPC;
}
