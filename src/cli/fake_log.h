/* Every request that the fault-injecting provider saw, the newest ones kept: what tests compare attempt rows with
 * (design 5.2). */
#ifndef CLI_FAKE_LOG_H
#define CLI_FAKE_LOG_H

#include "base/json.h"
#include "cli/fake_fault.h"

#include <stdint.h>

/* What became of a request on the wire. */
enum fake_outcome {
    OUTCOME_OPEN, /* being worked on or held */
    OUTCOME_ANSWERED,
    OUTCOME_CLOSED, /* connection closed without an answer */
    OUTCOME_RESET,  /* TCP RST */
    OUTCOME_BROKEN, /* half an answer */
    OUTCOME_LEFT    /* the client went away while it was held */
};

struct fake_entry {
    uint64_t n;          /* number of the request, from 1 */
    uint64_t connection; /* number of the connection, from 1 */
    int64_t wall_ms;     /* when it was read */
    int64_t answered_ms; /* 0 = not */
    enum fake_outcome outcome;
    int status;     /* 0 = none sent */
    bool replayed;  /* the key was known */
    bool effect;    /* this request caused the effect named object */
    char *text;     /* owned: method, path, key, reference, object, plan; each ended by NUL */
    uint16_t at[6]; /* where each begins; 0xffff = absent */
    size_t size, cap;
};

enum { LOG_METHOD, LOG_PATH, LOG_KEY, LOG_REFERENCE, LOG_OBJECT, LOG_PLAN };
#define FAKE_LOG_TEXT_MAX 1024 /* of one path, key …; longer ones are cut */

struct fake_log {
    struct fake_entry *ring; /* by n % max */
    size_t max;              /* 0 = nothing is kept */
    uint64_t count;          /* seen */
};

void fake_log_init(struct fake_log *log, size_t max);
void fake_log_release(struct fake_log *log);
void fake_log_reset(struct fake_log *log);

/* Starts an entry; its number comes back. */
uint64_t fake_log_add(struct fake_log *log, uint64_t connection, int64_t wall_ms, const char *method, struct str path);
/* NULL when it is kept no longer (or never was). */
struct fake_entry *fake_log_find(struct fake_log *log, uint64_t n);
/* Absent texts are left absent. */
void fake_entry_set(struct fake_entry *entry, int what, struct str text);

/* Entries from number `since` on, at most limit, oldest first; reference present: only those with it. */
void fake_log_write(struct json_out *out, struct fake_log *log, uint64_t since, size_t limit, struct str reference);

#endif
