/* Runs a command with its output passed on and kept, and somebody told now and then that it goes on. */
#ifndef CLI_GUARD_RUN_H
#define CLI_GUARD_RUN_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

#define GUARD_OUTPUT_BYTES_MAX (24 * 1024) /* of each stream that is kept; more is passed on only */

struct guard_run {
    char *const *argv;     /* ends with NULL */
    const char *key;       /* ONCED_IDEMPOTENCY_KEY of the command; NULL = none */
    const char *operation; /* ONCED_OPERATION */
    int64_t beat_ms;       /* between calls of beat */
    void (*beat)(void *user);
    void *user;
    /* out */
    struct buf output, errors; /* its beginning; over: there was more. Released by the caller */
    int status;                /* as wait(2) gives it */
};

/* SIGINT, SIGTERM and SIGHUP go to the command, which dies with us. ERR_NOT_FOUND, ERR_IO: it could not be started:
 * nothing of it was executed. */
enum err_code guard_run(struct guard_run *run, struct err *err);

#endif
