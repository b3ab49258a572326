/* Makes the n-th call of a chosen kind fail in any program, without its help: LD_PRELOAD=…/preload.so program
 *
 *     ONCED_FAIL=kind:n:how[:times]   the n-th call (from 1 on) of that kind fails in this way, and so do the next ones
 *                                     up to `times` in all (default 1, 0 = all later ones); n = 0 only counts
 *     ONCED_FAIL_COUNTS=file          counts the calls of each kind in this file: KIND_COUNT numbers of 64 bits, in the
 *                                     order below (kept up to date, so that it can be read after a kill -9)
 *
 *     kind      calls                                                        how
 *     malloc    malloc, calloc, realloc, aligned_alloc, posix_memalign       ENOMEM
 *     write     write, writev, pwrite, pwritev (and …64) to regular files    an error's name, or short
 *     fsync     fsync, fdatasync                                             an error's name
 *     open      open, open64, openat of files                                an error's name
 *     socket    socket                                                       an error's name
 *     connect   connect                                                      an error's name
 *     accept    accept, accept4                                              an error's name
 *     send      send, sendto, sendmsg, write, writev on sockets              an error's name, or short
 *     recv      recv, recvfrom, recvmsg, read on sockets                     an error's name, or short
 *
 *     ONCED_FAIL_NAMES_DEATH=1        at SIGSEGV and SIGABRT, the functions on the stack are written to standard error,
 * one a line after "preload: died in", so that the judge sees in which library it was
 *
 * `short` carries out the first half of what was asked (of a receive: one byte). A wrong value ends the program with
 * status 2. Under AddressSanitizer (gcc) allocations go on to its allocator; ASAN_OPTIONS=verify_asan_link_order=0 is
 * needed. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    KIND_MALLOC,
    KIND_WRITE,
    KIND_FSYNC,
    KIND_OPEN,
    KIND_SOCKET,
    KIND_CONNECT,
    KIND_ACCEPT,
    KIND_SEND,
    KIND_RECV,
    KIND_COUNT
};
static const char *const kind_names[KIND_COUNT] = {"malloc",  "write",  "fsync", "open", "socket",
                                                   "connect", "accept", "send",  "recv"};

static const struct {
    const char *name;
    int number;
} errors[] = {{"ENOMEM", ENOMEM},
              {"EIO", EIO},
              {"ENOSPC", ENOSPC},
              {"EINTR", EINTR},
              {"EMFILE", EMFILE},
              {"ENFILE", ENFILE},
              {"ENOBUFS", ENOBUFS},
              {"ECONNRESET", ECONNRESET},
              {"EPIPE", EPIPE},
              {"EAGAIN", EAGAIN},
              {"EACCES", EACCES},
              {"ECONNREFUSED", ECONNREFUSED},
              {"ENETUNREACH", ENETUNREACH},
              {"ECONNABORTED", ECONNABORTED}};

/* Set before main(); the program has no thread but the first one then. */
static int chosen = -1; /* enum kind */
static uint64_t first, last;
static int error_number; /* 0: short */
static atomic_uint_fast64_t private_counts[KIND_COUNT];
static atomic_uint_fast64_t *counts = private_counts;

static void refuse(const char *what)
{
    static const char text[] = ": expected kind:n:how[:times], see test/sweep/preload.c\n";
    if (write(2, what, strlen(what)) > 0 && write(2, text, sizeof text - 1) > 0)
        _exit(2);
    _exit(2);
}

static void map_counts(const char *path)
{
    size_t bytes = sizeof private_counts;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        refuse(path);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        refuse(path);
    close(fd);
    counts = memory;
}

