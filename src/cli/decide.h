/* People's decisions about an operation: resolve, retry and cancel look at it first, tell what they saw, and pass its
 * version on, so that a decision never hits another state than the one that was looked at. */
#ifndef CLI_DECIDE_H
#define CLI_DECIDE_H

#include "cli/command.h"

struct decision {
    const char *verb; /* "resolve", "retry", "cancel": last segment of the path */
    const char *operation;
    int64_t version;  /* that the person looked at; 0: the present one */
    const char *note; /* NULL = none */
    /* resolve */
    bool resolves, happened, retry;
    const char *external_id; /* NULL = none */
    const char *result;      /* JSON or NULL */
};

/* Reads "--version N". False when a message was printed. */
bool decision_version(const struct cli_command *command, const char *text, int64_t *version);

/* All of a command that takes nothing but an operation and these options; the verb is its name. */
extern const struct cli_option decision_options[];
int decision_main(int argc, char **argv, const struct cli_command *command);

/* Looks, decides, prints. Returns the exit code: CLI_OK when the decision was taken. */
int decision_run(const struct cli_args *args, const struct decision *decision);

#endif
