/* Not uv_spawn: between fork and exec the child has to say that it does not want to outlive us.
 *
 *   session and process group of its own   a terminal's Ctrl-C does not reach it; it and its children are killed as one
 *   PR_SET_PDEATHSIG = SIGKILL             ends it with us, also after kill -9: what it was about to do must not happen
 *                                          behind the back of the next onced, which asks its own server what is so
 *   stdin ends with us                     what its children get to see (a wrapper such as npx runs the server below
 * it) no descriptors but 0, 1, 2             those of the ledger and of clients stay ours
 *
 * A child's end is told by SIGCHLD; every child is looked at, since signals merge. */
#include "adapter/child.h"

#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct children {
    uv_loop_t *loop;
    uv_signal_t signal; /* started with the first child */
    bool watching;
    struct child *first;
    void (*closed)(void *user);
    void *user;
};

/* ---- the end of a child ---- */

static bool has_ended(const struct child *child)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child->pid;
}

static void child_remove(struct child *child)
{
    *child->at = child->next;
    if (child->next)
        child->next->at = child->at;
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct children *children = signal->data;
    (void)number;
    struct child *child = children->first;
    while (child) {
        if (!has_ended(child)) {
            child = child->next;
            continue;
        }
        int status = 0;
        child_kill(child, SIGKILL); /* while its id is still taken: nobody else can be meant */
        waitpid(child->pid, &status, 0);
        child_remove(child);
        child->exited(child, status);
        child = children->first; /* whoever was told may have done anything */
    }
}

void child_kill(const struct child *child, int signal)
{
    kill(-child->pid, signal);
}

struct children *children_new(uv_loop_t *loop)
{
    struct children *children = mem_zero(sizeof *children);
    children->loop = loop;
    children->signal.data = children;
    return children;
}

static void on_signal_closed(uv_handle_t *handle)
{
    struct children *children = handle->data;
    void (*closed)(void *user) = children->closed;
    void *user = children->user;
    free(children);
    closed(user);
}

void children_close(struct children *children, void (*closed)(void *user), void *user)
{
    assert(!children->first);
    children->closed = closed;
    children->user = user;
    if (children->signal.loop) {
        uv_close((uv_handle_t *)&children->signal, on_signal_closed);
        return;
    }
    free(children);
    closed(user);
}

static enum err_code watch(struct children *children, struct err *err)
{
    if (children->watching)
        return ERR_NONE;
    if (!children->signal.loop && uv_signal_init(children->loop, &children->signal) != 0) {
        children->signal.loop = NULL;
        return err_set(err, ERR_IO, "the event loop does not take signals");
    }
    if (uv_signal_start(&children->signal, on_signal, SIGCHLD) != 0)
        return err_set(err, ERR_IO, "the end of processes cannot be watched");
    children->watching = true;
    return ERR_NONE;
}

/* ---- its beginning ---- */

static const char *path_of(char *const *env)
{
    for (; env && *env; env++) {
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    }
    return "/usr/local/bin:/usr/bin:/bin";
}

/* The program as the child's PATH has it, heap. */
static enum err_code find_program(const struct child_spec *spec, char **out, struct err *err)
{
    const char *name = spec->argv[0], *at = path_of(spec->env);
    if (strchr(name, '/')) {
        *out = mem_copy_text(name);
        return ERR_NONE;
    }
    while (*at) {
        size_t n = strcspn(at, ":");
        struct buf path;
        buf_init(&path, 0);
        buf_printf(&path, "%.*s%s%s", (int)n, at, n > 0 ? "/" : "./", name);
        if (access(path.p, X_OK) == 0) {
            *out = buf_detach(&path, NULL);
            return ERR_NONE;
        }
        buf_release(&path);
        at += n + (at[n] == ':');
    }
    return err_set(err, ERR_NOT_FOUND, "%s is not in the PATH of its environment", name);
}

enum step { STEP_DIRECTORY, STEP_PROGRAM };
struct failure {
    enum step step;
    int error;
};

static void fail(int fd, enum step step)
{
    struct failure failure = {step, errno};
    if (write(fd, &failure, sizeof failure) < 0)
        _exit(126);
    _exit(127);
}

/* After fork: nothing but system calls until exec. */
static void run_child(const struct child_spec *spec, const char *program, int ends[3], int report, pid_t parent)
{
    char *const none[] = {NULL};
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        signal(signal_number, SIG_DFL);
    sigset_t nothing;
    sigemptyset(&nothing);
    sigprocmask(SIG_SETMASK, &nothing, NULL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before that was said */
        _exit(127);
    for (int i = 0; i < 3; i++)
        dup2(ends[i], i);
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    if (spec->cwd && chdir(spec->cwd) != 0)
        fail(report, STEP_DIRECTORY);
    execve(program, spec->argv, spec->env ? spec->env : none);
    fail(report, STEP_PROGRAM);
}

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Above 2, so that dup2 onto 0, 1 and 2 overwrites none of them. */
static bool pipe_above(int ends[2])
{
    int low[2];
    if (pipe2(low, O_CLOEXEC) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 3);
        close(low[i]);
    }
    if (ends[0] >= 0 && ends[1] >= 0)
        return true;
    close_all(ends, 2);
    return false;
}

static enum err_code await_exec(const struct child_spec *spec, const char *program, int report, pid_t pid,
                                struct err *err)
{
    struct failure failure;
    ssize_t n;
    while ((n = read(report, &failure, sizeof failure)) < 0 && errno == EINTR)
        ;
    if (n != sizeof failure)
        return ERR_NONE; /* the pipe was closed by exec */
    waitpid(pid, NULL, 0);
    errno = failure.error;
    if (failure.step == STEP_DIRECTORY)
        return err_set(err, ERR_IO, "cwd %s: %m", spec->cwd);
    return err_set(err, ERR_IO, "%s cannot be started: %m", program);
}

static pid_t fork_child(const struct child_spec *spec, const char *program, int ends[3], int report)
{
    sigset_t all, former;
    pid_t parent = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former); /* our handlers must not run in the child */
    pid_t pid = fork();
    if (pid == 0)
        run_child(spec, program, ends, report, parent);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    return pid;
}

enum err_code child_start(struct children *children, struct child *child, const struct child_spec *spec, int pipes[3],
                          struct err *err)
{
    /* stdin, stdout, stderr, report: reading and writing end */
    int ends[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    char *program = NULL;
    enum err_code code = watch(children, err);
    if (!code)
        code = find_program(spec, &program, err);
    for (int i = 0; i < 4 && !code; i++) {
        if (!pipe_above(ends + 2 * i))
            code = err_set(err, ERR_IO, "no pipe to the process: %m");
    }
    if (!code) {
        child->pid = fork_child(spec, program, (int[3]){ends[0], ends[3], ends[5]}, ends[7]);
        if (child->pid < 0)
            code = err_set(err, ERR_IO, "no process can be made: %m");
    }
    close_all(&ends[7], 1);
    if (!code)
        code = await_exec(spec, program, ends[6], child->pid, err);
    free(program);
    if (code) {
        close_all(ends, 8);
        return code;
    }
    pipes[0] = ends[1];
    pipes[1] = ends[2];
    pipes[2] = ends[4];
    ends[1] = ends[2] = ends[4] = -1;
    close_all(ends, 8);
    child->next = children->first;
    child->at = &children->first;
    if (child->next)
        child->next->at = &child->next;
    children->first = child;
    return ERR_NONE;
}