static void read_choice(const char *text)
{
    char kind[16], how[16];
    unsigned long n, times = 1;
    if (sscanf(text, "%15[a-z]:%lu:%15[A-Za-z]:%lu", kind, &n, how, &times) < 3)
        refuse(text);
    int found = -1;
    bool known = strcmp(how, "short") == 0;
    for (int i = 0; i < KIND_COUNT; i++)
        if (strcmp(kind, kind_names[i]) == 0)
            found = i;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(how, errors[i].name) == 0) {
            error_number = errors[i].number;
            known = true;
        }
    if (found < 0 || !known)
        refuse(text);
    first = n;
    last = times ? n + times - 1 : UINT64_MAX;
    chosen = n ? found : -1;
}

static void name_death(int number)
{
    static const char head[] = "preload: died in\n";
    void *frames[64];
    chosen = -1;
    if (write(2, head, sizeof head - 1) > 0)
        backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void begin(void)
{
    if (getenv("ONCED_FAIL_NAMES_DEATH")) {
        void *frame[1];
        backtrace(frame, 1); /* loads what it needs now, while memory is there */
        signal(SIGSEGV, name_death);
        signal(SIGABRT, name_death);
    }
    const char *path = getenv("ONCED_FAIL_COUNTS"), *text = getenv("ONCED_FAIL");
    if (path)
        map_counts(path);
    if (text)
        read_choice(text);
}

/* Counts a call; true when it is to fail. */
static bool fails(enum kind kind)
{
    uint64_t n = atomic_fetch_add(&counts[kind], 1) + 1;
    return (int)kind == chosen && n >= first && n <= last;
}

/* The same, with errno set; *cut tells that it is to be cut short instead. */
static bool fails_with(enum kind kind, bool *cut)
{
    *cut = false;
    if (!fails(kind))
        return false;
    *cut = error_number == 0;
    errno = error_number;
    return !*cut;
}

static bool is_type(int fd, mode_t type)
{
    struct stat st;
    int before = errno;
    bool is = fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type;
    errno = before;
    return is;
}

static size_t half(size_t n)
{
    return n > 1 ? n / 2 : n;
}

/* The function behind ours. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (!next)                                                                                                         \
    next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* ---- allocation ---- */

#define BEHIND(result, name, parameters)                                                                               \
    extern result __interceptor_##name parameters __attribute__((weak));                                               \
    extern result __libc_##name parameters
BEHIND(void *, malloc, (size_t));
BEHIND(void *, calloc, (size_t, size_t));
BEHIND(void *, realloc, (void *, size_t));
BEHIND(void *, memalign, (size_t, size_t));

static bool no_memory(void)
{
    bool no = fails(KIND_MALLOC);
    if (no)
        errno = ENOMEM;
    return no;
}

void *malloc(size_t bytes)
{
    if (no_memory())
        return NULL;
    return __interceptor_malloc ? __interceptor_malloc(bytes) : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    if (no_memory())
        return NULL;
    return __interceptor_calloc ? __interceptor_calloc(count, bytes) : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    if (bytes && no_memory())
        return NULL;
    return __interceptor_realloc ? __interceptor_realloc(old, bytes) : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    if (no_memory())
        return NULL;
    return __interceptor_memalign ? __interceptor_memalign(alignment, bytes) : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *memory = aligned_alloc(alignment, bytes);
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

/* ---- files ---- */

/* A write to a file or a socket; others (pipes, terminals, event counters) pass. */
static bool write_fails(int fd, bool *cut)
{
    *cut = false;
    if (is_type(fd, S_IFREG))
        return fails_with(KIND_WRITE, cut);
    return is_type(fd, S_IFSOCK) && fails_with(KIND_SEND, cut);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    NEXT(write);
    bool cut;
    return write_fails(fd, &cut) ? -1 : next(fd, bytes, cut ? half(n) : n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    NEXT(pwrite);
    bool cut;
    return write_fails(fd, &cut) ? -1 : next(fd, bytes, cut ? half(n) : n, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at)
{
    NEXT(pwrite64);
    bool cut;
    return write_fails(fd, &cut) ? -1 : next(fd, bytes, cut ? half(n) : n, at);
}

/* Cut short, only half of the first part is written. */
ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(writev);
    bool cut;
    if (write_fails(fd, &cut))
        return -1;
    struct iovec part = count > 0 ? (struct iovec){parts[0].iov_base, half(parts[0].iov_len)} : (struct iovec){0};
    return cut ? next(fd, &part, 1) : next(fd, parts, count);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    NEXT(pwritev);
    bool cut;
    if (write_fails(fd, &cut))
        return -1;
    struct iovec part = count > 0 ? (struct iovec){parts[0].iov_base, half(parts[0].iov_len)} : (struct iovec){0};
    return cut ? next(fd, &part, 1, at) : next(fd, parts, count, at);
}

int fsync(int fd)
{
    NEXT(fsync);
    bool cut;
    return fails_with(KIND_FSYNC, &cut) ? -1 : next(fd);
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    bool cut;
    return fails_with(KIND_FSYNC, &cut) ? -1 : next(fd);
}

#define MODE_OF(flags)                                                                                                 \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...)
{
    NEXT(open);
    bool cut;
    MODE_OF(flags);
    return fails_with(KIND_OPEN, &cut) ? -1 : next(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    NEXT(open64);
    bool cut;
    MODE_OF(flags);
    return fails_with(KIND_OPEN, &cut) ? -1 : next(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    NEXT(openat);
    bool cut;
    MODE_OF(flags);
    return fails_with(KIND_OPEN, &cut) ? -1 : next(folder, path, flags, mode);
}

/* ---- sockets ---- */

int socket(int domain, int type, int protocol)
{
    NEXT(socket);
    bool cut;
    return fails_with(KIND_SOCKET, &cut) ? -1 : next(domain, type, protocol);
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    NEXT(connect);
    bool cut;
    return fails_with(KIND_CONNECT, &cut) ? -1 : next(fd, address, length);
}

int accept(int fd, struct sockaddr *address, socklen_t *length)
{
    NEXT(accept);
    bool cut;
    return fails_with(KIND_ACCEPT, &cut) ? -1 : next(fd, address, length);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    NEXT(accept4);
    bool cut;
    return fails_with(KIND_ACCEPT, &cut) ? -1 : next(fd, address, length, flags);
}

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
    NEXT(send);
    bool cut;
    return fails_with(KIND_SEND, &cut) ? -1 : next(fd, bytes, cut ? half(n) : n, flags);
}

ssize_t sendto(int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to, socklen_t length)
{
    NEXT(sendto);
    bool cut;
    return fails_with(KIND_SEND, &cut) ? -1 : next(fd, bytes, cut ? half(n) : n, flags, to, length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    NEXT(sendmsg);
    bool cut;
    if (fails_with(KIND_SEND, &cut))
        return -1;
    struct msghdr shorter = *message;
    struct iovec part = {0};
    if (message->msg_iovlen > 0)
        part = (struct iovec){message->msg_iov[0].iov_base, half(message->msg_iov[0].iov_len)};
    shorter.msg_iov = &part;
    shorter.msg_iovlen = 1;
    return next(fd, cut ? &shorter : message, flags);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    NEXT(read);
    bool cut = false;
    if (is_type(fd, S_IFSOCK) && fails_with(KIND_RECV, &cut))
        return -1;
    return next(fd, bytes, cut ? 1 : n);
}

ssize_t recv(int fd, void *bytes, size_t n, int flags)
{
    NEXT(recv);
    bool cut;
    return fails_with(KIND_RECV, &cut) ? -1 : next(fd, bytes, cut ? 1 : n, flags);
}

ssize_t recvfrom(int fd, void *bytes, size_t n, int flags, struct sockaddr *from, socklen_t *length)
{
    NEXT(recvfrom);
    bool cut;
    return fails_with(KIND_RECV, &cut) ? -1 : next(fd, bytes, cut ? 1 : n, flags, from, length);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    NEXT(recvmsg);
    bool cut;
    return fails_with(KIND_RECV, &cut) ? -1 : next(fd, message, flags);
}
