/* Processes that onced starts: MCP servers and commands. Each has a session and process group of its own, gets no
 * descriptors but its standard streams, and dies with the thread that started it (SIGKILL, PR_SET_PDEATHSIG). */
#ifndef ADAPTER_CHILD_H
#define ADAPTER_CHILD_H

#include "base/err.h"

#include <sys/types.h>
#include <uv.h>

/* The children of one loop whose ends are watched together. Several of them may be on one loop. */
struct children;
struct children *children_new(uv_loop_t *loop);
/* When no child is left. closed comes from within or from the loop; children is released by then. */
void children_close(struct children *children, void (*closed)(void *user), void *user);

struct child_spec {
    char *const *argv; /* ends with NULL; argv[0] without "/" is looked for in env's PATH */
    char *const *env;  /* "NAME=value", ends with NULL: all that it gets; NULL = nothing */
    const char *cwd;   /* NULL = ours; argv[0] with "/" is relative to it */
};

/* Embedded by its owner, who keeps it until exited was called. */
struct child {
    pid_t pid; /* and process group, and session */
    /* Called once; what was left of its process group was killed. status as wait(2) gives it. */
    void (*exited)(struct child *child, int status);
    struct child *next, **at;
};

/* pipes: our ends of its stdin, stdout and stderr, to be closed by the caller. After an error (the program is not
 * there, may not be executed, no process can be made) nothing of it was executed. */
enum err_code child_start(struct children *children, struct child *child, const struct child_spec *spec, int pipes[3],
                          struct err *err);
void child_kill(const struct child *child, int signal); /* its whole process group */

#endif
