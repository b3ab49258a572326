#include "cli/guard_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OUT, ERR, REPORT, PIPES };

struct running {
    struct guard_run *run;
    pid_t pid;
    int ends[PIPES][2]; /* of stdout, stderr, and what exec says when it fails */
    int signals;
    sigset_t former;
    int64_t beat_at_ms;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- the beginning ---- */

static void run_child(struct running *r, pid_t parent)
{
    sigprocmask(SIG_SETMASK, &r->former, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before that was said */
        _exit(127);
    dup2(r->ends[OUT][1], STDOUT_FILENO);
    dup2(r->ends[ERR][1], STDERR_FILENO);
    execvp(r->run->argv[0], r->run->argv);
    int error = errno;
    ssize_t said = write(r->ends[REPORT][1], &error, sizeof error);
    _exit(said < 0 ? 126 : 127);
}

static enum err_code await_exec(struct running *r, struct err *err)
{
    int error;
    ssize_t n;
    while ((n = read(r->ends[REPORT][0], &error, sizeof error)) < 0 && errno == EINTR)
        ;
    if (n != sizeof error)
        return ERR_NONE; /* the pipe was closed by exec */
    waitpid(r->pid, NULL, 0);
    errno = error;
    return err_set(err, error == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s cannot be started: %m", r->run->argv[0]);
}

static enum err_code start(struct running *r, struct err *err)
{
    sigset_t caught;
    pid_t parent = getpid();
    sigemptyset(&caught);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    sigaddset(&caught, SIGHUP);
    sigaddset(&caught, SIGCHLD);
    sigprocmask(SIG_BLOCK, &caught, &r->former);
    r->signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int i = 0; i < PIPES; i++) {
        if (r->signals < 0 || pipe2(r->ends[i], O_CLOEXEC) != 0)
            return err_set(err, ERR_IO, "no pipe to the command: %m");
    }
    if (r->run->key)
        setenv("ONCED_IDEMPOTENCY_KEY", r->run->key, 1);
    if (r->run->operation)
        setenv("ONCED_OPERATION", r->run->operation, 1);
    r->pid = fork();
    if (r->pid < 0)
        return err_set(err, ERR_IO, "no process can be made: %m");
    if (r->pid == 0)
        run_child(r, parent);
    for (int i = 0; i < PIPES; i++)
        close_end(&r->ends[i][1]);
    return await_exec(r, err);
}

/* ---- while it runs ---- */

static void pass_on(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno != EINTR)
            return; /* nobody reads any more: it is recorded all the same */
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
}

/* False at the end of the stream. */
static bool relay(int from, int to, struct buf *kept)
{
    char bytes[8192];
    ssize_t n = read(from, bytes, sizeof bytes);
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    pass_on(to, bytes, (size_t)n);
    size_t room = kept->max - kept->n;
    if (!kept->over)
        buf_add(kept, bytes, (size_t)n < room ? (size_t)n : room);
    kept->over = kept->over || (size_t)n > room;
    return true;
}

/* True once the command has ended. */
static bool take_signals(struct running *r)
{
    struct signalfd_siginfo info;
    bool ended = false;
    while (read(r->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            ended = waitpid(r->pid, &r->run->status, WNOHANG) == r->pid || ended;
        else if (!ended)
            kill(r->pid, (int)info.ssi_signo);
    }
    return ended;
}

static int beat(struct running *r)
{
    int64_t now = now_ms();
    if (now >= r->beat_at_ms) {
        r->run->beat(r->run->user);
        now = now_ms();
        r->beat_at_ms = now + r->run->beat_ms;
    }
    return (int)(r->beat_at_ms - now);
}

#define LAST_WORDS_MS 200 /* others may hold its streams */

static void follow(struct running *r)
{
    struct buf *kept[] = {&r->run->output, &r->run->errors};
    bool ended = false;
    while (!ended || r->ends[OUT][0] >= 0 || r->ends[ERR][0] >= 0) {
        struct pollfd fds[] = {{.fd = r->ends[OUT][0], .events = POLLIN},
                               {.fd = r->ends[ERR][0], .events = POLLIN},
                               {.fd = ended ? -1 : r->signals, .events = POLLIN}};
        int n = poll(fds, 3, ended ? LAST_WORDS_MS : beat(r));
        if (ended && n == 0)
            return;
        for (int i = OUT; i <= ERR; i++) {
            if (n > 0 && fds[i].revents && !relay(r->ends[i][0], i + 1, kept[i]))
                close_end(&r->ends[i][0]);
        }
        if (!ended)
            ended = take_signals(r);
    }
}

enum err_code guard_run(struct guard_run *run, struct err *err)
{
    struct running r = {.run = run, .ends = {{-1, -1}, {-1, -1}, {-1, -1}}, .signals = -1};
    buf_init(&run->output, GUARD_OUTPUT_BYTES_MAX);
    buf_init(&run->errors, GUARD_OUTPUT_BYTES_MAX);
    enum err_code code = start(&r, err);
    if (!code) {
        r.beat_at_ms = now_ms() + run->beat_ms;
        follow(&r);
    }
    for (int i = 0; i < PIPES; i++) {
        close_end(&r.ends[i][0]);
        close_end(&r.ends[i][1]);
    }
    close_end(&r.signals);
    sigprocmask(SIG_SETMASK, &r.former, NULL);
    return code;
}
