/* One life of a gateway, in a process of its own: real engine, real SQLite ledger, simulated clock, and a provider that
 * counts effects in memory that outlives the process. It makes INTENTS calls at three tools, gets ambiguous and refused
 * answers, looks up, sends again, lets a person resolve, closes the ledger and opens it again, and lets the retention
 * pass. A life that ends early (power, memory, a ledger that can not be opened) is continued by the next one, which
 * makes the same calls again.
 *
 * A life ends with one of these as exit status; whoever started it knows which are allowed. */
#ifndef SWEEP_LIFE_H
#define SWEEP_LIFE_H

#include "core/operation.h"
#include "sweep/disk.h"

#include <stdbool.h>
#include <stdint.h>

#define INTENTS 13

enum life_end {
    LIFE_DONE = 0,
    LIFE_REFUSED = 3, /* the ledger could not be opened; `word` says why */
    LIFE_TIRED = 4,   /* not everything settled in the time that a life has: the fault lasts */
    LIFE_BROKEN = 5   /* a promise is broken; `word` says which */
};

/* What a caller was told as the end of an intent. */
struct told {
    bool told;
    char operation[OPERATION_ID_SIZE];
    enum state state;
    char external_id[32];
    char payload[256]; /* result and error */
};

/* The provider's side of an intent. */
struct counted {
    unsigned tries;          /* attempts that the engine made, those that never left too */
    unsigned calls, lookups; /* requests that arrived */
    unsigned effects;
    char key[128]; /* of the first effect */
};

/* Shared by all lives of one case. */
struct life_memory {
    int64_t now_ms;
    uint64_t random;
    bool retention_began;
    struct told told[INTENTS];
    struct counted counted[INTENTS];
    /* of the present life */
    uint64_t disk_calls[DISK_CALLS], disk_changes;
    uint64_t commands; /* that write, as the ledger got them */
    uint64_t allocations;
    char word[1024];
};

struct life_plan {
    struct disk_plan disk;
    uint64_t command_nth, command_times; /* the ledger refuses so many commands from that one on; 0 = none */
};

/* In a child process. path: the ledger file. */
enum life_end life_run(struct life_memory *memory, const struct life_plan *plan, const char *path);

/* After the last life: the file itself. LIFE_DONE or LIFE_BROKEN. */
enum life_end life_check_file(struct life_memory *memory, const char *path);

#endif
