#include "base/mark.h"

#ifdef ONCED_MARKS
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK_NAME(name) #name,
static const char *const names[MARK_COUNT] = {MARKS(MARK_NAME)};
#undef MARK_NAME

/* Of the whole process by intention: a crash is, too. */
static int wanted = -1;
static atomic_long passes_left;

static void read_environment(void)
{
    const char *text = getenv("ONCED_KILL_AT");
    if (!text)
        return;
    const char *colon = strchr(text, ':');
    char *end = NULL;
    long n = colon ? strtol(colon + 1, &end, 10) : 0;
    for (int i = 0; colon && i < MARK_COUNT; i++)
        if (strlen(names[i]) == (size_t)(colon - text) && strncmp(names[i], text, (size_t)(colon - text)) == 0)
            wanted = i;
    if (wanted < 0 || n < 1 || *end) {
        fprintf(stderr, "onced: ONCED_KILL_AT=%s: expected the name of a mark (src/base/mark.h), a colon, a count\n",
                text);
        _exit(2);
    }
    atomic_store(&passes_left, n);
}

void mark_pass(enum mark mark)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    if ((int)mark == wanted && atomic_fetch_sub(&passes_left, 1) == 1)
        kill(getpid(), SIGKILL);
}
#endif
