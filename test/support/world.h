/* A small deterministic world for engine tests: clock and randomness under the test's control, a memory ledger, and an
 * adapter whose answers the test gives. */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include "engine/engine.h"

#define WORLD_WIRE_MAX 256

struct world_sent {
    char operation[OPERATION_ID_SIZE];
    char provider_key[128];
    char arguments[1024]; /* as far as they fit */
    size_t arguments_bytes;
    char progress[256];
    enum attempt_kind kind;
    adapter_done *done;
    void *user;
    bool open;
};

struct world {
    struct env env;
    int64_t now_ms;
    uint64_t seed;
    struct ledger *ledger;
    struct adapter adapter;
    struct webhooks *webhooks; /* of the next engine (world_crash): what it forwards events with; NULL: nothing */
    size_t in_flight_max;      /* of the next engine; 0: as many as usual */
    struct registry *registry;
    struct engine *engine;
    struct world_sent sent[WORLD_WIRE_MAX];
    size_t sent_count;
    bool unbuildable; /* check() refuses */
    struct engine *dead[8];
    size_t dead_count;
    bool threaded; /* the ledger is SQLite's: it works on a thread of its own */
};

/* What a call was answered. Texts are copies. */
struct world_reply {
    int count;
    enum reply_kind kind;
    struct operation op;
    bool has_op, replayed, waited_out, other_arguments;
    char result[512], error[512], text[512], plan[4096], differing[256];
    enum refusal refusal;
    struct arena arena;
};

void world_init(struct world *world, const struct tool *const *tools, size_t count);
/* The same with sources of inbound events, and, unless path is NULL, with an SQLite ledger there. */
void world_init_with(struct world *world, const struct tool *const *tools, size_t count,
                     const struct inbox_source *sources, size_t source_count, const char *path);
void world_release(struct world *world);
/* Runs ledger and timers until nothing moves. */
void world_run(struct world *world);
void world_advance(struct world *world, int64_t ms); /* in small steps, running in between */
/* A new engine on the same ledger, the old one is simply forgotten (as by kill -9). */
void world_crash(struct world *world);

/* A provider and a tool with usual settings, to be changed by the test before world_init. */
void world_provider(struct provider *provider);
void world_tool(struct tool *tool, const char *name, enum tool_class class, const struct provider *provider);

void world_call(struct world *world, const char *tool, const char *arguments, const char *key,
                struct world_reply *reply);
struct waiter *world_request(struct world *world, struct engine_call *call, const char *arguments,
                             struct world_reply *reply);
void world_reply_release(struct world_reply *reply);
void world_keep(void *user, const struct engine_reply *reply); /* engine_reply_fn for a world_reply */

/* Answers the index-th request ever sent. */
void world_answer(struct world *world, size_t index, enum outcome outcome, const char *external_id);
void world_answer_with(struct world *world, size_t index, const struct adapter_answer *answer);
size_t world_sent_of(const struct world *world, enum attempt_kind kind);
/* The row as the ledger has it; texts live in the arena. */
struct operation *world_row(struct world *world, struct arena *arena, const char *id);

#endif
