/* Answers of closed operations, kept in memory so that a storm of replays needs no ledger (design 4). Right only for
 * the sole owner of a ledger: every change of an operation goes through this process, and each one forgets what was
 * kept under its key. Bounded: a fixed number of places, small operations only; a newer one takes the place of an
 * older. */
#ifndef ENGINE_REPLAY_H
#define ENGINE_REPLAY_H

#include "core/operation.h"

#define REPLAY_PLACES    16384 /* a power of two; with few collisions among some thousand busy keys */
#define REPLAY_BYTES_MAX 2048  /* of arguments, result and error together; larger operations are not kept */

struct replay_place {
    struct arena arena;
    struct operation *op; /* NULL = empty */
};

struct replay {
    struct replay_place *places; /* NULL = switched off: nothing is kept, nothing found */
};

void replay_init(struct replay *replay, bool enabled);
void replay_release(struct replay *replay);

/* Keeps a copy of op, which the ledger has just named as the newest operation of its key. Open ones are not kept. */
void replay_keep(struct replay *replay, const struct operation *op);

/* NULL when nothing is kept. Valid until the next replay_keep or replay_forget. */
const struct operation *replay_find(const struct replay *replay, const struct digest *key_hash);

/* Something about this key has changed, or may have. */
void replay_forget(struct replay *replay, const struct digest *key_hash);

#endif
