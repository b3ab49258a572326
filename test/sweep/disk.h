/* A disk that fails: an SQLite file layer below onced's own (src/ledger/sqlite_vfs.c), which finds it under the name
 * "unix". The real files hold what running programs see (the system's cache). Beside them a model in memory keeps what
 * is durable: the content at the last successful sync, and the writes and truncations since then, in their order. At a
 * power loss the real files are replaced by what a disk might hold: of each write since the last sync, every sector of
 * 512 bytes is there or not; the process ends at once.
 *
 *     what is synced                         survives
 *     what is written, not synced            by seed: all lost, all kept, each sector by itself, or the first ones up
 *                                            to some sector in the middle of one write (a torn page)
 *     what was written before a failed sync  likewise, decided at that moment: a later sync does not make it durable
 *     creation and deletion of files         survive (onced and SQLite sync folders; not modelled)
 *     shared memory (-shm)                   is there as it was, or gone
 *
 * One disk per process; its children inherit it. Not for programs that write the same files without SQLite. */
#ifndef SWEEP_DISK_H
#define SWEEP_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum disk_call { DISK_WRITE, DISK_SYNC, DISK_TRUNCATE, DISK_READ, DISK_OPEN, DISK_DELETE, DISK_SHM_MAP, DISK_CALLS };

enum disk_fault {
    DISK_FINE,
    DISK_IO_ERROR, /* EIO and its relatives */
    DISK_FULL,     /* writes: ENOSPC, nothing written */
    DISK_SHORT,    /* writes: ENOSPC after the first half */
    DISK_POWER     /* the power fails just before the call */
};

/* What shall go wrong. */
struct disk_plan {
    enum disk_call call; /* DISK_POWER: of writes, syncs, truncations and deletions together (changes) */
    uint64_t nth;        /* from 1 on; 0 = never */
    uint64_t times;      /* how many in a row fail; 0 = all later ones */
    enum disk_fault fault;
    uint64_t power_after; /* 0 = no; else the power also fails so many changes after the nth call */
    uint64_t seed;        /* of what a power loss leaves */
};

#define DISK_POWER_EXIT 77 /* exit status of a process whose power failed */

/* calls: DISK_CALLS counters that outlive the process (shared memory); changes likewise. Registers the layer; before
 * SQLite's first use. */
void disk_start(const struct disk_plan *plan, uint64_t *calls, uint64_t *changes);

#endif
