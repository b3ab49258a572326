#include "sweep/case.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void case_init(struct sweep_case *sweep)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* memory is quicker than a disk */
    snprintf(sweep->folder, sizeof sweep->folder, "%s/onced-sweep-XXXXXX", base);
    void *memory = mmap(NULL, sizeof *sweep->memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || !mkdtemp(sweep->folder)) {
        perror("sweep");
        exit(1);
    }
    sweep->memory = memory;
    snprintf(sweep->ledger, sizeof sweep->ledger, "%s/onced.db", sweep->folder);
    snprintf(sweep->log, sizeof sweep->log, "%s/log", sweep->folder);
}

static void empty_folder(const struct sweep_case *sweep)
{
    DIR *folder = opendir(sweep->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
}

void case_release(struct sweep_case *sweep)
{
    empty_folder(sweep);
    rmdir(sweep->folder);
    munmap(sweep->memory, sizeof *sweep->memory);
}

void case_reset(struct sweep_case *sweep)
{
    empty_folder(sweep);
    memset(sweep->memory, 0, sizeof *sweep->memory);
}

int case_child(struct sweep_case *sweep, int (*body)(struct sweep_case *sweep, const void *argument),
               const void *argument)
{
    struct life_memory *memory = sweep->memory;
    memset(memory->disk_calls, 0, sizeof memory->disk_calls);
    memory->disk_changes = memory->commands = memory->allocations = 0;
    memory->word[0] = '\0';
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int log = open(sweep->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (log < 0 || dup2(log, 2) < 0)
            _exit(1);
        alarm(60); /* a life that hangs is a failure, not a wait */
        _exit(body(sweep, argument));
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("sweep");
        exit(1);
    }
    return status;
}

void case_log(const struct sweep_case *sweep, char *text, size_t n)
{
    int log = open(sweep->log, O_RDONLY | O_CLOEXEC);
    ssize_t got = log >= 0 ? read(log, text, n - 1) : 0;
    text[got > 0 ? got : 0] = '\0';
    if (log >= 0)
        close(log);
}

const char *case_ended(struct sweep_case *sweep, int status, unsigned allowed)
{
    static char text[4096];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == LIFE_REFUSED && (allowed & 1u << LIFE_REFUSED) && sweep->memory->word[0] == '\0')
        return "the ledger was refused without a word";
    if (code >= 0 && code <= LIFE_BROKEN && (allowed & 1u << code))
        return NULL;
    if (code == LIFE_BROKEN)
        return sweep->memory->word;
    size_t n = (size_t)snprintf(text, sizeof text, "it ended with %s %d (%s): ", code >= 0 ? "status" : "signal",
                                code >= 0 ? code : WTERMSIG(status), sweep->memory->word);
    case_log(sweep, text + n, sizeof text - n);
    return text;
}

static int undisturbed(struct sweep_case *sweep, const void *argument)
{
    static const struct life_plan no_faults;
    (void)argument;
    enum life_end end = life_run(sweep->memory, &no_faults, sweep->ledger);
    return end == LIFE_DONE ? life_check_file(sweep->memory, sweep->ledger) : end;
}

const char *case_judge(struct sweep_case *sweep)
{
    return case_ended(sweep, case_child(sweep, undisturbed, NULL), 1u << LIFE_DONE);
}

bool case_full(void)
{
    const char *length = getenv("ONCED_SWEEP");
    return length && strcmp(length, "full") == 0;
}

uint64_t case_point(uint64_t total, unsigned few, unsigned i)
{
    const char *length = getenv("ONCED_SWEEP");
    if (length && atoi(length) > 1)
        few = (unsigned)atoi(length);
    if (total <= few || case_full())
        return i < total ? i + 1 : 0;
    return i < few ? 1 + i * (total - 1) / (few - 1) : 0;
}
