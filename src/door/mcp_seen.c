#include "door/mcp_seen.h"

#include "base/map.h"
#include "base/mem.h"

#include <stdlib.h>

struct entry {
    struct entry *newer;
    struct digest digest;
    char *answer; /* NULL = not kept */
    size_t answer_bytes;
    struct mcp_delivery delivery;
    char id[];
};

struct mcp_seen {
    struct map by_id;
    struct entry *oldest, *newest;
    size_t count, bytes;
};

struct mcp_seen *mcp_seen_new(void)
{
    struct mcp_seen *seen = mem_zero(sizeof *seen);
    map_init(&seen->by_id);
    return seen;
}

static void drop_answer(struct mcp_seen *seen, struct entry *entry)
{
    seen->bytes -= entry->answer_bytes;
    free(entry->answer);
    entry->answer = NULL;
    entry->answer_bytes = 0;
}

static void drop_oldest(struct mcp_seen *seen)
{
    struct entry *entry = seen->oldest;
    map_remove(&seen->by_id, entry->id);
    seen->oldest = entry->newer;
    if (!seen->oldest)
        seen->newest = NULL;
    seen->count--;
    drop_answer(seen, entry);
    free(entry);
}

void mcp_seen_free(struct mcp_seen *seen)
{
    if (!seen)
        return;
    while (seen->oldest)
        drop_oldest(seen);
    map_release(&seen->by_id);
    free(seen);
}

static void add(struct mcp_seen *seen, const char *id, const struct digest *digest)
{
    size_t bytes = strlen(id) + 1;
    struct entry *entry = mem_zero(sizeof *entry + bytes);
    memcpy(entry->id, id, bytes);
    entry->digest = *digest;
    if (seen->count == MCP_SEEN_IDS_MAX)
        drop_oldest(seen);
    if (seen->newest)
        seen->newest->newer = entry;
    else
        seen->oldest = entry;
    seen->newest = entry;
    seen->count++;
    map_put(&seen->by_id, entry->id, entry);
}

enum mcp_seen_as mcp_seen_note(struct mcp_seen *seen, const char *id, const struct digest *digest, struct str *answer,
                               struct mcp_delivery *delivery)
{
    struct entry *entry = map_get(&seen->by_id, id);
    *answer = STR_NONE;
    if (!entry) {
        add(seen, id, digest);
        return MCP_SEEN_NEVER;
    }
    if (!digest_equal(&entry->digest, digest))
        return MCP_SEEN_DIFFERENT;
    if (entry->answer) {
        *answer = (struct str){entry->answer, entry->answer_bytes};
        *delivery = entry->delivery;
    }
    return MCP_SEEN_SAME;
}

void mcp_seen_answered(struct mcp_seen *seen, const char *id, struct str answer, const struct mcp_delivery *delivery)
{
    struct entry *entry = map_get(&seen->by_id, id);
    if (!entry || answer.n == 0 || answer.n > MCP_SEEN_ANSWER_BYTES)
        return;
    drop_answer(seen, entry);
    for (struct entry *old = seen->oldest; old && seen->bytes + answer.n > MCP_SEEN_BYTES_MAX; old = old->newer)
        drop_answer(seen, old);
    entry->answer = mem_copy_bytes(answer.p, answer.n);
    entry->answer_bytes = answer.n;
    entry->delivery = *delivery;
    seen->bytes += answer.n;
}
