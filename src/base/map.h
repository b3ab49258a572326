/* A hash map from texts to pointers. Keys are borrowed: they live in the value that they lead to. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_slot;

struct map {
    struct map_slot *slots;
    size_t count, used, cap; /* used counts removed places too */
};

void map_init(struct map *map);
void map_release(struct map *map);

void *map_get(const struct map *map, const char *key); /* NULL when absent */
/* Adds or replaces. key must live as long as the entry. */
void map_put(struct map *map, const char *key, void *value);
/* Returns the value that was there, or NULL. */
void *map_remove(struct map *map, const char *key);

/* Walks all entries in no order: start with *at = 0, ends with NULL. The map must not be changed meanwhile. */
void *map_next(const struct map *map, size_t *at);

#endif
