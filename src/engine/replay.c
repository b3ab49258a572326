#include "engine/replay.h"

#include "base/mem.h"

#include <stdlib.h>

void replay_init(struct replay *replay, bool enabled)
{
    replay->places = enabled ? mem_zero(REPLAY_PLACES * sizeof *replay->places) : NULL;
}

static void empty(struct replay_place *place)
{
    if (place->op)
        arena_release(&place->arena);
    place->op = NULL;
}

void replay_release(struct replay *replay)
{
    for (size_t i = 0; replay->places && i < REPLAY_PLACES; i++)
        empty(&replay->places[i]);
    free(replay->places);
    replay->places = NULL;
}

static struct replay_place *place_of(const struct replay *replay, const struct digest *key_hash)
{
    return &replay->places[(size_t)digest_int64(key_hash) & (REPLAY_PLACES - 1)];
}

void replay_keep(struct replay *replay, const struct operation *op)
{
    size_t bytes = op->arguments.n + op->result.n + op->error.n;
    if (!replay->places || !state_terminal(op->state) || bytes > REPLAY_BYTES_MAX)
        return;
    struct replay_place *place = place_of(replay, &op->key_hash);
    empty(place);
    arena_init(&place->arena);
    place->op = operation_copy(&place->arena, op);
}

const struct operation *replay_find(const struct replay *replay, const struct digest *key_hash)
{
    if (!replay->places)
        return NULL;
    const struct operation *op = place_of(replay, key_hash)->op;
    return op && digest_equal(&op->key_hash, key_hash) ? op : NULL;
}

void replay_forget(struct replay *replay, const struct digest *key_hash)
{
    if (!replay->places)
        return;
    struct replay_place *place = place_of(replay, key_hash);
    if (place->op && digest_equal(&place->op->key_hash, key_hash))
        empty(place);
}
