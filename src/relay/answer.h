/* What a gateway's answer means for a row. Pure. */
#ifndef RELAY_ANSWER_H
#define RELAY_ANSWER_H

#include "base/arena.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define RELAY_OPERATION_BYTES 40
#define RELAY_STATUS_BYTES    32
#define RELAY_PROBLEM_BYTES   1000

enum relay_outcome {
    RELAY_ADMITTED,     /* the operation is in the ledger and goes on there */
    RELAY_ENDED,        /* … and has ended */
    RELAY_REFUSED,      /* nothing was recorded, and the same call would be refused again */
    RELAY_LATER,        /* nothing is known about this row: again, after a while */
    RELAY_AWAY,         /* the gateway takes nothing now, of no row */
    RELAY_UNAUTHORIZED, /* … because of the token */
};

struct relay_verdict {
    enum relay_outcome outcome;
    char operation[RELAY_OPERATION_BYTES]; /* "" unless admitted or ended */
    char status[RELAY_STATUS_BYTES];       /* ended: the operation's */
    bool failed;                           /* ended without effect: failed_permanent, rejected */
    bool suspect;                          /* later: no word of onced; the gateway may be at fault, or the row */
    int64_t retry_after_ms;                /* what the gateway asked for; 0 = nothing */
    char problem[RELAY_PROBLEM_BYTES];     /* for people: UTF-8 without control characters; "" = none */
};

struct relay_answer {
    long status;
    struct str operation;   /* header Onced-Operation-Id; absent without one */
    int64_t retry_after_ms; /* header Retry-After; 0 without one */
    struct str body;
    bool over; /* the body was longer than what is kept of it */
};

/* Of a call, or of a look at an operation. */
void relay_judge(const struct relay_answer *answer, struct relay_verdict *out);

/* What a row's arguments must be to go along: a JSON object (absent: none). text is the column's, NULL = SQL's null.
 * False: *out is a refusal. Nothing of text can reach beyond its place in the body. */
bool relay_arguments_fit(const char *text, size_t bytes, size_t bytes_max, struct relay_verdict *out);

/* A refusal in words of ours. */
void relay_refuse(struct relay_verdict *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
