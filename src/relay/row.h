/* One row of the outbox: the call that it is, and what it is to be marked with. Pure. */
#ifndef RELAY_ROW_H
#define RELAY_ROW_H

#include "relay/answer.h"
#include "relay/relay.h"

struct relay_row {
    const char *id, *tool, *entity, *run_id, *tenant, *operation; /* as texts; NULL = SQL's null */
    const char *arguments;                                        /* NULL: null, or too large to be read */
    size_t arguments_bytes;
    int64_t attempts;
    struct relay_row *next; /* of the same entity, in this batch */
    unsigned tries;         /* addresses that could not be reached for it */
    bool decided;           /* verdict is what the row is to be marked with */
    bool replayed;
    int64_t delay_ms; /* verdict later, or admitted: when it is looked at again */
    struct relay_verdict verdict;
};

/* Whether it can be sent at all (or looked at, when it has an operation). False: row->verdict says why not. */
bool relay_row_fits(struct relay_row *row, const struct relay_settings *settings);
/* The body of POST /v1/calls. Only of rows that fit. */
void relay_row_write_call(const struct relay_row *row, const struct relay_settings *settings, struct buf *out);

/* Whether the next row of the entity may be sent, now that this one is decided. */
bool relay_row_lets_next_go(const struct relay_row *row, const struct relay_settings *settings);

/* When a row that goes on is looked at again: 200 ms doubling to 30 s; one that was not decided: 200 ms doubling to 5
 * min, or what the gateway asked for. */
int64_t relay_row_delay_ms(const struct relay_row *row);
/* What its columns say then. */
const char *relay_row_status(const struct relay_row *row);
int64_t relay_row_attempts(const struct relay_row *row);

/* first doubled so many times, at most max. */
int64_t relay_doubled(int64_t first_ms, int64_t times, int64_t max_ms);

#endif
