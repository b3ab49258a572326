/* A binary heap of points in time, embedded in what waits for them. */
#ifndef ENGINE_HEAP_H
#define ENGINE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t at_ms;
    size_t place; /* 1-based position while in a heap, else 0 */
};

struct heap {
    struct heap_node **nodes;
    size_t count, cap;
};

void heap_init(struct heap *heap);
void heap_release(struct heap *heap);
void heap_add(struct heap *heap, struct heap_node *node);    /* node->at_ms is set; must not be in a heap */
void heap_remove(struct heap *heap, struct heap_node *node); /* no effect when it is in none */
struct heap_node *heap_first(const struct heap *heap);       /* NULL when empty */

#endif
