#include "engine/heap.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

void heap_init(struct heap *heap)
{
    *heap = (struct heap){0};
}

void heap_release(struct heap *heap)
{
    free(heap->nodes);
    heap_init(heap);
}

static void place(struct heap *heap, size_t at, struct heap_node *node)
{
    heap->nodes[at - 1] = node;
    node->place = at;
}

static void rise(struct heap *heap, size_t at, struct heap_node *node)
{
    while (at > 1 && heap->nodes[at / 2 - 1]->at_ms > node->at_ms) {
        place(heap, at, heap->nodes[at / 2 - 1]);
        at /= 2;
    }
    place(heap, at, node);
}

static void sink(struct heap *heap, size_t at, struct heap_node *node)
{
    for (;;) {
        size_t child = 2 * at;
        if (child > heap->count)
            break;
        if (child < heap->count && heap->nodes[child]->at_ms < heap->nodes[child - 1]->at_ms)
            child++;
        if (heap->nodes[child - 1]->at_ms >= node->at_ms)
            break;
        place(heap, at, heap->nodes[child - 1]);
        at = child;
    }
    place(heap, at, node);
}

void heap_add(struct heap *heap, struct heap_node *node)
{
    assert(node->place == 0);
    if (heap->count == heap->cap) {
        heap->cap = heap->cap ? heap->cap * 2 : 64;
        heap->nodes = mem_grow(heap->nodes, heap->cap * sizeof *heap->nodes);
    }
    rise(heap, ++heap->count, node);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    if (node->place == 0)
        return;
    size_t at = node->place;
    node->place = 0;
    struct heap_node *last = heap->nodes[--heap->count];
    if (last == node)
        return;
    if (at > 1 && heap->nodes[at / 2 - 1]->at_ms > last->at_ms)
        rise(heap, at, last);
    else
        sink(heap, at, last);
}

struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count ? heap->nodes[0] : NULL;
}
