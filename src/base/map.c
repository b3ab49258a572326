#include "base/map.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct map_slot {
    const char *key; /* NULL = never used, removed = REMOVED */
    void *value;
    uint64_t hash;
};

static const char removed[] = "";
#define REMOVED removed

void map_init(struct map *map)
{
    *map = (struct map){0};
}

void map_release(struct map *map)
{
    free(map->slots);
    map_init(map);
}

/* Eight bytes at a time: most keys are ids of thirty. The same on every machine of one byte order, and nothing may
 * depend on it. */
static uint64_t hash_text(const char *text)
{
    size_t n = strlen(text);
    uint64_t hash = 14695981039346656037u ^ n, word;
    for (; n >= sizeof word; text += sizeof word, n -= sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = (hash ^ word) * 0x9fb21c651e98df25u;
        hash ^= hash >> 32;
    }
    for (word = 0; n > 0; n--)
        word = word << 8 | (unsigned char)*text++;
    hash = (hash ^ word) * 0x9fb21c651e98df25u;
    return hash ^ hash >> 32;
}

static struct map_slot *find(const struct map *map, const char *key, uint64_t hash)
{
    if (!map->cap)
        return NULL;
    for (size_t i = hash & (map->cap - 1);; i = (i + 1) & (map->cap - 1)) {
        struct map_slot *slot = &map->slots[i];
        if (!slot->key)
            return NULL;
        if (slot->key != REMOVED && slot->hash == hash && strcmp(slot->key, key) == 0)
            return slot;
    }
}

static void insert(struct map *map, const char *key, void *value, uint64_t hash)
{
    size_t i = hash & (map->cap - 1);
    while (map->slots[i].key)
        i = (i + 1) & (map->cap - 1);
    map->slots[i] = (struct map_slot){key, value, hash};
    map->count++;
    map->used++;
}

/* At most half of the places are in use, removed ones included. */
static void make_room(struct map *map)
{
    if (map->used * 2 < map->cap)
        return;
    struct map old = *map;
    map->cap = old.count * 4 > 16 ? old.cap * (old.count * 4 > old.cap ? 2 : 1) : 16;
    map->slots = mem_zero(map->cap * sizeof *map->slots);
    map->count = map->used = 0;
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].key && old.slots[i].key != REMOVED)
            insert(map, old.slots[i].key, old.slots[i].value, old.slots[i].hash);
    free(old.slots);
}

void *map_get(const struct map *map, const char *key)
{
    struct map_slot *slot = find(map, key, hash_text(key));
    return slot ? slot->value : NULL;
}

void map_put(struct map *map, const char *key, void *value)
{
    uint64_t hash = hash_text(key);
    struct map_slot *slot = find(map, key, hash);
    if (slot) {
        slot->key = key;
        slot->value = value;
        return;
    }
    make_room(map);
    insert(map, key, value, hash);
}

void *map_remove(struct map *map, const char *key)
{
    struct map_slot *slot = find(map, key, hash_text(key));
    if (!slot)
        return NULL;
    void *value = slot->value;
    slot->key = REMOVED;
    slot->value = NULL;
    map->count--;
    return value;
}

void *map_next(const struct map *map, size_t *at)
{
    while (*at < map->cap) {
        struct map_slot *slot = &map->slots[(*at)++];
        if (slot->key && slot->key != REMOVED)
            return slot->value;
    }
    return NULL;
}
